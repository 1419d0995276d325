package node

import (
	"cmp"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/cache"
	"basalt.dev/basalt/shard/event"
)

// said is what summaries said last, and for whom they are.
type said struct {
	summary     *wire.Summary // sent last, to anybody
	toAll       *wire.Summary // sent last to all
	announced   time.Time     // when it was
	toEverybody bool
	requesters  map[api.Incarnation]time.Time // home shards, by their last request
	requested   map[uint64]*requestedClass    // by hash of the class
	trimmed     bool                          // the last summary left out resources
}

// syncState is which nodes are out of sync, as the cluster was told.
type syncState struct {
	out     map[string]bool
	version uint64 // of the cache when it was looked at
}

func (c *Core) owns(node string) bool { return c.buckets[api.BucketOf(node)] != foreign }

// ---- nodes

func (c *Core) nodeSeen(n *api.Node) {
	if n == nil || n.Name == "" {
		return
	}
	n = n.WithVolumes(c.volumes[n.Name].Attachable, c.volumes[n.Name].Unmigrated)
	old := c.nodes[n.Name]
	c.nodes[n.Name] = n
	var before map[string]string
	if old != nil {
		before = old.Labels
	}
	c.hostSeen(n.Name, before[api.LabelHostname], n.Labels[api.LabelHostname])
	if c.buckets[api.BucketOf(n.Name)] == active {
		c.setNode(n)
	} else {
		c.seenElsewhere(old, n)
	}
}

// volumesSeen takes what is said of the volumes of a node.
func (c *Core) volumesSeen(ev event.NodeVolumes) {
	if len(ev.Attachable)+len(ev.Unmigrated) > 0 {
		c.volumes[ev.Name] = ev
	} else {
		delete(c.volumes, ev.Name)
	}
	if n := c.nodes[ev.Name]; n != nil {
		c.nodes[ev.Name] = n.WithVolumes(ev.Attachable, ev.Unmigrated)
		if c.buckets[api.BucketOf(ev.Name)] == active {
			c.setNode(c.nodes[ev.Name])
		}
	}
}

// setNode offers a node. What of it cannot be read counts as nothing, and its admin hears of it once.
func (c *Core) setNode(n *api.Node) {
	c.cache.SetNode(n)
	c.cache.Number(n.Name, c.topology.Node(n.Name))
	c.cache.Doubt(n.Name, len(c.groups.hosts[n.Labels[api.LabelHostname]]) > 1)
	if n.Unreadable != "" && c.unreadable[n.Name] != n.Unreadable {
		c.nodeEvent(n.Name, true, "UnreadableResources", "status.allocatable: "+n.Unreadable+"; treated as zero")
	}
	if n.Unreadable != "" {
		c.unreadable[n.Name] = n.Unreadable
	} else {
		delete(c.unreadable, n.Name)
	}
}

// nodeGone: what is bound there stays charged under the node's name, in case it comes back before its pods are gone.
func (c *Core) nodeGone(name string) {
	n, known := c.nodes[name]
	if !known {
		return
	}
	delete(c.nodes, name)
	delete(c.unreadable, name)
	c.hostSeen(name, n.Labels[api.LabelHostname], "")
	if c.buckets[api.BucketOf(name)] == active {
		dropNode(c, name)
		c.giveUpUnbindable()
	}
}

// dropNode takes a node out of what is offered.
func dropNode(c *Core, name string) {
	c.loseHoldsOn(name)
	c.cache.RemoveNode(name)
}

// giveUpUnbindable looks at what waits for Bind after nodes were lost.
func (c *Core) giveUpUnbindable() {
	for _, m := range c.awaiting() {
		c.dropUnbindable(m)
	}
}

// watchSync says which nodes fell out of sync or recovered. Holds on such a node go first: they may be all that is too much.
func (c *Core) watchSync() {
	if c.cache.SyncVersion() == c.sync.version {
		return
	}
	for _, name := range c.cache.OutOfSync() {
		if !c.sync.out[name] && c.keptFor[name] == 0 {
			c.loseHoldsOn(name)
		}
	}
	c.sync.version = c.cache.SyncVersion()
	now := map[string]bool{}
	for _, name := range c.cache.OutOfSync() {
		if c.keptFor[name] > 0 { // another scheduler is about to make room there
			continue
		}
		now[name] = true
		if c.sync.out[name] {
			continue
		}
		view, _ := c.cache.Node(name)
		resource, by := "", int64(0)
		for _, a := range view.Free {
			if a.Value < 0 {
				resource, by = a.Resource, -max(a.Value, -api.MaxAmount)
				break
			}
		}
		c.nodeEvent(name, true, "NodeOutOfSync", fmt.Sprintf("its pods request %s %s more than allocatable: Basalt binds no more pods to this node", api.FormatAmount(resource, by), resource))
	}
	for _, name := range api.SortedKeys(c.sync.out) {
		if _, there := c.cache.Node(name); !now[name] && there {
			c.nodeEvent(name, false, "NodeInSync", "its pods fit again")
		}
	}
	c.sync.out = now
}

func (c *Core) nodeEvent(name string, warning bool, reason, message string) {
	if n := c.nodes[name]; n != nil {
		about := event.Object{Kind: event.Node, Name: name, UID: n.UID}
		c.emit(event.ObjectEvent{About: about, Warning: warning, Reason: reason, Message: message})
	}
}

// ---- pods

// podSeen takes what the watch shows. A pod with a node never loses it, so one shown without is no news of any charge.
func (c *Core) podSeen(p *api.Pod) {
	if p == nil || p.UID == "" {
		return
	}
	rows := slices.Clone(c.rows[p.UID])
	for _, r := range rows {
		r.seen = true
		if fault.On(fault.NewerVersion) {
			r.rv = p.ResourceVersion
		}
	}
	if p.Nominated != "" || c.nominated[p.UID].node != "" {
		c.nominate(p.UID, p)
	}
	if p.Node == "" {
		for _, r := range rows { // one that was inherited
			if api.NewerVersion(r.rv, p.ResourceVersion) {
				continue // that is how the pod was before
			}
			if k := c.kin(p.Namespace, p.Labels, p.Unlisted); k != r.kin && r.charge != "" {
				r.kin = k
				if at, charged := c.cache.Lookup(r.charge); charged {
					c.chargeRow(r, at.Node)
				}
			}
		}
		return
	}
	class := p.Class
	if class == nil {
		class = api.NewClass(api.Resources{{Resource: "pods", Value: 1}}, nil)
	}
	if len(rows) == 0 {
		switch at, charged := c.cache.Lookup(p.UID); {
		case !charged && (!c.owns(p.Node) || c.hasEnded(p.UID)): // most are of others
			return
		case charged && at.Kind == boundKind(p) && at.Node == p.Node && !p.Finished && at.Gang == gangOfBound(p) && c.unchanged(p, class, at.Class):
			setBound(c, p, c.bound[p.UID].kin) // it may say another end
			c.leaves(p)
			return // a pod that is bound has no rows
		}
	}
	if p.Finished {
		c.podEnded(p.UID, wire.BindOutcome_BIND_BOUND, p.Node)
		return
	}
	if at, charged := c.cache.Lookup(p.UID); len(rows) == 0 && (!charged || at.Kind.Seen() && len(at.Class.Requests) == 0) && !p.Started && c.refusedByKubelet(p.Node, class) {
		c.countGroups(p, class) // it has failed in a moment; if it starts all the same, an event says so
		return
	}
	c.loseHold(p.UID)
	handed := false // a charge goes over to the bound pod in place: room that was never free must wake nobody
	for _, r := range rows {
		c.note(r, wire.BindOutcome_BIND_BOUND, p.Node)
		if r.charge == p.UID {
			r.charge, handed = "", true
		}
		c.finish(r)
	}
	if !c.owns(p.Node) {
		if !c.unbind(p.UID) && handed {
			c.cache.Release(p.UID)
		}
		return
	}
	k := c.kin(p.Namespace, p.Labels, p.Unlisted)
	k.used = true
	setBound(c, p, k)
	counted, _ := c.placed(k, class, false)
	c.cache.Charge(p.UID, p.Node, counted, boundKind(p), gangOfBound(p), api.Rank{})
	c.leaves(p)
}

// boundKind is how a bound pod counts: as one of ours if it is charged to a queue, whoever bound it.
func boundKind(p *api.Pod) cache.Kind {
	if p.Ours || p.Queue != "" {
		return cache.Bound
	}
	return cache.Foreign
}

// gangOfBound returns the UID of the gang of a bound pod: a pod that others have bound is one of its own.
func gangOfBound(p *api.Pod) string { return cmp.Or(p.Gang, p.UID) }

// countGroups counts a pod without what it requests: it repels others, and is repelled, for as long as it is there.
func (c *Core) countGroups(p *api.Pod, class *api.Class) {
	k := c.kin(p.Namespace, p.Labels, p.Unlisted)
	counted, _ := c.placed(k, class, false)
	if len(counted.In)+len(counted.Avoids) == 0 || !c.owns(p.Node) {
		return
	}
	k.used = true
	setBound(c, p, k)
	c.cache.Charge(p.UID, p.Node, api.MakeClass(api.Class{In: counted.In, Avoids: counted.Avoids}), boundKind(p), gangOfBound(p), api.Rank{})
	c.leaves(p)
}

// unchanged reports whether a bound pod has the class and the labels that it is counted with.
func (c *Core) unchanged(p *api.Pod, class, counted *api.Class) bool {
	k := c.bound[p.UID].kin
	if k == nil || counted == nil || k.unknown != p.Unlisted || !p.Unlisted && !k.labels.Equal(p.Labels) {
		return false
	}
	now, _ := c.placed(k, class, false)
	return now.Key == counted.Key
}

// refusedByKubelet reports whether the kubelet refuses a pod that somebody else put on a node, and that has not started: the node
// does not have what it asks for beside the pods that are there. Anybody who may create pods may name a node in one; counted,
// it would take the node out of service for as long as nobody deletes it. Holds do not count: the kubelet knows of none.
func (c *Core) refusedByKubelet(name string, class *api.Class) bool {
	n := c.nodes[name]
	if n == nil {
		return false
	}
	if !class.Requests.Fits(n.Allocatable) {
		return true
	}
	view, there := c.cache.Node(name)
	if !there {
		return false
	}
	free := view.Free
	for _, p := range view.Pods {
		if p.Kind == cache.Hold || p.Kind == cache.Nominated {
			free = free.Add(p.Class.Requests)
		}
	}
	return !class.Requests.Fits(free)
}

// nominatedCharge is what the names of charges of such pods end in.
const nominatedCharge = "@nominated"

// nominate counts a pod where another scheduler keeps a node of ours for it, usually while pods of lower priority end there; nil when it
// is gone. kube-scheduler counts such pods for its own pods of no higher priority, Basalt for all.
func (c *Core) nominate(uid string, p *api.Pod) {
	old, counted := c.nominated[uid]
	keeps := p != nil && p.Node == "" && !p.Finished && p.Class != nil && c.owns(p.Nominated)
	if !counted && !keeps {
		return
	}
	charge := uid + nominatedCharge
	if counted {
		delete(c.nominated, uid)
		if c.keptFor[old.node]--; c.keptFor[old.node] == 0 {
			delete(c.keptFor, old.node)
		}
	}
	if !keeps {
		c.cache.Release(charge)
		return
	}
	k := c.kin(p.Namespace, p.Labels, p.Unlisted)
	k.used = true
	c.nominated[uid] = boundPod{p.Nominated, k, 0, 0}
	c.keptFor[p.Nominated]++
	class, _ := c.placed(k, p.Class, false)
	c.cache.Charge(charge, p.Nominated, class, cache.Nominated, "", api.Rank{})
}

func (c *Core) unbind(uid string) bool {
	if _, ok := c.bound[uid]; !ok {
		return false
	}
	forgetEnd(c, uid)
	delete(c.bound, uid)
	delete(c.leaving, uid)
	c.cache.Release(uid)
	return true
}

// podEnded frees what a pod held: it is gone, or finished.
func (c *Core) podEnded(uid string, outcome wire.BindOutcome, node string) {
	c.nominate(uid, nil)
	if len(c.rows[uid]) == 0 && !c.isCharged(uid) {
		return
	}
	if !fault.On(fault.LeakedHold) {
		c.loseHold(uid)
	}
	for _, r := range slices.Clone(c.rows[uid]) {
		c.note(r, outcome, node)
		c.finish(r)
	}
	c.unbind(uid)
	c.ended[0][uid] = true
}

// Asks returns what the answer to ListPods has to bring where there is no list: pods of nodes that this shard gains,
// and pods that rows are about. All else of its pods was told.
func (c *Core) Asks() (nodes []api.BucketID, pods iter.Seq[string]) {
	for b, is := range c.buckets {
		if is == gained {
			nodes = append(nodes, api.BucketID(b))
		}
	}
	return nodes, maps.Keys(c.rows)
}

// podsReplaced takes a list of all pods. Pods that the watch had shown, and that are not there, are gone. Of others it
// says nothing: a pod made after the list can have been committed before we hear the list.
func (c *Core) podsReplaced(ev event.PodsReplaced) {
	there := make(map[string]bool, len(c.bound)+len(c.nominated)+len(c.rows)) // of those that the core knows
	asks := []iter.Seq[string]{maps.Keys(c.rows)}
	if !ev.Seen { // else it was told who is gone
		asks = append(asks, maps.Keys(c.bound), maps.Keys(c.nominated))
	}
	for _, known := range asks {
		for uid := range known {
			there[uid] = false
		}
	}
	for _, p := range ev.Pods {
		if p == nil {
			continue
		}
		if _, known := there[p.UID]; known {
			there[p.UID] = true
		}
	}
	if !ev.Seen {
		for _, uid := range api.SortedKeys(c.bound) {
			if !there[uid] {
				c.podEnded(uid, wire.BindOutcome_BIND_GONE, "")
			}
		}
		for _, uid := range api.SortedKeys(c.nominated) {
			if !there[uid] {
				c.nominate(uid, nil)
			}
		}
	}
	for _, uid := range api.SortedKeys(c.rows) {
		if there[uid] {
			continue
		}
		if slices.ContainsFunc(c.rows[uid], func(r *row) bool { return r.seen || r.listed > 0 && ev.Sequence >= r.listed }) {
			c.podEnded(uid, wire.BindOutcome_BIND_GONE, "")
			continue
		}
		for _, r := range c.rows[uid] {
			if r.listed == 0 && (r.phase == sent || r.phase == confirmed) { // inherited ones have their own time
				r.resolveAt = c.now
			}
		}
	}
	for _, p := range ev.Pods {
		c.podSeen(p)
	}
	c.completeTakeover(ev.Sequence)
}

// ---- summary

// requestedClass is a class that capacity was requested for.
type requestedClass struct {
	class     *api.Class
	namespace string // that requested it first
	at        time.Time
}

// noteRequest remembers who requested what: summaries tell them how much more of it there is. Of too many classes, one of the
// namespace with the most goes: the one that nobody has requested for longest.
func (c *Core) noteRequest(from api.Incarnation, namespace string, classes []*api.Class) {
	c.said.requesters[from] = c.now
	for _, class := range classes[:min(len(classes), c.cfg.MaxClasses)] {
		hash := class.Hash()
		if a := c.said.requested[hash]; a != nil {
			a.at = c.now
			continue
		}
		if len(c.said.requested) >= c.cfg.MaxClasses {
			of := map[string]int{namespace: 1}
			for _, a := range c.said.requested {
				of[a.namespace]++
			}
			delete(c.said.requested, slices.MinFunc(slices.Sorted(maps.Keys(c.said.requested)), func(a, b uint64) int {
				return cmp.Or(cmp.Compare(of[c.said.requested[b].namespace], of[c.said.requested[a].namespace]),
					c.said.requested[a].at.Compare(c.said.requested[b].at))
			}))
		}
		c.said.requested[hash] = &requestedClass{class, namespace, c.now}
	}
}

func (c *Core) makeSummary() *wire.Summary {
	t := c.cache.Totals()
	kept, left := t.Allocatable.Foremost(maxSummaryResources, nil)
	if left > 0 {
		if !c.said.trimmed {
			c.log(slog.LevelWarn, "nodes offer too many different resources, ignoring the rest", slog.Int("resources", len(t.Allocatable)), slog.Int("limit", maxSummaryResources))
		}
		t.Allocatable, t.Free, t.Largest = kept, only(t.Free, kept), only(t.Largest, kept)
	}
	c.said.trimmed = left > 0
	s := &wire.Summary{
		TableEpoch: uint64(c.table.Epoch), Nodes: uint32(t.Nodes), OutOfSync: uint32(t.OutOfSync), RoomVersion: t.RoomVersion, NodesVersion: t.NodesVersion,
		Allocatable: wire.FromResources(t.Allocatable), Free: wire.FromResources(t.Free), Largest: wire.FromResources(t.Largest),
	}
	for _, hash := range slices.Sorted(maps.Keys(c.said.requested)) {
		a := c.said.requested[hash]
		if c.now.Sub(a.at) >= c.cfg.RecentFor {
			delete(c.said.requested, hash)
			continue
		}
		if !c.mayCompare(a.namespace, a.class) {
			continue
		}
		before := c.cache.Compared()
		class := a.class
		if class.Labelled || len(class.Wishes)+len(class.Leanings)+len(class.Repels) > 0 || len(c.groups.byTerm) > 0 {
			counted, ok := c.placed(c.kinOf(a.namespace, class), class, true)
			if !ok {
				continue
			}
			class = counted
		}
		n := c.cache.Room(class, int64(c.cfg.MaxRoom))
		c.spend(a.namespace, before)
		room := &wire.ClassRoom{PodClass: hash, Pods: uint32(n), More: n == int64(c.cfg.MaxRoom)}
		if len(a.class.Leanings) == 0 {
			room.Grade = c.grade(a.namespace, wished(class, a.class))
		}
		s.Room = append(s.Room, room)
	}
	return s
}

// maxSummaryResources is how many different resources the nodes of a shard may offer: a summary names them all.
const maxSummaryResources = 4096

// only keeps of r the resources that are in kept.
func only(r, kept api.Resources) api.Resources {
	i := 0
	return slices.DeleteFunc(r.Clone(), func(a api.Amount) bool {
		for i < len(kept) && kept[i].Resource < a.Resource {
			i++
		}
		return i == len(kept) || kept[i].Resource != a.Resource
	})
}

// summarise tells shards what is here, when it changed, and now and then because a message can be lost. What nodes there are
// goes to all at once. What is free changes with every pod, and N shards would tell it to N each: it goes at once only to
// those that made a request lately and may again, or wait for it, to others so that they ask the right shards first.
func (c *Core) summarise() {
	if !c.ready {
		return
	}
	s := c.makeSummary()
	since := c.now.Sub(c.said.announced)
	all := c.said.toEverybody || since >= c.cfg.SummaryEvery || !sameNodes(s, c.said.toAll) ||
		since >= c.cfg.SummaryPace && !sameRoom(s, c.said.toAll)
	if !all && sameRoom(s, c.said.summary) {
		return
	}
	c.said.summary = s
	for _, m := range c.table.Members {
		if at, asked := c.said.requesters[m.Incarnation]; all || m.Incarnation == c.cfg.Self || asked &&
			c.now.Sub(at) < c.cfg.RecentFor {
			c.emit(event.Send{To: m.Incarnation, Body: &wire.Envelope{Body: &wire.Envelope_Summary{Summary: s}}})
		}
	}
	if all {
		c.said.toAll, c.said.announced, c.said.toEverybody = s, c.now, false
		maps.DeleteFunc(c.said.requesters, func(_ api.Incarnation,
			at time.Time) bool {
			return c.now.Sub(at) >= c.cfg.RecentFor
		})
	}
}

// summariseToSelf sends a summary to the home shard of this process, after another one took some of what is free here: it asks here
// first, and most often.
func (c *Core) summariseToSelf() {
	c.emit(event.Send{To: c.cfg.Self, Body: &wire.Envelope{Body: &wire.Envelope_Summary{Summary: c.makeSummary()}}})
}

func sameNodes(a, b *wire.Summary) bool {
	return a.TableEpoch == b.TableEpoch && a.Nodes == b.Nodes && a.OutOfSync == b.OutOfSync &&
		sameAmounts(a.Allocatable, b.Allocatable) && sameAmounts(a.Largest, b.Largest)
}

// sameRoom is for summaries of the same nodes.
func sameRoom(a, b *wire.Summary) bool {
	return a.RoomVersion == b.RoomVersion && a.NodesVersion == b.NodesVersion && sameAmounts(a.Free, b.Free) &&
		slices.EqualFunc(a.Room, b.Room, func(p, q *wire.ClassRoom) bool {
			return p.PodClass == q.PodClass && p.Pods == q.Pods && p.Grade == q.Grade
		})
}

func sameAmounts(a, b []*wire.Amount) bool {
	return slices.EqualFunc(a, b, func(p, q *wire.Amount) bool { return p.Resource == q.Resource && p.Value == q.Value })
}
