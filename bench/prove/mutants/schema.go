package mutants

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/constant"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// mutant replaces the code between two offsets of a file.
type mutant struct {
	change, file string
	line         int
	from, to     int
	old, new     string
	form         form
	typ          string // of an expression that is no condition
}

// form says how the choice between the old code and the new is written.
type form int

const (
	condition form = iota // true or false
	value
	statement
)

func order(a, b mutant) int {
	return cmp.Or(strings.Compare(a.file, b.file), cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to),
		strings.Compare(a.new, b.new))
}

// list returns all mutants of the package's own files that are neither tests nor generated.
func list(ctx context.Context, dir string) ([]mutant, error) {
	var listed bytes.Buffer
	args := []string{"list", "-deps", "-export", "-json=ImportPath,Export,GoFiles,Dir", "."}
	if err := run(ctx, &listed, dir, "go", args...); err != nil {
		return nil, errors.New(listed.String())
	}
	type pkg struct {
		ImportPath, Export, Dir string
		GoFiles                 []string
	}
	exports := map[string]string{}
	var own pkg // the last one
	for d := json.NewDecoder(&listed); d.More(); {
		own = pkg{}
		if err := d.Decode(&own); err != nil {
			return nil, err
		}
		exports[own.ImportPath] = own.Export
	}
	set := token.NewFileSet()
	var files []*ast.File
	for _, name := range own.GoFiles {
		f, err := parser.ParseFile(set, filepath.Join(own.Dir, name), nil, parser.SkipObjectResolution|parser.ParseComments)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	config := &types.Config{Importer: importer.ForCompiler(set, "gc", lookup)}
	checked, err := config.Check(own.ImportPath, set, files, info)
	if err != nil {
		return nil, err
	}
	var out []mutant
	for i, f := range files {
		if ast.IsGenerated(f) {
			continue
		}
		src, err := os.ReadFile(filepath.Join(own.Dir, own.GoFiles[i]))
		if err != nil {
			return nil, err
		}
		l := lister{set: set, info: info, own: checked, src: src, file: own.GoFiles[i]}
		ast.Inspect(f, l.visit)
		out = append(out, l.out...)
	}
	slices.SortStableFunc(out, order)
	return out, nil
}

type lister struct {
	set  *token.FileSet
	info *types.Info
	own  *types.Package
	src  []byte
	file string
	out  []mutant
}

var negated = map[token.Token]token.Token{
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LSS: token.GEQ, token.GEQ: token.LSS,
	token.GTR: token.LEQ, token.LEQ: token.GTR,
}

var shifted = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
}

var computed = map[token.Token]token.Token{
	token.ADD: token.SUB, token.SUB: token.ADD, token.MUL: token.QUO, token.QUO: token.MUL, token.REM: token.MUL,
	token.ADD_ASSIGN: token.SUB_ASSIGN, token.SUB_ASSIGN: token.ADD_ASSIGN,
}

func (l *lister) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		l.binary(n)
	case *ast.UnaryExpr:
		if n.Op == token.SUB && l.info.Types[n].Value == nil {
			l.add(n, "sign dropped", l.text(n.X), value)
		}
	case *ast.IncDecStmt:
		by := map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok]
		l.add(n, "arithmetic", l.text(n.X)+by, statement)
	case *ast.AssignStmt:
		if op, ok := computed[n.Tok]; ok && numeric(l.info.Types[n.Lhs[0]].Type) {
			l.add(n, "arithmetic", l.text(n.Lhs[0])+" "+op.String()+" "+l.text(n.Rhs[0]), statement)
		}
	}
	return true
}

func (l *lister) binary(n *ast.BinaryExpr) {
	if l.info.Types[n].Value != nil {
		return // constants are no code
	}
	with := func(op token.Token) string { return l.text(n.X) + " " + op.String() + " " + l.text(n.Y) }
	if op, ok := negated[n.Op]; ok {
		l.add(n, "negated", with(op), condition)
	}
	if op, ok := shifted[n.Op]; ok {
		l.add(n, "boundary", with(op), condition)
	}
	if n.Op == token.LAND || n.Op == token.LOR {
		l.add(n, "condition dropped", l.text(n.X), condition)
		l.add(n, "condition dropped", l.text(n.Y), condition)
	}
	if op, ok := computed[n.Op]; ok && numeric(l.info.Types[n].Type) {
		if v := l.info.Types[n.Y].Value; op != token.QUO || v == nil || constant.Sign(v) != 0 {
			l.add(n, "arithmetic", with(op), value)
		}
	}
}

func numeric(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsNumeric != 0
}

func (l *lister) text(n ast.Node) string { return string(l.src[l.offset(n.Pos()):l.offset(n.End())]) }

func (l *lister) offset(p token.Pos) int { return l.set.Position(p).Offset }

func (l *lister) add(n ast.Node, change, code string, f form) {
	m := mutant{change: change, file: l.file, line: l.set.Position(n.Pos()).Line, form: f,
		from: l.offset(n.Pos()), to: l.offset(n.End()), old: l.text(n), new: code}
	if e, ok := n.(ast.Expr); ok && f == value {
		m.typ = types.TypeString(l.info.Types[e].Type, func(p *types.Package) string {
			if p == l.own {
				return ""
			}
			return p.Name()
		})
	}
	l.out = append(l.out, m)
}

const chooser = `

import (
	"os"
	"strconv"
)

func init() { mutantAlive, _ = strconv.Atoi(os.Getenv("BASALT_MUTANT")) }

var mutantAlive int

func mutant(id int) bool { return mutantAlive == id }
`

// instrument writes the mutants into the package's files: number 1 is the first of them. Where one lies inside another,
// only the old code of the outer one holds the choice of the inner one.
func instrument(dir string, drawn []mutant) error {
	files := map[string][]int{}
	for i, m := range drawn {
		files[m.file] = append(files[m.file], i)
	}
	name := ""
	for file, ids := range files {
		src, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return err
		}
		if name == "" {
			f, err := parser.ParseFile(token.NewFileSet(), "", src, parser.PackageClauseOnly)
			if err != nil {
				return err
			}
			name = f.Name.Name
		}
		if err := os.WriteFile(filepath.Join(dir, file), weave(src, drawn, ids), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "mutants_chosen.go"), []byte("package "+name+chooser), 0o644)
}

// weave needs the mutants in their order: an outer one comes before those inside it.
func weave(src []byte, drawn []mutant, ids []int) []byte {
	before, after := map[int]string{}, map[int]string{}
	for _, i := range ids {
		m := drawn[i]
		var head, tail string
		switch m.form {
		case condition:
			head, tail = fmt.Sprintf("(mutant(%d) && (%s) || !mutant(%d) && (", i+1, m.new, i+1), "))"
		case value:
			head, tail = fmt.Sprintf("func() %s { if mutant(%d) { return %s }; return ", m.typ, i+1, m.new), " }()"
		case statement:
			head, tail = fmt.Sprintf("func() { if mutant(%d) { %s } else { ", i+1, m.new), " } }()"
		}
		before[m.from] += head
		after[m.to] = tail + after[m.to]
	}
	var out bytes.Buffer
	for i, b := range src {
		out.WriteString(after[i])
		out.WriteString(before[i])
		out.WriteByte(b)
	}
	return out.Bytes()
}
