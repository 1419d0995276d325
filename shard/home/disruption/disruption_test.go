package disruption

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
)

var start = time.Unix(1_000_000_000, 0)

// world is some budgets and pods.
type world struct {
	*Budgets
	pods map[string]*api.Pod
}

func newWorld() *world {
	w := &world{pods: map[string]*api.Pod{}}
	w.Budgets = New(func(uid string) *api.Pod { return w.pods[uid] })
	return w
}

func (w *world) budget(name string, allowed int32, s *metav1.LabelSelector) string {
	return w.Seen(api.FromDisruptionBudget(api.StripDisruptionBudget(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: s}, Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed}})))
}

func app(name string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
}

func (w *world) pod(uid string, labels ...string) *api.Pod {
	of := map[string]string{}
	for _, l := range labels {
		key, value, _ := strings.Cut(l, "=")
		of[key] = value
	}
	w.pods[uid] = &api.Pod{UID: uid, Namespace: "ns", Name: uid, Labels: api.NewLabels(of)}
	return w.pods[uid]
}

// What a selector selects, wherever its budget is kept.
func TestSelecting(t *testing.T) {
	w := newWorld()
	w.budget("a", 0, app("a"))
	w.budget("a-blue", 0, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a", "tint": "blue"}})
	w.budget("tinted", 0, &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tint", Operator: metav1.LabelSelectorOpExists}}})
	w.budget("nothing", 0, nil)
	for i, c := range []struct {
		labels []string
		want   string
	}{
		{[]string{"app=a"}, "a"}, {[]string{"app=a", "tint=blue"}, "a a-blue tinted"}, {[]string{"app=b", "tint=red"}, "tinted"}, {nil, ""},
	} {
		if got := strings.Join(w.Evict(start, w.pod(fmt.Sprint("p", i), c.labels...), start), " "); got != c.want {
			t.Errorf("%v: %q, want %q", c.labels, got, c.want)
		}
	}
	w.budget("everything", 0, &metav1.LabelSelector{})
	if got := w.Evict(start, w.pod("p"), start); !slices.Equal(got, []string{"everything"}) {
		t.Errorf("an empty selector selects all pods of a namespace: %v", got)
	}
	for _, name := range []string{"a", "a-blue", "tinted", "nothing", "everything"} {
		w.Gone("ns", name, "another")
		if w.of["ns"].get(name) == nil {
			t.Errorf("%s is forgotten though a namesake of it was deleted", name)
		}
		w.Gone("ns", name, name)
	}
	if w.Heeds("ns") {
		t.Error("all are gone")
	}
}

// Sets of pods are looked at one after another, and what is not allowed takes nothing.
func TestLook(t *testing.T) {
	w := newWorld()
	w.budget("a", 3, app("a"))
	var pods []*api.Pod
	for i := range 6 {
		pods = append(pods, w.pod(fmt.Sprint("p", i), "app=a"))
	}
	l := w.Look(start)
	for i, c := range []struct {
		pods []*api.Pod
		want bool
	}{{pods[:2], true}, {pods[2:4], false}, {pods[2:3], true}, {pods[3:4], false}, {nil, true}} {
		if got := l.Allows(c.pods...); got != c.want {
			t.Errorf("set %d: %t", i, got)
		}
	}
}

// A pod that leaves counts until the budget's controller has seen it, it is gone, or it does not leave after all.
func TestLeaving(t *testing.T) {
	w := newWorld()
	w.budget("a", 1, app("a"))
	one, two, three := w.pod("one", "app=a"), w.pod("two", "app=a"), w.pod("three", "app=a")
	until := start.Add(time.Minute)
	w.Claim(start, one, until)
	if w.Look(start).Allows(two) {
		t.Error("another pod leaves already")
	}
	if got := w.Evict(start, one, until); len(got) > 0 {
		t.Errorf("the budget allowed it: %v", got)
	}
	if got := w.Evict(start, two, until); !slices.Equal(got, []string{"a"}) {
		t.Errorf("the budget allowed one only: %v", got)
	}
	if got := w.Evict(start, two, until); len(got) > 0 {
		t.Errorf("it was judged before: %v", got)
	}
	// The controller speaks before it has seen them leave: nothing is allowed. Afterwards its word counts.
	w.budget("a", 1, app("a"))
	if w.Look(start).Allows(three) {
		t.Error("the status is older than the evictions")
	}
	for _, uid := range []string{"one", "two"} {
		deleting := *w.pods[uid]
		deleting.Deleting = true
		w.pods[uid] = &deleting
	}
	if w.Look(start).Allows(three) {
		t.Error("the status is still older")
	}
	w.budget("a", 1, app("a"))
	if !w.Look(start).Allows(three) {
		t.Error("the status counts those that leave")
	}
	w.Claim(start, three, until)
	if w.Look(until.Add(-time.Second)).Allows(w.pod("four", "app=a")) {
		t.Error("a claim takes one")
	}
	if !w.Look(until.Add(time.Second)).Allows(w.pod("four", "app=a")) {
		t.Error("it has not left, and will not")
	}
	w.Claim(start, three, until)
	delete(w.pods, "three")
	if !w.Look(start).Allows(w.pod("four", "app=a")) {
		t.Error("it is gone")
	}
}

// A namespace with many budgets does little harm to itself, and none to others.
func TestBounds(t *testing.T) {
	w := newWorld()
	ignored := 0
	for i := range 10_000 {
		if why := w.budget(fmt.Sprint("b", i), 0, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}, MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "x", Operator: metav1.LabelSelectorOpNotIn, Values: []string{strings.Repeat("y", 60)}}}}); why != "" {
			ignored++
		}
	}
	if ignored != 9000 || len(w.of["ns"].exact["app=a"]) != budgetsAtMost {
		t.Errorf("%d are not heeded, %d are kept", ignored, len(w.of["ns"].exact["app=a"]))
	}
	if why := w.budget("b5", 3, app("a")); why != "" {
		t.Errorf("one that is heeded changes: %s", why)
	}
	if why := w.budget("large", 0, &metav1.LabelSelector{MatchLabels: map[string]string{"x": strings.Repeat("y", 5000)}}); !strings.Contains(why, "5009 bytes, the limit is 4096") {
		t.Errorf("a large one: %q", why)
	}
	if why := w.budget("wrong", 0, &metav1.LabelSelector{MatchLabels: map[string]string{"x": "-"}}); !strings.Contains(why, "spec.selector") {
		t.Errorf("a wrong one: %q", why)
	}
	if why := w.budget("b5", 0, &metav1.LabelSelector{MatchLabels: map[string]string{"x": "-"}}); why == "" || w.of["ns"].get("b5") != nil {
		t.Errorf("one that has become wrong is heeded still: %q", why)
	}
	// Each of these pods is compared with a thousand selectors.
	p := w.pod("p", "app=a")
	compared := 0
	for w.selecting(start, p) != nil {
		compared++
	}
	if compared < 10 || compared > 1000 {
		t.Errorf("%d pods were compared", compared)
	}
	other := *p
	other.Namespace = "other"
	w.Seen(api.FromDisruptionBudget(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: "o", UID: "o"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: app("a")}}))
	if got := w.Evict(start, &other, start); !slices.Equal(got, []string{"o"}) {
		t.Errorf("another namespace: %v", got)
	}
	if w.selecting(start.Add(time.Second), p) == nil {
		t.Error("it is compared again a second later")
	}
}
