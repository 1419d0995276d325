package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

func constraintsOf(spec *v1.PodSpec) []byte {
	b, err := spec.Marshal()
	if err != nil {
		panic(err)
	}
	return b
}

// TestSurvey compares counts by domain with the number of pods that CanPlace lets onto each node, in a cluster that changes.
func TestSurvey(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		c := New(Config{})
		classes := []*api.Class{
			api.NewClass(api.Resources{{Resource: "cpu", Value: 2000}, {Resource: "pods", Value: 1}}, nil),
			api.NewClass(api.Resources{{Resource: "cpu", Value: 1000}, {Resource: "nvidia.com/gpu", Value: 1}}, nil),
			api.NewClass(api.Resources{{Resource: "cpu", Value: 500}}, constraintsOf(&v1.PodSpec{NodeSelector: map[string]string{"pool": "a"}})),
			api.NewClass(api.Resources{{Resource: "cpu", Value: 100}}, constraintsOf(&v1.PodSpec{Containers: []v1.Container{{Ports: []v1.ContainerPort{{HostPort: 80, Protocol: "TCP"}}}}})),
		}
		levels := [][]string{{"rack"}, {"rack", "block"}, {"block"}}
		shadow := map[string]*api.Node{}
		pods := 0
		for step := range 400 {
			name := fmt.Sprint("n", r.IntN(24))
			switch k := r.IntN(10); {
			case k < 4:
				labels := map[string]string{"pool": string("ab"[r.IntN(2)])}
				if r.IntN(6) > 0 {
					rack := r.IntN(6)
					labels["rack"], labels["block"] = fmt.Sprint("r", rack), fmt.Sprint("b", rack/2)
				}
				if r.IntN(8) == 0 {
					delete(labels, "block")
				}
				n := &api.Node{Name: name, Labels: labels, Unschedulable: r.IntN(10) == 0, Allocatable: api.Resources{{Resource: "cpu", Value: int64(1000 * (1 + r.IntN(8)))}, {Resource: "pods", Value: 6}}}
				if r.IntN(2) == 0 {
					n.Allocatable = append(n.Allocatable, api.Amount{Resource: "nvidia.com/gpu", Value: 4})
					slices.SortFunc(n.Allocatable, func(a, b api.Amount) int { return map[bool]int{true: -1, false: 1}[a.Resource < b.Resource] })
				}
				shadow[name] = n
				c.SetNode(n)
				c.Number(name, int32(len(name)*100+int(name[len(name)-1])))
			case k < 5:
				delete(shadow, name)
				c.RemoveNode(name)
			case k < 8:
				c.Charge(fmt.Sprint("p", pods), name, classes[r.IntN(len(classes))], Intent, "", api.Rank{})
				pods++
			case pods > 0:
				c.Release(fmt.Sprint("p", r.IntN(pods)))
			}
			if step%7 > 0 {
				continue
			}
			for _, labels := range levels {
				got, more := c.Survey(classes, labels, nil, nil, 100)
				if more {
					t.Fatal("there are not that many")
				}
				want := map[string][]int64{}
				for name, n := range shadow {
					values, ok := valuesOf(n, labels)
					if !ok {
						continue
					}
					for i, class := range classes {
						room := int64(0)
						for ; c.CanPlace(class, name).Fits(); room++ {
							c.Charge(fmt.Sprint("trial", room), name, class, Intent, "", api.Rank{})
						}
						for k := range room {
							c.Release(fmt.Sprint("trial", k))
						}
						if room > 0 {
							if want[joined(values)] == nil {
								want[joined(values)] = make([]int64, len(classes))
							}
							want[joined(values)][i] += room
						}
					}
				}
				if len(got) != len(want) {
					t.Fatalf("seed %d, step %d: %d domains of %q, want %d", seed, step, len(got), labels, len(want))
				}
				for _, d := range got {
					if !slices.Equal(d.Pods, want[joined(d.Values)]) {
						t.Fatalf("seed %d, step %d: %q has room for %v, want %v", seed, step, d.Values, d.Pods, want[joined(d.Values)])
					}
					for i, class := range classes {
						node, victims, ok := c.PlaceIn(class, api.Rank{}, labels, d.Values, nil, true, nil)
						if ok != (d.Pods[i] > 0) || len(victims) > 0 || ok && (!c.In(node, labels, d.Values) || !c.CanPlace(class, node).Fits()) {
							t.Fatalf("seed %d, step %d: %q: class %d is placed on %q (%t)", seed, step, d.Values, i, node, ok)
						}
						for name := range shadow {
							if ok && c.In(name, labels, d.Values) && c.CanPlace(class, name).Fits() && c.keyOf(c.nodes[name].slot) < c.keyOf(c.nodes[node].slot) {
								t.Fatalf("seed %d, step %d: %q is better than %q", seed, step, name, node)
							}
						}
					}
				}
				if few, more := c.Survey(classes, labels, nil, nil, 1); len(got) > 1 && (!more || len(few) != 1) {
					t.Fatalf("%d domains of %d, more %t", len(few), len(got), more)
				}
			}
			if err := c.Check(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestSurveyKeepsPinned: where too many domains have room, the pinned ones are named, and of those inside of pinned ones the pinned ones first.
func TestSurveyKeepsPinned(t *testing.T) {
	c := New(Config{})
	class := api.NewClass(api.Resources{{Resource: "cpu", Value: 1000}}, nil)
	for i, name := range []string{"b1/r1", "b1/r2", "b2/r3", "b2/r4", "b3/r5"} {
		block, rack, _ := strings.Cut(name, "/")
		c.SetNode(&api.Node{Name: name, Labels: map[string]string{"block": block, "rack": rack}, Allocatable: api.Resources{{Resource: "cpu", Value: int64(i+1) * 1000}}})
		c.Number(name, int32(i))
	}
	for _, o := range []struct {
		pinned [][]string
		want   string
	}{{nil, "b2/r4 b3/r5"}, {[][]string{{"b1"}}, "b1/r1 b1/r2"}, {[][]string{{"b2"}}, "b2/r3 b2/r4"}, {[][]string{{"b1", "r1"}}, "b1/r1 b3/r5"}, {[][]string{{"b2"}, {"b1", "r1"}}, "b1/r1 b2/r4"}, {[][]string{{"b9"}}, "b2/r4 b3/r5"}} {
		domains, more := c.Survey([]*api.Class{class}, []string{"block", "rack"}, nil, o.pinned, 2)
		var got []string
		for _, d := range domains {
			got = append(got, strings.Join(d.Values, "/"))
		}
		if strings.Join(got, " ") != o.want || !more {
			t.Errorf("%q are pinned: %q are named, more %t, want %q", o.pinned, got, more, o.want)
		}
	}
}

// TestPlaceInTakes has a gang of a better rank take holds in its domain, and in no other.
func TestPlaceInTakes(t *testing.T) {
	c := New(Config{})
	class := api.NewClass(api.Resources{{Resource: "cpu", Value: 1000}}, nil)
	for i, rack := range []string{"a", "b"} {
		c.SetNode(&api.Node{Name: "n" + rack, Labels: map[string]string{"rack": rack}, Allocatable: api.Resources{{Resource: "cpu", Value: 1000}}})
		c.Number("n"+rack, int32(i))
		c.Charge("p"+rack, "n"+rack, class, Hold, "g", api.Rank{Order: 9})
	}
	if node, victims, ok := c.PlaceIn(class, api.Rank{Order: 1}, []string{"rack"}, []string{"b"}, nil, true, nil); !ok || node != "nb" || !slices.Equal(victims, []string{"pb"}) {
		t.Errorf("%s, %v, %t", node, victims, ok)
	}
	if _, _, ok := c.PlaceIn(class, api.Rank{Order: 10}, []string{"rack"}, []string{"b"}, nil, true, nil); ok {
		t.Error("a hold of a better rank was taken")
	}
	if _, _, ok := c.PlaceIn(class, api.Rank{Order: 1}, []string{"rack"}, []string{"c"}, nil, true, nil); ok {
		t.Error("placed in a domain that does not exist")
	}
}

// BenchmarkSurvey counts a class by rack in 100,000 nodes, all of them empty or nine in ten full.
func BenchmarkSurvey(b *testing.B) {
	for _, full := range []int{0, 90} {
		b.Run(fmt.Sprintf("full=%d%%", full), func(b *testing.B) {
			c := New(Config{})
			class := api.NewClass(api.Resources{{Resource: "cpu", Value: 4000}, {Resource: "memory", Value: 16 << 30}, {Resource: "nvidia.com/gpu", Value: 1}, {Resource: "pods", Value: 1}}, nil)
			for i := range 100_000 {
				name := fmt.Sprint("n", i)
				c.SetNode(&api.Node{Name: name, Labels: map[string]string{"rack": fmt.Sprint("rack-", i/32)}, Allocatable: api.Resources{
					{Resource: "cpu", Value: 96_000}, {Resource: "memory", Value: 512 << 30}, {Resource: "nvidia.com/gpu", Value: 8}, {Resource: "pods", Value: 110}}})
				if i*37%100 < full {
					for k := range 8 {
						c.Charge(fmt.Sprint("p", i, "-", k), name, class, Intent, "", api.Rank{})
					}
				}
			}
			c.Survey([]*api.Class{class}, []string{"rack"}, nil, nil, 4096)
			b.ResetTimer()
			for range b.N {
				c.Survey([]*api.Class{class}, []string{"rack"}, nil, nil, 4096)
			}
		})
	}
}
