package node

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
	"basalt.dev/basalt/shard/event"
)

// TestPromisesInAnyOrder gives one core events in any order: pods are bound, resized, deleted and gone, nodes come, change and go, and gangs ask
// for room that others are to leave, renew it, withdraw it, or forget it. Whatever happens: a pod is awaited by one gang, nothing is promised
// that will not be, a promise that fits is a hold at the end of the step (all by Check), holds and promises never make a node lack anything,
// and the home knows from the messages alone what it holds and was promised.
func TestPromisesInAnyOrder(t *testing.T) {
	promised, handed, lost := 0, 0, 0
	for seed := range uint64(100) {
		p := playPromises(t, anyBytes(seed))
		promised, handed, lost = promised+p.promised, handed+p.handed, lost+p.lost
	}
	t.Logf("%d promises, %d handed over, %d lost", promised, handed, lost)
	if promised < 1000 || handed < 200 || lost < 200 {
		t.Errorf("too little happened: %d promises, %d handed over, %d lost", promised, handed, lost)
	}
}

// FuzzPromises is the same with whatever order the fuzzer finds.
func FuzzPromises(f *testing.F) {
	for seed := range uint64(4) {
		f.Add(anyBytes(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) { playPromises(t, data) })
}

func anyBytes(seed uint64) []byte {
	r := rand.New(rand.NewPCG(seed, 1))
	data := make([]byte, 1500)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

func playPromises(t *testing.T, data []byte) *promises {
	p := newPromises(t, data)
	for len(p.data) > 0 {
		p.step()
	}
	return p
}

type promises struct {
	t      *testing.T
	data   []byte
	core   *Core
	now    time.Time
	steps  int
	made   int
	serial uint64
	bound  map[string]*api.Pod
	knows  map[string]map[string]string // by gang and pod: what the home knows
	pods   map[string][]string          // of claimants
	asked  map[string]bool              // pods of the HoldRequest of this step, which is not answered yet
	asker  string

	promised, handed, lost int
}

func newPromises(t *testing.T, data []byte) *promises {
	p := &promises{t: t, data: data, now: epoch0, bound: map[string]*api.Pod{}, knows: map[string]map[string]string{}, pods: map[string][]string{},
		core: logged(New(Config{Self: "a", Strict: true, SummaryEvery: time.Hour}))}
	table := &api.Table{Epoch: 1, Revision: 1, Members: []api.Member{{Incarnation: "a", Name: "a"}, {Incarnation: home, Name: "home"}}}
	for b := range table.Owners {
		table.Changed[b] = 1
	}
	table.Owners[api.BucketOf("q")] = 1
	p.give(event.TableSeen{Table: table})
	for i := range 4 {
		p.node(i, 4)
	}
	p.give(event.StoreRead{Sequence: 1, Revision: 1})
	p.give(event.PodsReplaced{Sequence: 1})
	return p
}

// next is a number below n.
func (p *promises) next(n int) int {
	if len(p.data) == 0 {
		return 0
	}
	b := p.data[0]
	p.data = p.data[1:]
	return int(b) % n
}

func (p *promises) node(i int, cpu int64) {
	p.give(event.NodeSeen{Node: &api.Node{Name: fmt.Sprint("n", i), UID: "u", Unschedulable: p.next(8) == 7,
		Labels: map[string]string{api.LabelHostname: fmt.Sprint("n", i)}, Allocatable: api.FromMap(map[string]int64{"cpu": cpu, "pods": 6})}})
}

func cpus(n int) *api.Class {
	return api.NewClass(api.FromMap(map[string]int64{"cpu": int64(n), "pods": 1}), nil)
}

// some is a bound pod, nil if there is none.
func (p *promises) some() *api.Pod {
	uids := api.SortedKeys(p.bound)
	if len(uids) == 0 {
		return nil
	}
	return p.bound[uids[p.next(len(uids))]]
}

func (p *promises) step() {
	p.steps++
	switch op := p.next(16); op {
	case 0, 1, 2: // pods are bound where they fit, now and then where they do not
		for i := range 4 {
			p.made++
			node := fmt.Sprint("n", i)
			view, there := p.core.cache.Node(node)
			class := cpus(1 + p.next(3))
			if (!there || !class.Requests.Fits(view.Free)) && p.next(64) > 0 {
				continue
			}
			pod := &api.Pod{UID: fmt.Sprint("b", p.made), Namespace: "ns", Node: node, Started: true, Gang: fmt.Sprint("v", p.next(4)), Class: class}
			p.bound[pod.UID] = pod
			p.give(event.PodSeen{Pod: pod})
		}
	case 3, 4:
		if pod := p.some(); pod != nil {
			delete(p.bound, pod.UID)
			lost := p.lost
			p.give(event.PodGone{UID: pod.UID})
			if p.lost > lost {
				p.t.Fatalf("step %d: a pod is gone, and others lose room", p.steps)
			}
		}
	case 5: // changed
		if pod := p.some(); pod != nil {
			now := *pod
			switch p.next(4) {
			case 0:
				now.Class = cpus(1 + p.next(3))
			case 1:
				now.Deleting = true
			case 2:
				now.Finished = true
				delete(p.bound, pod.UID)
			}
			if !now.Finished {
				p.bound[pod.UID] = &now
			}
			p.give(event.PodSeen{Pod: &now})
		}
	case 6: // a node
		i := p.next(4)
		if p.next(3) == 0 {
			p.give(event.NodeGone{Name: fmt.Sprint("n", i)})
		}
		p.node(i, int64(3+p.next(3)))
	case 7:
		p.now = p.now.Add(time.Duration(p.next(40)) * 100 * time.Millisecond)
		p.give(event.Tick{})
	case 8: // a claimant's pod ends
		g := fmt.Sprint("c", p.next(3))
		if pods := p.pods[g]; len(pods) > 0 {
			i := p.next(len(pods))
			uid := pods[i]
			p.pods[g] = slices.Delete(pods, i, i+1)
			p.give(event.PodGone{UID: uid})
		}
	case 9:
		g := fmt.Sprint("c", p.next(3))
		p.serial++
		m := &wire.Withdraw{Gang: &wire.GangRef{Uid: g, Queue: "q"}, Serial: p.serial, Keep: p.next(2) == 0}
		if !m.Keep {
			delete(p.knows, g)
		}
		p.say(&wire.Envelope{Body: &wire.Envelope_Withdraw{Withdraw: m}})
	case 10:
		m := &wire.RoomProbe{Namespace: "ns", Classes: wireClass(cpus(1 + p.next(4))), GangUid: fmt.Sprint("c", p.next(3)), Candidates: p.awaits()}
		p.say(&wire.Envelope{Body: &wire.Envelope_RoomProbe{RoomProbe: m}})
	default:
		g := fmt.Sprint("c", p.next(3))
		for len(p.pods[g]) < 3 {
			p.made++
			p.pods[g] = append(p.pods[g], fmt.Sprint("p", p.made))
		}
		p.serial++
		m := &wire.HoldRequest{Gang: &wire.GangRef{Uid: g, Queue: "q"}, Serial: p.serial, Rank: &wire.Rank{Priority: int64(p.next(3)), GangUid: g},
			Awaits: p.awaits(), Claimed: p.next(2) == 0, TtlMs: int64(1000 * (1 + p.next(20)))}
		p.asked, p.asker = map[string]bool{}, g
		for _, uid := range p.pods[g] {
			if p.next(4) > 0 {
				m.Classes = append(m.Classes, wire.FromClass(cpus(1+p.size(uid))))
				m.Pods = append(m.Pods, &wire.PodWant{PodUid: uid, PodClass: uint32(len(m.Classes) - 1)})
				p.asked[uid] = true
			}
		}
		p.say(&wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: m}})
	}
}

// size is what a pod requests, and now and then something else.
func (p *promises) size(uid string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(uid, "p"))
	if p.next(16) == 0 {
		n++
	}
	return n % 3
}

func (p *promises) awaits() (uids []string) {
	for i := range 4 {
		if p.next(2) == 0 {
			uids = append(uids, fmt.Sprint("v", i))
		}
	}
	return uids
}

func (p *promises) say(body *wire.Envelope) { p.give(event.Message{From: home, Body: body}) }

func (p *promises) give(ev event.Event) {
	p.core.Step(p.now, ev)
	var said []string
	for _, o := range p.core.Outputs() {
		said = append(said, printOutput(o))
		if m, ok := o.(event.Send); ok {
			p.hears(m.Body)
		}
	}
	if p.asked != nil {
		p.t.Fatalf("step %d: gang %s is not answered", p.steps, p.asker)
	}
	if err := p.core.Check(); err != nil {
		p.t.Fatalf("step %d: %v", p.steps, err)
	}
	for _, name := range p.core.cache.OutOfSync() {
		if view, _ := p.core.cache.Node(name); slices.ContainsFunc(view.Pods, func(p cache.Placement) bool { return p.Kind == cache.Hold }) {
			p.t.Fatalf("step %d: node %s is out of sync, and has holds: %v", p.steps, name, view)
		}
	}
	for _, g := range p.core.gangs {
		has := map[string]string{}
		for uid, h := range g.holds {
			has[uid] = "held on " + h.node
		}
		for uid, o := range g.promises {
			has[uid] = "promised on " + o.room.node
			if view, _ := p.core.cache.Node(o.room.node); !view.OutOfSync && !view.Node.Unschedulable && o.class.Requests.Fits(view.Free.Add(o.part)) {
				p.t.Fatalf("step %d: pod %s of gang %s was promised room on %s, and has it", p.steps, uid, g.ref.Uid, o.room.node)
			}
		}
		if knows := p.knows[g.ref.Uid]; !maps.Equal(has, knows) {
			p.t.Fatalf("step %d: gang %s: its home knows of %v, there is %v after %+v and %q", p.steps, g.ref.Uid, knows, has, ev, said)
		}
	}
}

func (p *promises) hears(body *wire.Envelope) {
	switch b := body.GetBody().(type) {
	case *wire.Envelope_HoldReply:
		g := b.HoldReply.GangUid
		knows := p.knows[g]
		switch {
		case p.asked != nil && g == p.asker: // of the pods that were named
			for uid := range p.asked {
				delete(knows, uid)
			}
			p.asked = nil
		default: // unsolicited: of all
			for _, h := range b.HoldReply.Held {
				if strings.HasPrefix(knows[h.PodUid], "promised") {
					p.handed++
				}
			}
			knows = nil
		}
		if knows == nil {
			knows = map[string]string{}
			p.knows[g] = knows
		}
		for _, h := range b.HoldReply.Held {
			knows[h.PodUid] = "held on " + h.Node
		}
		for _, h := range b.HoldReply.Promised {
			p.promised++
			knows[h.PodUid] = "promised on " + h.Node
		}
	case *wire.Envelope_HoldsLost:
		for _, uid := range b.HoldsLost.PodUids {
			p.lost++
			delete(p.knows[b.HoldsLost.GangUid], uid)
		}
	case *wire.Envelope_Rooms:
		for _, n := range b.Rooms.Nodes {
			view, there := p.core.cache.Node(n.Node)
			sum, err := wire.ToResources(n.Free)
			for _, l := range n.Leaves {
				amounts, _ := wire.ToResources(l.Amounts)
				sum = sum.Add(amounts)
			}
			if err != nil || !there || len(n.Classes) != 1 || !sum.Fits(view.Node.Allocatable) {
				p.t.Fatalf("step %d: node %s has %v, and there is %v: %v", p.steps, n.Node, sum, view, err)
			}
		}
	}
}

// manyNodes is a core with nodes of 8 devices and pods of gangs that use them all.
func manyNodes(nodes, gangs int) *Core {
	c := logged(New(Config{Self: "a", SummaryEvery: time.Hour}))
	c.Step(epoch0, event.TableSeen{Table: &api.Table{Epoch: 1, Revision: 1, Members: []api.Member{{Incarnation: "a"}}}})
	for i := range nodes {
		c.Step(epoch0, event.NodeSeen{Node: &api.Node{Name: fmt.Sprintf("n%05d", i), Allocatable: api.FromMap(map[string]int64{"cpu": 64000, "nvidia.com/gpu": 8, "pods": 110})}})
	}
	c.Step(epoch0, event.StoreRead{Sequence: 1, Revision: 1})
	c.Step(epoch0, event.PodsReplaced{Sequence: 1})
	class := devices(1)
	for i := range nodes * 8 {
		c.Step(epoch0, event.PodSeen{Pod: &api.Pod{UID: fmt.Sprint("b", i), Namespace: "ns", Node: fmt.Sprintf("n%05d", i/8), Started: true, Gang: fmt.Sprint("v", i%gangs), Class: class}})
	}
	c.Outputs()
	return c
}

func devices(n int64) *api.Class {
	return api.NewClass(api.FromMap(map[string]int64{"cpu": 1000 * n, "nvidia.com/gpu": n, "pods": 1}), nil)
}

// askRooms returns the answer to a RoomProbe, nil for none.
func askRooms(c *Core, m *wire.RoomProbe) (rooms *wire.Rooms) {
	c.Step(epoch0, event.Message{From: "a", Body: &wire.Envelope{Body: &wire.Envelope_RoomProbe{RoomProbe: m}}})
	for _, o := range c.Outputs() {
		if s, ok := o.(event.Send); ok && s.Body.GetRooms() != nil {
			rooms = s.Body.GetRooms()
		}
	}
	return rooms
}

// What a question and its answer may have is bounded.
func TestRoomsAreBounded(t *testing.T) {
	c := manyNodes(maxRooms+10, 100)
	everybody := make([]string, 2*maxCandidates)
	for i := range everybody {
		everybody[i] = fmt.Sprint("v", i)
	}
	m := &wire.RoomProbe{Namespace: "ns", Classes: wireClass(devices(8)), Candidates: everybody, Serial: 7, GangUid: "g"}
	rooms := askRooms(c, m)
	if rooms.GetSerial() != 7 || !rooms.GetMore() || rooms.GetLater() || len(rooms.Nodes) == 0 || len(rooms.Nodes) > maxRooms || proto.Size(rooms) > maxRoomBytes+100 {
		t.Errorf("answer %d has %d nodes and %d bytes, more=%t later=%t", rooms.GetSerial(), len(rooms.GetNodes()), proto.Size(rooms), rooms.GetMore(), rooms.GetLater())
	}
	for i := range everybody { // those beyond the limit are not looked for
		everybody[i] = fmt.Sprint("x", i)
		if i >= maxCandidates {
			everybody[i] = fmt.Sprint("v", i-maxCandidates)
		}
	}
	if rooms := askRooms(c, m); rooms == nil || len(rooms.Nodes) > 0 {
		t.Errorf("candidate %d is looked for: %d nodes", maxCandidates, len(rooms.GetNodes()))
	}
	wide := func(classes, each int) *wire.RoomProbe {
		m := &wire.RoomProbe{Namespace: "ns"}
		for i := range classes {
			requests := map[string]int64{"pods": 1}
			for j := range each {
				requests[fmt.Sprintf("r%d-%d", i, j)] = 1
			}
			m.Classes = append(m.Classes, wire.FromClass(api.NewClass(api.FromMap(requests), nil)))
		}
		return m
	}
	for _, q := range []struct {
		m        *wire.RoomProbe
		answered bool
	}{{wide(maxRoomClasses, 0), true}, {wide(maxRoomClasses+1, 0), false}, {wide(0, 0), false}, {wide(1, maxRoomResources-1), true}, {wide(1, maxRoomResources), false}} {
		if rooms := askRooms(c, q.m); (rooms != nil) != q.answered {
			t.Errorf("%d classes: answered %t, want %t", len(q.m.Classes), rooms != nil, q.answered)
		}
	}
}

// The constraints of classes are compared with nodes at the expense of their namespace.
func TestRoomsArePaidFor(t *testing.T) {
	c := manyNodes(1000, 10)
	for i := range 100 {
		spec := v1.PodSpec{NodeSelector: map[string]string{strings.Repeat("k", 30<<10): fmt.Sprint(i)}}
		constraints, _ := spec.Marshal()
		class := api.NewClass(devices(1).Requests, constraints)
		rooms := askRooms(c, &wire.RoomProbe{Namespace: "ns", Classes: wireClass(class)})
		if rooms.GetLater() {
			if other := askRooms(c, &wire.RoomProbe{Namespace: "other", Classes: wireClass(class)}); other.GetLater() {
				t.Error("another namespace has to wait, too")
			}
			return
		}
	}
	t.Error("100 classes of 30 KiB each were compared with 1,000 nodes at once")
}

// BenchmarkRooms is a question about nodes with 8 pods each, of candidates out of 1,000. The second is one of 8 shards that are asked for a gang
// of 10,000 pods.
func BenchmarkRooms(b *testing.B) {
	for _, shape := range []struct {
		nodes, candidates int
		devices           int64
	}{{5000, 100, 8}, {625, 1000, 1}} {
		b.Run(fmt.Sprintf("nodes=%d/candidates=%d", shape.nodes, shape.candidates), func(b *testing.B) {
			c := manyNodes(shape.nodes, 1000)
			m := &wire.RoomProbe{Namespace: "ns", Classes: wireClass(devices(shape.devices)), GangUid: "g"}
			for i := range shape.candidates {
				m.Candidates = append(m.Candidates, fmt.Sprint("v", i))
			}
			for b.Loop() {
				askRooms(c, m)
			}
		})
	}
}

// BenchmarkPromise is a gang whose pods are promised the room of others, and that withdraws. The second is what one of 8 shards promises to a
// gang of 10,000 pods.
func BenchmarkPromise(b *testing.B) {
	for _, shape := range []struct {
		nodes, pods int
		devices     int64
	}{{5000, 100, 8}, {625, 1250, 1}} {
		b.Run(fmt.Sprintf("nodes=%d/pods=%d", shape.nodes, shape.pods), func(b *testing.B) {
			c := manyNodes(shape.nodes, 1000)
			m := &wire.HoldRequest{Gang: &wire.GangRef{Uid: "g", Queue: "q"}, Classes: wireClass(devices(shape.devices))}
			for i := range shape.pods {
				m.Pods = append(m.Pods, &wire.PodWant{PodUid: fmt.Sprint("p", i)})
			}
			for i := range 1000 {
				m.Awaits = append(m.Awaits, fmt.Sprint("v", i))
			}
			for b.Loop() {
				m.Serial += 2
				c.Step(epoch0, event.Message{From: "a", Body: &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: m}}})
				if got := c.Stats().Promises; got != shape.pods {
					b.Fatal(got)
				}
				c.Step(epoch0, event.Message{From: "a", Body: &wire.Envelope{Body: &wire.Envelope_Withdraw{Withdraw: &wire.Withdraw{Gang: m.Gang, Serial: m.Serial + 1}}}})
				c.Outputs()
			}
		})
	}
}
