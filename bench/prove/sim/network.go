package sim

import (
	"fmt"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// network carries messages as package api/link does: in order on each connection, or not at all. Late repeats, which link
// does not make and the protocol allows, are drawn too.
type network struct {
	w     *world
	conns map[[2]api.Incarnation]*conn
}

// conn is the stream from one process to another.
type conn struct {
	from, to *process
	out, in  stream
	broken   int // grows when it breaks: what is under way is lost
	up       bool
	cut      time.Time // nothing passes until then
	slow     time.Time
}

func newNetwork(w *world) *network {
	return &network{w: w, conns: map[[2]api.Incarnation]*conn{}}
}

func (n *network) conn(from, to *process) *conn {
	key := [2]api.Incarnation{from.inc, to.inc}
	c := n.conns[key]
	if c == nil {
		c = &conn{from: from, to: to}
		n.conns[key] = c
	}
	return c
}

// gone drops the connections of a process that died; who talked to it notices after a while.
func (n *network) gone(p *process) {
	for _, o := range n.w.processes {
		if c := n.conns[[2]api.Incarnation{o.inc, p.inc}]; c != nil {
			o.later(n.w.between(0, 200*time.Millisecond), func() { n.w.down(o, p.inc) })
		}
	}
	for key := range n.conns {
		if key[0] == p.inc || key[1] == p.inc {
			n.conns[key].broken++
			delete(n.conns, key)
		}
	}
}

// breaks loses what is under way.
func (n *network) breaks(c *conn) {
	c.broken++
	if c.up {
		c.up = false
		c.from.later(n.w.between(0, 50*time.Millisecond), func() { n.w.down(c.from, c.to.inc) })
	}
}

// send says something to a process.
func (n *network) send(from *process, to *process, body *wire.Envelope) {
	w := n.w
	if to == nil || to.dead {
		return
	}
	c := n.conn(from, to)
	if body.GetSummary() == nil && body.GetQueueUsages() == nil && body.GetSupply() == nil {
		w.log("%s -> %s: %s", from.inc, to.inc, describe(body))
	}
	sent := c.broken
	from.ordered(&c.out, w.between(0, time.Millisecond), func() {
		d := w.slowness("message", w.between(100*time.Microsecond, 5*time.Millisecond))
		if w.now.Before(c.slow) {
			d = w.between(0, 3*time.Second)
		}
		if w.now.Before(c.cut) && c.broken == sent {
			n.breaks(c)
		}
		deliver := func() {
			if c.broken != sent {
				w.count("messages lost")
				return
			}
			if !c.up {
				c.up = true
				from.later(w.delay(), func() { w.up(from, to.inc) })
			}
			w.deliver(from, to, body)
		}
		to.ordered(&c.in, d, deliver)
		drawn := w.some(200)
		if late, again := w.mishap(drawn, "repeat", string(from.inc)+" "+string(to.inc), w.between(0, 10*time.Second)); again && !w.calm {
			w.count("messages repeated")
			to.later(late, func() { w.deliver(from, to, body) })
		}
	})
}

// shard and coordinator return what a process is, nil when it is not that.
func (w *world) shard(p *process) *shard {
	for _, x := range w.shards {
		if x.process == p {
			return x
		}
	}
	return nil
}

func (w *world) coordinator(p *process) *coordinator {
	for _, c := range w.coords {
		if c.process == p {
			return c
		}
	}
	return nil
}

// deliver hands a message to a process.
func (w *world) deliver(from, to *process, body *wire.Envelope) {
	if x := w.shard(to); x != nil {
		x.hear(from.inc, body)
	} else if c := w.coordinator(to); c != nil {
		c.hear(from.inc, body)
	}
}

func (w *world) up(p *process, peer api.Incarnation) {
	if c := w.coordinator(p); c != nil {
		c.linked(peer)
	}
}

func (w *world) down(p *process, peer api.Incarnation) {
	if c := w.coordinator(p); c != nil {
		c.suspect(peer)
	}
}

func (w *world) process(inc api.Incarnation) *process {
	for _, p := range w.processes {
		if p.inc == inc {
			return p
		}
	}
	return nil
}

func serial(s uint64) string { return fmt.Sprintf("%d.%d", s>>32, uint32(s)) }

func amounts(a []*wire.Amount) string {
	r, _ := wire.ToResources(a)
	return r.String()
}

// places returns pods with their nodes, in words of our own: protobuf's differ from one program to the next.
func places(held []*wire.Held) []string {
	out := []string{}
	for _, h := range held {
		out = append(out, h.PodUid+"@"+h.Node)
	}
	return out
}

// describe says in a line what a message is.
func describe(e *wire.Envelope) string {
	switch b := e.Body.(type) {
	case *wire.Envelope_Reserve:
		m := b.Reserve
		said := fmt.Sprintf("Reserve %s %s attempt %d demand %s bound %s epoch %d patient %t", m.Gang.Uid,
			serial(m.Serial), m.Attempt, amounts(m.Demand), amounts(m.Bound), m.TableEpoch, m.Patient)
		if m.Order != nil {
			said += fmt.Sprint(" place ", *m.Order)
		}
		return said
	case *wire.Envelope_Unreserve:
		return fmt.Sprintf("Unreserve %s %s attempt %d", b.Unreserve.Gang.Uid, serial(b.Unreserve.Serial), b.Unreserve.Attempt)
	case *wire.Envelope_Close:
		return fmt.Sprintf("Close %s %s attempt %d %s", b.Close.Gang.Uid, serial(b.Close.Serial), b.Close.Attempt, b.Close.Reason)
	case *wire.Envelope_Granted:
		return fmt.Sprintf("Granted %s %s attempt %d revision %d demand %s", b.Granted.GangUid, serial(b.Granted.Serial), b.Granted.Attempt, b.Granted.ReservationRevision, amounts(b.Granted.Demand))
	case *wire.Envelope_Denied:
		m := b.Denied
		return fmt.Sprintf("Denied %s %s attempt %d %s %s %s %s", m.GangUid, serial(m.Serial), m.Attempt, m.Reason, m.Queue, m.Resource, m.Message)
	case *wire.Envelope_Unreserved:
		return fmt.Sprintf("Unreserved %s %s", b.Unreserved.GangUid, serial(b.Unreserved.Serial))
	case *wire.Envelope_Closed:
		return fmt.Sprintf("Closed %s %s", b.Closed.GangUid, serial(b.Closed.Serial))
	case *wire.Envelope_Refilled:
		return fmt.Sprintf("Refilled %d", b.Refilled.TableEpoch)
	case *wire.Envelope_Known:
		var uids []string
		for _, g := range b.Known.Gangs {
			uids = append(uids, g.Uid)
		}
		return fmt.Sprintf("Known %v", uids)
	case *wire.Envelope_HoldRequest:
		m := b.HoldRequest
		var pods []string
		for _, p := range m.Pods {
			pods = append(pods, p.PodUid)
		}
		return fmt.Sprintf("HoldRequest %s %s pods %v patient %t", m.Gang.Uid, serial(m.Serial), pods, m.Patient)
	case *wire.Envelope_HoldReply:
		held := places(b.HoldReply.Held)
		refused := []string{}
		for _, r := range b.HoldReply.Refused {
			refused = append(refused, fmt.Sprintf("%d never %t", r.Pods, r.Never))
		}
		return fmt.Sprintf("HoldReply %s %s held %v refused %q", b.HoldReply.GangUid, serial(b.HoldReply.Serial), held, refused)
	case *wire.Envelope_Explain:
		return fmt.Sprintf("Explain %d", b.Explain.Serial)
	case *wire.Envelope_Probe:
		return fmt.Sprintf("Probe %d by %v: %d classes", b.Probe.Serial, b.Probe.Keys, len(b.Probe.Classes))
	case *wire.Envelope_Probed:
		var rooms []string
		for _, d := range b.Probed.Domains {
			rooms = append(rooms, fmt.Sprint(d.Values, d.Pods))
		}
		return fmt.Sprintf("Probed %d: %q later %t", b.Probed.Serial, rooms, b.Probed.Later)
	case *wire.Envelope_Explained:
		return fmt.Sprintf("Explained %d: %d of %d nodes", b.Explained.Serial, b.Explained.Fit, b.Explained.Nodes)
	case *wire.Envelope_HoldsLost:
		return fmt.Sprintf("HoldsLost %s %s %v", b.HoldsLost.GangUid, serial(b.HoldsLost.Serial), b.HoldsLost.PodUids)
	case *wire.Envelope_Commit:
		m := b.Commit
		var pods []string
		for _, p := range m.Pods {
			pods = append(pods, p.Uid+"@"+p.ResourceVersion+"->"+p.Node)
		}
		return fmt.Sprintf("Commit %s %s reservation %d table %d bind %t pods %v", m.Gang.Uid, serial(m.Serial), m.ReservationRevision, m.TableRevision, m.Bind, pods)
	case *wire.Envelope_CommitReply:
		return fmt.Sprintf("CommitReply %s %s %s %v %s", b.CommitReply.GangUid, serial(b.CommitReply.Serial), b.CommitReply.Outcome, b.CommitReply.PodUids, b.CommitReply.Message)
	case *wire.Envelope_Bind:
		return fmt.Sprintf("Bind %s %s", b.Bind.GangUid, serial(b.Bind.Serial))
	case *wire.Envelope_Withdraw:
		return fmt.Sprintf("Withdraw %s %s asks about %v", b.Withdraw.Gang.Uid, serial(b.Withdraw.Serial), b.Withdraw.PodUids)
	case *wire.Envelope_Withdrawn:
		return fmt.Sprintf("Withdrawn %s %s sent %v bound %v", b.Withdrawn.GangUid, serial(b.Withdrawn.Serial), b.Withdrawn.SentPodUids, places(b.Withdrawn.Bound))
	case *wire.Envelope_BindResults:
		var out []string
		for _, r := range b.BindResults.Results {
			out = append(out, fmt.Sprintf("%s %s %s", r.PodUid, r.Outcome, r.Node))
		}
		return fmt.Sprintf("BindResults %s %s %v", b.BindResults.GangUid, serial(b.BindResults.Serial), out)
	}
	return describeClaim(e)
}

// describeClaim says it of the messages of mandates and claims.
func describeClaim(e *wire.Envelope) string {
	switch b := e.Body.(type) {
	case *wire.Envelope_Mandate:
		m := b.Mandate
		var who, lacks []string
		for _, c := range m.Candidates {
			who = append(who, c.Gang.Uid+" of "+c.Gang.Queue+" "+amounts(c.Demand))
		}
		for _, l := range m.Lacks {
			lacks = append(lacks, fmt.Sprintf("%s %s %d", l.Queue, l.Resource, l.Short))
		}
		return fmt.Sprintf("Mandate %s %s attempt %d number %d %s lacks %q candidates %q",
			m.GangUid, serial(m.Serial), m.Attempt, m.Number, m.Rule, lacks, who)
	case *wire.Envelope_RoomProbe:
		return fmt.Sprintf("RoomProbe %s %d: %d classes, candidates %v",
			b.RoomProbe.GangUid, b.RoomProbe.Serial, len(b.RoomProbe.Classes), b.RoomProbe.Candidates)
	case *wire.Envelope_Rooms:
		var rooms []string
		for _, n := range b.Rooms.Nodes {
			room := fmt.Sprintf("%s free %s classes %v", n.Node, amounts(n.Free), n.Classes)
			for _, l := range n.Leaves {
				room += fmt.Sprintf(", %s %s anyway %t bars %v", l.GangUid, amounts(l.Amounts), l.Anyway, l.Bars)
			}
			rooms = append(rooms, room)
		}
		return fmt.Sprintf("Rooms %d: %q later %t more %t", b.Rooms.Serial, rooms, b.Rooms.Later, b.Rooms.More)
	case *wire.Envelope_Claim:
		m := b.Claim
		var victims []string
		for _, v := range m.Victims {
			victims = append(victims, fmt.Sprintf("%s with %d pods alone", v.Gang.Uid, len(v.Pods)))
		}
		return fmt.Sprintf("Claim %s %s attempt %d mandate %d victims %q awaits %v stale %t %s",
			m.Gang.Uid, serial(m.Serial), m.Attempt, m.Mandate, victims, m.Awaits, m.Stale, m.Why)
	case *wire.Envelope_ClaimReply:
		m := b.ClaimReply
		return fmt.Sprintf("ClaimReply %s attempt %d mandate %d accepted %t %s",
			m.GangUid, m.Attempt, m.Mandate, m.Accepted, m.Message)
	case *wire.Envelope_Stuck:
		return fmt.Sprintf("Stuck %s %s attempt %d", b.Stuck.Gang.Uid, serial(b.Stuck.Serial), b.Stuck.Attempt)
	case *wire.Envelope_Yield:
		return fmt.Sprintf("Yield %s attempt %d to %s", b.Yield.Gang.Uid, b.Yield.Attempt, b.Yield.To.GetTo().GetUid())
	}
	return fmt.Sprintf("%T", e.Body)
}
