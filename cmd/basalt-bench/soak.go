package main

import (
	"fmt"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/measure/cluster"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/scenario"
)

func soakCommand() *cobra.Command {
	var o cluster.Options
	var name, dir string
	c := &cobra.Command{
		Use:   "soak",
		Short: "Run for a long time over an API server in memory, and report whether anything grows",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.Scenario, err = scenario.Load(name); err != nil {
				return err
			}
			if field := o.Scenario.OnlyKube(); field != "" {
				return fmt.Errorf("scenario %s: %s: is for `basalt-bench kube`", name, field)
			}
			if o.Scenario.Arrivals.Open == nil {
				return fmt.Errorf("scenario %s: a soak needs open arrivals", name)
			}
			if o.Seed == 0 {
				o.Seed = o.Scenario.Seed
			}
			o.Scenario.Arrivals.Open.For.Duration = o.Measure + time.Minute // it ends when the time is over
			r := report.New("soak", name, o.Scenario.About, o.Seed)
			r.Set("shards", o.Shards)
			r.Set("duration", o.Measure.String())
			series := map[string]*report.Series{}
			add := func(plot, unit string, at time.Duration, v float64) {
				if series[plot] == nil {
					series[plot] = r.NewSeries(plot, "basalt", unit)
				}
				series[plot].Add(at, v)
			}
			var samples []cluster.Sample
			last := time.Duration(0)
			o.Sample = func(s cluster.Sample) {
				if s.At-last < 10*time.Second || s.At > o.Measure { // what comes later is the drain
					return
				}
				last = s.At
				debug.FreeOSMemory() // collects: what is left is in use
				s.Heap = cluster.HeapInUse()
				samples = append(samples, s)
				add("heap in use", "MB", s.At, float64(s.Heap)/1e6)
				add("goroutines", "", s.At, float64(s.Goroutines))
				add("control store", "MB", s.At, float64(s.StoreSize)/1e6)
				add("gangs waiting", "", s.At, float64(s.Waiting))
				add("queue status writes", "", s.At, float64(s.StatusWrites))
				add("status conflicts", "", s.At, float64(s.StatusConflicts))
			}
			res, err := runCluster(cmd.Context(), cmd.OutOrStdout(), o, o.Sample)
			if err != nil {
				return err
			}
			run := r.Run("basalt", 1)
			run.Add("pods bound", "", float64(res.Pods))
			run.Add("status conflicts", "", float64(res.Conflicts["queues"]+res.Conflicts["podgroups"]))
			run.Add("queue status writes", "a second", float64(res.Statuses["queues"])/res.Took.Seconds())
			run.Add("gangs late by the oracle", "", float64(len(res.Late)))
			var at []time.Duration
			for _, sample := range samples {
				at = append(at, sample.At)
			}
			for _, of := range []struct {
				name  string
				unit  string
				value func(cluster.Sample) float64
			}{
				{"heap", "MB", func(s cluster.Sample) float64 { return float64(s.Heap) / 1e6 }},
				{"goroutines", "", func(s cluster.Sample) float64 { return float64(s.Goroutines) }},
				{"control store", "MB", func(s cluster.Sample) float64 { return float64(s.StoreSize) / 1e6 }},
			} {
				var values []float64
				for _, sample := range samples {
					values = append(values, of.value(sample))
				}
				r.Slope(run, of.name, of.unit, at, values)
			}
			r.Medians("basalt", nil)
			r.Note("over-committed nodes: %v; left after the drain: %v", res.Overcommitted, res.Left)
			return finish(cmd, r, dir, nil)
		},
	}
	f := c.Flags()
	f.IntVar(&o.Shards, "shards", 4, "shards")
	f.StringVar(&name, "scenario", "soak", "scenario of bench/measure/scenario with open arrivals, or a file")
	f.Uint64Var(&o.Seed, "seed", 0, "random seed; 0 means the scenario's own")
	f.DurationVar(&o.Measure, "duration", time.Hour, "how long")
	f.DurationVar(&o.Drain, "drain", 3*time.Minute, "how long pods may take to be placed and to finish at the end")
	outFlag(f, &dir, "soak")
	return c
}
