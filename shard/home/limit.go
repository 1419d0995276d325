package home

import (
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/shard/home/report"
)

// How long a gang runs at most. Its PodGroup says so; else its pods, if all of them do, of which the longest counts;
// else its queue, for all that say nothing. What the queue and its ancestors allow bounds all of that: a gang that
// says more is not cut, because it would lose the work of its last hours, but waits until one of both is edited.
//
// A limit ends nothing. It goes to the coordinator with the first request of an attempt, and is kept in the record: who
// runs on past it is evicted before others, and no minimum runtime protects it. So an edit counts for the next start.

// limit is how long a gang runs at most, 0 for as long as it likes, and who says so.
type limit struct {
	is time.Duration
	by string
}

// saidLimit returns what a gang, or its queue for it, says.
func (c *common) saidLimit(g *gang) limit {
	if g.group != nil && g.group.MaxRuntime > 0 {
		return limit{g.group.MaxRuntime, "spec.maxRuntimeSeconds of PodGroup " + g.group.Name.Name}
	}
	if longest := longestOfPods(g); longest > 0 {
		return limit{longest, "its pods"}
	}
	usual, by := c.objects.DefaultRuntime(g.queue)
	if longest, above := c.objects.LongestRuntime(g.queue); longest > 0 && (usual == 0 || longest < usual) {
		return limit{longest, "spec.maxRuntime of queue " + above}
	}
	if usual == 0 {
		return limit{}
	}
	return limit{usual, "spec.defaultRuntime of queue " + by}
}

// longestOfPods returns for how long the pods of a gang run at most, 0 where one of them does not say.
func longestOfPods(g *gang) time.Duration {
	longest := int32(0)
	for _, p := range g.members {
		switch {
		case p.Finished:
		case p.LimitSeconds == 0: // as nearly all: nothing more is looked at
			return 0
		default:
			longest = max(longest, p.LimitSeconds)
		}
	}
	return time.Duration(longest) * time.Second
}

// runsFor returns how long after it is granted its quota a gang is past its limit, however late it starts; 0 for never.
func (c *common) runsFor(g *gang) time.Duration {
	said := c.saidLimit(g)
	if said.is == 0 {
		return 0
	}
	return c.beforeLimit(g) + said.is
}

// leavesBy is when a gang will have left that is evicted as soon as it is past its limit, in Unix ms, 0 without one.
func leavesBy(g *gang) int64 {
	if g.charge.ends.IsZero() {
		return 0
	}
	grace := time.Duration(0)
	for _, p := range g.members {
		grace = max(grace, time.Duration(p.GraceSeconds)*time.Second)
	}
	return g.charge.ends.Add(min(grace, api.GraceMost) + api.Overdue).UnixMilli()
}

// beforeLimit is how long after it is granted its quota a gang starts at the latest, or gives it back.
func (c *common) beforeLimit(g *gang) time.Duration {
	return g.searchFor(c.cfg.GiveUpAfter) + 3*c.cfg.RollForward
}

// tooLong says that a gang may run for longer than its queue allows, nothing if it may not.
func (c *common) tooLong(g *gang) report.Reason {
	longest, by := c.objects.LongestRuntime(g.queue)
	if said := c.saidLimit(g); longest > 0 && said.is > longest {
		return report.TooLong(said.is, said.by, longest, by)
	}
	return report.Reason{}
}

// seeTimes takes note of what a Queue says of the times of its gangs, nil for one that is gone.
func (c *common) seeTimes(queue, uid string, spec *v1beta1.QueueSpec) {
	if !c.objects.SeeTimes(queue, uid, spec) {
		return
	}
	for _, g := range c.gangs {
		if api.Under(g.queue, queue) && (g.isShortOf() > 0 || !g.started) {
			c.touch(g)
		}
	}
}
