// Package basalt holds nothing but this test of the house rules.
package basalt

import (
	"bytes"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "basalt.dev/basalt"

// cores decide; they must be pure. Everything else that is not listed in mayImport is a shell, a main or a bench.
var cores = []string{"cache", "coordinator", "shard/home", "shard/node", "shard/event"}

// mayImport lists, for cores and words, what of ours they may import.
var mayImport = map[string][]string{
	"api":          {},
	"api/wire":     {"api"},
	"api/v1alpha1": {"api"},
	"cache":        {"api", "api/fault"},
	"coordinator":  {"api", "api/wire", "api/v1alpha1", "api/fault"},
	"shard/event":  {"api", "api/wire", "api/v1alpha1"},
	"shard/node":   {"api", "api/wire", "api/v1alpha1", "api/fault", "cache", "shard/event"},
	"shard/home":   {"api", "api/wire", "api/v1alpha1", "api/fault", "shard/event"},
	"api/audit":    {"api", "api/wire", "api/v1alpha1"}, // shares no code with what it judges
}

type source struct {
	pkg, file string
	test      bool
	tree      *ast.File
}

func TestTopLevelIsFixed(t *testing.T) {
	allowed := []string{"api", "bench", "cache", "cmd", "coordinator", "deploy", "shard", "go.mod", "go.sum", "Makefile", "README.md", "LICENSE", "house_test.go", "bin"}
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
			documented[s.pkg] = documented[s.pkg] || s.tree.Doc != nil
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

// gofmt is part of a toolchain that a test need not find; its formatting is in a package.
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

func sources(t *testing.T) []source {
	t.Helper()
	var out []source
	err := filepath.WalkDir(".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && file != "." && (strings.HasPrefix(d.Name(), ".") || d.Name() == "bin" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(file, ".go") || file == "house_test.go" {
			return nil
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		out = append(out, source{pkg: path.Dir(filepath.ToSlash(file)), file: file, test: strings.HasSuffix(file, "_test.go"), tree: tree})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(out) < 10 {
		t.Fatalf("found only %d source files", len(out))
	}
	return out
}
