package cache

import (
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// Policy is what makes a node the best of those that fit.
type Policy uint8

const (
	Pack           Policy = iota // fill nodes up, and keep free devices for those who ask for them
	Spread                       // keep the fullest resource of each node as empty as possible
	LeastAllocated               // the largest free share of cpu and memory, their mean: kube-scheduler's default, but see allocated
	MostAllocated                // the smallest
)

// policies are their names, as users write them.
var policies = [...]string{Pack: "pack", Spread: "spread", LeastAllocated: "least-allocated", MostAllocated: "most-allocated"}

func (p Policy) String() string {
	if int(p) < len(policies) {
		return policies[p]
	}
	return fmt.Sprintf("Policy(%d)", uint8(p))
}

// ReadPolicy returns the policy of a name, and whether there is one; Pack has the empty name, too.
func ReadPolicy(name string) (Policy, bool) {
	if name == "" {
		return Pack, true
	}
	for p, n := range policies {
		if n == name {
			return Policy(p), true
		}
	}
	return 0, false
}

// allocated rates a node by the mean share of cpu and memory that is in use, the least first or the most. Kube-scheduler counts the
// pod that is to be placed as well. Here all classes have one order of nodes, so the pod does not count: on nodes of one size that is the same,
// and among others a large node is rated a little lower than kube-scheduler would.
func (c *Cache) allocated(s int32) uint32 {
	const full = 2000
	sum, kinds := int64(0), int64(0)
	has, frees := c.hasOf(s), c.freeOf(s)
	for i, col := range c.columns {
		if alloc := int64(has[i]); alloc > 0 && (col.name == string(v1.ResourceCPU) || col.name == string(v1.ResourceMemory)) {
			sum += 1000 - permille(max(frees[i], 0), alloc)
			kinds++
		}
	}
	switch {
	case kinds == 0: // has neither
		return full
	case c.cfg.Policy == MostAllocated:
		return uint32(full - 2*sum/kinds)
	}
	return uint32(2 * sum / kinds)
}
