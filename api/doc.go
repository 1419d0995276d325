// Package api holds the types that all parts of Basalt share: resource vectors, queue paths, buckets and the table of their owners,
// ranks, and the reduced forms of pods and nodes. It decides nothing and has no state. GLOSSARY.md explains the words that are
// used everywhere, PROTOCOL.md the protocol, DECISIONS.md the reasons.
//
// Invariants:
//   - An amount of a resource is an int64: milli-units for cpu, bytes for memory and storage, whole units for everything
//     else. Quantities are checked once, when an object is read (FromPod, FromNode, FromResourceList). Arithmetic is
//     checked as well: it saturates towards "more is used" and does not wrap.
//   - Nothing here panics on anything that a cluster can contain. What cannot be read becomes a reason that its user sees.
//
// Subfolders: v1beta1 (the Queue and PodGroup objects), wire (messages and stored records, protobuf), store (the control
// store: keys and fenced transactions), link (gRPC streams between processes), kube (reading and writing the API server),
// relay (one process watches on behalf of all), gossip (membership hints), wait (pauses and backoff), audit (checks the invariants from
// outside).
package api

// SchedulerName is what pods put into spec.schedulerName.
const SchedulerName = "basalt"

// VolcanoLease is the Lease of Volcano's scheduler. Whoever holds it writes the statuses of Volcano's objects and places the pods that
// name it.
const VolcanoLease = "volcano-system/volcano"

// Labels that users set.
const (
	LabelPodGroup = "scheduling.basalt.dev/pod-group" // on a pod: a PodGroup of its own namespace
	LabelQueue    = "scheduling.basalt.dev/queue"     // on a pod or on its namespace: a queue's path

	// LabelPreemptible, "true" or "false", on a pod without a PodGroup, or on a PodGroup of scheduling.k8s.io: whether it may be evicted
	// for another gang.
	LabelPreemptible = "scheduling.basalt.dev/preemptible"
)

// LabelHostname is the label of nodes whose domains are single nodes.
const LabelHostname = "kubernetes.io/hostname"

// LabelVolcanoQueue is the label of a Queue that stands for one of Volcano's: the name of that one.
const LabelVolcanoQueue = "scheduling.basalt.dev/volcano-queue"

// LabelGang is the label that a Binding carries onto the pod: UID of the PodGroup, or of the pod, that it was bound for.
const LabelGang = "scheduling.basalt.dev/gang"

// ConditionBindingResolved is the condition of a pod that is written with a message never used before, so that no Binding sent
// before it can take effect any more. It says nothing else.
const ConditionBindingResolved = "scheduling.basalt.dev/BindingResolved"
