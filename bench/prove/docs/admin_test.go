package docs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w.nodes(t, 0)
	var flags []string
	if localtest.Lacks("1.37") { // kube-scheduler is of that release, and would wait for objects that came with it
		flags = append(flags, "--feature-gates=DRADeviceTaintRules=false")
	}
	_, err := w.cluster.StartScheduler(t.Context(), -1, 0, flags...)
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
		if b.section == "Remove" {
			check(w.cluster.StopBasalt())
		}
		w.run(t, b, shownAfter(blocks[i+1:]))
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
