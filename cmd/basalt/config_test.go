package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"basalt.dev/basalt/api/config"
)

// run runs the program with arguments, and returns what it prints.
func run(args ...string) (string, error) {
	root := rootCommand()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetErr(&out)
	root.SetArgs(args)
	err := root.Execute()
	return out.String(), err
}

func TestConfigCommand(t *testing.T) {
	defaults, err := run("config", "defaults")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "basalt.yaml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(defaults)
	if out, err := run("config", "check", file); err != nil || out != defaults {
		t.Errorf("the defaults are not valid, or others: %v\n%s", err, out)
	}
	write(strings.Replace(defaults, "placement", "placment", 1))
	if _, err := run("config", "check", file); err == nil || !strings.Contains(err.Error(), "did you mean placement?") || !strings.Contains(err.Error(), file) {
		t.Errorf("a mistyped field: %v", err)
	}
	if _, err := run("shard", "--config", file, "--etcd=e:1"); err == nil || !strings.Contains(err.Error(), "--config: configuration "+file) {
		t.Errorf("a shard starts with a mistyped field: %v", err)
	}
	bad := "nodeTiers:\n- {name: a, pods: \"'gpu' in request\", nodes: \"0\"}"
	write(strings.Replace(defaults, "nodeTiers: []", bad, 1))
	const says = `nodeTiers[0].pods: column 10: undeclared reference to 'request'; did you mean requests?, ` +
		`in "'gpu' in request"`
	for _, args := range [][]string{
		{"config", "check", file}, {"shard", "--config", file, "--etcd=e:1"},
		{"coordinator", "--config", file, "--etcd=e:1"},
	} {
		if _, err := run(args...); err == nil || !strings.Contains(err.Error(), "configuration "+file+": "+says) {
			t.Errorf("%s: an expression that does not compile: %v", args[0], err)
		}
	}
	if page, err := os.ReadFile("../../deploy/docs/config.md"); err != nil || !strings.Contains(string(page), says) {
		t.Errorf("the page does not say %s: %v", says, err)
	}
	if _, err := run("config", "check", "nowhere"); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("a file that does not exist: %v", err)
	}
}

// A flag that is given wins over the file, and one that is not leaves it as it is.
func TestFlagsWin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "basalt.yaml")
	text := "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\nplacement: spread\nvolcano: observe\nlog: {level: warn, format: json}\nschedulerNames: [basalt, a]\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var c common
	cmd := &cobra.Command{}
	c.register(cmd)
	registerShard(cmd)
	if err := cmd.ParseFlags([]string{"--config", file, "--volcano=write", "--ignored-resources=x/y", "--otlp=c:1", "--pod-events"}); err != nil {
		t.Fatal(err)
	}
	if err := c.configure(cmd); err != nil {
		t.Fatal(err)
	}
	want := config.Default()
	want.Placement, want.Volcano, want.Log, want.OTLP, want.PodEvents = "spread", "write", config.Log{Level: "warn", Format: "json"}, "c:1", true
	want.SchedulerNames, want.IgnoredResources = []string{"basalt", "a"}, []string{"x/y"}
	if got := string(c.config.YAML()); got != string(want.YAML()) {
		t.Errorf("in force is\n%s, not\n%s", got, want.YAML())
	}
	if c.level.Level().String() != "WARN" {
		t.Errorf("the level is %s", c.level.Level())
	}
	if got := string(c.inForce()); got != string(want.YAML()) {
		t.Errorf("in force is said to be\n%s, not\n%s", got, want.YAML())
	}
	for flag, field := range fieldOf { // a flag and a field that there are
		text := "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\n" + map[bool]string{true: "log: {level: x}", false: field + ": {}"}[field == "log.level"]
		if _, err := config.Parse([]byte(text)); cmd.Flags().Lookup(flag) == nil || err == nil || strings.Contains(err.Error(), "there is no such field") {
			t.Errorf("--%s wins over %s: %v", flag, field, err)
		}
	}
}
