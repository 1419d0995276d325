package hostile

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wait"
)

// others are attacks that need kube-controller-manager.
var others = []Attack{
	{Name: "jobs", About: "Jobs whose controller makes pods again as fast as they are deleted", Controllers: true, run: func(ctx context.Context, s *strike) {
		for i := range 4 {
			p := ask(s.pod("x"), milli(s.QueueCPU/8))
			p.Spec.TerminationGracePeriodSeconds = nil
			many, limit := int32(s.n(200)), int32(1_000_000)
			j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.name(i)}, Spec: batchv1.JobSpec{
				Parallelism: &many, Completions: &many, BackoffLimit: &limit,
				Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{api.LabelQueue: s.Queue, "job": s.prefix}}, Spec: p.Spec},
			}}
			_, _ = s.core.BatchV1().Jobs(s.Namespace).Create(ctx, j, metav1.CreateOptions{})
		}
		for wait.For(ctx, time.Second) {
			_ = s.core.CoreV1().Pods(s.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "job=" + s.prefix, Limit: 50})
		}
	}},
	{Name: "namespace", About: "gangs in a namespace that is deleted while they are placed", Controllers: true, OwnNamespace: true, run: func(ctx context.Context, s *strike) {
		s.each(ctx, 1<<30, 4, func(i int, r *rand.Rand) {
			_ = s.group(ctx, s.name(i), s.Queue, 2)
			for j := range 2 {
				p := of(ask(s.pod(fmt.Sprintf("%s-%d", s.name(i), j)), milli(1+r.Int64N(20))), s.name(i))
				if r.IntN(4) == 0 {
					p.Finalizers = []string{"example.com/keep"}
				}
				_, _ = s.create(ctx, p)
			}
			wait.For(ctx, time.Duration(r.IntN(100))*time.Millisecond)
		})
	}},
	{Name: "owned", About: "pods owned by objects that go, removed by the garbage collector while they are placed", Controllers: true, run: func(ctx context.Context, s *strike) {
		s.each(ctx, 1<<30, 2, func(i int, r *rand.Rand) {
			c, err := s.core.CoreV1().ConfigMaps(s.Namespace).Create(ctx, &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: s.name(i)}}, metav1.CreateOptions{})
			if err != nil {
				return
			}
			owner := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: c.Name, UID: c.UID}}
			_ = s.group(ctx, s.name(i), s.Queue, 3)
			for j := range 3 {
				p := of(ask(s.pod(fmt.Sprintf("%s-%d", s.name(i), j)), milli(20)), s.name(i))
				p.OwnerReferences = owner
				_, _ = s.create(ctx, p)
			}
			wait.For(ctx, time.Duration(r.IntN(200))*time.Millisecond)
			_ = s.core.CoreV1().ConfigMaps(s.Namespace).Delete(ctx, c.Name, metav1.DeleteOptions{})
		})
	}},
}

func milliBytes(i int) *resource.Quantity {
	return resource.NewQuantity(int64(1000+i), resource.BinarySI)
}
