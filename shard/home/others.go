package home

import (
	"cmp"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Others of a gang. A gang needs as many pods as its minimum, and has more, or pods that differ: if one of those that
// came first finds no place, or is more than its queue may have, others may do. So pods that were tried in vain are
// set aside while enough others are left, and these are tried. When none are left, some are drawn of all, drawsAtOnce
// times. Then the first are asked for again, and wait; others are tried again after a pause that grows up to
// Config.RetryRoom, so that this costs a few requests in half a minute, and only where pods differ. Whoever was set
// aside comes later as a further pod.

// aside are the pods of a gang that are not tried now.
type aside struct {
	pods  map[string]bool
	again time.Time // before that, no further pods are set aside, unless it has more than
	of    int       // so many
	drawn int       // so often, others were drawn
}

// pauses has the pods that came first tried again after a pause, which grows as others are drawn in vain.
func (a *aside) pauses(c *common, of int) {
	pause := c.cfg.RetryRoom
	if a.drawn > 0 {
		pause = min(pause, c.cfg.BackoffMin<<min((a.drawn-1)/drawsAtOnce, 8))
	}
	*a = aside{again: c.now.Add(pause), of: of, drawn: a.drawn}
}

// set sets pods aside.
func (a *aside) set(pods map[string]bool) { a.pods = pods }

// setBut sets all pods aside but some, at once.
func (a *aside) setBut(all, but []*pod) {
	a.pods, a.again = map[string]bool{}, time.Time{}
	for _, p := range all {
		a.pods[p.UID] = true
	}
	for _, p := range but {
		delete(a.pods, p.UID)
	}
}

// draw counts a draw, and returns how many there were.
func (a *aside) draw() int {
	a.drawn++
	return a.drawn
}

// waitsForFirst reports whether it is the turn of the pods that came first.
func (c *common) waitsForFirst(g *gang) bool {
	a := &g.search.aside
	if !c.now.Before(a.again) || len(g.members) > a.of {
		return false
	}
	c.wakeAt(g, a.again)
	return true
}

// mayChoose reports whether any of a gang's pods will do for its minimum.
func mayChoose(g *gang) bool {
	return !g.isPod() && g.group != nil && len(g.group.Roles) == 0 && g.group.Slice.Key == "" &&
		!g.charge.claimed() && g.claim == nil
}

// triesOthers sets aside the pods that found no room, and those like them, and reports whether others are tried in
// their place.
func (c *Core) triesOthers(g *gang, missing []*pod) bool {
	found := map[*pod]bool{}
	for _, p := range g.members {
		found[p] = p.charged && p.candidate()
	}
	for _, p := range missing {
		found[p] = false
	}
	keep := func(p *pod) bool {
		like := func(m *pod) bool { return m.asked == p.asked || m.Class.Key == p.Class.Key }
		return found[p] || !slices.ContainsFunc(missing, like)
	}
	if c.waitsForFirst(g) || !c.setAside(g, keep) && !c.rules.drawOthers(g) {
		return false
	}
	if g.started {
		c.uncharge(g)
	} else {
		c.retreat(g, startOver)
	}
	return true
}

// The order in which the pods of a gang are tried. A round places them one after another, each where it fits best
// then. With pods that differ, or that are tied to one another, this may find no place for the last ones although
// there is one for all: a pod that others have to be beside goes where they do not fit, or small ones fill the only
// node for a large one. So after a round that failed, what it held is let go, and another order is tried at once, up
// to ordersAtOnce of them; then the gang sleeps, no longer than Config.BackoffMax while it keeps its reservation, and
// goes on with further orders. The second one is by size, the third by size with those first that are tied to others;
// all that follow are drawn, and any node that takes a pod will do then, not the best. Every other one of these
// scatters the pods over all shards and domains: else the first shard would get all that it takes. Each order costs as
// much as a round, and only gangs whose pods differ or are tied pay for it. One that has tried many tries one more each
// time that it wakes; and since what it lets go of looks like room that others left, it is not woken before its pause
// ends (sleep.go).

const (
	ordersAtOnce = 12
	ordersMany   = 8 * ordersAtOnce // some 20 s of searching, with the pauses between
	drawsAtOnce  = 16
	bySize       = 1
	bySizeTied   = 2
	firstDrawn   = 3
)

// scatters reports whether an order is one that goes to any shard, and to any domain that will do.
func (s *search) scatters() bool { return s.order >= firstDrawn && s.order%2 == 0 }

// reorders lets go of what a gang holds, and has its pods tried in another order, if that may help.
func (c *searchers) reorders(g *gang) bool {
	s := &g.search
	if g.isPod() || g.started || g.charge.claimed() || g.claim != nil {
		return false
	}
	if s.orders >= s.ordersNow() || c.now.Before(s.reorder) || !unlike(g, false) {
		return false
	}
	s.tryOrder()
	s.turnOrder()
	s.fails() // domains that failed may do for another order
	c.releaseHeld(g)
	c.mark(g)
	return true
}

// ordersNow is how many orders are tried before the gang sleeps again.
func (s *search) ordersNow() int {
	if s.order > ordersMany {
		return 1
	}
	return ordersAtOnce
}

// arrange sorts pods as they are to be tried.
func (g *gang) arrange(pods []*pod) {
	size := func(p *pod) int64 { return -firstAmount(p.Class.Requests) }
	tied := func(p *pod) int {
		if p.asked != nil && len(p.asked.Joins) > 0 {
			return 0
		}
		return 1
	}
	switch order := g.search.order; {
	case order == 0:
	case order == bySize:
		slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(size(a), size(b)) })
	case order == bySizeTied:
		slices.SortStableFunc(pods, func(a, b *pod) int {
			return cmp.Or(cmp.Compare(tied(a), tied(b)), cmp.Compare(size(a), size(b)))
		})
	default:
		slices.SortStableFunc(pods, g.search.drawnBefore)
	}
}

// drawnBefore is a drawn order: of the pods, or, in two of four, of their classes, for those of one role often belong
// together.
func (s *search) drawnBefore(a, b *pod) int {
	if s.order%4 < 2 {
		if d := cmp.Compare(drawnClass(a.Class, s.order), drawnClass(b.Class, s.order)); d != 0 {
			return d
		}
	}
	return cmp.Compare(drawn(a.UID, s.order), drawn(b.UID, s.order))
}

// inOrderOf returns some of all pods in the order of all: shards are chosen for them class by class.
func inOrderOf(all, some []*pod) []*pod {
	is := make(map[*pod]bool, len(some))
	for _, p := range some {
		is[p] = true
	}
	return slices.DeleteFunc(slices.Clone(all), func(p *pod) bool { return !is[p] })
}

// setAside sets pods aside for which keep does not hold, and reports whether others are left to be tried.
func (c *common) setAside(g *gang, keep func(*pod) bool) bool {
	s := &g.search
	if !mayChoose(g) || c.waitsForFirst(g) {
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
		s.aside.pauses(c, len(g.members))
		return false
	}
	s.aside.set(next)
	return true
}

// drawOthers sets all pods aside but as many as the minimum needs, drawn from all that some node may take, and reports
// whether these are to be tried: which pods find room together may depend on each of them.
func (c *rules) drawOthers(g *gang) bool {
	s := &g.search
	if g.started || g.tally.placed > 0 || !mayChoose(g) || !unlike(g, true) {
		return false
	}
	all, needs := g.pick((*pod).candidate), g.stillNeeds()
	for pool := slices.Clone(all); len(pool) > needs; {
		if s.aside.draw()%drawsAtOnce == 0 {
			break
		}
		s.drawOrder()
		slices.SortStableFunc(pool, s.drawnBefore)
		s.aside.setBut(all, pool[:needs])
		why, of, _ := c.neverFits(g)
		if why.None() {
			return true
		}
		if of != nil {
			pool = slices.DeleteFunc(pool, func(p *pod) bool { return p.Class.Key == of.Class.Key })
		}
	}
	s.aside.pauses(c.common, len(g.members))
	return false
}

// triesFewer sets aside what makes a denied request larger than it has to be, and reports whether less is left to be
// asked for: of the resource that is short, or of the first that pods request where nothing is named.
func (c *rules) triesFewer(g *gang, a *reserveCall) bool {
	switch a.denied.GetReason() { // none if it is not denied
	case wire.DenyReason_DENY_QUOTA, wire.DenyReason_DENY_NEVER_FITS, wire.DenyReason_DENY_RESERVED_FOR_OLDER,
		wire.DenyReason_DENY_GUARANTEE, wire.DenyReason_DENY_SUPPLY, wire.DenyReason_DENY_UNPREEMPTIBLE:
	default:
		return false
	}
	if len(a.pods) == 0 {
		return false
	}
	if g.started { // one growth at a time: whatever is smaller than what was denied
		size := sizeIn(a.denied.GetResource())
		least := slices.MinFunc(a.pods, func(a, b *pod) int { return cmp.Compare(size(a), size(b)) })
		return c.setAside(g, func(p *pod) bool { return size(p) < size(least) || p.isBound() })
	}
	if keep := smallest(g, a.pods, a.denied.GetResource()); keep != nil {
		return c.setAside(g, keep)
	}
	if smallestOf(g, g.pick((*pod).candidate), a.pods, a.denied.GetResource()) == nil {
		return false
	}
	return !c.waitsForFirst(g) && c.drawOthers(g) // these were drawn, as the smallest found no room
}

// smallest returns what keeps the smallest pods that make a gang's minimum, of those that are not set aside, if they
// request less of a resource together than some pods do, and nil if they do not.
func smallest(g *gang, than []*pod, resource string) (keep func(*pod) bool) {
	return smallestOf(g, g.candidates(), than, resource)
}

func smallestOf(g *gang, pods, than []*pod, resource string) (keep func(*pod) bool) {
	size := sizeIn(resource)
	slices.SortStableFunc(pods, func(a, b *pod) int { return cmp.Compare(size(a), size(b)) })
	pods = pods[:min(len(pods), g.stillNeeds())]
	least, asked := int64(0), int64(0)
	for _, p := range pods {
		least += size(p)
	}
	for _, p := range than {
		asked += size(p)
	}
	if least >= asked {
		return nil
	}
	return func(p *pod) bool { return slices.Contains(pods, p) }
}

// sizeIn returns how much pods request of a resource, or of the first that each requests where none is named.
func sizeIn(resource string) func(*pod) int64 {
	return func(p *pod) int64 {
		if resource != "" {
			return p.Class.Requests.Value(resource)
		}
		return firstAmount(p.Class.Requests)
	}
}

func firstAmount(r api.Resources) int64 {
	if len(r) == 0 {
		return 0
	}
	return r[0].Value
}

// unlike reports whether another order may do where one has failed, or, with all, others of its pods.
func unlike(g *gang, all bool) bool {
	var first *api.Class
	for _, p := range g.members {
		if !p.charged && !all || !p.candidate() {
			continue
		}
		class := cmp.Or(p.asked, p.Class)
		switch {
		case len(class.Joins) > 0 || len(class.Repels) > 0:
			return true
		case first == nil:
			first = class
		case class != first && class.Key != first.Key:
			return true
		}
	}
	return false
}

// nextOrder has the pods of a gang tried in another order when they are tried next: where they were to go, they may
// not go together.
func (g *gang) nextOrder() {
	if s := &g.search; !g.isPod() && !g.started && unlike(g, false) {
		s.turnOrder()
	}
}
