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
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
)

// labels are attacks that want room or quota which is not theirs: by labels, nodes, and what a pod names.
var labels = []Attack{
	{Name: "relabel-group", About: "bound pods get the label of a PodGroup that does not exist, so that their quota is given back", run: func(ctx context.Context, s *strike) {
		s.forever(ctx, 5, func(i int) { // each asks for half of the queue's limit
			name := s.name(i)
			if _, err := s.create(ctx, ask(s.pod(name), milli(s.QueueCPU/2))); err == nil && s.boundSoon(ctx, name) {
				s.label(ctx, name, api.LabelPodGroup, "nope")
			}
		})
	}},
	{Name: "relabel-gang", About: "pods of gangs are relabelled after their PodGroup is deleted", run: func(ctx context.Context, s *strike) {
		s.forever(ctx, 2, func(i int) {
			name := s.name(i)
			if s.group(ctx, name, s.Queue, 2) != nil {
				return
			}
			for j := range 2 {
				_, _ = s.create(ctx, of(ask(s.pod(fmt.Sprintf("%s-%d", name, j)), milli(s.QueueCPU/4)), name))
			}
			if !s.boundSoon(ctx, name+"-0") || !s.boundSoon(ctx, name+"-1") {
				return
			}
			s.removeGroup(ctx, name)
			s.label(ctx, name+"-0", api.LabelPodGroup, "nope", api.LabelGang, "null")
			s.label(ctx, name+"-1", api.LabelPodGroup, "null", api.LabelQueue, s.Victim)
		})
	}},
	{Name: "relabel-queue", About: "bound pods get the label of another tenant's queue", run: func(ctx context.Context, s *strike) {
		queues := []string{s.Victim, "no.such.queue", "null", "root", "default", "A..b", s.Queue}
		s.forever(ctx, 5, func(i int) {
			name := s.name(i)
			if _, err := s.create(ctx, ask(s.pod(name), milli(s.QueueCPU/3))); err == nil && s.boundSoon(ctx, name) {
				s.label(ctx, name, api.LabelQueue, queues[i%len(queues)])
			}
		})
	}},
	{Name: "relabel-all", About: "labels and annotations of pods edited at every stage of their life", run: func(ctx context.Context, s *strike) {
		s.each(ctx, 1<<30, 6, func(i int, r *rand.Rand) {
			name := s.name(i)
			group := fmt.Sprintf("%s-group-%d", s.prefix, i%7)
			_ = s.group(ctx, group, []string{s.Queue, s.Shared, s.Victim}[r.IntN(3)], 1+r.IntN(2))
			p := ask(s.pod(name), milli(1+r.Int64N(s.QueueCPU/4)))
			if r.IntN(2) == 0 {
				of(p, group)
			}
			if _, err := s.create(ctx, p); err != nil {
				return
			}
			for range 3 + r.IntN(8) {
				keys := []string{api.LabelPodGroup, api.LabelQueue, api.LabelGang, "app"}
				values := []string{"null", "nope", group, s.Victim, s.Queue, "1", string(p.UID)}
				s.label(ctx, name, keys[r.IntN(len(keys))], values[r.IntN(len(values))])
				if r.IntN(3) == 0 {
					_ = s.patchPod(ctx, name, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, api.ConditionBindingResolved, r.Uint64()))
				}
				wait.For(ctx, time.Duration(r.IntN(120))*time.Millisecond)
			}
			if r.IntN(2) == 0 {
				s.remove(ctx, name)
			}
			if r.IntN(4) == 0 {
				s.removeGroup(ctx, group)
			}
		})
	}},
	{Name: "forge-gang", About: "pods that carry the gang label of another tenant's gang", Bypass: true, run: func(ctx context.Context, s *strike) {
		s.forever(ctx, 10, func(i int) {
			p := ask(s.pod(s.name(i)), milli(2_000))
			if s.Gang != nil {
				p.Labels[api.LabelGang] = s.Gang()
			}
			if i%2 == 0 {
				p.Labels[api.LabelPodGroup] = "any"
			}
			if i%3 > 0 {
				p.Spec.NodeName = s.Nodes[i%len(s.Nodes)]
			}
			_, _ = s.create(ctx, p)
			if i >= 20 {
				s.remove(ctx, s.name(i-20))
			}
		})
	}},
	{Name: "node-missing", About: "pods on a node that does not exist ask for 1,000,000 CPUs of another tenant's queue", Bypass: true, run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(10), 2, func(i int, r *rand.Rand) {
			p := ask(s.pod(s.name(i)), amounts("cpu", "1000000"))
			p.Labels[api.LabelQueue] = []string{s.Victim, s.Queue, s.Shared}[i%3]
			p.Spec.NodeName, p.Spec.SchedulerName = "no-such-node", []string{api.SchedulerName, v1.DefaultSchedulerName}[r.IntN(2)]
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "node-exists", About: "pods on nodes that exist ask for 900,000 CPUs of another tenant's queue", Bypass: true, run: func(ctx context.Context, s *strike) {
		s.forever(ctx, 4, func(i int) {
			p := ask(s.pod(s.name(i)), amounts("cpu", "900000"))
			p.Labels[api.LabelQueue] = []string{s.Victim, s.Queue, s.Shared}[i%3]
			p.Spec.NodeName, p.Spec.SchedulerName = s.Nodes[i%len(s.Nodes)], []string{api.SchedulerName, v1.DefaultSchedulerName}[i%2]
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "node-fits", About: "pods with spec.nodeName that fit on their node one by one, in another tenant's queue", Bypass: true, run: func(ctx context.Context, s *strike) {
		s.forever(ctx, 10, func(i int) { // one node: what they occupy is not there for others, and must not be charged to them
			p := ask(s.pod(s.name(i)), milli(s.NodeCPU/4))
			p.Labels[api.LabelQueue] = []string{s.Victim, s.Queue}[i%2]
			p.Spec.NodeName = s.Nodes[0]
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "others-queue", About: "pods and PodGroups that name another tenant's queue", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(60), 4, func(i int, _ *rand.Rand) {
			p := ask(s.pod(s.name(i)), milli(5_000))
			p.Labels[api.LabelQueue] = s.Victim
			if i%2 == 0 {
				_ = s.group(ctx, s.name(i), s.Victim, 1)
				of(p, s.name(i))
			}
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "whole-queue", About: "gangs that ask for the whole of a shared queue", Least: 100 * time.Second, run: func(ctx context.Context, s *strike) {
		for i := 0; ctx.Err() == nil; i++ { // taking turns: a new one comes before the old one goes
			_ = s.group(ctx, s.name(i), s.Shared, 4)
			for j := range 4 {
				_, _ = s.create(ctx, of(ask(s.pod(fmt.Sprintf("%s-%d", s.name(i), j)), milli(s.SharedCPU/4)), s.name(i)))
			}
			wait.For(ctx, 70*time.Second)
			if i > 0 {
				s.removeGroup(ctx, s.name(i-1))
				for j := range 4 {
					s.remove(ctx, fmt.Sprintf("%s-%d", s.name(i-1), j))
				}
			}
		}
	}},
	{Name: "resize", About: "bound pods resized down by word only, and up beyond their node", Right: "pods/resize", run: func(ctx context.Context, s *strike) {
		s.forever(ctx, 4, func(i int) {
			name := s.name(i)
			if _, err := s.create(ctx, ask(s.pod(name), milli(s.QueueCPU/4))); err != nil || !s.boundSoon(ctx, name) {
				return
			}
			wait.For(ctx, 200*time.Millisecond)
			cpu := []string{"1m", "100000", fmt.Sprintf("%dm", s.QueueCPU), fmt.Sprintf("%dm", s.NodeCPU-1)}[i%4]
			body := fmt.Sprintf(`{"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":%q}}}]}}`, cpu)
			_, _ = s.core.CoreV1().Pods(s.Namespace).Patch(ctx, name, types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}, "resize")
		})
	}},
	{Name: "priority", About: "PodGroups with the priority class system-node-critical, more than the queue may hold", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(150), 4, func(i int, _ *rand.Rand) {
			_ = s.group(ctx, s.name(i), []string{s.Queue, s.Shared}[i%2], 2, func(g *v1beta1.PodGroup) { g.Spec.PriorityClassName = "system-node-critical" })
			for j := range 2 {
				_, _ = s.create(ctx, of(ask(s.pod(fmt.Sprintf("%s-%d", s.name(i), j)), milli(s.SharedCPU/2)), s.name(i)))
			}
		})
	}},
	{Name: "schedulers", About: "pods of other schedulers with the labels of Basalt", Bypass: true, run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(100), 4, func(i int, r *rand.Rand) {
			p := ask(s.pod(s.name(i)), milli(100))
			p.Spec.SchedulerName = []string{v1.DefaultSchedulerName, "other", "basalt-2"}[i%3]
			p.Labels[api.LabelQueue], p.Labels[api.LabelPodGroup], p.Labels[api.LabelGang] = s.Victim, "any", "0"
			if r.IntN(2) == 0 {
				p.Spec.NodeName = s.Nodes[0]
			}
			_, _ = s.create(ctx, p)
		})
	}},
	{Name: "owners", About: "pods and PodGroups that say that another tenant's gang owns them, as their controller", run: func(ctx context.Context, s *strike) {
		yes := true
		s.each(ctx, s.n(60), 4, func(i int, _ *rand.Rand) {
			uid := types.UID("00000000-0000-0000-0000-000000000000")
			if s.Gang != nil {
				uid = types.UID(s.Gang())
			}
			owner := []metav1.OwnerReference{
				{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "PodGroup", Name: "g", UID: uid, Controller: &yes},
				{APIVersion: "v1", Kind: "Node", Name: s.Nodes[0], UID: "n"},
			}
			_ = s.group(ctx, s.name(i), s.Queue, 1, func(g *v1beta1.PodGroup) { g.OwnerReferences = owner })
			p := of(s.pod(s.name(i)), s.name(i))
			p.OwnerReferences = owner
			_, _ = s.create(ctx, p)
		})
	}},
}

// boundSoon waits a few seconds for a pod to get its node.
func (s *strike) boundSoon(ctx context.Context, name string) bool {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	return s.bound(ctx, name)
}
