package event

import (
	"cmp"

	"basalt.dev/basalt/api"
)

// Events of the volumes core. It is also given NodeSeen and NodeGone, and BindVolumes and EndVolumes, which are
// outputs of the node core.

// Changed brings an object of Kubernetes that was added or changed, or is gone.
type Changed[T any] struct {
	Object T
	Gone   bool
}

// Listed brings all objects of a kind; what it lacks is gone. The list was begun after the relist that returned Ticket.
type Listed[T any] struct {
	Objects []T
	Ticket  uint64
}

// CaughtUp says that what was seen of a kind is what a list would bring that answers the ticket.
type CaughtUp[T any] struct{ Ticket uint64 }

// ReleaseSeen says whose rules hold: EmptyAll is that of api.Rules.
type ReleaseSeen struct{ EmptyAll bool }

// VolumeWritten answers SelectNode and KeepVolume. StatusConflict is another version than the one that the write
// named, and nothing else.
type VolumeWritten struct {
	ID      uint64
	Outcome StatusOutcome
	Version string // with StatusOK: of the object now
	Error   string
}

// Outputs of the volumes core.

// Tell asks to give the home and node cores an event, after those that were told before.
type Tell struct{ Event Event }

// PodsListed is PodsReplaced before it is known which ListPods it answers, in no order. With CaughtUp the pods that
// the home core keeps belong to it, too.
type PodsListed struct {
	Pods     []*api.Pod
	Ticket   uint64
	CaughtUp bool
}

// SelectNode asks to annotate a claim with the node for which a volume is to be provisioned; with Node "" to take the
// annotation off.
type SelectNode struct {
	ID    uint64
	Claim api.ObjectVersion
	Node  string
}

// KeepVolume asks to name a claim in a volume.
type KeepVolume struct {
	ID            uint64
	Volume, Claim api.ObjectVersion
}

// Compare orders rows.
func (r RowID) Compare(o RowID) int {
	return cmp.Or(cmp.Compare(r.Incarnation, o.Incarnation), cmp.Compare(r.N, o.N), cmp.Compare(r.PodUID, o.PodUID))
}

func (Changed[T]) IsEvent()    {}
func (Listed[T]) IsEvent()     {}
func (CaughtUp[T]) IsEvent()   {}
func (ReleaseSeen) IsEvent()   {}
func (VolumeWritten) IsEvent() {}
func (BindVolumes) IsEvent()   {}
func (EndVolumes) IsEvent()    {}
func (PodsListed) IsEvent()    {}

func (Tell) IsOutput()       {}
func (SelectNode) IsOutput() {}
func (KeepVolume) IsOutput() {}
