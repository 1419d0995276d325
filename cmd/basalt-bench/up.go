package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/standing"
)

func shapeFlags(c *cobra.Command, s *standing.Shape) {
	c.Flags().IntVar(&s.Shards, "shards", 3, "shard processes")
	c.Flags().IntVar(&s.Coordinators, "coordinators", 2, "coordinator processes")
	c.Flags().IntVar(&s.Nodes, "nodes", 10, "nodes of 32 cores")
	c.Flags().BoolVar(&s.Volcano, "volcano", false, "with Volcano's controllers, and Basalt in place of its scheduler")
}

func upCommand() *cobra.Command {
	var shape standing.Shape
	c := &cobra.Command{
		Use:   "up",
		Short: "Start a local cluster with Basalt and leave it running",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := local.Root()
			if err != nil {
				return err
			}
			return standing.Up(cmd.Context(), root, cmd.OutOrStdout(), shape, []string{
				"hold", fmt.Sprint("--shards=", shape.Shards), fmt.Sprint("--coordinators=", shape.Coordinators),
				fmt.Sprint("--nodes=", shape.Nodes), fmt.Sprint("--volcano=", shape.Volcano),
			})
		},
	}
	shapeFlags(c, &shape)
	return c
}

func holdCommand() *cobra.Command {
	var shape standing.Shape
	c := &cobra.Command{
		Use:    "hold",
		Short:  "Hold the processes of a local cluster (started by up)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := local.Root()
			if err != nil {
				return err
			}
			return standing.Hold(cmd.Context(), root, shape)
		},
	}
	shapeFlags(c, &shape)
	return c
}

func downCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "down",
		Short: "Stop the local cluster and remove everything that is left of it",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			root, err := local.Root()
			if err != nil {
				return err
			}
			return standing.Down(root, cmd.OutOrStdout())
		},
	}
}
