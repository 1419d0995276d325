package audit

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// nodeVersion is what decides who may run on a node, from a moment on.
type nodeVersion struct {
	from time.Time
	node *v1.Node // labels, taints and spec.unschedulable
}

// port is a port of a node that a pod takes.
type port struct {
	number   int32
	protocol v1.Protocol
	ip       string
}

func (p port) String() string { return fmt.Sprintf("%d/%s", p.number, p.protocol) }

func (p port) conflicts(o port) bool {
	anywhere := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	return p.number == o.number && p.protocol == o.protocol && (p.ip == o.ip || anywhere(p.ip) || anywhere(o.ip))
}

// nodeVersion keeps what a node was like: a decision may rest on what it was a moment ago, and the pods' stream may be
// ahead of the nodes'.
func (a *Auditor) nodeVersion(n *node, o *v1.Node) {
	last := len(n.versions) - 1
	if _, back := a.cluster.lost[n.name]; last < 0 && back || last >= 0 && !maps.Equal(n.versions[last].node.Labels, o.Labels) {
		n.relabelled = a.now
	}
	if last < 0 || !apiequality.Semantic.DeepEqual(n.versions[last].node.Labels, o.Labels) ||
		!apiequality.Semantic.DeepEqual(n.versions[last].node.Spec.Taints, o.Spec.Taints) || n.versions[last].node.Spec.Unschedulable != o.Spec.Unschedulable {
		kept := &v1.Node{}
		kept.Name, kept.Labels = o.Name, o.Labels
		kept.Spec.Taints, kept.Spec.Unschedulable = o.Spec.Taints, o.Spec.Unschedulable
		n.versions = append(n.versions, nodeVersion{a.now, kept})
	}
	old := 0
	for old+1 < len(n.versions) && a.now.Sub(n.versions[old+1].from) > 2*a.cfg.Grace {
		old++
	}
	n.versions = slices.Delete(n.versions, 0, old)
}

// misplaced says which constraint of a pod excludes a node as it was at every moment since the time given, "" when it was
// allowed there at one of them.
func (n *node) misplaced(o *v1.Pod, since time.Time) string {
	why := ""
	for i := len(n.versions) - 1; i >= 0; i-- {
		if why = excludes(o, n.versions[i].node); why == "" || !n.versions[i].from.After(since) {
			return why
		}
	}
	return "" // it came after that moment: what it was like before is not known
}

// excludes says by what a pod's own constraints exclude a node, "" for nothing.
func excludes(o *v1.Pod, n *v1.Node) string {
	if ok, err := nodeaffinity.GetRequiredNodeAffinity(o).Match(n); err != nil || !ok {
		return "its node selector or required node affinity"
	}
	taints := n.Spec.Taints
	if n.Spec.Unschedulable {
		taints = append(slices.Clone(taints), v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule})
	}
	taint, untolerated := schedulinghelper.FindMatchingUntoleratedTaint(klog.Background(), taints, o.Spec.Tolerations, func(t *v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
	}, true)
	if untolerated {
		return fmt.Sprintf("the taint %s, which it does not tolerate", taint.ToString())
	}
	return ""
}

func misplacedKey(p *pod) lastingKey { return lastingKey{Placement, "pod " + p.uid, "misplaced"} }
func evictedKey(p *pod) lastingKey   { return lastingKey{Eviction, "pod " + p.uid, "evicted"} }
func hopelessKey(p *pod) lastingKey  { return lastingKey{Condition, "pod " + p.uid, "unschedulable"} }

// noRoom begins the message of a pod whose gang quota would admit, and that waits because the nodes have no more room;
// of one that no node would take, inVain does.
const (
	noRoom = "the nodes lack room for it"
	inVain = "no node takes it"
)

// judgePod judges what one look at a pod shows: where it was put, that it was evicted, that it is called Unschedulable. What
// was so when the pod was first seen is not judged, for what led to it was not seen.
func (a *Auditor) judgePod(p *pod, o *v1.Pod, fresh, wasBound bool) {
	name := o.Namespace + "/" + o.Name
	if !fresh && !wasBound && p.node != "" && p.ours {
		n, at := a.node(p.node), a.now
		// Whether it was bound by us is known a little later, and so is what the node was like.
		a.later(misplacedKey(p), 3*a.cfg.Lag, func(time.Time) {
			if why := n.misplaced(o, at.Add(-a.cfg.Grace)); !p.foreign && n.known && why != "" {
				a.violate(Violation{Kind: Placement, Object: "pod " + p.uid, Versions: []string{o.ResourceVersion}, Message: fmt.Sprintf("%s was bound to node %s, excluded by %s", name, p.node, why)})
			}
		})
	}
	a.placePorts(p, o)
	a.placeRepulsion(p, o, fresh, wasBound)

	evicted, hopeless := "", false
	for i := range o.Status.Conditions {
		switch c := &o.Status.Conditions[i]; {
		case c.Type == v1.DisruptionTarget && c.Status == v1.ConditionTrue:
			evicted = evictedFor(c.Reason)
		case c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse:
			hopeless = p.ours && p.node == "" && c.Reason == v1.PodReasonUnschedulable &&
				!strings.HasPrefix(c.Message, noRoom) && !strings.HasPrefix(c.Message, inVain)
		}
	}
	blind := fresh || a.now.Before(a.gap) // below, a pod may be of no gang as its PodGroup is shown later than it
	if evicted != "" && p.evicted == "" && !blind {
		g := p.gang
		a.later(evictedKey(p), 2*a.cfg.Lag, func(since time.Time) {
			g := cmp.Or(g, p.gang)
			if why := g.wronglyEvicted(p.uid, evicted); why != "" {
				a.violate(Violation{Kind: Eviction, Object: "pod " + p.uid, Versions: []string{o.ResourceVersion}, Revisions: []int64{a.revision}, Message: fmt.Sprintf("%s was evicted at %s and %s", name, since.Format(clock), why)})
			}
		})
	}
	if hopeless && !p.hopeless && !blind {
		g := p.gang
		a.later(hopelessKey(p), 2*a.cfg.Lag, func(since time.Time) {
			g := cmp.Or(g, p.gang)
			if g == nil || !g.everHad && !a.isOlder(g) {
				a.violate(Violation{Kind: Condition, Object: "pod " + p.uid, Versions: []string{o.ResourceVersion}, Revisions: []int64{a.revision}, Message: fmt.Sprintf("%s is called Unschedulable since %s and its gang never had a reservation: an autoscaler buys nodes for it", name, since.Format(clock))})
			}
		})
	} else if !hopeless {
		delete(a.lasting, hopelessKey(p))
	}
	p.evicted, p.hopeless = evicted, hopeless
}

// isOlder reports whether a gang may have been there before the last snapshot of the control store: then it may have had a reservation and given it
// back, unseen.
func (a *Auditor) isOlder(g *gang) bool {
	read := a.store.read
	return !read.IsZero() && g.first.Before(read.Add(2*a.cfg.Lag))
}

// unjudgePod ends what is judged of a pod that is gone.
func (a *Auditor) unjudgePod(p *pod) {
	if n := a.cluster.nodes[p.node]; n != nil {
		delete(n.strangers, p.uid)
	}
	a.dropPorts(p)
	a.dropRepulsion(p)
	delete(a.lasting, hopelessKey(p))
	a.waitsNot(a.cluster.gangs[p.uid])
}

// placePorts judges that no two pods of ours have the same port of a node.
func (a *Auditor) placePorts(p *pod, o *v1.Pod) {
	if p.node == "" || p.finished {
		a.dropPorts(p)
		return
	}
	if p.ports != nil {
		return
	}
	containers := slices.Clone(o.Spec.Containers)
	for _, c := range o.Spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			containers = append(containers, c)
		}
	}
	p.ports = []port{}
	for _, c := range containers {
		for _, x := range c.Ports {
			if x.HostPort > 0 {
				protocol := x.Protocol
				if protocol == "" {
					protocol = v1.ProtocolTCP
				}
				p.ports = append(p.ports, port{x.HostPort, protocol, x.HostIP})
			}
		}
	}
	if len(p.ports) == 0 {
		return
	}
	n := a.node(p.node)
	if n.ports == nil {
		n.ports = map[string]*pod{}
	}
	for _, uid := range slices.Sorted(maps.Keys(n.ports)) {
		other := n.ports[uid]
		for _, x := range p.ports {
			if i := slices.IndexFunc(other.ports, x.conflicts); i >= 0 && other.ours && p.ours {
				a.later(portsKey(p, other), 3*a.cfg.Lag, func(since time.Time) {
					if !p.foreign && !other.foreign {
						a.violate(Violation{Kind: Placement, Object: "node " + n.name, Versions: []string{o.ResourceVersion}, Message: fmt.Sprintf("pods %s and %s both have its port %s since %s", p.uid, other.uid, x, since.Format(clock))})
					}
				})
			}
		}
	}
	n.ports[p.uid] = p
}

func portsKey(p, o *pod) lastingKey {
	return lastingKey{Placement, "pod " + p.uid, "ports of pod " + o.uid}
}

func (a *Auditor) dropPorts(p *pod) {
	if len(p.ports) > 0 {
		if n := a.cluster.nodes[p.node]; n != nil {
			delete(n.ports, p.uid)
		}
		for k := range a.lasting {
			if k.kind == Placement && (k.object == "pod "+p.uid && k.what != "misplaced" || k.what == "ports of pod "+p.uid) {
				delete(a.lasting, k)
			}
		}
	}
	p.ports = nil
}
