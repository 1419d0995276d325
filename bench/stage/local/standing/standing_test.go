package standing

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/bench/stage/programs"
)

// TestMain makes this program its own supervisor, as basalt-bench is.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "hold" {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		shape := Shape{Nodes: 2, Volcano: os.Args[3] == "volcano"}
		if os.Args[3] != "nothing" {
			shape.Shards, shape.Coordinators = 2, 1
		}
		if err := Hold(ctx, os.Args[2], shape); err != nil {
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
	real := localtest.Programs(t, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
	root := t.TempDir()
	for _, name := range []string{"bin", "deploy", "bench"} {
		if err := os.Symlink(filepath.Join(real, name), filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func up(t *testing.T, root string, shape Shape) (state, string) {
	t.Helper()
	var out bytes.Buffer
	beside, processes := "nothing", 5+shape.Shards+shape.Coordinators
	switch {
	case shape.Volcano:
		beside, processes = "volcano", processes+1
	case shape.Shards > 0:
		beside = "basalt"
	}
	if shape.Shards > 0 {
		processes++ // the console
	}
	hold := []string{"hold", root, beside}
	if err := Up(t.Context(), root, &out, shape, hold); err != nil {
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
	if !s.alive() || !s.Ready || len(session(root, s.Pid)) != processes {
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
	s, said := up(t, root, Shape{})
	if !strings.Contains(said, "export KUBECONFIG="+s.Kubeconfig) {
		t.Errorf("up does not tell the kubeconfig:\n%s", said)
	}
	var again bytes.Buffer
	if err := Up(t.Context(), root, &again, Shape{}, []string{"hold", root, "nothing"}); err != nil ||
		!strings.Contains(again.String(), "already up") {
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
			Spec: corev1.PodSpec{ // which kube-scheduler binds
				RestartPolicy: corev1.RestartPolicyNever,
				Containers:    []corev1.Container{{Name: "c", Image: "none"}},
			},
		},
	}}
	if _, err := client.BatchV1().Jobs("work").Create(ctx, job, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	localtest.Wait(t, 2*time.Minute, "the job to complete", func(ctx context.Context) error {
		j, err := client.BatchV1().Jobs("work").Get(ctx, "job", metav1.GetOptions{})
		if err == nil && j.Status.Succeeded != two {
			err = fmt.Errorf("status %+v", j.Status)
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

// Pods that name no scheduler are kube-scheduler's, and Basalt takes their nodes for as full as they make them. Each
// shard is named to the user, so that one of them may be dead. It takes 26 s: a whole local cluster goes up and down.
func TestBesideBasalt(t *testing.T) {
	localtest.Programs(t, "basalt")
	t.Setenv(programs.Built, os.Getenv(programs.Built)+" basalt") // it cannot be built in a root without sources
	root := repository(t)
	s, said := up(t, root, Shape{Shards: 2, Coordinators: 1})
	if len(s.Visibility) != 2 ||
		!strings.Contains(said, "export BASALT_SERVER="+s.Visibility[0]+","+s.Visibility[1]+"\n") {
		t.Errorf("up does not tell both shards, %q:\n%s", s.Visibility, said)
	}
	jar, _ := cookiejar.New(nil)
	page, err := (&http.Client{Jar: jar}).Get(s.Console)
	if err != nil {
		t.Fatal(err)
	}
	defer page.Body.Close()
	if text, err := io.ReadAll(page.Body); err != nil || page.StatusCode != 200 ||
		!strings.Contains(string(text), "My work") || !strings.Contains(said, s.Console) {
		t.Errorf("the console at %q: %v %d %s\n%s", s.Console, err, page.StatusCode, text, said)
	}
	cfg, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	pods, ctx := client.CoreV1().Pods(metav1.NamespaceDefault), t.Context()
	create := func(name, scheduler, cpu string) {
		t.Helper()
		_, err := pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			SchedulerName: scheduler, TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)},
			}}},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	wait := func(name, what string, is func(*corev1.Pod) bool) {
		t.Helper()
		localtest.Wait(t, 2*time.Minute, name+what, func(ctx context.Context) error {
			p, err := pods.Get(ctx, name, metav1.GetOptions{})
			if err == nil && !is(p) {
				err = fmt.Errorf("on %q: %+v", p.Spec.NodeName, p.Status.Conditions)
			}
			return err
		})
	}
	bound := func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }
	for _, name := range []string{"theirs-0", "theirs-1"} { // on two nodes of 32
		create(name, "", "20")
		wait(name, " to be bound by kube-scheduler", bound)
	}
	create("ours", api.SchedulerName, "20")
	wait("ours", " to find no room", func(p *corev1.Pod) bool {
		return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse &&
				c.Reason == corev1.PodReasonUnschedulable
		})
	})
	if err := pods.Delete(ctx, "theirs-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wait("ours", " to be bound in its place", bound)
}

// A supervisor that was killed leaves no child, and down cleans up after it.
func TestSupervisorKilled(t *testing.T) {
	root := repository(t)
	s, _ := up(t, root, Shape{})
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
