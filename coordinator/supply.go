package coordinator

import (
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// Supply. Where no queue limits a resource, everybody would be admitted at once, and the nodes would decide by rank:
// who comes first gets all. So gangs are not admitted for more than the nodes have. What waits for nodes waits here,
// where the order is (lines.go), and what the nodes have is what root can give to its children in shares.
//
// Node shards say what is free and what Basalt's own pods request. The sum of both is the pool. It does not change when pods come and go,
// so it need not be fresh. It counts once every member of the table has spoken of one epoch, and until they have spoken of the next.
//
// The pool is a gate in memory and no limit: it is not stored, no invariant is about it, and a wrong one only has gangs admitted earlier or
// later. It is an estimate, for not all nodes take all pods. Three things keep it from closing the cluster for pods that would fit:
//   - tolerated: a little more than the pool is admitted, so that somebody is ready when room is freed.
//   - What is admitted and finds no room, because of a selector or because what is free is in pieces, is said by its home (Unplaced). It
//     does not count against others. It counts against its own tenant, for else a tenant whose queue has little, and so is first, could
//     have all that is freed admitted for pods that fit nowhere.
//   - What is admitted and neither in use nor unplaced counts against nobody either, as far as there was so much of it at each moment of
//     youngFor: reservations for pods that do not exist, and whatever else nobody knows of. No more than is free, or
//     what is admitted too much once would have as much admitted for ever, unless nobody took what is free for all that
//     time: then they have no use for it. What a gang keeps for pods that will replace those that it lost counts, as
//     long as its home says so: a Job makes them after 10 seconds.
//
// The latter two let others have the pool once more, and not what is tolerated above it. Otherwise, in a full cluster, where what is
// tolerated finds no room, it would be tolerated again and again, until everybody is admitted.
//
// Tried and dropped: to estimate what is unplaced from the sums alone, as what is admitted less what is in use and what was granted in the
// last seconds. Where pods are short, that is more than all that is unplaced. And a tenant with many impossible gangs and little else
// would be first again and again.
//
// A gang that waits for nodes may take back what its queue deserves, as one that waits for quota may (reclaim.go). What was promised to it
// counts against others, and what is on its way out counts until it is gone. The gate is not asked again when it is granted: its pods have
// been promised their rooms, and those who leave them are still charged then.

// youngFor is how long what was granted may be on its way to the nodes. A gang that lacks room has said so by then.
const youngFor = 5 * time.Second

// supply is what is known of what the nodes have, beside the gate.
type supply struct {
	ledger  *ledger
	ungated bool // Config.Ungated

	said   map[api.Incarnation]*supplied // by members of the table
	own    sums                          // the part of the pool that is in use,
	free   api.Resources                 // and the rest
	unsaid []unplaced                    // statements that end by themselves, the oldest first
	idle   []idle                        // one for each second of youngFor, the oldest first
}

type supplied struct {
	epoch     api.Epoch
	free, own api.Resources
}

// idle is the least that in one second was charged and neither in use nor unplaced, and the least that was free.
type idle struct {
	second      int64
	least, free api.Resources
}

// roomless is what a home said of a reservation: what of it found no room, or is kept for pods that replace lost ones.
type roomless struct {
	unplaced   api.Resources
	repairs    bool // the latter
	unplacedAt time.Time
}

type unplaced struct {
	gang *gang
	at   time.Time
}

// seen takes what a node shard says of its nodes.
func (s *supply) seen(table *api.Table, from api.Incarnation, m *wire.Supply) {
	free, err := wire.ToResources(m.GetFree())
	own, wrong := wire.ToResources(m.GetOwn())
	if s.ungated || !table.Has(from) ||
		err != nil || wrong != nil || sound(free) != nil || sound(own) != nil {
		return
	}
	s.said[from] = &supplied{api.Epoch(m.GetTableEpoch()), free, own}
	s.pool(table)
}

// pool adds up what the members of the table said, if all spoke of its epoch.
func (s *supply) pool(table *api.Table) {
	tree, turns := s.ledger.tree, s.ledger.turns
	gate := tree.root.gate
	var pool, own sums
	for _, m := range table.Members {
		said := s.said[m.Incarnation]
		if said == nil || said.epoch != table.Epoch {
			return
		}
		for _, r := range []api.Resources{said.free, said.own} {
			pool.name(r)
			for _, a := range r {
				v := pool.at(a.Resource)
				*v = v.plus(a.Value)
			}
		}
		for _, a := range said.own {
			v := own.at(a.Resource)
			*v = v.plus(a.Value)
		}
	}
	if len(s.said) > len(table.Members) {
		for id := range s.said {
			if !table.Has(id) {
				delete(s.said, id)
			}
		}
	}
	s.own, s.free = own, nil
	now := make(api.Resources, 0, len(pool))
	for _, t := range pool { // with zeros: a full node offers something
		now = append(now, api.Amount{Resource: t.resource, Value: t.amount()})
		s.free = append(s.free, api.Amount{Resource: t.resource, Value: max(0, t.sub(own.get(t.resource)).amount())})
	}
	if now.Equal(gate.pool) && gate.pool != nil {
		return
	}
	if !now.Fits(gate.pool) || len(now) < len(gate.pool) {
		turns.freedAt(tree.root)
	}
	deserved := tree.root.deserved
	gate.pool, tree.dirty = now, true
	if tree.recompute(); !tree.root.deserved.Equal(deserved) { // it reaches across the tree
		turns.changedEverywhere()
	}
}

// age forgets what was said long ago, and finds out what is stale.
func (s *supply) age(now time.Time) {
	root := s.ledger.tree.root
	gate := root.gate
	for len(s.unsaid) > 0 && now.Sub(s.unsaid[0].at) >= api.UnplacedFor {
		if u := s.unsaid[0]; u.gang.res != nil && u.gang.res.unplacedAt.Equal(u.at) {
			s.ledger.setUnplaced(u.gang, nil, false)
		}
		s.unsaid = s.unsaid[1:]
	}
	if gate.pool == nil {
		return
	}
	least := make(api.Resources, 0, len(gate.pool))
	for _, a := range gate.pool {
		if v := root.charged.get(a.Resource).sub(s.own.get(a.Resource)).
			sub(gate.unplaced.get(a.Resource)).sub(gate.repairs.get(a.Resource)).amount(); v > 0 {
			least = append(least, api.Amount{Resource: a.Resource, Value: v})
		}
	}
	if n := len(s.idle); n > 0 && s.idle[n-1].second == now.Unix() {
		i := &s.idle[n-1]
		i.least, i.free = i.least.Min(least), i.free.Min(s.free)
		return
	}
	// A second is over: the first ones make the window whole.
	s.idle = append(s.idle, idle{now.Unix(), least, s.free})
	const seconds = int64(youngFor / time.Second)
	for len(s.idle) > 1 && now.Unix()-s.idle[1].second >= seconds {
		s.idle = s.idle[1:]
	}
	was := gate.stale
	gate.stale = nil
	if now.Unix()-s.idle[0].second >= seconds {
		stale, free := s.idle[0].least.Clone(), s.idle[0].free
		for _, i := range s.idle[1:] {
			stale, free = stale.Min(i.least), free.Min(i.free)
		}
		for i := range stale {
			a := &stale[i]
			least, now := free.Value(a.Resource), s.free.Value(a.Resource)
			if capped := min(a.Value, now); least <= 0 {
				a.Value = capped
			} else {
				a.Value = max(capped, a.Value-(now-least)) // what became free since may be for who was admitted before
			}
		}
		if gate.stale = stale.Positive(); fault.On(fault.WithoutIdle) {
			gate.stale = nil
		}
	}
	if !gate.stale.Fits(was) {
		s.ledger.turns.freedAt(root)
	}
}

// unplacedSeen takes a home's word for what of a gang found no room.
func (c *Core) unplacedSeen(now time.Time, from api.Incarnation, m *wire.Unplaced) {
	g := c.roster.charged[m.GetGangUid()]
	demand, err := wire.ToResources(m.GetDemand())
	if c.cfg.Ungated || fault.On(fault.WithoutUnplaced) || g == nil || g.res.leaving || g.res.attempt != m.GetAttempt() ||
		c.owners.Table().OwnerOf(g.key.queue) != from || err != nil || sound(demand) != nil {
		return
	}
	c.ledger.setUnplaced(g, demand.Min(g.res.demand).Positive(), m.GetRepairs())
	if g.res.unplacedAt = now; len(g.res.unplaced) > 0 {
		c.supply.unsaid = append(c.supply.unsaid, unplaced{g, now})
	}
}

// lacks returns what the nodes lack for a request that quota would admit, nil for nothing: now, or once all that is decided has happened.
func (t *tree) lacks(r *request) *shortfall {
	root := t.root
	for _, d := range r.delta {
		limit, limited := root.gate.limit(d.Resource, r.tenant)
		if !limited || d.Value <= 0 {
			continue
		}
		kept := r.keeps(root, d.Resource, root.gate.pool.Value(d.Resource))
		use := root.charged.get(d.Resource).max(root.has(d.Resource)).plus(d.Value).plus(kept)
		if use.plus(-limit).amount() > 0 {
			there := api.AddSat(root.gate.pool.Value(d.Resource), root.gate.idle(d.Resource, r.tenant))
			short := use.plus(-there).amount() // in words, what is tolerated is no room
			return &shortfall{reason: wire.DenyReason_DENY_SUPPLY, queue: root, resource: d.Resource,
				short: min(short, d.Value), capability: limit, requested: d.Value} // no more is said of what others have
		}
	}
	return nil
}

// expect counts a request that waits for nodes among those that start once there are more. It returns what quota would lack then, nil if
// the request is one of them: autoscalers buy nodes for these, and for no others. Those that no node would take come after all others: perhaps no
// autoscaler knows of a node for them.
func (r *request) expect() *shortfall {
	if r.unexpect(); fault.On(fault.WithoutExpected) {
		return nil
	}
	for _, d := range r.delta {
		for p := r.queue; p != nil && d.Value > 0; p = p.parent {
			limit, limited := p.capability(d.Resource)
			if !limited {
				continue
			}
			use := p.has(d.Resource).add(p.expected.get(d.Resource)).plus(d.Value)
			if r.vain {
				use = use.add(p.hoped.get(d.Resource))
			}
			if use.amount() > limit {
				return &shortfall{reason: wire.DenyReason_DENY_QUOTA, queue: p, resource: d.Resource, short: use.plus(-limit).amount(),
					capability: limit, charged: p.charged.get(d.Resource).amount(), requested: d.Value, afterOthers: true}
			}
		}
	}
	r.expected = true
	for p := r.queue; p != nil; p = p.parent {
		p.expects(r).add(r.delta, 1)
	}
	return nil
}

func (r *request) unexpect() {
	if !r.expected {
		return
	}
	r.expected = false
	for p := r.queue; p != nil; p = p.parent {
		p.expects(r).add(r.delta, -1)
	}
}

func (q *queue) expects(r *request) *account {
	if r.vain {
		return &q.hoped
	}
	return &q.expected
}
