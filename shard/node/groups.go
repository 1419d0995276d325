package node

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/shard/topology"
)

// groups are the pods that required anti-affinity terms match, one group for each term: pods that carry the term go to no node with a pod of the group, and
// pods of the group to no node with a pod that carries it. The cache counts both by node; which pods belong to which group is found here.
//
// For terms whose domains are single nodes, this shard decides alone: it is the only one that binds pods to its nodes, and a hold counts
// like a bound pod. It learns the terms from bound pods and from the classes that home shards ask for, and what it compares with them, the
// labels of pods, likewise. A home shard that knows of no term does not say labels: then its pods belong to all groups of their
// namespace, so nothing is overlooked, and they have room again as soon as it knows.
//
// Terms with larger domains are package topology's (topology.go).
//
// A term that crosses namespaces has a group for each namespace whose pods carry it, for it counts as that one may
// (api.TermsOf).
//
// Invariant: a charge in the cache belongs to the groups of its kin, and avoids those of its terms.
type groups struct {
	last       uint32
	byTerm     map[string]*group            // and by namespace, for terms that cross it
	named      map[string][]*group          // by the namespaces that their terms name
	anywhere   []*group                     // those with terms that select namespaces
	made       map[string]int               // by the namespace of the pods that brought them
	kins       map[string]map[kinKey][]*kin // by namespace
	counted    int                          // kins
	swept      int                          // that were left by the last sweep
	terms      map[string][]*api.Term       // what was read lately
	bare       map[string]*api.Class        // what bareOf made lately, by the key of the class
	bareBytes  int                          // of keys in it, at most
	namespaces map[string]map[string]string // their labels
	hosts      map[string]map[string]bool   // the nodes with a hostname, all of the cluster
}

// group is the pods that a term matches.
type group struct {
	number uint32
	term   *api.Term
	by     string    // the namespace of the pods that brought it,
	own    bool      // and carry it: it crosses namespaces
	weight int       // in groups.made
	used   time.Time // when a pod that carries it was asked for, or seen
}

// kin is the pods of a namespace that have equal labels, or unknown ones.
type kin struct {
	namespace string
	labels    *api.Labels
	unknown   bool
	in        []uint32 // groups that they belong to, in order
	used      bool     // pods of it may be charged
}

type kinKey struct {
	hash    uint64
	unknown bool
}

// Bounds of what the pods of a namespace may cost. A term about namespaces with some labels counts as many, for it is compared with the
// pods of all.
const (
	groupsByNamespace = 1024 // different terms
	anywhereCounts    = 16
	kinsKept          = 4096 // that are not looked through for those that nobody needs
	termsKept         = 4096
	bareKept          = 4096
	bareBytes         = 8 << 20
	newGroupBytes     = 32 // what a new term costs its namespace for each kin and each bound pod, in bytes of constraints compared
)

func newGroups() groups {
	return groups{byTerm: map[string]*group{}, named: map[string][]*group{}, made: map[string]int{}, kins: map[string]map[kinKey][]*kin{},
		terms: map[string][]*api.Term{}, bare: map[string]*api.Class{}, namespaces: map[string]map[string]string{}, hosts: map[string]map[string]bool{}}
}

// kin returns the kin of pods, which it makes if it is new.
func (c *Core) kin(namespace string, labels *api.Labels, unknown bool) *kin {
	key := kinKey{unknown: unknown}
	if labels != nil && !unknown {
		key.hash = labels.Hash
	}
	of := c.groups.kins[namespace]
	for _, k := range of[key] {
		if unknown || k.labels.Equal(labels) {
			return k
		}
	}
	k := &kin{namespace: namespace, unknown: unknown}
	if !unknown {
		k.labels = labels
	}
	c.groups.sort(k)
	if of == nil {
		of = map[kinKey][]*kin{}
		c.groups.kins[namespace] = of
	}
	of[key] = append(of[key], k)
	c.groups.counted++
	return k
}

// kinOf is the kin of the pods of a class that a home shard asked for.
func (c *Core) kinOf(namespace string, class *api.Class) *kin {
	return c.kin(namespace, class.Labels, !class.Labelled)
}

// sort finds the groups that the pods of a kin belong to.
func (s *groups) sort(k *kin) {
	k.in = nil
	for _, list := range [][]*group{s.named[k.namespace], s.anywhere} {
		for _, g := range list {
			if s.matches(g, k) {
				k.in = append(k.in, g.number)
			}
		}
	}
	slices.Sort(k.in)
	k.in = slices.Compact(k.in)
}

func (s *groups) matches(g *group, k *kin) bool {
	if g.own && k.namespace != g.by && s.namespaces[g.by][api.LabelRepelsOthers] != "true" {
		return false
	}
	if k.unknown {
		if fault.On(fault.UnsaidLabels) {
			return false
		}
		return g.term.Concerns(k.namespace, s.namespaces[k.namespace])
	}
	return g.term.Matches(k.namespace, s.namespaces[k.namespace], k.labels)
}

// placed returns the class of pods of a kin as the cache counts it: with groups in place of terms and labels, and without wishes. It is not ok for a namespace
// that has asked for too many groups.
func (c *Core) placed(k *kin, class *api.Class, requested bool) (_ *api.Class, ok bool) {
	if len(class.Repels) == 0 && len(k.in) == 0 {
		if class.Labelled || len(class.Wishes)+len(class.Leanings) > 0 {
			return c.groups.bareOf(class), true
		}
		return class, true
	}
	var avoids []uint32
	if len(class.Repels) > 0 {
		for _, t := range c.groups.read(class.Repels) {
			if t.Topology != api.LabelHostname {
				continue
			}
			g := c.groupOf(t, k.namespace, requested)
			if g == nil && requested {
				return class, false
			} else if g == nil {
				continue
			}
			avoids = append(avoids, g.number)
		}
		slices.Sort(avoids)
		avoids = slices.Compact(avoids)
	}
	return api.MakeClass(api.Class{Requests: class.Requests, Attach: class.Attach, Constraints: class.Constraints, In: k.in, Avoids: avoids}), true
}

// bareOf returns a class without terms, labels and wishes. Most pods are like others that came a moment ago.
func (s *groups) bareOf(class *api.Class) *api.Class {
	if of := s.bare[class.Key]; of != nil {
		return of
	}
	of := api.MakeClass(api.Class{Requests: class.Requests, Attach: class.Attach, Constraints: class.Constraints})
	if s.bareBytes += len(class.Key) + len(of.Key); len(s.bare) >= bareKept || s.bareBytes > bareBytes {
		clear(s.bare)
		s.bareBytes = 0
	}
	s.bare[class.Key] = of
	return of
}

// read returns the terms that a class carries.
func (s *groups) read(repels []byte) []*api.Term {
	if terms, known := s.terms[string(repels)]; known {
		return terms
	}
	terms, err := api.ReadRepels(repels)
	if err != nil {
		terms = nil // a pod of ours with such terms is refused when it is read
	}
	if len(s.terms) >= termsKept {
		clear(s.terms)
	}
	s.terms[string(repels)] = terms
	return terms
}

// groupOf returns the group of a term that pods of a namespace carry, which it makes if it is new; nil when the namespace has too many.
// Terms of pods that are bound are left out beyond that, too, and an error says so: nobody may cost others more than a moment.
func (c *Core) groupOf(t *api.Term, by string, requested bool) *group {
	s, id, own := &c.groups, t.ID, t.Crosses(by)
	if own {
		id += "\x00" + by
	}
	if g := s.byTerm[id]; g != nil {
		g.used = c.now
		return g
	}
	named, selects := t.Namespaces()
	weight := 1
	if selects {
		weight = anywhereCounts
	}
	if s.made[by]+weight > groupsByNamespace || requested && c.spent.Spent(c.now, by) >= comparedAtOnce {
		if !requested {
			c.log(slog.LevelError, "namespace exceeds its limit of anti-affinity terms; ignoring one",
				slog.String("namespace", by), slog.Int("limit", groupsByNamespace))
		}
		return nil
	}
	s.made[by] += weight
	s.last++
	g := &group{number: s.last, term: t, by: by, own: own, weight: weight, used: c.now}
	s.byTerm[id] = g
	for _, namespace := range named {
		s.named[namespace] = append(s.named[namespace], g)
	}
	if selects {
		s.anywhere = append(s.anywhere, g)
		named = api.SortedKeys(s.kins)
	}
	members, looked := false, 0
	for _, namespace := range named {
		for _, list := range s.kins[namespace] {
			for _, k := range list {
				if looked++; s.matches(g, k) {
					k.in = append(slices.Clip(k.in), g.number) // the largest number so far
					members = members || k.used
				}
			}
		}
	}
	if members {
		looked += len(c.bound)
		c.recount(func(k *kin) bool { return slices.Contains(k.in, g.number) })
	}
	c.spent.Spend(c.now, by, int64(looked)*newGroupBytes)
	return g
}

// recount charges pods whose kin belongs to other groups now.
func (c *Core) recount(of func(*kin) bool) {
	kins := map[string]*kin{} // by charge
	note := func(k *kin, charge string) {
		if k != nil && charge != "" && of(k) {
			kins[charge] = k
		}
	}
	for uid, b := range c.bound {
		note(b.kin, uid)
	}
	for uid, b := range c.nominated {
		note(b.kin, uid+nominatedCharge)
	}
	for _, g := range c.gangs {
		for uid, h := range g.holds {
			note(h.kin, uid)
		}
		for uid, p := range g.promises {
			note(p.kin, uid)
		}
		for _, r := range g.rows {
			note(r.kin, r.charge)
		}
	}
	for _, charge := range api.SortedKeys(kins) {
		if p, charged := c.cache.Lookup(charge); charged {
			class := api.MakeClass(api.Class{Requests: p.Class.Requests, Attach: p.Class.Attach, Constraints: p.Class.Constraints, In: kins[charge].in, Avoids: p.Class.Avoids})
			c.cache.Charge(charge, p.Node, class, p.Kind, p.Gang, p.Rank)
		}
	}
}

// namespaceSeen sorts the pods of a namespace anew if terms select namespaces and its labels are others now.
func (c *Core) namespaceSeen(name string, labels map[string]string) {
	s := &c.groups
	if maps.Equal(s.namespaces[name], labels) {
		return
	}
	right := s.namespaces[name][api.LabelRepelsOthers] != labels[api.LabelRepelsOthers]
	if labels == nil {
		delete(s.namespaces, name)
	} else {
		s.namespaces[name] = labels
	}
	resort := func(namespace string) {
		for _, list := range s.kins[namespace] {
			for _, k := range list {
				s.sort(k)
			}
		}
	}
	switch {
	case right && s.crosses(name):
		for namespace := range s.kins {
			resort(namespace)
		}
		c.recount(func(*kin) bool { return true })
	case len(s.anywhere) > 0:
		resort(name)
		c.recount(func(k *kin) bool { return k.namespace == name })
	}
}

// crosses reports whether a term that pods of a namespace carry is about others.
func (s *groups) crosses(namespace string) bool {
	for _, g := range s.byTerm {
		if g.own && g.by == namespace {
			return true
		}
	}
	return false
}

// hostSeen takes a node's hostname, "" when it is gone. It is one node's alone; nodes that share one are doubtful.
func (c *Core) hostSeen(name, before, now string) {
	if before == now {
		return
	}
	hosts := c.groups.hosts
	if delete(hosts[before], name); len(hosts[before]) == 0 {
		delete(hosts, before)
	}
	if now != "" {
		if hosts[now] == nil {
			hosts[now] = map[string]bool{}
		}
		hosts[now][name] = true
	}
	for _, host := range []string{before, now} {
		if len(hosts[host]) == 1 || len(hosts[host]) == 2 {
			for node := range hosts[host] {
				c.cache.Doubt(node, len(hosts[host]) > 1)
			}
		}
	}
}

// sweepGroups forgets groups that no pod carries, and kins of which there are no pods.
func (c *Core) sweepGroups() {
	s := &c.groups
	if len(s.byTerm) > 0 {
		carried := c.cache.Avoided()
		var gone []*group
		for id, g := range s.byTerm {
			if !carried[g.number] && c.now.Sub(g.used) >= topology.CountKept {
				gone = append(gone, g)
				delete(s.byTerm, id)
				if s.made[g.by] -= g.weight; s.made[g.by] == 0 {
					delete(s.made, g.by)
				}
			}
		}
		for _, g := range gone {
			named, _ := g.term.Namespaces()
			for _, namespace := range named {
				if s.named[namespace] = slices.DeleteFunc(s.named[namespace], func(o *group) bool { return o == g }); len(s.named[namespace]) == 0 {
					delete(s.named, namespace)
				}
			}
			s.anywhere = slices.DeleteFunc(s.anywhere, func(o *group) bool { return o == g })
		}
		if len(gone) > 0 { // pods that are charged keep the numbers, which nothing has any more
			for _, kins := range s.kins {
				for _, list := range kins {
					for _, k := range list {
						k.in = slices.DeleteFunc(slices.Clone(k.in), func(number uint32) bool {
							return slices.ContainsFunc(gone, func(g *group) bool { return g.number == number })
						})
					}
				}
			}
		}
	}
	if s.counted < kinsKept || s.counted < 2*s.swept {
		return
	}
	needed := map[*kin]bool{}
	for _, b := range c.bound {
		needed[b.kin] = true
	}
	for _, b := range c.nominated {
		needed[b.kin] = true
	}
	for _, g := range c.gangs {
		for _, h := range g.holds {
			needed[h.kin] = true
		}
		for _, p := range g.promises {
			needed[p.kin] = true
		}
		for _, r := range g.rows {
			needed[r.kin] = true
		}
	}
	s.counted = 0
	for namespace, kins := range s.kins {
		for key, list := range kins {
			list = slices.DeleteFunc(list, func(k *kin) bool { return !needed[k] })
			if kins[key] = list; len(list) == 0 {
				delete(kins, key)
			}
			s.counted += len(list)
		}
		if len(kins) == 0 {
			delete(s.kins, namespace)
		}
	}
	s.swept = s.counted
}
