package wire

import (
	"fmt"
	"slices"

	"basalt.dev/basalt/api"
)

// Protocol is the version of the messages and records of this package. It is raised by one when a message or record is added or
// changes its meaning. Processes one version apart work together, so that an update may be rolled out, and back.
//
//	1: before records announced a version
//	2: Explain and Explained; records announce a version
//	3: anti-affinity terms and labels of classes
//	4: pod affinity and topology spread of classes; places of rows in the log of intents; Prepare and Ready; wishes; topology domains of
//	   gangs, and of slices of gangs; Supply and Unplaced; claims, also for single pods
const Protocol = 4

// Everybody in HoldRequest.awaits stands for all who are there: they are expected to leave on their own.
const Everybody = "*"

// Announced is a record that announces a process.
type Announced interface {
	GetName() string
	GetProtocol() uint32
	GetVersion() string
}

// ProtocolOf returns the version that a process speaks.
func ProtocolOf(r Announced) uint32 { return max(r.GetProtocol(), 1) }

// Beside returns an error if a process of this program must not run beside another one.
func Beside(r Announced) error {
	if theirs := ProtocolOf(r); theirs+1 < Protocol || theirs > Protocol+1 {
		return fmt.Errorf("%s (%s) speaks protocol version %d and this program version %d: update one version at a time", r.GetName(), r.GetVersion(), theirs, Protocol)
	}
	return nil
}

// SpokenSince returns the first version that has a message. It is not sent to a process of an earlier one.
func SpokenSince(m *Envelope) uint32 {
	switch body := m.GetBody().(type) {
	case *Envelope_Explain:
		return max(2, sinceOf([]*PodClass{body.Explain.GetPodClass()}))
	case *Envelope_Explained:
		return 2
	case *Envelope_Prepare, *Envelope_Ready, *Envelope_Probe, *Envelope_Probed, *Envelope_Supply, *Envelope_Unplaced,
		*Envelope_Stuck, *Envelope_Mandate, *Envelope_Claim, *Envelope_ClaimReply, *Envelope_Yield, *Envelope_Shrink, *Envelope_Condemn, *Envelope_RoomProbe, *Envelope_Rooms:
		return 4
	case *Envelope_HoldRequest:
		if len(body.HoldRequest.GetWithin())+len(body.HoldRequest.GetDomains()) > 0 || len(body.HoldRequest.GetAwaits()) > 0 {
			return 4
		}
		return sinceOf(body.HoldRequest.GetClasses())
	case *Envelope_Commit:
		if slices.ContainsFunc(body.Commit.GetPods(), (*PodRef).GetUnbound) { // an earlier version would not bind the volumes
			return 4
		}
		return sinceOf(body.Commit.GetClasses())
	}
	return 1
}

// sinceOf: an earlier version would place pods with terms that it does not know as if they had none.
func sinceOf(classes []*PodClass) (since uint32) {
	since = 1
	for _, class := range classes {
		switch {
		case len(class.GetJoins()) > 0 || wide(class.GetRepels()):
			return 4
		case len(class.GetRepels()) > 0:
			since = 3
		}
	}
	return since
}

// wide reports whether anti-affinity terms have larger domains than single nodes, or stand for claims that one pod at a time may use.
func wide(repels []byte) bool {
	if len(repels) == 0 {
		return false
	}
	terms, err := api.ReadRepels(repels)
	return len(api.OnePodClaims(repels)) > 0 || err != nil || slices.ContainsFunc(terms, func(t *api.Term) bool { return t.Topology != api.LabelHostname })
}
