// Package home is the core that drives the gangs of a shard's queues: which pods make a gang, in which order gangs are
// taken up, how one is charged, placed, completed or undone across shards, and what its users are told.
//
// It decides:
//   - intake (pods.go): to which gang a pod belongs, which queue pays for it, and whether it may be placed;
//   - a gang's life (gang.go has the states; reserve.go, hold.go, commit.go, closing.go the steps);
//   - takeover (takeover.go): what to make of reservations and pods that another shard left;
//   - what is said about it: PodGroup and Queue statuses (status.go), PodScheduled=False (conditions.go), spans (trace.go).
//
// It owns, for the buckets of queues that the table gives to this shard: the order of their gangs, the serials of what is
// asked for them, the statuses of their Queues and PodGroups. All of it can be made again from the API server and the
// control store.
//
// It refuses to decide what others own: whether a gang may be charged (coordinator) and whether a node has room (node
// shards). It never calls another core: it sends messages, says them again until they are answered, and takes an answer
// only when serial and attempt are those of its question.
//
// Invariants:
//   - No Bind, and no Commit that binds at once, is sent for a gang that has not started before every pod of its minimum
//     is prepared or bound; once one was sent, the gang is completed, or undone by way of Close.
//   - A reservation is given back only when no pod of the gang is bound and no node shard has an intent of it.
//   - A pod is committed only when its gang's reservation names it, and a bound pod stays charged to the gang and the queue
//     under which it was bound until it ends, whatever its labels say later.
//   - Nothing is sent for a gang by name: PodGroups and pods are told apart by UID.
//   - Whatever is withdrawn is withdrawn at every shard that was asked, and nothing is asked again before each has
//     answered or left the table.
//   - The same events give the same outputs.
package home
