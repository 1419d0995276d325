package volumes

import (
	"maps"
	"slices"

	"basalt.dev/basalt/api"
)

// pods are those that the watch has shown. A takeover asks for all pods as they are at a moment after it read the
// control store. Where there are many, a new list is what takes longest in it, and the watch has them already: it
// only has to be known that the watch has come as far as a list would. The cores hear nothing of pods before they ask
// for the first time.
type pods struct {
	keeps func(*api.Pod) bool
	known map[string]*api.Pod // by UID: those that the home core does not keep, and all while it hears nothing
	heard bool                // the cores have asked
}

func newPods(keeps func(*api.Pod) bool) pods { return pods{keeps: keeps, known: map[string]*api.Pod{}} }

// see takes a pod, and returns whether the cores are told.
func (p *pods) see(pod *api.Pod) bool {
	if p.heard && p.keeps(pod) {
		delete(p.known, pod.UID)
	} else {
		p.known[pod.UID] = pod
	}
	return p.heard
}

// lose takes that a pod is gone, and returns whether the cores are told.
func (p *pods) lose(uid string) bool {
	delete(p.known, uid)
	return p.heard
}

// list takes a new list, and returns whether the cores are told.
func (p *pods) list(list []*api.Pod, ticket uint64) bool {
	p.heard = p.heard || ticket > 0
	p.known = map[string]*api.Pod{}
	for _, pod := range list {
		p.see(pod)
	}
	return p.heard
}

// current returns what is as good as a list, but for the pods that the home core keeps if caughtUp. It is in no
// order: to sort a million takes half a second of a takeover.
func (p *pods) current() (list []*api.Pod, caughtUp bool) {
	list, caughtUp = slices.Collect(maps.Values(p.known)), p.heard
	p.list(list, 1)
	return list, caughtUp
}
