package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/sim"
)

func simCommand() *cobra.Command {
	var first, one uint64
	var seeds, steps int
	var verbose bool
	c := &cobra.Command{
		Use:   "sim",
		Short: "Run the whole system in a deterministic simulator, from many seeds",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if one > 0 {
				cfg := sim.Config{Seed: one, Steps: steps}
				if verbose {
					cfg.Out = os.Stdout
				}
				r := sim.Run(cfg)
				fmt.Println(r)
				if r.Violation != "" {
					return fmt.Errorf("seed %d fails", one)
				}
				return nil
			}
			return simulate(c.Context(), first, seeds, steps)
		},
	}
	c.Flags().Uint64Var(&one, "seed", 0, "run this seed alone")
	c.Flags().Uint64Var(&first, "first", 1, "the first seed")
	c.Flags().IntVar(&seeds, "seeds", 1000, "how many seeds")
	c.Flags().IntVar(&steps, "steps", 20000, "events of each before its faults end")
	c.Flags().BoolVarP(&verbose, "verbose", "v", false, "with --seed: print every line")
	return c
}

// simulate runs seeds on all cores.
func simulate(ctx context.Context, first uint64, seeds, steps int) error {
	began := time.Now()
	var mu sync.Mutex
	var wg sync.WaitGroup
	next, failed, done := first, 0, 0
	total := 0
	var simulated time.Duration
	counts := map[string]int{}
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				mu.Lock()
				seed := next
				next++
				mu.Unlock()
				if seed >= first+uint64(seeds) || ctx.Err() != nil {
					return
				}
				r := sim.Run(sim.Config{Seed: seed, Steps: steps, Tail: 40})
				mu.Lock()
				done++
				total += r.Steps
				simulated += r.Simulated
				for k, n := range r.Counts {
					counts[k] += n
				}
				if r.Violation != "" {
					failed++
					fmt.Print(r)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	real := time.Since(began)
	fmt.Printf("%d seeds, %d steps, %s simulated in %s: %.0f steps and %.0f simulated seconds a second\n%s\n", done, total,
		simulated.Round(time.Second), real.Round(time.Millisecond), float64(total)/real.Seconds(), simulated.Seconds()/real.Seconds(), sim.Result{Counts: counts})
	if failed > 0 {
		return fmt.Errorf("%d of %d seeds fail; run one again with --seed", failed, done)
	}
	return nil
}
