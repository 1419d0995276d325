package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/bench/prove/explore"
)

func exploreCommand() *cobra.Command {
	var cfg explore.Config
	var bugs []string
	var seeded bool
	c := &cobra.Command{
		Use:   "explore",
		Short: "Explore every interleaving of two shards, two nodes, a coordinator, and gangs that conflict",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if len(bugs) > 0 {
				if !fault.Built {
					return errors.New("this program has no bugs to switch on: build it with -tags faults")
				}
				var on []fault.Fault
				for _, b := range bugs {
					on = append(on, fault.Fault(b))
				}
				fault.Set(on...)
			}
			if !cfg.Claim.Known() {
				return fmt.Errorf("--claim: %q is neither small, gang nor pod", cfg.Claim)
			}
			out := c.OutOrStdout()
			if seeded {
				return exploreBugs(c.Context(), out)
			}
			restart := "at any point"
			if cfg.Rested {
				restart = "at any point (coordinator) or when all else rests (shards)"
			}
			if cfg.Claim != "" {
				fmt.Fprintf(out, "a claim of %s: ", claimed(cfg.Claim))
			}
			fmt.Fprintf(out, "gangs %d, crashes %d (of %s), restarts %s, edits of labels %d, early leaps of time %d (of %s), lost answers and messages %d, waits %d, order %s, put off %d steps of it (0: any, -1: none), capability for %d gangs (0: all)\n",
				cfg.Gangs, cfg.Crashes, cmp.Or(cfg.Victims, "any process"), restart, cfg.Edits, cfg.Early, strings.Trim(fmt.Sprint(explore.Leaps), "[]"), cfg.Lost, cfg.Waits, cfg.Order, cfg.Delays, cfg.Quota)
			cfg.Stop = func() bool { return c.Context().Err() != nil }
			last := time.Now()
			cfg.Progress = func(r explore.Result) {
				if time.Since(last) > 10*time.Second {
					last = time.Now()
					fmt.Fprintln(c.ErrOrStderr(), r)
				}
			}
			cfg.Layer = func(r explore.Result) {
				fmt.Fprintf(out, "at most %d put off: %d states, %d transitions, %s\n", r.Delays, r.States, r.Transitions, r.Took.Round(time.Millisecond))
			}
			r := explore.Run(cfg, time.Now)
			fmt.Fprintln(out, r)
			if r.Violation != "" {
				return errors.New("an invariant does not hold")
			}
			return nil
		},
	}
	f := c.Flags()
	f.IntVar(&cfg.Gangs, "gangs", 2, "1 or 2, each with a pod for both nodes")
	f.StringVar((*string)(&cfg.Claim), "claim", "", "one gang runs, and another claims its room: small (gangs of one pod), gang (of two pods), pod (one of two pods of a gang that runs on); no claim if empty")
	f.BoolVar(&cfg.Statuses, "statuses", false, "the statuses of PodGroups are written, which say that a gang has started")
	f.BoolVar(&cfg.Implied, "implied", false, "gangs that only their pods describe, without PodGroups")
	f.IntVar(&cfg.Crashes, "crashes", 1, "processes that crash, at any point, and start again")
	f.StringVar(&cfg.Victims, "victims", "", "which may crash, of s1, s2 and c, with commas; all if empty")
	f.BoolVar(&cfg.Rested, "rested", true, "a shard that crashed starts again when all else has come to rest, rather than at any point")
	f.BoolVar(&cfg.Plain, "plain", false, "merge nothing: much slower, and ends in the same states")
	f.IntVar(&cfg.Edits, "edits", 0, "labels of pods that somebody edits, at any point")
	f.IntVar(&cfg.Early, "early", 0, "times that time passes although something is under way")
	f.IntVar(&cfg.Lost, "lost", 0, "messages and answers lost")
	f.IntVar(&cfg.Waits, "waits", 1, "times that time passes because nothing else can happen, before the fair end")
	f.IntVar(&cfg.Quota, "quota", 0, "how many gangs the quota admits at once; 0 for all")
	f.StringVar(&cfg.Order, "order", explore.FairOrder, "fair order, by initials: store news, pod news, messages, calls, ends of evicted pods (k), restarts, leases")
	f.IntVar(&cfg.Delays, "delays", 0, "how often the first step of the fair order is delayed; 0 means no limit, -1 never")
	f.IntVar(&cfg.Longest, "longest", 0, "steps after which an unfinished run is a violation; 0 means no limit")
	f.IntVar(&cfg.States, "states", 0, "stop after this many states; 0 means no limit")
	f.DurationVar(&cfg.For, "for", 0, "stop after this time; 0 means no limit")
	f.StringSliceVar(&bugs, "bugs", nil, "seeded bugs to enable, in a build with -tags faults")
	f.BoolVar(&seeded, "seeded", false, "enable one seeded bug after another, each where it must be found, in a build with -tags faults")
	return c
}

// claimed says what a claim takes.
func claimed(c explore.Claim) string {
	switch c {
	case explore.SmallGang:
		return "a gang of one pod"
	case explore.OnePod:
		return "one of two pods of a gang"
	}
	return "a gang of two pods"
}

// exploreBugs tells of each seeded bug what it takes to find it.
func exploreBugs(ctx context.Context, out io.Writer) error {
	if !fault.Built {
		return errors.New("this program has no bugs to switch on: build it with -tags faults")
	}
	defer fault.Set()
	var missed []error
	for _, b := range explore.Bugs {
		fault.Set(b.Fault)
		b.In.Stop = func() bool { return ctx.Err() != nil }
		r := explore.Run(b.In, time.Now)
		if r.Violation == "" {
			missed = append(missed, fmt.Errorf("%s is not found", b.Fault))
			fmt.Fprintf(out, "%s: not found: %s\n", b.Fault, r)
			continue
		}
		what, _, _ := strings.Cut(r.Violation, "\n")
		fmt.Fprintf(out, "%s: found after %d states, %s, by %d steps: %s\n", b.Fault, r.States, r.Took.Round(time.Millisecond), len(r.Path), what)
	}
	return errors.Join(missed...)
}
