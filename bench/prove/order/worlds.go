package order

import "fmt"

const a, b, c, d = 0, 1, 2, 3

// World is which pods there are, who is responsible for them, and what they ask of each other. Each pod has one node that it fits.
type World struct {
	Name  string
	Pods  []string
	Gangs [][]uint8
	Home  []uint8       // of each gang
	Node  []uint8       // of each pod: the shard of its node
	Terms uint8         // pods that carry a term
	Apart [pods]uint8   // pods that may not stand where it stands
	Needs [pods]uint8   // one of these has to stand where it stands
	Zones [pods]uint8   // with Skew: the domain of its node, 1 or 2
	Skew  bool          // a spread over two domains with maxSkew 1
	Key   bool          // rows of one node shard may be written in one key
	Most  [units]uint8  // Commits of a gang, if not tries
	Heir  [shards]uint8 // of a shard that is fenced
}

// fits reports whether pods may be placed together, given those that may be placed before them and those that are bound. Of a
// spread, more pods in the own domain never help, so "may" is its count, and the minimum is that of the other domain.
func (w *World) fits(own, may, bound uint8) bool {
	for x := range uint8(pods) {
		switch {
		case own&(1<<x) == 0:
		case may&w.Apart[x] != 0, w.Needs[x] != 0 && (bound|own)&w.Needs[x] == 0:
			return false
		case w.Skew:
			here, there := uint8(0), uint8(0)
			for y := range uint8(pods) {
				if w.Zones[y] == w.Zones[x] {
					here += may >> y & 1
				} else {
					there += bound >> y & 1
				}
			}
			if here+1 > min(here, there)+1 {
				return false
			}
		}
	}
	return true
}

// harm returns what is wrong with the pods that stand, and those that ever did, in an order of any kind (C2).
func (w *World) harm(now, ever uint8) string {
	for x := range uint8(pods) {
		if now&(1<<x) == 0 {
			continue
		}
		if other := now & w.Apart[x]; other != 0 {
			return fmt.Sprintf("C2: %s stands where %s does", w.Pods[x], w.names(other))
		}
	}
	if w.Skew {
		for zone := range uint8(3) {
			here, there := 0, 0
			for x, z := range w.Zones {
				if z == zone {
					here += int(now >> x & 1)
				} else {
					there += int(ever >> x & 1)
				}
			}
			if zone != 0 && here > there+1 {
				return fmt.Sprintf("C2: %d pods in domain %d, %d in the other", here, zone, there)
			}
		}
	}
	return ""
}

func (w *World) names(set uint8) string {
	out := ""
	for x, name := range w.Pods {
		if set&(1<<x) != 0 {
			if out != "" {
				out += "+"
			}
			out += name
		}
	}
	return out
}

func pair(x, y uint8) (apart [pods]uint8) {
	apart[x], apart[y] = 1<<y, 1<<x
	return apart
}

var toB, toC, toD = [shards]uint8{b, a}, [shards]uint8{c, c}, [shards]uint8{d, d, d}

// Worlds. A and B are running. C is started as the heir of a shard where Heir says so: the next incarnation of the same shard.
var Worlds = []World{
	// p carries a term that q matches.
	{Name: "plain", Pods: []string{"p", "q"}, Gangs: [][]uint8{{0}, {1}}, Home: []uint8{a, b}, Node: []uint8{a, b},
		Terms: 1, Apart: pair(0, 1), Heir: toB},
	{Name: "plain-fresh", Pods: []string{"p", "q"}, Gangs: [][]uint8{{0}, {1}}, Home: []uint8{a, b}, Node: []uint8{a, b},
		Terms: 1, Apart: pair(0, 1), Heir: toC},
	{Name: "plain-crossed", Pods: []string{"p", "q"}, Gangs: [][]uint8{{0}, {1}}, Home: []uint8{b, a}, Node: []uint8{a, b},
		Terms: 1, Apart: pair(0, 1), Heir: toC},
	{Name: "plain-first", Pods: []string{"q", "p"}, Gangs: [][]uint8{{0}, {1}}, Home: []uint8{b, a}, Node: []uint8{b, a},
		Terms: 2, Apart: pair(0, 1), Heir: toC},
	// Both carry it: an exclusive key, or two that both want to be the first of an affinity, in different zones.
	{Name: "both", Pods: []string{"p", "q"}, Gangs: [][]uint8{{0}, {1}}, Home: []uint8{a, b}, Node: []uint8{a, b},
		Terms: 3, Apart: pair(0, 1), Heir: toC},
	{Name: "key", Pods: []string{"p", "q"}, Gangs: [][]uint8{{0}, {1}}, Home: []uint8{a, b}, Node: []uint8{a, a},
		Terms: 1, Apart: pair(0, 1), Key: true, Heir: toC},
	// A gang over two node shards, and q, which may not stand where l1 does.
	{Name: "gang", Pods: []string{"l1", "l2", "q"}, Gangs: [][]uint8{{0, 1}, {2}}, Home: []uint8{a, b}, Node: []uint8{a, b, b},
		Terms: 4, Apart: pair(0, 2), Heir: toC},
	{Name: "gang-plain", Pods: []string{"l1", "l2", "q"}, Gangs: [][]uint8{{0, 1}, {2}}, Home: []uint8{b, a}, Node: []uint8{a, b, a},
		Terms: 3, Apart: [pods]uint8{4, 4, 3}, Heir: toB},
	{Name: "gang-one", Pods: []string{"l1", "l2", "q"}, Gangs: [][]uint8{{0, 1}, {2}}, Home: []uint8{a, b}, Node: []uint8{a, a, b},
		Terms: 3, Apart: [pods]uint8{4, 4, 3}, Heir: toC},
	// A is nothing but the home of l1 and l2.
	{Name: "gang-judge", Pods: []string{"l1", "l2", "q"}, Gangs: [][]uint8{{0, 1}, {2}}, Home: []uint8{a, b}, Node: []uint8{b, c, b},
		Terms: 4, Apart: pair(0, 2), Heir: toD},
	// Two of them that exclude each other.
	{Name: "gangs", Pods: []string{"l1", "l2", "m1", "m2"}, Gangs: [][]uint8{{0, 1}, {2, 3}}, Home: []uint8{a, b}, Node: []uint8{a, b, a, b},
		Terms: 15, Apart: [pods]uint8{12, 12, 3, 3}, Heir: toC},
	// f needs l beside it.
	{Name: "support", Pods: []string{"l", "f"}, Gangs: [][]uint8{{0}, {1}}, Home: []uint8{a, b}, Node: []uint8{a, b},
		Terms: 2, Needs: [pods]uint8{0, 1}, Heir: toC},
	{Name: "support-own", Pods: []string{"l", "f"}, Gangs: [][]uint8{{0}, {1}}, Home: []uint8{a, b}, Node: []uint8{a, a},
		Terms: 2, Needs: [pods]uint8{0, 1}, Heir: toC},
	{Name: "support-gang", Pods: []string{"l1", "l2", "f"}, Gangs: [][]uint8{{0, 1}, {2}}, Home: []uint8{a, b}, Node: []uint8{a, b, b},
		Terms: 4, Needs: [pods]uint8{0, 0, 3}, Heir: toC},
	// l1 needs l2, which is of its gang.
	{Name: "leader", Pods: []string{"l1", "l2"}, Gangs: [][]uint8{{0, 1}}, Home: []uint8{a}, Node: []uint8{a, b},
		Terms: 1, Needs: [pods]uint8{2}, Heir: toC},
	{Name: "leader-own", Pods: []string{"l1", "l2"}, Gangs: [][]uint8{{0, 1}}, Home: []uint8{a}, Node: []uint8{a, a},
		Terms: 1, Needs: [pods]uint8{2}, Heir: toC},
	// A spread: x1 and x3 in one zone, x2 in the other.
	{Name: "spread", Pods: []string{"x1", "x2", "x3"}, Gangs: [][]uint8{{0}, {1}, {2}}, Home: []uint8{a, b, b}, Node: []uint8{a, b, b},
		Terms: 7, Zones: [pods]uint8{1, 2, 1}, Skew: true, Heir: toC},
	// Both waves of a spread are of one node shard: x1 and x3 in one zone, x2 of another shard in the other.
	{Name: "spread-waves", Pods: []string{"x1", "x2", "x3"}, Gangs: [][]uint8{{0}, {1}, {2}}, Home: []uint8{a, a, a}, Node: []uint8{a, b, a},
		Terms: 7, Zones: [pods]uint8{1, 2, 1}, Skew: true, Heir: toC},
	// Each needs the other, and so nobody is the first.
	{Name: "mutual", Pods: []string{"p", "q"}, Gangs: [][]uint8{{0}, {1}}, Home: []uint8{a, b}, Node: []uint8{a, b},
		Terms: 3, Needs: [pods]uint8{2, 1}, Heir: toC},
	{Name: "mutual-gangs", Pods: []string{"l1", "l2", "m1", "m2"}, Gangs: [][]uint8{{0, 1}, {2, 3}}, Home: []uint8{a, b}, Node: []uint8{a, b, a, b},
		Terms: 15, Needs: [pods]uint8{12, 12, 3, 3}, Heir: toC},
}

// WorldNamed returns the world of a name.
func WorldNamed(name string) (World, error) {
	for _, w := range Worlds {
		if w.Name == name {
			return w, nil
		}
	}
	return World{}, fmt.Errorf("there is no world %s", name)
}
