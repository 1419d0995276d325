package coordinator

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// supply says what the nodes have in all; what the gangs of a queue are charged is in use.
func (h *hall) supply(all api.Resources, users string) {
	own := h.core.tree.at(users).charged.amounts().Min(all)
	h.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Supply{Supply: &wire.Supply{
		TableEpoch: uint64(h.core.owners.Table().Epoch),
		Free:       wire.FromResources(all.Sub(own)), Own: wire.FromResources(own)}}}})
	h.settle()
}

// What was promised counts, and what is on its way out counts for those who may not take it back. An ask takes no more back than it wants,
// however few the nodes have become.
func TestSupplyOfClaims(t *testing.T) {
	for _, c := range []struct {
		name                           string
		pool, charged, moves, unplaced int64
		own                            bool // what is unplaced
		wants, lacks, short            int64
	}{
		{name: "it fits", pool: 10, charged: 7, wants: 3},
		{name: "it does not", pool: 10, charged: 8, wants: 3, lacks: 1, short: 1},
		{name: "the rest was promised", pool: 10, charged: 5, moves: 3, wants: 3, lacks: 1, short: 1},
		{name: "some leave", pool: 10, charged: 8, moves: -3, wants: 3, lacks: 1},
		{name: "nodes were lost", pool: 10, charged: 20, wants: 3, lacks: 3, short: 3},
		{name: "others find no room", pool: 10, charged: 20, unplaced: 11, wants: 3, lacks: 2, short: 2},
		{name: "its own find none", pool: 10, charged: 20, unplaced: 11, own: true, wants: 3, lacks: 3, short: 3},
		{name: "it is more than nodes have", pool: 10, wants: 12, lacks: 2, short: 2},
	} {
		cpu := func(v int64) api.Resources { return api.Resources{{Resource: "cpu", Value: v}} }
		core := &Core{tree: newTree()}
		root, q := core.tree.root, core.tree.at("a")
		root.gate.pool = cpu(c.pool)
		core.tree.charge(q, cpu(c.charged))
		q.move(cpu(c.moves), 1)
		of := &tenant{}
		root.gate.unplaced.add(cpu(c.unplaced), 1)
		if c.own {
			of.unplaced.add(cpu(c.unplaced), 1)
		}
		var lacks, short int64
		if l := core.tree.lacks(&request{queue: q, tenant: of, delta: cpu(c.wants)}); l != nil {
			lacks = l.short
		}
		for _, l := range (ask{queue: q, tenant: of, demand: cpu(c.wants)}).lacks() {
			if short = l.short; l.at != root || l.resource != "cpu" {
				t.Errorf("%s: lacks %s at %s", c.name, l.resource, l.at.path)
			}
		}
		if lacks != c.lacks || short != c.short {
			t.Errorf("%s: lacks %d, and %d to take back, want %d and %d", c.name, lacks, short, c.lacks, c.short)
		}
	}
}

// Gangs that no node takes keep the nodes from nobody else, however many there are, and although their queue has nothing and is always
// first. They give their reservations back after ten seconds, and others like them come.
func TestImpossibleGangs(t *testing.T) {
	for _, silent := range []bool{false, true} {
		h := emptyHall(t)
		all := api.FromMap(map[string]int64{"cpu": 100})
		for _, name := range []string{"root", "a", "b"} {
			h.queue(name, 1, nil)
		}
		h.open()
		n, sum := 0, int64(0)
		said := map[string]bool{}
		const seconds, measured = 150, 60
		for second := range seconds {
			for _, queue := range []string{"a", "b"} {
				for have := h.core.tree.at(queue).members.waiting; have < 100; have++ {
					n++
					switch {
					case queue == "a":
						h.ask(fmt.Sprintf("a %06d", n), "ns", queue, 1, 0, 10*time.Second)
					case !silent:
						h.ask(fmt.Sprintf("b %06d", n), "ns", queue, 5, 0, 10*time.Second)
					case second == 0 && have < 6: // reservations that nobody knows anything of
						h.ask(fmt.Sprintf("b %06d", n), "ns", queue, 5, 0, time.Hour)
					}
				}
			}
			h.supply(all, "a")
			h.second()
			for _, uid := range api.SortedKeys(h.granted) {
				if strings.HasPrefix(uid, "b ") && !said[uid] && !silent {
					said[uid] = true
					h.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Unplaced{Unplaced: &wire.Unplaced{GangUid: uid, Attempt: 1,
						Demand: wire.FromResources(api.FromMap(map[string]int64{"cpu": 5}))}}}})
					h.settle()
				}
			}
			if second >= seconds-measured {
				sum += h.core.tree.at("a").charged.get("cpu").amount()
			}
		}
		if use := sum / measured; use < 90 || use > 103 {
			t.Errorf("silent %t: gangs that fit have %d of 100", silent, use)
		}
	}
}
