package node

import (
	"cmp"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
	"basalt.dev/basalt/shard/event"

	"google.golang.org/protobuf/proto"
)

// The commit path turns holds into Bindings.
//
// The naive way is to pick a node in memory and to send the Binding. The API server accepts a Binding for every pod that has no
// node yet; it does not check that the node has room. So two schedulers that see the same free cores over-commit a node. A
// scheduler that was paused still sends what it decided before its nodes were given to another one: it cannot know that its
// lease has run out meanwhile. And if a scheduler dies in the middle of a gang, a part of the gang runs, and nobody knows which
// Bindings are still on their way.
//
// So each Binding is announced by a durable intent, and it is the control store that decides whether the intent is still valid.
// Invariants:
//   - No Binding is sent before its intent is durable.
//   - The transaction that writes intents compares the store's identity, this shard's own key, the revision of the table, the
//     revision of every reservation, and the absence of the intents' key. So a shard that has lost its nodes writes none, and
//     none is written for a gang that is closed or whose reservation changed.
//   - A Binding names the UID and the resourceVersion of its intent, and is sent once. So it has at most one effect, and none once
//     the pod is at another version.
//   - From the moment it is queued, an intent (a row) uses capacity of its node, until its pod is seen bound, or its Binding can
//     no longer take effect.
//   - A commit is prepared as a whole or refused as a whole.
//
// Outline:
//  1. admit checks the pods of a Commit with the function that also finds nodes for holds, and makes rows of them.
//  2. write gathers the rows of many commits into one transaction. One transaction at a time is under way.
//  3. decided answers that the commit is prepared. A home shard that waits for several shards sends Bind when all are prepared;
//     if there is only one, the Commit itself says that Bindings follow at once. Then it is judged here (topology.go), when the log of
//     intents was seen up to it.
//  4. bind sends a Binding for each row. A row whose Binding succeeded is confirmed; once the watch shows the pod bound, it is
//     done, and its intent is deleted (bind.go, keys.go).
//
// What can go wrong:
//   - The table has changed: all commits of the transaction are refused. A reservation has changed: its commits are refused, and
//     the others are written again.
//   - The response to the transaction is lost: api/store retries until the outcome is definite. The rows keep their capacity.
//   - The record cannot be written: transactions of half as many rows find the row that is the cause (unwritable).
//   - No Bind arrives within PreparedLimit, or the home shard withdraws: rows that were not sent are given up and their intents
//     deleted. A Bind that arrives later finds none of them.
//   - A Binding fails, its response is lost, or the watch does not show it: the pod is read, and written if need be, until it is
//     certain where it is (bind.go, api/kube).
//   - This process dies: its heir reads all intents, then lists all pods, counts every intent whose outcome is open, and resolves
//     each of them (table.go).

// writes are the commits that wait for their transaction, and the one that is in flight.
type writes struct {
	queue   []*commit
	writing *batch
	fewRows int       // rows of a transaction while the one that cannot be written is sought; 0: none is
	wrote   time.Time // when it began, or the one before
	nextN   uint64
	lost    bool // this incarnation may not write any more
}

// commitRequest turns the holds of a Commit into intents: all of them or none.
func (c *Core) commitRequest(from api.Incarnation, m *wire.Commit) {
	if !c.ready || !c.fromHome(from, m.GetGang()) {
		return
	}
	g := c.gang(m.GetGang())
	if old := g.commits[m.GetSerial()]; old != nil { // a repeat: the answer was lost, or is under way
		if old.reply != nil {
			reply := old.reply
			if old.serial <= g.withdrawn {
				reply = &wire.CommitReply{GangUid: g.ref.GetUid(), Serial: old.serial, Outcome: wire.CommitOutcome_COMMIT_WITHDRAWN}
			}
			old.deadline = c.now.Add(c.cfg.PreparedLimit) // a word
			c.send(g, &wire.Envelope{Body: &wire.Envelope_CommitReply{CommitReply: reply}})
			c.resendResults(g, func(r result) bool { return r.serial == old.serial })
		}
		return
	}
	if m.GetRank() != nil {
		c.setRank(g, wire.ToRank(m.GetRank()), g.claimed)
	}
	refuse := func(outcome wire.CommitOutcome, message string, pods []string) *wire.CommitReply {
		reply := &wire.CommitReply{GangUid: m.GetGang().GetUid(), Serial: m.GetSerial(), Outcome: outcome, Message: message, PodUids: pods}
		c.send(g, &wire.Envelope{Body: &wire.Envelope_CommitReply{CommitReply: reply}})
		return reply
	}
	if m.GetSerial() <= g.withdrawn {
		refuse(wire.CommitOutcome_COMMIT_WITHDRAWN, "withdrawn before", nil)
		return
	}
	mm := &commit{gang: g, serial: m.GetSerial(), reservation: m.GetReservationRevision(), table: m.GetTableRevision(),
		bind: m.GetBind(), judged: !m.GetBind() && !m.GetJudge(), at: c.now, trace: m.GetTrace(), received: c.now,
		until: max(0, m.GetUntilUnixMs()) / 1000}
	if c.writes.lost {
		return // this process ends; its heir answers
	}
	g.commits[mm.serial] = mm // once refused, its home shard may place the pods elsewhere: a repeat is refused, too, whatever is known by then
	if m.GetTableRevision() != c.table.Revision {
		mm.reply = refuse(wire.CommitOutcome_COMMIT_TABLE_MOVED, c.tableMoved(m.GetTableRevision()), nil)
		return
	}
	if without, why := c.admit(mm, m); len(without) > 0 || why != "" {
		mm.reply = refuse(wire.CommitOutcome_COMMIT_HOLD_GONE, why, without)
		return
	}
	c.writes.queue = append(c.writes.queue, mm)
}

// admit makes rows of a commit's pods, where they hold room or where there is room without a hold: such a commit is a new
// request. If one has none, none is taken, and the holds that were there stay.
func (c *Core) admit(mm *commit, m *wire.Commit) (without []string, why string) {
	g := mm.gang
	all := func() []string {
		uids := make([]string, 0, len(m.GetPods()))
		for _, p := range m.GetPods() {
			uids = append(uids, p.GetUid())
		}
		return uids
	}
	classes, err := readClasses(m.GetClasses())
	if err != nil {
		return all(), err.Error()
	}
	if len(m.GetPods()) == 0 {
		return nil, "commit of no pods"
	}
	if mm.reservation <= 0 {
		return all(), "commit without a reservation"
	}
	type taken struct {
		row  *row
		hold *hold
	}
	var done []taken
	reason := func(uid, message string) {
		without = append(without, uid)
		if why == "" {
			why = message
		}
	}
	for _, p := range m.GetPods() {
		uid := p.GetUid()
		switch {
		case uid == "" || p.GetResourceVersion() == "" || p.GetNode() == "" || p.GetName() == "" || int(p.GetPodClass()) >= len(classes):
			reason(uid, fmt.Sprintf("pod %s/%s: commit lacks its UID, resourceVersion, node or class", p.GetNamespace(), p.GetName()))
			continue
		case len(c.rows[uid]) > 0:
			reason(uid, fmt.Sprintf("pod %s/%s is on its way to a node already", p.GetNamespace(), p.GetName()))
			continue
		case c.hasEnded(uid):
			reason(uid, fmt.Sprintf("pod %s/%s has ended", p.GetNamespace(), p.GetName()))
			continue
		}
		class := classes[p.GetPodClass()]
		if size := demandSize(class); size > c.cfg.MaxClassBytes {
			reason(uid, fmt.Sprintf("pod %s/%s: its requests and constraints have %d bytes, the limit is %d", p.GetNamespace(), p.GetName(), size, c.cfg.MaxClassBytes))
			continue
		}
		k := c.kinOf(g.ref.GetNamespace(), class)
		counted, ok := c.placed(k, class, true)
		if !ok {
			reason(uid, fmt.Sprintf("pod %s/%s: its namespace has too many different anti-affinity terms", p.GetNamespace(), p.GetName()))
			continue
		}
		h := g.holds[uid]
		var misfit cache.Misfit
		if h != nil && h.node == p.GetNode() && h.class.Key == class.Key {
			misfit = c.cache.CanStay(uid)
		} else if h == nil && c.isCharged(uid) {
			reason(uid, fmt.Sprintf("pod %s/%s is bound, or held for another gang", p.GetNamespace(), p.GetName()))
			continue
		} else {
			if h != nil {
				c.cache.Release(uid)
			}
			misfit = c.cache.CanPlace(counted, p.GetNode())
			if h != nil && !misfit.Fits() {
				c.chargeHold(g, uid, h)
			}
		}
		if !misfit.Fits() {
			reason(uid, fmt.Sprintf("node %s: %s", p.GetNode(), misfit))
			continue
		}
		r := &row{gang: g, commit: mm, uid: uid, rv: p.GetResourceVersion(), ns: p.GetNamespace(), name: p.GetName(), node: p.GetNode(), class: class, kin: k, ruled: h != nil && h.ruled, charge: uid}
		if p.GetUnbound() {
			r.volumes = volumesWait
		}
		delete(g.holds, uid)
		c.chargeRow(r, r.node)
		c.addRow(r)
		done = append(done, taken{r, h})
	}
	if len(without) == 0 {
		for _, t := range done {
			mm.rows = append(mm.rows, t.row)
		}
		return nil, ""
	}
	for i := len(done) - 1; i >= 0; i-- {
		t := done[i]
		c.finish(t.row)
		if t.hold != nil {
			g.holds[t.row.uid] = t.hold
			c.holders[g.key] = true
			c.chargeHold(g, t.row.uid, t.hold)
		}
	}
	return without, why
}

func (c *Core) tableMoved(named int64) string {
	return fmt.Sprintf("decided under table revision %d, the current one is %d", named, c.table.Revision)
}

// gather reports whether the next transaction waits for what else comes: what it costs hardly depends on how much is in it.
// After a pause none waits, and none that is full.
func (c *Core) gather() bool {
	if !c.now.Before(c.gatheredAt()) || len(c.writes.queue) >= c.cfg.MaxFences {
		return false
	}
	rows := 0
	for _, m := range c.writes.queue {
		rows += len(m.rows)
	}
	return rows < c.cfg.MaxRows
}

// gatheredAt is until when what comes is gathered.
func (c *Core) gatheredAt() time.Time { return c.writes.wrote.Add(c.cfg.WriteEvery) }

// write puts waiting commits into one transaction, in their order, when none is in flight. A commit with more rows than
// fit goes over several; it is prepared when the last is durable.
func (c *Core) write() {
	for c.writes.writing == nil && !c.writes.lost && len(c.writes.queue) > 0 && !c.gather() {
		b := &batch{record: &wire.IntentsRecord{TableEpoch: uint64(c.table.Epoch)}}
		var fences []event.ReservationFence
		fenced := map[string]int64{}
		gangs, demands := map[string]uint32{}, map[string]uint32{}
		rest := c.writes.queue[:0:0]
		full := false
		for _, m := range c.writes.queue {
			if m.reply != nil {
				continue
			}
			if m.table != c.table.Revision {
				c.refuse(m, wire.CommitOutcome_COMMIT_TABLE_MOVED, c.tableMoved(m.table), nil)
				continue
			}
			revision, known := fenced[m.gang.ref.GetUid()]
			if full || known && revision != m.reservation || !known && len(fences) == c.cfg.MaxFences {
				full = true
				rest = append(rest, m)
				continue
			}
			took := false
			for _, r := range m.rows {
				if r.phase != queued {
					continue
				}
				var nodeVersion string
				if n := c.nodes[r.node]; n != nil {
					nodeVersion = n.ResourceVersion
				}
				size := b.sizeOf(r, gangs, demands) + len(nodeVersion)
				if len(b.rows) > 0 && (len(b.rows) >= c.maxRows() || b.size+size > c.cfg.MaxBytes) {
					full = true
					rest = append(rest, m)
					break
				}
				took = true
				b.add(r, nodeVersion, size, gangs, demands)
				c.enter(r, inFlight)
			}
			if took {
				b.commits = append(b.commits, m)
				if !known && !fault.On(fault.NoReservationFence) {
					fenced[m.gang.ref.GetUid()] = m.reservation
					fences = append(fences, event.ReservationFence{Bucket: api.BucketOf(m.gang.ref.GetQueue()), GangUID: m.gang.ref.GetUid(), Revision: m.reservation})
				}
			} else if !full {
				c.decided(m) // every pod of it was resolved meanwhile
			}
		}
		c.writes.queue = rest
		if len(b.rows) == 0 {
			if len(rest) > 0 {
				c.fault("commits wait and none can be written")
				return
			}
			continue
		}
		c.writes.nextN++
		b.n = c.writes.nextN
		c.writes.writing, c.writes.wrote = b, c.now
		c.emit(event.WriteIntents{N: b.n, Record: b.record, TableRevision: c.table.Revision, Reservations: fences})
	}
}

// maxRows is how many rows the next transaction may have: fewer while the cause is sought why one could not be written.
func (c *Core) maxRows() int {
	if c.writes.fewRows > 0 {
		return min(c.writes.fewRows, c.cfg.MaxRows)
	}
	return c.cfg.MaxRows
}

// sizeOf is by how many bytes at most a row makes the record larger.
func (b *batch) sizeOf(r *row, gangs, demands map[string]uint32) int {
	size := len(r.uid) + len(r.rv) + len(r.ns) + len(r.name) + len(r.node) + 40
	if _, known := gangs[r.gang.key]; !known {
		size += proto.Size(r.gang.ref) + 10
	}
	if _, known := demands[r.class.Key]; !known {
		size += demandSize(r.class)
	}
	return size
}

// demandSize is how many bytes a class takes at most in a record.
func demandSize(class *api.Class) int {
	size := len(class.Constraints) + len(class.Repels) + 30
	for _, list := range []api.Resources{class.Requests, class.Attach} {
		for _, a := range list {
			size += len(a.Resource) + 20
		}
	}
	return size
}

func (b *batch) add(r *row, nodeVersion string, size int, gangs, demands map[string]uint32) {
	ref := r.gang.ref
	gi, ok := gangs[r.gang.key]
	if !ok {
		gi = uint32(len(b.record.Gangs))
		gangs[r.gang.key] = gi
		b.record.Gangs = append(b.record.Gangs, ref)
	}
	di, ok := demands[r.class.Key]
	if !ok {
		di = uint32(len(b.record.Demands))
		demands[r.class.Key] = di
		b.record.Demands = append(b.record.Demands, wire.FromDemand(r.class))
	}
	b.size += size
	b.record.Rows = append(b.record.Rows, &wire.IntentRow{PodUid: r.uid, PodResourceVersion: r.rv, Namespace: r.ns, Name: r.name, Node: r.node, NodeResourceVersion: nodeVersion, Gang: gi, Demand: di})
	b.rows = append(b.rows, r)
}

func (c *Core) intentsWritten(ev event.IntentsWritten) {
	b := c.writes.writing
	if b == nil || b.n != ev.N {
		return // a repeat
	}
	c.writes.writing = nil
	switch ev.Outcome {
	case event.Written:
		k := &key{id: keyID{c.cfg.Self, b.n}, place: ev.ModRevision, modRevision: ev.ModRevision, record: b.record, rows: map[string]*row{}}
		c.intents.keys[k.id] = k
		c.intents.dirty[k.id] = true
		c.writes.fewRows = 0
		for i, r := range b.rows {
			r.key, r.stored, r.index = k, true, i
			k.rows[r.uid] = r
			if r.phase == inFlight {
				c.enter(r, prepared)
			}
		}
		for _, m := range b.commits {
			c.decided(m)
		}
	case event.ReservationMoved:
		moved := map[string]bool{}
		for _, uid := range ev.Moved {
			moved[uid] = true
		}
		var again []*commit
		for _, m := range b.commits {
			if moved[m.gang.ref.GetUid()] {
				continue
			}
			again = append(again, m)
		}
		if len(again) == len(b.commits) { // nothing named that we asked for: trying again would go on for ever
			again = nil
		}
		c.unwritten(b)
		for _, m := range b.commits {
			if !slices.Contains(again, m) {
				c.refuse(m, wire.CommitOutcome_COMMIT_RESERVATION_MOVED, fmt.Sprintf("the reservation is not at revision %d any more", m.reservation), nil)
			}
		}
		c.writes.queue = slices.DeleteFunc(c.writes.queue, func(m *commit) bool { return slices.Contains(b.commits, m) })
		c.writes.queue = append(again, c.writes.queue...)
	case event.TableMoved:
		c.unwritten(b)
		for _, m := range b.commits {
			c.refuse(m, wire.CommitOutcome_COMMIT_TABLE_MOVED, fmt.Sprintf("the table is not at revision %d any more", m.table), nil)
		}
	case event.Unwritable:
		c.unwritable(b)
	default:
		c.writes.lost = true
		c.writes.writing = b // nobody knows what became of it: its room stays taken until the process ends
		c.log(slog.LevelWarn, "session lost: this process places no more pods")
	}
}

// unwritable finds the row that the control store does not take, by transactions of half as many rows each. Its commit is
// refused; the others go on. Rows that are too large are refused before, so this is for what nobody foresaw.
func (c *Core) unwritable(b *batch) {
	c.unwritten(b)
	c.writes.queue = slices.DeleteFunc(c.writes.queue, func(m *commit) bool { return slices.Contains(b.commits, m) })
	if len(b.rows) > 1 {
		c.writes.fewRows = len(b.rows) / 2
		c.writes.queue = append(slices.Clone(b.commits), c.writes.queue...)
		return
	}
	c.writes.fewRows = 0
	r := b.rows[0]
	c.log(slog.LevelError, "cannot write intent, refusing its commit", slog.String("pod", r.ns+"/"+r.name), slog.String("gang", r.gang.ref.GetUid()), slog.Int("bytes", b.size))
	c.refuse(b.commits[0], wire.CommitOutcome_COMMIT_HOLD_GONE, fmt.Sprintf("pod %s/%s: its intent of %d bytes cannot be written into the control store", r.ns, r.name, b.size), nil)
}

// unwritten takes the rows of a transaction that certainly failed back.
func (c *Core) unwritten(b *batch) {
	for _, r := range b.rows {
		switch r.phase {
		case inFlight:
			c.enter(r, queued)
		case done:
			c.forgetRow(r)
		}
	}
	for _, m := range b.commits {
		if m.reply != nil { // withdrawn meanwhile: it is not tried again
			c.giveUpAll(m)
		}
	}
}

// decided looks whether a commit is durable as a whole, and goes on with it.
func (c *Core) decided(m *commit) {
	for _, r := range m.rows {
		if r.phase == queued || r.phase == inFlight {
			return
		}
	}
	if m.reply != nil { // withdrawn, or refused, while its rows were written
		for _, r := range m.rows {
			c.giveUp(r)
		}
		return
	}
	if !m.judged && !c.judge(m) {
		return
	}
	m.at = c.now
	m.reply = &wire.CommitReply{GangUid: m.gang.ref.GetUid(), Serial: m.serial, Outcome: wire.CommitOutcome_COMMIT_PREPARED, Place: m.place()}
	m.deadline = c.now.Add(c.cfg.PreparedLimit)
	c.span(m.trace, "prepare", m.received, c.now, "", slog.String("gang", m.gang.ref.GetUid()), slog.Int("pods", len(m.rows)))
	c.send(m.gang, &wire.Envelope{Body: &wire.Envelope_CommitReply{CommitReply: m.reply}})
	c.dropUnbindable(m)
	if m.bind {
		c.bind(m)
		return
	}
	c.unsent[m] = true
}

// refuse ends a commit that was taken.
func (c *Core) refuse(m *commit, outcome wire.CommitOutcome, message string, pods []string) {
	if m.reply != nil {
		c.giveUpAll(m)
		return
	}
	m.at = c.now
	m.reply = &wire.CommitReply{GangUid: m.gang.ref.GetUid(), Serial: m.serial, Outcome: outcome, Message: message, PodUids: pods}
	c.giveUpAll(m)
	c.span(m.trace, "prepare", m.received, c.now, outcome.String(), slog.String("gang", m.gang.ref.GetUid()), slog.Int("pods", len(m.rows)))
	c.send(m.gang, &wire.Envelope{Body: &wire.Envelope_CommitReply{CommitReply: m.reply}})
}

func (c *Core) giveUpAll(m *commit) {
	for _, r := range m.rows {
		c.giveUp(r)
	}
}

func (c *Core) commitsOf(g *gang) []*commit {
	out := make([]*commit, 0, len(g.commits))
	for _, m := range g.commits {
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b *commit) int { return cmp.Compare(a.serial, b.serial) })
	return out
}
