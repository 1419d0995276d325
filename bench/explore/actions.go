package explore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/model"
	"basalt.dev/basalt/coordinator"
	"basalt.dev/basalt/shard/event"
)

// action is one thing that can happen next, by its place in the world: a world is copied before it happens.
type action struct {
	name string
	kind kind
	i    int
	who  string
	d    time.Duration

	delay bool // something else comes first in the fair order
}

type kind uint8

const (
	deliver kind = iota
	carryOut
	answer
	hearPod
	hearStore
	hearCoord
	leaseOver
	restart
	late // an orphan's call is carried out
	wait
	crash
	leap
	lose
	noAnswer
)

// Leaps are how much time passes early: a repetition, and what a hold or a prepared row lasts.
var Leaps = []time.Duration{2 * time.Second, 12 * time.Second}

// actions lists what can happen next: what must happen some time, then faults.
func (w *world) actions() []action {
	var out []action
	for i, x := range w.shards {
		if len(x.store) > 0 {
			out = append(out, action{name: fmt.Sprintf("%s hears of the store: %T", x.inc, x.store[0]), kind: hearStore, i: i})
		}
		if len(x.pods) > 0 {
			out = append(out, action{name: fmt.Sprintf("%s hears of pods: %s", x.inc, aboutPod(x.pods[0])), kind: hearPod, i: i})
		}
	}
	if w.coord != nil && len(w.coord.store) > 0 {
		out = append(out, action{name: fmt.Sprintf("%s hears of the store: %T", w.coord.inc, w.coord.store[0]), kind: hearCoord})
	}
	for i, l := range w.links {
		if len(l.queue) > 0 {
			out = append(out, action{name: fmt.Sprintf("%s hears %s from %s", l.to, about(l.queue[0]), l.from), kind: deliver, i: i})
		}
	}
	busy := map[api.Incarnation]bool{} // a coordinator has one transaction under way
	for i, c := range w.calls {
		switch {
		case c.answer != nil || c.done != nil:
			out = append(out, action{name: c.what + " is answered", kind: answer, i: i})
			busy[c.from] = busy[c.from] || c.txn != nil
		case c.from != "" && !(c.txn != nil && busy[c.from]):
			out = append(out, action{name: c.what + " is carried out", kind: carryOut, i: i})
			busy[c.from] = busy[c.from] || c.txn != nil
		}
	}
	for i, name := range w.down {
		out = append(out, action{name: name + " starts again", kind: restart, i: i})
	}
	for i, inc := range w.leases {
		out = append(out, action{name: fmt.Sprintf("the lease of %s is over", inc), kind: leaseOver, i: i})
	}
	if w.fair {
		return out
	}
	for i := range out {
		out[i].delay = i > 0
	}
	must := len(out)
	if w.cfg.Delays > 0 && w.delays == w.cfg.Delays && must > 1 {
		out, must = out[:1], 1
	}
	for i, c := range w.calls {
		if c.from == "" {
			out = append(out, action{name: c.what + " is carried out late", kind: late, i: i})
		}
	}
	if must == 0 && w.waits < w.cfg.Waits {
		out = append(out, action{name: "time passes", kind: wait})
	}
	if must > 0 && w.early < w.cfg.Early {
		for _, d := range Leaps {
			out = append(out, action{name: fmt.Sprintf("%s pass meanwhile", d), kind: leap, d: d})
		}
	}
	if w.crashes < w.cfg.Crashes {
		for _, x := range w.shards {
			out = append(out, action{name: x.name + " crashes", kind: crash, who: x.name})
		}
		if w.coord != nil {
			out = append(out, action{name: "c crashes", kind: crash, who: "c"})
		}
	}
	if w.lost < w.cfg.Lost {
		for i, l := range w.links {
			if len(l.queue) > 0 {
				out = append(out, action{name: fmt.Sprintf("%s for %s from %s is lost", about(l.queue[0]), l.to, l.from), kind: lose, i: i})
			}
		}
		for i, c := range w.calls {
			if c.from != "" && c.answer == nil && c.done == nil && !reads(c) {
				out = append(out, action{name: c.what + " is never answered", kind: noAnswer, i: i})
			}
		}
	}
	return out
}

// atEnd tells that nothing has to happen any more, and time has passed as often as it may.
func (w *world) atEnd() bool {
	was := w.fair
	w.fair = true
	n := len(w.actions())
	w.fair = was
	return n == 0 && w.waits >= w.cfg.Waits
}

func about(m *wire.Envelope) string {
	return strings.TrimPrefix(fmt.Sprintf("%T", m.Body), "*wire.Envelope_")
}

func aboutPod(ev event.Event) string {
	switch ev := ev.(type) {
	case event.PodSeen:
		return fmt.Sprintf("%s version %s on %q", ev.Pod.Name, ev.Pod.ResourceVersion, ev.Pod.Node)
	case event.PodGone:
		return ev.Name + " is gone"
	}
	return fmt.Sprintf("%T", ev)
}

// do has an action happen.
func (w *world) do(a action) {
	if a.delay && w.cfg.Delays > 0 {
		w.delays++
	}
	switch a.kind {
	case deliver:
		w.deliver(w.links[a.i])
	case carryOut:
		w.perform(w.calls[a.i])
	case late:
		c := w.calls[a.i]
		w.remove(c)
		w.perform(c)
	case answer:
		c := w.calls[a.i]
		w.remove(c)
		w.tell(c)
	case hearPod:
		w.hearPod(w.shards[a.i])
	case hearStore:
		w.hearStore(w.shards[a.i])
	case hearCoord:
		ev := w.coord.store[0]
		w.coord.store = slices.Clone(w.coord.store[1:])
		w.stepCoord(ev)
	case leaseOver:
		inc := w.leases[a.i]
		w.leases = slices.Delete(w.leases, a.i, a.i+1)
		w.txn(nil, []model.Op[proto.Message]{{Kind: model.Delete, Key: keyShard(inc)}})
	case restart:
		name := w.down[a.i]
		w.down = slices.Delete(w.down, a.i, a.i+1)
		if name == "c" {
			w.startCoordinator()
		} else {
			w.startShard(name)
		}
	case wait:
		w.waits++
		for range 120 { // a minute
			w.pass(500 * time.Millisecond)
			w.flush()
			if !w.still() {
				break
			}
		}
	case leap:
		w.early++
		w.pass(a.d)
	case crash:
		w.crashes++
		w.crash(a.who)
	case lose:
		w.lost++
		l := w.links[a.i]
		l.queue = slices.Clone(l.queue[1:])
	case noAnswer:
		w.lost++
		w.unanswered(w.calls[a.i])
	}
	w.flush()
}

// still tells that nothing has to happen.
func (w *world) still() bool {
	was := w.fair
	w.fair = true
	n := len(w.actions())
	w.fair = was
	return n == 0
}

func (w *world) remove(c *call) {
	w.calls = slices.DeleteFunc(w.calls, func(o *call) bool { return o == c })
}

// unanswered is a call whose answer is lost. What is sent again until it is answered takes effect now and is still asked;
// of the others the answer is that nobody knows, and it takes effect later or never.
func (w *world) unanswered(c *call) {
	orphan := *c
	orphan.from = ""
	switch o := c.output.(type) {
	case event.BindPod:
		c.answer = event.BindDone{Row: o.Row, Outcome: event.BindUnknown}
	case event.SettlePod:
		c.answer = event.SettleDone{Row: o.Row, Outcome: event.SettleRetry}
	case event.EvictPod:
		c.answer = event.StatusWritten{ID: o.ID, Outcome: event.StatusFailed, Error: "no answer"}
	default:
		w.perform(&orphan)
		return
	}
	w.calls = append(w.calls, &orphan)
}

// tell hands an answer to whom it is for.
func (w *world) tell(c *call) {
	if c.done != nil {
		w.stepCoord(c.done)
	} else if x := w.shard(c.from); x != nil {
		w.step(x, c.answer)
	}
	w.spread()
}

// perform carries a call out at its server.
func (w *world) perform(c *call) {
	switch {
	case c.txn != nil:
		w.commit(c)
	default:
		c.answer = w.serve(c)
	}
	w.spread()
}

func is(key string, target model.Target, revision int64) model.Compare[proto.Message] {
	return model.Compare[proto.Message]{Key: key, Target: target, Operand: revision}
}

// commit is a coordinator's transaction: one whose answer was lost is known by the value of seq.
func (w *world) commit(c *call) {
	if kv := w.store.Keys[keySeq]; kv != nil && kv.Value.(*wire.Sequence).Value == c.txn.ID && kv.Value.(*wire.Sequence).Term == uint64(c.term) {
		c.done = coordinator.TxnDone{ID: c.txn.ID, Revision: kv.Mod}
		return
	}
	ops := []model.Op[proto.Message]{{Kind: model.Put, Key: keySeq, Value: &wire.Sequence{Value: c.txn.ID, Term: uint64(c.term)}}}
	put := func(key string, m proto.Message) {
		ops = append(ops, model.Op[proto.Message]{Kind: model.Put, Key: key, Value: m})
	}
	for _, o := range c.txn.Ops {
		switch o := o.(type) {
		case coordinator.PutReservation:
			put(keyReservation(api.BucketOf(o.Record.Gang.Queue), o.Record.Gang.Uid), o.Record)
		case coordinator.DeleteReservation:
			ops = append(ops, model.Op[proto.Message]{Kind: model.Delete, Key: keyReservation(api.BucketOf(o.Queue), o.GangUID)})
		case coordinator.PutLimits:
			put("queues/"+o.Record.Queue, o.Record)
		case coordinator.DeleteLimits:
			ops = append(ops, model.Op[proto.Message]{Kind: model.Delete, Key: "queues/" + o.Queue})
		case coordinator.PutTable:
			put(keyTable, wire.FromTable(o.Table))
		}
	}
	seq := w.store.Keys[keySeq].Mod
	if kv := w.store.Keys[keySeq]; kv.Value.(*wire.Sequence).Term != uint64(c.term) {
		seq = -1 // another wrote it: what this one compared is gone
	}
	if !w.txn([]model.Compare[proto.Message]{is(keyLeader, model.CreateRevision, c.term), is(keySeq, model.ModRevision, seq)}, ops) {
		if w.coord != nil && w.coord.inc == c.from {
			fail("the coordinator that leads is fenced")
		}
		return
	}
	if c.from != "" {
		c.done = coordinator.TxnDone{ID: c.txn.ID, Revision: w.store.Revision()}
	}
}

// serve carries a shard's call out; the answers are those of package api/store and shard/process.
func (w *world) serve(c *call) event.Event {
	session := is(keyShard(c.who), model.CreateRevision, c.fence)
	alive := func() bool { kv := w.store.Keys[keyShard(c.who)]; return kv != nil && kv.Create == c.fence }
	mod := func(key string) int64 {
		if kv := w.store.Keys[key]; kv != nil {
			return kv.Mod
		}
		return 0
	}
	switch o := c.output.(type) {
	case event.ReadStore:
		ev := event.StoreRead{Sequence: o.Sequence, Revision: w.store.Revision()}
		for _, key := range w.store.With("intents/") {
			var n uint64
			inc, hex, _ := strings.Cut(strings.TrimPrefix(key, "intents/"), "/")
			_, _ = fmt.Sscanf(hex, "%x", &n)
			ev.Intents = append(ev.Intents, event.StoredIntents{Incarnation: api.Incarnation(inc), N: n, ModRevision: mod(key), Record: w.store.Keys[key].Value.(*wire.IntentsRecord)})
		}
		for _, key := range w.store.With("reservations/") {
			ev.Reservations = append(ev.Reservations, event.StoredReservation{ModRevision: mod(key), Record: w.store.Keys[key].Value.(*wire.ReservationRecord)})
		}
		return ev
	case event.ListPods: // its answer is the first that the new watch brings
		x := w.shard(c.from)
		ev := event.PodsReplaced{}
		if x.listing.Sequence == o.Sequence {
			ev.Sequence = o.Sequence
		}
		all, _ := w.api.List(w.api.Pods, model.Selector{})
		for _, p := range all {
			ev.Pods = append(ev.Pods, p.Pod)
		}
		x.follows, x.pods = true, []event.Event{ev}
		w.remove(c)
		return nil
	case event.WriteIntents:
		key := keyIntents(c.who, o.N)
		compares := []model.Compare[proto.Message]{session, is(key, model.CreateRevision, 0), is(keyTable, model.ModRevision, o.TableRevision)}
		for _, f := range o.Reservations {
			compares = append(compares, is(keyReservation(f.Bucket, f.GangUID), model.ModRevision, f.Revision))
		}
		done := event.IntentsWritten{N: o.N, Outcome: event.Written}
		switch {
		case w.txn(compares, []model.Op[proto.Message]{{Kind: model.Put, Key: key, Value: o.Record}}):
			done.ModRevision = mod(key)
		case !alive():
			done.Outcome = event.SessionLost
		case mod(key) > 0:
			done.ModRevision = mod(key)
		case mod(keyTable) != o.TableRevision:
			done.Outcome = event.TableMoved
		default:
			done.Outcome = event.ReservationMoved
			for _, f := range o.Reservations {
				if mod(keyReservation(f.Bucket, f.GangUID)) != f.Revision {
					done.Moved = append(done.Moved, f.GangUID)
				}
			}
		}
		return done
	case event.DeleteIntents:
		var done event.IntentsDeleted
		for _, k := range o.Keys {
			key := keyIntents(c.who, k.N)
			if k.ModRevision > 0 {
				w.txn([]model.Compare[proto.Message]{session, is(key, model.ModRevision, k.ModRevision)}, []model.Op[proto.Message]{{Kind: model.Delete, Key: key}})
			}
			done.Keys = append(done.Keys, event.IntentKey{N: k.N, ModRevision: mod(key)})
		}
		return done
	case event.RewriteIntents:
		key := keyIntents(o.Incarnation, o.N)
		op := model.Op[proto.Message]{Kind: model.Delete, Key: key}
		if o.Record != nil {
			op = model.Op[proto.Message]{Kind: model.Put, Key: key, Value: o.Record}
		}
		done := event.IntentsRewritten{Incarnation: o.Incarnation, N: o.N}
		done.Done = w.txn([]model.Compare[proto.Message]{session, is(key, model.ModRevision, o.ModRevision), is(keyTable, model.ModRevision, o.TableRevision)}, []model.Op[proto.Message]{op})
		if kv := w.store.Keys[key]; kv != nil {
			done.ModRevision, done.Record = kv.Mod, kv.Value.(*wire.IntentsRecord)
			done.Done = done.Done || o.Record != nil && kv.Mod != o.ModRevision && proto.Equal(kv.Value, o.Record)
		} else {
			done.Done = done.Done || o.Record == nil
		}
		return done
	case event.BindPod:
		w.check.lands(w, o)
		err := w.api.Bind(model.Binding{Namespace: o.Namespace, Name: o.Name, UID: o.Row.PodUID, Version: o.ResourceVersion, Node: o.Node, Labels: map[string]string{
			api.LabelQueueBucket: o.QueueBucket.Label(), api.LabelNodeBucket: o.NodeBucket.Label(), api.LabelGang: o.Gang}})
		done := event.BindDone{Row: o.Row, Outcome: event.BindOK}
		if apierrors.IsNotFound(err) {
			done.Outcome = event.BindNotFound
		} else if err != nil {
			done.Outcome = event.BindConflict
		}
		return done
	case event.SettlePod:
		p, err := w.api.Annotate(o.Namespace, o.Name, o.Row.PodUID, api.AnnotationSettle, o.Value)
		done := event.SettleDone{Row: o.Row, Outcome: event.SettledFree}
		if err != nil {
			done.Outcome = event.SettledGone
		} else if p.Spec.NodeName != "" {
			done.Outcome, done.Node = event.SettledBound, p.Spec.NodeName
		}
		return done
	case event.EvictPod:
		if p := w.api.Pod(o.Namespace, o.Name); p != nil && string(p.UID) == o.UID {
			w.check.evicts(w, p)
			w.must(w.api.Delete(w.api.Pods, o.Namespace, o.Name, p.UID, "", nil))
		}
		return event.StatusWritten{ID: o.ID, Outcome: event.StatusOK}
	}
	panic(fmt.Sprintf("explore: %T is not known", c.output))
}

func (w *world) must(err error) {
	if err != nil {
		fail("API server: %v", err)
	}
}

// finish goes on without faults until every gang had its pods and nothing is left: kubelets end the pods of gangs that have
// all of theirs, and controllers make again what was evicted.
func (w *world) finish() {
	w.fair = true
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool { return c.from == "" })
	left := ""
	for range 1200 { // ten minutes
		w.quiet()
		if left = w.left(); left == "" {
			return
		}
		w.help()
		w.pass(500 * time.Millisecond)
		w.flush()
	}
	for _, x := range w.shards {
		for _, g := range x.home.Status().Gangs {
			left += fmt.Sprintf("; %s: gang %s is %s %s %s, bound %d of %d", x.inc, g.Gang.Uid, g.State, g.Reason, g.Message, g.Bound, g.MinCount)
		}
		left += fmt.Sprintf("; %s: %+v", x.inc, x.node.Stats())
	}
	fail("after ten minutes without faults %s", left)
}

func (w *world) help() {
	now := int64(0)
	for g := range w.cfg.Gangs {
		bound := 0
		var pods []*corev1.Pod
		for i := range 2 {
			p := w.api.Pod("ns", fmt.Sprintf("g%d-%d", g, i))
			switch {
			case p == nil:
				w.makePod(g, i)
				continue
			case p.DeletionTimestamp != nil:
				w.must(w.api.Delete(w.api.Pods, p.Namespace, p.Name, "", "", &now))
				w.spread()
				continue
			case p.Spec.NodeName != "":
				bound++
			}
			pods = append(pods, p)
		}
		for _, p := range pods {
			if bound == 2 && !model.Finished(p) {
				w.api.EditPod(p, func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
				w.spread()
			}
		}
	}
}

// left says what is still to be done, "" when nothing is.
func (w *world) left() string {
	for g := range w.cfg.Gangs {
		for i := range 2 {
			if p := w.api.Pod("ns", fmt.Sprintf("g%d-%d", g, i)); p == nil || !model.Finished(p) {
				return fmt.Sprintf("pod g%d-%d has not had its run", g, i)
			}
		}
	}
	for _, prefix := range []string{"reservations/", "intents/"} {
		for _, key := range w.store.With(prefix) {
			return key + " is left"
		}
	}
	for _, x := range w.shards {
		if st := x.node.Stats(); st.Holds+st.Rows+st.Keys+st.Waiting > 0 {
			return fmt.Sprintf("%s is not settled: %+v", x.inc, st)
		}
	}
	if len(w.shards) < 2 || w.coord == nil {
		return "a process is missing"
	}
	return ""
}
