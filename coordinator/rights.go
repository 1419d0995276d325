package coordinator

import (
	"bytes"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Rights. The namespaceSelector of a Queue says which namespaces may use the queue and everything below it. A namespace
// must match every selector in force on the path of the queue that it names, so a queue narrows what its ancestors allow
// and never widens it. Whatever would let a namespace hold more needs the right: a new reservation, a growth, and a charge
// for pods that somebody else bound. What is charged stays when the right is lost, and grows where pods that were admitted are
// resized in place: they run.
//
// It fails closed: with a selector on the path nothing is judged before the namespace is known, a record with a selector
// that cannot be read admits nobody, and a Queue whose selector cannot be read keeps the one in force.

// maxSelectorBytes bounds a selector in its protobuf encoding, which is what the record holds. It bounds the time of a
// match, too.
const maxSelectorBytes = 16 << 10

// readSelector returns the selector of a Queue, nil for none, and its encoding for the record.
func readSelector(s *metav1.LabelSelector) (labels.Selector, []byte, error) {
	const field = "spec.namespaceSelector"
	if s == nil {
		return nil, nil, nil
	}
	if n := s.Size(); n > maxSelectorBytes {
		return nil, nil, fmt.Errorf("%s: %d bytes, the limit is %d", field, n, maxSelectorBytes)
	}
	selector, err := api.Selector(s)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", field, err)
	}
	encoded, err := s.Marshal()
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", field, err)
	}
	if encoded == nil {
		encoded = []byte{} // it selects every namespace, which is not the same as none
	}
	return selector, encoded, nil
}

// storedSelector returns the selector of a record, nil for none.
func storedSelector(encoded []byte) (labels.Selector, error) {
	if encoded == nil {
		return nil, nil
	}
	s := &metav1.LabelSelector{}
	if err := s.Unmarshal(encoded); err != nil {
		return labels.Nothing(), err
	}
	selector, _, err := readSelector(s)
	if err != nil {
		return labels.Nothing(), err
	}
	return selector, nil
}

// namespace is what is known of a namespace. One exists for each that was seen or that a request waits for.
type namespace struct {
	seen     bool
	labels   labels.Set
	requests []*request // all that wait, in no order
}

func (c *Core) namespaceSeen(ev NamespaceSeen) {
	n := c.namespace(ev.Name)
	now := make(labels.Set, len(ev.Labels)+1)
	for k, v := range ev.Labels {
		now[k] = v
	}
	now[corev1.LabelMetadataName] = ev.Name
	if n.seen && labels.Equals(n.labels, now) {
		return
	}
	n.seen, n.labels = true, now
	if c.namespacesSynced {
		c.rejudgeRights(n.requests)
	}
}

func (c *Core) namespaceGone(ev NamespaceGone) {
	n := c.namespaces[ev.Name]
	if n == nil {
		return
	}
	n.seen, n.labels = false, nil
	if c.namespacesSynced {
		c.rejudgeRights(n.requests)
	}
	c.dropNamespace(ev.Name, n)
}

// rightsSynced: all namespaces of the first list were delivered.
func (c *Core) rightsSynced() {
	if !c.namespacesSynced {
		c.namespacesSynced = true
		c.rejudgeRights(c.ring)
	}
}

// right says what keeps a namespace from using a queue, nil for nothing. A reason of DENY_UNKNOWN means that it is not known
// yet: the namespace or a queue of the path was not seen, or its selector is not in force.
func (c *Core) right(q *queue, name string) *shortfall {
	var unknown *shortfall
	for p := q; p != nil; p = p.parent {
		switch {
		case p.limits == nil && p.object == nil && !c.synced:
			unknown = &shortfall{reason: wire.DenyReason_DENY_UNKNOWN, queue: p}
		case p.limits == nil && (p.object == nil || p.object.Namespaces == nil):
		case p.limits == nil && p.object.Invalid != "":
			return &shortfall{reason: wire.DenyReason_DENY_QUEUE_CLOSED, queue: p}
		case p.limits == nil:
			unknown = &shortfall{reason: wire.DenyReason_DENY_UNKNOWN, queue: p}
		case p.limits.selector == nil:
		default:
			if n := c.namespaces[name]; !c.namespacesSynced || n == nil || !n.seen {
				unknown = &shortfall{reason: wire.DenyReason_DENY_UNKNOWN, queue: p}
			} else if !p.limits.selector.Matches(n.labels) {
				return &shortfall{reason: wire.DenyReason_DENY_NOT_ALLOWED, queue: p}
			}
		}
	}
	return unknown
}

// rightsKnown reports whether the right of every namespace to every queue can be judged. Before that, bound pods may wait to be
// charged.
func (c *Core) rightsKnown() bool {
	return c.synced && (c.selectors == 0 || c.namespacesSynced) && len(c.entitled) == 0 && len(c.due) == 0
}

// rejudgeRights looks again at the rights of requests that wait.
func (c *Core) rejudgeRights(requests []*request) {
	for _, r := range requests {
		now := c.right(r.queue, r.namespace)
		if now == nil && r.barred == nil || now != nil && r.barred != nil && *now == *r.barred {
			continue
		}
		c.unlist(r)
		r.barred = now
		c.list(r)
		c.owe(r)
		if now == nil {
			c.turns.makeDue(r.demandClass)
			if len(r.bound) > 0 {
				c.entitled = append(c.entitled, r)
			}
		}
	}
}

// rightsChanged is called when the selector in force at q is another.
func (c *Core) rightsChanged(q *queue) {
	if q.members.waiting == 0 {
		return
	}
	var below []*request
	for _, r := range c.ring {
		for p := r.queue; p != nil; p = p.parent {
			if p == q {
				below = append(below, r)
				break
			}
		}
	}
	c.rejudgeRights(below)
}

// setLimits puts limits in force at a queue, nil for none.
func (c *Core) setLimits(q *queue, next *limits) {
	was := q.limits
	q.limits = next
	if was.restricts() {
		c.selectors--
	}
	if next.restricts() {
		c.selectors++
	}
}

func (l *limits) restricts() bool { return l != nil && l.selector != nil }

// sameSelector reports whether two limits have the same selector, or none.
func (l *limits) sameSelector(o *limits) bool {
	if !l.restricts() || !o.restricts() {
		return l.restricts() == o.restricts()
	}
	return sameBytes(l.record.NamespaceSelector, o.record.NamespaceSelector)
}

// sameBytes compares encoded selectors, where an empty one is not the same as none.
func sameBytes(a, b []byte) bool { return (a == nil) == (b == nil) && bytes.Equal(a, b) }

// maxWho bounds the words about selectors in the Ready condition of a queue.
const maxWho = 500

// who says which namespaces may use a queue, "" for all.
func (q *queue) who() string {
	var words []string
	for p := q; p != nil; p = p.parent {
		if p.limits.restricts() && !p.limits.selector.Empty() {
			w := p.limits.selector.String()
			if w == "" {
				w = "no labels at all, because the selector in force cannot be read"
			}
			if p != q {
				w += fmt.Sprintf(" (of queue %q)", p.path)
			}
			words = append(words, w)
		}
	}
	if len(words) == 0 {
		return ""
	}
	w := strings.Join(words, " and ")
	if len(w) > maxWho {
		w = w[:maxWho] + "..."
	}
	return "; only for namespaces with " + w
}
