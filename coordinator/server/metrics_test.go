package server

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/metric/metrictest"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/coordinator"
)

// Queues have series while they are there and this process leads, in base units.
func TestQueueMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	show := func(sums ...coordinator.QueueSums) { m.queues.sums.Store(&sums) }
	gpus := api.Resources{{Resource: "cpu", Value: 2500}, {Resource: "x.dev/gpu", Value: 4}}
	show(coordinator.QueueSums{Queue: "root"}, coordinator.QueueSums{Queue: "a", Charged: gpus, Capability: gpus, Guarantee: gpus, Admitted: 2, Waiting: 1, OldestWait: time.Now().Add(-time.Hour)})
	for _, name := range []string{"basalt_queue_charged", "basalt_queue_capability", "basalt_queue_guarantee"} {
		if got := metrictest.Samples(t, r, name); len(got) != 2 || got["a cpu core "] != 2.5 || got["a x.dev/gpu integer "] != 4 {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := metrictest.Samples(t, r, "basalt_queue_admitted_gangs"); len(got) != 2 || got["a "] != 2 {
		t.Errorf("admitted: %v", got)
	}
	if got := metrictest.Samples(t, r, "basalt_queue_oldest_wait_seconds"); len(got) != 2 || got["a "] < 3600 || got["root "] != 0 {
		t.Errorf("oldest: %v", got)
	}
	show(coordinator.QueueSums{Queue: "root"}, coordinator.QueueSums{Queue: "a", Deserved: gpus},
		coordinator.QueueSums{Queue: "b", Deserved: gpus, DeservedWait: time.Now().Add(-time.Hour)})
	if got := metrictest.Samples(t, r, "basalt_queue_deserved"); len(got) != 4 || got["a cpu core "] != 2.5 {
		t.Errorf("deserved: %v", got)
	}
	if got := metrictest.Samples(t, r, "basalt_queue_deserved_wait_seconds"); len(got) != 2 || got["a "] != 0 ||
		got["b "] < 3600 {
		t.Errorf("lacks what it deserves: %v", got)
	}
	show(coordinator.QueueSums{Queue: "root"})
	if got := metrictest.Samples(t, r, "basalt_queue_charged"); len(got) != 0 {
		t.Errorf("a deleted queue has series: %v", got)
	}
	m.termBegins()
	m.reservations.Set(7)
	m.termEnds()
	if got := metrictest.Samples(t, r, "basalt_queue_waiting_gangs"); len(got) != 0 {
		t.Errorf("a process that does not lead shows queues: %v", got)
	}
	if got := metrictest.Samples(t, r, "basalt_coordinator_reservations"); got[""] != 0 {
		t.Errorf("a process that does not lead shows %g reservations", got[""])
	}
	if got := metrictest.Samples(t, r, "basalt_coordinator_terms_total"); got[""] != 1 {
		t.Errorf("%g terms", got[""])
	}
}

// Denials are counted by reason, all of which have a series from the start.
func TestDenials(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	m.sent(&wire.Envelope{Body: &wire.Envelope_Denied{Denied: &wire.Denied{Reason: wire.DenyReason_DENY_QUOTA}}})
	m.sent(&wire.Envelope{Body: &wire.Envelope_Denied{Denied: &wire.Denied{}}})
	m.sent(&wire.Envelope{Body: &wire.Envelope_Granted{Granted: &wire.Granted{}}})
	got, sum := metrictest.Samples(t, r, "basalt_coordinator_denials_total"), 0.0
	for _, v := range got {
		sum += v
	}
	if len(got) != len(wire.DenyReason_name)-1 || got["quota "] != 1 || sum != 1 {
		t.Errorf("%v", got)
	}
	m.granted([]time.Duration{time.Second, time.Hour})
	if got := metrictest.Samples(t, r, "basalt_coordinator_quota_wait_duration_seconds"); got[""] != 2 {
		t.Errorf("waits: %v", got)
	}
}

// Claims and evictions are counted over all terms of the process, and have all their series from the start.
func TestClaimMetrics(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	check := func(made, dropped, reclaim, preempt float64) {
		t.Helper()
		claims, evicted := metrictest.Samples(t, r, "basalt_claims_total"), metrictest.Samples(t, r, "basalt_evicted_gangs_total")
		if len(claims) != 2 || claims["made "] != made || claims["dropped "] != dropped {
			t.Errorf("claims: %v", claims)
		}
		if len(evicted) != len(wire.Rule_name)-1 || evicted["reclaim "] != reclaim || evicted["preempt "] != preempt {
			t.Errorf("evicted: %v", evicted)
		}
	}
	if n := len(coordinator.ByRule{}); n != len(wire.Rule_name) {
		t.Fatalf("%d rules are counted, and there are %d", n, len(wire.Rule_name))
	}
	check(0, 0, 0, 0)
	m.termBegins()
	m.claims(coordinator.ClaimCounts{Made: 2, Dropped: 1,
		Evicted: coordinator.ByRule{wire.Rule_RULE_RECLAIM: 3, wire.Rule_RULE_PREEMPT: 1}})
	m.claims(coordinator.ClaimCounts{Made: 3, Dropped: 1,
		Evicted:   coordinator.ByRule{wire.Rule_RULE_RECLAIM: 5, wire.Rule_RULE_PREEMPT: 1},
		Condemned: coordinator.ByRule{wire.Rule_RULE_RECLAIM: 7}})
	check(3, 1, 5, 1)
	if got := metrictest.Samples(t, r, "basalt_evicted_surplus_pods_total"); len(got) != len(wire.Rule_name)-1 || got["reclaim "] != 7 {
		t.Errorf("surplus pods: %v", got)
	}
	m.termEnds()
	m.termBegins()
	m.claims(coordinator.ClaimCounts{Made: 1, Evicted: coordinator.ByRule{wire.Rule_RULE_PREEMPT: 1}})
	check(4, 1, 5, 2)
}
