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

// seenImages has what classes ask for found out anew for a slot whose node has other images, and for all slots where other shares of the nodes have an image.
func (c *Cache) seenImages(s int32) {
	for _, w := range c.wishes { // each by itself
		if len(w.images) == 0 {
			continue
		}
		if !c.reshare(w) {
			if c.regradeSlot(w, s); w.stale {
				c.relevel(w)
			}
			continue
		}
		for s := range c.slots {
			if c.slots[s].there {
				c.regradeSlot(w, int32(s))
			}
		}
		c.relevel(w)
		c.dismissTiers(w)
	}
	c.admit(s)
	c.touch(s)
}

// reshare reports whether the share of the nodes that have an image is off by a factor of two.
func (c *Cache) reshare(w *wish) (moved bool) {
	for i := range w.images {
		image := &w.images[i]
		if share := c.shareOf(image.name); share > image.share || share+2 <= image.share || (share == tooFew) != (image.share == tooFew) {
			image.share, moved = share, true
		}
	}
	return moved
}
