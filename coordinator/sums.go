package coordinator

import (
	"math"
	"math/bits"
	"slices"
	"strings"

	"basalt.dev/basalt/api"
)

// wide is a sum of int64 amounts that never overflows, so that what saturates on its way out comes back when the
// amounts are taken away again: users can bind sixteen pods of 2^60 bytes each by hand.
type wide struct {
	hi int64
	lo uint64
}

func (w wide) plus(v int64) wide {
	lo, carry := bits.Add64(w.lo, uint64(v), 0)
	return wide{w.hi + v>>63 + int64(carry), lo}
}

func (w wide) add(o wide) wide {
	lo, carry := bits.Add64(w.lo, o.lo, 0)
	return wide{w.hi + o.hi + int64(carry), lo}
}

func (w wide) sub(o wide) wide {
	lo, borrow := bits.Sub64(w.lo, o.lo, 0)
	return wide{w.hi - o.hi - int64(borrow), lo}
}

func (w wide) max(o wide) wide {
	if w.hi > o.hi || w.hi == o.hi && w.lo > o.lo {
		return w
	}
	return o
}

// product of two amounts.
func product(a, b int64) wide {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	h := int64(hi)
	if a < 0 {
		h -= b
	}
	if b < 0 {
		h -= a
	}
	return wide{h, lo}
}

// amount is the sum as an int64, saturated.
func (w wide) amount() int64 {
	switch {
	case w.hi == int64(w.lo)>>63:
		return int64(w.lo)
	case w.hi < 0:
		return math.MinInt64
	}
	return math.MaxInt64
}

// sums is a vector of wide amounts, sorted by resource. A lookup is a binary search, and the names of a demand are
// added in one merge, so that a charge takes n log n time in the number of names. Zeros stay, because the next gang
// will name the same resources, as long as they are few (keptZeros).
type sums []total

type total struct {
	resource string
	wide
}

// keptZeros is how many names without an amount a vector may keep, beside one for each name with an amount.
const keptZeros = 16

// scanned is the longest vector that find scans for a name before it searches.
const scanned = 8

func (s sums) find(resource string) (int, bool) {
	if len(s) <= scanned { // a scan beats a binary search in a short vector
		for i := range s {
			if s[i].resource == resource {
				return i, true
			}
		}
	}
	return slices.BinarySearchFunc(s, resource, func(t total, r string) int { return strings.Compare(t.resource, r) })
}

func (s sums) get(resource string) wide {
	if i, found := s.find(resource); found {
		return s[i].wide
	}
	return wide{}
}

// at returns the place of a resource, which is added if need be. Many are added with name.
func (s *sums) at(resource string) *wide {
	i, found := s.find(resource)
	if !found {
		*s = slices.Insert(*s, i, total{resource: resource})
	}
	return &(*s)[i].wide
}

// name adds the resources that the vector does not have yet.
func (s *sums) name(r api.Resources) {
	missing := 0
	for i := range r {
		if _, found := s.find(r[i].Resource); !found && r[i].Value != 0 {
			missing++
		}
	}
	if missing <= 1 {
		return // at adds it
	}
	merged := make(sums, 0, len(*s)+missing)
	i := 0
	for _, a := range r {
		for i < len(*s) && (*s)[i].resource < a.Resource {
			merged = append(merged, (*s)[i])
			i++
		}
		if a.Value != 0 && (i == len(*s) || (*s)[i].resource != a.Resource) {
			merged = append(merged, total{resource: a.Resource})
		}
	}
	*s = append(merged, (*s)[i:]...)
}

// trim removes the names without an amount.
func (s *sums) trim() {
	*s = slices.DeleteFunc(*s, func(t total) bool { return t.wide == (wide{}) })
	if cap(*s) > 4*(len(*s)+keptZeros) {
		*s = slices.Clone(*s)
	}
}

// amounts is the vector without its zeros, saturated.
func (s sums) amounts() api.Resources {
	out := make(api.Resources, 0, len(s))
	for i := range s {
		if v := s[i].amount(); v != 0 {
			out = append(out, api.Amount{Resource: s[i].resource, Value: v})
		}
	}
	return out
}

// account is a vector of sums that forgets the names without an amount now and then, in constant time per amount in
// the long run.
type account struct {
	sums
	zeros int // amounts that became zero since names were last removed
}

// add adds delta so many times, which may be negative.
func (a *account) add(delta api.Resources, times int64) {
	if len(delta) > keptZeros {
		a.name(delta)
	}
	for _, d := range delta {
		if d.Value != 0 {
			sum := a.at(d.Resource)
			if *sum = sum.add(product(d.Value, times)); *sum == (wide{}) {
				a.zeros++
			}
		}
	}
	if a.zeros > keptZeros && 2*a.zeros > len(a.sums) {
		a.zeros = 0
		a.trim()
	}
}

// some reports whether any amount is not zero.
func (s sums) some() bool {
	return slices.ContainsFunc(s, func(t total) bool { return t.wide != wide{} })
}

// lower returns for each resource that either names the smaller amount named.
func lower(a, b api.Resources) api.Resources {
	if len(b) == 0 {
		return a
	}
	out := make(api.Resources, 0, len(a)+len(b))
	for _, x := range a {
		if y, named := b.Get(x.Resource); named {
			x.Value = min(x.Value, y)
		}
		out = append(out, x)
	}
	for _, y := range b {
		if _, named := a.Get(y.Resource); !named {
			out = append(out, y)
		}
	}
	slices.SortFunc(out, func(x, y api.Amount) int { return strings.Compare(x.Resource, y.Resource) })
	return out
}

// within returns amounts, each of which is no more than most says of its resource.
func within(amounts, most api.Resources) api.Resources {
	out := slices.Clone(amounts)
	for i := range out {
		if limit, named := most.Get(out[i].Resource); named {
			out[i].Value = min(out[i].Value, limit)
		}
	}
	return out
}

// instead returns amounts with those of own in the place of others of the same resources.
func instead(amounts, own api.Resources) api.Resources {
	return own.Max(slices.DeleteFunc(slices.Clone(amounts), func(a api.Amount) bool {
		_, named := own.Get(a.Resource)
		return named
	}))
}

// share returns want, or its proportional part of budget when all wants together, sum, are above it. It rounds down.
func share(want, budget int64, sum wide) int64 {
	if sum.amount() <= budget {
		return want
	}
	if budget <= 0 || want <= 0 {
		return 0
	}
	for sum.hi > 0 { // beyond int64 only proportions matter
		want >>= 1
		sum = wide{sum.hi >> 1, sum.lo>>1 | uint64(sum.hi)<<63}
		sum = sum.plus(1)
	}
	hi, lo := bits.Mul64(uint64(want), uint64(budget))
	if hi >= sum.lo {
		return budget
	}
	v, _ := bits.Div64(hi, lo, sum.lo)
	return int64(v)
}
