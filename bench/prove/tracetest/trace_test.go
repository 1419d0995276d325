// Package tracetest receives real OTLP from real processes and looks at the trace of a gang that two shards placed.
package tracetest

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/bench/stage/observe"
)

const patience = 90 * time.Second

// span is one that was received, with what its sender says of itself.
type span struct {
	*tracev1.Span
	service, instance string
}

// receiver is a collector that keeps everything.
type receiver struct {
	collector.UnimplementedTraceServiceServer
	mu    sync.Mutex
	calls int
	spans []span
}

func attribute(list []*common.KeyValue, key string) string {
	for _, a := range list {
		if a.Key == key {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

func (r *receiver) Export(_ context.Context, req *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls++
	for _, rs := range req.ResourceSpans {
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				r.spans = append(r.spans, span{s, attribute(rs.Resource.Attributes, "service.name"), attribute(rs.Resource.Attributes, "service.instance.id")})
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

// of returns the spans of a trace, by id.
func (r *receiver) of(t *testing.T, trace [16]byte) map[string]span {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]span{}
	for _, s := range r.spans {
		if bytes.Equal(s.TraceId, trace[:]) {
			id := hex.EncodeToString(s.SpanId)
			if _, twice := out[id]; twice {
				t.Errorf("two spans have the id %s: %s and %s", id, out[id].Name, s.Name)
			}
			out[id] = s
		}
	}
	return out
}

func listen(t *testing.T) (*receiver, string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r, server := &receiver{}, grpc.NewServer()
	collector.RegisterTraceServiceServer(server, r)
	var wg sync.WaitGroup
	wg.Go(func() { _ = server.Serve(l) })
	t.Cleanup(func() { server.Stop(); wg.Wait() })
	return r, l.Addr().String()
}

// start starts two shards and a coordinator, and returns how they are stopped.
func start(t *testing.T, c *local.Cluster, o local.BasaltOptions) (stop func()) {
	t.Helper()
	all, err := c.StartBasalt(t.Context(), 1, 2, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := local.WaitReady(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	return func() { // in order, so that what is left is sent
		slices.Reverse(all)
		for _, b := range all {
			if err := b.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
}

// table reads who owns what, once two shards own something.
func table(t *testing.T, c *local.Cluster) *api.Table {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.ControlStore(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var out *api.Table
	localtest.Wait(t, patience, "a table of two shards", func(ctx context.Context) error {
		s, err := observe.Read(ctx, client)
		if err != nil {
			return err
		}
		if out = s.Table; out == nil {
			return errors.New("no table")
		}
		if len(out.Members) != 2 || out.Owned(out.Members[0].Incarnation) == 0 || out.Owned(out.Members[1].Incarnation) == 0 {
			return fmt.Errorf("members %v", out.Members)
		}
		return nil
	})
	return out
}

// place makes a gang whose pods each need a node of their own, and returns its UID once all are bound.
func place(t *testing.T, k *kube.Clients, name string, nodes map[string]api.Incarnation) string {
	t.Helper()
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	g.Spec.SchedulingPolicy.Gang.MinCount = int32(len(nodes))
	if err := k.Basalt.Post().Namespace("default").Resource("podgroups").Body(g).Do(t.Context()).Into(g); err != nil {
		t.Fatal(err)
	}
	for i := range len(nodes) {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", name, i), Labels: map[string]string{api.LabelPodGroup: name}}, Spec: corev1.PodSpec{
			SchedulerName: api.SchedulerName,
			Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("3")}}}},
		}}
		if _, err := k.Core.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	localtest.Wait(t, patience, "the binding of gang "+name, func(ctx context.Context) error {
		pods, err := k.Core.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: api.LabelPodGroup + "=" + name})
		if err != nil {
			return err
		}
		used := map[string]bool{}
		for _, p := range pods.Items {
			used[p.Spec.NodeName] = p.Spec.NodeName != ""
		}
		if len(used) != len(nodes) || used[""] {
			return fmt.Errorf("bound to %v", used)
		}
		// The root span ends when the gang's home knows that it is whole.
		if err := k.Basalt.Get().Namespace("default").Resource("podgroups").Name(name).Do(ctx).Into(g); err != nil {
			return err
		}
		if g.Status == nil || !slices.ContainsFunc(g.Status.Conditions, func(c metav1.Condition) bool {
			return c.Type == v1beta1.ConditionPodGroupInitiallyScheduled && c.Status == metav1.ConditionTrue
		}) {
			return fmt.Errorf("status %+v", g.Status)
		}
		return nil
	})
	return string(g.UID)
}

func remove(t *testing.T, k *kube.Clients, name string) {
	t.Helper()
	now := int64(0)
	if err := k.Core.CoreV1().Pods("default").DeleteCollection(t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{LabelSelector: api.LabelPodGroup + "=" + name}); err != nil {
		t.Fatal(err)
	}
	if err := k.Basalt.Delete().Namespace("default").Resource("podgroups").Name(name).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
}

func TestGangOfTwoShardsIsOneTrace(t *testing.T) {
	c := localtest.Cluster(t, local.Options{Basalt: localtest.Basalt(t)})
	k, err := kube.ConnectConfig(c.Config(local.Admin), "tracetest")
	if err != nil {
		t.Fatal(err)
	}
	r, endpoint := listen(t)

	stop := start(t, c, local.BasaltOptions{OTLP: endpoint})
	owners := table(t, c)
	nodes := map[string]api.Incarnation{} // two of each shard, and each has room for one pod
	for i := 0; len(nodes) < 4; i++ {
		name := fmt.Sprintf("node-%d", i)
		owner, of := owners.OwnerOf(name), 0
		for _, o := range nodes {
			if o == owner {
				of++
			}
		}
		if of < 2 {
			nodes[name] = owner
			if _, err := k.Core.CoreV1().Nodes().Create(t.Context(), kubelet.Node(name, "4", "16Gi", 10), metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	one := place(t, k, "one", nodes)
	remove(t, k, "one")
	two := place(t, k, "two", nodes)
	remove(t, k, "two")
	if now := table(t, c); now.Owners != owners.Owners || !slices.Equal(now.Members, owners.Members) {
		t.Skipf("the table moved while the test ran, which a machine under load does to it: %v, %v", owners.Members, now.Members)
	}
	stop()
	home := owners.OwnerOf(api.DefaultQueue)
	for gang, uid := range map[string]string{"default/one": one, "default/two": two} {
		judge(t, gang, r.of(t, api.TraceIDOf(uid)), home, owners)
	}

	// Without --otlp nothing leaves the process, whatever the environment says.
	r.mu.Lock()
	before := r.calls
	r.mu.Unlock()
	stop = start(t, c, local.BasaltOptions{Env: []string{"OTEL_EXPORTER_OTLP_ENDPOINT=http://" + endpoint, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=http://" + endpoint, "OTEL_TRACES_EXPORTER=otlp"}})
	place(t, k, "three", nodes)
	stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.calls != before {
		t.Errorf("%d exports without --otlp", r.calls-before)
	}
}

// judge looks at the trace of one gang.
func judge(t *testing.T, gang string, spans map[string]span, home api.Incarnation, owners *api.Table) {
	t.Helper()
	var root span
	by := map[string]map[string][]span{} // service -> name -> spans
	for _, s := range spans {
		if by[s.service] == nil {
			by[s.service] = map[string][]span{}
		}
		by[s.service][s.Name] = append(by[s.service][s.Name], s)
		if len(s.ParentSpanId) == 0 {
			if root.Span != nil {
				t.Errorf("%s: two roots: %s and %s", gang, root.Name, s.Name)
			}
			root = s
		}
	}
	if root.Span == nil {
		t.Fatalf("%s: no root among %d spans %v", gang, len(spans), names(spans))
	}
	if root.Name != "gang" || root.instance != string(home) || attribute(root.Attributes, "gang") != gang {
		t.Errorf("%s: root %s of %s, %v; the home is %s", gang, root.Name, root.instance, root.Attributes, home)
	}
	for id, s := range spans {
		if s.StartTimeUnixNano == 0 || s.StartTimeUnixNano > s.EndTimeUnixNano {
			t.Errorf("%s: %s begins at %d and ends at %d", gang, s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano)
		}
		if len(s.ParentSpanId) == 0 {
			continue
		}
		parent, there := spans[hex.EncodeToString(s.ParentSpanId)]
		if !there {
			t.Errorf("%s: the parent of %s (%s) is missing", gang, s.Name, id)
			continue
		}
		// What a message caused begins after the work that sent it, and all of it lies within the whole. Only the answer to a
		// Binding may come later than the watch that showed the pod to its home.
		late := s.Name == "bind" && s.StartTimeUnixNano <= root.EndTimeUnixNano
		if s.StartTimeUnixNano < parent.StartTimeUnixNano || s.StartTimeUnixNano < root.StartTimeUnixNano || s.EndTimeUnixNano > root.EndTimeUnixNano && !late {
			t.Errorf("%s: %s [%d, %d] under %s [%d, %d], whole [%d, %d]", gang, s.Name, s.StartTimeUnixNano, s.EndTimeUnixNano, parent.Name,
				parent.StartTimeUnixNano, parent.EndTimeUnixNano, root.StartTimeUnixNano, root.EndTimeUnixNano)
		}
		for up, steps := s, 0; len(up.ParentSpanId) > 0; steps++ {
			if up, there = spans[hex.EncodeToString(up.ParentSpanId)]; !there || steps > len(spans) {
				t.Errorf("%s: %s does not hang under the root", gang, s.Name)
				break
			}
		}
	}
	// The home shard tells the five phases, one after the other.
	var last span
	for _, phase := range []string{"queue wait", "reserve", "hold", "commit", "bind"} {
		of := slices.DeleteFunc(slices.Clone(by["basalt-shard"][phase]), func(s span) bool { return !bytes.Equal(s.ParentSpanId, root.SpanId) })
		if len(of) != 1 || of[0].instance != string(home) {
			t.Errorf("%s: %d spans %q of the home shard among %v", gang, len(of), phase, names(spans))
			continue
		}
		if last.Span != nil && of[0].StartTimeUnixNano < last.EndTimeUnixNano {
			t.Errorf("%s: %s begins before %s ends", gang, phase, last.Name)
		}
		last = of[0]
	}
	if n := len(by["basalt-coordinator"]["coordinator.reserve"]); n != 1 {
		t.Errorf("%s: %d spans of the coordinator among %v", gang, n, names(spans))
	}
	for _, name := range []string{"prepare", "bind"} { // and each of the two shards what it did on its nodes
		var shards []string
		for _, s := range by["basalt-shard"][name] {
			if !bytes.Equal(s.ParentSpanId, root.SpanId) {
				shards = append(shards, s.instance)
			}
		}
		slices.Sort(shards)
		want := []string{string(owners.Members[0].Incarnation), string(owners.Members[1].Incarnation)}
		slices.Sort(want)
		if !slices.Equal(shards, want) {
			t.Errorf("%s: %s was done by %v, the shards are %v", gang, name, shards, want)
		}
	}
}

func names(spans map[string]span) string {
	var out []string
	for _, s := range spans {
		out = append(out, s.service+":"+s.Name)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}
