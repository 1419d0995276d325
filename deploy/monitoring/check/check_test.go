package check

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
	"sigs.k8s.io/yaml"

	"basalt.dev/basalt/api/metric"
)

// TestMain works in the repository's root, where programs are built and manifests lie.
func TestMain(m *testing.M) {
	if err := os.Chdir("../../.."); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const monitoring = "deploy/monitoring/"

// seriesAtMost is how many series 500 queues may make.
const seriesAtMost = 20000

// declared are Basalt's metrics by name.
func declared() map[string]metric.Metric {
	out := map[string]metric.Metric{}
	for _, s := range metric.Sections() {
		for _, m := range s.Metrics {
			out[m.Name] = m
		}
	}
	return out
}

// What real processes show is what is declared, promlint finds nothing to say about it, and it is not much. Every query of a dashboard
// returns something, and no alert fires but those that must.
func TestScrapes(t *testing.T) {
	s := newStage(t)
	s.scrape()
	s.load()
	s.scrape()
	s.failover()
	s.until("the metrics to be those of a cluster at rest", func(context.Context) error {
		if err := s.try(); err != nil {
			return err
		}
		shards, peers, behind := s.sum("basalt_coordinator_shards"), s.sum("basalt_gossip_peers"), s.sum("basalt_audit_behind_revisions")
		if epochs := s.sum("basalt_shard_table_epoch"); shards != 3 || peers != 20 || behind != 0 || epochs != 3*s.sum("basalt_coordinator_table_epoch") {
			return fmt.Errorf("%g shards, %g peers, %g revisions behind, epochs add up to %g", shards, peers, behind, epochs)
		}
		return nil
	})
	s.pictures()

	t.Run("declared", func(t *testing.T) { checkDeclared(t, s.last()) })
	t.Run("promlint", func(t *testing.T) { lint(t, s.last()) })
	t.Run("series", func(t *testing.T) { countSeries(t, s.last()) })
	store := newStore(t)
	for _, x := range s.scrapes {
		store.add(x)
	}
	shown := names(s.last())
	t.Run("dashboards", func(t *testing.T) { checkDashboards(t, store, shown, s.last().at) })
	t.Run("alerts", func(t *testing.T) {
		for _, rule := range alerts(t) {
			result := store.query(t, rule.Expr, s.last().at)
			expected := rule.Alert == "BasaltTargetDown" // the store has no series up
			if len(result) != 0 && !expected {
				t.Errorf("%s fires: %v", rule.Alert, result)
			}
		}
	})
}

func checkDeclared(t *testing.T, s scrape) {
	all, seen := declared(), map[string]bool{}
	for pod, families := range s.families {
		for _, f := range families {
			name := f.GetName()
			if !strings.HasPrefix(name, "basalt_") {
				continue
			}
			m, known := all[name]
			if !known {
				t.Errorf("%s shows %s, which is not declared", pod, name)
				continue
			}
			seen[name] = true
			if kind := strings.ToLower(f.GetType().String()); kind != string(m.Kind) || f.GetHelp() != m.Help {
				t.Errorf("%s shows %s as a %s: %s", pod, name, kind, f.GetHelp())
			}
			for _, one := range f.Metric {
				var labels []string
				for _, l := range one.Label {
					labels = append(labels, l.GetName())
				}
				if want := slices.Sorted(slices.Values(m.Labels)); !slices.Equal(labels, want) {
					t.Errorf("%s shows %s with the labels %v, not %v", pod, name, labels, want)
				}
			}
		}
	}
	for name, m := range all {
		if !seen[name] && m.Absent == "" {
			t.Errorf("no process shows %s", name)
		}
	}
	t.Logf("%d of %d declared metrics are shown", len(seen), len(all))
}

func lint(t *testing.T, s scrape) {
	for pod, text := range s.text {
		problems, err := promlint.New(bytes.NewReader(text)).Lint()
		if err != nil {
			t.Error(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s: %s", pod, p.Metric, p.Text)
		}
	}
}

func countSeries(t *testing.T, s scrape) {
	total, byName := 0, map[string]int{}
	for _, families := range s.families {
		for _, f := range families {
			for _, m := range f.Metric {
				n := len(samples(f, m))
				total += n
				byName[f.GetName()] += n
			}
		}
	}
	queues := byName["basalt_queue_admitted_gangs"]
	t.Logf("%d series of %d processes with %d queues; of the most: %s", total, len(s.families), queues, most(byName, 8))
	if queues < 500 {
		t.Errorf("there are only %d queues", queues)
	}
	if total >= seriesAtMost {
		t.Errorf("%d series are too many", total)
	}
}

func most(byName map[string]int, n int) string {
	var list []string
	for name := range byName {
		list = append(list, name)
	}
	slices.SortFunc(list, func(a, b string) int { return byName[b] - byName[a] })
	var out []string
	for _, name := range list[:min(n, len(list))] {
		out = append(out, fmt.Sprintf("%s %d", name, byName[name]))
	}
	return strings.Join(out, ", ")
}

// sample is one line of a scrape.
type sample struct {
	name   string
	labels map[string]string
	value  float64
}

func samples(f *dto.MetricFamily, m *dto.Metric) (out []sample) {
	add := func(suffix string, v float64, more ...string) {
		l := map[string]string{}
		for _, p := range m.Label {
			l[p.GetName()] = p.GetValue()
		}
		for i := 0; i+1 < len(more); i += 2 {
			l[more[i]] = more[i+1]
		}
		out = append(out, sample{f.GetName() + suffix, l, v})
	}
	switch {
	case m.Histogram != nil:
		for _, b := range m.Histogram.Bucket {
			add("_bucket", float64(b.GetCumulativeCount()), "le", fmt.Sprint(b.GetUpperBound()))
		}
		add("_sum", m.Histogram.GetSampleSum())
		add("_count", float64(m.Histogram.GetSampleCount()))
	case m.Summary != nil:
		for _, q := range m.Summary.Quantile {
			add("", q.GetValue(), "quantile", fmt.Sprint(q.GetQuantile()))
		}
		add("_sum", m.Summary.GetSampleSum())
		add("_count", float64(m.Summary.GetSampleCount()))
	default:
		add("", m.GetCounter().GetValue()+m.GetGauge().GetValue()+m.GetUntyped().GetValue())
	}
	return out
}

// names are the names of all series of a scrape.
func names(s scrape) map[string]bool {
	out := map[string]bool{}
	for _, families := range s.families {
		for _, f := range families {
			for _, m := range f.Metric {
				for _, one := range samples(f, m) {
					out[one.name] = true
				}
			}
		}
	}
	return out
}

// store is a Prometheus without its server.
type store struct {
	t      *testing.T
	db     *tsdb.DB
	engine *promql.Engine
	series map[string]map[string]labels.Labels // that a pod showed last
}

func newStore(t *testing.T) *store {
	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 10_000_000, Timeout: time.Minute,
		Parser: parser.NewParser(parser.Options{})})
	return &store{t, db, engine, map[string]map[string]labels.Labels{}}
}

// add appends a scrape with the labels that the PodMonitor gives it. What a pod does not show any more ends, as in
// Prometheus.
func (s *store) add(x scrape) {
	s.t.Helper()
	a := s.db.Appender(s.t.Context())
	for pod, families := range x.families {
		shown := map[string]labels.Labels{}
		for _, f := range families {
			for _, m := range f.Metric {
				for _, one := range samples(f, m) {
					one.labels["__name__"], one.labels["pod"], one.labels["namespace"], one.labels["job"] = one.name, pod, "basalt-system", "basalt-system/basalt"
					series := labels.FromMap(one.labels)
					if _, err := a.Append(0, series, x.at.UnixMilli(), one.value); err != nil {
						s.t.Fatal(err)
					}
					shown[series.String()] = series
				}
			}
		}
		for name, series := range s.series[pod] {
			if _, is := shown[name]; !is {
				if _, err := a.Append(0, series, x.at.UnixMilli(), math.Float64frombits(value.StaleNaN)); err != nil {
					s.t.Fatal(err)
				}
			}
		}
		s.series[pod] = shown
	}
	if err := a.Commit(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *store) query(t *testing.T, expr string, at time.Time) promql.Vector {
	t.Helper()
	q, err := s.engine.NewInstantQuery(t.Context(), s.db, nil, expr, at)
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return nil
	}
	defer q.Close()
	r := q.Exec(t.Context())
	v, err := r.Vector()
	if err != nil {
		t.Errorf("%s: %v", expr, err)
	}
	return slices.Clone(v)
}

// dashboard is what this test reads of a dashboard.
type dashboard struct {
	Title      string
	UID        string
	Panels     []panel
	Templating struct{ List []variable }
}

type variable struct {
	Name, Type, Definition string
	Current                struct{ Value string }
}

type panel struct {
	ID         int
	Type       string
	Title      string
	Datasource struct{ Type string }
	Targets    []struct{ Expr, LegendFormat string }

	// What only a picture needs.
	Description string
	GridPos     struct{ H, W, X, Y int }
	Options     struct {
		Content string
		SortBy  []struct{ DisplayName string }
	}
	FieldConfig struct {
		Defaults struct {
			Unit       string
			Custom     struct{ Stacking struct{ Mode string } }
			Thresholds struct{ Steps []threshold }
		}
		Overrides []struct {
			Matcher    struct{ Options string }
			Properties []struct{ Value string }
		}
	}
}

// threshold gives a value a colour from Value on, or from the least on.
type threshold struct {
	Color string
	Value *float64
}

func dashboards(t *testing.T) []dashboard {
	t.Helper()
	files, err := filepath.Glob(monitoring + "dashboards/*.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d dashboards, %v", len(files), err)
	}
	var out []dashboard
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(text, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out = append(out, d)
	}
	return out
}

// expand puts in what Grafana puts in for variables: all values, or those that a dashboard shows first.
func expand(d dashboard, expr, window string, first bool) string {
	expr = strings.ReplaceAll(expr, "$__rate_interval", window)
	for _, v := range d.Templating.List {
		chosen := v.Current.Value
		if !first || chosen == "$__all" {
			chosen = ".*"
		}
		expr = strings.ReplaceAll(expr, "$"+v.Name, chosen)
	}
	return expr
}

func checkDashboards(t *testing.T, store *store, shown map[string]bool, at time.Time) {
	queries := 0
	for _, d := range dashboards(t) {
		for _, v := range d.Templating.List {
			if m := regexp.MustCompile(`^label_values\((\w+), (\w+)\)$`).FindStringSubmatch(v.Definition); v.Type == "query" && (m == nil ||
				len(store.query(t, fmt.Sprintf(`count by (%s) (%s{%s!=""})`, m[2], m[1], m[2]), at)) < 2) {
				t.Errorf("%s: variable %s has no values: %s", d.Title, v.Name, v.Definition)
			}
		}
		for _, p := range d.Panels {
			for _, q := range p.Targets {
				if p.Datasource.Type != "prometheus" {
					continue
				}
				queries++
				expr := expand(d, q.Expr, "1h", false)
				if strings.Contains(expr, "$") {
					t.Errorf("%s, %s: a variable is not defined: %s", d.Title, p.Title, q.Expr)
				}
				absent := known(t, d.Title+", "+p.Title, expr, shown)
				result := store.query(t, expr, at)
				some := false
				for _, r := range result {
					some = some || !math.IsNaN(r.F)
					for _, l := range regexp.MustCompile(`\{\{(\w+)\}\}`).FindAllStringSubmatch(q.LegendFormat, -1) {
						if r.Metric.Get(l[1]) == "" {
							t.Errorf("%s, %s: the legend %s names a label that %s does not have", d.Title, p.Title, q.LegendFormat, r.Metric)
						}
					}
				}
				if !some && !absent {
					t.Errorf("%s, %s: no data: %s: %v", d.Title, p.Title, expr, result)
				}
			}
		}
	}
	t.Logf("%d queries of dashboards", queries)
}

// ofAPIServer is a metric of the API server. Its test is TestAggregated in bench/prove/visibility.
const ofAPIServer = "aggregator_unavailable_apiservice"

// known checks the metrics of an expression: each is in the scrape, or is one of Basalt's that is absent for a while. It reports
// whether one is absent.
func known(t *testing.T, where, expr string, shown map[string]bool) (absent bool) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %s: %v", where, expr, err)
		return false
	}
	all := declared()
	parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
		if v, is := n.(*parser.VectorSelector); is && !shown[v.Name] && v.Name != "up" && v.Name != ofAPIServer {
			m, known := all[v.Name]
			if !known || m.Absent == "" {
				t.Errorf("%s: there is no metric %s", where, v.Name)
			}
			absent = true
		}
		return nil
	})
	return absent
}

func rules(t *testing.T) *monitoringv1.PrometheusRule {
	t.Helper()
	var out monitoringv1.PrometheusRule
	text, err := os.ReadFile(monitoring + "rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		t.Fatal(err)
	}
	return &out
}

func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	spec, err := yaml.Marshal(rules(t).Spec)
	if err != nil {
		t.Fatal(err)
	}
	groups, errs := rulefmt.Parse(spec, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var out []rulefmt.Rule
	for _, g := range groups.Groups {
		out = append(out, g.Rules...)
	}
	if len(out) < 10 {
		t.Fatalf("%d alerts", len(out))
	}
	return out
}

// PodMonitors select pods that deploy has, at a port that they have.
func TestPodMonitor(t *testing.T) {
	var m, store monitoringv1.PodMonitor
	text, err := os.ReadFile(monitoring + "podmonitor.yaml")
	if err != nil {
		t.Fatal(err)
	}
	processes, members, _ := strings.Cut(string(text), "\n---\n")
	if err := yaml.UnmarshalStrict([]byte(processes), &m); err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict([]byte(members), &store); err != nil {
		t.Fatal(err)
	}
	text, err = os.ReadFile("deploy/etcd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	app, port := store.Spec.Selector.MatchLabels["app.kubernetes.io/name"], *store.Spec.PodMetricsEndpoints[0].Port
	if !bytes.Contains(text, []byte("app.kubernetes.io/name: "+app+"}")) ||
		!bytes.Contains(text, []byte("- {name: "+port+", containerPort: 2381}")) || store.Namespace != "basalt-system" {
		t.Errorf("nothing is scraped of the control store: %+v", store.Spec)
	}
	for _, app := range m.Spec.Selector.MatchExpressions[0].Values {
		found := 0
		files, _ := filepath.Glob("deploy/*.yaml")
		for _, file := range files {
			text, _ := os.ReadFile(file)
			if bytes.Contains(text, []byte("app.kubernetes.io/name: "+app+"}")) && bytes.Contains(text, []byte("- {name: "+*m.Spec.PodMetricsEndpoints[0].Port+", containerPort: 7602}")) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%d manifests have pods of %s", found, app)
		}
	}
	if auth := m.Spec.PodMetricsEndpoints[0].Authorization; auth == nil || auth.Credentials.Name != "basalt-metrics-token" || m.Namespace != "basalt-system" {
		t.Errorf("%+v", m.Spec)
	}
}

// Each alert fires on the series beside it, and its words name labels that the result has.
func TestAlertsFire(t *testing.T) {
	fire := map[string][]string{
		"BasaltTargetDown":             {`up{job="basalt-system/basalt",pod="p"} 0x30`},
		"BasaltNoLeader":               {`basalt_coordinator_leading{pod="p"} 0x30`},
		"BasaltLeaderChangesOften":     {`basalt_coordinator_terms_total{pod="p"} 0+1x30`},
		"BasaltBucketsWithoutOwner":    {`basalt_shard_buckets{pod="p"} 1023x30`},
		"BasaltTableNotFollowed":       {`basalt_coordinator_table_epoch{pod="c"} 7x30`, `basalt_shard_table_epoch{pod="p"} 6x30`, `basalt_shard_table_epoch{pod="q"} 7x30`},
		"BasaltInvariantBroken":        {`basalt_coordinator_broken_invariants_total{pod="p"} 0x25 1x5`},
		"BasaltAuditViolation":         {`basalt_audit_violations_total{pod="p",kind="quota"} 1x30`},
		"BasaltAuditBlind":             {`basalt_audit_current_timestamp_seconds{pod="p"} 60x30`},
		"BasaltWatchStale":             {`basalt_watch_progress_timestamp_seconds{pod="p",resource="pods"} 60x30`, `basalt_watch_progress_timestamp_seconds{pod="q",resource="pods"} 0+60x30`},
		"BasaltObjectsUnreadable":      {`basalt_watch_unreadable_objects_total{pod="p",resource="pods"} 0x25 1x5`},
		"BasaltShardOverloaded":        {`basalt_shard_inbox_events{pod="p"} 4000x30`},
		"BasaltAPIServerThrottles":     {`basalt_kube_requests_total{pod="p",code="429"} 0+600x30`},
		"BasaltControlStoreRefuses":    {`basalt_control_store_refusals_total{pod="p",reason="no_space"} 0x28 1x2`},
		"BasaltControlStoreErrors":     {`basalt_control_store_requests_total{pod="p",code="OK"} 0+100x30`, `basalt_control_store_requests_total{pod="p",code="Unavailable"} 0+10x30`},
		"BasaltControlStoreNearlyFull": {`basalt_control_store_size_bytes{pod="p",endpoint="e"} 90x30`, `basalt_control_store_quota_bytes{pod="p",endpoint="e"} 100x30`},
		"BasaltNodesOutOfSync":         {`basalt_shard_nodes{pod="p",state="out_of_sync"} 1x30`},
		"BasaltBoundByOthers":          {`basalt_shard_foreign_bindings_total{pod="p"} 0x28 1x2`},
		"BasaltCertificateExpires": {
			`basalt_certificate_expiry_timestamp_seconds{pod="p",certificate="process"} 1000000+0x30`,
			`basalt_certificate_expiry_timestamp_seconds{pod="p",certificate="basalt-ca"} 2000000+0x30`},
		"BasaltCertsFails": {`basalt_certs_check_timestamp_seconds{pod="p"} -20000+0x30`},
		"BasaltDeservedNotHad": {
			`basalt_queue_deserved_wait_seconds{pod="p",queue="a"} 3000+60x30`,
			`basalt_queue_deserved_wait_seconds{pod="p",queue="b"} 0x30`},
		"BasaltStepTakesLong": {
			`basalt_shard_step_duration_seconds_count{pod="p"} 0+10x30`,
			`basalt_shard_step_duration_seconds_bucket{pod="p",le="1"} 0+9x30`,
			`basalt_coordinator_step_duration_seconds_count{pod="q"} 0+10x30`,
			`basalt_coordinator_step_duration_seconds_bucket{pod="q",le="1.0"} 0+10x30`},
		"BasaltGangsWaitLong": {
			`basalt_shard_oldest_wait_seconds{pod="p",reason="QuotaExceeded"} 86000+60x30`,
			`basalt_shard_oldest_wait_seconds{pod="p",reason="Unschedulable"} 0x30`},
		"BasaltQuestionsNotForwarded": {
			`aggregator_unavailable_apiservice{name="v1beta1.visibility.basalt.dev"} 1x30`,
			`aggregator_unavailable_apiservice{name="v1beta1.metrics.k8s.io"} 1x30`},
	}
	all := alerts(t)
	if len(all) != len(fire) {
		t.Errorf("%d alerts, %d are tested", len(all), len(fire))
	}
	for _, rule := range all {
		store, p := newStore(t), parser.NewParser(parser.Options{})
		a := store.db.Appender(t.Context())
		for _, line := range fire[rule.Alert] {
			series, values, err := p.ParseSeriesDesc(line)
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			for i, v := range values {
				if _, err := a.Append(0, series, int64(i)*60_000, v.Value); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := a.Commit(); err != nil {
			t.Fatal(err)
		}
		result := store.query(t, rule.Expr, time.UnixMilli(30*60_000))
		if len(result) != 1 {
			t.Errorf("%s fires for %d series: %v", rule.Alert, len(result), result)
			continue
		}
		for _, label := range regexp.MustCompile(`\$labels\.(\w+)`).FindAllStringSubmatch(rule.Annotations["summary"], -1) {
			if result[0].Metric.Get(label[1]) == "" {
				t.Errorf("%s: the summary names the label %s of %s", rule.Alert, label[1], result[0].Metric)
			}
		}
	}
}

// Each alert has its section in operate.md, and every metric that alerts, pages and manifests name is there.
func TestDocumentation(t *testing.T) {
	page, err := os.ReadFile("deploy/docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	var sections []string
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)\n(\w+),`).FindAllStringSubmatch(string(page), -1) {
		sections = append(sections, m[1]+" "+strings.ToLower(m[2]))
	}
	var is []string
	for _, rule := range alerts(t) {
		is = append(is, rule.Alert+" "+rule.Labels["severity"])
		want := "https://basalt.dev/docs/operate#" + strings.ToLower(rule.Alert)
		if rule.Annotations["runbook_url"] != want || rule.Annotations["summary"] == "" {
			t.Errorf("%s: %v", rule.Alert, rule.Annotations)
		}
		known(t, rule.Alert, rule.Expr, declaredSeries())
	}
	if !slices.Equal(sections, is) {
		t.Errorf("operate.md has sections for\n%v, the alerts are\n%v", sections, is)
	}
	files, _ := filepath.Glob("deploy/*.yaml")
	for _, pattern := range []string{"deploy/docs/*.md", "deploy/*.md", "deploy/monitoring/*.yaml", "deploy/overlays/*/*.yaml", "README.md", "bench/README.md"} {
		more, _ := filepath.Glob(pattern)
		files = append(files, more...)
	}
	series := declaredSeries()
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		current, _, _ := strings.Cut(string(text), "\n## Renamed\n") // old names follow there
		for _, name := range regexp.MustCompile(`\bbasalt_[a-z_]+[a-z]\b`).FindAllString(current, -1) {
			if !series[name] {
				t.Errorf("%s: there is no metric %s", file, name)
			}
		}
	}
}

// declaredSeries are the names of all series that Basalt may have.
func declaredSeries() map[string]bool {
	out := map[string]bool{}
	for name, m := range declared() {
		out[name] = true
		if m.Kind == metric.Histogram {
			out[name+"_bucket"], out[name+"_sum"], out[name+"_count"] = true, true, true
		}
	}
	return out
}
