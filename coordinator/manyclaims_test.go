package coordinator

import (
	"fmt"
	"maps"
	"runtime"
	"slices"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// rush is a coordinator in virtual time with homes that do what they are told: they answer a mandate with a claim, and take their gangs
// away when they are to go. The core takes no virtual time; step measures how much real time it takes.
type rush struct {
	leader
	start  time.Time
	events []rushed
	serial uint64

	judged    bool                         // each transaction is; large ones are not
	opened    map[string]StoredReservation // those of victims, before they were closed
	gathering time.Time

	home      time.Duration // from a mandate to the claim
	leaves    time.Duration // from a Yield until the gang has left, 0 for never
	mandates  int
	largest   int                      // candidates of a mandate
	refused   int                      // claims
	accepted  map[string]time.Duration // when the home knew
	granted   map[string]time.Duration
	closed    map[string]time.Duration // victims, when it is in the store
	taken     map[string]string        // victims, by whom
	cpu, most time.Duration            // of steps
}

type rushed struct {
	at time.Time
	do func()
}

const (
	rushWire  = time.Millisecond     // a message
	rushStore = 4 * time.Millisecond // a transaction
)

func newRush(judged bool) *rush {
	r := &rush{leader: newLeader(), home: 20 * time.Millisecond, leaves: 50 * time.Millisecond,
		judged: judged, opened: map[string]StoredReservation{}}
	r.start = r.now
	r.forget()
	r.elect()
	return r
}

// forget drops what was counted.
func (r *rush) forget() {
	r.accepted, r.granted, r.closed, r.taken = map[string]time.Duration{}, map[string]time.Duration{}, map[string]time.Duration{}, map[string]string{}
	r.mandates, r.largest, r.refused, r.cpu, r.most = 0, 0, 0, 0, 0
}

// elect makes the next leader, from what the store holds. It returns how much real time that took.
func (r *rush) elect() time.Duration {
	e := r.reads(&wire.ShardRecord{Name: "s1", Incarnation: "s1"})
	began := threadTime()
	r.leads(Config{CommitEvery: 25 * time.Millisecond}, e)
	took := threadTime() - began
	r.events, r.gathering = nil, time.Time{}
	r.after(0, r.tick)
	return took
}

func (r *rush) tick() {
	r.after(100*time.Millisecond, r.tick)
	r.step(Tick{})
}

func (r *rush) after(d time.Duration, do func()) {
	at := r.now.Add(d)
	i, _ := slices.BinarySearchFunc(r.events, at, func(e rushed, at time.Time) int {
		if e.at.After(at) {
			return 1
		}
		return -1
	})
	r.events = slices.Insert(r.events, i, rushed{at, do})
}

// until lets time pass until something is so, for at most so long, and reports whether it is.
func (r *rush) until(limit time.Duration, is func() bool) bool {
	for end := r.now.Add(limit); !is(); {
		if r.events[0].at.After(end) {
			r.now = end
			return is()
		}
		e := r.events[0]
		r.events = r.events[1:]
		r.now = e.at
		e.do()
	}
	return true
}

func (r *rush) pass(d time.Duration) { r.until(d, func() bool { return false }) }

func (r *rush) since() time.Duration { return r.now.Sub(r.start) }

func (r *rush) step(ev Event) {
	c := r.core
	began := threadTime()
	var out []Output
	r.tell(ev, func(o Output) []Event {
		out = append(out, o)
		return nil
	})
	took := threadTime() - began
	r.cpu, r.most = r.cpu+took, max(r.most, took)
	for _, o := range out {
		switch o := o.(type) {
		case Txn:
			r.after(rushStore, func() { r.land(c, o) })
		case Send:
			r.after(rushWire, func() { r.hear(c, o.Body) })
		}
	}
	if due := c.Due(); !due.IsZero() && due.After(r.now) && !due.Equal(r.gathering) {
		r.gathering = due
		r.after(due.Sub(r.now), func() { r.step(Gathered{}) })
	}
}

func (r *rush) land(c *Core, t Txn) {
	for _, op := range t.Ops {
		put, is := op.(PutReservation)
		if !is {
			continue
		}
		g := put.Record.Gang
		if put.Record.State == wire.ReservationState_RESERVATION_CLOSING {
			key := reservationKey(g.Queue, g.Uid)
			r.opened[key] = StoredReservation{key, r.store.revisions[key], r.store.reservations[key]}
			r.closed[g.Uid] = r.since()
		}
		for _, v := range put.Record.GetClaim().GetVictims() {
			if by := r.taken[v.Gang.Uid]; by != "" && by != g.Uid {
				r.store.problem("%s is a victim of %s and of %s", v.Gang.Uid, by, g.Uid)
			}
			r.taken[v.Gang.Uid] = g.Uid
		}
	}
	commit := r.store.records.commit
	if r.judged {
		commit = r.store.commit
	}
	r.step(TxnDone{ID: t.ID, Revision: commit(t)})
}

func (r *rush) say(body *wire.Envelope) { r.step(Message{From: "s1", Body: body}) }

// hear is what a home does with a message of a leader.
func (r *rush) hear(c *Core, m *wire.Envelope) {
	switch body := m.Body.(type) {
	case *wire.Envelope_Mandate:
		x := body.Mandate
		r.mandates++
		r.largest = max(r.largest, len(x.Candidates))
		claim := &wire.Claim{Attempt: x.Attempt, Serial: x.Serial, Mandate: x.Number, Term: x.Term, TableEpoch: 1}
		for key, g := range r.core.roster.gangs {
			if key.uid == x.GangUid {
				claim.Gang = g.ref
			}
		}
		short := int64(1)
		if len(x.Lacks) > 0 {
			short = x.Lacks[0].Short
		}
		for _, v := range x.Candidates {
			if short <= 0 {
				break
			}
			short -= v.Demand[0].Value
			claim.Victims = append(claim.Victims, &wire.Victim{Gang: v.Gang, Attempt: v.Attempt})
		}
		r.after(r.home, func() { r.say(&wire.Envelope{Body: &wire.Envelope_Claim{Claim: claim}}) })
	case *wire.Envelope_ClaimReply:
		if body.ClaimReply.Accepted {
			r.accepted[body.ClaimReply.GangUid] = r.since()
		} else {
			r.refused++
		}
	case *wire.Envelope_Granted:
		r.granted[body.Granted.GangUid] = r.since()
	case *wire.Envelope_Yield:
		if y := body.Yield; r.leaves > 0 {
			r.after(r.leaves, func() {
				r.serial++
				r.say(&wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{Gang: y.Gang, Attempt: y.Attempt, Serial: r.serial, TableEpoch: 1}}})
			})
		}
	}
}

func (r *rush) queue(name string, capability, deserved api.Resources) {
	q := QueueSeen{Name: name, UID: "u", ResourceVersion: "1", HasFinalizer: true, Capability: capability, Deserved: deserved}
	if name == api.RootQueue {
		q.Policy = &wire.QueuePolicy{ReclaimMinRuntimeMs: new(int64(0))}
	}
	r.step(q)
}

func (r *rush) reserve(uid, queue string, n int) { r.ask(uid, queue, rushCPU(n)) }

func (r *rush) ask(uid, queue string, demand api.Resources) {
	r.serial++
	r.say(&wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{Gang: &wire.GangRef{Uid: uid, Queue: queue}, Attempt: 1, Serial: r.serial, TableEpoch: 1,
		SinceUnixMs: r.now.UnixMilli(), Demand: wire.FromResources(demand), Preemptible: true, Claims: true}}})
}

func rushCPU(n int) api.Resources { return api.FromMap(map[string]int64{"cpu": int64(n) * 1000}) }

// fill makes a world in which gangs of one core each, of so many borrowing queues, have everything, and 100 claimants that are entitled to so many
// cores each wait in so many queues.
func (r *rush) fill(gangs, borrowers, queues, cores int) {
	r.seen(gangs, borrowers, queues, cores)
	r.pass(2 * time.Second)
	for i := range gangs {
		r.reserve(fmt.Sprint("g", i), fmt.Sprintf("b%03d", i%borrowers), 1)
	}
	r.until(time.Hour, func() bool { return len(r.granted) == gangs })
	r.forget()
}

func (r *rush) seen(gangs, borrowers, queues, cores int) {
	r.queue("root", rushCPU(gangs), nil)
	for i := range borrowers {
		r.queue(fmt.Sprintf("b%03d", i), nil, rushCPU(1))
	}
	for i := range queues {
		r.queue(fmt.Sprintf("a%03d", i), nil, rushCPU(cores*100/queues))
	}
	r.step(QueuesSynced{})
	r.step(ShardLinked{Incarnation: "s1"})
}

func (r *rush) claimants(queues, cores int) {
	for i := range 100 {
		r.reserve(fmt.Sprintf("claimant%02d", i), fmt.Sprintf("a%03d", i%queues), cores)
	}
}

func last(m map[string]time.Duration) (most time.Duration) {
	for _, d := range m {
		most = max(most, d)
	}
	return most
}

// TestManyClaims has 100 gangs claim at once, in as many queues and in one: all of them start, nobody is evicted for two, and nobody in vain.
func TestManyClaims(t *testing.T) {
	for _, queues := range []int{100, 1} {
		t.Run(fmt.Sprint(queues), func(t *testing.T) {
			r := newRush(true)
			r.fill(250, 5, queues, 2)
			r.claimants(queues, 2)
			due := r.since() + preemptDelay
			r.until(time.Minute, func() bool { return len(r.granted) == 100 })
			t.Logf("%d mandates, %d claims refused; after their delay all are accepted in %v, all victims closed in %v, all granted in %v",
				r.mandates, r.refused, last(r.accepted)-due, last(r.closed)-due, last(r.granted)-due)
			if len(r.accepted) != 100 || len(r.granted) != 100 || len(r.taken) != 200 || len(r.closed) != 200 {
				t.Errorf("%d claims were accepted and %d granted; %d victims, %d closed", len(r.accepted), len(r.granted), len(r.taken), len(r.closed))
			}
			for _, p := range r.store.problems {
				t.Error(p)
			}
		})
	}
}

// BenchmarkManyClaims is the same among 10,000 gangs, with 10 victims for each claim. A home takes 20 ms from a mandate to its claim, or 400.
func BenchmarkManyClaims(b *testing.B) {
	for _, shape := range []struct {
		queues int
		home   time.Duration
	}{{100, 20 * time.Millisecond}, {1, 20 * time.Millisecond}, {100, 400 * time.Millisecond}, {1, 400 * time.Millisecond}} {
		b.Run(fmt.Sprintf("100 in %d queues, homes take %v", shape.queues, shape.home), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for b.Loop() {
				b.StopTimer()
				r := newRush(false)
				r.home = shape.home
				r.fill(10_000, 20, shape.queues, 10)
				b.StartTimer()
				r.claimants(shape.queues, 10)
				due := r.since() + preemptDelay
				if !r.until(time.Minute, func() bool { return len(r.granted) == 100 }) {
					b.Fatalf("%d granted", len(r.granted))
				}
				b.ReportMetric(float64((last(r.accepted) - due).Milliseconds()), "virtual-ms-to-accepted")
				b.ReportMetric(float64((last(r.closed) - due).Milliseconds()), "virtual-ms-to-closed")
				b.ReportMetric(float64(r.cpu.Microseconds())/1000, "cpu-ms")
				b.ReportMetric(float64(r.most.Microseconds())/1000, "cpu-ms-longest-step")
			}
		})
	}
}

// BenchmarkLargeClaim is one claim of 1,000 gangs among 10,000, from when the claimant's delay is over.
func BenchmarkLargeClaim(b *testing.B) {
	for _, home := range []time.Duration{20 * time.Millisecond, 400 * time.Millisecond} {
		b.Run(fmt.Sprintf("home takes %v", home), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for b.Loop() {
				b.StopTimer()
				r := newRush(false)
				r.home = home
				r.fill(10_000, 20, 1, 1000)
				b.StartTimer()
				r.reserve("claimant", "a000", 1000)
				due := r.since() + preemptDelay
				if !r.until(time.Minute, func() bool { return len(r.granted) == 1 }) {
					b.Fatal("not granted")
				}
				if len(r.closed) != 1000 {
					b.Fatalf("%d closed", len(r.closed))
				}
				b.ReportMetric(float64((last(r.accepted) - due).Milliseconds()), "virtual-ms-to-accepted")
				b.ReportMetric(float64((last(r.closed) - due).Milliseconds()), "virtual-ms-to-closed")
				b.ReportMetric(float64(r.cpu.Microseconds())/1000, "cpu-ms")
				b.ReportMetric(float64(r.most.Microseconds())/1000, "cpu-ms-longest-step")
			}
		})
	}
}

// crash leaves what the store holds if the leader dies when all 100 claims are accepted and no victim is closed yet, or if there were no
// claims.
func (r *rush) crash(claims bool) {
	for _, s := range r.opened {
		r.store.reservations[s.Key], r.store.revisions[s.Key] = s.Record, s.Revision
	}
	maps.DeleteFunc(r.store.reservations, func(_ string, record *wire.ReservationRecord) bool {
		return record.Claim != nil && !claims
	})
	r.forget()
}

// opens makes 100 claims of 10 victims each, of which none is closed yet.
func (r *rush) opens(gangs int) {
	r.fill(gangs, 20, 100, 10)
	r.leaves = 0
	r.claimants(100, 10)
	r.until(time.Minute, func() bool { return len(r.accepted) == 100 && len(r.closed) == 1000 })
}

// succeed has the next leader go on: homes ask again, and a gang comes that lacks nothing. It returns how long it took to elect it.
func (r *rush) succeed(gangs int, claims bool) time.Duration {
	took := r.elect()
	r.seen(gangs, 20, 100, 10)
	if claims {
		r.claimants(100, 10)
	}
	r.ask("newcomer", "a000", api.FromMap(map[string]int64{"gpu": 1}))
	r.until(time.Minute, func() bool { return r.granted["newcomer"] > 0 && (!claims || len(r.closed) == 1000) })
	return took
}

// TestFailoverWithClaims: a leader that dies with 100 claims is followed by one that closes their victims and no others.
func TestFailoverWithClaims(t *testing.T) {
	r := newRush(true)
	r.opens(2000)
	victims := r.taken
	r.crash(true)
	r.leaves = 50 * time.Millisecond
	r.succeed(2000, true)
	if !r.until(time.Minute, func() bool { return len(r.granted) == 101 }) {
		t.Errorf("%d granted", len(r.granted))
	}
	for uid := range r.closed {
		if victims[uid] == "" {
			t.Errorf("%s is closed, and no claim named it", uid)
		}
	}
	if len(r.closed) != len(victims) || r.mandates > 0 {
		t.Errorf("%d closed of %d, %d mandates", len(r.closed), len(victims), r.mandates)
	}
	for _, p := range r.store.problems {
		t.Error(p)
	}
}

// BenchmarkFailover elects a leader of 100,000 reservations, without claims and with 100.
func BenchmarkFailover(b *testing.B) {
	for _, claims := range []bool{false, true} {
		b.Run(fmt.Sprintf("claims=%t", claims), func(b *testing.B) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			const gangs = 100_000
			r := newRush(false)
			r.opens(gangs)
			for b.Loop() {
				b.StopTimer()
				r.crash(claims)
				runtime.GC()
				at := r.since()
				b.StartTimer()
				took := r.succeed(gangs, claims)
				b.ReportMetric(float64(took.Microseconds())/1000, "cpu-ms-to-elect")
				b.ReportMetric(float64(r.cpu.Microseconds())/1000, "cpu-ms-of-steps")
				b.ReportMetric(float64(r.most.Microseconds())/1000, "cpu-ms-longest-step")
				b.ReportMetric(float64((r.granted["newcomer"] - at).Milliseconds()), "virtual-ms-to-grant")
				if claims {
					b.ReportMetric(float64((last(r.closed) - at).Milliseconds()), "virtual-ms-to-closed")
				}
			}
		})
	}
}
