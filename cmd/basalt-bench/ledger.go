package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/prove/ledger"
)

func ledgerCommand() *cobra.Command {
	var cfg ledger.Config
	var pattern string
	var weak []string
	var weakened, large, late, both bool
	c := &cobra.Command{
		Use:   "ledger",
		Short: "Explore a model of the ledger's protocol, with all of its rules or with weakened ones",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			out := c.OutOrStdout()
			stop := func() bool { return c.Context().Err() != nil }
			var wrong []error
			run := func(cfg ledger.Config) ledger.Result {
				cfg.Stop = stop
				return ledger.Run(cfg, time.Now)
			}
			if weakened {
				for _, w := range ledger.EachWeakened() {
					r := run(w.In)
					fmt.Fprintf(out, "%s: %s\n%s\n", w.Rule, r, strings.Join(r.Trace, "\n"))
					if r.Violation == "" {
						wrong = append(wrong, fmt.Errorf("%s is not found", w.Rule))
					}
				}
				return errors.Join(wrong...)
			}
			var cfgs []ledger.Config
			switch {
			case pattern != "" && !large:
				p, is := ledger.PatternNamed(pattern)
				if !is {
					return fmt.Errorf("there is no pattern %s", pattern)
				}
				for _, name := range weak {
					rule, is := ledger.Named(name)
					if !is {
						return fmt.Errorf("there is no rule %s", name)
					}
					cfg.Weak = append(cfg.Weak, rule)
				}
				p.Late, p.Both = late, both
				cfg.Pattern = p
				cfgs = append(cfgs, cfg)
			case large:
				cfgs = ledger.Large()
				if pattern != "" {
					cfgs = slices.DeleteFunc(cfgs, func(one ledger.Config) bool { return one.Pattern.Name != pattern })
				}
			default:
				cfgs = ledger.Small()
			}
			states := 0
			for _, one := range cfgs {
				one.Limit = cfg.Limit
				r := run(one)
				fmt.Fprintf(out, "%s: %s\n", one, r)
				states += r.States
				if r.Violation != "" {
					fmt.Fprintln(out, strings.Join(r.Trace, "\n"))
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
	f.StringVar(&pattern, "pattern", "", "explore one pattern of ownership, with the flags below or those spaces of it that --large has: own, home, plain, orphan, orphan-moved or support")
	f.StringSliceVar(&weak, "weak", nil, "rules that are not kept")
	f.BoolVar(&late, "late", false, "the pod with the term is created at any point")
	f.BoolVar(&both, "both", false, "both pods carry the term")
	f.Uint8Var(&cfg.Changes, "changes", 1, "changes of the table, at most 2")
	f.Uint8Var(&cfg.Attempts, "attempts", 1, "attempts of a home under each table, 1 or 2")
	f.Uint8Var(&cfg.Edits, "edits", 0, "Bindings that are refused because the pod was edited")
	f.Uint8Var(&cfg.Deletes, "deletes", 0, "pods that are deleted")
	f.Uint8Var(&cfg.Lost, "lost", 0, "answers of members that are lost")
	f.Uint8Var(&cfg.Abandons, "abandons", 0, "tickets that are returned unused")
	f.BoolVar(&cfg.Kept, "kept", false, "a ledger that keeps its bucket keeps its counts and takes the shortcut")
	f.IntVar(&cfg.Limit, "limit", 12_000_000, "give up a space after this many states; 0 means no limit")
	return c
}
