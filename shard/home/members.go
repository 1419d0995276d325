package home

import (
	"slices"
	"time"

	"basalt.dev/basalt/api/v1beta1"
)

// tally counts the members of a gang; it is made anew whenever the gang is looked at.
type tally struct {
	candidates int // may be placed and are not bound
	bound      int // have a node and are not finished, and no other gang is charged for them
	chargeable int // of them those to be charged
	held       int
	promised   int
	committed  int
	charged    int // candidates that the reservation counts
	unfinished int
	gated      int
	withheld   int
	changing   int        // candidates whose version is about to change
	refused    refusedPod // the first that cannot be placed as it is
	refusals   int
	rejected   refusedPod // the first of these whose Binding the API server rejects
	again      time.Time  // when one of those is tried again, zero for never
	scarce     int        // candidates with claims that need volumes which are there already
	elsewhere  int        // have a node, and another gang is charged for them
	alive      int        // bound, and of the present life (gang.go)
	lost       int        // bound, and lost (repair.go)
	placed     int        // those, and of those that have succeeded the ones that count for it
	succeeded  int        // that had a node
	failed     int
	placedAs   map[string]int // of placed, those with a role, by role
	priority   int64
}

// recount counts the members of a gang again, because some came or went, or what they hold has changed.
func (c *census) recount(g *gang) { g.tally = c.count(g) }

// change counts a candidate whose version is about to change.
func (t *tally) change() { t.changing++ }

func (c *census) count(g *gang) (t tally) {
	t.again = g.search.rejected.goesOn(c.now, t.again)
	for _, p := range g.members {
		if p.Finished {
			if c.uncount(p); !p.End.Succeeded {
				t.failed++
			} else if p.Node != "" && !p.boundAlone() {
				t.succeeded++
			}
			continue
		}
		if t.unfinished++; t.unfinished == 1 || p.Priority > t.priority {
			t.priority = p.Priority
		}
		if p.few != nil {
			t.again = p.few.rejected.goesOn(c.now, t.again)
		}
		switch {
		case p.isBound() && p.isElsewhere():
			c.countElsewhere(g, p, &t)
			continue
		case p.isBound():
			if t.bound++; g.lives(p) {
				t.alive++
				t.place(p)
			}
			switch c.judgeForeign(p); {
			case p.isLost(c.clusterNodes[p.Node], c.now, &t.again):
				t.lost++
			case p.burden != ofOthers:
				t.chargeable++
			}
			continue
		case p.candidate():
			t.candidates++
			if p.charged {
				t.charged++
			}
			if p.changing() {
				t.changing++
			}
			if len(p.Scarce) > 0 {
				t.scarce++
			}
		case p.refusal() != nil:
			if t.refusals++; p.Refused == nil {
				t.rejected.orBefore(p, p.refusal())
			}
			t.refused.orBefore(p, p.refusal())
		case p.Gated:
			t.gated++
		case p.withheld:
			t.withheld++
		}
		switch p.stage {
		case held:
			t.held++
		case promised:
			t.promised++
		case committed:
			t.committed++
		}
	}
	g.countSucceeded(&t)
	if g.group != nil && g.group.Class != "" {
		// Admission has checked the priority of the pods, and nobody that of a PodGroup: its class may only lower the gang's.
		if v, exists := c.priorities[g.group.Class]; exists {
			t.priority = min(t.priority, v)
		}
	}
	return t
}

// countElsewhere counts a pod for which another gang is charged. A gang that is evicted asks for none of these.
func (c *census) countElsewhere(g *gang, p *pod, t *tally) {
	t.elsewhere++
	if g.state == evicting && p.others.asks() {
		p.othersHave(c.now, c.cfg.AskAgain, c.cfg.ResendEvery)
	}
	if g.state != evicting {
		t.again = p.others.mayHave(c.now, t.again)
	}
	if c.judgeForeign(p); p.isChargeable() {
		t.chargeable++
	}
}

// postponeOthers has a gang that gives its reservation back not ask any more for pods that another one is charged for.
func (c *census) postponeOthers(g *gang) {
	if g.tally.elsewhere == 0 {
		return
	}
	for _, p := range g.members {
		if p.isBound() && p.isElsewhere() && p.others.asks() {
			p.othersHave(c.now, c.cfg.AskAgain, c.cfg.ResendEvery)
		}
	}
	c.recount(g)
}

// choose returns the pods that, with those placed already, make the gang's minimum.
func (g *gang) choose() []*pod {
	return g.foremost(g.candidates(), g.minCount()-g.tally.placed, false)
}

// narrowFirst is how much older a gang counts for each step by which its pods are more particular about nodes
// (api.Class.Narrow). The API server's times are in seconds, and this is less than one: of those that came in the same
// second, who has the fewest nodes goes first, and others go elsewhere; and nobody passes who came before.
const narrowFirst = 499 * time.Millisecond

// completeSince returns when the gang became complete, from its objects, so that an heir finds the same age. An evicted
// gang keeps its age: the pods that it has now were made since, so what an heir finds is the age of its PodGroup.
func (c *common) completeSince(g *gang) time.Time {
	var at time.Time
	narrow := 0
	if g.group != nil {
		if at = g.group.Created; !at.IsZero() && shows(g.group.Status, v1beta1.ConditionDisruptionTarget) {
			return at
		}
	}
	for _, p := range g.choose() {
		if p.Created.After(at) {
			at = p.Created
		}
		narrow = max(narrow, p.Class.Narrow())
	}
	if at.IsZero() || at.After(c.now) {
		return c.now
	}
	return at.Add(-time.Duration(narrow) * narrowFirst)
}

// ids returns what names pods in a reservation, nothing for a gang of one.
func ids(g *gang, pods []*pod) []uint64 {
	if g.isPod() || len(pods) == 0 {
		return nil
	}
	out := make([]uint64, 0, len(pods))
	for _, p := range pods {
		out = append(out, p.id)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// candidates returns the pods that may be placed, in order, without those that are set aside if enough others are
// left for the minimum.
func (g *gang) candidates() []*pod {
	pods := g.pick((*pod).candidate)
	if len(g.search.aside.pods) == 0 {
		return pods
	}
	others := slices.DeleteFunc(slices.Clone(pods), func(p *pod) bool { return g.search.aside.pods[p.UID] })
	if len(others) < g.stillNeeds() {
		return pods
	}
	return others
}

// stillNeeds is how many pods have to be placed at once: what the minimum lacks, or any.
func (g *gang) stillNeeds() int {
	if g.started {
		return 1
	}
	return max(1, g.minCount()-g.tally.placed)
}
