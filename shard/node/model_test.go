package node

import (
	"fmt"
	"maps"
	"math/rand"
	"slices"
	"strconv"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
	"basalt.dev/basalt/shard/event"
)

// TestAgainstModel runs several cores against a small model of the API server and of the control store, with messages
// that are lost, repeated and late, answers that are lost, Bindings that land long after their caller gave up, watches
// that lag, tables that move and shards that are replaced while they go on. A home shard asks for anything at any time.
// Whatever happens: each Binding that lands had its intent before (I4), and nodes that only Basalt uses never hold more
// than they have, intents included (I5). When the faults end, everything gets resolved.
// It takes half a minute on a busy machine: 24 worlds of 40,000 steps.
func TestAgainstModel(t *testing.T) {
	seeds, steps := 24, 40000
	if testing.Short() {
		seeds = 6
	}
	for seed := range int64(seeds) {
		t.Run(strconv.FormatInt(seed, 10), func(t *testing.T) {
			w := newWorld(t, seed)
			for w.step = range steps {
				w.chaos()
			}
			w.calm()
			t.Logf("%d Bindings landed, %d refused, %d tables, %d promises told, %d nodes probed", w.landed, w.refusedBindings, w.tables, w.promised, w.probed)
			if w.landed < 20 || w.tables < 5 || w.refusedBindings == 0 || w.promised == 0 || w.probed == 0 {
				t.Errorf("too little happened: %d Bindings landed, %d refused, %d tables", w.landed, w.refusedBindings, w.tables)
			}
		})
	}
}

// TestSameEventsSameOutputs runs one seed twice.
func TestSameEventsSameOutputs(t *testing.T) {
	run := func() []string {
		w := newWorld(t, 7)
		w.keepOutputs = true
		for w.step = range 1500 {
			w.chaos()
		}
		return w.outputs
	}
	first, second := run(), run()
	for i := range first {
		if i >= len(second) || first[i] != second[i] {
			t.Fatalf("output %d of %d differs:\n%s\n%s", i, len(first), first[i], second[min(i, len(second)-1)])
		}
	}
}

type modelPod struct {
	uid      string
	rv       int64
	node     string
	finished bool
	gone     bool
	cpu      int64
	foreign  bool
	gang     string // for which it was bound
	deleting bool
}

func (p *modelPod) class() *api.Class {
	return api.NewClass(api.FromMap(map[string]int64{"cpu": p.cpu, "pods": 1}), nil)
}

func (p *modelPod) seen() *api.Pod {
	return &api.Pod{UID: p.uid, Started: p.node != "", ResourceVersion: strconv.FormatInt(p.rv, 10), Namespace: "ns", Name: p.uid, Node: p.node, Finished: p.finished, Deleting: p.deleting, Gang: p.gang, Class: p.class()}
}

type modelShard struct {
	inc     api.Incarnation
	core    *Core
	cursor  int           // into the pod events
	lists   []event.Event // PodsReplaced that are not delivered
	results []event.Event // in any order
	tables  int           // of the tables delivered
}

type modelMessage struct {
	from, to api.Incarnation
	body     *wire.Envelope
}

type modelGang struct {
	ref    *wire.GangRef
	pods   []string
	serial uint64
	rev    int64             // of the reservation, 0 for none
	held   map[string]place  // what it believes to hold
	asked  map[uint64]string // commits, by serial: the shard
}

// place is a shard and its node.
type place struct {
	shard api.Incarnation
	node  string
}

type stored struct {
	rev    int64
	record *wire.IntentsRecord
}

type world struct {
	t        *testing.T
	rng      *rand.Rand
	step     int
	now      time.Time
	revision int64
	history  []*api.Table
	intents  map[keyID]stored
	ever     map[string]bool // uid/rv/node of every row that was ever durable
	pods     map[string]*modelPod
	log      []event.Event
	nodes    map[string]*api.Node
	shards   []*modelShard // also those that were replaced and go on
	net      []modelMessage
	late     []event.BindPod // Bindings whose caller gave up
	gangs    []*modelGang
	made     int
	quiet    bool

	landed, refusedBindings, tables int
	promised, probed                int
	keepOutputs                     bool
	outputs                         []string
}

const home = api.Incarnation("home")

func newWorld(t *testing.T, seed int64) *world {
	w := &world{t: t, rng: rand.New(rand.NewSource(seed)), now: epoch0, intents: map[keyID]stored{}, ever: map[string]bool{}, pods: map[string]*modelPod{}, nodes: map[string]*api.Node{}}
	for i := range 6 {
		w.setNode(fmt.Sprintf("strict-%d", i), 4)
	}
	for i := range 2 {
		w.setNode(fmt.Sprintf("loose-%d", i), 4)
	}
	w.move([]api.Incarnation{w.newShard(), w.newShard(), w.newShard()})
	for range 24 {
		w.newGang()
	}
	return w
}

func (w *world) newShard() api.Incarnation {
	w.made++
	s := &modelShard{inc: api.Incarnation(fmt.Sprintf("s%d", w.made))}
	s.core = logged(New(Config{Self: s.inc, Strict: true, Policy: cache.Policy(w.rng.Intn(2)), MaxRows: 3, MaxFences: 2, MaxDeletes: 2, MaxRewrites: 2, MaxResolving: 3, Tracing: true}))
	for _, name := range api.SortedKeys(w.nodes) {
		s.core.Step(w.now, event.NodeSeen{Node: w.nodes[name]})
	}
	w.shards = append(w.shards, s)
	w.relist(s, 0)
	return s.inc
}

func (w *world) newPod(foreign bool) *modelPod {
	w.made++
	w.revision++
	p := &modelPod{uid: fmt.Sprintf("p%d", w.made), rv: w.revision, cpu: 1 + w.rng.Int63n(3), foreign: foreign}
	w.pods[p.uid] = p
	w.log = append(w.log, event.PodSeen{Pod: p.seen()})
	return p
}

func (w *world) newGang() {
	w.made++
	g := &modelGang{ref: &wire.GangRef{Uid: fmt.Sprintf("g%d", w.made), Queue: fmt.Sprintf("q%d", w.rng.Intn(3))}, held: map[string]place{}, asked: map[uint64]string{}}
	for range 1 + w.rng.Intn(4) {
		g.pods = append(g.pods, w.newPod(false).uid)
	}
	w.revision++
	g.rev = w.revision
	w.gangs = append(w.gangs, g)
}

func (w *world) changed(p *modelPod) {
	w.revision++
	p.rv = w.revision
	w.log = append(w.log, event.PodSeen{Pod: p.seen()})
}

func (w *world) setNode(name string, cpu int64) {
	n := &api.Node{Name: name, UID: "uid", Allocatable: api.FromMap(map[string]int64{"cpu": cpu, "pods": 10})}
	w.nodes[name] = n
	for _, s := range w.shards {
		w.give(s, event.NodeSeen{Node: n})
	}
}

// move writes a new table over these shards: the home shard keeps the queues, nodes go to anybody.
func (w *world) move(members []api.Incarnation) {
	w.revision++
	w.tables++
	t := &api.Table{Epoch: api.Epoch(len(w.history) + 1), Revision: w.revision, Members: []api.Member{{Incarnation: home, Name: "home"}}}
	for _, m := range members {
		t.Members = append(t.Members, api.Member{Incarnation: m, Name: string(m)})
	}
	var old *api.Table
	if len(w.history) > 0 {
		old = w.history[len(w.history)-1]
	}
	for name := range 8 {
		node := fmt.Sprintf("strict-%d", name)
		if name >= 6 {
			node = fmt.Sprintf("loose-%d", name-6)
		}
		b := api.BucketOf(node)
		owner := 1 + w.rng.Intn(len(members))
		if stays := slices.Index(members, old.Owner(b)); stays >= 0 && w.rng.Intn(3) > 0 {
			owner = 1 + stays
		}
		t.Owners[b] = uint16(owner)
	}
	for b := range api.BucketID(api.Buckets) {
		t.Changed[b] = t.Epoch
		if old != nil && old.Owner(b) == t.Owner(b) {
			t.Changed[b] = old.Changed[b]
		}
	}
	w.history = append(w.history, t)
}

func (w *world) current() *api.Table { return w.history[len(w.history)-1] }

func (w *world) members() []api.Incarnation {
	var out []api.Incarnation
	for _, m := range w.current().Members[1:] {
		out = append(out, m.Incarnation)
	}
	return out
}

func (w *world) shard(inc api.Incarnation) *modelShard {
	for _, s := range w.shards {
		if s.inc == inc {
			return s
		}
	}
	return nil
}

// give steps a core and carries its outputs out: some at once, some later.
func (w *world) give(s *modelShard, ev event.Event) {
	s.core.Step(w.now, ev)
	s.core.Step(w.now, ev)
	for _, o := range s.core.Outputs() {
		if w.keepOutputs {
			w.outputs = append(w.outputs, fmt.Sprintf("%s %s", s.inc, printOutput(o)))
		}
		switch o := o.(type) {
		case event.Send:
			w.send(s.inc, o.To, o.Body)
		case event.ReadStore:
			w.readStore(s, o)
		case event.ListPods:
			w.relist(s, o.Sequence)
		case event.WriteIntents:
			s.results = append(s.results, w.writeIntents(s, o))
		case event.BindPod:
			switch n := w.rng.Intn(6); {
			case n == 0 && !w.quiet: // the caller gives up, the request does not
				s.results = append(s.results, event.BindDone{Row: o.Row, Outcome: event.BindUnknown})
				w.late = append(w.late, o)
			case n == 1 && !w.quiet:
				w.bind(o)
				s.results = append(s.results, event.BindDone{Row: o.Row, Outcome: event.BindUnknown})
			default:
				s.results = append(s.results, event.BindDone{Row: o.Row, Outcome: w.bind(o)})
			}
		case event.ResolveBinding:
			s.results = append(s.results, w.resolve(o))
		case event.DeleteIntents:
			s.results = append(s.results, w.deleteIntents(s, o))
		case event.RewriteIntents:
			s.results = append(s.results, w.rewriteIntents(s, o))
		}
	}
}

func (w *world) send(from, to api.Incarnation, body *wire.Envelope) {
	if body.GetSummary() != nil {
		return
	}
	n := 1
	if !w.quiet {
		switch w.rng.Intn(12) {
		case 0:
			n = 0
		case 1:
			n = 2
		}
	}
	for range n {
		w.net = append(w.net, modelMessage{from, to, body})
	}
}

func (w *world) readStore(s *modelShard, o event.ReadStore) {
	ev := event.StoreRead{Sequence: o.Sequence, Revision: w.revision}
	for _, id := range w.keys() {
		ev.Intents = append(ev.Intents, event.StoredIntents{Incarnation: id.inc, N: id.n, ModRevision: w.intents[id].rev, Record: w.intents[id].record})
	}
	s.results = append(s.results, ev)
}

func (w *world) keys() []keyID {
	var ids []keyID
	for id := range w.intents {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, keyID.compare)
	return ids
}

// relist ends the shard's watch, lists, and watches from there.
func (w *world) relist(s *modelShard, sequence uint64) {
	ev := event.PodsReplaced{Sequence: sequence}
	for _, uid := range api.SortedKeys(w.pods) {
		if p := w.pods[uid]; !p.gone {
			ev.Pods = append(ev.Pods, p.seen())
		}
	}
	s.lists = append(s.lists, ev)
	s.cursor = len(w.log)
}

func (w *world) writeIntents(s *modelShard, o event.WriteIntents) event.Event {
	id := keyID{s.inc, o.N}
	if _, exists := w.intents[id]; exists {
		w.t.Fatalf("step %d: key %v is written twice", w.step, id)
	}
	if o.TableRevision != w.current().Revision {
		return event.IntentsWritten{N: o.N, Outcome: event.TableMoved}
	}
	var moved []string
	for _, f := range o.Reservations {
		g := w.gang(f.GangUID)
		if g.rev != f.Revision {
			moved = append(moved, f.GangUID)
		}
	}
	if len(moved) > 0 {
		return event.IntentsWritten{N: o.N, Outcome: event.ReservationMoved, Moved: moved}
	}
	w.revision++
	w.intents[id] = stored{w.revision, o.Record}
	for _, r := range o.Record.Rows {
		if owner := w.current().OwnerOf(r.Node); owner != s.inc {
			w.t.Fatalf("step %d: %s writes an intent for node %s of %s", w.step, s.inc, r.Node, owner)
		}
		w.ever[r.PodUid+"/"+r.PodResourceVersion+"/"+r.Node] = true
	}
	w.checkNodes()
	return event.IntentsWritten{N: o.N, Outcome: event.Written, ModRevision: w.revision}
}

func (w *world) bind(o event.BindPod) event.BindOutcome {
	p := w.pods[o.Row.PodUID]
	switch {
	case p == nil || p.gone:
		return event.BindNotFound
	case p.node != "" || strconv.FormatInt(p.rv, 10) != o.ResourceVersion:
		w.refusedBindings++
		return event.BindConflict
	}
	if !w.ever[p.uid+"/"+o.ResourceVersion+"/"+o.Node] {
		w.t.Fatalf("step %d: pod %s is bound to %s without an intent (I4)", w.step, p.uid, o.Node)
	}
	w.landed++
	p.node, p.gang = o.Node, o.Gang
	w.changed(p)
	w.checkNodes()
	return event.BindOK
}

func (w *world) resolve(o event.ResolveBinding) event.Event {
	done := event.ResolveDone{Row: o.Row}
	lostAnswer := !w.quiet && w.rng.Intn(5) == 0
	if lostAnswer && w.rng.Intn(2) == 0 {
		done.Outcome = event.ResolveRetry
		return done
	}
	switch p := w.pods[o.Row.PodUID]; {
	case p == nil || p.gone:
		done.Outcome = event.ResolvedGone
	default:
		if p.node == "" && strconv.FormatInt(p.rv, 10) == o.ResourceVersion {
			w.changed(p)
		}
		done.Outcome, done.Version = event.ResolvedFree, fmt.Sprint(p.rv)
		if p.node != "" {
			done = event.ResolveDone{Row: o.Row, Outcome: event.ResolvedBound, Node: p.node}
		}
	}
	if lostAnswer {
		return event.ResolveDone{Row: o.Row, Outcome: event.ResolveRetry}
	}
	return done
}

func (w *world) deleteIntents(s *modelShard, o event.DeleteIntents) event.Event {
	all := true
	for _, k := range o.Keys {
		all = all && w.intents[keyID{s.inc, k.N}].rev == k.ModRevision
	}
	var ev event.IntentsDeleted
	for _, k := range o.Keys {
		if all {
			w.removed(s, keyID{s.inc, k.N}, nil)
			delete(w.intents, keyID{s.inc, k.N})
		}
		ev.Keys = append(ev.Keys, event.IntentKey{N: k.N, ModRevision: w.intents[keyID{s.inc, k.N}].rev})
	}
	w.revision++
	return ev
}

func (w *world) rewriteIntents(s *modelShard, o event.RewriteIntents) event.Event {
	id := keyID{o.Incarnation, o.N}
	now := w.intents[id]
	done := now.rev == o.ModRevision && now.rev != 0 && w.current().Revision == o.TableRevision
	if done {
		w.removed(s, id, o.Record)
		w.revision++
		now = stored{w.revision, o.Record}
		if o.Record == nil {
			delete(w.intents, id)
			now = stored{}
		} else {
			w.intents[id] = now
		}
	}
	return event.IntentsRewritten{Incarnation: o.Incarnation, N: o.N, Done: done, ModRevision: now.rev, Record: now.record}
}

// removed checks what a shard takes out of a key: only its own rows and rows of its own nodes, and none that can still land.
func (w *world) removed(s *modelShard, id keyID, left *wire.IntentsRecord) {
	for _, r := range w.intents[id].record.Rows {
		if slices.ContainsFunc(left.GetRows(), func(l *wire.IntentRow) bool { return l.PodUid == r.PodUid }) {
			continue
		}
		if owner := w.current().OwnerOf(r.Node); id.inc != s.inc && owner != s.inc {
			w.t.Fatalf("step %d: %s takes the row of pod %s on %s, a node of %s, out of %v", w.step, s.inc, r.PodUid, r.Node, owner, id)
		}
		p := w.pods[r.PodUid]
		for _, late := range w.late {
			if late.Row == (event.RowID{Incarnation: id.inc, N: id.n, PodUID: r.PodUid}) && p != nil && !p.gone && p.node == "" && strconv.FormatInt(p.rv, 10) == late.ResourceVersion {
				w.t.Fatalf("step %d: %s takes the row of pod %s on %s out of %v, and its Binding can still land", w.step, s.inc, r.PodUid, r.Node, id)
			}
		}
	}
}

func (w *world) gang(uid string) *modelGang {
	for _, g := range w.gangs {
		if g.ref.Uid == uid {
			return g
		}
	}
	return &modelGang{}
}

// checkNodes is I5, judged from the API server and the control store alone.
func (w *world) checkNodes() {
	used := map[string]int64{}
	for _, p := range w.pods {
		if p.node != "" && !p.finished && !p.gone {
			used[p.node] += p.cpu
		}
	}
	counted := map[string]bool{}
	for _, in := range w.intents {
		for _, r := range in.record.GetRows() {
			p := w.pods[r.PodUid]
			if p == nil || p.gone || p.node != "" || strconv.FormatInt(p.rv, 10) != r.PodResourceVersion || counted[r.PodUid+"/"+r.Node] {
				continue // can land no more
			}
			counted[r.PodUid+"/"+r.Node] = true
			used[r.Node] += p.cpu
		}
	}
	for i := range 6 {
		if node := fmt.Sprintf("strict-%d", i); used[node] > 4 {
			w.t.Fatalf("step %d: node %s has 4 and %d is taken (I5)", w.step, node, used[node])
		}
	}
}

func (w *world) chaos() {
	w.now = w.now.Add(time.Duration(w.rng.Intn(20)) * time.Millisecond)
	s := w.shards[w.rng.Intn(len(w.shards))]
	switch n := w.rng.Intn(1000); {
	case n < 400:
		w.deliver()
	case n < 600:
		w.result(s)
	case n < 750:
		for range w.rng.Intn(10) {
			w.podEvent(s)
		}
	case n < 790:
		w.seeTable(s, w.rng.Intn(3) > 0)
	case n < 840:
		w.give(s, event.Tick{})
	case n < 843 && len(w.late) > 0: // a Binding lands whose caller gave up long ago
		i := w.rng.Intn(len(w.late))
		w.bind(w.late[i])
		w.late = slices.Delete(w.late, i, i+1)
	case n < 930:
		w.homeActs(w.gangs[w.rng.Intn(len(w.gangs))])
	case n < 993:
		w.podLives()
	default:
		w.disturb(s)
	}
	if w.step%50 == 0 {
		w.check()
	}
}

func (w *world) check() {
	for _, s := range w.shards {
		if err := s.core.Check(); err != nil {
			w.t.Fatalf("step %d: %s: %v", w.step, s.inc, err)
		}
		for _, name := range s.core.cache.OutOfSync() {
			if view, _ := s.core.cache.Node(name); slices.ContainsFunc(view.Pods, func(p cache.Placement) bool { return p.Kind == cache.Hold }) {
				w.t.Fatalf("step %d: %s: node %s is out of sync, and has holds: %v", w.step, s.inc, name, view)
			}
		}
	}
}

func (w *world) deliver() {
	if len(w.net) == 0 {
		return
	}
	i := w.rng.Intn(min(len(w.net), 4)) // nearly in order
	m := w.net[i]
	w.net = slices.Delete(w.net, i, i+1)
	if m.to == home {
		w.homeHears(m)
	} else if s := w.shard(m.to); s != nil {
		w.give(s, event.Message{From: m.from, Body: m.body})
	}
}

func (w *world) result(s *modelShard) {
	if len(s.results) == 0 {
		return
	}
	i := w.rng.Intn(len(s.results))
	ev := s.results[i]
	if w.quiet || w.rng.Intn(20) > 0 {
		s.results = slices.Delete(s.results, i, i+1) // else it comes again
	}
	w.give(s, ev)
}

func (w *world) podEvent(s *modelShard) bool {
	switch {
	case len(s.lists) > 0:
		ev := s.lists[0]
		s.lists = s.lists[1:]
		w.give(s, ev)
	case s.cursor < len(w.log):
		s.cursor++
		w.give(s, w.log[s.cursor-1])
	default:
		return false
	}
	return true
}

func (w *world) seeTable(s *modelShard, latest bool) {
	if s.tables == len(w.history) {
		return
	}
	s.tables++
	if latest {
		s.tables = len(w.history)
	}
	w.give(s, event.TableSeen{Table: w.history[s.tables-1]})
}

func (w *world) podLives() {
	uids := api.SortedKeys(w.pods)
	p := w.pods[uids[w.rng.Intn(len(uids))]]
	for range 3 { // mostly one that takes room
		if p.node == "" || p.finished {
			p = w.pods[uids[w.rng.Intn(len(uids))]]
		}
	}
	switch n := w.rng.Intn(10); {
	case p.gone:
		delete(w.pods, p.uid)
	case n < 4 && p.node != "":
		p.finished = true
		w.changed(p)
	case n < 6 && (p.node != "" || w.rng.Intn(4) == 0):
		p.gone = true
		w.revision++
		w.log = append(w.log, event.PodGone{UID: p.uid, Namespace: "ns", Name: p.uid})
	case n < 7:
		w.changed(p)
	case n < 8:
		p.deleting = true
		w.changed(p)
	}
	i := w.rng.Intn(len(w.gangs))
	if !slices.ContainsFunc(w.gangs[i].pods, func(uid string) bool { p := w.pods[uid]; return p != nil && !p.gone && p.node == "" }) {
		w.gangs = slices.Delete(w.gangs, i, i+1)
		w.newGang()
	}
}

func (w *world) disturb(s *modelShard) {
	loose := fmt.Sprintf("loose-%d", w.rng.Intn(2))
	switch w.rng.Intn(8) {
	case 0, 1: // somebody else binds there
		p := w.newPod(true)
		p.node = loose
		w.changed(p)
	case 2, 3:
		w.setNode(loose, w.rng.Int63n(8))
	case 4:
		name := fmt.Sprintf("strict-%d", w.rng.Intn(6))
		for _, s := range w.shards {
			w.give(s, event.NodeGone{Name: name})
		}
		w.setNode(name, 4)
	case 5:
		w.relist(s, 0)
	case 6: // a shard is replaced; it does not know yet
		members := w.members()
		i := w.rng.Intn(len(members))
		if w.rng.Intn(2) == 0 { // it died: what it has sent can still land
			w.shards = slices.DeleteFunc(w.shards, func(s *modelShard) bool { return s.inc == members[i] })
		}
		members[i] = w.newShard()
		w.move(members)
		if len(w.shards) > 6 {
			for i, old := range w.shards { // one that was replaced long ago ends
				if !w.current().Has(old.inc) {
					w.shards = slices.Delete(w.shards, i, i+1)
					break
				}
			}
		}
	case 7:
		w.move(w.members())
	}
}

func (w *world) homeActs(g *modelGang) {
	members := w.members()
	to := members[w.rng.Intn(len(members))]
	for _, uid := range g.pods { // mostly where it holds something
		if h, held := g.held[uid]; held && slices.Contains(members, h.shard) && w.rng.Intn(2) == 0 {
			to = h.shard
		}
	}
	g.serial++
	switch w.rng.Intn(12) {
	case 0, 1, 2, 3:
		m := &wire.HoldRequest{Gang: g.ref, Serial: g.serial, Rank: &wire.Rank{Priority: int64(w.rng.Intn(3)), GangUid: g.ref.Uid}, TtlMs: int64(500 + w.rng.Intn(20000))}
		for _, uid := range g.pods {
			if p := w.pods[uid]; p != nil && p.node == "" {
				m.Classes = append(m.Classes, &wire.PodClass{Requests: wire.FromResources(p.class().Requests)})
				m.Pods = append(m.Pods, &wire.PodWant{PodUid: uid, PodClass: uint32(len(m.Classes) - 1)})
			}
		}
		if w.rng.Intn(2) == 0 { // others are to leave for it, most often, or left before
			for range 1 + w.rng.Intn(4) {
				if other := w.gangs[w.rng.Intn(len(w.gangs))]; other != g {
					m.Awaits = append(m.Awaits, other.ref.Uid)
				}
			}
			m.Claimed = w.rng.Intn(2) == 0
		}
		if w.rng.Intn(8) == 0 {
			w.send(home, to, &wire.Envelope{Body: &wire.Envelope_RoomProbe{RoomProbe: &wire.RoomProbe{Namespace: "ns", Classes: m.Classes, Candidates: m.Awaits, GangUid: g.ref.Uid}}})
		}
		w.send(home, to, &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: m}})
	case 4, 5, 6, 7, 8: // also for what is not held, not there, or of another version
		m := &wire.Commit{Gang: g.ref, Serial: g.serial, ReservationRevision: g.rev, TableRevision: w.current().Revision, Bind: w.rng.Intn(2) == 0,
			Trace: &wire.Trace{TraceId: make([]byte, 16), SpanId: make([]byte, 8)}}
		if w.rng.Intn(10) == 0 {
			m.TableRevision = w.history[w.rng.Intn(len(w.history))].Revision
		}
		if w.rng.Intn(10) == 0 {
			m.ReservationRevision++
		}
		for _, uid := range g.pods {
			h, held := g.held[uid]
			p := w.pods[uid]
			if p == nil || held && h.shard != to || (p.node != "" || p.gone) && w.rng.Intn(20) > 0 {
				continue
			}
			if !held {
				if w.rng.Intn(8) > 0 {
					continue
				}
				h.node = fmt.Sprintf("strict-%d", w.rng.Intn(6))
			}
			rv := p.rv
			if w.rng.Intn(10) == 0 {
				rv--
			}
			m.Classes = append(m.Classes, &wire.PodClass{Requests: wire.FromResources(p.class().Requests)})
			m.Pods = append(m.Pods, &wire.PodRef{Uid: uid, ResourceVersion: strconv.FormatInt(rv, 10), Namespace: "ns", Name: uid, Node: h.node, PodClass: uint32(len(m.Classes) - 1)})
		}
		if len(m.Pods) == 0 {
			return
		}
		g.asked[g.serial] = string(to)
		for range 1 + w.rng.Intn(2) {
			w.send(home, to, &wire.Envelope{Body: &wire.Envelope_Commit{Commit: m}})
		}
	case 9, 10: // Bind, whether it was prepared or not
		for serial := range g.serial {
			if to, ok := g.asked[serial]; ok && w.rng.Intn(2) == 0 {
				w.send(home, api.Incarnation(to), &wire.Envelope{Body: &wire.Envelope_Bind{Bind: &wire.Bind{GangUid: g.ref.Uid, Serial: serial}}})
				delete(g.asked, serial)
			}
		}
	case 11:
		w.withdraw(g)
		if w.rng.Intn(2) == 0 { // and the reservation is given back, or written anew
			w.revision++
			g.rev = w.revision
		}
	}
}

func (w *world) withdraw(g *modelGang) {
	keep := !w.quiet && w.rng.Intn(3) == 0
	for _, to := range w.members() {
		w.send(home, to, &wire.Envelope{Body: &wire.Envelope_Withdraw{Withdraw: &wire.Withdraw{Gang: g.ref, Serial: g.serial, TableEpoch: uint64(w.current().Epoch), Keep: keep}}})
	}
}

func (w *world) homeHears(m modelMessage) {
	switch b := m.body.GetBody().(type) {
	case *wire.Envelope_HoldReply:
		g := w.gang(b.HoldReply.GangUid)
		for _, h := range b.HoldReply.Held {
			if g.held != nil {
				g.held[h.PodUid] = place{m.from, h.Node}
			}
		}
		w.promised += len(b.HoldReply.Promised)
	case *wire.Envelope_Rooms:
		for _, n := range b.Rooms.Nodes {
			free, err := wire.ToResources(n.Free)
			for _, l := range n.Leaves {
				amounts, err := wire.ToResources(l.Amounts)
				if err != nil || l.Pods == 0 {
					w.t.Fatalf("step %d: %s says that gang %s leaves %d pods of %v: %v", w.step, m.from, l.GangUid, l.Pods, amounts, err)
				}
				free = free.Add(amounts)
			}
			if err != nil || len(n.Classes) == 0 || w.nodes[n.Node] != nil && !free.Fits(api.FromMap(map[string]int64{"cpu": 8, "pods": 10})) {
				w.t.Fatalf("step %d: %s says that node %s has %v: %v", w.step, m.from, n.Node, free, err)
			}
			w.probed++
		}
	case *wire.Envelope_BindResults:
		for _, r := range b.BindResults.Results {
			p := w.pods[r.PodUid]
			switch {
			case r.Outcome == wire.BindOutcome_BIND_GONE && p != nil && !p.gone:
				w.t.Fatalf("step %d: %s says that pod %s is gone", w.step, m.from, r.PodUid)
			case r.Outcome == wire.BindOutcome_BIND_BOUND && p != nil && p.node != r.Node:
				w.t.Fatalf("step %d: %s says that pod %s is on %s, it is on %q", w.step, m.from, r.PodUid, r.Node, p.node)
			}
		}
	}
}

// calm ends the faults and waits until everything is resolved.
func (w *world) calm() {
	w.quiet = true
	for _, o := range w.late {
		w.bind(o)
	}
	w.shards = slices.DeleteFunc(w.shards, func(s *modelShard) bool { return !w.current().Has(s.inc) })
	for round := range 3000 {
		w.now = w.now.Add(100 * time.Millisecond)
		for len(w.net) > 0 {
			w.deliver()
		}
		for _, s := range w.shards {
			w.seeTable(s, true)
			for w.podEvent(s) {
			}
			for len(s.results) > 0 {
				w.result(s)
			}
			w.give(s, event.Tick{})
		}
		if round%300 == 299 {
			w.check()
			if w.resolved() == nil {
				break
			}
			for _, g := range w.gangs {
				g.serial++
				w.withdraw(g)
			}
		}
	}
	if err := w.resolved(); err != nil {
		w.t.Fatal(err)
	}
	for _, s := range w.shards {
		for _, name := range api.SortedKeys(w.nodes) {
			var used int64
			for _, p := range w.pods {
				if p.node == name && !p.finished && !p.gone {
					used += p.cpu
				}
			}
			view, there := s.core.cache.Node(name)
			if ours := w.current().OwnerOf(name) == s.inc; ours != there {
				w.t.Errorf("%s: node %s is ours: %v, and offered: %v", s.inc, name, ours, there)
			} else if there && view.Used.Value("cpu") != used {
				w.t.Errorf("%s: node %s: %d used, the cache says %v", s.inc, name, used, view)
			}
		}
	}
}

func (w *world) resolved() error {
	maps.DeleteFunc(w.intents, func(id keyID, in stored) bool { // one without rows ends with the session of its shard
		return len(in.record.GetRows()) == 0 && !slices.ContainsFunc(w.shards, func(s *modelShard) bool { return s.inc == id.inc })
	})
	if len(w.intents) > 0 {
		return fmt.Errorf("intents are left: %v", w.intents)
	}
	for _, s := range w.shards {
		if st := s.core.Stats(); st.Holds+st.Promises+st.Rows+st.Keys+st.Waiting > 0 || st.Broken > 0 || !st.Ready {
			return fmt.Errorf("%s is not resolved: %+v", s.inc, st)
		}
		if n := len(s.core.gangs); n > 0 && s.core.now.Sub(epoch0) > 10*time.Minute {
			return fmt.Errorf("%s remembers %d gangs", s.inc, n)
		}
		if s.core.resolves.open != 0 || s.core.intents.rewrites != 0 || s.core.intents.deleting != nil {
			return fmt.Errorf("%s: %d resolving, %d rewrites, deleting %v", s.inc, s.core.resolves.open,
				s.core.intents.rewrites, s.core.intents.deleting)
		}
	}
	return nil
}
