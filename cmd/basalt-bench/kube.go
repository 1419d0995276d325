package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/rival"
	"basalt.dev/basalt/bench/measure/scenario"
	"basalt.dev/basalt/bench/stage/local"
)

func kubeCommand() *cobra.Command {
	o := rival.Options{Out: os.Stderr}
	var name, scheduler, dir string
	var onLocal, withVolcano bool
	var against, variants []string
	var shards []int
	var views int
	c := &cobra.Command{
		Use:   "kube",
		Short: "Measure any scheduler on a real API server, alone or in turn with others",
		Long: `Gives a scenario's load to a scheduler and measures it by what the API server shows.

  basalt-bench kube --kubeconfig F --scheduler-name S            a scheduler that runs there already
  basalt-bench kube --kubeconfig F --scheduler-name=null         the floor: binds round robin and decides nothing
  basalt-bench kube --local --shards 3,8 --against null,kube-scheduler
                                                                 a fresh local control plane for each run, in turn`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Scenario, err = scenario.Load(name); err != nil {
				return err
			}
			switch {
			case o.Scenario.Arrivals.Steady != nil || o.Scenario.Beside.Any() || o.Scenario.Claims != nil:
				return fmt.Errorf("scenario %s: steady arrivals, what is beside them, and claims are for `basalt-bench cluster`", name)
			case onLocal == (o.Kubeconfig != ""):
				return errors.New("give one of --local and --kubeconfig")
			case !onLocal && scheduler == "":
				return errors.New("--scheduler-name is missing: the spec.schedulerName that the pods get, or null")
			case !onLocal:
				o.Subjects = []rival.Subject{{Name: scheduler, Scheduler: scheduler}}
			default:
				var subjects []string
				for _, n := range shards {
					subjects = append(subjects, fmt.Sprint("basalt:", n))
				}
				if o.Subjects, err = rival.ParseSubjects(append(subjects, against...)); err != nil {
					return err
				}
				for _, s := range slices.Clone(o.Subjects) {
					for _, env := range variants {
						if s.Shards > 0 {
							o.Subjects = append(o.Subjects, s.With(env))
						}
					}
				}
				if withVolcano {
					for _, s := range slices.Clone(o.Subjects) {
						if s.Shards > 0 {
							o.Subjects = append(o.Subjects, s.Through(rival.VolcanoOn), s.Through(rival.VolcanoGroups))
						}
					}
				}
				if views > 0 {
					for _, s := range slices.Clone(o.Subjects) {
						if s.Shards > 0 {
							o.Subjects = append(o.Subjects, s.Watched(views))
						}
					}
				}
				root, err := local.Root()
				if err != nil {
					return err
				}
				programs := []string{"etcd", "kube-apiserver"}
				if slices.Contains(against, "kube-scheduler") {
					programs = append(programs, "kube-scheduler")
				}
				if len(shards) > 0 && o.Basalt == "" {
					programs = append(programs, "basalt")
				}
				if err := local.Programs(cmd.Context(), root, os.Stderr, programs...); err != nil {
					return err
				}
			}
			r, err := rival.Run(cmd.Context(), o)
			return finish(cmd, r, dir, err)
		},
	}
	f := c.Flags()
	f.StringVar(&name, "scenario", "kube", "scenario: a file, or one of "+strings.Join(scenario.Names(), ", "))
	f.Uint64Var(&o.Seed, "seed", 0, "random seed; 0 means the scenario's own")
	f.IntVar(&o.Runs, "runs", 10, "runs of each scheduler")
	outFlag(f, &dir, "kube")
	f.BoolVar(&onLocal, "local", false, "start a local control plane for each run")
	f.IntSliceVar(&shards, "shards", []int{3}, "with --local: measure Basalt with each of these numbers of shards")
	f.StringSliceVar(&against, "against", nil, "with --local: also measure null, kube-scheduler, in turn")
	f.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig of an existing API server")
	f.StringVar(&scheduler, "scheduler-name", "", "with --kubeconfig: the pods' spec.schedulerName, or null")
	f.BoolVar(&o.MakeNodes, "make-nodes", false, "with --kubeconfig: create the scenario's nodes, and delete them afterwards")
	f.StringToIntVar(&o.Pids, "pid", nil, "with --kubeconfig: processes of this machine whose CPU is measured: apiserver=, etcd=, scheduler=")
	f.BoolVar(&o.Count, "count", true, "with --local: one more run of each with audit log, traces and metrics enabled, to count requests")
	f.StringVar(&o.Profiles, "profiles", "", "directory for CPU profiles of the run that counts requests")
	f.DurationVar(&o.Patience, "patience", 0, "when to end a run that does not bind all of its pods; 0 means 5m")
	f.StringVar(&o.Basalt, "basalt", "", "program to run; if empty, bin/basalt")
	f.StringArrayVar(&o.Flags, "flag", nil, "a flag for Basalt's processes")
	f.StringArrayVar(&variants, "variant", nil, "with --local: NAME=VALUE for Basalt's processes, measured beside Basalt without it")
	f.IntVar(&views, "views", 0, "with --local: also measure Basalt with so many pages of a console open, "+
		"in turn; at most 320")
	f.BoolVar(&withVolcano, "volcano", false, "with --local: also measure Basalt with --volcano=write, and with all gangs by Volcano's PodGroups, in turn")
	return c
}

func restartCommand() *cobra.Command {
	o := rival.Options{Out: os.Stderr}
	var name, dir string
	var shards, gangs int
	c := &cobra.Command{
		Use:   "restart",
		Short: "Fill a local cluster, kill all Basalt processes, restart them together, and wait for the first Binding",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Scenario, err = scenario.Load(name); err != nil {
				return err
			}
			if o.Scenario.Arrivals.Closed == nil {
				return fmt.Errorf("scenario %s: a restart needs a closed batch", name)
			}
			if gangs > 0 {
				o.Scenario.Arrivals.Closed.Gangs = gangs
			}
			o.Subjects = []rival.Subject{rival.Basalt(shards)}
			root, err := local.Root()
			if err != nil {
				return err
			}
			programs := []string{"etcd", "kube-apiserver"}
			if o.Basalt == "" {
				programs = append(programs, "basalt")
			}
			if err := local.Programs(cmd.Context(), root, os.Stderr, programs...); err != nil {
				return err
			}
			r, err := rival.Restart(cmd.Context(), o)
			return finish(cmd, r, dir, err)
		},
	}
	f := c.Flags()
	f.StringVar(&name, "scenario", "restart", "scenario: a file, or one of "+strings.Join(scenario.Names(), ", "))
	f.Uint64Var(&o.Seed, "seed", 0, "random seed; 0 means the scenario's own")
	f.IntVar(&o.Runs, "runs", 3, "how often all processes are killed")
	f.IntVar(&shards, "shards", 3, "shard processes")
	f.IntVar(&gangs, "gangs", 0, "number of gangs, if fewer than the scenario's, for a quick look")
	outFlag(f, &dir, "restart")
	f.StringVar(&o.Basalt, "basalt", "", "program to run; if empty, bin/basalt")
	f.StringArrayVar(&o.Flags, "flag", nil, "a flag for Basalt's processes")
	return c
}

// outFlag says where finish keeps a report.
func outFlag(f *pflag.FlagSet, dir *string, command string) {
	f.StringVar(dir, "out", ".bench/"+command, "directory for report.json and report.html; if empty, none are written")
}

// finish shows and keeps a report, also one that an error cut short.
func finish(cmd *cobra.Command, r *report.Report, dir string, err error) error {
	if err != nil && len(r.Runs) == 0 {
		return err
	}
	r.Print(cmd.OutOrStdout())
	if dir == "" {
		return err
	}
	if writeErr := r.Write(dir); writeErr != nil {
		return errors.Join(err, writeErr)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "\n%s/report.html, %s/report.json\n", dir, dir)
	return err
}
