package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

func TestMain(m *testing.M) { localtest.Run(m) }

// counter reads a metric.
func (m *member) counter(t *testing.T, name string) float64 {
	t.Helper()
	families, err := m.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}

// member is a process with a relay and a follower of pods.
type member struct {
	name     api.Incarnation
	address  string
	relay    *Relay
	registry *prometheus.Registry
	server   *grpc.Server
	pods     *kube.Follower[*v1.Pod]
	heard    record
}

// record is what a handler heard.
type record struct {
	mu      sync.Mutex
	entries []entry
	last    []string // names in the newest entry
}

// entry is an event, or a list.
type entry struct {
	list    map[types.UID]string // of versions
	gone    bool
	uid     types.UID
	version string
	object  string
}

func (r *record) add(e entry, names ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries, r.last = append(r.entries, e), names
}

func (r *record) handler() kube.Handler[*v1.Pod] {
	one := func(p *v1.Pod, gone bool) {
		b, _ := p.Marshal()
		r.add(entry{gone: gone, uid: p.UID, version: p.ResourceVersion, object: string(b)}, p.Name)
	}
	return kube.Handler[*v1.Pod]{
		Replaced: func(list []*v1.Pod, _ kube.Ticket) {
			versions := map[types.UID]string{}
			var names []string
			for _, p := range list {
				versions[p.UID] = p.ResourceVersion
				names = append(names, p.Name)
			}
			r.add(entry{list: versions}, names...)
		},
		Seen: func(p *v1.Pod) { one(p, false) },
		Gone: func(p *v1.Pod) { one(p, true) },
	}
}

func (m *member) listen(t *testing.T) {
	t.Helper()
	var l net.Listener
	localtest.Wait(t, time.Minute, "the port", func(context.Context) (err error) {
		l, err = net.Listen("tcp", m.address)
		return err
	})
	m.address = l.Addr().String()
	m.server = grpc.NewServer(grpc.WaitForHandlers(true))
	wire.RegisterRelayServer(m.server, m.relay)
	server := m.server
	go func() { _ = server.Serve(l) }()
}

// What is seen through relays is what is seen at the API server: a random history of pods, heard by three processes that ask
// each other, themselves or nobody, at random, while relays lose their watch and their connections and have small windows.
func TestSameAsTheAPIServer(t *testing.T) {
	clients, err := kube.ConnectConfig(localtest.Shared(t).Config(local.Admin), "basalt-test")
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(3) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { sameAsTheAPIServer(t, clients, seed) })
	}
}

func sameAsTheAPIServer(t *testing.T, clients *kube.Clients, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 1))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer cancel()
	log := slog.New(slog.DiscardHandler)
	follow := func(r *record) *kube.Follower[*v1.Pod] {
		f := kube.Follow(clients.Core.CoreV1().RESTClient(), "pods", log, r.handler())
		f.Strip(api.StripPod)
		return f
	}
	run := func(f *kube.Follower[*v1.Pod]) {
		wg.Go(func() { f.Run(ctx) })
		<-f.Synced()
	}
	var truth record
	run(follow(&truth))

	members := map[api.Incarnation]*member{}
	names := []api.Incarnation{"a", "b", "c"}
	for _, name := range names {
		m := &member{name: name, address: "127.0.0.1:0", registry: prometheus.NewRegistry()}
		m.relay = New(Options{
			Self: name, Log: log, Registry: m.registry,
			Address: func(who api.Incarnation) string { return members[who].address },
			Dial: func(_ api.Incarnation, address string) (*grpc.ClientConn, error) {
				return grpc.NewClient("passthrough:///"+address, grpc.WithTransportCredentials(insecure.NewCredentials()))
			},
		}, noServer{})
		m.listen(t)
		members[name] = m
		defer m.relay.Close()
		defer func() { m.server.Stop() }()
	}
	defer wg.Wait() // followers first
	defer cancel()
	for _, name := range names {
		m := members[name]
		m.pods = follow(&m.heard)
		Attach(m.relay, m.pods, pace)
		m.relay.kinds["pods"].limits.maxEvents = 12
		m.relay.Ask("a")
		run(m.pods)
	}

	pods := clients.Core.CoreV1().Pods("default")
	var alive []string
	create := func(name string) {
		_, err := pods.Create(ctx, &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"seed": fmt.Sprint(seed)}, Annotations: map[string]string{"a": "b"}},
			Spec:       v1.PodSpec{SchedulerName: api.SchedulerName, Containers: []v1.Container{{Name: "c", Image: "none", Env: []v1.EnvVar{{Name: "A", Value: "B"}}}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		alive = append(alive, name)
	}
	pick := func() *member { return members[names[random.IntN(len(names))]] }
	for i := range 400 {
		if len(alive) == 0 || random.IntN(3) == 0 {
			create(fmt.Sprintf("s%d-%d", seed, i))
		}
		j := random.IntN(len(alive))
		switch name := alive[j]; random.IntN(4) {
		case 0:
			pod := kube.Pod{Namespace: "default", Name: name}
			if err := clients.Bind(ctx, pod, "", "n1", nil, nil); err != nil && !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
		case 1:
			patch := fmt.Sprintf(`{"metadata":{"labels":{%q:"q%d"}}}`, api.LabelQueue, i)
			if _, err := pods.Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
		case 2:
			var now int64
			if err := pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
				t.Fatal(err)
			}
			alive = append(alive[:j], alive[j+1:]...)
		}
		switch m := pick(); random.IntN(40) {
		case 0:
			m.relay.Ask(names[random.IntN(3)]) // another table than the others know
		case 1:
			for _, n := range names {
				members[n].relay.Ask(m.name)
			}
		case 2:
			m.relay.Ask("")
		case 3:
			m.pods.Relist()
		case 4: // its process dies and comes back
			m.server.Stop()
			m.listen(t)
		case 5: // its watch breaks
			k := m.relay.kinds["pods"]
			k.mu.Lock()
			if k.feed != nil {
				k.feed.cancel()
			}
			k.mu.Unlock()
		}
	}
	end := fmt.Sprintf("s%d-end", seed)
	create(end)
	for name, r := range map[string]*record{"the API server's watch": &truth, "a": &members["a"].heard, "b": &members["b"].heard, "c": &members["c"].heard} {
		localtest.Wait(t, 2*time.Minute, name, func(context.Context) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			if !slices.Contains(r.last, end) {
				return errors.New("the last pod is missing")
			}
			return nil
		})
	}
	passed, refused := 0.0, 0.0
	for _, name := range names {
		m := members[name]
		compare(t, fmt.Sprintf("seed %d, %s", seed, name), &truth, &m.heard)
		passed += m.counter(t, "basalt_relay_events_total")
		refused += m.counter(t, "basalt_relay_too_old_total")
	}
	t.Logf("%d events, %.0f read by relays, %.0f times too old", len(truth.entries)-1, passed, refused)
	if passed < 100 {
		t.Errorf("relays read %.0f events: too few to show anything", passed)
	}
	for _, name := range alive {
		var now int64
		_ = pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now})
	}
}

// compare finds what was heard in the true history: after each list, all events after the point at which it was made. Where a
// pod came and went between two points, a list is the same at both: all points that are possible are followed.
func compare(t *testing.T, who string, truth, heard *record) {
	t.Helper()
	state := maps.Clone(truth.entries[0].list)
	states := []map[types.UID]string{state} // after each entry
	for _, e := range truth.entries[1:] {
		state = maps.Clone(state)
		switch {
		case e.list != nil:
			t.Fatal("the API server's watch had to list again: nothing to compare with")
		case e.gone:
			delete(state, e.uid)
		default:
			state[e.uid] = e.version
		}
		states = append(states, state)
	}
	if len(heard.entries) == 0 || heard.entries[0].list == nil {
		t.Fatalf("%s: the first entry is no list", who)
	}
	at := []int{0}
	for i, e := range heard.entries {
		var next []int
		if e.list != nil {
			for moment := at[0]; moment < len(states); moment++ {
				if maps.Equal(states[moment], e.list) {
					next = append(next, moment)
				}
			}
		} else {
			for _, moment := range at {
				if moment+1 < len(states) && e.same(truth.entries[moment+1]) {
					next = append(next, moment+1)
				}
			}
		}
		if len(next) == 0 {
			t.Fatalf("%s: entry %d, version %s (list %t, gone %t), does not follow on entry %d of %d of the API server's watch", who, i, e.version, e.list != nil, e.gone, at[0], len(states))
		}
		at = next
	}
	if last := at[len(at)-1]; last != len(states)-1 {
		t.Fatalf("%s: heard %d of %d entries", who, last, len(states)-1)
	}
}

// same reports whether two entries are the same event.
func (e entry) same(as entry) bool {
	return e.gone == as.gone && e.uid == as.uid && e.version == as.version && e.object == as.object
}

// What a relay passes on is what the API server showed, of kinds that have no protobuf, too.
func TestEncoding(t *testing.T) {
	made := metav1.Unix(1_700_000_000, 0)
	meta := metav1.ObjectMeta{Namespace: "ns", Name: "o", UID: "u", ResourceVersion: "7", Generation: 2, CreationTimestamp: made, DeletionTimestamp: &made}
	seconds := int32(5)
	for _, o := range []runtime.Object{
		&v1.Pod{ObjectMeta: meta, Spec: v1.PodSpec{NodeName: "n"}},
		&v1beta1.Queue{ObjectMeta: meta, Spec: v1beta1.QueueSpec{Capability: v1.ResourceList{"cpu": resource.MustParse("1500m"), "memory": resource.MustParse("3Gi")}}},
		&v1beta1.PodGroup{ObjectMeta: meta, Spec: v1beta1.PodGroupSpec{Queue: "a.b", ScheduleTimeoutSeconds: &seconds}, Status: &v1beta1.PodGroupStatus{
			Stamp: v1beta1.Stamp{Epoch: 3, Writer: "w", Sequence: 9}, ObservedGeneration: 2, Queue: "a.b", Pods: 10, Bound: 9,
			Conditions: []metav1.Condition{{Type: "T", Status: metav1.ConditionTrue, Reason: "R", Message: "m", LastTransitionTime: made}}}},
	} {
		b, err := encode(o)
		if err != nil {
			t.Fatalf("encode %T: %v", o, err)
		}
		got := reflect.New(reflect.TypeOf(o).Elem()).Interface().(runtime.Object)
		if err := decode(b, got); err != nil {
			t.Fatalf("decode %T: %v", o, err)
		}
		if !equality.Semantic.DeepEqual(got, o) {
			t.Errorf("%T came out as %+v, want %+v", o, got, o)
		}
	}
}
