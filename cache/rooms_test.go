package cache

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// What nodes would have without some pods is what they have once these are released.
func TestWithoutIsAfterRelease(t *testing.T) {
	fit, misfit := 0, 0
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		classes := make([]*api.Class, 6)
		for i := range classes {
			class := api.Class{Requests: api.FromMap(map[string]int64{"cpu": 1 + r.Int64N(4), "gpu": r.Int64N(3), "pods": 1})}
			spec := v1.PodSpec{}
			if r.IntN(3) == 0 {
				spec.Containers = []v1.Container{{Ports: []v1.ContainerPort{{HostPort: int32(80 + r.IntN(2)), Protocol: v1.ProtocolTCP}}}}
			}
			if r.IntN(4) == 0 {
				spec.NodeSelector = map[string]string{"rack": fmt.Sprint(r.IntN(2))}
			}
			class.Constraints, _ = spec.Marshal()
			if r.IntN(3) == 0 {
				class.In = []uint32{uint32(1 + r.IntN(2))}
			}
			if r.IntN(3) == 0 {
				class.Avoids = []uint32{uint32(1 + r.IntN(2))}
			}
			classes[i] = api.MakeClass(class)
		}
		build := func() *Cache {
			c, r := New(Config{}), rand.New(rand.NewPCG(seed, 3))
			for i := range 5 {
				name := fmt.Sprint("n", i)
				c.SetNode(&api.Node{Name: name, Unschedulable: r.IntN(8) == 0, Labels: map[string]string{api.LabelHostname: name, "rack": fmt.Sprint(r.IntN(2))},
					Allocatable: api.FromMap(map[string]int64{"cpu": 4 + r.Int64N(6), "gpu": r.Int64N(6), "pods": 2 + r.Int64N(6)})})
				c.Number(name, int32(i))
			}
			for i := range 30 {
				class, name := classes[r.IntN(len(classes))], fmt.Sprint("n", r.IntN(5))
				if c.CanPlace(class, name).Fits() || r.IntN(40) == 0 {
					c.Charge(fmt.Sprint("p", i), name, class, Kind(1+r.IntN(5)), fmt.Sprint("g", r.IntN(4)), api.Rank{})
				}
			}
			return c
		}
		c, after := build(), build()
		var gone []string
		whose := func(kind Kind, uid, gang string) Whose {
			switch {
			case kind == Hold && gang == "g0":
				return Own
			case kind != Hold && gang != "g3":
				return Whose(gang[1]-'0') + 1
			}
			return Stays
		}
		for _, at := range c.PodsBy(func(kind Kind, uid, gang string) bool { return whose(kind, uid, gang) != Stays }) {
			for _, uid := range at.UIDs {
				if p, ok := c.Lookup(uid); !ok || p.Node != at.Node {
					t.Fatalf("seed %d: pod %s is said to be on %s: %v", seed, uid, at.Node, p)
				}
			}
			gone = append(gone, at.UIDs...)
		}
		broken := c.OutOfSync()
		rooms, more := c.Rooms(classes, []string{"cpu", "gpu", "pods"}, make([]Allow, len(classes)), whose, 100)
		if more {
			t.Fatal("5 nodes are more than 100")
		}
		for _, uid := range gone {
			after.Release(uid)
		}
		for i := range 5 {
			name := fmt.Sprint("n", i)
			if slices.Contains(broken, name) {
				continue
			}
			at := slices.IndexFunc(rooms, func(r NodeRoom) bool { return r.Node == name })
			for j, class := range classes {
				want := after.CanPlace(class, name).Fits()
				if got := c.FitsWithout(class, name, gone, nil); got != want {
					t.Fatalf("seed %d: a pod of class %d fits node %s without %v: %t, after their release %t", seed, j, name, gone, got, want)
				}
				if got := at >= 0 && slices.Contains(rooms[at].Classes, uint32(j)); got != want {
					t.Fatalf("seed %d: a pod of class %d has room on node %s without %v: %t, after their release %t", seed, j, name, gone, got, want)
				}
				if want {
					fit++
				} else {
					misfit++
				}
			}
			if at < 0 {
				continue
			}
			before, _ := c.Node(name)
			want := api.Resources{{Resource: "cpu", Value: before.Free.Value("cpu")}, {Resource: "gpu", Value: before.Free.Value("gpu")}}
			left, _ := after.Node(name)
			for _, p := range before.Pods {
				if whose(p.Kind, p.UID, p.Gang) == Own {
					want = want.Add(p.Class.Requests)
				}
			}
			got := api.Resources{{Resource: "cpu", Value: rooms[at].Free[0]}, {Resource: "gpu", Value: rooms[at].Free[1]}}
			sum := got
			for _, l := range rooms[at].Leaves {
				sum = sum.Add(api.Resources{{Resource: "cpu", Value: l.Amounts[0]}, {Resource: "gpu", Value: l.Amounts[1]}})
			}
			for _, name := range []string{"cpu", "gpu"} {
				if got.Value(name) != want.Value(name) || sum.Value(name) != left.Free.Value(name) {
					t.Fatalf("seed %d: node %s has %d %s free and %d without those that leave, want %d and %d", seed, rooms[at].Node, got.Value(name), name, sum.Value(name), want.Value(name), left.Free.Value(name))
				}
			}
		}
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
	}
	if fit < 1000 || misfit < 1000 {
		t.Errorf("%d times a pod fits, %d times not", fit, misfit)
	}
}

// Of more nodes than asked for those with the most room are returned; a node that is watched is named when it loses a charge or changes.
func TestRoomsAndFreed(t *testing.T) {
	c := New(Config{})
	node := func(i int, cpu int64) *api.Node {
		return &api.Node{Name: fmt.Sprint("n", i), Allocatable: api.FromMap(map[string]int64{"cpu": cpu, "pods": 10})}
	}
	for i := range 4 {
		c.SetNode(node(i, int64(1+i)))
	}
	class := api.NewClass(api.FromMap(map[string]int64{"cpu": 1, "pods": 1}), nil)
	none := func(Kind, string, string) Whose { return Stays }
	rooms, more := c.Rooms([]*api.Class{class}, []string{"cpu", "pods"}, make([]Allow, 1), none, 2)
	if !more || len(rooms) != 2 || rooms[0].Node != "n3" || rooms[1].Node != "n2" {
		t.Errorf("rooms %v, more %t", rooms, more)
	}
	c.Charge("p0", "n0", class, Bound, "g", api.Rank{})
	c.Charge("p1", "n1", class, Bound, "g", api.Rank{})
	c.Watch("n1", true)
	c.Watch("n2", true)
	for _, step := range []struct {
		name string
		do   func()
		want []string
	}{
		{"nothing", func() {}, nil},
		{"a charge of another node is gone", func() { c.Release("p0") }, nil},
		{"a charge is gone, and another comes", func() { c.Release("p1"); c.Charge("p2", "n1", class, Bound, "g", api.Rank{}) }, []string{"n1"}},
		{"a charge moves", func() { c.Charge("p2", "n2", class, Bound, "g", api.Rank{}) }, []string{"n1"}},
		{"nodes change", func() { c.SetNode(node(1, 9)); c.SetNode(node(2, 9)); c.SetNode(node(3, 9)) }, []string{"n1", "n2"}},
		{"a heartbeat", func() { c.SetNode(node(1, 9)) }, nil},
		{"it is not watched any more", func() { c.Watch("n2", false); c.Release("p2") }, nil},
	} {
		if step.do(); !slices.Equal(c.Freed(), step.want) {
			t.Errorf("%s: want %v", step.name, step.want)
		}
	}
}
