package console

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/page"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/visibility"
	"basalt.dev/basalt/api/wire"
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
	Asked    string   // queues and generations of their specs, which the changes are about
	Changed  string   // those that have another spec since, in a stream
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
	d.Commands = commandsFor(ask["change"], func(name string) *v1beta1.Queue { return s.queueFor(ctx, q, name) })
	d.Asked = s.asked(ctx, q, ask["change"])
	return d
}

// commandsFor returns the commands that would make changes, QUEUE:FIELD=VALUE each, one for each Queue. Of those that
// the viewer may get, the patch begins with a test that the spec is still of the generation that he asked about: a
// resourceVersion would not do, for each status changes it.
func commandsFor(changes []string, known func(queue string) *v1beta1.Queue) (out []string) {
	byQueue, order := map[string][]*wire.QueueChange{}, []string{}
	for _, text := range changes {
		c, err := visibility.ParseChange(text)
		if err != nil {
			continue
		}
		if byQueue[c.Queue] == nil {
			order = append(order, c.Queue)
		}
		byQueue[c.Queue] = append(byQueue[c.Queue], c)
	}
	for _, name := range order {
		kind, patch := "merge", any(map[string]any{"spec": mergePatch(byQueue[name])})
		if q := known(name); q != nil {
			kind, patch = "json", jsonPatch(q, byQueue[name])
		}
		text, err := json.Marshal(patch)
		if err != nil {
			continue
		}
		out = append(out, "kubectl patch bq "+quoted(name)+" --type="+kind+" -p "+quoted(string(text)))
	}
	return out
}

// valueOf is what a change writes, nil for nothing.
func valueOf(c *wire.QueueChange) any {
	switch c.Field {
	case "weight", "priority":
		if n, err := strconv.ParseInt(c.Value, 10, 32); err == nil {
			return n
		}
	case "closed", "reclaimable":
		if b, err := strconv.ParseBool(c.Value); err == nil {
			return b
		}
	}
	if c.Value == "" {
		return nil
	}
	return c.Value
}

func mergePatch(changes []*wire.QueueChange) map[string]any {
	spec := map[string]any{}
	for _, c := range changes {
		if c.Resource == "" {
			spec[c.Field] = valueOf(c)
			continue
		}
		amounts, _ := spec[c.Field].(map[string]any)
		if amounts == nil {
			amounts = map[string]any{}
			spec[c.Field] = amounts
		}
		amounts[c.Resource] = valueOf(c)
	}
	return spec
}

// operation is one of a JSON patch (RFC 6902). It has no value to remove something.
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// escaped is a name in a path.
var escaped = strings.NewReplacer("~", "~0", "/", "~1")

func jsonPatch(q *v1beta1.Queue, changes []*wire.QueueChange) []operation {
	ops := []operation{{"test", "/metadata/generation", q.Generation}}
	spec := map[string]any{}
	if text, err := json.Marshal(q.Spec); err != nil || json.Unmarshal(text, &spec) != nil || len(spec) == 0 {
		return append(ops, operation{"add", "/spec", without(mergePatch(changes))}) // it may not even be there
	}
	for _, c := range changes {
		in, path, key := spec, "/spec/"+escaped.Replace(c.Field), c.Field
		if c.Resource != "" {
			amounts, _ := spec[c.Field].(map[string]any)
			if amounts == nil {
				if c.Value != "" {
					ops = append(ops, operation{"add", path, map[string]any{c.Resource: c.Value}})
					spec[c.Field] = map[string]any{c.Resource: c.Value}
				}
				continue
			}
			in, path, key = amounts, path+"/"+escaped.Replace(c.Resource), c.Resource
		}
		_, had := in[key]
		switch value := valueOf(c); {
		case value != nil:
			ops = append(ops, operation{"add", path, value})
			in[key] = value
		case had:
			ops = append(ops, operation{Op: "remove", Path: path})
			delete(in, key)
		}
	}
	return ops
}

// without is a patch to merge as an object: what it would remove is not there.
func without(spec map[string]any) map[string]any {
	for key, value := range spec {
		if amounts, is := value.(map[string]any); is {
			value = without(amounts)
			if len(amounts) == 0 {
				value = nil
			}
		}
		if value == nil {
			delete(spec, key)
		}
	}
	return spec
}

// queueFor returns a Queue as it is, nil if it is not known or the viewer may not get it.
func (s *server) queueFor(ctx context.Context, q *query, name string) *v1beta1.Queue {
	if !s.mayQueues || q.viewer.may(ctx, getQueue(name), q.reviews) != nil {
		return nil
	}
	return s.objects.queue(name)
}

// asked names the queues that changes are about and that the viewer may get, with the generations of their specs.
func (s *server) asked(ctx context.Context, q *query, changes []string) string {
	var out []string
	for _, text := range changes {
		if c, err := visibility.ParseChange(text); err == nil {
			if is := s.queueFor(ctx, q, c.Queue); is != nil {
				out = append(out, fmt.Sprintf("%s@%d", c.Queue, is.Generation))
			}
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Compact(out), ",")
}

// changedSince says which of the queues that were asked about have another spec now.
func (s *server) changedSince(ctx context.Context, q *query) string {
	var changed []string
	all := strings.Split(q.values.Get("asked"), ",")
	for _, each := range all[:min(len(all), maxChanges)] { // each costs a review
		name, text, _ := strings.Cut(each, "@")
		generation, err := strconv.ParseInt(text, 10, 64)
		if err != nil || api.ValidatePath(name) != nil {
			continue
		}
		if is := s.queueFor(ctx, q, name); is != nil && is.Generation != generation {
			changed = append(changed, name)
		}
	}
	return strings.Join(changed, ", ")
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
