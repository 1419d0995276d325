package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"basalt.dev/basalt/api"
)

// Generate returns the case of a seed. Its values come from small alphabets, so that they collide: what is asked for is about as
// often there as not. Each case has some themes, such as taints or volumes; without a theme nothing of its kind occurs.
func Generate(seed uint64) *Case {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), c: &Case{}, theme: map[theme]bool{}}
	for t := range themes {
		g.theme[t] = g.oneIn(4)
	}
	if g.oneIn(2) { // constraints over sets of nodes, without much else that keeps pods from nodes
		clear(g.theme)
		g.theme[pairsTheme], g.theme[spreadTheme] = g.oneIn(2), g.oneIn(2)
		for _, t := range []theme{labelsTheme, taintsTheme, nominatedTheme} {
			g.theme[t] = g.oneIn(4)
		}
		g.theme[volumesTheme] = g.oneIn(10)
		g.plain = true
	}
	g.namespaces()
	g.nodes()
	if g.theme[volumesTheme] {
		g.storage()
	}
	if g.theme[devicesTheme] {
		g.devices()
	}
	g.boundPods()
	if g.theme[nominatedTheme] {
		g.nominatedPods()
	}
	g.c.Pod = g.pod("pending")
	g.c.Pod.Status.Phase = v1.PodPending
	g.constrain(g.c.Pod, true)
	return g.c.complete()
}

// theme is a kind of thing that only some cases have.
type theme uint8

const (
	labelsTheme     theme = iota // selectors and node affinity
	taintsTheme                  // and cordons
	portsTheme                   // host ports
	pairsTheme                   // pod affinity and anti-affinity
	spreadTheme                  // topology spread
	volumesTheme                 // claims and disks
	devicesTheme                 // dynamic resource allocation
	featuresTheme                // declared features of nodes
	resizesTheme                 // in-place resizes of bound pods
	nominatedTheme               // pods that somebody nominated to a node
	containersTheme              // init containers, sidecars, overhead, resources of the pod
	oddTheme                     // resources other than cpu and memory
	crowdedTheme                 // nodes with more in use than they have
	themes
)

type generator struct {
	*rand.Rand
	c     *Case
	theme map[theme]bool
	space []string // namespaces
	claim map[string][]string
	count int
	plain bool // pods request little
}

func (g *generator) oneIn(n int) bool { return g.IntN(n) == 0 }

// pick returns one of some values.
func pick[T any](g *generator, of ...T) T { return of[g.IntN(len(of))] }

// some returns a random subset.
func some[T any](g *generator, of ...T) []T {
	var out []T
	for _, v := range of {
		if g.oneIn(2) {
			out = append(out, v)
		}
	}
	return out
}

func quantity(s string) resource.Quantity { return resource.MustParse(s) }

func (g *generator) add(o runtime.Object) { g.c.Objects = append(g.c.Objects, o) }

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1"}
}

func namedIn(namespace, name string) metav1.ObjectMeta {
	m := named(name)
	m.Namespace, m.UID = namespace, types.UID("uid-"+namespace+"-"+name)
	return m
}

func (g *generator) namespaces() {
	g.space = []string{"default", "blue", "green", "red"}[:1+g.IntN(4)]
	for _, name := range g.space {
		n := namespace(name)
		if g.oneIn(2) {
			n.Labels["team"] = pick(g, "x", "y")
		}
		if name != "red" {
			n.Labels[api.LabelRepelsOthers] = "true"
		}
		g.add(n)
	}
}

func namespace(name string) *v1.Namespace {
	n := &v1.Namespace{ObjectMeta: named(name)}
	n.Labels = map[string]string{v1.LabelMetadataName: name}
	return n
}

const (
	zoneKey     = v1.LabelTopologyZone
	hostnameKey = v1.LabelHostname
)

var started = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))

// ---- nodes

var featureNames = []string{"RestartAllContainersOnContainerExits", "UserNamespacesHostNetworkSupport", "VolumeBindMountOptions", "Unheard"}

func (g *generator) nodes() {
	n := 3 + g.IntN(4)
	if g.oneIn(4) {
		n = 3 + g.IntN(12)
	}
	if g.oneIn(20) {
		n = 3 + g.IntN(38)
	}
	for i := range n {
		node := &v1.Node{ObjectMeta: named("n" + strconv.Itoa(i+1))}
		node.Labels = map[string]string{}
		if !g.oneIn(12) {
			node.Labels[hostnameKey] = node.Name
		}
		if g.oneIn(15) {
			node.Labels[hostnameKey] = "n1"
		}
		if !g.oneIn(5) {
			node.Labels[zoneKey] = pick(g, "a", "a", "b", "c")
		}
		if g.oneIn(2) {
			node.Labels["rack"] = pick(g, "1", "2", "3", "x")
		}
		if g.oneIn(3) {
			node.Labels["disk"] = pick(g, "ssd", "hdd", "")
		}
		if g.oneIn(8) {
			node.Labels[zoneKey] = ""
		}
		if g.theme[volumesTheme] && g.oneIn(2) {
			node.Labels[v1.LabelTopologyRegion] = pick(g, "r1", "r2")
		}
		if g.theme[volumesTheme] && g.oneIn(4) {
			node.Labels[v1.LabelFailureDomainBetaZone] = pick(g, "a", "b")
		}
		if g.theme[taintsTheme] {
			for range g.IntN(3) {
				node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: pick(g, "dedicated", "special", "rack"), Value: pick(g, "", "a", "b"),
					Effect: pick(g, v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute, v1.TaintEffectPreferNoSchedule)})
			}
			if g.oneIn(4) {
				node.Spec.Unschedulable = true
				if g.oneIn(2) {
					node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule})
				}
			}
		}
		has := v1.ResourceList{
			"cpu": quantity(pick(g, "1", "2", "4", "1500m")), "memory": quantity(pick(g, "1Gi", "2Gi", "4Gi", "1073741823")),
			"pods": quantity(pick(g, "110", "110", "110", "5", "2")), "ephemeral-storage": quantity(pick(g, "1Gi", "10Gi")),
		}
		if g.theme[oddTheme] {
			if g.oneIn(2) {
				has["example.com/gpu"] = quantity(pick(g, "0", "1", "2", "8"))
			}
			if g.oneIn(2) {
				has["hugepages-2Mi"] = quantity(pick(g, "0", "4Mi", "64Mi"))
			}
			if g.oneIn(10) {
				delete(has, pick[v1.ResourceName](g, "memory", "ephemeral-storage", "pods"))
			}
		}
		if g.theme[devicesTheme] && g.oneIn(3) {
			has[draResource] = quantity(pick(g, "0", "2"))
		}
		node.Status.Allocatable, node.Status.Capacity = has, has
		if g.theme[featuresTheme] {
			node.Status.DeclaredFeatures = some(g, featureNames...)
		}
		g.c.Nodes = append(g.c.Nodes, node)
	}
}

// ---- pods

// pod returns a pod without constraints.
func (g *generator) pod(name string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: namedIn(pick(g, g.space...), name)}
	p.CreationTimestamp = started
	p.Labels = g.labels()
	p.Spec.Containers = []v1.Container{g.container("c")}
	if g.oneIn(6) {
		p.Spec.Containers = append(p.Spec.Containers, g.container("d"))
	}
	if g.oneIn(3) {
		value := pick[int32](g, 0, 10, 1000, -5)
		p.Spec.Priority = &value
	}
	if g.theme[containersTheme] {
		if g.oneIn(2) {
			p.Spec.InitContainers = append(p.Spec.InitContainers, g.container("i"))
		}
		if g.oneIn(2) {
			sidecar := g.container("s")
			sidecar.RestartPolicy = pick(g, new(v1.ContainerRestartPolicyAlways), new(v1.ContainerRestartPolicyOnFailure))
			p.Spec.InitContainers = append(p.Spec.InitContainers, sidecar)
			if g.oneIn(2) {
				p.Spec.InitContainers = append(p.Spec.InitContainers, g.container("j"))
			}
		}
		if g.oneIn(3) {
			p.Spec.Overhead = v1.ResourceList{"cpu": quantity(pick(g, "100m", "1")), "memory": quantity("64Mi")}
		}
		if g.oneIn(3) {
			p.Spec.Resources = &v1.ResourceRequirements{Requests: v1.ResourceList{}}
			if g.oneIn(2) {
				p.Spec.Resources.Requests["cpu"] = quantity(pick(g, "2", "3", "4"))
			}
			if g.oneIn(2) {
				p.Spec.Resources.Requests["memory"] = quantity(pick(g, "1Gi", "2Gi", "3Gi"))
			}
			if g.oneIn(2) {
				p.Spec.Resources.Limits = v1.ResourceList{"cpu": quantity("4")}
			}
		}
	}
	return p
}

func (g *generator) labels() map[string]string {
	if g.oneIn(6) {
		return nil
	}
	out := map[string]string{"app": pick(g, "a", "b")}
	if g.oneIn(3) {
		out["tier"] = pick(g, "front", "back")
	}
	return out
}

func (g *generator) container(name string) v1.Container {
	c := v1.Container{Name: name, Image: "i"}
	c.Resources.Requests, c.Resources.Limits = v1.ResourceList{}, v1.ResourceList{}
	if g.plain {
		return c
	}
	if !g.oneIn(3) {
		c.Resources.Requests["cpu"] = quantity(pick(g, "0", "100m", "500m", "1", "2", "0.3", "1e0"))
	}
	if !g.oneIn(3) {
		c.Resources.Requests["memory"] = quantity(pick(g, "0", "64Mi", "500Mi", "1Gi", "1", "1000m", "1500m", "2e9"))
	}
	if g.oneIn(6) {
		c.Resources.Limits["cpu"] = quantity("2")
		if g.oneIn(2) {
			c.Resources.Requests["cpu"] = quantity("2")
		}
	}
	if g.theme[oddTheme] {
		if g.oneIn(4) {
			c.Resources.Requests["example.com/gpu"] = quantity(pick(g, "1", "2", "0"))
			c.Resources.Limits["example.com/gpu"] = c.Resources.Requests["example.com/gpu"]
		}
		if g.oneIn(6) {
			c.Resources.Requests["hugepages-2Mi"] = quantity(pick(g, "2Mi", "4Mi"))
			c.Resources.Limits["hugepages-2Mi"] = c.Resources.Requests["hugepages-2Mi"]
		}
		if g.oneIn(4) {
			c.Resources.Requests["ephemeral-storage"] = quantity(pick(g, "1Mi", "1Gi", "5Gi", "0"))
		}
		if g.oneIn(12) {
			c.Resources.Requests["example.com/nowhere"] = quantity(pick(g, "0", "1"))
			c.Resources.Limits["example.com/nowhere"] = c.Resources.Requests["example.com/nowhere"]
		}
	}
	if g.theme[devicesTheme] && g.oneIn(4) {
		c.Resources.Requests[draResource] = quantity(pick(g, "1", "2"))
		c.Resources.Limits[draResource] = c.Resources.Requests[draResource]
	}
	if g.theme[portsTheme] && g.oneIn(2) {
		for range 1 + g.IntN(2) {
			c.Ports = append(c.Ports, v1.ContainerPort{ContainerPort: 80, HostPort: pick[int32](g, 0, 80, 81, 8080), HostIP: pick(g, "", "", "0.0.0.0", "10.0.0.1", "10.0.0.2", "::"),
				Protocol: pick(g, v1.ProtocolTCP, v1.ProtocolTCP, v1.ProtocolUDP, "")})
		}
	}
	if g.theme[featuresTheme] && g.oneIn(6) {
		c.RestartPolicy = new(v1.ContainerRestartPolicyNever)
		c.RestartPolicyRules = []v1.ContainerRestartRule{{Action: pick(g, v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers),
			ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{1}}}}
	}
	return c
}

// constrain adds constraints to a pod. A pod without a node may have more of them.
func (g *generator) constrain(p *v1.Pod, pending bool) {
	if g.theme[labelsTheme] && pending {
		g.selectors(p)
	}
	if g.theme[taintsTheme] && pending {
		for range g.IntN(3) {
			t := v1.Toleration{Key: pick(g, "dedicated", "special", v1.TaintNodeUnschedulable, ""), Operator: pick(g, v1.TolerationOpEqual, v1.TolerationOpExists, ""),
				Effect: pick(g, "", v1.TaintEffectNoSchedule, v1.TaintEffectNoExecute)}
			if t.Key == "" {
				t.Operator = v1.TolerationOpExists
			}
			if t.Operator != v1.TolerationOpExists {
				t.Value = pick(g, "", "a", "b")
			}
			p.Spec.Tolerations = append(p.Spec.Tolerations, t)
		}
	}
	if g.theme[portsTheme] && g.oneIn(8) {
		p.Spec.HostNetwork = true
	}
	if g.theme[pairsTheme] {
		if !pending && g.oneIn(3) || pending && g.oneIn(2) {
			p.Spec.Affinity = merged(p.Spec.Affinity, &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: g.terms(p)}})
		}
		if !pending && g.oneIn(8) || pending && g.oneIn(2) {
			terms := g.terms(p)
			if g.oneIn(2) { // terms that one pod can match all of
				for i := range terms {
					terms[i].LabelSelector, terms[i].Namespaces, terms[i].NamespaceSelector = terms[0].LabelSelector, terms[0].Namespaces, terms[0].NamespaceSelector
				}
			}
			p.Spec.Affinity = merged(p.Spec.Affinity, &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}})
		}
		if g.oneIn(8) {
			p.Spec.Affinity = merged(p.Spec.Affinity, &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
				PreferredDuringSchedulingIgnoredDuringExecution: []v1.WeightedPodAffinityTerm{{Weight: 1, PodAffinityTerm: g.terms(p)[0]}}}})
		}
	}
	if g.theme[spreadTheme] && (g.oneIn(2) || pending && g.oneIn(2)) {
		for range 1 + g.IntN(3) {
			p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, g.spreadConstraint(p))
		}
	}
	if g.theme[volumesTheme] && (pending || g.oneIn(2)) {
		g.podVolumes(p)
	}
	if g.theme[featuresTheme] {
		if g.oneIn(4) {
			p.Spec.HostNetwork, p.Spec.HostUsers = g.oneIn(2), new(g.oneIn(2))
		}
		if g.oneIn(4) {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "empty", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}})
			mount := v1.VolumeMount{Name: "empty", MountPath: "/empty"}
			if g.oneIn(2) {
				mount.BindMountOptions = []string{"noexec"}
			}
			p.Spec.Containers[0].VolumeMounts = append(p.Spec.Containers[0].VolumeMounts, mount)
		}
	}
	if g.theme[devicesTheme] && pending && g.oneIn(8) {
		p.Spec.ResourceClaims = []v1.PodResourceClaim{{Name: "claim", ResourceClaimName: new("claim")}}
	}
}

// merged adds what b has to a.
func merged(a, b *v1.Affinity) *v1.Affinity {
	if a == nil {
		return b
	}
	if b.NodeAffinity != nil {
		a.NodeAffinity = b.NodeAffinity
	}
	if b.PodAffinity != nil {
		a.PodAffinity = b.PodAffinity
	}
	if b.PodAntiAffinity != nil {
		if a.PodAntiAffinity == nil {
			a.PodAntiAffinity = &v1.PodAntiAffinity{}
		}
		if b.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = b.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		}
		if b.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution != nil {
			a.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution = b.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution
		}
	}
	return a
}

// selectors adds a node selector and required node affinity, with requirements that the API server accepts and that make no sense.
func (g *generator) selectors(p *v1.Pod) {
	if g.oneIn(2) {
		p.Spec.NodeSelector = map[string]string{}
		if g.oneIn(2) {
			p.Spec.NodeSelector[zoneKey] = pick(g, "a", "b", "c")
		}
		if g.oneIn(3) {
			p.Spec.NodeSelector[pick(g, "disk", "rack")] = pick(g, "ssd", "1", "")
		}
		if g.oneIn(10) {
			p.Spec.NodeSelector[hostnameKey] = pick(g, "n1", "n2")
		}
	}
	if g.oneIn(2) {
		s := &v1.NodeSelector{}
		for range 1 + g.IntN(3) {
			s.NodeSelectorTerms = append(s.NodeSelectorTerms, g.nodeTerm())
		}
		p.Spec.Affinity = merged(p.Spec.Affinity, &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: s}})
	}
}

func (g *generator) nodeTerm() (t v1.NodeSelectorTerm) {
	for range g.IntN(3) {
		r := v1.NodeSelectorRequirement{Key: pick(g, zoneKey, "rack", "disk", hostnameKey, "absent"),
			Operator: pick(g, v1.NodeSelectorOpIn, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn, v1.NodeSelectorOpExists, v1.NodeSelectorOpDoesNotExist, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt)}
		switch r.Operator {
		case v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn:
			r.Values = append(some(g, "a", "b", "1", "ssd", "n1", "n2"), pick(g, "a", "", "not a valid value!"))
		case v1.NodeSelectorOpGt, v1.NodeSelectorOpLt:
			r.Values = []string{pick(g, "1", "2", "x", "-1")}
		}
		if g.oneIn(25) {
			r.Key = "not a key!"
		}
		if g.oneIn(30) {
			r.Operator = "Sometimes"
		}
		t.MatchExpressions = append(t.MatchExpressions, r)
	}
	if g.oneIn(3) {
		for range 1 + g.IntN(2) {
			t.MatchFields = append(t.MatchFields, v1.NodeSelectorRequirement{Key: metav1.ObjectNameField, Operator: pick(g, v1.NodeSelectorOpIn, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn), Values: []string{pick(g, "n1", "n2", "n3", "n99")}})
		}
	}
	return t
}

func (g *generator) selector() *metav1.LabelSelector {
	switch g.IntN(10) {
	case 0:
		return nil
	case 1:
		return &metav1.LabelSelector{}
	case 2:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: pick(g, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist)}}}
	case 3:
		return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: pick(g, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn), Values: []string{"front"}}}}
	case 4:
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(g, "a", "b")}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: pick(g, metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn), Values: []string{"back", "front"}}}}
	}
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": pick(g, "a", "b")}}
}

// terms returns terms as the API server leaves them: it merges label keys into the selector.
func (g *generator) terms(p *v1.Pod) (out []v1.PodAffinityTerm) {
	for range pick(g, 1, 1, 1, 2, 2, 3) {
		t := v1.PodAffinityTerm{LabelSelector: g.selector(), TopologyKey: pick(g, hostnameKey, hostnameKey, zoneKey, zoneKey, "rack", "absent")}
		switch g.IntN(7) {
		case 0:
			t.Namespaces = some(g, "default", "blue", "green")
		case 1:
			t.NamespaceSelector = &metav1.LabelSelector{}
		case 2:
			t.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": pick(g, "x", "y")}}
		case 3:
			t.NamespaceSelector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x"}}}}
			t.Namespaces = []string{pick(g, "red", "blue", "unheard")}
		}
		if t.LabelSelector != nil && g.oneIn(6) {
			key, operator := pick(g, "app", "tier"), metav1.LabelSelectorOpIn
			if g.oneIn(2) {
				t.MatchLabelKeys = []string{key}
			} else {
				t.MismatchLabelKeys, operator = []string{key}, metav1.LabelSelectorOpNotIn
			}
			if value, has := p.Labels[key]; has {
				t.LabelSelector.MatchExpressions = append(t.LabelSelector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: operator, Values: []string{value}})
			}
		}
		out = append(out, t)
	}
	return out
}

func (g *generator) spreadConstraint(p *v1.Pod) v1.TopologySpreadConstraint {
	s := v1.TopologySpreadConstraint{MaxSkew: pick[int32](g, 1, 1, 2, 3), TopologyKey: pick(g, zoneKey, zoneKey, hostnameKey, "rack"), LabelSelector: g.selector(),
		WhenUnsatisfiable: pick(g, v1.DoNotSchedule, v1.DoNotSchedule, v1.DoNotSchedule, v1.ScheduleAnyway)}
	if g.oneIn(30) {
		s.TopologyKey = "absent"
	}
	if g.oneIn(4) {
		s.NodeAffinityPolicy = new(pick(g, v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore))
	}
	if g.oneIn(4) {
		s.NodeTaintsPolicy = new(pick(g, v1.NodeInclusionPolicyHonor, v1.NodeInclusionPolicyIgnore))
	}
	if s.WhenUnsatisfiable == v1.DoNotSchedule && g.oneIn(4) {
		s.MinDomains = new(pick[int32](g, 1, 2, 3, 5))
	}
	if s.LabelSelector != nil && g.oneIn(4) {
		s.MatchLabelKeys = some(g, "app", "tier", "rev")
		if g.oneIn(2) { // as API servers since 1.34 leave it
			for _, key := range s.MatchLabelKeys {
				if value, has := p.Labels[key]; has {
					s.LabelSelector.MatchExpressions = append(s.LabelSelector.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpIn, Values: []string{value}})
				}
			}
		}
	}
	return s
}

func (g *generator) boundPods() {
	n := g.IntN(8)
	switch {
	case g.oneIn(6):
		n = 0
	case g.oneIn(20):
		n = g.IntN(121)
	case g.oneIn(4):
		n = g.IntN(30)
	}
	used := map[string]v1.ResourceList{}
	for range n {
		g.count++
		p := g.pod("b" + strconv.Itoa(g.count))
		node := pick(g, g.c.Nodes...)
		p.Spec.NodeName = node.Name
		p.Status.Phase, p.Status.StartTime = v1.PodRunning, &started
		g.constrain(p, false)
		if g.oneIn(30) {
			p.Spec.NodeName = "gone" // a node that was deleted, or is not known yet
		}
		switch {
		case g.oneIn(15):
			p.Status.Phase = pick(g, v1.PodSucceeded, v1.PodFailed)
		case g.oneIn(15):
			p.Status.Phase, p.Status.StartTime = v1.PodPending, nil
		case g.oneIn(8):
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &started, new(int64(30))
		}
		if g.theme[resizesTheme] && g.oneIn(2) {
			g.resize(p)
		}
		if requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}); !g.theme[crowdedTheme] {
			if !fits(requests, used[node.Name], node.Status.Allocatable) {
				continue
			}
			used[node.Name] = sum(used[node.Name], requests)
		}
		g.c.Pods = append(g.c.Pods, p)
	}
}

func sum(a, b v1.ResourceList) v1.ResourceList {
	out := v1.ResourceList{}
	for _, l := range []v1.ResourceList{a, b} {
		for name, q := range l {
			s := out[name]
			s.Add(q)
			out[name] = s
		}
	}
	return out
}

func fits(requests, used, has v1.ResourceList) bool {
	for name, q := range sum(requests, used) {
		if h := has[name]; q.Cmp(h) > 0 {
			return false
		}
	}
	return true
}

// resize gives a bound pod the status of an in-place resize that is under way, deferred, infeasible or done.
func (g *generator) resize(p *v1.Pod) {
	amounts := func() v1.ResourceList {
		return v1.ResourceList{"cpu": quantity(pick(g, "100m", "500m", "1", "2")), "memory": quantity(pick(g, "64Mi", "500Mi", "1Gi"))}
	}
	for i := range p.Spec.Containers {
		s := v1.ContainerStatus{Name: p.Spec.Containers[i].Name}
		if !g.oneIn(3) {
			s.AllocatedResources = amounts()
		}
		if !g.oneIn(3) {
			s.Resources = &v1.ResourceRequirements{Requests: amounts()}
		}
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, s)
	}
	for i := range p.Spec.InitContainers {
		if g.oneIn(2) {
			p.Status.InitContainerStatuses = append(p.Status.InitContainerStatuses, v1.ContainerStatus{Name: p.Spec.InitContainers[i].Name, AllocatedResources: amounts(), Resources: &v1.ResourceRequirements{Requests: amounts()}})
		}
	}
	if p.Spec.Resources != nil && g.oneIn(2) {
		p.Status.AllocatedResources, p.Status.Resources = amounts(), &v1.ResourceRequirements{Requests: amounts()}
	}
	switch g.IntN(4) {
	case 0:
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodResizePending, Status: v1.ConditionTrue, Reason: pick(g, v1.PodReasonInfeasible, v1.PodReasonDeferred)})
	case 1:
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodResizeInProgress, Status: v1.ConditionTrue})
	}
}

// nominatedPods adds pods that wait for a node that a scheduler has nominated.
func (g *generator) nominatedPods() {
	for i := range 1 + g.IntN(3) {
		p := g.pod(fmt.Sprintf("w%d", i+1))
		p.Status.Phase, p.Status.NominatedNodeName = v1.PodPending, pick(g, g.c.Nodes...).Name
		g.constrain(p, false)
		g.c.Pods = append(g.c.Pods, p)
	}
}
