// Package v1beta1 holds the two kinds that users write, Queue and PodGroup, as the API server keeps them in the group
// scheduling.basalt.dev.
//
// It owns their words: fields, defaults, bounds, condition types and reasons. It decides nothing; what the API server can
// refuse by itself (bounds, paths, what may change, who may write a status) stands beside the fields as CEL rules, which
// controller-gen turns into deploy/crds. What only the scheduler can see (a parent that is missing, guarantees that do
// not fit) becomes a condition with one of the reasons below.
//
// Invariants:
//   - A field that nothing enforces is not in the schema.
//   - Every status carries the stamp (epoch, writer, sequence), and the API server refuses one that is not newer.
//   - Amounts that the API server accepted can be read into an int64 of the resource's unit without loss.
//
// +kubebuilder:object:generate=true
// +groupName=scheduling.basalt.dev
// +groupGoName=Scheduling
package v1beta1
