package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/measure/fair"
	"basalt.dev/basalt/bench/measure/report"
)

func fairCommand() *cobra.Command {
	o := fair.Options{}
	var out string
	c := &cobra.Command{
		Use:   "fair",
		Short: "Measure whether queues get their shares over virtual time, beside a fluid oracle, and what evictions waste, beside models of Volcano and KAI",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.Hours < 2 {
				return fmt.Errorf("--hours: %d is less than 2, and the first hour is not judged", o.Hours)
			}
			for _, load := range o.Loads {
				if load <= 0 || load > 10 {
					return fmt.Errorf("--loads: %v is not above 0 and at most 10", load)
				}
			}
			o.Progress = report.NewProgress(os.Stderr)
			r, err := fair.Measure(c.Context(), o)
			o.Progress.Done()
			if err != nil {
				return err
			}
			return finish(c, r, out, nil)
		},
	}
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "random seed")
	c.Flags().IntVar(&o.Hours, "hours", 24, "virtual time of each load; the first hour is not judged")
	c.Flags().Float64SliceVar(&o.Loads, "loads", []float64{0.85, 1, 1.2}, "what all queues together want, of what there is")
	outFlag(c.Flags(), &out, "fair")
	return c
}
