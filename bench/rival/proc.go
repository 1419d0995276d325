package rival

import (
	"context"
	"os"
	"strings"
	"time"

	"basalt.dev/basalt/bench/local"
)

// Groups of processes.
const (
	apiServer   = "API server"
	apiEtcd     = "API server's etcd"
	control     = "control store"
	shards      = "shards"
	coordinator = "coordinators"
	scheduler   = "scheduler"
	loader      = "load"
)

// groupsOf returns the processes that are measured, by group.
func groupsOf(c *local.Cluster, pids map[string]int) map[string][]int {
	out := map[string][]int{loader: {os.Getpid()}}
	for name, pid := range pids {
		switch name {
		case "apiserver":
			name = apiServer
		case "etcd":
			name = apiEtcd
		}
		out[name] = append(out[name], pid)
	}
	if c == nil {
		return out
	}
	basalt := map[*local.Process]string{}
	for _, b := range c.Basalts() {
		basalt[b.Process] = map[string]string{"shard": shards, "coordinator": coordinator}[b.Role]
	}
	for _, p := range c.Processes() {
		group := basalt[p]
		switch name := p.Name(); {
		case group != "":
		case name == "kube-apiserver":
			group = apiServer
		case strings.HasPrefix(name, "etcd api-store"):
			group = apiEtcd
		case strings.HasPrefix(name, "etcd control-store"):
			group = control
		case name == "kube-scheduler":
			group = scheduler
		default:
			continue
		}
		out[group] = append(out[group], p.Pid())
	}
	return out
}

func use(groups map[string][]int) map[string]local.Usage {
	out := map[string]local.Usage{}
	for name, pids := range groups {
		for _, pid := range pids {
			out[name] = out[name].Plus(local.UsageOf(pid))
		}
	}
	return out
}

// sample is one look at all processes.
type sample struct {
	at    time.Duration
	bound int
	use   map[string]local.Usage
}

// look looks four times a second until the context ends.
func look(ctx context.Context, begin time.Time, groups map[string][]int, bound func() int) []sample {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var out []sample
	for {
		out = append(out, sample{time.Since(begin), bound(), use(groups)})
		select {
		case <-ctx.Done():
			return out
		case <-tick.C:
		}
	}
}
