package audit

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"basalt.dev/basalt/api"
)

// judgeSingles judges that a gang may lose the pods that a new claim takes of it.
func judgeSingles(c *claim, v victim, r *reservation, wrong func(Kind, string, ...any)) {
	pods := c.singles[v]
	if len(pods) == 0 {
		return
	}
	seen := map[uint64]bool{}
	for _, s := range pods {
		if seen[s.id] || !r.names(s.id) || r.condemns(s.id) {
			wrong(Claim, "takes pod %s of gang %s, which is not charged for it, or loses it already", s.uid, v.gang)
		}
		seen[s.id] = true
	}
	if r.least == 0 || len(r.pods)-len(r.condemned)-len(pods) < r.least {
		wrong(Victim, "takes %d pods of gang %s, which has %d, of which %d leave, and keeps %d", len(pods), v.gang, len(r.pods), len(r.condemned), r.least)
	}
}

// judgeCondemned judges what a revision condemns.
func (a *Auditor) judgeCondemned(e StoreRevision, old, now *reservation, before func(string) *reservation) {
	object := "gang " + now.gang
	if old != nil {
		for _, s := range old.condemned {
			if !now.condemns(s.id) && now.names(s.id) {
				a.storeViolation(Victim, object, []int64{old.revision, e.Revision}, "condemned pod %s, and does not any more though it is charged for it", s.uid)
			}
		}
	}
	fresh := 0
	for _, s := range now.condemned {
		if old.condemns(s.id) {
			continue
		}
		fresh++
		var by *reservation
		if now.shrinks != nil {
			by = before(now.shrinks.to)
		}
		if by == nil || by.claim == nil || !slices.ContainsFunc(by.claim.singles[victim{now.gang, now.attempt}], func(o single) bool { return o.id == s.id && o.demand.Equal(s.demand) }) {
			a.storeViolation(Victim, object, []int64{e.Revision}, "condemns pod %s, which no claim names at an earlier revision", s.uid)
		}
		if old == nil || !old.names(s.id) {
			a.storeViolation(Victim, object, []int64{e.Revision}, "condemns pod %s, which it is not charged for", s.uid)
		}
	}
	if fresh == 0 {
		return
	}
	if now.closing || now.least == 0 || len(now.pods)-len(now.condemned) < now.least {
		a.storeViolation(Victim, object, []int64{e.Revision}, "condemns %d of its %d pods and keeps no less than %d", len(now.condemned), len(now.pods), now.least)
		return
	}
	var staying []uint64
	for _, id := range now.pods {
		if !now.condemns(id) {
			staying = append(staying, id)
		}
	}
	key := lastingKey{Victim, object, fmt.Sprintf("condemned, revision %d", e.Revision)}
	waiting := func() (n int) { // for a node: pods that are gone may have been there
		for _, id := range staying {
			if p := a.cluster.ids[id]; p != nil && p.known && p.node == "" && !p.finished {
				n++
			}
		}
		return n
	}
	if len(staying)-waiting() >= now.least {
		return
	}
	a.soon(key, a.cfg.Lag, func(time.Time) {
		if left := len(staying) - waiting(); left < now.least {
			a.storeViolation(Victim, object, []int64{e.Revision}, "condemns %d pods and keeps %d with a node, and its minimum is %d", len(now.condemned), left, now.least)
		}
	})
}

// lessSingles takes what single pods leave behind out of the virtual tree, but for gangs that leave as a whole.
func (a *Auditor) lessSingles(but string, noticed bool, whole map[string]*reservation, add func(queue string, r api.Resources, sign int64)) {
	for _, gang := range slices.Sorted(maps.Keys(a.store.condemns)) {
		if r := a.store.condemns[gang]; whole[gang] == nil && !(noticed && a.overdue(r.shrinks)) {
			for _, s := range r.condemned {
				add(r.queue, s.demand, -1)
			}
		}
	}
	for _, gang := range slices.Sorted(maps.Keys(a.store.claims)) {
		c := a.store.claims[gang].claim
		for _, v := range c.victims {
			g := a.cluster.gangs[v.gang]
			if gang == but || len(c.singles[v]) == 0 || g == nil || whole[v.gang] != nil {
				continue
			}
			open := c.opens(v, g.reservation)
			for _, s := range c.singles[v] {
				if slices.Contains(open, s.uid) {
					add(g.reservation.queue, s.demand, -1)
				}
			}
		}
	}
}
