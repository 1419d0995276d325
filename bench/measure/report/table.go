package report

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Number writes a number for people: three digits or all before the point, thousands apart.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return fmt.Sprint(v)
	case a == 0:
		return "0"
	case a >= 999.5:
		return thousands(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 99.95:
		return trim(strconv.FormatFloat(v, 'f', 0, 64))
	case a >= 9.995:
		return trim(strconv.FormatFloat(v, 'f', 1, 64))
	case a >= 0.0995:
		return trim(strconv.FormatFloat(v, 'f', 2, 64))
	case a >= 0.00005:
		return trim(strconv.FormatFloat(v, 'f', 4, 64))
	default:
		return strconv.FormatFloat(v, 'g', 2, 64)
	}
}

func trim(s string) string {
	if strings.Contains(s, ".") {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}

func thousands(s string) string {
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}

// withUnit puts a unit behind a number; "B" is scaled, for nobody reads bytes.
func withUnit(v float64, unit string) string {
	switch unit {
	case "":
		return Number(v)
	case "B":
		for _, u := range []string{"B", "KiB", "MiB", "GiB"} {
			if math.Abs(v) < 1024 || u == "GiB" {
				return Number(v) + " " + u
			}
			v /= 1024
		}
	case "×", "%":
		return Number(v) + " " + unit
	}
	return Number(v) + " " + unit
}

// group returns the figures of one subject after another, in the order of first mention.
func (r *Report) group() [][]Figure {
	var order []string
	by := map[string][]Figure{}
	for _, f := range r.Figures {
		if by[f.Subject] == nil {
			order = append(order, f.Subject)
		}
		by[f.Subject] = append(by[f.Subject], f)
	}
	var out [][]Figure
	for _, s := range order {
		out = append(out, by[s])
	}
	return out
}

func verdict(f Figure) string {
	switch {
	case f.Reach == "":
		return ""
	case f.Met:
		return "met"
	default:
		return "MISSED"
	}
}

func (m Machine) String() string {
	s := fmt.Sprintf("%d cores", m.Cores)
	if m.CPU != "" {
		s += " (" + m.CPU + ")"
	}
	if m.MemoryBytes > 0 {
		s += fmt.Sprintf(", %.0f GiB", float64(m.MemoryBytes)/(1<<30))
	}
	return s + fmt.Sprintf(", %s/%s, %s, load %.1f at the beginning", m.OS, m.Arch, m.Go, m.Load)
}

func (r *Report) title() string {
	s := "basalt-bench " + r.Command
	if r.Scenario != "" {
		s += ", scenario " + r.Scenario
	}
	return fmt.Sprintf("%s, seed %d", s, r.Seed)
}

// Print writes the table for a terminal.
func (r *Report) Print(out io.Writer) {
	r.Finish()
	fmt.Fprintf(out, "\n%s, %s\n", r.title(), time.Duration(r.Seconds*float64(time.Second)).Round(100*time.Millisecond))
	if r.About != "" {
		fmt.Fprintf(out, "%s\n", r.About)
	}
	fmt.Fprintf(out, "%s\n", r.Machine)
	for _, s := range r.Settings {
		fmt.Fprintf(out, "  %s: %s\n", s.Name, s.Value)
	}
	fmt.Fprintln(out)

	rows := [][]string{{"", "median", "quartiles", "runs", "reach", ""}}
	for _, figures := range r.group() {
		rows = append(rows, []string{figures[0].Subject})
		for _, f := range figures {
			spread := ""
			if f.N > 1 {
				spread = Number(f.Low) + " – " + Number(f.High)
				if f.Unit == "B" {
					spread = withUnit(f.Low, "B") + " – " + withUnit(f.High, "B")
				}
			}
			rows = append(rows, []string{"  " + f.Name, withUnit(f.Value, f.Unit), spread, strconv.Itoa(f.N), f.Reach, verdict(f)})
		}
	}
	align(out, rows, "lrrrll")

	if len(r.Latencies) > 0 {
		rows = [][]string{{"latency in ms", "count", "p50", "p90", "p99", "p99.9", "max"}}
		last := ""
		for _, l := range r.Latencies {
			if l.Subject != last {
				last = l.Subject
				rows = append(rows, []string{l.Subject})
			}
			row := []string{"  " + l.Stage, Number(float64(l.Count()))}
			for _, d := range []time.Duration{l.Percentile(50), l.Percentile(90), l.Percentile(99), l.Percentile(99.9), l.Max()} {
				row = append(row, Number(milliseconds(d)))
			}
			rows = append(rows, row)
		}
		fmt.Fprintln(out)
		align(out, rows, "lrrrrrr")
	}
	if len(r.Curves) > 0 {
		rows = [][]string{{"rate against latency", "offered/s", "bound/s", "p50 ms", "p99 ms"}}
		for _, c := range r.Curves {
			rows = append(rows, []string{c.Subject})
			for _, p := range c.Points {
				rows = append(rows, []string{"", Number(p.Rate), Number(p.Reached), Number(p.P50), Number(p.P99)})
			}
		}
		fmt.Fprintln(out)
		align(out, rows, "lrrrr")
	}
	for _, n := range r.Notes {
		fmt.Fprintf(out, "note: %s\n", n)
	}
	for _, run := range r.Runs {
		if run.Note != "" {
			fmt.Fprintf(out, "note: %s, run %d: %s\n", run.Subject, run.Number, run.Note)
		}
	}
}

// align prints rows in columns, each l or r; a row of one cell is a heading and widens nothing.
func align(out io.Writer, rows [][]string, columns string) {
	width := make([]int, len(columns))
	for _, row := range rows {
		if len(row) == 1 {
			continue
		}
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", max(0, width[i]-utf8.RuneCountInString(cell)))
			if columns[i] == 'r' {
				b.WriteString(pad + cell + "   ")
			} else {
				b.WriteString(cell + pad + "   ")
			}
		}
		fmt.Fprintln(out, strings.TrimRight(b.String(), " "))
	}
}

// subjects returns the subjects of the runs in the order of first mention.
func (r *Report) subjects() []string {
	var out []string
	for _, run := range r.Runs {
		if !slices.Contains(out, run.Subject) {
			out = append(out, run.Subject)
		}
	}
	return out
}

// Percentiles describes a few times in a line.
func Percentiles(times []time.Duration) string {
	if len(times) == 0 {
		return "not measured"
	}
	sorted := slices.Sorted(slices.Values(times))
	at := func(percent int) time.Duration {
		return sorted[min(len(sorted)-1, len(sorted)*percent/100)].Round(time.Millisecond)
	}
	return fmt.Sprintf("p50 %s, p99 %s, most %s (%d)", at(50), at(99), at(100), len(sorted))
}
