package node

import (
	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
	"basalt.dev/basalt/shard/event"
	"basalt.dev/basalt/shard/topology"

	"google.golang.org/protobuf/proto"
)

// The room that a gang would have if others left. The home of a gang that has a mandate asks every node shard (RoomProbe), and plans from the
// answers whom to evict. Nothing is held. The HoldRequest that follows decides: what it asks for may have gone by then.
//
// A class is named for a node where a pod of it fits once everything that the answer says leaves is gone, and for who
// of these is in its way whatever room there is: by a host port, or a constraint about other pods. A plan that puts two
// pods with the same port on a node is refused.

const (
	// maxRooms bounds the nodes of an answer: those with the most room.
	maxRooms = 5000
	// maxRoomBytes bounds its size.
	maxRoomBytes = 6 << 20
	// maxRoomClasses bounds the classes of a question. A question with more is not answered.
	maxRoomClasses = 256
	// maxCandidates bounds the candidates that are looked for, the first ones.
	maxCandidates = 8192
	// maxRoomResources bounds the resources that the classes request together, CSI drivers among them.
	maxRoomResources = 256
)

// roomProbe answers a RoomProbe. It is silent during a takeover, when not all pods are counted.
func (c *Core) roomProbe(from api.Incarnation, m *wire.RoomProbe) {
	if !c.ready || c.takeover.stage != idle || !c.table.Has(from) {
		c.ignored++
		return
	}
	classes, err := readClasses(m.GetClasses())
	if err != nil || len(classes) == 0 || len(classes) > maxRoomClasses {
		c.ignored++
		return
	}
	named := map[string]bool{}
	for _, class := range classes {
		for _, a := range class.Room() {
			named[a.Resource] = true
		}
	}
	resources := api.SortedKeys(named)
	if len(resources) > maxRoomResources {
		c.ignored++
		return
	}
	reply := &wire.Rooms{Serial: m.GetSerial()}
	rules, ok := rulesTogether(c, m.GetNamespace(), classes, true) // nobody is to be evicted in vain
	if reply.Later = !ok; ok {
		c.fillRooms(reply, m, classes, resources, rules)
	}
	c.emit(event.Send{To: from, Body: &wire.Envelope{Body: &wire.Envelope_Rooms{Rooms: reply}}})
}

// fillRooms answers for classes as they are counted.
func (c *Core) fillRooms(
	reply *wire.Rooms, m *wire.RoomProbe, classes []*api.Class, resources []string, rules []*topology.Rules,
) {
	whose, leavers := c.leavers(m)
	before, asked := c.cache.Compared(), topology.Asked{}
	for _, r := range rules {
		asked.Rules(r)
	}
	trial, allow := c.topology.Try(asked), make([]cache.Allow, len(classes))
	defer trial.End()
	for i, r := range rules {
		if r != nil {
			allow[i] = func(number int32, gone []string) bool { return mayWithout(c, trial, r, number, gone) }
		}
	}
	rooms, more := c.cache.Rooms(classes, resources, allow, whose, maxRooms)
	c.spend(m.GetNamespace(), before)
	reply.More = more
	amounts := func(values []int64) (out []*wire.Amount) {
		for i, v := range values {
			if v > 0 {
				out = append(out, &wire.Amount{Resource: resources[i], Value: v})
			}
		}
		return out
	}
	size := 0
	for _, r := range rooms {
		room := &wire.NodeRoom{Node: r.Node, Free: amounts(r.Free), Classes: r.Classes}
		for _, l := range r.Leaves {
			who := leavers[l.Number-1]
			of := &wire.Leaves{GangUid: who.gang, Pods: l.Pods, Amounts: amounts(l.Amounts), Bars: l.Bars}
			of.Anyway = who.anyway
			room.Leaves = append(room.Leaves, of)
		}
		if size += proto.Size(room) + 8; size > maxRoomBytes {
			reply.More = true
			return
		}
		reply.Nodes = append(reply.Nodes, room)
	}
}

// leaver is a gang whose pods leave, or one pod.
type leaver struct {
	gang   string
	anyway bool
}

// leavers says whose the charges on nodes are to the gang of a question, and who those are that leave: its candidates, and others as they are
// found to have pods that are being deleted, and not overdue. What another gang was promised stays.
func (c *Core) leavers(m *wire.RoomProbe) (func(kind cache.Kind, uid, gang string) cache.Whose, []leaver) {
	candidates := m.GetCandidates()
	list := make([]leaver, 0, min(len(candidates), maxCandidates)) // and those that leave anyway
	numbers := make(map[string]cache.Whose, cap(list))
	for _, uid := range candidates[:min(len(candidates), maxCandidates)] {
		if uid != "" && uid != m.GetGangUid() && numbers[uid] == 0 {
			list = append(list, leaver{gang: uid})
			numbers[uid] = cache.Whose(len(list))
		}
	}
	for _, uid := range api.SortedKeys(c.leaving) {
		if !c.leavesSoon(uid) {
			continue
		}
		p, _ := c.cache.Lookup(uid)
		if numbers[p.Gang] == 0 {
			list = append(list, leaver{gang: p.Gang, anyway: true})
			numbers[p.Gang] = cache.Whose(len(list))
		}
	}
	return func(kind cache.Kind, uid, gang string) cache.Whose {
		if kind == cache.Hold {
			switch g := c.gangs[gang]; {
			case g == nil:
			case g.ref.GetUid() == m.GetGangUid(), g.drains && g.promises[uid] != nil:
				return cache.Own
			}
			return cache.Stays
		}
		of := c.gangOf(kind, gang)
		who := numbers[uid]
		if who == 0 || of == "" {
			who = numbers[of]
		}
		if who == 0 || list[who-1].anyway && !c.leavesSoon(uid) {
			return cache.Stays
		}
		if r := c.rooms.awaited[uid]; r != nil && !r.gang.drains && r.gang.ref.GetUid() != m.GetGangUid() {
			return cache.Stays
		}
		return who
	}, list
}
