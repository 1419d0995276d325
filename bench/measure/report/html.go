package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"maps"
	"slices"
	"strconv"
	"time"
)

//go:embed page.html
var pageHTML string

var page = template.Must(template.New("page").Parse(pageHTML))

// HTML returns the page: one file, no script, nothing from elsewhere.
func (r *Report) HTML() ([]byte, error) {
	type row struct {
		Name, Value, Spread, Runs, Reach, Verdict string
		Strip                                     template.HTML
	}
	type group struct {
		Subject string
		Rows    []row
	}
	type runRow struct {
		Subject string
		Number  int
		Cells   []string
		Note    string
	}
	view := struct {
		Title, About, Took, Began, Machine string
		Versions                           []Setting
		Settings                           []Setting
		Notes                              []string
		Met, Targets                       int
		Groups                             []group
		Latencies                          []struct {
			Subject, Stage string
			Cells          []string
		}
		Plots    []*plot
		RunNames []string
		Runs     []runRow
	}{
		Title: r.title(), About: r.About, Took: time.Duration(r.Seconds * float64(time.Second)).Round(time.Second).String(),
		Began: r.Began.Format("2006-01-02 15:04 MST"), Machine: r.Machine.String(), Settings: r.Settings, Notes: r.Notes, Plots: r.plots(),
	}
	for _, name := range slices.Sorted(maps.Keys(r.Machine.Versions)) {
		view.Versions = append(view.Versions, Setting{name, r.Machine.Versions[name]})
	}

	// Figures of one name share a scale, so that subjects can be compared by eye.
	type scale struct{ low, high float64 }
	scales := map[[2]string]scale{}
	for _, f := range r.Figures {
		key := [2]string{f.Name, f.Unit}
		s, had := scales[key]
		for _, v := range f.Values {
			if !had {
				s, had = scale{v, v}, true
			}
			s.low, s.high = min(s.low, v), max(s.high, v)
		}
		scales[key] = s
	}
	colour := r.colourOf()
	for _, figures := range r.group() {
		g := group{Subject: figures[0].Subject}
		for _, f := range figures {
			line := row{Name: f.Name, Value: withUnit(f.Value, f.Unit), Runs: strconv.Itoa(f.N), Reach: f.Reach}
			if f.N > 1 {
				line.Spread = withUnit(f.Low, f.Unit) + " – " + withUnit(f.High, f.Unit)
				s := scales[[2]string{f.Name, f.Unit}]
				line.Strip = strip(f, s.low, s.high, colour[f.Subject])
			}
			if f.Reach != "" {
				view.Targets++
				line.Verdict = "missed"
				if f.Met {
					view.Met++
					line.Verdict = "met"
				}
			}
			g.Rows = append(g.Rows, line)
		}
		view.Groups = append(view.Groups, g)
	}
	for _, l := range r.Latencies {
		cells := []string{Number(float64(l.Count()))}
		for _, d := range []time.Duration{l.Percentile(50), l.Percentile(90), l.Percentile(99), l.Percentile(99.9), l.Max()} {
			cells = append(cells, Number(milliseconds(d)))
		}
		view.Latencies = append(view.Latencies, struct {
			Subject, Stage string
			Cells          []string
		}{l.Subject, l.Stage, cells})
	}
	for _, run := range r.Runs {
		for _, v := range run.Values {
			name := v.Name
			if v.Unit != "" {
				name += ", " + v.Unit
			}
			if !slices.Contains(view.RunNames, name) {
				view.RunNames = append(view.RunNames, name)
			}
		}
	}
	for _, run := range r.Runs {
		line := runRow{Subject: run.Subject, Number: run.Number, Note: run.Note, Cells: make([]string, len(view.RunNames))}
		for _, v := range run.Values {
			name := v.Name
			if v.Unit != "" {
				name += ", " + v.Unit
			}
			line.Cells[slices.Index(view.RunNames, name)] = Number(v.Value)
		}
		view.Runs = append(view.Runs, line)
	}
	var b bytes.Buffer
	if err := page.Execute(&b, view); err != nil {
		return nil, fmt.Errorf("make page: %w", err)
	}
	return b.Bytes(), nil
}
