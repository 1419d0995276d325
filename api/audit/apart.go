package audit

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"

	"basalt.dev/basalt/api"
)

// Required anti-affinity between pods. When the watch shows a Binding of ours, the pod is compared, by the labels and terms of that moment,
// with each unfinished pod on its node, and with those elsewhere whose terms have larger domains. Pods that we bound count at once: the
// shard of their node decided both. What others did counts only if it was seen long before our intent, for shards learn of it by a watch.
// The same holds for labels that changed while a pod had its node, and for those of nodes. A Binding that only a list shows is not judged.
// Of two pods of ours it does not matter whose intent came first: the other one's judge knew of it.
//
// And for the labels of namespaces, where a term selects them.

// repulsion is what is known of a pod with a node about the terms that it carries and those of others.
type repulsion struct {
	node      string
	name      string // namespace/name
	namespace string
	labels    map[string]string
	terms     []v1.PodAffinityTerm // required anti-affinity
	named     []string             // claims that it names,
	made      []string             // and that were made for it
	since     time.Time            // when it was first seen with its node
	deleting  bool
	changed   time.Time // when it was seen with other labels than at its Binding, zero for never
}

// unseen is for how long shards may not know of what others did.
func (a *Auditor) unseen() time.Duration { return max(10*time.Second, 5*a.cfg.Lag) }

// placeRepulsion takes note of where a pod is, and judges a Binding.
func (a *Auditor) placeRepulsion(p *pod, o *v1.Pod, fresh, wasBound bool) {
	if p.node == "" && !p.finished {
		a.dropRepulsion(p)
		p.wear(o)
		return
	}
	if p.finished {
		a.leave(p)
		a.dropRepulsion(p)
		return
	}
	old, listed := p.repulsion, a.cluster.deferred != nil
	r := &repulsion{node: p.node, name: o.Namespace + "/" + o.Name, namespace: o.Namespace, labels: o.Labels, since: a.now, deleting: o.DeletionTimestamp != nil}
	if affinity := o.Spec.Affinity; affinity != nil && affinity.PodAntiAffinity != nil {
		r.terms = affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	r.named, r.made = usesOf(o)
	if old != nil {
		r.since, r.changed = old.since, old.changed
		a.useClaims(p, false)
	}
	if old != nil && !maps.Equal(old.labels, r.labels) || old == nil && (wasBound || listed) {
		r.changed = a.now
	}
	p.repulsion = r
	a.useClaims(p, true)
	if a.cluster.on[p.node] == nil {
		a.cluster.on[p.node] = map[string]*pod{}
	}
	a.cluster.on[p.node][p.uid] = p
	if slices.ContainsFunc(r.terms, wider) {
		a.cluster.wide[p.uid] = p
	}
	if !fresh && !wasBound && !listed && p.ours {
		a.judgeApart(p)
		a.judgeDomains(p, o)
		a.judgeTogether(p)
		a.judgeVolumes(p)
	}
}

func (a *Auditor) dropRepulsion(p *pod) {
	if p.repulsion == nil {
		return
	}
	a.useClaims(p, false)
	on := a.cluster.on[p.repulsion.node]
	if delete(on, p.uid); len(on) == 0 {
		delete(a.cluster.on, p.repulsion.node)
	}
	delete(a.cluster.wide, p.uid)
	p.repulsion = nil
}

// wider reports whether the domains of a term are larger than a node.
func wider(t v1.PodAffinityTerm) bool { return t.TopologyKey != v1.LabelHostname }

// judgeApart compares a pod that just got its node with the others.
func (a *Auditor) judgeApart(p *pod) {
	others := maps.Clone(a.cluster.on[p.node])
	maps.Copy(others, a.cluster.wide)
	maps.Copy(others, a.farther(p.repulsion))
	for _, uid := range slices.Sorted(maps.Keys(others)) {
		if uid != p.uid {
			a.judgePair(p, others[uid])
		}
	}
}

func (a *Auditor) judgePair(p, other *pod) {
	us, them := p.repulsion, other.repulsion // as they are now: when they are judged both may be gone
	type meeting struct {
		term v1.PodAffinityTerm
		own  *repulsion // of the pod that carries it
		of   *repulsion
	}
	var meetings []meeting
	for _, pair := range [][2]*repulsion{{us, them}, {them, us}} {
		for _, t := range pair[0].terms {
			if !wider(t) && us.node != them.node {
				continue
			}
			if a.repels(pair[0], t, pair[1]) {
				meetings = append(meetings, meeting{t, pair[0], pair[1]})
			}
		}
	}
	if len(meetings) == 0 {
		return
	}
	version, seen := p.version, a.now
	// Who bound them is known a little later, and so is what their nodes were like.
	a.later(lastingKey{AntiAffinity, "pod " + p.uid, "pod " + other.uid}, 3*a.cfg.Lag, func(time.Time) {
		decided := p.decided
		if decided.After(seen) {
			decided = seen
		}
		before := decided.Add(-a.unseen())
		known := them.changed
		if !other.boundByUs(them.node) && known.Before(them.since) {
			known = them.since
		}
		if decided.IsZero() || !p.boundByUs(us.node) || known.After(before) {
			return
		}
		for _, m := range meetings {
			if about, since := repelsIn(a, &m.term, m.own.namespace, m.of.namespace); !about || since.After(before) {
				continue
			}
			topology := m.term.TopologyKey
			if value := a.domain(us.node, topology, before); value == "" || value != a.domain(them.node, topology, before) {
				continue
			}
			a.violate(Violation{Kind: AntiAffinity, Object: "pod " + p.uid, Versions: []string{version}, Revisions: []int64{p.intended},
				Message: fmt.Sprintf("%s was bound to node %s, and %s is on node %s since %s: one of them repels the other from its %s",
					us.name, us.node, them.name, them.node, them.since.Format(clock), topology)})
			return
		}
	})
}

// boundByUs reports whether we bound a pod to a node, as far as intents tell.
func (p *pod) boundByUs(node string) bool { return p.ours && !p.foreign && p.announced[node] }

// repels reports whether a term of a pod matches another one, wherever they are. The label that our Bindings set is on the one and not
// on the other until both are bound: a term that only matches with it, or without it, is not judged.
func (a *Auditor) repels(r *repulsion, t v1.PodAffinityTerm, other *repulsion) bool {
	about, _ := repelsIn(a, &t, r.namespace, other.namespace)
	selector, err := metav1.LabelSelectorAsSelector(t.LabelSelector)
	if err != nil || !about || !selector.Matches(k8slabels.Set(other.labels)) {
		return false
	}
	before := maps.Clone(other.labels)
	delete(before, api.LabelGang)
	return selector.Matches(k8slabels.Set(before))
}

// domain returns the value of a node's label, "" if it has none, or if at some moment since the time given it was another one or the node
// was not there.
func (a *Auditor) domain(name, key string, since time.Time) string {
	n := a.cluster.nodes[name]
	if n == nil || !n.known || len(n.versions) == 0 || n.since.After(since) {
		return ""
	}
	value := n.versions[len(n.versions)-1].node.Labels[key]
	for i := len(n.versions) - 1; i >= 0; i-- {
		if n.versions[i].node.Labels[key] != value {
			return ""
		}
		if !n.versions[i].from.After(since) {
			break
		}
	}
	return value
}
