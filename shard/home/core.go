package home

import (
	"container/heap"
	"log/slog"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/fair"
	"basalt.dev/basalt/shard/home/disruption"
	"basalt.dev/basalt/shard/home/intake"
	"basalt.dev/basalt/shard/home/report"
	"basalt.dev/basalt/shard/topology"
)

// Core is the home core. It is not safe for concurrent use.
type Core struct {
	cfg Config
	now time.Time
	out []event.Output

	spare []event.Output // what Outputs returned last

	// The cluster as it is seen, whoever owns what (pods.go).
	objects      *intake.Objects
	priorities   map[string]int64
	young        []*intake.Group          // first seen not long ago, in order
	goneGroups   recent[string, struct{}] // UIDs, so that a late event does not bring one back
	lostGroups   recent[string, struct{}] // names of PodGroups that are gone, for pods that start alone (membership.go)
	goneNames    []intake.Name            // only with fault.NamesNotUIDs: what a work queue of names would hold
	pods         map[string]*pod
	clusterNodes map[string]*api.Node  // all nodes of the cluster (foreign.go)
	foreign      map[string]*foreignOn // node -> pods there that somebody else bound

	// Ownership (takeover.go).
	table          *api.Table
	tableAt        time.Time
	owned          map[api.Incarnation]int // buckets of each member
	active         [api.Buckets]bool
	epochs         [api.Buckets]api.Epoch // under which an active bucket was taken over
	gaining        map[api.BucketID]bool
	gainedAt       int64     // revision of the last table that gave us buckets
	gainingSince   time.Time // when a table gave us buckets while we were not gaining any
	activating     bool      // in activate
	read           *event.StoreRead
	named          map[uint64]*namedBy // by api.PodID: which reservation names a pod; only while a list of pods is taken
	term           int64
	refilled       refill
	unchargedBound map[string]bool // gangs with bound pods of which the coordinator has not said whether they are charged
	summaries      map[api.Incarnation]*summary
	room           uint64 // grows when a shard reports that capacity was freed
	roomGrew       bool
	nodes          uint64 // grows when a shard's nodes changed
	nodesMoved     bool

	// Gangs of active buckets.
	gangs                  map[string]*gang
	released               recent[string, *wire.GangRef] // gangs given back and forgotten, for answers that come late
	dirty                  []*gang
	large                  []*gang // with many pods, and touched: looked at soon
	timers                 timers
	ready                  readyQueue
	inFlight, podsInFlight int
	sleepers               map[string]*gang
	lookAgain              time.Time            // when all sleepers may be looked through again
	wakes                  fair.Queues[[]*gang] // whose sleep is over, and that wait for wakeTokens
	wakeTokens             fair.Tokens
	editLines              map[string][]*gang    // that wait to start over, by namespace (pacing.go)
	paces                  recent[string, edits] // of gangs that were forgotten
	editing                fair.Budget           // pods that start over
	sent                   fair.Budget           // bytes of classes (classes.go)
	plans                  fair.Budget           // work on plans of claims (claim.go)
	counter                uint32                // of serials
	explanations           explanations
	surveys                surveys
	repellers              repellers
	positionsAt            time.Time
	inPosition             []*gang // those with a position
	eventTokens            fair.Tokens
	eventsSpent            fair.Budget

	writesStatusOf map[api.GroupKind]bool // groups of other kinds (admission.go); of Volcano's: Basalt holds its Lease

	podGroups report.PodGroups
	queues    report.Queues
	writes    map[uint64]write // outputs whose StatusWritten is awaited
	writeID   uint64
	explains  fair.Tokens
	retells   fair.Tokens
	gistWords string // of the last gist that was made
	lastGist  uint64
	explain   fair.Queues[explainQueue]

	// Counters for metrics.
	Broken     uint64 // invariants of ours found broken
	Placed     uint64 // gangs that got their minimum
	GaveUp     uint64
	RolledBack uint64 // or that were evicted as stale

	ClaimsMade      uint64 // accepted
	ClaimsRefused   uint64
	ClaimsDropped   uint64 // after they were accepted
	ClaimsUnplanned uint64 // mandates for which no plan was found, or the room had changed
	Reclaimed       uint64 // gangs that were evicted so that a queue takes back what it may have,
	Preempted       uint64 // or for one of higher priority
	Condemned       uint64 // surplus pods that were evicted for either

	Disrupted uint64 // pods that were evicted although a PodDisruptionBudget did not allow it

	EventsDropped uint64 // that there was no budget for

	BoundByOthers  uint64 // pods that were to be placed here (foreign.go)
	warnedOfOthers time.Time

	topology *topology.View
	ownView  bool
	unjudged map[string]*gang // prepared, and not judged yet
	ruledSleepers

	budgets    *disruption.Budgets      // disrupt.go
	unheeded   recent[string, struct{}] // namespaces of which was logged that a PodDisruptionBudget is not heeded
	graces     map[string]time.Duration // boundGangs,
	gracesAt   time.Time                // and when
	roomProbes uint64
	probed     recent[string, string] // gangs by serial of their RoomProbes

	deleted recent[string, bool] // UIDs of PodGroups whose end the watch showed

	bound     []GangBound // observe.go
	takeovers []time.Duration
}

// New makes a core that owns nothing.
func New(cfg Config) *Core {
	cfg.setDefaults()
	view := cfg.Topology
	if view == nil {
		view = topology.New()
	}
	statuses := report.Config{
		Self: cfg.Self, StatusEvery: cfg.StatusEvery, UsageEvery: cfg.UsageEvery, CountsEvery: cfg.CountsEvery,
		StatusBackoffLimit: cfg.StatusBackoffLimit, StatusBudget: cfg.StatusBudget, UsageBudget: cfg.UsageBudget,
	}
	c := &Core{
		cfg:            cfg,
		objects:        intake.New(),
		priorities:     map[string]int64{},
		pods:           map[string]*pod{},
		clusterNodes:   map[string]*api.Node{},
		foreign:        map[string]*foreignOn{},
		gaining:        map[api.BucketID]bool{},
		unchargedBound: map[string]bool{},
		summaries:      map[api.Incarnation]*summary{},
		gangs:          map[string]*gang{},
		sleepers:       map[string]*gang{},
		editLines:      map[string][]*gang{},
		writesStatusOf: map[api.GroupKind]bool{},
		editing:        fair.Budget{Rate: editedPods},
		sent:           fair.Budget{Rate: sentBytes, Most: int64(longestDebt/time.Second) * sentBytes},
		plans:          fair.Budget{Rate: planWork, Most: int64(longestDebt/time.Second) * planWork},
		podGroups:      report.NewPodGroups(statuses), queues: report.NewQueues(statuses),
		writes:      map[uint64]write{},
		explains:    fair.Tokens{Rate: cfg.ConditionBudget},
		retells:     fair.Tokens{Rate: retellsAtOnce},
		eventTokens: fair.Tokens{Rate: cfg.EventBudget}, eventsSpent: fair.Budget{Rate: eventsByNamespace},
		repellers: repellers{pods: map[string]repeller{}, about: map[string]int{}, labelled: map[labelled]*api.Class{}},
		explanations: explanations{classes: map[string]*explained{}, open: map[uint64]*explained{},
			tokens: fair.Tokens{Rate: cfg.ExplainBudget}, spent: fair.Budget{Rate: explainsByNamespace}},
		wakeTokens: fair.Tokens{Rate: wakesPerSecond},
		topology:   view, ownView: cfg.Topology == nil, unjudged: map[string]*gang{},
		ruledSleepers: ruledSleepers{of: map[string][]*gang{}, opened: map[string]bool{}, left: map[string]int{}, again: map[string]time.Time{}, shut: map[string]map[uint64]shut{}, entering: map[kin]int{}},
	}
	c.budgets = disruption.New(func(uid string) *api.Pod {
		if p := c.pods[uid]; p != nil {
			return p.Pod
		}
		return nil
	})
	return c
}

// Step takes one event. An event of a kind that the core does not know is none of its business.
func (c *Core) Step(now time.Time, ev event.Event) {
	if now.After(c.now) { // a clock that was set back stands still
		c.now = now
	}
	if c.ownView {
		c.topology.Step(c.now, ev)
	}
	switch e := ev.(type) {
	case event.Tick:
		c.judgeAgain()
		c.wakeRuled()
		c.onTick()
	case event.Drained:
		c.lookAtLarge(false)
		c.judgeAgain()
		c.wakeRuled()
	case event.LogRead, event.LogSeen:
		c.judgeAgain()
	case event.PodSeen:
		c.onPodSeen(e.Pod)
	case event.PodGone:
		c.onPodGone(e.UID)
	case event.PodsReplaced:
		c.onPodsReplaced(e)
	case event.PodGroupSeen:
		c.onGroupSeen(e)
	case event.PodGroupGone:
		c.onGroupGone(e)
	case event.NodeSeen:
		c.onNodeSeen(e.Node)
	case event.NodeGone:
		delete(c.clusterNodes, e.Name)
	case event.NamespaceSeen:
		c.onNamespace(e.Name, e.Queue, true)
		c.repellers.noteRight(c, e.Name, e.Labels)
	case event.NamespaceGone:
		c.repellers.noteRight(c, e.Name, nil)
		c.onNamespace(e.Name, "", false)
	case event.PriorityClassSeen:
		c.onPriorityClass(e.Name, e.Value, true)
	case event.PriorityClassGone:
		c.onPriorityClass(e.Name, 0, false)
	case event.GroupWriter:
		c.onGroupWriter(e)
	case event.QueueSeen:
		if q := e.Queue; q != nil {
			c.queues.Seen(q)
			c.resolveQueues(c.objects.SeeQueue(q.Name, string(q.UID), q.Labels[api.LabelVolcanoQueue], q.DeletionTimestamp != nil))
			c.seeRepair(q.Name, string(q.UID), &q.Spec)
		}
	case event.QueueGone:
		c.queues.Gone(e.Name, e.UID)
		c.resolveQueues(c.objects.DropQueue(e.Name, e.UID))
		c.seeRepair(e.Name, e.UID, nil)
	case event.BudgetSeen:
		c.onBudgetSeen(e.Budget)
	case event.BudgetGone:
		c.budgets.Gone(e.Namespace, e.Name, e.UID)
	case event.TableSeen:
		c.onTable(e.Table)
	case event.StoreRead:
		if len(c.gaining) > 0 && e.Revision >= c.gainedAt && (c.read == nil || e.Sequence > c.read.Sequence) {
			c.read = &e
		}
	case event.CoordinatorSeen:
		c.onCoordinator(e)
	case event.StatusWritten:
		c.onStatusWritten(e)
	case event.Message:
		c.onMessage(e)
	}
	c.drainDirty()
}

// Outputs returns what is to be done since the last call, in order. The slice is valid until the next Step.
func (c *Core) Outputs() []event.Output {
	out := c.out
	clear(c.spare)
	c.out, c.spare = c.spare[:0], out
	return out
}

func (c *Core) onMessage(m event.Message) {
	switch b := m.Body.GetBody().(type) {
	case *wire.Envelope_Granted:
		c.onGranted(b.Granted)
	case *wire.Envelope_Denied:
		c.onDenied(b.Denied)
	case *wire.Envelope_Unreserved:
		c.onUnreserved(b.Unreserved)
	case *wire.Envelope_Closed:
		c.onClosed(b.Closed)
	case *wire.Envelope_QueueUsages:
		c.queues.Usages(b.QueueUsages, func(path string) bool { return c.active[api.BucketOf(path)] })
	case *wire.Envelope_Known:
		c.onKnown(b.Known)
	case *wire.Envelope_Mandate:
		c.onMandate(b.Mandate)
	case *wire.Envelope_ClaimReply:
		c.onClaimReply(b.ClaimReply)
	case *wire.Envelope_Yield:
		c.onYield(b.Yield)
	case *wire.Envelope_Shrink:
		c.onShrink(b.Shrink)
	case *wire.Envelope_Rooms:
		c.onRooms(m.From, b.Rooms)
	case *wire.Envelope_HoldReply:
		c.onHoldReply(m.From, b.HoldReply)
	case *wire.Envelope_HoldsLost:
		c.onHoldsLost(m.From, b.HoldsLost)
	case *wire.Envelope_CommitReply:
		c.onCommitReply(m.From, b.CommitReply)
	case *wire.Envelope_Ready:
		c.onReady(m.From, b.Ready)
	case *wire.Envelope_BindResults:
		c.onBindResults(b.BindResults)
	case *wire.Envelope_Explained:
		c.onExplained(m.From, b.Explained)
	case *wire.Envelope_Probed:
		c.onProbed(m.From, b.Probed)
	case *wire.Envelope_Withdrawn:
		c.onWithdrawn(m.From, b.Withdrawn)
	case *wire.Envelope_Summary:
		c.onSummary(m.From, b.Summary)
	}
}

func (c *Core) onTick() {
	for _, n := range c.goneNames {
		if g := c.objects.Group(n); g != nil {
			c.dropGroup(g)
		}
	}
	c.goneNames = nil
	for len(c.timers) > 0 && !c.timers[0].at.After(c.now) {
		t := heap.Pop(&c.timers).(timer)
		if g := c.gangs[t.gang]; g != nil && g.wake.Equal(t.at) {
			g.wake = time.Time{}
			c.touch(g)
		}
	}
	c.recheckYoung()
	c.wakeSleepers()
	c.startEdited()
	c.editing.Forget(c.now)
	c.sent.Forget(c.now)
	c.plans.Forget(c.now)
	c.lookAtLarge(true)
	c.eventsSpent.Forget(c.now)
	c.budgets.Forget(c.now)
	c.endLateExplained()
	c.lookAtPositions()
	c.publishWaiting()
	c.drainDirty()
	if c.writeConditions() {
		c.drainDirty()
	}
	c.writeQueueStatuses()
	c.reportRefilled()
}

// drainDirty looks at every dirty gang, best first; looking at one may make others dirty.
func (c *Core) drainDirty() {
	for range 64 {
		if len(c.dirty) == 0 {
			return
		}
		todo := c.dirty
		c.dirty = nil
		slices.SortFunc(todo, compareGangs)
		for _, g := range todo {
			g.dirty = false
			c.advance(g)
		}
	}
	c.broken("gangs do not come to rest", slog.Int("dirty", len(c.dirty)))
}
