package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/prove/model"
)

// act carries one line of a script out. One that speaks of what is not there does nothing: what made it may have been
// taken out of the script.
func (w *world) act(line string) {
	f := strings.Fields(line)
	arg := func(i int) string {
		if i < len(f) {
			return f[i]
		}
		return ""
	}
	after := func(word string) string {
		if i := slices.Index(f, word); i >= 0 {
			return arg(i + 1)
		}
		return ""
	}
	number := func(i int) int {
		n, err := strconv.Atoi(arg(i))
		if err != nil {
			w.fail("script: %q: %v", line, err)
		}
		return n
	}
	lasts := func(i int) time.Duration {
		d, err := time.ParseDuration(arg(i))
		if err != nil {
			w.fail("script: %q: %v", line, err)
		}
		return d
	}
	l, a := &w.load, w.api
	pod, name := a.pod("ns", arg(1)), arg(1)
	group, _ := a.groups.objects["ns/"+name].Object.(*v1beta1.PodGroup)
	switch f[0] {
	case "calm":
	case "queue":
		if a.queue(name) == nil {
			l.makeQueue(name, spec(after))
		}
	case "limits":
		if q := a.queue(name); q != nil {
			w.log("admin: %s", line)
			a.editQueue(q, true, func(q *v1beta1.Queue) {
				now := spec(after)
				now.Closed, now.NamespaceSelector = q.Spec.Closed, q.Spec.NamespaceSelector
				q.Spec = now
			})
		}
	case "close":
		if q := a.queue(name); q != nil {
			w.log("admin: %s", line)
			a.editQueue(q, true, func(q *v1beta1.Queue) { q.Spec.Closed = arg(2) == "true" })
		}
	case "selector": // QUEUE VALUE, - for none: which value of its label tenant a namespace needs to use the queue
		if q := a.queue(name); q != nil {
			w.log("admin: %s", line)
			a.editQueue(q, true, func(q *v1beta1.Queue) {
				if q.Spec.NamespaceSelector = nil; arg(2) != "-" {
					q.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": arg(2)}}
				}
			})
		}
	case "tenant": // VALUE of that label of the namespace
		w.log("admin: %s", line)
		l.relabelNamespace(name)
	case "delete-queue":
		if q := a.queue(name); q != nil {
			w.log("admin: deletes queue %s", q.UID)
			a.deleteQueue(q)
		}
	case "podgroup":
		if group == nil {
			priority := ""
			if slices.Contains(f, "high") {
				priority = "high"
			}
			l.makeGroup(name, after("queue"), number(slices.Index(f, "least")+1), priority, slices.Contains(f, "whole"))
		}
	case "delete-podgroup":
		for _, f := range []*feed{a.groups, a.volcano} {
			if o, is := f.objects["ns/"+name]; is {
				a.remove(f, o)
			}
		}
	case "repels": // pods that are made from now on may repel others
		l.repels = true
	case "volumes": // pods that are made from now on may have volumes
		l.beginStorage()
	case "domains": // pods that are made from now on may have constraints over topology domains, and nodes have racks
		l.domains = true
		l.label()
	case "tag": // POD APP: a tenant edits that label
		if pod != nil {
			l.tagged(pod, arg(2))
		}
	case "together": // PodGroups that are made from now on may be ones whose pods are to be in one zone, or in slices, and nodes have cliques
		l.together = true
		l.label()
	case "lives", "policy", "rests", "judge": // contend.go
		w.live(f)
	case "doors": // groups of other kinds are served, by shards that start from now on
		l.doors, a.PodRules.Volcano = true, true
	case "volcano-group":
		if a.VolcanoGroup("ns", name) == nil {
			l.makeVolcanoGroup(name, after("queue"), number(slices.Index(f, "least")+1), after("roles"), after("floor"))
		}
	case "lease": // true or false: Basalt holds that of Volcano's scheduler
		w.log("admin: %s", line)
		l.lease(name == "true")
	case "least":
		if group != nil {
			next := *group
			next.Spec.SchedulingPolicy.Gang.MinCount = max(int32(number(2)), sliceOf(&next)) // the schema refuses others
			next.Generation++
			w.log("user: PodGroup %s minCount %d", group.UID, number(2))
			a.put(a.groups, &next)
			l.resized[string(group.UID)] = w.now
		}
	case "pod":
		if pod == nil {
			l.makePod(name, parseMember(after), after("queue"), slices.Contains(f, "gated"))
		}
	case "finish":
		if pod != nil && running(pod) {
			l.finish(pod, corev1.PodPhase(arg(2)))
		}
	case "delete":
		if pod != nil {
			w.log("user: deletes pod %s", pod.UID)
			a.delete(pod)
		}
	case "ungate":
		if pod != nil {
			a.edit(pod, func(p *corev1.Pod) { p.Spec.SchedulingGates = nil })
		}
	case "annotate":
		if pod != nil {
			a.edit(pod, func(p *corev1.Pod) {
				if p.Annotations == nil {
					p.Annotations = map[string]string{}
				}
				p.Annotations["note"] = arg(2)
				if n, err := strconv.Atoi(arg(2)); err == nil {
					p.Annotations[corev1.PodDeletionCost] = strconv.Itoa(n % 7)
				}
			})
		}
	case "label": // POD KEY VALUE, - for none: a tenant edits a label, whatever became of the pod
		if pod != nil {
			w.log("user: %s", line)
			w.count("labels edited")
			l.edited[string(pod.UID)] = true
			l.worn[string(pod.UID)] = append(l.worn[string(pod.UID)], pod.Labels)
			a.edit(pod, func(p *corev1.Pod) {
				labels := map[string]string{}
				maps.Copy(labels, p.Labels)
				if labels[tenantLabels[arg(2)]] = arg(3); arg(3) == "-" {
					delete(labels, tenantLabels[arg(2)])
				}
				p.Labels = labels
				if name := labels[api.LabelPodGroup]; p.Spec.NodeName != "" {
					w.check.relabelled[name] = true
					for _, uid := range w.check.byName[name] {
						w.check.gang(uid).relabelled = true
					}
				}
				if p.Spec.NodeName != "" && w.check.bound[string(p.UID)] == "" {
					w.check.meddles(p, labels)
				}
			})
		}
	case "bind":
		if pod != nil && a.bind(model.Binding{Namespace: "ns", Name: name, Node: arg(2)}) == nil {
			w.log("somebody binds pod %s to %s", pod.UID, arg(2))
			w.check.meddles(pod, pod.Labels)
			for _, labels := range l.worn[string(pod.UID)] { // a home may not have seen the last edit
				w.check.meddles(pod, labels)
			}
		}
	case "foreign": // NAME NODE [CPU QUEUE]
		if pod == nil {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}}
			p.Spec.SchedulerName, p.Spec.NodeName = "other", arg(2)
			if arg(4) != "" {
				p.Labels = map[string]string{api.LabelQueue: arg(4)}
			}
			p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list(map[string]string{"cpu": cmp.Or(arg(3), "1")})}}}
			if l.domains && arg(4) == "" {
				l.tie(p, name)
				p.Spec.TopologySpreadConstraints = nil // whoever bound it saw to that
			}
			if l.repels && arg(4) == "" { // one that its kubelet does not start counts for nothing, where it has no room
				topology := api.LabelHostname
				if api.BucketOf(name)%2 == 0 {
					topology = "zone"
				}
				l.repel(p, name, topology)
			}
			a.create(a.pods, p)
			if p = a.pod("ns", name); p.Labels["app"] != "" {
				a.edit(p, func(p *corev1.Pod) { p.Status.StartTime = &metav1.Time{Time: w.now} })
			}
			w.check.gang(string(p.UID)).meddled = true
		}
	case "node":
		if a.node(name) == nil {
			l.makeNode(name)
		}
	case "remove-node":
		if a.node(name) == nil {
			return
		}
		a.remove(a.nodes, a.nodes.objects[name])
		w.after(lasts(2), func() {
			if a.node(name) == nil {
				for _, p := range l.pods(func(p *corev1.Pod) bool { return p.Spec.NodeName == name }) {
					a.remove(a.pods, a.pods.objects[nameOf(p)])
				}
			}
		})
	case "shrink-node":
		if n := a.node(name); n != nil {
			next := *n
			next.Status.Allocatable = list(map[string]string{"cpu": arg(2), "pods": "9"})
			a.put(a.nodes, &next)
		}
	case "relabel-node":
		if n := a.node(name); n != nil {
			next := *n
			next.Labels = map[string]string{zone: arg(2), api.LabelHostname: name}
			l.inRack(&next)
			next.Spec.Unschedulable = arg(3) == "true"
			a.put(a.nodes, &next)
		}
	case "clique": // NODE VALUE, - for none: it is in another one from now on
		l.cliqueOf[name] = strings.TrimPrefix(arg(2), "-")
		if n := a.node(name); n != nil {
			next := *n
			next.Labels = maps.Clone(next.Labels)
			delete(next.Labels, clique)
			l.inRack(&next)
			a.put(a.nodes, &next)
		}
	case "quiet": // nothing goes wrong
		l.quiet = true
	case "snatch":
		l.snatch = true
	case "slow-kind":
		if !slices.Contains(slow, name) {
			w.fail("script: %q: not known", line)
		}
		w.slow[name] = lasts(2)
	case "mishaps":
		l.mishaps = number(1)
		w.store.unreliable, w.api.unreliable = l.mishaps, l.mishaps
	case "batch": // BYTES: of coordinators that lead from now on
		l.limits.BatchBytes = number(1)
	case "ungated": // likewise
		l.limits.Ungated = true
	case "earmarks": // AFTER FOR: likewise
		l.limits.EarmarkAfter, l.limits.EarmarkFor = lasts(1), lasts(2)
	case "gather": // INTENTS GRANTS [small]: of who starts from now on; small are the limits of shards
		l.gatherIntents, l.gatherGrants, l.shardLimits = lasts(1), lasts(2), arg(3)
	case "pages":
		w.store.pages = true
	case "compact":
		var again func()
		until := w.now.Add(lasts(2))
		again = func() {
			if !w.calm {
				w.store.compact(int64(number(1)))
			}
			if next := w.now.Add(30 * time.Millisecond); next.Before(until) {
				w.after(30*time.Millisecond, again)
			}
		}
		w.log("fault: %s", line)
		again()
	case "split":
		w.log("fault: %s", line)
		w.gossip.divide(lasts(1), arg(2), f[min(3, len(f)):])
	case "roll-forward": // of shards that start from now on
		l.rollForward = lasts(1)
	case "shard":
		if !l.names[name] {
			w.count("shards joined")
			l.start(name)
		}
	case "namesake":
		if l.names[name] {
			w.count("namesakes")
			w.startShard(name)
		}
	case "no-quorum":
		w.log("fault: the store has no quorum for %s", lasts(1))
		w.count("quorums lost")
		w.store.down = w.now.Add(lasts(1))
	case "api-away":
		w.log("fault: the API server is away for %s", lasts(1))
		w.count("API server restarts")
		w.api.down = w.now.Add(lasts(1))
	case "small-requests": // BYTES DURATION: the control store has a lower limit than usual, which it had not before
		w.log("fault: %s", line)
		w.count("times of small requests")
		w.store.limit = number(1)
		until := w.now.Add(lasts(2))
		w.store.limited = until
		w.after(lasts(2), func() {
			if w.store.limited.Equal(until) {
				w.store.limit = 0
			}
		})
	case "unreliable":
		s := &w.store.server
		if name == "api" {
			s = &w.api.server
		}
		s.unreliable = 60
		w.count("unreliable times")
		w.log("fault: %s", line)
		w.after(lasts(2), func() {
			if !w.calm {
				s.unreliable = l.mishaps
			}
		})
	default:
		if p := w.named(name); p != nil {
			w.befall(p, line, f[0], arg, lasts)
		} else if !slices.Contains(befalling, f[0]) {
			w.fail("script: %q: not known", line)
		}
	}
}

// tenantLabels are what a tenant may edit, by a short word.
var tenantLabels = map[string]string{"group": api.LabelPodGroup, "queue": api.LabelQueue, "gang": api.LabelGang}

// named is the process of an incarnation, or the newest of its name.
func (w *world) named(inc string) *process {
	if p := w.process(api.Incarnation(inc)); p != nil {
		return p
	}
	name, _, _ := strings.Cut(inc, "-")
	for _, p := range slices.Backward(w.processes) {
		if p.name == name {
			return p
		}
	}
	return nil
}

// befalling are the lines that are about one process.
var befalling = []string{"leave", "drain", "fuse", "crash", "pause", "break", "cut", "lag", "relist", "stall", "stall-store", "no-store", "no-api", "slow-store", "slow-api"}

func (w *world) befall(p *process, line, verb string, arg func(int) string, lasts func(int) time.Duration) {
	if verb != "fuse" {
		w.log("fault: %s", line)
	}
	switch verb {
	case "leave", "drain":
		x := w.shard(p)
		if x == nil || x.session == nil || !w.load.names[x.name] || len(w.load.names) < 2 {
			return
		}
		delete(w.load.names, x.name)
		w.count("shards left")
		if verb == "leave" {
			x.leave()
		} else {
			x.drain()
			x.later(lasts(2), x.leave)
		}
	case "fuse":
		p.fuse, _ = strconv.Atoi(arg(2))
	case "crash":
		w.count("crashes")
		p.end("crash")
	case "pause":
		p.pause(lasts(2))
	case "break", "cut", "lag":
		q := w.named(arg(2))
		if q == nil || q == p {
			return
		}
		switch c := w.net.conn(p, q); verb {
		case "break":
			w.count("connections broken")
			w.net.breaks(c)
		case "cut":
			w.count("connections cut")
			c.cut = w.now.Add(lasts(3))
			w.net.breaks(c)
			for _, co := range w.coords { // gossip hears of it
				if co.process == p || co.process == q {
					other := q
					if co.process == q {
						other = p
					}
					co.later(w.delay(), func() { co.suspect(other.inc) })
				}
			}
		case "lag":
			w.count("connections slow")
			c.slow = w.now.Add(lasts(3))
		}
	case "relist", "stall":
		for _, x := range p.watchers {
			if x.feed.kind != arg(2) {
				continue
			}
			if verb == "relist" {
				w.count("watches broken")
				x.anew = true
				x.relist()
			} else {
				w.count("watches stalled")
				x.stalled = w.now.Add(lasts(3))
			}
		}
	case "stall-store":
		if i, err := strconv.Atoi(arg(2)); err == nil && i < len(p.followers) {
			w.count("store watches stalled")
			p.followers[i].stalled = w.now.Add(lasts(3))
		}
	case "no-store":
		w.count("cut off from the store")
		p.noStore = w.now.Add(lasts(2))
	case "no-api":
		w.count("cut off from the API server")
		p.noAPI = w.now.Add(lasts(2))
	case "slow-store":
		w.count("control store slow")
		p.slowStore = w.now.Add(lasts(2))
	case "slow-api":
		w.count("API server slow")
		p.slowAPI = w.now.Add(lasts(2))
	default:
		w.fail("script: %q: not known", line)
	}
}

// endFaults heals everything.
func (w *world) endFaults() {
	w.record.add(w.now.Sub(w.start), "calm")
	w.calm = true
	clear(w.slow)
	w.load.policies = nil
	w.log("calm: the faults end")
	w.freeVolumes()
	w.store.unreliable, w.api.unreliable = 0, 0
	none := time.Time{}
	w.store.down, w.api.down, w.store.limit = none, none, 0
	for _, key := range w.net.keys() {
		c := w.net.conns[key]
		c.cut, c.slow = none, none
	}
	for _, p := range append([]*process(nil), w.processes...) {
		p.fuse, p.noStore, p.noAPI, p.slowStore, p.slowAPI = 0, none, none, none, none
		for _, x := range p.watchers {
			x.stalled = none
		}
		for _, x := range p.followers {
			x.stalled = none
		}
		p.resume()
	}
	for _, p := range w.load.pods(func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil }) { // that stay for long
		w.after(30*time.Second, func() {
			if o := w.api.podByUID(string(p.UID)); o != nil {
				w.api.remove(w.api.pods, w.api.pods.objects[nameOf(o)])
			}
		})
	}
	w.gossip.heal()
}

func (n *network) keys() [][2]api.Incarnation {
	var out [][2]api.Incarnation
	for _, from := range n.w.processes {
		for _, to := range n.w.processes {
			key := [2]api.Incarnation{from.inc, to.inc}
			if n.conns[key] != nil {
				out = append(out, key)
			}
		}
	}
	return out
}

func (l Line) String() string { return fmt.Sprintf("%s %s", l.At, l.Words) }

// ordersOf are spec.order of Queues in the words of a script; "wrong" does not compile.
var ordersOf = map[string]string{"turn": `int(annotations["example.com/turn"])`, "wrong": "turn"}
