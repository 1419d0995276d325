package home

import (
	"basalt.dev/basalt/api"
)

// Which shard is asked for pods that prefer some nodes, or that taints of some nodes would rather not have. Each shard
// chooses well among its own nodes. But the shard that is asked first may have only second-best nodes left while
// another has better ones. So a round has a first part for each such class: it asks the shards whose best node with
// room is of the highest grade, as far as summaries and refusals tell, and only for nodes of that grade (as the
// HoldRequest). A shard of which nothing is known is taken to have the best; its refusal says what it has. Every shard
// is asked once at most, or a few times if the grade changes with each pod that is placed (lean.go). What is still
// missing is asked for as for any pod, at shards with better nodes first. Pods without wishes are concerned if a shard
// has said that it has only tainted nodes for them.
//
// What this costs is a message to each shard for a class that nobody was asked for lately. What it does not do: a gang whose pods want more
// nodes of a grade than one shard has takes what it gets at the shards asked last, whatever the grade.

// gradeKey is a class at a shard, asked for once in a round.
type gradeKey struct {
	shard api.Incarnation
	class uint64 // hash
}

// graded reports whether a class is to be asked for by grade.
func (c *shards) graded(class *api.Class) bool {
	if len(class.Wishes)+len(class.Leanings) > 0 {
		return true
	}
	for _, m := range c.table.Members {
		if s := c.summaries[m.Incarnation]; s != nil && len(s.grades) > 0 {
			if grade, known := s.grades[class.Hash()]; known && grade < api.BestGrade && grade != api.NoGrade {
				return true
			}
		}
	}
	return false
}

// highest returns the highest grade that a shard is known to have for one of some classes.
func (c *shards) highest(r *round, s *summary, shard api.Incarnation, kinds []kind) (grade uint32) {
	for _, k := range kinds[:min(len(kinds), gradedKinds)] {
		if c.graded(k.class) {
			grade = max(grade, r.gradeAt(s, shard, k.class))
		}
	}
	return grade
}

// gradedTimes is how often a round asks a shard for pods of a class by grade.
func gradedTimes(class *api.Class) int {
	if len(class.Leanings) > 0 {
		return leanedTimes
	}
	return 1
}

// gradedKinds is how many classes of a gang are asked for by grade.
const gradedKinds = 8

// nextByGrade returns the shard to ask next for nodes of the highest grade, and for which pods.
func (c *shards) nextByGrade(r *round, kinds []kind) (next option, found bool) {
	for i, k := range kinds[:min(len(kinds), gradedKinds)] {
		if !c.graded(k.class) {
			continue
		}
		if len(k.class.Leanings) > 0 {
			c.forgetLeaned(r, k.class)
		}
		top := uint32(api.NoGrade)
		for _, m := range c.table.Members {
			if s := c.summaries[m.Incarnation]; s != nil && c.owned[m.Incarnation] > 0 {
				top = max(top, r.gradeAt(s, m.Incarnation, k.class))
			}
		}
		if top == api.NoGrade { // no shard is known to have such a node; they are asked without a grade, each once
			continue
		}
		for _, m := range c.table.Members {
			o := option{shard: m.Incarnation, class: 2, least: top, of: k.class.Hash()}
			s := c.summaries[o.shard]
			if s == nil || c.owned[o.shard] == 0 || r.graded[gradeKey{o.shard, o.of}] >= gradedTimes(k.class) || r.gradeAt(s, o.shard, k.class) != top {
				continue
			}
			if o.shard == c.cfg.Self {
				o.class = 1
			}
			if len(k.class.Leanings) > 0 {
				o.least = c.nextBest(r, k.class, o.shard)
			}
			o.pods, o.room = s.share(kinds[i:i+1], o.shard == c.cfg.Self, false), fits(s.left, kinds[i:i+1])
			if len(o.pods) > 0 && (!found || o.before(next)) {
				next, found = o, true
			}
		}
		if found {
			return next, true
		}
	}
	return next, false
}

// began notes that a round asks a shard.
func (r *round) began(o option) {
	if r.least = o.least; r.least == 0 {
		r.doneWith(o.shard, !r.scatters || r.asked[o.shard])
		r.ask(o.shard)
		return
	}
	if r.graded == nil {
		r.graded = map[gradeKey]int{}
	}
	r.graded[gradeKey{o.shard, o.of}]++
}
