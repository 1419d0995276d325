package api

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A pod in a group of another system is refused, not bound alone: the message names the field, the kind and the group.
func TestGroupsOfOtherSystems(t *testing.T) {
	long := strings.Repeat("é", 100_000)
	for _, c := range []struct {
		what                string
		labels, annotations map[string]string
		group               string // in spec.schedulingGroup
		says                []string
	}{
		{"none", map[string]string{LabelQueue: "q", "volcano.sh/job-name": "j"}, map[string]string{"scheduling.volcano.sh/queue-name": "q"}, "", nil},
		{"ours", map[string]string{LabelPodGroup: "g"}, nil, "", nil},
		{"an empty name", map[string]string{"kueue.x-k8s.io/pod-group-name": ""}, map[string]string{"scheduling.k8s.io/group-name": ""}, "", nil},
		{"the label of an annotation", map[string]string{"scheduling.k8s.io/group-name": "g"}, map[string]string{"kueue.x-k8s.io/pod-group-name": "g"}, "", nil},
		{"Kueue's, with its size", map[string]string{"kueue.x-k8s.io/pod-group-name": "set"}, map[string]string{"kueue.x-k8s.io/pod-group-total-count": "4"}, "", nil},
		{"Volcano", nil, map[string]string{"scheduling.k8s.io/group-name": "job-1"}, "", []string{"metadata.annotations[scheduling.k8s.io/group-name]", `Volcano PodGroup "job-1"`, LabelPodGroup}},
		{"Volcano's own annotation", nil, map[string]string{"scheduling.volcano.sh/group-name": "job-1"}, "", []string{"metadata.annotations[scheduling.volcano.sh/group-name]", `"job-1"`}},
		{"Kueue", map[string]string{"kueue.x-k8s.io/pod-group-name": "set"}, nil, "", []string{"metadata.labels[kueue.x-k8s.io/pod-group-name]", `Kueue pod group "set"`, "metadata.annotations[kueue.x-k8s.io/pod-group-total-count] is missing"}},
		{"coscheduling", map[string]string{"scheduling.x-k8s.io/pod-group": "train"}, nil, "", []string{"metadata.labels[scheduling.x-k8s.io/pod-group]", `"train"`}},
		{"Koordinator", nil, map[string]string{"gang.scheduling.koordinator.sh/name": "g"}, "", []string{"metadata.annotations[gang.scheduling.koordinator.sh/name]", `Koordinator gang "g"`}},
		{"YuniKorn", nil, map[string]string{"yunikorn.apache.org/task-group-name": "g"}, "", []string{"metadata.annotations[yunikorn.apache.org/task-group-name]", `YuniKorn task group "g"`}},
		{"KAI", nil, map[string]string{"pod-group-name": "g"}, "", []string{"metadata.annotations[pod-group-name]",
			`KAI PodGroup "g"`, LabelPodGroup}},
		{"Gödel", nil, map[string]string{"godel.bytedance.com/pod-group-name": "g"}, "",
			[]string{"metadata.annotations[godel.bytedance.com/pod-group-name]", `Gödel PodGroup "g"`}},
		{"Kubernetes", nil, nil, "workers", nil},
		{"ours and Volcano's", map[string]string{LabelPodGroup: "a"}, map[string]string{"scheduling.k8s.io/group-name": "b"}, "",
			[]string{"metadata.annotations[scheduling.k8s.io/group-name]", `Volcano PodGroup "b"`, LabelPodGroup, `the PodGroup "a"`}},
		{"ours and Volcano's of one name", map[string]string{LabelPodGroup: "a"}, map[string]string{"scheduling.k8s.io/group-name": "a"}, "", []string{`Volcano PodGroup "a"`, `names the PodGroup "a"`}},
		{"ours and that of Kubernetes", map[string]string{LabelPodGroup: "a"}, nil, "b", []string{"spec.schedulingGroup", `"b"`, `names the PodGroup "a"`}},
		{"a name of 200 KB", nil, map[string]string{"scheduling.k8s.io/group-name": long}, "", []string{strings.Repeat("é", 125) + `..."`}},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: c.labels, Annotations: c.annotations}, Spec: v1.PodSpec{SchedulerName: SchedulerName}}
		if c.group != "" {
			pod.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &c.group}
		}
		for how, p := range map[string]*Pod{"": FromPod(pod, nil, Rules{}), ", stripped": FromPod(StripPod(pod), nil, Rules{})} {
			if c.says == nil {
				if p.Refused != nil {
					t.Errorf("%s%s: refused: %s", c.what, how, p.Refused.Message)
				}
				continue
			}
			if p.Refused == nil || p.Refused.Reason != "UnsupportedConstraint" {
				t.Errorf("%s%s: refused %+v", c.what, how, p.Refused)
				continue
			}
			for _, says := range c.says {
				if m := p.Refused.Message; !strings.Contains(m, says) || len(m) > 1000 {
					t.Errorf("%s%s: the message has %d bytes and lacks %q: %.1000s", c.what, how, len(m), says, m)
				}
			}
		}
		if size := StripPod(pod).Size(); size > 1000 {
			t.Errorf("%s: %d bytes are kept", c.what, size)
		}
		pod.Spec.NodeName = "n"
		bound := StripPod(pod)
		if p := FromPod(bound, nil, Rules{}); p.Refused != nil {
			t.Errorf("%s: bound, it is refused with %v", c.what, p.Refused)
		}
		pod.Spec.NodeName, pod.Spec.SchedulerName = "", "other"
		if p := FromPod(pod, nil, Rules{}); p.Refused != nil {
			t.Errorf("%s: a pod of another scheduler is refused: %s", c.what, p.Refused.Message)
		}
	}
}

// A pod that names its queue in another system's words says which they are, and what to write; one that names it in
// Basalt's, or that the other system has admitted, or that another scheduler places, says nothing.
func TestQueuesOfOtherSystems(t *testing.T) {
	type m = map[string]string
	for _, c := range []struct {
		what                string
		labels, annotations m
		says                string
	}{
		{"none", m{"queue": "q", "app": "a"}, nil, ""},
		{"empty", m{"kueue.x-k8s.io/queue-name": ""}, nil, ""},
		{"Kueue", m{"kueue.x-k8s.io/queue-name": "gold"}, nil,
			`metadata.labels[kueue.x-k8s.io/queue-name] names the queue "gold" of Kueue`},
		{"Kueue's old annotation", nil, m{"kueue.x-k8s.io/queue-name": "gold"},
			`metadata.annotations[kueue.x-k8s.io/queue-name] names the queue "gold" of Kueue`},
		{"Kueue has admitted it", m{"kueue.x-k8s.io/queue-name": "gold", "kueue.x-k8s.io/managed": "true"}, nil, ""},
		{"Kueue has admitted its Job", m{"kueue.x-k8s.io/queue-name": "gold", "kueue.x-k8s.io/podset": "main"}, nil,
			""},
		{"Kueue has, and YuniKorn's", m{"kueue.x-k8s.io/managed": "true", "yunikorn.apache.org/queue": "root.a"}, nil,
			`"root.a" of YuniKorn`},
		{"Kueue's group", m{"kueue.x-k8s.io/queue-name": "gold", "kueue.x-k8s.io/pod-group-name": "g"},
			m{"kueue.x-k8s.io/pod-group-total-count": "2"}, `"gold" of Kueue`},
		{"YuniKorn", m{"yunikorn.apache.org/queue": "root.a"}, nil, "metadata.labels[yunikorn.apache.org/queue]"},
		{"YuniKorn's annotation", nil, m{"yunikorn.apache.org/queue": "root.a"},
			"metadata.annotations[yunikorn.apache.org/queue]"},
		{"Volcano", nil, m{"scheduling.volcano.sh/queue-name": "v"},
			"metadata.annotations[scheduling.volcano.sh/queue-name]"},
		{"Volcano's label", m{"volcano.sh/queue-name": "v"}, nil, "metadata.labels[volcano.sh/queue-name]"},
		{"KAI", m{"kai.scheduler/queue": "k"}, nil, `"k" of KAI`},
		{"Koordinator", m{"quota.scheduling.koordinator.sh/name": "k"}, nil, `"k" of Koordinator`},
		{"and ours", m{"kueue.x-k8s.io/queue-name": "gold", LabelQueue: "q"}, nil, ""},
		{"long", m{"kueue.x-k8s.io/queue-name": strings.Repeat("x", 5000)}, nil, "..."},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: c.labels, Annotations: c.annotations},
			Spec: v1.PodSpec{SchedulerName: SchedulerName}}
		for how, p := range map[string]*Pod{"": FromPod(pod, nil, Rules{}), ", stripped": FromPod(StripPod(pod), nil,
			Rules{})} {
			if c.what == "long" && how != "" {
				continue // its labels are more than are kept
			}
			if p.QueueElsewhere == "" != (c.says == "") || !strings.Contains(p.QueueElsewhere, c.says) ||
				len(p.QueueElsewhere) > 600 ||
				c.says != "" && !strings.HasSuffix(p.QueueElsewhere,
					"name a Queue of Basalt's in the label "+LabelQueue) {
				t.Errorf("%s%s: %q, want %q", c.what, how, p.QueueElsewhere, c.says)
			}
		}
		for how, edit := range map[string]func(*v1.Pod){
			"bound":                  func(p *v1.Pod) { p.Spec.NodeName = "n" },
			"of another scheduler":   func(p *v1.Pod) { p.Spec.SchedulerName = "other" },
			"with a queue of Basalt": func(p *v1.Pod) { p.Labels = map[string]string{LabelQueue: "q"} },
		} {
			edited := pod.DeepCopy()
			edit(edited)
			if p := FromPod(edited, nil, Rules{}); p.QueueElsewhere != "" {
				t.Errorf("%s, %s: %q", c.what, how, p.QueueElsewhere)
			}
		}
	}
	volcano := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: m{"scheduling.volcano.sh/queue-name": "v"}},
		Spec: v1.PodSpec{SchedulerName: SchedulerName}}
	if p := FromPod(volcano, nil, Rules{Volcano: true}); p.QueueElsewhere != "" || p.VolcanoQueue != "v" {
		t.Errorf("with --volcano it is read as %+v", p)
	}
}

// A label or annotation that only looks like Basalt's is named, with what may have been meant. Nothing is refused for
// it.
func TestSlips(t *testing.T) {
	type m = map[string]string
	for _, c := range []struct {
		what                string
		labels, annotations m
		says                string
	}{
		{"all that there are", m{LabelPodGroup: "g", LabelQueue: "q", LabelPreemptible: "true"}, nil, ""},
		{"of a gang", m{"app": "a"}, m{AnnotationGangMin: "1", AnnotationGangName: "g"}, ""},
		{"of others", m{"scheduling.k8s.io/queues": "q"}, m{"basalt.dev/pool": "p"}, ""},
		{"one letter more", m{"scheduling.basalt.dev/queues": "q"}, nil,
			"metadata.labels[scheduling.basalt.dev/queues] is no word of Basalt's, but " +
				"metadata.labels[scheduling.basalt.dev/queue] is"},
		{"two letters changed places", m{"scheduling.basalt.dev/queeu": "q"}, nil,
			"metadata.labels[scheduling.basalt.dev/queue] is"},
		{"another case", m{"scheduling.basalt.dev/Queue": "q"}, nil, "metadata.labels[scheduling.basalt.dev/queue] is"},
		{"a dash less", m{"scheduling.basalt.dev/podgroup": "q"}, nil,
			"metadata.labels[scheduling.basalt.dev/pod-group] is"},
		{"an annotation as a label", m{AnnotationGangMin: "2"}, nil,
			"metadata.labels[scheduling.basalt.dev/gang-min] is no word of Basalt's, but " +
				"metadata.annotations[scheduling.basalt.dev/gang-min] is"},
		{"a label as an annotation", nil, m{LabelQueue: "q"},
			"metadata.annotations[scheduling.basalt.dev/queue] is no word of Basalt's, but " +
				"metadata.labels[scheduling.basalt.dev/queue] is"},
		{"a mistyped annotation", nil, m{"scheduling.basalt.dev/gang-mim": "2"},
			"metadata.annotations[scheduling.basalt.dev/gang-min] is"},
		{"of a later version", m{"scheduling.basalt.dev/wondrous": "q"}, nil,
			"metadata.labels[scheduling.basalt.dev/wondrous] is no word of Basalt's"},
		{"two", m{"scheduling.basalt.dev/b": "q", "scheduling.basalt.dev/a": "q"}, nil,
			"metadata.labels[scheduling.basalt.dev/a] is"},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: c.labels, Annotations: c.annotations},
			Spec: v1.PodSpec{SchedulerName: SchedulerName}}
		for how, p := range map[string]*Pod{"": FromPod(pod, nil, Rules{}), ", stripped": FromPod(StripPod(pod), nil,
			Rules{})} {
			if p.Unheeded == "" != (c.says == "") || !strings.Contains(p.Unheeded, c.says) || p.Refused != nil {
				t.Errorf("%s%s: %q, want %q, and refused %v", c.what, how, p.Unheeded, c.says, p.Refused)
			}
		}
		pod.Spec.SchedulerName = "other"
		if p := FromPod(pod, nil, Rules{}); p.Unheeded != "" {
			t.Errorf("%s: a pod of another scheduler is told %q", c.what, p.Unheeded)
		}
	}
}

// A scheduler's name that differs from Basalt's by nothing but the case of letters is nobody's: its pod is told so.
func TestSchedulerNamesInAnotherCase(t *testing.T) {
	for name, says := range map[string]string{"Basalt": "basalt", "BASALT": "basalt", "basalt": "", "other": "",
		"basalt2": "", "Volcano": "volcano", "": ""} {
		pod := &v1.Pod{Spec: v1.PodSpec{SchedulerName: name}}
		p := FromPod(pod, nil, Rules{Schedulers: []string{"basalt", "volcano"}})
		if says == "" && p.Refused != nil || says != "" && (!p.Ours || p.Refused == nil ||
			!strings.Contains(p.Refused.Message, fmt.Sprintf("write %q", says))) {
			t.Errorf("%s: refused %+v, want %q", name, p.Refused, says)
		}
		pod.Spec.NodeName = "n"
		if p := FromPod(pod, nil, Rules{}); p.Refused != nil || p.Ours != (name == "basalt") {
			t.Errorf("%s, bound: %+v", name, p)
		}
	}
	if p := FromPod(&v1.Pod{Spec: v1.PodSpec{SchedulerName: "Basalt"}}, nil, Rules{}); p.Refused == nil {
		t.Error("by default, Basalt is nobody's name, and the pod is not told")
	}
	if p := FromPod(&v1.Pod{Spec: v1.PodSpec{SchedulerName: "Basalt"}}, nil, Rules{Schedulers: []string{"basalt",
		"Basalt"}}); p.Refused != nil || !p.Ours {
		t.Errorf("a name that Basalt serves: %+v", p)
	}
}

// A pod with spec.schedulingGroup belongs to that PodGroup of Kubernetes' own.
func TestUpstreamGroups(t *testing.T) {
	name := "g"
	pod := &v1.Pod{Spec: v1.PodSpec{SchedulerName: SchedulerName, SchedulingGroup: &v1.PodSchedulingGroup{PodGroupName: &name}}}
	for how, p := range map[string]*v1.Pod{"": pod, ", stripped": StripPod(pod)} {
		if as := FromPod(p, nil, Rules{}); as.Refused != nil || as.Group != "g" || as.GroupKind != UpstreamGroup {
			t.Errorf("it%s is read as %+v", how, as)
		}
	}
	pod.Annotations = map[string]string{"scheduling.k8s.io/group-name": "g"}
	if as := FromPod(pod, nil, Rules{Volcano: true}); as.Refused == nil || !strings.Contains(as.Refused.Message, "a pod belongs to one group") {
		t.Errorf("of two groups, it is refused with %+v", as.Refused)
	}
	pod.Annotations, pod.Spec.SchedulerName = nil, "other"
	if as := FromPod(pod, nil, Rules{}); as.Group != "" {
		t.Errorf("of another scheduler, it is read as %+v", as)
	}
}

// With --volcano, a pod's annotations say which Volcano PodGroup it belongs to, and as which task; two groups are still refused.
func TestVolcanoGroups(t *testing.T) {
	const name, name2, task, queue = "scheduling.k8s.io/group-name", "scheduling.volcano.sh/group-name", "volcano.sh/task-spec", "scheduling.volcano.sh/queue-name"
	type m = map[string]string
	for _, c := range []struct {
		what                string
		labels, annotations m
		want                Pod // of the fields that are compared
		refused             string
	}{
		{"a task", nil, m{name: "job", task: "worker"}, Pod{Group: "job", GroupKind: VolcanoGroup, Role: "worker"}, ""},
		{"a task in a label", m{task: "ps"}, m{name: "job"}, Pod{Group: "job", GroupKind: VolcanoGroup, Role: "ps"}, ""},
		{"Volcano's own annotation", nil, m{name2: "job"}, Pod{Group: "job", GroupKind: VolcanoGroup}, ""},
		{"both", nil, m{name: "job", name2: "job"}, Pod{Group: "job", GroupKind: VolcanoGroup}, ""},
		{"two names", nil, m{name: "job", name2: "other"}, Pod{Group: "job", GroupKind: VolcanoGroup}, `names the Volcano PodGroup "other": a pod belongs to one group`},
		{"ours too", m{LabelPodGroup: "g"}, m{name: "job", task: "worker"}, Pod{Group: "g"}, "a pod belongs to one group"},
		{"Kueue's too", m{"kueue.x-k8s.io/pod-group-name": "k"}, m{name: "job"}, Pod{Group: "job", GroupKind: VolcanoGroup}, "a pod belongs to one group"},
		{"a queue alone", nil, m{queue: "team"}, Pod{VolcanoQueue: "team"}, ""},
		{"two queues", m{LabelQueue: "ours"}, m{queue: "team"}, Pod{Queue: "ours"}, ""},
		{"a queue beside a group", nil, m{name: "job", queue: "team"}, Pod{Group: "job", GroupKind: VolcanoGroup}, ""},
		{"a task without a group", nil, m{task: "worker"}, Pod{}, ""},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: c.labels, Annotations: c.annotations}, Spec: v1.PodSpec{SchedulerName: SchedulerName}}
		rules := Rules{Volcano: true}
		for how, p := range map[string]*Pod{"": FromPod(pod, nil, rules), ", stripped": FromPod(StripPod(pod), nil, rules)} {
			if got := (Pod{Group: p.Group, GroupKind: p.GroupKind, Role: p.Role, Queue: p.Queue, VolcanoQueue: p.VolcanoQueue}); !reflect.DeepEqual(got, c.want) {
				t.Errorf("%s%s: %+v, want %+v", c.what, how, got, c.want)
			}
			switch {
			case c.refused == "" && p.Refused != nil:
				t.Errorf("%s%s: refused: %s", c.what, how, p.Refused.Message)
			case c.refused != "" && (p.Refused == nil || !strings.Contains(p.Refused.Message, c.refused)):
				t.Errorf("%s%s: refused %+v, want %q", c.what, how, p.Refused, c.refused)
			}
		}
		pod.Spec.NodeName = "n"
		if p := FromPod(StripPod(pod), nil, rules); p.Refused != nil || p.Group != c.want.Group || p.GroupKind != c.want.GroupKind || p.Role != c.want.Role {
			t.Errorf("%s: bound, it is %+v", c.what, p)
		}
		pod.Spec.SchedulerName = "volcano"
		if p := FromPod(pod, nil, rules); p.Group != c.labels[LabelPodGroup] || p.Queue != c.labels[LabelQueue] || p.Refused != nil {
			t.Errorf("%s: a pod of Volcano's scheduler is %+v", c.what, p)
		}
	}
}

func TestNearest(t *testing.T) {
	for wrong, want := range map[string]string{"placment": "placement", "quota": "", "": "", "log": "log",
		"lgo": "log", "x": ""} {
		if got := Nearest(wrong, []string{"log", "placement", "volcano"}); got != want {
			t.Errorf("%q: %q, want %q", wrong, got, want)
		}
	}
}
