package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// PodGroup makes one gang of the pods of its namespace that carry its name in the label scheduling.basalt.dev/pod-group:
// the first minCount of them are placed all or none, each further one by itself.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=bpg,categories=basalt
// +kubebuilder:printcolumn:name="Queue",type=string,JSONPath=`.status.queue`
// +kubebuilder:printcolumn:name="Min",type=integer,JSONPath=`.spec.schedulingPolicy.gang.minCount`
// +kubebuilder:printcolumn:name="Pods",type=integer,JSONPath=`.status.pods`
// +kubebuilder:printcolumn:name="Bound",type=integer,JSONPath=`.status.bound`
// +kubebuilder:printcolumn:name="Reserved",type=string,JSONPath=`.status.conditions[?(@.type=="QuotaReserved")].status`
// +kubebuilder:printcolumn:name="Quota",type=string,JSONPath=`.status.conditions[?(@.type=="QuotaReserved")].reason`
// +kubebuilder:printcolumn:name="Scheduled",type=string,JSONPath=`.status.conditions[?(@.type=="PodGroupInitiallyScheduled")].reason`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="QuotaReserved")].message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",messageExpression="'metadata.name: the name of a PodGroup is a label value and has at most 63 characters, this one has %d'.format([size(self.metadata.name)])"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || has(self.status)",message="status: once written it is replaced, never removed"
type PodGroup struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What the user wants. Only minCount may change.
	Spec PodGroupSpec `json:"spec"`
	// What the gang's home shard sees. Users do not write it.
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

// PodGroupSpec says how a gang is to be scheduled.
//
// +kubebuilder:validation:XValidation:fieldPath=".queue",rule="has(self.queue) == has(oldSelf.queue) && (!has(self.queue) || self.queue == oldSelf.queue)",message="spec.queue cannot change: only spec.schedulingPolicy.gang.minCount can"
// +kubebuilder:validation:XValidation:fieldPath=".priorityClassName",rule="has(self.priorityClassName) == has(oldSelf.priorityClassName) && (!has(self.priorityClassName) || self.priorityClassName == oldSelf.priorityClassName)",message="spec.priorityClassName cannot change: only spec.schedulingPolicy.gang.minCount can"
// +kubebuilder:validation:XValidation:fieldPath=".scheduleTimeoutSeconds",rule="has(self.scheduleTimeoutSeconds) == has(oldSelf.scheduleTimeoutSeconds) && (!has(self.scheduleTimeoutSeconds) || self.scheduleTimeoutSeconds == oldSelf.scheduleTimeoutSeconds)",message="spec.scheduleTimeoutSeconds cannot change: only spec.schedulingPolicy.gang.minCount can"
type PodGroupSpec struct {
	// The path of the leaf queue that pays for the gang. Without it the pods' label scheduling.basalt.dev/queue decides,
	// then that of their namespace, then it is the queue named default. The queue need not exist yet.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$')",message="must be the path of a queue, such as research.vision: lower-case letters, digits and inner dashes, levels joined by dots"
	// +kubebuilder:validation:XValidation:rule="self.split('.').size() <= 8",message="must be the path of a queue: at most 8 levels"
	// +kubebuilder:validation:XValidation:rule="!self.startsWith('root.')",message="must be the path of a queue: top-level queues lie under root without naming it, leave the leading 'root.' out"
	Queue string `json:"queue,omitempty"`
	// How many pods make the gang.
	SchedulingPolicy SchedulingPolicy `json:"schedulingPolicy"`
	// The gang's priority, if it is lower than the highest priority of its pods, which counts without it. It never raises the
	// gang above its pods, whose priorities admission has checked.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// For how many seconds a gang whose quota is reserved may look for room before it gives its reservation back and lets
	// others pass. 10 when absent.
	// +optional
	// +kubebuilder:validation:Minimum=1
	ScheduleTimeoutSeconds *int32 `json:"scheduleTimeoutSeconds,omitempty"`
}

// SchedulingPolicy has upstream's nesting.
type SchedulingPolicy struct {
	// The gang is placed all or none.
	Gang GangSchedulingPolicy `json:"gang"`
}

// GangSchedulingPolicy says what all or none means.
type GangSchedulingPolicy struct {
	// How many pods are placed all or none; the group waits until so many exist.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MinCount int32 `json:"minCount"`
}

// PodGroupStatus is what the home shard says about a gang.
//
// +kubebuilder:validation:XValidation:rule="self.epoch > oldSelf.epoch || (self.epoch == oldSelf.epoch && self.writer == oldSelf.writer && self.sequence > oldSelf.sequence) || self == oldSelf",message="a status is replaced only by one of a larger epoch, or of the same epoch and writer and a larger sequence",reason=FieldValueForbidden
type PodGroupStatus struct {
	Stamp `json:",inline"`
	// The metadata.generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// QuotaReserved and PodGroupInitiallyScheduled.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// The queue that pays for the gang.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Queue string `json:"queue,omitempty"`
	// Pods of the gang that exist, unfinished or bound.
	// +optional
	Pods int32 `json:"pods"`
	// Pods of the gang that are bound to a node, each counted once.
	// +optional
	Bound int32 `json:"bound"`
}
