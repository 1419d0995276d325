// Package gauge measures the shape of the code: how large its files, functions and structs are, who has the most
// methods, which files write which field, and which files call which. It holds every package and every type to the
// limits of the house (Limits), so that a part that grows beyond what one person can hold in the head fails a test.
//
// What was over a limit when the limits were introduced is a debt. ceilings.json lists each with its figure, which only
// falls: a figure above its ceiling fails the test, and so does one below it, until the ceiling is lowered (`make
// ceilings`). A figure that has reached its limit leaves the file. A renamed type has no ceiling, so that its figures
// are compared with the limits.
//
// It decides nothing about the code's meaning. Tests, generated files and other modules inside the checkout do not
// count; files outside the default build count for lines and lengths only. Packages are type-checked without the
// modules that they require: what is declared here is resolved all the same, and an expression of a type from outside
// has no type.
package gauge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Limits are the most that a figure of a package, or of a type in it, may be without a ceiling of its own.
var Limits = map[string]int{
	"largest file":     560, // lines
	"longest function": 120, // lines
	"back arrows":      10,  // of a package
	"wide lines":       0,   // of a package
	"booleans":         40,  // fields of structs of a package
	"fields":           40,  // of a struct
	"methods":          80,  // of a receiver
	"writers":          3,   // files that write one field, of a struct with Large fields or more
}

// Ceilings is the file with the debts, from the root of the checkout: from "PACKAGE FIGURE" or "PACKAGE TYPE FIGURE" to
// the figure.
const Ceilings = "bench/prove/gauge/ceilings.json"

// Check compares the figures of the checkout at root with the limits and the ceilings, and returns what is wrong, a
// sentence each.
func Check(root string) ([]string, error) {
	figures, err := debts(root)
	if err != nil {
		return nil, err
	}
	ceilings, err := read(filepath.Join(root, Ceilings))
	if err != nil {
		return nil, err
	}
	var wrong []string
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		n, limit := figures[name], Limits[what(name)]
		switch ceiling, has := ceilings[name]; {
		case !has:
			wrong = append(wrong, fmt.Sprintf("%s: %d, at most %d; divide it", name, n, limit))
		case n > ceiling:
			wrong = append(wrong, fmt.Sprintf("%s: %d, and its ceiling is %d; ceilings only fall", name, n, ceiling))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ceilings)) {
		if n := figures[name]; n < ceilings[name] {
			wrong = append(
				wrong,
				fmt.Sprintf(
					"%s: at its ceiling it was %d, and now it is less; lower the ceiling with `make ceilings`",
					name,
					ceilings[name],
				),
			)
		}
	}
	return wrong, nil
}

// Lower brings the ceilings down to today's figures, and removes those that are no longer needed. It raises none and
// adds none; where there is no file it makes one.
func Lower(root string) error {
	figures, err := debts(root)
	if err != nil {
		return err
	}
	path := filepath.Join(root, Ceilings)
	ceilings, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		ceilings = figures
	case err != nil:
		return err
	}
	for name := range ceilings {
		n, is := figures[name]
		if !is {
			delete(ceilings, name)
			continue
		}
		ceilings[name] = min(ceilings[name], n)
	}
	out, err := json.MarshalIndent(ceilings, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(out, '\n'), 0o644)
}

func read(path string) (map[string]int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	ceilings := map[string]int{}
	if err := json.Unmarshal(text, &ceilings); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	for name := range ceilings {
		if _, known := Limits[what(name)]; !known {
			return nil, fmt.Errorf("%s: %q ends in no figure that has a limit", path, name)
		}
	}
	return ceilings, nil
}

// what returns the figure that a name ends in.
func what(name string) string {
	for figure := range Limits {
		if strings.HasSuffix(name, " "+figure) {
			return figure
		}
	}
	return ""
}

// debts returns all figures of a checkout that are over their limits.
func debts(root string) (map[string]int, error) {
	all, err := Measure(root)
	if err != nil {
		return nil, err
	}
	out := map[string]int{}
	note := func(figure string, n int, of ...string) {
		if n > Limits[figure] {
			out[strings.Join(append(of, figure), " ")] = n
		}
	}
	for dir, f := range all {
		note("largest file", f.LargestFile.N, dir)
		note("longest function", f.LongestFunction.N, dir)
		note("back arrows", len(f.Back), dir)
		note("wide lines", f.Wide, dir)
		note("booleans", f.Booleans, dir)
		for _, m := range f.Methods {
			note("methods", m.N, dir, m.Name)
		}
		for _, s := range f.Structs {
			note("fields", s.Fields, dir, s.Name)
			if s.Fields >= Large {
				note("writers", s.Writers.N, dir, s.Name)
			}
		}
	}
	return out, nil
}

// Raised returns the ceilings that are higher than they were at some commit, a sentence each, by the history of the
// checkout. Without git or without a history it returns why nothing could be compared.
func Raised(root string) (raised []string, err error) {
	ceilings, err := read(filepath.Join(root, Ceilings))
	if err != nil {
		return nil, err
	}
	log, err := git(root, "log", "--format=", "--unified=0", "--no-renames", "-p", "--", Ceilings)
	if err != nil {
		return nil, err
	}
	least := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^\+\s*"(.+)": (\d+),?$`).FindAllStringSubmatch(log, -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			return nil, err
		}
		if was, is := least[m[1]]; !is || n < was {
			least[m[1]] = n
		}
	}
	for _, name := range slices.Sorted(maps.Keys(ceilings)) {
		if was, is := least[name]; is && ceilings[name] > was {
			raised = append(
				raised,
				fmt.Sprintf("%s: its ceiling was %d and is %d; ceilings only fall", name, was, ceilings[name]),
			)
		}
	}
	return raised, nil
}

// Since is the commit from which on changed lines are held to Columns. Those of before were, too, since 8c83943f54;
// this one gave a package another name, which touched wide lines everywhere.
const Since = "b678e9c5"

// Wide returns the lines over Columns that were added or changed since a commit, as FILE:LINE and their width. Without
// git, or where the history does not reach back to it, it returns why nothing could be compared.
func Wide(root, since string) (wide []string, err error) {
	diff, err := git(
		root,
		"diff",
		"--unified=0",
		"--no-ext-diff",
		"--no-color",
		"--src-prefix=a/",
		"--dst-prefix=b/",
		since,
		"--",
		"*.go",
	)
	if err != nil {
		return nil, err
	}
	var file string
	var line int
	generated := map[string]bool{}
	for _, text := range strings.Split(diff, "\n") {
		switch {
		case strings.HasPrefix(text, "+++ "):
			if file = strings.TrimPrefix(strings.TrimSuffix(text[4:], "\t"), "b/"); file != "/dev/null" {
				head, err := os.ReadFile(filepath.Join(root, file))
				if err != nil {
					return nil, err
				}
				generated[file] = generatedLine.Match(head[:min(len(head), 2000)])
			}
		case strings.HasPrefix(text, "@@ "):
			m := regexp.MustCompile(`\+(\d+)`).FindStringSubmatch(text)
			if m == nil {
				return nil, fmt.Errorf("git diff: %q names no line", text)
			}
			line, _ = strconv.Atoi(m[1])
		case strings.HasPrefix(text, "+"):
			if n := utf8.RuneCountInString(text) - 1; n > Columns && !generated[file] {
				wide = append(wide, fmt.Sprintf("%s:%d: %d columns, at most %d", file, line, n, Columns))
			}
			line++
		}
	}
	return wide, nil
}

func git(root string, args ...string) (string, error) {
	cmd := exec.Command("git", append([]string{"-c", "safe.directory=*", "-C", root}, args...)...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return string(out), nil
}
