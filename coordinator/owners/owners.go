// Package owners decides which shard owns which bucket, and when all that is bound is known.
//
// It knows which shards are up, and makes the next table of the one before (Assign). It owns the table that was decided
// last, written or not, and the epoch above which tables begin (the floor): those that statuses show. It never asks and
// writes nothing: whoever keeps it tells it what it sees, writes the tables, and does what follows from them.
//
// After a control store was lost or exchanged, or when all shards are new, nobody but the shards knows what is bound:
// the term is refilling until each has reported it. Until a shard of the table of before the term is heard, it is not
// sure either whether the store was exchanged.
//
// Invariants:
//   - Epochs grow from table to table, and are above the floor.
//   - While more than half of the shards died within Config.HalfGoneLimit, no bucket of a dead one moves.
//   - A bucket of a living shard moves at most Config.JoinBuckets at a time, and not while others are taken over.
package owners

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Config has what an administrator or a test may set. Each must be.
type Config struct {
	HalfGoneLimit time.Duration // how long nothing moves when more than half of the shards are gone
	FirstTable    time.Duration // how long the first table waits for more shards after the first one
	JoinEvery     time.Duration // between two steps that move buckets between living shards
	JoinBuckets   int           // buckets that one such step moves
	Quiet         time.Duration // no such step so soon after a takeover
	MostBytes     int           // of a table's record

	Log func(warn bool, message string, args ...any)
}

// Begin is what is known when a term begins.
type Begin struct {
	Now         time.Time
	Table       *api.Table // nil if there is none
	Shards      []*wire.ShardRecord
	StatusEpoch api.Epoch // the largest in statuses of queues
	FreshStore  bool      // it has never been led
}

// Owners are the shards and the table of buckets. A nil table owns nothing.
type Owners struct {
	cfg       Config
	table     *api.Table // the newest decided; Revision is 0 while it is in flight
	shards    map[api.Incarnation]*shard
	links     map[api.Incarnation]bool
	displaced map[api.Incarnation]*wire.ShardRecord // up, but another of their name has their place
	floor     api.Epoch                             // epochs start above it
	synced    bool                                  // all statuses were seen

	firstShard time.Time
	look       bool       // the table may have to change
	deaths     []death    // in the last HalfGoneLimit
	held       bool       // more than half are dead
	lastMove   time.Time  // of a step between living shards
	lastTake   time.Time  // of a takeover
	omitted    int        // shards that the table has no room for
	began      *api.Table // the table of before this term, until a shard of it is heard: the store was not exchanged since

	refilling   bool
	nextMissing time.Time // when the log names those that refilling waits for
}

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

// death of a shard that had a place in the table.
type death struct {
	name string
	at   time.Time
}

// New begins a term.
func New(cfg Config, b Begin) *Owners {
	o := &Owners{cfg: cfg, table: b.Table, shards: map[api.Incarnation]*shard{}, links: map[api.Incarnation]bool{},
		displaced: map[api.Incarnation]*wire.ShardRecord{}}
	o.floor = o.believed(b.StatusEpoch, "statuses of queues")
	o.load(b.Now, b.Shards)
	if o.table != nil {
		for _, m := range o.table.Members {
			if o.shards[m.Incarnation] == nil {
				o.deaths = append(o.deaths, death{m.Name, b.Now})
			}
		}
	}
	switch {
	case b.FreshStore:
		o.refilling = true
	case o.table == nil:
		o.refilling = o.floor > 0
	default:
		o.refilling = o.table.Refilling || o.table.Epoch < o.floor
	}
	if !o.refilling {
		o.began = o.table
	}
	return o
}

// Lose takes note that a reservation cannot be read, whose gang runs perhaps: each home is to take its queues over
// anew, and to report what is bound.
func (o *Owners) Lose() {
	o.refilling, o.look, o.began = true, true, nil
	if o.table != nil {
		o.floor = max(o.floor, o.table.Epoch+1)
	}
}

// Table returns the table that was decided last, nil for none. It is not changed any more.
func (o *Owners) Table() *api.Table { return o.table }

// Written takes note of the revision at which the table was written.
func (o *Owners) Written(revision int64) {
	written := *o.table
	written.Revision = revision
	o.table = &written
}

// Shards returns how many are up.
func (o *Owners) Shards() int { return len(o.shards) }

// Refilling reports whether shards are still to report what is bound.
func (o *Owners) Refilling() bool { return o.refilling }

// Complete reports whether all that is bound is known, and that the store is the one of before the term.
func (o *Owners) Complete() bool { return !o.refilling && o.began == nil }

// LookAgain has the next call of Next look for something to change: what it waits for is due at some moment.
func (o *Owners) LookAgain() { o.look = true }

// Up takes note of a shard that is up, or whose record has changed.
func (o *Owners) Up(now time.Time, r *wire.ShardRecord) {
	id := api.Incarnation(r.GetIncarnation())
	if id == "" {
		return
	}
	if o.displaced[id] != nil {
		o.displaced[id] = r // somebody found that it answers; another has its place
		return
	}
	o.look = true
	s, known := o.shards[id]
	if !known {
		for _, other := range o.sorted() {
			if other.name == r.GetName() { // the newest of a name is the one that lives
				o.cfg.Log(false, "shard replaced", "name", other.name, "old", other.incarnation, "new", id)
				delete(o.shards, other.incarnation)
				o.displaced[other.incarnation] = &wire.ShardRecord{
					Name: other.name, Incarnation: string(other.incarnation), Draining: other.draining}
			}
		}
		s = &shard{incarnation: id, linked: o.links[id]}
		o.shards[id] = s
	}
	joins := !known || s.draining // and does not any more
	if s.draining = r.GetDraining(); joins && !s.draining {
		s.joining = o.table.Owned(id) < 3*o.average()/4
	}
	if s.name = r.GetName(); s.name == "" {
		s.name = string(id)
	}
	if o.firstShard.IsZero() {
		o.firstShard = now
	}
}

// average is how many buckets a shard that does not drain would have if all had the same.
func (o *Owners) average() int {
	n := 0
	for _, s := range o.shards {
		if !s.draining {
			n++
		}
	}
	return api.Buckets / max(1, n)
}

// Down takes note of a shard whose lease has ended.
func (o *Owners) Down(now time.Time, id api.Incarnation) {
	o.look = true
	delete(o.links, id)
	delete(o.displaced, id)
	s := o.shards[id]
	if s == nil {
		return
	}
	delete(o.shards, id)
	if len(o.shards) == 0 {
		o.firstShard = time.Time{}
	}
	if o.table.Has(id) {
		o.deaths = append(o.deaths, death{s.name, now})
	}
	for _, shadow := range api.SortedKeys(o.displaced) {
		if r := o.displaced[shadow]; r.GetName() == s.name {
			delete(o.displaced, shadow)
			o.Up(now, r)
			return
		}
	}
}

// load takes those that are up when a term begins. Of two with one name the one with a place in the table keeps it,
// for nothing says here which is the newer; the other gets it when that one's lease is over.
func (o *Owners) load(now time.Time, records []*wire.ShardRecord) {
	for _, placed := range []bool{true, false} {
		for _, r := range records {
			if o.table.Has(api.Incarnation(r.GetIncarnation())) != placed {
				continue
			}
			if slices.ContainsFunc(o.sorted(), func(s *shard) bool { return s.name == r.GetName() }) {
				o.displaced[api.Incarnation(r.GetIncarnation())] = r
				continue
			}
			o.Up(now, r)
		}
	}
	for _, s := range o.shards {
		s.joining = o.table.Owned(s.incarnation) < 3*o.average()/4
	}
}

// Linked takes note that messages of a shard arrive. It may be linked before its key is seen, or before this term
// began. It reports whether that proves that the store is the one of before the term.
func (o *Owners) Linked(id api.Incarnation) (proved bool) {
	o.links[id] = true
	if s := o.shards[id]; s != nil {
		s.linked = true
	}
	if proved = o.began.Has(id); proved {
		o.began = nil
	}
	return proved
}

// Heard takes note of a message of a shard, as Linked does if that is news.
func (o *Owners) Heard(id api.Incarnation) (proved bool) {
	s := o.shards[id]
	return s != nil && !s.linked && o.Linked(id)
}

// Reported takes note that a shard has reported all that is bound in the buckets that it had at an epoch. It returns
// false for one that is not up.
func (o *Owners) Reported(id api.Incarnation, epoch api.Epoch) bool {
	s := o.shards[id]
	if s != nil {
		s.refilled, s.told = max(s.refilled, epoch), true
	}
	return s != nil
}

// MaxStatusEpoch bounds the epochs that are believed of statuses, for an administrator may write anything there: the
// upper half of a serial holds an epoch, so it has 32 bits. epochsAhead is how far above the table's one may be: a
// store is restored from a copy that is so many tables old at most.
const (
	MaxStatusEpoch api.Epoch = 1 << 31
	epochsAhead    api.Epoch = 1 << 20
)

// believed returns an epoch found in a status, 0 for one that cannot be true.
func (o *Owners) believed(epoch api.Epoch, where string) api.Epoch {
	limit := MaxStatusEpoch
	if o.table != nil {
		limit = o.table.Epoch + epochsAhead
	}
	if epoch <= limit {
		return epoch
	}
	o.cfg.Log(true, "ignoring implausible status epoch",
		"where", where, "epoch", uint64(epoch), "limit", uint64(limit))
	return 0
}

// StatusEpoch takes note of the epoch that a status shows. Those of tables have to be above it.
func (o *Owners) StatusEpoch(epoch api.Epoch, where string) {
	if epoch <= o.floor {
		return
	}
	epoch = o.believed(epoch, where)
	if raised := epoch > o.floor; raised {
		o.floor = epoch
		if o.synced {
			o.compare()
		}
	}
}

// Synced takes note that all statuses were seen.
func (o *Owners) Synced() {
	o.synced, o.look = true, true
	o.compare()
}

// compare finds a store that is older than the cluster: its table's epoch is below one that a status shows.
func (o *Owners) compare() {
	var ours api.Epoch
	if o.table != nil {
		ours = o.table.Epoch
	}
	if ours < o.floor && !o.refilling {
		o.cfg.Log(true, "the control store is older than the cluster",
			"table epoch", uint64(ours), "status epoch", uint64(o.floor))
		o.refilling, o.look = true, true
		for _, s := range o.shards {
			s.told = false
		}
	}
}

// coldStart tells that no shard which knew the store before this term is left. Nobody could have noticed that the store
// was restored meanwhile from a copy that has the same table and lacks reservations, so what is bound has to be told.
func (o *Owners) coldStart(next *api.Table) bool {
	return o.began != nil &&
		!slices.ContainsFunc(next.Members, func(m api.Member) bool { return o.began.Has(m.Incarnation) })
}

// Next decides the next table, and returns it with its upper bound in bytes. It is nil if shards neither came nor went,
// nor are to be given more.
func (o *Owners) Next(now time.Time) *api.Table {
	if !o.look {
		return nil
	}
	o.look = false
	hold := o.hold(now)
	if len(o.shards) == 0 || o.waitsForMore(now) {
		return nil
	}
	moves := 0
	switch {
	case o.table == nil || hold:
	case o.refilling && !o.anyTold():
		moves = api.Buckets // nobody serves yet, so nobody misses what moves
	case now.Sub(o.lastMove) >= o.cfg.JoinEvery && now.Sub(o.lastTake) >= o.cfg.Quiet:
		moves = o.cfg.JoinBuckets
	}
	next, move := Assign(o.table, o.members(), hold, moves)
	renew := o.table != nil && o.table.Epoch < o.floor
	if next == nil && o.table != nil && (renew || o.table.Refilling != o.refilling) {
		copied := *o.table
		next = &copied
		next.Epoch++
	}
	if next == nil {
		return nil
	}
	if next.Epoch <= o.floor || renew {
		next.Epoch = o.floor + 1
		for i := range next.Changed {
			next.Changed[i] = next.Epoch // an owner's epoch has to be above those in statuses
		}
	}
	if o.coldStart(next) {
		o.cfg.Log(false, "all shards are new: admission waits until they have reported what is bound")
		o.began, o.refilling = nil, true
	}
	next.Revision, next.Refilling = 0, o.refilling
	o.follow(now, next, move)
	return next
}

// follow makes a table the one that holds.
func (o *Owners) follow(now time.Time, next *api.Table, move Move) {
	if move.Taken > 0 {
		o.lastTake = now
		if o.table == nil {
			o.lastTake = time.Time{}
		}
	}
	if move.Moved > 0 {
		o.lastMove = now
	}
	o.table = next
	part := o.average()
	if move.Taken > 0 {
		part = 3 * part / 4 // who took buckets over has enough with this: moves cost
	}
	for _, s := range o.shards {
		s.joining = s.joining && next.Owned(s.incarnation) < part
	}
	o.cfg.Log(false, "table changed",
		"epoch", uint64(next.Epoch), "members", len(next.Members), "taken", move.Taken, "moved", move.Moved)
}

// waitsForMore reports whether more shards, or statuses, are waited for before a table is made of those that are here.
func (o *Owners) waitsForMore(now time.Time) bool {
	early := now.Sub(o.firstShard) < o.cfg.FirstTable
	if o.table == nil {
		return !o.synced || early // statuses say above which epoch the first one starts; and whoever starts now shares it
	}
	return early && o.startingOver() // or the first would get all, and most of it would move again, a little at a time
}

// anyTold reports whether some shard has told of what is bound in all that it owned then.
func (o *Owners) anyTold() bool {
	for _, s := range o.shards {
		if s.told {
			return true
		}
	}
	return false
}

// startingOver reports whether nobody in the table is left, and not as many are here as it names.
func (o *Owners) startingOver() bool {
	if o.table == nil || len(o.shards) >= len(o.table.Members) {
		return false
	}
	return !slices.ContainsFunc(o.table.Members, func(m api.Member) bool { return o.shards[m.Incarnation] != nil })
}

// hold reports whether more than half of the shards died within a time that is too short to be sure: then it is the
// network, or etcd, and not they. Leases end one after another, so the dead are counted over that time, those whose
// buckets have moved included.
func (o *Owners) hold(now time.Time) bool {
	living := map[string]bool{}
	for _, s := range o.shards {
		living[s.name] = true
	}
	o.deaths = slices.DeleteFunc(o.deaths, func(d death) bool {
		return living[d.name] || now.Sub(d.at) >= o.cfg.HalfGoneLimit
	})
	hold := len(o.deaths) > len(living)
	if hold != o.held {
		o.held = hold
		o.cfg.Log(true, "more than half of the shards are gone: not moving their buckets yet",
			"holding", hold, "gone", len(o.deaths), "living", len(living))
	}
	return hold
}

// AllReported reports whether every member of the table that owns a bucket has reported what is bound in its queues.
// No clock decides it: with one list missing, gangs would be admitted to room that bound pods use. A member that
// cannot report leaves the table when its lease ends, or when it is restarted, and its heir reports instead; until
// then the log names it.
func (o *Owners) AllReported(now time.Time) bool {
	if o.table == nil || o.table.Revision == 0 || o.table.Epoch < o.floor {
		return false
	}
	gained := make([]api.Epoch, len(o.table.Members)) // when each last got a bucket
	for b, changed := range o.table.Changed {
		if i := o.table.Owners[b]; int(i) < len(gained) {
			gained[i] = max(gained[i], changed)
		}
	}
	var missing []string
	for i, m := range o.table.Members {
		s := o.shards[m.Incarnation]
		if gained[i] > 0 && (s == nil || !s.told || s.refilled < gained[i]) {
			missing = append(missing, string(m.Incarnation))
		}
	}
	if len(missing) == 0 {
		return true
	}
	if o.nextMissing.IsZero() {
		o.nextMissing = now.Add(missingEvery)
	} else if !now.Before(o.nextMissing) {
		o.nextMissing = now.Add(missingEvery)
		o.cfg.Log(true, "admission waits for these shards to report what is bound",
			"missing", len(missing), "shards", strings.Join(missing[:min(len(missing), 10)], " "))
	}
	return false
}

// missingEvery is how often the log names the shards that refilling waits for.
const missingEvery = 15 * time.Second

// EndRefilling takes note that all that is bound is known. The next table says so.
func (o *Owners) EndRefilling() { o.refilling, o.look, o.nextMissing = false, true, time.Time{} }

// TableBytes bounds the part of a table's record that its members do not change, and MemberBytes what one of them adds.
const TableBytes = 512 + 2*api.Buckets + 10*api.Buckets

func MemberBytes(name string, id api.Incarnation) int { return 16 + len(name) + len(id) }

// members are the shards among which the next table divides the buckets: all, or as many as a record can name. Those
// that have a place already keep it.
func (o *Owners) members() []Shard {
	bytes := TableBytes
	if o.table != nil {
		for _, m := range o.table.Members {
			bytes += MemberBytes(m.Name, m.Incarnation)
		}
	}
	var out []Shard
	omitted := 0
	for _, s := range o.sorted() {
		if !o.table.Has(s.incarnation) {
			n := MemberBytes(s.name, s.incarnation)
			if bytes+n > o.cfg.MostBytes {
				omitted++
				continue
			}
			bytes += n
		}
		out = append(out, Shard{s.incarnation, s.name, s.draining, s.joining})
	}
	if omitted != o.omitted {
		o.omitted = omitted
		o.cfg.Log(true, "the bucket table is too large to name all shards",
			"omitted", omitted, "bytes", bytes, "limit", o.cfg.MostBytes)
	}
	return out
}

func (o *Owners) sorted() []*shard {
	out := make([]*shard, 0, len(o.shards))
	for _, s := range o.shards {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *shard) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.incarnation, b.incarnation))
	})
	return out
}
