package coordinator

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// BenchmarkMandate gives one gang a mandate, where so many gangs in 200 queues may be evicted for it.
func BenchmarkMandate(b *testing.B) {
	for _, gangs := range []int{1000, 10_000, 100_000} {
		b.Run(fmt.Sprint(gangs), func(b *testing.B) {
			now := time.UnixMilli(1_000_000)
			c := New(Config{}, Elected{Now: now, Term: 1, Shards: []*wire.ShardRecord{{Name: "s1", Incarnation: "s1"}}})
			step := func(ev Event) { tell(c, now, ev, nil) }
			cpu := func(n int) api.Resources { return api.FromMap(map[string]int64{"cpu": int64(n) * 1000}) }
			queue := func(name string, capability, deserved api.Resources) {
				step(QueueSeen{Name: name, UID: "u", ResourceVersion: "1", HasFinalizer: true, Capability: capability, Deserved: deserved,
					Policy: &wire.QueuePolicy{ReclaimMinRuntimeMs: new(int64(0)), PreemptionDelayMs: new(int64(0))}})
			}
			queue("root", cpu(gangs), nil)
			queue("a", nil, cpu(gangs/2))
			for i := range 200 {
				queue(fmt.Sprintf("q%d", i), nil, cpu(1))
			}
			step(QueuesSynced{})
			now = now.Add(2 * time.Second)
			step(Tick{})
			serial := uint64(0)
			reserve := func(uid, queue string, demand api.Resources) {
				serial++
				step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{Gang: &wire.GangRef{Uid: uid, Queue: queue},
					Attempt: 1, Serial: serial, TableEpoch: 1, SinceUnixMs: int64(serial), Demand: wire.FromResources(demand), Preemptible: true, Claims: true}}}})
			}
			for i := range gangs {
				now = now.Add(time.Millisecond)
				reserve(fmt.Sprint("g", i), fmt.Sprintf("q%d", i%200), cpu(1))
			}
			reserve("claimant", "a", cpu(gangs/100))
			g := c.roster.gangs[gangKey{"a", "claimant"}]
			if g.req == nil || len(c.ring) != 1 {
				b.Fatal("it does not wait")
			}
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			began, candidates := threadTime(), 0
			for b.Loop() {
				c.mandates.end(g)
				g.pause = pause{}
				_, said := c.mandates.give(now, g)
				if said == nil {
					b.Fatal("no mandate")
				}
				candidates = len(said.body.GetMandate().Candidates)
			}
			b.ReportMetric(float64((threadTime()-began).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
			b.ReportMetric(float64(candidates), "candidates")
		})
	}
}

// TestMandateLooksAtAllQueues: a queue with more gangs than a mandate looks at leaves a part of them to the queues after it, which have more
// above what they deserve.
func TestMandateLooksAtAllQueues(t *testing.T) {
	r := newRush(false)
	const large, small = lookedAtMost + 500, 300
	r.queue("root", rushCPU(large+small), nil)
	r.queue("a", nil, rushCPU(10))
	r.queue("b0", nil, rushCPU(large-20))
	r.queue("b1", nil, rushCPU(1))
	r.step(QueuesSynced{})
	r.step(ShardLinked{Incarnation: "s1"})
	r.pass(2 * time.Second)
	for i := range large {
		r.reserve(fmt.Sprint("l", i), "b0", 1)
	}
	for i := range small {
		r.reserve(fmt.Sprint("s", i), "b1", 1)
	}
	if !r.until(time.Hour, func() bool { return len(r.granted) == large+small }) {
		t.Fatalf("%d granted", len(r.granted))
	}
	a := ask{queue: r.core.tree.byPath["a"], demand: rushCPU(10)}
	rule, s := r.core.ledger.offerFor(r.now, &gang{}, a, a.lacks(), 0, &r.core.mandates.found)
	if rule != wire.Rule_RULE_RECLAIM || !s.enough || s.looked > lookedAtMost || s.looked < lookedAtMost-1 {
		t.Errorf("%v, enough %t, after a look at %d gangs", rule, s.enough, s.looked)
	}
	for _, v := range s.first() {
		if v.side.queue.path != "b1" {
			t.Errorf("gang %s of queue %s goes first", v.uid, v.side.queue.path)
		}
	}
}

// askAs is ask for a gang of a namespace.
func (r *rush) askAs(namespace, uid, queue string, demand api.Resources) {
	r.serial++
	r.say(&wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{
		Gang: &wire.GangRef{Uid: uid, Queue: queue, Namespace: namespace}, Attempt: 1, Serial: r.serial, TableEpoch: 1,
		SinceUnixMs: r.now.UnixMilli(), Demand: wire.FromResources(demand), Preemptible: true, Claims: true}}})
}

// stuck has the gangs of a queue say that they find no room.
func (r *rush) stuck(queue string, uids ...string) {
	for _, uid := range uids {
		g := r.core.roster.gangs[gangKey{queue, uid}]
		r.say(&wire.Envelope{Body: &wire.Envelope_Stuck{Stuck: &wire.Stuck{
			Gang: g.ref, Attempt: g.attempt, Serial: g.serial, TableEpoch: 1}}})
	}
}

// TestMandateOfUnjudged: a gang that came when the transaction was full is not judged yet. It waits for the
// preemptionDelay from its own denial on, though a gang that asks for the same was denied before.
func TestMandateOfUnjudged(t *testing.T) {
	r := newRush(false)
	r.queue("root", rushCPU(10), nil)
	r.queue("a", nil, rushCPU(5))
	r.queue("b", nil, rushCPU(1))
	r.step(QueuesSynced{})
	r.step(ShardLinked{Incarnation: "s1"})
	r.pass(2 * time.Second)
	for _, uid := range numbered("b", 10) {
		r.reserve(uid, "b", 1)
	}
	fillers := numbered("m", 2*r.core.cfg.BatchOps)
	for _, uid := range fillers {
		r.ask(uid, "b", api.FromMap(map[string]int64{"memory": 1}))
	}
	r.pass(preemptDelay) // a has been short for so long
	ask := func(uid string, priority int64, claims bool) {
		r.serial++
		r.say(&wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{
			Gang: &wire.GangRef{Uid: uid, Queue: "a"}, Attempt: 1, Serial: r.serial, TableEpoch: 1,
			SinceUnixMs: r.now.UnixMilli(), Priority: priority,
			Demand: wire.FromResources(rushCPU(1)), Preemptible: true, Claims: claims}}})
	}
	ask("first", 0, false) // nobody is evicted for it
	r.pass(time.Second)
	r.ask("occasion", "b", api.FromMap(map[string]int64{"memory": 1})) // what comes next waits for the next transaction
	ask("second", 1, true)
	for _, uid := range fillers {
		g := r.core.roster.gangs[gangKey{"b", uid}]
		r.serial++
		r.say(&wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{
			Gang: g.ref, Attempt: 1, Serial: r.serial, TableEpoch: 1}}})
	}
	r.pass(rushStore)
	second := r.core.roster.gangs[gangKey{"a", "second"}]
	if second == nil || second.req == nil || !second.req.lacking.IsZero() || r.core.flight == nil {
		t.Fatalf("it was judged, or no transaction is in flight: %+v", second)
	}
	came := r.since()
	if r.step(Tick{}); second.mandate != nil {
		t.Error("a mandate for a gang that was not denied yet")
	}
	if !r.until(time.Minute, func() bool { return r.accepted["second"] > 0 }) || r.accepted["second"] < came+preemptDelay {
		t.Errorf("its claim was accepted after %v, the preemptionDelay is %v", r.accepted["second"]-came, preemptDelay)
	}
}

// flooded is a world in which b borrows what is there, and a and v are entitled to it.
func flooded() *rush {
	r := newRush(false)
	r.queue("root", rushCPU(400), nil)
	r.queue("a", nil, rushCPU(1000))
	r.queue("b", nil, rushCPU(1))
	r.queue("v", nil, rushCPU(5))
	r.step(QueuesSynced{})
	r.step(ShardLinked{Incarnation: "s1"})
	r.pass(2 * time.Second)
	return r
}

func numbered(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(prefix, i))
	}
	return out
}

// TestMandatesInTurn: whatever the gangs of one tenant do, a gang of another one that may claim gets a mandate soon.
func TestMandatesInTurn(t *testing.T) {
	const soon = 10 * time.Second
	for _, c := range []struct {
		name  string
		world func(r *rush) (queue string) // of the gang "victim"
	}{
		{"300 gangs find no room, and get no mandate", func(r *rush) string { // nobody in their own queue may be evicted
			for _, uid := range numbered("b", 80) {
				r.reserve(uid, "b", 1)
			}
			for _, uid := range numbered("s", 300) {
				r.reserve(uid, "b", 1)
			}
			r.reserve("victim", "v", 1)
			r.pass(time.Second)
			r.stuck("b", numbered("s", 300)...)
			r.stuck("v", "victim")
			return "v"
		}},
		{"200 gangs of ten queues find no room, and get no mandate", func(r *rush) string {
			for _, queue := range numbered("c", 10) {
				r.queue(queue, nil, rushCPU(1))
				for _, uid := range numbered(queue+"-", 20) {
					r.reserve(uid, queue, 1)
				}
			}
			r.reserve("victim", "v", 1)
			r.pass(time.Second)
			for _, queue := range numbered("c", 10) {
				r.stuck(queue, numbered(queue+"-", 20)...)
			}
			r.stuck("v", "victim")
			return "v"
		}},
		{"300 gangs find no room, and no plan", func(r *rush) string {
			for _, uid := range numbered("b", 90) {
				r.reserve(uid, "b", 1)
			}
			for _, uid := range numbered("s", 300) {
				r.reserve(uid, "a", 1)
			}
			r.reserve("victim", "v", 1)
			r.pass(time.Second)
			r.home = time.Hour
			r.stuck("a", numbered("s", 300)...)
			r.stuck("v", "victim")
			return "v"
		}},
		{"300 gangs find no room, of another namespace", func(r *rush) string {
			for _, uid := range numbered("b", 90) {
				r.reserve(uid, "b", 1)
			}
			for _, uid := range numbered("s", 300) {
				r.askAs("evil", uid, "a", rushCPU(1))
			}
			r.askAs("good", "victim", "a", rushCPU(1))
			r.pass(time.Second)
			r.home = time.Hour
			r.stuck("a", numbered("s", 300)...)
			r.stuck("a", "victim")
			return "a"
		}},
		{"100 first ones of the queue ask for more than it deserves", func(r *rush) string {
			r.reserve("x", "b", 400)
			r.pass(time.Second)
			for i, uid := range numbered("s", 100) {
				r.askAs("evil", uid, "v", rushCPU(6+i))
			}
			r.pass(time.Second)
			r.askAs("good", "victim", "v", rushCPU(1))
			return "v"
		}},
		{"1000 first ones of the queue find no plan", func(r *rush) string {
			r.queue("v", nil, rushCPU(2000))
			for _, uid := range numbered("b", 400) {
				r.reserve(uid, "b", 1)
			}
			r.pass(time.Second)
			r.askInVain(1000)
			r.askAs("good", "victim", "v", rushCPU(1))
			return "v"
		}},
		{"100 gangs whose home answers nothing have mandates", func(r *rush) string {
			for _, uid := range numbered("b", 400) {
				r.reserve(uid, "b", 1)
			}
			r.pass(time.Second)
			r.home = time.Hour
			for _, uid := range numbered("s", 100) {
				r.reserve(uid, "a", 1)
			}
			r.until(time.Minute, func() bool { return len(r.core.mandates.open) > 0 })
			r.pass(time.Second)
			if open := len(r.core.mandates.open); open != mandatesAtOnce-mandatesKept {
				t.Errorf("%d mandates", open)
			}
			r.reserve("victim", "v", 1)
			return "v"
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := flooded()
			g := r.core.roster.gangs[gangKey{c.world(r), "victim"}]
			if g == nil {
				t.Fatal("no gang")
			}
			if !r.until(preemptDelay+soon, func() bool { return g.mandate != nil }) {
				t.Errorf("no mandate after %v; pause %+v", preemptDelay+soon, g.pause)
			}
		})
	}
}

// askInVain has n gangs of a tenant ask in a queue, and all that wait rest for an hour, as no plan was found for them.
func (r *rush) askInVain(n int) {
	for _, uid := range numbered("s", n) {
		r.askAs("evil", uid, "v", rushCPU(1))
	}
	r.pass(time.Second)
	for _, g := range r.core.roster.gangs {
		if g.req != nil {
			g.rest(r.now, r.core.tree.version, "no plan")
			g.pause.until = r.now.Add(time.Hour)
		}
	}
}

// TestMandatesLookAtFewOfATenant: behind so many of its namespace that no plan was found for, a gang is not looked at,
// and one of another namespace is.
func TestMandatesLookAtFewOfATenant(t *testing.T) {
	r := flooded()
	r.queue("v", nil, rushCPU(2000))
	r.reserve("b", "b", 400)
	r.pass(time.Second)
	r.askInVain(seenOfTenant)
	r.askAs("evil", "last", "v", rushCPU(1))
	r.askAs("good", "victim", "v", rushCPU(1))
	r.pass(time.Second)
	var found []string
	for _, g := range firstOf(r.now, r.core.tree.version, r.core.tree.byPath["v"], firstOfTenant, seenOfTenant, nil) {
		found = append(found, g.key.uid)
	}
	if !slices.Equal(found, []string{"victim"}) {
		t.Errorf("looks at %v", found)
	}
}

// An offer that is large enough to choose from has so many gangs, and four times of everything that is lacking.
func TestPlenty(t *testing.T) {
	for _, c := range []struct {
		gangs        int
		short, freed []int64
		want         bool
	}{
		{plentyGangs, []int64{10}, []int64{40}, true},
		{plentyGangs, []int64{10}, []int64{39}, false},
		{plentyGangs - 1, []int64{10}, []int64{1000}, false},
		{plentyGangs, []int64{10, 5}, []int64{40, 20}, true},
		{plentyGangs, []int64{10, 5}, []int64{1000, 19}, false},
		{plentyGangs, []int64{10, 0}, []int64{1000, 1000}, false}, // room: nobody knows how much
	} {
		s, lacks := &offer{gangs: make([]*candidate, c.gangs), freed: c.freed}, []lack(nil)
		for _, short := range c.short {
			lacks = append(lacks, lack{short: short})
		}
		if got := s.plenty(lacks); got != c.want {
			t.Errorf("%d gangs that free %v of %v: %t", c.gangs, c.freed, c.short, got)
		}
	}
}

// TestBarsInTurn: the gangs of one queue do not take all the places from which borrowing is barred.
func TestBarsInTurn(t *testing.T) {
	r := flooded()
	r.reserve("x", "b", 400)
	r.pass(time.Second)
	for i, uid := range numbered("s", 100) {
		r.ask(uid, "a", rushCPU(1+i))
	}
	r.reserve("victim", "v", 1)
	r.pass(5 * time.Second)
	of := map[string]int{}
	for _, g := range r.core.ledger.barring {
		of[g.key.queue]++
	}
	if of["v"] != 1 || of["a"]+of["v"] > barsAtMost {
		t.Errorf("bars by queue: %v", of)
	}
	for range 3 { // and nobody's place is taken in turn
		r.pass(time.Second)
		if r.core.roster.gangs[gangKey{"v", "victim"}].mandate == nil && len(r.core.ledger.barring) == 0 {
			t.Error("no bars")
		}
	}
}
