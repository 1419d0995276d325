package gauge

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// tree is a module as it lies in a checkout: its packages without tests, parsed and type-checked.
type tree struct {
	fset     *token.FileSet
	module   string
	packages map[string]*pkg // by folder, relative to the root, with slashes; "." is the root
	outside  map[string]*types.Package
}

// pkg is one folder of Go files.
type pkg struct {
	dir   string
	files []*file
	types *types.Package // nil until it was checked
	info  *types.Info
}

// file is one source file that is no test.
type file struct {
	name      string
	text      []byte
	tree      *ast.File
	generated bool // its lines do not count
	built     bool // part of the default build; others count for lines and lengths only
}

// load reads the module whose go.mod is in root.
func load(root string) (*tree, error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	name := regexp.MustCompile(`(?m)^module\s+(\S+)`).FindSubmatch(mod)
	if name == nil {
		return nil, fmt.Errorf("%s/go.mod names no module", root)
	}
	t := &tree{
		fset:     token.NewFileSet(),
		module:   string(name[1]),
		packages: map[string]*pkg{},
		outside:  map[string]*types.Package{},
	}
	paths, err := sources(root)
	if err != nil {
		return nil, err
	}
	files, failed := make([]*file, len(paths)), make([]error, len(paths))
	var wait sync.WaitGroup
	slots := make(chan struct{}, 4)
	for i, p := range paths {
		wait.Add(1)
		slots <- struct{}{}
		go func() {
			defer func() { <-slots; wait.Done() }()
			files[i], failed[i] = t.parse(root, p)
		}()
	}
	wait.Wait()
	for i, p := range paths {
		if failed[i] != nil {
			return nil, failed[i]
		}
		dir := path.Dir(p)
		if t.packages[dir] == nil {
			t.packages[dir] = &pkg{dir: dir}
		}
		t.packages[dir].files = append(t.packages[dir].files, files[i])
	}
	for dir := range t.packages {
		t.check(dir)
	}
	return t, nil
}

// sources lists the Go files of a module that are no tests, in order. Other modules inside it are not part of it.
func sources(root string) ([]string, error) {
	var out []string
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p == root {
				return nil
			}
			if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "testdata" || name == "vendor" ||
				name == "bin" {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") {
			rel, err := filepath.Rel(root, p)
			if err != nil {
				return err
			}
			out = append(out, filepath.ToSlash(rel))
		}
		return nil
	})
	return out, err
}

var generatedLine = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func (t *tree) parse(root, rel string) (*file, error) {
	full := filepath.Join(root, filepath.FromSlash(rel))
	text, err := os.ReadFile(full)
	if err != nil {
		return nil, err
	}
	tree, err := parser.ParseFile(t.fset, rel, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	built, err := build.Default.MatchFile(filepath.Dir(full), path.Base(rel))
	if err != nil {
		return nil, err
	}
	head := text[:min(len(text), 2000)]
	return &file{name: path.Base(rel), text: text, tree: tree, built: built, generated: generatedLine.Match(head)}, nil
}

// check type-checks a package and, before it, those of the module that it imports. Errors are expected, as packages of
// other modules are not loaded: an expression of a type from outside has no type here, and whatever is ours still has
// one.
func (t *tree) check(dir string) *types.Package {
	p := t.packages[dir]
	if p.info != nil {
		return p.types // nil while it is being checked: packages import each other
	}
	p.info = &types.Info{
		Uses: map[*ast.Ident]types.Object{}, Defs: map[*ast.Ident]types.Object{},
		Selections: map[*ast.SelectorExpr]*types.Selection{}, Types: map[ast.Expr]types.TypeAndValue{},
	}
	var trees []*ast.File
	for _, f := range p.files {
		if f.built {
			trees = append(trees, f.tree)
		}
	}
	config := types.Config{Importer: importer{t}, Error: func(error) {}, FakeImportC: true}
	p.types, _ = config.Check(path.Join(t.module, dir), t.fset, trees, p.info)
	return p.types
}

// importer finds packages for the type checker: those of the module, the few of the standard library from which types
// of ours come back (a sorted slice, the keys of a map), and an empty package for any other.
type importer struct{ tree *tree }

var needed = map[string]bool{
	"cmp":       true,
	"errors":    true,
	"iter":      true,
	"maps":      true,
	"math/bits": true,
	"slices":    true,
	"sort":      true,
	"strings":   true,
	"time":      true,
}

func (i importer) Import(name string) (*types.Package, error) {
	t := i.tree
	if name == "unsafe" {
		return types.Unsafe, nil
	}
	if name == t.module || strings.HasPrefix(name, t.module+"/") {
		dir := path.Clean(strings.TrimPrefix(strings.TrimPrefix(name, t.module), "/"))
		if t.packages[dir] != nil {
			if p := t.check(dir); p != nil {
				return p, nil
			}
			return nil, fmt.Errorf("%s is in an import cycle", name)
		}
	}
	if p := t.outside[name]; p != nil {
		return p, nil
	}
	if needed[name] {
		if p := t.standard(name); p != nil {
			t.outside[name] = p
			return p, nil
		}
	}
	base := path.Base(name)
	if regexp.MustCompile(`^v\d+$`).MatchString(base) && !strings.HasPrefix(name, "k8s.io/") {
		base = path.Base(path.Dir(name))
	}
	p := types.NewPackage(name, base)
	p.MarkComplete()
	t.outside[name] = p
	return p, nil
}

// standard reads the declarations of a package of the standard library, without the bodies of its functions.
func (t *tree) standard(name string) *types.Package {
	found, err := build.Default.Import(name, "", 0)
	if err != nil {
		return nil
	}
	fset := token.NewFileSet()
	var trees []*ast.File
	for _, f := range found.GoFiles {
		if tree, err := parser.ParseFile(fset, filepath.Join(found.Dir, f), nil, parser.SkipObjectResolution); err == nil {
			trees = append(trees, tree)
		}
	}
	config := types.Config{Importer: importer{t}, Error: func(error) {}, IgnoreFuncBodies: true}
	p, _ := config.Check(name, fset, trees, nil)
	return p
}
