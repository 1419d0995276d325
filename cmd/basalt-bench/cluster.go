package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/api/process"
	"basalt.dev/basalt/bench/measure/cluster"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/scenario"
	"basalt.dev/basalt/bench/stage/local"
)

func clusterCommand() *cobra.Command {
	var o cluster.Options
	var name, cpuprofile, memprofile, dir string
	var shards []int
	var runs int
	c := &cobra.Command{
		Use:   "cluster",
		Short: "Measure the protocol with real processes over an API server in memory",
		Long: `Gives a scenario's load to real shards, a real coordinator and a real control store over an API server in memory.

  basalt-bench cluster                                95 % of the CPU in use, pods that end for each that comes
  basalt-bench cluster --shards 1,2,4,8 --runs 3      scaling, by CPU time
  basalt-bench cluster --shards 4,16 --wire           the same, with what reading costs
  basalt-bench cluster --scenario cluster-large       gangs of 10,000 beside the load
  basalt-bench cluster --scenario cluster-claims --shards 8
                                                      gangs claim what others were lent: one of 10,000 pods, then 100 at once
  basalt-bench cluster --scenario cluster-99          also: cluster-burst, -never, -crowd, -allocation

CPU a pod is Basalt's and its control store's. The API in memory and the stand-ins for users and kubelets run in the same
program; a profile of the measured part says whose its time was.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Scenario, err = scenario.Load(name); err != nil {
				return err
			}
			if field := o.Scenario.OnlyKube(); field != "" {
				return fmt.Errorf("scenario %s: %s: is for `basalt-bench kube`", name, field)
			}
			if o.Seed == 0 {
				o.Seed = o.Scenario.Seed
			}
			if len(shards) == 0 || slices.Min(shards) < 1 || runs < 1 {
				return errors.New("--shards and --runs: at least one of each")
			}
			r := report.New("cluster", name, o.Scenario.About, o.Seed)
			r.Set("placement", o.Policy)
			r.Set("measured", o.Measure)
			if o.Wire {
				r.Set("read", "over the wire, through the relay")
			}
			out := cmd.OutOrStdout()
			measure := func() error {
				for n := range runs {
					for _, s := range shards {
						o.Shards = s
						res, err := runCluster(cmd.Context(), out, o, clusterSeries(r, subjectOf(s), n))
						if err != nil {
							return err
						}
						reportCluster(r, o, res, n+1)
						if cpuprofile != "" {
							if err := os.WriteFile(cpuprofile, res.Profile, 0o644); err != nil {
								return err
							}
						}
					}
				}
				return nil
			}
			err = measure()
			for _, s := range shards {
				r.Medians(subjectOf(s), clusterTarget(o.Scenario))
			}
			if len(shards) > 1 {
				for _, s := range shards[1:] {
					r.Ratio(subjectOf(s), subjectOf(shards[0]), cpuAPod, report.Target{})
				}
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
			return finish(cmd, r, dir, err)
		},
	}
	f := c.Flags()
	f.IntSliceVar(&shards, "shards", []int{4}, "number of shards; if there are several values, they take turns")
	f.IntVar(&runs, "runs", 1, "runs for each value")
	f.StringVar(&name, "scenario", "cluster", "scenario of bench/measure/scenario, or a file")
	f.Uint64Var(&o.Seed, "seed", 0, "random seed; 0 means the scenario's own")
	f.StringVar(&o.Policy, "placement", "pack", "pack, spread, least-allocated or most-allocated")
	f.BoolVar(&o.Wire, "wire", false, "shards read what is encoded, one of them for all, as from an API server elsewhere")
	f.DurationVar(&o.WarmUp, "warm-up", 5*time.Second, "time before the measurement; a steady load fills the cluster first, and a batch has no warm-up")
	f.DurationVar(&o.Measure, "for", 20*time.Second, "duration of the measurement; for a batch the longest one, which ends when nothing more is bound")
	f.DurationVar(&o.Drain, "drain", time.Minute, "how long pods may take to be placed and to finish at the end; 0 means do not wait")
	f.StringVar(&cpuprofile, "cpuprofile", "", "write the CPU profile of the measured part to this file")
	f.StringVar(&memprofile, "memprofile", "", "write a profile of allocations to this file")
	outFlag(f, &dir, "cluster")
	return c
}

func subjectOf(shards int) string { return fmt.Sprintf("basalt, %d shards", shards) }

// clusterSeries draws what the seconds of a first run looked like.
func clusterSeries(r *report.Report, subject string, number int) func(cluster.Sample) {
	if number > 0 {
		return nil
	}
	pods, used := r.NewSeries(report.Throughput, subject, "pods/s"), r.NewSeries(report.Utilisation, subject, "%")
	heap, waiting := r.NewSeries(report.Memory, subject+", with bench", "MB"), r.NewSeries("gangs waiting over time", subject, "gangs")
	var last cluster.Sample
	return func(s cluster.Sample) {
		if seconds := (s.At - last.At).Seconds(); seconds > 0 {
			pods.Add(s.At, float64(s.Bound-last.Bound)/seconds)
		}
		used.Add(s.At, s.Allocated)
		heap.Add(s.At, float64(s.Heap)/1e6)
		waiting.Add(s.At, float64(s.Waiting))
		last = s
	}
}

// Figures of a run that have a target, or are compared.
const (
	cpuAPod      = "CPU a pod, Basalt and control store"
	podsAPair    = "pods/s on 2 cores, by that CPU"
	acrossShards = "gangs across shards"
	cpuUsed      = "CPU allocated, mean"
	holdTrouble  = "pods with a hold refused, expired or taken"
	commitsNo    = "commits refused"
	lateGangs    = "gangs waiting 5 s though an oracle sees room"
	conflicts    = "status writes refused"
	broken       = "over-committed nodes"
	leftOver     = "left after the drain"
	largeHeld    = "gang of 10,000: complete to all holds, p99"
	largeDurable = "gang of 10,000: complete to all intents, p99"
	behindBest   = "CPU allocated, behind one global best fit"
	behindGPU    = "GPUs allocated, behind one global best fit"
	claimClosed  = "a large gang claims: denied to all victims closed"
	claimPlan    = "a large gang claims: rooms known to rooms promised"
	claimsAll    = "many claim: denied to all claims decided"
	claimsTwice  = "victims of two claims"
	claimsFail   = "failover with claims, beyond one without"
)

// clusterTarget says what is to be reached.
func clusterTarget(s *scenario.Scenario) func(string) report.Target {
	targets := map[string]report.Target{
		podsAPair: report.AtLeast(20_000), holdTrouble: report.AtMost(1), commitsNo: report.AtMost(0.01), lateGangs: report.AtMost(0),
		conflicts: report.AtMost(0), broken: report.AtMost(0), leftOver: report.AtMost(0), largeHeld: report.AtMost(250), largeDurable: report.AtMost(1000),
		behindBest: report.AtMost(1), behindGPU: report.AtMost(1),
		claimClosed: report.AtMost(1000), claimPlan: report.AtMost(150), claimsAll: report.AtMost(3000), claimsTwice: report.AtMost(0), claimsFail: report.AtMost(200),
	}
	if s.Arrivals.Steady != nil {
		targets[cpuUsed] = report.AtLeast(float64(s.Arrivals.Steady.CPUPercent) - 0.5)
	}
	return func(name string) report.Target { return targets[name] }
}

func reportCluster(r *report.Report, o cluster.Options, res *cluster.Result, number int) {
	run := r.Run(subjectOf(o.Shards), number)
	pods, seconds := float64(max(res.Pods, 1)), max(res.Took.Seconds(), 1e-3)
	percent := func(of, whole float64) float64 { return 100 * of / max(whole, 1) }
	us := func(d time.Duration) float64 { return 1e6 * d.Seconds() / pods }
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	run.Add("pods bound", "a second", float64(res.Pods)/seconds)
	run.Add(podsAPair, "", 2*pods/max(res.CPU.Sum().Seconds(), 1e-3))
	run.Add(cpuAPod, "us", us(res.CPU.Sum()))
	run.Add("CPU a pod, control store", "us", us(res.CPU.Store))
	run.Add("CPU a pod, bench (API, users, kubelets)", "us", us(res.CPU.Bench))
	run.Add("CPU a pod, Go runtime, in both", "us", us(res.CPU.Runtime))
	run.Add(cpuUsed, "%", res.Allocated)
	run.Add(acrossShards, "%", percent(float64(res.Crossing), float64(res.Gangs)))
	run.Add("pods a gang", "", pods/float64(max(res.Gangs, 1)))
	run.Add("pods finished, over bound", "%", percent(float64(res.Finished), pods))
	run.Add("complete to whole, p50", "ms", ms(res.Latency.Percentile(50)))
	run.Add("complete to whole, p99", "ms", ms(res.Latency.Percentile(99)))
	run.Add("gangs waiting, mean", "", res.Waiting)
	run.Add("reservations", "a second", res.Reservations/seconds)
	messages := 0.0
	for _, n := range res.Messages {
		messages += n
	}
	run.Add("messages a pod", "", messages/pods)
	run.Add("control-store transactions a pod", "", float64(res.Transactions)/pods)
	run.Add("watch events a pod", "", float64(res.WatchEvents)/pods)
	run.Add("queue statuses written", "a second", float64(res.Statuses["queues"])/seconds)
	run.Add("PodGroup statuses written", "a gang", float64(res.Statuses["podgroups"])/float64(max(res.Gangs, 1)))
	run.Add(conflicts, "", float64(res.Conflicts["queues"]+res.Conflicts["podgroups"]))
	run.Add(holdTrouble, "%", percent(res.Holds["refused"]+res.Holds["lost"], pods))
	run.Add("of them expired or taken", "%", percent(res.Holds["lost"], pods))
	commits, refused := 0.0, 0.0
	for outcome, n := range res.Commits {
		if commits += n; outcome != "prepared" && outcome != "withdrawn" {
			refused += n
		}
	}
	run.Add(commitsNo, "%", percent(refused, commits))
	run.Add("gangs called unschedulable", "", float64(res.Refusals))
	run.Add("of them with room in one global view", "", float64(res.RefusedWrongly))
	run.Add(lateGangs, "", float64(len(res.Late)))
	run.Add(broken, "", float64(len(res.Overcommitted)))
	if o.Drain > 0 {
		run.Add(leftOver, "", float64(len(res.Left)))
	}
	if b := res.Best; b != nil {
		run.Add("CPU allocated", "%", b.CPU)
		run.Add(behindBest, "points", b.BestCPU-b.CPU)
		if b.BestGPU > 0 {
			run.Add("GPUs allocated", "%", b.GPU)
			run.Add(behindGPU, "points", b.BestGPU-b.GPU)
		}
	}
	if l := res.Large; l != nil {
		run.Add("gangs of 10,000 placed", "", float64(l.Whole.Count()))
		run.Add(largeHeld, "ms", ms(l.Held.Percentile(99)))
		run.Add(largeDurable, "ms", ms(l.Durable.Percentile(99)))
		for _, of := range []*report.Latency{l.Reserved, l.Hold, l.Commit, l.Whole} {
			run.Add("gang of 10,000: "+of.Stage+", p50", "ms", ms(of.Percentile(50)))
			run.Add("gang of 10,000: "+of.Stage+", p99", "ms", ms(of.Percentile(99)))
		}
		for _, of := range []*report.Latency{l.Reserved, l.Held, l.Durable, l.Whole, l.Hold, l.Commit} {
			r.Latency(of)
		}
		if l.Unseen > 0 {
			r.Note("run %d, %d shards: the spans of %d large gangs did not arrive", number, o.Shards, l.Unseen)
		}
	}
	if c := res.Claims; c != nil {
		reportClaims(r, run, c, fmt.Sprintf("run %d, %d shards", number, o.Shards))
	}
	res.Latency.Subject = subjectOf(o.Shards)
	r.Latency(res.Latency)
	r.Note("run %d, %d shards: holds %v, commits %v; late %v; over-committed %v; left %v", number, o.Shards, res.Holds, res.Commits,
		res.Late[:min(5, len(res.Late))], res.Overcommitted, res.Left)
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(res.Messages)) {
		kinds = append(kinds, fmt.Sprintf("%s %.4f", k, res.Messages[k]/pods))
	}
	r.Note("run %d, %d shards: messages a pod: %s", number, o.Shards, strings.Join(kinds, ", "))
}

// reportClaims reports the rounds of claims: those with a target first, then all of each.
func reportClaims(r *report.Report, run *report.Run, c *cluster.Claims, which string) {
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	run.Add(claimClosed, "ms", ms(c.Rounds[0].Closed.Max()))
	run.Add(claimPlan, "ms", ms(c.Rounds[0].Plan.Max()))
	run.Add(claimsAll, "ms", ms(c.Rounds[1].Decided.Max()))
	run.Add("failover without claims: lease lost to a new gang bound", "ms", ms(c.Failover))
	run.Add("failover with claims: the same", "ms", ms(c.FailoverClaiming))
	run.Add("failover with claims: how many stood", "", float64(c.Standing))
	run.Add(claimsFail, "ms", ms(c.FailoverClaiming-c.Failover))
	run.Add(claimsTwice, "", float64(len(c.Problems)))
	for _, of := range c.Rounds {
		at := of.Name + ": "
		run.Add(at+"mandates", "", float64(of.Mandates))
		run.Add(at+"victims", "gangs", float64(of.Victims))
		run.Add(at+"evicted", "pods", float64(of.VictimPods))
		run.Add(at+"denied to first claim decided", "ms", ms(of.Decided.Percentile(0)))
		run.Add(at+"denied to last claim decided", "ms", ms(of.Decided.Max()))
		run.Add(at+"denied to last victim closed", "ms", ms(of.Closed.Max()))
		run.Add(at+"denied to last evicted pod gone", "ms", ms(of.Gone))
		run.Add(at+"denied to last claimant bound", "ms", ms(of.Bound))
		for _, l := range []*report.Latency{of.Probe, of.Plan, of.Claim} {
			run.Add(at+l.Stage+", p50", "ms", ms(l.Percentile(50)))
			run.Add(at+l.Stage+", longest", "ms", ms(l.Max()))
		}
		for _, l := range []*report.Latency{of.Decided, of.Closed, of.Probe, of.Plan, of.Claim} {
			r.Latency(l)
		}
		if of.Unseen > 0 {
			r.Note("%s: %s: the spans of %d claimants did not arrive", which, of.Name, of.Unseen)
		}
	}
	for _, p := range c.Problems {
		r.Note("%s: %s", which, p)
	}
}

func runCluster(ctx context.Context, out io.Writer, o cluster.Options, sample func(cluster.Sample)) (*cluster.Result, error) {
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
	process.SetGC() // as in Basalt's own processes
	o.Sample = sample
	o.Progress = func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	res, err := cluster.Run(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("%w (files are left in %s)", err, o.Dir)
	}
	return res, os.RemoveAll(o.Dir)
}
