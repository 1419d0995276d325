package server

import (
	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/shard/event"
)

// nodeEvents makes the events of nodes.
func (w *watches) nodeEvents() (seen, gone func(*corev1.Node) event.Event) {
	shared := map[string]*api.Node{} // stays empty but with fault.SharedNodes
	last := map[string]*api.Node{}   // stays empty without nodeTiers
	seen = func(n *corev1.Node) event.Event {
		node := w.rules.FromNode(n, last[n.Name])
		if w.rules.Tiers != nil {
			last[n.Name] = node
		}
		if fault.On(fault.SharedNodes) {
			if old := shared[n.Name]; old != nil {
				*old, node = *node, old // the cores hold old and read it at this moment
			}
			shared[n.Name] = node
		}
		return event.NodeSeen{Node: node}
	}
	gone = func(n *corev1.Node) event.Event {
		delete(last, n.Name)
		return event.NodeGone{Name: n.Name}
	}
	return seen, gone
}
