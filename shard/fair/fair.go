// Package fair serves namespaces in turn, so that what is to be done for one tenant does not delay what is to be done for others.
package fair

// Queues is a queue of type Q for each namespace that has something to be served. Inside a namespace the order is Q's. The zero
// value is empty.
type Queues[Q any] struct {
	queues map[string]*Q
	order  []string // namespaces with a queue, the next first
}

// Of returns the queue of a namespace, made if need be.
func (f *Queues[Q]) Of(namespace string) *Q {
	q := f.queues[namespace]
	if q == nil {
		if f.queues == nil {
			f.queues = map[string]*Q{}
		}
		q = new(Q)
		f.queues[namespace] = q
		f.order = append(f.order, namespace)
	}
	return q
}

// Next returns the queue whose turn it is, nil when there is none.
func (f *Queues[Q]) Next() *Q {
	if len(f.order) == 0 {
		return nil
	}
	return f.queues[f.order[0]]
}

// Rotate gives the turn to the next namespace. If empty, the queue that had it is dropped.
func (f *Queues[Q]) Rotate(empty bool) {
	namespace := f.order[0]
	if f.order = f.order[1:]; empty {
		delete(f.queues, namespace)
		return
	}
	f.order = append(f.order, namespace)
}

// Empty reports whether no namespace has a queue.
func (f *Queues[Q]) Empty() bool { return len(f.order) == 0 }
