package home

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/intake"
	"basalt.dev/basalt/shard/home/report"
)

// When a gang's queue changes (somebody edits a label), its reservation is given back in the old queue, and the new queue's home
// takes the pods up as they are.

func (c *Core) onGroupSeen(e event.PodGroupSeen) {
	seen := e.PodGroup
	if seen == nil || seen.UID == "" {
		return
	}
	if _, gone := c.goneGroups.get(string(seen.UID)); gone {
		return
	}
	if g := c.objects.Group(intake.GroupName(seen, e.Foreign)); g != nil && g.UID != string(seen.UID) {
		c.dropGroup(g) // the delete of the one before was missed, or comes late
	}
	g, fresh, edited := c.objects.See(c.now, seen, e.Foreign)
	if gang := c.gangs[g.UID]; gang != nil && edited {
		gang.edited()
		gang.triesAnew(gang.members)
		c.touch(gang)
	}
	if fresh {
		c.young = append(c.young, g)
		for _, uid := range c.objects.Naming(g.Name) {
			p := c.pods[uid]
			if p.Node != "" && p.gang == nil {
				c.pin(p)
			}
			c.resolveMembership(p)
		}
	}
	c.homeGroup(g)
	if gang := c.gangs[g.UID]; gang != nil {
		c.reports.seenStatus(gang)
	}
}

func (c *Core) onGroupGone(e event.PodGroupGone) {
	c.deleted.put(e.UID, true)
	n := intake.Name{Namespace: e.Namespace, Name: e.Name, Kind: e.Kind}
	if fault.On(fault.NamesNotUIDs) {
		c.goneNames = append(c.goneNames, n)
		return
	}
	if _, known := c.goneGroups.get(e.UID); !known {
		c.goneGroups.put(e.UID, "")
	}
	if g := c.objects.Group(n); g != nil && g.UID == e.UID {
		c.dropGroup(g)
	}
}

// dropGroup ends a PodGroup: pods that may be bound stay with its gang, the others have no PodGroup any more.
func (c *Core) dropGroup(g *intake.Group) {
	queue, _, _ := c.objects.GroupQueue(g)
	c.goneGroups.put(g.UID, queue)
	c.objects.Drop(g)
	c.index.fileGroup(g, "")
	c.loseGroup(g)
	c.rememberLost(g)
	for _, uid := range c.objects.Naming(g.Name) {
		c.resolveMembership(c.pods[uid])
	}
}

// loseGroup tells a gang that its group is gone.
func (c *Core) loseGroup(g *intake.Group) {
	if gang := c.gangs[g.UID]; gang != nil {
		gang.loseGroup()
		c.touch(gang)
	}
}

// implied looks at implied groups that came, went or changed. One that went leaves no tombstone: it may come again under its UID, and is
// a new gang then, even if the end of the former one is not over.
func (c *Core) implied(changed intake.Implied) {
	for _, g := range changed {
		if g == nil {
			continue
		}
		gang := c.gangs[g.UID]
		switch {
		case !c.objects.Exists(g):
			c.index.fileGroup(g, "")
			if c.loseGroup(g); gang != nil {
				c.endImplied(gang)
			}
		default:
			if gang != nil {
				gang.edited()
			}
			c.homeGroup(g)
		}
	}
}

// endImplied has a gang whose implied group is gone begin its way back at once: the same event may bring the group again.
func (c *Core) endImplied(g *gang) {
	c.reports.beginAnew(g)
	c.census.recount(g)
	switch {
	case g.state == withdrawing || g.state == releasing || g.state == closing || g.state == evicting: // it is on its way
	case g.outstanding():
		c.retreat(g, startOver)
	default:
		c.become(g, collecting)
	}
}

// homeGroup sees to it that a PodGroup whose queue is ours has a gang, and that its gang knows the queue.
func (c *Core) homeGroup(g *intake.Group) {
	queue, known, mismatch := c.objects.GroupQueue(g)
	if !known {
		queue = ""
	}
	c.index.fileGroup(g, queue)
	gang := c.gangs[g.UID]
	if gang == nil {
		if !known || !c.active[api.BucketOf(queue)] {
			return
		}
		gang = c.newGang(g.UID, queue, g.Name)
		gang.first = c.now
	}
	if gang.group == nil { // new, or inherited before the PodGroup was seen
		gang.adopt(g)
		if gang.status == nil {
			gang.status = &report.PodGroup{}
		}
		c.reports.seenStatus(gang)
		for _, uid := range c.objects.Naming(g.Name) {
			c.resolveMembership(c.pods[uid])
		}
		queue, known, mismatch = c.objects.GroupQueue(g) // what its pods say now: some may have left it meanwhile
		if gang.charge.reserved() {                      // inherited
			c.census.recount(gang)
			gang.startedBefore()
		}
	}
	if !known {
		queue = gang.wantQueue
	}
	gang.seeQueue(queue, mismatch)
	c.touch(gang)
}

// revote looks at PodGroups that lost or got a vote of a pod. What becomes of the first may come back here, for that pod, too: by
// then its vote is where it belongs.
func (c *Core) revote(groups ...*intake.Group) {
	for _, g := range groups {
		if g != nil {
			c.homeGroup(g)
		}
	}
}

func (c *Core) onNamespace(namespace, queue string, exists bool) {
	c.resolveQueues(c.objects.SetNamespace(namespace, queue, exists))
}

// resolveQueues looks at PodGroups and pods whose queue may be another one.
func (c *Core) resolveQueues(groups []*intake.Group, pods []string) {
	for _, g := range groups {
		c.homeGroup(g)
	}
	for _, uid := range pods {
		c.resolveMembership(c.pods[uid])
	}
}

func (c *Core) onPriorityClass(class string, value int64, exists bool) {
	if exists {
		c.census.priorities[class] = value
	} else {
		delete(c.census.priorities, class)
	}
	for _, uid := range api.SortedKeys(c.gangs) {
		if g := c.gangs[uid]; g.group != nil && g.group.Class == class {
			c.touch(g)
		}
	}
}
