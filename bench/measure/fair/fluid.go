package fair

import "slices"

// node is a queue as the oracle sees it.
type node struct {
	path     string
	children []*node
	weight   float64
	deserved []float64 // by resource, in parts of the whole
	wanted   []float64 // charged and waiting
	gets     []float64
}

// steps is in how many parts the whole is poured.
const steps = 2000

// pour decides what the children of a node get of what it gets.
func (n *node) pour() {
	if len(n.children) == 0 {
		return
	}
	left := make([]float64, len(n.gets))
	copy(left, n.gets)
	for _, c := range n.children {
		c.gets = make([]float64, len(left))
		for r := range left {
			c.gets[r] = min(c.wanted[r], c.deserved[r], left[r])
			left[r] -= c.gets[r]
		}
	}
	more := func(c *node, r int) float64 { return c.wanted[r] - c.gets[r] }
	// How much of each resource a child takes for one part of its dominant one: in proportion to what it wanted at first.
	pace := make([][]float64, len(n.children))
	for i, c := range n.children {
		pace[i] = make([]float64, len(left))
		dominant := 0.0
		for r := range left {
			if n.gets[r] > 0 {
				dominant = max(dominant, more(c, r)/n.gets[r])
			}
		}
		for r := range left {
			if dominant > 0 {
				pace[i][r] = more(c, r) / dominant
			}
		}
	}
	for flows := true; flows; {
		flows = false
		for i, c := range n.children {
			part := 1.0 // of its step that there is room for; who lacks one resource cannot use the others
			for r := range left {
				if step := pace[i][r] * c.weight / steps; step > 0 {
					part = min(part, more(c, r)/step, left[r]/step)
				}
			}
			if part < 1e-6 || slices.Max(pace[i]) == 0 {
				continue
			}
			flows = true
			for r := range left {
				d := part * pace[i][r] * c.weight / steps
				c.gets[r] += d
				left[r] -= d
			}
		}
	}
	for _, c := range n.children {
		c.pour()
	}
}

// sum makes what the inner nodes want from what the leaves want.
func (n *node) sum() []float64 {
	if len(n.children) > 0 {
		n.wanted = make([]float64, len(n.wanted))
		for _, c := range n.children {
			for r, v := range c.sum() {
				n.wanted[r] += v
			}
		}
	}
	return n.wanted
}
