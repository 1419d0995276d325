package api

import (
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
		{"Volcano", nil, map[string]string{"scheduling.k8s.io/group-name": "job-1"}, "", []string{"metadata.annotations[scheduling.k8s.io/group-name]", `Volcano PodGroup "job-1"`, LabelPodGroup}},
		{"Volcano's own annotation", nil, map[string]string{"scheduling.volcano.sh/group-name": "job-1"}, "", []string{"metadata.annotations[scheduling.volcano.sh/group-name]", `"job-1"`}},
		{"Kueue", map[string]string{"kueue.x-k8s.io/pod-group-name": "set"}, nil, "", []string{"metadata.labels[kueue.x-k8s.io/pod-group-name]", `Kueue pod group "set"`}},
		{"coscheduling", map[string]string{"scheduling.x-k8s.io/pod-group": "train"}, nil, "", []string{"metadata.labels[scheduling.x-k8s.io/pod-group]", `"train"`}},
		{"Koordinator", nil, map[string]string{"gang.scheduling.koordinator.sh/name": "g"}, "", []string{"metadata.annotations[gang.scheduling.koordinator.sh/name]", `Koordinator gang "g"`}},
		{"YuniKorn", nil, map[string]string{"yunikorn.apache.org/task-group-name": "g"}, "", []string{"metadata.annotations[yunikorn.apache.org/task-group-name]", `YuniKorn task group "g"`}},
		{"Kubernetes", nil, nil, "workers", []string{"spec.schedulingGroup", `PodGroup of scheduling.k8s.io "workers"`}},
		{"ours and Volcano's", map[string]string{LabelPodGroup: "a"}, map[string]string{"scheduling.k8s.io/group-name": "b"}, "",
			[]string{"metadata.annotations[scheduling.k8s.io/group-name]", `Volcano PodGroup "b"`, LabelPodGroup, `PodGroup "a"`}},
		{"ours and Volcano's of one name", map[string]string{LabelPodGroup: "a"}, map[string]string{"scheduling.k8s.io/group-name": "a"}, "", []string{`Volcano PodGroup "a"`, `names PodGroup "a"`}},
		{"ours and that of Kubernetes", map[string]string{LabelPodGroup: "a"}, nil, "b", []string{"spec.schedulingGroup", `"b"`, `names PodGroup "a"`}},
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
		if p := FromPod(bound, nil, Rules{}); p.Refused != nil || len(bound.Annotations) > 0 {
			t.Errorf("%s: bound, it is refused with %v, and %v is kept", c.what, p.Refused, bound.Annotations)
		}
		pod.Spec.NodeName, pod.Spec.SchedulerName = "", "other"
		if p := FromPod(pod, nil, Rules{}); p.Refused != nil {
			t.Errorf("%s: a pod of another scheduler is refused: %s", c.what, p.Refused.Message)
		}
	}
}
