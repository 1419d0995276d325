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
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
	"basalt.dev/basalt/shard/topology"
)

// world is what shards are connected to: an API server, a control store, a coordinator that grants everything, and a network that
// delivers in order and loses nothing. What is under way to different shards, or from different sources, arrives in any order.
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

	revision int64 // of the control store
	intents  map[storedKey]event.LoggedIntents
	places   map[event.RowID]place
	serial   uint64
	lagging  int // what arrives late: 1 the watch, 2 the log of intents, 0 nothing

	before map[string]*v1.Pod // the pods as they were when the step began, and those bound since that were replayed
	landed []landing
	out    Played
	failed error
}

type storedKey struct {
	inc api.Incarnation
	n   uint64
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
	inc  api.Incarnation
	view *topology.View
	home *home.Core
	node *node.Core

	// What is under way to it, by source. Each is in order.
	watch, log, mail, results []event.Event
}

func newWorld(p *plan) *world {
	w := &world{Rand: rand.New(rand.NewPCG(p.seed, 2)), plan: p, now: time.Date(2026, 1, 1, 1, 0, 0, 0, time.UTC), version: 100, revision: 10,
		pods: map[string]*v1.Pod{}, nodes: map[string]*v1.Node{}, spaces: map[string]*v1.Namespace{}, intents: map[storedKey]event.LoggedIntents{}, places: map[event.RowID]place{}}
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
	w.table = &api.Table{Epoch: 1, Revision: w.revision}
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
		x := &member{inc: m.Incarnation, view: topology.New()}
		x.home = home.New(home.Config{Self: x.inc, Topology: x.view, Strict: true})
		x.node = node.New(node.Config{Self: x.inc, Topology: x.view, Strict: true})
		w.shards = append(w.shards, x)
		for _, name := range sortedKeys(w.spaces) {
			w.step(x, event.NamespaceSeen{Name: name, Labels: w.spaces[name].Labels})
		}
		for _, name := range sortedKeys(w.nodes) {
			w.step(x, event.NodeSeen{Node: api.FromNode(api.StripNode(w.nodes[name]), nil)})
		}
		w.step(x, event.LogRead{Revision: w.revision})
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

// ---- the control store

func (w *world) logged(in event.LoggedIntents) {
	for _, x := range w.shards {
		x.log = append(x.log, event.LogSeen{Revision: w.revision, Intents: []event.LoggedIntents{in}})
	}
}

func (w *world) writeIntents(x *member, o event.WriteIntents) event.Event {
	w.revision++
	in := event.LoggedIntents{Incarnation: x.inc, N: o.N, Place: w.revision, Record: o.Record}
	w.intents[storedKey{x.inc, o.N}] = in
	for i, r := range o.Record.GetRows() {
		w.places[event.RowID{Incarnation: x.inc, N: o.N, PodUID: r.GetPodUid()}] = place{w.revision, i}
		w.say("%s writes %s on %s, place %d", x.inc, r.GetName(), r.GetNode(), w.revision)
	}
	w.logged(in)
	return event.IntentsWritten{N: o.N, Outcome: event.Written, ModRevision: w.revision}
}

func (w *world) deleteIntents(x *member, o event.DeleteIntents) event.Event {
	var out event.IntentsDeleted
	w.revision++
	for _, k := range o.Keys {
		id := storedKey{x.inc, k.N}
		if in, there := w.intents[id]; there {
			delete(w.intents, id)
			in.Record = nil
			w.logged(in)
		}
		out.Keys = append(out.Keys, event.IntentKey{N: k.N})
	}
	return out
}

// rewriteIntents replaces a record: a shard says so of rows that it gave up.
func (w *world) rewriteIntents(o event.RewriteIntents) event.Event {
	id := storedKey{o.Incarnation, o.N}
	in, there := w.intents[id]
	if !there {
		return event.IntentsRewritten{Incarnation: o.Incarnation, N: o.N}
	}
	w.revision++
	in.Record = o.Record
	w.intents[id] = in
	if o.Record == nil {
		delete(w.intents, id)
	}
	w.logged(in)
	return event.IntentsRewritten{Incarnation: o.Incarnation, N: o.N, Done: true, ModRevision: w.revision, Record: o.Record}
}

// ---- the coordinator

func (w *world) coordinate(from *member, body *wire.Envelope) {
	reply := func(e *wire.Envelope) {
		from.mail = append(from.mail, event.Message{From: event.ToCoordinator, Body: e})
	}
	switch b := body.GetBody().(type) {
	case *wire.Envelope_Reserve:
		m := b.Reserve
		w.revision++
		w.serial++
		rank := m.GetRank()
		if rank == nil {
			rank = &wire.Rank{Priority: m.GetPriority(), Order: w.serial, GangUid: m.GetGang().GetUid()}
		}
		reply(&wire.Envelope{Body: &wire.Envelope_Granted{Granted: &wire.Granted{GangUid: m.GetGang().GetUid(), Attempt: m.GetAttempt(), Serial: m.GetSerial(),
			ReservationRevision: w.revision, Demand: m.GetDemand(), Rank: rank}}})
	case *wire.Envelope_Unreserve:
		m := b.Unreserve
		reply(&wire.Envelope{Body: &wire.Envelope_Unreserved{Unreserved: &wire.Unreserved{GangUid: m.GetGang().GetUid(), Attempt: m.GetAttempt(), Serial: m.GetSerial()}}})
	case *wire.Envelope_Close:
		m := b.Close
		reply(&wire.Envelope{Body: &wire.Envelope_Closed{Closed: &wire.Closed{GangUid: m.GetGang().GetUid(), Attempt: m.GetAttempt(), Serial: m.GetSerial()}}})
	}
}

// ---- shards

// step gives a shard an event, and carries out what its cores ask for.
func (w *world) step(x *member, ev event.Event) {
	local := []event.Event{ev}
	carry := func(all []event.Output) {
		for _, o := range all {
			if send, is := o.(event.Send); is && send.To == x.inc {
				local = append(local, event.Message{From: x.inc, Body: send.Body})
				continue
			}
			w.carryOut(x, o)
		}
	}
	for said := 0; len(local) > 0; said++ {
		if said > 10000 {
			w.fail("%s: its cores do not stop talking", x.inc)
			return
		}
		ev := local[0]
		local = local[1:]
		x.view.Step(w.now, ev)
		x.home.Step(w.now, ev)
		carry(x.home.Outputs())
		x.node.Step(w.now, ev)
		carry(x.node.Outputs())
	}
}

func (w *world) carryOut(x *member, o event.Output) {
	result := func(ev event.Event) { x.results = append(x.results, ev) }
	switch o := o.(type) {
	case event.Send:
		if o.To == event.ToCoordinator {
			w.coordinate(x, o.Body)
			return
		}
		if r := o.Body.GetCommitReply(); r != nil && r.GetOutcome() == wire.CommitOutcome_COMMIT_HOLD_GONE {
			w.say("%s refuses to commit %s: %s", x.inc, r.GetGangUid(), r.GetMessage())
			w.out.Refused++
		}
		for _, to := range w.shards {
			if to.inc == o.To {
				to.mail = append(to.mail, event.Message{From: x.inc, Body: o.Body})
			}
		}
	case event.ReadStore:
		result(event.StoreRead{Sequence: o.Sequence, Revision: w.revision})
	case event.ListPods:
		ev := event.PodsReplaced{Sequence: o.Sequence}
		for _, name := range sortedKeys(w.pods) {
			ev.Pods = append(ev.Pods, reduced(w.pods[name]))
		}
		x.watch = append(x.watch, ev)
	case event.WriteIntents:
		result(w.writeIntents(x, o))
	case event.DeleteIntents:
		result(w.deleteIntents(x, o))
	case event.RewriteIntents:
		result(w.rewriteIntents(o))
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
	case event.WritePodGroupStatus:
		result(event.StatusWritten{ID: o.ID, Outcome: event.StatusOK})
	case event.WriteQueueStatus:
		result(event.StatusWritten{ID: o.ID, Outcome: event.StatusOK})
	case event.EvictPod:
		w.fail("%s evicts pod %s", x.inc, o.Name)
	case event.Log:
		if o.Level >= slog.LevelError {
			w.fail("%s: %s %v", x.inc, o.Message, o.Attrs)
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
		if err := x.node.Check(); err != nil {
			w.fail("%s: %v", x.inc, err)
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
