package protocol

import (
	"fmt"

	"basalt.dev/basalt/api"
)

// Keys names the keys of a control store. It is the prefix before each of them, usually empty.
type Keys string

// Identity is the key of the store's identity.
func (k Keys) Identity() string { return string(k) + "store" }

// Leader is the key of the coordinator that leads.
func (k Keys) Leader() string { return string(k) + "leader/coordinator" }

// Sequence is the key that every transaction of a coordinator writes.
func (k Keys) Sequence() string { return string(k) + "seq" }

// Table is the key of the table.
func (k Keys) Table() string { return string(k) + "table" }

// Shards is the prefix of the keys of all shards.
func (k Keys) Shards() string { return string(k) + "shards/" }

// Shard is the key of one shard.
func (k Keys) Shard(who api.Incarnation) string { return k.Shards() + string(who) }

// Limits is the key of the limits in force of a queue; of "" it is the prefix of all.
func (k Keys) Limits(queue string) string { return string(k) + "queues/" + queue }

// Reservations is the prefix of the keys of all reservations.
func (k Keys) Reservations() string { return string(k) + "reservations/" }

// Reservation is the key of a gang's reservation, with the bucket of its queue.
func (k Keys) Reservation(b api.BucketID, gangUID string) string {
	return k.Reservations() + b.Label() + "/" + gangUID
}

// AllIntents is the prefix of all intent keys.
func (k Keys) AllIntents() string { return string(k) + "intents/" }

// Intents is the n-th intent key of a shard.
func (k Keys) Intents(who api.Incarnation, n uint64) string {
	return fmt.Sprintf("%sintents/%s/%016x", string(k), who, n)
}

// prefixEnd returns the End of all keys with a prefix, which must not be empty.
func prefixEnd(prefix string) string {
	b := []byte(prefix)
	b[len(b)-1]++ // every prefix here ends with a slash
	return string(b)
}
