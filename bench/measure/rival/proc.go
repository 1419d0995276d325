package rival

import (
	"context"
	"os"
	"strings"
	"time"

	"basalt.dev/basalt/bench/stage/local"
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
	at              time.Duration
	bound, existing int // pods
	use             map[string]local.Usage
}

// look looks four times a second until the context ends.
func look(ctx context.Context, begin time.Time, groups map[string][]int, pods *podWatch) []sample {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	var out []sample
	for {
		bound, _ := pods.count()
		out = append(out, sample{time.Since(begin), bound, pods.existing(), use(groups)})
		select {
		case <-ctx.Done():
			return out
		case <-tick.C:
		}
	}
}

// inside is one look into Basalt's processes, at all of them.
type inside struct {
	at               time.Duration
	heap, goroutines float64 // bytes in use, number
}

// lookInside asks Basalt's processes every five seconds until the context ends; an answer that does not come is left out.
func lookInside(ctx context.Context, begin time.Time, processes []*local.Basalt) []inside {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	var out []inside
	for {
		select {
		case <-ctx.Done():
			return out
		case <-tick.C:
		}
		now, whole := inside{at: time.Since(begin)}, true
		for _, b := range processes {
			m, err := b.Samples(ctx)
			whole = whole && err == nil
			now.heap, now.goroutines = now.heap+m["go_memstats_heap_inuse_bytes"], now.goroutines+m["go_goroutines"]
		}
		if whole {
			out = append(out, now)
		}
	}
}
