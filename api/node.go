package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// Node is what Basalt keeps of a node. It is immutable once made.
type Node struct {
	Name            string
	UID             string
	ResourceVersion string
	Allocatable     Resources
	Labels          map[string]string // not to be changed
	Taints          []v1.Taint
	Unschedulable   bool     // spec.unschedulable
	Features        []string // status.declaredFeatures, sorted; not to be changed
	// Attachable says how many volumes of CSI drivers the node can have attached, of those drivers that limit them or are missing.
	Attachable []Attachable
	// Unmigrated are in-tree volume plugins that the node has not migrated to CSI, of those that matter, sorted: Labels has a mark of each.
	Unmigrated []string
	// Images are those that are large enough to matter, if pods prefer nodes that have theirs (Rules.Images); not to be changed.
	Images Images
	// Tiers are those that the configuration puts the node into (Rules.FromNode).
	Tiers Tiers
	// Unreadable names resources of status.allocatable that could not be read; they count as zero.
	Unreadable string
}

// Attachable is how many volumes of a CSI driver a node can have attached, and how many it has: those of pods that are there, and others
// that are not detached yet.
type Attachable struct {
	Driver      string
	Limit, Used int64
	Missing     bool // the driver has to be installed, and is not: Limit is 0
}

// WithVolumes returns the node with what is said of its volumes.
func (n *Node) WithVolumes(of []Attachable, unmigrated []string) *Node {
	if slices.Equal(n.Attachable, of) && slices.Equal(n.Unmigrated, unmigrated) {
		return n
	}
	out := *n
	out.Attachable = of
	if !slices.Equal(n.Unmigrated, unmigrated) {
		out.Labels = maps.Clone(n.Labels)
		for _, plugin := range n.Unmigrated {
			delete(out.Labels, UnmigratedMark(plugin))
		}
		out.Labels, out.Unmigrated = WithMarks(out.Labels, unmigrated), unmigrated
	}
	return &out
}

// UnmigratedMark is the label by which a selector tells the nodes that have not migrated an in-tree volume plugin to CSI. Only Basalt sees it,
// in memory: it is no label of the Node object, unless somebody writes it there.
func UnmigratedMark(plugin string) string {
	return unmigratedPrefix + plugin[strings.LastIndexByte(plugin, '/')+1:]
}

const unmigratedPrefix = "unmigrated.scheduling.basalt.dev/"

// WithMarks returns labels and the marks of plugins.
func WithMarks(labels map[string]string, unmigrated []string) map[string]string {
	if len(unmigrated) == 0 {
		return labels
	}
	out := make(map[string]string, len(labels)+len(unmigrated))
	maps.Copy(out, labels)
	for _, plugin := range unmigrated {
		out[UnmigratedMark(plugin)] = ""
	}
	return out
}

// FromNode reduces a node, leaving out the resources on the ignore list. A resource that cannot be read counts as zero.
func FromNode(n *v1.Node, ignore map[string]bool) *Node {
	out := &Node{
		Name: n.Name, UID: string(n.UID), ResourceVersion: n.ResourceVersion,
		Labels: n.Labels, Taints: n.Spec.Taints, Unschedulable: n.Spec.Unschedulable, Features: n.Status.DeclaredFeatures,
		Allocatable: make(Resources, 0, len(n.Status.Allocatable)), Images: nodeImages(n.Status.Images),
	}
	var bad []string
	for name, q := range n.Status.Allocatable {
		if ignore[string(name)] {
			continue
		}
		v, err := FromQuantity(string(name), q, true)
		if err != nil {
			bad = append(bad, err.Error())
			continue
		}
		out.Allocatable = append(out.Allocatable, Amount{string(name), v})
	}
	slices.SortFunc(out.Allocatable, func(a, b Amount) int { return strings.Compare(a.Resource, b.Resource) })
	slices.Sort(bad)
	if n := len(bad) - 10; n > 0 {
		bad = append(bad[:10], fmt.Sprintf("and %d more", n))
	}
	kept, left := out.Allocatable.Foremost(MaxNodeResources, nil)
	if out.Allocatable = kept; left > 0 {
		bad = append(bad, fmt.Sprintf("status.allocatable names %d resources, the limit is %d: the others count as zero", len(kept)+left, MaxNodeResources))
	}
	out.Unreadable = strings.Join(bad, "; ")
	return out
}

// How much of a node's resource is free is a percentage, or one of these.
const (
	ShareOfNone  = 200 // the node has none of it
	ShareUnknown = 201 // the node is out of sync
)
