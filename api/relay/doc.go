// Package relay passes watches of the API server on from one process to the others, so that the number of watches at the API
// server does not grow with the number of shards. Without it, each further shard that watches all pods costs 0.3 ms of CPU per
// pod, in the shard and in the API server, on top of 5 ms for everything else.
//
// Every process can act as a relay. The caller chooses one (a shard asks the owner of bucket 0, according to its table). If
// callers disagree, there are two relays, and both work. The first request for a kind starts the relay's one watch of it, from
// the version that the request names. The watch ends when there have been no readers for a while.
//
// What is promised is what the API server promises for a watch from a resourceVersion: every event after it, once, in order.
// A relay keeps the last events of each kind (window), which is all that it knows: it makes no list and has no objects. Asked
// for a version before the window it says which one it has first; asked for one that it has not reached it takes the watch,
// for it will come to it. It refuses to guess: with any doubt about its own watch (an error, a version that is no number or
// does not grow, an API server that was restored from an older state) it drops the window and breaks every stream. The callers
// go on from their last version, at the next relay or at the API server, without a new list; each of them asks the API server
// whether its history still contains that version.
//
// It does not interpret or filter events. Cores also use pods that are not theirs (an intent whose pod was bound elsewhere, or
// a pod whose PodGroup is created later), and a filter would have to combine objects of two kinds at different versions. The
// measured cost of an event, for a pod without the fields that no core reads: 5 us to decode and reduce it, so a filter would
// save 10 us per pod and shard; 80 us for a message, both ends together, which is why events are sent in batches that stay
// together until the reader's loop; 290 us for a watch of one's own. Kinds without protobuf are sent as CBOR, because decoding a
// PodGroup from JSON costs more than everything else about its event.
//
// Invariants:
//   - Versions in a window grow strictly, and the events sent on one stream are contiguous.
//   - A stream buffers no events of its own. A reader that is too slow falls out of the window and is told so.
//   - A stream sends something every second, so silence means that it is broken.
//
// Package link decides who may call a relay: processes that have a record in the control store, which they prove in each call.
//
// Comparing resourceVersions of one kind as numbers is part of the Kubernetes API since 1.35 (KEP-5504). Objects whose versions
// are not numbers are not relayed.
package relay
