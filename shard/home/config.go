package home

import (
	"cmp"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/topology"
)

// Config of a core. A zero field takes the default named beside it; a negative budget means none at all.
type Config struct {
	Self      api.Incarnation
	Tracing   bool // report spans
	PodEvents bool // an event on each pod that is bound
	Strict    bool // panic when an invariant of ours breaks, for tests and simulators

	Levels []string // labels of nodes from the largest kind of topology domain to the smallest; a gang that prefers one is tried in the larger ones, too

	Topology *topology.View // given every event before the core; nil: the core has one of its own

	InFlight     int // 256: gangs that look for room at once; more are taken up in the order of their ranks
	PodsInFlight int // 2,048: pods of those gangs, so that node shards answer in time however many gangs come at once
	CommitPods   int // 8,000: pods of one Commit, at up to 700 bytes each
	HoldPods     int // 16,000: pods of one HoldRequest, and of its answer at up to 300 bytes each
	LargeGang    int // 16: one with more pods is not looked at for each event about one of them

	AskAgain      time.Duration // 1 s: first pause before a request to a node shard is retransmitted; it doubles up to 8 s, because a shard that has much to do answers late
	ResendEvery   time.Duration // 30 s: what waits at the coordinator is retransmitted; before an answer sooner, doubling from AskAgain
	SkipAfter     time.Duration // 2 s: a shard that does not answer a HoldRequest is passed over
	HoldFor       time.Duration // 10 s: how long a hold is requested for, unless the gang is patient
	MendWithin    time.Duration // 3 s: a gang whose commit lost a hold finds another one in this time, or starts over
	PrepareFor    time.Duration // 8 s: all commits of a gang are answered in this time, or it starts over
	VolumesWithin time.Duration // 10 min: the volumes of a gang's pods are bound in this time, or it gives its reservation back
	DoubtFor      time.Duration // 15 s: then pods that were committed at a shard that left the table are tried elsewhere
	GiveUpAfter   time.Duration // 10 s: a reserved gang that finds no room gives its reservation back
	StallAfter    time.Duration // 2 s: one that found less than it needs, and no more for so long, lets go of it
	RollForward   time.Duration // 20 s: from the first pod with a node (three times that while there is none); then a partly bound gang is undone, where that is allowed
	StrayAfter    time.Duration // 10 s: an inherited reservation whose PodGroup is not seen for so long is closed
	BackoffMin    time.Duration // 500 ms: between two searches for room, doubling
	BackoffMax    time.Duration // 3 s: longer, and a gang would wait for room that is there
	RetryRoom     time.Duration // 30 s: a search without any sign of new room
	TryEvery      time.Duration // 2 s: a gang requests more than summaries show, because they may be out of date
	NeverAfter    time.Duration // 5 s: how long the table must not have changed before a gang is reported never to fit

	PatientAfter time.Duration // 1 min: a gang that has waited so long requests to be the one that keeps what it holds
	PatientFor   time.Duration // 2 min: how long it keeps it

	ConditionAfter   time.Duration // 10 s: a pod has waited so long before it is told why
	ConditionBudget  int           // 50: such writes a second
	ExplainBudget    int           // 100: classes of pods in a second that node shards are asked about; < 0: none
	EventBudget      int           // 50: Kubernetes events a second about what many objects can cause
	StatusEvery      time.Duration // 1 s: between two status writes for a PodGroup; for a Queue twice that
	StatusBudget     int           // 100: PodGroup status writes a second; less than 0 for none
	UsageBudget      int           // 500: Queue status writes a second
	CoordinatorQuiet time.Duration // 5 s: an unanswered request means that no coordinator is there
}

func (c *Config) setDefaults() {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.AskAgain, time.Second}, {&c.ResendEvery, 30 * time.Second}, {&c.SkipAfter, 2 * time.Second},
		{&c.HoldFor, 10 * time.Second}, {&c.MendWithin, 3 * time.Second}, {&c.PrepareFor, 8 * time.Second}, {&c.VolumesWithin, 10 * time.Minute},
		{&c.DoubtFor, 15 * time.Second}, {&c.GiveUpAfter, 10 * time.Second}, {&c.StallAfter, 2 * time.Second}, {&c.RollForward, 20 * time.Second},
		{&c.StrayAfter, 10 * time.Second},
		{&c.BackoffMin, 500 * time.Millisecond},
		{&c.RetryRoom, 30 * time.Second}, {&c.TryEvery, 2 * time.Second}, {&c.NeverAfter, 5 * time.Second},
		{&c.PatientAfter, time.Minute}, {&c.PatientFor, api.PatientFor},
		{&c.ConditionAfter, 10 * time.Second}, {&c.StatusEvery, time.Second},
		{&c.CoordinatorQuiet, 5 * time.Second},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	c.BackoffMax = cmp.Or(c.BackoffMax, 6*c.BackoffMin)
	for _, d := range []struct {
		field *int
		value int
	}{{&c.InFlight, 256}, {&c.PodsInFlight, 2048}, {&c.CommitPods, 8000}, {&c.HoldPods, 16000},
		{&c.LargeGang, 16}, {&c.ConditionBudget, 50}, {&c.ExplainBudget, 100}, {&c.EventBudget, 50},
		{&c.StatusBudget, 100}, {&c.UsageBudget, 500}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
}
