package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/bench/prove/hostile"
	"basalt.dev/basalt/bench/stage/local"
)

func hostileCommand() *cobra.Command {
	o := hostile.Options{Controllers: true}
	var names []string
	var keep, program string
	var list, jsonOut bool
	c := &cobra.Command{
		Use:   "hostile",
		Short: "Let a tenant with the ClusterRole edit attack Basalt's real processes beside well-behaved tenants",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			if list {
				for _, a := range hostile.Attacks() {
					fmt.Printf("%-16s %s\n", a.Name, a.About)
				}
				return nil
			}
			if o.Attacks, err = hostile.Choose(names); err != nil {
				return err
			}
			for o.Seed == 0 {
				o.Seed = rand.Uint64N(1_000_000)
			}
			root, err := local.Root()
			if err != nil {
				return err
			}
			programs := []string{"etcd", "kube-apiserver", "basalt"}
			if o.Controllers {
				programs = append(programs, "kube-controller-manager")
			}
			if err := local.Programs(cmd.Context(), root, os.Stderr, programs...); err != nil {
				return err
			}
			o.Cluster, err = local.Start(cmd.Context(), local.Options{Root: root, Dir: keep, Basalt: program, ControllerManager: o.Controllers})
			if err != nil {
				return err
			}
			defer func() { _ = o.Cluster.Stop() }()
			o.Log = func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
			begin := time.Now()
			result, err := hostile.Run(cmd.Context(), o)
			if result == nil {
				return err
			}
			if jsonOut {
				err = errors.Join(err, json.NewEncoder(os.Stdout).Encode(result))
			} else {
				fmt.Printf("basalt hostile, seed %d, %d shards, %d coordinators, %s\n", o.Seed, o.Shards, o.Coordinators, time.Since(begin).Round(time.Second))
				result.Write(os.Stdout)
				for _, slow := range result.Slowed() {
					fmt.Println("SLOWED", slow)
				}
			}
			if err != nil {
				return err
			}
			if n, slowed := len(result.Failed()), len(result.Slowed()); n+slowed > 0 {
				return fmt.Errorf("seed %d found %d problems, and %d attacks that slow others down by more than they slow the control group", o.Seed, n, slowed)
			}
			return nil
		},
	}
	c.Flags().Uint64Var(&o.Seed, "seed", 0, "what attacks and load are drawn from; 0 draws one")
	c.Flags().DurationVar(&o.For, "for", 10*time.Minute, "total duration of the attacks")
	c.Flags().StringSliceVar(&names, "attacks", nil, "comma-separated attacks to run; see --list")
	c.Flags().IntVar(&o.Together, "together", 1, "number of attacks that run at the same time")
	c.Flags().Float64Var(&o.Scale, "scale", 1, "multiplies the number of objects of each attack")
	c.Flags().Float64Var(&o.Writes, "writes", 200, "maximum writes per second of the attacker; 0 means no limit")
	c.Flags().Float64Var(&o.Rate, "rate", 8, "gangs and single pods that well-behaved tenants create per second")
	c.Flags().IntVar(&o.Shards, "shards", 3, "shard processes")
	c.Flags().IntVar(&o.Coordinators, "coordinators", 2, "coordinator processes")
	c.Flags().BoolVar(&o.Controllers, "controllers", o.Controllers, "run kube-controller-manager, which some attacks need")
	c.Flags().BoolVar(&o.Policies, "policies", false, "keep the admission policies of deploy/ in force")
	c.Flags().BoolVar(&o.Measure, "measure", false, "leave out the auditor that starts after each attack, which takes half a minute")
	c.Flags().DurationVar(&o.Patience, "patience", 90*time.Second, "how long pods of the other tenants may take to be placed after an attack")
	c.Flags().StringVar(&o.Profiles, "profiles", "", "directory for CPU profiles of Basalt's processes and the API server, one subdirectory for each attack")
	c.Flags().StringVar(&keep, "keep", "", "directory to keep logs and data in")
	c.Flags().StringVar(&program, "basalt", "", "program to run as shards and coordinators; if empty, bin/basalt")
	c.Flags().BoolVar(&list, "list", false, "list the attacks and exit")
	c.Flags().BoolVar(&jsonOut, "json", false, "print the result as JSON")
	return c
}
