package model

import (
	"maps"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// MaxOps is how many compares, and how many operations in either branch, etcd takes in one transaction.
const MaxOps = 128

// Store is an etcd that holds values of V.
type Store[V any] struct {
	Keys    map[string]*KV[V] // what exists now; only to be read
	Changed func([]Event[V])  // called with each revision once it is made; may be nil

	equal     func(a, b V) bool
	revision  int64
	compacted int64
	history   []Event[V] // from compacted on
	leases    map[int64]map[string]bool
}

// KV is one version of a key.
type KV[V any] struct {
	Key         string
	Value       V
	Create, Mod int64 // revisions
	Version     int64 // how many puts since Create
	Lease       int64 // 0 for none
}

// Event is one key's part of a revision.
type Event[V any] struct {
	KV[V]   // of a deletion: Key and Mod alone
	Deleted bool
	Prev    *KV[V] // nil for a key that was made
}

// Target is what a Compare looks at. An absent key has 0 in all of them; its value equals none.
type Target uint8

// Targets.
const (
	CreateRevision Target = iota + 1
	ModRevision
	Version
	Value
	Lease
)

// Compare is true when what the key has there is less (-1), equal (0) or greater (1) than the operand, as Result says, or,
// with Not, when it is not. A Value can only be compared for equality.
type Compare[V any] struct {
	Key     string
	Target  Target
	Result  int
	Not     bool
	Operand int64
	Value   V
}

// Op is one operation: a Put, a Delete or a Get.
type Op[V any] struct {
	Kind     OpKind
	Key, End string // End "" is the one key; else all from Key up to and without End
	Value    V      // of a Put
	Lease    int64  // of a Put
	Revision int64  // of a Get: 0 for the newest
	Limit    int64  // of a Get: 0 for none
}

// OpKind is what an operation does.
type OpKind uint8

// Operations.
const (
	Put OpKind = iota + 1
	Delete
	Get
)

// Answer is what one operation came to.
type Answer[V any] struct {
	Keys    []*KV[V] // of a Get
	More    bool     // of a Get: Limit left some out
	Deleted int64
}

// Result is what a transaction came to.
type Result[V any] struct {
	Succeeded bool
	Revision  int64 // of the store, afterwards
	Answers   []Answer[V]
}

// NewStore makes an empty store, at revision 1.
func NewStore[V any](equal func(a, b V) bool) *Store[V] {
	return &Store[V]{equal: equal, revision: 1, Keys: map[string]*KV[V]{}, leases: map[int64]map[string]bool{}}
}

// Revision is the store's newest.
func (s *Store[V]) Revision() int64 { return s.revision }

// Compacted is the oldest revision that can still be read, 0 when all can.
func (s *Store[V]) Compacted() int64 { return s.compacted }

// With returns the keys that begin so, sorted.
func (s *Store[V]) With(prefix string) []string {
	var out []string
	for key := range s.Keys {
		if strings.HasPrefix(key, prefix) {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}

// PrefixEnd is the End of all keys with a prefix.
func PrefixEnd(prefix string) string {
	b := []byte(prefix)
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] < 0xff {
			b[i]++
			return string(b[:i+1])
		}
	}
	return "\x00"
}

// in reports whether a key is in the range; End "\x00" is all keys from Key on.
func in(key, from, end string) bool {
	switch end {
	case "":
		return key == from
	case "\x00":
		return key >= from
	}
	return key >= from && key < end
}

// Txn carries out one branch, all of it or, with an error, nothing.
func (s *Store[V]) Txn(compares []Compare[V], then, otherwise []Op[V]) (Result[V], error) {
	if len(compares) > MaxOps || len(then) > MaxOps || len(otherwise) > MaxOps {
		return Result[V]{}, rpctypes.ErrTooManyOps
	}
	for _, branch := range [][]Op[V]{then, otherwise} {
		for i, o := range branch {
			if o.Key == "" {
				return Result[V]{}, rpctypes.ErrEmptyKey
			}
			if o.Kind == Get {
				continue
			}
			for _, other := range branch[:i] {
				twoPuts := o.Kind == Put && other.Kind == Put && o.Key == other.Key
				if twoPuts || o.Kind == Put && other.Kind == Delete && in(o.Key, other.Key, other.End) || o.Kind == Delete && other.Kind == Put && in(other.Key, o.Key, o.End) {
					return Result[V]{}, rpctypes.ErrDuplicateKey
				}
			}
		}
	}
	out := Result[V]{Succeeded: true}
	for _, c := range compares {
		if !s.holds(c) {
			out.Succeeded = false
		}
	}
	branch := then
	if !out.Succeeded {
		branch = otherwise
	}
	for _, o := range branch { // nothing is written by a transaction that cannot be carried out
		switch {
		case o.Kind == Put && o.Lease != 0 && s.leases[o.Lease] == nil:
			return Result[V]{}, rpctypes.ErrLeaseNotFound
		case o.Kind == Get && o.Revision > s.revision:
			return Result[V]{}, rpctypes.ErrFutureRev
		case o.Kind == Get && o.Revision > 0 && o.Revision < s.compacted:
			return Result[V]{}, rpctypes.ErrCompacted
		}
	}
	var events []Event[V]
	for _, o := range branch {
		var a Answer[V]
		switch o.Kind {
		case Get:
			a.Keys = s.get(o, events)
			if o.Limit > 0 && int64(len(a.Keys)) > o.Limit {
				a.Keys, a.More = a.Keys[:o.Limit], true
			}
		case Put:
			events = append(events, s.put(o))
		case Delete:
			for _, kv := range s.get(o, events) {
				events = append(events, s.delete(kv.Key))
				a.Deleted++
			}
		}
		out.Answers = append(out.Answers, a)
	}
	s.commit(events)
	out.Revision = s.revision
	return out, nil
}

func (s *Store[V]) holds(c Compare[V]) bool {
	kv := s.Keys[c.Key]
	if kv == nil {
		if c.Target == Value {
			return false
		}
		kv = &KV[V]{}
	}
	var got int64
	switch c.Target {
	case CreateRevision:
		got = kv.Create
	case ModRevision:
		got = kv.Mod
	case Version:
		got = kv.Version
	case Lease:
		got = kv.Lease
	case Value:
		return s.equal(kv.Value, c.Value) != c.Not
	}
	result := 0
	if got < c.Operand {
		result = -1
	} else if got > c.Operand {
		result = 1
	}
	return (result == c.Result) != c.Not
}

// put and delete change the newest state; the revision is made by commit.
func (s *Store[V]) put(o Op[V]) Event[V] {
	old := s.Keys[o.Key]
	kv := &KV[V]{Key: o.Key, Value: o.Value, Create: s.revision + 1, Mod: s.revision + 1, Version: 1, Lease: o.Lease}
	if old != nil {
		kv.Create, kv.Version = old.Create, old.Version+1
		delete(s.leases[old.Lease], o.Key)
	}
	if o.Lease != 0 {
		s.leases[o.Lease][o.Key] = true
	}
	s.Keys[o.Key] = kv
	return Event[V]{KV: *kv, Prev: old}
}

func (s *Store[V]) delete(key string) Event[V] {
	old := s.Keys[key]
	delete(s.leases[old.Lease], key)
	delete(s.Keys, key)
	return Event[V]{KV: KV[V]{Key: key, Mod: s.revision + 1}, Deleted: true, Prev: old}
}

func (s *Store[V]) commit(events []Event[V]) {
	if len(events) == 0 {
		return
	}
	s.revision++
	s.history = append(s.history, events...)
	if s.Changed != nil {
		s.Changed(events)
	}
}

// get reads as of a revision: what came after is taken back, what this transaction made included. One without a revision
// sees that, too.
func (s *Store[V]) get(o Op[V], made []Event[V]) []*KV[V] {
	now := s.Keys
	if o.Revision > 0 {
		now = maps.Clone(now)
		for _, events := range [][]Event[V]{made, s.history} {
			for _, e := range slices.Backward(events) {
				switch {
				case e.Mod <= o.Revision:
				case e.Prev == nil:
					delete(now, e.Key)
				default:
					now[e.Key] = e.Prev
				}
				if e.Mod <= o.Revision {
					break
				}
			}
		}
	}
	if o.End == "" {
		if kv := now[o.Key]; kv != nil {
			return []*KV[V]{kv}
		}
		return nil
	}
	var out []*KV[V]
	for key, kv := range now {
		if in(key, o.Key, o.End) {
			out = append(out, kv)
		}
	}
	slices.SortFunc(out, func(a, b *KV[V]) int { return strings.Compare(a.Key, b.Key) })
	return out
}

// ---- leases

// Grant makes a lease.
func (s *Store[V]) Grant(id int64) error {
	if s.leases[id] != nil {
		return rpctypes.ErrLeaseExist
	}
	s.leases[id] = map[string]bool{}
	return nil
}

// Leased reports whether a lease exists: what a keep-alive is answered.
func (s *Store[V]) Leased(id int64) bool { return s.leases[id] != nil }

// End ends a lease, revoked or run out: its keys go in one revision.
func (s *Store[V]) End(id int64) error {
	keys := s.leases[id]
	if keys == nil {
		return rpctypes.ErrLeaseNotFound
	}
	var events []Event[V]
	for _, key := range s.With("") {
		if keys[key] {
			events = append(events, s.delete(key))
		}
	}
	delete(s.leases, id)
	s.commit(events)
	return nil
}

// ---- history

// Compact forgets what was before a revision.
func (s *Store[V]) Compact(revision int64) error {
	switch {
	case revision <= s.compacted:
		return rpctypes.ErrCompacted
	case revision > s.revision:
		return rpctypes.ErrFutureRev
	}
	s.compacted = revision
	last := map[string]int{} // the newest version at that revision
	for i, e := range s.history {
		if e.Mod <= revision {
			last[e.Key] = i
		}
	}
	var kept []Event[V]
	for i, e := range s.history {
		if e.Mod > revision || i == last[e.Key] && (!e.Deleted || e.Mod == revision) {
			kept = append(kept, e)
		}
	}
	s.history = kept
	return nil
}

// Watch returns what happened to a range from a revision on, in order; of it, what was before only as far as it is known.
func (s *Store[V]) Watch(key, end string, from int64) ([]Event[V], error) {
	if from < s.compacted {
		return nil, rpctypes.ErrCompacted
	}
	var out []Event[V]
	for _, e := range s.history {
		if e.Mod >= from && in(e.Key, key, end) {
			if e.Mod <= s.compacted {
				e.Prev = nil // what was before is forgotten
			}
			out = append(out, e)
		}
	}
	return out, nil
}
