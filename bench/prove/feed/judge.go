package feed

import "fmt"

// harm returns what a step violates.
func (m *machine) harm(from, to *state, kind uint8, of int) string {
	switch kind {
	case lands:
		on := 0
		for p := range m.Pods {
			if to.pods[p].bound != 0 && to.pods[p].died == 0 {
				on++
			}
		}
		if on > 1 {
			return "the node has two pods, and room for one"
		}
	case closes:
		for p := range m.Pods {
			if from.charges[p] != 0 && to.charges[p] == 0 && from.pods[p].died == 0 &&
				(from.pods[p].bound != 0 || from.intents[p].open != 0) {
				return fmt.Sprintf("what pod %d is charged is given back, and it runs", p)
			}
		}
	}
	return ""
}

// Judge judges a state in which nothing is left to be done.
func (m *machine) Judge(s *state, steps []step) string {
	for _, st := range steps {
		if st.kind > switches {
			return ""
		}
	}
	for k := range shards {
		if set := m.gains(s, k); set != 0 {
			return fmt.Sprintf("shard %d never serves buckets %03b", k, set)
		}
	}
	taken := false
	for p := range m.Pods {
		taken = taken || s.pods[p].bound != 0 && s.pods[p].died == 0
	}
	for p := range m.Pods {
		switch of := &s.pods[p]; {
		case s.charges[p] != 0 && of.died != 0:
			return fmt.Sprintf("pod %d is charged for ever", p)
		case of.born != 0 && of.died == 0 && of.bound == 0 && !taken:
			return fmt.Sprintf("pod %d is never placed", p)
		}
	}
	return ""
}

// Say describes a step.
func (m *machine) Say(st step, _, to *state) string {
	of, on := st.of, st.to
	at := func() string {
		l := to.links[of][on]
		return fmt.Sprintf("shard %d, part %d, at %d", of, on, max(l.mark, to.shards[of].knows[on]))
	}
	switch st.kind {
	case bucketMoves:
		return fmt.Sprintf("bucket %d moves to shard %d", of, on)
	case restarts, progresses, reads:
		return fmt.Sprintf("reader %d of part %d %s, at %d", on, of, said[st.kind], to.readers[of][on].at)
	case sends, marks, connects, switches, hears:
		return at() + ": " + said[st.kind]
	case asks, serves:
		return fmt.Sprintf("shard %d %s bucket %d", of, said[st.kind], on)
	case subscribes:
		h := to.shards[of]
		return fmt.Sprintf("shard %d subscribes: node %d, queues %03b, pods %02b", of, h.n, h.h, h.x)
	case resolves, ends, closes, places:
		return fmt.Sprintf("shard %d %s pod %d", of, said[st.kind], on)
	}
	return fmt.Sprintf("pod %d %s, version %d", of, said[st.kind], to.version)
}

var said = map[uint8]string{
	comes: "comes", touched: "is changed", dies: "is gone", groupMoves: "and its group move", restarts: "restarts",
	switches: "another reader is asked", progresses: "progresses", reads: "sees the group move",
	connects: "a reader is asked", hears: "the reader hears what is wanted", sends: "a pod is sent", marks: "MARK",
	asks: "reads the store and asks for", serves: "serves", places: "places", lands: "is bound, or refused",
	forgets: "has its row deleted", resolves: "resolves the row of", ends: "ends the row of",
	closes: "closes the charge of",
}
