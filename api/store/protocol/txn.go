package protocol

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"
)

// Machine is one read or write of the protocol. Next returns the transaction to send now, false once there is none left.
// Answered and Lost report what became of the transaction that Next returned last; without either, Next may be called again.
type Machine interface {
	Next() (Txn, bool)
	Answered(Result)
	Lost()
}

// Txn is a transaction: if all compares hold, Then is carried out, otherwise Else. A Txn that is one Get and nothing else is a
// plain read.
type Txn struct {
	If   []Compare
	Then []Op
	Else []Op
}

// PlainRead returns the only Get of a plain read.
func (t Txn) PlainRead() (Op, bool) {
	if len(t.If) > 0 || len(t.Then) != 1 || t.Then[0].Kind != Get {
		return Op{}, false
	}
	return t.Then[0], true
}

// Compare holds when a revision of the key is exactly Revision. A key that is absent has revision 0.
type Compare struct {
	Key      string
	Target   Target
	Revision int64
}

// Target is which revision of a key is compared.
type Target uint8

// Targets.
const (
	CreateRevision Target = iota + 1
	ModRevision
)

// Op is one operation of a transaction.
type Op struct {
	Kind OpKind
	Key  string

	Value Value // of a Put
	Lease int64 // of a Put; 0 for none

	End      string // of a Get: all keys from Key up to and without End; "" is the one key
	Revision int64  // of a Get: as of this revision; 0 for the newest
	Limit    int64  // of a Get: keys at most; 0 for no limit
	KeysOnly bool   // of a Get: values are not needed
}

// OpKind is what an operation does.
type OpKind uint8

// Operations.
const (
	Put OpKind = iota + 1
	Delete
	Get
)

func put(key string, v Value, lease int64) Op {
	return Op{Kind: Put, Key: key, Value: v, Lease: lease}
}
func remove(key string) Op    { return Op{Kind: Delete, Key: key} }
func get(key string) Op       { return Op{Kind: Get, Key: key} }
func getKey(key string) Op    { return Op{Kind: Get, Key: key, KeysOnly: true} }
func plainRead(op Op) Txn     { return Txn{Then: []Op{op}} }
func absent(k string) Compare { return Compare{Key: k, Target: CreateRevision} }

func created(key string, revision int64) Compare {
	return Compare{Key: key, Target: CreateRevision, Revision: revision}
}

func modified(key string, revision int64) Compare {
	return Compare{Key: key, Target: ModRevision, Revision: revision}
}

// Value is the value of a key. What a machine writes has both fields. What it reads has the Bytes, or, from a store that holds
// messages, the Message, which must not be changed.
type Value struct {
	Bytes   []byte
	Message proto.Message
}

func (v Value) equal(o Value) bool {
	if v.Message != nil && o.Message != nil {
		return proto.Equal(v.Message, o.Message)
	}
	return bytes.Equal(v.Bytes, o.Bytes)
}

// KV is a key as it was found.
type KV struct {
	Key         string
	Value       Value
	Create, Mod int64
	Lease       int64
}

// Read is what one Get found, in the order of the keys. More says that its Limit left some out.
type Read struct {
	Keys []KV
	More bool
}

// Result is the answer to a transaction.
type Result struct {
	Failure   Failure
	Succeeded bool   // the compares held
	Revision  int64  // of the store, afterwards
	Reads     []Read // one for each operation of the branch, empty for those that are no Get
}

// Failure is a definite answer other than a branch: nothing was done.
type Failure uint8

// Failures.
const (
	LeaseGone Failure = iota + 1 // the lease of a Put does not exist
	Compacted                    // the revision of a Get is not kept any more
)

// first returns the key that the i-th operation found, nil for none.
func (r Result) first(i int) *KV {
	if i >= len(r.Reads) || len(r.Reads[i].Keys) == 0 {
		return nil
	}
	return &r.Reads[i].Keys[0]
}

func modOf(kv *KV) int64 {
	if kv == nil {
		return 0
	}
	return kv.Mod
}

// decode returns the record in a value; into is an empty one.
func decode[M proto.Message](v Value, into M) (M, error) {
	if m, is := v.Message.(M); is {
		return m, nil
	}
	if err := proto.Unmarshal(v.Bytes, into); err != nil {
		return into, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	return into, nil
}
