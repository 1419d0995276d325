package chaos

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/process"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/bench/stage/local/network"
)

var historyTree = quotaTree{"top": 4000, "top.a": 3000, "top.b": 2500, "top.a.x": 2000, "top.a.y": 2500}

// A history that no sequential tree explains must be refused, or the check of real ones says nothing.
func TestWrongHistoriesAreRefused(t *testing.T) {
	at := func(from, to int64, c call) porcupine.Operation {
		return porcupine.Operation{Input: c, Call: from, Return: to}
	}
	reserve := func(gang, queue string, demand int64) call {
		return call{verb: reserved, gang: gang, queue: queue, demand: demand}
	}
	for _, test := range []struct {
		name  string
		calls []porcupine.Operation
		legal bool
	}{
		{"two that fit one after another", []porcupine.Operation{
			at(0, 10, reserve("g", "top.a.x", 2000)), at(20, 30, call{verb: released, gang: "g"}), at(40, 50, reserve("h", "top.a.x", 2000))}, true},
		{"two at once where one fits", []porcupine.Operation{
			at(0, 10, reserve("g", "top.a.x", 2000)), at(5, 15, reserve("h", "top.a.x", 2000))}, false},
		{"a grandparent is charged", []porcupine.Operation{
			at(0, 10, reserve("g", "top.a.x", 2000)), at(11, 15, reserve("h", "top.b", 2500))}, false},
		{"a release and a grant may overlap", []porcupine.Operation{
			at(0, 10, reserve("g", "top.a.x", 2000)), at(20, 40, call{verb: released, gang: "g"}), at(25, 30, reserve("h", "top.a.x", 2000))}, true},
		{"a grant before the release was asked for", []porcupine.Operation{
			at(0, 10, reserve("g", "top.a.x", 2000)), at(20, 24, reserve("h", "top.a.x", 2000)), at(25, 40, call{verb: released, gang: "g"})}, false},
		{"denied though there is room", []porcupine.Operation{
			at(0, 10, call{verb: denied, gang: "g", queue: "top.b", demand: 100})}, false},
		{"denied for what may have been granted", []porcupine.Operation{
			at(0, 30, call{verb: perhaps, gang: "g", queue: "top.b", demand: 2500}), at(10, 20, call{verb: denied, gang: "h", queue: "top.b", demand: 100})}, true},
		{"granted, and a later read does not see it", []porcupine.Operation{
			at(0, 10, reserve("g", "top.b", 100)), at(20, 30, call{verb: observed})}, false},
		{"a gang is charged twice", []porcupine.Operation{
			at(0, 10, reserve("g", "top.b", 100)), at(20, 30, reserve("g", "top.b", 100))}, false},
	} {
		if got := porcupine.CheckOperations(historyTree.model(), test.calls); got != test.legal {
			t.Errorf("%s: %v", test.name, got)
		}
	}
}

// asker is a shard without cores: it is registered, the table gives it buckets, and it asks for gangs as a home shard would.
type asker struct {
	process *process.Process
	mu      sync.Mutex
	table   *api.Table
	answers map[string]chan *wire.Envelope // by gang
}

func (a *asker) deliver(_ api.Incarnation, m *wire.Envelope) {
	uid := ""
	switch body := m.GetBody().(type) {
	case *wire.Envelope_Granted:
		uid = body.Granted.GetGangUid()
	case *wire.Envelope_Denied:
		uid = body.Denied.GetGangUid()
	case *wire.Envelope_Unreserved:
		uid = body.Unreserved.GetGangUid()
	}
	a.mu.Lock()
	c := a.answers[uid]
	a.mu.Unlock()
	if c != nil {
		select {
		case c <- m:
		default: // it is asked again
		}
	}
}

func (a *asker) owns(queue string) (epoch uint64, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return uint64(a.tableEpoch()), a.table.OwnerOf(queue) == a.process.Incarnation
}

func (a *asker) tableEpoch() api.Epoch {
	if a.table == nil {
		return 0
	}
	return a.table.Epoch
}

// history collects calls with their times.
type history struct {
	began time.Time
	mu    sync.Mutex
	calls []porcupine.Operation
}

func (h *history) now() int64 { return int64(time.Since(h.began)) }

func (h *history) add(client int, from, to int64, c call) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, porcupine.Operation{ClientId: client, Input: c, Call: from, Return: to})
}

func (h *history) count() map[verb]int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := map[verb]int{}
	for _, o := range h.calls {
		n[o.Input.(call).verb]++
	}
	return n
}

// one asks for one gang, keeps it for a moment, and releases it. It ends early only when ctx does.
func (a *asker) one(ctx context.Context, client int, h *history, uid, queue string, demand int64, patience, keep time.Duration) {
	answers := make(chan *wire.Envelope, 64)
	a.mu.Lock()
	a.answers[uid] = answers
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		delete(a.answers, uid)
	}()
	ref := &wire.GangRef{Uid: uid, Namespace: "default", Name: uid, Queue: queue}
	// say repeats a message until an answer satisfies, or the limit is over.
	say := func(limit time.Duration, message func(epoch uint64) *wire.Envelope, enough func(*wire.Envelope) bool) bool {
		over := time.After(limit)
		again := time.NewTicker(400 * time.Millisecond)
		defer again.Stop()
		for {
			epoch, _ := a.owns(queue)
			a.process.SendCoordinator(message(epoch))
			for waiting := true; waiting; {
				select {
				case m := <-answers:
					if enough(m) {
						return true
					}
				case <-again.C:
					waiting = false
				case <-over:
					return false
				case <-ctx.Done():
					return false
				}
			}
		}
	}
	asked := h.now()
	heard := false // the first denial; later ones repeat its words
	granted := say(patience, func(epoch uint64) *wire.Envelope {
		return &wire.Envelope{Body: &wire.Envelope_Reserve{Reserve: &wire.Reserve{Gang: ref, Attempt: 1, Serial: 1, TableEpoch: epoch,
			Demand: []*wire.Amount{{Resource: "cpu", Value: demand}}, SinceUnixMs: time.Now().UnixMilli()}}}
	}, func(m *wire.Envelope) bool {
		if d := m.GetDenied(); d.GetReason() == wire.DenyReason_DENY_QUOTA && !heard {
			heard = true
			h.add(client, asked, h.now(), call{verb: denied, gang: uid, queue: queue, demand: demand})
		}
		return m.GetGranted() != nil
	})
	if granted {
		h.add(client, asked, h.now(), call{verb: reserved, gang: uid, queue: queue, demand: demand})
		wait.For(ctx, keep)
	}
	releasing := h.now()
	if !say(time.Hour, func(epoch uint64) *wire.Envelope {
		return &wire.Envelope{Body: &wire.Envelope_Unreserve{Unreserve: &wire.Unreserve{Gang: ref, Attempt: 1, Serial: 2, TableEpoch: epoch}}}
	}, func(m *wire.Envelope) bool { return m.GetUnreserved().GetSerial() == 2 }) {
		return
	}
	done := h.now()
	if !granted {
		h.add(client, asked, done, call{verb: perhaps, gang: uid, queue: queue, demand: demand})
	}
	h.add(client, releasing, done, call{verb: released, gang: uid})
}

// readAll reads all reservations at once.
func readAll(ctx context.Context, etcd *clientv3.Client, h *history, client int) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	from := h.now()
	got, err := etcd.Get(ctx, "reservations/", clientv3.WithPrefix())
	if err != nil {
		return err
	}
	seen := charges{}
	for _, kv := range got.Kvs {
		var r wire.ReservationRecord
		if err := proto.Unmarshal(kv.Value, &r); err != nil {
			return err
		}
		seen[r.GetGang().GetUid()] = charge{r.GetGang().GetQueue(), r.GetDemand()[0].GetValue()}
	}
	h.add(client, from, h.now(), call{verb: observed, seen: seen.String()})
	return nil
}

// TestHistoriesOfReservations lets several home shards reserve and release at once at real coordinators over a real control
// store. Coordinators are killed, and the store's answers to them are lost. Then it asks porcupine for an order in which a
// sequential tree would have answered the same.
//
//	BASALT_HISTORY_FOR=2m   how long; each 5 s are one history, for the search is exponential
func TestHistoriesOfReservations(t *testing.T) {
	rounds := 1
	if text := os.Getenv("BASALT_HISTORY_FOR"); text != "" {
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal("BASALT_HISTORY_FOR:", err)
		}
		rounds = max(1, int(d/(5*time.Second)))
	}
	program := localtest.Basalt(t)
	c := localtest.Cluster(t, local.Options{Basalt: program})
	r := &run{Options: Options{Cluster: c, Log: t.Logf, Coordinators: 2}, view: newView(), begin: time.Now()}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var err error
	if r.etcd, err = clientv3.New(clientv3.Config{Endpoints: c.ControlStore()}); err != nil {
		t.Fatal(err)
	}
	defer r.etcd.Close()
	if r.kube, err = kube.ConnectConfig(c.Config(local.Admin), "basalt-history"); err != nil {
		t.Fatal(err)
	}
	for queue, cpu := range historyTree {
		q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: queue}}
		q.Spec.Capability = v1.ResourceList{"cpu": *resource.NewMilliQuantity(cpu, resource.DecimalSI)}
		if err := r.kube.Basalt.Post().Resource("queues").Body(q).Do(ctx).Error(); err != nil {
			t.Fatal(err)
		}
	}
	if r.crashes, err = newCrashes(t.TempDir()); err != nil {
		t.Fatal(err)
	}
	defer r.stopMembers()
	for i := range r.Coordinators {
		if err := r.addMember(fmt.Sprintf("coordinator-%d", i), "coordinator", local.Coordinator); err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range r.members {
		wg.Go(func() { m.keep(ctx) })
	}
	var askers []*asker
	for i := range 3 {
		askers = append(askers, startAsker(t, ctx, &wg, c, fmt.Sprintf("shard-%d", i)))
	}
	leaves := []string{"top.a.x", "top.a.y", "top.b"}
	localtest.Wait(t, 3*time.Minute, "every queue to have a home", func(context.Context) error {
		for _, q := range leaves {
			homes := 0
			for _, a := range askers {
				if _, ok := a.owns(q); ok {
					homes++
				}
			}
			if homes != 1 {
				return fmt.Errorf("%s has %d homes", q, homes)
			}
		}
		return nil
	})
	for round := range rounds {
		r.oneHistory(t, ctx, askers, leaves, uint64(round))
	}
}

func (r *run) oneHistory(t *testing.T, ctx context.Context, askers []*asker, leaves []string, seed uint64) {
	h := &history{began: time.Now()}
	random := rand.New(rand.NewPCG(seed, 0x415))
	asking, stop := context.WithTimeout(ctx, 2*time.Minute)
	defer stop()
	var wg sync.WaitGroup
	wg.Go(func() { // long enough to show something, however slow the machine is
		for wait.For(asking, time.Second) {
			if n := h.count(); time.Since(h.began) > 4*time.Second && n[reserved] >= 5 && n[denied]+n[perhaps] >= 1 {
				stop()
			}
		}
	})
	client := 0
	for i, a := range askers {
		for range 2 {
			client++
			me, random := client, rand.New(rand.NewPCG(random.Uint64(), uint64(i)))
			wg.Go(func() {
				for n := 0; asking.Err() == nil; n++ {
					queue := leaves[random.IntN(len(leaves))]
					demand := []int64{500, 1000, 1500, 2000}[random.IntN(4)]
					patience, keep := between(random, 50*time.Millisecond, 1500*time.Millisecond), between(random, 0, 300*time.Millisecond)
					if _, ok := a.owns(queue); !ok {
						wait.For(asking, 10*time.Millisecond)
						continue
					}
					a.one(ctx, me, h, fmt.Sprintf("h%d-c%d-%d", seed, me, n), queue, demand, patience, keep)
				}
			})
		}
	}
	wg.Go(func() {
		for asking.Err() == nil {
			_ = readAll(ctx, r.etcd, h, 0)
			wait.For(asking, 150*time.Millisecond)
		}
	})
	kills, drops := 0, 0
	for wait.For(asking, between(random, 500*time.Millisecond, 1200*time.Millisecond)) {
		m := r.members[random.IntN(len(r.members))]
		if b := m.running(); b != nil && random.IntN(3) == 0 {
			kills++
			b.Kill()
			continue
		}
		drops++
		m.etcd.each(func(p *proxy) { p.set(mode{what: "drop"}) })
		wait.For(asking, between(random, 50*time.Millisecond, 400*time.Millisecond))
		m.etcd.each(func(p *proxy) { p.set(mode{}) })
	}
	wg.Wait()
	localtest.Wait(t, time.Minute, "the last read", func(ctx context.Context) error { return readAll(ctx, r.etcd, h, 0) })
	counts := h.count()
	result := porcupine.CheckOperationsTimeout(historyTree.model(), h.calls, 2*time.Minute)
	t.Logf("history %d: %d calls: %d granted, %d perhaps, %d denied, %d released, %d read; %d kills, %d times answers were lost: %s", seed, len(h.calls),
		counts[reserved], counts[perhaps], counts[denied], counts[released], counts[observed], kills, drops, result)
	if result == porcupine.Illegal {
		for _, o := range h.calls {
			t.Logf("%d %9.3f %9.3f %s", o.ClientId, time.Duration(o.Call).Seconds(), time.Duration(o.Return).Seconds(), o.Input.(call))
		}
		t.Errorf("no order of a sequential quota tree explains this history")
	}
	if counts[reserved] == 0 || counts[denied]+counts[perhaps] == 0 {
		t.Error("the history shows nothing: either nothing was granted, or everything was")
	}
}

func startAsker(t *testing.T, ctx context.Context, wg *sync.WaitGroup, c *local.Cluster, name string) *asker {
	t.Helper()
	kubeconfig, err := c.Kubeconfig(local.Shard)
	if err != nil {
		t.Fatal(err)
	}
	listen, err := freeAddress(network.Place{}, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	gossip, err := freeAddress(network.Place{}, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	a := &asker{answers: map[string]chan *wire.Envelope{}}
	started := make(chan struct{})
	a.process, err = process.Start(ctx, process.Options{Role: "shard", Name: name, Kubeconfig: kubeconfig, Etcd: c.ControlStore(),
		Listen: listen, Address: listen, Gossip: gossip, GossipAddress: gossip, Log: slog.New(slog.DiscardHandler)},
		process.Hooks{Deliver: func(from api.Incarnation, m *wire.Envelope) { <-started; a.deliver(from, m) },
			Status: func(context.Context) (*wire.StatusReply, error) { return &wire.StatusReply{}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	close(started)
	t.Cleanup(a.process.Close)
	session, err := a.process.Store.Register(ctx, &wire.ShardRecord{Protocol: wire.Protocol, Incarnation: string(a.process.Incarnation), Name: name, Address: a.process.Address,
		Gossip: a.process.GossipAddress, Key: a.process.PublicKey()}, 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	wg.Go(func() {
		select {
		case <-session.Done():
			t.Errorf("%s lost its session", name)
		case <-ctx.Done():
		}
	})
	a.process.Follow(ctx, wg, nil, nil)
	wg.Go(func() {
		_ = a.process.Store.WatchTable(ctx, func(table *api.Table) {
			a.mu.Lock()
			a.table = table
			a.mu.Unlock()
		})
	})
	wg.Go(func() { // a new store is refilled: there is nothing to tell
		for wait.For(ctx, 300*time.Millisecond) {
			a.mu.Lock()
			epoch := a.tableEpoch()
			a.mu.Unlock()
			a.process.SendCoordinator(&wire.Envelope{Body: &wire.Envelope_Refilled{Refilled: &wire.Refilled{TableEpoch: uint64(epoch)}}})
		}
	})
	return a
}
