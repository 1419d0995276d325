package api

import (
	"fmt"
	"strconv"

	"github.com/cespare/xxhash/v2"
)

// Buckets is the number of hash slots that nodes and queues fall into. More would make label selectors slow: the API
// server scans an `in` list for each event.
const Buckets = 1024

// BucketID is a hash slot, 0 to Buckets-1.
type BucketID uint16

// BucketOf returns the bucket of a key: a queue's path, or a node's name.
func BucketOf(key string) BucketID { return BucketID(xxhash.Sum64String(key) % Buckets) }

// Label is the bucket as a label value: four digits.
func (b BucketID) Label() string {
	s := strconv.Itoa(int(b))
	return "0000"[:4-len(s)] + s
}

// Incarnation is the random id that a process makes at each start; the only identity that safety rests on.
type Incarnation string

// Epoch counts the tables.
type Epoch uint64

// Nobody in a table's owner list.
const Nobody = 0xffff

// Member is a shard as the table knows it.
type Member struct {
	Incarnation Incarnation
	Name        string
}

// Table maps each bucket to its owner. It is immutable once made. Revision is the ModRevision of its key in the control
// store: what an intent transaction compares.
type Table struct {
	Epoch    Epoch
	Revision int64
	Members  []Member
	Owners   [Buckets]uint16 // index into Members, or Nobody
	Changed  [Buckets]Epoch  // the epoch at which the bucket last changed hands

	// Refilling tells the next coordinator that reservations may still be missing: the store is new or was restored, and
	// shards have not yet told of all that is bound.
	Refilling bool
}

// Owner returns the shard that owns a bucket, "" for nobody.
func (t *Table) Owner(b BucketID) Incarnation {
	if t == nil || t.Owners[b] == Nobody || int(t.Owners[b]) >= len(t.Members) {
		return ""
	}
	return t.Members[t.Owners[b]].Incarnation
}

// OwnerOf returns the shard that owns the bucket of a key.
func (t *Table) OwnerOf(key string) Incarnation { return t.Owner(BucketOf(key)) }

// Owned returns how many buckets a shard owns.
func (t *Table) Owned(who Incarnation) int {
	n := 0
	for b := range BucketID(Buckets) {
		if t.Owner(b) == who {
			n++
		}
	}
	return n
}

// Has reports whether a shard is a member of the table.
func (t *Table) Has(who Incarnation) bool {
	if t == nil {
		return false
	}
	for _, m := range t.Members {
		if m.Incarnation == who {
			return true
		}
	}
	return false
}

// Validate says what is wrong with a table that was read, nil when nothing is.
func (t *Table) Validate() error {
	for b, o := range t.Owners {
		if o != Nobody && int(o) >= len(t.Members) {
			return fmt.Errorf("table epoch %d: bucket %d belongs to member %d of %d", t.Epoch, b, o, len(t.Members))
		}
		if t.Changed[b] > t.Epoch {
			return fmt.Errorf("table epoch %d: bucket %d changed hands at epoch %d", t.Epoch, b, t.Changed[b])
		}
	}
	return nil
}
