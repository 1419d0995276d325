// Package effect translates between the coordinator's core and the outside: transactions into changes of the control store's
// protocol, what a term loaded into what a core begins with, and Queues into events. The coordinator's process, the simulator
// and the explorer all translate here.
//
// It decides nothing and keeps nothing: every function returns the same for the same arguments.
package effect

import (
	"fmt"

	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/coordinator"
)

// Changes returns the operations of a transaction as the protocol has them.
func Changes(ops []coordinator.Op) []protocol.Change {
	out := make([]protocol.Change, 0, len(ops))
	for _, o := range ops {
		switch o := o.(type) {
		case coordinator.PutReservation:
			out = append(out, protocol.PutReservation(o.Record))
		case coordinator.DeleteReservation:
			out = append(out, protocol.DeleteReservation(o.Queue, o.GangUID))
		case coordinator.PutLimits:
			out = append(out, protocol.PutLimits(o.Record))
		case coordinator.DeleteLimits:
			out = append(out, protocol.DeleteLimits(o.Queue))
		case coordinator.PutTable:
			out = append(out, protocol.PutTable(o.Table))
		default:
			panic(fmt.Sprintf("operation %T is not known to the protocol", o))
		}
	}
	return out
}

// Elected returns what a core begins with, of what its term loaded. Who leads and since when is the caller's to fill in.
func Elected(s *protocol.State) coordinator.Elected {
	e := coordinator.Elected{Sequence: s.Sequence, Table: s.Table, Shards: s.Shards, FreshStore: s.Table == nil}
	for _, l := range s.Limits {
		e.Limits = append(e.Limits, coordinator.StoredLimits{Key: l.Queue, Revision: l.ModRevision, Record: l.Record})
	}
	for _, r := range s.Reservations {
		e.Reservations = append(e.Reservations, coordinator.StoredReservation{Key: r.Bucket.Label() + "/" + r.GangUID, Revision: r.ModRevision, Record: r.Record})
	}
	return e
}
