package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// integration are the tests in test/integration/scheduler/filters whose tables are exported. Not: those whose cases are functions, and those that
// replace features of the scheduler by others.
var integration = []string{"TestInterPodAffinity", "TestInterPodAffinityWithNamespaceSelector", "TestTaintTolerationFilter", "TestPodTopologySpreadFilter",
	"TestNodePortsFilter", "TestNodeResourcesFilter", "TestNodeAffinityFilter"}

// image is what a container of a pod runs: nothing is ever pulled.
var image = regexp.MustCompile(`"image":"[^"]*"`)

// dump writes what the fields of tables of tests are; they have no exported names.
const dump = `
func dumpTable(test string, table any) {
	rows := reflect.ValueOf(table).Elem()
	for i := range rows.Len() {
		row := map[string]any{"test": test}
		for k := range rows.Index(i).NumField() {
			f := rows.Index(i).Field(k)
			row[rows.Type().Elem().Field(k).Name] = reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().Interface()
		}
		if err := json.NewEncoder(os.Stdout).Encode(row); err != nil {
			panic(err)
		}
	}
}
`

// exportIntegration writes the tables of integration tests: a program is made of the statements of each test up to its table.
func exportIntegration(source, temp, to string) (int, error) {
	file := filepath.Join(source, "test/integration/scheduler/filters/filters_test.go")
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, file, nil, 0)
	if err != nil {
		return 0, err
	}
	var kept []ast.Decl
	var calls []string
	for _, d := range tree.Decls {
		switch d := d.(type) {
		case *ast.GenDecl:
			if d.Tok == token.VAR && strings.Contains(text(fset, d), "testutils.") {
				continue
			}
			if d.Tok != token.IMPORT {
				kept = append(kept, d)
			}
		case *ast.FuncDecl:
			if !slices.Contains(integration, d.Name.Name) {
				continue
			}
			i := slices.IndexFunc(d.Body.List, func(s ast.Stmt) bool {
				a, is := s.(*ast.AssignStmt)
				return is && text(fset, a.Lhs[0]) == "tests"
			})
			if i < 0 {
				return 0, fmt.Errorf("%s has no table", d.Name.Name)
			}
			d.Body.List = append(d.Body.List[:i+1], &ast.ExprStmt{X: &ast.CallExpr{Fun: ast.NewIdent("dumpTable"),
				Args: []ast.Expr{&ast.BasicLit{Kind: token.STRING, Value: fmt.Sprintf("%q", d.Name.Name)}, &ast.UnaryExpr{Op: token.AND, X: ast.NewIdent("tests")}}}})
			for _, s := range d.Body.List[:i] {
				for _, name := range names(s) {
					d.Body.List = append(d.Body.List, &ast.AssignStmt{Lhs: []ast.Expr{ast.NewIdent("_")}, Tok: token.ASSIGN, Rhs: []ast.Expr{ast.NewIdent(name)}})
				}
			}
			d.Type.Params.List = nil
			kept, calls = append(kept, d), append(calls, d.Name.Name+"()")
		}
	}
	var body strings.Builder
	for _, d := range kept {
		body.WriteString(text(fset, d) + "\n")
	}
	imports := "import (\n\"encoding/json\"\n\"os\"\n\"reflect\"\n\"unsafe\"\n"
	for _, i := range tree.Imports {
		path := strings.Trim(i.Path.Value, `"`)
		name := path[strings.LastIndex(path, "/")+1:]
		if i.Name != nil {
			name = i.Name.Name
		}
		if strings.Contains(body.String(), name+".") {
			imports += name + " " + i.Path.Value + "\n"
		}
	}
	dir := filepath.Join(source, "test/integration/scheduler/dump")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return 0, err
	}
	program := "package main\n" + imports + ")\n" + body.String() + dump + "func main() {\n" + strings.Join(calls, "\n") + "\n}\n"
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o644); err != nil {
		return 0, err
	}
	cmd := exec.Command("go", "run", "-modfile", filepath.Join(temp, "go.mod"), "k8s.io/kubernetes/test/integration/scheduler/dump")
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("run the tables: %w\n%s", err, failed.Bytes())
	}
	var rows []json.RawMessage
	for line := range bytes.Lines(image.ReplaceAll(out, []byte(`"image":"pause"`))) {
		rows = append(rows, bytes.TrimSpace(line))
	}
	b, err := json.MarshalIndent(rows, "", " ")
	if err != nil {
		return 0, err
	}
	return len(rows), os.WriteFile(to, append(b, '\n'), 0o644)
}

// names are the variables that a statement declares.
func names(s ast.Stmt) (out []string) {
	if a, is := s.(*ast.AssignStmt); is && a.Tok == token.DEFINE {
		for _, x := range a.Lhs {
			out = append(out, x.(*ast.Ident).Name)
		}
	}
	return out
}

func text(fset *token.FileSet, node any) string {
	var b strings.Builder
	if err := printer.Fprint(&b, fset, node); err != nil {
		panic(err)
	}
	return b.String()
}
