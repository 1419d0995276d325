package claims

import (
	"fmt"
	"math/bits"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
)

// Surplus pods: claims on single pods of a gang that runs with more than its minimum. To the claimant, and to node shards, such a pod is what
// a gang of one is in the model above: it is named by its UID, its room is promised, and it is gone at some time. What is new lies
// between the coordinator and the gang's home, and has a model of its own.
//
// Cast. The gang v with three pods that are bound, and one that its controller makes again; its minimum of two, which its users edit; its
// record, with the pods that it is charged for and those that are condemned; two claims, the second after the first one has ended, each of
// which lacks the quota of one pod; the coordinator, with one crash; v's home, and the heir of it, while the old one goes on.
//
// Steps. A claim on a pod is accepted; the home is asked for it, and agrees or refuses by what it sees; its Condemn arrives, or never; the
// pod is condemned; a home learns of it, reads the record, and sends the deletion, which arrives at any later time; a home sees what became of
// pods and of the minimum, and asks to be charged for what it sees; a pod that was made again is charged and bound; a claim is granted, or
// takes too long. Faults: the crash, the heir, a pod that dies, an edit of the minimum, a claim that takes too long.
//
// Judged: I14 (when pods are condemned, the record names as many others that have, or had, a node as its minimum says: that one of them is
// dead and nobody has seen it is as if it died later); I15 (a pod that a home deletes is condemned by the record at that moment, and was by
// a claim that stood); I1 and I18 (quota, with what is promised); at the end no claim stands, and nobody who is condemned runs.

// SurplusRule can be weakened.
type SurplusRule uint8

// The rules, each as what happens without it. Not needed, against expectation, are two that the cores keep all the same: that a home reads the
// record before each deletion (it learns who is condemned from nothing else, and nobody is spared), and that an heir reads there who
// is condemned (the coordinator says it again).
const (
	CondemnUnwritten     SurplusRule = iota // R34: a pod is evicted before the record says that it is condemned
	CondemnBelowMinimum                     // R35: a home agrees whether or not the gang keeps its minimum
	MinimumUnrecorded                       // R36: or keeps the minimum that the record says: an edit may have lowered it since
	LateCondemn                             // R37: a Condemn counts that is older than what the gang asked for last
	CondemnOfOldTerm                        // R38: or that was said to an earlier coordinator
	CondemnUnclaimed                        // R39: or whose claim does not stand any more
	CondemnedSpared                         // R40: who is condemned is spared when the claim is dropped
	GrantBeforeCondemned                    // R41: a claim is granted while a pod of it is not condemned
	CondemnedReplaced                       // R42: a pod takes the quota of a condemned one in its gang
	ClaimedReplaced                         // R43: or of one that a claim takes and that dies before it is condemned
	CondemnedUntold                         // R44: a home is asked for pods, and not told who is condemned already
	surplusRules
)

var surplusNames = [surplusRules]string{"condemn-unwritten", "condemn-below-minimum", "minimum-unrecorded", "late-condemn", "condemn-of-old-term", "condemn-unclaimed",
	"condemned-spared", "grant-before-condemned", "condemned-replaced", "claimed-replaced", "condemned-untold"}

func (r SurplusRule) String() string { return surplusNames[r] }

// SurplusRules returns all of them.
func SurplusRules() []SurplusRule { return spec.Rules(surplusRules) }

// SurplusFaults is how often each may happen.
type SurplusFaults struct{ Crash, Heir, Die, Edit, Timeout uint8 }

const (
	elasticPods  = 4 // the last is made again
	elasticLimit = 3 // of quota
	again        = uint8(1) << (elasticPods - 1)
)

// States of a claim.
const (
	noClaim = iota
	stands
	fulfilled
	dropped
)

// word is a Condemn on its way.
type word struct{ pod, claim, serial, term uint8 }

// elasticHome is one of the two homes of v.
type elasticHome struct {
	sees, least uint8 // pods that run, and the minimum
	condemned   uint8 // that it knows of
	deletes     uint8 // pods whose deletion is on its way
	said        word
}

type elastic struct {
	named, condemned, least uint8 // the record
	runs, pending           uint8 // pods at the API server
	minimum, made           uint8 // what the users say, and whether a pod was made again
	serial, term            uint8 // the coordinator's memory
	claims                  [2]struct{ state, pod uint8 }
	homes                   [2]elasticHome
	heir                    uint8
	everCondemned           uint8 // judged: by a claim that stood
	left                    SurplusFaults
}

func count(pods uint8) int { return bits.OnesCount8(pods) }

// First returns the state at the start.
func (m *elasticMachine) First() elastic {
	s := elastic{named: 7, least: 2, runs: 7, minimum: 2, term: 1, left: m.left}
	s.homes[0] = elasticHome{sees: 7, least: 2}
	return s
}

// charged is what v and the claims are charged, and what they will be.
func (s *elastic) charged() (now, then int) {
	now = count(s.named)
	leaves := s.condemned
	for _, c := range s.claims {
		switch c.state {
		case stands:
			leaves |= c.pod
			then++
		case fulfilled:
			now++
		}
	}
	return now, now + then - count(leaves&s.named)
}

// elasticMachine says what may happen.
type elasticMachine struct {
	left SurplusFaults
	weak spec.Weakened[SurplusRule]
}

func (m *elasticMachine) is(r SurplusRule) bool { return m.weak.Has(r) }

// Next calls emit with each state that one step leads to, what the step is, and what it violates.
func (m *elasticMachine) Next(from *elastic, emit func(what string, n *elastic, bad string)) {
	s := *from
	do := func(n elastic, bad, format string, args ...any) {
		if n == s {
			return
		}
		if now, then := n.charged(); bad == "" {
			was, were := s.charged()
			switch {
			case now > elasticLimit && now > was:
				bad = fmt.Sprintf("I1: %d pods are charged, and the limit is %d", now, elasticLimit)
			case then > elasticLimit && then > were:
				bad = fmt.Sprintf("I18: %d pods will be charged, and the limit is %d", then, elasticLimit)
			}
		}
		emit(fmt.Sprintf(format, args...), &n, bad)
	}
	m.coordinator(s, do)
	for h := range s.homes {
		if h == 0 || s.heir > 0 {
			m.home(s, h, do)
		}
	}
	m.world(s, do)
}

type doElastic func(n elastic, bad, format string, args ...any)

func (m *elasticMachine) coordinator(s elastic, do doElastic) {
	for i, c := range s.claims {
		ready := c.state == noClaim && (i == 0 || s.claims[0].state > stands)
		for p := uint8(1); ready && p <= again; p <<= 1 {
			if s.named&^s.condemned&p != 0 && count(s.named&^s.condemned)-1 >= int(s.least) && s.pending&p == 0 {
				n := s
				n.claims[i].state, n.claims[i].pod = stands, p
				do(n, "", "coordinator: claim %d on pod %d", i+1, bits.TrailingZeros8(p)+1)
			}
		}
		if c.state != stands {
			continue
		}
		open := s.named&^s.condemned&c.pod != 0
		if now, _ := s.charged(); now < elasticLimit && (!open || m.is(GrantBeforeCondemned)) {
			n := s
			n.claims[i].state = fulfilled
			bad := ""
			if open {
				bad = fmt.Sprintf("claim %d is granted, and its pod is not condemned", i+1)
			}
			do(n, bad, "coordinator: claim %d is granted", i+1)
		}
		if s.left.Timeout > 0 {
			n := s
			n.left.Timeout--
			m.drop(&n, i)
			do(n, "", "coordinator: claim %d takes too long", i+1)
		}
	}
	for h := range s.homes {
		m.condemn(s, h, do)
	}
	if s.left.Crash > 0 {
		n := s
		n.left.Crash--
		n.term++
		n.serial = 0
		do(n, "", "coordinator: crashes")
	}
}

func (m *elasticMachine) drop(n *elastic, claim int) {
	n.claims[claim].state = dropped
	if m.is(CondemnedSpared) {
		n.condemned &^= n.claims[claim].pod
	}
}

// condemn is a Condemn that arrives. It may arrive again.
func (m *elasticMachine) condemn(s elastic, h int, do doElastic) {
	w := s.homes[h].said
	if w.pod == 0 || s.named&^s.condemned&w.pod == 0 || w.term != s.term && !m.is(CondemnOfOldTerm) || w.serial < s.serial && !m.is(LateCondemn) && w.term == s.term {
		return
	}
	claimed := s.claims[w.claim].state == stands
	if !claimed && !m.is(CondemnUnclaimed) {
		return
	}
	n := s
	if count(s.named&^s.condemned)-1 < int(s.least) && !m.is(CondemnBelowMinimum) {
		m.drop(&n, int(w.claim))
		do(n, "", "coordinator: the Condemn of home %d contradicts the record, and claim %d is dropped", h+1, w.claim+1)
		return
	}
	n.condemned |= w.pod
	bad := ""
	if left := count(n.named &^ n.condemned &^ n.pending); left < int(n.least) {
		bad = fmt.Sprintf("I14: a pod is condemned, and %d with a node are left of %d", left, n.least)
	}
	if claimed {
		n.everCondemned |= w.pod
	} else {
		bad = "a pod is condemned for a claim that does not stand"
	}
	do(n, bad, "coordinator: the Condemn of home %d arrives, and pod %d is condemned", h+1, bits.TrailingZeros8(w.pod)+1)
}

// home is what a home of v does. The one that was replaced goes on with what it knows.
func (m *elasticMachine) home(s elastic, h int, do doElastic) {
	is := &s.homes[h]
	n := s
	to := &n.homes[h]
	if to.sees, to.least = s.runs, s.minimum; is.sees != to.sees || is.least != to.least {
		do(n, "", "home %d: sees what runs, and the minimum", h+1)
	}
	if n = s; s.condemned&^is.condemned != 0 {
		to.condemned |= s.condemned
		do(n, "", "home %d: learns who is condemned", h+1)
	}
	for p := uint8(1); p <= again; p <<= 1 {
		if n = s; is.condemned&is.sees&p != 0 && is.deletes&p == 0 && (s.condemned&p != 0 || m.is(CondemnUnwritten)) {
			to.deletes |= p
			do(n, "", "home %d: reads the record, and deletes pod %d", h+1, bits.TrailingZeros8(p)+1)
		}
		if n = s; is.deletes&s.runs&p != 0 {
			n.runs &^= p
			m.lost(&n)
			bad := ""
			if s.condemned&p == 0 && s.named&p != 0 || s.everCondemned&p == 0 {
				bad = fmt.Sprintf("I15: pod %d is deleted, and it is not condemned", bits.TrailingZeros8(p)+1)
			}
			do(n, bad, "API server: pod %d is deleted by home %d", bits.TrailingZeros8(p)+1, h+1)
		}
	}
	if h != int(s.heir) {
		return
	}
	for i, c := range s.claims {
		if c.state != stands || s.named&^s.condemned&c.pod == 0 {
			continue
		}
		n = s
		if !m.is(CondemnedUntold) {
			to.condemned |= s.condemned
		}
		stay := is.sees &^ to.condemned &^ c.pod
		least := is.least
		if !m.is(MinimumUnrecorded) {
			least = max(least, s.least)
		}
		if is.sees&c.pod != 0 && (count(stay) >= int(least) || m.is(CondemnBelowMinimum)) {
			to.said = word{c.pod, uint8(i), s.serial, s.term}
			if m.is(CondemnUnwritten) {
				to.condemned |= c.pod
			}
			do(n, "", "home %d: Condemn of pod %d", h+1, bits.TrailingZeros8(c.pod)+1)
		} else {
			m.drop(&n, i)
			do(n, "", "home %d: refuses claim %d, which is dropped", h+1, i+1)
		}
	}
	// A Reserve for what it sees.
	n = s
	n.named &= is.sees | s.runs | s.pending // what it binds it knows before the watch shows it
	n.least = is.least
	gone := s.condemned
	for _, c := range s.claims {
		if c.state == stands && !m.is(ClaimedReplaced) {
			gone |= c.pod
		}
	}
	gone &= s.named &^ n.named
	n.condemned &= n.named
	if n.named != s.named || n.least != s.least {
		n.serial++
		do(n, "", "coordinator: Reserve of v for pods %04b and a minimum of %d", n.named, n.least)
	}
	if s.pending&^s.named == 0 {
		return
	}
	room := count(s.named) - count(gone) // what v is charged without those whom claims take
	if m.is(CondemnedReplaced) {
		room = count(s.named)
	}
	n.named |= s.pending
	n.serial++
	fits := count(n.named) <= room
	if now, then := n.charged(); fits || now <= elasticLimit && then <= elasticLimit {
		do(n, "", "coordinator: Reserve of v for pods %04b, one of which is new", n.named)
	}
}

// lost has a controller make a pod again, once.
func (m *elasticMachine) lost(n *elastic) {
	if n.made == 0 {
		n.pending, n.made = again, 1
	}
}

func (m *elasticMachine) world(s elastic, do doElastic) {
	if n := s; s.pending&s.named != 0 {
		n.runs, n.pending = s.runs|s.pending, 0
		do(n, "", "the pod that was made again is bound")
	}
	for p := uint8(1); s.left.Die > 0 && p <= again; p <<= 1 {
		if n := s; s.runs&p != 0 {
			n.left.Die--
			n.runs &^= p
			m.lost(&n)
			do(n, "", "pod %d dies", bits.TrailingZeros8(p)+1)
		}
	}
	for _, to := range []uint8{1, 3} {
		if n := s; s.left.Edit > 0 {
			n.left.Edit--
			n.minimum = to
			do(n, "", "the minimum of v is edited to %d", to)
		}
	}
	if n := s; s.left.Heir > 0 {
		n.left.Heir--
		n.heir = 1
		n.homes[1] = elasticHome{sees: s.runs, least: s.minimum, condemned: s.condemned}
		do(n, "", "v's home has an heir")
	}
}

// Judge returns what is violated if nothing happens any more.
func (m *elasticMachine) Judge(s *elastic, steps []string) string {
	if len(steps) > 0 {
		return ""
	}
	for i, c := range s.claims {
		if c.state == stands {
			return fmt.Sprintf("claim %d stands for ever", i+1)
		}
	}
	if s.condemned&s.runs != 0 {
		return "a pod is condemned, and runs for ever"
	}
	return ""
}

// Say returns a step, which is its own description.
func (m *elasticMachine) Say(step string, _, _ *elastic) string { return step }

// RunSurplus explores until a violation or the end. States are compared as they are.
func RunSurplus(f SurplusFaults, now func() time.Time, weak ...SurplusRule) spec.Result {
	return spec.Run(&elasticMachine{f, spec.Weak(weak)}, spec.Bounds{Exact: true}, now)
}
