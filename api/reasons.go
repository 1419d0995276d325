package api

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// NodeReasons says how many nodes do not take a pod of a class, and why.
type NodeReasons struct {
	Nodes  int           // nodes that are there
	Fit    int           // nodes that would take one now
	Counts []ReasonCount // most nodes first, then by reason; a node short of two resources counts at both
	By     []RoomBy      // soonest first
}

// RoomBy is room for some more pods, beside what there is before.
type RoomBy struct {
	At   time.Time // by then, zero for now
	Pods int
}

// ReasonCount is one reason of NodeReasons.
type ReasonCount struct {
	Reason string // in kube-scheduler's words
	Nodes  int
}

// NotOfNodeAffinity is kube-scheduler's reason for a node that the node selector or the required node affinity of a pod does not select.
const NotOfNodeAffinity = "node(s) didn't match Pod's node affinity/selector"

// Add adds what is said of other nodes.
func (r *NodeReasons) Add(o NodeReasons) {
	r.Nodes += o.Nodes
	r.Fit += o.Fit
	for _, c := range o.Counts {
		if i := slices.IndexFunc(r.Counts, func(of ReasonCount) bool { return of.Reason == c.Reason }); i >= 0 {
			r.Counts[i].Nodes += c.Nodes
		} else {
			r.Counts = append(r.Counts, c)
		}
	}
	r.By = append(r.By, o.By...)
	slices.SortStableFunc(r.By, func(a, b RoomBy) int { return a.At.Compare(b.At) })
	r.Sort()
}

// Sort puts the reasons into their order.
func (r *NodeReasons) Sort() {
	slices.SortFunc(r.Counts, func(a, b ReasonCount) int {
		return cmp.Or(cmp.Compare(b.Nodes, a.Nodes), strings.Compare(a.Reason, b.Reason))
	})
}

// maxReasons bounds how many reasons String prints: taints can have as many values as there are nodes.
const maxReasons = 8

// String says it as kube-scheduler does.
func (r NodeReasons) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d/%d nodes are available", r.Fit, r.Nodes)
	for i, c := range r.Counts {
		sep := ", "
		if i == 0 {
			sep = ": "
		}
		if i == maxReasons {
			fmt.Fprintf(&b, ", and %d other reasons", len(r.Counts)-i)
			break
		}
		fmt.Fprintf(&b, "%s%d %s", sep, c.Nodes, c.Reason)
	}
	return b.String()
}
