package home

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// editor drives one core whose peers answer at once: gangs of namespaces, edits of them, and what each namespace costs.
type editor struct {
	core  *Core
	now   time.Time
	deny  bool           // there is no quota; else there is quota and no room
	work  map[string]int // by namespace: messages, and the pods that they name
	asked map[string]int // by gang: Reserves
	pods  map[string]*api.Pod
	queue []event.Event

	statuses map[string]int                     // written, by namespace
	usages   int                                // statuses of Queues
	shown    map[string]*v1beta1.PodGroupStatus // the last that was written, by name
	queues   map[string]*v1beta1.QueueStatus
	bytes    map[string]int // of classes in HoldRequests, by namespace
	searches map[string]int // HoldRequests, by gang
}

func newEditor(deny bool) *editor {
	e := &editor{core: logged(New(Config{Self: "a", Strict: true})), now: epoch0, deny: deny, work: map[string]int{}, asked: map[string]int{}, pods: map[string]*api.Pod{}, statuses: map[string]int{}, shown: map[string]*v1beta1.PodGroupStatus{}, queues: map[string]*v1beta1.QueueStatus{}, bytes: map[string]int{}, searches: map[string]int{}}
	t := &api.Table{Epoch: 1, Revision: 10, Members: []api.Member{{Incarnation: "a", Name: "a"}}}
	for i := range t.Changed {
		t.Changed[i] = 1
	}
	e.step(event.TableSeen{Table: t})
	e.step(event.StoreRead{Sequence: 1, Revision: 10})
	e.step(event.PodsReplaced{Sequence: 1})
	e.step(event.PriorityClassSeen{Name: "low", Value: -10})
	e.summary(0)
	return e
}

func (e *editor) summary(room uint64) {
	e.step(event.Message{From: "a", Body: &wire.Envelope{Body: &wire.Envelope_Summary{Summary: &wire.Summary{TableEpoch: 1, Nodes: 10, RoomVersion: room,
		Allocatable: wire.FromResources(cores(100000, 100000)), Free: wire.FromResources(cores(100000, 100000)), Largest: wire.FromResources(cores(100, 110))}}}})
}

func (e *editor) step(ev event.Event) {
	for e.queue = append(e.queue[:0], ev); len(e.queue) > 0; {
		ev := e.queue[0]
		e.queue = e.queue[1:]
		e.core.Step(e.now, ev)
		for _, o := range e.core.Outputs() {
			switch o := o.(type) {
			case event.WriteQueueStatus:
				e.usages++
				e.queues[o.Queue] = o.Status
				e.queue = append(e.queue, event.StatusWritten{ID: o.ID, Outcome: event.StatusOK})
			case event.WritePodGroupStatus:
				e.statuses[o.Namespace]++
				e.shown[o.Name] = o.Status
				e.queue = append(e.queue, event.StatusWritten{ID: o.ID, Outcome: event.StatusOK})
			case event.WritePodCondition:
				e.queue = append(e.queue, event.StatusWritten{ID: o.ID, Outcome: event.StatusOK, ResourceVersion: "7"})
			case event.Send:
				e.answer(o)
			}
		}
	}
}

func (e *editor) answer(s event.Send) {
	reply := func(body *wire.Envelope) { e.queue = append(e.queue, event.Message{From: s.To, Body: body}) }
	costs := func(g *wire.GangRef, pods int) { e.work[g.GetNamespace()] += 1 + pods }
	switch m := s.Body.Body.(type) {
	case *wire.Envelope_Reserve:
		r := m.Reserve
		costs(r.Gang, len(r.Pods))
		e.asked[r.Gang.Uid]++
		if e.deny {
			reply(&wire.Envelope{Body: &wire.Envelope_Denied{Denied: &wire.Denied{GangUid: r.Gang.Uid, Attempt: r.Attempt, Serial: r.Serial, Reason: wire.DenyReason_DENY_QUOTA}}})
		} else {
			reply(&wire.Envelope{Body: &wire.Envelope_Granted{Granted: &wire.Granted{GangUid: r.Gang.Uid, Attempt: r.Attempt, Serial: r.Serial, ReservationRevision: 5, Demand: r.Demand}}})
		}
	case *wire.Envelope_Unreserve:
		costs(m.Unreserve.Gang, 0)
		reply(&wire.Envelope{Body: &wire.Envelope_Unreserved{Unreserved: &wire.Unreserved{GangUid: m.Unreserve.Gang.Uid, Serial: m.Unreserve.Serial}}})
	case *wire.Envelope_HoldRequest:
		h := m.HoldRequest
		costs(h.Gang, len(h.Pods))
		e.searches[h.Gang.Uid]++
		for _, class := range h.Classes {
			e.bytes[h.Gang.Namespace] += len(class.Constraints)
		}
		reply(&wire.Envelope{Body: &wire.Envelope_HoldReply{HoldReply: &wire.HoldReply{GangUid: h.Gang.Uid, Serial: h.Serial, Refused: []*wire.Refusal{{Pods: uint32(len(h.Pods))}}}}})
	case *wire.Envelope_Withdraw:
		costs(m.Withdraw.Gang, 0)
		reply(&wire.Envelope{Body: &wire.Envelope_Withdrawn{Withdrawn: &wire.Withdrawn{GangUid: m.Withdraw.Gang.Uid, Serial: m.Withdraw.Serial}}})
	}
}

func (e *editor) group(namespace, name string, least int32, queue, class string) {
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Generation: 1, CreationTimestamp: metav1.NewTime(epoch0)}}
	g.Spec.Queue, g.Spec.PriorityClassName, g.Spec.SchedulingPolicy.Gang.MinCount = queue, class, least
	e.step(event.PodGroupSeen{PodGroup: g})
}

func (e *editor) pod(p api.Pod) {
	p.ResourceVersion, p.Created, p.Ours = "7", epoch0, true
	if p.Class == nil {
		p.Class = api.NewClass(cores(1, 1), nil)
	}
	e.pods[p.UID] = &p
	e.step(event.PodSeen{Pod: &p})
}

func (e *editor) gang(namespace, name string, pods int) {
	e.group(namespace, name, int32(pods), "q", "")
	for i := range pods {
		uid := fmt.Sprintf("%s-%d", name, i)
		e.pod(api.Pod{UID: uid, Namespace: namespace, Name: uid, Group: name})
	}
}

// waysToEdit change a gang of some pods back and forth. Each is one write to the API server.
var waysToEdit = []struct {
	name string
	edit func(e *editor, gang string, pods, n int)
}{
	{"minCount", func(e *editor, gang string, pods, n int) { e.group("evil", gang, int32(pods-n%2), "q", "") }},
	{"minCount beyond its pods", func(e *editor, gang string, pods, n int) { e.group("evil", gang, int32(pods+n%2), "q", "") }},
	{"queue", func(e *editor, gang string, pods, n int) {
		e.group("evil", gang, int32(pods), []string{"q", "r"}[n%2], "")
	}},
	{"priorityClassName", func(e *editor, gang string, pods, n int) {
		e.group("evil", gang, int32(pods), "q", []string{"", "low"}[n%2])
	}},
	{"queue label of a pod", func(e *editor, gang string, pods, n int) {
		e.pod(api.Pod{UID: gang + "-0", Namespace: "evil", Name: gang + "-0", Group: gang, Queue: []string{"", "r"}[n%2]})
	}},
	{"group label of a pod", func(e *editor, gang string, pods, n int) {
		e.pod(api.Pod{UID: gang + "-0", Namespace: "evil", Name: gang + "-0", Group: []string{gang, ""}[n%2]})
	}},
	{"a pod comes and goes", func(e *editor, gang string, pods, n int) {
		if uid := fmt.Sprintf("%s-0", gang); n%2 == 0 {
			e.pod(api.Pod{UID: uid, Namespace: "evil", Name: uid, Group: gang})
		} else {
			e.step(event.PodGone{UID: uid, Namespace: "evil", Name: uid})
		}
	}},
}

// storm edits gangs of one namespace 500 times a second, and returns what a second of it costs.
func storm(e *editor, gangs, pods int, lasts time.Duration, edit func(e *editor, gang string, pods, n int)) (work int) {
	e.step(event.NamespaceSeen{Name: "evil"})
	for i := range gangs {
		e.gang("evil", fmt.Sprintf("g%d", i), pods)
	}
	for range 100 { // all have asked once, and sleep
		e.now = e.now.Add(100 * time.Millisecond)
		e.step(event.Tick{})
	}
	e.work["evil"] = 0
	n := 0
	for end := e.now.Add(lasts); e.now.Before(end); {
		e.now = e.now.Add(2 * time.Millisecond)
		edit(e, fmt.Sprintf("g%d", n%gangs), pods, 1+n/gangs)
		e.step(event.Drained{})
		if n++; n%50 == 0 {
			e.step(event.Tick{})
		}
	}
	return e.work["evil"] / int(lasts/time.Second)
}

// TestEditsAreBounded: whatever a tenant changes about its gangs, and however often, they request quota and search for room
// at a bounded rate; and what it changed last takes effect.
func TestEditsAreBounded(t *testing.T) {
	for _, deny := range []bool{true, false} {
		for _, size := range []struct{ gangs, pods, limit int }{{1, 4, 20}, {1, 500, 1000}, {1000, 4, 3 * editedPods}} {
			for _, kind := range waysToEdit {
				name := fmt.Sprintf("%d gangs of %d, quota %t, %s", size.gangs, size.pods, !deny, kind.name)
				t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
					e := newEditor(deny)
					work := storm(e, size.gangs, size.pods, 20*time.Second, kind.edit)
					t.Logf("%d messages and pods a second", work)
					if work > size.limit {
						t.Errorf("%d messages and pods a second, the limit is %d", work, size.limit)
					}
					for i := range size.gangs {
						kind.edit(e, fmt.Sprintf("g%d", i), size.pods, 0)
					}
					for range 300 {
						e.now = e.now.Add(100 * time.Millisecond)
						e.step(event.Tick{})
					}
					if err := e.core.Check(); err != nil {
						t.Error(err)
					}
					if len(e.core.pacing.editLines) > 0 {
						t.Errorf("%d namespaces still wait for their edits", len(e.core.pacing.editLines))
					}
					for _, id := range api.SortedKeys(e.core.gangs) {
						g := e.core.gangs[id]
						if a := g.charge.reserve; deny && (a == nil || len(a.pods) != size.pods || g.queue != "q" || a.priority != 0) {
							t.Fatalf("gang %s is %s and has not requested what it is after its last edit", id, g.state)
						}
					}
				})
			}
		}
	}
}

// TestFirstEditTakesEffectAtOnce: also while another tenant edits all the time.
func TestFirstEditTakesEffectAtOnce(t *testing.T) {
	for _, kind := range waysToEdit {
		e := newEditor(true)
		e.step(event.NamespaceSeen{Name: "honest"})
		e.gang("honest", "h", 4)
		storm(e, 1000, 4, 5*time.Second, kind.edit)
		for i := range freeEdits {
			before := e.asked["h"]
			e.group("honest", "h", int32(3-i), "q", "")
			if e.asked["h"] != before+1 {
				t.Errorf("%s: edit %d of a gang that rested led to %d requests", kind.name, 1+i, e.asked["h"]-before)
			}
		}
	}
}

// TestEditsSpendTheBudgetOfASecond: once a namespace has had as many pods start over as it may in a second, others
// wait.
func TestEditsSpendTheBudgetOfASecond(t *testing.T) {
	e := newEditor(true)
	e.now = epoch0
	e.gang("ns", "large", editedPods)
	e.gang("ns", "small", 2)
	e.step(event.Tick{})
	before := e.asked["small"]
	e.group("ns", "large", editedPods-1, "q", "")
	e.step(event.Tick{})
	e.group("ns", "small", 1, "q", "")
	if n := e.asked["small"] - before; n != 0 {
		t.Errorf("the small gang was requested anew %d times", n)
	}
	e.now = e.now.Add(time.Second)
	e.step(event.Tick{})
	if n := e.asked["small"] - before; n != 1 {
		t.Errorf("a second later, it was requested anew %d times", n)
	}
}

// TestOrdersAreFoundAnewAtABoundedRate: whatever a tenant edits of what its queue's expression sees, and however often;
// what it said last counts, and nobody else waits.
func TestOrdersAreFoundAnewAtABoundedRate(t *testing.T) {
	e := newEditor(true)
	e.step(event.QueueSeen{Queue: &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "q", UID: "q"},
		Spec: v1beta1.QueueSpec{Order: "labels.all(k, k in labels && labels[k] == labels[k]) ? int(labels['edit']) : 0"}}})
	group := func(namespace, name string, edit int) {
		g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name),
			Labels: map[string]string{"edit": strconv.Itoa(edit)}}}
		for i := range 50 {
			g.Labels[fmt.Sprintf("l%02d", i)] = strings.Repeat("x", 63)
		}
		g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = "q", 1
		e.step(event.PodGroupSeen{PodGroup: g})
	}
	gang := func(namespace, name string) *gang {
		group(namespace, name, 0)
		e.pod(api.Pod{UID: name + "-0", Namespace: namespace, Name: name + "-0", Group: name})
		return e.core.gangs[name]
	}
	const gangs, seconds, perSecond = 64, 4, 5000
	var all []*ordered
	honest := gang("honest", "h")
	for i := range gangs {
		all = append(all, gang("evil", fmt.Sprint("g", i)).ordered)
	}
	found := 0
	for n := range seconds * perSecond {
		e.now = e.now.Add(time.Second / perSecond)
		group("evil", fmt.Sprint("g", n%gangs), n)
		if e.step(event.Drained{}); n%100 == 0 {
			e.step(event.Tick{})
			if group("honest", "h", n); honest.ordered.value != int64(n) {
				t.Fatalf("the place of a gang of another namespace is %d after edit %d", honest.ordered.value, n)
			}
		}
		for i, was := range all {
			if now := e.core.gangs[fmt.Sprint("g", i)].ordered; now != was {
				all[i] = now
				found++
			}
		}
	}
	// One costs more than 10 for each of its 51 labels, and what a second gives may be spent at once at first.
	if most := (seconds + 1) * orderedCost / (orderRead + 51*10); found > most || found < most/2 {
		t.Errorf("%d places were found anew in %d s, at most %d should", found, seconds, most)
	}
	for range 50 {
		e.now = e.now.Add(100 * time.Millisecond)
		e.step(event.Tick{})
	}
	for i := range gangs {
		want := int64((seconds*perSecond-1-i)/gangs*gangs + i)
		if now := e.core.gangs[fmt.Sprint("g", i)].ordered; now.value != want || now.waits {
			t.Errorf("the place of gang %d is %d after edit %d", i, now.value, want)
		}
	}
	if n := len(e.core.pacing.reordered); n > 0 {
		t.Errorf("%d gangs still wait for their places", n)
	}
}

// TestLargeGangsShrinkNowAndThen: a gang of many pods gives back what some of them leave once a second, not one by one.
func TestLargeGangsShrinkNowAndThen(t *testing.T) {
	for pods, want := range map[int]int{90: 3, 120: 1} {
		e := newEditor(false)
		e.now = epoch0
		e.step(event.NodeSeen{Node: &api.Node{Name: "n", Allocatable: cores(1000, 1000)}})
		e.group("ns", "g", 1, "q", "")
		for i := range pods {
			uid := fmt.Sprintf("g-%d", i)
			e.pod(api.Pod{UID: uid, Namespace: "ns", Name: uid, Group: "g", Node: "n", Class: api.NewClass(cores(1, 1), nil)})
		}
		leave := func(i int) {
			e.step(event.PodGone{UID: fmt.Sprintf("g-%d", i), Namespace: "ns", Name: fmt.Sprintf("g-%d", i)})
			e.step(event.Tick{})
		}
		leave(0)
		e.now = e.now.Add(time.Minute)
		before := e.asked["g"]
		leave(1)
		leave(2)
		leave(3)
		if n := e.asked["g"] - before; n != want {
			t.Errorf("of %d pods, three that leave at once lead to %d requests, want %d", pods, n, want)
		}
		e.now = e.now.Add(time.Second)
		e.step(event.Tick{})
		if n := len(e.core.gangs["g"].charge.pods); n != pods-4 {
			t.Errorf("a second later, %d of %d pods are charged", n, pods)
		}
	}
}
