package event

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Events of the node core.

// NodeSeen brings a node that was added or changed; whoever owns it.
type NodeSeen struct{ Node *api.Node }

// NodeVolumes says how many volumes of CSI drivers a node can have, and has, of drivers that limit them, and which in-tree plugins it has not
// migrated to CSI, of those that matter; empty when there are none. The node itself may come later.
type NodeVolumes struct {
	Name       string
	Attachable []api.Attachable
	Unmigrated []string
}

// NodeGone says that a node was deleted.
type NodeGone struct{ Name string }

// IntentsWritten answers WriteIntents, always with a definite outcome.
type IntentsWritten struct {
	N           uint64
	Outcome     WriteOutcome
	Moved       []string // with ReservationMoved: UIDs of the gangs whose reservation is another than the one named
	ModRevision int64    // with Written: at which the key was made
}

// WriteOutcome is how a fenced write ended.
type WriteOutcome uint8

// Outcomes of WriteIntents. SessionLost: this incarnation may not write any more; the process is about to end. Unwritable: the
// record is too large for the control store or cannot be encoded; nothing was written, and the session goes on.
const (
	Written WriteOutcome = iota + 1
	TableMoved
	ReservationMoved
	SessionLost
	Unwritable
)

// RowID names one row of one intent key.
type RowID struct {
	Incarnation api.Incarnation
	N           uint64
	PodUID      string
}

// VolumesBound answers BindVolumes: all volumes are bound, or Failed says why they are not.
type VolumesBound struct {
	Row    RowID
	Failed string
}

// BindDone answers BindPod.
type BindDone struct {
	Row     RowID
	Outcome BindOutcome
	Why     string // with BindRejected: the API server's words
}

// BindOutcome is what the API server said to a Binding.
type BindOutcome uint8

// Outcomes of BindPod. Everything but BindOK leaves open whether the pod has a node.
const (
	BindOK       BindOutcome = iota + 1
	BindConflict             // 409
	BindNotFound             // 404
	BindUnknown              // no answer, or any other
	BindRejected             // it said no, and may say so again: a policy, a webhook or a missing right forbids it
)

// ResolveDone answers ResolveBinding.
type ResolveDone struct {
	Row     RowID
	Outcome ResolveOutcome
	Node    string // with ResolvedBound
	Version string // with ResolvedFree: the resourceVersion that the patch made
}

// ResolveOutcome is what a pod turned out to be.
type ResolveOutcome uint8

// Outcomes of ResolveBinding.
const (
	ResolvedBound ResolveOutcome = iota + 1 // the pod that the patch returned has a node
	ResolvedFree                            // it has none: Bindings that carry an older resourceVersion can no longer land
	ResolvedGone                            // 404, or another UID
	ResolveRetry                            // anything else: not known yet
)

// IntentKey names an own intent key at a revision; 0 means that it does not exist.
type IntentKey struct {
	N           uint64
	ModRevision int64
}

// IntentsDeleted answers DeleteIntents: each of its keys with the revision it has now, 0 once it is gone.
type IntentsDeleted struct{ Keys []IntentKey }

// IntentsRewritten answers RewriteIntents with the key as it is now: when Done, as asked; otherwise as somebody else left
// it. ModRevision is 0 when the key does not exist.
type IntentsRewritten struct {
	Incarnation api.Incarnation
	N           uint64
	Done        bool
	Unwritable  bool // the new record cannot be written; the key is as it was
	ModRevision int64
	Record      *wire.IntentsRecord
}

// Outputs of the node core.

// WriteIntents asks for the one transaction that makes rows durable: the key intents/<self>/<N> must be absent, the table
// and every reservation named must be at exactly the revisions given. At most one is in flight.
type WriteIntents struct {
	N             uint64
	Record        *wire.IntentsRecord
	TableRevision int64
	Reservations  []ReservationFence
}

// ReservationFence names a reservation and the only revision that it may have.
type ReservationFence struct {
	Bucket   api.BucketID
	GangUID  string
	Revision int64
}

// BindPod asks for one Binding, with exactly this UID and resourceVersion, sent once, carrying the label api.LabelGang,
// and with Until api.AnnotationUntil.
type BindPod struct {
	Row                   RowID // its PodUID is the Binding's
	ResourceVersion       string
	Namespace, Name, Node string
	Gang                  string // UID
	Until                 int64  // a Unix time in seconds, 0 for none
}

// Marks are the labels and annotations that the Binding carries onto the pod.
func (o BindPod) Marks() (labels, annotations map[string]string) {
	if o.Until > 0 {
		annotations = map[string]string{api.AnnotationUntil: api.FormatUntil(o.Until)}
	}
	return map[string]string{api.LabelGang: o.Gang}, annotations
}

// BindVolumes asks to bind the volumes of a row's pod that are bound once its node is decided, and is answered with VolumesBound unless
// EndVolumes comes first.
type BindVolumes struct {
	Row                   RowID
	Namespace, Name, Node string
}

// EndVolumes ends a BindVolumes, answered or not. With Undo what only asks for a volume on that node is taken back.
type EndVolumes struct {
	Row  RowID
	Undo bool
}

// ResolveBinding asks what became of a row's Binding, and to make sure that nothing comes of it later: where the pod has no node
// and still has ResourceVersion, which the Binding names, it is changed to Value, with the UID as precondition. Value was
// never used before.
type ResolveBinding struct {
	Row             RowID
	ResourceVersion string
	Namespace, Name string
	Value           string
	Answered        bool // the API server rejected the Binding: nothing comes of it later
}

// DeleteIntents asks to delete own keys, each at exactly its ModRevision, in one transaction: all or none.
type DeleteIntents struct{ Keys []IntentKey }

// RewriteIntents asks to replace the record of another incarnation's key, or to delete the key when Record is nil, if key
// and table are at exactly the revisions named.
type RewriteIntents struct {
	Incarnation   api.Incarnation
	N             uint64
	ModRevision   int64
	Record        *wire.IntentsRecord
	TableRevision int64
}

func (NodeSeen) IsEvent()         {}
func (NodeVolumes) IsEvent()      {}
func (NodeGone) IsEvent()         {}
func (IntentsWritten) IsEvent()   {}
func (BindDone) IsEvent()         {}
func (VolumesBound) IsEvent()     {}
func (ResolveDone) IsEvent()      {}
func (IntentsDeleted) IsEvent()   {}
func (IntentsRewritten) IsEvent() {}

func (WriteIntents) IsOutput()   {}
func (BindPod) IsOutput()        {}
func (BindVolumes) IsOutput()    {}
func (EndVolumes) IsOutput()     {}
func (ResolveBinding) IsOutput() {}
func (DeleteIntents) IsOutput()  {}
func (RewriteIntents) IsOutput() {}
