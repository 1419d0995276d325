package process

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
)

// A pod whose claim cannot be placed yet is shown again when the claim, or its volume, changes.
func TestPodsAreShownAgainWhenTheirClaimsChange(t *testing.T) {
	var last *api.Pod
	c := newClaims(nil, func(p *api.Pod) { last = p })
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"},
		Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, Volumes: []corev1.Volume{{Name: "data",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}},
	}
	refused := func(fragment string) {
		t.Helper()
		if last == nil || last.Refused == nil || last.Refused.Reason != "UnsupportedConstraint" || !strings.Contains(last.Refused.Message, fragment) {
			t.Fatalf("refused %+v, want %q", last.Refused, fragment)
		}
	}
	c.seen(pod)
	refused("does not exist")

	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}
	c.claims(nil).Seen(claim)
	refused("not bound")

	claim = claim.DeepCopy()
	claim.Spec.VolumeName, claim.Status.Phase = "v", corev1.ClaimBound
	c.claims(nil).Seen(claim)
	refused("volume v does not exist")

	c.volumes(nil).Seen(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}, Spec: corev1.PersistentVolumeSpec{NodeAffinity: &corev1.VolumeNodeAffinity{}}})
	refused("node affinity")

	c.volumes(nil).Seen(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}})
	if last.Refused != nil {
		t.Fatalf("still refused: %+v", last.Refused)
	}

	c.gone(pod)
	last = nil
	c.volumes(nil).Gone(&corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v"}})
	if last != nil {
		t.Fatal("a pod that is gone was shown again")
	}
}
