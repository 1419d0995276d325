// Package link carries messages between processes: one gRPC stream from each process to each peer that it sends to. It decides
// nothing.
//
// It guarantees that the messages of one sender arrive in the order in which they were sent, at most once, and only at the
// incarnation that they are addressed to. It does not guarantee that they arrive. Messages describe state and are retransmitted
// until they are answered, so a full queue drops its oldest messages, a broken stream loses those in flight, and Send never
// blocks. The server authenticates the callers of all services on it, including those of other packages: see proof.go.
package link

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Sizes.
const (
	MaxMessage   = 16 << 20 // bytes of a message, alone in its frame
	frameSize    = 1 << 20  // bytes at which a frame is full
	frameCount   = 4096     // messages at which a frame is full
	window       = 32       // frames that may wait for their acknowledgement
	DefaultQueue = 16384    // messages that may wait for one peer

	// Bytes on their way without an acknowledgement of the transport. They are fixed, or gRPC measures what they should be: a
	// ping, and its answer, for each message that comes by itself, and with them a thread woken at either end.
	streamWindow, connWindow = 4 << 20, 16 << 20
)

// Options of a process's end of all its streams.
type Options struct {
	Self   api.Incarnation
	Listen string // host:port; port 0 takes a free one
	TLS    *TLS   // nil: plain text

	// Key signs that calls are from Self; nil: they are not signed. KeyOf returns what the control store has of an
	// incarnation, and whether it knows it; nil: every caller is believed.
	Key   ed25519.PrivateKey
	KeyOf func(api.Incarnation) (record Record, known bool)

	// Deliver takes what arrives. It is called by one goroutine for each sender, in order; while it waits, that sender does.
	Deliver func(from api.Incarnation, message *wire.Envelope)
	// Up tells that a peer acknowledged something, once until Down. Down tells that a peer cannot be reached, at each try: one
	// that was asked, answered, and is gone before it acknowledges anything is to be asked again. Either may be nil. They are
	// called by one goroutine for each peer and must not wait for long.
	Up, Down func(peer api.Incarnation)
	// Register adds services to the server before it starts. May be nil.
	Register func(grpc.ServiceRegistrar)

	Queue  int           // messages that may wait for one peer; DefaultQueue if 0
	Idle   time.Duration // a stream without messages for so long is closed; 5 minutes if 0
	Logger *slog.Logger  // slog.Default() if nil
}

// Link is a process's end of its streams.
type Link struct {
	opts     Options
	log      *slog.Logger
	server   *grpc.Server
	listener net.Listener
	ctx      context.Context
	cancel   context.CancelFunc
	wg       sync.WaitGroup

	mu     sync.Mutex
	closed bool
	peers  map[api.Incarnation]*peer

	ahead atomic.Int64 // calls that wait for their caller's record

	inMu    sync.Mutex
	inbound map[api.Incarnation]*inbound
}

// New listens and serves.
func New(o Options) (*Link, error) {
	if o.Self == "" || o.Deliver == nil {
		return nil, errors.New("make link: Self and Deliver are needed")
	}
	if o.Queue <= 0 {
		o.Queue = DefaultQueue
	}
	if o.Idle <= 0 {
		o.Idle = 5 * time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.TLS != nil {
		if err := o.TLS.Check(); err != nil {
			return nil, fmt.Errorf("make link: %w", err)
		}
	}
	listener, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, fmt.Errorf("make link: %w", err)
	}
	l := &Link{opts: o, log: o.Logger, listener: listener, peers: map[api.Incarnation]*peer{}, inbound: map[api.Incarnation]*inbound{}}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	options := []grpc.ServerOption{
		grpc.MaxRecvMsgSize(MaxMessage + frameSize), grpc.MaxSendMsgSize(MaxMessage + frameSize),
		grpc.StaticStreamWindowSize(streamWindow), grpc.StaticConnWindowSize(connWindow),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	}
	options = append(options, grpc.Creds(transport(o.TLS, o.Logger)), grpc.UnaryInterceptor(l.unary), grpc.StreamInterceptor(l.stream))
	options = append(options, grpc.WaitForHandlers(true)) // Stop ends with the last Deliver
	l.server = grpc.NewServer(options...)
	wire.RegisterLinkServer(l.server, server{link: l})
	if o.Register != nil {
		o.Register(l.server)
	}
	l.wg.Go(func() {
		if err := l.server.Serve(listener); err != nil && l.ctx.Err() == nil {
			l.log.Error("gRPC server stopped", "address", l.Address(), "error", err)
		}
	})
	return l, nil
}

// transport returns the credentials of either end of a connection; tls nil is plain text.
func transport(tls *TLS, log *slog.Logger) credentials.TransportCredentials {
	if tls == nil {
		return newPlain(log)
	}
	return tls.Credentials()
}

// Dial makes a connection of an operator to a process's server, for wire.Inspect. tls nil is plain text.
func Dial(address string, tls *TLS) (*grpc.ClientConn, error) {
	return dial(address, tls, slog.Default())
}

// Dial makes a connection of this process to a peer's server. Each call says, and proves, who makes it and who is to take it.
func (l *Link) Dial(to api.Incarnation, address string) (*grpc.ClientConn, error) {
	return dial(address, l.opts.TLS, l.log, grpc.WithPerRPCCredentials(proof{link: l, to: to}))
}

func dial(address string, tls *TLS, log *slog.Logger, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	if tls != nil {
		if err := tls.Check(); err != nil {
			return nil, err
		}
	}
	conn, err := grpc.NewClient("passthrough:///"+address, append(options, // resolved at each dial: a pod's address changes
		grpc.WithTransportCredentials(transport(tls, log)),
		grpc.WithStaticStreamWindowSize(streamWindow), grpc.WithStaticConnWindowSize(connWindow),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(MaxMessage+frameSize), grpc.MaxCallSendMsgSize(MaxMessage+frameSize)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: connectBackoff, MinConnectTimeout: 3 * time.Second}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}))...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", address, err)
	}
	return conn, nil
}

// Address is where the server listens.
func (l *Link) Address() string { return l.listener.Addr().String() }

// Send queues a message for a peer at an address and never waits. Where the queue is full, the oldest message gives way.
// An empty address means the one that the peer had last; without one the message is dropped.
func (l *Link) Send(to api.Incarnation, address string, message *wire.Envelope) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	p := l.peers[to]
	if p == nil {
		if address == "" {
			return
		}
		p = newPeer(l, to, address)
		l.peers[to] = p
		l.wg.Go(p.run)
	}
	p.push(address, message)
}

// Forget drops a peer with all that waits for it. Down is not called.
func (l *Link) Forget(who api.Incarnation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.peers[who]; p != nil {
		p.cancel()
		delete(l.peers, who)
	}
}

// Close ends all streams and the server, and waits for calls of Deliver that are under way: none comes after it.
func (l *Link) Close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cancel()
	l.server.Stop()
	l.wg.Wait()
}

// server is the receiving side.
type server struct {
	wire.UnimplementedLinkServer
	link *Link
}

// inbound is the newest stream of one sender. Its lock is held while a frame is delivered, so that nothing of an older
// stream comes after something of a newer one.
type inbound struct {
	mu      sync.Mutex
	stream  uint64
	streams int // open ones
}

// Open receives frames until the sender ends the stream or something is wrong with it.
func (s server) Open(stream grpc.BidiStreamingServer[wire.Frame, wire.FrameAck]) error {
	l := s.link
	var from api.Incarnation
	var in *inbound
	var mine, sequence uint64
	for {
		frame, err := stream.Recv()
		if err != nil {
			return nil // the sender is gone
		}
		switch {
		case api.Incarnation(frame.To) != l.opts.Self:
			return status.Errorf(codes.FailedPrecondition, "the frame is for incarnation %q, which is not here", frame.To)
		case frame.From == "" || from != "" && api.Incarnation(frame.From) != from:
			return status.Errorf(codes.InvalidArgument, "the frame is from %q, the stream from %q", frame.From, from)
		case frame.Sequence != sequence+1:
			return status.Errorf(codes.DataLoss, "frame %d after %d", frame.Sequence, sequence)
		}
		if in == nil {
			from = api.Incarnation(frame.From)
			if who := Caller(stream.Context()); l.opts.KeyOf != nil && who != from {
				return status.Errorf(codes.PermissionDenied, "the frame is from %q, the stream proves %q", from, who)
			}
			in, mine = l.enter(from)
			defer l.leave(from, in)
		}
		sequence = frame.Sequence
		if !l.deliver(from, in, mine, frame) {
			return status.Error(codes.Aborted, "a newer stream of the same sender is open")
		}
		if err := stream.Send(&wire.FrameAck{Sequence: sequence}); err != nil {
			return nil
		}
	}
}

func (l *Link) enter(from api.Incarnation) (*inbound, uint64) {
	l.inMu.Lock()
	in := l.inbound[from]
	if in == nil {
		in = &inbound{}
		l.inbound[from] = in
	}
	in.streams++
	l.inMu.Unlock()
	in.mu.Lock()
	defer in.mu.Unlock()
	in.stream++
	return in, in.stream
}

func (l *Link) leave(from api.Incarnation, in *inbound) {
	l.inMu.Lock()
	defer l.inMu.Unlock()
	if in.streams--; in.streams == 0 {
		delete(l.inbound, from)
	}
}

// deliver tells false when the stream is not the sender's newest.
func (l *Link) deliver(from api.Incarnation, in *inbound, mine uint64, frame *wire.Frame) bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.stream != mine || l.ctx.Err() != nil {
		return false
	}
	for _, m := range frame.Messages {
		if m.GetBody() == nil { // of a newer version: nothing that we could act on
			continue
		}
		l.opts.Deliver(from, m)
	}
	return true
}
