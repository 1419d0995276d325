// Package effect translates between a shard's cores and the control store's protocol: what a core asks for into what a machine
// of package protocol begins with, and what the machine came to into the core's event. The shard's process, the simulator,
// the explorer and the test worlds all translate here.
//
// It decides nothing and keeps nothing: every function returns the same for the same arguments. What a failed write means for
// the process is the caller's decision.
package effect

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/shard/event"
)

// Fences returns the reservations that intents name.
func Fences(o event.WriteIntents) []protocol.ReservationFence {
	fences := make([]protocol.ReservationFence, len(o.Reservations))
	for i, f := range o.Reservations {
		fences[i] = protocol.ReservationFence(f)
	}
	return fences
}

// IntentsWritten returns the answer to a WriteIntents.
func IntentsWritten(o event.WriteIntents, r protocol.WriteResult) event.IntentsWritten {
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
	return done
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
func IntentsDeleted(now []protocol.StoredIntents) event.IntentsDeleted {
	done := event.IntentsDeleted{}
	for _, k := range now {
		done.Keys = append(done.Keys, event.IntentKey{N: k.N, ModRevision: k.ModRevision})
	}
	return done
}

// IntentKey returns the key that a RewriteIntents names.
func IntentKey(o event.RewriteIntents) protocol.IntentKey {
	return protocol.IntentKey{Incarnation: o.Incarnation, N: o.N, ModRevision: o.ModRevision}
}

// IntentsRewritten returns the answer to a RewriteIntents.
func IntentsRewritten(o event.RewriteIntents, r protocol.RewriteResult) event.IntentsRewritten {
	return event.IntentsRewritten{Incarnation: o.Incarnation, N: o.N, Done: r.Outcome == protocol.Written,
		ModRevision: r.Now.ModRevision, Record: r.Now.Record}
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
