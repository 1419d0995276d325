package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
)

// gangOf creates a gang that may be evicted, of pods that each ask for so much.
func (s *strike) gangOf(ctx context.Context, name string, pods int, each int64, edit ...func(*v1beta1.PodGroup)) {
	yes := true
	_ = s.group(ctx, name, s.Preempting, pods, append(edit, func(g *v1beta1.PodGroup) { g.Spec.Preemptible = &yes })...)
	for j := range pods {
		_, _ = s.create(ctx, of(ask(s.pod(fmt.Sprintf("%s-%d", name, j)), milli(each)), name))
	}
}

func (s *strike) high(g *v1beta1.PodGroup) { g.Spec.PriorityClassName = s.High }

// evicting are attacks by what gangs may take from each other.
var evicting = []Attack{
	{Name: "preemption", About: "gangs that evict others of the attacker's, and are deleted as soon as they have", InPart: true, run: func(ctx context.Context, s *strike) {
		s.each(ctx, 1<<30, 4, func(i int, r *rand.Rand) {
			name := s.name(i % 40)
			if i%2 == 0 {
				s.gangOf(ctx, name, 4, s.QueueCPU/16)
			} else {
				s.gangOf(ctx, name, 2+r.IntN(3), s.QueueCPU/8, s.high)
			}
			wait.For(ctx, time.Duration(r.IntN(600))*time.Millisecond)
			if r.IntN(2) == 0 {
				s.removeGroup(ctx, name)
			}
			for j := range 5 {
				if r.IntN(3) > 0 {
					s.remove(ctx, fmt.Sprintf("%s-%d", name, j))
				}
			}
		})
	}},
	{Name: "vain-claims", About: "gangs in slices of many kinds of pods for which others would go, and no set of them makes room", run: func(ctx context.Context, s *strike) {
		for i := range 8 { // who might go
			s.gangOf(ctx, fmt.Sprint(s.prefix, "-low-", i), 2, s.QueueCPU/16)
		}
		s.each(ctx, s.n(150), 4, func(i int, _ *rand.Rand) {
			const pods = 24
			name := s.name(i)
			yes := true
			_ = s.group(ctx, name, s.Preempting, pods, s.high, func(g *v1beta1.PodGroup) {
				g.Spec.Preemptible = &yes
				g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: []v1beta1.TopologyConstraint{{Key: "kubernetes.io/hostname", SliceSize: 2}}}
			})
			for j := range pods { // 12 kinds; two are to be on a node, which has the memory for one
				request := milli(s.QueueCPU/pods - int64(j/2))
				request[v1.ResourceMemory] = resource.MustParse("100Gi")
				_, _ = s.create(ctx, of(ask(s.pod(fmt.Sprintf("%s-%d", name, j)), request), name))
			}
		})
	}},
}
