package process

import (
	"context"
	"errors"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/shard/effect"
	"basalt.dev/basalt/shard/event"
)

// The control store's answers are definite. An error about one record (protocol.RecordError) is an answer, too: nothing was
// written. Any other error means that this process may not or cannot go on.

func (l *loop) writeIntents(ctx context.Context, o event.WriteIntents) event.Event {
	fault.CrashSoon(fault.IntentsSent)
	result, err := l.session.WriteIntents(ctx, o.N, o.Record, o.TableRevision, effect.Fences(o))
	if record := (*protocol.RecordError)(nil); errors.As(err, &record) {
		l.log.Error("cannot write a record of intents", "key", record.Key, "rows", len(o.Record.GetRows()), "error", record.Err)
		l.metrics.transaction("write_intents", false)
		return event.IntentsWritten{N: o.N, Outcome: event.Unwritable}
	}
	if err != nil {
		l.fail(err)
	}
	l.metrics.transaction("write_intents", result.Outcome == protocol.Written)
	if result.Outcome == protocol.Written {
		fault.Crash(fault.IntentsDurable)
	}
	done := effect.IntentsWritten(o, result)
	if done.Outcome == event.SessionLost {
		l.fail(store.ErrSessionLost)
	}
	return done
}

func (l *loop) deleteIntents(ctx context.Context, o event.DeleteIntents) event.Event {
	now, err := l.session.DeleteIntents(ctx, effect.IntentKeys(l.self, o))
	if err != nil {
		l.fail(err)
	}
	fault.Crash(fault.IntentsDeleted)
	l.metrics.transaction("delete_intents", err == nil)
	return effect.IntentsDeleted(now)
}

func (l *loop) rewriteIntents(ctx context.Context, o event.RewriteIntents) event.Event {
	result, err := l.session.RewriteIntents(ctx, effect.IntentKey(o), o.Record, o.TableRevision)
	if record := (*protocol.RecordError)(nil); errors.As(err, &record) { // the key is as it was
		l.log.Error("cannot rewrite a record of intents, retrying later", "key", record.Key, "rows", len(o.Record.GetRows()), "error", record.Err)
		l.metrics.transaction("rewrite_intents", false)
		return event.IntentsRewritten{Incarnation: o.Incarnation, N: o.N, ModRevision: o.ModRevision, Unwritable: true}
	}
	if err != nil || result.Outcome == protocol.SessionLost {
		l.fail(store.ErrSessionLost)
	}
	fault.Crash(fault.IntentsRewritten)
	l.metrics.transaction("rewrite_intents", result.Outcome == protocol.Written)
	return effect.IntentsRewritten(o, result)
}
