package follow_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/audit/follow"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

func TestMain(m *testing.M) { localtest.Run(m) }

// What stands in a real control store and a real API server reaches the judge, from the beginning and from the middle.
func TestFollow(t *testing.T) {
	c := localtest.Shared(t)
	ctx := t.Context()
	etcd, err := clientv3.New(clientv3.Config{Endpoints: c.ControlStore(), DialTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	commit := func(values map[string]proto.Message) {
		t.Helper()
		var ops []clientv3.Op
		for k, m := range values {
			b, err := proto.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			ops = append(ops, clientv3.OpPut("audit-test/"+k, string(b)))
		}
		if _, err := etcd.Txn(ctx).Then(ops...).Commit(); err != nil {
			t.Fatal(err)
		}
	}
	begin, err := etcd.Get(ctx, "x")
	if err != nil {
		t.Fatal(err)
	}
	from := begin.Header.Revision + 1

	commit(map[string]proto.Message{"leader/l/1": &wire.LeaderRecord{}})
	leader, err := etcd.Get(ctx, "audit-test/leader/l/1")
	if err != nil {
		t.Fatal(err)
	}
	term := uint64(leader.Kvs[0].CreateRevision)
	cpu := func(v int64) []*wire.Amount { return wire.FromResources(api.FromMap(map[string]int64{"cpu": v})) }
	seq := uint64(0)
	coordinate := func(key string, m proto.Message) {
		t.Helper()
		seq++
		commit(map[string]proto.Message{"seq": &wire.Sequence{Value: seq, Term: term}, key: m})
	}
	reserve := func(gang string, v int64) {
		t.Helper()
		coordinate("reservations/"+api.BucketOf("q").Label()+"/"+gang, &wire.ReservationRecord{
			Gang: &wire.GangRef{Uid: gang, Queue: "q"}, Attempt: 1, Demand: cpu(v), State: wire.ReservationState_RESERVATION_OPEN, Term: term})
	}
	coordinate("queues/q", &wire.LimitsRecord{Queue: "q", Capability: cpu(1000)})
	reserve("a", 600)

	type seen struct {
		mu    sync.Mutex
		found []audit.Violation
		pods  map[string]string
		last  int64
	}
	start := func(from int64) (*follow.Auditor, *seen) {
		s := &seen{pods: map[string]string{}}
		a, err := follow.New(follow.Options{
			Etcd: etcd, Kube: c.Config(local.Admin), Prefix: "audit-test/", StartRevision: from,
			Found: func(v audit.Violation) { s.mu.Lock(); defer s.mu.Unlock(); s.found = append(s.found, v) },
			Tap: func(_ time.Time, e audit.Event) {
				s.mu.Lock()
				defer s.mu.Unlock()
				switch e := e.(type) {
				case audit.Seen[*v1.Pod]:
					s.pods[e.Object.Name] = e.Object.Spec.NodeName
				case audit.StoreRevision:
					s.last = e.Revision
				}
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		runCtx, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- a.Run(runCtx) }()
		t.Cleanup(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
		select {
		case <-a.Synced():
		case <-time.After(time.Minute):
			t.Fatal("the auditor saw no lists within a minute")
		}
		return a, s
	}
	whole, sawWhole := start(from)
	late, sawLate := start(0)

	kube, err := kubernetes.NewForConfig(c.Config(local.Admin))
	if err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "audit-follow"}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: "i"}}}}
	if _, err := kube.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := kube.CoreV1().Pods("default").Bind(ctx, &v1.Binding{ObjectMeta: metav1.ObjectMeta{Name: "audit-follow"}, Target: v1.ObjectReference{Kind: "Node", Name: "n"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	reserve("b", 600)
	for _, s := range []*seen{sawWhole, sawLate} {
		localtest.Wait(t, time.Minute, "the violation and the pod", func(context.Context) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.found) != 1 || s.found[0].Kind != audit.Quota || s.pods["audit-follow"] != "n" {
				return fmt.Errorf("found %v, pods %v, revision %d", s.found, s.pods, s.last)
			}
			return nil
		})
	}
	for _, a := range []*follow.Auditor{whole, late} {
		if r := a.Report(); r.Sum() != 1 || r.Counts[audit.Quota] != 1 {
			t.Errorf("report %+v", r)
		}
	}

	// A store that cannot be read is an error at the beginning.
	closed, err := clientv3.New(clientv3.Config{Endpoints: c.ControlStore(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	a, err := follow.New(follow.Options{Etcd: closed, Kube: c.Config(local.Admin)})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Run(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Run over a closed client gave %v", err)
	}
}
