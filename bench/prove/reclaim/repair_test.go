package reclaim

import (
	"context"
	"errors"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// repairs has a Job lose a pod in a full queue in which another gang waits: the Job controller makes the pod again
// after a pause, the gang is whole again, and the other one waits on.
func (w *world) repairs() {
	w.t.Helper()
	w.queue("jobs", v1beta1.QueueSpec{Capability: cores("16")})
	w.job("job-0", "jobs", size)
	w.runs("jobs", "job-0", size, patience)
	w.makeGang("filler-0", "jobs", "", 1, 1)
	localtest.Wait(w.t, patience, "filler-0 to wait for quota", func(context.Context) error {
		if c := w.condition("filler-0", v1beta1.ConditionQuotaReserved); c == nil || c.Status == metav1.ConditionTrue {
			return errors.New("it does not say so")
		}
		return nil
	})
	pods, err := w.kube.Core.CoreV1().Pods("default").
		List(w.t.Context(), metav1.ListOptions{LabelSelector: api.LabelPodGroup + "=job-0"})
	w.check(err)
	lost := pods.Items[0]
	at := time.Now()
	w.check(w.kube.Core.CoreV1().Pods("default").Delete(w.t.Context(), lost.Name, metav1.DeleteOptions{}))
	localtest.Wait(w.t, patience, "job-0 to lose a pod", func(ctx context.Context) error {
		p, err := w.kube.Core.CoreV1().Pods("default").Get(ctx, lost.Name, metav1.GetOptions{})
		if err == nil && p.UID == lost.UID {
			return errors.New("it is still there")
		}
		return nil
	})
	w.runs("jobs", "job-0", size, patience)
	w.t.Logf("a Job was whole again %s after it lost a pod", time.Since(at).Round(100*time.Millisecond))
	w.runs("jobs", "filler-0", 0, patience)
	foreground := metav1.DeletePropagationForeground
	w.check(w.kube.Core.BatchV1().Jobs("default").
		Delete(w.t.Context(), "job-0", metav1.DeleteOptions{PropagationPolicy: &foreground}))
	w.runs("jobs", "filler-0", 1, patience)
	w.deleteGang("filler-0")
}

// job makes a PodGroup of so many pods, and a Job of them.
func (w *world) job(name, queue string, n int32) {
	w.t.Helper()
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	g.Spec.Queue = queue
	g.Spec.SchedulingPolicy.Gang.MinCount = n
	w.check(w.kube.Basalt.Post().Namespace("default").Resource("podgroups").Body(g).Do(w.t.Context()).Error())
	grace := int64(1)
	labels := map[string]string{api.LabelPodGroup: name, "team": queue}
	main := corev1.Container{Name: "main", Image: "none"}
	main.Resources.Requests = cores("4")
	job := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: batchv1.JobSpec{Parallelism: &n, Completions: &n}}
	job.Spec.Template = corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
		Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, RestartPolicy: corev1.RestartPolicyNever,
			TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{main}}}
	_, err := w.kube.Core.BatchV1().Jobs("default").Create(w.t.Context(), job, metav1.CreateOptions{})
	w.check(err)
}
