// Package fault names bugs that can be switched on, to show that the tests and the auditor would find them. They exist
// only in programs built with the tag `faults`; in every other build On is a constant false and the code behind it is gone.
package fault

// Fault is a bug.
type Fault string

// The bugs, each of them a failure seen in other schedulers, and where it sits.
const (
	SharedNodes       Fault = "shared-nodes"        // shard/process: node updates written into a list that the loop reads, without a lock
	PanicBelowZero    Fault = "panic-below-zero"    // cache: a subtraction below zero is taken for a broken invariant
	TwoStatusWriters  Fault = "two-status-writers"  // shard/home: every shard writes every queue's status
	NamesNotUIDs      Fault = "names-not-uids"      // shard/home: a delayed delete of a PodGroup hits its namesake
	AncestorsNotAsked Fault = "ancestors-not-asked" // coordinator: a gang is charged to its own queue alone
)
