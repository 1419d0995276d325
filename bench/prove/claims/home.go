package claims

// yields reports whether a home takes the gang on a node for one that will leave: its claim says so, or it may claim it, or probes show
// that it leaves anyway.
func (m *machine) yields(s *state, g, v uint8) bool {
	return (s.gangs[g].may|s.gangs[g].rooms)>>v&1 != 0 || s.gangs[g].phase == planning && s.gangs[v].record != open
}

func (m *machine) needs(s *state, g, n uint8) bool {
	p := &s.gangs[g].pods[n]
	return m.nodes[g]>>n&1 != 0 && p.kube == pending && p.row == none
}

// hopeless reports whether a node that a gang needs has a gang that will not leave: there is no plan.
func (m *machine) hopeless(s *state, g uint8) bool {
	for n := range uint8(nodes) {
		if v := s.nodes[n].occupant; m.needs(s, g, n) && v != 0 && v != g+1 && !m.yields(s, g, v-1) {
			return true
		}
	}
	return false
}

// release withdraws holds and promises of a gang everywhere.
func (s *state) release(g uint8) {
	for n := range s.nodes {
		at := &s.nodes[n]
		if at.hold == g+1 {
			at.hold = 0
		}
		if at.promise == g+1 {
			at.promise = 0
		}
		at.told &^= 1 << g
		s.gangs[g].room[n] = unknown
	}
}

// startOver has a home drop everything and its mandate.
func (m *machine) startOver(s *state, g uint8) {
	is := &s.gangs[g]
	m.giveWay(s, g)
	is.term, is.serial, is.may, is.mayTwo, is.plan, is.rooms = 0, 0, 0, 0, 0, 0
	is.phase = asking
	if is.record == open && is.demand == m.demand[g] {
		is.phase, is.may = granted, is.awaits
	}
}

// giveWay has a home withdraw the rooms of a plan that it gives up. What it holds of its own right, and what a claim of its own
// frees, stays.
func (m *machine) giveWay(s *state, g uint8) {
	is := &s.gangs[g]
	is.plan, is.rooms = 0, 0
	if is.record != open || is.demand != m.demand[g] || m.weak.Has(RoomGivenBack) {
		s.release(g)
		return
	}
	for n := range s.nodes {
		if at := &s.nodes[n]; at.promise == g+1 && at.occupant != 0 && is.awaits>>(at.occupant-1)&1 == 0 {
			at.promise = 0
			at.told &^= 1 << g
			is.room[n] = unknown
		}
	}
}

// home is what the home of a gang may do.
func (m *machine) home(s *state, g uint8, e do) {
	is := &s.gangs[g]
	var n state
	to := &n.gangs[g]
	all, any := true, false // nodes have answered
	refused, hopeless := false, m.hopeless(s, g)
	for x := range uint8(nodes) {
		if !m.needs(s, g, x) {
			continue
		}
		if is.phase >= planning && is.phase <= granted && !((is.phase == planning || is.phase == granted) && hopeless) {
			n = *s
			bad := m.holdRequest(&n, g, x)
			e(askRoom, g, x, 0, &n, bad)
		}
		all = all && is.room[x] != unknown
		any = any || is.room[x] != unknown
		refused = refused || is.room[x] == unknown && !m.available(s, g, x)
	}
	knows := is.record == open && is.claim == 0 && is.demand == m.demand[g]
	switch is.phase {
	case planning:
		if is.record == open && !m.inPart(s, g) && (m.allHeld(s, g) || all && is.plan == 0) { // what leaves anyway is enough
			n = *s
			to.phase, to.term, to.serial, to.plan, to.may, to.mayTwo = granted, 0, 0, 0, is.awaits, 0
			e(retreat, g, 0, 0, &n, "")
			break
		}
		if all || m.weak.Has(ClaimsUnpromised) {
			n = *s
			to.phase = claiming
			if m.weak.Has(ClaimsUnpromised) {
				to.plan, to.rooms = is.may, is.may
			}
			m.addForQuota(&n, g)
			to.claims[is.term-1][is.serial-1] = 1 | (is.try-1)<<1 | to.plan>>1<<2 | (is.mayTwo&to.plan)>>1<<5
			to.waitsOn[is.term-1][is.serial-1] = to.rooms
			e(sendClaim, g, 0, 0, &n, "")
		}
		if (refused && !m.weak.Has(HoldAndWait) || hopeless) && any {
			n = *s
			m.giveWay(&n, g)
			e(retreat, g, 0, 0, &n, "")
		}
	case granted:
		if any && (hopeless || refused && m.outranked(s, g)) {
			n = *s
			n.release(g)
			e(retreat, g, 0, 0, &n, "")
		}
		if is.current != 0 && knows && m.allHeld(s, g) {
			n = *s
			to.phase = committing
			for x := range uint8(nodes) {
				if m.needs(s, g, x) {
					to.pods[x].row = asked
				}
			}
			e(commit, g, 0, 0, &n, "")
		}
	case committing:
		m.committing(s, g, e)
	case fresh:
		n = *s
		m.takeOver(&n, g)
		e(takeOver, g, 0, 0, &n, "")
	}
	if is.claim != 0 && is.attempt == is.try &&
		(is.phase == asking && !(m.weak.Has(HeirIgnorant) && is.renewed != 0) ||
			is.phase == planning || is.phase == claiming) {
		n = *s
		to.phase, to.may, to.mayTwo, to.term, to.serial = claimed, is.awaits, 0, 0, 0
		e(learnClaimed, g, 0, 0, &n, "")
	}
	if knows && is.current == 0 && is.phase <= granted && is.record == open && is.attempt == is.try {
		n = *s
		to.phase, to.current, to.term, to.serial, to.may, to.mayTwo, to.rooms = granted, 1, 0, 0, is.awaits, 0, 0
		e(learnGranted, g, 0, 0, &n, "")
	}
	if (is.phase == planning || is.phase == claiming) && is.claim == 0 && !(knows && is.current == 0) && (is.term != s.term || is.serial != is.mandate) {
		n = *s
		m.startOver(&n, g)
		e(learnRefused, g, 0, 0, &n, "")
	}
	if is.phase == claimed && (is.record == absent || is.claim == 0 && m.inPart(s, g)) {
		n = *s
		m.startOver(&n, g)
		e(learnDropped, g, 0, 0, &n, "")
	}
}

// outranked reports whether a gang of better rank holds a room that a gang needs.
func (m *machine) outranked(s *state, g uint8) bool {
	for n := range uint8(nodes) {
		if h := s.nodes[n].hold; m.needs(s, g, n) && h != 0 && h <= g {
			return true
		}
	}
	return false
}

func (m *machine) allHeld(s *state, g uint8) bool {
	any := false
	for n := range uint8(nodes) {
		if m.needs(s, g, n) {
			any = true
			if s.gangs[g].room[n] != held {
				return false
			}
		}
	}
	return any
}

// available reports whether a node shard would answer that a room is held or promised.
func (m *machine) available(s *state, g, n uint8) bool {
	at := &s.nodes[n]
	switch {
	case at.hold == g+1:
		return true
	case at.occupant == 0:
		return at.hold == 0 && (at.promise == 0 || at.promise == g+1 || m.weak.Has(PromiseStolen))
	}
	unrepeated := m.weak.Has(PromiseUnrepeated) && s.gangs[g].phase != planning
	return m.takes[g] != 0 && !unrepeated && m.yields(s, g, at.occupant-1) &&
		(at.promise == 0 || at.promise == g+1 || m.weak.Has(PromiseReplaced))
}

// holdRequest arrives at a node shard, and the answer at the home. It is the same request while a gang plans, and later, when
// each one makes a shard know what it knew before.
func (m *machine) holdRequest(s *state, g, n uint8) string {
	is, at := &s.gangs[g], &s.nodes[n]
	switch {
	case !m.available(s, g, n):
		is.room[n] = unknown
		if at.promise == g+1 && !m.weak.Has(PromiseUnrepeated) { // the request does not name the pod any more
			at.promise = 0
			at.told &^= 1 << g
		}
	case at.hold == g+1:
		is.room[n] = held
	case at.occupant == 0:
		if at.promise == g+1 {
			at.promise = 0
		}
		is.room[n] = held
		return m.give(s, g, n)
	default:
		at.promise = g + 1
		at.told |= 1 << g
		is.room[n] = promised
		if is.phase == planning {
			is.rooms |= 1 << (at.occupant - 1)
		}
		v := at.occupant - 1
		p := &s.gangs[v].pods[n]
		charged := p.kube == bound && p.attempt == s.gangs[v].attempt || p.row >= prepared || m.weak.Has(PodsUnnamed)
		if is.phase == planning && is.may>>v&1 != 0 && s.gangs[v].record == open && charged {
			is.plan |= 1 << v
		}
	}
	return ""
}

// give has a node shard hold a room for a gang, and returns whose promise that breaks.
func (m *machine) give(s *state, g, n uint8) string {
	at := &s.nodes[n]
	at.hold = g + 1
	at.told &^= 1 << g
	for c := range uint8(gangs) {
		if is := &s.gangs[c]; at.told>>c&1 != 0 && is.record == open && (is.claim != 0 || is.demand != 0) && is.phase != leaving && is.phase != changing {
			return "I18: " + m.name(g) + " is given room that is promised to " + m.name(c)
		}
	}
	return ""
}

// committing is how rows are written and bound, or taken back when one is refused.
func (m *machine) committing(s *state, g uint8, e do) {
	is := &s.gangs[g]
	all, refused := true, false
	for x := range uint8(nodes) {
		if p := &is.pods[x]; m.nodes[g]>>x&1 != 0 && p.kube != bound && p.kube != ended {
			all = all && p.row >= prepared
			refused = refused || p.row == none
		}
	}
	var n state
	to := &n.gangs[g]
	over := true
	for x := range uint8(nodes) {
		p := &is.pods[x]
		if m.nodes[g]>>x&1 == 0 {
			continue
		}
		over = over && p.row == none && p.kube != pending
		if p.row == prepared && all {
			n = *s
			to.pods[x].row = sent
			e(bindSaid, g, x, 0, &n, "")
		}
		if refused && (p.row == prepared || p.row == asked) {
			n = *s
			n.takeBack(g, x)
			e(withdrawRow, g, x, 0, &n, "")
		}
	}
	switch {
	case over:
		n = *s
		to.phase = done
		e(finished, g, 0, 0, &n, "")
	case refused && is.idle() && is.record == open && is.pods[0].row != stale && is.pods[1].row != stale:
		n = *s
		to.phase = granted
		e(finished, g, 0, 0, &n, "")
	}
}

// addForQuota completes a plan by victims that have no room that the gang needs.
func (m *machine) addForQuota(s *state, g uint8) {
	is := &s.gangs[g]
	short := m.virtual(s, 0) + int(m.demand[g]-is.demand) - int(s.limit)
	for v := range uint8(gangs) {
		if is.plan>>v&1 != 0 {
			short -= int(s.gangs[v].demand)
		}
	}
	for v := range uint8(gangs) {
		if short > 0 && is.may>>v&1 != 0 && is.plan>>v&1 == 0 && s.gangs[v].record == open {
			is.plan |= 1 << v
			short -= int(s.gangs[v].demand)
		}
	}
}

// takeBack withdraws a row that was not sent. Its room stays a hold of the gang.
func (s *state) takeBack(g, n uint8) {
	p := &s.gangs[g].pods[n]
	switch p.row {
	case prepared:
		s.nodes[n].occupant, s.nodes[n].hold = 0, g+1
		p.row = none
	case asked, stale:
		p.row = none
	}
}

// takeOver is an heir that reads the record, and the intents.
func (m *machine) takeOver(s *state, g uint8) {
	is := &s.gangs[g]
	is.room = [nodes]uint8{}
	is.term, is.serial, is.may, is.mayTwo, is.plan, is.rooms, is.current = 0, 0, 0, 0, 0, 0, 0
	for n := range uint8(nodes) {
		s.takeBack(g, n)
	}
	if m.weak.Has(HeirWithdraws) {
		s.release(g)
	}
	switch {
	case is.record == absent:
		is.phase = asking
	case is.claim != 0 && m.weak.Has(HeirIgnorant):
		is.phase = asking
	case is.claim != 0:
		is.phase, is.may = claimed, is.awaits
	case m.inPart(s, g):
		is.phase = asking
	case is.boundPods() > 0 || !is.idle():
		is.phase, is.may = committing, is.awaits
	default:
		is.phase, is.may = granted, is.awaits
	}
}

// evictor is what a home does about a gang that yields. The home that was replaced goes on, as slowly as it likes.
func (m *machine) evictor(s *state, g uint8, e do) {
	if m.victims>>g&1 == 0 {
		return
	}
	is := &s.gangs[g]
	var n state
	to := &n.gangs[g]
	for h := range uint8(homes) {
		if h > is.renewed {
			break
		}
		if is.record == closing && is.closed[h] != is.attempt {
			n = *s
			to.closed[h] = is.attempt
			if h == is.renewed {
				to.phase = done
				n.release(g)
			}
			e(learnClosed, g, h, 0, &n, "")
		}
		if is.closed[h] == 0 {
			continue
		}
		for x := range uint8(nodes) {
			p := &is.pods[x]
			bit := uint8(1) << (x + 2*p.life)
			shown := p.kube == bound || m.weak.Has(ReadBeforeSeen) && p.kube == pending
			isClosed := is.record == closing && is.attempt == is.closed[h] || m.weak.Has(EvictUnread)
			if shown && is.read[h]&bit == 0 && isClosed {
				n = *s
				to.read[h] |= bit
				e(readRecord, g, h, x, &n, "")
			}
			if is.read[h]&bit != 0 && p.kube == bound {
				n = *s
				to.pods[x].kube = ended
				bad := ""
				if is.record != closing || is.attempt != p.attempt {
					bad = "I15: a pod of " + m.name(g) + " is evicted, and its reservation is not closed"
				}
				e(deleteArrives, g, h, x, &n, bad)
			}
		}
	}
	h := is.renewed
	withdrawn := true
	if is.closed[h] == is.attempt && is.record == closing {
		for x := range uint8(nodes) {
			p := &is.pods[x]
			if p.row == prepared || p.row == asked || p.row == stale && !m.weak.Has(RowsUnfenced) {
				withdrawn = false
				n = *s
				to.pods[x].row = none
				e(withdrawRow, g, x, 0, &n, "")
			}
		}
	}
	over := is.record == closing && is.closed[h] == is.attempt || is.record == open && is.claim == 0 && is.phase == done
	for x := range uint8(nodes) {
		over = over && is.pods[x].kube != bound && is.pods[x].row != sent && (is.record == closing || is.pods[x].kube != pending)
	}
	if over && withdrawn {
		n = *s
		to.record, to.demand, to.mandate = absent, 0, 0
		to.ended |= 1 << is.attempt
		n.put(g)
		to.phase = gone
		if m.again[g] && is.try < 2 {
			to.phase, to.try = asking, is.try+1
			for x := range to.pods {
				if p := &to.pods[x]; p.kube == ended {
					*p = pod{kube: pending, life: p.life + 1}
				}
			}
		}
		e(unreserve, g, 1, 0, &n, "")
	}
}

// users cancel and edit gangs; pods finish.
func (m *machine) users(s *state, g uint8, e do) {
	is := &s.gangs[g]
	var n state
	to := &n.gangs[g]
	ends := is.phase <= committing || is.phase == fresh
	for _, p := range is.pods {
		ends = ends && p.kube != bound && p.row != sent
	}
	if ends && m.takes[g] != 0 {
		for _, one := range []struct {
			left  uint8
			phase uint8
		}{{s.left.cancel, leaving}, {s.left.change, changing}} {
			if one.left == 0 || one.phase == changing && is.try == 2 {
				continue
			}
			n = *s
			n.release(g)
			for x := range to.pods {
				to.pods[x].row = none
			}
			to.phase, to.cut, to.term, to.serial, to.may, to.mayTwo, to.plan, to.rooms = one.phase, 1, 0, 0, 0, 0, 0, 0
			if one.phase == leaving {
				n.left.cancel--
			} else {
				n.left.change--
			}
			e(cancel, g, one.phase, 0, &n, "")
		}
	}
	for x := range uint8(nodes) {
		if s.left.finish > 0 && m.victims>>g&1 != 0 && is.pods[x].kube == bound && is.pods[x].life == 0 {
			n = *s
			n.left.finish--
			to.pods[x].kube = ended
			if m.takes[g] != 0 {
				to.cut = 1
			}
			e(finish, g, x, 0, &n, "")
		}
		if is.pods[x].row == sent {
			n = *s
			to.pods[x].row = none
			if is.pods[x].kube == pending {
				to.pods[x].kube, to.pods[x].attempt = bound, is.attempt
			}
			e(bindArrives, g, x, 0, &n, "")
		}
	}
}
