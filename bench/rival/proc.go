package rival

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
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

// ticks a second: USER_HZ is 100 on every Linux that Go runs on.
const ticks = 100

// usage is CPU time and resident memory.
type usage struct {
	cpu    time.Duration
	memory int64
}

func (u usage) plus(o usage) usage { return usage{u.cpu + o.cpu, u.memory + o.memory} }

// usageOf reads /proc; a process that is gone uses nothing.
func usageOf(pid int) usage {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return usage{}
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name before may hold anything
	if len(fields) < 22 {
		return usage{}
	}
	number := func(i int) int64 { n, _ := strconv.ParseInt(fields[i], 10, 64); return n }
	return usage{time.Duration(number(11)+number(12)) * time.Second / ticks, number(21) * int64(os.Getpagesize())}
}

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

func use(groups map[string][]int) map[string]usage {
	out := map[string]usage{}
	for name, pids := range groups {
		for _, pid := range pids {
			out[name] = out[name].plus(usageOf(pid))
		}
	}
	return out
}

// sample is one look at all processes.
type sample struct {
	at    time.Duration
	bound int
	use   map[string]usage
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
