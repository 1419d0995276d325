package cache

import (
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
)

// Required anti-affinity between pods on one node. A group is the pods that one term matches: a class belongs to some groups (In) and
// carries the terms of others (Avoids). The rule of kube-scheduler has two sides: a pod goes to no node with a pod of a group that it
// avoids, and to none with a pod that avoids a group which it belongs to itself.
//
// Which pods belong to a group is up to the caller, who numbers the groups. Here they are counted by node, as host ports are. Pods that
// avoid a group in a larger topology domain than a node are the caller's, too: it says which groups they keep away from a node (Repel).

// host is what a node's hostname says of the pods on it.
type host uint8

const (
	nameless host = iota // no label: no terms about single nodes concern it, as for kube-scheduler
	alone                // it has the label by itself
	doubtful             // other nodes have the same: it takes no pod that belongs to a group or avoids one
)

// setHost reads the label of a node that is there.
func (n *node) setHost() {
	switch {
	case n.object.Labels[api.LabelHostname] == "":
		n.host = nameless
	case n.host == nameless:
		n.host = alone
	}
}

// Doubt says whether other nodes have the same hostname as a node that is there.
func (c *Cache) Doubt(nodeName string, doubt bool) {
	n := c.nodes[nodeName]
	if n == nil || n.object == nil || n.host == nameless || doubt == (n.host == doubtful) {
		return
	}
	if n.host = doubtful; !doubt {
		n.host = alone
		if c.slots[n.slot].broken == 0 {
			c.roomVersion++
		}
	}
	c.touch(n.slot)
}

// groupUse counts the pods of a node that belong to a group, and those that avoid it.
type groupUse struct {
	group     uint32
	in, avoid int32
}

// useGroups counts one pod of a class onto a slot, or off it.
func (c *Cache) useGroups(s int32, cl *class, by int32) {
	if !cl.grouped {
		return
	}
	n := c.bySlot[s]
	for _, g := range cl.api.In {
		n.use(g).in += by
	}
	for _, g := range cl.api.Avoids {
		n.use(g).avoid += by
	}
	n.groups = slices.DeleteFunc(n.groups, func(u groupUse) bool { return u.in == 0 && u.avoid == 0 })
}

// use returns the counts of a group, which it makes if there are none.
func (n *node) use(group uint32) *groupUse {
	if u := n.used(group); u != nil {
		return u
	}
	n.groups = append(n.groups, groupUse{group: group})
	return &n.groups[len(n.groups)-1]
}

// used returns the counts of a group, nil if there are none.
func (n *node) used(group uint32) *groupUse {
	for i := range n.groups {
		if n.groups[i].group == group {
			return &n.groups[i]
		}
	}
	return nil
}

// groupsConflict says which side of the rule keeps a pod of a class from a node, if the charges that are left out were gone.
func (c *Cache) groupsConflict(n *node, cl *class, without []uint32) Obstacle {
	if n.host == doubtful {
		return Avoids
	}
	for _, g := range cl.api.Avoids {
		if u := n.used(g); u != nil && n.host == alone {
			in := u.in
			for _, ch := range without {
				if slices.Contains(c.classOf(ch).api.In, g) {
					in--
				}
			}
			if in > 0 {
				return Avoids
			}
		}
	}
	if fault.On(fault.OneSided) {
		return Nothing
	}
	for _, g := range cl.api.In {
		if u := n.used(g); u != nil && n.host == alone {
			avoid := u.avoid
			for _, ch := range without {
				if slices.Contains(c.classOf(ch).api.Avoids, g) {
					avoid--
				}
			}
			if avoid > 0 {
				return Avoided
			}
		}
	}
	return Nothing
}

// avoidsItself reports whether two pods of a class keep each other away.
func (cl *class) avoidsItself() bool {
	return slices.ContainsFunc(cl.api.Avoids, func(g uint32) bool { return slices.Contains(cl.api.In, g) })
}

// Avoided returns the groups that some charged pod avoids.
func (c *Cache) Avoided() map[uint32]bool {
	out := map[uint32]bool{}
	for _, cl := range c.classes {
		if cl.refs > 0 {
			for _, g := range cl.api.Avoids {
				out[g] = true
			}
		}
	}
	return out
}
