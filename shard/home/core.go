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
	*common

	// The parts. Each knows some of those above it here, and none below.
	census    *census    // what is where
	evictions *evictions // who is asked to leave
	pacing    *pacing    // who may start over
	shards    *shards    // what node shards have
	rules     *rules     // constraints over sets of nodes
	searchers *searchers // who searches, and who sleeps
	domains   *domains   // topology domains for whole gangs
	reasons   *reasons   // why gangs wait
	reports   *reports   // what users are told
	claims    *claims    // whom to evict for whom
	takeover  *takeover  // of buckets

	timers   timers
	released recent[string, *wire.GangRef] // gangs given back and forgotten, for answers that come late
	paces    recent[string, edits]         // of gangs that were forgotten

	// Objects (podgroups.go, membership.go).
	young      []*intake.Group          // first seen not long ago, in order
	lostGroups recent[string, struct{}] // names of PodGroups that are gone, for pods that start alone
	goneNames  []intake.Name            // only with fault.NamesNotUIDs: what a work queue of names would hold
	deleted    recent[string, bool]     // UIDs of PodGroups whose end the watch showed
}

// New makes a core that owns nothing.
func New(cfg Config) *Core {
	cfg.setDefaults()
	view := cfg.Topology
	if view == nil {
		view = topology.New()
	}
	statuses := report.Config{
		Self: cfg.Self, StatusEvery: cfg.StatusEvery,
		UsageEvery: 2 * cfg.StatusEvery, CountsEvery: 10 * cfg.StatusEvery,
		StatusBackoffLimit: 30 * cfg.StatusEvery, StatusBudget: cfg.StatusBudget, UsageBudget: cfg.UsageBudget,
	}
	base := &common{Counters: &Counters{}, cfg: cfg, objects: intake.New(), pods: map[string]*pod{}, index: newIndex(),
		gangs:          map[string]*gang{},
		large:          map[*gang]bool{},
		writes:         map[uint64]write{},
		writesStatusOf: map[api.GroupKind]bool{},
		sent:           fair.Budget{Rate: sentBytes, Most: int64(longestDebt/time.Second) * sentBytes}}
	c := &Core{common: base}
	c.census = &census{common: base, clusterNodes: map[string]*api.Node{}, foreign: map[string]*foreignOn{},
		priorities: map[string]int64{}}
	c.evictions = &evictions{common: base}
	c.pacing = &pacing{common: base, editLines: map[string][]*gang{}, editing: fair.Budget{Rate: editedPods},
		ordering: fair.Budget{Rate: orderedCost}}
	c.shards = &shards{common: base, summaries: map[api.Incarnation]*summary{}}
	c.rules = &rules{common: base, shards: c.shards,
		topology: view, unjudged: map[string]*gang{},
		repellers: repellers{pods: map[string]repeller{}, about: map[string]int{}, labelled: map[labelled]*api.Class{}},
		ruledSleepers: ruledSleepers{of: map[string][]*gang{}, opened: map[string]bool{}, left: map[string]int{},
			again: map[string]time.Time{}, shut: map[string]map[uint64]shut{}, entering: map[kin]int{}}}
	c.searchers = &searchers{common: base, census: c.census, pacing: c.pacing, shards: c.shards, rules: c.rules,
		sleepers: map[string]*gang{}, wakeTokens: fair.Tokens{Rate: wakesPerSecond}}
	c.domains = &domains{common: base, census: c.census, shards: c.shards, rules: c.rules, searchers: c.searchers}
	c.reasons = &reasons{common: base, census: c.census, shards: c.shards, rules: c.rules,
		explanations: explanations{classes: map[string]*explained{}, open: map[uint64]*explained{},
			tokens: fair.Tokens{Rate: cfg.ExplainBudget}, spent: fair.Budget{Rate: explainsByNamespace}}}
	c.reports = &reports{common: base, census: c.census, rules: c.rules, reasons: c.reasons,
		podGroups: report.NewPodGroups(statuses), queues: report.NewQueues(statuses),
		explains: fair.Tokens{Rate: cfg.ConditionBudget}, retells: fair.Tokens{Rate: retellsAtOnce},
		eventTokens: fair.Tokens{Rate: cfg.EventBudget}, eventsSpent: fair.Budget{Rate: eventsByNamespace}}
	c.claims = &claims{common: base, census: c.census, evictions: c.evictions, shards: c.shards, rules: c.rules,
		domains: c.domains, reports: c.reports,
		plans: fair.Budget{Rate: planWork, Most: int64(longestDebt/time.Second) * planWork}}
	c.takeover = &takeover{common: base, gaining: map[api.BucketID]bool{}, unchargedBound: map[string]bool{},
		astray: map[string]bool{}}
	c.evictions.budgets = disruption.New(func(uid string) *api.Pod {
		if p := c.pods[uid]; p != nil {
			return p.Pod
		}
		return nil
	})
	return c
}

// Step takes one event. Unknown events are ignored.
func (c *Core) Step(now time.Time, ev event.Event) {
	if now.After(c.now) { // a clock that was set back stands still
		c.now = now
	}
	if c.cfg.Topology == nil { // it is its own
		c.rules.topology.Step(c.now, ev)
	}
	switch e := ev.(type) {
	case event.Tick:
		c.rules.judgeAgain()
		c.searchers.wakeRuled()
		c.onTick()
	case event.Drained:
		c.lookAtLarge(false)
		c.rules.judgeAgain()
		c.searchers.wakeRuled()
	case event.LogRead, event.LogSeen:
		c.rules.judgeAgain()
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
		c.census.onNodeSeen(e.Node)
	case event.NodeGone:
		delete(c.census.clusterNodes, e.Name)
	case event.NamespaceSeen:
		c.onNamespace(e.Name, e.Queue, true)
		c.rules.noteRight(e.Name, e.Labels)
	case event.NamespaceGone:
		c.rules.noteRight(e.Name, nil)
		c.onNamespace(e.Name, "", false)
	case event.PriorityClassSeen:
		c.onPriorityClass(e.Name, e.Value, true)
	case event.PriorityClassGone:
		c.onPriorityClass(e.Name, 0, false)
	case event.GroupWriter:
		c.onGroupWriter(e)
	case event.QueueSeen:
		if q := e.Queue; q != nil {
			c.reports.queues.Seen(q)
			c.resolveQueues(c.objects.SeeQueue(q.Name, string(q.UID), q.Labels[api.LabelVolcanoQueue], q.DeletionTimestamp != nil))
			c.seeTimes(q.Name, string(q.UID), &q.Spec)
			if c.reports.seeOrder(q.Name, string(q.UID), &q.Spec) {
				c.pacing.reorder(q.Name)
			}
		}
	case event.QueueGone:
		c.reports.queues.Gone(e.Name, e.UID)
		c.resolveQueues(c.objects.DropQueue(e.Name, e.UID))
		c.seeTimes(e.Name, e.UID, nil)
		if c.reports.seeOrder(e.Name, e.UID, nil) {
			c.pacing.reorder(e.Name)
		}
	case event.BudgetSeen:
		c.evictions.onBudgetSeen(e.Budget)
	case event.BudgetGone:
		c.evictions.budgets.Gone(e.Namespace, e.Name, e.UID)
	case event.TableSeen:
		c.onTable(e.Table)
	case event.StoreRead:
		c.takeover.onStoreRead(e)
	case event.CoordinatorSeen:
		c.onCoordinator(e)
	case event.StatusWritten:
		c.reports.onStatusWritten(e)
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
		c.reports.queues.Usages(b.QueueUsages, func(path string) bool { return c.active[api.BucketOf(path)] })
	case *wire.Envelope_Known:
		c.onKnown(b.Known)
	case *wire.Envelope_Mandate:
		c.claims.onMandate(b.Mandate)
	case *wire.Envelope_ClaimReply:
		c.claims.onClaimReply(b.ClaimReply)
	case *wire.Envelope_Yield:
		c.onYield(b.Yield)
	case *wire.Envelope_Shrink:
		c.claims.onShrink(b.Shrink)
	case *wire.Envelope_Rooms:
		c.claims.onRooms(m.From, b.Rooms)
	case *wire.Envelope_HoldReply:
		c.onHoldReply(m.From, b.HoldReply)
	case *wire.Envelope_HoldsLost:
		c.onHoldsLost(m.From, b.HoldsLost)
	case *wire.Envelope_CommitReply:
		c.onCommitReply(m.From, b.CommitReply)
	case *wire.Envelope_Ready:
		c.searchers.onReady(m.From, b.Ready)
	case *wire.Envelope_BindResults:
		c.onBindResults(b.BindResults)
	case *wire.Envelope_Explained:
		c.reasons.onExplained(m.From, b.Explained)
	case *wire.Envelope_Probed:
		c.domains.onProbed(m.From, b.Probed)
	case *wire.Envelope_Withdrawn:
		c.onWithdrawn(m.From, b.Withdrawn)
	case *wire.Envelope_Summary:
		c.shards.onSummary(m.From, b.Summary)
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
	c.searchers.wakeSleepers()
	c.pacing.startEdited()
	c.pacing.editing.Forget(c.now)
	c.pacing.ordering.Forget(c.now)
	c.sent.Forget(c.now)
	c.claims.plans.Forget(c.now)
	c.lookAtLarge(true)
	c.reports.eventsSpent.Forget(c.now)
	c.evictions.budgets.Forget(c.now)
	c.reasons.endLateExplained()
	c.pacing.lookAtReordered()
	c.reports.lookAtPositions()
	c.reports.publishWaiting()
	c.drainDirty()
	if c.reports.writeConditions() {
		c.drainDirty()
	}
	c.reports.writeQueueStatuses()
	c.takeover.reportRefilled()
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
			g.lookAt()
			c.advance(g)
		}
	}
	c.broken("gang state did not converge", slog.Int("dirty", len(c.dirty)))
}
