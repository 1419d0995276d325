// Package fault names bugs that can be switched on, to show that the tests, the simulator and the auditor would find them. They
// exist only in programs built with the tag faults. In all other builds On is the constant false, and the compiler removes the code
// behind it.
package fault

// Fault is a bug.
type Fault string

// The bugs of the main path, each of them a failure seen in other schedulers, and where it sits.
const (
	SharedNodes       Fault = "shared-nodes"        // shard/server: node updates written into a list that the loop reads, without a lock
	PanicBelowZero    Fault = "panic-below-zero"    // cache: a subtraction below zero is taken for a broken invariant
	TwoStatusWriters  Fault = "two-status-writers"  // shard/home: every shard writes every queue's status
	NamesNotUIDs      Fault = "names-not-uids"      // shard/home: a delayed delete of a PodGroup hits its namesake
	AncestorsNotAsked Fault = "ancestors-not-asked" // coordinator: a gang is charged to its own queue alone
)

// The bugs of the protocol, which the simulator must find: each drops one guard, where a core or package api/store/protocol has
// it. The guards of the shells are dropped in the simulator's models of them (bench/prove/sim).
const (
	LeaderFence         Fault = "leader-fence"          // api/store/protocol: a coordinator's transaction does not compare the leader's key
	PlainRead           Fault = "plain-read"            // api/store/protocol: a lost intent transaction that a read does not show counts as failed
	IntentsTwice        Fault = "intents-twice"         // api/store/protocol: an intent key that is there is not taken for an earlier try's
	LateIntents         Fault = "late-intents"          // api/store/protocol: a lost first try of intents can land after a second one was resolved
	NoIdempotency       Fault = "no-idempotency"        // coordinator: a repeated Reserve is charged once more
	ForgottenPod        Fault = "forgotten-pod"         // shard/node: a pod whose Binding timed out is forgotten
	NewerVersion        Fault = "newer-version"         // shard/node: a Binding carries the newest resourceVersion, not its row's
	InheritedFree       Fault = "inherited-free"        // shard/node: on takeover the rows of other shards' intents take no room
	EmptyResolve        Fault = "empty-resolve"         // shard/node: the patch that resolves a Binding changes nothing
	PodsFirst           Fault = "pods-first"            // bench/prove/sim, for shard/server: on takeover the pods are listed before the intents are read
	PodsFromCache       Fault = "pods-from-cache"       // bench/prove/sim, for shard/server: on takeover the pods are those that the watch has shown
	SharedKeyDeleted    Fault = "shared-key-deleted"    // shard/node: an intent key with rows of several heirs is deleted by the first
	NewerTable          Fault = "newer-table"           // api/store/protocol: an intent transaction does not compare the table that it was decided under
	NoReservationFence  Fault = "no-reservation-fence"  // shard/node: an intent transaction does not compare reservations
	BindBeforePrepared  Fault = "bind-before-prepared"  // shard/home: Bind is sent when the first shard is prepared
	EvictOpen           Fault = "evict-open"            // shard/home: pods are evicted without closing the reservation
	EvictUnread         Fault = "evict-unread"          // shard/effect: pods are evicted without reading whether their reservation is still closed
	DeletedIsGone       Fault = "deleted-is-gone"       // bench/prove/sim, for shard/server: pods are watched by a selector, and one that leaves it counts as gone
	OthersTried         Fault = "others-tried"          // shard/home: while a Commit is unanswered, other pods of the gang take the place of its pods
	SkippedAncestor     Fault = "skipped-ancestor"      // coordinator: a charge leaves the parent out
	CousinsGuarantee    Fault = "cousins-guarantee"     // coordinator: guarantees are kept from siblings, not from cousins
	LaggingLimits       Fault = "lagging-limits"        // coordinator: a new term believes its cache, not the limits in force
	UnheldQueue         Fault = "unheld-queue"          // coordinator: a queue is charged before its finalizer keeps it
	TablesEpoch         Fault = "tables-epoch"          // shard/home: a status is stamped with the table's epoch, not with its bucket's
	LeakedHold          Fault = "leaked-hold"           // shard/node: holds do not expire, nor end with their pods
	SleepersForgotten   Fault = "sleepers-forgotten"    // shard/home: what waits at the coordinator is not said again to the next one
	LateReserve         Fault = "late-reserve"          // coordinator: a late duplicate of a Reserve is taken for a new one
	TermKeepsKey        Fault = "term-keeps-key"        // coordinator/leadership: a term that ended keeps the leader key
	RecordEndsProcess   Fault = "record-ends-process"   // shard/effect: a record that cannot be written ends the process
	UnboundedBatch      Fault = "unbounded-batch"       // coordinator: a transaction is bounded by operations alone, not by bytes
	EndlessEarmark      Fault = "endless-earmark"       // coordinator: quota that is kept for a large gang is kept until it starts
	ForeignInFull       Fault = "foreign-in-full"       // shard/home: a pod that somebody else bound is charged whether its node has room, or exists
	LabelsMoveBound     Fault = "labels-move-bound"     // shard/home: a bound pod follows the labels that it has now
	StartKept           Fault = "start-kept"            // shard/home: an implied gang that comes again passes for started
	FloorLost           Fault = "floor-lost"            // shard/home: a gang is charged what its pods request, whatever its Volcano PodGroup asks for
	RoleIgnored         Fault = "role-ignored"          // shard/home: the minimum of a gang may be of any pods, whatever their roles
	UnsaidLabels        Fault = "unsaid-labels"         // shard/node: a pod whose labels were not said is taken for one that no anti-affinity term matches
	OneSided            Fault = "one-sided"             // cache: a pod keeps away from those that it repels, and not from those that repel it
	HeirForgetsTerms    Fault = "heir-forgets-terms"    // shard/node: an inherited row repels nobody
	NodesUnsaid         Fault = "nodes-unsaid"          // shard/topology: a row is counted where its node was seen last, whatever its shard knew
	JudgedUnseen        Fault = "judged-unseen"         // shard/topology: rows are judged before the log was seen up to them
	PlainUnjudged       Fault = "plain-unjudged"        // shard/topology: a pod that requires nothing itself is not judged
	DeletedIsOver       Fault = "deleted-is-over"       // shard/topology: a row is over when its key is deleted
	GivenUpUntold       Fault = "given-up-untold"       // shard/topology: the log does not tell of rows that were given up
	RowTermsIgnored     Fault = "row-terms-ignored"     // shard/topology: the terms of a row count only once its pod was seen
	LabelsUnawaited     Fault = "labels-unawaited"      // shard/topology: a row counts only once its pod was seen
	RowsSupport         Fault = "rows-support"          // shard/topology: pods that are only on their way support others
	ClaimRowsIgnored    Fault = "claim-rows-ignored"    // shard/topology: a claim that one pod at a time may use is free until a pod that uses it has a node
	DomainUnnamed       Fault = "domain-unnamed"        // shard/home: pods are held wherever the shards of their domain have room
	DomainStale         Fault = "domain-stale"          // shard/home: what was held in one domain is committed, whatever labels its nodes have by then
	GangUnjudged        Fault = "gang-unjudged"         // shard/home: a gang over several shards is not judged
	LeftUnjudged        Fault = "left-unjudged"         // shard/node: when a row is given up after the judgement, the rest of its Commit is bound all the same
	LogAnewComplete     Fault = "log-anew-complete"     // shard/topology: rows that the log lacks when it is read anew are over
	ClaimForgotten      Fault = "claim-forgotten"       // coordinator: a new term does not go on with the claims that it finds
	RealShares          Fault = "real-shares"           // coordinator: what was promised, and what is on its way out, does not count
	PruneUnchecked      Fault = "prune-unchecked"       // coordinator: a plan is not judged as a whole
	RuntimeForgotten    Fault = "runtime-forgotten"     // coordinator: gangs are evicted however short a time ago they started
	UserPromises        Fault = "user-promises"         // coordinator: promises do not count for users
	BandThreePasses     Fault = "band-three-passes"     // coordinator: others borrow what a gang is about to take back
	PromiseStolen       Fault = "promise-stolen"        // shard/node: room that comes free is not handed over to the gang that it was promised to
	PromiseReplaced     Fault = "promise-replaced"      // shard/node: a room is promised to two gangs
	CondemnUnwritten    Fault = "condemn-unwritten"     // shard/home: surplus pods are evicted before the record of their gang says that they are condemned
	CondemnBelowMinimum Fault = "condemn-below-minimum" // shard/home, coordinator: surplus pods are condemned whether or not their gang keeps its minimum
	CondemnedReplaced   Fault = "condemned-replaced"    // coordinator: a pod that replaces a condemned one takes its quota
	WrittenUnleased     Fault = "written-unleased"      // shard/home: statuses of Volcano's PodGroups are written beside Volcano's scheduler
)
