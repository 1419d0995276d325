package coordinator

import (
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/lab/loop"
	"basalt.dev/basalt/coordinator/owners"
)

// No message, from a shard or from nobody, ends a coordinator, and none makes it charge beyond a capability.
func FuzzMessage(f *testing.F) {
	amounts := []*wire.Amount{{Resource: "cpu", Value: 3}}
	gang := &wire.GangRef{Uid: "u", Queue: "good"}
	for _, m := range []*wire.Envelope{
		{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{Gang: gang, Attempt: 1, Serial: 1, TableEpoch: 1, Demand: amounts}}},
		{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{Gang: gang, Attempt: 1, Serial: 1, TableEpoch: 1}}},
		{Body: &wire.Envelope_Close{Close: &wire.Close{Gang: gang, Attempt: 1, Serial: 1, TableEpoch: 1}}},
		{Body: &wire.Envelope_Refilled{Refilled: &wire.Refilled{TableEpoch: 1}}},
		{Body: &wire.Envelope_Summary{Summary: &wire.Summary{}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, b)
	}
	f.Fuzz(func(t *testing.T, one, two []byte) {
		now := time.UnixMilli(1_000_000)
		table, _ := owners.Assign(nil, []owners.Shard{{Incarnation: "s1", Name: "s1"}}, false, 0)
		table.Revision = 3
		c := New(Config{}, Elected{Now: now, Term: 1, Table: table, Shards: []*wire.ShardRecord{{Incarnation: "s1", Name: "s1"}},
			Limits: []StoredLimits{{Key: "good", Record: &wire.LimitsRecord{Queue: "good", Uid: "u", ResourceVersion: "x", Capability: []*wire.Amount{{Resource: "cpu", Value: 5}}}}}})
		c.Step(now, QueueSeen{Name: "good", UID: "u", ResourceVersion: "x", Capability: api.FromMap(map[string]int64{"cpu": 5})})
		c.Step(now, QueuesSynced{})
		forced := false
		revision := int64(10)
		carry := func(o Output) []Event {
			txn, is := o.(Txn)
			if !is {
				return nil
			}
			for _, op := range txn.Ops {
				if put, ok := op.(PutReservation); ok {
					forced = forced || put.Record.Forced || len(put.Record.GetDemand()) > 0 && put.Record.Gang == nil
				}
			}
			revision++
			return []Event{TxnDone{ID: txn.ID, Revision: revision}}
		}
		drain := func() { loop.Drain(c, now, carry) }
		for _, b := range [][]byte{one, two, one} {
			m := &wire.Envelope{}
			if proto.Unmarshal(b, m) != nil {
				return
			}
			if len(m.GetReserve().GetBound()) > 0 {
				forced = true // bound pods are charged whatever the limits say
			}
			for _, from := range []api.Incarnation{"s1", "stranger", ""} {
				c.Step(now, Message{From: from, Body: m})
				drain()
			}
			for range 3 {
				now = now.Add(time.Second)
				c.Step(now, Tick{})
				drain()
			}
		}
		c.tree.recompute()
		if q := c.tree.byPath["good"]; q != nil && !forced && q.charged.get("cpu").amount() > 5 {
			t.Fatalf("%d of 5 are charged", q.charged.get("cpu").amount())
		}
	})
}
