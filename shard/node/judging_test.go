package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// heavyClass is one of many classes of about 30 KiB of node affinity, which no node satisfies.
func heavyClass(n int) *api.Class {
	var terms []v1.NodeSelectorTerm
	for i := range 300 {
		terms = append(terms, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{
			Key: "kubernetes.io/hostname", Operator: v1.NodeSelectorOpIn, Values: []string{fmt.Sprintf("%05d-%05d-%s", n, i, strings.Repeat("x", 50))}}}})
	}
	spec := &v1.PodSpec{Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: terms}}}}
	constraints, _ := spec.Marshal()
	return api.NewClass(api.FromMap(map[string]int64{"cpu": 1000, "pods": 1}), constraints)
}

// lightClass is one that a fifth of the nodes take.
func lightClass(n int) *api.Class {
	spec := &v1.PodSpec{NodeSelector: map[string]string{"zone": string('a' + rune(n%5))}}
	constraints, _ := spec.Marshal()
	return api.NewClass(api.FromMap(map[string]int64{"cpu": 1000 + int64(n), "pods": 1}), constraints)
}

// asker has namespaces ask a core with some nodes for room.
type asker struct {
	c   *Core
	now time.Time
}

func newAsker(nodes int) *asker {
	a := &asker{c: logged(New(Config{Self: "a", Strict: true})), now: epoch0}
	a.c.Step(a.now, event.TableSeen{Table: &api.Table{Epoch: 1, Revision: 1, Members: []api.Member{{Incarnation: "a"}}}})
	for i := range nodes {
		name := fmt.Sprint("n", i)
		a.c.Step(a.now, event.NodeSeen{Node: &api.Node{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name, "zone": string('a' + rune(i%5))},
			Allocatable: api.FromMap(map[string]int64{"cpu": 64000, "pods": 110})}})
	}
	a.c.Step(a.now, event.StoreRead{Sequence: 1, Revision: 1})
	a.c.Step(a.now, event.PodsReplaced{Sequence: 1})
	a.c.Outputs()
	return a
}

// ask requests room for one pod, and returns the answer.
func (a *asker) ask(namespace string, n int, serial uint64, classes ...*api.Class) *wire.HoldReply {
	m := &wire.HoldRequest{Gang: &wire.GangRef{Uid: fmt.Sprintf("%s-%d", namespace, n), Namespace: namespace, Name: "g", Queue: "q"}, Serial: serial, TtlMs: 100}
	for i, class := range classes {
		m.Classes = append(m.Classes, wireClass(class)...)
		m.Pods = append(m.Pods, &wire.PodWant{PodUid: fmt.Sprintf("%s-%d-%d", namespace, n, i), PodClass: uint32(i)})
	}
	a.c.Step(a.now, event.Message{From: "a", Body: &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: m}}})
	var reply *wire.HoldReply
	for _, o := range a.c.Outputs() {
		if s, ok := o.(event.Send); ok && s.Body.GetHoldReply() != nil {
			reply = s.Body.GetHoldReply()
		}
	}
	return reply
}

// TestManyConstraintsOfOneNamespace: a tenant each of whose pods has other constraints, as large as they may be, takes a
// bounded part of the time of a shard, its requests are answered all the same, and others notice nothing.
func TestManyConstraintsOfOneNamespace(t *testing.T) {
	const nodes, classes, seconds = 300, 250, 3
	a := newAsker(nodes)
	heavy := make([]*api.Class, classes)
	for i := range heavy {
		heavy[i] = heavyClass(i)
	}
	rounds, refusedYet, light := 0, 0, 0
	for tick := range 10 * seconds {
		for i := range classes / 10 {
			n := tick%10*classes/10 + i
			r := a.ask("evil", n, uint64(1+tick), heavy[n])
			if len(r.GetRefused()) != 1 {
				t.Fatal("a request for room is not answered")
			}
			if r.GetRefused()[0].GetLater() {
				refusedYet++
				if r.GetRefused()[0].GetNever() {
					t.Fatal("constraints that were not compared are said never to fit")
				}
			}
		}
		for i := range 20 {
			if r := a.ask("honest", i, uint64(1+tick), lightClass(i)); len(r.GetHeld()) != 1 {
				t.Fatalf("another namespace gets no room: %v", r)
			}
			light++
		}
		a.now = a.now.Add(100 * time.Millisecond)
		a.c.Step(a.now, event.Tick{})
		a.c.Outputs()
		rounds++
	}
	one := int64(len(heavy[0].Constraints)) * nodes
	if limit := int64(comparedAtOnce + seconds*comparedBytes + 2*one); a.c.cache.Compared() > limit {
		t.Errorf("%d MiB were compared in %d s, at most %d are meant", a.c.cache.Compared()>>20, seconds, limit>>20)
	}
	if refusedYet == 0 {
		t.Error("the tenant did not come near the limit: the test tests nothing")
	}
	few := heavy[:5] // a tenant with a few such classes gets each compared, once it has waited
	for tick := range 100 {
		a.ask("evil", 0, uint64(1000+tick), few...)
		a.now = a.now.Add(100 * time.Millisecond)
		a.c.Step(a.now, event.Tick{})
		a.c.Outputs()
	}
	for _, class := range few {
		if left := a.c.cache.Uncompared(class); left > 0 {
			t.Errorf("constraints were not compared with all nodes after 10 s: %d bytes are left", left)
		}
	}
}

// TestPreferencesLeaveRoom: what pods prefer, images here, is graded until it costs too much; what pods of the namespace require is looked at
// all the same.
func TestPreferencesLeaveRoom(t *testing.T) {
	a, serial, most := newAsker(3000), uint64(0), int64(0)
	ask := func(image int, selector map[string]string) *wire.HoldReply {
		p := &v1.Pod{Spec: v1.PodSpec{SchedulerName: api.SchedulerName, NodeSelector: selector}}
		for c := range 3 {
			p.Spec.Containers = append(p.Spec.Containers, v1.Container{Image: fmt.Sprintf("registry.example.com/some-team/some-app-%d/container-%d:v1.2.3", image, c)})
		}
		p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse("1")}
		serial++
		return a.ask("team", int(serial), serial, api.FromPod(p, nil, api.Rules{Images: true}).Class)
	}
	for tick := range 30 {
		for i := range 30 {
			ask(30*tick+i, nil)
		}
		if r := ask(0, map[string]string{"x": fmt.Sprint(tick)}); len(r.GetRefused()) != 1 || r.GetRefused()[0].GetLater() {
			t.Fatalf("a pod with a selector of its own, which no node has, is told %v", r)
		}
		most = max(most, a.c.spent.Spent(a.now, "team"))
		a.now = a.now.Add(100 * time.Millisecond)
		a.c.Step(a.now, event.Tick{})
		a.c.Outputs()
	}
	if most < gradedAtOnce {
		t.Errorf("at most %d bytes were spent: the pods prefer too little", most)
	}
}

// TestRoomOfClassesIsShared: the summary goes on to tell how much room there is for a namespace's class while another one asks
// for many classes.
func TestRoomOfClassesIsShared(t *testing.T) {
	a := newAsker(10)
	a.ask("honest", 0, 1, lightClass(0))
	for i := range 100 {
		a.ask("evil", i, 1, lightClass(1+i))
	}
	if a.c.said.requested[lightClass(0).Hash()] == nil {
		t.Error("the class of a namespace that asked for one is forgotten for those of a namespace that asked for many")
	}
	if len(a.c.said.requested) > a.c.cfg.MaxClasses {
		t.Errorf("%d classes are kept, the limit is %d", len(a.c.said.requested), a.c.cfg.MaxClasses)
	}
}

// BenchmarkHeavyClasses reports what each request of a tenant costs on 1,000 nodes all of whose 2,000 pods have other
// constraints of about 30 KiB, and of 20 honest classes beside it.
func BenchmarkHeavyClasses(b *testing.B) {
	a := newAsker(1000)
	const classes = 2000
	heavy := make([]*api.Class, classes)
	for i := range heavy {
		heavy[i] = heavyClass(i)
	}
	b.ResetTimer()
	var evil, honest, longest time.Duration
	for n := range b.N {
		began := time.Now()
		a.ask("evil", n%classes, uint64(1+n), heavy[n%classes])
		took := time.Since(began)
		evil += took
		longest = max(longest, took)
		began = time.Now()
		a.ask("honest", n%20, uint64(1+n), lightClass(n%20))
		honest += time.Since(began)
		if a.now = a.now.Add(2 * time.Millisecond); n%50 == 0 {
			a.c.Step(a.now, event.Tick{})
			a.c.Outputs()
		}
	}
	b.ReportMetric(float64(evil.Microseconds())/float64(b.N), "us/evil")
	b.ReportMetric(float64(honest.Microseconds())/float64(b.N), "us/honest")
	b.ReportMetric(float64(longest.Microseconds()), "us/longest")
	b.ReportMetric(float64(a.c.cache.Compared())/1e6/float64(b.N), "MB-compared/op")
}

// TestNothingIsPromisedUnjudged: constraints that may not be compared with nodes for now are not compared for promises
// either, also for the further pods of a class that was refused for that.
func TestNothingIsPromisedUnjudged(t *testing.T) {
	a := newAsker(3)
	for i := range 3 {
		uid := fmt.Sprint("v", i)
		class := api.NewClass(api.FromMap(map[string]int64{"cpu": 64000, "pods": 1}), nil)
		p := &api.Pod{UID: uid, Namespace: "other", Name: uid, Node: fmt.Sprint("n", i), Gang: "v", Class: class}
		a.c.Step(a.now, event.PodSeen{Pod: p})
	}
	a.c.spent.Spend(a.now, "evil", 2*comparedAtOnce)
	m := &wire.HoldRequest{Gang: &wire.GangRef{Uid: "g", Namespace: "evil", Name: "g", Queue: "q"}, Serial: 1, TtlMs: 100,
		Classes: wireClass(lightClass(0)), Awaits: []string{"v"}, Pods: []*wire.PodWant{{PodUid: "p1"}, {PodUid: "p2"}}}
	before := a.c.cache.Compared()
	a.c.Step(a.now, event.Message{From: "a", Body: &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: m}}})
	var reply *wire.HoldReply
	for _, o := range a.c.Outputs() {
		if s, ok := o.(event.Send); ok && s.Body.GetHoldReply() != nil {
			reply = s.Body.GetHoldReply()
		}
	}
	if refused := reply.GetRefused(); len(refused) != 1 || refused[0].GetPods() != 2 || !refused[0].GetLater() {
		t.Errorf("the answer is %v", reply)
	}
	if n := a.c.cache.Compared() - before; n > 0 {
		t.Errorf("%d bytes were compared", n)
	}
}

// TestChargesHaveNoWishes: pods that prefer different nodes are counted as one class, or each would be planned anew.
func TestChargesHaveNoWishes(t *testing.T) {
	a := newAsker(1)
	plain := api.NewClass(api.FromMap(map[string]int64{"cpu": 1000, "pods": 1}), nil)
	for i := range 3 {
		a.ask("ns", i, 1, plain.Wishing([]byte{0x12, 0}).Leaning([]byte(fmt.Sprint(i))))
		if p, held := a.c.cache.Lookup(fmt.Sprintf("ns-%d-0", i)); !held || p.Class.Key != plain.Key {
			t.Errorf("pod %d: held %t, and charged with wishes", i, held)
		}
	}
}

// TestLabelsThatNoPodHasAreForgotten: what is remembered of labels is bounded by those of the pods that are there.
func TestLabelsThatNoPodHasAreForgotten(t *testing.T) {
	a := newAsker(1)
	labels := func(i int) *api.Labels { return api.NewLabels(map[string]string{"job": fmt.Sprint(i)}) }
	const stay = kinsKept / 4
	for i := range stay {
		uid := fmt.Sprint(i)
		p := &api.Pod{UID: uid, Namespace: "ns", Name: uid, Node: "n0", Labels: labels(i), Class: api.NewClass(nil, nil)}
		a.c.Step(a.now, event.PodSeen{Pod: p})
	}
	for round := range 3 {
		for i := range 7 {
			var asked []*api.Class
			for k := range kinsKept / 8 {
				asked = append(asked, api.MakeClass(api.Class{Labels: labels((round+1)*10000 + i*1000 + k), Labelled: true}))
			}
			a.ask("ns", i, uint64(1+round), asked...)
		}
		a.now = a.now.Add(time.Hour)
		a.c.Step(a.now, event.Tick{})
		n := 0
		for _, kins := range a.c.groups.kins["ns"] {
			n += len(kins)
		}
		if n >= kinsKept {
			t.Errorf("round %d: %d different labels are remembered, %d pods are there", round, n, stay)
		}
	}
}
