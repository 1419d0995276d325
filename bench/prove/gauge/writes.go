package gauge

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"
)

// usage says which files of a package write, and which name, each field of a struct of that package.
type usage struct {
	written, named map[*types.Var]map[string]bool
}

// uses finds who writes which field. A file writes a field when it
//   - assigns to it (=, +=, ++, range), or deletes from it, clears it, copies into it;
//   - does so to an element of it or to a field of the struct that it holds, as far as no pointer lies between: x.f.g =
//     1 writes f and g if f holds a struct, and only g if f holds a pointer to one;
//   - does so through a local variable that was made as a pointer to it (s := &x.f; s.g = 1).
//
// A literal that makes a struct does not write its fields, and to call a method of a field is no write: what the method
// writes counts where the method is.
func (t *tree) uses(p *pkg) usage {
	u := usage{written: map[*types.Var]map[string]bool{}, named: map[*types.Var]map[string]bool{}}
	note := func(m map[*types.Var]map[string]bool, v *types.Var, file string) {
		v = v.Origin()
		if m[v] == nil {
			m[v] = map[string]bool{}
		}
		m[v][file] = true
	}
	for _, f := range p.files {
		if !f.built || f.generated {
			continue
		}
		aliases := map[types.Object][]*types.Var{}
		write := func(e ast.Expr) {
			for _, v := range p.path(e, aliases) {
				note(u.written, v, f.name)
			}
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, left := range n.Lhs {
					write(left)
				}
				p.alias(n, aliases)
			case *ast.IncDecStmt:
				write(n.X)
			case *ast.RangeStmt:
				if n.Tok == token.ASSIGN {
					write(n.Key)
					write(n.Value)
				}
			case *ast.CallExpr:
				if id, is := n.Fun.(*ast.Ident); is && len(n.Args) > 0 {
					writers := []string{"delete", "clear", "copy"}
					if b, is := p.info.Uses[id].(*types.Builtin); is && slices.Contains(writers, b.Name()) {
						write(n.Args[0])
					}
				}
			case *ast.SelectorExpr:
				for _, v := range p.fields(n) {
					note(u.named, v, f.name)
				}
			}
			return true
		})
	}
	return u
}

// fields returns the fields of this package that a selector names: one, and before it the embedded ones that it goes
// through.
func (p *pkg) fields(e *ast.SelectorExpr) []*types.Var {
	s := p.info.Selections[e]
	if s == nil {
		return nil
	}
	var out []*types.Var
	at := s.Recv()
	for i, step := range s.Index() {
		if s.Kind() != types.FieldVal && i == len(s.Index())-1 {
			break // a method
		}
		if ptr, is := at.Underlying().(*types.Pointer); is {
			at = ptr.Elem()
		}
		st, is := at.Underlying().(*types.Struct)
		if !is {
			break
		}
		v := st.Field(step)
		if v.Pkg() == p.types {
			out = append(out, v)
		}
		at = v.Type()
	}
	return out
}

// path returns the fields that an assignment to e writes.
func (p *pkg) path(e ast.Expr, aliases map[types.Object][]*types.Var) []*types.Var {
	switch e := e.(type) {
	case *ast.ParenExpr:
		return p.path(e.X, aliases)
	case *ast.StarExpr:
		if id, is := e.X.(*ast.Ident); is {
			return aliases[p.info.Uses[id]]
		}
	case *ast.IndexExpr:
		if p.isPointer(e.X) {
			return nil
		}
		return p.path(e.X, aliases)
	case *ast.SliceExpr:
		return p.path(e.X, aliases)
	case *ast.SelectorExpr:
		out := p.fields(e)
		if s := p.info.Selections[e]; s == nil || s.Kind() != types.FieldVal {
			return nil
		}
		for i := len(out) - 1; i > 0; i-- { // embedded pointers end the path, too
			if _, is := out[i-1].Type().Underlying().(*types.Pointer); is {
				return out[i:]
			}
		}
		if id, is := e.X.(*ast.Ident); is && aliases[p.info.Uses[id]] != nil {
			return append(out, aliases[p.info.Uses[id]]...)
		}
		if !p.isPointer(e.X) {
			out = append(out, p.path(e.X, aliases)...)
		}
		return out
	}
	return nil
}

// alias notes s := &x.f, alone or beside others.
func (p *pkg) alias(n *ast.AssignStmt, aliases map[types.Object][]*types.Var) {
	if len(n.Lhs) != len(n.Rhs) {
		return
	}
	for i, right := range n.Rhs {
		id, is := n.Lhs[i].(*ast.Ident)
		if !is {
			continue
		}
		obj := p.info.Defs[id]
		if obj == nil {
			obj = p.info.Uses[id]
		}
		if and, is := right.(*ast.UnaryExpr); is && and.Op == token.AND && obj != nil {
			if _, literal := and.X.(*ast.CompositeLit); !literal {
				aliases[obj] = p.path(and.X, aliases)
			}
		}
	}
}

func (p *pkg) isPointer(e ast.Expr) bool {
	t := p.info.Types[e].Type
	if t == nil {
		return false
	}
	_, is := t.Underlying().(*types.Pointer)
	return is
}
