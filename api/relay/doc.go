// Package relay passes watches of the API server on from one process to the others, so that the number of watches at
// the API server does not grow with the number of shards. Without it, each further shard that watches all pods costs
// 0.3 ms of CPU per pod, in the shard and in the API server, on top of 5 ms for everything else.
//
// Every process can act as a relay. The caller chooses one (a shard asks the owner of bucket 0, according to its
// table). If callers disagree, there are two relays, and both work. The first request for a kind starts the relay's
// one watch of it, from the version that the request names. The watch ends when there have been no readers for a
// while.
//
// What is promised is what the API server promises for a watch from a resourceVersion: every event after it that says
// something new, once, in order. A relay keeps the last events of each kind (window), which is all that it knows: it
// makes no list and has no objects. Asked for a version before the window it says which one it has first; asked for
// one that it has not reached it takes the watch, for it will come to it. It refuses to guess: with any doubt about
// its own watch (an error, a version that is no number or does not grow, an API server that was restored from an older
// state) it drops the window and breaks every stream. The callers go on from their last version, at the next relay or
// at the API server, without a new list; each of them asks the API server whether its history still contains that
// version.
//
// It does not filter events by owner. Cores also use pods that are not theirs (an intent whose pod was bound
// elsewhere, or a pod whose PodGroup is created later), and a filter would have to combine objects of two kinds at
// different versions: package bench/prove/feed explores how. But it sends each event once reduced: what a process
// makes of a pod (api.Pod) is the same in each, so the relay makes it and packs it (Packing), and a process reads it
// in 1.3 us where a stripped v1.Pod takes 6.6 us to decode and to reduce (api.BenchmarkPacked). That needs the same
// program and the same rules at both ends. Who asks for another form, as during an update, is sent the stripped
// objects, and so is everybody of pods that depend on other objects. An event of a pod with a node that packs to what
// it was before, as many a kubelet's is, is not sent: only its version is. The version of a pod with a node is named
// nowhere.
//
// 80 us are for a message, both ends together, which is why events are sent in batches that stay together until the
// reader's loop; 290 us for a watch of one's own. Kinds without protobuf are sent as CBOR, because decoding a PodGroup
// from JSON costs more than everything else about its event.
//
// Invariants:
//   - Versions in a window grow strictly, and the events sent on one stream are contiguous.
//   - A stream buffers no events of its own. A reader that is too slow falls out of the window and is told so.
//   - A stream sends something every second, so silence means that it is broken.
//
// Package link decides who may call a relay: processes that have a record in the control store, which they prove in
// each call.
//
// Comparing resourceVersions of one kind as numbers is part of the Kubernetes API since 1.35 (KEP-5504). Objects whose
// versions are not numbers are not relayed.
package relay
