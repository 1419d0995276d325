package home

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/cespare/xxhash/v2"

	"basalt.dev/basalt/api"
)

// Which node shard a round asks next: this process's own shard first, then those with the most free capacity. Each is asked for
// no more than its last summary says it has, less what was asked of it since: what a shard refuses is work for nothing, and a
// gang that crosses shards would be refused something at each but the last. Where that is too little, the shard says in its
// answer what it has now.
//
// Summaries are slightly out of date, and do not count what a gang of better rank may take. So a gang for which they show too
// little requests a little more than they show, now and then: one pod of each class, and twice as many each time that all of it
// was granted.

// option is a shard that may be asked next, and for which pods.
type option struct {
	shard api.Incarnation
	class int // 0 has capacity for a pod that it failed to bind, 1 this process, 2 others
	pods  []*pod
	room  int64
	grade uint32 // of the best node for pods with wishes
	turn  uint64 // by which it is asked, if shards are asked in turn
	least uint32 // not 0: only for nodes of this grade or above, and
	of    uint64 // for the class with this hash
}

// fewKinds is how many classes of missing pods there may be for a shard that refused one to be asked for the others:
// it may have room for these, of which its summary showed too little beside the first.
const fewKinds = 8

// notVain returns the kinds that a shard has not refused.
func (r *round) notVain(shard api.Incarnation, kinds []kind) []kind {
	if !r.refused[shard] {
		return kinds
	}
	return slices.DeleteFunc(slices.Clone(kinds), func(k kind) bool { return r.vain[gradeKey{shard, k.class.Hash()}] })
}

// nextShard returns the shard to ask next, and for which pods, or false when the round is over. This process's own shard is asked
// even if its summary shows nothing, because that costs no message. So is a shard at which the gang holds something, because the
// request renews those holds.
func (c *shards) nextShard(g *gang, r *round, missing []*pod) (next option, found bool) {
	if r.area != nil {
		return c.nextInArea(&g.search, r, missing)
	}
	kinds := kindsOf(missing)
	if g.search.order < firstDrawn { // a drawn order looks for any nodes
		if next, found := c.nextByGrade(r, kinds); found {
			return next, true
		}
		if g.overtaken(r, kinds) {
			r.pauses = true
			return next, false
		}
	}
	preferred := map[api.Incarnation][]*pod{}
	for _, p := range missing {
		if shard := p.seldom().prefer; shard != "" {
			preferred[shard] = append(preferred[shard], p)
		}
	}
	for _, m := range c.table.Members {
		o := option{shard: m.Incarnation, class: 2, turn: g.search.turnOf(m.Incarnation, r.asked[m.Incarnation])}
		if r.done[o.shard] || c.owned[o.shard] == 0 {
			continue
		}
		if o.shard == c.cfg.Self {
			o.class = 1
		}
		kinds := r.notVain(o.shard, kinds)
		if s := c.summaries[o.shard]; s != nil {
			o.pods = s.share(kinds, o.shard == c.cfg.Self, g.search.order > 0)
			o.room, o.grade = fits(s.left, kinds), c.highest(r, s, o.shard, kinds)
		} else {
			o.pods = missing
		}
		if r.scatters && !r.asked[o.shard] {
			r.scatter(&g.search, &o)
		}
		if few := preferred[o.shard]; len(few) > 0 {
			if o.class = 0; len(o.pods) < len(missing) {
				o.pods = append(few, slices.DeleteFunc(o.pods, func(p *pod) bool { return p.seldom().prefer == o.shard })...)
			}
		}
		if (len(o.pods) > 0 || !r.asked[o.shard] && (o.class == 1 || g.holdsAt(o.shard))) && (!found || o.before(next)) {
			next, found = o, true
		}
	}
	if found || !c.mayTry(g, r) {
		return next, found
	}
	for _, m := range c.table.Members {
		o := option{shard: m.Incarnation, class: 2}
		s := c.summaries[o.shard]
		if r.refused[o.shard] || c.owned[o.shard] == 0 || s == nil {
			continue
		}
		if o.room = fits(s.free, kinds); o.room == 0 {
			continue
		}
		if o.shard == c.cfg.Self {
			o.class = 1
		}
		for _, k := range kinds {
			o.pods = append(o.pods, k.pods[:min(len(k.pods), max(1, r.more[o.shard]))]...)
		}
		if !found || o.before(next) {
			next, found = o, true
		}
	}
	if found {
		r.more[next.shard] = 2 * max(1, r.more[next.shard])
	}
	return next, found
}

// nextInArea returns the shard to ask next for nodes of the round's domains, and for which pods: the one that has most
// of them, unless it is drawn. Each is asked once, and once more if it was asked for some, until others may fit because
// of those that do (mayAskAgain).
func (c *shards) nextInArea(s *search, r *round, missing []*pod) (next option, found bool) {
	a := r.area
	in := map[*room][]*pod{}
	var order []*room
	for _, p := range missing {
		of := a.roomOf(p)
		if of == nil {
			continue
		}
		if in[of] == nil {
			order = append(order, of)
		}
		in[of] = append(in[of], p)
	}
	kinds := make([][]kind, len(order))
	for i, of := range order {
		kinds[i] = kindsOf(in[of])
	}
	column := a.columns()
	for _, m := range c.table.Members {
		again := r.asked[m.Incarnation]
		o := option{shard: m.Incarnation, class: 2, turn: s.turnOf(m.Incarnation, again)}
		if again && (r.done[o.shard] || !r.scatters) || c.owned[o.shard] == 0 {
			continue
		}
		if o.shard == c.cfg.Self {
			o.class = 1
		}
		for i, of := range order {
			has := of.at[o.shard]
			if has == nil {
				continue
			}
			for _, k := range kinds[i] {
				n := len(k.pods)
				if i := column(k.class); i >= 0 {
					n = min(n, int(has[i]))
				}
				o.pods = append(o.pods, k.pods[:n]...)
			}
		}
		if r.scatters && !again && len(o.pods) > 0 {
			r.scatter(s, &o)
		}
		before := cmp.Or(cmp.Compare(o.turn, next.turn), cmp.Compare(len(next.pods), len(o.pods)),
			cmp.Compare(o.class, next.class))
		if len(o.pods) > 0 && (!found || before < 0) {
			next, found = o, true
		}
	}
	for _, p := range next.pods {
		a.taken = true
		a.roomOf(p).add(next.shard, column(p.asked), -1)
	}
	return next, found
}

// mayTry reports whether the round may ask for more than summaries show: once in Config.TryEvery, for most of it is refused, or
// when nodes have changed.
func (c *shards) mayTry(g *gang, r *round) bool {
	s := &g.search
	if !r.trying && (s.tried.IsZero() || s.triedNodes != c.nodes || !c.now.Before(s.tried.Add(c.cfg.TryEvery))) {
		r.trying = true
		s.tryMore(c.now, c.nodes)
	}
	return r.trying
}

func (g *gang) holdsAt(shard api.Incarnation) bool {
	if g.search.touched[shard] {
		for _, p := range g.members {
			if p.stage == held && p.shard == shard {
				return true
			}
		}
	}
	return false
}

// drawn is a number by which pods, or shards, are in another order each time.
func drawn(id string, order uint32) uint64 {
	return xxhash.Sum64(binary.LittleEndian.AppendUint32([]byte(id), order))
}

// drawnClass is the same for classes.
func drawnClass(class *api.Class, order uint32) uint64 {
	return drawn(string(binary.LittleEndian.AppendUint64(nil, class.Hash())), order)
}

// scatter has a shard asked for some of its pods first, for the others may go to others.
func (r *round) scatter(by *search, o *option) {
	some := slices.DeleteFunc(slices.Clone(o.pods), func(p *pod) bool {
		return drawn(p.UID+string(o.shard), by.order)%2 == 0
	})
	if len(some) > 0 {
		o.pods = some
		return
	}
	r.ask(o.shard)
	o.turn = by.turnOf(o.shard, true)
}

// turnOf returns when a shard is asked, among others, once more after all: 0 where it is not drawn.
func (s *search) turnOf(shard api.Incarnation, again bool) uint64 {
	switch {
	case s.order < firstDrawn:
		return 0
	case again:
		return math.MaxUint64 - drawn(string(shard), s.order)>>1
	}
	return drawn(string(shard), s.order) >> 1
}
