package home

import (
	"maps"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/intake"
)

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

	asked  *api.Class // with what it is asked for (repel.go)
	id     uint64     // api.PodID
	pinned string     // UID of the gang under which it was committed or seen bound
	sure   bool       // pinned rests on more than LabelGang, which anybody may have written
	gang   *gang      // nil when it is none of ours
	first  time.Time  // when it was first seen
	stage  podStage
	shard  api.Incarnation // where it is held or committed,
	node   string          // and on which node
	turn   uint64          // in which it was asked for: pods of one Commit are in this order in the log
	commit *commit         // that names it; nil for one found in doubt
	doubt  time.Time       // since when its shard is gone with the answer
	prefer api.Incarnation // the shard that failed to bind it and has its room
	gone   bool            // a node shard found no pod of this UID; the watch will show it
	lost   bool            // being deleted, and it should have gone long ago (gang.go)

	charged    bool          // part of the gang's reservation
	ours       bool          // bound by Basalt, or charged before: it is charged whatever its node is
	chargeable bool          // bound, and to be charged (foreign.go)
	counted    api.Resources // what of it is in foreignOn.sum of its node
	evicting   uint64        // ID of the EvictPod that is not answered
	evictAt    time.Time

	rejected rejection // its Bindings, by the API server

	alone        bool      // its PodGroup is gone, and started each of its pods by itself (startsAlone)
	withheld     bool      // its scheduler's name is lent, and not Basalt's now
	told         string    // reason of the PodScheduled=False that it shows, or was written and not yet seen
	words        string    // and its message,
	gist         uint64    // which gistOf this is
	explainAgain time.Time // not before, after a write, or as others were told first
	retellAt     time.Time // likewise, with other words for what it shows
	writing      bool      // such a write is not answered: its version is about to change
}

// isBound reports whether the pod has a node and uses it.
func (p *pod) isBound() bool { return !p.Finished && (p.Node != "" || p.stage == bound) }

// waitsNowhere reports whether a pod is charged, and neither held nor promised room.
func waitsNowhere(p *pod) bool { return p.charged && p.candidate() && p.stage == nowhere }

// hastenUnlike ends a gang's wait for room before pods are charged of which one is unlike those that found none.
func hastenUnlike(c *Core, g *gang, pods []*pod) {
	if g.search.sleep == nil {
		return
	}
	slept := map[string]bool{}
	for _, p := range g.pick(waitsNowhere) {
		slept[p.Class.Key] = true
	}
	if len(slept) > 0 && slices.ContainsFunc(pods, func(p *pod) bool { return p.gang == g && !slept[p.Class.Key] }) {
		c.hasten(g)
	}
}

// hasRoom reports whether a node shard keeps room for the pod.
func (p *pod) hasRoom() bool { return p.stage == held || p.stage == promised }

// letGo forgets the place that a pod was to have.
func (p *pod) letGo() { p.stage, p.shard, p.node = nowhere, "", "" }

// changing reports whether the version that is known must not be committed: a write is not answered, or the watch has not shown
// yet what the pod is since its Binding was resolved.
func (p *pod) changing() bool { return p.writing || api.NewerVersion(p.resolved, p.version) }

// shows takes what the pod was seen to say of why it waits for what it was told last.
func (p *pod) shows() {
	p.told, p.words, p.gist = p.Condition.Reason, p.Condition.Message, gistOf(p.Condition.Message)
}

// candidate reports whether the pod may be placed.
func (p *pod) candidate() bool {
	return p.Ours && p.Node == "" && p.stage != bound && !p.Finished && !p.Deleting && !p.Gated && !p.withheld &&
		!p.gone && p.Refused == nil && p.rejected.why == nil
}

func comparePods(a, b *pod) int {
	return intake.ComparePods(a.Pod, b.Pod)
}

func (c *Core) onPodsReplaced(e event.PodsReplaced) {
	c.readNames(e.Sequence)
	now := make(map[string]bool, len(e.Pods))
	for _, p := range e.Pods {
		if p != nil {
			now[p.UID] = true
		}
	}
	for _, uid := range api.SortedKeys(c.pods) {
		if !now[uid] {
			c.onPodGone(uid)
		}
	}
	c.forgetRepellers(now)
	for _, p := range e.Pods {
		c.versionsWentBack(p)
		c.onPodSeen(p)
	}
	c.activate(e.Sequence)
}

// Keeps reports whether the core keeps a pod: one that it may have to place or to charge. It keeps a bound pod that it knows,
// or that a reservation names, also when the label that made it so is gone.
func Keeps(p *api.Pod) bool { return p.Ours || p.Queue != "" }

// Pods appends all pods for which Keeps holds, as they were last seen, in no order.
func (c *Core) Pods(to []*api.Pod) []*api.Pod {
	for _, p := range c.pods {
		if Keeps(p.Pod) {
			to = append(to, p.Pod)
		}
	}
	return to
}

func (c *Core) onPodSeen(seen *api.Pod) {
	if seen == nil || seen.UID == "" {
		return
	}
	c.noteRepeller(seen.UID, seen)
	p := c.pods[seen.UID]
	if !Keeps(seen) && !(p != nil && p.Node != "") && c.named[api.PodID(seen.UID)] == nil {
		if p != nil { // it lost its label
			c.onPodGone(seen.UID)
			c.noteRepeller(seen.UID, seen)
		}
		return
	}
	if seen.Class == nil {
		bare := *seen
		bare.Class = api.NewClass(api.Resources{{Resource: "pods", Value: 1}}, nil)
		seen = &bare
	}
	if p == nil {
		p = &pod{Entry: &intake.Entry{Pod: seen}, asked: seen.Class, id: api.PodID(seen.UID), first: c.now,
			version: seen.ResourceVersion}
		p.shows()
		p.withheld = c.withholds(seen)
		c.pods[seen.UID] = p
		changed := c.objects.Add(p.Entry)
		if p.Node != "" {
			c.pin(p)
		}
		c.resolveMembership(p)
		c.implied(changed)
		return
	}
	before, changing := p.Pod, p.changing()
	p.Pod = seen
	if before.Class.Key != seen.Class.Key || !before.Labels.Equal(seen.Labels) {
		p.asked = seen.Class // what is under way was asked for by what the pod was; without labels it is judged with care
		if p.stage == nowhere && p.gang != nil {
			c.hasten(p.gang)
		}
	}
	if p.rejected.times > 0 && !p.writing && p.stage == nowhere && p.gang != nil &&
		api.NewerVersion(seen.ResourceVersion, newer(p.version, p.resolved)) { // somebody else has edited it
		p.gang.triesAnew(map[string]*pod{p.UID: p})
		c.touch(p.gang)
	}
	if said := seen.Condition.Reason; said != p.told && (said != "" || said != before.Condition.Reason) &&
		!p.writing && !api.NewerVersion(p.version, seen.ResourceVersion) {
		p.shows() // another home wrote it, which knew less or more: what differs after a while is written anew
		if p.explainAgain = c.now.Add(c.cfg.ConditionAfter); p.gang != nil {
			c.touch(p.gang)
		}
	}
	p.version = newer(p.version, seen.ResourceVersion)
	if changing && !p.changing() && p.gang != nil {
		c.touch(p.gang)
	}
	if r := seen.Refused; r != nil && before.Refused != nil && r.Message != before.Refused.Message && p.gang != nil {
		c.touch(p.gang) // it may be told so
	}
	if before.Unheeded != seen.Unheeded && p.gang != nil {
		c.tellUnheeded(p)
	}
	if p.gang != nil && !slices.Equal(before.Scarce, seen.Scarce) {
		p.gang.edited()
		c.touch(p.gang)
	}
	relabelled, changed := false, intake.Implied{}
	if before.Node == "" || fault.On(fault.LabelsMoveBound) { // labels of a bound pod count no more
		relabelled, changed = c.objects.Relabel(p.Entry)
		if relabelled && before.Node != "" {
			p.pinned, p.sure = "", false
		}
		if seen.Node != "" {
			c.pin(p)
		}
	}
	defer c.implied(changed)
	if !relabelled && before.Node == seen.Node && before.Finished == seen.Finished && before.Deleting == seen.Deleting &&
		before.End == seen.End && before.Started == seen.Started && before.Gated == seen.Gated &&
		before.Queue == seen.Queue &&
		before.VolcanoQueue == seen.VolcanoQueue && before.QueueElsewhere == seen.QueueElsewhere &&
		before.PerController == seen.PerController && before.Priority == seen.Priority &&
		(before.Refused == nil) == (seen.Refused == nil) && before.Class.Key == seen.Class.Key {
		return
	}
	unasked := before.Node == "" && (p.stage == nowhere || p.stage == promised || p.stage == held)
	c.resolveMembership(p)
	if unasked && p.Node != "" && p.Gang == "" && p.Ours && p.gang != nil {
		c.boundByOthers(p)
	}
	if p.Node != "" && p.gang != nil && p.stage != bound {
		c.podBound(p, p.Node)
	}
}

// withholds reports whether a pod is of a scheduler's name that is lent, and the Lease is not Basalt's now: another scheduler may place
// it. What is under way for such a pod goes on; nothing new is begun.
func (c *Core) withholds(p *api.Pod) bool { return p.Lent && !c.writesStatusOf[api.VolcanoGroup] }

// newer returns the newer of two resourceVersions: the watch may lag behind the answer to our own write.
func newer(a, b string) string {
	if api.NewerVersion(a, b) {
		return a
	}
	return b
}

// versionsWentBack believes a list that shows a pod in an older version than the one that is known: the API server was restored
// from a backup, and no Binding under the version of before could land any more. Where the list only lags behind a write of
// ours, the Binding is refused, and resolving it shows the version.
func (c *Core) versionsWentBack(listed *api.Pod) {
	if listed == nil {
		return
	}
	p := c.pods[listed.UID]
	if p != nil && p.gone {
		p.gone = false
		if p.gang != nil {
			p.gang.edited()
			c.touch(p.gang)
		}
	}
	if p == nil || p.Pod == listed || !api.NewerVersion(p.version, listed.ResourceVersion) {
		return
	}
	p.version, p.resolved = listed.ResourceVersion, ""
	if p.gang != nil {
		c.touch(p.gang)
	}
}

func (c *Core) onPodGone(uid string) {
	c.noteRepeller(uid, nil)
	p := c.pods[uid]
	if p == nil {
		return
	}
	delete(c.pods, uid)
	lost, changed := c.objects.Remove(p.Entry)
	c.revote(lost)
	c.leave(p)
	c.implied(changed)
}

// The API server may reject the Binding of a pod and go on doing so: an admission policy or a webhook forbids it. What
// the pod holds and is charged is for others then. It is bound again at once a few times, on nodes drawn at random, as
// the node may be why. Then it rests: it is no candidate, like a pod that cannot be placed as it is, so the gang goes
// on with others if these are enough. A gang that is bound in part and cannot be completed without it is undone at
// once, and rests as a whole, for its controllers make new pods: until one of another controller comes. Whoever edits
// the pod or its group ends the rest. All of this is forgotten with the pod and the gang: an heir tries anew.

// rejection is what is remembered of Bindings that the API server rejected, one after another.
type rejection struct {
	times int
	why   *api.Refusal // of who rests, nil for nobody,
	until time.Time    // and until when
	owner uint64       // of a gang that was undone: the controller of the pod that was rejected,
	group int64        // and the generation of the group
}

const (
	rejectedAtOnce = 2               // times that a pod is bound again at once
	rejectedPause  = 5 * time.Second // for which it rests then, twice as long each time,
	rejectedMost   = 5 * time.Minute // and at most
)

// rest takes note of a rejection, and begins a pause that is longer than the one before, but for the first few times.
func (x *rejection) rest(now time.Time, why *api.Refusal, free int) {
	x.times++
	if n := x.times - free - 1; n >= 0 {
		x.why, x.until = why, now.Add(min(rejectedPause<<min(n, 8), rejectedMost))
	}
}

// goesOn ends a rest that is over, and returns when one that is not ends, or the time given if that is earlier.
func (x *rejection) goesOn(now, or time.Time) time.Time {
	switch {
	case x.why == nil:
	case !now.Before(x.until):
		x.why = nil
	case or.IsZero() || x.until.Before(or):
		return x.until
	}
	return or
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
	return t.rejected != nil && t.bound > 0 && t.committed == 0 && len(g.lost) == 0
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

// grows reports whether a Reserve is for one further pod of a gang that has started, and no other.
func (a *reserveCall) grows() bool { return a != nil && a.growth && a.started && len(a.pods) == 1 }

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
