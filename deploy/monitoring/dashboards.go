// Package monitoring makes the Grafana dashboards in the folder dashboards. The files are what is applied; this package keeps them in
// one style and short to change: go test ./deploy/monitoring -rewrite writes them.
package monitoring

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Dashboard is a page of panels, in rows of 24 columns.
type Dashboard struct {
	File, Title, About string
	Variables          []Variable
	Rows               [][]Panel
}

// Variable is a choice at the top of a dashboard: the values of a label of a metric, or, without a metric, a text.
// Without a default it is all values.
type Variable struct{ Name, Metric, Label, Default string }

// Panel shows queries. Those of a row share its width.
type Panel struct {
	Kind  string // stat, timeseries, table, text, traces, logs
	Title string
	About string
	Unit  string // of Grafana: s, short, percentunit, bytes, reqps, ops
	Text  string // of kind text: Markdown
	Stack bool
	Red   float64 // of kind stat: red from this value on; 0: never
	Least float64 // likewise: red below this value
	First string  // of kind table: the column by which rows are sorted, the largest first

	Units   map[string]string // of columns that have another one
	Queries []Query
}

// Query is an expression of PromQL; of kind traces of TraceQL, and of kind logs of LogQL. In a table it is a column.
type Query struct{ Expr, Legend string }

const height = 8

// JSON returns a dashboard in Grafana's format.
func (d Dashboard) JSON() ([]byte, error) {
	type object = map[string]any
	datasource := func(kind string) object { return object{"type": kind, "uid": "${" + kind + "}"} }
	panels, id, y := []object{}, 0, 0
	for _, row := range d.Rows {
		h := 0
		for i, p := range row {
			id++
			tall := map[string]int{"stat": 4, "text": 6}[p.Kind]
			if tall == 0 {
				tall = height
			}
			h = max(h, tall)
			width := 24 / len(row)
			panel := object{"id": id, "type": p.Kind, "title": p.Title, "gridPos": object{"h": tall, "w": width, "x": i * width, "y": y}}
			if p.About != "" {
				panel["description"] = p.About
			}
			source := map[string]string{"traces": "tempo", "logs": "loki"}[p.Kind]
			if source == "" {
				source = "prometheus"
			}
			targets := []object{}
			for j, q := range p.Queries {
				t := object{"refId": string(rune('A' + j)), "datasource": datasource(source)}
				switch p.Kind {
				case "traces":
					t["queryType"], t["query"] = "traceql", q.Expr
				case "table", "stat":
					t["expr"], t["legendFormat"], t["instant"] = q.Expr, q.Legend, true
					if p.Kind == "table" {
						t["format"] = "table"
					}
				default:
					t["expr"], t["legendFormat"] = q.Expr, q.Legend
				}
				targets = append(targets, t)
			}
			defaults, overrides := object{"unit": p.Unit, "min": 0}, []object{}
			switch p.Kind {
			case "text":
				panel["options"] = object{"mode": "markdown", "content": p.Text}
			case "stat":
				steps := []object{{"color": "green", "value": nil}}
				if p.Least > 0 {
					steps = []object{{"color": "red", "value": nil}, {"color": "green", "value": p.Least}}
				}
				if p.Red > 0 {
					steps = append(steps, object{"color": "red", "value": p.Red})
				}
				defaults["thresholds"] = object{"mode": "absolute", "steps": steps}
				panel["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value"}
			case "timeseries":
				custom := object{"lineWidth": 1, "fillOpacity": 0, "showPoints": "never"}
				if p.Stack {
					custom["fillOpacity"], custom["stacking"] = 30, object{"mode": "normal", "group": "A"}
				}
				defaults["custom"] = custom
				panel["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}}
			case "table":
				names := object{} // Grafana calls the columns Value #A, Value #B
				for j, q := range p.Queries {
					names["Value #"+string(rune('A'+j))] = q.Legend
					if unit := p.Units[q.Legend]; unit != "" {
						overrides = append(overrides, object{"matcher": object{"id": "byName", "options": q.Legend},
							"properties": []object{{"id": "unit", "value": unit}}})
					}
				}
				panel["options"] = object{"sortBy": []object{{"displayName": p.First, "desc": true}}}
				panel["transformations"] = []object{{"id": "merge", "options": object{}},
					{"id": "organize", "options": object{"excludeByName": object{"Time": true}, "renameByName": names}}}
			}
			if p.Kind != "text" {
				panel["datasource"], panel["targets"] = datasource(source), targets
				panel["fieldConfig"] = object{"defaults": defaults, "overrides": overrides}
			}
			panels = append(panels, panel)
		}
		y += h
	}
	variables := []object{}
	for _, source := range []string{"prometheus", "tempo", "loki"} {
		if d.uses(source) {
			variables = append(variables, object{"name": source, "type": "datasource", "query": source, "label": source})
		}
	}
	for _, v := range d.Variables {
		if v.Metric == "" {
			variables = append(variables, object{"name": v.Name, "label": v.Name, "type": "textbox", "query": v.Default, "current": object{"text": v.Default, "value": v.Default}})
			continue
		}
		query := fmt.Sprintf("label_values(%s, %s)", v.Metric, v.Label)
		current := object{"text": "All", "value": "$__all"}
		if v.Default != "" {
			current = object{"text": v.Default, "value": v.Default}
		}
		variables = append(variables, object{"name": v.Name, "label": v.Name, "type": "query", "datasource": datasource("prometheus"), "refresh": 2, "sort": 1,
			"definition": query, "query": object{"query": query, "refId": v.Name}, "multi": true,
			"includeAll": true, "allValue": ".*", "current": current})
	}
	links := []object{{"title": "Basalt", "type": "dashboards", "tags": []string{"basalt"}, "asDropdown": true, "includeVars": true, "keepTime": true}}
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetIndent("", " ")
	e.SetEscapeHTML(false)
	err := e.Encode(object{
		"uid": "basalt-" + d.File, "title": d.Title, "description": d.About, "tags": []string{"basalt"}, "schemaVersion": 39, "version": 1, "editable": true,
		"time": object{"from": "now-1h", "to": "now"}, "refresh": "30s", "templating": object{"list": variables}, "panels": panels, "links": links,
	})
	return out.Bytes(), err
}

func (d Dashboard) uses(source string) bool {
	of := map[string]string{"tempo": "traces", "loki": "logs"}[source]
	for _, row := range d.Rows {
		for _, p := range row {
			if p.Kind == of || of == "" && p.Kind != "text" && p.Kind != "traces" && p.Kind != "logs" {
				return true
			}
		}
	}
	return false
}

func stat(title, unit string, red float64, expr string) Panel {
	return Panel{Kind: "stat", Title: title, Unit: unit, Red: red, Queries: []Query{{Expr: expr}}}
}

// within is a stat that is red below a value, and from another one on, if that is not 0.
func within(title string, least, red float64, expr string) Panel {
	p := stat(title, "short", red, expr)
	p.Least = least
	return p
}

// most shows the 20 largest: a cluster may have hundreds of queues.
func most(metric, by, legend string) Query {
	return Query{fmt.Sprintf("topk(20, max by (%s) (%s))", by, metric), legend}
}

func lines(title, unit, about string, queries ...Query) Panel {
	return Panel{Kind: "timeseries", Title: title, Unit: unit, About: about, Queries: queries}
}

func stacked(title, unit, about string, queries ...Query) Panel {
	p := lines(title, unit, about, queries...)
	p.Stack = true
	return p
}

// quantiles of a histogram, by further labels.
func quantiles(histogram, selector, by string, percents ...int) (out []Query) {
	legend := ""
	if by != "" {
		legend = "{{" + by + "}} "
		by = ", " + by
	}
	for _, p := range percents {
		out = append(out, Query{fmt.Sprintf("histogram_quantile(%g, sum by (le%s) (rate(%s_bucket%s[$__rate_interval])))", float64(p)/100, by, histogram, selector), fmt.Sprintf("%sp%d", legend, p)})
	}
	return out
}
