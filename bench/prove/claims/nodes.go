package claims

// nodeShard is what the shard of a node does.
func (m *machine) nodeShard(s *state, x uint8, e do) {
	at := &s.nodes[x]
	var n state
	to := &n.nodes[x]
	for g := range uint8(gangs) {
		p := &s.gangs[g].pods[x]
		if p.row != asked && p.row != stale {
			continue
		}
		n = *s
		q := &n.gangs[g].pods[x]
		fenced := p.row == stale && !m.weak.Has(RowsUnfenced)
		switch {
		case fenced, p.kube != pending:
			q.row = none
		case at.occupant == 0 && (at.hold == 0 || at.hold == g+1):
			q.row = prepared
			to.occupant, to.hold = g+1, 0
		default:
			q.row = none
			n.gangs[g].room[x] = unknown
		}
		e(writeRow, g, x, 0, &n, "")
	}
	if v := at.occupant; v != 0 {
		if p := &s.gangs[v-1].pods[x]; p.kube != bound && (p.row == none || p.row == asked || p.row == stale) {
			n = *s
			to.occupant = 0
			bad := ""
			if at.promise != 0 && !m.weak.Has(PromiseStolen) {
				to.promise = 0
				bad = m.give(&n, at.promise-1, x)
			}
			e(seeGone, v-1, x, 0, &n, bad)
		}
	} else if at.promise != 0 && at.hold == 0 {
		n = *s
		to.promise = 0
		bad := m.give(&n, at.promise-1, x)
		e(handOver, at.promise-1, x, 0, &n, bad)
	}
	for g := range uint8(gangs) {
		is := &s.gangs[g]
		if at.hold != g+1 && at.promise != g+1 {
			continue
		}
		idle := (is.phase == planning || is.phase == granted) && is.room[x] == unknown && m.hopeless(s, g)
		if !is.wants() || idle {
			n = *s
			n.lapse(g, x)
			e(expire, g, x, 0, &n, "")
		}
		if s.left.lapse > 0 && is.wants() && m.takes[g] != 0 {
			n = *s
			n.left.lapse--
			n.excuse()
			n.lapse(g, x)
			e(lapse, g, x, 0, &n, "")
		}
	}
	if s.left.restart > 0 {
		n = *s
		n.left.restart--
		n.excuse()
		*to = node{}
		for g := range uint8(gangs) {
			if p := &s.gangs[g].pods[x]; p.kube == bound || p.row >= prepared {
				to.occupant = g + 1
			}
		}
		e(restart, 0, x, 0, &n, "")
	}
}

// lapse ends what a node shard keeps for a gang.
func (s *state) lapse(g, n uint8) {
	at := &s.nodes[n]
	if at.hold == g+1 {
		at.hold = 0
	}
	if at.promise == g+1 {
		at.promise = 0
	}
	at.told &^= 1 << g
}

// excuse is for faults after which a claim may have been in vain.
func (s *state) excuse() {
	for g := range s.gangs {
		s.gangs[g].cut = 1
	}
}

// faults of processes, and edits of limits.
func (m *machine) faults(s *state, e do) {
	var n state
	if s.left.crash > 0 {
		n = *s
		n.left.crash--
		n.term++
		n.doomed = 0
		for g := range n.gangs {
			n.gangs[g].mandate, n.gangs[g].last = 0, 0
			if n.gangs[g].claim != 0 && m.weak.Has(ClaimForgotten) {
				n.blind |= 1 << g
			}
		}
		e(crash, 0, 0, 0, &n, "")
	}
	for g := range uint8(gangs) {
		is := &s.gangs[g]
		if s.left.heirC > 0 && is.renewed == 0 && m.takes[g] != 0 && is.phase <= committing {
			n = *s
			n.left.heirC--
			to := &n.gangs[g]
			to.renewed, to.phase = 1, fresh
			if !m.weak.Has(OldHome) {
				to.mandate = 0
			}
			for x := range to.pods {
				if to.pods[x].row == asked {
					to.pods[x].row = stale // it names the old table
				}
			}
			e(replace, g, 0, 0, &n, "")
		}
		if s.left.heirV > 0 && is.renewed == 0 && m.victims>>g&1 != 0 && is.phase <= done {
			n = *s
			n.left.heirV--
			to := &n.gangs[g]
			to.renewed = 1
			if to.phase != done {
				to.phase = fresh
			}
			for x := range to.pods {
				if to.pods[x].row == asked {
					to.pods[x].row = stale
				}
			}
			e(replace, g, 0, 0, &n, "")
		}
		if s.left.late > 0 && m.takes[g] != 0 && !is.wants() && is.claims != [terms][serials]uint8{} {
			for x := range uint8(nodes) {
				n = *s
				n.left.late--
				n.excuse()
				at := &n.nodes[x]
				switch {
				case m.nodes[g]>>x&1 == 0 || at.hold != 0 || at.promise != 0:
					continue
				case at.occupant == 0:
					at.hold = g + 1
				default:
					at.promise = g + 1
				}
				e(lateHold, g, x, 0, &n, "")
			}
		}
	}
	if s.left.edit > 0 {
		n = *s
		n.left.edit--
		n.excuse()
		n.unfair = 1
		e(edit, 0, 0, 0, &n, "")
	}
	if s.left.cut > 0 {
		n = *s
		n.left.cut--
		n.excuse()
		n.limit--
		e(cutLimit, 0, 0, 0, &n, "")
	}
}
