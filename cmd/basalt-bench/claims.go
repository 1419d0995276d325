package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/prove/claims"
	"basalt.dev/basalt/bench/prove/spec"
)

func claimsCommand() *cobra.Command {
	var cfg claims.Config
	c := model[claims.Config]{
		limit: 20_000_000,
		small: claims.Small,
		large: claims.Large,
		weakened: func(yield func(fmt.Stringer, claims.Config) bool) {
			for _, w := range claims.EachWeakened() {
				if !yield(w.Rule, w.In) {
					return
				}
			}
		},
		world: func(space claims.Config) string { return space.World.Name },
		one: func(world string, weak []string) (_ claims.Config, err error) {
			if cfg.World, err = claims.WorldNamed(world); err == nil {
				cfg.Weak, err = rules(weak, claims.Named)
			}
			return cfg, err
		},
		run: func(space claims.Config, bound func(*spec.Bounds)) spec.Result {
			bound(&space.Bounds)
			return claims.Run(space, time.Now)
		},
	}.command(&cobra.Command{
		Use:   "claims",
		Short: "Explore a model of claims, by which gangs take room and quota from others, and weaken its rules",
	})
	f := c.Flags()
	for _, fault := range []struct {
		to         *uint8
		name, says string
	}{
		{&cfg.Crash, "crashes", "terms of the coordinator that end, 0 or 1"},
		{&cfg.HeirC, "claimant-heirs", "homes of claimants that are replaced"},
		{&cfg.HeirV, "victim-heirs", "homes of victims that are replaced, and go on"},
		{&cfg.Restart, "restarts", "node shards that restart"},
		{&cfg.Timeout, "timeouts", "claims that are dropped before they are granted"},
		{&cfg.Cancel, "cancels", "claimants that are deleted"},
		{&cfg.Change, "changes", "claimants that ask anew"},
		{&cfg.Edit, "edits", "edits of limits that make claims illegal"},
		{&cfg.Cut, "cuts", "edits of limits by one pod"},
		{&cfg.Finish, "finishes", "pods of victims that end by themselves"},
		{&cfg.Lapse, "lapses", "holds and promises that are not renewed in time"},
		{&cfg.Late, "late", "HoldRequests that arrive after a Withdraw that was forgotten"},
	} {
		f.Uint8Var(fault.to, fault.name, 0, fault.says)
	}
	f.BoolVar(&cfg.Ends, "ends", false, "an end has to be reached from each state")
	return c
}
