// Package protocol is what Basalt reads and writes in the control store, as data: the keys, the records, the transactions,
// and for each write a state machine that says which transaction to send next. It has no client, no clock and no goroutine.
// Two kinds of runners drive the machines: package api/store over etcd's client, and the simulator and the explorer over the
// model of etcd. So what is proved is what ships.
//
// A runner sends what Next returns and reports what became of it, until Next has nothing more:
//
//	Answered  the store answered, and the answer is believed
//	Lost      no answer came, or one that is not believed: the transaction may have landed, may land later, or never
//	neither   the store refused the request: nothing of it was written, and Next is called again for another try
//
// What may be tried, for how long and after which pause is the runner's decision; which
// transactions are safe to send after a lost one is decided here.
//
// There is no way to write without a fence:
//
//	Term      a coordinator  compares the CreateRevision of the leader key and the ModRevision of seq
//	Session   a shard        compares the CreateRevision of shards/<itself>, and what it names: the table, reservations,
//	                         the absence or the ModRevision of intent keys
//	Create                   creates one key that must be absent, under a lease
//
// Besides, the runner over etcd compares the store's identity in every transaction.
//
// Acquire says what a process does to have such a key: wait until nobody leads, be granted a lease, create the key, try again. Lease
// says when its lease is over. Both are given the time, and need no clock.
//
// Invariants:
//   - A compare names the version that the caller decided under, never a newer one.
//   - Every compare but that of seq and of an intent key's absence is monotone: once false, it is false for ever. So a
//     transaction whose answer was lost is simply sent again until it is answered. The two others are made definite by moving
//     a version that the lost transaction compared: Commit moves seq, WriteIntents moves the shard's own key.
//   - An outcome is definite: of any outcome but success, nothing was written and nothing will be.
//   - A record that cannot be written is an error about that record before anything is sent; one that cannot be read is
//     isolated and named (Corrupt) and never fails the read of the others.
package protocol
