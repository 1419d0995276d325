package hostile

import (
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/observe"
)

// view is what the suite knows of the cluster, from watches of its own. It judges by the objects alone: the amounts of pods are
// summed here, not by the code that Basalt and its auditor share.
type view struct {
	mu       sync.Mutex
	pods     map[types.UID]*pod
	waiting  map[types.UID]chan time.Time // given the time when the pod is seen bound
	unseen   map[types.UID]chan struct{}  // closed when the pod is seen
	control  observe.Store
	terms    int              // how many times a coordinator became leader
	limits   map[string]int64 // of CPU, by queue
	used     map[string]int64 // what runs in a queue and below it, milli-cores
	over     []string         // limits that were exceeded by what runs
	overSeen map[string]bool
}

// pod is what the view keeps of a pod.
type pod struct {
	uid             types.UID
	namespace, name string
	node            string
	ours            bool // schedulerName is basalt
	placed          bool // was seen without a node before: Basalt bound it, if it is ours
	finished        bool
	gated, deleting bool
	queue, gang     string // for which it was bound
	cpu             int64  // milli-cores, as it was bound or, if that is less, after a resize
	created         time.Time
	reason, message string // of PodScheduled=False
	group, label    string // PodGroup and queue that its labels name
}

func newView() *view {
	return &view{pods: map[types.UID]*pod{}, waiting: map[types.UID]chan time.Time{}, unseen: map[types.UID]chan struct{}{},
		limits: map[string]int64{}, used: map[string]int64{}, overSeen: map[string]bool{}}
}

// counts reports whether a pod is one that Basalt bound and that occupies what it asked for.
func (p *pod) counts() bool { return p.ours && p.placed && p.node != "" && !p.finished }

func (v *view) observe(at time.Time, e audit.Event) {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch e := e.(type) {
	case audit.Listed[*v1.Pod]:
		there := map[types.UID]bool{}
		for _, p := range e.Objects {
			there[p.UID] = true
		}
		for uid := range v.pods {
			if !there[uid] {
				v.podGone(uid)
			}
		}
		// A list shows ends and starts in the order of names: the limits are judged when all of it was read.
		var bound []*pod
		for _, o := range e.Objects {
			if p := v.podSeen(at, o); p != nil {
				bound = append(bound, p)
			}
		}
		for _, p := range bound {
			v.judgeLimits(p)
		}
	case audit.Seen[*v1.Pod]:
		if p := v.podSeen(at, e.Object); p != nil {
			v.judgeLimits(p)
		}
	case audit.Gone[*v1.Pod]:
		v.podGone(e.Object.UID)
	case audit.StoreRevision:
		before := v.control.Term
		if v.control.Observe(e); v.control.Term > before {
			v.terms++
		}
	}
}

// podSeen takes the state of a pod. It returns the pod if Basalt has bound it since it was seen last.
func (v *view) podSeen(at time.Time, o *v1.Pod) (bound *pod) {
	p := v.pods[o.UID]
	if p == nil {
		p = &pod{uid: o.UID, namespace: o.Namespace, name: o.Name, created: o.CreationTimestamp.Time, ours: o.Spec.SchedulerName == api.SchedulerName,
			placed: o.Spec.NodeName == ""}
		v.pods[o.UID] = p
		if c := v.unseen[o.UID]; c != nil {
			close(c)
			delete(v.unseen, o.UID)
		}
	}
	was := p.node
	v.account(p, -1)
	p.node, p.gated, p.deleting = o.Spec.NodeName, len(o.Spec.SchedulingGates) > 0, o.DeletionTimestamp != nil
	p.finished = o.Status.Phase == v1.PodSucceeded || o.Status.Phase == v1.PodFailed
	p.group, p.label = o.Labels[api.LabelPodGroup], o.Labels[api.LabelQueue]
	if asked := milliCPU(&o.Spec); was == "" {
		p.cpu = asked
	} else if asked < p.cpu {
		p.cpu = min(p.cpu, afterResize(o))
	}
	p.reason, p.message = "", ""
	for _, c := range o.Status.Conditions {
		if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			p.reason, p.message = c.Reason, c.Message
		}
	}
	if p.node != "" && was == "" {
		p.gang = o.Labels[api.LabelGang]
		if r := v.control.Reservations[p.gang]; r != nil {
			p.queue = r.GetGang().GetQueue()
		}
	}
	v.account(p, 1)
	if p.node == "" || was != "" {
		return nil
	}
	if c := v.waiting[p.uid]; c != nil {
		c <- at // has room for one
		delete(v.waiting, p.uid)
	}
	if p.counts() {
		return p
	}
	return nil
}

func (v *view) podGone(uid types.UID) {
	if p := v.pods[uid]; p != nil {
		v.account(p, -1)
		delete(v.pods, uid)
	}
}

// account adds what a pod occupies to its queue and those above, or takes it away.
func (v *view) account(p *pod, sign int64) {
	if p.counts() {
		for queue := p.queue; queue != ""; queue = parent(queue) {
			v.used[queue] += sign * p.cpu
		}
	}
}

// judgeLimits judges the queues above a pod that was just bound: one watch shows ends and starts in the order in which Basalt
// can have known of them.
func (v *view) judgeLimits(bound *pod) {
	for queue := bound.queue; queue != ""; queue = parent(queue) {
		limit, limited := v.limits[queue]
		if sum := v.used[queue]; limited && sum > limit && !v.overSeen[queue] {
			v.overSeen[queue] = true
			v.over = append(v.over, fmt.Sprintf("queue %s is limited to %d m of CPU, and pods with %d m run in it; the last is %s/%s with %d m; %d m are charged",
				queue, limit, sum, bound.namespace, bound.name, bound.cpu, v.charged(queue)))
		}
	}
}

// charged is what the control store says is charged to a queue and those below it, in milli-cores.
func (v *view) charged(queue string) (sum int64) {
	for _, r := range v.control.Reservations {
		if api.Under(r.GetGang().GetQueue(), queue) {
			sum += reservedCPU(r)
		}
	}
	return sum
}

func reservedCPU(r *wire.ReservationRecord) (amount int64) {
	for _, a := range r.GetDemand() {
		if a.GetResource() == string(v1.ResourceCPU) {
			amount += a.GetValue()
		}
	}
	return amount
}

func parent(queue string) string {
	i := strings.LastIndexByte(queue, '.')
	return queue[:max(i, 0)]
}

// bound returns a channel that gives the time at which a pod is seen bound.
func (v *view) bound(uid types.UID) <-chan time.Time {
	c := make(chan time.Time, 1)
	v.mu.Lock()
	defer v.mu.Unlock()
	if p := v.pods[uid]; p != nil && p.node != "" {
		c <- time.Time{} // long ago: before the answer to its creation was read
	} else {
		v.waiting[uid] = c
	}
	return c
}

// shown returns a channel that is closed when a pod is seen.
func (v *view) shown(uid types.UID) <-chan struct{} {
	c := make(chan struct{})
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.pods[uid] != nil {
		close(c)
	} else {
		v.unseen[uid] = c
	}
	return c
}

// milliCPU is what a pod asks for: its containers together, or the largest init container, with the sidecars that were started
// before it; what the pod names as a whole replaces it; and its overhead.
func milliCPU(spec *v1.PodSpec) int64 {
	of := func(r v1.ResourceRequirements) int64 {
		q := r.Requests[v1.ResourceCPU]
		return q.MilliValue()
	}
	sum, most := int64(0), int64(0)
	for _, c := range spec.Containers {
		sum += of(c.Resources)
	}
	sidecars := int64(0)
	for _, c := range spec.InitContainers {
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			sidecars += of(c.Resources)
			most = max(most, sidecars)
		} else {
			most = max(most, sidecars+of(c.Resources))
		}
	}
	total := max(sum+sidecars, most)
	if spec.Resources != nil {
		if q, named := spec.Resources.Requests[v1.ResourceCPU]; named {
			total = q.MilliValue()
		}
	}
	overhead := spec.Overhead[v1.ResourceCPU]
	return total + overhead.MilliValue()
}

// afterResize is what a bound pod whose spec asks for less than before occupies: what its status says that it has, if that is
// more. Between the resize and the kubelet's first status nobody can know that the pod has more than its spec asks for.
func afterResize(o *v1.Pod) int64 {
	spec := o.Spec.DeepCopy()
	for _, lists := range []struct {
		containers []v1.Container
		statuses   []v1.ContainerStatus
	}{{spec.Containers, o.Status.ContainerStatuses}, {spec.InitContainers, o.Status.InitContainerStatuses}} {
		has := map[string][]v1.ResourceList{}
		for _, s := range lists.statuses {
			has[s.Name] = append(has[s.Name], s.AllocatedResources)
			if s.Resources != nil {
				has[s.Name] = append(has[s.Name], s.Resources.Requests)
			}
		}
		for i := range lists.containers {
			c := &lists.containers[i]
			for _, list := range has[c.Name] {
				if q, named := list[v1.ResourceCPU]; named && q.Cmp(c.Resources.Requests[v1.ResourceCPU]) > 0 {
					c.Resources.Requests = v1.ResourceList{v1.ResourceCPU: q}
				}
			}
		}
	}
	return milliCPU(spec)
}

// compare compares, gang by gang, what runs in a namespace, where Basalt bound it, with what the control store says is charged
// for it, in milli-cores. It returns what is charged for the namespace, by queue. With exact set, no more may be charged than
// what runs, but for gangs that have pods waiting.
func (v *view) compare(namespace string, exact bool) (charged map[string]int64, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	runs, waits := map[string]int64{}, map[string]bool{}
	for uid, p := range v.pods {
		switch {
		case p.namespace != namespace || !p.ours || p.finished:
		case p.node == "":
			waits[string(uid)], waits["/"+p.group] = true, true
		case p.placed:
			runs[p.gang] += p.cpu
		}
	}
	charged = map[string]int64{}
	for uid, r := range v.control.Reservations {
		g := r.GetGang()
		if g.GetNamespace() != namespace {
			continue
		}
		amount := reservedCPU(r)
		charged[g.GetQueue()] += amount
		if runs[uid] > amount {
			return nil, fmt.Errorf("pods of gang %s with %d m of CPU run, and %d m are charged to queue %s", g.GetName(), runs[uid], amount, g.GetQueue())
		}
		if exact && amount > runs[uid] && !waits[uid] && !waits["/"+g.GetName()] {
			return nil, fmt.Errorf("%d m of CPU are charged to queue %s for gang %s, of which pods with %d m run, and none waits", amount, g.GetQueue(), g.GetName(), runs[uid])
		}
		delete(runs, uid)
	}
	for uid, amount := range runs {
		if amount > 0 {
			return nil, fmt.Errorf("pods with %d m of CPU run that were bound for gang %s, and nothing is charged for it", amount, uid)
		}
	}
	return charged, nil
}

// silent returns pods of a namespace that wait although nobody has told them why, and pods whose condition has none of
// the words.
func (v *view) silent(namespace string, words []string, least time.Duration) (found []string, judged int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.pods {
		if p.namespace != namespace || !p.ours || p.node != "" || p.finished || p.gated || p.deleting || time.Since(p.created) < least {
			continue
		}
		judged++
		switch {
		case p.message == "":
			found = append(found, fmt.Sprintf("pod %s waits, and its condition says nothing", p.name))
		case len(words) > 0 && !containsAny(p.message, words):
			found = append(found, fmt.Sprintf("the condition of pod %s names none of %q: %s: %s", p.name, words, p.reason, cut(p.message)))
		}
	}
	return found, judged
}

func containsAny(text string, words []string) bool {
	for _, w := range words {
		if strings.Contains(text, w) {
			return true
		}
	}
	return false
}

func cut(s string) string {
	if len(s) > 200 {
		return s[:200] + "..."
	}
	return s
}

// count counts the pods of a namespace.
func (v *view) count(namespace string) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, p := range v.pods {
		if p.namespace == namespace {
			n++
		}
	}
	return n
}

// statusCPU is what the status of a queue says is charged, in milli-cores.
func statusCPU(q *v1beta1.Queue) int64 {
	if q.Status == nil {
		return 0
	}
	return q.Status.Charged.Cpu().MilliValue()
}
