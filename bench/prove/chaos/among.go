package chaos

import (
	"math/rand/v2"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// zones is how many zones the nodes are in: one after another, so that each shard has nodes of most.
const zones = 4

// labelAmong is the label by which pods select each other.
const labelAmong = "chaos.basalt.dev/among"

// shared is the value of labelAmong of gangs that heed each other's pods.
const shared = "all"

// among is what the pods of a gang require of each other, and of all others with the same value of the label. Each such gang can be placed
// once the others have ended.
type among struct {
	what     string
	value    string // of labelAmong, "" for a gang whose pods nothing is required of
	topology string
	skew     int32
	together bool
	most     int // pods of the gang, 0 for any number
}

// drawAmong lets a third of the gangs require something.
func drawAmong(r *rand.Rand, own string) among {
	const host, zone = v1.LabelHostname, v1.LabelTopologyZone
	either := []string{own, own, shared}[r.IntN(3)]
	switch r.IntN(24) { // nodes may be away: there are enough all the same
	case 0:
		return among{what: "apart by host", value: own, topology: host, most: nodeCount / 2}
	case 1:
		return among{what: "apart by host", value: shared, topology: host, most: 4}
	case 2:
		return among{what: "apart by zone", value: own, topology: zone, most: zones - 1}
	case 3:
		return among{what: "apart by zone", value: shared, topology: zone, most: 2}
	case 4:
		return among{what: "together in a zone", value: own, topology: zone, together: true}
	case 5:
		return among{what: "together in a zone", value: shared + "-together", topology: zone, together: true}
	case 6:
		return among{what: "spread over zones", value: either, topology: zone, skew: 1}
	case 7:
		return among{what: "spread over zones", value: either, topology: zone, skew: 5}
	case 8:
		return among{what: "spread over hosts", value: own, topology: host, skew: 1}
	case 9:
		return among{what: "heeded by others", value: shared, most: 4}
	default:
		return among{}
	}
}

// apply gives a pod its label and what it requires.
func (m among) apply(p *v1.Pod) {
	if m.value == "" {
		return
	}
	p.Labels[labelAmong] = m.value
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{labelAmong: m.value}}
	terms := []v1.PodAffinityTerm{{TopologyKey: m.topology, LabelSelector: selector}}
	if m.value != shared && m.topology == v1.LabelTopologyZone { // the same namespace, by a label that each has
		terms[0].NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{v1.LabelMetadataName: p.Namespace}}
	}
	switch {
	case m.topology == "":
	case m.skew > 0:
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{{MaxSkew: m.skew, TopologyKey: m.topology, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: selector}}
	case m.together:
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	default:
		p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}}
	}
}
