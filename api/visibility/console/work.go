package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/validation"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/visibility"
)

// workData is what the page My work shows.
type workData struct {
	Scope  scope
	Ask    bool   // no namespace is known, and not all may be listed
	Named  string // the namespaces, as they are typed
	Refuse string // why those that were asked for are not shown

	Text, Show, Reason, Sort string
	Counts                   []count
	Reasons                  []string
	Sorts                    []link

	Gangs   []gangRow
	Found   int
	From    int // number of the first row,
	To      int // and of the last
	Prev    string
	Next    string
	Left    int // gangs that are not kept at all
	Singles []singleRow
	More    bool // of these
	Namely  bool // rows name their namespace

	Plan   *whatIfData // a gang that does not exist
	PlanIn string      // namespace
}

type count struct {
	State, Label, URL string
	N                 int
	Here              bool
}

// gangRow is a gang in a list.
type gangRow struct {
	Namespace, Name, URL string
	Queue, QueueURL      string
	State, Word          string
	Says                 string
	Place                string
	Pods, Bound, Min     int
	Part                 string // of the minimum that is bound, in percent
	Created              time.Time
}

// States of a gang, and words for them.
const (
	stateWaits    = "waits"
	stateRuns     = "runs"
	stateEvicted  = "evicted"
	stateFinished = "finished"
)

var states = []string{stateWaits, stateRuns, stateEvicted, stateFinished}

// stateOf returns the state of a gang.
func stateOf(g *v1beta1.PodGroup) string {
	s := g.Status
	switch {
	case s == nil:
		return stateWaits
	case s.Reason == v1beta1.ReasonFinished:
		return stateFinished
	case condition(g, v1beta1.ConditionDisruptionTarget) != nil:
		return stateEvicted
	case condition(g, v1beta1.ConditionPodGroupInitiallyScheduled) != nil && s.Bound > 0:
		return stateRuns
	}
	return stateWaits
}

// condition returns a condition of a gang that is True, nil if there is none.
func condition(g *v1beta1.PodGroup, kind string) *metav1.Condition {
	if g.Status == nil {
		return nil
	}
	for i := range g.Status.Conditions {
		if c := &g.Status.Conditions[i]; c.Type == kind && c.Status == metav1.ConditionTrue {
			return c
		}
	}
	return nil
}

func rowOf(g *v1beta1.PodGroup) gangRow {
	w := visibility.OfPodGroup(g)
	row := gangRow{Namespace: g.Namespace, Name: g.Name, URL: gangURL(g.Namespace, g.Name), Queue: w.Queue,
		State: stateOf(g), Says: beside(w.Stands()), Pods: w.Pods, Bound: w.Bound, Min: w.MinCount, Created: w.Created,
		Part: percent(float64(w.Bound), float64(max(1, w.MinCount)))}
	if row.Queue != "" {
		row.QueueURL = queueURL(row.Queue, g.Namespace)
	}
	if w.Position > 0 {
		row.Place = strconv.Itoa(w.Position)
	}
	return row
}

// beside is what a gang does without the verb, for a row that shows its state as well.
func beside(says string) string {
	for _, verb := range []string{"waits: ", "has finished: ", "has started: ", "has started, and "} {
		if rest, is := strings.CutPrefix(says, verb); is {
			return rest
		}
	}
	return says
}

// scopeOf decides whose gangs a page is about: those of the namespaces that are named, else of all, else of the
// viewer's own. Each was reviewed.
func (s *server) scopeOf(ctx context.Context, q *query) (in scope, none bool, err error) {
	for _, list := range q.values["n"] {
		for _, name := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' }) {
			if len(validation.IsDNS1123Label(name)) > 0 {
				return in, false, problem{http.StatusBadRequest, fmt.Sprintf("%q is no namespace", api.Shorten(name, 80))}
			}
			in.names = append(in.names, name)
		}
	}
	slices.Sort(in.names)
	in.names = slices.Compact(in.names)
	if len(in.names) > maxNamespaces {
		return in, false, problem{http.StatusBadRequest, fmt.Sprintf("at most %d namespaces are shown", maxNamespaces)}
	}
	if len(in.names) == 0 {
		err := q.viewer.may(ctx, listGangs(""), q.reviews)
		switch {
		case err == nil:
			return scope{all: true}, false, nil
		case !isCode(err, http.StatusForbidden):
			return in, false, err
		case q.viewer.namespace == "":
			return in, true, nil
		}
		in.names = []string{q.viewer.namespace}
	}
	for _, name := range in.names {
		err := q.viewer.may(ctx, listGangs(name), q.reviews)
		if isCode(err, http.StatusForbidden) && q.viewer.may(ctx, listGangs(""), q.reviews) == nil {
			err = nil
		}
		if err != nil {
			return in, false, err
		}
	}
	return in, false, nil
}

// watched waits until the gangs of a scope have been read.
func (s *server) watched(ctx context.Context, in scope) error {
	names := in.names
	if in.all || s.mayAll {
		names = []string{""}
	}
	for _, name := range names {
		read, err := s.objects.follow(s.ctx, name)
		if err == nil {
			err = until(ctx, read)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// work is the page My work.
func (s *server) work(ctx context.Context, q *query) (*view, error) {
	in, none, err := s.scopeOf(ctx, q)
	d := &workData{Scope: in, Ask: none, Named: strings.Join(in.names, " "), Namely: in.all || len(in.names) > 1,
		Text: api.Shorten(strings.TrimSpace(q.values.Get("text")), 80), Show: q.values.Get("show"),
		Reason: q.values.Get("reason"), Sort: q.values.Get("sort")}
	out := &view{Title: "My work", Body: "work", Data: d}
	switch {
	case isCode(err, http.StatusForbidden) && !q.stream: // with a form to name another one
		d.Ask, d.Refuse, out.Code = true, err.Error(), http.StatusForbidden
		return out, nil
	case err != nil:
		return nil, err
	case none:
		return out, nil
	}
	if q.memo.said == nil {
		q.memo.said = map[string]remembered{}
	}
	q.memo.said["scope"] = remembered{value: in}
	if err := s.watched(ctx, in); err != nil {
		return nil, err
	}
	all, left := s.objects.list(in)
	if in.all {
		d.Left = left
	}
	s.pick(d, q, all)
	s.singles(ctx, q, d)
	if s.planned(ctx, q, d); d.Plan != nil {
		out.Asked = d.Plan.Asked
	}
	return out, nil
}

// pick fills in the rows of one page, and what there is to choose.
func (s *server) pick(d *workData, q *query, all []*v1beta1.PodGroup) {
	if !slices.Contains(states, d.Show) {
		d.Show = ""
	}
	counts, reasons := map[string]int{}, map[string]bool{}
	var found []*v1beta1.PodGroup
	for _, g := range all {
		state, reason := stateOf(g), ""
		if g.Status != nil {
			reason = g.Status.Reason
		}
		if d.Text != "" && !matches(g, d.Text) {
			continue
		}
		counts[state]++
		if state == stateWaits && reason != "" && len(reasons) < 40 {
			reasons[reason] = true
		}
		if (d.Show == "" || d.Show == state) && (d.Reason == "" || d.Reason == reason) {
			found = append(found, g)
		}
	}
	to := func(key, value string) string {
		v := url.Values{}
		for _, k := range []string{"n", "text", "show", "reason", "sort"} {
			for _, was := range q.values[k] {
				if was != "" {
					v.Add(k, was)
				}
			}
		}
		if v.Set(key, value); value == "" {
			v.Del(key)
		}
		return "/work?" + v.Encode()
	}
	total := 0
	for _, n := range counts {
		total += n
	}
	d.Counts = append(d.Counts, count{"", "all", to("show", ""), total, d.Show == ""})
	for _, state := range states {
		d.Counts = append(d.Counts, count{state, state, to("show", state), counts[state], d.Show == state})
	}
	for reason := range reasons {
		d.Reasons = append(d.Reasons, reason)
	}
	if d.Reason != "" && !reasons[d.Reason] {
		d.Reasons = append(d.Reasons, api.Shorten(d.Reason, 80))
	}
	slices.Sort(d.Reasons)
	d.order(to, &found)

	d.Found = len(found)
	page, _ := strconv.Atoi(q.values.Get("page"))
	page = min(max(1, page), max(1, (len(found)+rowsOfPage-1)/rowsOfPage))
	from := (page - 1) * rowsOfPage
	d.From = from + 1
	for _, g := range found[from:min(len(found), from+rowsOfPage)] {
		d.Gangs = append(d.Gangs, rowOf(g))
	}
	d.To = from + len(d.Gangs)
	if page > 1 {
		d.Prev = to("page", strconv.Itoa(page-1))
	}
	if from+rowsOfPage < len(found) {
		d.Next = to("page", strconv.Itoa(page+1))
	}
}

// order sorts what was found, as the viewer asks. Rows keep their order while gangs change: no order is by what changes
// but the one by place.
func (d *workData) order(to func(key, value string) string, found *[]*v1beta1.PodGroup) {
	orders := map[string]func(a, b *v1beta1.PodGroup) int{
		"oldest": func(a, b *v1beta1.PodGroup) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) },
		"name": func(a, b *v1beta1.PodGroup) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		},
		"place": func(a, b *v1beta1.PodGroup) int {
			place := func(g *v1beta1.PodGroup) (string, int32) {
				switch {
				case g.Status == nil:
					return g.Spec.Queue, 1 << 30
				case g.Status.Position == 0:
					return g.Status.Queue, 1 << 30
				}
				return g.Status.Queue, g.Status.Position
			}
			queueA, a1 := place(a)
			queueB, b1 := place(b)
			return cmp.Or(cmp.Compare(queueA, queueB), cmp.Compare(a1, b1))
		},
	}
	by := orders[d.Sort]
	if by == nil {
		d.Sort = ""
	} else {
		sorted := slices.Clone(*found) // what was found may be the shared list
		slices.SortStableFunc(sorted, by)
		*found = sorted
	}
	for _, name := range []string{"newest", "oldest", "name", "place"} {
		value := name
		if name == "newest" {
			value = ""
		}
		d.Sorts = append(d.Sorts, link{name, to("sort", value), d.Sort == value})
	}
}

// matches reports whether a text is in what a gang's row says.
func matches(g *v1beta1.PodGroup, text string) bool {
	text = strings.ToLower(text)
	in := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	if in(g.Name) || in(g.Namespace) || in(g.Spec.Queue) {
		return true
	}
	return g.Status != nil && (in(g.Status.Queue) || in(g.Status.Reason) || in(g.Status.Message))
}

// singleRow is a pod without a PodGroup.
type singleRow struct {
	Namespace, Name, URL, Says string
	Queue                      string
	Created                    time.Time
}

// singles fills in pods without a PodGroup that wait, as far as the viewer may list pods. The API server is asked: pods
// are too many to be watched for this.
func (s *server) singles(ctx context.Context, q *query, d *workData) {
	if d.Scope.all {
		return // of the whole cluster they are too many to be asked for
	}
	for _, namespace := range d.Scope.names {
		if q.viewer.may(ctx, listPods(namespace), q.reviews) != nil {
			continue // he sees those of gangs nowhere else either
		}
		rows, err := s.singlesIn(namespace).get(ctx, singlesFor, func() ([]singleRow, error) {
			ctx, cancel := context.WithTimeout(s.ctx, pageWithin)
			defer cancel()
			list, err := q.viewer.core.Pods(namespace).List(ctx, metav1.ListOptions{
				LabelSelector: "!" + api.LabelPodGroup, ResourceVersion: "0", Limit: 10 * maxSingles,
				FieldSelector: fields.Set{"spec.schedulerName": api.SchedulerName, "status.phase": "Pending",
					"spec.nodeName": ""}.AsSelector().String()})
			if err != nil {
				return nil, err
			}
			var rows []singleRow
			for i := range list.Items {
				rows = append(rows, singleOf(&list.Items[i]))
			}
			return rows, nil
		})
		if err != nil {
			continue
		}
		d.Singles = append(d.Singles, rows...)
	}
	if len(d.Singles) > maxSingles {
		d.Singles, d.More = d.Singles[:maxSingles], true
	}
}

// singlesIn returns what is remembered of those in a namespace.
func (s *server) singlesIn(namespace string) *shared[[]singleRow] {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.singlesOf[namespace]
	if of == nil {
		if len(s.singlesOf) >= maxSingleOf {
			clear(s.singlesOf)
		}
		of = &shared[[]singleRow]{}
		s.singlesOf[namespace] = of
	}
	return of
}

func singleOf(p *corev1.Pod) singleRow {
	row := singleRow{Namespace: p.Namespace, Name: p.Name, URL: gangURL(p.Namespace, p.Name),
		Queue: p.Labels[api.LabelQueue], Says: "it shows no condition yet", Created: p.CreationTimestamp.Time}
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			row.Says = c.Message
		}
	}
	return row
}

// planned answers how a gang would stand that does not exist, on the page My work.
func (s *server) planned(ctx context.Context, q *query, d *workData) {
	if q.stream {
		d.Plan = &whatIfData{Kept: true, Changed: s.changedSince(ctx, q)}
		return
	}
	namespace := q.viewer.namespace
	if len(d.Scope.names) > 0 {
		namespace = d.Scope.names[0]
	}
	if d.PlanIn = namespace; namespace == "" {
		return
	}
	d.Plan = s.whatIf(ctx, q, namespace, url.Values{})
}
