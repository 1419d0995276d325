package report

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"
)

// plot is a line chart in SVG, drawn in colours that the page defines for light and for dark.
type plot struct {
	Title, Hint string
	x, y        axis
	lines       []line
}

type axis struct {
	label string
	log   bool
	ticks []tick // made from the data where there are none
	min   float64
	max   float64
}

type tick struct {
	at    float64
	label string
}

type line struct {
	name   string
	colour int
	points [][2]float64
	marks  bool // a dot at each point, which tells its values when pointed at
	mark   func(p [2]float64) string
}

// The drawing's measures, in units of the SVG's own.
const (
	plotWidth, plotHeight            = 720.0, 300.0
	leftEdge, rightEdge, topEdge     = 74.0, 694.0, 12.0
	bottomEdge                       = 256.0
	colours                          = 8 // that the page defines
	mostPoints                       = 400
	pointsWithMarks, percentileSteps = 60, 240
)

// Legend names the lines, each once.
func (p *plot) Legend() []legend {
	var out []legend
	for _, l := range p.lines {
		entry := legend{l.name, l.colour % colours}
		if !slices.Contains(out, entry) {
			out = append(out, entry)
		}
	}
	return out
}

type legend struct {
	Name   string
	Colour int
}

// SVG draws the plot.
func (p *plot) SVG() template.HTML {
	var xs, ys []float64
	for _, l := range p.lines {
		for _, at := range l.points {
			xs, ys = append(xs, at[0]), append(ys, at[1])
		}
	}
	p.x.fit(xs)
	p.y.fit(ys)
	px := func(v float64) float64 { return leftEdge + p.x.place(v)*(rightEdge-leftEdge) }
	py := func(v float64) float64 { return bottomEdge - p.y.place(v)*(bottomEdge-topEdge) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, plotWidth, plotHeight, html.EscapeString(p.Title))
	for _, t := range p.y.ticks {
		fmt.Fprintf(&b, `<line class="grid" x1="%g" x2="%g" y1="%.1f" y2="%.1f"/><text class="tick" x="%g" y="%.1f" text-anchor="end">%s</text>`,
			leftEdge, rightEdge, py(t.at), py(t.at), leftEdge-8, py(t.at)+4, html.EscapeString(t.label))
	}
	for _, t := range p.x.ticks {
		fmt.Fprintf(&b, `<line class="grid" x1="%.1f" x2="%.1f" y1="%g" y2="%g"/><text class="tick" x="%.1f" y="%g" text-anchor="middle">%s</text>`,
			px(t.at), px(t.at), topEdge, bottomEdge, px(t.at), bottomEdge+18, html.EscapeString(t.label))
	}
	fmt.Fprintf(&b, `<line class="axis" x1="%g" x2="%g" y1="%g" y2="%g"/>`, leftEdge, rightEdge, bottomEdge, bottomEdge)
	fmt.Fprintf(&b, `<text class="label" x="%g" y="%g" text-anchor="middle">%s</text>`, (leftEdge+rightEdge)/2, plotHeight-6, html.EscapeString(p.x.label))
	fmt.Fprintf(&b, `<text class="label" transform="translate(13 %g) rotate(-90)" text-anchor="middle">%s</text>`, (topEdge+bottomEdge)/2, html.EscapeString(p.y.label))
	for _, l := range p.lines {
		var at strings.Builder
		points := thin(l.points)
		for _, v := range points {
			fmt.Fprintf(&at, "%.1f,%.1f ", px(v[0]), py(v[1]))
		}
		fmt.Fprintf(&b, `<polyline class="c%d" points="%s"><title>%s</title></polyline>`, l.colour%colours, strings.TrimSpace(at.String()), html.EscapeString(l.name))
		if l.marks && len(points) <= pointsWithMarks {
			for _, v := range points {
				text := fmt.Sprintf("%s: %s at %s", l.name, Number(v[1]), Number(v[0]))
				if l.mark != nil {
					text = l.name + ": " + l.mark(v)
				}
				fmt.Fprintf(&b, `<circle class="c%d" cx="%.1f" cy="%.1f" r="4"><title>%s</title></circle>`, l.colour%colours, px(v[0]), py(v[1]), html.EscapeString(text))
			}
		}
	}
	b.WriteString(`</svg>`)
	return template.HTML(b.String())
}

// thin keeps of a long line the lowest and the highest point of each step, so that no peak is lost.
func thin(points [][2]float64) [][2]float64 {
	if len(points) <= mostPoints {
		return points
	}
	var out [][2]float64
	step := (len(points) + mostPoints/2 - 1) / (mostPoints / 2)
	for chunk := range slices.Chunk(points, step) {
		low, high := 0, 0
		for i, p := range chunk {
			if p[1] < chunk[low][1] {
				low = i
			}
			if p[1] > chunk[high][1] {
				high = i
			}
		}
		out = append(out, chunk[min(low, high)])
		if low != high {
			out = append(out, chunk[max(low, high)])
		}
	}
	return out
}

// place returns where a value lies on the axis, from 0 to 1.
func (a *axis) place(v float64) float64 {
	low, high := a.min, a.max
	if a.log {
		low, high, v = math.Log10(low), math.Log10(high), math.Log10(max(v, a.min))
	}
	if high <= low {
		return 0.5
	}
	return min(1, max(0, (v-low)/(high-low)))
}

// fit sets range and ticks from the data where they are not given. An axis that is not logarithmic begins at 0.
func (a *axis) fit(values []float64) {
	if len(a.ticks) > 0 || len(values) == 0 {
		return
	}
	low, high := slices.Min(values), slices.Max(values)
	if a.log {
		low = math.Pow(10, math.Floor(math.Log10(max(low, 1e-3))))
		high = math.Pow(10, math.Ceil(math.Log10(max(high, low*10))))
		a.min, a.max = low, high
		for v := low; v <= high*1.001; v *= 10 {
			a.ticks = append(a.ticks, tick{v, Number(v)})
		}
		return
	}
	low = min(0, low)
	if high <= low {
		high = low + 1
	}
	step := niceStep((high - low) / 5)
	a.min, a.max = math.Floor(low/step)*step, math.Ceil(high/step-1e-9)*step
	for i := range int(math.Round((a.max-a.min)/step)) + 1 {
		v := a.min + float64(i)*step
		a.ticks = append(a.ticks, tick{v, Number(v)})
	}
}

// niceStep is the next of 1, 2 and 5 times a power of ten.
func niceStep(at float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(at)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= at*(1-1e-9) {
			return m * power
		}
	}
	return 10 * power
}

// plots draws what the report has data for.
func (r *Report) plots() []*plot {
	colour := r.colourOf()
	var out []*plot
	timeLines := func(title string) {
		p := &plot{Title: title, x: axis{label: "seconds"}}
		last := 0.0
		for _, s := range r.Series {
			if s.Plot == title && len(s.Points) > 1 {
				last = max(last, s.Points[len(s.Points)-1][0])
			}
		}
		minutes := last > 600
		for _, s := range r.Series {
			if s.Plot != title || len(s.Points) < 2 {
				continue
			}
			points, unit, scale := slices.Clone(s.Points), s.Unit, 1.0
			if unit == "B" {
				unit, scale = "MiB", 1.0/(1<<20)
			}
			for i := range points {
				points[i][1] *= scale
				if minutes {
					points[i][0] /= 60
				}
			}
			p.y.label = unit
			p.lines = append(p.lines, line{name: s.Subject, colour: colour[s.Subject], points: points})
		}
		if minutes {
			p.x.label = "minutes"
		}
		if len(p.lines) > 0 {
			out = append(out, p)
		}
	}
	timeLines(Throughput)
	out = append(out, r.latencyPlots(colour)...)
	if len(r.Curves) > 0 {
		p := &plot{Title: "rate against latency", Hint: "Pods offered a second in an open loop, and the latency's 99th percentile. The knee is where the line turns up.",
			x: axis{label: "pods offered a second"}, y: axis{label: "p99, ms", log: true}}
		for _, c := range r.Curves {
			l := line{name: c.Subject, colour: colour[c.Subject], marks: true}
			for _, point := range c.Points {
				l.points = append(l.points, [2]float64{point.Rate, point.P99})
			}
			slices.SortFunc(l.points, func(a, b [2]float64) int {
				if a[0] < b[0] {
					return -1
				}
				return 1
			})
			l.mark = func(v [2]float64) string {
				return fmt.Sprintf("%s pods/s offered, p99 %s ms", Number(v[0]), Number(v[1]))
			}
			p.lines = append(p.lines, l)
		}
		out = append(out, p)
	}
	timeLines(Memory)
	timeLines(Utilisation)
	shown := []string{Throughput, Memory, Utilisation}
	for _, s := range r.Series {
		if !slices.Contains(shown, s.Plot) {
			shown = append(shown, s.Plot)
			timeLines(s.Plot)
		}
	}
	return out
}

// latencyPlots draws the whole way of several subjects together, and the stages of each subject together.
func (r *Report) latencyPlots(colour map[string]int) []*plot {
	var out []*plot
	for _, stage := range []string{Whole, Gang} {
		p := percentilePlot("latency: " + stage)
		for _, l := range r.Latencies {
			if l.Stage == stage {
				p.lines = append(p.lines, l.line(l.Subject, colour[l.Subject]))
			}
		}
		if len(p.lines) > 0 {
			out = append(out, p)
		}
	}
	by := map[string]*plot{}
	for _, l := range r.Latencies {
		if l.Stage == Whole || l.Stage == Gang {
			continue
		}
		p := by[l.Subject]
		if p == nil {
			p = percentilePlot("where the time goes: " + l.Subject)
			by[l.Subject] = p
			out = append(out, p)
		}
		p.lines = append(p.lines, l.line(l.Stage, len(p.lines)))
	}
	return out
}

// firstPercentile is the tenth, as one over the share that was slower: the few that were faster would take half of the plot.
const firstPercentile = 1 / 0.9

func percentilePlot(title string) *plot {
	p := &plot{Title: title, Hint: "How many per cent were at least as fast; both axes are logarithmic.",
		x: axis{label: "percentile", log: true, min: firstPercentile, max: 10_000}, y: axis{label: "ms", log: true}}
	for _, t := range []string{"10", "50", "90", "99", "99.9", "99.99"} {
		var v float64
		_, _ = fmt.Sscan(t, &v)
		p.x.ticks = append(p.x.ticks, tick{100 / (100 - v), t})
	}
	return p
}

// line of percentiles, as far as there are enough values to speak of them. X is one over the share that was slower.
func (l *Latency) line(name string, colour int) line {
	out := line{name: name, colour: colour}
	low, high := math.Log10(firstPercentile), math.Log10(min(10_000, max(2, float64(l.Count()))))
	for i := range percentileSteps + 1 {
		x := math.Pow(10, low+(high-low)*float64(i)/percentileSteps)
		out.points = append(out.points, [2]float64{x, max(0.001, milliseconds(l.Percentile(100-100/x)))})
	}
	return out
}

// colourOf gives each subject one colour in all plots.
func (r *Report) colourOf() map[string]int {
	out := map[string]int{}
	add := func(subject string) {
		if _, had := out[subject]; !had {
			out[subject] = len(out)
		}
	}
	for _, s := range r.subjects() {
		add(s)
	}
	for _, s := range r.Series {
		add(s.Subject)
	}
	for _, l := range r.Latencies {
		add(l.Subject)
	}
	for _, c := range r.Curves {
		add(c.Subject)
	}
	return out
}

// strip draws the runs of a figure as dots on a scale that all figures of this name and unit share, with the median as a bar.
func strip(f Figure, low, high float64, colour int) template.HTML {
	const width, height, edge = 132.0, 18.0, 6.0
	x := func(v float64) float64 {
		if high <= low {
			return width / 2
		}
		return edge + (v-low)/(high-low)*(width-2*edge)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg class="strip" viewBox="0 0 %g %g" role="img" aria-label="the runs"><line class="axis" x1="0" x2="%g" y1="%g" y2="%g"/>`, width, height, width, height/2, height/2)
	for i, v := range f.Values {
		fmt.Fprintf(&b, `<circle class="c%d" cx="%.1f" cy="%g" r="3.2"><title>run %d: %s</title></circle>`, colour%colours, x(v), height/2, i+1, html.EscapeString(withUnit(v, f.Unit)))
	}
	fmt.Fprintf(&b, `<line class="median" x1="%.1f" x2="%.1f" y1="1" y2="%g"/></svg>`, x(f.Value), x(f.Value), height-1)
	return template.HTML(b.String())
}
