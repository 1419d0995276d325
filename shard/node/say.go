package node

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// What the core says to the outside. Everybody calls this, and it calls nobody.

// fromHome reports whether a message about a gang comes from the shard that the table names for its queue. Others
// lag, or were paused: their successor speaks for the gang.
func (c *Core) fromHome(from api.Incarnation, g *wire.GangRef) bool {
	if c.table == nil || g.GetUid() == "" || c.table.OwnerOf(g.GetQueue()) != from {
		c.ignored++
		return false
	}
	return true
}

// send sends to the shard that is the gang's home now.
func (c *Core) send(g *gang, body *wire.Envelope) {
	if to := c.table.OwnerOf(g.ref.GetQueue()); to != "" {
		c.emit(event.Send{To: to, Body: body})
	}
}

func (c *Core) emit(o event.Output) { c.out = append(c.out, o) }

func (c *Core) log(level slog.Level, message string, attrs ...slog.Attr) {
	c.emit(event.Log{Level: level, Message: message, Attrs: attrs})
}

// fault reports a broken invariant of ours.
func (c *Core) fault(message string, attrs ...slog.Attr) {
	c.broken++
	if c.cfg.Strict {
		panic(fmt.Sprint("broken invariant: ", message, " ", attrs))
	}
	c.log(slog.LevelError, "broken invariant: "+message, attrs...)
}

func (c *Core) span(trace *wire.Trace, name string, start, end time.Time, failed string, attrs ...slog.Attr) {
	if !c.cfg.Tracing || len(trace.GetTraceId()) == 0 {
		return
	}
	c.count++
	id := binary.BigEndian.AppendUint64(nil, xxhash.Sum64String(fmt.Sprintf("%s/%s/%d", c.cfg.Self, name, c.count))|1)
	c.emit(event.Span{TraceID: trace.GetTraceId(), SpanID: id, Parent: trace.GetSpanId(), Name: name, Start: start,
		End:        end,
		Attributes: append(attrs, slog.String("shard", string(c.cfg.Self))), Failed: failed})
}

func (c *Core) sendHoldsLost(g *gang, pods []string) {
	slices.Sort(pods)
	for part := range slices.Chunk(pods, c.cfg.MaxNamed) {
		c.send(g, &wire.Envelope{Body: &wire.Envelope_HoldsLost{HoldsLost: &wire.HoldsLost{GangUid: g.ref.GetUid(),
			Serial: g.requested, PodUids: part}}})
	}
}
