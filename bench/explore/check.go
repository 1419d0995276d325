package explore

import (
	"strings"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/model"
	"basalt.dev/basalt/shard/event"
)

// check judges each step from the servers' state and from what is under way.
type check struct {
	begun map[string]bool // gangs that were lawfully told to bind
	bound map[string]string
}

func newCheck() check { return check{begun: map[string]bool{}, bound: map[string]string{}} }

func landable(w *world, uid, version string) *corev1.Pod {
	for _, o := range w.api.Pods.Objects {
		if p := o.Object.(*corev1.Pod); string(p.UID) == uid && p.ResourceVersion == version && p.Spec.NodeName == "" && p.DeletionTimestamp == nil {
			return p
		}
	}
	return nil
}

// rewritten judges that no row goes whose Binding can still land.
func (c *check) rewritten(w *world, key string, old *model.KV[proto.Message]) {
	if old == nil {
		return
	}
	left := map[string]bool{}
	if kv := w.store.Keys[key]; kv != nil {
		for _, r := range kv.Value.(*wire.IntentsRecord).Rows {
			left[r.PodUid] = true
		}
	}
	for _, r := range old.Value.(*wire.IntentsRecord).Rows {
		if left[r.PodUid] || landable(w, r.PodUid, r.PodResourceVersion) == nil {
			continue
		}
		for _, call := range w.calls {
			if b, is := call.output.(event.BindPod); is && call.answer == nil && b.Row.PodUID == r.PodUid && b.ResourceVersion == r.PodResourceVersion && b.Node == r.Node {
				fail("I5: the row of pod %s on %s is taken out of %s, and its Binding can still land", r.PodUid, r.Node, key)
			}
		}
	}
}

// store judges what a transaction left.
func (c *check) store(w *world, events []model.Event[proto.Message]) {
	for _, e := range events {
		switch {
		case strings.HasPrefix(e.Key, "intents/") && !e.Deleted:
			c.pods(w)
		case strings.HasPrefix(e.Key, "reservations/"):
			c.reservations(w, e)
		}
	}
}

func (c *check) reservations(w *world, e model.Event[proto.Message]) {
	if e.Deleted {
		gang := e.Key[strings.LastIndexByte(e.Key, '/')+1:]
		for _, o := range w.api.Pods.Objects {
			if p := o.Object.(*corev1.Pod); c.bound[string(p.UID)] == gang && !model.Finished(p) {
				fail("I1: the reservation of gang %s is deleted, and its pod %s is bound to %s", gang, p.UID, p.Spec.NodeName)
			}
		}
		return
	}
	if w.cfg.Quota == 0 {
		return
	}
	sum := api.Resources(nil)
	for _, key := range w.store.With("reservations/") {
		r, _ := wire.ToResources(w.store.Keys[key].Value.(*wire.ReservationRecord).Demand)
		sum = sum.Add(r)
	}
	capability, _ := api.FromResourceList(w.api.Queue(api.RootQueue).Spec.Capability, false)
	if _, _, over := sum.Exceeds(capability); over {
		fail("I1: %s reserved of %s", sum, capability)
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
			fail("I5: node %s is taken by pods %v", node, sorted(taken[node]))
		}
	}
	for _, o := range w.api.Pods.Objects {
		if p := o.Object.(*corev1.Pod); p.Spec.NodeName != "" && !model.Finished(p) {
			take(p.Spec.NodeName, p)
		}
	}
	for _, key := range w.store.With("intents/") {
		for _, r := range w.store.Keys[key].Value.(*wire.IntentsRecord).Rows {
			if p := landable(w, r.PodUid, r.PodResourceVersion); p != nil {
				take(r.Node, p)
			}
		}
	}
}

// asks judges that a Binding has its intent when it is asked for; lands, when it is carried out.
func (c *check) asks(event.BindPod) {}

func (c *check) lands(w *world, o event.BindPod) {
	if landable(w, o.Row.PodUID, o.ResourceVersion) == nil {
		return
	}
	for _, key := range w.store.With("intents/") {
		rec := w.store.Keys[key].Value.(*wire.IntentsRecord)
		for _, r := range rec.Rows {
			if r.PodUid == o.Row.PodUID && r.PodResourceVersion == o.ResourceVersion && r.Node == o.Node {
				c.bound[o.Row.PodUID] = rec.Gangs[r.Gang].Uid
				return
			}
		}
	}
	fail("I4: pod %s is bound to %s, and its intent is not in the control store", o.Row.PodUID, o.Node)
}

// says judges I6: the first word that binds of a gang comes when all of its pods are durable.
func (c *check) says(w *world, x *shard, o event.Send) {
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
	if c.begun[gang] {
		return
	}
	for _, key := range w.store.With("intents/") {
		rec := w.store.Keys[key].Value.(*wire.IntentsRecord)
		for _, r := range rec.Rows {
			if rec.Gangs[r.Gang].Uid == gang {
				pods[r.PodUid] = true
			}
		}
	}
	for uid, g := range c.bound {
		if g == gang {
			pods[uid] = true
		}
	}
	if len(pods) < 2 {
		fail("I6: %s binds gang %s with %d of 2 pods durable", x.inc, gang, len(pods))
	}
	c.begun[gang] = true
}

// evicts judges that only pods of a closing reservation are evicted.
func (c *check) evicts(w *world, p *corev1.Pod) {
	g := w.api.PodGroup(p.Namespace, p.Labels[api.LabelPodGroup])
	for _, key := range w.store.With("reservations/") {
		if r := w.store.Keys[key].Value.(*wire.ReservationRecord); r.Gang.Uid == string(g.UID) && r.State == wire.ReservationState_RESERVATION_CLOSING {
			return
		}
	}
	fail("pod %s is evicted, and no reservation of gang %s is closing", p.UID, g.UID)
}
