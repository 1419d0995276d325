package relay

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// podNames are the pods that a handler was told of.
type podNames struct {
	mu   sync.Mutex
	pods map[string]bool
}

func (n *podNames) handler() kube.Handler[*v1.Pod] {
	return kube.Handler[*v1.Pod]{
		Replaced: func(list []*v1.Pod, _ kube.Ticket) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.pods = map[string]bool{}
			for _, p := range list {
				n.pods[p.Name] = true
			}
		},
		Seen: func(p *v1.Pod) { n.mu.Lock(); defer n.mu.Unlock(); n.pods[p.Name] = true },
		Gone: func(p *v1.Pod) { n.mu.Lock(); defer n.mu.Unlock(); delete(n.pods, p.Name) },
	}
}

func (n *podNames) wait(t *testing.T, who string, want ...string) {
	t.Helper()
	localtest.Wait(t, time.Minute, fmt.Sprintf("what %s sees", who), func(context.Context) error {
		n.mu.Lock()
		defer n.mu.Unlock()
		if got := slices.Sorted(maps.Keys(n.pods)); !slices.Equal(got, want) {
			return fmt.Errorf("it sees %q, there are %q", got, want)
		}
		return nil
	})
}

// An API server whose etcd goes back to a backup is seen as it is then, directly and through a relay: where it lost many
// writes, so that its resourceVersion is far below those that were seen, and where it lost only one.
func TestRestoredAPIServer(t *testing.T) {
	cluster := localtest.Cluster(t, local.Options{})
	clients, err := kube.ConnectConfig(cluster.Config(local.Admin), "basalt-test")
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	relay := New(Options{Self: "a", Log: log, Registry: prometheus.NewRegistry()}, noServer{})
	relay.Ask("a")
	defer relay.Close()
	defer wg.Wait()
	defer cancel()
	seen := map[string]*podNames{"the API server's watch": {}, "a reader of the relay": {}}
	for who, n := range seen {
		f := kube.Follow(clients.Core.CoreV1().RESTClient(), "pods", log, n.handler())
		if strings.Contains(who, "relay") {
			Attach(relay, f, pace)
		}
		wg.Go(func() { f.Run(ctx) })
		<-f.Synced()
	}
	see := func(want ...string) {
		t.Helper()
		for who, n := range seen {
			n.wait(t, who, want...)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	pods := clients.Core.CoreV1().Pods("default")
	create := func(name string) {
		t.Helper()
		_, err := pods.Create(ctx, &v1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{
			SchedulerName: api.SchedulerName, Containers: []v1.Container{{Name: "c", Image: "none"}}}}, metav1.CreateOptions{})
		must(err)
	}
	remove := func(name string) {
		t.Helper()
		var now int64
		must(pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: &now}))
	}
	etcd := cluster.APIStore()
	backup := t.TempDir() + "/backup"
	backUp := func() {
		t.Helper()
		must(etcd.Stop())
		must(os.RemoveAll(backup))
		must(os.CopyFS(backup, os.DirFS(etcd.DataDir())))
		must(etcd.Start(ctx))
	}
	restore := func() {
		t.Helper()
		cluster.KillAPIServer()
		must(etcd.Stop())
		must(os.RemoveAll(etcd.DataDir()))
		must(os.CopyFS(etcd.DataDir(), os.DirFS(backup)))
		must(etcd.Start(ctx))
		must(cluster.StartAPIServer(ctx))
	}

	create("kept")
	see("kept")
	backUp()
	for i := range 300 {
		other := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("other-", i)}}
		_, err := clients.Core.CoreV1().ConfigMaps("default").Create(ctx, other, metav1.CreateOptions{})
		must(err)
	}
	create("lost")
	remove("kept")
	see("lost")
	restore()
	create("new")
	see("kept", "new")

	backUp()
	create("lost")
	see("kept", "lost", "new")
	restore()
	see("kept", "new")
}
