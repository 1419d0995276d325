package home

import (
	"testing"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// TestTakeoverWithoutList: where the watch has come as far as a list would, a takeover takes up the pods that were
// seen, and those that were not kept, of which a reservation names one.
func TestTakeoverWithoutList(t *testing.T) {
	c := logged(New(Config{Self: "a", Strict: true}))
	table := &api.Table{Epoch: 1, Revision: 10, Members: []api.Member{{Incarnation: "a", Name: "a"}}}
	for i := range table.Changed {
		table.Changed[i] = 1
	}
	class := api.NewClass(cores(1, 1), nil)
	pod := func(uid, node string) *api.Pod {
		return &api.Pod{UID: uid, Namespace: "ns", Name: uid, ResourceVersion: "1", Created: epoch0, Ours: node == "",
			Node: node, Class: class}
	}
	waits, others, named := pod("waits", ""), pod("others", "n"), pod("named", "n")
	record := &wire.ReservationRecord{Attempt: 1, Demand: wire.FromResources(class.Requests),
		Gang: &wire.GangRef{Uid: "named", Namespace: "ns", Name: "named", Queue: "default", Single: true}}
	found := []event.StoredReservation{{ModRevision: 9, Record: record}}
	notKept := []*api.Pod{others, named}
	asked := map[string]bool{}
	for _, ev := range []event.Event{event.NamespaceSeen{Name: "ns"}, event.PodsReplaced{}, event.PodSeen{Pod: waits},
		event.PodSeen{Pod: others}, event.PodSeen{Pod: named}, event.TableSeen{Table: table},
		event.StoreRead{Sequence: 1, Revision: 10, Reservations: found},
		event.PodsReplaced{Sequence: 1, Pods: []*api.Pod{others, named, waits}, Seen: true, Others: notKept}} {
		c.Step(epoch0, ev)
		for _, o := range c.Outputs() {
			if send, is := o.(event.Send); is {
				asked[send.Body.GetReserve().GetGang().GetUid()] = true
			}
		}
	}
	if !asked["waits"] || asked["others"] {
		t.Errorf("quota is asked for %v", asked)
	}
	if p := c.pods["named"]; p == nil || p.gang == nil || !p.gang.charge.reserved {
		t.Errorf("the pod that a reservation names is %+v", p)
	}
	if c.pods["others"] != nil {
		t.Error("a pod that is not ours is kept")
	}
}
