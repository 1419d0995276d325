package home

import (
	"testing"

	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// An intent that names a gang which its record does not have is passed by.
func TestIntentOfNoGang(t *testing.T) {
	s := newScript(t, Config{})
	s.run("coordinator 1")
	s.run("namespace ns")
	s.run("table 1 a:team b")
	s.step(event.StoreRead{Sequence: 1, Revision: 10, Intents: []event.StoredIntents{{Incarnation: "z", N: 1, ModRevision: 1,
		Record: &wire.IntentsRecord{Gangs: []*wire.GangRef{{Uid: "g"}}, Rows: []*wire.IntentRow{{PodUid: "p", Gang: 1}, {PodUid: "q", Gang: 7}}}}}})
	if out := s.run("pods 1"); len(out) != 1 {
		t.Errorf("taking over: %q", out)
	}
}
