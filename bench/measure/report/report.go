// Package report is what every benchmark hands back: the figures with their spread, the raw values of every run, time lines
// and latency distributions, as a table on the terminal, as report.json, and as one HTML page that needs nothing else.
//
// It decides how figures are summarised (median and quartiles; a ratio is the median of the ratios of runs that were made
// side by side) and shown. It owns no measurement: what a number means is the benchmark's to say. It refuses to hide:
// every run's values stay in report.json, and a figure with a target says whether it is met.
//
// Floating point is for what was measured; no amount of a resource passes through here on its way to a decision.
package report

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Report is the outcome of one command. Its fields are filled by the benchmark, in the order in which they are shown.
type Report struct {
	Command  string    `json:"command"`  // "kube"
	Scenario string    `json:"scenario"` // its name, "" where there is none
	About    string    `json:"about"`    // one line
	Seed     uint64    `json:"seed"`
	Began    time.Time `json:"began"`
	Seconds  float64   `json:"seconds"`
	Machine  Machine   `json:"machine"`
	Settings []Setting `json:"settings"`
	Notes    []string  `json:"notes,omitempty"` // what a reader must know to judge the figures

	Figures   []Figure   `json:"figures"`
	Runs      []*Run     `json:"runs"`
	Latencies []*Latency `json:"latencies,omitempty"`
	Series    []*Series  `json:"series,omitempty"`
	Curves    []*Curve   `json:"curves,omitempty"`
}

// Setting is one thing that was chosen and has an influence on the figures.
type Setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Run is one measurement of one subject, raw.
type Run struct {
	Subject string  `json:"subject"` // what was measured: "null", "basalt, 3 shards"
	Number  int     `json:"number"`  // from 1; runs of several subjects with one number were made side by side
	Values  []Value `json:"values"`
	Note    string  `json:"note,omitempty"` // what was wrong with it, if anything
}

// Value is one raw figure. Names are the same over runs and subjects, and say what they are in words: "pods bound a second".
type Value struct {
	Name  string  `json:"name"`
	Unit  string  `json:"unit,omitempty"`
	Value float64 `json:"value"`
}

// Figure is a summary over runs.
type Figure struct {
	Subject string  `json:"subject"`
	Name    string  `json:"name"`
	Unit    string  `json:"unit,omitempty"`
	Value   float64 `json:"value"` // the median
	Low     float64 `json:"low"`   // first quartile
	High    float64 `json:"high"`  // third quartile
	N       int     `json:"n"`
	// Reach is the target in words, "" for none; Met says whether Value reaches it.
	Reach string `json:"reach,omitempty"`
	Met   bool   `json:"met,omitempty"`
	// Values are the runs' values that Value is the median of.
	Values []float64 `json:"values,omitempty"`
}

// Target is what a figure has to reach. The zero value is none.
type Target struct {
	text string
	met  func(float64) bool
}

// AtLeast is met by a value that is not smaller.
func AtLeast(v float64) Target {
	return Target{"at least " + Number(v), func(x float64) bool { return x >= v }}
}

// AtMost is met by a value that is not larger.
func AtMost(v float64) Target {
	return Target{"at most " + Number(v), func(x float64) bool { return x <= v }}
}

// Series is a time line; X is in seconds since the beginning of its run.
type Series struct {
	Plot    string       `json:"plot"` // series of one plot are drawn together: Throughput, Memory, Utilisation, or another title
	Subject string       `json:"subject"`
	Unit    string       `json:"unit"`
	Points  [][2]float64 `json:"points"`
}

// The plots that the benchmarks share.
const (
	Throughput  = "throughput over time"
	Memory      = "memory over time"
	Utilisation = "utilisation over time"
)

// Add appends a point.
func (s *Series) Add(at time.Duration, value float64) {
	s.Points = append(s.Points, [2]float64{at.Seconds(), value})
}

// Curve is rate against latency, up to the knee. Rates are what was offered.
type Curve struct {
	Subject string  `json:"subject"`
	Points  []Point `json:"points"`
}

// Point of a Curve.
type Point struct {
	Rate    float64 `json:"rate"` // pods a second, offered
	Reached float64 `json:"reached"`
	P50     float64 `json:"p50_ms"`
	P99     float64 `json:"p99_ms"`
}

// The stages of a latency.
const (
	Whole     = "create to bind"
	Gang      = "last member created to gang's last Binding"
	QueueWait = "queue wait"
	Reserve   = "reserve"
	Hold      = "hold"
	Commit    = "commit (intents durable)"
	Bind      = "bind"
)

// Latency is an HDR histogram in microseconds, with three digits kept, up to one hour.
type Latency struct {
	Subject, Stage string
	hist           *hdrhistogram.Histogram
}

// NewLatency makes an empty histogram that is not part of a report yet.
func NewLatency(subject, stage string) *Latency {
	return &Latency{subject, stage, hdrhistogram.New(1, time.Hour.Microseconds(), 3)}
}

// Record counts one duration. What is out of range is counted at the range's end: a lost value would be a better figure.
func (l *Latency) Record(d time.Duration) {
	_ = l.hist.RecordValue(min(max(1, d.Microseconds()), time.Hour.Microseconds())) // in range
}

// Merge adds another histogram's values.
func (l *Latency) Merge(o *Latency) { l.hist.Merge(o.hist) }

// Count is how many were recorded.
func (l *Latency) Count() int64 { return l.hist.TotalCount() }

// Percentile returns the value at 0 to 100, 0 if nothing was recorded.
func (l *Latency) Percentile(p float64) time.Duration {
	return time.Duration(l.hist.ValueAtPercentile(p)) * time.Microsecond
}

// Max is the largest value recorded, to three digits.
func (l *Latency) Max() time.Duration { return time.Duration(l.hist.Max()) * time.Microsecond }

type latencyJSON struct {
	Subject string             `json:"subject"`
	Stage   string             `json:"stage"`
	Count   int64              `json:"count"`
	MS      map[string]float64 `json:"ms"`
	HDR     string             `json:"hdr"` // the histogram, HdrHistogram V2 compressed, in microseconds
}

// MarshalJSON keeps the whole histogram beside the usual percentiles.
func (l *Latency) MarshalJSON() ([]byte, error) {
	encoded, err := l.hist.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, fmt.Errorf("encode latencies of %s, %s: %w", l.Subject, l.Stage, err)
	}
	ms := map[string]float64{}
	for name, d := range map[string]time.Duration{"p50": l.Percentile(50), "p90": l.Percentile(90), "p99": l.Percentile(99), "p99.9": l.Percentile(99.9), "max": l.Max()} {
		ms[name] = milliseconds(d)
	}
	return json.Marshal(latencyJSON{l.Subject, l.Stage, l.Count(), ms, string(encoded)})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (l *Latency) UnmarshalJSON(b []byte) error {
	var j latencyJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	if _, err := base64.StdEncoding.DecodeString(j.HDR); err != nil {
		return fmt.Errorf("read latencies of %s, %s: %w", j.Subject, j.Stage, err)
	}
	h, err := hdrhistogram.Decode([]byte(j.HDR))
	if err != nil {
		return fmt.Errorf("read latencies of %s, %s: %w", j.Subject, j.Stage, err)
	}
	l.Subject, l.Stage, l.hist = j.Subject, j.Stage, h
	return nil
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// New begins a report.
func New(command, scenario, about string, seed uint64) *Report {
	return &Report{Command: command, Scenario: scenario, About: about, Seed: seed, Began: time.Now().UTC(), Machine: machine()}
}

// Set notes a setting.
func (r *Report) Set(name string, value any) {
	r.Settings = append(r.Settings, Setting{name, fmt.Sprint(value)})
}

// Note adds a line that a reader must know.
func (r *Report) Note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// Run begins a run of a subject; runs that are made side by side have the same number.
func (r *Report) Run(subject string, number int) *Run {
	run := &Run{Subject: subject, Number: number}
	r.Runs = append(r.Runs, run)
	return run
}

// Add keeps a raw value.
func (run *Run) Add(name, unit string, value float64) {
	run.Values = append(run.Values, Value{name, unit, value})
}

// Get returns a raw value.
func (run *Run) Get(name string) (Value, bool) {
	i := slices.IndexFunc(run.Values, func(v Value) bool { return v.Name == name })
	if i < 0 {
		return Value{}, false
	}
	return run.Values[i], true
}

// Median adds the figure of one value over all runs of a subject; none of them, no figure.
func (r *Report) Median(subject, name string, t Target) {
	var values []float64
	unit := ""
	for _, run := range r.Runs {
		if v, ok := run.Get(name); ok && run.Subject == subject {
			values, unit = append(values, v.Value), v.Unit
		}
	}
	r.Figure(subject, name, unit, values, t)
}

// Medians adds figures for all values of a subject, in the order of its first run that has them. The targets are by the
// name of the value; nil for none.
func (r *Report) Medians(subject string, target func(name string) Target) {
	done := map[string]bool{}
	for _, run := range r.Runs {
		if run.Subject != subject {
			continue
		}
		for _, v := range run.Values {
			if !done[v.Name] {
				done[v.Name] = true
				t := Target{}
				if target != nil {
					t = target(v.Name)
				}
				r.Median(subject, v.Name, t)
			}
		}
	}
}

// Value returns a figure's median, 0 where there is none.
func (r *Report) Value(subject, name string) float64 {
	i := slices.IndexFunc(r.Figures, func(f Figure) bool { return f.Subject == subject && f.Name == name })
	if i < 0 {
		return 0
	}
	return r.Figures[i].Value
}

// Ratio adds the figure of a subject's value against another's: the ratio of each pair of runs made side by side.
func (r *Report) Ratio(subject, against, name string, t Target) {
	var values []float64
	for _, a := range r.Runs {
		for _, b := range r.Runs {
			if a.Subject != subject || b.Subject != against || a.Number != b.Number {
				continue
			}
			over, okA := a.Get(name)
			under, okB := b.Get(name)
			if okA && okB && under.Value != 0 {
				values = append(values, over.Value/under.Value)
			}
		}
	}
	r.Figure(subject+" / "+against, name, "×", values, t)
}

// Figure adds the summary of values that need not be in Runs; none, no figure.
func (r *Report) Figure(subject, name, unit string, values []float64, t Target) {
	if len(values) == 0 {
		return
	}
	f := Figure{Subject: subject, Name: name, Unit: unit, N: len(values), Values: slices.Clone(values)}
	sorted := slices.Sorted(slices.Values(values))
	f.Low, f.Value, f.High = quantile(sorted, 0.25), quantile(sorted, 0.5), quantile(sorted, 0.75)
	if t.met != nil {
		f.Reach, f.Met = t.text, t.met(f.Value)
	}
	r.Figures = append(r.Figures, f)
}

// quantile interpolates between the two nearest, so that the median of an even number is their mean.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	low := int(math.Floor(at))
	if low+1 >= len(sorted) {
		return sorted[len(sorted)-1]
	}
	return sorted[low] + (at-float64(low))*(sorted[low+1]-sorted[low])
}

// Latency adds a histogram to the report.
func (r *Report) Latency(l *Latency) {
	if l != nil && l.Count() > 0 {
		r.Latencies = append(r.Latencies, l)
	}
}

// NewSeries adds an empty time line.
func (r *Report) NewSeries(plot, subject, unit string) *Series {
	s := &Series{Plot: plot, Subject: subject, Unit: unit}
	r.Series = append(r.Series, s)
	return s
}

// Finish takes the time; later calls do nothing.
func (r *Report) Finish() {
	if r.Seconds == 0 {
		r.Seconds = math.Round(time.Since(r.Began).Seconds()*10) / 10
	}
}

// Write writes report.json and report.html into a folder, which it makes.
func (r *Report) Write(dir string) error {
	r.Finish()
	content, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	page, err := r.HTML()
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	err = errors.Join(os.WriteFile(filepath.Join(dir, "report.json"), append(content, '\n'), 0o644),
		os.WriteFile(filepath.Join(dir, "report.html"), page, 0o644))
	if err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}
