package suite

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
)

// sources returns the comments of all tests, by package and test.
func sources(packages []tested) map[string]string {
	out := map[string]string{}
	for _, p := range packages {
		for _, name := range slices.Concat(p.TestGoFiles, p.XTestGoFiles) {
			tree, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.ParseComments)
			if err != nil {
				continue // go test has said so
			}
			for _, d := range tree.Decls {
				if fn, is := d.(*ast.FuncDecl); is && fn.Recv == nil {
					out[p.ImportPath+" "+fn.Name.Name] = fn.Doc.Text()
				}
			}
		}
	}
	return out
}
