package fault

// Point is a place at which something was sent, or is being sent, and nobody has recorded yet what became of it. A crash
// there leaves the rest to an heir.
//
// In a program built with the tag `faults`, a process dies there by SIGKILL when the folder that BASALT_CRASHES names holds
// a file of the point's name. It removes the file first: one file is one death, of whichever process comes by first, and a
// file that is gone is a point that was visited.
type Point string

// The points of a shard, in the order of a gang's life.
const (
	ShardRegistered  Point = "shard-registered"  // its key is there, it has seen no table
	TakeoverRead     Point = "takeover-read"     // intents and reservations were read, the pods not listed
	TakeoverListed   Point = "takeover-listed"   // the pods were listed, nothing was offered
	IntentsSent      Point = "intents-sent"      // the transaction is on its way
	IntentsDurable   Point = "intents-durable"   // it was answered; no Binding was sent
	BindingUnsent    Point = "binding-unsent"    // those of the same gang may have been
	BindingSent      Point = "binding-sent"      // the Binding is on its way
	BindingAnswered  Point = "binding-answered"  // it took effect, the core does not know
	ResolveSent      Point = "resolve-sent"      // the patch that resolves a Binding is on its way
	ResolveAnswered  Point = "resolve-answered"  // the pod came back, the row is still there
	IntentsDeleted   Point = "intents-deleted"   // resolved intents are gone, the core does not know
	IntentsRewritten Point = "intents-rewritten" // an heir's, likewise
	EvictionMarked   Point = "eviction-marked"   // the pod has its condition and was not deleted
	EvictionSent     Point = "eviction-sent"     // the delete was answered
	StatusWritten    Point = "status-written"    // of a Queue or a PodGroup
	PodExplained     Point = "pod-explained"     // a pod's condition
	ShardStopping    Point = "shard-stopping"    // SIGTERM came, its key is still there
	ShardGone        Point = "shard-gone"        // its key is gone, it still listens
)

// The points of a coordinator.
const (
	TermWon         Point = "term-won"         // the leader key is there, the state was not read
	TermLoaded      Point = "term-loaded"      // the state was read, nobody was answered
	CommitSent      Point = "commit-sent"      // the transaction is on its way
	CommitUncertain Point = "commit-uncertain" // its answer is missing, nothing was done about it
	GrantDurable    Point = "grant-durable"    // reservations were written, nobody was answered
	CloseDurable    Point = "close-durable"    // a reservation is closing, likewise
	ReleaseDurable  Point = "release-durable"  // a reservation was deleted, likewise
	TableDurable    Point = "table-durable"    // the table was written
	LimitsDurable   Point = "limits-durable"   // limits in force were written
	QueueWritten    Point = "queue-written"    // a Queue was made, or its finalizer set or removed
	TermEnding      Point = "term-ending"      // SIGTERM came, the leader key is still there
)

// Points lists all of them.
var Points = []Point{
	ShardRegistered, TakeoverRead, TakeoverListed, IntentsSent, IntentsDurable, BindingUnsent, BindingSent, BindingAnswered,
	ResolveSent, ResolveAnswered, IntentsDeleted, IntentsRewritten, EvictionMarked, EvictionSent, StatusWritten, PodExplained,
	ShardStopping, ShardGone,
	TermWon, TermLoaded, CommitSent, CommitUncertain, GrantDurable, CloseDurable, ReleaseDurable, TableDurable, LimitsDurable,
	QueueWritten, TermEnding,
}
