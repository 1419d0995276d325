package rival

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/stage/otlp"
)

// metrics are the samples of a server's /metrics that are wanted, by names in words.
type metrics map[string]float64

// minus returns what was added since.
func (m metrics) minus(before metrics) metrics {
	out := metrics{}
	for k, v := range m {
		if d := v - before[k]; d > 0 {
			out[k] = d
		}
	}
	return out
}

// want names the samples of a family; "" leaves one out. Those of one name are added up.
type want struct {
	family string
	name   func(label map[string]string) string
}

func parseMetrics(content []byte, wanted ...want) (metrics, error) {
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(content))
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	out := metrics{}
	for _, w := range wanted {
		for _, m := range families[w.family].GetMetric() {
			label := map[string]string{}
			for _, l := range m.GetLabel() {
				label[l.GetName()] = l.GetValue()
			}
			if name := w.name(label); name != "" {
				out[name] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
			}
		}
	}
	return out, nil
}

// apiMetrics reads the API server's counters: requests by verb and resource, watch events by resource, and answers 409 and
// 429. They are of all users; the audit log tells them apart.
func apiMetrics(ctx context.Context, client rest.Interface) (metrics, error) {
	content, err := client.Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return nil, fmt.Errorf("read metrics of the API server: %w", err)
	}
	return parseMetrics(content,
		want{"apiserver_request_total", func(l map[string]string) string {
			if l["resource"] == "" {
				return ""
			}
			what := l["verb"] + " " + l["resource"]
			if l["subresource"] != "" {
				what += "/" + l["subresource"]
			}
			return what + ", requests of all"
		}},
		want{"apiserver_request_total", func(l map[string]string) string {
			if l["code"] != "409" && l["code"] != "429" {
				return ""
			}
			return "answers " + l["code"]
		}},
		want{"apiserver_watch_events_total", func(l map[string]string) string {
			return l["resource"] + l["kind"] + ", watch events to all"
		}})
}

// What an etcd has done since its start.
const (
	etcdKeys     = "keys"
	etcdRevision = "revision"
)

func etcdMetrics(ctx context.Context, endpoint string) (metrics, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("read metrics of the control store: %w", err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("read metrics of the control store: %w", err)
	}
	named := func(name string) func(map[string]string) string {
		return func(map[string]string) string { return name }
	}
	return parseMetrics(content,
		want{"etcd_mvcc_put_total", named(etcdKeys)},
		want{"etcd_mvcc_delete_total", named(etcdKeys)},
		want{"etcd_debugging_mvcc_current_revision", named(etcdRevision)})
}

// spans keeps how long each stage of each gang took.
type spans struct {
	*otlp.Receiver
	mu   sync.Mutex
	seen map[string]bool // by id: an exporter may send twice
	took map[string][]time.Duration
}

func listenSpans() (*spans, error) {
	s := &spans{seen: map[string]bool{}, took: map[string][]time.Duration{}}
	var err error
	s.Receiver, err = otlp.Listen(s.take)
	return s, err
}

func (s *spans) take(span *trace.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := hex.EncodeToString(span.SpanId)
	if !s.seen[id] && span.EndTimeUnixNano >= span.StartTimeUnixNano {
		s.seen[id] = true
		s.took[span.Name] = append(s.took[span.Name], time.Duration(span.EndTimeUnixNano-span.StartTimeUnixNano))
	}
}

// latencies returns the stages that Basalt's home shards report, in order.
func (s *spans) latencies(subject string) []*report.Latency {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []*report.Latency
	for _, stage := range []struct{ span, name string }{
		{"queue wait", report.QueueWait}, {"reserve", report.Reserve}, {"hold", report.Hold}, {"commit", report.Commit}, {"bind", report.Bind},
	} {
		l := report.NewLatency(subject, stage.name)
		for _, d := range s.took[stage.span] {
			l.Record(d)
		}
		out = append(out, l)
	}
	return out
}
