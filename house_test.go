// Package basalt holds nothing but this test of the house rules.
package basalt

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
)

const module = "basalt.dev/basalt"

// cores decide; they must be pure. Everything else that is not listed in mayImport is a shell, a main or a bench.
var cores = []string{"api/store/protocol", "cache", "coordinator", "coordinator/effect", "coordinator/leadership",
	"coordinator/owners", "shard/effect", "shard/fair", "shard/home", "shard/home/disruption", "shard/home/intake",
	"shard/home/pack", "shard/home/plan", "shard/home/report", "shard/node", "shard/topology", "shard/event",
	"shard/cores", "shard/volumes"}

// mayImport lists, for cores and words, what of ours they may import.
var mayImport = map[string][]string{
	"api":                      {},
	"api/wire":                 {"api"},
	"api/v1beta1":              {"api"},
	"api/expression":           {"api"}, // CEL, for cores: it starts nothing, reads nothing
	"api/doors/volcano":        {"api", "api/v1beta1"},
	"api/doors/volcano/mirror": {"api", "api/v1beta1", "api/doors/volcano"},
	"cache":                    {"api", "api/fault"},
	"api/store/protocol":       {"api", "api/wire", "api/fault"},
	"coordinator":              {"api", "api/wire", "api/v1beta1", "api/fault", "coordinator/owners"},
	"coordinator/owners":       {"api", "api/wire"},
	"coordinator/effect":       {"api", "api/v1beta1", "api/store/protocol", "api/wire", "coordinator"},
	"coordinator/leadership":   {"api", "api/wire", "api/fault", "coordinator"},
	"shard/cores":              {"api", "shard/event", "shard/home", "shard/node", "shard/topology"},
	"shard/effect":             {"api", "api/fault", "api/store/protocol", "shard/event"},
	"shard/event":              {"api", "api/wire", "api/v1beta1"},
	"shard/fair":               {},
	"shard/topology":           {"api", "api/wire", "api/fault", "shard/event", "shard/fair"},
	"shard/node":               {"api", "api/wire", "api/v1beta1", "api/fault", "cache", "shard/event", "shard/fair", "shard/topology"},
	"shard/home":               {"api", "api/wire", "api/v1beta1", "api/fault", "shard/event", "shard/fair", "shard/home/disruption", "shard/home/intake", "shard/home/pack", "shard/home/plan", "shard/home/report", "shard/topology"},
	"shard/home/disruption":    {"api", "shard/fair"},
	"shard/home/intake":        {"api", "api/v1beta1", "api/expression"},
	"shard/home/pack":          {},
	"shard/home/plan":          {"api", "shard/home/pack"},
	"shard/home/report":        {"api", "api/wire", "api/v1beta1", "api/fault", "shard/event", "shard/fair"},
	"shard/volumes":            {"api", "api/volume", "shard/event"},
	"api/volume":               {"api"},
	"api/audit":                {"api", "api/wire", "api/v1beta1"}, // shares no code with what it judges
}

type source struct {
	pkg, file string
	test      bool
	tree      *ast.File
}

func TestTopLevelIsFixed(t *testing.T) {
	allowed := []string{"api", "bench", "cache", "cmd", "coordinator", "deploy", "shard", "bin",
		"go.mod", "go.sum", "Makefile", "README.md", "LICENSE", "CHANGELOG.md", "ceilings_test.go", "house_test.go"}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), ".") && !slices.Contains(allowed, e.Name()) {
			t.Errorf("%s does not belong at the top level", e.Name())
		}
	}
}

// What the README tells people to type is there.
func TestREADMENamesRealTargets(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)").FindAllStringSubmatch(string(readme), -1)
	if len(named) < 5 {
		t.Errorf("README.md names only %d targets", len(named))
	}
	for _, m := range named {
		if !regexp.MustCompile("(?m)^" + m[1] + ":").Match(makefile) {
			t.Errorf("README.md says make %s, and the Makefile has no such target", m[1])
		}
	}
	if lines := strings.Count(string(readme), "\n"); lines > 150 {
		t.Errorf("README.md has %d lines; 150 are enough", lines)
	}
}

// TestProtocolIsShort: the protocol is what a newcomer reads. Details and reasons are in api/DECISIONS.md, by headings
// that the protocol links to.
func TestProtocolIsShort(t *testing.T) {
	const most = 2500
	protocol, err := os.ReadFile("api/PROTOCOL.md")
	if err != nil {
		t.Fatal(err)
	}
	if words := len(strings.Fields(string(protocol))); words > most {
		t.Errorf("api/PROTOCOL.md has %d words; %d are enough", words, most)
	}
	decisions, err := os.ReadFile("api/DECISIONS.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`\(DECISIONS\.md#([a-z-]+)\)`).FindAllStringSubmatch(string(protocol), -1) {
		if !strings.Contains(strings.ToLower(string(decisions)), "\n## "+m[1]+"\n") {
			t.Errorf("api/PROTOCOL.md links to %s, which is no heading of api/DECISIONS.md", m[1])
		}
	}
}

// TestDocsNameWhatExists: links in the pages of deploy lead somewhere, the targets, flags and files that they name are there, and the
// index names each page.
func TestDocsNameWhatExists(t *testing.T) {
	pages, err := filepath.Glob("deploy/docs/*.md")
	if err != nil || len(pages) < 8 {
		t.Fatalf("%v: %q", err, pages)
	}
	read := func(file string) string {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	exists := func(file string) bool { _, err := os.Stat(file); return err == nil }
	makefile, index, flags := read("Makefile"), read("deploy/docs/README.md"), ""
	for _, s := range sources(t) {
		if !under(s.pkg, "bench") && !s.test {
			flags += read(s.file)
		}
	}
	var (
		link   = regexp.MustCompile(`\]\(([^)#\s]*)(#[^)\s]+)?\)`)
		target = regexp.MustCompile("(?m)(?:^|`)make ([a-z-]+)")
		own    = regexp.MustCompile("(?m)(?:^|[`|] *|-- )basalt [a-z][^`|\n]*")
		flag   = regexp.MustCompile(`--([a-z][a-z-]+)`)
		alone  = regexp.MustCompile("`--([a-z][a-z-]+)[^`]*`")
		file   = regexp.MustCompile("`((?:deploy|api|bench|overlays)/[A-Za-z0-9_./-]+|[a-z][A-Za-z0-9_/-]*\\.(?:yaml|md))`")
		slug   = regexp.MustCompile(`[^a-z0-9 -]`)
		links  int
	)
	for _, page := range append(pages, "deploy/MIGRATE.md") {
		text := read(page)
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			links++
			to := page
			if m[1] != "" {
				to = path.Join(path.Dir(page), m[1])
			}
			if !exists(to) {
				t.Errorf("%s links to %s, which is not there", page, to)
			} else if m[2] != "" && !slices.ContainsFunc(strings.Split(read(to), "\n"), func(line string) bool {
				heading, is := strings.CutPrefix(strings.TrimLeft(line, "#"), " ")
				return is && line[0] == '#' && "#"+strings.ReplaceAll(slug.ReplaceAllString(strings.ToLower(heading), ""), " ", "-") == m[2]
			}) {
				t.Errorf("%s links to %s%s: there is no such heading", page, to, m[2])
			}
		}
		for _, m := range target.FindAllStringSubmatch(text, -1) {
			if !regexp.MustCompile("(?m)^" + m[1] + ":").MatchString(makefile) {
				t.Errorf("%s says make %s, and the Makefile has no such target", page, m[1])
			}
		}
		named := alone.FindAllStringSubmatch(text, -1)
		for _, command := range own.FindAllString(text, -1) {
			named = append(named, flag.FindAllStringSubmatch(command, -1)...)
		}
		for _, m := range named {
			if !strings.Contains(flags, `"`+m[1]+`"`) && !strings.Contains(notOurs, " "+m[1]+" ") {
				t.Errorf("%s names the flag --%s, and basalt has none of that name", page, m[1])
			}
		}
		for _, m := range file.FindAllStringSubmatch(text, -1) {
			if !exists(m[1]) && !exists("deploy/"+m[1]) && !exists(path.Join(path.Dir(page), m[1])) {
				t.Errorf("%s names the file %s, which is not there", page, m[1])
			}
		}
		if name := path.Base(page); name != "README.md" && !strings.Contains(index, name+")") {
			t.Errorf("deploy/docs/README.md does not link to %s", page)
		}
	}
	if links < 30 {
		t.Errorf("only %d links were found", links)
	}
}

// notOurs are flags of other programs that the pages name without the program, and those that each command has.
const notOurs = " previous set values take-ownership quota-backend-bytes version help "

// TestGlossaryHoldsEveryTimer: the glossary names every duration of the cores, with its value; what it names of other packages
// has the value that it says; and each inequality that it promises holds.
func TestGlossaryHoldsEveryTimer(t *testing.T) {
	timers := durations(t)
	rows := tables(t, "api/GLOSSARY.md")
	listed := map[string]bool{}
	for _, row := range rows["Timers"] {
		name := strings.Trim(row[0], "`")
		listed[name] = true
		if is, known := timers[name]; !known {
			t.Errorf("api/GLOSSARY.md: there is no timer %s", name)
		} else if is.String() != row[1] {
			t.Errorf("api/GLOSSARY.md: %s is %v, not %s", name, is, row[1])
		}
	}
	for name := range timers {
		if core := strings.SplitN(name, ".", 2)[0]; slices.Contains([]string{"cache", "coordinator", "home", "node", "event"}, core) && !listed[name] {
			t.Errorf("api/GLOSSARY.md does not name the timer %s (%v)", name, timers[name])
		}
	}
	if len(rows["Inequalities"]) < 20 {
		t.Errorf("api/GLOSSARY.md has %d inequalities", len(rows["Inequalities"]))
	}
	for _, row := range rows["Inequalities"] {
		parts := regexp.MustCompile(`^(.+) (<|<=|=) (.+)$`).FindStringSubmatch(row[0])
		if parts == nil {
			t.Errorf("api/GLOSSARY.md: %s is no inequality", row[0])
			continue
		}
		left, right := span(t, timers, parts[1]), span(t, timers, parts[3])
		if holds := map[string]bool{"<": left < right, "<=": left <= right, "=": left == right}[parts[2]]; !holds {
			t.Errorf("api/GLOSSARY.md: %s does not hold: %v and %v", row[0], left, right)
		}
	}
}

// span is the value of "`a.b`", "2 * `a.b`", or of a sum of these.
func span(t *testing.T, timers map[string]time.Duration, text string) time.Duration {
	t.Helper()
	sum := time.Duration(0)
	for _, term := range strings.Split(text, " + ") {
		times := 1
		if factor, rest, is := strings.Cut(term, " * "); is {
			times, _ = strconv.Atoi(factor)
			term = rest
		}
		one, known := timers[strings.Trim(term, "`")]
		if !known {
			t.Errorf("api/GLOSSARY.md: there is no timer %s", term)
		}
		sum += time.Duration(times) * one
	}
	return sum
}

// tables returns the rows of the tables of a Markdown file, by the heading above.
func tables(t *testing.T, file string) map[string][][]string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out, heading := map[string][][]string{}, ""
	for _, line := range strings.Split(string(text), "\n") {
		if h, is := strings.CutPrefix(line, "## "); is {
			heading = h
		}
		if cells := strings.Split(line, "|"); len(cells) > 3 && strings.Contains(cells[1], "`") {
			row := []string{}
			for _, cell := range cells[1 : len(cells)-1] {
				row = append(row, strings.TrimSpace(cell))
			}
			out[heading] = append(out[heading], row)
		}
	}
	return out
}

// durations reads from the sources what duration each name has that is given one: constants, and fields of options by their
// defaults, written as `x.F = d`, as `x.F = cmp.Or(x.F, d)`, or as a pair of &x.F and d. A name begins with its package:
// home.HoldFor, shard/server.gather.
func durations(t *testing.T) map[string]time.Duration {
	t.Helper()
	out := map[string]time.Duration{}
	for _, s := range sources(t) {
		if s.test || under(s.pkg, "bench") || under(s.pkg, "cmd") {
			continue
		}
		pkg := path.Base(s.pkg)
		if pkg == "server" {
			pkg = path.Base(path.Dir(s.pkg)) + "/" + pkg
		}
		note := func(name string, value ast.Expr) {
			if d, is := duration(value); is && d > 0 {
				out[pkg+"."+name] = d
			}
		}
		pairs := func(values []ast.Expr) {
			if len(values) != 2 {
				return
			}
			if address, is := values[0].(*ast.UnaryExpr); is && address.Op == token.AND {
				if field, is := address.X.(*ast.SelectorExpr); is {
					note(field.Sel.Name, values[1])
				}
			}
		}
		for _, d := range s.tree.Decls {
			if g, is := d.(*ast.GenDecl); is && (g.Tok == token.CONST || g.Tok == token.VAR) {
				for _, spec := range g.Specs {
					for i, value := range spec.(*ast.ValueSpec).Values {
						note(spec.(*ast.ValueSpec).Names[i].Name, value)
					}
				}
			}
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				pairs(n.Args)
			case *ast.CompositeLit:
				pairs(n.Elts)
			case *ast.AssignStmt:
				if field, is := n.Lhs[0].(*ast.SelectorExpr); is && len(n.Lhs) == 1 {
					value := n.Rhs[0]
					if or, is := value.(*ast.CallExpr); is && len(or.Args) == 2 {
						value = or.Args[1]
					}
					note(field.Sel.Name, value)
				}
			}
			return true
		})
	}
	return out
}

// duration evaluates an expression that is written with the units of package time.
func duration(e ast.Expr) (time.Duration, bool) {
	switch e := e.(type) {
	case *ast.SelectorExpr:
		if x, is := e.X.(*ast.Ident); is && x.Name == "time" {
			d, known := map[string]time.Duration{"Millisecond": time.Millisecond, "Second": time.Second, "Minute": time.Minute, "Hour": time.Hour}[e.Sel.Name]
			return d, known
		}
	case *ast.BinaryExpr:
		if factor, is := e.X.(*ast.BasicLit); is && e.Op == token.MUL {
			n, err := strconv.Atoi(factor.Value)
			d, known := duration(e.Y)
			return time.Duration(n) * d, known && err == nil
		}
	}
	return 0, false
}

// TestOtherModulesKeepUp finds a module of this repository that builds this one with an older version of a library than
// it requires: `go build` refuses that there, and only the nightly run would say so.
func TestOtherModulesKeepUp(t *testing.T) {
	required := func(file string) (versions map[string]*version.Version, ours bool) {
		out, err := exec.Command("go", "mod", "edit", "-json", file).Output()
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var mod struct {
			Require []struct{ Path, Version string }
			Replace []struct{ Old struct{ Path string } }
		}
		if err := json.Unmarshal(out, &mod); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		versions = map[string]*version.Version{}
		for _, r := range mod.Require {
			if r.Path != module {
				versions[r.Path] = version.MustParseSemantic(r.Version)
			}
		}
		for _, r := range mod.Replace {
			ours = ours || r.Old.Path == module
		}
		return versions, ours
	}
	want, _ := required("go.mod")
	found := 0
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() != "go.mod" || file == "go.mod" {
			return err
		}
		have, ours := required(file)
		if !ours {
			return nil
		}
		found++
		for library, v := range have {
			if w := want[library]; w != nil && v.LessThan(w) {
				t.Errorf("%s requires %s v%s, and go.mod v%s: run `go get %[2]s@v%[4]s` there", file, library, v, w)
			}
		}
		return nil
	})
	if err != nil || found == 0 {
		t.Errorf("%d other modules that build this one, error %v", found, err)
	}
}

func TestImportsPointOneWay(t *testing.T) {
	for _, s := range sources(t) {
		if s.test {
			continue
		}
		allowed, listed := mayImport[s.pkg]
		for _, imported := range s.imports() {
			ours, isOurs := strings.CutPrefix(imported, module+"/")
			if !isOurs {
				continue
			}
			switch {
			case listed && !slices.Contains(allowed, ours):
				t.Errorf("%s imports %s", s.file, ours)
			case under(ours, "bench") && !under(s.pkg, "bench") && s.pkg != "cmd/basalt-bench":
				t.Errorf("%s imports %s: nothing imports bench", s.file, ours)
			case under(s.pkg, "shard") && under(ours, "coordinator"), under(s.pkg, "coordinator") && under(ours, "shard"):
				t.Errorf("%s imports %s: shard and coordinator speak messages", s.file, ours)
			case under(s.pkg, "api") && !under(ours, "api"):
				t.Errorf("%s imports %s: api imports nothing of ours", s.file, ours)
			}
		}
	}
}

// TestFewDrivers: besides the shells, only the simulator, the explorer and the lab make cores of shards and
// coordinators. Others step those of the lab. The tests of a core make its own.
func TestFewDrivers(t *testing.T) {
	drivers := []string{"shard/cores", "coordinator/server", "bench/prove/explore", "bench/prove/lab", "bench/prove/sim"}
	driven, found := []string{"shard/home", "shard/node", "coordinator"}, map[string]bool{}
	for _, s := range sources(t) {
		of := map[string]bool{} // what its file calls the packages of cores
		for _, i := range s.tree.Imports {
			imported := strings.Trim(i.Path.Value, `"`)
			if ours, is := strings.CutPrefix(imported, module+"/"); is && slices.Contains(driven, ours) {
				if i.Name != nil {
					of[i.Name.Name] = true
				} else {
					of[path.Base(ours)] = true
				}
			}
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			call, is := n.(*ast.SelectorExpr)
			if !is || call.Sel.Name != "New" {
				return true
			}
			if x, is := call.X.(*ast.Ident); is && of[x.Name] {
				if found[s.pkg] = true; !slices.Contains(drivers, s.pkg) {
					t.Errorf("%s makes a core: package bench/prove/lab has some", s.file)
				}
			}
			return true
		})
	}
	if len(found) != len(drivers) {
		t.Errorf("only %v make cores, want %q", found, drivers)
	}
}

func TestCoresArePure(t *testing.T) {
	forbidden := []string{"sync", "sync/atomic", "math/rand", "math/rand/v2", "crypto/rand", "os", "net", "net/http", "context", "k8s.io/client-go", "go.etcd.io", "google.golang.org/grpc", "github.com/hashicorp/memberlist"}
	for _, s := range sources(t) {
		if s.test || !slices.Contains(cores, s.pkg) {
			continue
		}
		for _, imported := range s.imports() {
			for _, f := range forbidden {
				if under(imported, f) {
					t.Errorf("%s imports %s: a core decides from its events alone", s.file, imported)
				}
			}
		}
		ast.Inspect(s.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				t.Errorf("%s starts a goroutine", s.file)
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains([]string{"Now", "Since", "Until", "After", "Sleep", "NewTimer", "NewTicker", "AfterFunc", "Tick"}, n.Sel.Name) {
					t.Errorf("%s calls time.%s: time is part of the event", s.file, n.Sel.Name)
				}
			case *ast.Ident:
				if n.Name == "float64" || n.Name == "float32" {
					t.Errorf("%s uses %s: amounts and scores are integers", s.file, n.Name)
				}
			}
			return true
		})
	}
}

func TestEveryPackageSaysWhatItIsFor(t *testing.T) {
	documented, seen := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if !s.test && s.tree.Name.Name != "main" {
			seen[s.pkg] = true
			documented[s.pkg] = documented[s.pkg] || s.tree.Doc != nil || ast.IsGenerated(s.tree)
		}
		for _, bad := range []string{"util", "utils", "common", "helper", "helpers", "manager", "info", "misc"} {
			if path.Base(s.pkg) == bad {
				t.Errorf("%s: %s says nothing", s.file, bad)
			}
		}
	}
	for pkg := range seen {
		if !documented[pkg] {
			t.Errorf("package %s has no package comment", pkg)
		}
	}
}

// TestDocCommentsBeginWithTheName: the comment of a function or a type begins with its name, after an article at most, and uses
// Go's "reports whether".
func TestDocCommentsBeginWithTheName(t *testing.T) {
	check := func(file, name string, doc *ast.CommentGroup) {
		if doc == nil || strings.HasPrefix(doc.List[0].Text, "//go:") {
			return
		}
		words := strings.Fields(strings.NewReplacer(",", " ", ":", " ", ".", " ", "'s", " ").Replace(doc.Text()))
		for len(words) > 1 && slices.Contains([]string{"A", "An", "The", "Deprecated"}, words[0]) {
			words = words[1:]
		}
		if len(words) > 0 && words[0] != name {
			t.Errorf("%s: the comment of %s begins with %q", file, name, words[0])
		}
	}
	for _, s := range sources(t) {
		if s.test || ast.IsGenerated(s.tree) {
			continue
		}
		for _, d := range s.tree.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				check(s.file, d.Name.Name, d.Doc)
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if spec, is := spec.(*ast.TypeSpec); is {
						if d.Lparen.IsValid() {
							check(s.file, spec.Name.Name, spec.Doc)
						} else {
							check(s.file, spec.Name.Name, d.Doc)
						}
					}
				}
			}
		}
		for _, group := range s.tree.Comments {
			if text := group.Text(); strings.Contains(text, "tells whether") || strings.Contains(text, "tell whether") {
				t.Errorf("%s: %q: Go says \"reports whether\"", s.file, strings.SplitN(text, "\n", 2)[0])
			}
		}
	}
}

// gofmt is part of a toolchain that a test need not find; its formatting is in a package. It takes 20 s beside other
// tests because it parses every file under the race detector.
func TestSourcesAreFormatted(t *testing.T) {
	for _, s := range sources(t) {
		is, err := os.ReadFile(s.file)
		if err != nil {
			t.Fatal(err)
		}
		if should, err := format.Source(is); err != nil || !bytes.Equal(is, should) {
			t.Errorf("%s is not formatted, gofmt -w it (%v)", s.file, err)
		}
	}
}

func (s source) imports() []string {
	var out []string
	for _, i := range s.tree.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		out = append(out, p)
	}
	return out
}

func under(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }

// sources returns all files of Go. They are read once for all tests.
func sources(t *testing.T) []source {
	t.Helper()
	out, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 10 {
		t.Fatalf("found only %d source files", len(out))
	}
	return out
}

var parsed = sync.OnceValues(func() (out []source, err error) {
	err = filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(file, ".go") || path.Dir(filepath.ToSlash(file)) == "." {
			return nil
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, source{pkg: path.Dir(filepath.ToSlash(file)), file: file, test: strings.HasSuffix(file, "_test.go"), tree: tree})
		return nil
	})
	return out, err
})
