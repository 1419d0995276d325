package home

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

func podsOf(class *api.Class, n int) (pods []*pod) {
	for i := range n {
		pods = append(pods, podOf(&api.Pod{UID: fmt.Sprintf("%s%d", class.Key, i), Class: class}))
	}
	return pods
}

// A shard is asked for what it says that it has, of each class and in all, and another one for a little less.
func TestShare(t *testing.T) {
	small, large := api.NewClass(cores(1, 1), nil), api.NewClass(cores(4, 1), nil)
	for _, c := range []struct {
		name                 string
		left                 api.Resources
		room                 map[uint64]int64
		small, large         int
		wantSmall, wantLarge int
		otherSmall           int // of another shard; large ones are none or as many
		otherLarge           int
	}{
		{"all fits", cores(100, 100), nil, 8, 4, 8, 4, 8, 4},
		{"sums alone", cores(10, 100), nil, 16, 0, 10, 0, 9, 0},
		{"no node has four left", cores(10, 100), map[uint64]int64{large.Hash(): 0}, 4, 2, 4, 0, 4, 0},
		{"what few nodes take comes first", cores(10, 100), map[uint64]int64{large.Hash(): 2, small.Hash(): 10}, 10, 3, 2, 2, 2, 2},
		{"counted less than the sum", cores(100, 100), map[uint64]int64{small.Hash(): 16}, 50, 0, 16, 0, 14, 0},
		{"nothing", nil, nil, 1, 1, 0, 0, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			kinds := kindsOf(slices.Concat(podsOf(small, c.small), podsOf(large, c.large)))
			for _, own := range []bool{true, false} {
				s := &summary{left: c.left, room: c.room}
				got := map[*api.Class]int{}
				for _, p := range s.share(kinds, own, false) {
					got[p.Class]++
				}
				wantSmall, wantLarge := c.wantSmall, c.wantLarge
				if !own {
					wantSmall, wantLarge = c.otherSmall, c.otherLarge
				}
				if got[small] != wantSmall || got[large] != wantLarge {
					t.Errorf("own %t: %d small and %d large, want %d and %d", own, got[small], got[large], wantSmall, wantLarge)
				}
			}
		})
	}
}

// What was asked for and is not answered is missing from what a summary says, for it was made before.
func TestSummaryWhileAsking(t *testing.T) {
	class := api.NewClass(cores(1, 1), nil)
	c := logged(New(Config{Self: "a", Strict: true}))
	g := &gang{search: search{round: &round{shard: "b", fresh: kindsOf(podsOf(class, 3))}}}
	idle := &gang{search: search{round: &round{shard: "c", fresh: kindsOf(podsOf(class, 5))}}}
	say := func() *summary {
		c.Step(epoch0, event.Message{From: "b", Body: &wire.Envelope{Body: &wire.Envelope_Summary{Summary: &wire.Summary{
			Free: wire.FromResources(cores(10, 100)), Room: []*wire.ClassRoom{{PodClass: class.Hash(), Pods: 10}}}}}})
		return c.shards.summaries["b"]
	}
	s := say()
	s.asking = append(s.asking, g, g, idle)
	for range 2 {
		if s = say(); s.room[class.Hash()] != 7 || !s.left.Equal(cores(7, 97)) || len(s.asking) != 1 {
			t.Fatalf("left %v and %d pods, %d ask", s.left, s.room[class.Hash()], len(s.asking))
		}
	}
	g.search.round = nil
	if s = say(); s.room[class.Hash()] != 10 || len(s.asking) != 0 {
		t.Fatalf("%d pods after the answer, %d ask", s.room[class.Hash()], len(s.asking))
	}
}

// A message names so many pods, and fewer where each brings a large class; never none.
func TestCut(t *testing.T) {
	plain := podsOf(api.NewClass(cores(1, 1), nil), 10)
	var large []*pod
	for i := range 10 {
		large = append(large, podsOf(api.NewClass(cores(1, 1), []byte(strings.Repeat(string(rune('a'+i)), 800))), 1)...)
	}
	for _, c := range []struct {
		name string
		pods []*pod
		most int
		want []int
	}{
		{"few", plain, 16, []int{10}},
		{"even", plain, 5, []int{5, 5}},
		{"rest", plain, 4, []int{4, 4, 2}},
		{"one by one", large[:3], 1, []int{1, 1, 1}},
		{"large classes", large, 4, []int{2, 2, 2, 2, 2}},
		{"none", nil, 4, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			var got []int
			for part, rest := cut(c.pods, c.most); len(part) > 0; part, rest = cut(rest, c.most) {
				got = append(got, len(part))
			}
			if !slices.Equal(got, c.want) {
				t.Fatalf("parts of %v, want %v", got, c.want)
			}
		})
	}
}

// TestShortIsSaidLast: where a shard is asked for more pods than one message may name, and has too little for the gang,
// only the last message asks what is left.
func TestShortIsSaidLast(t *testing.T) {
	s := newScript(t, Config{})
	for line := range strings.Lines(`config holdpods=1
coordinator 1
table 1 a:team b
store 1 10
pods 1
summary a free=2 allocatable=8
group g min=3 queue=team
pod p1 group=g
pod p2 group=g
pod p3 group=g
grant g
`) {
		s.run(strings.TrimSpace(line))
	}
	asked := func() (short bool) { return s.find("hold a g").GetHoldRequest().GetShort() }
	first := asked()
	s.run("held a g p1@n1")
	if first || !asked() {
		t.Errorf("the first of two messages says %t, the second %t", first, asked())
	}
}

// TestDrainedInVain: the patient gang waits for nodes to become free. Where its pods differ, what it keeps meanwhile
// may be in its own way: after a while it lets go of that, and tries other orders. Pods that are alike go on waiting.
func TestDrainedInVain(t *testing.T) {
	for _, c := range []struct {
		name, cpu string
		starts    bool
	}{{"unlike pods", "1", true}, {"like pods", "4", false}} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript(t, Config{})
			for line := range strings.Lines(`coordinator 1
table 1 a:team b
store 1 10
pods 1
summary a free=8 allocatable=8 room=1
summary b free=0 allocatable=8 room=1
group g min=2 queue=team
pod p1 group=g cpu=4
pod p2 group=g cpu=` + c.cpu + `
grant g patient
`) {
				s.run(strings.TrimSpace(line))
			}
			g, answered, drained := s.core.gangs["g"], uint64(0), false
			for g.state == holding && s.now.Before(epoch0.Add(time.Minute)) {
				m := s.find("hold a g").GetHoldRequest()
				if m.Serial == answered {
					s.run("tick 100ms")
					continue
				}
				answered = m.Serial
				drains := slices.Contains(m.Awaits, wire.Everybody)
				drained = drained || drains
				answer := fmt.Sprintf("held a g %s@n1", m.Pods[0].PodUid)
				for _, p := range m.Pods[1:] {
					if drained && !drains { // there is room now, but not beside what it kept
						answer += " " + p.PodUid + "@n2"
					} else {
						answer += " refused=1"
					}
				}
				s.run(answer)
			}
			if started := g.state == preparing; !drained || started != c.starts {
				t.Errorf("drained: %t; after %v it is %v", drained, s.now.Sub(epoch0), g.state)
			}
		})
	}
}
