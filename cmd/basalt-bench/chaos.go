package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/bench/prove/chaos"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/network"
)

func chaosCommand() *cobra.Command {
	o := chaos.Options{Rest: 5 * time.Minute}
	var faults, points, keep, old string
	var members int
	c := &cobra.Command{
		Use:   "chaos",
		Short: "Inject faults into real Basalt processes under load, and audit the result",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if faults != "" {
				o.Faults = strings.Split(faults, ",")
			}
			for o.Seed == 0 {
				o.Seed = rand.Uint64N(1_000_000)
			}
			root, err := local.Root()
			if err != nil {
				return err
			}
			if err := local.Programs(cmd.Context(), root, os.Stderr, "etcd", "kube-apiserver", "basalt-faults"); err != nil {
				return err
			}
			if o.NoOld = "--old names no commit"; old != "" {
				if o.Old, err = local.Old(cmd.Context(), root, old); err != nil {
					o.NoOld = err.Error()
				}
			}
			l := local.Options{Root: root, Dir: keep, ControlStoreMembers: members, Basalt: filepath.Join(root, "bin", "basalt-faults")}
			if o.Network, err = network.New(); err != nil {
				o.Network, o.NoNetwork = nil, err.Error()
			} else {
				l.Network = o.Network
				defer o.Network.Close()
			}
			if o.Cluster, err = local.Start(cmd.Context(), l); err != nil {
				return err
			}
			defer func() { _ = o.Cluster.Stop() }()
			switch points {
			case "none":
			case "all":
				o.Points = fault.Points
			default:
				for p := range strings.SplitSeq(points, ",") {
					o.Points = append(o.Points, fault.Point(p))
				}
			}
			o.Log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
			result, err := chaos.Run(cmd.Context(), o)
			if err != nil {
				return err
			}
			fmt.Printf("basalt chaos, seed %d, %s, %d shards, at most %d, %d coordinators, a control store of %d\n", o.Seed, o.For, o.Shards, o.MostShards, o.Coordinators, members)
			result.Write(os.Stdout)
			if n := len(result.Problems); n > 0 {
				return fmt.Errorf("seed %d found %d problems", o.Seed, n)
			}
			return nil
		},
	}
	c.Flags().Uint64Var(&o.Seed, "seed", 0, "random seed of load and faults; 0 means a random one")
	c.Flags().DurationVar(&o.For, "duration", 5*time.Minute, "how long load and faults last")
	c.Flags().IntVar(&o.Shards, "shards", 5, "shard processes at the start and at the end")
	c.Flags().IntVar(&o.MostShards, "most-shards", 8, "shard processes when scaled up")
	c.Flags().IntVar(&o.Coordinators, "coordinators", 3, "coordinator processes")
	c.Flags().IntVar(&members, "store-members", 3, "members of the control store")
	c.Flags().StringVar(&faults, "faults", "", "comma-separated kinds of faults to inject; if empty, all of: "+strings.Join(chaos.Kinds(), ", "))
	c.Flags().DurationVar(&o.Rest, "rest", o.Rest, "how long the system may take to settle afterwards")
	c.Flags().BoolVar(&o.Hostile, "hostile", true, "a tenant with the ClusterRole edit attacks at the same time")
	c.Flags().BoolVar(&o.Long, "long", false, "make most pods long-running, whatever the seed draws")
	c.Flags().StringVar(&points, "points", "all", "comma-separated crash points to visit: all, none, or names")
	c.Flags().StringVar(&old, "old", "", "commit of an older version to run beside this one, as in a rolling update, for example HEAD~1")
	c.Flags().StringVar(&keep, "keep", "", "directory to keep logs and data in")
	c.Flags().BoolVarP(&o.Verbose, "verbose", "v", false, "let shards and coordinators log more")
	return c
}
