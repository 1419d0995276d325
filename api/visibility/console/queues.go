package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/visibility"
)

// queuesData is what the page of all queues shows.
type queuesData struct {
	Namespace string // whose queues they are; empty for all that there are
	Ask       bool   // name a namespace first
	Resources []link
	Resource  string
	Rows      []queueRow
	More      int
	Under     string // only those below it
	Whole     string // URL of the tree without folding, if it is folded
	Oldest    bool   // the gangs that wait for longest are shown
}

// queueRow is a queue in the tree.
type queueRow struct {
	Name, Short, URL  string
	Depth             int
	Ready, Message    string
	OK                bool
	Admitted, Waiting int
	Bar               *bar
	Balance           string
	Oldest            *oldestRow
	Folded            int // queues below it that are not shown
	FoldURL           string
}

// oldestRow is the gang that waits for longest in a queue or below it, of those that the viewer may list.
type oldestRow struct {
	Name, URL string
	Since     time.Time
}

// bar is what a queue has of one resource, as a picture and in words.
type bar struct {
	visibility.QueueResource
	Has, Want      string // lengths, in percent
	GuaranteeAt    string // marks; "" for none
	DeservedAt     string
	FairAt         string
	CapabilityAt   string
	Over           bool // more is wanted than the picture has room for
	Words          string
	BalanceOfQueue string
	Day            *lines // of the last day
}

func barOf(r visibility.QueueResource) *bar {
	b := &bar{QueueResource: r}
	charged, wanted, limit := number(r.Charged), number(r.Wanted), number(r.Capability)
	deserved, guarantee, fair := number(r.Deserved), number(r.Guarantee), number(r.FairShare)
	whole := max(charged, limit, deserved, guarantee, fair)
	b.Over = whole > 0 && wanted > whole*1.5
	whole = max(whole, min(wanted, whole*1.5))
	if whole == 0 {
		whole = wanted
	}
	at := func(text string, amount float64) string {
		if text == "" {
			return ""
		}
		return percent(amount, whole)
	}
	b.Has, b.Want = percent(charged, whole), percent(max(0, wanted-charged), whole)
	b.GuaranteeAt, b.DeservedAt = at(r.Guarantee, guarantee), at(r.Deserved, deserved)
	b.FairAt, b.CapabilityAt = at(r.FairShare, fair), at(r.Capability, limit)
	words := []string{"charged " + orZero(r.Charged)}
	for _, more := range []struct{ what, amount string }{{"capability", r.Capability}, {"guarantee", r.Guarantee},
		{"deserves", r.Deserved}, {"fair share", r.FairShare}, {"wants", r.Wanted}, {"yielding", r.Yielding},
		{"promised", r.Promised}} {
		if more.amount != "" {
			words = append(words, more.what+" "+more.amount)
		}
	}
	b.Words = strings.Join(words, ", ")
	return b
}

func orZero(amount string) string {
	if amount == "" {
		return "0"
	}
	return amount
}

// balanceOf says what a queue has above what it deserves, or leaves to others.
func balanceOf(r visibility.QueueResource) string {
	if r.Deserved == "" {
		return ""
	}
	more, err := difference(r.Resource, orZero(r.Charged), r.Deserved)
	switch {
	case err != nil || more == 0:
		return ""
	case more > 0:
		return "borrows " + api.FormatAmount(r.Resource, more)
	case number(r.Wanted) > number(r.Charged):
		return "misses " + api.FormatAmount(r.Resource, -more)
	}
	return "lends " + api.FormatAmount(r.Resource, -more)
}

func difference(what, a, b string) (int64, error) {
	one, err := amount(what, a)
	if err != nil {
		return 0, err
	}
	two, err := amount(what, b)
	return one - two, err
}

// queues is the page of all queues that the viewer may list, or that a namespace may use.
func (s *server) queues(ctx context.Context, q *query) (*view, error) {
	d := &queuesData{Resource: q.values.Get("resource"), Under: q.values.Get("under")}
	out := &view{Title: "Queues", Body: "queues", Data: d}
	if d.Under != "" {
		if err := api.ValidatePath(d.Under); err != nil {
			return nil, problem{http.StatusBadRequest, err.Error()}
		}
	}
	var all []*visibility.WhyQueue
	err := q.viewer.may(ctx, listQueues, q.reviews)
	switch {
	case err == nil && s.mayQueues:
		if err := until(ctx, s.objects.followQueues(s.ctx)); err != nil {
			return nil, err
		}
		for _, each := range s.objects.tree() {
			all = append(all, visibility.OfQueue(each))
		}
	case err != nil && !isCode(err, http.StatusForbidden):
		return nil, err
	default:
		if d.Namespace = s.namespaceOf(q); d.Namespace == "" {
			d.Ask = true
			return out, nil
		}
		said, err := recall(
			q.memo,
			"queues",
			"",
			usual.streamIdle,
			usual.streamIdle,
			func() (*visibility.UsableQueues, error) {
				var said visibility.UsableQueues
				return &said, s.ask(ctx, q.viewer, "/namespaces/"+url.PathEscape(d.Namespace)+"/queues", &said)
			},
		)
		if err != nil {
			return nil, err
		}
		for _, each := range said.Queues {
			all = append(all, &visibility.WhyQueue{QueueStands: each})
		}
		d.More = said.MoreQueues
	}
	d.fill(q, all)
	s.oldest(ctx, q, d)
	return out, nil
}

// oldest fills in the gangs that wait for longest: of all, or of the namespace that the page is about.
func (s *server) oldest(ctx context.Context, q *query, d *queuesData) {
	in := scope{all: d.Namespace == "" && s.mayAll}
	if !in.all || q.viewer.may(ctx, listGangs(""), q.reviews) != nil {
		in = scope{names: []string{s.namespaceOf(q)}}
		if in.names[0] == "" || q.viewer.may(ctx, listGangs(in.names[0]), q.reviews) != nil {
			return
		}
	}
	if s.watched(ctx, in) != nil {
		return // it is not read yet
	}
	d.Oldest = true
	waits := s.objects.oldestOf(in)
	for i := range d.Rows {
		if g := waits[d.Rows[i].Name]; g != nil {
			d.Rows[i].Oldest = &oldestRow{g.Namespace + "/" + g.Name, gangURL(g.Namespace, g.Name), g.CreationTimestamp.Time}
		}
	}
}

// namespaceOf returns the first namespace that a request names, else that of the viewer, "" for none.
func (s *server) namespaceOf(q *query) string {
	for _, list := range q.values["n"] {
		for _, name := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
			if len(validation.IsDNS1123Label(name)) == 0 {
				return name
			}
		}
	}
	return q.viewer.namespace
}

// fill makes the rows, of a tree that is folded where it is large.
func (d *queuesData) fill(q *query, all []*visibility.WhyQueue) {
	if d.Under != "" {
		all = slices.DeleteFunc(all, func(w *visibility.WhyQueue) bool { return !api.Under(w.Queue, d.Under) })
	}
	names := map[string]bool{}
	for _, w := range all {
		for _, r := range w.Amounts {
			names[r.Resource] = true
		}
	}
	to := func(key, value string) string {
		v := url.Values{}
		for _, k := range []string{"n", "resource", "under", "all"} {
			if was := q.values.Get(k); was != "" {
				v.Set(k, was)
			}
		}
		v.Set(key, value)
		return "/queues?" + v.Encode()
	}
	if !names[d.Resource] {
		if d.Resource = ""; names["cpu"] {
			d.Resource = "cpu"
		}
	}
	for _, what := range api.SortedKeys(names) {
		if d.Resource == "" {
			d.Resource = what
		}
		d.Resources = append(d.Resources, link{what, to("resource", what), what == d.Resource})
	}
	slices.SortStableFunc(all, func(a, b *visibility.WhyQueue) int { return comparePaths(a.Queue, b.Queue) })
	deepest, folded := d.depth(q, all)
	if folded {
		d.Whole = to("all", "1")
	}
	for _, w := range all {
		depth := depthOf(w.Queue) - depthOf(d.Under)
		if d.Under == "" {
			depth = depthOf(w.Queue)
		}
		if depth > deepest {
			if n := len(d.Rows); n > 0 && api.Under(w.Queue, d.Rows[n-1].Name) {
				d.Rows[n-1].Folded++
				d.Rows[n-1].FoldURL = to("under", d.Rows[n-1].Name)
			}
			continue
		}
		if len(d.Rows) >= maxTree {
			d.More++
			continue
		}
		d.Rows = append(d.Rows, queueRowOf(w, depth, d.Resource, d.Namespace))
	}
}

// depth returns how deep a tree is shown, and whether that folds some of it.
func (d *queuesData) depth(q *query, all []*visibility.WhyQueue) (deepest int, folded bool) {
	if len(all) <= rowsOfQueues || q.values.Get("all") != "" {
		return 100, false
	}
	base := 0
	if d.Under != "" {
		base = depthOf(d.Under)
	}
	for deepest = 1; ; deepest++ {
		n := 0
		for _, w := range all {
			if depthOf(w.Queue)-base <= deepest+1 {
				n++
			}
		}
		if n > rowsOfQueues || n == len(all) {
			return deepest, true
		}
	}
}

// depthOf returns how far below root a queue is.
func depthOf(name string) int {
	if name == api.RootQueue || name == "" {
		return 0
	}
	return strings.Count(name, ".") + 1
}

func queueRowOf(w *visibility.WhyQueue, depth int, resource, namespace string) queueRow {
	row := queueRow{Name: w.Queue, Short: w.Queue[strings.LastIndex(w.Queue, ".")+1:], Depth: depth,
		URL:   "/queues/" + url.PathEscape(w.Queue),
		Ready: w.Ready, OK: w.Ready == v1beta1.ReasonReady, Admitted: w.Admitted, Waiting: w.Waiting}
	if namespace != "" {
		row.URL = queueURL(w.Queue, namespace)
	}
	if w.Message != v1beta1.MessageReady {
		row.Message = w.Message
	}
	for _, r := range w.Amounts {
		if r.Resource == resource {
			row.Bar = barOf(r)
			row.Balance = balanceOf(r)
		}
	}
	return row
}

// queueData is what the page of a queue shows.
type queueData struct {
	Name, Namespace string
	Path            []link
	Counts          string
	Ready, Message  string
	OK              bool
	Trouble         string
	Rows            []visibility.Row
	Bars            []*bar
	Above           []queueRow
	Below           []queueRow
	Siblings        []string
	Gangs           string // URL
	History         bool
	WhatIf          *whatIfData
}

// queue is the page of one.
func (s *server) queue(ctx context.Context, q *query) (*view, error) {
	name := q.PathValue("name")
	if err := api.ValidatePath(name); err != nil {
		return nil, problem{http.StatusBadRequest, err.Error()}
	}
	d := &queueData{Name: name, Namespace: s.namespaceOf(q)}
	err := q.viewer.may(ctx, getQueue(name), q.reviews)
	mayGet := err == nil
	if err != nil && (!isCode(err, http.StatusForbidden) || d.Namespace == "") {
		return nil, err
	}
	var object *v1beta1.Queue
	if mayGet && s.mayQueues && until(ctx, s.objects.followQueues(s.ctx)) == nil {
		object = s.objects.queue(name)
	}
	said, err := recall(q.memo, "queue", "", whyChanged, whyChanged, func() (*visibility.WhyQueue, error) {
		var said visibility.WhyQueue
		path := "/queues/" + url.PathEscape(name) + "/why"
		if !mayGet {
			path = "/namespaces/" + url.PathEscape(d.Namespace) + path
		}
		return &said, s.ask(ctx, q.viewer, path, &said)
	})
	switch {
	case isFinal(err), err != nil && object == nil:
		return nil, err
	case err != nil:
		d.Trouble, said = problemOf(err).text, visibility.OfQueue(object)
	}
	d.tell(said)
	for _, b := range d.Bars {
		if b.Day = s.history.of(name, b.Resource, time.Now()); !mayGet {
			b.Day = nil
		}
		d.History = d.History || b.Day != nil
	}
	if mayGet && s.mayQueues && q.viewer.may(ctx, listQueues, q.reviews) == nil {
		s.around(d)
	}
	for _, above := range said.Ancestors {
		d.Above = append(d.Above, queueRowOf(&visibility.WhyQueue{QueueStands: above}, 0, "cpu", d.Namespace))
	}
	v := url.Values{"text": {name}}
	if n := q.values.Get("n"); n != "" {
		v.Set("n", n)
	}
	d.Gangs = "/work?" + v.Encode()
	if q.stream {
		d.WhatIf = &whatIfData{Kept: true, Changed: s.changedSince(ctx, q)}
	} else {
		in := ""
		if !mayGet {
			in = d.Namespace
		}
		d.WhatIf = s.whatIf(ctx, q, in, url.Values{"queue": {name}})
	}
	return &view{Title: name, Body: "queue", Data: d, Asked: d.WhatIf.Asked}, nil
}

// tell fills in what Basalt said.
func (d *queueData) tell(said *visibility.WhyQueue) {
	d.Counts, d.Ready, d.Message, d.OK = said.Counts(), said.Ready, said.Message, said.Ready == v1beta1.ReasonReady
	d.Rows = said.Rows(time.Now())
	for _, r := range said.Amounts {
		b := barOf(r)
		b.BalanceOfQueue = balanceOf(r)
		d.Bars = append(d.Bars, b)
	}
	parts := strings.Split(d.Name, ".")
	for i := range parts[:len(parts)-1] {
		above := strings.Join(parts[:i+1], ".")
		to := "/queues/" + url.PathEscape(above)
		if d.Namespace != "" {
			to = queueURL(above, d.Namespace)
		}
		d.Path = append(d.Path, link{Text: above, URL: to})
	}
}

// maxAround bounds how many queues beside and below one are shown with it.
const maxAround = 200

// around fills in the queues below one, and who beside it borrows or lends.
func (s *server) around(d *queueData) {
	borrows, lends := map[string][]string{}, map[string][]string{}
	for _, each := range s.objects.tree() {
		parent := api.Parent(each.Name)
		if parent == d.Name && len(d.Below) < maxAround {
			d.Below = append(d.Below, queueRowOf(visibility.OfQueue(each), 0, "cpu", ""))
		}
		if parent != api.Parent(d.Name) || each.Name == api.RootQueue {
			continue
		}
		for _, r := range visibility.OfQueue(each).Amounts {
			switch words := balanceOf(r); {
			case strings.HasPrefix(words, "borrows ") && len(borrows[r.Resource]) < maxAround:
				borrows[r.Resource] = append(borrows[r.Resource], each.Name+" "+words)
			case words != "" && len(lends[r.Resource]) < maxAround:
				lends[r.Resource] = append(lends[r.Resource], each.Name+" "+words)
			}
		}
	}
	for _, what := range api.SortedKeys(borrows) {
		words := what + ": " + strings.Join(borrows[what], ", ")
		if from := lends[what]; len(from) > 0 {
			words += "; " + strings.Join(from, ", ")
		}
		d.Siblings = append(d.Siblings, words)
	}
}

// amount reads one in the unit of its resource.
func amount(what, text string) (int64, error) {
	q, err := parseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", what, err)
	}
	return api.FromQuantity(what, q, true)
}
