package gauge

import (
	"go/ast"
	"go/types"
	"path"
	"slices"
)

// arrows returns which files of a package call which: an arrow leads from A to B if A names a function or a method that
// B declares. Methods of interfaces are declared nowhere, and no arrow leads to them.
func (t *tree) arrows(p *pkg) map[string]map[string]bool {
	out := map[string]map[string]bool{}
	for _, f := range p.files {
		if f.built && !f.generated {
			out[f.name] = map[string]bool{}
		}
	}
	for _, f := range p.files {
		if out[f.name] == nil {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			id, is := n.(*ast.Ident)
			if !is {
				return true
			}
			callee, is := p.info.Uses[id].(*types.Func)
			if !is || callee.Pkg() != p.types {
				return true
			}
			if r := callee.Signature().Recv(); r != nil && types.IsInterface(r.Type()) {
				return true
			}
			to := path.Base(t.fset.Position(callee.Origin().Pos()).Filename)
			if to != f.name && out[to] != nil {
				out[f.name][to] = true
			}
			return true
		})
	}
	return out
}

// cyclic returns the back arrows of a graph: those that lie on a cycle, as the node they lead to reaches the node they
// come from. Lay the nodes in layers, each as high as whatever calls it allows, with nodes that reach each other in one
// layer: every other arrow leads down. So a graph without back arrows has a layering, and one with them has none.
func cyclic(graph map[string]map[string]bool) [][2]string {
	var out [][2]string
	for _, set := range knots(graph) {
		in := map[string]bool{}
		for _, node := range set {
			in[node] = true
		}
		for _, from := range set {
			for _, to := range slices.Sorted(keys(graph[from])) {
				if in[to] {
					out = append(out, [2]string{from, to})
				}
			}
		}
	}
	return out
}

// knots returns the sets of two or more nodes each of which reaches all others of its set, largest first.
func knots(graph map[string]map[string]bool) [][]string {
	into := map[string]map[string]bool{}
	for from, tos := range graph {
		for to := range tos {
			if into[to] == nil {
				into[to] = map[string]bool{}
			}
			into[to][from] = true
		}
	}
	var out [][]string
	done := map[string]bool{}
	for _, node := range slices.Sorted(keys(graph)) {
		if done[node] {
			continue
		}
		down, up := reach(graph, node), reach(into, node)
		var both []string
		for n := range down {
			if up[n] {
				both, done[n] = append(both, n), true
			}
		}
		if slices.Sort(both); len(both) > 1 {
			out = append(out, both)
		}
	}
	slices.SortStableFunc(out, func(a, b []string) int { return len(b) - len(a) })
	return out
}

// reach returns a node and all that arrows lead to from it.
func reach(graph map[string]map[string]bool, from string) map[string]bool {
	seen, todo := map[string]bool{from: true}, []string{from}
	for len(todo) > 0 {
		node := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for to := range graph[node] {
			if !seen[to] {
				seen[to] = true
				todo = append(todo, to)
			}
		}
	}
	return seen
}
