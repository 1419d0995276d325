// Package tracing checks what a gang's trace looks like to whoever receives it.
package tracing

import (
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

	coltrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/bench/kubelet"
	"basalt.dev/basalt/bench/local"
	"basalt.dev/basalt/bench/local/localtest"
)

// span is what the receiver keeps of a span.
type span struct {
	id, parent, name, process, role string
	start, end                      time.Time
}

// receiver is an OTLP endpoint.
type receiver struct {
	coltrace.UnimplementedTraceServiceServer
	mu     sync.Mutex
	traces map[string][]span
}

func (r *receiver) Export(_ context.Context, in *coltrace.ExportTraceServiceRequest) (*coltrace.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, resource := range in.ResourceSpans {
		attributes := map[string]string{}
		for _, a := range resource.GetResource().GetAttributes() {
			attributes[a.Key] = a.GetValue().GetStringValue()
		}
		for _, scope := range resource.ScopeSpans {
			for _, s := range scope.Spans {
				trace := hex.EncodeToString(s.TraceId)
				r.traces[trace] = append(r.traces[trace], span{
					id: hex.EncodeToString(s.SpanId), parent: hex.EncodeToString(s.ParentSpanId), name: s.Name,
					process: attributes["service.instance.id"], role: attributes["service.name"],
					start: time.Unix(0, int64(s.StartTimeUnixNano)), end: time.Unix(0, int64(s.EndTimeUnixNano)),
				})
			}
		}
	}
	return &coltrace.ExportTraceServiceResponse{}, nil
}

// A gang that is placed over two shards leaves one tree of spans, from all the processes that it went through.
func TestAGangOverTwoShardsIsOneTrace(t *testing.T) {
	ctx := t.Context()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	received := &receiver{traces: map[string][]span{}}
	server := grpc.NewServer()
	coltrace.RegisterTraceServiceServer(server, received)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	cluster := localtest.Cluster(t, local.Options{Basalt: localtest.Basalt(t)})
	if err := cluster.Install(ctx); err != nil {
		t.Fatal(err)
	}
	options := local.BasaltOptions{OTLP: listener.Addr().String(), Restart: true}
	for i := range 2 {
		if _, err := cluster.StartShard(ctx, fmt.Sprintf("shard-%d", i), options); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := cluster.StartCoordinator(ctx, "coordinator-0", options); err != nil {
		t.Fatal(err)
	}
	clients, err := kube.ConnectConfig(cluster.Config(local.Admin), "test")
	if err != nil {
		t.Fatal(err)
	}

	// Two nodes of each shard, and a gang that needs all four.
	control, err := store.Open(ctx, store.Options{Endpoints: cluster.ControlStore()})
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	var table *api.Table
	localtest.Wait(t, 2*time.Minute, "both shards to own buckets", func(ctx context.Context) (err error) {
		if table, err = control.Table(ctx); err == nil && (table == nil || len(table.Members) < 2 || table.Owned(table.Members[0].Incarnation) == 0 || table.Owned(table.Members[1].Incarnation) == 0) {
			err = errors.New("not yet")
		}
		return err
	})
	owned := map[api.Incarnation]int{}
	for i := 0; owned[table.Members[0].Incarnation] < 2 || owned[table.Members[1].Incarnation] < 2; i++ {
		name := fmt.Sprintf("node-%d", i)
		if who := table.OwnerOf(name); owned[who] < 2 {
			owned[who]++
			node := kubelet.Node(name, "4", "16Gi", 10)
			if _, err := clients.Core.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	group := &v1alpha1.PodGroup{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "PodGroup"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "wide"},
	}
	group.Spec.SchedulingPolicy.Gang.MinCount = 4
	if err := clients.Basalt.Post().Namespace("default").Resource("podgroups").Body(group).Do(ctx).Into(group); err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("wide-%d", i), Labels: map[string]string{api.LabelPodGroup: "wide"}},
			Spec: v1.PodSpec{SchedulerName: api.SchedulerName, Containers: []v1.Container{{Name: "c", Image: "none",
				Resources: v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("3")}}}}},
		}
		if _, err := clients.Core.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	// Exporters send in batches, each process its own: the tree is whole when the last one has.
	id := api.TraceIDOf(string(group.UID))
	var why error
	localtest.Wait(t, 2*time.Minute, "the gang's trace", func(context.Context) error {
		received.mu.Lock()
		defer received.mu.Unlock()
		if why = judge(received.traces[hex.EncodeToString(id[:])]); why != nil {
			return fmt.Errorf("%w\n%s", why, picture(received.traces[hex.EncodeToString(id[:])]))
		}
		return nil
	})
}

// judge says what a trace lacks to be the tree of a gang over two shards.
func judge(spans []span) error {
	byID := map[string]span{}
	for _, s := range spans {
		if other, twice := byID[s.id]; twice {
			return fmt.Errorf("spans %q and %q have one id", s.name, other.name)
		}
		byID[s.id] = s
	}
	var root *span
	nodeShards, roles := map[string]bool{}, map[string]bool{}
	names := map[string]int{}
	for _, s := range spans {
		roles[s.role] = true
		names[s.name]++
		if s.name == "prepare" {
			nodeShards[s.process] = true
		}
		if s.parent == "" {
			if root != nil {
				return fmt.Errorf("two roots: %q and %q", root.name, s.name)
			}
			root = &s
		} else if _, ok := byID[s.parent]; !ok {
			return fmt.Errorf("the parent of %q is not there", s.name)
		}
		if s.end.Before(s.start) {
			return fmt.Errorf("%q ends before it starts", s.name)
		}
	}
	switch {
	case root == nil || root.name != "gang":
		return errors.New("no root called gang")
	case len(nodeShards) < 2:
		return fmt.Errorf("prepared at %d shards", len(nodeShards))
	case !roles["basalt-coordinator"] || !roles["basalt-shard"]:
		return fmt.Errorf("roles %v", roles)
	}
	for _, name := range []string{"queue wait", "reserve", "coordinator.reserve", "hold", "commit", "bind", "prepare"} {
		if names[name] == 0 {
			return fmt.Errorf("no span %q", name)
		}
	}
	for _, s := range spans {
		// The watch may show a pod bound before the answer to its Binding is here: ends may lie beyond the root's.
		if s.start.Before(root.start) || s.start.After(root.end) {
			return fmt.Errorf("%q (%v to %v) begins outside of the root (%v to %v)", s.name, s.start, s.end, root.start, root.end)
		}
		for hops, p := 0, s; p.parent != ""; hops++ {
			if p = byID[p.parent]; hops > len(spans) {
				return fmt.Errorf("%q is its own ancestor", s.name)
			}
		}
	}
	return nil
}

func picture(spans []span) string {
	slices.SortFunc(spans, func(a, b span) int { return a.start.Compare(b.start) })
	var b strings.Builder
	for _, s := range spans {
		fmt.Fprintf(&b, "%s <- %s  %-20s %s %s %s\n", s.id, s.parent, s.name, s.role, s.process, s.end.Sub(s.start))
	}
	return b.String()
}

// The judge itself: each thing that can be wrong with a trace is found.
func TestJudge(t *testing.T) {
	at := func(ms int) time.Time { return time.UnixMilli(int64(1000 + ms)) }
	whole := func() []span {
		return []span{
			{"1", "", "gang", "a", "basalt-shard", at(0), at(100)},
			{"2", "1", "queue wait", "a", "basalt-shard", at(0), at(10)},
			{"3", "1", "reserve", "a", "basalt-shard", at(10), at(20)},
			{"4", "3", "coordinator.reserve", "c", "basalt-coordinator", at(11), at(19)},
			{"5", "1", "hold", "a", "basalt-shard", at(20), at(30)},
			{"6", "1", "commit", "a", "basalt-shard", at(30), at(50)},
			{"7", "6", "prepare", "a", "basalt-shard", at(31), at(40)},
			{"8", "6", "prepare", "b", "basalt-shard", at(31), at(45)},
			{"9", "1", "bind", "a", "basalt-shard", at(50), at(100)},
		}
	}
	if err := judge(whole()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(s []span) []span{
		"nothing":             func([]span) []span { return nil },
		"two roots":           func(s []span) []span { s[1].parent = ""; return s },
		"a parent is missing": func(s []span) []span { s[3].parent = "77"; return s },
		"one shard only":      func(s []span) []span { s[7].process = "a"; return s },
		"no coordinator":      func(s []span) []span { return slices.Delete(s, 3, 4) },
		"outside of the root": func(s []span) []span { s[8].start, s[8].end = at(101), at(102); return s },
		"one id twice":        func(s []span) []span { s[8].id = "7"; return s },
		"a loop":              func(s []span) []span { s[5].parent = "7"; return s },
	} {
		if judge(spoil(whole())) == nil {
			t.Errorf("%s: not found", name)
		}
	}
}
