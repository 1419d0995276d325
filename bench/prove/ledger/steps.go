package ledger

// kind of a step.
type kind uint8

const (
	make_ kind = iota
	delete_
	change
	carryOut
	refuse
	bindArrives
	giveUp
	bindPod
	settle
	edit
	see
	readRows
	list
	watchStep
	ask
	commitPlain
	hearTicket
	commitTicketed
	abandon
	hearReply
	hearBad
	hearBound
	hearBinding
	withdraw
	freeEarly
	answerRegister
	loseAnswer
	ledgerList
	learn
	takeAnswer
	ledgerRead
	grant
	takeTicket
	takeDone
	takeSure
	timeOut
)

// step is one change of the state: what happens, at which shard, to which pod, unit, shard or table.
type step struct {
	kind kind
	i, x uint8
}

// machine is a pattern with the rules in force.
type machine struct {
	Config
	weak   weakened
	tables []Table
}

func (m *machine) tableOf(s *state, epoch uint8) *Table { return &m.tables[s.table[epoch-1]] }

func (m *machine) podsOf(u uint8) []uint8 {
	if m.Pattern.Support {
		return [][]uint8{{0, 1}, {2}}[u]
	}
	return [][]uint8{{0}, {1}}[u]
}

func (m *machine) unitOf(x uint8) uint8 {
	if m.Pattern.Support {
		return x / 2
	}
	return x
}

func (m *machine) podCount() uint8 {
	if m.Pattern.Support {
		return 3
	}
	return 2
}

// carries reports whether the pods of a unit have a term: these make the group exist.
func (m *machine) carries(u uint8) bool {
	if m.Pattern.Support {
		return u == 1
	}
	return u == 0 || m.Pattern.Both
}

// listedGroup reports whether a view of the pods at a version holds one that carries the group.
func (m *machine) listedGroup(s *state, version uint8) bool {
	for u := range uint8(units) {
		for _, x := range m.podsOf(u) {
			p := s.pod[x]
			if m.carries(u) && seen(p.made, version) && !seen(p.gone, version) {
				return true
			}
		}
	}
	return false
}

func seen(at, watch uint8) bool { return at != 0 && at <= watch }

// settledIn reports whether a view shows every pod of a unit as bound or gone.
func (m *machine) settledIn(s *state, u, watch uint8) bool {
	for _, x := range m.podsOf(u) {
		if !seen(s.pod[x].bound, watch) && !seen(s.pod[x].gone, watch) {
			return false
		}
	}
	return true
}

// standsIn reports whether a view shows a pod of a unit as bound.
func (m *machine) standsIn(s *state, u, watch uint8) bool {
	for _, x := range m.podsOf(u) {
		if seen(s.pod[x].bound, watch) && !seen(s.pod[x].gone, watch) {
			return true
		}
	}
	return false
}

// advance moves a shard's watch to a version.
func (m *machine) advance(s *state, i, version uint8) {
	sh := &s.shard[i]
	sh.watch = version
	for u := range uint8(units) {
		if !m.settledIn(s, u, version) {
			continue
		}
		if r := &sh.rec[u]; r.phase != over {
			if r.phase == asked || r.phase == ticketed {
				s.done[u] |= bit(r.epoch, r.serial)
			}
			*r = record{phase: over}
		}
		sh.book.entry[u] = free // the view counts it
	}
}

// next calls emit with every state that one step leads to, and what the step violates.
func (m *machine) next(s *state, emit func(step, *state, string)) {
	var n state
	do := func(k kind, i, x uint8) { emit(step{k, i, x}, &n, "") }
	from := func() *state { n = *s; return &n }
	for x := range m.podCount() {
		m.outside(s, x, from, do, emit, &n)
	}
	if s.epoch <= m.Changes {
		for t := 1; t < len(m.tables); t++ {
			m.tableChange(from(), uint8(t))
			do(change, 0, uint8(t))
		}
	}
	for i := range uint8(shards) {
		sh := &s.shard[i]
		if sh.epoch < s.epoch {
			to := sh.epoch + 1
			if sh.epoch == 0 {
				to = s.epoch
			}
			if m.tableOf(s, to).Members&(1<<i) != 0 {
				m.see(from(), i, to)
				do(see, i, to)
			}
		}
		if sh.epoch == 0 {
			continue
		}
		if sh.watch < s.version {
			m.advance(from(), i, sh.watch+1)
			do(watchStep, i, 0)
		}
		m.home(s, i, from, do)
		if sh.book.phase != notOwner {
			m.ledger(s, i, from, do)
		}
	}
}

// outside is what the API server, node shards, and users do with a pod.
func (m *machine) outside(s *state, x uint8, from func() *state, do func(kind, uint8, uint8), emit func(step, *state, string), n *state) {
	p, c, row, many := s.pod[x], s.commit[x], s.row[x], len(m.podsOf(m.unitOf(x))) > 1
	if p.made == 0 {
		from()
		n.version++
		n.pod[x].made = n.version
		do(make_, 0, x)
	}
	if p.made != 0 && p.gone == 0 && s.deletes > 0 {
		from()
		n.deletes--
		n.version++
		n.pod[x].gone = n.version
		do(delete_, 0, x)
	}
	if c.phase == inFlight {
		from().commit[x].phase = refused
		do(refuse, 0, x)
		if c.epoch == s.epoch && row == noRow && p.bound == 0 {
			from()
			n.commit[x].phase = landed
			n.rowBy[x] = commit{epoch: c.epoch, serial: c.serial}
			n.row[x] = binding
			if many {
				n.row[x] = prepared
			}
			emit(step{carryOut, 0, x}, n, m.judge(s, x))
		}
	}
	if s.bind[x] != 0 {
		from().bind[x] = 0
		if row == prepared {
			n.row[x] = binding
		}
		do(bindArrives, 0, x)
	}
	if row == prepared {
		from().row[x], n.rowBy[x], n.bad[x] = noRow, commit{}, 1
		do(giveUp, 0, x)
	}
	if row == binding {
		if p.bound == 0 && p.gone == 0 {
			from()
			n.version++
			n.pod[x].bound = n.version
			do(bindPod, 0, x)
		} else {
			from().row[x], n.rowBy[x] = noRow, commit{}
			do(settle, 0, x)
		}
		if p.bound == 0 && s.edits > 0 {
			from().row[x], n.rowBy[x], n.bad[x] = noRow, commit{}, 1
			n.edits--
			do(edit, 0, x)
		}
	}
}

// tableChange writes the next table.
func (m *machine) tableChange(s *state, t uint8) {
	was := m.tableOf(s, s.epoch)
	s.table[s.epoch] = t
	s.epoch++
	now := m.tableOf(s, s.epoch)
	for i := range uint8(shards) {
		if now.Members&(1<<i) != 0 && (was.Members&(1<<i) == 0 || now.Fresh&(1<<i) != 0) {
			s.shard[i] = shard{}
		}
	}
}

// see has a shard take note of a table.
func (m *machine) see(s *state, i, to uint8) {
	sh, now := &s.shard[i], m.tableOf(s, to)
	first := sh.epoch == 0
	var was *Table
	if first {
		sh.watch = s.version
	} else {
		was = m.tableOf(s, sh.epoch)
	}
	sh.epoch = to
	for u := range uint8(units) {
		r := &sh.rec[u]
		r.last = 0
		switch mine := now.Home[u] == i; {
		case mine && (first || was.Home[u] != i):
			*r = record{}
			sh.gained |= 1 << u
			sh.gain = mustRead
		case r.phase == asked, r.phase == ticketed && !(mine && m.weak.has(OldTicket)):
			*r = record{}
		}
	}
	switch kept := !first && sh.book.phase != notOwner; {
	case now.Ledger != i:
		sh.book = book{}
	case kept && m.weak.has(NewMemberNotAsked):
		sh.book.acks |= now.Members&^was.Members | now.Fresh // as if the answer of a name were that of its incarnation
		sh.book.serial = [units]uint8{}
	case kept && m.Kept && sh.book.phase == listed:
		// Everything that was counted stays counted, and members answer again. No read, no list.
		sh.book.acks, sh.book.full, sh.book.read, sh.book.serial = 0, 0, 0, [units]uint8{}
		if sh.book.known != 0 {
			s.register |= 1 << (to - 1)
		}
	default:
		sh.book = book{phase: listing}
	}
}

// home is what a shard does for its queues.
func (m *machine) home(s *state, i uint8, from func() *state, do func(kind, uint8, uint8)) {
	sh := &s.shard[i]
	tb := m.tableOf(s, sh.epoch)
	if sh.gain != ready {
		n := from()
		me := &n.shard[i]
		first := sh.gain == mustRead
		me.gain++
		if sh.gain == mustList {
			me.gain, me.gained = ready, 0
		}
		if first != m.weak.has(HomeListsFirst) {
			for u := range uint8(units) {
				for _, x := range m.podsOf(u) {
					if sh.gained&(1<<u) == 0 {
						continue
					}
					n.bad[x] = 0
					if n.row[x] != noRow && me.rec[u].phase != over {
						me.rec[u] = record{phase: placed}
					}
				}
			}
			do(readRows, i, 0)
		} else {
			m.advance(n, i, n.version)
			if m.listedGroup(n, n.version) && !m.weak.has(UnregisteredHome) {
				me.group = 1
			}
			do(list, i, 0)
		}
	}
	for u := range uint8(units) {
		m.drive(s, i, u, tb.Home[u] == i && sh.gained&(1<<u) == 0, from, do)
	}
	if s.register&(1<<(sh.epoch-1)) != 0 && s.acks[sh.epoch-1][i].given == 0 && (sh.gain == ready || m.weak.has(AnswerWhileGaining)) {
		n := from()
		n.shard[i].group = 1
		a := answer{given: 1, watch: sh.watch}
		for u, r := range sh.rec {
			if r.phase != sent && r.phase != placed || r.told != 0 || m.weak.has(InheritedNotOpen) && r.serial == 0 {
				continue
			}
			a.open |= 1 << u
			if r.epoch == sh.epoch {
				a.serials[u] = r.serial
			}
		}
		n.acks[sh.epoch-1][i] = a
		do(answerRegister, i, 0)
	}
	if s.lost > 0 && s.acks[sh.epoch-1][i].given != 0 {
		n := from()
		n.lost--
		n.acks[sh.epoch-1][i] = answer{}
		do(loseAnswer, i, 0)
	}
}

// drive is what a home does for a unit; mine reports whether it may begin anything for it.
func (m *machine) drive(s *state, i, u uint8, mine bool, from func() *state, do func(kind, uint8, uint8)) {
	sh := &s.shard[i]
	r, ps := sh.rec[u], m.podsOf(u)
	send := func(n *state) {
		me := &n.shard[i].rec[u]
		me.phase, me.epoch = sent, sh.epoch
		for _, x := range ps {
			if n.commit[x].epoch > sh.epoch {
				continue // one of an older table will be refused: it need not be told apart from one that is lost
			}
			n.commit[x] = commit{phase: inFlight, by: i, epoch: sh.epoch, serial: me.serial}
			if sh.epoch == s.epoch {
				n.bad[x] = 0
			}
		}
	}
	end := func(n *state) {
		if r.epoch != 0 {
			n.done[u] |= bit(r.epoch, r.serial)
		}
		last := r.last
		n.shard[i].rec[u] = record{last: last}
	}
	leave := func() { // the gang has something better to do, such as another ask
		if s.abandons == 0 {
			return
		}
		n := from()
		n.abandons--
		end(n)
		do(abandon, i, u)
	}
	switch r.phase {
	case idle:
		open := mine && r.last < m.Attempts
		for _, x := range ps {
			p := s.pod[x]
			open = open && seen(p.made, sh.watch) && !seen(p.bound, sh.watch) && !seen(p.gone, sh.watch)
		}
		if !open {
			return
		}
		n := from()
		n.shard[i].rec[u] = record{phase: asked, epoch: sh.epoch, serial: r.last + 1, last: r.last + 1}
		if m.carries(u) || sh.group != 0 {
			n.ticket[u] |= bit(sh.epoch, r.last+1)
			do(ask, i, u)
		} else {
			send(n)
			do(commitPlain, i, u)
		}
	case asked:
		if s.answer[u]&bit(r.epoch, r.serial) != 0 {
			from().shard[i].rec[u].phase = ticketed
			do(hearTicket, i, u)
		}
		leave()
	case ticketed:
		if mine {
			send(from())
			do(commitTicketed, i, u)
		}
		leave()
	case sent:
		heard, yes := true, true
		for _, x := range ps {
			c := s.commit[x]
			known := c.by == i && c.epoch == r.epoch && c.serial == r.serial
			heard = heard && known && (c.phase == landed || c.phase == refused)
			yes = yes && c.phase == landed
			if known && c.phase == inFlight && m.weak.has(FreedInFlight) && x == ps[0] {
				end(from())
				do(freeEarly, i, u)
			}
		}
		if !heard {
			return
		}
		n := from()
		for _, x := range ps {
			n.commit[x] = commit{}
			switch {
			case yes && len(ps) > 1:
				n.bind[x] = 1
			case !yes && n.row[x] == prepared: // Withdraw
				n.row[x], n.rowBy[x] = noRow, commit{}
			}
			if !yes && sh.epoch == s.epoch {
				n.bad[x] = 0
			}
		}
		if yes {
			n.shard[i].rec[u].phase = placed
			if m.weak.has(SaidSupports) || len(ps) == 1 && m.weak.has(DecidedSupports) {
				n.sure[u] |= bit(r.epoch, r.serial)
			}
		} else {
			end(n)
		}
		do(hearReply, i, u)
	case placed:
		rows, bads, bound := 0, false, false
		for _, x := range ps {
			bads = bads || s.bad[x] != 0 || r.epoch == 0 && s.row[x] == noRow // an heir asks node shards by Withdraw
			bound = bound || s.row[x] == binding || s.pod[x].bound != 0
			if s.row[x] == prepared {
				rows++
			}
		}
		if bads && !bound {
			n := from()
			for _, x := range ps {
				n.bad[x], n.bind[x] = 0, 0
				if n.row[x] == prepared {
					n.row[x], n.rowBy[x] = noRow, commit{}
				}
			}
			end(n)
			do(hearBad, i, u)
		}
		if r.epoch == 0 && rows > 0 && !bound && mine { // an heir withdraws what it does not know to be decided
			n := from()
			for _, x := range ps {
				n.row[x], n.rowBy[x], n.bad[x], n.bind[x] = noRow, commit{}, 0, 0
			}
			end(n)
			do(withdraw, i, u)
		}
		if m.weak.has(OpenUntilTold) && r.told == 0 && m.settledIn(s, u, s.version) {
			from().shard[i].rec[u].told = 1
			do(hearBound, i, u)
		}
		if m.weak.has(DecidedSupports) && len(ps) > 1 && r.epoch != 0 && bound && s.sure[u]&bit(r.epoch, r.serial) == 0 {
			from().sure[u] |= bit(r.epoch, r.serial)
			do(hearBinding, i, u)
		}
	}
}

// ledger is what a shard does for the counts.
func (m *machine) ledger(s *state, i uint8, from func() *state, do func(kind, uint8, uint8)) {
	sh := &s.shard[i]
	b, members := &sh.book, m.tableOf(s, sh.epoch).Members
	if b.phase == listing {
		n := from()
		m.advance(n, i, n.version)
		me := &n.shard[i].book
		me.phase = listed
		if m.listedGroup(n, n.version) {
			me.known, me.full = 1, 1
			n.register |= 1 << (sh.epoch - 1)
		}
		do(ledgerList, i, 0)
		return
	}
	if b.known == 0 {
		told := m.listedGroup(s, sh.watch)
		for u := range uint8(units) {
			told = told || (m.carries(u) || !m.weak.has(TicketOfUnknownGroup)) && s.ticket[u]&(3*bit(sh.epoch, 1)) != 0
		}
		if told {
			n := from()
			n.shard[i].book.known = 1
			if m.tableOf(s, sh.epoch).orphans() && !m.weak.has(ShortcutWithOrphans) {
				n.shard[i].book.full = 1 // nobody says what is open in a queue without a home
			}
			n.register |= 1 << (sh.epoch - 1)
			do(learn, i, 0)
		}
		return
	}
	for j := range uint8(shards) {
		a := s.acks[sh.epoch-1][j]
		if b.acks&(1<<j) != 0 || a.given == 0 {
			continue
		}
		n := from()
		me := &n.shard[i].book
		me.acks |= 1 << j
		for u := range uint8(units) {
			if a.open&(1<<u) == 0 || m.weak.has(OpenIgnored) || m.settledIn(s, u, sh.watch) {
				continue
			}
			if me.entry[u] == free {
				me.entry[u] = counted
			}
			if !m.weak.has(OpenWithoutSerial) {
				me.serial[u] = max(me.serial[u], a.serials[u])
			}
		}
		if b.full == 0 || m.weak.has(ShortcutAtTakeover) {
			if !m.weak.has(NoWatchInAnswer) {
				me.target = max(me.target, a.watch)
			}
		}
		do(takeAnswer, i, j)
	}
	all := b.acks&members == members
	if b.full != 0 && b.read == 0 && (all || m.weak.has(ReadBeforeAnswers)) && !m.weak.has(ShortcutAtTakeover) && !m.weak.has(NoRead) {
		n := from()
		me := &n.shard[i].book
		me.read = 1
		for x := range m.podCount() {
			u := m.unitOf(x)
			if s.row[x] == noRow {
				continue
			}
			if me.entry[u] == free && !m.settledIn(s, u, sh.watch) {
				me.entry[u] = counted
			}
			if s.rowBy[x].epoch == sh.epoch {
				me.serial[u] = max(me.serial[u], s.rowBy[x].serial)
			}
			if s.row[x] == binding && m.weak.has(DecidedSupports) || m.weak.has(PreparedRowSupports) {
				me.sure |= 1 << u
			}
		}
		if !m.weak.has(ListBeforeRead) {
			me.target = s.version
		}
		do(ledgerRead, i, 0)
	}
	for u := range uint8(units) {
		for k := uint8(1); k <= m.Attempts; k++ {
			here := bit(sh.epoch, k)
			if s.ticket[u]&here != 0 && m.grants(s, i, u, k, all) {
				n := from()
				me := &n.shard[i].book
				me.entry[u], me.serial[u] = granted, k
				n.answer[u] |= here
				if m.weak.has(PromisedSupports) {
					me.sure |= 1 << u
				}
				do(grant, i, k<<1|u)
			}
			if s.ticket[u]&here != 0 && k > b.serial[u] && b.entry[u] != free && !m.weak.has(CountOutlivesTicket) {
				n := from() // whoever asks has nothing else on the way
				me := &n.shard[i].book
				me.entry[u], me.serial[u] = free, k-1
				me.sure &^= 1 << u
				do(takeTicket, i, k<<1|u)
			}
			if s.done[u]&here != 0 && (k > b.serial[u] || k == b.serial[u] && b.entry[u] != free || m.weak.has(DoneOfAnySerial) && b.entry[u] != free) {
				n := from()
				me := &n.shard[i].book
				me.entry[u], me.serial[u] = free, max(me.serial[u], k)
				me.sure &^= 1 << u
				do(takeDone, i, k<<1|u)
			}
			if s.sure[u]&here != 0 && b.entry[u] == granted && k == b.serial[u] && b.sure&(1<<u) == 0 {
				from().shard[i].book.sure |= 1 << u
				do(takeSure, i, k<<1|u)
			}
		}
		if m.weak.has(TicketTimesOut) && b.entry[u] == granted {
			from().shard[i].book.entry[u] = free
			do(timeOut, i, u)
		}
	}
}

// grants reports whether a ledger grants a ticket now.
func (m *machine) grants(s *state, i, u, serial uint8, all bool) bool {
	sh := &s.shard[i]
	b := &sh.book
	switch {
	case serial <= b.serial[u] && !(m.weak.has(TicketOfAnySerial) && (serial < b.serial[u] || b.entry[u] == free)):
		return false
	case !all && !m.weak.has(GrantBeforeAnswers):
		return false
	case b.full != 0 && b.read == 0 && !m.weak.has(ShortcutAtTakeover) && !m.weak.has(NoRead):
		return false
	case sh.watch < b.target || m.settledIn(s, u, sh.watch):
		return false
	}
	v := 1 - u
	if !m.Pattern.Support {
		return b.entry[v] == free && !m.standsIn(s, v, sh.watch)
	}
	return u == 0 || b.sure&1 != 0 || m.standsIn(s, 0, sh.watch)
}
