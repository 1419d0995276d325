package v1beta1

import "basalt.dev/basalt/api"

// SchedulerName is what pods put into spec.schedulerName.
const SchedulerName = api.SchedulerName

// Labels that users set. See package api for their meaning.
const (
	LabelPodGroup = api.LabelPodGroup
	LabelQueue    = api.LabelQueue

	LabelPreemptible = api.LabelPreemptible
)

// FinalizerCharged stays on a Queue until no reservation is charged to it or below it.
const FinalizerCharged = "scheduling.basalt.dev/charged"

// Condition types.
const (
	// ConditionReady, on a Queue: its limits are in force and gangs of its subtree can be admitted.
	ConditionReady = "Ready"
	// ConditionQuotaReserved, on a PodGroup: its pods are charged to its queue and every ancestor.
	ConditionQuotaReserved = "QuotaReserved"
	// ConditionPodGroupInitiallyScheduled, on a PodGroup: at least minCount of its pods have been bound. Once True it
	// stays so, as upstream's condition of that name does.
	ConditionPodGroupInitiallyScheduled = "PodGroupInitiallyScheduled"
)

// ConditionOrdered, on a Queue with spec.order: its gangs are ordered by that.
const ConditionOrdered = "Ordered"

// Reasons of a Queue's Ordered condition.
const (
	ReasonOrderValid   = "OrderValid"   // True
	ReasonOrderInvalid = "OrderInvalid" // False: the expression does not compile; the message says where and why
)

// ReasonOrderFailed is the reason of the event on a PodGroup, or a pod, for which its queue's spec.order fails.
const ReasonOrderFailed = "OrderFailed"

// Reasons of a Queue's Ready condition. The first two are not problems of the queue.
const (
	ReasonReady         = "Ready"         // True: limits in force. A queue with children is Ready, too, and admits nothing itself
	ReasonGuaranteeCut  = "GuaranteeCut"  // True: the guarantee does not fit the parent and was cut in proportion, or no ancestor has a limit to keep it out of
	ReasonClosed        = "Closed"        // False: spec.closed
	ReasonParentMissing = "ParentMissing" // False: an ancestor has no object; limits stay in force, nothing is admitted
	ReasonParentClosed  = "ParentClosed"  // False: an ancestor is closed
	ReasonDeleting      = "Deleting"      // False: deleted, and kept by FinalizerCharged until it holds nothing
	ReasonInvalid       = "Invalid"       // False: the name or a limit cannot be read; the limits in force before stay
	ReasonUnprotected   = "Unprotected"   // False: FinalizerCharged cannot be set, so nothing is admitted: the queue could be deleted under its gangs
)

// MessageReady is the message of a Ready condition with nothing to say.
const MessageReady = "limits are in force"

// ReasonRolledBack is the reason of the condition DisruptionTarget=True of a pod that is evicted because its gang could not be
// placed as a whole, and of the event on its PodGroup.
const ReasonRolledBack = "RolledBack"

// ReasonShrunk is the reason of the event on a PodGroup whose gang loses pods beyond its minimum so that another gang can start.
const ReasonShrunk = "Shrunk"

// ReasonClaimed is the reason of the event on a PodGroup, or a pod without one, for which others are evicted.
const ReasonClaimed = "Claimed"

// ConditionDisruptionTarget is the condition of a PodGroup whose gang is evicted as a whole. It is Kubernetes'
// own word, as is its reason, PreemptionByScheduler.
const ConditionDisruptionTarget = "DisruptionTarget"

// ReasonBoundByOthers is the reason of the event on a pod that Basalt had to place and somebody else bound.
const ReasonBoundByOthers = "BoundByOthers"

// ReasonFailedScheduling is the reason of the event on a pod or PodGroup that says why it waits.
const ReasonFailedScheduling = "FailedScheduling"

// ReasonWaitingForVolumes is the reason of the event on a pod or PodGroup whose nodes are chosen, and whose volumes take long to be bound.
const ReasonWaitingForVolumes = "WaitingForVolumes"

// ReasonUnheeded is the reason of the event on a pod that is placed without its preferences, which exceed a bound.
const ReasonUnheeded = "PreferencesIgnored"

// ReasonAntiAffinityIgnored is the reason of the event on a pod with a required anti-affinity term about other
// namespaces, whose own may not repel them.
const ReasonAntiAffinityIgnored = "AntiAffinityIgnored"

// ReasonUnknownKey is the reason of the event on a pod with a label or annotation that begins like those of Basalt and
// is none.
const ReasonUnknownKey = "UnknownKey"

// Reasons of a PodGroup's QuotaReserved condition.
const (
	ReasonReserved               = "Reserved"               // True
	ReasonPending                = "Pending"                // False: requested, not answered yet
	ReasonQuotaExceeded          = "QuotaExceeded"          // False: the message names the queue, the resource and the amount that is missing
	ReasonSupplyExceeded         = "SupplyExceeded"         // False: quota would admit it, and the nodes have no room for more than is admitted. Its pods are Unschedulable: autoscalers buy nodes for it
	ReasonUnpreemptible          = "Unpreemptible"          // False: it may not be evicted, and its queue would have more than it deserves of what such gangs use
	ReasonTooLong                = "TooLong"                // False: it may run for longer than its queue allows
	ReasonGated                  = "Gated"                  // False: gates of its PodGroup have not been removed
	ReasonUserLimit              = "UserLimit"              // False: its user has as much as a queue of its path lets him
	ReasonQueueNotFound          = "QueueNotFound"          // False: no Queue of that name
	ReasonParentNotFound         = "ParentNotFound"         // False: the Queue exists, an ancestor does not
	ReasonQueueClosed            = "QueueClosed"            // False: the queue, or an ancestor, is closed or deleted
	ReasonQueueNotLeaf           = "QueueNotLeaf"           // False: the queue has children; gangs live in leaves
	ReasonQueueNotAllowed        = "QueueNotAllowed"        // False: the namespace may not use the queue; the message names both
	ReasonQueueMismatch          = "QueueMismatch"          // False: pods of the group name different queues
	ReasonFinished               = "Finished"               // its pods have ended, and as many as minCount have succeeded
	ReasonNotEnoughPods          = "NotEnoughPods"          // False: fewer than minCount pods exist that may be scheduled
	ReasonNotEnoughPodsOfTask    = "NotEnoughPodsOfTask"    // False: of a Volcano PodGroup, fewer than minTaskMember of a task
	ReasonNeverFits              = "NeverFits"              // False: asks for more than a queue of its path will ever have, or than may be asked for
	ReasonCoordinatorUnavailable = "CoordinatorUnavailable" // False: no coordinator answers; what is admitted goes on
)

// Reasons of a PodGroup's PodGroupInitiallyScheduled condition, beside QuotaExceeded, SupplyExceeded, NotEnoughPods and NeverFits. Those
// of a pod's PodScheduled=False are Unschedulable, QuotaExceeded, NotEnoughPods, NotEnoughPodsOfTask, PodGroupNotFound,
// UnsupportedConstraint, VolumesNotBound, NeverFits, QueueNotAllowed, BindingRejected and, while another gang is
// charged for bound pods of the group, Pending.
const (
	ReasonScheduled             = "Scheduled"             // True
	ReasonWaiting               = "Waiting"               // False: on its way. Pods say so if they said anything else
	ReasonUnschedulable         = "Unschedulable"         // False: quota is reserved and no node fits. Autoscalers buy nodes for it. Pods say so for SupplyExceeded and NoNodeFits, too, and in no other case
	ReasonConstraintUnmet       = "ConstraintUnmet"       // False: what the pods require of other pods is not there, or too much to be counted, or no topology domain takes them before others are placed or leave: no node is to be bought
	ReasonNoNodeFits            = "NoNodeFits"            // False: quota would admit it, and no node would take a pod of it even if the node were empty, or all nodes together not all of it, or there are too few topology domains
	ReasonPreempted             = "Preempted"             // False: its gang is evicted so that another one can start; also of the event that says so
	ReasonStale                 = "Stale"                 // False: it lost pods, and starts anew; also of an event
	ReasonVolumesNotBound       = "VolumesNotBound"       // False: nodes were chosen, and a volume could not be bound for one of them; the message names the claim
	ReasonBindingRejected       = "BindingRejected"       // False: the API server rejects a Binding; its words follow
	ReasonPodGroupNotFound      = "PodGroupNotFound"      // of pods alone: they name a PodGroup that does not exist
	ReasonUnsupportedConstraint = "UnsupportedConstraint" // False: a pod uses what is not built yet; the message names the field
)
