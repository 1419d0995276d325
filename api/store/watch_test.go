package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// A watch that breaks again and again reads again each time, says so, and tells no table twice.
func TestAWatchThatBreaks(t *testing.T) {
	e := startEtcd(t)
	p := newRPCProxy(t, e.Endpoints()[0])
	s, words := openTold(t, store.Options{Endpoints: p.endpoints()})
	term, _ := lead(t, s, "c1")
	commit(t, term, protocol.PutTable(tableOf(1, "s1")))
	var mu sync.Mutex
	broken := 0
	p.set(func(method string, _ []byte) error {
		if method != "Watch" {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		broken++
		return status.Error(codes.FailedPrecondition, "broken") // after which etcd's client does not try again by itself
	}, nil)
	var told []api.Epoch
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- s.WatchTable(ctx, func(t *api.Table) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, t.Epoch)
		})
	}()
	times := func(n int) {
		t.Helper()
		localtest.Wait(t, limit, "the watch to break", func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if broken < n {
				return errors.New("not yet")
			}
			return nil
		})
	}
	times(3)
	commit(t, term, protocol.PutTable(tableOf(2, "s1")))
	mu.Lock()
	n := broken
	mu.Unlock()
	times(n + 3)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the watch ended with %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(told) != 2 || told[0] != 1 || told[1] != 2 {
		t.Errorf("told the tables %v", told)
	}
	words.mu.Lock()
	defer words.mu.Unlock()
	if !strings.Contains(words.log.String(), "watch failed, reading again") {
		t.Errorf("the log does not say that a watch failed: %s", words.log.String())
	}
}

// A watch reads once and then listens: it tells each change once, and reads again only where a transaction has met a newer table.
func TestAWatchReadsOnce(t *testing.T) {
	p := newRPCProxy(t, startEtcd(t).Endpoints()[0])
	s, _ := openTold(t, store.Options{Endpoints: p.endpoints(), CheckEvery: 20 * time.Millisecond})
	term, _ := lead(t, s, "c1")
	x := join(t, s, "s1")
	commit(t, term, protocol.PutTable(tableOf(1, "s1")))
	var mu sync.Mutex
	reads, tables, shards := map[string]int{}, 0, 0
	p.set(func(method string, request []byte) error {
		mu.Lock()
		defer mu.Unlock()
		for _, key := range []string{"table", "shards/", "store"} {
			if method == "Range" && strings.Contains(string(request), key) {
				reads[key]++
			}
		}
		return nil
	}, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = s.WatchTable(ctx, func(*api.Table) { mu.Lock(); defer mu.Unlock(); tables++ })
	})
	wg.Go(func() {
		_ = s.WatchShards(ctx, func([]*wire.ShardRecord) { mu.Lock(); defer mu.Unlock(); shards++ })
	})
	defer wg.Wait()
	defer cancel()
	until := func(what string, ok func() bool) {
		t.Helper()
		localtest.Wait(t, limit, what, func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if !ok() {
				return errors.New("not yet")
			}
			return nil
		})
	}
	for epoch := api.Epoch(2); epoch <= 4; epoch++ {
		until("the table", func() bool { return tables == int(epoch)-1 })
		commit(t, term, protocol.PutTable(tableOf(epoch, "s1")))
	}
	until("the last table", func() bool { return tables == 4 && shards == 1 })
	if r, err := x.WriteIntents(t.Context(), 1, intents("p"), 1, nil); err != nil || r.Outcome != protocol.TableMoved {
		t.Fatalf("%+v %v", r, err)
	}
	mu.Lock()
	identities := reads["store"]
	mu.Unlock()
	until("the identity to be read 20 times", func() bool { return reads["store"] >= identities+20 })
	mu.Lock()
	defer mu.Unlock()
	if reads["table"] > 2 || reads["shards/"] != 1 || tables != 4 || shards != 1 {
		t.Errorf("%v reads, %d tables and %d lists of shards were told", reads, tables, shards)
	}
}
