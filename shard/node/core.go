package node

import (
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/fair"
	"basalt.dev/basalt/shard/topology"
)

// Config of a Core. Zero durations and numbers take the default that is named.
type Config struct {
	Self   api.Incarnation
	Policy cache.Policy

	HoldTTL       time.Duration // of a hold that asks for none: 5 s
	MaxHoldTTL    time.Duration // 30 s
	MaxPatientTTL time.Duration // of a patient gang's: 10 min
	PreparedLimit time.Duration // how long durable rows wait for Bind: 10 s
	ConfirmLimit  time.Duration // how long a confirmed Binding may stay unseen: 30 s
	ResolveGrace  time.Duration // how long a living shard may resolve rows on nodes that it lost: 2 s
	Remember      time.Duration // how long answers and withdrawn serials are kept: 2 min
	SummaryEvery  time.Duration // how often an unchanged summary is repeated: 5 s
	SummaryPace   time.Duration // between two summaries to shards that asked for nothing here lately: 1 s
	RecentFor     time.Duration // how long a request counts as lately: 1 min
	WriteEvery    time.Duration // between two intent transactions that are not full, so that what comes meanwhile goes together; 0: none
	DeleteEvery   time.Duration // between two deletions of intents that are resolved, unless there are many: 500 ms

	MaxFences     int // reservations of one intent transaction: 100
	MaxRows       int // rows of one intent transaction: 1,000
	MaxBytes      int // of its record: 768 Ki, half of what etcd takes
	MaxClassBytes int // of the requests and constraints of one row: 256 Ki, more than a pod may have by package api
	MaxNamed      int // pods of a message about holds lost and Bindings: 16,000
	MaxDeletes    int // keys of one delete: 100
	MaxRewrites   int // rewrites in flight: 16
	MaxResolving  int // resolving patches in flight: 64
	MaxClasses    int // whose room a summary names: 16
	MaxRoom       int // pods of a class that are counted for it: 4,096

	Topology *topology.View // given every event before the core; nil: the core has one of its own

	Tracing bool
	Strict  bool // a broken invariant panics
}

func (c Config) withDefaults() Config {
	duration := func(d *time.Duration, def time.Duration) {
		if *d <= 0 {
			*d = def
		}
	}
	number := func(n *int, def int) {
		if *n <= 0 {
			*n = def
		}
	}
	duration(&c.HoldTTL, 5*time.Second)
	duration(&c.MaxHoldTTL, 6*c.HoldTTL)
	duration(&c.MaxPatientTTL, 10*time.Minute)
	duration(&c.PreparedLimit, 10*time.Second)
	duration(&c.ConfirmLimit, 30*time.Second)
	duration(&c.ResolveGrace, 2*time.Second)
	duration(&c.Remember, 2*time.Minute)
	duration(&c.SummaryEvery, 5*time.Second)
	duration(&c.SummaryPace, time.Second)
	duration(&c.RecentFor, time.Minute)
	duration(&c.DeleteEvery, 500*time.Millisecond)
	number(&c.MaxFences, 100)
	number(&c.MaxRows, 1000)
	number(&c.MaxBytes, 768<<10)
	number(&c.MaxClassBytes, 256<<10)
	number(&c.MaxNamed, 16000)
	number(&c.MaxDeletes, 100)
	number(&c.MaxRewrites, 16)
	number(&c.MaxResolving, 64)
	number(&c.MaxClasses, 16)
	number(&c.MaxRoom, 4096)
	return c
}

// Core is made by New. It is not safe for concurrent use.
type Core struct {
	cfg   Config
	now   time.Time
	out   []event.Output
	count uint64 // of ids and values made

	table    *api.Table
	buckets  [api.Buckets]ownership
	ready    bool // some takeover was completed: there is something to offer
	takeover takeover

	cache *cache.Cache
	nodes map[string]*api.Node // every node of the cluster: a bucket gained needs its nodes at once
	bound map[string]boundPod  // pods seen bound to nodes of our buckets, unfinished: by UID
	ended [2]map[string]bool   // pods of ours that finished or left, lately and before: a late event must not charge them again
	aged  time.Time            // when ended was last moved on
	sync  syncState

	groups   groups
	topology *topology.View
	ownView  bool

	nominated map[string]boundPod // pods of other schedulers that these keep a node of ours for
	keptFor   map[string]int      // how many, by node

	volumes    map[string]event.NodeVolumes // what was said of volumes, by node, if anything
	unreadable map[string]string            // what was said of nodes of which something cannot be read

	gangs   map[string]*gang   // by gangKey; so are the sets of gangs below
	queues  map[string][]*gang // by UID: one for each queue that it was seen in
	holders map[string]bool    // gangs that may have holds or promises

	leaving map[string]time.Time // bound pods that are being deleted: by UID, when they are overdue

	unsent map[*commit]bool // that may wait for Bind
	// unjudged are durable commits that bind at once and wait until enough is known to judge them.
	unjudged map[*commit]bool
	rows     map[string][]*row // by pod UID: rows that are neither dropped nor done

	// resolvingIn counts those of each namespace, and resolveWaits says that more are to be resolved.

	unreported map[string]bool // gangs with results to send
	urgent     bool            // send them in this step
	withdraw   map[string]bool // gangs whose Withdraw is not answered yet
	// answerable are those of them of which something changed.
	answerable map[string]bool

	supplied  supplied
	said      *said
	rooms     *rooms
	resolves  *resolves
	intents   *intents
	writes    *writes
	spent     fair.Budget // on comparing constraints (judging.go)
	swept     time.Time
	broken    uint64
	ignored   uint64
	sentTotal uint64
}

// Stats are numbers for metrics and status.
type Stats struct {
	Ready     bool   // something is offered
	Holds     int    // pods
	Promises  int    // pods that were promised room which others have to leave
	Rows      int    // not resolved, inherited ones included
	Keys      int    // intent keys that are not removed yet, inherited ones included
	Waiting   int    // commits that wait for their transaction
	Bindings  uint64 // asked for so far
	Broken    uint64 // invariants of ours found broken
	Ignored   uint64 // messages ignored: malformed, or not from the gang's home shard
	OutOfSync int
}

// New makes a core that owns nothing yet.
func New(cfg Config) *Core {
	view := cfg.Topology
	if view == nil {
		view = topology.New()
	}
	c := &Core{
		topology: view, ownView: cfg.Topology == nil, unjudged: map[*commit]bool{},
		cfg:   cfg.withDefaults(),
		nodes: map[string]*api.Node{}, unreadable: map[string]string{}, volumes: map[string]event.NodeVolumes{},
		bound: map[string]boundPod{}, groups: newGroups(), nominated: map[string]boundPod{}, keptFor: map[string]int{},
		ended: [2]map[string]bool{{}, {}},
		sync:  syncState{out: map[string]bool{}},
		gangs: map[string]*gang{}, queues: map[string][]*gang{}, rows: map[string][]*row{},
		spent: fair.Budget{Rate: comparedBytes}, holders: map[string]bool{}, leaving: map[string]time.Time{},
		unsent:     map[*commit]bool{},
		unreported: map[string]bool{}, withdraw: map[string]bool{}, answerable: map[string]bool{},
		writes:   &writes{},
		intents:  &intents{keys: map[keyID]*key{}, dirty: map[keyID]bool{}, hurry: map[keyID]bool{}},
		resolves: &resolves{of: map[string]int{}},
		rooms: &rooms{promised: map[string][]*promisedRoom{}, awaited: map[string]*promisedRoom{},
			untold: map[string]bool{}},
		said: &said{requesters: map[api.Incarnation]time.Time{}, requested: map[uint64]*requestedClass{}},
	}
	c.cache = cache.New(cache.Config{Policy: cfg.Policy, Elsewhere: c.elsewhere})
	return c
}

// Outputs returns what is to be done since it was called last. The slice is valid until the next Step.
func (c *Core) Outputs() []event.Output {
	out := c.out
	c.out = nil
	return out
}

// Stats of this moment.
func (c *Core) Stats() Stats {
	s := Stats{Ready: c.ready, Keys: len(c.intents.keys), Waiting: len(c.writes.queue), Bindings: c.sentTotal,
		Broken: c.broken, Ignored: c.ignored, OutOfSync: len(c.sync.out)}
	for _, g := range c.gangs {
		s.Holds += len(g.holds)
		s.Promises += len(g.promises)
	}
	for _, rows := range c.rows {
		s.Rows += len(rows)
	}
	return s
}

// Summary is what was said last, nil before the first.
func (c *Core) Summary() *wire.Summary { return c.said.summary }

// Due is when the core is to be stepped although nothing happens, with whatever event; the zero time: at the next Tick.
func (c *Core) Due() time.Time {
	if c.writes.writing != nil || c.writes.lost || len(c.writes.queue) == 0 {
		return time.Time{}
	}
	return c.gatheredAt()
}

// Step changes the state by one event. Events that do not concern it are ignored.
func (c *Core) Step(now time.Time, ev event.Event) {
	if now.After(c.now) {
		c.now = now // time that goes back is time that stands
	}
	if c.ownView {
		c.topology.Step(c.now, ev)
	}
	switch ev := ev.(type) {
	case event.TableSeen:
		c.tableSeen(ev.Table)
	case event.StoreRead:
		c.storeRead(ev)
	case event.PodsReplaced:
		c.podsReplaced(ev)
	case event.PodSeen:
		c.podSeen(ev.Pod)
	case event.PodGone:
		c.podEnded(ev.UID, wire.BindOutcome_BIND_GONE, "")
	case event.NodeSeen:
		c.nodeSeen(ev.Node)
	case event.NodeVolumes:
		c.volumesSeen(ev)
	case event.NodeGone:
		c.nodeGone(ev.Name)
	case event.NamespaceSeen:
		c.namespaceSeen(ev.Name, ev.Labels)
	case event.NamespaceGone:
		c.namespaceSeen(ev.Name, nil)
	case event.CoordinatorSeen:
		c.supplied.epoch = 0
	case event.Message:
		c.message(ev)
	case event.IntentsWritten:
		c.intentsWritten(ev)
	case event.VolumesBound:
		c.volumesBound(ev)
	case event.BindDone:
		c.bindDone(ev)
		c.judgeAll(false)
	case event.ResolveDone:
		c.resolveDone(ev)
	case event.IntentsDeleted:
		c.intentsDeleted(ev)
	case event.IntentsRewritten:
		c.intentsRewritten(ev)
	case event.LogRead, event.LogSeen, event.Drained:
		c.judgeAll(false)
		c.tellHeld(true)
	case event.Tick:
		c.tick()
	}
	c.write()
	c.tidyKeys(false)
	c.watchSync()
	c.handOver()
	c.answerWithdraws()
	if c.urgent {
		c.sendResults()
	}
}

func (c *Core) message(m event.Message) {
	switch body := m.Body.GetBody().(type) {
	case *wire.Envelope_HoldRequest:
		c.holdRequest(m.From, body.HoldRequest)
	case *wire.Envelope_Explain:
		c.explain(m.From, body.Explain)
	case *wire.Envelope_Probe:
		c.probe(m.From, body.Probe)
	case *wire.Envelope_RoomProbe:
		c.roomProbe(m.From, body.RoomProbe)
	case *wire.Envelope_Commit:
		c.commitRequest(m.From, body.Commit)
	case *wire.Envelope_Bind:
		c.bindRequest(m.From, body.Bind)
	case *wire.Envelope_Prepare:
		c.prepareRequest(m.From, body.Prepare)
	case *wire.Envelope_Withdraw:
		c.withdrawRequest(m.From, body.Withdraw)
	}
}

func (c *Core) tick() {
	c.expireHolds()
	c.expirePrepared()
	c.tellHeld(true)
	c.judgeAll(true)
	c.tellExcess()
	c.resolveDue()
	c.tidyKeys(true)
	c.sendResults()
	c.summarise()
	c.supply()
	c.sweep()
}

// sweep forgets what nobody will ask for again.
func (c *Core) sweep() {
	if c.now.Sub(c.swept) < c.cfg.Remember/16 {
		return
	}
	c.swept = c.now
	c.spent.Forget(c.now)
	c.sweepGroups()
	old := c.now.Add(-c.cfg.Remember)
	if c.now.Sub(c.aged) >= c.cfg.Remember { // as a whole: there may be millions
		c.aged = c.now
		c.ended = [2]map[string]bool{{}, c.ended[0]}
	}
	for key, g := range c.gangs {
		for serial, m := range g.commits {
			if m.open() {
				continue
			}
			if m.prepared() && m.serial > g.withdrawn {
				m.rows = nil // each has a result
			}
			if m.at.Before(old) {
				delete(g.commits, serial)
			}
		}
		for pod, r := range g.results {
			if r.at.Before(old) {
				delete(g.results, pod)
			}
		}
		if g.touched.Before(old) && !c.unreported[key] &&
			len(g.holds)+len(g.promises)+len(g.rows)+len(g.commits)+len(g.results) == 0 {
			delete(c.gangs, key)
			uid := g.ref.GetUid()
			c.queues[uid] = slices.DeleteFunc(c.queues[uid], func(o *gang) bool { return o == g })
			if len(c.queues[uid]) == 0 {
				delete(c.queues, uid)
			}
		}
	}
}
