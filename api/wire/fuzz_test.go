package wire

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
)

// A message that can be read is written the same again, and its amounts are read exactly or refused.
func FuzzEnvelope(f *testing.F) {
	amounts := FromResources(api.FromMap(map[string]int64{"cpu": 1000, "memory": 1 << 30}))
	gang := &GangRef{Uid: "u", Namespace: "n", Name: "g", Queue: "a.b"}
	for _, m := range []*Envelope{
		{}, {Body: &Envelope_Reserve{Reserve: &Reserve{Gang: gang, Attempt: 1, Serial: 2, Demand: amounts, Rank: &Rank{Priority: 3, Order: 4, GangUid: "u"}}}},
		{Body: &Envelope_HoldRequest{HoldRequest: &HoldRequest{Gang: gang, Classes: []*PodClass{{Requests: amounts}}, Pods: []*PodWant{{PodUid: "p"}}}}},
		{Body: &Envelope_Commit{Commit: &Commit{Gang: gang, Classes: []*PodClass{{Requests: amounts}}, Pods: []*PodRef{{Uid: "p", Node: "n"}}}}},
		{Body: &Envelope_QueueUsages{QueueUsages: &QueueUsages{Queues: []*QueueUsage{{Queue: "a", Charged: amounts}}}}},
	} {
		b, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m := &Envelope{}
		if proto.Unmarshal(b, m) != nil {
			return
		}
		out, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		again := &Envelope{}
		if err := proto.Unmarshal(out, again); err != nil || !proto.Equal(m, again) {
			t.Fatalf("%v became %v, %v", m, again, err)
		}
		for _, v := range [][]*Amount{m.GetReserve().GetDemand(), m.GetReserve().GetBound(), m.GetGranted().GetDemand()} {
			vector(t, v)
		}
		ref := ToRank(m.GetReserve().GetRank())
		if !proto.Equal(FromRank(ref), FromRank(ToRank(FromRank(ref)))) {
			t.Fatal("a rank changed on the way")
		}
	})
}

func vector(t *testing.T, v []*Amount) {
	r, err := ToResources(v)
	if err != nil {
		return
	}
	for i, a := range FromResources(r) {
		if a.Resource != v[i].GetResource() || a.Value != v[i].GetValue() {
			t.Fatalf("%v became %v", v, r)
		}
		if i > 0 && r[i-1].Resource >= a.Resource {
			t.Fatalf("not sorted: %v", r)
		}
	}
}

// A table that is taken names an owner for each bucket or nobody, and is written the same again.
func FuzzTable(f *testing.F) {
	table := &api.Table{Epoch: 3, Members: []api.Member{{Incarnation: "a", Name: "a-0"}, {Incarnation: "b", Name: "b-0"}}}
	for b := range table.Owners {
		table.Owners[b], table.Changed[b] = uint16(b%2), api.Epoch(b%3)
	}
	table.Owners[5] = api.Nobody
	b, err := proto.Marshal(FromTable(table))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := &TableRecord{}
		if proto.Unmarshal(b, r) != nil {
			return
		}
		table, err := ToTable(r, 7)
		if err != nil {
			return
		}
		for b := range api.BucketID(api.Buckets) {
			if who := table.Owner(b); who != "" && !table.Has(who) {
				t.Fatalf("bucket %d belongs to %q, which is no member", b, who)
			}
		}
		again, err := ToTable(FromTable(table), 7)
		if err != nil || !proto.Equal(FromTable(table), FromTable(again)) {
			t.Fatalf("a table changed on the way, %v", err)
		}
	})
}
