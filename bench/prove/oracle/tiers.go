package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/tiers"
	"basalt.dev/basalt/shard/event"
)

const gpuName = "example.com/gpu"

// tierCase is a class of nodeTiers, and what it says without expressions.
type tierCase struct {
	tiers.Class
	pod  func(p *v1.Pod) bool
	node func(n *v1.Node) int
}

var tierCases = []tierCase{
	{tiers.Class{Name: "cheap", Pods: `labels[?"app"].orValue("") == "batch"`,
		Nodes: `taints.exists(t, t.key == "spot") ? 0 : int(labels["gen"]) >= 3 ? 1 : 2`},
		func(p *v1.Pod) bool { return p.Labels["app"] == "batch" },
		func(n *v1.Node) int {
			for _, t := range n.Spec.Taints {
				if t.Key == "spot" {
					return 0
				}
			}
			if gen, err := strconv.Atoi(n.Labels["gen"]); err != nil {
				return 3
			} else if gen >= 3 {
				return 1
			}
			return 2
		}},
	{tiers.Class{Name: "fast", Pods: `priority >= 10 && namespaceName == "default"`,
		Nodes: `labels["disk"] == "ssd" ? 0 : allocatable["cpu"] >= 4000 ? 2 : 3`},
		func(p *v1.Pod) bool { return *p.Spec.Priority >= 10 },
		func(n *v1.Node) int {
			switch {
			case n.Labels["disk"] == "ssd":
				return 0
			case n.Status.Allocatable.Cpu().Value() >= 4:
				return 2
			}
			return 3
		}},
	{tiers.Class{Name: "no-gpu", Pods: `!("example.com/gpu" in requests)`,
		Nodes: `"example.com/gpu" in allocatable ? 3 : 0`},
		func(p *v1.Pod) bool { return len(p.Spec.Containers[0].Resources.Requests) == 2 },
		func(n *v1.Node) int {
			if _, has := n.Status.Allocatable[gpuName]; has {
				return 3
			}
			return 0
		}},
	{tiers.Class{Name: "idle", Pods: "false", Nodes: "0"},
		func(*v1.Pod) bool { return false }, func(*v1.Node) int { return 0 }},
}

// Tiered is what came out of some sequences of pods that have classes of nodeTiers.
type Tiered struct {
	Pods, Best   int // placed with a class, of those on a node of the best tier that kube-scheduler's filters leave,
	Choosy       int // pods for which not all such nodes are of one tier,
	ChoosyBest   int
	Refused      int // found no room in Basalt, and some by the filters of kube-scheduler
	Changed      int // nodes that changed their tiers between pods
	OtherMessage int // HoldRequests to shards other than the home's
}

func (s *Tiered) add(o Tiered) {
	s.Pods, s.Best, s.Choosy, s.ChoosyBest = s.Pods+o.Pods, s.Best+o.Best, s.Choosy+o.Choosy, s.ChoosyBest+o.ChoosyBest
	s.Refused, s.Changed, s.OtherMessage = s.Refused+o.Refused, s.Changed+o.Changed, s.OtherMessage+o.OtherMessage
}

// classOf returns the first class that a pod is of, nil for none.
func classOf(p *v1.Pod) *tierCase {
	for i := range tierCases {
		if tierCases[i].pod(p) {
			return &tierCases[i]
		}
	}
	return nil
}

// PlaceTiered places the pods of a seed over some shards, one after another, while nodes change. Each is judged by all
// nodes that can take it at that moment.
func PlaceTiered(seed uint64, shards int) (out Tiered, err error) {
	c, pods := sequence(seed, leanNot)
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 2)), c: c}
	for _, n := range c.Nodes {
		g.gpus(n)
	}
	for _, p := range pods {
		p.Labels = map[string]string{"app": pick(g, "batch", "serve", "train")}
		p.Spec.Priority = new(pick(g, int32(0), 0, 10))
		if g.oneIn(4) {
			one := p.Spec.Containers[0].Resources.Requests.DeepCopy()
			one[gpuName] = quantity("1")
			p.Spec.Containers[0].Resources.Requests = one
		}
	}
	var classes []tiers.Class
	for _, t := range tierCases {
		classes = append(classes, t.Class)
	}
	rules, err := tiers.Compile(classes, nil)
	if err != nil {
		return out, err
	}
	p := newPlant(c, shards, api.Rules{Tiers: rules})
	was := map[string]*api.Node{}
	for _, pod := range pods {
		if g.oneIn(6) {
			n := g.c.Nodes[g.IntN(len(c.Nodes))]
			g.changeNode(n)
			now := p.rules.FromNode(p.rules.StripNode(n), was[n.Name])
			was[n.Name] = now
			p.Tell(event.NodeSeen{Node: now})
			out.Changed++
		}
		c.Pod = pod
		a, err := Feasible(c)
		if err != nil {
			return out, err
		}
		class := classOf(pod)
		best, worst, tierOf := 4, -1, map[string]int{}
		for _, n := range c.Nodes {
			if class != nil && a.Fits[n.Name] {
				tierOf[n.Name] = class.node(n)
				best, worst = min(best, tierOf[n.Name]), max(worst, tierOf[n.Name])
			}
		}
		on, err := p.judged(c, a.Fits, &out.Refused)
		if err != nil {
			return out, fmt.Errorf("seed %d: %w", seed, err)
		}
		if on == "" || class == nil {
			continue
		}
		out.Pods++
		if tierOf[on] == best {
			out.Best++
		}
		if best < worst {
			out.Choosy++
		}
		if best < worst && tierOf[on] == best {
			out.ChoosyBest++
		}
	}
	out.OtherMessage = p.holds
	return out, nil
}

// gpus gives some nodes GPUs, in place of what they had.
func (g *generator) gpus(n *v1.Node) {
	all := n.Status.Allocatable.DeepCopy()
	delete(all, gpuName)
	if g.oneIn(3) {
		all[gpuName] = *resource.NewQuantity(int64(1+g.IntN(4)), resource.DecimalSI)
	}
	n.Status.Allocatable, n.Status.Capacity = all, all
}

// changeNode changes a label, a taint or an allocatable amount of a node.
func (g *generator) changeNode(n *v1.Node) {
	labels := map[string]string{}
	for k, v := range n.Labels {
		labels[k] = v
	}
	switch g.IntN(5) {
	case 0:
		labels["disk"] = pick(g, "ssd", "hdd")
	case 1:
		labels["gen"] = strconv.Itoa(g.IntN(5))
	case 2:
		delete(labels, "gen")
	case 3:
		n.Spec.Taints = nil
		if g.oneIn(2) {
			n.Spec.Taints = []v1.Taint{{Key: "spot", Effect: v1.TaintEffectPreferNoSchedule}}
		}
	case 4:
		all := n.Status.Allocatable.DeepCopy()
		if _, has := all[gpuName]; has {
			delete(all, gpuName)
		} else {
			all[gpuName] = quantity("2")
		}
		n.Status.Allocatable, n.Status.Capacity = all, all
	}
	n.Labels = labels
}
