package home

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api/v1alpha1"
)

// A condition keeps the time of its last transition while its status stays the same.
func TestTimeOfTransition(t *testing.T) {
	c := New(Config{Self: "a"})
	c.now = epoch0.Add(90*time.Second + 300*time.Millisecond)
	old := metav1.NewTime(epoch0)
	for _, test := range []struct {
		name   string
		before []metav1.Condition
		want   time.Duration
	}{
		{"none before", nil, 90 * time.Second},
		{"of the same status", []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, LastTransitionTime: old}}, 0},
		{"of the other status", []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, LastTransitionTime: old}}, 90 * time.Second},
		{"of another type", []metav1.Condition{{Type: v1alpha1.ConditionQuotaReserved, Status: metav1.ConditionTrue, LastTransitionTime: old}}, 90 * time.Second},
		{"without a time", []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}, 90 * time.Second},
	} {
		got := c.condition(test.before, v1alpha1.ConditionReady, verdict{yes: true, reason: reason{"Ready", "words"}}, 3)
		if at := got.LastTransitionTime.Sub(epoch0); at != test.want || got.Status != metav1.ConditionTrue || got.ObservedGeneration != 3 {
			t.Errorf("%s: %+v, want %s", test.name, got, test.want)
		}
	}
}
