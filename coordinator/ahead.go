package coordinator

import (
	"slices"
	"strings"
)

// Who goes before. What is granted to a gang that is asked about depends on those that have their turns before it:
// they take of the same room. So the tournament of lines.go is played as far as the gang, on sums that save puts
// back: whoever is next is judged, and charged if nothing is lacking. What nodes have no room for, and what is taken
// from others, is not played.

const (
	aheadAtMost = 64 // so many turns before the gang are played
	aheadShown  = 3
)

// game is a tournament that is played for one gang.
type game struct {
	core   *Core
	lists  map[*queue][]*request // what waits in a queue, in static order, from the one that is next on
	copied map[*queue]bool       // sums of which charges do not change what was saved
	ahead  []*gang               // that were charged
}

// inTurn returns the gangs that are granted what they ask for before a gang has its turn, and what the gang lacks
// then, with the words for it.
func (x *whatIf) inTurn(g *gang) (ahead []*gang, l *shortfall, message string) {
	defer x.core.save()()
	y := &game{core: x.core, lists: map[*queue][]*request{}, copied: map[*queue]bool{}}
	y.load(g.req.queue, g.req)
	for range aheadAtMost {
		r := x.core.tree.root.order.next
		if r == nil || r == g.req {
			break
		}
		if _, loaded := y.lists[r.queue]; !loaded { // what was next when somebody asked last is not all that waits
			y.load(r.queue, nil)
			continue
		}
		if x.core.judge(r, x.core.tree.path(r.queue)) == nil {
			y.charge(r)
		}
		y.lists[r.queue] = y.lists[r.queue][1:]
		y.place(r.queue)
	}
	if l = x.core.judge(g.req, x.core.tree.path(g.req.queue)); l != nil {
		message = l.message(g.req, x.core.text(g.req, l))
	}
	return y.ahead, l, message
}

// load lists what waits in a queue, with a request more that may not be among it.
func (y *game) load(q *queue, more *request) {
	var list []*request
	first := func() {
		slices.SortFunc(list, (*request).compare)
		list = list[:min(len(list), aheadAtMost+1)]
	}
	if q.order.classes != nil {
		q.order.classes.Ascend(func(a *demandClass) bool {
			if len(list) > aheadAtMost {
				if first(); len(list) > aheadAtMost && list[aheadAtMost].before(a.requests[0]) {
					return false
				}
			}
			list = append(list, a.requests[:min(len(a.requests), aheadAtMost+1)]...)
			return true
		})
	}
	if more != nil && !slices.Contains(list, more) {
		list = append(list, more)
	}
	first()
	y.lists[q] = list
	y.place(q)
}

// place has a queue, and those above it, stand with their next requests.
func (y *game) place(q *queue) {
	q.order.next = nil
	if list := y.lists[q]; len(list) > 0 {
		q.order.next = list[0]
	}
	for p := q; p.parent != nil; p = p.parent {
		if r := p.order.next; r != nil {
			p.order.stands = p.standing(r, r.delta)
		}
		up := p.parent
		up.order.next = nil
		var best standing
		for _, child := range up.children {
			if child.order.next != nil && (up.order.next == nil || child.order.stands.compare(best) < 0) {
				up.order.next, best = child.order.next, child.order.stands
			}
		}
	}
}

// charge lets a gang have what it asks for.
func (y *game) charge(r *request) {
	for p := r.queue; p != nil; p = p.parent {
		if !y.copied[p] {
			y.copied[p] = true
			p.charged, p.held, p.shifts = slices.Clone(p.charged), slices.Clone(p.held), slices.Clone(p.shifts)
		}
	}
	y.core.tree.charge(r.queue, r.delta)
	y.ahead = append(y.ahead, r.gang)
}

// hopeless adds gangs of a queue, and of those below, that wait for an edit: they are not next, and no other gang's
// end helps them.
func (x *whatIf) hopeless(q *queue) {
	q.walkWaiting(func(q *queue) {
		if q.order.classes == nil {
			return
		}
		q.order.classes.Ascend(func(a *demandClass) bool {
			if l := a.lastDenial(); l != nil && !l.waits() {
				x.show(a.requests[0].gang)
			}
			return len(x.gangs) < gangsShown
		})
	})
}

// byTree orders queues as a tree is printed: a queue before those below it, and root first.
func byTree(a, b *queue) int {
	switch {
	case a == b:
		return 0
	case a.parent == nil:
		return -1
	case b.parent == nil:
		return 1
	}
	return slices.Compare(strings.Split(a.path, "."), strings.Split(b.path, "."))
}
