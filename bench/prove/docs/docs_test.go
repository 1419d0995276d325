// Package docs carries out pages of deploy/docs against real processes of Basalt and a real API server, so that what they tell people to
// type works, and what they show is what people see:
//
//   - The commands of each `sh` block are run by bash, block by block.
//   - A `text` block right after it is shown output: each of its lines is in what the commands print, in this order. "..." stands for
//     anything within a line, and any number of spaces for one. The last command is run again until all is there: it may ask what
//     becomes true a moment later.
//   - A `go` block is a file of the module in the folder program, which requires Basalt's as those of its readers do.
//     It compiles.
//   - The objects of each `yaml` block are accepted by the API server, in a dry run.
package docs

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// patience is how long anything may take that must happen. It is no measure.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { localtest.Run(m) }

// TestPages carries out the pages for users, one after another in one cluster.
func TestPages(t *testing.T) {
	if _, err := exec.LookPath("kubectl"); err != nil {
		t.Skip("there is no kubectl to run the commands with")
	}
	w := start(t)
	for _, page := range []string{"first-gang.md", "queues.md", "versions.md", "develop.md", "day-tenant.md"} {
		t.Run(page, func(t *testing.T) {
			blocks := read(t, filepath.Join(w.cluster.Root(), "deploy", "docs", page))
			ran := 0
			for i, b := range blocks {
				if release, lacks := b.lacks(); lacks {
					t.Logf("line %d: it needs Kubernetes %s", b.line, release)
					continue
				}
				switch b.language {
				case "sh":
					ran++
					shown := shownAfter(blocks[i+1:])
					if b.section == "Ana" { // of day-tenant.md
						w.tenant(t).run(t, b, shown)
					} else {
						w.run(t, b, shown)
					}
				case "yaml":
					w.accepts(t, b)
				case "go":
					w.program(t, b)
				case "text":
					if !b.follows || i == 0 || blocks[i-1].language != "sh" {
						t.Errorf("line %d: no commands print this:\n%s", b.line, b.text)
					}
				default:
					t.Errorf("line %d: a block of %q: sh, text, yaml or go", b.line, b.language)
				}
			}
			if ran == 0 {
				t.Error("no commands were found")
			}
		})
	}
}

// block is a fenced block of a page.
type block struct {
	language, text string
	section        string // the heading above it
	line           int    // of its beginning
	follows        bool   // there is nothing but empty lines between it and the block before
}

// since says with which release of Kubernetes came what blocks name.
var since = map[string]string{"scheduling.k8s.io/v1beta1": "1.37", "deploy/gangs": "1.36", "deploy/users": "1.36"}

// lacks reports whether the block names what the API server does not have yet, and with which release that came.
func (b block) lacks() (release string, lacks bool) {
	for name, release := range since {
		if strings.Contains(b.text, name) && localtest.Lacks(release) {
			return release, true
		}
	}
	return "", false
}

// shownAfter returns what a page shows of the output of a block, by the blocks after it; "" for nothing.
func shownAfter(rest []block) string {
	if len(rest) > 0 && rest[0].language == "text" && rest[0].follows {
		return rest[0].text
	}
	return ""
}

// read returns the blocks of a page.
func read(t *testing.T, path string) (out []block) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	inside, follows, section := false, false, ""
	for i, line := range strings.Split(string(text), "\n") {
		fence, is := strings.CutPrefix(line, "```")
		switch {
		case is && !inside:
			out = append(out, block{language: fence, section: section, line: i + 1, follows: follows})
			inside = true
		case is:
			inside, follows = false, true
		case inside:
			out[len(out)-1].text += line + "\n"
		case strings.TrimSpace(line) != "":
			follows = false
			if heading, is := strings.CutPrefix(line, "## "); is {
				section = heading
			}
		}
	}
	return out
}

// world is a cluster with Basalt, as `make up` starts one.
type world struct {
	cluster *local.Cluster
	dir     string // that commands run in
	env     []string
	narrow  bool   // commands run in a terminal
	ana     *world // the same as a tenant sees it, once it was asked for
}

func start(t *testing.T) *world {
	t.Helper()
	program := localtest.Basalt(t)
	o := local.Options{Basalt: program, ControllerManager: true}
	if !localtest.Lacks(since["scheduling.k8s.io/v1beta1"]) {
		o.APIServerFlags = []string{"--feature-gates=GenericWorkload=true", "--runtime-config=scheduling.k8s.io/v1beta1=true"}
	}
	w := &world{dir: t.TempDir(), cluster: localtest.Cluster(t, o)}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w.nodes(t, time.Hour)
	all, err := w.cluster.StartBasalt(t.Context(), 1, 2, local.BasaltOptions{})
	check(err)
	check(local.WaitReady(t.Context(), all))
	kubeconfig, err := w.cluster.Kubeconfig(local.Admin)
	check(err)
	check(os.CopyFS(filepath.Join(w.dir, "deploy"), os.DirFS(filepath.Join(w.cluster.Root(), "deploy"))))
	check(os.Mkdir(filepath.Join(w.dir, "bin"), 0o755))
	check(os.Symlink(program, filepath.Join(w.dir, "bin", "basalt")))
	w.env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "BASALT_SERVER="+all[1].Visibility,
		"PATH="+filepath.Join(w.dir, "bin")+":"+os.Getenv("PATH"))
	return w
}

// nodes makes nodes, whose pods run nothing; those of Jobs end after a while, 0 for the stand-in's own.
func (w *world) nodes(t *testing.T, jobRun time.Duration) {
	t.Helper()
	client, err := kubernetes.NewForConfig(w.cluster.Config(local.NodeStandIn))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		node := kubelet.Node(fmt.Sprint("node-", i), "32", "128Gi", 110)
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- kubelet.Run(ctx, kubelet.Options{Client: client, JobRun: jobRun}) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil && ctx.Err() == nil {
			t.Error(err)
		}
	})
}

// bash runs commands, and returns what they print.
func (w *world) bash(ctx context.Context, commands string) (string, error) {
	if w.narrow {
		return w.terminal(ctx, commands)
	}
	cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", commands)
	cmd.Dir, cmd.Env = w.dir, w.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// run runs the commands of a block, and the last of them again until what is shown was printed.
func (w *world) run(t *testing.T, b block, shown string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err := w.bash(ctx, b.text)
	if err != nil {
		t.Fatalf("line %d: %v\n%sprint\n%s", b.line, err, b.text, out)
	}
	lines := strings.Split(strings.TrimSpace(b.text), "\n")
	for missing(out, shown) != "" {
		select {
		case <-ctx.Done():
			t.Fatalf("line %d: %q is not, or not in its place, in what\n%sprints:\n%s", b.line, missing(out, shown), b.text, out)
		case <-time.After(500 * time.Millisecond):
		}
		again, _ := w.bash(ctx, lines[len(lines)-1])
		out += again
	}
	t.Logf("line %d:\n%s%s", b.line, b.text, out)
}

// missing returns the first shown line that is not in the output after those before it, "" if there is none.
func missing(out, shown string) string {
	lines := strings.Split(out, "\n")
	for want := range strings.SplitSeq(shown, "\n") {
		want = strings.Join(strings.Fields(want), " ")
		if want == "" || want == "..." {
			continue
		}
		pattern := regexp.MustCompile("^" + strings.NewReplacer(` \.\.\.`, "( .*)?", `\.\.\.`, ".*").Replace(regexp.QuoteMeta(want)) + "$")
		for len(lines) > 0 && !pattern.MatchString(strings.Join(strings.Fields(lines[0]), " ")) {
			lines = lines[1:]
		}
		if len(lines) == 0 {
			return want
		}
		lines = lines[1:]
	}
	return ""
}

// accepts has the API server judge the objects of a block.
func (w *world) accepts(t *testing.T, b block) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "objects.yaml")
	if err := os.WriteFile(file, []byte(b.text), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := w.bash(t.Context(), "kubectl apply --dry-run=server --validate=strict -f "+file); err != nil {
		t.Errorf("line %d: %v: %s\n%s", b.line, err, out, b.text)
	}
}

// program writes a block into a module of its own and compiles what is there.
func (w *world) program(t *testing.T, b block) {
	t.Helper()
	dir, root, name := filepath.Join(w.dir, "program"), w.cluster.Root(), "main.go"
	if strings.Contains(b.text, "testing.T") {
		name = "main_test.go"
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	const version = "basalt.dev/basalt v0.1.0"
	own := fmt.Sprintf("module example.com/program\n\nrequire %s\n\nreplace %s => %s\n", version, version, root)
	for file, text := range map[string]string{
		name: b.text, "go.sum": string(sum), "go.mod": strings.Replace(string(mod), "module basalt.dev/basalt\n", own, 1),
	} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := w.bash(t.Context(), "cd program && go vet . && go test -run '^$' ."); err != nil {
		t.Fatalf("line %d: %v\n%s", b.line, err, out)
	}
}

// TestMissing: what is shown is found only in its order, and as whole lines.
func TestMissing(t *testing.T) {
	const out = "NAME   READY\na      True\nb      False   some words\n"
	for shown, want := range map[string]string{
		"":                             "",
		"NAME READY\na True\n":         "",
		"a     True\nb ... words\n":    "",
		"NAME READY\n...\nb False ...": "",
		"b False ...\na True":          "a True",
		"a Tru":                        "a Tru",
		"a True\na True":               "a True",
		"b .*":                         "b .*",
	} {
		if got := missing(out, shown); got != want {
			t.Errorf("of %q, %q is missing, not %q", shown, got, want)
		}
	}
}
