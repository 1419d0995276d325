package audit

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// Gangs in one topology domain. All bound pods of a gang are in one domain of the label that its PodGroup requires, those of its minimum and
// those that came later; and of the pods of its minimum each slice is in one domain of its label. A slice is so many pods with the same requests,
// and which pods are one is written nowhere. So what is judged is that in no more than one domain their number is no multiple of the size.
//
// A gang is recounted as a whole, a while after a Binding of one of its pods was seen, from the labels that the nodes have had since shortly
// before the intents. It is spared where it may be otherwise with good reason: a node was relabelled, came back or went since; the PodGroup was
// edited since; somebody else bound one of its pods, or a pod was bound for another gang; or an intent was not seen. Slices are recounted only
// while all pods that were ever bound are there, and are as many as the minimum.

// shape is what a PodGroup requires of where its gang is.
type shape struct {
	required string // label of which all pods have one value
	slice    string // likewise of each slice,
	size     int    // which are so many pods
	least    int32  // minCount
}

// shapeOf reads the constraints that a PodGroup requires. Of contradictory ones, which no gang starts with, it reads none.
func shapeOf(o *v1beta1.PodGroup) shape {
	s := shape{least: o.Spec.SchedulingPolicy.Gang.MinCount}
	if o.Spec.SchedulingConstraints == nil {
		return s
	}
	for _, t := range o.Spec.SchedulingConstraints.Topology {
		switch {
		case t.Mode == v1beta1.TopologyPreferred:
		case t.SliceSize > 0 && s.slice == "":
			s.slice, s.size = t.Key, int(t.SliceSize)
		case t.SliceSize == 0 && s.required == "":
			s.required = t.Key
		default:
			return shape{least: s.least}
		}
	}
	return s
}

// shaped takes note of what the PodGroup of a gang requires.
func (g *gang) shaped(now time.Time, s shape, seen bool) {
	if seen && g.shape != s {
		g.reshaped = now
	}
	g.shape = s
}

// judgeTogether has the gang of a pod that just got its node recounted.
func (a *Auditor) judgeTogether(p *pod) {
	g := p.gang
	if g == nil || g.shape.required == "" && g.shape.slice == "" {
		return
	}
	a.later(lastingKey{Domain, "gang " + g.uid, "its domains"}, 3*a.cfg.Lag, func(time.Time) { a.recountGang(g) })
}

// recountGang recounts in which domains the pods of a gang are.
func (a *Auditor) recountGang(g *gang) {
	members := a.cluster.members[g.name]
	if !g.exists || !a.mayLook(len(members)) {
		a.cluster.spared++
		return
	}
	var pods []*pod
	present := 0
	for _, uid := range slices.Sorted(maps.Keys(members)) {
		p := members[uid]
		if p.gang != g || !p.known || p.node == "" {
			continue
		}
		if present++; !p.finished {
			pods = append(pods, p)
		}
	}
	if present != g.present || slices.ContainsFunc(pods, func(p *pod) bool { return !a.sureOf(p) }) {
		a.cluster.spared++
		return
	}
	a.cluster.recounts++
	say := func(p *pod, format string, args ...any) {
		a.violate(Violation{Kind: Domain, Object: "gang " + g.uid, Versions: []string{p.version}, Revisions: []int64{p.place.revision},
			Message: fmt.Sprintf("PodGroup %s: ", g.name) + fmt.Sprintf(format, args...)})
	}
	if key := g.shape.required; key != "" {
		for _, p := range pods {
			switch first, value := pods[0], a.labelAt(p, key); {
			case value == "":
				say(p, "pod %s was bound to node %s, which has no label %s", p.repulsion.name, p.node, key)
			case value != a.labelAt(first, key):
				say(p, "pod %s was bound to node %s in %s %q, and pod %s of the gang to node %s in %q; it requires one", p.repulsion.name, p.node, key, value,
					first.repulsion.name, first.node, a.labelAt(first, key))
			}
		}
	}
	if g.shape.slice == "" || g.kind != api.BasaltGroup || len(pods) != int(g.shape.least) || int(g.ever) != len(pods) {
		return
	}
	kinds := map[string]map[string]int{} // pods by what they request, and by domain
	for _, p := range pods {
		of := p.requests.String()
		if kinds[of] == nil {
			kinds[of] = map[string]int{}
		}
		domain := a.labelAt(p, g.shape.slice)
		if domain == "" {
			say(p, "pod %s was bound to node %s, which has no label %s", p.repulsion.name, p.node, g.shape.slice)
		}
		if g.shape.required != "" {
			domain = a.labelAt(p, g.shape.required) + "/" + domain
		}
		kinds[of][domain]++
	}
	for _, of := range slices.Sorted(maps.Keys(kinds)) {
		var lacking []string
		for _, domain := range slices.Sorted(maps.Keys(kinds[of])) {
			if n := kinds[of][domain]; n%g.shape.size > 0 {
				lacking = append(lacking, fmt.Sprintf("%d in %q", n, domain))
			}
		}
		if len(lacking) > 1 {
			say(pods[0], "its slices of %d pods in one %s are divided, of those that request %s there are %s", g.shape.size, g.shape.slice, of, strings.Join(lacking, ", "))
		}
	}
}

// sureOf reports whether it is known why a bound pod is where it is: we bound it for its gang, and its node and its PodGroup are what they were
// when that was decided.
func (a *Auditor) sureOf(p *pod) bool {
	g, n := p.gang, a.cluster.nodes[p.node]
	if n == nil || !n.known || len(n.versions) == 0 || p.repulsion == nil || !p.boundByUs(p.node) || p.label != g.uid || p.decided.IsZero() {
		return false
	}
	before := p.decided.Add(-a.unseen())
	return !n.relabelled.After(before) && !g.reshaped.After(before)
}

// labelAt returns a label of the node of a pod.
func (a *Auditor) labelAt(p *pod, key string) string {
	versions := a.cluster.nodes[p.node].versions
	return versions[len(versions)-1].node.Labels[key]
}
