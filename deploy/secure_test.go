package deploy_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/certs/issue"
	"basalt.dev/basalt/api/config"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/deploy"
	"basalt.dev/basalt/deploy/install"
)

const namespace = "basalt-system"

// base returns what the kustomize base applies.
func base(t *testing.T) []*unstructured.Unstructured {
	t.Helper()
	return must[[]*unstructured.Unstructured](t)(deploy.Objects(must[[]string](t)(deploy.Kustomization())...))
}

// pods returns the pod templates among some objects, by the name of their workload.
func pods(t *testing.T, objects []*unstructured.Unstructured) map[string]corev1.PodSpec {
	t.Helper()
	out := map[string]corev1.PodSpec{}
	for _, o := range objects {
		if kind := o.GetKind(); kind != "Deployment" && kind != "StatefulSet" {
			continue
		}
		var workload struct {
			Spec struct{ Template corev1.PodTemplateSpec }
		}
		if err := json.Unmarshal(must[[]byte](t)(o.MarshalJSON()), &workload); err != nil {
			t.Fatal(err)
		}
		out[o.GetName()] = workload.Spec.Template.Spec
	}
	return out
}

var ourFile = regexp.MustCompile(`/etc/basalt/[^,\s]+`)

// Pods wait for their keys, and mount those of their role alone: each file that a flag names comes from a volume that names it,
// of a Secret that the manifests bring empty.
func TestPodsWaitForTheirKeys(t *testing.T) {
	podsWaitForTheirKeys(t, base(t))
}

func podsWaitForTheirKeys(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	role := map[string][]string{
		"basalt-shard":       {issue.SecretShard, issue.SecretGossip, issue.SecretMetrics},
		"basalt-coordinator": {issue.SecretCoordinator, issue.SecretGossip, issue.SecretMetrics},
		"basalt-audit":       {issue.SecretOperator, issue.SecretMetrics},
		"basalt-etcd":        {issue.SecretEtcd, issue.SecretEtcdPeer},
		"basalt-certs":       {issue.SecretMetrics},
	}
	all := pods(t, objects)
	if len(all) != len(role) {
		t.Errorf("%d workloads, want %d", len(all), len(role))
	}
	for name, pod := range all {
		mounted, secrets := map[string]bool{}, []string{}
		c := pod.Containers[0]
		for _, v := range pod.Volumes {
			if v.ConfigMap != nil && v.ConfigMap.Name == "basalt-config" && slices.Contains([]string{"basalt-shard", "basalt-coordinator", "basalt-audit"}, name) {
				for _, file := range configFiles(t, objects) {
					mounted["/etc/basalt/config/"+file] = slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
						return m.Name == v.Name && m.MountPath == "/etc/basalt/config" && m.SubPath == "" // of which nothing would hear of a change
					})
				}
				continue
			}
			if v.Secret == nil {
				t.Errorf("%s: volume %s is no Secret", name, v.Name)
				continue
			}
			secrets = append(secrets, v.Secret.SecretName)
			items := v.Secret.Items
			if name == "basalt-certs" { // which fills it: it must not wait for a key
				if len(items) > 0 {
					t.Errorf("%s would wait for itself", name)
				}
				items = []corev1.KeyToPath{{Key: "token", Path: "token"}}
			}
			if v.Secret.Optional != nil && *v.Secret.Optional || len(items) == 0 {
				t.Errorf("%s: the pod would start before %s has its keys", name, v.Secret.SecretName)
			}
			for _, m := range c.VolumeMounts {
				for _, item := range items {
					if m.Name == v.Name {
						mounted[m.MountPath+"/"+item.Path] = true
					}
				}
			}
		}
		slices.Sort(secrets)
		if want := slices.Sorted(slices.Values(role[name])); !slices.Equal(secrets, want) {
			t.Errorf("%s mounts %v, want %v", name, secrets, want)
		}
		for _, arg := range append(c.Command, c.Args...) {
			if strings.Contains(arg, "http://") && !strings.HasPrefix(arg, "--listen-metrics-urls=") || strings.Contains(arg, "insecure") {
				t.Errorf("%s: %s", name, arg)
			}
			for _, file := range ourFile.FindAllString(arg, -1) {
				if !mounted[file] {
					t.Errorf("%s: nothing mounts %s", name, arg)
				}
			}
		}
	}
	var empty []string
	for _, o := range objects {
		if o.GetKind() == "Secret" {
			empty = append(empty, o.GetName())
			if o.Object["data"] != nil || o.Object["stringData"] != nil {
				t.Errorf("secret %s is not empty", o.GetName())
			}
		}
	}
	slices.Sort(empty)
	if want := slices.Sorted(slices.Values(issue.Names(false))); !slices.Equal(empty, want) {
		t.Errorf("the Secrets are %v, want %v", empty, want)
	}
}

// configFiles returns the files in the ConfigMap basalt-config, which processes can read.
func configFiles(t *testing.T, objects []*unstructured.Unstructured) (out []string) {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() != "ConfigMap" || o.GetName() != "basalt-config" {
			continue
		}
		data, _, err := unstructured.NestedStringMap(o.Object, "data")
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range data {
			out = append(out, file)
			if _, err := config.Parse([]byte(text)); err != nil {
				t.Errorf("%s: %v\n%s", file, err, text)
			}
		}
	}
	return out
}

// render returns what a kustomization beside this folder makes.
func render(t *testing.T, kustomization string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "deploy"), os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	return must[string](t)(run(t, "", "kustomize", "build", dir))
}

// The component for Volcano gives shards, coordinators and auditor its flags, and the first two the rights that these need.
func TestVolcanoComponent(t *testing.T) {
	with := render(t, "resources: [deploy]\ncomponents: [deploy/overlays/volcano]\n")
	for text, n := range map[string]int{
		"- --volcano=write\n": 3, "- --scheduler-names=basalt,volcano\n": 2, "name: basalt-volcano\n": 6,
		"policyName: basalt-volcano-podgroups\n": 1, "name: basalt-volcano-queues\n": 8,
		"kind: ValidatingAdmissionPolicy\n": 10,
	} {
		if got := strings.Count(with, text); got != n {
			t.Errorf("%q is there %d times, want %d", text, got, n)
		}
	}
	beside := render(t, "resources: [deploy]\ncomponents: [deploy/overlays/volcano-observe]\n")
	for text, n := range map[string]int{"- --volcano=observe\n": 3, "--scheduler-names": 0, "name: basalt-volcano-observe\n": 3} {
		if got := strings.Count(beside, text); got != n {
			t.Errorf("%q is there %d times, want %d", text, got, n)
		}
	}
}

// The component for cert-manager takes the place of all certificates, and of nothing else.
func TestCertManagerComponent(t *testing.T) {
	base, with := render(t, "resources: [deploy]\n"), render(t, "resources: [deploy]\ncomponents: [deploy/overlays/cert-manager]\n")
	count := func(text, kind string) int { return strings.Count(text, "\nkind: "+kind+"\n") }
	for _, row := range []struct {
		kind       string
		base, with int
	}{{"Secret", 8, 2}, {"Certificate", 0, 6}, {"Issuer", 0, 2}, {"StatefulSet", 2, 2}, {"Deployment", 3, 3}, {"Role",
		1, 1}, {"APIService", 1, 1},
		{"ClusterRole", 9, 8}} {
		if b, w := count(base, row.kind), count(with, row.kind); b != row.base || w != row.with {
			t.Errorf("%s: %d and %d, want %d and %d", row.kind, b, w, row.base, row.with)
		}
	}
	for _, name := range issue.Names(false) {
		if !slices.Contains(issue.Names(true), name) && !strings.Contains(with, "secretName: "+name+"\n") {
			t.Errorf("no certificate for %s", name)
		}
	}
	if a := "cert-manager.io/inject-ca-from: basalt-system/basalt-shard-tls\n"; strings.Contains(base, a) ||
		strings.Count(with, a) != 1 {
		t.Error("the API server would not be told the CA, or by two")
	}
	if !strings.Contains(with, "- --keys-only\n") {
		t.Error("basalt-certs would make certificates, too")
	}
}

// installed is what `kubectl apply -k deploy` makes of the control store and the processes, here: their own flags and keys,
// with ports of this machine.
type installed struct {
	*testing.T
	cluster *local.Cluster
	admin   *kubernetes.Clientset
	certs   issue.Kubernetes // with the rights of basalt-certs
	apply   func()           // applies the manifests again
	pods    map[string]corev1.PodSpec
	dir     string
	clients []string // addresses of the members of the control store, for clients and for members
	peers   []string
}

func TestSecureFromTheFirstApply(t *testing.T) {
	w := &installed{T: t, pods: pods(t, base(t)), dir: t.TempDir()}
	program := localtest.Basalt(t)
	w.cluster = localtest.Cluster(t, local.Options{Basalt: program})
	w.admin = must[*kubernetes.Clientset](t)(kubernetes.NewForConfig(w.cluster.Config(local.Admin)))
	w.apply = func() {
		objects := must[[]*unstructured.Unstructured](t)(deploy.Objects("certs.yaml"))
		if err := install.Apply(t.Context(), w.cluster.Config(local.Admin), objects, false); err != nil {
			t.Fatal(err)
		}
	}
	w.issues()
	w.mount()
	w.startStore()
	shard := w.start("basalt-shard", w.cluster.StartShard)
	coordinator := w.start("basalt-coordinator", w.cluster.StartCoordinator)
	for _, b := range []*local.Basalt{shard, coordinator} {
		if err := b.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	w.status(program)
	w.roles(shard)
	w.expiries(shard, coordinator)

	// The configuration is followed without a restart, and one that is wrong changes nothing.
	const head = "apiVersion: config.basalt.dev/v1alpha1\nkind: Configuration\n"
	both := []*local.Basalt{shard, coordinator}
	w.configure(both, head+"log: {level: debug}\nplacement: spread\npodEvents: true\n", `msg="configuration changed" role=`, "field=log.level value=debug", "field=podEvents value=true", "this takes effect at the next start", "field=placement")
	for _, b := range both {
		if now := w.inForce(program, b); !strings.Contains(now, "level: debug\n") || !strings.Contains(now, "podEvents: true\n") || !strings.Contains(now, "placement: pack\n") {
			t.Errorf("%s runs with\n%s", b.Name(), now)
		}
	}
	w.configure(both, head+"log: {level: loud}\n", `log.level is \"loud\"`,
		"invalid configuration, keeping the previous one")
	w.configure(both, head, "field=log.level value=info")
	for _, b := range both {
		if n := b.Starts(); n != 1 {
			t.Errorf("%s was started %d times", b.Name(), n)
		}
	}

	// Renewed while all runs: these were made 61 days ago.
	before := []time.Time{w.expires(shard.Listen), w.expires(w.clients[0]), w.expires(w.peers[0])}
	w.ensure(issue.Options{}, time.Now())
	w.mount()
	for i, address := range []string{shard.Listen, w.clients[0], w.peers[0]} {
		if now := w.expires(address); !now.After(before[i]) {
			t.Errorf("%s shows a certificate until %s after the renewal, before it one until %s", address, now, before[i])
		}
	}
	w.roles(shard)
	w.again(shard, program)

	// The next CA signs. The control store's members read their bundles when they started.
	w.ensure(issue.Options{RotateCA: true}, time.Now())
	for _, name := range []string{issue.SecretShard, issue.SecretEtcd} {
		data, version, err := w.certs.Get(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		delete(data, "tls.crt")
		delete(data, "tls.key")
		if err := w.certs.Put(t.Context(), name, data, version); err != nil {
			t.Fatal(err)
		}
	}
	w.ensure(issue.Options{}, time.Now())
	w.mount()
	w.again(shard, program)
	if n := coordinator.Starts(); n != 1 {
		t.Errorf("the coordinator was started %d times", n)
	}
}

// issues lets basalt-certs fill the Secrets, with its rights, and tries what else it might do with them.
func (w *installed) issues() {
	config := rest.CopyConfig(w.cluster.Config(local.Admin))
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + namespace + ":basalt-certs",
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"}}
	core := must[*kubernetes.Clientset](w.T)(kubernetes.NewForConfig(config)).CoreV1()
	secrets := core.Secrets(namespace)
	w.certs = issue.Kubernetes{Secrets: secrets}
	localtest.Wait(w, time.Minute, "the role to be in force", func(ctx context.Context) error {
		_, err := secrets.Get(ctx, issue.SecretCA, metav1.GetOptions{})
		return err
	})
	w.ensure(issue.Options{}, time.Now().Add(-61*24*time.Hour))
	// Applied again, the manifests leave the keys alone.
	w.apply()
	if changes := w.ensure(issue.Options{}, time.Now().Add(-61*24*time.Hour)); len(changes) > 0 {
		w.Errorf("after the manifests were applied again: %v", changes)
	}
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	must[*corev1.Secret](w.T)(w.admin.CoreV1().Secrets(namespace).Create(w.Context(), other, metav1.CreateOptions{}))
	for what, try := range map[string]func() error{
		"create a Secret": func() error { _, err := secrets.Create(w.Context(), other, metav1.CreateOptions{}); return err },
		"read another":    func() error { _, err := secrets.Get(w.Context(), "other", metav1.GetOptions{}); return err },
		"write another":   func() error { _, err := secrets.Update(w.Context(), other, metav1.UpdateOptions{}); return err },
		"list Secrets":    func() error { _, err := secrets.List(w.Context(), metav1.ListOptions{}); return err },
		"delete its own":  func() error { return secrets.Delete(w.Context(), issue.SecretCA, metav1.DeleteOptions{}) },
		"read elsewhere": func() error {
			_, err := core.Secrets("default").Get(w.Context(), issue.SecretCA, metav1.GetOptions{})
			return err
		},
		"read ConfigMaps": func() error { _, err := core.ConfigMaps(namespace).List(w.Context(), metav1.ListOptions{}); return err },
		"list pods":       func() error { _, err := core.Pods(namespace).List(w.Context(), metav1.ListOptions{}); return err },
		"patch a Secret": func() error {
			_, err := secrets.Patch(w.Context(), issue.SecretCA, "application/merge-patch+json", []byte("{}"), metav1.PatchOptions{})
			return err
		},
		"make itself more": func() error {
			_, err := must[*kubernetes.Clientset](w.T)(kubernetes.NewForConfig(config)).RbacV1().Roles(namespace).List(w.Context(), metav1.ListOptions{})
			return err
		},
	} {
		if err := try(); !apierrors.IsForbidden(err) {
			w.Errorf("basalt-certs may %s: %v", what, err)
		}
	}
}

func (w *installed) ensure(o issue.Options, now time.Time) []issue.Change {
	w.Helper()
	o.Namespace = namespace
	return must[[]issue.Change](w.T)(issue.Ensure(w.Context(), w.certs, o, now))
}

// mount writes the Secrets and ConfigMaps that each workload mounts into a folder of its own, as a kubelet does, and again when they changed.
func (w *installed) mount() {
	for name, pod := range w.pods {
		for _, v := range pod.Volumes {
			if v.ConfigMap != nil {
				w.mountConfig(name, v)
				continue
			}
			data, _, err := w.certs.Get(w.Context(), v.Secret.SecretName)
			if err != nil {
				w.Fatal(err)
			}
			for _, m := range pod.Containers[0].VolumeMounts {
				if m.Name != v.Name {
					continue
				}
				folder := filepath.Join(w.dir, name, m.MountPath)
				if err := os.MkdirAll(folder, 0o700); err != nil {
					w.Fatal(err)
				}
				for _, item := range v.Secret.Items {
					if len(data[item.Key]) == 0 {
						w.Fatalf("%s would wait for %s of %s", name, item.Key, v.Secret.SecretName)
					}
					w.replace(filepath.Join(folder, item.Path), data[item.Key])
				}
			}
		}
	}
}

// mountConfig writes the ConfigMap of a volume.
func (w *installed) mountConfig(workload string, v corev1.Volume) {
	w.Helper()
	object := must[*corev1.ConfigMap](w.T)(w.admin.CoreV1().ConfigMaps(namespace).Get(w.Context(), v.ConfigMap.Name, metav1.GetOptions{}))
	for _, m := range w.pods[workload].Containers[0].VolumeMounts {
		if m.Name != v.Name {
			continue
		}
		folder := filepath.Join(w.dir, workload, m.MountPath)
		if err := os.MkdirAll(folder, 0o700); err != nil {
			w.Fatal(err)
		}
		for file, text := range object.Data {
			w.replace(filepath.Join(folder, file), []byte(text))
		}
	}
}

func (w *installed) replace(file string, data []byte) {
	w.Helper()
	next := filepath.Join(filepath.Dir(file), ".next")
	if err := os.WriteFile(next, data, 0o600); err != nil {
		w.Fatal(err)
	}
	if err := os.Rename(next, file); err != nil {
		w.Fatal(err)
	}
}

// expiries: processes show when their certificates expire, which are those that they show others.
func (w *installed) expiries(all ...*local.Basalt) {
	w.Helper()
	data, _, err := w.certs.Get(w.Context(), issue.SecretMetrics)
	if err != nil {
		w.Fatal(err)
	}
	token := strings.TrimSpace(string(data["token"]))
	for _, b := range all {
		r := must[*http.Request](w.T)(http.NewRequestWithContext(w.Context(), "GET", "http://"+b.Metrics+"/metrics", nil))
		r.Header.Set("Authorization", "Bearer "+token)
		response := must[*http.Response](w.T)(http.DefaultClient.Do(r))
		text := must[[]byte](w.T)(io.ReadAll(response.Body))
		response.Body.Close()
		at := float64(w.expires(b.Listen).Unix())
		for _, name := range []string{"process", "control_store"} {
			want := fmt.Sprintf("basalt_certificate_expiry_timestamp_seconds{certificate=%q} %v\n", name, at)
			if !strings.Contains(string(text), want) {
				w.Errorf("%s does not show %s", b.Name(), want)
			}
		}
	}
}

// inForce is what `basalt config show` says of a process.
func (w *installed) inForce(program string, b *local.Basalt) string {
	w.Helper()
	token := filepath.Join(w.dir, "basalt-"+b.Role, "/etc/basalt/metrics/token")
	out, err := exec.CommandContext(w.Context(), program, "config", "show", b.Metrics, "--metrics-token-file", token).CombinedOutput()
	if err != nil {
		w.Errorf("%v: %s", err, out)
	}
	return string(out)
}

// configure edits the ConfigMap, which all processes have, and waits until the logs of these, which run, say this of it.
func (w *installed) configure(of []*local.Basalt, text string, says ...string) {
	w.Helper()
	patch := must[[]byte](w.T)(json.Marshal(map[string]any{"data": map[string]string{"config.yaml": text}}))
	must[*corev1.ConfigMap](w.T)(w.admin.CoreV1().ConfigMaps(namespace).Patch(w.Context(), "basalt-config", types.MergePatchType, patch, metav1.PatchOptions{}))
	w.mount()
	for _, b := range of {
		localtest.Wait(w, time.Minute, "the log of "+b.Name(), func(context.Context) error {
			log, err := os.ReadFile(b.Log())
			for _, words := range says {
				if err == nil && !bytes.Contains(log, []byte(words)) {
					err = fmt.Errorf("%q is not in it", words)
				}
			}
			return err
		})
	}
}

// args returns a workload's, with what is said of the cluster replaced by what is here.
func (w *installed) args(workload, pod string, more ...string) []string {
	replace := append([]string{"$(POD_NAME)", pod, "/etc/basalt", filepath.Join(w.dir, workload, "/etc/basalt"), "/var/lib/etcd", filepath.Join(w.dir, pod)}, more...)
	var out []string
	for _, a := range w.pods[workload].Containers[0].Args {
		a = strings.NewReplacer("$(POD_NAME)", pod).Replace(a)
		a = strings.NewReplacer(replace...).Replace(a)
		for i := range w.clients {
			host := fmt.Sprintf("basalt-etcd-%d.basalt-etcd.%s.svc:", i, namespace)
			a = strings.NewReplacer(host+"2379", w.clients[i], host+"2380", w.peers[i]).Replace(a)
		}
		out = append(out, a)
	}
	return out
}

// startStore starts the members that the flags of etcd.yaml name.
func (w *installed) startStore() {
	members := 0
	for _, a := range w.pods["basalt-etcd"].Containers[0].Args {
		if all, is := strings.CutPrefix(a, "--initial-cluster="); is {
			members = strings.Count(all, ",") + 1
		}
	}
	free := w.freeAddresses(3 * members)
	w.clients, w.peers = free[:members], free[members:2*members]
	root := must[string](w.T)(local.Root())
	for i := range members {
		args := w.args("basalt-etcd", fmt.Sprintf("basalt-etcd-%d", i), "0.0.0.0:2379", w.clients[i], "0.0.0.0:2380", w.peers[i], "0.0.0.0:2381", free[2*members+i])
		log := must[*os.File](w.T)(os.Create(filepath.Join(w.dir, fmt.Sprintf("etcd-%d.log", i))))
		cmd := exec.Command(filepath.Join(root, "bin", "etcd"), append(args, "--log-level=warn")...)
		cmd.Stdout, cmd.Stderr = log, log
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			w.Fatal(err)
		}
		w.Cleanup(func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			_ = log.Close()
			if w.Failed() {
				w.Logf("the end of the log of etcd %d:\n%s", i, local.Tail(log.Name(), 10))
			}
		})
	}
}

// freeAddresses returns addresses at which nothing listens.
func (w *installed) freeAddresses(n int) (out []string) {
	for _, port := range must[[]int](w.T)(local.FreePorts(n)) {
		out = append(out, fmt.Sprintf("127.0.0.1:%d", port))
	}
	return out
}

func (w *installed) start(workload string, start func(context.Context, string, local.BasaltOptions) (*local.Basalt, error)) *local.Basalt {
	w.Helper()
	own := []string{"--name", "--listen", "--gossip", "--advertise", "--metrics", "--visibility"}
	var flags []string
	for _, a := range w.args(workload, workload+"-0") {
		if name, _, _ := strings.Cut(a, "="); strings.HasPrefix(a, "--") && !slices.Contains(own, name) {
			flags = append(flags, a)
		}
	}
	return must[*local.Basalt](w.T)(start(w.Context(), workload+"-0", local.BasaltOptions{Flags: flags, Restart: true, RestartAfter: 50 * time.Millisecond}))
}

// status runs `basalt status` as deploy/audit.yaml says.
func (w *installed) status(program string) {
	w.Helper()
	dir := filepath.Join(w.dir, "basalt-audit/etc/basalt/tls")
	localtest.Wait(w, time.Minute, "basalt status", func(ctx context.Context) error {
		out, err := exec.CommandContext(ctx, program, "status", "--etcd=https://"+w.clients[0], "--tls-ca="+dir+"/ca.crt", "--tls-cert="+dir+"/tls.crt", "--tls-key="+dir+"/tls.key").CombinedOutput()
		if err != nil || bytes.Contains(out, []byte("does not answer")) || !bytes.Contains(out, []byte("basalt-shard-0")) {
			return fmt.Errorf("%w\n%s", err, out)
		}
		return nil
	})
}

// again lets a shard start anew, which shakes hands with everybody.
func (w *installed) again(shard *local.Basalt, program string) {
	w.Helper()
	shard.Kill()
	if err := shard.WaitReady(w.Context()); err != nil {
		w.Fatal(err)
	}
	w.status(program)
}

// roles tries each certificate at each port.
func (w *installed) roles(shard *local.Basalt) {
	w.Helper()
	for what, row := range map[string]struct {
		address string
		takes   []string
	}{
		"the control store, as a client": {w.clients[1], []string{issue.SecretShard, issue.SecretCoordinator, issue.SecretOperator}},
		"the control store, as a member": {w.peers[1], []string{issue.SecretEtcdPeer}},
		"a shard":                        {shard.Listen, []string{issue.SecretShard, issue.SecretCoordinator, issue.SecretOperator}},
	} {
		for _, name := range []string{"", issue.SecretShard, issue.SecretCoordinator, issue.SecretOperator, issue.SecretEtcd, issue.SecretEtcdPeer} {
			err := w.handshake(row.address, name)
			if taken := err == nil; taken != slices.Contains(row.takes, name) {
				w.Errorf("%s, with the certificate %q: %v", what, name, err)
			}
		}
		if resp, err := http.Get("http://" + row.address + "/version"); err == nil {
			if resp.Body.Close(); resp.StatusCode < 400 {
				w.Errorf("%s answers in plain text: %s", what, resp.Status)
			}
		}
	}
}

// handshake connects with the certificate of a Secret, none for "". A server that refuses it says so after the handshake.
func (w *installed) handshake(address, secret string) error {
	config := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}} // who the server is, the processes check
	if secret != "" {
		data, _, err := w.certs.Get(w.Context(), secret)
		if err != nil {
			w.Fatal(err)
		}
		pair := must[tls.Certificate](w.T)(tls.X509KeyPair(data["tls.crt"], data["tls.key"]))
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &pair, nil }
	}
	conn, err := tls.Dial("tcp", address, config)
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(3 * time.Second))
	// An HTTP/2 server that took the handshake answers the preface with its settings.
	if _, err := conn.Write([]byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00")); err != nil {
		return err
	}
	if _, err = conn.Read(make([]byte, 9)); errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return err
}

// expires returns until when the certificate is valid that a server shows.
func (w *installed) expires(address string) time.Time {
	w.Helper()
	var until time.Time
	config := &tls.Config{InsecureSkipVerify: true, VerifyConnection: func(c tls.ConnectionState) error {
		until = c.PeerCertificates[0].NotAfter
		return errors.New("seen")
	}}
	if conn, err := tls.Dial("tcp", address, config); err == nil {
		_ = conn.Close()
	}
	return until
}
