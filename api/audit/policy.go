package audit

import (
	"fmt"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// policy is who may be evicted for whom, as a Queue or the record of its limits says it. Less than zero stands for what
// is not said.
type policy struct {
	kept                         bool
	reclaim                      wire.Reclaim
	preempts                     int
	reclaimMin, preemptMin, wait int64 // milliseconds
}

var noPolicy = policy{preempts: -1, reclaimMin: -1, preemptMin: -1, wait: -1}

const defaultMinRuntime = 60_000 // milliseconds

func policyInForce(p *wire.QueuePolicy) policy {
	out := noPolicy
	if p == nil {
		return out
	}
	out.kept, out.reclaim = p.GetKept(), p.GetReclaim()
	if p.Preempts != nil {
		out.preempts = 0
		if p.GetPreempts() {
			out.preempts = 1
		}
	}
	for _, f := range []struct {
		from *int64
		to   *int64
	}{{p.ReclaimMinRuntimeMs, &out.reclaimMin}, {p.PreemptMinRuntimeMs, &out.preemptMin}, {p.PreemptionDelayMs,
		&out.wait}} {
		if f.from != nil {
			*f.to = *f.from
		}
	}
	return out
}

// policyOf reads what a Queue says, and reports whether it can be in force.
func policyOf(s *v1beta1.QueueSpec) (out policy, ok bool) {
	out, ok = noPolicy, true
	out.kept = s.Reclaimable != nil && !*s.Reclaimable
	switch s.ReclaimPolicy {
	case "", "Deserved":
	case "FairShare":
		out.reclaim = wire.Reclaim_RECLAIM_FAIR_SHARE
	case "Never":
		out.reclaim = wire.Reclaim_RECLAIM_NEVER
	default:
		ok = false
	}
	switch s.PreemptionPolicy {
	case "":
	case "Never":
		out.preempts = 0
	case "PreemptLowerPriority":
		out.preempts = 1
	default:
		ok = false
	}
	read := func(from int64, to *int64) { // nanoseconds
		ok = ok && from >= 0 && from <= int64(168*time.Hour)
		if *to = from / 1_000_000; from%1_000_000 > 0 {
			*to++
		}
	}
	if d := s.ReclaimMinRuntime; d != nil {
		read(int64(d.Duration), &out.reclaimMin)
	}
	if d := s.PreemptMinRuntime; d != nil {
		read(int64(d.Duration), &out.preemptMin)
	}
	if d := s.PreemptionDelay; d != nil {
		read(int64(d.Duration), &out.wait)
	}
	return out, ok
}

func (p policy) String() string {
	return fmt.Sprintf("reclaimable %t, reclaim %s, preempts %d, min runtimes %d ms and %d ms, delay %d ms", !p.kept,
		p.reclaim, p.preempts, p.reclaimMin, p.preemptMin, p.wait)
}

// inherited returns what the queue or its nearest ancestor says that says it.
func (s *store) inherited(path string, of func(policy) int64, otherwise int64) int64 {
	for _, p := range api.Lineage(path) {
		if q := s.queues[p]; q != nil && of(q.policy) >= 0 {
			return of(q.policy)
		}
	}
	return otherwise
}

// policyAt returns what a queue itself says.
func (s *store) policyAt(path string) policy {
	if q := s.queues[path]; q != nil {
		return q.policy
	}
	return noPolicy
}

// fairly reports whether a queue's siblings and it reclaim up to their fair shares, which are not known here.
func (s *store) fairly(path string) bool {
	return s.policyAt(api.Parent(path)).reclaim == wire.Reclaim_RECLAIM_FAIR_SHARE
}
