package kubelet

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

func TestNext(t *testing.T) {
	deleted := metav1.Now()
	zero, thirty := int64(0), int64(30)
	for _, c := range []struct {
		name      string
		phase     corev1.PodPhase
		deletion  *int64
		ran, run  time.Duration
		ends      bool
		skip      bool
		want      step
		wantAgain time.Duration
	}{
		{name: "bound", phase: corev1.PodPending, want: start},
		{name: "bound, time already over, is seen running first", phase: corev1.PodPending, ran: 9, run: 5, ends: true, want: start},
		{name: "runs for ever", phase: corev1.PodRunning, want: nothing},
		{name: "runs", phase: corev1.PodRunning, ran: 2, run: 5, ends: true, want: nothing, wantAgain: 3},
		{name: "has run", phase: corev1.PodRunning, ran: 5, run: 5, ends: true, want: finish},
		{name: "has finished", phase: corev1.PodSucceeded, ran: 9, run: 5, ends: true, want: nothing},
		{name: "skip: bound for ever", phase: corev1.PodPending, skip: true, want: nothing},
		{name: "skip: bound", phase: corev1.PodPending, ran: 2, run: 5, ends: true, skip: true, want: nothing, wantAgain: 3},
		{name: "skip: has run", phase: corev1.PodPending, ran: 5, run: 5, ends: true, skip: true, want: finish},
		{name: "deleted while running", phase: corev1.PodRunning, deletion: &thirty, ran: 5, run: 5, ends: true, want: remove},
		{name: "deleted when finished", phase: corev1.PodSucceeded, deletion: &thirty, want: remove},
		{name: "deleted, kept by a finalizer", phase: corev1.PodSucceeded, deletion: &zero, want: nothing},
	} {
		p := &corev1.Pod{Status: corev1.PodStatus{Phase: c.phase}}
		if c.deletion != nil {
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &deleted, c.deletion
		}
		if got, again := next(p, c.ran, c.run, c.ends, c.skip); got != c.want || again != c.wantAgain {
			t.Errorf("%s: step %d, again in %d; want %d, %d", c.name, got, again, c.want, c.wantAgain)
		}
	}
}

// Pods with a node run, end after their time and go when deleted, also after the API server was gone for a while.
// It takes 20 seconds because the API server is started twice.
func TestPodsLiveOverACutWatch(t *testing.T) {
	cluster := localtest.Cluster(t, local.Options{})
	client, err := kubernetes.NewForConfig(cluster.Config(local.NodeStandIn))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, Options{Client: client}) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	if _, err := client.CoreV1().Nodes().Create(ctx, Node("n", "4", "8Gi", 110), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	pods := client.CoreV1().Pods("default")
	create := func(name string, annotations map[string]string) {
		t.Helper()
		_, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations},
			Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "none"}}},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	wantPhase := func(name string, want corev1.PodPhase) {
		t.Helper()
		localtest.Wait(t, time.Minute, name+" to be "+string(want), func(ctx context.Context) error {
			p, err := pods.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if p.Status.Phase != want {
				return fmt.Errorf("phase %s", p.Status.Phase)
			}
			return nil
		})
	}
	create("service", nil)
	create("short", map[string]string{RunSeconds: "0.2"})
	create("long", map[string]string{RunSeconds: "3600"})
	wantPhase("service", corev1.PodRunning)
	wantPhase("short", corev1.PodSucceeded)
	wantPhase("long", corev1.PodRunning)

	if err := cluster.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	if err := cluster.StartAPIServer(ctx); err != nil {
		t.Fatal(err)
	}
	create("later", map[string]string{RunSeconds: "0.2"})
	wantPhase("later", corev1.PodSucceeded)
	for _, name := range []string{"service", "short"} {
		if err := pods.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		localtest.Wait(t, time.Minute, name+" to be gone", func(ctx context.Context) error {
			p, err := pods.Get(ctx, name, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return fmt.Errorf("still there: %v %v", p.DeletionTimestamp, err)
		})
	}
	wantPhase("long", corev1.PodRunning)
}

// A pod of a Job runs for as long as it says, or its commands sleep, or all of them do: read of what is kept of it.
func TestRunTime(t *testing.T) {
	s := &standIn{}
	s.JobRun = 5 * time.Second
	job, other := metav1.OwnerReference{Kind: "Job", Controller: new(true)}, metav1.OwnerReference{Kind: "ReplicaSet", Controller: new(true)}
	for i, c := range []struct {
		owner         metav1.OwnerReference
		says          string
		command, args []string
		want          time.Duration
		ends          bool
	}{
		{owner: job, want: 5 * time.Second, ends: true},
		{owner: job, command: []string{"sleep", "600"}, want: 10 * time.Minute, ends: true},
		{owner: job, command: []string{"sleep"}, args: []string{"60"}, want: time.Minute, ends: true},
		{owner: job, says: "2", command: []string{"sleep", "600"}, want: 2 * time.Second, ends: true},
		{owner: job, command: []string{"/bin/sleep", "10m"}, want: 10 * time.Minute, ends: true},
		{owner: job, command: []string{"sleep", "1m", "0.5"}, want: 60500 * time.Millisecond, ends: true},
		{owner: job, args: []string{"sleep", "600"}, want: 10 * time.Minute, ends: true},
		{owner: job, command: []string{"sh", "-c", "sleep 600"}, want: 10 * time.Minute, ends: true},
		{owner: job, command: []string{"/bin/bash", "-c"}, args: []string{"echo x; sleep 60 && sleep 30\n"},
			want: 90 * time.Second, ends: true},
		{owner: job, command: []string{"sh", "-c", "echo x"}, want: 5 * time.Second, ends: true},
		{owner: job, command: []string{"sleep", "infinity"}},
		{owner: job, command: []string{"sleep", "99999999999"}},
		{owner: job, command: []string{"sleep", "-1"}, want: 5 * time.Second, ends: true},
		{owner: job, command: []string{"sleep", "x"}, want: 5 * time.Second, ends: true},
		{owner: job, command: []string{"sleep"}, want: 5 * time.Second, ends: true},
		{owner: job, says: "x", command: []string{"sleep", "600"}},
		{owner: other, command: []string{"sleep", "600"}},
		{owner: other, says: "0.25", want: 250 * time.Millisecond, ends: true},
	} {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{c.owner}}}
		if c.says != "" {
			p.Annotations = map[string]string{RunSeconds: c.says}
		}
		for _, helpers := range []int{0, 1} {
			p.Spec.Containers = make([]corev1.Container, 1+helpers)
			p.Spec.Containers[0].Command, p.Spec.Containers[0].Args = c.command, c.args
			kept, err := s.reduce(p)
			if err != nil {
				t.Fatal(err)
			}
			if got, ends := s.runTime(kept.(*corev1.Pod)); got != c.want || ends != c.ends {
				t.Errorf("%d: with %d helpers it runs for %v (%v), want %v (%v)", i, helpers, got, ends, c.want, c.ends)
			}
		}
	}
}

// With Room, pods are admitted as long as their node has room, and a resize is answered once.
func TestAdmit(t *testing.T) {
	s := &standIn{admitted: map[string]map[types.UID]corev1.ResourceList{}, resized: map[types.UID]bool{}}
	s.Room = func(node string) corev1.ResourceList {
		if node != "n" {
			return nil
		}
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}
	}
	pod := func(uid, node, cpu string, phase corev1.PodPhase) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Status: corev1.PodStatus{Phase: phase}}
		p.Spec.NodeName = node
		p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), "example.com/unknown": resource.MustParse("7")}}}}
		return p
	}
	for i, c := range []struct {
		pod      *corev1.Pod
		released bool
		here     bool
		reason   string // of the status that is written, or of its condition
	}{
		{pod: pod("a", "n", "3", corev1.PodPending), here: true},
		{pod: pod("a", "n", "3", corev1.PodRunning), here: true},
		{pod: pod("b", "n", "2", corev1.PodPending), here: true, reason: "OutOfcpu"},
		{pod: pod("c", "n", "900000", corev1.PodPending), here: true, reason: "OutOfcpu"},
		{pod: pod("d", "elsewhere", "1", corev1.PodPending), here: false},
		{pod: pod("a", "n", "100", corev1.PodRunning), here: true, reason: corev1.PodReasonInfeasible},
		{pod: pod("a", "n", "100", corev1.PodRunning), here: true},
		{pod: pod("a", "n", "3", corev1.PodRunning), released: true, here: true},
		{pod: pod("b", "n", "2", corev1.PodPending), here: true},
		{pod: pod("b", "n", "1", corev1.PodRunning), here: true, reason: corev1.PodReasonDeferred},
	} {
		if c.released {
			s.release(c.pod)
			continue
		}
		status, here := s.admit(c.pod)
		reason := ""
		if status != nil {
			if reason = status.Reason; len(status.Conditions) > 0 {
				reason = status.Conditions[0].Reason
			}
		}
		if here != c.here || reason != c.reason {
			t.Errorf("%d: pod %s: %q, %t; want %q, %t", i, c.pod.UID, reason, here, c.reason, c.here)
		}
	}
}
