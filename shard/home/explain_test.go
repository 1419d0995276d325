package home

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/topology"
)

// TestConstraintsAreNamed: what is said of nodes that constraints over domains exclude names these constraints, and no others.
func TestConstraintsAreNamed(t *testing.T) {
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	five := int32(5)
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u"}}
	p.Spec.SchedulerName = api.SchedulerName
	p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{
		{MaxSkew: 1, TopologyKey: "zone", MinDomains: &five, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: web},
		{MaxSkew: 2, TopologyKey: "rack", WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: web}}
	p.Spec.Affinity = &corev1.Affinity{
		PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}}}},
		PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
			{TopologyKey: api.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": strings.Repeat("x", 63)}}},
			{TopologyKey: "row", LabelSelector: web}, {TopologyKey: "row", LabelSelector: nil}, {TopologyKey: "fourth", LabelSelector: web}}}}
	seen := api.FromPod(p, nil, api.Rules{})
	if seen.Refused != nil {
		t.Fatal(seen.Refused)
	}
	for _, one := range []struct{ reasons, want string }{
		{"Insufficient cpu", ""},
		{topology.Avoided.String(), ""},
		{topology.Skewed.String(), "; topologySpreadConstraints: by zone with maxSkew 1 and minDomains 5; topologySpreadConstraints: by rack with maxSkew 2"},
		{topology.NoDomain.String(), "; topologySpreadConstraints: by zone with maxSkew 1 and minDomains 5; topologySpreadConstraints: by rack with maxSkew 2"},
		{topology.Lonely.String(), "; podAffinity: any pod by zone"},
		{topology.Avoids.String(), "; podAntiAffinity: pods with app=" + strings.Repeat("x", 63) + " by kubernetes.io/hostname; podAntiAffinity: pods with app=web by row; podAntiAffinity: no pod by row"},
	} {
		why := api.NodeReasons{Nodes: 1, Counts: []api.ReasonCount{{Reason: one.reasons, Nodes: 1}}}
		if got := constraintsIn(why, seen.Class); got != one.want {
			t.Errorf("%s:\ngot  %q\nwant %q", one.reasons, got, one.want)
		}
	}
}
