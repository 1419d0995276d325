package protocol

import (
	"errors"
	"fmt"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// Outcome is how a shard's transaction ended. It is always definite: of an outcome other than Written, nothing was written
// and nothing will be.
type Outcome uint8

// Outcomes.
const (
	Written          Outcome = iota + 1
	TableMoved               // the table is another than the one named
	ReservationMoved         // a reservation is another than the one named, or gone
	KeyMoved                 // the key is at another revision than the one named, or gone
	SessionLost              // this incarnation may not write any more
)

// ErrSessionLost says that the shard's lease is over: its incarnation may not write any more.
var ErrSessionLost = errors.New("the shard's session is over")

// ErrUnsettled says that the store refuses to take a transaction for good, and that an earlier try of it may have landed.
var ErrUnsettled = errors.New("an earlier try was lost and cannot be settled")

// ReservationFence names a reservation and the only ModRevision that it may have.
type ReservationFence struct {
	Bucket   api.BucketID // of the gang's queue
	GangUID  string
	Revision int64
}

// IntentKey names an intent key at a revision.
type IntentKey struct {
	Incarnation api.Incarnation
	N           uint64
	ModRevision int64
}

// MaxFences is how many reservations one WriteIntents can name, MaxDeletes how many keys one transaction of DeleteIntents has.
const (
	MaxFences  = 100
	MaxDeletes = 100
)

// Create puts a key that must be absent under a lease. It is sent until it is answered: a key that is there under our lease
// is ours.
type Create struct {
	key   string
	value Value
	lease int64
	done  bool

	Revision  int64 // CreateRevision of the key; 0 when somebody else's is there, or with LeaseGone
	LeaseGone bool  // the lease ran out before its first use
}

// NewCreate begins a Create with what Encode returned.
func NewCreate(key string, value Value, lease int64) *Create {
	return &Create{key: key, value: value, lease: lease}
}

// Key is the key that is created.
func (m *Create) Key() string { return m.key }

// Next implements Machine.
func (m *Create) Next() (Txn, bool) {
	return Txn{If: []Compare{absent(m.key)}, Then: []Op{put(m.key, m.value, m.lease)}, Else: []Op{get(m.key)}}, !m.done
}

// Answered implements Machine.
func (m *Create) Answered(r Result) {
	m.done = true
	switch kv := r.first(0); {
	case r.Failure == LeaseGone:
		m.LeaseGone = true
	case r.Succeeded:
		m.Revision = r.Revision
	case kv != nil && kv.Lease == m.lease:
		m.Revision = kv.Create
	}
}

// Lost implements Machine.
func (m *Create) Lost() {}

// Session is a shard's right to write, its key shards/<incarnation> under a lease, and what it knows of that key. Several
// machines of one session may run at a time; their calls are made one after another.
type Session struct {
	keys        Keys
	incarnation api.Incarnation
	lease       int64
	created     int64 // CreateRevision of the key
	own         version
}

// version is a version of a shard's own key.
type version struct {
	mod   int64
	value Value
}

// NewSession returns the session of a shard whose key was created at that revision with that value.
func NewSession(keys Keys, incarnation api.Incarnation, lease, created int64, value Value) *Session {
	return &Session{keys, incarnation, lease, created, version{created, value}}
}

func (x *Session) key() string { return x.keys.Shard(x.incarnation) }

// saw notes a version of the session's own key.
func (x *Session) saw(mod int64, value Value) {
	if mod > x.own.mod {
		x.own = version{mod, value}
	}
}

// rewrite puts the session's own key as it is, which moves its version.
func (x *Session) rewrite(v version) Op { return put(x.key(), v.value, x.lease) }

// fenced adds the fence that all transactions of a session have; cut takes its part of an answer off again. The session is
// over when the fence failed.
func (x *Session) fenced(t Txn) Txn {
	t.If = append([]Compare{created(x.key(), x.created)}, t.If...)
	t.Else = append([]Op{getKey(x.key())}, t.Else...)
	return t
}

func (x *Session) cut(r Result) (_ Result, over bool) {
	if r.Failure == LeaseGone {
		return r, true
	}
	if r.Succeeded {
		return r, false
	}
	if kv := r.first(0); kv == nil || kv.Create != x.created {
		return r, true
	}
	r.Reads = r.Reads[1:]
	return r, false
}

// Update replaces the shard's own record.
type Update struct {
	session *Session
	value   Value
	done    bool

	Outcome Outcome // Written or SessionLost
}

// Update begins an Update.
func (x *Session) Update(record *wire.ShardRecord) (*Update, error) {
	if api.Incarnation(record.GetIncarnation()) != x.incarnation {
		return nil, fmt.Errorf("the record is of incarnation %q", record.GetIncarnation())
	}
	value, err := Encode(x.key(), record)
	return &Update{session: x, value: value}, err
}

// Next implements Machine.
func (m *Update) Next() (Txn, bool) {
	return m.session.fenced(Txn{Then: []Op{put(m.session.key(), m.value, m.session.lease)}}), !m.done
}

// Answered implements Machine.
func (m *Update) Answered(r Result) {
	m.done, m.Outcome = true, SessionLost
	if r, over := m.session.cut(r); !over && r.Succeeded {
		m.Outcome = Written
		m.session.saw(r.Revision, m.value)
	}
}

// Lost implements Machine.
func (m *Update) Lost() {}

// WriteIntents makes rows durable in one transaction: the key intents/<self>/<n> must be absent, the table and every
// reservation at exactly the revisions named.
//
// That the key is absent becomes true again once it is deleted, so a try whose answer was lost could make it anew. Therefore
// each try compares the version of the shard's own key, too, and every try after a lost one writes that key as it is: when
// such a one lands, no other can any more. When it was a lost one that landed, the key is written before this is done.
type WriteIntents struct {
	session *Session
	key     string
	value   Value
	table   int64
	fences  []ReservationFence
	reads   []Op // of the else-branch

	state intentsState
	own   version // of the shard's own key, which the tries compare
	lost  bool    // a try that compares it was lost

	WriteResult
}

// intentsState is where a WriteIntents is.
type intentsState uint8

const (
	intentsWriting intentsState = iota
	intentsEnding               // written; a lost try must be prevented from landing again
	intentsDone
)

// WriteResult is what WriteIntents came to.
type WriteResult struct {
	Outcome       Outcome
	ModRevision   int64    // with Written: at which the key was made
	TableRevision int64    // with TableMoved: the table's now, 0 when there is none
	Moved         []string // with ReservationMoved: the UIDs of the gangs
}

// WriteIntents begins a WriteIntents. An error means that it cannot be written at all: nothing was, and the session goes on.
func (x *Session) WriteIntents(n uint64, record *wire.IntentsRecord, tableRevision int64, fences []ReservationFence) (*WriteIntents, error) {
	if len(fences) > MaxFences {
		return nil, fmt.Errorf("%d reservations, at most %d are possible", len(fences), MaxFences)
	}
	m := &WriteIntents{session: x, key: x.keys.Intents(x.incarnation, n), table: tableRevision, fences: fences, own: x.own}
	var err error
	if m.value, err = Encode(m.key, record); err != nil {
		return nil, err
	}
	if len(m.value.Bytes) == 0 {
		return nil, errors.New("no rows")
	}
	// Revision 0 would compare that there is none, which can become true again.
	if tableRevision <= 0 {
		m.state, m.Outcome = intentsDone, TableMoved
		return m, nil
	}
	for _, f := range fences {
		if f.Revision <= 0 {
			m.state, m.Outcome, m.Moved = intentsDone, ReservationMoved, append(m.Moved, f.GangUID)
		}
	}
	return m, nil
}

// Open reports whether a lost try may have landed or may still.
func (m *WriteIntents) Open() bool { return m.lost }

// TooLarge returns what it means that the store refused the transaction as too large, which one with a lower limit than usual
// does: a RecordError, unless a try was lost before, which may have landed or may still. It returns nil for nil.
func (m *WriteIntents) TooLarge(err error) error {
	if err != nil && m.Open() {
		return fmt.Errorf("%w: %w", ErrUnsettled, err)
	}
	return tooLarge(m.key, m.value, err)
}

func tooLarge(key string, v Value, err error) error {
	if err == nil {
		return nil
	}
	return &RecordError{Key: key, Err: fmt.Errorf("%w: %d bytes: %w", ErrTooLarge, len(v.Bytes), err)}
}

// Next implements Machine.
func (m *WriteIntents) Next() (Txn, bool) {
	x := m.session
	switch m.state {
	case intentsWriting:
		t := Txn{If: make([]Compare, 0, 4+len(m.fences)), Then: []Op{put(m.key, m.value, 0)}, Else: make([]Op, 0, 4+len(m.fences))}
		t.If = append(t.If, created(x.key(), x.created), absent(m.key))
		t.Else = append(t.Else, getKey(x.key()), getKey(m.key), getKey(x.keys.Table()))
		if !fault.On(fault.NewerTable) {
			t.If = append(t.If, modified(x.keys.Table(), m.table))
		}
		for _, f := range m.fences {
			k := x.keys.Reservation(f.Bucket, f.GangUID)
			t.If = append(t.If, modified(k, f.Revision))
			t.Else = append(t.Else, getKey(k))
		}
		if !fault.On(fault.LateIntents) {
			t.If = append(t.If, modified(x.key(), m.own.mod))
		}
		if m.lost {
			t.Then = append(t.Then, x.rewrite(m.own))
		}
		if m.lost && fault.On(fault.PlainRead) {
			t.If = append(t.If, modified(x.key(), -1)) // never: only the reads are carried out
		}
		t.Else = append(t.Else, get(x.key()))
		return t, true
	case intentsEnding:
		return x.fenced(Txn{If: []Compare{modified(x.key(), m.own.mod)}, Then: []Op{x.rewrite(m.own)}, Else: []Op{get(x.key())}}), true
	default:
		return Txn{}, false
	}
}

// Lost implements Machine.
func (m *WriteIntents) Lost() {
	if m.state == intentsWriting {
		m.lost = true
	}
}

// Answered implements Machine.
func (m *WriteIntents) Answered(r Result) {
	x := m.session
	r, over := x.cut(r)
	switch {
	case over:
		m.state, m.WriteResult = intentsDone, WriteResult{Outcome: SessionLost}
	case m.state == intentsEnding:
		m.state = intentsDone
		if r.Succeeded {
			x.saw(r.Revision, m.own.value)
		} else if now := r.first(0); now != nil {
			x.saw(now.Mod, now.Value)
		}
	case r.Succeeded:
		m.state, m.WriteResult = intentsDone, WriteResult{Outcome: Written, ModRevision: r.Revision}
		if m.lost {
			x.saw(r.Revision, m.own.value)
		}
	default:
		m.failed(r)
	}
}

// failed decides what follows from a transaction whose compares did not hold.
func (m *WriteIntents) failed(r Result) {
	x := m.session
	now := r.first(2 + len(m.fences)) // it exists, or the session were lost
	x.saw(now.Mod, now.Value)
	// Only this session writes new keys under its incarnation and each number once: a key that is there is an earlier try of
	// this call, perhaps rewritten by an heir since. It is reported as it was written: whoever rewrites it compares its revision, and so learns
	// what the heir took out.
	if kv := r.first(0); kv != nil && !fault.On(fault.IntentsTwice) {
		m.state, m.WriteResult = intentsDone, WriteResult{Outcome: Written, ModRevision: kv.Create}
		if m.lost && now.Mod == m.own.mod { // of several tries one landed, perhaps a lost one: end the others
			m.state = intentsEnding
		}
		return
	}
	if now.Mod != m.own.mod {
		// The shard's record was written meanwhile: no try so far can land any more, nor have they.
		m.own, m.lost = x.own, false
		return
	}
	m.state = intentsDone
	for i, f := range m.fences {
		if modOf(r.first(2+i)) != f.Revision {
			m.Moved = append(m.Moved, f.GangUID)
		}
	}
	m.Outcome = ReservationMoved
	if table := modOf(r.first(1)); table != m.table || len(m.Moved) == 0 {
		m.WriteResult = WriteResult{Outcome: TableMoved, TableRevision: table}
	}
}

// DeleteIntents deletes keys, each at exactly its ModRevision, MaxDeletes in a transaction. A key that is at another revision
// is left alone.
type DeleteIntents struct {
	session *Session
	keys    []IntentKey
	from    int   // of the batch; those before it are done
	left    []int // of the batch: still to be deleted
	moved   []int // of the batch: at another revision, to be read

	now []StoredIntents

	Outcome Outcome // Written or SessionLost
	Corrupt []Corrupt
	Err     error // a broken invariant of the store's
}

// DeleteIntents begins a DeleteIntents.
func (x *Session) DeleteIntents(keys []IntentKey) *DeleteIntents {
	m := &DeleteIntents{session: x, keys: keys, now: make([]StoredIntents, len(keys)), Outcome: Written}
	for i, k := range keys {
		m.now[i] = StoredIntents{Incarnation: k.Incarnation, N: k.N}
	}
	m.batch()
	return m
}

// batch takes up the keys from m.from on, but for those that were never there.
func (m *DeleteIntents) batch() {
	for ; m.from < len(m.keys) && len(m.left) == 0; m.from = m.end() {
		for i := m.from; i < m.end(); i++ {
			if m.keys[i].ModRevision > 0 {
				m.left = append(m.left, i)
			}
		}
		if len(m.left) > 0 {
			return
		}
	}
}

func (m *DeleteIntents) end() int { return min(m.from+MaxDeletes, len(m.keys)) }

// Now returns each key as it is now, in the order given: ModRevision 0 once it is gone. When the session was lost it returns
// those that were done before.
func (m *DeleteIntents) Now() []StoredIntents { return m.now[:m.from] }

// Failed returns why not all keys were done; nil when they were.
func (m *DeleteIntents) Failed() error {
	if m.Err == nil && m.Outcome == SessionLost {
		return ErrSessionLost
	}
	return m.Err
}

func (m *DeleteIntents) key(i int) string {
	return m.session.keys.Intents(m.keys[i].Incarnation, m.keys[i].N)
}

// Next implements Machine.
func (m *DeleteIntents) Next() (Txn, bool) {
	switch {
	case m.Outcome != Written || m.Err != nil:
		return Txn{}, false
	case len(m.moved) > 0:
		return plainRead(get(m.key(m.moved[0]))), true
	}
	var t Txn
	for _, i := range m.left {
		key := m.key(i)
		t.If = append(t.If, modified(key, m.keys[i].ModRevision))
		t.Then = append(t.Then, remove(key))
		t.Else = append(t.Else, getKey(key))
	}
	return m.session.fenced(t), len(m.left) > 0
}

// Answered implements Machine.
func (m *DeleteIntents) Answered(r Result) {
	if len(m.moved) > 0 {
		m.read(r)
		return
	}
	r, over := m.session.cut(r)
	switch {
	case over:
		m.Outcome = SessionLost
		return
	case r.Succeeded:
		m.left = m.left[:0]
	default:
		// A revision that moved never comes back, so each round loses at least one key.
		var again []int
		for j, i := range m.left {
			switch kv := r.first(j); {
			case kv == nil: // gone
			case kv.Mod == m.keys[i].ModRevision:
				again = append(again, i)
			default:
				m.moved = append(m.moved, i)
			}
		}
		if len(again) == len(m.left) {
			m.Err = errors.New("the transaction failed, but no key had moved")
		}
		m.left = again
	}
	m.next()
}

// read takes one key that had moved.
func (m *DeleteIntents) read(r Result) {
	i := m.moved[0]
	m.moved = m.moved[1:]
	if kv := r.first(0); kv != nil {
		var err error
		if m.now[i], err = m.session.keys.DecodeIntents(*kv); err != nil {
			m.Corrupt = append(m.Corrupt, Corrupt{kv.Key, err})
		}
	}
	m.next()
}

// next goes on to the next batch when this one is done.
func (m *DeleteIntents) next() {
	if len(m.left)+len(m.moved) == 0 {
		m.from = m.end()
		m.batch()
	}
}

// Lost implements Machine.
func (m *DeleteIntents) Lost() {}
