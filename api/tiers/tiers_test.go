package tiers

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"basalt.dev/basalt/api"
)

// examples are those of the page for operators.
var examples = func() []Class {
	page, err := os.ReadFile("../../deploy/docs/preferences.md")
	if err != nil {
		panic(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\nnodeTiers:")
	text, _, _ = strings.Cut(text, "```")
	var of struct{ NodeTiers []Class }
	if err := yaml.UnmarshalStrict([]byte("nodeTiers:"+text), &of); err != nil || len(of.NodeTiers) != 2 {
		panic(fmt.Sprintf("the page has %d classes: %v", len(of.NodeTiers), err))
	}
	return of.NodeTiers
}()

func rulesOf(t testing.TB, of []Class, failed func(Failure)) api.Rules {
	t.Helper()
	r, err := Compile(of, failed)
	if err != nil {
		t.Fatal(err)
	}
	return api.Rules{Tiers: r}
}

func podWith(labels map[string]string, requests v1.ResourceList, priority int32) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p", UID: "u", Labels: labels},
		Spec: v1.PodSpec{SchedulerName: api.SchedulerName, Priority: &priority,
			Containers: []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{Requests: requests}}}}}
}

func nodeWith(labels map[string]string, gpus string, taints ...v1.Taint) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}, Spec: v1.NodeSpec{Taints: taints},
		Status: v1.NodeStatus{Allocatable: v1.ResourceList{"cpu": resource.MustParse("64"),
			"memory": resource.MustParse("256Gi"),
			"pods":   resource.MustParse("110")}}}
	if gpus != "" {
		n.Status.Allocatable["nvidia.com/gpu"] = resource.MustParse(gpus)
	}
	return n
}

func classOf(t *testing.T, r api.Rules, p *v1.Pod) string {
	t.Helper()
	var of []string
	for _, p := range []*v1.Pod{p, r.StripPod(p)} {
		w, err := api.ReadWishes(api.FromPod(p, nil, r).Class.Wishes)
		if err != nil {
			t.Fatal(err)
		}
		of = append(of, w.Class)
	}
	if of[0] != of[1] {
		t.Errorf("the class is %q, and %q of the stripped pod", of[0], of[1])
	}
	return of[0]
}

// TestClasses: the first class that matches is the pod's, and pods without one, or with a node, wish nothing.
func TestClasses(t *testing.T) {
	t.Parallel()
	r := rulesOf(t, examples, func(f Failure) { t.Errorf("%+v", f) })
	cpu := v1.ResourceList{"cpu": resource.MustParse("1")}
	gpu := v1.ResourceList{"cpu": resource.MustParse("1"), "nvidia.com/gpu": resource.MustParse("1")}
	batch := map[string]string{"tier": "batch"}
	for _, row := range []struct {
		what string
		pod  *v1.Pod
		want string
	}{
		{"both match", podWith(batch, cpu, 0), "cheap"},
		{"the second matches", podWith(batch, cpu, 1000), "no-gpu"},
		{"the first matches", podWith(batch, gpu, 0), "cheap"},
		{"none matches", podWith(nil, gpu, 0), ""},
		{"zero GPUs are none", podWith(nil, v1.ResourceList{"nvidia.com/gpu": resource.MustParse("0")}, 0), "no-gpu"},
	} {
		if got := classOf(t, r, row.pod); got != row.want {
			t.Errorf("%s: class %q, want %q", row.what, got, row.want)
		}
		plain := api.FromPod(row.pod, nil, api.Rules{}).Class
		with := api.FromPod(row.pod, nil, r).Class
		if same := plain.Key == with.Key; same != (row.want == "") {
			t.Errorf("%s: the same class as without nodeTiers: %v", row.what, same)
		}
		if best := with.BestGrade(); (best == api.BestGrade) != (row.want == "") {
			t.Errorf("%s: the best grade is %d", row.what, best)
		}
	}
	bound := podWith(batch, cpu, 0)
	bound.Spec.NodeName = "n"
	other := podWith(batch, cpu, 0)
	other.Spec.SchedulerName = "default-scheduler"
	for _, p := range []*v1.Pod{bound, other} {
		if got := api.FromPod(p, nil, r).Class.Wishes; len(got) > 0 {
			t.Errorf("a pod of %s on %q has wishes %q", p.Spec.SchedulerName, p.Spec.NodeName, got)
		}
	}
	preferring := podWith(batch, cpu, 0)
	term := v1.PreferredSchedulingTerm{Weight: 5}
	term.Preference.MatchExpressions = []v1.NodeSelectorRequirement{{Key: "a", Operator: v1.NodeSelectorOpExists}}
	preferring.Spec.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
		PreferredDuringSchedulingIgnoredDuringExecution: []v1.PreferredSchedulingTerm{term}}}
	w, err := api.ReadWishes(api.FromPod(preferring, nil, r).Class.Wishes)
	if err != nil || w.Class != "cheap" || len(w.Terms) != 1 || w.Terms[0].Weight != 5 {
		t.Errorf("%+v, %v", w, err)
	}
}

// TestNodes: tiers follow labels, taints and allocatable amounts, and are not evaluated again when something else
// changes.
func TestNodes(t *testing.T) {
	t.Parallel()
	evaluated := 0
	r := rulesOf(t, append(slices.Clone(examples), Class{"tainted", "true",
		`taints.exists(t, t.key == "old" && t.effect == "NoSchedule") ? 2 : allocatable["cpu"] >= 64000 ? 0 : 1`}),
		func(f Failure) { t.Errorf("%+v", f) })
	of := r.Tiers.OfNode
	r.Tiers.OfNode = func(n *api.Node) api.Tiers { evaluated++; return of(n) }
	spot := map[string]string{"example.com/lifecycle": "spot"}
	old := v1.Taint{Key: "old", Effect: v1.TaintEffectNoSchedule}
	small := nodeWith(spot, "8")
	small.Status.Allocatable["cpu"] = resource.MustParse("32")
	cordoned := small.DeepCopy()
	cordoned.Spec.Unschedulable, cordoned.ResourceVersion = true, "2"
	cordoned.Status.Images = []v1.ContainerImage{{Names: []string{"a"}}}
	var was *api.Node
	for i, row := range []struct {
		what      string
		node      *v1.Node
		evaluated bool
		want      string
	}{
		{"plain", nodeWith(nil, ""), true, "2 0 0"},
		{"with a label", nodeWith(spot, ""), true, "0 0 0"},
		{"with another allocatable resource", nodeWith(spot, "8"), true, "0 3 0"},
		{"with another taint", nodeWith(spot, "8", old), true, "0 3 2"},
		{"with less", small, true, "0 3 1"},
		{"the same", small, false, "0 3 1"},
		{"cordoned", cordoned, false, "0 3 1"},
		{"with other labels", nodeWith(map[string]string{"example.com/reserved": ""}, ""), true, "1 0 0"},
	} {
		before := evaluated
		n := r.FromNode(r.StripNode(row.node), was)
		if got := fmt.Sprint(n.Tiers.Of("cheap"), n.Tiers.Of("no-gpu"), n.Tiers.Of("tainted")); got != row.want {
			t.Errorf("%d, %s: tiers %s, want %s", i, row.what, got, row.want)
		}
		if n.Tiers.Of("unknown") != api.LastTier {
			t.Errorf("a class that is not known has tier %d", n.Tiers.Of("unknown"))
		}
		if is := evaluated > before; is != row.evaluated {
			t.Errorf("%d, %s: evaluated: %v", i, row.what, is)
		}
		was = n
	}
	if n := (&api.Rules{}).FromNode(nodeWith(spot, ""), nil); n.Tiers != nil {
		t.Errorf("without nodeTiers: %v", n.Tiers)
	}
}

// TestFailures: an expression that fails for a node has that in the last tier, and for a pod does not match; the
// others count.
func TestFailures(t *testing.T) {
	t.Parallel()
	var told []string
	r := rulesOf(t, []Class{
		{"a", `labels["team"] == "x"`, `labels["cost"] == "low" ? 0 : 1`},
		{"b", `requests["cpu"] > 500`, `int(labels["gen"])`},
	}, func(f Failure) { told = append(told, fmt.Sprintf("%s %s %s: %v", f.Class, f.Of, f.Object, f.Err)) })
	expect := func(what string, want ...string) {
		t.Helper()
		if !slices.EqualFunc(told, want, func(a, b string) bool { return strings.Contains(a, b) }) {
			t.Errorf("%s: told %q, want %q", what, told, want)
		}
		told = nil
	}
	one := v1.ResourceList{"cpu": resource.MustParse("1")}
	if got := api.FromPod(podWith(nil, one, 0), nil, r).Class; got.BestGrade() == api.BestGrade {
		t.Error("the second class is not asked where the first fails")
	}
	expect("a pod without the label", "a pod team/p: column 7: no such key: team")
	if n := r.FromNode(nodeWith(nil, ""), nil); n.Tiers.Of("a") != 3 || n.Tiers.Of("b") != 3 {
		t.Errorf("tiers %v", n.Tiers)
	}
	expect("a node without labels", "a node n: column 7: no such key: cost", "b node n: column 11: no such key: gen")
	const outside = ": a tier is 0 to 3"
	for gen, want := range map[string]string{
		"4": "it is 4" + outside, "-1": "it is -1" + outside, "x": "type conversion error",
	} {
		n := r.FromNode(nodeWith(map[string]string{"cost": "low", "gen": gen}, ""), nil)
		if n.Tiers.Of("a") != 0 || n.Tiers.Of("b") != 3 {
			t.Errorf("gen %s: tiers %v", gen, n.Tiers)
		}
		expect("gen "+gen, want)
	}
	quiet := rulesOf(t, []Class{{"a", `labels["team"] == "x"`, `labels["cost"] == "low" ? 0 : 1`}}, nil)
	class := api.FromPod(podWith(nil, one, 0), nil, quiet).Class
	if n := quiet.FromNode(nodeWith(nil, ""), nil); n.Tiers.Of("a") != 3 || len(class.Wishes) > 0 {
		t.Error("without anybody who is told")
	}
}

// TestRefused: each mistake is named with its field, its place and the text.
func TestRefused(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("1 + ", 300) + "1"
	nested := `labels.all(a, labels.all(b, labels.all(c, taints.all(d, taints.all(e, a == b && b == c && d == e)))))`
	pods := func(text string) []Class { return []Class{{"a", text, "0"}} }
	nodes := func(text string) []Class { return []Class{{"a", "true", text}} }
	named := func(names ...string) (out []Class) {
		for _, name := range names {
			out = append(out, Class{name, "true", "0"})
		}
		return out
	}
	const inPods, inNodes = "nodeTiers[0].pods: ", "nodeTiers[0].nodes: "
	for _, row := range []struct {
		what string
		of   []Class
		want []string
	}{
		{"nothing", []Class{{}}, []string{`nodeTiers[0].name is ""`, inPods + "the expression is empty",
			inNodes + "the expression is empty"}},
		{"a name in capitals", named("GPU"), []string{`nodeTiers[0].name is "GPU": lower-case letters`}},
		{"a name twice", named("a", "a"), []string{`nodeTiers[1].name is "a", which is there before`}},
		{"a mistyped variable", nodes(`label["x"] == "" ? 0 : 1`),
			[]string{inNodes + `column 1: undeclared reference to 'label'; did you mean labels?, in "label[\"x\"]`}},
		{"a variable that nodes lack", nodes(`priority > 0 ? 0 : 1`),
			[]string{inNodes + `column 1: undeclared reference to 'priority'; there are labels, taints, allocatable`}},
		{"no end", pods("labels["), []string{inPods + "column 8: Syntax error", `in "labels["`}},
		{"on the second line", pods("true &&\n  namespacName == 'a'"),
			[]string{inPods + "line 2, column 3: undeclared reference to 'namespacName'; did you mean namespaceName?"}},
		{"a number for a class", pods("1"), []string{inPods + "column 1: it is of type int, and has to be of type bool"}},
		{"a truth for a tier", nodes(`"x" in labels`), []string{inNodes, "it is of type bool, and has to be of type int"}},
		{"a fraction for a tier", nodes("1.5"), []string{inNodes + "column 1: it is of type double"}},
		{"too long", nodes(long), []string{inNodes + "the expression has 1201 bytes, the limit is 1024"}},
		{"too costly", nodes(nested + " ? 0 : 1"), []string{inNodes + "it is too costly"}},
		{"five classes", named("a", "b", "c", "d", "E"), []string{"nodeTiers has 5 classes: at most 4"}},
	} {
		_, err := Compile(row.of, nil)
		if got := errors.Join(Check("nodeTiers", row.of)...); err == nil || got == nil || got.Error() != err.Error() {
			t.Errorf("%s: Check says %v, Compile %v", row.what, got, err)
			continue
		}
		lines := strings.Split(err.Error(), "\n")
		for _, want := range row.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", row.what, err, want)
			}
		}
		if most := max(1, len(row.want)); len(lines) > most {
			t.Errorf("%s: %d mistakes: %v", row.what, len(lines), err)
		}
	}
	if r, err := Compile(nil, nil); r != nil || err != nil {
		t.Errorf("no classes: %v, %v", r, err)
	}
}

// TestForm: what is packed by other classes is not read.
func TestForm(t *testing.T) {
	t.Parallel()
	forms := map[string]bool{}
	for _, of := range [][]Class{
		nil, {{"a", "true", "0"}}, {{"b", "true", "0"}}, {{"a", "false", "0"}}, {{"a", "true", "1"}},
		{{"a", "true", "0"}, {"b", "true", "0"}},
	} {
		forms[api.PackedForm("1", rulesOf(t, of, nil))] = true
		forms[api.PackedForm("1", rulesOf(t, of, nil))] = true
	}
	if len(forms) != 6 {
		t.Errorf("%d forms: %v", len(forms), forms)
	}
}

// four are as many classes as there may be.
var four = append(slices.Clone(examples),
	Class{"young", `labels[?"app"].orValue("").startsWith("train")`,
		`labels[?"gen"].orValue("") == "5" ? 0 : labels[?"gen"].orValue("") == "4" ? 1 : 2`},
	Class{"quiet", `namespaceName.startsWith("prod-")`,
		`taints.exists(t, t.key == "noisy") ? 3 : allocatable["cpu"] >= 32000 ? 0 : 1`})

// BenchmarkNode is what a change of a node costs beside reading it: with 40 labels, 3 taints and 4 classes, and
// nothing of it where what tiers depend on has not changed.
func BenchmarkNode(b *testing.B) {
	n := nodeWith(map[string]string{"gen": "4"}, "8", v1.Taint{Key: "a"}, v1.Taint{Key: "b", Value: "c"},
		v1.Taint{Key: "noisy", Effect: v1.TaintEffectPreferNoSchedule})
	for i := range 39 {
		n.Labels[fmt.Sprint("example.com/label-", i)] = fmt.Sprint("value-", i)
	}
	for _, row := range []struct {
		what    string
		of      []Class
		changed bool
	}{{"without", nil, true}, {"same", four, false}, {"changed", four, true}} {
		b.Run(row.what, func(b *testing.B) {
			r := rulesOf(b, row.of, func(f Failure) { b.Fatalf("%+v", f) })
			b.ReportAllocs()
			was := r.FromNode(n, nil)
			for b.Loop() {
				if row.changed {
					was = nil
				}
				was = r.FromNode(n, was)
			}
		})
	}
}

// BenchmarkPod is what a pod costs to read.
func BenchmarkPod(b *testing.B) {
	labels := map[string]string{"app": "serve", "tier": "web", "batch.kubernetes.io/job-name": "serve-1234",
		"controller-uid": "0b0e5f6c-5bb1-4f0e-9d3c-2f3f2d1c0b0a"}
	p := podWith(labels, v1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("2Gi"),
		"nvidia.com/gpu": resource.MustParse("1")}, 0)
	for _, row := range []struct {
		what string
		of   []Class
	}{{"without", nil}, {"none of four matches", four}} {
		b.Run(row.what, func(b *testing.B) {
			r := rulesOf(b, row.of, func(f Failure) { b.Fatalf("%+v", f) })
			var classes api.Classes
			b.ReportAllocs()
			for b.Loop() {
				classes.FromPod(p, nil, r)
			}
		})
	}
}
