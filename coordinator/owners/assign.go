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
	var takers []int // indexes of those who may get buckets
	for i, s := range shards {
		if !s.Draining {
			takers = append(takers, i)
		}
	}
	if len(takers) == 0 { // better one that is leaving than nobody
		for i := range shards {
			takers = append(takers, i)
		}
	}
	load := make([]int, len(shards))
	var after []heir
	if before != nil {
		after = heirs(before.Members, shards, hold)
	}
	var owner [api.Buckets]int // indexes into shards, or nobody, or kept for a dead one
	var move Move
	for b := range owner {
		owner[b] = nobody
		if before == nil || before.Owners[b] == api.Nobody || int(before.Owners[b]) >= len(before.Members) {
			continue
		}
		h := after[before.Owners[b]]
		if owner[b] = h.owner; h.taken {
			move.Taken++
		}
		if h.owner >= 0 {
			load[h.owner]++
		}
	}
	bound := 0
	if len(takers) > 0 {
		bound = (5*api.Buckets + 4*len(takers) - 1) / (4 * len(takers))
	}
	best := func(b int) int {
		choice, most := nobody, uint64(0)
		for _, i := range takers {
			if s := score(shards[i].Name, b); load[i] < bound && (choice == nobody || s > most) {
				choice, most = i, s
			}
		}
		return choice
	}
	for b := range owner {
		if owner[b] == nobody {
			if i := best(b); i != nobody {
				owner[b] = i
				load[i]++
				move.Taken++
			}
		}
	}
	if move.Taken > 0 {
		moves = 0 // those who take over are busy
	}
	for b := range owner {
		if i := owner[b]; move.Moved < moves && i >= 0 && shards[i].Draining && !slices.Contains(takers, i) {
			if j := best(b); j != nobody {
				owner[b] = j
				load[i]--
				load[j]++
				move.Moved++
			}
		}
	}
	for _, j := range takers {
		average := api.Buckets / len(takers)
		if !shards[j].Joining || load[j] >= average || move.Moved >= moves {
			continue
		}
		var candidates []int
		for b, i := range owner {
			if i >= 0 && i != j && load[i] > average {
				candidates = append(candidates, b)
			}
		}
		slices.SortFunc(candidates, func(a, b int) int {
			return cmp.Compare(score(shards[j].Name, b), score(shards[j].Name, a))
		})
		for _, b := range candidates {
			i := owner[b]
			if load[j] >= average || move.Moved >= moves {
				break
			}
			if load[i] > average {
				owner[b] = j
				load[i]--
				load[j]++
				move.Moved++
			}
		}
	}

	next := &api.Table{Epoch: 1}
	if before != nil {
		next.Epoch = before.Epoch + 1
	}
	for i, s := range shards {
		if !s.Draining || load[i] > 0 {
			next.Members = append(next.Members, api.Member{Incarnation: s.Incarnation, Name: s.Name})
		}
	}
	for b, i := range owner {
		if i == dead {
			if m := before.Members[before.Owners[b]]; !next.Has(m.Incarnation) {
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
	for b, i := range owner {
		bucket := api.BucketID(b)
		switch {
		case i >= 0:
			next.Owners[b] = index[shards[i].Incarnation]
		case i == dead:
			next.Owners[b] = index[before.Owner(bucket)]
		default:
			next.Owners[b] = api.Nobody
		}
		next.Changed[b] = next.Epoch
		if before != nil && before.Owner(bucket) == next.Owner(bucket) {
			next.Changed[b] = before.Changed[b]
		}
	}
	same := before == nil && len(shards) == 0 || before != nil && slices.Equal(before.Members, next.Members)
	if same && move == (Move{}) {
		return nil, move
	}
	return next, move
}

// score of a shard for a bucket: it goes by name, so that a new incarnation scores as the one before.
func score(name string, bucket int) uint64 {
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write([]byte{byte(bucket >> 8), byte(bucket)})
	_, _ = d.WriteString(name)
	return d.Sum64()
}
