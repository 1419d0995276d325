package home

import (
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Bytes of classes in HoldRequests. Each names the classes of its pods in full, and each pod of a gang may be of a class of
// its own. So the gangs of a namespace share a token bucket of bytes: while it is empty, none of them that has many bytes to
// send begins to search for room. A round that has begun goes on, and is paid for by those to come.
const (
	sentBytes   = 8 << 20 // of one namespace in a second; the bucket holds as many
	smallClass  = 4 << 10 // bytes of a request that are not counted
	longestDebt = 30 * time.Second
)

// countBytes takes the classes of a HoldRequest out of the bucket of a namespace.
func (c *common) countBytes(namespace string, bytes int) {
	if bytes > smallClass {
		c.sent.Spend(c.now, namespace, int64(bytes))
	}
}

// limitBytes returns until when a gang may not begin to search for room for pods, as the bucket of its namespace is
// empty; the zero time if it may.
func (c *common) limitBytes(g *gang, pods []*pod) (until time.Time) {
	debt := c.sent.Spent(c.now, g.name.Namespace) - sentBytes
	if debt < 0 {
		return until
	}
	var index classIndex
	for _, p := range pods {
		index.number(p.asked)
	}
	if index.bytes() <= smallClass {
		return until
	}
	return c.now.Add(time.Duration(debt*1000/sentBytes+1) * time.Millisecond)
}

// classes numbers the distinct classes of a message.
type classes struct {
	classIndex
	wire []*wire.PodClass
}

func (k *classes) of(class *api.Class) uint32 {
	n, fresh := k.number(class)
	if fresh {
		k.wire = append(k.wire, wire.FromClass(class))
	}
	return uint32(n)
}
