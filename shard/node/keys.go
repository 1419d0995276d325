package node

import (
	"fmt"
	"slices"
	"time"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
	"basalt.dev/basalt/shard/event"
)

// intents are the keys of the control store that are ours, and what is done to them.
type intents struct {
	keys     map[keyID]*key
	dirty    map[keyID]bool // keys to look at, at the next tick
	hurry    map[keyID]bool // or at the end of the step, for room waits for them
	deleting []event.IntentKey
	deleteAt time.Time // not before, unless there are many
	rewrites int
}

// How long a key waits after a compare failed, and after its record could not be written.
const (
	retryKey        = 100 * time.Millisecond
	retryUnwritable = 300 * retryKey
)

// tidyKeys removes from the control store what it need not remember any more. Own keys go when all their rows are resolved,
// many at once, at a tick some time after the last: what they cost is the transaction, and nobody waits for it. Where room
// waits for a row that was never sent, the row is taken out at once, and the record says that it was given up: other shards, which
// follow the log of intents, cannot know it otherwise. Of others' keys we take out our rows.
func (c *Core) tidyKeys(tick bool) {
	due := c.intents.dirty
	mayDelete := tick && (!c.now.Before(c.intents.deleteAt) || len(due) >= c.cfg.MaxDeletes)
	if !tick {
		due = c.intents.hurry
	}
	if len(due) == 0 || c.writes.lost {
		return
	}
	ids := make([]keyID, 0, len(due))
	for id := range due {
		ids = append(ids, id)
	}
	clear(c.intents.hurry)
	slices.SortFunc(ids, keyID.compare)
	var deletes []event.IntentKey
	for _, id := range ids {
		k := c.intents.keys[id]
		if k == nil {
			delete(c.intents.dirty, id)
			continue
		}
		storedRows, removable, waiting := 0, 0, false
		for _, r := range k.rows { // in any order: they are only counted and forgotten
			if r.phase == done && !r.stored && !r.binding && !r.resolving {
				delete(k.rows, r.uid)
				c.forgetRow(r)
				continue
			}
			if r.stored {
				storedRows++
				if r.removable() {
					removable++
					waiting = waiting || r.phase == dropped
				}
			}
		}
		own := id.inc == c.cfg.Self
		empty := len(k.rows) == 0 && own && k.modRevision > 0 // nothing is left but what was given up
		if len(k.rows) == 0 && !k.busy && !empty {
			delete(c.intents.keys, id)
			delete(c.intents.dirty, id)
			continue
		}
		if removable == 0 && !empty {
			delete(c.intents.dirty, id) // the next row that ends brings it back
			continue
		}
		if k.busy || c.now.Before(k.retryAt) {
			continue
		}
		switch {
		case own && removable == storedRows && !waiting:
			if c.intents.deleting == nil && mayDelete && len(deletes) < c.cfg.MaxDeletes {
				k.busy = true
				deletes = append(deletes, event.IntentKey{N: id.n, ModRevision: k.modRevision})
			}
		case own && waiting, !own && (tick || waiting):
			if c.intents.rewrites < c.cfg.MaxRewrites {
				c.rewrite(k)
			}
		case own:
			delete(c.intents.dirty, id)
		}
	}
	if len(deletes) > 0 {
		c.intents.deleting, c.intents.deleteAt = deletes, c.now.Add(c.cfg.DeleteEvery)
		c.emit(event.DeleteIntents{Keys: deletes})
	}
}

// rewrite takes the removable rows out of a key.
func (c *Core) rewrite(k *key) {
	next := &wire.IntentsRecord{Gangs: k.record.GetGangs(), Demands: k.record.GetDemands(), TableEpoch: k.record.GetTableEpoch(), GivenUp: slices.Clone(k.record.GetGivenUp())}
	own := k.id.inc == c.cfg.Self
	for _, stored := range k.record.GetRows() {
		if r := k.rows[stored.GetPodUid()]; r == nil || !r.removable() {
			next.Rows = append(next.Rows, stored)
		} else if own && r.phase == dropped {
			next.GivenUp = append(next.GivenUp, r.uid)
		}
	}
	if len(next.Rows) == 0 {
		next.Gangs, next.Demands = nil, nil
	}
	if len(next.Rows) == 0 && (!own || len(next.GivenUp) == 0) || k.id.inc != c.cfg.Self && fault.On(fault.SharedKeyDeleted) {
		next = nil
	}
	k.busy, k.requested = true, next
	c.intents.rewrites++
	c.emit(event.RewriteIntents{Incarnation: k.id.inc, N: k.id.n, ModRevision: k.modRevision, Record: next, TableRevision: c.table.Revision})
}

func (c *Core) intentsRewritten(ev event.IntentsRewritten) {
	k := c.intents.keys[keyID{ev.Incarnation, ev.N}]
	if k == nil || !k.busy || c.isDeleting(k) {
		return // a repeat
	}
	k.busy = false
	c.intents.rewrites--
	c.intents.dirty[k.id], c.intents.hurry[k.id] = true, true
	record := ev.Record
	if ev.Done {
		record = k.requested
	} else {
		k.retryAt = c.now.Add(retryKey)
	}
	k.requested = nil
	if ev.Unwritable {
		k.retryAt = c.now.Add(retryUnwritable)
		return
	}
	if ev.ModRevision == 0 || ev.Done && record == nil {
		c.keyGone(k)
		return
	}
	k.modRevision = ev.ModRevision
	if record == nil {
		return // cannot be read: it is tried again with what we know
	}
	k.record = record
	there := make(map[string]bool, len(record.GetRows()))
	for _, r := range record.GetRows() {
		there[r.GetPodUid()] = true
	}
	for _, r := range rowsOf(k) {
		if !there[r.uid] {
			c.leftStore(r)
		}
	}
}

func (c *Core) isDeleting(k *key) bool {
	return slices.ContainsFunc(c.intents.deleting, func(d event.IntentKey) bool { return k.id == keyID{c.cfg.Self, d.N} })
}

func (c *Core) intentsDeleted(ev event.IntentsDeleted) {
	asked := c.intents.deleting
	if asked == nil || !slices.ContainsFunc(ev.Keys, func(k event.IntentKey) bool { return k.N == asked[0].N }) {
		return // a repeat
	}
	c.intents.deleting = nil
	for _, d := range asked {
		k := c.intents.keys[keyID{c.cfg.Self, d.N}]
		if k == nil {
			continue
		}
		k.busy, k.retryAt = false, c.now.Add(retryKey)
		c.intents.dirty[k.id], c.intents.hurry[k.id] = true, true
		i := slices.IndexFunc(ev.Keys, func(e event.IntentKey) bool { return e.N == d.N })
		switch {
		case i < 0: // not answered: asked again as it was
		case ev.Keys[i].ModRevision == 0:
			c.keyGone(k)
		default: // an heir took rows out of it; all of them are resolved, so whatever is left may go
			k.modRevision = ev.Keys[i].ModRevision
		}
	}
}

// keyGone: the key does not exist any more, and can never again.
func (c *Core) keyGone(k *key) {
	k.modRevision, k.record = 0, nil
	for _, r := range rowsOf(k) {
		c.leftStore(r)
	}
}

// leftStore: a row is not in the control store any more. If it was not sent, it ends here; an heir that took it out has
// made sure that it cannot be sent any more.
func (c *Core) leftStore(r *row) {
	r.stored = false
	if r.phase == prepared {
		c.giveUp(r)
		c.note(r, wire.BindOutcome_BIND_FREE, "")
	}
	if r.phase == dropped {
		c.finish(r)
	}
}

// Check compares what the core keeps with itself, and the cache with itself: for tests and the simulator.
func (c *Core) Check() error {
	if err := c.cache.Check(); err != nil {
		return err
	}
	charges := map[string]bool{}
	for key, g := range c.gangs {
		for pod, h := range g.holds {
			p, ok := c.cache.Lookup(pod)
			if !ok || p.Kind != cache.Hold || p.Node != h.node || p.Gang != key {
				return fmt.Errorf("hold of pod %s of gang %s on %s: the cache has %+v", pod, key, h.node, p)
			}
			if len(c.rows[pod]) > 0 {
				return fmt.Errorf("pod %s has a hold and is on its way to a node", pod)
			}
			charges[pod] = true
		}
		for pod := range g.promises {
			if charges[pod] || len(c.rows[pod]) > 0 {
				return fmt.Errorf("pod %s of gang %s was promised room, and has a hold or is on its way", pod, key)
			}
			charges[pod] = true
		}
		for _, r := range g.rows {
			if r.phase == done {
				if r.charge != "" {
					return fmt.Errorf("row of pod %s is done and charged", r.uid)
				}
				continue
			}
			p, ok := c.cache.Lookup(r.charge)
			if !ok || p.Kind != cache.Intent {
				return fmt.Errorf("row of pod %s on %s in phase %d: the cache has %+v", r.uid, r.node, r.phase, p)
			}
			if charges[r.charge] {
				return fmt.Errorf("charge %s is used twice", r.charge)
			}
			charges[r.charge] = true
			if (r.phase != dropped) != slices.Contains(c.rows[r.uid], r) {
				return fmt.Errorf("row of pod %s in phase %d: listed %v", r.uid, r.phase, c.rows[r.uid])
			}
			if r.phase > inFlight && (r.key == nil || c.intents.keys[r.key.id] != r.key || r.key.rows[r.uid] != r) {
				return fmt.Errorf("row of pod %s in phase %d has no key", r.uid, r.phase)
			}
		}
	}
	known := 0
	for uid, b := range c.bound {
		if b.until > 0 {
			known++
		}
		if p, _ := c.cache.Lookup(uid); !p.Kind.Seen() || p.Node != b.node || !c.owns(b.node) {
			return fmt.Errorf("pod %s is bound to %s: the cache has %+v", uid, b.node, p)
		}
		if len(c.rows[uid]) > 0 {
			return fmt.Errorf("pod %s is bound and has rows", uid)
		}
	}
	if known != c.rooms.ends {
		return fmt.Errorf("the ends of %d bound pods are known, and not of %d", known, c.rooms.ends)
	}
	return c.checkPromises()
}
