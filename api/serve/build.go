package serve

import (
	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api/build"
	"basalt.dev/basalt/api/metric"
)

// buildInfo is a gauge of 1 whose labels say what was built.
func buildInfo() prometheus.Collector {
	v := build.Current()
	g := metric.BuildInfo.Gauges()
	g.WithLabelValues(v.Tag, v.Commit, v.Go).Set(1)
	return g
}
