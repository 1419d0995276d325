package promised

// end returns when a gang will have left, as all know; 0 if nothing of it is there.
func (m *machine) end(s *state, k int) int {
	g, x := &s.gangs[k], &m.Gangs[k]
	switch {
	case !g.present():
		return 0
	case g.phase == closing:
		return int(g.closed) + grace
	case x.Limit == 0:
		return far
	case g.phase == running:
		return max(int(g.started+x.Limit)+grace, int(s.now)+grace)
	case g.isBooked() && !m.weak.Has(EarlyEnd): // its rooms are free by then, and not sooner
		return max(m.stays(k, max(int(g.granted), int(g.record.start))), int(s.now)+grace)
	}
	return max(m.lasts(k, int(g.granted)+search), int(s.now)+grace)
}

// lasts returns when a gang will have left that starts at a time.
func (m *machine) lasts(k, at int) int {
	if m.Gangs[k].Limit == 0 {
		return far
	}
	return at + int(m.Gangs[k].Limit) + grace
}

// stays returns when a booked gang will have left: its home may be another at its start.
func (m *machine) stays(k, start int) int {
	if m.weak.Has(HeirUncounted) {
		return m.lasts(k, start)
	}
	return m.lasts(k, start+search)
}

// runs reports whether a gang that is booked from a start on is there at a time.
func (m *machine) runs(k int, start uint8, at int) bool {
	return int(start) <= at && at < m.stays(k, int(start))
}

// counts reports whether the coordinator counts a booking: of who is charged the end is counted.
func (m *machine) counts(s *state, b int) bool {
	return s.gangs[b].phase == waiting && s.gangs[b].isBooked()
}

// quota is what is charged at a time: to those that have not left by then, and to bookings of others that run then.
func (m *machine) quota(s *state, k, at int) (sum int) {
	for o := range m.Gangs {
		if m.end(s, o) > at || o != k && m.counts(s, o) && m.runs(o, s.gangs[o].record.start, at) {
			sum += int(m.Gangs[o].Pods)
		}
	}
	return sum
}

// fitsQuota reports whether a gang that is charged from a time to another leaves all bookings of others what they need.
func (m *machine) fitsQuota(s *state, k, from, end int) bool {
	if m.quota(s, k, from)+int(m.Gangs[k].Pods) > m.Quota {
		return false
	}
	for b := range m.Gangs {
		at := int(s.gangs[b].record.start)
		if b != k && m.counts(s, b) && at > from && end > at && m.quota(s, k, at)+int(m.Gangs[k].Pods) > m.Quota {
			return false
		}
	}
	return true
}

// charged is what all are charged now.
func (m *machine) charged(s *state) (sum int) {
	for k := range m.Gangs {
		if s.gangs[k].present() {
			sum += int(m.Gangs[k].Pods)
		}
	}
	return sum
}

// taken is what pods have of a node now.
func (m *machine) taken(s *state, n int) (sum int) {
	for k := range m.Gangs {
		sum += int(s.gangs[k].on[n])
	}
	return sum
}

// kept are the rooms of a gang that a node shard knows.
func (m *machine) kept(s *state, n, k int) [2]booked {
	of := [2]booked{s.nodes[n].said[k], s.nodes[n].asked[k]}
	if m.weak.Has(AskedIgnored) {
		of[1] = booked{}
	}
	return of
}

// room is what is taken of a node at a time, but for rooms of one gang.
func (m *machine) room(s *state, n, k, at int) (sum int) {
	for o := range m.Gangs {
		if m.end(s, o) > at {
			sum += int(s.gangs[o].on[n])
		}
		most := uint8(0)
		for _, b := range m.kept(s, n, o) {
			if o != k && b.number != 0 && s.gangs[o].on[n] == 0 && m.runs(o, b.start, at) {
				most = max(most, b.pods)
			}
		}
		sum += int(most)
	}
	return sum
}

// lends reports whether a node shard may have pods of a gang there from a time to another, beside the rooms of others.
func (m *machine) lends(s *state, n, k int, pods uint8, from, end int) bool {
	for b := range m.Gangs {
		for _, of := range m.kept(s, n, b) {
			if b == k || of.number == 0 || end <= int(of.start) || m.stays(b, int(of.start)) <= from {
				continue
			}
			if m.room(s, n, k, max(from, int(of.start)))+int(pods) > m.Room[n] {
				return false
			}
		}
	}
	return true
}

// books reports whether a node shard may book rooms.
func (m *machine) books(s *state, n, k int, pods uint8, start int) bool {
	return m.room(s, n, k, start)+int(pods) <= m.Room[n] && m.lends(s, n, k, pods, start, m.stays(k, start))
}

// takes reports whether a node shard may have pods of a gang there now, until an end, 0 for whatever others booked.
func (m *machine) takes(s *state, n, k int, pods uint8, end int) bool {
	free := s.nodes[n].down == 0 && m.taken(s, n)+int(pods) <= m.Room[n]
	return free && (end == 0 || m.lends(s, n, k, pods, int(s.now), end))
}

// find makes the plans of a mandate: the first time from which on all pods have room, by what node shards say now, and
// quota, by what the coordinator said with the mandate.
func (m *machine) find(s *state, k int) (all []rooms) {
	g, x := &s.gangs[k], &m.Gangs[k]
	for at := int(s.now) + grace + change; at <= int(m.Horizon); at++ {
		if !m.fitsQuota(s, k, at, m.stays(k, at)) {
			continue
		}
		for first := int(x.Pods); first >= 0; first-- {
			pods := [nodes]uint8{uint8(first), x.Pods - uint8(first)}
			fits := true
			for n := range m.Room {
				fits = fits && (pods[n] == 0 || m.books(s, n, k, pods[n], at))
			}
			if fits {
				all = append(all, rooms{number: g.mandate, start: uint8(at), pods: pods})
			}
		}
		if len(all) > 0 {
			break
		}
	}
	return all
}

// overran reports whether a gang has passed its limit.
func (m *machine) overran(s *state, k int) bool {
	g, x := &s.gangs[k], &m.Gangs[k]
	return g.phase == running && x.Limit > 0 && g.started+x.Limit <= s.now
}

// inTheWay are the gangs that have passed their limits and have what a booking that is due needs: quota, as the
// coordinator knows, or room, of which it knows only who is named.
func (m *machine) inTheWay(s *state, b int, among uint8) (set uint8) {
	g := &s.gangs[b]
	if !g.isBooked() || g.phase != waiting && g.phase != granted || s.now+grace < g.record.start {
		return 0
	}
	for k := range m.Gangs {
		of := &s.gangs[k]
		if k == b || !m.overran(s, k) {
			continue
		}
		lacks := g.phase == waiting && m.charged(s)+int(m.Gangs[b].Pods) > m.Quota
		for n := range m.Room {
			lacks = lacks || among>>k&1 != 0 && of.on[n] > 0 && g.record.pods[n] > 0 &&
				m.taken(s, n)+int(g.record.pods[n]) > m.Room[n]
		}
		if lacks {
			set |= 1 << k
		}
	}
	return set
}
