package coordinator

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Config holds the limits of time and size. A zero field takes the default named beside it.
type Config struct {
	BatchOps      int           // 120: operations in a transaction (etcd's bound is 128, the fences take some)
	BatchBytes    int           // 1 MiB: bytes in a transaction of more than one operation, as they are estimated (size.go)
	EarmarkAfter  time.Duration // 60 s: a request that has been denied for so long gets an earmark
	EarmarkFor    time.Duration // 10 min: the shortest window of earmarks (earmarks.go)
	CommitEvery   time.Duration // 0: between two transactions that are not full, so that what comes meanwhile goes together
	ReportEvery   time.Duration // 200 ms: between two batches of QueueUsages
	PatientFor    time.Duration // 2 min: how long one gang may be the patient one
	KnownEvery    time.Duration // 30 s: between two lists of reservations sent to their homes
	HalfGoneLimit time.Duration // 30 s: how long nothing moves when more than half of the shards are gone
	FirstTable    time.Duration // 1 s: how long the first table waits for more shards after the first one
	JoinEvery     time.Duration // 500 ms: between two steps that move buckets between living shards
	JoinBuckets   int           // 64: buckets that one such step moves
	Quiet         time.Duration // 3 s: no such step so soon after a takeover
	RetryEvery    time.Duration // 5 s: before the shell is asked again for a finalizer or a missing queue
	WordsEvery    time.Duration // 2 s: a Denied is not sent again sooner; 30 times that when only its numbers changed
	Asks          int           // 4096: different demand classes looked at for one transaction after quota was freed; each queue has its part (demand.go)
	Sweep         int           // 200: waiting requests tested again at each Tick, whatever is believed of them
	Ungated       bool          // more may be admitted than the nodes have (supply.go)
}

// Elected is what a new leader starts from, all read at one revision at which its leadership and the store's identity
// were compared.
type Elected struct {
	Now          time.Time
	Term         int64
	Incarnation  api.Incarnation
	Sequence     uint64              // value of the key seq after the leader's fenced no-op; each Txn writes the next one
	Limits       []StoredLimits      // all of queues/
	Reservations []StoredReservation // all of reservations/
	Table        *api.Table          // nil when there is none
	Shards       []*wire.ShardRecord // all of shards/

	// FreshStore tells that this store was made at this start or has never been refilled: reservations may be missing.
	FreshStore bool
	// MaxStatusEpoch is the largest epoch found in the statuses of Queues, 0 when they were not read before. Above the
	// table's epoch it means that the store is older than the cluster.
	MaxStatusEpoch api.Epoch
}

// StoredLimits is a record under queues/. Record is nil when it could not be read.
type StoredLimits struct {
	Key      string // for the log
	Revision int64  // ModRevision
	Record   *wire.LimitsRecord
}

// StoredReservation is a record under reservations/. Record is nil when it could not be read.
type StoredReservation struct {
	Key      string // for the log
	Revision int64  // ModRevision
	Record   *wire.ReservationRecord
}

// Event is something that happened, for Step.
type Event interface{ event() }

type (
	// QueueSeen: a Queue object as the API server shows it now.
	QueueSeen struct {
		Listed          bool // by a consistent list: newer than everything seen before, whatever its resourceVersion
		Name            string
		UID             string
		ResourceVersion string
		Generation      int64
		Capability      api.Resources
		Guarantee       api.Resources
		Deserved        api.Resources
		Weight          *uint32               // among its siblings, nil for 1
		Priority        int32                 // likewise
		Policy          *wire.QueuePolicy     // who may be evicted for whom, nil for the defaults
		UserLimits      []*wire.UserLimit     // what users may be charged
		Invalid         string                // why the spec could not be read, naming the field; the two vectors are not looked at then
		Namespaces      *metav1.LabelSelector // which namespaces may use the queue and what lies below it, nil for all
		Closed          bool
		Deleting        bool // has a deletion timestamp
		HasFinalizer    bool // ours
		StatusEpoch     api.Epoch
	}
	// QueueGone: the object is not there any more.
	QueueGone struct{ Name, UID string }
	// QueuesSynced: every Queue of the first list was delivered. Before it nothing is judged to be missing.
	QueuesSynced struct{}

	// NamespaceSeen: a namespace as the API server shows it now.
	NamespaceSeen struct {
		Name   string
		Labels map[string]string
	}
	// NamespaceGone: it is not there any more.
	NamespaceGone struct{ Name string }
	// NamespacesSynced: every namespace of the first list was delivered. Before it nobody may use a queue with a selector.
	NamespacesSynced struct{}

	// ShardUp: a key under shards/ appeared or changed.
	ShardUp struct{ Record *wire.ShardRecord }
	// ShardDown: its lease is over, or it is suspected and did not answer.
	ShardDown struct{ Incarnation api.Incarnation }
	// ShardLinked: messages reach it (again).
	ShardLinked struct{ Incarnation api.Incarnation }

	// Message came from a shard.
	Message struct {
		From api.Incarnation
		Body *wire.Envelope
	}
	// TxnDone: the transaction in flight was committed at Revision. There is no event for its failure: the shell ends the
	// term and drops the core.
	TxnDone struct {
		ID       uint64
		Revision int64
	}
	// Gathered comes when it is the time that Due named. A shell that never says it makes what gathers wait for the Tick.
	Gathered struct{}
	// Tick comes every 100 ms.
	Tick struct{}
)

func (QueueSeen) event()        {}
func (QueueGone) event()        {}
func (QueuesSynced) event()     {}
func (NamespaceSeen) event()    {}
func (NamespaceGone) event()    {}
func (NamespacesSynced) event() {}
func (ShardUp) event()          {}
func (ShardDown) event()        {}
func (ShardLinked) event()      {}
func (Message) event()          {}
func (TxnDone) event()          {}
func (Gathered) event()         {}
func (Tick) event()             {}

// Output is something for the shell to do.
type Output interface{ output() }

// Remark is an output that tells people something: the shell alone carries it out.
type Remark interface {
	Output
	remark()
}

type (
	// Send a message to a shard; it may be lost.
	Send struct {
		To   api.Incarnation
		Body *wire.Envelope
	}
	// Txn is to be committed: all operations or none, fenced with the store's identity, the leader's key and seq. ID is
	// the value it writes into seq. None is output before the TxnDone of the one before.
	Txn struct {
		ID  uint64
		Ops []Op
	}
	// SetFinalizer of ours on the Queue with this UID. Asked again while it is missing.
	SetFinalizer struct{ Queue, UID string }
	// RemoveFinalizer of ours from the Queue with this UID. Asked again while it is there.
	RemoveFinalizer struct{ Queue, UID string }
	// CreateQueue with an empty spec; it may exist by now. Asked again while it is missing.
	CreateQueue struct{ Name string }
	// Trace reports the span of an admission whose request carried a trace context.
	Trace struct{ Span api.Span }
	// Log a line for operators; there is none for each gang.
	Log struct {
		Level   Level
		Message string
		Args    []any // keys and values in turn, as log/slog takes them
	}
)

func (Send) output()            {}
func (Txn) output()             {}
func (SetFinalizer) output()    {}
func (RemoveFinalizer) output() {}
func (CreateQueue) output()     {}
func (Trace) output()           {}
func (Log) output()             {}

func (Trace) remark() {}
func (Log) remark()   {}

func (c *Core) send(to api.Incarnation, body *wire.Envelope) {
	c.out = append(c.out, Send{To: to, Body: body})
}

func (c *Core) log(level Level, message string, args ...any) {
	c.out = append(c.out, Log{Level: level, Message: message, Args: args})
}

// Level of a log line, numbered as log/slog does.
type Level int

const (
	LevelInfo  Level = 0
	LevelWarn  Level = 4
	LevelError Level = 8
)

// Op is one operation of a transaction. No key occurs twice in one. The ModRevision of every key put is TxnDone.Revision.
type Op interface{ op() }

type (
	// PutReservation writes reservations/<bucket of Record.Gang.Queue>/<Record.Gang.Uid>.
	PutReservation struct{ Record *wire.ReservationRecord }
	// DeleteReservation removes it.
	DeleteReservation struct{ Queue, GangUID string }
	// PutLimits writes queues/<Record.Queue>.
	PutLimits struct{ Record *wire.LimitsRecord }
	// DeleteLimits removes it.
	DeleteLimits struct{ Queue string }
	// PutTable writes table. Its Revision is not set yet.
	PutTable struct{ Table *api.Table }
)

func (PutReservation) op()    {}
func (DeleteReservation) op() {}
func (PutLimits) op()         {}
func (DeleteLimits) op()      {}
func (PutTable) op()          {}

// sender reports whether the table names the sender of a request for the bucket of the gang's queue, since before the
// epoch under which it asks.
func (c *Core) sender(m Message) (gangKey, bool) {
	var ref *wire.GangRef
	var epoch uint64
	switch body := m.Body.GetBody().(type) {
	case *wire.Envelope_Reserve:
		ref, epoch = body.Reserve.GetGang(), body.Reserve.GetTableEpoch()
	case *wire.Envelope_Unreserve:
		ref, epoch = body.Unreserve.GetGang(), body.Unreserve.GetTableEpoch()
	case *wire.Envelope_Close:
		ref, epoch = body.Close.GetGang(), body.Close.GetTableEpoch()
	case *wire.Envelope_Claim:
		ref, epoch = body.Claim.GetGang(), body.Claim.GetTableEpoch()
	case *wire.Envelope_Condemn:
		ref, epoch = body.Condemn.GetGang(), body.Condemn.GetTableEpoch()
	case *wire.Envelope_Stuck:
		ref, epoch = body.Stuck.GetGang(), body.Stuck.GetTableEpoch()
	}
	if c.owners.Table() == nil || ref.GetUid() == "" || ref.GetQueue() == "" {
		return gangKey{}, false
	}
	bucket := api.BucketOf(ref.GetQueue())
	owns := c.owners.Table().Owner(bucket) == m.From && api.Epoch(epoch) >= c.owners.Table().Changed[bucket]
	return gangKey{ref.GetQueue(), ref.GetUid()}, owns
}
