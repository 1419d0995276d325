package process

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/shard/event"
)

// metrics of a shard. Names follow Prometheus' conventions; units are in the names.
type metrics struct {
	steps            prometheus.Histogram
	inbox            prometheus.Gauge
	bindings         *prometheus.CounterVec
	writes           *prometheus.CounterVec
	transactions     *prometheus.CounterVec
	brokenInvariants prometheus.Counter
	buckets          prometheus.Gauge
	gangs            *prometheus.GaugeVec
	nodes            *prometheus.GaugeVec
	free             *prometheus.GaugeVec
	intents          prometheus.Gauge
	observed         time.Time
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		steps:            prometheus.NewHistogram(prometheus.HistogramOpts{Name: "basalt_shard_step_seconds", Help: "Time that the cores took for one event.", Buckets: prometheus.ExponentialBuckets(1e-6, 4, 12)}),
		inbox:            prometheus.NewGauge(prometheus.GaugeOpts{Name: "basalt_shard_inbox_events", Help: "Events that wait for the cores."}),
		bindings:         prometheus.NewCounterVec(prometheus.CounterOpts{Name: "basalt_shard_bindings_total", Help: "Bindings sent, by the API server's answer."}, []string{"answer"}),
		writes:           prometheus.NewCounterVec(prometheus.CounterOpts{Name: "basalt_shard_api_writes_total", Help: "Other writes to the API server, by kind and outcome."}, []string{"kind", "outcome"}),
		transactions:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "basalt_shard_transactions_total", Help: "Transactions on the control store, by kind and whether they were accepted."}, []string{"kind", "accepted"}),
		brokenInvariants: prometheus.NewCounter(prometheus.CounterOpts{Name: "basalt_shard_broken_invariants_total", Help: "Broken invariants of Basalt's own; each is logged at error level. Anything above 0 is a bug."}),
		buckets:          prometheus.NewGauge(prometheus.GaugeOpts{Name: "basalt_shard_buckets", Help: "Buckets owned."}),
		gangs:            prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "basalt_shard_gangs", Help: "Gangs known, and how many of them wait."}, []string{"state"}),
		nodes:            prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "basalt_shard_nodes", Help: "Nodes owned, and how many of them are out of sync: they hold more than they have."}, []string{"state"}),
		free:             prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "basalt_shard_free", Help: "Free capacity of the nodes owned: milli-cores, bytes, units."}, []string{"resource"}),
		intents:          prometheus.NewGauge(prometheus.GaugeOpts{Name: "basalt_shard_intents", Help: "Intent rows that are not settled."}),
	}
	r.MustRegister(m.steps, m.inbox, m.bindings, m.writes, m.transactions, m.brokenInvariants, m.buckets, m.gangs, m.nodes, m.free, m.intents)
	return m
}

func (m *metrics) step(took time.Duration) { m.steps.Observe(took.Seconds()) }

func (m *metrics) binding(o event.BindOutcome) {
	m.bindings.WithLabelValues(map[event.BindOutcome]string{event.BindOK: "ok", event.BindConflict: "conflict", event.BindNotFound: "not_found", event.BindUnknown: "unknown"}[o]).Inc()
}

func (m *metrics) write(kind string, o event.StatusOutcome) {
	m.writes.WithLabelValues(kind, map[event.StatusOutcome]string{event.StatusOK: "ok", event.StatusGone: "gone", event.StatusConflict: "conflict", event.StatusFailed: "failed"}[o]).Inc()
}

func (m *metrics) transaction(kind string, accepted bool) {
	m.transactions.WithLabelValues(kind, map[bool]string{true: "yes", false: "no"}[accepted]).Inc()
}

// observe copies the cores' sums, once a second. It runs on the loop's goroutine.
func (m *metrics) observe(l *loop) {
	if time.Since(m.observed) < time.Second {
		return
	}
	m.observed = time.Now()
	m.inbox.Set(float64(len(l.inbox)))
	reply := l.describe()
	m.buckets.Set(float64(reply.Buckets))
	m.gangs.WithLabelValues("known").Set(float64(reply.GangsTotal))
	m.gangs.WithLabelValues("waiting").Set(float64(len(reply.Gangs)))
	m.intents.Set(float64(reply.Intents))
	if s := reply.Summary; s != nil {
		m.nodes.WithLabelValues("owned").Set(float64(s.Nodes))
		m.nodes.WithLabelValues("out_of_sync").Set(float64(s.OutOfSync))
		for _, a := range s.Free {
			m.free.WithLabelValues(a.Resource).Set(float64(a.Value))
		}
	}
}
