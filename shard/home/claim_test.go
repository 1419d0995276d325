package home

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
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
	if _, _, ok := c.claims.findPlan(&gang{object: object{name: intake.Name{Namespace: "ns"}}}, x, m); ok {
		t.Fatal("there is a plan")
	}
	if spent := c.claims.plans.Spent(now, "ns"); spent < plan.Budget {
		t.Errorf("a plan that takes all of the budget is charged with %d", spent)
	}
	remembered := func() int { return reflect.ValueOf(c.claims.plans).FieldByName("spent").Len() }
	if n := remembered(); n != 1 {
		t.Fatalf("%d namespaces are charged", n)
	}
	c.Step(now.Add(10*time.Second), event.Tick{})
	if n := remembered(); n != 0 {
		t.Errorf("%d namespaces are remembered that owe nothing", n)
	}
}

// Users of a namespace are told which of its gangs are evicted for one of theirs, and how many of others.
func TestVictimNames(t *testing.T) {
	victim := func(namespace, name string, pods int) *wire.Victim {
		return &wire.Victim{Gang: &wire.GangRef{Namespace: namespace, Name: name}, Pods: make([]*wire.SurplusPod, pods)}
	}
	for want, victims := range map[string][]*wire.Victim{
		"":                                       nil,
		"gang ns/a, 2 pods of gang ns/b":         {victim("ns", "a", 0), victim("ns", "b", 2)},
		"1 gang of another namespace":            {victim("other", "secret", 3)},
		"gang ns/a, 2 gangs of other namespaces": {victim("x", "secret", 0), victim("ns", "a", 0), victim("y", "secret", 0)},
	} {
		if got := strings.Join(victimNames("ns", victims), ", "); got != want {
			t.Errorf("told of %q, want %q", got, want)
		}
	}
}
