package home

import (
	"testing"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/home/intake"
)

// Refusals of the same words are added up, in the order of the words; words without a number are kept once.
func TestMergeWords(t *testing.T) {
	for _, test := range []struct {
		refused []string
		want    string
	}{
		{nil, ""},
		{[]string{""}, ""},
		{[]string{"2 insufficient cpu, 3 node(s) had untolerated taint", "5 insufficient cpu"}, "7 insufficient cpu, 3 node(s) had untolerated taint"},
		{[]string{"no nodes", "no nodes", "", "1 insufficient cpu"}, "1 insufficient cpu, no nodes"},
		{[]string{"12", "x 1", "-1 y"}, "12, x 1, y"},
		{[]string{"0 z"}, "z"},
	} {
		if got := mergeWords(test.refused); got != test.want {
			t.Errorf("%q: %q, want %q", test.refused, got, test.want)
		}
	}
}

// podOf returns a pod that no gang knows.
func podOf(p *api.Pod) *pod { return &pod{Entry: &intake.Entry{Pod: p}} }
