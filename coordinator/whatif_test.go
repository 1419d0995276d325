package coordinator

import (
	"fmt"
	"math/rand"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// snapshot writes down all that a core refers to, by where it is: the bytes of each object that can be reached from it. Two snapshots of one
// core are the same only if nothing was changed in place, replaced or put into another order. Messages are compared by their fields: their
// encoding caches sizes in them.
func snapshot(c *Core) map[string]string {
	s := &walker{out: map[string]string{}, seen: map[string]bool{}}
	s.object("core", reflect.ValueOf(c))
	return s.out
}

type walker struct {
	out  map[string]string // by address and type
	seen map[string]bool
}

var message = reflect.TypeFor[proto.Message]()

// object writes down what a pointer points to, once.
func (s *walker) object(path string, p reflect.Value) {
	key := fmt.Sprintf("%x %s", p.Pointer(), p.Type())
	if s.seen[key] || p.IsNil() {
		return
	}
	s.seen[key] = true
	if p.Type().Implements(message) {
		m := reflect.NewAt(p.Type().Elem(), p.UnsafePointer()).Interface().(proto.Message)
		b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
		s.out[key] = fmt.Sprintf("%s %v %x", path, err, b)
		return
	}
	var b strings.Builder
	s.value(path, &b, p.Elem())
	s.out[key] = path + " " + b.String()
}

func (s *walker) value(path string, b *strings.Builder, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		fmt.Fprintf(b, "%x ", v.Pointer())
		s.object(path, v)
	case reflect.Interface:
		if v.IsNil() {
			b.WriteString("nil ")
			return
		}
		b.WriteString(v.Elem().Type().String() + " ")
		s.value(path, b, v.Elem())
	case reflect.Slice:
		fmt.Fprintf(b, "%x:%d:%d[", v.Pointer(), v.Len(), v.Cap())
		for i := range v.Len() {
			s.value(path, b, v.Index(i))
		}
		b.WriteString("] ")
	case reflect.Array:
		for i := range v.Len() {
			s.value(path, b, v.Index(i))
		}
	case reflect.Struct:
		b.WriteString("{")
		for i := range v.NumField() {
			f := v.Field(i)
			fmt.Fprintf(b, "%s:", v.Type().Field(i).Name)
			s.value(path+"."+v.Type().Field(i).Name, b, f)
		}
		b.WriteString("} ")
	case reflect.Map:
		var entries []string
		for i := v.MapRange(); i.Next(); {
			var e strings.Builder
			s.value(path, &e, i.Key())
			s.value(path, &e, i.Value())
			entries = append(entries, e.String())
		}
		slices.Sort(entries)
		fmt.Fprintf(b, "%x%v ", v.Pointer(), entries)
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		fmt.Fprintf(b, "%x ", v.Pointer())
	case reflect.String:
		fmt.Fprintf(b, "%q ", v.String())
	case reflect.Bool:
		fmt.Fprintf(b, "%t ", v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		fmt.Fprintf(b, "%d ", v.Int())
	case reflect.Float32, reflect.Float64:
		fmt.Fprintf(b, "%g ", v.Float())
	default:
		fmt.Fprintf(b, "%d ", v.Uint())
	}
}

// changed names an object that two snapshots say something else of, "" if there is none.
func changed(before, after map[string]string) string {
	for _, key := range api.SortedKeys(after) {
		if before[key] != after[key] {
			a, b := before[key], after[key]
			at := 0
			for at < min(len(a), len(b)) && a[at] == b[at] {
				at++
			}
			from := max(0, at-80)
			return fmt.Sprintf("%s: %.200q is now %.200q", key, a[min(from, len(a)):], b[min(from, len(b)):])
		}
	}
	if len(before) != len(after) {
		return fmt.Sprintf("it refers to %d objects, and did to %d", len(after), len(before))
	}
	return ""
}

// A snapshot sees each kind of change, or the tests that rest on it show nothing.
func TestSnapshotSeesChanges(t *testing.T) {
	w := newWorld(7)
	for range 200 {
		w.random()
	}
	c := w.core
	judged := slices.IndexFunc(c.ring, func(r *request) bool { return r.demandClass != nil })
	waits := c.ring[judged]
	leaf := waits.queue
	for what, change := range map[string]func(){
		"a field of the core":     func() { c.tree.linedUp = c.tree.linedUp.Add(1) },
		"a field of the tree":     func() { c.tree.dirty = !c.tree.dirty },
		"a field of a queue":      func() { leaf.report.reported = !leaf.report.reported },
		"an element of a vector":  func() { c.tree.root.charged[0].lo++ },
		"a copy of a vector":      func() { c.tree.root.charged = slices.Clone(c.tree.root.charged) },
		"a field of a request":    func() { waits.told = waits.told.Add(1) },
		"an entry of a map":       func() { leaf.order.classOf["x"] = nil },
		"the order of requests":   func() { slices.Reverse(c.ring) },
		"a record":                func() { c.tree.root.limits.record.Generation++ },
		"the reason of a denial":  func() { waits.demandClass.denied.short++ },
		"what another is blocked": func() { c.tree.root.order.blocked = map[*queue]int{} },
	} {
		before := snapshot(c)
		if diff := changed(before, snapshot(c)); diff != "" {
			t.Fatalf("nothing changed: %s", diff)
		}
		if change(); changed(before, snapshot(c)) == "" {
			t.Errorf("%s is not seen", what)
		}
	}
}

// TestWhatIfChangesNothing asks in the course of random histories. No question changes anything that the core refers to, and a core that is
// asked does the same as one that is not.
func TestWhatIfChangesNothing(t *testing.T) {
	seeds, steps := int64(6), 400
	if testing.Short() {
		seeds = 2
	}
	var asked, invalid, differ, gangs, tolls, granted, moved int
	for seed := range seeds {
		run := func(ask func(*world)) []string {
			w := newWorld(seed)
			var out []string
			w.hears = func(o Output) {
				t, is := o.(Txn)
				if !is {
					out = append(out, fmt.Sprintf("%T %v", o, o))
				}
				for _, op := range t.Ops {
					out = append(out, fmt.Sprint(t.ID, showOp(op)))
				}
			}
			for range steps {
				w.random()
				ask(w)
			}
			for _, key := range api.SortedKeys(w.store.reservations) {
				out = append(out, fmt.Sprint(key, w.store.revisions[key], w.store.reservations[key]))
			}
			return append(out, fmt.Sprint(w.store.revision, w.grants, w.denials, w.mandates, w.claims, w.serial,
				w.core.reports.version, w.rng.Int63()))
		}
		alone := run(func(*world) {})
		rng := rand.New(rand.NewSource(seed))
		with := run(func(w *world) {
			if rng.Intn(4) > 0 {
				return
			}
			q := question(rng, w)
			before := snapshot(w.core)
			m := w.core.WhatIf(w.now, q)
			if diff := changed(before, snapshot(w.core)); diff != "" {
				t.Fatalf("seed %d: %+v changes the core: %s", seed, q, diff)
			}
			if asked++; m.Invalid != "" {
				invalid++
			}
			differ += len(m.Queues)
			for _, g := range m.Gangs {
				gangs++
				if g.Before.GetToll() != nil || g.After.GetToll() != nil {
					tolls++
				}
				if g.After.GetGranted() {
					granted++
				}
				if g.After != nil && !proto.Equal(g.Before, g.After) {
					moved++
				}
			}
		})
		for i := range max(len(alone), len(with)) {
			if i >= len(alone) || i >= len(with) || alone[i] != with[i] {
				t.Fatalf("seed %d: questions change what a core does, at output %d of %d and %d: %.300q and %.300q", seed, i, len(alone), len(with), alone[min(i, len(alone)-1)], with[min(i, len(with)-1)])
			}
		}
	}
	t.Logf("%d questions, %d invalid, %d queues, %d gangs, %d would be granted, %d stand otherwise, %d tolls", asked, invalid, differ, gangs, granted, moved, tolls)
	if n := int(seeds); asked-invalid < 20*n || invalid < n || differ < 20*n || granted < n || moved < 3*n || tolls < n/4 {
		t.Errorf("the questions show nothing")
	}
}

// question draws one.
func question(rng *rand.Rand, w *world) (q Question) {
	some := func() string {
		if there := api.SortedKeys(w.specs); rng.Intn(20) > 0 {
			return there[rng.Intn(len(there))]
		}
		return paths[rng.Intn(len(paths))]
	}
	vector := func() api.Resources {
		return api.FromMap(map[string]int64{"cpu": int64(rng.Intn(12)), "memory": int64(rng.Intn(20))})
	}
	for range rng.Intn(4) {
		edits := edits(rng, vector)
		q.Changes = append(q.Changes, Change{Queue: some(), Apply: edits[rng.Intn(len(edits))]})
	}
	switch rng.Intn(4) {
	case 0:
		if q.Queue = some(); len(w.core.roster.charged) > 0 && rng.Intn(2) == 0 { // where somebody has something
			uids := api.SortedKeys(w.core.roster.charged)
			q.Queue = w.core.roster.charged[uids[rng.Intn(len(uids))]].key.queue
			q.Changes = append(q.Changes, Change{Queue: api.RootQueue, Apply: edits(rng, vector)[8]})
		}
		q.Planned = &wire.PlannedGang{Namespace: namespaces[rng.Intn(len(namespaces))], Queue: q.Queue, Demand: wire.FromResources(vector().Positive()), Further: wire.FromResources(vector().Positive()), Pods: 1 + uint32(rng.Intn(3)),
			Priority: int64(rng.Intn(3)), Claims: rng.Intn(4) > 0}
	case 1:
		q.Queue = some()
	case 2:
		if n := len(w.core.ring); n > 0 {
			g := w.core.ring[rng.Intn(n)].gang
			q.Queue, q.GangUID = g.key.queue, g.key.uid
		}
	}
	if len(q.Changes) == 0 && q.Queue == "" {
		q.Queue = some()
	}
	return q
}

// edits are changes of a spec.
func edits(rng *rand.Rand, vector func() api.Resources) []func(*QueueSeen) {
	return []func(*QueueSeen){
		func(o *QueueSeen) { o.Capability = vector() },
		func(o *QueueSeen) { o.Capability = o.Capability.Add(vector()).Positive() },
		func(o *QueueSeen) { o.Guarantee = o.Guarantee.Min(vector()).Positive() },
		func(o *QueueSeen) { o.Deserved = vector() },
		func(o *QueueSeen) { o.Capability, o.Deserved = nil, o.Deserved.Add(vector()) },
		func(o *QueueSeen) { o.Capability, o.Guarantee, o.Deserved = nil, nil, nil },
		func(o *QueueSeen) { o.Weight = new(uint32(rng.Intn(4))) },
		func(o *QueueSeen) { o.Priority = int32(rng.Intn(3)) },
		func(o *QueueSeen) {
			o.Policy = &wire.QueuePolicy{Reclaim: wire.Reclaim(rng.Intn(3)), Preempts: new(rng.Intn(4) > 0), PreemptionDelayMs: new(int64(rng.Intn(3000))), PreemptMinRuntimeMs: new(int64), ReclaimMinRuntimeMs: new(int64)}
		},
		func(o *QueueSeen) { o.Closed = !o.Closed },
	}
}

// BenchmarkWhatIf asks a core with so many gangs that wait, of so many different demands in each queue; half as many again are charged, and
// the queues take from one another.
func BenchmarkWhatIf(b *testing.B) {
	for _, shape := range []struct{ queues, waiting, unlike int }{{100, 10_000, 10}, {1000, 100_000, 100}, {10, 100_000, 1 << 30}} {
		c := newCommitting(nil)
		path := func(i int) string { return fmt.Sprintf("q%d.x%d", i%shape.queues%20, i%shape.queues) }
		fair := &wire.QueuePolicy{Reclaim: wire.Reclaim_RECLAIM_FAIR_SHARE, ReclaimMinRuntimeMs: new(int64), Preempts: new(true)}
		charged := int64(shape.waiting / 2)
		queue := func(path string, cpu, deserved int64) {
			c.step(QueueSeen{Name: path, UID: "u", ResourceVersion: "1", HasFinalizer: true, Policy: fair, Capability: api.FromMap(map[string]int64{"cpu": cpu * 1000, "memory": 1 << 60, "pods": 1 << 40}),
				Deserved: api.FromMap(map[string]int64{"cpu": deserved * 1000})})
		}
		queue("root", charged, 0)
		for i := range 20 {
			queue(fmt.Sprint("q", i), charged, charged/40)
		}
		for i := range shape.queues {
			queue(path(i), charged, max(1, charged/int64(shape.queues)/2))
		}
		for i := range int(charged) + shape.waiting {
			demand := map[string]int64{"cpu": 1000, "memory": 1<<30 + int64(i/shape.queues%shape.unlike), "pods": 1}
			n := i
			if i < int(charged) { // some queues have much
				n = i % 7 % max(1, shape.queues/2) * 2
			}
			c.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{Gang: &wire.GangRef{Uid: fmt.Sprint("g", i), Namespace: "ns", Name: "g", Queue: path(n)}, Attempt: 1, Serial: 1, TableEpoch: 1,
				SinceUnixMs: int64(i), Demand: wire.FromResources(api.FromMap(demand)), Priority: int64(n % 3), Preemptible: true, Claims: true}}}})
		}
		if len(c.core.ring) != shape.waiting {
			b.Fatalf("%d wait", len(c.core.ring))
		}
		c.now = c.now.Add(20 * time.Second)
		up := func(o *QueueSeen) { o.Deserved = o.Deserved.Add(api.FromMap(map[string]int64{"cpu": 5000})) }
		for _, q := range []struct {
			name string
			Question
		}{
			{"planned", Question{Planned: &wire.PlannedGang{Namespace: "ns", Queue: path(1), Pods: 10, Demand: wire.FromResources(api.FromMap(map[string]int64{"cpu": 10_000, "pods": 10})), Claims: true}}},
			{"change", Question{Changes: []Change{{path(1), up}}}},
			{"no reclaim", Question{Changes: []Change{{"root", func(o *QueueSeen) { o.Policy = &wire.QueuePolicy{Reclaim: wire.Reclaim_RECLAIM_NEVER} }}}}},
			{"32 changes", Question{Changes: slices.Collect(func(yield func(Change) bool) {
				for i := range changesAtMost {
					yield(Change{path(i), up})
				}
			})}},
		} {
			b.Run(fmt.Sprintf("%d queues, %d wait, %s", shape.queues, shape.waiting, q.name), func(b *testing.B) {
				b.ReportAllocs()
				var m *wire.WhatIfReply
				began := cpuTime()
				for b.Loop() {
					m = c.core.WhatIf(c.now, q.Question)
				}
				b.ReportMetric(float64((cpuTime()-began).Microseconds())/1000/float64(b.N), "cpu-ms/op")
				if m.Invalid != "" {
					b.Fatal(m.Invalid)
				}
				tolls := 0
				for _, g := range m.Gangs {
					if g.After.GetToll() != nil || g.Before.GetToll() != nil {
						tolls++
					}
				}
				b.ReportMetric(float64(m.QueuesTotal), "queues")
				b.ReportMetric(float64(m.GangsTotal), "gangs")
				b.ReportMetric(float64(tolls), "tolls")
				b.ReportMetric(float64(proto.Size(m)), "bytes")
			})
		}
	}
}

// cpuTime is what this process has used of processors: a machine may be busy with others.
func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
