package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime/pprof"
	"strings"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/measure/engine"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/trace"
)

func engineCommand() *cobra.Command {
	o := engine.Options{GangNodes: 20000} // gangs of 10,000
	var traced, profile, out string
	var asJSON bool
	var seeds int
	c := &cobra.Command{
		Use:   "engine",
		Short: "Measure placement alone on one core, compare it with an exact scan, or replay a trace",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if profile != "" {
				f, err := os.Create(profile)
				if err != nil {
					return fmt.Errorf("write CPU profile: %w", err)
				}
				defer f.Close()
				if err := pprof.StartCPUProfile(f); err != nil {
					return fmt.Errorf("write CPU profile: %w", err)
				}
				defer pprof.StopCPUProfile()
			}
			o.Progress = report.NewProgress(os.Stderr)
			r, err := runEngine(c.Context(), o, traced, seeds)
			o.Progress.Done()
			if err != nil {
				return err
			}
			if asJSON {
				r.Finish()
				if c.Flags().Changed("out") && out != "" {
					if err := r.Write(out); err != nil {
						return err
					}
				}
				e := json.NewEncoder(c.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(r)
			}
			return finish(c, r, out, nil)
		},
	}
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "random seed")
	c.Flags().IntSliceVar(&o.Nodes, "nodes", []int{1523, 5000, 20000, 100000}, "cluster sizes")
	c.Flags().IntVar(&o.Rounds, "rounds", 10, "rounds; sizes take turns")
	c.Flags().IntVar(&o.Decisions, "decisions", 100000, "decisions per round")
	c.Flags().IntVar(&o.Exact, "exact-up-to", 5000, "compare quality with exact best fit for clusters of up to this many nodes")
	c.Flags().StringVar(&traced, "trace", "", "openb:DIR, or openb:DIR,LIST for its openb_pod_list_LIST.csv")
	c.Flags().IntVar(&seeds, "seeds", 5, "with --trace: seeds of the inflation")
	c.Flags().StringVar(&profile, "cpuprofile", "", "write a CPU profile to this file")
	outFlag(c.Flags(), &out, "engine")
	c.Flags().BoolVar(&asJSON, "json", false, "print report.json instead of the table, and write files only if --out is given")
	return c
}

func runEngine(ctx context.Context, o engine.Options, traced string, seeds int) (*report.Report, error) {
	kind, where, _ := strings.Cut(traced, ":")
	switch kind {
	case "":
		for _, n := range o.Nodes {
			if n < 1 || n > 1_000_000 {
				return nil, fmt.Errorf("--nodes: %d is not between 1 and 1000000", n)
			}
		}
		if len(o.Nodes) == 0 || o.Rounds < 1 || o.Decisions < 4 {
			return nil, fmt.Errorf("--nodes, --rounds and --decisions: at least one size, one round and 4 decisions")
		}
		return engine.Measure(ctx, o)
	case "openb":
		dir, list, given := strings.Cut(where, ",")
		if !given {
			list = "default"
		}
		nodes, pods, err := trace.Openb(dir, list)
		if err != nil {
			return nil, err
		}
		return engine.Replay(ctx, nodes, pods, o.Seed, seeds, o.Progress)
	}
	return nil, fmt.Errorf("--trace %s: is not openb:DIR", traced)
}
