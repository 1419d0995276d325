package standing

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestMain makes this program its own supervisor, as basalt-bench is.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "hold" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		if err := Hold(ctx, os.Args[2], Shape{Nodes: 2}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// repository makes a root whose state is the test's own and whose programs and manifests are the repository's.
func repository(t *testing.T) string {
	t.Helper()
	real := localtest.Programs(t, "etcd", "kube-apiserver", "kube-controller-manager")
	root := t.TempDir()
	for _, name := range []string{"bin", "deploy", "bench"} {
		if err := os.Symlink(filepath.Join(real, name), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func up(t *testing.T, root string) (state, string) {
	t.Helper()
	var out bytes.Buffer
	if err := Up(t.Context(), root, &out, Shape{}, []string{"hold", root}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // of a test that failed
		if err := Down(root, t.Output()); err != nil {
			t.Error(err)
		}
	})
	s, err := readState(root)
	if err != nil {
		t.Fatal(err)
	}
	if !s.alive() || !s.Ready || len(session(root, s.Pid)) != 4 {
		t.Fatalf("after up: %+v, alive %v, processes %v", s, s.alive(), session(root, s.Pid))
	}
	return s, out.String()
}

func wantNothingLeft(t *testing.T, root string, s state) {
	t.Helper()
	if s.alive() || len(session(root, s.Pid)) > 0 {
		t.Errorf("left running: supervisor %v, processes %v", s.alive(), session(root, s.Pid))
	}
	if _, err := os.Stat(dir(root)); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", dir(root), err)
	}
}

// Jobs get pods and end, and namespaces go, as on any cluster; then nothing is left.
func TestUpWorkDown(t *testing.T) {
	root := repository(t)
	s, said := up(t, root)
	if !strings.Contains(said, "export KUBECONFIG="+s.Kubeconfig) {
		t.Errorf("up does not tell the kubeconfig:\n%s", said)
	}
	var again bytes.Buffer
	if err := Up(t.Context(), root, &again, Shape{}, []string{"hold", root}); err != nil || !strings.Contains(again.String(), "already up") {
		t.Errorf("up again: %v\n%s", err, again.String())
	}

	cfg, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	space := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "work"}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	two := int32(2)
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: "job"}, Spec: batchv1.JobSpec{
		Parallelism: &two, Completions: &two,
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{"bench.basalt.dev/run-seconds": "0.1"}},
			Spec: corev1.PodSpec{
				SchedulerName: "none", RestartPolicy: corev1.RestartPolicyNever,
				Containers: []corev1.Container{{Name: "c", Image: "none"}},
			},
		},
	}}
	if _, err := client.BatchV1().Jobs("work").Create(ctx, job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	bound := map[string]bool{}
	localtest.Wait(t, 2*time.Minute, "the job to complete", func(ctx context.Context) error {
		pods, err := client.CoreV1().Pods("work").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.Spec.NodeName == "" && !bound[p.Name] { // this test is the scheduler
				err := client.CoreV1().Pods("work").Bind(ctx, &corev1.Binding{
					ObjectMeta: metav1.ObjectMeta{Name: p.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"},
				}, metav1.CreateOptions{})
				if err != nil {
					return err
				}
				bound[p.Name] = true
			}
		}
		j, err := client.BatchV1().Jobs("work").Get(ctx, "job", metav1.GetOptions{})
		if err == nil && j.Status.Succeeded != two {
			err = fmt.Errorf("%d pods, status %+v", len(pods.Items), j.Status)
		}
		return err
	})
	if err := client.CoreV1().Namespaces().Delete(ctx, "work", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	localtest.Wait(t, 2*time.Minute, "the namespace to be gone", func(ctx context.Context) error {
		n, err := client.CoreV1().Namespaces().Get(ctx, "work", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("still there: %+v %v", n.Status, err)
	})

	var out bytes.Buffer
	if err := Down(root, &out); err != nil || !strings.Contains(out.String(), "is down") {
		t.Fatalf("down: %v\n%s", err, out.String())
	}
	wantNothingLeft(t, root, s)
	out.Reset()
	if err := Down(root, &out); err != nil || !strings.Contains(out.String(), "No local cluster is up") {
		t.Errorf("down again: %v\n%s", err, out.String())
	}
}

// A supervisor that was killed leaves no child, and down cleans up after it.
func TestSupervisorKilled(t *testing.T) {
	root := repository(t)
	s, _ := up(t, root)
	if err := syscall.Kill(s.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	localtest.Wait(t, time.Minute, "its processes to be gone", func(context.Context) error {
		if pids := session(root, s.Pid); len(pids) > 0 {
			return fmt.Errorf("processes %v", pids)
		}
		return nil
	})
	if err := Down(root, t.Output()); err != nil {
		t.Fatal(err)
	}
	wantNothingLeft(t, root, s)
}

// A recorded pid that belongs to somebody else by now is neither believed nor killed.
func TestStaleStateIsNotBelieved(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(dir(root), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := writeState(root, state{Pid: os.Getpid(), Start: "1@another-boot", Ready: true}); err != nil {
		t.Fatal(err)
	}
	if err := Down(root, t.Output()); err != nil { // would end this test
		t.Fatal(err)
	}
	if _, err := os.Stat(dir(root)); !os.IsNotExist(err) {
		t.Errorf("%s is still there (%v)", dir(root), err)
	}
}
