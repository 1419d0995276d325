package relay

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api/wire"
)

func TestWindow(t *testing.T) {
	now := time.Unix(1, 0)
	w := newWindow(10, limits{4, 100, time.Minute})
	add := func(versions ...uint64) {
		t.Helper()
		for _, v := range versions {
			if err := w.add(&wire.RelayEvent{Version: v, Object: make([]byte, 10)}, now); err != nil {
				t.Fatal(err)
			}
		}
	}
	after := func(version, limit uint64, want string) {
		t.Helper()
		events, ok := w.after(version, limit)
		got := "too old"
		if ok {
			var s []string
			for _, e := range events {
				s = append(s, fmt.Sprint(e.Version))
			}
			got = strings.Join(s, " ")
		}
		if got != want {
			t.Errorf("after(%d, %d) = %s, want %s", version, limit, got, want)
		}
	}
	all := ^uint64(0)
	after(9, all, "too old")
	after(10, all, "")
	add(12, 15, 16)
	after(10, all, "12 15 16")
	after(10, 15, "12 15") // not published further
	after(12, all, "15 16")
	after(13, all, "15 16") // a version between two events
	after(16, all, "")
	after(99, all, "") // ahead
	after(all, all, "")
	add(17, 20) // the fifth pushes the first one out
	after(10, all, "too old")
	after(11, all, "too old")
	after(12, all, "15 16 17 20")
	if err := w.bookmark(30); err != nil {
		t.Fatal(err)
	}
	after(20, all, "")
	if err := w.bookmark(30); err != nil { // said once more
		t.Fatal(err)
	}

	for _, bad := range []uint64{0, 20, 29, 30} {
		if err := w.add(&wire.RelayEvent{Version: bad}, now); err == nil {
			t.Errorf("an event of version %d was taken after 30", bad)
		}
	}
	if err := w.bookmark(29); err == nil {
		t.Error("a bookmark of version 29 was taken after 30")
	}

	// The limit in bytes: a large object pushes out what it must and no more.
	if err := w.add(&wire.RelayEvent{Version: 31, Object: make([]byte, 85)}, now); err != nil {
		t.Fatal(err)
	}
	after(16, all, "too old")
	after(17, all, "20 31")

	// The limit in time: what is older goes with the next event, not before.
	now = now.Add(time.Minute)
	add(32)
	after(31, all, "32")
	now = now.Add(time.Second)
	after(31, all, "32")
	add(33)
	after(20, all, "too old")
	after(31, all, "32 33")
	now = now.Add(2 * time.Minute)
	add(34)
	after(32, all, "too old")
	after(33, all, "34")
	if w.size != 10 || len(w.events) != 1 {
		t.Errorf("%d bytes, %d events", w.size, len(w.events))
	}
}

// The limits are met exactly, and an object that is larger than the window pushes out all others, and is there for readers.
func TestWindowLimits(t *testing.T) {
	now := time.Unix(1, 0)
	for _, c := range []struct {
		limits limits
		size   int           // of each object, in bytes
		pause  time.Duration // between two
		oldest uint64        // after ten events
	}{
		{limits{10, 1000, time.Minute}, 10, 0, 0},
		{limits{9, 1000, time.Minute}, 10, 0, 1},
		{limits{1, 1000, time.Minute}, 10, 0, 9},
		{limits{100, 100, time.Minute}, 10, 0, 0},
		{limits{100, 99, time.Minute}, 10, 0, 1},
		{limits{100, 10, time.Minute}, 10, 0, 9},
		{limits{100, 10, time.Minute}, 11, 0, 9},
		{limits{100, 10, time.Minute}, 5000, 0, 9},
		{limits{100, 1000, 9 * time.Second}, 10, time.Second, 0},
		{limits{100, 1000, 8 * time.Second}, 10, time.Second, 1},
		{limits{100, 1000, 0}, 10, time.Second, 9},
		{limits{100, 1000, 0}, 10, 0, 0},
	} {
		w := newWindow(0, c.limits)
		for v := range uint64(10) {
			if err := w.add(&wire.RelayEvent{Version: v + 1, Object: make([]byte, c.size)}, now.Add(time.Duration(v)*c.pause)); err != nil {
				t.Fatal(err)
			}
		}
		if kept := 10 - int(c.oldest); w.oldest != c.oldest || len(w.events) != kept || w.size != kept*c.size {
			t.Errorf("%+v: %d events with %d bytes after version %d, want %d after %d", c, len(w.events), w.size, w.oldest, kept, c.oldest)
		}
	}
}

// A message has at most so many bytes, unless one object has more.
func TestWindowMessageSizes(t *testing.T) {
	for _, c := range []struct{ size, want int }{
		{batchSize / 4, 4}, {batchSize/4 + 1, 3}, {batchSize / 2, 2}, {batchSize/2 + 1, 1}, {batchSize, 1}, {batchSize + 1, 1}, {3 * batchSize, 1},
	} {
		w := newWindow(0, limits{100, 1 << 30, time.Minute})
		for v := range uint64(10) {
			if err := w.add(&wire.RelayEvent{Version: v + 1, Object: make([]byte, c.size)}, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		if events, ok := w.after(0, w.newest); !ok || len(events) != c.want {
			t.Errorf("%d objects of %d bytes in a message, want %d", len(events), c.size, c.want)
		}
	}
}

// A message has a limit, and what does not fit comes with the next.
func TestWindowMessages(t *testing.T) {
	w := newWindow(0, limits{10 * batchEvents, 1 << 30, time.Minute})
	for v := range uint64(2*batchEvents + 10) {
		if err := w.add(&wire.RelayEvent{Version: v + 1}, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	var version uint64
	for _, want := range []int{batchEvents, batchEvents, 10, 0} {
		events, ok := w.after(version, w.newest)
		if !ok || len(events) != want {
			t.Fatalf("%d events after %d, %v; want %d", len(events), version, ok, want)
		}
		for _, e := range events {
			if version++; e.Version != version {
				t.Fatalf("version %d, want %d", e.Version, version)
			}
		}
	}
	for range 3 {
		if err := w.add(&wire.RelayEvent{Version: w.newest + 1, Object: make([]byte, batchSize*2/3)}, time.Time{}); err != nil {
			t.Fatal(err)
		}
	}
	if events, _ := w.after(version, w.newest); len(events) != 1 {
		t.Fatalf("%d large events in one message", len(events))
	}
}
