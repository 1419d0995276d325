package intake

import (
	"testing"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1alpha1"
)

// What a PodGroup says never replaces a bound.
func TestTimeoutIsBounded(t *testing.T) {
	for seconds, want := range map[int32]time.Duration{-1: 0, 0: 0, 1: time.Second, 600: MaxTimeout, 601: MaxTimeout,
		86400: MaxTimeout, 1<<31 - 1: MaxTimeout} {
		g := &v1alpha1.PodGroup{}
		g.Spec.ScheduleTimeoutSeconds = &seconds
		if got, _, _ := New().See(time.Time{}, g, nil); got.Timeout != want {
			t.Errorf("%d seconds are read as %s, want %s", seconds, got.Timeout, want)
		}
	}
}

// Names are ordered by their namespaces first.
func TestCompareNames(t *testing.T) {
	ordered := []Name{{"", "z", 0}, {"a", "", 0}, {"a", "b", 0}, {"a", "b", api.VolcanoGroup}, {"a", "c", 0}, {"b", "a", 0}, {"b", "b", 0}}
	for i, a := range ordered {
		for j, b := range ordered {
			if got := compareNames(a, b); got < 0 != (i < j) || got > 0 != (i > j) {
				t.Errorf("%v and %v compare as %d", a, b, got)
			}
		}
	}
}
