package progress

import (
	"errors"
	"math"

	"basalt.dev/basalt/api"
)

// Policy is what a few queues may have of one resource, and the gangs that have it: as far as that decides who may be
// evicted for whom. It is judged from the rules as the documentation of queues has them, and not as the coordinator
// computes them: all sets of victims are gone through.
//
// It does not know surplus pods, guarantees and who displaced whom. Who calls it leaves gangs out, or spares them.
type Policy struct {
	Queues map[string]Queue
	Gangs  []Charged
	Supply int64 // more than that the nodes surely do not have; 0 where nodes do not count
}

// Queue is what is said of one, in force.
type Queue struct {
	Limited  bool
	Limit    int64
	Deserves *Range // nil where it says nothing, nor does a queue below
	Fair     *Range // its fair share, where its parent has its children take it back
	Never    bool   // its children take nothing from each other
	Kept     bool   // nothing is taken from it for other queues
	Preempts bool
}

// Range is an amount as far as it is known.
type Range struct{ Least, Most int64 }

// Charged is a gang, and what it is charged or asks for.
type Charged struct {
	Queue    string
	Amount   int64
	Priority int64
	Spared   bool // it may not be evicted now
}

// victimsAtMost is among how many gangs victims are looked for.
const victimsAtMost = 14

// ErrTooManyGangs says that not all sets of victims were gone through.
var ErrTooManyGangs = errors.New("too many gangs to go through all sets of them")

// Victims returns all sets of gangs that may be evicted for one that has nothing yet, as bits: by one of the rules,
// and so that the quota is there then.
func (p *Policy) Victims(ask Charged) (sets []uint64, err error) {
	able := []int{}
	for i, g := range p.Gangs {
		if !g.Spared {
			able = append(able, i)
		}
	}
	if len(able) > victimsAtMost {
		return nil, ErrTooManyGangs
	}
	for n := 1; n < 1<<len(able); n++ {
		set := uint64(0)
		for bit, i := range able {
			if n>>bit&1 == 1 {
				set |= 1 << i
			}
		}
		if p.fits(set, ask) && p.helps(set, ask) && (p.reclaims(set, ask) || p.preempts(set, ask)) {
			sets = append(sets, set)
		}
	}
	return sets, nil
}

// Fits reports whether nobody has to leave for the gang's quota.
func (p *Policy) Fits(ask Charged) bool { return p.fits(0, ask) }

// charged is what the gangs below a queue have, without some.
func (p *Policy) charged(path string, without uint64) (sum int64) {
	for i, g := range p.Gangs {
		if without>>i&1 == 0 && api.Under(g.Queue, path) {
			sum += g.Amount
		}
	}
	return sum
}

func (p *Policy) fits(without uint64, ask Charged) bool {
	for _, path := range api.Lineage(ask.Queue) {
		if q := p.Queues[path]; q.Limited && p.charged(path, without)+ask.Amount > q.Limit {
			return false
		}
	}
	return true
}

// helps reports whether each victim has some of what is lacking where it is lacking. Where nothing is, room is.
func (p *Policy) helps(victims uint64, ask Charged) bool {
	var full []string
	for _, path := range api.Lineage(ask.Queue) {
		q, more := p.Queues[path], p.charged(path, 0)+ask.Amount
		if q.Limited && more > q.Limit || path == api.RootQueue && p.Supply > 0 && more > p.Supply {
			full = append(full, path)
		}
	}
	for i, v := range p.Gangs {
		some := victims>>i&1 == 0 || len(full) == 0
		for _, path := range full {
			some = some || api.Under(v.Queue, path)
		}
		if !some {
			return false
		}
	}
	return true
}

// title is by what a side takes from another one.
type title int

const (
	nothing title = iota
	deserved
	fairShare
	either // by one of the two
)

func (q Queue) title(has int64) title {
	switch {
	case q.Deserves != nil && has <= q.Deserves.Least:
		return deserved
	case q.Fair == nil || has > q.Fair.Least:
		return nothing
	case q.Deserves != nil && has <= q.Deserves.Most:
		return either
	}
	return fairShare
}

// keeps is what may not be taken from a queue by a title, but for part of a gang; all may where it is none of its own.
func (q Queue) keeps(by title) (amount int64, named bool) {
	if q.Deserves != nil && (by != fairShare || q.Fair == nil) {
		amount, named = q.Deserves.Most, true
	}
	if q.Fair != nil && by != deserved {
		amount, named = max(amount, q.Fair.Most), true
	}
	return amount, named
}

// reclaims judges victims in other queues: every side of the gang ends within what it deserves, or its fair share,
// where something is taken beside it; every side that loses was above, and falls below by less than its smallest
// victim.
func (p *Policy) reclaims(victims uint64, ask Charged) bool {
	for i, v := range p.Gangs {
		if victims>>i&1 == 0 {
			continue
		}
		if v.Queue == ask.Queue {
			return false
		}
		mine := ask.Queue
		for !api.Under(v.Queue, api.Parent(mine)) {
			mine = api.Parent(mine)
		}
		by := p.Queues[mine].title(p.charged(mine, victims) + ask.Amount)
		if by == nothing || p.Queues[api.Parent(mine)].Never {
			return false
		}
		for path := v.Queue; path != api.Parent(mine); path = api.Parent(path) {
			if !p.loses(path, victims, by) {
				return false
			}
		}
	}
	return true
}

func (p *Policy) loses(path string, victims uint64, by title) bool {
	q := p.Queues[path]
	if q.Kept {
		return false
	}
	amount, named := q.keeps(by)
	if !named {
		return true
	}
	smallest := int64(math.MaxInt64)
	for i, g := range p.Gangs {
		if victims>>i&1 == 1 && api.Under(g.Queue, path) {
			smallest = min(smallest, g.Amount)
		}
	}
	return p.charged(path, 0) > amount && p.charged(path, victims)+smallest > amount
}

// preempts judges victims of lower priority in the gang's own queue, which has no more above what it may have by that
// where somebody may take it back.
func (p *Policy) preempts(victims uint64, ask Charged) bool {
	if !p.Queues[ask.Queue].Preempts {
		return false
	}
	more := ask.Amount
	for i, v := range p.Gangs {
		if victims>>i&1 == 0 {
			continue
		}
		if v.Queue != ask.Queue || v.Priority >= ask.Priority {
			return false
		}
		more -= v.Amount
	}
	for path := ask.Queue; path != api.RootQueue && more > 0; path = api.Parent(path) {
		if !p.takesBack(api.Parent(path)) {
			continue
		}
		q := p.Queues[path]
		most := q.Deserves
		if q.Fair != nil {
			most = q.Fair
		}
		if most == nil || p.charged(path, 0)+more > most.Least {
			return false
		}
	}
	return true
}

// takesBack reports whether the children of a queue may take something from each other.
func (p *Policy) takesBack(parent string) bool {
	for path, q := range p.Queues {
		if path != api.RootQueue && api.Parent(path) == parent && !p.Queues[parent].Never &&
			(q.Deserves != nil && q.Deserves.Most > 0 || q.Fair != nil && q.Fair.Most > 0) {
			return true
		}
	}
	return false
}
