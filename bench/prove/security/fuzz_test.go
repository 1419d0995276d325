package security

import (
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/lab"
	"basalt.dev/basalt/cache"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

// shard is both cores of one shard that owns everything, with one node, as the shell runs them.
type shard struct {
	*lab.Shard
	now     time.Time
	outside lab.Outside  // its control store
	sent    []event.Send // to others
}

func newShard(cpu string) *shard {
	s := &shard{Shard: lab.NewShard("a", home.Config{}, node.Config{Policy: cache.Pack}),
		now: time.UnixMilli(1_700_000_000_000), outside: lab.Outside{Revision: 10}}
	s.step(event.LogRead{Revision: math.MaxInt64})
	t := &api.Table{Epoch: 1, Revision: 10, Members: []api.Member{{Incarnation: "a", Name: "a"}, {Incarnation: "b", Name: "b"}}}
	for i := range t.Changed {
		t.Changed[i] = 1
	}
	s.step(event.NamespaceSeen{Name: "ns"})
	s.step(event.NodeSeen{Node: api.FromNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{
		"cpu": resource.MustParse(cpu), "pods": resource.MustParse("200000")}}}, nil)})
	s.step(event.TableSeen{Table: t})
	s.step(event.StoreRead{Sequence: 1, Revision: 10})
	s.step(event.PodsReplaced{Sequence: 1})
	return s
}

// step steps both cores, and answers reads of the control store.
func (s *shard) step(ev event.Event) {
	for todo := []event.Event{ev}; len(todo) > 0; {
		ev, todo = todo[0], todo[1:]
		if err := s.Step(s.now, ev, func(o event.Output) {
			switch o := o.(type) {
			case event.Send:
				s.sent = append(s.sent, o)
			case event.ReadStore:
				answer, _, _ := s.outside.Answer(s.Inc, o)
				todo = append(todo, answer)
			}
		}); err != nil {
			panic(err)
		}
	}
}

func (s *shard) pass(d time.Duration) {
	for ; d > 0; d -= 500 * time.Millisecond {
		s.now = s.now.Add(500 * time.Millisecond)
		s.step(event.Tick{})
	}
}

// No message, from whomever, and no object ends a shard.
func FuzzShard(f *testing.F) {
	requests := wire.FromResources(api.FromMap(map[string]int64{"cpu": 1000, "pods": 1}))
	gang := &wire.GangRef{Uid: "u", Namespace: "ns", Name: "g", Queue: "default"}
	for _, m := range []*wire.Envelope{
		{Body: &wire.Envelope_HoldRequest{HoldRequest: &wire.HoldRequest{Gang: gang, Serial: 1 << 32, TableEpoch: 1, TtlMs: 5000, Classes: []*wire.PodClass{{Requests: requests}}, Pods: []*wire.PodWant{{PodUid: "p"}}}}},
		{Body: &wire.Envelope_Commit{Commit: &wire.Commit{Gang: gang, Serial: 1 << 32, TableRevision: 10, ReservationRevision: 5, Classes: []*wire.PodClass{{Requests: requests}}, Pods: []*wire.PodRef{{Uid: "p", Node: "n"}}, Bind: true}}},
		{Body: &wire.Envelope_Bind{Bind: &wire.Bind{GangUid: "u", Serial: 1 << 32}}},
		{Body: &wire.Envelope_Withdraw{Withdraw: &wire.Withdraw{Gang: gang, Serial: 1 << 32, TableEpoch: 1}}},
		{Body: &wire.Envelope_Granted{Granted: &wire.Granted{GangUid: "p", Attempt: 1, Serial: 1<<32 + 1, Demand: requests, ReservationRevision: 5}}},
		{Body: &wire.Envelope_Denied{Denied: &wire.Denied{GangUid: "p", Attempt: 1, Serial: 1<<32 + 1, Reason: 2}}},
		{Body: &wire.Envelope_HoldReply{HoldReply: &wire.HoldReply{GangUid: "p", Serial: 1<<32 + 2, Held: []*wire.Held{{PodUid: "p", Node: "n"}}}}},
		{Body: &wire.Envelope_QueueUsages{QueueUsages: &wire.QueueUsages{Term: 1, Queues: []*wire.QueueUsage{{Queue: "default", Uid: "q", Charged: requests}}}}},
		{Body: &wire.Envelope_Known{Known: &wire.Known{Gangs: []*wire.GangRef{gang}, Attempts: []uint64{1}}}},
		{Body: &wire.Envelope_Summary{Summary: &wire.Summary{}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b, []byte(`{"metadata":{"name":"g","namespace":"ns","uid":"u"},"spec":{"queue":"default","schedulingPolicy":{"gang":{"minCount":2}}}}`))
	}
	f.Fuzz(func(t *testing.T, one, two, object []byte) {
		if len(one)+len(two)+len(object) > 10_000 {
			return
		}
		s := newShard("8")
		group, queue := &v1beta1.PodGroup{}, &v1beta1.Queue{}
		if json.Unmarshal(object, group) == nil {
			s.step(event.PodGroupSeen{PodGroup: group})
		}
		if json.Unmarshal(object, queue) == nil {
			s.step(event.QueueSeen{Queue: queue})
		}
		s.step(event.CoordinatorSeen{Term: 1, Incarnation: "c"})
		class := api.NewClass(api.FromMap(map[string]int64{"cpu": 1000, "pods": 1}), nil)
		s.step(event.PodSeen{Pod: &api.Pod{UID: "p", Namespace: "ns", Name: "p", ResourceVersion: "1", Created: s.now, Ours: true, Class: class}})
		s.pass(time.Second)
		for _, b := range [][]byte{one, two, one} {
			m := &wire.Envelope{}
			if proto.Unmarshal(b, m) != nil {
				return
			}
			for _, from := range []api.Incarnation{"a", "b", event.ToCoordinator, "stranger"} {
				s.step(event.Message{From: from, Body: m})
			}
			s.pass(2 * time.Second)
		}
		s.pass(time.Minute)
	})
}

// A large gang in one shard. What it says fits into a message, and what it keeps goes when its pods go. The largest that is
// accepted has five times as many: it takes ten seconds, and two minutes under the race detector.
func TestLargeGang(t *testing.T) {
	const n = 20_000
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	s := newShard("1") // which has room for a few of them
	s.step(event.CoordinatorSeen{Term: 1, Incarnation: "c"})
	s.step(event.QueueSeen{Queue: &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "q"}}})
	before := heap()
	group := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "large", UID: "u"}}
	group.Spec.SchedulingPolicy.Gang.MinCount = n
	s.step(event.PodGroupSeen{PodGroup: group})
	class := api.NewClass(api.FromMap(map[string]int64{"cpu": 100, "pods": 1}), nil)
	for i := range n {
		uid := fmt.Sprintf("00000000-0000-0000-0000-%012d", i)
		s.step(event.PodSeen{Pod: &api.Pod{UID: uid, Namespace: "ns", Name: fmt.Sprintf("large-%d", i), ResourceVersion: "1", Created: s.now, Ours: true, Group: "large", Class: class}})
	}
	s.pass(2 * time.Second)
	var asked *wire.Reserve
	for _, m := range s.sent {
		if r := m.Body.GetReserve(); r != nil {
			asked = r
		}
	}
	if asked == nil || len(asked.Demand) != 2 || asked.Demand[0].Value != n*100 || asked.Demand[1].Value != n {
		t.Fatalf("it asks for %v", asked)
	}
	s.sent = nil
	// Granted, it finds out that no shard has the room, and says so.
	s.step(event.Message{From: event.ToCoordinator, Body: &wire.Envelope{Body: &wire.Envelope_Granted{Granted: &wire.Granted{
		GangUid: "u", Attempt: asked.Attempt, Serial: asked.Serial, ReservationRevision: 11, Demand: asked.Demand, Rank: &wire.Rank{Order: 1, GangUid: "u"}}}}})
	s.pass(30 * time.Second)
	for _, m := range s.sent {
		if size := proto.Size(m.Body); size > 16<<20 {
			t.Errorf("%T has %d MB: more than a stream takes", m.Body.Body, size>>20)
		}
	}
	s.sent = nil
	grown := heap() - before
	if grown > n*8<<10 {
		t.Errorf("a pod of it takes %d bytes", grown/n)
	}
	for i := range n {
		s.step(event.PodGone{UID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i), Namespace: "ns", Name: fmt.Sprintf("large-%d", i)})
	}
	s.step(event.PodGroupGone{UID: "u", Namespace: "ns", Name: "large"})
	s.pass(time.Minute)
	s.sent = nil
	if left := int64(heap()) - int64(before); left > n*256 {
		t.Errorf("%d MB stay when they are gone, of %d MB", left>>20, grown>>20)
	}
	runtime.KeepAlive(s)
	t.Logf("a pod of it takes %d bytes", grown/n)
}
