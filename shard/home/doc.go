// Package home is the core that drives the gangs of a shard's queues: which pods form a gang, in which order gangs are served, how
// a gang is charged, placed, completed or rolled back across shards, and what its users are told.
//
// It decides:
//   - which gang a pod belongs to (membership.go; package intake reads which PodGroup it names, and which queue pays), and whether
//     the pod may be placed (pods.go);
//   - the life of a gang (state.go has the states; reserve.go, hold.go, commit.go and closing.go the steps);
//   - in which topology domain a gang is placed, or each of its slices (domain.go, slices.go), which shard is asked first for pods that
//     prefer some nodes (wishes.go, lean.go), and whether the pods of a gang at several shards may be bound together (topology.go);
//   - when the volumes of a gang are bound, and that its pods wait for them (volumes.go);
//   - which gangs are to be evicted so that one can start, when the coordinator says from whom may be taken (claim.go, package plan), and
//     how a gang is evicted for another (yield.go), or which single pods of it (surplus.go);
//   - takeover (takeover.go): what to do with reservations and pods that another shard left behind;
//   - why a gang is blocked (blocked.go), why no node takes its pods (explain.go), and what is reported: what statuses say (status.go;
//     package report decides when they are written), PodScheduled=False (conditions.go), events (events.go), places in the order
//     (position.go), what a user is answered (why.go), durations (observe.go), spans (trace.go).
//
// Core drives gangs from state to state. All else is done by its parts, which are fields of it, in an order: each owns
// its fields, and calls those before it and never those after it, nor Core. What all have is in common (looks.go).
//
// For the queue buckets that the table gives to this shard, it owns the order of their gangs, the serials of requests about them,
// and the statuses of their Queues and PodGroups. All of it can be rebuilt from the API server and the control store.
//
// It leaves to others what they own: whether a gang may be charged (the coordinator), and whether a node has capacity (node
// shards). It never calls another core. It sends messages, retransmits them until they are answered, and accepts an answer only
// if its serial and attempt are those of the request.
//
// Invariants:
//   - For a gang that has not started, no Bind, and no Commit that binds at once, is sent before every pod of its minimum is
//     prepared or bound. Once one was sent, the gang is either completed, or rolled back by way of Close.
//   - No Bind is sent before all volumes of the gang's pods are bound, but for pods that join a gang that has started.
//   - A reservation is released only when no pod of the gang is bound and no node shard has an intent of it.
//   - A pod is committed only if its gang's reservation names it. A bound pod stays charged to the gang and the queue under which
//     it was bound until it ends, whatever its labels say later.
//   - Gangs are identified by UID: nothing is sent for a gang by name.
//   - What is withdrawn is withdrawn at every shard that was asked, and nothing new is requested before each of them has answered or
//     left the table.
//   - What the objects of one namespace cause is bounded, whatever is done to them: searches and requests (pacing.go), bytes
//     of classes (classes.go), statuses and conditions (package fair). Other namespaces are not delayed by it.
//   - The same events give the same outputs.
package home
