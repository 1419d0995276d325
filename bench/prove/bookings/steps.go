package bookings

import (
	"fmt"

	"basalt.dev/basalt/bench/prove/spec"
)

// What a step is.
const (
	born uint8 = iota
	grants
	starts // a booked gang, in its rooms
	places
	givesBack
	ends
	books
	replans
	evicts
	departs // its pods are gone
	raises
	withdraws
	crashes
	hears
	restarts
	repeats
	ticks
)

type step struct{ kind, gang, to uint8 }

type machine struct {
	Config
	weak spec.Weakened[Rule]
}

func (m *machine) First() state {
	s := state{now: 1, crashes: m.Crashes, restarts: m.Restarts, raises: m.Raises}
	for k := range s.gangs {
		s.gangs[k].promised = far
		if k >= len(m.Gangs) {
			s.gangs[k].phase = gone
		}
	}
	return s
}

// Next calls emit with each step that may follow a state.
func (m *machine) Next(s *state, emit func(step, *state, string)) {
	if s.now > m.Horizon {
		return
	}
	forced := false
	do := func(kind uint8, k, to int, must bool, change func(n *state)) {
		next := *s
		change(&next)
		forced = forced || must
		emit(step{kind, uint8(k), uint8(to)}, &next, m.harm(s, &next, kind, k))
	}
	for k := range m.Gangs {
		m.ofGang(s, k, do)
	}
	if s.crashes > 0 {
		do(crashes, 0, 0, false, func(n *state) {
			n.crashes--
			for k := range n.gangs {
				n.gangs[k].heard = 0
				if m.weak.Has(BookingInMemory) {
					n.gangs[k].known = 0
				}
			}
		})
	}
	for at := range m.Nodes {
		if s.restarts > 0 {
			do(restarts, 0, at, false, func(n *state) { n.restarts--; n.nodes[at] = node{fresh: 1} })
		}
		if s.nodes[at].fresh != 0 {
			do(repeats, 0, at, true, func(n *state) {
				n.nodes[at].fresh = 0
				for k := range n.gangs {
					if n.gangs[k].booked() {
						n.nodes[at].knows |= 1 << k
					}
				}
			})
		}
	}
	if !forced {
		do(ticks, 0, 0, false, func(n *state) { n.now++ })
	}
}

// ofGang are the steps of one gang.
func (m *machine) ofGang(s *state, k int, do func(kind uint8, k, to int, must bool, change func(*state))) {
	g, x := &s.gangs[k], &m.Gangs[k]
	set := func(change func(g *gang)) func(*state) { return func(n *state) { change(&n.gangs[k]) } }
	switch g.phase {
	case unborn:
		if s.now <= m.Born {
			do(born, k, 0, false, set(func(g *gang) { g.phase = waiting }))
		}
	case waiting:
		m.ofWaiting(s, k, do)
	case granted:
		late := s.now >= g.granted+search
		if !m.weak.Has(StartByForgotten) || !late {
			do(givesBack, k, 0, late, set(func(g *gang) { g.phase = waiting }))
		}
		for first := range x.Pods + 1 {
			pods := [nodes]uint8{first, x.Pods - first}
			if m.takes(s, k, pods, m.endOf(x, int(g.granted), true)) {
				do(places, k, int(first), false, func(n *state) { m.start(n, k, pods) })
			}
		}
	case running:
		do(ends, k, 0, false, set(func(g *gang) { g.phase, g.on = gone, [nodes]uint8{} }))
		if g.heard == 0 {
			do(hears, k, 0, true, set(func(g *gang) { g.heard = 1 }))
		}
		if s.raises > 0 && x.Limit > 0 {
			do(raises, k, 0, false, func(n *state) { n.raises--; n.gangs[k].raised++ })
		}
		if m.weak.Has(OverrunAtLimit) && m.overran(s, k) {
			do(evicts, k, 1<<k, false, func(n *state) { n.evict(1 << k) })
		}
	case closing:
		do(departs, k, 0, s.now >= g.closed+grace, set(func(g *gang) { g.phase, g.on = gone, [nodes]uint8{} }))
	}
}

// ofWaiting are the steps of a gang that waits.
func (m *machine) ofWaiting(s *state, k int, do func(kind uint8, k, to int, must bool, change func(*state))) {
	g, x := &s.gangs[k], &m.Gangs[k]
	fits := true
	for q := range m.Queues {
		fits = fits && (!below(x.Leaf, q) || m.charged(s, q)+x.demand() <= m.Queues[q])
	}
	has := g.booked() && !m.weak.Has(SumsAlone)
	switch now := int(s.now); {
	case has && fits && m.lends(s, k, m.endOf(x, now, false)) && m.startsIn(s, k):
		do(starts, k, 0, s.now >= g.start, func(n *state) { m.start(n, k, g.room) })
	case !has && fits && m.lends(s, k, m.endOf(x, now, true)):
		do(grants, k, 0, g.booked() && s.now >= g.start, func(n *state) {
			promised := n.gangs[k].promised // it has to start, not to be charged
			n.unbook(k)
			n.gangs[k].phase, n.gangs[k].granted, n.gangs[k].promised = granted, n.now, promised
		})
	}
	startable := fits && m.lends(s, k, m.endOf(x, int(s.now), true)) && m.findsRoom(s, k)
	if !g.booked() && !startable && !m.leafBooks(s, x.Leaf) {
		if at, pods := m.plan(s, k, int(s.now)+grace); at < far {
			do(books, k, at, false, func(n *state) { n.book(k, at, pods) })
		}
	}
	if g.booked() {
		at, pods := m.plan(s, k, int(s.now)+grace)
		if at < int(g.start) || m.weak.Has(ReplanPostpones) && at != int(g.start) && at < far {
			do(replans, k, at, false, func(n *state) { n.book(k, at, pods) })
		}
		do(withdraws, k, 0, false, func(n *state) {
			n.unbook(k)
			n.gangs[k].phase = gone
		})
		if set := m.inTheWay(s, k); set != 0 && s.now+grace >= g.start && !m.weak.Has(OverrunTolerated) {
			do(evicts, k, int(set), true, func(n *state) { n.evict(set) })
		}
	}
}

// leafBooks reports whether a gang of a leaf is booked: one at a time.
func (m *machine) leafBooks(s *state, leaf uint8) bool {
	for k := range m.Gangs {
		if s.gangs[k].booked() && m.Gangs[k].Leaf == leaf {
			return true
		}
	}
	return false
}

// isFree reports whether nodes have room for pods now.
func (m *machine) isFree(s *state, k int, pods [nodes]uint8) bool {
	for n := range m.Nodes {
		if pods[n] > 0 && m.taken(s, n)+int(pods[n]*m.Gangs[k].Size) > m.Nodes[n] {
			return false
		}
	}
	return true
}

// takes reports whether the shards of the nodes give room to pods now.
func (m *machine) takes(s *state, k int, pods [nodes]uint8, end int) bool {
	for n := range m.Nodes {
		if pods[n] > 0 && (s.nodes[n].fresh != 0 && !m.weak.Has(FreshLends) || !m.lendsRoom(s, n, k, pods[n], end)) {
			return false
		}
	}
	return m.isFree(s, k, pods)
}

// startsIn reports whether a booked gang may start in its rooms now.
func (m *machine) startsIn(s *state, k int) bool {
	g := &s.gangs[k]
	if m.weak.Has(EarlyBlind) {
		return m.isFree(s, k, g.room)
	}
	return m.takes(s, k, g.room, m.endOf(&m.Gangs[k], int(s.now), false))
}

// findsRoom reports whether there is any.
func (m *machine) findsRoom(s *state, k int) bool {
	x := &m.Gangs[k]
	for first := range x.Pods + 1 {
		if m.takes(s, k, [nodes]uint8{first, x.Pods - first}, m.endOf(x, int(s.now), true)) {
			return true
		}
	}
	return false
}

// start has the pods of a gang run.
func (m *machine) start(n *state, k int, pods [nodes]uint8) {
	g := &n.gangs[k]
	if g.phase == waiting {
		g.granted = n.now
		n.unbook(k)
	}
	g.phase, g.started, g.heard, g.on = running, n.now, 1, pods
}

// book writes a booking, and has the shards of its rooms know it.
func (s *state) book(k, at int, pods [nodes]uint8) {
	g := &s.gangs[k]
	g.start, g.known, g.room = uint8(at), 1, pods
	g.promised = min(g.promised, g.start)
	for n := range s.nodes {
		s.nodes[n].knows &^= 1 << k
		if pods[n] > 0 {
			s.nodes[n].knows |= 1 << k
		}
	}
}

// unbook ends a booking.
func (s *state) unbook(k int) {
	g := &s.gangs[k]
	g.start, g.known, g.room, g.promised = none, 0, [nodes]uint8{}, far
	for n := range s.nodes {
		s.nodes[n].knows &^= 1 << k
	}
}

func (s *state) evict(set uint8) {
	for k := range s.gangs {
		if set>>k&1 != 0 {
			s.gangs[k].phase, s.gangs[k].closed = closing, s.now
		}
	}
}

// harm returns what a step violates.
func (m *machine) harm(from, to *state, kind uint8, k int) string {
	for q := range m.Queues {
		if m.charged(to, q) > m.Queues[q] {
			return fmt.Sprintf("I1: queue %d has %d of %d", q, m.charged(to, q), m.Queues[q])
		}
	}
	for n := range m.Nodes {
		if m.taken(to, n) > m.Nodes[n] {
			return fmt.Sprintf("I2: node %d has %d of %d", n, m.taken(to, n), m.Nodes[n])
		}
	}
	switch kind {
	case replans:
		if to.gangs[k].start > from.gangs[k].start {
			return fmt.Sprintf("I27: S of gang %d moves from %d to %d", k, from.gangs[k].start, to.gangs[k].start)
		}
	case evicts:
		return m.harmless(from, to)
	case ticks:
		for k := range m.Gangs {
			if g := &from.gangs[k]; g.phase == waiting && g.promised <= from.now {
				return fmt.Sprintf("I27: gang %d was to start by %d", k, g.promised)
			}
		}
	}
	return ""
}

// harmless judges an eviction: with one gang less of it, no booking that is due would fit.
func (m *machine) harmless(from, to *state) string {
	var set, over uint8
	for k := range m.Gangs {
		if to.gangs[k].phase == closing && from.gangs[k].phase == running {
			set |= 1 << k
		}
		if m.overran(from, k) {
			over |= 1 << k
		}
	}
	for k := range m.Gangs {
		if set>>k&1 == 0 {
			continue
		}
		needed := over>>k&1 != 0
		if needed {
			needed = false
			for b := range m.Gangs {
				g := &from.gangs[b]
				needed = needed || g.booked() && from.now+grace >= g.start && !m.without(from, b, over, set&^(1<<k))
			}
		}
		if !needed {
			return fmt.Sprintf("I31: gang %d is evicted, and is in the way of none", k)
		}
	}
	return ""
}

// Judge has nothing to add: steps are judged.
func (m *machine) Judge(*state, []step) string { return "" }

// Say describes a step.
func (m *machine) Say(st step, from, to *state) string {
	name := string(rune('a' + st.gang))
	switch st.kind {
	case ticks:
		return fmt.Sprintf("time %d", to.now)
	case books, replans:
		g := &to.gangs[st.gang]
		return fmt.Sprintf("%s %s for %d, rooms %v", name, said[st.kind], g.start, g.room)
	case places, starts:
		return fmt.Sprintf("%s %s, pods %v", name, said[st.kind], to.gangs[st.gang].on)
	case evicts:
		return fmt.Sprintf("evicted for %s: %03b", name, st.to)
	case crashes, restarts, repeats:
		return fmt.Sprintf("%s %d", said[st.kind], st.to)
	}
	return name + " " + said[st.kind]
}

var said = map[uint8]string{born: "comes", grants: "is granted", starts: "starts as booked", places: "starts",
	givesBack: "gives its quota back", ends: "ends", books: "is booked", replans: "is planned anew",
	departs: "has left", raises: "is given a longer limit", withdraws: "is withdrawn", hears: "has its start heard",
	crashes: "the coordinator crashes", restarts: "the shard restarts of node",
	repeats: "homes repeat their bookings to node"}
