package report

import (
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/fair"
)

// Statement is what the status of a PodGroup says.
type Statement struct {
	Generation          int64
	Queue               string
	Pods, Bound         int32
	Reserved, Scheduled Verdict
	Now                 Reason // of the two, and of what keeps further pods waiting, what matters
	Position            int32  // among the gangs of its queue that wait, 0 for none of the first
	Ended               bool   // of a group of another kind
	Yielded             string // why its gang was evicted for another, "" when it was not
}

// OfGroup returns what the status of a group of another kind says.
func OfGroup(s api.GroupStatus) Statement {
	of := func(v api.Verdict) Verdict { return Verdict{v.Yes, Reason{v.Reason, v.Message}} }
	return Statement{Reserved: of(s.Reserved), Scheduled: of(s.Scheduled), Ended: s.Ended}
}

// PodGroup is the status of a PodGroup: what it says, and what it should say.
type PodGroup struct {
	seen     *v1beta1.PodGroupStatus
	said     Statement     // by the object's status as seen, or by our last write
	unsure   bool          // an unanswered write may have taken effect after that
	last     v1beta1.Stamp // of our last write
	inFlight *groupWrite
	since    time.Time // since when it differs from what it should say
	wants    Statement // what it should have said then
	lastAt   time.Time // of our last write
	retry    time.Time
	backoff  time.Duration
	gone     bool
	denied   bool      // our last write that took effect says that the gang has not started
	recalls  bool      // one is to say so, even if the object shows it,
	recalled time.Time // since when
	queued   turnOf    // in its statusLine
	turn     bool      // it left that queue, and may be written
}

// groupWrite is a write that is not answered.
type groupWrite struct {
	id        uint64
	statement Statement
}

// turnOf returns in which queue of a statusLine a status waits.
type turnOf uint8

const (
	noTurn turnOf = iota
	counts        // numbers and words changed
	news          // a reason did: before those
)

// statusLine holds the PodGroups of one namespace whose statuses wait for the budget. News goes first, but only within the
// namespace: a tenant whose reasons change all the time does not delay the numbers of others.
type statusLine struct{ news, counts []waiting }

// waiting is a status that waits, with the UID of its PodGroup.
type waiting struct {
	*PodGroup
	uid string
}

func (l *statusLine) add(w waiting, turn turnOf) {
	if turn == news {
		l.news = append(l.news, w)
	} else {
		l.counts = append(l.counts, w)
	}
}

// first returns the queue that is served next, and which one it is.
func (l *statusLine) first() (*[]waiting, turnOf) {
	if len(l.news) > 0 {
		return &l.news, news
	}
	return &l.counts, counts
}

// PodGroups decides when statuses of PodGroups are written. There is one latest statement for each. What changes faster than it may be
// written is never queued: only the last of it is written. What equals what the object shows is not written.
//
// A gang that is placed at once gets one write: what is on its way is given Config.StatusEvery to arrive, and once all
// of its pods are bound, the status is written. A reason that somebody has to act on is written at once.
type PodGroups struct {
	cfg    Config
	tokens fair.Tokens
	unsent fair.Queues[statusLine] // that wait for tokens
}

// NewPodGroups returns a PodGroups that knows of nothing.
func NewPodGroups(cfg Config) PodGroups {
	return PodGroups{cfg: cfg, tokens: fair.Tokens{Rate: cfg.StatusBudget}}
}

// Gone reports whether the PodGroup did not exist any more when its status was last written.
func (p *PodGroup) Gone() bool { return p.gone }

// Writable reports whether a status may be written when it has changed: it is not if its object is gone, or while a write is
// not answered.
func (r *PodGroups) Writable(p *PodGroup) bool {
	return !p.gone && p.inFlight == nil && r.cfg.StatusBudget >= 0
}

// Publish reports whether the status of a PodGroup is to be written now to say something. If it is to be later, it returns when it is to
// be asked again; without a time, Turns names the PodGroup when its turn comes, or there is nothing to write.
func (r *PodGroups) Publish(now time.Time, namespace, uid string, p *PodGroup, say Statement) (write bool, again time.Time) {
	turn := p.turn
	p.turn = false
	if say == p.said && !p.unsure && (say.Yielded == "" && !p.recalls || p.denied) {
		p.since = time.Time{}
		return false, again
	}
	if p.since.IsZero() || say.Reserved.Yes && !p.wants.Reserved.Yes { // what follows a grant is close
		p.since = now
	}
	p.wants = say
	line := counts
	if !say.Reserved.like(p.said.Reserved) || !say.Scheduled.like(p.said.Scheduled) || say.Ended != p.said.Ended || (say.Yielded == "") != (p.said.Yielded == "") {
		line = news
	}
	var due time.Time
	switch {
	case line == news && (say.Reserved.Urgent() || say.Scheduled.Urgent() || p.starts(&say)):
		due = api.Later(now, p.lastAt.Add(r.cfg.StatusEvery))
	case line == news || say.Generation != p.said.Generation:
		due = api.Later(p.since.Add(r.cfg.StatusEvery), p.lastAt.Add(r.cfg.StatusEvery))
	default:
		due = api.Later(p.since.Add(r.cfg.StatusEvery), p.lastAt.Add(r.cfg.CountsEvery))
	}
	if due = api.Later(due, p.retry); now.Before(due) {
		return false, due
	}
	if !turn && (!r.unsent.Empty() || !r.tokens.Take(now)) {
		if p.queued < line {
			p.queued = line
			r.unsent.Of(namespace).add(waiting{p, uid}, line)
		}
		return false, again
	}
	p.queued = noTurn
	return true, again
}

// starts reports whether a statement is the first one of a start, and counts all pods as bound: nothing else is on its
// way.
func (p *PodGroup) starts(say *Statement) bool {
	return say.Scheduled.Yes && !p.said.Scheduled.Yes && say.Bound > 0 && say.Bound == say.Pods
}

// Turns calls publish for as many of the PodGroups that wait as the budget allows, for each namespace in turn. Asking by themselves,
// ten thousand gangs that wait would take a shard's whole time.
func (r *PodGroups) Turns(now time.Time, publish func(uid string)) {
	for l := r.unsent.Next(); l != nil; l = r.unsent.Next() {
		q, turn := l.first()
		w := (*q)[0]
		valid := w.queued == turn
		if valid {
			if !r.tokens.Take(now) {
				return
			}
			w.queued, w.turn = noTurn, true
			publish(w.uid)
		}
		(*q)[0] = waiting{}
		if *q = (*q)[1:]; len(l.news)+len(l.counts) == 0 {
			r.unsent.Rotate(true)
		} else if valid {
			r.unsent.Rotate(false)
		}
	}
}

// Forget takes a PodGroup out of the queue: its status is not written any more.
func (p *PodGroup) Forget() {
	if p != nil {
		p.queued = noTurn
	}
}

// Status returns the status to write, under the epoch of the gang's bucket or a later one. It is no later than the table's.
func (r *PodGroups) Status(now time.Time, p *PodGroup, id uint64, say Statement, epoch, table int64) *v1beta1.PodGroupStatus {
	if p.seen != nil && p.seen.Queue != say.Queue && p.seen.Epoch >= epoch && p.seen.Writer != string(r.cfg.Self) {
		// Another queue's home wrote before this one paid. Its bucket may have changed hands later than ours.
		epoch = min(table, p.seen.Epoch+1)
	}
	var seen *v1beta1.Stamp
	var before []metav1.Condition
	if p.seen != nil {
		seen, before = &p.seen.Stamp, p.seen.Conditions
	}
	p.last = r.cfg.next(p.last, seen, epoch)
	out := &v1beta1.PodGroupStatus{
		Stamp:              p.last,
		ObservedGeneration: say.Generation, Queue: say.Queue, Pods: say.Pods, Bound: say.Bound,
		Reason: say.Now.Code, Message: Short(say.Now.Message), Position: say.Position,
	}
	out.Conditions = []metav1.Condition{
		condition(now, before, v1beta1.ConditionQuotaReserved, say.Reserved, say.Generation),
		condition(now, before, v1beta1.ConditionPodGroupInitiallyScheduled, say.Scheduled, say.Generation),
	}
	if say.Yielded != "" {
		out.Conditions = append(out.Conditions, condition(now, before, v1beta1.ConditionDisruptionTarget,
			Verdict{true, Reason{v1.PodReasonPreemptionByScheduler, say.Yielded}}, say.Generation))
	}
	p.seen = out // what the object shows next
	r.Sent(now, p, id, say)
	return out
}

// Sent takes note of a write.
func (r *PodGroups) Sent(now time.Time, p *PodGroup, id uint64, say Statement) {
	p.lastAt, p.inFlight = now, &groupWrite{id, say}
}

// Written takes the answer to a write, and reports whether it was awaited.
func (r *PodGroups) Written(now time.Time, p *PodGroup, id uint64, outcome event.StatusOutcome) bool {
	if p == nil || p.inFlight == nil || p.inFlight.id != id {
		return false
	}
	says := p.inFlight.statement
	p.inFlight = nil
	switch outcome {
	case event.StatusOK:
		p.denied = !says.Scheduled.Yes
		p.recalls = p.recalls && !p.denied
		p.said, p.unsure, p.since, p.backoff, p.retry = says, false, time.Time{}, 0, time.Time{}
	case event.StatusGone:
		p.gone = true
	default:
		p.unsure = p.unsure || outcome == event.StatusFailed
		p.retry = now.Add(r.cfg.backOff(&p.backoff))
	}
	return true
}

// Seen takes note of what a PodGroup shows, and reports whether that counts: not while a write is not answered, or while the watch lags
// behind our own writes.
func (r *PodGroups) Seen(p *PodGroup, seen *v1beta1.PodGroupStatus) bool {
	if seen == nil || p.inFlight != nil || r.cfg.lags(seen.Stamp, p.last) {
		return false
	}
	p.seen, p.unsure = seen, false
	p.said = Statement{Generation: seen.ObservedGeneration, Queue: seen.Queue, Pods: seen.Pods, Bound: seen.Bound,
		Now: Reason{seen.Reason, seen.Message}, Position: seen.Position}
	for i := range seen.Conditions {
		cond := &seen.Conditions[i]
		v := Verdict{cond.Status == metav1.ConditionTrue, Reason{cond.Reason, cond.Message}}
		switch cond.Type {
		case v1beta1.ConditionQuotaReserved:
			p.said.Reserved = v
		case v1beta1.ConditionPodGroupInitiallyScheduled:
			p.said.Scheduled = v
		case v1beta1.ConditionDisruptionTarget:
			if v.Yes {
				p.said.Yielded = v.Message
			}
		}
	}
	return true
}

// RecallStart has the status of a PodGroup written anew: whatever was seen of it may be older than what it says of its gang's start.
func (p *PodGroup) RecallStart(now time.Time) {
	if p == nil {
		return
	}
	if !p.recalls {
		p.recalled = now
	}
	p.denied, p.recalls = false, true
}

// recallWithin is how long a gang waits at most until its status says that it has not started. A policy may refuse
// such writes for good.
const recallWithin = 10 * time.Second

// RecallsStart reports whether a write that says so is awaited.
func (p *PodGroup) RecallsStart(now time.Time) bool {
	return p != nil && p.recalls && !p.gone && now.Before(p.recalled.Add(recallWithin))
}

// MaySayStarted reports whether the status may say meanwhile that the gang has started.
func (p *PodGroup) MaySayStarted(now time.Time) bool {
	return p.RecallsStart(now) && (p.unsure || p.said.Scheduled.Yes ||
		p.inFlight != nil && p.inFlight.statement.Scheduled.Yes)
}

// Starts ends a recall that was never written: the gang has started again.
func (p *PodGroup) Starts() {
	if p != nil {
		p.recalls = false
	}
}

// StartRecalled reports whether a write of ours said after RecallStart that the gang has not started, or the PodGroup
// is gone, or such a write is refused for a minute.
func (p *PodGroup) StartRecalled(now time.Time) bool {
	return p == nil || p.gone || p.denied || p.recalls && !now.Before(p.recalled.Add(6*recallWithin))
}

// ShowsPreempted reports whether the status says that the gang was evicted as a whole, and has not started since.
func (p *PodGroup) ShowsPreempted() bool {
	return !p.said.Scheduled.Yes && effects[p.said.Scheduled.Code].evicted
}

// SeenOfGroup takes note of what a group of another kind shows. Its status has no stamp: what a watch that lags shows is written once
// more, and corrected by what it shows next.
func (r *PodGroups) SeenOfGroup(p *PodGroup, shown api.GroupStatus) {
	if p.inFlight == nil {
		p.said, p.unsure = OfGroup(shown), false
	}
}
