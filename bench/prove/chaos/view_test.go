package chaos

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/wire"
)

// TestViewForgetsWhoLed: a snapshot comes where revisions were missed. Who led before and is not in it leads no more, and faults
// meant for the leader must not hit another for the rest of the attack.
func TestViewForgetsWhoLed(t *testing.T) {
	v := newView()
	led := func(key, name string, revision int64) audit.StoreChange {
		value, err := proto.Marshal(&wire.LeaderRecord{Name: name})
		if err != nil {
			t.Fatal(err)
		}
		return audit.StoreChange{Key: key, Value: value, CreateRevision: revision, ModRevision: revision}
	}
	v.observe(time.Time{}, audit.StoreRevision{Revision: 5, Changes: []audit.StoreChange{led("leader/a", "coordinator-0", 5)}})
	v.observe(time.Time{}, audit.StoreRevision{Revision: 90, Snapshot: true, Changes: []audit.StoreChange{led("leader/b", "coordinator-1", 80)}})
	if name := v.leads(); name != "coordinator-1" {
		t.Errorf("%s leads, the snapshot names coordinator-1 alone", name)
	}
}
