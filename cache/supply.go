package cache

import (
	"math/bits"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// Supply returns, of each resource that some node offers, what is free on the nodes that take pods at all, and what the pods request
// that Basalt placed or is placing, on whatever node. Their sum is what Basalt has for its pods. It stays the same when Basalt places a
// pod and when that one ends, for each class counts its own charges, and what is free of a node falls by what a charge takes.
func (c *Cache) Supply() (free, own api.Resources) {
	sums := make([]struct{ free, own wide }, len(c.columns))
	for i, col := range c.columns {
		if col != nil {
			sums[i].free = col.sumFree
		}
	}
	for s := range c.closed { // in any order: each by itself
		for i, v := range c.freeOf(s)[:len(c.columns)] {
			sums[i].free.sub(max(v, 0))
		}
	}
	for _, cl := range c.numbered {
		if cl == nil || cl.own == 0 {
			continue
		}
		for i := range cl.requests {
			if a := &cl.requests[i]; a.col >= 0 {
				sums[a.col].own.addTimes(a.amount, cl.own)
			}
		}
	}
	for i, col := range c.columns {
		if col != nil && col.offers > 0 && col.driver == "" {
			free = append(free, api.Amount{Resource: col.name, Value: sums[i].free.saturated()})
			own = append(own, api.Amount{Resource: col.name, Value: sums[i].own.saturated()})
		}
	}
	for _, r := range []api.Resources{free, own} {
		slices.SortFunc(r, func(a, b api.Amount) int { return strings.Compare(a.Resource, b.Resource) })
	}
	return free, own
}

// ours returns 1 for a charge of Basalt's own pods.
func ours(k Kind) int32 {
	if k == Hold || k == Intent || k == Bound {
		return 1
	}
	return 0
}

// isClosed reports whether a node takes no pods for now: it is cordoned, or Kubernetes itself keeps pods away, as from one that is not
// ready. Taints of other names set a node apart for some pods, which may be Basalt's.
func isClosed(n *api.Node) bool {
	return n.Unschedulable || slices.ContainsFunc(n.Taints, func(t v1.Taint) bool { return repels(&t) && strings.HasPrefix(t.Key, closingTaints) })
}

const closingTaints = "node.kubernetes.io/"

// close takes note of whether the node of a slot is closed.
func (c *Cache) close(s int32, closed bool) {
	if closed {
		c.closed[s] = true
	} else if len(c.closed) > 0 {
		delete(c.closed, s)
	}
}

// addTimes adds an amount so many times; neither is negative.
func (w *wide) addTimes(v int64, times int32) {
	hi, lo := bits.Mul64(uint64(v), uint64(times))
	var carry uint64
	w.lo, carry = bits.Add64(w.lo, lo, 0)
	w.hi += hi + carry
}
