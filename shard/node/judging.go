package node

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/topology"
)

// Fair use of the cache. To find out which nodes the constraints of a class allow, they are compared with each node once; what
// comes out is kept for the classes that are asked for (package cache). A class may have 32 KiB of constraints, which takes
// tens of milliseconds on a thousand nodes, and every pod may be of a class of its own. So each namespace has a token bucket
// of bytes compared: what a request compares is paid for afterwards, and while the bucket is empty, classes that would have
// to be compared with more nodes are refused for now. Other classes of the namespace, and other namespaces, are not concerned.
const (
	// comparedBytes is what the constraints of one namespace may take in a second: bytes of constraints times nodes that they are
	// compared with. That is between 1 and 20 % of the time of one processor, depending on the kind of constraints.
	comparedBytes = 64 << 20
	// comparedAtOnce is what the bucket holds.
	comparedAtOnce = 3 * comparedBytes
	// gradedAtOnce is what preferences may use of it (wishes.go): the rest is left for what pods require.
	gradedAtOnce = comparedAtOnce / 2
)

// mayCompare reports whether the constraints of a class may be compared with nodes for a namespace now.
func (c *Core) mayCompare(namespace string, class *api.Class) bool {
	return c.spent.Spent(c.now, namespace) < comparedAtOnce || c.cache.Uncompared(class) == 0
}

// spend charges a namespace for what was compared since a count of the cache.
func (c *Core) spend(namespace string, since int64) {
	if bytes := c.cache.Compared() - since; bytes > 0 {
		c.spent.Spend(c.now, namespace, bytes)
	}
}

// mayNode reports whether rules allow a pod on a node once charged pods are gone.
type mayNode func(node string, gone []string) bool

// leaveCost is what it costs to leave a pod out for a moment, in bytes of constraints compared.
const leaveCost = 256

// mayWithout asks rules about a node once charged pods are gone.
func mayWithout(c *Core, t *topology.Trial, r *topology.Rules, number int32, gone []string) (may bool) {
	c.cache.Look(r.Cost() + leaveCost*int64(len(gone)))
	var pods [][2]string
	for _, uid := range gone {
		if b, bound := c.bound[uid]; bound {
			pods = append(pods, [2]string{b.kin.namespace, uid})
		} else if p, charged := c.cache.Lookup(uid); charged && c.gangs[p.Gang] != nil {
			pods = append(pods, [2]string{c.gangs[p.Gang].ref.GetNamespace(), uid})
		}
	}
	t.Leave(pods, func() { may = r.Obstacle(number, true) == topology.None })
	return may
}
