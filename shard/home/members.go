package home

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/api/wire"
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
	rejected   *pod      // the first of these whose Binding the API server rejects
	again      time.Time // when one of those is tried again, zero for never
	scarce     int       // candidates with claims that need volumes which are there already
	alive      int       // bound, and of the present life (gang.go)
	placed     int       // those, and of those that have succeeded the ones that count for it
	succeeded  int       // that had a node
	failed     int
	placedAs   map[string]int // of placed, those with a role, by role
	priority   int64
}

func (c *Core) count(g *gang) (t tally) {
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
		t.again = p.rejected.goesOn(c.now, t.again)
		switch {
		case p.isBound():
			if t.bound++; g.lives(p) {
				t.alive++
				t.place(p)
			}
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
		case p.Refused != nil || p.rejected.why != nil:
			t.refusals++
			if p.Refused == nil && (t.rejected == nil || comparePods(p, t.rejected) < 0) {
				t.rejected = p
			}
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
	g.countSucceeded(&t)
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
func (g *gang) choose() []*pod {
	return g.foremost(g.candidates(), g.minCount()-g.tally.placed, false)
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
	for _, p := range g.choose() {
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

// setAside sets pods aside for which keep does not hold, and reports whether others are left to be tried.
func (c *Core) setAside(g *gang, keep func(*pod) bool) bool {
	s := &g.search
	switch {
	case g.single, g.group == nil, len(g.group.Roles) > 0, g.group.Slice.Key != "":
		return false
	case g.charge.claimed(), g.claim != nil, c.now.Before(s.aside.again) && len(g.members) <= s.aside.of:
		return false
	}
	next, others, more := map[string]bool{}, 0, false
	for _, p := range g.members {
		switch {
		case !p.candidate():
		case s.aside.pods[p.UID]:
			next[p.UID] = true
		case !keep(p):
			next[p.UID], more = true, true
		case p.stage == nowhere || !g.started:
			others++
		}
	}
	if !more || others < g.stillNeeds() {
		s.aside = aside{again: c.now.Add(c.cfg.RetryRoom), of: len(g.members)}
		return false
	}
	s.aside.pods = next
	return true
}

// grows reports whether a Reserve is for one further pod of a gang that has started, and no other.
func (a *reserveCall) grows() bool { return a != nil && a.growth && a.started && len(a.pods) == 1 }

// triesFewer sets aside what makes a denied request larger than it has to be, and reports whether less is left to be
// asked for: of the resource that is short, or of the first that pods request where nothing is named.
func (c *Core) triesFewer(g *gang, a *reserveCall) bool {
	switch a.denied.GetReason() { // none if it is not denied
	case wire.DenyReason_DENY_QUOTA, wire.DenyReason_DENY_NEVER_FITS, wire.DenyReason_DENY_RESERVED_FOR_OLDER,
		wire.DenyReason_DENY_GUARANTEE, wire.DenyReason_DENY_SUPPLY, wire.DenyReason_DENY_UNPREEMPTIBLE:
	default:
		return false
	}
	if len(a.pods) == 0 {
		return false
	}
	size := func(p *pod) int64 {
		if r := a.denied.GetResource(); r != "" {
			return p.Class.Requests.Value(r)
		}
		return firstAmount(p.Class.Requests)
	}
	if g.started { // one growth at a time: whatever is smaller than what was denied
		least := slices.MinFunc(a.pods, func(a, b *pod) int { return cmp.Compare(size(a), size(b)) })
		return c.setAside(g, func(p *pod) bool { return size(p) < size(least) || p.isBound() })
	}
	pods := g.candidates()
	slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(size(a), size(b)) })
	pods = pods[:min(len(pods), g.stillNeeds())]
	smaller := int64(0)
	for _, p := range pods {
		smaller += size(p)
	}
	asked := int64(0)
	for _, p := range a.pods {
		asked += size(p)
	}
	return smaller < asked && c.setAside(g, func(p *pod) bool { return slices.Contains(pods, p) })
}

func firstAmount(r api.Resources) int64 {
	if len(r) == 0 {
		return 0
	}
	return r[0].Value
}

// unlike reports whether another order may do where one has failed.
func (g *gang) unlike() bool {
	var first *pod
	for _, p := range g.members {
		switch {
		case !p.charged || !p.candidate():
		case len(p.asked.Joins) > 0 || len(p.asked.Repels) > 0:
			return true
		case first == nil:
			first = p
		case p.asked != first.asked && p.asked.Key != first.asked.Key:
			return true
		}
	}
	return false
}

// nextOrder has the pods of a gang tried in another order when they are tried next: where they were to go, they may
// not go together.
func (g *gang) nextOrder() {
	if s := &g.search; !g.single && !g.started && g.unlike() {
		s.order++
	}
}
