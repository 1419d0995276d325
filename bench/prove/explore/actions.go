package explore

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"google.golang.org/protobuf/reflect/protoreflect"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/model"
	"basalt.dev/basalt/coordinator"
	"basalt.dev/basalt/coordinator/effect"
	shardeffect "basalt.dev/basalt/shard/effect"
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
	renew // all pods of gang i
	leap
	lose
	noAnswer
	end   // of the pod that is object i, which was being deleted
	drain // pod i of the victim: somebody deletes it
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

// renew deletes all pods of a gang at once, and makes them again. An implied gang is another one then, under the same UID.
func (w *world) renew(g int) {
	now := int64(0)
	for i := range w.cfg.Claim.pods(g) {
		if p := w.pod("ns", podName(g, i)); p != nil {
			w.delete(p, w.of("somebody deletes"), &now)
		}
	}
	w.check.begun = slices.DeleteFunc(slices.Clone(w.check.begun), func(gang string) bool { return gang == w.gangUID(g) })
	w.makePods(g)
}

// Orders of what must happen some time: which of it goes first in the fair order that ways are counted from.
//
//	s  a process hears of the store
//	p  a shard hears of pods
//	m  a message is delivered
//	c  a call is carried out, or its answer heard
//	k  the kubelet ends a pod that is being deleted, and its controller makes it again
//	r  a process starts again
//	l  the lease of a dead one is over
const FairOrder = "spmckrl"

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
		case 'k':
			for i := range w.objects {
				if w.cfg.Claim != "" && w.objects[i].kind == kindPod && ending(w.objects[i].pod()) && !yield(action{kind: end, i: i}) {
					return
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
	if w.edits < w.cfg.Edits && w.cfg.Implied {
		for g := range w.cfg.Gangs {
			out = append(out, action{kind: renew, i: g})
		}
	}
	if w.edits < w.cfg.Edits && w.cfg.Claim != "" {
		for i := range w.cfg.Claim.pods(victim) {
			if p := w.pod("ns", podName(victim, i)); p != nil && p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
				out = append(out, action{kind: drain, i: i})
			}
		}
	}
	if w.edits < w.cfg.Edits && w.cfg.Claim == "" {
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
	case renew:
		return "all pods of " + groupName(a.i) + " are deleted and made again"
	case drain:
		return "somebody deletes " + podName(victim, a.i)
	case end:
		return "the kubelet ends " + w.objects[a.i].name + ", and it is made again"
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
	case event.ResolveBinding:
		what = "resolving of " + o.Name
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
		w.txn(mix(w.of("lease over"), w.told(inc)), []protocol.Op{{Kind: protocol.Delete, Key: keys.Shard(inc)}})
		for _, key := range w.keys() { // those without rows are under the lease
			if strings.HasPrefix(key, keys.AllIntents()+string(inc)+"/") && len(w.rows()[key].record.GetRows()) == 0 {
				w.intend(mix(w.of("lease over"), w.told(inc)), key, nil)
			}
		}
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
	case renew:
		w.edits++
		w.renew(a.i)
	case drain:
		w.edits++
		w.delete(w.pod("ns", podName(victim, a.i)), w.of("somebody deletes"), nil)
	case end:
		w.endPod(w.objects[a.i].pod())
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
	case event.ResolveBinding:
		w.answered(c, itemOf(event.ResolveDone{Row: o.Row, Outcome: event.ResolveRetry}))
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

// commit is a coordinator's transaction: one whose answer was lost is known by the value of seq.
func (w *world) commit(c *call) {
	kv := w.etcd().Keys[keys.Sequence()]
	seq, revision := kv.Value.(*wire.Sequence), kv.Mod
	if seq.Value == c.txn.ID && seq.Term == uint64(c.term) {
		w.answered(c, itemOf(coordinator.TxnDone{ID: c.txn.ID, Revision: revision}))
		return
	}
	if seq.Term != uint64(c.term) {
		revision = -1 // another wrote it: what this one compared is gone
	}
	m, err := protocol.ResumeTerm(keys, c.term, revision, c.txn.ID-1).Commit(effect.Changes(c.txn.Ops))
	if err != nil {
		fail("commit: %v", err)
	}
	w.drive(c, m)
	switch {
	case m.Fenced() == nil:
		w.answered(c, itemOf(coordinator.TxnDone{ID: c.txn.ID, Revision: m.Revision}))
	case w.coord != nil && w.coord.inc == c.from:
		fail("the coordinator that leads is fenced: %v", m.Fenced())
	}
}

// drive carries a machine of the store's protocol out, all of it at once. Of a call that nobody waits for it is only what is
// on its way.
func (w *world) drive(c *call, m protocol.Machine) {
	for {
		t, more := m.Next()
		if !more {
			return
		}
		m.Answered(w.carryTxn(c.sum, t))
		if c.from == "" {
			return
		}
	}
}

// carryTxn carries a transaction of the protocol out. The sum stands for what it is. The revision of an intent key is its
// version: keys are made once and revisions of different ones are never compared, so that this tells as much, and does not
// tell in which order different shards wrote.
func (w *world) carryTxn(sum uint64, t protocol.Txn) protocol.Result {
	r := protocol.Result{Succeeded: w.hold(t.If)}
	if !r.Succeeded {
		r.Reads = w.readAll(t.Else)
		return r
	}
	var others []protocol.Op
	for _, o := range t.Then {
		switch {
		case o.Kind == protocol.Get:
			r.Reads, r.Revision = w.readAll(t.Then), w.etcd().Revision()
			return r
		case !strings.HasPrefix(o.Key, keys.AllIntents()):
			others = append(others, o)
		default:
			record, _ := o.Value.Message.(*wire.IntentsRecord)
			w.intend(sum, o.Key, record)
			r.Revision = w.rows()[o.Key].version
		}
	}
	if len(others) > 0 {
		w.txn(sum, others)
		r.Revision = w.etcd().Revision()
	}
	return r
}

// hold reports whether compares hold.
func (w *world) hold(compares []protocol.Compare) bool {
	for _, c := range compares {
		var created, modified int64
		if at, is := w.rows()[c.Key]; is {
			created, modified = 1, at.version
		} else if kv := w.etcd().Keys[c.Key]; kv != nil {
			created, modified = kv.Create, kv.Mod
		}
		if c.Target == protocol.CreateRevision && created != c.Revision || c.Target == protocol.ModRevision && modified != c.Revision {
			return false
		}
	}
	return true
}

// readAll carries reads out, of one key each or of all with a prefix.
func (w *world) readAll(ops []protocol.Op) []protocol.Read {
	out := make([]protocol.Read, len(ops))
	for i, o := range ops {
		names := []string{o.Key}
		if o.End != "" {
			names = w.etcd().With(o.Key)
			for _, key := range w.keys() {
				if strings.HasPrefix(key, o.Key) {
					names = append(names, key)
				}
			}
		}
		for _, key := range names {
			if at, is := w.rows()[key]; is {
				out[i].Keys = append(out[i].Keys, protocol.KV{Key: key, Value: protocol.Value{Message: at.record}, Create: 1, Mod: at.version})
			} else if kv := w.etcd().Keys[key]; kv != nil {
				out[i].Keys = append(out[i].Keys, protocol.KV{Key: key, Value: protocol.Value{Message: kv.Value}, Create: kv.Create, Mod: kv.Mod})
			}
		}
	}
	return out
}

// machine begins what a shard asks of the store, nil for what is no write.
func (c *call) machine() protocol.Machine {
	x := protocol.NewSession(keys, c.who, 0, c.fence, protocol.Value{}) // nobody writes its key again
	var m protocol.Machine
	var err error
	switch o := c.output.(type) {
	case event.WriteIntents:
		m, err = x.WriteIntents(o.N, o.Record, o.TableRevision, shardeffect.Fences(o))
	case event.DeleteIntents:
		m = x.DeleteIntents(shardeffect.IntentKeys(c.who, o))
	case event.RewriteIntents:
		m, err = x.RewriteIntents(shardeffect.IntentKey(o), o.Record, o.TableRevision)
	}
	if err != nil {
		fail("%s: %v", c.who, err)
	}
	return m
}

// read is what a takeover reads: both halves of the store at one revision.
func (w *world) read(o event.ReadStore) item {
	return w.reads.get(mix(w.store.sum, w.intents.sum, sumOf(o)), func() item {
		m := protocol.NewReadTakeover(keys, o.Buckets)
		w.drive(&call{from: "an heir"}, m)
		return itemOf(shardeffect.StoreRead(o.Sequence, &m.Takeover))
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

// intend writes or deletes one intent key.
func (w *world) intend(sum uint64, key string, record *wire.IntentsRecord) {
	old := w.rows()[key]
	w.intents = w.parts.tell(w.intents, mix(sum, w.of(key)), func(value any) []any {
		if rows := value.(*intents).Keys; record == nil {
			delete(rows, key)
		} else {
			rows[key] = intentKey{old.version + 1, record}
		}
		return nil
	}).to
	if record != nil {
		w.check.pods(w)
	}
	w.check.rewritten(w, key, old.record)
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

// never tells of a call that nobody waits for that it cannot take effect any more, whatever happens: what it compares only
// grows, or was there once and is gone. Without it the same state is there with and without each such call.
func (w *world) never(c *call) bool {
	gone := func(key string, created int64) bool {
		kv := w.etcd().Keys[key]
		return kv == nil || kv.Create != created
	}
	if c.txn != nil {
		seq, is := w.etcd().Keys[keys.Sequence()].Value.(*wire.Sequence)
		return gone(keys.Leader(), c.term) || is && seq.Term == uint64(c.term) && seq.Value >= c.txn.ID
	}
	pod := func(namespace, name, uid string) *corev1.Pod {
		if p := w.pod(namespace, name); p != nil && string(p.UID) == uid {
			return p
		}
		return nil
	}
	switch o := c.output.(type) {
	case event.WriteIntents, event.DeleteIntents, event.RewriteIntents:
		t, more := c.machine().Next()
		return !more || !w.hold(t.If) // what it compares never comes back
	case event.BindPod:
		p := pod(o.Namespace, o.Name, o.Row.PodUID)
		return p == nil || p.ResourceVersion != o.ResourceVersion || p.Spec.NodeName != "" || p.DeletionTimestamp != nil
	case event.ResolveBinding:
		return pod(o.Namespace, o.Name, o.Row.PodUID) == nil
	case event.EvictPod:
		return pod(o.Namespace, o.Name, o.UID) == nil
	}
	return false
}

// carry has a shard's call take effect; the answers are those of shard/server.
func (w *world) carry(c *call) item {
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
		m := c.machine().(*protocol.WriteIntents)
		w.drive(c, m)
		return itemOf(shardeffect.IntentsWritten(o, m.WriteResult, nil).Event)
	case event.DeleteIntents:
		m := c.machine().(*protocol.DeleteIntents)
		if w.drive(c, m); m.Err != nil {
			fail("%s: delete intents: %v", c.who, m.Err)
		}
		return itemOf(shardeffect.IntentsDeleted(m.Now(), nil).Event)
	case event.RewriteIntents:
		m := c.machine().(*protocol.RewriteIntents)
		w.drive(c, m)
		return itemOf(shardeffect.IntentsRewritten(o, m.RewriteResult, nil).Event)
	case event.BindPod:
		w.check.lands(w, o)
		return pod(o.Namespace, o.Name, func(a *model.API) any {
			return shardeffect.BindDone(o, a.Bind(bindingOf(o)))
		})
	case event.ResolveBinding:
		return pod(o.Namespace, o.Name, func(a *model.API) any {
			// The shell writes only where the pod still has the Binding's version. Here the write is always made, for edits
			// that come at that moment.
			p, err := a.PatchCondition(o.Namespace, o.Name, o.Row.PodUID, "", corev1.PodCondition{Type: api.ConditionBindingResolved, Status: corev1.ConditionTrue, Message: o.Value})
			if err != nil { // no pod of this UID
				return shardeffect.ResolveDone(o, shardeffect.Found{Gone: true}, nil)
			}
			return shardeffect.ResolveDone(o, shardeffect.Found{Node: p.Spec.NodeName, Version: p.ResourceVersion}, nil)
		})
	case event.EvictPod:
		m := protocol.NewReadReservation(keys, o.Bucket, o.GangUID)
		w.drive(c, m)
		if err := shardeffect.MayEvict(o, m.Evicts(o.Attempt, o.UID)); err != nil {
			return itemOf(shardeffect.StatusWritten(o.ID, "", err))
		}
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
// all of theirs, and controllers make again what was evicted. Before that the end of a claim is awaited, while whoever runs goes on. A
// way that meets one that ended well ends well, too.
func (w *world) finish(ended map[uint64]struct{}) {
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool { return c.from == "" })
	for _, sum := range w.goOn(ended) {
		ended[sum] = struct{}{}
	}
}

// goOn returns what it met, until the end, or something that is known to end well.
func (w *world) goOn(ended map[uint64]struct{}) (met []uint64) {
	phases := []func() string{w.left}
	if w.cfg.Claim != "" {
		phases = []func() string{w.unclaimed, w.left}
	}
	for n, toDo := range phases {
		for i := 0; ; i++ {
			w.quiet()
			sum := mix(w.sum(), uint64(n))
			if _, known := ended[sum]; known {
				return met
			}
			met = append(met, sum)
			left := toDo()
			if left == "" {
				break
			}
			if i == 1200 { // ten minutes
				w.stuck(left)
			}
			w.help(n == len(phases)-1)
			w.pass(500 * time.Millisecond)
			w.flush()
		}
	}
	return met
}

// stuck is an end that does not come.
func (w *world) stuck(left string) {
	for _, x := range w.shards {
		for _, g := range x.home.value.(*home.Core).Status().Gangs {
			left += fmt.Sprintf("; %s: gang %s is %s %s %s, bound %d of %d", x.inc, g.Gang.Uid, g.State, g.Reason, g.Message, g.Bound, g.MinCount)
		}
		left += fmt.Sprintf("; %s: %+v", x.inc, x.node.value.(*node.Core).Stats())
	}
	fail("after ten minutes without faults %s", left)
}

// help does what kubelets and controllers do: they have pods succeed whose gang has all of its own, if they may.
func (w *world) help(succeed bool) {
	now := int64(0)
	for g := range w.cfg.Gangs {
		for i := range w.cfg.Claim.pods(g) {
			p := w.pod("ns", podName(g, i))
			switch {
			case p == nil:
				w.makePod(g, i)
			case p.DeletionTimestamp != nil, model.Finished(p) && w.check.gangOf(p) != w.gangUID(g):
				w.delete(p, w.of("the kubelet deletes"), &now)
			case p.Spec.NodeName == "" && !maps.Equal(p.Labels, w.labels(g)):
				w.relabel(w.object(kindPod, p.Namespace, p.Name), w.labels(g))
			}
		}
	}
	if !succeed {
		return
	}
	started := map[string]int{} // pods that have a node, by gang
	for p := range w.pods {
		if p.Spec.NodeName != "" && p.DeletionTimestamp == nil {
			started[w.check.gangOf(p)]++
		}
	}
	for g := range w.cfg.Gangs {
		for i := range w.cfg.Claim.pods(g) {
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
		for i := range w.cfg.Claim.pods(g) {
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
		if st := x.node.value.(*node.Core).Stats(); st.Holds+st.Promises+st.Rows+st.Keys+st.Waiting > 0 {
			return fmt.Sprintf("%s has not settled: %+v", x.inc, st)
		}
	}
	if len(w.shards) < 2 || w.coord == nil {
		return "a process is missing"
	}
	return ""
}
