package server

import (
	"context"
	"errors"
	"fmt"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// why answers another shard: what this one knows.
func (l *loop) why(ctx context.Context, q *wire.WhyRequest) (*wire.WhyReply, error) {
	if !l.hasStarted() {
		return nil, errNotStarted
	}
	var reply *wire.WhyReply
	err := l.ask(ctx, func() { reply = l.cores.Home.Why(q) })
	return reply, err
}

// standing asks the coordinator that leads.
func (l *loop) standing(ctx context.Context, q *wire.StandingRequest) (*wire.StandingReply, error) {
	return askLeader(l, func(c wire.InspectClient) (*wire.StandingReply, error) { return c.Standing(ctx, q) })
}

// whatIf asks the coordinator that leads.
func (l *loop) whatIf(ctx context.Context, q *wire.WhatIfRequest) (*wire.WhatIfReply, error) {
	return askLeader(l, func(c wire.InspectClient) (*wire.WhatIfReply, error) { return c.WhatIf(ctx, q) })
}

// queues asks the coordinator that leads.
func (l *loop) queues(ctx context.Context, q *wire.QueuesRequest) (*wire.QueuesReply, error) {
	return askLeader(l, func(c wire.InspectClient) (*wire.QueuesReply, error) { return c.Queues(ctx, q) })
}

func askLeader[T any](l *loop, ask func(wire.InspectClient) (*T, error)) (*T, error) {
	leads := l.process.Coordinator()
	if leads == nil {
		return nil, errors.New("no coordinator leads")
	}
	reply, err := inspect(l, api.Incarnation(leads.Incarnation), leads.Address, ask)
	if err != nil {
		return nil, fmt.Errorf("call the coordinator: %w", err)
	}
	return reply, nil
}

// inspect asks another process.
func inspect[T any](
	l *loop, who api.Incarnation, address string, ask func(wire.InspectClient) (*T, error),
) (*T, error) {
	conn, err := l.process.Link.Dial(who, address)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return ask(wire.NewInspectClient(conn))
}

// whyAnywhere answers a user: it calls the shard that drives the gang, if this one does not.
func (l *loop) whyAnywhere(ctx context.Context, q *wire.WhyRequest) (*wire.WhyReply, error) {
	reply, err := l.why(ctx, q)
	home := api.Incarnation(reply.GetHome())
	if err != nil || home == "" {
		return reply, err
	}
	address := l.process.Shard(home).GetAddress()
	if home == l.self || address == "" {
		return nil, fmt.Errorf("queue %q is being taken over: ask again in a moment", reply.GetQueue())
	}
	there, err := inspect(l, home, address,
		func(c wire.InspectClient) (*wire.WhyReply, error) { return c.Why(ctx, q) })
	if err != nil {
		return nil, fmt.Errorf("call shard %s: %w", home, err)
	}
	if there.GetHome() != "" || !there.GetKnown() {
		return nil, fmt.Errorf("queue %q is being taken over: ask again in a moment", reply.GetQueue())
	}
	there.Kind = reply.GetKind()
	return there, nil
}
