package sim

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	core "basalt.dev/basalt/coordinator"
	"basalt.dev/basalt/coordinator/effect"
	"basalt.dev/basalt/coordinator/leadership"
)

// coordinator is what coordinator/server is around its core: it does what package leadership says.
type coordinator struct {
	*process
	terms    *leadership.Terms
	suspects *leadership.Suspicions
	term     *term  // nil while it does not lead
	held     *held  // the lease of the newest term
	vacant   func() // what waits for the leader's key to be gone
	leaders  *follower
}

// term is one term of a coordinator.
type term struct {
	c       *coordinator
	over    bool
	due     time.Time // then the core is stepped
	number  int64
	own     *protocol.Term
	core    *core.Core // nil until the state was loaded
	shards  leadership.Members
	members *follower
	queues  *watcher
	cfg     core.Config
	keeping kept
}

// kept is for how long quota was kept free for gangs without a pause.
type kept struct{ since, until time.Time }

func (w *world) startCoordinator(name string) *coordinator {
	c := &coordinator{process: w.newProcess(name), terms: leadership.New(), suspects: leadership.NewSuspicions()}
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
		if c.leader = v.(leading).inc; c.leader == "" {
			c.absent()
		}
	})
	c.proceed()
	c.later(probeEvery, c.live)
	return c
}

// await calls campaign once nobody leads.
func (c *coordinator) await(campaign func()) {
	s := c.w.store
	c.vacant = campaign
	definite(c.process, &s.server, "lease", func() bool { return s.Keys[keys.Leader()] == nil }, func(free bool) {
		if free {
			c.absent()
		}
	})
}

// absent goes on with a campaign that waits.
func (c *coordinator) absent() {
	if campaign := c.vacant; campaign != nil {
		c.vacant = nil
		campaign()
	}
}

// proceed does the next step.
func (c *coordinator) proceed() {
	w := c.w
	switch c.terms.Step() {
	case leadership.Campaign:
		m, err := protocol.NewCampaign(keys, &wire.LeaderRecord{Incarnation: string(c.inc), Name: c.name, Address: string(c.inc)})
		if err != nil {
			w.fail("%s: %v", c.inc, err)
		}
		c.acquire(m, c.await, func(h *held) {
			own := m.Term()
			c.held, c.term = h, &term{c: c, number: own.Number(), own: own}
			c.terms.Won(w.now, own.Number(), false)
			w.log("%s leads term %d", c.inc, own.Number())
			c.proceed()
		})
	case leadership.Lead:
		t := c.term
		c.suspects.TermBegins()
		if c.held.ended = t.end; c.held.over {
			t.end(protocol.ErrFenced)
			return
		}
		c.later(leadership.LoadWithin, func() {
			if t.core == nil {
				t.end(errors.New("the state was not loaded in time"))
			}
		})
		t.load()
	case leadership.Resign:
		c.held.revoke(leadership.ResignWithin, func() {
			c.terms.Resigned(nil)
			c.proceed()
		})
	case leadership.Pause:
		c.later(c.terms.Wait(), func() {
			c.terms.Paused(false)
			c.proceed()
		})
	default:
		w.fail("%s: %v: %v", c.inc, c.terms.Step(), c.terms.Err())
	}
}

// probeEvery is about a second, and never at the moment of anything else.
const probeEvery = 997 * time.Millisecond

// live is the liveness probe: a process that fails it keeps the others from leading.
func (c *coordinator) live() {
	c.later(probeEvery, c.live)
	if err := c.terms.Stuck(c.w.now, c.held != nil && !c.held.over); err != nil {
		c.w.fail("I13: %s fails its liveness probe: %v", c.inc, err)
	}
}

// end ends a term.
func (t *term) end(why error) {
	if t.over {
		return
	}
	t.over = true
	c := t.c
	if t.core != nil {
		c.unwatch(t.members, t.queues)
	}
	c.w.log("%s: term %d is over: %v", c.inc, t.number, why)
	c.term = nil
	c.terms.Ended(c.w.now, leadership.End{Err: why})
	c.proceed()
}

// drive runs a machine of the term while that lasts.
func (t *term) drive(m interface {
	protocol.Machine
	Fenced() error
}, done func()) {
	t.c.drive("grants", m, func() bool { return t.over }, func(err error) {
		if err == nil {
			err = m.Fenced()
		}
		if err != nil {
			t.end(err)
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
				if q := o.Object.(*v1beta1.Queue); q.Status != nil {
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
	t.cfg = w.load.limits
	t.cfg.CommitEvery = w.load.gatherGrants
	t.core = core.New(t.cfg, e)
	c.terms.Runs()
	t.shards = leadership.NewMembers(e.Shards)
	t.outputs()
	t.members = c.follow(w.store.members, func(v any) {
		for _, ev := range t.shards.Changed(v.([]*wire.ShardRecord)) {
			t.step(ev)
		}
	})
	t.queues = c.watch(w.api.queues, &watcher{
		seen:  func(o object) { t.step(effect.QueueSeen(o.Object.(*v1beta1.Queue))) },
		gone:  func(o object) { t.step(core.QueueGone{Name: o.GetName(), UID: string(o.GetUID())}) },
		first: func() { t.step(core.QueuesSynced{}) },
	})
	t.showNamespace()
	var tick func()
	tick = func() {
		if !t.over {
			c.later(100*time.Millisecond, tick)
			t.step(core.Tick{})
			t.passes()
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

func (t *term) step(ev core.Event) {
	if t.over || t.c.dead {
		return
	}
	t.core.Step(t.c.w.now, ev)
	t.outputs()
}

func (t *term) outputs() {
	for _, o := range t.core.Outputs() {
		t.c.w.output(t.c.inc, o)
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
		w.check.said(t, o)
		if c.book[o.To] {
			w.net.send(c.process, w.process(o.To), o.Body)
		}
	case core.Txn:
		w.check.decides(t, o)
		m, err := t.own.Commit(effect.Changes(o.Ops))
		if err != nil {
			w.fail("%s: commit: %v", c.inc, err)
		}
		t.bounded(m)
		t.drive(m, func() { t.step(core.TxnDone{ID: o.ID, Revision: m.Revision}) })
	case core.SetFinalizer:
		attempt(func() { w.api.setFinalizer(o.Queue, o.UID, true) })
	case core.RemoveFinalizer:
		attempt(func() { w.api.setFinalizer(o.Queue, o.UID, false) })
	case core.CreateQueue:
		attempt(func() {
			if w.api.queue(o.Name) == nil {
				w.api.create(w.api.queues, &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: o.Name}})
			}
		})
	case core.Log:
		w.coreLog(c.inc, slog.Level(o.Level), o.Message, o.Args)
	case core.Remark:
	default:
		w.fail("output %T is not known", o)
	}
}

// bounded judges that a transaction of more than one operation has no more bytes than it may.
func (t *term) bounded(m *protocol.Commit) {
	n, bytes := m.Size()
	if most := t.cfg.BatchBytes; most > 0 && bytes > most && n > 1 {
		t.c.w.fail("A3: %s: a transaction has %d operations of %d bytes, at most %d are meant", t.c.inc, n, bytes, most)
	}
}

// passes judges that what is kept for large gangs is given up at times. A process that is paused is not judged.
func (t *term) passes() {
	now, k := t.c.w.now, &t.keeping
	if t.over || t.cfg.EarmarkFor == 0 || t.core.Counts().Earmarks == 0 || now.Sub(k.until) > time.Second {
		*k = kept{since: now, until: now}
		return
	}
	if k.until = now; now.Sub(k.since) > 8*t.cfg.EarmarkFor+time.Second {
		t.c.w.fail("A6: %s: quota is kept free since %s, and nobody else is admitted", t.c.inc, k.since.Sub(t.c.w.start))
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

// suspect calls a shard that is said to be gone.
func (c *coordinator) suspect(who api.Incarnation) {
	if c.leads() == nil || !c.book[who] || !c.suspects.Suspect(who) {
		return
	}
	var call func()
	call = func() {
		if !c.suspects.Called(who, c.answers(who)) {
			return
		}
		c.later(leadership.CallAgain, func() {
			if !c.suspects.Waited(who) {
				c.later(c.w.between(0, 500*time.Millisecond), call) // until the call has failed
				return
			}
			c.w.log("%s: %s does not answer", c.inc, who)
			c.w.count("shards taken for dead")
			if t := c.leads(); t != nil {
				t.step(core.ShardDown{Incarnation: who})
			}
		})
	}
	c.later(c.w.delay(), call)
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

// revise takes suspicions back.
func (t *term) revise() {
	c := t.c
	c.later(leadership.ReviseEvery, func() {
		if t.over {
			return
		}
		t.revise()
		for _, who := range c.suspects.Down() {
			if !c.suspects.Revised(who, c.book[who], c.answers(who)) {
				continue
			}
			if r := t.shards[who]; r != nil {
				c.w.log("%s: %s answers again", c.inc, who)
				t.step(core.ShardUp{Record: r})
			}
		}
	})
}
