package api

import "cmp"

// Rank orders gangs that compete for the same room. It is fixed at a gang's first grant and kept over its attempts.
type Rank struct {
	Priority int64
	Order    uint64 // the coordinator's transaction sequence at the first grant, 0 for never granted
	Gang     string // UID
}

// Compare returns a negative number when r goes before o.
func (r Rank) Compare(o Rank) int {
	if c := cmp.Compare(o.Priority, r.Priority); c != 0 {
		return c
	}
	if c := cmp.Compare(r.Order, o.Order); c != 0 {
		return c
	}
	return cmp.Compare(r.Gang, o.Gang)
}

// Before reports whether r goes before o.
func (r Rank) Before(o Rank) bool { return r.Compare(o) < 0 }
