package api

import (
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
