package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/wire"
)

// drainCommand has a shard give its buckets to the others, before its machine is taken down, so that nothing waits for a takeover
// then.
func drainCommand() *cobra.Command {
	var c common
	var cancel bool
	var timeout time.Duration
	cmd := &cobra.Command{Use: "drain SHARD", Args: cobra.ExactArgs(1),
		Short: "Move all buckets of a shard to the others, and wait until it owns none",
		Long: `Move all buckets of a shard to the others, and wait until it owns none.

The shard keeps running, and owns nothing until it is restarted or "drain --cancel" is called. What runs on its nodes is not touched.`}
	f := cmd.Flags()
	f.StringVar(&c.etcd, "etcd", "", "comma-separated endpoints of the control store")
	c.registerTLS(cmd)
	f.BoolVar(&cancel, "cancel", false, "let the shard take its part again")
	f.DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait until it owns nothing; 0 means do not wait")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, peers, err := c.openStore(cmd.Context())
		if err != nil {
			return err
		}
		defer s.Close()
		return drain(cmd.Context(), s, peers, args[0], cancel, timeout, func(left int) { fmt.Fprintf(cmd.OutOrStdout(), "%s owns %d buckets\n", args[0], left) })
	}
	return cmd
}

// drain asks the shard of that name, and waits until it owns nothing. progress hears of every change.
func drain(ctx context.Context, s *store.Store, tls *link.TLS, name string, cancel bool, timeout time.Duration, progress func(left int)) error {
	shards, err := s.Shards(ctx)
	if err != nil {
		return err
	}
	var names []string
	var shard *wire.ShardRecord
	others := 0
	for _, r := range shards {
		names = append(names, r.Name)
		switch {
		case r.Name == name:
			shard = r
		case !r.Draining:
			others++
		}
	}
	slices.Sort(names)
	switch {
	case shard == nil:
		return fmt.Errorf("there is no shard %q; registered are %q", name, names)
	case others == 0 && !cancel:
		return fmt.Errorf("no other shard could take the buckets of %q; registered are %q", name, names)
	}
	err = inspect(ctx, shard.Address, tls, 10*time.Second, func(ctx context.Context, c wire.InspectClient) error {
		_, err := c.Drain(ctx, &wire.DrainRequest{Cancel: cancel})
		return err
	})
	if err != nil {
		return fmt.Errorf("drain %s at %s: %w", name, shard.Address, err)
	}
	if cancel || timeout == 0 {
		return nil
	}
	ctx, stop := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it still owns buckets after %s; it goes on giving them away", timeout))
	defer stop()
	for last := -1; ; {
		table, err := s.Table(ctx)
		if err != nil {
			return err
		}
		if left := table.Owned(api.Incarnation(shard.Incarnation)); left != last {
			progress(left)
			if last = left; left == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("drain %s: %w", name, context.Cause(ctx))
		case <-time.After(200 * time.Millisecond):
		}
	}
}
