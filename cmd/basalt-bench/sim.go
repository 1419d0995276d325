package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/bench/prove/sim"
)

// simulation is what the command was asked for.
type simulation struct {
	first, one   uint64
	seeds, steps int
	verbose      bool
	hash         bool
	progress     bool
	script, keep string
	bugs         bool
	bug          string
	often        bool
	shrink       time.Duration
}

func simCommand() *cobra.Command {
	var o simulation
	c := &cobra.Command{
		Use:   "sim",
		Short: "Run the whole system in a deterministic simulator, from many seeds",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			switch {
			case (o.bugs || o.bug != "") && !fault.Built:
				return errors.New("this program has no bugs to switch on: build it with -tags faults, as `make sim-bugs` does")
			case o.bugs:
				return o.hunt(c.Context())
			case o.one > 0 || o.script != "":
				return o.single(c.Context())
			}
			return o.many(c.Context())
		},
	}
	f := c.Flags()
	f.Uint64Var(&o.one, "seed", 0, "run only this seed")
	f.StringVar(&o.script, "script", "", "run this script instead of one drawn from a seed")
	f.Uint64Var(&o.first, "first", 1, "the first seed")
	f.IntVar(&o.seeds, "seeds", 1000, "number of seeds; with --bugs, the maximum for each bug")
	f.IntVar(&o.steps, "steps", 20000, "events of each seed before its faults end")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "with --seed or --script: print every line")
	f.BoolVar(&o.hash, "hash", false, "print a line for each seed: seed, steps, hash of the log, hash of all outputs; "+
		"equal lines of two versions mean that nothing changed, also in statuses and events")
	f.BoolVar(&o.progress, "progress", false, "judge also that nobody waits for ever who could start, "+
		"in every fourth seed in a world in which gangs live more than once")
	f.DurationVar(&o.shrink, "shrink", time.Minute, "how long to shrink the script of the first failure")
	f.StringVar(&o.keep, "keep", "", "directory to write shrunk scripts to; if empty, the first one is printed")
	f.BoolVar(&o.bugs, "bugs", false, "enable seeded bugs, one after another, and find each of them")
	f.BoolVar(&o.often, "often", false, "with --bugs: only those that show in one of a few seeds")
	f.StringVar(&o.bug, "bug", "", "enable this bug; with --bugs: look only for this one")
	return c
}

func (o *simulation) single(ctx context.Context) error {
	cfg := sim.Config{Seed: o.one, Steps: o.steps, Outputs: o.hash, Progress: o.progress}
	if o.verbose {
		cfg.Out = os.Stdout
	}
	bug := o.bug
	if o.script != "" {
		file, err := os.Open(o.script)
		if err != nil {
			return err
		}
		defer file.Close()
		if cfg.Script, err = sim.ReadScript(file); err != nil {
			return fmt.Errorf("read %s: %w", o.script, err)
		}
		bug = cmp.Or(bug, cfg.Script.Bug)
	}
	if bug != "" && !fault.Built {
		fmt.Printf("without the bug %s: this program has none\n", bug)
	}
	if bug != "" {
		fault.Set(fault.Fault(bug))
	}
	r := sim.Run(cfg)
	if o.hash {
		fmt.Println(hashes(r))
	} else {
		fmt.Println(r)
	}
	if r.Violation == "" {
		return nil
	}
	if err := o.show(ctx, r, bug); err != nil {
		return err
	}
	return errors.New("the run fails")
}

// show shrinks the script of a failure, and prints or keeps it.
func (o *simulation) show(ctx context.Context, r sim.Result, bug string) error {
	if o.shrink <= 0 {
		return nil
	}
	within, cancel := context.WithTimeout(ctx, o.shrink)
	defer cancel()
	began := time.Now()
	s, runs := sim.Shrink(within, r.Script)
	s.Bug, s.Finds = bug, sim.Kind(r.Violation)
	violation, _, _ := strings.Cut(r.Violation, "\n")
	s.Notes = []string{fmt.Sprintf("seed %d: %s", r.Seed, violation), fmt.Sprintf("%d lines of %d, after %d runs", len(s.Lines), len(r.Script.Lines), runs)}
	fmt.Printf("shrunk from %d lines to %d by %d runs in %s\n", len(r.Script.Lines), len(s.Lines), runs, time.Since(began).Round(time.Second))
	if o.keep == "" {
		return s.Write(os.Stdout)
	}
	name := filepath.Join(o.keep, cmp.Or(bug, fmt.Sprintf("seed-%d", r.Seed))+".txt")
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	defer file.Close()
	return errors.Join(s.Write(io.Writer(file)), file.Close())
}

// many runs seeds on all cores.
func (o *simulation) many(ctx context.Context) error {
	began := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	next, failed, done := o.first, 0, 0
	total := 0
	var simulated time.Duration
	var worst *sim.Result
	counts := map[string]int{}
	waiting := map[uint64]sim.Result{} // with --hash: done, but not the next to be printed
	print := o.first
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				mu.Lock()
				seed := next
				next++
				mu.Unlock()
				if seed >= o.first+uint64(o.seeds) || ctx.Err() != nil {
					return
				}
				r := sim.Run(sim.Config{Seed: seed, Steps: o.steps, Tail: 40, Outputs: o.hash, Progress: o.progress})
				mu.Lock()
				if o.hash {
					for waiting[seed] = r; waiting[print].Script != nil; print++ {
						fmt.Println(hashes(waiting[print]))
						delete(waiting, print)
					}
				}
				done++
				total += r.Steps
				simulated += r.Simulated
				for k, n := range r.Counts {
					counts[k] += n
				}
				if r.Violation != "" {
					if failed++; !o.hash {
						fmt.Print(r)
					}
					if worst == nil || r.Seed < worst.Seed {
						worst = &r
					}
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	real := time.Since(began)
	if o.hash {
		if failed > 0 {
			return fmt.Errorf("%d of %d seeds fail", failed, done)
		}
		return nil
	}
	fmt.Printf("%d seeds, %d steps, %s simulated in %s: %.0f steps and %.0f simulated seconds a second\n%s\n", done, total,
		simulated.Round(time.Second), real.Round(time.Millisecond), float64(total)/real.Seconds(), simulated.Seconds()/real.Seconds(), sim.Result{Counts: counts})
	if failed > 0 {
		return errors.Join(o.show(ctx, *worst, ""), fmt.Errorf("%d of %d seeds fail; run one again with --seed", failed, done))
	}
	return nil
}

// hashes is the line of a run by which two versions of the code are compared.
func hashes(r sim.Result) string {
	return fmt.Sprintf("%d %d %016x %016x", r.Seed, r.Steps, r.Hash, r.Outputs)
}

// hunt looks for every seeded bug.
func (o *simulation) hunt(ctx context.Context) error {
	missed := 0
	for name, why := range sim.Skipped {
		if o.bug == "" {
			fmt.Printf("%-22s skipped: %s\n", name, why)
		}
	}
	fmt.Printf("%-22s %5s %7s %8s  %s\n", "bug", "seeds", "steps", "time", "found by")
	for _, bug := range sim.Bugs {
		if o.bug != "" && o.bug != string(bug.Fault) {
			continue
		}
		first := o.first
		if o.often && !bug.Often() {
			continue
		}
		r, took := sim.Hunt(ctx, bug.Fault, first, o.seeds, o.steps, runtime.GOMAXPROCS(0))
		if r.Violation == "" {
			missed++
			fmt.Printf("%-22s %5d %7s %8s  not found\n", bug.Fault, took, "-", "-")
			continue
		}
		violation, _, _ := strings.Cut(r.Violation, "\n")
		fmt.Printf("%-22s %5d %7d %8s  %.150s\n", bug.Fault, took, r.Step, r.Simulated.Round(time.Second), violation)
		if without := sim.Run(sim.Config{Seed: r.Seed, Steps: o.steps, Progress: o.progress}); without.Violation != "" {
			return fmt.Errorf("seed %d fails without the bug %s, too: %s", r.Seed, bug.Fault, without.Violation)
		}
		if o.keep != "" {
			fault.Set(bug.Fault)
			err := o.show(ctx, r, string(bug.Fault))
			fault.Set()
			if err != nil {
				return err
			}
		}
	}
	if missed > 0 {
		return fmt.Errorf("%d bugs were not found", missed)
	}
	return nil
}
