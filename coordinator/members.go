package coordinator

import "basalt.dev/basalt/api"

// members are the gangs of a queue.
type members struct {
	reserved   []*gang            // with a reservation in this very queue, in no order
	tenants    map[string]*tenant // of this very queue, by namespace; never walked
	admitted   int                // reservations in the subtree
	departures uint64             // how often one was given back, or became smaller, and for no claim (displacement.go)
	waiting    int                // requests in the subtree
}

// tenant is a namespace in a queue: its own earmarks are kept from it in full, those of others in part (earmarks.go).
type tenant struct {
	namespace         string
	charged, unplaced account // the latter: the part of it that found no room (supply.go)
	members           int     // reservations and requests
	turn              int64   // when one of its gangs that find no room was last considered, in Unix ms (mandate.go)
}

// join counts a reservation or a request of a namespace.
func (q *queue) join(namespace string) *tenant {
	t := q.members.tenants[namespace]
	if t == nil {
		t = &tenant{namespace: namespace}
		if q.members.tenants == nil {
			q.members.tenants = map[string]*tenant{}
		}
		q.members.tenants[namespace] = t
	}
	t.members++
	return t
}

// leave takes away what join counted.
func (q *queue) leave(t *tenant) {
	if t.members--; t.members == 0 {
		delete(q.members.tenants, t.namespace)
	}
}

// admits counts a gang that has a reservation in this queue now. The queues of the path are reported.
func (q *queue) admits(g *gang) {
	g.res.place = len(q.members.reserved)
	q.members.reserved = append(q.members.reserved, g)
	for p := q; p != nil; p = p.parent {
		p.members.admitted++
		p.report.reported = false
	}
}

// releases takes away what admits and join counted. It returns the queues in which nothing is reserved any more.
func (q *queue) releases(g *gang) (empty []string) {
	for p := q; p != nil; p = p.parent {
		if p.members.admitted--; p.members.admitted == 0 {
			empty = append(empty, p.path)
		}
	}
	q.leave(g.res.tenant)
	r := q.members.reserved
	last := r[len(r)-1]
	r[g.res.place], last.res.place = last, g.res.place
	r[len(r)-1] = nil
	q.members.reserved = r[:len(r)-1]
	return empty
}

// waits counts a request, or with -1 takes it away. The queues of the path are reported.
func (q *queue) waits(n int) {
	for p := q; p != nil; p = p.parent {
		p.members.waiting += n
		p.report.reported = false
	}
}

// changed has the queue and its ancestors reported.
func (q *queue) changed() {
	for p := q; p != nil; p = p.parent {
		p.report.reported = false
	}
}

// reportAll makes everything of one home be sent again.
func (c *Core) reportAll(home api.Incarnation) {
	c.tree.root.walk(func(q *queue) {
		if c.owners.Table().OwnerOf(q.path) == home {
			q.report.reported = false
		}
	})
}
