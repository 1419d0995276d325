package script

import (
	"fmt"
	"strings"
	"testing"
)

// Each row of the table is printed as its code with its values, whatever is around it, and no row hides another.
func TestSentences(t *testing.T) {
	examples := strings.NewReplacer("{n}", "12.5Gi", "{q}", `"a.b"`, "{w}", "ns/g", "{s}", "one or more")
	for _, s := range sentences {
		want := s.code
		var args []string
		for _, v := range value.FindAllString(s.words, -1) {
			args = append(args, strings.Trim(examples.Replace(v), `"`))
		}
		if len(args) > 0 {
			want += "(" + strings.Join(args, ", ") + ")"
		}
		for _, around := range []string{"%s", "1s status False Pending: %s; more", "Reason: %s: %[1]s"} {
			c := newCoder("/x/" + s.pkg)
			line := fmt.Sprintf(around, examples.Replace(s.words))
			if got := c.line("x.txt", line); got != strings.ReplaceAll(line, examples.Replace(s.words), want) {
				t.Errorf("%s: %q is printed as %q", s.code, line, got)
			}
			if !c.seen[s.words] || c.pkg != s.pkg {
				t.Errorf("%s: %q is not seen", s.code, s.words)
			}
		}
	}
}

// A row that no script prints is a problem, and a sentence without a row that many print; names of fields are none.
func TestProblems(t *testing.T) {
	c := newCoder("/x/shard/node")
	for n := range mostScripts + 1 {
		c.line(fmt.Sprint(n), "log INFO the pods of it are new and old")
		c.line(fmt.Sprint(n), "Reserve started ranked preemptible claims least")
	}
	found := strings.Join(c.problems(), "\n")
	if !strings.Contains(found, "the pods of it are new and old") || strings.Contains(found, "ranked") ||
		!strings.Contains(found, "out-of-sync") {
		t.Error(found)
	}
}
