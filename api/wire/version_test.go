package wire

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestBeside(t *testing.T) {
	for _, row := range []struct {
		protocol uint32
		ok       bool
	}{{0, Protocol <= 2}, {Protocol - 1, true}, {Protocol, true}, {Protocol + 1, true}, {Protocol + 2, false}, {Protocol + 100, false}} {
		for _, r := range []Announced{&ShardRecord{Name: "other", Protocol: row.protocol}, &LeaderRecord{Name: "other", Protocol: row.protocol}} {
			if err := Beside(r); (err == nil) != row.ok || err != nil && !strings.HasPrefix(err.Error(), "other ") {
				t.Errorf("beside version %d: %v", row.protocol, err)
			}
		}
	}
}

// repels are anti-affinity terms of a class.
func repels(topologyKey string) []byte {
	b, err := (&v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{{TopologyKey: topologyKey}}}).Marshal()
	if err != nil {
		panic(err)
	}
	return b
}

func TestSpokenSince(t *testing.T) {
	for since, m := range map[uint32]*Envelope{1: {Body: &Envelope_Reserve{}}, 2: {Body: &Envelope_Explain{}}, 4: {Body: &Envelope_Commit{Commit: &Commit{Classes: []*PodClass{{Repels: repels("zone")}}}}}, 3: {Body: &Envelope_HoldRequest{HoldRequest: &HoldRequest{Classes: []*PodClass{{}, {Repels: repels("kubernetes.io/hostname")}}}}}} {
		if got := SpokenSince(m); got != since {
			t.Errorf("%T: %d", m.Body, got)
		}
	}
}
