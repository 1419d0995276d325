package node

import (
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// Wishes decide where a pod is placed, and nothing after that: charges, intents and bound pods are of a class without them. Home shards
// compare shards by grades (package cache): a HoldRequest with a grade asks for nodes of at least that grade only, and refusals and
// summaries say what grade the best node with room has.
//
// To grade nodes takes time that is paid for as constraints are (judging.go). But no pod waits for it: a class whose nodes may not be graded
// now is placed without its wishes.

// gradedElsewhere is how many nodes of other shards a wish is compared with, at most. The most that any of them has to offer is what scores
// are normalised by. In a cluster of more nodes, a part stands for all: nodes are spread over shards and buckets by the hash of their names.
const gradedElsewhere = 4096

// elsewhere iterates over nodes that are not ours.
func (c *Core) elsewhere(yield func(*api.Node) bool) {
	buckets := api.Buckets
	if n := len(c.nodes); n > gradedElsewhere {
		buckets = max(1, buckets*gradedElsewhere/n)
	}
	for name, n := range c.nodes { // in any order: what is sought is the most
		if b := api.BucketOf(name); int(b) < buckets && c.buckets[b] != active && !yield(n) {
			return
		}
	}
}

// seenElsewhere takes a node that is not ours.
func (c *Core) seenElsewhere(before, n *api.Node) {
	if before == nil || !maps.Equal(before.Labels, n.Labels) || !slices.EqualFunc(before.Taints, n.Taints, func(a, b v1.Taint) bool { return a.MatchTaint(&b) && a.Value == b.Value }) {
		c.cache.SeenElsewhere(n)
	}
}

// wished returns a class as it is placed: with its wishes.
func wished(counted, asked *api.Class) *api.Class {
	if len(asked.Wishes) == 0 || counted == nil {
		return counted
	}
	return counted.Wishing(asked.Wishes)
}

// mayGrade reports whether nodes may be graded for a class of a namespace now.
func (c *Core) mayGrade(namespace string, class *api.Class) bool {
	return c.spent.Spent(c.now, namespace) < gradedAtOnce || c.cache.Ungraded(class) == 0
}

// place finds a node that is allowed for a pod of a class that may be compared with nodes.
func (c *Core) place(namespace string, class *api.Class, least uint32, rank api.Rank, allow func(int32) bool) (node string, victims []string, ok bool) {
	before := c.cache.Compared()
	defer c.spend(namespace, before)
	switch {
	case !c.mayGrade(namespace, class):
		return c.cache.PlaceHeedless(class, rank, allow)
	case least > 0:
		node, ok = c.cache.PlaceAbove(class, least, allow)
		return node, nil, ok
	}
	return c.cache.PlaceWithin(class, rank, allow)
}

// grade returns the grade of the best node with room for a class, api.NoGrade if there is none, all are equally good, or it may not be found
// out now.
func (c *Core) grade(namespace string, class *api.Class) uint32 {
	if !c.cache.Heeds(class) || !c.mayGrade(namespace, class) {
		return api.NoGrade
	}
	before := c.cache.Compared()
	defer c.spend(namespace, before)
	return c.cache.Grade(class)
}
