package link_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/wire"
)

// registry stands for the control store: the public keys of incarnations.
type registry struct {
	mu   sync.Mutex
	keys map[api.Incarnation]ed25519.PublicKey
}

func (r *registry) keyOf(who api.Incarnation) (ed25519.PublicKey, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key, known := r.keys[who]
	return key, known
}

// proven gives an end a key, and enters it.
func (r *registry) proven(t *testing.T, name api.Incarnation) func(*end, *link.Options) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.keys[name] = public
	return func(_ *end, o *link.Options) { o.Key, o.KeyOf = private, r.keyOf }
}

func newRegistry() *registry { return &registry{keys: map[api.Incarnation]ed25519.PublicKey{}} }

// A process with a certificate of its own, which this one is, claims to be another.
func TestForgedIncarnationIsRefused(t *testing.T) {
	r := newRegistry()
	ca := newAuthority(t)
	later := time.Now().Add(time.Hour)
	with := func(name api.Incarnation) func(*end, *link.Options) {
		proven := r.proven(t, name)
		return func(e *end, o *link.Options) {
			proven(e, o)
			o.TLS = ca.sign(string(name), "basalt", later)
		}
	}
	a, b := start(t, "a", with("a")), start(t, "b", with("b"))
	a.say(b, 1)
	b.wait("the message of a", func() bool { return b.last() == 1 })

	forge := func(claim api.Incarnation, key ed25519.PrivateKey) *end {
		return start(t, claim, func(_ *end, o *link.Options) { o.Key, o.TLS = key, ca.sign("forger", "basalt", later) })
	}
	_, mine, _ := ed25519.GenerateKey(rand.Reader)
	for name, forger := range map[string]*end{"with its own key": forge("a", mine), "without a key": forge("a", nil)} {
		forger.say(b, 666)
		forger.wait("being refused "+name, func() bool { return len(forger.down) > 0 })
		forger.Close()
	}
	// The stream of the one that it claimed to be stands.
	a.say(b, 2)
	b.wait("the next message of a", func() bool { return b.last() == 2 })
	if len(b.got) != 2 {
		t.Errorf("b got %v", b.got)
	}
	if p := a.Peers(); len(p) != 1 || p[0].Dropped != 0 {
		t.Errorf("the stream of a was disturbed: %+v", p)
	}
}

// What a stream proves to one receiver proves nothing to another.
func TestProofIsForOneReceiver(t *testing.T) {
	r := newRegistry()
	var proof []byte
	b := start(t, "b", r.proven(t, "b"))
	c := start(t, "c", r.proven(t, "c"))
	a := start(t, "a", r.proven(t, "a"))
	// b is dishonest: it listens to what a says to it, and says it to c.
	spy := spyOn(t, &proof)
	a.Send("b2", spy, message(1, 0))
	a.wait("the frame to be taken", func() bool { return len(a.up) == 1 })
	send := func(to *end, from string, proof []byte) error {
		conn, err := link.Dial(to.Address(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		stream, err := wire.NewLinkClient(conn).Open(ctx)
		if err == nil {
			err = stream.Send(&wire.Frame{From: from, To: string(to.name), Sequence: 1, Proof: proof, Messages: []*wire.Envelope{message(9, 0)}})
		}
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	for _, to := range []*end{b, c} {
		if err := send(to, "a", proof); status.Code(err) != codes.PermissionDenied {
			t.Errorf("%s took a proof that was for b2: %v", to.name, err)
		}
	}
	if err := send(b, "nobody", proof); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), `"nobody"`) {
		t.Errorf("an incarnation that is not registered: %v", err)
	}
	if len(proof) == 0 || len(b.got)+len(c.got) != 0 {
		t.Errorf("proof of %d bytes, b got %v, c got %v", len(proof), b.got, c.got)
	}
}

type spy struct {
	wire.UnimplementedLinkServer
	proof *[]byte
}

func (s spy) Open(stream grpc.BidiStreamingServer[wire.Frame, wire.FrameAck]) error {
	frame, err := stream.Recv()
	if err != nil {
		return err
	}
	*s.proof = frame.Proof
	if err := stream.Send(&wire.FrameAck{Sequence: frame.Sequence}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func spyOn(t *testing.T, proof *[]byte) (address string) {
	t.Helper()
	server := grpc.NewServer()
	wire.RegisterLinkServer(server, spy{proof: proof})
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// A sender that the watch shows late is waited for.
func TestSenderThatIsRegisteredLate(t *testing.T) {
	r := newRegistry()
	b := start(t, "b", r.proven(t, "b"))
	as := r.proven(t, "a")
	r.mu.Lock()
	key := r.keys["a"]
	delete(r.keys, "a")
	r.mu.Unlock()
	a := start(t, "a", as)
	a.say(b, 1)
	r.mu.Lock()
	r.keys["a"] = key
	r.mu.Unlock()
	b.wait("the message", func() bool { return b.last() == 1 })
	// One whose version makes no keys is believed: its record says so.
	r.mu.Lock()
	r.keys["old"] = nil
	r.mu.Unlock()
	old := start(t, "old", nil)
	old.say(b, 2)
	b.wait("the message of an old version", func() bool { return b.last() == 2 })
}

// A message of a gigabyte: a well-behaved sender does not send it, a receiver does not take it in, and neither ends.
func TestMessageOfAGigabyte(t *testing.T) {
	a, b := start(t, "a", nil), start(t, "b", nil)
	gigabyte := make([]byte, 1<<30) // nobody looks into it, so it takes no memory
	a.Send("b", b.Address(), &wire.Envelope{Body: &wire.Envelope_Bind{Bind: &wire.Bind{GangUid: unsafe.String(&gigabyte[0], len(gigabyte))}}})
	a.say(b, 2)
	b.wait("the message after it", func() bool { return b.last() == 2 })
	if p := a.Peers(); p[0].Dropped != 1 {
		t.Errorf("%+v", p)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	// A sender that does not care for limits: its frame says that a gigabyte follows.
	conn, err := link.Dial(b.Address(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := wire.NewLinkClient(conn).Open(t.Context(), grpc.MaxCallSendMsgSize(2<<30), grpc.ForceCodec(raw{}))
	if err != nil {
		t.Fatal(err)
	}
	huge := bytes.Repeat([]byte{0x22}, 64<<20) // 64 MB of it are enough: the limit is 17 MB
	err = stream.SendMsg(huge)
	for err == nil {
		err = stream.RecvMsg(&[]byte{})
	}
	huge = nil
	if _, err := stream.Recv(); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("the huge frame ended the stream with %v, want ResourceExhausted", err)
	}
	_ = conn.Close() // what the sender still has of it is not the receiver's
	b.wait("the memory to be free again", func() bool {
		runtime.GC()
		runtime.ReadMemStats(&after)
		return after.HeapAlloc < before.HeapAlloc+32<<20
	})
	a.say(b, 3)
	b.wait("another message", func() bool { return b.last() == 3 })
}

// raw sends bytes as they are.
type raw struct{}

func (raw) Name() string                    { return "proto" }
func (raw) Marshal(v any) ([]byte, error)   { return v.([]byte), nil }
func (raw) Unmarshal(b []byte, v any) error { *v.(*[]byte) = b; return nil }

// Both ends say why they do not talk to each other.
func TestRefusalsAreLogged(t *testing.T) {
	ca := newAuthority(t)
	var server, client lines
	b := start(t, "b", func(_ *end, o *link.Options) {
		o.TLS = ca.sign("b", "basalt", time.Now().Add(time.Hour))
		o.TLS.Log = slog.New(slog.NewTextHandler(&server, nil))
	})
	for name, row := range map[string]struct {
		tls            *link.TLS
		server, client string
	}{
		"no certificate":    {nil, "first record does not look like a TLS handshake", ""},
		"of another CA":     {newAuthority(t).sign("x", "basalt", time.Now().Add(time.Hour)), "", "x509: certificate signed by unknown authority"},
		"of another system": {ca.sign("y", "example", time.Now().Add(time.Hour)), "certificate is valid for example, localhost, not basalt", "tls: "},
	} {
		client.reset()
		a := start(t, "a", func(_ *end, o *link.Options) {
			o.TLS, o.Logger = row.tls, slog.New(slog.NewTextHandler(&client, nil))
		})
		a.say(b, 1)
		a.wait("being refused: "+name, func() bool {
			return strings.Contains(server.String(), row.server) && strings.Contains(client.String(), row.client)
		})
		a.Close()
	}
	if len(b.got) != 0 {
		t.Errorf("b got %v", b.got)
	}
	// Our own certificate that is over is found out at the start.
	expired := ca.sign("e", "basalt", time.Now().Add(-time.Minute))
	if _, err := link.New(link.Options{Self: "e", Listen: "127.0.0.1:0", Deliver: b.deliver, TLS: expired}); err == nil || !strings.Contains(err.Error(), "expired at") {
		t.Errorf("an expired certificate: %v", err)
	}
}

type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *lines) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Reset()
}
