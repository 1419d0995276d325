// Package claims explores the protocol by which gangs take room and quota from each other (reclaim and preemption of
// whole gangs). It is an explicit-state model, as in bench/prove/order: a breadth-first search visits every
// interleaving of a small system, judges each state, and prints the shortest path to a violation.
//
// The protocol, as corrected here. A gang c lacks quota, or room. The coordinator gives its home a mandate{term,
// serial, candidates}. The home asks node shards for rooms: what is free is held, and what a candidate or a leaving
// gang has is promised. When all have answered it sends a Claim{mandate, victims with attempts and pods, awaits}. The
// coordinator judges it on the virtual tree and writes one put: c's record with demand 0 and claim{victims, awaits}.
// This write is the commit point. Then it closes the victims, whose homes evict their pods and give their records back.
// When all victims are closed or gone, and the real charges fit, one put turns the claim into demand; awaits stays in
// the record. A node shard turns a promise into a hold in the step in which it sees the pod gone. The home repeats its
// HoldRequests, commits and binds as ever.
//
// Cast. The coordinator, with one crash; the store, whose fence is that an old term writes nothing; the API server; two
// nodes with a shard each and room for one pod; gangs of at most one pod on each node, each with a home of its own: c,
// d (claim), v, w (victims), t (wants the same, and may claim nothing). A home may be replaced by an heir. The old home
// of a victim continues with what it knew, at any speed; all that is left of the old home of a claimant is the messages
// that it sent.
//
// Steps. A Reserve is granted, or a mandate given; HoldRequests and Claims arrive, Claims also repeated and late;
// victims are closed, read, evicted, and given back; rows are written or refused; Bindings and deletions arrive; a node
// shard sees that a pod is gone. Faults, each as often as Faults allows: a crash, heirs, restarts, a claim that takes
// too long, claimants deleted or changed, an edit after which no claim is legal, a capability cut by one pod, victims'
// pods that finish, promises that expire early, late HoldRequests.
//
// Abstracted. A message other than a Claim is read from the state of its sender at any later point; a lost message is
// one that arrives later. A transaction and the decision are one step. A home withdraws from all shards in one step. A
// mandate arrives when it is given, and a gang is given three in a term. A home that is refused nothing renews its
// holds. Which moves are legal is one bit.
//
// Left out: queues (one pool stands for the tree), surplus pods (surplus.go), delay, min runtime and backoff, grace periods, backfill, N, more than one
// node of a shard, pods that fit elsewhere, two coordinators at once, a restored store, watches of homes (only node shards are behind).
//
// Rules, each with the weakened rule that a test finds violating. Those with * are not in the first statement of the protocol.
//
//	R1   evict-first            A victim is closed after the put of the claim.
//	R2   two-claims             A victim is in no other claim.
//	R3   claim-without-attempt  A claim is refused if a victim is not open under the attempt that it names.
//	R4   old-term               or if its mandate is of another term,
//	R5   old-serial             or is not the last one, or was used.
//	R6*  old-home               A mandate ends when its gang's bucket moves.
//	R7*  reducible-claim        A claim is refused if a victim that only gives quota is not needed. (The plan was made earlier.)
//	R8*  pods-unnamed           A plan names the pods that it waits for; one that the victim's record does not name makes nobody a victim.
//	R9   claim-forgotten        A successor reads the claims.
//	R10  close-without-attempt  A victim is closed under the attempt that the claim names.
//	R11  dropped-is-closed      Who was not closed when a claim was dropped is spared.
//	R12  illegal-is-closed      Nobody is closed for a claim that is not legal any more: it is dropped.
//	R13  dropped-is-opened      Who was closed stays closed.
//	R14* spared-is-forgotten    Who is closed counts as yielding by its own record, also when the claim is gone.
//	R15  real-shares            Others are granted what fits the real and the virtual tree.
//	R16  unfit-grant            A claim becomes demand when the real charges fit,
//	R17* early-grant            and all of its victims are closed or gone.
//	R18  unreserve-keeps-claim  Unreserve, or a new attempt, drops the claim.
//	R19* unfit-claim-stands     A claim that fits the virtual tree no more, because a limit was cut, is dropped.
//	R20* claims-unpromised      A Claim is sent when all rooms are held or promised.
//	R21  promise-stolen         A promise becomes a hold in the step in which the pod is seen to be gone.
//	R22  promise-unrepeated     HoldRequests name what they wait for, and are repeated until all is held.
//	R23* promise-replaced       A room is promised to one gang; another is refused.
//	R24* hold-and-wait          A home that is refused a room withdraws all others of its plan before it tries again.
//	R25* awaits-victims         A claim names all gangs whose pods it waits for, also those that leave anyway.
//	R26* awaits-forgotten       The record names them until its next attempt, not until it is granted.
//	R27* room-given-back        A gang that is charged and whose plan fails keeps what it holds, and what an earlier claim freed for it.
//	R33* spared-is-awaited      A claim that is dropped awaits nobody who was spared.
//	R28  heir-ignorant          An heir of the claimant reads the claim and goes on with it.
//	R29* heir-withdraws         It withdraws rows, but their rooms and other holds stay the gang's.
//	R30  evict-unread           A pod is evicted after its record was read as closed under the known attempt,
//	R31  read-before-seen       and after it was seen bound.
//	R32  rows-unfenced          No row is written under an earlier revision of the record.
//	R45  victim-claims          A gang that a claim takes makes none,
//	R46  claimant-taken         and one whose claim stands is in no other.
//
// What the model corrected:
//   - R26. Watches of node shards are behind. The victim's home has seen its pods go, the record is deleted, c is granted, and nothing durable
//     says what c waits for. An heir of c, or a restarted node shard, asks without naming the pods; the shard, which still
//     counts them, refuses, and gives the room to a stranger when it sees them gone. So the record keeps awaits after the grant, and
//     awaits names gangs, for the heir may not know the UIDs of pods that are gone.
//   - R25. The same for a room whose pod leaves anyway (it finished, or was closed for a dropped claim): it is no victim, and has
//     to be named all the same, in the Claim and in the record.
//   - R29 and R27. Today a takeover begins with Withdraw to all shards, and a failed round gives all rooms back. For a gang for which others were
//     evicted both give the room to whoever asks first. A Withdraw needs "rows only", which makes holds of them; and a failed
//     second plan, or the end of its mandate, must not undo the first.
//   - R33. It is not enough to drop the claim of a gang that is charged: it would keep what it holds, and wait for victims that stay.
//   - R17. With quota free anyway (c lacks room), "as soon as the real charges fit" ends the claim before a victim is closed; c is
//     granted, finds no room, and claims again, for ever. The same happens when others free the quota first.
//   - R8. A gang that lacks room says so while its rooms are on their way. v is gone at the API server and back under a new attempt, the node shard
//     still counts its old pods, and v is closed a second time for the same c (I21), which frees nothing.
//   - R23 and R24. Promises before a claim are hold-and-wait between claimants of the same victim: victims are disjoint only after it.
//   - R14. Yielding that is derived from claims alone forgets closed gangs of dropped claims, and the next claim takes another victim.
//   - R7. A plan is checked for needless victims again when it arrives: the quota may have become free on its way.
//   - R19. A cut of a capability leaves a claim that cannot be granted. It has to be dropped by the edit, not by its timeout.
//   - R6. A Claim on its way when the claimant's home is replaced would be accepted when the heir has let the promises expire.
//
// A gang that has started may claim a further pod by the same rules (the worlds grow and grow-rival), also one that
// lost a pod of its minimum while others may take it itself (mend and mend-again). It is charged for one part, and its
// rooms of the other are those of a gang that is not charged: a plan that fails, and a claim that is dropped, give them
// back, and its heir asks anew unless the claim stands.
//
// Not needed, as it turned out: that victims are closed in an order, or before others are granted; that K grants in the
// very transaction of the release (any later one is as good, by R15); that the mandate survives a crash; that a home
// knows whether its Claim was accepted before the claim acts.
//
// Judged, at each state: I1 (quota at each increase, every bound pod charged under its attempt), nobody in two claims, no node over-committed; at
// the steps concerned: I13, I15, I18 (quota and room), I21, no victim closed without a durable claim; before each step of the world outside:
// that each standing claim has its promises; at the end: no claim, no closed record, nobody who waits for what is free, nobody evicted for a claimant
// that does not start unless a user, a timeout, an edit or a lost promise is why. With Config.Ends: an end is reached from each state.
//
// Not excluded by any rule: while a promise is lost (node shard restarted, or expired because the home was late) a gang
// that is charged may take the room. Then the claim was useless. States are compared by a hash of 64 bits; a test
// compares some spaces with whole states.
package claims
