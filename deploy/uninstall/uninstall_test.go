package uninstall_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/deploy"
	"basalt.dev/basalt/deploy/install"
	"basalt.dev/basalt/deploy/uninstall"
)

func TestMain(m *testing.M) { localtest.Run(m) }

var queues = schema.GroupVersionResource{Group: v1beta1.GroupName, Version: "v1beta1", Resource: "queues"}

type world struct {
	*testing.T
	config  *rest.Config
	objects dynamic.Interface
}

func start(t *testing.T, c *local.Cluster) *world {
	t.Helper()
	config := c.Config(local.Admin)
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &world{t, config, objects}
}

// define applies the definitions.
func (w *world) define() {
	w.Helper()
	crds, err := deploy.CRDs()
	if err == nil {
		err = install.Apply(w.Context(), w.config, crds, false)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// queue creates one with finalizers.
func (w *world) queue(name string, finalizers ...string) {
	w.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": queues.GroupVersion().String(), "kind": "Queue"}}
	o.SetName(name)
	o.SetFinalizers(finalizers)
	if _, err := w.objects.Resource(queues).Create(w.Context(), o, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) finalizers(name string) []string {
	w.Helper()
	o, err := w.objects.Resource(queues).Get(w.Context(), name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return o.GetFinalizers()
}

// run runs it, and has it print and fail with these words.
func (w *world) run(o uninstall.Options, fails string, says ...string) {
	w.Helper()
	var out bytes.Buffer
	if o.Namespace == "" {
		o.Namespace = "basalt-system"
	}
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Minute
	}
	err := uninstall.Run(w.Context(), w.config, o, &out)
	if fails == "" && err != nil || fails != "" && (err == nil || !strings.Contains(err.Error(), fails)) {
		w.Errorf("%+v: %v, want %q", o, err, fails)
	}
	for _, text := range says {
		if !strings.Contains(out.String(), text) {
			w.Errorf("%+v: %q is missing in\n%s", o, text, out.String())
		}
	}
}

const ours, theirs = v1beta1.FinalizerCharged, "example.com/theirs"

// Queues are kept, in several pages, and finalizers of others, too. It takes 25 s because pages are long.
func TestKeeps(t *testing.T) {
	w := start(t, localtest.Bare(t, local.Options{}))
	w.run(uninstall.Options{}, "", "there are no Queues: their definition is gone", "nothing of Basalt's remains")
	w.define()
	long := strings.Repeat("a", 63)
	w.queue("both", theirs, ours, theirs+"2")
	w.queue("free")
	w.queue(long, ours)
	for i := range 600 {
		w.queue(fmt.Sprint("q", i), ours)
	}
	w.run(uninstall.Options{}, "", "Basalt's finalizer is off 602 Queues\n",
		"  0 PodGroups, 603 Queues, their definitions  basalt uninstall --delete-objects --yes\n")
	w.run(uninstall.Options{}, "", "Basalt's finalizer is off 0 Queues\n")
	for name, want := range map[string][]string{"both": {theirs, theirs + "2"}, "free": nil, long: nil, "q599": nil} {
		if got := w.finalizers(name); !slices.Equal(got, want) {
			t.Errorf("%s has the finalizers %q", name, got)
		}
	}
}

// One that its user deleted goes.
func TestEndsADeletion(t *testing.T) {
	w := start(t, localtest.Bare(t, local.Options{}))
	w.define()
	w.queue("unwanted", ours)
	if err := w.objects.Resource(queues).Delete(t.Context(), "unwanted", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.run(uninstall.Options{}, "", "Basalt's finalizer is off 1 Queue, 1 of which was being deleted\n", "0 Queues, their")
}

// A run that does not come to its end says why, and the next goes on from there.
func TestDeletesInTwoRuns(t *testing.T) {
	w := start(t, localtest.Bare(t, local.Options{}))
	w.define()
	w.queue("held", theirs, ours)
	w.queue("other", ours)
	all := uninstall.Options{DeleteObjects: true}
	w.run(all, "this deletes 0 PodGroups, 2 Queues, and their definitions")
	all.Yes = true

	file := filepath.Join(t.TempDir(), "saved.yaml")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	all.Save = file
	w.run(all, "file exists")
	if got := w.finalizers("other"); !slices.Equal(got, []string{ours}) {
		t.Errorf("it was not saved, and has the finalizers %q", got)
	}

	all.Save, all.Timeout = file+".2", 10*time.Second
	w.run(all, "the definition of Queue is still being deleted, with 1 object; finalizers hold held has "+theirs,
		"saved 2 objects")
	w.run(uninstall.Options{}, "the definition of Queue is being deleted, and finalizers alone keep its 1 object: nothing")
	patch := []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`)
	_, err := w.objects.Resource(queues).Patch(t.Context(), "held", types.JSONPatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all.Save, all.Timeout = "", 0
	w.run(all, "", "nothing of Basalt's remains")

	// What was saved can be applied.
	w.define()
	text, err := os.ReadFile(file + ".2")
	if err != nil || strings.Contains(string(text), "finalizers") || strings.Contains(string(text), "uid") {
		t.Fatalf("%v: it has\n%s", err, text)
	}
	for _, name := range []string{"held", "other"} {
		if !strings.Contains(string(text), "  name: "+name+"\n") {
			t.Errorf("%s is not in\n%s", name, text)
		}
	}
}

// A coordinator that runs elsewhere is found by what it does.
func TestFindsACoordinator(t *testing.T) {
	c := localtest.Bare(t, local.Options{Basalt: localtest.Basalt(t)})
	w := start(t, c)
	if err := c.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.queue("a")
	b, err := c.StartCoordinator(t.Context(), "coordinator", local.BasaltOptions{})
	if err != nil {
		t.Fatal(err)
	}
	localtest.Wait(t, time.Minute, "its finalizer", func(context.Context) error {
		if got := w.finalizers("a"); !slices.Equal(got, []string{ours}) {
			return fmt.Errorf("they are %q", got)
		}
		return nil
	})
	w.run(uninstall.Options{}, "a coordinator that runs outside of this cluster's Deployments put the finalizer back on 3")
	if err := b.Stop(); err != nil {
		t.Fatal(err)
	}
	w.run(uninstall.Options{}, "", "Basalt's finalizer is off 3 Queues\n", "clusterroles ",
		"kubectl delete flowschema basalt\n", "kubectl delete namespace basalt-system\n")
}
