// Package relay passes watches of the API server on from one process to the others, so that the number of watches at the API
// server does not grow with the number of shards. Measured without it: each further shard that watches all pods costs 0.3 ms
// of CPU a pod, its own and the API server's, beside 5 ms for everything else.
//
// What a relay is: any process that is asked. Whom to ask is the caller's matter (a shard asks the owner of bucket 0, by the
// table that it knows), and nothing goes wrong when two disagree: there are then two relays, each as good as the other. The
// first to ask for a kind sets off the one watch of it, from the version that it names; when nobody has asked for a while,
// the watch ends.
//
// What is promised is what the API server promises for a watch from a resourceVersion: every event after it, once, in order.
// A relay keeps the last events of each kind (window), which is all that it knows: it makes no list and has no objects. Asked
// for a version before the window it says which one it has first; asked for one that it has not reached it takes the watch,
// for it will come to it. It refuses to guess: with any doubt about its own watch (an error, a version that is no number or
// does not grow, an API server that was restored from an older state) it drops the window and breaks every stream. The callers
// go on from their last version, at the next relay or at the API server, without a new list; each of them asks the API server
// whether its history still contains that version.
//
// It decides nothing about what an event means, and does not filter: node and home cores look at pods that are not theirs
// too (a row whose pod was bound elsewhere, a pod whose PodGroup comes later), and a filter would have to be right about
// objects of two kinds at different versions. Measured: a pod stripped of what no core reads takes 5 us to decode and reduce,
// so that a filter could save 10 us a pod and shard; a message takes 80 us at both ends together, which is why events go in
// batches, which stay together until the reader's loop takes them; and a watch of one's own, 290. Kinds without protobuf go as
// CBOR: to read a PodGroup as JSON takes longer than all else of its event.
//
// Invariants:
//   - versions in a window grow strictly; what was sent on one stream is contiguous;
//   - a stream holds no events of its own: a peer that reads slower than events come falls out of the window and is told so;
//   - a stream says something in every second by the clock, so that silence means that it broke.
//
// Who may ask is package link's to decide: a process with a record in the control store, which it proves with each call.
//
// Comparing resourceVersions as numbers, within one kind, is part of the Kubernetes API since 1.35 (KEP-5504). Versions that
// are no numbers are not relayed.
package relay
