package cache

import (
	"fmt"
	"testing"

	"basalt.dev/basalt/api"
)

// tieredCluster has 10,000 nodes, each in a tier of four classes if told.
func tieredCluster(told bool) (c *Cache, nodes []*api.Node) {
	c = cluster(10000)
	for i := range 10000 {
		n := *c.nodes[fmt.Sprintf("node-%05d", i)].object
		if told {
			for k := range 4 {
				n.Tiers = append(n.Tiers, api.Tier{Class: fmt.Sprint("t", k), Tier: uint8((i >> k) % 4)})
			}
		}
		c.SetNode(&n)
		nodes = append(nodes, &n)
	}
	return c, nodes
}

// BenchmarkConfiguredTiers is a decision of 20 classes of pods in turns, like BenchmarkDecision: where nothing is
// configured, where nodes are in tiers of four classes of which no pod is, and where all pods are of one of these.
func BenchmarkConfiguredTiers(b *testing.B) {
	for _, row := range []struct {
		what       string
		told, used bool
	}{{"without", false, false}, {"not used", true, false}, {"used", true, true}} {
		b.Run(row.what, func(b *testing.B) {
			c, _ := tieredCluster(row.told)
			plain := mixed(20)
			asked := make([]*api.Class, len(plain))
			for i, class := range plain {
				if asked[i] = class; row.used {
					asked[i] = tiered(class, fmt.Sprint("t", i%4))
				}
			}
			uids := make([]string, 100)
			for i := range uids {
				uids[i] = fmt.Sprint("new-", i)
			}
			for _, class := range asked {
				c.Place(class)
			}
			b.ReportAllocs()
			b.ResetTimer()
			for i := range b.N {
				if !decide(c, asked[i%len(asked)], plain[i%len(plain)], uids[i%len(uids)]) {
					b.Fatal("no room")
				}
			}
		})
	}
}

// BenchmarkTierChange is a node whose tiers change, in a cluster where 20 classes of pods are placed by tiers;
// without, nothing is configured and a label changes.
func BenchmarkTierChange(b *testing.B) {
	for _, used := range []bool{false, true} {
		b.Run(fmt.Sprintf("used=%t", used), func(b *testing.B) {
			c, nodes := tieredCluster(used)
			for i, class := range mixed(20) {
				if used {
					class = tiered(class, fmt.Sprint("t", i%4))
				}
				c.Place(class)
			}
			b.ResetTimer()
			for i := range b.N {
				n := *nodes[i%len(nodes)]
				if used {
					n.Tiers = nodes[(i+i/len(nodes)+1)%len(nodes)].Tiers
				} else {
					n.Labels = nodes[(i+i/len(nodes)+1)%len(nodes)].Labels
				}
				c.SetNode(&n)
			}
		})
	}
}
