package server

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api/metric/metrictest"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/home"
)

// Durations of gangs are by top-level queue, of which a bounded number has series, and those of a deleted queue are gone.
func TestGangDurations(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	m.gangsBound([]home.GangBound{{Queue: "a.b.c", SinceSeen: time.Second}, {Queue: "a"}, {Queue: "b"}}, []time.Duration{time.Second})
	for _, name := range []string{"basalt_gang_scheduling_duration_seconds", "basalt_gang_placement_duration_seconds"} {
		if got := metrictest.Samples(t, r, name); len(got) != 2 || got["a "] != 2 || got["b "] != 1 {
			t.Errorf("%s: %v", name, got)
		}
	}
	if got := value(t, m.takeovers); got != 1 {
		t.Errorf("%g takeovers", got)
	}
	m.queueGone("a.b.c")
	m.queueGone("b")
	for i := range 2 * queuesAtMost {
		m.gangsBound([]home.GangBound{{Queue: fmt.Sprint("q", i, ".x")}}, nil)
	}
	got := metrictest.Samples(t, r, "basalt_gang_placement_duration_seconds")
	if len(got) != queuesAtMost+1 || got["a "] != 2 || got["other "] != queuesAtMost+1 {
		t.Errorf("%d series, of a %g, of others %g", len(got), got["a "], got["other "])
	}
	if _, still := got["b "]; still {
		t.Error("a deleted queue has a series")
	}
}

// A reason that nothing waits for any more has 0; a bounded number of reasons has series.
func TestWaitingGangs(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	read := func() map[string]float64 { return metrictest.Samples(t, r, "basalt_shard_waiting_gangs") }
	oldest := func() map[string]float64 { return metrictest.Samples(t, r, "basalt_shard_oldest_wait_seconds") }
	hour := map[string]time.Time{"A": time.Now().Add(-time.Hour), "B": time.Now().Add(-2 * time.Hour)}
	m.wait(map[string]int{"A": 2, "B": 1, "incomplete": 1}, hour)
	if got := oldest(); len(got) != 3 || got["A "] < 3600 || got["B "] < 7200 || got["incomplete "] != 0 {
		t.Errorf("%v", got)
	}
	m.wait(map[string]int{"B": 3}, nil)
	if got := read(); len(got) != 3 || got["A "] != 0 || got["B "] != 3 {
		t.Errorf("%v", got)
	}
	if got := oldest(); len(got) != 3 || got["A "] != 0 || got["B "] != 0 {
		t.Errorf("%v", got)
	}
	many := map[string]int{}
	for i := range 2 * reasonsAtMost {
		many[fmt.Sprint(i)] = 1
	}
	m.wait(many, nil)
	got, sum := read(), 0.0
	for _, v := range got {
		sum += v
	}
	if len(got) != reasonsAtMost+1 || sum != 2*reasonsAtMost {
		t.Errorf("%d series with %g gangs", len(got), sum)
	}
	m.wait(nil, nil)
	if got := read(); len(got) != reasonsAtMost || len(oldest()) != reasonsAtMost {
		t.Errorf("%d and %d series when nothing waits", len(got), len(oldest()))
	}
}

// What a core sums up itself is exported as a counter, however often it is read.
func TestSums(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	for _, now := range []uint64{0, 2, 2, 7} {
		m.eventsDropped.set(now)
	}
	m.foreignBindings.set(3)
	for name, want := range map[string]float64{"basalt_shard_events_dropped_total": 7, "basalt_shard_foreign_bindings_total": 3} {
		if got := metrictest.Samples(t, r, name)[""]; got != want {
			t.Errorf("%s is %g, not %g", name, got, want)
		}
	}
}

// Amounts are in base units, and a resource that no node has any more has no series.
func TestResources(t *testing.T) {
	r := prometheus.NewRegistry()
	m := newMetrics(r)
	read := func() map[string]float64 { return metrictest.Samples(t, r, "basalt_shard_free") }
	m.free.set([]*wire.Amount{{Resource: "cpu", Value: 1500}, {Resource: "memory", Value: 1024}, {Resource: "x.dev/gpu", Value: 3}})
	if got := read(); len(got) != 3 || got["cpu core "] != 1.5 || got["memory byte "] != 1024 || got["x.dev/gpu integer "] != 3 {
		t.Errorf("%v", got)
	}
	m.free.set([]*wire.Amount{{Resource: "cpu", Value: 2000}})
	if got := read(); len(got) != 1 || got["cpu core "] != 2 {
		t.Errorf("%v", got)
	}
	var many []*wire.Amount
	for i := range 2 * resourcesAtMost {
		many = append(many, &wire.Amount{Resource: fmt.Sprint("x.dev/", i)})
	}
	m.free.set(many)
	if got := read(); len(got) != resourcesAtMost {
		t.Errorf("%d resources", len(got))
	}
}
