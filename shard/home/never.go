package home

import (
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/shard/home/report"
)

// Gangs that no node would take. Whether there is quota for one decides whether its pods say Unschedulable, and so whether autoscalers buy nodes for
// it. So it asks for its reservation all the same. But it does not stay in the line, where quota would be kept for it: whatever the coordinator says, it
// gives its reservation or its request back at once, and takes that for the answer for a while.

// quotaKnown is for how long a gang that no node would take, and for which there was quota, is taken to have it. Then it asks again when nodes change.
const quotaKnown = 5 * time.Minute

// verdict is what the coordinator said of a gang that no node would take.
type verdict struct {
	at     time.Time
	queue  string
	denied report.Reason // none: it was granted its reservation
}

// inVain returns why a gang waits that no node would take, which why says, and puts it to sleep; nothing if it is to ask for quota.
func (c *Core) inVain(g *gang, why report.Reason) report.Reason {
	v := g.search.verdict
	supply := v.denied.Is(v1alpha1.ReasonSupplyExceeded)
	switch {
	case v.at.IsZero() || v.queue != g.queue:
		return report.Reason{}
	case !v.denied.None() && !supply:
		at := v.at.Add(c.cfg.RetryRoom)
		if !c.now.Before(at) {
			return report.Reason{}
		}
		c.pauseUntil(g, at)
		c.wakeAt(g, at)
		v.denied.Message += "; " + why.Message
		return v.denied
	case !c.now.Before(v.at.Add(quotaKnown)):
		return report.Reason{}
	}
	g.search.room, g.search.nodes = c.room, c.nodes
	c.sleep(g, true)
	if supply {
		return report.NodesLack(why)
	}
	return why
}

// neverFits returns why a gang could not be placed even if the whole cluster were empty, as far as summaries show. It returns
// nothing before the nodes are known.
func (c *Core) neverFits(g *gang) report.Reason {
	if !c.knowsNodes() {
		return report.Reason{}
	}
	var total, largest api.Resources
	for _, m := range c.table.Members {
		s := c.summaries[m.Incarnation]
		total, largest = total.Add(s.allocatable), largest.Max(s.largest)
	}
	pods := c.choose(g)
	for _, p := range pods {
		if r, by, exceeds := p.Class.Requests.Exceeds(largest); exceeds {
			want := p.Class.Requests.Value(r)
			return report.PodTooLarge(p.Pod, r, want, want-by)
		}
	}
	demand := sum(pods)
	if r, by, exceeds := demand.Exceeds(total); exceeds {
		want := demand.Value(r)
		return report.GangTooLarge(len(pods), r, want, want-by)
	}
	return report.Reason{}
}
