package api

import (
	"fmt"
	"slices"
	"testing"
)

func TestTable(t *testing.T) {
	table := &Table{Epoch: 7, Members: []Member{{Incarnation: "a"}, {Incarnation: "b"}}}
	for b := range table.Owners {
		table.Owners[b] = uint16(b % 2)
	}
	table.Owners[4], table.Owners[6] = Nobody, 2 // of no member
	for b, want := range map[BucketID]Incarnation{0: "a", 1: "b", 4: "", 6: "", Buckets - 1: "b"} {
		if got := table.Owner(b); got != want {
			t.Errorf("bucket %d belongs to %q, want %q", b, got, want)
		}
	}
	if a, b, nobody := table.Owned("a"), table.Owned("b"), table.Owned(""); a != Buckets/2-2 || b != Buckets/2 || nobody != 2 {
		t.Errorf("a owns %d buckets, b %d, nobody %d", a, b, nobody)
	}
	if got, want := table.OwnerOf("team"), table.Owner(BucketOf("team")); got != want {
		t.Errorf("team belongs to %q, want %q", got, want)
	}
	if !table.Has("a") || !table.Has("b") || table.Has("c") || table.Has("") {
		t.Error("the members are a and b")
	}
	var none *Table
	if none.Has("a") || none.Owner(1) != "" || none.OwnerOf("team") != "" || none.Owned("a") != 0 {
		t.Error("without a table nobody owns anything")
	}
}

func TestValidateTable(t *testing.T) {
	for _, c := range []struct {
		what  string
		spoil func(*Table)
		valid bool
	}{
		{"as it is", func(*Table) {}, true},
		{"a bucket of nobody", func(t *Table) { t.Owners[9] = Nobody }, true},
		{"a bucket of the member after the last", func(t *Table) { t.Owners[9] = 2 }, false},
		{"a bucket that changed hands now", func(t *Table) { t.Changed[1023] = 7 }, true},
		{"a bucket that changed hands later", func(t *Table) { t.Changed[1023] = 8 }, false},
	} {
		table := &Table{Epoch: 7, Members: []Member{{Incarnation: "a"}, {Incarnation: "b"}}}
		table.Owners[1] = 1
		c.spoil(table)
		if err := table.Validate(); (err == nil) != c.valid {
			t.Errorf("%s: %v", c.what, err)
		}
	}
}

// Every bucket has a label of four digits, and keys fall into all of them.
func TestBuckets(t *testing.T) {
	for b, want := range map[BucketID]string{0: "0000", 9: "0009", 10: "0010", 100: "0100", 1023: "1023"} {
		if got := b.Label(); got != want {
			t.Errorf("bucket %d has the label %q", b, got)
		}
	}
	hit := map[BucketID]bool{}
	for i := range 20 * Buckets {
		hit[BucketOf(fmt.Sprint("queue-", i))] = true
	}
	for b := range hit {
		if b >= Buckets {
			t.Errorf("bucket %d of %d", b, Buckets)
		}
	}
	if len(hit) != Buckets {
		t.Errorf("keys fall into %d buckets", len(hit))
	}
}

// Gangs are ordered by priority, highest first, then by their first grant, then by UID.
func TestRanks(t *testing.T) {
	want := []Rank{{Priority: 9, Order: 5, Gang: "z"}, {Priority: 0, Order: 1, Gang: "y"}, {Priority: 0, Order: 2, Gang: "a"}, {Priority: 0, Order: 2, Gang: "b"}, {Priority: -3, Order: 0, Gang: "a"}}
	for i, a := range want {
		for j, b := range want {
			if c := a.Compare(b); c < 0 != (i < j) || c > 0 != (i > j) || a.Before(b) != (i < j) {
				t.Errorf("%+v against %+v: %d", a, b, c)
			}
		}
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	if slices.SortFunc(got, Rank.Compare); !slices.Equal(got, want) {
		t.Errorf("sorted: %+v", got)
	}
}
