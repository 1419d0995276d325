package home

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/fair"
	"basalt.dev/basalt/shard/home/report"
)

// Writes of statuses, conditions and evictions. Package report decides when a status is written, and what of it is. What it says of a
// gang comes from here.

// reports is what users are told: statuses, conditions and events.
type reports struct {
	*common
	census  *census
	rules   *rules
	reasons *reasons

	podGroups   report.PodGroups
	queues      report.Queues
	explains    fair.Tokens
	retells     fair.Tokens
	gistWords   string // of the last gist that was made
	lastGist    uint64
	explain     fair.Queues[explainQueue]
	eventTokens fair.Tokens
	eventsSpent fair.Budget
	positionsAt time.Time
	inPosition  []*gang                         // those with a position
	controllers recent[ofController, time.Time] // what they were told of their pods, and when
}

type writeKind uint8

const (
	writeGroup writeKind = iota + 1
	writeQueue
	writeCondition
	writeEviction
)

func (c *reports) onStatusWritten(e event.StatusWritten) {
	w, known := c.writes[e.ID]
	if !known {
		return
	}
	delete(c.writes, e.ID)
	switch w.kind {
	case writeGroup:
		if g := c.gangs[w.uid]; g != nil && c.podGroups.Written(c.now, g.status, e.ID, e.Outcome) {
			if e.Outcome != event.StatusOK && e.Outcome != event.StatusGone && g.group != nil {
				c.seenStatus(g) // it may have taken effect all the same, and been seen meanwhile
			}
			c.touch(g)
		}
	case writeQueue:
		c.queues.Written(c.now, w.queue, e.ID, e.Outcome)
	case writeCondition:
		c.conditionWritten(w, e)
	case writeEviction:
		if p := c.pods[w.uid]; p != nil && p.seldom().evicting == e.ID {
			p.evictionEnds(c.now, e.Outcome == event.StatusOK || e.Outcome == event.StatusGone,
				report.Short(e.Error), 5*c.cfg.AskAgain)
			if p.gang != nil {
				c.touch(p.gang)
			}
		}
	}
}

// statement returns what is to be said about a PodGroup now.
func (c *reports) statement(g *gang) report.Statement {
	s := report.Statement{Generation: g.group.Generation, Queue: g.queue}
	for _, p := range g.members {
		has := p.Node != "" || p.stage == bound
		if has {
			s.Bound++
		}
		if has || !p.Finished {
			s.Pods++
		}
	}
	s.Yielded = g.yielded
	s.Reserved, s.Scheduled = g.reservedVerdict(), c.scheduledVerdict(g)
	if s.Now = nowReason(g, s.Reserved, s.Scheduled); !g.started {
		s.Position = g.position
	}
	return s
}

// publish writes the status of a gang's group when it is due, or has the gang looked at when it is.
func (c *reports) publish(g *gang) {
	if g.group == nil || !g.ownerless.IsZero() || g.tally.bound > 0 && g.charge.elsewhere() ||
		g.status.Gone() || !c.writesGroup(g) {
		return
	}
	own := g.name.Kind == api.BasaltGroup
	var say report.Statement
	if own {
		say = c.statement(g)
		c.tellWaiting(g, say.Now) // whether or not the last write is answered
	}
	if !c.podGroups.Writable(g.status) {
		return
	}
	var status api.GroupStatus // of a group of another kind
	if !own {
		status = c.groupStatus(g)
		say = report.OfGroup(status)
	}
	due, again := c.podGroups.Publish(c.now, g.name.Namespace, g.id, g.status, say)
	if !again.IsZero() {
		c.wakeAt(g, again)
	}
	if !due {
		return
	}
	id := c.nextWrite(write{kind: writeGroup, uid: g.id})
	if own {
		c.emit(event.WritePodGroupStatus{ID: id, Namespace: g.name.Namespace, Name: g.name.Name, UID: g.id,
			Status: c.podGroups.Status(c.now, g.status, id, say, c.epochOf(g.bucket), int64(c.table.Epoch))})
		return
	}
	c.podGroups.Sent(c.now, g.status, id, say)
	c.emit(event.WriteGroupStatus{ID: id, Kind: g.name.Kind, Namespace: g.name.Namespace, Name: g.name.Name, UID: g.id, Generation: g.group.Generation,
		Status: status, Shown: g.group.Shown})
}

// publishWaiting writes the statuses of PodGroups whose turn it is.
func (c *reports) publishWaiting() {
	c.podGroups.Turns(c.now, func(uid string) {
		if g := c.gangs[uid]; g != nil {
			c.mark(g)
		}
	})
}

// epochOf returns the epoch with which statuses are stamped of what is in a bucket.
func (c *common) epochOf(b api.BucketID) int64 {
	if fault.On(fault.TablesEpoch) {
		return int64(c.table.Epoch)
	}
	return int64(c.epochs[b])
}

// seenStatus takes note of what a PodGroup shows.
func (c *reports) seenStatus(g *gang) {
	if g.name.Kind != api.BasaltGroup {
		if g.group.Shown.Scheduled.Yes && g.charge.yields == nil && !g.status.RecallsStart(c.now) {
			g.hadMinimum()
		}
		c.podGroups.SeenOfGroup(g.status, g.group.Shown)
		c.touch(g)
		return
	}
	if !c.podGroups.Seen(g.status, g.group.Status) {
		return
	}
	switch {
	case g.charge.yields != nil, g.status.RecallsStart(c.now): // it is being taken back
	case shows(g.group.Status, v1beta1.ConditionPodGroupInitiallyScheduled): // the memory of a gang's start
		g.hadMinimum()
	case g.status.ShowsPreempted() && g.started && !g.charge.reserved() && g.tally.bound == 0:
		// What was seen before is out of date.
		c.beginAnew(g)
	}
	if !g.started && g.yielded == "" { // a predecessor evicted it, and what it said of that stays until the gang starts again
		if s := g.group.Status; shows(s, v1beta1.ConditionDisruptionTarget) {
			g.wasEvicted(report.Short(meta.FindStatusCondition(s.Conditions, v1beta1.ConditionDisruptionTarget).Message))
		}
	}
	c.touch(g)
}

// beginAnew forgets what was of a life that is over.
func (c *reports) beginAnew(g *gang) {
	g.life.over()
	c.census.recount(g)
}

// writeQueueStatuses writes the statuses of Queues that are due.
func (c *reports) writeQueueStatuses() {
	own := func(path string) (epoch int64, ours bool) {
		b := api.BucketOf(path)
		if fault.On(fault.TwoStatusWriters) && c.table != nil {
			return int64(c.table.Changed[b]), true
		}
		return c.epochOf(b), c.active[b]
	}
	for _, err := range c.queues.Write(c.now, own, func(path, uid string, status *v1beta1.QueueStatus) uint64 {
		id := c.nextWrite(write{kind: writeQueue, queue: path})
		c.emit(event.WriteQueueStatus{ID: id, Queue: path, UID: uid, Status: status})
		return id
	}) {
		c.broken(err.Error())
	}
}
