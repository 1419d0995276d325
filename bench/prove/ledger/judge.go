package ledger

import "fmt"

// judge returns what is violated if the row of a pod is written now.
func (m *machine) judge(s *state, x uint8) string {
	u, c := m.unitOf(x), s.commit[x]
	if s.pod[x].gone != 0 {
		return ""
	}
	l := &s.shard[m.tableOf(s, s.epoch).Ledger]
	for y := range m.podCount() {
		if m.unitOf(y) != u && !m.Pattern.Support && s.pod[y].gone == 0 && (s.row[y] != noRow || s.pod[y].bound != 0) {
			return fmt.Sprintf("C2: %s is placed while %s, which it repels, is", m.name(x), m.name(y))
		}
	}
	if m.Pattern.Support && u == 1 && !m.supported(s) {
		return "C2, C4: f is placed, and nothing that it needs is decided or bound"
	}
	if !m.OnlyC2 && l.epoch == s.epoch && l.book.known != 0 && l.book.acks&(1<<c.by) != 0 && l.book.entry[u] == free && !m.settledIn(s, u, l.watch) {
		return fmt.Sprintf("C1, C3: %s is placed, and the ledger of the table, which has the answer of its home, does not count it", m.name(x))
	}
	return ""
}

// supported reports whether a pod that f needs is bound, or has a row that allows its Binding.
func (m *machine) supported(s *state) bool {
	for _, y := range m.podsOf(0) {
		if s.pod[y].gone == 0 && (s.row[y] == binding || s.pod[y].bound != 0) {
			return true
		}
	}
	return false
}

// judgeEnd returns what is violated if nothing can happen any more: a unit waits for a ticket, and nothing that stands or is on
// its way keeps it from one (C7).
func (m *machine) judgeEnd(s *state) string {
	for u := range uint8(units) {
		home := m.tableOf(s, s.epoch).Home[u]
		if home == nobody {
			continue
		}
		if h := &s.shard[home]; h.rec[u].phase != asked || h.rec[u].epoch != s.epoch {
			continue
		}
		if m.Pattern.Support {
			if u == 0 || m.supported(s) {
				return fmt.Sprintf("C7: unit %d waits for a ticket for ever", u)
			}
			continue
		}
		other := m.podsOf(1 - u)[0]
		if s.row[other] == noRow && (s.pod[other].bound == 0 || s.pod[other].gone != 0) {
			return fmt.Sprintf("C7: %s waits for a ticket for ever", m.name(m.podsOf(u)[0]))
		}
	}
	return ""
}
