package progress

import "slices"

// Share is a queue as an independent judge of what it deserves and of its fair share sees it: in floating-point
// numbers, and little by little.
type Share struct {
	Path     string
	Children []*Share
	Wants    map[string]float64 // of a leaf, what it has and waits for
	Says     map[string]float64 // what it says that it deserves
	Limits   map[string]float64
	Pool     map[string]float64 // the limit by which its children compare what they want
	Priority int64
	Weight   float64

	Deserves, Fair map[string]float64
}

// Divide finds what all below deserve, and their fair shares, of what there is.
func (j *Share) Divide(names []string, pool map[string]float64) {
	j.add(names)
	for _, name := range names {
		j.Fair[name] = pool[name]
		j.Deserves[name] = min(j.Deserves[name], pool[name])
	}
	j.cut(names)
	j.pour(names)
}

// Walk calls f for the queue and all below it.
func (j *Share) Walk(f func(*Share)) {
	f(j)
	for _, c := range j.Children {
		c.Walk(f)
	}
}

// add finds what queues want, and would deserve if that were there.
func (j *Share) add(names []string) {
	j.Deserves, j.Fair = map[string]float64{}, map[string]float64{}
	if j.Wants == nil {
		j.Wants = map[string]float64{}
	}
	for _, c := range j.Children {
		c.add(names)
	}
	for _, name := range names {
		for _, c := range j.Children {
			j.Wants[name] += c.Wants[name]
			j.Deserves[name] += c.Deserves[name]
		}
		if d, is := j.Says[name]; is {
			j.Deserves[name] = d
		}
		if limit, limited := j.Limits[name]; limited {
			j.Wants[name], j.Deserves[name] = min(j.Wants[name], limit), min(j.Deserves[name], limit)
		}
	}
}

// cut divides what a queue deserves among its children: those that say something first, in proportion.
func (j *Share) cut(names []string) {
	for _, name := range names {
		left := j.Deserves[name]
		for _, says := range []bool{true, false} {
			sum := 0.0
			of := func(f func(c *Share)) {
				for _, c := range j.Children {
					if _, names := c.Says[name]; names == says {
						f(c)
					}
				}
			}
			of(func(c *Share) { sum += c.Deserves[name] })
			if sum > left {
				of(func(c *Share) { c.Deserves[name] *= left / sum })
			}
			left -= min(sum, left)
		}
	}
	for _, c := range j.Children {
		c.cut(names)
	}
}

// pour gives the children what they deserve or want, and then has all those of one priority take a little in turn, in
// proportion to their weights of what they want the largest part of the parent's limit of, among what they want more
// of than there is.
func (j *Share) pour(names []string) {
	left := map[string]float64{}
	for _, name := range names {
		left[name] = j.Fair[name]
		for _, c := range j.Children {
			c.Fair[name] = min(c.Wants[name], c.Deserves[name])
			left[name] -= c.Fair[name]
		}
	}
	group := func(c *Share) int64 {
		g := -2 * c.Priority
		if c.Weight == 0 {
			g++
		}
		return g
	}
	groups := map[int64][]*Share{}
	var order []int64
	for _, c := range j.Children {
		if groups[group(c)] == nil {
			order = append(order, group(c))
		}
		groups[group(c)] = append(groups[group(c)], c)
	}
	slices.Sort(order)
	for _, g := range order {
		j.pourEqual(groups[g], names, left)
	}
	for _, c := range j.Children {
		c.pour(names)
	}
}

func (j *Share) pourEqual(of []*Share, names []string, left map[string]float64) {
	lacked := map[string]bool{}
	for _, name := range names {
		sum := 0.0
		for _, c := range of {
			sum += c.Wants[name] - c.Fair[name]
		}
		lacked[name] = sum > left[name]
	}
	pace := map[*Share]map[string]float64{}
	for _, c := range of {
		pace[c] = map[string]float64{}
		top := 0.0
		for _, name := range names {
			if !lacked[name] {
				left[name] -= c.Wants[name] - c.Fair[name]
				c.Fair[name] = c.Wants[name]
			} else if limit := j.Pool[name]; limit > 0 {
				pace[c][name] = c.Wants[name] - c.Fair[name]
				top = max(top, pace[c][name]/limit)
			}
		}
		for name := range pace[c] {
			pace[c][name] *= max(1, c.Weight) / max(top, 1e-12) / 8000
		}
	}
	for more := true; more; {
		more = false
		for _, name := range names {
			for _, c := range of {
				if d := min(pace[c][name], c.Wants[name]-c.Fair[name], left[name]); d > 1e-6 {
					more = true
					c.Fair[name] += d
					left[name] -= d
				}
			}
		}
	}
}
