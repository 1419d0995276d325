package link_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/certs/certstest"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/wire"
)

const limit = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// end is one process's link with all that came to it.
type end struct {
	*link.Link
	t    *testing.T
	name api.Incarnation

	mu       sync.Mutex
	got      []uint64 // serials of Bind messages, in order
	from     []api.Incarnation
	up, down []api.Incarnation
	blocked  chan struct{} // Deliver waits for it
}

func start(t *testing.T, name api.Incarnation, changes ...func(*end, *link.Options)) *end {
	t.Helper()
	e := &end{t: t, name: name}
	o := link.Options{
		Self: name, Listen: "127.0.0.1:0", Deliver: e.deliver,
		Up:   func(p api.Incarnation) { e.mu.Lock(); defer e.mu.Unlock(); e.up = append(e.up, p) },
		Down: func(p api.Incarnation) { e.mu.Lock(); defer e.mu.Unlock(); e.down = append(e.down, p) },
	}
	for _, change := range changes {
		if change != nil {
			change(e, &o)
		}
	}
	var err error
	if e.Link, err = link.New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

func (e *end) deliver(from api.Incarnation, m *wire.Envelope) {
	if e.blocked != nil {
		<-e.blocked
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, m.GetBind().GetSerial())
	e.from = append(e.from, from)
}

func (e *end) say(to *end, serial uint64) { e.Send(to.name, to.Address(), message(serial, 0)) }

func message(serial uint64, size int) *wire.Envelope {
	return &wire.Envelope{Body: &wire.Envelope_Bind{Bind: &wire.Bind{GangUid: strings.Repeat("x", size), Serial: serial}}}
}

func (e *end) wait(what string, ok func() bool) {
	e.t.Helper()
	deadline := time.Now().Add(limit)
	for {
		e.mu.Lock()
		done := ok()
		e.mu.Unlock()
		if done {
			return
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("%s waited for %s: got %d messages, peers %+v", e.name, what, len(e.got), e.Peers())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func (e *end) last() uint64 {
	if len(e.got) == 0 {
		return 0
	}
	return e.got[len(e.got)-1]
}

func TestMessagesArriveInOrder(t *testing.T) {
	a, b := start(t, "a", nil), start(t, "b", nil)
	const n = 20000 // more than a few frames, sent while frames are on their way
	for i := range uint64(n) {
		a.say(b, i+1)
		if i%10000 == 0 {
			b.wait("some", func() bool { return b.last() > 0 })
		}
	}
	b.wait("all", func() bool { return b.last() == n })
	for i, s := range b.got {
		if i > 0 && s <= b.got[i-1] {
			t.Fatalf("message %d after %d", s, b.got[i-1])
		}
		if b.from[i] != "a" {
			t.Fatalf("from %s", b.from[i])
		}
	}
	b.say(a, 7)
	a.wait("an answer", func() bool { return a.last() == 7 })
	a.wait("acknowledgements", func() bool {
		p := a.Peers()
		return len(p) == 1 && p[0].Up && p[0].Queued == 0 && p[0].Sent+p[0].Dropped == n
	})
}

func TestLargeMessages(t *testing.T) {
	a, b := start(t, "a", nil), start(t, "b", nil)
	for i := range uint64(8) { // 400 KB each: no three in a frame
		a.Send("b", b.Address(), message(i+1, 400<<10))
	}
	a.Send("b", b.Address(), message(9, link.MaxMessage-100))
	a.Send("b", b.Address(), message(10, link.MaxMessage+1)) // can only be dropped
	a.say(b, 11)
	b.wait("all", func() bool { return b.last() == 11 })
	if len(b.got) != 10 {
		t.Errorf("got %v", b.got)
	}
	if p := a.Peers(); p[0].Dropped != 1 {
		t.Errorf("%+v", p)
	}
}

// A message that cannot be sent is dropped and named in the log; all others arrive, in order and once.
func TestMessagesThatCannotBeSent(t *testing.T) {
	var log syncBuffer
	a := start(t, "a", func(_ *end, o *link.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
	b := start(t, "b", nil)
	var want []uint64
	for i := range uint64(300) {
		switch i % 100 {
		case 50:
			a.Send(b.name, b.Address(), &wire.Envelope{Body: &wire.Envelope_Commit{Commit: &wire.Commit{Gang: &wire.GangRef{Uid: "bad-gang"}, Pods: []*wire.PodRef{{Name: "\xff"}}}}})
		case 70:
			a.Send(b.name, b.Address(), &wire.Envelope{Body: &wire.Envelope_HoldReply{HoldReply: &wire.HoldReply{GangUid: "large-gang", Held: []*wire.Held{{PodUid: strings.Repeat("x", link.MaxMessage)}}}}})
		default:
			want = append(want, i+1)
			a.say(b, i+1)
		}
		if i == 120 {
			b.wait("some", func() bool { return b.last() > 0 })
		}
	}
	b.wait("all", func() bool { return b.last() == 300 })
	if !slices.Equal(b.got, want) {
		t.Errorf("%d messages arrived, want %d", len(b.got), len(want))
	}
	for _, s := range []string{"cannot encode message, dropping it", "message=commit gang=bad-gang", "message is too large, dropping it", "message=hold_reply gang=large-gang"} {
		if !strings.Contains(log.String(), s) {
			t.Errorf("%q is not in the log:\n%s", s, log.String())
		}
	}
	if p := a.Peers(); len(p) != 1 || p[0].Dropped != 6 {
		t.Errorf("peers %+v, want 6 messages dropped", p)
	}
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func TestFullQueueDropsTheOldest(t *testing.T) {
	block := make(chan struct{})
	a := start(t, "a", func(_ *end, o *link.Options) { o.Queue = 10 })
	b := start(t, "b", func(e *end, _ *link.Options) { e.blocked = block })
	release := sync.OnceFunc(func() { close(block) })
	defer release()
	const n = 5000
	for i := range uint64(n) { // while nothing is taken: some frames are on their way, ten messages wait
		a.say(b, i+1)
	}
	release()
	b.wait("the newest", func() bool { return b.last() == n })
	for i := range b.got[1:] {
		if b.got[i+1] <= b.got[i] {
			t.Fatalf("message %d after %d", b.got[i+1], b.got[i])
		}
	}
	a.wait("acknowledgements", func() bool { return a.Peers()[0].Sent+a.Peers()[0].Dropped == n })
	if p := a.Peers()[0]; p.Dropped == 0 || int(p.Sent) != len(b.got) {
		t.Errorf("%d arrived, %+v", len(b.got), p)
	}
}

func TestReconnects(t *testing.T) {
	a := start(t, "a", nil)
	b := start(t, "b", nil)
	address := b.Address()
	a.say(b, 1)
	b.wait("the first", func() bool { return b.last() == 1 })
	a.wait("up", func() bool { return len(a.up) == 1 })
	b.Close()
	a.wait("down", func() bool { return len(a.down) > 0 })
	a.say(b, 2)

	// Another incarnation on the same address takes nothing that was for its predecessor.
	c := start(t, "c", func(_ *end, o *link.Options) { o.Listen = address })
	a.Send("c", address, message(3, 0))
	c.wait("its own", func() bool { return c.last() == 3 })
	a.Send("b", address, message(4, 0))
	a.Send("c", address, message(5, 0))
	c.wait("its own", func() bool { return c.last() == 5 })
	if len(c.got) != 2 {
		t.Errorf("c got %v", c.got)
	}
	c.Close()

	// The same incarnation is back (as after a cut): what waited arrives.
	b2 := start(t, "b", func(_ *end, o *link.Options) { o.Listen = address })
	b2.wait("what waited", func() bool { return b2.last() == 4 })
	a.wait("up again", func() bool { return len(a.up) >= 3 })
	a.Forget("b")
	a.Forget("c")
	if p := a.Peers(); len(p) != 0 {
		t.Errorf("peers after forgetting: %+v", p)
	}
}

func TestPeerMovesToAnotherAddress(t *testing.T) {
	a, b := start(t, "a", nil), start(t, "b", nil)
	a.Send("b", "127.0.0.1:1", message(1, 0)) // nobody there
	a.wait("down", func() bool { return len(a.down) > 0 })
	a.Send("b", b.Address(), message(2, 0))
	b.wait("both", func() bool { return len(b.got) == 2 })
	a.Send("b", "", message(3, 0))
	b.wait("the third", func() bool { return b.last() == 3 })
	a.Send("unknown", "", message(1, 0))
	if p := a.Peers(); len(p) != 1 {
		t.Errorf("peers %+v", p)
	}
}

func TestIdlePeersAreClosed(t *testing.T) {
	a := start(t, "a", func(_ *end, o *link.Options) { o.Idle = 50 * time.Millisecond })
	b := start(t, "b", nil)
	for i := range uint64(3) {
		a.say(b, i+1)
		b.wait("the message", func() bool { return b.last() == i+1 })
		a.wait("the peer to be gone", func() bool { return len(a.Peers()) == 0 })
	}
	if len(a.down) != 0 {
		t.Errorf("idle was told as down: %v", a.down)
	}
}

func TestFramesThatAreNotRightEndTheStream(t *testing.T) {
	b := start(t, "b", nil)
	conn, err := link.Dial(b.Address(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	frame := func(from, to string, sequence uint64) *wire.Frame {
		return &wire.Frame{From: from, To: to, Sequence: sequence, Messages: []*wire.Envelope{message(sequence, 0), {}}}
	}
	tests := []struct {
		name   string
		frames []*wire.Frame
		code   codes.Code
		taken  int
	}{
		{"another incarnation", []*wire.Frame{frame("x", "b-before", 1)}, codes.FailedPrecondition, 0},
		{"gap", []*wire.Frame{frame("x", "b", 1), frame("x", "b", 3)}, codes.DataLoss, 1},
		{"repeat", []*wire.Frame{frame("x", "b", 1), frame("x", "b", 1)}, codes.DataLoss, 1},
		{"not from the start", []*wire.Frame{frame("x", "b", 2)}, codes.DataLoss, 0},
		{"another sender", []*wire.Frame{frame("x", "b", 1), frame("y", "b", 2)}, codes.InvalidArgument, 1},
		{"no sender", []*wire.Frame{frame("", "b", 1)}, codes.InvalidArgument, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b.mu.Lock()
			b.got = nil
			b.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			stream, err := wire.NewLinkClient(conn).Open(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range test.frames {
				if err := stream.Send(f); err != nil {
					break
				}
			}
			for err == nil {
				_, err = stream.Recv()
			}
			if status.Code(err) != test.code || len(b.got) != test.taken {
				t.Errorf("ended with %v after %d messages, want %s after %d", err, len(b.got), test.code, test.taken)
			}
		})
	}
	// A newer stream of a sender ends its older one.
	open := func() grpc.BidiStreamingClient[wire.Frame, wire.FrameAck] {
		stream, err := wire.NewLinkClient(conn).Open(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(frame("x", "b", 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		return stream
	}
	older := open()
	for range 3 { // that one ends does not make the others forget which is the newest
		newer := open()
		_ = older.Send(frame("x", "b", 2))
		if _, err := older.Recv(); status.Code(err) != codes.Aborted {
			t.Errorf("the older stream: %v", err)
		}
		older = newer
	}
	if err := older.CloseSend(); err != nil {
		t.Fatal(err)
	}
	b.wait("all streams to be forgotten", func() bool { return b.Inbound() == 0 })
}

// Up is told once for many acknowledgements, and Down at each try to connect: who asks the peer then, and hears that it is well,
// has to hear of it again when the peer is gone before it acknowledged anything.
func TestUpIsToldOnceAndDownAtEachTry(t *testing.T) {
	link.SetPatience(t, time.Hour)
	var log syncBuffer
	a := start(t, "a", func(_ *end, o *link.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	b := start(t, "b", nil)
	address := b.Address()
	for i := range uint64(5) {
		a.say(b, i+1)
		a.wait("the acknowledgement", func() bool { p := a.Peers(); return len(p) == 1 && p[0].Sent == i+1 })
	}
	b.Close()
	a.Send("b", address, message(6, 0))
	a.wait("some tries", func() bool { return strings.Count(log.String(), "stream to peer broke") >= 4 })
	a.wait("as many calls", func() bool { return len(a.down) >= 4 })
	b2 := start(t, "b", func(_ *end, o *link.Options) { o.Listen = address })
	for i := range uint64(5) {
		a.say(b2, i+7)
		b2.wait("the message", func() bool { return b2.last() == i+7 })
	}
	a.wait("up again", func() bool { return len(a.up) > 1 })
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.up) != 2 {
		t.Errorf("up was told %d times", len(a.up))
	}
}

// A peer that is busy for longer than a stream may be idle is not idle: what it has not acknowledged is not lost.
func TestBusyPeersAreNotIdle(t *testing.T) {
	link.SetPatience(t, time.Hour)
	const idle = 20 * time.Millisecond
	a := start(t, "a", func(_ *end, o *link.Options) { o.Idle = idle })
	block := make(chan struct{})
	b := start(t, "b", func(e *end, _ *link.Options) { e.blocked = block })
	time.AfterFunc(20*idle, func() { close(block) })
	a.say(b, 1)
	b.wait("the message", func() bool { return b.last() == 1 })
	a.wait("the peer to be idle", func() bool { return len(a.Peers()) == 0 })
	if len(b.got) != 1 || len(a.down) != 0 {
		t.Errorf("b got %v; down was told %d times", b.got, len(a.down))
	}
}

// acknowledging is a receiver that acknowledges what a test says.
type acknowledging struct {
	wire.UnimplementedLinkServer
	frames chan *wire.Frame
	acks   chan uint64
}

func (s acknowledging) Open(stream grpc.BidiStreamingServer[wire.Frame, wire.FrameAck]) error {
	go func() {
		for {
			select {
			case n := <-s.acks:
				_ = stream.Send(&wire.FrameAck{Sequence: n})
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for {
		frame, err := stream.Recv()
		if err != nil {
			return err
		}
		s.frames <- frame
	}
}

func startAcknowledging(t *testing.T) (s acknowledging, address string) {
	t.Helper()
	s = acknowledging{frames: make(chan *wire.Frame, 1000), acks: make(chan uint64)}
	return s, serveLink(t, nil, s)
}

// So many frames may wait for their acknowledgement; what comes then waits, and goes together.
func TestWindowOfFrames(t *testing.T) {
	link.SetPatience(t, time.Hour)
	a := start(t, "a", nil)
	s, address := startAcknowledging(t)
	next := func(sequence uint64, serials ...uint64) {
		t.Helper()
		frame := <-s.frames
		var got []uint64
		for _, m := range frame.Messages {
			got = append(got, m.GetBind().GetSerial())
		}
		if frame.Sequence != sequence || frame.From != "a" || frame.To != "b" || !slices.Equal(got, serials) {
			t.Fatalf("frame %d from %s to %s has %v, want frame %d with %v", frame.Sequence, frame.From, frame.To, got, sequence, serials)
		}
	}
	const window = 32
	for i := range uint64(window) {
		a.Send("b", address, message(i+1, 0))
		next(i+1, i+1)
	}
	for i := range uint64(8) {
		a.Send("b", address, message(window+i+1, 0))
	}
	if p := a.Peers(); p[0].Queued != 8 || p[0].Sent != 0 || p[0].Up {
		t.Errorf("%+v", p[0])
	}
	s.acks <- 1
	next(window+1, 33, 34, 35, 36, 37, 38, 39, 40)
	a.wait("the acknowledgement to be counted", func() bool { p := a.Peers()[0]; return p.Sent == 1 && p.Up && p.Queued == 0 })
	for i := range uint64(window) {
		s.acks <- i + 2
	}
	a.wait("all acknowledgements", func() bool { p := a.Peers()[0]; return p.Sent == 40 && p.Dropped == 0 })
}

// A receiver that leaves a frame without an acknowledgement for long is down, until the next acknowledgement. The stream goes on.
func TestReceiverThatDoesNotAcknowledge(t *testing.T) {
	link.SetPatience(t, 50*time.Millisecond)
	a := start(t, "a", nil)
	s, address := startAcknowledging(t)
	next := uint64(0)
	send := func() {
		t.Helper()
		next++
		a.Send("b", address, message(next, 0))
		if frame := <-s.frames; frame.Sequence != next {
			t.Fatalf("frame %d, want %d", frame.Sequence, next)
		}
	}
	send()
	a.wait("being down", func() bool { return len(a.down) > 0 && !a.Peers()[0].Up })
	s.acks <- 1
	a.wait("being up", func() bool { return len(a.up) == 1 && a.Peers()[0].Up })
	send()
	send()
	s.acks <- 2
	a.wait("the second frame", func() bool { return a.Peers()[0].Sent == 2 })
	a.wait("being down for the third one", func() bool { return !a.Peers()[0].Up })
	s.acks <- 3
	a.wait("being up again", func() bool { return a.Peers()[0].Up })
	acknowledged := time.Now()
	a.wait("a quiet while", func() bool { return time.Since(acknowledged) > 200*time.Millisecond })
	if p := a.Peers()[0]; !p.Up || p.Sent != 3 || p.Dropped != 0 {
		t.Errorf("nothing waits for an acknowledgement: %+v", p)
	}
}

// An acknowledgement that is not of the oldest frame ends the stream, and what was on its way counts as lost.
func TestWrongAcknowledgements(t *testing.T) {
	for what, acks := range map[string][]uint64{
		"of the future": {4}, "not of the oldest": {2}, "twice": {1, 1}, "of no frame": {0}, "when nothing is on its way": {1, 2, 3, 4},
	} {
		t.Run(what, func(t *testing.T) {
			link.SetPatience(t, time.Hour)
			a := start(t, "a", nil)
			s, address := startAcknowledging(t)
			for i := range uint64(3) {
				a.Send("b", address, message(i+1, 0))
				<-s.frames
			}
			for _, n := range acks {
				s.acks <- n
			}
			a.wait("being down", func() bool { return len(a.down) > 0 })
			sent := uint64(len(acks) - 1)
			if p := a.Peers()[0]; p.Sent != sent || p.Dropped != 3-sent || p.Up {
				t.Errorf("%+v, want %d sent", p, sent)
			}
			a.Send("b", address, message(9, 0))
			if frame := <-s.frames; frame.Sequence != 1 {
				t.Errorf("the next stream begins with frame %d", frame.Sequence)
			}
		})
	}
}

type inspect struct {
	wire.UnimplementedInspectServer
}

func (inspect) Status(context.Context, *wire.StatusRequest) (*wire.StatusReply, error) {
	return &wire.StatusReply{Name: "b-0"}, nil
}

func (inspect) Drain(context.Context, *wire.DrainRequest) (*wire.DrainReply, error) {
	return &wire.DrainReply{}, nil
}

// authority signs certificates into a folder.
type authority struct {
	*certstest.CA
	t   *testing.T
	dir string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{certstest.New(t, "ca"), t, t.TempDir()}
	a.write("ca.pem", a.PEM())
	return a
}

func (a *authority) write(name string, data []byte) string {
	a.t.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, data, 0o600); err != nil {
		a.t.Fatal(err)
	}
	return path
}

func (a *authority) sign(file string, until time.Time, names ...string) *link.TLS {
	a.t.Helper()
	cert, key := a.Leaf(until, names...)
	return &link.TLS{CertFile: a.write(file+".pem", cert), KeyFile: a.write(file+".key", key), CAFile: filepath.Join(a.dir, "ca.pem")}
}

func TestMutualTLS(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	later := time.Now().Add(time.Hour)
	with := func(tls *link.TLS) func(*end, *link.Options) {
		return func(_ *end, o *link.Options) {
			o.TLS = tls
			o.Register = func(r grpc.ServiceRegistrar) { wire.RegisterInspectServer(r, inspect{}) }
		}
	}
	a := start(t, "a", with(ca.sign("a", later, "basalt")))
	b := start(t, "b", with(ca.sign("b", later, "basalt")))
	a.say(b, 1)
	b.wait("a message over TLS", func() bool { return b.last() == 1 })

	ask := func(tls *link.TLS) error {
		conn, err := link.Dial(b.Address(), tls)
		if err != nil {
			return err
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		reply, err := wire.NewInspectClient(conn).Status(ctx, &wire.StatusRequest{})
		if err == nil && reply.Name != "b-0" {
			err = errors.New("wrong answer")
		}
		return err
	}
	if err := ask(ca.sign("status", later, "basalt")); err != nil {
		t.Errorf("the registered service: %v", err)
	}
	strangerWithOurCA := other.sign("x", later, "basalt")
	strangerWithOurCA.CAFile = filepath.Join(ca.dir, "ca.pem")
	for name, tls := range map[string]*link.TLS{
		"no TLS": nil, "another CA": other.sign("y", later, "basalt"), "a key of another CA": strangerWithOurCA,
		"another name": ca.sign("z", later, "example"), "expired": ca.sign("e", time.Now().Add(-time.Minute), "basalt"),
	} {
		if err := ask(tls); err == nil {
			t.Errorf("%s: got in", name)
		}
	}
	if _, err := link.New(link.Options{Self: "c", Listen: "127.0.0.1:0", Deliver: a.deliver, TLS: &link.TLS{CertFile: "nowhere", KeyFile: "nowhere", CAFile: "nowhere"}}); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("missing files: %v", err)
	}

	// Rotation while running: b's files are those of another CA now, so a cannot connect any more until it has them too.
	address := b.Address()
	copyFiles := func(file string) {
		rotated := other.sign(file, later, "basalt")
		for _, name := range []string{filepath.Base(rotated.CertFile), filepath.Base(rotated.KeyFile)} {
			data, err := os.ReadFile(filepath.Join(other.dir, name))
			if err == nil {
				err = os.WriteFile(filepath.Join(ca.dir, name), data, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	copyFiles("a")
	copyFiles("b")
	data, err := os.ReadFile(filepath.Join(other.dir, "ca.pem"))
	if err == nil {
		err = os.WriteFile(filepath.Join(ca.dir, "ca.pem"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := ask(other.sign("status", later, "basalt")); err != nil {
		t.Errorf("with the new CA: %v", err)
	}
	a.Forget("b")
	a.Send("b", address, message(2, 0))
	b.wait("a message with the new keys", func() bool { return b.last() == 2 })
}

func TestNewSaysWhatIsWrong(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	deliver := func(api.Incarnation, *wire.Envelope) {}
	for want, o := range map[string]link.Options{
		"Self":                {Deliver: deliver, Listen: "127.0.0.1:0"},
		l.Addr().String():     {Self: "a", Deliver: deliver, Listen: l.Addr().String()},
		"missing port":        {Self: "a", Deliver: deliver, Listen: "127.0.0.1"},
		"a certificate, a ke": {Self: "a", Deliver: deliver, Listen: "127.0.0.1:0", TLS: &link.TLS{}},
	} {
		if _, err := link.New(o); err == nil || !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("error %v does not name %q", err, want)
		}
	}
}
