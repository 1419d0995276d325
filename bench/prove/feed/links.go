package feed

// What a reader sends a shard, and what the shard makes of it.

// connect has a shard ask a reader for a part. It says at once what it wants.
func (m *machine) connect(n *state, k, p, r int) {
	h, of := &n.shards[k], &n.readers[p][r]
	if of.at == 0 { // it begins where the shard is, or there is nothing yet
		*of = reader{at: 1, words: of.words}
	}
	words := of.words
	if m.weak.Has(WordsKept) {
		words = n.links[k][p].words
	}
	n.links[k][p] = link{slot: uint8(r + 1), sub: h.sub, n: h.n, h: h.h, x: h.x, words: words, fresh: 1}
}

// Frames.
const (
	none uint8 = iota
	in         // the pod as it is
	out        // it does not concern the shard any more
	gone
)

// frame returns what a reader has to send next.
func (m *machine) frame(s *state, k, p int) uint8 {
	l, of := &s.links[k][p], &s.pods[p]
	r := &s.readers[p][l.slot-1]
	switch {
	case !by(of.born, r.at):
		return none
	case by(of.died, r.at):
		if l.sent != 0 {
			return gone
		}
		return none
	}
	moved := r.group != 0
	if m.weak.Has(MoveUnsent) && of.last(r.at) < s.moved {
		moved = false
	}
	concerns := l.n != 0 && by(of.bound, r.at) || l.h>>(1+m.queue(p, moved))&1 != 0 || l.x>>p&1 != 0
	switch {
	case !concerns && l.sent != 0:
		return out
	case !concerns:
		return none
	}
	last := of.last(r.at)
	if m.weak.Has(PendingUnsent) {
		last = max(of.born, of.bound*flag(by(of.bound, r.at)))
	}
	if l.sent == 0 || last > l.sent {
		return in
	}
	return none
}

// take takes a frame.
func (m *machine) take(n *state, k, p int, frame, at uint8) {
	l, h := &n.links[k][p], &n.shards[k]
	bit := uint8(1) << p
	switch frame {
	case in:
		l.sent = at
		if at < h.knows[p] {
			return // a reader that is late
		}
		h.knows[p] = at
		h.gone &^= bit
		if h.misread &^= bit; l.words != n.readers[p][l.slot-1].words {
			h.misread |= bit
		}
		if by(n.pods[p].bound, at) {
			h.rows &^= bit
		}
	case out:
		l.sent, h.knows[p] = 0, 0
		if m.weak.Has(OutIsGone) {
			h.lose(p)
		}
	case gone:
		l.sent = 0
		h.lose(p)
	}
}

// lose takes that a pod is gone.
func (h *shard) lose(p int) {
	h.knows[p] = 0
	h.gone |= 1 << p
	h.rows &^= 1 << p
}

// mark takes a MARK. The first one of a reader that is as far as the shard was says what the shard need not know any
// more.
func (m *machine) mark(n *state, k, p int, at uint8) {
	l, h := &n.links[k][p], &n.shards[k]
	l.mark, l.marked = at, l.sub
	if l.fresh == 0 || h.knows[p] > at && !m.weak.Has(LateBelieved) {
		return
	}
	l.fresh = 0
	if l.sent != 0 || h.knows[p] == 0 || m.weak.Has(LackIsIgnored) {
		return
	}
	named := l.x>>p&1 != 0 || l.n != 0 && by(n.pods[p].bound, h.knows[p])
	if h.knows[p] = 0; named || m.weak.Has(LackIsGone) {
		h.lose(p)
	}
}
