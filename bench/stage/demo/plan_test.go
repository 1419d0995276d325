package demo

import (
	"testing"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/kubelet"
)

// The plan is what the README promises, and the same from the same seed.
func TestPlan(t *testing.T) {
	p, again, other := makePlan(7, 1), makePlan(7, 1), makePlan(8, 1)
	if len(p.nodes) != 1523 || p.cores != 125_514 {
		t.Errorf("%d nodes with %d cores", len(p.nodes), p.cores)
	}
	names := map[string]bool{}
	count := func(gangs []*gang) (pods, never, largest int, milli int64) {
		for _, g := range gangs {
			if names[g.name] {
				t.Errorf("gang %s twice", g.name)
			}
			names[g.name] = true
			pods += len(g.pods)
			largest = max(largest, len(g.pods))
			if g.never != "" {
				never++
			} else if g.min < 1 || g.min > len(g.pods) {
				t.Errorf("gang %s has %d pods and a minimum of %d", g.name, len(g.pods), g.min)
			}
			if g.single && len(g.pods) != 1 {
				t.Errorf("gang %s has no PodGroup and %d pods", g.name, len(g.pods))
			}
			for _, pod := range g.pods {
				milli += pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
			}
		}
		return
	}
	pods, never, _, first := count(p.first)
	if pods != 2000 || never != 0 {
		t.Errorf("part 1: %d pods, %d gangs never bound", pods, never)
	}
	pods, never, largest, milli := count(p.second)
	if pods < 3600 || pods > 3650 || never != 7 || largest > 200 || largest < 150 {
		t.Errorf("part 2: %d pods, %d gangs never bound, the largest of %d", pods, never, largest)
	}
	pods, never, _, _ = count(p.stream)
	if pods != 400 || never != 0 {
		t.Errorf("stream: %d pods, %d never", pods, never)
	}
	// At the fullest at least 70 % of the CPU is charged when part 2 fills its capabilities.
	limits := map[string]int64{}
	for _, q := range p.queues {
		if err := api.ValidatePath(q.Name); err != nil {
			t.Error(err)
		}
		limits[q.Name] = q.Spec.Capability.Cpu().MilliValue()
	}
	if full := first + limits[research] + limits[batch]; full < p.cores*1000*75/100 || milli < limits[company]*13/10 {
		t.Errorf("full is %d of %d millicores, part 2 asks for %d of %d", full, p.cores*1000, milli, limits[company])
	}
	for _, g := range p.second {
		if g.never != "" {
			continue
		}
		for _, pod := range g.pods {
			if pod.Annotations[kubelet.RunSeconds] == "" {
				t.Fatalf("pod %s runs for ever", pod.Name)
			}
		}
	}
	same := func(a, b *plan) bool {
		x, y := a.all(), b.all()
		if len(x) != len(y) {
			return false
		}
		for i := range x {
			if x[i].name != y[i].name || x[i].queue != y[i].queue || len(x[i].pods) != len(y[i].pods) {
				return false
			}
		}
		return true
	}
	if !same(p, again) || same(p, other) {
		t.Error("the plan does not follow from the seed")
	}
}

func TestSmallPlan(t *testing.T) {
	p := makePlan(1, 0.02)
	limits := map[string]int64{}
	for _, q := range p.queues {
		limits[q.Name] = q.Spec.Capability.Cpu().MilliValue()
	}
	for _, g := range p.second {
		var milli int64
		for _, pod := range g.pods {
			milli += pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
		}
		if limit := limits[g.queue]; g.never == "" && limit > 0 && milli > limit {
			t.Errorf("gang %s asks for %d of the %d that its queue may hold", g.name, milli, limit)
		}
	}
}
