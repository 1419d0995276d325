package observe_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/audit/follow"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/bench/stage/observe"
)

func TestMain(m *testing.M) { localtest.Run(m) }

// TestStore: what an auditor's watch of a real etcd showed is what the etcd holds, also after a gap in which keys of every kind
// were deleted.
func TestStore(t *testing.T) {
	etcd, err := clientv3.New(clientv3.Config{Endpoints: localtest.Etcd(t).Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer etcd.Close()
	commit := func(ops ...clientv3.Op) (revision int64) {
		t.Helper()
		r, err := etcd.Txn(t.Context()).Then(ops...).Commit()
		if err != nil {
			t.Fatal(err)
		}
		return r.Header.Revision
	}
	put := func(key string, m proto.Message) clientv3.Op {
		t.Helper()
		b, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		return clientv3.OpPut(key, string(b))
	}
	reserve := func(bucket, gang string) clientv3.Op {
		return put("reservations/"+bucket+"/"+gang, &wire.ReservationRecord{Gang: &wire.GangRef{Uid: gang, Queue: "of-" + bucket}})
	}

	var mu sync.Mutex
	store, last := &observe.Store{}, int64(0)
	watch := func(from int64) (stop func()) {
		// Nobody is at that address: only the control store is watched.
		a, err := follow.New(follow.Options{Etcd: etcd, Kube: &rest.Config{Host: "http://127.0.0.1:1"}, StartRevision: from, Tap: func(_ time.Time, e audit.Event) {
			if e, is := e.(audit.StoreRevision); is {
				mu.Lock()
				defer mu.Unlock()
				store.Observe(e)
				last = e.Revision
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- a.Run(ctx) }()
		return func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	holds := func(revision int64, want string) {
		t.Helper()
		localtest.Wait(t, time.Minute, fmt.Sprintf("revision %d", revision), func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if last < revision {
				return fmt.Errorf("at revision %d", last)
			}
			return nil
		})
		mu.Lock()
		defer mu.Unlock()
		if got := text(store); got != want {
			t.Errorf("the watch showed  %s\nwant              %s", got, want)
		}
		now, err := observe.Read(t.Context(), etcd)
		if err != nil {
			t.Fatal(err)
		}
		if got := text(now); got != want {
			t.Errorf("the store holds  %s\nwant             %s", got, want)
		}
	}

	stop := watch(1)
	led := commit(put("leader/coordinator", &wire.LeaderRecord{Name: "c0"}))
	commit(put("table", wire.FromTable(&api.Table{Epoch: 7, Members: []api.Member{{Name: "s", Incarnation: "s-1"}}})), put("queues/team.a", &wire.LimitsRecord{Queue: "team.a"}), put("queues/team.b", &wire.LimitsRecord{}))
	commit(reserve("0001", "g"), reserve("0001", "h"), put("intents/s/1", &wire.IntentsRecord{}), put("intents/s/2", &wire.IntentsRecord{}))
	holds(commit(clientv3.OpDelete("intents/s/1")), fmt.Sprintf("c0 in term %d, table 7, limits [team.a team.b], reservations [g of-0001 h of-0001], intents [s/2]", led))
	commit(reserve("0002", "g"), clientv3.OpDelete("reservations/0001/g"))
	commit(put("leader/coordinator", &wire.LeaderRecord{Name: "c0", Address: "elsewhere"}))
	holds(commit(clientv3.OpPut("queues/team.b", "not a record")), fmt.Sprintf("c0 in term %d, table 7, limits [team.a], reservations [g of-0002 h of-0001], intents [s/2]", led))
	stop()

	commit(clientv3.OpDelete("leader/coordinator"), clientv3.OpDelete("table"), clientv3.OpDelete("queues/team.a"), clientv3.OpDelete("reservations/0002/g"), clientv3.OpDelete("intents/s/2"))
	gap := commit(put("queues/team.c", &wire.LimitsRecord{}))
	if _, err := etcd.Compact(t.Context(), gap); err != nil {
		t.Fatal(err)
	}
	defer watch(last + 1)()
	holds(gap, " in term 0, table 0, limits [team.c], reservations [h of-0001], intents []")
	led = commit(put("leader/coordinator", &wire.LeaderRecord{Name: "c1"}))
	holds(led, fmt.Sprintf("c1 in term %d, table 0, limits [team.c], reservations [h of-0001], intents []", led))
}

func text(s *observe.Store) string {
	var gangs []string
	for _, uid := range slices.Sorted(maps.Keys(s.Reservations)) {
		gangs = append(gangs, uid+" "+s.Reservations[uid].GetGang().GetQueue())
	}
	epoch := api.Epoch(0)
	if s.Table != nil {
		epoch = s.Table.Epoch
	}
	return fmt.Sprintf("%s in term %d, table %d, limits %v, reservations %v, intents %v", s.Leader.GetName(), s.Term, epoch,
		slices.Sorted(maps.Keys(s.Limits)), gangs, slices.Sorted(maps.Keys(s.Intents)))
}
