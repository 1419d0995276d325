package protocol

import (
	"errors"

	"basalt.dev/basalt/api/wire"
)

// RewriteIntents: a shard that took a bucket over writes what it keeps of a predecessor's record.

// RewriteIntents replaces the record of any incarnation's key, or deletes the key, if the key and the table are at
// exactly the revisions named.
type RewriteIntents struct {
	session *Session
	from    IntentKey
	key     string
	record  *wire.IntentsRecord // nil deletes
	value   Value
	table   int64
	done    bool

	RewriteResult
	Corrupt []Corrupt
}

// RewriteResult is what RewriteIntents came to.
type RewriteResult struct {
	Outcome       Outcome
	Now           StoredIntents // the key as it is now; ModRevision 0 when it does not exist
	TableRevision int64         // with TableMoved: the table's now
}

// RewriteIntents begins a RewriteIntents; a nil record deletes the key. An error means that it cannot be written at
// all: nothing was, and the session goes on.
func (x *Session) RewriteIntents(
	k IntentKey, record *wire.IntentsRecord, tableRevision int64,
) (*RewriteIntents, error) {
	if k.ModRevision <= 0 || tableRevision <= 0 {
		return nil, errors.New("revision 0 can be no fence")
	}
	m := &RewriteIntents{session: x, from: k, key: x.keys.Intents(k.Incarnation, k.N), record: record,
		table: tableRevision}
	if record == nil {
		return m, nil
	}
	var err error
	m.value, err = Encode(m.key, record)
	return m, err
}

// TooLarge returns what it means that the store refused the transaction as too large: a RecordError. A try that was
// lost before may land all the same; the next rewrite of the key finds out, for it names the revision that this one
// named. It returns nil for nil.
func (m *RewriteIntents) TooLarge(err error) error { return tooLarge(m.key, m.value, err) }

// Next implements Machine.
func (m *RewriteIntents) Next() (Txn, bool) {
	x := m.session
	then := remove(m.key)
	if m.record != nil {
		lease := int64(0)
		if len(m.record.GetRows()) == 0 { // nobody would delete it after this shard
			lease = x.lease
		}
		then = put(m.key, m.value, lease)
	}
	return x.fenced(Txn{
		If:   []Compare{modified(m.key, m.from.ModRevision), modified(x.keys.Table(), m.table)},
		Then: []Op{then},
		Else: []Op{get(m.key), getKey(x.keys.Table())},
	}), !m.done
}

// Answered implements Machine.
func (m *RewriteIntents) Answered(r Result) {
	m.done = true
	r, over := m.session.cut(r)
	if over {
		m.Outcome = SessionLost
		return
	}
	m.Outcome, m.Now = Written, StoredIntents{Incarnation: m.from.Incarnation, N: m.from.N}
	if r.Succeeded {
		if m.record != nil {
			m.Now.ModRevision, m.Now.Record = r.Revision, m.record
		}
		return
	}
	kv := r.first(0)
	switch {
	case kv == nil && m.record == nil:
		return
	case kv != nil:
		var err error
		if m.Now, err = m.session.keys.DecodeIntents(*kv); err != nil {
			m.Corrupt = append(m.Corrupt, Corrupt{m.key, err})
		}
		if m.record != nil && kv.Mod != m.from.ModRevision && kv.Value.equal(m.value) {
			return // an earlier try of this call, or somebody wrote just the same
		}
	}
	if table := modOf(r.first(1)); table != m.table {
		m.Outcome, m.TableRevision = TableMoved, table
		return
	}
	m.Outcome = KeyMoved
}

// Lost implements Machine.
func (m *RewriteIntents) Lost() {}
