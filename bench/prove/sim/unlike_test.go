package sim

import (
	"errors"
	"flag"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/prove/progress"
	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/bench/prove/unlike"
)

var unlikeSeeds = flag.Int("unlike", 0, "how many gangs of unlike pods; 0: 150, and 1,000 in full")

var unlikeFirst = flag.Uint64("unlike-first", 0, "the first seed")

// TestUnlike: of gangs of unlike pods on nodes that nobody else uses, those start that can, within 20 s, and the others
// say why they do not. It takes long because each seed is a world, and each gang is placed by hand first.
func TestUnlike(t *testing.T) {
	n := *unlikeSeeds
	switch {
	case n == 0 && seeds.InFull():
		n = 1000
	case n == 0:
		n = 150
	}
	first := *unlikeFirst
	if first == 0 {
		first = seeds.ByDate(t, n)
	}
	startable, longest := 0, time.Duration(0)
	var missed, silent []uint64
	for i := range n {
		c := unlike.Draw(first + uint64(i))
		nodes, err := c.Start(nil, c.Pods, c.Least())
		if errors.Is(err, progress.ErrTooMany) {
			continue
		}
		w, bound := unlikeWorld(c, 1+int(c.Seed%8))
		if n == 1 {
			w.cfg.Out = t.Output()
		}
		begin := w.now
		w.until(20*time.Second, func() bool { return bound() >= c.Least() })
		switch g := w.api.PodGroup("ns", c.Name); {
		case nodes == nil && bound() > 0:
			t.Errorf("seed %d cannot start, and %d pods are bound\n%s", c.Seed, bound(), c)
		case nodes == nil && (g.Status == nil || g.Status.Message == ""):
			silent = append(silent, c.Seed)
		case nodes == nil:
		default:
			startable++
			if longest = max(longest, w.now.Sub(begin)); bound() < c.Least() {
				missed = append(missed, c.Seed)
				t.Logf("seed %d could start as %v\n%s", c.Seed, nodes, c)
			}
		}
	}
	t.Logf("%d of %d gangs can start, the longest wait was %s; missed: %v", startable, n, longest, missed)
	if len(missed) > 1+n/1000 { // of some, hardly any order and choice will do
		t.Errorf("%d of %d gangs did not start", len(missed), startable)
	}
	if len(silent) > 0 {
		t.Errorf("%d gangs cannot start, and do not say why: seeds %v", len(silent), silent)
	}
}

// TestUnlikeKept: gangs start that did not, for a reason each.
func TestUnlikeKept(t *testing.T) {
	for _, kept := range []struct {
		seed   uint64
		shards int
		why    string
	}{
		{758, 3, "after a failed order nothing was known to be free at shards that held some of it"},
		{1163, 3, "the first shard of a round gets all that it takes, and another order asks it for the same"},
		{20238, 3, "pods that find no node by themselves may find one beside another"},
		{20320, 3, "preferred nodes were tried in each order, and before all other pods"},
		{20467, 3, "others were not drawn for pods that all nodes together cannot hold"},
		{30544, 3, "whole roles are drawn, or the only choice that does comes up once in 126"},
		{31114, 3, "shards were asked for the pods that fit least often first, whatever the order"},
		{31299, 3, "one domain, or one shard, was tried for all in each order"},
		{332397, 2, "of the shards of a domain, the one that takes most of it was asked first in each order"},
	} {
		c := unlike.Draw(kept.seed)
		w, bound := unlikeWorld(c, kept.shards)
		w.until(10*time.Second, func() bool { return bound() >= c.Least() })
		if bound() < c.Least() {
			t.Errorf("seed %d does not start: %s\n%s", kept.seed, kept.why, c)
		}
	}
}

// unlikeWorld returns the world of a case with so many shards, and how many of its pods are bound.
func unlikeWorld(c *unlike.Case, shards int) (w *world, bound func() int) {
	w = wholeWorld(shards, 0)
	for _, n := range c.Nodes {
		w.api.create(w.api.nodes, n)
	}
	w.until(5*time.Second, func() bool { return false })
	c.Group.Namespace, c.Group.Spec.Queue = "ns", "q0"
	w.after(0, func() { w.api.create(w.api.groups, c.Group) })
	for _, p := range c.Pods {
		p.Namespace, p.Spec.PriorityClassName, p.Status.Phase = "ns", "", corev1.PodPending
		p.Labels[api.LabelQueue] = "q0"
		w.after(0, func() { w.api.create(w.api.pods, p) })
	}
	ours := func(p *corev1.Pod) bool { return p.Labels[api.LabelPodGroup] == c.Name && p.Spec.NodeName != "" }
	return w, func() int { return len(w.load.pods(ours)) }
}
