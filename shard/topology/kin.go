package topology

import (
	"cmp"
	"maps"
	"slices"

	"basalt.dev/basalt/api"
)

type kinKey struct {
	labels   uint64
	unlisted bool
	deleting bool
	repels   string
}

// kin are the pods of a namespace that count alike.
type kin struct {
	space    *space
	labels   *api.Labels
	unlisted bool // their labels are not known: they match whatever is said of them
	deleting bool
	terms    []*carrier // that they carry
	in       []*counter
	dear     []price // of a change
	on       map[int32]counts
}

// price is what a change of a pod costs a namespace: so many selectors beyond freeCounts.
type price struct {
	maker string
	n     int64
}

// kinOf returns the kin of a pod, which it makes if it is new.
func (v *View) kinOf(s *space, p *api.Pod) *kin {
	key := kinKey{unlisted: p.Unlisted, deleting: p.Deleting}
	if p.Class != nil {
		key.repels = string(p.Class.Repels)
	}
	if p.Labels != nil {
		key.labels = p.Labels.Hash
	}
	for _, k := range s.kins[key] {
		if k.labels.Equal(p.Labels) {
			return k
		}
	}
	k := &kin{space: s, labels: p.Labels, unlisted: p.Unlisted, deleting: p.Deleting, on: map[int32]counts{}}
	for _, t := range v.wide(s.name, key.repels) {
		if c := v.carrierOf(t, s.name, carriedByNamespace); c != nil {
			k.terms = append(k.terms, c)
			c.kins++
		} else {
			v.Excess[s.name] = true
		}
	}
	v.sort(k)
	s.kins[key] = append(s.kins[key], k)
	return k
}

// sort finds the counters that a kin belongs to.
func (v *View) sort(k *kin) {
	k.in = nil
	for _, list := range [][]*counter{k.space.counters, v.countAnywhere} {
		for _, s := range list {
			if s.matches(k) {
				k.in = append(k.in, s)
			}
		}
	}
	slices.SortFunc(k.in, func(a, b *counter) int { return cmp.Compare(a.number, b.number) })
	k.weigh()
	if n := len(k.space.counters); n > freeCounts {
		v.charge(k.space.name, int64(n)/4) // to compare costs a quarter of what counting does
	}
}

// weigh finds out which namespaces pay for a change of the kin's pods: those of which many selectors match it.
func (k *kin) weigh() {
	k.dear = nil
	if len(k.in) <= freeCounts {
		return
	}
	of := map[string]int64{}
	for _, s := range k.in {
		of[s.maker]++
	}
	for _, maker := range api.SortedKeys(of) {
		if n := of[maker]; n > freeCounts {
			k.dear = append(k.dear, price{maker, n - freeCounts})
		}
	}
}

func sortedKeys(m map[kinKey][]*kin) []kinKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b kinKey) int {
		return cmp.Or(cmp.Compare(a.labels, b.labels), cmp.Compare(a.repels, b.repels),
			cmp.Compare(flag(a.unlisted), flag(b.unlisted)), cmp.Compare(flag(a.deleting), flag(b.deleting)))
	})
}
