package audit_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// world feeds an Auditor the life of a small cluster: two shards, one coordinator, nodes of 4 cores, a queue "team.a" with
// a capability of 8 cores under "team" with 10.
type world struct {
	t        *testing.T
	a        *audit.Auditor
	now      time.Time
	revision int64
	seq      uint64
	term     uint64
	created  map[string]int64
	table    *api.Table
	version  int
}

const (
	shard1, shard2 = api.Incarnation("inc-1"), api.Incarnation("inc-2")
	gi             = int64(1) << 30
)

func newWorld(t *testing.T, cfg audit.Config) *world {
	w := &world{t: t, a: audit.New(cfg), now: time.Unix(1_700_000_000, 0), created: map[string]int64{}}
	w.put("leader/c/1", &wire.LeaderRecord{Incarnation: "coord"})
	w.term = uint64(w.revision)
	w.assign(func(b api.BucketID) int { return int(b % 2) })
	w.limits("team", 1, map[string]int64{"cpu": 10000})
	w.limits("team.a", 1, map[string]int64{"cpu": 8000, "memory": 8 * gi})
	w.a.Observe(w.now, audit.Listed[*v1.Pod]{})
	w.a.Observe(w.now, audit.PodGroupsReplaced{})
	for _, n := range []string{"n1", "n2"} {
		w.node(n, "4")
	}
	w.pass(500 * time.Millisecond)
	return w
}

// commit makes one revision; nil values are deletions.
func (w *world) commit(values map[string]proto.Message) {
	w.revision++
	e := audit.StoreRevision{Revision: w.revision}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		m := values[k]
		c := audit.StoreChange{Key: k, ModRevision: w.revision}
		switch raw, isRaw := m.(*wire.StoreIdentity); { // stands for bytes that are no record
		case m == nil:
			c.Deleted = true
			delete(w.created, k)
		case isRaw:
			c.Value = []byte(raw.GetId())
		default:
			b, err := proto.Marshal(m)
			if err != nil {
				w.t.Fatal(err)
			}
			c.Value = b
		}
		if !c.Deleted {
			if w.created[k] == 0 {
				w.created[k] = w.revision
			}
			c.CreateRevision = w.created[k]
		}
		e.Changes = append(e.Changes, c)
	}
	w.a.Observe(w.now, e)
}

func (w *world) put(key string, m proto.Message) { w.commit(map[string]proto.Message{key: m}) }

// coordinate commits with the coordinator's fence.
func (w *world) coordinate(values map[string]proto.Message) {
	w.seq++
	values["seq"] = &wire.Sequence{Value: w.seq, Term: w.term}
	w.commit(values)
}

func (w *world) assign(owner func(api.BucketID) int) {
	t := &api.Table{Epoch: 1, Members: []api.Member{{Incarnation: shard1, Name: "s1"}, {Incarnation: shard2, Name: "s2"}}}
	if w.table != nil {
		t.Epoch, t.Changed = w.table.Epoch+1, w.table.Changed
	}
	for b := range t.Owners {
		t.Owners[b] = uint16(owner(api.BucketID(b)))
		if w.table == nil || w.table.Owners[b] != t.Owners[b] {
			t.Changed[b] = t.Epoch
		}
	}
	w.table = t
	w.coordinate(map[string]proto.Message{"table": wire.FromTable(t)})
}

func (w *world) limits(queue string, generation int64, m map[string]int64) {
	w.coordinate(map[string]proto.Message{"queues/" + queue: &wire.LimitsRecord{Queue: queue, Uid: "u-" + queue, Generation: generation, Capability: wire.FromResources(api.FromMap(m))}})
}

func reservation(gang, queue string, attempt uint64, cpu int64, term uint64) *wire.ReservationRecord {
	return &wire.ReservationRecord{
		Gang: &wire.GangRef{Uid: gang, Namespace: "ns", Queue: queue}, Attempt: attempt, Term: term, State: wire.ReservationState_RESERVATION_OPEN,
		Demand: wire.FromResources(api.FromMap(map[string]int64{"cpu": cpu})),
	}
}

func key(gang, queue string) string {
	return "reservations/" + api.BucketOf(queue).Label() + "/" + gang
}

func (w *world) reserve(gang string, cpu int64, change ...func(*wire.ReservationRecord)) {
	r := reservation(gang, "team.a", 1, cpu, w.term)
	for _, f := range change {
		f(r)
	}
	w.coordinate(map[string]proto.Message{key(gang, r.Gang.Queue): r})
}

// ofUser makes a reservation a user's.
func ofUser(user string, groups ...string) func(*wire.ReservationRecord) {
	return func(r *wire.ReservationRecord) { r.User, r.Groups = user, groups }
}

// each lets everybody have so much.
func each(cpu int64) *wire.UserLimit {
	return &wire.UserLimit{Each: true, Capability: wire.FromResources(api.FromMap(map[string]int64{"cpu": cpu}))}
}

// limitUsers puts limits of users in force, and none for the queue.
func (w *world) limitUsers(queue string, limits ...*wire.UserLimit) {
	w.coordinate(map[string]proto.Message{"queues/" + queue: &wire.LimitsRecord{Queue: queue, Uid: "u-" + queue,
		Generation: 2, UserLimits: limits}})
}

// userQueue shows the Queue team, in which each user may have so many cores.
func (w *world) userQueue(cpu string) {
	w.a.Observe(w.now, audit.Seen[*v1beta1.Queue]{Object: &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "team",
		UID: "u-team", Finalizers: []string{v1beta1.FinalizerCharged}}, Spec: v1beta1.QueueSpec{
		UserLimits: []v1beta1.UserLimit{{Each: true, Capability: v1.ResourceList{"cpu": resource.MustParse(cpu)}}}}}})
	w.pass(time.Minute)
}

func (w *world) release(gang string) {
	w.coordinate(map[string]proto.Message{key(gang, "team.a"): nil})
}

func (w *world) owner(node string) string { return string(w.table.OwnerOf(node)) }

// intend writes the intents of one gang under a number.
func (w *world) intend(n int, gang string, cpu int64, where map[string]string, change ...func(*wire.IntentsRecord)) string {
	r := &wire.IntentsRecord{
		Gangs: []*wire.GangRef{{Uid: gang}}, TableEpoch: uint64(w.table.Epoch),
		Demands: []*wire.Demand{{Amounts: wire.FromResources(api.FromMap(map[string]int64{"cpu": cpu, "pods": 1}))}},
	}
	k := ""
	for _, p := range slices.Sorted(maps.Keys(where)) {
		r.Rows = append(r.Rows, &wire.IntentRow{PodUid: p, Node: where[p]})
		k = fmt.Sprintf("intents/%s/%016x", w.owner(where[p]), n)
	}
	for _, f := range change {
		f(r)
	}
	w.put(k, r)
	return k
}

func (w *world) node(name, cpu string) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Allocatable = v1.ResourceList{"cpu": resource.MustParse(cpu), "pods": resource.MustParse("10")}
	w.a.Observe(w.now, audit.Seen[*v1.Node]{Object: n})
}

func (w *world) pod(uid, cpu string, change ...func(*v1.Pod)) {
	w.version++
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "ns", Name: uid, ResourceVersion: fmt.Sprint(w.version)},
		Spec:       v1.PodSpec{SchedulerName: "basalt", Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse(cpu)}}}}},
	}
	for _, f := range change {
		f(p)
	}
	w.a.Observe(w.now, audit.Seen[*v1.Pod]{Object: p})
}

func on(node string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeName, p.Labels = node, map[string]string{api.LabelGang: "g"} }
}
func of(group string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		if p.Labels == nil {
			p.Labels = map[string]string{}
		}
		p.Labels[api.LabelPodGroup] = group
	}
}

type impliedGang struct{ gang string }

func (impliedGang) of(p *v1.Pod) {
	p.Annotations = map[string]string{api.AnnotationGangMin: "2"}
	p.OwnerReferences = []metav1.OwnerReference{{Name: "job", UID: "u", Controller: new(true)}}
}
func (g impliedGang) label(p *v1.Pod) { p.Labels[api.LabelGang] = g.gang }

func done(p *v1.Pod)    { p.Status.Phase = v1.PodSucceeded }
func foreign(p *v1.Pod) { p.Spec.SchedulerName = "other" }

func (w *world) gone(uid string) {
	w.a.Observe(w.now, audit.Gone[*v1.Pod]{Object: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}})
}

func (w *world) group(uid, name string, min int32) {
	w.a.Observe(w.now, audit.PodGroupSeen{PodGroup: &v1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "ns", Name: name},
		Spec:       v1beta1.PodGroupSpec{Queue: "team.a", SchedulingPolicy: v1beta1.SchedulingPolicy{Gang: v1beta1.GangSchedulingPolicy{MinCount: min}}},
	}})
}

func (w *world) status(epoch int64, writer string, sequence int64) {
	w.a.Observe(w.now, audit.Seen[*v1beta1.Queue]{Object: &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "team"},
		Status: &v1beta1.QueueStatus{Stamp: v1beta1.Stamp{Epoch: epoch, Writer: writer, Sequence: sequence}}}})
}

func (w *world) pass(d time.Duration) {
	for ; d > 0; d -= 500 * time.Millisecond {
		w.now = w.now.Add(500 * time.Millisecond)
		w.a.Observe(w.now, audit.Tick{})
	}
}

// Each check catches its fault, and the same scene without the fault is clean.
func TestAuditorCatches(t *testing.T) {
	placed := func(w *world) { // gang g: one pod of 2 cores on n1
		w.pod("g", "2")
		w.reserve("g", 2000, func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1}) })
		w.intend(1, "g", 2000, map[string]string{"g": "n1"})
		w.pod("g", "2", on("n1"))
	}
	cleared := func(w *world) { w.put("intents/"+w.owner("n1")+"/0000000000000001", nil) }
	pair := func(w *world, cpu string, min int32) { // a PodGroup gg of two pods
		w.group("gg", "job", min)
		w.pod("a", cpu, of("job"))
		w.pod("b", cpu, of("job"))
	}
	// implied makes two pods of a gang without an object; one of them is bound.
	implied := func(w *world, first bool) impliedGang {
		job := impliedGang{gang: api.ImpliedUID("ns", "job/u")}
		attempt, intents := uint64(1), 1
		if !first {
			attempt, intents = 2, 3
		}
		w.pod("b", "1", job.of)
		w.pod("a", "1", job.of)
		w.reserve(job.gang, 2000, func(r *wire.ReservationRecord) {
			r.Demand, r.Attempt = append(r.Demand, &wire.Amount{Resource: "pods", Value: 2}), attempt
		})
		w.intend(intents, job.gang, 1000, map[string]string{"a": "n1"})
		w.pod("a", "1", job.of, on("n1"), job.label)
		return job
	}
	driver := func(w *world, name v1.ResourceName, amount string) { // the first pod of a gang that is charged 4 cores
		g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{UID: "gg", Namespace: "ns", Name: "spark"}}
		g.Spec.SchedulingPolicy.Gang.MinCount = 1
		floor := v1.ResourceList{"cpu": resource.MustParse("4"), "count/pods": resource.MustParse("9")}
		floor[name] = resource.MustParse(amount)
		w.a.Observe(w.now, audit.PodGroupSeen{Kind: api.VolcanoGroup, PodGroup: g, Floor: floor})
		w.pod("driver", "2", func(p *v1.Pod) { p.Annotations = map[string]string{"scheduling.k8s.io/group-name": "spark"} })
		w.reserve("gg", 4000, func(r *wire.ReservationRecord) {
			r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1})
			r.Pods = []uint64{api.PodID("driver")}
			r.Gang.Single = false
		})
	}
	tests := []struct {
		name string
		want audit.Kind // "" for a clean report
		in   string     // of the message
		cfg  audit.Config
		run  func(w *world)
	}{
		// I1
		{"reservations fit", "", "", audit.Config{}, func(w *world) { w.reserve("a", 4000); w.reserve("b", 4000) }},
		{"reservations above the queue's capability", audit.Quota, "above the capability of 8", audit.Config{}, func(w *world) { w.reserve("a", 4000); w.reserve("b", 4001) }},
		{"reservations above an ancestor's", audit.Quota, "above the capability of 10", audit.Config{}, func(w *world) {
			w.reserve("a", 8000)
			w.reserve("b", 2001, func(r *wire.ReservationRecord) { r.Gang.Queue = "team.b" })
		}},
		{"a closing one counts", audit.Quota, "", audit.Config{}, func(w *world) {
			w.reserve("a", 4000)
			w.reserve("a", 4000, func(r *wire.ReservationRecord) { r.State = wire.ReservationState_RESERVATION_CLOSING })
			w.reserve("b", 4001)
		}},
		{"two changes in one revision are one state", "", "", audit.Config{}, func(w *world) {
			w.reserve("a", 8000)
			w.coordinate(map[string]proto.Message{key("a", "team.a"): nil, key("b", "team.a"): reservation("b", "team.a", 1, 8000, w.term)})
		}},
		{"a cut leaves what is there", "", "", audit.Config{}, func(w *world) {
			w.reserve("a", 4000)
			w.reserve("b", 4000)
			w.limits("team.a", 2, map[string]int64{"cpu": 2000})
			w.release("a")
		}},
		{"after a cut nothing grows", audit.Quota, "grew from 4 to 5", audit.Config{}, func(w *world) {
			w.reserve("a", 4000)
			w.limits("team.a", 2, map[string]int64{"cpu": 2000})
			w.reserve("b", 1000)
		}},
		{"a cut that was fitted once excuses no more", audit.Quota, "above the capability of 2", audit.Config{}, func(w *world) {
			w.reserve("a", 4000)
			w.limits("team.a", 2, map[string]int64{"cpu": 2000})
			w.release("a")
			w.reserve("b", 3000)
		}},
		{"forced may exceed", "", "", audit.Config{}, func(w *world) {
			w.reserve("a", 9000, func(r *wire.ReservationRecord) { r.Forced = true })
		}},
		{"nothing is admitted beside what exceeds", audit.Quota, "forced ones", audit.Config{}, func(w *world) {
			w.reserve("a", 9000, func(r *wire.ReservationRecord) { r.Forced = true })
			w.reserve("b", 1000)
		}},
		{"what is not forced any more was there before", "", "", audit.Config{}, func(w *world) {
			w.reserve("a", 5000, func(r *wire.ReservationRecord) { r.Forced = true })
			w.reserve("c", 6000, func(r *wire.ReservationRecord) { r.Forced = true })
			w.reserve("a", 4000)
		}},
		{"what is not forced any more and grew", audit.Quota, "forced ones", audit.Config{}, func(w *world) {
			w.reserve("a", 3000, func(r *wire.ReservationRecord) { r.Forced = true })
			w.reserve("c", 9000, func(r *wire.ReservationRecord) { r.Forced = true })
			w.reserve("a", 4000)
		}},
		// I28
		{"a user within the limit", "", "", audit.Config{}, func(w *world) {
			w.limitUsers("team", each(4000))
			w.reserve("a", 4000, ofUser("alice"))
			w.reserve("b", 4000, ofUser("bob"))
			w.pass(7 * time.Second)
		}},
		{"a user above the limit of an ancestor", audit.Quota, "user alice then has 4001, and may have 4000", audit.Config{},
			func(w *world) {
				w.limitUsers("team", each(4000))
				w.reserve("a", 4000, ofUser("alice"))
				w.reserve("b", 1, ofUser("alice"))
				w.pass(7 * time.Second)
			}},
		{"the accounts of a namespace are one user", audit.Quota, "user namespace ns then has 4001", audit.Config{},
			func(w *world) {
				w.limitUsers("team.a", each(4000))
				w.reserve("a", 4000)
				w.reserve("b", 1)
				w.pass(7 * time.Second)
			}},
		{"a group together", audit.Quota, "groups of entry 0 then has 4001", audit.Config{}, func(w *world) {
			w.limitUsers("team.a", &wire.UserLimit{Groups: []string{"interns"}, Capability: each(4000).Capability}, each(9000))
			w.reserve("a", 4000, ofUser("alice", "staff", "interns"))
			w.reserve("b", 1, ofUser("bob", "interns"))
			w.pass(7 * time.Second)
		}},
		{"the first entry counts", "", "", audit.Config{}, func(w *world) {
			w.limitUsers("team.a", &wire.UserLimit{Users: []string{"alice"}, Capability: each(9000).Capability}, each(1))
			w.reserve("a", 4000, ofUser("alice"))
			w.reserve("b", 4000, ofUser("alice"))
			w.pass(7 * time.Second)
		}},
		{"a user's limit is lowered, and the gang shrinks", "", "", audit.Config{}, func(w *world) {
			w.reserve("a", 4000, ofUser("alice"))
			w.limitUsers("team.a", each(1000))
			w.reserve("a", 3000, ofUser("alice"))
			w.pass(7 * time.Second)
		}},
		{"another user under one attempt", audit.Reservation, "was charged to alice, and is charged to bob", audit.Config{},
			func(w *world) {
				w.reserve("a", 4000, ofUser("alice"))
				w.reserve("a", 4000, ofUser("bob"))
			}},
		{"another user with the next attempt", "", "", audit.Config{}, func(w *world) {
			w.reserve("a", 4000, ofUser("alice"))
			w.release("a")
			w.reserve("a", 4000, ofUser("bob"), func(r *wire.ReservationRecord) { r.Attempt = 2 })
		}},
		{"limits of users that are not in force", audit.Limits, "the limits of users are", audit.Config{}, func(w *world) {
			w.limitUsers("team", each(4000))
			w.userQueue("4")
			w.userQueue("5")
		}},
		{"limits go back", audit.Quota, "generation 3 were replaced", audit.Config{}, func(w *world) {
			w.limits("team.a", 3, nil)
			w.limits("team.a", 2, nil)
		}},
		{"bound pods above the capability", audit.Quota, "bound pods of 12", audit.Config{Grace: time.Hour}, func(w *world) {
			pair(w, "6", 2)
			w.node("n1", "100")
			w.reserve("gg", 8000)
			w.intend(1, "gg", 6000, map[string]string{"a": "n1", "b": "n1"})
			w.pod("a", "6", of("job"), on("n1"), of("job"))
			w.pod("b", "6", of("job"), on("n1"), of("job"))
			w.pass(3 * time.Second)
		}},

		// I2
		{"two reservations of a gang", audit.Reservation, "and one in", audit.Config{}, func(w *world) {
			w.reserve("a", 1000)
			w.reserve("a", 1000, func(r *wire.ReservationRecord) { r.Gang.Queue = "other" })
		}},
		{"open again", audit.Reservation, "open again", audit.Config{}, func(w *world) {
			w.reserve("a", 1000, func(r *wire.ReservationRecord) { r.State = wire.ReservationState_RESERVATION_CLOSING })
			w.reserve("a", 1000)
		}},
		{"open again under a new attempt, for pods that cannot be evicted", "", "", audit.Config{}, func(w *world) {
			w.reserve("a", 2000, func(r *wire.ReservationRecord) { r.State = wire.ReservationState_RESERVATION_CLOSING })
			w.reserve("a", 1000, func(r *wire.ReservationRecord) { r.Attempt++ })
		}},
		{"open again under a new attempt, and more", audit.Reservation, "grew by 1 of cpu", audit.Config{}, func(w *world) {
			w.reserve("a", 1000, func(r *wire.ReservationRecord) { r.State = wire.ReservationState_RESERVATION_CLOSING })
			w.reserve("a", 2000, func(r *wire.ReservationRecord) { r.Attempt++ })
		}},
		{"a closing one grows", audit.Reservation, "grew by 1 of cpu", audit.Config{}, func(w *world) {
			closing := func(r *wire.ReservationRecord) { r.State = wire.ReservationState_RESERVATION_CLOSING }
			w.reserve("a", 1000, closing)
			w.reserve("a", 2000, closing)
		}},
		{"made again with a larger attempt", "", "", audit.Config{}, func(w *world) {
			w.reserve("a", 1000)
			w.release("a")
			w.reserve("a", 1000, func(r *wire.ReservationRecord) { r.Attempt = 2 })
		}},
		{"made again with the same attempt", audit.Reservation, "again with attempt 1", audit.Config{}, func(w *world) {
			w.reserve("a", 1000)
			w.release("a")
			w.reserve("a", 1000)
		}},
		{"made again in another queue, whose home counts by itself", "", "", audit.Config{}, func(w *world) {
			w.reserve("a", 1000, func(r *wire.ReservationRecord) { r.Attempt = 7 })
			w.release("a")
			w.reserve("a", 1000, func(r *wire.ReservationRecord) { r.Gang.Queue = "team.b" })
		}},
		{"made again in its first queue with a smaller attempt", audit.Reservation, "again with attempt 3 after attempt 7", audit.Config{}, func(w *world) {
			w.reserve("a", 1000, func(r *wire.ReservationRecord) { r.Attempt = 7 })
			w.release("a")
			w.reserve("a", 1000, func(r *wire.ReservationRecord) { r.Gang.Queue = "team.b" })
			w.coordinate(map[string]proto.Message{key("a", "team.b"): nil})
			w.reserve("a", 1000, func(r *wire.ReservationRecord) { r.Attempt = 3 })
		}},
		{"attempt goes back", audit.Reservation, "from attempt 3 back", audit.Config{}, func(w *world) {
			w.reserve("a", 1000, func(r *wire.ReservationRecord) { r.Attempt = 3 })
			w.reserve("a", 1000)
		}},
		{"in a bucket that is not its queue's", audit.Reservation, "lies in bucket", audit.Config{}, func(w *world) {
			w.coordinate(map[string]proto.Message{"reservations/0000/a": reservation("a", "team.a", 1, 1, w.term)})
		}},
		{"charged to another queue than the group's", audit.Reservation, "its PodGroup names team.a", audit.Config{}, func(w *world) {
			w.group("gg", "job", 1)
			w.reserve("gg", 1, func(r *wire.ReservationRecord) { r.Gang.Queue = "team.b" })
		}},

		// I3
		{"the next leader", "", "", audit.Config{}, func(w *world) {
			w.put("leader/c/2", &wire.LeaderRecord{})
			next := uint64(w.revision)
			w.reserve("a", 1000) // the waiting one leads only when the first is gone
			w.put("leader/c/1", nil)
			w.term = next
			w.reserve("b", 1000)
		}},
		{"a write of the old leader", audit.Term, "while the leader's is", audit.Config{}, func(w *world) {
			w.put("leader/c/1", nil)
			w.put("leader/c/2", &wire.LeaderRecord{})
			w.reserve("a", 1000)
		}},
		{"a term goes back", audit.Term, "after a write of term", audit.Config{}, func(w *world) {
			w.put("leader/c/1", nil)
			w.put("leader/c/2", &wire.LeaderRecord{})
			old := w.term
			w.term = uint64(w.revision)
			w.reserve("a", 1000)
			w.term = old
			w.reserve("b", 1000)
		}},
		{"a write when nobody leads", audit.Term, "while nobody leads", audit.Config{}, func(w *world) {
			w.put("leader/c/1", nil)
			w.reserve("a", 1000)
		}},
		{"a write without the fence", audit.Term, "without the coordinator's sequence", audit.Config{}, func(w *world) {
			w.put(key("a", "team.a"), reservation("a", "team.a", 1, 1, w.term))
		}},
		{"the table of a restored store is marked", "", "", audit.Config{}, func(w *world) {
			w.put("store", &wire.StoreIdentity{Id: "before"})
			w.table.Epoch++
			w.table.Refilling = true
			w.commit(map[string]proto.Message{"store": &wire.StoreIdentity{Id: "after"}, "table": wire.FromTable(w.table)})
		}},
		{"a reservation beside a new identity", audit.Term, "without the coordinator's sequence", audit.Config{}, func(w *world) {
			w.put("store", &wire.StoreIdentity{Id: "before"})
			w.commit(map[string]proto.Message{"store": &wire.StoreIdentity{Id: "after"}, key("a", "team.a"): reservation("a", "team.a", 1, 1, w.term)})
		}},
		{"an operator empties the store", "", "", audit.Config{}, func(w *world) {
			w.put("store", &wire.StoreIdentity{Id: "before"})
			w.reserve("a", 1000)
			w.commit(map[string]proto.Message{"store": nil, "seq": nil, "table": nil, key("a", "team.a"): nil})
			w.put("store", &wire.StoreIdentity{Id: "after"})
			w.seq = 0
			w.coordinate(map[string]proto.Message{"table": wire.FromTable(w.table)})
			w.reserve("a", 1000)
		}},
		{"the table vanishes alone", audit.Table, "the table was deleted", audit.Config{}, func(w *world) { w.coordinate(map[string]proto.Message{"table": nil}) }},
		{"the sequence stands still", audit.Term, "went from", audit.Config{}, func(w *world) {
			w.reserve("a", 1000)
			w.seq--
			w.reserve("b", 1000)
		}},

		// Tables
		{"buckets move", "", "", audit.Config{}, func(w *world) { w.assign(func(b api.BucketID) int { return 0 }) }},
		{"an epoch comes again", audit.Table, "epoch 1 was followed by epoch 1", audit.Config{}, func(w *world) {
			w.table.Epoch--
			w.assign(func(b api.BucketID) int { return int(b % 2) })
		}},
		{"a bucket moves unmarked", audit.Table, "is said to have changed hands", audit.Config{}, func(w *world) {
			w.table.Owners[7] = 0
			w.table.Epoch++
			w.coordinate(map[string]proto.Message{"table": wire.FromTable(w.table)})
		}},

		// I7 and what intents need
		{"a pod is placed", "", "", audit.Config{}, func(w *world) { placed(w); cleared(w); w.pass(2 * time.Minute) }},
		{"intents of an old epoch", audit.Intent, "table epoch 1, the table has epoch 2", audit.Config{}, func(w *world) {
			w.reserve("g", 2000)
			w.table.Epoch++
			w.coordinate(map[string]proto.Message{"table": wire.FromTable(w.table)})
			w.intend(1, "g", 2000, map[string]string{"g": "n1"}, func(r *wire.IntentsRecord) { r.TableEpoch-- })
		}},
		{"intents for a node of another", audit.Intent, "which belongs to", audit.Config{}, func(w *world) {
			w.reserve("g", 2000)
			k := w.intend(1, "g", 2000, map[string]string{"g": "n1"})
			w.assign(func(b api.BucketID) int { return 1 - int(b%2) })
			w.put(strings.Replace(k, "0001", "0002", 1), &wire.IntentsRecord{Gangs: []*wire.GangRef{{Uid: "g"}}, Demands: []*wire.Demand{{}}, TableEpoch: 2, Rows: []*wire.IntentRow{{PodUid: "g", Node: "n1"}}})
		}},
		{"intents without a reservation", audit.Intent, "no reservation", audit.Config{}, func(w *world) { w.intend(1, "g", 2000, map[string]string{"g": "n1"}) }},
		{"intents of a closing gang", audit.Intent, "which is closing", audit.Config{}, func(w *world) {
			w.reserve("g", 2000, func(r *wire.ReservationRecord) { r.State = wire.ReservationState_RESERVATION_CLOSING })
			w.intend(1, "g", 2000, map[string]string{"g": "n1"})
		}},
		{"intents given up, then late", audit.Intent, "that it did not have", audit.Config{}, func(w *world) {
			w.reserve("g", 2000)
			w.put("intents/"+w.owner("n1")+"/0000000000000001", &wire.IntentsRecord{})
			w.intend(1, "g", 2000, map[string]string{"g": "n1"})
		}},
		{"intents removed, then late", audit.Intent, "wrote number 1", audit.Config{}, func(w *world) {
			placed(w)
			cleared(w)
			w.intend(1, "g", 2000, map[string]string{"g": "n1"})
		}},
		{"an heir removes rows", "", "", audit.Config{}, func(w *world) {
			w.reserve("g", 2000)
			w.intend(1, "g", 1000, map[string]string{"a": "n1", "b": "n1"})
			w.intend(1, "g", 1000, map[string]string{"b": "n1"})
		}},
		{"intents stay", audit.Leak, "intents unresolved since", audit.Config{}, func(w *world) { placed(w); w.pass(62 * time.Second) }},

		// I4
		{"a pod changes nodes", audit.Binding, "was on node n1", audit.Config{}, func(w *world) { placed(w); w.pod("g", "2", on("n2")) }},
		{"our binding without an intent", audit.Binding, "no intent of it was ever seen", audit.Config{}, func(w *world) {
			w.pod("g", "2")
			w.reserve("g", 2000)
			w.pod("g", "2", on("n1"))
			w.pass(6 * time.Second)
		}},
		{"a pod that its tenant made with a node and our label", "", "", audit.Config{}, func(w *world) {
			w.reserve("g", 2000, func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1}) })
			w.pod("g", "2", on("n1"))
			w.pass(6 * time.Second)
		}},
		{"somebody else's binding of our pod", "", "", audit.Config{}, func(w *world) {
			w.pod("g", "2", func(p *v1.Pod) { p.Spec.NodeName = "n1" })
			w.pass(6 * time.Second)
		}},
		{"an intent that reaches us late", "", "", audit.Config{}, func(w *world) {
			w.reserve("g", 2000)
			w.pod("g", "2", on("n1"))
			w.pass(time.Second)
			w.intend(1, "g", 2000, map[string]string{"g": "n1"})
			w.pass(6 * time.Second)
		}},

		{"an intent that is gone before its pod is seen", "", "", audit.Config{}, func(w *world) {
			w.reserve("g", 2000, func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1}) })
			w.intend(1, "g", 2000, map[string]string{"g": "n1"})
			cleared(w)
			w.pass(3 * time.Second)
			w.pod("g", "2", on("n1"))
			w.pass(40 * time.Second)
		}},

		// I5
		{"a full node", "", "", audit.Config{Grace: time.Hour}, func(w *world) {
			w.reserve("g", 4000)
			w.intend(1, "g", 2000, map[string]string{"a": "n1", "b": "n1"})
			w.pass(10 * time.Second)
		}},
		{"intents for more than a node has", audit.Overcommit, "intents 5", audit.Config{}, func(w *world) {
			w.reserve("g", 5000)
			w.intend(1, "g", 2500, map[string]string{"a": "n1", "b": "n1"})
			w.pass(3 * time.Second)
		}},
		{"room that was made before we heard", "", "", audit.Config{Grace: time.Hour}, func(w *world) {
			placed(w)
			w.reserve("h", 3000)
			w.intend(2, "h", 3000, map[string]string{"h": "n1"})
			w.pass(time.Second)
			w.pod("g", "2", on("n1"), done)
			w.pass(10 * time.Second)
		}},
		{"bound for a moment to more than a node has", audit.Overcommit, "bound pods take 5", audit.Config{}, func(w *world) {
			placed(w)
			w.reserve("h", 3000)
			w.intend(2, "h", 3000, map[string]string{"h": "n1"})
			w.pod("h", "3", on("n1"))
			w.pod("h", "3", on("n1"), done)
			w.pass(3 * time.Second)
		}},
		{"a node that grew before we heard", "", "", audit.Config{}, func(w *world) {
			placed(w)
			w.reserve("h", 3000)
			w.intend(2, "h", 3000, map[string]string{"h": "n1"})
			w.pod("h", "3", on("n1"))
			w.node("n1", "6")
			w.pass(3 * time.Second)
		}},
		{"a node that shrinks", "", "", audit.Config{Grace: time.Hour}, func(w *world) { placed(w); w.node("n1", "1"); w.pass(10 * time.Second) }},
		{"a node that comes after its pods", "", "", audit.Config{Grace: time.Hour}, func(w *world) {
			w.reserve("g", 5000)
			w.intend(1, "g", 5000, map[string]string{"g": "n3"})
			w.pod("g", "5", on("n3"))
			w.node("n3", "4")
			w.pass(10 * time.Second)
		}},
		{"more for a node that shrank", audit.Overcommit, "", audit.Config{Grace: time.Hour}, func(w *world) {
			placed(w)
			w.node("n1", "1")
			w.pass(10 * time.Second)
			w.reserve("h", 100)
			w.intend(2, "h", 100, map[string]string{"h": "n1"})
			w.pass(3 * time.Second)
		}},
		{"foreign pods in excess", "", "", audit.Config{Grace: time.Hour}, func(w *world) {
			placed(w)
			w.pod("f", "3", func(p *v1.Pod) { foreign(p); p.Spec.NodeName = "n1" })
			w.pass(10 * time.Second)
		}},
		{"foreign pods alone in excess, of what the node does not have", "", "", audit.Config{Grace: time.Hour}, func(w *world) {
			w.pass(10 * time.Second)
			w.pod("f", "1", func(p *v1.Pod) {
				foreign(p)
				p.Spec.NodeName, p.Spec.Containers[0].Resources.Requests["example.com/x"] = "n1", resource.MustParse("1")
			})
			w.pass(time.Minute)
		}},
		{"room that foreign pods have long had", audit.Overcommit, "foreign pods take 3", audit.Config{Grace: time.Hour}, func(w *world) {
			w.pod("f", "3", func(p *v1.Pod) { foreign(p); p.Spec.NodeName = "n1" })
			w.pass(10 * time.Second)
			placed(w)
			w.pass(3 * time.Second)
		}},
		{"the same pod tried on two nodes", "", "", audit.Config{Grace: time.Hour}, func(w *world) {
			w.pod("g", "4")
			w.reserve("g", 4000)
			w.intend(1, "g", 4000, map[string]string{"g": "n1"})
			w.intend(2, "g", 4000, map[string]string{"g": "n2"})
			w.pod("g", "4", on("n2"))
			w.reserve("h", 4000)
			w.intend(3, "h", 4000, map[string]string{"h": "n1"})
			w.pass(10 * time.Second)
		}},

		// I6
		{"a gang without its minimum", audit.Partial, "1 of at least 2", audit.Config{}, func(w *world) {
			pair(w, "1", 2)
			w.reserve("gg", 2000, func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 2}) })
			w.intend(1, "gg", 1000, map[string]string{"a": "n1"})
			w.pod("a", "1", on("n1"), of("job"))
			w.pass(31 * time.Second)
		}},
		{"a gang that only its pods describe, without its minimum", audit.Partial, "1 of at least 2", audit.Config{}, func(w *world) {
			implied(w, true)
			w.pass(31 * time.Second)
		}},
		{"a gang that only its pods describe, again after its end", audit.Partial, "1 of at least 2", audit.Config{}, func(w *world) {
			job := implied(w, true)
			w.intend(2, job.gang, 1000, map[string]string{"b": "n1"})
			w.pod("b", "1", job.of, on("n1"), job.label)
			w.gone("a")
			w.gone("b")
			w.put("intents/"+w.owner("n1")+"/0000000000000002", nil)
			cleared(w)
			w.release(job.gang)
			implied(w, false)
			w.pass(31 * time.Second)
		}},
		{"a gang that only its pods describe, completed, and less since", "", "", audit.Config{}, func(w *world) {
			job := implied(w, true)
			w.intend(2, job.gang, 1000, map[string]string{"b": "n1"})
			w.pod("b", "1", job.of, on("n1"), job.label)
			w.gone("a")
			cleared(w)
			w.put("intents/"+w.owner("n1")+"/0000000000000002", nil)
			w.reserve(job.gang, 1000, func(r *wire.ReservationRecord) {
				r.Demand, r.Started = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1}), true
			})
			w.pass(time.Minute)
		}},
		{"a gang that was completed in time", "", "", audit.Config{}, func(w *world) {
			pair(w, "1", 2)
			w.reserve("gg", 2000, func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 2}) })
			w.intend(1, "gg", 1000, map[string]string{"a": "n1", "b": "n1"})
			w.pod("a", "1", on("n1"), of("job"))
			w.pass(20 * time.Second)
			w.pod("b", "1", on("n1"), of("job"))
			w.pod("b", "1", on("n1"), of("job"), done)
			cleared(w)
			w.reserve("gg", 1000, func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1}) })
			w.pass(time.Minute)
		}},
		{"a gang that was undone in time", "", "", audit.Config{}, func(w *world) {
			pair(w, "1", 2)
			w.reserve("gg", 2000)
			w.intend(1, "gg", 1000, map[string]string{"a": "n1"})
			w.pod("a", "1", on("n1"), of("job"))
			w.gone("a")
			cleared(w)
			w.release("gg")
			w.pass(time.Minute)
		}},

		// I8
		{"statuses in order", "", "", audit.Config{}, func(w *world) { w.status(1, "x", 1); w.status(1, "x", 2); w.status(2, "y", 1) }},
		{"two writers in an epoch", audit.Status, "two writers", audit.Config{}, func(w *world) { w.status(1, "x", 1); w.status(1, "y", 2) }},
		{"an epoch goes back", audit.Status, "back to epoch 1", audit.Config{}, func(w *world) { w.status(2, "x", 1); w.status(1, "x", 2) }},
		{"a sequence goes back", audit.Status, "sequence 2 back to 1", audit.Config{}, func(w *world) { w.status(1, "x", 2); w.status(1, "x", 1) }},

		// I9
		{"a reservation without pods", audit.Leak, "no unfinished pod", audit.Config{}, func(w *world) { w.reserve("g", 1000); w.pass(31 * time.Second) }},
		{"a reservation of finished pods", audit.Leak, "no unfinished pod", audit.Config{}, func(w *world) {
			placed(w)
			cleared(w)
			w.pod("g", "2", on("n1"), done)
			w.pass(31 * time.Second)
		}},
		{"bound pods without a reservation", audit.Leak, "no reservation", audit.Config{}, func(w *world) {
			placed(w)
			cleared(w)
			w.release("g")
			w.pass(31 * time.Second)
		}},
		{"bound pods above their charge", audit.Leak, "is charged", audit.Config{}, func(w *world) {
			placed(w)
			cleared(w)
			w.reserve("g", 1000)
			w.pass(31 * time.Second)
		}},
		{"minResources of a Volcano PodGroup explain a charge", "", "", audit.Config{Volcano: true}, func(w *world) { driver(w, "requests.cpu", "9"); w.pass(31 * time.Second) }},
		{"a charge above minResources", audit.Leak, "its unfinished pods ask for cpu=3", audit.Config{Volcano: true}, func(w *world) {
			driver(w, "cpu", "3")
			w.pass(31 * time.Second)
		}},
		{"a reservation for pods that are to come", "", "", audit.Config{Volcano: true}, func(w *world) {
			driver(w, "cpu", "4")
			w.gone("driver")
			w.pass(5 * time.Minute)
		}},
		{"a reservation for pods that do not come", audit.Leak, "has 0 of 1 pods", audit.Config{Volcano: true}, func(w *world) {
			driver(w, "cpu", "4")
			w.gone("driver")
			w.pass(7 * time.Minute)
		}},
		{"a charge that pods no longer explain", audit.Leak, "its unfinished pods ask for", audit.Config{}, func(w *world) {
			pair(w, "1", 2)
			w.reserve("gg", 2000)
			w.gone("a")
			w.pass(151 * time.Second)
		}},
		{"a charge that is kept for a pod that was lost", "", "", audit.Config{}, func(w *world) {
			pair(w, "1", 2)
			w.reserve("gg", 2000)
			w.gone("a")
			w.pass(2 * time.Minute)
		}},
		{"a group made again under its name", "", "", audit.Config{}, func(w *world) {
			pair(w, "1", 2)
			w.reserve("gg", 2000)
			w.a.Observe(w.now, audit.PodGroupGone{PodGroup: &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{UID: "gg"}}})
			w.release("gg")
			w.group("hh", "job", 2)
			w.reserve("hh", 2000)
			w.pass(time.Minute)
		}},

		// Records
		{"a corrupt reservation", audit.Record, "cannot be read", audit.Config{}, func(w *world) {
			w.coordinate(map[string]proto.Message{key("a", "team.a"): &wire.StoreIdentity{Id: "\xff\xff"}})
		}},
		{"corrupt intents", audit.Record, "names gang 7 of 1", audit.Config{}, func(w *world) {
			w.reserve("g", 1)
			w.intend(1, "g", 1, map[string]string{"g": "n1"}, func(r *wire.IntentsRecord) { r.Rows[0].Gang = 7 })
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, test.cfg)
			test.run(w)
			r := w.a.Report()
			if test.want == "" {
				if r.Sum() != 0 {
					t.Fatalf("found %v", r.Violations)
				}
				return
			}
			if r.Counts[test.want] == 0 || r.Sum() != r.Counts[test.want] {
				t.Fatalf("want only %s, found %v", test.want, r.Violations)
			}
			if !slices.ContainsFunc(r.Violations, func(v audit.Violation) bool { return strings.Contains(v.Message, test.in) }) {
				t.Errorf("want a message with %q, found %v", test.in, r.Violations)
			}
		})
	}
}

// Who comes late judges only what gets worse.
func TestAuditorComesLate(t *testing.T) {
	a := audit.New(audit.Config{})
	now := time.Unix(1_700_000_000, 0)
	marshal := func(m proto.Message) []byte {
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	r := reservation("g", "team.a", 4, 9000, 3)
	r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1})
	a.Observe(now, audit.StoreRevision{Revision: 50, Snapshot: true, Changes: []audit.StoreChange{
		{Key: "leader/c/1", Value: marshal(&wire.LeaderRecord{}), CreateRevision: 3, ModRevision: 3},
		{Key: "seq", Value: marshal(&wire.Sequence{Value: 20, Term: 3}), CreateRevision: 4, ModRevision: 40},
		{Key: "queues/team.a", Value: marshal(&wire.LimitsRecord{Queue: "team.a", Capability: wire.FromResources(api.FromMap(map[string]int64{"cpu": 8000}))}), ModRevision: 10, CreateRevision: 10},
		{Key: key("g", "team.a"), Value: marshal(r), ModRevision: 11, CreateRevision: 11},
	}})
	bound := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "g", Namespace: "ns", Name: "g"}, Spec: v1.PodSpec{SchedulerName: "basalt", NodeName: "n1",
		Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("9")}}}}}}
	on("n1")(bound)
	a.Observe(now, audit.Listed[*v1.Pod]{Objects: []*v1.Pod{bound}})
	for range 200 {
		now = now.Add(time.Second)
		a.Observe(now, audit.Tick{})
	}
	if got := a.Report(); got.Sum() != 0 {
		t.Fatalf("found %v", got.Violations)
	}
	a.Observe(now, audit.StoreRevision{Revision: 51, Changes: []audit.StoreChange{
		{Key: "seq", Value: marshal(&wire.Sequence{Value: 21, Term: 3}), CreateRevision: 4, ModRevision: 51},
		{Key: key("h", "team.a"), Value: marshal(reservation("h", "team.a", 1, 1, 3)), CreateRevision: 51, ModRevision: 51},
	}})
	if got := a.Report(); got.Counts[audit.Quota] != 1 || got.Sum() != 1 {
		t.Fatalf("want one quota violation, found %v", got.Violations)
	}
}
