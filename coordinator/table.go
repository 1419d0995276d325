package coordinator

import (
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/coordinator/owners"
)

// What follows from the table of buckets, and from the shards (package owners): who is told what, and which requests
// end.

// newOwners begins the table of a term.
func (c *Core) newOwners(e Elected) *owners.Owners {
	return owners.New(owners.Config{
		HalfGoneLimit: c.cfg.HalfGoneLimit, FirstTable: c.cfg.FirstTable,
		JoinEvery: c.cfg.JoinEvery, JoinBuckets: c.cfg.JoinBuckets, Quiet: c.cfg.Quiet, MostBytes: maxRecordBytes,
		Log: func(warn bool, message string, args ...any) {
			level := LevelInfo
			if warn {
				level = LevelWarn
			}
			c.log(level, message, args...)
		},
	}, owners.Begin{Now: e.Now, Table: e.Table, Shards: e.Shards, StatusEpoch: e.MaxStatusEpoch, FreshStore: e.FreshStore})
}

// changeTable puts the next table into the transaction if there is one.
func (c *Core) changeTable(now time.Time, b *batch) bool {
	before := c.owners.Table()
	next := c.owners.Next(now)
	if next == nil {
		return false
	}
	b.table = true
	b.add(PutTable{Table: next}, owners.TableBytes)

	// A request whose home changed is asked again by the new one: granted now it might miss the reservation, for it reads
	// them as of this table.
	for _, r := range slices.Clone(c.ring) {
		if next.OwnerOf(r.queue.path) != r.from {
			c.withdraw(r)
			c.forget(now, r.gang)
		}
	}
	c.tree.root.walk(func(q *queue) {
		if next.OwnerOf(q.path) != before.OwnerOf(q.path) {
			q.report.reported = false
		}
	})
	return true
}

// refilled: a shard has told of everything bound in its queues' buckets.
func (c *Core) refilled(id api.Incarnation, epoch api.Epoch) {
	if c.owners.Reported(id, epoch) {
		c.reportAll(id) // it has just taken its queues over: what it was told before then is lost
	}
}

// endRefilling admits again once all that is bound is known, and who may use which queue.
func (c *Core) endRefilling(now time.Time) {
	if !c.owners.Refilling() || !c.owners.AllReported(now) || !c.rightsKnown() {
		return
	}
	c.owners.EndRefilling()
	c.log(LevelInfo, "refilled", "reservations", c.roster.open)
	c.turns.changedEverywhere()
}
