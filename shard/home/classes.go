package home

import (
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// classIndex numbers distinct classes in the order in which they come. Few are compared one by one: most gangs have one. Many are
// looked up by the hash that they carry, for their keys are up to 32 KiB long and each pod may have another one; classes with the
// same hash are told apart by their keys.
type classIndex struct {
	list  []*api.Class
	first map[uint64]int32 // hash -> number of the last class that has it; nil while there are few
	next  []int32          // number -> number of another class with the same hash, -1 for none
}

// fewClasses is how many classes are compared one by one.
const fewClasses = 8

// number returns the number of a class, and whether it is new.
func (x *classIndex) number(class *api.Class) (n int, fresh bool) {
	if k := len(x.list); k > 0 && x.list[k-1] == class { // pods of one class come in a row
		return k - 1, false
	}
	if n := x.find(class); n >= 0 {
		return n, false
	}
	x.list = append(x.list, class)
	if len(x.list) > fewClasses {
		if x.first == nil {
			x.first = map[uint64]int32{}
		}
		for n := len(x.next); n < len(x.list); n++ {
			x.insert(n, x.list[n].Hash())
		}
	}
	return len(x.list) - 1, true
}

// insert makes a class known by a hash.
func (x *classIndex) insert(n int, hash uint64) {
	before, known := x.first[hash]
	if !known {
		before = -1
	}
	x.next = append(x.next, before)
	x.first[hash] = int32(n)
}

// find returns the number of a class, -1 if it has none.
func (x *classIndex) find(class *api.Class) int {
	if x.first == nil {
		return slices.IndexFunc(x.list, func(known *api.Class) bool { return known == class || known.Key == class.Key })
	}
	return x.findBy(class.Hash(), class)
}

func (x *classIndex) findBy(hash uint64, class *api.Class) int {
	n, known := x.first[hash]
	if !known {
		return -1
	}
	for n >= 0 && x.list[n] != class && x.list[n].Key != class.Key {
		n = x.next[n]
	}
	return int(n)
}

// bytes returns how long the keys of the classes are together.
func (x *classIndex) bytes() (n int) {
	for _, class := range x.list {
		n += len(class.Key)
	}
	return n
}

// Bytes of classes in HoldRequests. Each names the classes of its pods in full, and each pod of a gang may be of a class of
// its own. So the gangs of a namespace share a token bucket of bytes: while it is empty, none of them that has many bytes to
// send begins to search for room. A round that has begun goes on, and is paid for by those to come.
const (
	sentBytes   = 8 << 20 // of one namespace in a second; the bucket holds as many
	smallClass  = 4 << 10 // bytes of a request that are not counted
	longestDebt = 30 * time.Second
)

// countBytes takes the classes of a HoldRequest out of the bucket of a namespace.
func (c *Core) countBytes(namespace string, bytes int) {
	if bytes > smallClass {
		c.sent.Spend(c.now, namespace, int64(bytes))
	}
}

// limitBytes puts a gang to sleep that is about to search for room for pods, while the bucket of its namespace is empty.
func (c *Core) limitBytes(g *gang, pods []*pod) bool {
	debt := c.sent.Spent(c.now, g.name.Namespace) - sentBytes
	if debt < 0 {
		return false
	}
	var index classIndex
	for _, p := range pods {
		index.number(p.asked)
	}
	if index.bytes() <= smallClass {
		return false
	}
	at := c.now.Add(time.Duration(debt*1000/sentBytes+1) * time.Millisecond)
	c.pauseUntil(g, at)
	c.freeSlot(g)
	c.wakeAt(g, at)
	return true
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
