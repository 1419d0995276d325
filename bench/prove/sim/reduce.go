package sim

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/shard/effect"
	"basalt.dev/basalt/shard/event"
)

// Between the watches and the two other cores of a shard is its volumes core, as in package server.

// followStorage follows claims and volumes. first is called after each first list.
func (x *shard) followStorage(first func()) {
	for _, s := range storageClasses() {
		x.reduce(changedTo(volume.StripClass(s)))
	}
	x.watch(x.w.api.claims, &watcher{
		replaced: func(objects []object, _ uint64) { x.reduce(listed(objects, volume.StripClaim)) },
		seen: func(o object) {
			x.reduce(changedTo(volume.StripClaim(o.Object.(*corev1.PersistentVolumeClaim))))
		},
		gone: func(o object) {
			x.reduce(event.Changed[*corev1.PersistentVolumeClaim]{Object: o.Object.(*corev1.PersistentVolumeClaim), Gone: true})
		},
		first: first,
	})
	x.watch(x.w.api.volumes, &watcher{
		replaced: func(objects []object, _ uint64) { x.reduce(listed(objects, volume.StripVolume)) },
		seen: func(o object) {
			x.reduce(changedTo(volume.StripVolume(o.Object.(*corev1.PersistentVolume))))
		},
		gone: func(o object) {
			x.reduce(event.Changed[*corev1.PersistentVolume]{Object: o.Object.(*corev1.PersistentVolume), Gone: true})
		},
		first: first,
	})
}

func changedTo[T any](o T) event.Event { return event.Changed[T]{Object: o} }

func listed[T any](objects []object, strip func(T) T) event.Event {
	out := event.Listed[T]{}
	for _, o := range objects {
		out.Objects = append(out.Objects, strip(o.Object.(T)))
	}
	return out
}

// reduce steps the volumes core.
func (x *shard) reduce(ev event.Event) {
	x.volumes.Step(x.w.now, ev)
	for _, o := range x.volumes.Outputs() {
		if tell, is := o.(event.Tell); is {
			x.hearTold(tell.Event)
			continue
		}
		x.w.output(x.inc, o)
		if x.burn() {
			return
		}
		x.writeVolume(o)
	}
	if at := x.volumes.Due(); !x.dead && !at.Equal(x.volumesDue) {
		if x.volumesDue = at; !at.IsZero() {
			x.later(max(0, at.Sub(x.w.now)), func() {
				if x.volumesDue.Equal(at) {
					x.volumesDue = x.w.now.Add(-1) // none is set
					x.reduce(event.Tick{})
				}
			})
		}
	}
}

// hearTold gives the other cores what the volumes core tells.
func (x *shard) hearTold(ev event.Event) {
	switch e := ev.(type) {
	case event.PodsListed:
		x.podsListed(e)
		return
	case event.PodSeen:
		p := e.Pod
		if t := x.tables.seen(); fault.On(fault.DeletedIsGone) && p.Node != "" && t != nil && t.OwnerOf(p.Node) != x.inc {
			delete(x.shown, p.UID)
			x.step(event.PodGone{UID: p.UID, Namespace: p.Namespace, Name: p.Name})
			return
		}
		x.shown[p.UID] = p
		x.saw(p)
	case event.PodGone:
		delete(x.shown, e.UID)
	}
	x.step(ev)
}

// toVolumes has the volumes core hear of what the node core asks for, in order and a little later.
func (x *shard) toVolumes(ev event.Event) {
	if x.unheard = append(x.unheard, ev); len(x.unheard) > 1 {
		return
	}
	x.later(x.w.delay(), func() {
		all := x.unheard
		x.unheard = nil
		for _, ev := range all {
			if !x.dead {
				x.reduce(ev)
			}
		}
	})
}

// writeVolume makes a write of the volumes core.
func (x *shard) writeVolume(o event.Output) {
	a := x.w.api
	var id uint64
	var do func() (string, error)
	switch o := o.(type) {
	case event.SelectNode:
		id, do = o.ID, func() (string, error) { return a.SelectNode(o.Claim, o.Node) }
	case event.KeepVolume:
		id, do = o.ID, func() (string, error) { return a.KeepVolume(o.Volume, o.Claim) }
	default:
		x.w.fail("output %T is not known", o)
	}
	var version string
	var err error
	x.call(&a.server, "write", apiPatience, func() { version, err = do() }, func(answered bool) {
		if !answered {
			version, err = "", errNoAnswer
		}
		x.reduce(effect.VolumeWritten(id, version, err))
	})
}

// podsListed is what the cores hear of a list of pods.
func (x *shard) podsListed(p event.PodsListed) {
	w := x.w
	ev := event.PodsReplaced{Pods: p.Pods}
	if p.CaughtUp {
		w.count("lists that the watch stood for")
		byUID := func(a, b *api.Pod) int { return strings.Compare(a.UID, b.UID) }
		slices.SortFunc(p.Pods, byUID)
		nodes, rows := x.cores.Node.Asks()
		ev.Seen, ev.Others, ev.Pods = true, p.Pods, x.cores.Home.Pods(slices.Clone(p.Pods), nodes, rows)
		slices.SortFunc(ev.Pods, byUID)
	} else {
		x.shown = map[string]*api.Pod{}
		for _, pod := range p.Pods {
			x.shown[pod.UID] = pod
			x.saw(pod)
		}
	}
	if x.relisted && p.Ticket >= x.logTicket {
		ev.AfterLog, x.relisted = true, false
	}
	if !x.told && p.Ticket >= x.ticket && x.early == nil {
		ev.Sequence, x.told = x.listing.Sequence, true
	}
	w.log("%s has %d pods, list %d", x.inc, len(ev.Pods), ev.Sequence)
	if x.early != nil && p.Ticket >= x.ticket {
		read := x.early
		x.early, x.kept = nil, &ev
		x.pods.stalled = w.now.Add(time.Minute)
		x.later(w.between(0, 8*time.Second), read) // the longer it takes, the more lands meanwhile
		return
	}
	x.kept = nil
	x.step(ev)
}
