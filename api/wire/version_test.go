package wire

import (
	"strings"
	"testing"
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

func TestSpokenSince(t *testing.T) {
	for since, m := range map[uint32]*Envelope{1: {Body: &Envelope_Reserve{}}, 2: {Body: &Envelope_Explain{}}, 3: {Body: &Envelope_HoldRequest{HoldRequest: &HoldRequest{Classes: []*PodClass{{}, {Repels: []byte{1}}}}}}} {
		if got := SpokenSince(m); got != since {
			t.Errorf("%T: %d", m.Body, got)
		}
	}
}
