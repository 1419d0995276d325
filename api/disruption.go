package api

import (
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	k8slabels "k8s.io/apimachinery/pkg/labels"
)

// MaxBudgetSelectorBytes is how large the selector of a PodDisruptionBudget may be, in protobuf. One that is larger is not heeded.
const MaxBudgetSelectorBytes = 4 << 10

// DisruptionBudget is what Basalt keeps of a PodDisruptionBudget: the pods that it selects, and how many of them may be evicted now. It is
// immutable once made.
type DisruptionBudget struct {
	Namespace, Name, UID string

	Allowed int    // status.disruptionsAllowed, as its controller said last
	Ignored string // why it is not heeded, "" if it is

	// Key and Value are a label that each pod has which it selects, "" for none.
	Key, Value string
	Bytes      int // of its selector: what a comparison with a pod costs

	selector k8slabels.Selector
}

// FromDisruptionBudget reads a PodDisruptionBudget.
func FromDisruptionBudget(b *policyv1.PodDisruptionBudget) *DisruptionBudget {
	out := &DisruptionBudget{Namespace: b.Namespace, Name: b.Name, UID: string(b.UID), Allowed: max(0, int(b.Status.DisruptionsAllowed)), selector: k8slabels.Nothing()}
	if b.Spec.Selector == nil {
		return out
	}
	if out.Bytes = b.Spec.Selector.Size(); out.Bytes > MaxBudgetSelectorBytes {
		out.Ignored = fmt.Sprintf("spec.selector has %d bytes, the limit is %d", out.Bytes, MaxBudgetSelectorBytes)
		return out
	}
	selector, err := Selector(b.Spec.Selector)
	if err != nil {
		out.Ignored = "spec.selector: " + err.Error()
		return out
	}
	out.selector = selector
	for _, key := range SortedKeys(b.Spec.Selector.MatchLabels) {
		out.Key, out.Value = key, b.Spec.Selector.MatchLabels[key]
		break
	}
	return out
}

// Selects reports whether a pod of its namespace is one that it is about.
func (b *DisruptionBudget) Selects(labels *Labels) bool { return b.selector.Matches(labels.set()) }

// StripDisruptionBudget keeps what FromDisruptionBudget reads.
func StripDisruptionBudget(b *policyv1.PodDisruptionBudget) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: StripMeta(&b.ObjectMeta), Spec: policyv1.PodDisruptionBudgetSpec{Selector: b.Spec.Selector},
		Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: b.Status.DisruptionsAllowed}}
}
