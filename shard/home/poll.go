package home

import "basalt.dev/basalt/api"

// A question that goes to all node shards that own nodes (survey.go, explain.go, claim.go), as data: what each has
// answered. It is retransmitted by whoever asks.

// answer is what a shard has answered.
type answer uint8

const (
	awaited   answer = iota
	compared         // it has counted its nodes
	postponed        // it has spent too much on the namespace, and has not counted them
)

// poll is what each of the shards that were asked has answered. Those that left before they answered are not in it.
type poll map[api.Incarnation]answer

// poll returns a question to the shards that own nodes, and counts the classes that it names.
func (c *shards) poll(namespace string, of *classes) poll {
	p := poll{}
	for _, m := range c.table.Members {
		if c.owned[m.Incarnation] > 0 {
			p[m.Incarnation] = awaited
			c.countBytes(namespace, of.bytes())
		}
	}
	return p
}

// take takes a shard's answer, and reports whether it was awaited.
func (p poll) take(shard api.Incarnation, later bool) bool {
	if was, asked := p[shard]; !asked || was != awaited {
		return false
	}
	if p[shard] = compared; later {
		p[shard] = postponed
	}
	return true
}

// count returns how many shards answered so.
func (p poll) count(as answer) (n int) {
	for _, a := range p {
		if a == as {
			n++
		}
	}
	return n
}

// open reports whether a shard has not answered, and later whether one has not counted its nodes.
func (p poll) open() bool  { return p.count(awaited) > 0 }
func (p poll) later() bool { return p.count(postponed) > 0 }

// silent returns the shards that have not answered, in the order of the table.
func (c *common) silent(p poll) (shards []api.Incarnation) {
	for _, m := range c.table.Members {
		if a, asked := p[m.Incarnation]; asked && a == awaited {
			shards = append(shards, m.Incarnation)
		}
	}
	return shards
}

// forgetLeft takes out the shards that have left without an answer.
func (c *common) forgetLeft(p poll) {
	for shard, a := range p {
		if a == awaited && !c.isMember(shard) {
			delete(p, shard)
		}
	}
}
