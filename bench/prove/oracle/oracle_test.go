package main

import (
	"slices"
	"testing"
)

// TestSeeds compares a few hundred generated cases.
func TestSeeds(t *testing.T) {
	r := run(1, 500, nil)
	for _, e := range r.errors {
		t.Error(e)
	}
	for _, kind := range kinds {
		for _, found := range r.found[kind] {
			for _, f := range found {
				if !isOpen(f.mismatch) {
					t.Errorf("seed %d: %v\n%s", f.seed, f.mismatch, Shrink(Generate(f.seed), f.mismatch).YAML())
				}
			}
		}
	}
	// A generator whose pods go everywhere, or nowhere, finds nothing.
	if r.agreed < 250 || r.partly < 100 {
		t.Errorf("of 500 cases %d agree, and in %d of them some nodes fit and others do not", r.agreed, r.partly)
	}
}

// TestSameSeedSameCase: a case is addressed by its seed.
func TestSameSeedSameCase(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(50) {
		text := Generate(seed).YAML()
		if text != Generate(seed).YAML() {
			t.Errorf("seed %d gives two cases", seed)
		}
		if seen[text] {
			t.Errorf("seed %d gives a case that another one gives", seed)
		}
		seen[text] = true
	}
}

// TestShrink: what is left is one node that the plugin refuses and what that takes, and the case that was drawn is as it was.
func TestShrink(t *testing.T) {
	c := caseOf(aNode("n1", offers("cpu", "1")), aNode("n2", inZone("a")), aNode("n3"), aPod("x", on("n2")), aPod("y", on("n1"), requests("cpu", "2"), app("a")),
		namespace("default"), aPod("p", app("b"), requests("memory", "1Mi")))
	before := c.YAML()
	v, err := Compare(c)
	if err != nil || v.Excused["out-of-sync"] != 1 {
		t.Fatalf("%v, %v", v, err)
	}
	saved := exceptions
	defer func() { exceptions = saved }()
	exceptions = nil
	v, err = Compare(c)
	if err != nil || len(v.Mismatches) != 1 || v.Mismatches[0].Plugin != "OutOfSync" || v.Mismatches[0].Node != "n1" {
		t.Fatalf("%v, %v", v, err)
	}
	small := Shrink(c, v.Mismatches[0])
	if names := small.nodeNames(); !slices.Equal(names, []string{"n1"}) || len(small.Pods) != 1 || small.Pods[0].Name != "y" || len(small.Objects) != 0 || small.Pod.Labels != nil || len(small.Pod.Spec.Containers[0].Resources.Requests) > 0 {
		t.Errorf("the case was shrunk to\n%s", small.YAML())
	}
	if c.YAML() != before {
		t.Error("shrinking changed the case that it began with")
	}
}

// TestExceptions: there are ten at most, and each is said in words.
func TestExceptions(t *testing.T) {
	ids := map[string]bool{}
	for _, e := range exceptions {
		if e.id == "" || e.reason == "" || ids[e.id] {
			t.Errorf("exception %+v has no id of its own, or no reason", e)
		}
		ids[e.id] = true
	}
	if len(exceptions) > 10 {
		t.Errorf("there are %d exceptions", len(exceptions))
	}
}

// TestUserWithoutNode: a claim that one pod at a time may use is kept from others while its user may still run,
// though the Node object is gone; and that is the only reason for which such a claim may be refused where
// kube-scheduler takes it.
func TestUserWithoutNode(t *testing.T) {
	for node, meant := range map[string]bool{"gone": true, "n1": false} {
		v, err := Compare(caseOf(aNode("n1"), once(volume("v", nil)), once(claim("c", "v")), namespace("default"),
			aPod("x", on(node), uses("c")), aPod("p", uses("c"))))
		if err != nil || v.Refused == "" || (v.Fit > 0) != meant || v.Meant != meant {
			t.Errorf("used on node %s: %+v, %v", node, v, err)
		}
	}
}
