package badinput

import (
	"strings"
	"testing"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// badOrders: whatever a Queue says of the order of its gangs, its words name the place, and gangs are admitted.
func (w *world) badOrders(t *testing.T) {
	ns := w.namespace(t)
	w.queue(t, "unordered", v1beta1.QueueSpec{Order: "label['x']"})
	for _, c := range []struct{ order, words string }{
		{"", "spec.order: column 1: undeclared reference to 'label'"},
		{`"1"`, "spec.order: column 1: it is of type string, and has to be of type int"},
		{"priority +", "spec.order: column 11: Syntax error"},
		{"9223372036854775808", "spec.order: column 1: invalid int literal"},
		{"labels.all(a, labels.all(b, labels.all(c, a == c))) ? 1 : 2", "spec.order: it is too costly"},
		{"int(annotations['a'].matches(annotations['b']) ? 1 : 2)", "the pattern of matches has to be a literal"},
		{strings.Repeat("(", 500) + "1" + strings.Repeat(")", 500), "spec.order: expression recursion limit exceeded: 32"},
	} {
		if c.order != "" {
			w.patchQueue(t, "unordered", `{"spec":{"order":`+quote(c.order)+`}}`)
		}
		w.queueCondition(t, "unordered", v1beta1.ConditionOrdered, no, v1beta1.ReasonOrderInvalid, c.words, "ordered by age")
	}
	w.queueSays(t, "unordered", yes, v1beta1.ReasonReady)
	w.group(t, ns, "g", "unordered", 1)
	w.pod(t, ns, "p", inGroup("g"))
	w.bound(t, ns, "p")

	// It compiles, and fails for each gang in another way.
	w.queue(t, "failing", v1beta1.QueueSpec{
		Order: "labels['n'] == 'zero' ? 1 / (priority - priority) : int(labels['n']) + 9223372036854775807"})
	// Else the first of them may start before it is known.
	w.queueCondition(t, "failing", v1beta1.ConditionOrdered, yes, v1beta1.ReasonOrderValid)
	for name, words := range map[string]string{
		"none": "no such key: n", "word": "type conversion error", "zero": "division by zero", "1": "integer overflow",
	} {
		if name == "none" {
			w.pod(t, ns, "o-none", label(api.LabelQueue, "failing"))
		} else {
			w.pod(t, ns, "o-"+name, label(api.LabelQueue, "failing"), label("n", name))
		}
		w.eventOn(t, "Pod", "o-"+name, `spec.order of queue "failing" fails for it, so it counts as 0`, words)
		w.bound(t, ns, "o-"+name)
	}
}

// quote writes a text without control characters as JSON.
func quote(s string) string { return `"` + strings.ReplaceAll(s, `"`, `\"`) + `"` }
