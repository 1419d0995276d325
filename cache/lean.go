package cache

import (
	"math"
	"math/bits"

	"basalt.dev/basalt/api"
)

// Leanings: what makes nodes better for a class by the pods that are around them. The caller counts those (package topology), for they change
// with each pod, so no bit of the index says it. The nodes that a class fits are looked at in the order of the policy until one is as good
// as any in the cluster; of nodes that are equally good, the first is taken. If none is, all that were looked at are compared. In a domain
// (PlaceIn) all its nodes are looked at.
//
// Wishes and leanings are added up as kube-scheduler does it: each of its plugins gives 0 to 100, normalised over the nodes that were looked
// at, which counts two or three times. Beyond maxLooks nodes a search ends with the best that it has seen. kube-scheduler does not look at
// all nodes of large clusters either.

const (
	maxLooks     = 8192
	nearWeight   = 2 // of kube-scheduler's default profile
	crowdWeight  = 2
	crowdUnit    = 4 // about one to three pods
	bestOfWishes = maxScore * (affinityWeight + taintWeight)
	whole        = 1 << 28 // the share of the best
)

// Leaning says how good nodes are for a class by the pods around them.
type Leaning interface {
	// At returns what terms of affinity weigh on a node, the more the better, and how crowded its domains are, the less the better; -1 is a
	// node that lacks the label of some domain.
	At(number int32) (near, crowd int64)
	// Best returns bounds of both over all nodes of the cluster, and Worst the other bounds.
	Best() (near, crowd int64)
	Worst() (near, crowd int64)
	// Has reports whether At says anything of each.
	Has() (near, crowd bool)
}

// stand is how good a node is: equally good ones have the same.
type stand struct{ wish, near, crowd int64 }

// leanSearch is a search for the best node by wishes and leanings.
type leanSearch struct {
	c           *Cache
	cl          *class
	leaning     Leaning
	near, crowd bool
	wish        *wish // nil where all nodes are equal
	pinned      bool  // wish has no kinds
	unordered   bool  // slots are looked at in any order, not that of the policy
	best, worst stand
	looks       int
	firsts      map[stand]int32 // first slot of each, where more than one of the three counts
	last        stand
	top         int32 // first slot of the best, where one counts
	topStand    stand
	value       int64
}

// PlaceLeaning is PlaceWithin for a class that has leanings; among nodes whose grade is not below one. The grade of the best node that it saw
// is returned in any case.
func (c *Cache) PlaceLeaning(class *api.Class, least uint32, rank api.Rank, allow func(number int32) bool, l Leaning) (nodeName string, victims []string, grade uint32, ok bool) {
	cl := c.plan(class)
	s, grade := c.bestLeaning(cl, allow, l)
	switch {
	case s >= 0 && grade >= least:
		c.fetch(s, c.pods.next())
		c.chosen = s
		return c.names[s], nil, grade, true
	case s < 0 && least == 0:
		nodeName, victims, ok = c.takeHolds(cl, rank, allow)
	}
	return nodeName, victims, grade, ok
}

// bestLeaning returns the best slot that a class fits, and its grade; -1 if there is none.
func (c *Cache) bestLeaning(cl *class, allow func(number int32) bool, l Leaning) (int32, uint32) {
	q := c.searchLeaning(cl, l)
	if q.pinned {
		for _, s := range c.candidates(cl.set.pins) {
			if what, _ := c.obstacle(cl, s, c.verdict(cl, s)); what == Nothing && (allow == nil || allow(c.bySlot[s].number)) {
				q.look(s)
			}
		}
	} else {
		c.firstFitting(cl, func(s int32) bool {
			return (allow == nil || allow(c.bySlot[s].number)) && q.look(s) || q.looks > maxLooks
		})
	}
	return q.choose()
}

// searchLeaning begins a search, in which slots are looked at in the order of the policy unless the class names its nodes.
func (c *Cache) searchLeaning(cl *class, l Leaning) *leanSearch {
	q := &leanSearch{c: c, cl: cl, leaning: l, top: -1, last: stand{-1, -1, -1}}
	q.near, q.crowd = l.Has()
	q.best.near, q.best.crowd = l.Best()
	q.worst.near, q.worst.crowd = l.Worst()
	counts := int(truth(q.near) + truth(q.crowd))
	q.pinned = cl.set.pins != nil
	q.unordered = q.pinned
	if (cl.wishful || c.reluctant > 0) && cl.unreadable == "" {
		if q.pinned {
			q.wish, counts = c.newWish(cl.set, cl.api.Wishes), counts+1
		} else if w := c.wishOf(cl); len(w.scores) > 0 {
			q.wish, q.best.wish = w, w.scores[0]
			counts += int(truth(len(w.scores) > 1))
		}
	}
	if counts > 1 {
		q.firsts = map[stand]int32{}
	}
	return q
}

func truth(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// look takes a slot that the class fits, and reports whether none can be better.
func (q *leanSearch) look(s int32) bool {
	q.looks++
	at := stand{}
	at.near, at.crowd = q.leaning.At(q.c.bySlot[s].number)
	switch {
	case q.wish == nil:
	case q.pinned:
		at.wish = int64(q.wish.alone(q.wish.likes(q.c.bySlot[s].object))) - api.LeastGrade
	default:
		at.wish = q.wish.kinds[q.wish.kind[s]].score
	}
	if q.firsts == nil {
		value := at.wish + at.near
		if q.crowd {
			if value = -at.crowd; at.crowd < 0 {
				value = math.MinInt64
			}
		}
		if q.top < 0 || value > q.value || q.unordered && value == q.value && q.c.keyOf(s) < q.c.keyOf(q.top) {
			q.top, q.topStand, q.value = s, at, value
		}
	} else if at != q.last {
		if first, known := q.firsts[at]; !known || q.unordered && q.c.keyOf(s) < q.c.keyOf(first) {
			q.firsts[at] = s
		}
		if q.last = at; q.unordered {
			q.last = stand{-1, -1, -1}
		}
	}
	return at == q.best && !q.unordered
}

// choose returns the first of the best slots that were looked at.
func (q *leanSearch) choose() (int32, uint32) {
	if q.firsts == nil {
		if q.top < 0 {
			return -1, api.NoGrade
		}
		return q.top, q.grade(q.topStand)
	}
	var least, most stand
	some := false
	for at := range q.firsts { // in any order
		if !some {
			least, most = at, at
		}
		some = true
		least.near, most.near = min(least.near, at.near), max(most.near, at.near)
		if at.crowd >= 0 {
			if least.crowd < 0 {
				least.crowd = at.crowd
			}
			least.crowd, most.crowd = min(least.crowd, at.crowd), max(most.crowd, at.crowd)
		}
	}
	best, top, at := int32(-1), int64(0), stand{}
	for k, s := range q.firsts { // in any order: no two are the same slot
		if v := q.score(k, least, most); best < 0 || v > top || v == top && q.c.keyOf(s) < q.c.keyOf(best) {
			best, top, at = s, v, k
		}
	}
	if best < 0 {
		return -1, api.NoGrade
	}
	return best, q.grade(at)
}

// score is kube-scheduler's sum of the plugins, normalised over nodes with the least and the most. What terms weigh is below 1 << 44 (package
// topology), so that maxScore times that fits. kube-scheduler divides floats, which makes some whole percentages one point less.
func (q *leanSearch) score(at, least, most stand) int64 {
	sum := at.wish
	if q.near && most.near > least.near {
		sum += nearWeight * (maxScore * (at.near - least.near) / (most.near - least.near))
	}
	if q.crowd && at.crowd >= 0 {
		if most.crowd > 0 {
			sum += crowdWeight * (maxScore * (most.crowd + least.crowd - at.crowd) / most.crowd)
		} else {
			sum += crowdWeight * maxScore
		}
	}
	return sum
}

// grade compares with all nodes of the cluster, so that grades of different shards can be compared. Where one kind of leaning counts, it says only
// by how much a node is worse than the best: the worst one changes with each pod that is placed, and with it what shards said a moment ago.
func (q *leanSearch) grade(at stand) uint32 {
	switch {
	case q.wish != nil || q.near && q.crowd:
	case q.near:
		return gradeShort(max(0, q.best.near-at.near), maxScore)
	case q.crowd && at.crowd >= 0:
		return gradeShort(max(0, at.crowd-q.best.crowd), crowdUnit)
	}
	var has, of int64
	part := func(weight, share int64) {
		has, of = has+weight*share, of+weight*whole
	}
	if q.wish != nil {
		part(q.wish.most(), shareOf(at.wish, q.wish.most()))
	}
	if q.near {
		share := int64(whole)
		if at.near < q.best.near && q.best.near > q.worst.near {
			share = shareOf(at.near-q.worst.near, q.best.near-q.worst.near)
		}
		part(nearWeight*maxScore, share)
	}
	if q.crowd {
		share := int64(whole)
		if at.crowd < 0 {
			share = 0
		} else if at.crowd > q.best.crowd && q.worst.crowd > 0 {
			share = shareOf(q.worst.crowd+q.best.crowd-at.crowd, q.worst.crowd)
		}
		part(crowdWeight*maxScore, share)
	}
	if has >= of {
		return api.BestLeaning
	}
	high, low := bits.Mul64(api.BestLeaning-api.LeastGrade, uint64(has))
	share, _ := bits.Div64(high, low, uint64(of))
	return uint32(api.LeastGrade + share)
}

// gradeShort is the grade of a node that is so much worse than the best: half of the best for one unit, a third for two.
func gradeShort(short, unit int64) uint32 {
	if short == 0 {
		return api.BestLeaning
	}
	return uint32(api.LeastGrade + (api.BestLeaning-api.LeastGrade)*shareOf(unit, unit+short)/whole)
}

// shareOf returns part/all, rounded down, from 0 to whole. all is positive.
func shareOf(part, all int64) int64 {
	switch {
	case part <= 0:
		return 0
	case part >= all:
		return whole
	}
	high, low := bits.Mul64(uint64(part), whole)
	share, _ := bits.Div64(high, low, uint64(all))
	return int64(share)
}
