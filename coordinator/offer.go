package coordinator

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Who may be taken. A mandate offers the gangs that may go by the rules of reclaim.go, in the order in which they should: those of the nearest
// queues first, of these the ones most above their thresholds, and in a queue the lowest priority and the newest. It offers more than are needed,
// for what they free may be where the gang cannot use it.

const (
	candidatesAtMost = 4096 // in an offer
	lookedAtMost     = 8192 // gangs that are looked at for one
	plentyGangs      = 64   // candidates that may be enough
)

// offer is who may be taken for an ask, in order.
type offer struct {
	found  *found
	gangs  []*candidate
	need   int     // so many of them would be taken if all had room where it is needed
	enough bool    // all of them would free what is lacking
	sides  []*side // a parent before its children

	lacks []lack // that they free, if they are enough

	displacers map[identity]bool // not taken: those who displaced it
	displaced  bool              // some of those that were looked at are among them

	kind    offerKind // reclaimWide: also of queues from which it may take only once victims of a lower level are gone
	narrow  bool      // there would be such
	passed  int       // gangs at which the offer looked that was not wide
	looked  int       // gangs, to find them,
	each    int       // of each queue at most
	taken   bool      // some of those that were looked at make room for others already, or were offered to them
	freed   []int64   // by them, of each of what is lacking
	exempt  int       // how many of them may not be evicted,
	some    bool      // and that some may
	soonest time.Time // when the first may go of those that started too short a time ago, the zero time for none
}

// offerKind tells the offers to one gang apart. It gets the next one where no plan was found for one: candidates that
// have what it lacks may have it where none of its pods can go, or be more together than their queues may lose.
type offerKind uint8

const (
	reclaimNear offerKind = iota + 1
	reclaimWide
	preempting
)

// first returns those that would be taken if all had room where it is needed.
func (s *offer) first() []*candidate { return s.gangs[:s.need] }

// candidate is a gang that may be taken. It repeats what decides, because a mandate is about thousands of gangs that lie scattered in memory:
// each is looked at once.
type candidate struct {
	gang     *gang
	ref      *wire.GangRef
	side     *side
	amounts  api.Resources // that it would free
	priority int64
	granted  int64
	overran  bool // it runs past its limit
	uid      string
	attempt  uint64
	spare    int
}

// found is the memory of an offer's candidates, which the next offer uses again.
type found struct {
	all   []candidate // never changed, so a pointer into it stays good when it grows
	order []*candidate
}

// add returns a gang with a reservation as a candidate.
func (f *found) add(now time.Time, g *gang, d *side, h holding) {
	f.all = append(f.all, candidate{g, g.ref, d, h.amounts, h.priority,
		g.res.granted, g.res.overran(now), g.key.uid, g.res.attempt, g.res.offers(now)})
	f.order = append(f.order, &f.all[len(f.all)-1])
}

// clear forgets what was found, and the gangs with it.
func (f *found) clear() {
	clear(f.all)
	clear(f.order)
	f.all, f.order = f.all[:0], f.order[:0]
}

// side is a queue that would lose something.
type side struct {
	queue    *queue
	parent   *side
	number   int // -1 for the queue of a preemption, which is none of the mandate's sides
	children sides
	gangs    []*candidate  // of a leaf, the first to go first
	judged   api.Resources // of its threshold
	fair     api.Resources // likewise of its fair share, where it has one and that is not the threshold
	offered  sums          // what others would take by their mandates
	freed    sums          // what this one would
	share    int64         // over
	borrowed bool          // by all of them

	standings []standingOf   // of its gangs in the mandate
	amounts   api.Resources  // of the last of these,
	wire      []*wire.Amount // and the same for the mandate
}

// standingOf is the number by which a mandate names all gangs of a queue and a priority that run past their limits, or
// all that do not.
type standingOf struct {
	priority int64
	overran  bool
	number   uint32
}

// sides is a heap of sides, first the one that is most above its threshold.
type sides []*side

func (h sides) Len() int { return len(h) }
func (h sides) Less(i, j int) bool {
	return h[i].share > h[j].share || h[i].share == h[j].share && h[i].number < h[j].number
}
func (h sides) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *sides) Push(x any)   { *h = append(*h, x.(*side)) }
func (h *sides) Pop() any     { panic("sides stay, with nothing to give") }

// plenty reports whether the offer is large enough to choose from: it would free several times what is lacking.
func (s *offer) plenty(lacks []lack) bool {
	if len(s.gangs) < plentyGangs {
		return false
	}
	for n, l := range lacks {
		if l.short <= 0 || s.freed[n] < api.AddSat(l.short, 3*min(l.short, math.MaxInt64/4)) {
			return false
		}
	}
	return true
}

// admits reports whether a gang with a reservation may go now, and notes when it may if it has not run for long enough.
func (s *offer) admits(now time.Time, g *gang, least time.Duration) bool {
	switch g.res.spares(now, least) {
	case "":
		if len(s.displacers) == 0 || !s.displacers[g.identity()] {
			return true
		}
		s.displaced = true
	case claimedAlready:
		s.taken = true
	case notPreemptible:
		s.exempt++
	case tooYoung:
		if at := time.UnixMilli(g.res.protectedUntil(least)); s.soonest.IsZero() || at.Before(s.soonest) {
			s.soonest = at
		}
	}
	return false
}

// tooLittle says that an offer does not have what an ask lacks.
func (s *offer) tooLittle() string {
	const exempt = "because of preemptible: false or of pods without a controller"
	switch {
	case s.exempt == 0:
		return "the gangs that may be evicted do not have what it lacks"
	case !s.some:
		return "none of the gangs that have what it lacks may be evicted, " + exempt
	}
	return fmt.Sprintf("the gangs that may be evicted do not have what it lacks; those that may not be, %s: %d", exempt, s.exempt)
}

// offerFor returns who may be taken for an ask, by the offers that come after the one that was tried in vain: of other
// queues, or if these do not have what it lacks, of its own. The offer is valid until the next one in the same memory.
func (l *ledger) offerFor(now time.Time, g *gang, a ask, lacks []lack, tried offerKind, f *found) (wire.Rule, *offer) {
	f.clear()
	displacers := l.displacedBy(g)
	empty := offer{found: f, displacers: displacers, lacks: lacks}
	first := empty
	first.kind = reclaimNear
	s := reclaimable(now, a, &first)
	if s.narrow && (!s.enough || tried >= reclaimNear) {
		f.clear()
		wide := empty
		wide.kind, wide.passed = reclaimWide, s.looked
		s = reclaimable(now, a, &wide)
	}
	if s.enough && s.kind > tried {
		return wire.Rule_RULE_RECLAIM, s
	}
	others, some := *s, len(s.gangs) > 0
	f.clear()
	empty.kind = preempting
	s = preemptible(now, a, lacks, &empty)
	if s.soonest.IsZero() || !others.soonest.IsZero() && others.soonest.Before(s.soonest) {
		s.soonest = others.soonest
	}
	s.looked, s.exempt, s.some = s.looked+others.looked, s.exempt+others.exempt, some || len(s.gangs) > 0
	s.taken, s.displaced = s.taken || others.taken, s.displaced || others.displaced
	s.enough = s.cover(lacks)
	return wire.Rule_RULE_PREEMPT, s
}

// cover reports whether all of them would free what is lacking.
func (s *offer) cover(lacks []lack) bool {
	for _, l := range lacks {
		var freed wide
		for i := range s.gangs {
			if v := s.gangs[i]; api.Under(v.side.queue.path, l.at.path) {
				freed = freed.plus(v.amounts.Value(l.resource))
			}
		}
		if freed.amount() < l.short {
			return false
		}
	}
	return len(s.gangs) > 0 && len(lacks) > 0
}

// preemptible returns the gangs that may be preempted for an ask.
func preemptible(now time.Time, a ask, lacks []lack, s *offer) *offer {
	if !a.mayPreemptOthers() {
		return s
	}
	var borrows []api.Resources // thresholds of queues where it borrows all that it uses: it puts out those who do, too
	for q := a.queue; q.parent != nil && len(a.demand) > 0; q = q.parent {
		if t := q.threshold(true); q.parent.reclaims() && !usesAny(t, a.demand) {
			borrows = append(borrows, t)
		}
	}
	d, least := &side{queue: a.queue, number: -1}, a.queue.minRuntime(wire.Rule_RULE_PREEMPT)
	for _, g := range newest(a.queue.members.reserved, lookedAtMost) {
		s.looked++
		h := g.holding()
		if s.taken = s.taken || g.offeredTo != nil; !a.mayPreempt(h, lacks) || g.offeredTo != nil || !s.admits(now, g, least) {
			continue
		}
		if slices.ContainsFunc(borrows, func(t api.Resources) bool { return usesAny(t, h.amounts) }) {
			continue
		}
		s.found.add(now, g, d, h)
	}
	s.gangs = s.found.order
	slices.SortFunc(s.gangs, goesFirst)
	s.gangs = s.gangs[:min(len(s.gangs), candidatesAtMost)]
	s.chooseFirst(lacks)
	return s
}

// chooseFirst notes how many of the gangs are enough for what is lacking.
func (s *offer) chooseFirst(lacks []lack) {
	short := slices.Clone(lacks)
	for i := range s.gangs {
		v, enough := s.gangs[i], true
		for n := range short {
			if api.Under(v.side.queue.path, short[n].at.path) {
				short[n].short -= max(0, v.amounts.Value(short[n].resource))
			}
			enough = enough && short[n].short <= 0
		}
		if s.need = i + 1; enough {
			return
		}
	}
}

// reclaimable returns the gangs of other queues that may be taken for an ask: those of the nearest queues first, of
// these the ones that are most above their thresholds, level by level. A wide offer goes on with queues from which
// the ask may take something once those that were found so far are gone; what they have to free for that is lacking,
// too.
func reclaimable(now time.Time, a ask, s *offer) *offer {
	lacks := s.lacks
	s.freed = make([]int64, len(lacks))
	for mine := a.queue; mine.parent != nil && s.looked < lookedAtMost; mine = mine.parent {
		fair, may := mine.mayTake(a)
		if !may {
			first := mine.freesFirst(a, lacks, s.cover)
			if len(first) == 0 {
				continue
			}
			if s.kind != reclaimWide {
				s.narrow = s.narrow || mine.besideLose(false) || mine.besideLose(true)
				continue
			}
			a, lacks = a.freeing(first), slices.Concat(lacks, first)
			fair, _ = mine.mayTake(a)
			s.lacks, s.freed = lacks, freedOf(s.gangs, lacks)
		}
		s.divide(mine, fair)
		var tops sides
		for _, other := range mine.parent.children {
			if other == mine {
				continue
			}
			if t := s.sidesOf(now, lacks, nil, other, other, fair); t != nil {
				tops = append(tops, t)
			}
		}
		heap.Init(&tops)
		for len(s.gangs) < candidatesAtMost && !s.plenty(lacks) {
			v := next(&tops)
			if v == nil {
				break
			}
			s.gangs = append(s.gangs, v)
			v.addTo(s.freed, lacks)
		}
	}
	s.chooseFirst(lacks)
	for _, d := range s.sides { // others would do as well, if these are not where room is needed, and what is surplus goes before all gangs
		plenty := s.plenty(lacks)
		for _, v := range d.gangs {
			if len(s.gangs) < candidatesAtMost && (!plenty || v.spare > 0) {
				s.gangs = append(s.gangs, v)
			}
		}
	}
	s.enough = s.cover(lacks)
	s.looked += s.passed
	return s
}

// addTo adds what a candidate would free of each of what is lacking.
func (v *candidate) addTo(freed []int64, lacks []lack) {
	for n, l := range lacks {
		if api.Under(v.side.queue.path, l.at.path) {
			freed[n] = api.AddSat(freed[n], max(0, v.amounts.Value(l.resource)))
		}
	}
}

func freedOf(gangs []*candidate, lacks []lack) []int64 {
	freed := make([]int64, len(lacks))
	for _, v := range gangs {
		v.addTo(freed, lacks)
	}
	return freed
}

// divide notes at how many gangs of each queue the offer looks that is beside one, or below such a queue. If they have too many together, it
// is at as many of each, and at all where there are fewer: the first queues in the order of their paths would use up the others' part.
func (s *offer) divide(mine *queue, fair bool) {
	left := lookedAtMost - s.looked
	if s.each = left; mine.parent.members.admitted-mine.members.admitted <= left {
		return
	}
	var counts []int
	var walk func(q *queue)
	walk = func(q *queue) {
		if q == mine || !q.mayLose(fair) {
			return
		}
		if n := len(q.members.reserved); n > 0 {
			counts = append(counts, n)
		}
		for _, child := range q.children {
			walk(child)
		}
	}
	for _, other := range mine.parent.children {
		walk(other)
	}
	slices.Sort(counts)
	for i, n := range counts {
		if each := left / (len(counts) - i); n > each {
			s.each = max(1, each)
			return
		}
		left -= n
	}
}

// newest returns so many of a queue's gangs, most of which got their quota later than the others.
func newest(reserved []*gang, most int) []*gang {
	return reserved[max(0, len(reserved)-max(0, most)):]
}

// sidesOf makes the side of a queue and those below it, nil if nothing can be taken there. The ask is entitled to take from other, which
// the queue is or is below.
func (s *offer) sidesOf(now time.Time, lacks []lack, parent *side, other, q *queue, fair bool) *side {
	if !q.mayLose(fair) || s.looked >= lookedAtMost {
		return nil
	}
	d := &side{queue: q, parent: parent, number: len(s.sides), judged: q.judgedBy(lacks, fair), borrowed: true}
	if !fair && q.byFairShare() {
		d.fair = q.judgedBy(lacks, true)
	}
	s.sides = append(s.sides, d)
	all := len(s.found.order)
	for _, child := range q.children {
		if t := s.sidesOf(now, lacks, d, other, child, fair); t != nil {
			d.children = append(d.children, t)
		}
	}
	least := q.minRuntime(wire.Rule_RULE_RECLAIM)
	var last api.Resources // gangs of a queue are often alike
	loses, from := false, len(s.found.order)
	for _, g := range newest(q.members.reserved, min(s.each, lookedAtMost-s.looked)) {
		s.looked++
		h := g.holding()
		if g.offeredTo != nil { // it counts as gone: else many mandates would have one queue lose more than it may
			s.taken = true
			for p := d; p != nil; p = p.parent {
				p.offered = add(p.offered, h.amounts)
			}
			continue
		}
		if last == nil || !slices.Equal(h.amounts, last) {
			last, loses = h.amounts, other.loses(h, lacks, fair)
		}
		if loses && s.admits(now, g, least) {
			s.found.add(now, g, d, h)
		}
	}
	d.gangs = s.found.order[from:]
	if len(d.gangs)+len(d.children) == 0 {
		s.sides = s.sides[:d.number]
		return nil
	}
	for _, v := range s.found.order[all:] { // also of those below: what a queue names is not borrowed there
		if usesAny(q.threshold(fair), v.amounts) {
			d.borrowed = false
			break
		}
	}
	slices.SortFunc(d.gangs, goesFirst)
	d.share = d.over()
	heap.Init(&d.children)
	return d
}

// next takes the next gang from the sides that are still above their thresholds.
func next(all *sides) *candidate {
	for len(*all) > 0 && (*all)[0].share >= 0 {
		best := (*all)[0]
		v := next(&best.children)
		if v == nil && len(best.gangs) > 0 {
			v, best.gangs = best.gangs[0], best.gangs[1:]
		}
		if v == nil {
			best.share = -1 // nothing more is taken here
		} else {
			best.freed = add(best.freed, v.amounts)
			best.share = best.over()
		}
		if heap.Fix(all, 0); v != nil {
			return v
		}
	}
	return nil
}

func add(s sums, amounts api.Resources) sums {
	for _, a := range amounts {
		at := s.at(a.Resource)
		*at = at.plus(a.Value)
	}
	return s
}

// judgedBy is the part of a queue's threshold that counts: what is lacking, if it names any of that.
func (q *queue) judgedBy(lacks []lack, fair bool) api.Resources {
	threshold := q.threshold(fair)
	lacking := slices.DeleteFunc(slices.Clone(threshold), func(t api.Amount) bool {
		return !slices.ContainsFunc(lacks, func(l lack) bool { return l.resource == t.Resource })
	})
	if len(lacking) > 0 {
		return lacking
	}
	return threshold
}

// has is what the queue will have once all mandates that were given are claims whose victims are gone.
func (d *side) has(resource string) wide {
	return d.queue.has(resource).sub(d.offered.get(resource))
}

// over is how much of its threshold a side would have, as a part of it, of the resource of which that is most; -1 if
// it is not above any. Who has more than its fair share comes first: it would lose that to others, anyway.
func (d *side) over() int64 {
	most := d.overBy(d.judged)
	if d.borrowed {
		most = weightless
	}
	if most >= 0 && d.overBy(d.fair) >= 0 {
		most = min(most, weightless-1) + weightless
	}
	return most
}

func (d *side) overBy(judged api.Resources) int64 {
	most := int64(-1)
	for _, t := range judged {
		if has := d.has(t.Resource).sub(d.freed.get(t.Resource)).amount(); has > t.Value {
			most = max(most, part(has, t.Value))
		}
	}
	return most
}

// fill writes an offer into a mandate.
func (s *offer) fill(a ask, rule wire.Rule, m *wire.Mandate) {
	for _, d := range s.sides {
		w := &wire.Side{Queue: d.queue.path, Borrowed: d.borrowed}
		if d.parent != nil {
			w.Parent = uint32(d.parent.number) + 1
		}
		for _, t := range d.judged {
			if above := d.has(t.Resource).plus(-t.Value).amount(); above > 0 {
				w.Above = append(w.Above, &wire.Amount{Resource: t.Resource, Value: above})
			}
		}
		for _, t := range d.queue.guarantee {
			if t.Value = d.queue.kept(t.Resource); t.Value > 0 {
				w.Spare = append(w.Spare, &wire.Amount{Resource: t.Resource, Value: d.has(t.Resource).plus(-t.Value).amount()})
			}
		}
		m.Sides = append(m.Sides, w)
	}
	block := make([]wire.Candidate, len(s.gangs))
	m.Candidates = make([]*wire.Candidate, len(s.gangs))
	standings := uint32(0)
	for i := range s.gangs {
		v, w := s.gangs[i], &block[i]
		d := v.side
		at := slices.IndexFunc(d.standings, func(o standingOf) bool {
			return o.priority == v.priority && o.overran == v.overran
		})
		if at < 0 {
			standings++
			at, d.standings = len(d.standings), append(d.standings, standingOf{v.priority, v.overran, standings})
		}
		if d.wire == nil || !slices.Equal(d.amounts, v.amounts) {
			d.amounts, d.wire = v.amounts, wire.FromResources(v.amounts)
		}
		w.Gang, w.Attempt, w.Demand = v.ref, v.attempt, d.wire
		w.Standing, w.Side = d.standings[at].number, uint32(d.number+1)
		if v.spare > 0 {
			w.Least = uint32(v.gang.res.least)
			for _, p := range v.gang.res.condemned {
				w.Condemned = append(w.Condemned, p.id)
			}
		}
		m.Candidates[i] = w
	}
	if rule == wire.Rule_RULE_PREEMPT {
		m.AtLeast = wire.FromResources(a.atLeast())
	}
}
