package api

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// Tiers of nodes that the configuration says (nodeTiers): for each of a few classes of pods, each node is in one of
// four tiers. Which class a pod is of is found when the pod is read, and is one of its wishes. In which tiers a node
// is, is found when the node is read, and again when its labels, taints or allocatable amounts change. So no decision
// evaluates anything (package tiers compiles the expressions, package cache places by tiers).
//
// A node that does not say of a class in which tier it is, is in the last. That is so at a shard whose configuration
// does not have the class yet, or not any more.
const (
	LastTier = 3 // the first, and the best, is 0

	// TierStep is by how much the grade of a node is better than it would be in the next tier: more than all that
	// pods prefer besides can make of it, which is 500 of nodes, and 400 of the pods around (package cache).
	TierStep = 1000
)

// TierRules are the classes that the configuration says. Both functions may be called by several goroutines, and
// answer the same for the same arguments.
type TierRules struct {
	Form   string                                                                    // equal ones answer alike
	OfPod  func(p *Pod, labels map[string]string, requests Resources) (class string) `json:"-"` // "" for none
	OfNode func(n *Node) Tiers                                                       `json:"-"`
}

// Tier is the tier of a node for a class of pods.
type Tier struct {
	Class string
	Tier  uint8
}

// Tiers are those of a node. They are not to be changed: nodes share them.
type Tiers []Tier

// Of returns the tier for a class.
func (t Tiers) Of(class string) uint8 {
	for i := range t {
		if t[i].Class == class {
			return min(t[i].Tier, LastTier)
		}
	}
	return LastTier
}

// FromNode is FromNode, with the tiers of the node. was is what was made of it before, nil if nothing was: as long as
// nothing that tiers depend on has changed, they are not evaluated again. Most changes of nodes are heartbeats.
func (r *Rules) FromNode(n *v1.Node, was *Node) *Node {
	out := FromNode(n, r.Ignored)
	switch {
	case r.Tiers == nil:
	case was != nil && slices.Equal(was.Allocatable, out.Allocatable) && maps.Equal(was.Labels, out.Labels) &&
		slices.EqualFunc(was.Taints, out.Taints, sameTaint):
		out.Tiers = was.Tiers
	default:
		out.Tiers = r.Tiers.OfNode(out)
	}
	return out
}

func sameTaint(a, b v1.Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
}
