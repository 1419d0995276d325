package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// inhabited makes two tenants with gangs that run and wait.
func (w *world) inhabited() {
	w.queue("research", "12", "12", "")
	w.queue("research.vision", "8", "4", "2")
	w.queue("research.speech", "8", "4", "")
	w.queue("batch", "16", "8", "")
	w.tenant("red")
	w.tenant("blue")
	w.gang("red", "crimson-run", "research.vision", 2, "3")
	w.reason("red", "crimson-run", v1beta1.ReasonScheduled)
	w.gang("red", "crimson-wait", "research.vision", 2, "2")
	w.group("red", "crimson-few", "research.vision", 4)
	w.gang("blue", "azure-run", "research.speech", 1, "2")
	w.reason("red", "crimson-wait", v1beta1.ReasonQuotaExceeded)
	w.reason("blue", "azure-run", v1beta1.ReasonScheduled)
}

// TestConsole: a tenant sees what is hers in the words of `basalt why`, an administrator everything, a stranger
// nothing; and the tree of queues is that of the objects.
func TestConsole(t *testing.T) {
	w := start(t, 2)
	w.inhabited()
	w.serve()
	root := w.administrator("root")
	red, blue, admin := w.login(w.token("red", "red")), w.login(w.token("blue", "blue")), w.login(root)

	red.shows("/work", "crimson-run", "crimson-wait", `insufficient cpu`, "2 of 2 pods are bound")
	config := w.kubeconfig("red", "red", w.token("red", "red"))
	localtest.Wait(t, patience, "the words of basalt why", func(ctx context.Context) error {
		why, err := exec.CommandContext(ctx, w.program, "why", "crimson-wait", "-o", "wide", "--basalt-server",
			w.all[1].Visibility, "--kubeconfig", config).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, why)
		}
		_, page := red.get("/gangs/red/crimson-wait")
		page = html.UnescapeString(page)
		for line := range strings.Lines(string(why)) {
			words := strings.TrimSpace(line)
			if len(line) > 11 && strings.HasPrefix(line, "  ") {
				words = strings.TrimSpace(line[11:])
			}
			words = strings.TrimPrefix(words, "PodGroup red/crimson-wait ")
			if !strings.HasPrefix(words, "20") && !strings.Contains(page, words) { // but for the time
				return fmt.Errorf("basalt why says %q, and the page does not", words)
			}
		}
		return nil
	})
	red.shows("/gangs/red/crimson-run", "started", "node-", "runs")
	red.shows(
		"/gangs/red/crimson-wait?change=research.vision:capability.cpu=12",
		"it is granted in its turn",
		"Nothing was changed.",
		"kubectl patch bq research.vision --type=merge",
	)
	red.shows("/work?planned=queue=research.vision,cpu=1,pods=2", "Nothing was changed.")
	red.shows("/queues", "Queues that admit red", `id="q/research.vision"`)
	red.shows("/queues/research.vision?n=red", "1 gang is charged, 1 waits", "red/crimson-wait")
	admin.shows("/cluster", "leads with term", "shard-0", "shard-1", "4 nodes: 4 ready", "zone-1")
	w.free(admin)

	t.Run("the tree", func(t *testing.T) { w.tree(t, admin) })
	t.Run("a stranger", func(t *testing.T) { w.stranger(t, admin, blue, red) })
	t.Run("a browser", func(t *testing.T) { w.look(t, root) })
	t.Run("a laptop", func(t *testing.T) { w.laptop(t, config) })
	t.Run("a token that is revoked", func(t *testing.T) {
		w.check(w.kube.Core.CoreV1().ServiceAccounts("blue").Delete(t.Context(), "blue", metav1.DeleteOptions{}))
		localtest.Wait(t, patience, "the end of the session", func(context.Context) error {
			if code, text := blue.get("/work"); code != 401 || !strings.Contains(text, "does not accept this token") {
				return fmt.Errorf("%d %s", code, text)
			}
			return nil
		})
		if _, text := blue.get("/work"); !strings.Contains(text, `name="token"`) {
			t.Errorf("then a page says %s", text)
		}
	})
	t.Run("two administrators", func(t *testing.T) { w.administrators(t, admin, w.login(w.administrator("second"))) })
	t.Run("a shard is killed", func(t *testing.T) { w.killed(t, admin, red) })
	t.Run("no shard", func(t *testing.T) {
		w.all[1].Kill()
		red.shows(
			"/gangs/red/crimson-wait",
			"Basalt could not be asked",
			"waits: queue &#34;research.vision&#34; has insufficient",
		)
		red.shows("/work", "crimson-wait")
		admin.shows("/cluster", "Basalt does not say its status now", "shard-0") // as it was
	})
}

// free compares what the page of the cluster says is free of the nodes with what the pods there request.
func (w *world) free(admin *visitor) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "what is free of the nodes", func(ctx context.Context) error {
		pods, err := w.kube.Core.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
		w.check(err)
		free := map[string]int64{"node-0": 8000, "node-1": 8000, "node-2": 8000, "node-3": 8000}
		for _, p := range pods.Items {
			if p.Spec.NodeName != "" {
				free[p.Spec.NodeName] -= p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
			}
		}
		cells := func(nodes ...string) (out string) {
			for _, name := range nodes {
				out += "0123456789a"[free[name]/800 : free[name]/800+1]
			}
			return out
		}
		_, text := admin.get("/cluster/cells?resource=cpu")
		for _, want := range []string{cells("node-0", "node-2"), cells("node-1", "node-3")} {
			if !strings.Contains(text, fmt.Sprintf(`"Cells":%q`, want)) {
				return fmt.Errorf("%s is not in %s", want, text)
			}
		}
		return nil
	})
}

// administrators has two of them ask what each field that can be asked about would do to the same Queue. The API server
// takes the command that the first one copies; that of the second is refused, as it names the spec that he saw.
func (w *world) administrators(t *testing.T, first, second *visitor) {
	queue := func() (q v1beta1.Queue) {
		w.check(w.kube.Basalt.Get().Resource("queues").Name("batch").Do(t.Context()).Into(&q))
		return q
	}
	command := func(v *visitor, change string) string {
		t.Helper()
		text := html.UnescapeString(v.shows("/queues/batch?"+url.Values{"change": {change}}.Encode(), "Nothing was changed.",
			fmt.Sprintf("/metadata/generation&#34;,&#34;value&#34;:%d}", queue().Generation)))
		_, patch, _ := strings.Cut(text, "kubectl patch bq batch --type=json -p '")
		patch, _, _ = strings.Cut(patch, "'\n")
		return patch
	}
	patch := func(text string) error {
		return w.kube.Basalt.Patch(types.JSONPatchType).Resource("queues").Name("batch").Body([]byte(text)).Do(t.Context()).
			Error()
	}
	for step, row := range []struct{ changes, has, lacks string }{
		{"capability.cpu=12 spec.capability.nvidia.com/gpu=0 guarantee.cpu=1 deserved.cpu=6 weight=0 priority=-7",
			`"capability":{"cpu":"12","nvidia.com/gpu":"0"} "guarantee":{"cpu":"1"} "deserved":{"cpu":"6"} "weight":0 ` +
				`"priority":-7`, "closed"},
		{"closed=true reclaimable=false reclaimPolicy=FairShare preemptionPolicy=Never reclaimMinRuntime=10m " +
			"preemptMinRuntime=1h30m preemptionDelay=30s weight=3 capability.memory=1Gi",
			`"closed":true "reclaimable":false "reclaimPolicy":"FairShare" "preemptionPolicy":"Never" ` +
				`"reclaimMinRuntime":"10m0s" "preemptMinRuntime":"1h30m0s" "preemptionDelay":"30s" "weight":3 "memory":"1Gi"`, "x"},
		{"closed= reclaimable= reclaimPolicy= guarantee.cpu= priority= weight= preemptionPolicy= reclaimMinRuntime= " +
			"preemptMinRuntime= preemptionDelay= capability.memory=", `"capability":{"cpu":"12","nvidia.com/gpu":"0"}`,
			"closed reclaim Runtime priority weight preempt memory"},
	} {
		of := func(changes string) string {
			return "batch:" + strings.ReplaceAll(changes, " ", "\nbatch:")
		}
		his, hers := command(first, of(row.changes)), command(second, "batch:capability.cpu=9")
		if err := patch(his); err != nil {
			t.Fatalf("%s: %v", his, err)
		}
		is := queue()
		spec, err := json.Marshal(is.Spec)
		w.check(err)
		for _, has := range strings.Fields(row.has) {
			if !strings.Contains(string(spec), has) {
				t.Errorf("after %s the spec is %s", row.changes, spec)
			}
		}
		for _, lacks := range strings.Fields(row.lacks) {
			if strings.Contains(string(spec), lacks) {
				t.Errorf("after %s the spec is %s", row.changes, spec)
			}
		}
		if err := patch(hers); err == nil || queue().Generation != is.Generation {
			t.Errorf("after %s the API server takes %s: %v", row.changes, hers, err)
		} else if step == 0 {
			t.Logf("the second administrator is told: %v", err)
		}
	}
	first.shows("/queues/batch?change=batch:order=1", "it is not one of capability.RESOURCE")
}

// killed has a shard killed. Meanwhile pages say what the objects say; then it is listed who took its buckets over.
func (w *world) killed(t *testing.T, admin, red *visitor) {
	w.all[2].Kill()
	said := map[string]bool{}
	localtest.Wait(t, patience, "the takeover", func(context.Context) error {
		for _, path := range []string{"/gangs/red/crimson-wait", "/gangs/red/crimson-run",
			"/queues/research.vision?n=red", "/work"} {
			code, text := red.get(path)
			if code != 200 || strings.HasPrefix(path, "/gangs") && !strings.Contains(text, "crimson") {
				t.Errorf("%s while a shard is dead: %d %s", path, code, text)
			}
			if _, words, is := strings.Cut(text, "this is what the object says.</b> <bdi>"); is {
				words, _, _ = strings.Cut(words, "</bdi>")
				said[words] = true
			}
		}
		_, text := admin.get("/cluster")
		taken := regexp.MustCompile(`</time> <bdi>epoch [0-9]+: shard shard-0 took over [0-9]+ buckets`)
		if !taken.MatchString(text) {
			_, text, _ = strings.Cut(text, "h-takeovers")
			return fmt.Errorf("the cluster says %.900s", text)
		}
		return nil
	})
	t.Logf("meanwhile pages say: %q", api.SortedKeys(said))
	for words := range said {
		if strings.Contains(words, "rpc error") {
			t.Errorf("a tenant reads %s", words)
		}
	}
	red.shows("/gangs/red/crimson-wait", "insufficient cpu")
	if _, text := red.get("/gangs/red/crimson-wait"); strings.Contains(text, "could not be asked") {
		localtest.Wait(t, patience, "the heir", func(context.Context) error {
			if _, text := red.get("/gangs/red/crimson-wait"); strings.Contains(text, "could not be asked") {
				return errors.New("it does not answer")
			}
			return nil
		})
	}
}

// laptop has a tenant run a console of her own, with the rights that she has.
func (w *world) laptop(t *testing.T, kubeconfig string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	own := exec.CommandContext(ctx, w.program, "console", "--kubeconfig", kubeconfig, "--basalt-server",
		w.all[1].Visibility)
	out, err := own.StdoutPipe()
	w.check(err)
	w.check(own.Start())
	defer func() { cancel(); _ = own.Wait() }()
	line, err := bufio.NewReader(out).ReadString('\n')
	w.check(err)
	at, err := url.Parse(strings.TrimSpace(line))
	w.check(err)
	her := w.visitor()
	at, her.at = &url.URL{Path: at.Path, RawQuery: at.RawQuery}, at.Scheme+"://"+at.Host
	if code, text := her.get(at.String()); code != 200 {
		t.Errorf("the URL that it prints: %d %s", code, text)
	}
	her.shows("/work", "My work", "crimson-run", "crimson-wait")
	her.shows("/gangs/red/crimson-wait", "waits: queue", "crimson-wait-1")
	her.shows("/queues", "Queues that admit red")
	if code, text := her.get("/work?n=blue"); code != 403 || strings.Contains(text, "azure") {
		t.Errorf("of others it shows %d %s", code, text)
	}
	heard := make(chan string, 100)
	w.check(her.stream(ctx, "/work", func(event string) { heard <- event }))
	w.group("red", "crimson-new", "research.vision", 1)
	localtest.Wait(t, patience, "the new gang", func(ctx context.Context) error {
		select {
		case event := <-heard:
			if strings.Contains(event, "crimson-new") {
				return nil
			}
			return errors.New(event)
		default:
			return errors.New("nothing new")
		}
	})
}

// tree compares the page of queues with the objects.
func (w *world) tree(t *testing.T, admin *visitor) {
	row := regexp.MustCompile(`(?s)<tr id="q/([^"]+)"><th.*?</th>(.*?)</tr>`)
	cell := regexp.MustCompile(`(?s)<td[^>]*>(.*?)</td>`)
	for try := 0; ; try++ {
		before := w.queues()
		_, page := admin.get("/queues")
		if after := w.queues(); fmt.Sprint(before) != fmt.Sprint(after) && try < 100 {
			continue // it changed in between
		}
		var said []string
		for _, m := range row.FindAllStringSubmatch(page, -1) {
			cells := cell.FindAllStringSubmatch(m[2], -1)
			charged := regexp.MustCompile(`<b>([^<]*)</b>`).FindStringSubmatch(cells[1][1])
			amount := ""
			if charged != nil {
				amount = charged[1]
			}
			said = append(said, fmt.Sprintf("%s %s %s %s", m[1], amount, cells[3][1],
				strings.NewReplacer("<b>", "", "</b>", "").Replace(cells[4][1])))
		}
		if slices.Equal(said, before) {
			return
		}
		if try == 100 {
			t.Fatalf("the page has\n%q\nand the objects\n%q", said, before)
		}
	}
}

// queues lists the Queues as a line each, in the order of the tree: name, cpu, gangs that are admitted, and that wait.
func (w *world) queues() (out []string) {
	var list v1beta1.QueueList
	w.check(w.kube.Basalt.Get().Resource("queues").Do(w.t.Context()).Into(&list))
	slices.SortFunc(list.Items, func(a, b v1beta1.Queue) int {
		if (a.Name == "root") != (b.Name == "root") {
			return map[bool]int{true: -1, false: 1}[a.Name == "root"]
		}
		return slices.Compare(strings.Split(a.Name, "."), strings.Split(b.Name, "."))
	})
	for _, q := range list.Items {
		if q.Status == nil {
			continue
		}
		amount := ""
		if cpu, has := q.Status.Charged["cpu"]; has {
			amount = cpu.String()
		} else if _, limited := q.Status.Limits.Capability["cpu"]; limited {
			amount = "0"
		}
		out = append(out, fmt.Sprintf("%s %s %d %d", q.Name, amount, q.Status.AdmittedGangs, q.Status.WaitingGangs))
	}
	return out
}

// stranger goes to each URL that an administrator and a tenant find by following links, and learns nothing of that
// tenant.
func (w *world) stranger(t *testing.T, admin, blue, red *visitor) {
	href := regexp.MustCompile(`(?:href|action|data-stream|data-cells)="(/[^"]*)"`)
	seen, like := map[string]bool{}, map[string]int{}
	crawl := func(v *visitor) {
		var queue []string
		add := func(path string) {
			path, _, _ = strings.Cut(html.UnescapeString(path), "#")
			u, err := url.Parse(path)
			if err != nil || seen[path] || path == "/logout" {
				return
			}
			asked := []string{u.Path}
			for key := range u.Query() {
				asked = append(asked, key)
			}
			slices.Sort(asked)
			if kind := strings.Join(asked, " "); like[kind] < 2 { // of filters two of each combination will do
				like[kind]++
				seen[path] = true
				queue = append(queue, path)
			}
		}
		for add("/work"); len(queue) > 0; {
			path := queue[0]
			queue = queue[1:]
			if strings.HasPrefix(path, "/stream") {
				continue
			}
			_, text := v.get(path)
			for _, m := range href.FindAllStringSubmatch(text, -1) {
				add(m[1])
			}
		}
	}
	crawl(admin)
	crawl(red)
	for _, more := range []string{"/gangs/red/crimson-wait?change=research.vision:weight=2", "/gangs/red/crimson-run-0",
		"/work?n=red", "/work?n=blue,red", "/work?n=blue&text=crimson", "/work?n=blue&planned=queue=research.vision,cpu=1",
		"/queues?n=red", "/queues/research.vision?n=red", "/queues/research.vision?n=blue&change=research.vision:weight=2"} {
		seen[more] = true
	}
	paths := []string{}
	for path := range seen {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	if len(paths) < 40 {
		t.Errorf("only %d URLs were found: %q", len(paths), paths)
	}
	for _, path := range paths {
		if strings.HasPrefix(path, "/stream") {
			continue // it renders the page of that name, which is looked at
		}
		code, text := blue.get(path)
		about := text
		for _, asked := range []string{"crimson-wait", "crimson-run-0", "crimson-run", "crimson-few"} {
			if strings.Contains(path, asked) { // it is repeated
				about = strings.ReplaceAll(about, asked, "")
			}
		}
		about = strings.ReplaceAll(strings.ReplaceAll(about, "text=crimson", ""), `value="crimson"`, "")
		if strings.Contains(about, "crimson") || strings.Contains(path, "/red") && code == 200 {
			t.Errorf("%s tells a stranger, %d:\n%s", path, code, text)
		}
	}
	t.Logf("%d URLs were walked as a stranger", len(paths))
	if err := os.WriteFile(artefact(t, "urls.txt"), []byte(strings.Join(paths, "\n")+"\n"), 0o644); err != nil {
		t.Error(err)
	}
}

// artefact returns where something is kept that a person may want to look at.
func artefact(t *testing.T, name string) string {
	return filepath.Join(t.ArtifactDir(), name)
}
