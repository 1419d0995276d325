package home

// fair is a queue that serves namespaces in turn, so that what one tenant has to be told does not delay the words to others.
// Inside a namespace the order is Q's.
type fair[Q any] struct {
	queues map[string]*Q
	order  []string // namespaces with a queue, the next first
}

// of returns the queue of a namespace, made if need be.
func (f *fair[Q]) of(namespace string) *Q {
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

// next returns the queue whose turn it is, nil when there is none.
func (f *fair[Q]) next() *Q {
	if len(f.order) == 0 {
		return nil
	}
	return f.queues[f.order[0]]
}

// rotate gives the turn to the next namespace. With empty the queue that had it is dropped.
func (f *fair[Q]) rotate(empty bool) {
	namespace := f.order[0]
	if f.order = f.order[1:]; empty {
		delete(f.queues, namespace)
		return
	}
	f.order = append(f.order, namespace)
}

func (f *fair[Q]) empty() bool { return len(f.order) == 0 }
