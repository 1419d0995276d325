// Package effect translates between a shard's cores and the two servers: what a core asks for into what a machine of package
// protocol begins with, and what the machine came to, or what the API server answered, into the core's event. It also says
// what a failed write means for the process (Write). The shard's process, the simulator, the explorer and the test worlds all
// translate here.
//
// It keeps nothing: every function returns the same for the same arguments.
package effect

import (
	"errors"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/shard/event"
)

// Write is what a write into the control store means for the core and for the process.
type Write struct {
	Event  event.Event           // what the core hears
	Record *protocol.RecordError // not nil: the record cannot be written. Nothing was, and the process goes on
	End    error                 // not nil: the process ends, for it may not or cannot go on
}

// written returns what a write that came to an outcome, or to an error, means for the process. An error about one record is an
// answer about that record. Any other one means that the session is over, that the store was replaced, or that nobody knows
// what was written.
func written(outcome protocol.Outcome, err error) (w Write) {
	if err == nil && outcome == protocol.SessionLost {
		err = protocol.ErrSessionLost
	}
	if !errors.As(err, &w.Record) || fault.On(fault.RecordEndsProcess) {
		w.Record, w.End = nil, err
	}
	return w
}

// Fences returns the reservations that intents name.
func Fences(o event.WriteIntents) []protocol.ReservationFence {
	fences := make([]protocol.ReservationFence, len(o.Reservations))
	for i, f := range o.Reservations {
		fences[i] = protocol.ReservationFence(f)
	}
	return fences
}

// IntentsWritten returns the answer to a WriteIntents.
func IntentsWritten(o event.WriteIntents, r protocol.WriteResult, err error) Write {
	w := written(r.Outcome, err)
	done := event.IntentsWritten{N: o.N, Moved: r.Moved, ModRevision: r.ModRevision}
	switch r.Outcome {
	case protocol.Written:
		done.Outcome = event.Written
	case protocol.TableMoved:
		done.Outcome = event.TableMoved
	case protocol.ReservationMoved:
		done.Outcome = event.ReservationMoved
	default:
		done.Outcome = event.SessionLost
	}
	if w.Record != nil {
		done.Outcome = event.Unwritable
	}
	w.Event = done
	return w
}

// IntentKeys returns the keys of a shard that a DeleteIntents names.
func IntentKeys(self api.Incarnation, o event.DeleteIntents) []protocol.IntentKey {
	keys := make([]protocol.IntentKey, len(o.Keys))
	for i, k := range o.Keys {
		keys[i] = protocol.IntentKey{Incarnation: self, N: k.N, ModRevision: k.ModRevision}
	}
	return keys
}

// IntentsDeleted returns the answer to a DeleteIntents, from the keys as they are now.
func IntentsDeleted(now []protocol.StoredIntents, err error) Write {
	w := written(protocol.Written, err)
	done := event.IntentsDeleted{}
	for _, k := range now {
		done.Keys = append(done.Keys, event.IntentKey{N: k.N, ModRevision: k.ModRevision})
	}
	w.Event = done
	return w
}

// IntentKey returns the key that a RewriteIntents names.
func IntentKey(o event.RewriteIntents) protocol.IntentKey {
	return protocol.IntentKey{Incarnation: o.Incarnation, N: o.N, ModRevision: o.ModRevision}
}

// IntentsRewritten returns the answer to a RewriteIntents. Where the record cannot be written, the key is as it was.
func IntentsRewritten(o event.RewriteIntents, r protocol.RewriteResult, err error) Write {
	w := written(r.Outcome, err)
	w.Event = event.IntentsRewritten{Incarnation: o.Incarnation, N: o.N, Done: r.Outcome == protocol.Written,
		ModRevision: r.Now.ModRevision, Record: r.Now.Record}
	if w.Record != nil {
		w.Event = event.IntentsRewritten{Incarnation: o.Incarnation, N: o.N, ModRevision: o.ModRevision, Unwritable: true}
	}
	return w
}

// StoreRead returns the answer to a ReadStore.
func StoreRead(sequence uint64, t *protocol.Takeover) event.StoreRead {
	ev := event.StoreRead{Sequence: sequence, Revision: t.Revision}
	for _, r := range t.Reservations {
		ev.Reservations = append(ev.Reservations, event.StoredReservation{ModRevision: r.ModRevision, Record: r.Record})
	}
	for _, i := range t.Intents {
		ev.Intents = append(ev.Intents, event.StoredIntents{Incarnation: i.Incarnation, N: i.N, ModRevision: i.ModRevision, Record: i.Record})
	}
	return ev
}
