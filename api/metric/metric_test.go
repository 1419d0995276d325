package metric

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
)

var rewrite = flag.Bool("rewrite", false, "write deploy/docs/metrics.md")

const page = "../../deploy/docs/metrics.md"

// The page is what the declarations say.
func TestMarkdown(t *testing.T) {
	if *rewrite {
		if err := os.WriteFile(page, []byte(Markdown()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	is, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(is, []byte(Markdown())) {
		t.Errorf("%s is out of date; run go test ./api/metric -rewrite", page)
	}
}

// Every declaration is a valid metric of its own that promlint has nothing to say about.
func TestDeclarations(t *testing.T) {
	r := prometheus.NewRegistry()
	seen := map[string]bool{}
	for _, s := range Sections() {
		if len(s.Metrics) == 0 {
			t.Errorf("%s is empty", s.Title)
		}
		for _, m := range s.Metrics {
			if seen[m.Name] {
				t.Errorf("%s is declared twice", m.Name)
			}
			seen[m.Name] = true
			if !strings.HasPrefix(m.Name, "basalt_") || !strings.HasSuffix(m.Help, ".") || (m.Kind == Histogram) != (len(m.Buckets) > 0) {
				t.Errorf("%+v", m)
			}
			labels := make([]string, len(m.Labels))
			for i := range labels {
				labels[i] = "x"
			}
			switch m.Kind {
			case Counter:
				c := m.Counters()
				r.MustRegister(c)
				c.WithLabelValues(labels...)
			case Gauge:
				g := m.Gauges()
				r.MustRegister(g)
				g.WithLabelValues(labels...)
			case Histogram:
				h := m.Histograms()
				r.MustRegister(h)
				h.WithLabelValues(labels...)
			default:
				t.Errorf("%s is a %q", m.Name, m.Kind)
			}
		}
	}
	if len(seen) < 50 {
		t.Errorf("%d metrics are declared", len(seen))
	}
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	if len(families) != len(seen) {
		t.Errorf("%d metrics of %d can be scraped", len(families), len(seen))
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

// Amounts are shown in base units.
func TestUnitOf(t *testing.T) {
	for resource, want := range map[string]string{"cpu": "core", "memory": "byte", "ephemeral-storage": "byte", "hugepages-2Mi": "byte", "pods": "integer", "nvidia.com/gpu": "integer"} {
		if unit, divisor := UnitOf(resource); unit != want || (divisor == 1000) != (resource == "cpu") {
			t.Errorf("%s: %s, %g", resource, unit, divisor)
		}
	}
}

// No metric is made but by a declaration.
func TestNoOthers(t *testing.T) {
	made := regexp.MustCompile(`prometheus\.(New(Counter|Gauge|Histogram|Summary)(Vec|Func)?|NewDesc|(Counter|Gauge|Histogram|Summary)Opts)\b`)
	for _, folder := range []string{"../../shard", "../../coordinator", "..", "../../cmd"} {
		files := os.DirFS(folder)
		walk(t, files, func(file string, text []byte) {
			if !strings.HasPrefix(file, "metric/") && !strings.HasSuffix(file, "_test.go") && made.Match(text) {
				t.Errorf("%s/%s makes a metric that package metric does not declare", folder, file)
			}
		})
	}
}

func walk(t *testing.T, files fs.FS, visit func(file string, text []byte)) {
	t.Helper()
	seen := 0
	err := fs.WalkDir(files, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") {
			return err
		}
		text, err := fs.ReadFile(files, file)
		seen++
		visit(file, text)
		return err
	})
	if err != nil || seen == 0 {
		t.Fatalf("%d files, %v", seen, err)
	}
}
