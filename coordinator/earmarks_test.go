package coordinator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// hall is a queue tree over simulated time: gangs come, run for a while and end.
type hall struct {
	*bytesWorld
	ends    map[string]time.Time // of those that run
	queues  map[string]string    // by gang
	came    map[string]time.Time
	waited  map[string]time.Duration // of those that were granted
	running map[string]time.Duration
}

func newHall(t *testing.T, limits map[string]int64) *hall {
	h := emptyHall(t)
	h.queue("root", 1, nil)
	for _, path := range api.SortedKeys(limits) {
		h.queue(path, 1, api.FromMap(map[string]int64{"cpu": limits[path]}))
	}
	h.open()
	return h
}

// emptyHall is one without queues; it is not open.
func emptyHall(t *testing.T) *hall {
	return &hall{bytesWorld: newBytesWorld(t, &wire.ShardRecord{Name: "s1", Incarnation: "s1"}), ends: map[string]time.Time{},
		queues: map[string]string{}, came: map[string]time.Time{}, waited: map[string]time.Duration{}, running: map[string]time.Duration{}}
}

// open lets gangs be admitted, once all queues are there.
func (h *hall) open() {
	h.step(QueuesSynced{})
	h.settle()
	h.tick(2 * time.Second)
}

// ask has a gang come that runs so long once it is granted.
func (h *hall) ask(uid, namespace, queue string, cpu, priority int64, runs time.Duration) {
	h.asks(uid, namespace, queue, map[string]int64{"cpu": cpu}, priority, runs)
}

func (h *hall) asks(uid, namespace, queue string, demand map[string]int64, priority int64, runs time.Duration) {
	h.serial++
	h.queues[uid], h.came[uid], h.running[uid] = queue, h.now, runs
	h.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{
		Gang: &wire.GangRef{Uid: uid, Namespace: namespace, Name: uid, Queue: queue}, Attempt: 1, Serial: h.serial, TableEpoch: 1, Priority: priority, Preemptible: true,
		SinceUnixMs: h.now.UnixMilli(), Demand: wire.FromResources(api.FromMap(demand))}}}})
	h.settle()
}

func (h *hall) end(uid string) {
	h.serial++
	h.step(Message{From: "s1", Body: &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{
		Gang: &wire.GangRef{Uid: uid, Queue: h.queues[uid]}, Attempt: 1, Serial: h.serial, TableEpoch: 1}}}})
	h.settle()
	delete(h.ends, uid)
	delete(h.granted, uid)
	delete(h.queues, uid)
}

// second lets a second pass.
func (h *hall) second() {
	h.tick(time.Second)
	for _, uid := range api.SortedKeys(h.granted) {
		if _, runs := h.ends[uid]; !runs {
			h.ends[uid] = h.now.Add(h.running[uid])
			h.waited[uid] = h.now.Sub(h.came[uid])
		}
	}
	for _, uid := range api.SortedKeys(h.ends) {
		if !h.now.Before(h.ends[uid]) {
			h.end(uid)
		}
	}
}

// TestNobodyIsStarvedByClaims: 100 of the 1,000 CPUs of org run for days, and somebody asks for all of them again and again. Others
// of the same tenant, of another namespace in the same queue, and of another queue go on.
func TestNobodyIsStarvedByEarmarks(t *testing.T) {
	const days = 100 * time.Hour
	for _, c := range []struct {
		name string
		evil func(h *hall, second int)
	}{
		{"one gang", func(h *hall, second int) {
			if second == 0 {
				h.ask("evil", "bad", "org.a", 1000, 0, time.Hour)
			}
		}},
		{"with priority", func(h *hall, second int) {
			if second == 0 {
				h.ask("evil", "bad", "org.a", 1000, 1000, time.Hour)
			}
		}},
		{"ten that take turns", func(h *hall, second int) {
			if second < 10 {
				h.ask(fmt.Sprint("evil", second), "bad", "org.a", 1000-int64(second), 0, time.Hour)
			}
		}},
		{"made again each 70 s", func(h *hall, second int) {
			if second%70 == 0 {
				if second > 0 {
					h.end(fmt.Sprint("evil", second/70-1))
				}
				h.ask(fmt.Sprint("evil", second/70), "bad", "org.a", 1000, 5, time.Hour)
			}
		}},
		{"at the leaf and above it", func(h *hall, second int) {
			if second == 0 {
				h.ask("evil-small", "bad", "org.small", 300, 0, days)
			}
			if second > 0 && second < 9 {
				h.ask(fmt.Sprint("evil", second), "bad", []string{"org.a", "org.small"}[second%2], []int64{1000, 400}[second%2], 0, time.Hour)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHall(t, map[string]int64{"org": 1000, "org.a": 1000, "org.b": 1000, "org.small": 400})
			h.ask("days", "good", "org.b", 100, 0, days)
			n := 0
			for second := range 7200 {
				c.evil(h, second)
				if second%60 == 30 {
					for i, of := range [][2]string{{"bad", "org.a"}, {"good", "org.a"}, {"good", "org.b"}} {
						h.ask(fmt.Sprintf("g%d-%d", i, n), of[0], of[1], 10, 0, 30*time.Second)
					}
					n++
				}
				h.second()
			}
			longest := [3]time.Duration{}
			for uid, came := range h.came {
				var i, k int
				if _, err := fmt.Sscanf(uid, "g%d-%d", &i, &k); err != nil {
					continue
				}
				waited, started := h.waited[uid]
				if !started {
					waited = h.now.Sub(came)
				}
				longest[i] = max(longest[i], waited)
			}
			// Windows of 10, 20, 10 and 40 minutes begin within these two hours.
			for i, limit := range []time.Duration{43 * time.Minute, 2 * time.Second, 2 * time.Second} {
				if longest[i] > limit {
					t.Errorf("%s: waited %v, the limit is %v", []string{"the same tenant", "another namespace", "another queue"}[i], longest[i], limit)
				}
			}
			if longest[0] < time.Minute && !strings.HasPrefix(c.name, "made again") {
				t.Errorf("nothing was kept from anybody: %v", longest)
			}
		})
	}
}

// TestLargeGangGetsItsTurn: small gangs ask for more than there is all the time, and a large one starts nevertheless.
func TestLargeGangGetsItsTurn(t *testing.T) {
	for _, c := range []struct {
		name      string
		namespace string
		cpu       int64
		runs      time.Duration // each small gang
		within    time.Duration
	}{
		{"its own queue", "small", 75, 3 * time.Minute, 10 * time.Minute},
		{"its own queue, long runs", "small", 75, 50 * time.Minute, 6 * time.Hour},
		{"shared with another tenant", "large", 50, 3 * time.Minute, 10 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHall(t, map[string]int64{"a": 100})
			for second := range int(c.within / time.Second) {
				if len(h.core.ring) < 20 {
					for i := range 20 {
						runs := c.runs/2 + c.runs*time.Duration((second*20+i)%100)/100
						h.ask(fmt.Sprintf("g%d-%d", second, i), "small", "a", 1, 0, runs)
					}
				}
				if second == 30 {
					h.ask("large", c.namespace, "a", c.cpu, 0, time.Minute)
				}
				h.second()
				if h.waited["large"] > 0 {
					return
				}
			}
			t.Errorf("it does not start within %v: %s", c.within, h.denied["large"])
		})
	}
}

// TestWindowsFollowTheRulerSequence: also the largest gang that can never start claims no longer than that.
func TestWindowsFollowTheRulerSequence(t *testing.T) {
	h := newHall(t, map[string]int64{"a": 10})
	h.ask("holds", "x", "a", 1, 0, 100*time.Hour)
	h.ask("all", "x", "a", 10, 0, time.Minute)
	var lasted, rested []time.Duration
	was, since := h.core.earmarks.window, h.now
	for range 7 * 3600 {
		h.second()
		if w := h.core.earmarks.window; w.n != was.n || w.resting != was.resting {
			if was.n > 0 && was.resting {
				rested = append(rested, h.now.Sub(since))
			} else if was.n > 0 {
				lasted = append(lasted, h.now.Sub(since))
			}
			was, since = w, h.now
		}
		if h.core.earmarks.window.resting && h.core.tree.at("a").order.earmark != nil {
			t.Fatal("room is kept in a pause")
		}
	}
	m := time.Minute
	want := []time.Duration{10 * m, 20 * m, 10 * m, 40 * m, 10 * m, 20 * m, 10 * m, 80 * m}
	if !slices.Equal(lasted[:8], want) {
		t.Errorf("windows of %v, want %v", lasted, want)
	}
	if !slices.Equal(rested[:7], lasted[:7]) {
		t.Errorf("pauses of %v after windows of %v", rested, lasted)
	}
	h.end("all")
	for range 4 * 3600 {
		h.second()
	}
	if h.core.earmarks.window.n != 0 {
		t.Errorf("nobody claims, and window %d is open", h.core.earmarks.window.n)
	}
}

// TestWindowsBeginWithAnEarmark: while nothing can be kept for the only gang that would get an earmark, as its queue is
// closed, no time passes of a window.
func TestWindowsBeginWithAnEarmark(t *testing.T) {
	h := newHall(t, map[string]int64{"a": 10})
	h.ask("holds", "x", "a", 1, 0, 100*time.Hour)
	h.ask("all", "x", "a", 10, 0, time.Minute)
	edit := func(version int, closed bool) {
		h.step(QueueSeen{Name: "a", UID: "u-a", ResourceVersion: fmt.Sprint(version), Generation: int64(version),
			HasFinalizer: true, Closed: closed, Capability: api.FromMap(map[string]int64{"cpu": 10})})
		h.settle()
	}
	edit(2, true)
	for range 9 * 60 {
		h.second()
	}
	edit(3, false)
	h.second()
	w := h.core.earmarks.window
	if h.core.tree.at("a").order.earmark == nil || w.until.Sub(h.now) < 10*time.Minute-2*time.Second {
		t.Errorf("window %+v, %v are left of it", w, w.until.Sub(h.now))
	}
}

// TestUnusedWindowsCountOnce: what was kept at two queues for the same gang was kept for it once, and it comes behind
// those that came so much later than it as the window lasted.
func TestUnusedWindowsCountOnce(t *testing.T) {
	h := newHall(t, map[string]int64{"p": 10, "p.a": 100})
	h.ask("holds", "x", "p.a", 1, 0, 100*time.Hour)
	h.ask("all", "x", "p.a", 10, 0, time.Minute)
	for h.now.Sub(h.came["all"]) < 10*time.Minute+30*time.Second {
		h.second()
	}
	h.ask("later", "x", "p.a", 10, 0, time.Minute)
	for h.core.earmarks.window.n < 2 {
		h.second()
	}
	h.second()
	r := h.core.tree.at("p").order.earmark
	if r == nil || r.gang.key.uid != "all" || h.core.tree.at("p.a").order.earmark != r {
		t.Errorf("quota is kept for %+v", r)
	}
}

// TestCandidatesOfEachNamespace: behind so many of its own that nothing can be kept for, a gang is not looked at, and
// hides none of another namespace.
func TestCandidatesOfEachNamespace(t *testing.T) {
	h := newHall(t, map[string]int64{"a": 2000})
	h.ask("holds", "x", "a", 2000, 0, 100*time.Hour)
	for i := range candidatesLooked + 10 {
		h.ask(fmt.Sprint("large", i), "many", "a", int64(1000+i), 0, time.Minute)
	}
	h.ask("last", "many", "a", 500, 0, time.Minute)
	h.ask("other", "few", "a", 500, 0, time.Minute)
	h.queue("a", 2, api.FromMap(map[string]int64{"cpu": 900}))
	h.settle()
	for range 62 {
		h.second()
	}
	if r := h.core.tree.at("a").order.earmark; r == nil || r.gang.key.uid != "other" {
		t.Errorf("quota is kept for %+v", r)
	}
}
