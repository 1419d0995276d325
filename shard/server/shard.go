// Package server is the shell around the cores of a shard (see package shard): the process `basalt shard`. It decides
// nothing. It turns watch events, messages and responses into events for the cores, and carries out what the cores
// request.
//
// One goroutine, loop.run, steps the home and node cores; another, storage.run, steps the volumes core, through which
// the watches of pods, nodes and storage go. Calls that block run on workers, and their results come back as events.
// The process ends when its session is lost or the control store is replaced, and its supervisor starts a new one:
// all state worth keeping is in the API server or in the control store.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/build"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/process"
	"basalt.dev/basalt/api/relay"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/tiers"
	"basalt.dev/basalt/api/visibility"
	"basalt.dev/basalt/api/visibility/frontproxy"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
	"basalt.dev/basalt/shard/cores"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

// Options of a shard.
type Options struct {
	Process          process.Options
	Policy           string       // pack, spread, least-allocated or most-allocated
	Volcano          string       // "off"; "observe": pods may belong to Volcano's PodGroups, which are read; "write": so are their statuses
	Schedulers       []string     // names in spec.schedulerName of the pods that Basalt places; empty for "basalt" alone
	IgnoredResources []string     // that placement does not look at
	TopologyLevels   []string     // labels of nodes, from the largest kind of topology domain to the smallest
	ImageLocality    bool         // pods prefer nodes that have their images
	PodEvents        *atomic.Bool // an event on each pod that is bound; it may change while the shard runs; nil: none
	Visibility       string       // address on which users' questions are answered (package visibility); empty for none

	NodeTiers []tiers.Class // classes of pods, and which nodes are best for each

	// LeaseTTL is 6 s if 0. A dead shard is noticed sooner, by its broken streams; the lease is for one that is silent,
	// and a machine under load must not look like that.
	LeaseTTL time.Duration
}

// Workers for calls that wait. The API server's own limits, not ours, should be what bounds the rate.
const (
	bindWorkers    = 32
	resolveWorkers = 16
	otherWorkers   = 16
	volumeWorkers  = 16
	storeWorkers   = 4
	inboxSize      = 4096
)

// gather is the shortest time between two intent transactions that are not full. A gang is on its way for some 100
// ms, and a transaction costs 0.3 ms of CPU here and at the control store: with many small gangs it is what a pod
// costs most.
const gather = 50 * time.Millisecond

// relayBucket is the bucket whose owner watches pods and the like for all shards. Shards that know different tables
// may ask different ones; that costs a watch and no more.
const relayBucket = 0

// Run runs a shard until ctx ends, which is no error, or until it must start over.
func Run(ctx context.Context, o Options) error {
	policy, err := o.check()
	if err != nil {
		return err
	}
	stopping := ctx
	ctx, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	defer fail(nil)

	l := &loop{inbox: make(chan item, inboxSize), fail: func(err error) { fail(err) }, started: make(chan struct{}), registered: make(chan struct{})}
	defer func() { // after the connections, which read it
		if l.relay != nil {
			l.relay.Close()
		}
	}()
	p, err := process.Start(stopping, o.Process, l.hooks(ctx))
	if err != nil {
		return err
	}
	defer p.Close()
	l.process, l.self, l.log, l.clients, l.traces = p, p.Incarnation, p.Log, p.Kube, p.Traces
	l.metrics, l.reviews = newMetrics(p.Registry), visibility.NewReviews(p.Kube.Core, p.Log)
	failures := tierFailures{log: p.Log, counts: l.metrics.tierFailures, told: map[string]int{}}
	rules, err := o.rules(failures.tell)
	if err != nil {
		return err
	}
	if l.events.Recorder, err = p.Kube.Recorder(ctx); err != nil {
		return fmt.Errorf("record events: %w", err)
	}
	l.podEvents = o.PodEvents
	l.cores = cores.New(l.self, home.Config{Levels: o.TopologyLevels, Tracing: p.Traces != nil,
		PodEvents: o.PodEvents != nil && o.PodEvents.Load()},
		node.Config{Policy: policy, Tracing: p.Traces != nil, WriteEvery: gather})
	close(l.started)

	var wg sync.WaitGroup
	defer wg.Wait()
	defer fail(nil)
	l.reads, l.writes = newWorkers(ctx, 1), newWorkers(ctx, storeWorkers)
	l.binds, l.resolves, l.others = newWorkers(ctx, bindWorkers), newWorkers(ctx, resolveWorkers), newWorkers(ctx, otherWorkers)
	l.volumes, l.bindings = newWorkers(ctx, volumeWorkers), newWorkers(ctx, 1)
	wg.Go(func() { l.run(ctx) })

	p.NotReady("watches", "listing the cluster for the first time")
	l.watches = &watches{
		clients: p.Kube, log: p.Log, relay: l.relay, rules: rules, writeVolcano: o.Volcano == "write",
		post:  func(events []event.Event) { l.post(ctx, events...) },
		write: l.writeVolume,
	}
	if err := l.watches.run(ctx, stopping, &wg); err != nil {
		return err
	}
	wg.Go(func() { l.watches.pods.Run(ctx) }) // what a takeover will ask for, while a table is waited for
	p.Ready("watches")

	l.followLog(ctx, &wg)
	if err := l.answerUsers(ctx, o.Visibility); err != nil { // who registers and ends moves buckets twice
		return err
	}

	// Only now may it be given anything: the cores know nodes, queues, groups and namespaces.
	record := &wire.ShardRecord{Incarnation: string(l.self), Name: p.Name, Address: p.Address, Gossip: p.GossipAddress, Key: p.PublicKey(),
		Protocol: wire.Protocol, Version: build.Current().Short()}
	if o.LeaseTTL == 0 {
		o.LeaseTTL = 6 * time.Second
	}
	session, err := p.Store.Register(stopping, record, o.LeaseTTL)
	if err != nil {
		return fmt.Errorf("register in the control store: %w", err)
	}
	fault.Crash(fault.ShardRegistered)
	l.session, l.record = session, record
	close(l.registered)
	p.Follow(ctx, &wg, nil, func(r *wire.LeaderRecord, term int64) {
		l.post(ctx, event.CoordinatorSeen{Term: term, Incarnation: api.Incarnation(r.GetIncarnation())})
	})
	wg.Go(func() {
		_ = p.Store.WatchTable(ctx, func(t *api.Table) {
			l.relay.Ask(t.Owner(relayBucket))
			l.post(ctx, event.TableSeen{Table: t})
		})
	})

	return l.end(ctx, stopping)
}

// check returns the policy of placement, or what is wrong with the options.
func (o *Options) check() (cache.Policy, error) {
	if slices.Contains(o.Schedulers, "") {
		return 0, errors.New("--scheduler-names: a name is empty; " +
			"pods without spec.schedulerName get default-scheduler from the API server")
	}
	if err := api.CheckVolcano(cmp.Or(o.Volcano, "off")); err != nil {
		return 0, err
	}
	return readPolicy(o.Policy)
}

// rules are those by which objects are read. failed is told of expressions that fail for some object.
func (o *Options) rules(failed func(tiers.Failure)) (api.Rules, error) {
	writes := o.Volcano == "write"
	rules := api.Rules{Schedulers: o.Schedulers, Volcano: writes || o.Volcano == "observe", Leased: writes,
		Ignored: map[string]bool{}, Levels: o.TopologyLevels, Images: o.ImageLocality}
	for _, r := range o.IgnoredResources {
		rules.Ignored[r] = true
	}
	var err error
	rules.Tiers, err = tiers.Compile(o.NodeTiers, failed)
	return rules, err
}

// hooks are what the process asks of the loop, in part before that has started.
func (l *loop) hooks(ctx context.Context) process.Hooks {
	return process.Hooks{
		Deliver:  func(from api.Incarnation, body *wire.Envelope) { l.deliver(ctx, from, body) },
		Status:   l.status,
		Why:      l.why,
		Nodes:    l.nodes,
		Drain:    l.drain,
		MayDrain: l.mayDrain,
		Live:     l.beat.Stuck,
		Register: func(p *process.Process, server grpc.ServiceRegistrar) {
			l.relay = relay.New(relay.Options{
				Self: p.Incarnation, Log: p.Log, Registry: p.Registry,
				Dial:    func(who api.Incarnation, address string) (*grpc.ClientConn, error) { return p.Link.Dial(who, address) },
				Address: func(who api.Incarnation) string { return p.Shard(who).GetAddress() },
			}, server)
		},
	}
}

// followLog has the loop told the log of intents, and returns once it was read.
func (l *loop) followLog(ctx context.Context, wg *sync.WaitGroup) {
	p := l.process
	p.NotReady("log", "reading the log of intents for the first time")
	read := make(chan struct{})
	wg.Go(func() {
		first := sync.OnceFunc(func() { close(read) })
		_ = p.Store.WatchIntents(ctx, func(all store.Intents) {
			l.post(ctx, event.LogRead{Revision: all.Revision, Intents: logged(all)})
			first()
		}, func(some store.Intents) {
			l.post(ctx, event.LogSeen{Revision: some.Revision, Intents: logged(some)})
		})
	})
	select {
	case <-read:
	case <-ctx.Done():
	}
	p.Ready("log")
}

// end returns when the process is to end, and why: nil if it was asked to.
func (l *loop) end(ctx, stopping context.Context) error {
	p, session := l.process, l.session
	select {
	case <-stopping.Done():
		p.Log.Info("stopping: closing the session so that other shards take over")
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		fault.Crash(fault.ShardStopping)
		err := session.Deregister(ctx)
		fault.Crash(fault.ShardGone)
		return err
	case <-session.Done():
		return fmt.Errorf("%w: start over", protocol.ErrSessionLost)
	case err := <-p.Store.Lost():
		return fmt.Errorf("start over: %w", err)
	case <-ctx.Done():
		return fmt.Errorf("start over: %w", context.Cause(ctx))
	}
}

// answerUsers serves what users ask at an address, nothing if there is none.
func (l *loop) answerUsers(ctx context.Context, address string) error {
	p := l.process
	questions := visibility.Options{Address: address, Kube: p.Kube.Core, Reviews: l.reviews, Log: p.Log,
		Answer: l.whyAnywhere, Standing: l.standing, WhatIf: l.whatIf, Queues: l.queues,
		Status: l.statusOfAll, Nodes: l.nodesOfAll, Draining: l.draining, Drain: l.drainAnywhere}
	if p.TLS != nil {
		questions.TLS = p.TLS.Server()
		if address != "" {
			questions.Trust = frontproxy.Follow(ctx, p.Kube.Core, p.Log).Trust
		}
	}
	at, err := visibility.Serve(ctx, questions)
	if at != nil {
		p.Log.Info("visibility API listening", "address", at.String())
	}
	return err
}

func readPolicy(s string) (cache.Policy, error) {
	policy, ok := cache.ReadPolicy(s)
	if !ok {
		return 0, fmt.Errorf("--placement %q: must be pack, spread, least-allocated or most-allocated", s)
	}
	return policy, nil
}

// drain has the coordinator give this shard's buckets to the others, or give it its part again: it reads so in the
// shard's own record. The shard goes on until it owns nothing, and then it may be stopped without a takeover.
func (l *loop) drain(ctx context.Context, cancel bool, by string) error {
	select {
	case <-l.registered:
	case <-ctx.Done():
		return errNotStarted
	}
	record := proto.CloneOf(l.record)
	record.Draining = !cancel
	if err := l.session.Update(ctx, record); err != nil {
		return err
	}
	l.log.Info("record changed", "draining", record.Draining, "by", cmp.Or(by, "an operator"))
	return nil
}

// deliver takes a message from a peer.
func (l *loop) deliver(ctx context.Context, from api.Incarnation, body *wire.Envelope) {
	<-l.started // a peer may be faster than our start
	if l.process.IsCoordinator(from) {
		from = event.ToCoordinator
	}
	l.post(ctx, event.Message{From: from, Body: body})
}

var errNotStarted = errors.New("starting")
