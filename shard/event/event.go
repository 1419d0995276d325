// Package event holds the input and output of the cores of a shard, shard/home, shard/node and shard/volumes: events
// go into Step(now, event), and outputs come from Outputs(). The shell (package shard) carries out the outputs and
// turns every result into an event. This package decides nothing.
//
// Rules:
//   - Home and node are given every event that concerns the process, in the same order. Each ignores events of the
//     other.
//   - What the watches show of pods, nodes and storage goes to the volumes core first: home and node hear what it
//     makes of it (Tell).
//   - Events and outputs are immutable: messages, pods, nodes and records are shared, not copied.
//   - Every output that requests something carries an id that its result repeats, so that a late result finds its
//     request.
//   - The shell answers each BindVolumes that is not ended first, and each WriteIntents, DeleteIntents,
//     RewriteIntents, BindPod and ResolveBinding exactly once, and the newest ReadStore and ListPods, however long
//     that takes, or it ends the process.
//
// A takeover takes three steps, in this order: TableSeen; ReadStore, answered by StoreRead; ListPods, answered by
// PodsReplaced. Sequence connects them: the takeover for the newest table is complete at the PodsReplaced that has
// the Sequence of the StoreRead before it, if the Revision of that StoreRead is at least that of the table.
package event

import (
	"log/slog"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// ToCoordinator stands for whichever coordinator is active, in Send.To and Message.From.
const ToCoordinator api.Incarnation = "coordinator"

// Event is what a core is told.
type Event interface{ IsEvent() }

// Output is what a core wants done. One that is a Remark or a Write is carried out by the shell alone: the simulator,
// the explorer and the lab have a default for each of the two kinds, and name only those of which they judge more.
type Output interface{ IsOutput() }

// Remark is an output that tells people something. It is never answered, and may be lost.
type Remark interface {
	Output
	IsRemark()
}

// Write is an output that asks for a change of one object in the API server. A StatusWritten of its ID answers it.
type Write interface {
	Output
	WriteID() uint64
}

// TableSeen brings the table as it is in the control store. Table is never nil.
type TableSeen struct{ Table *api.Table }

// StoreRead answers ReadStore: what it asked for, at one revision.
type StoreRead struct {
	Sequence     uint64
	Revision     int64
	Reservations []StoredReservation
	Intents      []StoredIntents
}

// StoredReservation is a reservation as it was found. A record that cannot be read has a nil Record.
type StoredReservation struct {
	ModRevision int64
	Record      *wire.ReservationRecord
}

// StoredIntents is an intent key as it was found. A record that cannot be read has a nil Record: its rows are unknown.
type StoredIntents struct {
	Incarnation api.Incarnation
	N           uint64
	ModRevision int64
	Record      *wire.IntentsRecord
}

// PodsReplaced brings all pods of the cluster, from a consistent list; what it lacks is gone. Sequence is that of the
// ListPods it answers, 0 when the watch fell behind and listed again by itself. PodSeen and PodGone after it come from
// the watch that starts at this list. AfterLog says that the list was begun after the last LogRead.
//
// With Seen there was no list: the watch has come as far as one would, and all that it says was told before. Pods are
// those that a takeover has to be shown once more: that the home core does not keep (Others), that are on nodes of
// buckets that were gained, and that rows of this shard are about. The pod of a row is gone if it is not among them.
type PodsReplaced struct {
	Sequence uint64
	Pods     []*api.Pod
	AfterLog bool
	Seen     bool
	Others   []*api.Pod
}

// PodSeen brings a pod that was added or changed.
type PodSeen struct{ Pod *api.Pod }

// PodGone says that a pod was deleted.
type PodGone struct{ UID, Namespace, Name string }

// LogRead brings the intents of all shards at one revision. LogSeen after it brings what follows. When it comes
// again, changes were missed, and pods are listed again.
type LogRead struct {
	Revision int64
	Intents  []LoggedIntents
}

// LogSeen brings the intent keys that one transaction wrote or deleted, in order of their revisions.
type LogSeen struct {
	Revision int64
	Intents  []LoggedIntents
}

// LoggedIntents is an intent key as it is now. One that was deleted, or cannot be read, has a nil Record.
type LoggedIntents struct {
	Incarnation api.Incarnation
	N           uint64
	Place       int64 // the revision at which the key was created
	Record      *wire.IntentsRecord
}

// Message is what a peer, or the other core of this process, says.
type Message struct {
	From api.Incarnation
	Body *wire.Envelope
}

// Tick comes every 100 ms.
type Tick struct{}

// Drained may come after any event: the shell has no further one at hand at this moment. What was put off until more is
// known is done now; a Tick does the same.
type Drained struct{}

// Send says something to a peer, to this process itself (To is its own incarnation), or to ToCoordinator. It may be
// lost.
type Send struct {
	To   api.Incarnation
	Body *wire.Envelope
}

// ReadStore asks for the reservations of Buckets, which are sorted, and for all intents, at one revision, at least
// MinRevision. A newer Sequence replaces an older one that is not answered yet. The node core asks for both cores: for
// all buckets that the shard has by the newest table.
type ReadStore struct {
	Sequence    uint64
	MinRevision int64
	Buckets     []api.BucketID
}

// ListPods asks for all pods as a consistent list would show them that was begun after this output was made. A newer
// Sequence replaces an older one that is not answered yet.
type ListPods struct{ Sequence uint64 }

// ObjectEvent asks for a Kubernetes event, where users of an object look first.
type ObjectEvent struct {
	About           Object
	Warning         bool
	Reason, Message string
}

// Object is what a Kubernetes event is about.
type Object struct {
	Kind                 ObjectKind
	Group                api.GroupKind // of kind Group
	Namespace, Name, UID string        // of kind Controller those of a pod that it made
}

// ObjectKind tells objects apart about which there are Kubernetes events.
type ObjectKind uint8

const (
	Group ObjectKind = iota
	Pod
	Controller
	Node
)

// Span is a finished span for the tracer.
type Span struct {
	TraceID, SpanID, Parent []byte // 16, 8 and 8 bytes; Parent empty for a root
	Name                    string
	Start, End              time.Time
	Attributes              []slog.Attr
	Failed                  string // why, empty when it went well
}

// Log is a line for an operator. At level Error it reports a broken invariant of ours.
type Log struct {
	Level   slog.Level
	Message string
	Attrs   []slog.Attr
}

func (TableSeen) IsEvent()    {}
func (StoreRead) IsEvent()    {}
func (PodsReplaced) IsEvent() {}
func (PodSeen) IsEvent()      {}
func (PodGone) IsEvent()      {}
func (LogRead) IsEvent()      {}
func (LogSeen) IsEvent()      {}
func (Message) IsEvent()      {}
func (Tick) IsEvent()         {}
func (Drained) IsEvent()      {}

func (Send) IsOutput()        {}
func (ReadStore) IsOutput()   {}
func (ListPods) IsOutput()    {}
func (ObjectEvent) IsOutput() {}
func (Span) IsOutput()        {}
func (Log) IsOutput()         {}

func (ObjectEvent) IsRemark() {}
func (Span) IsRemark()        {}
func (Log) IsRemark()         {}
