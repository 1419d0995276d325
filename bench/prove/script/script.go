// Package script runs the cores' tests that read like conversations: testdata/*.txt, in the manner of etcd-io/raft's. A
// line that starts at the margin is a command, the lines indented below it are what the core put out, # begins a comment.
// Sentences for people are printed by code: sentences.txt has them, and nothing else changes with their words.
// With -rewrite the outputs are rewritten, and a person reviews the difference.
package script

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the outputs in testdata/*.txt")

// Player carries out one command and returns what came of it, a line each. where names the script and the line.
type Player func(where, command string) []string

// Run runs every script of the package's testdata, each with a player of its own.
func Run(t *testing.T, start func(*testing.T) Player) {
	t.Helper()
	RunIn(t, "testdata", start)
}

// RunIn runs every script of a folder.
func RunIn(t *testing.T, dir string, start func(*testing.T) Player) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	codes, played := newCoder(wd), 0
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := play(t, file, string(text), start, codes)
			played++
			if *rewrite {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(text) {
				t.Errorf("%s differs; run go test . -rewrite and look at the difference. Now:\n%s", file, got)
			}
		})
	}
	if played == len(files) {
		for _, problem := range codes.problems() {
			t.Error(problem)
		}
	}
}

// play carries out the commands of a script and returns it with what comes of each.
func play(t *testing.T, file, text string, start func(*testing.T) Player, codes *coder) string {
	play := start(t)
	var got strings.Builder
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if strings.HasPrefix(line, "  ") {
			continue
		}
		got.WriteString(line + "\n")
		if line == "" || line[0] == '#' {
			continue
		}
		for _, out := range play(fmt.Sprintf("%s:%d", file, i+1), line) {
			got.WriteString("  " + codes.line(file, out) + "\n")
		}
	}
	return got.String()
}

// Sees fails unless a script of testdata comes out as its file has it, and in another way with a seeded bug (package
// api/fault) switched on by set. For builds with the tag faults.
func Sees(t *testing.T, name string, start func(*testing.T) Player, set func(on bool)) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	wd, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	if play(t, file, string(text), start, newCoder(wd)) != string(text) {
		t.Errorf("%s differs without the bug, too", file)
	}
	set(true)
	defer set(false)
	if play(t, file, string(text), start, newCoder(wd)) == string(text) {
		t.Errorf("%s comes out the same with the bug", file)
	}
}

// Joins are what the pods of a class require of those around them, by words KEY:APP: a spread of the pods of an app over a label, with a
// maxSkew of 1 (KEY:APP:MIN with minDomains), and a domain of a label with such pods. None without a colon.
func Joins(namespace, spread, beside string) []byte {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace}, Spec: v1.PodSpec{SchedulerName: api.SchedulerName}}
	if key, app, ok := strings.Cut(spread, ":"); ok {
		app, least, bounded := strings.Cut(app, ":")
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: 1, TopologyKey: key, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}
		if n, err := strconv.ParseInt(least, 10, 32); bounded && err == nil {
			p.Spec.TopologySpreadConstraints[0].MinDomains = new(int32(n))
		}
	}
	if key, app, ok := strings.Cut(beside, ":"); ok {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{
			{TopologyKey: key, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}}}}}
	}
	return api.FromPod(p, nil, api.Rules{}).Class.Joins
}
