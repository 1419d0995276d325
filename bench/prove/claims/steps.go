package claims

import "basalt.dev/basalt/bench/prove/spec"

// kind of a step. Those from slow on are of the world outside, or faults: what is judged at quiet moments has to be so before each of them.
type kind uint8

const (
	grant kind = iota
	mandate
	claimArrives
	closes
	claimGranted
	drops
	unreserve
	askRoom
	retreat
	sendClaim
	learnClaimed
	learnRefused
	learnDropped
	learnGranted
	commit
	writeRow
	withdrawRow
	bindSaid
	finished
	takeOver
	learnClosed
	readRecord
	expire
	seeGone
	handOver

	bindArrives
	deleteArrives
	finish
	crash
	replace
	restart
	timeout
	cancel
	edit
	cutLimit
	lapse
	lateHold
)

const slow = bindArrives

// step is one change of the state: what happens, to which gang, on which node or at which home, and more.
type step struct {
	kind    kind
	g, i, k uint8
}

// machine is a configuration with what follows from it.
type machine struct {
	Config
	weak    spec.Weakened[Rule]
	demand  [gangs]uint8
	takes   [gangs]uint8
	nodes   [gangs]uint8
	again   [gangs]bool
	victims uint8
}

// Next calls emit with every state that one step leads to, and what the step violates.
func (m *machine) Next(s *state, emit func(step, *state, string)) {
	e := func(k kind, g, i, x uint8, n *state, bad string) {
		if *n == *s {
			return // it was said before
		}
		if bad == "" {
			bad = m.judge(n)
		}
		emit(step{k, g, i, x}, n, bad)
	}
	for g := range uint8(len(m.World.Gangs)) {
		m.coordinator(s, g, e)
		m.home(s, g, e)
		m.evictor(s, g, e)
		m.users(s, g, e)
	}
	for n := range uint8(nodes) {
		m.nodeShard(s, n, e)
	}
	m.faults(s, e)
}

type do func(k kind, g, i, x uint8, n *state, bad string)

// fits reports whether a gang may be charged what it lacks.
func (m *machine) fits(s *state, g uint8) bool {
	need := int(m.demand[g] - s.gangs[g].demand)
	return s.charged()+need <= int(s.limit) && (m.weak.Has(RealShares) || m.virtual(s, s.blind)+need <= int(s.limit))
}

// inPart reports whether a gang has started with a part of what it asks for.
func (m *machine) inPart(s *state, g uint8) bool {
	is := &s.gangs[g]
	return is.record == open && is.demand != 0 && is.demand < m.demand[g]
}

// candidates are the gangs that one may claim now, and which of them are at attempt 2.
func (m *machine) candidates(s *state, g uint8) (may, two uint8) {
	for v := range uint8(gangs) {
		is := &s.gangs[v]
		spared := is.claim != 0 && !m.weak.Has(ClaimantTaken) || s.claimedBy(v, s.blind) != 0 && !m.weak.Has(TwoClaims)
		if m.takes[g]>>v&1 != 0 && is.record == open && s.unfair == 0 && !spared {
			may |= 1 << v
			two |= (is.attempt - 1) << v
		}
	}
	return may, two
}

// lacksRoom reports whether a gang that is charged has a pod whose node somebody has.
func (m *machine) lacksRoom(s *state, g, of uint8) bool {
	for n := range uint8(nodes) {
		if p := &s.gangs[g].pods[n]; m.nodes[g]>>n&1 != 0 && p.kube == pending && p.row == none && s.nodes[n].occupant != 0 && of>>(s.nodes[n].occupant-1)&1 != 0 {
			return true
		}
	}
	return false
}

// mayClaim reports whether the coordinator would give a gang a mandate: it lacks quota or room, and with the candidates it would not.
func (m *machine) mayClaim(s *state, g uint8) bool {
	is := &s.gangs[g]
	if m.takes[g] == 0 || is.claim != 0 || is.record == closing {
		return false
	}
	may, _ := m.candidates(s, g)
	if is.record == open && !m.inPart(s, g) {
		return is.demand == m.demand[g] && is.phase == granted && is.current != 0 && m.lacksRoom(s, g, may)
	}
	free := int(s.limit) - m.virtual(s, s.blind)
	for v := range uint8(gangs) {
		if may>>v&1 != 0 {
			free += int(s.gangs[v].demand)
		}
	}
	asks := is.phase == asking || is.phase == planning || is.phase == claiming
	return asks && !m.fits(s, g) && int(m.demand[g]-is.demand) <= free
}

// coordinator is what it may do about a gang.
func (m *machine) coordinator(s *state, g uint8, e do) {
	is := &s.gangs[g]
	var n state
	to := &n.gangs[g]
	// A Reserve is read off the home's phase.
	asks := is.phase == asking || is.phase == planning || is.phase == claiming
	if asks && (is.record == absent || is.claim == 0 && m.inPart(s, g)) && m.fits(s, g) {
		n = *s
		to.record, to.attempt, to.demand, to.mandate = open, is.try, m.demand[g], 0
		n.put(g)
		e(grant, g, 0, 0, &n, m.increased(s, &n, g))
	}
	if is.last < serials && (is.phase == asking || is.phase == granted) && m.mayClaim(s, g) {
		n = *s
		to.last++
		to.mandate = to.last
		to.may, to.mayTwo = m.candidates(s, g)
		to.phase, to.term, to.serial, to.plan, to.rooms = planning, s.term, to.last, 0, 0
		for x := range to.room {
			if to.room[x] == promised { // for a pod that the mandate may not name
				to.room[x] = unknown
			}
		}
		e(mandate, g, 0, 0, &n, "")
	}
	for term := range uint8(terms) {
		for serial := range uint8(serials) {
			if is.claims[term][serial] != 0 {
				m.claimArrives(s, g, term, serial, e)
			}
		}
	}
	if is.claim != 0 && s.blind>>g&1 == 0 {
		m.standing(s, g, e)
	}
	if s.doomed>>g&1 != 0 && is.record == open {
		n = *s
		n.doomed &^= 1 << g
		e(closes, g, 0, 0, &n, m.close(&n, g))
	}
	if is.phase == leaving || is.phase == changing { // all is withdrawn, and the Unreserve arrives
		n = *s
		m.giveBack(&n, g)
		e(unreserve, g, 0, 0, &n, "")
	}
}

// claimArrives is the acceptance of a plan, or its refusal.
func (m *machine) claimArrives(s *state, g, term, serial uint8, e do) {
	is := &s.gangs[g]
	c := is.claims[term][serial]
	attempt, victims, two := c>>1&1+1, c>>2&7, c>>5&7
	victims, two = victims<<1, two<<1 // the first gang is nobody's victim
	n := *s
	to := &n.gangs[g]
	fresh := term+1 == s.term || m.weak.Has(OldTerm)
	fresh = fresh && (serial+1 == is.mandate || m.weak.Has(OldSerial))
	if !fresh || is.claim != 0 || is.record == closing || is.record == open && is.attempt != attempt {
		return
	}
	legal, free := s.unfair == 0 && (s.claimedBy(g, s.blind) == 0 || m.weak.Has(VictimClaims)), 0
	for v := range uint8(gangs) {
		if victims>>v&1 == 0 {
			continue
		}
		at := &s.gangs[v]
		named := at.attempt == two>>v&1+1
		if !named && m.weak.Has(ClaimWithoutAttempt) {
			two = two&^(1<<v) | (at.attempt-1)<<v&(1<<v)
			named = true
		}
		legal = legal && at.record == open && named && (s.claimedBy(v, s.blind) == 0 || m.weak.Has(TwoClaims)) &&
			(at.claim == 0 || m.weak.Has(ClaimantTaken))
		free += int(at.demand)
	}
	to.mandate = 0
	over := int(s.limit) - m.virtual(s, s.blind) - int(m.demand[g]-is.demand) + free // what the plan frees beyond what lacks
	reducible := m.reducible(s, g, term, serial, victims, over)
	if !legal || reducible && !m.weak.Has(ReducibleClaim) || victims == 0 && is.demand == m.demand[g] ||
		m.virtual(s, s.blind)+int(m.demand[g]-is.demand)-free > int(s.limit) {
		e(claimArrives, g, term, serial, &n, "")
		return
	}
	if m.weak.Has(EvictFirst) {
		bad := ""
		for v := range uint8(gangs) {
			if victims>>v&1 != 0 && bad == "" {
				bad = m.close(&n, v)
			}
		}
		e(claimArrives, g, term, serial, &n, bad)
		return
	}
	if to.record == absent {
		to.record, to.attempt, to.demand = open, attempt, 0
	}
	to.claim, to.victims, to.second, to.awaits = 1, victims, two, is.waitsOn[term][serial]
	if m.weak.Has(AwaitsVictims) {
		to.awaits = victims
	}
	n.blind &^= 1 << g
	n.put(g)
	bad := m.increased(s, &n, g)
	strict := *m
	strict.weak = 0
	if strict.reducible(s, g, term, serial, victims, int(s.limit)-strict.virtual(s, 0)-int(m.demand[g]-is.demand)+free) {
		bad = "I13: a claim takes more than it needs"
	}
	if to.ended>>attempt&1 != 0 {
		bad = "a claim of a reservation that was given back"
	}
	for v := range uint8(gangs) {
		if victims>>v&1 != 0 && c>>5&7<<1>>v&1 != two>>v&1 {
			bad = m.name(v) + " is claimed under an attempt that no plan names"
		}
	}
	e(claimArrives, g, term, serial, &n, bad)
}

// reducible reports whether a plan would do without one of its victims, which has no room that the gang waits for.
func (m *machine) reducible(s *state, g, term, serial, victims uint8, over int) bool {
	for v := range uint8(gangs) {
		if victims>>v&1 != 0 && s.gangs[g].waitsOn[term][serial]>>v&1 == 0 && int(s.gangs[v].demand) <= over {
			return true
		}
	}
	return false
}

// standing is what the coordinator does about a claim.
func (m *machine) standing(s *state, g uint8, e do) {
	is := &s.gangs[g]
	left := uint8(0) // victims that are still open
	for v := range uint8(gangs) {
		if at := &s.gangs[v]; is.victims>>v&1 != 0 && at.record == open &&
			(is.names(v, at.attempt) || m.weak.Has(CloseWithoutAttempt)) {
			left |= 1 << v
		}
	}
	unfit := m.virtual(s, s.blind) > int(s.limit) && !m.weak.Has(UnfitClaimStands)
	if unfit || left != 0 && s.unfair != 0 && !m.weak.Has(IllegalIsClosed) {
		n := *s
		m.drop(&n, g)
		e(drops, g, 0, 0, &n, "")
		return
	}
	for v := range uint8(gangs) {
		if left>>v&1 != 0 {
			n := *s
			bad := m.close(&n, v)
			if s.unfair != 0 {
				bad = m.name(v) + " is closed, although the limits in force do not allow it"
			}
			e(closes, v, g, 0, &n, bad)
		}
	}
	fits := s.charged()+int(m.demand[g]-is.demand) <= int(s.limit) || m.weak.Has(UnfitGrant)
	if fits && (left == 0 || m.weak.Has(EarlyGrant)) {
		n := *s
		to := &n.gangs[g]
		to.demand, to.claim, to.victims, to.second = m.demand[g], 0, 0, 0 // what it awaits stays: an heir names that in HoldRequests
		if m.weak.Has(AwaitsForgotten) {
			to.awaits = 0
		}
		n.put(g)
		e(claimGranted, g, 0, 0, &n, m.increased(s, &n, g))
	}
	if s.left.timeout > 0 {
		n := *s
		n.left.timeout--
		n.gangs[g].cut = 1
		m.drop(&n, g)
		e(timeout, g, 0, 0, &n, "")
	}
}

// close marks a victim's reservation, and returns what is wrong with that.
func (m *machine) close(s *state, v uint8) string {
	by := s.claimedBy(v, 0)
	s.gangs[v].record = closing
	s.put(v)
	if by == 0 {
		return m.name(v) + " is closed, and no durable claim names it"
	}
	again := s.gangs[v].yieldsTo == by && s.gangs[by-1].cut == 0 && s.gangs[by-1].yieldsTo == 0
	s.gangs[v].yieldsTo = by
	if again {
		return "I21: " + m.name(v) + " is closed twice for " + m.name(by-1)
	}
	return ""
}

// drop ends a claim that was not granted. Who is not closed is spared.
func (m *machine) drop(s *state, g uint8) {
	is := &s.gangs[g]
	for v := range uint8(gangs) {
		at := &s.gangs[v]
		if !is.names(v, at.attempt) {
			continue
		}
		if at.record == open && !m.weak.Has(SparedIsAwaited) {
			is.awaits &^= 1 << v
		}
		if at.record == open && m.weak.Has(DroppedIsClosed) {
			s.doomed |= 1 << v
		}
		if at.record == closing && m.weak.Has(DroppedIsOpened) {
			at.record = open
		}
	}
	is.claim, is.victims, is.second = 0, 0, 0
	if is.demand == 0 {
		is.record, is.awaits = absent, 0
	}
	s.put(g)
}

// giveBack deletes a record, and the claim in it.
func (m *machine) giveBack(s *state, g uint8) {
	is := &s.gangs[g]
	is.mandate = 0
	keeps := is.claim != 0 && m.weak.Has(UnreserveKeepsClaim)
	if !keeps {
		m.drop(s, g)
		is.record, is.demand, is.awaits = absent, 0, 0
	}
	is.ended |= 1 << is.try
	if is.phase == changing {
		is.try++
		is.phase = asking
	} else {
		is.phase = gone
	}
}
