package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/visibility"
	"basalt.dev/basalt/api/wire"
)

// drainCommand has a shard give its buckets to the others, before its machine is taken down, so that nothing waits for a takeover
// then.
func drainCommand() *cobra.Command {
	var c common
	var u user
	var e endpoint
	var cancel bool
	var timeout time.Duration
	cmd := &cobra.Command{Use: "drain SHARD", Args: cobra.ExactArgs(1),
		Short: "Move all buckets of a shard to the others, and wait until it owns none",
		Long: `Move all buckets of a shard to the others, and wait until it owns none.

The shard keeps running, and owns nothing until it is restarted or "drain --cancel" is called. What runs on its nodes is not touched. A
drain that was ordered before is not ordered again: the command waits for it.

A shard is asked with your kubeconfig; you need the right to create shards.scheduling.basalt.dev/drain for the shard, which the ClusterRole
basalt-drain has for all. With --etcd the control store and the shard are asked directly, with an operator's certificate: the way to drain
when no shard answers.`,
		Example: `  basalt drain basalt-shard-1
  basalt drain basalt-shard-1 --cancel`}
	f := cmd.Flags()
	c.registerDirect(cmd)
	u.register(cmd, "unused")
	_, _ = f.MarkHidden("output"), f.MarkHidden("namespace")
	e.register(cmd)
	f.BoolVar(&cancel, "cancel", false, "let the shard take its part again")
	f.DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait until it owns nothing; 0 means do not wait")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var d drains
		if c.direct() {
			s, peers, err := c.openStore(cmd.Context())
			if err != nil {
				return err
			}
			defer s.Close()
			d = directly{s, peers}
		} else {
			config, _, err := u.config()
			if err != nil {
				return noWay("drain", err)
			}
			d = throughShard{&e, config}
		}
		return drain(cmd.Context(), d, args[0], cancel, timeout, cmd.OutOrStdout())
	}
	return cmd
}

// drains are the ways to have a shard drained.
type drains interface {
	order(ctx context.Context, shard string, cancel bool) (visibility.Drain, error)
	draining(ctx context.Context, shard string) (visibility.Drain, error)
	every() time.Duration // that draining may be asked
}

// directly asks the control store, and the shard as an operator.
type directly struct {
	store *store.Store
	tls   *link.TLS
}

func (d directly) order(ctx context.Context, shard string, cancel bool) (visibility.Drain, error) {
	return visibility.Order(ctx, d.store, shard, cancel, func(ctx context.Context, r *wire.ShardRecord) error {
		return inspect(ctx, r.Address, d.tls, func(ctx context.Context, c wire.InspectClient) error {
			_, err := c.Drain(ctx, &wire.DrainRequest{Cancel: cancel})
			return err
		})
	})
}

func (d directly) draining(ctx context.Context, shard string) (visibility.Drain, error) {
	return visibility.Draining(ctx, d.store, shard)
}

func (directly) every() time.Duration { return 200 * time.Millisecond }

// throughShard asks a shard, with a user's rights.
type throughShard struct {
	endpoint *endpoint
	config   *rest.Config
}

func (d throughShard) order(ctx context.Context, shard string, cancel bool) (visibility.Drain, error) {
	return d.call(ctx, map[bool]string{false: http.MethodPut, true: http.MethodDelete}[cancel], shard)
}

func (d throughShard) draining(ctx context.Context, shard string) (visibility.Drain, error) {
	return d.call(ctx, http.MethodGet, shard)
}

func (d throughShard) call(ctx context.Context, method, shard string) (answer visibility.Drain, err error) {
	if err := d.endpoint.call(ctx, d.config, method, "/shards/"+url.PathEscape(shard)+"/drain", &answer); err != nil {
		return answer, noWay("drain", err)
	}
	return answer, nil
}

func (throughShard) every() time.Duration { return time.Second }

// orderWithin is how long an order may take.
const orderWithin = 30 * time.Second

// drain has a shard drained, and waits until it owns nothing.
func drain(ctx context.Context, d drains, shard string, cancel bool, timeout time.Duration, out io.Writer) error {
	order, stop := context.WithTimeout(ctx, orderWithin)
	defer stop()
	first, err := d.order(order, shard, cancel)
	if err != nil {
		return fmt.Errorf("drain %s: %w", shard, err)
	}
	fmt.Fprintln(out, first.Line())
	if cancel || timeout == 0 || first.Buckets == 0 && first.Before {
		return nil
	}
	ctx, stop = context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it still owns buckets after %s; it goes on giving them away", timeout))
	defer stop()
	for last := first; ; {
		now, err := d.draining(ctx, shard)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("drain %s: %w", shard, context.Cause(ctx))
		case err != nil && (visibility.Final(err) || isFinal(err)):
			return fmt.Errorf("drain %s: %w", shard, err)
		case err != nil: // the one that was asked may be gone
		case now.Incarnation != first.Incarnation:
			return fmt.Errorf("drain %s: it was restarted, and takes its part again: drain it once more", shard)
		case !now.Draining:
			return fmt.Errorf("drain %s: somebody else cancelled it", shard)
		case now.Buckets != last.Buckets || now.Buckets == 0:
			fmt.Fprintf(out, "%s owns %d buckets\n", shard, now.Buckets)
			if last = now; now.Buckets == 0 {
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("drain %s: %w", shard, context.Cause(ctx))
		case <-time.After(d.every()):
		}
	}
}

// isFinal reports whether an error is an answer of Basalt's that asking again would not change.
func isFinal(err error) bool {
	var refused refusal
	return errors.As(err, &refused) && refused.code < http.StatusInternalServerError && refused.code != http.StatusTooManyRequests
}
