package owners

import (
	"cmp"
	"slices"

	"github.com/cespare/xxhash/v2"

	"basalt.dev/basalt/api"
)

// Shard is a living shard, as Assign sees it.
type Shard struct {
	Incarnation api.Incarnation
	Name        string // no two have the same
	Draining    bool   // gives its buckets away
	Joining     bool   // is to get its part from those who have more
}

// Move is what a new table does.
type Move struct {
	Taken int // buckets of nobody or of the dead that got an owner
	Moved int // buckets that went from one living shard to another
}

const nobody, dead = -1, -2 // in place of an index

// heir is who goes on with the buckets of a member.
type heir struct {
	owner int // an index into shards, or nobody, or dead: they are kept for it
	taken bool
}

// heirs returns one for each member: itself if it lives, else who has its name now.
func heirs(members []api.Member, shards []Shard, hold bool) []heir {
	living := make(map[api.Incarnation]int, len(shards))
	names := make(map[string]int, len(shards))
	for i, s := range shards {
		living[s.Incarnation], names[s.Name] = i, i
	}
	out := make([]heir, len(members))
	for i, m := range members {
		out[i] = heir{owner: nobody}
		if at, lives := living[m.Incarnation]; lives {
			out[i].owner = at
		} else if at, back := names[m.Name]; back {
			out[i] = heir{at, true}
		} else if hold {
			out[i].owner = dead
		}
	}
	return out
}

// Assign makes the next table of the one before, which may be nil, and the living shards. It moves only what must
// move: a new incarnation gets all buckets of a dead one of its name; the other buckets of the dead go by rendezvous
// hashing with bounded load (Mirrokni, Thorup, Zadimoghaddam: nobody gets more than 5/4 of the average), unless hold
// keeps them where they are; and, in a table without any of that, at most moves buckets go from one living shard to
// another, off those that drain first, then to those that join. It returns nil when nothing changes.
func Assign(before *api.Table, shards []Shard, hold bool, moves int) (*api.Table, Move) {
	shards = slices.Clone(shards)
	slices.SortFunc(shards, func(a, b Shard) int { return cmp.Compare(a.Name, b.Name) })
	d := &division{before: before, shards: shards, load: make([]int, len(shards))}
	for i, s := range shards {
		if !s.Draining {
			d.takers = append(d.takers, i)
		}
	}
	if len(d.takers) == 0 { // better one that is leaving than nobody
		for i := range shards {
			d.takers = append(d.takers, i)
		}
	}
	d.inherit(hold)
	d.give()
	if d.move.Taken == 0 { // else those who take over are busy
		d.drain(moves)
		d.join(moves)
	}
	next := d.table()
	same := before == nil && len(shards) == 0 || before != nil && slices.Equal(before.Members, next.Members)
	if same && d.move == (Move{}) {
		return nil, d.move
	}
	return next, d.move
}

// division of the buckets, as it is made. Shards are indexes into shards.
type division struct {
	before *api.Table
	shards []Shard          // by name
	takers []int            // those who may get buckets
	load   []int            // how many each has
	owner  [api.Buckets]int // or nobody, or dead
	move   Move
}

// inherit gives each bucket to its owner of before, or to the heir of that.
func (d *division) inherit(hold bool) {
	var after []heir
	if d.before != nil {
		after = heirs(d.before.Members, d.shards, hold)
	}
	for b := range d.owner {
		d.owner[b] = nobody
		if d.before == nil || d.before.Owners[b] == api.Nobody || int(d.before.Owners[b]) >= len(d.before.Members) {
			continue
		}
		h := after[d.before.Owners[b]]
		if d.owner[b] = h.owner; h.taken {
			d.move.Taken++
		}
		if h.owner >= 0 {
			d.load[h.owner]++
		}
	}
}

// best is the taker with the highest score for a bucket among those below the bound, or nobody.
func (d *division) best(b int) int {
	bound := (5*api.Buckets + 4*len(d.takers) - 1) / max(1, 4*len(d.takers))
	choice, most := nobody, uint64(0)
	for _, i := range d.takers {
		if s := score(d.shards[i].Name, b); d.load[i] < bound && (choice == nobody || s > most) {
			choice, most = i, s
		}
	}
	return choice
}

// give gives buckets of nobody to their best takers.
func (d *division) give() {
	for b := range d.owner {
		if d.owner[b] == nobody {
			if i := d.best(b); i != nobody {
				d.owner[b] = i
				d.load[i]++
				d.move.Taken++
			}
		}
	}
}

// pass moves a bucket to another living shard.
func (d *division) pass(b, to int) {
	d.load[d.owner[b]]--
	d.load[to]++
	d.owner[b] = to
	d.move.Moved++
}

// drain moves buckets off shards that give theirs away, until so many have moved.
func (d *division) drain(moves int) {
	for b, i := range d.owner {
		if d.move.Moved < moves && i >= 0 && d.shards[i].Draining && !slices.Contains(d.takers, i) {
			if j := d.best(b); j != nobody {
				d.pass(b, j)
			}
		}
	}
}

// join moves buckets from shards with more than the average to those that join, until so many have moved.
func (d *division) join(moves int) {
	average := api.Buckets / max(1, len(d.takers))
	for _, j := range d.takers {
		if !d.shards[j].Joining || d.load[j] >= average || d.move.Moved >= moves {
			continue
		}
		var candidates []int
		for b, i := range d.owner {
			if i >= 0 && i != j && d.load[i] > average {
				candidates = append(candidates, b)
			}
		}
		slices.SortFunc(candidates, func(a, b int) int {
			return cmp.Compare(score(d.shards[j].Name, b), score(d.shards[j].Name, a))
		})
		for _, b := range candidates {
			if d.load[j] >= average || d.move.Moved >= moves {
				break
			}
			if d.load[d.owner[b]] > average {
				d.pass(b, j)
			}
		}
	}
}

// table makes the table of the division.
func (d *division) table() *api.Table {
	next := &api.Table{Epoch: 1}
	if d.before != nil {
		next.Epoch = d.before.Epoch + 1
	}
	for i, s := range d.shards {
		if !s.Draining || d.load[i] > 0 {
			next.Members = append(next.Members, api.Member{Incarnation: s.Incarnation, Name: s.Name})
		}
	}
	for b, i := range d.owner {
		if i == dead {
			if m := d.before.Members[d.before.Owners[b]]; !next.Has(m.Incarnation) {
				next.Members = append(next.Members, m)
			}
		}
	}
	slices.SortFunc(next.Members, func(a, b api.Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Incarnation, b.Incarnation))
	})
	index := make(map[api.Incarnation]uint16, len(next.Members))
	for i, m := range next.Members {
		index[m.Incarnation] = uint16(i)
	}
	for b, i := range d.owner {
		bucket := api.BucketID(b)
		switch {
		case i >= 0:
			next.Owners[b] = index[d.shards[i].Incarnation]
		case i == dead:
			next.Owners[b] = index[d.before.Owner(bucket)]
		default:
			next.Owners[b] = api.Nobody
		}
		next.Changed[b] = next.Epoch
		if d.before != nil && d.before.Owner(bucket) == next.Owner(bucket) {
			next.Changed[b] = d.before.Changed[b]
		}
	}
	return next
}

// score of a shard for a bucket: it goes by name, so that a new incarnation scores as the one before.
func score(name string, bucket int) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write([]byte{byte(bucket >> 8), byte(bucket)})
	_, _ = d.WriteString(name)
	return d.Sum64()
}
