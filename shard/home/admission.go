package home

import (
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/report"
)

// Admission of groups of another kind. Volcano's job controller makes the pods of a job once the status of its PodGroup says that the
// group is admitted. Where that status is Basalt's to write (event.GroupWriter), the floor of such a group is reserved before it has
// pods, without the name of any. When it has its minimum of pods, the reservation names them, like any other.
//
// A group without a floor is admitted at once: its reservation is requested when its pods are there. Once pods may have been made,
// a group stays admitted, whatever becomes of its reservation: a controller replaces no pods of a group that is not.

// admittedFor is how long a reservation is kept for a gang that has too few pods, and then how long it is not requested again.
const admittedFor = 5 * time.Minute

// admission is what is known of a gang that is admitted before it has its pods.
type admission struct {
	since     time.Time // of its reservation
	notBefore time.Time // the next request
}

// admitsEarly reports whether a gang that cannot be placed is to have a reservation all the same.
func (c *common) admitsEarly(g *gang, why report.Reason) bool {
	if g.group == nil || !c.writesStatusOf[g.name.Kind] || len(g.group.Floor) == 0 ||
		!why.Is(v1beta1.ReasonNotEnoughPods) && !why.Is(v1beta1.ReasonNotEnoughPodsOfTask) {
		return false
	}
	if c.now.Before(g.admission.notBefore) {
		c.wakeAt(g, g.admission.notBefore)
		return false
	}
	return true
}

// admit requests a reservation for pods that are to come, and keeps it for a while.
func (c *Core) admit(g *gang) {
	ch := &g.charge
	floor, _ := g.demand(nil)
	if a := ch.reserve; a != nil && a.forNobody() && a.demand.Equal(floor) {
		if a.denied != nil && ch.reserved() {
			c.release(g) // what it had for pods that are gone: it would keep a queue that is being deleted for ever
			return
		}
		c.sendReserve(g)
		return
	}
	for _, p := range g.members {
		p.uncharge() // or the request would name it
	}
	if ch.reserve != nil || !ch.current() || len(ch.pods) > 0 || !ch.amounts.Equal(floor) {
		g.admission.since = time.Time{}
		c.requestQuota(g, nil, true)
		return
	}
	if g.admission.since.IsZero() {
		g.admission.since = c.now
	}
	if until := g.admission.since.Add(admittedFor); c.now.Before(until) {
		c.wakeAt(g, until)
		return
	}
	g.admission = admission{notBefore: c.now.Add(admittedFor)}
	c.release(g)
}

// admitted reports whether controllers may make the pods of a gang.
func (c *common) admitted(g *gang) bool {
	switch {
	case g.charge.reserved() || g.tally.bound > 0:
		return true
	case len(g.members) > 0 && g.group.Shown.Reserved.Yes:
		return true
	}
	return len(g.group.Floor) == 0 && c.closedToPods(g).None()
}

// groupStatus returns what the status of a gang's group is to say, if that is of another kind.
func (c *common) groupStatus(g *gang) (s api.GroupStatus) {
	switch {
	case len(g.members) == 0 && g.group.Shown.Scheduled.Yes && g.charge.yields == nil:
		return g.group.Shown // its pods are gone, however they ended
	case g.name.Kind == api.UpstreamGroup:
		return api.GroupStatus{Reserved: shownAs(g.reservedVerdict()), Scheduled: shownAs(c.scheduledVerdict(g))}
	}
	s.Reserved.Yes, s.Scheduled.Yes = g.started || c.admitted(g), g.started
	s.Ended = g.started && len(g.members) > 0 && g.tally.unfinished == 0
	if !g.started && !g.blocked.Is(v1beta1.ReasonNotEnoughPods) && !g.blocked.Is(v1beta1.ReasonPending) {
		s.Reserved.Message = api.Shorten(g.blocked.Message, api.MaxGroupMessage)
		if g.blocked.Is(v1beta1.ReasonNotEnoughPodsOfTask) {
			s.Reserved.Reason = g.blocked.Code
		}
	}
	return s
}

func shownAs(v report.Verdict) api.Verdict {
	return api.Verdict{Yes: v.Yes, Reason: v.Code, Message: api.Shorten(v.Message, api.MaxGroupMessage)}
}

// onGroupWriter takes note that statuses of a kind of group are Basalt's to write, or no more.
func (c *common) onGroupWriter(e event.GroupWriter) {
	if c.writesStatusOf[e.Kind] == e.Writes {
		return
	}
	c.writesStatusOf[e.Kind] = e.Writes
	for _, uid := range api.SortedKeys(c.pods) {
		p := c.pods[uid]
		if now := c.withholds(p.Pod); now != p.withheld {
			if p.withheld = now; p.gang != nil {
				p.gang.edited()
				c.touch(p.gang)
			}
		}
	}
	for _, uid := range api.SortedKeys(c.gangs) {
		if g := c.gangs[uid]; g.group != nil && g.name.Kind == e.Kind {
			c.touch(g)
		}
	}
}
