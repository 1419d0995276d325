package store_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/wire"
)

// Leases have the seconds that were asked for, rounded up; a lease that runs out before its first use is replaced.
func TestLeases(t *testing.T) {
	e := startEtcd(t)
	p := newRPCProxy(t, e.Endpoints()[0])
	s, _ := openTold(t, store.Options{Endpoints: p.endpoints(), LeaderTTL: 2 * time.Second})
	ttl := func(key string) int64 {
		t.Helper()
		resp, err := e.raw.Get(t.Context(), key)
		if err != nil || len(resp.Kvs) != 1 {
			t.Fatalf("%s: %v %v", key, resp, err)
		}
		of, err := e.raw.TimeToLive(t.Context(), clientLease(resp.Kvs[0].Lease))
		if err != nil {
			t.Fatal(err)
		}
		return of.GrantedTTL
	}
	lead(t, s, "c1")
	if got := ttl("leader/coordinator"); got != 2 {
		t.Errorf("the leader's lease has %d s", got)
	}
	for name, c := range map[string]struct {
		ask  time.Duration
		want int64
	}{"short": {time.Millisecond, 2}, "whole": {3 * time.Second, 3}, "more": {3*time.Second + time.Millisecond, 4}} {
		if _, err := s.Register(t.Context(), &wire.ShardRecord{Incarnation: name}, c.ask); err != nil {
			t.Fatal(err)
		}
		if got := ttl("shards/" + name); got != c.want {
			t.Errorf("a lease of %s has %d s, want %d", c.ask, got, c.want)
		}
	}
	if _, err := s.Register(t.Context(), &wire.ShardRecord{Incarnation: "whole"}, 3*time.Second); err == nil || !strings.Contains(err.Error(), "registered already") {
		t.Errorf("registered twice: %v", err)
	}
	if _, err := s.Register(t.Context(), &wire.ShardRecord{}, 3*time.Second); err == nil {
		t.Error("registered without an incarnation")
	}
	// All leases are revoked before the first transaction of a shard that registers.
	revoked := false
	p.set(func(method string, _ []byte) error {
		if method != "Txn" || revoked {
			return nil
		}
		revoked = true
		all, err := e.raw.Leases(t.Context())
		if err != nil {
			return err
		}
		for _, l := range all.Leases {
			if _, err := e.raw.Revoke(t.Context(), l.ID); err != nil {
				return err
			}
		}
		return nil
	}, nil)
	x, err := s.Register(t.Context(), &wire.ShardRecord{Incarnation: "late"}, 3*time.Second)
	if err != nil || !revoked {
		t.Fatalf("revoked %t, %v", revoked, err)
	}
	select {
	case <-x.Done():
		t.Error("the session is over")
	default:
	}
	if got := ttl("shards/late"); got != 3 {
		t.Errorf("the second lease has %d s", got)
	}
}

// A registration or a campaign that the store can never take ends with the reason, and gives its lease back where it has one.
func TestLeasesThatAreNotUsed(t *testing.T) {
	e := startEtcd(t)
	p := newRPCProxy(t, e.Endpoints()[0])
	s, _ := openTold(t, store.Options{Endpoints: p.endpoints(), CheckEvery: time.Hour})
	p.set(func(method string, _ []byte) error {
		if method == "Txn" {
			return rpctypes.ErrGRPCTooManyOps
		}
		return nil
	}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := s.Campaign(ctx, &wire.LeaderRecord{Incarnation: "c1"}); !errors.Is(err, rpctypes.ErrTooManyOps) {
		t.Errorf("campaign: %v", err)
	}
	if all, err := e.raw.Leases(t.Context()); err != nil || len(all.Leases) != 0 {
		t.Errorf("the campaign left %v, %v", all, err)
	}
	if _, err := s.Register(ctx, &wire.ShardRecord{Incarnation: "s1"}, 3*time.Second); !errors.Is(err, rpctypes.ErrTooManyOps) {
		t.Errorf("register: %v", err)
	}
}

// A campaign that is given up while the store refuses says what the store said last.
func TestACampaignThatIsGivenUp(t *testing.T) {
	p := newRPCProxy(t, startEtcd(t).Endpoints()[0])
	s, _ := openTold(t, store.Options{Endpoints: p.endpoints(), CheckEvery: time.Hour})
	ctx, cancel := context.WithCancel(t.Context())
	tries := 0
	p.set(func(method string, _ []byte) error {
		if method != "Txn" {
			return nil
		}
		if tries++; tries == 2 {
			cancel()
		}
		return rpctypes.ErrGRPCNoSpace
	}, nil)
	if _, err := s.Campaign(ctx, &wire.LeaderRecord{Incarnation: "c1"}); !errors.Is(err, context.Canceled) || !errors.Is(err, rpctypes.ErrNoSpace) || !strings.Contains(err.Error(), `create "leader/coordinator"`) {
		t.Errorf("campaign: %v", err)
	}
}

func clientLease(id int64) clientv3.LeaseID { return clientv3.LeaseID(id) }
