package server_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	clientv3 "go.etcd.io/etcd/client/v3"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/process"
	"basalt.dev/basalt/api/serve"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/bench/stage/memory"
	coordinator "basalt.dev/basalt/coordinator/server"
	shard "basalt.dev/basalt/shard/server"
)

// world is an API server in memory and a real control store, with Basalt's processes in this program.
type world struct {
	t    *testing.T
	api  *memory.Server
	url  string
	etcd *local.Etcd
	keys *clientv3.Client
}

// member is one of the processes.
type member struct {
	process.Options
	stop  context.CancelFunc
	ended chan error
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, api: memory.New(memory.Options{Seed: 1}), etcd: localtest.Etcd(t)}
	server := httptest.NewServer(w.api.Handler())
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	w.url = server.URL
	var err error
	if w.keys, err = clientv3.New(clientv3.Config{Endpoints: w.etcd.Endpoints()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.keys.Close() })
	return w
}

// start runs a process until the test ends, or it is stopped.
func (w *world) start(role, name string, run func(context.Context, process.Options) error) *member {
	w.t.Helper()
	clients, err := kube.ConnectConfig(&rest.Config{Host: w.url}, "basalt-test")
	if err != nil {
		w.t.Fatal(err)
	}
	ports, err := local.FreePorts(2)
	if err != nil {
		w.t.Fatal(err)
	}
	listen, gossip := fmt.Sprint("127.0.0.1:", ports[0]), fmt.Sprint("127.0.0.1:", ports[1])
	m := &member{ended: make(chan error, 1), Options: process.Options{
		Role: role, Name: name, Kube: clients, Registry: serve.Registry(), Etcd: w.etcd.Endpoints(), Listen: listen, Address: listen, Gossip: gossip, GossipAddress: gossip,
		GossipLabel: "test", Log: slog.New(slog.DiscardHandler),
	}}
	var ctx context.Context
	ctx, m.stop = context.WithCancel(w.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); m.ended <- run(ctx, m.Options) }()
	w.t.Cleanup(func() { m.stop(); <-done })
	return m
}

func (w *world) coordinator(name string) *member {
	return w.start("coordinator", name, func(ctx context.Context, o process.Options) error {
		return coordinator.Run(ctx, coordinator.Options{Process: o})
	})
}

func (w *world) shard(name string, ttl time.Duration) *member {
	return w.start("shard", name, func(ctx context.Context, o process.Options) error {
		return shard.Run(ctx, shard.Options{Process: o, LeaseTTL: ttl})
	})
}

// Events on pods are written from soon after the configuration asks for them.
func TestPodEvents(t *testing.T) {
	w := newWorld(t)
	w.create("nodes", kubelet.Node("n0", "400", "8Gi", 400))
	w.coordinator("coordinator-0")
	var events atomic.Bool
	m := w.start("shard", "shard-0", func(ctx context.Context, o process.Options) error {
		return shard.Run(ctx, shard.Options{Process: o, PodEvents: &events})
	})
	told := func() (pods []string) {
		all, err := m.Kube.Core.EventsV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range all.Items {
			if e.Regarding.Kind == "Pod" && e.Reason == v1beta1.ReasonScheduled {
				pods = append(pods, e.Regarding.Name)
			}
		}
		return pods
	}
	w.pod("before", nil)
	w.bound("before")
	events.Store(true)
	n := 0
	w.wait("an event on a pod", func() error {
		if len(told()) > 0 {
			return nil
		}
		n++
		w.pod(fmt.Sprint("after-", n), nil)
		w.bound(fmt.Sprint("after-", n))
		return errors.New("there is none")
	})
	if pods := told(); slices.Contains(pods, "before") {
		t.Errorf("events on %v", pods)
	}
}

func (w *world) create(resource string, o memory.Object) {
	w.t.Helper()
	if _, err := w.api.Create(resource, o); err != nil {
		w.t.Fatal(err)
	}
}

// pod makes a pod of one CPU.
func (w *world) pod(name string, labels map[string]string) { w.podOf(api.SchedulerName, name, labels) }

func (w *world) podOf(scheduler, name string, labels map[string]string) {
	w.t.Helper()
	w.create("pods", &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels},
		Spec: v1.PodSpec{SchedulerName: scheduler, Containers: []v1.Container{{Name: "c",
			Resources: v1.ResourceRequirements{Requests: v1.ResourceList{"cpu": resource.MustParse("1")}}}}},
	})
}

func (w *world) get(resource, namespace, name string) memory.Object {
	w.t.Helper()
	o, err := w.api.Get(resource, namespace, name)
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// bound waits until pods have nodes.
func (w *world) bound(names ...string) {
	w.t.Helper()
	for _, name := range names {
		w.wait("pod "+name, func() error {
			if w.get("pods", "default", name).(*v1.Pod).Spec.NodeName == "" {
				return errors.New("not bound")
			}
			return nil
		})
	}
}

func (w *world) wait(what string, ask func() error) {
	w.t.Helper()
	localtest.Wait(w.t, time.Minute, what, func(context.Context) error { return ask() })
}

// sum adds up a metric over processes: its counters and gauges with the labels given.
func sum(t *testing.T, name string, labels map[string]string, of ...*member) (total float64) {
	t.Helper()
	for _, m := range of {
		families, err := m.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, metric := range f.Metric {
				matches := f.GetName() == name
				for _, l := range metric.Label {
					matches = matches && (labels[l.GetName()] == "" || labels[l.GetName()] == l.GetValue())
				}
				if matches {
					total += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
				}
			}
		}
	}
	return total
}

func (w *world) metric(want float64, name string, labels map[string]string, of ...*member) {
	w.t.Helper()
	w.wait(fmt.Sprintf("%s%v to be %g", name, labels, want), func() error {
		if got := sum(w.t, name, labels, of...); got != want {
			return fmt.Errorf("it is %g", got)
		}
		return nil
	})
}

func (w *world) status(m *member) *wire.StatusReply {
	w.t.Helper()
	conn, err := link.Dial(m.Address, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	reply, err := wire.NewInspectClient(conn).Status(w.t.Context(), &wire.StatusRequest{})
	if err != nil {
		w.t.Fatalf("status of %s: %v", m.Name, err)
	}
	return reply
}

// leases returns the leases of registered shards, by name.
func (w *world) leases() map[string]clientv3.LeaseID {
	w.t.Helper()
	all, err := w.keys.Get(w.t.Context(), "", clientv3.WithPrefix())
	if err != nil {
		w.t.Fatal(err)
	}
	out := map[string]clientv3.LeaseID{}
	for _, kv := range all.Kvs {
		for _, name := range []string{"shard-0", "shard-1"} {
			if strings.Contains(string(kv.Key), "shards/") && strings.Contains(string(kv.Value), name) {
				out[name] = clientv3.LeaseID(kv.Lease)
			}
		}
	}
	return out
}

// A shard from its start to its end: it owns buckets and nodes, binds, explains, reports, answers for its state, and gives
// everything up at once when it is stopped.
func TestShardFromStartToStop(t *testing.T) {
	w := newWorld(t)
	for i := range 6 {
		w.create("nodes", kubelet.Node(fmt.Sprint("n", i), "4", "8Gi", 10))
	}
	var queues []string
	for i := range 6 {
		queues = append(queues, fmt.Sprint("q", i))
		w.create("queues", &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: queues[i]}})
	}
	leader := w.coordinator("coordinator-0")
	first, second := w.shard("shard-0", time.Minute), w.shard("shard-1", time.Minute)
	w.metric(1024, "basalt_shard_buckets", nil, first, second)
	w.wait("a fair part for each", func() error {
		if n := sum(t, "basalt_shard_buckets", nil, first); n == 0 || n == 1024 {
			return fmt.Errorf("one has %g", n)
		}
		return nil
	})
	leases := w.leases()
	for name, lease := range leases {
		if l, err := w.keys.TimeToLive(t.Context(), lease); err != nil || l.GrantedTTL != 60 {
			t.Errorf("the lease of %s is %+v, %v, want 60 s", name, l, err)
		}
	}
	w.metric(6, "basalt_shard_nodes", nil, first, second)
	w.metric(24, "basalt_shard_free", map[string]string{"resource": "cpu", "unit": "core"}, first, second)

	// place makes a pod in each queue, some of each shard.
	made := 0
	place := func() (names []string) {
		for _, q := range queues {
			made++
			names = append(names, fmt.Sprint("p", made))
			w.pod(names[len(names)-1], map[string]string{api.LabelQueue: q})
		}
		w.bound(names...)
		return names
	}
	placed := place()
	for _, name := range placed {
		if p := w.get("pods", "default", name).(*v1.Pod); p.Labels[api.LabelGang] != string(p.UID) {
			t.Errorf("pod %s is bound for %q", name, p.Labels[api.LabelGang])
		}
	}
	w.create("podgroups", &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "g"},
		Spec: v1beta1.PodGroupSpec{Queue: "q0", SchedulingPolicy: v1beta1.SchedulingPolicy{Gang: v1beta1.GangSchedulingPolicy{MinCount: 3}}}})
	for i := range 3 {
		w.pod(fmt.Sprint("g", i), map[string]string{api.LabelPodGroup: "g"})
	}
	w.bound("g0", "g1", "g2")
	w.metric(9, "basalt_shard_bindings_total", map[string]string{"outcome": "ok"}, first, second)
	if n := sum(t, "basalt_shard_holds_total", map[string]string{"outcome": "held"}, first, second); n < 9 {
		t.Errorf("%g pods were held", n)
	}
	w.metric(0, "basalt_shard_broken_invariants_total", nil, first, second, leader)
	w.metric(15, "basalt_shard_free", map[string]string{"resource": "cpu", "unit": "core"}, first, second)
	w.metric(0, "basalt_shard_intents", nil, first, second)
	for _, m := range []*member{first, second} {
		if sum(t, "basalt_shard_messages_total", map[string]string{"to": "coordinator"}, m) == 0 {
			t.Errorf("%s counted no message to the coordinator", m.Name)
		}
	}
	w.wait("what is charged", func() error {
		q := w.get("queues", "", "q0").(*v1beta1.Queue)
		if q.Status == nil || q.Status.Charged.Cpu().Value() != 4 {
			return fmt.Errorf("the status is %+v", q.Status)
		}
		return nil
	})
	w.wait("the PodGroup's status", func() error {
		g := w.get("podgroups", "default", "g").(*v1beta1.PodGroup)
		if g.Status == nil || g.Status.Bound != 3 {
			return fmt.Errorf("the status is %+v", g.Status)
		}
		return nil
	})
	w.create("pods", &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "claims", Labels: map[string]string{api.LabelQueue: "q0"}},
		Spec: v1.PodSpec{SchedulerName: api.SchedulerName, Containers: []v1.Container{{Name: "c"}}, Volumes: []v1.Volume{{Name: "data",
			VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}}})
	w.wait("the pod's condition", func() error {
		p := w.get("pods", "default", "claims").(*v1.Pod)
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && strings.Contains(c.Message, "the claim does not exist") {
				return nil
			}
		}
		return fmt.Errorf("the conditions are %+v", p.Status.Conditions)
	})
	w.create("persistentvolumes", &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}})
	w.create("persistentvolumeclaims", &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data",
		Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}}, Spec: v1.PersistentVolumeClaimSpec{VolumeName: "v"}})
	w.bound("claims")
	for _, kind := range []string{"queue", "podgroup", "pod"} {
		w.wait("a write of a "+kind+" to be counted", func() error {
			if sum(t, "basalt_shard_api_writes_total", map[string]string{"kind": kind, "outcome": "ok"}, first, second) == 0 {
				return errors.New("none is")
			}
			return nil
		})
	}
	w.wait("statuses of all nodes and no intents", func() error {
		var nodes uint32
		for _, m := range []*member{first, second} {
			s := w.status(m)
			nodes += s.GetSummary().GetNodes()
			if s.Role != "shard" || s.Name != m.Name || s.Incarnation == "" || s.Intents != 0 {
				return fmt.Errorf("the status of %s is %v", m.Name, s)
			}
		}
		if nodes != 6 {
			return fmt.Errorf("they are of %d nodes", nodes)
		}
		return nil
	})

	// It is stopped: its record is gone when Run returns, long before the lease is over, and the other one has everything.
	second.stop()
	if err := <-second.ended; err != nil {
		t.Errorf("it was stopped, and ended with %v", err)
	}
	if got := w.leases(); len(got) != 1 || got["shard-0"] == 0 {
		t.Errorf("registered are %v", got)
	}
	w.metric(1024, "basalt_shard_buckets", nil, first)
	w.metric(6, "basalt_shard_nodes", nil, first)
	for _, name := range placed {
		if err := w.api.Delete("pods", "default", name, metav1.DeleteOptions{GracePeriodSeconds: new(int64)}); err != nil {
			t.Fatal(err)
		}
	}
	place()
	// Its session is revoked: it must start over.
	if _, err := w.keys.Revoke(t.Context(), leases["shard-0"]); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-first.ended:
		if !errors.Is(err, protocol.ErrSessionLost) {
			t.Errorf("its session was lost, and it ended with %v", err)
		}
	case <-time.After(time.Minute):
		t.Error("its session was lost, and it goes on")
	}
}

// An option that cannot be is named, before anything is connected.
// A shard that is told to drain gives all its buckets away while it runs, and takes its part again when that is cancelled.
func TestDrain(t *testing.T) {
	w := newWorld(t)
	w.create("nodes", kubelet.Node("n0", "4", "8Gi", 10))
	leader := w.coordinator("coordinator-0")
	first, second := w.shard("shard-0", 0), w.shard("shard-1", 0)
	w.metric(1024, "basalt_shard_buckets", nil, first, second)

	w.drain(first, false)
	w.metric(0, "basalt_shard_buckets", nil, first)
	w.metric(1024, "basalt_shard_buckets", nil, second)
	w.pod("p", nil)
	w.bound("p")
	if _, registered := w.leases()["shard-0"]; !registered {
		t.Error("a shard that drains is not registered any more")
	}

	w.drain(first, true)
	w.wait("its part again", func() error {
		if sum(t, "basalt_shard_buckets", nil, first) == 0 {
			return errors.New("it owns nothing")
		}
		return nil
	})
	w.metric(1024, "basalt_shard_buckets", nil, first, second)
	w.pod("q", nil)
	w.bound("q")

	conn, err := link.Dial(leader.Address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := wire.NewInspectClient(conn).Drain(t.Context(), &wire.DrainRequest{}); status.Code(err) != codes.Unimplemented {
		t.Errorf("a coordinator was told to drain: %v", err)
	}
}

func (w *world) drain(m *member, cancel bool) {
	w.t.Helper()
	conn, err := link.Dial(m.Address, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	w.wait("drain "+m.Name, func() error {
		_, err := wire.NewInspectClient(conn).Drain(w.t.Context(), &wire.DrainRequest{Cancel: cancel})
		return err
	})
}

func TestOptionsAreNamed(t *testing.T) {
	err := shard.Run(t.Context(), shard.Options{Policy: "random"})
	if err == nil || !strings.Contains(err.Error(), `--placement "random"`) {
		t.Errorf("%v", err)
	}
	err = shard.Run(t.Context(), shard.Options{Policy: "pack", Schedulers: []string{"basalt", ""}})
	if err == nil || !strings.Contains(err.Error(), "--scheduler-names") {
		t.Errorf("%v", err)
	}
}

// Pods of each name that is served are placed, others are left alone.
func TestSchedulerNames(t *testing.T) {
	w := newWorld(t)
	w.create("nodes", kubelet.Node("n", "4", "8Gi", 10))
	w.coordinator("coordinator-0")
	w.start("shard", "shard-0", func(ctx context.Context, o process.Options) error {
		return shard.Run(ctx, shard.Options{Process: o, LeaseTTL: time.Minute, Schedulers: []string{"batch", api.SchedulerName}})
	})
	for _, name := range []string{"default-scheduler", "other", "batch", api.SchedulerName} {
		w.podOf(name, name, nil)
	}
	w.bound("batch", api.SchedulerName)
	for _, name := range []string{"default-scheduler", "other"} {
		if p := w.get("pods", "default", name).(*v1.Pod); p.Spec.NodeName != "" || len(p.Status.Conditions) > 0 {
			t.Errorf("the pod of %s is on node %q, with conditions %v", name, p.Spec.NodeName, p.Status.Conditions)
		}
	}
}
