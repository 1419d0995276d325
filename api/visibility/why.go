package visibility

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// Why says why a gang waits. It is the answer in JSON; fields may be added.
type Why struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"` // as it was asked for

	Gang    string `json:"gang,omitempty"` // "PodGroup ns/name"; "pod ns/name" for a pod without one
	Queue   string `json:"queue,omitempty"`
	State   string `json:"state,omitempty"`
	Started bool   `json:"started"`           // it had its minimum once
	Evicted string `json:"evicted,omitempty"` // why it was evicted for another gang, until it starts again

	Reason  string `json:"reason,omitempty"`  // as in the conditions; empty for a gang that waits for nothing
	Message string `json:"message,omitempty"` // likewise
	Next    string `json:"next,omitempty"`    // what happens next
	Note    string `json:"note,omitempty"`    // what its first pod says that nobody heeds

	Created  time.Time  `json:"created"`
	Complete *time.Time `json:"complete,omitempty"` // when its minimum of pods could be scheduled

	Pods     int `json:"pods"`
	Bound    int `json:"bound"`
	MinCount int `json:"minCount"`

	Position int `json:"position,omitempty"` // among the gangs of its queue that wait
	Waiting  int `json:"waiting,omitempty"`  // how many these are

	Order       *int64 `json:"order,omitempty"`       // the value of its queue's spec.order for it, if there is one
	OrderFailed string `json:"orderFailed,omitempty"` // why that fails for it: it counts as 0

	Limit   string     `json:"limit,omitempty"`   // how long it runs at most
	LimitBy string     `json:"limitBy,omitempty"` // and who says so
	Ends    *time.Time `json:"ends,omitempty"`    // it is past its limit then, at the latest

	Charged map[string]string `json:"charged,omitempty"`
	Lacks   *Lack             `json:"lacks,omitempty"`
	Nodes   *Nodes            `json:"nodes,omitempty"`

	Standing
}

// Lack is what keeps a gang from being admitted: a lack of quota, or of room on the nodes.
type Lack struct {
	Queue    string `json:"queue"` // of the path; empty if the nodes lack it
	Resource string `json:"resource"`
	Amount   string `json:"amount"`
}

func (l *Lack) String() string {
	if l.Queue == "" {
		return fmt.Sprintf("the nodes lack %s=%s", l.Resource, l.Amount)
	}
	if l.Resource == api.ResourceGangs {
		return fmt.Sprintf("queue %q runs as many gangs as it may", l.Queue)
	}
	return fmt.Sprintf("queue %q lacks %s=%s", l.Queue, l.Resource, l.Amount)
}

// Nodes says why nodes do not take one of the gang's pods.
type Nodes struct {
	Total   int          `json:"total"`
	Fit     int          `json:"fit"`
	Reasons []NodeReason `json:"reasons,omitempty"`

	Needed int      `json:"needed,omitempty"` // pods for which there has to be room
	By     []RoomBy `json:"by,omitempty"`     // when there is room for more of them, by the limits of what runs there
}

// RoomBy is for how many pods in all there is room by a time.
type RoomBy struct {
	At   *time.Time `json:"at,omitempty"` // now, if it is not said
	Pods int        `json:"pods"`
}

// NodeReason is why so many nodes do not take a pod.
type NodeReason struct {
	Reason string `json:"reason"`
	Nodes  int    `json:"nodes"`
}

// FromReply makes a Why of what a shard said.
func FromReply(namespace, name string, r *wire.WhyReply) *Why {
	w := &Why{
		Namespace: namespace, Name: name,
		Gang: r.GetTitle(), Queue: r.GetQueue(), State: r.GetState(), Started: r.GetStarted(), Evicted: r.GetEvicted(),
		Reason: r.GetReason(), Message: r.GetMessage(), Next: r.GetNext(), Note: r.GetNote(),
		Created: time.UnixMilli(r.GetCreatedUnixMs()).UTC(),
		Pods:    int(r.GetPods()), Bound: int(r.GetBound()), MinCount: int(r.GetMinCount()),
		Position: int(r.GetPosition()), Waiting: int(r.GetWaiting()), Order: r.Order, OrderFailed: r.GetOrderFailed(),
	}
	if ms := r.GetCompleteUnixMs(); ms > 0 {
		at := time.UnixMilli(ms).UTC()
		w.Complete = &at
	}
	if ms := r.GetLimitMs(); ms > 0 {
		w.Limit, w.LimitBy = (time.Duration(ms) * time.Millisecond).String(), r.GetLimitBy()
	}
	if ms := r.GetEndsUnixMs(); ms > 0 {
		at := time.UnixMilli(ms).UTC()
		w.Ends = &at
	}
	for _, a := range r.GetCharged() {
		if w.Charged == nil {
			w.Charged = map[string]string{}
		}
		w.Charged[a.GetResource()] = api.FormatAmount(a.GetResource(), a.GetValue())
	}
	if r.GetShort() > 0 {
		w.Lacks = &Lack{r.GetShortQueue(), r.GetShortResource(), api.FormatAmount(r.GetShortResource(), r.GetShort())}
	}
	if r.GetNodes() > 0 {
		w.Nodes = &Nodes{Total: int(r.GetNodes()), Fit: int(r.GetFit())}
		for _, n := range r.GetNodeReasons() {
			w.Nodes.Reasons = append(w.Nodes.Reasons, NodeReason{n.GetReason(), int(n.GetNodes())})
		}
		w.Nodes.Needed, w.Nodes.By = int(r.GetMissing()), roomBy(r.GetRoomBy())
	}
	return w
}

// OfEnded returns what there is to say of a pod that has ended, nil for one that has not: no shard keeps one.
func OfEnded(p *corev1.Pod) *wire.WhyReply {
	if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
		return nil
	}
	end, words := api.EndOf(p), "it failed"
	if end.Succeeded {
		words = "it succeeded"
	}
	if end.At > 0 {
		words += " at " + time.Unix(end.At, 0).UTC().Format(time.RFC3339)
	}
	for _, more := range []string{p.Status.Reason, p.Status.Message} {
		if more != "" && !end.Succeeded {
			words += ": " + more
		}
	}
	return &wire.WhyReply{Known: true, Title: fmt.Sprintf("pod %s/%s", p.Namespace, p.Name),
		Started: p.Spec.NodeName != "", Reason: v1beta1.ReasonFinished, Message: api.Shorten(words, maxMessage),
		CreatedUnixMs: p.CreationTimestamp.UnixMilli(), Pods: 1, MinCount: 1}
}

// OfPodGroup returns what the status of a PodGroup says.
func OfPodGroup(g *v1beta1.PodGroup) *Why {
	w := &Why{Namespace: g.Namespace, Name: g.Name, Gang: "PodGroup " + g.Namespace + "/" + g.Name,
		Queue: g.Spec.Queue, Created: g.CreationTimestamp.Time, MinCount: int(g.Spec.SchedulingPolicy.Gang.MinCount)}
	s := g.Status
	if s == nil {
		w.Message = "Basalt has not seen it yet"
		return w
	}
	w.Queue, w.Pods, w.Bound, w.Position = s.Queue, int(s.Pods), int(s.Bound), int(s.Position)
	w.Reason, w.Message = s.Reason, s.Message
	w.Started = meta.IsStatusConditionTrue(s.Conditions, v1beta1.ConditionPodGroupInitiallyScheduled)
	return w
}

// Line says it in one line.
func (w *Why) Line() string {
	gang := w.Gang
	if gang == "" {
		gang = w.Namespace + "/" + w.Name
	}
	return gang + " " + w.Stands()
}

// Stands says the same without the name of the gang.
func (w *Why) Stands() string {
	switch {
	case w.Reason == v1beta1.ReasonFinished:
		return "has finished: " + w.Message
	case w.Started && w.Message == "":
		return fmt.Sprintf("has started: %d of %d pods are bound", w.Bound, w.Pods)
	case w.Started:
		return "has started, and further pods wait: " + w.Message
	}
	return "waits: " + w.Message
}

// Row is one thing that an answer says, for people.
type Row struct {
	What string // in one word; empty for one that goes on with the row before
	Text string
}

// rows are collected by the functions that say an answer.
type rows []Row

func (r *rows) add(what, format string, args ...any) {
	*r = append(*r, Row{what, fmt.Sprintf(format, args...)})
}

func (r rows) write(b *strings.Builder) {
	for _, row := range r {
		fmt.Fprintf(b, "  %-8s %s\n", row.What, row.Text)
	}
}

// Text says all of it, for people. Wide names every reason of the nodes.
func (w *Why) Text(now time.Time, wide bool) string {
	var b strings.Builder
	fmt.Fprintln(&b, w.Line())
	rows(w.Rows(now, wide)).write(&b)
	return b.String()
}

// Rows says all but what Line says.
func (w *Why) Rows(now time.Time, wide bool) []Row {
	var out rows
	row := out.add
	since := fmt.Sprintf("%s (%s ago)", w.Created.Format(time.RFC3339), ago(now, w.Created))
	if w.Complete != nil {
		since += fmt.Sprintf(", complete for %s", ago(now, *w.Complete))
	}
	row("since", "%s", since)
	if w.Reason != v1beta1.ReasonFinished {
		row("pods", "%d exist, %d are bound, %d start together", w.Pods, w.Bound, w.MinCount)
	}
	if w.Queue != "" {
		row("queue", "%s", w.Queue)
	}
	switch {
	case w.Ends != nil && now.After(*w.Ends):
		row("limit", "past it since %s: it is evicted before others that are not", ago(now, *w.Ends))
	case w.Ends != nil:
		row("limit", "past it at %s", w.Ends.Format(time.RFC3339))
	case w.Limit != "":
		row("limit", "%s (%s)", w.Limit, w.LimitBy)
	}
	if words := placeOf(w.Position, w.Waiting, w.Order, w.OrderFailed); words != "" {
		row("order", "%s", words)
	}
	for _, line := range w.lines() {
		row("turn", "%s", line)
	}
	if w.Evicted != "" {
		row("evicted", "%s", strings.TrimPrefix(w.Evicted, "evicted "))
	}
	if l := w.Lacks; l != nil && l.Queue == "" {
		row("supply", "%s", l)
	} else if l != nil {
		row("quota", "%s", l)
	}
	for i, what := range api.SortedKeys(w.Charged) {
		if i == 0 {
			row("charged", "%s=%s", what, w.Charged[what])
		} else {
			row("", "%s=%s", what, w.Charged[what])
		}
	}
	if n := w.Nodes; n != nil {
		row("nodes", "%d of %d take one of its pods now", n.Fit, n.Total)
		for i, r := range n.Reasons {
			if i == shownReasons && !wide {
				row("", "and %d other reasons (-o wide)", len(n.Reasons)-i)
				break
			}
			row("", "%d %s", r.Nodes, r.Reason)
		}
	}
	if words := w.roomBy(now); words != "" {
		row("room", "%s", words)
	}
	if words := w.kept(); words != "" {
		row("kept", "%s", words)
	}
	if words := w.evictions(now); words != "" {
		row("claims", "%s", words)
	}
	if w.Note != "" {
		row("note", "%s", w.Note)
	}
	if w.Next != "" {
		row("next", "%s", w.Next)
	}
	return out
}

// placeOf says the place of a gang among those of its queue, "" for one that does not wait, and why that may be so.
func placeOf(position, waiting int, order *int64, failed string) (words string) {
	switch {
	case position == 0:
		return ""
	case waiting > 1:
		words = fmt.Sprintf("%s of the %d gangs that wait in its queue", ordinal(position), waiting)
	case position > 1:
		words = fmt.Sprintf("%s of the gangs that wait in its queue", ordinal(position))
	default:
		words = "first in its queue"
	}
	switch {
	case failed != "":
		words += " (spec.order fails for it and counts as 0: " + failed + ")"
	case order != nil:
		words += fmt.Sprintf(" (spec.order: %d)", *order)
	}
	return words
}

// shownReasons is how many reasons of nodes are shown without -o wide.
const shownReasons = 5

func ago(now, then time.Time) string {
	d := max(0, now.Sub(then))
	if d >= time.Minute {
		return d.Round(time.Second).String()
	}
	return d.Round(100 * time.Millisecond).String()
}

func ordinal(n int) string {
	suffix := "th"
	switch {
	case n%100 >= 11 && n%100 <= 13:
	case n%10 == 1:
		suffix = "st"
	case n%10 == 2:
		suffix = "nd"
	case n%10 == 3:
		suffix = "rd"
	}
	return fmt.Sprint(n, suffix)
}
