package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PodGroup makes a gang of the pods in its namespace whose label scheduling.basalt.dev/pod-group is its name. The first
// minCount pods are scheduled all together or not at all, each further pod by itself.
//
// +genclient
// +genclient:noStatus
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=bpg,categories=basalt
// +kubebuilder:printcolumn:name="Queue",type=string,JSONPath=`.status.queue`
// +kubebuilder:printcolumn:name="Min",type=integer,JSONPath=`.spec.schedulingPolicy.gang.minCount`
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="Bound",type=integer,JSONPath=`.status.bound`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Position",type=integer,JSONPath=`.status.position`
// +kubebuilder:printcolumn:name="Reserved",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="QuotaReserved")].status`
// +kubebuilder:printcolumn:name="Quota",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="QuotaReserved")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",messageExpression="'metadata.name: the name of a PodGroup is a label value and has at most 63 characters, this one has %d'.format([size(self.metadata.name)])"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || has(self.status)",message="status: once written it is replaced, never removed"
type PodGroup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired gang. Only minCount and maxRuntimeSeconds may change, and gates be removed.
	Spec PodGroupSpec `json:"spec"`
	// The observed state, written by the gang's home shard. Users must not write it.
	// +optional
	Status *PodGroupStatus `json:"status,omitempty"`
}

// PodGroupList is a list of gangs.
//
// +kubebuilder:object:root=true
type PodGroupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []PodGroup `json:"items"`
}

// PodGroupSpec describes how a gang is scheduled.
//
// +kubebuilder:validation:XValidation:fieldPath=".schedulingConstraints.topology",rule="!has(self.schedulingConstraints) || !has(self.schedulingConstraints.topology) || self.schedulingConstraints.topology.all(t, !has(t.sliceSize) || t.sliceSize <= self.schedulingPolicy.gang.minCount)",message="sliceSize must not be larger than spec.schedulingPolicy.gang.minCount"
type PodGroupSpec struct {
	// The path of the leaf queue that the gang is charged to. If it is not set, the label scheduling.basalt.dev/queue of the pods is
	// used, else that of their namespace, else the queue named default. The queue need not exist yet.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the path of a queue, such as research.vision: lower-case letters, digits and inner dashes, levels joined by dots"
	// +kubebuilder:validation:XValidation:rule="self.split('.').size() <= 8",message="must be the path of a queue: at most 8 levels"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('root.')",message="must be the path of a queue: top-level queues are children of root: omit the leading 'root.'"
	Queue string `json:"queue,omitempty"`
	// How the pods of the gang belong together.
	SchedulingPolicy SchedulingPolicy `json:"schedulingPolicy"`
	// Where the pods of the gang are placed, beyond what each of them says.
	// +optional
	SchedulingConstraints *SchedulingConstraints `json:"schedulingConstraints,omitempty"`
	// The priority of the gang, if it is lower than the highest priority of its pods, which is used otherwise. It never raises the
	// gang above its pods, whose priorities were checked at their admission.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// How many seconds a gang with a reservation may search for free capacity before it releases the reservation and lets
	// other gangs go first, 600 at most. The default is 10.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=600
	ScheduleTimeoutSeconds *int32 `json:"scheduleTimeoutSeconds,omitempty"`
	// What the gang is charged at least when it starts, per resource, in the units of a Queue's capability: pods that come
	// later, as the executors of a Spark driver do, find that quota. What is granted of it is kept until fewer than
	// minCount of the pods are left. What the pods request beyond it is charged as they come.
	// +optional
	MinResources corev1.ResourceList `json:"minResources,omitempty"`
	// Whether the pods of the gang may be evicted for another gang, as its queue and their common ancestor allow it. If it is not set,
	// they may be if each of them has a controller that creates another one in its place. Gangs with false use no more than what their
	// queue and its ancestors deserve, of the resources that these name: what may not be taken back may not be borrowed.
	// +optional
	Preemptible *bool `json:"preemptible,omitempty"`
	// Pod, the default: pods that the gang has beyond minCount may be evicted one by one, those of the lowest
	// controller.kubernetes.io/pod-deletion-cost first and then the youngest. PodGroup: all pods of the gang are evicted, or none.
	// +optional
	DisruptionMode DisruptionMode `json:"disruptionMode,omitempty"`
	// How long pods that would make the gang whole again, after it lost some of its minimum, wait in vain before the rest
	// of it is evicted, so that it starts anew as a whole: 30s, 10m or 1h30m. It counts if it is shorter than what the
	// queue says (spec.staleAfter of a Queue), or if that says nothing.
	// +optional
	StaleAfter *metav1.Duration `json:"staleAfter,omitempty"`
	// How many seconds the gang runs at most, counted from when minCount of its pods are bound. Basalt ends nobody at that
	// moment, but who runs on is evicted first, and protected by no minimum runtime, when others need the room. If it is
	// not set, the longest spec.activeDeadlineSeconds of its pods counts, or their annotation
	// scheduling.basalt.dev/max-runtime, if all of them have one; else spec.defaultRuntime of its queue. A gang whose
	// limit is longer than spec.maxRuntime of its queue does not start. An edit counts for the next start.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=31536000
	MaxRuntimeSeconds *int32 `json:"maxRuntimeSeconds,omitempty"`
	// What others have to allow before the gang asks for quota, such as finance.example.com/budget: each gate is removed
	// by the controller that watches over it. While there is one, no pod of the gang that has no node is placed. Gates
	// can be removed at any time, and none is added once the PodGroup exists.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	Gates []Gate `json:"gates,omitempty"`
}

// Gate is the name of a gate: the domain of whoever removes it, a slash, and a name.
//
// +kubebuilder:validation:MinLength=3
// +kubebuilder:validation:MaxLength=128
type Gate string

// DisruptionMode says which pods of a gang may be evicted for another gang.
//
// +kubebuilder:validation:Enum=Pod;PodGroup
type DisruptionMode string

// The modes.
const (
	DisruptPod      DisruptionMode = "Pod"
	DisruptPodGroup DisruptionMode = "PodGroup"
)

// SchedulingPolicy follows the structure of the upstream API.
type SchedulingPolicy struct {
	// The gang is scheduled all together or not at all.
	Gang GangSchedulingPolicy `json:"gang"`
}

// GangSchedulingPolicy holds the size of the gang.
type GangSchedulingPolicy struct {
	// The number of pods that are scheduled all together or not at all. The gang waits until that many exist.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MinCount int32 `json:"minCount"`
}

// SchedulingConstraints follows the structure of the upstream API.
type SchedulingConstraints struct {
	// Topology domains that the gang is placed in: as a whole, at most one that it requires and one that it prefers, and at most one for
	// each of its slices.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=3
	// +kubebuilder:validation:XValidation:rule="self.filter(t, !has(t.sliceSize) && (!has(t.mode) || t.mode == 'Required')).size() <= 1",message="at most one topology constraint may be Required"
	// +kubebuilder:validation:XValidation:rule="self.filter(t, has(t.mode) && t.mode == 'Preferred').size() <= 1",message="at most one topology constraint may be Preferred"
	// +kubebuilder:validation:XValidation:rule="self.filter(t, has(t.sliceSize)).size() <= 1",message="at most one topology constraint may have a sliceSize"
	// +kubebuilder:validation:XValidation:rule="self.all(t, !has(t.sliceSize) || self.filter(o, o.key == t.key).size() == 1)",message="the key of a topology constraint with a sliceSize must differ from those of the others"
	Topology []TopologyConstraint `json:"topology,omitempty"`
}

// TopologyConstraint places a gang, or each slice of it, in one topology domain: nodes that have the same value of a label.
//
// +kubebuilder:validation:XValidation:rule="!has(self.sliceSize) || !has(self.mode) || self.mode == 'Required'",message="a topology constraint with a sliceSize must be Required"
type TopologyConstraint struct {
	// The label of nodes whose value is the domain, such as topology.kubernetes.io/zone. Nodes without it are in no domain.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	Key string `json:"key"`
	// Required: the minimum of the gang starts in one domain or waits, and its further pods are placed in the same one. Preferred: it is
	// placed in one domain if one has room for it.
	// +optional
	// +kubebuilder:default=Required
	Mode TopologyMode `json:"mode,omitempty"`
	// If it is set, not the whole gang but each slice of it is placed in one domain, such as each 18 pods in one nvidia.com/gpu.clique.
	// A slice is this many pods with the same requests, in the order of their names; the last one may have fewer. It is at most minCount.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	SliceSize int32 `json:"sliceSize,omitempty"`
}

// TopologyMode says whether a gang may be placed otherwise.
//
// +kubebuilder:validation:Enum=Required;Preferred
type TopologyMode string

// The modes.
const (
	TopologyRequired  TopologyMode = "Required"
	TopologyPreferred TopologyMode = "Preferred"
)

// PodGroupStatus is the state of a gang as observed by its home shard.
//
// +kubebuilder:validation:XValidation:rule="self.epoch > oldSelf.epoch || (self.epoch == oldSelf.epoch && self.writer == oldSelf.writer && self.sequence > oldSelf.sequence) || self == oldSelf",message="a status is replaced only by one of a larger epoch, or of the same epoch and writer and a larger sequence",reason=FieldValueForbidden
type PodGroupStatus struct {
	Stamp `json:",inline"`
	// The metadata.generation of the spec that this status refers to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// QuotaReserved and PodGroupInitiallyScheduled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// The queue that the gang is charged to.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Queue string `json:"queue,omitempty"`
	// Number of pods of the gang that exist, unfinished or bound.
	// +optional
	Pods int32 `json:"pods"`
	// Number of pods of the gang that are bound to a node, each counted once.
	// +optional
	Bound int32 `json:"bound"`
	// Why the gang is as it is now: Scheduled, or of what its conditions say that which keeps it waiting.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// The same in a sentence. Empty for a gang that waits for nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=1100
	Message string `json:"message,omitempty"`
	// The place of the gang among those of its queue that wait, if it is one of the first ten.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Position int32 `json:"position,omitempty"`
}
