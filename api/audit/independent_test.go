package audit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"

	"google.golang.org/protobuf/proto"
)

// queue shows the Queue team.a.
func (w *world) queue(change ...func(*v1beta1.Queue)) {
	q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: "team.a", UID: "u-team.a", Generation: 1, Finalizers: []string{v1beta1.FinalizerCharged}}}
	q.Spec.Capability = v1.ResourceList{"cpu": resource.MustParse("8"), "memory": resource.MustParse("8Gi")}
	for _, f := range change {
		f(q)
	}
	w.a.Observe(w.now, audit.Seen[*v1beta1.Queue]{Object: q})
}

// says gives the Queue a status.
func says(cpu string, gangs int32, sequence int64) func(*v1beta1.Queue) {
	return func(q *v1beta1.Queue) {
		q.Status = &v1beta1.QueueStatus{Stamp: v1beta1.Stamp{Epoch: 1, Writer: "w", Sequence: sequence}, AdmittedGangs: gangs,
			Charged: v1.ResourceList{"cpu": resource.MustParse(cpu)}}
	}
}

// shows replaces what a node is like.
func (w *world) shows(name string, change func(*v1.Node)) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1.NodeStatus{Allocatable: v1.ResourceList{"cpu": resource.MustParse("4"), "pods": resource.MustParse("10")}}}
	change(n)
	w.a.Observe(w.now, audit.Seen[*v1.Node]{Object: n})
}

// bind takes a gang of one through its whole way, and lets what lasts be judged.
func (w *world) bind(n int, uid, node string, change ...func(*v1.Pod)) {
	w.pod(uid, "1", change...)
	w.reserve(uid, 1000, func(r *wire.ReservationRecord) {
		r.Demand, r.Gang.Single = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1}), true
	})
	k := w.intend(n, uid, 1000, map[string]string{uid: node})
	w.pod(uid, "1", append(change, on(node))...)
	w.put(k, nil)
	w.pass(10 * time.Second)
}

func condition(kind v1.PodConditionType, status v1.ConditionStatus, reason, message string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

func TestAuditorJudgesByItself(t *testing.T) {
	hostPort := func(p *v1.Pod) { p.Spec.Containers[0].Ports = []v1.ContainerPort{{HostPort: 80}} }
	wants := func(key, value string) func(*v1.Pod) {
		return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{key: value} }
	}
	asks := func(cpu string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Labels = map[string]string{api.LabelQueue: "team.a"}
			p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse(cpu)
		}
	}
	denied := condition(v1.PodScheduled, v1.ConditionFalse, v1beta1.ReasonQuotaExceeded, "queue full")
	// halfASecondLater is a gang that is made half a second after one that waits, which is made so long after a second
	// began, and that is admitted before it.
	halfASecondLater := func(w *world, old time.Duration) {
		w.now = w.now.Truncate(time.Second).Add(time.Second + old)
		w.pod("old", "1", asks("1"), denied)
		w.pass(500 * time.Millisecond)
		w.pod("young", "1", asks("1"))
		w.pass(4 * time.Minute)
		w.reserve("young", 1000, func(r *wire.ReservationRecord) {
			r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1})
		})
	}
	evictedByUs := condition(v1.DisruptionTarget, v1.ConditionTrue, v1beta1.ReasonRolledBack, "PodGroup ns/job could not be placed as a whole within 20s")
	guaranteed := func(w *world) { // of 10 cores of team, 4 are kept free for team.b
		w.coordinate(map[string]proto.Message{"queues/team.b": &wire.LimitsRecord{Queue: "team.b", Guarantee: wire.FromResources(api.FromMap(map[string]int64{"cpu": 4000}))}})
	}
	tests := []struct {
		name string
		want audit.Kind // "" for a clean report
		in   string
		run  func(w *world)
	}{
		{"limits in force are those of the Queue", "", "", func(w *world) { w.queue(); w.pass(2 * time.Minute) }},
		{"a change that has not come into force yet", "", "", func(w *world) {
			w.queue()
			w.pass(time.Minute)
			w.queue(func(q *v1beta1.Queue) { q.Spec.Capability["cpu"] = resource.MustParse("2") })
			w.pass(20 * time.Second)
			w.limits("team.a", 2, map[string]int64{"cpu": 2000, "memory": 8 * gi})
			w.pass(time.Minute)
		}},
		{"a change that does not come into force", audit.Limits, "in force is {cpu=8", func(w *world) {
			w.queue(func(q *v1beta1.Queue) { q.Spec.Capability["cpu"] = resource.MustParse("2") })
			w.pass(2 * time.Minute)
		}},
		{"a guarantee that is not in force", audit.Limits, "the guarantee is {cpu=1}", func(w *world) {
			w.queue(func(q *v1beta1.Queue) { q.Spec.Guarantee = v1.ResourceList{"cpu": resource.MustParse("1")} })
			w.pass(2 * time.Minute)
		}},
		{"a selector that is not in force", audit.Limits, "namespaceSelector", func(w *world) {
			w.queue(func(q *v1beta1.Queue) {
				q.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}
			})
			w.pass(2 * time.Minute)
		}},
		{"a Queue that was made again and has the limits of the one before", audit.Limits, "an earlier Queue", func(w *world) {
			w.queue(func(q *v1beta1.Queue) { q.UID = "another" })
			w.pass(2 * time.Minute)
		}},
		{"a Queue that is told to be invalid", "", "", func(w *world) {
			w.queue(says("0", 0, 1), func(q *v1beta1.Queue) {
				q.Spec.Capability["cpu"] = resource.MustParse("2")
				q.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonInvalid}}
			})
			w.pass(2 * time.Minute)
		}},

		{"a status says what is charged", "", "", func(w *world) {
			w.pod("a", "1")
			w.reserve("a", 1000)
			w.queue(says("1", 1, 1))
			w.pass(20 * time.Second)
		}},
		{"a status that follows a queue which changes all the time", "", "", func(w *world) {
			w.pod("a", "4")
			for i := range int64(60) {
				w.queue(says([]string{"1", "2"}[(i+1)%2], 1, i+1))
				w.reserve("a", 1000+1000*(i%2), func(r *wire.ReservationRecord) {})
				w.pass(2 * time.Second)
			}
		}},
		{"a status that says something else", audit.Status, "says that {cpu=3} are charged and 1 gangs", func(w *world) {
			w.pod("a", "1")
			w.reserve("a", 1000)
			w.queue(says("3", 1, 1))
			w.pass(2 * time.Minute)
		}},
		{"a status that counts gangs wrongly", audit.Status, "2 gangs admitted", func(w *world) {
			w.pod("a", "1")
			w.reserve("a", 1000)
			w.queue(says("1", 2, 1))
			w.pass(2 * time.Minute)
		}},

		{"a grant that leaves a guarantee alone", "", "", func(w *world) { guaranteed(w); w.reserve("a", 6000) }},
		{"a grant out of another queue's guarantee", audit.Guarantee, "11 are held of the capability of 10", func(w *world) {
			guaranteed(w)
			w.reserve("a", 7000)
			w.pass(10 * time.Second)
		}},
		{"a charge for what was bound by somebody else, out of a guarantee", "", "", func(w *world) {
			guaranteed(w)
			w.node("n1", "100")
			w.reserve("a", 7000, func(r *wire.ReservationRecord) {
				r.Gang.Single, r.Demand = true, append(r.Demand, &wire.Amount{Resource: "pods", Value: 1})
			})
			w.pass(time.Second)
			w.pod("a", "7", func(p *v1.Pod) { p.Spec.NodeName = "n1" }) // the pods' watch is later
			w.pass(10 * time.Second)
		}},
		{"a grant inside one's own guarantee", "", "", func(w *world) {
			guaranteed(w)
			w.reserve("a", 6000)
			w.reserve("b", 4000, func(r *wire.ReservationRecord) { r.Gang.Queue = "team.b" })
		}},

		{"a grant inside a guarantee, beside a forced one", "", "", func(w *world) {
			guaranteed(w)
			w.reserve("a", 9000, func(r *wire.ReservationRecord) { r.Forced = true })
			w.reserve("b", 4000, func(r *wire.ReservationRecord) { r.Gang.Queue = "team.b" })
			w.pass(10 * time.Second)
		}},
		{"a grant beyond a guarantee, beside a forced one", audit.Guarantee, "14 are held of the capability of 10", func(w *world) {
			guaranteed(w)
			w.reserve("a", 9000, func(r *wire.ReservationRecord) { r.Forced = true })
			w.reserve("b", 5000, func(r *wire.ReservationRecord) { r.Gang.Queue = "team.b" })
			w.pass(10 * time.Second)
		}},
		{"what is forced is bound", "", "", func(w *world) {
			w.node("n1", "100")
			w.pod("a", "12", func(p *v1.Pod) { p.Spec.NodeName = "n1" })
			w.reserve("a", 12000, func(r *wire.ReservationRecord) {
				r.Forced, r.Gang.Single = true, true
				r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1})
			})
			w.pass(2 * time.Minute)
		}},
		{"what is said to be forced is not bound", audit.Quota, "without what bound pods explain", func(w *world) {
			w.pod("a", "12")
			w.reserve("a", 12000, func(r *wire.ReservationRecord) { r.Forced = true })
			w.pass(2 * time.Minute)
		}},
		{"a resize in place counts before it has happened", audit.Leak, "bound pods with cpu=3", func(w *world) {
			w.bind(1, "p", "n1")
			w.pod("p", "1", on("n1"), func(p *v1.Pod) {
				p.Status.ContainerStatuses = []v1.ContainerStatus{{AllocatedResources: v1.ResourceList{"cpu": resource.MustParse("3")}}}
			})
			w.pass(2 * time.Minute)
		}},

		{"a pod where it may run", "", "", func(w *world) {
			w.shows("n1", func(n *v1.Node) { n.Labels = map[string]string{"zone": "a"} })
			w.pass(2 * time.Minute)
			w.bind(1, "p", "n1", wants("zone", "a"))
		}},
		{"a pod whose node selector excludes its node", audit.Placement, "excluded by its node selector", func(w *world) {
			w.pass(2 * time.Minute)
			w.bind(1, "p", "n1", wants("zone", "a"))
		}},
		{"a pod whose node lost a label a moment ago", "", "", func(w *world) {
			w.shows("n1", func(n *v1.Node) { n.Labels = map[string]string{"zone": "a"} })
			w.pass(2 * time.Minute)
			w.shows("n1", func(*v1.Node) {})
			w.bind(1, "p", "n1", wants("zone", "a"))
		}},
		{"a pod on a node with a taint", audit.Placement, "the taint a=b:NoSchedule", func(w *world) {
			w.shows("n1", func(n *v1.Node) { n.Spec.Taints = []v1.Taint{{Key: "a", Value: "b", Effect: v1.TaintEffectNoSchedule}} })
			w.pass(2 * time.Minute)
			w.bind(1, "p", "n1")
		}},
		{"a pod on a cordoned node", audit.Placement, "unschedulable", func(w *world) {
			w.shows("n1", func(n *v1.Node) { n.Spec.Unschedulable = true })
			w.pass(2 * time.Minute)
			w.bind(1, "p", "n1")
		}},
		{"two pods with one host port", audit.Placement, "its port 80/TCP", func(w *world) {
			w.bind(1, "p", "n1", hostPort)
			w.bind(2, "q", "n1", hostPort)
		}},
		{"a host port after its first owner finished", "", "", func(w *world) {
			w.bind(1, "p", "n1", hostPort)
			w.pod("p", "1", hostPort, on("n1"), done)
			w.release("p")
			w.bind(2, "q", "n1", hostPort)
		}},

		{"an eviction of a closing gang", "", "", func(w *world) {
			w.bind(1, "p", "n1")
			w.reserve("p", 1000, func(r *wire.ReservationRecord) { r.State = wire.ReservationState_RESERVATION_CLOSING })
			w.pod("p", "1", on("n1"), evictedByUs)
			w.pass(10 * time.Second)
		}},
		{"an eviction of a gang that is not closing", audit.Eviction, "was never closing", func(w *world) {
			w.bind(1, "p", "n1")
			w.pod("p", "1", on("n1"), evictedByUs)
			w.pass(10 * time.Second)
		}},
		{"a preemption by another scheduler", "", "", func(w *world) {
			w.bind(1, "p", "n1")
			w.pod("p", "1", on("n1"), condition(v1.DisruptionTarget, v1.ConditionTrue, v1.PodReasonPreemptionByScheduler, "default-scheduler: preempting"))
			w.pass(10 * time.Second)
		}},

		{"Unschedulable after quota was granted", "", "", func(w *world) {
			w.pod("p", "1")
			w.reserve("p", 1000)
			w.pod("p", "1", condition(v1.PodScheduled, v1.ConditionFalse, v1.PodReasonUnschedulable, "0/2 nodes"))
			w.release("p")
			w.pass(10 * time.Second)
		}},
		{"Unschedulable, for quota would admit it", "", "", func(w *world) {
			w.pod("p", "1")
			w.pod("p", "1", condition(v1.PodScheduled, v1.ConditionFalse, v1.PodReasonUnschedulable,
				"the nodes lack room for it: short of 4 cpu (gang requests 8)"))
			w.pass(10 * time.Second)
		}},
		{"Unschedulable, for no node takes it", "", "", func(w *world) {
			w.pod("p", "1")
			w.pod("p", "1", condition(v1.PodScheduled, v1.ConditionFalse, v1.PodReasonUnschedulable,
				"no node takes it: pod a/p requests cpu=64, the largest node has 32"))
			w.pass(10 * time.Second)
		}},
		{"Unschedulable, and its PodGroup is shown later", "", "", func(w *world) {
			unschedulable := condition(v1.PodScheduled, v1.ConditionFalse, v1.PodReasonUnschedulable, "0/2 nodes")
			w.pod("p", "1", of("late"))
			w.reserve("g", 1000)
			w.pod("p", "1", of("late"), unschedulable)
			w.pass(time.Second)
			w.group("g", "late", 1)
			w.pass(10 * time.Second)
		}},
		{"Unschedulable without quota", audit.Condition, "never had a reservation", func(w *world) {
			w.pod("p", "1")
			w.pod("p", "1", condition(v1.PodScheduled, v1.ConditionFalse, v1.PodReasonUnschedulable, "0/2 nodes"))
			w.pass(10 * time.Second)
		}},

		{"a gang that waits behind smaller ones", "", "", func(w *world) {
			w.pod("old", "1", asks("5"), denied)
			w.pass(4 * time.Minute)
			w.pod("young", "1", asks("1"))
			w.reserve("young", 1000, func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1}) })
		}},
		{"a gang passed over by a younger one that asks for no less", audit.Order, "which came later", func(w *world) {
			w.pod("old", "1", asks("1"), denied)
			w.pass(4 * time.Minute)
			w.pod("young", "1", asks("1"))
			w.reserve("young", 1000, func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1}) })
		}},
		{"one made in the same second", "", "", func(w *world) { halfASecondLater(w, 0) }},
		{"one made in the next second", audit.Order, "which came later", func(w *world) {
			halfASecondLater(w, time.Second/2)
		}},
		{"a new coordinator admits who asks first", "", "", func(w *world) {
			w.pod("old", "1", asks("1"), denied)
			w.pass(4 * time.Minute)
			w.put("leader/c/1", nil)
			w.put("leader/c/2", &wire.LeaderRecord{})
			w.term = uint64(w.revision)
			w.pass(2 * time.Minute)
			w.pod("young", "1", asks("1"))
			w.reserve("young", 1000, func(r *wire.ReservationRecord) { r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1}) })
		}},
		{"one that somebody else bound is charged, not admitted", "", "", func(w *world) {
			w.pod("old", "1", asks("1"), denied)
			w.pass(4 * time.Minute)
			w.pod("young", "1", asks("1"), func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = "n1", v1.PodRunning })
			w.reserve("group", 1000, func(r *wire.ReservationRecord) {
				r.Gang.Single, r.Pods, r.Demand = false, []uint64{api.PodID("young")}, append(r.Demand, &wire.Amount{Resource: "pods", Value: 1})
			})
		}},
		{"one of another namespace may pass", "", "", func(w *world) {
			w.pod("old", "1", asks("1"), denied)
			w.pass(4 * time.Minute)
			w.pod("young", "1", asks("1"))
			w.reserve("young", 1000, func(r *wire.ReservationRecord) {
				r.Gang.Namespace, r.Demand = "other", append(r.Demand, &wire.Amount{Resource: "pods", Value: 1})
			})
		}},
		{"one of a higher priority may pass", "", "", func(w *world) {
			w.pod("old", "1", asks("1"), denied)
			w.pass(4 * time.Minute)
			w.pod("young", "1", asks("1"))
			w.reserve("young", 1000, func(r *wire.ReservationRecord) {
				r.Demand, r.Rank = append(r.Demand, &wire.Amount{Resource: "pods", Value: 1}), &wire.Rank{Priority: 5}
			})
		}},

		{"a pod that somebody else bound and that has started, charged to nobody", audit.Leak, "no reservation", func(w *world) {
			w.pod("p", "1", func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = "n1", v1.PodRunning })
			w.pass(2 * time.Minute)
		}},
		{"a pod that somebody else bound where it has not started", "", "", func(w *world) {
			w.pod("p", "1", func(p *v1.Pod) { p.Spec.NodeName, p.Status.Phase = "n1", v1.PodPending })
			w.pass(2 * time.Minute)
		}},
		{"a pod that two reservations name", audit.Reservation, "names a pod", func(w *world) {
			w.pod("p", "1")
			w.reserve("g1", 1000, func(r *wire.ReservationRecord) { r.Pods = []uint64{api.PodID("p")} })
			w.reserve("g2", 1000, func(r *wire.ReservationRecord) { r.Pods = []uint64{api.PodID("p")} })
		}},
		{"a pod that moves from one to the other in one revision", "", "", func(w *world) {
			w.pod("p", "1")
			record := func(gang string, pods ...uint64) *wire.ReservationRecord {
				r := reservation(gang, "team.a", 1, 1000, w.term)
				r.Pods = pods
				return r
			}
			w.coordinate(map[string]proto.Message{key("g2", "team.a"): record("g2", api.PodID("p"))})
			w.coordinate(map[string]proto.Message{key("g1", "team.a"): record("g1", api.PodID("p")), key("g2", "team.a"): record("g2")})
		}},
		{"labels of a bound pod are edited: its reservation names it", "", "", func(w *world) {
			w.bind(1, "p", "n1")
			w.pod("p", "1", on("n1"), of("nobody"))
			w.pass(2 * time.Minute)
		}},
		{"labels of a bound pod are edited, and its charge is gone", audit.Leak, "no reservation", func(w *world) {
			w.bind(1, "p", "n1")
			w.pod("p", "1", on("n1"), of("nobody"))
			w.release("p")
			w.pass(2 * time.Minute)
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, audit.Config{})
			w.pass(time.Minute)
			tc.run(w)
			r := w.a.Report()
			if tc.want == "" {
				if r.Sum() != 0 || len(r.Standing) != 0 {
					t.Fatalf("found %v, standing %v", r.Violations, r.Standing)
				}
				return
			}
			for _, v := range r.Violations {
				if v.Kind == tc.want && strings.Contains(v.Message, tc.in) {
					return
				}
			}
			t.Fatalf("found %v, want %s: %s", r.Violations, tc.want, tc.in)
		})
	}
}

// An auditor that comes when the labels have long been edited judges by the reservation that names the pod.
func TestLateAuditorFindsWhoPays(t *testing.T) {
	for name, tc := range map[string]struct {
		pods []uint64
		want audit.Kind
	}{
		"named":     {[]uint64{api.PodID("a"), api.PodID("b")}, ""},
		"not named": {[]uint64{api.PodID("b")}, audit.Leak},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, a: audit.New(audit.Config{}), now: time.Unix(1_700_000_000, 0), created: map[string]int64{}}
			r := reservation("gg", "team.a", 1, 2000, 1)
			r.Demand, r.Pods = append(r.Demand, &wire.Amount{Resource: "pods", Value: 2}), tc.pods
			b, err := proto.Marshal(r)
			if err != nil {
				t.Fatal(err)
			}
			w.a.Observe(w.now, audit.StoreRevision{Revision: 7, Snapshot: true, Changes: []audit.StoreChange{{Key: key("gg", "team.a"), Value: b, CreateRevision: 5, ModRevision: 5}}})
			w.node("n1", "4")
			var pods []*v1.Pod
			for _, uid := range []string{"a", "b"} {
				pods = append(pods, &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: "ns", Name: uid, ResourceVersion: "1", Labels: map[string]string{api.LabelPodGroup: "nobody"}},
					Spec: v1.PodSpec{NodeName: "n1", SchedulerName: "basalt", Containers: []v1.Container{{Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1")}}}}}})
			}
			w.a.Observe(w.now, audit.Listed[*v1.Pod]{Objects: pods})
			w.a.Observe(w.now, audit.PodGroupsReplaced{})
			w.pass(2 * time.Minute)
			report := w.a.Report()
			if tc.want == "" && report.Sum() != 0 || tc.want != "" && report.Counts[tc.want] == 0 {
				t.Fatalf("found %v, want %q", report.Violations, tc.want)
			}
		})
	}
}

// What the auditor computes by itself agrees with the published rules as Kubernetes' own library has them.
func TestRequestsAgreeWithKubernetes(t *testing.T) {
	list := func(cpu, memory string) v1.ResourceList {
		return v1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	always := v1.ContainerRestartPolicyAlways
	container := func(name string, l v1.ResourceList) v1.Container {
		return v1.Container{Name: name, Resources: v1.ResourceRequirements{Requests: l}}
	}
	sidecar := container("s", list("300m", "1Mi"))
	sidecar.RestartPolicy = &always
	status := func(name string, allocated, actual v1.ResourceList) v1.ContainerStatus {
		s := v1.ContainerStatus{Name: name, AllocatedResources: allocated}
		if actual != nil {
			s.Resources = &v1.ResourceRequirements{Requests: actual}
		}
		return s
	}
	base := v1.PodSpec{NodeName: "n", SchedulerName: "basalt", Containers: []v1.Container{container("a", list("1500u", "1500m")), container("b", list("2", "1Gi"))}}
	with := func(f func(*v1.PodSpec)) v1.PodSpec {
		s := *base.DeepCopy()
		f(&s)
		return s
	}
	infeasible := []v1.PodCondition{{Type: v1.PodResizePending, Reason: v1.PodReasonInfeasible}}
	for name, p := range map[string]*v1.Pod{
		"plain":                     {Spec: base},
		"init":                      {Spec: with(func(s *v1.PodSpec) { s.InitContainers = []v1.Container{container("i", list("5", "1Mi"))} })},
		"sidecar":                   {Spec: with(func(s *v1.PodSpec) { s.InitContainers = []v1.Container{sidecar, container("i", list("5", "2Gi"))} })},
		"overhead":                  {Spec: with(func(s *v1.PodSpec) { s.Overhead = list("100m", "10Mi") })},
		"pod level":                 {Spec: with(func(s *v1.PodSpec) { s.Resources = &v1.ResourceRequirements{Requests: list("9", "9Gi")} })},
		"resized down, not done":    {Spec: base, Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{status("a", list("3", "1Gi"), list("4", "1Mi"))}}},
		"resized up, infeasible":    {Spec: base, Status: v1.PodStatus{Conditions: infeasible, ContainerStatuses: []v1.ContainerStatus{status("b", list("1", "1Mi"), list("1", "1Mi"))}}},
		"infeasible without status": {Spec: base, Status: v1.PodStatus{Conditions: infeasible}},
	} {
		t.Run(name, func(t *testing.T) {
			p.UID, p.Namespace, p.Name, p.ResourceVersion = "p", "ns", "p", "1"
			want, err := api.FromResourceList(resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{UseStatusResources: true, InPlacePodLevelResourcesVerticalScalingEnabled: true}), true)
			if err != nil {
				t.Fatal(err)
			}
			if got := audit.RequestsOf(p).Sub(api.FromMap(map[string]int64{"pods": 1})); !got.Equal(want) {
				t.Fatalf("got %s, want %s", got, want)
			}
		})
	}
}

// A bound pod beyond the bounds of a pod counts as its node and its queue count it.
func TestRequestsOfOversizedPods(t *testing.T) {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p", Namespace: "ns", Name: "p", ResourceVersion: "1"}}
	p.Spec.NodeName, p.Spec.SchedulerName = "n", "basalt"
	requests := v1.ResourceList{"cpu": resource.MustParse("2"), "zzz.com/last": resource.MustParse("1")}
	for i := range 3 * api.MaxPodResources {
		requests[v1.ResourceName(fmt.Sprintf("example.com/r%03d", i))] = resource.MustParse("3")
	}
	p.Spec.Containers = []v1.Container{{Name: "a", Resources: v1.ResourceRequirements{Requests: requests}}, {Name: "b", Resources: v1.ResourceRequirements{Requests: requests}}}
	want := api.FromPod(p, nil, api.Rules{}).Class.Requests
	if got := audit.RequestsOf(p); !got.Equal(want) || len(got) != api.MaxPodResources+1 {
		t.Fatalf("got %s, want %s", got, want)
	}
}
