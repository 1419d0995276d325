package coordinator

import "slices"

// Whose turn it is: the first of those lines in which somebody is left who might be granted.

// next is the contest whose first class has the next turn, nil when nobody who is due can be granted: of the first of
// each line that somebody is left in who might be, the one that the rules put first.
func (t *tournament) next() *contest {
	t.openings = slices.DeleteFunc(t.openings, func(s *shortage) bool {
		s.open = s.suffices()
		return !s.open
	})
	firsts := t.firsts[:0]
	if n := t.newcomers.root.next(); n != nil {
		firsts = append(firsts, n)
	}
	for _, s := range t.openings {
		if n := s.line.root.next(); n != nil {
			firsts = append(firsts, n)
		}
	}
	t.firsts = firsts
	if len(firsts) == 0 {
		return nil
	}
	if len(firsts) > 1 {
		for i, n := range firsts {
			firsts[i] = t.earliest(n)
		}
	}
	return first(t.tree.root, firsts)
}

// earliest is the contest of the same queue, in a line that takes part, whose first class comes first in static order.
func (t *tournament) earliest(n *contest) *contest {
	for _, o := range n.queue.order.contests {
		takesPart := o.line == &t.newcomers ||
			slices.ContainsFunc(t.openings, func(s *shortage) bool { return o.line == &s.line })
		if takesPart && len(o.due) > 0 && !o.spent && o.due[0].first(n.due[0]) < 0 {
			n = o
		}
	}
	return n
}

// first is the one of some contests of a subtree that is the first in a tournament between them. All that are of one
// queue are the same. It reorders them.
func first(q *queue, of []*contest) *contest {
	if len(of) == 1 {
		return of[0]
	}
	for _, n := range of { // a queue that has requests and children: see contest.next
		if n.queue == q {
			return n
		}
	}
	var best *contest
	var stands standing
	for len(of) > 0 {
		child, same := of[0].queue.ancestor(q.level+1), 0
		for i, n := range of {
			if n.queue.ancestor(q.level+1) == child {
				of[i], of[same] = of[same], of[i]
				same++
			}
		}
		n := first(child, of[:same])
		r := n.due[0].requests[0]
		if s := child.standing(r, r.delta); best == nil || s.compare(stands) < 0 {
			best, stands = n, s
		}
		of = of[same:]
	}
	return best
}
