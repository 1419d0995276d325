package store_test

import (
	"fmt"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/wire"
)

// BenchmarkRead measures what the reads of a term and of a takeover take, the latter by a shard of 64, with some
// numbers of reservations, in 1,000 queues and in one.
func BenchmarkRead(b *testing.B) {
	for _, queues := range []int{1000, 1} {
		for _, reservations := range []int{10_000, 100_000, 400_000, 1_000_000} {
			b.Run(fmt.Sprintf("reservations=%d/queues=%d", reservations, queues), func(b *testing.B) {
				benchmarkRead(b, reservations, queues)
			})
		}
	}
}

func benchmarkRead(b *testing.B, reservations, queues int) {
	e := startEtcd(b)
	for done := 0; done < reservations; {
		var puts []clientv3.Op
		for range min(120, reservations-done) {
			queue := fmt.Sprintf("q%d", done%queues)
			uid := fmt.Sprintf("%08x-0000-4000-8000-%012x", uint32(done)*2654435761, done)
			r := reservation(queue, uid, 10)
			for range 10 {
				r.Pods = append(r.Pods, api.PodID(fmt.Sprint(uid, len(r.Pods))))
			}
			value, err := proto.Marshal(r)
			if err != nil {
				b.Fatal(err)
			}
			puts = append(puts, clientv3.OpPut(reservationKey(queue, uid), string(value)))
			done++
		}
		if _, err := e.raw.Txn(b.Context()).Then(puts...).Commit(); err != nil {
			b.Fatal(err)
		}
	}
	s := e.openWith(store.Options{Endpoints: e.Endpoints()})
	var own []api.BucketID
	for bucket := api.BucketID(7); bucket < api.Buckets; bucket += 64 {
		own = append(own, bucket)
	}
	b.Run("term", func(b *testing.B) {
		for b.Loop() {
			term, err := s.Campaign(b.Context(), &wire.LeaderRecord{Incarnation: "c"})
			if err != nil {
				b.Fatal(err)
			}
			state, err := term.Load(b.Context())
			if err != nil || len(state.Reservations) != reservations || len(state.Corrupt) > 0 {
				b.Fatalf("%d reservations, %v", len(state.Reservations), err)
			}
			if err := term.Resign(b.Context()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("takeover", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.ReadForTakeover(b.Context(), 0, own); err != nil {
				b.Fatal(err)
			}
		}
	})
}
