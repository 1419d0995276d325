package sim

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/event"
)

// Volumes that are bound once the node of their pod is decided, in runs with the line volumes: pods of some gangs have one each. What the
// API server, a volume controller and a provisioner do about it is one step here: after a while the volume is bound for the node that was
// chosen, and keeps its pod there, or there is none. What a shard asked for before it died, or took back, may still come about. When the
// faults end, volumes can be used anywhere, so that everything that fits can be placed.

// annotationVolume is on a pod with a volume.
const annotationVolume = "volume"

// boundVolume is a pod's volume.
type boundVolume struct {
	node string // where it can be used, "" for anywhere
	at   time.Time
}

// volumes draws, in some seeds, whether pods have volumes, before there are any.
func (d *drawer) volumes(die *die) {
	if die.below(2) == 0 {
		d.say("volumes")
	}
}

// hasVolume reports whether the pods of a gang of this key have volumes.
func (l *workload) hasVolume(key string) bool { return l.volumes && int(api.BucketOf(key))/12%3 == 0 }

// reduce is what a shard makes of a pod that it is shown, by what is bound now.
func (x *shard) reduce(o object) *api.Pod {
	p := o.Object.(*corev1.Pod)
	as := o.Pod
	if claimOf(p) != "" {
		as = api.FromPod(p, storage{x}, x.w.api.PodRules)
	}
	if p.Annotations[annotationVolume] == "" {
		return as
	}
	if x.last == nil {
		x.last = map[string]object{}
	}
	x.last[string(p.UID)] = o
	if p.Spec.NodeName != "" {
		return as
	}
	v := x.w.load.bound[string(p.UID)]
	switch {
	case v == nil:
		out := *as
		out.Unbound = true
		return &out
	case v.node == "":
		return as
	}
	tied := p.DeepCopy()
	tied.Spec.Affinity = p.Spec.Affinity.DeepCopy()
	if tied.Spec.Affinity == nil {
		tied.Spec.Affinity = &corev1.Affinity{}
	}
	tied.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{v.node}}}}}}}
	out := api.FromPod(tied, storage{x}, x.w.api.PodRules)
	out.Tied = api.ToOne
	return out
}

// volumeBound has every shard shown the pod again, each after a while.
func (w *world) volumeBound(uid string) {
	for _, x := range slices.Clone(w.shards) {
		x.later(w.between(0, 300*time.Millisecond), func() {
			if o, known := x.last[uid]; known && x.shown[uid] != nil {
				x.shown[uid] = x.reduce(o)
				x.step(event.PodSeen{Pod: x.shown[uid]})
			}
		})
	}
}

// bindVolumes is what comes of a BindVolumes.
func (x *shard) bindVolumes(o event.BindVolumes) {
	w, uid := x.w, o.Row.PodUID
	l := &w.load
	if x.asked == nil {
		x.asked = map[event.RowID]bool{}
	}
	x.asked[o.Row] = true
	l.askedVolumes++
	die := w.newDie(fmt.Sprint("volume ", l.askedVolumes))
	after := time.Duration(die.below(3000)) * time.Millisecond
	if die.below(12) == 0 {
		after *= 10
	}
	fails, goesOn := die.below(5) == 0, die.below(2) == 0
	w.count("volumes asked for")
	w.after(after, func() {
		if l.bound[uid] != nil || fails && !w.calm || !goesOn && (x.dead || !x.asked[o.Row]) || w.api.podByUID(uid) == nil {
			return
		}
		v := &boundVolume{node: o.Node, at: w.now}
		if w.calm {
			v.node = ""
		}
		l.bound[uid] = v
		w.count("volumes bound")
		w.log("volume of pod %s is bound for %q", uid, v.node)
		w.volumeBound(uid)
	})
	x.later(after+time.Millisecond, func() {
		if !x.asked[o.Row] {
			return
		}
		ev := event.VolumesBound{Row: o.Row, Failed: "no volume could be provisioned"}
		if v := l.bound[uid]; v != nil && (v.node == "" || v.node == o.Node) {
			ev.Failed = ""
		} else if v != nil {
			ev.Failed = "its volume is elsewhere"
		}
		x.step(ev)
	})
}

// freeVolumes has volumes be used anywhere.
func (w *world) freeVolumes() {
	for _, uid := range api.SortedKeys(w.load.bound) {
		w.load.bound[uid].node = ""
		w.volumeBound(uid)
	}
}

// provided judges that a pod is bound where its volume is, and no gang starts before the volumes of its minimum are bound.
func (c *check) provided(uid, node, gang string, first bool) {
	w := c.w
	p := w.api.podByUID(uid)
	if p == nil || p.Annotations[annotationVolume] == "" {
		return
	}
	if v := w.load.bound[uid]; v == nil || v.node != "" && v.node != node {
		w.fail("V1: pod %s is bound to %s, and its volume is %+v", uid, node, v)
	}
	g := c.gang(gang)
	if !first || g.meddled || g.inherited {
		return
	}
	have := 0
	for row := range g.durable {
		o := w.api.podByUID(row)
		if o == nil || o.Annotations[annotationVolume] == "" || w.load.bound[row] != nil { // one may go at this moment
			have++
		}
	}
	if have < g.least {
		w.fail("V2: pod %s is the first of gang %s, and %d of %d pods have their volumes", uid, gang, have, g.least)
	}
}
