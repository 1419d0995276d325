package gauge

import (
	"bytes"
	"go/ast"
	"go/types"
	"iter"
	"maps"
	"slices"
	"sort"
	"strings"
	"unicode/utf8"
)

// Columns is how wide a line may be; a tab counts as one column.
const Columns = 120

// Large is from how many fields on a struct is looked at for who writes it, and Scattered in how many files a field is
// written then.
const (
	Large     = 10
	Scattered = 3
)

// Named is a number of something that has a name.
type Named struct {
	Name string
	N    int
}

// Struct is one struct type of a package.
type Struct struct {
	Name      string
	Fields    int
	Booleans  int
	Methods   int
	Scattered []Named // fields that are written in at least Scattered files, and in how many
	Writers   Named   // the field that is written in the most files
	Alone     int     // fields that only one file names
}

// Figures are the numbers of one package. Tests and generated files do not count.
type Figures struct {
	Dir             string
	Files, Lines    int
	LargestFile     Named
	LongestFunction Named
	Methods         []Named // by receiver, most first
	Structs         []Struct
	Arrows          int
	Back            [][2]string // arrows on a cycle
	Knot            []string    // the largest set of files that all reach each other
	Booleans        int         // fields of structs
	Durations       int         // constants, variables and fields of type time.Duration
	Instants        int         // fields of type time.Time
	Wide            int         // lines over Columns
}

// Measure reads the module whose go.mod is in root, and returns the figures of its packages by their folders.
func Measure(root string) (map[string]Figures, error) {
	t, err := load(root)
	if err != nil {
		return nil, err
	}
	out := map[string]Figures{}
	for dir, p := range t.packages {
		out[dir] = t.measure(p)
	}
	return out, nil
}

// measure computes the figures of one package.
func (t *tree) measure(p *pkg) Figures {
	out := Figures{Dir: p.dir}
	methods := map[string]int{}
	for _, f := range p.files {
		if f.generated {
			continue
		}
		out.Files++
		lines := bytes.Count(f.text, []byte("\n"))
		out.Lines += lines
		out.LargestFile = out.LargestFile.or(f.name, lines)
		for line := range bytes.Lines(f.text) {
			if utf8.RuneCount(bytes.TrimRight(line, "\n")) > Columns {
				out.Wide++
			}
		}
		for _, d := range f.tree.Decls {
			fn, is := d.(*ast.FuncDecl)
			if !is {
				continue
			}
			receiver, name := receiverOf(fn), fn.Name.Name
			if receiver != "" {
				name = receiver + "." + name
			}
			length := t.fset.Position(fn.End()).Line - t.fset.Position(fn.Pos()).Line + 1
			out.LongestFunction = out.LongestFunction.or(name+" in "+f.name, length)
			if !f.built {
				continue
			}
			if receiver != "" {
				methods[receiver]++
			}
		}
	}
	for name, n := range methods {
		out.Methods = append(out.Methods, Named{name, n})
	}
	largestFirst(out.Methods)
	t.declarations(p, methods, &out)
	graph := t.arrows(p)
	for _, to := range graph {
		out.Arrows += len(to)
	}
	out.Back = cyclic(graph)
	if all := knots(graph); len(all) > 0 {
		out.Knot = all[0]
	}
	return out
}

// declarations counts what a package declares besides functions.
func (t *tree) declarations(p *pkg, methods map[string]int, out *Figures) {
	u := t.uses(p)
	for _, f := range p.files {
		if !f.built || f.generated {
			continue
		}
		for _, d := range f.tree.Decls {
			g, is := d.(*ast.GenDecl)
			if !is {
				continue
			}
			for _, spec := range g.Specs {
				values, is := spec.(*ast.ValueSpec)
				if !is {
					continue
				}
				for _, id := range values.Names {
					if o := p.info.Defs[id]; o != nil && isTime(o.Type(), "Duration") {
						out.Durations++
					}
				}
			}
		}
		ast.Inspect(f.tree, func(n ast.Node) bool { // also structs without a name, and those that functions declare
			if st, is := n.(*ast.StructType); is {
				for _, field := range st.Fields.List {
					n, of := max(1, len(field.Names)), p.info.Types[field.Type].Type
					switch {
					case of == nil:
					case isBool(of):
						out.Booleans += n
					case isTime(of, "Duration"):
						out.Durations += n
					case isTime(of, "Time"):
						out.Instants += n
					}
				}
			}
			return true
		})
	}
	for _, name := range p.types.Scope().Names() {
		typed, is := p.types.Scope().Lookup(name).(*types.TypeName)
		if !is || typed.IsAlias() || t.inGenerated(p, typed) {
			continue
		}
		st, is := typed.Type().Underlying().(*types.Struct)
		if !is {
			continue
		}
		s := Struct{Name: name, Fields: st.NumFields(), Methods: methods[name]}
		for v := range st.Fields() {
			n := len(u.written[v])
			s.Writers = s.Writers.or(v.Name(), n)
			if n >= Scattered {
				s.Scattered = append(s.Scattered, Named{v.Name(), n})
			}
			if len(u.named[v]) == 1 {
				s.Alone++
			}
			if isBool(v.Type()) {
				s.Booleans++
			}
		}
		largestFirst(s.Scattered)
		out.Structs = append(out.Structs, s)
	}
	sort.SliceStable(out.Structs, func(i, j int) bool { return out.Structs[i].Fields > out.Structs[j].Fields })
}

func (t *tree) inGenerated(p *pkg, o types.Object) bool {
	in := t.fset.Position(o.Pos()).Filename
	return slices.ContainsFunc(p.files, func(f *file) bool { return f.generated && strings.HasSuffix(in, "/"+f.name) })
}

func receiverOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil || len(fn.Recv.List) == 0 {
		return ""
	}
	e := fn.Recv.List[0].Type
	for {
		switch x := e.(type) {
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.IndexExpr:
			e = x.X
		case *ast.IndexListExpr:
			e = x.X
		case *ast.Ident:
			return x.Name
		default:
			return ""
		}
	}
}

func isBool(t types.Type) bool {
	b, is := t.Underlying().(*types.Basic)
	return is && b.Info()&types.IsBoolean != 0
}

func isTime(t types.Type, name string) bool {
	n, is := types.Unalias(t).(*types.Named)
	return is && n.Obj().Name() == name && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == "time"
}

// or returns the larger of the two, and the first of equals.
func (n Named) or(name string, count int) Named {
	if count > n.N {
		return Named{name, count}
	}
	return n
}

func largestFirst(list []Named) {
	sort.Slice(list, func(i, j int) bool {
		if list[i].N != list[j].N {
			return list[i].N > list[j].N
		}
		return list[i].Name < list[j].Name
	})
}

func keys[V any](m map[string]V) iter.Seq[string] { return maps.Keys(m) }
