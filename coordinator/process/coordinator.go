// Package process is the shell around the coordinator's core: the process `basalt coordinator`. It decides nothing.
//
// Several run; one leads. Leading is a term: win the election, read the state at one revision, make a core of it, and step
// that core on one goroutine until the term ends for whatever reason. Then the core is dropped, with everything in it:
// what mattered is in the control store.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/link"
	"basalt.dev/basalt/api/process"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/v1alpha1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/coordinator"
)

// Options of a coordinator.
type Options struct {
	Process process.Options
	Config  coordinator.Config
}

// Run runs a coordinator until ctx ends, which is no error, or until it must start over.
func Run(ctx context.Context, o Options) error {
	stopping := ctx
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()

	c := &candidate{options: o, started: make(chan struct{})}
	p, err := process.Start(stopping, o.Process, process.Hooks{
		Deliver: func(from api.Incarnation, body *wire.Envelope) {
			<-c.started
			c.post(ctx, coordinator.Message{From: from, Body: body})
		},
		Up:     func(who api.Incarnation) { <-c.started; c.post(ctx, coordinator.ShardLinked{Incarnation: who}) },
		Down:   func(who api.Incarnation) { <-c.started; c.suspect(ctx, who) },
		Dead:   func(who api.Incarnation) { <-c.started; c.suspect(ctx, who) },
		Status: c.status,
	})
	if err != nil {
		return err
	}
	defer p.Close()
	c.process, c.metrics = p, newMetrics(p.Registry)
	close(c.started)

	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	p.Follow(ctx, &wg, func(shards []*wire.ShardRecord) { c.shardsSeen(ctx, shards) }, nil)

	record := &wire.LeaderRecord{Incarnation: string(p.Incarnation), Name: p.Name, Address: p.Address}
	for {
		held, err := p.Store.Campaign(stopping, record)
		if stopping.Err() != nil {
			return nil
		}
		if err != nil {
			if lost := p.lostStore(err); lost != nil {
				return lost
			}
			p.Log.Warn("campaign failed, trying again", "error", err)
			select {
			case <-stopping.Done():
				return nil
			case <-time.After(500 * time.Millisecond):
			}
			continue
		}
		err = c.lead(ctx, stopping, held)
		if stopping.Err() != nil {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			return held.Resign(ctx)
		}
		p.Log.Warn("the term is over", "term", held.Number(), "error", err)
		if lost := p.lostStore(err); lost != nil {
			return lost
		}
	}
}

// candidate is a coordinator that leads at times.
type candidate struct {
	options Options
	process *process.Process
	metrics *metrics
	started chan struct{}

	mu      sync.Mutex
	term    *term // nil while another leads
	suspect map[api.Incarnation]bool
	shards  []*wire.ShardRecord
}

// term is one time in office.
type term struct {
	*store.Term
	clients *kube.Clients
	log     *slog.Logger
	inbox   chan item
	done    <-chan struct{}
}

type item struct {
	event coordinator.Event
	ask   func(*coordinator.Core)
}
