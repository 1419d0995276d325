package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/wire"
)

// statusCommand prints what an operator wants to know first: who is there, who owns what, how full the queues are, and why
// gangs wait.
func statusCommand() *cobra.Command {
	var c common
	var gangs int
	var queue string
	cmd := &cobra.Command{Use: "status [namespace/gang]", Short: "Show shards, buckets, the queue tree, and why gangs wait", Args: cobra.MaximumNArgs(1)}
	f := cmd.Flags()
	f.StringVar(&c.etcd, "etcd", "", "comma-separated endpoints of the control store")
	c.registerTLS(cmd)
	f.IntVar(&gangs, "gangs", 20, "maximum number of waiting gangs to print")
	f.StringVar(&queue, "queue", "", "only this queue and its descendants")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), 15*time.Second)
		defer cancel()
		s, peers, err := c.openStore(ctx)
		if err != nil {
			return err
		}
		defer s.Close()
		r := report{out: cmd.OutOrStdout(), gangs: gangs, queue: queue}
		if len(args) == 1 {
			r.gang = args[0]
		}
		return r.print(ctx, s, peers)
	}
	return cmd
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

type report struct {
	out         io.Writer
	gangs       int
	queue, gang string
}

func (r *report) print(ctx context.Context, s *store.Store, tls *link.TLS) error {
	table, err := s.Table(ctx)
	if err != nil {
		return err
	}
	shards, err := s.Shards(ctx)
	if err != nil {
		return err
	}
	leader, term, err := s.Leader(ctx)
	if err != nil {
		return err
	}
	slices.SortFunc(shards, func(a, b *wire.ShardRecord) int { return cmp.Compare(a.Name, b.Name) })

	w := tabwriter.NewWriter(r.out, 0, 0, 2, ' ', 0)
	var coordinator *wire.StatusReply
	if leader == nil {
		fmt.Fprintln(w, "COORDINATOR\tnone: nothing is admitted until one is elected")
	} else {
		coordinator, err = ask(ctx, leader.Address, tls)
		state := "answers"
		if err != nil {
			state = "does not answer: " + err.Error()
		}
		fmt.Fprintf(w, "COORDINATOR\t%s\tterm %d\t%s\t%s\n", leader.Name, term, speaks(leader), state)
	}
	if table != nil {
		fmt.Fprintf(w, "TABLE\tepoch %d\t%d buckets\n", table.Epoch, api.Buckets)
	} else {
		fmt.Fprintln(w, "TABLE\tnone yet")
	}
	fmt.Fprintln(w, "\nSHARD\tINCARNATION\tBUCKETS\tNODES\tOUT OF SYNC\tCPU FREE\tGANGS\tWAITING\tINTENTS\tVERSION\tSTATE")
	var waiting []*wire.GangStatus
	known := map[api.Incarnation]bool{}
	for _, shard := range shards {
		who := api.Incarnation(shard.Incarnation)
		known[who] = true
		reply, err := ask(ctx, shard.Address, tls)
		if err != nil {
			fmt.Fprintf(w, "%s\t%s\t%d\t\t\t\t\t\t\t%s\tdoes not answer: %v\n", shard.Name, who, table.Owned(who), speaks(shard), err)
			continue
		}
		state := "ok"
		if shard.Draining {
			state = "draining"
		}
		free := "-"
		for _, a := range reply.Summary.GetFree() {
			if a.Resource == "cpu" {
				free = api.FormatAmount("cpu", a.Value)
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\t%d\t%d\t%d\t%s\t%s\n", shard.Name, who, table.Owned(who), reply.Summary.GetNodes(),
			reply.Summary.GetOutOfSync(), free, reply.GangsTotal, len(reply.Gangs), reply.Intents, speaks(shard), state)
		waiting = append(waiting, reply.Gangs...)
	}
	if table != nil {
		for _, m := range table.Members {
			if n := table.Owned(m.Incarnation); n > 0 && !known[m.Incarnation] {
				fmt.Fprintf(w, "%s\t%s\t%d\t\t\t\t\t\t\t\tgone: its buckets are being reassigned\n", m.Name, m.Incarnation, n)
			}
		}
	}
	r.printQueues(w, coordinator)
	r.printGangs(w, waiting)
	return w.Flush()
}

func (r *report) printQueues(w io.Writer, c *wire.StatusReply) {
	if c == nil || len(c.Queues) == 0 {
		return
	}
	fmt.Fprintln(w, "\nQUEUE\tCPU\tMEMORY\tOTHER\tADMITTED\tWAITING\tREADY\tMESSAGE")
	for _, q := range c.Queues {
		if r.queue != "" && !api.Under(q.Queue, r.queue) {
			continue
		}
		indent := strings.Repeat("  ", len(api.Lineage(q.Queue))-1)
		charged, errCharged := wire.ToResources(q.Charged)
		limits, errLimits := wire.ToResources(q.Capability)
		if errCharged != nil || errLimits != nil {
			continue
		}
		var other []string
		for _, a := range charged.Max(limits) {
			if _, limited := limits.Get(a.Resource); a.Resource != "cpu" && a.Resource != "memory" && (limited || charged.Value(a.Resource) > 0) {
				other = append(other, a.Resource+" "+ofLimit(charged, limits, a.Resource))
			}
		}
		fmt.Fprintf(w, "%s%s\t%s\t%s\t%s\t%d\t%d\t%s\t%s\n", indent, q.Queue, ofLimit(charged, limits, "cpu"), ofLimit(charged, limits, "memory"),
			strings.Join(other, " "), q.Admitted, q.Waiting, q.ReadyReason, q.Message)
	}
	if left := int(c.QueuesTotal) - len(c.Queues); left > 0 {
		fmt.Fprintf(w, "and %d more\n", left)
	}
}

func ofLimit(charged, limits api.Resources, name string) string {
	s := api.FormatAmount(name, charged.Value(name))
	if limit, ok := limits.Get(name); ok {
		s += "/" + api.FormatAmount(name, limit)
	}
	return s
}

func (r *report) printGangs(w io.Writer, all []*wire.GangStatus) {
	all = slices.DeleteFunc(all, func(g *wire.GangStatus) bool {
		return r.gang != "" && g.GetGang().Title() != r.gang ||
			r.queue != "" && !api.Under(g.GetGang().GetQueue(), r.queue)
	})
	slices.SortFunc(all, func(a, b *wire.GangStatus) int {
		return cmp.Or(cmp.Compare(a.SinceUnixMs, b.SinceUnixMs), cmp.Compare(a.GetGang().GetUid(), b.GetGang().GetUid()))
	})
	if len(all) == 0 {
		fmt.Fprintln(w, "\nNo gang is waiting.")
		return
	}
	fmt.Fprintf(w, "\nWAITING GANG\tQUEUE\tPODS\tBOUND\tSTATE\tFOR\tWHY\n")
	for i, g := range all {
		if i == r.gangs {
			fmt.Fprintf(w, "and %d more\n", len(all)-i)
			break
		}
		why := g.Reason
		if g.Message != "" {
			why += ": " + g.Message
		}
		waited := "-"
		if g.SinceUnixMs > 0 {
			waited = time.Since(time.UnixMilli(g.SinceUnixMs)).Round(time.Second).String()
		}
		fmt.Fprintf(w, "%s\t%s\t%d/%d\t%d\t%s\t%s\t%s\n", g.GetGang().Title(), g.GetGang().GetQueue(),
			g.Pods, g.MinCount, g.Bound, g.State, waited, why)
	}
}

// speaks is the version that a process announces.
func speaks(r wire.Announced) string {
	return strings.TrimSpace(fmt.Sprintf("protocol %d %s", wire.ProtocolOf(r), r.GetVersion()))
}

func ask(ctx context.Context, address string, tls *link.TLS) (reply *wire.StatusReply, err error) {
	err = inspect(ctx, address, tls, 3*time.Second, func(ctx context.Context, c wire.InspectClient) error {
		reply, err = c.Status(ctx, &wire.StatusRequest{})
		return err
	})
	return reply, err
}

// inspect calls a process as an operator.
func inspect(ctx context.Context, address string, tls *link.TLS, within time.Duration, call func(context.Context, wire.InspectClient) error) error {
	ctx, stop := context.WithTimeout(ctx, within)
	defer stop()
	conn, err := link.Dial(address, tls)
	if err != nil {
		return err
	}
	defer conn.Close()
	return call(ctx, wire.NewInspectClient(conn))
}
