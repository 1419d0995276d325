package cluster

import (
	"testing"
	"time"
)

// Whose a stack is.
func TestShares(t *testing.T) {
	const (
		home    = "basalt.dev/basalt/shard/home.(*Core).Step"
		plant   = "basalt.dev/basalt/bench/measure/cluster.StartPlant.func2"
		bind    = "basalt.dev/basalt/bench/stage/memory.(*Server).Bind"
		kubelet = "basalt.dev/basalt/bench/measure/cluster.(*kubelet).run"
	)
	for _, c := range []struct {
		name     string
		stack    []string
		labelled bool
		want     shares
	}{
		{"a core", []string{"runtime.mallocgc", home, plant}, true, shares{basalt: 1}},
		{"a library's goroutine that Basalt started", []string{"google.golang.org/grpc.f"}, true, shares{basalt: 1}},
		{"the API, called by Basalt", []string{"runtime.mallocgc", bind, home, plant}, true, shares{bench: 1}},
		{"the API, called by the bench", []string{bind, kubelet}, false, shares{bench: 1}},
		{"the bench", []string{kubelet, "main.main"}, false, shares{bench: 1}},
		{"collecting garbage", []string{"runtime.gcDrain", "runtime.gcBgMarkWorker"}, false, shares{runtime: 1}},
	} {
		var s shares
		s.add(c.stack, c.labelled, 1)
		if s != c.want {
			t.Errorf("%s: %+v, want %+v", c.name, s, c.want)
		}
	}
}

// Every second of the program is somebody's; garbage is whose who made it.
func TestSplit(t *testing.T) {
	c := split(10*time.Second, time.Second, shares{basalt: 5, bench: 3, runtime: 2}, shares{basalt: 1, bench: 3})
	if want := (CPU{Basalt: 5500 * time.Millisecond, Store: time.Second, Bench: 4500 * time.Millisecond, Runtime: 2 * time.Second}); c != want {
		t.Errorf("%+v, want %+v", c, want)
	}
	if c.Sum() != 6500*time.Millisecond {
		t.Errorf("Basalt costs %s", c.Sum())
	}
	if c := split(time.Second, 0, shares{}, shares{}); c.Basalt != time.Second || c.Bench != 0 {
		t.Errorf("without a sample: %+v", c)
	}
}
