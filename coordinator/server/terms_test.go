package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/process"
	"basalt.dev/basalt/api/serve"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local/localtest"
	"basalt.dev/basalt/coordinator/leadership"
)

// newCandidate returns a candidate with a store of its own, which is opened at the endpoints.
func newCandidate(t *testing.T, name string, log *strings.Builder, endpoints []string) *candidate {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(log, nil))
	s, err := store.Open(t.Context(), store.Options{Endpoints: endpoints, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	r := serve.Registry()
	return &candidate{process: &process.Process{Store: s, Log: logger, Incarnation: api.Incarnation(name), Registry: r}, metrics: newMetrics(r)}
}

// termsFailed is the metric, by reason.
func termsFailed(t *testing.T, r *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "basalt_coordinator_terms_failed_total" {
			for _, m := range f.Metric {
				out[m.Label[0].GetValue()] = m.Counter.GetValue()
			}
		}
	}
	return out
}

// A term that ends by an error gives the leader key back: the standby leads, and then the first one again. A key that is not
// given back is kept alive for as long as its process lives.
func TestAFailedTermIsResigned(t *testing.T) {
	e := localtest.Etcd(t)
	for _, c := range []struct {
		name   string
		err    func(context.Context, *store.Term) error
		says   string
		reason string
	}{
		{"a record that the store does not take", func(ctx context.Context, held *store.Term) error {
			if _, err := held.Load(ctx); err != nil {
				return err
			}
			_, err := held.Commit(ctx, []protocol.Change{protocol.PutReservation(&wire.ReservationRecord{
				Gang: &wire.GangRef{Uid: "the-gang", Queue: "q", Name: strings.Repeat("x", protocol.MaxRecord)}})})
			return err
		}, "/the-gang", "record"},
		{"the state cannot be read", func(context.Context, *store.Term) error { return errors.New("load the state: away") }, "away", "other"},
		{"somebody else wrote seq", func(context.Context, *store.Term) error { return fmt.Errorf("%w: foreign", protocol.ErrFenced) }, "foreign", "lease"},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			failed := make(chan int, 100) // whose term did
			var ended []chan error
			var log [2]strings.Builder
			var all [2]*candidate
			for i := range 2 {
				name := fmt.Sprint("coordinator-", i)
				all[i] = newCandidate(t, name, &log[i], e.Endpoints())
				done := make(chan error, 1)
				ended = append(ended, done)
				go func() {
					done <- all[i].terms(ctx, &wire.LeaderRecord{Incarnation: name, Name: name, Address: "a:1"}, func(held *store.Term) error {
						err := c.err(ctx, held)
						failed <- i
						return err
					})
				}()
			}
			// Who wins while the other one pauses depends on the machine; each must lead, and the first one once more.
			first := -1
			for led := [2]bool{}; ; {
				select {
				case i := <-failed:
					if first < 0 {
						first = i
					}
					led[i] = true
					if led[0] && led[1] && i == first {
						break
					}
					continue
				case <-time.After(20 * time.Second):
					t.Fatal("a leader key was not given back: nobody else leads")
				}
				break
			}
			cancel()
			for i := range 2 {
				if err := <-ended[i]; err != nil {
					t.Error(err)
				}
				if !strings.Contains(log[i].String(), c.says) {
					t.Errorf("the log does not say %q: %s", c.says, &log[i])
				}
				if failed := termsFailed(t, all[i].process.Registry); failed[c.reason] < 1 || len(failed) != 1 {
					t.Errorf("the metric says %v", failed)
				}
			}
		})
	}
}

// An error that comes back in each term does not become a hot loop.
func TestTermsThatFailAtOnceAreFew(t *testing.T) {
	e := localtest.Etcd(t)
	var log strings.Builder
	c := newCandidate(t, "c", &log, e.Endpoints())
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	terms := 0
	err := c.terms(ctx, &wire.LeaderRecord{Incarnation: "c", Name: "c", Address: "a:1"}, func(*store.Term) error {
		terms++
		return errors.New("again")
	})
	if err != nil || terms < 3 || terms > 4 { // after 0, 0.25, 0.75 and 1.75 s
		t.Errorf("%d terms: %v", terms, err)
	}
}

// A process is live while its loop turns, and while it does not keep the leader key alive without a term.
func TestLiveness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &candidate{}
		is := func(what string, live bool) {
			t.Helper()
			if err := c.live(); (err == nil) != live {
				t.Errorf("%s: %v", what, err)
			}
		}
		is("a standby", true)
		lease := make(chan struct{})
		c.office.do(func(m *leadership.Terms) {
			c.office.lease = lease
			m.Won(time.Now(), 7, false)
		})
		time.Sleep(leadership.LoadWithin + leadership.IdleAtMost)
		is("a term that never begins", false)

		c.office.do((*leadership.Terms).Runs)
		c.beat.Beat()
		time.Sleep(20 * time.Second)
		is("a busy term", true)
		time.Sleep(20 * time.Second)
		is("a term whose loop is stuck", false)
		c.beat.Beat()
		is("a term whose loop turns again", true)

		c.beat.Stop()
		c.office.do(func(m *leadership.Terms) { m.Ended(time.Now(), leadership.End{}) })
		is("a term that is over", true)
		time.Sleep(leadership.IdleAtMost)
		is("the leader key is kept alive without a term", false)
		close(lease)
		is("a standby again", true)
	})
}
