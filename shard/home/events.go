package home

import (
	"fmt"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/report"
)

// Kubernetes events, where users look first: FailedScheduling on pods and PodGroups that wait, each with the condition
// that says the same, and once on the controller of such pods; Scheduled on PodGroups; what somebody has to look at.
// An event is told once and not again if it is lost: what holds is in the conditions. Those that many objects can cause
// have a budget, of which no namespace gets more than a part.
const (
	eventsByNamespace = 10 // events a second that a namespace may cause, and
	eventsAtOnce      = 50 // at once
)

// tell has users told something at an object, and reports whether there was budget for it.
func (c *reports) tell(said event.ObjectEvent) bool {
	if c.eventsSpent.Spent(c.now, said.About.Namespace) >= eventsAtOnce || !c.eventTokens.Take(c.now) {
		c.EventsDropped++
		return false
	}
	c.eventsSpent.Spend(c.now, said.About.Namespace, 1)
	c.emit(said)
	return true
}

func aboutPod(p *pod) event.Object {
	return event.Object{Kind: event.Pod, Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// aboutGroup names the object that describes a gang; of an implied group there is none.
func aboutGroup(g *gang) event.Object {
	return event.Object{Group: g.name.Kind, Namespace: g.name.Namespace, Name: g.name.Name, UID: g.id}
}

// controllersAgain is how long a controller is not told the same again of its other pods.
const controllersAgain = 10 * time.Minute

// ofController is a controller of pods and a reason why some of them wait.
type ofController struct {
	owner  uint64
	reason string
}

// tellController says at the controller of a pod, such as a Job, what is to be said at the pod: whoever made it looks
// there first. It says so of one pod for each reason.
func (c *reports) tellController(p *pod, reason string, said event.ObjectEvent) {
	of := ofController{p.Owner, reason}
	if at, told := c.controllers.get(of); !p.Owned() || told && c.now.Before(at.Add(controllersAgain)) {
		return
	}
	said.About.Kind, said.Message = event.Controller, report.Short("pod "+p.Name+": "+said.Message)
	if c.tell(said) {
		c.controllers.put(of, c.now)
	}
}

// tellPod says at a pod, and at its controller, why it waits. It goes with a condition, which has a budget.
func (c *reports) tellPod(p *pod, reason, message string) {
	said := event.ObjectEvent{About: aboutPod(p), Warning: true,
		Reason: v1beta1.ReasonFailedScheduling, Message: report.Short(message)}
	c.tellController(p, reason, said)
	c.tell(said)
}

// tellUnheeded says at a pod that it is placed without what nobody can heed: its wishes, words that only look like
// Basalt's, or a part of its terms. It says so when the pod comes, for it may wait for long in a queue that its user
// did not mean.
func (c *reports) tellUnheeded(p *pod) {
	if p.Node != "" {
		return
	}
	said := event.ObjectEvent{About: aboutPod(p), Warning: true}
	if p.Unheeded != "" {
		said.Reason, said.Message = v1beta1.ReasonUnheeded, p.Unheeded+": the pod is placed without regard to it"
		if strings.HasPrefix(p.Unheeded, "metadata.") {
			said.Reason = v1beta1.ReasonUnknownKey
		}
		c.tellController(p, said.Reason, said)
		c.tell(said)
	}
	if words := c.rules.repellers.ignored(p.Pod); words != "" {
		said.Reason, said.Message = v1beta1.ReasonAntiAffinityIgnored, words
		c.tell(said)
	}
}

// hopelessAfter is how long a gang or a pod waits before users are told of what somebody has to change.
const hopelessAfter = 2 * time.Second

// patience returns for how long a gang or a pod waits for a reason before users are told. Where somebody has to change
// something, that is only as long as it may take until what they have made is seen.
func (c *reports) patience(g *gang, r report.Reason) time.Duration {
	switch {
	case r.AtOnce():
		return 0
	case !r.Soon(), g.kind == orphanPod && g.ofVolcano(): // whose controllers make the PodGroup after the pod
		return c.cfg.ConditionAfter
	}
	return hopelessAfter
}

// ofVolcano reports whether a pod of the gang names a PodGroup of Volcano's.
func (g *gang) ofVolcano() bool {
	for _, p := range g.members {
		return p.InGroup.Kind == api.VolcanoGroup
	}
	return false
}

// tellWaiting says at a PodGroup why its gang waits, when it has waited for as long as its pods do before they are told.
func (c *reports) tellWaiting(g *gang, now report.Reason) {
	if !now.Blocks() {
		g.told = ""
		return
	}
	if g.told == now.Code || c.reasons.awaitsWords(g) {
		return
	}
	if due := g.age().Add(c.patience(g, now)); c.now.Before(due) {
		c.wakeAt(g, due)
		return
	}
	g.told = now.Code
	c.tell(event.ObjectEvent{About: aboutGroup(g), Warning: true,
		Reason: v1beta1.ReasonFailedScheduling, Message: report.Short(now.Message)})
}

// toldOfVolumes bounds the pods of a gang that are told what they wait for.
const toldOfVolumes = 10

// tellVolumes says at a gang, and at some of its pods, that their nodes are decided and their volumes are not bound,
// when that has lasted for as long as pods wait before they are told why. It says so in events alone: a condition would
// change the version of a pod that may be bound any moment. So what there is no budget for is said later.
func (c *reports) tellVolumes(g *gang) {
	if due := g.volumesSince.Add(c.cfg.ConditionAfter); c.now.Before(due) {
		c.wakeAt(g, due)
		return
	}
	ofGroup := 0 // events at its PodGroup, before those at pods
	if g.group != nil && g.name.Kind != api.ImpliedGroup {
		ofGroup = 1
	}
	pods := g.pick((*pod).awaitsVolumes)
	for last := ofGroup + min(len(pods), toldOfVolumes); g.volumesTold < last; g.volumesTold++ {
		said := event.ObjectEvent{About: aboutGroup(g), Reason: v1beta1.ReasonWaitingForVolumes}
		words := g.blocked.Message
		if i := g.volumesTold - ofGroup; i >= 0 {
			said.About = aboutPod(pods[i])
			words = fmt.Sprintf("node %s is chosen, and it waits for %s to be bound: "+
				"kubectl describe pvc says what its provisioner does", pods[i].node, pods[i].claims())
		}
		if said.Message = report.Short(words); !c.tell(said) {
			c.wakeAt(g, c.now.Add(c.cfg.ConditionAfter))
			return
		}
	}
}

// tellStarted says at a PodGroup that its gang has its minimum.
func (c *reports) tellStarted(g *gang) {
	if g.group == nil || g.name.Kind == api.ImpliedGroup || !g.boundByUs() {
		return
	}
	if c.eventsSpent.Spent(c.now, g.name.Namespace) >= eventsByNamespace { // the rest of what is allowed at once is for what waits
		c.EventsDropped++
		return
	}
	message := fmt.Sprintf("%d pods were bound, charged to queue %q", g.tally.placed, g.queue)
	if g.tally.placed == 1 {
		message = fmt.Sprintf("1 pod was bound, charged to queue %q", g.queue)
	}
	if !g.since.IsZero() {
		message += fmt.Sprintf(", %s after the gang was complete", c.now.Sub(g.since).Round(time.Millisecond))
	}
	c.tell(event.ObjectEvent{About: aboutGroup(g), Reason: v1beta1.ReasonScheduled, Message: message})
}

// SetPodEvents has an event written on each pod that is bound from now on, or on none.
func (c *Core) SetPodEvents(on bool) { c.cfg.PodEvents = on }

// tellBound says at a pod where it was bound, if that is wanted: it is one more request for each pod.
func (c *common) tellBound(p *pod, node string) {
	if c.cfg.PodEvents {
		c.emit(event.ObjectEvent{About: aboutPod(p), Reason: v1beta1.ReasonScheduled,
			Message: fmt.Sprintf("Successfully assigned %s/%s to %s", p.Namespace, p.Name, node)})
	}
}

// warn tells users about a gang, at the object that describes it. Of an implied group that is its oldest pod.
func (c *common) warn(g *gang, reason, message string) {
	about := aboutGroup(g)
	switch {
	case g.group == nil:
		return
	case g.name.Kind == api.ImpliedGroup && len(g.members) == 0:
		return
	case g.name.Kind == api.ImpliedGroup:
		about = aboutPod(g.inOrder()[0])
	}
	c.emit(event.ObjectEvent{About: about, Warning: true, Reason: reason, Message: message})
}

// tellClaimed says at a gang who is evicted for it: at its PodGroup, or where it has none at its pod.
func (c *reports) tellClaimed(g *gang) {
	said := event.ObjectEvent{About: aboutGroup(g),
		Reason: v1beta1.ReasonClaimed, Message: report.Short(report.Evicted(g.charge.victims))}
	switch p := c.pods[g.id]; {
	case p != nil: // a gang of one has its UID
		said.About = aboutPod(p)
	case g.group == nil || g.name.Kind == api.ImpliedGroup:
		return
	}
	c.tell(said)
}
