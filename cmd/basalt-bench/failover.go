package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/measure/failover"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/network"
)

func failoverCommand() *cobra.Command {
	o := failover.Options{Out: os.Stderr}
	var keep string
	c := &cobra.Command{
		Use:   "failover",
		Short: "Measure recovery time when a shard or the active coordinator is killed or restarted under load",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			root, err := local.Root()
			if err != nil {
				return err
			}
			if err := local.Programs(cmd.Context(), root, os.Stderr, "etcd", "kube-apiserver", "basalt"); err != nil {
				return err
			}
			if o.Network, err = network.New(); err != nil {
				fmt.Printf("gossip splits are SKIPPED: %v\n", err)
				o.Network, o.Splits = nil, 0
			} else {
				defer o.Network.Close()
			}
			if o.Cluster, err = local.Start(cmd.Context(), local.Options{Root: root, Dir: keep, Network: o.Network, Basalt: filepath.Join(root, "bin", "basalt"), ControlStoreMembers: 3}); err != nil {
				return err
			}
			defer func() { _ = o.Cluster.Stop() }()
			result, err := failover.Run(cmd.Context(), o)
			if result != nil {
				fmt.Printf("basalt failover, %d rounds, %d shards, %d coordinators, a control store of 3, restarts after %s\n", o.Rounds, o.Shards, o.Coordinators, o.RestartAfter)
				result.Write(os.Stdout)
			}
			return err
		},
	}
	c.Flags().IntVar(&o.Rounds, "rounds", 30, "how often a shard and the active coordinator are killed")
	c.Flags().IntVar(&o.Groups, "groups", 100, "how many pods are the first of a group that is spread over zones, and how many of a known one")
	c.Flags().IntVar(&o.Restarts, "restarts", 10, "how often each of them is restarted under load")
	c.Flags().IntVar(&o.Splits, "splits", 1, "how often the processes are partitioned into two halves")
	c.Flags().DurationVar(&o.Split, "split", 90*time.Second, "for how long")
	c.Flags().StringVar(&keep, "keep", "", "directory to keep logs and data in")
	c.Flags().BoolVarP(&o.Verbose, "verbose", "v", false, "let shards and coordinators log more")
	c.Flags().IntVar(&o.Shards, "shards", 3, "shard processes")
	c.Flags().IntVar(&o.Coordinators, "coordinators", 2, "coordinator processes")
	c.Flags().DurationVar(&o.RestartAfter, "restart-after", 6*time.Second, "delay before a process that ended is restarted under its name")
	c.Flags().Float64Var(&o.Rate, "rate", 10, "gangs of four per second while processes are restarted")
	return c
}
