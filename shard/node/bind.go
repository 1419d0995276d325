package node

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// resolves are the patches in flight that find out whether a Binding took effect.
type resolves struct {
	open int
	of   map[string]int
	more bool
}

func (c *Core) bindRequest(from api.Incarnation, m *wire.Bind) {
	if !c.ready || m.GetGangUid() == "" {
		return
	}
	mm := c.commitFor(from, m.GetGangUid(), m.GetSerial())
	if mm == nil {
		return
	}
	g := mm.gang
	switch {
	case mm.reply == nil: // more is known there than here; it is bound when it is durable
		mm.bind = true
		return
	case !mm.prepared() || mm.serial <= g.withdrawn:
		for _, r := range mm.rows {
			if _, told := g.results[r.uid]; !told && (r.phase == dropped || r.phase == done) {
				c.note(r, wire.BindOutcome_BIND_FREE, "")
			}
		}
	default:
		mm.bind = true
		c.dropUnbindable(mm)
		c.bind(mm)
	}
	c.resendResults(g, func(r result) bool { return r.serial == mm.serial })
}

// commitFor finds the commit that a home shard speaks of. Of one that is not known here the home shard is told so.
func (c *Core) commitFor(from api.Incarnation, gangUID string, serial uint64) (mm *commit) {
	home := len(c.queues[gangUID]) == 0
	for _, of := range c.queues[gangUID] { // the same serial may have been used by the homes of two queues
		if c.table.OwnerOf(of.ref.GetQueue()) != from {
			continue
		}
		home = true
		if at := of.commits[serial]; at != nil {
			mm = at
		}
	}
	switch {
	case !home:
		c.ignored++
	case mm != nil:
		mm.gang.touched = c.now
	case c.table.Has(from): // forgotten, or made before we were born
		c.emit(event.Send{To: from, Body: &wire.Envelope{Body: &wire.Envelope_CommitReply{CommitReply: &wire.CommitReply{
			GangUid: gangUID, Serial: serial, Outcome: wire.CommitOutcome_COMMIT_WITHDRAWN, Message: "no such commit here"}}}})
	}
	return mm
}

// dropUnbindable gives up durable rows whose node is gone, or not ours any more, or over its limits by now: such a node
// takes nothing, and nobody has been told to go there yet.
func (c *Core) dropUnbindable(m *commit) {
	c.dropWhere(m, func(r *row) bool {
		return c.nodes[r.node] == nil || c.buckets[api.BucketOf(r.node)] != active || c.sync.out[r.node]
	})
}

// dropWhere gives up the durable rows of a commit that were not sent and are so, and tells its home shard.
func (c *Core) dropWhere(m *commit, is func(*row) bool) {
	for _, r := range m.rows {
		if r.phase == prepared && is(r) {
			c.giveUp(r)
			c.note(r, wire.BindOutcome_BIND_FREE, "")
		}
	}
}

// bind asks for the Bindings of what is durable and was not sent.
func (c *Core) bind(m *commit) {
	c.dropUnready(m)
	c.dropUnfit(m)
	for _, r := range m.rows {
		if r.phase != prepared {
			continue
		}
		if !r.stored || r.key == nil || r.key.modRevision <= 0 || m.serial <= m.gang.withdrawn || c.otherOwnRow(r) || r.volumes.open() {
			c.fault("a Binding without a durable intent of its own", slog.String("pod", r.uid), slog.String("node", r.node))
			continue
		}
		if m.firstBind.IsZero() {
			m.firstBind = c.now
		}
		m.bindings++
		r.binding = true
		c.enter(r, sent)
		c.sentTotal++
		c.emit(event.BindPod{Row: r.id(), ResourceVersion: r.rv, Namespace: r.ns, Name: r.name, Node: r.node,
			Gang: m.gang.ref.GetUid(), Until: m.until})
	}
}

// otherOwnRow reports whether the pod has another row that this process may send.
func (c *Core) otherOwnRow(r *row) bool {
	return slices.ContainsFunc(c.rows[r.uid], func(o *row) bool { return o != r && o.commit != nil })
}

// awaiting are the commits that wait for Bind, in order.
func (c *Core) awaiting() []*commit {
	out := make([]*commit, 0, len(c.unsent))
	for m := range c.unsent {
		if m.bind || !slices.ContainsFunc(m.rows, func(r *row) bool { return r.phase == prepared }) {
			delete(c.unsent, m)
			continue
		}
		out = append(out, m)
	}
	sortCommits(out)
	return out
}

func sortCommits(list []*commit) {
	slices.SortFunc(list, func(a, b *commit) int {
		return cmp.Or(strings.Compare(a.gang.ref.GetUid(), b.gang.ref.GetUid()), cmp.Compare(a.serial, b.serial))
	})
}

// expirePrepared gives up what has waited for Bind too long.
func (c *Core) expirePrepared() {
	for _, m := range c.awaiting() {
		if !c.now.Before(m.deadline) {
			c.dropWhere(m, func(*row) bool { return true })
		}
	}
}

func (c *Core) bindDone(ev event.BindDone) {
	k := c.intents.keys[keyID{ev.Row.Incarnation, ev.Row.N}]
	if k == nil {
		return
	}
	r := k.rows[ev.Row.PodUID]
	if r == nil || !r.binding {
		return // a repeat
	}
	r.binding = false
	if m := r.commit; m != nil {
		m.bindings--
		if ev.Outcome != event.BindOK {
			m.refusedPods = true
		}
		if m.bindings == 0 {
			failed := ""
			if m.refusedPods {
				failed = "not every Binding was confirmed"
			}
			c.span(m.trace, "bind", m.firstBind, c.now, failed, slog.String("gang", m.gang.ref.GetUid()), slog.Int("pods", len(m.rows)))
		}
	}
	c.intents.dirty[k.id] = true
	if r.phase != sent {
		return // the watch was faster
	}
	if ev.Outcome == event.BindOK {
		c.enter(r, confirmed)
		r.resolveAt = c.now.Add(c.cfg.ConfirmLimit)
		c.note(r, wire.BindOutcome_BIND_BOUND, r.node)
		c.topology.Bound(r.ns, r.uid, r.node)
		return
	}
	if ev.Outcome == event.BindUnknown && fault.On(fault.ForgottenPod) {
		c.note(r, wire.BindOutcome_BIND_FREE, "")
		c.finish(r)
		return
	}
	r.rejected, r.answered, r.resolveAt = ev.Why, ev.Outcome == event.BindRejected, c.now
	if !c.resolves.more { // else the next tick decides who comes first
		c.resolve(r)
	}
}

// resolve asks what became of a row, if not too much is asked already.
func (c *Core) resolve(r *row) {
	if r.resolving || r.binding || r.phase != sent && r.phase != confirmed {
		return
	}
	if c.resolves.open >= c.cfg.MaxResolving {
		c.resolves.more = true
		return
	}
	c.count++
	c.resolves.open++
	c.resolves.of[r.ns]++
	r.resolving = true
	value := string(c.cfg.Self) + "-" + strconv.FormatUint(c.count, 10)
	if fault.On(fault.EmptyResolve) {
		value = ""
	}
	c.emit(event.ResolveBinding{
		Row: r.id(), ResourceVersion: r.rv, Namespace: r.ns, Name: r.name, Value: value, Answered: r.answered})
}

// resolved takes note that a row is not being resolved any more.
func (c *Core) resolved(r *row) {
	r.resolving = false
	c.resolves.open--
	if c.resolves.of[r.ns]--; c.resolves.of[r.ns] == 0 {
		delete(c.resolves.of, r.ns)
	}
}

// resolveDue resolves what has waited long enough. When not all of it can be resolved at once, the namespace with the fewest under
// way comes first, and of one namespace what is due for longest.
func (c *Core) resolveDue() {
	var due []*row
	for _, rows := range c.rows {
		for _, r := range rows {
			if !r.resolveAt.IsZero() && !c.now.Before(r.resolveAt) && !r.resolving && !r.binding {
				due = append(due, r)
			}
		}
	}
	sortRows(due)
	c.resolves.more = false
	if free := c.cfg.MaxResolving - c.resolves.open; len(due) > free {
		nth, of := make(map[*row]int, len(due)), maps.Clone(c.resolves.of)
		for _, r := range due {
			nth[r] = of[r.ns]
			of[r.ns]++
		}
		slices.SortStableFunc(due, func(a, b *row) int { return cmp.Compare(nth[a], nth[b]) })
	}
	for _, r := range due {
		c.resolve(r)
	}
}

func sortRows(rows []*row) {
	slices.SortFunc(rows, func(a, b *row) int {
		if o := a.resolveAt.Compare(b.resolveAt); o != 0 {
			return o
		}
		return cmp.Or(strings.Compare(a.uid, b.uid), a.key.id.compare(b.key.id))
	})
}

func (c *Core) resolveDone(ev event.ResolveDone) {
	k := c.intents.keys[keyID{ev.Row.Incarnation, ev.Row.N}]
	if k == nil {
		return
	}
	r := k.rows[ev.Row.PodUID]
	if r == nil || !r.resolving {
		return // a repeat
	}
	c.resolved(r)
	c.intents.dirty[k.id] = true
	if r.phase != sent && r.phase != confirmed {
		return // the watch was faster
	}
	switch ev.Outcome {
	case event.ResolvedBound:
		if ev.Node == "" {
			c.retryResolve(r)
			return
		}
		c.podResolvedBound(r.uid, ev.Node)
	case event.ResolvedFree:
		if r.phase == confirmed {
			c.fault("a pod lost its node", slog.String("pod", r.uid), slog.String("node", r.node))
		}
		r.version = ev.Version
		c.note(r, wire.BindOutcome_BIND_FREE, "")
		c.finish(r)
		c.keepRoom(r)
	case event.ResolvedGone:
		c.podEnded(r.uid, wire.BindOutcome_BIND_GONE, "")
	default:
		c.retryResolve(r)
	}
}

// retryResolve waits 0.5 s, then twice as long each time, up to 8 s.
func (c *Core) retryResolve(r *row) {
	r.resolveAt = c.now.Add(500 * time.Millisecond << min(r.retries, 4))
	r.retries++
}

// podResolvedBound takes the API server's word for where a pod is, ahead of the watch: one of its rows stays as what counts
// it until the watch has shown the pod, or shown it gone.
func (c *Core) podResolvedBound(uid, node string) {
	keep := true
	for _, r := range slices.Clone(c.rows[uid]) {
		c.note(r, wire.BindOutcome_BIND_BOUND, node)
		c.dirtyKey(r)
		if r.phase != sent && r.phase != confirmed || !keep || c.buckets[api.BucketOf(node)] == foreign {
			c.finish(r) // queued or prepared ones: the pod has its node, nothing needs to be sent any more
			continue
		}
		keep = false
		r.resolved = true
		c.enter(r, confirmed)
		r.resolveAt = c.now.Add(c.cfg.ConfirmLimit)
		if r.node != node && r.charge != "" {
			c.discharge(r)
			r.charge = r.uid
			if c.isCharged(r.uid) {
				r.charge = r.ownCharge()
			}
			c.chargeRow(r, node)
		}
	}
}

func (c *Core) dirtyKey(r *row) {
	if r.key != nil {
		c.intents.dirty[r.key.id] = true
	}
}
