package home

import (
	"cmp"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/home/intake"
	"basalt.dev/basalt/shard/home/report"
)

// Why says all that users may know of a gang: why it waits, since when, its place in the order, what it lacks, and what happens next. It
// says nothing of other gangs but how many there are, and for which it was evicted. It changes nothing, and costs a look at each gang.
func (c *Core) Why(q *wire.WhyRequest) *wire.WhyReply {
	g, queue, kind, known := c.asked(q)
	out := &wire.WhyReply{Known: known, Kind: uint32(kind)}
	if g == nil || !g.ownerless.IsZero() {
		if known && queue != "" && c.table != nil {
			out.Queue, out.Home = queue, string(c.table.OwnerOf(queue))
		}
		return out
	}
	words := g.words()
	if words.None() && !g.started {
		words = report.NotPlaced()
	}
	next := words.Next() // what the gang waits for: pods say the same of several reasons
	if p := c.pods[q.GetPodUid()]; p != nil && !g.podReason(p).None() {
		if words = g.podReason(p); p.Refused != nil {
			next = words.Next()
		}
	}
	out.Title, out.GangUid, out.Queue, out.State, out.Started = g.label(), g.id, g.queue, g.state.String(), g.started
	out.Reason, out.Message, out.Next = words.Code, report.Short(words.Message+c.rules.repellers.ignoredOf(g)), next
	out.Evicted = cmp.Or(g.yielded, g.shrunk)
	if pods := g.inOrder(); len(pods) > 0 {
		out.Note = pods[0].Unheeded // what a template says, all pods of it say
	}
	said := c.saidLimit(g)
	out.LimitMs, out.LimitBy, out.SearchMs = said.is.Milliseconds(), said.by, c.beforeLimit(g).Milliseconds()
	if !g.charge.ends.IsZero() {
		out.EndsUnixMs = g.charge.ends.UnixMilli()
	}
	out.CreatedUnixMs = createdAt(g).UnixMilli()
	if !g.since.IsZero() {
		out.CompleteUnixMs = g.since.UnixMilli()
	}
	out.Pods, out.Bound, out.MinCount = uint32(g.tally.unfinished), uint32(g.tally.bound), uint32(g.minCount())
	place, of := c.reports.positionOf(g)
	out.Position, out.Waiting = uint32(place), uint32(of)
	if out.Order = g.ordered.message(); out.Order != nil {
		out.OrderFailed = g.ordered.failed
	}
	if g.charge.reserved() {
		out.Charged = wire.FromResources(g.charge.amounts)
	}
	if a := g.charge.reserve; a != nil && a.denied != nil && a.denied.GetShort() > 0 {
		out.ShortQueue, out.ShortResource, out.Short = a.denied.GetQueue(), a.denied.GetResource(), a.denied.GetShort()
		if a.denied.GetReason() == wire.DenyReason_DENY_SUPPLY {
			out.ShortQueue = "" // no quota lacks
		}
	}
	if s := g.search.short; s != nil && (g.blocked.Is(s.reason("").Code) || g.blocked.NoRoom()) {
		if x := c.reasons.explanations.classes[s.class.Key]; x != nil {
			out.Nodes, out.Fit = uint32(x.last.Nodes), uint32(x.last.Fit)
			for _, r := range x.last.Counts {
				out.NodeReasons = append(out.NodeReasons, &wire.NodeReason{Reason: r.Reason, Nodes: uint32(r.Nodes)})
			}
			for _, b := range x.last.By {
				by := &wire.RoomBy{Pods: uint32(b.Pods)}
				if !b.At.IsZero() {
					by.UnixMs = b.At.UnixMilli()
				}
				out.RoomBy = append(out.RoomBy, by)
			}
			if out.Missing = uint32(s.missing); !g.started {
				out.Missing = uint32(s.of) // the others will have given back what they found
			}
		}
	}
	return out
}

// asked finds the gang that is asked about. It is nil where another shard drives it; then queue says whose it is, if that is known.
func (c *Core) asked(q *wire.WhyRequest) (g *gang, queue string, kind api.GroupKind, known bool) {
	if uid := q.GetPodUid(); uid != "" {
		p := c.pods[uid]
		switch {
		case p != nil && p.gang != nil:
			return p.gang, "", 0, true
		case p == nil || p.Finished || !p.Ours && !p.isBound(): // it has ended, or is not ours: no shard has a gang of it
			return nil, "", 0, false
		}
		if group := c.objects.Group(p.InGroup); group != nil {
			queue, _, _ = c.objects.GroupQueue(group)
		} else {
			queue, _ = c.objects.PodQueue(p.Entry)
		}
		return nil, queue, 0, true
	}
	for _, kind := range []api.GroupKind{api.BasaltGroup, api.VolcanoGroup, api.UpstreamGroup} {
		if group := c.objects.Group(intake.Name{Namespace: q.GetNamespace(), Name: q.GetName(), Kind: kind}); group != nil {
			queue, _, _ = c.objects.GroupQueue(group)
			return c.gangs[group.UID], queue, kind, true
		}
	}
	return nil, "", 0, false
}

// createdAt returns when the first of a gang's objects was created.
func createdAt(g *gang) time.Time {
	at := g.first
	if g.group != nil && !g.group.Created.IsZero() {
		at = g.group.Created
	}
	for _, p := range g.members {
		if !p.Created.IsZero() && p.Created.Before(at) {
			at = p.Created
		}
	}
	return at
}
