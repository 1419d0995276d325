package order

const everything = 0xff

// before reports whether the row of a pod is before a point: rows of one key are in the order of their pods.
func (m *machine) before(r *row, x, point, last uint8) bool {
	return r.place < point || r.place == point && x < last && !m.weak.Has(KeyIsOnePlace)
}

// over reports whether a view knows that a row binds nothing any more, other than by showing its pod bound.
func (m *machine) over(s *state, i, x uint8, r *row) bool {
	sh := &s.shard[i]
	at := s.seen(x, sh.watch)
	switch {
	case reached(r.removed, sh.read): // read after it was removed
		return true
	case reached(r.removed, sh.log) && m.weak.Has(RemovedIsOver):
		return true
	case reached(r.given, sh.log) && !m.weak.Has(GivenUpUnsaid):
		return true
	case at == r.version && m.weak.Has(SameVersionIsOver):
		return true
	}
	return at > r.version
}

// look returns what shard i's view shows before a point of the log to a gang with the pods in own: the pods that may be placed, and
// those that are bound. It is not complete if a label is awaited.
func (m *machine) look(s *state, i, own, point, last uint8) (may, bound uint8, complete bool) {
	sh := &s.shard[i]
	complete = true
	carries := own&m.World.Terms != 0
	for x := range uint8(len(m.World.Pods)) {
		if own&(1<<x) != 0 {
			continue // its former rows are over, or it would not have been committed again
		}
		unknown := x == 0 && sh.node == 0 && (m.NewNode && m.weak.Has(UnknownNodeIsNowhere) ||
			m.MovedNode && m.weak.Has(NodesUnsaid))
		p := &s.pod[x]
		if reached(p.bound, sh.watch) && !reached(p.gone, sh.watch) && !unknown {
			may |= 1 << x
			bound |= 1 << x
		}
		for k := range s.row[x] {
			r := &s.row[x][k]
			if r.place == 0 || r.place > sh.log || m.over(s, i, x, r) || unknown {
				continue
			}
			said := r.by == i && r.phase == answered && s.pod[x].bound != 0 // its own Binding was answered
			if said {
				bound |= 1 << x
			}
			if !said && !m.before(r, x, point, last) && !m.weak.Has(LaterRowsCount) {
				continue
			}
			labels := sh.watch >= r.version
			switch {
			case m.ignores(s, i, x, uint8(k), point):
				continue
			case carries && !labels && !m.weak.Has(LabelsUnawaited):
				complete = false
			case carries && !labels:
				continue
			case !carries && !labels && m.weak.Has(RowsWithoutTerms):
				continue
			}
			may |= 1 << x
			if m.weak.Has(RowsSupport) || r.phase == sent && m.weak.Has(SaidSupports) ||
				m.sameGang(x, own) && m.weak.Has(GangSupports) {
				bound |= 1 << x
			}
		}
	}
	return may, bound, complete
}

func (m *machine) sameGang(x, own uint8) bool { return own&m.gang[m.unitOf[x]] != 0 }

// ignores reports whether a row does not count before a point because its gang's point is behind it (Config.PointsWin): not all rows
// of its Commit are before the point, and the view has been watching since before the first of them.
func (m *machine) ignores(s *state, i, x, k, point uint8) bool {
	cm := &s.commit[m.unitOf[x]][k]
	if !m.PointsWin || point == everything || cm.many == 0 || s.shard[i].read > cm.begun && !m.weak.Has(IgnoredAfterRead) {
		return false
	}
	for y := range uint8(pods) {
		if r := &s.row[y][k]; cm.pods&(1<<y) != 0 && (r.place == 0 || r.place > point || reached(r.removed, s.shard[i].read)) {
			return true
		}
	}
	return false
}

// judge returns the verdict of shard i on a Commit, open if it has to wait. After a long time it does not wait for other rows.
func (m *machine) judge(s *state, i, u, k uint8, long bool) uint8 {
	cm, sh := &s.commit[u][k], &s.shard[i]
	point, last := uint8(0), uint8(0)
	for x := range uint8(pods) {
		if cm.pods&(1<<x) == 0 {
			continue
		}
		r := &s.row[x][k]
		if r.place == 0 {
			return open
		}
		if r.place >= point {
			point, last = r.place, x
		}
	}
	unseen := m.weak.Has(JudgedUnseen)
	if cm.many != 0 {
		unseen = m.weak.Has(HomeJudgesUnseen)
	}
	switch {
	case sh.phase != ready, sh.log < point && !unseen:
		return open
	case cm.pods&m.World.Terms == 0 && m.weak.Has(PlainUnjudged),
		k > 0 && s.commit[u][0].verdict == yes && m.weak.Has(JudgedOnce):
		return yes
	}
	may, bound, complete := m.look(s, i, cm.pods, point, last)
	switch {
	case !complete:
		return open
	case m.World.fits(cm.pods, may, bound):
		return yes
	case m.oneKey(s, u, k) && !long && m.hopes(s, i, cm.pods, may), m.weak.Has(GangsWait) && m.hopes(s, i, cm.pods, may):
		return open
	}
	return no
}

// hopes reports whether pods may be bound once the rows that may still bind their pods, wherever they are, have done so.
func (m *machine) hopes(s *state, i, own, may uint8) bool {
	support, _, _ := m.look(s, i, own, everything, 0)
	return m.World.fits(own, may, support)
}

// oneKey reports whether all rows of a Commit are in one key.
func (m *machine) oneKey(s *state, u, k uint8) bool {
	place := m.singleRow(s, u, k).place
	for x := range uint8(pods) {
		if s.commit[u][k].pods&(1<<x) != 0 && s.row[x][k].place != place {
			return false
		}
	}
	return true
}
