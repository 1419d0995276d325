package cache

import (
	"math/bits"
	"slices"

	"basalt.dev/basalt/api"
)

// Images that nodes have already (api.Rules.Images), by kube-scheduler's formula ImageLocality: of each image of a pod that a node has, its size
// counts times the share of nodes that have it. So what few nodes have does not draw all pods of a job to them. Below 23 MB for all
// containers a node has no points, from 1,000 MB a container on it has all.
//
// The share is that of the nodes of this cache, which are a sample of all: names are hashed. It is kept as a power of two, and moves only when
// it is off by a factor of two, because each move means to look at all nodes once more.

const (
	leastImages = 23 << 20
	mostAnImage = 1000 << 20
	tooFew      = 16 // an image that fewer nodes have than one in 1 << tooFew counts for nothing
)

// wishedImage is one of a pod's images.
type wishedImage struct {
	name  string
	share uint8 // one node in 1 << share has it
}

// shareOf returns of how many nodes one has an image, as a power of two, rounded down.
func (c *Cache) shareOf(name string) uint8 {
	have := c.images[name]
	if have == 0 {
		return tooFew
	}
	return uint8(min(tooFew, bits.Len(uint(c.there)/uint(have))-1))
}

// imagesOn returns the score of the images that a node has.
func (w *wish) imagesOn(n *api.Node) int64 {
	if len(w.images) == 0 || len(n.Images) == 0 {
		return 0
	}
	sum := int64(0)
	for _, image := range w.images {
		if image.share < tooFew {
			sum = api.AddSat(sum, n.Images.Size(image.name)>>image.share)
		}
	}
	most := int64(len(w.images)) * mostAnImage
	return maxScore * (min(max(sum, leastImages), most) - leastImages) / (most - leastImages)
}

// countImages counts what a node had and has; nil when it is not there. It reports whether that changed.
func (c *Cache) countImages(before, now *api.Node) (changed bool) {
	var had, has api.Images
	if before != nil {
		had = before.Images
	}
	if now != nil {
		has = now.Images
	}
	if slices.Equal(had, has) {
		return false
	}
	count := func(images api.Images, by int32) {
		for _, h := range images {
			name := h.Value().Name
			if c.images[name] += by; c.images[name] == 0 {
				delete(c.images, name)
			}
		}
	}
	count(has, 1)
	count(had, -1)
	return true
}

// seenImages has what classes ask for found out anew for a slot whose node has other images, and for all slots that have an image of which
// another share of the nodes has it now.
func (c *Cache) seenImages(s int32) {
	c.reshareAll(s)
	for _, w := range c.wishes { // each by itself
		if len(w.images) == 0 {
			continue
		}
		if c.regradeSlot(w, s); w.stale {
			c.relevel(w)
		}
	}
	c.admit(s)
	c.touch(s)
}

// reshareAll follows the shares of nodes that have an image, when some have changed or the number of nodes has. One slot is left to the caller.
func (c *Cache) reshareAll(but int32) {
	having := map[string][]int32{} // slots, by image
	for _, w := range c.wishes {   // each by itself
		var all []int32
		for _, name := range c.reshare(w) {
			slots, known := having[name]
			if !known {
				slots = c.slotsWith(name)
				having[name] = slots
			}
			all = append(all, slots...)
		}
		slices.Sort(all)
		moved := false
		for i, s := range all {
			if s != but && (i == 0 || all[i-1] != s) {
				c.regradeSlot(w, s)
				moved = true
			}
		}
		if moved {
			c.relevel(w)
			c.dismissTiers(w)
		}
	}
}

// countedNodes follows the shares when nodes came or went, but not for each of them.
func (c *Cache) countedNodes() {
	if len(c.images) > 0 && (c.there < c.sharedOf-c.sharedOf/8 || c.there > c.sharedOf+c.sharedOf/8) {
		c.sharedOf = c.there
		c.reshareAll(-1)
	}
}

// slotsWith returns the slots whose nodes have an image.
func (c *Cache) slotsWith(image string) (out []int32) {
	if c.images[image] == 0 {
		return nil
	}
	for s := range c.slots {
		if c.slots[s].there && c.bySlot[s].object.Images.Size(image) > 0 {
			out = append(out, int32(s))
		}
	}
	return out
}

// reshare returns the images of a wish of which the share is off by a factor of two, and corrects it.
func (c *Cache) reshare(w *wish) (moved []string) {
	for i := range w.images {
		image := &w.images[i]
		if share := c.shareOf(image.name); share > image.share || share+2 <= image.share || (share == tooFew) != (image.share == tooFew) {
			image.share, moved = share, append(moved, image.name)
		}
	}
	return moved
}
