package node

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// TestSoonest: where pods have limits, rooms that a patient gang is promised in place of whoever is there come free
// sooner, and all the more so the closer limits are to how long pods run.
func TestSoonest(t *testing.T) {
	const trials = 200
	last := 1.0
	for _, row := range []struct{ limits, least float64 }{{1, 0.97}, {2, 0.6}, {5, 0.33}, {0, 0.13}} {
		free := 0
		for seed := range uint64(trials) {
			free += soonest(seed, row.limits)
		}
		part := float64(free) / trials
		t.Logf("limits of up to %v times the time: %.3f are free within two minutes", row.limits, part)
		if part < row.least || part > last {
			t.Errorf("limits of up to %v times the time: %.3f are free, %.3f at least are to be, and %.3f at most",
				row.limits, part, row.least, last)
		}
		last = part
	}
}

// soonest promises a room on one of 100 nodes with a pod each, whose limits are so many times at most how long they
// run, 0 for none, and returns 1 if the pod leaves within two minutes.
func soonest(seed uint64, limits float64) int {
	r := rand.New(rand.NewPCG(seed, 1))
	c := logged(New(Config{Self: "a", Strict: true, SummaryEvery: time.Hour}))
	table := &api.Table{Epoch: 5, Revision: 5, Members: []api.Member{{Incarnation: "a", Name: "a"}}}
	c.Step(epoch0, event.TableSeen{Table: table})
	one := api.FromMap(map[string]int64{"pods": 1, "cpu": 1000})
	left := map[string]time.Duration{}
	for i := range 100 {
		name := fmt.Sprint("n", i)
		c.Step(epoch0, event.NodeSeen{Node: &api.Node{Name: name, UID: name, Allocatable: one}})
	}
	c.Step(epoch0, event.StoreRead{Sequence: 1, Revision: 5})
	c.Step(epoch0, event.PodsReplaced{Sequence: 1})
	for i := range 100 {
		name := fmt.Sprint("n", i)
		runs, at := time.Duration(0), -12*time.Hour
		for at+runs <= 0 { // one after another
			at += runs
			runs = time.Duration(min(700*math.Exp(1.88*r.NormFloat64()), 4*3600) * float64(time.Second))
		}
		p := &api.Pod{UID: name, Ours: true, Namespace: "ns", Name: name, Node: name, Started: true, Gang: name,
			Created: epoch0.Add(at), Class: api.NewClass(one, nil)}
		if limits > 0 {
			limit := time.Duration(float64(runs) * (1 + r.Float64()*(limits-1)))
			p.Until = p.Created.Add(limit + 70*time.Second + 30*time.Second + api.Overdue).Unix()
		}
		left[name] = at + runs
		c.Step(epoch0, event.PodSeen{Pod: p})
	}
	m := &wire.HoldRequest{Gang: &wire.GangRef{Uid: "c", Namespace: "ns", Name: "c", Queue: "q"}, Serial: 1, Patient: true,
		Awaits: []string{wire.Everybody}, Classes: []*wire.PodClass{{Requests: wire.FromResources(one)}},
		Pods: []*wire.PodWant{{PodUid: "p"}}}
	c.Step(epoch0, event.Message{From: "a", Body: &wire.Envelope{Body: &wire.Envelope_HoldRequest{HoldRequest: m}}})
	p := c.gangs[gangKey(m.Gang)].promises["p"]
	if p != nil && left[p.room.node] <= 2*time.Minute {
		return 1
	}
	return 0
}
