package node

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
	"basalt.dev/basalt/shard/event"
)

// ownership is what a bucket is to us.
type ownership uint8

const (
	foreign ownership = iota
	gained            // ours by the table; its takeover is not complete
	active
)

// takeover is the one in progress.
type takeover struct {
	sequence uint64
	revision int64 // of the table that gave us buckets
	stage    stage
}

type stage uint8

const (
	idle stage = iota
	reading
	listing
)

// gang is what is known of a gang here. It is forgotten when nothing is left of it and nobody spoke of it for a while.
//
// Its home shard and its serials are those of a queue: a pod whose queue is changed becomes a gang of the new one, whose
// home numbers what it asks for by itself. So what is remembered is kept by UID and queue.
type gang struct {
	key         string // UID and queue, as in Core.gangs
	ref         *wire.GangRef
	rank        api.Rank
	drains      bool     // it waits for whoever is there (yield)
	claimed     bool     // nobody goes before it, and its rooms stay its own
	withdrawn   uint64   // serials up to this one are refused
	requested   uint64   // the latest HoldRequest
	answer      uint64   // the serial of the Withdraw that is not answered yet
	withdrawing []string // the pods that it asks about
	holds       map[string]*hold
	promises    map[string]*promise
	commits     map[uint64]*commit
	rows        []*row // that are not forgotten, in no order
	results     map[string]result
	unreported  []string // pods whose results are to be sent
	touched     time.Time
}

// boundPod is a pod seen bound.
type boundPod struct {
	node string
	kin  *kin

	since int64 // when it was made, in seconds
	until int64 // as api.Pod
}

// hold is room that is kept for a pod.
type hold struct {
	node    string
	class   *api.Class // as it was asked for
	kin     *kin
	ruled   bool // counted by package topology
	serial  uint64
	expires time.Time
}

// result is what became of a pod, as its home shard is told.
type result struct {
	serial     uint64
	outcome    wire.BindOutcome
	node       string
	version    string // of a pod that resolving found free
	rejected   string // why the API server rejected its Binding
	at         time.Time
	unreported bool // in gang.unreported
}

// commit is a Commit that was taken, or that was refused after it was taken.
type commit struct {
	gang        *gang
	serial      uint64
	reservation int64
	table       int64
	bind        bool
	judged      bool  // it may be bound, as far as other pods are concerned, or its home shard judges that
	until       int64 // in seconds, as api.AnnotationUntil: of all its rows
	keep        bool  // the room of rows that are given up stays the gang's
	behind      behind
	rows        []*row
	reply       *wire.CommitReply // nil while it is not decided
	deadline    time.Time         // for Bind, once prepared
	at          time.Time         // when it came, or was decided
	trace       *wire.Trace
	received    time.Time
	firstBind   time.Time
	bindings    int  // not answered yet
	sent        int  // rows in phase sent
	refusedPods bool // rows were given up after it was prepared
	failed      []*wire.VolumeFailure
}

// open reports whether something of it is still to come.
func (m *commit) open() bool {
	return m.reply == nil || m.bindings > 0 || slices.ContainsFunc(m.rows, func(r *row) bool { return r.phase != done })
}

// prepared reports whether its rows are durable.
func (m *commit) prepared() bool {
	return m.reply.GetOutcome() == wire.CommitOutcome_COMMIT_PREPARED
}

type phase uint8

const (
	queued    phase = iota // charged, waits for its transaction
	inFlight               // its transaction is under way
	prepared               // durable, and its Binding was not asked for
	sent                   // its Binding was asked for, by us or maybe by the shard we inherited it from
	confirmed              // the pod has this node, says the API server; not seen in the watch yet
	dropped                // durable, and will never be sent: holds its room until it has left the control store
	done
)

// row is one pod on its way to one node.
type row struct {
	gang   *gang
	commit *commit // nil for an inherited one
	key    *key    // nil before its transaction
	uid    string
	rv     string
	ns     string
	name   string
	node   string
	class  *api.Class // as it was asked for
	kin    *kin
	ruled  bool // its hold was counted by package topology

	index     int // in its key
	phase     phase
	volumes   binding
	asked     time.Time // with volumesAsked: since when
	at        int       // in gang.rows
	charge    string    // the UID under which the cache counts it, "" when it does not
	stored    bool      // is in the control store, as far as we know
	seen      bool      // its pod was seen since; so a list without it means that it is gone
	listed    uint64    // of an inherited row: the takeover that found it; so its list without the pod means so, too
	resolved  bool      // with confirmed: a patch said so; the control store need not remember it
	binding   bool      // BindPod is not answered
	resolving bool      // ResolveBinding is not answered
	version   string    // of the pod once resolving found it free
	rejected  string    // why the API server rejected its Binding, or could not judge it
	answered  bool      // it rejected it
	resolveAt time.Time
	retries   int
}

func (r *row) serial() uint64 {
	if r.commit == nil {
		return 0
	}
	return r.commit.serial
}

// removable reports whether the control store may forget it.
func (r *row) removable() bool {
	return r.phase == done || r.phase == dropped || r.phase == confirmed && r.resolved
}

func (r *row) id() event.RowID {
	return event.RowID{Incarnation: r.key.id.inc, N: r.key.id.n, PodUID: r.uid}
}

// keyID names an intent key.
type keyID struct {
	inc api.Incarnation
	n   uint64
}

func (k keyID) compare(o keyID) int {
	return cmp.Or(cmp.Compare(k.inc, o.inc), cmp.Compare(k.n, o.n))
}

// key is an intent key: an own one with all its rows, or another shard's with those rows that are on our nodes.
type key struct {
	id          keyID
	place       int64 // in the log of intents: the revision at which it was created; 0 for another shard's
	modRevision int64
	record      *wire.IntentsRecord
	rows        map[string]*row
	busy        bool                // a delete or rewrite of it is in flight
	requested   *wire.IntentsRecord // by the rewrite in flight
	retryAt     time.Time
}

// batch is an intent transaction in flight.
type batch struct {
	size    int // of record, at most
	n       uint64
	rows    []*row
	commits []*commit // distinct
	record  *wire.IntentsRecord
}

// ---- charges

// charge counts a row. Under its pod's UID, unless something else of that pod is counted already.
func (c *Core) charge(r *row) {
	r.charge = r.uid
	if _, taken := c.cache.Lookup(r.uid); taken {
		r.charge = r.ownCharge()
	}
	c.chargeRow(r, r.node)
}

// chargeRow counts a row under the name that it has.
func (c *Core) chargeRow(r *row, node string) {
	if r.kin == nil {
		r.kin = c.kin(r.ns, nil, true)
	}
	r.kin.used = true
	class, _ := c.placed(r.kin, r.class, false)
	c.cache.Charge(r.charge, node, class, cache.Intent, r.gang.key, r.gang.rank)
}

// ownCharge is a name for a row's charge that no pod and no other row has.
func (r *row) ownCharge() string {
	if r.key == nil {
		return r.uid + "@" + strconv.FormatUint(r.serial(), 16)
	}
	return r.uid + "@" + string(r.key.id.inc) + "/" + strconv.FormatUint(r.key.id.n, 16)
}

func (c *Core) discharge(r *row) {
	if r.charge != "" {
		c.cache.Release(r.charge)
		r.charge = ""
	}
}

// ---- rows

func (c *Core) addRow(r *row) {
	c.rows[r.uid] = append(c.rows[r.uid], r)
	r.at = len(r.gang.rows)
	r.gang.rows = append(r.gang.rows, r)
}

func (c *Core) unlistRow(r *row) {
	rows := slices.DeleteFunc(c.rows[r.uid], func(o *row) bool { return o == r })
	if len(rows) == 0 {
		delete(c.rows, r.uid)
		return
	}
	c.rows[r.uid] = rows
}

// finish ends a row: nothing of it can take room any more.
func (c *Core) finish(r *row) {
	if r.phase == done {
		return
	}
	c.discharge(r)
	c.unhold(r.ruled, r.ns, r.uid)
	if r.phase != dropped {
		c.unlistRow(r)
	}
	wasInFlight := r.phase == inFlight
	c.enter(r, done)
	if r.key != nil {
		c.intents.dirty[r.key.id] = true
	} else if !wasInFlight {
		c.forgetRow(r)
	}
}

// forgetRow takes a finished row out of its gang.
func (c *Core) forgetRow(r *row) {
	g := r.gang
	if r.at < len(g.rows) && g.rows[r.at] == r {
		last := len(g.rows) - 1
		g.rows[r.at] = g.rows[last]
		g.rows[r.at].at = r.at
		g.rows[last] = nil
		g.rows = g.rows[:last]
	}
	g.touched = c.now
	c.mayAnswer(g)
}

// enter changes a row's phase.
func (c *Core) enter(r *row, p phase) {
	if r.phase == p {
		return
	}
	if m := r.commit; m != nil {
		if r.phase == sent {
			m.sent--
		}
		if p == sent {
			m.sent++
		}
	}
	c.endVolumes(r, p)
	r.phase = p
	c.mayAnswer(r.gang)
}

// mayAnswer has the gang's Withdraw looked at, if there is one: something of it changed.
func (c *Core) mayAnswer(g *gang) {
	if len(c.withdraw) > 0 && c.withdraw[g.key] {
		c.answerable[g.key] = true
	}
}

// giveUp ends a row that was never sent, or, if it is durable, makes it wait until it has left the control store.
func (c *Core) giveUp(r *row) {
	switch r.phase {
	case queued:
		c.finish(r)
		c.keepRoom(r)
	case prepared:
		c.unlistRow(r)
		c.unhold(r.ruled, r.ns, r.uid)
		if r.charge == r.uid { // the pod itself may be placed anew meanwhile
			c.discharge(r)
			r.charge = r.ownCharge()
			c.chargeRow(r, r.node)
			c.rooms.renameAwaited(r.uid, r.charge)
		}
		c.enter(r, dropped)
		c.intents.dirty[r.key.id], c.intents.hurry[r.key.id] = true, true
		c.keepRoom(r)
	}
}

// ---- gangs

func gangKey(ref *wire.GangRef) string { return ref.GetUid() + "/" + ref.GetQueue() }

func (c *Core) gang(ref *wire.GangRef) *gang {
	key := gangKey(ref)
	g := c.gangs[key]
	if g == nil {
		g = &gang{key: key, rank: api.Rank{Gang: ref.GetUid()}, holds: map[string]*hold{}, promises: map[string]*promise{}, commits: map[uint64]*commit{}, results: map[string]result{}}
		c.gangs[key] = g
		c.queues[ref.GetUid()] = append(c.queues[ref.GetUid()], g)
	}
	g.ref, g.touched = ref, c.now
	return g
}

// note records what became of a pod, to be sent to its home shard.
func (c *Core) note(r *row, outcome wire.BindOutcome, node string) {
	g := r.gang
	if old, ok := g.results[r.uid]; ok && old.serial == r.serial() && old.outcome == outcome && old.node == node &&
		old.version == r.version && old.rejected == r.rejected {
		return
	}
	if !g.results[r.uid].unreported {
		g.unreported = append(g.unreported, r.uid)
	}
	g.results[r.uid] = result{r.serial(), outcome, node, r.version, r.rejected, c.now, true}
	c.unreported[g.key] = true
	if m := r.commit; m == nil || m.sent == 0 || m.sent == 1 && r.phase == sent {
		c.urgent = true // nothing more to wait for
	}
}

// resendResults marks results as unreported, so that they are sent once more.
func (c *Core) resendResults(g *gang, covers func(result) bool) {
	for _, uid := range api.SortedKeys(g.results) {
		if r := g.results[uid]; covers(r) && !r.unreported {
			r.unreported = true
			g.results[uid] = r
			g.unreported = append(g.unreported, uid)
			c.unreported[g.key] = true
			c.urgent = true
		}
	}
}

func (c *Core) sendResults() {
	c.urgent = false
	for _, key := range api.SortedKeys(c.unreported) {
		g := c.gangs[key]
		bySerial := map[uint64][]*wire.BindResult{}
		var serials []uint64
		for _, pod := range g.unreported {
			r := g.results[pod]
			r.unreported = false
			g.results[pod] = r
			if bySerial[r.serial] == nil {
				serials = append(serials, r.serial)
			}
			bySerial[r.serial] = append(bySerial[r.serial], &wire.BindResult{PodUid: pod, Outcome: r.outcome, Node: r.node,
				ResourceVersion: r.version, Rejected: r.rejected})
		}
		for _, s := range serials {
			for part := range slices.Chunk(bySerial[s], c.cfg.MaxNamed) {
				c.send(g, &wire.Envelope{Body: &wire.Envelope_BindResults{BindResults: &wire.BindResults{GangUid: g.ref.GetUid(), Serial: s, Results: part}}})
			}
		}
		g.unreported = nil
	}
	clear(c.unreported)
}
