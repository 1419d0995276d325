package server

import (
	"maps"
	"slices"
	"sync"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
)

// pods is what the watch shows of pods. A takeover asks for all pods as they are at a moment after it read the control
// store. Where there are many, a new list is what takes longest in it, and the watch has them already: it only has to be
// known that the watch has come as far as a list would. The cores hear nothing of pods before they ask for the first time.
type pods struct {
	mu    sync.Mutex // held while emit is called: events stay in order with what is known
	emit  func(event.Event)
	known map[string]*api.Pod // by UID: those that the home core does not keep, and all while it hears nothing
	asked bool
}

// podsListed is PodsReplaced before it is known which question it answers. With caughtUp it is what the home core keeps, too.
type podsListed struct {
	pods     []*api.Pod
	ticket   kube.Ticket
	caughtUp bool
}

func (podsListed) IsEvent() {}

func newPods(emit func(event.Event)) *pods { return &pods{emit: emit, known: map[string]*api.Pod{}} }

func (p *pods) seen(pod *api.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.asked && home.Keeps(pod) {
		delete(p.known, pod.UID)
	} else {
		p.known[pod.UID] = pod
	}
	if p.asked {
		p.emit(event.PodSeen{Pod: pod})
	}
}

func (p *pods) gone(uid, namespace, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, uid)
	if p.asked {
		p.emit(event.PodGone{UID: uid, Namespace: namespace, Name: name})
	}
}

// replaced takes a new list.
func (p *pods) replaced(list []*api.Pod, ticket kube.Ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked = p.asked || ticket > 0
	p.keep(list)
	if p.asked {
		p.emit(podsListed{pods: list, ticket: ticket})
	}
}

// current says that what was shown is as good as a list.
func (p *pods) current(ticket kube.Ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := slices.Collect(maps.Values(p.known))
	p.emit(podsListed{pods: list, ticket: ticket, caughtUp: p.asked})
	p.asked = true
	p.keep(list)
}

// keep makes known again of some pods.
func (p *pods) keep(list []*api.Pod) {
	p.known = map[string]*api.Pod{}
	for _, pod := range list {
		if !p.asked || !home.Keeps(pod) {
			p.known[pod.UID] = pod
		}
	}
}
