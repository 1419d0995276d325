package coordinator

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// A reservation names its pods by api.PodID, and a pod is charged to at most one reservation. Labels cannot say for which
// gang a pod was bound, because its owner may edit them at any time; the records of the control store can. A gang of one is
// named after its pod, so its record does not repeat it.

// podSet returns the pods that a request or a record names, sorted. A gang of one has its own pod.
func (g *gang) podSet(named []uint64) ([]uint64, error) {
	if g.ref.GetSingle() {
		if g.own[0] == 0 {
			g.own[0] = api.PodID(g.key.uid)
		}
		return g.own[:], nil
	}
	for i := 1; i < len(named); i++ {
		if named[i-1] >= named[i] {
			return nil, fmt.Errorf("pods: not sorted, or one is named twice")
		}
	}
	return named, nil
}

// elsewhere counts the pods that are charged to other gangs than g.
func (c *Core) elsewhere(g *gang, pods []uint64) (n int) {
	for _, p := range pods {
		if o := c.pods[p]; o != nil && o != g {
			n++
		}
	}
	return n
}

// hasAll reports whether the gang's reservation names all of these pods: then what is bound of them beyond its demand is a
// growth of pods that were admitted, by a resize in place.
func (g *gang) hasAll(pods []uint64) bool {
	if g.res == nil || len(pods) == 0 {
		return false
	}
	for _, p := range pods {
		if _, found := slices.BinarySearch(g.res.pods, p); !found {
			return false
		}
	}
	return true
}

// name makes these the pods of the gang's reservation. A pod that another gang has stays with it.
func (c *Core) name(g *gang, pods []uint64) {
	was, next := g.res.pods, pods
	g.res.pods = pods
	for len(was) > 0 || len(next) > 0 {
		switch order := compareFirst(was, next); {
		case order < 0:
			if c.pods[was[0]] == g {
				delete(c.pods, was[0])
			}
			was = was[1:]
		case order > 0:
			if c.pods[next[0]] == nil {
				c.pods[next[0]] = g
			}
			next = next[1:]
		default:
			was, next = was[1:], next[1:]
		}
	}
	if len(g.res.asked) > 0 {
		g.res.asked = slices.DeleteFunc(slices.Clone(g.res.asked), func(p surplus) bool { return !g.res.named(p.id) })
		c.ledger.settle(g)
	}
}

// compareFirst compares the first of two sorted lists; an empty list comes last.
func compareFirst(a, b []uint64) int {
	switch {
	case len(a) == 0:
		return 1
	case len(b) == 0:
		return -1
	}
	return cmp.Compare(a[0], b[0])
}

// refuseElsewhere answers for a gang with pods that are charged to other gangs. Its home asks again.
func (c *Core) refuseElsewhere(now time.Time, from api.Incarnation, g *gang, n int, pods []uint64) {
	c.refuse(now, from, g, wire.DenyReason_DENY_CHARGED_ELSEWHERE, fmt.Sprintf("pods that are charged to other gangs: %d of %d", n, len(pods)))
}

// refuse denies a gang what it asks for without keeping the request. What it is charged already stays.
func (c *Core) refuse(now time.Time, from api.Incarnation, g *gang, reason wire.DenyReason, message string) {
	if g.req != nil {
		c.withdraw(g.req)
	}
	g.refused = true
	denied := &wire.Denied{GangUid: g.key.uid, Attempt: g.attempt, Serial: g.serial, Reason: reason, Queue: g.key.queue, Message: message}
	denied.ReservationRevision, denied.Demand = g.charged()
	c.send(from, &wire.Envelope{Body: &wire.Envelope_Denied{Denied: denied}})
	c.forget(now, g)
}

// charged returns the revision and the demand of the gang's record, nothing when there is none in the store.
func (g *gang) charged() (revision int64, demand []*wire.Amount) {
	if g.res == nil || g.res.revision == 0 || g.res.claim != nil && g.res.demand.IsZero() {
		return 0, nil
	}
	return g.res.revision, wire.FromResources(g.res.demand)
}
