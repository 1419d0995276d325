package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"basalt.dev/basalt/api"
)

// Kind is what is wrong about a node on which the two disagree.
type Kind string

// Kinds of mismatches. Unsafe: Basalt would place the pod where kube-scheduler would not. Strict: Basalt refuses a node that
// kube-scheduler takes. Words: both refuse it, kube-scheduler because of pods in the node's topology domain, and Basalt gives another reason.
const (
	Unsafe Kind = "UNSAFE"
	Strict Kind = "STRICT"
	Words  Kind = "WORDS"
)

// failed is in the words of a filter that has failed, instead of an answer.
const failed = "filter plugin:"

var kinds = []Kind{Unsafe, Strict, Words}

// Mismatch is one node on which the two disagree.
type Mismatch struct {
	Kind   Kind
	Node   string
	Plugin string // whose refusal Basalt lacks, or what kind of thing Basalt refuses
	Reason string // of whoever refuses
}

func (m Mismatch) String() string {
	return fmt.Sprintf("%s %s: node %s: %s", m.Kind, m.Plugin, m.Node, m.Reason)
}

// Verdict is what came out of the comparison of one case.
type Verdict struct {
	Refused    string // by Basalt: the field,
	Words      string // and all that it says
	Meant      bool   // it is known that Basalt refuses that, whatever kube-scheduler does
	Fit, Nodes int    // nodes that kube-scheduler takes, and all
	Mismatches []Mismatch
	Excused    map[string]int // nodes by the exception that explains their mismatch
	Refusing   map[string]int // nodes by the plugin of kube-scheduler that refuses them
	Failed     int            // nodes about which kube-scheduler fails because of another pod, and says nothing
}

// exception is a mismatch that is meant to be.
type exception struct {
	id, reason string
	applies    func(c *Case, m Mismatch) bool
}

// exceptions lists all of them; there are to be ten at most.
var exceptions = []exception{
	{"out-of-sync", "a node on which more is in use than it has takes no pods, whatever they request: somebody else places pods there", func(_ *Case, m Mismatch) bool {
		return m.Kind != Unsafe && strings.Contains(m.Reason, "out of sync")
	}},
	{"refused-by-kubelet", "a pod that has not started and does not fit beside the others on its node does not count: its kubelet refuses it", func(c *Case, m Mismatch) bool {
		without := c.withoutRefused(m.Node)
		for _, n := range c.Nodes {
			without = without.withoutRefused(n.Name)
		}
		return m.Kind == Unsafe && passes(without, m)
	}},
	{"shared-volume", "a volume that another pod on the node has attached already needs a further place there; and one of an in-tree kind counts while it is attached, and needs its driver to be installed, also where there is no CSINode", func(c *Case, m Mismatch) bool {
		return m.Kind != Unsafe && (c.sharesVolume(m.Node) || c.attachesInTree(m.Node) || strings.Contains(m.Reason, "CSI driver is not installed") && !c.hasCSINode(m.Node))
	}},
	{"nominated", "a node that another scheduler keeps for a pod is kept from all pods, whatever their priority: Basalt evicts nobody to have it; and a claim that only such a pod uses is free, as it is to kube-scheduler, unless the pod that waits has a disk of an in-tree kind, too", func(c *Case, m Mismatch) bool {
		return m.Kind == Strict && takes(c.withoutNominated(), m.Node) || m.Kind == Words && len(c.withoutNominated().Pods) < len(c.Pods) ||
			m.Kind == Unsafe && m.Plugin == names.VolumeRestrictions && passes(c.withoutNominated(), m) && passes(c.withoutDisks(), m)
	}},
	{"empty-selector", "a spread whose selector is empty matches no pods, including pods nominated to a node: " +
		"kube-scheduler counts only those", func(c *Case, m Mismatch) bool {
		return m.Kind == Unsafe && m.Plugin == names.PodTopologySpread && spreadsOverNobody(c.Pod) && passes(c.withoutNominated(), m)
	}},
	{"shared-hostname", "nodes with the same hostname take no pod that an anti-affinity term is about: nothing says which of them it means", func(c *Case, m Mismatch) bool {
		return m.Kind != Unsafe && c.sharesHostname(m.Node)
	}},
	{"provisioned-already", "a claim whose volume is being provisioned for a node needs no capacity there once more", func(c *Case, m Mismatch) bool {
		return m.Kind == Unsafe && m.Plugin == names.VolumeBinding && c.selects(m.Node) && passes(c.withoutCapacities(), m)
	}},
	{"claims-together", "a claim that a pod names twice has to have one volume; and that claims compete for volumes whose node affinities differ in more than one value of a label is found when they are bound, before the pod is", func(c *Case, m Mismatch) bool {
		return m.Kind == Unsafe && m.Plugin == names.VolumeBinding && (passes(c.withClaimsOnce(), m) || c.overlap() && c.together(m))
	}},
	{"kept-volume", "a claim for which a volume is kept gets that one, though its StorageClass could provision another where that is not, and attaches it where pods of it run already; where several are kept for it, any of them will do, and kube-scheduler looks at whichever it finds first; and none gets a volume of an in-tree kind where it could not be used once they are bound",
		func(c *Case, m Mismatch) bool {
			return m.Kind != Unsafe && (c.keeps() || c.offersInTree() || c.attachesKept(m)) || m.Kind == Unsafe && m.Plugin == names.VolumeBinding && c.anyKept(m)
		}},
	{"devices-beside", "where some nodes offer a resource themselves, those that offer it by devices only do not count", func(c *Case, m Mismatch) bool {
		return m.Kind != Unsafe && asks(c.Pod, draResource) && !c.offers(m.Node, draResource)
	}},
}

// spreadsOverNobody reports whether a spread of a pod has an empty selector.
func spreadsOverNobody(p *v1.Pod) bool {
	return slices.ContainsFunc(p.Spec.TopologySpreadConstraints, func(s v1.TopologySpreadConstraint) bool {
		return s.WhenUnsatisfiable == v1.DoNotSchedule && s.LabelSelector != nil && len(s.LabelSelector.MatchLabels)+len(s.LabelSelector.MatchExpressions) == 0
	})
}

// asks reports whether a pod asks for a resource.
func asks(p *v1.Pod, name v1.ResourceName) bool {
	q := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})[name]
	return q.Sign() > 0
}

// offers reports whether a node offers a resource itself.
func (c *Case) offers(node string, name v1.ResourceName) bool {
	return slices.ContainsFunc(c.Nodes, func(n *v1.Node) bool {
		q := n.Status.Allocatable[name]
		return n.Name == node && q.Sign() > 0
	})
}

// takes reports whether Basalt places the pod of a case on a node.
func takes(c *Case, node string) bool {
	a, err := Basalt(c)
	return err == nil && a.Fits[node]
}

// sharesHostname reports whether another node has the hostname of a node.
func (c *Case) sharesHostname(name string) bool {
	host, n := "", 0
	for _, node := range c.Nodes {
		if node.Name == name {
			host = node.Labels[api.LabelHostname]
		}
	}
	for _, node := range c.Nodes {
		if host != "" && node.Labels[api.LabelHostname] == host {
			n++
		}
	}
	return n > 1
}

// passes reports whether in a case the plugin that kept a pod from a node in another one has nothing against it.
func passes(c *Case, m Mismatch) bool {
	a, err := Feasible(c)
	return err == nil && (a.Fits[m.Node] || a.Why[m.Node] != Reason{m.Plugin, m.Reason})
}

// Compare judges a case on both sides.
func Compare(c *Case) (Verdict, error) {
	v := Verdict{Excused: map[string]int{}, Refusing: map[string]int{}}
	want, err := Feasible(c)
	if err != nil {
		return v, fmt.Errorf("ask kube-scheduler: %w", err)
	}
	v.Fit, v.Nodes = len(want.Fits), len(c.Nodes)
	got, err := Basalt(c)
	if err != nil {
		return v, fmt.Errorf("ask Basalt: %w", err)
	}
	if got.Refused != "" {
		v.Refused, v.Words = field(got.Refused), got.Refused
		v.Meant = unsupported(v.Words) || c.usedWhereNoNodeIs(v.Words)
		return v, nil
	}
	compared := false
	for _, name := range slices.Sorted(slices.Values(c.nodeNames())) {
		var m Mismatch
		if !want.Fits[name] {
			v.Refusing[want.Why[name].Plugin]++
		}
		switch {
		case got.Fits[name] && strings.Contains(want.Why[name].Message, failed) && !strings.Contains(want.Why[name].Message, c.Pod.Name):
			v.Failed++ // another pod's objects are broken
			continue
		case got.Fits[name] && !want.Fits[name]:
			m = Mismatch{Unsafe, name, want.Why[name].Plugin, want.Why[name].Message}
		case !got.Fits[name] && want.Fits[name]:
			why := BasaltWhy(c, name)
			m = Mismatch{Strict, name, kindOf(why), why}
			if strings.Contains(why, draResource) {
				m.Plugin += " by devices"
			}
		case !want.Fits[name] && !compared && overSets(want.Why[name]): // all other plugins have accepted the node
			compared = true
			why := BasaltWhy(c, name)
			if strings.Contains(why, want.Why[name].Message) || alsoTrue(c, name, why) {
				continue
			}
			m = Mismatch{Words, name, want.Why[name].Plugin, fmt.Sprintf("%q, not %q", why, want.Why[name].Message)}
		default:
			continue
		}
		if i := slices.IndexFunc(exceptions, func(e exception) bool { return e.applies(c, m) }); i >= 0 {
			v.Excused[exceptions[i].id]++
			continue
		}
		if m.Kind == Unsafe && passes(c.withoutNominated().withoutRefused(name), m) {
			m.Plugin += " by nominated pods"
		}
		v.Mismatches = append(v.Mismatches, m)
	}
	return v, nil
}

// overSets reports whether a node was refused because of the pods in its topology domains.
func overSets(r Reason) bool {
	return r.Plugin == names.PodTopologySpread || r.Plugin == names.InterPodAffinity
}

// alsoTrue reports whether kube-scheduler has a reason of Basalt's as well, behind one that it gives: it names the first.
func alsoTrue(c *Case, node, why string) bool {
	for drop := 1; drop < 16; drop++ {
		without := c.clone()
		without.Pod = c.Pod.DeepCopy()
		if drop&1 > 0 {
			without.Pod.Spec.TopologySpreadConstraints = nil
		}
		if a := without.Pod.Spec.Affinity; a != nil && drop&2 > 0 {
			a.PodAffinity = nil
		}
		if a := without.Pod.Spec.Affinity; a != nil && drop&4 > 0 {
			a.PodAntiAffinity = nil
		}
		if drop&8 > 0 { // the terms of others
			without.Pods = nil
		}
		a, err := Feasible(without)
		if err == nil && a.Why[node].Message != "" && strings.Contains(why, a.Why[node].Message) {
			return true
		}
	}
	return false
}

// field is what a refusal names: its message up to what differs from pod to pod.
func field(message string) string {
	message, _, _ = strings.Cut(message, " (claim ")
	message, _, _ = strings.Cut(message, " is not supported")
	message, _, _ = strings.Cut(message, " with whenUnsatisfiable")
	for digit := range 10 {
		message = strings.ReplaceAll(message, fmt.Sprintf("[%d]", digit), "[]")
	}
	return message
}

// kindOf is the plugin of kube-scheduler that would give such a reason.
func kindOf(why string) string {
	for _, known := range []struct{ part, plugin string }{
		{"NeverFits", "NeverFits"}, {"unschedulable", "NodeUnschedulable"}, {"taint", "TaintToleration"}, {"anti-affinity", "InterPodAffinity"}, {"affinity", "NodeAffinity"}, {"out of sync", "OutOfSync"},
		{"ports", "NodePorts"}, {"Insufficient", "NodeResourcesFit"}, {"Too many pods", "NodeResourcesFit"},
	} {
		if strings.Contains(why, known.part) {
			return known.plugin
		}
	}
	return "Basalt"
}

// result sums up many cases.
type result struct {
	seed           uint64
	cases          int
	seconds        float64
	agreed, partly int // partly: some nodes fit and others do not
	refused        map[string]int
	inVain         int               // of those, where some node fits
	wrongly        map[string]string // of these, one whose field Basalt is not known to refuse, by field
	excused        map[string]int
	refusing       map[string]int
	found          map[Kind]map[string][]finding // by plugin
	errors         []string
}

// finding is a mismatch and the seed that shows it.
type finding struct {
	seed     uint64
	mismatch Mismatch
}

func newResult(seed uint64) *result {
	return &result{seed: seed, refused: map[string]int{}, wrongly: map[string]string{}, excused: map[string]int{}, refusing: map[string]int{}, found: map[Kind]map[string][]finding{Unsafe: {}, Strict: {}, Words: {}}}
}

// failed reports whether there was a mismatch that nothing explains.
func (r *result) failed() bool {
	return len(r.errors) > 0 || len(r.found[Unsafe])+len(r.found[Strict])+len(r.found[Words])+len(r.wrongly) > 0
}

// unsupported reports whether Basalt is known to refuse what it names, though kube-scheduler takes it: devices, which are not supported yet, and
// in-tree volumes that no CSI driver could attach.
func unsupported(words string) bool {
	return strings.HasPrefix(words, "spec.resourceClaims") || strings.Contains(words, " is offered by DeviceClass ") || strings.Contains(words, " it cannot be translated for the CSI driver ")
}

// usedWhereNoNodeIs reports whether a claim that one pod at a time may use is refused for the sake of a pod whose Node
// object is gone: it may still run. kube-scheduler forgets it, Basalt waits until the garbage collector has removed it.
func (c *Case) usedWhereNoNodeIs(words string) bool {
	for _, p := range c.Pods {
		if p.Spec.NodeName != "" && !slices.Contains(c.nodeNames(), p.Spec.NodeName) &&
			strings.Contains(words, "is ReadWriteOncePod, and pod "+p.Name+" uses it") {
			return true
		}
	}
	return false
}

func total(of map[string]int) (n int) {
	for _, some := range of {
		n += some
	}
	return n
}

// note adds the verdict on one case; of each kind and plugin a case counts once.
func (r *result) note(seed uint64, v Verdict, err error) {
	r.cases++
	switch {
	case err != nil:
		r.errors = append(r.errors, fmt.Sprintf("seed %d: %v", seed, err))
	case v.Refused != "":
		r.refused[v.Refused]++
		if v.Fit > 0 {
			r.inVain++
			if !v.Meant {
				r.wrongly[v.Refused] = fmt.Sprintf("seed %d: %s", seed, v.Words)
			}
		}
	case len(v.Mismatches) == 0:
		r.agreed++
		if v.Fit > 0 && v.Fit < v.Nodes {
			r.partly++
		}
	}
	for id := range v.Excused {
		r.excused[id]++
	}
	for plugin := range v.Refusing {
		r.refusing[plugin]++
	}
	seen := map[string]bool{}
	for _, m := range v.Mismatches {
		if key := string(m.Kind) + m.Plugin; !seen[key] {
			seen[key] = true
			r.found[m.Kind][m.Plugin] = append(r.found[m.Kind][m.Plugin], finding{seed, m})
		}
	}
}

func sortedKeys[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
