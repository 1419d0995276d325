package explore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/model"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

// A space with a claim begins with a victim that runs, the gang of the first shard's queue, and a claimant whose pods were just made, the
// gang of the second shard's queue. The victim has all that the root queue may be charged, and more than its own queue deserves. The
// claimant asks for what its queue deserves. Nobody is protected for having started a short time ago, and nobody waits before it may claim,
// for time passes only while nothing else can happen.

// Claim says what the claimant takes.
type Claim string

// What a claim takes.
const (
	NoClaim   Claim = ""
	SmallGang Claim = "small" // a gang of one pod, on the only node, which is the first shard's
	WholeGang Claim = "gang"  // a gang of a pod on each of both nodes
	OnePod    Claim = "pod"   // one of two pods of a gang that needs one of them
)

// Known reports whether it is one of these.
func (c Claim) Known() bool {
	return slices.Contains([]Claim{NoClaim, SmallGang, WholeGang, OnePod}, c)
}

const (
	victim   = 0 // its index among the gangs
	claimant = 1
)

// nodes is how many nodes there are.
func (c Claim) nodes() int {
	if c == SmallGang {
		return 1
	}
	return 2
}

// pods is how many pods a gang has.
func (c Claim) pods(g int) int {
	if c == SmallGang || c == OnePod && g == claimant {
		return 1
	}
	return 2
}

// least is how many of them start together.
func (c Claim) least(g int) int {
	if c == OnePod {
		return 1
	}
	return c.pods(g)
}

// stay is how many pods of the victim run on.
func (c Claim) stay() int { return c.pods(victim) - c.pods(claimant) }

// deserved is what the queue of a gang deserves.
func (c Claim) deserved(g int) corev1.ResourceList {
	switch {
	case c == NoClaim || g == victim && c.stay() == 0:
		return nil
	case g == victim:
		return corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprint(c.stay()))}
	}
	return corev1.ResourceList{"cpu": resource.MustParse(fmt.Sprint(c.pods(g)))}
}

// beginVictim has the victim start.
func (w *world) beginVictim(settle func()) {
	w.makePods(victim)
	settle()
	if n := w.running(victim); n != w.cfg.Claim.pods(victim) {
		panic(fmt.Sprintf("explore: %d pods of the victim run", n))
	}
}

// running is how many pods of a gang have a node and are not being deleted.
func (w *world) running(g int) (n int) {
	for i := range w.cfg.Claim.pods(g) {
		if p := w.pod("ns", podName(g, i)); p != nil && p.Spec.NodeName != "" && p.DeletionTimestamp == nil && !model.Finished(p) {
			n++
		}
	}
	return n
}

// ending reports whether a kubelet is about to end a pod.
func ending(p *corev1.Pod) bool {
	return p != nil && p.DeletionTimestamp != nil && p.Spec.NodeName != ""
}

// endPod is the end of a pod that is being deleted. Its controller makes it again.
func (w *world) endPod(p *corev1.Pod) {
	now := int64(0)
	w.delete(p, w.of("the kubelet ends"), &now)
	for g := range w.cfg.Gangs {
		for i := range w.cfg.Claim.pods(g) {
			if podName(g, i) == p.Name {
				w.makePod(g, i)
			}
		}
	}
}

// unclaimed says what is still to be done for the claimant to run and for the victim to wait, or to run with what it needs. "" when nothing
// is, and nothing is left of the claim.
func (w *world) unclaimed() string {
	if len(w.shards) < 2 || w.coord == nil {
		return "a process is missing"
	}
	if n, want := w.running(claimant), w.cfg.Claim.pods(claimant); n != want {
		return fmt.Sprintf("%d of %d pods of the claimant run", n, want)
	}
	if n, want := w.running(victim), w.cfg.Claim.stay(); n != want {
		return fmt.Sprintf("%d pods of the victim run, and not %d", n, want)
	}
	for r := range w.reserved {
		g := claimant
		if r.Gang.Uid == w.gangUID(victim) {
			g = victim
		}
		demand, _ := wire.ToResources(r.Demand)
		switch {
		case r.Claim != nil || len(r.Condemned) > 0 || r.Yields != nil || r.State != wire.ReservationState_RESERVATION_OPEN:
			return fmt.Sprintf("something of the claim is left in the record of gang %s: %v", r.Gang.Uid, r)
		case demand.Value("cpu") != int64(1000*w.running(g)):
			return fmt.Sprintf("gang %s is charged %s for %d pods", r.Gang.Uid, demand, w.running(g))
		}
	}
	for _, key := range w.keys() {
		return key + " is left"
	}
	for _, x := range w.shards {
		if st := x.node.value.(*node.Core).Stats(); st.Holds+st.Promises+st.Rows+st.Keys+st.Waiting > 0 {
			return fmt.Sprintf("%s has not settled: %+v", x.inc, st)
		}
	}
	for _, x := range w.shards {
		for _, g := range x.home.value.(*home.Core).Status().Gangs {
			if g.Gang.Uid == w.gangUID(claimant) {
				return fmt.Sprintf("gang %s is %s: %s", g.Gang.Uid, g.State, g.Message)
			}
		}
	}
	return ""
}

// claims takes note of who is named by the claims of a transaction.
func (c *check) claims(events []model.Event[proto.Message]) {
	note := func(name string) {
		if at, is := slices.BinarySearch(c.named, name); !is {
			c.named = slices.Insert(slices.Clone(c.named), at, name)
		}
	}
	for _, e := range events {
		if !strings.HasPrefix(e.Key, "reservations/") || e.Deleted {
			continue
		}
		for _, v := range e.Value.(*wire.ReservationRecord).GetClaim().GetVictims() {
			if len(v.Pods) == 0 {
				note(fmt.Sprintf("%s %d", v.Gang.Uid, v.Attempt))
			}
			for _, p := range v.Pods {
				note(p.Uid)
			}
		}
	}
}

func (c *check) names(name string) bool {
	_, is := slices.BinarySearch(c.named, name)
	return is
}

// taken judges what a change of a reservation takes from its gang.
func (c *check) taken(w *world, gang string, e model.Event[proto.Message]) {
	old := &wire.ReservationRecord{}
	if e.Prev != nil {
		old = e.Prev.Value.(*wire.ReservationRecord)
	}
	if e.Deleted {
		if old.Yields != nil { // it starts anew, as a whole
			c.begun = slices.DeleteFunc(slices.Clone(c.begun), func(begun string) bool { return begun == gang })
		}
		return
	}
	r := e.Value.(*wire.ReservationRecord)
	if w.cfg.Claim == OnePod && w.edits == 0 { // a gang that has just lost a pod has none to spare
		for _, v := range r.GetClaim().GetVictims() {
			if len(v.Pods) != 1 {
				fail("I13: a claim takes %d pods of gang %s, 0 for all: one would do", len(v.Pods), v.Gang.Uid)
			}
		}
	}
	closes := r.State == wire.ReservationState_RESERVATION_CLOSING && old.State != wire.ReservationState_RESERVATION_CLOSING
	switch {
	case closes && r.Yields == nil && w.cfg.Claim != "" && gang == w.gangUID(victim) && !slices.Contains(c.closed, gang):
		fail("gang %s has started, and is closed for nobody", gang)
	case r.Yields != nil && old.Yields == nil:
		if !c.names(fmt.Sprintf("%s %d", gang, r.Attempt)) {
			fail("I15: gang %s is closed for gang %s, and no claim in the store has named it before", gang, r.Yields.To.GetUid())
		}
		if slices.Contains(c.closed, gang) {
			fail("I21: gang %s is evicted twice for gang %s", gang, r.Yields.To.GetUid())
		}
		c.closed = plus(c.closed, gang)
		slices.Sort(c.closed)
	}
	for _, p := range r.Condemned {
		was := slices.ContainsFunc(old.Condemned, func(o *wire.SurplusPod) bool { return o.Uid == p.Uid })
		if !was && !c.names(p.Uid) {
			fail("I15: pod %s of gang %s is condemned, and no claim in the store has named it before", p.Uid, gang)
		}
	}
}

// condemns judges that a home agrees to lose pods only if enough of their gang run on, as far as it has heard.
func (c *check) condemns(w *world, x *shard, m *wire.Condemn) {
	if len(x.pods) > 0 { // of what it has not heard it knows nothing
		return
	}
	stay, gang := 0, m.Gang.Uid
	for p := range w.pods {
		if p.Spec.NodeName != "" && p.DeletionTimestamp == nil && c.gangOf(p) == gang && !slices.Contains(m.Pods, string(p.UID)) {
			stay++
		}
	}
	if least := w.least(gang); stay < least {
		fail("I14: %s condemns pods %v of gang %s, and %d of at least %d stay", x.inc, m.Pods, gang, stay, least)
	}
}

// decided is what the root queue will be charged once all that is decided has happened: without what is on its way out, and with what was
// promised.
func (w *world) decided() (sum api.Resources) {
	records := map[string]*wire.ReservationRecord{}
	for r := range w.reserved {
		records[r.Gang.Uid] = r
	}
	amounts := func(in []*wire.Amount) api.Resources {
		out, _ := wire.ToResources(in)
		return out
	}
	stays := func(r *wire.ReservationRecord) api.Resources {
		if r.Yields != nil {
			return nil
		}
		left := amounts(r.Demand)
		for _, p := range r.Condemned {
			left = left.Sub(amounts(p.Amounts))
		}
		return left
	}
	for _, uid := range api.SortedKeys(records) {
		r := records[uid]
		sum = sum.Add(stays(r)).Add(amounts(r.GetClaim().GetPromised()))
		for _, v := range r.GetClaim().GetVictims() {
			of := records[v.Gang.Uid]
			if of == nil || of.Attempt != v.Attempt || of.State != wire.ReservationState_RESERVATION_OPEN {
				continue
			}
			if len(v.Pods) == 0 {
				sum = sum.Sub(stays(of))
			}
			for _, p := range v.Pods {
				condemned := slices.ContainsFunc(of.Condemned, func(o *wire.SurplusPod) bool { return o.Uid == p.Uid })
				if slices.Contains(of.Pods, api.PodID(p.Uid)) && !condemned {
					sum = sum.Sub(amounts(p.Amounts))
				}
			}
		}
	}
	return sum
}

// asks judges what a home says: that a victim that waits as a whole asks with its age, that of its first request, and that it can do without what it gives up.
func (c *check) asks(w *world, x *shard, o event.Send) {
	if m := o.Body.GetCondemn(); len(m.GetPods()) > 0 {
		c.condemns(w, x, m)
	}
	m := o.Body.GetReserve()
	if w.cfg.Claim == "" || w.cfg.Claim == OnePod || w.edits > 0 || m == nil || w.object(kindPodGroup, "ns", groupName(victim)) == nil || m.Gang.Uid != w.gangUID(victim) {
		return
	}
	if w.age == 0 {
		w.age = m.SinceUnixMs
	}
	if m.SinceUnixMs != w.age {
		fail("%s asks for gang %s as if it waited since %s, and it first asked %s before", x.inc, m.Gang.Uid,
			time.UnixMilli(m.SinceUnixMs).UTC(), time.Duration(m.SinceUnixMs-w.age)*time.Millisecond)
	}
}
