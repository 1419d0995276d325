package server

import (
	"reflect"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// metrics of a shard. Names follow Prometheus' conventions; units are in the names.
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
	foreignBindings  prometheus.Counter
	buckets          prometheus.Gauge
	gangs            *prometheus.GaugeVec
	nodes            *prometheus.GaugeVec
	free             *prometheus.GaugeVec
	intents          prometheus.Gauge
	observed         time.Time
	boundByOthers    uint64 // as they were then
}

type messageKey struct {
	body reflect.Type
	to   string
}

func newMetrics(r prometheus.Registerer) *metrics {
	m := &metrics{
		steps:            prometheus.NewHistogram(prometheus.HistogramOpts{Name: "basalt_shard_step_seconds", Help: "Time that the cores took for one batch: a single event, or several events of a watch.", Buckets: prometheus.ExponentialBuckets(1e-6, 4, 12)}),
		inbox:            prometheus.NewGauge(prometheus.GaugeOpts{Name: "basalt_shard_inbox_events", Help: "Events queued for the cores."}),
		bindings:         prometheus.NewCounterVec(prometheus.CounterOpts{Name: "basalt_shard_bindings_total", Help: "Bindings sent, by the API server's response."}, []string{"answer"}),
		writes:           prometheus.NewCounterVec(prometheus.CounterOpts{Name: "basalt_shard_api_writes_total", Help: "Other writes to the API server, by kind and outcome."}, []string{"kind", "outcome"}),
		transactions:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "basalt_shard_transactions_total", Help: "Transactions on the control store, by kind and whether they were accepted."}, []string{"kind", "accepted"}),
		messages:         map[messageKey]prometheus.Counter{},
		messageKinds:     prometheus.NewCounterVec(prometheus.CounterOpts{Name: "basalt_shard_messages_total", Help: "Messages sent, by type and receiver: this shard itself, another shard, the coordinator."}, []string{"kind", "to"}),
		holds:            prometheus.NewCounterVec(prometheus.CounterOpts{Name: "basalt_shard_holds_total", Help: "Pods for which a hold was requested here, by outcome: held, refused, or lost (expired, or taken by an older gang)."}, []string{"outcome"}),
		commits:          prometheus.NewCounterVec(prometheus.CounterOpts{Name: "basalt_shard_commits_total", Help: "Commits answered, by outcome."}, []string{"outcome"}),
		brokenInvariants: prometheus.NewCounter(prometheus.CounterOpts{Name: "basalt_shard_broken_invariants_total", Help: "Broken invariants of Basalt's own; each is logged at error level. Anything above 0 is a bug."}),
		foreignBindings:  prometheus.NewCounter(prometheus.CounterOpts{Name: "basalt_shard_foreign_bindings_total", Help: "Pods that somebody else bound although Basalt was to place them: another scheduler serves a name of Basalt's."}),
		buckets:          prometheus.NewGauge(prometheus.GaugeOpts{Name: "basalt_shard_buckets", Help: "Buckets owned."}),
		gangs:            prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "basalt_shard_gangs", Help: "Gangs known, and how many of them are waiting."}, []string{"state"}),
		nodes:            prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "basalt_shard_nodes", Help: "Nodes owned, and how many of them are out of sync: more is in use than allocatable."}, []string{"state"}),
		free:             prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "basalt_shard_free", Help: "Free capacity of the nodes owned: milli-cores, bytes, units."}, []string{"resource"}),
		intents:          prometheus.NewGauge(prometheus.GaugeOpts{Name: "basalt_shard_intents", Help: "Intents whose outcome is not resolved."}),
	}
	m.held, m.refused, m.lost = m.holds.WithLabelValues("held"), m.holds.WithLabelValues("refused"), m.holds.WithLabelValues("lost")
	r.MustRegister(m.steps, m.inbox, m.bindings, m.writes, m.transactions, m.messageKinds, m.holds, m.commits, m.brokenInvariants, m.foreignBindings, m.buckets, m.gangs, m.nodes, m.free, m.intents)
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

// observe copies the cores' sums, once a second. It runs on the loop's goroutine.
func (m *metrics) observe(l *loop) {
	if time.Since(m.observed) < time.Second {
		return
	}
	m.observed = time.Now()
	m.inbox.Set(float64(len(l.inbox)))
	n := l.home.Counts()
	m.foreignBindings.Add(float64(l.home.BoundByOthers - m.boundByOthers))
	m.boundByOthers = l.home.BoundByOthers
	m.buckets.Set(float64(n.Buckets))
	m.gangs.WithLabelValues("known").Set(float64(n.Gangs))
	m.gangs.WithLabelValues("waiting").Set(float64(n.Waiting))
	m.intents.Set(float64(l.node.Stats().Rows))
	if s := l.node.Summary(); s != nil {
		m.nodes.WithLabelValues("owned").Set(float64(s.Nodes))
		m.nodes.WithLabelValues("out_of_sync").Set(float64(s.OutOfSync))
		for _, a := range s.Free {
			m.free.WithLabelValues(a.Resource).Set(float64(a.Value))
		}
	}
}
