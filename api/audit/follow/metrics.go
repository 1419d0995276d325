package follow

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/metric"
)

// metrics are read from the auditor when they are asked for. Package metric declares them.
type metrics struct{ auditor *Auditor }

var (
	violations = metric.AuditViolations.Desc()
	standing   = metric.AuditStanding.Desc()
	current    = metric.AuditCurrent.Desc()
	revision   = metric.AuditRevision.Desc()
	behind     = metric.AuditBehind.Desc()
	blind      = metric.AuditBlind.Desc()
	gaps       = metric.AuditGaps.Desc()
	relisted   = metric.AuditRelists.Desc()
	pods       = metric.AuditPods.Desc()
	gangs      = metric.AuditGangs.Desc()
	intents    = metric.AuditIntents.Desc()
)

func newMetrics(a *Auditor) *metrics { return &metrics{auditor: a} }

func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{violations, standing, current, revision, behind, blind, gaps, relisted, pods, gangs, intents} {
		out <- d
	}
}

func (m *metrics) Collect(out chan<- prometheus.Metric) {
	a := m.auditor
	a.mu.Lock()
	r, s := a.judge.Report(), a.sight
	relists := map[string]int{}
	for k, v := range s.relists {
		relists[k] = v
	}
	a.mu.Unlock()
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, v, labels...)
	}
	for _, k := range audit.Kinds {
		counter(violations, float64(r.Counts[k]), string(k))
	}
	for what, n := range r.Standing {
		kind, what, _ := strings.Cut(what, ": ")
		gauge(standing, float64(n), kind, what)
	}
	gauge(revision, float64(r.Revision))
	gauge(behind, float64(max(0, s.newest-s.revision)))
	if !s.store.IsZero() {
		gauge(current, float64(s.store.UnixMilli())/1000)
	}
	counter(blind, s.Blind.Seconds())
	counter(gaps, float64(s.Gaps))
	for resource, n := range relists {
		counter(relisted, float64(n), resource)
	}
	gauge(pods, float64(r.Pods))
	gauge(gangs, float64(r.Gangs))
	gauge(intents, float64(r.Intents))
}
