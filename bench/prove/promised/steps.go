package promised

import (
	"fmt"

	"basalt.dev/basalt/bench/prove/spec"
)

// What a step is.
const (
	born uint8 = iota
	grants
	places
	givesBack
	ends
	departs
	withdraws
	offersStart // the coordinator gives a mandate
	plans
	requested // a HoldRequest arrives at a node shard
	claims
	claimed // the Claim arrives
	hears   // the home hears of its booking
	repeats // its rooms are requested again
	lateRequest
	grantsBooked
	starts
	reports // the home says who has its rooms
	evicts
	crash
	homeDies
	heirComes
	restarts
	takesOver
	processDies
	ticks
)

type step struct{ kind, gang, to uint8 }

type machine struct {
	Config
	weak spec.Weakened[Rule]
}

func (m *machine) First() state {
	s := state{now: 1, term: 1, table: 1, left: m.faults}
	for k := range s.gangs {
		s.gangs[k].promised = far
		if k >= len(m.Gangs) {
			s.gangs[k].phase = gone
		}
	}
	a := &s.gangs[0]
	pods := int(m.Gangs[0].Pods)
	on := min(pods, m.Room[0])
	a.phase, a.granted, a.started, a.on = running, 1, 1, [nodes]uint8{uint8(on), uint8(pods - on)}
	return s
}

// do takes a step that leads to a change; must: it comes before the next tick.
type do func(kind uint8, k, to int, must bool, change func(*state))

// Next calls emit with each step that may follow a state.
func (m *machine) Next(s *state, emit func(step, *state, string)) {
	if s.now > m.Horizon {
		return
	}
	forced := false
	e := func(kind uint8, k, to int, must bool, change func(*state)) {
		next := *s
		change(&next)
		forced = forced || must
		emit(step{kind, uint8(k), uint8(to)}, &next, m.harm(s, &next, kind))
	}
	for k := range m.Gangs {
		m.ofGang(s, k, e)
		if m.Gangs[k].Books {
			m.ofCoordinator(s, k, e)
			m.ofHome(s, k, e)
		}
	}
	m.ofFaults(s, e)
	if !forced {
		e(ticks, 0, 0, false, m.tick)
	}
}

// tick has the rooms end that nobody requested again, and mandates of which no Claim came.
func (m *machine) tick(n *state) {
	n.now++
	for i := range n.nodes {
		for k := range n.gangs {
			for _, of := range []*booked{&n.nodes[i].said[k], &n.nodes[i].asked[k]} {
				if of.until < n.now {
					*of = booked{}
				}
			}
		}
	}
	for k := range n.gangs {
		if g := &n.gangs[k]; g.mandate != 0 && g.until < n.now && !m.weak.Has(OfferOutlives) {
			g.mandate, g.until = 0, 0
		}
		if g := &n.gangs[k]; g.dead != 0 {
			g.dead = 2
		}
	}
}

// ofGang are the steps of a gang as any other.
func (m *machine) ofGang(s *state, k int, e do) {
	g, x := &s.gangs[k], &m.Gangs[k]
	set := func(change func(g *gang)) func(*state) { return func(n *state) { change(&n.gangs[k]) } }
	switch g.phase {
	case unborn:
		if s.now <= m.Born {
			e(born, k, 0, false, set(func(g *gang) { g.phase = waiting }))
		}
	case waiting:
		if !g.isBooked() && m.fits(s, k) && m.fitsQuota(s, k, int(s.now), m.lasts(k, int(s.now)+search)) {
			e(grants, k, 0, false, set(func(g *gang) {
				g.phase, g.granted, g.mandate, g.until = granted, s.now, 0, 0
			}))
		}
		if x.Books {
			e(withdraws, k, 0, false, set(func(g *gang) { *g = gang{phase: gone, promised: far} }))
		}
	case granted:
		if g.isBooked() {
			return
		}
		e(givesBack, k, 0, s.now >= g.granted+search, set(func(g *gang) { g.phase, g.granted = waiting, 0 }))
		for first := range x.Pods + 1 {
			pods := [nodes]uint8{first, x.Pods - first}
			if m.takesAll(s, k, pods, m.lasts(k, int(g.granted)+search)) {
				e(places, k, int(first), false, func(n *state) { m.start(n, k, pods) })
			}
		}
	case running:
		e(ends, k, 0, false, set(func(g *gang) { *g = gang{phase: gone, promised: far} }))
	case closing:
		e(departs, k, 0, s.now >= g.closed+grace, set(func(g *gang) { *g = gang{phase: gone, promised: far} }))
	}
}

// fits reports whether a gang may be charged now, whatever is booked.
func (m *machine) fits(s *state, k int) bool { return m.charged(s)+int(m.Gangs[k].Pods) <= m.Quota }

// takesAll reports whether the shards of all its nodes take the pods of a gang now.
func (m *machine) takesAll(s *state, k int, pods [nodes]uint8, end int) bool {
	for n := range m.Room {
		if pods[n] > 0 && !m.takes(s, n, k, pods[n], end) {
			return false
		}
	}
	return true
}

// start has the pods of a gang run: their nodes know that, and its record forgets its booking.
func (m *machine) start(n *state, k int, pods [nodes]uint8) {
	n.gangs[k] = gang{phase: running, granted: n.gangs[k].granted, started: n.now, on: pods, promised: far}
	for i := range n.nodes {
		if pods[i] > 0 {
			n.nodes[i].said[k], n.nodes[i].asked[k] = booked{}, booked{}
		}
	}
}

// ofCoordinator are its steps about a gang that may be booked.
func (m *machine) ofCoordinator(s *state, k int, e do) {
	g := &s.gangs[k]
	if g.phase == waiting && g.mandate == 0 && g.given < m.Offers {
		e(offersStart, k, 0, false, func(n *state) {
			g := &n.gangs[k]
			g.given++
			g.mandate, g.until = g.given, n.now+offers
		})
	}
	if g.claim.of.number != 0 && g.phase == waiting && m.accepts(s, k) {
		e(claimed, k, 0, false, func(n *state) {
			g := &n.gangs[k]
			g.record, g.mandate, g.until = g.claim.of, 0, 0
			g.promised = min(g.promised, g.record.start)
			if m.weak.Has(AwaitsAtBooking) {
				g.awaits = m.whoHas(n, &g.record)
			}
		})
	}
	if g.phase == waiting && g.isBooked() && m.fits(s, k) &&
		m.fitsQuota(s, k, int(s.now), m.stays(k, max(int(s.now), int(g.record.start)))) {
		e(grantsBooked, k, 0, s.now >= g.record.start, func(n *state) {
			g := &n.gangs[k]
			g.phase, g.granted, g.mandate, g.until = granted, n.now, 0, 0
			if m.weak.Has(GrantedForgets) {
				g.record = rooms{}
				g.record.number, g.record.start = s.gangs[k].record.number, s.gangs[k].record.start
			}
		})
	}
	if set := m.inTheWay(s, k, g.awaits); set != 0 {
		e(evicts, k, int(set), true, func(n *state) {
			for v := range n.gangs {
				if set>>v&1 != 0 {
					n.gangs[v].phase, n.gangs[v].closed = closing, n.now
				}
			}
		})
	}
}

// accepts reports whether the coordinator accepts the Claim of a gang.
func (m *machine) accepts(s *state, k int) bool {
	g := &s.gangs[k]
	c := &g.claim
	switch {
	case c.of.number == g.record.number, g.isBooked() && c.of.start >= g.record.start:
		return false
	case c.term != s.term && !m.weak.Has(OldTerm):
		return false
	case c.term == s.term && c.of.number != g.mandate && !(m.weak.Has(OldNumber) && g.mandate != 0):
		return false
	case c.table != s.table && !m.weak.Has(OldTable):
		return false
	case s.now+grace+change > c.of.start && !m.weak.Has(ClaimLate):
		return false
	case !m.weak.Has(ClaimUnjudged) && !m.fitsQuota(s, k, int(c.of.start), m.stays(k, int(c.of.start))):
		return false
	}
	return true
}

// whoHas are the gangs that have pods on the nodes of some rooms.
func (m *machine) whoHas(s *state, of *rooms) (set uint8) {
	for o := range m.Gangs {
		for n := range m.Room {
			if of.pods[n] > 0 && s.gangs[o].on[n] > 0 {
				set |= 1 << o
			}
		}
	}
	return set
}

// ofHome are the steps of a home, and of node shards about its messages.
func (m *machine) ofHome(s *state, k int, e do) {
	g := &s.gangs[k]
	if g.late.number != 0 && s.left.late > 0 {
		for i := range m.Room {
			if s.nodes[i].down == 0 && g.late.pods[i] > 0 {
				e(lateRequest, k, i, false, func(n *state) {
					n.left.late--
					m.hear(n, k, i, &n.gangs[k].late)
					n.gangs[k].late = rooms{}
				})
			}
		}
	}
	if g.dead != 0 {
		if g.dead == 2 {
			e(heirComes, k, 0, true, func(n *state) {
				g := &n.gangs[k]
				if g.dead = 0; !m.weak.Has(HeirIgnorant) {
					g.knows = g.record
				}
			})
		}
		return
	}
	if g.phase != waiting && g.phase != granted {
		return
	}
	if g.record.number != g.knows.number && (!m.weak.Has(HeirIgnorant) || g.step == claiming) {
		e(hears, k, 0, true, func(n *state) {
			g := &n.gangs[k]
			if g.late = g.knows; s.left.late == 0 {
				g.late = rooms{}
			}
			g.knows, g.step, g.plan, g.answered, g.table = g.record, idle, rooms{}, 0, 0
		})
	}
	m.plans(s, k, e)
	for i := range m.Room {
		if of := s.nodes[i].said[k]; g.knows.pods[i] > 0 && s.nodes[i].down == 0 && !m.weak.Has(Unrepeated) &&
			(of.until < s.now+m.lives() || of.number < g.knows.number) {
			e(repeats, k, i, true, func(n *state) { m.hear(n, k, i, &n.gangs[k].knows) })
		}
	}
	if has := m.whoHas(s, &g.knows); g.isBooked() && has&^g.awaits != 0 && !m.weak.Has(AwaitsAtBooking) &&
		(!m.weak.Has(SaidLate) || s.now+grace >= g.record.start) {
		e(reports, k, 0, true, func(n *state) { n.gangs[k].awaits |= has })
	}
	if g.phase == granted && g.isBooked() && g.knows.number == g.record.number {
		end := m.lasts(k, int(s.now))
		if s.now >= g.record.start && !m.weak.Has(DueAsks) { // at its start it waits for nobody's booking
			end = 0
		}
		if m.takesAll(s, k, g.knows.pods, end) {
			e(starts, k, 0, s.now >= g.record.start, func(n *state) { m.start(n, k, g.knows.pods) })
		}
	}
}

func (m *machine) lives() uint8 {
	if m.weak.Has(RoomsShortLived) {
		return lives - 1
	}
	return lives
}

// hear has a node shard take a request of rooms that are recorded.
func (m *machine) hear(n *state, k, i int, of *rooms) {
	said, asked := &n.nodes[i].said[k], &n.nodes[i].asked[k]
	if of.number < said.number && !m.weak.Has(OldRequest) {
		return
	}
	*said = booked{of.number, of.start, of.pods[i], n.now + m.lives()}
	if asked.number <= of.number {
		*asked = booked{}
	}
}

// plans are the steps from a mandate to a Claim.
func (m *machine) plans(s *state, k int, e do) {
	g := &s.gangs[k]
	if g.phase != waiting {
		return
	}
	if g.mandate != 0 && g.plan.number != g.mandate && g.claim.of.number != g.mandate {
		for _, of := range m.find(s, k) {
			if g.isBooked() && of.start >= g.record.start || !m.up(s, of.pods) {
				continue
			}
			e(plans, k, int(of.pods[0]), false, func(n *state) {
				g := &n.gangs[k]
				g.step, g.plan, g.answered, g.table = asking, of, 0, n.table
			})
		}
	}
	if g.step != asking {
		return
	}
	all := true
	for i := range m.Room {
		if g.plan.pods[i] == 0 || g.answered>>i&1 != 0 {
			continue
		}
		if all = false; s.nodes[i].down != 0 {
			continue
		}
		e(requested, k, i, false, func(n *state) {
			g := &n.gangs[k]
			if !m.books(s, i, k, g.plan.pods[i], int(g.plan.start)) {
				g.step, g.plan, g.answered, g.table = idle, rooms{}, 0, 0
				g.mandate, g.until = 0, 0 // it says so
				return
			}
			g.answered |= 1 << i
			n.nodes[i].asked[k] = booked{g.plan.number, g.plan.start, g.plan.pods[i], n.now + m.lives()}
			if m.weak.Has(ReplanReplaces) {
				for at := range n.nodes {
					n.nodes[at].said[k] = booked{}
				}
			}
		})
	}
	if all || m.weak.Has(Partial) && g.answered != 0 {
		e(claims, k, 0, false, func(n *state) {
			g := &n.gangs[k]
			g.step, g.claim = claiming, claim{g.plan, n.term, g.table}
		})
	}
}

// up reports whether node shards answer.
func (m *machine) up(s *state, pods [nodes]uint8) bool {
	for n := range m.Room {
		if pods[n] > 0 && s.nodes[n].down != 0 {
			return false
		}
	}
	return true
}

// ofFaults are what ends of its own.
func (m *machine) ofFaults(s *state, e do) {
	if s.left.crash > 0 {
		e(crash, 0, 0, false, func(n *state) {
			n.left.crash--
			n.term++
			for k := range n.gangs {
				g := &n.gangs[k]
				if g.mandate, g.until, g.awaits = 0, 0, 0; m.weak.Has(BookingInMemory) && g.phase == waiting {
					g.record = rooms{}
				}
			}
		})
	}
	die := func(n *state, k int) {
		g := &n.gangs[k]
		if g.late = g.knows; n.left.late == 0 {
			g.late = rooms{}
		}
		g.dead, g.step, g.plan, g.answered, g.table, g.knows = 1, idle, rooms{}, 0, 0, rooms{}
	}
	down := func(n *state, i int) {
		n.nodes[i] = node{down: 1}
		n.table++
	}
	for k := range m.Gangs {
		if !m.Gangs[k].Books || s.gangs[k].dead != 0 || s.gangs[k].phase != waiting && s.gangs[k].phase != granted {
			continue
		}
		if s.left.home > 0 {
			e(homeDies, k, 0, false, func(n *state) { n.left.home--; die(n, k) })
		}
		for i := range m.Room {
			if s.left.process > 0 && s.nodes[i].down == 0 {
				e(processDies, k, i, false, func(n *state) { n.left.process--; die(n, k); down(n, i) })
			}
		}
	}
	for i := range m.Room {
		if s.left.restart > 0 && s.nodes[i].down == 0 {
			e(restarts, 0, i, false, func(n *state) { n.left.restart--; down(n, i) })
		}
		if s.nodes[i].down != 0 {
			e(takesOver, 0, i, true, func(n *state) {
				n.nodes[i].down = 0
				for k := range n.gangs {
					of := &n.gangs[k].record
					if of.number != 0 && of.pods[i] > 0 && !m.weak.Has(RoomsUnrecorded) {
						n.nodes[i].said[k] = booked{of.number, of.start, of.pods[i], n.now + m.lives()}
					}
				}
			})
		}
	}
}

// harm returns what a step violates.
func (m *machine) harm(from, to *state, kind uint8) string {
	if sum := m.charged(to); sum > m.Quota {
		return fmt.Sprintf("I1: %d of %d are charged", sum, m.Quota)
	}
	for n := range m.Room {
		if sum := m.taken(to, n); sum > m.Room[n] {
			return fmt.Sprintf("I2: node %d has %d of %d", n, sum, m.Room[n])
		}
	}
	for k := range m.Gangs {
		g := &to.gangs[k]
		if g.isBooked() && from.gangs[k].isBooked() && g.record.start > from.gangs[k].record.start {
			return fmt.Sprintf("I27: S of gang %d moves from %d to %d", k, from.gangs[k].record.start, g.record.start)
		}
		was := &from.gangs[k]
		if kind == ticks && was.dead == 0 && (was.phase == waiting || was.phase == granted) && was.promised <= from.now {
			return fmt.Sprintf("I27: gang %d was to start by %d", k, was.promised)
		}
	}
	return ""
}

// Judge has nothing to add: steps are judged.
func (m *machine) Judge(*state, []step) string { return "" }

// Say describes a step.
func (m *machine) Say(st step, from, to *state) string {
	name := string(rune('a' + st.gang))
	switch g := &to.gangs[st.gang]; st.kind {
	case ticks:
		return fmt.Sprintf("time %d", to.now)
	case plans:
		return fmt.Sprintf("%s plans for %d, rooms %v", name, g.plan.start, g.plan.pods)
	case claimed:
		return fmt.Sprintf("the Claim of %s arrives: booked for %d, rooms %v", name, g.record.start, g.record.pods)
	case places, starts:
		return fmt.Sprintf("%s %s, pods %v", name, said[st.kind], g.on)
	case evicts:
		return fmt.Sprintf("evicted for %s: %03b", name, st.to)
	case requested:
		if g.step == idle {
			return fmt.Sprintf("node %d refuses to book for %s", st.to, name)
		}
		return fmt.Sprintf("node %d books for %s", st.to, name)
	case repeats, lateRequest:
		return fmt.Sprintf("node %d hears %s of %s", st.to, said[st.kind], name)
	case crash:
		return said[st.kind]
	case restarts, takesOver:
		return fmt.Sprintf("%s %d", said[st.kind], st.to)
	case processDies:
		return fmt.Sprintf("the process of the home of %s and of node %d dies", name, st.to)
	}
	return name + " " + said[st.kind]
}

var said = map[uint8]string{born: "comes", grants: "is granted", places: "starts", givesBack: "gives its quota back",
	ends: "ends", departs: "has left", withdraws: "is withdrawn", offersStart: "gets a mandate",
	claims: "sends its Claim", hears: "hears that it is booked", repeats: "the booking",
	lateRequest: "a late request", grantsBooked: "is granted as booked", starts: "starts as booked",
	reports: "says who has its rooms", crash: "the coordinator crashes", homeDies: "loses its home",
	heirComes: "has an heir", restarts: "the shard restarts of node", takesOver: "there is a shard again of node"}
