package link

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	grpcpeer "google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api/wire"
)

// queued returns a peer without a stream, and functions that push so many messages and take a frame, as serials.
func queued(queue int, log *strings.Builder) (p *peer, push func(n int), take func() []uint64) {
	l := &Link{opts: Options{Queue: queue}, log: slog.New(slog.NewTextHandler(log, nil)), ctx: context.Background()}
	p = newPeer(l, "b", "address")
	pushed := uint64(0)
	push = func(n int) {
		for range n {
			pushed++
			p.push("", &wire.Envelope{Body: &wire.Envelope_Bind{Bind: &wire.Bind{Serial: pushed}}})
		}
	}
	take = func() (out []uint64) {
		for _, m := range p.next() {
			out = append(out, m.GetBind().GetSerial())
		}
		return out
	}
	return p, push, take
}

// What waits is the newest messages, as many as the queue may have, in order; each that gave way is counted, and a run of
// them is logged once.
func TestQueueKeepsTheNewest(t *testing.T) {
	var log strings.Builder
	p, push, take := queued(3, &log)
	check := func(what string, waiting int, dropped uint64, complaints int) {
		t.Helper()
		n, _ := p.waiting()
		d := p.describe()
		if n != waiting || d.Queued != waiting || d.Dropped != dropped || strings.Count(log.String(), "message queue to peer is full") != complaints {
			t.Errorf("%s: %d wait, described as %+v, want %d and %d dropped; log: %s", what, n, d, waiting, dropped, &log)
		}
	}
	check("at first", 0, 0, 0)
	if got := take(); got != nil {
		t.Errorf("an empty queue gave %v", got)
	}
	push(3)
	check("as many as it may have", 3, 0, 0)
	push(1)
	check("one more", 3, 1, 1)
	push(5)
	check("many more", 3, 6, 1)
	if got := take(); !slices.Equal(got, []uint64{7, 8, 9}) {
		t.Errorf("a frame of %v", got)
	}
	check("after a frame", 0, 6, 1)
	push(4)
	check("another run", 3, 7, 2)
	if got := take(); !slices.Equal(got, []uint64{11, 12, 13}) {
		t.Errorf("a frame of %v", got)
	}
}

// A frame has at most so many messages, and the rest stays in order. Messages that were sent take no room.
func TestFramesAreFull(t *testing.T) {
	var log strings.Builder
	p, push, take := queued(2*frameCount, &log)
	push(2 * frameCount)
	next := uint64(1)
	for _, want := range []int{frameCount, frameCount, frameCount, 0} {
		got := take()
		if len(got) != want {
			t.Fatalf("a frame of %d messages, want %d", len(got), want)
		}
		for _, serial := range got {
			if serial != next {
				t.Fatalf("message %d, want %d", serial, next)
			}
			next++
		}
		if next == frameCount+1 {
			push(frameCount)
		}
		if n, _ := p.waiting(); n != 3*frameCount-int(next-1) {
			t.Fatalf("%d wait after message %d", n, next-1)
		}
	}
	if p.dropped != 0 {
		t.Errorf("%d messages gave way", p.dropped)
	}
}

// A frame has at most so many bytes, unless one message has more.
func TestFramesHaveALimitInBytes(t *testing.T) {
	for _, c := range []struct{ size, want int }{
		{frameSize / 4, 3}, {frameSize/4 - 100, 4}, {frameSize/2 - 100, 2}, {frameSize / 2, 1}, {frameSize - 100, 1}, {frameSize, 1}, {3 * frameSize, 1},
	} {
		var log strings.Builder
		p, push, take := queued(100, &log)
		for range 10 {
			p.push("", &wire.Envelope{Body: &wire.Envelope_Bind{Bind: &wire.Bind{GangUid: strings.Repeat("x", c.size)}}})
		}
		push(1)
		if got := take(); len(got) != c.want {
			t.Errorf("%d messages of %d bytes in a frame, want %d", len(got), c.size, c.want)
		}
	}
}

// A queue that is full for ever takes no more memory with time, and one whose burst is over gives it back.
func TestQueueDoesNotGrow(t *testing.T) {
	var log strings.Builder
	const limit = 2000
	p, push, take := queued(limit, &log)
	push(100 * limit)
	if cap(p.queue) > 8*limit {
		t.Errorf("%d messages may wait, and there is room for %d", limit, cap(p.queue))
	}
	for _, m := range p.queue[:p.head] {
		if m != nil {
			t.Fatal("a message that gave way is kept")
		}
	}
	if got := take(); len(got) != limit || got[0] != 99*limit+1 {
		t.Fatalf("%d messages, the first is %d", len(got), got[0])
	}
	if cap(p.queue) > 1024 {
		t.Errorf("the queue is empty, and keeps room for %d", cap(p.queue))
	}
	push(10)
	take()
	if cap(p.queue) == 0 {
		t.Error("a small queue is made anew for each message")
	}
}

// In plain text, whoever is on the same machine is an operator.
func TestOperatorsInPlainText(t *testing.T) {
	address := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 1} }
	for _, c := range []struct {
		what          string
		remote, local net.Addr
		info          credentials.AuthInfo
		operator      bool
	}{
		{"loopback", address("127.0.0.1"), address("127.0.0.1"), plainInfo{}, true},
		{"loopback of IPv6", address("::1"), address("::1"), plainInfo{}, true},
		{"its own address", address("10.0.0.1"), address("10.0.0.1"), plainInfo{}, true},
		{"another machine", address("10.0.0.2"), address("10.0.0.1"), plainInfo{}, false},
		{"no address", nil, nil, plainInfo{}, false},
		{"no TCP", &net.UnixAddr{}, &net.UnixAddr{}, plainInfo{}, false},
		{"TLS without a certificate", address("127.0.0.1"), address("127.0.0.1"), credentials.TLSInfo{}, false},
		{"no credentials", address("127.0.0.1"), address("127.0.0.1"), nil, false},
	} {
		ctx := grpcpeer.NewContext(t.Context(), &grpcpeer.Peer{Addr: c.remote, LocalAddr: c.local, AuthInfo: c.info})
		if got := isOperator(ctx); got != c.operator {
			t.Errorf("%s: %t", c.what, got)
		}
	}
}

// TestReceiveAlwaysSaysWhy: a stream that is closed while an acknowledgement is on its way ends, too; whoever was
// sending at that moment waits for the reason.
func TestReceiveAlwaysSaysWhy(t *testing.T) {
	closed, closing := context.WithCancel(t.Context())
	closing()
	broken := errors.New("broken")
	for name, test := range map[string]struct {
		ctx  context.Context
		next func() (*wire.FrameAck, error)
		want error
	}{
		"closed with an acknowledgement on its way": {closed,
			func() (*wire.FrameAck, error) { return &wire.FrameAck{}, nil }, context.Canceled},
		"broken": {t.Context(), func() (*wire.FrameAck, error) { return nil, broken }, broken},
		"ended by the peer": {t.Context(), func() (*wire.FrameAck, error) { return nil, io.EOF },
			status.Error(codes.Unavailable, "the peer ended the stream")},
	} {
		if err := receive(test.ctx, test.next, make(chan uint64)); err == nil || err.Error() != test.want.Error() {
			t.Errorf("%s: %v, want %v", name, err, test.want)
		}
	}
}
