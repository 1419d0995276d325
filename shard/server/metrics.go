package server

import (
	"reflect"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/metric"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
)

// metrics of a shard. Package metric declares them.
type metrics struct {
	steps            prometheus.Histogram
	inbox            prometheus.Gauge
	bindings         *prometheus.CounterVec
	writes           *prometheus.CounterVec
	transactions     *prometheus.CounterVec
	messages         map[messageKey]prometheus.Counter // of messageKinds
	messageKinds     *prometheus.CounterVec
	holds, commits   *prometheus.CounterVec
	held, refused    prometheus.Counter // of holds
	lost             prometheus.Counter
	brokenInvariants prometheus.Counter
	foreignBindings  sum
	eventsDropped    sum
	disrupted        sum
	tierFailures     *prometheus.CounterVec
	buckets, epoch   prometheus.Gauge
	gangs            *prometheus.GaugeVec
	waiting          *prometheus.GaugeVec
	oldestWait       *prometheus.GaugeVec
	reasons          map[string]bool // of waiting and oldestWait
	nodes            *prometheus.GaugeVec
	allocatable      resourceGauge
	free             resourceGauge
	intents          prometheus.Gauge
	takeovers        prometheus.Histogram
	durations        *prometheus.HistogramVec
	placements       *prometheus.HistogramVec
	queues           map[string]queueMetrics // of durations and placements, by top-level queue
	observed         time.Time
}

// sum is a counter of what a core sums up itself.
type sum struct {
	prometheus.Counter
	last uint64
}

func (s *sum) set(now uint64) {
	s.Add(float64(now - s.last))
	s.last = now
}

// queueMetrics are the histograms of a top-level queue.
type queueMetrics struct{ duration, placement prometheus.Observer }

// Bounds of labels: further values are called other.
const (
	queuesAtMost  = 100 // top-level queues with histograms
	reasonsAtMost = 50
	other         = "other"
)

// resourcesAtMost is how many resources of nodes have series; further ones have none.
const resourcesAtMost = 32

type messageKey struct {
	body reflect.Type
	to   string
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		steps:            metric.ShardSteps.Histogram(),
		inbox:            metric.ShardInbox.Gauge(),
		bindings:         metric.ShardBindings.Counters(),
		writes:           metric.ShardAPIWrites.Counters(),
		transactions:     metric.ShardTransactions.Counters(),
		messages:         map[messageKey]prometheus.Counter{},
		messageKinds:     metric.ShardMessages.Counters(),
		holds:            metric.ShardHolds.Counters(),
		commits:          metric.ShardCommits.Counters(),
		brokenInvariants: metric.ShardBrokenInvariants.Counter(),
		foreignBindings:  sum{Counter: metric.ShardForeignBindings.Counter()},
		eventsDropped:    sum{Counter: metric.ShardEventsDropped.Counter()},
		disrupted:        sum{Counter: metric.ShardDisrupted.Counter()},
		tierFailures:     metric.ShardTierFailures.Counters(),
		buckets:          metric.ShardBuckets.Gauge(),
		epoch:            metric.ShardTableEpoch.Gauge(),
		gangs:            metric.ShardGangs.Gauges(),
		waiting:          metric.ShardWaiting.Gauges(),
		oldestWait:       metric.ShardOldestWait.Gauges(),
		reasons:          map[string]bool{},
		nodes:            metric.ShardNodes.Gauges(),
		allocatable:      resourceGauge{GaugeVec: metric.ShardAllocatable.Gauges()},
		free:             resourceGauge{GaugeVec: metric.ShardFree.Gauges()},
		intents:          metric.ShardIntents.Gauge(),
		takeovers:        metric.ShardTakeovers.Histogram(),
		durations:        metric.GangDuration.Histograms(),
		placements:       metric.GangPlacement.Histograms(),
		queues:           map[string]queueMetrics{},
	}
	m.held, m.refused, m.lost = m.holds.WithLabelValues("held"), m.holds.WithLabelValues("refused"), m.holds.WithLabelValues("lost")
	r.MustRegister(m.steps, m.inbox, m.bindings, m.writes, m.transactions, m.messageKinds, m.holds, m.commits,
		m.brokenInvariants, m.foreignBindings, m.eventsDropped, m.disrupted, m.tierFailures,
		m.buckets, m.epoch, m.gangs, m.waiting, m.oldestWait, m.nodes, m.allocatable, m.free,
		m.intents, m.takeovers, m.durations, m.placements)
	return m
}

func (m *metrics) step(took time.Duration) { m.steps.Observe(took.Seconds()) }

func (m *metrics) binding(o event.BindOutcome) {
	m.bindings.WithLabelValues(map[event.BindOutcome]string{event.BindOK: "ok", event.BindConflict: "conflict",
		event.BindNotFound: "not_found", event.BindUnknown: "unknown", event.BindRejected: "rejected"}[o]).Inc()
}

func (m *metrics) write(kind string, o event.StatusOutcome) {
	m.writes.WithLabelValues(kind, map[event.StatusOutcome]string{event.StatusOK: "ok", event.StatusGone: "gone", event.StatusConflict: "conflict", event.StatusFailed: "failed"}[o]).Inc()
}

func (m *metrics) transaction(kind string, accepted bool) {
	m.transactions.WithLabelValues(kind, map[bool]string{true: "yes", false: "no"}[accepted]).Inc()
}

// sent counts a message, and what it says of holds and commits. It runs on the loop's goroutine.
func (m *metrics) sent(self api.Incarnation, o event.Send) {
	to := "shard"
	switch o.To {
	case self:
		to = "self"
	case event.ToCoordinator:
		to = "coordinator"
	}
	key := messageKey{reflect.TypeOf(o.Body.Body), to}
	c := m.messages[key]
	if c == nil {
		c = m.messageKinds.WithLabelValues(strings.TrimPrefix(key.body.Elem().Name(), "Envelope_"), to)
		m.messages[key] = c
	}
	c.Inc()
	switch b := o.Body.Body.(type) {
	case *wire.Envelope_HoldReply:
		m.held.Add(float64(len(b.HoldReply.Held)))
		refused := uint32(0)
		for _, r := range b.HoldReply.Refused {
			refused += r.Pods
		}
		m.refused.Add(float64(refused))
	case *wire.Envelope_HoldsLost:
		m.lost.Add(float64(len(b.HoldsLost.PodUids)))
	case *wire.Envelope_CommitReply:
		m.commits.WithLabelValues(strings.ToLower(strings.TrimPrefix(b.CommitReply.Outcome.String(), "COMMIT_"))).Inc()
	}
}

// gangsBound observes what the home core noted since the last call. It runs on the loop's goroutine.
func (m *metrics) gangsBound(bound []home.GangBound, takeovers []time.Duration) {
	for _, b := range bound {
		q := m.queue(topLevel(b.Queue))
		q.duration.Observe(b.SinceSeen.Seconds())
		q.placement.Observe(b.SinceComplete.Seconds())
	}
	for _, took := range takeovers {
		m.takeovers.Observe(took.Seconds())
	}
}

func (m *metrics) queue(name string) queueMetrics {
	q, known := m.queues[name]
	if !known {
		if len(m.queues) >= queuesAtMost && name != other {
			return m.queue(other)
		}
		q = queueMetrics{m.durations.WithLabelValues(name), m.placements.WithLabelValues(name)}
		m.queues[name] = q
	}
	return q
}

// queueGone removes the series of a queue that was deleted. It runs on the loop's goroutine.
func (m *metrics) queueGone(name string) {
	if _, known := m.queues[name]; known && name != other {
		delete(m.queues, name)
		m.durations.DeleteLabelValues(name)
		m.placements.DeleteLabelValues(name)
	}
}

// topLevel returns the queue below root that a queue is in, or is.
func topLevel(queue string) string {
	top, _, _ := strings.Cut(queue, ".")
	return top
}

// observe copies the cores' sums, once a second. It runs on the loop's goroutine.
func (m *metrics) observe(l *loop) {
	if time.Since(m.observed) < time.Second {
		return
	}
	m.observed = time.Now()
	m.inbox.Set(float64(len(l.inbox)))
	n := l.cores.Home.Counts()
	m.foreignBindings.set(l.cores.Home.BoundByOthers)
	m.eventsDropped.set(l.cores.Home.EventsDropped)
	m.disrupted.set(l.cores.Home.Disrupted)
	m.buckets.Set(float64(n.Buckets))
	m.epoch.Set(float64(n.Epoch))
	for state, gangs := range n.ByState {
		m.gangs.WithLabelValues(state).Set(float64(gangs))
	}
	m.wait(n.ByReason, n.Oldest)
	m.intents.Set(float64(l.cores.Node.Stats().Rows))
	if s := l.cores.Node.Summary(); s != nil {
		m.nodes.WithLabelValues("in_sync").Set(float64(s.Nodes - s.OutOfSync))
		m.nodes.WithLabelValues("out_of_sync").Set(float64(s.OutOfSync))
		m.allocatable.set(s.Allocatable)
		m.free.set(s.Free)
	}
}

// wait sets the gangs that wait, by reason, and since when the oldest does. A reason that was seen stays, with 0.
func (m *metrics) wait(byReason map[string]int, oldest map[string]time.Time) {
	left, longest := 0, 0.0
	for reason, gangs := range byReason {
		waited := metric.SecondsSince(oldest[reason])
		if !m.reasons[reason] && len(m.reasons) >= reasonsAtMost {
			left, longest = left+gangs, max(longest, waited)
			continue
		}
		m.reasons[reason] = true
		m.waiting.WithLabelValues(reason).Set(float64(gangs))
		m.oldestWait.WithLabelValues(reason).Set(waited)
	}
	for reason := range m.reasons {
		if byReason[reason] == 0 {
			m.waiting.WithLabelValues(reason).Set(0)
			m.oldestWait.WithLabelValues(reason).Set(0)
		}
	}
	if left > 0 {
		m.waiting.WithLabelValues(other).Set(float64(left))
		m.oldestWait.WithLabelValues(other).Set(longest)
	} else {
		m.waiting.DeleteLabelValues(other)
		m.oldestWait.DeleteLabelValues(other)
	}
}

// resourceGauge has a series for each resource of some amounts.
type resourceGauge struct {
	*prometheus.GaugeVec
	known map[string]bool
}

// set replaces the amounts. A resource that they do not name any more loses its series.
func (g *resourceGauge) set(now []*wire.Amount) {
	before := g.known
	g.known = make(map[string]bool, len(now))
	for _, a := range now[:min(len(now), resourcesAtMost)] {
		metric.Set(g.GaugeVec, a.Resource, a.Value)
		g.known[a.Resource] = true
	}
	for resource := range before {
		if !g.known[resource] {
			g.DeletePartialMatch(prometheus.Labels{"resource": resource})
		}
	}
}
