package protocol

import "testing"

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
