package protocol

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// ErrFenced says that the coordinator's term is over: nothing of the transaction was written, or nothing of it may be
// relied on.
var ErrFenced = errors.New("the term is over")

// Change is one put or delete of a coordinator's transaction.
type Change struct {
	key   func(Keys) string
	value proto.Message // nil deletes
}

// PutLimits writes the limits in force of a queue.
func PutLimits(r *wire.LimitsRecord) Change {
	return Change{func(k Keys) string { return k.Limits(r.Queue) }, r}
}

// DeleteLimits forgets a queue.
func DeleteLimits(queue string) Change {
	return Change{func(k Keys) string { return k.Limits(queue) }, nil}
}

// PutReservation writes a reservation, under its queue's bucket and its gang's UID.
func PutReservation(r *wire.ReservationRecord) Change {
	return Change{func(k Keys) string {
		return k.Reservation(api.BucketOf(r.GetGang().GetQueue()), r.GetGang().GetUid())
	}, r}
}

// DeleteReservation releases a reservation.
func DeleteReservation(queue, gangUID string) Change {
	return Change{func(k Keys) string { return k.Reservation(api.BucketOf(queue), gangUID) }, nil}
}

// PutTable writes the table. Its Revision is ignored: it will be the transaction's.
func PutTable(t *api.Table) Change {
	return Change{Keys.Table, wire.FromTable(t)}
}

// MaxChanges is how many Changes one Commit takes.
const MaxChanges = maxOps - 1 // and seq

// Term is a coordinator's right to write, and what it knows of seq. One machine of a term runs at a time.
type Term struct {
	keys     Keys
	number   int64  // CreateRevision of the leader key
	revision int64  // ModRevision of seq
	value    uint64 // the largest sequence value ever tried
}

// NewTerm returns the term that began when the leader key was created at that revision.
func NewTerm(keys Keys, number int64) *Term { return &Term{keys: keys, number: number} }

// ResumeTerm returns a term whose seq has that ModRevision and that value: for who keeps no machine between two steps.
func ResumeTerm(keys Keys, number, revision int64, value uint64) *Term {
	return &Term{keys, number, revision, value}
}

// Number is the term: the CreateRevision of the leader key. Later terms have larger numbers.
func (t *Term) Number() int64 { return t.number }

// Commit carries out changes in one transaction. An answer that does not come is settled by moving seq with an empty
// transaction that compares the same seq: of the two at most one can land. Each try has a sequence value of its own, so that
// whichever landed is told by reading seq.
type Commit struct {
	term   *Term
	puts   []Op
	size   int      // of puts, in bytes
	value  uint64   // of the newest try
	wanted []uint64 // the sequence values under which puts were sent
	open   bool     // some try on the current seq may still land
	done   bool

	fenced error

	Revision int64 // at which the changes were made
}

// Commit begins a Commit. An error means that the changes cannot be sent: nothing was, and the term goes on.
func (t *Term) Commit(changes []Change) (*Commit, error) {
	if len(changes) > MaxChanges {
		return nil, fmt.Errorf("%d operations, at most %d are possible", len(changes), MaxChanges)
	}
	seen, size := make(map[string]bool, len(changes)), 0
	largest, most := "", 0
	puts := make([]Op, 0, len(changes))
	for _, c := range changes {
		key := c.key(t.keys)
		if seen[key] {
			return nil, fmt.Errorf("key %q twice", key)
		}
		seen[key] = true
		if c.value == nil {
			puts = append(puts, remove(key))
			continue
		}
		value, err := Encode(key, c.value)
		if err != nil {
			return nil, err
		}
		if size += len(key) + len(value.Bytes); len(value.Bytes) > most {
			largest, most = key, len(value.Bytes)
		}
		puts = append(puts, put(key, value, 0))
	}
	if size > MaxCommit {
		return nil, fmt.Errorf("%w: %d operations of %d bytes, the limit is %d; the largest is key %q with %d", ErrTooLarge, len(changes), size, MaxCommit, largest, most)
	}
	return &Commit{term: t, puts: puts, size: size}, nil
}

// Size returns how many keys the transaction changes, and how many bytes they and their values have.
func (m *Commit) Size() (changes, bytes int) { return len(m.puts), m.size }

// Describe names the keys that are changed, the first few of many.
func (m *Commit) Describe() string {
	const most = 8
	var names []string
	for _, op := range m.puts[:min(most, len(m.puts))] {
		names = append(names, strconv.Quote(op.Key))
	}
	if more := len(m.puts) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// Open reports whether a lost try may have landed or may still.
func (m *Commit) Open() bool { return m.open }

// Next implements Machine.
func (m *Commit) Next() (Txn, bool) {
	if m.done {
		return Txn{}, false
	}
	t := m.term
	leader, seq := t.keys.Leader(), t.keys.Sequence()
	t.value++
	m.value = t.value
	record, err := Encode(seq, &wire.Sequence{Value: m.value, Term: uint64(t.number)})
	if err != nil {
		panic(err) // two numbers
	}
	then := []Op{put(seq, record, 0)}
	if !m.open {
		m.wanted = append(m.wanted, m.value)
		then = append(then, m.puts...)
	}
	compares := []Compare{modified(seq, t.revision)}
	if !fault.On(fault.LeaderFence) {
		compares = []Compare{created(leader, t.number), compares[0]}
	}
	return Txn{If: compares, Then: then, Else: []Op{get(leader), get(seq)}}, true
}

// Answered implements Machine.
func (m *Commit) Answered(r Result) {
	t := m.term
	landed := m.value
	if r.Succeeded {
		t.revision = r.Revision
	} else {
		if kv := r.first(0); kv == nil || kv.Create != t.number {
			m.fail(fmt.Errorf("%w: another took over from term %d", ErrFenced, t.number))
			return
		}
		// The term is ours, so what moved seq is an earlier try of this very transaction: nobody else may write it.
		kv := r.first(1)
		if kv == nil || kv.Mod <= t.revision {
			m.fail(fmt.Errorf("%w: somebody else wrote %q", ErrFenced, t.keys.Sequence()))
			return
		}
		seq, err := decode(kv.Value, &wire.Sequence{})
		if err != nil || seq.Term != uint64(t.number) {
			m.fail(fmt.Errorf("%w: somebody else wrote %q", ErrFenced, t.keys.Sequence()))
			return
		}
		t.revision, landed = kv.Mod, seq.Value
	}
	if slices.Contains(m.wanted, landed) {
		m.done, m.Revision = true, t.revision
		return
	}
	m.open = false // an empty one landed, so those before it never will
}

func (m *Commit) fail(err error) { m.done, m.fenced = true, err }

// Fenced returns why the term is over, wrapping ErrFenced; nil unless it is.
func (m *Commit) Fenced() error { return m.fenced }

// Lost implements Machine.
func (m *Commit) Lost() { m.open = true }

// State is what a coordinator begins its term with, all of it at one revision.
type State struct {
	Revision     int64
	Sequence     uint64     // value of seq: every transaction of this term has a larger one
	Table        *api.Table // nil when there is none, or when Corrupt names it
	Limits       []StoredLimits
	Reservations []StoredReservation
	Shards       []*wire.ShardRecord
	Corrupt      []Corrupt
}

// Load reads seq, writes a fenced transaction that changes nothing, after which no transaction of an earlier term can land,
// and reads the state at its revision. When that revision is compacted meanwhile, it writes another one and reads anew. It
// comes before the first Commit of a term.
type Load struct {
	term    *Term
	commit  *Commit // nil while seq is read
	scan    *scan   // nil until the transaction landed
	corrupt []Corrupt

	State State
}

// Load begins a Load.
func (t *Term) Load() *Load { return &Load{term: t} }

// Open reports whether a lost try may have landed or may still.
func (m *Load) Open() bool { return m.commit != nil && m.scan == nil && m.commit.open }

// Fenced returns why the term is over, wrapping ErrFenced; nil unless it is.
func (m *Load) Fenced() error {
	if m.commit == nil {
		return nil
	}
	return m.commit.fenced
}

// Next implements Machine.
func (m *Load) Next() (Txn, bool) {
	switch {
	case m.commit == nil:
		return plainRead(get(m.term.keys.Sequence())), true
	case m.scan == nil:
		return m.commit.Next()
	default:
		return m.scan.next()
	}
}

// Lost implements Machine.
func (m *Load) Lost() {
	if m.commit != nil && m.scan == nil {
		m.commit.Lost()
	}
}

// Answered implements Machine.
func (m *Load) Answered(r Result) {
	switch {
	case m.commit == nil:
		m.sequence(r)
	case m.scan == nil:
		m.commit.Answered(r)
		if m.commit.done && m.commit.fenced == nil {
			m.read()
		}
	default:
		if compacted := m.scan.answered(r); compacted {
			m.begin()
		}
	}
}

// sequence takes seq as an earlier term left it.
func (m *Load) sequence(r Result) {
	t := m.term
	t.revision = 0
	if kv := r.first(0); kv != nil {
		t.revision = kv.Mod
		seq, err := decode(kv.Value, &wire.Sequence{})
		value := seq.GetValue()
		if err != nil {
			// Every transaction made a revision, so the revision is a value that was never reached.
			m.corrupt = append(m.corrupt, Corrupt{kv.Key, err})
			value = uint64(r.Revision)
		}
		t.value = max(t.value, value)
	}
	m.begin()
}

// begin starts the transaction that changes nothing.
func (m *Load) begin() { m.commit, m.scan = &Commit{term: m.term}, nil }

// read starts reading at the revision of that transaction.
func (m *Load) read() {
	k, s := m.term.keys, &m.State
	*s = State{Revision: m.commit.Revision, Sequence: m.term.value, Corrupt: slices.Clone(m.corrupt)}
	m.scan = &scan{revision: s.Revision, corrupt: &s.Corrupt, kinds: []kind{
		{prefix: k.Limits(""), buckets: everything, most: 1000, each: func(kv KV) error {
			r, err := k.DecodeLimits(kv)
			s.Limits = append(s.Limits, r)
			return err
		}},
		readReservations(k, everything, &s.Reservations),
		{prefix: k.Shards(), buckets: everything, most: 1000, each: func(kv KV) error {
			r, err := k.DecodeShard(kv)
			if err == nil {
				s.Shards = append(s.Shards, r)
			}
			return err
		}},
		{key: k.Table(), each: func(kv KV) (err error) {
			s.Table, err = DecodeTable(kv)
			return err
		}},
	}}
}
