package devices

import "basalt.dev/basalt/bench/prove/spec"

// What a step is. Those up to crashes are the world's, and may happen or not.
const (
	dies uint8 = iota
	comesAgain
	moves
	crashes
	undoes
	loses
	frees // the controller frees a claim
	sees
	notices
	reads
	lists
	learns
	places
	judges
	allocating
	lands
	hears
	binding
	bound
	finishes
	fails
	resolvesPod
	resolvesClaim
	closes
)

// step is of a pod, a claim, a shard or a node, and of a row or a shard.
type step struct{ kind, of, to uint8 }

type machine struct {
	Config
	weak spec.Weakened[Rule]
}

// First returns a state in which all is seen and nothing placed.
func (m *machine) First() state {
	s := state{log: 1, owner: m.Owners, left: m.Faults}
	for p := range pods {
		s.pods[p].version, s.claims[p].version = 1, 1
		if p >= m.Pods {
			s.pods[p].gone = 1
		}
	}
	for k := range shards {
		h := &s.shards[k]
		h.log = 1
		h.claims = [pods]uint8{1, 1}
		for n, owner := range m.Owners {
			if int(owner) == k {
				h.read |= 1 << n
				h.listed |= 1 << n
				h.served |= 1 << n
			}
		}
	}
	return s
}

type doer func(kind uint8, of, to int, change func(*state))

// Next calls emit with each step that may follow a state.
func (m *machine) Next(s *state, emit func(step, *state, string)) {
	do := func(kind uint8, of, to int, change func(n *state)) {
		next := *s
		change(&next)
		emit(step{kind, uint8(of), uint8(to)}, &next, harm(&next))
	}
	m.world(s, do)
	for k := range shards {
		m.ofShard(s, k, do)
	}
	for p := range m.Pods {
		m.place(s, p, do)
		for i := range s.rows[p] {
			if r := &s.rows[p][i]; r.place != 0 {
				m.messages(s, p, i, do)
				m.ofOwner(s, p, i, do)
				for k := range shards {
					m.makeSure(s, p, i, k, do)
				}
			}
		}
	}
}

// world are the steps of users, operators, the controller and faults.
func (m *machine) world(s *state, do doer) {
	for p := range m.Pods {
		of, c := &s.pods[p], &s.claims[p]
		if of.gone == 0 && s.left.Deaths > 0 {
			do(dies, p, 0, func(n *state) { n.left.Deaths--; n.pods[p].gone = 1 })
		}
		if of.gone != 0 && s.left.Agains > 0 {
			do(comesAgain, p, 0, func(n *state) { n.left.Agains--; n.pods[p] = pod{version: of.version + 1, uid: 1} })
		}
		if c.taken != 0 && (of.gone != 0 || of.uid != c.reserved) {
			do(frees, p, 0, func(n *state) { n.claims[p].free() })
		}
	}
	for node, owner := range s.owner {
		if to := 1 - int(owner); s.left.Moves > 0 && m.lives(node) {
			do(moves, node, to, func(n *state) {
				n.left.Moves--
				n.owner[node] = uint8(to)
				h := &n.shards[to] // what it knew when it had the node before is not what it knows now
				if h.read, h.served = h.read&^(1<<node), h.served&^(1<<node); !m.weak.Has(ClaimsBeforeIntents) {
					h.listed &^= 1 << node
				}
				n.forget(m, to, node)
			})
		}
	}
	for k := range shards {
		if s.left.Crashes > 0 {
			do(crashes, k, 0, func(n *state) {
				n.left.Crashes--
				n.shards[k] = shard{}
				for node := range nodes {
					n.forget(m, k, node)
				}
			})
		}
	}
}

// lives reports whether pods are on a node.
func (m *machine) lives(node int) bool {
	for p := range m.Pods {
		if m.Nodes[p] == uint8(node) {
			return true
		}
	}
	return false
}

// forget has a shard know nothing any more of the rows on a node.
func (s *state) forget(m *machine, k, node int) {
	for p := range m.Pods {
		for i := range s.rows[p] {
			r := &s.rows[p][i]
			if int(m.Nodes[p]) != node {
				continue
			}
			if int(r.by) == k {
				r.stage = nothing
			}
			r.sure[k] = 0
		}
	}
}

// ofShard are the steps by which a shard hears of something.
func (m *machine) ofShard(s *state, k int, do doer) {
	h := &s.shards[k]
	if h.log != 0 && h.log < s.log {
		do(sees, k, 0, func(n *state) { n.shards[k].log++ })
	}
	for c := range m.Pods {
		at := h.claims[c]
		if at == 0 || at == s.claims[c].version {
			continue
		}
		do(notices, k, c, func(n *state) {
			n.shards[k].claims[c]++
			if m.weak.Has(EarlierAllocationEnds) && n.claims[c].had(at) && !n.claims[c].had(at+1) {
				for i := range n.rows[c] {
					n.rows[c][i].freed |= 1 << k
				}
			}
		})
	}
	early := m.weak.Has(ClaimsBeforeIntents)
	for node, owner := range s.owner {
		bit := uint8(1) << node
		if !m.lives(node) {
			continue
		}
		if h.listed&bit == 0 && (early || int(owner) == k && h.read&bit != 0) {
			do(lists, k, node, func(n *state) {
				n.shards[k].listed |= bit
				for c := range n.claims {
					n.shards[k].claims[c] = n.claims[c].version
				}
				if !early {
					n.serve(m, k, node)
				}
			})
		}
		if int(owner) != k {
			if h.served&bit != 0 {
				do(learns, k, node, func(n *state) {
					n.shards[k].served &^= bit
					n.forget(m, k, node)
				})
			}
			continue
		}
		if h.read&bit == 0 && (!early || h.listed&bit != 0) {
			do(reads, k, node, func(n *state) {
				to := &n.shards[k]
				if to.read |= bit; to.log == 0 {
					to.began = n.log
				}
				to.log = n.log
				if early {
					n.serve(m, k, node)
				}
			})
		}
	}
}

// serve begins a shard's giving away of a node's devices. Rows that it finds are never gone on with.
func (s *state) serve(m *machine, k, node int) {
	s.shards[k].served |= 1 << node
	for p := range m.Pods {
		for i := range s.rows[p] {
			if r := &s.rows[p][i]; int(m.Nodes[p]) == node && r.live() {
				r.sure[k] = ofNothing
			}
		}
	}
}

// owns reports whether the store takes what a shard writes about a pod's node.
func (m *machine) owns(s *state, k, p int) bool { return int(s.owner[m.Nodes[p]]) == k }

// place is a shard's choice of the device for a pod.
func (m *machine) place(s *state, p int, do doer) {
	free := -1
	for i := range s.rows[p] {
		switch r := &s.rows[p][i]; {
		case r.live() && r.uid == s.pods[p].uid:
			return
		case r.place == 0 && free < 0:
			free = i
		}
	}
	for k := range shards {
		h := &s.shards[k]
		if free < 0 || s.pods[p].gone != 0 || s.pods[p].bound != 0 || h.served>>m.Nodes[p]&1 == 0 || !m.owns(s, k, p) ||
			s.claims[p].had(h.claims[p]) || m.used(s, k, p, 0) {
			continue
		}
		do(places, p, k, func(n *state) {
			n.log++
			n.rows[p][free] = row{place: n.log, at: h.claims[p], pod: n.pods[p].version, uid: n.pods[p].uid,
				by: uint8(k), stage: written}
		})
	}
}

// messages are what lands or is lost, whoever sent it.
func (m *machine) messages(s *state, p, i int, do doer) {
	r, c, of := &s.rows[p][i], &s.claims[p], &s.pods[p]
	if r.status == onItsWay {
		do(lands, p, i, func(n *state) {
			n.rows[p][i].status = refused
			if c.taken == 0 && (r.sent == c.version || m.weak.Has(StatusUnversioned)) {
				n.rows[p][i].status = none
				n.claims[p].allocate(r.uid)
			}
		})
	}
	if r.status == refused {
		do(hears, p, i, func(n *state) {
			to := &n.rows[p][i]
			switch to.status = none; {
			case r.stage != allocates:
			case m.weak.Has(RetriedAfterConflict) && c.taken == 0:
				to.status, to.sent = onItsWay, c.version
			default:
				to.undo()
			}
		})
	}
	if r.bind != 0 {
		do(bound, p, i, func(n *state) {
			n.rows[p][i].bind = 0
			if r.pod == of.version && of.gone == 0 && of.bound == 0 {
				n.pods[p].bound = 1
				n.pods[p].version++
			}
		})
	}
	if s.left.Losses > 0 && (r.bind != 0 || r.status != none) {
		do(loses, p, i, func(n *state) { n.left.Losses--; n.rows[p][i].bind, n.rows[p][i].status = 0, none })
	}
}

// there reports whether the pod of a row is there.
func (s *state) there(p int, r *row) bool { return s.pods[p].gone == 0 && s.pods[p].uid == r.uid }

// undo has the owner of a row make sure what became of it.
func (r *row) undo() { r.stage, r.sure[r.by] = undone, ofNothing }

// ofOwner are the steps of the shard that wrote a row.
func (m *machine) ofOwner(s *state, p, i int, do doer) {
	r, k := &s.rows[p][i], int(s.rows[p][i].by)
	h := &s.shards[k]
	at := h.claims[p]
	seen := at > r.at && s.claims[p].had(at) // the allocation
	over := func(n *state) { n.giveUp(p, i) }
	switch r.stage {
	case written:
		if h.log >= r.place || m.weak.Has(JudgedUnseen) {
			if !m.used(s, k, p, r.place) {
				do(judges, p, i, func(n *state) { n.rows[p][i].stage = judged })
			} else if m.owns(s, k, p) {
				do(judges, p, i, over)
			}
		}
		if m.weak.Has(SentUnjudged) {
			do(allocating, p, i, func(n *state) { n.rows[p][i].allocate() })
		}
	case judged:
		do(allocating, p, i, func(n *state) { n.rows[p][i].allocate() })
	case allocates:
		if seen || m.weak.Has(BoundUnwritten) {
			do(binding, p, i, func(n *state) { n.rows[p][i].bind, n.rows[p][i].stage = 1, binds })
		}
		if r.status == none && !seen && s.claims[p].taken == 0 || !s.there(p, r) {
			do(fails, p, i, func(n *state) { n.rows[p][i].undo() })
		}
	case binds:
		if s.pods[p].bound != 0 && s.pods[p].version == r.pod+1 && seen && m.owns(s, k, p) {
			do(finishes, p, i, func(n *state) { n.remove(p, i) })
		} else if r.bind == 0 || !s.there(p, r) {
			do(fails, p, i, func(n *state) { n.rows[p][i].undo() })
		}
	}
	if s.left.Undos > 0 && (r.stage == judged || r.stage == allocates) {
		do(undoes, p, i, func(n *state) { n.left.Undos--; n.rows[p][i].undo() })
	}
}

func (r *row) allocate() { r.stage, r.status, r.sent = allocates, onItsWay, r.at }

// giveUp says in the log that a row does not count any more; remove removes its key.
func (s *state) giveUp(p, i int) {
	s.log++
	s.rows[p][i].over = s.log
	s.rows[p][i].end()
}

func (s *state) remove(p, i int) {
	s.log++
	s.rows[p][i].removed = s.log
	s.rows[p][i].end()
}

func (r *row) end() { r.stage, r.sure = nothing, [shards]uint8{} }

// makeSure are the steps of a shard that makes sure what became of a row: its owner, or an heir.
func (m *machine) makeSure(s *state, p, i, k int, do doer) {
	r, of, c := &s.rows[p][i], &s.pods[p], &s.claims[p]
	if r.sure[k] == 0 {
		return
	}
	runs, to := of.runs() && of.uid == r.uid, i+attempts*k
	if r.sure[k]&ofPod == 0 {
		do(resolvesPod, p, to, func(n *state) {
			n.rows[p][i].sure[k] |= ofPod
			if s.there(p, r) && !runs {
				n.pods[p].version++
			}
		})
	}
	pod := r.sure[k]&ofPod != 0
	if r.sure[k]&ofClaim == 0 && !runs && (pod || m.weak.Has(TakenBackUnresolved)) {
		do(resolvesClaim, p, to, func(n *state) {
			n.rows[p][i].sure[k] |= ofClaim
			if c.version == r.at || c.belongs(r.uid) {
				n.claims[p].free()
			}
			if !m.weak.Has(OwnWriteUnseen) {
				n.shards[k].claims[p] = n.claims[p].version
			}
		})
	}
	switch sure := r.sure[k]&ofClaim != 0 || m.weak.Has(GivenUpUnresolved); {
	case !pod || !m.owns(s, k, p):
	case runs:
		do(closes, p, to, func(n *state) { n.remove(p, i) })
	case sure:
		do(closes, p, to, func(n *state) { n.giveUp(p, i) })
	}
}
