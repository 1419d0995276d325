package console

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
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

// gangData is what the page of a gang shows.
type gangData struct {
	Namespace, Name string
	Row             *gangRow // nil without a PodGroup of Basalt's
	Says            string
	Trouble         string // why Basalt does not say more
	Rows            []visibility.Row
	Queue, QueueURL string

	Life     []moment
	Expected *moment // when it starts, if that is known
	Phases   []phase

	Pods     []podRow
	PodsMore bool
	PodsNot  string // why they are not shown
	Events   []eventRow
	EventNot string

	WhatIf *whatIfData
}

// moment is one of a gang's life.
type moment struct {
	At    time.Time
	What  string
	Says  string
	After string // how long after the one before
	Kind  string // "", evicted or expected
}

// phase is a part of a gang's life until now.
type phase struct {
	What, Took, X, Width string
	Kind                 string
}

type podRow struct {
	Name, Node, Phase, Says string
	Since                   time.Time
}

type eventRow struct {
	At              time.Time
	Reason, Message string
	Warning         bool
}

// gang is the page of one.
func (s *server) gang(ctx context.Context, q *query) (*view, error) {
	namespace, name := q.PathValue("namespace"), q.PathValue("name")
	if len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return nil, problem{http.StatusBadRequest, "the path names no object: it is /gangs/NAMESPACE/NAME"}
	}
	if err := q.viewer.may(ctx, getGang(namespace, name), q.reviews); err != nil {
		return nil, err
	}
	d := &gangData{Namespace: namespace, Name: name}
	var object *v1beta1.PodGroup
	var version string
	if s.watched(ctx, scope{names: []string{namespace}}) == nil {
		if object = s.objects.gang(namespace, name); object != nil {
			version = object.ResourceVersion
		}
	}
	said, err := recall(q.memo, "why", version, whyChanged, whyAgain, func() (*visibility.Why, error) {
		var said visibility.Why
		path := "/namespaces/" + url.PathEscape(namespace) + "/gangs/" + url.PathEscape(name) + "/why"
		return &said, s.ask(ctx, q.viewer, path, &said)
	})
	switch {
	case isFinal(err), err != nil && object == nil:
		return nil, err
	case err != nil:
		d.Trouble, said = problemOf(err).text, visibility.OfPodGroup(object)
	}
	if object != nil {
		row := rowOf(object)
		d.Row = &row
	}
	d.Says, d.Rows = said.Stands(), said.Rows(time.Now(), true)
	if d.Queue = said.Queue; d.Queue != "" {
		d.QueueURL = queueURL(d.Queue, namespace)
	}
	s.events(ctx, q, d, version)
	s.pods(ctx, q, d, version)
	d.Life, d.Phases = lifeOf(object, said, d.Events, time.Now())
	if i := slices.IndexFunc(d.Life, func(m moment) bool { return m.What == "expected" }); i >= 0 {
		d.Expected = &d.Life[i]
	}
	if !q.stream {
		d.WhatIf = s.whatIf(ctx, q, namespace, url.Values{"gang": {namespace + "/" + name}})
	} else {
		d.WhatIf = &whatIfData{Kept: true, Changed: s.changedSince(ctx, q)}
	}
	return &view{Title: name, Body: "gang", Data: d, Asked: d.WhatIf.Asked}, nil
}

// isFinal reports whether Basalt refused a question for good: it says so of what the viewer may not see, and of what is
// not there.
func isFinal(err error) bool {
	if err == nil {
		return false
	}
	code := problemOf(err).code
	return code == http.StatusNotFound || code == http.StatusForbidden || code == http.StatusUnauthorized
}

// pods fills in the pods of a gang, or a pod that is one, as far as the viewer may list pods.
func (s *server) pods(ctx context.Context, q *query, d *gangData, version string) {
	list, err := recall(q.memo, "pods", version, podsFor, podsAgain, func() (*corev1.PodList, error) {
		o := metav1.ListOptions{ResourceVersion: "0", LabelSelector: api.LabelPodGroup + "=" + d.Name}
		if version == "" { // there is no PodGroup
			o = metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", d.Name).String()}
		}
		o.Limit = maxPods + 1 // which the watch cache of the API server does not heed
		return q.viewer.core.Pods(d.Namespace).List(ctx, o)
	})
	if err != nil {
		d.PodsNot = err.Error()
		return
	}
	all := list.Items
	slices.SortFunc(all, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
	for i := range all[:min(len(all), maxPods)] {
		p := &all[i]
		row := podRow{Name: p.Name, Node: p.Spec.NodeName, Phase: string(p.Status.Phase), Since: p.CreationTimestamp.Time}
		if p.DeletionTimestamp != nil {
			row.Phase = "Terminating"
		}
		for j := range p.Status.Conditions {
			if c := &p.Status.Conditions[j]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
				row.Says = c.Reason
			}
		}
		d.Pods = append(d.Pods, row)
	}
	d.PodsMore = len(all) > maxPods || list.Continue != ""
}

// events fills in what was said of the gang's object.
func (s *server) events(ctx context.Context, q *query, d *gangData, version string) {
	list, err := recall(q.memo, "events", version, podsFor, podsAgain, func() (*corev1.EventList, error) {
		return q.viewer.core.Events(d.Namespace).List(ctx, metav1.ListOptions{ResourceVersion: "0",
			FieldSelector: fields.OneTermEqualSelector("involvedObject.name", d.Name).String()})
	})
	if err != nil {
		d.EventNot = err.Error()
		return
	}
	for i := range list.Items {
		e := &list.Items[i]
		at := e.LastTimestamp.Time
		if at.IsZero() {
			at = e.EventTime.Time
		}
		if e.Series != nil {
			at = e.Series.LastObservedTime.Time
		}
		if at.IsZero() {
			at = e.CreationTimestamp.Time
		}
		d.Events = append(d.Events, eventRow{at, e.Reason, e.Message, e.Type == corev1.EventTypeWarning})
	}
	slices.SortStableFunc(d.Events, func(a, b eventRow) int { return b.At.Compare(a.At) })
	d.Events = d.Events[:min(len(d.Events), maxEvents)]
}

// marked are the events that are moments of a gang's life, and words for them.
var marked = map[string]string{v1beta1.ReasonPreempted: "evicted", v1beta1.ReasonShrunk: "lost pods",
	v1beta1.ReasonRolledBack: "rolled back", v1beta1.ReasonStale: "starts anew",
	v1beta1.ReasonClaimed: "others evicted for it"}

// lifeOf orders what is known of a gang in time, and divides its time until now.
func lifeOf(g *v1beta1.PodGroup, w *visibility.Why, events []eventRow, now time.Time) (life []moment, phases []phase) {
	add := func(at time.Time, what, says, kind string) {
		if !at.IsZero() {
			life = append(life, moment{At: at, What: what, Says: says, Kind: kind})
		}
	}
	add(w.Created, "created", "", "")
	var complete, quota, started time.Time
	if w.Complete != nil {
		complete = *w.Complete
		add(complete, "complete", fmt.Sprintf("its minimum of %d pods can be scheduled", w.MinCount), "")
	}
	if g != nil {
		if c := condition(g, v1beta1.ConditionQuotaReserved); c != nil {
			quota = c.LastTransitionTime.Time
			add(quota, "quota", "its queue and all ancestors are charged", "")
		}
		if c := condition(g, v1beta1.ConditionPodGroupInitiallyScheduled); c != nil {
			started = c.LastTransitionTime.Time
			add(started, "started", fmt.Sprintf("its minimum of %d pods is bound", w.MinCount), "")
		}
		if c := condition(g, v1beta1.ConditionDisruptionTarget); c != nil {
			add(c.LastTransitionTime.Time, "evicted", c.Message, "evicted")
		}
	}
	for _, e := range events {
		if what := marked[e.Reason]; what != "" {
			kind := "evicted"
			if e.Reason == v1beta1.ReasonClaimed {
				kind = ""
			}
			add(e.At, what, e.Message, kind)
		}
	}
	// Times of objects are whole seconds, Basalt's are not: what belongs before keeps its place.
	slices.SortStableFunc(life, func(a, b moment) int {
		return a.At.Truncate(time.Second).Compare(b.At.Truncate(time.Second))
	})
	for i := 1; i < len(life); i++ {
		life[i].After = "+" + spanOf(life[i].At.Sub(life[i-1].At))
	}
	if phases = phasesOf(w, complete, quota, started, now); len(phases) > 0 {
		last := phases[len(phases)-1]
		life = append(life, moment{What: "now", Says: last.What, After: "for " + last.Took, Kind: "now"})
	}
	expect := func(at *time.Time, what, says string) {
		if at != nil && at.After(now) {
			life = append(life, moment{At: *at, What: what, Says: says, After: "in " + spanOf(at.Sub(now)), Kind: "expected"})
		}
	}
	if w.Reason != v1beta1.ReasonFinished && !w.Started {
		expect(w.At, "expected", cmp.Or(strings.TrimPrefix(w.Eviction+", "+w.Then, ", "), "others are evicted for it"))
	}
	if w.Nodes != nil && !w.Started {
		for _, by := range w.Nodes.By {
			expect(by.At, "expected", fmt.Sprintf("room for %d of %d such pods, if what runs leaves by its limit",
				min(by.Pods, w.Nodes.Needed), w.Nodes.Needed))
		}
	}
	expect(w.Ends, "limit", "it is past its limit then")
	return life, phases
}

// phasesOf divides the time of a gang until now by what it waited for. A gang that was evicted began anew: its times
// are those of its last start.
func phasesOf(w *visibility.Why, complete, quota, started, now time.Time) (out []phase) {
	if w.Created.IsZero() || w.Reason == v1beta1.ReasonFinished {
		return nil
	}
	ends := []struct {
		at         time.Time
		what, kind string
	}{{complete, "waits for pods", "pods"}, {quota, "waits for quota", "quota"}, {started, "waits for nodes", "nodes"},
		{now, "runs", "runs"}}
	whole, from := now.Sub(w.Created), w.Created
	for i, e := range ends {
		last := e.at.IsZero()
		if i == 0 && last && (!quota.IsZero() || !started.IsZero()) {
			continue // it was not said
		}
		to := e.at
		if last {
			to = now
		}
		if took := to.Sub(from); took > 0 {
			out = append(out, phase{What: e.what, Took: spanOf(took), X: percent(from.Sub(w.Created).Seconds(), whole.Seconds()),
				Width: percent(took.Seconds(), whole.Seconds()), Kind: e.kind})
			from = to
		}
		if last {
			break
		}
	}
	return out
}
