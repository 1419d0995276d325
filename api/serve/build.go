package serve

import (
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api/metric"
)

// buildInfo is a gauge of 1 whose labels say what was built.
func buildInfo() prometheus.Collector {
	version, revision, goVersion := "unknown", "unknown", "unknown"
	if b, ok := debug.ReadBuildInfo(); ok {
		version, goVersion = b.Main.Version, b.GoVersion
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				revision = s.Value
			}
		}
	}
	g := metric.BuildInfo.Gauges()
	g.WithLabelValues(version, revision, goVersion).Set(1)
	return g
}
