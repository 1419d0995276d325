package coordinator

import (
	"cmp"
	"slices"
	"strings"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
)

// Bars. From the moment when a gang is entitled to what it lacks, and until it starts or no plan is found, nobody borrows that: what others are
// lent meanwhile would be evicted again.

const barsAtMost = 64 // gangs that keep others from borrowing

const barredAtOnce = 16 // gangs that a transaction looks at, of queues that have less by then

// bar has a gang keep others from borrowing what it lacks, or not any more.
func (l *ledger) bar(g *gang, bars bool) {
	at, found := slices.BinarySearchFunc(l.barring, g, compareKeys)
	switch {
	case bars && !found && !fault.On(fault.BandThreePasses):
		ends, is := placeFor(g, l.barring)
		if !is {
			return
		}
		if ends != nil {
			l.bar(ends, false)
			at, _ = slices.BinarySearchFunc(l.barring, g, compareKeys)
		}
		l.barring = slices.Insert(l.barring, at, g)
	case !bars && found:
		l.barring = slices.Delete(l.barring, at, at+1)
		l.freedFor(g)
	}
}

// placeFor reports whether another gang may keep others from borrowing, and who ends it for that where there are
// enough: one of the queue that has the most of them, if that has more than this gang's own queue will have.
func placeFor(g *gang, barring []*gang) (ends *gang, is bool) {
	if len(barring) < barsAtMost {
		return nil, true
	}
	mine, most, last := 1, 0, -1
	for i, n := 0, 0; i < len(barring); i++ {
		q := barring[i].key.queue
		if n++; i > 0 && barring[i-1].key.queue != q {
			n = 1
		}
		if q == g.key.queue {
			mine++
		}
		if n > most {
			most, last = n, i
		}
	}
	return barring[last], most > mine
}

func compareKeys(a, b *gang) int {
	return cmp.Or(strings.Compare(a.key.queue, b.key.queue), strings.Compare(a.key.uid, b.key.uid))
}

// unbar ends it for those of which f reports that.
func (l *ledger) unbar(f func(*gang) bool) {
	l.barring = slices.DeleteFunc(l.barring, func(g *gang) bool {
		if !f(g) {
			return false
		}
		l.freedFor(g)
		return true
	})
}

// barred returns by whom a request is kept from borrowing, nil for nobody.
func (l *ledger) barred(r *request) *shortfall {
	for _, g := range l.barring {
		if g.req == nil || g.req == r {
			continue
		}
		a := g.ask()
		lacks := a.lacks()
		if len(lacks) == 0 || !a.bars(r.gang.ask(), lacks) {
			continue
		}
		mine, _ := apart(a.queue, r.queue)
		l := lacks[slices.IndexFunc(lacks, func(l lack) bool { return r.delta.Value(l.resource) > 0 })]
		return &shortfall{reason: wire.DenyReason_DENY_PROMISED, queue: mine.parent, resource: l.resource, short: r.delta.Value(l.resource), requested: r.delta.Value(l.resource)}
	}
	return nil
}
