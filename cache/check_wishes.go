package cache

import (
	"fmt"
	"maps"
)

// What tests check of grades.

// checkWishes scores all nodes again and compares.
func (c *Cache) checkWishes() error {
	some := 0
	for _, n := range c.nodes {
		if reluctant(n.object) {
			some++
		}
	}
	if some != c.reluctant || len(c.wishes) > c.limits.wishes {
		return fmt.Errorf("%d nodes have taints that prefer no pods, counted %d; %d wishes", some, c.reluctant, len(c.wishes))
	}
	images := map[string]int32{}
	for _, n := range c.nodes {
		if n.object != nil {
			for _, h := range n.object.Images {
				images[h.Value().Name]++
			}
		}
	}
	if !maps.Equal(images, c.images) {
		return fmt.Errorf("nodes have images %v, counted %v", images, c.images)
	}
	for key, w := range c.wishes {
		if w.key != key || w.dead || w.stale || len(w.kind) != len(c.slots) {
			return fmt.Errorf("wish %.40q: dead %t, stale %t, %d slots of %d", key, w.dead, w.stale, len(w.kind), len(c.slots))
		}
		slots := make([]int32, len(w.kinds))
		for s, k := range w.kind {
			slots[k]++
			n := c.bySlot[s]
			if allowed := n != nil && n.object != nil && w.set.judge(n.object) == admitted; allowed != (k != 0) ||
				allowed && len(w.kinds) <= maxKinds && w.likes(n.object) != w.kinds[k].liking {
				return fmt.Errorf("wish %.40q: slot %d is of kind %d", key, s, k)
			}
		}
		for i := 1; i < len(slots); i++ {
			if slots[i] != w.kinds[i].slots || slots[i] > 0 && (int(w.kinds[i].level) >= w.levels || w.kinds[i].fresh) {
				return fmt.Errorf("wish %.40q: %d nodes are of kind %d, counted %d, level %d of %d", key, slots[i], i,
					w.kinds[i].slots, w.kinds[i].level, w.levels)
			}
		}
	}
	return nil
}
