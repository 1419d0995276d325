package fair

import (
	"testing"
	"time"
)

// What a queue deserves comes back within the time that was promised, and so does a share after an edit.
func TestShareComesBack(t *testing.T) {
	if took := timeToReturn(1); took > returned {
		t.Errorf("what is deserved came back after %s, the limit is %s", took, returned)
	} else {
		t.Logf("what is deserved came back after %s", took)
	}
	if took := timeAfterEdit(1); took > returned {
		t.Errorf("the share was reached %s after the edit, the limit is %s", took, returned)
	} else {
		t.Logf("the share was reached %s after the edit", took)
	}
}

// In a case that can be worked out by hand, each of the contenders takes back what is deserved, evicts no more than that, and stops.
func TestContendersTakeBack(t *testing.T) {
	for _, c := range contenders {
		h := empty(1)
		for _, path := range []string{"a", "b"} {
			h.team(h.root, path, 0.5, 1)
		}
		h.sched = c.by(h)
		h.until(3 * time.Second)
		demand := []int64{h.whole[0] / 100, 1 << 30, 0}
		for range 100 {
			h.come(h.teams[1], demand, 1, 1000*time.Hour)
		}
		h.until(5 * time.Minute)
		for range 60 {
			h.come(h.teams[0], demand, 1, 1000*time.Hour)
		}
		h.until(10 * time.Minute)
		want := 50
		if c.name == nobody {
			want = 0
		}
		if has := h.teams[0].charged[0] / demand[0]; has != int64(want) || len(h.ended) != want {
			t.Errorf("%s: %d gangs run, %d were evicted, want %d of both", c.name, has, len(h.ended), want)
		}
		if first, later := h.closedHour(); first+later > 0 {
			t.Errorf("%s: %d more evictions though nothing happens", c.name, first+later)
		}
	}
}

// Volcano takes a whole gang only if its queue has more than it deserves before each of the gang's pods, of what it names.
func TestVolcanoSparesWhatIsDeserved(t *testing.T) {
	for _, c := range []struct {
		name   string
		pods   int64
		gpus   int64 // of the gang that may be evicted, in hundredths of the whole; b has 30 beside it, and deserves 50
		evicts int
	}{
		{"the queue has what it deserves before its third pod", 4, 40, 0}, // 70, 60, 50
		{"and before its second", 2, 40, 0},                               // 70, 50
		{"the queue has more before its second", 2, 44, 1},                // 74, 52
		{"one pod", 1, 40, 1},
		{"within what is deserved", 1, 20, 0},
	} {
		h := empty(1)
		h.named = scarce
		for _, path := range []string{"a", "b"} {
			h.team(h.root, path, 0.5, 1)
		}
		h.sched = newVolcano(h)
		gpu := func(of int64) []int64 { return []int64{1000, 1 << 30, of * h.whole[2] / 100} }
		h.come(h.teams[1], gpu(c.gpus), c.pods, 1000*time.Hour)
		h.until(2 * minRuntime)
		h.come(h.teams[1], gpu(30), 1, 1000*time.Hour) // within its minimum runtime
		h.until(h.now + 5*time.Second)
		h.come(h.teams[0], gpu(50), 1, 1000*time.Hour)
		h.until(3*minRuntime - 10*time.Second)
		if len(h.ended) != c.evicts {
			t.Errorf("%s: %d gangs were evicted, want %d", c.name, len(h.ended), c.evicts)
		}
	}
}
