package main

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
)

// Sequences: pods that several shards place one after another, or at once, while nodes, namespaces and pods change in between. What
// Basalt does is replayed at kube-scheduler in the order of the log of intents: each node that was chosen has to be one that
// kube-scheduler takes at that place of the log; and where Basalt leaves a pod without a node, kube-scheduler has to have none either.

// plan is a sequence before it is played.
type plan struct {
	seed    uint64 // of the order in which things are delivered
	shards  int
	nodes   []*v1.Node
	objects []runtime.Object // namespaces
	pods    []*v1.Pod        // that are there from the start
	steps   []step
}

// step is one thing that happens. Shards have heard of all that came before it, and have done all they could.
type step struct {
	pods []*v1.Pod // that are created at once
	what change
	name string
	to   string
}

type change uint8

const (
	nothing    change = iota
	podGone           // a pod is deleted
	podEnds           // it begins to be deleted
	podDone           // it finishes
	podMoves          // its label app changes
	nodeMoves         // the label zone of a node changes
	nodeGone          // a node is deleted
	nodeShut          // it is cordoned, with the taint
	spaceTurns        // the label team of a namespace changes
)

var changes = map[change]string{podGone: "delete pod", podEnds: "begin to delete pod", podDone: "finish pod", podMoves: "label pod", nodeMoves: "move node", nodeGone: "delete node", nodeShut: "cordon node", spaceTurns: "label namespace"}

func (s step) String() string {
	if s.what == nothing {
		var names []string
		for _, p := range s.pods {
			names = append(names, p.Name)
		}
		return fmt.Sprintf("create %q", names)
	}
	return fmt.Sprintf("%s %s %s", changes[s.what], s.name, s.to)
}

// Plan returns the sequence of a seed.
func Plan(seed uint64) *plan {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), c: &Case{}, theme: map[theme]bool{}, plain: true}
	p := &plan{seed: seed, shards: []int{1, 3, 8}[seed%3]}
	g.theme[pairsTheme], g.theme[spreadTheme] = g.oneIn(2), g.oneIn(2)
	if !g.theme[pairsTheme] && !g.theme[spreadTheme] {
		g.theme[pairsTheme], g.theme[spreadTheme] = true, true
	}
	g.theme[labelsTheme], g.theme[taintsTheme], g.theme[portsTheme] = g.oneIn(6), g.oneIn(6), g.oneIn(10)
	g.namespaces()
	g.nodes()
	if g.oneIn(3) {
		g.boundPods()
		if len(g.c.Pods) > 8 {
			g.c.Pods = g.c.Pods[:8]
		}
	}
	p.nodes, p.objects, p.pods = g.c.Nodes, g.c.Objects, g.c.Pods
	templates := make([]*v1.Pod, 1+g.IntN(3))
	for i := range templates {
		for range 3 { // rather one that fits somewhere
			templates[i] = g.pod("template")
			g.constrain(templates[i], true)
			c := Case{Pod: templates[i], Nodes: p.nodes, Pods: p.pods, Objects: p.objects}
			if a, err := Feasible(c.complete()); err != nil || len(a.Fits) > 0 {
				break
			}
		}
		templates[i].Annotations = map[string]string{"template": strconv.Itoa(i)}
		if g.oneIn(2) {
			if templates[i].Labels == nil {
				templates[i].Labels = map[string]string{}
			}
			templates[i].Labels[api.LabelQueue] = pick(g, "q1", "q2", "q3", "q4", "q5")
		}
	}
	n := 1 + g.IntN(8)
	if g.oneIn(5) {
		n = 1 + g.IntN(16)
	}
	if seed%60 == 59 {
		n = 20 + int(seed/60%20)
	}
	made := []string{}
	for _, b := range p.pods {
		made = append(made, b.Name)
	}
	at := 1 // how many are created at once
	if g.oneIn(3) {
		at = 2 + g.IntN(6)
	}
	homes := rand.New(rand.NewPCG(seed, 3))
	if seed%4 == 3 { // many at once, by several home shards
		at = max(at, 2+homes.IntN(8))
	}
	var batch []*v1.Pod
	for i := range n {
		pod := pick(g, templates...).DeepCopy()
		pod.Name = "p" + strconv.Itoa(i+1)
		pod.UID = types.UID("uid-" + pod.Name)
		pod.Spec.SchedulerName, pod.Status.Phase = api.SchedulerName, v1.PodPending
		if seed%4 == 3 {
			if pod.Labels == nil {
				pod.Labels = map[string]string{}
			}
			pod.Labels[api.LabelQueue] = "q" + strconv.Itoa(homes.IntN(9))
		}
		batch = append(batch, pod)
		made = append(made, pod.Name)
		if len(batch) >= at || i == n-1 {
			p.steps = append(p.steps, step{pods: batch})
			batch = nil
		}
		if len(batch) == 0 && g.oneIn(4) {
			p.steps = append(p.steps, g.change(made))
		}
	}
	c := Case{Pod: templates[0], Nodes: p.nodes, Pods: slices.Clone(p.pods), Objects: p.objects}
	for _, s := range p.steps {
		c.Pods = append(c.Pods, s.pods...)
	}
	c.complete()
	return p
}

func (g *generator) change(pods []string) step {
	node := pick(g, g.c.Nodes...).Name
	switch g.IntN(10) {
	case 0:
		return step{what: nodeMoves, name: node, to: pick(g, "a", "b", "c")}
	case 1:
		return step{what: nodeGone, name: node}
	case 2:
		return step{what: nodeShut, name: node}
	case 3:
		return step{what: spaceTurns, name: pick(g, g.space...), to: pick(g, "x", "y")}
	case 4:
		return step{what: podMoves, name: pick(g, pods...), to: pick(g, "a", "b")}
	case 5:
		return step{what: podEnds, name: pick(g, pods...)}
	case 6:
		return step{what: podDone, name: pick(g, pods...)}
	}
	return step{what: podGone, name: pick(g, pods...)}
}

// Played is what came of a sequence.
type Played struct {
	Wrong          *Mismatch
	Case           *Case // that shows it
	Trail          []string
	Pods           int // created
	Placed, Denied int // bound; and without a node at a moment of rest, for kube-scheduler as well
	Late           int // placed although nothing had happened for some seconds
	Refused        int // commits, by a judgement or because a hold was lost
	Supported      int // bound where kube-scheduler takes them because of pods that were bound before, with later rows
	Excused        map[string]int
}

// Play plays a sequence with as many shards as it says, each of them a home core, a node core and a view, as package server has them.
func Play(p *plan) (out *Played, err error) {
	w := newWorld(p)
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	w.begin()
	for _, s := range p.steps {
		w.say("%v", s)
		w.happen(s)
		if err := w.settle(); err != nil {
			return &w.out, err
		}
		if w.out.Wrong != nil {
			break
		}
	}
	w.check()
	return &w.out, w.failed
}

// happen changes the API server's objects.
func (w *world) happen(s step) {
	defer w.began()
	for _, p := range s.pods {
		p = p.DeepCopy()
		w.out.Pods++
		w.made++
		w.pods[p.Name] = p
		w.order = append(w.order, p.Name)
		w.changed(p)
	}
	pod := w.pods[s.name]
	node := w.nodes[s.name]
	switch s.what {
	case podGone:
		if pod != nil {
			w.remove(pod)
		}
	case podEnds:
		if pod != nil && pod.Spec.NodeName != "" {
			pod = pod.DeepCopy()
			pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = &started, new(int64(30))
			w.changed(pod)
		}
	case podDone:
		if pod != nil && pod.Spec.NodeName != "" {
			pod = pod.DeepCopy()
			pod.Status.Phase = v1.PodSucceeded
			w.changed(pod)
		}
	case podMoves:
		if pod != nil {
			pod = pod.DeepCopy()
			if pod.Labels == nil {
				pod.Labels = map[string]string{}
			}
			pod.Labels["app"] = s.to
			w.changed(pod)
		}
	case nodeMoves:
		if node != nil {
			node = node.DeepCopy()
			node.Labels[zoneKey] = s.to
			w.nodeChanged(node)
		}
	case nodeShut:
		if node != nil {
			node = node.DeepCopy()
			node.Spec.Unschedulable = true
			node.Spec.Taints = append(node.Spec.Taints, v1.Taint{Key: v1.TaintNodeUnschedulable, Effect: v1.TaintEffectNoSchedule})
			w.nodeChanged(node)
		}
	case nodeGone:
		if node != nil && len(w.nodes) > 1 {
			w.nodeRemoved(node)
		}
	case spaceTurns:
		w.spaceChanged(s.name, s.to)
	}
}

// settle lets the shards do what they can, and compares what they leave undone.
func (w *world) settle() error {
	for ticks, quiet := 0, 0; ; {
		before := w.out.Placed
		w.drain()
		if w.failed != nil {
			return w.failed
		}
		if w.out.Placed > before {
			quiet = 0
		}
		waiting := w.waiting()
		if len(waiting) == 0 {
			break
		}
		if quiet == 5 || quiet > 5 && quiet%20 == 0 {
			m, c := w.unplaced(waiting)
			if m == nil {
				w.out.Denied += len(waiting)
				break
			}
			if quiet > 800 { // 80 s
				w.out.Wrong, w.out.Case = m, c
				break
			}
		}
		if before := w.out.Placed; w.tick() && w.out.Placed > before && quiet > 50 {
			w.out.Late++
		}
		quiet++
		if ticks++; ticks > 5000 {
			return fmt.Errorf("pods are placed without end")
		}
	}
	w.replay()
	return w.failed
}

// waiting are the pods without a node that are to be placed.
func (w *world) waiting() (out []*v1.Pod) {
	for _, name := range w.order {
		if p := w.pods[name]; p != nil && p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
			out = append(out, p)
		}
	}
	return out
}

// caseOf returns the cluster as it is, with these pods that have nodes.
func (w *world) caseOf(pod *v1.Pod, bound map[string]*v1.Pod) *Case {
	c := &Case{Pod: pod.DeepCopy(), Objects: slices.Clone(w.objects())}
	for _, name := range sortedKeys(w.nodes) {
		c.Nodes = append(c.Nodes, w.nodes[name])
	}
	for _, name := range sortedKeys(bound) {
		if p := bound[name]; p.Spec.NodeName != "" {
			c.Pods = append(c.Pods, p)
		}
	}
	return c
}

// unplaced returns a node that kube-scheduler would take for one of the pods that wait, nil if there is none.
func (w *world) unplaced(waiting []*v1.Pod) (*Mismatch, *Case) {
	asked := map[string]bool{}
	for _, p := range waiting {
		if like := fmt.Sprint(p.Namespace, p.Annotations, p.Labels); asked[like] {
			continue // pods of a template are alike
		} else {
			asked[like] = true
		}
		c := w.caseOf(p, w.pods)
		a, err := Feasible(c)
		if err != nil {
			w.failed = err
			return nil, nil
		}
		for _, name := range sortedKeys(a.Fits) {
			why := BasaltWhy(c, name)
			m := Mismatch{Strict, name, kindOf(why), "pod " + p.Name + " waits: " + why}
			if i := slices.IndexFunc(exceptions, func(e exception) bool { return e.id != "nominated" && e.applies(c, m) }); i >= 0 {
				w.out.Excused[exceptions[i].id]++
				continue
			}
			return &m, c
		}
	}
	return nil, nil
}

// replay asks kube-scheduler about each Binding since the last step, in the order of the log. Pods that were bound before, although
// their rows are later ones, may support it: Basalt knew that they were bound when it judged, some time before. Those that it did not know
// of yet stand in nobody's way: they had to respect the earlier row.
func (w *world) replay() {
	ordered := slices.Clone(w.landed)
	slices.SortStableFunc(ordered, func(a, b landing) int {
		return cmp.Or(cmp.Compare(a.place.revision, b.place.revision), cmp.Compare(a.place.row, b.place.row))
	})
	for _, l := range ordered {
		c := w.caseOf(l.asked, w.before)
		a, err := Feasible(c)
		with := maps.Clone(w.before)
		for _, other := range w.landed {
			if err != nil || a.Fits[l.pod.Spec.NodeName] || other.pod.Name == l.pod.Name {
				break
			}
			if with[other.pod.Name] == other.pod { // an earlier row
				continue
			}
			with[other.pod.Name] = other.pod
			var b *Answer
			if b, err = Feasible(w.caseOf(l.asked, with)); err == nil && b.Fits[l.pod.Spec.NodeName] {
				w.out.Supported++
				a = b
			}
		}
		if err != nil {
			w.failed = err
			return
		}
		if !a.Fits[l.pod.Spec.NodeName] && w.out.Wrong == nil {
			why := a.Why[l.pod.Spec.NodeName]
			m := Mismatch{Unsafe, l.pod.Spec.NodeName, why.Plugin, "pod " + l.pod.Name + ": " + why.Message}
			w.out.Wrong, w.out.Case = &m, c
		}
		w.before[l.pod.Name] = l.pod
	}
	w.landed = nil
}
