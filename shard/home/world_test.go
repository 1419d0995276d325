package home

import (
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/node"
)

// TestWorld runs home cores, each beside a node core as in a process, against small models of the coordinator, the API
// server and the control store. Pods are deleted, finish, and are made again under the same names, PodGroups too; messages
// are lost, repeated and late, watches lag, processes die or go on after they were replaced, the coordinator forgets who
// waits. While that goes on: nothing is bound before as many pods as the minimum are durable, no Unreserve leaves a bound
// pod of a gang uncharged, only pods of closing reservations are evicted, and statuses have one writer an epoch. When it
// ends: every gang that fits is bound wholly, no reservation is left without a gang, and nothing is held for nobody.
func TestWorld(t *testing.T) {
	first, n, steps := *firstSeed, *worldSeeds, 25000
	switch {
	case n == 0 && seeds.InFull():
		n = 32
	case n == 0:
		n = 10
		first = int64(seeds.ByDate(t, int(n)))
	}
	for seed := first; seed < first+n; seed++ {
		t.Run(strconv.FormatInt(seed, 10), func(t *testing.T) {
			w := newWorld(t, seed)
			defer func() {
				if r := recover(); r != nil {
					w.failf("%v", r)
				}
			}()
			for w.step = range steps {
				w.chaos()
			}
			w.calm()
			t.Logf("%d pods bound, %d gangs completed, %d rolled back, %d gave up, %d evicted for others, %d surplus pods, %d tables, %d statuses", w.landed, w.placed, w.rolledBack, w.gaveUp, w.yielded, w.shrunk, w.epoch, w.statuses)
			if w.landed < 100 || w.epoch < 4 {
				t.Errorf("too little happened: %d pods bound, %d tables", w.landed, w.epoch)
			}
		})
	}
}

// TestSameSeedSameOutputs runs one seed twice.
func TestSameSeedSameOutputs(t *testing.T) {
	run := func() []string {
		w := newWorld(t, 3)
		w.keep = true
		for w.step = range 3000 {
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

var (
	worldSeeds = flag.Int64("seeds", 0, "how many seeds TestWorld runs; if 0, those of the day")
	firstSeed  = flag.Int64("first", 0, "the first of them")
)

var follow = flag.String("follow", "", "on failure, print what was said of this gang, from the start")

type worldPod struct {
	uid, name, group, queue string
	rv                      int64
	node                    string
	cpu                     int64
	created                 time.Time
	finished, owned, gated  bool
	deleting                time.Time
	boundAt                 time.Time
	boundFor                string // UID of the PodGroup that it was bound for,
	boundIn                 string // and the queue that it was bound in
	reason                  string
	least                   int // of an implied group
}

type worldGroup struct {
	uid, name, queue string
	min              int
	generation       int64
	created          time.Time
	status           *v1beta1.PodGroupStatus
	least            int  // the lowest minCount it ever had: homes lag
	ever             int  // pods bound for it
	completed        bool // as many as that
	begun            bool // a pod was bound for it since it was last given back: it is completed, or closed
	mixed            bool // pods made within its second were bound for an earlier one
	implied          bool // its pods are all there is of it,
	ended            int  // of its pods have finished
	from             int  // and those of podLog before this were of one that is gone, or was given back
	went             int  // in podLog, when the last pod that was bound for it went
}

type worldReservation struct {
	pods    []uint64
	ref     *wire.GangRef
	attempt uint64
	demand  api.Resources
	rev     int64
	closing bool
	started bool
	yields  *wire.Yielding // closing so that another gang can start
	evicts  bool           // preemptible
	evicted bool           // a pod of it was
	order   uint64

	least            uint32
	mandate          uint64
	asked, condemned []*wire.SurplusPod // pods that are to go, and those that the record says do
	rank             *wire.Rank
}

type worldRequest struct {
	from api.Incarnation
	m    *wire.Reserve
	told bool
}

type intentKey struct {
	inc api.Incarnation
	n   uint64
}

type worldIntents struct {
	rev    int64
	record *wire.IntentsRecord
}

// process is a shard: two cores, and what its shell has under way.
type process struct {
	inc     api.Incarnation
	home    *Core
	node    *node.Core
	dead    bool
	zombie  time.Time // removed from the table, goes on until then
	listed  int       // of podLog, when the last list was made
	pods    int       // cursors into the logs; pods is -1 before the first list
	objects int
	tables  int
	pending []event.Event // results, in any order
	lists   []event.Event
	said    map[string]bool // gangs that were told to bind
}

type worldMessage struct {
	from, to api.Incarnation
	body     *wire.Envelope
}

type world struct {
	t      *testing.T
	seed   int64
	rng    *rand.Rand
	step   int
	now    time.Time
	tick   time.Time
	rev    int64
	made   int
	calmed bool

	pods   map[string]*worldPod // by name
	groups map[string]*worldGroup
	podLog []event.Event
	objLog []event.Event // PodGroups
	again  []func()      // what controllers make again

	tables  []*api.Table
	epoch   uint64
	intents map[intentKey]worldIntents
	charged map[string]*worldReservation // by queue/uid
	waiting map[string]*worldRequest
	serials map[string]uint64
	order   uint64
	term    int64
	caps    map[string]int64

	procs  []*process
	net    []worldMessage
	late   []event.BindPod
	stamps map[string]string // object/epoch -> writer
	rows   map[string]string // gang/pod of every intent, and the gang's queue

	landed, statuses, yielded  int
	shrunk                     int // pods that were condemned and evicted
	asked                      uint64
	placed, rolledBack, gaveUp uint64
	keep                       bool
	outputs                    []string
	trail                      []string
}

var worldQueues = []string{"default", "q1", "q2", "q3", "q4"}

func newWorld(t *testing.T, seed int64) *world {
	w := &world{t: t, seed: seed, rng: rand.New(rand.NewSource(seed)), now: epoch0, pods: map[string]*worldPod{}, groups: map[string]*worldGroup{},
		intents: map[intentKey]worldIntents{}, charged: map[string]*worldReservation{}, waiting: map[string]*worldRequest{}, serials: map[string]uint64{},
		caps: map[string]int64{"default": 12, "q1": 12, "q2": 8, "q3": 16, "q4": 8}, stamps: map[string]string{}, rows: map[string]string{}, rev: 100, term: 1}
	var first []api.Incarnation
	for range 1 + seed%3 {
		first = append(first, w.start().inc)
	}
	w.move(first)
	return w
}

func (w *world) nodes() []string {
	var out []string
	for i := range 4 + int(w.seed%5) { // with few of them there is quota without room
		out = append(out, fmt.Sprintf("node-%d", i))
	}
	return out
}

func (w *world) failf(format string, args ...any) {
	w.t.Helper()
	if *follow != "" {
		w.trail = slices.DeleteFunc(w.trail, func(s string) bool { return !strings.Contains(s, *follow) })
	}
	w.t.Fatalf("step %d, %s: %s\n%s", w.step, w.now.Sub(epoch0), fmt.Sprintf(format, args...), strings.Join(w.trail[max(0, len(w.trail)-60):], "\n"))
}

func (w *world) start() *process {
	w.made++
	inc := api.Incarnation(fmt.Sprintf("s%d", w.made))
	p := &process{inc: inc, home: New(Config{Self: inc, Strict: true, InFlight: 4, CommitPods: 1 + w.made%4, HoldPods: 1 + w.made%3, LargeGang: w.made % 3, Tracing: w.made%2 == 0}), node: node.New(node.Config{Self: inc, Strict: true, MaxNamed: 1 + w.made%2, MaxBytes: 100 * (w.made % 4)}), pods: -1, said: map[string]bool{}}
	w.procs = append(w.procs, p)
	w.give(p, event.LogRead{Revision: math.MaxInt64}) // package topology is tested elsewhere
	w.give(p, event.NamespaceSeen{Name: "ns"})
	for _, name := range w.nodes() {
		w.give(p, event.NodeSeen{Node: &api.Node{Name: name, UID: "uid", Allocatable: cores(6, 110)}})
	}
	for _, name := range api.SortedKeys(w.groups) {
		if g := w.groups[name]; !g.implied {
			w.give(p, w.groupSeen(g))
		}
	}
	p.objects = len(w.objLog)
	w.give(p, event.CoordinatorSeen{Term: w.term, Incarnation: "c"})
	return p
}

func (w *world) proc(inc api.Incarnation) *process {
	for _, p := range w.procs {
		if p.inc == inc && !p.dead {
			return p
		}
	}
	return nil
}

func (w *world) table() *api.Table { return w.tables[len(w.tables)-1] }

func (w *world) members() (out []api.Incarnation) {
	for _, m := range w.table().Members {
		out = append(out, m.Incarnation)
	}
	return out
}

// move writes a table over these shards.
func (w *world) move(members []api.Incarnation) {
	w.rev++
	w.epoch++
	t := &api.Table{Epoch: api.Epoch(w.epoch), Revision: w.rev}
	for _, m := range members {
		t.Members = append(t.Members, api.Member{Incarnation: m, Name: string(m)})
	}
	var old *api.Table
	if len(w.tables) > 0 {
		old = w.table()
	}
	for b := range api.BucketID(api.Buckets) {
		owner := w.rng.Intn(len(members))
		if stays := slices.Index(members, old.Owner(b)); stays >= 0 && w.rng.Intn(4) > 0 {
			owner = stays
		}
		t.Owners[b] = uint16(owner)
		t.Changed[b] = t.Epoch
		if old != nil && old.Owner(b) == t.Owner(b) {
			t.Changed[b] = old.Changed[b]
		}
	}
	w.tables = append(w.tables, t)
	for _, p := range w.procs { // the coordinator's waiting list is by home
		_ = p
	}
}

// give steps both cores of a process and carries out what they ask for.
func (w *world) give(p *process, ev event.Event) {
	p.home.Step(w.now, ev)
	if err := p.home.Check(); err != nil {
		w.failf("%s: %v", p.inc, err)
	}
	w.carryOut(p, p.home.Outputs())
	p.node.Step(w.now, ev)
	w.carryOut(p, p.node.Outputs())
	if w.rng.Intn(2) == 0 {
		p.home.Step(w.now, event.Drained{})
		w.carryOut(p, p.home.Outputs())
	}
}

func (w *world) carryOut(p *process, outputs []event.Output) {
	for _, o := range outputs {
		if w.keep {
			w.outputs = append(w.outputs, fmt.Sprintf("%s %s", p.inc, (&script{}).print(o)))
		}
		switch o := o.(type) {
		case event.Send:
			w.send(p, o)
		case event.ReadStore:
			ev := event.StoreRead{Sequence: o.Sequence, Revision: w.rev}
			for _, key := range api.SortedKeys(w.charged) {
				r := w.charged[key]
				state := wire.ReservationState_RESERVATION_OPEN
				if r.closing {
					state = wire.ReservationState_RESERVATION_CLOSING
				}
				ev.Reservations = append(ev.Reservations, event.StoredReservation{ModRevision: r.rev, Record: &wire.ReservationRecord{
					Gang: r.ref, Attempt: r.attempt, Demand: wire.FromResources(r.demand), Rank: r.rank, State: state, Pods: r.pods, Started: r.started, Yields: r.yields,
					Least: r.least, Condemned: r.condemned, Shrinks: w.shrinks(r)}})
			}
			for _, k := range w.intentKeys() {
				ev.Intents = append(ev.Intents, event.StoredIntents{Incarnation: k.inc, N: k.n, ModRevision: w.intents[k].rev, Record: w.intents[k].record})
			}
			p.pending = append(p.pending, ev)
		case event.ListPods:
			w.list(p, o.Sequence)
		case event.WriteIntents:
			p.pending = append(p.pending, w.writeIntents(p, o))
		case event.BindPod:
			switch n := w.rng.Intn(12); {
			case n == 0 && !w.calmed:
				p.pending = append(p.pending, event.BindDone{Row: o.Row, Outcome: event.BindUnknown})
				w.late = append(w.late, o)
			case n == 1 && !w.calmed:
				w.bind(o)
				p.pending = append(p.pending, event.BindDone{Row: o.Row, Outcome: event.BindUnknown})
			default:
				p.pending = append(p.pending, event.BindDone{Row: o.Row, Outcome: w.bind(o)})
			}
		case event.ResolveBinding:
			done := event.ResolveDone{Row: o.Row, Outcome: event.ResolvedGone}
			if pod := w.pods[o.Name]; pod != nil && pod.uid == o.Row.PodUID {
				w.changed(pod)
				done.Outcome = event.ResolvedFree
				if pod.node != "" {
					done.Outcome, done.Node = event.ResolvedBound, pod.node
				}
			}
			p.pending = append(p.pending, done)
		case event.DeleteIntents:
			p.pending = append(p.pending, w.deleteIntents(p, o))
		case event.RewriteIntents:
			p.pending = append(p.pending, w.rewriteIntents(o))
		case event.WritePodCondition:
			p.pending = append(p.pending, w.writeCondition(o))
		case event.WritePodGroupStatus:
			p.pending = append(p.pending, w.writeStatus(p, o))
		case event.EvictPod:
			w.evict(p, o)
			p.pending = append(p.pending, event.StatusWritten{ID: o.ID, Outcome: event.StatusOK})
		case event.Log:
			if o.Level >= 8 {
				w.failf("%s: %s %v", p.inc, o.Message, o.Attrs)
			}
		}
	}
}

// send puts a message onto the net, and looks at what it says.
func (w *world) send(p *process, o event.Send) {
	switch b := o.Body.Body.(type) {
	case *wire.Envelope_Bind:
		w.mayBind(p, b.Bind.GangUid, nil)
	case *wire.Envelope_Commit:
		word := fmt.Sprintf("%s %d", b.Commit.Gang.Uid, b.Commit.Serial) // a retransmission is judged with the first
		if b.Commit.Bind && !p.said[word] {
			p.said[word] = true
			w.mayBind(p, b.Commit.Gang.Uid, b.Commit)
		}
	case *wire.Envelope_Withdraw:
		delete(p.said, b.Withdraw.Gang.Uid)
	}
	if o.Body.GetSummary() == nil && o.Body.GetRefilled() == nil {
		w.trail = append(w.trail, fmt.Sprintf("%s %s -> %s: %s", w.now.Sub(epoch0), p.inc, o.To, describe(o.Body)))
	}
	n := 1
	if !w.calmed {
		switch w.rng.Intn(25) {
		case 0:
			n = 0
		case 1:
			n = 2
		}
	}
	for range n {
		w.net = append(w.net, worldMessage{p.inc, o.To, o.Body})
	}
}

func describe(e *wire.Envelope) string {
	switch b := e.Body.(type) {
	case *wire.Envelope_HoldReply:
		return fmt.Sprintf("HoldReply %s %s held %d", b.HoldReply.GangUid, printSerial(b.HoldReply.Serial), len(b.HoldReply.Held))
	case *wire.Envelope_CommitReply:
		return fmt.Sprintf("CommitReply %s %s %s %v", b.CommitReply.GangUid, printSerial(b.CommitReply.Serial), b.CommitReply.Outcome, b.CommitReply.PodUids)
	case *wire.Envelope_Withdrawn:
		return fmt.Sprintf("Withdrawn %s %s sent %v", b.Withdrawn.GangUid, printSerial(b.Withdrawn.Serial), b.Withdrawn.SentPodUids)
	case *wire.Envelope_BindResults:
		return fmt.Sprintf("BindResults %s %s %v", b.BindResults.GangUid, printSerial(b.BindResults.Serial), b.BindResults.Results)
	case *wire.Envelope_HoldsLost:
		return fmt.Sprintf("HoldsLost %s %v", b.HoldsLost.GangUid, b.HoldsLost.PodUids)
	}
	return printMessage(e)
}

// mayBind: the first word that binds of a gang comes when as many pods as its minimum are bound or durable.
func (w *world) mayBind(p *process, uid string, commit *wire.Commit) {
	least := 1
	var grp *worldGroup
	for _, g := range w.groups {
		if g.uid == uid {
			grp, least = g, g.min
		}
	}
	if p.said[uid] || grp == nil || grp.completed || grp.begun || grp.mixed || p.pods < grp.from || grp.implied && len(p.lists) > 0 {
		return
	}
	p.said[uid] = true
	pods := map[string]bool{}
	for _, pod := range w.pods {
		if pod.node != "" && w.gangOf(pod) == uid {
			return // it is bound in part: rolled forward
		}
	}
	if grp.went > p.listed {
		return // one was, when its home decided to roll it forward
	}
	for row := range w.rows { // also what was given up again before its home could hear of that
		if gang, pod, _ := strings.Cut(row, "/"); gang == uid {
			pods[pod] = true
		}
	}
	for _, r := range commit.GetPods() {
		pods[r.Uid] = true
	}
	// minCount may have been raised since this home saw it; what it knows counts.
	if g := p.home.gangs[uid]; g != nil {
		if g.started {
			return // what it lost may be gone before its home hears of that
		}
		least = min(least, g.minCount()) - g.tally.placed // pods that are gone since count, too
		for _, m := range g.members {
			if there := w.pods[m.Name]; m.stage == committed && (there == nil || there.uid != m.UID) {
				pods[m.UID] = true // it went before its row was written, and that is not known yet
			}
		}
	}
	if len(pods) < least {
		w.failf("%s binds %s with %d of %d pods durable: %s", p.inc, uid, len(pods), least, w.explain(uid))
	}
}

func (w *world) list(p *process, sequence uint64) {
	ev := event.PodsReplaced{Sequence: sequence}
	for _, name := range api.SortedKeys(w.pods) {
		ev.Pods = append(ev.Pods, w.pods[name].seen())
	}
	p.lists = append(p.lists, ev)
	p.pods = len(w.podLog)
	p.listed = p.pods
}

func (w *world) mix(g *worldGroup) {
	for _, p := range w.pods {
		g.mixed = g.mixed || p.group == g.name && p.node != "" && p.boundFor != g.uid && !p.created.Before(g.created)
	}
}

// gangOf returns the gang that a bound pod belongs to: the one that it was bound for, or the present one of that name, if it was made
// for that, and both are in one queue.
func (w *world) gangOf(p *worldPod) string {
	g := w.groups[p.group]
	if g == nil || p.boundFor == g.uid || p.boundIn != g.queue {
		return p.boundFor
	}
	if d := p.created.Compare(g.created); d > 0 || d == 0 && p.deleting.IsZero() {
		return g.uid
	}
	return p.boundFor
}

func (p *worldPod) seen() *api.Pod {
	return &api.Pod{UID: p.uid, ResourceVersion: strconv.FormatInt(p.rv, 10), Namespace: "ns", Name: p.name, Created: p.created, Ours: true, Node: p.node, GroupMin: p.least, GroupKind: p.kind(),
		Finished: p.finished, End: api.End{Succeeded: p.finished}, Deleting: !p.deleting.IsZero(), Gated: p.gated,
		Group: p.group, Queue: p.queue, Maker: api.Maker{Owner: uint64(flag01(p.owned))},
		Class: api.NewClass(cores(p.cpu, 1), nil), Condition: api.Refusal{Reason: p.reason}, Gang: p.boundFor}
}

func (p *worldPod) kind() api.GroupKind {
	if p.least > 0 {
		return api.ImpliedGroup
	}
	return api.BasaltGroup
}

func (w *world) changed(p *worldPod) {
	w.rev++
	p.rv = w.rev
	w.podLog = append(w.podLog, event.PodSeen{Pod: p.seen()})
}

func (w *world) groupSeen(g *worldGroup) event.Event {
	o := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: g.name, UID: types.UID(g.uid), Generation: g.generation, CreationTimestamp: metav1.NewTime(g.created)}, Status: g.status}
	o.Spec.Queue = g.queue
	o.Spec.SchedulingPolicy.Gang.MinCount = int32(g.min)
	return event.PodGroupSeen{PodGroup: o}
}

func (w *world) makeGroup(name, queue string, least int) {
	w.made++
	g := &worldGroup{uid: fmt.Sprintf("%s-%d", name, w.made), name: name, queue: queue, min: least, least: least, generation: 1, created: w.now.Truncate(time.Second)}
	w.groups[name] = g
	w.mix(g)
	w.trail = append(w.trail, fmt.Sprintf("%s made PodGroup %s minCount %d", w.now.Sub(epoch0), g.uid, least))
	w.objLog = append(w.objLog, w.groupSeen(g))
}

// makeImplied makes a pod of an implied group, and with the first one the group.
func (w *world) makeImplied(name, group, queue string, cpu int64, owned bool, least int) {
	if w.pods[name] != nil {
		return
	}
	if g := w.groups[group]; g != nil {
		queue, least = g.queue, g.min
	} else {
		uid := api.ImpliedUID("ns", group)
		w.groups[group] = &worldGroup{uid: uid, name: group, queue: queue, min: least, least: least, implied: true}
		w.forgetPlacing(w.groups[group])
		w.trail = append(w.trail, fmt.Sprintf("%s made implied group %s (%s) minCount %d", w.now.Sub(epoch0), uid, group, least))
	}
	w.makePod(name, group, queue, cpu, owned)
	p := w.pods[name]
	p.least = least
	w.podLog[len(w.podLog)-1] = event.PodSeen{Pod: p.seen()}
}

// forgetPlacing has a group begin anew, but for its pods that have finished: they may be its minimum.
func (w *world) forgetPlacing(g *worldGroup) {
	g.ever, g.completed, g.begun, g.from = g.ended, g.ended > 0 && g.ended >= g.least, false, len(w.podLog)
	for row := range w.rows {
		if strings.HasPrefix(row, g.uid+"/") {
			delete(w.rows, row)
		}
	}
	for _, p := range w.procs {
		delete(p.said, g.uid)
	}
}

func (w *world) makePod(name, group, queue string, cpu int64, owned bool) {
	if w.pods[name] != nil {
		return
	}
	w.made++
	p := &worldPod{uid: fmt.Sprintf("%s-%d", name, w.made), name: name, group: group, queue: queue, cpu: cpu, owned: owned, created: w.now.Truncate(time.Second), gated: w.rng.Intn(20) == 0 && !w.calmed}
	w.pods[name] = p
	w.changed(p)
}

func (w *world) finish(p *worldPod) {
	p.finished = true
	if g := w.groups[p.group]; g != nil && p.boundFor == g.uid {
		g.ended++
	}
	w.changed(p)
}

func (w *world) removePod(p *worldPod) {
	delete(w.pods, p.name)
	w.trail = append(w.trail, fmt.Sprintf("%s pod %s is gone", w.now.Sub(epoch0), p.uid))
	gone := event.PodGone{UID: p.uid, Namespace: "ns", Name: p.name}
	w.podLog = append(w.podLog, gone)
	if g := w.groups[p.group]; g != nil && p.boundFor == g.uid {
		g.went = len(w.podLog)
	}
	if w.rng.Intn(3) == 0 {
		w.podLog = append(w.podLog, gone)
	}
	if p.least > 0 {
		if p.owned && !p.finished {
			w.again = append(w.again, func() { w.makeImplied(p.name, p.group, p.queue, p.cpu, true, p.least) })
		}
		for _, other := range w.pods {
			if other.group == p.group {
				return
			}
		}
		w.forgetPlacing(w.groups[p.group])
		delete(w.groups, p.group)
		return
	}
	if p.owned && !p.finished && (p.group == "" || w.groups[p.group] != nil) {
		w.again = append(w.again, func() {
			if p.group == "" || w.groups[p.group] != nil {
				w.makePod(p.name, p.group, p.queue, p.cpu, true)
			}
		})
	}
}

func (w *world) removeGroup(g *worldGroup) {
	delete(w.groups, g.name)
	gone := event.PodGroupGone{UID: g.uid, Namespace: "ns", Name: g.name}
	w.objLog = append(w.objLog, gone)
	if w.rng.Intn(2) == 0 { // again, later
		w.again = append(w.again, func() { w.objLog = append(w.objLog, gone) })
	}
}

func (w *world) intentKeys() []intentKey {
	keys := slices.Collect(maps.Keys(w.intents))
	slices.SortFunc(keys, func(a, b intentKey) int {
		if d := strings.Compare(string(a.inc), string(b.inc)); d != 0 {
			return d
		}
		return int(a.n) - int(b.n)
	})
	return keys
}

func (w *world) reservation(uid string) *worldReservation {
	for _, q := range worldQueues {
		if r := w.charged[q+"/"+uid]; r != nil {
			return r
		}
	}
	return nil
}

func (w *world) writeIntents(p *process, o event.WriteIntents) event.Event {
	if !w.table().Has(p.inc) {
		return event.IntentsWritten{N: o.N, Outcome: event.SessionLost}
	}
	if o.TableRevision != w.table().Revision {
		return event.IntentsWritten{N: o.N, Outcome: event.TableMoved}
	}
	var moved []string
	for _, f := range o.Reservations {
		if r := w.reservation(f.GangUID); r == nil || r.rev != f.Revision || r.closing {
			moved = append(moved, f.GangUID)
		}
	}
	if len(moved) > 0 {
		return event.IntentsWritten{N: o.N, Outcome: event.ReservationMoved, Moved: moved}
	}
	w.rev++
	w.intents[intentKey{p.inc, o.N}] = worldIntents{w.rev, o.Record}
	for _, r := range o.Record.Rows {
		ref := o.Record.Gangs[r.Gang]
		w.rows[ref.Uid+"/"+r.PodUid] = ref.Queue
	}
	return event.IntentsWritten{N: o.N, Outcome: event.Written, ModRevision: w.rev}
}

func (w *world) deleteIntents(p *process, o event.DeleteIntents) event.Event {
	all := true
	for _, k := range o.Keys {
		all = all && w.intents[intentKey{p.inc, k.N}].rev == k.ModRevision
	}
	var ev event.IntentsDeleted
	w.rev++
	for _, k := range o.Keys {
		if all {
			delete(w.intents, intentKey{p.inc, k.N})
		}
		ev.Keys = append(ev.Keys, event.IntentKey{N: k.N, ModRevision: w.intents[intentKey{p.inc, k.N}].rev})
	}
	return ev
}

func (w *world) rewriteIntents(o event.RewriteIntents) event.Event {
	k := intentKey{o.Incarnation, o.N}
	now, exists := w.intents[k]
	ev := event.IntentsRewritten{Incarnation: o.Incarnation, N: o.N}
	if exists && now.rev == o.ModRevision && o.TableRevision == w.table().Revision {
		w.rev++
		ev.Done = true
		if o.Record == nil {
			delete(w.intents, k)
			return ev
		}
		w.intents[k] = worldIntents{w.rev, o.Record}
	}
	ev.ModRevision, ev.Record = w.intents[k].rev, w.intents[k].record
	return ev
}

func (w *world) bind(o event.BindPod) event.BindOutcome {
	p := w.pods[o.Name]
	switch {
	case p == nil || p.uid != o.Row.PodUID:
		return event.BindNotFound
	case p.node != "" || strconv.FormatInt(p.rv, 10) != o.ResourceVersion || !p.deleting.IsZero():
		return event.BindConflict
	}
	w.landed++
	p.node, p.boundAt = o.Node, w.now
	p.boundFor, p.boundIn = o.Gang, w.rows[o.Gang+"/"+p.uid]
	if p.boundIn == "" {
		w.failf("pod %s is bound without an intent", p.uid)
	}
	if g := w.groups[p.group]; g != nil && g.uid == w.gangOf(p) {
		g.ever++
		g.completed, g.begun = g.ever >= g.least, true
	}
	if g := w.groups[p.group]; g != nil {
		w.mix(g)
	}
	w.trail = append(w.trail, fmt.Sprintf("%s bound %s to %s", w.now.Sub(epoch0), p.uid, p.node))
	w.changed(p)
	used := int64(0)
	for _, other := range w.pods {
		if other.node == p.node && !other.finished {
			used += other.cpu
		}
	}
	if used > 6 {
		w.failf("node %s is over-committed: %d", p.node, used)
	}
	return event.BindOK
}

func (w *world) writeCondition(o event.WritePodCondition) event.Event {
	p := w.pods[o.Name]
	switch {
	case p == nil || p.uid != o.UID:
		return event.StatusWritten{ID: o.ID, Outcome: event.StatusGone}
	case strconv.FormatInt(p.rv, 10) != o.ResourceVersion:
		return event.StatusWritten{ID: o.ID, Outcome: event.StatusConflict}
	case !w.calmed && w.rng.Intn(10) == 0:
		return event.StatusWritten{ID: o.ID, Outcome: event.StatusFailed}
	}
	if p.node != "" {
		w.failf("bound pod %s is told that it waits", p.uid)
	}
	p.reason = o.Reason
	w.changed(p)
	return event.StatusWritten{ID: o.ID, Outcome: event.StatusOK, ResourceVersion: strconv.FormatInt(p.rv, 10)}
}

func (w *world) writeStatus(p *process, o event.WritePodGroupStatus) event.Event {
	g := w.groups[o.Name]
	if g == nil || g.uid != o.UID {
		return event.StatusWritten{ID: o.ID, Outcome: event.StatusGone}
	}
	if !w.calmed && w.rng.Intn(10) == 0 {
		return event.StatusWritten{ID: o.ID, Outcome: event.StatusFailed}
	}
	if old := g.status; old != nil && !(o.Status.Epoch > old.Epoch || o.Status.Epoch == old.Epoch && o.Status.Writer == old.Writer && o.Status.Sequence > old.Sequence) {
		return event.StatusWritten{ID: o.ID, Outcome: event.StatusConflict}
	}
	key := fmt.Sprintf("%s/%d", o.UID, o.Status.Epoch)
	if writer := w.stamps[key]; writer != "" && writer != o.Status.Writer {
		w.failf("two writers of %s: %s and %s", key, writer, o.Status.Writer)
	}
	w.stamps[key] = o.Status.Writer
	w.statuses++
	w.trail = append(w.trail, fmt.Sprintf("%s status of %s by %s: %v", w.now.Sub(epoch0), o.UID, p.inc, o.Status.Conditions))
	g.status = o.Status
	w.objLog = append(w.objLog, w.groupSeen(g))
	return event.StatusWritten{ID: o.ID, Outcome: event.StatusOK}
}

func (w *world) evict(p *process, o event.EvictPod) {
	pod := w.pods[o.Name]
	if pod == nil || pod.uid != o.UID {
		return
	}
	uid := pod.boundFor
	if uid == "" {
		uid = pod.uid
	}
	for _, r := range w.charged {
		if slices.ContainsFunc(r.condemned, func(s *wire.SurplusPod) bool { return s.Uid == pod.uid }) {
			w.trail = append(w.trail, fmt.Sprintf("%s evicted %s, which is condemned", w.now.Sub(epoch0), pod.uid))
			w.shrunk++
			w.removePod(pod)
			return
		}
	}
	for _, r := range w.charged { // it was made for a namesake, perhaps, and is charged to that by now
		if r.closing && (slices.Contains(r.pods, api.PodID(pod.uid)) || r.ref.GetUid() == pod.uid) {
			uid = r.ref.GetUid()
		}
	}
	if g := w.groups[pod.group]; g != nil && g.uid == o.GangUID && w.reservation(g.uid) != nil { // it goes with the gang that it names now
		uid = g.uid
	}
	if r := w.reservation(uid); r == nil || !r.closing {
		w.failf("%s evicts pod %s of %s for %s: %s, which is not closing", p.inc, pod.uid, uid, o.GangUID, o.Message)
	}
	if !pod.owned && w.reservation(uid).yields == nil {
		w.failf("%s evicts pod %s, which nobody would make again", p.inc, pod.uid)
	}
	w.reservation(uid).evicted = true
	w.trail = append(w.trail, fmt.Sprintf("%s evicted %s", w.now.Sub(epoch0), pod.uid))
	w.removePod(pod)
}

// coordinate is the coordinator: quota of one level, first come first served.
func (w *world) coordinate(from api.Incarnation, body *wire.Envelope) {
	reply := func(e *wire.Envelope) { w.net = append(w.net, worldMessage{event.ToCoordinator, from, e}) }
	accept := func(ref *wire.GangRef, serial, epoch uint64) (string, bool) {
		key := ref.GetQueue() + "/" + ref.GetUid()
		b := api.BucketOf(ref.GetQueue())
		if w.table().Owner(b) != from || epoch < uint64(w.table().Changed[b]) || serial < w.serials[key] {
			return key, false
		}
		w.serials[key] = serial
		return key, true
	}
	switch b := body.Body.(type) {
	case *wire.Envelope_Reserve:
		m := b.Reserve
		key, ok := accept(m.Gang, m.Serial, m.TableEpoch)
		if !ok {
			return
		}
		if other := w.reservation(m.Gang.Uid); other != nil && other.ref.Queue != m.Gang.Queue || w.charged[key] != nil && w.charged[key].closing {
			reply(&wire.Envelope{Body: &wire.Envelope_Denied{Denied: &wire.Denied{GangUid: m.Gang.Uid, Attempt: m.Attempt, Serial: m.Serial, Reason: wire.DenyReason_DENY_CLOSING}}})
			return
		}
		if old := w.waiting[key]; old != nil && old.m.Serial == m.Serial {
			old.from = from
			old.told = false
		} else {
			w.waiting[key] = &worldRequest{from: from, m: m}
		}
		w.offer()
	case *wire.Envelope_Unreserve:
		m := b.Unreserve
		key, ok := accept(m.Gang, m.Serial, m.TableEpoch)
		if !ok {
			return
		}
		delete(w.waiting, key)
		if r := w.charged[key]; r != nil {
			w.mayRelease(from, r)
			delete(w.charged, key)
			if g := w.groups[m.Gang.Name]; g != nil && g.uid == m.Gang.Uid {
				g.begun = false
				if g.implied || r.yields != nil && r.evicted {
					w.forgetPlacing(g)
				}
				if r.yields != nil && r.evicted && !g.implied && g.status != nil && shows(g.status, v1beta1.ConditionPodGroupInitiallyScheduled) {
					w.failf("%s gives the reservation of %s back, which was evicted for another gang and still passes for started", from, g.uid)
				}
			}
			w.rev++
		}
		reply(&wire.Envelope{Body: &wire.Envelope_Unreserved{Unreserved: &wire.Unreserved{GangUid: m.Gang.Uid, Attempt: m.Attempt, Serial: m.Serial}}})
		w.offer()
	case *wire.Envelope_Close:
		m := b.Close
		key, ok := accept(m.Gang, m.Serial, m.TableEpoch)
		if !ok {
			return
		}
		delete(w.waiting, key)
		if r := w.charged[key]; r != nil && !r.closing {
			r.closing = true
			w.rev++
			r.rev = w.rev
		}
		reply(&wire.Envelope{Body: &wire.Envelope_Closed{Closed: &wire.Closed{GangUid: m.Gang.Uid, Attempt: m.Attempt, Serial: m.Serial}}})
	case *wire.Envelope_Condemn:
		m := b.Condemn
		key := m.Gang.GetQueue() + "/" + m.Gang.GetUid()
		bucket := api.BucketOf(m.Gang.GetQueue())
		if w.table().Owner(bucket) == from && m.TableEpoch >= uint64(w.table().Changed[bucket]) && m.Serial >= w.serials[key] && m.Term == w.term {
			w.condemn(from, w.charged[key], m)
		}
	}
}

// condemn writes which pods of a gang leave for another one, as its home agrees: those that it has besides are its minimum.
func (w *world) condemn(from api.Incarnation, r *worldReservation, m *wire.Condemn) {
	if r == nil || r.closing || r.attempt != m.Attempt || len(r.asked) == 0 || m.Mandate != r.mandate {
		return
	}
	asked := r.asked
	if r.asked = nil; m.Refused != "" {
		return
	}
	for _, s := range asked {
		if !slices.Contains(m.Pods, s.Uid) {
			w.failf("%s is asked for %d pods of %s, and condemns %v", from, len(asked), r.ref.Uid, m.Pods)
		}
	}
	condemned := slices.Concat(r.condemned, asked)
	if len(r.pods)-len(condemned) < int(r.least) {
		return // what it asked for last shows that
	}
	r.condemned = condemned
	w.rev++
	r.rev = w.rev
	pending := 0
	for _, p := range w.pods {
		if id := api.PodID(p.uid); p.node == "" && slices.Contains(r.pods, id) && !w.isCondemned(r, id) {
			pending++
		}
	}
	if len(r.pods)-len(condemned)-pending < int(r.least) {
		w.failf("%s condemns %d pods of %s, and keeps %d with a node of %d", from, len(asked), r.ref.Uid, len(r.pods)-len(condemned)-pending, r.least)
	}
}

func (w *world) isCondemned(r *worldReservation, id uint64) bool {
	return slices.ContainsFunc(r.condemned, func(s *wire.SurplusPod) bool { return api.PodID(s.Uid) == id })
}

func (w *world) shrinks(r *worldReservation) *wire.Yielding {
	if len(r.condemned)+len(r.asked) == 0 {
		return nil
	}
	return &wire.Yielding{To: r.ref, Why: "evicted so that another gang can start"}
}

// forgetGone takes what is to go out of a record when a request does not name it any more.
func (w *world) forgetGone(r *worldReservation, pods []uint64) {
	left := func(list []*wire.SurplusPod) (out []*wire.SurplusPod) {
		for _, s := range list {
			if slices.Contains(pods, api.PodID(s.Uid)) {
				out = append(out, s)
				continue
			}
			amounts, _ := wire.ToResources(s.Amounts)
			r.demand = r.demand.Sub(amounts).Positive()
		}
		return out
	}
	if n := len(r.condemned) + len(r.asked); n > 0 {
		if r.condemned, r.asked = left(r.condemned), left(r.asked); len(r.condemned)+len(r.asked) < n {
			w.rev++
			r.rev = w.rev
		}
	}
}

// shrinkOne asks the home of a gang whether single pods of it may go so that another gang can start.
func (w *world) shrinkOne() {
	keys := slices.DeleteFunc(api.SortedKeys(w.charged), func(key string) bool {
		r := w.charged[key]
		return r.closing || !r.evicts || r.least == 0 || len(r.pods)-len(r.condemned) <= int(r.least)
	})
	if len(keys) == 0 {
		return
	}
	r := w.charged[keys[w.rng.Intn(len(keys))]]
	w.asked++
	r.asked, r.mandate = nil, w.asked
	for _, name := range api.SortedKeys(w.pods) {
		p := w.pods[name]
		if id := api.PodID(p.uid); slices.Contains(r.pods, id) && !w.isCondemned(r, id) && p.node != "" && w.some(2) {
			r.asked = append(r.asked, &wire.SurplusPod{Uid: p.uid, Amounts: wire.FromResources(cores(0, 1).Add(api.Resources{{Resource: "cpu", Value: 1000 * p.cpu}}))})
		}
	}
}

// elsewhere reports whether another reservation names a pod of a request.
func (w *world) elsewhere(key string, m *wire.Reserve) bool {
	names := func(ref *wire.GangRef, pods []uint64) []uint64 {
		if ref.Single {
			return []uint64{api.PodID(ref.Uid)}
		}
		return pods
	}
	for other, r := range w.charged {
		for _, id := range names(r.ref, r.pods) {
			if other != key && slices.Contains(names(m.Gang, m.Pods), id) {
				return true
			}
		}
	}
	return false
}

// mayRelease: no pod that was bound for the gang is left, and no intent of a living one.
func (w *world) mayRelease(from api.Incarnation, r *worldReservation) {
	for _, p := range w.pods {
		if p.node == "" || p.finished {
			continue
		}
		if g := w.groups[p.group]; p.uid == r.ref.Uid || g != nil && g.uid == r.ref.Uid && w.gangOf(p) == g.uid && !g.created.Equal(p.created) {
			// A pod bound by a Binding that was given up long ago is charged again when it is seen.
			if w.now.Sub(p.boundAt) > 2*time.Second {
				w.failf("%s gives back the reservation of %s, whose pod %s is bound since %s", from, r.ref.Uid, p.uid, p.boundAt.Sub(epoch0))
			}
		}
	}
}

// offer grants what fits, and tells the others once.
func (w *world) offer() {
	for _, key := range api.SortedKeys(w.waiting) {
		q := w.waiting[key]
		m := q.m
		if w.elsewhere(key, m) { // maybe since it was requested
			delete(w.waiting, key)
			w.net = append(w.net, worldMessage{event.ToCoordinator, q.from, &wire.Envelope{Body: &wire.Envelope_Denied{Denied: &wire.Denied{
				GangUid: m.Gang.Uid, Attempt: m.Attempt, Serial: m.Serial, Reason: wire.DenyReason_DENY_CHARGED_ELSEWHERE}}}})
			continue
		}
		demand, _ := wire.ToResources(m.Demand)
		bound, _ := wire.ToResources(m.Bound)
		var used api.Resources
		for k, r := range w.charged {
			if r.ref.Queue == m.Gang.Queue && k != key {
				used = used.Add(r.demand)
			}
		}
		r := w.charged[key]
		var have api.Resources
		if r != nil {
			w.forgetGone(r, m.Pods)
			have = r.demand
		}
		grant := func(amounts api.Resources) {
			if r == nil {
				w.order++
				r = &worldReservation{ref: m.Gang, rank: m.Rank}
				if r.rank == nil {
					r.rank = &wire.Rank{Priority: m.Priority, Order: w.order, GangUid: m.Gang.Uid}
				}
				w.charged[key] = r
			}
			if !r.demand.Equal(amounts) || r.attempt != m.Attempt || r.rev == 0 || !slices.Equal(r.pods, m.Pods) || r.started != m.Started || r.least != m.Least {
				w.rev++
				r.rev = w.rev
			}
			r.least = m.Least
			r.demand, r.attempt, r.pods, r.started, r.evicts = amounts, m.Attempt, m.Pods, m.Started, m.Preemptible
		}
		if w.rng.Intn(50) == 0 && !w.calmed { // denied without a reason
			continue
		}
		if used.Add(demand).Value("cpu") <= 1000*w.caps[m.Gang.Queue] || demand.Fits(have) || demand.Fits(bound) {
			grant(demand)
			delete(w.waiting, key)
			w.net = append(w.net, worldMessage{event.ToCoordinator, q.from, &wire.Envelope{Body: &wire.Envelope_Granted{Granted: &wire.Granted{
				GangUid: m.Gang.Uid, Attempt: m.Attempt, Serial: m.Serial, ReservationRevision: r.rev, Demand: m.Demand, Rank: r.rank}}}})
			continue
		}
		if !bound.Fits(have) {
			grant(have.Max(bound))
		}
		if !q.told {
			q.told = true
			w.net = append(w.net, worldMessage{event.ToCoordinator, q.from, &wire.Envelope{Body: &wire.Envelope_Denied{Denied: &wire.Denied{
				GangUid: m.Gang.Uid, Attempt: m.Attempt, Serial: m.Serial, Reason: wire.DenyReason_DENY_QUOTA, Queue: m.Gang.Queue, Resource: "cpu", Short: 1}}}})
		}
	}
}

// elect makes a new coordinator: it knows what is stored, and nobody who waits.
func (w *world) elect() {
	w.term++
	clear(w.waiting)
	clear(w.serials)
	for _, p := range w.procs {
		if !p.dead {
			w.give(p, event.CoordinatorSeen{Term: w.term, Incarnation: "c"})
		}
	}
}

// evictOne closes the reservation of a gang so that another one can start.
func (w *world) evictOne() {
	if r, ok := pickOne(w.rng, w.charged); ok && !r.closing && r.evicts {
		w.rev++
		r.closing, r.rev, r.yields = true, w.rev, &wire.Yielding{To: r.ref, Why: "evicted so that another gang can start"}
		delete(w.waiting, r.ref.Queue+"/"+r.ref.Uid)
		w.yielded++
		w.trail = append(w.trail, fmt.Sprintf("%s %s is to be evicted for another gang", w.now.Sub(epoch0), r.ref.Uid))
	}
}

// tellYields has the homes of such gangs evict them.
func (w *world) tellYields() {
	for _, key := range api.SortedKeys(w.charged) {
		r := w.charged[key]
		shrink := &wire.Shrink{Gang: r.ref, Attempt: r.attempt, Mandate: r.mandate, Pods: r.asked, To: w.shrinks(r)}
		shrink.Condemned, shrink.ReservationRevision = r.condemned, r.rev
		if len(shrink.Pods)+len(shrink.Condemned) > 0 && !r.closing {
			w.net = append(w.net, worldMessage{event.ToCoordinator, w.table().OwnerOf(r.ref.Queue), &wire.Envelope{Body: &wire.Envelope_Shrink{Shrink: shrink}}})
		}
		if r.yields != nil {
			w.net = append(w.net, worldMessage{event.ToCoordinator, w.table().OwnerOf(r.ref.Queue), &wire.Envelope{Body: &wire.Envelope_Yield{Yield: &wire.Yield{
				Gang: r.ref, Attempt: r.attempt, To: r.yields}}}})
		}
	}
}

func (w *world) tellKnown() {
	byHome := map[api.Incarnation]*wire.Known{}
	for _, key := range api.SortedKeys(w.charged) {
		r := w.charged[key]
		home := w.table().OwnerOf(r.ref.Queue)
		if byHome[home] == nil {
			byHome[home] = &wire.Known{}
		}
		byHome[home].Gangs = append(byHome[home].Gangs, r.ref)
		byHome[home].Attempts = append(byHome[home].Attempts, r.attempt)
	}
	for _, m := range w.members() {
		if k := byHome[m]; k != nil {
			w.net = append(w.net, worldMessage{event.ToCoordinator, m, &wire.Envelope{Body: &wire.Envelope_Known{Known: k}}})
		}
	}
}

// advance lets time pass, a Tick to each process every 100 ms.
func (w *world) advance(d time.Duration) {
	for until := w.now.Add(d); w.now.Before(until); {
		w.now = w.now.Add(min(until.Sub(w.now), 20*time.Millisecond))
		if w.now.Sub(w.tick) < 100*time.Millisecond {
			continue
		}
		w.tick = w.now
		for _, p := range w.procs {
			if !p.dead {
				w.give(p, event.Tick{})
			}
			if !p.zombie.IsZero() && w.now.After(p.zombie) {
				p.dead = true
			}
		}
	}
}

// deliver gives a process the next thing of some kind; it reports whether there was one.
func (w *world) deliver(p *process, kind int) bool {
	switch kind {
	case 0:
		if len(p.lists) > 0 {
			ev := p.lists[0]
			p.lists = p.lists[1:]
			w.give(p, ev)
			return true
		}
		if p.pods >= 0 && p.pods < len(w.podLog) {
			p.pods++
			w.give(p, w.podLog[p.pods-1])
			return true
		}
	case 1:
		if p.objects < len(w.objLog) {
			p.objects++
			w.give(p, w.objLog[p.objects-1])
			return true
		}
	case 2:
		if p.tables < len(w.tables) {
			p.tables++
			w.give(p, event.TableSeen{Table: w.tables[p.tables-1]})
			return true
		}
	case 3:
		if len(p.pending) > 0 {
			i := w.rng.Intn(len(p.pending))
			ev := p.pending[i]
			p.pending = slices.Delete(p.pending, i, i+1)
			w.give(p, ev)
			return true
		}
	}
	return false
}

// carry delivers the message at i.
func (w *world) carry(i int) {
	m := w.net[i]
	w.net = slices.Delete(w.net, i, i+1)
	if m.to == event.ToCoordinator {
		w.coordinate(m.from, m.body)
		return
	}
	if p := w.proc(m.to); p != nil {
		w.give(p, event.Message{From: m.from, Body: m.body})
	}
}

func (w *world) some(n int) bool { return w.rng.Intn(n) == 0 }

func pickOne[V any](rng *rand.Rand, m map[string]V) (V, bool) {
	var none V
	if len(m) == 0 {
		return none, false
	}
	keys := api.SortedKeys(m)
	return m[keys[rng.Intn(len(keys))]], true
}

func (w *world) newGang() {
	queue := worldQueues[w.rng.Intn(len(worldQueues))]
	name := fmt.Sprintf("g%d", w.rng.Intn(24))
	if w.some(4) {
		w.makePod(fmt.Sprintf("single%d", w.rng.Intn(12)), "", queue, 1+w.rng.Int63n(3), w.some(2))
		return
	}
	if w.groups[name] != nil {
		return
	}
	least := 1 + w.rng.Intn(4)
	cpu := 1 + w.rng.Int63n(2)
	if int64(least)*cpu > w.caps[queue] {
		cpu = 1
	}
	owned := w.some(2)
	if w.some(4) {
		for i := range least + w.rng.Intn(2) {
			w.makeImplied(fmt.Sprintf("i%s-%d", name, i), "i"+name+"/u", queue, cpu, owned, least)
		}
		return
	}
	if w.some(2) {
		w.makeGroup(name, queue, least)
	} else {
		w.again = append(w.again, func() {
			if w.groups[name] == nil {
				w.makeGroup(name, queue, least)
			}
		})
	}
	for i := range least + w.rng.Intn(4) {
		w.makePod(fmt.Sprintf("%s-%d", name, i), name, "", cpu, owned)
	}
}

func (w *world) chaos() {
	switch n := w.rng.Intn(100); {
	case n < 30:
		if len(w.net) > 0 {
			for range 1 + w.rng.Intn(12) {
				if len(w.net) > 0 {
					w.carry(w.rng.Intn(min(len(w.net), 6)))
				}
			}
		}
	case n < 75:
		p := w.procs[w.rng.Intn(len(w.procs))]
		if !p.dead {
			kind := w.rng.Intn(4)
			for range 1 + w.rng.Intn(12) {
				w.deliver(p, kind)
			}
		}
	case n < 86:
		w.advance(time.Duration(w.rng.Intn(150)) * time.Millisecond)
	case n < 89:
		w.newGang()
		w.newGang()
	case n < 92: // a bound pod finishes
		for range 3 {
			if p, ok := pickOne(w.rng, w.pods); ok && p.node != "" && !p.finished && w.now.Sub(p.boundAt) > 2*time.Second {
				w.finish(p)
			}
		}
	case n < 94: // a pod is deleted
		if p, ok := pickOne(w.rng, w.pods); ok {
			if p.finished || w.some(3) {
				w.removePod(p)
			} else if p.gated {
				p.gated = false
				w.changed(p)
			}
		}
	case n < 95: // a PodGroup is deleted, and maybe made again at once
		if g, ok := pickOne(w.rng, w.groups); ok && w.some(2) {
			if !g.implied {
				w.removeGroup(g)
				if w.some(2) {
					w.makeGroup(g.name, g.queue, g.min)
				}
			}
			if g.implied || w.some(2) {
				for _, name := range api.SortedKeys(w.pods) {
					if p := w.pods[name]; p.group == g.name {
						w.removePod(p)
					}
				}
			}
		}
	case n < 97:
		again := w.again
		w.again = nil
		for _, f := range again {
			f()
		}
		if len(w.late) > 0 && w.some(2) {
			o := w.late[0]
			w.late = w.late[1:]
			w.bind(o)
		}
	case n < 98:
		if g, ok := pickOne(w.rng, w.groups); ok && w.some(6) && !g.implied {
			g.min = 1 + w.rng.Intn(4)
			g.least = min(g.least, g.min)
			g.completed = g.ever >= g.least
			g.generation++
			w.objLog = append(w.objLog, w.groupSeen(g))
		}
		if w.some(20) {
			w.elect()
		}
	case n < 99:
		switch {
		case w.some(3):
			w.tellKnown()
		case w.some(2):
			w.evictOne()
		default:
			w.shrinkOne()
		}
		w.tellYields()
	default:
		if w.some(12) {
			w.change()
		}
	}
	if *follow == "" {
		w.trail = w.trail[max(0, len(w.trail)-200):]
	}
}

// change replaces, adds or removes a shard.
func (w *world) change() {
	members := w.members()
	switch {
	case len(members) > 1 && w.some(2), len(members) > 3:
		i := w.rng.Intn(len(members))
		w.end(members[i])
		members = slices.Delete(members, i, i+1)
	case w.some(2):
		i := w.rng.Intn(len(members))
		w.end(members[i])
		members[i] = w.start().inc
	default:
		members = append(members, w.start().inc)
	}
	w.move(members)
}

// end makes a shard die; some go on for a while before they notice.
func (w *world) end(inc api.Incarnation) {
	p := w.proc(inc)
	w.placed, w.rolledBack, w.gaveUp = w.placed+p.home.Placed, w.rolledBack+p.home.RolledBack, w.gaveUp+p.home.GaveUp
	if w.some(3) {
		p.zombie = w.now.Add(time.Duration(w.rng.Intn(5000)) * time.Millisecond)
	} else {
		p.dead = true
	}
}

// flush delivers everything there is.
func (w *world) flush() {
	for rounds := 0; rounds < 100000; rounds++ {
		busy := false
		if len(w.net) > 0 {
			w.carry(0)
			busy = true
		}
		for _, p := range w.procs {
			for kind := range 4 {
				busy = !p.dead && w.deliver(p, kind) || busy
			}
		}
		if !busy {
			return
		}
	}
	w.failf("does not come to rest: %d messages", len(w.net))
}

// calm ends all faults, lets pods finish some time after they were bound, and looks at what is left.
func (w *world) calm() {
	w.calmed = true
	for _, o := range w.late {
		w.bind(o)
	}
	w.late = nil
	for _, p := range w.procs {
		if !p.zombie.IsZero() {
			p.dead = true
		}
	}
	for _, name := range api.SortedKeys(w.pods) {
		if p := w.pods[name]; p.gated {
			p.gated = false
			w.changed(p)
		}
	}
	for i := range 6000 {
		again := w.again
		w.again = nil
		for _, f := range again {
			f()
		}
		w.flush()
		w.advance(100 * time.Millisecond)
		if i%300 == 0 {
			w.tellKnown()
		}
		if i%10 == 0 {
			w.tellYields()
		}
		for _, name := range api.SortedKeys(w.pods) {
			if p := w.pods[name]; p.node != "" && !p.finished && w.now.Sub(p.boundAt) > 15*time.Second {
				g := w.groups[p.group]
				// A gang has its minimum, too, with pods that ended and were bound before its home knew of them.
				late := i > 3000 && (!p.owned || g != nil && shows(g.status, v1beta1.ConditionPodGroupInitiallyScheduled))
				if g == nil || w.gangOf(p) != g.uid || g.completed || late {
					w.finish(p)
				}
			}
		}
	}
	w.flush()
	for _, p := range w.procs {
		if !p.dead {
			w.placed, w.rolledBack, w.gaveUp = w.placed+p.home.Placed, w.rolledBack+p.home.RolledBack, w.gaveUp+p.home.GaveUp
		}
	}
	if *follow == "" {
		w.trail = nil
	}
	for _, name := range api.SortedKeys(w.groups) {
		g := w.groups[name]
		pods, left, running, owned, cpu := 0, 0, 0, true, int64(0)
		before := false // pods of the PodGroup that had the name before are its own if they outlived that one
		for _, p := range w.pods {
			before = before || p.group == name && p.node != "" && p.boundFor != g.uid
			ended := p.finished && p.boundFor != g.uid // for the PodGroup that had the name before
			if p.group == name && (p.node == "" || w.gangOf(p) == g.uid && !ended) {
				pods++
				cpu = max(cpu, p.cpu)
				if p.node != "" && !p.finished {
					running++
					owned = owned && p.owned // others are not removed
				}
				if p.node == "" {
					left++
				}
			}
		}
		if cpu*int64(g.min) > w.caps[g.queue] {
			continue // its queue never has as much: minCount was raised
		}
		if pods >= g.min && left > 0 {
			w.failf("PodGroup %s (minCount %d) has %d pods of which %d are not bound: %s", g.uid, g.min, pods, left, w.explain(g.uid))
		}
		if pods >= g.min && !g.implied && (g.status == nil || !shows(g.status, v1beta1.ConditionPodGroupInitiallyScheduled)) {
			w.failf("PodGroup %s does not say that it was scheduled: %+v %s", g.uid, g.status, w.explain(g.uid))
		}
		if pods < g.min && running > 0 && owned && !g.completed && !g.mixed && !before {
			w.failf("PodGroup %s is bound in part: %d of %d pods, minCount %d: %s", g.uid, running, pods, g.min, w.explain(g.uid))
		}
	}
	for _, name := range api.SortedKeys(w.pods) {
		if p := w.pods[name]; p.group == "" && p.node == "" {
			w.failf("pod %s is not bound: %s", p.uid, w.explain(p.uid))
		}
	}
	for _, key := range api.SortedKeys(w.charged) {
		needed := false
		for _, p := range w.pods {
			needed = needed || p.node != "" && !p.finished && w.gangOf(p) == w.charged[key].ref.Uid
		}
		for _, s := range w.charged[key].condemned {
			if w.running(s.Uid) {
				w.failf("pod %s is condemned, and runs on", s.Uid)
			}
		}
		if !needed {
			w.failf("reservation %s of %s is left over: %s", key, w.charged[key].demand, w.explain(w.charged[key].ref.Uid))
		}
	}
	for _, p := range w.procs {
		if st := p.node.Stats(); !p.dead && (st.Holds > 0 || st.Rows > 0) {
			w.failf("%s has %d holds and %d rows left", p.inc, st.Holds, st.Rows)
		}
	}
}

func (w *world) running(uid string) bool {
	for _, p := range w.pods {
		if p.uid == uid && p.node != "" && !p.finished {
			return true
		}
	}
	return false
}

func (w *world) explain(uid string) string {
	var out []string
	for _, p := range w.procs {
		if g := p.home.gangs[uid]; g != nil && !p.dead {
			out = append(out, fmt.Sprintf("%s has it %s (started %t placed %d reserved %t ask %+v tally %+v why %+v sleep %+v withdraw %+v lost %v) wake in %s",
				p.inc, g.state, g.started, g.tally.placed, g.charge.reserved(), g.charge.reserve, g.tally, g.blocked,
				g.search.sleep, g.withdraw, g.lost, g.wake.Sub(w.now)))
		}
	}
	if len(out) == 0 {
		for _, p := range w.procs {
			if !p.dead {
				out = append(out, fmt.Sprintf("%s is at table %d of %d, gains %d, pods %d of %d, objects %d of %d, %d pending",
					p.inc, p.home.table.Epoch, w.epoch, len(p.home.takeover.gaining),
					p.pods, len(w.podLog), p.objects, len(w.objLog), len(p.pending)))
			}
		}
	}
	for _, name := range api.SortedKeys(w.pods) {
		if p := w.pods[name]; w.groups[p.group] != nil && w.groups[p.group].uid == uid {
			out = append(out, fmt.Sprintf("%+v of %s", p, w.gangOf(p)))
		}
	}
	for _, key := range api.SortedKeys(w.charged) {
		out = append(out, fmt.Sprintf("%s is charged %s", key, w.charged[key].demand))
	}
	return strings.Join(out, "; ")
}
