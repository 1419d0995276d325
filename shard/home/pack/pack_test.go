package pack

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// exhaustive reports whether each slice can be put into a domain, trying all ways.
func exhaustive(rooms [][]int64, list []Slice, together bool) bool {
	if len(list) == 0 {
		return true
	}
	s := list[0]
	for d := range rooms {
		if s.In >= 0 && s.In != d || !fits(rooms[d], s.Pods) {
			continue
		}
		left := slices.Clone(rooms[d])
		for c, n := range s.Pods {
			left[c] -= n
		}
		next := slices.Clone(rooms)
		next[d] = left
		if exhaustive(next, list[1:], together) {
			return true
		}
	}
	return false
}

func fits(room, pods []int64) bool {
	for c, n := range pods {
		if n > room[c] {
			return false
		}
	}
	return true
}

// check reports what a placement breaks.
func check(t *testing.T, rooms [][]int64, list []Slice, at []int, put int, together bool) {
	t.Helper()
	used := make([][]int64, len(rooms))
	n := 0
	for i, d := range at {
		if d < 0 {
			continue
		}
		n++
		if list[i].In >= 0 && list[i].In != d {
			t.Fatalf("slice %d is in %d: %v", i, d, list)
		}
		if used[d] == nil {
			used[d] = make([]int64, len(rooms[d]))
		}
		for c, k := range list[i].Pods {
			used[d][c] += k
		}
	}
	if n != put {
		t.Fatalf("%d are put, and it says %d", n, put)
	}
	for d := range used {
		sum := 0.0
		for c, k := range used[d] {
			if k > rooms[d][c] {
				t.Fatalf("domain %d has room for %v and gets %v", d, rooms[d], used[d])
			}
			if k > 0 {
				sum += float64(k) / float64(rooms[d][c])
			}
		}
		if together && sum > 1.0001 {
			t.Fatalf("domain %d has room for %v, each alone, and gets %v together", d, rooms[d], used[d])
		}
	}
}

// TestOneClass compares Into with a search of all placements: slices of one size and perhaps a smaller one, some of them where others of their
// pods are.
func TestOneClass(t *testing.T) {
	die := rand.New(rand.NewPCG(1, 2))
	both := [2]int{}
	for range 20_000 {
		var rooms [][]int64
		for range 1 + die.IntN(4) {
			rooms = append(rooms, []int64{int64(die.IntN(9))})
		}
		size := int64(1 + die.IntN(4))
		var list []Slice
		for range die.IntN(4) {
			list = append(list, Slice{Pods: []int64{size}, In: -1})
		}
		if die.IntN(2) == 0 && size > 1 {
			small := Slice{Pods: []int64{1 + die.Int64N(size-1)}, In: -1}
			if die.IntN(2) == 0 {
				small.Wish = []int64{size}
			}
			list = append(list, small)
		}
		for range die.IntN(3) {
			list = append(list, Slice{Pods: []int64{1}, In: die.IntN(len(rooms))})
		}
		die.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
		for i := range list { // those that are pinned come first, whatever the order
			if list[i].In >= 0 && list[i].Wish != nil {
				t.Fatal("drawn wrong")
			}
		}
		together := die.IntN(2) == 0
		at, put := Into(rooms, list, together)
		check(t, rooms, list, at, put, together)
		can := exhaustive(rooms, list, together)
		if can != (put == len(list)) {
			t.Fatalf("rooms %v, slices %+v: put %v, and all of them can be put: %t", rooms, list, at, can)
		}
		if can {
			both[1]++
		} else {
			both[0]++
		}
	}
	if both[0] < 2000 || both[1] < 2000 {
		t.Errorf("%v cases that cannot, and can, be placed", both)
	}
}

// TestClasses measures how often Into misses a placement of slices of several classes. What it returns is valid.
func TestClasses(t *testing.T) {
	die := rand.New(rand.NewPCG(3, 4))
	can, missed := 0, 0
	for range 10_000 {
		var rooms [][]int64
		for range 1 + die.IntN(4) {
			rooms = append(rooms, []int64{int64(die.IntN(9)), int64(die.IntN(9))})
		}
		var list []Slice
		a, b := []int64{int64(1 + die.IntN(3)), int64(die.IntN(3))}, []int64{0, int64(1 + die.IntN(4))}
		for range 1 + die.IntN(3) {
			list = append(list, Slice{Pods: a, In: -1})
		}
		for range die.IntN(3) {
			list = append(list, Slice{Pods: b, In: -1})
		}
		at, put := Into(rooms, list, false)
		check(t, rooms, list, at, put, false)
		if exhaustive(rooms, list, false) {
			can++
			if put < len(list) {
				missed++
			}
		} else if put == len(list) {
			t.Fatalf("rooms %v, slices %+v: put %v", rooms, list, at)
		}
		at, put = Into(rooms, list, true)
		check(t, rooms, list, at, put, true)
	}
	t.Logf("missed %d of %d", missed, can)
	if missed*100 > can {
		t.Errorf("missed %d of %d", missed, can)
	}
}

// TestTight: as many as possible where most fit, and the last ones where they leave least.
func TestTight(t *testing.T) {
	one := func(n int64) []int64 { return []int64{n} }
	for _, c := range []struct {
		rooms, size []int64
		wish        int64
		want        []int
	}{
		{[]int64{4, 12, 9}, []int64{4, 4, 4, 4}, 0, []int{1, 1, 1, 0}}, // the largest first, and then the tightest
		{[]int64{12, 5, 9}, []int64{4}, 0, []int{1}},
		{[]int64{12, 8, 9}, []int64{4, 4}, 0, []int{1, 1}},
		{[]int64{7, 4}, []int64{4, 3}, 0, []int{1, 0}}, // the small one into what is left
		{[]int64{2, 9}, []int64{2}, 0, []int{0}},
		{[]int64{2, 9, 5}, []int64{2}, 4, []int{2}}, // it may grow there
		{[]int64{2, 3}, []int64{2}, 4, []int{0}},
	} {
		var rooms [][]int64
		for _, n := range c.rooms {
			rooms = append(rooms, one(n))
		}
		var list []Slice
		for _, n := range c.size {
			s := Slice{Pods: one(n), In: -1}
			if c.wish > 0 {
				s.Wish = one(c.wish)
			}
			list = append(list, s)
		}
		if at, _ := Into(rooms, list, true); !slices.Equal(at, c.want) {
			t.Errorf("rooms %v, slices %v: %v, want %v", c.rooms, c.size, at, c.want)
		}
	}
}

func BenchmarkInto(b *testing.B) { // 18 pods in each of 4,000 cliques
	var rooms [][]int64
	for i := range 4000 {
		rooms = append(rooms, []int64{int64(i % 73)})
	}
	list := slices.Repeat([]Slice{{Pods: []int64{18}, In: -1}}, 500)
	for b.Loop() {
		Into(rooms, list, true)
	}
}

// TestSetIsMadeOnce: what slices are alike is not found out again for each set of domains that they are put into.
func TestSetIsMadeOnce(t *testing.T) {
	list := make([]Slice, 10000)
	for i := range list {
		list[i] = Slice{Pods: []int64{1}, In: -1}
	}
	rooms := make([][]int64, 100)
	for i := range rooms {
		rooms[i] = []int64{110}
	}
	set := NewSet(list)
	if _, put := set.Into(rooms, true); put != len(list) {
		t.Errorf("%d of %d slices are put", put, len(list))
	}
	if n := testing.AllocsPerRun(3, func() { set.Into(rooms, true) }); n > 1000 {
		t.Errorf("%v allocations for %d domains and %d slices that are alike", n, len(rooms), len(list))
	}
}
