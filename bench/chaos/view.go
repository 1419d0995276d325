package chaos

import (
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/wire"
)

// view is what the load and the attack know of the cluster, from the auditor's watches.
type view struct {
	mu      sync.Mutex
	changed chan struct{}
	pods    map[string]seenPod // by UID
	leaders map[string]leader
	table   *api.Table
}

type seenPod struct {
	name, node string
	finished   bool
}

type leader struct {
	name     string
	revision int64
}

func newView() *view {
	return &view{changed: make(chan struct{}), pods: map[string]seenPod{}, leaders: map[string]leader{}}
}

func (v *view) observe(_ time.Time, e audit.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	seen := func(p *v1.Pod) {
		v.pods[string(p.UID)] = seenPod{p.Name, p.Spec.NodeName, p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed}
	}
	switch e := e.(type) {
	case audit.PodsReplaced:
		clear(v.pods)
		for _, p := range e.Pods {
			seen(p)
		}
	case audit.PodSeen:
		seen(e.Pod)
	case audit.PodGone:
		delete(v.pods, string(e.Pod.UID))
	case audit.StoreRevision:
		for _, c := range e.Changes {
			v.store(c)
		}
		return
	default:
		return
	}
	close(v.changed)
	v.changed = make(chan struct{})
}

func (v *view) store(c audit.StoreChange) {
	switch {
	case len(c.Key) > 7 && c.Key[:7] == "leader/":
		delete(v.leaders, c.Key)
		var r wire.LeaderRecord
		if !c.Deleted && proto.Unmarshal(c.Value, &r) == nil {
			v.leaders[c.Key] = leader{r.GetName(), c.CreateRevision}
		}
	case c.Key == "table" && !c.Deleted:
		var r wire.TableRecord
		if proto.Unmarshal(c.Value, &r) == nil {
			if t, err := wire.ToTable(&r, c.ModRevision); err == nil {
				v.table = t
			}
		}
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

// leads names the coordinator that leads.
func (v *view) leads() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	best := leader{}
	for _, l := range v.leaders {
		if best.revision == 0 || l.revision < best.revision {
			best = l
		}
	}
	return best.name
}

// spread tells whether the table names exactly so many shards, each with buckets.
func (v *view) spread(shards int) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.table == nil || len(v.table.Members) != shards {
		return false
	}
	for _, m := range v.table.Members {
		if v.table.Owned(m.Incarnation) == 0 {
			return false
		}
	}
	return true
}
