package topology

import (
	"slices"

	"basalt.dev/basalt/api"
)

// Obstacle is which constraint keeps a pod from a node.
type Obstacle uint8

// Obstacles, in the order of kube-scheduler's filters.
const (
	None     Obstacle = iota
	InUse             // another pod uses a claim that one pod at a time may use
	NoDomain          // the node lacks a label over which the pod is to be spread
	Skewed            // the pods would be spread too unevenly
	Lonely            // the pods that the pod's affinity asks for are not in the domain
	Avoids            // a pod is there that the pod's anti-affinity excludes
	Avoided           // a pod is there whose anti-affinity excludes the pod
	obstacles
)

// String is kube-scheduler's reason for the same thing.
func (o Obstacle) String() string {
	return [obstacles]string{
		InUse:    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod",
		NoDomain: "node(s) didn't match pod topology spread constraints (missing required label)",
		Skewed:   "node(s) didn't match pod topology spread constraints",
		Lonely:   "node(s) didn't match pod affinity rules",
		Avoids:   "node(s) didn't match pod anti-affinity rules",
		Avoided:  "node(s) didn't satisfy existing pods anti-affinity rules",
	}[o]
}

// Rules are what the pods of a class in a namespace have to satisfy. They hold until the next event.
type Rules struct {
	generation uint64
	local      uint64 // space.generation
	namespace  string
	spread     []spreadRule
	anti       []*tally
	avoided    []*tally
	affinity   []*tally // by term: the pods that match all of them
	self       bool     // the pod matches its own affinity
	asks       []*counter
}

type spreadRule struct {
	*tally
	skew, domains int64
	self          int32
}

// Ahead is how many more pods of a domain are planned than a spread allows beside the pods that are bound. They wait
// until others are bound.
const Ahead = 16

type ruleKey struct{ namespace, class string }

// RulesOf returns what the pods of a class have to satisfy, nil for nothing. A class whose labels are not said is
// taken for one that all terms match. It is not ok if the namespace has too much counted.
func (v *View) RulesOf(namespace string, class *api.Class) (_ *Rules, ok bool) {
	terms := v.wide(namespace, string(class.Repels))
	if len(class.Joins) == 0 && len(terms) == 0 && !v.Concerned(namespace) {
		return nil, true
	}
	key, of := ruleKey{namespace, class.Key}, v.in(namespace)
	v.concerning(of)
	if r, known := v.rules[key]; known && r.generation == v.generation && r.local == of.generation && !givenUp(r.asks) {
		r.use(v)
		return r.orNil(), true
	}
	r, ok := v.make(namespace, class, terms)
	if !ok {
		return nil, false
	}
	r.generation, r.local = v.generation, of.generation
	v.rules.put(key, r)
	return r.orNil(), true
}

// orNil returns nil for rules that keep no pod from any node.
func (r *Rules) orNil() *Rules {
	if len(r.spread)+len(r.anti)+len(r.affinity) == 0 && !slices.ContainsFunc(r.avoided, (*tally).repels) {
		return nil
	}
	return r
}

// RulesAmong returns RulesOf for classes whose pods come together: they may carry terms about each other, and so may
// pods of the gang elsewhere, of which nothing is known but who they are.
func (v *View) RulesAmong(namespace string, classes []*api.Class, elsewhere []string, ok []bool) []*Rules {
	rules := make([]*Rules, len(classes))
	var carried []*api.Term
	for i, class := range classes {
		if ok[i] {
			rules[i], ok[i] = v.RulesOf(namespace, class)
		}
		if ok[i] {
			carried = append(carried, v.wide(namespace, string(class.Repels))...)
		}
	}
	for _, uid := range elsewhere {
		if p := v.podOf(namespace, uid); p != nil && p.object.Class != nil {
			carried = append(carried, v.wide(namespace, string(p.object.Class.Repels))...)
		}
	}
	for i, class := range classes {
		if ok[i] && len(carried) > 0 {
			rules[i] = rules[i].beside(v, namespace, class, carried)
		}
	}
	return rules
}

// beside returns rules, which may be nil, of a class beside pods that carry some terms.
func (r *Rules) beside(v *View, namespace string, class *api.Class, terms []*api.Term) *Rules {
	for _, t := range terms {
		if !v.in(namespace).mayMatch(t, class) {
			continue
		}
		c := v.carrierOf(t, namespace, carriedByNamespace)
		if c == nil || c.tallies[0].column.placed == 0 || r != nil && slices.Contains(r.avoided, c.tallies[0]) {
			continue
		}
		more := Rules{namespace: namespace}
		if r != nil {
			more = *r
		}
		more.avoided = append(slices.Clip(more.avoided), c.tallies[0])
		r = &more
	}
	return r
}

// mayMatch reports whether a term matches pods of a class. If their labels are not said, they are taken for pods that
// all terms match.
func (s *space) mayMatch(t *api.Term, class *api.Class) bool {
	if !class.Labelled {
		return t.Concerns(s.name, s.labels)
	}
	return t.Matches(s.name, s.labels, class.Labels)
}

// givenUp reports whether some counters are kept no longer.
func givenUp(asks []*counter) bool {
	return slices.ContainsFunc(asks, func(s *counter) bool { return s.givenUp })
}

func (r *Rules) use(v *View) {
	for _, s := range r.asks {
		s.keep(v.now)
	}
}

func (v *View) make(namespace string, class *api.Class, terms []*api.Term) (*Rules, bool) {
	r := &Rules{namespace: namespace}
	ask := func(s *counter) bool {
		if s == nil {
			return false
		}
		r.asks = append(r.asks, s)
		return true
	}
	for _, t := range terms {
		c := v.carrierOf(t, namespace, countedByNamespace)
		if c == nil {
			return nil, false
		}
		if c.tallies[0].column.placed == 0 { // no node is in a domain
			continue
		}
		spaces, selects := t.Namespaces()
		if selects {
			spaces = nil
		}
		s := v.counterOf("anti\x00"+t.ID, namespace, spaces, func(k *kin) bool {
			return t.Concerns(k.space.name, k.space.labels) && (k.unlisted || t.Matches(k.space.name, k.space.labels, k.labels))
		})
		if !ask(s) {
			return nil, false
		}
		r.anti = append(r.anti, v.tallyOf(s, t.Topology, nil, nil))
	}
	of, avoided := v.in(namespace), map[*tally]bool{}
	for _, list := range [][]*carrier{of.carriers, v.concerning(of)} {
		for _, c := range list {
			if !of.mayMatch(c.term, class) {
				continue
			}
			c.tell(namespace)
			if t := c.tallies[0]; !avoided[t] {
				avoided[t] = true
				r.avoided = append(r.avoided, t)
			}
		}
	}
	if len(class.Joins) == 0 {
		return r, true
	}
	joins := v.joinsOf(class)
	if joins == nil {
		return nil, false
	}
	if all := joins.Terms; len(all) > 0 {
		id, spaces, anywhere := "join", map[string]bool{}, true
		r.self = true
		for _, t := range all {
			id += "\x00" + t.ID
			r.self = r.self && t.Matches(namespace, of.labels, class.Labels)
			if named, selects := t.Namespaces(); !selects { // a pod has to match all of them: one that names its namespaces bounds it
				anywhere = false
				for _, name := range named {
					spaces[name] = true
				}
			}
		}
		var in []string
		if !anywhere {
			in = api.SortedKeys(spaces)
		}
		s := v.counterOf(id, namespace, in, func(k *kin) bool {
			return !slices.ContainsFunc(all, func(t *api.Term) bool { return !t.Matches(k.space.name, k.space.labels, k.labels) })
		})
		if !ask(s) {
			return nil, false
		}
		for _, t := range all {
			r.affinity = append(r.affinity, v.tallyOf(s, t.Topology, nil, nil))
		}
	}
	keys := topologies(joins.Spread)
	for _, s := range joins.Spread {
		c := v.counterOf(spreadID(namespace, s), namespace, []string{namespace}, spreadCounts(s))
		if !ask(c) {
			return nil, false
		}
		t := v.spreadTally(c, namespace, s, keys, joins.Own, class.Constraints, talliesByNamespace)
		if t == nil {
			return nil, false
		}
		rule := spreadRule{tally: t, skew: s.MaxSkew, domains: s.MinDomains}
		if s.Counts(class.Labels) {
			rule.self = 1
		}
		r.spread = append(r.spread, rule)
	}
	return r, true
}

// Ties returns the labels of nodes in whose domains pods of a class require pods that have some labels, in the same
// namespace: nil if there are no such pods among them.
func (v *View) Ties(namespace string, class *api.Class, pods []*api.Labels) (keys []string) {
	if len(class.Joins) == 0 {
		return nil
	}
	joins := v.joinsOf(class)
	if joins == nil || len(joins.Terms) == 0 || !slices.ContainsFunc(pods, func(of *api.Labels) bool {
		return !slices.ContainsFunc(joins.Terms, func(t *api.Term) bool { return !t.Matches(namespace, v.in(namespace).labels, of) })
	}) {
		return nil
	}
	for _, t := range joins.Terms {
		keys = append(keys, t.Topology)
	}
	return keys
}

// Separates reports whether pods of a class may require that others are not in their domain of a label.
func (v *View) Separates(class *api.Class, label string) bool {
	over := func(t *api.Term) bool { return t.Topology == label }
	if slices.ContainsFunc(v.readWide(string(class.Repels), v.shared), over) {
		return true
	}
	if len(class.Joins) == 0 {
		return false
	}
	joins := v.joinsOf(class)
	return joins != nil && slices.ContainsFunc(joins.Spread, func(s *api.Spread) bool { return s.Topology == label })
}

// topologies returns the keys of constraints, in order: nodes have to have all of these labels.
func topologies(spread []*api.Spread) (keys []string) {
	for _, s := range spread {
		if !slices.Contains(keys, s.Topology) {
			keys = append(keys, s.Topology)
		}
	}
	slices.Sort(keys)
	return keys
}

func spreadID(namespace string, s *api.Spread) string {
	return "spread\x00" + namespace + "\x00" + s.ID
}

func spreadCounts(s *api.Spread) func(k *kin) bool {
	return func(k *kin) bool { return !k.deleting && (k.unlisted || s.Counts(k.labels)) }
}

// Open returns how many pods may be placed now as far as domains are concerned, one after another, if all that is on
// its way will be bound; at most so many. With more, the first of them are on their way before the last is placed.
// Whether the nodes of these domains have room is another question.
func (r *Rules) Open(most, more int) int {
	for i := range r.spread {
		most = r.spread[i].open(most, more)
	}
	supported, none := true, true
	for _, t := range r.affinity {
		supported = supported && t.total[bound] > 0
		none = none && t.all(true) == 0
	}
	switch {
	case supported:
	case none && r.self:
		most = min(most, 1)
	default:
		most = 0
	}
	return most
}

// open returns how many more pods a spread lets in, at most so many. One that does not count the pod itself is not
// asked.
func (s *spreadRule) open(most, more int) int {
	if s.self == 0 {
		return most
	}
	open, least := int64(0), min(s.expected(s.domains, true)+int32(more), s.minimum(s.domains)+Ahead)
	for d, n := range s.nodes {
		if n > 0 {
			open += max(0, s.skew+int64(least-s.of(int32(d), true)))
		}
		if open >= int64(most) {
			break
		}
	}
	return int(min(int64(most), open))
}

// Obstacle says what keeps a pod from a node. With holds, pods count for which this shard only holds room.
func (r *Rules) Obstacle(n int32, holds bool) Obstacle {
	return r.obstacle(n, holds, func(s *spreadRule) int32 { return s.minimum(s.domains) })
}

// Later says what keeps a pod from a node once what is on its way is bound.
func (r *Rules) Later(n int32, holds bool) Obstacle {
	return r.obstacle(n, holds, func(s *spreadRule) int32 { return s.expected(s.domains, holds) })
}

// AsksForOthers reports whether the pod's affinity asks for pods. Rules may be nil.
func (r *Rules) AsksForOthers() bool { return r != nil && len(r.affinity) > 0 }

// Together returns the rules of pods of some classes that come together: where pods of another class fulfil the
// affinity of one wherever they go, it says nothing about nodes yet. A class whose labels are not said may be the one
// that is asked for: not if that is to be sure.
func (v *View) Together(rules []*Rules, classes []*api.Class, sure bool) []*Rules {
	out := slices.Clone(rules)
	for changed := true; changed; {
		changed = false
		for i, r := range out {
			if !r.AsksForOthers() {
				continue
			}
			for k, o := range out {
				if k == i || o.AsksForOthers() && !o.first() || !classes[k].Labelled && sure || classes[k].Labelled && !r.affinity[0].counter.matches(&kin{space: v.in(r.namespace), labels: classes[k].Labels}) {
					continue
				}
				rest := *r
				rest.affinity = nil
				out[i], changed = &rest, true
				break
			}
		}
	}
	return out
}

// first reports whether the pod's affinity asks for pods like itself, and there is none yet.
func (r *Rules) first() bool {
	return r.self && !slices.ContainsFunc(r.affinity, func(t *tally) bool { return t.all(true) > 0 })
}

// Founds returns the labels whose domains the first of the pods that require one another chooses for all of them, nil
// for any other pod. Rules may be nil.
func (r *Rules) Founds() (keys []string) {
	if !r.AsksForOthers() || !r.first() {
		return nil
	}
	for _, t := range r.affinity {
		if !slices.Contains(keys, t.column.label) {
			keys = append(keys, t.column.label)
		}
	}
	return keys
}

// Unsupported reports whether the pod's affinity asks for pods of which there is none in any domain, bound or on its
// way.
func (r *Rules) Unsupported() bool {
	some, none := false, true
	for _, t := range r.affinity {
		empty := t.all(true) == 0
		some, none = some || empty, none && empty
	}
	return some && !(none && r.self)
}

// Lack says that there are too few domains of a label for a pod, whatever room their nodes have, so that only other
// nodes would help.
type Lack struct {
	Label     string
	Spread    bool // the pod is to be spread over them; else its affinity asks for one
	Has, Need int  // domains
}

// Lacks returns what the nodes lack for a pod. A spread over more domains than there are (minDomains) lets some pods
// in, and then no more.
func (r *Rules) Lacks() (l Lack, some bool) {
	if r.Unsupported() {
		return Lack{}, false
	}
	for i := range r.spread {
		s := &r.spread[i]
		if l = (Lack{s.column.label, true, s.tally.domains, max(1, int(s.domains))}); l.Has == 0 || l.Has < l.Need && s.open(1, 0) == 0 {
			for _, other := range s.beside { // a node is in a domain if it has all labels over which the pod is to be spread
				if l.Has == 0 && s.column.placed > 0 && other.placed == 0 {
					l.Label = other.label
				}
			}
			return l, true
		}
	}
	for _, t := range r.affinity {
		if t.domains == 0 {
			return Lack{t.column.label, false, 0, 1}, true
		}
	}
	return Lack{}, false
}

// even says what keeps a pod from a node if all domains had as many pods as its own.
func (r *Rules) even(n int32) Obstacle {
	return r.obstacle(n, false, func(s *spreadRule) int32 { return s.of(s.column.at(n), false) + s.self })
}

// Cost is what it takes to ask about a node, in bytes of constraints compared. A few rules cost nothing more than the
// node.
func (r *Rules) Cost() int64 {
	return int64(len(r.spread)+len(r.anti)+len(r.avoided)+len(r.affinity)) / 2
}

// Spreads reports whether Later may differ from Obstacle.
func (r *Rules) Spreads() bool { return len(r.spread) > 0 }

// behind returns which spread keeps a pod from a node for now.
func (r *Rules) behind(n int32) Behind {
	for i := range r.spread {
		if s := &r.spread[i]; !s.allows(n, false, s.minimum(s.domains)) {
			return Behind{r, i, s.column.at(n)}
		}
	}
	return Behind{}
}

// stamp changes when something is counted otherwise for a spread.
func (r *Rules) stamp() (sum uint64) {
	for i := range r.spread {
		sum += r.spread[i].counter.opened
	}
	return sum
}

// allows reports whether a node's domain may get another pod while the one with the fewest has so many.
func (s *spreadRule) allows(n int32, holds bool, least int32) bool {
	return int64(s.of(s.column.at(n), holds)+s.self-least) <= s.skew
}

func (r *Rules) obstacle(n int32, holds bool, least func(*spreadRule) int32) Obstacle {
	for i := range r.spread {
		s := &r.spread[i]
		if s.column.at(n) < 0 {
			return NoDomain
		}
		if !s.allows(n, holds, least(s)) {
			return Skewed
		}
	}
	if len(r.affinity) > 0 {
		supported, none := true, true
		for _, t := range r.affinity {
			d := t.column.at(n)
			if d < 0 {
				return Lonely
			}
			supported = supported && t.boundIn(d) > 0
			none = none && t.all(holds) == 0
		}
		if !supported && !(none && r.self) {
			return Lonely
		}
	}
	for _, t := range r.anti {
		if d := t.column.at(n); d >= 0 && t.of(d, holds) > 0 {
			return Avoids
		}
	}
	for _, t := range r.avoided {
		if d := t.column.at(n); d >= 0 && t.of(d, holds) > 0 {
			return Avoided
		}
	}
	return None
}
