package api_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

func preferred(weight int32, key string, values ...string) v1.PreferredSchedulingTerm {
	return v1.PreferredSchedulingTerm{Weight: weight, Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpIn, Values: values}}}}
}

func preferring(terms ...v1.PreferredSchedulingTerm) *v1.Pod {
	return &v1.Pod{Spec: v1.PodSpec{SchedulerName: api.SchedulerName,
		Affinity: &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}}}
}

// TestWishes: the preferred terms of a pod are part of its class, whatever their order, as long as the pod waits.
func TestWishes(t *testing.T) {
	a, b := preferred(10, "zone", "a"), preferred(20, "disk", "ssd")
	classOf := func(p *v1.Pod) *api.Class {
		t.Helper()
		got, stripped := api.FromPod(p, nil, api.Rules{}), api.FromPod(api.StripPod(p), nil, api.Rules{})
		if !reflect.DeepEqual(got, stripped) {
			t.Fatalf("stripped, the pod reduces to %+v, not %+v", stripped, got)
		}
		if got.Refused != nil || got.Unheeded != "" {
			t.Fatalf("the pod is refused, %v, or its wishes are not heeded: %q", got.Refused, got.Unheeded)
		}
		return got.Class
	}
	plain, class := classOf(preferring()), classOf(preferring(a, b))
	if len(plain.Wishes) > 0 || plain.Key == class.Key || len(class.Constraints) > 0 {
		t.Errorf("without terms the class is %q, with two %q", plain.Key, class.Key)
	}
	first := func(t v1.PreferredSchedulingTerm) bool { return reflect.DeepEqual(t, a) }
	if w, err := api.ReadWishes(class.Wishes); err != nil || len(w.Terms) != 2 || !slices.ContainsFunc(w.Terms, first) {
		t.Errorf("the wishes of the class are %v, %v", w.Terms, err)
	}
	if other := classOf(preferring(b, a)); other.Key != class.Key {
		t.Error("the same terms in another order are of another class")
	}
	if other := classOf(preferring(a, b, preferred(0, "zone", "c"), v1.PreferredSchedulingTerm{Weight: 5})); other.Key != class.Key {
		t.Error("terms that weigh or match nothing count")
	}
	if other := classOf(preferring(a)); other.Key == class.Key {
		t.Error("with one term less it is the same class")
	}
	if other := plain.Wishing(class.Wishes); other.Key != class.Key {
		t.Error("the class without wishes, with these wishes, is another")
	}
	if other := class.With(api.NewLabels(map[string]string{"app": "x"})); !slices.Equal(other.Wishes, class.Wishes) {
		t.Error("with labels it has no wishes")
	}
	if read, err := wire.ToClass(wire.FromClass(class)); err != nil || read.Key != class.Key {
		t.Errorf("sent and read it is %v, %v", read, err)
	}
	bound := preferring(a, b)
	bound.Spec.NodeName = "n1"
	if other := classOf(bound); other.Key != plain.Key {
		t.Error("a pod that has a node has wishes")
	}
	refused := preferring(a, b)
	refused.Spec.ResourceClaims = []v1.PodResourceClaim{{}}
	if got := api.FromPod(refused, nil, api.Rules{}); got.Refused == nil || len(got.Class.Wishes) > 0 {
		t.Error("a pod that is refused has wishes")
	}
}

// TestWishBounds: a pod that wishes too much is placed without its wishes, and told why.
func TestWishBounds(t *testing.T) {
	long, many := preferring(), []string{}
	for i := range api.MaxWishEntries {
		many = append(many, fmt.Sprint(i))
	}
	long.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []v1.PreferredSchedulingTerm{preferred(1, "k", strings.Repeat("v", api.MaxWishBytes))}
	for want, p := range map[string]*v1.Pod{
		"spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution: it has 258 terms, expressions and values, the limit is 256": preferring(preferred(1, "k", many...)),
		"spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution: it has 8248 bytes, the limit is 8192":                       long,
	} {
		for _, p := range []*v1.Pod{p, api.StripPod(p), api.StripPod(api.StripPod(p))} {
			got := api.FromPod(p, nil, api.Rules{})
			if got.Refused != nil || len(got.Class.Wishes) > 0 || got.Unheeded != want {
				t.Errorf("refused %v, wishes %d bytes, unheeded %q, want %q", got.Refused, len(got.Class.Wishes), got.Unheeded, want)
			}
		}
		if n := api.StripPod(p).Size(); n > 1000 {
			t.Errorf("%d bytes are left of the pod", n)
		}
	}
	if got := api.FromPod(preferring(preferred(1, "k", many[2:]...)), nil, api.Rules{}); got.Unheeded != "" || len(got.Class.Wishes) == 0 {
		t.Errorf("at the limit: %q", got.Unheeded)
	}
	forged := &v1.Pod{Spec: v1.PodSpec{SchedulerName: api.SchedulerName}}
	forged.Annotations = map[string]string{"scheduling.basalt.dev/unheeded": "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution" + strings.Repeat("!", 1000)}
	if got := api.FromPod(forged, nil, api.Rules{}); len(got.Unheeded) > 256 {
		t.Errorf("%d bytes are said of a pod by its author", len(got.Unheeded))
	}
}

// TestImages: images are wishes where the rules say so, under the names that kubelets use, and survive the stripping of pods and nodes.
func TestImages(t *testing.T) {
	p := &v1.Pod{Spec: v1.PodSpec{SchedulerName: api.SchedulerName, InitContainers: []v1.Container{{Image: "init"}}, Containers: []v1.Container{{Image: "host:5000/train"}, {Image: "b@sha256:12"}, {}, {Image: strings.Repeat("x", 600)}},
		Volumes: []v1.Volume{{Name: "empty"}, {Name: "model", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "models/llama:70b"}}}}}}
	n := &v1.Node{Status: v1.NodeStatus{Images: []v1.ContainerImage{{Names: []string{"b@sha256:12", "b:1"}, SizeBytes: 5 << 20}, {Names: []string{"tiny:1"}, SizeBytes: 5}}}}
	on, off := api.Rules{Images: true}, api.Rules{}
	for _, p := range []*v1.Pod{p, on.StripPod(p)} {
		const want = "[b@sha256:12 host:5000/train:latest init:latest models/llama:70b]"
		if w, err := api.ReadWishes(api.FromPod(p, nil, on).Class.Wishes); err != nil || fmt.Sprint(w.Images) != want {
			t.Errorf("wishes are %v, %v", w.Images, err)
		}
	}
	if got := len(api.FromPod(p, nil, off).Class.Wishes) + len(api.FromPod(off.StripPod(p), nil, on).Class.Wishes); got != 0 {
		t.Errorf("wishes of %d bytes that nobody asked for", got)
	}
	if p.Spec.NodeName = "n"; len(api.FromPod(on.StripPod(p), nil, on).Class.Wishes) != 0 {
		t.Error("a pod that has a node wishes images")
	}
	images := api.FromNode(on.StripNode(n), nil).Images
	if len(images) != 2 || images.Size("b:1") != 5<<20 || images.Size("b@sha256:12") != 5<<20 || images.Size("tiny:1")+images.Size("c") != 0 {
		t.Errorf("images of a node: %v", images)
	}
	if kept := api.FromNode(off.StripNode(n), nil).Images; len(kept) != 0 {
		t.Errorf("%d images that nobody asked for", len(kept))
	}
}
