package check

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"math"
	"slices"
	"strings"
)

// A page of panels in Grafana's grid: 24 columns, rows of 30 pixels with 8 between them.
const (
	boardWidth = 1400
	cellWidth  = boardWidth / 24.0
	cellHeight = 38
)

// colors of lines, told apart by people who see few colours as well.
var colors = []string{"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#ee8866"}

// board is a dashboard that is drawn.
type board struct {
	Title  string
	Panels []drawn
}

func (b *board) add(d drawn) { b.Panels = append(b.Panels, d) }

// Height in pixels.
func (b board) Height() (bottom int) {
	for _, p := range b.Panels {
		bottom = max(bottom, (p.GridPos.Y+p.GridPos.H)*cellHeight)
	}
	return bottom
}

// drawn is a panel with what its queries returned.
type drawn struct {
	panel
	from, to float64 // seconds since 1970
	Lines    []line
}

type line struct {
	Legend string
	query  int // of the panel
	labels map[string]string
	points [][2]float64 // seconds since 1970, value
}

func (l line) last() float64 { return l.points[len(l.points)-1][1] }

// Style is the panel's place.
func (d drawn) Style() template.CSS {
	left, width := float64(d.GridPos.X)*cellWidth, float64(d.GridPos.W)*cellWidth-8
	return template.CSS(fmt.Sprintf("left:%.0fpx;top:%dpx;width:%.0fpx;height:%dpx",
		left, d.GridPos.Y*cellHeight, width, d.GridPos.H*cellHeight-8))
}

// Value of a stat, and the colour that its thresholds give it.
func (d drawn) Value() string {
	if len(d.Lines) == 0 {
		return "No data"
	}
	return format(d.Lines[0].last(), d.FieldConfig.Defaults.Unit)
}

// Color of a stat.
func (d drawn) Color() (color string) {
	for _, s := range d.FieldConfig.Defaults.Thresholds.Steps {
		if s.Value == nil || len(d.Lines) > 0 && d.Lines[0].last() >= *s.Value {
			color = s.Color
		}
	}
	return map[string]string{"green": "#1a7f37", "red": "#c4162a"}[color]
}

// Columns of a table: labels first, then queries.
func (d drawn) Columns() (out []string) {
	if len(d.Lines) > 0 {
		for name := range d.Lines[0].labels {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	for _, t := range d.Targets {
		out = append(out, t.LegendFormat)
	}
	return out
}

// Cells of a table, as many rows as the panel has place for.
func (d drawn) Cells() (out [][]string) {
	columns, rows, units := d.Columns(), map[string]int{}, map[string]string{}
	labels := len(columns) - len(d.Targets)
	for _, o := range d.FieldConfig.Overrides {
		units[o.Matcher.Options] = o.Properties[0].Value
	}
	first := func(l line) float64 { // the largest of the column that sorts, then all others
		if d.Targets[l.query].LegendFormat != d.Options.SortBy[0].DisplayName {
			return -1
		}
		return l.last()
	}
	slices.SortStableFunc(d.Lines, func(a, b line) int { return cmp.Compare(first(b), first(a)) })
	for _, l := range d.Lines {
		var head []string
		for _, name := range columns[:labels] {
			head = append(head, l.labels[name])
		}
		key := strings.Join(head, "\x00")
		at, known := rows[key]
		if !known {
			at = len(out)
			rows[key], out = at, append(out, append(head, make([]string, len(d.Targets))...))
		}
		unit := cmp.Or(units[d.Targets[l.query].LegendFormat], d.FieldConfig.Defaults.Unit)
		out[at][labels+l.query] = format(l.last(), unit)
	}
	return out[:min(len(out), d.GridPos.H*cellHeight/24-3)]
}

// SVG draws lines over time.
func (d drawn) SVG() template.HTML {
	width, height := float64(d.GridPos.W)*cellWidth-24, float64(d.GridPos.H*cellHeight)-92
	const left, bottom = 62.0, 18.0
	stacked, unit := d.FieldConfig.Defaults.Custom.Stacking.Mode == "normal", d.FieldConfig.Defaults.Unit
	if stacked {
		d.fill()
	}
	base, top := map[float64]float64{}, 0.0
	for _, l := range d.Lines {
		for _, p := range l.points {
			v := p[1]
			if stacked {
				base[p[0]] += v
				v = base[p[0]]
			}
			top = max(top, v)
		}
	}
	top = nice(top)
	x := func(at float64) float64 { return left + (at-d.from)/(d.to-d.from)*(width-left) }
	y := func(v float64) float64 { return (height - bottom) * (1 - v/top) }
	var out strings.Builder
	fmt.Fprintf(&out, `<svg width="%.0f" height="%.0f">`, width, height)
	for i := range 5 {
		v := top * float64(i) / 4
		fmt.Fprintf(&out, `<line x1="%.0f" x2="%.0f" y1="%.1f" y2="%.1f" stroke="#e2e4e8"/>`, left, width, y(v), y(v))
		fmt.Fprintf(&out, `<text x="%.0f" y="%.1f" text-anchor="end">%s</text>`, left-6,
			max(y(v)+4, 10), format(v, unit))
	}
	for i := range 4 {
		at := d.from + (d.to-d.from)*float64(i)/3
		anchor := []string{"start", "middle", "middle", "end"}[i]
		fmt.Fprintf(&out, `<text x="%.0f" y="%.0f" text-anchor="%s">%.0f s</text>`, x(at), height-2,
			anchor, at-d.from)
	}
	clear(base)
	for i, l := range d.Lines {
		color := colors[i%len(colors)]
		var line, under []string
		for j, p := range l.points {
			low := base[p[0]]
			if stacked {
				base[p[0]] += p[1]
			}
			move := "L"
			if j == 0 || p[0]-l.points[j-1][0] > 3*resolution.Seconds() {
				move = "M"
			}
			line = append(line, fmt.Sprintf("%s%.1f %.1f", move, x(p[0]), y(low+p[1])))
			under = append(under, fmt.Sprintf("L%.1f %.1f", x(p[0]), y(low)))
		}
		if stacked {
			slices.Reverse(under)
			fmt.Fprintf(&out, `<path d="%s%sZ" fill="%s" fill-opacity="0.3"/>`,
				strings.Join(line, ""), strings.Join(under, ""), color)
		}
		fmt.Fprintf(&out, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`, strings.Join(line, ""), color)
	}
	out.WriteString("</svg>")
	return template.HTML(out.String())
}

// fill gives all lines a value wherever one has: 0 counts for none in a stack.
func (d drawn) fill() {
	at := map[float64]bool{}
	for _, l := range d.Lines {
		for _, p := range l.points {
			at[p[0]] = true
		}
	}
	for i, l := range d.Lines {
		has := map[float64]float64{}
		for _, p := range l.points {
			has[p[0]] = p[1]
		}
		d.Lines[i].points = nil
		for _, x := range slices.Sorted(maps.Keys(at)) {
			d.Lines[i].points = append(d.Lines[i].points, [2]float64{x, has[x]})
		}
	}
}

// Keys are the entries of a legend, the first that fit.
func (d drawn) Keys() (out []struct{ Color, Text string }) {
	for i, l := range d.Lines {
		if i == 8 {
			out = append(out, struct{ Color, Text string }{"transparent", fmt.Sprintf("and %d more", len(d.Lines)-i)})
			break
		}
		out = append(out, struct{ Color, Text string }{colors[i%len(colors)], l.Legend})
	}
	return out
}

// nice is a round number that is not less.
func nice(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, f := range []float64{1, 2, 4, 5, 8, 10} {
		if f*unit >= v {
			return f * unit
		}
	}
	return v
}

// format writes a value in one of Grafana's units.
func format(v float64, unit string) string {
	scaled := func(v, by float64, suffixes ...string) string {
		i := 0
		for ; math.Abs(v) >= by && i < len(suffixes)-1; i++ {
			v /= by
		}
		return fmt.Sprintf("%.3g", v) + suffixes[i]
	}
	switch unit {
	case "s":
		switch {
		case v == 0:
			return "0 s"
		case v < 1:
			return fmt.Sprintf("%.3g ms", v*1000)
		case v < 120:
			return fmt.Sprintf("%.3g s", v)
		}
		return fmt.Sprintf("%.3g min", v/60)
	case "percentunit":
		return fmt.Sprintf("%.3g%%", v*100)
	case "bytes":
		return scaled(v, 1024, " B", " KiB", " MiB", " GiB", " TiB")
	case "ops", "reqps":
		return scaled(v, 1000, "", " K", " M") + map[string]string{"ops": " ops/s", "reqps": " req/s"}[unit]
	}
	if v < 10000 && v == math.Trunc(v) {
		return fmt.Sprint(int(v))
	}
	return scaled(v, 1000, "", " K", " M", " G")
}

//go:embed board.html
var boardText string

var boardPage = template.Must(template.New("board").Parse(boardText))
