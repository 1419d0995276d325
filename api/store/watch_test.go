package store_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/bench/local/localtest"
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
