package demo

import (
	"context"
	"fmt"

	"basalt.dev/basalt/bench/stage/local"
)

// coordinators is how many there are: one that leads and one that waits.
const coordinators = 2

// processes are Basalt's own, each kept alive under its name as a StatefulSet would.
type processes struct {
	cluster *local.Cluster
	shards  int
	running []*local.Basalt
}

func (p *processes) shard(i int) string { return fmt.Sprintf("shard-%d", i) }

func (p *processes) start(ctx context.Context) (err error) {
	p.running, err = p.cluster.StartBasalt(ctx, coordinators, p.shards, local.BasaltOptions{Restart: true})
	return err
}

func (p *processes) kill(name string) error {
	for _, b := range p.running {
		if b.Name() == name {
			b.Kill()
			return nil
		}
	}
	return fmt.Errorf("no process %s", name)
}

func (p *processes) stop() {
	for i := len(p.running) - 1; i >= 0; i-- { // shards first, so that no coordinator has to move their buckets
		_ = p.running[i].Stop() // how they end is for their own tests
	}
	p.running = nil
}
