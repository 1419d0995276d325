package effect_test

import (
	"testing"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/coordinator"
	"basalt.dev/basalt/coordinator/effect"
)

// A core begins with what its term loaded, under the keys of the records, and knows a store without a table for a fresh one.
func TestElected(t *testing.T) {
	r := &wire.ReservationRecord{Gang: &wire.GangRef{Uid: "g"}}
	e := effect.Elected(&protocol.State{Sequence: 7, Limits: []protocol.StoredLimits{{Queue: "q", ModRevision: 3}},
		Reservations: []protocol.StoredReservation{{Bucket: 42, GangUID: "g", ModRevision: 4, Record: r}}, Shards: []*wire.ShardRecord{{Incarnation: "a"}}})
	if e.Sequence != 7 || e.Table != nil || !e.FreshStore || len(e.Shards) != 1 {
		t.Errorf("%+v", e)
	}
	if len(e.Limits) != 1 || e.Limits[0].Key != "q" || e.Limits[0].Revision != 3 {
		t.Errorf("limits: %+v", e.Limits)
	}
	if len(e.Reservations) != 1 || e.Reservations[0].Key != "0042/g" || e.Reservations[0].Revision != 4 || e.Reservations[0].Record != r {
		t.Errorf("reservations: %+v", e.Reservations)
	}
	if e = effect.Elected(&protocol.State{Table: &api.Table{}}); e.FreshStore || e.Table == nil {
		t.Errorf("with a table: %+v", e)
	}
}

// Each operation becomes the change of the same key.
func TestChanges(t *testing.T) {
	changes := effect.Changes([]coordinator.Op{
		coordinator.PutReservation{Record: &wire.ReservationRecord{Gang: &wire.GangRef{Uid: "g", Queue: "q"}}}, coordinator.DeleteReservation{Queue: "q", GangUID: "h"},
		coordinator.PutLimits{Record: &wire.LimitsRecord{Queue: "a"}}, coordinator.DeleteLimits{Queue: "b"}, coordinator.PutTable{Table: &api.Table{}},
	})
	m, err := protocol.NewTerm("", 1).Commit(changes)
	if err != nil {
		t.Fatal(err)
	}
	bucket := api.BucketOf("q").Label()
	if got, want := m.Describe(), `"reservations/`+bucket+`/g", "reservations/`+bucket+`/h", "queues/a", "queues/b", "table"`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
