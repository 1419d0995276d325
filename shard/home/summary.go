package home

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Summaries: what each node shard announced last, less what was asked of it since. A summary that shows freed capacity or other
// nodes ends the sleep of gangs that wait for one (sleep.go). Summaries also tell which gangs fit on no node, however empty (never.go).

// shards is what the node shards say that they have.
type shards struct {
	*common

	summaries map[api.Incarnation]*summary
	owned     map[api.Incarnation]int // buckets of each member
	tableAt   time.Time
	room      uint64 // grows when a shard reports that capacity was freed
	nodes     uint64 // grows when a shard's nodes changed
	changed   bool   // one of them did, and not all sleepers were looked through since
}

// summary is what a node shard announced last.
type summary struct {
	said                       *wire.Summary
	allocatable, free, largest api.Resources

	// What is left of it after what was asked for since.
	left api.Resources
	room map[uint64]int64 // pods that fit, by hash of their class; only of classes that the shard counted

	grades map[uint64]uint32 // of the best node with room, by hash of classes with wishes
	leaned map[uint64]leaned // the same of classes with leanings, as refusals said

	asking  []*gang // that asked for something since, or before and were not answered
	skipped []*gang // that did not ask, because of what others ask for and may not get: the first of them
}

// take takes pods that were asked for off what the summary shows.
func (s *summary) take(kinds []kind) {
	for _, k := range kinds {
		n, hash := int64(len(k.pods)), k.class.Hash()
		s.left = s.left.Sub(times(k.class.Requests, n)).Positive()
		if room, counted := s.room[hash]; counted {
			s.room[hash] = max(0, room-n)
		}
	}
}

// share returns those of some pods that fit according to the summary, classes of which the fewest pods fit first, or
// in the order that they have. At a shard of another process it leaves an eighth: that one's own gangs have taken some
// since.
func (s *summary) share(kinds []kind, own, ordered bool) (pods []*pod) {
	keep := func(n int64) int64 {
		if own {
			return n
		}
		return n - n/8
	}
	type part struct {
		kind
		most int64
	}
	parts := make([]part, 0, len(kinds))
	for _, k := range kinds {
		p := part{k, math.MaxInt64}
		if room, counted := s.room[k.class.Hash()]; counted {
			p.most = keep(room)
		}
		parts = append(parts, p)
	}
	if !ordered {
		slices.SortStableFunc(parts, func(a, b part) int {
			return cmp.Or(cmp.Compare(b.pods[0].Tied, a.pods[0].Tied), cmp.Compare(a.most, b.most))
		})
	}
	left := s.left
	for _, p := range parts {
		if n := min(int64(len(p.pods)), p.most, keep(p.class.Requests.Often(left))); n > 0 {
			pods = append(pods, p.pods[:n]...)
			left = left.Sub(times(p.class.Requests, n))
		}
	}
	return pods
}

// skippedAtMost bounds the gangs that are remembered to have skipped a shard, and among how many of those that asked last it is looked for one that
// has no answer.
const skippedAtMost = 64

// skips notes of a gang that found too little room which shards it did not ask, although they have some, because another gang has asked for it
// and has no answer yet. It reports whether there are any.
func (c *shards) skips(g *gang, r *round, missing []*pod) (is bool) {
	kinds := kindsOf(missing)
	for _, m := range c.table.Members {
		s := c.summaries[m.Incarnation]
		if s == nil || r.asked[m.Incarnation] || c.owned[m.Incarnation] == 0 || len(s.skipped) >= skippedAtMost || fits(s.free, kinds) == 0 {
			continue
		}
		if last := s.asking[max(0, len(s.asking)-skippedAtMost):]; slices.ContainsFunc(last, func(o *gang) bool {
			return o != g && !o.dropped() && o.search.round != nil && o.search.round.shard == m.Incarnation
		}) {
			s.skipped, is = append(s.skipped, g), true
		}
	}
	return is
}

// unskip lets gangs that skipped a shard search again as soon as they may: it refused so many pods that had been asked for instead.
func (c *searchers) unskip(s *summary, refused int64) {
	for ; refused > 0 && len(s.skipped) > 0; refused-- {
		g := s.skipped[0]
		s.skipped = s.skipped[1:]
		if !g.dropped() {
			c.hasten(g)
		}
	}
}

func times(r api.Resources, n int64) api.Resources {
	out := r.Clone()
	for i := range out {
		out[i].Value = api.MulSat(out[i].Value, n)
	}
	return out
}

// kind is pods of one class.
type kind struct {
	class *api.Class
	pods  []*pod
}

// kindsOf sorts pods by class, in the order of the first of each.
func kindsOf(pods []*pod) (kinds []kind) {
	var index classIndex
	for _, p := range pods {
		i, fresh := index.number(p.asked)
		if fresh {
			kinds = append(kinds, kind{class: p.asked})
		}
		kinds[i].pods = append(kinds[i].pods, p)
	}
	return kinds
}

// fits returns how many pods of one kind fit into free capacity, of the kind of which most fit.
func fits(free api.Resources, kinds []kind) int64 {
	var most int64
	for _, k := range kinds[:min(len(kinds), 8)] {
		most = max(most, k.class.Requests.Often(free))
	}
	return most
}

func (c *shards) onSummary(from api.Incarnation, m *wire.Summary) {
	s := &summary{said: m}
	var errs [3]error
	s.allocatable, errs[0] = wire.ToResources(m.GetAllocatable())
	s.free, errs[1] = wire.ToResources(m.GetFree())
	s.largest, errs[2] = wire.ToResources(m.GetLargest())
	for _, err := range errs {
		if err != nil {
			return
		}
	}
	old := c.summaries[from]
	if c.table != nil && !c.table.Has(from) {
		return
	}
	s.left, s.room = s.free, make(map[uint64]int64, len(m.GetRoom()))
	for _, r := range m.GetRoom() {
		if !r.GetMore() {
			s.room[r.GetPodClass()] = int64(r.GetPods())
		}
	}
	s.readGrades(m)
	c.keepLeaned(s, old)
	if old != nil { // what is not answered is not counted in it: answers and summaries come in their order
		s.skipped = old.skipped
		for _, g := range old.asking {
			if r := g.search.round; !g.dropped() && r != nil && r.shard == from && !slices.Contains(s.asking, g) {
				s.take(r.fresh)
				s.asking = append(s.asking, g)
			}
		}
	}
	c.summaries[from] = s
	if old == nil || m.GetRoomVersion() != old.said.GetRoomVersion() {
		c.room++
		c.changed = true
	}
	if old == nil || m.GetNodes() != old.said.GetNodes() || !s.allocatable.Equal(old.allocatable) || !s.largest.Equal(old.largest) ||
		m.GetNodesVersion() != old.said.GetNodesVersion() || m.GetTableEpoch() != old.said.GetTableEpoch() {
		c.nodes++
		c.changed = true
	}
}

// knowsNodes reports whether every shard has sent a summary under the current table, and the table has been stable for Config.NeverAfter.
func (c *shards) knowsNodes() bool {
	return c.table != nil && !c.now.Before(c.tableAt.Add(c.cfg.NeverAfter)) && !slices.ContainsFunc(c.table.Members, func(m api.Member) bool {
		s := c.summaries[m.Incarnation]
		return s == nil || s.said.GetTableEpoch() != uint64(c.table.Epoch)
	})
}

func (o option) before(p option) bool {
	mends := func(o option) int { return min(o.class, 1) }
	return cmp.Or(cmp.Compare(mends(o), mends(p)), cmp.Compare(o.turn, p.turn), cmp.Compare(p.grade, o.grade),
		cmp.Compare(o.class, p.class), cmp.Compare(len(p.pods), len(o.pods)), cmp.Compare(p.room, o.room),
		strings.Compare(string(o.shard), string(p.shard))) < 0
}

// giveBack adds pods that are let go of to what a shard has. What others of the gang were refused beside them, they may
// get now: that is counted no more.
func (s *summary) giveBack(pods []*pod, classes map[uint64]bool) {
	if s == nil {
		return
	}
	for _, p := range pods {
		s.left = s.left.Add(p.asked.Requests)
		if room, counted := s.room[p.asked.Hash()]; counted {
			s.room[p.asked.Hash()] = room + 1
		}
	}
	for class := range classes {
		if s.room[class] == 0 {
			delete(s.room, class)
		}
	}
}
