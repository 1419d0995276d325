package feed

import "basalt.dev/basalt/bench/prove/spec"

// What a step is. Those up to switches are the world's, and may happen or not.
const (
	comes uint8 = iota
	touched
	dies
	groupMoves
	bucketMoves
	restarts
	switches
	progresses
	reads // a reader sees the group move
	connects
	subscribes
	hears // a reader hears of a subscription
	sends
	marks
	asks // an heir reads the store, and asks how far the API server is
	serves
	places
	lands
	forgets
	resolves
	ends // a row
	closes
)

type step struct{ kind, of, to uint8 }

type machine struct {
	Config
	weak spec.Weakened[Rule]
}

// First returns a state in which all is subscribed, sent and served.
func (m *machine) First() state {
	s := state{version: 1, left: m.Faults, owner: m.Owners}
	for p := range parts {
		s.readers[p] = [slots]reader{{at: 1}, {words: 1}}
	}
	for p := range m.There {
		s.pods[p].born = 1
	}
	for k := range shards {
		h := &s.shards[k]
		h.n, h.h, h.x = s.wants(k)
		for b, owner := range m.Owners {
			if owner == uint8(k) {
				h.served |= 1 << b
				h.read |= 1 << b
				h.asked[b] = 1
			}
		}
		for p := range parts {
			s.links[k][p] = link{slot: 1, n: h.n, h: h.h, mark: 1}
			if p < m.There && h.h>>1&1 != 0 {
				s.links[k][p].sent, h.knows[p] = 1, 1
			}
		}
	}
	return s
}

// Next calls emit with each step that may follow a state.
func (m *machine) Next(s *state, emit func(step, *state, string)) {
	do := func(kind uint8, of, to int, change func(n *state)) {
		next := *s
		change(&next)
		emit(step{kind, uint8(of), uint8(to)}, &next, m.harm(s, &next, kind, of))
	}
	m.world(s, do)
	for p := range m.Pods {
		m.ofPart(s, p, do)
		m.ofPod(s, p, do)
	}
	for k := range shards {
		m.ofShard(s, k, do)
	}
}

type doer func(kind uint8, of, to int, change func(*state))

// world are the steps of users, operators and faults.
func (m *machine) world(s *state, do doer) {
	happens := func(n *state) uint8 { n.version++; return n.version }
	for p := range m.Pods {
		switch of := &s.pods[p]; {
		case of.died != 0:
		case of.born == 0 && s.left.Births > 0:
			do(comes, p, 0, func(n *state) { n.left.Births--; n.pods[p].born = happens(n) })
		case of.born == 0:
		default:
			if s.left.Deaths > 0 {
				do(dies, p, 0, func(n *state) { n.left.Deaths--; n.pods[p].died = happens(n) })
			}
			if s.left.Touches > 0 && of.bound == 0 {
				do(touched, p, 0, func(n *state) { n.left.Touches--; n.pods[p].touched = happens(n) })
			}
		}
	}
	if s.left.Groups > 0 {
		do(groupMoves, 0, 0, func(n *state) { n.left.Groups--; n.moved = happens(n) })
	}
	for b, owner := range s.owner {
		to := 1 - int(owner)
		if b == node && s.left.Nodes == 0 || b != node && s.left.Queues == 0 {
			continue
		}
		do(bucketMoves, b, to, func(n *state) {
			if n.owner[b] = uint8(to); b == node {
				n.left.Nodes--
				n.shards[owner].rows = 0
			} else {
				n.left.Queues--
				for p := range pods {
					if int(n.charges[p]) == b {
						n.shards[owner].charges &^= 1 << p
					}
				}
			}
			n.shards[owner].served &^= 1 << b
			n.shards[owner].read &^= 1 << b
			if m.weak.Has(AskedEarly) {
				n.shards[to].asked[b] = n.version
			}
		})
	}
	for p := range m.Pods {
		for r := range slots {
			if of := s.readers[p][r]; of.at != 0 && s.left.Restarts > 0 {
				do(restarts, p, r, func(n *state) {
					n.left.Restarts--
					n.readers[p][r] = reader{at: n.version, group: flag(n.moved != 0), words: 1 - of.words}
					for k := range shards {
						if n.links[k][p].slot == uint8(r+1) {
							n.links[k][p].slot = 0
						}
					}
				})
			}
		}
		for k := range shards {
			if at := s.links[k][p].slot; at != 0 && s.left.Switches > 0 {
				do(switches, k, p, func(n *state) {
					n.left.Switches--
					m.connect(n, k, p, 2-int(at))
				})
			}
		}
	}
}

func flag(is bool) uint8 {
	if is {
		return 1
	}
	return 0
}

// ofPart are the steps of a part's readers, and of the shards that hear them.
func (m *machine) ofPart(s *state, p int, do doer) {
	for r := range slots {
		of := s.readers[p][r]
		if of.at != 0 && of.at < s.version {
			next := s.version
			for _, v := range [...]uint8{s.pods[p].born, s.pods[p].touched, s.pods[p].bound, s.pods[p].died} {
				if v > of.at {
					next = min(next, v)
				}
			}
			do(progresses, p, r, func(n *state) { n.readers[p][r].at = next })
		}
		if of.at != 0 && s.moved != 0 && of.group == 0 {
			do(reads, p, r, func(n *state) { n.readers[p][r].group = 1 })
		}
	}
	for k := range shards {
		l, h := &s.links[k][p], &s.shards[k]
		if l.slot == 0 {
			do(connects, k, p, func(n *state) { m.connect(n, k, p, 0) })
			continue
		}
		if l.sub != h.sub {
			do(hears, k, p, func(n *state) {
				l := &n.links[k][p]
				l.sub, l.n, l.h, l.x = h.sub, h.n, h.h, h.x
				if m.weak.Has(AnsweredUnsent) && l.sent == 0 && m.frame(n, k, p) == in {
					l.sent = n.readers[p][l.slot-1].at
				}
			})
		}
		at := s.readers[p][l.slot-1].at
		if f := m.frame(s, k, p); f != none {
			do(sends, k, p, func(n *state) { m.take(n, k, p, f, at) })
			if !m.weak.Has(MarkedUnsent) {
				continue
			}
		}
		useful := h.rows|h.charges != 0 || l.fresh != 0 || m.gains(s, k) != 0
		if useful && (l.mark != at || l.marked != l.sub || l.fresh != 0) {
			do(marks, k, p, func(n *state) { m.mark(n, k, p, at) })
		}
	}
}

// gains returns the buckets that a shard is to serve, and does not yet.
func (m *machine) gains(s *state, k int) (set uint8) {
	for b, owner := range s.owner {
		if owner == uint8(k) {
			set |= 1 << b
		}
	}
	return set &^ s.shards[k].served
}

// complete reports whether a shard was sent all that concerns it, of a part, up to a version.
func (m *machine) complete(s *state, k, p int, at uint8) bool {
	l := &s.links[k][p]
	if l.slot == 0 && m.weak.Has(PartUnread) {
		return true
	}
	return l.slot != 0 && (l.mark >= at && l.mark != 0 || m.weak.Has(AnsweredEarly) && l.mark != 0) &&
		(l.marked == s.shards[k].sub || m.weak.Has(OldAnswer))
}

// ofShard are the steps of a shard for its buckets.
func (m *machine) ofShard(s *state, k int, do doer) {
	h := &s.shards[k]
	if !s.subscribed(k) {
		do(subscribes, k, 0, func(n *state) {
			h := &n.shards[k]
			h.n, h.h, h.x = n.wants(k)
			h.sub++
		})
	}
	gains := m.gains(s, k)
	for b := range buckets {
		if gains>>b&1 == 0 {
			continue
		}
		if h.read>>b&1 == 0 {
			do(asks, k, b, func(n *state) { m.ask(n, k, b) })
			continue
		}
		ready, some := s.subscribed(k), false
		for p := range m.Pods {
			is := m.complete(s, k, p, h.asked[b])
			some = some || is
			ready = ready && (is || m.weak.Has(OnePart))
		}
		if ready && some {
			do(serves, k, b, func(n *state) { n.shards[k].served |= 1 << b })
		}
	}
}

// ask reads the store for a bucket, and then how far the API server is.
func (m *machine) ask(n *state, k, b int) {
	h := &n.shards[k]
	if h.read |= 1 << b; !m.weak.Has(AskedEarly) {
		h.asked[b] = n.version
	}
	for p := range pods {
		bit := uint8(1) << p
		if of := &n.intents[p]; b == node && of.open|of.landed != 0 {
			if h.knows[p] == 0 || !by(n.pods[p].bound, h.knows[p]) {
				h.rows |= bit
				h.row[p] = of.version
			}
		}
		if b != node && int(n.charges[p]) == b {
			h.since[p] = h.asked[b]
			if !m.weak.Has(InheritedUnnamed) {
				h.charges |= bit
			}
		}
	}
}

// ofPod are the steps with which shards place a pod and forget it.
func (m *machine) ofPod(s *state, p int, do doer) {
	of, row := &s.pods[p], &s.intents[p]
	bit := uint8(1) << p
	if row.open != 0 {
		do(lands, p, 0, func(n *state) {
			n.intents[p].open = 0
			if of.died == 0 && of.bound == 0 && of.last(n.version) == row.version {
				n.version++
				n.pods[p].bound, n.intents[p].landed = n.version, 1
			} else {
				n.intents[p], n.refused[p] = intent{}, row.version
			}
		})
	}
	if row.landed != 0 {
		do(forgets, p, 0, func(n *state) { n.intents[p] = intent{} })
	}
	for k := range shards {
		h := &s.shards[k]
		if h.rows&bit != 0 {
			if row.open == 0 && of.bound == 0 { // a consistent read of the pod shows it
				do(resolves, k, p, func(n *state) { n.shards[k].rows &^= bit })
			}
			if h.knows[p] == 0 && (m.weak.Has(RowUnmarked) ||
				s.subscribed(k) && m.complete(s, k, p, h.row[p])) {
				do(ends, k, p, func(n *state) { n.shards[k].rows &^= bit })
			}
		}
		for q := range buckets - 1 {
			if h.served>>(1+q)&1 == 0 {
				continue
			}
			if int(s.charges[p]) == 1+q && m.closable(s, k, p, q) {
				do(closes, k, p, func(n *state) {
					n.charges[p] = 0
					n.shards[k].charges &^= bit
					n.shards[k].since[p] = 0
				})
			}
			for at := range shards {
				if m.placeable(s, k, at, p, q) {
					do(places, k, p, func(n *state) { m.place(n, k, at, p, q) })
				}
			}
		}
	}
}

// closable reports whether the home of a queue has to give back what a pod is charged.
func (m *machine) closable(s *state, k, p, q int) bool {
	h := &s.shards[k]
	switch {
	case s.intents[p].open != 0 && h.gone>>p&1 == 0:
		return false // its own row, or one that it has read
	case h.gone>>p&1 != 0:
		return true
	case h.knows[p] == 0:
		since := h.since[p]
		if m.weak.Has(StrayUnmarked) {
			since = h.asked[1+q]
		}
		return s.subscribed(k) && m.complete(s, k, p, since)
	}
	// It waits in another queue now.
	return m.queue(p, s.moved != 0) != q && !by(s.pods[p].bound, s.version)
}

// placeable reports whether a home may place a pod of a queue on the node of a shard.
func (m *machine) placeable(s *state, k, at, p, q int) bool {
	h, n := &s.shards[k], &s.shards[at]
	known := h.knows[p]
	if known == 0 || h.misread>>p&1 != 0 || by(s.pods[p].bound, known) || m.queue(p, s.moved != 0) != q ||
		s.intents[p] != (intent{}) || s.refused[p] == s.pods[p].last(known) ||
		s.charges[p] != 0 && int(s.charges[p]) != 1+q {
		return false
	}
	if n.served&1 == 0 || n.rows != 0 {
		return false
	}
	for o := range pods {
		if n.misread>>o&1 == 0 && by(s.pods[o].bound, n.knows[o]) {
			return false
		}
	}
	return true
}

func (m *machine) place(n *state, k, at, p, q int) {
	n.intents[p] = intent{open: 1, version: n.pods[p].last(n.shards[k].knows[p])}
	n.charges[p] = uint8(1 + q)
	n.shards[at].rows |= 1 << p
	n.shards[at].row[p] = n.intents[p].version
	n.shards[k].since[p] = n.intents[p].version
	if !m.weak.Has(ChargedUnnamed) {
		n.shards[k].charges |= 1 << p
	}
}
