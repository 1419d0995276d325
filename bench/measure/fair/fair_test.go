package fair

import (
	"math"
	"testing"
	"time"
)

// The oracle pours as it should in cases that can be worked out by hand.
func TestPour(t *testing.T) {
	child := func(weight, deserved, cpu, memory float64) *node {
		return &node{weight: weight, deserved: []float64{deserved, deserved}, wanted: []float64{cpu, memory}}
	}
	for _, c := range []struct {
		name     string
		children []*node
		want     [][]float64
	}{
		{"equals", []*node{child(1, 0, 1, 0), child(1, 0, 1, 0)}, [][]float64{{0.5, 0}, {0.5, 0}}},
		{"weights", []*node{child(3, 0, 1, 0), child(1, 0, 1, 0)}, [][]float64{{0.75, 0}, {0.25, 0}}},
		{"what is deserved comes first", []*node{child(1, 0.6, 1, 0), child(1, 0, 1, 0)}, [][]float64{{0.8, 0}, {0.2, 0}}},
		{"who wants little", []*node{child(1, 0, 0.1, 0), child(1, 0, 1, 0)}, [][]float64{{0.1, 0}, {0.9, 0}}},
		// DRF, section 4.1 of Ghodsi et al. (2011): 9 CPUs and 18 GB; A's tasks take 1 and 4, B's 3 and 1.
		{"two resources", []*node{child(1, 0, 1, 2), child(1, 0, 3, 0.5)}, [][]float64{{1. / 3, 2. / 3}, {2. / 3, 1. / 9}}},
	} {
		n := &node{children: c.children, gets: []float64{1, 1}}
		n.pour()
		for i, child := range n.children {
			for r := range child.gets {
				if math.Abs(child.gets[r]-c.want[i][r]) > 0.002 {
					t.Errorf("%s: child %d gets %.3f, want %.3f", c.name, i, child.gets, c.want[i])
					break
				}
			}
		}
	}
}

// Queues with a backlog have what the oracle gives them, but for gangs that do not fit.
func TestShares(t *testing.T) {
	h := newHall(3, 1.2, short, allNamed, basaltNever)
	h.until(3 * time.Hour)
	for _, v := range h.values() {
		t.Logf("%s: %.2f %s", v.Name, v.Value, v.Unit)
		switch v.Name {
		case nameMean:
			if v.Value > 2 {
				t.Errorf("%s: %.2f %%", v.Name, v.Value)
			}
		case "in use, of the resource used most":
			if v.Value < 90 {
				t.Errorf("%s: %.2f %%", v.Name, v.Value)
			}
		}
	}
}
