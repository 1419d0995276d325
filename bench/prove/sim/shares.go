package sim

import (
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// shares are the limits in force: what queues deserve by them, found out apart from the coordinator.
type shares map[string]*wire.LimitsRecord

// wants is what a queue would deserve if it fitted: what it says, or where it says nothing its children together,
// within its capability.
func (s shares) wants(path, resource string) int64 {
	q := s[path]
	sum := max(amountIn(q.GetDeserved(), resource), amountIn(q.GetGuarantee(), resource))
	if sum == 0 {
		said, below := s.childrenWant(path, resource)
		sum = said + below
	}
	if limit := amountIn(q.GetCapability(), resource); limit > 0 {
		sum = min(sum, limit)
	}
	return sum
}

// guaranteed is what a queue is guaranteed if that fits, where so much is guaranteed below, and whether that is more
// than it says.
func guaranteed(q *wire.LimitsRecord, resource string, below int64) (amount int64, cut bool) {
	if own := amountIn(q.GetGuarantee(), resource); own > 0 {
		return own, below > own
	}
	deserved := amountIn(q.GetDeserved(), resource)
	return below, deserved > 0 && below > deserved
}

// childrenWant is what the children of a queue want: those that say it themselves, and those whose children do.
func (s shares) childrenWant(parent, resource string) (said, below int64) {
	for _, path := range api.SortedKeys(s) {
		switch {
		case api.Parent(path) != parent:
		case says(s[path], resource):
			said += s.wants(path, resource)
		default:
			below += s.wants(path, resource)
		}
	}
	return said, below
}

// says reports whether a queue says itself what it deserves.
func says(q *wire.LimitsRecord, resource string) bool {
	named := func(a *wire.Amount) bool { return a.Resource == resource }
	return slices.ContainsFunc(q.GetDeserved(), named) || slices.ContainsFunc(q.GetGuarantee(), named)
}

// deserves is what of it is in force: where children want more than their parent has, those that say so have their
// parts of it first, and then those whose children do.
func (s shares) deserves(path, resource string) int64 {
	want := s.wants(path, resource)
	if path == api.RootQueue {
		return want
	}
	said, below := s.childrenWant(api.Parent(path), resource)
	has := s.deserves(api.Parent(path), resource)
	switch {
	case want == 0 || said+below <= has:
		return want
	case !says(s[path], resource):
		return want * max(0, has-said) / below
	default:
		return want * min(said, has) / said
	}
}

func amountIn(amounts []*wire.Amount, resource string) int64 {
	for _, a := range amounts {
		if a.Resource == resource {
			return a.Value
		}
	}
	return 0
}
