package coordinator

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/coordinator/owners"
)

// Core decides. It is not safe for concurrent use.
//
// What arrives is taken in at once and acted on when the store has answered: while a transaction is in flight requests
// gather, and the next one is made of all of them, evaluated in the order of lines.go against the state that the last
// one left. So the load sets the size of transactions, and released quota is offered in fair order even to those who ask
// in the same moment.
type Core struct {
	cfg  Config
	self api.Incarnation
	term int64
	out  []Output

	// The parts, none of which knows those below it here.
	tree     *tree      // of queues
	turns    tournament // of demand classes that are due (lines.go, wake.go)
	ledger   ledger     // of what queues have
	earmarks earmarks   // what queues keep free for whom
	supply   supply     // what nodes have
	patience patience   // who keeps what it holds
	rights   rights     // of namespaces to use queues
	roster   roster     // of gangs
	mandates mandates   // to plan whom to evict
	reports  reports    // to homes
	backfill backfill   // until when it is lent what queues keep
	owners   *owners.Owners

	inbox      []Message // accepted, not acted on
	asked      int64     // pods that those requests are for which came since the inbox was last acted on
	flight     *batch    // the transaction that is not answered yet
	acted      time.Time // when reservations were last changed
	seq        uint64    // of the last transaction
	limitsLast bool      // it was one of limits
	crowded    bool      // a grant did not fit into it: the next one takes nothing else first
	unclosed   bool      // it left victims that are to be closed to the next one

	// waiting.go
	ring      []*request      // all that wait, in no order
	fresh     []*request      // those of them that an answer is owed to
	cursor    int             // of the sweep over ring
	postponed []*demandClass  // due for the next transaction: this one has their gang's key already
	waits     []time.Duration // of requests that were granted

	// claims.go
	claims     []*claim
	yielding   []*gang // closed for a claim
	nextYields time.Time
	dropped    []droppedClaim
	Claims     ClaimCounts

	// limits.go
	due          map[string]bool // queues whose record may differ from what their object says
	finalizers   map[string]bool // queues whose finalizer may have to change
	restored     int             // queues whose resourceVersion went back
	nextAskAgain time.Time
	created      map[string]time.Time // when root and default were last asked for
}

// gangKey names a reservation as its key in the store does.
type gangKey struct{ queue, uid string }

// New makes a core for one term.
func New(cfg Config, e Elected) *Core {
	tree := newTree()
	c := &Core{
		cfg: cfg.withDefaults(), self: e.Incarnation, term: e.Term, seq: e.Sequence,
		turns: tournament{tree: tree}, tree: tree,
		due: map[string]bool{}, finalizers: map[string]bool{}, created: map[string]time.Time{},
	}
	c.ledger = ledger{tree: tree, turns: &c.turns, displacements: displacements{}}
	c.supply = supply{ledger: &c.ledger, ungated: c.cfg.Ungated, said: map[api.Incarnation]*supplied{}}
	c.roster = roster{ledger: &c.ledger, gangs: map[gangKey]*gang{}, charged: map[string]*gang{}, pods: map[uint64]*gang{}}
	c.mandates = mandates{ledger: &c.ledger, term: e.Term}
	c.patience = patience{lasts: c.cfg.PatientFor, gangs: map[string]patient{}}
	c.rights = rights{tree: tree, names: map[string]*namespace{}}
	c.earmarks = earmarks{turns: &c.turns, after: c.cfg.EarmarkAfter, shortest: c.cfg.EarmarkFor}
	c.owners = c.newOwners(e)
	for _, s := range e.Limits {
		c.loadLimits(s)
	}
	c.tree.recompute()
	lost := 0
	for _, s := range e.Reservations {
		if !c.loadReservation(s) {
			lost++
		}
	}
	c.loadClaims(e.Reservations)
	c.findOverdue(e.Now)
	if lost > 0 {
		c.owners.Lose()
	}
	c.reports.known = e.Now.Add(c.cfg.KnownEvery)
	c.log(LevelInfo, "elected", "term", e.Term, "reservations", c.roster.open,
		"queues", len(e.Limits), "shards", len(e.Shards), "refilling", c.owners.Refilling())
	return c
}

func (cfg Config) withDefaults() Config {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	count := func(n *int, v int) {
		if *n == 0 {
			*n = v
		}
	}
	count(&cfg.BatchOps, 120)
	count(&cfg.BatchBytes, batchBytes)
	count(&cfg.JoinBuckets, 64)
	count(&cfg.Sweep, 200)
	count(&cfg.Asks, 4096)
	set(&cfg.EarmarkAfter, time.Minute)
	set(&cfg.EarmarkFor, 10*time.Minute)
	set(&cfg.ReportEvery, 200*time.Millisecond)
	set(&cfg.KnownEvery, 30*time.Second)
	set(&cfg.PatientFor, api.PatientFor)
	set(&cfg.HalfGoneLimit, 30*time.Second)
	set(&cfg.FirstTable, time.Second)
	set(&cfg.JoinEvery, 500*time.Millisecond)
	set(&cfg.Quiet, 3*time.Second)
	set(&cfg.RetryEvery, 5*time.Second)
	set(&cfg.WordsEvery, 2*time.Second)
	return cfg
}

// Step takes one event. Time never goes back between two calls.
func (c *Core) Step(now time.Time, ev Event) {
	switch ev := ev.(type) {
	case QueueSeen:
		c.queueSeen(ev)
	case QueueGone:
		c.queueGone(ev)
	case QueuesSynced:
		c.queuesSynced()
	case NamespaceSeen:
		c.rejudgeRights(c.rights.seen(ev))
	case NamespaceGone:
		c.rejudgeRights(c.rights.gone(ev))
	case NamespacesSynced:
		c.rightsSynced()
	case ShardUp:
		c.owners.Up(now, ev.Record)
	case ShardDown:
		c.owners.Down(now, ev.Incarnation)
	case ShardLinked:
		if c.owners.Linked(ev.Incarnation) {
			c.turns.changedEverywhere()
		}
		c.reportAll(ev.Incarnation)
	case Message:
		c.message(now, ev)
	case TxnDone:
		c.txnDone(ev)
	case Tick:
		c.tick(now)
	}
	c.endRefilling(now)
	c.commit(now)
}

// Outputs returns what is to be done since the last call, in order. The slice is valid until the next Step.
func (c *Core) Outputs() []Output {
	out := c.out
	c.out = nil
	return out
}

func (c *Core) tick(now time.Time) {
	c.owners.LookAgain()
	c.earmarks.age(now)
	c.earmarks.turn(now)
	c.supply.age(now)
	c.sweep(now)
	c.findMandates(now)
	c.backfill.look(now, &c.roster, c.earmarks.at, c.claims)
	c.tellAgain(now)
	c.report(now)
	c.known(now)
	c.roster.expire(now)
	if !now.Before(c.nextAskAgain) {
		c.nextAskAgain = now.Add(c.cfg.RetryEvery)
		c.checkFinalizers()
	}
}

// message takes a message in if its sender may say it.
func (c *Core) message(now time.Time, m Message) {
	if c.owners.Heard(m.From) {
		c.turns.changedEverywhere()
	}
	switch body := m.Body.GetBody().(type) {
	case *wire.Envelope_Supply:
		c.supply.seen(c.owners.Table(), m.From, body.Supply)
	case *wire.Envelope_Unplaced:
		c.unplacedSeen(now, m.From, body.Unplaced)
	case *wire.Envelope_Refilled:
		c.refilled(m.From, api.Epoch(body.Refilled.GetTableEpoch()))
	case *wire.Envelope_Stuck:
		c.stuckSaid(now, m, body.Stuck)
	case *wire.Envelope_Reserve, *wire.Envelope_Unreserve, *wire.Envelope_Close, *wire.Envelope_Claim, *wire.Envelope_Condemn:
		c.inbox = append(c.inbox, m)
		for _, a := range m.Body.GetReserve().GetDemand() {
			if a.GetResource() == "pods" {
				c.asked = api.AddSat(c.asked, max(0, a.GetValue()))
			}
		}
	}
}

// batch is a transaction with what is said once it is committed.
type batch struct {
	id      uint64
	ops     []Op
	bytes   int // at most, of ops (size.go)
	puts    []*gang
	replies []reply
	traces  []Output
	table   bool // of owners
}

type reply struct {
	to   api.Incarnation
	body *wire.Envelope
}

// commit makes the next transaction when none is in flight. The table goes first; limits and reservations take turns when
// both have changes.
func (c *Core) commit(now time.Time) {
	if c.flight != nil {
		return
	}
	c.askFinalizers(now)
	b := &batch{id: c.seq + 1}
	limits := false
	if !c.changeTable(now, b) {
		gather := c.gather(now)
		if limits = !c.limitsLast || gather; limits {
			limits = c.changeLimits(b)
		}
		if !limits && gather {
			return
		}
		if !limits {
			c.changeReservations(now, b)
			if len(b.ops) == 0 {
				limits = c.changeLimits(b)
			}
		}
	}
	if len(b.ops) == 0 {
		c.limitsLast = false
		c.answer(b, 0)
		return
	}
	if c.limitsLast = limits; !limits {
		c.acted = now
	}
	c.flight, c.seq = b, b.id
	c.out = append(c.out, Txn{ID: b.id, Ops: b.ops})
}

// gather reports whether requests wait for what else comes: what a transaction costs hardly depends on how much is in it. After
// a pause none waits, nor when one is full, nor where so many pods wait that it costs nothing beside them, nor while victims of claims
// are to be closed, which fill one after another. Limits and the table never do.
func (c *Core) gather(now time.Time) bool {
	return now.Before(c.acted.Add(c.cfg.CommitEvery)) && len(c.inbox) < c.cfg.BatchOps && c.asked < gatherPods && !c.unclosed
}

const gatherPods = 1000

// Due is when the core is to be stepped with Gathered, the zero time for never.
func (c *Core) Due() time.Time {
	switch {
	case c.flight != nil:
	case len(c.inbox) > 0:
		return c.acted.Add(c.cfg.CommitEvery)
	case c.turns.behind:
		return c.turns.nextScan
	}
	return time.Time{}
}

func (c *Core) txnDone(ev TxnDone) {
	b := c.flight
	if b == nil || b.id != ev.ID {
		c.log(LevelError, "response to a transaction that is not in flight", "id", ev.ID)
		return
	}
	c.flight = nil
	for _, g := range b.puts {
		if g.res != nil {
			g.res.revision = ev.Revision
		}
	}
	if b.table {
		c.owners.Written(ev.Revision)
	}
	c.answer(b, ev.Revision)
	c.out = append(c.out, b.traces...)
}

func (c *Core) answer(b *batch, revision int64) {
	for _, r := range b.replies {
		if r.body.GetGranted() != nil { // a copy of it: messages are never changed, whoever may share them
			r.body = proto.CloneOf(r.body)
			r.body.GetGranted().ReservationRevision = revision
		} else if m := r.body.GetClaimReply(); m != nil && m.GetReservationRevision() == revisionWritten {
			r.body = proto.CloneOf(r.body)
			r.body.GetClaimReply().ReservationRevision = revision
		} else if m := r.body.GetShrink(); m != nil && m.GetReservationRevision() == revisionWritten {
			r.body = proto.CloneOf(r.body)
			r.body.GetShrink().ReservationRevision = revision
		}
		c.send(r.to, r.body)
	}
}

// statusBytes bounds the queues of a status, in bytes.
const statusBytes = 8 << 20

// Status describes the term for operators. It changes nothing.
func (c *Core) Status() *wire.StatusReply {
	s := &wire.StatusReply{
		Incarnation: string(c.self), Role: "coordinator", Term: uint64(c.term),
		Reservations: uint32(c.roster.open), GangsTotal: uint32(len(c.ring)),
	}
	if c.owners.Table() != nil {
		s.TableEpoch = uint64(c.owners.Table().Epoch)
	}
	c.tree.recompute()
	size := 0
	c.tree.root.walk(func(q *queue) {
		if q.object == nil && q.limits == nil {
			return
		}
		if s.QueuesTotal++; size > statusBytes {
			return
		}
		u := c.usage(q)
		if r := q.order.earmark; r != nil { // for operators alone: tenants hear no names of others
			u.Message += fmt.Sprintf("; keeps quota free for gang %s, which requests %s and has waited longest%s",
				r.gang.ref.Title(), r.delta, r.lendsFor())
		}
		if size += proto.Size(u) + 8; size <= statusBytes {
			s.Queues = append(s.Queues, u)
		}
	})
	return s
}

// Counts are numbers for metrics, cheap enough to be asked for each second.
type Counts struct {
	Reservations int
	Waiting      int // requests
	Earmarks     int // queues that keep quota free
	Shards       int // alive
	Epoch        api.Epoch
}

// Counts of this moment.
func (c *Core) Counts() Counts {
	n := Counts{Reservations: int(c.roster.open), Waiting: len(c.ring), Earmarks: len(c.earmarks.at),
		Shards: c.owners.Shards()}
	if c.owners.Table() != nil {
		n.Epoch = c.owners.Table().Epoch
	}
	return n
}

// QueueSums are a queue's sums for metrics; each includes all below the queue. Charged names at most sumsAtMost resources, first those
// that the queue limits.
type QueueSums struct {
	Queue                          string
	Charged, Capability, Guarantee api.Resources
	Deserved                       api.Resources // none: it deserves nothing
	Admitted, Waiting              int
	OldestWait                     time.Time // since when the oldest that waits for quota has been complete, the zero time if none waits
	DeservedWait                   time.Time // since when it lacks what it deserves (lasting.go), zero if it does not
}

// sumsAtMost is how many resources metrics show of a queue: tenants can request resources of any name.
const sumsAtMost = 16

// Queues visits the queues that have an object or limits, parents first. It takes time in proportion to queues and waiting requests.
func (c *Core) Queues(now time.Time, visit func(QueueSums)) {
	c.tree.recompute()
	oldest := map[*queue]int64{}
	for _, r := range c.ring {
		for q := r.queue; q != nil; q = q.parent {
			if since, known := oldest[q]; known && since <= r.since {
				break // nor is it older than the oldest of an ancestor
			}
			oldest[q] = r.since
		}
	}
	lack := c.tree.root.lackDeserved(now)
	c.tree.root.walk(func(q *queue) {
		if q.object == nil && q.limits == nil {
			return
		}
		s := QueueSums{Queue: q.path, Admitted: q.members.admitted, Waiting: q.members.waiting}
		if q.limits != nil {
			s.Capability, _ = q.limits.capability.Foremost(sumsAtMost, nil)
		}
		s.Charged, _ = q.charged.amounts().Foremost(sumsAtMost, s.Capability)
		s.Guarantee, _ = q.guarantee.Positive().Foremost(sumsAtMost, s.Capability)
		s.Deserved, _ = q.deserved.Positive().Foremost(sumsAtMost, s.Capability)
		s.DeservedWait = lack[q]
		if since, waits := oldest[q]; waits {
			s.OldestWait = time.UnixMilli(since)
		}
		visit(s)
	})
}

// Waits returns how long the requests waited that were granted since the last call. The slice is valid until the next Step.
func (c *Core) Waits() []time.Duration {
	waits := c.waits
	c.waits = c.waits[:0]
	return waits
}

// waitsAtMost bounds what is kept between two calls of Waits; the rest is not observed.
const waitsAtMost = 4096
