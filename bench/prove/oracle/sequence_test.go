package main

import (
	"slices"
	"testing"
)

// TestSequences replays some hundred sequences.
func TestSequences(t *testing.T) {
	r := runSequences(1, 300, nil)
	for _, e := range r.errors {
		t.Error(e)
	}
	for _, f := range r.wrong {
		out, _ := Play(shrinkPlan(Plan(f.seed), f.mismatch.Kind))
		t.Errorf("seed %d: %v: %q\n%s", f.seed, f.mismatch, out.Trail, out.Case.YAML())
	}
	if len(r.late) > 0 {
		t.Errorf("in sequences %v a pod had its node late", r.late)
	}
	// Sequences in which all pods find a node, or none, show little.
	if r.placed < 1000 || r.denied < 500 {
		t.Errorf("%d pods were bound, and %d waited", r.placed, r.denied)
	}
}

// kept are sequences that went wrong once, by seed.
var kept = map[uint64]string{
	228:         "a pod whose own labels change was not woken",
	476:         "a node shard had not seen yet what had woken a gang",
	1082:        "a pod did not hear of other labels of its namespace",
	1097:        "the same, by a class that was shut",
	1466:        "a home shard's view did not count what only node shards were asked about",
	2642:        "what woke a gang came a moment before what it waits for",
	3212:        "a term about a hostname that nodes of two shards share",
	281960:      "a node shard that had refused a pod because of its domains was taken to have no room for it any more",
	31014398:    "a home asked its own shard again and again, without end, for nodes of a grade that none had",
	20004863:    "the judge held a pod against an earlier one that had not been heard of when that was judged",
	20261134048: "the same as the first, and the term that excluded the pod was about hostnames",
}

func TestKeptSequences(t *testing.T) {
	for seed, what := range kept {
		if out, err := Play(Plan(seed)); err != nil || out.Wrong != nil || out.Late > 0 {
			t.Errorf("%s (seed %d): %v, %v, late %d", what, seed, err, out.Wrong, out.Late)
		}
	}
}

// TestSequencesSeeWhatIsWrong: a Binding to a node that kube-scheduler refuses is found, and a pod that waits in vain.
func TestSequencesSeeWhatIsWrong(t *testing.T) {
	c := caseOf(aNode("n1", inZone("a")), aNode("n2", inZone("b")), namespace("default"), aPod("x", on("n1"), app("a")), aPod("p", app("a"), averseTo(zoneKey, selecting("a"))))
	p := &plan{seed: 1, shards: 3, nodes: c.Nodes, objects: c.Objects, pods: c.Pods, steps: []step{{pods: slices.Clone(c.Pods[:0])}}}
	w := newWorld(p)
	w.begin()
	bound := c.Pod.DeepCopy()
	w.pods["p"] = bound
	w.began()
	landed := bound.DeepCopy()
	landed.Spec.NodeName = "n1"
	w.landed = []landing{{place: place{1, 0}, asked: bound, pod: landed}}
	if w.replay(); w.out.Wrong == nil || w.out.Wrong.Kind != Unsafe {
		t.Errorf("a Binding beside a pod that it excludes: %v", w.out.Wrong)
	}
	if m, _ := w.unplaced(w.waiting()); m != nil {
		t.Errorf("nobody waits: %v", m)
	}
	w.order = append(w.order, "p")
	if m, _ := w.unplaced(w.waiting()); m == nil || m.Node != "n2" {
		t.Errorf("a pod waits and n2 would take it: %v", m)
	}
}

// TestSameSeedSamePlay: a sequence is addressed by its seed.
func TestSameSeedSamePlay(t *testing.T) {
	for seed := range uint64(30) {
		a, _ := Play(Plan(seed))
		if b, _ := Play(Plan(seed)); !slices.Equal(a.Trail, b.Trail) {
			t.Errorf("seed %d gives two sequences: %q and %q", seed, a.Trail, b.Trail)
		}
	}
}
