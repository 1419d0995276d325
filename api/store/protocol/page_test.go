package protocol

import (
	"fmt"
	"testing"
)

// A page of small records grows to the most; one of the largest records shrinks to what has about pageBytes.
func TestNextPage(t *testing.T) {
	for _, c := range []struct {
		what  string
		size  int // bytes of a record
		most  int64
		pages []int64
	}{
		{"small", 500, 1000, []int64{32, 128, 512, 1000, 1000}},
		{"few", 500, 100, []int64{32, 100, 100}},
		{"large", 1 << 20, 1000, []int64{32, 8, 8}},
		{"larger than a page", 10 << 20, 1000, []int64{32, 1, 1}},
		{"64 KiB", 64 << 10, 1000, []int64{32, 128, 128}},
	} {
		limit := min(c.most, firstPage)
		for i, want := range c.pages {
			if limit != want {
				t.Fatalf("%s: page %d has %d keys, want %d", c.what, i, limit, want)
			}
			limit = nextPage(limit, c.most, int(limit)*c.size)
		}
	}
}

// The next page begins behind the last key, and has as many keys as the bytes of this one let expect, of keys and values.
func TestPagesOfAScan(t *testing.T) {
	large := make([]byte, 1<<20)
	for _, c := range []struct {
		key   string
		value []byte
		limit int64
	}{{"p/%02d", nil, 128}, {"p/%02d", large, 7}, {"p/%02d" + string(large), nil, 7}} {
		read := 0
		s := &scan{corrupt: &[]Corrupt{}, kinds: []kind{{prefix: "p/", most: 1000, each: func(KV) error { read++; return nil }}}}
		first, _ := s.next()
		page := Read{More: true}
		for i := range first.Then[0].Limit {
			page.Keys = append(page.Keys, KV{Key: fmt.Sprintf(c.key, i), Value: Value{Bytes: c.value}})
		}
		s.answered(Result{Succeeded: true, Revision: 9, Reads: []Read{page}})
		next, more := s.next()
		want := Op{Kind: Get, Key: fmt.Sprintf(c.key, 31) + "\x00", End: "p0", Revision: 9, Limit: c.limit}
		if got := next.Then[0]; !more || read != 32 || got.Key != want.Key || got.End != want.End || got.Revision != want.Revision || got.Limit != want.Limit {
			t.Errorf("keys of %d and values of %d bytes: %d were read, then %d keys from one of %d bytes to %q at %d", len(c.key), len(c.value), read, got.Limit, len(got.Key), got.End, got.Revision)
		}
		s.answered(Result{Succeeded: true, Revision: 10, Reads: []Read{{}}})
		if _, more := s.next(); more {
			t.Error("it goes on after the last page")
		}
	}
}
