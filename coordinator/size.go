package coordinator

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// A transaction is bounded by operations and by bytes. Both bounds are below those of the control store, which takes 1 MiB for a
// record and 1.4 MiB for a transaction: one that the store refuses would end the term, and the next leader would try it again.
// What is counted is an upper bound of the encoded size, so that nothing is encoded twice.
const (
	// batchBytes bounds a transaction with more than one operation.
	batchBytes = 1 << 20
	// maxRecordBytes bounds one record with its key. A demand or a queue that needs more is refused.
	maxRecordBytes = 960 << 10
	// opBytes covers an operation's key and the fields of a record that have a fixed size.
	opBytes = 512
	// amountBytes covers what is encoded of an amount beside its name.
	amountBytes = 24
)

// add appends an operation of at most so many bytes.
func (b *batch) add(op Op, bytes int) {
	b.ops = append(b.ops, op)
	b.bytes += bytes
}

// fits reports whether the transaction can take so many bytes more and stay below limit. An empty one takes any record.
func (b *batch) fits(bytes, limit int) bool {
	return len(b.ops) == 0 || b.bytes+bytes <= limit || fault.On(fault.UnboundedBatch)
}

// reservationBytes bounds the size of a reservation's record.
func reservationBytes(ref *wire.GangRef, demand api.Resources, pods []uint64) int {
	return opBytes + proto.Size(ref) + 2*len(ref.GetUid()) + 8*len(pods) + amountsBytes(demand)
}

// amountsBytes bounds the size of amounts in a record.
func amountsBytes(amounts api.Resources) (n int) {
	for _, a := range amounts {
		n += amountBytes + len(a.Resource)
	}
	return n
}

// requestBytes bounds what a request may write: the record of a Reserve, or the one that a Close changes.
func (c *Core) requestBytes(key gangKey, body *wire.Envelope) int {
	n := opBytes + len(key.uid)
	switch body := body.GetBody().(type) {
	case *wire.Envelope_Reserve:
		m := body.Reserve
		n += proto.Size(m.GetGang()) + 2*len(key.uid) + 8*len(m.GetPods()) + whoSaid(m.GetUser(), m.GetGroups()).bytes()
		demand := 0
		for _, a := range m.GetDemand() {
			demand += amountBytes + len(a.GetResource())
		}
		n += demand
		if g := c.roster.gangs[key]; g != nil {
			n += g.res.claimBytes()
			if r := g.res; r != nil && (r.started || m.GetStarted()) { // what it was charged at most, with what it is now
				n += demand + amountsBytes(r.demand)
			}
		}
	case *wire.Envelope_Claim:
		n += proto.Size(body.Claim)
		if g := c.roster.gangs[key]; g != nil && g.res != nil {
			n += c.recordBytes(g)
		}
	case *wire.Envelope_Condemn:
		if g := c.roster.gangs[key]; g != nil && g.res != nil {
			n = c.recordBytes(g) + surplusBytes(g.res.asked) + 2*proto.Size(body.Condemn)
		}
	case *wire.Envelope_Close:
		if g := c.roster.gangs[key]; g != nil && g.res != nil {
			n = c.recordBytes(g)
		}
	}
	return n
}

// tooLarge says why a reservation cannot be written, "" when it can. One that is no larger than the gang's present one can.
func (g *gang) tooLarge(demand api.Resources, pods []uint64) string {
	n := reservationBytes(g.ref, demand, pods)
	if n <= maxRecordBytes || g.res != nil && n <= reservationBytes(g.ref, g.res.demand, g.res.pods) {
		return ""
	}
	return fmt.Sprintf("the reservation of %s has %d bytes, the limit is %d: its pods request %d resources (%d bytes with their names), and it names %d pods",
		g.ref.Title(), n, maxRecordBytes, len(demand), reservationBytes(nil, demand, nil)-opBytes, len(pods))
}

// limitsBytes bounds the size of a record of limits.
func limitsBytes(r *wire.LimitsRecord) int { return opBytes + len(r.GetQueue()) + proto.Size(r) }

// recordBytes bounds the size of a gang's record as it is.
func (c *Core) recordBytes(g *gang) int {
	return reservationBytes(g.ref, g.res.demand, g.res.pods) + g.res.claimBytes() + g.res.who.bytes()
}

// claimBytes bounds what a record says of claims, and of what its gang was charged at most.
func (r *reservation) claimBytes() (n int) {
	if r == nil {
		return 0
	}
	n = amountsBytes(r.most)
	for _, uid := range r.awaits {
		n += len(uid) + 4
	}
	if r.within != nil {
		n += proto.Size(r.within) + 8
	}
	n += r.surplusRecordBytes()
	if r.yields != nil {
		n += proto.Size(r.yields) + 8
	}
	if x := r.claim; x != nil {
		n += 64
		for _, v := range x.victims {
			n += len(v.gang.key.uid) + len(v.gang.key.queue) + 32 + surplusBytes(v.pods)
		}
		n += 2 * amountsBytes(x.promised) // and of what it lacks of them
	}
	return n
}

func surplusBytes(pods []surplus) (n int) {
	for _, p := range pods {
		n += len(p.uid) + 8
		for _, a := range p.amounts {
			n += amountBytes + len(a.Resource)
		}
	}
	return n
}

// surplusRecordBytes bounds what a record says of pods that are condemned.
func (r *reservation) surplusRecordBytes() (n int) {
	if len(r.condemned) > 0 {
		n = surplusBytes(r.condemned) + proto.Size(r.shrinks) + 16
	}
	return n
}

// sound says what is wrong with a demand, nil when nothing is.
func sound(demand api.Resources) error {
	for _, a := range demand {
		if a.Value < 0 {
			return fmt.Errorf("demand: %s is negative", a.Resource)
		}
	}
	return nil
}
