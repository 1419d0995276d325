package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/lab/loop"
	"basalt.dev/basalt/coordinator/owners"
)

// What the control store takes (api/store).
const (
	storeRecord = 1 << 20
	storeTxn    = 1472 << 10
)

// written is the size of a transaction as the store counts it, and of its largest record.
func written(t Txn) (sum, largest int) {
	for _, op := range t.Ops {
		var key string
		var value proto.Message
		switch op := op.(type) {
		case PutReservation:
			key, value = "/basalt/reservations/0000/"+op.Record.Gang.Uid, op.Record
		case DeleteReservation:
			key = "/basalt/reservations/0000/" + op.GangUID
		case PutLimits:
			key, value = "/basalt/queues/"+op.Record.Queue, op.Record
		case DeleteLimits:
			key = "/basalt/queues/" + op.Queue
		case PutTable:
			key, value = "/basalt/table", wire.FromTable(op.Table)
		}
		n := len(key)
		if value != nil {
			n += proto.Size(value)
			largest = max(largest, proto.Size(value))
		}
		sum += n
	}
	return sum, largest
}

// bytesWorld is a core whose transactions are measured.
type bytesWorld struct {
	t      *testing.T
	core   *Core
	now    time.Time
	flight *Txn
	serial uint64

	granted, denied map[string]string
	transactions    int
}

func newBytesWorld(t *testing.T, shards ...*wire.ShardRecord) *bytesWorld {
	w := &bytesWorld{t: t, now: time.UnixMilli(1_000_000), granted: map[string]string{}, denied: map[string]string{}}
	w.core = New(Config{}, Elected{Now: w.now, Term: 1, Shards: shards})
	return w
}

func (w *bytesWorld) step(ev Event) {
	loop.Tell(w.core, w.now, ev, func(o Output) []Event {
		switch o := o.(type) {
		case Txn:
			w.transactions++
			if sum, largest := written(o); sum > storeTxn || largest > storeRecord {
				w.t.Fatalf("transaction %d: %d bytes, the largest record %d", o.ID, sum, largest)
			}
			w.flight = &o
		case Send:
			if g := o.Body.GetGranted(); g != nil {
				w.granted[g.GangUid] = fmt.Sprint(g.Attempt)
			}
			if d := o.Body.GetDenied(); d != nil {
				w.denied[d.GangUid] = d.Reason.String() + " " + d.Message
			}
		}
		return nil
	})
}

// settle answers transactions until there is none.
func (w *bytesWorld) settle() {
	for w.flight != nil {
		id := w.flight.ID
		w.flight = nil
		w.step(TxnDone{ID: id, Revision: int64(id) + 1})
	}
}

func (w *bytesWorld) tick(d time.Duration) {
	w.now = w.now.Add(d)
	w.step(Tick{})
	w.settle()
}

func (w *bytesWorld) queue(name string, version int, capability api.Resources) {
	w.step(QueueSeen{Name: name, UID: "u-" + name, ResourceVersion: fmt.Sprint(version), Generation: int64(version), HasFinalizer: true, Capability: capability})
}

func (w *bytesWorld) start(queues ...string) {
	for _, q := range queues {
		w.queue(q, 1, api.FromMap(map[string]int64{"cpu": 1 << 50}))
	}
	w.step(QueuesSynced{})
	w.settle()
	w.tick(2 * time.Second)
}

func (w *bytesWorld) reserve(uid, queue string, demand, bound api.Resources, pods int) {
	w.serial++
	m := &wire.Reserve{Gang: &wire.GangRef{Uid: uid, Namespace: "ns", Name: uid, Queue: queue}, Attempt: 1, Serial: w.serial, TableEpoch: 1,
		Demand: wire.FromResources(demand), Bound: wire.FromResources(bound)}
	for i := range pods {
		m.Pods = append(m.Pods, w.serial<<32+uint64(i))
	}
	w.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: m}}})
}

// names is a demand of n resources of so many bytes each.
func names(n, length int) api.Resources {
	m := map[string]int64{}
	for i := range n {
		name := fmt.Sprintf("example.com/device-%d-", i)
		m[name+strings.Repeat("x", max(0, length-len(name)))] = 1
	}
	return api.FromMap(m)
}

// TestTransactionsAreBoundedByBytes: whatever gangs ask for, no transaction is larger than what the store takes, and each gang is
// charged or told that its record would be too large.
func TestTransactionsAreBoundedByBytes(t *testing.T) {
	for _, c := range []struct {
		name   string
		gangs  int
		demand api.Resources
		pods   int
		bound  bool
		denied bool
	}{
		{"many small", 500, names(3, 10), 8, false, false},
		{"their sum is too large", 120, names(250, 50), 1, false, false},
		{"their sum is too large, and bound", 120, names(250, 50), 1, true, false},
		{"two in a transaction", 7, names(1800, 250), 1, false, false},
		{"one in a transaction", 4, names(3200, 250), 1, false, false},
		{"one in a transaction, and bound", 4, names(3200, 250), 1, true, false},
		{"many pods", 4, names(3, 10), 110_000, false, false},
		{"too many pods", 2, names(3, 10), 130_000, false, true},
		{"too many names", 2, names(3900, 250), 1, false, true},
		{"too many names, and bound", 2, names(3900, 250), 1, true, true},
		{"far too many names", 2, names(70_000, 40), 1, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newBytesWorld(t, &wire.ShardRecord{Name: "s1", Incarnation: "s1"})
			w.start("root", "a", "b")
			w.reserve("first", "a", names(1, 10), nil, 1) // the others gather while its transaction is in flight
			for i := range c.gangs {
				var bound api.Resources
				if c.bound {
					bound = c.demand
				}
				w.reserve(fmt.Sprint("g", i), "a", c.demand, bound, c.pods)
			}
			w.reserve("last", "b", names(1, 10), nil, 1)
			w.settle()
			for i := range c.gangs {
				uid := fmt.Sprint("g", i)
				if denied := w.denied[uid]; c.denied && !strings.Contains(denied, "TOO_LARGE the reservation of ns/"+uid) || !c.denied && w.granted[uid] == "" {
					t.Fatalf("%s: granted %q, denied %q", uid, w.granted[uid], denied)
				}
			}
			if w.granted["last"] == "" {
				t.Fatal("another gang is not granted")
			}
			for i := range c.gangs { // and closed, all in one transaction or more
				w.serial++
				w.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Close{Close: &wire.Close{
					Gang: &wire.GangRef{Uid: fmt.Sprint("g", i), Queue: "a"}, Attempt: 1, Serial: w.serial, TableEpoch: 1}}}})
			}
			w.settle()
		})
	}
}

// TestLargeGrantIsNotStarved: resizes that fill each transaction leave room for a gang that waits for a large one.
func TestLargeGrantIsNotStarved(t *testing.T) {
	w := newBytesWorld(t, &wire.ShardRecord{Name: "s1", Incarnation: "s1"})
	w.start("root", "a", "b")
	w.queue("b", 2, api.FromMap(map[string]int64{"cpu": 1}))
	w.settle()
	one := api.FromMap(map[string]int64{"cpu": 1})
	w.reserve("holds", "b", one, nil, 1)
	w.settle()
	w.reserve("large", "b", names(3500, 250).Add(one), nil, 1)
	w.settle()
	for round := range 20 {
		for i := range 5 {
			demand := names(1500, 250)
			demand[0].Value = int64(round + 1) // all of it bound: each is written at once
			w.reserve(fmt.Sprint("g", i), "a", demand, demand, 1)
		}
		if round == 0 {
			w.serial++
			w.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{
				Gang: &wire.GangRef{Uid: "holds", Queue: "b"}, Attempt: 1, Serial: w.serial, TableEpoch: 1}}}})
		}
		if w.flight != nil {
			id := w.flight.ID
			w.flight = nil
			w.step(TxnDone{ID: id, Revision: int64(id) + 1})
		}
		if w.granted["large"] != "" {
			return
		}
	}
	t.Errorf("a grant of 900 KiB finds no transaction in 20: %s", w.denied["large"])
}

// TestReleasesFillATransaction: where nobody waits for quota, a transaction takes as many releases as the store takes
// operations; where somebody does, a part is left for grants.
func TestReleasesFillATransaction(t *testing.T) {
	for _, waits := range []bool{false, true} {
		w := newBytesWorld(t, &wire.ShardRecord{Name: "s1", Incarnation: "s1"})
		w.start("root", "a")
		one := api.FromMap(map[string]int64{"cpu": 1})
		for i := range 120 {
			w.reserve(fmt.Sprint("g", i), "a", one, nil, 1)
			w.settle()
		}
		if waits {
			w.reserve("large", "a", api.FromMap(map[string]int64{"cpu": 1 << 50}), nil, 1)
		}
		w.queue("a", 2, api.FromMap(map[string]int64{"cpu": 1 << 50})) // its record is in flight while they come
		for i := range 120 {
			w.serial++
			w.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{
				Gang: &wire.GangRef{Uid: fmt.Sprint("g", i), Queue: "a"}, Attempt: 1, Serial: w.serial, TableEpoch: 1}}}})
		}
		w.step(TxnDone{ID: w.flight.ID, Revision: int64(w.flight.ID) + 1})
		if n, want := len(w.flight.Ops), map[bool]int{false: 120, true: 90}[waits]; n != want {
			t.Errorf("somebody waits %t: %d operations, want %d", waits, n, want)
		}
	}
}

// TestLimitsAreBoundedByBytes: limits with many long names go in several transactions, and a queue whose record is too large is
// invalid and keeps the limits it had.
func TestLimitsAreBoundedByBytes(t *testing.T) {
	w := newBytesWorld(t, &wire.ShardRecord{Name: "s1", Incarnation: "s1"})
	w.start("root")
	w.queue("first", 1, nil)
	for i := range 40 {
		w.queue(fmt.Sprint("q", i), 1, names(250, 250))
	}
	w.queue("huge", 1, names(1, 10))
	w.settle()
	w.queue("huge", 2, names(3900, 250))
	w.settle()
	for i := range 40 {
		if q := w.core.tree.byPath[fmt.Sprint("q", i)]; q.limits == nil || len(q.limits.capability) != 250 {
			t.Fatalf("queue q%d has no limits", i)
		}
	}
	huge := w.core.tree.byPath["huge"]
	if reason, message := w.core.ready(huge); reason != "Invalid" || !strings.Contains(message, "the record of queue huge has") || len(huge.limits.capability) != 1 {
		t.Errorf("%s: %s; %d resources are limited", reason, message, len(huge.limits.capability))
	}
}

// TestTableIsBoundedByBytes: shards with names that fill a record leave no table that cannot be written.
func TestTableIsBoundedByBytes(t *testing.T) {
	var shards []*wire.ShardRecord
	for i := range 1000 {
		name := fmt.Sprintf("s%d-%s", i, strings.Repeat("n", 1000))
		shards = append(shards, &wire.ShardRecord{Name: name, Incarnation: name})
	}
	w := newBytesWorld(t, shards...)
	w.start("root", "a")
	if w.core.owners.Table() == nil || len(w.core.owners.Table().Members) < 400 {
		t.Fatalf("the table has %v", w.core.owners.Table())
	}
	for i := range 700 { // most die, others come
		w.step(ShardDown{Incarnation: api.Incarnation(shards[i].Incarnation)})
		name := fmt.Sprintf("t%d-%s", i, strings.Repeat("n", 1000))
		w.step(ShardUp{Record: &wire.ShardRecord{Name: name, Incarnation: name}})
	}
	for range 100 {
		w.tick(time.Second)
	}
}

// The size that is counted of an operation is never below what the store counts, and above it by no more than what stands for
// keys, times and the fields of a fixed size.
func TestSizesAreUpperBounds(t *testing.T) {
	check := func(op Op, counted, names int) {
		t.Helper()
		real, _ := written(Txn{Ops: []Op{op}})
		if counted < real || counted > real+opBytes+amountBytes*names {
			t.Errorf("%T of %d bytes is counted as %d", op, real, counted)
		}
	}
	for _, length := range []int{1, 36, 63, 253, 1000, 20_000} {
		long := strings.Repeat("x", length)
		ref := &wire.GangRef{Uid: long, Namespace: long, Name: long, Queue: long}
		for _, n := range []int{0, 1, 64, 500} {
			demand := names(n, min(length, 253))
			var pods []uint64
			for i := range n {
				pods = append(pods, ^uint64(0)-uint64(n)+uint64(i))
			}
			record := &wire.ReservationRecord{Gang: ref, Attempt: 1 << 63, Demand: wire.FromResources(demand), State: wire.ReservationState_RESERVATION_CLOSING, Forced: true, Pods: pods,
				Rank: &wire.Rank{Priority: -1, Order: 1 << 63, GangUid: long}}
			check(PutReservation{Record: record}, reservationBytes(ref, demand, pods), n)

			limits := &wire.LimitsRecord{Queue: long, Uid: long, ResourceVersion: "18446744073709551615", Generation: 1 << 62, Capability: wire.FromResources(demand), Guarantee: wire.FromResources(demand), Deleted: true}
			check(PutLimits{Record: limits}, limitsBytes(limits), 2*n)

			c := New(Config{}, Elected{Term: 1})
			key := gangKey{uid: long, queue: long}
			reserve := &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{Gang: ref, Demand: wire.FromResources(demand), Pods: pods}}}
			if got, want := c.requestBytes(key, reserve), reservationBytes(ref, demand, pods); got < want || got > want+opBytes+len(long) {
				t.Errorf("a Reserve of %d names of %d bytes is counted as %d, its record as %d", n, length, got, want)
			}
			closing := &wire.Envelope{Body: &wire.Envelope_Close{Close: &wire.Close{Gang: ref}}}
			if got := c.requestBytes(key, closing); got > opBytes+length {
				t.Errorf("a Close of nothing is counted as %d", got)
			}
			condemn := &wire.Envelope{Body: &wire.Envelope_Condemn{Condemn: &wire.Condemn{Gang: ref, Pods: []string{long}}}}
			if got := c.requestBytes(key, condemn); got > opBytes+length {
				t.Errorf("a Condemn of nothing is counted as %d", got)
			}
			g := c.roster.at(ref)
			c.roster.admit(g, c.tree.at(long))
			c.ledger.charge(g, demand)
			c.roster.name(g, pods)
			if got, want := c.requestBytes(key, closing), reservationBytes(ref, demand, pods); got != want {
				t.Errorf("a Close of %d names of %d bytes is counted as %d, its record as %d", n, length, got, want)
			}
			g.res.asked = []surplus{{uid: long, amounts: demand}} // they come into the record, with for whom they go
			want := reservationBytes(ref, demand, pods) + surplusBytes(g.res.asked) + proto.Size(ref)
			if got := c.requestBytes(key, condemn); got < want {
				t.Errorf("a Condemn of %d names of %d bytes is counted as %d, its record as %d", n, length, got, want)
			}
			less := demand[:n/2] // its record says what it had, too
			reserve = &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{
				Gang: ref, Demand: wire.FromResources(less), Pods: pods, Started: true}}}
			counted := c.requestBytes(key, reserve)
			g.res.started = true
			g.res.becomes(less)
			record.Demand, record.Most = wire.FromResources(less), wire.FromResources(g.res.most)
			if len(record.Most) != min(n, api.MaxGangResources) && n > 0 {
				t.Errorf("%d of %d resources are remembered", len(record.Most), n)
			}
			real, _ := written(Txn{Ops: []Op{PutReservation{Record: record}}})
			if as := c.recordBytes(g); counted < real || as < real {
				t.Errorf("a record of %d bytes is counted as %d, and by its Reserve as %d", real, as, counted)
			}
		}
	}
	table := &api.Table{Epoch: 1 << 62, Revision: 1 << 62}
	counted := owners.TableBytes
	for i := range 50 {
		m := api.Member{Name: fmt.Sprintf("shard-%0200d", i), Incarnation: api.Incarnation(fmt.Sprintf("shard-%0250d", i))}
		table.Members = append(table.Members, m)
		counted += owners.MemberBytes(m.Name, m.Incarnation)
	}
	for b := range table.Owners {
		table.Owners[b], table.Changed[b] = uint16(b%50), 1<<62
	}
	check(PutTable{Table: table}, counted, api.Buckets)

	// A reservation of just as many bytes as are possible is written, one of a byte more is not, unless the gang has as large a one.
	c := New(Config{}, Elected{Term: 1})
	g := c.roster.at(&wire.GangRef{Uid: "g", Namespace: "ns", Name: "g", Queue: "a"})
	room := maxRecordBytes - reservationBytes(g.ref, nil, nil) - amountBytes
	most, more := api.Resources{{Resource: strings.Repeat("x", room), Value: 1}}, api.Resources{{Resource: strings.Repeat("x", room+1), Value: 1}}
	if why := g.tooLarge(most, nil); why != "" {
		t.Error(why)
	}
	if g.tooLarge(more, nil) == "" {
		t.Error("a byte more than is possible is taken")
	}
	c.roster.admit(g, c.tree.at("a"))
	c.ledger.charge(g, more)
	if why := g.tooLarge(more, nil); why != "" {
		t.Error("a gang cannot keep what it has:", why)
	}

	t.Run("fits", func(t *testing.T) {
		empty, full := &batch{}, &batch{}
		full.add(DeleteLimits{}, 100)
		for _, c := range []struct {
			b            *batch
			bytes, limit int
			want         bool
		}{{empty, 1 << 30, 1, true}, {full, 0, 100, true}, {full, 0, 99, false}, {full, 10, 110, true}, {full, 11, 110, false}} {
			if got := c.b.fits(c.bytes, c.limit); got != c.want {
				t.Errorf("%d bytes and %d more, limit %d: fits %v", c.b.bytes, c.bytes, c.limit, got)
			}
		}
	})
}

// A stored reservation is charged whatever set of pods it names; a set that is wrong is reported, and only such a one.
func TestLoadedSetsOfPods(t *testing.T) {
	for _, c := range []struct {
		name   string
		pods   [2][]uint64
		single bool
		warned int
	}{
		{"none", [2][]uint64{}, false, 0},
		{"different ones", [2][]uint64{{1, 2}, {3, 4}}, false, 0},
		{"one in both", [2][]uint64{{1, 2}, {2, 3}}, false, 1},
		{"not sorted", [2][]uint64{{2, 1}, {3, 4}}, false, 1},
		{"named twice", [2][]uint64{{1, 1}, {3}}, false, 1},
		{"both wrong", [2][]uint64{{2, 1}, {4, 3}}, false, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := Elected{Term: 1}
			for i, uid := range []string{"g", "h"} {
				e.Reservations = append(e.Reservations, StoredReservation{Key: uid, Revision: 7, Record: &wire.ReservationRecord{Gang: &wire.GangRef{Uid: uid, Namespace: "ns", Name: uid, Queue: "a"},
					Attempt: 1, Demand: wire.FromResources(api.FromMap(map[string]int64{"cpu": 1000})), Rank: &wire.Rank{Order: uint64(i + 1), GangUid: uid}, Pods: c.pods[i]}})
			}
			core := New(Config{}, e)
			warned := 0
			for _, o := range core.Outputs() {
				if l, ok := o.(Log); ok && l.Level == LevelWarn {
					warned++
				}
			}
			core.tree.recompute()
			if got := core.tree.at("a").charged.get("cpu").amount(); got != 2000 || warned != c.warned {
				t.Errorf("charged %d, %d warnings, want 2000 and %d", got, warned, c.warned)
			}
		})
	}
}
