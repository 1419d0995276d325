package gauge

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// top is how many of a list are shown.
const top = 6

// Print writes a table of each package that one of the scopes names, of all packages without a scope. A scope is a
// folder, FOLDER/... for that and all below it, or "..." for everything. With short, a package is one row.
func Print(w io.Writer, all map[string]Figures, scopes []string, short bool) {
	if short {
		fmt.Fprintf(
			w,
			"%-36s %5s %6s %7s %7s | %-19s %-19s %9s | %6s %4s %4s | %4s %4s\n",
			"package",
			"files",
			"lines",
			"file",
			"func",
			"methods",
			"fields",
			"scattered",
			"arrows",
			"back",
			"knot",
			"bool",
			"wide",
		)
	}
	for _, dir := range slices.Sorted(maps.Keys(all)) {
		named := func(scope string) bool { return within(strings.TrimSuffix(scope, "/"), dir) }
		if len(scopes) > 0 && !slices.ContainsFunc(scopes, named) {
			continue
		}
		if f := all[dir]; short {
			f.row(w)
		} else {
			f.table(w)
		}
	}
}

// within reports whether a scope names a folder.
func within(scope, dir string) bool {
	if scope == "..." {
		return true
	}
	if above, is := strings.CutSuffix(scope, "/..."); is {
		return dir == above || strings.HasPrefix(dir, above+"/")
	}
	return dir == scope
}

// table writes all figures of a package. Of structs with at least Large fields it says which fields are written in many
// files.
func (f Figures) table(w io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(w, "  %-24s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(w, "%s\n", f.Dir)
	line("files, lines", "%d, %d", f.Files, f.Lines)
	line("largest file", "%d %s", f.LargestFile.N, f.LargestFile.Name)
	line("longest function", "%d %s", f.LongestFunction.N, f.LongestFunction.Name)
	line("methods", "%s", list(f.Methods))
	var fields []Named
	for _, s := range f.Structs {
		fields = append(fields, Named{s.Name, s.Fields})
	}
	line("fields", "%s", list(fields))
	for _, s := range f.Structs {
		if s.Fields >= Large {
			line("  writers of "+s.Name, "%d of %d written in %d or more files%s; %d named in one file only",
				len(s.Scattered), s.Fields, Scattered, after(": ", list(s.Scattered)), s.Alone)
		}
	}
	line("arrows", "%d between files, %d of them back; %d files reach each other", f.Arrows, len(f.Back), len(f.Knot))
	line("booleans", "%d", f.Booleans)
	line("durations", "%d, and %d instants", f.Durations, f.Instants)
	line("wide lines", "%d over %d columns", f.Wide, Columns)
}

// row writes the main figures of a package.
func (f Figures) row(w io.Writer) {
	scattered := 0
	for _, s := range f.Structs {
		if s.Fields >= Large {
			scattered += len(s.Scattered)
		}
	}
	fmt.Fprintf(
		w,
		"%-36s %5d %6d %7d %7d | %-19.19v %-19.19v %9d | %6d %4d %4d | %4d %4d\n",
		f.Dir,
		f.Files,
		f.Lines,
		f.LargestFile.N,
		f.LongestFunction.N,
		first(f.Methods),
		first(fieldsOf(f)),
		scattered,
		f.Arrows,
		len(f.Back),
		len(f.Knot),
		f.Booleans,
		f.Wide,
	)
}

func fieldsOf(f Figures) []Named {
	if len(f.Structs) == 0 {
		return nil
	}
	return []Named{{f.Structs[0].Name, f.Structs[0].Fields}}
}

func first(list []Named) Named {
	if len(list) == 0 {
		return Named{}
	}
	return list[0]
}

func (n Named) String() string {
	if n.Name == "" {
		return "-"
	}
	return fmt.Sprintf("%s %d", n.Name, n.N)
}

func list(all []Named) string {
	var out []string
	for i, n := range all {
		if i == top {
			out = append(out, "...")
			break
		}
		out = append(out, n.String())
	}
	return strings.Join(out, ", ")
}

func after(prefix, s string) string {
	if s == "" {
		return ""
	}
	return prefix + s
}
