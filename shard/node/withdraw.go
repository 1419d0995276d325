package node

import (
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// What was requested for a gang is given up, and its home is told once nothing of it is left.

// withdrawRequest takes back what was not sent.
func (c *Core) withdrawRequest(from api.Incarnation, m *wire.Withdraw) {
	// What a dead shard left on nodes that are just becoming ours belongs to the answer.
	if !c.ready || c.takeover.stage != idle || !c.fromHome(from, m.GetGang()) ||
		m.GetTableEpoch() > uint64(c.table.Epoch) {
		return
	}
	g := c.gang(m.GetGang())
	serial := m.GetSerial()
	g.withdrawn = max(g.withdrawn, serial)
	keep := m.GetKeep()
	if keep {
		c.keepHolds(g)
	} else {
		c.dropHolds(g, serial)
	}
	for _, m := range c.commitsOf(g) {
		if m.serial > serial {
			continue
		}
		m.keep = keep
		if m.reply == nil { // its home shard knows: no CommitReply
			m.at = c.now
			m.reply = &wire.CommitReply{GangUid: g.ref.GetUid(), Serial: m.serial, Outcome: wire.CommitOutcome_COMMIT_WITHDRAWN}
		}
		c.giveUpAll(m)
	}
	c.resendResults(g, func(r result) bool { return r.serial <= serial })
	g.answer, g.withdrawing = serial, m.GetPodUids()
	c.withdraw[g.key], c.answerable[g.key] = true, true
}

// answerWithdraws says Withdrawn where nothing is left but what was sent: also not in the control store. Of the pods
// that the home shard asks about it names those that are bound here: whoever sent their Bindings may have left the
// table, and the home shard's watch may lag behind ours.
func (c *Core) answerWithdraws() {
	if len(c.answerable) == 0 {
		return
	}
	keys := api.SortedKeys(c.answerable)
	clear(c.answerable) // what waits for more is looked at again when something of it changes
	for _, key := range keys {
		g := c.gangs[key]
		if g == nil || !c.withdraw[key] {
			continue
		}
		var sentPods []string
		left := false
		for _, r := range g.rows {
			if r.serial() > g.answer {
				continue
			}
			switch r.phase {
			case queued, inFlight, prepared, dropped:
				left = true
			case sent:
				sentPods = append(sentPods, r.uid)
			}
		}
		if left {
			continue
		}
		if c.unreported[key] {
			c.sendResults() // before Withdrawn, which names only the others
		}
		slices.Sort(sentPods)
		var bound []*wire.Held
		for _, uid := range g.withdrawing {
			if at, here := c.bound[uid]; here {
				bound = append(bound, &wire.Held{PodUid: uid, Node: at.node})
			}
		}
		g.withdrawing = nil
		delete(c.withdraw, key)
		c.send(g, &wire.Envelope{Body: &wire.Envelope_Withdrawn{Withdrawn: &wire.Withdrawn{GangUid: g.ref.GetUid(),
			Serial: g.answer, SentPodUids: slices.Compact(sentPods), Bound: bound}}})
	}
}
