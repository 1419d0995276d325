package coordinator

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// shard is a process that is or was up.
type shard struct {
	incarnation api.Incarnation
	name        string
	draining    bool
	linked      bool
	joining     bool      // is being given its part
	refilled    api.Epoch // the newest epoch of which it said so
	told        bool      // said so at all
}

// Shard is a living shard, as Assign sees it.
type Shard struct {
	Incarnation api.Incarnation
	Name        string // no two have the same
	Draining    bool   // gives its buckets away
	Joining     bool   // is to get its part from those who have more
}

// Move is what a new table does.
type Move struct {
	Taken int // buckets of nobody or of the dead that got an owner
	Moved int // buckets that went from one living shard to another
}

const nobody, dead = -1, -2 // in place of an index

// heir is who goes on with the buckets of a member.
type heir struct {
	owner int // an index into shards, or nobody, or dead: they are kept for it
	taken bool
}

// heirs returns one for each member: itself if it lives, else who has its name now.
func heirs(members []api.Member, shards []Shard, hold bool) []heir {
	living := make(map[api.Incarnation]int, len(shards))
	names := make(map[string]int, len(shards))
	for i, s := range shards {
		living[s.Incarnation], names[s.Name] = i, i
	}
	out := make([]heir, len(members))
	for i, m := range members {
		out[i] = heir{owner: nobody}
		if at, lives := living[m.Incarnation]; lives {
			out[i].owner = at
		} else if at, back := names[m.Name]; back {
			out[i] = heir{at, true}
		} else if hold {
			out[i].owner = dead
		}
	}
	return out
}

// Assign makes the next table of the one before, which may be nil, and the living shards. It moves only what must move:
// a new incarnation gets all buckets of a dead one of its name; the other buckets of the dead go by rendezvous hashing
// with bounded load (Mirrokni, Thorup, Zadimoghaddam: nobody gets more than 5/4 of the average), unless hold keeps them
// where they are; and, in a table without any of that, at most moves buckets go from one living shard to another, off those that
// drain first, then to those that join. It returns nil when nothing changes.
func Assign(before *api.Table, shards []Shard, hold bool, moves int) (*api.Table, Move) {
	shards = slices.Clone(shards)
	slices.SortFunc(shards, func(a, b Shard) int { return cmp.Compare(a.Name, b.Name) })
	var takers []int // indexes of those who may get buckets
	for i, s := range shards {
		if !s.Draining {
			takers = append(takers, i)
		}
	}
	if len(takers) == 0 { // better one that is leaving than nobody
		for i := range shards {
			takers = append(takers, i)
		}
	}
	load := make([]int, len(shards))
	var after []heir
	if before != nil {
		after = heirs(before.Members, shards, hold)
	}
	var owner [api.Buckets]int // indexes into shards, or nobody, or kept for a dead one
	var move Move
	for b := range owner {
		owner[b] = nobody
		if before == nil || before.Owners[b] == api.Nobody || int(before.Owners[b]) >= len(before.Members) {
			continue
		}
		h := after[before.Owners[b]]
		if owner[b] = h.owner; h.taken {
			move.Taken++
		}
		if h.owner >= 0 {
			load[h.owner]++
		}
	}
	bound := 0
	if len(takers) > 0 {
		bound = (5*api.Buckets + 4*len(takers) - 1) / (4 * len(takers))
	}
	best := func(b int) int {
		choice, most := nobody, uint64(0)
		for _, i := range takers {
			if s := score(shards[i].Name, b); load[i] < bound && (choice == nobody || s > most) {
				choice, most = i, s
			}
		}
		return choice
	}
	for b := range owner {
		if owner[b] == nobody {
			if i := best(b); i != nobody {
				owner[b] = i
				load[i]++
				move.Taken++
			}
		}
	}
	if move.Taken > 0 {
		moves = 0 // those who take over are busy
	}
	for b := range owner {
		if i := owner[b]; move.Moved < moves && i >= 0 && shards[i].Draining && !slices.Contains(takers, i) {
			if j := best(b); j != nobody {
				owner[b] = j
				load[i]--
				load[j]++
				move.Moved++
			}
		}
	}
	for _, j := range takers {
		average := api.Buckets / len(takers)
		if !shards[j].Joining || load[j] >= average || move.Moved >= moves {
			continue
		}
		var candidates []int
		for b, i := range owner {
			if i >= 0 && i != j && load[i] > average {
				candidates = append(candidates, b)
			}
		}
		slices.SortFunc(candidates, func(a, b int) int {
			return cmp.Compare(score(shards[j].Name, b), score(shards[j].Name, a))
		})
		for _, b := range candidates {
			i := owner[b]
			if load[j] >= average || move.Moved >= moves {
				break
			}
			if load[i] > average {
				owner[b] = j
				load[i]--
				load[j]++
				move.Moved++
			}
		}
	}

	next := &api.Table{Epoch: 1}
	if before != nil {
		next.Epoch = before.Epoch + 1
	}
	for i, s := range shards {
		if !s.Draining || load[i] > 0 {
			next.Members = append(next.Members, api.Member{Incarnation: s.Incarnation, Name: s.Name})
		}
	}
	for b, i := range owner {
		if i == dead {
			if m := before.Members[before.Owners[b]]; !next.Has(m.Incarnation) {
				next.Members = append(next.Members, m)
			}
		}
	}
	slices.SortFunc(next.Members, func(a, b api.Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	index := make(map[api.Incarnation]uint16, len(next.Members))
	for i, m := range next.Members {
		index[m.Incarnation] = uint16(i)
	}
	for b, i := range owner {
		bucket := api.BucketID(b)
		switch {
		case i >= 0:
			next.Owners[b] = index[shards[i].Incarnation]
		case i == dead:
			next.Owners[b] = index[before.Owner(bucket)]
		default:
			next.Owners[b] = api.Nobody
		}
		next.Changed[b] = next.Epoch
		if before != nil && before.Owner(bucket) == next.Owner(bucket) {
			next.Changed[b] = before.Changed[b]
		}
	}
	if move == (Move{}) && (before != nil && slices.Equal(before.Members, next.Members) || before == nil && len(shards) == 0) {
		return nil, move
	}
	return next, move
}

// score of a shard for a bucket: it goes by name, so that a new incarnation scores as the one before.
func score(name string, bucket int) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write([]byte{byte(bucket >> 8), byte(bucket)})
	_, _ = d.WriteString(name)
	return d.Sum64()
}

func (c *Core) shardUp(now time.Time, r *wire.ShardRecord) {
	id := api.Incarnation(r.GetIncarnation())
	if id == "" {
		return
	}
	if c.displaced[id] != nil {
		c.displaced[id] = r // somebody found that it answers; another has its place
		return
	}
	c.look = true
	s, known := c.shards[id]
	if !known {
		for _, other := range c.sortedShards() {
			if other.name == r.GetName() { // the newest of a name is the one that lives
				c.log(LevelInfo, "shard replaced", "name", other.name, "old", other.incarnation, "new", id)
				delete(c.shards, other.incarnation)
				c.displaced[other.incarnation] = &wire.ShardRecord{Name: other.name, Incarnation: string(other.incarnation), Draining: other.draining}
			}
		}
		s = &shard{incarnation: id, linked: c.links[id]}
		c.shards[id] = s
	}
	joins := !known || s.draining // and does not any more
	if s.draining = r.GetDraining(); joins && !s.draining {
		s.joining = c.table.Owned(id) < 3*c.average()/4
	}
	if s.name = r.GetName(); s.name == "" {
		s.name = string(id)
	}
	if c.firstShard.IsZero() {
		c.firstShard = now
	}
}

// average is how many buckets a shard that does not drain would have if all had the same.
func (c *Core) average() int {
	n := 0
	for _, s := range c.shards {
		if !s.draining {
			n++
		}
	}
	return api.Buckets / max(1, n)
}

func (c *Core) shardDown(now time.Time, id api.Incarnation) {
	c.look = true
	delete(c.links, id)
	delete(c.displaced, id)
	s := c.shards[id]
	if s == nil {
		return
	}
	delete(c.shards, id)
	if len(c.shards) == 0 {
		c.firstShard = time.Time{}
	}
	if c.table.Has(id) {
		c.deaths = append(c.deaths, death{s.name, now})
	}
	for _, shadow := range api.SortedKeys(c.displaced) {
		if r := c.displaced[shadow]; r.GetName() == s.name {
			delete(c.displaced, shadow)
			c.shardUp(now, r)
			return
		}
	}
}

// loadShards takes those that are up when a term begins. Of two with one name the one with a place in the table keeps it,
// for nothing says here which is the newer; the other gets it when that one's lease is over.
func (c *Core) loadShards(now time.Time, records []*wire.ShardRecord) {
	for _, placed := range []bool{true, false} {
		for _, r := range records {
			if c.table.Has(api.Incarnation(r.GetIncarnation())) != placed {
				continue
			}
			if slices.ContainsFunc(c.sortedShards(), func(s *shard) bool { return s.name == r.GetName() }) {
				c.displaced[api.Incarnation(r.GetIncarnation())] = r
				continue
			}
			c.shardUp(now, r)
		}
	}
	for _, s := range c.shards {
		s.joining = c.table.Owned(s.incarnation) < 3*c.average()/4
	}
}

func (c *Core) shardLinked(id api.Incarnation) {
	c.heard(id)
	c.reportAll(id)
}

// heard: messages from it arrive. It may be linked before its key is seen, or before this term began.
func (c *Core) heard(id api.Incarnation) {
	c.links[id] = true
	if s := c.shards[id]; s != nil {
		s.linked = true
	}
	if c.began.Has(id) {
		c.began = nil
		c.changedEverywhere()
	}
}

// coldStart tells that no shard which knew the store before this term is left. Nobody could have noticed that the store
// was restored meanwhile from a copy that has the same table and lacks reservations, so what is bound has to be told.
func (c *Core) coldStart(next *api.Table) bool {
	return c.began != nil && !slices.ContainsFunc(next.Members, func(m api.Member) bool { return c.began.Has(m.Incarnation) })
}

// refilled: a shard has told of everything bound in its queues' buckets.
func (c *Core) refilled(id api.Incarnation, epoch api.Epoch) {
	if s := c.shards[id]; s != nil {
		s.refilled, s.told = max(s.refilled, epoch), true
		c.reportAll(id) // it has just taken its queues over: what it was told before then is lost
	}
}

// MaxStatusEpoch bounds the epochs that are believed of statuses, for an administrator may write anything there: the upper half
// of a serial holds an epoch, so it has 32 bits. epochsAhead is how far above the table's one may be: a store is restored from a
// copy that is so many tables old at most.
const (
	MaxStatusEpoch api.Epoch = 1 << 31
	epochsAhead    api.Epoch = 1 << 20
)

// believed returns an epoch found in a status, 0 for one that cannot be true.
func (c *Core) believed(epoch api.Epoch, where string) api.Epoch {
	limit := MaxStatusEpoch
	if c.table != nil {
		limit = c.table.Epoch + epochsAhead
	}
	if epoch <= limit {
		return epoch
	}
	c.log(LevelWarn, "ignoring a status epoch that no table can have", "where", where, "epoch", uint64(epoch), "limit", uint64(limit))
	return 0
}

// raise: an epoch was found in a status, and ours have to be above it. If they are not, the store is older than the
// cluster.
func (c *Core) raise(epoch api.Epoch) {
	c.floor = max(c.floor, epoch)
	var ours api.Epoch
	if c.table != nil {
		ours = c.table.Epoch
	}
	if ours < c.floor && !c.refilling {
		c.log(LevelWarn, "the control store is older than the cluster", "table epoch", uint64(ours), "status epoch", uint64(c.floor))
		c.refilling, c.look = true, true
		for _, s := range c.shards {
			s.told = false
		}
	}
}

// changeTable puts the next table into the transaction if shards came, went, or are to be given more.
func (c *Core) changeTable(now time.Time, b *batch) bool {
	if !c.look {
		return false
	}
	c.look = false
	hold := c.hold(now)
	if len(c.shards) == 0 {
		return false
	}
	if c.table == nil && (!c.synced || now.Sub(c.firstShard) < c.cfg.FirstTable) {
		return false // statuses say above which epoch the first one starts; and whoever starts now shares it
	}
	if c.startingOver() && now.Sub(c.firstShard) < c.cfg.FirstTable {
		return false // or the first to come would get all, and most of it would move again, a little at a time
	}
	moves := 0
	switch {
	case c.table == nil || hold:
	case c.refilling && !c.anyTold():
		moves = api.Buckets // nobody serves yet, so nobody misses what moves
	case now.Sub(c.lastMove) >= c.cfg.JoinEvery && now.Sub(c.lastTake) >= c.cfg.Quiet:
		moves = c.cfg.JoinBuckets
	}
	next, move := Assign(c.table, c.members(), hold, moves)
	renew := c.table != nil && c.table.Epoch < c.floor
	if next == nil && c.table != nil && (renew || c.table.Refilling != c.refilling) {
		copied := *c.table
		next = &copied
		next.Epoch++
	}
	if next == nil {
		return false
	}
	if next.Epoch <= c.floor || renew {
		next.Epoch = c.floor + 1
		for i := range next.Changed {
			next.Changed[i] = next.Epoch // an owner's epoch has to be above those in statuses
		}
	}
	if c.coldStart(next) {
		c.log(LevelInfo, "all shards are new: admission waits until they have reported what is bound")
		c.began, c.refilling = nil, true
	}
	next.Revision, next.Refilling = 0, c.refilling
	if move.Taken > 0 {
		c.lastTake = now
		if c.table == nil {
			c.lastTake = time.Time{}
		}
	}
	if move.Moved > 0 {
		c.lastMove = now
	}
	before := c.table
	c.table = next
	b.table = next
	b.add(PutTable{Table: next}, tableBytes)
	part := c.average()
	if move.Taken > 0 {
		part = 3 * part / 4 // who took buckets over has enough with this: moves cost
	}
	for _, s := range c.shards {
		s.joining = s.joining && next.Owned(s.incarnation) < part
	}
	c.log(LevelInfo, "table changed", "epoch", uint64(next.Epoch), "members", len(next.Members), "taken", move.Taken, "moved", move.Moved)

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

// anyTold reports whether some shard has told of what is bound in all that it owned then.
func (c *Core) anyTold() bool {
	for _, s := range c.shards {
		if s.told {
			return true
		}
	}
	return false
}

// startingOver reports whether nobody in the table is left, and not as many are here as it names.
func (c *Core) startingOver() bool {
	if c.table == nil || len(c.shards) >= len(c.table.Members) {
		return false
	}
	return !slices.ContainsFunc(c.table.Members, func(m api.Member) bool { return c.shards[m.Incarnation] != nil })
}

// death of a shard that had a place in the table.
type death struct {
	name string
	at   time.Time
}

// hold reports whether more than half of the shards died within a time that is too short to be sure: then it is the
// network, or etcd, and not they. Leases end one after another, so the dead are counted over that time, those whose
// buckets have moved included.
func (c *Core) hold(now time.Time) bool {
	living := map[string]bool{}
	for _, s := range c.shards {
		living[s.name] = true
	}
	c.deaths = slices.DeleteFunc(c.deaths, func(d death) bool {
		return living[d.name] || now.Sub(d.at) >= c.cfg.HalfGoneLimit
	})
	hold := len(c.deaths) > len(living)
	if hold != c.held {
		c.held = hold
		c.log(LevelWarn, "more than half of the shards are gone: not moving their buckets yet", "holding", hold, "gone", len(c.deaths), "living", len(living))
	}
	return hold
}

// endRefilling admits again once every member of the table that owns a bucket has reported what is bound in its queues. No clock
// ends it: with one list missing, gangs would be admitted to room that bound pods use. A member that cannot report leaves the
// table when its lease ends, or when it is restarted, and its heir reports instead; until then the log names it.
func (c *Core) endRefilling(now time.Time) {
	if !c.refilling || c.table == nil || c.table.Revision == 0 || c.table.Epoch < c.floor {
		return
	}
	gained := make([]api.Epoch, len(c.table.Members)) // when each last got a bucket
	for b, changed := range c.table.Changed {
		if i := c.table.Owners[b]; int(i) < len(gained) {
			gained[i] = max(gained[i], changed)
		}
	}
	var missing []string
	for i, m := range c.table.Members {
		s := c.shards[m.Incarnation]
		if gained[i] > 0 && (s == nil || !s.told || s.refilled < gained[i]) {
			missing = append(missing, string(m.Incarnation))
		}
	}
	if len(missing) > 0 {
		if c.nextMissing.IsZero() {
			c.nextMissing = now.Add(missingEvery)
		} else if !now.Before(c.nextMissing) {
			c.nextMissing = now.Add(missingEvery)
			c.log(LevelWarn, "admission waits for these shards to report what is bound", "missing", len(missing), "shards", strings.Join(missing[:min(len(missing), 10)], " "))
		}
		return
	}
	if !c.rightsKnown() {
		return
	}
	c.refilling, c.look, c.nextMissing = false, true, time.Time{} // the table has to say so
	c.log(LevelInfo, "refilled", "reservations", c.open)
	c.changedEverywhere()
}

// missingEvery is how often the log names the shards that refilling waits for.
const missingEvery = 15 * time.Second
