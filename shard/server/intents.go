package server

import (
	"context"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/shard/effect"
	"basalt.dev/basalt/shard/event"
)

// The control store's answers are definite. What an error means, for the core and for the process, package effect says.

func (l *loop) writeIntents(ctx context.Context, o event.WriteIntents) event.Event {
	fault.CrashSoon(fault.IntentsSent)
	result, err := l.session.WriteIntents(ctx, o.N, o.Record, o.TableRevision, effect.Fences(o))
	if result.Outcome == protocol.Written {
		fault.Crash(fault.IntentsDurable)
	}
	return l.wrote("write_intents", len(o.Record.GetRows()), result.Outcome == protocol.Written, effect.IntentsWritten(o, result, err))
}

func (l *loop) deleteIntents(ctx context.Context, o event.DeleteIntents) event.Event {
	now, err := l.session.DeleteIntents(ctx, effect.IntentKeys(l.self, o))
	fault.Crash(fault.IntentsDeleted)
	return l.wrote("delete_intents", 0, err == nil, effect.IntentsDeleted(now, err))
}

func (l *loop) rewriteIntents(ctx context.Context, o event.RewriteIntents) event.Event {
	result, err := l.session.RewriteIntents(ctx, effect.IntentKey(o), o.Record, o.TableRevision)
	if err == nil {
		fault.Crash(fault.IntentsRewritten)
	}
	return l.wrote("rewrite_intents", len(o.Record.GetRows()), result.Outcome == protocol.Written, effect.IntentsRewritten(o, result, err))
}

// wrote does what a write means for the process, and returns what it means for the core.
func (l *loop) wrote(what string, rows int, done bool, w effect.Write) event.Event {
	if w.Record != nil {
		l.log.Error("cannot write a record of intents", "write", what, "key", w.Record.Key, "rows", rows, "error", w.Record.Err)
	}
	l.metrics.transaction(what, done)
	if w.End != nil {
		l.fail(w.End)
	}
	return w.Event
}

// logged is what the cores hear of the log of intents.
func logged(in store.Intents) []event.LoggedIntents {
	out := make([]event.LoggedIntents, len(in.Keys))
	for i, k := range in.Keys {
		out[i] = event.LoggedIntents{Incarnation: k.Incarnation, N: k.N, Place: k.Place, Record: k.Record}
	}
	return out
}
