package failures

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1beta1"
)

// A parent has 2 CPU and 4 GiB, and two children without limits of their own each get a job of exactly that: a scheduler
// that asks only the job's own queue starts both. Then hundreds of gangs from all shards at once on a tree five deep.
func TestAncestors(t *testing.T) {
	failure{bug: fault.AncestorsNotAsked, evidence: `quota queue team |second job was bound`, scenario: ancestors}.show(t)
}

func ancestors(w *world) {
	ctx := w.t.Context()
	for i := range 8 {
		w.node(ctx, fmt.Sprintf("n%d", i), amounts{"cpu": "16", "memory": "64Gi"}, nil)
	}
	w.queue(ctx, "team", amounts{"cpu": "2", "memory": "4Gi"})
	w.queue(ctx, "team.a", nil)
	w.queue(ctx, "team.b", nil)
	leaves := deepTree(ctx, w)

	// Two pods of 1 CPU and 2 GiB: exactly what the parent has.
	job := w.newPod("", "", amounts{"cpu": "1", "memory": "2Gi"})
	first, err := w.gang(ctx, "first", "team.a", 2, job)
	w.check(err)
	if !w.wait(limit, "the first job to start", bound(first...)) {
		return
	}
	second, err := w.gang(ctx, "second", "team.b", 2, job)
	w.check(err)
	denied := func(v *view) *metav1.Condition {
		g := v.groups["second"]
		if g == nil || g.Status == nil {
			return nil
		}
		for i := range g.Status.Conditions {
			if c := &g.Status.Conditions[i]; c.Type == v1beta1.ConditionQuotaReserved && c.Status == metav1.ConditionFalse && c.Reason == v1beta1.ReasonQuotaExceeded {
				return c
			}
		}
		return nil
	}
	message := ""
	ok := w.wait(limit, "the second job to be told that it is denied", func(v *view) bool {
		for _, uid := range second {
			if node := v.node[uid]; node != "" {
				w.findings = append(w.findings, fmt.Sprintf("a pod of the second job was bound to %s while the first runs", node))
			}
		}
		c := denied(v)
		if c != nil {
			message = c.Message
		}
		return c != nil
	})
	if !ok {
		return
	}
	// Which ancestor, which resource, how much is missing: one of the two that lack.
	if !strings.Contains(message, `queue "team" has insufficient`) ||
		!strings.Contains(message, "cpu: short of 2") && !strings.Contains(message, "memory: short of 4Gi") {
		w.find("the denial does not say which ancestor lacks how much: %s", message)
		return
	}
	for i := range first {
		w.finishPod(ctx, fmt.Sprintf("first-%d", i))
	}
	if !w.wait(limit, "the second job to start when the first has ended", bound(second...)) {
		return
	}
	for i := range second {
		w.finishPod(ctx, fmt.Sprintf("second-%d", i))
	}

	// The auditor sums the subtrees at every revision.
	const workers = 16
	gangs := w.size(240)
	homes := map[api.Incarnation]bool{}
	w.mu.Lock()
	for _, l := range leaves {
		homes[w.seen.Table.OwnerOf(l)] = true
	}
	w.mu.Unlock()
	w.t.Logf("%s: %d leaves have %d homes", w.name, len(leaves), len(homes))
	var mu sync.Mutex
	var all []types.UID
	var wg sync.WaitGroup
	for worker := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(1, uint64(worker)))
			for i := worker; i < gangs && !w.found(); i += workers {
				memory := []string{"512Mi", "1Gi", "2Gi"}[r.IntN(3)]
				pod := runsFor(w.newPod("", "", amounts{"cpu": "1", "memory": memory}), time.Duration(r.IntN(400))*time.Millisecond)
				uids, err := w.gang(ctx, fmt.Sprintf("g%04d", i), leaves[r.IntN(len(leaves))], 1+r.IntN(3), pod)
				if err != nil {
					w.find("%v", err)
					return
				}
				mu.Lock()
				all = append(all, uids...)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	w.wait(3*limit, fmt.Sprintf("%d gangs to run to their end", gangs), func(v *view) bool {
		for _, uid := range all {
			if !v.finished[uid] {
				return false
			}
		}
		return true
	})
}

// deepTree makes a tree five deep in which no level can hold what the next one could together, and returns its leaves.
func deepTree(ctx context.Context, w *world) []string {
	cpu := []string{"24", "14", "8", "5", "3"}
	memory := []string{"24Gi", "13Gi", "9Gi", "6Gi", "6Gi"}
	level := []string{"deep"}
	for depth := range cpu {
		var next []string
		for _, name := range level {
			w.queue(ctx, name, amounts{v1.ResourceCPU: cpu[depth], v1.ResourceMemory: memory[depth]})
			next = append(next, name+".a", name+".b")
		}
		if depth == len(cpu)-1 {
			break
		}
		level = next
	}
	return level
}
