package home

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The state of a gang is written by become alone, which checks what follows what.
func TestOnlyBecomeWritesTheState(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	writes := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				assign, is := n.(*ast.AssignStmt)
				if !is {
					return true
				}
				for _, to := range assign.Lhs {
					if field, is := to.(*ast.SelectorExpr); is && field.Sel.Name == "state" {
						writes++
						if f, is := d.(*ast.FuncDecl); !is || f.Name.Name != "become" {
							t.Errorf("%s writes a state", set.Position(to.Pos()))
						}
					}
				}
				return true
			})
		}
	}
	if writes != 1 {
		t.Errorf("%d writes of a state were found, want 1", writes)
	}
}

// A transition that the table does not have is a broken invariant.
func TestStatesThatMayNotFollow(t *testing.T) {
	for from := range collecting + state(len(follows)) {
		for to := range collecting + state(len(follows)) {
			c, g := New(Config{}), &gang{state: from}
			c.become(g, to)
			allowed := to == from || follows[from]&(1<<to) != 0
			if g.state != to || (c.Broken == 0) != allowed {
				t.Errorf("%s to %s: %d broken, allowed %t", from, to, c.Broken, allowed)
			}
		}
	}
	for _, never := range [][2]state{{running, waiting}, {ready, evicting}, {releasing, ready}, {closing, collecting},
		{waiting, holding}, {collecting, evicting}} {
		if follows[never[0]]&(1<<never[1]) != 0 {
			t.Errorf("%s may become %s", never[0], never[1])
		}
	}
}
