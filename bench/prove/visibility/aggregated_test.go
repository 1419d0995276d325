package visibility

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"basalt.dev/basalt/api/certs"
	"basalt.dev/basalt/api/certs/issue"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/visibility"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/deploy"
	"basalt.dev/basalt/deploy/install"
)

// installation is a world whose shards have certificates, to which the API server forwards questions.
type installation struct {
	*world
	keys issue.Directory
	opts issue.Options
}

// startAggregated starts one, with the Service and the APIService of deploy/. There is no network of Services here: the
// Service is another name for this machine, and the port is that of one shard.
func startAggregated(t *testing.T, shards int) *installation {
	i := &installation{keys: issue.Directory(t.TempDir()), opts: issue.Options{Namespace: "basalt-system"}}
	ensure(t, i, time.Now())
	files := func(secret string) []string {
		at := filepath.Join(string(i.keys), secret)
		return []string{"--tls-ca=" + at + "/ca.crt", "--tls-cert=" + at + "/tls.crt", "--tls-key=" + at + "/tls.key"}
	}
	i.world = startWith(t, shards, local.BasaltOptions{Flags: []string{"--insecure-plain-text"}, // to the control store
		ShardFlags: files(issue.SecretShard), CoordinatorFlags: files(issue.SecretCoordinator)})
	i.opts.Publish = issue.Publish(i.kube.Core.CoreV1().RESTClient())
	i.install(i.shards[0])
	t.Cleanup(func() { // or the deletion of namespaces would wait for it
		_ = i.kube.Core.CoreV1().RESTClient().Delete().AbsPath(apiService).Do(context.Background()).Error()
	})
	return i
}

const apiService = issue.APIServicePath

func ensure(t *testing.T, i *installation, now time.Time) []issue.Change {
	t.Helper()
	changes, err := issue.Ensure(t.Context(), i.keys, i.opts, now)
	if err != nil {
		t.Fatal(err)
	}
	return changes
}

// install applies deploy/visibility.yaml for a shard.
func (i *installation) install(shard *local.Basalt) {
	i.t.Helper()
	objects, err := deploy.Objects("visibility.yaml")
	i.check(err)
	at, err := url.Parse(shard.Visibility)
	i.check(err)
	port, err := strconv.Atoi(at.Port())
	i.check(err)
	for _, o := range objects {
		switch o.GetKind() {
		case "Service":
			o.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "localhost"}
		case "APIService":
			i.check(unstructured.SetNestedField(o.Object, int64(port), "spec", "service", "port"))
		}
	}
	i.check(install.Apply(i.t.Context(), i.cluster.Config(local.Admin), objects, false))
	ensure(i.t, i, time.Now())
}

// available waits until the API server says of itself that it forwards questions, or that it does not.
func (i *installation) available(want string, words ...string) {
	i.t.Helper()
	localtest.Wait(i.t, patience, "the APIService to be available: "+want, func(ctx context.Context) error {
		raw, err := i.kube.Core.CoreV1().RESTClient().Get().AbsPath(apiService).SetHeader("Accept",
			"application/json").Do(ctx).Raw()
		i.check(err)
		var is struct {
			Status struct{ Conditions []metav1.Condition }
		}
		i.check(json.Unmarshal(raw, &is))
		for _, c := range is.Status.Conditions {
			if c.Type == "Available" && string(c.Status) == want {
				for _, word := range words {
					if !strings.Contains(c.Message, word) {
						return fmt.Errorf("%q is not in %q", word, c.Message)
					}
				}
				return i.measured(ctx, map[string]string{"True": "0", "False": "1"}[want])
			}
		}
		return fmt.Errorf("%+v", is.Status.Conditions)
	})
}

// measured returns an error unless the API server's metric, which an alert reads, shows whether it is unavailable.
func (i *installation) measured(ctx context.Context, unavailable string) error {
	text, err := i.kube.Core.CoreV1().RESTClient().Get().AbsPath("/metrics").Do(ctx).Raw()
	want := fmt.Sprintf("aggregator_unavailable_apiservice{name=%q} %s\n", issue.APIServiceName, unavailable)
	if err == nil && !strings.Contains(string(text), want) {
		err = fmt.Errorf("the API server's metrics do not have %s", want)
	}
	return err
}

// ask runs a command with a user's kubeconfig alone.
func (i *installation) ask(user string, args ...string) (string, error) {
	i.t.Helper()
	cmd := exec.CommandContext(i.t.Context(), i.program, append(args, "--kubeconfig", i.configs[user])...)
	cmd.Env = append(os.Environ(), "BASALT_SERVER=")
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (i *installation) told(user string, args []string, words ...string) string {
	i.t.Helper()
	var out string
	localtest.Wait(i.t, patience, "basalt "+strings.Join(args, " "), func(context.Context) (err error) {
		if out, err = i.ask(user, args...); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for _, word := range words {
			if !strings.Contains(out, word) {
				return fmt.Errorf("%q is not in:\n%s", word, out)
			}
		}
		return nil
	})
	return out
}

func (i *installation) refused(user string, args []string, words ...string) string {
	i.t.Helper()
	out, err := i.ask(user, args...)
	if err == nil {
		i.t.Errorf("basalt %s as %s: %s", strings.Join(args, " "), user, out)
	}
	for _, word := range words {
		if !strings.Contains(out, word) {
			i.t.Errorf("basalt %s as %s: %q is not in: %s", strings.Join(args, " "), user, word, out)
		}
	}
	return out
}

// raw asks the API server as `kubectl get --raw` does.
func (i *installation) raw(user, path string) (string, error) {
	i.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", i.configs[user])
	i.check(err)
	client, err := discovery.NewDiscoveryClientForConfig(config)
	i.check(err)
	out, err := client.RESTClient().Get().RequestURI(path).DoRaw(i.t.Context())
	return string(out), err
}

// withCertificate makes the kubeconfig of a user who has a client certificate and no token.
func (i *installation) withCertificate(user, namespace string, groups ...string) {
	i.t.Helper()
	cert, key, err := i.cluster.ClientCertificate(user, groups...)
	i.check(err)
	file := i.t.TempDir() + "/kubeconfig"
	i.check(i.cluster.WriteKubeconfig(file, user, namespace,
		&clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key}))
	i.configs[user] = file
}

// may gives a user a role in a namespace.
func (i *installation) may(kind, user, namespace string, roles ...string) {
	i.t.Helper()
	subject := rbac.Subject{Kind: kind, Name: user, Namespace: namespace}
	if kind == "User" {
		subject = rbac.Subject{Kind: kind, APIGroup: rbac.GroupName, Name: user}
	}
	for _, role := range roles {
		_, err := i.kube.Core.RbacV1().RoleBindings(namespace).Create(i.t.Context(),
			&rbac.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: user + "-" + strings.ReplaceAll(role, ":", "-")},
				RoleRef:  rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role},
				Subjects: []rbac.Subject{subject}}, metav1.CreateOptions{})
		i.check(err)
	}
}

// TestAggregated: users ask through the API server, with the kubeconfig that they have, and learn what they may; nobody
// can pretend to be the API server; and when no shard answers, others are not held up.
//
// It takes 40 s, for the API server looks at an APIService that fails now and then.
func TestAggregated(t *testing.T) {
	w := startAggregated(t, 2)
	w.queue("research", "4")
	w.tenant("red")
	w.tenant("blue")
	w.may("ServiceAccount", "red", "red", "basalt-view")
	w.may("ServiceAccount", "blue", "blue", "basalt-view")
	w.gang("red", "quota", "research", 2, "3")
	w.withCertificate("root", "red", "system:masters")
	w.withCertificate("carol", "red", "people")
	w.may("User", "carol", "red", "system:aggregate-to-view", "basalt-view", "basalt-edit")
	w.available("True")

	run := func(what string, f func(*testing.T)) {
		t.Run(what, func(t *testing.T) {
			w.t = t
			f(t)
		})
		w.t = t
	}

	run("with what the kubeconfig has", func(t *testing.T) {
		for _, user := range []string{"red", "carol", "root"} {
			out := w.told(user, []string{"why", "quota"}, `PodGroup red/quota waits: queue "research"`, "2 start together")
			if strings.Contains(out, "could not be asked") {
				t.Errorf("%s: %s", user, out)
			}
		}
		out := w.told("carol", []string{"why", "quota"}, "red/quota waits")
		t.Logf("$ kubectl basalt why quota # with a client certificate\n%s", out)
		said := w.refused("blue", []string{"why", "red/quota"}, `gangs.visibility.basalt.dev "quota" is forbidden`)
		t.Logf("$ kubectl basalt why red/quota # as a tenant of blue\n%s", said)
		if said != w.refused("blue", []string{"why", "red/quota"}) || strings.ReplaceAll(said, "quota",
			"X") != strings.ReplaceAll(w.refused("blue", []string{"why", "red/none"}), "none", "X") {
			t.Error("the answers tell which objects there are")
		}
		w.refused("red", []string{"why", "none"}, "there is no PodGroup and no pod red/none")
		w.told("root", []string{"status"}, "COORDINATOR  coordinator-0", "shard-0", "shard-1")
		w.refused("carol", []string{"status"},
			`status.visibility.basalt.dev is forbidden: User "carol" cannot list resource "status"`)
		w.told("root", []string{"why", "quota", "--what-if", "research:capability.cpu=8"}, "Nothing was changed.")
		w.told("root", []string{"why", "queue/research"}, "queue research")
		w.told("root", []string{"why", "quota", "--as", "system:serviceaccount:red:red"}, "red/quota waits")
		w.refused("root", []string{"why", "quota", "--as", "nobody"}, `User "nobody" cannot get resource "gangs/why"`)
	})

	run("how the queues stand that a namespace may use", func(t *testing.T) {
		teams := func(name, team string) {
			t.Helper()
			q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1beta1.QueueSpec{
				Capability:        corev1.ResourceList{"cpu": resource.MustParse("6")},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": team}}}}
			w.check(w.kube.Basalt.Post().Resource("queues").Body(q).Do(t.Context()).Error())
		}
		w.queue("lab", "6")
		teams("lab.red", "red")
		teams("lab.blue", "blue")
		w.gang("blue", "secret", "lab.blue", 1, "3500m")
		w.told("root", []string{"why", "blue/secret"}, "has started")
		w.gang("red", "mine", "lab.red", 1, "3500m")
		out := w.told("carol", []string{"queue", "list"}, "  lab.red", "lab", "cpu 3500m/6", "research")
		t.Logf("$ kubectl basalt queue list # as a tenant of red\n%s", out)
		for _, hidden := range []string{"lab.blue", "secret"} {
			if strings.Contains(out, hidden) {
				t.Errorf("carol is told of %s: %s", hidden, out)
			}
		}
		out = w.told("carol", []string{"why", "queue/lab.red"}, "next     red/mine", "ABOVE IT", "cpu 3500m/6", "root")
		t.Logf("$ kubectl basalt why queue/lab.red\n%s", out)
		if strings.Contains(out, "secret") || strings.Contains(out, "lab.blue") {
			t.Errorf("carol is told of others: %s", out)
		}
		out = w.told("carol", []string{"why", "--gang", "queue=lab.red,cpu=4,pods=2"},
			"the planned gang in queue lab.red", "Nothing was changed.")
		t.Logf("$ kubectl basalt why --gang queue=lab.red,cpu=4,pods=2\n%s", out)
		w.told("carol", []string{"why", "mine", "--what-if", "lab:capability.cpu=7"}, "lab", "Nothing was changed.")
		for _, args := range [][]string{{"why", "queue/lab.blue"}, {"why", "--gang", "queue=lab.blue,cpu=1"}, {"why",
			"mine", "--what-if", "lab.blue:weight=2"},
			{"queue", "list", "lab.blue"}} {
			other := append([]string{}, args...)
			for i := range other {
				other[i] = strings.ReplaceAll(other[i], "lab.blue", "lab.none")
			}
			one := w.refused("carol", args,
				`there is no queue "lab.blue" that admits namespace "red": basalt queue list -n red lists those `+
					`that do`)
			if two := w.refused("carol", other); strings.ReplaceAll(one, "lab.blue", "lab.none") != two {
				t.Errorf("the answers tell which queues there are: %s %s", one, two)
			}
		}
		w.refused("carol", []string{"queue", "list", "-n", "blue"}, "queues.visibility.basalt.dev is forbidden")
		w.told("root", []string{"queue", "list", "-n", "blue"}, "lab.blue")
		w.told("root", []string{"queue", "list"}, "lab.blue", "lab.red")
		w.may("User", "dora", "red", "basalt-view") // who views learns of gangs, not of queues
		w.withCertificate("dora", "red", "people")
		w.refused("dora", []string{"queue", "list"}, `user "dora" may not create PodGroups in namespace "red"`)
		w.refused("dora", []string{"why", "queue/lab.red"},
			`user "dora" may not get the Queue "lab.red", nor create PodGroups in namespace "red"`)
		long := strings.Repeat("x", 253)
		w.refused("carol", []string{"why", "queue/" + long}, "")
		w.refused("carol", []string{"queue", "list", long}, "")
		w.refused("root", []string{"queue", "list", "-n", long}, "the path names no namespace")
	})

	run("a shard is drained", func(t *testing.T) {
		for _, shard := range []string{"shard-0", "shard-1"} { // the one that is asked, and another
			w.told("root", []string{"drain", shard}, shard+" owns 0 buckets")
			w.told("root", []string{"drain", shard, "--cancel"}, "takes its part again")
		}
		w.refused("carol", []string{"drain", "shard-1"}, `shards.visibility.basalt.dev "shard-1" is forbidden`)
	})

	run("as programs ask", func(t *testing.T) {
		prefix := visibility.Aggregated
		for _, row := range []struct{ user, path, says string }{
			{"carol", prefix + "/namespaces/red/gangs/quota/why", `"gang":"PodGroup red/quota"`},
			{"root", prefix + "/status?gangs=1", `"shards":[`},
			{"root", prefix + "/shards/shard-1/drain", `"draining":false`},
			{"blue", prefix, `"name":"gangs/why"`},
			{"blue", "/apis/" + visibility.Group, `"preferredVersion":{"groupVersion":"visibility.basalt.dev/v1beta1"`},
		} {
			if out, err := w.raw(row.user, row.path); err != nil || !strings.Contains(out, row.says) {
				t.Errorf("%s: %v: %s", row.path, err, out)
			}
		}
		long := strings.Repeat("x", 253)
		for _, row := range []struct{ user, path, says string }{
			{"carol", prefix + "/namespaces/red/gangs/none/why", "there is no PodGroup and no pod red/none"},
			{"carol", prefix + "/namespaces/red/gangs/" + long + "/why", "there is no PodGroup and no pod red/" + long},
			{"carol", prefix + "/namespaces/red/gangs/" + long + "x/why", "the path names no object"},
			{"root", prefix + "/namespaces/" + long + "/gangs/x/why", "the path names no object"},
			{"root", prefix + "/queues/" + long + "/why", ""},
			{"root", prefix + "/shards/" + long + "x/drain", "the name of a shard has 1 to 253"},
			{"root", prefix + "/everything", "what may be asked is"},
			{"root", prefix + "/status?queue=" + strings.Repeat("x", 5000), "path and query have more than"},
			{"carol", prefix + "/namespaces/blue/gangs/quota/why", "gangs.visibility.basalt.dev"},
			{"carol", prefix + "/queues/research/why", "at the cluster scope"},
		} {
			if out, err := w.raw(row.user, row.path); err == nil || !strings.Contains(out, row.says) {
				t.Errorf("%.90s: %v: %s; want %q", row.path, err, out, row.says)
			}
		}
	})

	run("resources are listed", func(t *testing.T) {
		for _, user := range []string{"root", "blue"} {
			config, err := clientcmd.BuildConfigFromFlags("", w.configs[user])
			w.check(err)
			client, err := discovery.NewDiscoveryClientForConfig(config)
			w.check(err)
			_, lists, err := client.ServerGroupsAndResources()
			w.check(err)
			found := false
			for _, list := range lists {
				for _, r := range list.APIResources {
					if list.GroupVersion != visibility.Group+"/"+visibility.Version {
						continue
					}
					if found = true; !strings.Contains(r.Name, "/") {
						t.Errorf("%s is listed", r.Name)
					}
				}
			}
			if !found {
				t.Errorf("%s finds nothing of it", user)
			}
		}
	})

	run("who pretends to be the API server", func(t *testing.T) {
		bundle := w.bundle()
		other, key, err := w.cluster.ClientCertificate("front-proxy-client") // of the right name, by the CA of users
		w.check(err)
		users, err := tls.X509KeyPair(other, key)
		w.check(err)
		shard, err := tls.LoadX509KeyPair(filepath.Join(string(w.keys), issue.SecretShard, "tls.crt"),
			filepath.Join(string(w.keys), issue.SecretShard, "tls.key"))
		w.check(err)
		for what, mine := range map[string][]tls.Certificate{"nothing": nil, "a user's certificate": {users},
			"a shard's certificate": {shard}} {
			client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: bundle,
				ServerName: certs.NameVisibility("basalt-system"), Certificates: mine}}}
			for _, path := range []string{visibility.Aggregated + "/status", "/v1/status", visibility.Aggregated +
				"/namespaces/red/gangs/quota/why"} {
				r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, w.shards[0].Visibility+path, nil)
				w.check(err)
				r.Header.Set("X-Remote-User", "system:admin")
				r.Header.Set("X-Remote-Group", "system:masters")
				response, err := client.Do(r)
				w.check(err)
				body, err := io.ReadAll(response.Body)
				response.Body.Close()
				w.check(err)
				if response.StatusCode != http.StatusUnauthorized || !strings.Contains(string(body), "a bearer token is needed") {
					t.Errorf("with %s, %s is answered %d %s", what, path, response.StatusCode, body)
				}
			}
		}
	})

	run("without the API server", func(t *testing.T) { // and verified
		file := filepath.Join(string(w.keys), issue.SecretShard, "ca.crt")
		if out, err := w.through("red", w.shards[1].Visibility, "why", "quota", "--basalt-ca", file); err != nil ||
			!strings.Contains(out, "red/quota waits") {
			t.Errorf("%v: %s", err, out)
		}
		if out, err := w.through("red", w.shards[1].Visibility, "status"); err == nil || !strings.Contains(out,
			"--basalt-ca names the CA of shards") {
			t.Errorf("%v: %s", err, out)
		}
	})

	run("the CA is rotated", func(t *testing.T) {
		w.opts.RotateCA = true
		changes := fmt.Sprint(ensure(t, w,
			time.Now().Add(48*time.Hour))) // every certificate is still good, and the bundle has one CA more
		w.opts.RotateCA = false
		if !strings.Contains(changes, issue.PublishedAs) {
			t.Errorf("the API server is not told: %s", changes)
		}
		w.available("True")
		w.told("carol", []string{"why", "quota"}, "red/quota waits")
	})

	run("a certificate that the API server does not trust", func(t *testing.T) {
		_, err := issue.Publish(w.kube.Core.CoreV1().RESTClient())(t.Context(), w.caOfUsers())
		w.check(err)
		if localtest.Lacks("1.36") { // its check of an APIService trusts any certificate, its requests do not
			localtest.Wait(t, patience, "requests to fail", func(context.Context) error {
				if out, err := w.ask("carol", "why", "none"); err == nil || !strings.Contains(out, "it reaches no shard: ") {
					return fmt.Errorf("%v: %s", err, out)
				}
				return nil
			})
		} else {
			w.available("False", "certificate signed by unknown authority")
		}
		out := w.refused("carol", []string{"why", "none"}, "it reaches no shard: ",
			"kubectl get apiservice v1beta1.visibility.basalt.dev says why", "nor can a port of a shard",
			"--basalt-server names another way")
		t.Logf("$ kubectl basalt why none\n%s", out)
		w.told("carol", []string{"why", "quota"}, "this is what the object says", "red/quota waits")
		ensure(t, w, time.Now()) // mends it
		w.available("True")
		w.told("carol", []string{"why", "quota"}, "  since ")
	})

	run("no shard answers", func(t *testing.T) {
		w.shards[0].Kill()
		w.available("False", "connection refused")
		began := time.Now()
		config, err := clientcmd.BuildConfigFromFlags("", w.configs["carol"])
		w.check(err)
		client, err := discovery.NewDiscoveryClientForConfig(config)
		w.check(err)
		groups, lists, err := client.ServerGroupsAndResources()
		var failed *discovery.ErrGroupDiscoveryFailed
		if !errors.As(err, &failed) && err != nil || len(groups) < 10 || len(lists) < 10 {
			t.Errorf("the other APIs are not found: %d groups, %d lists, %v", len(groups), len(lists), err)
		}
		t.Logf("discovery took %s: %v", time.Since(began).Round(time.Millisecond), err)
		if _, err := w.kube.Core.CoreV1().Pods("red").List(t.Context(), metav1.ListOptions{}); err != nil {
			t.Error(err)
		}
		w.refused("carol", []string{"why", "none"}, "it reaches no shard: ")
		w.install(w.shards[1])
		w.available("True")
		w.told("carol", []string{"why", "quota"}, "  since ")
	})

	run("not installed", func(t *testing.T) {
		w.check(w.kube.Core.CoreV1().RESTClient().Delete().AbsPath(apiService).Do(t.Context()).Error())
		localtest.Wait(t, patience, "the API to be gone", func(context.Context) error {
			if out, err := w.ask("carol", "why", "none"); err == nil || !strings.Contains(out,
				"it does not serve visibility.basalt.dev/v1beta1, which deploy/visibility.yaml installs") {
				return fmt.Errorf("%v: %s", err, out)
			}
			return nil
		})
		if changes := ensure(t, w, time.Now()); len(changes) > 0 {
			t.Errorf("%v", changes)
		}
	})

	run("the API server is not there", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0") // a port at which nobody listens then
		w.check(err)
		server := "https://" + listener.Addr().String()
		w.check(listener.Close())
		config, err := clientcmd.LoadFromFile(w.configs["carol"])
		w.check(err)
		for _, to := range config.Clusters {
			to.Server = server
		}
		w.configs["lost"] = t.TempDir() + "/kubeconfig"
		w.check(clientcmd.WriteToFile(*config, w.configs["lost"]))
		if out := w.refused("lost", []string{"why", "quota"}, "connection refused"); strings.Contains(out, "forwarded") {
			t.Error(out)
		}
	})
}

// bundle is what the API server trusts.
func (i *installation) bundle() *x509.CertPool {
	i.t.Helper()
	pem, err := os.ReadFile(filepath.Join(string(i.keys), issue.SecretShard, "ca.crt"))
	i.check(err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(pem)
	return pool
}

// caOfUsers is a CA that has signed no shard.
func (i *installation) caOfUsers() []byte { return i.cluster.Config(local.Admin).CAData }
