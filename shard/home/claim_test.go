package home

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/intake"
	"basalt.dev/basalt/shard/home/plan"
)

// TestNamespacePaysForPlans has a plan for one node that takes much work, as the candidates that are enough may not go together: its namespace is
// charged for what was done. That is forgotten in time.
func TestNamespacePaysForPlans(t *testing.T) {
	c := New(Config{Self: "a", Strict: true})
	now := time.Unix(1000, 0)
	c.Step(now, event.Tick{})
	cpu := func(n int64) api.Resources { return api.Resources{{Resource: "cpu", Value: n}} }
	m := &plan.Mandate{Lacks: []plan.Lack{{Queue: "q", Resource: "cpu", Short: 50}}, Sides: []plan.Side{{Above: cpu(10)}}}
	for i := range 100 {
		m.Candidates = append(m.Candidates, plan.Candidate{Gang: fmt.Sprint(i), Queue: "q", Demand: cpu(1), Side: 1})
	}
	x := &claiming{kinds: []plan.Class{{Requests: cpu(1), Pods: 1}}, nodes: []plan.Node{{Shard: "a", Free: cpu(1), Classes: []uint32{0}}}}
	if _, _, ok := c.findPlan(&gang{name: intake.Name{Namespace: "ns"}}, x, m); ok {
		t.Fatal("there is a plan")
	}
	if spent := c.plans.Spent(now, "ns"); spent < plan.Budget {
		t.Errorf("a plan that takes all of the budget is charged with %d", spent)
	}
	remembered := func() int { return reflect.ValueOf(c.plans).FieldByName("spent").Len() }
	if n := remembered(); n != 1 {
		t.Fatalf("%d namespaces are charged", n)
	}
	c.Step(now.Add(10*time.Second), event.Tick{})
	if n := remembered(); n != 0 {
		t.Errorf("%d namespaces are remembered that owe nothing", n)
	}
}
