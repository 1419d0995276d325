package link_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
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
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/certs"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/wire"
)

// registry stands for the control store: the records of incarnations.
type registry struct {
	mu      sync.Mutex
	records map[api.Incarnation]link.Record
}

func (r *registry) keyOf(who api.Incarnation) (link.Record, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	record, known := r.records[who]
	return record, known
}

// proven gives an end a key, and enters it.
func (r *registry) proven(t *testing.T, name api.Incarnation) func(*end, *link.Options) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records[name] = link.Record{Key: public, Role: certs.NameShard}
	return func(_ *end, o *link.Options) { o.Key, o.KeyOf = private, r.keyOf }
}

func newRegistry() *registry { return &registry{records: map[api.Incarnation]link.Record{}} }

// A process with a certificate of its own, which this one is, claims to be another.
func TestForgedIncarnationIsRefused(t *testing.T) {
	r := newRegistry()
	ca := newAuthority(t)
	later := time.Now().Add(time.Hour)
	with := func(name api.Incarnation) func(*end, *link.Options) {
		proven := r.proven(t, name)
		return func(e *end, o *link.Options) {
			proven(e, o)
			o.TLS = ca.sign(string(name), later, certs.NameProcess, certs.NameShard)
		}
	}
	a, b := start(t, "a", with("a")), start(t, "b", with("b"))
	a.say(b, 1)
	b.wait("the message of a", func() bool { return b.last() == 1 })

	forge := func(claim api.Incarnation, key ed25519.PrivateKey) *end {
		return start(t, claim, func(_ *end, o *link.Options) {
			o.Key, o.TLS = key, ca.sign("forger", later, certs.NameProcess, certs.NameShard)
		})
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

// What a call proves on one connection proves nothing on another, whoever the receiver is.
func TestProofIsForOneConnection(t *testing.T) {
	ca := newAuthority(t)
	later := time.Now().Add(time.Hour)
	for name, tls := range map[string]*link.TLS{"plain text": nil, "TLS": ca.sign("all", later, certs.NameProcess, certs.NameShard)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			r := newRegistry()
			with := func(name api.Incarnation) *end {
				proven := r.proven(t, name)
				return start(t, name, func(e *end, o *link.Options) {
					proven(e, o)
					o.TLS = tls
					o.Register = func(r grpc.ServiceRegistrar) { wire.RegisterRelayServer(r, watched{}) }
				})
			}
			a, b, c := with("a"), with("b"), with("c")
			// Somebody with a certificate stands between a and b, and hears what a proves to b.
			spy, heard := spyOn(t, tls)
			a.Send("b", spy, message(1, 0))
			a.wait("the frame to be taken", func() bool { return len(a.up) == 1 })
			overheard := <-heard
			if got := overheard.Get("basalt-proof-bin"); len(got) != 1 || len(got[0]) != ed25519.SignatureSize {
				t.Fatalf("the spy heard %v", overheard)
			}
			change := func(key, value string) metadata.MD {
				m := overheard.Copy()
				m.Set(key, value)
				return m
			}
			twice := overheard.Copy()
			twice.Append("basalt-from", "c")
			for _, row := range []struct {
				what  string
				to    *end
				proof metadata.MD
				code  codes.Code
			}{
				{"replayed", b, overheard, codes.PermissionDenied},
				{"replayed for another receiver", c, change("basalt-to", "c"), codes.PermissionDenied},
				{"replayed to another receiver", c, overheard, codes.FailedPrecondition},
				{"replayed for another sender", b, change("basalt-from", "c"), codes.PermissionDenied},
				{"of nobody", b, change("basalt-from", "nobody"), codes.Unavailable},
				{"of two", b, twice, codes.Unauthenticated},
				{"left out", b, change("basalt-proof-bin", ""), codes.PermissionDenied},
				{"without a sender", b, metadata.MD{}, codes.Unauthenticated},
			} {
				conn, err := grpc.NewClient("passthrough:///"+row.to.Address(), grpc.WithTransportCredentials(link.Transport(tls)))
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(metadata.NewOutgoingContext(t.Context(), row.proof), limit)
				stream, err := wire.NewLinkClient(conn).Open(ctx)
				if err == nil {
					_ = stream.Send(&wire.Frame{From: "a", To: string(row.to.name), Sequence: 1, Messages: []*wire.Envelope{message(9, 0)}})
					_, err = stream.Recv()
				}
				if status.Code(err) != row.code {
					t.Errorf("Open, a proof %s: %v, want %s", row.what, err, row.code)
				}
				watch, err := wire.NewRelayClient(conn).Watch(ctx, &wire.RelayRequest{To: string(row.to.name), Resource: "pods"})
				if err == nil {
					_, err = watch.Recv()
				}
				if status.Code(err) != row.code {
					t.Errorf("Watch, a proof %s: %v, want %s", row.what, err, row.code)
				}
				cancel()
				_ = conn.Close()
			}
			if len(b.got)+len(c.got) != 0 {
				t.Errorf("b got %v, c got %v", b.got, c.got)
			}
			// The proven caller comes through to what is behind.
			conn, err := a.Dial("b", b.Address())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			watch, err := wire.NewRelayClient(conn).Watch(t.Context(), &wire.RelayRequest{To: "b", Resource: "pods"})
			if err == nil {
				_, err = watch.Recv()
			}
			if !errors.Is(err, io.EOF) {
				t.Errorf("Watch by a: %v", err)
			}
		})
	}
}

// An incarnation that registered as a shard cannot use a coordinator's certificate, and the other way round.
func TestCertificateOfAnotherRole(t *testing.T) {
	r := newRegistry()
	ca := newAuthority(t)
	later := time.Now().Add(time.Hour)
	with := func(name api.Incarnation, names ...string) *end {
		proven := r.proven(t, name)
		return start(t, name, func(e *end, o *link.Options) { proven(e, o); o.TLS = ca.sign(string(name), later, names...) })
	}
	b := with("b", certs.NameProcess, certs.NameShard)
	for name, names := range map[api.Incarnation][]string{
		"coordinator": {certs.NameProcess, certs.NameCoordinator}, "operator": {certs.NameOperator}, "none": {certs.NameProcess},
	} {
		a := with(name, names...)
		a.say(b, 666)
		a.wait("being refused", func() bool { return len(a.down) > 0 })
		a.Close()
	}
	with("a", certs.NameProcess, certs.NameShard).say(b, 1)
	b.wait("the message of a shard", func() bool { return b.last() == 1 })
	if len(b.got) != 1 {
		t.Errorf("b got %v", b.got)
	}
}

// Who may ask for the status of a process.
func TestInspectIsForOperators(t *testing.T) {
	ca := newAuthority(t)
	later := time.Now().Add(time.Hour)
	process := ca.sign("process", later, certs.NameProcess, certs.NameShard)
	operator := ca.sign("operator", later, certs.NameOperator)
	for name, row := range map[string]struct {
		server, client *link.TLS
		ping           bool
		to             string
		code           codes.Code
	}{
		"an operator":                                   {process, operator, false, "", codes.OK},
		"a process that proves nothing":                 {process, process, false, "", codes.PermissionDenied},
		"plain text on this machine":                    {nil, nil, false, "", codes.OK},
		"a ping that names the incarnation":             {process, process, true, "b", codes.OK},
		"a ping that names it in plain text":            {nil, nil, true, "b", codes.OK},
		"a ping that names another incarnation":         {process, operator, true, "b-before", codes.PermissionDenied},
		"a ping that names nobody, and so finds out it": {nil, nil, true, "", codes.PermissionDenied},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry()
			proven := r.proven(t, "b")
			b := start(t, "b", func(e *end, o *link.Options) {
				proven(e, o)
				o.TLS = row.server
				o.Register = func(r grpc.ServiceRegistrar) { wire.RegisterInspectServer(r, inspect{}) }
			})
			conn, err := link.Dial(b.Address(), row.client)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			if row.to != "" {
				ctx = metadata.AppendToOutgoingContext(ctx, "basalt-to", row.to)
			}
			reply, err := wire.NewInspectClient(conn).Status(ctx, &wire.StatusRequest{Ping: row.ping})
			if status.Code(err) != row.code || err == nil && reply.Name != "b-0" || err != nil && strings.Contains(err.Error(), `"b"`) {
				t.Errorf("%v, %v, want %s", reply, err, row.code)
			}
			if row.ping {
				return
			}
			if _, err = wire.NewInspectClient(conn).Drain(ctx, &wire.DrainRequest{}); status.Code(err) != row.code {
				t.Errorf("drain: %v, want %s", err, row.code)
			}
		})
	}
}

// No process may drain another, whatever it proves.
func TestProcessesDoNotDrain(t *testing.T) {
	r := newRegistry()
	proven := r.proven(t, "b")
	b := start(t, "b", func(e *end, o *link.Options) {
		proven(e, o)
		o.Register = func(r grpc.ServiceRegistrar) { wire.RegisterInspectServer(r, inspect{}) }
	})
	a := start(t, "a", r.proven(t, "a"))
	conn, err := a.Dial("b", b.Address())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := wire.NewInspectClient(conn).Status(ctx, &wire.StatusRequest{}); err != nil {
		t.Fatalf("status, asked with a proof: %v", err)
	}
	if _, err := wire.NewInspectClient(conn).Drain(ctx, &wire.DrainRequest{}); status.Code(err) != codes.PermissionDenied {
		t.Errorf("drain: %v, want %s", err, codes.PermissionDenied)
	}
}

// watched answers whoever comes through.
type watched struct{ wire.UnimplementedRelayServer }

func (watched) Watch(*wire.RelayRequest, grpc.ServerStreamingServer[wire.RelayEvents]) error {
	return nil
}

type spy struct {
	wire.UnimplementedLinkServer
	heard chan metadata.MD
}

func (s spy) Open(stream grpc.BidiStreamingServer[wire.Frame, wire.FrameAck]) error {
	frame, err := stream.Recv()
	if err != nil {
		return err
	}
	all, _ := metadata.FromIncomingContext(stream.Context())
	ours := metadata.MD{}
	for key, values := range all {
		if strings.HasPrefix(key, "basalt-") {
			ours[key] = values
		}
	}
	s.heard <- ours
	if err := stream.Send(&wire.FrameAck{Sequence: frame.Sequence}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func spyOn(t *testing.T, tls *link.TLS) (address string, heard chan metadata.MD) {
	t.Helper()
	heard = make(chan metadata.MD, 16)
	return serveLink(t, tls, spy{heard: heard}), heard
}

// serveLink serves links on loopback until the test ends.
func serveLink(t *testing.T, tls *link.TLS, s wire.LinkServer) (address string) {
	t.Helper()
	server := grpc.NewServer(grpc.Creds(link.Transport(tls)))
	wire.RegisterLinkServer(server, s)
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
	record := r.records["a"]
	delete(r.records, "a")
	r.mu.Unlock()
	a := start(t, "a", as)
	a.say(b, 1)
	r.mu.Lock()
	r.records["a"] = record
	r.mu.Unlock()
	b.wait("the message", func() bool { return b.last() == 1 })
	// A record without a key proves nothing.
	r.mu.Lock()
	r.records["old"] = link.Record{Role: certs.NameShard}
	r.mu.Unlock()
	old := start(t, "old", nil)
	old.say(b, 2)
	old.wait("being refused", func() bool { return len(old.down) > 0 })
	if len(b.got) != 1 {
		t.Errorf("b got %v", b.got)
	}
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

// Calls of callers that nobody knows cannot pile up.
func TestCallsOfTheUnknownAreBounded(t *testing.T) {
	r := newRegistry()
	b := start(t, "b", r.proven(t, "b"))
	conn, err := grpc.NewClient("passthrough:///"+b.Address(), grpc.WithTransportCredentials(link.Transport(nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	ended := make(chan codes.Code, 1100)
	for i := range cap(ended) {
		go func() {
			call := metadata.AppendToOutgoingContext(ctx, "basalt-from", fmt.Sprint("nobody-", i), "basalt-to", "b")
			stream, err := wire.NewLinkClient(conn).Open(call)
			if err == nil {
				_, err = stream.Recv()
			}
			ended <- status.Code(err)
		}()
	}
	got := map[codes.Code]int{}
	for range cap(ended) {
		got[<-ended]++
	}
	if got[codes.ResourceExhausted] == 0 || got[codes.Unavailable] == 0 || len(got) != 2 {
		t.Errorf("%v", got)
	}
	b.wait("no call to wait any more", func() bool { return b.Ahead() == 0 })
	start(t, "a", r.proven(t, "a")).say(b, 1)
	b.wait("a message afterwards", func() bool { return b.last() == 1 })
}

// Both ends say why they do not talk to each other.
func TestRefusalsAreLogged(t *testing.T) {
	ca := newAuthority(t)
	var server, client lines
	b := start(t, "b", func(_ *end, o *link.Options) {
		o.TLS = ca.sign("b", time.Now().Add(time.Hour), "basalt")
		o.TLS.Log = slog.New(slog.NewTextHandler(&server, nil))
	})
	for name, row := range map[string]struct {
		tls            *link.TLS
		server, client string
	}{
		"no certificate":    {nil, "first record does not look like a TLS handshake", "does not speak plain text"},
		"of another CA":     {newAuthority(t).sign("x", time.Now().Add(time.Hour), "basalt"), "", "x509: certificate signed by unknown authority"},
		"of another system": {ca.sign("y", time.Now().Add(time.Hour), "example"), "certificate is valid for example, localhost, not basalt", "tls: "},
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
	// The other way round: a process that speaks plain text is called with TLS.
	var open lines
	c := start(t, "c", func(_ *end, o *link.Options) { o.Logger = slog.New(slog.NewTextHandler(&open, nil)) })
	a := start(t, "a", func(_ *end, o *link.Options) { o.TLS = ca.sign("b", time.Now().Add(time.Hour), "basalt") })
	a.say(c, 1)
	a.wait("being refused by plain text", func() bool { return strings.Contains(open.String(), "this process does not use TLS") })
	// Our own certificate that is over is found out at the start.
	expired := ca.sign("e", time.Now().Add(-time.Minute), "basalt")
	if _, err := link.New(link.Options{Self: "e", Listen: "127.0.0.1:0", Deliver: b.deliver, TLS: expired}); err == nil || !strings.Contains(err.Error(), "expired at") {
		t.Errorf("an expired certificate: %v", err)
	}
}

// A refusal that will not mend by itself is logged loudly once, however often it comes back. The receiver says who it was.
func TestRefusalIsLoggedOnce(t *testing.T) {
	r := newRegistry()
	var server, client lines
	b := start(t, "b", r.proven(t, "b"), func(_ *end, o *link.Options) { o.Logger = slog.New(slog.NewTextHandler(&server, nil)) })
	r.proven(t, "a")
	a := start(t, "a", func(_ *end, o *link.Options) {
		o.Logger = slog.New(slog.NewTextHandler(&client, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	tries := 0
	for tries < 3 {
		a.say(b, 1)
		tries++
		a.wait("being refused", func() bool { return strings.Count(client.String(), "stream to peer broke") >= tries })
	}
	if n := strings.Count(client.String(), "level=WARN msg=\"stream to peer broke\""); n != 1 {
		t.Errorf("it was logged loudly %d times:\n%s", n, client.String())
	}
	if !strings.Contains(server.String(), "claimed=a remote=127.0.0.1:") {
		t.Errorf("the receiver says:\n%s", server.String())
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
