package main

import (
	"errors"
	"math/rand/v2"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/prove/mutants"
	"basalt.dev/basalt/bench/stage/local"
)

func mutantsCommand() *cobra.Command {
	var o mutants.Options
	c := &cobra.Command{
		Use:   "mutants",
		Short: "Mutate one expression of a package at a time and list the mutants that its tests miss",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if o.Sample > 0 && o.Since != "" {
				return errors.New("--sample and --since exclude each other")
			}
			for o.Seed == 0 {
				o.Seed = rand.Uint64N(1_000_000)
			}
			if o.Root, err = local.Root(); err != nil {
				return err
			}
			return mutants.Run(cmd.Context(), cmd.OutOrStdout(), o)
		},
	}
	c.Flags().StringVar(&o.Package, "package", "", "folder of the package, relative to the repository")
	c.Flags().StringVar(&o.Since, "since", "", "mutate only lines that changed since this revision")
	c.Flags().IntVar(&o.Sample, "sample", 0, "draw so many mutants at random; 0 is all")
	c.Flags().Uint64Var(&o.Seed, "seed", 0, "seed of the sample; 0 draws one")
	c.Flags().IntVar(&o.Seeds, "seeds", 0, "seeds of the simulator that it meets too, and half as many with --progress")
	c.Flags().IntSliceVar(&o.Only, "only", nil, "numbers of the mutants of the list to run; if empty, all")
	_ = c.MarkFlagRequired("package")
	return c
}
