package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/model"
	"basalt.dev/basalt/shard/event"
)

// store is the control store: of package api/store what happens at the server, on a model of etcd. Who sends a transaction
// again, and when, is in shard.go and coordinator.go; when a lease runs out is here.
type store struct {
	server
	*model.Store[proto.Message]
	w       *world
	leases  map[int64]*lease
	made    int64 // leases
	tables  *topic
	leaders *topic
	members *topic // of shards/
	pages   bool   // what is read at one revision takes several requests
}

// record is a key with its value, which is not changed once it is here.
type record = model.KV[proto.Message]

type lease struct {
	ttl     time.Duration
	expires time.Time
}

// change is one put, or with a nil msg one delete.
type change struct {
	key   string
	msg   proto.Message
	lease int64
}

const (
	keyLeader   = "leader/coordinator"
	keySequence = "seq"
	keyTable    = "table"
)

func keyShard(who api.Incarnation) string { return "shards/" + string(who) }
func keyIntents(who api.Incarnation, n uint64) string {
	return fmt.Sprintf("intents/%s/%016x", who, n)
}
func keyReservation(b api.BucketID, gang string) string {
	return "reservations/" + b.Label() + "/" + gang
}

func newStore(w *world) *store {
	s := &store{w: w, Store: model.NewStore(proto.Equal), leases: map[int64]*lease{},
		tables: newTopic(w, (*api.Table)(nil)), leaders: newTopic(w, leading{}), members: newTopic(w, []*wire.ShardRecord(nil))}
	s.Changed = s.changed
	return s
}

// leading is what the leader's key says.
type leading struct {
	inc  api.Incarnation
	term int64
}

func (s *store) modRevision(key string) int64 {
	if r := s.Keys[key]; r != nil {
		return r.Mod
	}
	return 0
}

func (s *store) createRevision(key string) int64 {
	if r := s.Keys[key]; r != nil {
		return r.Create
	}
	return 0
}

func (s *store) table() *api.Table { return s.tables.newest().(*api.Table) }

// with returns the keys that begin so, sorted.
func (s *store) with(prefix string) []string { return s.With(prefix) }

// write makes a revision.
func (s *store) write(changes []change) int64 {
	w := s.w
	var ops []model.Op[proto.Message]
	for _, c := range changes {
		w.check.beforeStore(c, s.Keys[c.key])
		if c.msg == nil {
			ops = append(ops, model.Op[proto.Message]{Kind: model.Delete, Key: c.key})
		} else {
			ops = append(ops, model.Op[proto.Message]{Kind: model.Put, Key: c.key, Value: c.msg, Lease: c.lease})
		}
	}
	done, err := s.Txn(nil, ops, nil)
	if err != nil {
		w.fail("transaction of %d operations: %v", len(ops), err)
	}
	for _, c := range changes {
		w.check.afterStore(c)
	}
	return done.Revision
}

// changed hears of each revision.
func (s *store) changed(events []model.Event[proto.Message]) {
	w := s.w
	seen := audit.StoreRevision{Revision: s.Revision()}
	for _, e := range events {
		if e.Deleted {
			seen.Changes = append(seen.Changes, audit.StoreChange{Key: e.Key, Deleted: true, CreateRevision: e.Prev.Create, ModRevision: e.Mod})
			w.log("store %d: %s deleted", e.Mod, e.Key)
			continue
		}
		value, err := proto.MarshalOptions{Deterministic: true}.Marshal(e.Value)
		if err != nil {
			w.fail("key %q: %v", e.Key, err)
		}
		seen.Changes = append(seen.Changes, audit.StoreChange{Key: e.Key, Value: value, CreateRevision: e.Create, ModRevision: e.Mod})
		if e.Key != keySequence {
			w.log("store %d: %s %s", e.Mod, e.Key, describeRecord(e.Value))
		}
	}
	w.audit.Observe(w.now, seen)
	w.heard()
	w.check.firstCharges(events)
	w.check.rights(events)
	members := false
	for _, e := range events {
		switch {
		case e.Key == keyTable:
			t, err := wire.ToTable(e.Value.(*wire.TableRecord), e.Mod)
			if err != nil {
				w.fail("table: %v", err)
			}
			s.tables.publish(t, e.Mod)
			w.count("tables")
		case e.Key == keyLeader:
			l := leading{}
			if !e.Deleted {
				l = leading{api.Incarnation(e.Value.(*wire.LeaderRecord).GetIncarnation()), e.Mod}
				w.count("terms")
			}
			s.leaders.publish(l, e.Mod)
		case strings.HasPrefix(e.Key, "shards/"):
			members = true
		}
	}
	if members {
		s.members.publish(s.shards(), s.Revision())
	}
}

func (s *store) shards() []*wire.ShardRecord {
	var out []*wire.ShardRecord
	for _, key := range s.with("shards/") {
		out = append(out, s.Keys[key].Value.(*wire.ShardRecord))
	}
	return out
}

func describeRecord(m proto.Message) string {
	switch m := m.(type) {
	case *wire.ReservationRecord:
		d, _ := wire.ToResources(m.Demand)
		return fmt.Sprintf("%s attempt %d demand %s rank %d/%d forced %t state %s", m.Gang.Queue, m.Attempt, d, m.Rank.GetPriority(), m.Rank.GetOrder(), m.Forced, m.State)
	case *wire.IntentsRecord:
		var b strings.Builder
		for _, r := range m.Rows {
			fmt.Fprintf(&b, "%s@%s->%s ", r.PodUid, r.PodResourceVersion, r.Node)
		}
		return b.String()
	case *wire.LimitsRecord:
		c, _ := wire.ToResources(m.Capability)
		g, _ := wire.ToResources(m.Guarantee)
		return fmt.Sprintf("uid %s version %s capability %s guarantee %s closed %t deleted %t", m.Uid, m.ResourceVersion, c, g, m.Closed, m.Deleted)
	case *wire.TableRecord:
		return fmt.Sprintf("epoch %d members %v refilling %t", m.Epoch, m.Incarnations, m.Refilling)
	case *wire.ShardRecord:
		return fmt.Sprintf("draining %t", m.Draining)
	case *wire.LeaderRecord:
		return m.Incarnation
	}
	return ""
}

// ---- leases

func (s *store) grant(ttl time.Duration) int64 {
	s.made++
	id := s.made
	if err := s.Grant(id); err != nil {
		s.w.fail("lease %d: %v", id, err)
	}
	s.leases[id] = &lease{ttl: ttl, expires: s.w.now.Add(ttl)}
	s.watch(id)
	return id
}

// keepAlive tells whether the lease still exists.
func (s *store) keepAlive(id int64) bool {
	l := s.leases[id]
	if l == nil {
		return false
	}
	l.expires = s.w.now.Add(l.ttl)
	return true
}

// watch ends the lease some time after it has run out.
func (s *store) watch(id int64) {
	l := s.leases[id]
	if l == nil {
		return
	}
	s.w.atTime(l.expires.Add(s.w.between(0, time.Second)), func() {
		l := s.leases[id]
		switch {
		case l == nil:
		case s.w.now.Before(s.down): // nothing can be revoked, and a new leader extends all leases
			l.expires = s.down.Add(l.ttl)
			s.watch(id)
		case l.expires.After(s.w.now):
			s.watch(id)
		default:
			s.w.log("lease %d is over", id)
			s.revoke(id)
		}
	})
}

func (s *store) revoke(id int64) {
	if s.leases[id] == nil {
		return
	}
	delete(s.leases, id)
	if err := s.End(id); err != nil {
		s.w.fail("lease %d: %v", id, err)
	}
}

// create puts a key that must be absent under a lease: its CreateRevision, or 0 when somebody else's is there.
func (s *store) create(key string, msg proto.Message, lease int64) (created int64, leaseGone bool) {
	if r := s.Keys[key]; r != nil {
		if r.Lease == lease {
			return r.Create, false
		}
		return 0, false
	}
	if s.leases[lease] == nil {
		return 0, true
	}
	return s.write([]change{{key, msg, lease}}), false
}

// ---- shards

// session tells whether a shard may write.
func (s *store) session(who api.Incarnation, created int64) bool {
	return created > 0 && s.createRevision(keyShard(who)) == created
}

// intentsAnswer is what a try of WriteIntents met; own is the ModRevision of the shard's own key.
type intentsAnswer struct {
	event.IntentsWritten
	own   int64
	there bool // the key was, before this try
}

// touch moves the version of a shard's own key if it is this one; it returns the version of now, 0 when the session is over.
func (s *store) touch(who api.Incarnation, created, own int64) int64 {
	if !s.session(who, created) {
		return 0
	}
	if self := s.Keys[keyShard(who)]; self.Mod == own {
		s.write([]change{{keyShard(who), self.Value, self.Lease}})
	}
	return s.modRevision(keyShard(who))
}

// writeIntents is one try. own is the version of its key that the shard knows, again tells that an earlier try may be on
// its way.
func (s *store) writeIntents(who api.Incarnation, created, own int64, again bool, o event.WriteIntents) intentsAnswer {
	done := intentsAnswer{IntentsWritten: event.IntentsWritten{N: o.N}}
	if o.TableRevision <= 0 {
		done.Outcome = event.TableMoved
		return done
	}
	for _, f := range o.Reservations {
		if f.Revision <= 0 {
			done.Outcome, done.Moved = event.ReservationMoved, append(done.Moved, f.GangUID)
		}
	}
	if len(done.Moved) > 0 {
		return done
	}
	key := keyIntents(who, o.N)
	if !s.session(who, created) {
		done.Outcome = event.SessionLost
		return done
	}
	self := s.Keys[keyShard(who)]
	done.own = self.Mod
	if r := s.Keys[key]; r != nil { // an earlier try
		done.Outcome, done.ModRevision, done.there = event.Written, r.Mod, true
		if fault.On(fault.IntentsTwice) {
			done.Outcome = event.TableMoved
		}
		return done
	}
	if s.modRevision(keyTable) != o.TableRevision {
		done.Outcome = event.TableMoved
		return done
	}
	for _, f := range o.Reservations {
		if s.modRevision(keyReservation(f.Bucket, f.GangUID)) != f.Revision {
			done.Moved = append(done.Moved, f.GangUID)
		}
	}
	switch {
	case len(done.Moved) > 0:
		done.Outcome = event.ReservationMoved
		return done
	case self.Mod != own && !fault.On(fault.LateIntents):
		return done // its key was written meanwhile: decide anew
	}
	changes := []change{{key: key, msg: o.Record}}
	if again {
		changes = append(changes, change{keyShard(who), self.Value, self.Lease})
	}
	done.Outcome, done.ModRevision = event.Written, s.write(changes)
	done.own = s.modRevision(keyShard(who))
	return done
}

// deleteIntents is one transaction of DeleteIntents, and what its else-branches lead to.
func (s *store) deleteIntents(who api.Incarnation, created int64, o event.DeleteIntents) (event.IntentsDeleted, bool) {
	if !s.session(who, created) {
		return event.IntentsDeleted{}, false
	}
	var out event.IntentsDeleted
	var changes []change
	for _, k := range o.Keys {
		key := keyIntents(who, k.N)
		now := s.modRevision(key)
		if now == k.ModRevision && now > 0 {
			changes = append(changes, change{key: key})
			now = 0
		}
		out.Keys = append(out.Keys, event.IntentKey{N: k.N, ModRevision: now})
	}
	if len(changes) > 0 {
		s.write(changes)
	}
	return out, true
}

func (s *store) rewriteIntents(who api.Incarnation, created int64, o event.RewriteIntents) (event.IntentsRewritten, bool) {
	out := event.IntentsRewritten{Incarnation: o.Incarnation, N: o.N}
	if !s.session(who, created) {
		return out, false
	}
	key := keyIntents(o.Incarnation, o.N)
	r := s.Keys[key]
	if r != nil && r.Mod == o.ModRevision && s.modRevision(keyTable) == o.TableRevision {
		out.Done = true
		if o.Record == nil {
			s.write([]change{{key: key}})
			return out, true
		}
		out.ModRevision, out.Record = s.write([]change{{key: key, msg: o.Record}}), o.Record
		return out, true
	}
	if r == nil {
		out.Done = o.Record == nil
		return out, true
	}
	out.ModRevision, out.Record = r.Mod, r.Value.(*wire.IntentsRecord)
	out.Done = o.Record != nil && r.Mod != o.ModRevision && proto.Equal(r.Value, o.Record)
	return out, true
}

// page is what there is with a prefix at a revision, 0 for the newest. One that was compacted cannot be read.
type page struct {
	records  []*record
	revision int64
	gone     bool
}

func (s *store) page(prefix string, revision int64) page {
	get := model.Op[proto.Message]{Kind: model.Get, Key: prefix, End: model.PrefixEnd(prefix), Revision: revision}
	r, err := s.Txn(nil, []model.Op[proto.Message]{get}, nil)
	switch {
	case errors.Is(err, rpctypes.ErrCompacted):
		s.w.count("reads compacted")
		return page{gone: true}
	case err != nil:
		s.w.fail("read %q at revision %d: %v", prefix, revision, err)
	case revision == 0:
		revision = r.Revision
	}
	return page{r.Answers[0].Keys, revision, false}
}

// read is store.ReadForTakeover: after a compaction it begins again, at a newer revision.
func (x *shard) read(sequence uint64, done func(event.StoreRead)) {
	s := x.w.store
	if !s.pages {
		definite(x.process, &s.server, "read", func() event.StoreRead {
			return s.storeRead(sequence, s.page("intents/", 0), s.page("reservations/", 0))
		}, done)
		return
	}
	definite(x.process, &s.server, "read", func() page { return s.page("intents/", 0) }, func(intents page) {
		definite(x.process, &s.server, "read", func() page { return s.page("reservations/", intents.revision) }, func(reservations page) {
			if reservations.gone {
				x.read(sequence, done)
				return
			}
			done(s.storeRead(sequence, intents, reservations))
		})
	})
}

func (s *store) storeRead(sequence uint64, intents, reservations page) event.StoreRead {
	ev := event.StoreRead{Sequence: sequence, Revision: intents.revision}
	for _, r := range intents.records {
		var n uint64
		inc, hex, _ := strings.Cut(strings.TrimPrefix(r.Key, "intents/"), "/")
		if _, err := fmt.Sscanf(hex, "%x", &n); err != nil {
			s.w.fail("key %q: %v", r.Key, err)
		}
		ev.Intents = append(ev.Intents, event.StoredIntents{Incarnation: api.Incarnation(inc), N: n, ModRevision: r.Mod, Record: r.Value.(*wire.IntentsRecord)})
	}
	for _, r := range reservations.records {
		ev.Reservations = append(ev.Reservations, event.StoredReservation{ModRevision: r.Mod, Record: r.Value.(*wire.ReservationRecord)})
	}
	return ev
}

// compact forgets what was before the newest revision but so many.
func (s *store) compact(behind int64) {
	if revision := s.Revision() - behind; revision > s.Compacted() && !s.w.now.Before(s.down) {
		s.w.count("compactions")
		if err := s.Compact(revision); err != nil {
			s.w.fail("compact to revision %d: %v", revision, err)
		}
	}
}

func (s *store) reservations() []*wire.ReservationRecord {
	var out []*wire.ReservationRecord
	for _, key := range s.with("reservations/") {
		out = append(out, s.Keys[key].Value.(*wire.ReservationRecord))
	}
	return out
}

// ---- watches

// topic is something in the store that processes follow as a whole: each value, or only the newest.
type topic struct {
	w         *world
	history   []any
	revisions []int64 // of each
	followers []*follower
}

func newTopic(w *world, first any) *topic {
	return &topic{w: w, history: []any{first}, revisions: []int64{0}}
}

func (t *topic) newest() any { return t.history[len(t.history)-1] }

func (t *topic) publish(v any, revision int64) {
	t.history, t.revisions = append(t.history, v), append(t.revisions, revision)
	for _, f := range t.followers {
		f.wake(t.w.slowness("store-watch", t.w.delay()))
	}
}

// follower is one process's watch of a topic.
type follower struct {
	p       *process
	topic   *topic
	next    int // of history
	started bool
	due     bool
	over    bool
	stalled time.Time
	deliver func(any)
}

// follow reads a topic and then watches it.
func (p *process) follow(t *topic, deliver func(any)) *follower {
	f := &follower{p: p, topic: t, deliver: deliver}
	p.followers = append(p.followers, f)
	t.followers = append(t.followers, f)
	f.read()
	return f
}

// read is what a follower begins with.
func (f *follower) read() {
	f.started = false
	definite(f.p, &f.p.w.store.server, "read", func() int { return len(f.topic.history) }, func(n int) {
		if f.over {
			return
		}
		f.started, f.next = true, n
		f.deliver(f.topic.history[n-1])
		f.wake(0)
	})
}

func (f *follower) wake(d time.Duration) {
	if f.due || f.over || !f.started || f.next >= len(f.topic.history) {
		return
	}
	f.due = true
	f.p.later(d, f.pump)
}

func (f *follower) pump() {
	w := f.p.w
	f.due = false
	if f.over {
		return
	}
	until := f.stalled
	if f.p.noStore.After(until) {
		until = f.p.noStore
	}
	if w.now.Before(until) {
		f.wake(until.Sub(w.now))
		return
	}
	if f.topic.revisions[f.next] < w.store.Compacted() {
		w.count("store watches compacted")
		f.read()
		return
	}
	if w.some(4) {
		f.next = len(f.topic.history) - 1 // it read anew
	}
	f.next++
	f.deliver(f.topic.history[f.next-1])
	f.wake(w.between(0, 2*time.Millisecond))
}

// hurry makes it read anew: somebody met a newer value.
func (f *follower) hurry() {
	f.stalled = time.Time{}
	f.wake(f.p.w.delay())
}

func (f *follower) end() {
	f.over = true
	f.topic.followers = slices.DeleteFunc(f.topic.followers, func(o *follower) bool { return o == f })
}

// definite sends a request again until it is answered. Only for what may be done twice.
func definite[R any](p *process, s *server, kind string, do func() R, done func(R)) {
	var r R
	p.call(s, kind, 5*time.Second, func() { r = do() }, func(answered bool) {
		if answered {
			done(r)
			return
		}
		p.later(p.w.between(20*time.Millisecond, time.Second), func() { definite(p, s, kind, do, done) })
	})
}
