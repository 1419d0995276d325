package topology

import (
	"cmp"
	"slices"
)

// giveUp ends selectors of the namespaces that charge found.
func (v *View) giveUp() {
	if len(v.overspent) == 0 {
		return
	}
	var theirs []*counter
	for _, s := range v.counters {
		if v.overspent[s.maker] {
			theirs = append(theirs, s)
		}
	}
	slices.SortFunc(theirs, func(a, b *counter) int { return cmp.Compare(a.number, b.number) })
	dead, kept := map[*counter]bool{}, map[string]int{}
	for _, s := range theirs {
		if kept[s.maker]++; kept[s.maker] > freeCounts {
			dead[s] = true
			s.givenUp = true
			v.leave(s)
		}
	}
	clear(v.overspent)
	v.forget(dead)
}

// forget removes counters from all that they are kept in.
func (v *View) forget(dead map[*counter]bool) {
	if len(dead) == 0 {
		return
	}
	gone := func(s *counter) bool { return dead[s] }
	v.countAnywhere = slices.DeleteFunc(v.countAnywhere, gone)
	for _, s := range v.spaces {
		s.counters = slices.DeleteFunc(s.counters, gone)
		for _, list := range s.kins {
			for _, k := range list {
				if slices.ContainsFunc(k.in, gone) {
					k.in = slices.DeleteFunc(slices.Clone(k.in), gone)
					k.weigh()
				}
			}
		}
	}
	v.forgetTallies(func(t *tally) bool { return dead[t.counter] })
}

func (c *counting) forgetTallies(gone func(*tally) bool) {
	c.tallies = slices.DeleteFunc(c.tallies, func(t *tally) bool {
		if !gone(t) {
			return false
		}
		if t.maker != "" {
			if c.tallied[t.maker]--; c.tallied[t.maker] <= 0 {
				delete(c.tallied, t.maker)
			}
		}
		t.counter.tallies = slices.DeleteFunc(t.counter.tallies, func(o *tally) bool { return o == t })
		return true
	})
}

// sweep forgets what nobody asked for lately.
func (v *View) sweep() {
	if v.now.Sub(v.swept) < CountKept/6 {
		return
	}
	v.swept = v.now
	v.spent.Forget(v.now)
	v.busy.Forget(v.now)
	old := v.now.Add(-CountKept)
	clear(v.rules)
	clear(v.leanings)
	for _, s := range v.spaces {
		for key, list := range s.kins {
			list = slices.DeleteFunc(list, func(k *kin) bool {
				if len(k.on) > 0 {
					return false
				}
				for _, c := range k.terms {
					c.kins--
				}
				return true
			})
			if s.kins[key] = list; len(list) == 0 {
				delete(s.kins, key)
			}
		}
	}
	dead := map[*counter]bool{}
	for _, s := range v.counters {
		if s.used.Before(old) {
			dead[s] = true
			v.leave(s)
		}
	}
	idle := false
	for id, c := range v.carriers {
		if c.heeded && !c.repels() {
			c.heeded, idle = false, true
		}
		if c.kins == 0 && c.used.Before(old) {
			dead[&c.counter] = true
			c.drop(v.carried)
			delete(v.carriers, id)
		}
	}
	if idle {
		unheeded := func(c *carrier) bool { return !c.heeded }
		v.anywhere = slices.DeleteFunc(v.anywhere, unheeded)
		for _, s := range v.spaces {
			s.carriers, s.concerned = slices.DeleteFunc(s.carriers, unheeded), slices.DeleteFunc(s.concerned, unheeded)
		}
	}
	v.forget(dead)
	v.forgetTallies(func(t *tally) bool { return t.maker != "" && t.used.Before(old) })
	for name, s := range v.spaces {
		if len(s.pods)+len(s.kins)+len(s.counters)+len(s.carriers)+len(s.labels) == 0 {
			delete(v.spaces, name)
		}
	}
	filters, columns := map[*filter]bool{}, map[*column]bool{}
	for _, t := range v.tallies {
		filters[t.filter], columns[t.column] = true, true
		for _, c := range t.beside {
			columns[c] = true
		}
	}
	v.forgetFilters(filters)
	v.forgetNodes(columns)
}
