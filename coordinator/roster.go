package coordinator

import (
	"cmp"
	"slices"
	"time"

	"basalt.dev/basalt/api/wire"
)

// A reservation names its pods by api.PodID, and a pod is charged to at most one reservation. Labels cannot say for
// which gang a pod was bound, because its owner may edit them at any time; the records of the control store can. A
// gang of one is named after its pod, so its record does not repeat it.

// roster knows the gangs: those with a reservation, and which pod is charged to which of them. A gang that has nothing
// left stays until its tombstone expires.
type roster struct {
	ledger     *ledger
	gangs      map[gangKey]*gang
	charged    map[string]*gang // by UID: those with a reservation
	pods       map[uint64]*gang // by api.PodID: the one that the pod is charged to
	open       int              // reservations,
	limited    int              // and those of them whose gangs have a limit
	tombstones []tombstone      // of forgotten gangs, oldest first
}

// at returns the gang of a reference, made if need be.
func (o *roster) at(ref *wire.GangRef) *gang {
	key := gangKey{ref.GetQueue(), ref.GetUid()}
	g := o.gangs[key]
	if g == nil {
		g = &gang{key: key, ref: ref}
		o.gangs[key] = g
	}
	return g
}

// admit gives the gang an empty reservation.
func (o *roster) admit(g *gang, q *queue) {
	g.res = &reservation{queue: q, tenant: q.join(g.ref.GetNamespace())}
	q.admits(g)
	o.open++
	if o.charged[g.key.uid] == nil {
		o.charged[g.key.uid] = g
	}
}

// tombstone remembers the last serial of a gang that has nothing left, so that a late duplicate of its Reserve does
// not charge it again. A home's stream is in order, so this is needed only around a broken connection.
type tombstone struct {
	key    gangKey
	number uint64
	until  time.Time
}

const tombstoneTTL = time.Minute

func (o *roster) expire(now time.Time) {
	n := 0
	for ; n < len(o.tombstones) && !now.Before(o.tombstones[n].until); n++ {
		v := o.tombstones[n]
		if g := o.gangs[v.key]; g != nil && g.tombstone == v.number && g.res == nil && g.req == nil {
			delete(o.gangs, v.key)
		}
	}
	o.tombstones = o.tombstones[n:]
}

// other returns the gang of the same UID in another queue that is charged, nil for none: its queue was changed.
func (o *roster) other(g *gang) *gang {
	if is := o.charged[g.key.uid]; is != g {
		return is
	}
	return nil
}

// elsewhere returns the pods that are charged to other gangs than g.
func (o *roster) elsewhere(g *gang, pods []uint64) (others []uint64) {
	for _, p := range pods {
		if o := o.pods[p]; o != nil && o != g {
			others = append(others, p)
		}
	}
	return others
}

// name makes these the pods of the gang's reservation. A pod that another gang has stays with it.
func (o *roster) name(g *gang, pods []uint64) {
	was, next := g.res.pods, pods
	g.res.pods = pods
	for len(was) > 0 || len(next) > 0 {
		switch order := compareFirst(was, next); {
		case order < 0:
			if o.pods[was[0]] == g {
				delete(o.pods, was[0])
			}
			was = was[1:]
		case order > 0:
			if o.pods[next[0]] == nil {
				o.pods[next[0]] = g
			}
			next = next[1:]
		default:
			was, next = was[1:], next[1:]
		}
	}
	if len(g.res.asked) > 0 {
		g.res.asked = slices.DeleteFunc(slices.Clone(g.res.asked), func(p surplus) bool { return !g.res.named(p.id) })
		o.ledger.settle(g)
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

// release takes a gang's reservation away, and returns the queues in which nothing is reserved any more.
func (o *roster) release(g *gang) (empty []string) {
	if g.res.claim != nil {
		o.ledger.endClaim(g.res.claim)
	}
	o.ledger.charge(g, nil)
	o.ledger.closeAccounts(g)
	o.name(g, nil)
	q := g.res.queue
	empty = q.releases(g)
	o.limit(g.res, 0)
	g.res = nil
	o.open--
	if o.charged[g.key.uid] == g {
		delete(o.charged, g.key.uid)
	}
	o.ledger.tree.prune(q)
	return empty
}

// limit notes after how many ms from its first charge a gang is past its limit, 0 for never.
func (o *roster) limit(r *reservation, runs int64) {
	if r.runs > 0 {
		o.limited--
	}
	if r.runs = runs; runs > 0 {
		o.limited++
	}
}

// bury leaves a tombstone for a gang that has nothing left.
func (o *roster) bury(now time.Time, g *gang) {
	g.tombstone++
	o.tombstones = append(o.tombstones, tombstone{g.key, g.tombstone, now.Add(tombstoneTTL)})
}
