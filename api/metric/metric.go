// Package metric declares every metric of Basalt: its name, kind, labels, buckets, and what it says. Each process makes its collectors
// from these declarations, and deploy/docs/metrics.md is generated from them, so that code and documentation cannot differ.
//
// Rules:
//   - Names follow Prometheus' conventions: base units, the unit at the end, _total for what only grows.
//   - One name has one unit. Where one name covers several resources, a label names the unit, as in kube-state-metrics (see UnitOf).
//   - The values of a label never overlap, so sum() counts nothing twice. The exception are the metrics of queues: a queue includes
//     all below it, as in its status.
//   - No label has the name of a pod, a gang, a node or a user, nor a value that a tenant can make up, but names of queues.
package metric

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind of a metric.
type Kind string

// Kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Metric is one declaration.
type Metric struct {
	Name    string
	Kind    Kind
	Labels  []string
	Buckets []float64 // of a histogram
	Help    string
	Absent  string // in which case there is no series of it; empty: there always is one
	Was     string // what replaced metrics were called
}

// Section holds the metrics of one kind of process, or of one subject.
type Section struct {
	Title   string
	Metrics []Metric
}

var sections []Section

// Sections returns all declarations, in the order of the documentation.
func Sections() []Section { return sections }

// section begins one; those declared below it belong to it.
func section(title string) struct{} {
	sections = append(sections, Section{Title: title})
	return struct{}{}
}

func declare(m Metric) Metric {
	s := &sections[len(sections)-1]
	s.Metrics = append(s.Metrics, m)
	return m
}

// Desc returns what a collector of its own describes itself with.
func (m Metric) Desc() *prometheus.Desc { return prometheus.NewDesc(m.Name, m.Help, m.Labels, nil) }

// Counter makes a counter without labels.
func (m Metric) Counter() prometheus.Counter {
	return prometheus.NewCounter(prometheus.CounterOpts{Name: m.Name, Help: m.Help})
}

// Counters makes a counter with labels.
func (m Metric) Counters() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

// Gauge makes a gauge without labels.
func (m Metric) Gauge() prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: m.Name, Help: m.Help})
}

// GaugeFunc makes a gauge that is read when it is scraped.
func (m Metric) GaugeFunc(read func() float64) prometheus.GaugeFunc {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, read)
}

// Gauges makes a gauge with labels.
func (m Metric) Gauges() *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: m.Name, Help: m.Help}, m.Labels)
}

// Histogram makes a histogram without labels.
func (m Metric) Histogram() prometheus.Histogram {
	return prometheus.NewHistogram(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: m.Buckets})
}

// Histograms makes a histogram with labels.
func (m Metric) Histograms() *prometheus.HistogramVec {
	return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: m.Name, Help: m.Help, Buckets: m.Buckets}, m.Labels)
}

// UnitOf returns the label unit of a resource, and by how much an amount of Basalt's is to be divided to be in that unit: cores count
// in thousandths.
func UnitOf(resource string) (unit string, divisor float64) {
	switch {
	case resource == "cpu":
		return "core", 1000
	case resource == "memory", resource == "ephemeral-storage", strings.HasPrefix(resource, "hugepages-"):
		return "byte", 1
	}
	return "integer", 1
}

// Set sets a gauge with the labels resource and unit, the last of its labels, to an amount of Basalt's.
func Set(g *prometheus.GaugeVec, resource string, amount int64) {
	unit, divisor := UnitOf(resource)
	g.WithLabelValues(resource, unit).Set(float64(amount) / divisor)
}

// SecondsSince returns how long ago something began, for a gauge: 0 if it did not, or is yet to.
func SecondsSince(began time.Time) float64 {
	if began.IsZero() {
		return 0
	}
	return max(0, time.Since(began).Seconds())
}
