package lab

import (
	"strconv"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/home"
	"basalt.dev/basalt/shard/node"
)

// Fleet is shards with an Outside, a network that delivers in order and loses nothing, and an API server that does what
// it is asked for.
type Fleet struct {
	Outside
	Now    time.Time
	Shards []*Member
	Table  *api.Table          // of all of them
	Pods   map[string]*api.Pod // by UID
	Bound  time.Time           // when the last pod was
	Sent   func(event.Send)    // if not nil, it is told what shards send each other

	version int // of pods
}

// Member is a shard of a fleet.
type Member struct {
	*Shard
	inbox []event.Event
}

// NewFleet makes shards, of which each bucket has the one that owner returns. They are told of them in Begin.
func NewFleet(shards int, h home.Config, n node.Config, owner func(api.BucketID) int) *Fleet {
	f := &Fleet{Outside: Outside{Revision: 10}, Now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), version: 10,
		Table: &api.Table{Epoch: 1, Revision: 10}, Pods: map[string]*api.Pod{}}
	for i := range shards {
		inc := api.Incarnation("s" + strconv.Itoa(i))
		f.Table.Members = append(f.Table.Members, api.Member{Incarnation: inc, Name: string(inc)})
		f.Shards = append(f.Shards, &Member{Shard: NewShard(inc, h, n)})
	}
	for b := range api.BucketID(api.Buckets) {
		f.Table.Owners[b], f.Table.Changed[b] = uint16(owner(b)), 1
	}
	return f
}

// Begin tells the shards of a namespace, of nodes and of their buckets, and they take over the pods that are there.
func (f *Fleet) Begin(namespace string, nodes []*api.Node) {
	f.Tell(event.NamespaceSeen{Name: namespace})
	for _, n := range nodes {
		f.Tell(event.NodeSeen{Node: n})
	}
	f.Tell(event.LogRead{Revision: 10})
	f.Tell(event.CoordinatorSeen{Term: 1, Incarnation: "coordinator"})
	f.Tell(event.TableSeen{Table: f.Table})
	f.Pass(time.Second)
}

// Tell tells all shards of an event. They hear of it when time passes.
func (f *Fleet) Tell(ev event.Event) {
	for _, x := range f.Shards {
		x.inbox = append(x.inbox, ev)
	}
}

// Show stores a pod, and shows it to all shards.
func (f *Fleet) Show(p *api.Pod) {
	f.Pods[p.UID] = p
	f.Tell(event.PodSeen{Pod: p})
}

// Remove deletes a pod, and shows that to all shards.
func (f *Fleet) Remove(p *api.Pod) {
	delete(f.Pods, p.UID)
	f.Tell(event.PodGone{UID: p.UID, Namespace: p.Namespace, Name: p.Name})
}

// change shows a new version of a pod, and returns it; nil if it is gone.
func (f *Fleet) change(uid string, with func(*api.Pod)) *api.Pod {
	old := f.Pods[uid]
	if old == nil {
		return nil
	}
	p := *old
	f.version++
	p.ResourceVersion = strconv.Itoa(f.version)
	with(&p)
	f.Show(&p)
	return &p
}

// Pass lets time pass.
func (f *Fleet) Pass(d time.Duration) {
	for end := f.Now.Add(d); f.Now.Before(end); f.Now = f.Now.Add(100 * time.Millisecond) {
		for some := true; some; {
			some = false
			for _, x := range f.Shards {
				all := x.inbox
				x.inbox = nil
				for _, ev := range append(all, event.Drained{}) {
					some = some || ev != event.Event(event.Drained{})
					if err := x.Step(f.Now, ev, func(o event.Output) { f.carryOut(x, o) }); err != nil {
						panic(err)
					}
				}
			}
		}
		f.Tell(event.Tick{})
	}
}

func (f *Fleet) carryOut(x *Member, o event.Output) {
	result := func(ev event.Event) { x.inbox = append(x.inbox, ev) }
	if answer, log, known := f.Answer(x.Inc, o); known {
		for _, seen := range log {
			f.Tell(seen)
		}
		if answer != nil {
			result(answer)
		}
		return
	}
	switch o := o.(type) {
	case event.Send:
		if f.Sent != nil {
			f.Sent(o)
		}
		for _, to := range f.Shards {
			if to.Inc == o.To {
				to.inbox = append(to.inbox, event.Message{From: x.Inc, Body: o.Body})
			}
		}
	case event.ListPods:
		ev := event.PodsReplaced{Sequence: o.Sequence}
		for _, uid := range api.SortedKeys(f.Pods) {
			ev.Pods = append(ev.Pods, f.Pods[uid])
		}
		result(ev)
	case event.BindPod:
		done := event.BindDone{Row: o.Row, Outcome: event.BindNotFound}
		if f.change(o.Row.PodUID, func(p *api.Pod) { p.Node, p.Gang = o.Node, o.Gang }) != nil {
			f.Bound, done.Outcome = f.Now, event.BindOK
		}
		result(done)
	case event.WritePodCondition:
		done := event.StatusWritten{ID: o.ID, Outcome: event.StatusGone}
		if p := f.change(o.UID, func(p *api.Pod) { p.Condition.Reason = o.Reason }); p != nil {
			done.Outcome, done.ResourceVersion = event.StatusOK, p.ResourceVersion
		}
		result(done)
	}
}
