package sim

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/doors/volcano"
	"basalt.dev/basalt/api/store/protocol"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/model"
	"basalt.dev/basalt/shard/effect"
	"basalt.dev/basalt/shard/event"
)

// check judges what needs both servers together, and what only the models can know: what was asked for and has not arrived.
// What the streams of one server show by themselves (I1, I2, I3, I7 and I8) package api/audit judges, fed with every change
// at once.
type check struct {
	w      *world
	ever   map[string]bool   // rows that were ever durable: uid@version->node
	asked  map[string]bool   // rows whose Binding was asked for
	sought map[string]sought // writer and pod -> the row that it was asked for last
	freed  map[string]bool   // rows, with their writers, who said that they gave them up without a Binding: nobody sends them any more
	bound  map[string]string // pods that a Binding of ours bound -> gang
	paid   map[string]string // likewise -> the queue that was charged
	landed map[string]time.Time
	since  map[string]time.Time // pods with a node -> since when

	relabelledAt time.Time // when a node got other labels, came or went
	nodeLabels   map[string]map[string]string
	cliques      map[string][]cliqueSince // of nodes, all that each ever was in
	confined     confined                 // a HoldRequest named a domain last

	label  map[string]string // pods with a node -> the PodGroup that their label named when they got it
	going  map[string]string // pods that somebody else bound, and whose eviction was asked for -> gang
	gangs  map[string]*gangSeen
	stamps map[string]api.Incarnation // object and epoch -> writer
	byName map[string][]string        // PodGroups that ever had a name, by UID
	used   map[string]bool            // names of PodGroups of which a pod was ever bound
	newest int                        // number of the object made last
	cores  map[string]int64           // nodes -> the most milli-cores that each ever had

	relabelled map[string]bool // names of PodGroups that a label of a pod with a node was changed to
	strange    map[string]bool // names of PodGroups that a label of a pod named that somebody else bound

	ordered   ordered
	claimMade func(*wire.ReservationRecord)
	claimants map[string]*claimant // in quiet worlds, by UID
	waits     map[string]*denied   // in quiet worlds: who waits for quota
	mayClaim  map[string]bool      // who asked so that others may be evicted
	limited   time.Time            // when limits in force changed last

	untold  map[string]bool // pods that were to be evicted when their gang's status did not say that it had its minimum
	claimed map[string]bool // gangs whose record has a claim
	doomed  map[string]bool // pods that a record condemned

	lives    map[string]life // in worlds of lives, by the name of a group; granted: when reservations were made
	granted  map[string]time.Time
	roles    map[string]string    // pods -> their role
	placedAt map[string]time.Time // names of groups -> when a pod of it was last seen to change on a node
}

// gangSeen is what is known of a gang, by UID.
type gangSeen struct {
	least, most int                  // of all minCounts it ever had; 0 for a gang of one
	durable     map[string]time.Time // pods with a row in the store, and when that was seen last
	ever        map[string]bool      // pods ever bound for it
	over        map[string]bool      // pods bound for it that finished
	placed      map[string]bool      // likewise, since it was evicted for another gang
	meddled     bool                 // somebody else bound one of its pods
	relabelled  bool                 // a pod with a node was relabelled to its name: once finished it may count as placed at a takeover
	inherited   bool                 // a pod of its name was bound for a namesake: who sees both counts it
	gone        int                  // number of the newest object when it went, 0 while it is there

	implied bool // no object describes it: it has the UID of every group of its name
	name    string
	before  int // least of the one before it
	began   time.Time
	roles   []api.Role
	floor   api.Resources
}

func newCheck(w *world) check {
	return check{w: w, ever: map[string]bool{}, asked: map[string]bool{}, sought: map[string]sought{}, freed: map[string]bool{}, bound: map[string]string{}, paid: map[string]string{}, landed: map[string]time.Time{}, since: map[string]time.Time{}, label: map[string]string{}, strange: map[string]bool{}, relabelled: map[string]bool{}, going: map[string]string{}, gangs: map[string]*gangSeen{}, stamps: map[string]api.Incarnation{}, byName: map[string][]string{}, used: map[string]bool{}, cores: map[string]int64{},
		lives: map[string]life{}, granted: map[string]time.Time{},
		roles: map[string]string{}, placedAt: map[string]time.Time{}, untold: map[string]bool{},
		ordered: newOrdered(), claimed: map[string]bool{}, claimants: map[string]*claimant{}, waits: map[string]*denied{},
		mayClaim: map[string]bool{}, doomed: map[string]bool{}, nodeLabels: map[string]map[string]string{},
		cliques: map[string][]cliqueSince{}}
}

func (c *check) gang(uid string) *gangSeen {
	g := c.gangs[uid]
	if g == nil {
		g = &gangSeen{durable: map[string]time.Time{}, ever: map[string]bool{}, placed: map[string]bool{}, over: map[string]bool{}}
		c.gangs[uid] = g
	}
	return g
}

func rowKey(uid, version, node string) string { return uid + "@" + version + "->" + node }

// ---- the control store

func (c *check) beforeStore(ch protocol.Op, old *record) {
	if !strings.HasPrefix(ch.Key, "intents/") || old == nil {
		return
	}
	left := map[string]bool{}
	if ch.Value.Message != nil {
		for _, r := range ch.Value.Message.(*wire.IntentsRecord).Rows {
			left[rowKey(r.PodUid, r.PodResourceVersion, r.Node)] = true
		}
	}
	for _, r := range old.Value.(*wire.IntentsRecord).Rows {
		key := rowKey(r.PodUid, r.PodResourceVersion, r.Node)
		if left[key] || c.elsewhere(ch.Key, key) {
			continue
		}
		if p := c.w.api.podByUID(r.PodUid); c.asked[key] && p != nil && p.Spec.NodeName == "" && p.ResourceVersion == r.PodResourceVersion {
			c.w.fail("I5: the row of pod %s on %s is taken out of %s, and its Binding can still land", r.PodUid, r.Node, ch.Key)
		}
	}
}

// elsewhere reports whether another record than that one has a row: it was given up there, and written once more.
func (c *check) elsewhere(record, row string) bool {
	for _, key := range c.w.store.with("intents/") {
		if key == record {
			continue
		}
		for _, r := range c.w.store.Keys[key].Value.(*wire.IntentsRecord).Rows {
			if rowKey(r.PodUid, r.PodResourceVersion, r.Node) == row {
				return true
			}
		}
	}
	return false
}

func (c *check) afterStore(ch protocol.Op) {
	w := c.w
	switch {
	case strings.HasPrefix(ch.Key, "intents/") && ch.Value.Message != nil:
		rec := ch.Value.Message.(*wire.IntentsRecord)
		nodes := map[string]bool{}
		for _, r := range rec.Rows {
			c.ever[rowKey(r.PodUid, r.PodResourceVersion, r.Node)] = true
			c.gang(rec.Gangs[r.Gang].Uid).durable[r.PodUid] = w.now
			nodes[r.Node] = true
		}
		c.ordered.wrote(c, ch)
		for _, g := range rec.Gangs {
			c.placed(g)
		}
		for _, name := range slices.Sorted(maps.Keys(nodes)) {
			c.node(name)
		}
		w.load.snatches(rec)
	case strings.HasPrefix(ch.Key, "reservations/"):
		gang := ch.Key[strings.LastIndexByte(ch.Key, '/')+1:]
		r, there := ch.Value.Message.(*wire.ReservationRecord)
		if c.grants(gang, there && r.State == wire.ReservationState_RESERVATION_OPEN); there { // evicted pods may end late
			c.claims(gang, r)
			c.names(r)
			c.forged(r)
			return
		}
		for _, name := range w.api.pods.names() {
			p := w.api.pods.objects[name].Object.(*corev1.Pod)
			uid := string(p.UID)
			if names := c.byName[c.groupName(p)]; len(names) > 0 && names[len(names)-1] != gang && gang != uid {
				continue // a PodGroup takes over the bound pods of its namesake, and if that one is gone again the gang asks anew
			}
			if c.bound[uid] == gang && !finished(p) && !w.mayBeLost(p) && w.now.Sub(c.landed[uid]) > 2*time.Second {
				w.fail("I1: the reservation of gang %s is deleted, and its pod %s is bound to %s since %s", gang, uid, p.Spec.NodeName, c.landed[uid].Sub(w.start))
			}
		}
	}
}

// claims counts what becomes of claims.
func (c *check) claims(gang string, r *wire.ReservationRecord) {
	had := c.claimed[gang]
	switch {
	case r.Claim != nil && !had:
		c.w.count("claims")
		c.claimant(r)
	case r.Claim == nil && had && len(r.Demand) > 0:
		c.w.count("claims granted")
		if r.Within != nil {
			c.w.count("claims granted in one domain")
		}
	}
	if c.claimed[gang] = r.Claim != nil; r.Yields != nil {
		c.w.count(evictedBy[r.Yields.Rule == wire.Rule_RULE_STALE])
	}
	c.yields(r)
	condemned := map[uint64]bool{}
	fresh := false
	for _, p := range r.Condemned {
		condemned[api.PodID(p.Uid)] = true
		if !c.doomed[p.Uid] {
			c.doomed[p.Uid], fresh = true, true
			c.w.count("pods condemned")
		}
	}
	if !fresh {
		return
	}
	named := map[uint64]bool{}
	for _, id := range r.Pods {
		named[id] = true
	}
	stay := 0 // or have been there: its home may not have seen them go
	for uid := range c.landed {
		if id := api.PodID(uid); named[id] && !condemned[id] {
			stay++
		}
	}
	for _, p := range c.w.load.pods(func(p *corev1.Pod) bool { return p.Spec.NodeName != "" }) {
		if id := api.PodID(string(p.UID)); named[id] && !condemned[id] && c.landed[string(p.UID)].IsZero() {
			stay++ // somebody else bound it
		}
	}
	if stay < int(r.Least) {
		c.w.fail("I14: gang %s is to do without %d pods, and %d that ever had a node are left: its minimum is %d", gang, len(r.Condemned), stay, r.Least)
	}
}

// groupName is the PodGroup that a pod's label names, and of a pod with a node the one that it named when the pod got it:
// whatever a tenant writes there later changes nothing.
func (c *check) groupName(p *corev1.Pod) string {
	if name, bound := c.label[string(p.UID)]; bound && p.Spec.NodeName != "" {
		return name
	}
	return groupNamed(p)
}

// meddles notes that somebody else bound a pod, or labelled one anew that somebody else bound: whoever finds it so at a takeover
// counts it for the gang whose reservation names it, or that its labels name by then.
func (c *check) meddles(p *corev1.Pod, labels map[string]string) {
	name := groupNamed(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: p.Annotations}})
	c.strange[name] = true
	for _, uid := range append(slices.Clone(c.byName[name]), string(p.UID), labels[api.LabelGang]) {
		c.gang(uid).meddled = true
	}
	for _, r := range c.w.store.reservations() {
		if namesPod(r, string(p.UID)) {
			c.gang(r.Gang.Uid).meddled = true
		}
	}
}

// namesPod reports whether a reservation names a pod.
func namesPod(r *wire.ReservationRecord, uid string) bool {
	return slices.Contains(r.Pods, api.PodID(uid))
}

// names judges that a reservation goes on naming the pods that were bound for its gang while they run, and is charged with them.
func (c *check) names(r *wire.ReservationRecord) {
	w, gang := c.w, r.Gang.Uid
	if names := c.byName[r.Gang.Name]; r.Gang.Single || len(names) > 0 && names[len(names)-1] != gang {
		return // a PodGroup takes over the bound pods of its namesake
	}
	for _, uid := range slices.Sorted(maps.Keys(c.gang(gang).ever)) {
		p := w.api.podByUID(uid)
		if p == nil || p.Spec.NodeName == "" || finished(p) || c.bound[uid] != gang || w.now.Sub(c.landed[uid]) < 2*time.Second {
			continue
		}
		if !namesPod(r, uid) && !w.mayBeLost(p) {
			w.fail("I1: the reservation of gang %s does not name pod %s any more, which is bound to %s since %s", gang, uid, p.Spec.NodeName, c.landed[uid].Sub(w.start))
		}
	}
}

// forged judges that a pod that somebody else bound is charged no more than a node has.
func (c *check) forged(r *wire.ReservationRecord) {
	p := c.w.api.podByUID(r.Gang.Uid)
	if p == nil || p.Spec.NodeName == "" || c.bound[string(p.UID)] != "" || ours(p) {
		return
	}
	demand, _ := wire.ToResources(r.Demand)
	if cpu := demand.Value("cpu"); cpu > c.cores[p.Spec.NodeName] {
		c.w.fail("A5: pod %s, which somebody else bound to %s, is charged %d milli-cores in queue %s; that node never had more than %d", p.UID, p.Spec.NodeName, cpu, r.Gang.Queue, c.cores[p.Spec.NodeName])
	}
}

// ---- the API server

func (c *check) afterAPI(f *feed, e entry) {
	c.newest = max(c.newest, number(string(e.GetUID())))
	c.leaves()
	switch o := e.Object.Object.(type) {
	case *corev1.Pod:
		c.ordered.saw(c.w, o, e.Type == watch.Deleted)
		if gang := c.bound[string(o.UID)]; gang != "" && finished(o) {
			c.gang(gang).over[string(o.UID)] = true
		}
		if o.Spec.NodeName != "" && e.Type != watch.Deleted {
			c.node(o.Spec.NodeName)
		}
		if _, known := c.label[string(o.UID)]; o.Spec.NodeName != "" && !known {
			c.label[string(o.UID)] = groupNamed(o)
			c.since[string(o.UID)] = c.w.now
		}
		c.sawPod(o, e.Type == watch.Added)
		c.inherit(o)
		c.lived(groupNamed(o))
	case *corev1.Node:
		c.nodeChanged(o, e.Type == watch.Deleted)
		c.cores[o.Name] = max(c.cores[o.Name], o.Status.Allocatable.Cpu().MilliValue())
	case *v1beta1.PodGroup:
		c.sawGroup(o.Name, string(o.UID), int(o.Spec.SchedulingPolicy.Gang.MinCount), e.Type == watch.Deleted)
		c.lived(o.Name)
	case *volcanov1beta1.PodGroup:
		g := c.sawGroup(o.Name, string(o.UID), int(o.Spec.MinMember), e.Type == watch.Deleted)
		_, more := volcano.Group(o, nil, nil)
		g.roles, g.floor = more.Roles, more.Floor
	case *v1beta1.Queue:
		if e.Type == watch.Deleted {
			c.gone(o)
		}
	}
}

// sawGroup takes note of a PodGroup.
func (c *check) sawGroup(name, uid string, least int, gone bool) *gangSeen {
	g := c.gang(uid)
	if g.least == 0 {
		g.least = least
		c.byName[name] = append(c.byName[name], uid)
		g.meddled, g.relabelled = g.meddled || c.strange[name], c.relabelled[name]
		g.inherited = c.used[name] // some may still be seen where the watch lags
	}
	g.least, g.most = min(g.least, least), max(g.most, least)
	if gone {
		g.gone = c.newest
	}
	return g
}

// gone judges that a queue whose limits are in force stays while anything is charged to it, except for pods that somebody else
// bound, or that were bound under another queue and labelled anew: such pods are charged whether their queue exists or not.
func (c *check) gone(q *v1beta1.Queue) {
	limits := c.w.store.Keys["queues/"+q.Name]
	if limits == nil || limits.Value.(*wire.LimitsRecord).Uid != string(q.UID) {
		return
	}
	for _, r := range c.w.store.reservations() {
		g := c.gang(r.Gang.Uid)
		here := len(g.ever) == 0
		for uid := range g.ever {
			here = here || c.paid[uid] == r.Gang.Queue
		}
		if here && api.Under(r.Gang.Queue, q.Name) && !g.meddled && !g.inherited {
			c.w.fail("queue %s is gone, and gang %s is charged to it", q.UID, r.Gang.Uid)
		}
	}
}

func (c *check) inherit(p *corev1.Pod) {
	name := c.groupName(p)
	if p.Spec.NodeName == "" || name == "" {
		return
	}
	c.used[name] = true
	for _, uid := range c.byName[name] {
		if uid != c.bound[string(p.UID)] {
			c.gang(uid).inherited = true
		}
	}
}

func (c *check) asksBinding(o event.BindPod) {
	key := rowKey(o.Row.PodUID, o.ResourceVersion, o.Node)
	if !c.ever[key] {
		c.w.fail("I4: a Binding of pod %s to %s is asked for without an intent", o.Row.PodUID, o.Node)
	}
	if c.freed[string(o.Row.Incarnation)+" "+key] {
		c.w.fail("I4: a Binding of pod %s to %s is asked for after its row was given up", o.Row.PodUID, o.Node)
	}
	c.asked[key] = true
}

// binding carries a Binding out and judges it.
func (c *check) binding(x *shard, o event.BindPod, do func() error) event.BindDone {
	w := c.w
	gang, queue := "", ""
	if r := w.store.Keys[keys.Intents(o.Row.Incarnation, o.Row.N)]; r != nil {
		rec := r.Value.(*wire.IntentsRecord)
		for _, row := range rec.Rows {
			if row.PodUid == o.Row.PodUID && row.Node == o.Node {
				gang, queue = rec.Gangs[row.Gang].Uid, rec.Gangs[row.Gang].Queue
			}
		}
	}
	earlier, was := c.bound[o.Row.PodUID]
	landed := c.landed[o.Row.PodUID]
	c.landed[o.Row.PodUID] = w.now
	c.bound[o.Row.PodUID] = gang
	done := effect.BindDone(o, do())
	w.log("%s binds pod %s to %s: %d", x.inc, o.Row.PodUID, o.Node, done.Outcome)
	if done.Outcome != event.BindOK {
		w.count("bindings refused")
		if c.bound[o.Row.PodUID], c.landed[o.Row.PodUID] = earlier, landed; !was { // who bound it before has it
			delete(c.bound, o.Row.PodUID)
		}
		return done
	}
	w.count("bindings")
	w.load.starts(o.Row.PodUID)
	if gang == "" {
		w.fail("I4: pod %s is bound to %s, and its intent is not in the control store", o.Row.PodUID, o.Node)
	}
	c.provided(o.Row.PodUID, o.Node, gang, len(c.gang(gang).ever) == 0)
	c.alreadyUsed(x, o.Row.PodUID)
	c.alone(o.Row.PodUID, gang)
	c.apart(x, o.Row.PodUID)
	c.together(o.Row.PodUID, gang)
	c.ordered.binds(c, o)
	c.gang(gang).ever[o.Row.PodUID], c.gang(gang).placed[o.Row.PodUID] = true, true
	c.sliced(gang, w.load.onTheWay(gang))
	c.paid[o.Row.PodUID] = queue
	return done
}

// node judges I5 for nodes that only Basalt uses and that never shrink.
func (c *check) node(name string) {
	w := c.w
	has, strict := w.load.strict[name]
	if !strict {
		return
	}
	used := api.Resources(nil)
	counted := map[string]bool{}
	for _, o := range w.api.pods.objects {
		if p := o.Object.(*corev1.Pod); p.Spec.NodeName == name && !finished(p) {
			used = used.Add(o.Pod.Class.Requests)
		}
	}
	for _, key := range w.store.with("intents/") {
		for _, r := range w.store.Keys[key].Value.(*wire.IntentsRecord).Rows {
			if r.Node != name || counted[r.PodUid] {
				continue
			}
			p := w.api.podByUID(r.PodUid)
			if p == nil || p.Spec.NodeName != "" || finished(p) || !c.canLand(p, key, r) {
				continue
			}
			counted[r.PodUid] = true
			used = used.Add(w.api.pods.objects[nameOf(p)].Pod.Class.Requests)
		}
	}
	if what, by, over := used.Exceeds(has); over {
		w.fail("I5: node %s has %s and %s is taken: %d too much of %s", name, has, used, by, what)
	}
}

// canLand reports whether a Binding of a row can still succeed, in the record with that key: the pod is as the row names it, and its
// writer did not say that it gave the row up. Whoever inherits a row resolves it, and binds nothing.
func (c *check) canLand(p *corev1.Pod, key string, r *wire.IntentRow) bool {
	writer := strings.Split(key, "/")[1]
	return p.ResourceVersion == r.PodResourceVersion && !c.freed[writer+" "+rowKey(r.PodUid, r.PodResourceVersion, r.Node)]
}

// closingOf returns the gang whose reservation is closing, of those that ever had the name of a pod's PodGroup, or that names
// the pod: one that somebody else bound, and labelled anew before its home saw it.
func (c *check) closingOf(p *corev1.Pod) (gang string) {
	for _, r := range c.w.store.reservations() {
		if r.State == wire.ReservationState_RESERVATION_CLOSING && (namesPod(r, string(p.UID)) || slices.Contains(c.byName[c.groupName(p)], r.Gang.Uid)) {
			gang = r.Gang.Uid
		}
	}
	return gang
}

// number is what a UID of the simulated API server ends in: it grows.
func number(uid string) int {
	n, _ := strconv.Atoi(uid[strings.LastIndexByte(uid, '#')+1:])
	return n
}

// madeFor reports whether a pod was made for a PodGroup and not for the one that had its name before: while it was there, or
// when the other was gone.
func (c *check) madeFor(p *corev1.Pod, gang string) bool {
	made := number(string(p.UID))
	if number(gang) < made {
		return true
	}
	names := c.byName[c.groupName(p)]
	i := slices.Index(names, gang)
	return i == 0 || i > 0 && made > c.gang(names[i-1]).gone
}

// evicts judges an eviction as it lands: only pods of closing reservations, and none of a gang that once had its minimum.
// That it had is durable in the PodGroup's status alone: where the home shard dies before its write lands, and pods are gone
// too, an heir takes the gang for one in part. This gap is known, and counted.
func (c *check) evicts(who api.Incarnation, p *corev1.Pod) {
	w := c.w
	if finished(p) {
		return // asked for while it ran: what is closing waits for pods, not for answers
	}
	gang := cmp.Or(c.bound[string(p.UID)], c.going[string(p.UID)])
	if gang == "" {
		if o := c.groupName(p); o != "" {
			if g := w.api.group(o); g != nil {
				gang = g.uid
			}
		}
	}
	gang = c.present(p, gang)
	if c.bound[string(p.UID)] == "" && slices.ContainsFunc(w.store.reservations(), func(r *wire.ReservationRecord) bool {
		return r.State == wire.ReservationState_RESERVATION_CLOSING && slices.Contains(c.byName[groupNamed(p)], r.Gang.Uid)
	}) {
		return // somebody else bound it, and labelled it anew before it was charged
	}
	closing := c.closingOf(p)
	if closing != "" && (c.madeFor(p, closing) || closing == c.bound[string(p.UID)]) {
		gang = closing // bound for it, or for one that was gone, and charged for it perhaps, though made for this one
	}
	if w.load.condemned(p, append([]string{gang}, c.byName[groupNamed(p)]...)) {
		w.count("surplus pods evicted for other gangs")
		return
	}
	for _, r := range w.store.reservations() {
		if r.Gang.Uid == gang {
			if r.State != wire.ReservationState_RESERVATION_CLOSING {
				w.fail("%s evicts pod %s of gang %s, which is not closing and does not condemn it", who, p.UID, gang)
			}
			if r.Yields != nil {
				w.count("pods evicted for other gangs")
				return
			}
			if g := c.gang(gang); g.most > 0 && len(g.ever) >= g.most && !g.meddled {
				if c.untold[string(p.UID)] || !w.api.toldPlaced(gang) {
					w.count("evictions from gangs that were whole and not yet told so")
					return
				}
				w.fail("%s evicts pod %s of gang %s, which once had its %d pods", who, p.UID, gang, g.most)
			}
			return
		}
	}
	if closing != "" { // of a PodGroup that came later, or went meanwhile
		return
	}
	if c.bound[string(p.UID)] == "" && slices.ContainsFunc(w.store.reservations(), func(r *wire.ReservationRecord) bool {
		return r.State == wire.ReservationState_RESERVATION_CLOSING && c.gang(r.Gang.Uid).meddled
	}) {
		return // somebody else bound it, and its labels named that gang when its home first saw it bound
	}
	if c.going[string(p.UID)] == "" { // else it was closing, and a namesake has the pod by now
		w.fail("%s evicts pod %s of gang %s, which has no reservation", who, p.UID, gang)
	}
}

// sought is a row and the commit that asked for it.
type sought struct{ commit, row string }

// rows notes which rows a home asks a writer for, and which of them their writer gives up.
func (c *check) rows(x *shard, o event.Send) {
	commit := func(gang string, n uint64) string { return gang + " " + strconv.FormatUint(n, 10) }
	switch b := o.Body.Body.(type) {
	case *wire.Envelope_Commit:
		for _, p := range b.Commit.Pods {
			row := rowKey(p.Uid, p.ResourceVersion, p.Node)
			c.sought[string(o.To)+" "+p.Uid] = sought{commit(b.Commit.Gang.Uid, b.Commit.Serial), row}
			delete(c.freed, string(o.To)+" "+row) // it may be written once more
		}
	case *wire.Envelope_CommitReply:
		if b.CommitReply.Outcome == wire.CommitOutcome_COMMIT_PREPARED {
			return
		}
		for key, last := range c.sought { // all of them, whoever is in the way of one
			if strings.HasPrefix(key, string(x.inc)+" ") && last.commit == commit(b.CommitReply.GangUid, b.CommitReply.Serial) && !c.asked[last.row] {
				c.freed[string(x.inc)+" "+last.row] = true
			}
		}
	case *wire.Envelope_BindResults:
		for _, r := range b.BindResults.Results {
			last := c.sought[string(x.inc)+" "+r.PodUid]
			if r.Outcome == wire.BindOutcome_BIND_FREE && last.commit == commit(b.BindResults.GangUid, b.BindResults.Serial) && !c.asked[last.row] {
				c.freed[string(x.inc)+" "+last.row] = true
			}
		}
	}
}

// says judges what a home core says: the first word that binds of a gang comes when as many pods as its minimum are durable.
func (c *check) says(x *shard, o event.Send) {
	c.rows(x, o)
	c.ordered.says(x, o)
	gang := ""
	var commit *wire.Commit
	c.inDomain(x, o)
	switch b := o.Body.Body.(type) {
	case *wire.Envelope_Reserve:
		c.mayClaim[b.Reserve.Gang.Uid] = b.Reserve.Claims
		if b.Reserve.Vain {
			c.w.count("reservations requested in vain")
		} else {
			c.w.count("reservations requested")
		}
		return
	case *wire.Envelope_Unreserve:
		delete(c.waits, b.Unreserve.Gang.Uid)
		return
	case *wire.Envelope_Bind:
		gang = b.Bind.GangUid
	case *wire.Envelope_Commit:
		if commit = b.Commit; !commit.Bind {
			return
		}
		gang = commit.Gang.Uid
	default:
		return
	}
	g := c.gang(gang)
	switch {
	case g.least == 0 || g.meddled || g.relabelled:
		return
	case g.implied: // it may start more than once
		if !c.starts(g) {
			return
		}
	case len(g.placed) > 0 || g.inherited:
		return
	}
	pods := map[string]bool{}
	for uid, at := range g.durable {
		if c.w.now.Sub(at) < time.Minute || g.over[uid] {
			pods[uid] = true
		}
	}
	for _, p := range commit.GetPods() {
		pods[p.Uid] = true
	}
	for uid := range pods { // of those named here some may vanish on the way: the gang is completed, or undone
		g.durable[uid] = c.w.now
	}
	if least := c.minimum(g); len(pods) < least {
		c.w.fail("I6: %s binds gang %s with %d of at least %d pods durable", x.inc, gang, len(pods), least)
	}
	c.hasRoles(x, gang, g, pods)
}

// stamp judges the stamp of a status that is about to be written: I8.
func (c *check) stamp(object, queue string, s v1beta1.Stamp) {
	w := c.w
	key := object + " " + strconv.FormatInt(s.Epoch, 10)
	if who, known := c.stamps[key]; known && string(who) != s.Writer {
		w.fail("I8: %s has two writers in epoch %d: %s and %s", object, s.Epoch, who, s.Writer)
	}
	c.stamps[key] = api.Incarnation(s.Writer)
	if queue == "" {
		return
	}
	b := api.BucketOf(queue)
	for _, v := range w.store.tables.history {
		if t := v.(*api.Table); t != nil && t.Epoch == api.Epoch(s.Epoch) {
			if t.Changed[b] != t.Epoch || string(t.Owner(b)) != s.Writer {
				w.fail("I8: %s is written by %s under epoch %d, at which its bucket went to %s at %d", object, s.Writer, s.Epoch, t.Owner(b), t.Changed[b])
			}
			return
		}
	}
	w.fail("I8: %s is written under epoch %d, which no table has", object, s.Epoch)
}

// placed judges that no more of a gang is on nodes, or on the way there, than is charged.
func (c *check) placed(ref *wire.GangRef) {
	w := c.w
	g := c.gang(ref.Uid)
	r := w.store.Keys[keys.Reservation(api.BucketOf(ref.Queue), ref.Uid)]
	if r == nil || g.meddled || g.inherited {
		return
	}
	var used api.Resources
	counted := map[string]bool{}
	add := func(id string) {
		p := w.api.podByUID(id)
		if p != nil && !counted[id] && !finished(p) && !w.mayBeLost(p) && (p.Spec.NodeName == "" || c.bound[id] == ref.Uid) {
			counted[id] = true
			used = used.Add(w.api.pods.objects[nameOf(p)].Pod.Class.Requests)
		}
	}
	for uid := range g.ever {
		add(uid)
	}
	for _, key := range w.store.with("intents/") {
		rec := w.store.Keys[key].Value.(*wire.IntentsRecord)
		for _, row := range rec.Rows {
			if p := w.api.podByUID(row.PodUid); rec.Gangs[row.Gang].Uid == ref.Uid && p != nil && c.canLand(p, key, row) {
				add(row.PodUid)
			}
		}
	}
	charged, _ := wire.ToResources(r.Value.(*wire.ReservationRecord).Demand)
	if what, by, over := used.Exceeds(charged); over {
		w.fail("I1: gang %s is charged %s and has %s on nodes or on the way: %d too much of %s", ref.Uid, charged, used, by, what)
	}
}

// guarantees judges a gang's first charge: it takes nothing that is guaranteed to another queue. What a queue may count on
// is its own guarantee, or its children's together where it says nothing; where one is cut, nothing is judged.
func (c *check) guarantees(ref *wire.GangRef, demand api.Resources) {
	w := c.w
	limits := map[string]*wire.LimitsRecord{}
	children := map[string][]string{}
	some := false
	charged := map[string]api.Resources{}
	known := map[string]bool{}
	know := func(path string) {
		for ; !known[path]; path = api.Parent(path) {
			known[path] = true
			if path == api.RootQueue {
				return
			}
			children[api.Parent(path)] = append(children[api.Parent(path)], path)
		}
	}
	for _, key := range w.store.with("queues/") {
		r := w.store.Keys[key].Value.(*wire.LimitsRecord)
		limits[r.Queue] = r
		some = some || len(r.Guarantee) > 0
		know(r.Queue)
	}
	if !some {
		return
	}
	for _, r := range w.store.reservations() {
		d, _ := wire.ToResources(r.Demand)
		charged[r.Gang.Queue] = charged[r.Gang.Queue].Add(d)
		know(r.Gang.Queue)
	}
	for _, d := range demand {
		value := func(a []*wire.Amount) (int64, bool) {
			for _, x := range a {
				if x.Resource == d.Resource {
					return x.Value, true
				}
			}
			return 0, false
		}
		cut := false
		var wanted func(path string) int64
		wanted = func(path string) int64 {
			var sum int64
			for _, child := range children[path] {
				sum += wanted(child)
			}
			sum, over := guaranteed(limits[path], d.Resource, sum)
			cut = cut || over
			if limit, limited := value(limits[path].GetCapability()); limited && sum > limit {
				cut = true
			}
			return sum
		}
		wanted(api.RootQueue)
		if cut {
			continue
		}
		var held func(path string, without int64) int64
		held = func(path string, without int64) int64 {
			sum := charged[path].Value(d.Resource)
			if path == ref.Queue {
				sum -= without
			}
			for _, child := range children[path] {
				sum += max(held(child, without), wanted(child))
			}
			return sum
		}
		for _, path := range api.Lineage(ref.Queue) {
			limit, limited := value(limits[path].GetCapability())
			if after := held(path, 0); limited && after > limit && after > held(path, d.Value) {
				w.fail("I1: gang %s is charged %d of %s in %s, and in %s, of which the limit is %d, %d are held with guarantees of others", ref.Uid, d.Value, d.Resource, ref.Queue, path, limit, after)
			}
		}
	}
}

// rightLag is for how long a term may act on a label that is another by now: a paused process hears of nothing, and what it
// had sent lands later.
const rightLag = 30 * time.Second

// rights judges that nothing is charged anew to a queue that the namespace may not use, and had no right to use of late. The
// selectors are those in force.
func (c *check) rights(events []model.Event[proto.Message]) {
	w := c.w
	for _, e := range events {
		if !strings.HasPrefix(e.Key, "reservations/") || e.Deleted {
			continue
		}
		r := e.Value.(*wire.ReservationRecord)
		demand, _ := wire.ToResources(r.Demand)
		var had api.Resources
		if e.Prev != nil {
			had, _ = wire.ToResources(e.Prev.Value.(*wire.ReservationRecord).Demand)
		}
		if demand.Fits(had) || e.Prev != nil && r.Gang.Single { // a pod of its own that was admitted and is resized
			continue
		}
		if e.Prev != nil { // somebody bound pods that were named while the namespace had the right
			named := e.Prev.Value.(*wire.ReservationRecord).Pods
			if !slices.ContainsFunc(r.Pods, func(id uint64) bool { _, known := slices.BinarySearch(named, id); return !known }) {
				continue
			}
		}
		for _, path := range api.Lineage(r.Gang.Queue) {
			kv := w.store.Keys["queues/"+path]
			if kv == nil {
				continue
			}
			limits := kv.Value.(*wire.LimitsRecord)
			if limits.NamespaceSelector == nil {
				continue
			}
			var s metav1.LabelSelector
			if err := s.Unmarshal(limits.NamespaceSelector); err != nil {
				w.fail("selector of queue %s: %v", path, err)
			}
			right := false
			for i, t := range w.load.tenant {
				last := i+1 == len(w.load.tenant)
				right = right || t.value == s.MatchLabels["tenant"] && (last || w.now.Sub(w.load.tenant[i+1].since) < rightLag)
			}
			w.counts["grants under a selector"]++
			if !right {
				w.fail("rights: gang %s is charged %s, %s before, in queue %s, and the selector of queue %s is tenant=%s: the namespace has had %v", r.Gang.Uid, demand, had, r.Gang.Queue, path, s.MatchLabels["tenant"], w.load.tenant)
			}
		}
	}
}
