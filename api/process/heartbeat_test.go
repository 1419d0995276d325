package process

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api/wire"
)

func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h Heartbeat
		time.Sleep(time.Hour)
		if err := h.Stuck(); err != nil {
			t.Errorf("a loop that was not started: %v", err)
		}
		h.Beat()
		time.Sleep(StuckAfter)
		if err := h.Stuck(); err != nil {
			t.Errorf("at the limit: %v", err)
		}
		time.Sleep(time.Second)
		if err := h.Stuck(); err == nil || err.Error() != "the main loop has not turned for 31s" {
			t.Errorf("past the limit: %v", err)
		}
		h.Beat()
		if err := h.Stuck(); err != nil {
			t.Errorf("after a turn: %v", err)
		}
		h.Stop()
		time.Sleep(time.Hour)
		if err := h.Stuck(); err != nil {
			t.Errorf("a loop that ended: %v", err)
		}
	})
}

// A process whose loop is stuck must not look alive to a peer that pings it.
func TestPingOfAStuckLoop(t *testing.T) {
	var stuck error
	i := inspect{process: &Process{Options: Options{Role: "shard"}, Incarnation: "i1"}, live: func() error { return stuck }}
	reply, err := i.Status(context.Background(), &wire.StatusRequest{Ping: true})
	if err != nil || reply.Incarnation != "i1" {
		t.Errorf("%v %v", reply, err)
	}
	stuck = errors.New("the main loop has not turned for 31s")
	if _, err = i.Status(context.Background(), &wire.StatusRequest{Ping: true}); status.Code(err) != codes.Unavailable {
		t.Errorf("a stuck loop: %v", err)
	}
}
