package coordinator

import (
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
)

// Patience. A large gang among small ones may never find all its room at once: what is freed is taken before the rest
// does. One that has waited for a minute asks to be patient, which means to keep the reservation and the holds until
// there is enough. Two patient gangs could hold each other's room for ever, so one at a time is: one for each kind of
// device, and one among the gangs that ask for none, for those compete for the same nodes. It is the patient one for
// as long as it says that it lacks room (Stuck), at most until its time is over. Small gangs that waited for quota
// find room at once: until the patient one has said so, a larger one takes its place.
//
// What a patient gang lacks may never come, and while it is patient nobody else has what it holds. So after patience in
// vain nobody begins to be patient for as long, of any kind: kinds compete for nodes, and could take turns. Then all
// who wait are granted one after another, and who finds no room gives back within seconds: whoever fits starts, however
// many wait that fit nowhere. And one whose time was over lets others be patient after that for as long, and twice as
// long each further time.

// patient is who may keep what it holds, from when on, and until when.
type patient struct {
	gang         *gang
	since, until time.Time
}

// keepsOut reports whether another gang, which is granted something, cannot be the patient one in its place.
func (p patient) keepsOut(now time.Time, g *gang) bool {
	switch {
	case p.gang == nil || p.gang == g || p.gang.res == nil || p.gang.res.closing || !now.Before(p.until):
		return false
	case p.gang.stuck != nil && !p.gang.stuck.seen.Before(p.since):
		return p.gang.foundNoRoom(now)
	}
	return now.Before(p.since.Add(youngFor)) && g.res.demand.Fits(p.gang.res.demand)
}

// patience is who is the patient one of each kind of device.
type patience struct {
	lasts time.Duration // Config.PatientFor
	gangs map[string]patient
	rests time.Time // until when nobody begins to be one
}

// allows reports whether a gang that has just been granted something is the patient one of its kind, and makes it that
// when it asks and nobody is.
func (y *patience) allows(now time.Time, g *gang) bool {
	for _, kind := range api.SortedKeys(y.gangs) {
		if p := y.gangs[kind]; !now.Before(p.until) {
			y.ends(p.until, p.gang)
		}
	}
	kind := deviceOf(g.res.demand)
	p := y.gangs[kind]
	switch {
	case now.Before(g.impatient) || fault.On(fault.WithoutPatience):
		return false
	case !g.asksPatience:
		if p.gang == g {
			delete(y.gangs, kind)
		}
		return false
	case p.gang == g:
		return true
	case now.Before(y.rests) || p.keepsOut(now, g):
		return false
	}
	y.gangs[kind] = patient{gang: g, since: now, until: now.Add(y.lasts)}
	return true
}

// ends ends the patience of a gang, if it is a patient one: its time is over, or it gives its reservation back.
func (y *patience) ends(now time.Time, g *gang) {
	for _, kind := range api.SortedKeys(y.gangs) {
		p := y.gangs[kind]
		if p.gang != g {
			continue
		}
		delete(y.gangs, kind)
		if !g.foundNoRoom(now) {
			continue
		}
		y.rests = api.Later(y.rests, now.Add(now.Sub(p.since)))
		if !now.Before(p.until) {
			g.impatient = y.rests.Add(y.lasts << min(g.inVain, longestWindow))
			g.inVain++
		}
	}
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

// foundNoRoom reports whether a gang said so not long ago.
func (g *gang) foundNoRoom(now time.Time) bool {
	return g.stuck != nil && now.Before(g.stuck.seen.Add(stuckFor))
}
