package server_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/process"
	"basalt.dev/basalt/api/serve"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/bench/stage/memory"
	coordinator "basalt.dev/basalt/coordinator/server"
)

// standIn stands in for a shard: it is registered, has a stream, and answers pings as long as a test wants.
type standIn struct {
	wire.UnimplementedInspectServer
	t       *testing.T
	name    api.Incarnation
	store   *store.Store
	session *store.Session
	key     ed25519.PrivateKey
	address string
	link    *link.Link
	pings   atomic.Int64
	mute    atomic.Bool
	heard   atomic.Int64 // messages
}

func (s *standIn) Status(_ context.Context, r *wire.StatusRequest) (*wire.StatusReply, error) {
	s.pings.Add(1)
	if !r.Ping || s.mute.Load() {
		return nil, status.Error(codes.Unavailable, "test")
	}
	return &wire.StatusReply{Incarnation: string(s.name)}, nil
}

func (s *standIn) listen() {
	s.t.Helper()
	localtest.Wait(s.t, time.Minute, "the port", func(context.Context) (err error) {
		s.link, err = link.New(link.Options{Self: s.name, Listen: s.address, Key: s.key, Logger: slog.New(slog.DiscardHandler),
			Deliver:  func(api.Incarnation, *wire.Envelope) { s.heard.Add(1) },
			Register: func(r grpc.ServiceRegistrar) { wire.RegisterInspectServer(r, s) }})
		return err
	})
	s.address = s.link.Address()
}

// hears waits for a message that the coordinator sends after a change.
func (s *standIn) hears(what string, change func()) {
	s.t.Helper()
	before := s.heard.Load()
	change()
	localtest.Wait(s.t, time.Minute, what, func(context.Context) error {
		if s.heard.Load() == before {
			return errors.New("no message")
		}
		return nil
	})
}

func startStandIn(t *testing.T, e *local.Etcd, name string) *standIn {
	t.Helper()
	s := &standIn{t: t, name: api.Incarnation(name), address: "127.0.0.1:0"}
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	s.key = private
	s.listen()
	t.Cleanup(func() { s.link.Close() })
	if s.store, err = store.Open(t.Context(), store.Options{Endpoints: e.Endpoints(), Logger: slog.New(slog.DiscardHandler)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.store.Close() })
	if s.session, err = s.store.Register(t.Context(), &wire.ShardRecord{Incarnation: name, Name: name, Address: s.address, Key: public, Protocol: wire.Protocol}, 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	return s
}

// leader is a running coordinator.
type leader struct {
	process.Options
	stop  context.CancelFunc
	ended chan error
}

func startLeader(t *testing.T, e *local.Etcd, api *memory.Server, name string) *leader {
	t.Helper()
	clients, err := api.Clients("basalt-test", false)
	if err != nil {
		t.Fatal(err)
	}
	ports, err := local.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	listen, gossip := fmt.Sprint("127.0.0.1:", ports[0]), fmt.Sprint("127.0.0.1:", ports[1])
	l := &leader{ended: make(chan error, 1), Options: process.Options{
		Role: "coordinator", Name: name, Kube: clients, Registry: serve.Registry(), Etcd: e.Endpoints(), Listen: listen, Address: listen,
		Gossip: gossip, GossipAddress: gossip, GossipLabel: "test", Log: slog.New(slog.DiscardHandler),
	}}
	var ctx context.Context
	ctx, l.stop = context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); l.ended <- coordinator.Run(ctx, coordinator.Options{Process: l.Options}) }()
	t.Cleanup(func() { l.stop(); <-done })
	return l
}

func (l *leader) status(t *testing.T) (reply *wire.StatusReply) {
	t.Helper()
	conn, err := link.Dial(l.Address, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	localtest.Wait(t, time.Minute, "the status of "+l.Name, func(ctx context.Context) error {
		reply, err = wire.NewInspectClient(conn).Status(ctx, &wire.StatusRequest{})
		return err
	})
	return reply
}

// gauge reads a metric, its counters and gauges added up.
func (l *leader) gauge(t *testing.T, name string) (total float64) {
	t.Helper()
	families, err := l.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == name {
				total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return total
}

// A coordinator from its start to its end. A shard whose stream breaks is called: one that answers keeps what it owns, one
// that does not loses it long before its lease is over, and gets a part again when it answers again. A leader that is stopped
// gives the key back, and the standby leads.
func TestCoordinatorFromStartToStop(t *testing.T) {
	e, server := localtest.Etcd(t), memory.New(memory.Options{Seed: 1})
	made := 0
	makeQueues := func() { // of each shard
		t.Helper()
		for range 40 {
			made++
			if _, err := server.Create("queues", &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("q", made)}}); err != nil {
				t.Fatal(err)
			}
		}
	}
	makeQueues()
	a, b := startStandIn(t, e, "a"), startStandIn(t, e, "b")
	var mu sync.Mutex
	var table *api.Table
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		_ = a.store.WatchTable(ctx, func(now *api.Table) { mu.Lock(); defer mu.Unlock(); table = now })
	})
	owns := func(what string, right func(a, b int) bool) {
		t.Helper()
		localtest.Wait(t, time.Minute, what, func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if table == nil || !right(table.Owned("a"), table.Owned("b")) {
				return fmt.Errorf("a owns %d, b %d", table.Owned("a"), table.Owned("b"))
			}
			return nil
		})
	}
	both := func(a, b int) bool { return a > 0 && b > 0 && a+b == api.Buckets }

	first := startLeader(t, e, server, "coordinator-0")
	owns("a part for each", both)
	localtest.Wait(t, time.Minute, "the leader's status", func(context.Context) error {
		if s := first.status(t); s.Role != "coordinator" || s.Name != "coordinator-0" || s.QueuesTotal < 40 || s.TableEpoch == 0 {
			return fmt.Errorf("it is %v", s)
		}
		return nil
	})
	a.hears("a message", makeQueues)
	b.hears("a message", makeQueues)

	// Its stream breaks, and it answers. On a slow machine it may be gone for too long before it listens again.
	for try := 0; ; try++ {
		mu.Lock()
		epoch := table.Epoch
		mu.Unlock()
		called := a.pings.Load()
		a.link.Close()
		a.listen()
		localtest.Wait(t, time.Minute, "a to be called", func(context.Context) error {
			if a.pings.Load() == called {
				return errors.New("it was not")
			}
			return nil
		})
		owns("a part for each", both)
		a.hears("a message on a new stream", makeQueues)
		mu.Lock()
		kept := table.Epoch == epoch
		mu.Unlock()
		if kept {
			break
		} else if try == 5 {
			t.Fatal("a shard that answers loses its buckets")
		}
	}

	// It is gone, or listens and answers nothing; its lease goes on.
	for _, gone := range []bool{true, false} {
		called := a.pings.Load()
		a.mute.Store(true)
		a.link.Close()
		if !gone {
			a.listen()
		}
		owns("all for the other one", func(a, b int) bool { return a == 0 && b == api.Buckets })
		if n := a.pings.Load() - called; !gone && n == 0 {
			t.Error("it was not called")
		}
		if called := a.pings.Load(); !gone { // it is called now and then, and stays down while it does not answer
			localtest.Wait(t, time.Minute, "a to be called again", func(context.Context) error {
				if a.pings.Load() < called+2 {
					return errors.New("it was not")
				}
				return nil
			})
			owns("a to have nothing", func(a, b int) bool { return a == 0 && b == api.Buckets })
		}
		if all, err := b.store.Shards(t.Context()); err != nil || len(all) != 2 {
			t.Errorf("registered are %v, %v", all, err)
		}
		a.mute.Store(false)
		if gone {
			a.listen()
		}
		owns("a part for each again", both)
		a.hears("a message after that", makeQueues) // so that a stream is up
	}

	leads := func(what string, l *leader) {
		t.Helper()
		localtest.Wait(t, time.Minute, what, func(context.Context) error {
			if l.gauge(t, "basalt_coordinator_leading") != 1 {
				return errors.New("it does not")
			}
			return nil
		})
	}
	leads("the first to lead", first)
	second := startLeader(t, e, server, "coordinator-1")
	localtest.Wait(t, time.Minute, "a leader and a standby", func(context.Context) error {
		one, other := first.status(t), second.status(t)
		if one.Role > other.Role {
			one, other = other, one
		}
		if one.Role != "coordinator" || other.Role != "standby" || one.Incarnation == "" || other.Incarnation == "" || one.Name == other.Name {
			return fmt.Errorf("they are %v and %v", one, other)
		}
		return nil
	})
	if first.gauge(t, "basalt_coordinator_commit_duration_seconds") == 0 || first.gauge(t, "basalt_coordinator_messages_total") == 0 {
		t.Error("no transaction or no message was counted")
	}
	first.stop()
	if err := <-first.ended; err != nil {
		t.Errorf("it was stopped, and ended with %v", err)
	}
	leads("the standby to lead", second)
	for _, l := range []*leader{first, second} {
		if l.gauge(t, "basalt_coordinator_broken_invariants_total") != 0 {
			t.Errorf("%s counted broken invariants", l.Name)
		}
	}
	if first.gauge(t, "basalt_coordinator_leading") != 0 {
		t.Error("the one that was stopped says that it leads")
	}

	// A shard gives up its record, and the new leader gives its buckets to the other one.
	if err := b.session.Deregister(t.Context()); err != nil {
		t.Fatal(err)
	}
	owns("all for the one that is left", func(a, b int) bool { return a == api.Buckets && b == 0 })
}
