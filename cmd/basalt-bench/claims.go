package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/prove/claims"
)

func claimsCommand() *cobra.Command {
	var cfg claims.Config
	var world string
	var weak []string
	var weakened, large bool
	c := &cobra.Command{
		Use:   "claims",
		Short: "Explore a model of claims, by which gangs take room and quota from others, with all of its rules or with weakened ones",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			out := c.OutOrStdout()
			var wrong []error
			run := func(cfg claims.Config) claims.Result {
				cfg.Stop = func() bool { return c.Context().Err() != nil }
				return claims.Run(cfg, time.Now)
			}
			if weakened {
				for _, w := range claims.EachWeakened() {
					r := run(w.In)
					fmt.Fprintf(out, "%s: %s: %s\n%s\n", w.Rule, w.In, r, r.Text())
					if r.Violation == "" {
						wrong = append(wrong, fmt.Errorf("%s is not found", w.Rule))
					}
				}
				return errors.Join(wrong...)
			}
			cfgs := claims.Small()
			if large {
				cfgs = claims.Large()
			}
			switch {
			case world != "" && !large:
				w, is := claims.WorldNamed(world)
				if !is {
					return fmt.Errorf("there is no world %s", world)
				}
				for _, name := range weak {
					rule, is := claims.Named(name)
					if !is {
						return fmt.Errorf("there is no rule %s", name)
					}
					cfg.Weak = append(cfg.Weak, rule)
				}
				cfg.World = w
				cfgs = []claims.Config{cfg}
			case world != "":
				cfgs = slices.DeleteFunc(cfgs, func(one claims.Config) bool { return one.World.Name != world })
			}
			states, complete := 0, 0
			for _, one := range cfgs {
				one.Limit = cfg.Limit
				r := run(one)
				fmt.Fprintf(out, "%s: %s\n", one, r)
				states += r.States
				if r.Complete {
					complete++
				}
				if r.Violation != "" {
					fmt.Fprintln(out, r.Text())
					wrong = append(wrong, fmt.Errorf("%s: %s", one, r.Violation))
				}
			}
			fmt.Fprintf(out, "%d states; %d of %d spaces exhausted\n", states, complete, len(cfgs))
			return errors.Join(wrong...)
		},
	}
	f := c.Flags()
	f.BoolVar(&weakened, "weakened", false, "weaken one rule after another, each where it must be found, and print its trace")
	f.BoolVar(&large, "large", false, "explore each two faults in each world; takes some minutes")
	f.StringVar(&world, "world", "", "explore one world, with the flags below or those spaces of it that --large has")
	f.StringSliceVar(&weak, "weak", nil, "rules that are not kept")
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
	f.IntVar(&cfg.Limit, "limit", 20_000_000, "give up a space after this many states; 0 means no limit")
	return c
}
