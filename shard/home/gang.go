package home

import (
	"cmp"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/home/intake"
	"basalt.dev/basalt/shard/home/report"
)

// gang is a gang of a bucket that is ours.
type gang struct {
	id string // UID of the PodGroup, or of the pod
	object

	queue  string // where it asks and is charged
	bucket api.BucketID
	ref    *wire.GangRef

	members map[string]*pod
	order   []*pod // members as inOrder sorted them, nil since one came or went
	doubts
	tally tally
	life  // life.go

	state state
	first time.Time // when it was first seen
	since time.Time // when it was first complete: its age

	inherited bool      // it was there when its queue was taken over
	complete  time.Time // when this shard first found it complete

	charge    charge
	admission admission
	search    search
	edits     edits
	commits   []*commit
	withdraw  *withdraw
	claim     *claiming // the work on a mandate, nil for none
	rooms     rooms     // requested for a claim
	planned   int       // plans that were looked for in domains: the next one looks at others (plan.FindTogether)

	volumesSince  time.Time // since when the volumes of its pods are being bound, before any of these
	volumesTold   int       // events about this that users were told
	volumesFailed int       // how often one failed for pods that joined, one time after another
	trouble       trouble   // with its volumes

	blocked   report.Reason    // why its pods are not placed; zero when nothing is in the way
	uncharged report.Reason    // why pods that have a node are not charged; zero when all of them are
	status    *report.PodGroup // nil before its PodGroup was seen
	position  int32            // among the gangs of its queue that wait, 0 if it is none of the first (position.go)
	shrunk    string           // why pods beyond its minimum were evicted; until none waits in their place
	told      string           // code of the last event about why it waits
	trace     trace

	explaining *explainees // in reports.explain, nil while it is not

	wake, next time.Time // the timer that is set; the one being computed
	looked     time.Time // at, last
	look
}

// look is whether a gang is to be looked at.
type look uint8

const (
	atRest  look = iota
	dirty        // at the end of this step: it is in common.dirty
	dropped      // never again: it is forgotten
)

// dropped reports whether the gang is forgotten.
func (l look) dropped() bool { return l == dropped }

// drop takes note that the gang is forgotten.
func (l *look) drop() { *l = dropped }

// mark has the gang looked at, and reports whether that is news.
func (l *look) mark() (news bool) {
	if news = *l == atRest; news {
		*l = dirty
	}
	return news
}

// lookAt takes note that the gang is being looked at.
func (l *look) lookAt() {
	if *l == dirty {
		*l = atRest
	}
}

// object is what is known of the PodGroup of a gang, or of the pod that is a gang of its own.
type object struct {
	name      intake.Name
	kind      objectKind
	group     *intake.Group
	ownerless time.Time // set for an inherited reservation whose PodGroup was not seen yet: since when
	wantQueue string    // what its objects name now,
	mismatch  bool      // not all the same
	ordered   *ordered  // among gangs of its priority, nil where its queue does not say (order.go)
}

// objectKind is what a gang is.
type objectKind uint8

const (
	aGroup    objectKind = iota // a PodGroup, which may not have been seen yet
	goneGroup                   // one that is gone
	aPod                        // a pod without a PodGroup
	orphanPod                   // one whose PodGroup does not exist
)

// adopt takes note of the group, which was seen for the first time, or again.
func (o *object) adopt(group *intake.Group) {
	o.group, o.name, o.kind = group, group.Name, aGroup
	o.found()
}

// loseGroup takes note that the group is gone.
func (o *object) loseGroup() { o.group, o.mismatch, o.kind = nil, false, goneGroup }

// vanish takes note that the group, which was not seen, is not there any more.
func (o *object) vanish() { o.kind = goneGroup }

// isPod reports whether the gang is a pod.
func (o *object) isPod() bool { return o.kind == aPod || o.kind == orphanPod }

// becomePod takes note that the gang is a pod, an orphan if it names a PodGroup that does not exist.
func (o *object) becomePod(orphan bool) {
	if o.kind = aPod; orphan {
		o.kind = orphanPod
	}
}

// seeQueue takes note of the queue that is named, and of whether pods disagree.
func (o *object) seeQueue(queue string, mismatch bool) { o.wantQueue, o.mismatch = queue, mismatch }

// requires reports whether no other domain will do than one of a level (domains.levels).
func (o *object) requires(level []string) bool {
	return len(level) == 0 || o.group != nil && len(level) == 1 && level[0] == o.group.Required
}

// strays takes note since when there is a reservation, and no object that was seen.
func (o *object) strays(since time.Time) { o.ownerless = since }

// found ends the wait for the object.
func (o *object) found() { o.ownerless = time.Time{} }

// doubts are the pods of a gang of which an intent may exist that is not known.
type doubts struct {
	lost    map[string]bool // UIDs of pods that left while an intent of theirs might exist
	unknown map[string]bool // UIDs of pods that had an intent whose outcome nobody has reported: inherited, or
	inDoubt map[string]bool // in doubt: no shard has reported anything of it for long
}

// doubted notes that an intent of a pod may exist of which no shard has reported anything for long.
func (d *doubts) doubted(uid string) {
	d.leftWithout(uid)
	if d.inDoubt == nil {
		d.inDoubt = map[string]bool{}
	}
	d.inDoubt[uid] = true
	d.hasIntent(uid)
}

// hasIntent notes that a pod had an intent whose outcome nobody has reported.
func (d *doubts) hasIntent(uid string) {
	if d.unknown == nil {
		d.unknown = map[string]bool{}
	}
	d.unknown[uid] = true
}

// leftWithIntent notes that a pod left while an intent of it might exist: it is in doubt until a node shard has
// reported what became of it.
func (d *doubts) leftWithIntent(uid string) { d.lost[uid] = true }

// leftWithout notes that no intent exists of a pod that left.
func (d *doubts) leftWithout(uid string) { delete(d.lost, uid) }

// allResolved notes that no shard has an intent of the gang.
func (d *doubts) allResolved() {
	clear(d.lost)
	clear(d.unknown)
	clear(d.inDoubt)
}

func (c *Core) newGang(id, queue string, name intake.Name) *gang {
	g := &gang{
		id: id, object: object{name: name, wantQueue: queue}, queue: queue, bucket: api.BucketOf(queue),
		members: map[string]*pod{}, doubts: doubts{lost: map[string]bool{}}, first: c.now,
	}
	if pace, known := c.paces.get(id); known {
		pace.line = comesToLine
		g.edits = pace
	}
	c.gangs[id] = g
	return g
}

// block takes note of why the gang is blocked: this reason replaces the one of before.
func (g *gang) block(why report.Reason) { g.blocked = why }

// unblock takes note that nothing is in the gang's way.
func (g *gang) unblock() { g.blocked = report.Reason{} }

// message returns the gang as messages name it.
func (g *gang) message() *wire.GangRef {
	if g.ref == nil || g.ref.Queue != g.queue || g.ref.Name != g.name.Name {
		g.ref = &wire.GangRef{Uid: g.id, Namespace: g.name.Namespace, Name: g.name.Name, Queue: g.queue,
			Single: g.isPod(), Kind: uint32(g.name.Kind)}
	}
	return g.ref
}

func (g *gang) minCount() int {
	if g.group != nil {
		return g.group.MinCount
	}
	return 1
}

func (g *gang) label() string {
	if g.isPod() {
		return "pod " + g.name.String()
	}
	return g.name.Kind.String() + " " + g.name.String()
}

// compareGangs orders gangs: priority, age, id.
func compareGangs(a, b *gang) int {
	if d := cmp.Compare(b.tally.priority, a.tally.priority); d != 0 {
		return d
	}
	if d := a.age().Compare(b.age()); d != 0 {
		return d
	}
	return strings.Compare(a.id, b.id)
}

func (g *gang) age() time.Time {
	switch {
	case !g.since.IsZero():
		return g.since
	case g.group != nil && !g.group.Created.IsZero() && g.name.Kind != api.BasaltGroup: // it may be admitted before it has pods, and an heir is to find the same age
		return g.group.Created
	}
	return g.first
}

// leaving reports whether the gang has no business here any more: its object is gone, or another queue is to pay for it.
func (g *gang) leaving() bool {
	if g.isPod() {
		if len(g.members) == 0 {
			return true
		}
		for _, p := range g.members {
			if p.Finished {
				return true
			}
		}
	}
	return g.kind == goneGroup || g.moving()
}

// moving reports whether another queue is to pay for the gang. While a pod of it is bound it stays where it is.
func (g *gang) moving() bool {
	return g.kind != goneGroup && g.ownerless.IsZero() && g.wantQueue != g.queue && g.tally.bound == 0
}

// outstanding reports whether a node shard may have something of the gang.
func (g *gang) outstanding() bool {
	return len(g.inDoubt) > 0 || g.search.round != nil || len(g.rooms.calls) > 0 || g.rooms.kept ||
		g.tally.held+g.tally.promised > 0 || g.tally.committed > 0 || len(g.lost) > 0 || len(g.commits) > 0
}

// shows reports whether a PodGroup has a condition.
func shows(s *v1beta1.PodGroupStatus, condition string) bool {
	return s != nil && meta.IsStatusConditionTrue(s.Conditions, condition)
}

// preemptible reports whether the gang's pods may be evicted for another gang: it says so, or a controller makes each
// of them again.
func (g *gang) preemptible() bool {
	if says := g.saysPreemptible(); says != nil {
		return *says
	}
	for _, p := range g.members {
		if !p.Finished && !p.Owned() {
			return false
		}
	}
	return len(g.members) > 0
}

// kept reports whether the gang says that its pods may not be evicted. Then it does not borrow, either.
func (g *gang) kept() bool {
	says := g.saysPreemptible()
	return says != nil && !*says
}

// writesGroup reports whether the status of a gang's group is Basalt's to write. One of Kubernetes' own is that of
// the scheduler which places its pods.
func (c *common) writesGroup(g *gang) bool {
	switch g.name.Kind {
	case api.BasaltGroup:
		return true
	case api.UpstreamGroup:
		return len(g.members) > 0
	}
	return c.writesStatusOf[g.name.Kind] || g.name.Kind == api.VolcanoGroup && fault.On(fault.WrittenUnleased)
}

// saysPreemptible returns what the PodGroup of the gang says, or the pod that is a gang of its own; nil for nothing.
func (g *gang) saysPreemptible() *bool {
	if !g.isPod() {
		if g.group == nil {
			return nil
		}
		return g.group.Preemptible
	}
	for _, p := range g.members {
		if !p.Finished && p.Preemptible != nil {
			return p.Preemptible
		}
	}
	return nil
}
