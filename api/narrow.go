package api

import "google.golang.org/protobuf/encoding/protowire"

// Fields of a v1.PodSpec that keep a pod from most nodes, or from nodes with others like it.
const (
	specContainers   = 2 // of which only host ports are kept
	specNodeSelector = 7
	specAffinity     = 18
)

// Narrow says how particular pods of a class are about nodes, from 0 for any node to 2: they name the nodes that take
// them, or have host ports, so that a node takes one of them, or both. It reads no more than the outer fields, for it
// is asked about each pod, and tolerations, which most pods have, say nothing.
func (c *Class) Narrow() (n int) {
	named, ports := false, false
	for b := c.Constraints; len(b) > 0; {
		number, _, length := protowire.ConsumeField(b)
		if length < 0 || number > specAffinity { // fields come in the order of their numbers
			break
		}
		named = named || number == specNodeSelector || number == specAffinity
		ports = ports || number == specContainers
		b = b[length:]
	}
	if named {
		n++
	}
	if ports {
		n++
	}
	return n
}
