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

// rights is what is known of namespaces, and of what is in force for them.
type rights struct {
	tree      *tree
	names     map[string]*namespace
	synced    bool       // all namespaces of the first list were delivered
	selectors int        // in force
	entitled  []*request // with bound pods, and the right to use their queue since then
}

// namespace is what is known of a namespace. One exists for each that was seen or that a request waits for.
type namespace struct {
	seen     bool
	labels   labels.Set
	requests []*request // all that wait, in no order
}

// seen takes the labels of a namespace, and returns the requests whose rights may have changed.
func (y *rights) seen(ev NamespaceSeen) []*request {
	n := y.at(ev.Name)
	now := make(labels.Set, len(ev.Labels)+1)
	for k, v := range ev.Labels {
		now[k] = v
	}
	now[corev1.LabelMetadataName] = ev.Name
	if n.seen && labels.Equals(n.labels, now) {
		return nil
	}
	n.seen, n.labels = true, now
	return y.concerned(n)
}

// concerned are the requests of a namespace that has changed: none before all namespaces are known.
func (y *rights) concerned(n *namespace) []*request {
	if !y.synced {
		return nil
	}
	return n.requests
}

// gone does the same of a namespace that was deleted.
func (y *rights) gone(ev NamespaceGone) []*request {
	n := y.names[ev.Name]
	if n == nil {
		return nil
	}
	n.seen, n.labels = false, nil
	y.drop(ev.Name, n)
	return y.concerned(n)
}

// right says what keeps a namespace from using a queue, nil for nothing. A reason of DENY_UNKNOWN means that it is not known
// yet: the namespace or a queue of the path was not seen, or its selector is not in force.
func (y *rights) right(q *queue, name string) *shortfall {
	var unknown *shortfall
	for p := q; p != nil; p = p.parent {
		switch {
		case p.limits == nil && p.object == nil && !y.tree.synced:
			unknown = &shortfall{reason: wire.DenyReason_DENY_UNKNOWN, queue: p}
		case p.limits == nil && (p.object == nil || p.object.Namespaces == nil):
		case p.limits == nil && p.object.Invalid != "":
			return &shortfall{reason: wire.DenyReason_DENY_QUEUE_CLOSED, queue: p}
		case p.limits == nil:
			unknown = &shortfall{reason: wire.DenyReason_DENY_UNKNOWN, queue: p}
		case p.limits.selector == nil:
		default:
			if n := y.names[name]; !y.synced || n == nil || !n.seen {
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
	return c.tree.synced && (c.rights.selectors == 0 || c.rights.synced) && len(c.rights.entitled) == 0 && len(c.due) == 0
}

// setLimits puts limits in force at a queue, nil for none.
func (y *rights) setLimits(q *queue, next *limits) {
	was := q.limits
	q.limits = next
	if was.personal() {
		y.tree.personal--
	}
	if next.personal() {
		y.tree.personal++
	}
	if !was.samePersonal(next) {
		q.forgetUsers()
	}
	if was.names(api.ResourceGangs) {
		y.tree.counting--
	}
	if next.names(api.ResourceGangs) {
		y.tree.counting++
	}
	if was.restricts() {
		y.selectors--
	}
	if next.restricts() {
		y.selectors++
	}
}

// forgetUsers begins to count anew what users have, if their limits say so.
func (q *queue) forgetUsers() {
	if q.users = nil; q.limits.personal() {
		q.users = newUsers(q.limits.users)
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

func (y *rights) at(name string) *namespace {
	n := y.names[name]
	if n == nil {
		n = &namespace{}
		y.names[name] = n
	}
	return n
}

func (y *rights) drop(name string, n *namespace) {
	if !n.seen && len(n.requests) == 0 {
		delete(y.names, name)
	}
}
