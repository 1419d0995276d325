package protocol

import (
	"slices"
	"sort"

	"basalt.dev/basalt/api"
)

// scan reads all keys of some kinds at one revision, page by page.
//
// For each page etcd counts all keys of the range that is asked for, also those that do not fit into the page. So
// pages over one range of everything cost the square of what there is. Keys are asked for in ranges of some cells:
// after a range that was more than a page, of as many as the next page is expected to hold, and of twice as many
// after one that was less than half a page. A small store is read in one range, and each key of a large one is
// counted a few times, whatever its size.
type scan struct {
	kinds    []kind
	revision int64 // 0: the store's newest, until the first answer
	corrupt  *[]Corrupt

	// Of the first kind.
	limit  int64  // of the next page; 0 before the first
	cell   int    // the next page begins with it, or in it if from is set
	from   string // where the next page begins
	stride int    // cells in a range
}

// kind is either the keys of some buckets with a prefix, or one key.
type kind struct {
	prefix, key string
	buckets     []api.BucketID // sorted
	most        int64          // keys in a page, of a prefix
	each        func(KV) error
}

// Every key with a prefix belongs to a cell: reservations to one of their bucket, by the first digit of the UID. What
// is no reservation, or has no bucket, belongs to the last cell that does not begin behind it.
const (
	cellsOfBucket = 16
	cells         = api.Buckets * cellsOfBucket
)

// everything is for who reads all keys with a prefix.
var everything = func() (all []api.BucketID) {
	for b := range api.BucketID(api.Buckets) {
		all = append(all, b)
	}
	return all
}()

// begin returns where the keys of a cell begin.
func (k *kind) begin(cell int) string {
	bucket := api.BucketID(cell / cellsOfBucket)
	switch digit := cell % cellsOfBucket; {
	case cell == 0:
		return k.prefix
	case cell == cells:
		return prefixEnd(k.prefix)
	case digit == 0:
		return k.prefix + bucket.Label()
	default:
		return k.prefix + bucket.Label() + "/" + "0123456789abcdef"[digit:digit+1]
	}
}

// own returns the first cell of the buckets from a given one on; cells for none.
func (k *kind) own(cell int) int {
	i, is := slices.BinarySearch(k.buckets, api.BucketID(cell/cellsOfBucket))
	switch {
	case is:
		return cell
	case i < len(k.buckets):
		return int(k.buckets[i]) * cellsOfBucket
	}
	return cells
}

// find returns the cell of a key.
func (k *kind) find(key string) int {
	return sort.Search(cells-1, func(cell int) bool { return key < k.begin(cell+1) })
}

// end returns the first cell behind the range of the next page. The one before it is of the buckets.
func (s *scan) end() int {
	end := min(s.cell+s.stride, cells)
	own := s.kinds[0].buckets
	if i, is := slices.BinarySearch(own, api.BucketID((end-1)/cellsOfBucket)); !is {
		end = int(own[i-1]+1) * cellsOfBucket
	}
	return end
}

func (s *scan) next() (Txn, bool) {
	if len(s.kinds) == 0 {
		return Txn{}, false
	}
	k := &s.kinds[0]
	if k.key != "" {
		return plainRead(Op{Kind: Get, Key: k.key, Revision: s.revision}), true
	}
	if s.limit == 0 {
		s.limit, s.cell, s.stride = min(k.most, firstPage), k.own(0), cells
	}
	from := s.from
	if from == "" {
		from = k.begin(s.cell)
	}
	return plainRead(Op{Kind: Get, Key: from, End: k.begin(s.end()), Revision: s.revision, Limit: s.limit}), true
}

// answered takes a page. It reports whether the revision was compacted: what was read so far is of no use then.
func (s *scan) answered(r Result) (compacted bool) {
	if r.Failure == Compacted {
		return true
	}
	if s.revision == 0 {
		s.revision = r.Revision
	}
	k, page := &s.kinds[0], r.Reads[0]
	if k.key != "" {
		for _, kv := range page.Keys {
			s.take(kv)
		}
		s.kinds = s.kinds[1:]
		return false
	}
	bytes, cell, inside, until := 0, s.cell, true, k.begin(s.cell+1)
	for _, kv := range page.Keys {
		bytes += len(kv.Key) + len(kv.Value.Bytes)
		if kv.Key >= until {
			cell = k.find(kv.Key)
			inside, until = k.own(cell) == cell, k.begin(cell+1)
		}
		if inside {
			s.take(kv)
		}
	}
	switch {
	case page.More:
		s.limit = nextPage(s.limit, k.most, bytes)
		s.stride = max(1, min(s.stride/2, (cell-s.cell+1)*int(s.limit)/len(page.Keys)))
		s.cell, s.from = k.own(cell), ""
		if inside {
			s.from = page.Keys[len(page.Keys)-1].Key + "\x00"
		}
	default:
		s.cell, s.from = k.own(s.end()), ""
		if int64(len(page.Keys)) < s.limit/2 {
			s.stride = min(2*s.stride, cells)
		}
	}
	if s.cell == cells {
		s.kinds, s.limit, s.from = s.kinds[1:], 0, ""
	}
	return false
}

func (s *scan) take(kv KV) {
	if err := s.kinds[0].each(kv); err != nil {
		*s.corrupt = append(*s.corrupt, Corrupt{kv.Key, err})
	}
}

// Pages of a read begin with firstPage keys, and have about pageBytes where records are large: an answer has to
// arrive within the timeout of one request.
const (
	firstPage = 32
	pageBytes = 8 << 20
)

// nextPage returns how many keys the page after one of limit keys and so many bytes has: up to four times as many, so
// that it is expected to have pageBytes.
func nextPage(limit, most int64, bytes int) int64 {
	return max(1, min(most, 4*limit, limit*pageBytes/int64(max(1, bytes))))
}
