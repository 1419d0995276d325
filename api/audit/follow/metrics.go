package follow

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api/audit"
)

// metrics are read from the auditor when they are asked for.
type metrics struct {
	auditor    *Auditor
	violations *prometheus.Desc
	standing   *prometheus.Desc
	revision   *prometheus.Desc
	behind     *prometheus.Desc
	age        *prometheus.Desc
	blind      *prometheus.Desc
	gaps       *prometheus.Desc
	relists    *prometheus.Desc
	known      *prometheus.Desc
}

func newMetrics(a *Auditor) *metrics {
	d := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("basalt_audit_"+name, help, labels, nil)
	}
	return &metrics{
		auditor:    a,
		violations: d("violations", "Objects that an invariant was broken for since the auditor began, by kind. Alert on any above 0.", "kind"),
		standing:   d("standing", "Of what is wrong only when it lasts (leaks, overcommitment, partial gangs), what still is.", "kind", "what"),
		revision:   d("revision", "Newest revision of the control store that was judged."),
		behind:     d("behind_revisions", "Revisions of the control store that were not judged yet."),
		age:        d("seconds_since_current", "Seconds since the auditor was last known to have judged all that the control store holds. Alert when it grows."),
		blind:      d("blind_seconds_total", "Seconds without sight of the control store or of the API server: nothing that lasts is judged then."),
		gaps:       d("gaps_total", "Times that revisions of the control store were missed: compacted, or another store."),
		relists:    d("relists_total", "Lists of a kind of the API server.", "resource"),
		known:      d("known", "Pods, gangs and intent records that are known now.", "what"),
	}
}

func (m *metrics) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.violations, m.standing, m.revision, m.behind, m.age, m.blind, m.gaps, m.relists, m.known} {
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
		gauge(m.violations, float64(r.Counts[k]), string(k))
	}
	for what, n := range r.Standing {
		kind, what, _ := strings.Cut(what, ": ")
		gauge(m.standing, float64(n), kind, what)
	}
	gauge(m.revision, float64(r.Revision))
	gauge(m.behind, float64(max(0, s.newest-max(r.Revision, s.revision))))
	if !s.store.IsZero() {
		gauge(m.age, time.Since(s.store).Seconds())
	}
	counter(m.blind, s.Blind.Seconds())
	counter(m.gaps, float64(s.Gaps))
	for resource, n := range relists {
		counter(m.relists, float64(n), resource)
	}
	gauge(m.known, float64(r.Pods), "pods")
	gauge(m.known, float64(r.Gangs), "gangs")
	gauge(m.known, float64(r.Intents), "intents")
}
