// Package unlike draws gangs of unlike pods, and nodes for each, and decides by a search through all placements
// (package progress) whether the minimum of a gang can start there. Its test has real shards place such gangs on a real
// API server, and that of package sim does so in virtual time.
//
// Each seed is one case: some nodes, and pods of up to four kinds that differ in requests, selectors, tolerations, host
// ports and priority, and require something of one another.
package unlike

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/progress"
	"basalt.dev/basalt/bench/stage/kubelet"
)

const (
	pool = "example.com/pool" // of nodes: each case has one
	zone = "example.com/zone"
	disk = "example.com/disk"
	gpus = "example.com/gpu"
)

// Classes of priority that pods name: those of a gang may differ.
var Classes = map[string]int32{"low": 10, "middle": 20, "high": 30}

// Case is a gang whose pods differ, and the nodes of the pool that all of them select.
type Case struct {
	Seed  uint64
	Name  string // of its namespace, its pool and its PodGroup
	Nodes []*corev1.Node
	Group *v1beta1.PodGroup
	Pods  []*corev1.Pod // in the order in which they are created
}

type drawer struct{ *rand.Rand }

// in reports whether something that happens once in n times does.
func (d drawer) in(n int) bool { return d.IntN(n) == 0 }

func pick[T any](d drawer, from ...T) T { return from[d.IntN(len(from))] }

// Draw draws a case. The same seed draws the same.
func Draw(seed uint64) *Case {
	d := drawer{rand.New(rand.NewPCG(seed, 0x6261736c74))}
	c := &Case{Seed: seed, Name: fmt.Sprint("unlike-", seed)}
	c.drawNodes(d)
	kinds := 1 + d.IntN(4)
	for k := range kinds {
		template := c.template(d, k, kinds)
		count := 1 + d.IntN(3)
		if k == 0 {
			count = 1 // the leader
		}
		for i := range count {
			p := template.DeepCopy()
			p.Name = fmt.Sprintf("%s-%d", p.Labels["app"], i)
			c.Pods = append(c.Pods, p)
		}
	}
	d.Shuffle(len(c.Pods), func(i, j int) { c.Pods[i], c.Pods[j] = c.Pods[j], c.Pods[i] })
	c.Group = &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: c.Name, Name: c.Name}}
	least := len(c.Pods)
	if d.in(3) {
		least = 1 + d.IntN(len(c.Pods))
	}
	c.Group.Spec.SchedulingPolicy.Gang.MinCount = int32(least)
	if d.in(8) {
		c.Group.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: []v1beta1.TopologyConstraint{
			{Key: zone, Mode: pick(d, v1beta1.TopologyRequired, v1beta1.TopologyPreferred)}}}
	}
	return c
}

// Least is how many pods start together.
func (c *Case) Least() int { return int(c.Group.Spec.SchedulingPolicy.Gang.MinCount) }

// Start places so many of the pods beside those that are bound, and returns nil if there is no way.
func (c *Case) Start(bound, pods []*corev1.Pod, least int) (map[string]string, error) {
	cluster := &progress.Cluster{Nodes: c.Nodes, Pods: bound}
	if !c.required() {
		return cluster.Start(pods, progress.Least(least))
	}
	zones, gaveUp := map[string]bool{}, error(nil)
	for _, n := range c.Nodes {
		in := slices.IndexFunc(bound, func(p *corev1.Pod) bool { return p.Spec.NodeName == n.Name }) >= 0
		if value := n.Labels[zone]; value != "" && (in || len(bound) == 0) {
			zones[value] = true
		}
	}
	for value := range zones {
		cluster.Within = func(n *corev1.Node) bool { return n.Labels[zone] == value }
		nodes, err := cluster.Start(pods, progress.Least(least))
		if nodes != nil {
			return nodes, nil
		}
		gaveUp = errors.Join(gaveUp, err)
	}
	return nil, gaveUp
}

// required reports whether the PodGroup requires one zone for all of its pods.
func (c *Case) required() bool {
	s := c.Group.Spec.SchedulingConstraints
	return s != nil && s.Topology[0].Mode == v1beta1.TopologyRequired
}

func (c *Case) drawNodes(d drawer) {
	zones := 1 + d.IntN(3)
	for i := range 1 + d.IntN(6) {
		cpu, memory, pods := pick(d, "1", "2", "4"), pick(d, "4Gi", "8Gi"), pick(d, int64(3), 6, 10)
		n := kubelet.Node(fmt.Sprintf("%s-%d", c.Name, i), cpu, memory, pods)
		n.Labels[pool] = c.Name
		if !d.in(10) {
			n.Labels[zone] = fmt.Sprint(c.Name, "-", d.IntN(zones))
		}
		n.Labels[disk] = pick(d, "ssd", "hdd")
		if d.in(3) {
			n.Status.Allocatable[gpus] = resource.MustParse(pick(d, "1", "2", "4"))
			n.Status.Capacity[gpus] = n.Status.Allocatable[gpus]
		}
		n.Status.Allocatable[corev1.ResourceEphemeralStorage] = resource.MustParse("10Gi")
		n.Status.Capacity[corev1.ResourceEphemeralStorage] = resource.MustParse("10Gi")
		if d.in(5) {
			n.Spec.Taints = []corev1.Taint{{Key: "special", Value: "yes", Effect: corev1.TaintEffectNoSchedule}}
		}
		c.Nodes = append(c.Nodes, n)
	}
}

// template draws the pods of one kind.
func (c *Case) template(d drawer, k, kinds int) *corev1.Pod {
	app := func(k int) string { return []string{"leader", "worker", "helper", "other"}[k] }
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: c.Name, Labels: map[string]string{"app": app(k), "job": "unlike", api.LabelPodGroup: c.Name}}}
	p.Spec.SchedulerName = api.SchedulerName
	p.Spec.NodeSelector = map[string]string{pool: c.Name}
	requests := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(
		pick(d, "1m", "100m", "250m", "500m", "1", "1", "1500m", "2", "4"))}
	if d.in(3) {
		requests[corev1.ResourceMemory] = resource.MustParse(pick(d, "1Mi", "1Gi", "3Gi", "8Gi"))
	}
	if d.in(6) {
		requests[corev1.ResourceEphemeralStorage] = resource.MustParse(pick(d, "1Gi", "6Gi"))
	}
	container := corev1.Container{Name: "c", Image: "none"}
	container.Resources.Requests = requests
	if d.in(6) {
		requests[gpus] = resource.MustParse(pick(d, "1", "2"))
		container.Resources.Limits = corev1.ResourceList{gpus: requests[gpus]}
	}
	if d.in(4) {
		port := corev1.ContainerPort{ContainerPort: 8080, HostPort: int32(8080 + d.IntN(2)), Protocol: corev1.ProtocolTCP}
		if d.in(4) {
			port.Protocol = corev1.ProtocolUDP
		}
		container.Ports = []corev1.ContainerPort{port}
	}
	p.Spec.Containers = []corev1.Container{container}
	if d.in(5) {
		p.Spec.NodeSelector[disk] = pick(d, "ssd", "hdd")
	}
	if d.in(3) {
		p.Spec.Tolerations = []corev1.Toleration{{Key: "special", Operator: corev1.TolerationOpExists}}
	}
	if d.in(3) {
		p.Spec.PriorityClassName = pick(d, "low", "middle", "high")
	}
	c.related(d, p, func() *metav1.LabelSelector {
		if d.in(5) {
			return &metav1.LabelSelector{MatchLabels: map[string]string{"job": "unlike"}}
		}
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app(d.IntN(kinds))}}
	})
	return p
}

// related draws what a pod requires, and would rather have, of other pods.
func (c *Case) related(d drawer, p *corev1.Pod, some func() *metav1.LabelSelector) {
	a := &corev1.Affinity{}
	key := func() string { return pick(d, zone, corev1.LabelHostname) }
	term := func() corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{TopologyKey: key(), LabelSelector: some()}
	}
	if d.in(4) {
		a.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term()}}
	}
	if d.in(4) {
		a.PodAntiAffinity = &corev1.PodAntiAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term()}}
	}
	in := func(key, value string) corev1.NodeSelectorTerm {
		return corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: key, Operator: corev1.NodeSelectorOpIn, Values: []string{value}}}}
	}
	switch {
	case d.in(8):
		a.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{in(zone, c.Name+"-0"), in(disk, "ssd")}}}
	case d.in(6):
		prefers := corev1.PreferredSchedulingTerm{Weight: 50, Preference: in(disk, pick(d, "ssd", "hdd"))}
		a.NodeAffinity = &corev1.NodeAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{prefers}}
	}
	if a.PodAffinity != nil || a.PodAntiAffinity != nil || a.NodeAffinity != nil {
		p.Spec.Affinity = a
	}
	for range 2 {
		if !d.in(5) {
			continue
		}
		s := corev1.TopologySpreadConstraint{
			MaxSkew: int32(1 + d.IntN(2)), TopologyKey: key(), WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: some()}
		if d.in(4) {
			least := int32(1 + d.IntN(3))
			s.MinDomains = &least
		}
		if len(p.Spec.TopologySpreadConstraints) == 0 || p.Spec.TopologySpreadConstraints[0].TopologyKey != s.TopologyKey {
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, s)
		}
	}
}

// String describes the case, a line for each node and pod.
func (c *Case) String() string {
	var b strings.Builder
	for _, n := range c.Nodes {
		fmt.Fprintf(&b, "  node %s zone=%s disk=%s taints=%d %v\n",
			n.Name, n.Labels[zone], n.Labels[disk], len(n.Spec.Taints), amounts(n.Status.Allocatable))
	}
	fmt.Fprintf(&b, "  PodGroup minCount=%d %v\n", c.Least(), c.Group.Spec.SchedulingConstraints)
	for _, p := range c.Pods {
		spec := map[string]any{"affinity": p.Spec.Affinity, "spreads": p.Spec.TopologySpreadConstraints,
			"ports": p.Spec.Containers[0].Ports}
		text, _ := json.Marshal(spec)
		fmt.Fprintf(&b, "  pod %s %v disk=%s tolerates=%d %s %s\n", p.Name, amounts(p.Spec.Containers[0].Resources.Requests),
			p.Spec.NodeSelector[disk], len(p.Spec.Tolerations), p.Spec.PriorityClassName, text)
	}
	return b.String()
}

func amounts(list corev1.ResourceList) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		out = append(out, fmt.Sprintf("%s=%s", name, q.String()))
	}
	return out
}
