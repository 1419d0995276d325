package demo

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"basalt.dev/basalt/bench/stage/local"
)

// coordinators is how many there are: one that leads and one that waits.
const coordinators = 2

// processes are Basalt's own, each kept alive under its name as a StatefulSet would.
type processes struct {
	cluster *local.Cluster
	shards  int
	program string // Basalt's; bin/basalt if empty
	running []*local.Basalt
}

func (p *processes) shard(i int) string { return fmt.Sprintf("shard-%d", i) }

func (p *processes) start(ctx context.Context) (err error) {
	p.running, err = p.cluster.StartBasalt(ctx, coordinators, p.shards, local.BasaltOptions{Restart: true, Program: p.program})
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

func (p *processes) server() string {
	return strings.Join(local.Answering(p.running), ",")
}

func (p *processes) command(ctx context.Context, args ...string) (string, error) {
	kubeconfig, err := p.cluster.Kubeconfig(local.Admin)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, cmp.Or(p.program, filepath.Join(p.cluster.Root(), "bin", "basalt")), args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "BASALT_SERVER="+p.server())
	said, err := c.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, said)
	}
	return string(said), nil
}

func (p *processes) stop() {
	for i := len(p.running) - 1; i >= 0; i-- { // shards first, so that no coordinator has to move their buckets
		_ = p.running[i].Stop() // how they end is for their own tests
	}
	p.running = nil
}
