package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"basalt.dev/basalt/api"
)

// Required pod affinity and topology spread. A pod that we bound is recounted once, a while after the watch showed its Binding. The watch
// does not say when a Binding was judged, nor what its judge had seen by then. So a recount is generous on both sides:
//
//   - Against a pod count only pods that are still on their nodes, with the same labels all the time, by an intent that was placed before
//     the pod's own. What others bound counts if it was seen long before.
//   - A pod is supported, in the minimum of a spread as by its affinity, by all that was on a node at any moment since shortly before its
//     intent, and by all pods of its gang for which there was an intent.
//   - A node whose labels changed in that time, or that came or went, may have been in each of its domains: what is on it supports in all
//     of them, and counts against in none.
//
//   - A namespace whose labels changed in that time may be one that a term selects: its pods support, and do not count against.
//
// A recount looks at each pod and node; what exceeds looksBySecond is left out.

const looksBySecond = 4 << 20

// place is where an intent is in the order of all.
type place struct {
	revision int64 // that created its key
	index    int   // in the key
}

func (p place) before(o place) bool {
	return cmp.Or(cmp.Compare(p.revision, o.revision), cmp.Compare(p.index, o.index)) < 0
}

// beside is a pod that is gone, as it may have counted for others.
type beside struct {
	*repulsion
	gang  *gang
	nodes []string // where it was, or was to be
	until time.Time
}

// lost is a node that is gone.
type lost struct {
	versions []nodeVersion
	until    time.Time
}

// remembers is for how long what is gone is remembered.
func (a *Auditor) remembers() time.Duration { return 2*a.unseen() + 6*a.cfg.Lag }

// leave remembers a pod that is gone for a while: it may have supported others.
func (a *Auditor) leave(p *pod) {
	c := &a.cluster
	for len(c.left) > 0 && a.now.Sub(c.left[0].until) > a.remembers() {
		c.leftTo = c.left[0].until
		c.left[0] = beside{}
		c.left = c.left[1:]
	}
	switch {
	case p.repulsion != nil:
		c.left = append(c.left, beside{p.repulsion, p.gang, []string{p.repulsion.node}, a.now})
	case p.worn != nil && len(p.announced) > 0 && p.node == "":
		c.left = append(c.left, beside{p.worn, p.gang, slices.Sorted(maps.Keys(p.announced)), a.now})
		p.worn = nil
	}
}

// lose remembers a node that is gone.
func (a *Auditor) lose(n *node) {
	for name, l := range a.cluster.lost {
		if a.now.Sub(l.until) > a.remembers() {
			delete(a.cluster.lost, name)
		}
	}
	a.cluster.lost[n.name] = lost{n.versions, a.now}
}

// judgeDomains judges what a pod that just got its node requires of the domains that the node is in.
func (a *Auditor) judgeDomains(p *pod, o *v1.Pod) {
	var spread []v1.TopologySpreadConstraint
	for _, c := range o.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == v1.DoNotSchedule {
			spread = append(spread, c)
		}
	}
	var terms []v1.PodAffinityTerm
	if f := o.Spec.Affinity; f != nil && f.PodAffinity != nil {
		terms = f.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	if len(spread)+len(terms) == 0 {
		return
	}
	us, seen, gang := p.repulsion, a.now, p.gang
	a.later(lastingKey{Spread, "pod " + p.uid, "its domains"}, 3*a.cfg.Lag, func(time.Time) {
		decided := p.decided
		if decided.IsZero() || decided.After(seen) {
			decided = seen
		}
		before := decided.Add(-a.unseen())
		looks := len(a.cluster.pods) + len(a.cluster.left) + len(a.cluster.nodes)
		if p.place == (place{}) || !p.boundByUs(us.node) || a.cluster.leftTo.After(before) || !a.mayLook(looks*(len(spread)+len(terms))) {
			a.cluster.spared++
			return
		}
		a.cluster.recounts++
		r := recount{Auditor: a, pod: p, gang: gang, us: us, place: p.place, before: before, seen: seen}
		say := func(k Kind, why string) {
			if why != "" {
				a.violate(Violation{Kind: k, Object: "pod " + p.uid, Versions: []string{o.ResourceVersion}, Revisions: []int64{p.place.revision},
					Message: us.name + " was bound to node " + us.node + ": " + why})
			}
		}
		for i := range spread {
			say(Spread, r.skewed(o, spread, &spread[i]))
		}
		say(Affinity, r.lonely(terms))
	})
}

func (a *Auditor) mayLook(n int) bool {
	c := &a.cluster
	if a.now.Sub(c.lookedAt) >= time.Second {
		c.lookedAt, c.looked = a.now, 0
	}
	c.looked += n
	return c.looked <= looksBySecond
}

// recount is one pod's.
type recount struct {
	*Auditor
	pod    *pod
	gang   *gang
	us     *repulsion
	place  place
	before time.Time // since then pods and nodes may have been for its judge as they were
	seen   time.Time
}

// matcher says whether pods match for sure, or may.
type matcher func(s *repulsion) (sure, may bool)

// matching tries the labels of a pod with and without the one that our Bindings set.
func matching(s *repulsion, match func(labels k8slabels.Set) bool) (sure, may bool) {
	with := match(s.labels)
	if _, has := s.labels[api.LabelGang]; !has {
		return with, with
	}
	labels := maps.Clone(s.labels)
	delete(labels, api.LabelGang)
	without := match(labels)
	return with && without, with || without
}

// supports calls f for each pod that may have been on a node when ours was judged, with the nodes where it may have been.
func (r *recount) supports(match matcher, f func(nodes []string)) {
	for _, p := range r.cluster.pods {
		if p == r.pod {
			continue
		}
		var nodes []string
		if s := p.repulsion; s != nil && !s.since.After(r.seen) {
			if _, may := match(s); may || s.changed.After(r.before) {
				nodes = append(nodes, s.node)
			}
		}
		if p.gang != nil && p.gang == r.gang && p.worn != nil {
			if _, may := match(p.worn); may {
				nodes = slices.AppendSeq(nodes, maps.Keys(p.announced))
			}
		}
		if len(nodes) > 0 {
			f(nodes)
		}
	}
	for _, s := range r.cluster.left {
		_, may := match(s.repulsion)
		bound := s.node != "" && !s.since.After(r.seen)
		if (may || s.changed.After(r.before)) && s.until.After(r.before) && (bound || s.gang != nil && s.gang == r.gang) {
			f(s.nodes)
		}
	}
}

// against returns the nodes of the pods that counted against ours for sure.
func (r *recount) against(match matcher, of func(*pod) bool) (nodes []string) {
	for _, p := range r.cluster.pods {
		s := p.repulsion
		if p == r.pod || s == nil || s.changed.After(r.before) || !of(p) {
			continue
		}
		if sure, _ := match(s); !sure {
			continue
		}
		if p.boundByUs(s.node) {
			if p.place == (place{}) || !p.place.before(r.place) {
				continue
			}
		} else if s.since.After(r.before) {
			continue
		}
		nodes = append(nodes, s.node)
	}
	return nodes
}

// domains returns the values of a label that a node may have had when our pod was judged, those of the versions that admit ours only. It
// is sure of the value if there was no other possibility.
func (r *recount) domains(name, key string, admits func(*v1.Node) bool) (values []string, sure bool) {
	add := func(versions []nodeVersion) {
		for i := len(versions) - 1; i >= 0; i-- {
			if n := versions[i].node; admits(n) {
				values = append(values, n.Labels[key])
			} else {
				sure = false
			}
			if !versions[i].from.After(r.before) {
				break
			}
		}
	}
	n := r.cluster.nodes[name]
	if n != nil {
		sure = n.known && !n.since.After(r.before)
		add(n.versions)
	}
	if l, was := r.cluster.lost[name]; was && l.until.After(r.before) {
		sure = false
		add(l.versions)
	}
	slices.Sort(values)
	values = slices.Compact(values)
	return values, sure && len(values) == 1
}

func (r *recount) skewed(o *v1.Pod, all []v1.TopologySpreadConstraint, c *v1.TopologySpreadConstraint) string {
	of := c.LabelSelector.DeepCopy()
	for _, key := range c.MatchLabelKeys {
		if value, has := o.Labels[key]; has && of != nil {
			of.MatchExpressions = append(of.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(of)
	if err != nil || selector.Empty() {
		return ""
	}
	match := func(s *repulsion) (sure, may bool) {
		if s.namespace != r.us.namespace {
			return false, false
		}
		return matching(s, func(l k8slabels.Set) bool { return selector.Matches(l) })
	}
	admits := func(n *v1.Node) bool {
		for _, other := range all {
			if _, has := n.Labels[other.TopologyKey]; !has {
				return false
			}
		}
		if c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor {
			if ok, err := nodeaffinity.GetRequiredNodeAffinity(o).Match(n); err != nil || !ok {
				return false
			}
		}
		return c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy != v1.NodeInclusionPolicyHonor || excludes(o, n) == ""
	}
	possible, surely, count := map[string][]string{}, map[string]string{}, map[string]int{}
	domains := map[string]bool{}
	look := func(name string) {
		values, sure := r.domains(name, c.TopologyKey, admits)
		possible[name] = values
		for _, value := range values {
			domains[value] = true
		}
		if sure {
			surely[name], count[values[0]] = values[0], 0
		}
	}
	for name := range r.cluster.nodes {
		look(name)
	}
	for name := range r.cluster.lost {
		look(name)
	}
	at, sure := surely[r.us.node]
	if !sure {
		return "" // what its node was like is not known; whether it is admitted there is judged as a placement
	}
	there := 0
	for _, node := range r.against(match, func(p *pod) bool { return !p.repulsion.deleting }) {
		if value, sure := surely[node]; sure && value == at {
			there++
		}
	}
	if self, _ := match(r.us); self {
		there++
	}
	if there <= int(c.MaxSkew) {
		return ""
	}
	r.supports(match, func(nodes []string) {
		in := map[string]bool{}
		for _, node := range nodes {
			for _, value := range possible[node] {
				in[value] = true
			}
		}
		for value := range in {
			if _, counts := count[value]; counts {
				count[value]++
			}
		}
	})
	fewest := slices.Min(slices.Collect(maps.Values(count)))
	if c.MinDomains != nil && len(domains) < int(*c.MinDomains) {
		fewest = 0
	}
	if there-fewest <= int(c.MaxSkew) {
		return ""
	}
	return fmt.Sprintf("its %s %s had %d pods that its spread counts, and another one no more than %d, with a maxSkew of %d", c.TopologyKey, at, there, fewest, c.MaxSkew)
}

func (r *recount) lonely(terms []v1.PodAffinityTerm) string {
	if len(terms) == 0 {
		return ""
	}
	var of []func(*repulsion) (bool, bool)
	for i := range terms {
		t := &terms[i]
		selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
		if err != nil {
			return ""
		}
		of = append(of, func(s *repulsion) (sure, may bool) {
			about, since := r.about(t, r.us.namespace, s.namespace)
			fresh := since.After(r.before)
			if !about && !fresh {
				return false, false
			}
			sure, may = matching(s, func(l k8slabels.Set) bool { return selector.Matches(l) })
			return sure && !fresh, may
		})
	}
	match := func(s *repulsion) (sure, may bool) {
		sure, may = true, true
		for _, one := range of {
			s, m := one(s)
			sure, may = sure && s, may && m
		}
		return sure, may
	}
	_, self := match(r.us)
	for i := range terms {
		key := terms[i].TopologyKey
		labelled := func(n *v1.Node) bool { return n.Labels[key] != "" }
		values, sure := r.domains(r.us.node, key, labelled)
		if !sure {
			continue
		}
		found := false
		r.supports(match, func(nodes []string) {
			for _, node := range nodes {
				there, _ := r.domains(node, key, labelled)
				found = found || slices.Contains(there, values[0]) || r.cluster.nodes[node] == nil && len(there) == 0
			}
		})
		if found {
			continue
		}
		elsewhere := slices.ContainsFunc(r.against(match, func(p *pod) bool { return p.gang == nil || p.gang != r.gang }), func(node string) bool {
			_, sure := r.domains(node, key, labelled)
			return sure
		})
		switch {
		case elsewhere:
			return fmt.Sprintf("no pod that its affinity asks for was in its %s, and some were elsewhere", key)
		case !self:
			return fmt.Sprintf("no pod that its affinity asks for was in its %s", key)
		}
	}
	return ""
}

// farther are the pods on other nodes that a pod's terms with larger domains match.
func (a *Auditor) farther(us *repulsion) map[string]*pod {
	out := map[string]*pod{}
	for _, t := range us.terms {
		if !wider(t) || !a.mayLook(len(a.cluster.pods)) {
			continue
		}
		for uid, p := range a.cluster.pods {
			if p.repulsion != nil && p.repulsion != us && a.repels(us, t, p.repulsion) {
				out[uid] = p
			}
		}
	}
	return out
}

// wear remembers the labels of a pod without a node.
func (p *pod) wear(o *v1.Pod) {
	if p.worn == nil || !maps.Equal(p.worn.labels, o.Labels) {
		p.worn = &repulsion{namespace: o.Namespace, labels: o.Labels}
		p.worn.named, p.worn.made = usesOf(o)
	}
}
