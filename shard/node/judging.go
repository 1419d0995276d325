package node

import (
	"time"

	"basalt.dev/basalt/api"
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
)

// spending is what a namespace spent of its bucket. It is forgotten when the bucket is full again.
type spending struct {
	bytes int64
	since time.Time // the bucket fills from then on
}

// refill fills the bucket for the time that has passed, and reports whether it is full.
func (s *spending) refill(now time.Time) (full bool) {
	if passed := now.Sub(s.since).Milliseconds(); passed > 0 {
		s.since = s.since.Add(time.Duration(passed) * time.Millisecond)
		s.bytes = max(0, s.bytes-min(passed, 1<<30)*comparedBytes/1000)
	}
	return s.bytes == 0
}

// mayCompare reports whether the constraints of a class may be compared with nodes for a namespace now.
func (c *Core) mayCompare(namespace string, class *api.Class) bool {
	s := c.spent[namespace]
	if s == nil || s.refill(c.now) || s.bytes < comparedAtOnce {
		return true
	}
	return c.cache.Uncompared(class) == 0
}

// spend charges a namespace for what was compared since a count of the cache.
func (c *Core) spend(namespace string, since int64) {
	bytes := c.cache.Compared() - since
	if bytes == 0 {
		return
	}
	s := c.spent[namespace]
	if s == nil {
		s = &spending{since: c.now}
		c.spent[namespace] = s
	}
	s.refill(c.now)
	s.bytes += bytes
}

// forgetSpending forgets the namespaces whose buckets are full.
func (c *Core) forgetSpending() {
	for namespace, s := range c.spent {
		if s.refill(c.now) {
			delete(c.spent, namespace)
		}
	}
}

// notCompared is what a pod is told whose class was refused for that reason.
const notCompared = "pod(s) have constraints that are not compared with the nodes yet: those of this namespace take too much time"
