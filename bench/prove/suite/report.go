package suite

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// shown is how many packages and tests the table of times has.
	shown = 10
	// long is from when on a new test has to say in its comment why it takes so long.
	long = 20 * time.Second
)

// old lists the tests that took longer when that rule came.
//
//go:embed long.txt
var old string

// event is a line of `go test -json`, see `go doc test2json`.
type event struct {
	Action, Package, Test, Output string
	ImportPath                    string // with build-output
	Elapsed                       float64
	Key, Value                    string // with attr
}

// report collects the events of several runs of `go test`.
type report struct {
	mu       sync.Mutex
	out      io.Writer
	began    time.Time
	output   map[string][]string // by package and test, of what has not ended
	failing  map[string]bool     // tests that failed, by package and test
	packages []timed
	tests    []timed
	counts   map[string]int // tests by how they ended, subtests included
	broken   int            // packages that failed
	notes    []string       // what tests said of themselves: drawn seeds
}

// timed is a package or a test that has ended.
type timed struct {
	pkg, test string
	took      time.Duration
}

func newReport(out io.Writer) *report {
	return &report{
		out:     out,
		began:   time.Now(),
		output:  map[string][]string{},
		failing: map[string]bool{},
		counts:  map[string]int{},
	}
}

// line takes one line that `go test -json` printed. Lines that are no event are shown as they are.
func (r *report) line(text []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var e event
	if err := json.Unmarshal(text, &e); err != nil || e.Action == "" {
		fmt.Fprintf(r.out, "%s", text)
		return
	}
	of := e.Package + " " + e.Test
	took := time.Duration(e.Elapsed * float64(time.Second))
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output[of] = append(r.output[of], e.Output)
	case "attr":
		r.notes = append(r.notes, fmt.Sprintf("%s %s: %s %s", short(e.Package), e.Test, e.Key, e.Value))
	case "pass", "fail", "skip":
		if e.Test == "" {
			r.packageEnds(e.Package, e.Action, took)
			return
		}
		r.counts[e.Action]++
		if !strings.Contains(e.Test, "/") {
			r.tests = append(r.tests, timed{e.Package, e.Test, took})
		}
		if e.Action == "fail" {
			r.failing[of] = true
		} else {
			delete(r.output, of)
		}
	}
}

// packageEnds prints what a package said at its end, and if it failed what its failed tests said, those too that had
// not ended.
func (r *report) packageEnds(pkg, how string, took time.Duration) {
	r.packages = append(r.packages, timed{pkg: pkg, took: took})
	if how == "fail" {
		r.broken++
	}
	for _, of := range slices.Sorted(maps.Keys(r.output)) {
		of, test, _ := strings.Cut(of, " ")
		if of != pkg {
			continue
		}
		said := r.output[of+" "+test]
		delete(r.output, of+" "+test)
		if test == "" {
			defer func() { // last, as go test has it
				for _, line := range said {
					if how == "fail" || line != "PASS\n" && !strings.HasPrefix(line, "=== ") {
						fmt.Fprint(r.out, line)
					}
				}
			}()
		} else if how == "fail" {
			for _, line := range said {
				fmt.Fprint(r.out, line)
			}
		}
	}
}

// print writes the table of times and the sums.
func (r *report) print(comments map[string]string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	table := func(what string, all []timed) {
		slices.SortStableFunc(all, func(a, b timed) int { return cmp.Compare(b.took, a.took) })
		fmt.Fprintf(r.out, "\nslowest %s\n", what)
		for _, t := range all[:min(len(all), shown)] {
			fmt.Fprintf(r.out, "  %7.1f s  %s %s\n", t.took.Seconds(), short(t.pkg), t.test)
		}
	}
	table("packages", r.packages)
	table("tests", r.tests)
	for _, t := range r.tests {
		name := short(t.pkg) + " " + t.test
		comment, known := comments[t.pkg+" "+t.test]
		if t.took > long && known && !strings.Contains(comment, "It takes ") && !strings.Contains(old, name+"\n") {
			fmt.Fprintf(r.out, "%s is new and took %.0f s, and its comment does not say why (\"It takes ...\")\n",
				name, t.took.Seconds())
		}
	}
	if len(r.notes) > 0 {
		slices.Sort(r.notes)
		fmt.Fprintf(r.out, "\ndrawn by the date\n  %s\n", strings.Join(r.notes, "\n  "))
	}
	fmt.Fprintf(
		r.out,
		"\n%d packages in %s, %d of them failed\n%d passed, %d failed, %d skipped\n",
		len(
			r.packages,
		),
		time.Since(r.began).Round(time.Second),
		r.broken,
		r.counts["pass"],
		r.counts["fail"],
		r.counts["skip"],
	)
}

// verdict is an error unless everything passed, and something did.
func (r *report) verdict() error {
	switch {
	case r.broken > 0 || r.counts["fail"] > 0:
		return fmt.Errorf("%d packages failed", r.broken)
	case r.counts["pass"] == 0:
		return errors.New("no test was run")
	}
	return nil
}

func short(pkg string) string { return strings.TrimPrefix(pkg, module) }
