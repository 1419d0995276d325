package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/prove/order"
	"basalt.dev/basalt/bench/prove/spec"
)

func orderCommand() *cobra.Command {
	var cfg order.Config
	var most []uint
	c := model[order.Config]{
		limit: 40_000_000,
		small: order.Small,
		large: order.Large,
		weakened: func(yield func(fmt.Stringer, order.Config) bool) {
			for _, w := range order.EachWeakened() {
				if !yield(w.Rule, w.In) {
					return
				}
			}
		},
		world: func(space order.Config) string { return space.World.Name },
		one: func(world string, weak []string) (_ order.Config, err error) {
			if cfg.World, err = order.WorldNamed(world); err == nil {
				cfg.Weak, err = rules(weak, order.Named)
			}
			for u, n := range most[:min(len(most), len(cfg.World.Gangs))] {
				cfg.World.Most[u] = uint8(n)
			}
			return cfg, err
		},
		run: func(space order.Config, bound func(*spec.Bounds)) spec.Result {
			bound(&space.Bounds)
			return order.Run(space, time.Now)
		},
	}.command(&cobra.Command{
		Use:   "order",
		Short: "Explore a model of the log of intents, and weaken its rules",
	})
	f := c.Flags()
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
	return c
}
