package intake

import (
	"slices"

	"basalt.dev/basalt/api"
)

// Volcano's PodGroups and pods name a queue of Volcano's. It is the Queue whose label says that it stands for that one; where there is
// none, the Queue of the same name.

// queue is a Queue that stands for one of Volcano's.
type queue struct {
	uid   string
	named string // Volcano's name
	api.StandIn
}

// SeeQueue takes note of a Queue; named is the queue of Volcano's that it stands for, "" for none. It returns the PodGroups and the
// pods, in order, whose queue may be another one now.
func (o *Objects) SeeQueue(name, uid, named string, deleting bool) (groups []*Group, pods []string) {
	was, now := o.queues[name], queue{uid, named, api.StandIn{Queue: name, Deleting: deleting}}
	if was == now || was.named == "" && named == "" {
		return nil, nil
	}
	return o.changeQueue(was, now)
}

// DropQueue forgets a Queue, and returns what SeeQueue does.
func (o *Objects) DropQueue(name, uid string) (groups []*Group, pods []string) {
	was := o.queues[name]
	if was.named == "" || was.uid != uid {
		return nil, nil
	}
	return o.changeQueue(was, queue{StandIn: was.StandIn})
}

func (o *Objects) changeQueue(was, now queue) (groups []*Group, pods []string) {
	before := [2]string{o.standIn(was.named), o.standIn(now.named)}
	if was.named != "" {
		delete(o.queues, was.Queue)
		o.standIns[was.named] = slices.DeleteFunc(o.standIns[was.named], func(s api.StandIn) bool { return s == was.StandIn })
		if len(o.standIns[was.named]) == 0 {
			delete(o.standIns, was.named)
		}
	}
	if now.named != "" {
		o.queues[now.Queue] = now
		o.standIns[now.named] = append(o.standIns[now.named], now.StandIn)
		slices.SortFunc(o.standIns[now.named], api.StandIn.Compare)
	}
	for i, named := range [2]string{was.named, now.named} {
		if named == "" || o.standIn(named) == before[i] || i == 1 && named == was.named {
			continue
		}
		for _, g := range o.groups {
			if g.Name.Kind == api.VolcanoGroup && g.Queue == named {
				groups = append(groups, g)
			}
		}
		pods = append(pods, api.SortedKeys(o.inVolcano[named])...)
	}
	slices.SortFunc(groups, compareGroups)
	return groups, pods
}

// standIn returns the name of the Queue that stands for one of Volcano's.
func (o *Objects) standIn(named string) string {
	if of := o.standIns[named]; len(of) > 0 {
		return of[0].Queue
	}
	return named
}

// own returns the queue that a PodGroup names, "" for none.
func (o *Objects) own(g *Group) string {
	if g.Name.Kind == api.VolcanoGroup {
		return o.standIn(g.Queue)
	}
	return g.Queue
}
