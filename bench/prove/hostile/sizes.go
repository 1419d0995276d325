package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"basalt.dev/basalt/api"
)

// sizes are attacks with objects that are large, or name much.
var sizes = []Attack{
	{Name: "affinity", About: "gangs of two pods with 600 KiB of node affinity each", Says: []string{"spec.affinity", "affinity"}, run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(6), 2, func(i int, _ *rand.Rand) {
			group := s.name(i)
			_ = s.group(ctx, group, s.Queue, 2)
			for j := range 2 {
				p := of(s.pod(fmt.Sprintf("%s-%d", group, j)), group)
				notIn(p, i*2+j, 9_400)
				_, _ = s.create(ctx, p)
			}
		})
	}},
	{Name: "one-affinity", About: "single pods with 1,100 KiB of node affinity", Says: []string{"spec.affinity", "affinity"}, run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(4), 2, func(i int, _ *rand.Rand) {
			p := s.pod(s.name(i))
			notIn(p, i, 17_200)
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "tolerations", About: "pods with half a megabyte of tolerations", Says: []string{"spec.tolerations", "tolerations"}, run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(8), 2, func(i int, _ *rand.Rand) {
			p := s.pod(s.name(i))
			for j := range 3_700 {
				p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: long(63, i, j), Operator: v1.TolerationOpEqual, Value: long(63, j), Effect: v1.TaintEffectNoSchedule})
			}
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "selector", About: "pods with 500 KiB of node selector", Says: []string{"spec.nodeSelector", "nodeSelector"}, run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(4), 2, func(i int, _ *rand.Rand) {
			p := s.pod(s.name(i))
			p.Spec.NodeSelector = map[string]string{}
			for j := range 3_800 {
				p.Spec.NodeSelector[long(63, i, j)] = long(63, j)
			}
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "classes", About: "600 pods, each of a class of 60 KiB", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(600), 4, func(i int, _ *rand.Rand) {
			p := s.pod(s.name(i))
			notIn(p, i, 930)
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "names", About: "pods with 7,000 resource names", Says: []string{"resource"}, run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(5), 2, func(i int, _ *rand.Rand) {
			_, _ = s.create(ctx, ask(s.pod(s.name(i)), names(7_000, i)))
		})
	}},
	{Name: "names-many", About: "120 gangs with 250 resource names each", Says: []string{"resource"}, run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(120), 4, func(i int, _ *rand.Rand) {
			_ = s.group(ctx, s.name(i), s.Queue, 1)
			_, _ = s.create(ctx, of(ask(s.pod(s.name(i)), names(250, i)), s.name(i)))
		})
	}},
	{Name: "names-allowed", About: "400 pods with 60 resource names each, all different", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(400), 4, func(i int, _ *rand.Rand) {
			_, _ = s.create(ctx, ask(s.pod(s.name(i)), names(60, i)))
		})
	}},
	{Name: "names-bound", About: "pods with spec.nodeName and 7,000 resource names", Bypass: true, run: func(ctx context.Context, s *strike) {
		_ = s.group(ctx, s.name(0), s.Queue, 3)
		s.each(ctx, 3, 1, func(i int, _ *rand.Rand) {
			p := of(ask(s.pod(fmt.Sprintf("%s-%d", s.name(0), i)), names(7_000, i)), s.name(0))
			p.Spec.NodeName = s.Nodes[0]
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "names-status", About: "pods with spec.nodeName and 70 resource names, for the statuses of their queue and its ancestors", Bypass: true, run: func(ctx context.Context, s *strike) {
		s.each(ctx, max(s.n(20), len(s.Nodes)), 2, func(i int, _ *rand.Rand) { // a pod on every node, at any scale: it may cost all of them
			p := ask(s.pod(s.name(i)), names(70, i))
			p.Spec.NodeName = s.Nodes[i%len(s.Nodes)]
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "quantities", About: "odd quantities: 9E, 1e30, 0.0001, negative exponents, more digits than an int64 has", run: func(ctx context.Context, s *strike) {
		odd := []string{"9E", "8Ei", "1e30", "1E", "9223372036854775807", "9223372036854775808", "92233720368547758070", "0.0001", "1e-9", "1e-30", "0.5", "1n", "999999999999n", "0", "1e2147483647", "123456789012345678901234567890", "4611686018427387904", "1Ki", "0.000000000000000000001", "1e18", "1152921504606846976", "+3", "00004", "1e+3"}
		kinds := []v1.ResourceName{v1.ResourceCPU, v1.ResourceMemory, v1.ResourceEphemeralStorage, "example.com/gpu", "hugepages-2Mi"}
		s.each(ctx, len(odd)*len(kinds), 4, func(i int, _ *rand.Rand) {
			q, err := resource.ParseQuantity(odd[i/len(kinds)])
			if err != nil {
				return
			}
			p := s.pod(s.name(i))
			list := milli(10)
			list[kinds[i%len(kinds)]] = q
			ask(p, list)
			if kinds[i%len(kinds)] == "hugepages-2Mi" {
				p.Spec.Containers[0].Resources.Limits["hugepages-2Mi"] = q
			}
			_, _ = s.create(ctx, p)
			p = s.pod(s.name(i) + "-overhead") // the same twice: sums overflow where one does not
			p.Spec.Containers = append(p.Spec.Containers, p.Spec.Containers[0])
			for j := range p.Spec.Containers {
				p.Spec.Containers[j].Name = fmt.Sprintf("c%d", j)
				p.Spec.Containers[j].Resources = v1.ResourceRequirements{Requests: list, Limits: list}
			}
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "counts", About: "pods with as many containers, init containers, ports, volumes and topology constraints as the API server takes", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(24), 3, func(i int, _ *rand.Rand) {
			p := s.pod(s.name(i))
			c := p.Spec.Containers[0]
			switch i % 6 {
			case 0:
				for j := range 1_500 {
					c.Name = fmt.Sprintf("c-%d", j)
					p.Spec.Containers = append(p.Spec.Containers, c)
				}
			case 1:
				always := v1.ContainerRestartPolicyAlways
				for j := range 1_500 {
					c.Name = fmt.Sprintf("i-%d", j)
					if c.RestartPolicy = nil; j%2 == 0 {
						c.RestartPolicy = &always
					}
					p.Spec.InitContainers = append(p.Spec.InitContainers, c)
				}
			case 2:
				for j := range 8_000 {
					p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, v1.ContainerPort{ContainerPort: int32(j + 1), HostPort: int32(20_000 + j), HostIP: fmt.Sprintf("10.0.%d.%d", j/250, j%250)})
				}
			case 3:
				for j := range 3_000 {
					p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprintf("v-%d", j), VolumeSource: v1.VolumeSource{
						PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: fmt.Sprintf("claim-%d", j)}}})
				}
			case 4:
				for j := range 2_000 {
					p.Spec.TopologySpreadConstraints = append(p.Spec.TopologySpreadConstraints, v1.TopologySpreadConstraint{MaxSkew: 1, TopologyKey: fmt.Sprintf("zone-%d", j),
						WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}})
				}
			case 5:
				for j := range 1_000 {
					p.Spec.ResourceClaims = append(p.Spec.ResourceClaims, v1.PodResourceClaim{Name: fmt.Sprintf("r-%d", j), ResourceClaimTemplateName: &p.Name})
				}
			}
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "ports", About: "200 pods, each with 200 host ports of its own that fit on a node", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(200), 4, func(i int, _ *rand.Rand) {
			p := s.pod(s.name(i))
			for j := range 200 {
				p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, v1.ContainerPort{ContainerPort: int32(j + 1), HostPort: int32(10_000 + i*200 + j)})
			}
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "annotations", About: "gangs with annotations at the limit, labels edited while they are bound", run: func(ctx context.Context, s *strike) {
		full := strings.Repeat("x", 256<<10-1)
		s.forever(ctx, 4, func(i int) {
			p := s.pod(s.name(i))
			p.Annotations = map[string]string{"a": full}
			if _, err := s.create(ctx, p); err != nil {
				return
			}
			go func() {
				for j := 0; j < 60 && ctx.Err() == nil; j++ {
					s.label(ctx, p.Name, "edited", fmt.Sprint(j))
				}
			}()
			if i >= 40 {
				s.remove(ctx, s.name(i-40))
			}
		})
	}},
	{Name: "random", About: "random pods at the limits of what the API server accepts", Bypass: true, run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(400), 4, func(i int, r *rand.Rand) {
			_, _ = s.create(ctx, s.anyPod(s.name(i), r))
		})
	}},
}

// long is a name of n bytes that differs by its numbers.
func long(n int, numbers ...int) string {
	text := strings.Trim(strings.ReplaceAll(fmt.Sprint(numbers), " ", "-"), "[]")
	return "x" + text + strings.Repeat("y", n-1-len(text))
}

// notIn adds a node affinity that every node meets, with so many values of 63 bytes.
func notIn(p *v1.Pod, salt, values int) {
	list := make([]string, values)
	for i := range list {
		list[i] = long(63, salt, i)
	}
	p.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: "kubernetes.io/hostname", Operator: v1.NodeSelectorOpNotIn, Values: list}}}}}}}
}

// names asks for one of each of so many extended resources.
func names(n, salt int) v1.ResourceList {
	list := milli(10)
	one := resource.MustParse("1")
	for i := range n {
		list[v1.ResourceName("example.com/"+long(40, salt, i))] = one
	}
	return list
}

// anyPod draws a pod: most of its fields are plain, some are at a limit.
func (s *strike) anyPod(name string, r *rand.Rand) *v1.Pod {
	p := s.pod(name)
	odd := func() bool { return r.IntN(5) == 0 }
	list := milli(1 + r.Int64N(200))
	if odd() {
		quantities := []string{"1", "3Gi", "1e3", "9E", "0", "1m", "0.001", "1e15", "7Ei"}
		list[v1.ResourceMemory] = resource.MustParse(quantities[r.IntN(len(quantities))])
	}
	if odd() {
		for i := range r.IntN(200) {
			list[v1.ResourceName("example.com/"+long(20+r.IntN(40), i))] = *resource.NewQuantity(r.Int64N(1<<r.IntN(62)), resource.DecimalSI)
		}
	}
	ask(p, list)
	if odd() {
		p.Spec.Overhead = amounts("cpu", "1m")
	}
	if odd() {
		p.Spec.Resources = &v1.ResourceRequirements{Requests: amounts("cpu", "300m")}
	}
	if odd() {
		for i := range r.IntN(300) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, v1.Toleration{Key: long(1+r.IntN(62)+10, i), Operator: v1.TolerationOpExists})
		}
	}
	if odd() {
		p.Spec.NodeSelector = map[string]string{}
		for i := range r.IntN(50) {
			p.Spec.NodeSelector[long(30, i)] = "v"
		}
	}
	if odd() {
		notIn(p, r.IntN(1<<20), 1+r.IntN(1<<r.IntN(13)))
	}
	if odd() {
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{TopologyKey: "zone"}}}}
	}
	if odd() {
		for i := range r.IntN(60) {
			p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, v1.ContainerPort{ContainerPort: 80, HostPort: int32(1 + r.IntN(65_000)), Name: fmt.Sprintf("p%d", i), Protocol: v1.ProtocolUDP})
		}
	}
	if odd() {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: long(200, r.IntN(9))}}})
	}
	if odd() {
		p.Spec.InitContainers = []v1.Container{{Name: "i", Image: "none", Resources: v1.ResourceRequirements{Requests: milli(r.Int64N(3_000))}}}
	}
	if odd() {
		p.Labels[api.LabelQueue] = []string{"", "no.such.queue", s.Victim, "root", "a..b", "UPPER", long(63, 1)}[r.IntN(7)]
	}
	if odd() {
		p.Labels[api.LabelPodGroup] = []string{"", "none", name, "x.y", long(63, 2)}[r.IntN(5)]
	}
	if odd() {
		p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/gate"}}
	}
	if odd() {
		p.Finalizers = []string{"example.com/" + long(50, 3)}
	}
	if odd() {
		p.Annotations = map[string]string{api.ConditionBindingResolved: long(40, 1), "b": strings.Repeat("z", r.IntN(200<<10))}
	}
	if odd() {
		p.Spec.Containers[0].ReadinessProbe = &v1.Probe{ProbeHandler: v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Port: intstr.FromInt32(80)}}}
	}
	if odd() {
		p.Spec.PriorityClassName = []string{"system-node-critical", "system-cluster-critical", "none"}[r.IntN(3)]
	}
	if odd() {
		p.Spec.NodeName = []string{"no-such-node", s.Nodes[r.IntN(len(s.Nodes))]}[r.IntN(2)]
	}
	return p
}
