package protocol

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"basalt.dev/basalt/api"
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

// The next page begins behind the last key, and has as many keys as the bytes of this one let expect, of keys and
// values.
func TestPagesOfAScan(t *testing.T) {
	large := make([]byte, 1<<20)
	for _, c := range []struct {
		key   string
		value []byte
		limit int64
	}{{"p/%02d", nil, 128}, {"p/%02d", large, 7}, {"p/%02d" + string(large), nil, 7}} {
		read := 0
		s := &scan{corrupt: &[]Corrupt{}, kinds: []kind{{prefix: "p/", buckets: everything, most: 1000,
			each: func(KV) error { read++; return nil }}}}
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

// A scan of buckets finds every key that is theirs and no other, whatever the keys are, and has etcd count no more
// than a small multiple of them.
func TestScanOfBuckets(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var keys []string
		few := 1 + rng.IntN(api.Buckets) // buckets that have keys
		for range rng.IntN(1 << rng.IntN(15)) {
			b := api.BucketID(rng.IntN(few))
			key := "r/" + b.Label() + fmt.Sprintf("/%x", rng.Uint32())
			if rng.IntN(50) == 0 { // somebody else's
				key = key[:2+rng.IntN(len(key)-2)]
			}
			keys = append(keys, key)
		}
		slices.Sort(keys)
		keys = slices.Compact(keys)
		own := everything
		if rng.IntN(3) > 0 {
			one := 1 << rng.IntN(11) // of so many
			own = nil
			for _, b := range everything {
				if rng.IntN(one) == 0 {
					own = append(own, b)
				}
			}
			if len(own) == 0 {
				own = []api.BucketID{api.BucketID(rng.IntN(api.Buckets))}
			}
		}
		k := kind{prefix: "r/", buckets: own, most: int64(1 + rng.IntN(1000))}
		var want []string
		for _, key := range keys {
			of := sort.Search(api.Buckets-1, func(b int) bool { return key < "r/"+api.BucketID(b+1).Label() })
			if _, is := slices.BinarySearch(own, api.BucketID(of)); is {
				want = append(want, key)
			}
		}
		if len(own) == api.Buckets && len(want) != len(keys) {
			t.Fatalf("%d of %d keys belong to a bucket", len(want), len(keys))
		}
		var got []string
		pages, counted := 0, 0
		k.each = func(kv KV) error { got = append(got, kv.Key); return nil }
		s := &scan{corrupt: &[]Corrupt{}, kinds: []kind{k, {prefix: "x/", buckets: everything, most: 10, each: k.each}}}
		for {
			txn, more := s.next()
			if !more {
				break
			}
			o := txn.Then[0]
			if o.Key >= o.End {
				t.Fatalf("a range from %q to %q", o.Key, o.End)
			}
			from, to := sort.SearchStrings(keys, o.Key), sort.SearchStrings(keys, o.End)
			pages, counted = pages+1, counted+to-from
			page := Read{More: int64(to-from) > o.Limit}
			for _, key := range keys[from:min(to, from+int(o.Limit))] {
				page.Keys = append(page.Keys, KV{Key: key})
			}
			s.answered(Result{Succeeded: true, Revision: 1, Reads: []Read{page}})
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d keys, %d buckets: %d keys were read, want %d", len(keys), len(own), len(got), len(want))
		}
		// Each key is counted once for each page that its cell needs at the most.
		fits := int(k.most)
		largest := 0
		in := map[int]int{}
		for _, key := range keys {
			in[k.find(key)]++
			largest = max(largest, in[k.find(key)])
		}
		t.Logf("%5d keys in %4d buckets, %4d read, pages of %4d, %5d in one cell: %4d pages, counted %.1f times",
			len(keys), few, len(own), k.most, largest, pages, float64(counted)/float64(max(1, len(keys))))
		if most := len(keys) * (3 + largest/fits); counted > most {
			t.Errorf("%d keys were counted %d times, at most %d were expected", len(keys), counted, most)
		}
	}
}
