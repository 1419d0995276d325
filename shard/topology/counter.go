package topology

import (
	"time"

	"basalt.dev/basalt/shard/fair"
)

// Bounds of what the pods of a namespace may have counted. A term about namespaces with some labels counts as many,
// for it is compared with the pods of all.
const (
	// countedByNamespace are different selectors that they ask for, and as many terms that they carry while they wait.
	countedByNamespace = 1024
	// carriedByNamespace are terms of all pods: those that wait in one process cannot have those left out that are
	// bound by others.
	carriedByNamespace = 2 * countedByNamespace
	anywhereCounts     = 16
	// talliesByNamespace are of spreads: one selector may be counted by many topology keys, and on many sets of nodes.
	talliesByNamespace = 2048
	CountKept          = time.Minute // a count, or a term, is kept for so long without a pod that needs it
	// countedRate is what counting something new may take for a namespace in a second: kins and nodes looked at.
	countedRate   = 1 << 21
	countedAtOnce = 3 * countedRate

	// A change of a pod is counted by all selectors that match it. Those of a namespace beyond freeCounts are paid
	// for, at countCost each, from another budget of the same size: some 130,000 a second.
	freeCounts = 64
	countCost  = 16

	// filterBytes bounds the constraints of filters that a namespace made: each node that changes is compared with
	// all of them.
	filterBytes = 1 << 20
)

// counting is what is counted, and what that costs.
type counting struct {
	last          int
	counters      map[string]*counter // of matching pods, by what they match
	countAnywhere []*counter          // those whose pods may be of any namespace
	everywhere    bool                // there was one: the pods of all namespaces are counted
	tallies       []*tally
	made          map[string]int  // counters by namespace,
	tallied       map[string]int  // and tallies of spreads
	spent         fair.Budget     // on counting what is new,
	busy          fair.Budget     // and on counting changes
	overspent     map[string]bool // namespaces that are to give selectors up
}

func newCounting() counting {
	return counting{counters: map[string]*counter{}, made: map[string]int{}, tallied: map[string]int{},
		spent: fair.Budget{Rate: countedRate}, busy: fair.Budget{Rate: countedRate}, overspent: map[string]bool{}}
}

// enter has a new counter kept, and counted for its maker.
func (c *counting) enter(s *counter) {
	c.last++
	s.number = c.last
	c.made[s.maker] += s.weight
	c.counters[s.id] = s
	if s.spaces == nil {
		c.countAnywhere = append(c.countAnywhere, s)
	}
}

// leave takes a counter out of both.
func (c *counting) leave(s *counter) {
	s.drop(c.made)
	delete(c.counters, s.id)
}

// enterTally has a new tally follow its counter.
func (c *counting) enterTally(t *tally) {
	t.counter.tallies, c.tallies = append(t.counter.tallies, t), append(c.tallies, t)
}

// pays has a new tally of a spread counted for a namespace.
func (c *counting) pays(t *tally, maker string) {
	t.maker = maker
	c.tallied[maker]++
}

// counter counts pods by node, and by domain for those who ask.
type counter struct {
	number  int
	id      string
	matches func(k *kin) bool // nil for the pods that carry a term
	spaces  []string          // whose pods may match; nil: any
	on      map[int32]counts
	tallies []*tally
	by      map[string]bool // namespaces of pods that ask
	maker   string          // in counting.made, or repelling.carried
	weight  int
	used    time.Time
	givenUp bool   // it counts no longer
	opened  uint64 // how often something was counted otherwise, so that a pod may fit that did not before
}

// tell has View.Opened name a namespace when something is counted otherwise.
func (s *counter) tell(namespace string) { s.by[namespace] = true }

// keep keeps it for another while: somebody asks for it.
func (s *counter) keep(now time.Time) { s.used = now }

func (s *counter) add(n int32, c counts, by int32) {
	on := s.on[n]
	on.add(c, by)
	if on.none() {
		delete(s.on, n)
	} else {
		s.on[n] = on
	}
	for _, t := range s.tallies {
		t.add(n, c, by)
	}
}

func (s *counter) addAll(k *kin, by int32) {
	for n, c := range k.on {
		s.add(n, c, by)
	}
}

// charge has a namespace pay for a change that so many of its selectors have to count. If it has paid too much, all
// but its oldest are given up when no trial is under way. Its pods that ask for the others wait until these can be
// counted again.
func (v *View) charge(maker string, n int64) {
	v.busy.Spend(v.now, maker, n*countCost)
	if v.isBusy(maker) {
		v.overspent[maker] = true
	}
}

// isBusy reports whether the changes of pods cost too much of late because of the selectors of a namespace.
func (v *View) isBusy(maker string) bool { return v.busy.Spent(v.now, maker) >= countedAtOnce }

// drop takes a counter from what its maker has.
func (s *counter) drop(made map[string]int) {
	if made[s.maker] -= s.weight; made[s.maker] <= 0 {
		delete(made, s.maker)
	}
}

// open notes that something is counted otherwise because of a pod of a namespace, or with "" of a node.
func (v *View) open(s *counter, because string) {
	if v.trials > 0 {
		return
	}
	s.opened++
	for namespace := range s.by {
		v.changed[namespace] = v.changed[namespace] || because == "" || because == namespace
	}
}
