package store

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"basalt.dev/basalt/bench/stage/local/localtest"
)

// TestMaintain: a snapshot is whole, forgetting leaves the intents alone and refuses a foreign etcd, and a space alarm goes away by
// defragmentation.
func TestMaintain(t *testing.T) {
	e := localtest.Etcd(t)
	m, err := Maintain(Options{Endpoints: e.Endpoints()})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx := t.Context()
	put := func(key, value string) {
		t.Helper()
		if _, err := m.client.Put(ctx, key, value); err != nil {
			t.Fatal(err)
		}
	}
	for _, key := range []string{"store", "table", "seq", "queues/a", "reservations/0001/g", "intents/x/0000000000000001"} {
		put(key, "anything")
	}
	var file bytes.Buffer
	saved, err := m.Save(ctx, &file)
	if err != nil || saved.Revision != 7 || saved.Bytes != int64(file.Len()) || saved.Bytes == 0 {
		t.Fatalf("%+v, %v", saved, err)
	}

	put("registry/pods/default/p", "")
	if _, err := m.Forget(ctx); !errors.Is(err, ErrNotOurs) {
		t.Fatalf("forget another's etcd: %v", err)
	}
	if counts, err := m.Keys(ctx); !errors.Is(err, ErrNotOurs) || counts["reservations"] != 1 {
		t.Fatalf("%v, %v", counts, err)
	}
	if _, err := m.client.Delete(ctx, "registry/pods/default/p"); err != nil {
		t.Fatal(err)
	}
	if counts, err := m.Forget(ctx); err != nil || counts["reservations"] != 1 || counts["intents"] != 1 {
		t.Fatalf("%v, %v", counts, err)
	}
	if counts, err := m.Keys(ctx); err != nil || fmt.Sprint(counts) != "map[intents:1 leader:0 queues:0 reservations:0 seq:0 shards:0 store:0 table:0]" {
		t.Fatalf("%v, %v", counts, err)
	}

	for i := range 60 {
		put("table", string(bytes.Repeat([]byte{byte(i)}, 500_000)))
	}
	members, err := m.Members(ctx)
	if err != nil || len(members) != 1 || members[0].Err != nil || !members[0].Leads {
		t.Fatalf("%+v, %v", members, err)
	}
	activate := &pb.AlarmRequest{Action: pb.AlarmRequest_ACTIVATE, MemberID: members[0].ID, Alarm: pb.AlarmType_NOSPACE}
	if _, err := pb.NewMaintenanceClient(m.client.ActiveConnection()).Alarm(ctx, activate); err != nil {
		t.Fatal(err)
	}
	if _, err := m.client.Put(ctx, "table", "x"); refusal(err) != RefusedNoSpace {
		t.Fatalf("with the alarm: %v", err)
	}
	var was, is StoreMember
	if err := m.Defragment(ctx, func(before, after StoreMember) { was, is = before, after }); err != nil {
		t.Fatal(err)
	}
	if len(was.Alarms) != 1 || is.Bytes > was.Bytes/4 {
		t.Errorf("%+v became %+v", was, is)
	}
	put("table", "x")
	if _, err := m.client.Get(ctx, "store", clientv3.WithRev(3)); err == nil {
		t.Error("history was not compacted")
	}
}
