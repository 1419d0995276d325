package chaos

import (
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/bench/stage/observe"
)

// view is what the load and the attack know of the cluster, from the auditor's watches.
type view struct {
	mu                           sync.Mutex
	changed                      chan struct{}
	pods                         map[string]seenPod // by UID
	control                      observe.Store
	heard                        []chan string // wait for the next key of a kind; they get the name of who wrote it
	kinds                        []string
	dead                         map[api.Incarnation]time.Time // shards that were killed and are in the table
	headed                       int64                         // the term of the coordinator that was killed,
	beheaded                     time.Time                     // at that time; zero when another has granted something
	shardTimes, coordinatorTimes []time.Duration
	reasons                      map[string]map[string]bool // why gangs waited -> UIDs: without these the load is too easy
}

type seenPod struct {
	name, node string
	finished   bool
}

func newView() *view {
	return &view{changed: make(chan struct{}), pods: map[string]seenPod{}, dead: map[api.Incarnation]time.Time{}, reasons: map[string]map[string]bool{}}
}

func (v *view) observe(_ time.Time, e audit.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen := func(p *v1.Pod) {
		v.pods[string(p.UID)] = seenPod{p.Name, p.Spec.NodeName, p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed}
	}
	switch e := e.(type) {
	case audit.Listed[*v1.Pod]:
		clear(v.pods)
		for _, p := range e.Objects {
			seen(p)
		}
	case audit.Seen[*v1.Pod]:
		seen(e.Object)
	case audit.Gone[*v1.Pod]:
		delete(v.pods, string(e.Object.UID))
	case audit.PodGroupSeen:
		if e.PodGroup.Status == nil {
			return
		}
		for _, c := range e.PodGroup.Status.Conditions {
			if c.Status == metav1.ConditionFalse {
				if v.reasons[c.Reason] == nil {
					v.reasons[c.Reason] = map[string]bool{}
				}
				v.reasons[c.Reason][string(e.PodGroup.UID)] = true
			}
		}
		return
	case audit.StoreRevision:
		v.control.Observe(e)
		for _, c := range e.Changes {
			if !c.Deleted {
				v.stored(c)
			}
		}
		return
	default:
		return
	}
	close(v.changed)
	v.changed = make(chan struct{})
}

// stored is called when a key was written and v.control has it.
func (v *view) stored(c audit.StoreChange) {
	kind, rest, _ := strings.Cut(c.Key, "/")
	if c.CreateRevision == c.ModRevision {
		who := ""
		if incarnation, _, _ := strings.Cut(rest, "/"); kind == "intents" {
			if m := v.member(func(m api.Member) bool { return string(m.Incarnation) == incarnation }); m != nil {
				who = m.Name
			}
		}
		for i, k := range v.kinds {
			if k == kind && v.heard[i] != nil {
				v.heard[i] <- who // has room for one
				v.heard[i] = nil
			}
		}
		if !slices.ContainsFunc(v.heard, func(c chan string) bool { return c != nil }) {
			v.heard, v.kinds = nil, nil
		}
	}
	switch {
	case kind == "table":
		for who, at := range v.dead {
			if v.member(func(m api.Member) bool { return m.Incarnation == who }) == nil {
				v.shardTimes = append(v.shardTimes, time.Since(at))
				delete(v.dead, who)
			}
		}
	case kind == "reservations" && !v.beheaded.IsZero() && v.control.Term > v.headed:
		v.coordinatorTimes = append(v.coordinatorTimes, time.Since(v.beheaded))
		v.beheaded = time.Time{}
	}
}

// pod says what was seen last of a pod; false if it is gone or was never there.
func (v *view) pod(uid string) (seenPod, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	p, ok := v.pods[uid]
	return p, ok
}

// next is closed when some pod changed after the call.
func (v *view) next() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

// nextKey tells who writes the next new key of a kind: "intents" names the shard, "reservations" nobody.
func (v *view) nextKey(kind string) <-chan string {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := make(chan string, 1)
	v.heard, v.kinds = append(v.heard, c), append(v.kinds, kind)
	return c
}

// leads names the coordinator that leads.
func (v *view) leads() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.control.Leader.GetName()
}

func (v *view) member(is func(api.Member) bool) *api.Member {
	if v.control.Table == nil {
		return nil
	}
	if i := slices.IndexFunc(v.control.Table.Members, is); i >= 0 {
		return &v.control.Table.Members[i]
	}
	return nil
}

// named reports whether the table names a shard.
func (v *view) named(name string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.member(func(m api.Member) bool { return m.Name == name }) != nil
}

// killed begins to time how long others need to take over.
func (v *view) killed(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if m := v.member(func(m api.Member) bool { return m.Name == name }); m != nil && v.dead[m.Incarnation].IsZero() {
		v.dead[m.Incarnation] = time.Now()
	}
	if v.control.Leader.GetName() == name && v.beheaded.IsZero() {
		v.headed, v.beheaded = v.control.Term, time.Now()
	}
}

func (v *view) failovers() (shard, coordinator []time.Duration) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.shardTimes, v.coordinatorTimes
}

// waited counts the gangs that were seen waiting, by reason.
func (v *view) waited() map[string]int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := map[string]int{}
	for reason, uids := range v.reasons {
		n[reason] = len(uids)
	}
	return n
}

// spread reports whether the table names exactly so many shards, each with buckets.
func (v *view) spread(shards int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.control.Table == nil || len(v.control.Table.Members) != shards {
		return false
	}
	for _, m := range v.control.Table.Members {
		if v.control.Table.Owned(m.Incarnation) == 0 {
			return false
		}
	}
	return true
}
