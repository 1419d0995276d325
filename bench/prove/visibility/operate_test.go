package visibility

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	authorization "k8s.io/api/authorization/v1"
	rbac "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/visibility"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestOperate: an administrator sees the whole status and drains shards through any shard, with rights of the API server's; a tenant does
// not, whatever it may do in its namespace or see of the cluster; and a shard that is dead is in nobody's way.
func TestOperate(t *testing.T) {
	w := start(t, 3)
	w.queue("research", "4")
	for _, name := range []string{"red", "viewer", "owner", "watcher", "operator", "one"} {
		w.tenant(name)
	}
	w.gang("red", "quota", "research", 2, "3")
	w.bind("viewer", "basalt-view")
	w.bind("viewer", "system:aggregate-to-view")
	w.bind("watcher", "basalt-status")
	w.bind("operator", "basalt-drain")
	_, err := w.kube.Core.RbacV1().ClusterRoles().Create(t.Context(), &rbac.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "nodes"}, Rules: []rbac.PolicyRule{{APIGroups: []string{""},
			Resources: []string{"nodes"}, Verbs: []string{"list"}}}}, metav1.CreateOptions{})
	w.check(err)
	w.bind("operator", "nodes")
	w.bind("viewer", "nodes")
	_, err = w.kube.Core.RbacV1().RoleBindings("owner").Create(t.Context(), &rbac.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "all"},
		RoleRef:    rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   account("owner")}, metav1.CreateOptions{})
	w.check(err)
	_, err = w.kube.Core.RbacV1().ClusterRoles().Create(t.Context(), &rbac.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "one"},
		Rules: []rbac.PolicyRule{{APIGroups: []string{v1beta1.GroupName}, Resources: []string{"shards/drain"}, Verbs: []string{"create"}, ResourceNames: []string{"shard-1"}}}}, metav1.CreateOptions{})
	w.check(err)
	w.bind("one", "one")

	run := func(what string, f func(*testing.T)) {
		t.Run(what, func(t *testing.T) {
			w.t = t
			f(t)
		})
		w.t = t
	}

	run("status", func(t *testing.T) {
		for i := range w.shards {
			for _, who := range []string{"watcher", "operator"} {
				w.tells(i, who, []string{"status"}, "COORDINATOR  coordinator-0", "shard-0", "shard-1", "shard-2", "research", "red/quota", "NeverFits")
			}
		}
		out := w.must(w.command(0, "operator", "status"))
		t.Logf("$ basalt status\n%s", out)
		direct := w.must(w.directly("status"))
		if a, b := heads(out), heads(direct); a != b {
			t.Errorf("through a shard the status has\n%s\nand directly\n%s", a, b)
		}
		var answer visibility.Status
		w.check(json.Unmarshal([]byte(w.must(w.command(1, "watcher", "status", "red/quota", "--queue=research", "-o", "json"))), &answer))
		if len(answer.Shards) != 3 || len(answer.Gangs) != 1 || answer.Gangs[0].Gang != "red/quota" || len(answer.Queues) != 1 || answer.Coordinator == nil || answer.Coordinator.Error != "" {
			t.Errorf("%+v", answer)
		}
		if out := w.must(w.command(1, "watcher", "status", "red/none")); !strings.Contains(out, "No gang is waiting") {
			t.Error(out)
		}
		w.refuses(0, "operator", []string{"status", "--gangs=1001"}, "between 0 and 1000")
	})

	run("nodes", func(t *testing.T) {
		code, body := w.send("GET", w.shards[0].Visibility+"/v1/nodes", w.token("operator", nil), "")
		var answer visibility.NodeShares
		if err := json.Unmarshal([]byte(body), &answer); err != nil || code != 200 {
			t.Fatalf("%d %s: %v", code, body, err)
		}
		if len(answer.Nodes) == 0 || len(answer.Silent) > 0 ||
			!slices.Equal(answer.Resources[:2], []string{"cpu", "memory"}) {
			t.Errorf("%s", body)
		}
		for _, n := range answer.Nodes {
			if n.OutOfSync || len(n.Free) != len(answer.Resources) || n.Free[0] != 100 {
				t.Errorf("nothing runs, and node %s: %+v", n.Name, n)
			}
		}
	})

	run("without rights", func(t *testing.T) {
		for _, who := range []string{"red", "viewer", "owner", "one"} {
			w.refuses(0, who, []string{"status"}, fmt.Sprintf(`user "system:serviceaccount:%s:%s" may not list shards.scheduling.basalt.dev in the whole cluster`, who, who))
		}
		for _, who := range []string{"red", "viewer", "owner", "watcher"} {
			for _, shard := range []string{"shard-1", "unknown"} { // not even whether there is one
				for _, cancel := range []string{"--cancel=false", "--cancel"} {
					w.refuses(0, who, []string{"drain", shard, cancel}, fmt.Sprintf(`user "system:serviceaccount:%s:%s" may not create shards.scheduling.basalt.dev/drain for %q`, who, who, shard))
				}
			}
		}
		w.refuses(0, "one", []string{"drain", "shard-2"}, `for "shard-2"`)
		out, _ := w.command(0, "red", "status")
		t.Logf("$ basalt status # as a tenant\n%s", out)
		out, _ = w.command(0, "red", "drain", "shard-1")
		t.Logf("$ basalt drain shard-1 # as a tenant\n%s", out)

		red, operator := w.token("red", nil), w.token("operator", nil)
		for _, row := range []struct {
			method, path, token string
			code                int
			says                string
			header              string
		}{
			{"GET", "/v1/status", "", 401, "a bearer token is needed", ""},
			{"GET", "/v1/status", "nonsense", 401, "does not accept this token", ""},
			{"PUT", "/v1/shards/shard-1/drain", "", 401, "a bearer token is needed", ""},
			{"DELETE", "/v1/shards/shard-1/drain", "nonsense", 401, "does not accept this token", ""},
			{"GET", "/v1/shards/shard-1/drain", red, 403, "may not create", ""},
			{"PUT", "/v1/shards/shard-1/drain", red, 403, "may not create", ""},
			{"POST", "/v1/shards/shard-1/drain", operator, 404, "what may be asked", ""},
			{"PUT", "/v1/shards/a%00b/drain", operator, 400, "printable", ""},
			{"PUT", "/v1/shards/" + strings.Repeat("x", 300) + "/drain", operator, 400, "printable", ""},
			{"GET", "/v1/status?queue=" + strings.Repeat("x", 5000), operator, 414, "more than", ""},
			{"GET", "/v1/status?gangs=many", operator, 400, "is no number", ""},
			{"GET", "/v1/status?gangs=5000", operator, 400, "between 0 and 1000", ""},
			{"GET", "/v1/status", operator, 400, "does not impersonate", "Impersonate-User"},
			{"GET", "/v1/nodes", "", 401, "a bearer token is needed", ""},
			{"GET", "/v1/nodes", red, 403, "may not list shards", ""},
			{"GET", "/v1/nodes", w.token("viewer", nil), 403, "may not list shards", ""},
			{"GET", "/v1/nodes", w.token("watcher", nil), 403, "may not list nodes", ""},
			{"PUT", "/v1/shards/unknown/drain", operator, 404, "registered are: shard-0, shard-1, shard-2", ""},
		} {
			code, body := w.send(row.method, w.shards[0].Visibility+row.path, row.token, row.header)
			if code != row.code || !strings.Contains(body, row.says) {
				t.Errorf("%s %.60s is answered %d %s, not %d %q", row.method, row.path, code, body, row.code, row.says)
			}
		}
	})

	run("drain", func(t *testing.T) {
		w.refuses(0, "operator", []string{"drain", "unknown"}, `there is no shard "unknown"; registered are: shard-0, shard-1, shard-2`)
		out := w.must(w.command(0, "one", "drain", "shard-1"))
		t.Logf("$ basalt drain shard-1\n%s", out)
		if !strings.Contains(out, "shard-1 is draining, and owns") || !strings.HasSuffix(out, "shard-1 owns 0 buckets\n") {
			t.Error(out)
		}
		for i := range w.shards { // it is ordered once, whoever is asked
			if out := w.must(w.command(i, "operator", "drain", "shard-1")); out != "shard-1 is drained already: it owns no buckets\n" {
				t.Error(out)
			}
		}
		if out := w.must(w.directly("drain", "shard-1")); out != "shard-1 is drained already: it owns no buckets\n" {
			t.Error(out)
		}
		w.tells(2, "watcher", []string{"status"}, "draining")
		w.must(w.command(2, "operator", "drain", "shard-2")) // itself
		w.refuses(1, "operator", []string{"drain", "shard-0"}, "all other shards are draining, too")
		out, _ = w.command(1, "operator", "drain", "shard-0")
		t.Logf("$ basalt drain shard-0 # the last\n%s", out)
		for _, shard := range []string{"shard-1", "shard-2"} {
			if out := w.must(w.command(0, "operator", "drain", shard, "--cancel")); !strings.Contains(out, "takes its part again") {
				t.Error(out)
			}
			if out := w.must(w.command(0, "operator", "drain", shard, "--cancel")); !strings.Contains(out, "was not draining") {
				t.Error(out)
			}
		}
		w.balanced(3)
	})

	run("a shard is dead", func(t *testing.T) {
		dead := w.shards[2]
		dead.Kill()
		out := w.must(w.command(0, "operator", "status"))
		t.Logf("$ basalt status # a moment after shard-2 was killed\n%s", out)
		if !strings.Contains(out, "shard-0") || !strings.Contains(out, "shard-1") {
			t.Error(out)
		}
		out, err := w.through("operator", dead.Visibility+","+w.shards[1].Visibility, "status")
		if err != nil || !strings.Contains(out, "shard-0") {
			t.Errorf("the next is not asked: %v: %s", err, out)
		}
		out, err = w.through("operator", dead.Visibility, "status")
		if err == nil || !strings.Contains(out, "connection refused") || !strings.Contains(out, "basalt status --etcd=") {
			t.Errorf("no way is named: %v: %s", err, out)
		}
		t.Logf("$ basalt status # of the dead shard alone\n%s", out)
		out, err = w.command(1, "operator", "drain", "shard-2")
		t.Logf("$ basalt drain shard-2 # which is dead\n%s", out)
		if err == nil || !strings.Contains(out, "cannot be reached") && !strings.Contains(out, "is gone") && !strings.Contains(out, "there is no shard") {
			t.Errorf("a dead shard is drained: %v: %s", err, out)
		}
		w.refusesAtLast(1, "operator", []string{"drain", "shard-2"}, `there is no shard "shard-2"; registered are: shard-0, shard-1`)
		w.balanced(2)
		w.must(w.command(1, "operator", "drain", "shard-0"))
		w.must(w.command(1, "operator", "drain", "shard-0", "--cancel"))
	})

	run("a right that is taken away", func(t *testing.T) {
		token := w.token("operator", nil)
		order := func() (int, string) {
			return w.send("PUT", w.shards[0].Visibility+"/v1/shards/unknown/drain", token, "")
		}
		if code, body := order(); code != http.StatusNotFound {
			t.Fatalf("%d %s", code, body)
		}
		w.check(w.kube.Core.RbacV1().ClusterRoleBindings().Delete(t.Context(), "operator-basalt-drain", metav1.DeleteOptions{}))
		localtest.Wait(t, patience, "the API server to know it", func(ctx context.Context) error {
			r, err := w.kube.Core.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorization.SubjectAccessReview{Spec: authorization.SubjectAccessReviewSpec{User: "system:serviceaccount:operator:operator",
				ResourceAttributes: &authorization.ResourceAttributes{Verb: "create", Group: v1beta1.GroupName, Resource: "shards", Subresource: "drain", Name: "unknown"}}}, metav1.CreateOptions{})
			if err == nil && r.Status.Allowed {
				err = errors.New("still allowed")
			}
			return err
		})
		if code, body := order(); code != http.StatusForbidden {
			t.Errorf("at once after that an order is answered %d %s", code, body)
		}
	})
}

func account(name string) []rbac.Subject {
	return []rbac.Subject{{Kind: "ServiceAccount", Name: name, Namespace: name}}
}

// bind gives a tenant a role in the whole cluster.
func (w *world) bind(tenant, role string) {
	w.t.Helper()
	_, err := w.kube.Core.RbacV1().ClusterRoleBindings().Create(w.t.Context(), &rbac.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: tenant + "-" + strings.ReplaceAll(role, ":", "-")},
		RoleRef: rbac.RoleRef{APIGroup: rbac.GroupName, Kind: "ClusterRole", Name: role}, Subjects: account(tenant)}, metav1.CreateOptions{})
	w.check(err)
}

// command runs a command as a tenant, through a shard.
func (w *world) command(shard int, tenant string, args ...string) (string, error) {
	return w.through(tenant, w.shards[shard].Visibility, args...)
}

func (w *world) through(tenant, server string, args ...string) (string, error) {
	out, err := exec.CommandContext(w.t.Context(), w.program, append(args, "--kubeconfig", w.configs[tenant], "--basalt-server", server)...).CombinedOutput()
	return string(out), err
}

// directly runs a command with the control store's address.
func (w *world) directly(args ...string) (string, error) {
	out, err := exec.CommandContext(w.t.Context(), w.program, append(args, "--insecure-plain-text", "--etcd", strings.Join(w.cluster.ControlStore(), ","))...).CombinedOutput()
	return string(out), err
}

func (w *world) must(out string, err error) string {
	w.t.Helper()
	if err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	return out
}

// heads are the words at the beginnings of the lines of a status, which do not change from moment to moment.
func heads(status string) string {
	var out []string
	for _, line := range strings.Split(status, "\n") {
		if words := strings.Fields(line); len(words) > 0 {
			out = append(out, words[0])
		}
	}
	return strings.Join(out, " ")
}

// tells waits until a command says all of these words.
func (w *world) tells(shard int, tenant string, args []string, words ...string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, strings.Join(args, " "), func(context.Context) error {
		out, err := w.command(shard, tenant, args...)
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

// refuses looks at why a command fails.
func (w *world) refuses(shard int, tenant string, args []string, words string) {
	w.t.Helper()
	if out, err := w.command(shard, tenant, args...); err == nil || !strings.Contains(out, words) || strings.Contains(out, "When no shard answers") {
		w.t.Errorf("basalt %s as %s: %v: %s; want %q", strings.Join(args, " "), tenant, err, out, words)
	}
}

// refusesAtLast waits until a command fails for that reason.
func (w *world) refusesAtLast(shard int, tenant string, args []string, words string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, strings.Join(args, " "), func(context.Context) error {
		if out, err := w.command(shard, tenant, args...); err == nil || !strings.Contains(out, words) {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// balanced waits until so many shards own all buckets, each its part.
func (w *world) balanced(shards int) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "the buckets to be shared", func(context.Context) error {
		var answer visibility.Status
		out, err := w.command(0, "operator", "status", "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(out), &answer)
		}
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		for _, s := range answer.Shards {
			if s.Buckets < 1024/shards/2 || s.State != visibility.ShardOK {
				return fmt.Errorf("%+v", s)
			}
		}
		if len(answer.Shards) != shards {
			return fmt.Errorf("%d shards", len(answer.Shards))
		}
		return nil
	})
}

// send sends a request as a program would, and again if it comes too soon after others.
func (w *world) send(method, url, token, header string) (int, string) {
	w.t.Helper()
	for {
		request, err := http.NewRequestWithContext(w.t.Context(), method, url, nil)
		w.check(err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		if header != "" {
			request.Header.Set(header, "red")
		}
		response, err := http.DefaultClient.Do(request)
		w.check(err)
		body, err := io.ReadAll(response.Body)
		response.Body.Close()
		w.check(err)
		if response.StatusCode != http.StatusTooManyRequests {
			return response.StatusCode, string(body)
		}
		select {
		case <-time.After(200 * time.Millisecond):
		case <-w.t.Context().Done():
			w.t.Fatal("too many requests")
		}
	}
}
