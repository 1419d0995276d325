// Package visibility has users ask real processes of Basalt why their gangs wait, and administrators for the status and for drains, with
// tokens that a real API server made, and looks at what each of them learns and may do.
package visibility

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	authentication "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/visibility"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// patience is how long anything may take that must happen. It is no measure.
const patience = 90 * time.Second

func TestMain(m *testing.M) { localtest.Run(m) }

// world is a cluster of two nodes and some shards, with tenants.
type world struct {
	t       *testing.T
	cluster *local.Cluster
	program string
	kube    *kube.Clients
	shards  []*local.Basalt
	configs map[string]string // tenant -> kubeconfig, whose namespace is the tenant's
}

// start starts a cluster of two nodes and some shards.
func start(t *testing.T, shards int) *world { return startWith(t, shards, local.BasaltOptions{}) }

func startWith(t *testing.T, shards int, o local.BasaltOptions) *world {
	w := &world{t: t, program: localtest.Basalt(t), configs: map[string]string{}}
	w.cluster = localtest.Cluster(t, local.Options{Basalt: w.program})
	var err error
	w.kube, err = kube.ConnectConfig(w.cluster.Config(local.Admin), "visibility")
	w.check(err)
	for i := range 2 {
		_, err := w.kube.Core.CoreV1().Nodes().Create(t.Context(), kubelet.Node(fmt.Sprint("node-", i), "4", "8Gi", 20), metav1.CreateOptions{})
		w.check(err)
	}
	all, err := w.cluster.StartBasalt(t.Context(), 1, shards, o)
	w.check(err)
	w.check(local.WaitReady(t.Context(), all))
	w.shards = all[1:]
	return w
}

// TestWhy: a tenant learns of its own gangs why they wait, from any shard, and in the words of their conditions; of others' nothing, not
// even whether there are any.
func TestWhy(t *testing.T) {
	w := start(t, 2)
	w.queue("research", "4")
	w.queue("wide", "100")
	for _, tenant := range []string{"red", "blue"} {
		w.tenant(tenant)
	}
	w.gang("red", "quota", "research", 2, "3")
	w.gang("red", "full", "wide", 2, "3500m")
	w.gang("red", "fits", "wide", 1, "100m")
	w.gang("red", "few", "wide", 3, "1", "few-0")
	w.pod("red", "alone", "", "900")
	w.pod("red", "stranger", "", "1", func(p *corev1.Pod) { p.Spec.SchedulerName = "other" })
	w.says(0, "red", "full", "PodGroup red/full has started")
	w.gang("red", "full-too", "wide", 1, "3500m")
	w.pod("red", "strange", "", "1", func(p *corev1.Pod) {
		p.Spec.SchedulerName, p.Labels[api.LabelQueue] = "other", "wide"
	})
	w.gang("red", "over", "wide", 1, "10m")
	w.pod("red", "gone", "", "10m", func(p *corev1.Pod) { p.Labels[api.LabelQueue] = "wide" })
	for _, name := range []string{"over-0", "gone"} {
		w.says(0, "red", name, "has started")
		_, err := w.kube.Core.CoreV1().Pods("red").Patch(t.Context(), name, types.MergePatchType,
			[]byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status")
		w.check(err)
	}

	for i := range w.shards {
		w.says(i, "red", "quota", `PodGroup red/quota waits: queue "research"`, "never admit it", "2 start together", "  queue    research")
		w.says(i, "red", "few", "PodGroup red/few waits: 1 of the 3 pods that start together can be scheduled",
			"next     it asks for quota")
		w.says(i, "red", "fits", "PodGroup red/fits has started: 1 of 1 pods are bound", "charged  cpu=100m")
		w.says(i, "red", "full-too", "PodGroup red/full-too waits: the nodes lack room for it:", "0/2 nodes are available: 2 Insufficient cpu", "supply   the nodes lack cpu=",
			"0 of 2 take one of its pods now", "order    first in its queue",
			"next     it is admitted once capacity is freed or added")
		w.says(i, "red", "alone", "pod red/alone waits:", "the largest node has 4")
		w.says(i, "red", "few-0", "PodGroup red/few waits: 1 of the 3 pods")
		w.says(i, "red", "over", "PodGroup red/over has finished: 1 pod has succeeded")
		w.says(i, "red", "over-0", "pod red/over-0 has finished: it succeeded")
		w.says(i, "red", "gone", "pod red/gone has finished: it succeeded")
		w.fails(i, "red", "strange", `pod red/strange is not Basalt's: its spec.schedulerName is "other"`)
	}
	w.fails(0, "red", "stranger", `pod red/stranger is not Basalt's: its spec.schedulerName is "other"`)
	w.fails(0, "red", "none", "there is no PodGroup and no pod red/none")
	w.fails(0, "red", "Not/A/Name", "")

	t.Run("the condition says the same", func(t *testing.T) {
		localtest.Wait(t, patience, "the status", func(context.Context) error { // it is written now and then
			var answer visibility.Why
			out, err := w.run(0, "red", "full-too", "-o", "json")
			w.check(err)
			w.check(json.Unmarshal([]byte(out), &answer))
			var g v1beta1.PodGroup
			w.check(w.kube.Basalt.Get().Namespace("red").Resource("podgroups").Name("full-too").Do(t.Context()).Into(&g))
			if g.Status == nil || g.Status.Message != answer.Message || g.Status.Reason != answer.Reason || answer.Nodes == nil || answer.Nodes.Total != 2 {
				return fmt.Errorf("the status says %+v, the answer is %s", g.Status, out)
			}
			return nil
		})
	})

	t.Run("others learn nothing", func(t *testing.T) {
		said := map[string]bool{}
		for _, name := range []string{"quota", "alone", "none"} {
			out, err := w.run(0, "blue", "red/"+name)
			if err == nil {
				t.Fatalf("blue learns of red/%s: %s", name, out)
			}
			said[strings.ReplaceAll(out, name, "NAME")] = true
		}
		if len(said) != 1 {
			t.Errorf("the answers tell which objects there are: %v", said)
		}
		for out := range said {
			if !strings.Contains(out, `may not get the PodGroup or pod red/NAME`) {
				t.Errorf("blue is told %q", out)
			}
		}
	})

	t.Run("queues in the order", func(t *testing.T) {
		w.queue("other", "100")
		w.gang("blue", "waits", "other", 1, "3500m")
		w.says(0, "red", "full-too", `turn     queue "wide" is 2nd of the 2 below "root" in which gangs wait: above what it deserves (nothing of what the gang requests), with a weighted share of `)
		w.check(w.kube.Basalt.Patch(types.MergePatchType).Resource("queues").Name("wide").Body([]byte(`{"spec":{"deserved":{"cpu":"50"}}}`)).Do(t.Context()).Error())
		w.says(0, "red", "full-too", // it deserves no more than the nodes have
			`turn     queue "wide" is 1st of the 2 below "root" in which gangs wait: `+
				"above what it deserves (cpu 7100m + 3500m of 8)",
			`claims   nobody is evicted for it: queue "wide" would have more than it deserves, `+
				"and its queue does not allow preemption")
		w.says(0, "red", "queue/wide", "queue wide: 2 gangs are charged, 1 waits", "next     red/full-too",
			"ABOVE IT", "root") // it admits red
		w.fails(0, "red", "queue/nowhere", `there is no queue "nowhere" that admits namespace "red"`)
		w.fails(0, "red", "queue/no_queue", "")
		w.fails(0, "red", "--what-if=nowhere:weight=3", `there is no queue "nowhere" that admits namespace "red"`)
		for _, args := range [][]string{{"queue/wide"}, {"--what-if=wide:weight=3"}} {
			out, err := w.run(0, "red", args[0], "-n", "blue")
			if err == nil || !strings.Contains(out, `may not get the Queue "wide", nor create PodGroups in namespace "blue"`) {
				t.Errorf("%v: %s", err, out)
			}
		}
		_, err := w.kube.Core.RbacV1().ClusterRoles().Create(t.Context(), &rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "see-queues"},
			Rules: []rbac.PolicyRule{{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"queues"}, Verbs: []string{"get"}}}}, metav1.CreateOptions{})
		w.check(err)
		_, err = w.kube.Core.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbac.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "see-queues"},
			RoleRef:  rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: "see-queues"},
			Subjects: []rbac.Subject{{Kind: "Group", APIGroup: rbac.GroupName, Name: "system:serviceaccounts"}}}, metav1.CreateOptions{})
		w.check(err)
		w.says(1, "red", "queue/wide", "queue wide: 2 gangs are charged, 1 waits",
			"ready    Ready: limits are in force", "next     red/full-too: the nodes lack cpu=", "FAIR SHARE")
		w.says(1, "blue", "queue/wide", "queue wide: 2 gangs are charged, 1 waits", "next     a gang of another namespace\n")
		w.fails(1, "red", "queue/nowhere", `there is no queue "nowhere"`)
		w.check(w.kube.Basalt.Delete().Namespace("blue").Resource("podgroups").Name("waits").Do(t.Context()).Error())
	})

	t.Run("what if", func(t *testing.T) {
		version := func() string {
			var q v1beta1.Queue
			w.check(w.kube.Basalt.Get().Resource("queues").Name("wide").Do(t.Context()).Into(&q))
			return fmt.Sprint(q.Generation, q.Spec)
		}
		before := version()
		says := func(shard int, tenant string, args []string, words ...string) string { // one question at a time: they are few a second
			t.Helper()
			var out string
			localtest.Wait(t, patience, "basalt why "+strings.Join(args, " "), func(context.Context) (err error) {
				if out, err = w.run(shard, tenant, args[0], args[1:]...); err != nil {
					return fmt.Errorf("%w: %s", err, out)
				}
				for _, word := range words {
					if !strings.Contains(flat(out), flat(word)) { // lines are folded
						return fmt.Errorf("%q is not in:\n%s", word, out)
					}
				}
				return nil
			})
			return out
		}
		out := says(0, "red", []string{"full-too", "--what-if=wide:deserved.cpu=1", "--what-if=wide:weight=3"},
			"what if  wide:deserved.cpu=1", "8 -> 1", "red/full-too in queue wide", "  now\n", "  then\n",
			"above what it deserves (cpu 7100m + 3500m of 8)", "above what it deserves (cpu 7100m + 3500m of 1)",
			"Nothing was changed.")
		t.Logf("$ basalt why full-too --what-if wide:deserved.cpu=1 --what-if wide:weight=3\n%s", out)
		out = says(1, "red", []string{"--gang=queue=wide,cpu=3500m,pods=2,minCount=1", "--what-if=wide:deserved.cpu=11"}, "the planned gang in queue wide", "the nodes lack room for it", "Nothing was changed.")
		t.Logf("$ basalt why --gang queue=wide,cpu=3500m,pods=2,minCount=1 --what-if wide:deserved.cpu=11\n%s", out)
		says(1, "red", []string{"--gang=queue=wide,cpu=50m"}, "the planned gang in queue wide", "quota", "Nothing was changed.")
		if out := says(1, "blue", []string{"--what-if=wide:weight=3"}, "a gang of another namespace in queue wide"); strings.Contains(out, "full-too") || strings.Contains(out, "3500m") {
			t.Errorf("blue learns of a gang of red: %s", out)
		}
		for _, row := range []struct{ tenant, args, says string }{
			{"blue", "red/full-too --what-if=wide:weight=3", `may not get the PodGroup or pod red/full-too`},
			{"red", "--namespace=blue --gang=queue=wide,cpu=1", `may not create PodGroups in namespace "blue"`},
			{"red", "--what-if=nowhere:weight=3", `queue "nowhere" does not exist`},
			{"red", "--what-if=wide:deserved.cpu=200", `queue "wide": spec.deserved: cpu: 200 is above spec.capability, which is 100`},
			{"red", "--what-if=wide:deserved.cpu=much", `queue "wide": spec.deserved: cpu: "much" is no amount`},
			{"red", "none --what-if=wide:weight=3", `there is no PodGroup and no pod red/none`},
		} {
			args := strings.Fields(row.args)
			localtest.Wait(t, patience, "basalt why "+row.args, func(context.Context) error {
				if out, err := w.run(0, row.tenant, args[0], args[1:]...); err == nil || !strings.Contains(out, row.says) {
					return fmt.Errorf("%v: %s; want %q", err, out, row.says)
				}
				return nil
			})
		}
		red := w.token("red", nil)
		for path, want := range map[string]int{"": 400, "?change=wide": 400, "?change=wide:weight=3&gang=red/full-too&queue=wide": 400, "?change=wide:weight=3&gang=red/%00": 400, "?planned=queue=wide": 400,
			"?change=wide:colour=blue": 422, "?change=" + strings.Repeat("wide:weight=3&change=", 300): 414} {
			localtest.Wait(t, patience, path, func(context.Context) error {
				if code, body := w.ask(w.shards[0].Visibility+"/v1/what-if"+path, red); code != want || !strings.Contains(body, `{"error":"`) {
					return fmt.Errorf("%.80s is answered %d %s, not %d", path, code, body, want)
				}
				return nil
			})
		}
		if after := version(); after != before {
			t.Errorf("the Queue says %s, and said %s", after, before)
		}
	})

	t.Run("bad tokens", func(t *testing.T) {
		elsewhere := w.token("red", []string{"https://elsewhere.example"})
		for token, want := range map[string]int{"": 401, "nonsense": 401, elsewhere: 401, strings.Repeat("x", 20<<10): 401, w.token("red", nil): 200} {
			if code, body := w.ask(w.shards[0].Visibility+"/v1/namespaces/red/gangs/few/why", token); code != want {
				t.Errorf("a token of %d bytes is answered %d %s, not %d", len(token), code, body, want)
			}
		}
		red := w.token("red", nil)
		for path, want := range map[string]int{"/": 404, "/v1/namespaces/red/gangs/few": 404, "/v1/namespaces/RED/gangs/few/why": 400, "/v1/namespaces/red/gangs/%00/why": 400,
			"/v1/namespaces/red/gangs/" + strings.Repeat("x", 300) + "/why": 400} {
			if code, body := w.ask(w.shards[0].Visibility+path, red); code != want || !strings.Contains(body, `{"error":"`) {
				t.Errorf("%s is answered %d %s, not %d", path, code, body, want)
			}
		}
	})

	t.Run("a user who asks all the time", func(t *testing.T) {
		red, blue := w.token("red", nil), w.token("blue", nil)
		w.gang("blue", "own", "wide", 2, "1", "own-0")
		w.says(1, "blue", "own", "PodGroup blue/own waits")
		refused := 0
		for range 100 {
			if code, _ := w.ask(w.shards[1].Visibility+"/v1/namespaces/red/gangs/few/why", red); code == http.StatusTooManyRequests {
				refused++
			}
		}
		if refused == 0 {
			t.Error("100 requests in a row were answered")
		}
		if code, body := w.ask(w.shards[1].Visibility+"/v1/namespaces/blue/gangs/own/why", blue); code != http.StatusOK {
			t.Errorf("meanwhile another user is answered %d %s", code, body)
		}
	})

	t.Run("without Basalt's own rights", func(t *testing.T) {
		role, err := w.kube.Core.RbacV1().ClusterRoles().Get(t.Context(), "basalt-shard", metav1.GetOptions{})
		w.check(err)
		role.Rules = withoutReviews(role.Rules)
		_, err = w.kube.Core.RbacV1().ClusterRoles().Update(t.Context(), role, metav1.UpdateOptions{})
		w.check(err)
		localtest.Wait(t, patience, "the words for an administrator", func(context.Context) error {
			code, body := w.ask(w.shards[0].Visibility+"/v1/namespaces/red/gangs/few/why", w.token("red", nil))
			if code != http.StatusServiceUnavailable || !strings.Contains(body, "may not create tokenreviews") {
				return fmt.Errorf("the answer is %d %s", code, body)
			}
			return nil
		})
		out, err := w.run(0, "red", "few", "--token", w.token("red", nil)) // what the object says is still there
		if err != nil || !strings.Contains(out, "this is what the object says") ||
			!strings.Contains(out, "PodGroup red/few waits: 1 of the 3 pods that start together can be scheduled") {
			t.Errorf("%v: %s", err, out)
		}
	})

	t.Run("queues", func(t *testing.T) {
		admin := w.cluster
		file, err := admin.Kubeconfig(local.Admin)
		w.check(err)
		list := func(args ...string) string {
			t.Helper()
			out, err := exec.CommandContext(t.Context(), w.program, append([]string{"queue"}, append(args, "--kubeconfig", file)...)...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			return string(out)
		}
		if out := list("close", "wide"); !strings.Contains(out, `queue "wide" is closed`) {
			t.Error(out)
		}
		localtest.Wait(t, patience, "the closed queue in the list", func(context.Context) error {
			if out := list("list", "wide"); !strings.Contains(out, "Closed") || strings.Contains(out, "research") {
				return fmt.Errorf("the list is %s", out)
			}
			return nil
		})
		list("open", "wide")
		out, err := exec.CommandContext(t.Context(), w.program, "queue", "close", "nowhere", "--kubeconfig", file).CombinedOutput()
		if err == nil || !strings.Contains(string(out), `there is no queue "nowhere"`) {
			t.Errorf("%v: %s", err, out)
		}
		out, err = exec.CommandContext(t.Context(), w.program, "queue", "close", "wide", "--kubeconfig", w.configs["red"]).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "forbidden") {
			t.Errorf("a tenant closes a queue: %v: %s", err, out)
		}
	})
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func withoutReviews(rules []rbac.PolicyRule) (out []rbac.PolicyRule) {
	for _, r := range rules {
		if len(r.Resources) > 0 && r.Resources[0] != "tokenreviews" {
			out = append(out, r)
		}
	}
	return out
}

// tenant makes a namespace with a ServiceAccount that may edit it.
func (w *world) tenant(name string) {
	w.t.Helper()
	ctx, c := w.t.Context(), w.kube.Core
	_, err := c.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.check(err)
	_, err = c.CoreV1().ServiceAccounts(name).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	w.check(err)
	for _, role := range []string{"system:aggregate-to-view", "basalt-edit"} { // no controller makes the role edit of them here
		_, err = c.RbacV1().RoleBindings(name).Create(ctx, &rbac.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:  rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbac.Subject{{Kind: "ServiceAccount", Name: name, Namespace: name}}}, metav1.CreateOptions{})
		w.check(err)
	}
	file := w.t.TempDir() + "/" + name
	w.check(w.cluster.WriteKubeconfig(file, name, name, &clientcmdapi.AuthInfo{Token: w.token(name, nil)}))
	w.configs[name] = file
}

// token makes a token of a tenant.
func (w *world) token(tenant string, audiences []string) string {
	w.t.Helper()
	r, err := w.kube.Core.CoreV1().ServiceAccounts(tenant).CreateToken(w.t.Context(), tenant,
		&authentication.TokenRequest{Spec: authentication.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
	w.check(err)
	return r.Status.Token
}

func (w *world) queue(name, cpu string) {
	w.t.Helper()
	w.check(w.kube.Basalt.Post().Resource("queues").Body(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1beta1.QueueSpec{Capability: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}).Do(w.t.Context()).Error())
}

// gang makes a PodGroup and its pods: those named, or as many as start together.
func (w *world) gang(namespace, name, queue string, least int, cpu string, pods ...string) {
	w.t.Helper()
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: v1beta1.PodGroupSpec{Queue: queue}}
	g.Spec.SchedulingPolicy.Gang.MinCount = int32(least)
	w.check(w.kube.Basalt.Post().Namespace(namespace).Resource("podgroups").Body(g).Do(w.t.Context()).Error())
	for i := 0; len(pods) < least && i < least && !strings.HasSuffix(name, "few") && name != "own"; i++ {
		pods = append(pods, fmt.Sprint(name, "-", i))
	}
	for _, pod := range pods {
		w.pod(namespace, pod, name, cpu)
	}
}

func (w *world) pod(namespace, name, group, cpu string, edits ...func(*corev1.Pod)) {
	w.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}}, Spec: corev1.PodSpec{SchedulerName: api.SchedulerName,
		Containers: []corev1.Container{{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu)}}}}}}
	if group != "" {
		p.Labels[api.LabelPodGroup] = group
	}
	for _, edit := range edits {
		edit(p)
	}
	_, err := w.kube.Core.CoreV1().Pods(namespace).Create(w.t.Context(), p, metav1.CreateOptions{})
	w.check(err)
}

// run runs `basalt why` as a tenant.
func (w *world) run(shard int, tenant, what string, args ...string) (string, error) {
	w.t.Helper()
	cmd := exec.CommandContext(w.t.Context(), w.program, append([]string{"why", what, "--kubeconfig", w.configs[tenant], "--basalt-server", w.shards[shard].Visibility}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

// says waits until a tenant is told all of these words.
func (w *world) says(shard int, tenant, what string, words ...string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "basalt why "+what, func(context.Context) error {
		out, err := w.run(shard, tenant, what)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for _, word := range words {
			if !strings.Contains(flat(out), flat(word)) {
				return fmt.Errorf("%q is not in:\n%s", word, out)
			}
		}
		return nil
	})
}

// flat has one space between words: prose is folded wherever its line is full.
func flat(text string) string { return strings.Join(strings.Fields(text), " ") }

func (w *world) fails(shard int, tenant, what, words string) {
	w.t.Helper()
	if out, err := w.run(shard, tenant, what); err == nil || !strings.Contains(out, words) {
		w.t.Errorf("basalt why %s: %v, %s; want %q", what, err, out, words)
	}
}

// ask sends a request as a program would.
func (w *world) ask(url, token string) (int, string) {
	w.t.Helper()
	request, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, url, nil)
	w.check(err)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := http.DefaultClient.Do(request)
	w.check(err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	w.check(err)
	return response.StatusCode, string(body)
}
