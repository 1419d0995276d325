package cache

import (
	"fmt"
	"iter"

	"basalt.dev/basalt/api"
)

// Config of a Cache.
type Config struct {
	Policy Policy
	// Elsewhere iterates over nodes of other shards, or over so many of them that they stand for all; nil for none.
	Elsewhere iter.Seq[*api.Node]
}

// Kind says how sure a charge is.
type Kind uint8

const (
	Hold      Kind = iota + 1 // in memory: has a gang and a rank, may be taken by a better one
	Intent                    // a durable row, or one about to be written
	Bound                     // seen on the node
	Nominated                 // of another scheduler, which keeps the node for it
	Foreign                   // seen on the node, of another scheduler
)

// Seen reports whether the pod was seen on its node.
func (k Kind) Seen() bool { return k == Bound || k == Foreign }

func (k Kind) String() string {
	switch k {
	case Hold:
		return "Hold"
	case Intent:
		return "Intent"
	case Bound:
		return "Bound"
	case Nominated:
		return "Nominated"
	case Foreign:
		return "Foreign"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Placement is a pod's charge.
type Placement struct {
	UID   string
	Node  string
	Kind  Kind
	Gang  string
	Rank  api.Rank
	Class *api.Class
}

// NodeView is a copy of what is known of a node that is there.
type NodeView struct {
	Node      *api.Node
	Used      api.Resources
	Free      api.Resources // may be negative; names what the node has and what its pods ask for
	Pods      []Placement   // sorted by UID
	OutOfSync bool          // something is negative: takes nothing new
}

// Totals of the nodes that are there.
type Totals struct {
	Nodes        int
	Allocatable  api.Resources // saturates
	Free         api.Resources // saturates; negative amounts count as zero
	Largest      api.Resources // the most that one node has of each resource
	OutOfSync    int
	RoomVersion  uint64 // grows whenever room came into being that may admit a pod that was refused before
	NodesVersion uint64 // grows whenever a node came, or changed so that it may take a pod that it would not have taken while empty
	SyncVersion  uint64 // grows whenever a node got out of sync or back
}

// Reasons says for one class how many nodes refuse it and why.
type Reasons struct {
	api.NodeReasons
	Never bool // no node would take one even if it were empty
}

// Obstacle is what kind of thing keeps a pod from a node, in the order in which they are looked at.
type Obstacle uint8

const (
	Nothing       Obstacle = iota // the pod fits
	NoNode                        // no such node
	Unreadable                    // the pod's constraints cannot be read
	Unschedulable                 // the node is cordoned
	Taint
	Affinity // node selector or required node affinity
	Features // that the node does not declare
	OutOfSync
	HostPort
	DiskInUse    // by a pod there, and not to be shared
	Avoids       // a pod there belongs to a group that the pod avoids
	Avoided      // a pod there, or in the same topology domain, avoids a group that the pod belongs to
	NoDriver     // a CSI driver has to be installed
	Insufficient // of a resource
)

// Misfit is why a pod does not fit a node; the zero Misfit means that it fits.
type Misfit struct {
	Obstacle Obstacle
	Subject  string // the taint "key: value", the resource, the driver, or what cannot be read
}

// Fits reports whether nothing is in the way.
func (m Misfit) Fits() bool { return m.Obstacle == Nothing }

// String is kube-scheduler's reason for the same thing.
func (m Misfit) String() string {
	switch m.Obstacle {
	case Nothing:
		return ""
	case NoNode:
		return "node does not exist"
	case Unreadable:
		return "node(s) cannot be judged: " + m.Subject
	case Unschedulable:
		return "node(s) were unschedulable"
	case Taint:
		return "node(s) had untolerated taint {" + m.Subject + "}"
	case Affinity:
		return api.NotOfNodeAffinity
	case Features:
		return "node(s) didn't match Pod's required features"
	case OutOfSync:
		return "node(s) were out of sync, with more in use than allocatable"
	case HostPort:
		return "node(s) didn't have free ports for the requested pod ports"
	case DiskInUse:
		return "node(s) had no available disk"
	case Avoids:
		return "node(s) didn't match pod anti-affinity rules"
	case Avoided:
		return "node(s) didn't satisfy existing pods anti-affinity rules"
	case NoDriver:
		return m.Subject + " CSI driver is not installed on the node"
	case Insufficient:
		if m.Subject == "pods" {
			return "Too many pods"
		}
		if api.VolumeDriver(m.Subject) != "" {
			return "node(s) exceed max volume count"
		}
		return "Insufficient " + m.Subject
	}
	return fmt.Sprintf("Obstacle(%d)", uint8(m.Obstacle))
}
