package deploy_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the hints of values.schema.json anew")

// A JSON schema says where an unknown name is, and not which was meant. So names that begin like those of an object have a schema of their
// own there, which nothing satisfies but the hint that Helm then prints. After a change of names: go test ./deploy -run TestChartSchema -update
func TestChartSchemaHints(t *testing.T) {
	const file = "chart/values.schema.json"
	text := string(must[[]byte](t)(os.ReadFile(file)))
	object := regexp.MustCompile(`(?m)^( *)"additionalProperties": false,\n(?: *"patternProperties": .*\n)?`)
	want, end := "", 0
	for _, at := range object.FindAllStringSubmatchIndex(text, -1) {
		var properties map[string]json.RawMessage
		from := at[1] + strings.Index(text[at[1]:], `"properties": `) + len(`"properties": `)
		if err := json.NewDecoder(strings.NewReader(text[from:])).Decode(&properties); err != nil {
			t.Fatal(err)
		}
		indent := text[at[2]:at[3]]
		checkHints(t, slices.Sorted(maps.Keys(properties)))
		want += text[end:at[0]] + indent + `"additionalProperties": false,` + "\n"
		if h := hints(slices.Sorted(maps.Keys(properties))); len(h) > 0 {
			want += indent + `"patternProperties": ` + string(must[[]byte](t)(json.Marshal(h))) + ",\n"
		}
		end = at[1]
	}
	want += text[end:]
	if n := strings.Count(text, `"additionalProperties": false`); n < 15 || n != len(object.FindAllString(text, -1)) {
		t.Errorf("%d objects are closed", n)
	}
	if want == text {
		return
	}
	if !*update {
		t.Fatalf("the hints in %s are not those of its names: run this test with -update", file)
	}
	if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
		t.Fatal(err)
	}
}

// hintsAtMost is how many names a hint has at most.
const hintsAtMost = 3

// hints returns, by pattern, what to say of a name that is none of these: those that it has the longest beginning in
// common with, of one letter at least where there are more than hintsAtMost, if these are not too many. No pattern
// matches one of the names. What it says continues Helm's words, which are "value must be".
func hints(names []string) map[string]any {
	out := map[string]any{}
	under := func(prefix string) (n int) {
		for _, name := range names {
			if strings.HasPrefix(name, prefix) {
				n++
			}
		}
		return n
	}
	var rest func(prefix string) string
	begin := func(prefix string) {
		pattern, meant := "^"+regexp.QuoteMeta(prefix)+rest(prefix), slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, prefix) })
		if len(meant) <= hintsAtMost {
			hint := fmt.Sprintf("removed or renamed: did you mean %s?", strings.Join(meant, " or "))
			out[pattern] = map[string]any{"const": hint}
		}
	}
	next := func(prefix string) string {
		set := map[string]bool{}
		for _, name := range names {
			if strings.HasPrefix(name, prefix) && len(name) > len(prefix) {
				set[name[len(prefix):len(prefix)+1]] = true
			}
		}
		return strings.Join(slices.Sorted(maps.Keys(set)), "")
	}
	// rest is what follows a beginning in a name that leaves the same names possible.
	rest = func(prefix string) string {
		var ways []string
		letters := next(prefix)
		if !slices.Contains(names, prefix) {
			ways = append(ways, "$")
		}
		if letters == "" {
			ways = append(ways, ".")
		} else {
			ways = append(ways, "[^"+letters+"]")
		}
		for _, letter := range strings.Split(letters, "") {
			if longer := prefix + letter; under(longer) < under(prefix) {
				begin(longer)
			} else if letter != "" {
				ways = append(ways, letter+rest(longer))
			}
		}
		if len(ways) == 1 {
			return ways[0]
		}
		return "(" + strings.Join(ways, "|") + ")"
	}
	if len(names) <= hintsAtMost {
		begin("")
		return out
	}
	for _, letter := range strings.Split(next(""), "") {
		begin(letter)
	}
	return out
}

// checkHints tries the names, and what a finger makes of them.
func checkHints(t *testing.T, names []string) {
	t.Helper()
	said := func(name string) (out []string) {
		for pattern, schema := range hints(names) {
			if regexp.MustCompile(pattern).MatchString(name) {
				out = append(out, fmt.Sprint(schema))
			}
		}
		return out
	}
	for _, name := range names {
		if got := said(name); len(got) > 0 {
			t.Errorf("%s is a name, and the hint is %q", name, got)
		}
		typos := []string{name + "s", name + "Count"}
		from, alike := 0, slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n[0] != name[0] })
		switch {
		case len(alike) > hintsAtMost:
			from = 2
		case len(names) > hintsAtMost:
			from = 1
		}
		for i := from; i < len(name); i++ {
			typos = append(typos, name[:i]+name[i+1:], name[:i]+"x"+name[i:], name[:i]+"x"+name[i+1:])
		}
		for _, typo := range typos {
			if got := said(typo); !slices.Contains(names, typo) && (len(got) != 1 || !strings.Contains(got[0], "did you mean ")) {
				t.Errorf("of %s is said %q", typo, got)
			}
		}
	}
}
