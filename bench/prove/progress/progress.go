// Package progress judges that nobody waits for ever who could start: it places what a gang lacks by hand, and if
// that can be done, the gang should not have been waiting.
//
// It shares no code with what it judges. Whether a node takes one pod beside others follows the documentation of
// Kubernetes and its component-helpers; which pods go where, and in which order, is a search through all ways
// (Cluster.Start). So it is for small worlds: it says that it gave up when there are too many ways to go through.
//
// Who may be evicted for whom is judged likewise: a search through all sets of victims (Policy.Victims), and fair
// shares that are poured little by little (Share.Divide).
//
// It decides nothing about time. Who calls it has waited until the cluster was at rest, and has seen that the queues
// have room.
//
// It does not know volumes and devices. Who calls it leaves out pods that need some.
package progress

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"
)

// Cluster is what there is: nodes, the pods on them that are not finished, and the labels of namespaces.
type Cluster struct {
	Nodes      []*v1.Node
	Pods       []*v1.Pod // those without a node do not count
	Namespaces map[string]map[string]string

	// Within, where it is set, says where pods may be placed; what they require is counted on all nodes.
	Within func(*v1.Node) bool
}

// ErrTooMany says that not all ways were gone through.
var ErrTooMany = errors.New("too many ways to place the pods to go through all of them")

// waysAtMost is how many partial placements are looked at.
const waysAtMost = 50_000

// Start looks for nodes for some of the pods, so that enough says yes of those that have one. Each pod is placed
// beside those placed before it, in whatever order: that is what a scheduler could do. It returns node by name of the
// pod, and nil if there is no way.
func (c *Cluster) Start(pods []*v1.Pod, enough func(placed []*v1.Pod) bool) (map[string]string, error) {
	s := &search{cluster: c, seen: map[string]bool{}, enough: enough}
	for _, p := range c.Pods {
		if p.Spec.NodeName != "" && p.Status.Phase != v1.PodSucceeded && p.Status.Phase != v1.PodFailed {
			s.on = append(s.on, newPlaced(p, p.Spec.NodeName))
		}
	}
	s.fixed = len(s.on)
	kinds := map[string]int{}
	for _, p := range pods {
		key := kindOf(p)
		i, known := kinds[key]
		if !known {
			i = len(s.kinds)
			kinds[key] = i
			s.kinds = append(s.kinds, nil)
		}
		s.kinds[i] = append(s.kinds[i], p)
	}
	s.used = make([][]string, len(s.kinds))
	s.fewest()
	if found := s.next(); found != nil || !s.gaveUp {
		return found, nil
	}
	return nil, ErrTooMany
}

// Least is enough when so many pods have a node.
func Least(n int) func([]*v1.Pod) bool {
	return func(placed []*v1.Pod) bool { return len(placed) >= n }
}

// kindOf is the same for pods that may take each other's places.
func kindOf(p *v1.Pod) string {
	spec, _ := p.Spec.Marshal()
	b := strings.Builder{}
	b.Write(spec)
	for _, k := range slices.Sorted(maps.Keys(p.Labels)) {
		fmt.Fprintf(&b, "\x00%s=%s", k, p.Labels[k])
	}
	fmt.Fprint(&b, p.Namespace)
	for _, k := range slices.Sorted(maps.Keys(p.Annotations)) {
		fmt.Fprintf(&b, "\x00%s=%s", k, p.Annotations[k])
	}
	return b.String()
}

type search struct {
	cluster *Cluster
	on      []*placed // on nodes: those that were there, and then those that are tried
	fixed   int       // of on, those that were there
	kinds   [][]*v1.Pod
	used    [][]string // by kind, the nodes of those that are placed
	seen    map[string]bool
	enough  func([]*v1.Pod) bool
	gaveUp  bool
}

// placed is a pod on a node.
type placed struct {
	*v1.Pod
	node     string
	requests v1.ResourceList
}

func newPlaced(p *v1.Pod, node string) *placed {
	return &placed{p, node, resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: true})}
}

// fewest sorts the kinds so that those with the fewest nodes come first: a way is found sooner.
func (s *search) fewest() {
	nodes := map[*v1.Pod]int{}
	for _, kind := range s.kinds {
		for _, n := range s.cluster.Nodes {
			if s.fits(kind[0], n) {
				nodes[kind[0]]++
			}
		}
	}
	slices.SortStableFunc(s.kinds, func(a, b []*v1.Pod) int { return nodes[a[0]] - nodes[b[0]] })
}

// next places one more pod.
func (s *search) next() map[string]string {
	tried := s.on[s.fixed:]
	pods := make([]*v1.Pod, 0, len(tried))
	for _, p := range tried {
		pods = append(pods, p.Pod)
	}
	if s.enough(pods) {
		out := map[string]string{}
		for _, p := range tried {
			out[p.Name] = p.node
		}
		return out
	}
	if len(s.seen) >= waysAtMost {
		s.gaveUp = true
		return nil
	}
	for i, kind := range s.kinds {
		if len(s.used[i]) == len(kind) {
			continue
		}
		p := kind[len(s.used[i])]
		for _, n := range s.cluster.Nodes {
			if !s.fits(p, n) {
				continue
			}
			s.used[i] = append(s.used[i], n.Name)
			if key := s.key(); !s.seen[key] {
				s.seen[key] = true
				s.on = append(s.on, newPlaced(p, n.Name))
				if found := s.next(); found != nil {
					return found
				}
				s.on = s.on[:len(s.on)-1]
			}
			s.used[i] = s.used[i][:len(s.used[i])-1]
		}
	}
	return nil
}

// key names what is placed, whoever came first.
func (s *search) key() string {
	var b strings.Builder
	for _, nodes := range s.used {
		for _, n := range slices.Sorted(slices.Values(nodes)) {
			b.WriteString(n)
			b.WriteByte(' ')
		}
		b.WriteByte('|')
	}
	return b.String()
}

// fits reports whether a node takes a pod beside all that are on nodes.
func (s *search) fits(p *v1.Pod, n *v1.Node) bool {
	within := s.cluster.Within
	return (within == nil || within(n)) && s.cluster.admits(p, n) && s.hasRoom(p, n) && s.freePorts(p, n) &&
		s.affinity(p, n) && s.antiAffinity(p, n) && s.spreads(p, n)
}

// admits judges what has nothing to do with other pods.
func (c *Cluster) admits(p *v1.Pod, n *v1.Node) bool {
	cordon := []v1.Taint{{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule}}
	if n.Spec.Unschedulable && !tolerates(p, cordon) {
		return false
	}
	return selects(p, n) && tolerates(p, n.Spec.Taints)
}

func selects(p *v1.Pod, n *v1.Node) bool {
	ok, err := nodeaffinity.GetRequiredNodeAffinity(p).Match(n)
	return ok && err == nil
}

func tolerates(p *v1.Pod, taints []v1.Taint) bool {
	hard := func(t *v1.Taint) bool {
		return t.Effect == v1.TaintEffectNoSchedule || t.Effect == v1.TaintEffectNoExecute
	}
	_, untolerated := schedulinghelper.FindMatchingUntoleratedTaint(klog.Background(), taints, p.Spec.Tolerations,
		hard, false)
	return !untolerated
}

func (s *search) hasRoom(p *v1.Pod, n *v1.Node) bool {
	left := v1.ResourceList{}
	for name, q := range n.Status.Allocatable {
		left[name] = q.DeepCopy()
	}
	take := func(requests v1.ResourceList) {
		for name, q := range requests {
			l := left[name]
			l.Sub(q)
			left[name] = l
		}
		l := left[v1.ResourcePods]
		l.Sub(*resource.NewQuantity(1, resource.DecimalSI))
		left[v1.ResourcePods] = l
	}
	for _, o := range s.on {
		if o.node == n.Name {
			take(o.requests)
		}
	}
	requests := newPlaced(p, "").requests
	take(requests)
	for name := range requests {
		if l := left[name]; l.Sign() < 0 {
			return false
		}
	}
	pods := left[v1.ResourcePods]
	return pods.Sign() >= 0
}

func ports(p *v1.Pod) (out []v1.ContainerPort) {
	for _, c := range p.Spec.Containers {
		for _, port := range c.Ports {
			if port.HostPort > 0 {
				out = append(out, port)
			}
		}
	}
	return out
}

func (s *search) freePorts(p *v1.Pod, n *v1.Node) bool {
	mine := ports(p)
	if len(mine) == 0 {
		return true
	}
	any := func(ip string) bool { return ip == "" || ip == "0.0.0.0" || ip == "::" }
	protocol := func(p v1.ContainerPort) v1.Protocol {
		if p.Protocol == "" {
			return v1.ProtocolTCP
		}
		return p.Protocol
	}
	for _, o := range s.on {
		if o.node != n.Name {
			continue
		}
		for _, a := range ports(o.Pod) {
			for _, b := range mine {
				if a.HostPort == b.HostPort && protocol(a) == protocol(b) &&
					(any(a.HostIP) || any(b.HostIP) || a.HostIP == b.HostIP) {
					return false
				}
			}
		}
	}
	return true
}

func (s *search) node(name string) *v1.Node {
	for _, n := range s.cluster.Nodes {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// together reports whether two nodes are in one domain of a key.
func together(a, b *v1.Node, key string) bool {
	if a == nil || b == nil {
		return false
	}
	x, has := a.Labels[key]
	y, too := b.Labels[key]
	return has && too && x == y
}

// matches reports whether a term of one pod is about another one.
func (s *search) matches(term *v1.PodAffinityTerm, of, other *v1.Pod) bool {
	if term.LabelSelector == nil {
		return false
	}
	selector, err := metav1.LabelSelectorAsSelector(term.LabelSelector)
	if err != nil || !selector.Matches(labels.Set(other.Labels)) {
		return false
	}
	for _, k := range term.MatchLabelKeys {
		if v, has := of.Labels[k]; has && other.Labels[k] != v {
			return false
		}
	}
	for _, k := range term.MismatchLabelKeys {
		if v, has := of.Labels[k]; has && other.Labels[k] == v {
			return false
		}
	}
	if len(term.Namespaces) == 0 && term.NamespaceSelector == nil {
		return of.Namespace == other.Namespace
	}
	if slices.Contains(term.Namespaces, other.Namespace) {
		return true
	}
	if term.NamespaceSelector == nil {
		return false
	}
	spaces, err := metav1.LabelSelectorAsSelector(term.NamespaceSelector)
	return err == nil && spaces.Matches(labels.Set(s.cluster.Namespaces[other.Namespace]))
}

func affinityTerms(p *v1.Pod) []v1.PodAffinityTerm {
	if f := p.Spec.Affinity; f != nil && f.PodAffinity != nil {
		return f.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

func antiTerms(p *v1.Pod) []v1.PodAffinityTerm {
	if f := p.Spec.Affinity; f != nil && f.PodAntiAffinity != nil {
		return f.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	}
	return nil
}

// affinity judges the pods that a pod has to be beside: those that match all its terms, one of them in the node's
// domain of each term. The first of a group whose pods match their own terms goes to any node that has the keys.
func (s *search) affinity(p *v1.Pod, n *v1.Node) bool {
	terms := affinityTerms(p)
	if len(terms) == 0 {
		return true
	}
	all := func(o *v1.Pod) bool {
		for i := range terms {
			if !s.matches(&terms[i], p, o) {
				return false
			}
		}
		return true
	}
	beside, anywhere := make([]bool, len(terms)), false
	for _, o := range s.on {
		if !all(o.Pod) {
			continue
		}
		at := s.node(o.node)
		for i := range terms {
			if at != nil && at.Labels[terms[i].TopologyKey] != "" {
				anywhere = true
			}
			beside[i] = beside[i] || together(at, n, terms[i].TopologyKey)
		}
	}
	if !slices.Contains(beside, false) {
		return true
	}
	for i := range terms {
		if _, has := n.Labels[terms[i].TopologyKey]; !has {
			return false
		}
	}
	return !anywhere && all(p)
}

// antiAffinity judges those that it may not be beside, and those that may not be beside it.
func (s *search) antiAffinity(p *v1.Pod, n *v1.Node) bool {
	apart := func(of, other *v1.Pod, at *v1.Node) bool {
		terms := antiTerms(of)
		for i := range terms {
			if together(at, n, terms[i].TopologyKey) && s.matches(&terms[i], of, other) {
				return false
			}
		}
		return true
	}
	for _, o := range s.on {
		at := s.node(o.node)
		if !apart(p, o.Pod, at) || !apart(o.Pod, p, at) {
			return false
		}
	}
	return true
}

// spreads judges a pod's hard spread constraints.
func (s *search) spreads(p *v1.Pod, n *v1.Node) bool {
	var hard []v1.TopologySpreadConstraint
	for _, c := range p.Spec.TopologySpreadConstraints {
		if c.WhenUnsatisfiable == v1.DoNotSchedule {
			hard = append(hard, c)
		}
	}
	for i := range hard {
		if !s.spread(p, n, hard, &hard[i]) {
			return false
		}
	}
	return true
}

func (s *search) spread(p *v1.Pod, n *v1.Node, all []v1.TopologySpreadConstraint, c *v1.TopologySpreadConstraint) bool {
	selector, err := metav1.LabelSelectorAsSelector(c.LabelSelector) // of nil it matches nothing
	if err != nil {
		return false
	}
	counted := func(o *v1.Pod) bool {
		if o.Namespace != p.Namespace || selector.Empty() || !selector.Matches(labels.Set(o.Labels)) {
			return false
		}
		for _, k := range c.MatchLabelKeys {
			if v, has := p.Labels[k]; has && o.Labels[k] != v {
				return false
			}
		}
		return true
	}
	eligible := func(n *v1.Node) bool {
		for i := range all {
			if _, has := n.Labels[all[i].TopologyKey]; !has {
				return false
			}
		}
		if (c.NodeAffinityPolicy == nil || *c.NodeAffinityPolicy == v1.NodeInclusionPolicyHonor) && !selects(p, n) {
			return false
		}
		return c.NodeTaintsPolicy == nil || *c.NodeTaintsPolicy == v1.NodeInclusionPolicyIgnore || tolerates(p, n.Spec.Taints)
	}
	domains := map[string]int{}
	for _, o := range s.cluster.Nodes {
		if eligible(o) {
			domains[o.Labels[c.TopologyKey]] += 0
		}
	}
	for _, o := range s.on {
		if at := s.node(o.node); at != nil && eligible(at) && o.DeletionTimestamp == nil && counted(o.Pod) {
			domains[at.Labels[c.TopologyKey]]++
		}
	}
	mine, has := n.Labels[c.TopologyKey]
	if !has {
		return false
	}
	least := -1
	for _, count := range domains {
		if least < 0 || count < least {
			least = count
		}
	}
	if least < 0 || c.MinDomains != nil && len(domains) < int(*c.MinDomains) {
		least = 0
	}
	self := 0
	if counted(p) {
		self = 1
	}
	return domains[mine]+self-least <= int(c.MaxSkew)
}
