package cache

import "basalt.dev/basalt/api"

// Cache is made by New. It is not safe for concurrent use.
type Cache struct{}

// New makes an empty cache.
func New(cfg Config) *Cache { panic("todo") }

// SetNode tells what a node is now. Charges on it, also those made while it was unknown, count at once.
func (c *Cache) SetNode(n *api.Node) { panic("todo") }

// RemoveNode tells that a node is gone. Its charges stay remembered and count again if it comes back.
func (c *Cache) RemoveNode(name string) { panic("todo") }

// Node returns a copy of what is known of a node that is there.
func (c *Cache) Node(name string) (NodeView, bool) { panic("todo") }

// Charge puts a pod onto a node, in place of an earlier charge of the same UID, on whatever node that was. It never
// refuses: what fits is asked before. The node may be unknown yet. Gang and rank matter for holds.
func (c *Cache) Charge(uid, node string, class *api.Class, kind Kind, gang string, rank api.Rank) {
	panic("todo")
}

// Release takes a pod's charge away, and tells whether there was one.
func (c *Cache) Release(uid string) bool { panic("todo") }

// Lookup returns a pod's charge.
func (c *Cache) Lookup(uid string) (Placement, bool) { panic("todo") }

// CanPlace tells what keeps one more pod of a class from a node now. A pod that is already charged there is asked about
// with CanStay.
func (c *Cache) CanPlace(class *api.Class, node string) Misfit { panic("todo") }

// CanStay asks the same about a pod that has a charge, for its node, as if the pod came last: what is asked before a hold
// becomes an intent.
func (c *Cache) CanStay(uid string) Misfit { panic("todo") }

// Place returns the best node for one more pod of a class by the policy; equally good ones by lowest slot. It charges
// nothing.
func (c *Cache) Place(class *api.Class) (node string, ok bool) { panic("todo") }

// PlaceTaking is Place, and where no node has room, it may count away holds of a worse rank than the given one: victims are
// the UIDs of the pods whose holds have to be released first. It charges and releases nothing.
func (c *Cache) PlaceTaking(class *api.Class, rank api.Rank) (node string, victims []string, ok bool) {
	panic("todo")
}

// Why tells for each node what keeps one more pod of a class from it now.
func (c *Cache) Why(class *api.Class) Reasons { panic("todo") }

// Totals of the nodes that are there.
func (c *Cache) Totals() Totals { panic("todo") }

// RoomVersion is Totals().RoomVersion, for less.
func (c *Cache) RoomVersion() uint64 { panic("todo") }

// OutOfSync returns the names of the nodes that are out of sync, sorted.
func (c *Cache) OutOfSync() []string { panic("todo") }

// Check makes everything again from nodes and charges and compares: for tests and the simulator.
func (c *Cache) Check() error { panic("todo") }
