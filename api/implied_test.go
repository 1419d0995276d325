package api

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A pod says by itself which gang it is of, and how many start together. What it says badly is refused, and names the field.
func TestImpliedGroups(t *testing.T) {
	const kueue, count, lws, size = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count", "leaderworkerset.sigs.k8s.io/group-key", "leaderworkerset.sigs.k8s.io/size"
	type m = map[string]string
	job := []metav1.OwnerReference{{Name: "job", UID: "u1", Controller: new(true)}}
	long := []metav1.OwnerReference{{Name: strings.Repeat("j", 1000), UID: types.UID(strings.Repeat("u", 1000)), Controller: new(true)}}
	for _, c := range []struct {
		what                string
		labels, annotations m
		owners              []metav1.OwnerReference
		group               string
		least               int
		refused             string
	}{
		{"the pods of a controller", nil, m{AnnotationGangMin: "4"}, job, "job/u1", 4, ""},
		{"a name", nil, m{AnnotationGangMin: "4", AnnotationGangName: "train"}, job, "train/", 4, ""},
		{"no controller", nil, m{AnnotationGangMin: "4"}, nil, "", 0, "metadata.annotations[scheduling.basalt.dev/gang-min] is set on a pod without a controller: name its gang in metadata.annotations[scheduling.basalt.dev/gang-name]"},
		{"an owner that is no controller", nil, m{AnnotationGangMin: "4"}, []metav1.OwnerReference{{Name: "job", UID: "u1"}}, "", 0, "a pod without a controller"},
		{"no minimum", nil, m{AnnotationGangName: "train"}, nil, "train/", 0, `names the gang "train", and metadata.annotations[scheduling.basalt.dev/gang-min] is missing`},
		{"no number", nil, m{AnnotationGangMin: "all"}, job, "job/u1", 0, `metadata.annotations[scheduling.basalt.dev/gang-min] is "all": not a number of pods from 1 to 100000`},
		{"zero", nil, m{AnnotationGangMin: "0"}, job, "job/u1", 0, `is "0"`},
		{"too many", nil, m{AnnotationGangMin: "100001"}, job, "job/u1", 0, `is "100001"`},
		{"a number of a kilobyte", nil, m{AnnotationGangMin: strings.Repeat("0", 1000) + "4"}, job, "job/u1", 0, `00..."`},
		{"no name of a gang", nil, m{AnnotationGangMin: "4", AnnotationGangName: "a/b"}, job, "", 0, `is "a/b": not the name of a gang`},
		{"a name of a kilobyte", nil, m{AnnotationGangMin: "4", AnnotationGangName: strings.Repeat("g", 1000)}, job, "", 0, `gg...": not the name of a gang`},
		{"an owner of a kilobyte", nil, m{AnnotationGangMin: "4"}, long, strings.Repeat("j", 250) + ".../501946cfb9bcf01f", 4, ""},
		{"labels", m{"job": "a", "set": "s"}, m{AnnotationGangMin: "4", AnnotationGangLabels: "set,job"}, job, "s.a/labels-", 4, ""},
		{"a label that is missing", m{"job": "a"}, m{AnnotationGangMin: "4", AnnotationGangLabels: "set,job"}, job, "", 0, `metadata.annotations[scheduling.basalt.dev/gang-labels] names the label "set", which the pod does not have`},
		{"labels without a minimum", m{"job": "a"}, m{AnnotationGangLabels: "job"}, job, "a/labels-", 0, `metadata.annotations[scheduling.basalt.dev/gang-labels] names the gang "a", and metadata.annotations[scheduling.basalt.dev/gang-min] is missing`},
		{"too many labels", m{"a": "a", "b": "b", "c": "c", "d": "d", "e": "e"}, m{AnnotationGangMin: "4", AnnotationGangLabels: "a,b,c,d,e"}, job, "", 0, `is "a,b,c,d,e": not a list of 1 to 4 keys of labels, separated by commas, of at most 512 bytes`},
		{"a key of a kilobyte", m{"a": "a"}, m{AnnotationGangMin: "4", AnnotationGangLabels: "a," + strings.Repeat("b", 1000)}, job, "", 0, `bb...": not a list of 1 to 4 keys`},
		{"no key", m{"a": "a"}, m{AnnotationGangMin: "4", AnnotationGangLabels: "a,"}, job, "", 0, `names the label ""`},
		{"labels with a PodGroup", m{"a": "a", LabelPodGroup: "g"}, m{AnnotationGangMin: "4", AnnotationGangLabels: "a"}, job, "g", 0, ""},
		{"labels and a name", m{"a": "a"}, m{AnnotationGangMin: "4", AnnotationGangLabels: "a", AnnotationGangName: "train"}, job, "train/", 4, ""},
		{"Kueue", m{kueue: "set"}, m{count: "3"}, job, "set/kueue", 3, ""},
		{"Kueue without a number", m{kueue: "set"}, nil, job, "set/kueue", 0, `metadata.labels[kueue.x-k8s.io/pod-group-name] names the Kueue pod group "set", and metadata.annotations[kueue.x-k8s.io/pod-group-total-count] is missing`},
		{"Kueue's and its own", m{kueue: "set"}, m{count: "3", AnnotationGangMin: "2"}, job, "job/u1", 2, "a pod belongs to one group"},
		{"LeaderWorkerSet", m{lws: "f00"}, m{size: "8"}, job, "f00/lws", 8, ""},
		{"LeaderWorkerSet with a PodGroup", m{lws: "f00", LabelPodGroup: "g"}, m{size: "8"}, job, "g", 0, ""},
		{"LeaderWorkerSet with a minimum of its own", m{lws: "f00"}, m{size: "8", AnnotationGangMin: "1"}, job, "job/u1", 1, ""},
		{"a PodGroup too", m{LabelPodGroup: "g"}, m{AnnotationGangMin: "2"}, job, "g", 0, `metadata.annotations[scheduling.basalt.dev/gang-min] names the gang "job": a pod belongs to one group`},
		{"nothing", nil, m{count: "3", size: "3"}, job, "", 0, ""},
	} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: c.labels, Annotations: c.annotations, OwnerReferences: c.owners}, Spec: v1.PodSpec{SchedulerName: SchedulerName}}
		for _, node := range []string{"", "n"} {
			pod.Spec.NodeName = node
			stripped := StripPod(pod)
			if stripped.Size() > 2000 {
				t.Errorf("%s: %d bytes are kept", c.what, stripped.Size())
			}
			for how, p := range map[string]*Pod{"": FromPod(pod, nil, Rules{}), ", stripped": FromPod(stripped, nil, Rules{})} {
				if !strings.HasPrefix(p.Group, c.group) || len(c.group) < 200 && !strings.HasSuffix(c.group, "labels-") && p.Group != c.group || p.GroupMin != c.least {
					t.Errorf("%s%s, node %q: group %q of %d, want %q of %d", c.what, how, node, p.Group, p.GroupMin, c.group, c.least)
				}
				switch says := p.Refused; {
				case says == nil && c.refused != "" && node == "", says != nil && (c.refused == "" || node != ""):
					t.Errorf("%s%s, node %q: refused %+v", c.what, how, node, says)
				case says != nil && (!strings.Contains(says.Message, c.refused) || len(says.Message) > 1000):
					t.Errorf("%s%s: %.2000s, want %s", c.what, how, says.Message, c.refused)
				}
			}
		}
		pod.Spec.SchedulerName = "other"
		if p := FromPod(pod, nil, Rules{}); p.GroupKind == ImpliedGroup || p.Refused != nil {
			t.Errorf("%s: a pod of another scheduler is read as %+v", c.what, p)
		}
	}
}

func TestGroupTitle(t *testing.T) {
	for of, want := range map[string]string{"job/u1": "job", "train/": "train", "a/b/u": "a/b"} {
		if got := GroupTitle(ImpliedGroup, of); got != want {
			t.Errorf("%s is shown as %s", of, got)
		}
	}
	if GroupTitle(VolcanoGroup, "a/b") != "a/b" || ImpliedUID("a", "b/") == ImpliedUID("a", "c/") || len(ImpliedUID("a", "b/")) != 36 {
		t.Error("titles or UIDs are wrong")
	}
}

// The kind of controller that may make its pods a few at a time is known, also of a stripped pod.
func TestMakerOf(t *testing.T) {
	for kind, want := range map[string]string{"ReplicaSet": "ReplicaSet", "StatefulSet": "StatefulSet", "Job": ""} {
		pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnotationGangMin: "4"},
			OwnerReferences: []metav1.OwnerReference{{Kind: kind, Name: "o", UID: "u", Controller: new(true)}}},
			Spec: v1.PodSpec{SchedulerName: SchedulerName}}
		for _, p := range []*v1.Pod{pod, StripPod(pod)} {
			if got := FromPod(p, nil, Rules{}); got.Role != want || got.GroupMin != 4 {
				t.Errorf("of a %s: %+v, want the role %q", kind, got, want)
			}
		}
	}
}
