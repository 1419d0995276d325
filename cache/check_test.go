package cache

import (
	"testing"

	"basalt.dev/basalt/api"
)

// Check is the judge of the other tests and of the simulator: whatever of the cache is broken, it says so.
func TestCheckFindsWhatIsBroken(t *testing.T) {
	plain, ported := pod(map[string]string{"cpu": "1"}, nil), pod(map[string]string{"cpu": "2"}, hostPort(80, "", ""))
	slotOfA := func(c *Cache) *slot { return &c.slots[c.nodes["a"].slot] }
	classOf := func(c *Cache) *class { return c.classes[plain.Key] }
	for name, by := range map[string]func(c *Cache){
		"a node has another's name":             func(c *Cache) { c.nodes["a"].name = "b" },
		"a slot has another node's name":        func(c *Cache) { c.names[c.nodes["a"].slot] = "b" },
		"a node has another's slot":             func(c *Cache) { c.nodes["a"].slot = c.nodes["b"].slot },
		"a node is said to be gone":             func(c *Cache) { slotOfA(c).there = false },
		"a node too many":                       func(c *Cache) { c.there++ },
		"a slot too few":                        func(c *Cache) { c.freeSlots = append(c.freeSlots, c.nodes["a"].slot) },
		"a charge too many by UID":              func(c *Cache) { c.pods.n++ },
		"a charge too many on a node":           func(c *Cache) { slotOfA(c).holds++ },
		"a hold too many":                       func(c *Cache) { c.holding++ },
		"a node is not remembered for its hold": func(c *Cache) { slotOfA(c).held = false },
		"a node is remembered for no hold":      func(c *Cache) { c.slots[c.nodes["b"].slot].held = true },
		"a node is said to be out of sync":      func(c *Cache) { slotOfA(c).broken++ },
		"a node out of sync too many":           func(c *Cache) { c.outOfSync++ },
		"host ports are forgotten":              func(c *Cache) { c.nodes["a"].exclusives = nil },
		"host ports are not known to the slot":  func(c *Cache) { slotOfA(c).exclusive = false },
		"a host port has a pod too many":        func(c *Cache) { c.nodes["a"].exclusives[0].pods++ },
		"more is free":                          func(c *Cache) { c.freeOf(c.nodes["a"].slot)[0]++ },
		"a column has another index":            func(c *Cache) { c.columns[0].i++ },
		"a column is offered once too often":    func(c *Cache) { c.columns[0].offers++ },
		"a dead column too many":                func(c *Cache) { c.dead++ },
		"a class has a reference too many":      func(c *Cache) { classOf(c).refs++ },
		"a class is not stored":                 func(c *Cache) { delete(c.classes, plain.Key) },
		"a class has another's number":          func(c *Cache) { c.numbered[classOf(c).number] = nil },
		"a class is said to be planned":         func(c *Cache) { classOf(c).planned = !classOf(c).planned },
		"a class looks in another column":       func(c *Cache) { classOf(c).requests[0].col++ },
		"constraints have a class too many":     func(c *Cache) { classOf(c).set.classes++ },
		"constraints have a plan too many":      func(c *Cache) { classOf(c).set.planned++ },
		"constraints are not stored":            func(c *Cache) { delete(c.sets, string(plain.Constraints)) },
		"a row has a user too many":             func(c *Cache) { c.shapes.users[slotOfA(c).shape]++ },
		"a row is spare and used":               func(c *Cache) { c.shapes.spare = append(c.shapes.spare, slotOfA(c).shape) },
		"a row is not found":                    func(c *Cache) { clear(c.shapes.byRow) },
		"a slot is marked and not to be done":   func(c *Cache) { slotOfA(c).marked = !slotOfA(c).marked },
		"a node is not where it says":           func(c *Cache) { c.index.order.where[c.nodes["a"].slot] = 0 },
	} {
		t.Run(name, func(t *testing.T) {
			c := New(Config{})
			c.SetNode(machine("a", 8000, 8<<30, 0))
			c.SetNode(machine("b", 8000, 8<<30, 1))
			c.Charge("p1", "a", plain, Bound, "", api.Rank{})
			c.Charge("p2", "a", ported, Intent, "g", api.Rank{})
			if node, _, ok := c.PlaceWithin(plain, api.Rank{Gang: "h"}, nil); ok {
				c.Charge("p3", "a", plain, Hold, "h", api.Rank{Gang: "h"})
				c.PlaceWithin(plain, api.Rank{Gang: "h"}, nil)
			} else {
				t.Fatal("no room", node)
			}
			check(t, c)
			by(c)
			err := func() (err any) {
				defer func() {
					if r := recover(); r != nil {
						err = r
					}
				}()
				return c.Check()
			}()
			if err == nil {
				t.Error("Check finds nothing")
			}
		})
	}
}
