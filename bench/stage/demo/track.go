package demo

import (
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/auditlog"
	"basalt.dev/basalt/bench/stage/observe"
)

// tracker keeps what the view and the result need, from the events that the auditor's watches bring. Times are all of this
// process's monotonic clock.
type tracker struct {
	mu      sync.Mutex
	intents *auditlog.Intents

	pods         map[string]*podTrack // by name
	gangs        []*gangTrack
	bound        int // pods
	finished     int
	complete     map[*gang]bool // gangs with their minimum bound
	cpu          int64          // requests of bound unfinished pods
	fullest      int64
	fullestAt    time.Time
	lastRevision time.Time
	denied       map[string]string // PodGroups seen denied by quota, with the last reason

	store    observe.Store
	intentOf map[string]string // pod UID -> incarnation of its newest intent

	shardDeath *shardDeath
	coordDeath *coordDeath

	teams *teams // part 3
}

type podTrack struct {
	gang             *gangTrack
	cpu              int64
	created, boundAt time.Time // created: return of the create call
	uid              string
	bound, finished  bool
}

type gangTrack struct {
	*gang
	bound int
}

// shardDeath measures how long a dead shard's share stood still.
type shardDeath struct {
	at          time.Time
	incarnation api.Incarnation
	before      *api.Table
	waiting     map[string]time.Time // pods seen on nodes of its buckets whose intent was not seen yet: two watches, no order
	moved       [api.Buckets]bool    // has another owner since
	bound       time.Time            // first Binding by somebody else on a node of its buckets
	admitted    time.Time            // first reservation in a bucket of its, after that had moved
	replaced    time.Time            // an incarnation of its name owns buckets
	name        string
}

type coordDeath struct {
	at    time.Time
	term  int64
	wrote time.Time // first reservation of a later term
}

func newTracker(p *plan) *tracker {
	t := &tracker{
		intents: auditlog.NewIntents(), pods: map[string]*podTrack{}, complete: map[*gang]bool{}, denied: map[string]string{}, intentOf: map[string]string{},
		teams: newTeams(),
	}
	for _, g := range p.all() {
		gt := &gangTrack{gang: g}
		t.gangs = append(t.gangs, gt)
		for _, pod := range g.pods {
			t.pods[pod.Name] = &podTrack{gang: gt, cpu: pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()}
		}
	}
	return t
}

// created is called when a create call has returned.
func (t *tracker) created(pod string, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pods[pod].created = at
}

func (t *tracker) observe(at time.Time, e audit.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.teams.observe(at, e)
	switch e := e.(type) {
	case audit.StoreRevision:
		t.intents.Observe(at, e)
		t.lastRevision = at
		t.store.Observe(e)
		for _, c := range e.Changes {
			if !c.Deleted {
				t.stored(at, c)
			}
		}
	case audit.Listed[*v1.Pod]:
		for _, p := range e.Objects {
			t.podSeen(at, p)
		}
	case audit.Seen[*v1.Pod]:
		t.podSeen(at, e.Object)
	case audit.PodGroupsReplaced:
		for _, g := range e.PodGroups {
			t.groupSeen(g)
		}
	case audit.PodGroupSeen:
		t.groupSeen(e.PodGroup)
	}
}

func (t *tracker) podSeen(at time.Time, p *v1.Pod) {
	if p.Namespace != namespace {
		return
	}
	pt := t.pods[p.Name]
	if pt == nil || pt.uid != "" && pt.uid != string(p.UID) {
		return
	}
	pt.uid = string(p.UID)
	if p.Spec.NodeName != "" && !pt.bound {
		pt.bound, pt.boundAt = true, at
		t.bound++
		if t.cpu += pt.cpu; t.cpu > t.fullest {
			t.fullest, t.fullestAt = t.cpu, at
		}
		if pt.gang.bound++; pt.gang.bound == pt.gang.min {
			t.complete[pt.gang.gang] = true
		}
		if d := t.shardDeath; d != nil && d.bound.IsZero() && d.before.OwnerOf(p.Spec.NodeName) == d.incarnation {
			d.waiting[pt.uid] = at
			t.boundAfterDeath(pt.uid)
		}
	}
	if pt.bound && !pt.finished && (p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed) {
		pt.finished = true
		t.finished++
		t.cpu -= pt.cpu
	}
}

// boundAfterDeath is called when a pod or its intent has been seen; a Binding that the dead one had sent before is none.
func (t *tracker) boundAfterDeath(uid string) {
	d := t.shardDeath
	if d == nil || !d.bound.IsZero() {
		return
	}
	at, seen := d.waiting[uid]
	if by := t.intentOf[uid]; seen && by != "" && by != string(d.incarnation) {
		d.bound = at
	}
}

func (t *tracker) groupSeen(g *v1beta1.PodGroup) {
	if g.Namespace != namespace || g.Status == nil {
		return
	}
	c := meta.FindStatusCondition(g.Status.Conditions, v1beta1.ConditionQuotaReserved)
	if c == nil || c.Status != "False" {
		return
	}
	switch c.Reason { // the others deny too, but not by quota
	case v1beta1.ReasonQuotaExceeded, v1beta1.ReasonNeverFits, v1beta1.ReasonNoNodeFits:
		t.denied[g.Name] = c.Reason
	}
}

// stored is called when a key was written and t.store has it.
func (t *tracker) stored(at time.Time, c audit.StoreChange) {
	isNew := c.CreateRevision == c.ModRevision
	switch kind, rest, _ := strings.Cut(c.Key, "/"); kind {
	case "table":
		t.tableSeen(at)
	case "reservations":
		r := t.store.Reservations[path.Base(rest)]
		t.teams.reserved(at, r)
		if d := t.coordDeath; d != nil && d.wrote.IsZero() && r.GetTerm() > uint64(d.term) {
			d.wrote = at
		}
		if d := t.shardDeath; d != nil && d.admitted.IsZero() && isNew && d.moved[api.BucketOf(r.GetGang().GetQueue())] {
			d.admitted = at
		}
	case "intents":
		incarnation, _, _ := strings.Cut(rest, "/")
		for _, row := range t.store.Intents[rest].GetRows() {
			if isNew { // a rewritten key brings nothing new
				t.intentOf[row.GetPodUid()] = incarnation
				t.boundAfterDeath(row.GetPodUid())
			}
		}
	}
}

func (t *tracker) tableSeen(at time.Time) {
	d, table := t.shardDeath, t.store.Table
	if d == nil || table == nil {
		return
	}
	for b := range api.BucketID(api.Buckets) {
		if d.before.Owner(b) == d.incarnation && table.Owner(b) != d.incarnation && table.Owner(b) != "" {
			d.moved[b] = true
		}
	}
	for _, m := range table.Members {
		if m.Name == d.name && m.Incarnation != d.incarnation && d.replaced.IsZero() && table.Owned(m.Incarnation) > 0 {
			d.replaced = at
		}
	}
}

// shardKilled begins the measurement of a failover; false when the table does not name the shard.
func (t *tracker) shardKilled(name string, at time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.store.Table == nil {
		return false
	}
	for _, m := range t.store.Table.Members {
		if m.Name == name {
			t.shardDeath = &shardDeath{at: at, incarnation: m.Incarnation, before: t.store.Table, name: name, waiting: map[string]time.Time{}}
			return true
		}
	}
	return false
}

func (t *tracker) coordinatorKilled(at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.coordDeath = &coordDeath{at: at, term: t.store.Term}
}

// activeCoordinator is the name of the one that leads, "" for nobody.
func (t *tracker) activeCoordinator() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.store.Leader.GetName()
}

// shardFailover is the time from the kill to the later of both signs of life, 0 while one is missing.
func (t *tracker) shardFailover() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	d := t.shardDeath
	if d == nil || d.bound.IsZero() || d.admitted.IsZero() {
		return 0
	}
	return max(d.bound.Sub(d.at), d.admitted.Sub(d.at))
}

func (t *tracker) shardReplaced() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.shardDeath != nil && !t.shardDeath.replaced.IsZero()
}

func (t *tracker) coordinatorFailover() time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d := t.coordDeath; d != nil && !d.wrote.IsZero() {
		return d.wrote.Sub(d.at)
	}
	return 0
}

// spread reports whether so many shards own their share of the buckets.
func (t *tracker) spread(shards int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.store.Table == nil || t.store.Leader == nil {
		return false
	}
	n := 0
	for _, m := range t.store.Table.Members {
		if t.store.Table.Owned(m.Incarnation) >= api.Buckets/shards*7/10 {
			n++
		}
	}
	return n >= shards
}

// ready reports whether the limits of all queues are in force.
func (t *tracker) ready(queues []*v1beta1.Queue) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range queues {
		if t.store.Limits[q.Name] == nil {
			return false
		}
	}
	return true
}

// missing returns the gangs that are to be bound and are not, or not all of whose pods have run to their end if they end.
func (t *tracker) missing(gangs []*gang, toTheEnd bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, g := range gangs {
		if g.never != "" {
			continue
		}
		left := !t.complete[g]
		for _, p := range g.pods {
			pt := t.pods[p.Name]
			left = left || !pt.bound || toTheEnd && !pt.finished
		}
		if left {
			n++
		}
	}
	return n
}

// settled reports whether nothing is charged for the gangs that have run to their end, and no intent is open.
func (t *tracker) settled(stays int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.store.Reservations) <= stays && t.rows() == 0
}

// latencies returns, for part 1, the sorted times from the return of the create call to the event with a node, and the time
// from the first create to the last binding.
func (t *tracker) latencies(begin time.Time, gangs []*gang) (sorted []time.Duration, whole time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range gangs {
		for _, p := range g.pods {
			if pt := t.pods[p.Name]; pt.bound {
				sorted = append(sorted, max(0, pt.boundAt.Sub(pt.created)))
				whole = max(whole, pt.boundAt.Sub(begin))
			}
		}
	}
	slices.Sort(sorted)
	return sorted, whole
}

// outcome returns the gangs that were bound and those of them that should not have been, and the ones that should have.
func (t *tracker) outcome() (expected, bound int, wrong, lacking []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.gangs {
		switch complete := t.complete[g.gang]; {
		case g.never == "" && complete:
			expected++
			bound++
		case g.never == "":
			expected++
			lacking = append(lacking, g.name)
		case complete:
			bound++
			wrong = append(wrong, g.name)
		}
	}
	return
}

// use is the CPU of bound unfinished pods, and since when it has never been more than at its fullest.
func (t *tracker) use() (milli int64, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.cpu, t.fullestAt
}

// quiet reports whether the control store has not changed for so long.
func (t *tracker) quiet(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.lastRevision) > d
}

// members are the shards of the table with their buckets, by name.
func (t *tracker) members() map[string]int {
	out := map[string]int{}
	if t.store.Table != nil {
		for _, m := range t.store.Table.Members {
			out[m.Name] += t.store.Table.Owned(m.Incarnation)
		}
	}
	return out
}
