package home

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"basalt.dev/basalt/api"
)

// The sum of pods that request more resources than a reservation names does not depend on their order: or a gang of bound pods
// would ask again and again.
func TestSumIsBounded(t *testing.T) {
	var pods []*pod
	for i := range 30 {
		requests := map[string]int64{"pods": 1, "memory": 5}
		for j := range 60 {
			requests[fmt.Sprintf("example.com/r%04d", 20*i+j)] = int64(i + 1)
		}
		pods = append(pods, podOf(&api.Pod{Class: api.NewClass(api.FromMap(requests), nil)}))
	}
	want, excess := sumBounded(pods)
	if !excess || len(want) != api.MaxGangResources || want.Value("memory") != 150 || want.Value("pods") != 30 || want.Value("example.com/r0000") != 1 || want.Value("example.com/r0020") != 3 {
		t.Fatalf("%d resources, %v", len(want), want)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for range 50 {
		r.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		if got, excess := sumBounded(pods); !excess || !got.Equal(want) {
			t.Fatalf("in another order %v", got)
		}
	}
	if _, excess := sumBounded(pods[:3]); excess {
		t.Error("few resources exceed the limit")
	}
}
