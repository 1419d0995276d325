package main

import (
	"os"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/prove/gauge"
	"basalt.dev/basalt/bench/stage/local"
)

func gaugeCommand() *cobra.Command {
	var short, lower bool
	c := &cobra.Command{
		Use:   "gauge [FOLDER[/...]]...",
		Short: "Measure the shape of the code: sizes, receivers, who writes which field, which files call which",
		RunE: func(_ *cobra.Command, folders []string) error {
			root, err := local.Root()
			if err != nil {
				return err
			}
			if lower {
				return gauge.Lower(root)
			}
			all, err := gauge.Measure(root)
			if err != nil {
				return err
			}
			gauge.Print(os.Stdout, all, folders, short)
			return nil
		},
	}
	c.Flags().BoolVar(&short, "short", false, "print one row for each package")
	c.Flags().
		BoolVar(&lower, "lower", false, "lower the ceilings in "+gauge.Ceilings+" to today's figures, and print nothing")
	return c
}
