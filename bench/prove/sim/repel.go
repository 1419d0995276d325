package sim

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
)

// Required anti-affinity, in runs with the line repels: every pod is of one of three apps, pods of some gangs repel those of an app from
// their nodes, and so do pods of other schedulers, some of them from their whole zone.

var apps = []string{"red", "green", "blue"}

// repelling draws, in some seeds, whether pods repel each other, before there are any.
func (d *drawer) repelling(die *die) {
	if die.below(2) == 0 {
		d.say("repels")
	}
}

// app and repelled are what the pods of a gang, or a pod of another scheduler, of this key are and repel; "" for none.
func (l *workload) app(key string) string { return apps[int(api.BucketOf(key))/24%3] }

func (l *workload) repelled(key string) string {
	switch kind := int(api.BucketOf(key)) / 72; {
	case !l.repels || kind%3 > 0:
		return ""
	case kind/3%2 == 0:
		return l.app(key) // itself
	default:
		return apps[kind/6%3]
	}
}

// repel gives a pod its app, and the term that it carries.
func (l *workload) repel(p *corev1.Pod, key, topology string) {
	if !l.repels {
		return
	}
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels["app"] = l.app(key)
	if app := l.repelled(key); app != "" {
		p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: topology, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}}}
	}
}

// saw notes when a shard was first shown that a pod has a node.
func (x *shard) saw(p *api.Pod) {
	if !x.w.load.repels && !x.w.load.domains && !x.w.load.volumes || p.Node == "" || !x.bound[p.UID].IsZero() {
		return
	}
	if x.bound == nil {
		x.bound = map[string]time.Time{}
	}
	x.bound[p.UID] = x.w.now
}

// late is how long after a shard was shown a pod that others bound, or after a node got other labels, a Binding may still land that it
// decided before.
const late = 30 * time.Second

// nodeChanged takes note of the labels of a node.
func (c *check) nodeChanged(n *corev1.Node, gone bool) {
	c.cliqueChanged(n, gone)
	of, known := c.nodeLabels[n.Name]
	if gone {
		c.w.log("api: node %s is gone", n.Name)
	} else if known && !maps.Equal(of, n.Labels) {
		c.w.log("api: node %s has labels %v", n.Name, n.Labels)
	}
	if known && !gone && maps.Equal(withoutClique(of), withoutClique(n.Labels)) {
		return
	}
	if c.nodeLabels[n.Name] = n.Labels; gone {
		delete(c.nodeLabels, n.Name)
	}
	c.ordered.nodes = c.w.now
	if c.w.now.After(c.w.start) {
		c.relabelledAt = c.w.now
	}
}

// apart judges C2: a pod that a Binding of ours bound is on no node, and in no zone, where a pod is that it repels or that repels it. What
// others did lately a shard need not have seen.
func (c *check) apart(x *shard, uid string) {
	w := c.w
	p := w.api.podByUID(uid)
	if !w.load.repels && !w.load.domains || p == nil {
		return
	}
	for _, o := range w.api.pods.objects {
		other := o.Object.(*corev1.Pod)
		if other.UID == p.UID || other.Spec.NodeName == "" || finished(other) {
			continue
		}
		if seen, shown := x.bound[string(other.UID)]; c.bound[string(other.UID)] == "" && (!shown || w.now.Sub(seen) < late || other.Status.StartTime == nil) {
			continue // one that has not started need not count: where it has no room, its kubelet refuses it
		}
		if _, strict := w.load.strict[p.Spec.NodeName]; !strict && other.Status.StartTime == nil {
			continue // likewise, if the node shrank meanwhile
		}
		if c.meets(p, other) || c.meets(other, p) {
			w.fail("C2: pod %s is bound to %s, and pod %s is on %s since %s: one of them repels the other", p.UID, p.Spec.NodeName, other.UID, other.Spec.NodeName, c.since[string(other.UID)].Sub(w.start))
		}
	}
}

// knew reports whether a pod was bound by a row that names its node as it is now, so that everybody who judged a later row knew it, too.
func (o *ordered) knew(p *corev1.Pod, n *corev1.Node) bool {
	l := o.landed[string(p.UID)]
	return l != nil && l.line.node == n.Name && l.line.version == n.ResourceVersion
}

// meets reports whether a pod repels another one from where it is.
func (c *check) meets(p, other *corev1.Pod) bool {
	if p.Spec.Affinity == nil || p.Spec.Affinity.PodAntiAffinity == nil {
		return false
	}
	if past := c.ordered.history[string(other.UID)]; len(past) > 1 && c.w.now.Sub(past[len(past)-1].at) < wide && past[0].labels["app"] != other.Labels["app"] {
		return false // it was another one of late
	}
	return slices.ContainsFunc(p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution, func(t corev1.PodAffinityTerm) bool {
		if t.LabelSelector.MatchLabels["app"] != other.Labels["app"] || t.NamespaceSelector != nil && (c.w.now.Sub(c.ordered.spaces) < wide ||
			!chosen(t.NamespaceSelector)(c.w.load.namespaceLabels())) {
			return false
		}
		if t.TopologyKey == api.LabelHostname {
			return p.Spec.NodeName == other.Spec.NodeName
		}
		a, b := c.w.api.node(p.Spec.NodeName), c.w.api.node(other.Spec.NodeName)
		if a == nil || b == nil || c.w.now.Sub(c.relabelledAt) < late && !(c.ordered.knew(p, a) && c.ordered.knew(other, b)) {
			return false
		}
		value, has := a.Labels[t.TopologyKey]
		same, is := b.Labels[t.TopologyKey]
		return has && is && value == same
	})
}

// most is how many pods a gang of this name can have at once on the cluster.
func (l *workload) most(group string) int { return l.mostTied(group, l.mostUntied(group)) }

func (l *workload) mostUntied(group string) int {
	kind := int(api.BucketOf(group))
	gpus, zoneB := kind/4%6 == 0, kind/4%6 == 2
	switch {
	case l.repelled(group) == l.app(group) && l.repels: // one on each node
		if gpus || zoneB {
			return 2
		}
		return 7
	case gpus, zoneB && kind%4 == 2:
		return 6
	}
	return 12
}
