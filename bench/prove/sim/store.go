package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/utils/ptr"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/model"
	"basalt.dev/basalt/shard/event"
)

// store is the control store: a model of etcd, and a runner of the machines of package api/store/protocol over it. When a lease
// runs out is here, too.
type store struct {
	server
	*model.Store[proto.Message]
	w       *world
	leases  map[int64]*lease
	made    int64 // leases
	tables  *topic
	leaders *topic
	members *topic    // of shards/
	log     *topic    // of intents
	pages   bool      // what is read at one revision takes several requests
	limit   int       // bytes that it takes of the values of one transaction; 0 for no limit
	limited time.Time // until then, unless it is limited anew
}

// record is a key with its value, which is not changed once it is here.
type record = model.KV[proto.Message]

type lease struct {
	ttl     time.Duration
	expires time.Time
}

const keys = protocol.Keys("")

func newStore(w *world) *store {
	s := &store{w: w, Store: model.NewStore(proto.Equal), leases: map[int64]*lease{},
		tables: newTopic(w, (*api.Table)(nil)), leaders: newTopic(w, leading{}), members: newTopic(w, []*wire.ShardRecord(nil))}
	s.log = newTopic(w, event.LogSeen{})
	s.log.anew = func() any { return s.logAll() }
	s.Changed = s.changed
	return s
}

// leading is what the leader's key says.
type leading struct {
	inc  api.Incarnation
	term int64
}

func (s *store) table() *api.Table { return s.tables.newest().(*api.Table) }

// with returns the keys that begin so, sorted.
func (s *store) with(prefix string) []string { return s.With(prefix) }

// carry carries a transaction out, and has what it writes judged before and after.
func (s *store) carry(t protocol.Txn) protocol.Result {
	w := s.w
	do := func(t protocol.Txn) protocol.Result {
		r, err := model.Carry(s.Store, t)
		if err != nil {
			w.fail("transaction %+v: %v", t, err)
		}
		return r
	}
	if _, read := t.PlainRead(); read {
		r := do(t)
		if r.Failure == protocol.Compacted {
			w.count("reads compacted")
		}
		return r
	}
	if !do(protocol.Txn{If: t.If}).Succeeded {
		return do(t)
	}
	for _, o := range t.Then {
		w.check.beforeStore(o, s.Keys[o.Key])
	}
	r := do(t)
	for _, o := range t.Then {
		if r.Succeeded {
			w.check.afterStore(o)
		}
	}
	return r
}

// errRefused is what a client of the store returns for a request that is too large for it.
var errRefused = errors.New("etcdserver: request is too large")

// refuses reports whether the store finds a transaction too large: nothing of it is carried out.
func (s *store) refuses(t protocol.Txn) bool {
	size := 0
	for _, o := range t.Then {
		size += len(o.Value.Bytes)
	}
	return s.limit > 0 && size > s.limit
}

// drive runs a machine of the store's protocol, as package api/store does over etcd's client, until it is done, the store
// refuses its transaction for good, or over says that nobody waits for it. What it reads after another answer takes a request of
// its own only with pages.
func (p *process) drive(kind string, m protocol.Machine, over func() bool, done func(error)) {
	p.request(kind, m, over, done, false)
}

func (p *process) request(kind string, m protocol.Machine, over func() bool, done func(error), answered bool) {
	w, s := p.w, p.w.store
	if over() {
		return
	}
	t, more := m.Next()
	_, read := t.PlainRead()
	for more && read && answered && !s.pages {
		m.Answered(s.carry(t))
		t, more = m.Next()
		_, read = t.PlainRead()
	}
	if !more {
		done(nil)
		return
	}
	asked := kind
	if read {
		asked = "read"
	}
	var r protocol.Result
	refused := false
	p.call(&s.server, asked, storeTry, func() {
		if refused = s.refuses(t); !refused {
			r = s.carry(t)
		}
	}, func(answered bool) {
		unsettled, is := m.(interface {
			Fenced() error
			Open() bool
		})
		switch {
		case over():
		case answered && refused && !(is && unsettled.Open()): // a term settles what was lost before
			w.count("requests refused as too large")
			done(errRefused)
		case answered && !refused:
			m.Answered(r)
			p.request(kind, m, over, done, true)
		default:
			m.Lost()
			p.later(w.between(20*time.Millisecond, time.Second), func() { p.request(kind, m, over, done, false) })
		}
	})
}

// never is the over of a machine that a process waits for as long as it lives.
func never() bool { return false }

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
		if e.Key != keys.Sequence() {
			w.log("store %d: %s %s", e.Mod, e.Key, describeRecord(e.Value))
		}
	}
	w.audit.Observe(w.now, seen)
	w.heard()
	w.check.firstCharges(events)
	w.check.rights(events)
	w.check.yielded(events)
	members := false
	for _, e := range events {
		switch {
		case e.Key == keys.Table():
			t, err := wire.ToTable(e.Value.(*wire.TableRecord), e.Mod)
			if err != nil {
				w.fail("table: %v", err)
			}
			s.tables.publish(t, e.Mod)
			w.count("tables")
		case e.Key == keys.Leader():
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
	if change, is := s.logChange(events); is {
		s.log.publish(change, s.Revision())
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

// describePolicy is in words that are the same each time, which those of protobuf are not.
func describePolicy(p *wire.QueuePolicy) string {
	if p == nil {
		return ""
	}
	text := fmt.Sprintf("kept %t reclaim %d", p.Kept, p.Reclaim)
	if p.Preempts != nil {
		text += fmt.Sprintf(" preempts %t", *p.Preempts)
	}
	for i, ms := range []*int64{p.ReclaimMinRuntimeMs, p.PreemptMinRuntimeMs, p.PreemptionDelayMs} {
		if ms != nil {
			text += fmt.Sprintf(" %s %d ms", []string{"reclaim after", "preempt after", "delay"}[i], *ms)
		}
	}
	return text
}

func describeRecord(m proto.Message) string {
	switch m := m.(type) {
	case *wire.ReservationRecord:
		d, _ := wire.ToResources(m.Demand)
		text := fmt.Sprintf("%s attempt %d demand %s rank %d/%d forced %t state %s", m.Gang.Queue, m.Attempt, d, m.Rank.GetPriority(), m.Rank.GetOrder(), m.Forced, m.State)
		if c := m.Claim; c != nil {
			promised, _ := wire.ToResources(c.Promised)
			text += fmt.Sprintf(" claim %d %s of %s from", c.Mandate, c.Rule, promised)
			for _, v := range c.Victims {
				text += fmt.Sprintf(" %s/%d", v.GetGang().GetUid(), v.GetAttempt())
			}
		}
		if len(m.Awaits) > 0 {
			text += " awaits " + strings.Join(m.Awaits, " ")
		}
		if m.Yields != nil {
			text += fmt.Sprintf(" yields to %s by %s", m.Yields.GetTo().GetUid(), m.Yields.Rule)
		}
		return text
	case *wire.IntentsRecord:
		var b strings.Builder
		for _, r := range m.Rows {
			fmt.Fprintf(&b, "%s@%s->%s ", r.PodUid, r.PodResourceVersion, r.Node)
		}
		return b.String()
	case *wire.LimitsRecord:
		c, _ := wire.ToResources(m.Capability)
		g, _ := wire.ToResources(m.Guarantee)
		d, _ := wire.ToResources(m.Deserved)
		return fmt.Sprintf("uid %s version %s capability %s guarantee %s deserved %s weight %d priority %d policy {%s} closed %t deleted %t", m.Uid, m.ResourceVersion, c, g, d, ptr.Deref(m.Weight, 1), m.Priority, describePolicy(m.Policy), m.Closed, m.Deleted)
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

// keepAlive reports whether the lease still exists.
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

// byGang returns all records by the UIDs of their gangs.
func (s *store) byGang() map[string]*wire.ReservationRecord {
	all := map[string]*wire.ReservationRecord{}
	for _, r := range s.reservations() {
		all[r.Gang.Uid] = r
	}
	return all
}

// held is a lease that a process keeps alive.
type held struct {
	*protocol.Lease
	p     *process
	over  bool            // or given back
	ended func(why error) // called when it is over, unless it was given back
}

func (h *held) keep() {
	p, s := h.p, h.p.w.store
	p.later(h.Every(), func() {
		if h.over {
			return
		}
		asked, answer, alive := p.w.now, protocol.Unanswered, false
		p.call(&s.server, "lease", h.Every(), func() { alive = s.keepAlive(h.ID()) }, func(answered bool) {
			switch {
			case h.over:
				return
			case answered && alive:
				answer = protocol.KeptAlive
			case answered:
				answer = protocol.LeaseOver
			}
			why := h.Kept(asked, p.w.now, answer)
			if why == nil {
				h.keep()
				return
			}
			if h.over = true; h.ended != nil {
				h.ended(why)
			}
		})
	})
}

// revoke gives the lease back, as far as one request can.
func (h *held) revoke(within time.Duration, done func()) {
	s := h.p.w.store
	h.over = true
	h.p.call(&s.server, "lease", within, func() { s.revoke(h.ID()) }, func(bool) { done() })
}

// acquire runs a machine that makes a key of the process's own, as package api/store does. absent calls its argument once the key
// is absent.
func (p *process) acquire(m *protocol.Acquire, absent func(func()), done func(*held)) {
	w, s := p.w, p.w.store
	var h *held
	var next func()
	next = func() {
		switch m.Step() {
		case protocol.AwaitAbsent:
			absent(func() { m.Absent(); next() })
		case protocol.GrantLease:
			if h != nil {
				h.over = true
			}
			asked, id := w.now, int64(0)
			p.call(&s.server, "lease", storeTry, func() { id = s.grant(leaseTTL) }, func(answered bool) {
				if !answered {
					p.later(w.between(20*time.Millisecond, time.Second), next)
					return
				}
				h = &held{Lease: m.Granted(id, leaseTTL, asked), p: p}
				h.keep()
				next()
			})
		case protocol.CreateKey:
			p.drive("lease", m.Create(), never, func(err error) { m.Created(err, err != nil); next() })
		case protocol.RevokeLease:
			h.revoke(leaseTTL, func() { m.Revoked(); next() })
		case protocol.WaitAgain:
			p.later(w.between(20*time.Millisecond, time.Second), func() { m.Waited(); next() })
		case protocol.Acquired:
			done(h)
		default:
			w.fail("%s: %v", p.inc, m.Err())
		}
	}
	next()
}

// ---- watches

// topic is something in the store that processes follow as a whole: each value, or only the newest.
type topic struct {
	w         *world
	history   []any
	revisions []int64 // of each
	followers []*follower
	anew      func() any // what a read shows, of a topic that is followed change by change
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
	type found struct {
		n int
		v any
	}
	definite(f.p, &f.p.w.store.server, "read", func() found {
		n, v := len(f.topic.history), f.topic.newest()
		if f.topic.anew != nil {
			v = f.topic.anew()
		}
		return found{n, v}
	}, func(r found) {
		if f.over {
			return
		}
		f.started, f.next = true, r.n
		f.deliver(r.v)
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
	switch {
	case f.topic.anew == nil && w.some(4):
		f.next = len(f.topic.history) - 1 // it read anew
	case f.topic.anew != nil && w.some(400):
		f.read()
		return
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
