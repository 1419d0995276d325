package home

import (
	"log/slog"
	"strconv"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// One trace for a gang, from first sight to the last binding of its minimum. Ids are derived from the gang's UID and
// attempt, so that an heir goes on in the same trace and node shards and coordinator hang their spans under ours.

const (
	spanRoot    = "gang"
	spanQueue   = "queue wait"
	spanReserve = "reserve"
	spanHold    = "hold"
	spanCommit  = "commit"
	spanBind    = "bind"

	// Of a mandate, of which an attempt may have several: these have no part in the phases above.
	spanProbe = "probe" // until node shards have said what room there is
	spanPlan  = "plan"  // until there is a plan, and they hold or promise its rooms
	spanClaim = "claim" // until the coordinator has decided
)

// trace keeps when the current attempt passed its milestones.
type trace struct {
	asked, granted, held, committed time.Time
	said                            traced
}

// traced is what the trace of a gang has already.
type traced uint8

const (
	nothing traced = iota
	queued         // its wait in the queue,
	started        // and its start: further lives are not in it
)

func (g *gang) spanID(kind string) [8]byte {
	if kind == spanRoot || kind == spanQueue {
		return api.SpanIDOf(g.id, kind)
	}
	return api.SpanIDOf(g.id, strconv.FormatUint(g.charge.attempt, 10), kind)
}

// traceOf is the context of a message that belongs to a span, nil when tracing is off.
func (c *common) traceOf(g *gang, kind string) *wire.Trace {
	if !c.cfg.Tracing {
		return nil
	}
	if g.started && kind != spanReserve {
		kind = spanBind // further pods
	}
	trace, span := api.TraceIDOf(g.id), g.spanID(kind)
	return &wire.Trace{TraceId: trace[:], SpanId: span[:]}
}

func (c *common) span(g *gang, kind string, from time.Time, attrs ...slog.Attr) {
	if from.IsZero() || g.trace.said == started {
		return
	}
	c.emitSpan(g, kind, g.spanID(kind), from, attrs)
}

func (c *common) emitSpan(g *gang, kind string, id [8]byte, from time.Time, attrs []slog.Attr) {
	trace, root := api.TraceIDOf(g.id), g.spanID(spanRoot)
	s := event.Span{TraceID: trace[:], SpanID: id[:], Name: kind, Start: from, End: c.now, Attributes: attrs}
	if kind != spanRoot {
		s.Parent = root[:]
	}
	c.emit(s)
}

// traceClaim reports a step of the work on a mandate that has ended.
func (c *common) traceClaim(g *gang, x *claiming, kind string, attrs ...slog.Attr) {
	if c.cfg.Tracing {
		number := strconv.FormatUint(x.mandate.GetNumber(), 10)
		c.emitSpan(g, kind, api.SpanIDOf(g.id, strconv.FormatUint(g.charge.attempt, 10), kind, number), x.began, attrs)
	}
}

func (c *common) traceAsked(g *gang) {
	if !c.cfg.Tracing || g.started {
		return
	}
	if g.trace.said == nothing {
		g.trace.said = queued
		c.span(g, spanQueue, g.first, slog.String("queue", g.queue))
	}
	if g.trace.asked.IsZero() {
		g.trace.asked = c.now
	}
}

func (c *common) traceGranted(g *gang) {
	if !c.cfg.Tracing || g.started {
		return
	}
	c.span(g, spanReserve, g.trace.asked, slog.String("queue", g.queue), slog.String("demand", g.charge.amounts.String()))
	g.trace = trace{said: max(g.trace.said, queued), granted: c.now}
}

func (c *common) traceHeld(g *gang) {
	if !c.cfg.Tracing || g.started {
		return
	}
	c.span(g, spanHold, g.trace.granted, slog.Int("pods", g.tally.charged))
	g.trace.granted, g.trace.held = time.Time{}, c.now
}

func (c *common) traceCommitted(g *gang) {
	if !c.cfg.Tracing || g.started {
		return
	}
	c.span(g, spanCommit, g.trace.held, slog.Int("shards", len(g.commits)))
	g.trace.held, g.trace.committed = time.Time{}, c.now
}

func (c *common) traceStarted(g *gang) {
	if !c.cfg.Tracing || g.trace.said == nothing {
		return
	}
	c.span(g, spanBind, g.trace.committed, slog.Int("pods", g.tally.placed))
	c.span(g, spanRoot, g.first, slog.String("gang", g.name.String()), slog.String("queue", g.queue),
		slog.Int("pods", g.tally.placed))
	g.trace.said = started
}
