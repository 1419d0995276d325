package cache

import (
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// plainNode has two cores and some labels.
func plainNode(name string, labels map[string]string, taints ...v1.Taint) *api.Node {
	return &api.Node{Name: name, Labels: labels, Taints: taints, Allocatable: api.FromMap(map[string]int64{"cpu": 2000, "pods": 10})}
}

var soft = v1.Taint{Key: "spot", Effect: v1.TaintEffectPreferNoSchedule}

// placeAll places pods of a class until there is no room or most are placed, and returns their nodes in order.
func placeAll(t *testing.T, c *Cache, class *api.Class, prefix string, most int) (nodes []string) {
	t.Helper()
	for len(nodes) < most {
		node, ok := c.Place(class)
		if !ok {
			break
		}
		c.Charge(fmt.Sprint(prefix, len(nodes)), node, class, Bound, "", api.Rank{})
		nodes = append(nodes, node)
	}
	if err := c.Check(); err != nil {
		t.Fatal(err)
	}
	return nodes
}

// TestPlainClassesHaveNoTiers: without wishes and soft taints nothing is graded; a taint makes tiers for all who do not tolerate it.
func TestPlainClassesHaveNoTiers(t *testing.T) {
	c := New(Config{})
	plain := pod(map[string]string{"cpu": "1"}, nil)
	c.SetNode(plainNode("n1", nil))
	placeAll(t, c, plain, "a", 1)
	if len(c.wishes) != 0 || c.Heeds(plain) || c.Ungraded(plain) != 0 {
		t.Fatalf("%d wishes", len(c.wishes))
	}
	c.SetNode(plainNode("n2", nil, soft))
	c.SetNode(plainNode("n3", nil))
	if got := fmt.Sprint(placeAll(t, c, plain, "b", 9)); got != "[n1 n3 n3 n2 n2]" {
		t.Errorf("pods are placed on %s", got)
	}
	c.RemoveNode("n2")
	if c.reluctant != 0 || c.Heeds(plain) {
		t.Error("a node that is gone is counted")
	}
	bare := New(Config{})
	for i := range 3 {
		bare.SetNode(plainNode(fmt.Sprint("n", i), nil, []v1.Taint{soft}[:i%2]...))
	}
	tolerant := pod(map[string]string{"cpu": "1"}, tolerate(v1.Toleration{Key: "spot", Operator: v1.TolerationOpExists}))
	if got := fmt.Sprint(placeAll(t, bare, tolerant, "c", 9)); got != "[n0 n0 n1 n1 n2 n2]" || bare.Grade(plain) != api.NoGrade {
		t.Errorf("pods that tolerate the taint are placed on %s", got)
	}
	if node, _, ok := bare.PlaceHeedless(plain, api.Rank{}, nil); ok {
		t.Errorf("there is room on %s", node)
	}
}

// TestHeedless: who does not heed wishes takes the first node of the order.
func TestHeedless(t *testing.T) {
	c := New(Config{})
	c.SetNode(plainNode("n1", nil))
	c.SetNode(plainNode("n2", map[string]string{"zone": "a"}))
	class := pod(map[string]string{"cpu": "1"}, prefer(1, expression("zone", v1.NodeSelectorOpIn, "a")))
	if node, _, _ := c.PlaceWithin(class, api.Rank{}, nil); node != "n2" {
		t.Errorf("by its wishes the pod goes to %s", node)
	}
	if c.Ungraded(class) != 0 || c.Ungraded(class.Wishing([]byte("other"))) != 2*int64(len("other")) {
		t.Errorf("%d and %d bytes are to be compared", c.Ungraded(class), c.Ungraded(class.Wishing([]byte("other"))))
	}
	if node, _, _ := c.PlaceHeedless(class, api.Rank{}, nil); node != "n1" {
		t.Errorf("without, it goes to %s", node)
	}
}

// TestTiersFollowRoom: of many scores the best is served first all the same, while a cluster fills up and when room comes back.
func TestTiersFollowRoom(t *testing.T) {
	const scores, nodes = 12, 120
	c := New(Config{})
	var terms []v1.NodeSelectorTerm
	for i := range scores {
		terms = append(terms, expression("score", v1.NodeSelectorOpIn, fmt.Sprintf("%02d", i)))
	}
	class := pod(map[string]string{"cpu": "1"}, prefer(100, terms...)) // the first weighs most
	scoreOf := map[string]int{}
	for i := range nodes {
		n := plainNode(fmt.Sprintf("n%03d", i), map[string]string{"score": fmt.Sprintf("%02d", i*7%scores)})
		scoreOf[n.Name] = i * 7 % scores
		c.SetNode(n)
	}
	inOrder, left := 0, [scores]int{}
	placed := placeAll(t, c, class, "p", 3*nodes)
	for _, node := range placed {
		best := 0
		for left[best] == 2*nodes/scores {
			best++
		}
		if left[scoreOf[node]]++; scoreOf[node] == best {
			inOrder++
		}
	}
	if len(placed) != 2*nodes || inOrder < len(placed)*85/100 {
		t.Errorf("of %d pods %d were placed on a node of the best score with room", len(placed), inOrder)
	}
	for i, node := range placed {
		if scoreOf[node] == 0 || scoreOf[node] == 11 {
			c.Release(fmt.Sprint("p", i))
		}
	}
	for i, node := range placeAll(t, c, class, "q", 40) {
		if (scoreOf[node] == 0) != (i < 20) {
			t.Errorf("pod %d was placed on a node of score %d", i, scoreOf[node])
		}
	}
}

// TestManyWishes: what is remembered of wishes is bounded, by number and by different scores.
func TestManyWishes(t *testing.T) {
	c := New(Config{})
	const labels = 9
	var terms []v1.NodeSelectorTerm
	for i := range labels {
		terms = append(terms, expression(fmt.Sprint("l", i), v1.NodeSelectorOpExists))
	}
	for i := range 1 << labels {
		of := map[string]string{}
		for b := range labels {
			if i>>b&1 == 1 {
				of[fmt.Sprint("l", b)] = ""
			}
		}
		c.SetNode(plainNode(fmt.Sprintf("n%03d", i), of))
	}
	weigh := func(s *v1.PodSpec) {
		prefer(1, terms...)(s)
		for i := range s.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			s.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i].Weight = 1 << i
		}
	}
	if n := len(placeAll(t, c, pod(map[string]string{"cpu": "1"}, weigh), "p", 100)); n != 100 {
		t.Errorf("%d pods were placed", n)
	}
	for i := range 2 * defaultLimits.wishes {
		c.Place(pod(map[string]string{"cpu": "1"}, prefer(int32(1+i), expression("l1", v1.NodeSelectorOpExists), expression("l2", v1.NodeSelectorOpExists))))
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	if len(c.wishes) > defaultLimits.wishes || len(c.wishes) < defaultLimits.wishes/2 {
		t.Errorf("%d wishes are remembered", len(c.wishes))
	}
}

// TestGradesOfShards: two shards with half of the nodes each give a node the grade that one with all of them would.
func TestGradesOfShards(t *testing.T) {
	nodes := []*api.Node{
		plainNode("n1", map[string]string{"zone": "a"}, soft), plainNode("n2", map[string]string{"zone": "b"}),
		plainNode("n3", map[string]string{"zone": "b"}, soft, v1.Taint{Key: "slow", Effect: v1.TaintEffectPreferNoSchedule}), plainNode("n4", nil),
	}
	class := pod(map[string]string{"cpu": "1"}, func(s *v1.PodSpec) {
		prefer(100, expression("zone", v1.NodeSelectorOpIn, "a"), expression("zone", v1.NodeSelectorOpIn, "b"))(s)
	})
	want := map[string]uint32{"n1": 1 + 200 + 150, "n2": 1 + 198 + 300, "n3": 1 + 198 + 0, "n4": 1 + 0 + 300}
	for _, own := range nodes {
		for _, later := range []bool{false, true} {
			others := func(yield func(*api.Node) bool) {
				for _, n := range nodes {
					if n != own && !later && !yield(n) {
						return
					}
				}
			}
			c := New(Config{Elsewhere: others})
			c.SetNode(own)
			if later { // they come when the node was graded already
				c.Grade(class)
				for _, n := range nodes {
					if n != own {
						c.SeenElsewhere(n)
					}
				}
			}
			if got := c.Grade(class); got != want[own.Name] {
				t.Errorf("%s has grade %d, want %d", own.Name, got, want[own.Name])
			}
			if _, ok := c.PlaceAbove(class, want[own.Name], nil); !ok {
				t.Errorf("%s is not of its own grade", own.Name)
			}
			if node, ok := c.PlaceAbove(class, want[own.Name]+1, nil); ok {
				t.Errorf("%s is above its grade", node)
			}
			if err := c.Check(); err != nil {
				t.Error(err)
			}
		}
	}
}

// told is a node that the configuration puts into a tier of the class t.
func told(name string, tier uint8, labels map[string]string) *api.Node {
	n := plainNode(name, labels)
	n.Tiers = api.Tiers{{Class: "other", Tier: api.LastTier - tier}, {Class: "t", Tier: tier}}
	return n
}

// TestConfiguredTiers: the tiers that the configuration says go before everything else that a class prefers, none is
// passed over, and a node that changes its tier is found there.
func TestConfiguredTiers(t *testing.T) {
	zoneA := map[string]string{"zone": "a"}
	nodes := []*api.Node{told("n1", 3, zoneA), told("n2", 1, nil), told("n3", 1, zoneA), plainNode("n4", zoneA),
		told("n5", 0, nil), told("n6", 2, zoneA)}
	for _, n := range nodes {
		n.Allocatable = api.FromMap(map[string]int64{"cpu": 1000, "pods": 10})
	}
	nodes[4].Taints = []v1.Taint{soft}
	fresh := func() *Cache {
		c := New(Config{})
		for i, n := range nodes {
			c.SetNode(n)
			c.Number(n.Name, int32(i))
		}
		return c
	}
	one := map[string]string{"cpu": "1"}
	anywhere := tiered(pod(one, nil), "t")
	near := tiered(pod(one, prefer(50, expression("zone", v1.NodeSelectorOpIn, "a"))), "t")
	for _, row := range []struct {
		what  string
		class *api.Class
		want  string
	}{
		{"by tiers alone", anywhere, "[n5 n2 n3 n6 n1 n4]"},
		{"by zone inside a tier", near, "[n5 n3 n2 n6 n1 n4]"},
		{"of a class that no node knows", tiered(pod(one, nil), "new"), "[n1 n2 n3 n4 n6 n5]"},
		{"without a class", pod(one, nil), "[n1 n2 n3 n4 n6 n5]"},
	} {
		if got := fmt.Sprint(placeAll(t, fresh(), row.class, "p", 9)); got != row.want {
			t.Errorf("%s: %s, want %s", row.what, got, row.want)
		}
	}
	c := fresh()
	grade := func(want uint32) {
		t.Helper()
		if got := c.Grade(near); got != want {
			t.Errorf("grade %d, want %d", got, want)
		}
		if _, ok := c.PlaceAbove(near, want+1, nil); ok {
			t.Error("there is a node above the best grade")
		}
	}
	grade(1 + 3*api.TierStep + 0 + 0)
	c.RemoveNode("n5")
	grade(1 + 2*api.TierStep + 200 + 300)
	c.SetNode(told("n3", 3, zoneA))
	grade(1 + 2*api.TierStep + 0 + 300)
	if got := fmt.Sprint(placeAll(t, c, near, "p", 9)); got != "[n2 n6 n1 n3 n3 n4]" {
		t.Errorf("after the change of a node: %s", got)
	}
	if best := near.BestGrade(); best != 1+3*api.TierStep+200+300 {
		t.Errorf("the best grade is %d", best)
	}
}

// TestConfiguredTiersAreNotJoined: where a class prefers more than its tiers can tell apart, those of the
// configuration are told apart all the same, while a cluster fills up and when room comes back.
func TestConfiguredTiersAreNotJoined(t *testing.T) {
	const scores, nodes = 7, 140
	c := New(Config{})
	var terms []v1.NodeSelectorTerm
	for i := range scores {
		terms = append(terms, expression("score", v1.NodeSelectorOpIn, fmt.Sprint(i)))
	}
	class := tiered(pod(map[string]string{"cpu": "1"}, prefer(100, terms...)), "t")
	tierOf, left := map[string]int{}, [4]int{}
	for i := range nodes {
		n := told(fmt.Sprintf("n%03d", i), uint8(i*3%4), map[string]string{"score": fmt.Sprint(i * 5 % scores)})
		tierOf[n.Name] = i * 3 % 4
		left[i*3%4] += 2
		c.SetNode(n)
	}
	best := func() int {
		for tier, n := range left {
			if n > 0 {
				return tier
			}
		}
		return -1
	}
	on, next := map[string]string{}, 0
	place := func(pods int) {
		t.Helper()
		for range pods {
			want := best()
			node, ok := c.Place(class)
			if !ok || tierOf[node] != want {
				t.Fatalf("pod %d goes to %q of tier %d, and tier %d has room", next, node, tierOf[node], want)
			}
			uid := fmt.Sprint("p", next)
			next++
			c.Charge(uid, node, class, Bound, "", api.Rank{})
			on[uid] = node
			left[want]--
		}
	}
	place(2*nodes - 1)
	for i := 0; i < next; i += 9 {
		uid := fmt.Sprint("p", i)
		c.Release(uid)
		left[tierOf[on[uid]]]++
	}
	place(len(on) / 10)
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	if most := c.wishOf(c.find(class)).levels; most != maxLevels {
		t.Errorf("%d tiers", most)
	}
}

// BenchmarkWishes is a decision like those of BenchmarkDecision, for a class without wishes, one whose best tier has room, and one whose
// best three tiers are full.
func BenchmarkWishes(b *testing.B) {
	for _, nodes := range []int{1523, 20000} {
		for _, full := range []int{-1, 0, 3} {
			b.Run(fmt.Sprintf("nodes=%d/full=%d", nodes, full), func(b *testing.B) {
				c := cluster(nodes)
				class := pod(map[string]string{"cpu": "2", "memory": "4Gi"}, nil)
				if full >= 0 {
					class = pod(map[string]string{"cpu": "2", "memory": "4Gi"}, prefer(90, expression("zone", v1.NodeSelectorOpIn, "a"), expression("zone", v1.NodeSelectorOpIn, "b"), expression("zone", v1.NodeSelectorOpIn, "c")))
				}
				for i := range nodes {
					if i%4 < full {
						n := machine(fmt.Sprintf("node-%05d", i), 1000, 768<<30, 0, func(n *api.Node) {
							n.Labels = map[string]string{"zone": string('a' + rune(i%4)), "kubernetes.io/hostname": n.Name}
						})
						c.RemoveNode(n.Name)
						c.SetNode(n)
					}
				}
				uids := make([]string, 100)
				for i := range uids {
					uids[i] = fmt.Sprint("new-", i)
				}
				charged := class.Wishing(nil)
				for i := range 2000 {
					decide(c, class, charged, uids[i%100])
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := range b.N {
					decide(c, class, charged, uids[i%100])
				}
			})
		}
	}
}

// decide places a pod anew, and reports whether there is room.
func decide(c *Cache, class, charged *api.Class, uid string) bool {
	c.Release(uid)
	node, ok := c.Place(class)
	if ok {
		c.Charge(uid, node, charged, Hold, "g", api.Rank{})
	}
	return ok
}
