package topology

import (
	"slices"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// Full reports whether the pods of a namespace ask for about as much as is counted for it.
func (v *View) Full(namespace string) bool {
	const most = countedByNamespace - anywhereCounts
	return v.made[namespace] > most || v.carried[namespace] > most || v.tallied[namespace] >= talliesByNamespace
}

// spreadTally returns the tally of a spread of a namespace's pods, nil if the namespace has so many, or has had too
// much counted lately.
func (v *View) spreadTally(c *counter, by string, s *api.Spread, beside []string, own *v1.PodSpec, constraints []byte, most int) *tally {
	full := v.tallied[by] >= most || v.spent.Spent(v.now, by) >= countedAtOnce
	f, ok := v.filterOf(s, own, constraints, by, !full)
	if !ok {
		return nil
	}
	t := v.knownTally(c, s.Topology, beside, f)
	if t == nil && full {
		return nil
	}
	if t == nil {
		t = v.newTally(c, s.Topology, beside, f)
		v.pays(t, by)
		v.spent.Spend(v.now, by, int64(v.there*(1+len(beside))))
	}
	t.used = v.now
	return t
}

// counterOf returns the counter of what a namespace asks for, which it makes if it is new. It is nil if the namespace
// has too many, or has had too much counted lately.
func (v *View) counterOf(id, by string, spaces []string, matches func(k *kin) bool) *counter {
	if s := v.counters[id]; s != nil {
		s.keep(v.now)
		s.tell(by)
		return s
	}
	weight := 1
	if spaces == nil {
		weight = anywhereCounts
	}
	if v.made[by]+weight > countedByNamespace || v.made[by]+weight > freeCounts && v.isBusy(by) || v.spent.Spent(v.now, by) >= countedAtOnce {
		return nil
	}
	all := spaces
	if spaces == nil {
		v.allCounted()
		all = api.SortedKeys(v.spaces)
	}
	looked, matching := int64(v.there), []*kin(nil)
	for _, name := range all {
		of := v.in(name)
		v.watch(of)
		for _, list := range of.kins {
			for _, k := range list {
				looked++
				if matches(k) {
					matching = append(matching, k)
					looked += int64(len(k.in) + len(k.on))
				}
			}
		}
	}
	v.spent.Spend(v.now, by, looked)
	s := &counter{
		id: id, matches: matches, spaces: spaces, on: map[int32]counts{},
		by: map[string]bool{by: true}, maker: by, weight: weight, used: v.now,
	}
	v.enter(s)
	for _, name := range spaces {
		v.spaces[name].counters = append(v.spaces[name].counters, s)
	}
	for _, k := range matching {
		k.in = append(slices.Clip(k.in), s)
		k.weigh()
		s.addAll(k, 1)
	}
	return s
}

// allCounted has the pods of all namespaces counted from now on, and of those that come.
func (v *View) allCounted() {
	v.everywhere = true
	for _, name := range api.SortedKeys(v.spaces) {
		v.watch(v.spaces[name])
	}
}
