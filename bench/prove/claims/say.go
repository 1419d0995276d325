package claims

import "fmt"

// Say describes a step.
func (m *machine) Say(st step, _, n *state) string {
	g := m.name(st.g)
	to := &n.gangs[st.g]
	node := fmt.Sprintf("node %d", st.i+1)
	home := "home of " + g
	old := ""
	if st.i < to.renewed && st.kind >= learnClosed {
		old = ", replaced"
	}
	switch st.kind {
	case grant:
		return fmt.Sprintf("coordinator: grants %s, attempt %d", g, to.attempt)
	case mandate:
		return fmt.Sprintf("coordinator: denies %s, and gives it mandate %d of term %d against %s", g, to.serial, to.term, m.set(to.may))
	case claimArrives:
		if to.claim == 0 {
			return fmt.Sprintf("coordinator: refuses Claim %d of term %d of %s", st.k+1, st.i+1, g)
		}
		return fmt.Sprintf("coordinator: writes the claim of %s (Claim %d of term %d) on %s", g, st.k+1, st.i+1, m.set(to.victims))
	case closes:
		return fmt.Sprintf("coordinator: closes %s, attempt %d", g, to.attempt)
	case claimGranted:
		return fmt.Sprintf("coordinator: the claim of %s is granted", g)
	case drops:
		return fmt.Sprintf("coordinator: drops the claim of %s", g)
	case unreserve:
		return fmt.Sprintf("coordinator: Unreserve of %s arrives", g)
	case askRoom:
		return fmt.Sprintf("%s: HoldRequest at %s: %s", home, node, [...]string{"refused", "promised", "held"}[to.room[st.i]])
	case retreat:
		return home + ": was refused a room, and withdraws all"
	case sendClaim:
		return fmt.Sprintf("%s: Claim on %s", home, m.set(to.plan))
	case learnClaimed:
		return home + ": learns that its claim stands"
	case learnRefused:
		return home + ": learns that its mandate is over, and withdraws all"
	case learnDropped:
		return home + ": learns that its claim was dropped, and withdraws all"
	case learnGranted:
		return home + ": Granted"
	case commit:
		return home + ": sends its Commits"
	case writeRow:
		if to.pods[st.i].row != prepared {
			return fmt.Sprintf("%s: the row of %s is refused", node, g)
		}
		return fmt.Sprintf("%s: the row of %s is prepared", node, g)
	case withdrawRow:
		return fmt.Sprintf("%s: withdraws the row at %s", home, node)
	case bindSaid:
		return fmt.Sprintf("%s: Bind at %s", home, node)
	case finished:
		return home + ": its commits are over"
	case takeOver:
		return home + ": the heir reads the record"
	case learnClosed:
		return fmt.Sprintf("home %d of %s%s: learns that attempt %d is closed", st.i+1, g, old, to.closed[st.i])
	case readRecord:
		return fmt.Sprintf("home %d of %s%s: reads the record, and sends the deletion of the pod on node %d", st.i+1, g, old, st.k+1)
	case expire:
		return fmt.Sprintf("%s: what %s had expires", node, g)
	case seeGone:
		if n.nodes[st.i].hold != 0 {
			return fmt.Sprintf("%s: the pod of %s is gone, the room is %s's", node, g, m.name(n.nodes[st.i].hold-1))
		}
		return fmt.Sprintf("%s: the pod of %s is gone", node, g)
	case handOver:
		return fmt.Sprintf("%s: the room is %s's", node, g)
	case bindArrives:
		return fmt.Sprintf("API server: Binding of %s to %s", g, node)
	case deleteArrives:
		return fmt.Sprintf("API server: the pod of %s on node %d is deleted by home %d%s", g, st.k+1, st.i+1, old)
	case finish:
		return fmt.Sprintf("API server: the pod of %s on %s has finished", g, node)
	case crash:
		return "coordinator: crashes; the next one reads the store"
	case replace:
		return home + ": has an heir"
	case restart:
		return node + ": its shard restarts"
	case timeout:
		return fmt.Sprintf("coordinator: the claim of %s took too long, and is dropped", g)
	case cancel:
		if st.i == changing {
			return g + " is changed: everything is withdrawn"
		}
		return g + " is deleted: everything is withdrawn"
	case edit:
		return "limits are edited: no claim is legal any more"
	case cutLimit:
		return fmt.Sprintf("limits are edited: %d pods", n.limit)
	case lapse:
		return fmt.Sprintf("%s: what %s had expires, for its home is late", node, g)
	case lateHold:
		return fmt.Sprintf("%s: a late HoldRequest of %s", node, g)
	}

	return "?"
}

func (m *machine) set(gangs uint8) string {
	out := ""
	for g := range m.World.Gangs {
		if gangs>>g&1 != 0 {
			if out != "" {
				out += "+"
			}
			out += m.World.Gangs[g].Name
		}
	}
	if out == "" {
		return "nobody"
	}
	return out
}
