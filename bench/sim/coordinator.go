package sim

import (
	"log/slog"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/api/wire"
	core "basalt.dev/basalt/coordinator"
	"basalt.dev/basalt/coordinator/effect"
)

// coordinator is what coordinator/process is around its core: it campaigns, leads, and campaigns again.
type coordinator struct {
	*process
	term     *term
	awaiting bool // the leader's key to be gone
	leaders  *follower
	suspects map[api.Incarnation]bool
	down     map[api.Incarnation]bool
}

// term is one time in office.
type term struct {
	c         *coordinator
	over      bool
	due       time.Time // then the core is stepped
	number    int64
	own       *protocol.Term
	lease     int64
	confirmed time.Time
	core      *core.Core // nil until the state was loaded
	before    map[string]*wire.ShardRecord
	members   *follower
	queues    *watcher
}

func (w *world) startCoordinator(name string) *coordinator {
	c := &coordinator{process: w.newProcess(name), suspects: map[api.Incarnation]bool{}, down: map[api.Incarnation]bool{}}
	w.coords = append(w.coords, c)
	w.log("%s starts", c.inc)
	c.onDeath = func() {
		w.coords = slices.DeleteFunc(w.coords, func(o *coordinator) bool { return o == c })
		if c.term != nil {
			c.term.over = true
		}
		w.load.coordinatorEnded(c)
	}
	c.follow(w.store.members, func(v any) {
		clear(c.book)
		for _, r := range v.([]*wire.ShardRecord) {
			c.book[api.Incarnation(r.Incarnation)] = true
		}
	})
	c.leaders = c.follow(w.store.leaders, func(v any) {
		c.leader = v.(leading).inc
		if c.awaiting && c.leader == "" {
			c.campaign()
		}
	})
	c.await()
	return c
}

// await waits until nobody leads.
func (c *coordinator) await() {
	s := c.w.store
	c.awaiting = true
	definite(c.process, &s.server, "lease", func() bool { return s.Keys[keys.Leader()] == nil }, func(free bool) {
		if free && c.awaiting {
			c.campaign()
		}
	})
}

func (c *coordinator) campaign() {
	s := c.w.store
	c.awaiting = false
	var asked time.Time
	definite(c.process, &s.server, "lease", func() int64 { asked = c.w.now; return s.grant(leaseTTL) }, func(id int64) {
		t := &term{c: c, lease: id, confirmed: asked}
		t.keepAlive()
		value := c.w.encode(keys.Leader(), &wire.LeaderRecord{Incarnation: string(c.inc), Name: c.name, Address: string(c.inc)})
		m := protocol.NewCreate(keys.Leader(), value, id)
		c.drive("lease", m, never, func() {
			if m.Revision == 0 {
				t.over = true
				c.call(&s.server, "lease", leaseTTL, func() { s.revoke(id) }, func(bool) { c.await() })
				return
			}
			t.number, t.own = m.Revision, protocol.NewTerm(keys, m.Revision)
			c.w.log("%s leads term %d", c.inc, t.number)
			if c.term = t; t.over { // the lease was over meanwhile
				c.term = nil
				c.await()
				return
			}
			t.load()
		})
	})
}

// end gives a term up.
func (t *term) end(why string) {
	if t.over {
		return
	}
	t.over = true
	if t.core != nil {
		t.c.unwatch(t.members, t.queues)
	}
	t.c.w.log("%s: term %d is over: %s", t.c.inc, t.number, why)
	if t.c.term == t {
		t.c.term = nil
		t.c.later(t.c.w.between(0, 100*time.Millisecond), t.c.await)
	}
}

// keepAlive is strict: without an answer for as long as the lease lasts, it is over.
func (t *term) keepAlive() {
	c, s := t.c, t.c.w.store
	c.later(leaseTTL/3, func() {
		if t.over {
			return
		}
		alive, asked := true, c.w.now
		c.call(&s.server, "lease", leaseTTL/3, func() { alive = s.keepAlive(t.lease) }, func(answered bool) {
			switch {
			case answered && !alive:
				t.end("the lease is over")
			case answered:
				t.confirmed = asked
				t.keepAlive()
			case c.w.now.Sub(t.confirmed) >= leaseTTL:
				t.end("the lease was not confirmed in time")
			default:
				t.keepAlive()
			}
		})
	})
}

// drive runs a machine of the term while that lasts.
func (t *term) drive(m interface {
	protocol.Machine
	Fenced() error
}, done func()) {
	t.c.drive("grants", m, func() bool { return t.over }, func() {
		if err := m.Fenced(); err != nil {
			t.end(err.Error())
			return
		}
		done()
	})
}

// load begins the term.
func (t *term) load() {
	m := t.own.Load()
	t.drive(m, func() {
		t.c.readable(m.State.Corrupt)
		t.loaded(effect.Elected(&m.State))
	})
}

// loaded begins with the state. Reading it takes some time, and the statuses of Queues too.
func (t *term) loaded(e core.Elected) {
	c := t.c
	c.later(c.w.delay(), func() {
		var epoch api.Epoch
		c.call(&c.w.api.server, "list", 3*time.Second, func() {
			epoch = 0
			for _, o := range c.w.api.queues.objects {
				if q := o.Object.(*v1alpha1.Queue); q.Status != nil {
					epoch = max(epoch, api.Epoch(q.Status.Epoch))
				}
			}
		}, func(answered bool) {
			if answered {
				e.MaxStatusEpoch = epoch
			}
			t.lead(e)
		})
	})
}

func (t *term) lead(e core.Elected) {
	c, w := t.c, t.c.w
	if t.over {
		return
	}
	e.Now, e.Term, e.Incarnation = w.now, t.number, c.inc
	t.core = core.New(core.Config{CommitEvery: w.load.gatherGrants}, e)
	c.down = map[api.Incarnation]bool{}
	t.before = map[string]*wire.ShardRecord{}
	for _, r := range e.Shards {
		t.before[r.Incarnation] = r
	}
	t.outputs()
	t.members = c.follow(w.store.members, func(v any) { t.shardsChanged(v.([]*wire.ShardRecord)) })
	t.queues = c.watch(w.api.queues, &watcher{
		seen:  func(o object) { t.step(effect.QueueSeen(o.Object.(*v1alpha1.Queue))) },
		gone:  func(o object) { t.step(core.QueueGone{Name: o.GetName(), UID: string(o.GetUID())}) },
		first: func() { t.step(core.QueuesSynced{}) },
	})
	t.showNamespace()
	var tick func()
	tick = func() {
		if !t.over {
			c.later(100*time.Millisecond, tick)
			t.step(core.Tick{})
		}
	}
	c.later(100*time.Millisecond, tick)
	t.revise()
}

// showNamespace tells of the one namespace as it is when the watch comes to it.
func (t *term) showNamespace() {
	w := t.c.w
	t.c.later(w.between(0, namespaceLag), func() {
		t.step(core.NamespaceSeen{Name: "ns", Labels: w.load.namespaceLabels()})
		t.step(core.NamespacesSynced{})
	})
}

// namespaceLag bounds how late a term hears of a label, in the time of a process that runs.
const namespaceLag = 500 * time.Millisecond

func (t *term) shardsChanged(now []*wire.ShardRecord) {
	after := map[string]*wire.ShardRecord{}
	for _, r := range now {
		after[r.Incarnation] = r
		if old := t.before[r.Incarnation]; old == nil || old.Draining != r.Draining {
			t.step(core.ShardUp{Record: r})
		}
	}
	for _, id := range sortedKeys(t.before) {
		if after[id] == nil {
			t.step(core.ShardDown{Incarnation: api.Incarnation(id)})
		}
	}
	t.before = after
}

func (t *term) step(ev core.Event) {
	if t.over || t.c.dead {
		return
	}
	t.core.Step(t.c.w.now, ev)
	t.outputs()
}

func (t *term) outputs() {
	for _, o := range t.core.Outputs() {
		if t.c.burn() {
			return
		}
		t.carryOut(o)
	}
	if at := t.core.Due(); !at.Equal(t.due) {
		if t.due = at; !at.IsZero() {
			t.c.later(at.Sub(t.c.w.now), func() {
				if t.due.Equal(at) {
					t.step(core.Gathered{})
				}
			})
		}
	}
}

func (t *term) carryOut(o core.Output) {
	c, w := t.c, t.c.w
	attempt := func(do func()) { c.call(&w.api.server, "write", apiPatience, do, func(bool) {}) }
	switch o := o.(type) {
	case core.Send:
		if c.book[o.To] {
			w.net.send(c.process, w.process(o.To), o.Body)
		}
	case core.Txn:
		m, err := t.own.Commit(effect.Changes(o.Ops))
		if err != nil {
			w.fail("%s: commit: %v", c.inc, err)
		}
		t.drive(m, func() { t.step(core.TxnDone{ID: o.ID, Revision: m.Revision}) })
	case core.SetFinalizer:
		attempt(func() { w.api.setFinalizer(o.Queue, o.UID, true) })
	case core.RemoveFinalizer:
		attempt(func() { w.api.setFinalizer(o.Queue, o.UID, false) })
	case core.CreateQueue:
		attempt(func() {
			if w.api.queue(o.Name) == nil {
				w.api.create(w.api.queues, &v1alpha1.Queue{ObjectMeta: metav1.ObjectMeta{Name: o.Name}})
			}
		})
	case core.Log:
		w.coreLog(c.inc, slog.Level(o.Level), o.Message, o.Args)
	case core.Trace:
	default:
		w.fail("output %T is not known", o)
	}
}

func (c *coordinator) leads() *term {
	if c.term != nil && c.term.core != nil {
		return c.term
	}
	return nil
}

func (c *coordinator) hear(from api.Incarnation, body *wire.Envelope) {
	if t := c.leads(); t != nil {
		t.step(core.Message{From: from, Body: body})
	}
}

func (c *coordinator) linked(peer api.Incarnation) {
	if t := c.leads(); t != nil {
		t.step(core.ShardLinked{Incarnation: peer})
	}
}

// suspect calls a shard that is said to be gone, three times.
func (c *coordinator) suspect(who api.Incarnation) {
	if c.leads() == nil || c.suspects[who] || !c.book[who] {
		return
	}
	c.suspects[who] = true
	tries := 0
	var try func()
	try = func() {
		if c.answers(who) {
			delete(c.suspects, who)
			return
		}
		if tries++; tries < 3 {
			c.later(c.w.between(300*time.Millisecond, 800*time.Millisecond), try)
			return
		}
		delete(c.suspects, who)
		c.down[who] = true
		c.w.log("%s: %s does not answer", c.inc, who)
		c.w.count("shards taken for dead")
		if t := c.leads(); t != nil {
			t.step(core.ShardDown{Incarnation: who})
		}
	}
	c.later(c.w.delay(), try)
}

// answers reports whether a call reaches a shard now.
func (c *coordinator) answers(who api.Incarnation) bool {
	p := c.w.process(who)
	if p == nil || p.paused {
		return false
	}
	for _, pair := range [][2]api.Incarnation{{c.inc, who}, {who, c.inc}} {
		if n := c.w.net.conns[pair]; n != nil && c.w.now.Before(n.cut) {
			return false
		}
	}
	return true
}

// revise takes suspicions back, every three seconds.
func (t *term) revise() {
	c := t.c
	c.later(3*time.Second, func() {
		if t.over {
			return
		}
		t.revise()
		for _, who := range sortedKeys(c.down) {
			if c.book[who] && !c.answers(who) {
				continue
			}
			delete(c.down, who)
			if !c.book[who] {
				continue
			}
			if r := t.before[string(who)]; r != nil {
				c.w.log("%s: %s answers again", c.inc, who)
				t.step(core.ShardUp{Record: r})
			}
		}
	})
}
