package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
)

// withImages is a node that has images: NAME=MiB.
func withImages(name string, images ...string) *api.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{
		Allocatable: v1.ResourceList{"cpu": resource.MustParse("2"), "pods": resource.MustParse("10")}}}
	for _, text := range images {
		name, size, _ := strings.Cut(text, "=")
		var mib int64
		fmt.Sscan(size, &mib)
		n.Status.Images = append(n.Status.Images, v1.ContainerImage{Names: []string{name}, SizeBytes: mib << 20})
	}
	return api.FromNode(n, nil)
}

// running is a class of pods with a container of each image.
func running(images ...string) *api.Class {
	p := &v1.Pod{Spec: v1.PodSpec{SchedulerName: api.SchedulerName}}
	for i, name := range images {
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint("c", i), Image: name})
	}
	p.Spec.Containers[0].Resources.Requests = v1.ResourceList{"cpu": resource.MustParse("1")}
	return api.FromPod(p, nil, api.Rules{Images: true}).Class
}

// TestImageScores: what kube-scheduler's plugin ImageLocality says of the same nodes, but for the share of the nodes that have an image, which is
// rounded up to a power of two.
func TestImageScores(t *testing.T) {
	for _, test := range []struct {
		images []string // of the pod
		want   string   // scores of n1 to n4
	}{
		{[]string{"big"}, "[100 0 0 0]"},             // 4,000 MiB on one of four nodes
		{[]string{"half"}, "[48 48 0 0]"},            // 1,000 MiB on two
		{[]string{"all:latest"}, "[7 7 7 7]"},        // 100 MiB
		{[]string{"all"}, "[7 7 7 7]"},               // which is the same
		{[]string{"small"}, "[0 0 0 0]"},             // 20 MiB
		{[]string{"big", "half"}, "[74 24 0 0]"},     // of 2,000 MiB
		{[]string{"big", "big"}, "[100 0 0 0]"},      // each container counts
		{[]string{"none", "other:7"}, "[0 0 0 0]"},   // nobody has them
		{[]string{"all", "all", "all"}, "[9 9 9 9]"}, // 300 of 3,000 MiB
	} {
		c := New(Config{})
		nodes := []*api.Node{withImages("n1", "big:latest=4000", "half:latest=1000", "all:latest=100", "small:latest=20"),
			withImages("n2", "half:latest=1000", "all:latest=100"), withImages("n3", "all:latest=100"), withImages("n4", "all:latest=100")}
		for _, n := range nodes {
			c.SetNode(n)
		}
		w := c.wishOf(c.plan(running(test.images...)))
		var got []int64
		for _, n := range nodes {
			got = append(got, w.likes(n).images)
		}
		if fmt.Sprint(got) != test.want {
			t.Errorf("%v: %v, want %s", test.images, got, test.want)
		}
	}
}

// TestPodsGoWhereTheirImagesAre: if nothing else is at stake; a required constraint goes before.
func TestPodsGoWhereTheirImagesAre(t *testing.T) {
	c := New(Config{})
	for i := range 8 {
		c.SetNode(withImages(fmt.Sprint("n", i)))
	}
	class := running("train:3")
	if got := fmt.Sprint(placeAll(t, c, class, "a", 1)); got != "[n0]" {
		t.Errorf("nobody has the image, and the pod goes to %s", got)
	}
	for i := 4; i < 8; i++ { // their kubelets pull it
		c.SetNode(withImages(fmt.Sprint("n", i), "train:3=8000"))
	}
	if got := fmt.Sprint(placeAll(t, c, class, "b", 9)); got != "[n4 n4 n5 n5 n6 n6 n7 n7 n0]" {
		t.Errorf("pods go to %s", got)
	}
	for i := range 8 {
		c.Release(fmt.Sprint("b", i))
	}
	c.SetNode(withImages("n6")) // and remove it
	if got := fmt.Sprint(placeAll(t, c, class, "c", 7)); got != "[n4 n4 n5 n5 n7 n7 n1]" {
		t.Errorf("pods go to %s", got)
	}
	if plain := running("other:1"); c.Grade(plain) != c.Grade(running("none:1")) {
		t.Error("images that nobody has make a difference")
	}
}

// TestImagesComeAndGo: what is kept of images is what nodes have, whatever comes in which order.
func TestImagesComeAndGo(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	c := New(Config{})
	names := []string{"a:1", "b:1", "c:1", "d:1"}
	for step := range 3000 {
		name := fmt.Sprint("n", r.IntN(40))
		switch r.IntN(8) {
		case 0:
			c.RemoveNode(name)
		case 1:
			of := slices.Clone(names)
			r.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
			class := running(of[:1+r.IntN(3)]...)
			if node, ok := c.Place(class); ok {
				c.Charge(fmt.Sprint("p", step), node, class.Wishing(nil), Bound, "", api.Rank{})
			}
		case 2:
			c.Release(fmt.Sprint("p", r.IntN(step+1)))
		default:
			var has []string
			for _, name := range names {
				if r.IntN(3) == 0 {
					has = append(has, fmt.Sprintf("%s=%d", name, 200+r.IntN(3)*2000))
				}
			}
			c.SetNode(withImages(name, has...))
		}
		if err := c.Check(); err != nil {
			t.Fatalf("step %d: %v", step, err)
		}
	}
}

// TestSharesFollowTheNumberOfNodes: nodes without an image that leave or come change the share of nodes that have it.
func TestSharesFollowTheNumberOfNodes(t *testing.T) {
	c := New(Config{})
	class := running("big")
	for i := range 64 {
		n := withImages(fmt.Sprint("n", i))
		if i < 4 {
			n = withImages(fmt.Sprint("n", i), "big:latest=1000")
		}
		c.SetNode(n)
	}
	score := func() int64 {
		t.Helper()
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		return c.wishOf(c.find(class)).likes(c.nodes["n0"].object).images
	}
	few := score()
	for i := 8; i < 64; i++ {
		c.RemoveNode(fmt.Sprint("n", i))
	}
	half := score()
	for i := 8; i < 64; i++ {
		c.SetNode(withImages(fmt.Sprint("n", i)))
	}
	if again := score(); few > 4 || half < 23 || again > 10 { // within a factor of two
		t.Errorf("scores: %d of one in 16, %d of one in 2, %d of one in 16 again", few, half, again)
	}
}
