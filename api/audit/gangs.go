package audit

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

type gang struct {
	uid      string
	name     string // namespace/name of its PodGroup, "" while it was not seen
	group    bool   // a PodGroup, and not a gang of one
	exists   bool   // its PodGroup does
	kind     api.GroupKind
	minCount int32
	queue    string // spec.queue
	complete bool   // had its minimum bound once
	ever     int32  // distinct pods that were ever bound

	live, present int
	stand, wait   int       // pods that run, and that might run with them
	lacks         bool      // fewer run than its minimum, and others wait
	lacked        time.Time // when that was so last
	total, bound  api.Resources
	floor         api.Resources // it may be charged that for fewer pods
	must          api.Resources // of bound: what has to be charged

	reservation *reservation
	attempts    map[string]uint64 // queue -> the largest: where a gang's queue is changed, another shard counts
	charged     share             // what it adds to the queues' bound sums
	chargedTo   string            // queue
	rest        api.Resources     // of a forced reservation: what no bound pod explains
	restAt      string            // queue
	idle        time.Time         // since when nothing is left of it

	first       time.Time // when it was first seen
	everHad     bool      // a reservation
	everClosing bool      // its reservation was
	waits       waits

	everYielding  bool              // it was closing for another gang
	yielded       map[string]uint64 // for whom it was closed, and under which attempt of theirs
	everCondemned map[string]bool   // pods that left for a claim
	told          time.Time         // since when its PodGroup says of this life that it has its minimum, or zero
	startedUnder  uint64            // the attempt under which a record said so
	startedFirst  bool              // either was so before the reservation was closed for nobody
	again         bool              // it was evicted: its minimum counts anew

	shape    shape     // what its PodGroup requires of where it is,
	reshaped time.Time // and when that was last changed, zero for never
}

func (a *Auditor) gang(uid string) *gang {
	g := a.cluster.gangs[uid]
	if g == nil {
		g = &gang{uid: uid, first: a.now}
		a.cluster.gangs[uid] = g
	}
	return g
}

func (a *Auditor) podGroupsReplaced(e PodGroupsReplaced) {
	groups, kind := e.PodGroups, e.Kind
	there := map[string]bool{}
	for _, g := range groups {
		there[string(g.UID)] = true
	}
	for _, uid := range slices.Sorted(maps.Keys(a.cluster.gangs)) {
		if g := a.cluster.gangs[uid]; g.exists && g.kind == kind && !there[uid] {
			a.podGroupGone(uid)
		}
	}
	first := !a.cluster.grouped
	a.cluster.grouped = a.cluster.grouped || kind == api.BasaltGroup
	for _, g := range groups {
		// What was bound before our time may be gone: here, and only here, the status is believed.
		if first && g.Status != nil && meta.IsStatusConditionTrue(g.Status.Conditions,
			v1beta1.ConditionPodGroupInitiallyScheduled) {
			a.gang(string(g.UID)).hadMinimum()
		}
		a.podGroupSeen(g, kind, e.Floors[g.UID])
	}
}

// groupName is how a group is known by name: of two kinds there may be one of the same.
func groupName(kind api.GroupKind, namespace, name string) string {
	if kind == api.BasaltGroup {
		return namespace + "/" + name
	}
	return kind.String() + " " + namespace + "/" + name
}

func (a *Auditor) podGroupSeen(o *v1beta1.PodGroup, kind api.GroupKind, floor v1.ResourceList) {
	g := a.gang(string(o.UID))
	if kind == api.BasaltGroup {
		floor = o.Spec.MinResources
	}
	if g.floor = a.floorOf(floor); len(g.floor) > 0 {
		g.floor = g.floor.Max(api.Resources{{Resource: pods, Value: max(1, int64(o.Spec.SchedulingPolicy.Gang.MinCount))}})
	}
	g.shaped(a.now, shapeOf(o), g.group)
	g.kind, g.group, g.minCount, g.queue = kind, true, o.Spec.SchedulingPolicy.Gang.MinCount, o.Spec.Queue
	if name := groupName(kind, o.Namespace, o.Name); !g.exists || g.name != name {
		g.exists, g.name = true, name
		a.cluster.groups[name] = g.uid
		a.regroup(name)
	}
	if o.Status != nil {
		a.stamped("podgroup "+g.name+" "+g.uid, o.Status.Stamp, o.Status, o.ResourceVersion)
		g.tellStarted(a.now, meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.ConditionPodGroupInitiallyScheduled))
	}
	a.groupWaits(g, o)
	a.judgeGang(g)
}

func (a *Auditor) podGroupGone(uid string) {
	g := a.cluster.gangs[uid]
	if g == nil {
		return
	}
	g.exists = false
	a.waitsNot(g)
	delete(a.cluster.stamps, "podgroup "+g.name+" "+g.uid)
	if a.cluster.groups[g.name] == uid {
		delete(a.cluster.groups, g.name)
		a.regroup(g.name)
	}
	a.judgeGang(g)
}

// regroup recounts the pods that name a group which came or went.
func (a *Auditor) regroup(name string) {
	for _, uid := range slices.Sorted(maps.Keys(a.cluster.members[name])) {
		a.recount(a.cluster.members[name][uid])
	}
}

// maxEarly is how long a gang may be charged before it has its pods.
const maxEarly = 6 * time.Minute

// maxKept is how long a gang may be charged for pods of its minimum that it lost.
const maxKept = 2 * time.Minute

// sumUp adds what a gang's bound pods take to the sums of its queues.
func (a *Auditor) sumUp(g *gang) {
	r := g.reservation
	to, bound := "", api.Resources(nil)
	if r != nil && !r.forced {
		to, bound = r.queue, g.must
	}
	if to != g.chargedTo || !bound.Equal(g.charged.bound) {
		for _, path := range api.Lineage(g.chargedTo) {
			q := a.store.queue(path)
			q.bound = q.bound.Sub(g.charged.bound)
		}
		for _, path := range api.Lineage(to) {
			q := a.store.queue(path)
			q.bound = q.bound.Add(bound)
		}
		for _, path := range api.Lineage(g.chargedTo) {
			a.judgeBound(a.store.queue(path))
		}
		for _, path := range api.Lineage(to) {
			a.judgeBound(a.store.queue(path))
		}
		g.chargedTo, g.charged.bound = to, bound
	}
	// A charge may exceed a limit only for pods that are bound: what a forced reservation has beside them is as any other.
	var rest api.Resources
	if r != nil && r.forced {
		rest = r.demand.Sub(g.bound).Positive()
	}
	if forcedTo := queueOf(r); forcedTo != g.restAt || !rest.Equal(g.rest) {
		for _, path := range api.Lineage(g.restAt) {
			q := a.store.queue(path)
			q.rest = q.rest.Sub(g.rest)
		}
		for _, path := range api.Lineage(forcedTo) {
			q := a.store.queue(path)
			q.rest = q.rest.Add(rest)
		}
		for _, path := range append(api.Lineage(g.restAt), api.Lineage(forcedTo)...) {
			a.judgeForced(a.store.queue(path))
		}
		g.rest, g.restAt = rest, forcedTo
	}
}

// begins forgets what the gang had: nothing of it counts any more.
func (g *gang) begins() { g.complete, g.ever = false, 0 }

// hadMinimum takes note that the gang has started.
func (g *gang) hadMinimum() { g.complete = true }

// judgeGang judges what needs the pods, the group and the reservation of a gang together; and brings the queues' sums
// of bound pods up to date.
func (a *Auditor) judgeGang(g *gang) {
	a.sumUp(g)
	r := g.reservation
	if g.complete = g.complete || g.group && g.ever >= g.minCount; g.lacks {
		g.lacked = a.now
	}
	g.lacks = g.group && g.stand < int(g.minCount) && g.wait > 0
	object := "gang " + g.uid
	if g.name != "" {
		object += " (" + g.name + ")"
	}
	a.lasts(lastingKey{Partial, object, "gang without its minimum"}, g.group && g.exists && !g.complete && g.present > 0 &&
		(!g.again || g.stand > 0), a.cfg.Grace, func(since time.Time) {
		a.violate(Violation{Kind: Partial, Object: object, Revisions: []int64{a.revision},
			Message: fmt.Sprintf("%d of at least %d pods were bound since %s", g.ever, g.minCount, since.Format(clock))})
	})
	// Volcano's PodGroup names its queue without its ancestors. Watches of several kinds come in any order.
	elsewhere := r != nil && g.exists && g.kind == api.VolcanoGroup && g.queue != "" && g.queue != r.queue &&
		!a.cluster.standIns[[2]string{r.queue, g.queue}]
	a.lasts(lastingKey{Reservation, object, "queue"}, elsewhere, a.cfg.Grace, func(since time.Time) {
		a.violate(Violation{Kind: Reservation, Object: object, Revisions: []int64{g.reservation.revision, a.revision},
			Message: fmt.Sprintf("is charged to queue %s, which does not stand for queue %s of its PodGroup, since %s",
				g.reservation.queue, g.queue, since.Format(clock))})
	})
	leak := func(what string, holds bool, message func(since time.Time) string) {
		a.lasts(lastingKey{Leak, "gang " + g.uid, what}, holds, a.cfg.Grace, func(since time.Time) {
			v := Violation{Kind: Leak, Object: object, Message: message(since), Revisions: []int64{a.revision}}
			if r := g.reservation; r != nil {
				v.Revisions = []int64{r.revision, a.revision}
			}
			a.violate(v)
		})
	}
	// Where Basalt admits Volcano's PodGroups, it reserves their floor before they have pods, for some minutes.
	early := r.isCharged() && g.exists && g.present == 0 && len(g.floor) > 0 && r.demand.Fits(g.total.Max(g.floor))
	a.lasts(lastingKey{Leak, "gang " + g.uid, "reservation before its pods"}, early && g.live < int(g.minCount), maxEarly,
		func(since time.Time) {
			a.violate(Violation{Kind: Leak, Object: object, Revisions: []int64{g.reservation.revision, a.revision},
				Message: fmt.Sprintf("%s is charged to queue %s and has %d of %d pods since %s", g.reservation.demand,
					g.reservation.queue, g.live, g.minCount, since.Format(clock))})
		})
	leak("reservation without pods", r != nil && g.live == 0 && !early, func(since time.Time) string {
		return fmt.Sprintf("%s is charged to queue %s and has no unfinished pod since %s", g.reservation.demand,
			g.reservation.queue, since.Format(clock))
	})
	leak("pods without reservation", r == nil && !g.must.IsZero(), func(since time.Time) string {
		return fmt.Sprintf("has bound pods with %s and no reservation since %s", g.must, since.Format(clock))
	})
	leak("more bound than charged", r != nil && !g.must.Fits(r.demand), func(since time.Time) string {
		return fmt.Sprintf("has bound pods with %s and is charged %s since %s", g.must, g.reservation.demand,
			since.Format(clock))
	})
	asked := g.total
	if g.live >= int(g.minCount) {
		asked = asked.Max(g.floor)
	}
	more := func(since time.Time) string {
		return fmt.Sprintf("is charged %s and its unfinished pods ask for %s since %s",
			g.reservation.demand, asked, since.Format(clock))
	}
	grown := r != nil && g.live > 0 && !r.demand.Fits(asked) && !early
	short := grown && g.group && g.exists && g.live < int(g.minCount) && r.demand.Value("pods") <= int64(g.minCount)
	leak("more charged than asked for", grown && !short, more)
	// What a gang lost of its minimum is kept for those that replace it.
	a.lasts(lastingKey{Leak, "gang " + g.uid, "what it lost"}, short, maxKept+a.cfg.Grace, func(since time.Time) {
		a.violate(Violation{Kind: Leak, Object: object, Message: more(since),
			Revisions: []int64{g.reservation.revision, a.revision}})
	})
	if g.live == 0 && g.present == 0 && !g.exists && r == nil {
		if g.idle.IsZero() {
			g.idle = a.now
		}
	} else {
		g.idle = time.Time{}
	}
}
