package docs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// ends is how long a deletion may take: of a definition, or of a namespace with all that is in it.
const ends = 3 * time.Minute

// removal carries out remove.md in a cluster whose pods run nowhere: the processes of a coordinator run beside it.
type removal struct {
	world
	t           *testing.T
	blocks      []block
	coordinator *local.Basalt
}

// TestRemove carries out remove.md from installation to installation. It takes minutes because namespaces and
// definitions are deleted, again and again.
func TestRemove(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("there is no kubectl to run the commands with")
	}
	program, root := localtest.Basalt(t), localtest.Programs(t, "helm")
	w := &removal{t: t, world: world{dir: t.TempDir(),
		cluster: localtest.Bare(t, local.Options{Basalt: program, ControllerManager: true})}}
	kubeconfig, err := w.cluster.Kubeconfig(local.Admin)
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(w.dir, "bin")
	for _, err := range []error{os.Mkdir(bin, 0o755), os.Symlink(program, filepath.Join(bin, "basalt")),
		os.Symlink(filepath.Join(root, "bin", "helm"), filepath.Join(bin, "helm")),
		os.CopyFS(filepath.Join(w.dir, "deploy"), os.DirFS(filepath.Join(root, "deploy")))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	w.env = append(os.Environ(), "HOME="+w.dir, "KUBECONFIG="+kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"))
	w.blocks = read(t, filepath.Join(root, "deploy", "docs", "remove.md"))
	const (
		kustomize = "kubectl apply --server-side -k deploy/crds; kubectl apply --server-side -k deploy"
		helm      = "helm install basalt deploy/chart --namespace basalt-system --create-namespace"
		mine      = `kubectl create -f - <<END
apiVersion: scheduling.basalt.dev/v1beta1
kind: Queue
metadata: {name: mine, annotations: {example.com/owner: me}}
spec: {capability: {cpu: "10"}}
---
apiVersion: scheduling.basalt.dev/v1beta1
kind: PodGroup
metadata: {name: train, namespace: default}
spec: {queue: mine, schedulingPolicy: {gang: {minCount: 4}}}
---
apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: default}
spec: {schedulerName: basalt, containers: [{name: main, image: none}]}
END`
	)

	// With kustomize, and again.
	w.commands(kustomize)
	w.commands(mine)
	w.works()
	w.refuses("Basalt is installed in namespace basalt-system: remove it first (kubectl delete -k deploy")
	w.block("kubectl delete -k deploy") // its processes end with it
	w.left("mine", 0)
	w.block("kubectl apply --server-side -k deploy/crds")
	w.works()

	// With everything.
	w.block("kubectl delete -k deploy")
	out, err := w.bash(t.Context(), "kubectl get crd,clusterrole,flowschema -o name")
	if err != nil || strings.Contains(out, "basalt") {
		t.Errorf("%v; there are still %s", err, out)
	}
	w.commands("basalt uninstall") // there is nothing to remove any more

	// With Helm, over definitions that it did not make.
	w.commands("kubectl apply --server-side -k deploy/crds")
	w.commands("kubectl wait --for=condition=Established crd --all --timeout=1m")
	w.commands("kubectl apply --server-side -f saved.yaml")
	w.left("mine", 0)
	w.commands(helm + " --take-ownership --force-conflicts")
	w.works()
	w.refuses("in namespace basalt-system: remove it first (helm uninstall basalt --namespace basalt-system)")
	w.block("helm uninstall")
	w.left("mine", 0)

	// A definition that is deleted under the Queues, and a namespace that is deleted meanwhile.
	w.commands(helm + " --take-ownership --force-conflicts")
	w.works()
	w.stop()
	w.commands("helm uninstall basalt --namespace basalt-system")
	w.commands("kubectl delete crd queues.scheduling.basalt.dev --wait=false")
	w.commands("kubectl delete namespace basalt-system --wait=false")
	w.block("basalt uninstall || true")
	w.left("mine", 1)
	w.block("basalt uninstall --save queues.yaml")
	w.left("mine", 0)
	w.commands("kubectl wait --for=delete namespace/basalt-system --timeout=2m; kubectl apply --server-side -k deploy")
	w.works()
	if len(w.blocks) > 0 {
		t.Errorf("line %d: these were not carried out:\n%s", w.blocks[0].line, w.blocks[0].text)
	}
}

// commands are what the test does between the blocks.
func (w *removal) commands(text string) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), ends)
	defer cancel()
	if out, err := w.bash(ctx, text); err != nil {
		w.t.Fatalf("%v\n%s\n%s", err, text, out)
	}
}

// block carries out the next block of commands of the page, which begins with these.
func (w *removal) block(begins string) {
	w.t.Helper()
	if len(w.blocks) == 0 || w.blocks[0].language != "sh" || !strings.HasPrefix(w.blocks[0].text, begins) {
		w.t.Fatalf("the next block does not begin with %q: %+v", begins, w.blocks)
	}
	b, shown := w.blocks[0], ""
	if w.blocks = w.blocks[1:]; len(w.blocks) > 0 && w.blocks[0].language == "text" && w.blocks[0].follows {
		shown, w.blocks = w.blocks[0].text, w.blocks[1:]
	}
	if strings.Contains(b.text, "delete -k") || strings.Contains(b.text, "helm uninstall") {
		w.stop() // as its pod would
	}
	ctx, cancel := context.WithTimeout(w.t.Context(), ends)
	defer cancel()
	begin := time.Now()
	out, err := w.bash(ctx, b.text)
	if err != nil {
		w.t.Fatalf("line %d: %v\n%s\n%s", b.line, err, b.text, out)
	}
	if m := missing(out, shown); m != "" {
		w.t.Errorf("line %d: %q is not, or not in its place, in what\n%sprints:\n%s", b.line, m, b.text, out)
	}
	w.t.Logf("line %d, %s:\n%s%s", b.line, time.Since(begin).Round(time.Second), b.text, out)
}

// works starts a coordinator, and waits until it has put its finalizer on all Queues.
func (w *removal) works() {
	w.t.Helper()
	var err error
	w.coordinator, err = w.cluster.StartCoordinator(w.t.Context(), "coordinator", local.BasaltOptions{Restart: true})
	if err != nil {
		w.t.Fatal(err)
	}
	localtest.Wait(w.t, time.Minute, "the finalizers", func(ctx context.Context) error {
		out, err := w.bash(ctx, "kubectl get bq -o custom-columns=:.metadata.finalizers --no-headers")
		if err == nil && (strings.Count(out, "scheduling.basalt.dev/") != 3 || strings.Count(out, "\n") != 3) {
			err = fmt.Errorf("they are %s", out)
		}
		return err
	})
}

// stop ends the coordinator.
func (w *removal) stop() {
	w.t.Helper()
	if w.coordinator != nil {
		if err := w.coordinator.Stop(); err != nil {
			w.t.Error(err)
		}
		w.coordinator = nil
	}
}

// refuses has the command refuse, with a coordinator running.
func (w *removal) refuses(says string) {
	w.t.Helper()
	for _, flags := range []string{"", " --delete-objects --yes"} {
		if out, err := w.bash(w.t.Context(), "basalt uninstall"+flags); err == nil || !strings.Contains(out, says) {
			w.t.Errorf("basalt uninstall%s: %v: %s", flags, err, out)
		}
	}
	w.left("mine", 1)
}

// left checks that a Queue is there with what its user wrote, and how many finalizers it has.
func (w *removal) left(queue string, finalizers int) {
	w.t.Helper()
	client, err := kubernetes.NewForConfig(w.cluster.Config(local.Admin))
	if err != nil {
		w.t.Fatal(err)
	}
	path := "/apis/scheduling.basalt.dev/v1beta1/queues/" + queue
	raw, err := client.RESTClient().Get().AbsPath(path).DoRaw(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	text := string(raw)
	if !strings.Contains(text, `"capability":{"cpu":"10"}`) || !strings.Contains(text, `"example.com/owner":"me"`) {
		w.t.Errorf("the Queue is %s", text)
	}
	if has := strings.Count(text, `"finalizers":["`); has != finalizers {
		w.t.Errorf("want %d finalizers: %s", finalizers, text)
	}
}
