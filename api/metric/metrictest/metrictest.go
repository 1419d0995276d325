// Package metrictest reads metrics in tests.
package metrictest

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Samples reads all series of a metric, by the values of their labels, each followed by a space: of a histogram how often it observed
// something.
func Samples(t *testing.T, r *prometheus.Registry, name string) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			labels := ""
			for _, l := range m.Label {
				labels += l.GetValue() + " "
			}
			if f.GetName() == name {
				out[labels] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return out
}
