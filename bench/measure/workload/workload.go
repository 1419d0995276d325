// Package workload holds the shapes of a real cluster and of the pods that it ran: Alibaba's cluster-trace-gpu-v2023, as
// kept in hkust-adsl/kubernetes-scheduler-simulator (the "openb" lists), Apache License 2.0, reduced to two small tables:
// all 27 node shapes, and the 25 most frequent pod shapes (of 112), with their counts.
//
// GPUs are whole nvidia.com/gpu here: what took a part of one takes one, for Kubernetes knows no parts of an extended
// resource. A node's GPU model is the label ModelLabel.
package workload

import (
	_ "embed"
	"encoding/csv"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// GPU is the extended resource, ModelLabel the node label with the GPU's model, None its value on a node without one.
const (
	GPU        = "nvidia.com/gpu"
	ModelLabel = "bench.basalt.dev/gpu-model"
	None       = "none"
)

// Shape is what a pod asks for, or what a node has.
type Shape struct {
	Count     int // in the trace
	MilliCPU  int64
	MemoryMiB int64
	GPUs      int64
	Model     string // of a node's GPUs
}

//go:embed nodes.csv
var nodesCSV string

//go:embed pods.csv
var podsCSV string

// Nodes returns the 27 node shapes, the most frequent first.
func Nodes() []Shape { return read(nodesCSV) }

// Pods returns the 25 most frequent pod shapes, the most frequent first.
func Pods() []Shape { return read(podsCSV) }

// read reads a table of ours; what is wrong with it is a mistake in the program.
func read(table string) []Shape {
	r := csv.NewReader(strings.NewReader(table))
	r.Comment = '#'
	lines, err := r.ReadAll()
	if err != nil {
		panic(fmt.Sprintf("workload: %v", err))
	}
	out := make([]Shape, 0, len(lines)-1)
	for _, l := range lines[1:] {
		var n [4]int64
		for i := range n {
			if n[i], err = strconv.ParseInt(l[i], 10, 64); err != nil {
				panic(fmt.Sprintf("workload: %v", err))
			}
		}
		s := Shape{Count: int(n[0]), MilliCPU: n[1], MemoryMiB: n[2], GPUs: n[3]}
		if len(l) > 4 {
			if s.Model = l[4]; s.Model == "" {
				s.Model = None
			}
		}
		out = append(out, s)
	}
	return out
}

// Pick draws a shape, each as often as the trace has it.
func Pick(r *rand.Rand, shapes []Shape) Shape {
	total := 0
	for _, s := range shapes {
		total += s.Count
	}
	n := r.IntN(total)
	for _, s := range shapes {
		if n -= s.Count; n < 0 {
			return s
		}
	}
	return shapes[len(shapes)-1]
}

// Times returns the shape of a pod that runs n of these.
func (s Shape) Times(n int64) Shape {
	return Shape{Count: s.Count, MilliCPU: n * s.MilliCPU, MemoryMiB: n * s.MemoryMiB, GPUs: n * s.GPUs, Model: s.Model}
}

// Resources returns the shape as Kubernetes writes it.
func (s Shape) Resources() v1.ResourceList {
	l := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(s.MilliCPU, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(s.MemoryMiB<<20, resource.BinarySI),
	}
	if s.GPUs > 0 {
		l[GPU] = *resource.NewQuantity(s.GPUs, resource.DecimalSI)
	}
	return l
}
