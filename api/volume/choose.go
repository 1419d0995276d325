package volume

import (
	"cmp"
	"fmt"
	"iter"
	"slices"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// Which volumes that exist, or that can be provisioned, the claims of a pod may have together.

// Supply is what there is for the unbound claims of a StorageClass.
type Supply interface {
	Class(name string) *Class // nil for none
	Offers(class string) []*Volume
	Capacities(class string) []*Capacity
	CapacityChecked(driver string) bool // CSIDriver spec.storageCapacity
	Mark(plugin string)                 // as in Cluster
}

// Choice is where pods may run whose claims of one StorageClass ask for the same.
type Choice struct {
	// Where has the nodes of one pod in each element, as many as bounds make of them: each pod may run where one of
	// them matches. nil in it matches any node.
	Where []*v1.NodeSelector
	Why   string         // why there is nothing, with an empty Where
	Free  map[string]int // where the class provisions none: how many volumes suit a claim, by Claim.Request
	Bytes int            // about what it has, for who keeps many
	all   union          // Where in one
}

// Within returns what is left of Where for pods that can go only to nodes with these labels. It is in fewer parts as
// a rule: what names values of one label is looked at, the rest is all there.
func (c *Choice) Within(nodes iter.Seq[map[string]string]) []*v1.NodeSelector {
	some := union{values: map[string]map[string]bool{}, terms: c.all.terms}
	for node := range nodes {
		for label, values := range c.all.values {
			if value, has := node[label]; has && values[value] {
				if some.values[label] == nil {
					some.values[label] = map[string]bool{}
				}
				some.values[label][value] = true
			}
		}
	}
	if where := some.selectors(); len(where) > 0 {
		return where
	}
	return c.Where
}

// offered is a volume, with the claims that it suits.
type offered struct {
	*Volume
	suits []bool
}

// place is where some volumes can be used.
type place struct {
	where   *v1.NodeSelector
	volumes []offered
}

// Choose says where pods can run that have these claims of one StorageClass. As for kube-scheduler, each of them has
// to have a volume: the smaller claims choose first, the smallest volume that suits them, and what finds none is
// provisioned.
//
// Volumes are compared by the nodes that they name, without a look at any node. So where volumes of different
// affinities may be usable on one node, a place may seem to have more than it has. That is found when they are bound.
func Choose(claims []*Claim, s Supply) *Choice {
	name := claims[0].Class
	class := s.Class(name)
	if class.Refused != "" {
		return &Choice{Why: "StorageClass " + name + ": " + class.Refused}
	}
	asks := make([]*Ask, len(claims))
	for i, claim := range claims {
		asks[i] = claim.Ask("", "")
	}
	slices.SortStableFunc(asks, bySize)
	places, everywhere, every := map[string]*place{}, []offered(nil), []offered(nil)
	labels := map[string]bool{} // over which places differ, "" for more than one value of one label
	for _, v := range s.Offers(name) {
		if w := v.at.where; w != nil && !slices.ContainsFunc(w.NodeSelectorTerms, hasRequirements) {
			continue // it can be used on no node
		}
		o, some := offered{v, make([]bool, len(asks))}, false
		for i, ask := range asks {
			o.suits[i] = v.Suits(ask)
			some = some || o.suits[i]
		}
		if !some {
			continue
		}
		if v.Plugin != "" {
			s.Mark(v.Plugin)
		}
		if every = append(every, o); v.at.where == nil {
			everywhere = append(everywhere, o)
			continue
		}
		p := places[v.at.key]
		if p == nil {
			p = &place{where: v.at.where}
			places[v.at.key] = p
			labels[v.at.label] = true
		}
		p.volumes = append(p.volumes, o)
	}
	var all union
	slices.SortFunc(everywhere, smallerOffer)
	base := unserved(len(asks), everywhere)
	why := fmt.Sprintf("no PersistentVolume of StorageClass %s suits it, and the class provisions none", name)
	if len(claims) > 1 && len(every) > 0 {
		why = fmt.Sprintf("no node has PersistentVolumes of StorageClass %s for all %d claims of the pod, "+
			"and the class provisions none", name, len(claims))
	}
	switch {
	case base < 0:
		all.add(nil)
	case class.Provisioner != "":
		var some bool
		if some, why = class.provision(name, asks[base], s, &all); some {
			why = ""
		}
	}
	overlap := len(labels) > 1 || labels[""]
	least := -1 // unserved where all volumes can be used, as if places with different labels had all nodes in common
	if overlap {
		slices.SortFunc(every, smallerOffer)
		least = unserved(len(asks), every)
	}
	for _, key := range api.SortedKeys(places) {
		if all.any {
			break
		}
		p := places[key]
		slices.SortFunc(p.volumes, smallerOffer)
		left := unserved(len(asks), p.volumes, everywhere)
		if left >= 0 && overlap {
			left = min(left, least)
		}
		switch {
		case left < 0:
			all.add(p.where)
		case left < base && class.Provisioner != "": // less is to be provisioned than elsewhere
			var there union
			class.provision(name, asks[left], s, &there)
			for _, where := range there.selectors() {
				if both, ok := api.AllOf(p.where, where); ok {
					all.add(both)
				}
			}
		}
	}
	if overlap {
		all = each(asks, every, all, func(ask *Ask, alone *union) {
			if class.Provisioner != "" {
				class.provision(name, ask, s, alone)
			}
		})
	}
	out := &Choice{Where: all.selectors(), all: all}
	for _, s := range out.Where {
		out.Bytes += 2 * s.Size() // there, and in all
	}
	if class.Provisioner == "" {
		out.Free = map[string]int{}
		for i, ask := range asks {
			n := 0
			for _, o := range every {
				if o.suits[i] {
					n++
				}
			}
			out.Free[ask.request] = n
			out.Bytes += len(ask.request)
		}
	}
	if len(out.Where) == 0 {
		out.Why = "the claim is not bound: " + cmp.Or(why, "its StorageClass "+name+" allows no topology")
	}
	return out
}

// each leaves of a union what is left where each claim by itself has to have a volume, or one can be provisioned. It
// leaves all of it where that has too many terms.
func each(asks []*Ask, every []offered, all union, provision func(*Ask, *union)) union {
	parts := all.selectors()
	if len(asks) < 2 || len(parts) != 1 {
		return all
	}
	where := parts[0]
	for i, ask := range asks {
		var alone union
		for _, o := range every {
			if o.suits[i] {
				alone.add(o.at.where)
			}
		}
		provision(ask, &alone)
		if alone.any {
			continue
		}
		s := alone.selectors()
		if len(s) == 0 {
			return union{}
		}
		if both, ok := api.AllOf(where, s[0]); ok && len(s) == 1 {
			where = both
		}
	}
	out := union{}
	out.add(where)
	return out
}

// hasRequirements is false for a term that matches nothing.
func hasRequirements(t v1.NodeSelectorTerm) bool {
	return len(t.MatchExpressions)+len(t.MatchFields) > 0
}

// unserved returns the last of some claims that finds no volume if they choose one after another, -1 if all find one.
// The smallest volume of a list is its first.
func unserved(claims int, lists ...[]offered) int {
	left, taken := -1, make([][]bool, len(lists))
	for l := range lists {
		taken[l] = make([]bool, len(lists[l]))
	}
	for i := range claims {
		var best *Volume
		var takes *bool
		for l, list := range lists {
			k := 0
			for k < len(list) && (taken[l][k] || !list[k].suits[i]) {
				k++
			}
			if k < len(list) && (best == nil || smaller(list[k].Volume, best) < 0) {
				best, takes = list[k].Volume, &taken[l][k]
			}
		}
		if best == nil {
			left = i
		} else {
			*takes = true
		}
	}
	return left
}

func smallerOffer(a, b offered) int { return smaller(a.Volume, b.Volume) }

func smaller(a, b *Volume) int {
	return cmp.Or(cmp.Compare(a.size, b.size), cmp.Compare(a.Name(), b.Name()))
}

func bySize(a, b *Ask) int { return cmp.Compare(a.size, b.size) }
