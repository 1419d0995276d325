package order

import (
	"fmt"
	"slices"

	"basalt.dev/basalt/bench/prove/spec"
)

// kind of a step.
type kind uint8

const (
	begin kind = iota
	write
	writeKey
	refuse
	judge
	drop
	bindArrives
	giveUp
	bindPod
	settle
	clean
	patch
	remove
	bindInherited
	edit
	delete_
	watchLog
	watchPods
	seeNode
	fence
	breakLog
	readLog
	listPods
)

// step is one change of the state: what happens, at which shard, to which pod or gang, of which Commit.
type step struct {
	kind    kind
	i, x, k uint8
}

// machine is a configuration with what follows from it.
type machine struct {
	Config
	weak   spec.Weakened[Rule]
	unitOf [pods]uint8
	gang   [units]uint8
	roles  uint8 // shards that do anything before one is fenced
}

func newMachine(cfg Config) *machine {
	m := &machine{Config: cfg, weak: spec.Weak(cfg.Weak)}
	for u, xs := range cfg.World.Gangs {
		m.roles |= 1 << cfg.World.Home[u]
		for _, x := range xs {
			m.unitOf[x] = uint8(u)
			m.gang[u] |= 1 << x
			m.roles |= 1 << cfg.World.Node[x]
		}
	}
	return m
}

// First returns the state at the start: no pod has a row.
func (m *machine) First() state {
	n := uint8(len(m.World.Pods))
	s := state{version: n, edits: m.Edits, deletes: m.Deletes, deaths: m.Deaths, breaks: m.Breaks}
	for i := range s.shard {
		if m.roles&(1<<i) == 0 {
			s.shard[i].phase = off
		} else if !m.Late {
			s.shard[i].watch = n
		}
	}
	return s
}

func (m *machine) owner(s *state, i uint8) uint8 {
	if s.fenced != 0 && i == m.Victim {
		return m.World.Heir[i]
	}
	return i
}

// most returns how often a home may commit a gang.
func (m *machine) most(u uint8) uint8 {
	if n := m.World.Most[u]; n != 0 {
		return n
	}
	return tries
}

func (m *machine) home(s *state, u uint8) uint8 { return m.owner(s, m.World.Home[u]) }

// lost reports whether the process that wrote a row may write no more.
func (m *machine) lost(s *state, r *row) bool { return s.fenced != 0 && r.by == m.Victim }

// Next calls emit with every state that one step leads to, and what the step violates.
func (m *machine) Next(s *state, emit func(step, *state, string)) {
	var n state
	from := func() *state { n = *s; return &n }
	do := func(k kind, i, x, try uint8) { emit(step{k, i, x, try}, &n, "") }
	for u := range uint8(len(m.World.Gangs)) {
		if own := m.placeable(s, u); own != 0 {
			m.begin(from(), u, own)
			do(begin, m.home(s, u), u, s.tried[u])
		}
		for k := range s.tried[u] {
			cm := &s.commit[u][k]
			if cm.verdict != open {
				continue
			}
			i := cm.by
			if cm.many == 0 {
				i = m.singleRow(s, u, k).by
			}
			if v := m.judge(s, i, u, k, !m.weak.Has(WaitsForEver)); v != open {
				bad := m.decide(from(), i, u, k, v)
				emit(step{judge, i, u, k}, &n, bad)
				for x := range uint8(pods) {
					if m.Drops && v == yes && cm.many == 0 && s.row[x][k].phase == prepared && cm.pods&(1<<x) != 0 {
						bad := m.drop(from(), i, u, x, k)
						emit(step{drop, i, x, k}, &n, bad)
					}
				}
			}
		}
	}
	for x := range uint8(len(m.World.Pods)) {
		for k := range s.tried[m.unitOf[x]] {
			if s.row[x][k].phase != none {
				m.row(s, x, k, from, do, emit, &n)
			}
		}
		if s.edits > 0 && s.free(x) && s.pod[x].moved[0] == 0 {
			from().edits--
			n.move(x)
			do(edit, 0, x, 0)
		}
		if s.deletes > 0 && s.pod[x].gone == 0 {
			from().deletes--
			n.version++
			n.pod[x].gone = n.version
			do(delete_, 0, x, 0)
		}
	}
	if m.World.Key && s.row[0][0].phase == asked && s.row[1][0].phase == asked {
		from().rev++
		for x := range 2 {
			n.row[x][0].phase, n.row[x][0].place = prepared, n.rev
		}
		do(writeKey, s.row[0][0].by, 0, 0)
	}
	if s.deaths > 0 {
		m.fence(from())
		do(fence, m.Victim, 0, 0)
	}
	for i := range uint8(shards) {
		m.watches(s, i, from, do)
	}
}

// row is what may happen to a row.
func (m *machine) row(s *state, x, k uint8, from func() *state, do func(kind, uint8, uint8, uint8), emit func(step, *state, string), n *state) {
	r := &s.row[x][k]
	cm := &s.commit[m.unitOf[x]][k]
	to := &n.row[x][k]
	switch r.phase {
	case asked:
		from().rev++
		to.phase, to.place = prepared, n.rev
		do(write, r.by, x, k)
		if cm.many != 0 && m.Refusals {
			from()
			to.phase = refused
			do(refuse, r.by, x, k)
		}
	case prepared:
		said := cm.verdict == yes || k > 0 && s.commit[m.unitOf[x]][0].verdict == yes &&
			s.commit[m.unitOf[x]][0].pods&(1<<x) != 0 && m.weak.Has(BindOfAnyCommit)
		if cm.many != 0 && said {
			from()
			to.phase = sent
			do(bindArrives, r.by, x, k)
		}
		if !m.lost(s, r) && (cm.many != 0 && m.Timeouts || m.withdrawn(s, x, k)) {
			from().rev++
			to.phase, to.given = givenUp, n.rev
			do(giveUp, r.by, x, k)
		}
	case givenUp:
		if cm.many != 0 && cm.verdict == yes && m.weak.Has(LateBind) {
			from()
			to.phase = sent
			do(bindArrives, r.by, x, k)
		}
	case sent:
		if s.accepts(x, r) {
			from().version++
			n.pod[x].bound = n.version
			emit(step{bindPod, r.by, x, k}, n, m.World.harm(n.standing()))
		} else if !m.lost(s, r) {
			from()
			to.phase = failed
			if s.pod[x].bound != 0 {
				to.phase = answered
			}
			do(settle, r.by, x, k)
		}
	}
	if m.Clean && !m.lost(s, r) && r.removed == 0 && (r.phase == givenUp || r.phase == answered || r.phase == failed) && r.place != 0 {
		from().rev++
		to.removed = n.rev
		do(clean, r.by, x, k)
	}
	if !m.lost(s, r) || r.place == 0 || r.removed != 0 {
		return
	}
	heir := m.owner(s, r.by)
	stays := r.given == 0 && s.accepts(x, r)
	if stays && s.pod[x].moved[moves-1] == 0 {
		from().move(x)
		do(patch, heir, x, k)
	}
	if !stays || m.weak.Has(HeirRemovesUnmoved) {
		from().rev++
		to.removed = n.rev
		do(remove, heir, x, k)
	}
	if r.phase == prepared && m.weak.Has(HeirBinds) {
		from()
		to.phase = sent
		do(bindInherited, heir, x, k)
	}
}

// withdrawn reports whether a row is taken back: by the home of its Commit, or its heir, or since the rest of it is not written.
func (m *machine) withdrawn(s *state, x, k uint8) bool {
	u := m.unitOf[x]
	cm := &s.commit[u][k]
	if cm.many == 0 {
		return m.anyRow(s, u, k, refused) && !m.weak.Has(RestIsKept)
	}
	return cm.verdict == no || cm.by != m.home(s, u) || m.anyRow(s, u, k, refused) || m.anyRow(s, u, k, givenUp)
}

func (m *machine) anyRow(s *state, u, k, phase uint8) bool {
	for x := range uint8(pods) {
		if s.commit[u][k].pods&(1<<x) != 0 && s.row[x][k].phase == phase {
			return true
		}
	}
	return false
}

// used reports whether a shard has to judge or to place anything. Nothing but that reads a view, and what a view has not seen it
// may see later. So one that is not used stands still, which loses no interleaving that matters.
func (m *machine) used(s *state, i uint8) bool {
	for u, xs := range m.World.Gangs {
		for k := range s.tried[u] {
			cm := &s.commit[u][k]
			by := cm.by
			if cm.many == 0 {
				by = m.singleRow(s, uint8(u), k).by
			}
			if cm.verdict == open && by == i && !m.anyRow(s, uint8(u), k, refused) {
				return true
			}
		}
		if m.home(s, uint8(u)) == i && s.tried[u] < m.most(uint8(u)) && slices.ContainsFunc(xs, s.free) {
			return true
		}
	}
	return false
}

// watches is how a view makes progress.
func (m *machine) watches(s *state, i uint8, from func() *state, do func(kind, uint8, uint8, uint8)) {
	sh := &s.shard[i]
	if sh.phase == off {
		return
	}
	used := m.used(s, i)
	if sh.log < s.rev && sh.phase == ready && used {
		from().shard[i].log++
		do(watchLog, i, 0, 0)
	}
	if sh.watch < s.version && (sh.phase == ready || sh.watch > 0) && used {
		from().shard[i].watch++
		do(watchPods, i, 0, 0)
	}
	if (m.NewNode || m.MovedNode) && sh.node == 0 && used {
		from().shard[i].node = 1
		do(seeNode, i, 0, 0)
	}
	if s.breaks > 0 && sh.phase == ready {
		n := from()
		n.breaks--
		n.shard[i].phase = fresh
		do(breakLog, i, 0, 0)
	}
	if sh.phase != fresh && sh.phase != halfway {
		return
	}
	me := &from().shard[i]
	me.phase = halfway
	unlisted := m.weak.Has(StartUnlisted) && sh.watch == 0 || m.weak.Has(BreakUnlisted) && sh.watch != 0
	if sh.phase == halfway || unlisted {
		me.phase = ready
	}
	if (sh.phase == fresh) != m.weak.Has(ListedBeforeRead) {
		me.log, me.read = s.rev, s.rev
		do(readLog, i, 0, 0)
	} else {
		me.watch = s.version
		do(listPods, i, 0, 0)
	}
}

// fence gives the victim's buckets to its heir. The process goes on: it does not know.
func (m *machine) fence(s *state) {
	s.deaths--
	s.fenced = 1
	if h := &s.shard[m.World.Heir[m.Victim]]; h.phase == off {
		*h = shard{phase: fresh}
	}
	for x := range s.row {
		for k := range s.row[x] {
			if r := &s.row[x][k]; r.phase == asked {
				r.phase = refused // it names the old table
			}
		}
	}
}

// placeable returns the pods of a gang that its home may commit now. It knows of each what became of its former row. The first
// Commit is sent whatever the home's view shows, later ones only if the view shows that the pods fit.
func (m *machine) placeable(s *state, u uint8) (own uint8) {
	h := m.home(s, u)
	sh := &s.shard[h]
	if s.tried[u] >= m.most(u) || sh.phase != ready {
		return 0
	}
	for _, x := range m.World.Gangs[u] {
		at, is := s.seen(x, sh.watch), true
		for k := range s.tried[u] {
			switch r := &s.row[x][k]; r.phase {
			case none, refused, givenUp:
				is = is && (r.given != 0 || r.place == 0 || r.removed != 0)
			case asked, prepared:
				if r.removed == 0 {
					return 0
				}
				is = is && (at > r.version || m.weak.Has(HeirRemovesUnmoved))
			case sent:
				is = is && r.removed != 0 && (at > r.version || m.weak.Has(HeirRemovesUnmoved))
			case answered:
				is = false
			case failed:
				is = is && at > r.version
			}
		}
		p := &s.pod[x]
		if is && at != 0 && !reached(p.bound, sh.watch) && !reached(p.gone, sh.watch) {
			own |= 1 << x
		}
	}
	if own == 0 || s.tried[u] == 0 || s.commit[u][0].verdict == yes && m.weak.Has(JudgedOnce) {
		return own
	}
	if may, bound, complete := m.look(s, h, own, everything, 0); !complete || !m.World.fits(own, may, bound) {
		return 0
	}
	return own
}

func (m *machine) begin(s *state, u, own uint8) {
	h, k := m.home(s, u), s.tried[u]
	s.tried[u]++
	cm := commit{pods: own, by: h, begun: s.shard[h].log}
	first := uint8(everything)
	for x := range uint8(pods) {
		if own&(1<<x) == 0 {
			continue
		}
		by := m.owner(s, m.World.Node[x])
		s.row[x][k] = row{phase: asked, by: by, version: s.seen(x, s.shard[h].watch)}
		if first != everything && first != by {
			cm.many = 1
		}
		first = by
	}
	s.commit[u][k] = cm
}

// singleRow returns a row of a Commit whose rows are all at one node shard.
func (m *machine) singleRow(s *state, u, k uint8) *row {
	for x := range uint8(pods) {
		if s.commit[u][k].pods&(1<<x) != 0 {
			return &s.row[x][k]
		}
	}
	panic("order: a Commit without pods")
}

// drop is decide for a Commit that is fit, of which a row is given up before the others are sent. They are judged anew, without it.
func (m *machine) drop(s *state, i, u, x, k uint8) string {
	cm := &s.commit[u][k]
	all := cm.pods
	m.abandon(s, &s.row[x][k])
	cm.pods &^= 1 << x
	bad := ""
	if cm.pods != 0 {
		v := uint8(yes)
		if !m.weak.Has(LeftUnjudged) {
			v = m.judge(s, i, u, k, true)
		}
		if v == open { // too little is known now
			v = no
		}
		bad = m.decide(s, i, u, k, v)
	}
	cm.pods, cm.verdict = all, yes
	return bad
}

// abandon gives up a row that was not sent. The heir resolves it where its shard may write no more.
func (m *machine) abandon(s *state, r *row) {
	r.phase = givenUp
	if !m.lost(s, r) {
		s.rev++
		r.given = s.rev
	}
}

// decide has a judge carry out its verdict, and returns what is wrong with it (C4).
func (m *machine) decide(s *state, i, u, k, verdict uint8) string {
	cm := &s.commit[u][k]
	cm.verdict = verdict
	if cm.many == 0 {
		for x := range uint8(pods) {
			r := &s.row[x][k]
			switch {
			case cm.pods&(1<<x) == 0 || r.phase != prepared:
			case verdict == yes:
				r.phase = sent
			default:
				m.abandon(s, r)
			}
		}
	}
	if _, ever := s.standing(); verdict == yes && !m.World.fits(cm.pods, 0, ever) {
		return fmt.Sprintf("C4: %s is judged fit, and what it needs is not bound", m.World.names(cm.pods))
	}
	return ""
}

// Judge returns what is violated if nothing can happen any more.
func (m *machine) Judge(s *state, steps []step) string {
	if len(steps) > 0 {
		return ""
	}
	now, _ := s.standing()
	for u, xs := range m.World.Gangs {
		waits, own := false, uint8(0)
		for _, x := range xs {
			for k := range s.tried[u] {
				r := &s.row[x][k]
				waits = waits || s.free(x) && r.phase == prepared && r.removed == 0
			}
			if s.free(x) {
				own |= 1 << x
			}
		}
		switch {
		case waits:
			return fmt.Sprintf("a row of %s waits for ever", m.World.names(own))
		case own != 0 && s.tried[u] < m.most(uint8(u)) && m.World.fits(own, now, now):
			return fmt.Sprintf("%s could be placed, and waits for ever", m.World.names(own))
		}
	}
	if m.Progress && now == 0 {
		return "nobody was placed"
	}
	return ""
}

// Say describes a step.
func (m *machine) Say(st step, s, n *state) string {
	who := letter(st.i)
	var pod, gang string
	switch st.kind {
	case begin, judge:
		gang = m.World.names(n.commit[st.x][st.k].pods)
	default:
		pod = m.World.Pods[st.x]
	}
	switch st.kind {
	case begin:
		return fmt.Sprintf("%s: Commit %d of %s", who, st.k+1, gang)
	case write:
		return fmt.Sprintf("%s: row of %s at place %d, names version %d", who, pod, n.rev, n.row[st.x][st.k].version)
	case writeKey:
		return fmt.Sprintf("%s: rows of all in one key at place %d", who, n.rev)
	case refuse:
		return fmt.Sprintf("%s: Commit of %s is refused", who, pod)
	case judge:
		return fmt.Sprintf("%s: judges Commit %d of %s: %s", who, st.k+1, gang, [...]string{"", "yes", "no"}[n.commit[st.x][st.k].verdict])
	case drop:
		return fmt.Sprintf("%s: judges Commit %d of %s: yes, and gives up the row of %s", who, st.k+1, m.World.names(n.commit[m.unitOf[st.x]][st.k].pods), pod)
	case bindArrives:
		return fmt.Sprintf("%s: Bind of %s arrives", who, pod)
	case giveUp:
		return fmt.Sprintf("%s: row of %s is given up (revision %d)", who, pod, n.rev)
	case bindPod:
		return fmt.Sprintf("API server: %s is bound (version %d)", pod, n.version)
	case settle:
		return fmt.Sprintf("%s: the outcome of %s is known", who, pod)
	case clean:
		return fmt.Sprintf("%s: row of %s is removed (revision %d)", who, pod, n.rev)
	case patch:
		return fmt.Sprintf("%s: as the heir moves %s to version %d", who, pod, n.version)
	case remove:
		return fmt.Sprintf("%s: as the heir removes the row of %s (revision %d)", who, pod, n.rev)
	case bindInherited:
		return fmt.Sprintf("%s: as the heir binds %s", who, pod)
	case edit:
		return fmt.Sprintf("API server: %s is edited (version %d)", pod, n.version)
	case delete_:
		return fmt.Sprintf("API server: %s is deleted (version %d)", pod, n.version)
	case watchLog:
		return fmt.Sprintf("%s: its watch of the log shows revision %d", who, n.shard[st.i].log)
	case watchPods:
		return fmt.Sprintf("%s: its watch of pods shows version %d", who, n.shard[st.i].watch)
	case seeNode:
		return fmt.Sprintf("%s: its watch of nodes shows the node of %s", who, m.World.Pods[0])
	case fence:
		return fmt.Sprintf("control store: a table without %s; its heir is %s", who, letter(m.World.Heir[st.i]))
	case breakLog:
		return fmt.Sprintf("%s: its watch of the log breaks", who)
	case readLog:
		return fmt.Sprintf("%s: reads the log at revision %d", who, n.rev)
	case listPods:
		return fmt.Sprintf("%s: lists the pods at version %d", who, n.version)
	}
	return "?"
}

func letter(i uint8) string { return string(rune('A' + i)) }
