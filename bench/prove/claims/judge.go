package claims

import (
	"fmt"
	"slices"
)

func (m *machine) name(g uint8) string {
	if int(g) < len(m.World.Gangs) {
		return m.World.Gangs[g].Name
	}
	return "?"
}

// increased judges a transaction of the coordinator that increased a sum: quota, and what is promised (I1 and I18).
func (m *machine) increased(before, s *state, g uint8) string {
	switch {
	case s.charged() > int(s.limit) && s.charged() > before.charged():
		return fmt.Sprintf("I1: %d is charged, and the limit is %d", s.charged(), s.limit)
	case m.virtual(s, 0) > int(s.limit):
		return fmt.Sprintf("I18: %s is given quota that is promised to another", m.name(g))
	}
	return ""
}

// judge returns what is wrong with a state.
func (m *machine) judge(s *state) string {
	var on [nodes]int
	for g := range uint8(gangs) {
		is := &s.gangs[g]
		for n, p := range is.pods {
			if p.kube != bound {
				continue
			}
			on[n]++
			if is.record == absent || is.attempt != p.attempt || is.demand == 0 {
				return "I1: a pod of " + m.name(g) + " is bound, and not charged"
			}
		}
		if by := s.claimedBy(g, 0); by != 0 && s.claimedBy(g, 1<<(by-1)) != 0 {
			return m.name(g) + " is in two claims"
		}
	}
	for n := range on {
		if on[n] > 1 {
			return fmt.Sprintf("node %d is over-committed", n+1)
		}
	}
	return ""
}

// Judge judges states from which no message is on its way, and ends.
func (m *machine) Judge(s *state, steps []step) string {
	if slices.ContainsFunc(steps, func(st step) bool { return st.kind < slow }) {
		return ""
	}
	if v := m.judgeQuiet(s); v != "" || len(steps) > 0 {
		return v
	}
	return m.judgeEnd(s)
}

// judgeQuiet is for moments at which every message has arrived: what a home was promised for its claim is known at the node shards.
func (m *machine) judgeQuiet(s *state) string {
	for g := range uint8(gangs) {
		is := &s.gangs[g]
		if is.claim == 0 || is.phase == leaving || is.phase == changing {
			continue
		}
		for n := range uint8(nodes) {
			at := &s.nodes[n]
			if m.needs(s, g, n) && at.hold != g+1 && at.promise != g+1 && at.occupant != 0 && m.yields(s, g, at.occupant-1) {
				return fmt.Sprintf("node %d promises nothing to %s, whose claim stands", n+1, m.name(g))
			}
		}
	}
	return ""
}

// judgeEnd returns what is violated if nothing can happen any more.
func (m *machine) judgeEnd(s *state) string {
	for g := range uint8(gangs) {
		is := &s.gangs[g]
		switch {
		case is.claim != 0:
			return "the claim of " + m.name(g) + " stands for ever"
		case is.record == closing:
			return m.name(g) + " is closed, and not gone"
		case is.phase == gone && is.record != absent:
			return m.name(g) + " is gone, and charged"
		case is.phase == done || is.phase == gone:
		case (is.record == absent || m.inPart(s, g)) && m.fits(s, g):
			return m.name(g) + " waits for ever for quota that is free"
		case m.mayClaim(s, g) && is.last < serials && !m.hopeless(s, g):
			return m.name(g) + " waits for ever, and could claim"
		case is.record == open && !m.inPart(s, g) && !m.blocked(s, g):
			return m.name(g) + " waits for ever for room that is free"
		}
		c := is.yieldsTo
		if c != 0 && s.gangs[c-1].phase != done && s.gangs[c-1].cut == 0 && s.gangs[c-1].yieldsTo == 0 {
			return fmt.Sprintf("%s was evicted for %s, which does not start", m.name(g), m.name(c-1))
		}
	}
	return ""
}

// blocked reports whether a pod of a gang has no room because another gang is bound there.
func (m *machine) blocked(s *state, g uint8) bool {
	for n := range uint8(nodes) {
		if v := s.nodes[n].occupant; m.nodes[g]>>n&1 != 0 && v != 0 && v != g+1 {
			return true
		}
	}
	return false
}
