package home

import (
	"maps"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Which shard is asked for pods that prefer some pods around them, or none: those are asked for by grade, too (wishes.go). For them a grade
// compares with all nodes of the cluster, and the best one there may be anywhere is api.BestLeaning: the shard of this process is asked for
// that first, and mostly has it. Only if it has none, the others are asked.
//
// Which grade a shard has changes with each pod, so summaries do not say it. What a refusal says counts for its round, and is remembered for a
// few more pods: where no shard has the best, as when a zone is full, not every pod has to ask all of them.

// Pods of a Deployment come at once, and each hears the same of all shards. If all of them then went to the best shard, its nodes would be crowded
// while others had few. So a shard is asked again only for nodes that are no worse than those of the others, and refuses the pods for which it has
// no such node any more. A pod that is refused a few times pauses while others are placed.

const (
	leanedTimes  = 3 // a round asks a shard so often for such nodes,
	leanedRounds = 8 // and so many rounds end so before a pod takes what there is
	leanedPause  = 30 * time.Millisecond
)

// overtaken reports whether others took the nodes that were best for a single pod, each time that it asked.
func (g *gang) overtaken(r *round, kinds []kind) bool {
	if g.search.overtaken >= leanedRounds || g.alone() == nil || len(kinds[0].class.Leanings) == 0 {
		return false
	}
	for _, n := range r.graded {
		if n >= leanedTimes {
			return true
		}
	}
	return false
}

// leanedPods is for how many pods it is remembered, and leanedFor how long.
const (
	leanedPods = 4
	leanedFor  = 250 * time.Millisecond
)

// leaned is what a refusal said of a class with leanings.
type leaned struct {
	grade uint32
	at    time.Time
	pods  int // that may still be asked for by it
}

// learnGrade takes what a refusal said.
func (c *shards) learnGrade(r *round, from api.Incarnation, s *summary, class *api.Class, grade uint32) {
	if len(class.Leanings) == 0 {
		s.setGrade(class.Hash(), grade)
		return
	}
	if s.leaned == nil {
		s.leaned = map[uint64]leaned{}
	}
	s.leaned[class.Hash()] = leaned{grade, c.now, leanedPods}
	if r.said == nil {
		r.said = map[gradeKey]uint32{}
	}
	r.said[gradeKey{from, class.Hash()}] = grade
}

// gradeAt is gradeOf at a shard, as far as a round knows.
func (r *round) gradeAt(s *summary, shard api.Incarnation, class *api.Class) uint32 {
	if grade, known := r.said[gradeKey{shard, class.Hash()}]; known {
		return grade
	}
	return s.gradeOf(class)
}

// nextBest returns the highest grade of the other shards. The shard that had the highest, as far as is known, need not have that any more: it
// is the right one as long as it is not below the others.
func (c *shards) nextBest(r *round, class *api.Class, but api.Incarnation) (grade uint32) {
	grade = api.LeastGrade
	for _, m := range c.table.Members {
		if s := c.summaries[m.Incarnation]; s != nil && c.owned[m.Incarnation] > 0 && m.Incarnation != but {
			grade = max(grade, r.gradeAt(s, m.Incarnation, class))
		}
	}
	return grade
}

// forgetLeaned forgets what was said of a class too long ago, or for too many pods, when a round is about to ask for one more.
func (c *shards) forgetLeaned(r *round, class *api.Class) {
	if len(r.graded) > 0 {
		return
	}
	for _, m := range c.table.Members {
		s := c.summaries[m.Incarnation]
		if s == nil {
			continue
		}
		l, known := s.leaned[class.Hash()]
		if l.pods--; known && (l.pods < 0 || c.now.Sub(l.at) >= leanedFor) {
			delete(s.leaned, class.Hash())
		} else if known {
			s.leaned[class.Hash()] = l
		}
	}
}

// keepLeaned takes over what is not too old from the last summary.
func (c *shards) keepLeaned(s, old *summary) {
	if old == nil || len(old.leaned) == 0 {
		return
	}
	maps.DeleteFunc(old.leaned, func(_ uint64, l leaned) bool { return c.now.Sub(l.at) >= leanedFor })
	s.leaned = old.leaned
}

// gradeOf returns the grade of the best node with room for a class, as far as the summary tells.
func (s *summary) gradeOf(class *api.Class) uint32 {
	hash := class.Hash()
	if room, counted := s.room[hash]; counted && room == 0 {
		return api.NoGrade
	}
	if grade, known := s.grades[hash]; known {
		return grade
	}
	if l, known := s.leaned[hash]; known {
		return l.grade
	}
	if len(class.Leanings) > 0 {
		return api.BestLeaning
	}
	return class.BestGrade()
}

func (s *summary) setGrade(class uint64, grade uint32) {
	if s.grades == nil {
		s.grades = map[uint64]uint32{}
	}
	s.grades[class] = grade
}

// readGrades takes the grades of an announced summary.
func (s *summary) readGrades(m *wire.Summary) {
	for _, r := range m.GetRoom() {
		if r.GetGrade() > 0 {
			s.setGrade(r.GetPodClass(), r.GetGrade())
		}
	}
}
