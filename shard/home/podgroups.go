package home

import (
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/shard/event"
)

// group is a PodGroup, or an object of another kind that is read as one.
type group struct {
	name
	uid        string
	generation int64
	created    time.Time
	seen       time.Time // first
	queue      string    // spec.queue
	minCount   int
	class      string // priorityClassName
	timeout    time.Duration
	deleting   bool
	status     *v1alpha1.PodGroupStatus // as seen, nil when it has none

	// Of another kind than Basalt's PodGroup:
	roles   []api.Role
	floor   api.Resources
	refused *api.Refusal // its gang is not placed
	shown   api.GroupStatus

	votes map[string]int // queues that its pods name, "" for none, with the number of pods
}

func (c *Core) onGroupSeen(e event.PodGroupSeen) {
	seen := e.PodGroup
	if seen == nil || seen.UID == "" {
		return
	}
	if _, gone := c.goneGroups.get(string(seen.UID)); gone {
		return
	}
	var foreign api.ForeignGroup
	if e.Foreign != nil {
		foreign = *e.Foreign
	}
	n := name{seen.Namespace, seen.Name, foreign.Kind}
	g := c.groups[n]
	if g != nil && g.uid != string(seen.UID) {
		c.dropGroup(g) // the delete of the one before was missed, or comes late
		g = nil
	}
	fresh := g == nil
	if fresh {
		g = &group{name: n, uid: string(seen.UID), created: seen.CreationTimestamp.Time, seen: c.now, votes: map[string]int{}}
		c.groups[n] = g
		c.young = append(c.young, g)
	}
	g.generation = seen.Generation
	g.queue = seen.Spec.Queue
	g.refused, g.shown = foreign.Refused, foreign.Status
	least := int(max(1, seen.Spec.SchedulingPolicy.Gang.MinCount))
	if g.minCount != least || !slices.Equal(g.roles, foreign.Roles) || !g.floor.Equal(foreign.Floor) {
		g.minCount, g.roles, g.floor = least, foreign.Roles, foreign.Floor
		if gang := c.gangs[g.uid]; gang != nil {
			c.edited(gang)
		}
	}
	g.class = seen.Spec.PriorityClassName
	g.timeout = 0
	if t := seen.Spec.ScheduleTimeoutSeconds; t != nil && *t > 0 {
		g.timeout = time.Duration(*t) * time.Second
	}
	g.deleting = seen.DeletionTimestamp != nil
	g.status = seen.Status
	if fresh {
		for _, uid := range api.SortedKeys(c.labelled[n]) {
			p := c.labelled[n][uid]
			if p.Node != "" && p.gang == nil {
				c.pin(p)
			}
			c.resolveMembership(p)
		}
	}
	c.homeGroup(g)
	if gang := c.gangs[g.uid]; gang != nil {
		c.seenStatus(gang)
	}
}

func (c *Core) onGroupGone(e event.PodGroupGone) {
	if fault.On(fault.NamesNotUIDs) {
		c.goneNames = append(c.goneNames, name{e.Namespace, e.Name, e.Kind})
		return
	}
	c.goneGroups.put(e.UID, struct{}{})
	if g := c.groups[name{e.Namespace, e.Name, e.Kind}]; g != nil && g.uid == e.UID {
		c.dropGroup(g)
	}
}

// dropGroup ends a PodGroup: pods that may be bound stay with its gang, the others have no PodGroup any more.
func (c *Core) dropGroup(g *group) {
	c.goneGroups.put(g.uid, struct{}{})
	delete(c.groups, g.name)
	if gang := c.gangs[g.uid]; gang != nil {
		gang.group, gang.gone, gang.mismatch = nil, true, false
		c.touch(gang)
	}
	for _, uid := range api.SortedKeys(c.labelled[g.name]) {
		c.resolveMembership(c.labelled[g.name][uid])
	}
}

func (c *Core) onPriorityClass(class string, value int64, exists bool) {
	if exists {
		c.priorities[class] = value
	} else {
		delete(c.priorities, class)
	}
	for _, uid := range api.SortedKeys(c.gangs) {
		if g := c.gangs[uid]; g.group != nil && g.group.class == class {
			c.touch(g)
		}
	}
}
