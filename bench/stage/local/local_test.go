package local_test

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

func TestMain(m *testing.M) { localtest.Run(m) }

func client(t *testing.T, c *local.Cluster, user string) kubernetes.Interface {
	t.Helper()
	k, err := kubernetes.NewForConfig(c.Config(user))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "none"}}},
	}
}

// auditLine is what the tests read of an audit event.
type auditLine struct {
	Verb          string
	User          struct{ Username string }
	ObjectRef     struct{ Resource, Subresource, Name string }
	RequestObject *struct {
		Target   struct{ Name string }
		Metadata struct{ UID string }
	}
	ResponseStatus struct{ Code int }
}

func auditLines(t *testing.T, path string) []auditLine {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []auditLine
	for s := bufio.NewScanner(f); s.Scan(); {
		var l auditLine
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatalf("%s: %v", s.Text(), err)
		}
		all = append(all, l)
	}
	return all
}

// The audit log holds every write of every user with the body of each Binding, also over a restart of the API server,
// and no process is left when the cluster has stopped. It takes half a minute because it starts and ends a cluster of
// its own.
func TestClusterAuditsWritesAndLeavesNothing(t *testing.T) {
	c := localtest.Bare(t, local.Options{Audit: true})
	ctx := t.Context()
	admin := client(t, c, local.Admin)
	if v, err := admin.Discovery().ServerVersion(); err != nil ||
		!strings.HasPrefix(v.GitVersion, "v"+cmp.Or(os.Getenv(local.Release), "1.37")+".") {
		t.Fatalf("server version %v, %v", v, err)
	}
	bind := func(name string) *corev1.Pod {
		t.Helper()
		p, err := admin.CoreV1().Pods("default").Create(ctx, pod(name), metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		err = client(t, c, local.Load).CoreV1().Pods("default").Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: p.UID}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	first := bind("before")
	if err := c.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := c.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	second := bind("after")
	// A shard has no right without the roles of deploy/: its denied write is in the log too.
	_, err := client(t, c, local.Shard).CoreV1().Pods("default").Create(ctx, pod("denied"), metav1.CreateOptions{})
	if err == nil {
		t.Error("a shard without roles created a pod")
	}

	var pids []int
	for _, p := range c.Processes() {
		pids = append(pids, p.Pid())
	}
	if len(pids) != 3 {
		t.Errorf("%d processes, want two etcds and an API server", len(pids))
	}
	begin := time.Now()
	if err := c.Stop(); err != nil {
		t.Fatal(err)
	}
	t.Logf("stopped in %s", time.Since(begin))
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is still there (%v)", pid, err)
		}
	}

	got := map[string]int{}
	for _, l := range auditLines(t, c.AuditLog()) {
		if l.Verb == "get" || l.Verb == "list" || l.Verb == "watch" {
			t.Errorf("a read in the log: %+v", l)
		}
		if l.ObjectRef.Resource != "pods" {
			continue
		}
		key := fmt.Sprintf("%s %s %s/%s %d", l.User.Username, l.Verb, l.ObjectRef.Name, l.ObjectRef.Subresource, l.ResponseStatus.Code)
		if l.RequestObject != nil {
			key += " " + l.RequestObject.Target.Name + " " + l.RequestObject.Metadata.UID
		}
		got[key]++
	}
	want := []string{
		"admin create before/ 201", "bench-load create before/binding 201 node-1 " + string(first.UID),
		"admin create after/ 201", "bench-load create after/binding 201 node-1 " + string(second.UID),
		local.Shard + " create / 403", /* refused before its body is read */
	}
	for _, w := range want {
		if got[w] != 1 {
			t.Errorf("%d lines %q, want 1; all: %v", got[w], w, got)
		}
	}
}

// An open watch must not hold up the API server's end: every test would wait for it.
func TestStopWithOpenWatch(t *testing.T) {
	c := localtest.Bare(t, local.Options{})
	w, err := client(t, c, local.Admin).CoreV1().Pods("").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	begin := time.Now()
	if err := c.StopAPIServer(); err != nil { // SIGKILL after the grace would be an error
		t.Fatal(err)
	}
	t.Logf("the API server ended in %s", time.Since(begin))
	for range w.ResultChan() { // until it is closed
	}
}

func TestEtcdKeepsDataAndPort(t *testing.T) {
	e := localtest.Etcd(t)
	ctx := t.Context()
	c, err := clientv3.New(clientv3.Config{Endpoints: e.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	before := e.Endpoints()[0]
	for i, end := range []func(){func() { _ = e.Stop() }, e.Kill} {
		put, err := c.Put(ctx, "key", fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		end()
		if err := e.Start(ctx); err != nil {
			t.Fatal(err)
		}
		localtest.Wait(t, time.Minute, "the value", func(ctx context.Context) error {
			got, err := c.Get(ctx, "key")
			if err != nil {
				return err
			}
			if len(got.Kvs) != 1 || string(got.Kvs[0].Value) != fmt.Sprint(i) || got.Kvs[0].ModRevision != put.Header.Revision {
				return fmt.Errorf("got %v, want %d at revision %d", got.Kvs, i, put.Header.Revision)
			}
			return nil
		})
	}
	if e.Endpoints()[0] != before {
		t.Errorf("endpoint moved from %s to %s", before, e.Endpoints()[0])
	}
}

func TestProgramThatDiesIsQuoted(t *testing.T) {
	root, err := local.Root()
	if err != nil {
		t.Fatal(err)
	}
	_, err = local.Start(t.Context(), local.Options{Root: root, Dir: t.TempDir(), APIServerFlags: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "kube-apiserver died while starting") || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("error %v", err)
	}
}
