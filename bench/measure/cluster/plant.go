// Package cluster runs all real parts of Basalt but the API server, on this machine, in one process beside its control
// store: shards and coordinators with their gRPC, gossip and etcd, over package memory. It makes the load, stands in for
// the kubelets, and counts.
//
// What it measures is the protocol: an API server costs twenty times more for each pod than Basalt may. CPU time is that of
// Basalt's part of the program and of the etcd; the load, the stand-ins and the API are counted apart (usage.go).
//
// It decides when gangs come and how long their pods run; it owns nothing of Basalt's state and reads none: every figure is
// from the API, from the control store's revision, or from the metrics that the processes export. The oracle knows only
// what the API shows.
package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"basalt.dev/basalt/api/process"
	"basalt.dev/basalt/api/serve"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/memory"
	coordinator "basalt.dev/basalt/coordinator/server"
	shard "basalt.dev/basalt/shard/server"
)

// Plant is a running Basalt.
type Plant struct {
	API  *memory.Server
	Etcd *local.Etcd

	store      *clientv3.Client
	registries []*prometheus.Registry
	cancel     context.CancelFunc
	wg         sync.WaitGroup
	died       chan error
}

// PlantOptions say what runs.
type PlantOptions struct {
	Root   string // the repository, with bin/etcd built
	Dir    string // for the control store's data and the log
	Shards int
	Seed   uint64
	Policy string // pack, spread, least-allocated or most-allocated
	API    *memory.Server
	Wire   bool // shards read over it, through their relay

	Coordinators int    // of which one leads
	OTLP         string // where spans go; empty: there are none
}

// StartPlant starts a control store, coordinators and shards, and returns when every shard owns buckets.
func StartPlant(ctx context.Context, o PlantOptions) (*Plant, error) {
	etcd, err := local.StartEtcd(ctx, local.EtcdOptions{Root: o.Root, Dir: o.Dir, Name: "control-store", NoSync: true})
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(o.Dir, "basalt.log"))
	if err != nil {
		return nil, errors.Join(err, etcd.Stop())
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	p := &Plant{API: o.API, Etcd: etcd, cancel: cancel, died: make(chan error, o.Shards+o.Coordinators)}
	if p.store, err = clientv3.New(clientv3.Config{Endpoints: etcd.Endpoints(), Logger: zap.NewNop()}); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	ports, err := local.FreePorts(2 * (o.Shards + o.Coordinators))
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	address := func() string {
		port := ports[0]
		ports = ports[1:]
		return fmt.Sprintf("127.0.0.1:%d", port)
	}
	handler := slog.NewTextHandler(log, nil)
	options := func(role, name string) (process.Options, error) {
		clients, err := o.API.Clients("basalt-"+role+"/"+name, o.Wire)
		if err != nil {
			return process.Options{}, err
		}
		registry := serve.Registry()
		p.registries = append(p.registries, registry)
		listen, gossip := address(), address()
		return process.Options{
			Role: role, Name: name, Kube: clients, Registry: registry, Etcd: etcd.Endpoints(), Listen: listen, Address: listen, Gossip: gossip, GossipAddress: gossip,
			GossipLabel: "bench", OTLP: o.OTLP, Log: slog.New(handler).With("role", role, "name", name),
		}, nil
	}
	run := func(name string, f func(context.Context) error) {
		p.wg.Go(func() {
			if err := asBasalt(running, name, f); running.Err() == nil {
				p.died <- fmt.Errorf("%s ended, see %s: %w", name, log.Name(), err)
			}
		})
	}
	for i := range o.Coordinators {
		c, err := options("coordinator", fmt.Sprintf("coordinator-%d", i))
		if err != nil {
			return nil, errors.Join(err, p.Stop())
		}
		run(c.Name, func(ctx context.Context) error { return coordinator.Run(ctx, coordinator.Options{Process: c}) })
	}
	for i := range o.Shards {
		s, err := options("shard", fmt.Sprintf("shard-%d", i))
		if err != nil {
			return nil, errors.Join(err, p.Stop())
		}
		// One program that runs everything is busier than any machine of one shard would be: leases are long.
		run(s.Name, func(ctx context.Context) error {
			return shard.Run(ctx, shard.Options{Process: s, Policy: o.Policy, LeaseTTL: 30 * time.Second})
		})
	}
	if err := p.ready(ctx, o.Shards); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// ready waits until every shard owns buckets.
func (p *Plant) ready(ctx context.Context, shards int) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for {
		total, owners := 0.0, 0
		for _, n := range p.metric("basalt_shard_buckets").each {
			if total += n; n > 0 {
				owners++
			}
		}
		if owners == shards && total == 1024 {
			return nil
		}
		select {
		case err := <-p.died:
			return err
		case <-ctx.Done():
			return fmt.Errorf("wait for %d shards to own all buckets: %w", shards, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// Depose ends the term of the leader as the end of its lease does: without a word to it, or from it. Another coordinator leads next.
func (p *Plant) Depose(ctx context.Context) error {
	got, err := p.store.Get(ctx, protocol.Keys("").Leader())
	if err != nil || len(got.Kvs) == 0 {
		return fmt.Errorf("find the leader's lease: %w", cmp.Or(err, errors.New("nobody leads")))
	}
	if _, err := p.store.Revoke(ctx, clientv3.LeaseID(got.Kvs[0].Lease)); err != nil {
		return fmt.Errorf("revoke the leader's lease: %w", err)
	}
	return nil
}

// Died tells of a process that ended by itself.
func (p *Plant) Died() <-chan error { return p.died }

// Stop ends everything.
func (p *Plant) Stop() error {
	p.cancel()
	p.wg.Wait()
	if p.store != nil {
		_ = p.store.Close()
	}
	return p.Etcd.Stop()
}

// sample is a metric over all processes.
type sample struct {
	sum     float64
	each    []float64 // one a process that has it
	byLabel map[string]float64
}

// metric sums a counter or gauge, or the count of a histogram, over all processes.
func (p *Plant) metric(name string) sample {
	s := sample{byLabel: map[string]float64{}}
	for _, r := range p.registries {
		families, err := r.Gather()
		if err != nil {
			continue
		}
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			of := 0.0
			for _, m := range f.Metric {
				v := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
				labels := ""
				for _, l := range m.Label {
					if labels != "" {
						labels += " "
					}
					labels += l.GetValue()
				}
				s.byLabel[labels] += v
				of += v
			}
			s.sum += of
			s.each = append(s.each, of)
		}
	}
	return s
}

// storeState is the control store's revision, which counts its write transactions, and its size in bytes.
func (p *Plant) storeState(ctx context.Context) (revision, size int64, err error) {
	r, err := p.store.Status(ctx, p.Etcd.Endpoints()[0])
	if err != nil {
		return 0, 0, fmt.Errorf("read the control store's state: %w", err)
	}
	return r.Header.Revision, r.DbSizeInUse, nil
}

// storeCPU is what the control store used so far.
func (p *Plant) storeCPU() time.Duration { return local.UsageOf(p.Etcd.Process().Pid()).CPU }
