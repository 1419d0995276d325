package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
)

// costlyOrder is the order of the attacker's queues: about as costly as one may be for a gang of the attack "order".
const costlyOrder = `labels.all(k, k in annotations && labels[k] == annotations[k]) ? 1 : 2`

// edits are attacks that change objects under Basalt's hands.
var edits = []Attack{
	{Name: "min-count", About: "the minCount of PodGroups goes up and down all the time", run: func(ctx context.Context, s *strike) {
		const groups = 8
		for i := range groups {
			_ = s.group(ctx, s.name(i), []string{s.Queue, s.Shared}[i%2], 2)
			for j := range 4 {
				_, _ = s.create(ctx, of(ask(s.pod(fmt.Sprintf("%s-%d", s.name(i), j)), milli(s.QueueCPU/40)), s.name(i)))
			}
		}
		s.forever(ctx, 60, func(i int) {
			least := []int{1, 4, 2, 100_000, 3, 5}[s.rand.IntN(6)]
			_ = s.patchGroup(ctx, s.name(i%groups), fmt.Sprintf(`{"spec":{"schedulingPolicy":{"gang":{"minCount":%d}}}}`, least))
			if i%10 == 0 {
				name := fmt.Sprintf("%s-%d", s.name(i%groups), i%4)
				s.remove(ctx, name)
				_, _ = s.create(ctx, of(ask(s.pod(name), milli(s.QueueCPU/40)), s.name(i%groups)))
			}
		})
	}},
	{Name: "recreate", About: "PodGroups deleted and made again under the same name while their pods are bound", run: func(ctx context.Context, s *strike) {
		s.each(ctx, 1<<30, 4, func(i int, r *rand.Rand) {
			name := s.name(i % 6)
			queue := []string{s.Queue, s.Shared, s.Victim}[r.IntN(3)]
			_ = s.group(ctx, name, queue, 1+r.IntN(3))
			for j := range 3 {
				_, _ = s.create(ctx, of(ask(s.pod(fmt.Sprintf("%s-%d", name, j)), milli(1+r.Int64N(s.QueueCPU/20))), name))
			}
			wait.For(ctx, time.Duration(r.IntN(300))*time.Millisecond)
			if r.IntN(2) == 0 {
				s.removeGroup(ctx, name)
			}
			if r.IntN(3) == 0 {
				s.remove(ctx, fmt.Sprintf("%s-%d", name, r.IntN(3)))
			}
		})
	}},
	{Name: "finalizers", About: "pods and PodGroups with finalizers, deleted at every stage", InPart: true, run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(200), 4, func(i int, r *rand.Rand) {
			name, keep := s.name(i), []string{"example.com/" + long(50, i)}
			_ = s.group(ctx, name, s.Queue, 1+r.IntN(2), func(g *v1beta1.PodGroup) { g.Finalizers = keep })
			for j := range 2 {
				p := of(ask(s.pod(fmt.Sprintf("%s-%d", name, j)), milli(20)), name)
				p.Finalizers = keep
				_, _ = s.create(ctx, p)
			}
			wait.For(ctx, time.Duration(r.IntN(400))*time.Millisecond)
			if r.IntN(2) == 0 {
				s.removeGroup(ctx, name)
			}
			for j := range 2 {
				s.remove(ctx, fmt.Sprintf("%s-%d", name, j))
			}
			if r.IntN(2) == 0 {
				wait.For(ctx, time.Duration(r.IntN(400))*time.Millisecond)
				_ = s.patchPod(ctx, name+"-0", `{"metadata":{"finalizers":null}}`)
				_ = s.patchGroup(ctx, name, `{"metadata":{"finalizers":null}}`)
			}
		})
	}},
	{Name: "evictions", About: "pods evicted by their own tenant while their gang is placed", InPart: true, run: func(ctx context.Context, s *strike) {
		s.each(ctx, 1<<30, 4, func(i int, r *rand.Rand) {
			name := s.name(i % 40)
			_ = s.group(ctx, name, s.Queue, 2)
			for j := range 2 {
				_, _ = s.create(ctx, of(ask(s.pod(fmt.Sprintf("%s-%d", name, j)), milli(30)), name))
			}
			wait.For(ctx, time.Duration(r.IntN(100))*time.Millisecond)
			pod := fmt.Sprintf("%s-%d", name, r.IntN(2))
			_ = s.core.PolicyV1().Evictions(s.Namespace).Evict(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: pod}})
			if r.IntN(3) == 0 {
				s.removeGroup(ctx, name)
			}
		})
	}},
	{Name: "group-names", About: "PodGroups with names, labels and annotations at their limits", run: func(ctx context.Context, s *strike) {
		s.each(ctx, s.n(60), 4, func(i int, _ *rand.Rand) {
			name := s.name(i) + "-" + long(62-len(s.name(i)), i)
			_ = s.group(ctx, name, s.Queue, 1, func(g *v1beta1.PodGroup) {
				g.Annotations = map[string]string{"a": strings.Repeat("x", 256<<10-1)}
				g.Labels = map[string]string{}
				for j := range 3_000 {
					g.Labels[long(60, j)] = long(60, j)
				}
				seconds := int32(1)
				g.Spec.ScheduleTimeoutSeconds = &seconds
			})
			_, _ = s.create(ctx, of(s.pod(s.name(i)), name))
		})
	}},
	{Name: "group-edits", About: "PodGroups with as many labels as the admission policies of deploy/ let them have, edited all the time", run: func(ctx context.Context, s *strike) {
		const groups = 8
		for i := range groups {
			_ = s.group(ctx, s.name(i), s.Queue, 1, func(g *v1beta1.PodGroup) {
				g.Labels = map[string]string{}
				for j := range 250 {
					g.Labels[long(12, j)] = long(12, j)
				}
			})
		}
		s.each(ctx, 1<<30, 4, func(i int, _ *rand.Rand) {
			_ = s.patchGroup(ctx, s.name(i%groups), fmt.Sprintf(`{"metadata":{"labels":{"edit":"%d"}}}`, i))
		})
	}},
	{Name: "order", About: "labels that the order of the queue takes long to read, edited all the time", run: editOrder},
	{Name: "status", About: "a time in a PodGroup's status that the API server takes and Go's decoder does not, and stamps of far epochs", Right: "podgroups/status", run: func(ctx context.Context, s *strike) {
		status := func(i int, body string) {
			_ = s.group(ctx, s.name(i), s.Queue, 5)
			_ = s.ours.Patch("application/merge-patch+json").Namespace(s.Namespace).Resource("podgroups").Name(s.name(i)).SubResource("status").Body([]byte(body)).Do(ctx).Error()
		}
		const condition = `{"type":"X","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00.5z"}`
		status(0, `{"status":{"epoch":1000000,"writer":"me","sequence":1,"pods":0,"bound":0,"conditions":[`+condition+`]}}`)
		status(1, `{"status":{"epoch":4611686018427387904,"writer":"me","sequence":1,"pods":0,"bound":0}}`)
		status(2, `{"status":{"epoch":9223372036854775807,"writer":"me","sequence":9223372036854775807,"pods":2147483647,"bound":-5,"queue":"`+s.Victim+`"}}`)
		status(3, `{"status":{"epoch":1,"writer":"me","sequence":1,"pods":9,"bound":9,"conditions":[{"type":"PodGroupInitiallyScheduled","status":"True","reason":"R","message":"m","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
		s.each(ctx, 8, 1, func(i int, _ *rand.Rand) {
			_, _ = s.create(ctx, of(s.pod(fmt.Sprintf("%s-pod-%d", s.prefix, i)), s.name(i%4)))
		})
	}},
}

// editOrder edits gangs of which the order of their queue reads as much as it may.
func editOrder(ctx context.Context, s *strike) {
	const groups = 64
	for i := range groups {
		name := s.name(i)
		_ = s.group(ctx, name, s.Queue, 3, func(g *v1beta1.PodGroup) {
			g.Labels, g.Annotations = map[string]string{}, map[string]string{}
			for j := range 55 {
				key := fmt.Sprintf("k%03d", j)
				g.Labels[key], g.Annotations[key] = long(63, j), long(63, j)
			}
		})
		for j := range 3 {
			_, _ = s.create(ctx, of(ask(s.pod(fmt.Sprintf("%s-%d", name, j)), milli(s.QueueCPU/2)), name))
		}
	}
	s.each(ctx, 1<<30, 4, func(i int, _ *rand.Rand) {
		body := fmt.Sprintf(`{"metadata":{"labels":{"edit":"%d"},"annotations":{"edit":"%d"}}}`, i, i)
		_ = s.patchGroup(ctx, s.name(i%groups), body)
	})
}
