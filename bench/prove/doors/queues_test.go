package doors

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bus "volcano.sh/apis/pkg/apis/bus/v1alpha1"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestVolcanoQueues: with --volcano=write, the tree of Volcano's Queues is in force: a gang is charged to its Queue and to all above, and
// Volcano's Queues say what is charged and whether they are open. Volcano's queue controller is off.
func TestVolcanoQueues(t *testing.T) {
	t.Parallel()
	w := install(t, local.Options{})
	w.define()
	w.overlay()
	w.volcanoQueue("root", "", "")
	w.volcanoQueue("default", "root", "")
	w.volcanoQueue("research", "root", "4")
	w.volcanoQueue("vision", "research", "")
	w.volcanoQueue("train", "vision", "")
	w.volcanoQueue("deep", "train", "3")
	w.volcanoQueue("wide", "train", "")
	w.volcanoQueue("flat", "vision", "")
	w.volcanoQueue("lost", "gone", "")
	w.volcanoQueue("here", "there", "")
	w.volcanoQueue("there", "here", "")
	w.volcanoQueue("taken", "", "1")
	w.queue("taken", "2")
	w.startWith(local.BasaltOptions{ShardFlags: []string{"--volcano=write"}, CoordinatorFlags: []string{"--volcano=write"}})
	found := w.audit()
	w.stand(map[string]string{"root": "root", "default": "default", "research": "research", "research.vision": "vision",
		"research.vision.flat": "flat", "research.vision.train": "train", "research.vision.train.deep": "deep", "research.vision.train.wide": "wide"})
	w.told("lost", "its ancestor gone does not exist")
	w.told("here", "cycle")
	w.told("taken", "label it "+api.LabelVolcanoQueue+"=taken")

	// The limit is at the top, and all four levels are charged.
	w.group("first", volcanov1beta1.PodGroupSpec{MinMember: 2, Queue: "deep"})
	w.pod("first-0", "first", "", "1")
	w.pod("first-1", "first", "", "1")
	w.bound("first-0", "first-1")
	w.pod("alone", "", "", "1", func(p *corev1.Pod) { p.Annotations = map[string]string{volcanov1beta1.QueueNameAnnotationKey: "flat"} })
	w.bound("alone")
	w.shows("deep", volcanov1beta1.QueueStateOpen, "2", "2")
	w.shows("train", volcanov1beta1.QueueStateOpen, "2", "2")
	w.shows("vision", volcanov1beta1.QueueStateOpen, "3", "3")
	w.shows("research", volcanov1beta1.QueueStateOpen, "3", "3")
	w.shows("root", volcanov1beta1.QueueStateOpen, "3", "3")
	w.shows("default", volcanov1beta1.QueueStateOpen, "", "")
	w.group("second", volcanov1beta1.PodGroupSpec{MinMember: 2, Queue: "wide"})
	w.pod("second-0", "second", "", "1")
	w.pod("second-1", "second", "", "1")
	w.waits("second-0", "QuotaExceeded", `queue "research" has insufficient cpu`)
	w.group("lost", volcanov1beta1.PodGroupSpec{MinMember: 1, Queue: "lost"})
	w.pod("lost-0", "lost", "", "1")
	w.waits("lost-0", "QuotaExceeded", `queue "lost" does not exist`)

	// A Command closes a Queue and all below. Who leads the gangs of it dies meanwhile.
	w.command("close", bus.CloseQueueAction, "research")
	w.shows("research", volcanov1beta1.QueueStateClosing, "3", "3")
	w.none("close")
	w.all[1].Kill()
	w.raise("research", "5")
	w.group("third", volcanov1beta1.PodGroupSpec{MinMember: 1, Queue: "deep"})
	w.pod("third-0", "third", "", "1")
	w.waits("third-0", "QuotaExceeded", `queue "research" is closed`)
	w.waits("second-0", "QuotaExceeded")
	began := time.Now()
	w.command("open", bus.OpenQueueAction, "research")
	w.shows("research", volcanov1beta1.QueueStateOpen, "5", "5")
	t.Logf("opened, and two pods charged, %v after the Command", time.Since(began))
	w.none("open")

	// A Queue moves to another parent: what runs stays charged where it is until it ends, what comes is charged at the new place.
	w.delete("third-0", "second-0", "second-1")
	w.shows("research", volcanov1beta1.QueueStateOpen, "3", "3")
	w.patchVolcano("train", `{"spec":{"parent":"root"}}`)
	moved := map[string]string{"train": "train", "train.deep": "deep", "train.wide": "wide", "research.vision": "vision", "research.vision.flat": "flat",
		"research": "research", "root": "root", "default": "default"}
	old := maps.Clone(moved)
	old["research.vision.train"], old["research.vision.train.deep"] = "train", "deep"
	w.stand(old)
	w.group("fifth", volcanov1beta1.PodGroupSpec{MinMember: 1, Queue: "deep"})
	w.pod("fifth-0", "fifth", "", "1")
	w.bound("fifth-0", "first-0", "first-1", "alone")
	w.shows("train", volcanov1beta1.QueueStateOpen, "1", "1")
	w.shows("research", volcanov1beta1.QueueStateOpen, "3", "3")
	w.delete("first-0", "first-1")
	w.stand(moved)
	w.shows("research", volcanov1beta1.QueueStateOpen, "1", "1")
	w.pod("sixth-0", "fifth", "", "1")
	w.bound("sixth-0")

	// One that is idle is closed at once. Volcano's own scheduler takes the Lease: nothing is written, and Queues are still followed.
	w.delete("alone")
	w.shows("flat", volcanov1beta1.QueueStateOpen, "", "")
	w.command("shut", bus.CloseQueueAction, "flat")
	w.shows("flat", volcanov1beta1.QueueStateClosed, "", "")
	w.hold("volcano-scheduler", 600)
	time.Sleep(2 * time.Second) // for what was found out before
	before := w.findQueue("train")
	w.raise("train", "3")
	w.group("fourth", volcanov1beta1.PodGroupSpec{MinMember: 1, Queue: "wide"})
	w.pod("fourth-0", "fourth", "", "1")
	w.bound("fourth-0")
	w.charged("train", map[string]string{"cpu": "3", "pods": "3"})
	w.command("late", bus.CloseQueueAction, "train")
	time.Sleep(3 * time.Second)
	if now := w.findQueue("train"); now.Status.State != before.Status.State || now.Status.Allocated.Cpu().Cmp(*before.Status.Allocated.Cpu()) != 0 {
		t.Errorf("Queue train was written while somebody else held the Lease: %+v", now.Status)
	}
	w.hold("", 1)
	w.shows("train", volcanov1beta1.QueueStateClosing, "3", "3")
	w.none("late")

	if lines := w.refusedWrites("queues"); len(lines) > 0 {
		t.Errorf("the API server refused writes of queues: %q", lines)
	}

	// A status has one writer, also where somebody may write the whole object.
	patch := func(resource, name, subresource, patch string) error {
		r := w.kube.Volcano.Patch(types.MergePatchType).NamespaceIfScoped("default", resource == "podgroups").Resource(resource).Name(name)
		if subresource != "" {
			r = r.SubResource(subresource)
		}
		return r.Body([]byte(patch)).Do(t.Context()).Error()
	}
	if err := patch("podgroups", "fourth", "", `{"status":{"phase":"Pending"}}`); !apierrors.IsForbidden(err) {
		t.Errorf("somebody else writes the status of a PodGroup: %v", err)
	}
	if err := patch("queues", "train", "status", `{"status":{"state":"Open"}}`); !apierrors.IsForbidden(err) {
		t.Errorf("somebody else writes the status of a Queue: %v", err)
	}
	if err := errors.Join(patch("podgroups", "fourth", "", `{"spec":{"minMember":2}}`), patch("queues", "train", "", `{"spec":{"weight":7}}`)); err != nil {
		t.Error(err)
	}
	found()
}

// volcanoQueue makes a Queue of Volcano's.
func (w *world) volcanoQueue(name, parent, cpu string) {
	w.t.Helper()
	q := &volcanov1beta1.Queue{TypeMeta: metav1.TypeMeta{APIVersion: volcanov1beta1.SchemeGroupVersion.String(), Kind: "Queue"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: volcanov1beta1.QueueSpec{Parent: parent, Weight: 1}}
	if cpu != "" {
		q.Spec.Capability = corev1.ResourceList{"cpu": resource.MustParse(cpu), "requests.cpu": resource.MustParse("1")}
	}
	localtest.Wait(w.t, patience, "Queues of Volcano's to be served", func(ctx context.Context) error {
		return w.kube.Volcano.Post().Resource("queues").Body(q).Do(ctx).Error()
	})
}

func (w *world) findQueue(name string) *volcanov1beta1.Queue {
	w.t.Helper()
	q := &volcanov1beta1.Queue{}
	if err := w.kube.Volcano.Get().Resource("queues").Name(name).Do(w.t.Context()).Into(q); err != nil {
		w.t.Fatal(err)
	}
	return q
}

func (w *world) patchVolcano(name, patch string) {
	w.t.Helper()
	if err := w.kube.Volcano.Patch(types.MergePatchType).Resource("queues").Name(name).Body([]byte(patch)).Do(w.t.Context()).Error(); err != nil {
		w.t.Fatal(err)
	}
}

// raise sets the CPUs that a Queue of Volcano's may be charged.
func (w *world) raise(name, cpu string) {
	w.t.Helper()
	w.patchVolcano(name, fmt.Sprintf(`{"spec":{"capability":{"cpu":%q}}}`, cpu))
}

// stand waits until these Queues, and no others, stand for Volcano's, and these are all that there are but for those of this test.
func (w *world) stand(want map[string]string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "the mirror of Volcano's Queues", func(ctx context.Context) error {
		list := &v1beta1.QueueList{}
		if err := w.kube.Basalt.Get().Resource("queues").Do(ctx).Into(list); err != nil {
			return err
		}
		has := map[string]string{}
		for _, q := range list.Items {
			if named := q.Labels[api.LabelVolcanoQueue]; named != "" {
				has[q.Name] = named
			}
		}
		if !maps.Equal(has, want) {
			return fmt.Errorf("%v, want %v", has, want)
		}
		return nil
	})
}

// shows waits until the status of a Queue of Volcano's says this.
func (w *world) shows(name string, state volcanov1beta1.QueueState, cpu, pods string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("Queue %s to be %s with %s CPUs", name, state, cpu), func(context.Context) error {
		s := w.findQueue(name).Status
		want := corev1.ResourceList{}
		if cpu != "" {
			want["cpu"], want["pods"] = resource.MustParse(cpu), resource.MustParse(pods)
		}
		same := s.State == state && (len(want) > 0 || len(s.Allocated) == 0) // KubeRay's workers have memory besides
		for r, q := range want {
			has, ok := s.Allocated[r]
			same = same && ok && has.Cmp(q) == 0
		}
		if !same {
			return fmt.Errorf("it is %s with %v", s.State, s.Allocated)
		}
		return nil
	})
}

// told waits until an event about a Queue of Volcano's says something.
func (w *world) told(name, words string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "an event about Queue "+name, func(ctx context.Context) error {
		list, err := w.kube.Core.EventsV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var notes []string
		for _, e := range list.Items {
			if e.Regarding.Kind == "Queue" && e.Regarding.Name == name && e.Reason == "NotMirrored" {
				notes = append(notes, e.Note)
			}
		}
		if !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, words) }) {
			return fmt.Errorf("it says %q, want %q", notes, words)
		}
		return nil
	})
}

// command makes a Command for a Queue, as vcctl does.
func (w *world) command(name string, action bus.Action, queue string) {
	w.t.Helper()
	c := &bus.Command{TypeMeta: metav1.TypeMeta{APIVersion: bus.SchemeGroupVersion.String(), Kind: "Command"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Action: string(action),
		TargetObject: metav1.NewControllerRef(w.findQueue(queue), volcanov1beta1.SchemeGroupVersion.WithKind("Queue"))}
	if err := w.kube.VolcanoBus.Post().Namespace("default").Resource("commands").Body(c).Do(w.t.Context()).Error(); err != nil {
		w.t.Fatal(err)
	}
}

// none waits until a Command is gone.
func (w *world) none(name string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "Command "+name+" to be gone", func(ctx context.Context) error {
		if w.kube.VolcanoBus.Get().Namespace("default").Resource("commands").Name(name).Do(ctx).Error() == nil {
			return errors.New("it is there")
		}
		return nil
	})
}

// refusedWrites returns the API server's counters of writes to Volcano's objects that it refused for a conflict or as invalid.
func (w *world) refusedWrites(resource string) []string {
	w.t.Helper()
	text, err := w.kube.Core.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, fmt.Sprintf("group=%q", volcanov1beta1.GroupName)) &&
			strings.Contains(line, fmt.Sprintf("resource=%q", resource)) && (strings.Contains(line, `code="409"`) || strings.Contains(line, `code="422"`)) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out
}
