// Package console has people look at `basalt console` with a real browser and without one, while real processes of
// Basalt schedule in a real API server.
package console

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/deploy"
	"basalt.dev/basalt/deploy/install"
)

// patience is how long anything may take that must happen. It is no measure.
const patience = 90 * time.Second

func TestMain(m *testing.M) { localtest.Run(m) }

// world is a cluster with Basalt, tenants and a console that has just the rights of deploy/overlays/console.
type world struct {
	t       *testing.T
	cluster *local.Cluster
	program string
	kube    *kube.Clients
	all     []*local.Basalt // the coordinator, then shards
	console *exec.Cmd
	at      string // URL of the console
}

func start(t *testing.T, shards int) *world {
	w := &world{t: t, program: localtest.Basalt(t)}
	w.cluster = localtest.Cluster(t, local.Options{Basalt: w.program})
	var err error
	w.kube, err = kube.ConnectConfig(w.cluster.Config(local.Admin), "console-test")
	w.check(err)
	for i := range 4 {
		n := kubelet.Node(fmt.Sprint("node-", i), "8", "32Gi", 20)
		n.Labels = map[string]string{corev1.LabelTopologyZone: fmt.Sprint("zone-", i%2)}
		_, err := w.kube.Core.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		w.check(err)
	}
	if shards > 0 {
		w.all, err = w.cluster.StartBasalt(t.Context(), 1, shards, local.BasaltOptions{})
		w.check(err)
		w.check(local.WaitReady(t.Context(), w.all))
	}
	return w
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// serve starts the console, as deploy/overlays/console does: with the files of its ServiceAccount, and no certificate.
func (w *world) serve() {
	w.t.Helper()
	objects, err := deploy.Objects("overlays/console/console.yaml")
	w.check(err)
	var rights []*unstructured.Unstructured
	var args []string
	for _, o := range objects {
		switch o.GetKind() {
		case "ServiceAccount", "ClusterRole", "ClusterRoleBinding":
			rights = append(rights, o)
		case "Deployment":
			containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
			w.check(err)
			args, _, err = unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
			w.check(err)
		}
	}
	w.check(install.Apply(w.t.Context(), w.cluster.Config(local.Admin), rights, false))
	for i, arg := range args {
		if strings.HasPrefix(arg, "--listen=") {
			args[i] = "--listen=127.0.0.1:0"
		}
	}
	w.console = w.pod(args)
	w.console.Env = append(w.console.Env, "BASALT_SERVER="+strings.Join(local.Answering(w.all), ","))
	out, err := w.console.StdoutPipe()
	w.check(err)
	said, err := os.Create(filepath.Join(w.t.TempDir(), "console.log"))
	w.check(err)
	w.console.Stderr = said
	w.check(w.console.Start())
	w.t.Cleanup(func() {
		_ = w.console.Process.Kill()
		_ = w.console.Wait()
		if log, _ := os.ReadFile(said.Name()); w.t.Failed() || strings.Contains(string(log), "panic") ||
			strings.Contains(string(log), "DATA RACE") {
			w.t.Errorf("the console's log:\n%s", log)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	w.check(err)
	w.at = strings.TrimRight(strings.TrimSpace(line), "/")
	localtest.Wait(w.t, patience, "the console", func(context.Context) error {
		code, text := w.visitor().get("/readyz")
		if code != 200 {
			return fmt.Errorf("%d %s", code, text)
		}
		return nil
	})
}

// pod returns the command of the console's container, as much in a pod as this machine can: it finds the API server by
// the environment and its token and the CA where a kubelet puts them, is the user that the Deployment says, without
// capabilities, and can write nowhere. Where the test may not make mounts, it has a kubeconfig with that token instead.
func (w *world) pod(args []string) *exec.Cmd {
	token, config := w.token("basalt-system", "basalt-console"), w.cluster.Config(local.Admin)
	if exec.CommandContext(w.t.Context(), "unshare", "--mount", "setpriv", "--reuid=10001", "true").Run() != nil {
		w.t.Log("this machine cannot run the console as in a pod")
		cmd := exec.CommandContext(w.t.Context(), w.program, append(args, "--kubeconfig="+
			w.kubeconfig("console", "", token))...)
		cmd.Env = os.Environ()
		return cmd
	}
	ca := config.CAData
	if len(ca) == 0 {
		var err error
		ca, err = os.ReadFile(config.CAFile)
		w.check(err)
	}
	dir := w.t.TempDir()
	for name, text := range map[string][]byte{"token": []byte(token), "ca.crt": ca, "namespace": []byte("basalt-system")} {
		w.check(os.WriteFile(filepath.Join(dir, name), text, 0o644))
	}
	const start = `set -e
mount --bind / /
mount -o remount,bind,ro /
mount -t tmpfs none /var/run
mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
cp "$1"/* /var/run/secrets/kubernetes.io/serviceaccount
touch /var/run/basalt
mount --bind "$2" /var/run/basalt
mount -o remount,ro none /var/run
shift 2
exec setpriv --reuid=10001 --regid=10001 --clear-groups --no-new-privs --bounding-set=-all --inh-caps=-all \
	/var/run/basalt "$@"`
	cmd := exec.CommandContext(w.t.Context(), "unshare", append([]string{"--mount", "sh", "-c", start, "sh", dir,
		w.program}, args...)...)
	at, err := url.Parse(config.Host)
	w.check(err)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "KUBERNETES_SERVICE_HOST=" + at.Hostname(),
		"KUBERNETES_SERVICE_PORT=" + at.Port()}
	return cmd
}

// tenant makes a namespace with a ServiceAccount that may edit it.
func (w *world) tenant(name string) {
	w.t.Helper()
	ctx, c := w.t.Context(), w.kube.Core
	_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
		metav1.CreateOptions{})
	w.check(err)
	w.account(name, name)
	for _, role := range []string{"system:aggregate-to-view", "basalt-edit"} {
		_, err = c.RbacV1().RoleBindings(name).Create(ctx, &rbac.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:  rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbac.Subject{{Kind: "ServiceAccount", Name: name, Namespace: name}}}, metav1.CreateOptions{})
		w.check(err)
	}
}

func (w *world) account(namespace, name string) {
	_, err := w.kube.Core.CoreV1().ServiceAccounts(namespace).Create(w.t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.check(err)
}

// administrator makes one of the whole cluster, and returns a token.
func (w *world) administrator(name string) string {
	w.account("default", name)
	_, err := w.kube.Core.RbacV1().ClusterRoleBindings().Create(w.t.Context(), &rbac.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbac.Subject{{Kind: "ServiceAccount", Name: name, Namespace: "default"}}}, metav1.CreateOptions{})
	w.check(err)
	return w.token("default", name)
}

func (w *world) token(namespace, account string) string {
	w.t.Helper()
	r, err := w.kube.Core.CoreV1().ServiceAccounts(namespace).CreateToken(w.t.Context(), account,
		&authentication.TokenRequest{}, metav1.CreateOptions{})
	w.check(err)
	return r.Status.Token
}

func (w *world) kubeconfig(name, namespace, token string) string {
	file := filepath.Join(w.t.TempDir(), name)
	w.check(w.cluster.WriteKubeconfig(file, name, namespace, &clientcmdapi.AuthInfo{Token: token}))
	return file
}

// queue makes a Queue with a capability, and what it deserves and is guaranteed, if that is not "".
func (w *world) queue(name, capability, deserved, guarantee string) {
	w.t.Helper()
	cpu := func(amount string) corev1.ResourceList {
		if amount == "" {
			return nil
		}
		return corev1.ResourceList{"cpu": resource.MustParse(amount)}
	}
	w.check(w.kube.Basalt.Post().Resource("queues").Body(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.QueueSpec{Capability: cpu(capability), Deserved: cpu(deserved), Guarantee: cpu(guarantee)},
	}).Do(w.t.Context()).Error())
}

// gang makes a PodGroup, and as many pods as start together.
func (w *world) gang(namespace, name, queue string, least int, cpu string) {
	w.t.Helper()
	w.group(namespace, name, queue, least)
	w.pods(namespace, name, 0, least, cpu)
}

func (w *world) group(namespace, name, queue string, least int) {
	w.t.Helper()
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1beta1.PodGroupSpec{Queue: queue}}
	g.Spec.SchedulingPolicy.Gang.MinCount = int32(least)
	w.check(w.kube.Basalt.Post().Namespace(namespace).Resource("podgroups").Body(g).Do(w.t.Context()).Error())
}

func (w *world) pods(namespace, group string, from, to int, cpu string) {
	w.t.Helper()
	for i := from; i < to; i++ {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprint(group, "-", i),
			Labels: map[string]string{api.LabelPodGroup: group}}, Spec: corev1.PodSpec{SchedulerName: api.SchedulerName,
			Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}}}
		_, err := w.kube.Core.CoreV1().Pods(namespace).Create(w.t.Context(), p, metav1.CreateOptions{})
		w.check(err)
	}
}

// reason waits until a gang has a reason.
func (w *world) reason(namespace, name, reason string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "the status of "+name, func(ctx context.Context) error {
		var g v1beta1.PodGroup
		err := w.kube.Basalt.Get().Namespace(namespace).Resource("podgroups").Name(name).Do(ctx).Into(&g)
		if err == nil && (g.Status == nil || g.Status.Reason != reason) {
			err = fmt.Errorf("%+v", g.Status)
		}
		return err
	})
}

// visitor is a browser without a screen.
type visitor struct {
	w    *world
	at   string
	http *http.Client
}

func (w *world) visitor() *visitor {
	jar, _ := cookiejar.New(nil)
	return &visitor{w, w.at, &http.Client{Jar: jar, Transport: &http.Transport{MaxConnsPerHost: 0,
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}} // it is self-made
}

func (w *world) login(token string) *visitor {
	w.t.Helper()
	v := w.visitor()
	r, err := v.http.PostForm(w.at+"/login", url.Values{"token": {token}})
	w.check(err)
	defer r.Body.Close()
	if text, _ := io.ReadAll(r.Body); r.Request.URL.Path != "/work" {
		w.t.Fatalf("log in: %d %s", r.StatusCode, text)
	}
	return v
}

func (v *visitor) get(path string) (int, string) {
	v.w.t.Helper()
	for try := 0; ; try++ {
		r, err := v.http.Get(v.at + path)
		v.w.check(err)
		text, err := io.ReadAll(r.Body)
		r.Body.Close()
		v.w.check(err)
		if r.StatusCode != http.StatusTooManyRequests || try == 50 {
			return r.StatusCode, string(text)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// shows waits until a page says all these words.
func (v *visitor) shows(path string, words ...string) string {
	v.w.t.Helper()
	var text string
	localtest.Wait(v.w.t, patience, path, func(context.Context) error {
		var code int
		code, text = v.get(path)
		for _, word := range words {
			if !strings.Contains(text, word) {
				return fmt.Errorf("%d without %q:\n%s", code, word, text)
			}
		}
		return nil
	})
	return text
}

// stream reads a page's stream until the test ends, and counts its events and bytes.
func (v *visitor) stream(ctx context.Context, path string, heard func(event string)) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, v.at+"/stream"+path, nil)
	if err != nil {
		return err
	}
	r, err := v.http.Do(request)
	if err != nil {
		return err
	}
	if r.StatusCode != http.StatusOK {
		defer r.Body.Close()
		text, _ := io.ReadAll(r.Body)
		return fmt.Errorf("%d %s", r.StatusCode, text)
	}
	go func() {
		defer r.Body.Close()
		lines := bufio.NewScanner(r.Body)
		lines.Buffer(nil, 8<<20)
		for lines.Scan() {
			if data, is := strings.CutPrefix(lines.Text(), "data: "); is {
				var text string
				_ = json.Unmarshal([]byte(data), &text)
				heard(text)
			}
		}
	}()
	return nil
}
