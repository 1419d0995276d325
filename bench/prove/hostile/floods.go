package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
)

// floods are attacks by number.
var floods = []Attack{
	{Name: "tiny-pods", About: "50,000 pods that ask for 1 m of CPU", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(50_000), 8, func(i int, _ *rand.Rand) { _, _ = s.create(ctx, ask(s.pod(s.name(i)), milli(1))) })
	}},
	{Name: "empty-groups", About: "10,000 PodGroups without pods", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(10_000), 8, func(i int, _ *rand.Rand) { _ = s.group(ctx, s.name(i), s.Queue, 1+i%100_000) })
	}},
	{Name: "never-fit", About: "10,000 pods that never fit", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(10_000), 8, func(i int, _ *rand.Rand) {
			p := ask(s.pod(s.name(i)), milli(s.QueueCPU+int64(i%50)))
			if i%2 == 0 {
				ask(p, amounts("cpu", "1m", "example.com/nobody-has-it", "1"))
			}
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "orphans", About: "20,000 pods of PodGroups that do not exist, each of which is told so", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(20_000), 8, func(i int, _ *rand.Rand) { _, _ = s.create(ctx, of(s.pod(s.name(i)), "nope")) })
	}},
	{Name: "asks", About: "50,000 waiting pods that each ask for another amount", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(50_000), 8, func(i int, _ *rand.Rand) {
			p := ask(s.pod(s.name(i)), milli(s.QueueCPU/2+1+int64(i)%(s.QueueCPU/2)))
			p.Spec.Containers[0].Resources.Requests[v1.ResourceMemory] = *milliBytes(i)
			if i%4 == 0 {
				p.Labels[api.LabelQueue] = s.Shared
				p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = milli(s.SharedCPU - int64(i%4_000))[v1.ResourceCPU]
			}
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "sleepers", About: "10,000 pods with quota and without room", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(10_000), 8, func(i int, _ *rand.Rand) {
			p := ask(s.pod(s.name(i)), milli(1))
			p.Spec.NodeSelector = map[string]string{"no-node-has": fmt.Sprint(i % 100)}
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "selectors", About: "10,000 pods each of which requires something else of other pods, one in four of the pods of all namespaces", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(10_000), 8, func(i int, _ *rand.Rand) {
			p := ask(s.pod(s.name(i)), milli(1))
			p.Labels["job"] = fmt.Sprint(i)
			of := &metav1.LabelSelector{MatchLabels: map[string]string{"job": fmt.Sprint(i)}}
			terms := []v1.PodAffinityTerm{{TopologyKey: v1.LabelTopologyZone, LabelSelector: of}}
			if i/3%4 == 0 {
				terms[0].NamespaceSelector = &metav1.LabelSelector{}
			}
			switch i % 3 {
			case 0:
				p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
			case 1:
				p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
			default:
				p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: v1.LabelTopologyZone, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: of}}
			}
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "repel-all",
		About: "pods that repel all pods of all namespaces from nodes with some label, and have a host port on each",
		run: func(ctx context.Context, s *strike) {
			keys := []string{v1.LabelHostname, v1.LabelOSStable, v1.LabelTopologyZone, "example.com/no-node-has"}
			all := &metav1.LabelSelector{}
			s.each(ctx, s.n(2_000), 8, func(i int, _ *rand.Rand) {
				p := ask(s.pod(s.name(i)), milli(1))
				term := v1.PodAffinityTerm{TopologyKey: keys[i%len(keys)], LabelSelector: all, NamespaceSelector: all}
				p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{
					RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}}
				if i%5 == 0 {
					p.Spec.Affinity = nil
					p.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 8080, HostPort: 8080}}
				}
				_, _ = s.create(ctx, p)
			})
		}},
	{Name: "keys", About: "10,000 pods of one app, each spread over another label of nodes, and among other nodes", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(10_000), 8, func(i int, _ *rand.Rand) {
			p := ask(s.pod(s.name(i)), milli(1))
			p.Spec.NodeSelector = map[string]string{"kubernetes.io/os": fmt.Sprint("linux-", i%100)}
			p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: fmt.Sprint("example.com/label-", i), WhenUnsatisfiable: v1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: p.Labels}}}
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "churn", About: "pods deleted as soon as they are created, under the same names", run: func(ctx context.Context, s *strike) {
		s.each(ctx, 1<<30, 6, func(i int, r *rand.Rand) {
			name := s.name(i % 50)
			_, _ = s.create(ctx, ask(s.pod(name), milli(1+r.Int64N(50))))
			s.remove(ctx, name)
		})
	}},
	{Name: "bursts", About: "1,500 pods at a time that may all be placed in the same moment", Least: 20 * time.Second, run: func(ctx context.Context, s *strike) {
		n := s.n(1_500)
		for round := 0; ctx.Err() == nil; round++ {
			name, first := s.name(round), s.pod
			each := s.QueueCPU * 9 / 10 / int64(n)
			blocker := name + "-blocker"
			if round%2 == 0 { // the last pod of a gang makes it complete
				_ = s.group(ctx, name, s.Queue, n)
				first = func(pod string) *v1.Pod { return of(s.pod(pod), name) }
			} else { // single pods that wait for one that has their room
				_, _ = s.create(ctx, ask(s.pod(blocker), milli(s.QueueCPU)))
				s.bound(ctx, blocker)
			}
			s.each(ctx, n, 8, func(i int, _ *rand.Rand) {
				_, _ = s.create(ctx, ask(first(fmt.Sprintf("%s-%d", name, i)), milli(each)))
			})
			if round%2 != 0 {
				s.remove(ctx, blocker)
			}
			s.bound(ctx, fmt.Sprintf("%s-%d", name, n-1))
			zero := int64(0)
			_ = s.core.CoreV1().Pods(s.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &zero}, metav1.ListOptions{})
			s.removeGroup(ctx, name)
		}
	}},
	{Name: "claims", About: "pods that wait for claims, and 50 edits of claims a second", run: func(ctx context.Context, s *strike) {
		claims := s.core.CoreV1().PersistentVolumeClaims(s.Namespace)
		no := "no-such-class"
		for i := range 20 {
			c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: s.name(i)}, Spec: v1.PersistentVolumeClaimSpec{
				AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: &no,
				Resources: v1.VolumeResourceRequirements{Requests: amounts("storage", "1Gi")}}}
			_, _ = claims.Create(ctx, c, metav1.CreateOptions{})
		}
		go s.each(ctx, s.n(5_000), 4, func(i int, _ *rand.Rand) {
			p := s.pod(s.name(i))
			p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: s.name(1 + i%25)}}}}
			_, _ = s.create(ctx, p)
		})
		s.forever(ctx, 50, func(i int) {
			body := fmt.Sprintf(`{"metadata":{"annotations":{"edit":"%d"}}}`, i)
			_, _ = claims.Patch(ctx, s.name(i%20), types.MergePatchType, []byte(body), metav1.PatchOptions{})
		})
	}},
	{Name: "gates", About: "pods with scheduling gates, which are removed one by one", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(400), 4, func(i int, r *rand.Rand) {
			p := s.pod(s.name(i))
			for j := range 1 + r.IntN(10) {
				p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, v1.PodSchedulingGate{Name: fmt.Sprintf("example.com/g%d", j)})
			}
			if _, err := s.create(ctx, p); err != nil {
				return
			}
			for j := len(p.Spec.SchedulingGates) - 1; j > 0; j-- { // a pod without gates is updated, too: its selector becomes narrower
				_ = s.patchPod(ctx, p.Name, fmt.Sprintf(`{"spec":{"schedulingGates":[{"name":"example.com/g%d"}],"nodeSelector":{"kubernetes.io/os":"linux"}}}`, j-1))
			}
			_ = s.patchPod(ctx, p.Name, `{"spec":{"schedulingGates":[]}}`)
		})
	}},
}
