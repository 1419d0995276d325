package coordinator

import (
	"fmt"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

type denialText struct {
	reason   wire.DenyReason
	queue    string
	resource string
	detail   string
	short    int64
	charged  int64
	limit    int64
	judged   string // the lowest queue of the path that names something of what is requested, "" for none
	band     band   // of that queue
}

// judge says what keeps a request from being granted now, nil for nothing. path is what path said of its queue.
func (c *Core) judge(r *request, path *shortfall) *shortfall {
	l := c.short(r, path)
	if !r.vain {
		return l
	}
	vain := shortfall{reason: wire.DenyReason_DENY_SUPPLY, queue: c.tree.root}
	if l != nil && l.reason != wire.DenyReason_DENY_SUPPLY {
		vain = *l
	}
	vain.vain = true
	return &vain
}

// short says the same of a request that some node would take.
func (c *Core) short(r *request, path *shortfall) *shortfall {
	if r.barred != nil {
		return r.barred
	}
	if !c.owners.Complete() {
		return &shortfall{reason: wire.DenyReason_DENY_REFILLING, queue: c.tree.root}
	}
	if path != nil {
		return path
	}
	l := c.tree.over(r.queue, r.delta, r.demand, r)
	if r.gang.res != nil && r.gang.res.claim != nil { // it is granted when its claim is
		claiming := shortfall{reason: wire.DenyReason_DENY_CLAIMING, queue: r.queue}
		if l != nil {
			claiming.queue, claiming.resource, claiming.short = l.queue, l.resource, l.short
		}
		return &claiming
	}
	if l == nil || l.reason != wire.DenyReason_DENY_NEVER_FITS {
		if personal := c.tree.ofUser(r); personal != nil {
			return personal
		}
	}
	if l == nil || l.waits() {
		if borrows := r.borrows(); borrows != nil {
			return borrows
		}
	}
	if l == nil {
		l = c.tree.lacks(r)
	}
	if l == nil && len(c.ledger.barring) > 0 {
		l = c.ledger.barred(r)
	}
	return l
}

// deny lets all who ask for the same wait on, by the judgement of the first.
func (c *Core) deny(now time.Time, a *demandClass, l shortfall) {
	c.turns.rest(a)
	a.limitsVersion, a.changed, a.freed = c.tree.version, l.queue.order.changes, l.queue.order.freed
	if len(a.owed) > 0 && l.reason != wire.DenyReason_DENY_UNKNOWN {
		c.fresh, a.owed = append(c.fresh, a.owed...), nil
	}
	if a.denied.queue != l.queue {
		c.turns.unblock(a)
		count(&l.queue.order.blocked, a.queue, true)
		c.earmarks.due = c.earmarks.due || len(a.candidates) > 0
	} else if len(a.candidates) > 0 && a.denied.waits() != l.waits() {
		c.earmarks.due = true
	}
	a.denied = l
	c.turns.sleep(a)
	a.count(l.waits() || l.reason == wire.DenyReason_DENY_CLAIMING)
	c.inform(now, a.requests[0], &l)
}

// inform takes note of what keeps a request from being granted, and tells its home when the words changed.
func (c *Core) inform(now time.Time, r *request, l *shortfall) {
	if l.reason == wire.DenyReason_DENY_UNKNOWN {
		return
	}
	if l.waits() && r.lacking.IsZero() {
		r.lacking = now
		c.earmarks.aging = append(c.earmarks.aging, r)
	}
	if l.reason != wire.DenyReason_DENY_SUPPLY {
		r.unexpect()
	} else if later := r.expect(); later != nil {
		l = later
	}
	w, old := c.text(r, l), r.denial
	// A band is no news, as amounts are not: where a queue is at the edge of what it deserves, each gang that comes or goes would change what
	// all that wait are told.
	news := w.reason != old.reason || w.queue != old.queue || w.resource != old.resource || w.detail != old.detail
	if r.told.IsZero() || news && now.Sub(r.told) >= c.cfg.WordsEvery || w != old && now.Sub(r.told) >= 30*c.cfg.WordsEvery {
		r.told, r.denial = now, w
		c.sendDenied(r, l)
	}
}

// judges returns the lowest queue of the path whose own limits say what it deserves of something of a request, "" for none, and its band.
func (q *queue) judges(delta api.Resources) (path string, b band) {
	for ; q.parent != nil; q = q.parent {
		if l := q.limits; l != nil && (usesAny(l.deserved, delta) || usesAny(l.guarantee, delta)) {
			return q.path, q.band(delta)
		}
	}
	return "", aboveDeserved
}

// bandWords say where a queue is once a gang is admitted to it.
var bandWords = map[band]string{
	withinGuarantee: "keeps queue %q within its guarantee",
	withinDeserved:  "keeps queue %q within its deserved share",
	aboveDeserved:   "puts queue %q above its deserved share",
}

// text returns what a tenant may hear: of its own queue the amounts, of the queues above what is missing there, and of other
// gangs no more than how many there are.
func (c *Core) text(r *request, l *shortfall) denialText {
	w := denialText{reason: l.reason, queue: l.queue.path, resource: l.resource, short: l.short}
	if l.queue == r.queue || l.account != nil {
		w.charged, w.limit = l.charged, l.capability
	}
	if l.reason == wire.DenyReason_DENY_QUEUE_CLOSED {
		w.detail = l.queue.closedReason()
	}
	if l.waits() {
		w.detail = c.earmarks.note(r)
		w.judged, w.band = r.queue.judges(r.delta)
	}
	return w
}

// sendDenied sends a judgement to the gang's home.
func (c *Core) sendDenied(r *request, l *shortfall) {
	denied := &wire.Denied{GangUid: r.gang.key.uid, Attempt: r.attempt, Serial: r.serial, Reason: l.reason, Queue: l.queue.path,
		Resource: l.resource, Short: l.short, Message: l.message(r, r.denial)}
	if l.account != nil {
		denied.Short = 0 // it is not what the queue lacks
	}
	denied.ReservationRevision, denied.Demand = r.gang.charged()
	c.send(r.from, &wire.Envelope{Body: &wire.Envelope_Denied{Denied: denied}})
}

// gangsRun says that as many gangs run in a queue as may.
func (l *shortfall) gangsRun(r *request) string {
	more := ""
	if l.afterOthers {
		more = " once the gangs that wait for nodes have started"
	}
	if l.queue != r.queue {
		return fmt.Sprintf("queue %q runs as many gangs as it may (spec.capability)%s", l.queue.path, more)
	}
	return fmt.Sprintf("queue %q runs %d of %d gangs (spec.capability)%s", l.queue.path, l.charged, l.capability, more)
}

// userHas says what the user of a request has. What is counted for others with him is said of his own queue alone.
func (l *shortfall) userHas(r *request) string {
	amount := func(v int64) string { return api.FormatAmount(l.resource, v) }
	has := fmt.Sprintf("has %s of %s %s", amount(l.charged), amount(l.capability), l.resource)
	switch {
	case l.account.group && l.queue != r.queue:
		has = fmt.Sprintf("has as much %s as it may", l.resource)
	case l.resource == api.ResourceGangs:
		return fmt.Sprintf("%s runs %d of %d gangs in queue %q (spec.userLimits)", l.account.words, l.charged,
			l.capability, l.queue.path)
	}
	return fmt.Sprintf("%s %s in queue %q (spec.userLimits): short of %s, gang requests %s", l.account.words, has,
		l.queue.path, amount(l.short), amount(l.requested))
}

// message says what keeps a request from being granted, for people.
func (l *shortfall) message(r *request, w denialText) string {
	amount := func(v int64) string { return api.FormatAmount(l.resource, v) }
	asks := fmt.Sprintf("gang requests %s", amount(l.requested))
	if r.gang.res != nil {
		asks += " more"
	}
	switch {
	case l.queue != r.queue || l.reason == wire.DenyReason_DENY_SUPPLY:
	case l.reason == wire.DenyReason_DENY_UNPREEMPTIBLE:
		asks = fmt.Sprintf("deserved %s, such gangs have %s, %s", amount(l.capability), amount(l.charged), asks)
	default:
		asks = fmt.Sprintf("capability %s, charged %s, %s", amount(l.capability), amount(l.charged), asks)
	}
	text := ""
	switch q := l.queue.path; l.reason {
	case wire.DenyReason_DENY_QUOTA:
		if l.resource == api.ResourceGangs {
			text = l.gangsRun(r)
			break
		}
		text = fmt.Sprintf("queue %q has insufficient %s: short of %s (%s)", q, l.resource, amount(l.short), asks)
		if l.afterOthers {
			text = fmt.Sprintf("queue %q has insufficient %s once the gangs that wait for nodes have started: short of %s (%s)",
				q, l.resource, amount(l.short), asks)
		}
	case wire.DenyReason_DENY_GUARANTEE:
		text = fmt.Sprintf("queue %q keeps %s %s free for the guarantees of other queues: short of %s (%s)",
			q, amount(l.kept), l.resource, amount(l.short), asks)
	case wire.DenyReason_DENY_RESERVED_FOR_OLDER:
		text = fmt.Sprintf("queue %q keeps %s %s free for 1 gang that has waited longer: short of %s (%s)",
			q, amount(l.kept), l.resource, amount(l.short), asks)
	case wire.DenyReason_DENY_PROMISED:
		text = fmt.Sprintf("queue %q reserves %s for gangs that reclaim their share: short of %s (%s)",
			q, l.resource, amount(l.short), asks)
	case wire.DenyReason_DENY_CLAIMING:
		text = fmt.Sprintf("gangs that are being evicted for it: %d; it starts when they are gone", len(r.gang.res.claim.victims))
	case wire.DenyReason_DENY_SUPPLY:
		if l.vain { // its home knows more
			return "the nodes lack room for it"
		}
		text = fmt.Sprintf("the nodes lack room for it: short of %s %s (%s)", amount(l.short), l.resource, asks)
	case wire.DenyReason_DENY_UNPREEMPTIBLE:
		text = fmt.Sprintf("queue %q does not lend to non-preemptible gangs: short of %s %s (%s)",
			q, amount(l.short), l.resource, asks)
	case wire.DenyReason_DENY_USER_LIMIT:
		text = l.userHas(r)
	case wire.DenyReason_DENY_NEVER_FITS:
		if l.account != nil {
			text = fmt.Sprintf("%s may have %s %s in queue %q (spec.userLimits), and the gang requests %s",
				l.account.words, amount(l.capability), l.resource, q, amount(l.requested))
			break
		}
		if l.resource == api.ResourceGangs {
			text = fmt.Sprintf("queue %q may run no gangs (spec.capability)", q)
			break
		}
		text = fmt.Sprintf("queue %q can never admit it: gang requests %s %s, capability %s", q, l.resource, amount(l.requested), amount(l.capability))
	case wire.DenyReason_DENY_QUEUE_NOT_FOUND:
		text = fmt.Sprintf("queue %q does not exist", q)
	case wire.DenyReason_DENY_PARENT_NOT_FOUND:
		text = fmt.Sprintf("queue %q, an ancestor of %q, does not exist", q, r.gang.key.queue)
	case wire.DenyReason_DENY_QUEUE_CLOSED:
		text = fmt.Sprintf("queue %q %s", q, w.detail)
	case wire.DenyReason_DENY_NOT_ALLOWED:
		text = fmt.Sprintf("namespace %q may not use queue %q: the namespaceSelector of queue %q does not match its labels", r.namespace, r.gang.key.queue, q)
	case wire.DenyReason_DENY_QUEUE_NOT_LEAF:
		text = fmt.Sprintf("queue %q has child queues: only leaf queues admit gangs", q)
	case wire.DenyReason_DENY_REFILLING:
		text = "rebuilding state: waiting for shards to report bound pods"
	}
	if l.waits() {
		if w.judged != "" {
			text += fmt.Sprintf("; admitting it %s", fmt.Sprintf(bandWords[w.band], w.judged))
		}
		text += w.detail
	}
	return text
}
