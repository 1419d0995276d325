package event

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// Events of the home core.

// PodGroupSeen brings a PodGroup that was added or changed: one of Basalt's, or one of another kind that is read as one.
type PodGroupSeen struct {
	PodGroup *v1beta1.PodGroup
	Foreign  *api.ForeignGroup // of another kind, or of Basalt's with minResources
}

// PodGroupGone says that a PodGroup was deleted.
type PodGroupGone struct {
	UID, Namespace, Name string
	Kind                 api.GroupKind
}

// QueueSeen brings a Queue that was added or changed.
type QueueSeen struct{ Queue *v1beta1.Queue }

// QueueGone says that a Queue was deleted.
type QueueGone struct{ Name, UID string }

// NamespaceSeen brings a namespace, its labels, and the value of its label api.LabelQueue, "" when it has none.
type NamespaceSeen struct {
	Name, Queue string
	Labels      map[string]string
}

// NamespaceGone says that a namespace was deleted.
type NamespaceGone struct{ Name string }

// PriorityClassSeen brings a PriorityClass.
type PriorityClassSeen struct {
	Name  string
	Value int64
}

// PriorityClassGone says that a PriorityClass was deleted.
type PriorityClassGone struct{ Name string }

// BudgetSeen brings a PodDisruptionBudget that was added or changed.
type BudgetSeen struct{ Budget *api.DisruptionBudget }

// BudgetGone says that a PodDisruptionBudget was deleted.
type BudgetGone struct{ Namespace, Name, UID string }

// CoordinatorSeen says who coordinates, and in which term.
type CoordinatorSeen struct {
	Term        int64
	Incarnation api.Incarnation
}

// GroupWriter says whether statuses of a kind of group are Basalt's to write now, and of Volcano's kind, whether pods of a name that is
// lent (api.Pod.Lent) are Basalt's to place. Statuses of Basalt's own kind always are.
type GroupWriter struct {
	Kind   api.GroupKind
	Writes bool
}

// StatusWritten answers WriteQueueStatus, WritePodGroupStatus, WriteGroupStatus, WritePodCondition and EvictPod; ID is that of the output.
type StatusWritten struct {
	ID              uint64
	Outcome         StatusOutcome
	ResourceVersion string // with WritePodCondition and StatusOK: the version that the pod has now
	Error           string
}

// StatusOutcome is what the API server said to a write.
type StatusOutcome uint8

// Outcomes of a write.
const (
	StatusOK       StatusOutcome = iota + 1
	StatusGone                   // no object of this UID
	StatusConflict               // 409 or 422: somebody else's statement stands
	StatusFailed                 // anything else: may be tried again
)

// Outputs of the home core.

// WriteQueueStatus asks for a merge patch of a Queue's status.
type WriteQueueStatus struct {
	ID         uint64
	Queue, UID string
	Status     *v1beta1.QueueStatus
}

// WritePodGroupStatus asks for a merge patch of a PodGroup's status.
type WritePodGroupStatus struct {
	ID                   uint64
	Namespace, Name, UID string
	Status               *v1beta1.PodGroupStatus
}

// WriteGroupStatus asks for the status of a group of another kind than Basalt's. It is answered with StatusWritten.
type WriteGroupStatus struct {
	ID                   uint64
	Kind                 api.GroupKind
	Namespace, Name, UID string
	Generation           int64
	Status, Shown        api.GroupStatus // what it is to say, and what it was seen to say
}

// WritePodCondition asks for PodScheduled=False on a pod in exactly this version: one that was bound meanwhile must not be
// told that it waits. It changes the pod's version, so that no Commit may name the pod until the answer is here.
type WritePodCondition struct {
	ID                   uint64
	Namespace, Name, UID string
	ResourceVersion      string
	Reason, Message      string
}

// EvictPod asks for the condition DisruptionTarget and then for the pod's deletion, both with its UID as precondition. Before
// that the reservation of its gang is read from the control store: the pod is evicted only if that is closed, or condemns the
// pod, and is not of a later attempt. The core has seen the pod bound, so a pod that was bound under a later attempt is always found out: its reservation
// was written before it was bound. A core that does not know yet that it lost the bucket needs this.
type EvictPod struct {
	ID                   uint64
	Namespace, Name, UID string
	Message              string

	Bucket  api.BucketID // of the gang's queue
	GangUID string
	Attempt uint64 // that is closed
}

func (PodGroupSeen) IsEvent()      {}
func (PodGroupGone) IsEvent()      {}
func (QueueSeen) IsEvent()         {}
func (QueueGone) IsEvent()         {}
func (NamespaceSeen) IsEvent()     {}
func (NamespaceGone) IsEvent()     {}
func (PriorityClassSeen) IsEvent() {}
func (PriorityClassGone) IsEvent() {}
func (BudgetSeen) IsEvent()        {}
func (BudgetGone) IsEvent()        {}
func (CoordinatorSeen) IsEvent()   {}
func (GroupWriter) IsEvent()       {}
func (StatusWritten) IsEvent()     {}

func (WriteQueueStatus) IsOutput()    {}
func (WritePodGroupStatus) IsOutput() {}
func (WriteGroupStatus) IsOutput()    {}
func (WritePodCondition) IsOutput()   {}
func (EvictPod) IsOutput()            {}

func (o WriteQueueStatus) WriteID() uint64    { return o.ID }
func (o WritePodGroupStatus) WriteID() uint64 { return o.ID }
func (o WriteGroupStatus) WriteID() uint64    { return o.ID }
func (o WritePodCondition) WriteID() uint64   { return o.ID }
func (o EvictPod) WriteID() uint64            { return o.ID }
