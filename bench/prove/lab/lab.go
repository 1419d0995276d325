// Package lab is what drivers of the shards' cores share: a shard with its cores, stepped until they are silent, and
// what shards are connected to, as far as a driver has no opinion on it.
//
// A driver decides which events a shard gets and when, and what becomes of its Bindings and of pods. Outside answers
// the rest: a control store that carries out each write at once, and a coordinator that grants whatever is asked for.
// A new output of a core that every driver may confirm is answered here, once. Package sim has a control store with
// faults and steps the same cores; package explore copies cores and steps them on its own.
package lab

import (
	"fmt"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/cores"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

// Shard is the cores of a shard.
type Shard struct {
	*cores.Cores
	Inc api.Incarnation
}

// NewShard makes a shard that owns nothing.
func NewShard(inc api.Incarnation, h home.Config, n node.Config) *Shard {
	return &Shard{cores.New(inc, h, n), inc}
}

// most is how many messages the cores of a shard may send each other because of one event.
const most = 10_000

// Step gives a shard an event, and its cores what they send each other. It calls carry with each other output, in
// order.
func (x *Shard) Step(now time.Time, ev event.Event, carry func(event.Output)) error {
	x.Put(ev)
	for sent := 0; x.Waiting() > 0; sent++ {
		if sent > most {
			return fmt.Errorf("%s: its cores do not stop talking", x.Inc)
		}
		x.Cores.Step(now, x.Take(), func(o event.Output) bool {
			if send, is := o.(event.Send); !is || send.To != x.Inc {
				carry(o)
			}
			return true
		})
	}
	return nil
}

// Outside is what shards are connected to. Revision is that of the control store; the zero value is an empty one.
type Outside struct {
	Revision int64
	intents  map[key]event.LoggedIntents
	order    uint64 // of grants
}

type key struct {
	inc api.Incarnation
	n   uint64
}

// Answer carries out an output of a shard, if it is one of Outside's. It returns what the shard is answered, nil for
// nothing, and what happened to the log of intents, in order.
func (w *Outside) Answer(from api.Incarnation, o event.Output) (answer event.Event, log []event.LogSeen, known bool) {
	switch o := o.(type) {
	case event.Send:
		if o.To != event.ToCoordinator {
			return nil, nil, false
		}
		if body := w.coordinate(o.Body); body != nil {
			answer = event.Message{From: event.ToCoordinator, Body: body}
		}
	case event.ReadStore:
		w.Revision = max(w.Revision, o.MinRevision)
		answer = event.StoreRead{Sequence: o.Sequence, Revision: w.Revision}
	case event.WriteIntents:
		w.Revision++
		log = w.write(event.LoggedIntents{Incarnation: from, N: o.N, Place: w.Revision, Record: o.Record})
		answer = event.IntentsWritten{N: o.N, Outcome: event.Written, ModRevision: w.Revision}
	case event.DeleteIntents:
		w.Revision++
		var done event.IntentsDeleted
		for _, k := range o.Keys {
			if in, there := w.intents[key{from, k.N}]; there {
				in.Record = nil
				log = append(log, w.write(in)...)
			}
			done.Keys = append(done.Keys, event.IntentKey{N: k.N})
		}
		answer = done
	case event.RewriteIntents:
		in, there := w.intents[key{o.Incarnation, o.N}]
		done := event.IntentsRewritten{Incarnation: o.Incarnation, N: o.N, Done: there}
		if there {
			w.Revision++
			in.Record = o.Record
			log = w.write(in)
			done.ModRevision, done.Record = w.Revision, o.Record
		}
		answer = done
	case event.WritePodCondition, event.EvictPod: // of pods, which are the driver's
		return nil, nil, false
	case event.Write:
		answer = event.StatusWritten{ID: o.WriteID(), Outcome: event.StatusOK}
	default:
		return nil, nil, false
	}
	return answer, log, true
}

// write changes a key of the log; without a record it is deleted.
func (w *Outside) write(in event.LoggedIntents) []event.LogSeen {
	if w.intents == nil {
		w.intents = map[key]event.LoggedIntents{}
	}
	if id := (key{in.Incarnation, in.N}); in.Record != nil {
		w.intents[id] = in
	} else {
		delete(w.intents, id)
	}
	return []event.LogSeen{{Revision: w.Revision, Intents: []event.LoggedIntents{in}}}
}

// coordinate returns the coordinator's answer, nil for none.
func (w *Outside) coordinate(body *wire.Envelope) *wire.Envelope {
	switch b := body.GetBody().(type) {
	case *wire.Envelope_Reserve:
		w.Revision++
		w.order++
		return Grant(b.Reserve, w.Revision, w.order)
	case *wire.Envelope_Unreserve:
		m := b.Unreserve
		return &wire.Envelope{Body: &wire.Envelope_Unreserved{Unreserved: &wire.Unreserved{
			GangUid: m.GetGang().GetUid(), Attempt: m.GetAttempt(), Serial: m.GetSerial()}}}
	case *wire.Envelope_Close:
		m := b.Close
		return &wire.Envelope{Body: &wire.Envelope_Closed{Closed: &wire.Closed{
			GangUid: m.GetGang().GetUid(), Attempt: m.GetAttempt(), Serial: m.GetSerial()}}}
	}
	return nil
}

// Grant returns the coordinator's answer to a Reserve that gets all that it asks for. A gang without a rank gets one
// of an order.
func Grant(m *wire.Reserve, revision int64, order uint64) *wire.Envelope {
	rank := m.GetRank()
	if rank == nil {
		rank = &wire.Rank{Priority: m.GetPriority(), Order: order, GangUid: m.GetGang().GetUid()}
	}
	return &wire.Envelope{Body: &wire.Envelope_Granted{Granted: &wire.Granted{GangUid: m.GetGang().GetUid(),
		Attempt: m.GetAttempt(), Serial: m.GetSerial(), ReservationRevision: revision, Demand: m.GetDemand(), Rank: rank}}}
}
