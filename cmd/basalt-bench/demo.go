package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"basalt.dev/basalt/bench/stage/demo"
	"basalt.dev/basalt/bench/stage/local"
)

func demoCommand() *cobra.Command {
	o := demo.Options{}
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run Basalt on a local copy of a real cluster, and audit what it did",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := local.Root()
			if err != nil {
				return err
			}
			if err := local.Programs(cmd.Context(), root, os.Stderr, "etcd", "kube-apiserver", "basalt"); err != nil {
				return err
			}
			o.Out, o.Report = cmd.OutOrStdout(), filepath.Join(root, "bin", "demo-report.txt")
			if wd, err := os.Getwd(); err == nil && wd == root {
				o.Report = filepath.Join("bin", "demo-report.txt") // as a person would type it
			}
			if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && o.Out == os.Stdout {
				o.Width = width
			}
			ok, err := demo.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			if !ok { // the table has said why, and the result is the last line
				os.Exit(1)
			}
			return nil
		},
	}
	c.Flags().Uint64Var(&o.Seed, "seed", 1, "random seed")
	c.Flags().IntVar(&o.Shards, "shards", 3, "shard processes")
	c.Flags().Float64Var(&o.Scale, "scale", 1, "scale of nodes, pods and limits, for a quick look: 0.1 is a tenth of each")
	c.Flags().BoolVar(&o.Keep, "keep", false, "keep everything running after the result, until Ctrl-C")
	return c
}
