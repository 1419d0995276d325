package home

import (
	"testing"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/event"
)

// Whether pods that are bound have events may change while a core runs.
func TestSetPodEvents(t *testing.T) {
	c := New(Config{Self: "a"})
	for i, on := range []bool{false, true, true, false} {
		if i > 0 {
			c.SetPodEvents(on)
		}
		c.tellBound(podOf(&api.Pod{UID: "u", Namespace: "ns", Name: "p"}), "n")
		said := 0
		for _, o := range c.Outputs() {
			if e, is := o.(event.ObjectEvent); is && e.Message == "Successfully assigned ns/p to n" {
				said++
			}
		}
		if want := map[bool]int{true: 1}[on]; said != want {
			t.Errorf("%d: %d events, not %d", i, said, want)
		}
	}
}
