package coordinator

import (
	"time"

	"basalt.dev/basalt/api/wire"
)

// Defaults of Queue.spec.
const (
	preemptDelay = 10 * time.Second
	minRuntime   = time.Minute
)

// inherited returns what the nearest queue of the path says, starting with q.
func inherited[T any](q *queue, of func(*wire.QueuePolicy) *T, or T) T {
	for ; q != nil; q = q.parent {
		if p := q.limits.policy(); p != nil {
			if v := of(p); v != nil {
				return *v
			}
		}
	}
	return or
}

func (q *queue) preempts() bool {
	return inherited(q, func(p *wire.QueuePolicy) *bool { return p.Preempts }, false)
}

func (q *queue) preemptionDelay() time.Duration {
	ms := inherited(q, func(p *wire.QueuePolicy) *int64 { return p.PreemptionDelayMs }, preemptDelay.Milliseconds())
	return time.Duration(ms) * time.Millisecond
}

// minRuntime of the gangs of a queue.
func (q *queue) minRuntime(rule wire.Rule) time.Duration {
	return time.Duration(inherited(q, func(p *wire.QueuePolicy) *int64 {
		if rule == wire.Rule_RULE_PREEMPT {
			return p.PreemptMinRuntimeMs
		}
		return p.ReclaimMinRuntimeMs
	}, minRuntime.Milliseconds())) * time.Millisecond
}
