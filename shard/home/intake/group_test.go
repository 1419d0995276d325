package intake

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// What a PodGroup says never replaces a bound.
func TestTimeoutIsBounded(t *testing.T) {
	for seconds, want := range map[int32]time.Duration{-1: 0, 0: 0, 1: time.Second, 600: MaxTimeout, 601: MaxTimeout,
		86400: MaxTimeout, 1<<31 - 1: MaxTimeout} {
		g := &v1beta1.PodGroup{}
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

// The nearest queue of a path decides what is said of gangs that lost pods, and a PodGroup may say a shorter time.
func TestRepair(t *testing.T) {
	o := New()
	d := func(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }
	say := func(name, uid string, keep, stale *metav1.Duration) bool {
		return o.SeeTimes(name, uid, &v1beta1.QueueSpec{RepairFor: keep, StaleAfter: stale})
	}
	check := func(queue string, group, keep, stale time.Duration, by string) {
		t.Helper()
		after, who := o.StaleAfter(queue, &Group{Name: Name{Name: "g"}, StaleAfter: group})
		if got := o.RepairFor(queue); got != keep || after != stale || who != by {
			t.Errorf("%s: %v, stale after %v by %q, want %v, %v by %q", queue, got, after, who, keep, stale, by)
		}
	}
	check("a.b", 0, 2*time.Minute, 0, "")
	check("a.b", time.Hour, 2*time.Minute, time.Hour, "PodGroup g")
	if !say("root", "1", d(0), d(time.Minute)) || !say("a", "2", nil, d(time.Hour)) || say("a", "2", nil, d(time.Hour)) {
		t.Error("what changes is not told")
	}
	check("a.b", 0, 0, time.Hour, "Queue a")
	check("b", 0, 0, time.Minute, "Queue root")
	check("a.b", time.Second, 0, time.Second, "PodGroup g")
	check("b", time.Hour, 0, time.Minute, "Queue root")
	say("a.b", "3", d(time.Second), d(0)) // never, whatever those above say
	check("a.b", 0, time.Second, 0, "Queue a.b")
	say("a.b", "4", d(-time.Second), d(200*time.Hour)) // as if nothing was said
	check("a.b", 0, 0, time.Hour, "Queue a")
	if o.SeeTimes("a", "1", nil) || !o.SeeTimes("a", "2", nil) {
		t.Error("a Queue is forgotten for one that is gone")
	}
	check("a.b", 0, 0, time.Minute, "Queue root")
}
