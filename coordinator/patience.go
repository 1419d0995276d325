package coordinator

import (
	"strings"
	"time"

	"basalt.dev/basalt/api"
)

// Patience. A large gang among small ones may never find all its room at once: what is freed is taken before the rest
// does. After some rounds its home shard asks to be patient, which means to keep the reservation and the holds until
// there is enough. Two patient gangs could hold each other's room for ever, so one at a time is: one for each kind of
// device, and one among the gangs that ask for none, for those compete for the same nodes. The first to ask is it,
// until its reservation ends or its time is over. One that was patient in vain lets others be it for as long, and
// twice as long each further time: what it lacks may never come, and while it is patient nobody else has what it
// holds.

// patient is who may keep what it holds, and until when.
type patient struct {
	gang  *gang
	until time.Time
}

// mayBePatient reports whether a gang that has just been granted something is the patient one of its kind, and makes it that
// when it asks and nobody is.
func (c *Core) mayBePatient(now time.Time, g *gang) bool {
	kind := deviceOf(g.res.demand)
	p := c.patientGangs[kind]
	held := p.gang != nil && p.gang.res != nil && !p.gang.res.closing && now.Before(p.until)
	switch {
	case p.gang == g && !now.Before(p.until):
		g.impatient = now.Add(c.cfg.PatientFor << min(g.inVain, longestWindow))
		g.inVain++
		delete(c.patientGangs, kind)
		return false
	case now.Before(g.impatient):
		return false
	case !g.asksPatience:
		if p.gang == g {
			delete(c.patientGangs, kind)
		}
		return false
	case held && p.gang != g:
		return false
	case !held || p.gang != g:
		c.patientGangs[kind] = patient{gang: g, until: now.Add(c.cfg.PatientFor)}
	}
	return true
}

// deviceOf is the first extended resource that a demand names, "" for none.
func deviceOf(demand api.Resources) string {
	for _, a := range demand {
		if a.Value > 0 && strings.Contains(a.Resource, "/") {
			return a.Resource
		}
	}
	return ""
}
