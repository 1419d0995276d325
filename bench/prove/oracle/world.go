package main

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/lab"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

// world is what shards are connected to: an API server, a network that delivers in order and loses nothing, and the
// lab's Outside. What is under way to different shards, or from different sources, arrives in any order.
type world struct {
	*rand.Rand
	plan   *plan
	now    time.Time
	shards []*member
	table  *api.Table

	version int // of API objects
	made    int
	pods    map[string]*v1.Pod
	order   []string // of creation
	nodes   map[string]*v1.Node
	spaces  map[string]*v1.Namespace

	outside lab.Outside
	places  map[event.RowID]place
	lagging int // what arrives late: 1 the watch, 2 the log of intents, 0 nothing

	before map[string]*v1.Pod // the pods as they were when the step began, and those bound since that were replayed
	landed []landing
	out    Played
	failed error
}

// place is where a row is in the log: at which revision, and which row of its key it is.
type place struct {
	revision int64
	row      int
}

// landing is a Binding that the API server accepted.
type landing struct {
	place      place
	asked, pod *v1.Pod // as it was when it was to be placed, and with its node
}

// member is a shard.
type member struct {
	*lab.Shard

	// What is under way to it, by source. Each is in order.
	watch, log, mail, results []event.Event
}

func newWorld(p *plan) *world {
	w := &world{Rand: rand.New(rand.NewPCG(p.seed, 2)), plan: p, now: time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC),
		version: 100, outside: lab.Outside{Revision: 10}, pods: map[string]*v1.Pod{}, nodes: map[string]*v1.Node{},
		spaces: map[string]*v1.Namespace{}, places: map[event.RowID]place{}}
	w.out.Excused = map[string]int{}
	if p.seed%4 == 3 {
		w.lagging = int(p.seed / 4 % 3)
	}
	for _, n := range p.nodes {
		w.nodes[n.Name] = n
	}
	for _, o := range p.objects {
		if n, is := o.(*v1.Namespace); is {
			w.spaces[n.Name] = n
		}
	}
	for _, b := range p.pods {
		b = b.DeepCopy()
		w.version++
		b.ResourceVersion = strconv.Itoa(w.version)
		w.pods[b.Name] = b
		w.order = append(w.order, b.Name)
	}
	w.table = &api.Table{Epoch: 1, Revision: w.outside.Revision}
	for i := range p.shards {
		inc := api.Incarnation("s" + strconv.Itoa(i+1))
		w.table.Members = append(w.table.Members, api.Member{Incarnation: inc, Name: string(inc)})
	}
	for b := range w.table.Owners {
		w.table.Owners[b], w.table.Changed[b] = uint16(w.IntN(p.shards)), 1
	}
	return w
}

func (w *world) say(format string, args ...any) {
	if len(w.out.Trail) < 2000 {
		w.out.Trail = append(w.out.Trail, fmt.Sprintf(format, args...))
	}
}

func (w *world) fail(format string, args ...any) {
	if w.failed == nil {
		w.failed = fmt.Errorf(format, args...)
	}
}

// begin starts the shards, which take over what there is.
func (w *world) begin() {
	for _, m := range w.table.Members {
		x := &member{Shard: lab.NewShard(m.Incarnation, home.Config{Strict: true}, node.Config{Strict: true})}
		w.shards = append(w.shards, x)
		for _, name := range sortedKeys(w.spaces) {
			w.step(x, event.NamespaceSeen{Name: name, Labels: w.spaces[name].Labels})
		}
		for _, name := range sortedKeys(w.nodes) {
			w.step(x, event.NodeSeen{Node: api.FromNode(api.StripNode(w.nodes[name]), nil)})
		}
		w.step(x, event.LogRead{Revision: w.outside.Revision})
		w.step(x, event.CoordinatorSeen{Term: 1, Incarnation: "coordinator"})
	}
	for _, x := range w.shards {
		x.watch = append(x.watch, event.TableSeen{Table: w.table})
	}
	w.drain()
	for range 3 {
		w.tick()
	}
	w.began()
}

// began notes how things are when shards begin to hear of a step.
func (w *world) began() { w.before = maps.Clone(w.pods) }

func (w *world) objects() (out []runtime.Object) {
	for _, name := range sortedKeys(w.spaces) {
		out = append(out, w.spaces[name])
	}
	return out
}

// ---- the API server

func (w *world) toAll(ev event.Event) {
	for _, x := range w.shards {
		x.watch = append(x.watch, ev)
	}
}

func reduced(p *v1.Pod) *api.Pod { return api.FromPod(api.StripPod(p), nil, api.Rules{}) }

// changed stores a pod in a new version.
func (w *world) changed(p *v1.Pod) {
	w.version++
	p.ResourceVersion = strconv.Itoa(w.version)
	w.pods[p.Name] = p
	w.toAll(event.PodSeen{Pod: reduced(p)})
}

func (w *world) remove(p *v1.Pod) {
	w.version++
	delete(w.pods, p.Name)
	w.toAll(event.PodGone{UID: string(p.UID), Namespace: p.Namespace, Name: p.Name})
}

func (w *world) nodeChanged(n *v1.Node) {
	w.nodes[n.Name] = n
	w.toAll(event.NodeSeen{Node: api.FromNode(api.StripNode(n), nil)})
}

func (w *world) nodeRemoved(n *v1.Node) {
	delete(w.nodes, n.Name)
	w.toAll(event.NodeGone{Name: n.Name})
}

func (w *world) spaceChanged(name, team string) {
	n := w.spaces[name].DeepCopy()
	n.Labels["team"] = team
	w.spaces[name] = n
	w.toAll(event.NamespaceSeen{Name: name, Labels: n.Labels})
}

func (w *world) bind(o event.BindPod) event.BindOutcome {
	p := w.pods[o.Name]
	switch {
	case p == nil || string(p.UID) != o.Row.PodUID:
		return event.BindNotFound
	case p.Spec.NodeName != "" || p.ResourceVersion != o.ResourceVersion || p.DeletionTimestamp != nil:
		return event.BindConflict
	}
	l := landing{place: w.places[o.Row], asked: p, pod: p.DeepCopy()}
	if l.place.revision == 0 {
		w.fail("pod %s is bound without an intent", p.Name)
	}
	l.pod.Spec.NodeName, l.pod.Status.Phase, l.pod.Status.StartTime = o.Node, v1.PodRunning, &started
	if l.pod.Labels == nil {
		l.pod.Labels = map[string]string{}
	}
	l.pod.Labels[api.LabelGang] = o.Gang
	w.say("%s bound to %s, place %d", p.Name, o.Node, l.place.revision)
	w.landed = append(w.landed, l)
	w.out.Placed++
	w.changed(l.pod)
	return event.BindOK
}

func (w *world) resolve(o event.ResolveBinding) event.ResolveDone {
	p := w.pods[o.Name]
	switch {
	case p == nil || string(p.UID) != o.Row.PodUID:
		return event.ResolveDone{Row: o.Row, Outcome: event.ResolvedGone}
	case p.Spec.NodeName != "":
		return event.ResolveDone{Row: o.Row, Outcome: event.ResolvedBound, Node: p.Spec.NodeName}
	}
	w.changed(p.DeepCopy())
	return event.ResolveDone{Row: o.Row, Outcome: event.ResolvedFree, Version: w.pods[o.Name].ResourceVersion}
}

func (w *world) explainPod(o event.WritePodCondition) event.StatusWritten {
	p := w.pods[o.Name]
	switch {
	case p == nil || string(p.UID) != o.UID:
		return event.StatusWritten{ID: o.ID, Outcome: event.StatusGone}
	case p.ResourceVersion != o.ResourceVersion:
		return event.StatusWritten{ID: o.ID, Outcome: event.StatusConflict}
	}
	p = p.DeepCopy()
	p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: o.Reason, Message: o.Message}}
	w.say("%s waits: %s %s", p.Name, o.Reason, o.Message)
	w.changed(p)
	return event.StatusWritten{ID: o.ID, Outcome: event.StatusOK, ResourceVersion: p.ResourceVersion}
}

// ---- shards

// step gives a shard an event, and carries out what its cores ask for.
func (w *world) step(x *member, ev event.Event) {
	if err := x.Step(w.now, ev, func(o event.Output) { w.carryOut(x, o) }); err != nil {
		w.fail("%v", err)
	}
}

func (w *world) carryOut(x *member, o event.Output) {
	result := func(ev event.Event) { x.results = append(x.results, ev) }
	if answer, log, known := w.outside.Answer(x.Inc, o); known {
		for _, seen := range log {
			w.written(seen)
			for _, to := range w.shards {
				to.log = append(to.log, seen)
			}
		}
		if m, is := answer.(event.Message); is {
			x.mail = append(x.mail, m)
		} else if answer != nil {
			result(answer)
		}
		return
	}
	switch o := o.(type) {
	case event.Send:
		if r := o.Body.GetCommitReply(); r != nil && r.GetOutcome() == wire.CommitOutcome_COMMIT_HOLD_GONE {
			w.say("%s refuses to commit %s: %s", x.Inc, r.GetGangUid(), r.GetMessage())
			w.out.Refused++
		}
		for _, to := range w.shards {
			if to.Inc == o.To {
				to.mail = append(to.mail, event.Message{From: x.Inc, Body: o.Body})
			}
		}
	case event.ListPods:
		ev := event.PodsReplaced{Sequence: o.Sequence}
		for _, name := range sortedKeys(w.pods) {
			ev.Pods = append(ev.Pods, reduced(w.pods[name]))
		}
		x.watch = append(x.watch, ev)
	case event.BindPod:
		outcome := event.BindUnknown
		switch w.IntN(30) {
		case 0: // it is lost
		case 1: // its answer is
			w.bind(o)
		default:
			outcome = w.bind(o)
		}
		result(event.BindDone{Row: o.Row, Outcome: outcome})
	case event.ResolveBinding:
		result(w.resolve(o))
	case event.WritePodCondition:
		result(w.explainPod(o))
	case event.EvictPod:
		w.fail("%s evicts pod %s", x.Inc, o.Name)
	case event.Log:
		if o.Level >= slog.LevelError {
			w.fail("%s: %s %v", x.Inc, o.Message, o.Attrs)
		}
	}
}

// written notes the places of rows when their key is made.
func (w *world) written(seen event.LogSeen) {
	for _, in := range seen.Intents {
		if in.Place != seen.Revision {
			continue // of an earlier key
		}
		for i, r := range in.Record.GetRows() {
			w.places[event.RowID{Incarnation: in.Incarnation, N: in.N, PodUID: r.GetPodUid()}] = place{in.Place, i}
			w.say("%s writes %s on %s, place %d", in.Incarnation, r.GetName(), r.GetNode(), in.Place)
		}
	}
}

// drain delivers all that is under way, in any order.
func (w *world) drain() {
	for w.failed == nil {
		waits := false
		var ready []*[]event.Event
		var to []*member
		for _, x := range w.shards {
			for kind, q := range []*[]event.Event{&x.watch, &x.log, &x.mail, &x.results} {
				if len(*q) > 0 && (kind+1 != w.lagging || w.IntN(16) == 0) {
					ready, to = append(ready, q), append(to, x)
				}
				waits = waits || len(*q) > 0
			}
		}
		if len(ready) == 0 && waits {
			continue
		}
		if len(ready) == 0 {
			return
		}
		i := w.IntN(len(ready))
		for n := 1 + w.IntN(3); n > 0 && len(*ready[i]) > 0; n-- {
			ev := (*ready[i])[0]
			*ready[i] = (*ready[i])[1:]
			w.step(to[i], ev)
		}
		if x := to[i]; len(x.watch)+len(x.log)+len(x.mail)+len(x.results) == 0 || w.IntN(4) == 0 {
			w.step(x, event.Drained{})
		}
	}
}

// tick lets 100 ms pass.
func (w *world) tick() bool {
	w.now = w.now.Add(100 * time.Millisecond)
	for _, x := range w.shards {
		w.step(x, event.Tick{})
	}
	w.drain()
	return w.failed == nil
}

// check looks at the cores' own invariants.
func (w *world) check() {
	for _, x := range w.shards {
		if err := x.Check(); err != nil {
			w.fail("%s: %v", x.Inc, err)
		}
	}
}

// without returns a list without its i-th element.
func without[T any](list []T, i int) []T { return slices.Delete(slices.Clone(list), i, i+1) }

// shrinkPlan returns a plan as small as it gets that goes wrong in the same way.
func shrinkPlan(p *plan, kind Kind) *plan {
	wrong := func(p *plan) bool {
		out, err := Play(p)
		return err == nil && out.Wrong != nil && out.Wrong.Kind == kind
	}
	for changed := true; changed; {
		changed = false
		try := func(smaller *plan) bool {
			if wrong(smaller) {
				*p, changed = *smaller, true
				return true
			}
			return false
		}
		for i := len(p.steps) - 1; i >= 0; i-- {
			s := *p
			s.steps = without(p.steps, i)
			if try(&s) {
				continue
			}
			for j := len(p.steps[i].pods) - 1; j >= 0 && len(p.steps[i].pods) > 1; j-- {
				s := *p
				s.steps = slices.Clone(p.steps)
				s.steps[i].pods = without(p.steps[i].pods, j)
				try(&s)
			}
		}
		for i := len(p.pods) - 1; i >= 0; i-- {
			s := *p
			s.pods = without(p.pods, i)
			try(&s)
		}
		for i := len(p.nodes) - 1; i >= 0; i-- {
			s := *p
			s.nodes = without(p.nodes, i)
			try(&s)
		}
		if p.shards > 1 {
			s := *p
			s.shards = map[int]int{8: 3, 3: 1}[p.shards]
			try(&s)
		}
	}
	return p
}
