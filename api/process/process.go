// Package process is what shard and coordinator processes have in common: an incarnation, the connections to the API server, to the
// control store and to each other, and endpoints for operators. It decides nothing.
//
// Order matters at start and stop. A process listens before it appears in the control store, and disappears from the control
// store before it stops listening.
package process

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/certs"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/gossip"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/metric"
	"basalt.dev/basalt/api/serve"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/trace"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// Options of a process.
type Options struct {
	Role       string               // shard or coordinator
	Name       string               // stable: one that takes the place of another has the same
	Kubeconfig string               // empty: the cluster that it runs in
	Kube       *kube.Clients        // in place of Kubeconfig: an API server in the same process
	Registry   *prometheus.Registry // for the metrics; nil: one of its own

	Etcd    []string
	EtcdTLS credentials.TransportCredentials // of store.ClientTLS; nil: plain

	Listen, Address       string // gRPC: where it listens, and where others reach it
	Gossip, GossipAddress string // memberlist, likewise
	GossipKeyFile         string // of gossip.ReadKeys; empty: not encrypted
	GossipLabel           string
	TLS                   *link.TLS

	Metrics          string        // address for HTTP; empty for none
	MetricsTokenFile string        // see serve.HTTP
	OTLP             string        // endpoint for traces; empty for none
	Config           func() []byte // the configuration in force, to be shown; may be nil
	Log              *slog.Logger
}

// Process is a process's connections.
type Process struct {
	Options
	Incarnation api.Incarnation
	Began       time.Time
	Log         *slog.Logger
	Kube        *kube.Clients
	Store       *store.Store
	Link        *link.Link
	Gossip      *gossip.Gossip
	Traces      *trace.Exporter
	Registry    *prometheus.Registry

	key   ed25519.PrivateKey
	ready sync.Map // what is not ready yet -> error
	mu    sync.Mutex
	shard map[api.Incarnation]*wire.ShardRecord
	lead  *wire.LeaderRecord
	term  int64
}

// Hooks are what a role adds. All but Status may be nil.
type Hooks struct {
	Live     func() error // nil unless the process must be restarted: /livez and pings ask it
	Deliver  func(from api.Incarnation, message *wire.Envelope)
	Up       func(api.Incarnation) // a peer answers
	Down     func(api.Incarnation) // a stream to it broke
	Dead     func(api.Incarnation) // gossip took it for dead
	Status   func(context.Context) (*wire.StatusReply, error)
	Why      func(context.Context, *wire.WhyRequest) (*wire.WhyReply, error)
	Standing func(context.Context, *wire.StandingRequest) (*wire.StandingReply, error)
	WhatIf   func(context.Context, *wire.WhatIfRequest) (*wire.WhatIfReply, error)
	Queues   func(context.Context, *wire.QueuesRequest) (*wire.QueuesReply, error)
	Nodes    func(context.Context) (*wire.NodesReply, error)
	// Drain is nil where there is nothing to drain. by is a user, or empty for an operator by certificate.
	Drain func(ctx context.Context, cancel bool, by string) error
	// MayDrain returns the name of the user on whose behalf a process calls, and an error unless that user may drain
	// this one. nil: nobody may.
	MayDrain func(ctx context.Context, from api.Incarnation, by link.User) (user string, err error)
	// Register adds services to the process's gRPC server before it starts.
	Register func(*Process, grpc.ServiceRegistrar)
}

// Start connects a process. What it cannot reach, it names.
func Start(ctx context.Context, o Options, hooks Hooks) (*Process, error) {
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("make an incarnation: %w", err)
	}
	p := &Process{Options: o, Incarnation: api.Incarnation(hex.EncodeToString(id[:])), Began: fault.Now(),
		Registry: o.Registry, shard: map[api.Incarnation]*wire.ShardRecord{}}
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, fmt.Errorf("make an incarnation: %w", err)
	}
	p.key = key
	if p.Registry == nil {
		p.Registry = serve.Registry()
	}
	p.Log = o.Log.With("incarnation", p.Incarnation)
	p.NotReady("start", "starting")
	if err := p.connect(ctx, hooks); err != nil {
		p.Close()
		return nil, err
	}
	p.Ready("start")
	return p, nil
}

func (p *Process) connect(ctx context.Context, hooks Hooks) (err error) {
	if p.TLS != nil {
		if err := p.TLS.Check(); err != nil {
			return err
		}
	}
	p.Registry.MustRegister(p.expiries())
	if hooks.Live == nil {
		hooks.Live = func() error { return nil }
	}
	if err := serve.HTTP(ctx, serve.Options{Address: p.Metrics, TokenFile: p.MetricsTokenFile, Registry: p.Registry, Ready: p.notReady, Live: hooks.Live, Config: p.Config, Log: p.Log}); err != nil {
		return err
	}
	if p.Kube = p.Options.Kube; p.Kube == nil {
		if p.Kube, err = kube.Connect(p.Kubeconfig, "basalt-"+p.Role+"/"+p.Name); err != nil {
			return err
		}
	}
	if err := p.checkAPIServer(ctx); err != nil {
		return err
	}
	refusals, requests, durations := metric.StoreRefusals.Counters(), metric.StoreRequests.Counters(), metric.StoreRequestDuration.Histograms()
	p.Registry.MustRegister(refusals, requests, durations)
	for _, reason := range []string{store.RefusedNoSpace, store.RefusedCorrupt, store.RefusedPermission, store.RefusedBehind} {
		refusals.WithLabelValues(reason) // with 0, so that the first one is seen to increase it
	}
	if p.Store, err = store.Open(ctx, store.Options{Endpoints: p.Etcd, TLS: p.EtcdTLS, Logger: p.Log,
		Refused: func(reason string) { refusals.WithLabelValues(reason).Inc() },
		Observed: func(method, code string, took time.Duration) {
			requests.WithLabelValues(method, code).Inc()
			durations.WithLabelValues(method).Observe(took.Seconds())
		}}); err != nil {
		return fmt.Errorf("--etcd: %w", err)
	}
	if err := p.checkOthers(ctx); err != nil {
		return err
	}
	if p.Traces, err = trace.New(ctx, p.OTLP, p.Role, p.Name, string(p.Incarnation)); err != nil {
		return fmt.Errorf("--otlp: %w", err)
	}
	p.Link, err = link.New(link.Options{
		Self: p.Incarnation, Listen: p.Listen, TLS: p.TLS, Key: p.key, KeyOf: p.keyOf, Deliver: hooks.Deliver, Up: hooks.Up, Down: hooks.Down, Logger: p.Log,
		Register: func(r grpc.ServiceRegistrar) {
			wire.RegisterInspectServer(r, inspect{process: p, status: hooks.Status, why: hooks.Why,
				standing: hooks.Standing, whatIf: hooks.WhatIf, queues: hooks.Queues, nodes: hooks.Nodes, drain: hooks.Drain,
				mayDrain: hooks.MayDrain, live: hooks.Live})
			if hooks.Register != nil {
				hooks.Register(p, r)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("--listen: %w", err)
	}
	p.Gossip, err = gossip.New(gossip.Options{
		Incarnation: p.Incarnation, Bind: p.Options.Gossip, Advertise: p.GossipAddress, KeyFile: p.GossipKeyFile, Label: p.GossipLabel,
		Meta: gossip.Meta{Name: p.Name, Address: p.Address}, Logger: p.Log,
	}, func(e gossip.Event) {
		if e.Kind == gossip.Dead && hooks.Dead != nil {
			hooks.Dead(e.Member.Incarnation)
		}
	})
	if err != nil {
		return fmt.Errorf("--gossip: %w", err)
	}
	p.Registry.MustRegister(kube.Collectors()...)
	p.Registry.MustRegister(metric.GossipPeers.GaugeFunc(func() float64 { return float64(len(p.Gossip.Members())) }))
	p.Gossip.Rejoin(p.gossipAddresses)
	p.Log.Info("started", "address", p.Address, "gossip", p.Gossip.Address(), "store", p.Store.ID(), "etcd", p.Etcd)
	return nil
}

// expiries are those of the process's certificates.
func (p *Process) expiries() certs.Expiries {
	e := certs.Expiries{"control_store": p.EtcdTLS}
	if p.TLS != nil {
		e["process"] = p.TLS.Credentials()
	}
	return e
}

// checkAPIServer waits a little for the API server, and refuses to start without Basalt's kinds.
func (p *Process) checkAPIServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var last error
	for {
		err := p.Kube.Basalt.Get().Resource("queues").Param("limit", "1").Do(ctx).Error()
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && last != nil: // time was up in the middle of this one: the one before says what is wrong
			return last
		case apierrors.IsNotFound(err):
			err = fmt.Errorf("the API server does not know Queue %s: apply deploy/crds first", v1beta1.SchemeGroupVersion)
		case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
			return fmt.Errorf("API server %s: apply deploy/rbac.yaml first, and see --kubeconfig: %w", p.Kube.Config.Host, err)
		default:
			err = fmt.Errorf("API server %s cannot be reached: %w", p.Kube.Config.Host, err)
		}
		last = err
		p.Log.Warn("waiting for the API server", "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Second):
		}
	}
}

// checkOthers refuses to start beside a process that is too old or too new to be understood.
func (p *Process) checkOthers(run context.Context) error {
	ctx, cancel := context.WithTimeout(run, 30*time.Second)
	defer cancel()
	shards, err := p.Store.Shards(ctx)
	if err != nil {
		return fmt.Errorf("--etcd: %w", err)
	}
	leader, _, err := p.Store.Leader(ctx)
	switch {
	case err != nil && run.Err() != nil: // the process is to end
		return fmt.Errorf("--etcd: %w", err)
	case err != nil:
		p.Log.Error("cannot read who leads", "error", err)
	}
	all := []wire.Announced{}
	for _, s := range shards {
		all = append(all, s)
	}
	if leader != nil {
		all = append(all, leader)
	}
	for _, r := range all {
		if err := wire.Beside(r); err != nil {
			return err
		}
	}
	return nil
}

// Follow keeps the addresses of shards and of the coordinator current, until ctx ends. changed may be nil; it is called
// after each change.
func (p *Process) Follow(ctx context.Context, wg *sync.WaitGroup, changed func(shards []*wire.ShardRecord), leads func(*wire.LeaderRecord, int64)) {
	wg.Go(func() {
		_ = p.Store.WatchShards(ctx, func(shards []*wire.ShardRecord) {
			p.mu.Lock()
			for who := range p.shard {
				if !slices.ContainsFunc(shards, func(s *wire.ShardRecord) bool { return s.Incarnation == string(who) }) {
					p.Link.Forget(who)
				}
			}
			clear(p.shard)
			for _, s := range shards {
				p.shard[api.Incarnation(s.Incarnation)] = s
			}
			p.mu.Unlock()
			if changed != nil {
				changed(shards)
			}
		})
	})
	wg.Go(func() {
		_ = p.Store.WatchLeader(ctx, func(r *wire.LeaderRecord, term int64) {
			p.mu.Lock()
			p.lead, p.term = r, term
			p.mu.Unlock()
			if leads != nil {
				leads(r, term)
			}
		})
	})
}

// SendShard sends to a shard that is registered; to others the message is lost, as to one that is too old to know it.
func (p *Process) SendShard(to api.Incarnation, body *wire.Envelope) {
	p.mu.Lock()
	s := p.shard[to]
	p.mu.Unlock()
	if s != nil && (wire.ProtocolOf(s) >= wire.Protocol || wire.ProtocolOf(s) >= wire.SpokenSince(body)) {
		p.Link.Send(to, s.Address, body)
	}
}

// Shard returns the record of a shard that is registered, else nil.
func (p *Process) Shard(who api.Incarnation) *wire.ShardRecord {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shard[who]
}

// SendCoordinator sends to the active coordinator; without one the message is lost.
func (p *Process) SendCoordinator(body *wire.Envelope) {
	p.mu.Lock()
	lead := p.lead
	p.mu.Unlock()
	if lead != nil {
		p.Link.Send(api.Incarnation(lead.Incarnation), lead.Address, body)
	}
}

// Coordinator returns the record of the coordinator that leads, nil if none is known.
func (p *Process) Coordinator() *wire.LeaderRecord {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lead
}

// IsCoordinator reports whether a message's sender leads, as far as is known here.
func (p *Process) IsCoordinator(who api.Incarnation) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lead != nil && p.lead.Incarnation == string(who)
}

// PublicKey is what this incarnation's record in the control store has to carry: its calls are signed with it.
func (p *Process) PublicKey() []byte { return p.key.Public().(ed25519.PublicKey) }

func (p *Process) keyOf(who api.Incarnation) (link.Record, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.shard[who]; s != nil {
		return link.Record{Key: s.Key, Role: certs.NameShard}, true
	}
	if p.lead != nil && p.lead.Incarnation == string(who) {
		return link.Record{Key: p.lead.Key, Role: certs.NameCoordinator}, true
	}
	return link.Record{}, false
}

func (p *Process) gossipAddresses() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []string
	for who, s := range p.shard {
		if who != p.Incarnation && s.Gossip != "" {
			out = append(out, s.Gossip)
		}
	}
	slices.Sort(out)
	return out
}

// NotReady and Ready say why /readyz does not answer ok.
func (p *Process) NotReady(what, why string) { p.ready.Store(what, why) }

// Ready takes a reason back.
func (p *Process) Ready(what string) { p.ready.Delete(what) }

func (p *Process) notReady() (err error) {
	p.ready.Range(func(what, why any) bool {
		err = fmt.Errorf("%v: %v", what, why)
		return false
	})
	return err
}

// Close ends all connections.
func (p *Process) Close() {
	if p.Gossip != nil {
		_ = p.Gossip.Close()
	}
	if p.Link != nil {
		p.Link.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = p.Traces.Shutdown(ctx)
	if p.Store != nil {
		_ = p.Store.Close()
	}
}

type inspect struct {
	wire.UnimplementedInspectServer
	process  *Process
	status   func(context.Context) (*wire.StatusReply, error)
	why      func(context.Context, *wire.WhyRequest) (*wire.WhyReply, error)
	standing func(context.Context, *wire.StandingRequest) (*wire.StandingReply, error)
	whatIf   func(context.Context, *wire.WhatIfRequest) (*wire.WhatIfReply, error)
	queues   func(context.Context, *wire.QueuesRequest) (*wire.QueuesReply, error)
	nodes    func(context.Context) (*wire.NodesReply, error)
	drain    func(ctx context.Context, cancel bool, by string) error
	mayDrain func(ctx context.Context, from api.Incarnation, by link.User) (string, error)
	live     func() error
}

func (i inspect) Drain(ctx context.Context, r *wire.DrainRequest) (*wire.DrainReply, error) {
	if i.drain == nil {
		return nil, status.Errorf(codes.Unimplemented, "a %s has no buckets to give away", i.process.Role)
	}
	by := ""
	if from := link.Caller(ctx); from != "" { // a process, on behalf of a user: it may be wrong about who that is
		if i.mayDrain == nil {
			return nil, status.Error(codes.PermissionDenied, "only an operator may drain this")
		}
		var err error
		if by, err = i.mayDrain(ctx, from, link.UserOf(ctx)); err != nil {
			return nil, status.Error(codes.PermissionDenied, err.Error())
		}
	}
	if err := i.drain(ctx, r.GetCancel(), by); err != nil {
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	return &wire.DrainReply{}, nil
}

// Why answers another shard, which has seen to it that its user may ask.
func (i inspect) Why(ctx context.Context, r *wire.WhyRequest) (*wire.WhyReply, error) {
	if i.why == nil {
		return nil, status.Errorf(codes.Unimplemented, "a %s has no gangs", i.process.Role)
	}
	return i.why(ctx, r)
}

// Standing answers a shard, likewise.
func (i inspect) Standing(ctx context.Context, r *wire.StandingRequest) (*wire.StandingReply, error) {
	if i.standing == nil {
		return nil, status.Errorf(codes.Unimplemented, "a %s knows no order", i.process.Role)
	}
	return i.standing(ctx, r)
}

// WhatIf answers a shard, likewise.
func (i inspect) WhatIf(ctx context.Context, r *wire.WhatIfRequest) (*wire.WhatIfReply, error) {
	if i.whatIf == nil {
		return nil, status.Errorf(codes.Unimplemented, "a %s knows no order", i.process.Role)
	}
	return i.whatIf(ctx, r)
}

// Queues answers a shard, likewise.
func (i inspect) Queues(ctx context.Context, r *wire.QueuesRequest) (*wire.QueuesReply, error) {
	if i.queues == nil {
		return nil, status.Errorf(codes.Unimplemented, "a %s knows no queues", i.process.Role)
	}
	return i.queues(ctx, r)
}

// Nodes answers a shard, likewise.
func (i inspect) Nodes(ctx context.Context, _ *wire.NodesRequest) (*wire.NodesReply, error) {
	if i.nodes == nil {
		return nil, status.Errorf(codes.Unimplemented, "a %s has no nodes", i.process.Role)
	}
	return i.nodes(ctx)
}

// Status answers a ping without waiting for the loop, which may be busy: a machine under load must not look like a dead
// one. A loop that is stuck does: its process answers no ping.
func (i inspect) Status(ctx context.Context, r *wire.StatusRequest) (*wire.StatusReply, error) {
	if r.GetPing() {
		if err := i.live(); err != nil {
			return nil, status.Error(codes.Unavailable, err.Error())
		}
		return &wire.StatusReply{Name: i.process.Name, Incarnation: string(i.process.Incarnation), Role: i.process.Role}, nil
	}
	return i.status(ctx)
}
