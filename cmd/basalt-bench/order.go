package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/prove/order"
)

func orderCommand() *cobra.Command {
	var cfg order.Config
	var world string
	var weak []string
	var most []uint
	var weakened, large bool
	c := &cobra.Command{
		Use:   "order",
		Short: "Explore a model of the log of intents, with all of its rules or with weakened ones",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			out := c.OutOrStdout()
			var wrong []error
			run := func(cfg order.Config) order.Result {
				cfg.Stop = func() bool { return c.Context().Err() != nil }
				return order.Run(cfg, time.Now)
			}
			if weakened {
				for _, w := range order.EachWeakened() {
					r := run(w.In)
					fmt.Fprintf(out, "%s: %s: %s\n%s\n", w.Rule, w.In, r, r.Text())
					if r.Violation == "" {
						wrong = append(wrong, fmt.Errorf("%s is not found", w.Rule))
					}
				}
				return errors.Join(wrong...)
			}
			cfgs := order.Small()
			if large {
				cfgs = order.Large()
			}
			switch {
			case world != "" && !large:
				w, is := order.WorldNamed(world)
				if !is {
					return fmt.Errorf("there is no world %s", world)
				}
				for _, name := range weak {
					rule, is := order.Named(name)
					if !is {
						return fmt.Errorf("there is no rule %s", name)
					}
					cfg.Weak = append(cfg.Weak, rule)
				}
				for u, n := range most {
					if u < len(w.Gangs) {
						w.Most[u] = uint8(n)
					}
				}
				cfg.World = w
				cfgs = []order.Config{cfg}
			case world != "":
				cfgs = slices.DeleteFunc(cfgs, func(one order.Config) bool { return one.World.Name != world })
			}
			states := 0
			for _, one := range cfgs {
				one.Limit = cfg.Limit
				r := run(one)
				fmt.Fprintf(out, "%s: %s\n", one, r)
				states += r.States
				if r.Violation != "" {
					fmt.Fprintln(out, r.Text())
					wrong = append(wrong, fmt.Errorf("%s: %s", one, r.Violation))
				}
			}
			fmt.Fprintf(out, "%d states\n", states)
			return errors.Join(wrong...)
		},
	}
	f := c.Flags()
	f.BoolVar(&weakened, "weakened", false, "weaken one rule after another, each where it must be found, and print its trace")
	f.BoolVar(&large, "large", false, "explore larger spaces; takes some minutes")
	f.StringVar(&world, "world", "", "explore one world, with the flags below or those spaces of it that --large has")
	f.StringSliceVar(&weak, "weak", nil, "rules that are not kept")
	f.UintSliceVar(&most, "commits", nil, "Commits of each gang, 1 or 2")
	f.Uint8Var(&cfg.Edits, "edits", 0, "pods that are edited before they are bound")
	f.Uint8Var(&cfg.Deletes, "deletes", 0, "pods that are deleted")
	f.Uint8Var(&cfg.Deaths, "deaths", 0, "shards that are fenced, 0 or 1")
	f.Uint8Var(&cfg.Victim, "victim", 0, "which: 0 for A, 1 for B")
	f.Uint8Var(&cfg.Breaks, "breaks", 0, "watches of the log that break")
	f.BoolVar(&cfg.Late, "late", false, "no shard has seen the pods at the start")
	f.BoolVar(&cfg.Clean, "clean", false, "rows are removed once their outcome is known")
	f.BoolVar(&cfg.Timeouts, "timeouts", false, "prepared rows may be given up at any point")
	f.BoolVar(&cfg.Refusals, "refusals", false, "Commits of gangs over several node shards may be refused")
	f.BoolVar(&cfg.PointsWin, "points-win", false, "a gang is not judged against one whose point is behind its own")
	f.BoolVar(&cfg.Progress, "progress", false, "somebody has to be placed in the end")
	f.IntVar(&cfg.Limit, "limit", 40_000_000, "give up a space after this many states; 0 means no limit")
	return c
}
