package console

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/page"
	"basalt.dev/basalt/api/visibility"
)

// whatIfData is a question what another limit would do, and its answer.
type whatIfData struct {
	Kept     bool // a stream leaves the form as the viewer has filled it in
	Changes  string
	Planned  string
	Fields   map[string]string // hidden ones of the form
	Says     string
	Trouble  string
	Commands []string // that would make the changes
	Example  string
}

// columns is how wide an answer is.
const columns = 116

// maxChanges bounds how many changes are asked about at once.
const maxChanges = 16

// whatIf asks what would be, if the viewer did. about says of which gang or queue.
func (s *server) whatIf(ctx context.Context, q *query, namespace string, about url.Values) *whatIfData {
	d := &whatIfData{Changes: api.Shorten(strings.ReplaceAll(q.values.Get("change"), "\r", ""), maxQuery),
		Planned: api.Shorten(strings.TrimSpace(q.values.Get("planned")), maxQuery)}
	if d.Changes == "" && d.Planned == "" {
		return d
	}
	ask := url.Values{}
	for key, values := range about {
		ask[key] = values
	}
	for _, line := range strings.FieldsFunc(d.Changes, func(r rune) bool { return r == '\n' || r == ' ' }) {
		if _, err := visibility.ParseChange(line); err != nil {
			d.Trouble = err.Error()
			return d
		}
		ask.Add("change", line)
		if len(ask["change"]) > maxChanges {
			d.Trouble = "at most " + strconv.Itoa(maxChanges) + " changes can be asked about at once"
			return d
		}
	}
	if d.Planned != "" {
		if _, err := visibility.ParsePlanned(d.Planned, namespace); err != nil {
			d.Trouble = err.Error()
			return d
		}
		ask.Set("planned", d.Planned)
		ask.Set("namespace", namespace)
	}
	path := "/what-if?" + ask.Encode()
	if namespace != "" {
		path = "/namespaces/" + url.PathEscape(namespace) + path
	}
	var said visibility.WhatIf
	if err := s.ask(ctx, q.viewer, path, &said); err != nil {
		d.Trouble = problemOf(err).text
		return d
	}
	d.Says = page.Fold(said.Text(time.Now()), columns)
	d.Commands = commandsFor(ask["change"])
	return d
}

// commandsFor returns the commands that would make changes, QUEUE:FIELD=VALUE each, one for each Queue.
func commandsFor(changes []string) (out []string) {
	patches, order := map[string]map[string]any{}, []string{}
	for _, c := range changes {
		queue, rest, _ := strings.Cut(c, ":")
		field, text, found := strings.Cut(rest, "=")
		if !found {
			continue
		}
		if patches[queue] == nil {
			patches[queue] = map[string]any{}
			order = append(order, queue)
		}
		var value any = text
		switch field {
		case "weight", "priority":
			if n, err := strconv.Atoi(text); err == nil {
				value = n
			}
		case "closed", "reclaimable":
			if b, err := strconv.ParseBool(text); err == nil {
				value = b
			}
		}
		if text == "" {
			value = nil
		}
		if list, what, is := strings.Cut(field, "."); is {
			amounts, _ := patches[queue][list].(map[string]any)
			if amounts == nil {
				amounts = map[string]any{}
				patches[queue][list] = amounts
			}
			amounts[what] = value
		} else {
			patches[queue][field] = value
		}
	}
	for _, queue := range order {
		patch, err := json.Marshal(map[string]any{"spec": patches[queue]})
		if err != nil {
			continue
		}
		out = append(out, "kubectl patch bq "+quoted(queue)+" --type=merge -p "+quoted(string(patch)))
	}
	return out
}

// quoted is one word of a shell.
func quoted(text string) string {
	if text != "" && strings.IndexFunc(text, func(r rune) bool {
		return !(r == '.' || r == '-' || r >= 'a' && r <= 'z' || r >= '0' && r <= '9')
	}) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
