package node

import (
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
)

// When pods leave. A gang with a limit says with its Commit by when it will have left if it is evicted as soon as it is
// past that. Its Bindings carry it onto the pods, so every shard that comes to own their nodes reads it there. A row
// has it before that; one that was found in the log has none, for its pod has, as soon as it is seen bound.
//
// A limit ends nobody, so this is no promise. It says which room may be the sooner one (soonestFirst), and users are
// told when there may be some (roomBy).

// setBound takes note of a pod that is bound to a node of ours.
func setBound(c *Core, p *api.Pod, k *kin) {
	forgetEnd(c, p.UID)
	if p.Until > 0 {
		c.rooms.ends++
	}
	c.bound[p.UID] = boundPod{p.Node, k, p.Created.Unix(), p.Until}
}

// forgetEnd is called when a bound pod is gone.
func forgetEnd(c *Core, uid string) {
	if c.bound[uid].until > 0 {
		c.rooms.ends--
	}
}

// leavesBy returns by when the pod of a charge will have left, as far as that is known in Unix seconds: of none without
// a limit, and of none that is past it.
func leavesBy(c *Core, charge string) (at int64, known bool) {
	if c.leavesSoon(charge) {
		return c.leaving[charge].Unix(), true
	}
	at = c.bound[charge].until
	for _, r := range c.rows[charge] {
		if r.commit != nil && r.charge == charge {
			at = max(at, r.commit.until)
		}
	}
	return at, at > c.now.Unix()
}

// endSteps are the times from now that roomBy tells apart: each a quarter longer than the one before.
var endSteps = func() (steps []time.Duration) {
	for d := time.Minute; d < api.MaxRuntime; d += d / 4 {
		steps = append(steps, d)
	}
	return steps
}()

// endCost is what it costs to ask when a pod leaves, in bytes of constraints compared.
const endCost = 64

// roomBy returns for how many pods of a class there is room, now and as those leave whose end is known. It is paid for
// by the one who asks, and empty where no end is known.
func roomBy(c *Core, class *api.Class) (by []*wire.RoomBy) {
	if c.rooms.ends == 0 {
		return nil
	}
	asked, latest := int64(0), make([]int64, len(endSteps)+1)
	whose := func(_ cache.Kind, uid, _ string) cache.Whose {
		asked++
		at, known := leavesBy(c, uid)
		if !known {
			return cache.Stays
		}
		step, _ := slices.BinarySearch(endSteps, time.Duration(at-c.now.Unix())*time.Second)
		latest[step] = max(latest[step], at)
		return cache.Whose(step + 1)
	}
	needs := class.Room()
	resources := make([]string, len(needs))
	for i, a := range needs {
		resources[i] = a.Resource
	}
	rooms, _ := c.cache.Rooms([]*api.Class{class}, resources, make([]cache.Allow, 1), whose, maxRooms)
	c.cache.Look(asked * endCost)
	more, ended := make([]int64, len(latest)+1), false
	for _, r := range rooms {
		for step, pods := range roomIn(needs, r) {
			more[step] += pods
			ended = ended || step > 0
		}
	}
	if !ended {
		return nil
	}
	for step, pods := range more {
		of := &wire.RoomBy{Pods: uint32(pods)}
		if step > 0 {
			of.UnixMs = latest[step-1] * 1000
		}
		if pods > 0 {
			by = append(by, of)
		}
	}
	return by
}

// roomIn returns how many more pods with such needs have room on a node as each of those has left who leave there; Own
// stands for now.
func roomIn(needs api.Resources, r cache.NodeRoom) (more map[cache.Whose]int64) {
	more = map[cache.Whose]int64{}
	free, had, barred := slices.Clone(r.Free), int64(0), 0
	for _, l := range r.Leaves {
		barred += len(l.Bars)
	}
	has := func(step cache.Whose) {
		room := r.Pods
		for i, a := range needs {
			if a.Value > 0 {
				room = min(room, max(0, free[i])/a.Value)
			}
		}
		if barred == 0 && room > had {
			more[step], had = room-had, room
		}
	}
	has(cache.Own)
	for _, l := range r.Leaves {
		for i, amount := range l.Amounts {
			free[i] = api.AddSat(free[i], amount)
		}
		barred -= len(l.Bars)
		has(l.Number)
	}
	return more
}
