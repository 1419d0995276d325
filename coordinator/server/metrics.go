package server

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/metric"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/coordinator"
)

// metrics of a coordinator. Package metric declares them. What describes the state of the cluster is 0 or absent in a process that does
// not lead, so that sums over processes are right.
type metrics struct {
	leading          prometheus.Gauge
	terms            prometheus.Counter
	termsFailed      *prometheus.CounterVec
	epoch, shards    prometheus.Gauge
	steps            prometheus.Histogram
	commits          prometheus.Histogram
	ops              prometheus.Histogram
	waits            prometheus.Histogram
	brokenInvariants prometheus.Counter
	messages         *prometheus.CounterVec
	grants           prometheus.Counter
	denials          map[wire.DenyReason]prometheus.Counter
	claimsMade       prometheus.Counter
	claimsDropped    prometheus.Counter
	evicted          map[wire.Rule]prometheus.Counter
	condemned        map[wire.Rule]prometheus.Counter
	claimed          coordinator.ClaimCounts // of this term, what is counted already
	reservations     prometheus.Gauge
	waiting          prometheus.Gauge
	size, inUse      *prometheus.GaugeVec
	quota            *prometheus.GaugeVec
	queues           queueMetrics
	observed         time.Time
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		leading:          metric.CoordinatorLeading.Gauge(),
		terms:            metric.CoordinatorTerms.Counter(),
		termsFailed:      metric.TermsFailed.Counters(),
		epoch:            metric.CoordinatorTableEpoch.Gauge(),
		shards:           metric.CoordinatorShards.Gauge(),
		steps:            metric.CoordinatorSteps.Histogram(),
		commits:          metric.CoordinatorCommits.Histogram(),
		ops:              metric.CoordinatorOps.Histogram(),
		waits:            metric.QuotaWait.Histogram(),
		brokenInvariants: metric.CoordinatorBrokenInvariants.Counter(),
		messages:         metric.CoordinatorMessages.Counters(),
		grants:           metric.CoordinatorGrants.Counter(),
		denials:          map[wire.DenyReason]prometheus.Counter{},
		evicted:          map[wire.Rule]prometheus.Counter{},
		condemned:        map[wire.Rule]prometheus.Counter{},
		reservations:     metric.CoordinatorReservations.Gauge(),
		waiting:          metric.CoordinatorWaiting.Gauge(),
		size:             metric.StoreSize.Gauges(),
		inUse:            metric.StoreSizeInUse.Gauges(),
		quota:            metric.StoreQuota.Gauges(),
	}
	denials := metric.CoordinatorDenials.Counters()
	for number, name := range wire.DenyReason_name {
		if number != 0 {
			m.denials[wire.DenyReason(number)] = denials.WithLabelValues(strings.ToLower(strings.TrimPrefix(name, "DENY_")))
		}
	}
	claims, evicted, condemned := metric.Claims.Counters(), metric.EvictedGangs.Counters(), metric.CondemnedPods.Counters()
	m.claimsMade, m.claimsDropped = claims.WithLabelValues("made"), claims.WithLabelValues("dropped")
	for number, name := range wire.Rule_name {
		if number != 0 {
			rule := strings.ToLower(strings.TrimPrefix(name, "RULE_"))
			m.evicted[wire.Rule(number)], m.condemned[wire.Rule(number)] = evicted.WithLabelValues(rule), condemned.WithLabelValues(rule)
		}
	}
	r.MustRegister(m.leading, m.terms, m.termsFailed, m.epoch, m.shards, m.steps, m.commits, m.ops, m.waits,
		m.brokenInvariants, m.messages, m.grants, denials, claims, evicted, condemned, m.reservations, m.waiting,
		m.size, m.inUse, m.quota, &m.queues)
	return m
}

func (m *metrics) termBegins() {
	m.claimed = coordinator.ClaimCounts{} // the core of a term counts from 0
	m.leading.Set(1)
	m.terms.Inc()
}

// termEnds takes back what only a leader says.
func (m *metrics) termEnds() {
	for _, g := range []prometheus.Gauge{m.leading, m.epoch, m.shards, m.reservations, m.waiting} {
		g.Set(0)
	}
	m.queues.sums.Store(nil)
}

func (m *metrics) termFailed(err error) {
	reason := "other"
	var record *protocol.RecordError
	switch {
	case errors.Is(err, protocol.ErrFenced):
		reason = "lease"
	case errors.As(err, &record), errors.Is(err, protocol.ErrTooLarge):
		reason = "record"
	}
	m.termsFailed.WithLabelValues(reason).Inc()
}

func (m *metrics) transaction(ops int, took time.Duration) {
	m.commits.Observe(took.Seconds())
	m.ops.Observe(float64(ops))
}

// sent counts a message.
func (m *metrics) sent(body *wire.Envelope) {
	m.messages.WithLabelValues(strings.TrimPrefix(reflect.TypeOf(body.Body).Elem().Name(), "Envelope_")).Inc()
	if body.GetGranted() != nil {
		m.grants.Inc()
	}
	if c := m.denials[body.GetDenied().GetReason()]; c != nil {
		c.Inc()
	}
}

// granted observes how long granted requests had waited.
func (m *metrics) granted(waits []time.Duration) {
	for _, w := range waits {
		m.waits.Observe(w.Seconds())
	}
}

// claims counts what the core has counted since the last call.
func (m *metrics) claims(n coordinator.ClaimCounts) {
	if n == m.claimed {
		return
	}
	m.claimsMade.Add(float64(n.Made - m.claimed.Made))
	m.claimsDropped.Add(float64(n.Dropped - m.claimed.Dropped))
	for rule := range n.Evicted {
		if rule := wire.Rule(rule); rule != wire.Rule_RULE_UNKNOWN {
			m.evicted[rule].Add(float64(n.Evicted[rule] - m.claimed.Evicted[rule]))
			m.condemned[rule].Add(float64(n.Condemned[rule] - m.claimed.Condemned[rule]))
		}
	}
	m.claimed = n
}

// observe copies the core's sums, every two seconds.
func (m *metrics) observe(core *coordinator.Core) {
	if time.Since(m.observed) < 2*time.Second {
		return
	}
	m.observed = time.Now()
	n := core.Counts()
	m.reservations.Set(float64(n.Reservations))
	m.waiting.Set(float64(n.Waiting))
	m.epoch.Set(float64(n.Epoch))
	m.shards.Set(float64(n.Shards))
	var sums []coordinator.QueueSums
	core.Queues(m.observed, func(s coordinator.QueueSums) { sums = append(sums, s) })
	m.queues.sums.Store(&sums)
}

// storeEvery is how often the size of the control store is read.
const storeEvery = 15 * time.Second

// followStore reads the size of the control store at each endpoint, until ctx ends.
func (m *metrics) followStore(ctx context.Context, s *store.Store) {
	tick := time.NewTicker(storeEvery)
	defer tick.Stop()
	for {
		sizes := s.Sizes(ctx)
		m.size.Reset()
		m.inUse.Reset()
		m.quota.Reset()
		for _, size := range sizes {
			m.size.WithLabelValues(size.Endpoint).Set(float64(size.Bytes))
			m.inUse.WithLabelValues(size.Endpoint).Set(float64(size.InUse))
			if size.Quota > 0 {
				m.quota.WithLabelValues(size.Endpoint).Set(float64(size.Quota))
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// queueMetrics shows all queues as they were at one moment. The series of a queue that was deleted are gone with it.
type queueMetrics struct {
	sums atomic.Pointer[[]coordinator.QueueSums] // nil while another process leads
}

var (
	queueCharged    = metric.QueueCharged.Desc()
	queueCapability = metric.QueueCapability.Desc()
	queueGuarantee  = metric.QueueGuarantee.Desc()
	queueDeserved   = metric.QueueDeserved.Desc()
	queueAdmitted   = metric.QueueAdmitted.Desc()
	queueWaiting    = metric.QueueWaiting.Desc()
	queueOldestWait = metric.QueueOldestWait.Desc()
	queueLacks      = metric.QueueDeservedWait.Desc()
)

func (m *queueMetrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{queueCharged, queueCapability, queueGuarantee, queueDeserved, queueAdmitted,
		queueWaiting, queueOldestWait, queueLacks} {
		out <- d
	}
}

func (m *queueMetrics) Collect(out chan<- prometheus.Metric) {
	sums := m.sums.Load()
	if sums == nil {
		return
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	for _, q := range *sums {
		for _, of := range []struct {
			desc    *prometheus.Desc
			amounts api.Resources
		}{
			{queueCharged, q.Charged}, {queueCapability, q.Capability},
			{queueGuarantee, q.Guarantee}, {queueDeserved, q.Deserved},
		} {
			for _, a := range of.amounts {
				unit, divisor := metric.UnitOf(a.Resource)
				gauge(of.desc, float64(a.Value)/divisor, q.Queue, a.Resource, unit)
			}
		}
		gauge(queueAdmitted, float64(q.Admitted), q.Queue)
		gauge(queueWaiting, float64(q.Waiting), q.Queue)
		gauge(queueOldestWait, metric.SecondsSince(q.OldestWait), q.Queue)
		if len(q.Deserved) > 0 {
			gauge(queueLacks, metric.SecondsSince(q.DeservedWait), q.Queue)
		}
	}
}
