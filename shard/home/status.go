package home

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home/report"
)

// Statuses. There is one latest statement for each Queue and PodGroup; what changes faster than it may be written is never
// queued, only the last of it is. What is equal to what the object shows is not written.
//
// A gang that is placed at once gets one write: what is on its way is given a second to arrive. A reason that somebody has
// to act on is written at once.

// said is the content of a PodGroup's status.
type said struct {
	generation          int64
	queue               string
	pods, bound         int32
	reserved, scheduled report.Verdict
}

// groupStatus is what was said about a PodGroup, and what is to be.
type groupStatus struct {
	seen     *v1alpha1.PodGroupStatus
	said     said // by the object's status as seen, or by our last write
	sequence int64
	epoch    int64 // of sequence
	inFlight uint64
	since    time.Time // since when said is not what should be said
	wants    said      // what was to be said then
	last     time.Time // write
	retry    time.Time
	backoff  time.Duration
	gone     bool
	queued   turnOf // in its statusLine
	turn     bool   // it left that queue, and may be written
}

// turnOf says in which queue of a statusLine a status waits.
type turnOf uint8

const (
	noTurn turnOf = iota
	counts        // numbers and words changed
	news          // a reason did: before those
)

// statusLine holds the gangs of one namespace whose statuses wait for the budget. What is new goes first, but only before
// what else the same namespace has to be told: a tenant whose reasons change all the time does not keep others' numbers back.
type statusLine struct{ news, counts []*gang }

func (l *statusLine) add(g *gang, turn turnOf) {
	if turn == news {
		l.news = append(l.news, g)
	} else {
		l.counts = append(l.counts, g)
	}
}

// first returns the queue that is served next, and which one it is.
func (l *statusLine) first() (*[]*gang, turnOf) {
	if len(l.news) > 0 {
		return &l.news, news
	}
	return &l.counts, counts
}

// write is an output whose StatusWritten is awaited.
type write struct {
	kind   writeKind
	uid    string // of the pod or PodGroup
	queue  string
	reason string // of a pod's condition
	said   said
	status *v1alpha1.QueueStatus
}

type writeKind uint8

const (
	writeGroup writeKind = iota + 1
	writeQueue
	writeCondition
	writeEviction
)

func (c *Core) nextWrite(w write) uint64 {
	c.writeID++
	c.writes[c.writeID] = w
	return c.writeID
}

func (c *Core) onStatusWritten(e event.StatusWritten) {
	w, known := c.writes[e.ID]
	if !known {
		return
	}
	delete(c.writes, e.ID)
	switch w.kind {
	case writeGroup:
		if g := c.gangs[w.uid]; g != nil && g.status.inFlight == e.ID {
			s := &g.status
			s.inFlight = 0
			switch e.Outcome {
			case event.StatusOK:
				s.said, s.since, s.backoff, s.retry = w.said, time.Time{}, 0, time.Time{}
			case event.StatusGone:
				s.gone = true
			default: // it may have taken effect all the same, and been seen meanwhile
				s.retry = c.now.Add(c.backOff(&s.backoff))
				if g.group != nil {
					c.seenStatus(g)
				}
			}
			c.touch(g)
		}
	case writeQueue:
		if q := c.queues[w.queue]; q != nil && q.inFlight == e.ID {
			q.inFlight = 0
			switch e.Outcome {
			case event.StatusOK:
				q.said, q.backoff, q.retry = w.status, 0, time.Time{}
			case event.StatusGone:
			default: // it may have taken effect all the same, and been seen meanwhile
				q.dirty = true
				q.retry = c.now.Add(c.backOff(&q.backoff))
				c.seenQueueStatus(q)
			}
		}
	case writeCondition:
		c.conditionWritten(w, e)
	case writeEviction:
		if p := c.pods[w.uid]; p != nil && p.evicting == e.ID {
			p.evicting = 0
			p.evictAt = c.now.Add(5 * c.cfg.AskAgain)
			if p.gang != nil {
				c.touch(p.gang)
			}
		}
	}
}

func (c *Core) backOff(d *time.Duration) time.Duration {
	*d = min(max(2**d, c.cfg.StatusEvery), c.cfg.StatusBackoffLimit)
	return *d
}

// statement is what is to be said about a PodGroup now.
func (c *Core) statement(g *gang) said {
	s := said{generation: g.group.generation, queue: g.queue}
	for _, p := range g.members {
		has := p.Node != "" || p.place == bound
		if has {
			s.bound++
		}
		if has || !p.Finished {
			s.pods++
		}
	}
	s.reserved, s.scheduled = c.reservedVerdict(g), c.scheduledVerdict(g)
	return s
}

// publish writes a PodGroup's status when it is time, or asks to be woken when it is.
func (c *Core) publish(g *gang) {
	s := &g.status
	if g.group == nil || s.gone || s.inFlight != 0 || !g.stray.IsZero() || c.cfg.StatusBudget < 0 || g.tally.bound > 0 && g.charge.elsewhere() {
		return
	}
	turn := s.turn
	s.turn = false
	now := c.statement(g)
	if now == s.said {
		s.since = time.Time{}
		return
	}
	if s.since.IsZero() || now.reserved.Yes && !s.wants.reserved.Yes { // what follows a grant is close
		s.since = c.now
	}
	s.wants = now
	line := counts
	if now.reserved.Code != s.said.reserved.Code || now.scheduled.Code != s.said.scheduled.Code {
		line = news
	}
	var due time.Time
	switch {
	case line == news && (now.reserved.Urgent() || now.scheduled.Urgent()):
		due = latest(c.now, s.last.Add(c.cfg.StatusEvery))
	case line == news || now.generation != s.said.generation:
		due = latest(s.since.Add(c.cfg.StatusEvery), s.last.Add(c.cfg.StatusEvery))
	default:
		due = latest(s.since.Add(c.cfg.StatusEvery), s.last.Add(c.cfg.CountsEvery))
	}
	if due = latest(due, s.retry); c.now.Before(due) {
		c.wakeAt(g, due)
		return
	}
	if !turn && (!c.unsaid.Empty() || !c.statuses.Take(c.now)) {
		if s.queued < line {
			s.queued = line
			c.unsaid.Of(g.namespace).add(g, line)
		}
		return
	}
	s.queued = noTurn
	status := c.groupStatusOf(g, now)
	s.last = c.now
	s.inFlight = c.nextWrite(write{kind: writeGroup, uid: g.id, said: now})
	c.emit(event.WritePodGroupStatus{ID: s.inFlight, Namespace: g.namespace, Name: g.name.name, UID: g.id, Status: status})
}

// giveTurns lets as many statuses be written as the budget allows, for each namespace in turn. Asking by themselves, ten thousand gangs that wait would
// take a shard's whole time.
func (c *Core) giveTurns() {
	for l := c.unsaid.Next(); l != nil; l = c.unsaid.Next() {
		q, turn := l.first()
		g := (*q)[0]
		valid := !g.dropped && g.status.queued == turn
		if valid {
			if !c.statuses.Take(c.now) {
				return
			}
			g.status.queued, g.status.turn = noTurn, true
			c.mark(g)
		}
		(*q)[0] = nil
		if *q = (*q)[1:]; len(l.news)+len(l.counts) == 0 {
			c.unsaid.Rotate(true)
		} else if valid {
			c.unsaid.Rotate(false)
		}
	}
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

func (c *Core) groupStatusOf(g *gang, now said) *v1alpha1.PodGroupStatus {
	s := &g.status
	epoch := int64(c.epochs[g.bucket])
	if fault.On(fault.TablesEpoch) {
		epoch = int64(c.table.Epoch)
	}
	if s.seen != nil && s.seen.Queue != g.queue && s.seen.Epoch >= epoch && s.seen.Writer != string(c.cfg.Self) {
		// Another queue's home wrote before this one paid. Its bucket may have changed hands later than ours.
		epoch = min(int64(c.table.Epoch), s.seen.Epoch+1)
	}
	s.sequence, s.epoch = nextSequence(s.sequence, s.epoch, epoch), epoch
	if s.seen != nil && s.seen.Epoch == epoch && s.seen.Writer == string(c.cfg.Self) {
		s.sequence = max(s.sequence, s.seen.Sequence+1)
	}
	out := &v1alpha1.PodGroupStatus{
		Stamp:              v1alpha1.Stamp{Epoch: epoch, Writer: string(c.cfg.Self), Sequence: s.sequence},
		ObservedGeneration: now.generation, Queue: now.queue, Pods: now.pods, Bound: now.bound,
	}
	var before []metav1.Condition
	if s.seen != nil {
		before = s.seen.Conditions
	}
	out.Conditions = []metav1.Condition{
		c.condition(before, v1alpha1.ConditionQuotaReserved, now.reserved, now.generation),
		c.condition(before, v1alpha1.ConditionPodGroupInitiallyScheduled, now.scheduled, now.generation),
	}
	s.seen = out // what the object shows next
	return out
}

// nextSequence counts within an epoch.
func nextSequence(sequence, of, epoch int64) int64 {
	if of != epoch {
		return 1
	}
	return sequence + 1
}

// condition makes a condition; the time of its last transition is kept when its status is the same as before.
func (c *Core) condition(before []metav1.Condition, kind string, v report.Verdict, generation int64) metav1.Condition {
	out := metav1.Condition{
		Type: kind, Status: metav1.ConditionFalse, Reason: v.Code, Message: short(v.Message),
		ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(c.now.Truncate(time.Second)),
	}
	if v.Yes {
		out.Status = metav1.ConditionTrue
	}
	for i := range before {
		if b := &before[i]; b.Type == kind && b.Status == out.Status && !b.LastTransitionTime.IsZero() {
			out.LastTransitionTime = b.LastTransitionTime
		}
	}
	return out
}

// short bounds a message: the API server takes 32,768 bytes.
func short(message string) string {
	return api.Shorten(message, maxWords)
}

// maxWords bounds a message to users, in bytes.
const maxWords = 1024

// seenStatus takes note of what a PodGroup shows.
func (c *Core) seenStatus(g *gang) {
	s, seen := &g.status, g.group.status
	if seen == nil || s.inFlight != 0 {
		return
	}
	if seen.Writer == string(c.cfg.Self) && seen.Epoch == s.epoch && seen.Sequence < s.sequence {
		return // the watch lags behind our own writes
	}
	s.seen = seen
	s.said = said{generation: seen.ObservedGeneration, queue: seen.Queue, pods: seen.Pods, bound: seen.Bound}
	for i := range seen.Conditions {
		cond := &seen.Conditions[i]
		v := report.Verdict{Yes: cond.Status == metav1.ConditionTrue, Reason: report.Reason{Code: cond.Reason, Message: cond.Message}}
		switch cond.Type {
		case v1alpha1.ConditionQuotaReserved:
			s.said.reserved = v
		case v1alpha1.ConditionPodGroupInitiallyScheduled:
			s.said.scheduled = v
		}
	}
	if initiallyScheduled(seen) {
		g.started = true
	}
	c.touch(g)
}

// queue is a Queue, and what the coordinator says of it.
type queue struct {
	uid     string // "" while no object is seen
	seen    *v1alpha1.QueueStatus
	said    *v1alpha1.QueueStatus // the last that was written or seen
	usage   *wire.QueueUsage
	term    uint64
	dirty   bool
	last    time.Time
	retry   time.Time
	backoff time.Duration

	inFlight uint64
	sequence int64
	epoch    int64
}

func (c *Core) queueOf(path string) *queue {
	q := c.queues[path]
	if q == nil {
		q = &queue{}
		c.queues[path] = q
	}
	return q
}

func (c *Core) onQueueSeen(seen *v1alpha1.Queue) {
	if seen == nil || seen.Name == "" {
		return
	}
	q := c.queueOf(seen.Name)
	if q.uid != string(seen.UID) {
		*q = queue{uid: string(seen.UID), usage: q.usage, term: q.term}
	}
	q.dirty = true
	q.seen = seen.Status
	c.seenQueueStatus(q)
}

// seenQueueStatus takes what the object shows for what was said, unless a write is on its way or the watch lags behind our
// own.
func (c *Core) seenQueueStatus(q *queue) {
	seen := q.seen
	if q.inFlight == 0 && seen != nil && !(seen.Writer == string(c.cfg.Self) && seen.Epoch == q.epoch && seen.Sequence < q.sequence) {
		q.said = seen
	}
}

func (c *Core) onQueueGone(e event.QueueGone) {
	if q := c.queues[e.Name]; q != nil && (q.uid == e.UID || e.UID == "") {
		delete(c.queues, e.Name)
	}
}

func (c *Core) onQueueUsages(m *wire.QueueUsages) {
	for _, u := range m.GetQueues() {
		if u.GetQueue() == "" || !c.active[api.BucketOf(u.GetQueue())] {
			continue
		}
		q := c.queueOf(u.GetQueue())
		if m.GetTerm() < q.term || m.GetTerm() == q.term && q.usage != nil && u.GetVersion() < q.usage.GetVersion() {
			continue
		}
		q.usage, q.term, q.dirty = u, m.GetTerm(), true
	}
}

// writeQueueStatuses writes what changed, each queue at most once in Config.UsageEvery, and within the budget first those that
// were not written for longest: who changes many queues all the time does not keep the others back.
func (c *Core) writeQueueStatuses() {
	var due []string
	for path, q := range c.queues {
		mine := q.usage != nil && c.active[api.BucketOf(path)] || c.table != nil && fault.On(fault.TwoStatusWriters)
		if q.dirty && q.inFlight == 0 && q.uid != "" && mine &&
			!c.now.Before(q.last.Add(c.cfg.UsageEvery)) && !c.now.Before(q.retry) {
			due = append(due, path)
		}
	}
	if len(due) == 0 {
		return
	}
	slices.SortFunc(due, func(a, b string) int {
		return cmp.Or(c.queues[a].last.Compare(c.queues[b].last), strings.Compare(a, b))
	})
	for _, path := range due {
		q := c.queues[path]
		if u := q.usage.GetUid(); u != "" && u != q.uid {
			continue // the coordinator speaks of an earlier Queue of this name
		}
		q.dirty = false
		status, err := c.queueStatusOf(path, q)
		if err != nil {
			c.broken("usage of queue " + path + " cannot be read: " + err.Error())
			continue
		}
		if q.said != nil {
			same := *q.said
			same.Stamp = status.Stamp
			if equality.Semantic.DeepEqual(&same, status) {
				continue
			}
		}
		if !c.usages.Take(c.now) {
			q.dirty = true
			return
		}
		q.sequence, q.epoch = status.Sequence, status.Epoch
		q.last = c.now
		q.inFlight = c.nextWrite(write{kind: writeQueue, queue: path, status: status})
		c.emit(event.WriteQueueStatus{ID: q.inFlight, Queue: path, UID: q.uid, Status: status})
	}
}

func (c *Core) queueStatusOf(path string, q *queue) (*v1alpha1.QueueStatus, error) {
	u := q.usage
	charged, err := wire.ToResources(u.GetCharged())
	if err != nil {
		return nil, err
	}
	capability, err := wire.ToResources(u.GetCapability())
	if err != nil {
		return nil, err
	}
	guarantee, err := wire.ToResources(u.GetGuarantee())
	if err != nil {
		return nil, err
	}
	epoch := int64(c.epochs[api.BucketOf(path)])
	if fault.On(fault.TwoStatusWriters) {
		epoch = int64(c.table.Changed[api.BucketOf(path)])
	}
	if fault.On(fault.TablesEpoch) {
		epoch = int64(c.table.Epoch)
	}
	sequence := nextSequence(q.sequence, q.epoch, epoch)
	if q.seen != nil && q.seen.Epoch == epoch && q.seen.Writer == string(c.cfg.Self) {
		sequence = max(sequence, q.seen.Sequence+1)
	}
	var before []metav1.Condition
	if q.said != nil {
		before = q.said.Conditions
	}
	ready := report.Verdict{Reason: report.Reason{Code: cmp.Or(u.GetReadyReason(), v1alpha1.ReasonReady), Message: u.GetMessage()}}
	ready.Yes = ready.Is(v1alpha1.ReasonReady) || ready.Is(v1alpha1.ReasonGuaranteeCut)
	status := &v1alpha1.QueueStatus{
		Stamp:              v1alpha1.Stamp{Epoch: epoch, Writer: string(c.cfg.Self), Sequence: sequence},
		ObservedGeneration: u.GetGeneration(),
		Conditions:         []metav1.Condition{c.condition(before, v1alpha1.ConditionReady, ready, u.GetGeneration())},
		AdmittedGangs:      u.GetAdmitted(), WaitingGangs: u.GetWaiting(),
	}
	// The definition of Queue takes so many resources. The coordinator says no more, but for limits of a record that is older
	// than the bound.
	capability, _ = capability.Foremost(api.MaxResources, nil)
	guarantee, _ = guarantee.Foremost(api.MaxResources, capability)
	charged, _ = charged.Foremost(api.MaxResources, capability)
	if len(charged) > 0 {
		status.Charged = charged.ToResourceList()
	}
	if len(capability) > 0 {
		status.Limits.Capability = capability.ToResourceList()
	}
	if len(guarantee) > 0 {
		status.Limits.Guarantee = guarantee.ToResourceList()
	}
	return status, nil
}
