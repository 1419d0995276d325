package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/fair"
)

// Queues decides when statuses of Queues are written, and what they say: what the coordinator announced last.
type Queues struct {
	cfg    Config
	tokens fair.Tokens
	queues map[string]*queue
}

// queue is a Queue, and what the coordinator reports about it.
type queue struct {
	uid     string // "" while no object is seen
	seen    *v1beta1.QueueStatus
	said    *v1beta1.QueueStatus // the last that was written or seen
	unsure  bool                 // an unanswered write may have taken effect after that
	usage   *wire.QueueUsage
	term    uint64
	orders  bool   // it has spec.order,
	problem string // which does not compile
	dirty   bool
	lastAt  time.Time // of our last write
	retry   time.Time
	backoff time.Duration

	inFlight uint64
	writes   *v1beta1.QueueStatus // by the write that is not answered
	last     v1beta1.Stamp        // of our last write
}

// NewQueues returns a Queues that knows of no Queue.
func NewQueues(cfg Config) Queues {
	return Queues{cfg: cfg, tokens: fair.Tokens{Rate: cfg.UsageBudget}, queues: map[string]*queue{}}
}

func (r *Queues) of(path string) *queue {
	q := r.queues[path]
	if q == nil {
		q = &queue{}
		r.queues[path] = q
	}
	return q
}

// Seen takes note of a Queue.
func (r *Queues) Seen(seen *v1beta1.Queue) {
	if seen.Name == "" {
		return
	}
	q := r.of(seen.Name)
	if q.uid != string(seen.UID) {
		*q = queue{uid: string(seen.UID), usage: q.usage, term: q.term}
	}
	q.dirty = true
	q.seen = seen.Status
	r.shown(q)
}

// Orders takes note of whether a Queue has spec.order, and why that does not compile.
func (r *Queues) Orders(name string, has bool, problem string) {
	if q := r.queues[name]; q != nil {
		q.orders, q.problem, q.dirty = has, problem, true
	}
}

// shown takes what the object shows for what was said, unless a write is not answered or the watch lags behind our own.
func (r *Queues) shown(q *queue) {
	seen := q.seen
	if q.inFlight == 0 && seen != nil && !r.cfg.lags(seen.Stamp, q.last) {
		q.said, q.unsure = seen, false
	}
}

// Gone forgets a Queue.
func (r *Queues) Gone(name, uid string) {
	if q := r.queues[name]; q != nil && (q.uid == uid || uid == "") {
		delete(r.queues, name)
	}
}

// Usages takes what the coordinator announced of those queues that are ours.
func (r *Queues) Usages(m *wire.QueueUsages, ours func(path string) bool) {
	for _, u := range m.GetQueues() {
		if u.GetQueue() == "" || !ours(u.GetQueue()) {
			continue
		}
		q := r.of(u.GetQueue())
		if m.GetTerm() < q.term || m.GetTerm() == q.term && q.usage != nil && u.GetVersion() < q.usage.GetVersion() {
			continue
		}
		q.usage, q.term, q.dirty = u, m.GetTerm(), true
	}
}

// Write calls write for each status that is due, which returns the id of the write: for each queue at most once in Config.UsageEvery,
// and within the budget first for those that were not written for longest, so that whoever changes many queues all the time does not
// keep the others back. own returns the epoch of a queue, and whether it is ours. An error means that usages cannot be read.
func (r *Queues) Write(now time.Time, own func(path string) (epoch int64, ours bool), write func(path, uid string, status *v1beta1.QueueStatus) uint64) (errs []error) {
	var due []string
	for path, q := range r.queues {
		if !q.dirty || q.inFlight != 0 || q.uid == "" || q.usage == nil && !fault.On(fault.TwoStatusWriters) ||
			now.Before(q.lastAt.Add(r.cfg.UsageEvery)) || now.Before(q.retry) {
			continue
		}
		if _, ours := own(path); ours {
			due = append(due, path)
		}
	}
	if len(due) == 0 {
		return nil
	}
	slices.SortFunc(due, func(a, b string) int {
		return cmp.Or(r.queues[a].lastAt.Compare(r.queues[b].lastAt), strings.Compare(a, b))
	})
	for _, path := range due {
		q := r.queues[path]
		if u := q.usage.GetUid(); u != "" && u != q.uid {
			continue // the coordinator speaks of an earlier Queue of this name
		}
		q.dirty = false
		epoch, _ := own(path)
		status, err := r.status(now, q, epoch)
		if err != nil {
			errs = append(errs, fmt.Errorf("read usage of queue %s: %w", path, err))
			continue
		}
		if q.said != nil && !q.unsure {
			same := *q.said
			same.Stamp = status.Stamp
			if equality.Semantic.DeepEqual(&same, status) {
				continue
			}
		}
		if !r.tokens.Take(now) {
			q.dirty = true
			return errs
		}
		q.last, q.lastAt = status.Stamp, now
		q.inFlight, q.writes = write(path, q.uid, status), status
	}
	return errs
}

// Written takes the answer to a write.
func (r *Queues) Written(now time.Time, path string, id uint64, outcome event.StatusOutcome) {
	q := r.queues[path]
	if q == nil || q.inFlight != id {
		return
	}
	status := q.writes
	q.inFlight, q.writes = 0, nil
	switch outcome {
	case event.StatusOK:
		q.said, q.unsure, q.backoff, q.retry = status, false, 0, time.Time{}
	case event.StatusGone:
	default: // it may have taken effect all the same, and been seen meanwhile
		q.dirty, q.unsure = true, q.unsure || outcome == event.StatusFailed
		q.retry = now.Add(r.cfg.backOff(&q.backoff))
		r.shown(q)
	}
}

// status returns what is to be written of a queue.
func (r *Queues) status(now time.Time, q *queue, epoch int64) (*v1beta1.QueueStatus, error) {
	u := q.usage
	var seen *v1beta1.Stamp
	if q.seen != nil {
		seen = &q.seen.Stamp
	}
	var before []metav1.Condition
	if q.said != nil {
		before = q.said.Conditions
	}
	ready := Verdict{Reason: Reason{cmp.Or(u.GetReadyReason(), v1beta1.ReasonReady), u.GetMessage()}}
	ready.Yes = ready.Is(v1beta1.ReasonReady) || ready.Is(v1beta1.ReasonGuaranteeCut)
	status := &v1beta1.QueueStatus{
		Stamp:              r.cfg.next(q.last, seen, epoch),
		ObservedGeneration: u.GetGeneration(),
		Conditions:         []metav1.Condition{condition(now, before, v1beta1.ConditionReady, ready, u.GetGeneration())},
		AdmittedGangs:      u.GetAdmitted(), WaitingGangs: u.GetWaiting(), WeightedShare: u.GetWeightedShare(),
	}
	if q.orders {
		status.Conditions = append(status.Conditions,
			condition(now, before, v1beta1.ConditionOrdered, q.ordered(), u.GetGeneration()))
	}
	capability, err := wire.ToResources(u.GetCapability())
	if err != nil {
		return nil, err
	}
	for _, list := range []struct {
		said []*wire.Amount
		to   *corev1.ResourceList
	}{
		{u.GetCapability(), &status.Limits.Capability}, {u.GetGuarantee(), &status.Limits.Guarantee}, {u.GetDeserved(), &status.Limits.Deserved},
		{u.GetCharged(), &status.Charged}, {u.GetYielding(), &status.Yielding}, {u.GetPromised(), &status.Promised},
		{u.GetWanted(), &status.Wanted}, {u.GetFairShare(), &status.FairShare},
	} {
		amounts, err := wire.ToResources(list.said)
		if err != nil {
			return nil, err
		}
		// The definition of Queue takes so many resources. The coordinator reports no more, but for limits of a record that is older
		// than the bound.
		if amounts, _ = amounts.Foremost(api.MaxResources, capability); len(amounts) > 0 {
			*list.to = amounts.ToResourceList()
		}
	}
	return status, nil
}

// ordered says whether the queue's spec.order orders its gangs.
func (q *queue) ordered() Verdict {
	const words = "gangs of equal priority are ordered by "
	if q.problem != "" {
		return Verdict{Reason: Reason{v1beta1.ReasonOrderInvalid, q.problem + "; " + words + "age"}}
	}
	return Verdict{Yes: true, Reason: Reason{v1beta1.ReasonOrderValid, words + "spec.order"}}
}
