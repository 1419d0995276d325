// Package disruption knows what the PodDisruptionBudgets of the cluster allow, so that victims are chosen for which nobody's budget is
// exceeded, if there are any, and so that evictions which exceed one are counted.
//
// It decides nothing about who may be evicted: a budget is a preference among victims that are equal otherwise, never a veto. So it may be
// wrong without harm, and is a view of one shard: what budgets' controllers said last, less the pods that this shard knows to leave and
// that they have not seen leaving.
//
// A pod leaves for a budget in two ways: a claim of this shard's takes it (Claim), or this shard evicts it (Evict), which is when it is
// judged whether the budget is exceeded. Either is forgotten when the budget's controller says something after the pod was seen being
// deleted, when the pod is gone, and after a while.
//
// A namespace has a limited number of budgets that are heeded, and a limited rate at which its pods are compared with them. Beyond either
// its budgets are not heeded, which harms nobody else.
package disruption

import (
	"fmt"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/fair"
)

// Bounds of what one namespace may have this package do.
const (
	budgetsAtMost  = 1000     // that are heeded: those that were seen first
	comparedBytes  = 4 << 20  // a second: of selectors, and of keys of labels that are looked up
	comparedAtOnce = 16 << 20 // that may be compared before it has to wait
	lookupBytes    = 16       // what the look-up of one label costs
)

// Budgets are all budgets of the cluster.
type Budgets struct {
	pod      func(uid string) *api.Pod // nil for one that is gone
	of       map[string]*namespace
	compared fair.Budget
}

type namespace struct {
	budgets map[string]*budget   // by name
	exact   map[string][]*budget // by a label that they require, "key=value"
	wide    []*budget            // the others
}

type budget struct {
	*api.DisruptionBudget
	leaving map[string]leave // by UID of pod
}

// leave is a pod that leaves, as far as this shard knows.
type leave struct {
	until  time.Time
	judged bool // by Evict
}

// New makes Budgets that looks up pods by their UIDs.
func New(pod func(uid string) *api.Pod) *Budgets {
	return &Budgets{pod: pod, of: map[string]*namespace{}, compared: fair.Budget{Rate: comparedBytes}}
}

// Heeds reports whether a namespace has budgets.
func (b *Budgets) Heeds(namespace string) bool { return b.of[namespace] != nil }

// Seen takes note of a budget, and says why it is not heeded, "" if it is.
func (b *Budgets) Seen(seen *api.DisruptionBudget) (ignored string) {
	n := b.of[seen.Namespace]
	was := n.get(seen.Name)
	if seen.Ignored != "" {
		b.drop(was)
		return seen.Ignored
	}
	if was != nil && was.UID == seen.UID {
		for uid := range was.leaving {
			if p := b.pod(uid); p == nil || p.Deleting {
				delete(was.leaving, uid) // the status counts it
			}
		}
		if was.Key == seen.Key && was.Value == seen.Value {
			was.DisruptionBudget = seen
			return ""
		}
	}
	b.drop(was)
	if n = b.of[seen.Namespace]; n == nil {
		n = &namespace{budgets: map[string]*budget{}, exact: map[string][]*budget{}}
		b.of[seen.Namespace] = n
	}
	if len(n.budgets) >= budgetsAtMost {
		return fmt.Sprintf("its namespace has more than %d", budgetsAtMost)
	}
	now := &budget{DisruptionBudget: seen, leaving: map[string]leave{}}
	if was != nil && was.UID == seen.UID {
		now.leaving = was.leaving
	}
	n.budgets[seen.Name] = now
	if seen.Key == "" {
		n.wide = append(n.wide, now)
	} else {
		n.exact[now.label()] = append(n.exact[now.label()], now)
	}
	return ""
}

// Gone takes note that a budget was deleted.
func (b *Budgets) Gone(namespace, name, uid string) {
	if was := b.of[namespace].get(name); was != nil && was.UID == uid {
		b.drop(was)
	}
}

func (n *namespace) get(name string) *budget {
	if n == nil {
		return nil
	}
	return n.budgets[name]
}

func (b *Budgets) drop(was *budget) {
	if was == nil {
		return
	}
	n := b.of[was.Namespace]
	delete(n.budgets, was.Name)
	is := func(o *budget) bool { return o == was }
	if was.Key == "" {
		n.wide = slices.DeleteFunc(n.wide, is)
	} else if n.exact[was.label()] = slices.DeleteFunc(n.exact[was.label()], is); len(n.exact[was.label()]) == 0 {
		delete(n.exact, was.label())
	}
	if len(n.budgets) == 0 {
		delete(b.of, was.Namespace)
	}
}

func (b *budget) label() string { return b.Key + "=" + b.Value }

// selecting returns the budgets that select a pod.
func (b *Budgets) selecting(now time.Time, p *api.Pod) (out []*budget) {
	n := b.of[p.Namespace]
	if n == nil || b.compared.Spent(now, p.Namespace) >= comparedAtOnce {
		return nil
	}
	cost := 0
	take := func(list []*budget) {
		for _, o := range list {
			if cost += o.Bytes; o.Selects(p.Labels) {
				out = append(out, o)
			}
		}
	}
	if p.Labels != nil && len(n.exact) > 0 {
		for _, key := range api.SortedKeys(p.Labels.Of) {
			cost += lookupBytes
			take(n.exact[key+"="+p.Labels.Of[key]])
		}
	}
	take(n.wide)
	b.compared.Spend(now, p.Namespace, int64(cost))
	return out
}

// Forget drops what is not needed any more. It is called now and then.
func (b *Budgets) Forget(now time.Time) { b.compared.Forget(now) }

// left is how many pods the budget can still do without: all that leave count, or only those that are judged.
func (b *Budgets) left(now time.Time, of *budget, all bool) int {
	n := of.Allowed
	for uid, l := range of.leaving {
		if b.pod(uid) == nil || now.After(l.until) {
			delete(of.leaving, uid)
		} else if all || l.judged {
			n--
		}
	}
	return n
}

// Claim takes note that a pod is to leave.
func (b *Budgets) Claim(now time.Time, p *api.Pod, until time.Time) {
	for _, o := range b.selecting(now, p) {
		if l := o.leaving[p.UID]; l.until.Before(until) {
			l.until = until
			o.leaving[p.UID] = l
		}
	}
}

// Evict takes note that a pod is evicted, and returns the names of the budgets that do not allow it. Of a pod that was judged before it
// returns none.
func (b *Budgets) Evict(now time.Time, p *api.Pod, until time.Time) (exceeded []string) {
	for _, o := range b.selecting(now, p) {
		if l := o.leaving[p.UID]; !l.judged && b.left(now, o, false) <= 0 {
			exceeded = append(exceeded, o.Name)
		}
		o.leaving[p.UID] = leave{until, true}
	}
	slices.Sort(exceeded)
	return exceeded
}

// Look is a look at what might be evicted, one set of pods after another.
type Look struct {
	budgets *Budgets
	now     time.Time
	left    map[*budget]int
}

// Look begins one.
func (b *Budgets) Look(now time.Time) *Look { return &Look{b, now, map[*budget]int{}} }

// Allows reports whether all budgets allow that these pods are evicted beside those that it reported that of before.
func (l *Look) Allows(pods ...*api.Pod) bool {
	var took []*budget
	for _, p := range pods {
		for _, o := range l.budgets.selecting(l.now, p) {
			if _, known := l.left[o]; !known {
				l.left[o] = l.budgets.left(l.now, o, true)
			}
			l.left[o]--
			took = append(took, o)
		}
	}
	if !slices.ContainsFunc(took, func(o *budget) bool { return l.left[o] < 0 }) {
		return true
	}
	for _, o := range took {
		l.left[o]++
	}
	return false
}
