package config

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

const head = "apiVersion: " + APIVersion + "\nkind: " + Kind + "\n"

// classes is a file with some elements of nodeTiers.
func classes(of ...string) string {
	return head + "nodeTiers:\n- " + strings.Join(of, "\n- ") + "\n"
}

// What is wrong in a file is named with its path, with the nearest right name, and all of it at once.
func TestParse(t *testing.T) {
	for _, c := range []struct{ what, text, want string }{
		{"nothing but its kind", head, ""},
		{"everything", head + "log: {level: debug, format: json}\notlp: c:4317\nvolcano: write\nschedulerNames: [basalt, volcano]\nplacement: spread\nignoredResources: [example.com/x]\ntopologyLevels: [zone, rack]\npodEvents: true\n", ""},
		{"empty", " \n", "it is empty"},
		{"no YAML", head + "a: [", "yaml: "},
		{"a list", "- a", "cannot unmarshal"},
		{"another version", "apiVersion: config.basalt.dev/v9\nkind: Configuration\n", `apiVersion is "config.basalt.dev/v9": this program reads config.basalt.dev/v1alpha1`},
		{"no version", "kind: Configuration\n", `apiVersion is ""`},
		{"another kind", "apiVersion: " + APIVersion + "\nkind: Queue\n", `kind is "Queue", not Configuration`},
		{"a mistyped field", head + "placment: pack\n", "placment: there is no such field; did you mean placement?"},
		{"a field in another case", head + "podevents: true\n", "podevents: there is no such field; did you mean podEvents?"},
		{"a mistyped field inside", head + "log: {levle: info}\n", "log.levle: there is no such field; did you mean log.level?"},
		{"a field like none", head + "quota: 1\n", "quota: there is no such field"},
		{"a mistyped value", head + "placement: sperad\n", `placement is "sperad": one of pack, spread, least-allocated, most-allocated; did you mean spread?`},
		{"YAML's own off", head + "volcano: off\n", ""},
		{"YAML's own on", head + "volcano: on\n", `volcano is "true": one of off, observe, write`},
		{"fields for a switch", head + "podEvents: {a: b}\n", "podEvents is a map of fields: true or false is expected"},
		{"a text for a switch", head + "imageLocality: \"true\"\n", "imageLocality is a text: true or false is expected"},
		{"a text for a list", head + "schedulerNames: basalt\n", "schedulerNames is a text: a list is expected"},
		{"a field twice", head + "otlp: a\notlp: b\n", `key "otlp" already set`},
		{"a name that no pod has", head + "schedulerNames: [basalt, 'A b']\n", `schedulerNames[1] is "A b"`},
		{"no names", head + "schedulerNames: []\n", "schedulerNames is empty"},
		{"a resource that is none", head + "ignoredResources: ['a b']\n", `ignoredResources[0] is "a b"`},
		{"a level that is none", head + "topologyLevels: ['a b']\n", `topologyLevels[0] is "a b", which is no name of a label`},
		{"a level twice", head + "topologyLevels: [zone, rack, zone]\n", `topologyLevels[2] is "zone", which is there before`},
		{"too many levels", head + "topologyLevels: [a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q]\n", "topologyLevels has 17 labels: at most 16"},
		{"classes", classes("{name: a, pods: 'true', nodes: '0'}") + "- name: b\n  pods: |\n" +
			"    !('example.com/gpu' in requests) && priority < 5\n" +
			"  nodes: '\"spot\" in labels ? 0 : taints.exists(t, t.key == \"x\") ? 3 : 1'\n", ""},
		{"a mistyped field of a class", classes("{name: a, pod: 'true', nodes: '0'}"),
			"nodeTiers[0].pod: there is no such field; did you mean nodeTiers[0].pods?"},
		{"an expression that is none", classes("{name: a, pods: 'true', nodes: '0'}", "{name: b, pods: 'a[', nodes: '0'}"),
			"nodeTiers[1].pods: column "},
		{"a name of a class twice", classes("{name: a, pods: 'true', nodes: '0'}", "{name: a, pods: 'true', nodes: '1'}"),
			`nodeTiers[1].name is "a", which is there before`},
		{"a class that is a text", classes("gpu"), "nodeTiers is a text: a map of fields is expected"},
		{"YAML's own values for expressions", classes("{name: a, pods: true, nodes: 0}"), ""},
		{"a list for an expression", classes("{name: a, pods: [], nodes: 0}"),
			"nodeTiers.pods is a list: a text is expected"},
		{"two mistakes", head + "placment: pack\nlog: {formt: json}\n", "log.formt: there is no such field; did you mean log.format?\nplacment: there is no such field"},
	} {
		_, err := Parse([]byte(c.text))
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.what, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v, want %q", c.what, err, c.want)
		}
	}
}

// What YAML prints is a file, and Default is what a file without fields says.
func TestYAML(t *testing.T) {
	c, err := Parse([]byte(head))
	if err != nil || !reflect.DeepEqual(c, Default()) {
		t.Errorf("%v: %+v", err, c)
	}
	c.Log.Level, c.PodEvents, c.SchedulerNames = "warn", true, []string{"a", "b"}
	again, err := Parse(c.YAML())
	if err != nil || !reflect.DeepEqual(c, again) {
		t.Errorf("%v: %+v becomes %+v", err, c, again)
	}
	if got := strings.Join(changed(Default(), c), " "); got != "log.level schedulerNames podEvents" {
		t.Errorf("changed: %s", got)
	}
}

// The level of the log follows the file; other changes are named; an invalid file changes nothing and is named once.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "basalt.yaml")
		write := func(text string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(head+text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * rereadEvery)
			synctest.Wait()
		}
		var out bytes.Buffer
		var level slog.LevelVar
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		live := Live{"log.level": func(c Configuration) any { level.Set(c.SlogLevel()); return c.Log.Level }}
		go Follow(ctx, file, Default(), live, map[string]bool{"otlp": true}, slog.New(slog.NewTextHandler(&out, nil)))
		expect := func(want slog.Level, words ...string) {
			t.Helper()
			if level.Level() != want {
				t.Errorf("the level is %s, not %s", level.Level(), want)
			}
			for _, w := range words {
				if n := strings.Count(out.String(), w); n != 1 {
					t.Errorf("%q is in the log %d times:\n%s", w, n, out.String())
				}
			}
			out.Reset()
		}
		write("log: {level: debug}\n")
		expect(slog.LevelDebug, "field=log.level value=debug")
		write("log: {level: debug}\nplacement: spread\n")
		expect(slog.LevelDebug, "takes effect at the next start\" field=placement")
		write("log: {level: debug}\nplacement: spread\notlp: a:1\n")
		expect(slog.LevelDebug, "overridden by a flag\" field=otlp")
		write("log: {lvel: debug}\n")
		expect(slog.LevelDebug, "keeping the previous one")
		write("log: {level: error}\nplacement: spread\notlp: a:1\n")
		expect(slog.LevelError, "field=log.level value=error")
	})
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(head + "log: {level: debug}\n"))
	f.Add([]byte("a: [b"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if c, err := Parse(text); err == nil {
			if again, err := Parse(c.YAML()); err != nil || !reflect.DeepEqual(c, again) {
				t.Errorf("%q: %v", text, err)
			}
		}
	})
}

// The page for operators shows a file with the defaults.
func TestPage(t *testing.T) {
	page, err := os.ReadFile("../../deploy/docs/config.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(page), "```yaml\n")
	text, _, _ = strings.Cut(text, "```")
	c, err := Parse([]byte(text))
	if err != nil || !reflect.DeepEqual(c, Default()) {
		t.Errorf("%v: the page shows %+v", err, c)
	}
	for _, line := range strings.Split(strings.TrimSpace(string(Default().YAML())), "\n") {
		if name, _, field := strings.Cut(strings.TrimSpace(line), ":"); field && !strings.Contains(text, name+":") {
			t.Errorf("the page does not show %s", name)
		}
	}
}
