package local_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	clientv3 "go.etcd.io/etcd/client/v3"

	"basalt.dev/basalt/bench/prove/seeds"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// keys returns what an etcd holds below a prefix.
func keys(t *testing.T, endpoints []string, prefix string) map[string]bool {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: endpoints})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	all, err := c.Get(t.Context(), prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, kv := range all.Kvs {
		out[string(kv.Key)] = true
	}
	return out
}

// TestReset uses a cluster in every way that leaves something behind, resets it, and uses it once more. It takes 20 s
// because a control plane and Basalt start. One in which Basalt was installed from the start has its turn every other
// day.
func TestReset(t *testing.T) {
	for _, installed := range seeds.OfTheDay(t, 2, []bool{false, true}) {
		reset(t, installed)
	}
}

func reset(t *testing.T, installed bool) {
	c, err := local.Start(t.Context(), local.Options{
		Root: localtest.Programs(t, "etcd", "kube-apiserver", "kube-controller-manager"), Dir: t.TempDir(),
		ControllerManager: true, Installed: installed,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Stop() })
	store := c.APIStore().Endpoints()
	local.Forget(c) // that it was asked for: here it is only read
	admin := client(t, c, local.Admin)
	settled(t, admin)
	before, ended := keys(t, store, ""), map[int]bool{}
	c.UseBasalt(localtest.Basalt(t))
	for round := range 2 {
		if err := c.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if held := keys(t, c.ControlStore(), ""); len(held) > 0 {
			t.Errorf("round %d: the control store holds %v", round, held)
		}
		if logs, err := filepath.Glob(filepath.Join(c.Dir(), "shard-*.log")); err != nil || len(logs) > 0 {
			t.Errorf("round %d: logs of earlier processes: %v %v", round, logs, err)
		}
		all := use(t, c, admin, round)
		for _, b := range all {
			ended[b.Pid()] = true
		}
	}
	if err := c.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, p := range c.Processes() {
		if ended[p.Pid()] {
			t.Errorf("%s runs on", p.Name())
		}
	}
	localtest.Wait(t, time.Minute, "the same keys as before", func(context.Context) error {
		now := keys(t, store, "")
		more := slices.DeleteFunc(slices.Sorted(maps.Keys(now)), func(k string) bool { return before[k] || kept(k) })
		less := slices.DeleteFunc(slices.Sorted(maps.Keys(before)), func(k string) bool { return now[k] || kept(k) })
		if len(more)+len(less) > 0 {
			return fmt.Errorf("more: %q, less: %q", more, less)
		}
		return nil
	})
	ns, err := admin.CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	if err != nil || ns.Labels["used"] != "" {
		t.Errorf("the namespace default is %+v, %v", ns, err)
	}
	if err := c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.Reset(t.Context()); err == nil || c.Untouched() {
		t.Errorf("somebody stopped the API server: %v", err)
	}
}

// kept are keys that controllers make and remove when they like, or in a namespace whose end they have not yet seen.
func kept(key string) bool {
	if strings.HasSuffix(key, "/kube-root-ca.crt") || strings.Contains(key, "/serviceaccounts/") {
		return true
	}
	if strings.Contains(key, "/rolebindings/kube-system/") { // Basalt's own is there
		return false
	}
	return strings.Contains(key, "/kube-system/") || strings.Contains(key, "/events/") || strings.Contains(key, "/leases/")
}

// settled waits until the controllers have made what they make at their start.
func settled(t *testing.T, admin kubernetes.Interface) {
	t.Helper()
	localtest.Wait(t, time.Minute, "what controllers make", func(ctx context.Context) error {
		for _, ns := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
			if _, err := admin.CoreV1().ServiceAccounts(ns).Get(ctx, "default", metav1.GetOptions{}); err != nil {
				return err
			}
			if _, err := admin.CoreV1().ConfigMaps(ns).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{}); err != nil {
				return err
			}
		}
		return nil
	})
}

// use installs Basalt, has it bind a pod, and leaves objects of many kinds behind, some of which nobody could delete in
// order.
func use(t *testing.T, c *local.Cluster, admin kubernetes.Interface, round int) []*local.Basalt {
	t.Helper()
	ctx := t.Context()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
	check(c.Install(ctx))
	_, err := admin.CoreV1().Nodes().Create(ctx, kubelet.Node("node-0", "4", "8Gi", 20), metav1.CreateOptions{})
	check(err)
	namespaces := admin.CoreV1().Namespaces()
	team := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team"}}
	_, err = namespaces.Create(ctx, team, metav1.CreateOptions{})
	check(err)
	label := []byte(`{"metadata":{"labels":{"used":"yes"}}}`)
	_, err = namespaces.Patch(ctx, "default", types.MergePatchType, label, metav1.PatchOptions{})
	check(err)
	all, err := c.StartBasalt(ctx, 1, 2, local.BasaltOptions{})
	check(err)
	check(local.WaitReady(ctx, all))
	p := pod("waits")
	p.Spec.SchedulerName = "basalt"
	p.Finalizers = []string{"example.com/never"}
	_, err = admin.CoreV1().Pods("default").Create(ctx, p, metav1.CreateOptions{})
	check(err)
	localtest.Wait(t, time.Minute, "the pod to be bound", func(ctx context.Context) error {
		p, err := admin.CoreV1().Pods("default").Get(ctx, "waits", metav1.GetOptions{})
		if err == nil && p.Spec.NodeName == "" {
			err = errors.New("it is not")
		}
		return err
	})
	for _, b := range all {
		if _, err := os.Stat(b.Log()); err != nil {
			t.Error(err)
		}
	}
	return all
}
