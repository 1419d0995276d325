package topology

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
)

// Pods of one class are asked for by those of another: where they may go does not depend on pods that come with them.
func TestTogether(t *testing.T) {
	near := func(app string) v1.PodSpec {
		return v1.PodSpec{Affinity: &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
			{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}}}}
	}
	for _, o := range []struct {
		name   string
		pods   []string // app, and the app that it requires
		labels bool     // are said of those that require nothing
		sure   bool
		free   []int
	}{
		{"a leader", []string{"a ", "b a"}, true, true, []int{0, 1}},
		{"nobody has the label", []string{"x ", "b a"}, true, false, []int{0}},
		{"a leader whose labels are not said", []string{"a ", "b a"}, false, false, []int{0, 1}},
		{"the same, to be sure", []string{"a ", "b a"}, false, true, []int{0}},
		{"one after another", []string{"c b", "b a", "a "}, true, true, []int{0, 1, 2}},
		{"in a circle", []string{"a b", "b a"}, true, true, nil},
		{"like itself, and others", []string{"a a", "b a"}, true, true, []int{1}}, // where the first itself may go is asked as before
	} {
		w := newTenants()
		var classes []*api.Class
		var rules []*Rules
		for i, text := range o.pods {
			spec := v1.PodSpec{}
			if text[2:] != "" {
				spec = near(text[2:])
			}
			p := w.pod("ns", string(rune('0'+i)), "", map[string]string{"app": text[:1]}, spec)
			class := p.Class.With(p.Labels)
			if text[2:] == "" && !o.labels {
				class = p.Class
			}
			r, ok := w.RulesOf("ns", class)
			if !ok {
				t.Fatal(o.name)
			}
			classes, rules = append(classes, class), append(rules, r)
		}
		var free []int
		for i, r := range w.Together(rules, classes, o.sure) {
			if !r.AsksForOthers() {
				free = append(free, i)
			}
		}
		if !slices.Equal(free, o.free) {
			t.Errorf("%s: %v do not depend on others, want %v", o.name, free, o.free)
		}
	}
}
