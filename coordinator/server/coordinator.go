// Package server is the shell around the coordinator's core: the process `basalt coordinator`. It decides nothing.
//
// Several processes run, and one of them leads. A term is: win the election, read the state at one revision, create a core from
// it, and step the core on one goroutine until the term ends, for whatever reason. Then the core is dropped with all of its
// state; everything that matters is in the control store. When to campaign, lead and resign, which shards are taken for down,
// and whether the process is healthy, package leadership decides. /livez fails, too, if the loop of the term is stuck.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/build"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/process"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/coordinator"
	"basalt.dev/basalt/coordinator/effect"
	"basalt.dev/basalt/coordinator/leadership"
	"basalt.dev/basalt/coordinator/owners"
)

// Options of a coordinator.
type Options struct {
	Process process.Options
	Config  coordinator.Config
	Volcano string // "off", "observe": Queues say what Volcano's say; or "write": Volcano's say what is charged, too
}

// gather is the shortest time between two transactions that are not full: it adds little to the wait of a gang, and makes
// transactions of many shards' requests of what would be one each. What is granted together is committed together, too.
const gather = 25 * time.Millisecond

// Run runs a coordinator until ctx ends, which is no error, or until it must start over.
func Run(ctx context.Context, o Options) error {
	stopping := ctx
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := api.CheckVolcano(cmp.Or(o.Volcano, "off")); err != nil {
		return err
	}
	o.Config.CommitEvery = cmp.Or(o.Config.CommitEvery, gather)

	c := &candidate{options: o, started: make(chan struct{}), suspects: leadership.NewSuspicions(),
		questions: wait.NewTurns(questionsPerSecond, questionsAtOnce, questionsWaiting)}
	p, err := process.Start(stopping, o.Process, process.Hooks{
		Deliver: func(from api.Incarnation, body *wire.Envelope) {
			<-c.started
			c.post(ctx, coordinator.Message{From: from, Body: body})
		},
		Up:       func(who api.Incarnation) { <-c.started; c.post(ctx, coordinator.ShardLinked{Incarnation: who}) },
		Down:     func(who api.Incarnation) { <-c.started; c.suspect(ctx, who) },
		Dead:     func(who api.Incarnation) { <-c.started; c.suspect(ctx, who) },
		Status:   c.status,
		Standing: c.standing,
		WhatIf:   c.whatIf,
		Queues:   c.queues,
		Live:     c.live,
	})
	if err != nil {
		return err
	}
	defer p.Close()
	c.process, c.metrics = p, newMetrics(p.Registry)
	close(c.started)

	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	p.Follow(ctx, &wg, nil, nil)
	wg.Go(func() { c.metrics.followStore(ctx, p.Store) })

	record := &wire.LeaderRecord{Incarnation: string(p.Incarnation), Name: p.Name, Address: p.Address, Key: p.PublicKey(),
		Protocol: wire.Protocol, Version: build.Current().Short()}
	return c.terms(stopping, record, func(held *store.Term) error { return c.lead(ctx, stopping, held) })
}

// candidate is a coordinator that leads at times.
type candidate struct {
	options Options
	process *process.Process
	metrics *metrics
	started chan struct{}
	beat    process.Heartbeat // of the term's loop
	office  office

	questions *wait.Turns

	mu       sync.Mutex
	term     *term // nil while another leads
	suspects *leadership.Suspicions
}

// term is one time in office.
type term struct {
	*store.Term
	clients *kube.Clients
	log     *slog.Logger
	began   time.Time
	inbox   chan item
	done    <-chan struct{}
}

type item struct {
	event coordinator.Event
	ask   func(*coordinator.Core)
}

// lead runs one term to its end.
func (c *candidate) lead(ctx, stopping context.Context, held *store.Term) error {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()

	// Shards speak to a new leader as soon as they see its key: what they say waits until there is a core to hear it.
	t := &term{Term: held, clients: c.process.Kube, log: c.process.Log.With("term", held.Number()), began: fault.Now(),
		inbox: make(chan item, 16384), done: ctx.Done()}
	c.mu.Lock()
	c.term = t
	c.suspects.TermBegins()
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		c.term = nil
		c.mu.Unlock()
		c.metrics.termEnds()
	}()

	within, loaded := context.WithTimeout(ctx, leadership.LoadWithin)
	state, err := held.Load(within)
	loaded()
	if err != nil {
		return fmt.Errorf("load the state: %w", err)
	}
	for _, bad := range state.Corrupt {
		c.process.Log.Error("cannot decode a control store record, leaving its subject untouched", "key", bad.Key, "error", bad.Err)
	}
	fault.Crash(fault.TermLoaded)
	core := coordinator.New(c.options.Config, elected(c.process, held, state, c.maxStatusEpoch(ctx)))
	t.log.Info("leading", "reservations", len(state.Reservations), "limits", len(state.Limits), "shards", len(state.Shards))

	c.metrics.termBegins()
	c.beat.Beat()
	defer c.beat.Stop()
	c.office.do((*leadership.Terms).Runs)

	wg.Go(func() { t.followQueues(ctx) })
	wg.Go(func() { t.followNamespaces(ctx) })
	if mode := c.options.Volcano; mode == "observe" || mode == "write" {
		wg.Go(func() { t.followVolcano(ctx, mode == "write") })
	}
	wg.Go(func() { _ = c.process.Store.WatchShards(ctx, t.shardsChanged(ctx, state.Shards)) })
	wg.Go(func() { c.reviseSuspicions(ctx) })

	commits := make(chan coordinator.Txn, 1) // the core has one in flight at most
	failed := make(chan error, 1)
	wg.Go(func() {
		for {
			select {
			case <-ctx.Done():
				return
			case txn := <-commits:
				began := time.Now()
				fault.CrashSoon(fault.CommitSent)
				revision, err := held.Commit(ctx, effect.Changes(txn.Ops))
				if err != nil {
					failed <- fmt.Errorf("commit: %w", err)
					return
				}
				crashAfter(txn.Ops)
				c.metrics.transaction(len(txn.Ops), time.Since(began))
				t.post(ctx, coordinator.TxnDone{ID: txn.ID, Revision: revision})
			}
		}
	})

	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	gathered := time.NewTimer(0)
	gathered.Stop()
	var due time.Time // at which gathered is set
	step := func(ev coordinator.Event) {
		began := time.Now()
		core.Step(fault.Now(), ev)
		c.metrics.steps.Observe(time.Since(began).Seconds())
		if at := core.Due(); !at.Equal(due) {
			if due = at; !at.IsZero() {
				gathered.Reset(time.Until(at))
			}
		}
		for _, o := range core.Outputs() {
			c.carryOut(ctx, &wg, t, o, commits)
		}
		c.metrics.granted(core.Waits())
		c.metrics.claims(core.Claims)
	}
	for {
		select {
		case <-stopping.Done():
			return nil
		case <-held.Done():
			return protocol.ErrFenced
		case err := <-failed:
			return err
		case err := <-c.process.Store.Lost():
			return err
		case <-gathered.C:
			step(coordinator.Gathered{})
		case <-tick.C:
			c.beat.Beat()
			step(coordinator.Tick{})
			c.metrics.observe(core)
		case i := <-t.inbox:
			if i.ask != nil {
				i.ask(core)
			} else {
				step(i.event)
			}
		}
	}
}

// carryOut starts what the core asks for; it never waits.
func (c *candidate) carryOut(ctx context.Context, wg *sync.WaitGroup, t *term, o coordinator.Output, commits chan<- coordinator.Txn) {
	attempt := func(what string, f func(context.Context) error) {
		wg.Go(func() {
			err := f(ctx)
			fault.Crash(fault.QueueWritten)
			if err != nil && ctx.Err() == nil {
				t.log.Warn(what+" failed, retrying later", "error", err)
			}
		})
	}
	switch o := o.(type) {
	case coordinator.Send:
		c.metrics.sent(o.Body)
		c.process.SendShard(o.To, o.Body)
	case coordinator.Txn:
		commits <- o
	case coordinator.SetFinalizer:
		attempt("setting a finalizer", func(ctx context.Context) error { return setFinalizer(ctx, t.clients, o.Queue, o.UID, true) })
	case coordinator.RemoveFinalizer:
		attempt("removing a finalizer", func(ctx context.Context) error { return setFinalizer(ctx, t.clients, o.Queue, o.UID, false) })
	case coordinator.CreateQueue:
		attempt("creating a queue", func(ctx context.Context) error { return createQueue(ctx, t.clients, o.Name) })
	case coordinator.Trace:
		c.process.Traces.Export(o.Span)
	case coordinator.Log:
		if o.Level >= coordinator.LevelError {
			c.metrics.brokenInvariants.Inc()
		}
		t.log.Log(ctx, slog.Level(o.Level), o.Message, o.Args...)
	}
}

func elected(p *process.Process, held *store.Term, s *protocol.State, maxStatusEpoch api.Epoch) coordinator.Elected {
	e := effect.Elected(s)
	e.Now, e.Term, e.Incarnation, e.MaxStatusEpoch = fault.Now(), held.Number(), p.Incarnation, maxStatusEpoch
	e.FreshStore = e.FreshStore || p.Store.Fresh()
	return e
}

// crashAfter dies, where that is asked for, when a transaction is durable and nobody knows.
func crashAfter(ops []coordinator.Op) {
	for _, o := range ops {
		switch o := o.(type) {
		case coordinator.PutReservation:
			if o.Record.GetState() == wire.ReservationState_RESERVATION_CLOSING {
				fault.Crash(fault.CloseDurable)
			} else {
				fault.Crash(fault.GrantDurable)
			}
		case coordinator.DeleteReservation:
			fault.Crash(fault.ReleaseDurable)
		case coordinator.PutTable:
			fault.Crash(fault.TableDurable)
		case coordinator.PutLimits:
			fault.Crash(fault.LimitsDurable)
		}
	}
}

// maxStatusEpoch reads the largest epoch in the statuses of Queues: above the table's it shows that the control store is
// older than the cluster. An API server that does not answer must not stop a term from beginning.
func (c *candidate) maxStatusEpoch(ctx context.Context) api.Epoch {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	queues, err := kube.List[*v1beta1.Queue](ctx, c.process.Kube.Basalt, "queues", c.process.Log)
	if err != nil {
		c.process.Log.Warn("cannot read queue statuses at the start of the term", "error", err)
		return 0
	}
	var epoch api.Epoch
	for _, q := range queues {
		if e := effect.QueueSeen(q).StatusEpoch; e <= owners.MaxStatusEpoch { // one that cannot be true hides no other
			epoch = max(epoch, e)
		}
	}
	return epoch
}

// shardsChanged turns lists of registered shards into events, beginning from those that the term began with.
func (t *term) shardsChanged(ctx context.Context, told []*wire.ShardRecord) func([]*wire.ShardRecord) {
	members := leadership.NewMembers(told)
	return func(now []*wire.ShardRecord) {
		for _, ev := range members.Changed(now) {
			t.post(ctx, ev)
		}
	}
}

func (t *term) post(ctx context.Context, ev coordinator.Event) {
	select {
	case t.inbox <- item{event: ev}:
	case <-ctx.Done():
	case <-t.done:
	}
}

// post hands an event to the current term; without one it is lost.
func (c *candidate) post(ctx context.Context, ev coordinator.Event) {
	c.mu.Lock()
	t := c.term
	c.mu.Unlock()
	if t != nil {
		t.post(ctx, ev)
	}
}

// suspect calls a shard that gossip or a broken stream says is gone, as package leadership says.
func (c *candidate) suspect(ctx context.Context, who api.Incarnation) {
	shard := c.process.Shard(who)
	if shard == nil {
		return
	}
	c.mu.Lock()
	call := c.term != nil && c.suspects.Suspect(who)
	c.mu.Unlock()
	if !call {
		return
	}
	go func() {
		for down := false; !down; {
			answered := c.answers(ctx, shard)
			c.mu.Lock()
			unsure := c.suspects.Called(who, answered)
			c.mu.Unlock()
			if !unsure {
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(leadership.CallAgain):
			}
			c.mu.Lock()
			down = c.suspects.Waited(who)
			c.mu.Unlock()
		}
		c.process.Log.Warn("shard does not respond, treating it as down", "shard", shard.Name, "shard_incarnation", who)
		c.post(ctx, coordinator.ShardDown{Incarnation: who})
	}()
}

// reviseSuspicions takes back what suspect said of shards that answer again and still hold their lease.
func (c *candidate) reviseSuspicions(ctx context.Context) {
	tick := time.NewTicker(leadership.ReviseEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		c.mu.Lock()
		down := c.suspects.Down()
		c.mu.Unlock()
		for _, who := range down {
			shard := c.process.Shard(who)
			answered := shard != nil && c.answers(ctx, shard)
			c.mu.Lock()
			up := c.suspects.Revised(who, shard != nil, answered)
			c.mu.Unlock()
			if up {
				c.process.Log.Info("shard responds again", "shard", shard.Name, "shard_incarnation", who)
				c.post(ctx, coordinator.ShardUp{Record: shard})
			}
		}
	}
}

func (c *candidate) answers(ctx context.Context, shard *wire.ShardRecord) bool {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	conn, err := c.process.Link.Dial(api.Incarnation(shard.Incarnation), shard.Address)
	if err != nil {
		return false
	}
	defer conn.Close()
	reply, err := wire.NewInspectClient(conn).Status(ctx, &wire.StatusRequest{Ping: true})
	return err == nil && reply.Incarnation == shard.Incarnation
}

// status answers `basalt status`.
func (c *candidate) status(ctx context.Context) (*wire.StatusReply, error) {
	select {
	case <-c.started:
	default:
		return nil, errors.New("starting")
	}
	c.mu.Lock()
	leads := c.term
	c.mu.Unlock()
	r, err := ask(ctx, c, (*coordinator.Core).Status)
	if errors.Is(err, errStandby) {
		return &wire.StatusReply{Name: c.process.Name, Incarnation: string(c.process.Incarnation), Role: "standby"}, nil
	}
	if err == nil {
		if r.Name = c.process.Name; leads != nil {
			r.SinceUnixMs = leads.began.UnixMilli()
		}
	}
	return r, err
}

// standing answers a shard, which has seen to it that its user may ask.
func (c *candidate) standing(ctx context.Context, m *wire.StandingRequest) (*wire.StandingReply, error) {
	select {
	case <-c.started:
	default:
		return nil, errStandby
	}
	return ask(ctx, c, func(core *coordinator.Core) *wire.StandingReply { return core.Standing(fault.Now(), m) })
}

// queues answers a shard, likewise.
func (c *candidate) queues(ctx context.Context, m *wire.QueuesRequest) (*wire.QueuesReply, error) {
	select {
	case <-c.started:
	default:
		return nil, errStandby
	}
	return ask(ctx, c, func(core *coordinator.Core) *wire.QueuesReply { return core.UsableBy(fault.Now(), m) })
}

// What WhatIf costs the loop of the term is bounded by the number of queues, so it answers so many a second, whichever
// shards ask, and on behalf of tenants in turn.
const (
	questionsPerSecond = 2
	questionsAtOnce    = 4
	questionsWaiting   = 10 // of one tenant
)

// whatIf answers a shard, likewise.
func (c *candidate) whatIf(ctx context.Context, m *wire.WhatIfRequest) (*wire.WhatIfReply, error) {
	select {
	case <-c.started:
	default:
		return nil, errStandby
	}
	changes, err := effect.ReadChanges(m.GetChanges())
	if err != nil {
		return &wire.WhatIfReply{Invalid: err.Error()}, nil
	}
	if !c.questions.Wait(ctx, m.GetTenant()) {
		return nil, status.Errorf(codes.ResourceExhausted, "more than %d questions a second about what would be: ask again in a second", questionsPerSecond)
	}
	q := coordinator.Question{Changes: changes, Queue: m.GetQueue(), GangUID: m.GetGangUid(), Planned: m.GetPlanned()}
	return ask(ctx, c, func(core *coordinator.Core) *wire.WhatIfReply { return core.WhatIf(fault.Now(), q) })
}

var errStandby = errors.New("this coordinator does not lead")

// ask has the loop of the term answer, if there is one.
func ask[T any](ctx context.Context, c *candidate, answer func(*coordinator.Core) T) (none T, err error) {
	c.mu.Lock()
	t := c.term
	c.mu.Unlock()
	if t == nil {
		return none, errStandby
	}
	reply := make(chan T, 1)
	select {
	case t.inbox <- item{ask: func(core *coordinator.Core) { reply <- answer(core) }}:
	case <-t.done:
		return none, errStandby
	case <-ctx.Done():
		return none, ctx.Err()
	}
	select {
	case r := <-reply:
		return r, nil
	case <-t.done:
		return none, errStandby
	case <-ctx.Done():
		return none, ctx.Err()
	}
}
