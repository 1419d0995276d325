package audit

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// Within a queue and a namespace a gang that asks for no more than another one, is older and has no lower priority can be admitted whenever
// the other can. So nobody may be admitted past it for long. (What is kept for a third gang is kept in part against other namespaces,
// so one of them may pass.) Only gangs are judged that name their queue themselves and that
// were told all the time that it lacks room: those that rest for want of nodes let others pass.

// waits is what is known of a gang that was told that its queue lacks room.
type waits struct {
	queue     string
	namespace string
	since     time.Time
}

// podWaits takes note of what a gang of one shows.
func (a *Auditor) podWaits(p *pod, o *v1.Pod) {
	if !p.ours || p.group != "" {
		return
	}
	g := a.cluster.gangs[p.uid]
	denied := false
	for i := range o.Status.Conditions {
		c := &o.Status.Conditions[i]
		denied = denied || c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason == v1beta1.ReasonQuotaExceeded
	}
	denied = denied && p.node == "" && o.DeletionTimestamp == nil && len(o.Spec.SchedulingGates) == 0
	a.waitsNow(g, o.Labels[api.LabelQueue], o.Namespace, denied)
}

// groupWaits takes note of what a PodGroup shows.
func (a *Auditor) groupWaits(g *gang, o *v1beta1.PodGroup) {
	denied := false
	if o.Status != nil && o.DeletionTimestamp == nil && o.Spec.PriorityClassName == "" {
		c := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionQuotaReserved)
		denied = c != nil && c.Reason == v1beta1.ReasonQuotaExceeded && o.Status.ObservedGeneration == o.Generation
	}
	a.waitsNow(g, o.Spec.Queue, o.Namespace, denied)
}

func (a *Auditor) waitsNow(g *gang, queue, namespace string, denied bool) {
	switch {
	case g == nil:
	case !denied || queue == "" || g.reservation != nil:
		a.waitsNot(g)
	case g.waits.queue != queue:
		a.waitsNot(g)
		g.waits = waits{queue, namespace, a.now}
		if a.cluster.denied[queue] == nil {
			a.cluster.denied[queue] = map[string]*gang{}
		}
		a.cluster.denied[queue][g.uid] = g
	}
}

func (a *Auditor) waitsNot(g *gang) {
	if g == nil || g.waits.queue == "" {
		return
	}
	delete(a.cluster.denied[g.waits.queue], g.uid)
	if len(a.cluster.denied[g.waits.queue]) == 0 {
		delete(a.cluster.denied, g.waits.queue)
	}
	g.waits = waits{}
}

// judgeOrder judges whom a gang was admitted past.
func (a *Auditor) judgeOrder(e StoreRevision, g *gang, r *reservation, namespace string, priority int64) {
	if a.now.Sub(a.store.led) <= a.cfg.Passed { // a new coordinator knows of a request when it is sent again
		return
	}
	for _, uid := range slices.Sorted(maps.Keys(a.cluster.denied[r.queue])) {
		o := a.cluster.denied[r.queue][uid]
		if o == g || o.waits.namespace != namespace || a.now.Sub(o.waits.since) <= a.cfg.Passed {
			continue
		}
		if !g.first.Truncate(time.Second).After(o.waits.since) {
			continue // times of creation are whole seconds: of one, either is first
		}
		// All its pods have to be those that it asks for, or what it asks for is not known here.
		if least := max(1, int(o.minCount)); o.live != least || o.present > 0 || !o.total.Fits(r.demand) || a.priorityOf(o) < priority {
			continue
		}
		a.storeViolation(Order, "gang "+o.uid, []int64{e.Revision}, "(%s) in queue %s is denied %s since %s, and gang %s, which came later, was admitted with %s",
			o.name, r.queue, o.total, o.waits.since.Format(clock), g.uid, r.demand)
	}
}

// namesBound reports whether a reservation names a pod that has a node: what runs is charged, not admitted.
func (a *Auditor) namesBound(r *reservation) bool {
	return slices.ContainsFunc(r.pods, func(id uint64) bool {
		p := a.cluster.ids[id]
		return p != nil && p.node != ""
	})
}

// namesGone reports whether a reservation names a pod that is gone. It may have had a node, and whoever charged it may not have seen that it
// ended.
func (a *Auditor) namesGone(r *reservation) bool {
	return slices.ContainsFunc(r.pods, func(id uint64) bool { return a.cluster.ids[id] == nil })
}

// priorityOf returns the highest priority of a gang's pods.
func (a *Auditor) priorityOf(g *gang) int64 {
	if p := a.cluster.pods[g.uid]; p != nil && !g.group {
		return p.priority
	}
	var out int64
	first := true
	for _, p := range a.cluster.members[g.name] {
		if p.gang == g && !p.finished && (first || p.priority > out) {
			out, first = p.priority, false
		}
	}
	return out
}
