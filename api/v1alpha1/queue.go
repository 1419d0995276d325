package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Queue is a node of the quota tree. Its name is its path: research.vision.train lies under research.vision, and every
// top-level queue under the Queue named root. Names have at most 63 characters and 8 levels, of lower-case letters, digits and
// inner dashes. A queue whose parent does not exist is accepted and waits for it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=bq,categories=basalt
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.status.charged.cpu`,description="CPU charged to the queue and everything below it"
// +kubebuilder:printcolumn:name="CPU Limit",type=string,JSONPath=`.status.limits.capability.cpu`,description="CPU that the queue and everything below it may hold, as in force; empty where CPU is not limited here"
// +kubebuilder:printcolumn:name="Memory",type=string,priority=1,JSONPath=`.status.charged.memory`
// +kubebuilder:printcolumn:name="Memory Limit",type=string,priority=1,JSONPath=`.status.limits.capability.memory`
// +kubebuilder:printcolumn:name="GPU",type=string,priority=1,JSONPath=`.status.charged.nvidia\.com/gpu`
// +kubebuilder:printcolumn:name="GPU Limit",type=string,priority=1,JSONPath=`.status.limits.capability.nvidia\.com/gpu`
// +kubebuilder:printcolumn:name="Admitted",type=integer,JSONPath=`.status.admittedGangs`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waitingGangs`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 63",messageExpression="'metadata.name: a queue name has at most 63 characters (it is a label value too), this one has %d'.format([size(self.metadata.name)])"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.split('.').size() <= 8",messageExpression="'metadata.name: a queue name has at most 8 levels, this one has %d'.format([self.metadata.name.split('.').size()])"
// +kubebuilder:validation:XValidation:rule="!self.metadata.name.startsWith('root.')",message="metadata.name: top-level queues lie under root without naming it: leave the leading 'root.' out"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || has(self.status)",message="status: once written it is replaced, never removed"
type Queue struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What an admin wants. A queue without a spec limits nothing and is open.
	// +optional
	Spec QueueSpec `json:"spec,omitempty"`
	// What the queue's home shard sees. Users do not write it.
	// +optional
	Status *QueueStatus `json:"status,omitempty"`
}

// QueueList is a list of queues.
//
// +kubebuilder:object:root=true
type QueueList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Queue `json:"items"`
}

// QueueSpec says what a queue may hold. The API server refuses amounts that cannot be kept exactly in an int64 of the
// resource's unit, negative ones, lists of more than 64 resources, and a guarantee above the capability: the rules are
// made in api/generate/crds.
type QueueSpec struct {
	// The most that the queue and everything below it may hold, per resource: cpu in cores (1500m or 1.5), memory,
	// ephemeral-storage and hugepages in bytes (4Gi), pods and extended resources in whole units. A resource that is not named is
	// not limited here; the limits of the queues above still hold. Zero is a limit: with nvidia.com/gpu: 0 no pod that
	// requests GPUs is admitted. Lowering a limit below what is held stops admissions until use falls, and evicts nothing.
	// +optional
	Capability corev1.ResourceList `json:"capability,omitempty"`
	// What is kept free for the queue and everything below it, per resource, in the units of capability. It is kept out of
	// the ancestors that limit that resource; where none does, it binds nothing, and the Ready condition says so.
	// +optional
	Guarantee corev1.ResourceList `json:"guarantee,omitempty"`
	// A closed queue admits nothing, and nothing below it is admitted; what runs goes on.
	// +optional
	Closed bool `json:"closed,omitempty"`
	// Which namespaces may use the queue and everything below it. A namespace must match the selector of the queue that it
	// names and of every queue above that has one: a queue can narrow what its ancestors allow, never widen it. Without a
	// selector anywhere on the path every namespace may. A namespace that loses the right keeps what runs and gets nothing
	// more. To select by name use the label kubernetes.io/metadata.name.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// Stamp says which writer's which statement a status is. The API server accepts a status whose epoch is larger than that
// of the one before, or whose epoch and writer are the same and whose sequence is larger. The very same status once more
// is no change and passes, so a write whose answer was lost can be repeated.
type Stamp struct {
	// The epoch of the bucket table at which the writer took over what it writes about.
	// +kubebuilder:validation:Minimum=0
	Epoch int64 `json:"epoch"`
	// Incarnation of the shard that wrote this status.
	// +kubebuilder:validation:MaxLength=63
	Writer string `json:"writer"`
	// Counts this writer's statements within the epoch.
	// +kubebuilder:validation:Minimum=0
	Sequence int64 `json:"sequence"`
}

// QueueStatus is what the home shard says about a queue, at most once a second.
//
// +kubebuilder:validation:XValidation:rule="self.epoch > oldSelf.epoch || (self.epoch == oldSelf.epoch && self.writer == oldSelf.writer && self.sequence > oldSelf.sequence) || self == oldSelf",message="a status is replaced only by one of a larger epoch, or of the same epoch and writer and a larger sequence",reason=FieldValueForbidden
type QueueStatus struct {
	Stamp `json:",inline"`
	// The metadata.generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Ready: whether gangs of this subtree can be admitted, and why not.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// What is charged to the queue and everything below it, per resource, in the units of spec.capability.
	// +optional
	Charged corev1.ResourceList `json:"charged,omitempty"`
	// The limits in force at the coordinator; they may lag the spec, or stand after the Queue is gone.
	// +optional
	Limits LimitsInForce `json:"limits,omitzero"`
	// Gangs of this queue and everything below it that are charged.
	// +optional
	AdmittedGangs int32 `json:"admittedGangs"`
	// Gangs of this queue and everything below it that wait to be charged.
	// +optional
	WaitingGangs int32 `json:"waitingGangs"`
}

// LimitsInForce are the limits that the coordinator enforces now, in the units of QueueSpec.
type LimitsInForce struct {
	// The most that the subtree may hold.
	// +optional
	Capability corev1.ResourceList `json:"capability,omitempty"`
	// What is kept free for the subtree, after cuts.
	// +optional
	Guarantee corev1.ResourceList `json:"guarantee,omitempty"`
}
