package explore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/model"
	"basalt.dev/basalt/coordinator"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

// action is one thing that can happen next, by its place in the world: a world is copied before it happens.
type action struct {
	kind  kind
	delay bool // something else comes first in the fair order
	i     int
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
	crash // of shard i, or of the coordinator where i is -1
	edit  // of object i/len(Labels), by Labels[i%len(Labels)]
	leap
	lose
	noAnswer
)

// Leaps are how much time passes early: a repetition, and what a hold or a prepared row lasts.
var Leaps = []time.Duration{2 * time.Second, 12 * time.Second}

// Labels are the edits of a pod's labels: it names a PodGroup that does not exist, none, the other gang's, or a queue.
var Labels = []struct{ Label, Value string }{
	{api.LabelPodGroup, "nope"}, {api.LabelPodGroup, ""}, {api.LabelPodGroup, otherGang}, {api.LabelQueue, "other"},
}

const otherGang = "the other gang's"

// edited returns the labels of a pod after an edit; false where that changes nothing.
func (w *world) edited(p *corev1.Pod, by int) (map[string]string, bool) {
	e := Labels[by]
	value := e.Value
	if value == otherGang {
		if w.cfg.Gangs < 2 {
			return nil, false
		}
		if value = groupName(0); p.Labels[api.LabelPodGroup] == value {
			value = groupName(1)
		}
	}
	if p.Labels[e.Label] == value {
		return nil, false
	}
	to := maps.Clone(p.Labels)
	if to[e.Label] = value; value == "" {
		delete(to, e.Label)
	}
	return to, true
}

// relabel changes a pod's labels.
func (w *world) relabel(o *object, to map[string]string) {
	w.serve(o, mix(w.of("labels"), sumOf(to)), false, func(a *model.API) any {
		a.EditPod(a.Pod(o.namespace, o.name), func(p *corev1.Pod) { p.Labels = to })
		return nil
	})
}

// Orders of what must happen some time: which of it goes first in the fair order that ways are counted from.
//
//	s  a process hears of the store
//	p  a shard hears of pods
//	m  a message is delivered
//	c  a call is carried out, or its answer heard
//	r  a process starts again
//	l  the lease of a dead one is over
const FairOrder = "spmcrl"

// musts hands out what must happen some time, in the fair order, until it is told to stop.
func (w *world) musts(yield func(action) bool) {
	for _, what := range w.cfg.Order {
		switch what {
		case 's':
			for i := range w.shards {
				if len(w.shards[i].store) > 0 && !yield(action{kind: hearStore, i: i}) {
					return
				}
			}
			if w.coord != nil && len(w.coord.store) > 0 && !yield(action{kind: hearCoord}) {
				return
			}
		case 'p':
			for i := range w.shards {
				if len(w.shards[i].pods) > 0 && w.shards[i].early == nil && !yield(action{kind: hearPod, i: i}) {
					return
				}
			}
		case 'm':
			for i := range w.links {
				if !yield(action{kind: deliver, i: i}) {
					return
				}
			}
		case 'c':
			busy := api.Incarnation("") // a coordinator has one transaction under way
			for i, c := range w.calls {
				a := action{kind: carryOut, i: i}
				switch {
				case c.from == "" || c.txn != nil && c.from == busy && c.answer.value == nil:
					continue
				case c.answer.value != nil:
					a.kind = answer
				}
				if !yield(a) {
					return
				}
				if c.txn != nil {
					busy = c.from
				}
			}
		case 'r':
			for i, name := range w.down {
				if w.cfg.Rested && name != "c" {
					continue
				}
				if !yield(action{kind: restart, i: i}) {
					return
				}
			}
		case 'l':
			for i := range w.leases {
				if !yield(action{kind: leaseOver, i: i}) {
					return
				}
			}
		}
	}
}

// victims tells which processes crash.
func (w *world) victims(name string) bool {
	return w.cfg.Victims == "" || slices.Contains(strings.Split(w.cfg.Victims, ","), name)
}

// rested hands out what waits until nothing else must happen.
func (w *world) rested(yield func(action) bool) {
	for i := range w.down {
		if !yield(action{kind: restart, i: i}) {
			return
		}
	}
}

// next is what comes first in a fair order.
func (w *world) next() (action, bool) {
	for a := range w.musts {
		return a, true
	}
	for a := range w.rested {
		return a, true
	}
	return action{}, false
}

// actions lists what can happen next: what must happen some time, then faults.
func (w *world) actions() []action {
	out := slices.Collect(w.musts)
	if len(out) == 0 {
		out = slices.Collect(w.rested)
	}
	for i := range out {
		out[i].delay = i > 0
	}
	must := len(out)
	for i, c := range w.calls {
		if c.from == "" {
			out = append(out, action{kind: late, i: i})
		}
	}
	if must == 0 && w.waits < w.cfg.Waits {
		out = append(out, action{kind: wait})
	}
	if must > 0 && w.early < w.cfg.Early {
		for i := range Leaps {
			out = append(out, action{kind: leap, i: i})
		}
	}
	if w.crashes < w.cfg.Crashes {
		for i := range w.shards {
			if w.victims(w.shards[i].name) {
				out = append(out, action{kind: crash, i: i})
			}
		}
		if w.coord != nil && w.victims("c") {
			out = append(out, action{kind: crash, i: -1})
		}
	}
	if w.edits < w.cfg.Edits {
		for i := range w.objects {
			p := w.objects[i].pod()
			if w.objects[i].kind != kindPod || p == nil || model.Finished(p) {
				continue
			}
			for by := range Labels {
				if _, is := w.edited(p, by); is {
					out = append(out, action{kind: edit, i: i*len(Labels) + by})
				}
			}
		}
	}
	if w.lost < w.cfg.Lost {
		for i := range w.links {
			out = append(out, action{kind: lose, i: i})
		}
		for i, c := range w.calls {
			if c.from != "" && c.answer.value == nil && !reads(c) {
				out = append(out, action{kind: noAnswer, i: i})
			}
		}
	}
	return out
}

// atEnd tells that nothing has to happen any more, and time has passed as often as it may.
func (w *world) atEnd() bool {
	_, is := w.next()
	return !is && w.waits >= w.cfg.Waits
}

// name is an action for people.
func (w *world) name(a action) string {
	switch a.kind {
	case hearStore:
		return fmt.Sprintf("%s hears of the store: %T", w.shards[a.i].inc, w.shards[a.i].store[0].value)
	case hearPod:
		return fmt.Sprintf("%s hears of pods: %s", w.shards[a.i].inc, aboutPod(w.shards[a.i].pods[0].value))
	case hearCoord:
		return fmt.Sprintf("%s hears of the store: %T", w.coord.inc, w.coord.store[0].value)
	case deliver:
		return fmt.Sprintf("%s hears %s from %s", w.links[a.i].to, about(w.links[a.i].queue[0]), w.links[a.i].from)
	case lose:
		return fmt.Sprintf("%s for %s from %s is lost", about(w.links[a.i].queue[0]), w.links[a.i].to, w.links[a.i].from)
	case answer:
		return w.calls[a.i].name() + " is answered"
	case carryOut:
		return w.calls[a.i].name() + " is carried out"
	case late:
		return w.calls[a.i].name() + " is carried out late"
	case noAnswer:
		return w.calls[a.i].name() + " is never answered"
	case restart:
		return w.down[a.i] + " starts again"
	case leaseOver:
		return fmt.Sprintf("the lease of %s is over", w.leases[a.i])
	case leap:
		return fmt.Sprintf("%s pass meanwhile", Leaps[a.i])
	case crash:
		return w.process(a.i) + " crashes"
	case edit:
		return fmt.Sprintf("the labels of %s become %s=%q", w.objects[a.i/len(Labels)].name, Labels[a.i%len(Labels)].Label, Labels[a.i%len(Labels)].Value)
	}
	return "time passes"
}

func (w *world) process(i int) string {
	if i < 0 {
		return "c"
	}
	return w.shards[i].name
}

func (c *call) name() string {
	what := "?"
	switch o := c.output.(type) {
	case nil:
		what = fmt.Sprintf("transaction %d", c.txn.ID)
		for _, o := range c.txn.Ops {
			switch o := o.(type) {
			case coordinator.PutReservation:
				what += ", put of " + o.Record.Gang.Uid
			case coordinator.DeleteReservation:
				what += ", delete of " + o.GangUID
			}
		}
	case event.ReadStore:
		what = "read of the store"
	case event.ListPods:
		what = "list of pods"
	case event.WriteIntents:
		what = fmt.Sprintf("intents %d", o.N)
	case event.DeleteIntents:
		what = fmt.Sprintf("delete of %d intents", len(o.Keys))
	case event.RewriteIntents:
		what = fmt.Sprintf("rewrite of intents %s/%d", o.Incarnation, o.N)
	case event.BindPod:
		what = fmt.Sprintf("Binding of %s to %s", o.Name, o.Node)
	case event.SettlePod:
		what = "settling of " + o.Name
	case event.EvictPod:
		what = "eviction of " + o.Name
	}
	return string(c.who) + "'s " + what
}

// about names a message, and the gang that it is about.
func about(i item) string {
	m := i.value.(*wire.Envelope)
	what := strings.TrimPrefix(fmt.Sprintf("%T", m.Body), "*wire.Envelope_")
	r := m.ProtoReflect()
	r.Range(func(_ protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		body, is := v.Interface().(protoreflect.Message)
		if !is {
			return true
		}
		switch b := body.Interface().(type) {
		case interface{ GetGangUid() string }:
			what += " of " + b.GetGangUid()
		case interface{ GetGang() *wire.GangRef }:
			what += " of " + b.GetGang().GetUid()
		}
		return true
	})
	return what
}

func aboutPod(ev any) string {
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
	switch a.kind {
	case deliver:
		w.deliver(w.drop(a.i))
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
		w.hearPod(&w.shards[a.i])
	case hearStore:
		w.hearStore(&w.shards[a.i])
	case hearCoord:
		c := *w.coord
		ev := c.store[0]
		c.store = c.store[1:]
		w.coord = &c
		w.stepCoord(ev)
	case leaseOver:
		inc := w.leases[a.i]
		w.leases = slices.Delete(slices.Clone(w.leases), a.i, a.i+1)
		w.txn(mix(w.of("lease over"), w.told(inc)), nil, []model.Op[proto.Message]{{Kind: model.Delete, Key: keyShard(inc)}})
	case restart:
		name := w.down[a.i]
		w.down = slices.Delete(slices.Clone(w.down), a.i, a.i+1)
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
			if _, is := w.next(); is {
				break
			}
		}
	case leap:
		w.early++
		w.pass(Leaps[a.i])
	case crash:
		w.crashes++
		w.crash(w.process(a.i))
	case edit:
		w.edits++
		o := &w.objects[a.i/len(Labels)]
		to, _ := w.edited(o.pod(), a.i%len(Labels))
		w.relabel(o, to)
	case lose:
		w.lost++
		w.drop(a.i)
	case noAnswer:
		w.lost++
		w.unanswered(w.calls[a.i])
	}
	w.flush()
	if !w.cfg.Plain {
		w.forget()
	}
}

// forget leaves out what never happens.
func (w *world) forget() {
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool { return c.from == "" && w.never(c) })
}

// atRest is the sum of an end, whatever was merged on the way.
func (w *world) atRest() uint64 {
	n := w.copied()
	n.forget()
	return n.sum()
}

func (w *world) remove(c *call) {
	w.calls = slices.DeleteFunc(w.calls, func(o *call) bool { return o == c })
}

// answered puts a call in the place of an earlier state of itself. It is not there where nobody waits for its answer.
func (w *world) answered(c *call, with item) {
	if i := slices.Index(w.calls, c); i >= 0 {
		n := *c
		n.answer = with
		w.calls[i] = &n
	}
}

// unanswered is a call whose answer is lost. What is sent again until it is answered takes effect now and is still asked;
// of the others the answer is that nobody knows, and it takes effect later or never.
func (w *world) unanswered(c *call) {
	switch o := c.output.(type) {
	case event.BindPod:
		w.answered(c, itemOf(event.BindDone{Row: o.Row, Outcome: event.BindUnknown}))
	case event.SettlePod:
		w.answered(c, itemOf(event.SettleDone{Row: o.Row, Outcome: event.SettleRetry}))
	case event.EvictPod:
		w.answered(c, itemOf(event.StatusWritten{ID: o.ID, Outcome: event.StatusFailed, Error: "no answer"}))
	default:
		w.perform(c.orphaned())
		return
	}
	w.calls = plus(w.calls, c.orphaned())
	w.sortCalls()
}

// tell hands an answer to whom it is for.
func (w *world) tell(c *call) {
	if c.txn != nil {
		w.stepCoord(c.answer)
	} else if x := w.shard(c.from); x != nil {
		w.step(x, c.answer)
	}
}

// perform carries a call out at its server.
func (w *world) perform(c *call) {
	switch {
	case c.txn != nil:
		w.commit(c)
	default:
		if a := w.carry(c); a.value != nil {
			w.answered(c, a)
		}
	}
}

func is(key string, target model.Target, revision int64) model.Compare[proto.Message] {
	return model.Compare[proto.Message]{Key: key, Target: target, Operand: revision}
}

// commit is a coordinator's transaction: one whose answer was lost is known by the value of seq.
func (w *world) commit(c *call) {
	if kv := w.etcd().Keys[keySeq]; kv != nil && kv.Value.(*wire.Sequence).Value == c.txn.ID && kv.Value.(*wire.Sequence).Term == uint64(c.term) {
		w.answered(c, itemOf(coordinator.TxnDone{ID: c.txn.ID, Revision: kv.Mod}))
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
	seq := w.etcd().Keys[keySeq].Mod
	if kv := w.etcd().Keys[keySeq]; kv.Value.(*wire.Sequence).Term != uint64(c.term) {
		seq = -1 // another wrote it: what this one compared is gone
	}
	if !w.txn(c.sum, []model.Compare[proto.Message]{is(keyLeader, model.CreateRevision, c.term), is(keySeq, model.ModRevision, seq)}, ops) {
		if w.coord != nil && w.coord.inc == c.from {
			fail("the coordinator that leads is fenced")
		}
		return
	}
	w.answered(c, itemOf(coordinator.TxnDone{ID: c.txn.ID, Revision: w.etcd().Revision()}))
}

// read is what a takeover reads: both halves of the store at one revision.
func (w *world) read(o event.ReadStore) item {
	return w.reads.get(mix(w.store.sum, w.intents.sum, o.Sequence), func() item {
		ev := event.StoreRead{Sequence: o.Sequence, Revision: w.etcd().Revision()}
		for _, key := range w.keys() {
			var n uint64
			inc, hex, _ := strings.Cut(strings.TrimPrefix(key, "intents/"), "/")
			_, _ = fmt.Sscanf(hex, "%x", &n)
			at := w.rows()[key]
			ev.Intents = append(ev.Intents, event.StoredIntents{Incarnation: api.Incarnation(inc), N: n, ModRevision: at.version, Record: at.record})
		}
		for _, key := range w.etcd().With("reservations/") {
			kv := w.etcd().Keys[key]
			ev.Reservations = append(ev.Reservations, event.StoredReservation{ModRevision: kv.Mod, Record: kv.Value.(*wire.ReservationRecord)})
		}
		return itemOf(ev)
	})
}

// intents are the keys of them that there are; each counts its versions by itself.
type intents struct {
	Keys map[string]intentKey
}

type intentKey struct {
	version int64
	record  *wire.IntentsRecord
}

func (w *world) rows() map[string]intentKey { return w.intents.value.(*intents).Keys }

// keys are those of the intents, sorted.
func (w *world) keys() []string { return slices.Sorted(maps.Keys(w.rows())) }

// intend is a transaction that writes or deletes one intent key, if that key is at a version and other keys are as compared.
func (w *world) intend(c *call, key string, version int64, record *wire.IntentsRecord, compares ...model.Compare[proto.Message]) bool {
	old := w.rows()[key]
	if old.version != version || !w.holds(compares) {
		return false
	}
	w.intents = w.parts.tell(w.intents, mix(c.sum, w.of(key)), func(value any) []any {
		if keys := value.(*intents).Keys; record == nil {
			delete(keys, key)
		} else {
			keys[key] = intentKey{version + 1, record}
		}
		return nil
	}).to
	if record != nil {
		w.check.pods(w)
	}
	w.check.rewritten(w, key, old.record)
	return true
}

// podsNow are those at the API server.
func (w *world) podsNow() []item {
	out := []item{}
	for i := range w.objects {
		if p := w.objects[i].now().Pod; p != nil {
			out = append(out, w.seen.get(p, func() item { return itemOf(event.PodSeen{Pod: p}) }))
		}
	}
	return out
}

// listed is a list of pods.
func listed(pods []item, sequence uint64) item {
	ev := event.PodsReplaced{Sequence: sequence}
	sum := mix(sequence)
	for _, i := range pods {
		ev.Pods = append(ev.Pods, i.value.(event.PodSeen).Pod)
		sum = mix(sum, i.sum)
	}
	return item{ev, sum}
}

// mod is the revision at which a key was last written, 0 while it is not there.
func (w *world) mod(key string) int64 {
	if kv := w.etcd().Keys[key]; kv != nil {
		return kv.Mod
	}
	return 0
}

// decidedUnder are the revisions that intents name.
func decidedUnder(o event.WriteIntents) []model.Compare[proto.Message] {
	compares := []model.Compare[proto.Message]{is(keyTable, model.ModRevision, o.TableRevision)}
	for _, f := range o.Reservations {
		compares = append(compares, is(keyReservation(f.Bucket, f.GangUID), model.ModRevision, f.Revision))
	}
	return compares
}

// never tells of a call that nobody waits for that it cannot take effect any more, whatever happens: what it compares only
// grows, or was there once and is gone. Without it the same state is there with and without each such call.
func (w *world) never(c *call) bool {
	gone := func(key string, created int64) bool {
		kv := w.etcd().Keys[key]
		return kv == nil || kv.Create != created
	}
	if c.txn != nil {
		seq, is := w.etcd().Keys[keySeq].Value.(*wire.Sequence)
		return gone(keyLeader, c.term) || is && seq.Term == uint64(c.term) && seq.Value >= c.txn.ID
	}
	pod := func(namespace, name, uid string) *corev1.Pod {
		if p := w.pod(namespace, name); p != nil && string(p.UID) == uid {
			return p
		}
		return nil
	}
	fenced := gone(keyShard(c.who), c.fence)
	switch o := c.output.(type) {
	case event.WriteIntents:
		return fenced || w.rows()[keyIntents(c.who, o.N)].version > 0 || !w.holds(decidedUnder(o))
	case event.DeleteIntents:
		return fenced || !slices.ContainsFunc(o.Keys, func(k event.IntentKey) bool {
			return k.ModRevision > 0 && w.rows()[keyIntents(c.who, k.N)].version == k.ModRevision
		})
	case event.RewriteIntents:
		return fenced || w.rows()[keyIntents(o.Incarnation, o.N)].version != o.ModRevision || w.mod(keyTable) != o.TableRevision
	case event.BindPod:
		p := pod(o.Namespace, o.Name, o.Row.PodUID)
		return p == nil || p.ResourceVersion != o.ResourceVersion || p.Spec.NodeName != "" || p.DeletionTimestamp != nil
	case event.SettlePod:
		return pod(o.Namespace, o.Name, o.Row.PodUID) == nil
	case event.EvictPod:
		return pod(o.Namespace, o.Name, o.UID) == nil
	}
	return false
}

// carry has a shard's call take effect; the answers are those of package api/store and shard/process. The revision of an
// intent key is its version: keys are made once and revisions of different ones are never compared, so that this tells as
// much, and does not tell in which order different shards wrote.
func (w *world) carry(c *call) item {
	session := is(keyShard(c.who), model.CreateRevision, c.fence)
	version := func(key string) int64 { return w.rows()[key].version }
	// pod asks the API server about a pod that may be gone.
	pod := func(namespace, name string, do func(a *model.API) any) item {
		return itemOf(w.serve(w.object(kindPod, namespace, name), c.sum, false, do))
	}
	switch o := c.output.(type) {
	case event.ReadStore:
		if x := w.shard(c.from); fault.On(fault.PodsFirst) && x.early == nil {
			x.early, x.follows, x.pods = w.podsNow(), true, nil
			return item{}
		}
		return w.read(o)
	case event.ListPods: // its answer is the first that the new watch brings
		x := w.shard(c.from)
		sequence := uint64(0)
		if x.listing == o.Sequence {
			sequence = o.Sequence
		}
		switch {
		case fault.On(fault.PodsFirst) && x.early != nil: // what came since comes after it
			x.pods, x.early = append([]item{listed(x.early, sequence)}, x.pods...), nil
		case fault.On(fault.PodsFromCache) && x.follows:
			x.pods = append([]item{listed(x.shown, sequence)}, x.pods...)
		default:
			x.follows, x.pods = true, []item{listed(w.podsNow(), sequence)}
		}
		w.remove(c)
		return item{}
	case event.WriteIntents:
		key := keyIntents(c.who, o.N)
		if fault.On(fault.NewerTable) {
			o.TableRevision = w.mod(keyTable)
		}
		compares := append([]model.Compare[proto.Message]{session}, decidedUnder(o)...)
		done := event.IntentsWritten{N: o.N, Outcome: event.Written}
		switch {
		case w.intend(c, key, 0, o.Record, compares...):
			done.ModRevision = version(key)
		case !w.holds(compares[:1]):
			done.Outcome = event.SessionLost
		case version(key) > 0:
			done.ModRevision = version(key)
		case w.mod(keyTable) != o.TableRevision:
			done.Outcome = event.TableMoved
		default:
			done.Outcome = event.ReservationMoved
			for _, f := range o.Reservations {
				if w.mod(keyReservation(f.Bucket, f.GangUID)) != f.Revision {
					done.Moved = append(done.Moved, f.GangUID)
				}
			}
		}
		return itemOf(done)
	case event.DeleteIntents:
		var done event.IntentsDeleted
		for _, k := range o.Keys {
			key := keyIntents(c.who, k.N)
			if k.ModRevision > 0 {
				w.intend(c, key, k.ModRevision, nil, session)
			}
			done.Keys = append(done.Keys, event.IntentKey{N: k.N, ModRevision: version(key)})
		}
		return itemOf(done)
	case event.RewriteIntents:
		key := keyIntents(o.Incarnation, o.N)
		done := event.IntentsRewritten{Incarnation: o.Incarnation, N: o.N}
		done.Done = w.intend(c, key, o.ModRevision, o.Record, session, is(keyTable, model.ModRevision, o.TableRevision))
		if at := w.rows()[key]; at.version > 0 {
			done.ModRevision, done.Record = at.version, at.record
			done.Done = done.Done || o.Record != nil && at.version != o.ModRevision && proto.Equal(at.record, o.Record)
		} else {
			done.Done = done.Done || o.Record == nil
		}
		return itemOf(done)
	case event.BindPod:
		w.check.lands(w, o)
		return pod(o.Namespace, o.Name, func(a *model.API) any {
			err := a.Bind(model.Binding{Namespace: o.Namespace, Name: o.Name, UID: o.Row.PodUID, Version: o.ResourceVersion, Node: o.Node, Labels: map[string]string{api.LabelGang: o.Gang}})
			done := event.BindDone{Row: o.Row, Outcome: event.BindOK}
			if apierrors.IsNotFound(err) {
				done.Outcome = event.BindNotFound
			} else if err != nil {
				done.Outcome = event.BindConflict
			}
			return done
		})
	case event.SettlePod:
		return pod(o.Namespace, o.Name, func(a *model.API) any {
			// The shell writes only where the pod still has the Binding's version. Here the write is always made, for edits
			// that come at that moment.
			p, err := a.PatchCondition(o.Namespace, o.Name, o.Row.PodUID, "", corev1.PodCondition{Type: api.ConditionSettled, Status: corev1.ConditionTrue, Message: o.Value})
			done := event.SettleDone{Row: o.Row, Outcome: event.SettledGone}
			switch {
			case err != nil:
			case p.Spec.NodeName != "":
				done.Outcome, done.Node = event.SettledBound, p.Spec.NodeName
			default:
				done.Outcome, done.Version = event.SettledFree, p.ResourceVersion
			}
			return done
		})
	case event.EvictPod:
		if p := w.pod(o.Namespace, o.Name); p != nil && string(p.UID) == o.UID {
			w.check.evicts(w, p)
			w.delete(p, c.sum, nil)
		}
		return itemOf(event.StatusWritten{ID: o.ID, Outcome: event.StatusOK})
	}
	panic(fmt.Sprintf("explore: %T is not known", c.output))
}

// delete deletes a pod, with a grace unless it is nil.
func (w *world) delete(p *corev1.Pod, sum uint64, grace *int64) {
	w.serve(w.object(kindPod, p.Namespace, p.Name), sum, false, func(a *model.API) any {
		if err := a.Delete(a.Pods, p.Namespace, p.Name, p.UID, "", grace); err != nil {
			fail("API server: %v", err)
		}
		return nil
	})
}

// finish goes on without faults until every gang had its pods and nothing is left: kubelets end the pods of gangs that have
// all of theirs, and controllers make again what was evicted. A way that meets one that ended well ends well, too.
func (w *world) finish(ended map[uint64]struct{}) {
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool { return c.from == "" })
	left := ""
	var met []uint64
	for range 1200 { // ten minutes
		w.quiet()
		sum := w.sum()
		_, known := ended[sum]
		if left = w.left(); left == "" || known {
			for _, sum := range met {
				ended[sum] = struct{}{}
			}
			return
		}
		met = append(met, sum)
		w.help()
		w.pass(500 * time.Millisecond)
		w.flush()
	}
	for _, x := range w.shards {
		for _, g := range x.home.value.(*home.Core).Status().Gangs {
			left += fmt.Sprintf("; %s: gang %s is %s %s %s, bound %d of %d", x.inc, g.Gang.Uid, g.State, g.Reason, g.Message, g.Bound, g.MinCount)
		}
		left += fmt.Sprintf("; %s: %+v", x.inc, x.node.value.(*node.Core).Stats())
	}
	fail("after ten minutes without faults %s", left)
}

func (w *world) help() {
	now := int64(0)
	for g := range w.cfg.Gangs {
		for i := range 2 {
			p := w.pod("ns", podName(g, i))
			switch {
			case p == nil:
				w.makePod(g, i)
			case p.DeletionTimestamp != nil, model.Finished(p) && w.check.gangOf(p) != w.gangUID(g):
				w.delete(p, w.of("the kubelet deletes"), &now)
			case p.Spec.NodeName == "" && !maps.Equal(p.Labels, labels(g)):
				w.relabel(w.object(kindPod, p.Namespace, p.Name), labels(g))
			}
		}
	}
	started := map[string]int{} // pods that have a node, by gang
	for p := range w.pods {
		if p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
			started[w.check.gangOf(p)]++
		}
	}
	for g := range w.cfg.Gangs {
		for i := range 2 {
			p := w.pod("ns", podName(g, i))
			if p == nil || p.Spec.NodeName == "" || p.DeletionTimestamp != nil {
				continue
			}
			if gang := w.check.gangOf(p); started[gang] >= w.least(gang) && !model.Finished(p) {
				w.serve(w.object(kindPod, p.Namespace, p.Name), w.of("the pod succeeds"), false, func(a *model.API) any {
					a.EditPod(a.Pod(p.Namespace, p.Name), func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded })
					return nil
				})
			}
		}
	}
}

// left says what is still to be done, "" when nothing is.
func (w *world) left() string {
	for g := range w.cfg.Gangs {
		for i := range 2 {
			if p := w.pod("ns", podName(g, i)); p == nil || !model.Finished(p) || w.check.gangOf(p) != w.gangUID(g) {
				return fmt.Sprintf("pod g%d-%d has not had its run", g, i)
			}
		}
	}
	for _, key := range w.etcd().With("reservations/") {
		return key + " is left"
	}
	for _, key := range w.keys() {
		return key + " is left"
	}
	for _, x := range w.shards {
		if st := x.node.value.(*node.Core).Stats(); st.Holds+st.Rows+st.Keys+st.Waiting > 0 {
			return fmt.Sprintf("%s is not settled: %+v", x.inc, st)
		}
	}
	if len(w.shards) < 2 || w.coord == nil {
		return "a process is missing"
	}
	return ""
}
