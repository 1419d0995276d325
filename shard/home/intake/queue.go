package intake

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
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
	slices.SortFunc(groups, CompareGroups)
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

// times are what a Queue says of its gangs, negative where it says nothing: of those that lost pods of their minimum,
// and for how long they run.
type times struct {
	uid            string
	keep, stale    time.Duration
	longest, usual time.Duration
}

// repairFor is what counts where no Queue of a path says how long a gang keeps the charge of what it lost.
const repairFor = 2 * time.Minute

// SeeTimes takes note of what a Queue says of the times of its gangs, nil for one that is gone, and reports whether it
// said something else before.
func (o *Objects) SeeTimes(name, uid string, spec *v1beta1.QueueSpec) bool {
	was := o.timesOf(name)
	if spec == nil {
		if was.uid != uid {
			return false // of an earlier one of this name
		}
		spec = &v1beta1.QueueSpec{}
	}
	const week, year = v1beta1.MaxPolicyDuration, v1beta1.MaxRuntime
	now := times{
		uid: uid, keep: bounded(spec.RepairFor, week), stale: bounded(spec.StaleAfter, week),
		longest: bounded(spec.MaxRuntime, year), usual: bounded(spec.DefaultRuntime, year),
	}
	if o.times[name] = now; now == (times{uid, -1, -1, -1, -1}) {
		delete(o.times, name)
	}
	was.uid = uid
	return was != now
}

func (o *Objects) timesOf(queue string) times {
	if t, says := o.times[queue]; says {
		return t
	}
	return times{keep: -1, stale: -1, longest: -1, usual: -1}
}

// LongestRuntime returns for how long a gang of a queue may run, and which queue of the path says so: the shortest of
// what they say counts. It is 0 where none says anything.
func (o *Objects) LongestRuntime(queue string) (longest time.Duration, by string) {
	for q := queue; q != ""; q = api.Parent(q) {
		if t := o.timesOf(q); t.longest > 0 && (longest == 0 || t.longest < longest) {
			longest, by = t.longest, q
		}
	}
	return longest, by
}

// DefaultRuntime returns for how long a gang of a queue runs at most that says nothing itself, and which queue of the
// path says so, the nearest one; 0 where none does.
func (o *Objects) DefaultRuntime(queue string) (usual time.Duration, by string) {
	return o.nearest(queue, func(t times) time.Duration {
		if t.usual == 0 { // the API server accepts none: it says nothing
			return -1
		}
		return t.usual
	}, 0)
}

// nearest returns what the nearest queue of a path says that says it, and which one that is; otherwise or, and "".
func (o *Objects) nearest(queue string, of func(times) time.Duration, or time.Duration) (d time.Duration, by string) {
	for q := queue; q != ""; q = api.Parent(q) {
		if said := of(o.timesOf(q)); said >= 0 {
			return said, q
		}
	}
	return or, ""
}

// RepairFor returns for how long a gang of a queue keeps the charge of pods of its minimum that it lost. The nearest
// queue of the path that says it decides.
func (o *Objects) RepairFor(queue string) time.Duration {
	keep, _ := o.nearest(queue, func(t times) time.Duration { return t.keep }, repairFor)
	return keep
}

// StaleAfter returns for how long pods that replace what a gang lost wait before the rest of it is evicted, 0 for ever,
// and which object says so. The nearest queue of the path that says it decides, and the PodGroup may say less.
func (o *Objects) StaleAfter(queue string, group *Group) (after time.Duration, by string) {
	if after, by = o.nearest(queue, func(t times) time.Duration { return t.stale }, 0); by != "" {
		by = "Queue " + by
	}
	if d := group.StaleAfter; d > 0 && (after == 0 || d < after) {
		return d, group.Name.Kind.String() + " " + group.Name.Name
	}
	return after, by
}

// bounded returns a duration as it is written, -1 for none, and for one that the API server would not accept.
func bounded(d *metav1.Duration, most time.Duration) time.Duration {
	if d == nil || d.Duration < 0 || d.Duration > most {
		return -1
	}
	return d.Duration
}
