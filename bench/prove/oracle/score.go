package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/prove/lab"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

// Scores compares where Basalt places pods that prefer some nodes with kube-scheduler's score plugins for such wishes. A pod is placed by
// the home core of one shard and the node cores of all, and then the next one comes: each is judged in the cluster as
// it is for it.

// wishPlugins are those whose scores are about the same wishes as Basalt's tiers.
var wishPlugins = map[string]bool{names.NodeAffinity: true, names.TaintToleration: true}

// imagePlugins are those, and the one about images that nodes have.
var imagePlugins = map[string]bool{names.NodeAffinity: true, names.TaintToleration: true, names.ImageLocality: true}

// Top returns the nodes that can take the pod of a case and to which kube-scheduler gives the highest score, by some of its plugins with their
// weights.
func Top(c *Case, plugins map[string]bool) (map[string]bool, error) {
	top := map[string]bool{}
	_, err := feasible(c, func(ctx context.Context, f framework.Framework, state fwk.CycleState, fit []fwk.NodeInfo) error {
		if len(fit) == 0 {
			return nil
		}
		if status := f.RunPreScorePlugins(ctx, state, c.Pod, fit); !status.IsSuccess() {
			return fmt.Errorf("prescore: %w", status.AsError())
		}
		scores, status := f.RunScorePlugins(ctx, state, c.Pod, fit)
		if !status.IsSuccess() {
			return fmt.Errorf("score: %w", status.AsError())
		}
		best := int64(-1)
		for _, n := range scores {
			sum := int64(0)
			for _, s := range n.Scores {
				if plugins[s.Name] {
					sum += s.Score
				}
			}
			if sum > best {
				best = sum
				clear(top)
			}
			if sum == best {
				top[n.Name] = true
			}
		}
		return nil
	})
	return top, err
}

// plant is a Basalt of some shards, of which the first has the queue of all pods.
type plant struct {
	*lab.Fleet
	rules api.Rules
	holds int // HoldRequests to other shards than the first
}

func newPlant(c *Case, shards int, rules api.Rules) *plant {
	p := &plant{rules: rules, Fleet: lab.NewFleet(shards, home.Config{Strict: true}, node.Config{Strict: true},
		func(b api.BucketID) int {
			if b == api.BucketOf("default") {
				return 0
			}
			return int(b) % shards
		})}
	p.Sent = func(send event.Send) {
		if send.Body.GetHoldRequest() != nil {
			p.holds++
		}
	}
	var nodes []*api.Node
	for _, n := range c.Nodes {
		nodes = append(nodes, p.rules.FromNode(p.rules.StripNode(n), nil))
	}
	p.Begin("default", nodes)
	return p
}

// place has a pod placed and bound, and returns where; "" if there is no room.
func (p *plant) place(pod *v1.Pod) string {
	ours := pod.DeepCopy()
	ours.Spec.SchedulerName = api.SchedulerName
	seen := api.FromPod(p.rules.StripPod(ours), nil, p.rules)
	p.Show(seen)
	p.Pass(100 * time.Millisecond)
	if seen = p.Pods[seen.UID]; seen.Node == "" {
		p.Fleet.Remove(seen)
	}
	return seen.Node
}

// judged places the pod of a case, which the filters of kube-scheduler let go to some nodes, and adds it to the case.
// It returns where, "" if there is no room, and counts the pods that found none although the filters left some.
func (p *plant) judged(c *Case, fits map[string]bool, refused *int) (on string, err error) {
	switch on = p.place(c.Pod); {
	case on == "" && len(fits) > 0:
		*refused++
		return "", nil
	case on == "":
		return "", nil
	case !fits[on]:
		return "", fmt.Errorf("pod %s was placed on %s, which the filters refuse", c.Pod.Name, on)
	}
	bound := c.Pod.DeepCopy()
	bound.Spec.NodeName, bound.Status.Phase, bound.Status.StartTime = on, v1.PodRunning, &started
	c.Pods = append(c.Pods, bound)
	return on, nil
}

// Scores is what came out of some sequences of pods.
type Scores struct {
	Pods, Top    int // placed, and of those on a node of kube-scheduler's highest score, without what the pods that are there prefer,
	Heard        int // and with it
	Choosy       int // pods for which not all nodes with room have the same score,
	ChoosyTop    int
	Refused      int // found no room in Basalt, and some by the filters of kube-scheduler
	OtherMessage int // HoldRequests to shards other than the home's
}

func (s *Scores) add(o Scores) {
	s.Heard += o.Heard
	s.Pods, s.Top, s.Choosy, s.ChoosyTop, s.Refused, s.OtherMessage = s.Pods+o.Pods, s.Top+o.Top, s.Choosy+o.Choosy, s.ChoosyTop+o.ChoosyTop, s.Refused+o.Refused, s.OtherMessage+o.OtherMessage
}

// Score places the pods of a seed over some shards. They prefer some nodes, and some pods around them if they lean.
func Score(seed uint64, shards int, l lean) (out Scores, err error) {
	c, pods := sequence(seed, l)
	plugins := wishPlugins
	switch {
	case l == leanImages:
		plugins = imagePlugins
	case l.onPods():
		plugins = leaningPlugins
	}
	p := newPlant(c, shards, api.Rules{Images: l == leanImages})
	for _, pod := range pods {
		c.Pod = pod
		a, err := Feasible(c)
		if err != nil {
			return out, err
		}
		top, err := Top(c.silent(), plugins)
		if err != nil {
			return out, err
		}
		heard := top
		if l.onPods() {
			if heard, err = Top(c, plugins); err != nil {
				return out, err
			}
		}
		on, err := p.judged(c, a.Fits, &out.Refused)
		if err != nil {
			return out, fmt.Errorf("seed %d: %w", seed, err)
		}
		if on == "" {
			continue
		}
		out.Pods++
		choosy := len(top) < len(a.Fits)
		if choosy {
			out.Choosy++
		}
		if heard[on] {
			out.Heard++
		}
		if top[on] {
			out.Top++
			if choosy {
				out.ChoosyTop++
			}
		}
	}
	out.OtherMessage = p.holds
	return out, nil
}

// sequence returns the cluster and the pods of a seed: a few kinds of pods, whose wishes overlap, come in turns until the cluster is nearly full.
func sequence(seed uint64, l lean) (*Case, []*v1.Pod) {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), c: &Case{}}
	room := 0
	for i := range 6 + g.IntN(40) {
		n := &v1.Node{ObjectMeta: named("n" + strconv.Itoa(i+1))}
		n.Labels = map[string]string{hostnameKey: n.Name, zoneKey: pick(g, "a", "a", "b", "c"), "disk": pick(g, "ssd", "hdd", "hdd"), "gen": strconv.Itoa(g.IntN(5))}
		if g.oneIn(4) {
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "spot", Effect: v1.TaintEffectPreferNoSchedule})
		}
		if g.oneIn(8) {
			n.Spec.Taints = append(n.Spec.Taints, v1.Taint{Key: "slow", Value: pick(g, "a", "b"), Effect: v1.TaintEffectPreferNoSchedule})
		}
		cores := 2 + g.IntN(4)
		room += cores
		n.Status.Allocatable = v1.ResourceList{"cpu": *resource.NewQuantity(int64(cores), resource.DecimalSI), "memory": quantity("64Gi"), "pods": quantity("110"), "ephemeral-storage": quantity("10Gi")}
		n.Status.Capacity = n.Status.Allocatable
		if l == leanImages {
			n.Status.Images = g.images()
		}
		g.c.Nodes = append(g.c.Nodes, n)
	}
	var kinds []v1.PodSpec
	apps := 1 + g.IntN(4)
	for app := range apps {
		s := g.wisher()
		switch {
		case l == leanImages:
			s.Containers[0].Image = pick(g, imageNames...)
			if g.oneIn(3) {
				s.InitContainers = []v1.Container{{Name: "init", Image: pick(g, imageNames...)}}
			}
		case l.onPods():
			g.leaner(&s, l, app, apps)
		}
		kinds = append(kinds, s)
	}
	var pods []*v1.Pod
	for i := range room * 9 / 10 {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p" + strconv.Itoa(i), UID: types.UID("uid-p" + strconv.Itoa(i)), ResourceVersion: "1"}}
		app := g.IntN(apps)
		p.Spec = *kinds[app].DeepCopy()
		if l.onPods() {
			p.Labels = map[string]string{"app": strconv.Itoa(app)}
		}
		pods = append(pods, p)
	}
	g.c.Pod = pods[0]
	g.c.complete()
	for _, p := range pods {
		(&Case{Pod: p}).complete()
	}
	return g.c, pods
}

var imageNames = []string{"base", "web:1", "train:2", "serve:3"}

// images returns what a node has: small and large ones, most of which are on some nodes.
func (g *generator) images() (out []v1.ContainerImage) {
	for i, name := range []string{"base:latest", "web:1", "train:2", "serve:3"} {
		if g.IntN(5) > i {
			out = append(out, v1.ContainerImage{Names: []string{name}, SizeBytes: int64([]int{90, 400, 6000, 1500}[i]) << 20})
		}
	}
	return out
}

// wisher returns what a pod asks for, and which nodes it prefers.
func (g *generator) wisher() v1.PodSpec {
	s := v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "busybox", Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": quantity("1"), "memory": quantity("1Gi")}}}}}
	terms := []v1.PreferredSchedulingTerm{}
	for range g.IntN(4) {
		e := v1.NodeSelectorRequirement{Key: zoneKey, Operator: v1.NodeSelectorOpIn, Values: some(g, "a", "b", "c")}
		switch g.IntN(3) {
		case 0:
			e = v1.NodeSelectorRequirement{Key: "disk", Operator: pick(g, v1.NodeSelectorOpIn, v1.NodeSelectorOpNotIn), Values: []string{"ssd"}}
		case 1:
			e = v1.NodeSelectorRequirement{Key: "gen", Operator: pick(g, v1.NodeSelectorOpGt, v1.NodeSelectorOpLt), Values: []string{strconv.Itoa(g.IntN(5))}}
		}
		if len(e.Values) == 0 {
			e.Values = []string{"a"}
		}
		terms = append(terms, v1.PreferredSchedulingTerm{Weight: int32(pick(g, 1, 10, 50, 100)), Preference: v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{e}}})
	}
	if len(terms) > 0 {
		s.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: terms}}
	}
	if g.oneIn(3) {
		s.NodeSelector = map[string]string{"disk": "hdd"}
	}
	if g.oneIn(3) {
		s.Tolerations = []v1.Toleration{{Key: "spot", Operator: v1.TolerationOpExists}}
	}
	return s
}
