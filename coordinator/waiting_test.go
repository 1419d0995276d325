package coordinator

import (
	"fmt"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// TestManyAsksDelayNobody: 20,000 gangs of one queue wait for amounts that all differ. A release has a bounded number of them judged;
// a gang of another queue is granted in the same transaction; and all of them are judged in the end.
func TestManyAsksDelayNobody(t *testing.T) {
	const asks = 20_000
	h := newHall(t, map[string]int64{"org": 1000, "org.a": 1000, "org.b": 1000})
	h.ask("fills", "ns", "org.b", 995, 1, time.Hour)
	h.ask("evil-holds", "evil", "org.a", 5, 1, time.Hour)
	for i := range asks {
		h.serial++
		h.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{
			Gang: &wire.GangRef{Uid: fmt.Sprint("evil", i), Namespace: "evil", Queue: "org.a"}, Attempt: 1, Serial: h.serial, TableEpoch: 1, SinceUnixMs: int64(asks - i),
			Demand: wire.FromResources(api.FromMap(map[string]int64{"cpu": 900, "memory": int64(i)}))}}}})
		h.settle()
	}
	if len(h.denied) != asks {
		t.Fatalf("%d of %d are told that they wait", len(h.denied), asks)
	}
	h.ask("honest", "ns", "org.b", 10, 0, time.Minute)
	a, org := h.core.tree.at("org.a"), h.core.tree.at("org")
	judged := func() (n int) {
		for _, class := range a.classOf {
			if class.denied.queue == a || class.denied.queue == org && class.freed == org.freed {
				n++
			}
		}
		return n
	}
	if judged() != asks {
		t.Fatalf("%d asks were judged on arrival", judged())
	}
	h.serial++
	h.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{
		Gang: &wire.GangRef{Uid: "fills", Queue: "org.b"}, Attempt: 1, Serial: h.serial, TableEpoch: 1}}}})
	put := ""
	for _, op := range h.flight.Ops {
		if p, ok := op.(PutReservation); ok {
			put += p.Record.Gang.Uid + " "
		}
	}
	most := h.core.cfg.Asks / mostClasses
	if n := judged(); n == 0 || n > most {
		t.Errorf("%d asks are judged with the transaction, at most %d may be", n, most)
	}
	if put != fmt.Sprintf("honest evil%d ", asks-1) { // the honest gang, and the oldest of the many
		t.Errorf("granted with the release: %s", put)
	}
	h.settle()
	rounds := 0
	for ; h.core.behind; rounds++ {
		before := judged()
		h.step(Gathered{})
		if n := judged() - before; n > most {
			t.Fatalf("%d asks are judged at once", n)
		}
		h.settle()
	}
	if n := judged(); n != asks-1 || rounds < asks/most/2 || rounds > 2*asks/most+2 {
		t.Errorf("%d of %d asks were judged in %d steps", n, asks-1, rounds)
	}
}

// TestScansKeepTheirDistance: messages that come meanwhile do not make the core go on with its round sooner.
func TestScansKeepTheirDistance(t *testing.T) {
	h := newHall(t, map[string]int64{"a": 10})
	h.core.cfg.Asks, h.core.cfg.CommitEvery = 400, 25*time.Millisecond
	h.ask("holds", "ns", "a", 10, 0, time.Hour)
	h.tick(time.Second)
	for i := range 1000 {
		h.ask(fmt.Sprint("g", i), "ns", "a", 2, 0, time.Hour)
		h.tick(time.Second)
		h.core.cfg.EarmarkAfter = time.Hour
	}
	a := h.core.tree.at("a")
	if a.classes.Len() != 1 {
		t.Fatalf("%d asks", a.classes.Len())
	}
	for i := range 1000 {
		h.serial++
		h.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{
			Gang: &wire.GangRef{Uid: fmt.Sprint("d", i), Namespace: "ns", Queue: "a"}, Attempt: 1, Serial: h.serial, TableEpoch: 1, SinceUnixMs: int64(i),
			Demand: wire.FromResources(api.FromMap(map[string]int64{"cpu": 10, "memory": int64(i)}))}}}})
		h.tick(30 * time.Millisecond)
	}
	h.core.freedAt(a)
	h.tick(30 * time.Millisecond)
	if !h.core.behind || !h.core.Due().Equal(h.now.Add(25*time.Millisecond)) {
		t.Fatalf("behind %v, due %v after now", h.core.behind, h.core.Due().Sub(h.now))
	}
	left := a.left
	for range 10 {
		h.step(Gathered{})
	}
	if a.left != left {
		t.Errorf("%d asks were looked at before their time", left-a.left)
	}
	h.tick(25 * time.Millisecond)
	if a.left != left-100 {
		t.Errorf("%d asks were looked at in their time", left-a.left)
	}
}

func BenchmarkWait(b *testing.B) {
	for _, n := range []int{10_000, 50_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for range b.N {
				c := newCommitting(map[string]int64{"cpu": 1 << 30}, "root", "a")
				reserve := func(i int, cpu int64) {
					c.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{
						Gang: &wire.GangRef{Uid: fmt.Sprint("g", i), Queue: "a"}, Attempt: 1, Serial: uint64(i + 1), TableEpoch: 1, SinceUnixMs: -int64(i),
						Demand: wire.FromResources(api.FromMap(map[string]int64{"cpu": cpu, "pods": 1}))}}}})
				}
				reserve(0, 1<<30)
				for i := range n {
					reserve(i+1, int64(20000+i))
				}
				if len(c.core.ring) != n {
					b.Fatalf("%d wait", len(c.core.ring))
				}
			}
		})
	}
}
