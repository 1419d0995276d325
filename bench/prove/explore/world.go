package explore

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
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
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/model"
	"basalt.dev/basalt/coordinator"
	"basalt.dev/basalt/coordinator/effect"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

// world is one state: everything there is. It is copied for each way to go on: what it points to is never changed, and a
// slice is never written into once it is in a world, but for the four that copied makes new.
type world struct {
	*known
	now     time.Time
	store   *part // a model.Store without the intents
	intents *part // the rest of it, of intents: revisions of their keys are versions, see carryTxn
	objects []object
	shards  []shard           // that are alive
	coord   *coord            // nil while none is; a new one for each step
	started int               // processes so far
	leases  []api.Incarnation // of shards that died: their keys are there still
	down    []string          // names of processes to be started again
	links   []link            // with something under way
	instant []link            // messages that are delivered at the end of the step
	calls   []*call           // sorted; a call is never changed
	fair    bool              // no faults any more
	check   check

	crashes, edits, early, lost, waits int
}

// known is what all worlds of an exploration share.
type known struct {
	cfg     Config
	parts   *parts
	strings memo[string, uint64]
	reads   memo[uint64, item]
	starts  memo[uint64, *change]
	queues  []string        // of the gangs
	age     int64           // that the victim of a claim first asked with
	seen    memo[any, item] // of objects, by pointer
	tables  memo[*wire.TableRecord, item]
}

// object is what the API server has under one name, in a model.API of its own: that versions of different objects were made
// in another order is no other state.
type object struct {
	kind, namespace, name string
	at                    *part
}

type shard struct {
	name       string
	inc        api.Incarnation
	home, node *part
	created    int64
	pods       []item // heard in this order
	store      []item // tables and coordinators, likewise
	listing    uint64 // the newest Sequence asked for
	follows    bool   // pods
	early      []item // with fault.PodsFirst: the pods before the intents were read; they are heard of before all others
	shown      []item // with fault.PodsFromCache: the pods as they were heard of
}

type coord struct {
	inc   api.Incarnation
	term  int64
	core  *part
	store []item // shards that came and went
}

// link carries messages from one process to another in order.
type link struct {
	from, to api.Incarnation
	queue    []item // of *wire.Envelope
}

// call is a request to a server that was not carried out, or an answer that was not heard.
type call struct {
	from   api.Incarnation  // "" when nobody waits for the answer any more
	sum    uint64           // of what is asked, and by whom
	output event.Output     // of a shard
	txn    *coordinator.Txn // of a coordinator
	term   int64            // of that coordinator
	who    api.Incarnation  // whose it was
	fence  int64            // CreateRevision of that shard's key
	answer item             // carried out: an event of the shard or of the coordinator
}

const keys = protocol.Keys("")

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func fail(format string, args ...any) { panic(violation(fmt.Sprintf(format, args...))) }

// begin makes two shards that each own a node and the home of a gang's queue, and a coordinator. Everything is quiet, and
// then the pods of all gangs are made at once.
func begin(cfg Config, live bool) *world {
	w := &world{now: epoch, fair: true, known: &known{cfg: cfg, parts: newParts(cfg, live), strings: memo[string, uint64]{}, reads: memo[uint64, item]{},
		starts: memo[uint64, *change]{}, seen: memo[any, item]{}, tables: memo[*wire.TableRecord, item]{}}}
	w.store, w.intents = w.parts.of(model.NewStore(proto.Equal)), w.parts.of(&intents{map[string]intentKey{}})
	w.put(keys.Identity(), &wire.StoreIdentity{Id: "store", Format: 1})
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
	for by := range cfg.Claim.nodes() {
		w.create(kindNode, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: owned("n", by)}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": resource.MustParse("1"), "pods": resource.MustParse("9")}}})
	}
	for by := range cfg.Gangs {
		name := owned("q", by)
		w.create(kindQueue, &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.QueueSpec{Deserved: cfg.Claim.deserved(by)}})
		if w.queues = append(w.queues, name); cfg.Implied {
			continue
		}
		g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: groupName(by)}}
		g.Spec.Queue, g.Spec.SchedulingPolicy.Gang.MinCount = name, int32(cfg.Claim.least(by))
		w.create(kindPodGroup, g)
	}
	if cfg.Quota > 0 {
		w.serve(w.object(kindQueue, "", api.RootQueue), 1, false, func(a *model.API) any {
			a.EditQueue(a.Queue(api.RootQueue), func(q *v1beta1.Queue) {
				q.Spec.Capability = corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprint(cfg.Claim.pods(0) * cfg.Quota))}
				if cfg.Claim != "" {
					q.Spec.ReclaimMinRuntime, q.Spec.PreemptionDelay = &metav1.Duration{}, &metav1.Duration{}
				}
			})
			return nil
		})
	}
	settle := func() {
		for range 30 {
			w.quiet()
			w.pass(500 * time.Millisecond)
			w.flush()
		}
		w.quiet()
	}
	settle()
	if cfg.Claim != "" {
		w.beginVictim(settle)
	}
	for g := range cfg.Gangs {
		if cfg.Claim == "" || g == claimant {
			w.makePods(g)
		}
	}
	for i := range w.shards { // seen by all from the start
		for len(w.shards[i].pods) > 0 {
			w.hearPod(&w.shards[i])
		}
	}
	w.fair = false
	return w
}

func (w *world) makePods(g int) {
	for i := range w.cfg.Claim.pods(g) {
		w.makePod(g, i)
	}
}

func podName(g, i int) string { return fmt.Sprintf("g%d-%d", g, i) }

func groupName(g int) string { return fmt.Sprintf("g%d", g) }

// implied are the annotations of pods that say which gang they are of.
func implied(g int) map[string]string {
	return map[string]string{api.AnnotationGangName: groupName(g), api.AnnotationGangMin: "2"}
}

// labels returns those of a gang's pods, as their controller makes them.
func (w *world) labels(g int) map[string]string {
	if w.cfg.Implied {
		return map[string]string{api.LabelQueue: w.queues[g]}
	}
	return map[string]string{api.LabelPodGroup: groupName(g)}
}

func (w *world) makePod(g, i int) {
	yes := true
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: podName(g, i), Labels: w.labels(g),
		OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: "job", UID: "job", Controller: &yes}}}}
	if w.cfg.Implied {
		p.Annotations = implied(g)
	}
	p.Spec.SchedulerName = api.SchedulerName
	p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}
	w.create(kindPod, p)
}

// copied is a world for another way to go on.
func (w *world) copied() *world {
	n := *w
	n.objects, n.shards, n.links, n.calls = slices.Clone(w.objects), slices.Clone(w.shards), slices.Clone(w.links), slices.Clone(w.calls)
	return &n
}

// plus appends and never writes into what others have.
func plus[T any](s []T, more ...T) []T { return append(slices.Clip(s), more...) }

// quiet does everything that can happen, in a fair order, until nothing can.
func (w *world) quiet() {
	for n := 0; ; n++ {
		a, is := w.next()
		if !is {
			return
		}
		if n > 20000 {
			fail("it never becomes quiet: %s", w.name(a))
		}
		w.do(a)
	}
}

// ---- sums

func (k *known) of(s string) uint64 { return k.strings.get(s, func() uint64 { return sumOf(s) }) }

func (k *known) told(inc api.Incarnation) uint64 { return k.of(string(inc)) }

// sum is the same for states that are the same.
func (w *world) sum() uint64 { return w.summed(func(p *part) uint64 { return p.sum }) }

// id tells states apart that are gone into: by their sums, or by everything in them where nothing is to be merged.
func (w *world) id() uint64 {
	if w.cfg.Plain {
		return w.summed(func(p *part) uint64 { return p.whole })
	}
	return w.sum()
}

func (w *world) summed(of func(*part) uint64) uint64 {
	h := mix(at(w.now), of(w.store), of(w.intents), uint64(w.started), uint64(w.crashes), uint64(w.edits), uint64(w.early), uint64(w.lost), uint64(w.waits))
	for i := range w.objects {
		h = mix(h, of(w.objects[i].at))
	}
	queue := func(items []item) {
		h = mix(h, uint64(len(items)))
		for _, i := range items {
			h = mix(h, i.sum)
		}
	}
	for i := range w.shards {
		x := &w.shards[i]
		follows := uint64(0)
		if x.follows {
			follows = 1
		}
		h = mix(h, w.told(x.inc), of(x.home), of(x.node), x.listing, follows)
		queue(x.pods)
		queue(x.store)
		queue(x.early)
		queue(x.shown)
	}
	if c := w.coord; c != nil {
		h = mix(h, w.told(c.inc), of(c.core))
		queue(c.store)
	}
	for _, l := range w.links {
		h = mix(h, w.told(l.from), w.told(l.to))
		queue(l.queue)
	}
	for _, c := range w.calls {
		h = mix(h, w.told(c.from), c.sum, c.answer.sum)
	}
	for _, inc := range w.leases {
		h = mix(h, 1, w.told(inc))
	}
	for _, name := range w.down {
		h = mix(h, 2, w.of(name))
	}
	return mix(h, w.check.sum())
}

// ---- processes

func (w *world) shard(inc api.Incarnation) *shard {
	for i := range w.shards {
		if w.shards[i].inc == inc {
			return &w.shards[i]
		}
	}
	return nil
}

func (w *world) etcd() *model.Store[proto.Message] {
	return w.store.value.(*model.Store[proto.Message])
}

func (w *world) tableSeen() item {
	kv := w.etcd().Keys[keys.Table()]
	if kv == nil {
		return item{}
	}
	return w.tables.get(kv.Value.(*wire.TableRecord), func() item {
		t, err := wire.ToTable(kv.Value.(*wire.TableRecord), kv.Mod)
		if err != nil {
			fail("table: %v", err)
		}
		return itemOf(event.TableSeen{Table: t})
	})
}

func (w *world) table() *api.Table {
	t, _ := w.tableSeen().value.(event.TableSeen)
	return t.Table
}

func (w *world) leader() item {
	kv := w.etcd().Keys[keys.Leader()]
	if kv == nil {
		return itemOf(event.CoordinatorSeen{})
	}
	return itemOf(event.CoordinatorSeen{Term: kv.Create, Incarnation: api.Incarnation(kv.Value.(*wire.LeaderRecord).Incarnation)})
}

func (w *world) startShard(name string) {
	w.started++
	inc := api.Incarnation(fmt.Sprintf("%s-%d", name, w.started))
	born := func(what string, core func() any) *part {
		return w.starts.get(w.of(what+" "+string(inc)), func() *change { return &change{to: w.parts.of(core())} }).to
	}
	w.shards = plus(w.shards, shard{name: name, inc: inc,
		home: born("home", func() any {
			cfg := home.Config{Self: inc, Strict: true, ConditionBudget: -1, StatusBudget: -1, ExplainBudget: -1}
			if w.cfg.Statuses {
				cfg.StatusBudget = 0 // the default
			}
			return home.New(cfg)
		}),
		node: born("node", func() any { return node.New(node.Config{Self: inc, Strict: true}) })})
	slices.SortFunc(w.shards, func(a, b shard) int { return strings.Compare(a.name, b.name) })
	x := w.shard(inc)
	w.step(x, itemOf(event.LogRead{Revision: math.MaxInt64})) // the order of the log is explored by package order
	w.step(x, itemOf(event.NamespaceSeen{Name: "ns"}))
	for i := range w.objects {
		if o := w.objects[i].now(); o.Object != nil && w.objects[i].kind != kindPod {
			w.step(x, w.seen.get(o.Object, func() item { return itemOf(seen(model.Entry{Type: watch.Added, Object: o})) }))
		}
	}
	x.created = w.make(inc, keys.Shard(inc), &wire.ShardRecord{Incarnation: string(inc), Name: name, Address: string(inc)})
	x.store = plus(x.store, w.leader())
	if t := w.tableSeen(); t.value != nil {
		x.store = plus(x.store, t)
	}
}

// startCoordinator begins a term: what it reads, it reads at once.
func (w *world) startCoordinator() {
	w.started++
	c := &coord{inc: api.Incarnation(fmt.Sprintf("c-%d", w.started))}
	if w.etcd().Keys[keys.Leader()] != nil {
		w.txn(w.of("no leader"), []protocol.Op{{Kind: protocol.Delete, Key: keys.Leader()}})
	}
	c.term = w.make(c.inc, keys.Leader(), &wire.LeaderRecord{Incarnation: string(c.inc), Name: "c", Address: string(c.inc)})
	load := protocol.NewTerm(keys, c.term).Load()
	w.drive(&call{from: c.inc, sum: mix(w.of("load"), uint64(c.term))}, load)
	e := effect.Elected(&load.State)
	e.Now, e.Term, e.Incarnation = w.now, c.term, c.inc
	born := w.starts.get(mix(w.store.sum, w.told(c.inc), at(w.now)), func() *change {
		core := coordinator.New(coordinator.Config{FirstTable: 2 * time.Second, Ungated: w.cfg.Ungated}, e)
		var out change
		for _, o := range ordered(core.Outputs()) {
			out.out = append(out.out, itemOf(o))
		}
		out.to = w.parts.of(core)
		return &out
	})
	c.core = born.to
	w.coord = c
	w.outputs(born.out)
	for i := range w.objects {
		if q, is := w.objects[i].now().Object.(*v1beta1.Queue); is {
			w.stepCoord(itemOf(effect.QueueSeen(q)))
		}
	}
	w.stepCoord(itemOf(coordinator.QueuesSynced{}))
	for _, r := range e.Shards {
		if w.shard(api.Incarnation(r.Incarnation)) != nil {
			w.stepCoord(itemOf(coordinator.ShardLinked{Incarnation: api.Incarnation(r.Incarnation)}))
		}
	}
}

// crash ends a process. What it had sent goes on; what was sent to it is lost.
func (w *world) crash(name string) {
	if name == "c" {
		inc := w.coord.inc
		w.coord = nil
		w.orphan(inc)
	} else {
		i := slices.IndexFunc(w.shards, func(x shard) bool { return x.name == name })
		inc := w.shards[i].inc
		w.shards = slices.Delete(w.shards, i, i+1)
		w.leases = plus(w.leases, inc)
		w.orphan(inc)
	}
	w.down = plus(w.down, name)
}

func (w *world) orphan(inc api.Incarnation) {
	w.links = slices.DeleteFunc(w.links, func(l link) bool { return l.to == inc })
	calls := w.calls
	w.calls = nil
	for _, c := range calls {
		if c.from == inc {
			if c.answer.value != nil || reads(c) {
				continue
			}
			c = c.orphaned()
		}
		w.calls = append(w.calls, c)
	}
	w.sortCalls()
}

func (c *call) orphaned() *call {
	o := *c
	o.from = ""
	return &o
}

// sortCalls puts calls into an order that does not tell in which they were asked for: servers do not know it either.
func (w *world) sortCalls() {
	slices.SortStableFunc(w.calls, func(a, b *call) int {
		if d := cmp.Or(strings.Compare(string(a.from), string(b.from)), strings.Compare(string(a.who), string(b.who))); d != 0 {
			return d
		}
		if a.txn != nil && b.txn != nil {
			return cmp.Compare(a.txn.ID, b.txn.ID)
		}
		return cmp.Compare(a.sum, b.sum)
	})
}

func reads(c *call) bool {
	switch c.output.(type) {
	case event.ReadStore, event.ListPods:
		return true
	}
	return false
}

// ---- the servers

// put writes a key of the control store.
func (w *world) put(key string, m proto.Message) {
	w.txn(mix(w.of("put "+key), sumOf(m)), []protocol.Op{{Kind: protocol.Put, Key: key, Value: protocol.Value{Message: m}}})
}

// make creates a process's own key of the control store, and returns its CreateRevision.
func (w *world) make(who api.Incarnation, key string, m proto.Message) int64 {
	value, err := protocol.Encode(key, m)
	if err != nil {
		fail("%v", err)
	}
	c := protocol.NewCreate(key, value, 0)
	if w.drive(&call{from: who, sum: mix(w.of("put "+key), sumOf(m))}, c); c.Revision == 0 {
		fail("key %q is there already", key)
	}
	return c.Revision
}

// keep carries a transaction out, and returns what it changed.
func (w *world) keep(sum uint64, then []protocol.Op) []model.Event[proto.Message] {
	c := w.parts.tell(w.store, sum, func(value any) []any {
		store := value.(*model.Store[proto.Message])
		before := store.Revision()
		if _, err := model.Carry(store, protocol.Txn{Then: then}); err != nil {
			fail("transaction: %v", err)
		}
		events, err := store.Watch("\x00", "\x00", before+1)
		if err != nil {
			fail("watch: %v", err)
		}
		_ = store.Compact(store.Revision()) // its past is no state
		return []any{events}
	})
	w.store = c.to
	return c.out[0].value.([]model.Event[proto.Message])
}

// txn writes what is no intents, and spreads what it changed. The sum stands for what it is.
func (w *world) txn(sum uint64, then []protocol.Op) {
	events := w.keep(sum, then)
	for _, e := range events {
		switch {
		case e.Key == keys.Table():
			for i := range w.shards {
				w.shards[i].store = plus(w.shards[i].store, w.tableSeen())
			}
		case e.Key == keys.Leader():
			for i := range w.shards {
				w.shards[i].store = plus(w.shards[i].store, w.leader())
			}
		case strings.HasPrefix(e.Key, "shards/") && w.coord != nil:
			c := *w.coord
			if e.Deleted {
				c.store = plus(c.store, itemOf(coordinator.ShardDown{Incarnation: api.Incarnation(strings.TrimPrefix(e.Key, "shards/"))}))
			} else {
				r := e.Value.(*wire.ShardRecord)
				c.store = plus(c.store, itemOf(coordinator.ShardUp{Record: r}), itemOf(coordinator.ShardLinked{Incarnation: api.Incarnation(r.Incarnation)}))
			}
			w.coord = &c
		case strings.HasPrefix(e.Key, "reservations/"):
			w.check.reservations(w, e)
		}
	}
	w.check.claims(events) // what a transaction says of claims is in the store after it
}

// Kinds of objects.
const (
	kindPod      = "pod"
	kindNode     = "node"
	kindPodGroup = "podgroup"
	kindQueue    = "queue"
)

func kindOf(a *model.API, kind string) *model.Kind {
	switch kind {
	case kindPod:
		return a.Pods
	case kindNode:
		return a.Nodes
	case kindPodGroup:
		return a.PodGroups
	}
	return a.Queues
}

// now is the newest version, without an Object when there is none.
func (o *object) now() model.Object {
	for _, v := range kindOf(o.at.value.(*model.API), o.kind).Objects {
		return v
	}
	return model.Object{}
}

func (o *object) pod() *corev1.Pod {
	p, _ := o.now().Object.(*corev1.Pod)
	return p
}

// object is nil when there never was one.
func (w *world) object(kind, namespace, name string) *object {
	for i := range w.objects {
		if o := &w.objects[i]; o.name == name && o.kind == kind && o.namespace == namespace {
			return o
		}
	}
	return nil
}

func (w *world) pod(namespace, name string) *corev1.Pod {
	if o := w.object(kindPod, namespace, name); o != nil {
		return o.pod()
	}
	return nil
}

func (w *world) create(kind string, o metav1.Object) {
	x := w.object(kind, o.GetNamespace(), o.GetName())
	if x == nil {
		clock := func() time.Time { return epoch }
		w.objects = plus(w.objects, object{kind, o.GetNamespace(), o.GetName(), w.parts.of(model.NewAPI(clock))})
		slices.SortFunc(w.objects, func(a, b object) int {
			return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
		})
		x = w.object(kind, o.GetNamespace(), o.GetName())
	}
	w.serve(x, w.of("create "+kind+" "+model.NameOf(o)), false, func(a *model.API) any {
		if err := a.Create(kindOf(a, kind), o); err != nil {
			fail("create: %v", err)
		}
		return nil
	})
}

// shown is a change of an object, as shards hear of it.
type shown struct {
	event event.Event
	queue *v1beta1.Queue // of a Queue
	gone  bool
}

// serve asks the API server something about an object, and spreads what it changed, unless that is of no interest.
func (w *world) serve(o *object, sum uint64, quiet bool, do func(a *model.API) any) any {
	kind := o.kind
	c := w.parts.tell(o.at, sum, func(value any) []any {
		a := value.(*model.API)
		out := []any{do(a)}
		k := kindOf(a, kind)
		for _, e := range k.Log {
			if !quiet {
				q, _ := e.Object.Object.(*v1beta1.Queue)
				out = append(out, shown{seen(e), q, e.Type == watch.Deleted})
			}
		}
		a.Forget(k)
		return out
	})
	o.at = c.to
	for _, s := range c.out[1:] {
		sh := s.value.(shown)
		ev := item{sh.event, s.sum}
		for i := range w.shards {
			if x := &w.shards[i]; kind != kindPod {
				w.step(x, ev)
			} else if x.follows {
				x.pods = plus(x.pods, ev)
			}
		}
		if sh.queue != nil && w.coord != nil {
			if sh.gone {
				w.stepCoord(itemOf(coordinator.QueueGone{Name: sh.queue.Name, UID: string(sh.queue.UID)}))
			} else {
				w.stepCoord(itemOf(effect.QueueSeen(sh.queue)))
			}
		}
		if kind == kindPod {
			w.check.pods(w)
		}
	}
	return c.out[0].value
}

func seen(e model.Entry) event.Event {
	gone := e.Type == watch.Deleted
	switch o := e.Object.Object.(type) {
	case *corev1.Node:
		return event.NodeSeen{Node: api.FromNode(o, nil)}
	case *v1beta1.Queue:
		if gone {
			return event.QueueGone{Name: o.Name, UID: string(o.UID)}
		}
		return event.QueueSeen{Queue: o}
	case *v1beta1.PodGroup:
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

// ---- what processes do

func (w *world) stepCoord(ev item) {
	c := *w.coord
	now := w.now
	done := w.parts.tell(c.core, mix(ev.sum, at(now)), func(value any) []any {
		core := value.(*coordinator.Core)
		core.Step(now, ev.value.(coordinator.Event))
		return ordered(core.Outputs())
	})
	c.core = done.to
	w.coord = &c
	w.outputs(done.out)
}

// ordered is what a coordinator wants done, without what it tells operators.
func ordered(outputs []coordinator.Output) []any {
	var out []any
	for _, o := range outputs {
		if _, is := o.(coordinator.Remark); is {
			if l, is := o.(coordinator.Log); !is || l.Level < coordinator.LevelError {
				continue
			}
		}
		out = append(out, o)
	}
	return out
}

func (w *world) outputs(out []item) {
	c := w.coord
	for _, i := range out {
		switch o := i.value.(type) {
		case coordinator.Send:
			w.send(c.inc, o.To, item{o.Body, i.sum})
		case coordinator.Txn:
			w.calls = plus(w.calls, &call{from: c.inc, who: c.inc, sum: mix(i.sum, w.told(c.inc)), txn: &o, term: c.term})
			w.sortCalls()
		case coordinator.SetFinalizer:
			w.finalizer(o.Queue, []string{v1beta1.FinalizerCharged})
		case coordinator.RemoveFinalizer:
			w.finalizer(o.Queue, nil)
		case coordinator.CreateQueue:
			if q := w.object(kindQueue, "", o.Name); q == nil || q.now().Object == nil {
				w.create(kindQueue, &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: o.Name}})
			}
		case coordinator.Log:
			fail("%s logs an error: %s %v", c.inc, o.Message, o.Args)
		}
	}
}

func (w *world) finalizer(queue string, list []string) {
	o := w.object(kindQueue, "", queue)
	if o == nil || o.now().Object == nil {
		return
	}
	w.serve(o, mix(w.of("finalizers"), sumOf(list)), false, func(a *model.API) any {
		a.EditQueue(a.Queue(queue), func(q *v1beta1.Queue) { q.Finalizers = list })
		return nil
	})
}

// step gives a shard an event and what its cores say to each other.
func (w *world) step(x *shard, ev item) {
	now := w.now
	local := []item{ev}
	for len(local) > 0 {
		ev := local[0]
		local = local[1:]
		sum := mix(ev.sum, at(now))
		c := w.parts.tell(x.home, sum, func(value any) []any {
			core := value.(*home.Core)
			core.Step(now, ev.value.(event.Event))
			if err := core.Check(); err != nil {
				fail("%s: %v", x.inc, err)
			}
			return said(core.Outputs())
		})
		x.home = c.to
		for _, o := range c.out {
			local = append(local, w.carryOut(x, o)...)
		}
		c = w.parts.tell(x.node, sum, func(value any) []any {
			core := value.(*node.Core)
			core.Step(now, ev.value.(event.Event))
			if err := core.Check(); err != nil {
				fail("%s: %v", x.inc, err)
			}
			return said(core.Outputs())
		})
		x.node = c.to
		for _, o := range c.out {
			local = append(local, w.carryOut(x, o)...)
		}
	}
}

// said is the same of a shard.
func said(outputs []event.Output) []any {
	var out []any
	for _, o := range outputs {
		if _, is := o.(event.Remark); is {
			if l, is := o.(event.Log); !is || l.Level < slog.LevelError {
				continue
			}
		}
		out = append(out, o)
	}
	return out
}

// carryOut returns what the shard is told of it at once.
func (w *world) carryOut(x *shard, i item) []item {
	written := func(o *object, id uint64, write func(a *model.API) error) []item {
		return []item{itemOf(w.serve(o, i.sum, true, func(a *model.API) any {
			ev := event.StatusWritten{ID: id, Outcome: event.StatusOK}
			if err := write(a); apierrors.IsNotFound(err) {
				ev.Outcome = event.StatusGone
			} else if err != nil {
				ev.Outcome, ev.Error = event.StatusConflict, err.Error()
			}
			return ev
		}))}
	}
	switch o := i.value.(type) {
	case event.Send:
		w.check.says(w, x, o)
		if o.To == x.inc {
			return []item{{event.Message{From: x.inc, Body: o.Body}, mix(i.sum, w.told(x.inc))}}
		}
		w.send(x.inc, o.To, item{o.Body, i.sum})
	case event.ListPods:
		x.listing = o.Sequence
		w.ask(x, i)
	case event.ReadStore, event.WriteIntents, event.DeleteIntents, event.RewriteIntents, event.BindPod, event.ResolveBinding, event.EvictPod:
		w.ask(x, i)
	case event.WriteQueueStatus:
		return written(w.object(kindQueue, "", o.Queue), o.ID, func(a *model.API) error { return a.ReplaceQueueStatus(o.Queue, o.UID, o.Status) })
	case event.WritePodGroupStatus:
		return written(w.object(kindPodGroup, o.Namespace, o.Name), o.ID, func(a *model.API) error { return a.ReplacePodGroupStatus(o.Namespace, o.Name, o.UID, o.Status) })
	case event.WritePodCondition:
		fail("a pod is to be told why it waits, for which there is no budget")
	case event.Log:
		fail("%s logs an error: %s %v", x.inc, o.Message, o.Attrs)
	case event.Write: // nobody looks at what it writes
		return []item{itemOf(event.StatusWritten{ID: o.WriteID(), Outcome: event.StatusOK})}
	}
	return nil
}

func (w *world) ask(x *shard, i item) {
	w.calls = plus(w.calls, &call{from: x.inc, who: x.inc, sum: mix(i.sum, w.told(x.inc)), output: i.value.(event.Output), fence: x.created})
	w.sortCalls()
}

func (w *world) send(from, to api.Incarnation, body item) {
	if to == event.ToCoordinator {
		if w.coord == nil {
			return
		}
		to = w.coord.inc
	} else if w.shard(to) == nil {
		return
	}
	if m := body.value.(*wire.Envelope); m.GetSummary() != nil || m.GetQueueUsages() != nil || m.GetSupply() != nil {
		w.instant = plus(w.instant, link{from, to, []item{body}})
		return
	}
	for i := range w.links {
		if l := &w.links[i]; l.from == from && l.to == to {
			l.queue = plus(l.queue, body)
			return
		}
	}
	w.links = plus(w.links, link{from: from, to: to, queue: []item{body}})
	slices.SortFunc(w.links, func(a, b link) int {
		return cmp.Or(strings.Compare(string(a.from), string(b.from)), strings.Compare(string(a.to), string(b.to)))
	})
}

// drop takes the first message off a link.
func (w *world) drop(i int) link {
	l := w.links[i]
	if len(l.queue) == 1 {
		w.links = slices.Delete(w.links, i, i+1)
	} else {
		w.links[i].queue = l.queue[1:]
	}
	return l
}

// deliver hands the first message of a link over.
func (w *world) deliver(l link) {
	m := l.queue[0]
	if w.coord != nil && l.to == w.coord.inc {
		w.stepCoord(item{coordinator.Message{From: l.from, Body: m.value.(*wire.Envelope)}, mix(m.sum, w.told(l.from))})
	} else if x := w.shard(l.to); x != nil {
		from := l.from
		if strings.HasPrefix(string(from), "c-") {
			from = event.ToCoordinator
		}
		w.step(x, item{event.Message{From: from, Body: m.value.(*wire.Envelope)}, mix(m.sum, w.told(from))})
	}
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
	x.pods = x.pods[1:]
	if fault.On(fault.PodsFromCache) {
		x.shows(ev)
	}
	w.step(x, ev)
}

// shows keeps what is heard of pods.
func (x *shard) shows(i item) {
	without := func(uid string) {
		x.shown = slices.DeleteFunc(slices.Clone(x.shown), func(o item) bool { return o.value.(event.PodSeen).Pod.UID == uid })
	}
	switch ev := i.value.(type) {
	case event.PodsReplaced:
		x.shown = nil
		for _, p := range ev.Pods {
			x.shown = append(x.shown, itemOf(event.PodSeen{Pod: p}))
		}
	case event.PodGone:
		without(ev.UID)
	case event.PodSeen:
		without(ev.Pod.UID)
		x.shown = append(x.shown, i)
	}
	slices.SortFunc(x.shown, func(a, b item) int {
		return strings.Compare(a.value.(event.PodSeen).Pod.UID, b.value.(event.PodSeen).Pod.UID)
	})
}

func (w *world) hearStore(x *shard) {
	ev := x.store[0]
	x.store = x.store[1:]
	w.step(x, ev)
}

var (
	tick      = itemOf(event.Tick{})
	coordTick = itemOf(coordinator.Tick{})
)

// pass lets time pass.
func (w *world) pass(d time.Duration) {
	w.now = w.now.Add(d)
	for i := range w.shards {
		w.step(&w.shards[i], tick)
	}
	if w.coord != nil {
		w.stepCoord(coordTick)
	}
}
