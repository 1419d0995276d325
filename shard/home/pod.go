package home

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/home/intake"
	"basalt.dev/basalt/shard/home/report"
)

// What is known of a pod, and what follows from that alone. Nothing here calls what decides.

// podStage is how far a pod has come.
type podStage uint8

const (
	nowhere   podStage = iota
	promised           // a node shard holds room for it as soon as others have left
	held               // a node shard holds room for it
	committed          // named in a Commit: an intent of it may exist
	bound              // it has a node
)

// pod is a pod that Basalt may have to place or charge.
type pod struct {
	*intake.Entry
	version  string // newest resourceVersion that is known: of the watch, or of our own last write
	resolved string // the one that resolving a Binding made, "" if none: older ones can no longer be bound

	asked  *api.Class      // with what it is asked for (repel.go)
	id     uint64          // api.PodID
	pinned string          // UID of the gang under which it was committed or seen bound
	gang   *gang           // nil when it is none of ours
	first  time.Time       // when it was first seen
	shard  api.Incarnation // where it is held or committed,
	node   string          // and on which node
	turn   uint64          // in which it was asked for: pods of one Commit are in this order in the log
	commit *commit         // that names it; nil for one found in doubt
	few    *few            // what few pods have, nil for nothing
	others *others         // are charged for it, nil if they are not

	told         string    // reason of the PodScheduled=False that it shows, or was written and not yet seen
	words        string    // and its message,
	gist         uint64    // which gistOf this is
	explainAgain time.Time // not before, after a write, or as others were told first
	retellAt     time.Time // likewise, with other words for what it shows

	// Together, for there are many pods:
	spots    spots // in the index
	stage    podStage
	sure     bool // pinned rests on more than LabelGang, which anybody may have written
	absence  absence
	charged  bool // part of the gang's reservation
	burden   burden
	alone    bool // its PodGroup is gone, and started each of its pods by itself (startsAlone)
	withheld bool // its scheduler's name is lent, and not Basalt's now
	writing  bool // told is written, and that is not answered: its version is about to change
}

// absence is whether a pod that is shown is there.
type absence uint8

const (
	present absence = iota
	gone            // a node shard found no pod of this UID; the watch will show it
	lost            // being deleted, and it should have gone long ago (repair.go)
)

// burden is whether a pod is to be charged once it is bound (foreign.go).
type burden uint8

const (
	ofOthers   burden = iota // bound by somebody else, as far as is known, and not to be charged yet
	chargeable               // likewise, and to be charged
	byUs                     // bound by Basalt, or charged before: it is charged whatever its node is
)

// few is what few pods have.
type few struct {
	doubt    time.Time       // since when its shard is gone with the answer
	prefer   api.Incarnation // the shard that failed to bind it and has its room
	counted  api.Resources   // what of it is in foreignOn.sum of its node
	evicting uint64          // ID of the EvictPod that is not answered
	evictAt  time.Time
	remains  remains   // each attempt to evict it has failed
	rejected rejection // its Bindings, by the API server
}

// seldom returns what few pods have, to be read.
func (p *pod) seldom() few {
	if p.few == nil {
		return few{}
	}
	return *p.few
}

// some returns the same, to be written.
func (p *pod) some() *few {
	if p.few == nil {
		p.few = &few{}
	}
	return p.few
}

// certain takes note that what the pod's shard answered is known.
func (p *pod) certain() {
	if p.few != nil {
		p.few.doubt = time.Time{}
	}
}

// isBound reports whether the pod has a node and uses it.
func (p *pod) isBound() bool { return !p.Finished && (p.Node != "" || p.stage == bound) }

// waitsNowhere reports whether a pod is charged, and neither held nor promised room.
func waitsNowhere(p *pod) bool { return p.charged && p.candidate() && p.stage == nowhere }

// hasRoom reports whether a node shard keeps room for the pod.
func (p *pod) hasRoom() bool { return p.stage == held || p.stage == promised }

// letGo forgets the place that a pod was to have.
func (p *pod) letGo() { p.stage, p.shard, p.node = nowhere, "", "" }

// hold takes note that a node shard holds room for the pod, and promise that it will once others have left.
func (p *pod) hold(shard api.Incarnation, node string) { p.stage, p.shard, p.node = held, shard, node }
func (p *pod) promise(shard api.Incarnation, node string) {
	p.stage, p.shard, p.node = promised, shard, node
}

// commits takes note of a Commit that names the pod, nil for one that is not known.
func (p *pod) commits(cm *commit) { p.stage, p.commit = committed, cm; p.certain() }

// sentBy takes note that a shard has sent the pod's Binding. Where that is not the one that was asked, it is its heir.
func (p *pod) sentBy(shard api.Incarnation) {
	if p.commit != nil && p.commit.shard != shard {
		p.commit = nil
	}
	p.stage, p.shard = committed, shard
}

// keepsHold takes note that a Commit was refused, and what is held for the pod was not given up.
func (p *pod) keepsHold() { p.stage, p.commit = held, nil }

// free takes note that the pod has neither hold nor intent.
func (p *pod) free() {
	p.letGo()
	p.commit = nil
	p.certain()
	if p.Node == "" {
		p.unpin()
	}
}

// bind takes note that the pod has a node: what it was told before is not so any more.
func (p *pod) bind(node string) {
	p.stage, p.node, p.commit, p.shard = bound, node, nil, ""
	p.certain()
	p.preferAt("")
	p.told = ""
}

// leave forgets what was asked for the pod in the gang that it leaves.
func (p *pod) leave() {
	p.letGo()
	p.commit, p.charged = nil, false
	p.reappear()
	p.preferAt("")
	if p.Node != "" {
		p.stage = bound
	}
}

// preferAt takes note of the shard that has the pod's room, "" for none.
func (p *pod) preferAt(shard api.Incarnation) {
	if shard != "" || p.few != nil {
		p.some().prefer = shard
	}
}

// vanish takes note that a node shard found no such pod, and reappear that it may be there after all.
func (p *pod) vanish() { p.absence = gone }
func (p *pod) reappear() {
	if p.absence == gone {
		p.absence = present
	}
}

// charge makes the pod part of its gang's reservation, and uncharge takes it out.
func (p *pod) charge()   { p.charged = true }
func (p *pod) uncharge() { p.charged = false }

// own takes note that Basalt bound the pod, or charged it before.
func (p *pod) own() { p.burden = byUs }

// pin has the pod stay with a gang, pinOwn with one that Basalt commits it or bound it for, and pinAsSaid with one that
// only its labels name. unpin ends that.
func (p *pod) pin(gang string)       { p.pinned, p.sure = gang, true }
func (p *pod) pinOwn(gang string)    { p.pinned, p.sure, p.burden = gang, true, byUs }
func (p *pod) pinAsSaid(gang string) { p.pinned = gang }
func (p *pod) unpin()                { p.pinned, p.sure = "", false }

// changing reports whether the version that is known must not be committed: a write is not answered, or the watch has
// not shown yet what the pod is since its Binding was resolved.
func (p *pod) changing() bool { return p.writing || api.NewerVersion(p.resolved, p.version) }

// shows takes what the pod was seen to say of why it waits for what it was told last.
func (p *pod) shows() {
	p.tell(p.Condition.Reason, p.Condition.Message, gistOf(p.Condition.Message))
}

// tell takes note of the condition that the pod shows, or was written.
func (p *pod) tell(reason, words string, gist uint64) { p.told, p.words, p.gist = reason, words, gist }

// candidate reports whether the pod may be placed.
func (p *pod) candidate() bool {
	return p.Ours && p.Node == "" && p.stage != bound && !p.Finished && !p.Deleting && !p.Gated && !p.withheld &&
		p.absence != gone && p.refusal() == nil
}

func comparePods(a, b *pod) int {
	return intake.ComparePods(a.Pod, b.Pod)
}

// newer returns the newer of two resourceVersions: the watch may lag behind the answer to our own write.
func newer(a, b string) string {
	if api.NewerVersion(a, b) {
		return a
	}
	return b
}

// The API server may reject the Binding of a pod and go on doing so: an admission policy or a webhook forbids it. What
// the pod holds and is charged is for others then. It is bound again at once a few times, on nodes drawn at random, as
// the node may be why. Then it rests: it is no candidate, like a pod that cannot be placed as it is, so the gang goes
// on with others if these are enough. A gang that is bound in part and cannot be completed without it is undone at
// once, and rests as a whole, for its controllers make new pods: until one of another controller comes. Whoever edits
// the pod or its group ends the rest. All of this is forgotten with the pod and the gang: an heir tries anew.

const (
	rejectedAtOnce = 2                  // times that a pod is bound again at once
	rejectedPause  = 5 * time.Second    // for which it rests then, twice as long each time,
	rejectedMost   = 60 * rejectedPause // and at most
)

// rejection is what is remembered of Bindings that the API server rejected, one after another.
type rejection struct {
	times int
	why   *api.Refusal // of who rests, nil for nobody,
	until time.Time    // and until when
	owner uint64       // of a gang that was undone: the controller of the pod that was rejected,
	group int64        // and the generation of the group
}

// rest takes note of a rejection, and begins a pause that is longer than the one before, but for the first few times.
func (x *rejection) rest(now time.Time, why *api.Refusal, free int) {
	x.times++
	if n := x.times - free - 1; n >= 0 {
		x.why, x.until = why, now.Add(min(rejectedPause<<min(n, 8), rejectedMost))
	}
}

// goesOn ends a rest that is over, and returns when one that is not ends, or the time given if that is earlier.
func (x *rejection) goesOn(now, or time.Time) time.Time {
	if or = pauseEnds(&x.until, now, or); x.until.IsZero() {
		x.why = nil
	}
	return or
}

// pauseEnds makes the end of a pause that is over zero, and returns the earlier one of that and the time given, of
// those that are not zero.
func pauseEnds(end *time.Time, now, or time.Time) time.Time {
	switch {
	case end.IsZero():
	case !now.Before(*end):
		*end = time.Time{}
	case or.IsZero() || end.Before(or):
		return *end
	}
	return or
}

// refusal says why the pod is not placed as it is, nil if it may be.
func (p *pod) refusal() *api.Refusal {
	if p.Refused != nil {
		return p.Refused
	}
	if p.few == nil {
		return nil
	}
	return p.few.rejected.why
}

// others is what is known of a pod with a node for which another gang is charged. That one's home drives it: here it
// counts for nothing, and goes with nobody. It is asked for again after ever longer pauses, as the other one may have
// let go.
type others struct {
	since time.Time // when the coordinator first said so
	again time.Time // when it is asked for again, zero while it is
}

// othersHave takes note that another gang is charged for the pod, and begins a pause.
func (p *pod) othersHave(now time.Time, least, most time.Duration) {
	if p.others == nil {
		p.others = &others{since: now}
	}
	o := p.others
	o.again = now.Add(min(max(now.Sub(o.since), least), most))
}

// asks reports whether the pod is asked for.
func (o *others) asks() bool { return o == nil || o.again.IsZero() }

// mayHave returns when the pod is asked for again, or the time given if that is earlier, and ends a pause that is over.
func (o *others) mayHave(now, or time.Time) time.Time { return pauseEnds(&o.again, now, or) }

// refusedPod is a pod that cannot be placed as it is, and why not, as it was when the gang was counted.
type refusedPod struct {
	*pod
	why *api.Refusal
}

// orBefore takes a pod in place of one that comes after it, or of none.
func (r *refusedPod) orBefore(p *pod, why *api.Refusal) {
	if r.pod == nil || comparePods(p, r.pod) < 0 {
		r.pod, r.why = p, why
	}
}

// words says of which pod the API server rejects the Binding, or what else is wrong with it; nothing if there is none.
func (r *refusedPod) words() report.Reason {
	if r.pod == nil {
		return report.Reason{}
	}
	return report.PodRefused(r.Pod, r.why)
}

func (x *rejection) words() string {
	if x.why == nil {
		return ""
	}
	return x.why.Message
}

// isRejected reports whether a gang is bound in part, and the API server rejects Bindings of the rest.
func (g *gang) isRejected() bool {
	t := &g.tally
	return t.rejected.pod != nil && t.bound > 0 && t.committed == 0 && len(g.lost) == 0
}

// pick returns the members for which keep holds, in order.
func (g *gang) pick(keep func(*pod) bool) []*pod {
	var out []*pod
	for _, p := range g.inOrder() {
		if keep(p) {
			out = append(out, p)
		}
	}
	return out
}

// inOrder returns the members in order. Sorting thousands for every look at a gang would take longer than everything
// else that is done for it.
func (g *gang) inOrder() []*pod {
	if g.order == nil {
		g.order = slices.SortedFunc(maps.Values(g.members), comparePods)
	}
	return g.order
}

// stands reports whether a pod stays where it is.
func stands(p *pod) bool { return !p.Finished && (p.stage == committed || p.isBound()) }

func isHeld(p *pod) bool { return p.stage == held }

// sum adds up what pods request.
func sum(pods []*pod) api.Resources {
	total, _ := sumBounded(pods)
	return total
}

// sumBounded is sum, and reports whether the pods request more than api.MaxGangResources resources: the sum is of the
// foremost of them then.
func sumBounded(pods []*pod) (total api.Resources, excess bool) {
	var index classIndex
	count := make([]int64, 0, fewClasses)
	for _, p := range pods {
		i, fresh := index.number(p.Class)
		if fresh {
			count = append(count, 0)
		}
		count[i]++
	}
	for i, class := range index.list {
		n := count[i]
		r := class.Requests
		if n > 1 {
			r = r.Clone()
			for i := range r {
				r[i].Value = api.MulSat(r[i].Value, n)
			}
		}
		if total = total.Add(r); len(total) > api.MaxGangResources {
			total, _ = total.Foremost(api.MaxGangResources, nil)
			excess = true
		}
	}
	return total, excess
}

// askedBy returns the hashes of the classes of pods that are charged.
func askedBy(pods map[string]*pod) map[uint64]bool {
	of := map[uint64]bool{}
	for _, p := range pods {
		if p.charged && p.asked != nil {
			of[p.asked.Hash()] = true
		}
	}
	return of
}

// boundAlone reports whether a pod of a gang was bound as a gang of one: it had lost its label before that, and the
// home that asked for the gang's reservation had not seen it. The pod is charged to the gang, but does not count
// towards its minimum.
func (p *pod) boundAlone() bool { return p.Gang == p.UID && p.gang.id != p.UID }

// gistOf tells words apart that differ in more than their numbers.
func gistOf(words string) uint64 {
	return xxhash.Sum64String(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, report.Short(words)))
}

// awaitsVolumes names a pod whose volumes are being bound, and its claims.
func (g *gang) awaitsVolumes() string {
	for _, p := range g.pick((*pod).awaitsVolumes) {
		return fmt.Sprintf("pod %s/%s waits on node %s for %s", p.Namespace, p.Name, p.node, p.claims())
	}
	return ""
}

// awaitsVolumes reports whether the node of a pod is decided, and its volumes are not bound.
func (p *pod) awaitsVolumes() bool {
	return p.stage == committed && p.Unbound && p.commit != nil && p.commit.waitsForVolumes()
}

// claims names the claims of a pod for its user.
func (p *pod) claims() string {
	const named = 3
	switch n := len(p.Claims); {
	case n == 0: // they are of ephemeral volumes
		return "its volumes"
	case n == 1:
		return "claim " + p.Claims[0]
	case n <= named:
		return "one of its claims " + strings.Join(p.Claims, ", ")
	default:
		return fmt.Sprintf("one of its claims %s and %d more", strings.Join(p.Claims[:named], ", "), n-named)
	}
}

// prepared reports whether the intents of a commit are durable.
func (cm *commit) prepared() bool { return cm.place != nil }

// waitsForVolumes reports whether a commit's pods have volumes that are not known to be bound or to have failed.
func (cm *commit) waitsForVolumes() bool { return cm.step == toBind }

// remains is what is known of a pod that could not be evicted: a policy may refuse that for good. After api.Overdue its
// gang goes on with it, if nothing else is left of it, and is not undone for rejectedMost.
type remains struct {
	since time.Time // the zero time if that is not so
	why   string    // the last error
}

// evictionEnds takes note of how an attempt to evict the pod ended. The next one is no sooner than after a pause.
func (p *pod) evictionEnds(now time.Time, done bool, why string, pause time.Duration) {
	x := p.some()
	x.evicting, x.evictAt = 0, now.Add(pause)
	if done {
		x.remains = remains{}
		return
	}
	if x.remains.since.IsZero() {
		x.remains.since = now
	}
	x.remains.why = why
}

// stays reports whether the pod cannot be evicted, as attempts to do so have shown of late.
func (p *pod) stays(now time.Time) bool {
	x := p.few
	return x != nil && !x.remains.since.IsZero() && !p.Deleting && x.evicting == 0 &&
		!now.Before(x.remains.since.Add(api.Overdue)) && now.Before(x.evictAt.Add(rejectedMost))
}

// maySpare reports whether a pod may be given up: as far as the watch shows, it is bound, and stays.
func (p *pod) maySpare() bool { return p.Node != "" && !p.Finished && !p.Deleting }
