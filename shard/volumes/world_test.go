package volumes

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/event"
)

// world is a core, with a clock that stands still but in pass. What the core tells and asks for goes to functions as
// it comes.
type world struct {
	*Core
	now     time.Time
	show    func(*api.Pod)
	say     func(event.NodeVolumes)
	write   func(event.Output)
	answers []event.VolumesBound
	timers  []timer // of what is outside
}

type timer struct {
	at time.Time
	do func()
}

func newWorld(show func(*api.Pod)) *world {
	w := &world{Core: New(Config{Keeps: func(*api.Pod) bool { return false }}), now: time.Unix(1e9, 0), show: show,
		say: func(event.NodeVolumes) {}, write: func(event.Output) {}}
	w.step(event.CaughtUp[*corev1.Pod]{Ticket: 1}) // the cores want to hear of pods
	return w
}

func (w *world) step(ev event.Event) {
	w.Step(w.now, ev)
	for _, o := range w.Outputs() {
		tell, is := o.(event.Tell)
		if !is {
			w.write(o)
			continue
		}
		switch ev := tell.Event.(type) {
		case event.PodSeen:
			w.show(ev.Pod)
		case event.PodsListed:
			for _, p := range ev.Pods {
				w.show(p)
			}
		case event.NodeVolumes:
			w.say(ev)
		case event.VolumesBound:
			w.answers = append(w.answers, ev)
		}
	}
}

func see[T any](w *world, o T)           { w.step(event.Changed[T]{Object: o}) }
func lose[T any](w *world, o T)          { w.step(event.Changed[T]{Object: o, Gone: true}) }
func list[T any](w *world, objects ...T) { w.step(event.Listed[T]{Objects: objects}) }
func seeNode(w *world, n *api.Node)      { w.step(event.NodeSeen{Node: n}) }
func loseNode(w *world, name string)     { w.step(event.NodeGone{Name: name}) }
func (w *world) after(d time.Duration, do func()) {
	w.timers = append(w.timers, timer{w.now.Add(d), do})
}

// pass lets time go by, and all that is to happen in it is done.
func (w *world) pass(d time.Duration) {
	end := w.now.Add(d)
	for {
		at, next := w.Due(), -1
		for i, t := range w.timers {
			if next < 0 || t.at.Before(w.timers[next].at) {
				next = i
			}
		}
		core := !at.IsZero() && (next < 0 || !w.timers[next].at.Before(at))
		if !core && next >= 0 {
			at = w.timers[next].at
		}
		if at.IsZero() || at.After(end) {
			w.now = end
			return
		}
		if at.After(w.now) {
			w.now = at
		}
		if core {
			w.step(event.Tick{})
		} else {
			do := w.timers[next].do
			w.timers = slices.Delete(w.timers, next, next+1)
			do()
		}
	}
}
