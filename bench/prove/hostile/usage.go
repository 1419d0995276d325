package hostile

import (
	"context"
	"os"
	"strings"
	"time"

	"basalt.dev/basalt/bench/stage/local"
)

// Usage is CPU time by who took it, and what Basalt wrote to the API server meanwhile.
type Usage struct {
	For          time.Duration
	Coordinators time.Duration
	Shards       time.Duration
	ControlStore time.Duration
	APIServer    time.Duration // with its etcd
	Others       time.Duration // kube-controller-manager and this suite: its attacker, its load, its auditor
	Writes       int64         // Bindings, statuses, conditions and evictions of the shards
}

// Basalt is what Basalt and its control store took.
func (u Usage) Basalt() time.Duration { return u.Coordinators + u.Shards + u.ControlStore }

// share is the part of one CPU, in percent.
func (u Usage) share(d time.Duration) float64 {
	return 100 * d.Seconds() / max(u.For.Seconds(), 0.001)
}

// rate is the writes a second.
func (u Usage) rate() float64 { return float64(u.Writes) / max(u.For.Seconds(), 0.001) }

// since returns what was used after an earlier reading. A process that started anew counts from its start.
func (u Usage) since(before Usage) Usage {
	return Usage{
		For: u.For - before.For, Coordinators: max(0, u.Coordinators-before.Coordinators), Shards: max(0, u.Shards-before.Shards),
		ControlStore: u.ControlStore - before.ControlStore, APIServer: u.APIServer - before.APIServer, Others: u.Others - before.Others,
		Writes: max(0, u.Writes-before.Writes),
	}
}

// usage reads what was used since the start of the run.
func (r *run) usage(ctx context.Context) Usage {
	u := Usage{For: time.Since(r.begin), Others: local.UsageOf(os.Getpid()).CPU}
	for _, p := range r.Cluster.Processes() {
		used := local.UsageOf(p.Pid()).CPU
		switch name := p.Name(); {
		case strings.HasPrefix(name, "shard-"):
			u.Shards += used
		case strings.HasPrefix(name, "coordinator-"):
			u.Coordinators += used
		case strings.HasPrefix(name, "etcd control-store"):
			u.ControlStore += used
		case name == "kube-apiserver", strings.HasPrefix(name, "etcd "):
			u.APIServer += used
		default:
			u.Others += used
		}
	}
	for _, b := range r.basalts {
		samples, err := b.Samples(ctx)
		if err != nil {
			continue
		}
		for name, n := range samples {
			if strings.HasPrefix(name, "basalt_shard_bindings_total") || strings.HasPrefix(name, "basalt_shard_api_writes_total") {
				u.Writes += int64(n)
			}
		}
	}
	return u
}
