package topology

import (
	"maps"
	"slices"

	"basalt.dev/basalt/api"
)

// nodeTable is the nodes, and in which domains they are.
type nodeTable struct {
	nodes   []node
	byName  map[string]int32
	free    []int32            // numbers of nodes that nobody has seen, and that no pod names any more
	there   int                // nodes that exist
	columns map[string]*column // by the label of nodes that it is about
	hosts   map[string]int     // nodes by hostname
	shared  bool               // some had the same: then the terms about hostnames are for this package, too
}

// node is one that exists, or that some pod names.
type node struct {
	name    string
	object  *api.Node // nil: it does not exist
	seen    bool      // it did once,
	version string    // and this is the newest version that was seen
	entries int       // of pods
}

// column says in which domain of a topology key each node is.
type column struct {
	label   string
	of      []int32 // by node: its domain, -1 for none; nodes beyond its end have none
	placed  int     // nodes in some domain
	nodes   []int32 // by domain: its nodes
	domains int     // with nodes
	ids     map[string]int32
	values  []string
}

// nodeOf returns the number of a node, which it gets if it has none yet.
func (v *View) nodeOf(name string) int32 {
	n, known := v.byName[name]
	if !known {
		if n = int32(len(v.nodes)); len(v.free) > 0 {
			n, v.free = v.free[len(v.free)-1], v.free[:len(v.free)-1]
			v.byName[name], v.nodes[n] = n, node{name: name}
			return n
		}
		v.byName[name] = n
		v.nodes = append(v.nodes, node{name: name})
		for _, f := range v.filters {
			f.admits = append(f.admits, false)
		}
	}
	return n
}

// Node returns the number of a node, for Rules.Obstacle.
func (v *View) Node(name string) int32 { return v.nodeOf(name) }

// NameOf returns the name of a node by its number. Numbers go by who was seen first: those of an heir are others.
func NameOf(v *View, number int32) string { return v.nodes[number].name }

// noteHost counts nodes by hostname, and reports whether some share one for the first time. The shard of a node decides
// about terms whose domains are hostnames, but of the pods on nodes of other shards it does not know the terms. So when
// two nodes share a hostname, which is somebody's mistake, these terms are like others.
func (t *nodeTable) noteHost(before, now *api.Node) bool {
	if before != nil {
		if host, has := before.Labels[api.LabelHostname]; has {
			if t.hosts[host]--; t.hosts[host] == 0 {
				delete(t.hosts, host)
			}
		}
	}
	if now == nil {
		return false
	}
	host, has := now.Labels[api.LabelHostname]
	if !has {
		return false
	}
	if t.hosts[host]++; t.hosts[host] == 1 || t.shared {
		return false
	}
	t.shared = true
	return true
}

// forgetNodes forgets columns that are not used, and nodes: anybody can make pods that name nodes which do not exist.
func (t *nodeTable) forgetNodes(used map[*column]bool) {
	maps.DeleteFunc(t.columns, func(_ string, c *column) bool { return !used[c] })
	for n := range t.nodes {
		if of := &t.nodes[n]; of.object == nil && !of.seen && of.entries == 0 && of.name != "" {
			delete(t.byName, of.name)
			*of = node{}
			t.free = append(t.free, int32(n))
		}
	}
}

// Labelled reports whether some node has a label.
func (t *nodeTable) Labelled(label string) bool {
	return slices.ContainsFunc(t.nodes, func(n node) bool {
		if n.object == nil {
			return false
		}
		_, has := n.object.Labels[label]
		return has
	})
}

// columnOf returns the column of a label, which it makes if it is new.
func (t *nodeTable) columnOf(label string) *column {
	c := t.columns[label]
	if c == nil {
		c = &column{label: label, ids: map[string]int32{}}
		for n := range t.nodes {
			c.place(int32(n), t.nodes[n].object)
		}
		t.columns[label] = c
	}
	return c
}

// at returns the domain of a node, -1 for none.
func (c *column) at(n int32) int32 {
	if int(n) >= len(c.of) {
		return -1
	}
	return c.of[n]
}

func (c *column) place(n int32, object *api.Node) {
	if d := c.at(n); d >= 0 {
		c.of[n] = -1
		c.placed--
		if c.nodes[d]--; c.nodes[d] == 0 {
			c.domains--
		}
	}
	if object == nil {
		return
	}
	value, has := object.Labels[c.label]
	if !has {
		return
	}
	id, known := c.ids[value]
	if !known {
		id = int32(len(c.values))
		c.ids[value] = id
		c.values, c.nodes = append(c.values, value), append(c.nodes, 0)
	}
	for int(n) >= len(c.of) {
		c.of = append(c.of, -1)
	}
	c.of[n] = id
	c.placed++
	if c.nodes[id]++; c.nodes[id] == 1 {
		c.domains++
	}
}
