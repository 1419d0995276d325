package kube_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// What the API server takes into a status, and Go's types do not read, stops no watch and no list.
func TestPoisonedStatuses(t *testing.T) {
	c := connect(t)
	create := func(name string) {
		t.Helper()
		g := &v1beta1.PodGroup{}
		g.APIVersion, g.Kind, g.Name = v1beta1.SchemeGroupVersion.String(), "PodGroup", name
		g.Spec.SchedulingPolicy.Gang.MinCount = 2
		if err := c.Basalt.Post().Resource("podgroups").Namespace("default").Body(g).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
		q := &v1beta1.Queue{}
		q.APIVersion, q.Kind, q.Name = v1beta1.SchemeGroupVersion.String(), "Queue", name
		if err := c.Basalt.Post().Resource("queues").Body(q).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	sequence := 0
	poison := func(resource, name, status string) {
		t.Helper()
		sequence++
		patch := fmt.Sprintf(`{"status":{"epoch":1,"writer":"x","sequence":%d,%s}}`, sequence, status)
		err := c.Basalt.Patch(types.MergePatchType).Resource(resource).NamespaceIfScoped("default", resource == "podgroups").Name(name).SubResource("status").Body([]byte(patch)).Do(t.Context()).Error()
		if err != nil {
			t.Fatalf("the API server refuses %s: %v", patch, err)
		}
	}
	const badTime = `"conditions":[{"type":"A","status":"True","reason":"x","message":"","lastTransitionTime":"2026-01-01T00:00:00.5z"}]`
	create("before")
	groups, queues := heardOf[*v1beta1.PodGroup](t, c, "podgroups"), heardOf[*v1beta1.Queue](t, c, "queues")
	for _, s := range []string{badTime, `"conditions":[{"type":"A","status":"True","reason":"x","message":"","lastTransitionTime":"2026-01-01t00:00:00Z"}]`} {
		poison("podgroups", "before", s)
	}
	for _, s := range []string{badTime, `"charged":{"cpu":"5..5"}`, `"charged":{"cpu":"1e2000000000"}`, `"charged":{"cpu":"99999999999999999999e999999999"}`} {
		poison("queues", "before", s)
	}
	create("after")
	groups("a PodGroup created after that", "after", 0)
	queues("a Queue created after that", "after", 0)
	queues("the Queue whose status was written", "before", int64(sequence))
	heardOf[*v1beta1.PodGroup](t, c, "podgroups")("a new list", "before", 2)
	heardOf[*v1beta1.Queue](t, c, "queues")("a new list", "before", int64(sequence))
}

// heardOf follows a kind, and returns a function that waits for an object, and a sequence number in its status.
func heardOf[T interface {
	*v1beta1.PodGroup | *v1beta1.Queue
	kubeObject
}](t *testing.T, c *kube.Clients, resource string) func(what, name string, sequence int64) {
	t.Helper()
	var mu sync.Mutex
	heard := map[string]int64{}
	seen := func(o T) {
		mu.Lock()
		defer mu.Unlock()
		sequence := int64(0)
		switch o := any(o).(type) {
		case *v1beta1.PodGroup:
			if o.Status != nil {
				sequence = o.Status.Sequence
			}
		case *v1beta1.Queue:
			if o.Status != nil {
				sequence = o.Status.Sequence
			}
		}
		heard[o.GetName()] = max(1, sequence)
	}
	f := kube.Follow(c.Basalt, resource, slog.New(slog.DiscardHandler), kube.Handler[T]{
		Replaced: func(list []T, _ kube.Ticket) {
			for _, o := range list {
				seen(o)
			}
		},
		Seen: seen, Gone: func(T) {},
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { f.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
	select {
	case <-f.Synced():
	case <-time.After(time.Minute):
		t.Fatalf("no list of %s was made", resource)
	}
	return func(what, name string, sequence int64) {
		t.Helper()
		localtest.Wait(t, 30*time.Second, what, func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if heard[name] < max(1, sequence) {
				return errors.New("not heard of")
			}
			return nil
		})
	}
}

type kubeObject interface {
	runtime.Object
	GetName() string
}
