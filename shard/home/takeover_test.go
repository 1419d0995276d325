package home

import (
	"fmt"
	"maps"
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
	if p := c.pods["named"]; p == nil || p.gang == nil || !p.gang.charge.reserved() {
		t.Errorf("the pod that a reservation names is %+v", p)
	}
	if c.pods["others"] != nil {
		t.Error("a pod that is not ours is kept")
	}
}

// TestTakeoverOfWhatIsGained: a takeover looks at what is in the buckets that are gained, at what reservations name,
// and at pods that were in a gang of this shard which their labels do not name, and at no other pod.
func TestTakeoverOfWhatIsGained(t *testing.T) {
	c := logged(New(Config{Self: "a", Strict: true}))
	queueIn := map[bool]string{} // of a bucket that is gained, or not
	gained := map[api.BucketID]bool{}
	for i := 0; len(queueIn) < 2; i++ {
		queue := fmt.Sprint("q", i)
		is := api.BucketOf(queue)%2 == 0
		if queueIn[is] = queue; is {
			gained[api.BucketOf(queue)] = true
		}
	}
	class := api.NewClass(cores(1, 1), nil)
	see := func(uid, group, queue, node string) {
		p := &api.Pod{UID: uid, Namespace: "ns", Name: uid, ResourceVersion: "1", Created: epoch0, Ours: true,
			Class: class, Queue: queue, Node: node}
		if group != "" {
			p.Group, p.GroupKind, p.GroupMin = group, api.ImpliedGroup, 2
		}
		c.Step(epoch0, event.PodSeen{Pod: p})
	}
	c.Step(epoch0, event.NamespaceSeen{Name: "ns"})
	for is, queue := range queueIn {
		see(fmt.Sprint("member", is), fmt.Sprint("group", is), queue, "")
		see(fmt.Sprint("loose", is), "", queue, "n")
	}
	see("named", "", queueIn[false], "n")
	see("astray", "", queueIn[false], "n")
	see("other", "", queueIn[false], "n")
	see("moved", "", queueIn[false], "")
	see("moved", "", queueIn[true], "") // its label was edited
	c.takeover.named = map[uint64]*namedBy{api.PodID("named"): {}, api.PodID("gone"): {}}
	c.takeover.astray["astray"] = true
	groups, uids := c.takeover.concerned(gained)
	if len(groups) != 1 || groups[0].Name.Name != "grouptrue" ||
		fmt.Sprint(uids) != "[astray loosetrue membertrue moved named]" {
		t.Errorf("it looks at %d groups and the pods %v", len(groups), uids)
	}
	on, rows := []api.BucketID{api.BucketOf("n")}, maps.Keys(map[string]int{"moved": 0, "other": 0, "gone": 0})
	found := map[string]int{}
	for _, p := range c.Pods(nil, on, rows) {
		found[p.UID]++
	}
	want := map[string]int{
		"loosetrue": 1, "loosefalse": 1, "named": 1, "astray": 1, "other": 1, "moved": 1,
	}
	if !maps.Equal(found, want) {
		t.Errorf("node shards are shown %v, want %v", found, want)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}
