package coordinator

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/labels"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// newer reports whether resourceVersion a is larger than b. One that is no number, which no API server gives, counts as
// older than any that is.
func newer(a, b string) bool {
	return api.NewerVersion(digits(a), digits(b))
}

func digits(v string) string {
	if strings.Trim(v, "0123456789") != "" {
		return ""
	}
	return strings.TrimLeft(v, "0")
}

func (c *Core) loadLimits(s StoredLimits) {
	l, err := readLimits(s.Record)
	if err == nil {
		err = api.ValidatePath(s.Record.GetQueue())
	}
	if err != nil {
		c.log(LevelError, "limits ignored", "key", s.Key, "error", err)
		return
	}
	if l.record.NamespaceSelector != nil {
		if l.selector, err = storedSelector(l.record.GetNamespaceSelector()); err != nil {
			c.log(LevelError, "cannot decode namespaceSelector: no namespace may use the queue", "key", s.Key, "error", err)
		}
	}
	c.rights.setLimits(c.tree.at(l.record.GetQueue()), l)
	c.tree.dirty = true
	c.due[l.record.GetQueue()] = true
}

func readLimits(r *wire.LimitsRecord) (*limits, error) {
	if r == nil {
		return nil, fmt.Errorf("not readable")
	}
	capability, err := wire.ToResources(r.GetCapability())
	if err != nil {
		return nil, fmt.Errorf("capability: %w", err)
	}
	guarantee, err := wire.ToResources(r.GetGuarantee())
	if err != nil {
		return nil, fmt.Errorf("guarantee: %w", err)
	}
	deserved, err := wire.ToResources(r.GetDeserved())
	if err != nil {
		return nil, fmt.Errorf("deserved: %w", err)
	}
	users, err := readUserLimits(r.GetUserLimits())
	if err != nil {
		return nil, err
	}
	return &limits{record: r, capability: capability, guarantee: guarantee, deserved: deserved, users: users}, nil
}

// restoredLogged is how many of the queues whose resourceVersion went back a term names in the log.
const restoredLogged = 10

func (c *Core) queueSeen(ev QueueSeen) {
	if ev.Name == "" {
		return
	}
	if err := api.ValidatePath(ev.Name); err != nil {
		ev.Invalid = "metadata.name: " + err.Error()
	}
	_, selector, err := readSelector(ev.Namespaces)
	if err != nil && ev.Invalid == "" {
		ev.Invalid = err.Error()
	}
	if _, err := readUserLimits(ev.UserLimits); err != nil && ev.Invalid == "" {
		ev.Invalid = "spec." + err.Error()
	}
	if n := limitsBytes(ev.record(selector)); n > maxRecordBytes && ev.Invalid == "" {
		ev.Invalid = fmt.Sprintf("spec: the record of queue %s has %d bytes, the limit is %d: capability names %d resources, guarantee %d, deserved %d",
			ev.Name, n, maxRecordBytes, len(ev.Capability), len(ev.Guarantee), len(ev.Deserved))
	}
	q := c.tree.at(ev.Name)
	seen := ""
	if q.object != nil {
		seen = q.object.ResourceVersion
	} else if q.limits != nil {
		seen = q.limits.record.GetResourceVersion()
	}
	if newer(seen, ev.ResourceVersion) && !fault.On(fault.LaggingLimits) {
		if !ev.Listed {
			c.tree.prune(q)
			return // a cache that lags; resourceVersions of one server are in one order whatever the object
		}
		if c.restored++; c.restored <= restoredLogged {
			c.log(LevelWarn, "a queue's resourceVersion went back: the API server was restored from a backup, using the limits in the backup",
				"queue", ev.Name, "resourceVersion", ev.ResourceVersion, "before", seen)
		}
	}
	before := q.object
	q.object = &ev
	if before == nil || before.StatusEpoch != ev.StatusEpoch {
		c.owners.StatusEpoch(ev.StatusEpoch, "queue "+ev.Name)
	}
	c.due[ev.Name] = true
	if before == nil || before.HasFinalizer != ev.HasFinalizer || before.Deleting != ev.Deleting || before.UID != ev.UID {
		q.report.askedAt, q.report.finalizerFailed = 0, false
		c.finalizers[ev.Name] = true
	}
	q.report.reported = q.report.reported && before != nil &&
		before.Invalid == ev.Invalid && before.Generation == ev.Generation && before.UID == ev.UID
	if q.limits == nil {
		c.rightsChanged(q)
	}
	if before == nil || before.Closed != ev.Closed || before.Deleting != ev.Deleting || before.Invalid != ev.Invalid {
		c.pathChanged(q)
	}
}

func (c *Core) queueGone(ev QueueGone) {
	q := c.tree.byPath[ev.Name]
	if q == nil || q.object == nil || ev.UID != "" && q.object.UID != ev.UID {
		return // another object of the same name has taken its place
	}
	if q.object = nil; q.limits == nil {
		c.rightsChanged(q)
	}
	c.due[ev.Name], c.finalizers[ev.Name] = true, true
	c.pathChanged(q)
	c.nextAskAgain = time.Time{}
	c.tree.prune(q)
}

func (c *Core) queuesSynced() {
	if c.tree.synced {
		return
	}
	c.tree.synced = true
	c.nextAskAgain = time.Time{}
	c.tree.root.walk(func(q *queue) {
		q.report.reported = false
		c.due[q.path], c.finalizers[q.path] = true, true
		c.turns.changedAt(q)
	})
	c.rejudgeRights(c.ring)
	c.owners.Synced()
}

// pathChanged notes that what the queue and those below it admit may have changed, and whether its parent is a leaf.
func (c *Core) pathChanged(q *queue) {
	q.walk(func(p *queue) { p.report.reported = false })
	c.turns.changedAt(q)
	if q.parent != nil {
		q.parent.report.reported = false
		c.turns.changedAt(q.parent)
	}
}

// changeLimits fills the transaction with records that differ from what their objects say.
func (c *Core) changeLimits(b *batch) bool {
	if len(c.due) == 0 {
		return false
	}
	for _, path := range api.SortedKeys(c.due) {
		q := c.tree.byPath[path]
		if q == nil {
			delete(c.due, path)
			continue
		}
		next, write := c.tree.wanted(q)
		if !write {
			delete(c.due, path)
			continue
		}
		bytes := limitsBytes(nil)
		if next != nil {
			bytes = limitsBytes(next.record)
		}
		if len(b.ops) >= c.cfg.BatchOps || !b.fits(bytes, c.cfg.BatchBytes) {
			break
		}
		delete(c.due, path)
		if next == nil {
			b.add(DeleteLimits{Queue: path}, bytes+len(path))
		} else {
			b.add(PutLimits{Record: next.record}, bytes)
		}
		// Others wait for this queue's limits only where they were denied; guarantees, and what is deserved, reach
		// across the tree. Weights decide who is next, and no denial.
		reaches := next.entitles() || q.limits.entitles()
		was, counted := q.limits, c.tree.counting > 0
		c.rights.setLimits(q, next)
		if counted != (c.tree.counting > 0) || !was.samePersonal(next) {
			countAnew(c)
		}
		if !was.sameSelector(next) {
			c.rightsChanged(q)
			q.walk(func(p *queue) { p.report.reported = false })
		}
		q.report.reported = false
		c.tree.limitsChanged()
		c.finalizers[path] = true
		if reaches || len(c.ledger.barring) > 0 {
			c.turns.changedEverywhere()
		} else {
			c.turns.changedAt(q)
		}
		c.tree.prune(q)
	}
	return len(b.ops) > 0
}

// countAnew counts gangs from now on, or not any more, and to whom they are charged.
func countAnew(c *Core) {
	count := func(demand api.Resources) api.Resources { return c.tree.counted(uncounted(demand)) }
	c.tree.root.walk(func(q *queue) {
		q.forgetUsers()
		for _, g := range q.members.reserved {
			g.res.personal = nil
		}
	})
	c.tree.root.walk(func(q *queue) {
		for _, g := range q.members.reserved {
			r := g.res
			if c.tree.personal > 0 {
				c.ledger.chargeUsers(g, r.demand, 1)
				if r.claim != nil {
					c.ledger.promiseUsers(r.claim, 1)
				}
			}
			x := r.claim
			if x != nil {
				c.ledger.promise(x, -1)
				x.promised = c.tree.promises(x.promised, r.demand)
				c.ledger.promise(x, 1)
			}
			c.ledger.charge(g, count(r.demand))
			if r.most = count(r.most); r.most.Fits(r.demand) {
				r.most = nil
			}
		}
	})
	for _, r := range c.ring {
		c.unlist(r)
		r.demand, r.bound = count(r.demand), count(r.bound)
		if r.delta = r.demand; r.gang.res != nil {
			r.delta = r.demand.Sub(r.gang.res.demand)
		}
		c.list(r)
		if r.demandClass != nil {
			c.turns.makeDue(r.demandClass)
		}
	}
}

// wanted is what the record of a queue should be, and whether that has to be written.
func (t *tree) wanted(q *queue) (next *limits, write bool) {
	o, now := q.object, q.limits
	unheld := q.unheld() && !fault.On(fault.UnheldQueue)
	switch {
	case o == nil && (now == nil || !t.synced):
		return now, false
	case o == nil && q.members.admitted == 0:
		return nil, true
	case o == nil || o.Invalid != "" || unheld:
		// What was in force stays: a spec that cannot be read says nothing, and charges outlive the object.
		deleted := o == nil || o.Deleting || unheld
		if now == nil && o != nil && o.Deleting && o.HasFinalizer { // so that the finalizer may go
			selector, encoded, err := readSelector(o.Namespaces)
			if err != nil {
				selector, encoded = labels.Nothing(), []byte{0xff} // nobody, and a later leader cannot read it either
			}
			return &limits{selector: selector, record: &wire.LimitsRecord{Queue: q.path, Uid: o.UID, ResourceVersion: o.ResourceVersion,
				Generation: o.Generation, Deleted: true, NamespaceSelector: encoded}}, true
		}
		if now == nil || now.record.GetDeleted() == deleted {
			return now, false
		}
		next := *now
		next.record = proto.CloneOf(now.record)
		next.record.Deleted = deleted
		return &next, true
	}
	selector, encoded, _ := readSelector(o.Namespaces) // queueSeen has seen to it that it can be read
	if now != nil {
		r := now.record
		if r.GetUid() == o.UID && r.GetGeneration() == o.Generation && r.GetClosed() == o.Closed && r.GetDeleted() == o.Deleting &&
			same(now.capability, o.Capability) && same(now.guarantee, o.Guarantee) && same(now.deserved, o.Deserved) &&
			now.weight() == weightOf(o.Weight) && r.GetPriority() == o.Priority && proto.Equal(r.GetPolicy(), o.Policy) &&
			sameUserLimits(r.GetUserLimits(), o.UserLimits) && sameBytes(r.NamespaceSelector, encoded) {
			return now, false
		}
	}
	users, _ := readUserLimits(o.UserLimits) // likewise
	return &limits{capability: o.Capability, guarantee: o.Guarantee, deserved: o.Deserved, users: users,
		selector: selector, record: o.record(encoded)}, true
}

// record is what the control store keeps of a queue, with its selector as readSelector encodes it.
func (o *QueueSeen) record(selector []byte) *wire.LimitsRecord {
	return &wire.LimitsRecord{
		Queue: o.Name, Uid: o.UID, ResourceVersion: o.ResourceVersion, Generation: o.Generation,
		Capability: wire.FromResources(o.Capability), Guarantee: wire.FromResources(o.Guarantee), Deserved: wire.FromResources(o.Deserved),
		Closed: o.Closed, Deleted: o.Deleting, NamespaceSelector: selector,
		Weight: o.Weight, Priority: o.Priority, Policy: o.Policy, UserLimits: o.UserLimits}
}

const noFinalizer = "cannot get the finalizer " + v1beta1.FinalizerCharged + ", which protects it while anything is charged"

// same compares limits, where a zero is not the same as a missing name.
func same(a, b api.Resources) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// askFinalizers asks for finalizers that should change. It is called while no transaction is in flight: what is not
// charged in memory is not charged in the store.
func (c *Core) askFinalizers(now time.Time) {
	if len(c.finalizers) == 0 {
		return
	}
	for _, path := range api.SortedKeys(c.finalizers) {
		delete(c.finalizers, path)
		q := c.tree.byPath[path]
		if path == api.RootQueue || path == api.DefaultQueue {
			if c.tree.synced && (q == nil || q.object == nil) {
				if at, asked := c.created[path]; !asked || now.Sub(at) >= c.cfg.RetryEvery {
					c.created[path] = now
					c.out = append(c.out, CreateQueue{Name: path})
				}
				continue
			}
			delete(c.created, path)
		}
		if q == nil || q.object == nil {
			continue
		}
		o := q.object
		due := q.report.askedAt == 0 || now.UnixMilli()-q.report.askedAt >= c.cfg.RetryEvery.Milliseconds()
		switch {
		case !due:
		case !o.Deleting && !o.HasFinalizer:
			if q.report.askedAt != 0 && !q.report.finalizerFailed {
				q.report.finalizerFailed = true
				c.pathChanged(q)
			}
			q.report.askedAt = now.UnixMilli()
			c.out = append(c.out, SetFinalizer{Queue: path, UID: o.UID})
		case o.Deleting && o.HasFinalizer && q.members.admitted == 0 && q.ended():
			q.report.askedAt = now.UnixMilli()
			c.out = append(c.out, RemoveFinalizer{Queue: path, UID: o.UID})
		}
	}
}

// checkFinalizers looks at all queues whether something asked for is still missing.
func (c *Core) checkFinalizers() {
	c.finalizers[api.RootQueue], c.finalizers[api.DefaultQueue] = true, true
	c.tree.root.walk(func(q *queue) {
		if o := q.object; o != nil && o.Deleting == o.HasFinalizer {
			c.finalizers[q.path] = true
		}
	})
}
