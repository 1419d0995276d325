package explore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/model"
	"basalt.dev/basalt/coordinator"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

// world is one state: everything there is.
type world struct {
	cfg     Config
	now     time.Time
	store   *model.Store[proto.Message]
	api     *model.API
	shards  []*shard          // that are alive
	coord   *coord            // nil while none is
	started int               // processes so far
	leases  []api.Incarnation // of shards that died: their keys are there still
	down    []string          // names of processes to be started again
	links   []*link
	instant []*link // messages that are delivered at the end of the step
	calls   []*call
	fair    bool // no faults any more
	check   check

	crashes, early, lost, waits, delays int
}

type shard struct {
	name    string
	inc     api.Incarnation
	home    *home.Core
	node    *node.Core
	sum     uint64 // of both, 0 when it is not known
	lent    bool   // another world has these two as well
	created int64
	pods    []event.Event // heard in this order
	store   []event.Event // tables and coordinators, likewise
	listing event.ListPods
	follows bool // pods
}

type coord struct {
	inc   api.Incarnation
	term  int64
	core  *coordinator.Core
	sum   uint64              // of it, 0 when it is not known
	lent  bool                // another world has it as well
	store []coordinator.Event // shards that came and went
}

// link carries messages from one process to another in order.
type link struct {
	from, to api.Incarnation
	queue    []*wire.Envelope
}

// call is a request to a server that was not carried out, or an answer that was not heard.
type call struct {
	from   api.Incarnation // "" when nobody waits for the answer any more
	what   string
	output event.Output      // of a shard
	txn    *coordinator.Txn  // of a coordinator
	term   int64             // of that coordinator
	who    api.Incarnation   // of that shard, for its fence
	fence  int64             // CreateRevision of its key
	answer event.Event       // carried out
	done   coordinator.Event // likewise
}

const (
	keyLeader = "leader/coordinator"
	keySeq    = "seq"
	keyTable  = "table"
)

func keyShard(i api.Incarnation) string { return "shards/" + string(i) }
func keyIntents(i api.Incarnation, n uint64) string {
	return fmt.Sprintf("intents/%s/%016x", i, n)
}
func keyReservation(b api.BucketID, gang string) string {
	return "reservations/" + b.Label() + "/" + gang
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func fail(format string, args ...any) { panic(violation(fmt.Sprintf(format, args...))) }

// begin makes two shards that each own a node and the home of a gang's queue, and a coordinator. Everything is quiet, and
// then the pods of all gangs are made at once.
func begin(cfg Config) *world {
	w := &world{cfg: cfg, now: epoch, fair: true, store: model.NewStore(proto.Equal), check: newCheck(),
		api: model.NewAPI(func() time.Time { return epoch })}
	w.put(proto.Message(&wire.StoreIdentity{Id: "store", Format: 1}), "store")
	w.startCoordinator()
	w.startShard("s1")
	w.startShard("s2")
	for range 40 {
		w.quiet()
		w.pass(500 * time.Millisecond)
	}
	w.quiet()
	table := w.table()
	if table == nil || len(table.Members) != 2 {
		panic(fmt.Sprintf("explore: no table of two: %v", table))
	}
	owned := func(prefix string, by int) string {
		for i := 0; ; i++ {
			if name := fmt.Sprintf("%s%d", prefix, i); table.Owner(api.BucketOf(name)) == w.shards[by].inc {
				return name
			}
		}
	}
	for by := range 2 {
		w.create(w.api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: owned("n", by)}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("1"), "pods": resource.MustParse("9")}}})
	}
	for by := range cfg.Gangs {
		name := owned("q", by)
		q := &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}}
		w.create(w.api.Queues, q)
		g := &v1alpha1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("g%d", by)}}
		g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = name, 2
		w.create(w.api.PodGroups, g)
	}
	if cfg.Quota > 0 {
		root := w.api.Queue(api.RootQueue)
		w.api.EditQueue(root, func(q *v1alpha1.Queue) {
			q.Spec.Capability = corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprint(2 * cfg.Quota))}
		})
	}
	for range 30 {
		w.quiet()
		w.pass(500 * time.Millisecond)
	}
	w.quiet()
	for g := range cfg.Gangs {
		for i := range 2 {
			w.makePod(g, i)
		}
	}
	for _, x := range w.shards { // seen by all from the start
		for len(x.pods) > 0 {
			w.hearPod(x)
		}
	}
	w.fair = false
	return w
}

func (w *world) makePod(g, i int) {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: fmt.Sprintf("g%d-%d", g, i), Labels: map[string]string{api.LabelPodGroup: fmt.Sprintf("g%d", g)},
		OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "job", UID: "job", Controller: &yes}}}}
	p.Spec.SchedulerName = api.SchedulerName
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
	w.create(w.api.Pods, p)
}

func (w *world) create(k *model.Kind, o metav1.Object) {
	if err := w.api.Create(k, o); err != nil {
		panic(err)
	}
	w.spread()
}

// copied is a world for another way to go on. Cores are copied only when they take a step.
func (w *world) copied() *world {
	n := *w
	n.store, n.api, n.check = clone(w.store), clone(w.api), *clone(&w.check)
	n.shards, n.links, n.instant, n.calls = nil, nil, nil, nil
	for _, x := range w.shards {
		x.lent = true
		c := *x
		n.shards = append(n.shards, &c)
	}
	if w.coord != nil {
		w.coord.lent = true
		c := *w.coord
		n.coord = &c
	}
	for _, l := range w.links {
		c := *l
		c.queue = slices.Clone(l.queue)
		n.links = append(n.links, &c)
	}
	for _, o := range w.calls {
		c := *o
		n.calls = append(n.calls, &c)
	}
	n.leases, n.down = slices.Clone(w.leases), slices.Clone(w.down)
	for _, x := range n.shards {
		x.pods, x.store = slices.Clone(x.pods), slices.Clone(x.store)
	}
	if n.coord != nil {
		n.coord.store = slices.Clone(n.coord.store)
	}
	return &n
}

// quiet does everything that can happen, in a fair order, until nothing can.
func (w *world) quiet() {
	for n := 0; ; n++ {
		actions := w.actions()
		if len(actions) == 0 {
			return
		}
		if n > 20000 {
			fail("it never becomes quiet: %s", actions[0].name)
		}
		w.do(actions[0])
	}
}

// ---- processes

func (w *world) shard(inc api.Incarnation) *shard {
	for _, x := range w.shards {
		if x.inc == inc {
			return x
		}
	}
	return nil
}

func (w *world) table() *api.Table {
	kv := w.store.Keys[keyTable]
	if kv == nil {
		return nil
	}
	t, err := wire.ToTable(kv.Value.(*wire.TableRecord), kv.Mod)
	if err != nil {
		fail("table: %v", err)
	}
	return t
}

func (w *world) leader() event.CoordinatorSeen {
	kv := w.store.Keys[keyLeader]
	if kv == nil {
		return event.CoordinatorSeen{}
	}
	return event.CoordinatorSeen{Term: kv.Create, Incarnation: api.Incarnation(kv.Value.(*wire.LeaderRecord).Incarnation)}
}

func (w *world) startShard(name string) {
	w.started++
	inc := api.Incarnation(fmt.Sprintf("%s-%d", name, w.started))
	x := &shard{name: name, inc: inc, home: home.New(home.Config{Self: inc, Strict: true, ConditionBudget: -1, StatusBudget: -1}), node: node.New(node.Config{Self: inc, Strict: true})}
	w.shards = append(w.shards, x)
	slices.SortFunc(w.shards, func(a, b *shard) int { return strings.Compare(a.name, b.name) })
	w.step(x, event.NamespaceSeen{Name: "ns"})
	for _, k := range []*model.Kind{w.api.Nodes, w.api.Queues, w.api.PodGroups} {
		for _, name := range k.Names() {
			w.step(x, seen(model.Entry{Type: watch.Added, Object: k.Objects[name]}))
		}
	}
	w.put(&wire.ShardRecord{Incarnation: string(inc), Name: name, Address: string(inc)}, keyShard(inc))
	x.created = w.store.Keys[keyShard(inc)].Create
	x.store = append(x.store, w.leader())
	if t := w.table(); t != nil {
		x.store = append(x.store, event.TableSeen{Table: t})
	}
	w.spread()
}

// startCoordinator begins a term: what it reads, it reads at once.
func (w *world) startCoordinator() {
	w.started++
	c := &coord{inc: api.Incarnation(fmt.Sprintf("c-%d", w.started))}
	if w.store.Keys[keyLeader] != nil {
		w.txn(nil, []model.Op[proto.Message]{{Kind: model.Delete, Key: keyLeader}})
	}
	w.put(&wire.LeaderRecord{Incarnation: string(c.inc), Name: "c", Address: string(c.inc)}, keyLeader)
	c.term = w.store.Keys[keyLeader].Create
	e := coordinator.Elected{Now: w.now, Term: c.term, Incarnation: c.inc, Table: w.table(), FreshStore: w.store.Keys[keyTable] == nil}
	if kv := w.store.Keys[keySeq]; kv != nil {
		e.Sequence = kv.Value.(*wire.Sequence).Value
	}
	e.Sequence++
	w.put(&wire.Sequence{Value: e.Sequence, Term: uint64(c.term)}, keySeq)
	for _, key := range w.store.With("queues/") {
		kv := w.store.Keys[key]
		e.Limits = append(e.Limits, coordinator.StoredLimits{Key: key, Revision: kv.Mod, Record: kv.Value.(*wire.LimitsRecord)})
	}
	for _, key := range w.store.With("reservations/") {
		kv := w.store.Keys[key]
		e.Reservations = append(e.Reservations, coordinator.StoredReservation{Key: key, Revision: kv.Mod, Record: kv.Value.(*wire.ReservationRecord)})
	}
	for _, key := range w.store.With("shards/") {
		e.Shards = append(e.Shards, w.store.Keys[key].Value.(*wire.ShardRecord))
	}
	c.core = coordinator.New(coordinator.Config{FirstTable: 2 * time.Second}, e)
	w.coord = c
	w.outputs(c)
	for _, name := range w.api.Queues.Names() {
		w.stepCoord(queueSeen(w.api.Queue(name)))
	}
	w.stepCoord(coordinator.QueuesSynced{})
	for _, r := range e.Shards {
		if w.shard(api.Incarnation(r.Incarnation)) != nil {
			w.stepCoord(coordinator.ShardLinked{Incarnation: api.Incarnation(r.Incarnation)})
		}
	}
	w.spread()
}

// crash ends a process. What it had sent goes on; what was sent to it is lost.
func (w *world) crash(name string) {
	if name == "c" {
		inc := w.coord.inc
		w.coord = nil
		w.orphan(inc)
	} else {
		i := slices.IndexFunc(w.shards, func(x *shard) bool { return x.name == name })
		inc := w.shards[i].inc
		w.shards = slices.Delete(w.shards, i, i+1)
		w.leases = append(w.leases, inc)
		w.orphan(inc)
		for _, x := range w.shards {
			x.store = append(x.store, event.PeerGone{Incarnation: inc})
		}
	}
	w.down = append(w.down, name)
}

func (w *world) orphan(inc api.Incarnation) {
	w.links = slices.DeleteFunc(w.links, func(l *link) bool { return l.to == inc })
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool { return c.from == inc && (c.answer != nil || c.done != nil || reads(c)) })
	for _, c := range w.calls {
		if c.from == inc {
			c.from = ""
		}
	}
}

func reads(c *call) bool {
	switch c.output.(type) {
	case event.ReadStore, event.ListPods:
		return true
	}
	return false
}

// ---- the servers

func (w *world) put(m proto.Message, key string) {
	w.txn(nil, []model.Op[proto.Message]{{Kind: model.Put, Key: key, Value: m}})
}

// txn carries a transaction out and spreads what it changed.
func (w *world) txn(compares []model.Compare[proto.Message], then []model.Op[proto.Message]) bool {
	before := w.store.Revision()
	for _, o := range then {
		if strings.HasPrefix(o.Key, "intents/") {
			defer func(old *model.KV[proto.Message]) { w.check.rewritten(w, o.Key, old) }(w.store.Keys[o.Key])
		}
	}
	done, err := w.store.Txn(compares, then, nil)
	if err != nil {
		fail("transaction: %v", err)
	}
	if !done.Succeeded {
		return false
	}
	events, err := w.store.Watch("\x00", "\x00", before+1)
	if err != nil {
		fail("watch: %v", err)
	}
	for _, e := range events {
		switch {
		case e.Key == keyTable:
			for _, x := range w.shards {
				x.store = append(x.store, event.TableSeen{Table: w.table()})
			}
		case e.Key == keyLeader:
			for _, x := range w.shards {
				x.store = append(x.store, w.leader())
			}
		case strings.HasPrefix(e.Key, "shards/") && w.coord != nil:
			if e.Deleted {
				w.coord.store = append(w.coord.store, coordinator.ShardDown{Incarnation: api.Incarnation(strings.TrimPrefix(e.Key, "shards/"))})
			} else {
				r := e.Value.(*wire.ShardRecord)
				w.coord.store = append(w.coord.store, coordinator.ShardUp{Record: r}, coordinator.ShardLinked{Incarnation: api.Incarnation(r.Incarnation)})
			}
		}
	}
	w.check.store(w, events)
	_ = w.store.Compact(w.store.Revision()) // its past is no state
	return true
}

// spread lets processes see what changed at the API server: pods in their own time, all else at once.
func (w *world) spread() {
	for again := true; again; {
		again = false
		for _, k := range []*model.Kind{w.api.Pods, w.api.Nodes, w.api.PodGroups, w.api.Queues} {
			log := k.Log
			w.api.Forget(k)
			for _, e := range log {
				again = true
				for _, x := range slices.Clone(w.shards) {
					if k != w.api.Pods {
						w.step(x, seen(e))
					} else if x.follows {
						x.pods = append(x.pods, seen(e))
					}
				}
				if q, is := e.Object.Object.(*v1alpha1.Queue); is && w.coord != nil {
					if e.Type == watch.Deleted {
						w.stepCoord(coordinator.QueueGone{Name: q.Name, UID: string(q.UID)})
					} else {
						w.stepCoord(queueSeen(q))
					}
				}
				if k == w.api.Pods {
					w.check.pods(w)
				}
			}
		}
	}
}

func seen(e model.Entry) event.Event {
	gone := e.Type == watch.Deleted
	switch o := e.Object.Object.(type) {
	case *corev1.Node:
		return event.NodeSeen{Node: api.FromNode(o, nil)}
	case *v1alpha1.Queue:
		if gone {
			return event.QueueGone{Name: o.Name, UID: string(o.UID)}
		}
		return event.QueueSeen{Queue: o}
	case *v1alpha1.PodGroup:
		if gone {
			return event.PodGroupGone{UID: string(o.UID), Namespace: o.Namespace, Name: o.Name}
		}
		return event.PodGroupSeen{PodGroup: o}
	}
	if gone {
		return event.PodGone{UID: string(e.GetUID()), Namespace: e.GetNamespace(), Name: e.GetName()}
	}
	return event.PodSeen{Pod: e.Pod}
}

func queueSeen(q *v1alpha1.Queue) coordinator.QueueSeen {
	ev := coordinator.QueueSeen{Name: q.Name, UID: string(q.UID), ResourceVersion: q.ResourceVersion, Generation: q.Generation,
		Deleting: q.DeletionTimestamp != nil, HasFinalizer: slices.Contains(q.Finalizers, v1alpha1.FinalizerCharged)}
	if q.Status != nil {
		ev.StatusEpoch = api.Epoch(q.Status.Epoch)
	}
	ev.Capability, _ = api.FromResourceList(q.Spec.Capability, false)
	return ev
}

// ---- what processes do

func (w *world) stepCoord(ev coordinator.Event) {
	c := w.coord
	c.sum = 0
	if c.lent {
		c.core, c.lent = clone(c.core), false
	}
	c.core.Step(w.now, ev)
	w.outputs(c)
}

func (w *world) outputs(c *coord) {
	for _, o := range slices.Clone(c.core.Outputs()) {
		switch o := o.(type) {
		case coordinator.Send:
			w.send(c.inc, o.To, o.Body)
		case coordinator.Txn:
			w.calls = append(w.calls, &call{from: c.inc, what: fmt.Sprintf("%s's transaction %d", c.inc, o.ID), txn: &o, term: c.term})
		case coordinator.SetFinalizer:
			w.finalizer(o.Queue, []string{v1alpha1.FinalizerCharged})
		case coordinator.RemoveFinalizer:
			w.finalizer(o.Queue, nil)
		case coordinator.CreateQueue:
			if w.api.Queue(o.Name) == nil {
				w.create(w.api.Queues, &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: o.Name}})
			}
		case coordinator.Log:
			if o.Level >= coordinator.LevelError {
				fail("%s logs an error: %s %v", c.inc, o.Message, o.Args)
			}
		}
	}
}

func (w *world) finalizer(queue string, list []string) {
	if q := w.api.Queue(queue); q != nil {
		w.api.EditQueue(q, func(q *v1alpha1.Queue) { q.Finalizers = list })
		w.spread()
	}
}

// step gives a shard an event and what its cores say to each other.
func (w *world) step(x *shard, ev event.Event) {
	local := []event.Event{ev}
	x.sum = 0
	if x.lent {
		x.home, x.node, x.lent = clone(x.home), clone(x.node), false
	}
	for len(local) > 0 {
		ev := local[0]
		local = local[1:]
		x.home.Step(w.now, ev)
		outputs := slices.Clone(x.home.Outputs())
		for _, o := range outputs {
			local = append(local, w.carryOut(x, o)...)
		}
		x.node.Step(w.now, ev)
		outputs = slices.Clone(x.node.Outputs())
		for _, o := range outputs {
			local = append(local, w.carryOut(x, o)...)
		}
	}
	if err := x.node.Check(); err != nil {
		fail("%s: %v", x.inc, err)
	}
}

// carryOut returns what the shard is told of it at once.
func (w *world) carryOut(x *shard, o event.Output) []event.Event {
	ask := func(what string, args ...any) {
		w.calls = append(w.calls, &call{from: x.inc, what: string(x.inc) + "'s " + fmt.Sprintf(what, args...), output: o, who: x.inc, fence: x.created})
	}
	written := func(id uint64, err error) []event.Event {
		ev := event.StatusWritten{ID: id, Outcome: event.StatusOK}
		if apierrors.IsNotFound(err) {
			ev.Outcome = event.StatusGone
		} else if err != nil {
			ev.Outcome, ev.Error = event.StatusConflict, err.Error()
		}
		w.quickly()
		return []event.Event{ev}
	}
	switch o := o.(type) {
	case event.Send:
		w.check.says(w, x, o)
		if o.To == x.inc {
			return []event.Event{event.Message{From: x.inc, Body: o.Body}}
		}
		w.send(x.inc, o.To, o.Body)
	case event.ReadStore:
		ask("read of the store")
	case event.ListPods:
		x.listing = o
		ask("list of pods")
	case event.WriteIntents:
		ask("intents %d", o.N)
	case event.DeleteIntents:
		ask("delete of %d intents", len(o.Keys))
	case event.RewriteIntents:
		ask("rewrite of intents %s/%d", o.Incarnation, o.N)
	case event.BindPod:
		w.check.asks(o)
		ask("Binding of %s to %s", o.Name, o.Node)
	case event.SettlePod:
		ask("settling of %s", o.Name)
	case event.EvictPod:
		ask("eviction of %s", o.Name)
	case event.WriteQueueStatus:
		return written(o.ID, w.api.ReplaceQueueStatus(o.Queue, o.UID, o.Status))
	case event.WritePodGroupStatus:
		return written(o.ID, w.api.ReplacePodGroupStatus(o.Namespace, o.Name, o.UID, o.Status))
	case event.WritePodCondition:
		fail("a pod is to be told why it waits, for which there is no budget")
	case event.Log:
		if o.Level >= 8 {
			fail("%s logs an error: %s %v", x.inc, o.Message, o.Attrs)
		}
	}
	return nil
}

// quickly drops what nobody waits for: statuses that were just written are not shown again.
func (w *world) quickly() {
	w.api.Forget(w.api.Queues)
	w.api.Forget(w.api.PodGroups)
}

func (w *world) send(from, to api.Incarnation, body *wire.Envelope) {
	if to == event.ToCoordinator {
		if w.coord == nil {
			return
		}
		to = w.coord.inc
	} else if w.shard(to) == nil {
		return
	}
	if body.GetSummary() != nil || body.GetQueueUsages() != nil {
		w.instant = append(w.instant, &link{from, to, []*wire.Envelope{body}})
		return
	}
	for _, l := range w.links {
		if l.from == from && l.to == to {
			l.queue = append(l.queue, body)
			return
		}
	}
	w.links = append(w.links, &link{from: from, to: to, queue: []*wire.Envelope{body}})
	slices.SortFunc(w.links, func(a, b *link) int {
		return strings.Compare(string(a.from)+" "+string(a.to), string(b.from)+" "+string(b.to))
	})
}

// deliver hands the first message of a link over.
func (w *world) deliver(l *link) {
	body := l.queue[0]
	l.queue = slices.Clone(l.queue[1:])
	if w.coord != nil && l.to == w.coord.inc {
		w.stepCoord(coordinator.Message{From: l.from, Body: body})
	} else if x := w.shard(l.to); x != nil {
		from := l.from
		if strings.HasPrefix(string(from), "c-") {
			from = event.ToCoordinator
		}
		w.step(x, event.Message{From: from, Body: body})
	}
	w.spread()
}

// flush delivers what is delivered at once.
func (w *world) flush() {
	for len(w.instant) > 0 {
		l := w.instant[0]
		w.instant = w.instant[1:]
		w.deliver(l)
	}
	w.instant = nil
}

func (w *world) hearPod(x *shard) {
	ev := x.pods[0]
	x.pods = slices.Clone(x.pods[1:])
	w.step(x, ev)
	w.spread()
}

func (w *world) hearStore(x *shard) {
	ev := x.store[0]
	x.store = slices.Clone(x.store[1:])
	w.step(x, ev)
	w.spread()
}

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for _, x := range slices.Clone(w.shards) {
		w.step(x, event.Tick{})
	}
	if w.coord != nil {
		w.stepCoord(coordinator.Tick{})
	}
	w.spread()
}

// sorted keys, for what must not depend on a map's order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
