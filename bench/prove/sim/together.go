package sim

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/shard/event"
)

// Gangs in one topology domain, in runs with the line together: some PodGroups require a zone, some prefer a rack, which in runs without the
// line domains no node has, and some require that each two or three of their pods are in one clique, perhaps inside one zone.

const clique = "clique"

// cliques that nodes are meant to be in; l2 is in none.
var cliques = map[string]string{"n0": "c0", "l0": "c0", "n1": "c0", "n2": "c1", "n3": "c1", "n4": "c2", "n5": "c2", "l1": "c2"}

// keepTogether gives a PodGroup its topology constraints, by its name.
func (l *workload) keepTogether(g *v1beta1.PodGroup) {
	if !l.together {
		return
	}
	kind := int(api.BucketOf("together/" + g.Name))
	slice := v1beta1.TopologyConstraint{Key: clique, SliceSize: min(g.Spec.SchedulingPolicy.Gang.MinCount, int32(2+kind/16%2))}
	switch {
	case kind%4 == 0:
		g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: []v1beta1.TopologyConstraint{{Key: rack, Mode: v1beta1.TopologyPreferred}}}
	case l.repels || l.domains: // with what else their pods ask for, no zone might have room, ever
	case kind%4 == 1:
		g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: []v1beta1.TopologyConstraint{{Key: zone}, {Key: rack, Mode: v1beta1.TopologyPreferred}}}
	case kind%8 == 2:
		g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: []v1beta1.TopologyConstraint{slice}}
	case kind%8 == 6:
		g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: []v1beta1.TopologyConstraint{{Key: zone}, slice}}
	default:
		g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: []v1beta1.TopologyConstraint{{Key: zone}}}
	}
}

// together judges that a pod that a Binding of ours bound is in the zone of its gang, if it requires one. Where nodes were relabelled since
// others of the gang were bound, or shortly before, their zone may have been another one.
func (c *check) together(uid, gang string) {
	w := c.w
	p := w.api.podByUID(uid)
	if !w.load.together || p == nil || gang == "" {
		return
	}
	required := false
	for _, o := range w.api.groups.objects {
		if g := o.Object.(*v1beta1.PodGroup); string(g.UID) == gang && g.Spec.SchedulingConstraints != nil {
			for _, t := range g.Spec.SchedulingConstraints.Topology {
				required = required || t.Key == zone && t.Mode != v1beta1.TopologyPreferred
			}
		}
	}
	own := w.api.node(p.Spec.NodeName)
	if !required || own == nil || c.gang(gang).meddled || // which somebody else bound to another zone, perhaps
		w.now.Sub(c.relabelledAt) < late {
		return
	}
	for _, o := range w.api.pods.objects {
		other := o.Object.(*corev1.Pod)
		if other.UID == p.UID || other.Spec.NodeName == "" || finished(other) || c.bound[string(other.UID)] != gang || !c.gang(gang).ever[string(other.UID)] || c.relabelledAt.After(c.landed[string(other.UID)]) {
			continue
		}
		if n := w.api.node(other.Spec.NodeName); n != nil {
			if w.count("pairs of pods in one zone"); n.Labels[zone] != own.Labels[zone] {
				w.fail("C3: pod %s is bound to %s in zone %s, and pod %s of the same gang is on %s in zone %s", p.UID, own.Name, own.Labels[zone], other.UID, n.Name, n.Labels[zone])
			}
		}
	}
}

// cliqueSince is a clique of a node, "" for none.
type cliqueSince struct {
	value string
	since time.Time
}

// cliqueChanged takes note of the clique of a node.
func (c *check) cliqueChanged(n *corev1.Node, gone bool) {
	value := n.Labels[clique]
	if gone {
		value = ""
	}
	if past := c.cliques[n.Name]; len(past) == 0 || past[len(past)-1].value != value {
		c.cliques[n.Name] = append(past, cliqueSince{value, c.w.now})
	}
}

// cliquesOf returns the cliques that a node was in at some moment since a time.
func (c *check) cliquesOf(node string, since time.Time) (values []string) {
	past := c.cliques[node]
	for i := len(past) - 1; i >= 0; i-- {
		if !slices.Contains(values, past[i].value) {
			values = append(values, past[i].value)
		}
		if !past[i].since.After(since) {
			break
		}
	}
	return values
}

func withoutClique(labels map[string]string) map[string]string {
	out := maps.Clone(labels)
	delete(out, clique)
	return out
}

// cliqueNow is the clique that a node is to be in.
func (l *workload) cliqueNow(node string) string {
	if value, moved := l.cliqueOf[node]; moved {
		return value
	}
	return cliques[node]
}

// confined is a domain that a home asked for.
type confined struct {
	key, value string
	at         time.Time
}

// uproot has nodes move to another clique, or zone, or leave, right when a home has asked for nodes of their domain for a gang, or a slice of it.
func (d *drawer) uproot(i int) {
	w := d.w
	die := w.newDie(fmt.Sprint("uproot ", i))
	pause := time.Duration(20+die.below(300)) * time.Millisecond
	w.outside(pause, func() {
		if w.calm {
			return
		}
		of := &w.check.confined
		if w.now.Sub(of.at) < 300*time.Millisecond && (of.key == zone || of.key == clique) && !d.fixed && die.below(3) == 0 {
			var nodes []string
			for _, name := range w.api.nodes.names() {
				if w.api.node(name).Labels[of.key] == of.value {
					nodes = append(nodes, name)
				}
			}
			if len(nodes) > 0 {
				of.at = time.Time{}
				name := nodes[die.below(len(nodes))]
				switch {
				case die.below(8) == 0:
					d.say("remove-node %s %s", name, time.Duration(1+die.below(6))*time.Second)
				case of.key == zone && of.value == "a":
					d.say("relabel-node %s b false", name)
				case of.key == zone:
					d.say("relabel-node %s a false", name)
				default:
					d.say("clique %s %s", name, []string{"c0", "c1", "c2", "-"}[die.below(4)])
				}
				w.count("nodes uprooted")
			}
		}
		d.uproot(i + 1)
	})
}

// requires returns what the PodGroup of a gang requires: the labels of a slice's domain, or of the gang's, the size of its slices, 0 for none, and
// its minimum.
func (c *check) requires(gang string) (keys []string, size, least int) {
	for _, o := range c.w.api.groups.objects {
		g := o.Object.(*v1beta1.PodGroup)
		if string(g.UID) != gang || g.Spec.SchedulingConstraints == nil {
			continue
		}
		for _, t := range g.Spec.SchedulingConstraints.Topology {
			if t.Mode != v1beta1.TopologyPreferred {
				keys = append(keys, t.Key)
				size, least = max(size, int(t.SliceSize)), int(g.Spec.SchedulingPolicy.Gang.MinCount)
			}
		}
	}
	slices.Sort(keys)
	return keys, size, least
}

// inDomain judges what a home says of a gang that has not started: the nodes of its Commits are in one zone, if its PodGroup requires that, and
// its slices are whole, by the labels that these nodes have as far as the home was shown when it sent each Commit for the first time. Where a node
// moves after that, the Commit may have been carried out already: it is retransmitted as it was, until it is answered, and says nothing new.
func (c *check) inDomain(x *shard, o event.Send) {
	w := c.w
	if o.Body.GetHoldRequest() != nil {
		w.count("holds requested")
	}
	if !w.load.together {
		return
	}
	switch b := o.Body.Body.(type) {
	case *wire.Envelope_HoldRequest:
		for _, label := range slices.Concat(b.HoldRequest.Within, b.HoldRequest.Domains) {
			c.confined = confined{label.Key, label.Value, w.now}
		}
		return
	case *wire.Envelope_Withdraw:
		delete(x.sent, b.Withdraw.Gang.Uid)
		return
	case *wire.Envelope_Commit:
		gang := b.Commit.Gang.Uid
		keys, size, least := c.requires(gang)
		g := c.gang(gang)
		if len(keys) == 0 || len(g.placed) > 0 || g.inherited || g.meddled {
			return
		}
		sent := x.sent[gang]
		if sent == nil {
			sent = map[string]sentTo{}
			x.sent[gang] = sent
		}
		if slices.ContainsFunc(b.Commit.Pods, func(p *wire.PodRef) bool { return sent[p.Uid].serial == b.Commit.Serial }) {
			w.count("commits to a domain retransmitted")
			return
		}
		for _, p := range b.Commit.Pods {
			of := x.domainOf(p.Node, keys)
			of.serial, of.unit = b.Commit.Serial, w.api.unit(p.Uid)
			sent[p.Uid] = of
			for _, key := range keys {
				if x.labels[p.Node][key] == "" {
					w.fail("C4: %s commits pod %s of gang %s to %s, which has no %s as far as it was shown", x.inc, p.Uid, gang, p.Node, key)
				}
			}
		}
		has := map[unitIn]int{}
		first, gone := "", false
		for _, uid := range slices.Sorted(maps.Keys(sent)) {
			of := sent[uid]
			if w.api.podByUID(uid) == nil { // it will never be bound, and the home may know
				gone = true
				continue
			}
			if now := x.domainOf(of.node, keys); now.domain != of.domain {
				return // it was relabelled since: what is committed now goes where most are
			}
			if has[unitIn{of.unit, of.domain}]++; first == "" {
				first = uid
			}
			if of.zone != sent[first].zone {
				w.fail("C4: %s commits pod %s of gang %s to %s in zone %s, and pod %s to zone %s", x.inc, uid, gang, of.node, of.zone, first, sent[first].zone)
			}
		}
		w.count("commits to a domain")
		if size == 0 || len(sent) != least || gone {
			return
		}
		if n := divided(has, size); n > 1 {
			w.fail("C4: %s commits gang %s, and its slices of %d pods are divided: %v", x.inc, gang, size, has)
		}
		w.count("gangs committed in slices")
	}
}

// unsent forgets what a home committed of which it is told that nothing was written, or that it is not to be bound: it commits these pods anew,
// one shard after another, perhaps in another domain.
func (x *shard) unsent(m *wire.Envelope) {
	forget := func(gang, uid string, serial uint64) {
		if sent := x.sent[gang]; sent[uid].serial == serial {
			delete(sent, uid)
		}
	}
	switch b := m.Body.(type) {
	case *wire.Envelope_CommitReply:
		r := b.CommitReply
		if r.Outcome != wire.CommitOutcome_COMMIT_PREPARED && r.Outcome != wire.CommitOutcome_COMMIT_UNKNOWN {
			for uid := range x.sent[r.GangUid] {
				forget(r.GangUid, uid, r.Serial)
			}
		}
	case *wire.Envelope_BindResults:
		for _, r := range b.BindResults.Results {
			if r.Outcome != wire.BindOutcome_BIND_BOUND {
				forget(b.BindResults.GangUid, r.PodUid, b.BindResults.Serial)
			}
		}
	}
}

// sentTo is where a home committed a pod, under which serial, and which domain that was as far as it was shown.
type sentTo struct {
	node, zone, domain, unit string
	serial                   uint64
}

// unitIn are pods that slices are made of, those with the same requests and of the same role, in a domain.
type unitIn struct{ unit, domain string }

// unit returns the unit of a pod; pods that are gone are one of their own.
func (a *apiServer) unit(uid string) string {
	for _, o := range a.pods.objects {
		if o.Pod.UID == uid {
			return o.Pod.Class.Requests.String() + "/" + o.Pod.Role
		}
	}
	return ""
}

func (x *shard) domainOf(node string, keys []string) sentTo {
	of := sentTo{node: node}
	for _, key := range keys {
		if of.domain += "/" + x.labels[node][key]; key == zone {
			of.zone = x.labels[node][key]
		}
	}
	return of
}

// divided returns of how many slices of one unit, at most, pods are missing: how many domains have a number of them that is no multiple of the
// size.
func divided(has map[unitIn]int, size int) (most int) {
	lacking := map[string]int{}
	for in, pods := range has {
		if pods%size > 0 {
			lacking[in.unit]++
			most = max(most, lacking[in.unit])
		}
	}
	return most
}

// sliced judges, when the last pod of a gang's minimum is bound and none of it has left, that each slice is in one
// clique: of the pods with the same requests, and of the same role, at most one clique has a number that is no multiple
// of the size. Pods that are on their way count where they go (on, see workload.onTheWay), for the pods of a slice are
// bound one after another. A node that was in several cliques since shortly before the intent of a pod may have been in
// any of them. Where nodes moved to another zone meanwhile, their domains may have been others, and where the minimum
// was edited, another number of pods was to start together.
func (c *check) sliced(gang string, on map[string]string) {
	w := c.w
	if !w.load.together || gang == "" {
		return
	}
	keys, size, least := c.requires(gang)
	g := c.gang(gang)
	if at, is := w.load.resized[gang]; size == 0 || len(g.ever) != least || is && w.now.Sub(at) <= late {
		return
	}
	inZone := slices.Contains(keys, zone)
	for _, uid := range slices.Sorted(maps.Keys(g.ever)) {
		p := w.api.podByUID(uid)
		if p == nil || finished(p) || p.Spec.NodeName == "" || w.now.Sub(c.landed[uid]) > late || inZone && c.landed[uid].Sub(c.relabelledAt) < late {
			return
		}
		on[uid] = p.Spec.NodeName
	}
	all := []map[unitIn]int{{}} // what there may be in each domain
	for _, uid := range slices.Sorted(maps.Keys(on)) {
		node := on[uid]
		n := w.api.node(node)
		if n == nil && inZone {
			return
		}
		since := w.now
		for _, at := range []time.Time{c.landed[uid], g.durable[uid]} {
			if !at.IsZero() && at.Before(since) {
				since = at
			}
		}
		unit := w.api.unit(uid)
		var next []map[unitIn]int
		values := c.cliquesOf(node, since.Add(-late))
		for _, value := range values {
			if value == "" { // its home took it for in none, perhaps, if the label was there before or came back
				if len(values) > 1 {
					next = append(next, all...)
				}
				continue
			}
			if inZone {
				value += "/" + n.Labels[zone]
			}
			for _, has := range all {
				with := maps.Clone(has)
				with[unitIn{unit, value}]++
				next = append(next, with)
			}
		}
		if len(next) == 0 {
			w.fail("C3: pod %s of a gang with slices is to run on %s, which is in no clique", uid, node)
		}
		if all = next; len(all) > 4096 {
			return
		}
	}
	w.count("gangs in slices")
	if len(all) > 1 {
		w.count("gangs in slices whose nodes moved")
	}
	if !slices.ContainsFunc(all, func(has map[unitIn]int) bool { return divided(has, size) <= 1 }) {
		w.fail("C3: the slices of %d pods of gang %s are divided: %v", size, gang, all[0])
	}
}

// sliceOf returns the size of the slices of a gang, 0 if it has none.
func sliceOf(g *v1beta1.PodGroup) int32 {
	if g.Spec.SchedulingConstraints != nil {
		for _, t := range g.Spec.SchedulingConstraints.Topology {
			if t.SliceSize > 0 {
				return t.SliceSize
			}
		}
	}
	return 0
}
