package bookings

// end returns when a gang will have left, as the coordinator knows; 0 if nothing of it is there.
func (m *machine) end(s *state, k int) int {
	g, x := &s.gangs[k], &m.Gangs[k]
	switch {
	case !g.present() || g.phase == granted && m.weak.Has(UntilUnstarted):
		return 0
	case g.phase == closing:
		return int(g.closed) + grace
	case x.Limit == 0:
		return far
	case g.phase == running && g.heard != 0:
		return m.stillThere(s, m.endOf(x, int(g.started), false)+m.extra(g))
	case g.phase == running && m.weak.Has(StartedUnheard):
		return m.endOf(x, int(g.granted), false)
	}
	return m.stillThere(s, m.endOf(x, int(g.granted), true))
}

// stillThere is the end of a gang that runs: a grace period from now at the earliest.
func (m *machine) stillThere(s *state, end int) int {
	if m.weak.Has(OverrunGone) {
		return end
	}
	return max(end, int(s.now)+grace)
}

// extra is by how much later a gang ends because its limit was raised.
func (m *machine) extra(g *gang) int {
	if m.weak.Has(RaisedCounts) {
		return int(g.raised)
	}
	return 0
}

// endOf returns when a gang will have left that is granted, or starts, at a time.
func (m *machine) endOf(x *Shape, at int, looks bool) int {
	if x.Limit == 0 {
		return far
	}
	at += int(x.Limit)
	if looks && !m.weak.Has(SearchForgotten) {
		at += search
	}
	if !m.weak.Has(GraceForgotten) {
		at += grace
	}
	return at
}

// booked reports whether the coordinator counts a booking.
func (g *gang) booked() bool { return g.phase == waiting && g.start != none && g.known != 0 }

// runs reports whether a booked gang runs at a time.
func (m *machine) runs(s *state, b, at int) bool {
	g := &s.gangs[b]
	return g.booked() && int(g.start) <= at && at < m.endOf(&m.Gangs[b], int(g.start), false)
}

// quota is what a queue has at a time: of those that have not left by then, and of bookings but those left out.
func (m *machine) quota(s *state, queue, at int, but func(b int) bool) (sum int) {
	for k := range m.Gangs {
		x := &m.Gangs[k]
		if below(x.Leaf, queue) && (m.end(s, k) > at || m.runs(s, k, at) && !but(k)) {
			sum += x.demand()
		}
	}
	return sum
}

// room is what is taken of a node at a time, likewise. Bookings count that are in a set.
func (m *machine) room(s *state, n, at int, set uint8, but func(b int) bool) (sum int) {
	for k := range m.Gangs {
		g, x := &s.gangs[k], &m.Gangs[k]
		if m.end(s, k) > at {
			sum += int(g.on[n] * x.Size)
		}
		if set>>k&1 != 0 && m.runs(s, k, at) && !but(k) {
			sum += int(g.room[n] * x.Size)
		}
	}
	return sum
}

// but leaves out the booking of a gang itself, and without the rule that others count, all but one.
func (m *machine) but(k, only int) func(int) bool {
	return func(b int) bool {
		return b == k && !m.weak.Has(OwnCounted) || only >= 0 && b != only && m.weak.Has(OthersForgotten)
	}
}

// lends reports whether quota may be given to a gang until an end, beside all bookings of others.
func (m *machine) lends(s *state, k, end int) bool {
	x := &m.Gangs[k]
	for b := range m.Gangs {
		g, of := &s.gangs[b], &m.Gangs[b]
		if !g.booked() || b == k && !m.weak.Has(OwnCounted) || end <= int(g.start) || m.reordered(s, k, b) {
			continue
		}
		for q := range m.Queues {
			if !below(x.Leaf, q) || !below(of.Leaf, q) || m.weak.Has(PathUnasked) && q == root {
				continue
			}
			if m.quota(s, q, int(g.start), m.but(k, b))+x.demand() > m.Queues[q] {
				return false
			}
		}
	}
	return true
}

// reordered reports whether a gang goes past a booking because its leaf has less by now.
func (m *machine) reordered(s *state, k, b int) bool {
	mine, other := int(m.Gangs[k].Leaf), int(m.Gangs[b].Leaf)
	return m.weak.Has(ShareReordered) && mine != other && m.charged(s, mine) < m.charged(s, other)
}

// lendsRoom reports whether a node may give room to pods of a gang until an end, beside the bookings that it knows.
func (m *machine) lendsRoom(s *state, n, k int, pods uint8, end int) bool {
	if m.weak.Has(LentBlind) {
		return true
	}
	for b := range m.Gangs {
		g := &s.gangs[b]
		if s.nodes[n].knows>>b&1 == 0 || !g.booked() || g.room[n] == 0 || b == k || end <= int(g.start) {
			continue
		}
		if m.room(s, n, int(g.start), s.nodes[n].knows, m.but(k, b))+int(pods*m.Gangs[k].Size) > m.Nodes[n] {
			return false
		}
	}
	return true
}

// charged is what a queue has now.
func (m *machine) charged(s *state, queue int) (sum int) {
	for k := range m.Gangs {
		if s.gangs[k].present() && below(m.Gangs[k].Leaf, queue) {
			sum += m.Gangs[k].demand()
		}
	}
	return sum
}

// taken is what pods have of a node now.
func (m *machine) taken(s *state, n int) (sum int) {
	for k := range m.Gangs {
		sum += int(s.gangs[k].on[n] * m.Gangs[k].Size)
	}
	return sum
}

// plan returns the first time at which a gang fits, from a time on, and where its pods go; far if it never does.
func (m *machine) plan(s *state, k, from int) (at int, pods [nodes]uint8) {
	for at = from; at <= int(m.Horizon); at++ {
		if !m.planned(s, k, at, func(when int) bool {
			for q := range m.Queues {
				if below(m.Gangs[k].Leaf, q) && m.quota(s, q, when, m.but(k, -1))+m.Gangs[k].demand() > m.Queues[q] {
					return false
				}
			}
			return true
		}) {
			continue
		}
		if m.weak.Has(SumsAlone) {
			return at, pods
		}
		for first := int(m.Gangs[k].Pods); first >= 0; first-- {
			pods = [nodes]uint8{uint8(first), m.Gangs[k].Pods - uint8(first)}
			if m.planned(s, k, at, func(when int) bool {
				for n := range m.Nodes {
					if pods[n] > 0 && m.room(s, n, when, 0xff, m.but(k, -1))+int(pods[n]*m.Gangs[k].Size) > m.Nodes[n] {
						return false
					}
				}
				return true
			}) {
				return at, pods
			}
		}
	}
	return far, [nodes]uint8{}
}

// planned reports whether a gang that starts at a time fits then, and when later bookings start.
func (m *machine) planned(s *state, k, at int, fits func(when int) bool) bool {
	if !fits(at) {
		return false
	}
	for b := range m.Gangs {
		g := &s.gangs[b]
		if b != k && g.booked() && int(g.start) > at && m.endOf(&m.Gangs[k], at, false) > int(g.start) &&
			!m.weak.Has(PlanIgnores) && !fits(int(g.start)) {
			return false
		}
	}
	return true
}

// overran reports whether a gang has passed its limit.
func (m *machine) overran(s *state, k int) bool {
	g, x := &s.gangs[k], &m.Gangs[k]
	return g.phase == running && x.Limit > 0 && int(g.started+x.Limit)+m.extra(g) <= int(s.now)
}

// inTheWay returns a smallest set of gangs that have passed their limits without which a booked gang fits at its S.
func (m *machine) inTheWay(s *state, b int) (set uint8) {
	var over uint8
	for k := range m.Gangs {
		if m.overran(s, k) {
			over |= 1 << k
		}
	}
	if m.without(s, b, over, 0) || !m.without(s, b, over, over) {
		return 0
	}
	if m.weak.Has(NeedlessOverrun) {
		return over
	}
	set = over
	for k := range m.Gangs {
		if rest := set &^ (1 << k); rest != set && m.without(s, b, over, rest) {
			set = rest
		}
	}
	return set
}

// without reports whether a booked gang fits at its S once some of those are gone that have passed their limits.
func (m *machine) without(s *state, b int, over, goes uint8) bool {
	at, x := int(s.gangs[b].start), &m.Gangs[b]
	stays := func(k int) bool { return over>>k&1 != 0 && goes>>k&1 == 0 && m.end(s, k) <= at }
	for q := range m.Queues {
		sum := m.quota(s, q, at, m.but(b, -1))
		for k := range m.Gangs {
			if stays(k) && below(m.Gangs[k].Leaf, q) {
				sum += m.Gangs[k].demand()
			}
		}
		if below(x.Leaf, q) && sum+x.demand() > m.Queues[q] {
			return false
		}
	}
	for n := range m.Nodes {
		sum := m.room(s, n, at, 0xff, m.but(b, -1))
		for k := range m.Gangs {
			if stays(k) {
				sum += int(s.gangs[k].on[n] * m.Gangs[k].Size)
			}
		}
		if s.gangs[b].room[n] > 0 && sum+int(s.gangs[b].room[n]*x.Size) > m.Nodes[n] {
			return false
		}
	}
	return true
}
