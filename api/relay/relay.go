package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	cbor "k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/watch"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/metric"
	"basalt.dev/basalt/api/wire"
)

// patience is how long a relay may take to answer. Nothing is lost meanwhile, but nothing is seen either.
const patience = time.Second

// Options of a process's relay.
type Options struct {
	Self     api.Incarnation
	Address  func(api.Incarnation) string                                        // of a peer's gRPC server, "" while it is not known
	Dial     func(who api.Incarnation, address string) (*grpc.ClientConn, error) // to a peer: link.Link's
	Log      *slog.Logger
	Registry prometheus.Registerer
}

// Relay is both ends of a process: it serves those who ask, and asks whoever is to be asked.
type Relay struct {
	wire.UnimplementedRelayServer
	opts    Options
	log     *slog.Logger
	metrics metrics
	ctx     context.Context
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu      sync.Mutex
	kinds   map[string]*kind
	from    api.Incarnation  // whom to ask
	conn    *grpc.ClientConn // to it, nil until needed
	changed chan struct{}    // closed when another is to be asked
}

type metrics struct {
	streams, watches *prometheus.GaugeVec
	events, refused  *prometheus.CounterVec
}

// New makes a relay and adds its service to a gRPC server. It has nothing to serve before Attach.
func New(o Options, server grpc.ServiceRegistrar) *Relay {
	r := &Relay{
		opts: o, log: o.Log, kinds: map[string]*kind{}, changed: make(chan struct{}),
		metrics: metrics{
			streams: metric.RelayStreams.Gauges(), watches: metric.RelayWatches.Gauges(),
			events: metric.RelayEvents.Counters(), refused: metric.RelayTooOld.Counters(),
		},
	}
	o.Registry.MustRegister(r.metrics.streams, r.metrics.watches, r.metrics.events, r.metrics.refused)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	wire.RegisterRelayServer(server, r)
	return r
}

// Close ends all watches.
func (r *Relay) Close() {
	r.cancel()
	r.Ask("")
	r.wg.Wait()
}

// Ask says whom to ask, "" for nobody. Watches from another process end.
func (r *Relay) Ask(who api.Incarnation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if who == r.from {
		return
	}
	if r.conn != nil {
		_ = r.conn.Close()
	}
	r.from, r.conn = who, nil
	close(r.changed)
	r.changed = make(chan struct{})
}

// Attach has a follower watch through the relay where it can, and the relay serve that kind to others. pace is the shortest
// time between two messages to the same reader: a message costs both ends many times what an event costs, so that what
// happens within it goes together, and with what other kinds have to say then. The first event after a pause does not wait.
func Attach[T runtime.Object](r *Relay, f *kube.Follower[T], pace time.Duration) {
	AttachPacked(r, f, pace, Packing[T]{})
}

// Packing is how a kind is sent in another form, made once by the relay, instead of by each of its readers.
type Packing[T runtime.Object] struct {
	Form   string // a reader who asks for another one gets the objects; "" for none
	Packer func() func(T) *Pack
	Reader func() func([]byte) (*kube.Packed, error)
}

// Pack is an object in another form; nil stands for one that has to be sent as it is.
type Pack struct {
	Bytes []byte
	// Of an object whose versions do not matter by themselves: a number of the object, and the hash of all that does.
	// Where it is as before, the event is not sent.
	Settled  bool
	ID, Hash uint64
}

// AttachPacked is Attach for a kind that is packed.
func AttachPacked[T runtime.Object](r *Relay, f *kube.Follower[T], pace time.Duration, packing Packing[T]) {
	if f.InProcess() { // a watch costs nothing there
		return
	}
	k := &kind{resource: f.Resource(), watch: f.Watch, restored: f.Restored, relay: r, pace: pace, limits: windowLimits}
	k.encode = func(o runtime.Object) ([]byte, error) {
		t, ok := o.(T)
		if !ok {
			return nil, fmt.Errorf("%T is not a %T", o, t)
		}
		return encode(f.Stripped(t))
	}
	if k.form = packing.Form; k.form != "" {
		k.packer = func() func(runtime.Object) *Pack {
			pack := packing.Packer()
			return func(o runtime.Object) *Pack {
				if t, ok := o.(T); ok {
					return pack(f.Stripped(t))
				}
				return nil
			}
		}
	}
	r.mu.Lock()
	r.kinds[k.resource] = k
	r.mu.Unlock()
	fresh := reflect.TypeFor[T]().Elem()
	f.Through(&source{relay: r, kind: k, reader: packing.Reader, decode: func(b []byte) (runtime.Object, error) {
		o := reflect.New(fresh).Interface().(runtime.Object)
		return o, decode(b, o)
	}})
}

// encode writes built-in kinds as Kubernetes' protobuf and others as its CBOR, which is read several times faster than JSON.
func encode(o runtime.Object) ([]byte, error) {
	if p, ok := o.(interface{ Marshal() ([]byte, error) }); ok {
		return p.Marshal()
	}
	return cbor.Marshal(o)
}

func decode(b []byte, into runtime.Object) error {
	if p, ok := into.(interface{ Unmarshal([]byte) error }); ok {
		return p.Unmarshal(b)
	}
	return cbor.Unmarshal(b, into)
}

// Watch serves a peer.
func (r *Relay) Watch(q *wire.RelayRequest, stream grpc.ServerStreamingServer[wire.RelayEvents]) error {
	if api.Incarnation(q.GetTo()) != r.opts.Self {
		return status.Errorf(codes.FailedPrecondition, "the request is for incarnation %q, which is not here", q.GetTo())
	}
	r.mu.Lock()
	k := r.kinds[q.GetResource()]
	r.mu.Unlock()
	if k == nil {
		return status.Errorf(codes.NotFound, "%q is not relayed here", q.GetResource())
	}
	if err := k.serve(stream.Context(), q.GetVersion(), q.GetForm(), stream.Send); err != nil {
		return status.Error(codes.Unavailable, err.Error())
	}
	return nil
}

// source is the asking end for one kind. It implements kube.Relay.
type source struct {
	relay  *Relay
	kind   *kind
	decode func([]byte) (runtime.Object, error)
	reader func() func([]byte) (*kube.Packed, error)
}

// Changed implements kube.Relay.
func (s *source) Changed() <-chan struct{} {
	s.relay.mu.Lock()
	defer s.relay.mu.Unlock()
	return s.relay.changed
}

// Watch implements kube.Relay.
func (s *source) Watch(ctx context.Context, version string) (kube.Batches, error) {
	after, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("resourceVersion %q: %w", version, err)
	}
	ctx, cancel := context.WithCancel(ctx)
	silent := time.AfterFunc(patience, cancel)
	recv, err := s.open(ctx, after)
	if err != nil {
		cancel()
		return nil, err
	}
	first, err := recv()
	switch {
	case err == nil && first.Oldest != 0:
		err = kube.TooOld{Oldest: first.Oldest}
	case err == nil && !silent.Stop():
		err = context.DeadlineExceeded
	}
	if err != nil {
		cancel()
		return nil, err
	}
	w := &stream{batches: make(chan []watch.Event, 4), cancel: cancel}
	s.relay.wg.Go(func() {
		defer close(w.batches)
		defer cancel()
		gauge := s.relay.metrics.watches.WithLabelValues(s.kind.resource)
		gauge.Inc()
		defer gauge.Dec()
		err := s.pump(ctx, w, after, first, limited(cancel, recv))
		s.relay.log.Debug("relay watch ended", "resource", s.kind.resource, "error", err)
	})
	return w, nil
}

// limited gives a stream up that says nothing for long.
func limited(cancel context.CancelFunc, recv func() (*wire.RelayEvents, error)) func() (*wire.RelayEvents, error) {
	silent := time.AfterFunc(silence, cancel)
	silent.Stop()
	return func() (*wire.RelayEvents, error) {
		silent.Reset(silence)
		defer silent.Stop()
		return recv()
	}
}

// open asks the relay, this process itself included.
func (s *source) open(ctx context.Context, version uint64) (recv func() (*wire.RelayEvents, error), err error) {
	r := s.relay
	r.mu.Lock()
	from := r.from
	r.mu.Unlock()
	switch from {
	case "":
		return nil, errors.New("no relay is known")
	case r.opts.Self:
		messages, ended := make(chan *wire.RelayEvents), make(chan error, 1)
		r.wg.Go(func() {
			ended <- s.kind.serve(ctx, version, s.kind.form, func(m *wire.RelayEvents) error {
				select {
				case messages <- m:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		})
		return func() (*wire.RelayEvents, error) {
			select {
			case m := <-messages:
				return m, nil
			case err := <-ended:
				if err == nil {
					err = errors.New("the relay ended the stream")
				}
				return nil, err
			}
		}, nil
	}
	conn, err := r.dial(from)
	if err != nil {
		return nil, err
	}
	in, err := wire.NewRelayClient(conn).Watch(ctx, &wire.RelayRequest{To: string(from), Resource: s.kind.resource,
		Version: version, Form: s.kind.form})
	if err != nil {
		return nil, err
	}
	return in.Recv, nil
}

func (r *Relay) dial(who api.Incarnation) (*grpc.ClientConn, error) {
	address := r.opts.Address(who)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case who != r.from || r.ctx.Err() != nil:
		return nil, errors.New("another relay is to be asked")
	case r.conn != nil:
		return r.conn, nil
	case address == "":
		return nil, fmt.Errorf("the address of relay %s is not known", who)
	}
	conn, err := r.opts.Dial(who, address)
	if err != nil {
		return nil, err
	}
	r.conn = conn
	return conn, nil
}

// pump hands events on until something is wrong with them.
func (s *source) pump(ctx context.Context, w *stream, version uint64, m *wire.RelayEvents, recv func() (*wire.RelayEvents, error)) (err error) {
	var read func([]byte) (*kube.Packed, error)
	if s.reader != nil {
		read = s.reader()
	}
	for {
		batch := make([]watch.Event, 0, len(m.Events)+1)
		var wrong error
		for _, e := range m.Events {
			if e.GetVersion() <= version {
				wrong = fmt.Errorf("version %d after %d", e.GetVersion(), version)
				break
			}
			var next watch.Event
			if next, wrong = s.event(e, read); wrong != nil {
				break
			}
			version = e.GetVersion()
			batch = append(batch, next)
		}
		if wrong == nil && m.Version > version {
			version = m.Version
			batch = append(batch, bookmark(version))
		}
		if len(batch) > 0 {
			select {
			case w.batches <- batch:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if wrong != nil {
			return wrong
		}
		if m, err = recv(); err != nil {
			return err
		}
		if m.Oldest != 0 {
			return kube.TooOld{Oldest: m.Oldest}
		}
	}
}

func (s *source) event(e *wire.RelayEvent, read func([]byte) (*kube.Packed, error)) (watch.Event, error) {
	var o runtime.Object
	var err error
	if b := e.GetPacked(); len(b) > 0 && read != nil {
		o, err = read(b)
	} else {
		o, err = s.decode(e.GetObject())
	}
	if err != nil {
		return watch.Event{}, fmt.Errorf("decode: %w", err)
	}
	switch e.GetType() {
	case wire.RelayEvent_SEEN:
		return watch.Event{Type: watch.Modified, Object: o}, nil
	case wire.RelayEvent_GONE:
		return watch.Event{Type: watch.Deleted, Object: o}, nil
	}
	return watch.Event{}, fmt.Errorf("event of type %d", e.GetType())
}

// bookmark says that nothing is outstanding up to a version.
func bookmark(version uint64) watch.Event {
	return watch.Event{Type: watch.Bookmark, Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{ResourceVersion: strconv.FormatUint(version, 10)}}}
}

// stream implements kube.Batches.
type stream struct {
	batches chan []watch.Event
	cancel  context.CancelFunc
}

func (w *stream) Stop()                         { w.cancel() }
func (w *stream) Batches() <-chan []watch.Event { return w.batches }
