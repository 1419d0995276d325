package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestDayOfAnAdministrator carries out day-administrator.md. Pods run nowhere: a stand-in says that they do, and
// processes of Basalt run beside them, as many as there are pods when a block ends. It takes minutes: namespaces and
// rollouts are waited for.
func TestDayOfAnAdministrator(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("there is no kubectl to run the commands with")
	}
	program, root := localtest.Basalt(t), localtest.Programs(t, "helm", "kube-scheduler")
	w := &world{dir: t.TempDir(), narrow: true,
		cluster: localtest.Bare(t, local.Options{Basalt: program, ControllerManager: true})}
	client, err := kubernetes.NewForConfig(w.cluster.Config(local.NodeStandIn))
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(err)
	for i := range 4 {
		node := kubelet.Node(fmt.Sprint("node-", i), "32", "128Gi", 110)
		_, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		check(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- kubelet.Run(ctx, kubelet.Options{Client: client}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
	var flags []string
	if localtest.Lacks("1.37") { // kube-scheduler is of that release, and would wait for objects that came with it
		flags = append(flags, "--feature-gates=DRADeviceTaintRules=false")
	}
	_, err = w.cluster.StartScheduler(t.Context(), -1, 0, flags...)
	check(err)
	kubeconfig, err := w.cluster.Kubeconfig(local.Admin)
	check(err)
	bin := filepath.Join(w.dir, "bin")
	const script = "#!/bin/sh\n[ \"$1\" != store ] || set -- \"$@\" --insecure-plain-text --etcd=%s\nexec %s \"$@\"\n"
	store := fmt.Sprintf(script, strings.Join(w.cluster.ControlStore(), ","), program)
	check(errors.Join(os.Mkdir(bin, 0o755), os.WriteFile(filepath.Join(bin, "basalt"), []byte(store), 0o755),
		os.Symlink(filepath.Join(root, "bin", "helm"), filepath.Join(bin, "helm")),
		os.CopyFS(filepath.Join(w.dir, "deploy"), os.DirFS(filepath.Join(root, "deploy")))))
	env := append(os.Environ(), "HOME="+w.dir, "KUBECONFIG="+kubeconfig, "PATH="+bin+":"+os.Getenv("PATH"))
	w.env = env

	shards, coordinators := 0, 0
	more := func(s, c int) {
		t.Helper()
		for ; coordinators < c; coordinators++ {
			name := fmt.Sprint("basalt-coordinator-", coordinators)
			_, err := w.cluster.StartCoordinator(t.Context(), name, local.BasaltOptions{})
			check(err)
		}
		for ; shards < s; shards++ {
			b, err := w.cluster.StartShard(t.Context(), fmt.Sprint("basalt-shard-", shards), local.BasaltOptions{})
			check(err)
			w.env = append(env, "BASALT_SERVER="+b.Visibility)
		}
		check(local.WaitReady(t.Context(), w.cluster.Basalts()))
	}
	blocks := read(t, filepath.Join(root, "deploy", "docs", "day-administrator.md"))
	for i, b := range blocks {
		if b.language != "sh" {
			continue
		}
		shown := ""
		if i+1 < len(blocks) && blocks[i+1].language == "text" && blocks[i+1].follows {
			shown = blocks[i+1].text
		}
		if b.section == "Remove" {
			check(w.cluster.StopBasalt())
		}
		w.run(t, b, shown)
		switch b.section {
		case "Install":
			more(1, 1)
		case "Scale":
			more(3, 2)
		case "Upgrade":
			check(w.cluster.StopBasalt())
			_, err = w.cluster.StartScheduler(t.Context(), -1, 0, flags...)
			check(err)
			shards, coordinators = 0, 0
			more(3, 2)
		}
	}
}
