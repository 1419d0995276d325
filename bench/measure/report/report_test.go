package report_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/bench/measure/report"
)

// example is a report with something of everything.
func example() *report.Report {
	r := report.New("kube", "test", "a <load> of \"everything\"", 7)
	r.Seconds = 12.3
	r.Set("QPS", "unlimited & more")
	r.Note("measured while <others> worked")
	for i, v := range []float64{400, 500, 300} {
		run := r.Run("null", i+1)
		run.Add("pods bound a second", "", v)
		run.Add("memory", "B", 1<<30)
		run = r.Run("basalt, 3 shards", i+1)
		run.Add("pods bound a second", "", []float64{300, 450, 270}[i])
	}
	r.Medians("null", nil)
	r.Median("basalt, 3 shards", "pods bound a second", report.Target{})
	r.Ratio("basalt, 3 shards", "null", "pods bound a second", report.AtLeast(0.8))
	r.Median("nobody", "pods bound a second", report.AtLeast(1))
	r.Figure("basalt, 3 shards", "CPU of a pod", "ms", []float64{1.5}, report.AtMost(1))
	for _, stage := range []string{report.Whole, report.Hold, report.Bind} {
		l := report.NewLatency("basalt, 3 shards", stage)
		for i := range 1000 {
			l.Record(time.Duration(i+1) * time.Millisecond)
		}
		r.Latency(l)
	}
	for _, plot := range []string{report.Throughput, report.Memory, "queue <depth>"} {
		s := r.NewSeries(plot, "null", "pods/s")
		for i := range 1000 {
			s.Add(time.Duration(i)*time.Second, math.Sin(float64(i))+2)
		}
	}
	r.Curves = append(r.Curves, &report.Curve{Subject: "null", Points: []report.Point{{Rate: 200, Reached: 199, P50: 4, P99: 30}, {Rate: 100, Reached: 100, P50: 3, P99: 9}}})
	return r
}

func TestFigures(t *testing.T) {
	r := example()
	find := func(subject, name string) report.Figure {
		for _, f := range r.Figures {
			if f.Subject == subject && f.Name == name {
				return f
			}
		}
		t.Fatalf("no figure %s of %s", name, subject)
		return report.Figure{}
	}
	if f := find("null", "pods bound a second"); f.Value != 400 || f.Low != 350 || f.High != 450 || f.N != 3 {
		t.Errorf("%+v", f)
	}
	// 0.75, 0.9 and 0.9, and not 300/400: runs are compared with the one beside them.
	if f := find("basalt, 3 shards / null", "pods bound a second"); math.Abs(f.Value-0.9) > 1e-12 || !f.Met || f.Reach != "at least 0.8" {
		t.Errorf("%+v", f)
	}
	if f := find("basalt, 3 shards", "CPU of a pod"); f.Met || f.Reach != "at most 1" {
		t.Errorf("%+v", f)
	}
	for _, f := range r.Figures {
		if f.Subject == "nobody" {
			t.Error("a figure without a run")
		}
	}
}

func TestNumber(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 1234567: "1,234,567", -1234: "-1,234", 999.6: "1,000", 412.3: "412", 99.96: "100", 41.26: "41.3", 0.8: "0.8", 1: "1", 0.125: "0.12",
		0.00525: "0.0053", 1e-7: "1e-07", 100: "100", 10: "10",
	} {
		if got := report.Number(v); got != want {
			t.Errorf("Number(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	example().Print(&b)
	for _, want := range []string{"scenario test, seed 7", "unlimited & more", "at least 0.8", "met", "MISSED", "350 – 450", "1 GiB", "create to bind", "990", "rate against latency", "note: measured"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, b.String())
		}
	}
}

// report.json keeps every run, and the histograms can be read again to the last value.
func TestJSON(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	r := example()
	if err := r.Write(dir); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(dir, "report.json"))
	if err != nil {
		t.Fatal(err)
	}
	var got report.Report
	if err := json.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Runs) != 6 || len(got.Runs[0].Values) != 2 || got.Runs[2].Values[0].Value != 500 || len(got.Series) != 3 || got.Machine.Cores == 0 {
		t.Errorf("read %+v", got)
	}
	for i, l := range got.Latencies {
		for _, p := range []float64{1, 50, 99, 99.9, 100} {
			if l.Percentile(p) != r.Latencies[i].Percentile(p) || l.Count() != 1000 {
				t.Errorf("%s: p%v is %s, was %s", l.Stage, p, l.Percentile(p), r.Latencies[i].Percentile(p))
			}
		}
	}
	if host, err := os.Hostname(); err == nil && len(host) > 3 && bytes.Contains(content, []byte(host)) {
		t.Error("the report names the host")
	}
}

// The page is complete, needs nothing from elsewhere, runs nothing, and its drawings are well-formed and inside their frame.
func TestHTML(t *testing.T) {
	content, err := example().HTML()
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	for _, want := range []string{"a &lt;load&gt; of", "1 of 2 targets reached", "throughput over time", "memory over time", "queue &lt;depth&gt;", "rate against latency", "where the time goes", "measured while &lt;others&gt; worked", "Every run"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, never := range []string{"<script", "http:", "https:", "url(", "<load>", "NaN", "Inf", "ZgotmplZ"} {
		if strings.Contains(page, never) {
			t.Errorf("the page has %q in it", never)
		}
	}
	drawings := regexp.MustCompile(`(?s)<svg.*?</svg>`).FindAllString(page, -1)
	if len(drawings) < 6 {
		t.Errorf("%d drawings", len(drawings))
	}
	for _, d := range drawings {
		for dec := xml.NewDecoder(strings.NewReader(d)); ; {
			if _, err := dec.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%v in %s", err, d)
			}
		}
	}
}

// A report without any data is a page, too.
func TestEmpty(t *testing.T) {
	r := report.New("soak", "", "", 1)
	r.NewSeries(report.Memory, "x", "B")
	r.Latency(report.NewLatency("x", report.Whole))
	if _, err := r.HTML(); err != nil {
		t.Fatal(err)
	}
	r.Print(io.Discard)
}
