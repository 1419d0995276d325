package node

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"basalt.dev/basalt/api"
)

// groups are the pods that required anti-affinity terms match, one group for each term: pods that carry the term go to no node with a pod of the group, and
// pods of the group to no node with a pod that carries it. The cache counts both by node; which pods belong to which group is found here.
//
// For terms whose domains are single nodes, this shard decides alone: it is the only one that binds pods to its nodes, and a hold counts
// like a bound pod. It learns the terms from bound pods and from the classes that home shards ask for, and what it compares with them, the
// labels of pods, likewise. A home shard that knows of no term does not say labels: then its pods belong to all groups of their
// namespace, so nothing is overlooked, and they have room again as soon as it knows.
//
// Terms with larger domains are carried only by pods that others bound, for pods of ours with such terms are refused when they are read
// (api.FromPod). Every shard sees all of them, and keeps the pods of their groups from those of its nodes that are in their domains.
//
// Invariant: a charge in the cache belongs to the groups of its kin, and avoids those of its terms.
type groups struct {
	last       uint32
	byTerm     map[string]*group
	named      map[string][]*group // by the namespaces that their terms name
	anywhere   []*group            // those with terms that select namespaces
	made       map[string]int      // by the namespace whose pods asked for them
	kins       map[kinKey][]*kin
	swept      int                          // kins that were left by the last sweep
	namespaces map[string]map[string]string // their labels
	repelling  map[string]*repelling        // by UID: pods seen bound that carry terms with larger domains
	on         map[string]map[string]bool   // their UIDs, by node
	hosts      map[string]map[string]bool   // the nodes with a hostname, all of the cluster
}

// group is the pods that a term matches.
type group struct {
	number  uint32
	term    *api.Term
	by      string         // the namespace whose pods asked for it, "" for one that bound pods carry
	used    time.Time      // when a pod that carries it was asked for, or seen
	domains map[string]int // how many bound pods carry it in each of its domains, if these are larger than nodes
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
	namespace string
	hash      uint64
	unknown   bool
}

// repelling is a bound pod that carries terms with larger domains.
type repelling struct {
	node   string
	groups []*group
	values []string // of the nodes' labels, by group; "" where the node has none
}

// Bounds of groups that requests make, and for how long one is kept that no pod carries.
const (
	groupsByNamespace = 1024
	groupKept         = time.Minute
	kinsKept          = 4096 // that are not looked through for those that nobody needs
)

func newGroups() groups {
	return groups{byTerm: map[string]*group{}, named: map[string][]*group{}, made: map[string]int{}, kins: map[kinKey][]*kin{},
		namespaces: map[string]map[string]string{}, repelling: map[string]*repelling{}, on: map[string]map[string]bool{}, hosts: map[string]map[string]bool{}}
}

// kin returns the kin of pods, which it makes if it is new.
func (c *Core) kin(namespace string, labels *api.Labels, unknown bool) *kin {
	key := kinKey{namespace: namespace, unknown: unknown}
	if labels != nil && !unknown {
		key.hash = labels.Hash
	}
	for _, k := range c.groups.kins[key] {
		if unknown || k.labels.Equal(labels) {
			return k
		}
	}
	k := &kin{namespace: namespace, unknown: unknown}
	if !unknown {
		k.labels = labels
	}
	c.groups.sort(k)
	c.groups.kins[key] = append(c.groups.kins[key], k)
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
	if k.unknown {
		return g.term.Concerns(k.namespace, s.namespaces[k.namespace])
	}
	return g.term.Matches(k.namespace, s.namespaces[k.namespace], k.labels)
}

// placed returns the class of pods of a kin as the cache counts it: with groups in place of terms and labels. It is not ok for a namespace
// that has asked for too many groups.
func (c *Core) placed(k *kin, class *api.Class, requested bool) (_ *api.Class, ok bool) {
	if len(class.Repels) == 0 && len(k.in) == 0 {
		if class.Labelled {
			class = api.NewClass(class.Requests, class.Constraints)
		}
		return class, true
	}
	var avoids []uint32
	if len(class.Repels) > 0 {
		terms, err := api.ReadRepels(class.Repels)
		if err != nil {
			return class, false
		}
		for _, t := range terms {
			if t.Topology != api.LabelHostname {
				continue // of a bound pod: repels sees to it
			}
			by := ""
			if requested {
				by = k.namespace
			}
			g := c.groupOf(t, by)
			if g == nil {
				return class, false
			}
			avoids = append(avoids, g.number)
		}
		slices.Sort(avoids)
		avoids = slices.Compact(avoids)
	}
	return api.MakeClass(api.Class{Requests: class.Requests, Constraints: class.Constraints, In: k.in, Avoids: avoids}), true
}

// groupOf returns the group of a term, which it makes if it is new; nil when the namespace that asks for it has too many.
func (c *Core) groupOf(t *api.Term, by string) *group {
	s := &c.groups
	if g := s.byTerm[t.ID]; g != nil {
		g.used = c.now
		return g
	}
	if by != "" && s.made[by] >= groupsByNamespace {
		return nil
	}
	s.last++
	g := &group{number: s.last, term: t, by: by, used: c.now, domains: map[string]int{}}
	s.byTerm[t.ID] = g
	if by != "" {
		s.made[by]++
	}
	named, selects := t.Namespaces()
	for _, namespace := range named {
		s.named[namespace] = append(s.named[namespace], g)
	}
	if selects {
		s.anywhere = append(s.anywhere, g)
	}
	members := false
	for _, list := range s.kins {
		for _, k := range list {
			if s.matches(g, k) {
				k.in = append(slices.Clip(k.in), g.number) // the largest number so far
				members = members || k.used
			}
		}
	}
	if members {
		c.recount(func(k *kin) bool { return slices.Contains(k.in, g.number) })
	}
	return g
}

// recount charges pods whose kin belongs to other groups now.
func (c *Core) recount(of func(*kin) bool) {
	again := func(k *kin, charge string) {
		if k == nil || !of(k) {
			return
		}
		if p, charged := c.cache.Lookup(charge); charged {
			class := api.MakeClass(api.Class{Requests: p.Class.Requests, Constraints: p.Class.Constraints, In: k.in, Avoids: p.Class.Avoids})
			c.cache.Charge(charge, p.Node, class, p.Kind, p.Gang, p.Rank)
		}
	}
	for _, uid := range api.SortedKeys(c.bound) {
		again(c.bound[uid].kin, uid)
	}
	for _, uid := range api.SortedKeys(c.nominated) {
		again(c.nominated[uid].kin, uid+"@nominated")
	}
	for _, key := range api.SortedKeys(c.gangs) {
		g := c.gangs[key]
		for _, uid := range api.SortedKeys(g.holds) {
			again(g.holds[uid].kin, uid)
		}
		for _, r := range g.rows {
			if r.charge != "" {
				again(r.kin, r.charge)
			}
		}
	}
}

// namespaceSeen sorts the pods of a namespace anew if terms select namespaces and its labels are others now.
func (c *Core) namespaceSeen(name string, labels map[string]string) {
	s := &c.groups
	if maps.Equal(s.namespaces[name], labels) {
		return
	}
	if labels == nil {
		delete(s.namespaces, name)
	} else {
		s.namespaces[name] = labels
	}
	if len(s.anywhere) == 0 {
		return
	}
	for _, list := range s.kins {
		for _, k := range list {
			if k.namespace == name {
				s.sort(k)
			}
		}
	}
	c.recount(func(k *kin) bool { return k.namespace == name })
}

// ---- terms whose domains are larger than nodes

// repels counts a pod that is bound, or that a node is kept for, where it repels others; nil when it is gone.
func (c *Core) repels(uid string, p *api.Pod) {
	s := &c.groups
	old := s.repelling[uid]
	var now *repelling
	if p != nil && p.Class != nil && len(p.Class.Repels) > 0 && !p.Finished && cmp.Or(p.Node, p.Nominated) != "" {
		now = &repelling{node: cmp.Or(p.Node, p.Nominated)}
		terms, _ := api.ReadRepels(p.Class.Repels)
		for _, t := range terms {
			if t.Topology == api.LabelHostname {
				continue
			}
			value := ""
			if n := c.nodes[now.node]; n != nil {
				value = n.Labels[t.Topology]
			}
			now.groups, now.values = append(now.groups, c.groupOf(t, "")), append(now.values, value)
		}
		if len(now.groups) == 0 {
			now = nil
		}
	}
	if old == nil && now == nil || old != nil && now != nil && old.node == now.node && slices.Equal(old.groups, now.groups) && slices.Equal(old.values, now.values) {
		return
	}
	if now != nil {
		for i, g := range now.groups {
			c.repelIn(g, now.values[i], 1)
		}
		s.repelling[uid] = now
		if s.on[now.node] == nil {
			s.on[now.node] = map[string]bool{}
		}
		s.on[now.node][uid] = true
	}
	if old != nil {
		for i, g := range old.groups {
			c.repelIn(g, old.values[i], -1)
		}
		if now == nil || now.node != old.node {
			delete(s.on[old.node], uid)
			if len(s.on[old.node]) == 0 {
				delete(s.on, old.node)
			}
		}
		if now == nil {
			delete(s.repelling, uid)
		}
	}
}

// repelIn counts a pod that carries a term in a domain.
func (c *Core) repelIn(g *group, value string, by int) {
	if value == "" {
		return // the node is in no domain
	}
	before := g.domains[value]
	if g.domains[value] += by; g.domains[value] == 0 {
		delete(g.domains, value)
	}
	g.used = c.now
	if (before == 0) == (g.domains[value] == 0) {
		return
	}
	for name, n := range c.nodes {
		if n.Labels[g.term.Topology] == value && c.buckets[api.BucketOf(name)] == active {
			c.repelFrom(n)
		}
	}
}

// repelFrom has the cache know which groups are kept away from a node of ours.
func (c *Core) repelFrom(n *api.Node) {
	var away []uint32
	for _, g := range c.groups.byTerm {
		if value := n.Labels[g.term.Topology]; value != "" && g.domains[value] > 0 {
			away = append(away, g.number)
		}
	}
	slices.Sort(away)
	c.cache.Repel(n.Name, away)
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

// moved counts the pods of a node again that repel others in the domains of its labels.
func (c *Core) moved(name string) {
	s := &c.groups
	for _, uid := range api.SortedKeys(s.on[name]) {
		old := s.repelling[uid]
		now := &repelling{node: name, groups: old.groups, values: make([]string, len(old.groups))}
		for i, g := range old.groups {
			if n := c.nodes[name]; n != nil {
				now.values[i] = n.Labels[g.term.Topology]
			}
			c.repelIn(g, now.values[i], 1)
		}
		for i, g := range old.groups {
			c.repelIn(g, old.values[i], -1)
		}
		s.repelling[uid] = now
	}
}

// sweepGroups forgets groups that no pod carries, and kins of which there are no pods.
func (c *Core) sweepGroups() {
	s := &c.groups
	if len(s.byTerm) > 0 {
		carried := c.cache.Avoided()
		var gone []*group
		for id, g := range s.byTerm {
			if !carried[g.number] && len(g.domains) == 0 && c.now.Sub(g.used) >= groupKept {
				gone = append(gone, g)
				delete(s.byTerm, id)
				if g.by != "" {
					if s.made[g.by]--; s.made[g.by] == 0 {
						delete(s.made, g.by)
					}
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
		if len(gone) > 0 {
			for _, list := range s.kins {
				for _, k := range list {
					s.sort(k)
				}
			}
			c.recount(func(*kin) bool { return true })
		}
	}
	n := 0
	for _, list := range s.kins {
		n += len(list)
	}
	if n < kinsKept || n < 2*s.swept {
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
		for _, r := range g.rows {
			needed[r.kin] = true
		}
	}
	s.swept = 0
	for key, list := range s.kins {
		list = slices.DeleteFunc(list, func(k *kin) bool { return !needed[k] })
		if s.kins[key] = list; len(list) == 0 {
			delete(s.kins, key)
		}
		s.swept += len(list)
	}
}
