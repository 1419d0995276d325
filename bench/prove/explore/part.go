package explore

import "time"

// part is one state of something that changes only by what it is told: a core, or a piece of a server. It is never changed.
// What it becomes when it is told something is found out once: most steps of a world are then a few look-ups, for a world
// has far more states than any part of it.
type part struct {
	value any                // points to the core or the server
	sum   uint64             // of what can be told of it
	whole uint64             // of everything in it, where Config.Plain asks for it
	next  map[uint64]*change // by the sum of what it was told
}

// change is what became of a part that was told something.
type change struct {
	to  *part
	out []item
}

// item is an immutable value and the sum of its content.
type item struct {
	value any
	sum   uint64
}

func itemOf(value any) item {
	if value == nil {
		return item{}
	}
	return item{value, sumOf(value)}
}

// parts holds every part met so far, by its sum.
type parts struct {
	all    map[uint64]*part
	misses int
	plain  bool // tell apart whatever differs, and take each step as often as it comes
	live   bool // copy nothing: there is one way only
}

func newParts(cfg Config, live bool) *parts {
	return &parts{all: map[uint64]*part{}, plain: cfg.Plain, live: live}
}

// of is the part of a state that nobody else will change.
func (ps *parts) of(value any) *part {
	sum := sumOf(value)
	n := &part{value: value, sum: sum, whole: sum, next: map[uint64]*change{}}
	switch {
	case ps.live:
		return n
	case ps.plain:
		n.whole = wholeOf(value)
	}
	p := ps.all[n.whole]
	if p == nil {
		p = n
		ps.all[n.whole] = p
	}
	return p
}

// tell finds out what becomes of a part. The key stands for everything that do depends on, but for the part itself.
func (ps *parts) tell(p *part, key uint64, do func(value any) []any) *change {
	if c := p.next[key]; c != nil && !ps.plain && !ps.live {
		return c
	}
	ps.misses++
	value := p.value
	if !ps.live {
		value = copyOf(value)
	}
	c := &change{}
	for _, o := range do(value) {
		c.out = append(c.out, itemOf(o))
	}
	c.to = ps.of(value)
	if !ps.plain && !ps.live {
		p.next[key] = c
	}
	return c
}

// mix makes one sum of several, in order.
func mix(sums ...uint64) uint64 {
	h := uint64(0x9e3779b97f4a7c15)
	for _, s := range sums {
		h = (h ^ s) * 0xff51afd7ed558ccd
		h ^= h >> 32
		h *= 0xc4ceb9fe1a85ec53
		h ^= h >> 29
	}
	return h
}

// memo computes something about a key once.
type memo[K comparable, V any] map[K]V

func (m memo[K, V]) get(k K, of func() V) V {
	v, is := m[k]
	if !is {
		v = of()
		m[k] = v
	}
	return v
}

func at(t time.Time) uint64 { return uint64(t.UnixNano()) }
