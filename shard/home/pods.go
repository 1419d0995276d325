package home

import (
	"iter"
	"slices"
	"strings"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/intake"
)

// Pods as the API server shows them: seen, changed and gone.

func (c *Core) onPodsReplaced(e event.PodsReplaced) {
	c.takeover.readNames(e.Sequence)
	if e.Seen {
		c.thereAfterAll()
		for _, p := range e.Others { // a reservation may name some that were not kept
			c.onPodSeen(p)
		}
		c.activate(e.Sequence)
		return
	}
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
	c.rules.forgetRepellers(now)
	for _, p := range e.Pods {
		c.versionsWentBack(p)
		c.onPodSeen(p)
	}
	c.activate(e.Sequence)
}

// thereAfterAll takes that all pods are as they were seen last, also those that were found to be gone.
func (c *common) thereAfterAll() {
	var there []*pod
	for _, g := range c.gangs { // only members are said to be gone
		for _, p := range g.members {
			if p.absence == gone {
				there = append(there, p)
			}
		}
	}
	slices.SortFunc(there, func(a, b *pod) int { return strings.Compare(a.UID, b.UID) })
	for _, p := range there {
		c.versionsWentBack(p.Pod)
	}
}

// Keeps reports whether the core keeps a pod: one that it may have to place or to charge. It keeps a bound pod that it
// knows, or that a reservation names, also when the label that made it so is gone.
func Keeps(p *api.Pod) bool { return p.Ours || p.Queue != "" }

// Pods appends the pods that are kept, as they were last seen: those on nodes of some buckets, and those with some
// UIDs. They are in no order.
func (c *Core) Pods(to []*api.Pod, nodes []api.BucketID, uids iter.Seq[string]) []*api.Pod {
	for _, b := range nodes {
		for _, p := range c.index.nodes.pods[b] {
			if Keeps(p.Pod) {
				to = append(to, p.Pod)
			}
		}
	}
	for uid := range uids {
		if p := c.pods[uid]; p != nil && Keeps(p.Pod) && !c.index.nodes.has(p, nodes) {
			to = append(to, p.Pod)
		}
	}
	return to
}

func (c *Core) onPodSeen(seen *api.Pod) {
	if seen == nil || seen.UID == "" {
		return
	}
	c.rules.noteRepeller(seen.UID, seen)
	p := c.pods[seen.UID]
	if !Keeps(seen) && !(p != nil && p.Node != "") && c.takeover.named[api.PodID(seen.UID)] == nil {
		if p != nil { // it lost its label
			c.onPodGone(seen.UID)
			c.rules.noteRepeller(seen.UID, seen)
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
		c.index.filePod(p)
		changed := c.objects.Add(p.Entry)
		if p.Node != "" {
			c.pin(p)
		}
		c.resolveMembership(p)
		c.implied(changed)
		return
	}
	before, changing := p.Pod, p.changing()
	if p.Pod = seen; nodeOf(before) != nodeOf(seen) {
		c.index.filePod(p)
	}
	if before.Class.Key != seen.Class.Key || !before.Labels.Equal(seen.Labels) {
		p.asked = seen.Class // what is under way was asked for by what the pod was; without labels it is judged with care
		if p.stage == nowhere && p.gang != nil {
			c.searchers.hasten(p.gang)
		}
	}
	if p.seldom().rejected.times > 0 && !p.writing && p.stage == nowhere && p.gang != nil &&
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
		c.reports.tellUnheeded(p)
	}
	if p.gang != nil && !slices.Equal(before.Scarce, seen.Scarce) {
		p.gang.edited()
		c.touch(p.gang)
	}
	relabelled, changed := false, intake.Implied{}
	if before.Node == "" || fault.On(fault.LabelsMoveBound) { // labels of a bound pod count no more
		relabelled, changed = c.objects.Relabel(p.Entry)
		if relabelled && before.Node != "" {
			p.unpin()
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
		c.census.boundByOthers(p)
	}
	if p.Node != "" && p.gang != nil && p.stage != bound {
		c.podBound(p, p.Node)
	}
}

// versionsWentBack believes a list that shows a pod in an older version than the one that is known: the API server was restored
// from a backup, and no Binding under the version of before could land any more. Where the list only lags behind a write of
// ours, the Binding is refused, and resolving it shows the version.
func (c *common) versionsWentBack(listed *api.Pod) {
	if listed == nil {
		return
	}
	p := c.pods[listed.UID]
	if p != nil && p.absence == gone {
		p.reappear()
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
	c.rules.noteRepeller(uid, nil)
	p := c.pods[uid]
	if p == nil {
		return
	}
	delete(c.pods, uid)
	delete(c.takeover.astray, uid)
	lost, changed := c.objects.Remove(p.Entry)
	c.revote(lost)
	c.leave(p)
	c.index.dropPod(p)
	c.implied(changed)
}
