package report

import "testing"

func TestNoDomain(t *testing.T) {
	for _, o := range []struct {
		in         []string
		pods, most int
		want       string
	}{
		{nil, 3, 2, "no domain of rack has room for 3 pods: the one with the most has room for 2"},
		{nil, 3, 0, "no domain of rack has room for any of 3 pods"},
		{nil, 3, 3, "no domain of rack has room for 3 pods together"},
		{[]string{"r1"}, 2, 1, "the gang is in rack=r1, which has room for 1 of 2 pods"},
		{[]string{"r1"}, 2, 2, "the gang is in rack=r1, which has no room for 2 pods together"},
		{[]string{""}, 1, 0, "the gang is in rack=, which has room for 0 of 1 pod"},
	} {
		if got := NoDomain("rack", o.in, o.pods, o.most, false).Message; got != o.want {
			t.Errorf("%q, want %q", got, o.want)
		}
	}
}

func TestNoSlices(t *testing.T) {
	for _, o := range []struct {
		s    Slices
		want string
	}{
		{Slices{Key: "clique", Size: 2, Outer: "block", Slices: 2, Put: 1}, "no domain of block has room for 2 slices of 2 pods, each in one domain of clique: the one with the most has room for 1"},
		{Slices{Key: "clique", Size: 2, Outer: "block", Decided: true, Slices: 2, Put: 1}, "the gang is in block=, which has room for 1 of 2 slices of 2 pods, each in one domain of clique"},
		{Slices{Key: "clique", Size: 2, Slices: 2, Put: 2}, "there is no room together for 2 slices of 2 pods, each in one domain of clique"},
		{Slices{Key: "clique", Size: 2, Lacking: 1}, "a slice of the gang is in clique=, and there is no room for 1 pod that slices lack"},
	} {
		if got := NoSlices(o.s).Message; got != o.want {
			t.Errorf("%q, want %q", got, o.want)
		}
	}
}
