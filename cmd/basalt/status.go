package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/visibility"
	"basalt.dev/basalt/api/wire"
)

// statusCommand prints what an operator wants to know first: who is there, who owns what, how full the queues are, and why
// gangs wait.
func statusCommand() *cobra.Command {
	var c common
	var u user
	var e endpoint
	var scope visibility.Scope
	cmd := &cobra.Command{Use: "status [[NAMESPACE/]GANG]", Short: "Show shards, buckets, the queue tree, and why gangs wait", Args: cobra.MaximumNArgs(1),
		Long: `Show shards, buckets, the queue tree, and why gangs wait.

A shard is asked with your kubeconfig; you need the right to list shards.scheduling.basalt.dev in the whole cluster, which the ClusterRole
basalt-status has. With --etcd the control store and all processes are asked directly, with an operator's certificate: the way to look when
no shard answers.`,
		Example: `  basalt status
  basalt status research/train -o json
  basalt status --etcd=https://basalt-etcd:2379 --tls-ca=ca.crt --tls-cert=tls.crt --tls-key=tls.key`}
	f := cmd.Flags()
	c.registerDirect(cmd)
	u.register(cmd, "json, yaml, or wide")
	e.register(cmd)
	f.IntVar(&scope.Gangs, "gangs", 20, "maximum number of waiting gangs to print")
	f.StringVar(&scope.Queue, "queue", "", "only this queue and its descendants")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch u.output {
		case "", "wide", "json", "yaml":
		default:
			return fmt.Errorf("--output %q: json, yaml or wide", u.output)
		}
		if err := scope.Check(); err != nil {
			return fmt.Errorf("--gangs: %w", err)
		}
		if len(args) == 1 {
			scope.Gang = args[0]
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), 30*time.Second)
		defer cancel()
		read := c.status
		if !c.direct() {
			read = func(ctx context.Context, scope visibility.Scope) (*visibility.Status, error) {
				return e.status(ctx, &u, scope)
			}
		}
		answer, err := read(ctx, scope)
		if err != nil {
			return err
		}
		return show(
			cmd.OutOrStdout(),
			u.output,
			answer,
			func(w io.Writer) { _ = answer.Text(w, time.Now(), u.output == "wide") },
		)
	}
	return cmd
}

// status asks a shard.
func (e *endpoint) status(ctx context.Context, u *user, scope visibility.Scope) (*visibility.Status, error) {
	config, namespace, err := u.config()
	if err != nil {
		return nil, noWay("status", err)
	}
	query := url.Values{"gangs": {strconv.Itoa(scope.Gangs)}}
	if scope.Queue != "" {
		query.Set("queue", scope.Queue)
	}
	if scope.Gang != "" {
		if !strings.Contains(scope.Gang, "/") {
			scope.Gang = namespace + "/" + scope.Gang
		}
		query.Set("gang", scope.Gang)
	}
	var answer visibility.Status
	if err := e.call(ctx, config, http.MethodGet, "/status?"+query.Encode(), &answer); err != nil {
		return nil, noWay("status", err)
	}
	return &answer, nil
}

// status reads the control store and asks all processes.
func (c *common) status(ctx context.Context, scope visibility.Scope) (*visibility.Status, error) {
	s, peers, err := c.openStore(ctx)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	return visibility.Collect(ctx, s, func(ctx context.Context, _ api.Incarnation, address string) (reply *wire.StatusReply, err error) {
		err = inspect(ctx, address, peers, func(ctx context.Context, c wire.InspectClient) error {
			reply, err = c.Status(ctx, &wire.StatusRequest{})
			return err
		})
		return reply, err
	}, scope)
}

// registerDirect registers the flags with which the control store and processes are asked directly.
func (c *common) registerDirect(cmd *cobra.Command) {
	cmd.Flags().StringVar(&c.etcd, "etcd", "", "comma-separated endpoints of the control store, to ask it and the processes directly; if empty, a shard is asked")
	c.registerTLS(cmd)
}

// direct reports whether one of these flags is given.
func (c *common) direct() bool {
	return c.etcd != "" || c.plain || c.tlsCA != "" || c.tlsCert != "" || c.tlsKey != "" || c.etcdCA != "" || c.etcdCert != "" || c.etcdKey != ""
}

// noWay adds the other way, unless the error is an answer of Basalt's that the other way would not change.
func noWay(command string, err error) error {
	var refused refusal
	if errors.As(err, &refused) && refused.code < http.StatusInternalServerError && refused.code != http.StatusUnauthorized {
		return err
	}
	return fmt.Errorf("%w\nWhen no shard answers, basalt %s --etcd=... --tls-ca=... --tls-cert=... --tls-key=... asks the control store and the processes directly, with an operator's certificate: "+
		"the pod of basalt-audit has one", err, command)
}

// openStore opens the control store to read it, as an operator, and returns what to call processes with.
func (c *common) openStore(ctx context.Context) (*store.Store, *link.TLS, error) {
	endpoints, err := c.endpoints()
	if err != nil {
		return nil, nil, err
	}
	if err := c.checkEncrypted(false); err != nil {
		return nil, nil, err
	}
	etcdTLS, err := c.etcdTLS(slog.Default())
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	s, err := store.Open(ctx, store.Options{ReadOnly: true, Endpoints: endpoints, TLS: etcdTLS, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, nil, err
	}
	if c.tlsCA == "" {
		return s, nil, nil
	}
	return s, &link.TLS{CAFile: c.tlsCA, CertFile: c.tlsCert, KeyFile: c.tlsKey}, nil
}

// inspect calls a process as an operator.
func inspect(ctx context.Context, address string, tls *link.TLS, call func(context.Context, wire.InspectClient) error) error {
	conn, err := link.Dial(address, tls)
	if err != nil {
		return err
	}
	defer conn.Close()
	return call(ctx, wire.NewInspectClient(conn))
}
