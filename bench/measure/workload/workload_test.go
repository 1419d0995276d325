package workload_test

import (
	"math/rand/v2"
	"testing"

	"basalt.dev/basalt/bench/measure/workload"
)

// The tables are the trace's: 1,523 nodes with 125,514 cores and 6,212 GPUs.
func TestTables(t *testing.T) {
	nodes := workload.Nodes()
	var count int
	var milli, gpus int64
	for _, n := range nodes {
		count += n.Count
		milli += int64(n.Count) * n.MilliCPU
		gpus += int64(n.Count) * n.GPUs
		if (n.GPUs > 0) == (n.Model == workload.None) {
			t.Errorf("%+v: GPUs and model do not fit", n)
		}
	}
	if len(nodes) != 27 || count != 1523 || milli != 125_514_000 || gpus != 6212 {
		t.Errorf("%d shapes, %d nodes, %d millicores, %d GPUs", len(nodes), count, milli, gpus)
	}
	pods := workload.Pods()
	if len(pods) != 25 {
		t.Errorf("%d pod shapes", len(pods))
	}
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[workload.Shape]int{}
	for range 10000 {
		seen[workload.Pick(r, pods)]++
	}
	if len(seen) != 25 || seen[pods[0]] < seen[pods[24]] {
		t.Errorf("drew %d shapes, the most frequent %d times", len(seen), seen[pods[0]])
	}
}
