package failures

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/bench/stage/local"
)

const (
	ignored = "example.com/ignored" // on the ignore list of the shards
	fpga    = "example.com/fpga"    // appears and vanishes
	late    = "example.com/late"    // unknown at first
)

// Node updates come as fast as the API server takes them beside the load, and 10,000 a second more are fed to one shard
// below its watch, while jobs are created: allocatable, labels, extended resources that appear and vanish, resources that are
// ignored. No race, no panic, and every decision is right. Both runs need a program with the tag: it feeds itself.
func TestNodeStorm(t *testing.T) {
	failure{
		bug: fault.SharedNodes, evidence: `DATA RACE|jobs? to be placed`, scenario: nodeStorm, tagged: true,
		shardFlags: []string{"--ignored-resources=" + ignored}, ignored: []string{ignored},
		firstEnv: []string{fmt.Sprintf("BASALT_NODE_STORM=10000/%d", 120_000**long)},
	}.show(t)
}

func nodeStorm(w *world) {
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	const nodes, cores = 24, 16
	name := func(i int) string { return fmt.Sprintf("n%02d", i) }
	full := func(i int) map[string]string {
		room := map[string]string{"cpu": fmt.Sprint(cores), "memory": "64Gi", ignored: "1"}
		if i%4 == 0 {
			room[gpu] = "8"
		}
		if i%4 == 1 {
			room[fpga] = "8"
		}
		return room
	}
	disk := func(i int) string { return []string{"ssd", "hdd"}[i%2] }
	for i := range nodes {
		room := amounts{}
		for k, v := range full(i) {
			room[v1.ResourceName(k)] = v
		}
		w.node(ctx, name(i), room, map[string]string{"disk": disk(i)})
	}
	w.queue(ctx, "q", nil)

	var updates atomic.Int64
	var wg sync.WaitGroup
	stormCtx, calm := context.WithCancel(ctx)
	defer calm()
	for worker := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(11, uint64(worker)))
			for stormCtx.Err() == nil {
				i := r.IntN(nodes)
				var err error
				switch r.IntN(4) {
				case 0:
					err = w.setNode(stormCtx, name(i), map[string]string{"cpu": fmt.Sprint(cores - r.IntN(3)*4)}, nil)
				case 1:
					err = w.setNode(stormCtx, name(i), nil, map[string]string{"weather": fmt.Sprint(r.IntN(1000))})
				case 2:
					err = w.setNode(stormCtx, name(i), map[string]string{ignored: fmt.Sprint(r.IntN(9))}, nil)
				case 3:
					err = w.setNode(stormCtx, name(i/4*4+1), map[string]string{fpga: []string{"", "8"}[r.IntN(2)]}, nil)
				}
				if err != nil && stormCtx.Err() == nil {
					w.find("%v", err)
					return
				}
				updates.Add(1)
			}
		})
	}

	// Jobs come all the time, never more of them at once than fit.
	type job struct {
		uids []types.UID
		on   func(i int) bool // nodes that are right
	}
	var jobs []job
	anywhere := func(int) bool { return true }
	create := func(n int, r *rand.Rand) bool {
		p := runsFor(w.newPod("", "", amounts{"cpu": fmt.Sprint(1 + r.IntN(2)), "memory": "1Gi"}), time.Duration(r.IntN(2000))*time.Millisecond)
		on := anywhere
		one := v1.ResourceList{}
		switch n % 5 {
		case 0:
			p.Spec.NodeSelector = map[string]string{"disk": "ssd"}
			on = func(i int) bool { return disk(i) == "ssd" }
		case 1:
			one = amounts{gpu: "1"}.list()
			on = func(i int) bool { return i%4 == 0 }
		case 2:
			one = amounts{fpga: "1"}.list()
			on = func(i int) bool { return i%4 == 1 }
		case 3: // more than any node has, of what is ignored
			one = amounts{ignored: "100"}.list()
		case 4:
			one = amounts{late: "1"}.list()
			on = func(i int) bool { return i == 7 }
		}
		for k, q := range one {
			p.Spec.Containers[0].Resources.Requests[k], p.Spec.Containers[0].Resources.Limits[k] = q, q
		}
		uids, err := w.gang(ctx, fmt.Sprintf("job%04d", n), "q", 1+r.IntN(4), p)
		if err != nil {
			w.find("%v", err)
			return false
		}
		jobs = append(jobs, job{uids, on})
		return true
	}
	r := rand.New(rand.NewPCG(12, 0))
	begin := time.Now()
	deadline := begin.Add(4 * limit * time.Duration(*long))
	over := ""
	for n := 0; over == "" && !w.found(); n++ {
		if n == 12 { // what nobody knew appears on one node
			w.check(w.setNode(ctx, name(7), map[string]string{late: "1000"}, nil))
		}
		if !create(n, r) {
			break
		}
		if n > 12 && !w.wait(limit/2, "the jobs to be placed, but for the last ones", func(v *view) bool {
			waiting := 0
			for _, j := range jobs {
				if !bound(j.uids...)(v) {
					waiting++
				}
			}
			return waiting < 12
		}) {
			break
		}
		if over = lineOf(w.shards[0], "node storm is over"); over == "" && time.Now().After(deadline) {
			w.find("the storm below the watch did not end")
		}
	}
	calm()
	wg.Wait()
	for i := range nodes {
		if !w.found() {
			w.check(w.setNode(ctx, name(i), full(i), nil))
		}
	}
	w.t.Logf("%s: %d node updates through the API server in %s, beside %d jobs; %s", w.name, updates.Load(), time.Since(begin).Round(time.Millisecond), len(jobs), over)
	w.wait(limit, "every job to be placed when the storm is over", func(v *view) bool {
		for _, j := range jobs {
			if !bound(j.uids...)(v) {
				return false
			}
		}
		return true
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for n, j := range jobs {
		for _, uid := range j.uids {
			node := w.seen.node[uid]
			for i := range nodes {
				if name(i) == node && !j.on(i) {
					w.findings = append(w.findings, fmt.Sprintf("job %d was placed on %s, which it excludes", n, node))
				}
			}
		}
	}
}

// lineOf returns the line of a process's log that contains the words, "" when there is none yet.
func lineOf(b *local.Basalt, words string) string {
	for line := range strings.SplitSeq(local.Tail(b.Log(), 100), "\n") {
		if strings.Contains(line, words) {
			return line
		}
	}
	return ""
}
