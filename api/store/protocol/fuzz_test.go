package protocol

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Whatever the control store holds under whatever key: it is read, and then it is what its key says, or it is called corrupt.
func FuzzRecord(f *testing.F) {
	amounts := wire.FromResources(api.FromMap(map[string]int64{"cpu": 1000}))
	for key, m := range map[string]proto.Message{
		"queues/a.b": &wire.LimitsRecord{Queue: "a.b", Capability: amounts},
		"reservations/" + api.BucketOf("a.b").Label() + "/u": &wire.ReservationRecord{Gang: &wire.GangRef{Uid: "u", Queue: "a.b"}, Demand: amounts, State: wire.ReservationState_RESERVATION_OPEN},
		"intents/inc/0000000000000001":                       &wire.IntentsRecord{Gangs: []*wire.GangRef{{Uid: "u"}}, Demands: []*wire.Demand{{Amounts: amounts}}, Rows: []*wire.IntentRow{{PodUid: "p", Node: "n"}}},
		"shards/inc":                                         &wire.ShardRecord{Incarnation: "inc"},
		"leader/coordinator":                                 &wire.LeaderRecord{Incarnation: "inc"},
		"table":                                              wire.FromTable(&api.Table{Epoch: 1}),
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(key, b)
		f.Add(key, []byte("\xff\xff"))
	}
	k := Keys("")
	f.Fuzz(func(t *testing.T, key string, value []byte) {
		kv := KV{Key: key, Value: Value{Bytes: value}, Mod: 5}
		judge := func(what string, err error, record proto.Message, present bool) {
			switch {
			case err != nil && !errors.Is(err, ErrUnreadable):
				t.Fatalf("%s %q: an error of another kind: %v", what, key, err)
			case (err == nil) != present:
				t.Fatalf("%s %q: record %v, %v", what, key, record, err)
			}
			if err == nil {
				if v, err := Encode("key", record); err == nil {
					again := record.ProtoReflect().New().Interface()
					if err := proto.Unmarshal(v.Bytes, again); err != nil || !proto.Equal(record, again) {
						t.Fatalf("%s %q changed on the way: %v", what, key, err)
					}
				}
			}
		}
		l, err := k.DecodeLimits(kv)
		judge("limits", err, l.Record, l.Record != nil)
		r, err := k.DecodeReservation(kv)
		judge("reservation", err, r.Record, r.Record != nil)
		if err == nil && k.Reservation(r.Bucket, r.GangUID) != key {
			t.Fatalf("reservation of %q has the key %q", key, k.Reservation(r.Bucket, r.GangUID))
		}
		in, err := k.DecodeIntents(kv)
		judge("intents", err, in.Record, in.Record != nil)
		if err == nil {
			for _, row := range in.Record.Rows {
				_, _ = in.Record.Gangs[row.Gang], in.Record.Demands[row.Demand]
			}
		}
		sh, err := k.DecodeShard(kv)
		judge("shard", err, sh, sh != nil)
		le, err := DecodeLeader(kv)
		judge("leader", err, le, le != nil)
		ta, err := DecodeTable(kv)
		if err != nil && !errors.Is(err, ErrUnreadable) || (err == nil) != (ta != nil) {
			t.Fatalf("table: %v", err)
		}
	})
}
