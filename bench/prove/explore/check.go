package explore

import (
	"maps"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/model"
	"basalt.dev/basalt/shard/event"
)

// check judges each step from the servers' state and from what is under way.
type check struct {
	begun []string   // UIDs of gangs that were lawfully told to bind, sorted
	bound []boundPod // sorted

	named  []string // what claims in the store named so far, sorted: a gang and its attempt, or a pod
	closed []string // UIDs of gangs that were closed for a claim, one for each time, sorted
}

type boundPod struct{ pod, gang string } // UIDs

func (c *check) sum() uint64 {
	h := xxhash.New()
	for _, gang := range c.begun {
		_, _ = h.WriteString(gang + " ")
	}
	for _, b := range c.bound {
		_, _ = h.WriteString(b.pod + "=" + b.gang + " ")
	}
	for _, s := range c.named {
		_, _ = h.WriteString("named " + s + " ")
	}
	for _, gang := range c.closed {
		_, _ = h.WriteString("closed " + gang + " ")
	}
	return h.Sum64()
}

// pods hands out all that there are.
func (w *world) pods(yield func(*corev1.Pod) bool) {
	for i := range w.objects {
		if w.objects[i].kind == kindPod {
			if p := w.objects[i].pod(); p != nil && !yield(p) {
				return
			}
		}
	}
}

// stored hands out the rows of all intents.
func (w *world) stored(yield func(string, *wire.IntentRow) bool) {
	for _, key := range w.keys() {
		rec := w.rows()[key].record
		for _, r := range rec.Rows {
			if !yield(rec.Gangs[r.Gang].Uid, r) {
				return
			}
		}
	}
}

func landable(w *world, uid, version string) *corev1.Pod {
	for p := range w.pods {
		if string(p.UID) == uid && p.ResourceVersion == version && p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
			return p
		}
	}
	return nil
}

// rewritten judges that no row goes whose Binding can still land.
func (c *check) rewritten(w *world, key string, old *wire.IntentsRecord) {
	left := map[string]bool{}
	for _, r := range w.rows()[key].record.GetRows() {
		left[r.PodUid] = true
	}
	for _, r := range old.GetRows() {
		if left[r.PodUid] || landable(w, r.PodUid, r.PodResourceVersion) == nil {
			continue
		}
		for _, call := range w.calls {
			if b, is := call.output.(event.BindPod); is && call.answer.value == nil && b.Row.PodUID == r.PodUid && b.ResourceVersion == r.PodResourceVersion && b.Node == r.Node {
				fail("I5: the row of pod %s on %s is taken out of %s, and its Binding can still land", r.PodUid, r.Node, key)
			}
		}
	}
}

// gangOf is the UID of the gang that a pod was bound for, "" while it is not.
func (c *check) gangOf(p *corev1.Pod) string {
	for _, b := range c.bound {
		if b.pod == string(p.UID) {
			return b.gang
		}
	}
	return ""
}

// gangUID is the UID of a gang.
func (w *world) gangUID(g int) string {
	if w.cfg.Implied {
		group, _ := api.Implied(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: implied(g)}})
		return api.ImpliedUID("ns", group)
	}
	return string(w.object(kindPodGroup, "ns", groupName(g)).now().Object.GetUID())
}

// least is how many pods of a gang have to start together.
func (w *world) least(gang string) int {
	for g := range w.cfg.Gangs {
		if gang == w.gangUID(g) {
			return w.cfg.Claim.least(g)
		}
	}
	return 1 // a pod without a PodGroup
}

// charged judges that a gang's reservation covers and names what runs of it, whatever the labels are now.
func (c *check) charged(w *world, gang string, r *wire.ReservationRecord) {
	demand, _ := wire.ToResources(r.GetDemand())
	need := api.Resources(nil)
	for p := range w.pods {
		if c.gangOf(p) != gang || model.Finished(p) {
			continue
		}
		one, _ := api.FromResourceList(p.Spec.Containers[0].Resources.Requests, false)
		if need = need.Add(one); !need.Fits(demand) {
			fail("I1: %s is reserved for gang %s, and its pod %s is bound to %s", demand, gang, p.UID, p.Spec.NodeName)
		}
		if !r.GetGang().GetSingle() && !slices.Contains(r.GetPods(), api.PodID(string(p.UID))) {
			fail("I1: the reservation of gang %s does not name its pod %s, which is bound to %s", gang, p.UID, p.Spec.NodeName)
		}
	}
}

// reservations judges a change of one.
func (c *check) reservations(w *world, e model.Event[proto.Message]) {
	gang := e.Key[strings.LastIndexByte(e.Key, '/')+1:]
	c.taken(w, gang, e)
	if e.Deleted {
		c.charged(w, gang, nil)
		return
	}
	c.charged(w, gang, e.Value.(*wire.ReservationRecord))
	if w.cfg.Quota == 0 {
		return
	}
	sum := api.Resources(nil)
	for r := range w.reserved {
		demand, _ := wire.ToResources(r.Demand)
		sum = sum.Add(demand)
	}
	will := w.decided()
	capability, _ := api.FromResourceList(w.object(kindQueue, "", api.RootQueue).now().Object.(*v1beta1.Queue).Spec.Capability, false)
	for _, limit := range capability { // what it does not name is not limited
		if sum.Value(limit.Resource) > limit.Value {
			fail("I1: %s reserved of %s", sum, capability)
		}
		if will.Value(limit.Resource) > limit.Value {
			fail("I18: once all that is decided has happened, %s are reserved of %s", will, capability)
		}
	}
}

// pods judges I5: one pod fits a node.
func (c *check) pods(w *world) {
	taken := map[string]map[string]bool{}
	take := func(node string, p *corev1.Pod) {
		if taken[node] == nil {
			taken[node] = map[string]bool{}
		}
		if taken[node][p.Name] = true; len(taken[node]) > 1 {
			fail("I5: node %s is taken by pods %v", node, slices.Sorted(maps.Keys(taken[node])))
		}
	}
	for p := range w.pods {
		if p.Spec.NodeName != "" && !model.Finished(p) {
			take(p.Spec.NodeName, p)
		}
	}
	for _, r := range w.stored {
		if p := landable(w, r.PodUid, r.PodResourceVersion); p != nil {
			take(r.Node, p)
		}
	}
}

// lands judges that a Binding has its intent when it is carried out.
func (c *check) lands(w *world, o event.BindPod) {
	if landable(w, o.Row.PodUID, o.ResourceVersion) == nil {
		return
	}
	for gang, r := range w.stored {
		if r.PodUid == o.Row.PodUID && r.PodResourceVersion == o.ResourceVersion && r.Node == o.Node {
			c.bound = plus(c.bound, boundPod{o.Row.PodUID, gang})
			slices.SortFunc(c.bound, func(a, b boundPod) int { return strings.Compare(a.pod, b.pod) })
			return
		}
	}
	fail("I4: pod %s is bound to %s, and its intent is not in the control store", o.Row.PodUID, o.Node)
}

// says judges I6: the first word that binds of a gang comes when all of its pods are durable.
func (c *check) says(w *world, x *shard, o event.Send) {
	c.asks(w, x, o)
	gang := ""
	pods := map[string]bool{}
	switch b := o.Body.Body.(type) {
	case *wire.Envelope_Bind:
		gang = b.Bind.GangUid
	case *wire.Envelope_Commit:
		if !b.Commit.Bind {
			return
		}
		gang = b.Commit.Gang.Uid
		for _, p := range b.Commit.Pods {
			pods[p.Uid] = true
		}
	default:
		return
	}
	if slices.Contains(c.begun, gang) || w.cfg.Implied && len(x.pods) > 0 { // it may have to hear yet that these pods are gone
		return
	}
	for g, r := range w.stored {
		if g == gang {
			pods[r.PodUid] = true
		}
	}
	for _, b := range c.bound {
		if b.gang == gang {
			pods[b.pod] = true
		}
	}
	if w.cfg.Implied || w.cfg.Claim != "" { // those that are gone were of another gang, or were evicted
		there := map[string]bool{}
		for p := range w.pods {
			there[string(p.UID)] = true
		}
		maps.DeleteFunc(pods, func(uid string, _ bool) bool { return !there[uid] })
	}
	if least := w.least(gang); len(pods) < least {
		fail("I6: %s binds gang %s with %d of %d pods durable", x.inc, gang, len(pods), least)
	}
	c.begun = plus(c.begun, gang)
	slices.Sort(c.begun)
}

// evicts judges that only pods of a closing reservation, or condemned ones, are evicted.
func (c *check) evicts(w *world, p *corev1.Pod) {
	gang := c.gangOf(p)
	for r := range w.reserved {
		if r.Gang.Uid != gang {
			continue
		}
		condemned := slices.ContainsFunc(r.Condemned, func(s *wire.SurplusPod) bool { return s.Uid == string(p.UID) })
		if condemned || r.State == wire.ReservationState_RESERVATION_CLOSING {
			return
		}
	}
	fail("I15: pod %s is evicted, and no reservation of gang %s is closing, or condemns it", p.UID, gang)
}

// reserved hands out the records of all reservations.
func (w *world) reserved(yield func(*wire.ReservationRecord) bool) {
	for _, key := range w.etcd().With("reservations/") {
		if !yield(w.etcd().Keys[key].Value.(*wire.ReservationRecord)) {
			return
		}
	}
}

// bindingOf is the Binding that a core asks for.
func bindingOf(o event.BindPod) model.Binding {
	labels, annotations := o.Marks()
	return model.Binding{Namespace: o.Namespace, Name: o.Name, UID: o.Row.PodUID, Version: o.ResourceVersion,
		Node: o.Node, Labels: labels, Annotations: annotations}
}
