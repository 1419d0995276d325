// Package store is the control store: an etcd of Basalt's own, and the only way in which Basalt reads and writes it.
//
// What is written and how a lost answer is settled is package protocol's: its machines say which transaction comes next. This
// package drives them over etcd's client: connections, leases, timeouts, backoff, refusals, watches, and the question
// whether this is still the store that was opened.
//
// Invariants:
//   - Every transaction compares the store's identity, besides the fences of its machine. etcd's client retries nothing by
//     itself.
//   - All reads are linearizable. A store whose identity or cluster changes, or whose revision goes back, at every endpoint
//     that answers, is another store: every call then fails with ErrReplaced, and Lost tells it once. A process that sees a
//     store go back changes its identity, so that all others notice, and the next to open it knows that it must be refilled.
//   - A lease that ran out is a reason to act; only the compares make acting safe. So no clock has to be right.
//   - A store that refuses (no space, corrupt, no right) may recover: what may wait does, and the operator is told.
package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/api/wire"
)

// Format is the newest layout of the control store that this program knows.
const Format = 1

// ErrReplaced says that the control store is not the one that was opened: it was emptied, restored or exchanged. The
// process starts over.
var ErrReplaced = errors.New("the control store was replaced")

// Options say which control store and how to reach it.
type Options struct {
	Endpoints []string                         // http://host:port or https://host:port
	TLS       credentials.TransportCredentials // of ClientTLS; nil: plain
	Prefix    string                           // before every key; usually empty, for the etcd is Basalt's own

	ConnectTimeout time.Duration // for Open, 10 s if 0
	RequestTimeout time.Duration // for one try of one request, 5 s if 0
	CheckEvery     time.Duration // how often the identity is read, 1 s if 0
	LeaderTTL      time.Duration // of the leader's lease, 3 s if 0; at least 2 s

	ReadOnly bool // Open makes no identity: a store without one is an error

	Refused  func(reason string)                           // called for each request that the store refuses for the time being; may be nil
	Observed func(method, code string, took time.Duration) // called for each request but streams, with its gRPC code; may be nil

	Logger *slog.Logger // slog.Default() if nil
}

// Store is an open control store. Its methods may be called by several goroutines.
type Store struct {
	opts   Options
	client *clientv3.Client
	keys   protocol.Keys
	log    *slog.Logger

	identity *wire.StoreIdentity
	raw      []byte // the identity's bytes: what every transaction compares
	fresh    bool
	cluster  atomic.Uint64 // the etcd cluster's id, 0 before the first answer
	highest  atomic.Int64  // the highest revision seen

	ctx    context.Context // ends with Close or with the loss of the store, which is its cause
	cancel context.CancelCauseFunc
	lost   chan error
	once   sync.Once

	renounced atomic.Bool
	doubts    doubts
	refusals  refusals

	wg sync.WaitGroup

	tableHint hint // the newest table revision that a transaction met
}

// Open connects, and reads the store's identity or makes one. It fails within the connect timeout, and at once when the
// store was written by a newer version or its identity cannot be read.
func Open(ctx context.Context, o Options) (*Store, error) {
	if len(o.Endpoints) == 0 {
		return nil, errors.New("open control store: no endpoints given")
	}
	def := func(d *time.Duration, v time.Duration) {
		if *d <= 0 {
			*d = v
		}
	}
	def(&o.ConnectTimeout, 10*time.Second)
	def(&o.RequestTimeout, 5*time.Second)
	def(&o.CheckEvery, time.Second)
	def(&o.LeaderTTL, 3*time.Second)
	if o.LeaderTTL < 2*time.Second {
		return nil, fmt.Errorf("open control store: leader lease of %s: etcd grants none under 2s", o.LeaderTTL)
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	client, err := clientv3.New(o.config(o.Endpoints))
	if err != nil {
		return nil, fmt.Errorf("open control store at %s: %w", strings.Join(o.Endpoints, ","), err)
	}
	s := &Store{opts: o, client: client, keys: protocol.Keys(o.Prefix), log: o.Logger, lost: make(chan error, 1)}
	s.tableHint.ch = make(chan struct{})
	s.ctx, s.cancel = context.WithCancelCause(context.Background())

	within, stop := context.WithTimeout(ctx, o.ConnectTimeout)
	defer stop()
	if err := s.identify(within); err != nil {
		s.cancel(err)
		_ = client.Close()
		return nil, fmt.Errorf("open control store at %s: %w", strings.Join(o.Endpoints, ","), err)
	}
	s.wg.Go(s.watchIdentity)
	return s, nil
}

// config is how etcd is reached at some of its endpoints.
func (o Options) config(endpoints []string) clientv3.Config {
	options := []grpc.DialOption{
		// gRPC's own longest pause is two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 3 * time.Second,
		}),
		grpc.WithChainUnaryInterceptor(o.observed, failFast),
		// Fixed, or gRPC sends a ping for each answer that comes by itself, to measure what they should be.
		grpc.WithStaticStreamWindowSize(4 << 20), grpc.WithStaticConnWindowSize(16 << 20),
	}
	if o.TLS != nil {
		options = append(options, grpc.WithTransportCredentials(o.TLS))
	}
	return clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          o.ConnectTimeout,
		DialKeepAliveTime:    10 * time.Second, // etcd refuses more frequent pings
		DialKeepAliveTimeout: 3 * time.Second,
		MaxCallSendMsgSize:   protocol.MaxRequest + 64<<10,
		MaxCallRecvMsgSize:   256 << 20,
		MaxUnaryRetries:      1, // one try: this package knows which requests may be sent twice, and how to tell
		Logger:               zap.NewNop(),
		DialOptions:          options,
	}
}

// failFast makes a request fail at once when there is no connection, with the reason: the client's default waits, and then
// knows only that time is up.
func failFast(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

// Close ends all watches and calls. Leases of sessions and terms run out by themselves unless they were given up before.
func (s *Store) Close() error {
	s.doubts.mu.Lock() // who holds it adds to wg
	s.cancel(context.Canceled)
	s.doubts.mu.Unlock()
	s.wg.Wait()
	if err := s.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close control store: %w", err)
	}
	return nil
}

// ID is the store's identity.
func (s *Store) ID() string { return s.identity.Id }

// Fresh reports whether this Open made the store's identity: nothing of Basalt's was here.
func (s *Store) Fresh() bool { return s.fresh }

// Lost tells, once, that the store is not the one that was opened. The error wraps ErrReplaced.
func (s *Store) Lost() <-chan error { return s.lost }

// identify reads the identity, or makes one where there is none.
func (s *Store) identify(ctx context.Context) error {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	mine := &wire.StoreIdentity{Id: hex.EncodeToString(id), Format: Format}
	key := s.keys.Identity()
	value, err := protocol.Encode(key, mine)
	if err != nil {
		return err
	}
	raw := value.Bytes
	// A store without space refuses a transaction that may write: the identity is read first.
	var found *mvccpb.KeyValue
	written := false
	err = s.try(ctx, 2*time.Second, func(ctx context.Context) error {
		resp, err := s.client.Get(ctx, key)
		if err != nil {
			return final(err)
		}
		header := resp.Header
		found = nil
		if len(resp.Kvs) == 1 {
			found = resp.Kvs[0]
		} else if !s.opts.ReadOnly {
			made, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(key), "=", 0)).
				Then(clientv3.OpPut(key, string(raw))).Else(clientv3.OpGet(key)).Commit()
			if err != nil {
				return final(err)
			}
			header, written = made.Header, made.Succeeded
			if kvs := made.Responses[0].GetResponseRange().GetKvs(); len(kvs) == 1 {
				found = kvs[0]
			}
		}
		s.cluster.Store(header.ClusterId)
		s.raise(header.Revision)
		return nil
	})
	if err != nil {
		return err
	}
	switch {
	case written:
		s.fresh = true
	case found == nil:
		return fmt.Errorf("key %q is missing: no process of Basalt has used this store yet", key)
	default:
		s.fresh = bytes.Equal(found.Value, raw) // the answer of our first try was lost
		raw, mine = found.Value, &wire.StoreIdentity{}
		if err := proto.Unmarshal(raw, mine); err != nil || mine.Id == "" || mine.Format == 0 {
			return fmt.Errorf("key %q: corrupt record: not the identity of a control store", key)
		}
	}
	if mine.Format > Format {
		return fmt.Errorf("key %q: format %d was written by a newer version of Basalt, this one knows %d", key, mine.Format, Format)
	}
	s.identity, s.raw = mine, raw
	return nil
}

// watchIdentity reads the identity again and again: a watch on a store that was emptied waits for ever for a revision
// that is far in its future, and never says so.
func (s *Store) watchIdentity() {
	tick := time.NewTicker(s.opts.CheckEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		}
		ctx, cancel := context.WithTimeout(s.ctx, s.opts.RequestTimeout)
		resp, err := s.getOnce(ctx, s.keys.Identity())
		cancel()
		if err == nil && (len(resp.Kvs) != 1 || !bytes.Equal(resp.Kvs[0].Value, s.raw)) {
			s.lose("its identity changed")
		}
	}
}

func (s *Store) lose(why string) error {
	err := fmt.Errorf("%w: %s", ErrReplaced, why)
	s.once.Do(func() {
		s.lost <- err
		s.cancel(err)
	})
	return context.Cause(s.ctx)
}

// renounce gives a store that was restored another identity, and its table the word that reservations may be missing. A
// copy has the identity of the original: who saw nothing of what the copy lacks would go on, and who starts over would
// not know either. What it compares is the identity that the copy has.
func (s *Store) renounce() {
	if s.opts.ReadOnly || s.ctx.Err() != nil || !s.renounced.CompareAndSwap(false, true) {
		return
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.opts.RequestTimeout)
	defer cancel()
	id := make([]byte, 16)
	_, _ = rand.Read(id) // never fails
	identity, err := protocol.Encode(s.keys.Identity(), &wire.StoreIdentity{Id: hex.EncodeToString(id), Format: s.identity.Format})
	if err != nil {
		return
	}
	key := s.keys.Table()
	err = s.try(ctx, s.opts.RequestTimeout, func(ctx context.Context) error { // twice does nothing more
		resp, err := s.client.Get(ctx, key)
		if err != nil {
			return err
		}
		ops := []clientv3.Op{clientv3.OpPut(s.keys.Identity(), string(identity.Bytes))}
		var revision int64
		if len(resp.Kvs) == 1 {
			revision = resp.Kvs[0].ModRevision
			if t, err := protocol.DecodeTable(foundOne(resp.Kvs[0])); err == nil { // one that cannot be read is made anew anyway
				t.Epoch++
				t.Refilling = true
				value, err := protocol.Encode(key, wire.FromTable(t))
				if err != nil {
					return err
				}
				ops = append(ops, clientv3.OpPut(key, string(value.Bytes)))
			}
		}
		_, err = s.client.Txn(ctx).If(clientv3.Compare(clientv3.Value(s.keys.Identity()), "=", string(s.raw)),
			clientv3.Compare(clientv3.ModRevision(key), "=", revision)).Then(ops...).Commit()
		return err
	})
	if err != nil {
		s.log.Warn("the control store was restored, but its identity cannot be changed", "error", err)
	}
}

func (s *Store) raise(revision int64) {
	for {
		old := s.highest.Load()
		if revision <= old || s.highest.CompareAndSwap(old, revision) {
			return
		}
	}
}

// bound joins a caller's context with the store's: it ends when either does.
func (s *Store) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return ctx, func() { stop(); cancel(nil) }
}

// try calls until the call succeeds, fails for good, or ctx ends. Only for calls that may be made twice.
func (s *Store) try(ctx context.Context, each time.Duration, call func(context.Context) error) error {
	ctx, cancel := s.bound(ctx)
	defer cancel()
	pause := newBackoff()
	var last error
	for tries := 1; ; tries++ {
		if ctx.Err() == nil {
			one, stop := context.WithTimeout(ctx, each)
			err := call(one)
			stop()
			if err == nil || definite(err) {
				return err
			}
			if ctx.Err() == nil || last == nil {
				last = err
			}
			if !s.refused(err) && tries == 5 {
				s.log.Warn("control store does not respond, retrying", "error", err)
			}
		}
		if !pause.Wait(ctx) {
			cause := context.Cause(ctx)
			if errors.Is(cause, ErrReplaced) || last == nil {
				return cause
			}
			return fmt.Errorf("%w (last answer: %w)", cause, last)
		}
	}
}

func (s *Store) getOnce(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if err := s.settled(ctx); err != nil {
		return nil, err
	}
	floor := s.highest.Load()
	resp, err := s.client.Get(ctx, key, opts...)
	if err != nil {
		return nil, err
	}
	if err := s.check(ctx, resp.Header, floor); err != nil {
		return nil, err
	}
	return resp, nil
}

// get reads until there is an answer or ctx ends.
func (s *Store) get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	var resp *clientv3.GetResponse
	err := s.try(ctx, s.opts.RequestTimeout, func(ctx context.Context) (err error) {
		resp, err = s.getOnce(ctx, key, opts...)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %q: %w", key, err)
	}
	return resp, nil
}

// finalError is an error after which try gives up, although the store may recover.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// final makes a refusal for lack of rights final: a process that starts with wrong credentials says so at once.
func final(err error) error {
	if refusal(err) == RefusedPermission {
		return finalError{err}
	}
	return err
}

// definite reports whether the same request would only meet the same error again: nothing was written, and nothing will be.
// All others leave open what happened, but for refusals: nothing was written, and the same request may succeed later.
func definite(err error) bool {
	var last finalError
	switch {
	case errors.As(err, &last), errors.Is(err, ErrReplaced), errors.Is(err, protocol.ErrUnreadable):
		return true
	case refusal(err) != "":
		return false
	case tooLarge(err):
		return true
	}
	for _, known := range []error{rpctypes.ErrCompacted, rpctypes.ErrTooManyOps, rpctypes.ErrDuplicateKey,
		rpctypes.ErrLeaseNotFound, rpctypes.ErrLeaseTTLTooLarge} {
		if errors.Is(rpctypes.Error(err), known) {
			return true
		}
	}
	code := status.Code(err)
	return code == codes.InvalidArgument || code == codes.Unimplemented
}

func newBackoff() *wait.Backoff { return &wait.Backoff{Min: 20 * time.Millisecond, Max: time.Second} }

// hint is a revision that somebody met, for those who wait to learn of it.
type hint struct {
	mu       sync.Mutex
	revision int64
	ch       chan struct{} // closed when the revision grows
}

func (h *hint) raise(revision int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if revision > h.revision {
		h.revision = revision
		close(h.ch)
		h.ch = make(chan struct{})
	}
}

func (h *hint) get() (int64, <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.revision, h.ch
}
