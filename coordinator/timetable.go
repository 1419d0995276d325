package coordinator

import (
	"math"
	"slices"

	"basalt.dev/basalt/api"
)

// timetable is what queues will have at times to come, by the ends that are known: the availability profile of
// conservative backfill (Mu'alem and Feitelson 2001), over a tree of quota. It starts with what is charged. First
// everybody leaves who has an end (leave); then somebody is given the first place (first) that it has, and has it
// (stay).
//
// Sums are those of held, as for a grant (over.go): what a subtree has of its guarantee, its ancestors keep already. So
// inside a guarantee nothing more is asked of them, and what leaves inside one frees nothing above it. What nodes have
// is asked once more, of all that is charged (supply.go). Users' limits, and what queues keep for gangs that have
// waited longer, are not asked, nor whether pods find room.
//
// Time is divided into slots, each a sixteenth longer than what is before it, and an end counts from the next slot
// on. So a queue has at most 216 steps, however many gangs run, and no end counts too early. And it has some only
// where somebody may ask, or where it has a guarantee: what leaves any other queue is counted at the first ancestor
// that does.
type timetable struct {
	root   *queue
	of     map[*queue]*profile
	all    profile      // what all gangs are charged, of what nodes have
	made   bool         // profiles are sums, and no steps any more
	latest [slots]int64 // ms from now: the last known end that counts from the slot on
}

// profile is what a queue holds from slot to slot.
type profile struct {
	queue *queue
	below []*profile // of its children
	lines []steps
}

// steps is what is held of a resource: before it is made, by how much more from a slot on.
type steps struct {
	resource string
	held     []wide
}

const (
	slots = 216
	never = slots // the slot from which on somebody is gone who has no end that is known
)

// slotStarts are the times, in ms from now, at which slots begin: the last one after 321 days.
var slotStarts = func() (at [slots]int64) {
	for i := 1; i < slots; i++ {
		at[i] = at[i-1] + max(lookAgainEvery.Milliseconds(), at[i-1]/16)
	}
	return at
}()

// slotAt returns the first slot that begins no earlier than so many ms from now.
func slotAt(ms int64) int {
	i, _ := slices.BinarySearch(slotStarts[:], ms)
	return i
}

// newTimetable makes one in which these queues may ask.
func newTimetable(root *queue, ask []*queue) *timetable {
	t := &timetable{root: root, of: map[*queue]*profile{}}
	t.profile(root)
	for _, q := range ask {
		t.profile(q)
	}
	root.walk(func(q *queue) {
		if len(q.guarantee) > 0 {
			t.profile(q)
		}
	})
	return t
}

// profile returns that of a queue, made if need be with those of its ancestors.
func (t *timetable) profile(q *queue) *profile {
	if p := t.of[q]; p != nil {
		return p
	}
	p := &profile{queue: q}
	t.of[q] = p
	if q.parent != nil {
		above := t.profile(q.parent)
		above.below = append(above.below, p)
	}
	return p
}

// line returns that of a resource.
func (p *profile) line(resource string) *steps {
	for i := range p.lines {
		if p.lines[i].resource == resource {
			return &p.lines[i]
		}
	}
	p.lines = append(p.lines, steps{resource, make([]wide, slots)})
	return &p.lines[len(p.lines)-1]
}

// leave has amounts that a queue is charged leave in so many ms.
func (t *timetable) leave(q *queue, amounts api.Resources, ms int64) {
	slot := slotAt(ms)
	if slot == never {
		return
	}
	t.latest[slot] = max(t.latest[slot], ms)
	p := t.of[q]
	for ; p == nil; p = t.of[q] {
		q = q.parent
	}
	for _, a := range amounts {
		if _, limited := q.effective.Get(a.Resource); limited {
			l := p.line(a.Resource)
			l.held[slot] = l.held[slot].plus(-a.Value)
		}
		if _, offered := t.root.gate.pool.Get(a.Resource); offered {
			l := t.all.line(a.Resource)
			l.held[slot] = l.held[slot].plus(-a.Value)
		}
	}
}

// make sums up what leaves.
func (t *timetable) make() {
	if t.made {
		return
	}
	t.made = true
	t.of[t.root].make()
	for i := range t.all.lines {
		l := &t.all.lines[i]
		l.sum(t.root.charged.get(l.resource))
	}
}

func (p *profile) make() {
	for _, c := range p.below {
		c.make()
		for i := range c.lines {
			p.line(c.lines[i].resource) // before p.lines are summed: it may be new
		}
	}
	for i := range p.lines {
		l := &p.lines[i]
		l.sum(p.queue.held.get(l.resource))
		for _, c := range p.below {
			guarantee := wide{}.plus(c.queue.guarantee.Value(l.resource))
			now := c.queue.held.get(l.resource).max(guarantee)
			for _, of := range c.lines {
				if of.resource != l.resource {
					continue
				}
				for k, held := range of.held {
					l.held[k] = l.held[k].add(held.max(guarantee)).sub(now)
				}
			}
		}
	}
}

// sum makes what is held out of by how much it becomes less.
func (l *steps) sum(now wide) {
	for k := range l.held {
		now = now.add(l.held[k])
		l.held[k] = now
	}
}

// held returns what is held of a resource in each slot.
func (t *timetable) held(p *profile, resource string) []wide {
	t.make()
	for i := range p.lines {
		if p.lines[i].resource == resource {
			return p.lines[i].held
		}
	}
	l := p.line(resource) // nothing of it leaves
	if p == &t.all {
		l.sum(t.root.charged.get(resource))
	} else {
		l.sum(p.queue.held.get(resource))
	}
	return l.held
}

// full notes in which slots a queue may not be charged so much more.
func (t *timetable) full(q *queue, of *tenant, more api.Resources) (out [slots]bool) {
	for _, d := range more {
		if d.Value <= 0 {
			continue
		}
		if limit, limited := t.root.gate.limit(d.Resource, of); limited {
			for k, held := range t.held(&t.all, d.Resource) {
				out[k] = out[k] || held.plus(d.Value).amount() > limit
			}
		}
		if _, limited := q.effective.Get(d.Resource); !limited {
			continue
		}
		var grows [slots]wide
		for k := range grows {
			grows[k] = grows[k].plus(d.Value)
		}
		for p := q; p != nil; p = p.parent {
			limit, limited := p.capability(d.Resource)
			guarantee := wide{}.plus(p.guarantee.Value(d.Resource))
			for k, held := range t.held(t.of[p], d.Resource) {
				after := held.add(grows[k])
				out[k] = out[k] || limited && grows[k].amount() > 0 && after.amount() > limit
				grows[k] = after.max(guarantee).sub(held.max(guarantee))
			}
		}
	}
	return out
}

// first returns the first slot from which on a queue that may ask may be charged so much more for so many ms,
// math.MaxInt64 for ever; never, if there is none.
func (t *timetable) first(q *queue, of *tenant, more api.Resources, ms int64) int {
	from, full := 0, t.full(q, of, more)
	for k := range slots {
		if k > from && slotStarts[k] >= api.AddSat(slotStarts[from], ms) {
			break
		}
		if full[k] {
			from = k + 1
		}
	}
	return from
}

// stay gives a place in a queue that may ask to amounts, for so many ms from a slot on.
func (t *timetable) stay(q *queue, amounts api.Resources, from int, ms int64) {
	to := never
	if ms != math.MaxInt64 {
		end := api.AddSat(slotStarts[from], ms)
		if to = slotAt(end); to < never {
			t.latest[to] = max(t.latest[to], api.AddSat(t.begins(from), ms))
		}
	}
	for _, d := range amounts {
		if _, offered := t.root.gate.pool.Get(d.Resource); offered {
			l := t.held(&t.all, d.Resource)
			for k := from; k < to; k++ {
				l[k] = l[k].plus(d.Value)
			}
		}
		if _, limited := q.effective.Get(d.Resource); !limited {
			continue
		}
		var grows [slots]wide
		for k := from; k < to; k++ {
			grows[k] = grows[k].plus(d.Value)
		}
		for p := q; p != nil; p = p.parent {
			l := t.held(t.of[p], d.Resource)
			guarantee := wide{}.plus(p.guarantee.Value(d.Resource))
			for k := from; k < to; k++ {
				held := l[k]
				l[k] = held.add(grows[k])
				grows[k] = l[k].max(guarantee).sub(held.max(guarantee))
			}
		}
	}
}

// begins returns when a slot begins, in ms from now: with the last end that it waits for, where that is known.
func (t *timetable) begins(slot int) int64 {
	if at := t.latest[slot]; at > 0 {
		return at
	}
	return slotStarts[slot]
}
