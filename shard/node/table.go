package node

import (
	"fmt"
	"log/slog"
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// tableSeen drops what is not ours any more at once, and begins the takeover of what became ours.
func (c *Core) tableSeen(t *api.Table) {
	if t == nil || c.table != nil && t.Revision <= c.table.Revision {
		return
	}
	old := c.table
	c.table = t
	c.said.toEverybody = true
	named := t.Has(c.cfg.Self) && !old.Has(c.cfg.Self)
	gaining := 0
	var lost [api.Buckets]bool
	anyLost := false
	for b := range api.BucketID(api.Buckets) {
		mine, was := t.Owner(b) == c.cfg.Self, c.buckets[b] != foreign
		if was && old.Changed[b] != t.Changed[b] {
			// Also when it is ours: we have missed the table in which it was not.
			lost[b], anyLost = true, true
			c.buckets[b] = foreign
			was = false
		}
		switch {
		case was && !mine:
			lost[b], anyLost = true, true
			c.buckets[b] = foreign
		case mine && !was:
			c.buckets[b] = gained
			gaining++
		}
	}
	if anyLost {
		c.lose(&lost)
	}
	if gaining > 0 || named {
		c.takeover = takeover{sequence: c.takeover.sequence, revision: t.Revision}
		c.emit(c.takeover.read(&c.buckets))
	}
	c.log(slog.LevelInfo, "table seen", slog.Uint64("epoch", uint64(t.Epoch)), slog.Int64("revision", t.Revision), slog.Int("buckets", t.Owned(c.cfg.Self)), slog.Int("gained", gaining))
}

// lose forgets the nodes, holds and inherited rows of buckets that went elsewhere: their new owner reads the rows and lists
// the pods itself. Own rows there stay until they are resolved; those that were not sent are given up.
func (c *Core) lose(lost *[api.Buckets]bool) {
	for _, name := range api.SortedKeys(c.nodes) {
		if lost[api.BucketOf(name)] {
			dropNode(c, name)
		}
	}
	for _, uid := range api.SortedKeys(c.bound) {
		if lost[api.BucketOf(c.bound[uid].node)] {
			c.unbind(uid)
		}
	}
	for _, uid := range api.SortedKeys(c.nominated) {
		if lost[api.BucketOf(c.nominated[uid].node)] {
			c.nominate(uid, nil)
		}
	}
	for _, id := range c.sortedKeyIDs() {
		k := c.intents.keys[id]
		if id.inc == c.cfg.Self {
			continue
		}
		for _, r := range rowsOf(k) {
			if lost[api.BucketOf(r.node)] {
				c.finish(r)
				r.stored = false
				if r.resolving { // its answer will be taken for a repeat
					c.resolved(r)
				}
			}
		}
		c.intents.dirty[id] = true
	}
	c.giveUpUnbindable()
}

// read asks for what the store has of our buckets.
func (t *takeover) read(buckets *[api.Buckets]ownership) event.ReadStore {
	t.sequence, t.stage = t.sequence+1, reading
	o := event.ReadStore{Sequence: t.sequence, MinRevision: t.revision}
	for b, is := range buckets {
		if is != foreign {
			o.Buckets = append(o.Buckets, api.BucketID(b))
		}
	}
	return o
}

// storeRead counts what others may have sent to the nodes that we gained.
func (c *Core) storeRead(ev event.StoreRead) {
	if c.takeover.stage != reading || ev.Sequence != c.takeover.sequence {
		return
	}
	if ev.Revision < c.takeover.revision {
		c.emit(c.takeover.read(&c.buckets))
		return
	}
	for i := range ev.Intents {
		if ev.Intents[i].Incarnation != c.cfg.Self { // ours are known, also those of nodes that come back to us
			c.inherit(&ev.Intents[i])
		}
	}
	c.takeover.stage = listing
	c.emit(event.ListPods{Sequence: c.takeover.sequence})
}

// inherit charges the rows of another shard's key that are on nodes which we are taking over. They may have been sent.
func (c *Core) inherit(in *event.StoredIntents) {
	where := []slog.Attr{slog.String("incarnation", string(in.Incarnation)), slog.Uint64("n", in.N)}
	if in.Record == nil {
		c.log(slog.LevelError, "cannot decode intents: their pods are not counted until they are seen", where...)
		return
	}
	id := keyID{in.Incarnation, in.N}
	k := c.intents.keys[id]
	for _, stored := range in.Record.GetRows() {
		uid, node := stored.GetPodUid(), stored.GetNode()
		if uid == "" || node == "" || c.buckets[api.BucketOf(node)] != gained || k != nil && k.rows[uid] != nil && k.rows[uid].phase != done {
			continue
		}
		if k == nil {
			k = &key{id: id, rows: map[string]*row{}}
			c.intents.keys[id] = k
		}
		ref := &wire.GangRef{Uid: uid, Namespace: stored.GetNamespace(), Name: stored.GetName(), Single: true}
		if gangs := in.Record.GetGangs(); int(stored.GetGang()) < len(gangs) && gangs[stored.GetGang()].GetUid() != "" {
			ref = gangs[stored.GetGang()]
		}
		r := &row{gang: c.gang(ref), key: k, uid: uid, rv: stored.GetPodResourceVersion(), ns: stored.GetNamespace(), name: stored.GetName(), node: node, phase: sent, stored: true, listed: c.takeover.sequence}
		var class api.Class
		var err error
		if demands := in.Record.GetDemands(); int(stored.GetDemand()) < len(demands) {
			class, err = wire.ToDemand(demands[stored.GetDemand()])
		} else {
			err = fmt.Errorf("demand %d of %d", stored.GetDemand(), len(demands))
		}
		if err != nil {
			class = api.Class{Requests: api.Resources{{Resource: "pods", Value: 1}}}
			c.log(slog.LevelError, "cannot decode the demand of an intent: it counts as one pod without requests", append(slices.Clone(where), slog.String("pod", uid), slog.Any("error", err))...)
		}
		if fault.On(fault.HeirForgetsTerms) {
			class.Repels = nil
		}
		r.class = api.MakeClass(class)
		k.rows[uid] = r
		c.addRow(r)
		if at, bound := c.bound[uid]; bound { // no Binding lands any more
			c.note(r, wire.BindOutcome_BIND_BOUND, at.node)
			c.finish(r)
		} else if c.hasEnded(uid) {
			c.finish(r)
		} else if !fault.On(fault.InheritedFree) {
			c.loseHold(uid) // from before another shard committed the pod: a commit would be refused until the row is resolved
			c.charge(r)
		}
	}
	if k != nil {
		k.record, k.modRevision = in.Record, in.ModRevision
		c.intents.dirty[id] = true
	}
}

// completeTakeover opens the gained buckets.
func (c *Core) completeTakeover(sequence uint64) {
	if c.takeover.stage != listing || sequence != c.takeover.sequence {
		return
	}
	c.takeover.stage = idle
	opened, nodes := 0, 0
	for _, name := range api.SortedKeys(c.nodes) { // in order: of equally good nodes the first one known is taken
		if c.buckets[api.BucketOf(name)] == gained {
			nodes++
			c.setNode(c.nodes[name])
		}
	}
	for b := range c.buckets {
		if c.buckets[b] == gained {
			c.buckets[b] = active
			opened++
		}
	}
	rows := 0
	for _, id := range c.sortedKeyIDs() {
		if id.inc == c.cfg.Self {
			continue
		}
		for _, r := range rowsOf(c.intents.keys[id]) {
			if r.phase != sent || !r.resolveAt.IsZero() {
				continue
			}
			rows++
			r.resolveAt = c.now
			if c.table.Has(id.inc) { // it lives: most of its Bindings will be seen without our doing
				r.resolveAt = c.now.Add(c.cfg.ResolveGrace)
			}
		}
	}
	c.ready = true
	c.said.toEverybody = true
	c.resolveDue()
	c.log(slog.LevelInfo, "takeover complete", slog.Uint64("epoch", uint64(c.table.Epoch)), slog.Int("buckets", opened), slog.Int("nodes", nodes), slog.Int("inherited rows", rows))
}

func (c *Core) sortedKeyIDs() []keyID {
	out := make([]keyID, 0, len(c.intents.keys))
	for id := range c.intents.keys {
		out = append(out, id)
	}
	slices.SortFunc(out, keyID.compare)
	return out
}

func rowsOf(k *key) []*row {
	out := make([]*row, 0, len(k.rows))
	for _, uid := range api.SortedKeys(k.rows) {
		out = append(out, k.rows[uid])
	}
	return out
}
