package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/cluster"
	"basalt.dev/basalt/bench/local"
	"basalt.dev/basalt/bench/scenario"
)

func clusterCommand() *cobra.Command {
	var o cluster.Options
	var name, cpuprofile, memprofile string
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Measure the protocol: all real parts but the API server, which is in memory",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Scenario, err = scenario.Load(name); err != nil {
				return err
			}
			if o.Seed == 0 {
				o.Seed = o.Scenario.Seed
			}
			stop, err := profile(cpuprofile)
			if err != nil {
				return err
			}
			defer stop()
			res, err := runCluster(cmd.Context(), cmd.OutOrStdout(), o)
			if err != nil {
				return err
			}
			if memprofile != "" {
				f, err := os.Create(memprofile)
				if err != nil {
					return err
				}
				defer f.Close()
				if err := pprof.Lookup("allocs").WriteTo(f, 0); err != nil {
					return err
				}
			}
			printCluster(cmd.OutOrStdout(), o, res)
			return nil
		},
	}
	f := c.Flags()
	f.IntVar(&o.Shards, "shards", 4, "shards")
	f.StringVar(&name, "scenario", "cluster", "a scenario of bench/scenario, or a file")
	f.Uint64Var(&o.Seed, "seed", 0, "seed; 0: the scenario's")
	f.StringVar(&o.Policy, "placement", "pack", "pack or spread")
	f.IntVar(&o.Fill, "fill", 95, "what gangs ask for at all times, in percent of each leaf queue's share of the cluster; 0: arrivals as the scenario says")
	f.IntVar(&o.Backlog, "backlog", 4000, "with --fill: no gang is made while so many pods have no node yet")
	f.DurationVar(&o.WarmUp, "warm-up", 5*time.Second, "not measured")
	f.DurationVar(&o.Measure, "for", 20*time.Second, "measured")
	f.DurationVar(&o.Drain, "drain", 30*time.Second, "at the end, for what is there to be placed and to end; 0: do not look")
	f.IntVar(&o.Large, "large", 0, "gangs of 10,000 pods beside the load, one after the other")
	f.IntVar(&o.Never, "never", 0, "pods beside the load that no node could take if it were empty")
	f.StringVar(&cpuprofile, "cpuprofile", "", "write a CPU profile to this file")
	f.StringVar(&memprofile, "memprofile", "", "write a profile of allocations to this file")
	return c
}

func profile(path string) (stop func(), err error) {
	if path == "" {
		return func() {}, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); _ = f.Close() }, nil
}

func runCluster(ctx context.Context, out io.Writer, o cluster.Options) (*cluster.Result, error) {
	var err error
	if o.Root, err = local.Root(); err != nil {
		return nil, err
	}
	if err := local.Programs(ctx, o.Root, out, "etcd"); err != nil {
		return nil, err
	}
	if o.Dir, err = os.MkdirTemp("", "basalt-cluster-"); err != nil {
		return nil, err
	}
	o.Progress = func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	res, err := cluster.Run(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("%w (files are left in %s)", err, o.Dir)
	}
	return res, os.RemoveAll(o.Dir)
}

func printCluster(out io.Writer, o cluster.Options, r *cluster.Result) {
	pods, seconds := float64(max(r.Pods, 1)), r.Took.Seconds()
	p := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	p("%d shards on %d cores, %s, seed %d, %.1f s measured", o.Shards, runtime.GOMAXPROCS(0), o.Scenario.Name(), o.Seed, seconds)
	p("  pods bound             %8.0f a second, %d in %d gangs", float64(r.Pods)/seconds, r.Pods, r.Gangs)
	p("  for each CPU second    %8.0f", pods/r.CPU.Sum().Seconds())
	p("  CPU a pod              %8.1f us: program %.1f, control store %.1f", 1e6*r.CPU.Sum().Seconds()/pods, 1e6*r.CPU.Program.Seconds()/pods, 1e6*r.CPU.Etcd.Seconds()/pods)
	p("  complete to whole      p50 %s, p99 %s, max %s", r.Latency.Percentile(50), r.Latency.Percentile(99), r.Latency.Max())
	p("  across shards          %8.1f %% of gangs", 100*float64(r.Crossing)/float64(max(r.Gangs, 1)))
	p("  CPU allocated          %8.1f %%, %.0f gangs waiting", r.Allocated, r.Waiting)
	p("  grants                 %8.0f a second", r.Reservations/seconds)
	p("  store writes a pod     %8.3f", float64(r.Transactions)/pods)
	p("  watch events a pod     %8.2f", float64(r.WatchEvents)/pods)
	sum := 0.0
	for _, k := range slices.Sorted(maps.Keys(r.Messages)) {
		sum += r.Messages[k]
		p("    %-36s %9.0f  %.4f a pod", k, r.Messages[k], r.Messages[k]/pods)
	}
	p("  messages a pod         %8.3f", sum/pods)
	p("  holds %v, commits %v, statuses %v, conflicts %v", r.Holds, r.Commits, r.Statuses, r.Conflicts)
	p("  refused holds and lost %8.3f %% of pods bound", 100*(r.Holds["refused"]+r.Holds["lost"])/pods)
	p("  gangs called unschedulable %d, of them wrongly %d; waiting though the oracle saw room %d %v", r.Refusals, r.RefusedWrongly, len(r.Late), r.Late[:min(5, len(r.Late))])
	p("  over-committed nodes %v; left after the drain %v", r.Overcommitted, r.Left)
	if r.LargeDurable != nil {
		p("  large gangs: whole p50 %s, p99 %s", r.LargeDurable.Percentile(50), r.LargeDurable.Percentile(99))
	}
}
