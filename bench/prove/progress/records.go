package progress

import (
	"cmp"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Records are what the control store has, and what else decides who may be evicted for whom. Only CPU is looked at.
//
// What this judge cannot tell for sure it lets pass: queues with guarantees, or limits of something else than CPU,
// gangs whose pods require others or repel each other, surplus pods, and whoever was once displaced by those whom it
// would take. What queues deserve, and their fair shares, it knows within bounds, for it does not know whose requests
// count.
type Records struct {
	Now          time.Time
	Reservations []*wire.ReservationRecord
	Limits       map[string]*wire.LimitsRecord
	Supply       int64 // what the nodes have, 0 where that does not count
	Asks         map[string]int64
	Displaced    Displaced

	victims []*wire.ReservationRecord // of the policy's gangs
}

// settled is for how long a gang may have had its quota for longer than its minRuntime, and not be a victim yet.
const settled = 50 * time.Second

// Entitled says what others have that a gang is entitled to, which has nothing: "" for nothing. The cluster says where
// its pods would go then.
func (r *Records) Entitled(gang, identity string, ask Charged, pods []*v1.Pod, c *Cluster) (words string, err error) {
	if slices.ContainsFunc(pods, func(p *v1.Pod) bool {
		return p.Spec.Affinity != nil || len(p.Spec.TopologySpreadConstraints) > 0
	}) {
		return "", nil
	}
	p, known := r.policy(gang, identity, ask)
	if !known {
		return "", nil
	}
	sets, err := p.Victims(ask)
	if err != nil {
		return "", err
	}
	few := func(a, b uint64) int { return cmp.Compare(bits.OnesCount64(a), bits.OnesCount64(b)) }
	slices.SortStableFunc(sets, few)
	for _, set := range sets {
		of := map[string]bool{}
		for i, v := range r.victims {
			if set>>i&1 == 1 {
				of[v.Gang.Uid] = true
			}
		}
		left := *c
		left.Pods = slices.DeleteFunc(slices.Clone(c.Pods), func(p *v1.Pod) bool {
			return slices.ContainsFunc(r.victims, func(v *wire.ReservationRecord) bool {
				return of[v.Gang.Uid] && (v.Gang.Uid == string(p.UID) || slices.Contains(v.Pods, api.PodID(string(p.UID))))
			})
		})
		if nodes, _ := left.Start(pods, Least(len(pods))); nodes != nil {
			return fmt.Sprintf("is entitled to what %s have: %v", strings.Join(api.SortedKeys(of), ", "), nodes), nil
		}
	}
	return "", nil
}

// policy returns what is charged and in force, and whether that can be judged.
func (r *Records) policy(gang, identity string, ask Charged) (*Policy, bool) {
	p := &Policy{Queues: map[string]Queue{}, Supply: r.Supply + r.Supply/50}
	before := r.Displaced.before(identity)
	for _, x := range r.Reservations {
		switch {
		case x.State != wire.ReservationState_RESERVATION_OPEN || x.Claim != nil || len(x.Condemned) > 0:
			return nil, false // others are on their way out
		case x.Gang.Uid == gang:
			continue
		}
		age, least := r.Now.Sub(time.UnixMilli(x.GrantedUnixMs)), settled+r.minRuntime(x.Gang.Queue)
		g := Charged{Queue: x.Gang.Queue, Amount: cpu(x.Demand), Priority: x.Rank.GetPriority()}
		g.Spared = !x.Preemptible || x.Forced || age < least || before[Identity(x)]
		r.victims, p.Gangs = append(r.victims, x), append(p.Gangs, g)
	}
	fair := false
	for _, path := range r.queues(ask, p.Gangs) {
		of := r.Limits[path]
		if len(of.GetGuarantee()) > 0 || len(of.GetCapability()) > 1 || len(of.GetDeserved()) > 1 {
			return nil, false
		}
		q := Queue{Never: of.GetPolicy().GetReclaim() == wire.Reclaim_RECLAIM_NEVER, Kept: of.GetPolicy().GetKept()}
		if len(of.GetCapability()) == 1 {
			q.Limited, q.Limit = true, cpu(of.Capability)
		}
		for _, above := range api.Lineage(path) {
			if says := r.Limits[above].GetPolicy(); says != nil && says.Preempts != nil {
				q.Preempts = *says.Preempts
				break
			}
		}
		fair = fair || of.GetPolicy().GetReclaim() == wire.Reclaim_RECLAIM_FAIR_SHARE
		p.Queues[path] = q
	}
	if fair && r.Supply == 0 {
		return nil, false
	}
	r.divide(p, ask)
	return p, true
}

// queues are those that there are, and those above them.
func (r *Records) queues(ask Charged, gangs []Charged) []string {
	all := map[string]bool{}
	add := func(leaf string) {
		for _, path := range api.Lineage(leaf) {
			all[path] = true
		}
	}
	for _, g := range append(slices.Clone(gangs), ask) {
		add(g.Queue)
	}
	for path := range r.Limits {
		add(path)
	}
	return api.SortedKeys(all)
}

// minRuntime is how long a gang of a queue is nobody's victim, by either rule.
func (r *Records) minRuntime(queue string) (longest time.Duration) {
	for _, of := range []func(*wire.QueuePolicy) *int64{
		func(p *wire.QueuePolicy) *int64 { return p.ReclaimMinRuntimeMs },
		func(p *wire.QueuePolicy) *int64 { return p.PreemptMinRuntimeMs },
	} {
		runs := time.Minute
		for _, path := range api.Lineage(queue) {
			if p := r.Limits[path].GetPolicy(); p != nil && of(p) != nil {
				runs = time.Duration(*of(p)) * time.Millisecond
				break
			}
		}
		longest = max(longest, runs)
	}
	return longest
}

// divide finds within which bounds the thresholds of queues are: it is not known whose requests count.
func (r *Records) divide(p *Policy, ask Charged) {
	asks := []map[string]int64{r.Asks, {ask.Queue: ask.Amount}}
	for _, queue := range api.SortedKeys(r.Asks) { // who asks alone has the largest share
		asks = append(asks, map[string]int64{queue: r.Asks[queue]})
	}
	for _, of := range asks {
		root := r.tree(p, api.RootQueue, of)
		supply := float64(r.Supply)
		if r.Supply == 0 {
			supply = math.MaxInt64 / 4
		}
		root.Divide([]string{"cpu"}, map[string]float64{"cpu": supply})
		root.Walk(func(s *Share) { r.bound(p, s) })
	}
}

// bound widens the bounds of a queue by what it has one time.
func (r *Records) bound(p *Policy, s *Share) {
	if s.Path == api.RootQueue {
		return
	}
	q := p.Queues[s.Path]
	widen := func(r *Range, v float64) *Range {
		if r == nil {
			r = &Range{Least: math.MaxInt64}
		}
		return &Range{Least: min(r.Least, int64(v-v/100)), Most: max(r.Most, int64(v+v/100)+1)}
	}
	if s.Deserves["cpu"] > 0 || q.Deserves != nil {
		q.Deserves = widen(q.Deserves, s.Deserves["cpu"])
	}
	if r.Limits[api.Parent(s.Path)].GetPolicy().GetReclaim() == wire.Reclaim_RECLAIM_FAIR_SHARE {
		q.Fair = widen(q.Fair, s.Fair["cpu"])
	}
	p.Queues[s.Path] = q
}

// tree is the queue and those below it with what they have and ask for.
func (r *Records) tree(p *Policy, path string, asks map[string]int64) *Share {
	of := r.Limits[path]
	s := &Share{Path: path, Priority: int64(of.GetPriority()), Weight: 1}
	s.Pool = map[string]float64{"cpu": float64(r.Supply)}
	if of != nil && of.Weight != nil {
		s.Weight = float64(*of.Weight)
	}
	if len(of.GetCapability()) == 1 {
		s.Limits = map[string]float64{"cpu": float64(cpu(of.Capability))}
	}
	if len(of.GetDeserved()) == 1 {
		s.Says = map[string]float64{"cpu": float64(cpu(of.Deserved))}
	}
	for _, child := range api.SortedKeys(p.Queues) {
		if child != api.RootQueue && api.Parent(child) == path {
			s.Children = append(s.Children, r.tree(p, child, asks))
		}
	}
	if len(s.Children) == 0 {
		s.Wants = map[string]float64{"cpu": float64(asks[path] + p.charged(path, 0))}
	}
	return s
}

func cpu(amounts []*wire.Amount) int64 {
	for _, a := range amounts {
		if a.Resource == "cpu" {
			return a.Value
		}
	}
	return 0
}

// Displaced is who was ever evicted, and for whom, by identity.
type Displaced map[string]map[string]bool

// Identity is what a gang is known by when it comes back after an eviction.
func Identity(r *wire.ReservationRecord) string {
	if r.Gang.Single {
		return SingleIdentity(r.Gang.Queue, cpu(r.Demand))
	}
	return r.Gang.Uid
}

// SingleIdentity is that of a pod without a group.
func SingleIdentity(queue string, cpu int64) string { return fmt.Sprint(queue, " ", cpu) }

// Add takes note that one makes room for another.
func (d Displaced) Add(victim, claimant *wire.ReservationRecord) {
	who := Identity(victim)
	if d[who] == nil {
		d[who] = map[string]bool{}
	}
	d[who][Identity(claimant)] = true
}

// before are those for whom one was ever evicted, directly or through others.
func (d Displaced) before(who string) map[string]bool {
	out := map[string]bool{}
	var add func(who string)
	add = func(who string) {
		for by := range d[who] {
			if !out[by] {
				out[by] = true
				add(by)
			}
		}
	}
	add(who)
	return out
}
