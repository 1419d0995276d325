// Package pack puts the slices of a gang into topology domains: each slice, which is some pods of some classes, into one domain.
//
// It decides which slice goes into which domain, from the room that each domain has by class. It owns nothing: Into is a pure function. It
// refuses to judge what room there is, or whether pods of several classes fit together: node shards do when holds are requested.
//
// This is bin packing, so Into is a heuristic, best-fit decreasing as Kueue's for its slices: the most demanding slices first, of slices that are
// alike as many as possible into the domains that take most, and the last ones into the domain that they fill best. Where all pods are of one
// class, and at most one slice is smaller than the others, it finds a placement whenever there is one: each domain's room is a number of whole
// slices and a rest, and however the whole slices are put, either a domain is left with room for the small one or none ever was.
package pack

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// Slice is pods that are to be in one domain.
type Slice struct {
	Pods []int64 // by class
	Wish []int64 // by class, nil for none: rather into a domain that has room for this; it is at least Pods
	In   int     // the domain that it must be in, where others of its pods are; -1 for none
}

// shape returns the same for slices that are alike.
func (s *Slice) shape() string {
	var b []byte
	for _, numbers := range [][]int64{s.Pods, s.Wish} {
		b = binary.AppendUvarint(b, uint64(len(numbers)))
		for _, n := range numbers {
			b = binary.AppendVarint(b, n)
		}
	}
	return string(b)
}

// Set is slices of which those that are alike are known, so that they may be put into many sets of domains.
type Set struct {
	list  []Slice
	fixed []int   // those that must be in some domain
	alike [][]int // the others
}

// NewSet finds out which slices are alike. Of those that must be in some domain, In may change later.
func NewSet(list []Slice) *Set {
	x := &Set{list: list}
	shapes := map[string]int{}
	for i := range list {
		s := &list[i]
		if s.In >= 0 {
			x.fixed = append(x.fixed, i)
			continue
		}
		key := s.shape()
		k, known := shapes[key]
		if !known {
			k = len(x.alike)
			shapes[key] = k
			x.alike = append(x.alike, nil)
		}
		x.alike[k] = append(x.alike[k], i)
	}
	return x
}

// Shapes returns how many different slices there are: what Into does grows with it.
func Shapes(list []Slice) int {
	known := map[string]bool{}
	for i := range list {
		known[list[i].shape()] = true
	}
	return len(known)
}

// whole is all of a domain. A gang has less than 1<<22 pods, so no product exceeds an int64.
const whole = 1 << 40

// domain is what is left of the room of a domain.
type domain struct {
	room, used []int64
	fit        int64 // slices of the shape that is being placed
}

// takes returns how many more slices with so many pods by class a domain takes, at most so many. If they are to fit together, what each class takes
// of the room that it would have alone adds up to at most the whole.
func (d *domain) takes(pods []int64, most int64, together bool) int64 {
	left, per := int64(whole), int64(0)
	kinds := 0
	for c, n := range pods {
		if n == 0 && d.used[c] == 0 {
			continue
		}
		if d.room[c] < d.used[c]+n {
			return 0
		}
		kinds++
		if n > 0 {
			most = min(most, (d.room[c]-d.used[c])/n)
		}
		left -= share(d.used[c], d.room[c])
		per += share(n, d.room[c])
	}
	if together && kinds > 1 && per > 0 {
		most = min(most, max(0, left)/per)
	}
	return most
}

// share returns which part of whole so many pods take.
func share(n, room int64) int64 { return n * whole / room }

// left returns what a domain has for the first class of some pods.
func (d *domain) left(pods []int64) int64 {
	for c, n := range pods {
		if n > 0 {
			return d.room[c] - d.used[c]
		}
	}
	return 0
}

func (d *domain) add(pods []int64, times int64) {
	for c, n := range pods {
		d.used[c] += n * times
	}
}

// Into returns for each slice the domain that it is put into, -1 for none, and how many are. rooms is by domain how many pods of each class fit,
// each class as if it came alone; together says whether all that is put into a domain has to share it.
func Into(rooms [][]int64, list []Slice, together bool) (at []int, put int) {
	return NewSet(list).Into(rooms, together)
}

// Into is Into of the slices.
func (x *Set) Into(rooms [][]int64, together bool) (at []int, put int) {
	list := x.list
	at = slices.Repeat([]int{-1}, len(list))
	domains := make([]*domain, len(rooms))
	for i, room := range rooms {
		domains[i] = &domain{room: room, used: make([]int64, len(room))}
	}
	for _, i := range x.fixed {
		s := &list[i]
		if s.In < len(domains) && domains[s.In].takes(s.Pods, 1, together) > 0 {
			domains[s.In].add(s.Pods, 1)
			at[i] = s.In
		}
	}
	order := slices.Clone(x.alike)
	largest := make([]int64, 0)
	for _, room := range rooms {
		for c, n := range room {
			if c == len(largest) {
				largest = append(largest, 0)
			}
			largest[c] = max(largest[c], n)
		}
	}
	demand := func(of []int) (sum int64) {
		for c, n := range list[of[0]].Pods {
			if n > 0 && c < len(largest) {
				sum += share(n, max(1, largest[c]))
			}
		}
		return sum
	}
	slices.SortFunc(order, func(a, b []int) int { return cmp.Or(cmp.Compare(demand(b), demand(a)), cmp.Compare(a[0], b[0])) })
	for _, of := range order {
		s := &list[of[0]]
		if s.Wish != nil {
			of = spread(domains, s.Wish, of, at, together)
		}
		spread(domains, s.Pods, of, at, together)
	}
	for _, d := range at {
		if d >= 0 {
			put++
		}
	}
	return at, put
}

// spread puts slices that are alike, and returns those for which there is no domain.
func spread(domains []*domain, pods []int64, of []int, at []int, together bool) (rest []int) {
	var has []int
	for i, d := range domains {
		if d.fit = d.takes(pods, int64(len(of))+1, together); d.fit > 0 { // one more tells those that are filled by all of them
			has = append(has, i)
		}
	}
	slices.SortFunc(has, func(a, b int) int {
		x, y := domains[a], domains[b]
		return cmp.Or(cmp.Compare(y.fit, x.fit), cmp.Compare(x.left(pods), y.left(pods)), cmp.Compare(a, b))
	})
	for len(has) > 0 && len(of) > 0 {
		best := 0
		for i, d := range has {
			if domains[d].fit < int64(len(of)) {
				break
			}
			if domains[d].fit < domains[has[best]].fit || domains[d].left(pods) < domains[has[best]].left(pods) {
				best = i
			}
		}
		d := has[best]
		if best == 0 {
			has = has[1:]
		} else {
			has = slices.Delete(has, best, best+1)
		}
		n := min(domains[d].fit, int64(len(of)))
		for _, i := range of[:n] {
			at[i] = d
		}
		domains[d].add(pods, n)
		of = of[n:]
	}
	return of
}
