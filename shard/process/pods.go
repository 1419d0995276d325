package process

import (
	"slices"
	"strings"
	"sync"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/shard/event"
)

// pods is all pods as the watch shows them. A takeover asks for all pods as they are at a moment after it read the control
// store. Where there are many, a new list is what takes longest in it, and the watch has them already: it only has to be
// known that the watch has come as far as a list would. The cores hear nothing of pods before they ask for the first time.
type pods struct {
	mu    sync.Mutex // held while emit is called: events stay in order with what is known
	emit  func(item)
	known map[string]*api.Pod // by UID
	asked bool
}

func newPods(emit func(item)) *pods { return &pods{emit: emit, known: map[string]*api.Pod{}} }

func (p *pods) seen(pod *api.Pod) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.known[pod.UID] = pod
	if p.asked {
		p.emit(item{event: event.PodSeen{Pod: pod}})
	}
}

func (p *pods) gone(uid, namespace, name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.known, uid)
	if p.asked {
		p.emit(item{event: event.PodGone{UID: uid, Namespace: namespace, Name: name}})
	}
}

// replaced takes a new list.
func (p *pods) replaced(list []*api.Pod, ticket kube.Ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	clear(p.known)
	for _, pod := range list {
		p.known[pod.UID] = pod
	}
	if p.asked = p.asked || ticket > 0; p.asked {
		p.emit(item{event: event.PodsReplaced{Pods: list}, ticket: ticket})
	}
}

// current says that what is known is as good as a list.
func (p *pods) current(ticket kube.Ticket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := make([]*api.Pod, 0, len(p.known))
	for _, pod := range p.known {
		list = append(list, pod)
	}
	slices.SortFunc(list, func(a, b *api.Pod) int { return strings.Compare(a.UID, b.UID) })
	p.asked = true
	p.emit(item{event: event.PodsReplaced{Pods: list}, ticket: ticket})
}
