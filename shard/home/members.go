package home

import (
	"maps"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
)

// tally counts the members of a gang; it is made anew whenever the gang is looked at.
type tally struct {
	candidates int // may be placed and are not bound
	bound      int // have a node and are not finished
	chargeable int // of them those to be charged
	held       int
	promised   int
	committed  int
	charged    int // candidates that the reservation counts
	unfinished int
	gated      int
	withheld   int
	changing   int  // candidates whose version is about to change
	refused    *pod // the first that cannot be placed as it is
	refusals   int
	scarce     int // candidates with claims that need volumes which are there already
	priority   int64
}

func (c *Core) count(g *gang) (t tally) {
	for _, p := range g.members {
		if p.Finished {
			c.uncount(p)
			continue
		}
		if t.unfinished++; t.unfinished == 1 || p.Priority > t.priority {
			t.priority = p.Priority
		}
		switch {
		case p.isBound():
			t.bound++
			if c.judgeForeign(p); p.chargeable {
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
		case p.Refused != nil:
			t.refusals++
			if t.refused == nil || comparePods(p, t.refused) < 0 {
				t.refused = p
			}
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
	if g.group != nil && g.group.Class != "" {
		// Admission has checked the priority of the pods, and nobody that of a PodGroup: its class may only lower the gang's.
		if v, exists := c.priorities[g.group.Class]; exists {
			t.priority = min(t.priority, v)
		}
	}
	return t
}

// pick returns the members for which keep holds, in order.
func (g *gang) pick(keep func(*pod) bool) []*pod {
	var out []*pod
	for _, p := range g.inOrder() {
		if keep(p) {
			out = append(out, p)
		}
	}
	return out
}

// inOrder returns the members in order. Sorting thousands for every look at a gang would take longer than everything else
// that is done for it.
func (g *gang) inOrder() []*pod {
	if g.order == nil {
		g.order = slices.SortedFunc(maps.Values(g.members), comparePods)
	}
	return g.order
}

// choose returns the pods that, with those placed already, make the gang's minimum.
func (c *Core) choose(g *gang) []*pod {
	return g.foremost(g.pick((*pod).candidate), g.minCount()-g.placed, false)
}

// completeSince returns when the gang became complete, from its objects, so that an heir finds the same age. An evicted gang keeps its age: the
// pods that it has now were made since, so what an heir finds is the age of its PodGroup.
func (c *Core) completeSince(g *gang) time.Time {
	var at time.Time
	if g.group != nil {
		if at = g.group.Created; !at.IsZero() && shows(g.group.Status, v1alpha1.ConditionDisruptionTarget) {
			return at
		}
	}
	for _, p := range c.choose(g) {
		if p.Created.After(at) {
			at = p.Created
		}
	}
	if at.IsZero() || at.After(c.now) {
		return c.now
	}
	return at
}

// ids returns what names pods in a reservation, nothing for a gang of one.
func ids(g *gang, pods []*pod) []uint64 {
	if g.single || len(pods) == 0 {
		return nil
	}
	out := make([]uint64, 0, len(pods))
	for _, p := range pods {
		out = append(out, p.id)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sum adds up what pods request.
func sum(pods []*pod) api.Resources {
	total, _ := sumBounded(pods)
	return total
}

// sumBounded is sum, and reports whether the pods request more than api.MaxGangResources resources: the sum is of the
// foremost of them then.
func sumBounded(pods []*pod) (total api.Resources, excess bool) {
	var index classIndex
	count := make([]int64, 0, fewClasses)
	for _, p := range pods {
		i, fresh := index.number(p.Class)
		if fresh {
			count = append(count, 0)
		}
		count[i]++
	}
	for i, class := range index.list {
		n := count[i]
		r := class.Requests
		if n > 1 {
			r = r.Clone()
			for i := range r {
				r[i].Value = api.MulSat(r[i].Value, n)
			}
		}
		if total = total.Add(r); len(total) > api.MaxGangResources {
			total, _ = total.Foremost(api.MaxGangResources, nil)
			excess = true
		}
	}
	return total, excess
}
