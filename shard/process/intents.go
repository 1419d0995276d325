package process

import (
	"context"
	"errors"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/shard/event"
)

// The control store's answers are definite. An error about one record (store.RecordError) is an answer, too: nothing was
// written. Any other error means that this process may not or cannot go on.

func (l *loop) writeIntents(ctx context.Context, o event.WriteIntents) event.Event {
	fences := make([]store.ReservationFence, len(o.Reservations))
	for i, f := range o.Reservations {
		fences[i] = store.ReservationFence(f)
	}
	fault.CrashSoon(fault.IntentsSent)
	result, err := l.session.WriteIntents(ctx, o.N, o.Record, o.TableRevision, fences)
	if record := (*store.RecordError)(nil); errors.As(err, &record) {
		l.log.Error("record of intents cannot be written", "key", record.Key, "rows", len(o.Record.GetRows()), "error", record.Err)
		l.metrics.transaction("write_intents", false)
		return event.IntentsWritten{N: o.N, Outcome: event.Unwritable}
	}
	if err != nil {
		l.fail(err)
	}
	l.metrics.transaction("write_intents", result.Outcome == store.Written)
	if result.Outcome == store.Written {
		fault.Crash(fault.IntentsDurable)
	}
	done := event.IntentsWritten{N: o.N, Moved: result.Moved, ModRevision: result.ModRevision}
	switch result.Outcome {
	case store.Written:
		done.Outcome = event.Written
	case store.TableMoved:
		done.Outcome = event.TableMoved
	case store.ReservationMoved:
		done.Outcome = event.ReservationMoved
	default:
		done.Outcome = event.SessionLost
		l.fail(store.ErrSessionLost)
	}
	return done
}

func (l *loop) deleteIntents(ctx context.Context, o event.DeleteIntents) event.Event {
	keys := make([]store.IntentKey, len(o.Keys))
	for i, k := range o.Keys {
		keys[i] = store.IntentKey{Incarnation: l.self, N: k.N, ModRevision: k.ModRevision}
	}
	now, err := l.session.DeleteIntents(ctx, keys)
	if err != nil {
		l.fail(err)
	}
	fault.Crash(fault.IntentsDeleted)
	done := event.IntentsDeleted{}
	for _, k := range now {
		done.Keys = append(done.Keys, event.IntentKey{N: k.N, ModRevision: k.ModRevision})
	}
	l.metrics.transaction("delete_intents", err == nil)
	return done
}

func (l *loop) rewriteIntents(ctx context.Context, o event.RewriteIntents) event.Event {
	result, err := l.session.RewriteIntents(ctx, store.IntentKey{Incarnation: o.Incarnation, N: o.N, ModRevision: o.ModRevision}, o.Record, o.TableRevision)
	if record := (*store.RecordError)(nil); errors.As(err, &record) { // the key is as it was
		l.log.Error("record of intents cannot be rewritten, trying again later", "key", record.Key, "rows", len(o.Record.GetRows()), "error", record.Err)
		l.metrics.transaction("rewrite_intents", false)
		return event.IntentsRewritten{Incarnation: o.Incarnation, N: o.N, ModRevision: o.ModRevision, Unwritable: true}
	}
	if err != nil || result.Outcome == store.SessionLost {
		l.fail(store.ErrSessionLost)
	}
	fault.Crash(fault.IntentsRewritten)
	l.metrics.transaction("rewrite_intents", result.Outcome == store.Written)
	return event.IntentsRewritten{Incarnation: o.Incarnation, N: o.N, Done: result.Outcome == store.Written,
		ModRevision: result.Now.ModRevision, Record: result.Now.Record}
}

func storeRead(sequence uint64, t *store.Takeover) event.StoreRead {
	ev := event.StoreRead{Sequence: sequence, Revision: t.Revision}
	for _, r := range t.Reservations {
		ev.Reservations = append(ev.Reservations, event.StoredReservation{ModRevision: r.ModRevision, Record: r.Record})
	}
	for _, i := range t.Intents {
		ev.Intents = append(ev.Intents, event.StoredIntents{Incarnation: api.Incarnation(i.Incarnation), N: i.N, ModRevision: i.ModRevision, Record: i.Record})
	}
	return ev
}
