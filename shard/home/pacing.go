package home

import (
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/fair"
)

// Pacing of edits. The objects of a gang belong to its tenant, who may change them all the time. A change that matters makes
// the gang start over: withdraw what it holds, give back its reservation or request, request again, and search again. That
// costs messages and transactions at several processes in proportion to the gang's pods, for one write to the API server.
//
// So there are two rate limits:
//   - Per gang, with exponential backoff: the first few edits after a rest take effect at once, the next one Config.BackoffMin
//     later, then twice as long each time up to Config.BackoffMax. Edits in between take effect together.
//   - Per namespace, by a token bucket of pods: a gang costs as many tokens as it has pods, and gangs for which it has too
//     few are queued. One tenant cannot use up the budget of another.
//
// Which edit it was does not matter: what is limited is the starting over (limitRestarts), not the edits. Only what is not
// placed is limited. A gang that forms, that is placed, or that grows while growth is granted, is not.

// pacing says who may start over.
type pacing struct {
	*common

	editLines map[string][]*gang // that wait to start over, by namespace (pacing.go)
	editing   fair.Budget        // pods that start over
	ordering  fair.Budget        // cost of places that are found anew, and
	reordered []*gang            // whose place is to be found anew (order.go)
}

const (
	// editedPods is how many pods of one namespace may start over in a second because somebody edited their gangs.
	editedPods = 1000
	// freeEdits is how many edits of one gang take effect at once.
	freeEdits = 3
	// editRest is how long a gang is left alone before its next edit is the first one again.
	editRest = 10 * time.Second
)

// edits is how often a gang started over lately.
type edits struct {
	growthDenied bool          // the last growth that it asked for was denied
	count        int           // of times since it rested
	last         time.Time     // time,
	pause        time.Duration // and how long after it the next may come
	line         line          // before it starts over
}

// line is where a gang is in the line of its namespace: pacing.editLines, or searchers.wakes.
type line uint8

const (
	notInLine   line = iota
	comesToLine      // it is to start over
	waitsInLine
	paid // it has left it, and is paid for
)

// ask takes note that the gang is to start over.
func (e *edits) ask() {
	if e.line == notInLine {
		e.line = comesToLine
	}
}

// deny takes note that the last growth that the gang asked for was denied, and allow that it was not.
func (e *edits) deny()  { e.growthDenied = true }
func (e *edits) allow() { e.growthDenied = false }

// edited takes note of a change that may end a gang's sleep.
func (g *gang) edited() {
	if g.search.sleep != nil {
		g.edits.ask()
	}
}

// limitRestarts reports whether a gang has to wait before it starts over. The gang is looked at again when it may.
func (c *pacing) limitRestarts(g *gang) bool {
	e := &g.edits
	if e.line == notInLine {
		return false
	}
	if e.line != paid {
		if at := e.last.Add(e.pause); c.now.Before(at) {
			c.wakeAt(g, at)
			return true
		}
		if e.line == waitsInLine {
			return true
		}
		if line := c.editLines[g.name.Namespace]; len(line) > 0 || !c.payForEdit(g) {
			e.line = waitsInLine
			c.editLines[g.name.Namespace] = append(line, g)
			return true
		}
	}
	if !c.now.Before(e.last.Add(editRest)) {
		e.count, e.pause = 0, 0
	}
	if e.count++; e.count >= freeEdits {
		e.pause = min(max(2*e.pause, c.cfg.BackoffMin), c.cfg.BackoffMax)
	}
	e.last, e.line = c.now, notInLine
	return false
}

// payForEdit takes the pods of a gang out of the bucket of its namespace, if anything is left: a large gang leaves a debt, of no
// more than a few seconds.
func (c *pacing) payForEdit(g *gang) bool {
	if c.editing.Spent(c.now, g.name.Namespace) >= editedPods {
		return false
	}
	c.editing.Spend(c.now, g.name.Namespace, int64(min(max(1, len(g.members)), 3*editedPods)))
	return true
}

// startEdited lets queued gangs start over, as far as the budgets of their namespaces go.
func (c *pacing) startEdited() {
	for _, namespace := range api.SortedKeys(c.editLines) {
		line := c.editLines[namespace]
		for len(line) > 0 {
			g := line[0]
			turn := notInLine
			if !g.dropped() {
				if !c.payForEdit(g) {
					break
				}
				turn = paid
				c.touch(g)
			}
			g.edits.line = turn
			line[0] = nil
			line = line[1:]
		}
		if c.editLines[namespace] = line; len(line) == 0 {
			delete(c.editLines, namespace)
		}
	}
}

// keepPace remembers how often a gang started over that is forgotten and may come back at once: its queue, or the label of
// its pod, was edited.
func (c *Core) keepPace(g *gang) {
	if g.since.IsZero() {
		return
	}
	if p := c.pods[g.id]; g.moving() || g.isPod() && p != nil && !p.Finished {
		c.paces.put(g.id, edits{count: g.edits.count, last: g.edits.last, pause: g.edits.pause})
	}
}
