package home

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/event"
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
	p.Spec.NodeSelector = map[string]string{"disk": "ssd", "arch": "arm64"}
	p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "zone", Operator: corev1.NodeSelectorOpIn, Values: []string{"b", "a"}}, {Key: "gpu", Operator: corev1.NodeSelectorOpDoesNotExist}}},
		{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{"n1"}}}},
		{}}}}
	seen := api.FromPod(p, nil, api.Rules{})
	if seen.Refused != nil {
		t.Fatal(seen.Refused)
	}
	unreadable := p.DeepCopy()
	unreadable.Spec.NodeSelector = nil
	unreadable.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms = []corev1.NodeSelectorTerm{
		{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "cpus", Operator: corev1.NodeSelectorOpGt, Values: []string{"many"}}}}}
	c := &Core{rules: &rules{topology: topology.New()}}
	c.rules.topology.Step(time.Unix(1, 0), event.NodeSeen{Node: &api.Node{Name: "n",
		Labels: map[string]string{"zone": "a", "rack": "r", api.LabelHostname: "n", "fourth": "x"}}})
	for _, one := range []struct{ reasons, want string }{
		{"Insufficient cpu", ""},
		{api.NotOfNodeAffinity, "; nodeSelector: arch=arm64,disk=ssd; nodeAffinity: zone in (a,b) and !gpu, or metadata.name in (n1)"},
		{topology.Avoided.String(), ""},
		{topology.Skewed.String(), "; topologySpreadConstraints: by zone with maxSkew 1 and minDomains 5; topologySpreadConstraints: by rack with maxSkew 2"},
		{topology.NoDomain.String(), "; topologySpreadConstraints: by zone with maxSkew 1 and minDomains 5; topologySpreadConstraints: by rack with maxSkew 2"},
		{topology.Lonely.String(), "; podAffinity: any pod by zone"},
		{topology.Avoids.String(), "; podAntiAffinity: pods with app=" + strings.Repeat("x", 63) + " by kubernetes.io/hostname; podAntiAffinity: pods with app=web by row, a label that no node has; podAntiAffinity: no pod by row, a label that no node has"},
	} {
		why := api.NodeReasons{Nodes: 1, Counts: []api.ReasonCount{{Reason: one.reasons, Nodes: 1}}}
		if got := c.rules.constraintsIn(&explained{sum: why, class: seen.Class}); got != one.want {
			t.Errorf("%s:\ngot  %q\nwant %q", one.reasons, got, one.want)
		}
	}
	why := api.NodeReasons{Nodes: 1, Counts: []api.ReasonCount{{Reason: api.NotOfNodeAffinity, Nodes: 1}}}
	got := c.rules.constraintsIn(&explained{sum: why, class: api.FromPod(unreadable, nil, api.Rules{}).Class})
	if !strings.HasPrefix(got, `; nodeAffinity: cpus Gt ["many"], which cannot be read (`) {
		t.Errorf("a value that is no number: %q", got)
	}
	if got := c.rules.constraintsIn(&explained{sum: why, class: seen.Class,
		tied: api.ToOne}); got != "; nodeSelector: arch=arm64,disk=ssd" {
		t.Errorf("with the node affinity of volumes: %q", got)
	}
}
