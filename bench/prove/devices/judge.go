package devices

import "fmt"

// harm returns what is wrong with a state.
func harm(s *state) string {
	if s.claims[0].taken != 0 && s.claims[1].taken != 0 {
		return "the device is allocated to two claims"
	}
	for p := range s.pods {
		if of, c := &s.pods[p], &s.claims[p]; of.runs() && !c.belongs(of.uid) {
			return fmt.Sprintf("pod %d runs, and claim %d is not allocated and reserved for it", p, p)
		}
	}
	return ""
}

// Judge judges a state in which nothing is left to be done.
func (m *machine) Judge(s *state, steps []step) string {
	for _, st := range steps {
		if st.kind > loses {
			return ""
		}
	}
	taken := s.claims[0].taken != 0 || s.claims[1].taken != 0
	for p := range m.Pods {
		of, c := &s.pods[p], &s.claims[p]
		switch waits := of.gone == 0 && of.bound == 0; {
		case c.taken != 0 && waits:
			return fmt.Sprintf("claim %d is allocated for ever, and pod %d waits", p, p)
		case waits && !taken && s.rows[p][attempts-1].place == 0:
			return fmt.Sprintf("pod %d is never placed, and the device is free", p)
		}
		for i := range s.rows[p] {
			if s.rows[p][i].live() {
				return fmt.Sprintf("row %d of pod %d stays for ever", i, p)
			}
		}
	}
	return ""
}

// Say describes a step.
func (m *machine) Say(st step, from, to *state) string {
	x, y, by := int(st.of), int(st.to), 0
	if st.kind >= resolvesPod {
		y, by = y%attempts, y/attempts
	}
	switch st.kind {
	case dies:
		return fmt.Sprintf("pod %d ends", x)
	case comesAgain:
		return fmt.Sprintf("another pod %d comes", x)
	case moves:
		return fmt.Sprintf("node %d moves to shard %d", x, y)
	case crashes:
		return fmt.Sprintf("shard %d crashes", x)
	case undoes:
		return fmt.Sprintf("the gang of pod %d is undone", x)
	case loses:
		return fmt.Sprintf("what is on its way for row %d of pod %d is lost", y, x)
	case frees:
		return fmt.Sprintf("the controller frees claim %d: version %d", x, to.claims[x].version)
	case sees:
		return fmt.Sprintf("shard %d sees place %d of the log", x, to.shards[x].log)
	case notices:
		return fmt.Sprintf("shard %d sees claim %d at version %d", x, y, to.shards[x].claims[y])
	case reads:
		return fmt.Sprintf("shard %d reads the log for node %d", x, y)
	case lists:
		return fmt.Sprintf("shard %d lists claims for node %d", x, y)
	case learns:
		return fmt.Sprintf("shard %d hears that node %d is not its own", x, y)
	case places:
		for i := range to.rows[x] {
			if r := &to.rows[x][i]; r.place == to.log {
				return fmt.Sprintf("shard %d writes row %d of pod %d at place %d, for version %d of its claim",
					y, i, x, r.place, r.at)
			}
		}
	case judges:
		if to.rows[x][y].over != 0 {
			return fmt.Sprintf("row %d of pod %d is refused", y, x)
		}
		return fmt.Sprintf("row %d of pod %d is judged", y, x)
	case allocating:
		return fmt.Sprintf("row %d of pod %d: the allocation is sent", y, x)
	case lands:
		if to.rows[x][y].status == refused {
			return fmt.Sprintf("row %d of pod %d: the allocation is refused", y, x)
		}
		return fmt.Sprintf("row %d of pod %d: claim %d is allocated, version %d", y, x, x, to.claims[x].version)
	case hears:
		if to.rows[x][y].status == onItsWay {
			return fmt.Sprintf("row %d of pod %d: the allocation is sent again, for version %d", y, x, to.rows[x][y].sent)
		}
		return fmt.Sprintf("row %d of pod %d: its owner hears of the conflict", y, x)
	case binding:
		return fmt.Sprintf("row %d of pod %d: the Binding is sent", y, x)
	case bound:
		if from.pods[x].bound == to.pods[x].bound {
			return fmt.Sprintf("row %d of pod %d: the Binding is refused", y, x)
		}
		return fmt.Sprintf("row %d of pod %d: the pod is bound", y, x)
	case finishes:
		return fmt.Sprintf("row %d of pod %d is removed: the pod runs", y, x)
	case fails:
		return fmt.Sprintf("row %d of pod %d has failed", y, x)
	case resolvesPod:
		return fmt.Sprintf("row %d of pod %d: shard %d makes sure that no Binding lands any more", y, x, by)
	case resolvesClaim:
		return fmt.Sprintf("row %d of pod %d: shard %d makes sure that no allocation lands any more, claim %d has version %d",
			y, x, by, x, to.claims[x].version)
	case closes:
		return fmt.Sprintf("row %d of pod %d is over, says shard %d", y, x, by)
	}
	return fmt.Sprint(st)
}
