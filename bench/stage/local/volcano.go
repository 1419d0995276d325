package local

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
)

// volcano is the module whose CustomResourceDefinitions are installed, as Volcano's users have them.
const volcano, volcanoSum = "volcano.sh/volcano@v1.14.1", "h1:9eLs47iZeLgey6EcA1rHwVkU7HoBNm3UVpJZ4uhFJ7c="

// DefineVolcano applies Volcano's CustomResourceDefinitions, those that keep wants if it is not nil.
func (c *Cluster) DefineVolcano(ctx context.Context, keep func(*unstructured.Unstructured) bool) error {
	dir, err := moduleDir(ctx, volcano, volcanoSum)
	if err != nil {
		return err
	}
	for _, part := range []string{"volcano", "jobflow"} {
		if err := Apply(ctx, c.Config(Admin), filepath.Join(dir, "config", "crd", part, "bases"), keep); err != nil {
			return err
		}
	}
	return nil
}

// kubeRay is the module of KubeRay's operator.
const kubeRay, kubeRaySum = "github.com/ray-project/kuberay/ray-operator@v1.6.2", "h1:XUckRswLMyk71D00L62d2Vanh0fVkNqu56+IF/rr+O0="

// DefineRay applies KubeRay's CustomResourceDefinitions.
func (c *Cluster) DefineRay(ctx context.Context) error {
	dir, err := moduleDir(ctx, kubeRay, kubeRaySum)
	if err != nil {
		return err
	}
	return Apply(ctx, c.Config(Admin), filepath.Join(dir, "config", "crd", "bases"), nil)
}

// jobSet is the module of JobSet's controller.
const jobSet, jobSetSum = "sigs.k8s.io/jobset@v0.12.0", "h1:YYPuV0px8Ongq/RXmJg6V0w2UC67aiR+rCMD06vhQQQ="

// DefineJobSet applies JobSet's CustomResourceDefinitions.
func (c *Cluster) DefineJobSet(ctx context.Context) error {
	dir, err := moduleDir(ctx, jobSet, jobSetSum)
	if err != nil {
		return err
	}
	return Apply(ctx, c.Config(Admin), filepath.Join(dir, "config", "components", "crd", "bases"), nil)
}

// leaderWorkerSet is the module of LeaderWorkerSet's controller.
const leaderWorkerSet, leaderWorkerSetSum = "sigs.k8s.io/lws@v0.9.0", "h1:DcJCgxjjoGOx//QHZkeKpyiblxYq70aCRZNYSfykWyI="

// DefineLeaderWorkerSet applies LeaderWorkerSet's CustomResourceDefinitions.
func (c *Cluster) DefineLeaderWorkerSet(ctx context.Context) error {
	dir, err := moduleDir(ctx, leaderWorkerSet, leaderWorkerSetSum)
	if err != nil {
		return err
	}
	return Apply(ctx, c.Config(Admin), filepath.Join(dir, "config", "crd", "bases"), nil)
}

// kueue is the module of Kueue.
const kueue, kueueSum = "sigs.k8s.io/kueue@v0.18.4", "h1:+Vs1H5sjXeSGG8BxvkrJCrpovB0vpuIHfkwSmlNSkyc="

// DefineKueue applies Kueue's CustomResourceDefinitions, and makes its namespace.
func (c *Cluster) DefineKueue(ctx context.Context) error {
	dir, err := moduleDir(ctx, kueue, kueueSum)
	if err != nil {
		return err
	}
	if err := c.makeNamespace(ctx, "kueue-system"); err != nil {
		return err
	}
	return Apply(ctx, c.Config(Admin), filepath.Join(dir, "config", "components", "crd", "bases"), nil)
}

// mpi is the module of Kubeflow's MPI operator.
const mpi, mpiSum = "github.com/kubeflow/mpi-operator@v0.8.2", "h1:7PVtV31iX3LSVW0BqRQ64w/NYNfAgP86Bmua2OEi5lg="

// DefineMPI applies the CustomResourceDefinition of MPIJobs, and makes the namespace of their operator.
func (c *Cluster) DefineMPI(ctx context.Context) error {
	dir, err := moduleDir(ctx, mpi, mpiSum)
	if err != nil {
		return err
	}
	if err := c.makeNamespace(ctx, "mpi-operator"); err != nil {
		return err
	}
	return Apply(ctx, c.Config(Admin), filepath.Join(dir, "manifests", "base"), func(u *unstructured.Unstructured) bool {
		return u.GetKind() == "CustomResourceDefinition"
	})
}

// makeNamespace makes a namespace, unless there is one.
func (c *Cluster) makeNamespace(ctx context.Context, name string) error {
	client, err := kubernetes.NewForConfig(c.Config(Admin))
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make namespace %s: %w", name, err)
	}
	return nil
}

// AllowVolcano makes the namespace of Volcano, and gives Basalt the rights that deploy/overlays/volcano gives it.
func (c *Cluster) AllowVolcano(ctx context.Context) error {
	if err := c.makeNamespace(ctx, "volcano-system"); err != nil {
		return err
	}
	return Apply(ctx, c.Config(Admin), filepath.Join(c.root, "deploy", "overlays", "volcano"), nil)
}

// VolcanoInPlace are the flags with which Basalt is in place of Volcano's scheduler, as deploy/overlays/volcano says.
func VolcanoInPlace() BasaltOptions {
	const write = "--volcano=write"
	return BasaltOptions{
		CoordinatorFlags: []string{write},
		ShardFlags:       []string{write, "--scheduler-names=basalt,volcano"},
	}
}

// StartVolcano starts Volcano's controllers, without those that Basalt replaces, with their definitions, the defaults
// that Volcano's webhooks would write, and the Queues that Volcano's scheduler would create.
func (c *Cluster) StartVolcano(ctx context.Context) (*Process, error) {
	if err := c.DefineVolcano(ctx, nil); err != nil {
		return nil, err
	}
	if err := c.AllowVolcano(ctx); err != nil {
		return nil, err
	}
	defaults := filepath.Join(c.root, "bench", "stage", "volcano", "admission")
	if err := Apply(ctx, c.Config(Admin), defaults, nil); err != nil {
		return nil, err
	}
	return c.StartController(
		VolcanoControllers,
		"--controllers=*,-queue-controller,-pg-controller,-sharding-controller",
		"--leader-elect=false",
		"--logtostderr",
	)
}

// VolcanoControllers is the program with Volcano's controllers.
const VolcanoControllers = "vc-controller-manager"

// StartController starts a controller of others, as an administrator of the cluster: one of the programs that Programs builds.
func (c *Cluster) StartController(name string, args ...string) (*Process, error) {
	kubeconfig, err := c.Kubeconfig(Admin)
	if err != nil {
		return nil, err
	}
	flag := "--kubeconfig="
	if name == "mpi-operator" { // spells it in its own way
		flag = "--kubeConfig="
	}
	return c.startBeside(name, append(args, flag+kubeconfig)...)
}

// moduleDir downloads a module and returns its folder. With sum, its content is what that says.
func moduleDir(ctx context.Context, version, sum string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", version)
	cmd.Dir = os.TempDir() // outside of any module
	out, err := cmd.Output()
	var module struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(out, &module); jsonErr != nil || module.Error != "" || module.Sum != sum {
		return "", fmt.Errorf("download %s: %w: %s (sum %q)", version, errors.Join(err, jsonErr), module.Error, module.Sum)
	}
	return module.Dir, nil
}
