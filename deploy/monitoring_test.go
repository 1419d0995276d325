package deploy_test

import (
	"strings"
	"testing"
)

// The component for the Prometheus Operator adds alerts, a PodMonitor and the dashboards. What they say, monitoring/check tests.
func TestMonitoringComponent(t *testing.T) {
	with := render(t, "resources: [deploy]\ncomponents: [deploy/monitoring]\n")
	for text, n := range map[string]int{"kind: PodMonitor\n": 1, "kind: PrometheusRule\n": 1, "grafana_dashboard: \"1\"\n": 1, ".json: |\n": 4, "name: basalt-dashboards\n": 1} {
		if got := strings.Count(with, text); got != n {
			t.Errorf("%q is there %d times, want %d", text, got, n)
		}
	}
}
