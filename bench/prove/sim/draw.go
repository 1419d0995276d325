package sim

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// drawer draws what happens from the seed: the workload and the faults. What it draws it says in the words of act.go, so
// that it can be said again.
type drawer struct {
	w         *world
	acts      []chance      // what users do, and
	wrong     []chance      // what goes wrong: no two seeds have the same, and in most something never happens
	tight     bool          // little is limited and little ends: the nodes are full, and pods wait for them
	fixed     bool          // nodes stay, and keep their labels, as the namespace does: constraints over domains can be judged all the time
	policies  *die          // who may be evicted for whom
	contest   *die          // queues contend for one limit
	contended *die          // the world is a contended one, and in
	hungry    []string      // these queues there is more to do now than in others
	capped    bool          // root has a capability
	elastic   *die          // gangs have more pods than their minimum
	busy      int           // of so many pods that would end, one does: now and then the cluster fills up
	lull      time.Duration // between two faults at most: now and then there is time to get something done
	until     time.Time     // then both change
}

func (d *drawer) say(format string, args ...any) {
	words := fmt.Sprintf(format, args...)
	d.w.record.add(d.w.now.Sub(d.w.start), words)
	d.w.act(words)
}

// some is true once in n times.
func (d *drawer) some(n int) bool { return d.w.rng.IntN(n) == 0 }

func (d *drawer) between(from, to time.Duration) time.Duration {
	return from + time.Duration(d.w.rng.Int64N(int64(to-from)+1))
}

func pick[T any](d *drawer, from []T) T { return from[d.w.rng.IntN(len(from))] }

// begin makes the queues and the first shards, and goes on drawing until the world is calm.
func (d *drawer) begin() {
	w := d.w
	if d.lives() || d.contends() {
		return
	}
	if d.some(2) {
		d.say("roll-forward %s", d.between(time.Second, 5*time.Second))
	}
	if d.some(2) {
		d.say("pages")
	}
	small := ""
	if w.newDie("small").below(4) == 0 {
		small = " small"
	}
	gather := pick(d, []string{"0s 0s", "7ms 3ms", "50ms 25ms", "50ms 25ms"}) // the last is what processes do
	d.say("gather %s%s", gather, small)
	d.tight = d.some(2)
	d.acts, d.wrong = d.chances(acts, 0, 1, 1, 1, 2, 4), d.chances(wrongs, 0, 1, 1, 2, 8)
	if !w.cfg.Calm {
		d.say("mishaps %d", pick(d, []int{1, 3, 3, 12}))
	}
	if !w.cfg.Calm && !d.some(3) {
		for _, kind := range slow {
			if d.some(4) {
				d.slow(kind)
			}
		}
	}
	bounds := w.newDie("bounds")
	if bounds.below(2) == 0 {
		d.say("batch 2048")
	}
	if bounds.below(2) == 0 {
		d.say("earmarks 2s 2s")
	}
	d.controllers(w.newDie("doors"))
	d.repelling(w.newDie("repels"))
	if w.newDie("together").below(2) == 0 {
		d.say("together")
		if w.newDie("uproot").below(4) > 0 && !w.cfg.Calm {
			d.uproot(0)
		}
	}
	d.volumes(w.newDie("volumes"))
	d.spreading(w.newDie("domains"))
	if x := w.newDie("contest"); x.below(3) == 0 {
		d.contest = x
		w.outside(3*time.Second, func() { d.say("limits %s %s", api.RootQueue, d.limitsOf(api.RootQueue)) }) // the coordinator makes root
	}
	if x := w.newDie("elastic"); x.below(4) == 0 || d.contest != nil {
		d.elastic = x
	}
	for _, name := range queueNames {
		d.say("queue %s %s", name, d.limitsOf(name))
	}
	shards := 1 + w.rng.IntN(4)
	if d.tight {
		shards = 3 + w.rng.IntN(3)
	}
	for i := range shards {
		d.say("shard s%d", i)
	}
	again := func(from, to time.Duration, do func()) func() {
		var next func()
		next = func() {
			if !w.calm {
				w.outside(d.between(from, to), next)
				do()
			}
		}
		return next
	}
	w.outside(time.Millisecond, again(0, 160*time.Millisecond, d.user))
	if bounds.below(2) == 0 {
		d.forge(0)
	}
	if !w.cfg.Calm {
		var fault func()
		fault = func() {
			if !w.calm {
				w.outside(d.between(50*time.Millisecond, d.lull), fault)
				d.fault()
			}
		}
		w.outside(5*time.Second, fault)
	}
}

// chance is something that comes so often beside others.
type chance struct {
	what string
	n    int
}

var acts = []chance{
	{"gang", 14}, {"single", 8}, {"finish", 24}, {"clean up", 8}, {"delete pod", 6}, {"make again", 6}, {"ungate", 3}, {"least", 3}, {"delete podgroup", 4}, {"queue", 6}, {"delete queue", 2}, {"node", 3}, {"shrink node", 2}, {"relabel node", 2}, {"foreign", 3}, {"bind", 1}, {"annotate", 4}, {"label", 4}, {"rights", 3},
}

var wrongs = []chance{
	{"fuse", 14}, {"crash", 3}, {"pause", 10}, {"snatch", 3}, {"connection", 17}, {"watch", 15}, {"store watch", 8}, {"no quorum", 2}, {"api away", 3}, {"no store", 5}, {"no api", 4}, {"unreliable", 4}, {"compact", 2}, {"split", 2}, {"usurp", 8}, {"scale", 5}, {"small requests", 3},
}

// chances of a seed: some things come as often as they are meant to, some more, and some never (swarm testing: Groce and
// others, ISSTA 2012). What shows only where something else is rare, or comes often, has its seeds.
func (d *drawer) chances(usual []chance, times ...int) []chance {
	out := slices.Clone(usual)
	for i := range out {
		out[i].n *= pick(d, times)
	}
	return out
}

// draw says what comes.
func (d *drawer) draw(from []chance) string {
	sum := 0
	for _, c := range from {
		sum += c.n
	}
	if sum == 0 {
		return ""
	}
	n := d.w.rng.IntN(sum)
	for _, c := range from {
		if n -= c.n; n < 0 {
			return c.what
		}
	}
	return ""
}

// slow draws how slow things of a kind are from now on.
func (d *drawer) slow(kind string) {
	most := pick(d, []time.Duration{0, 200 * time.Millisecond, time.Second, 4 * time.Second})
	if kind == "lease" || kind == "message" {
		most = min(most, 500*time.Millisecond) // or nothing would get done
	}
	d.say("slow-kind %s %s", kind, most)
}

// ---- the workload

func (d *drawer) limits() string {
	rng := d.w.rng
	if d.some(4) || d.tight && !d.some(16) {
		return "capability - guarantee -"
	}
	cpu := 3 + rng.IntN(40)
	capability, guarantee := fmt.Sprintf("cpu=%d", cpu), "-"
	if d.some(4) {
		capability += fmt.Sprintf(",%s=%d", gpu, 1+rng.IntN(8))
	}
	if d.some(5) {
		capability += fmt.Sprintf(",pods=%d", 3+rng.IntN(20))
	}
	if d.some(3) {
		guarantee = fmt.Sprintf("cpu=%d", 1+rng.IntN(min(cpu, 12)))
	}
	return "capability " + capability + " guarantee " + guarantee + d.shares(cpu)
}

// limitsOf draws the limits of a queue. Where queues contend, root alone has a capability, and the others deserve parts of it.
func (d *drawer) limitsOf(name string) string {
	s := d.amountsOf(name)
	return s + []string{"", " order turn", " order wrong"}[int(api.BucketOf(s+name))%3]
}

func (d *drawer) amountsOf(name string) string {
	x := d.contest
	switch {
	case d.contended != nil:
		return d.stakes(name)
	case x == nil:
		return d.limits()
	case name == api.RootQueue:
		return fmt.Sprintf("capability cpu=%d guarantee -", 8+x.below(12)) + d.policy()
	}
	s := fmt.Sprintf("capability - guarantee - deserved cpu=%d", x.below(9))
	if x.below(3) == 0 {
		s += fmt.Sprintf(" weight %d", x.below(4))
	}
	return s + d.policy()
}

// shares draws how a queue stands among its siblings.
func (d *drawer) shares(cpu int) (s string) {
	rng := d.w.rng
	if d.some(3) {
		s += fmt.Sprintf(" deserved cpu=%d", 1+rng.IntN(cpu))
	}
	if d.some(3) {
		s += fmt.Sprintf(" weight %d", rng.IntN(4))
	}
	if d.some(6) {
		s += " priority 1"
	}
	return s + d.policy()
}

// policy draws who may be evicted for whom, from a die of its own. In half of the seeds nobody is.
func (d *drawer) policy() (s string) {
	if d.policies == nil {
		x := d.w.newDie("policies")
		d.policies = x
	}
	x := d.policies
	if x.below(4) == 0 {
		s += " kept yes"
	}
	if n := x.below(6); n < 2 {
		s += " reclaim " + []string{"never", "fair"}[n]
	}
	if x.below(2) == 0 {
		s += " preempts " + []string{"yes", "yes", "no"}[x.below(3)]
	}
	if x.below(3) > 0 {
		s += fmt.Sprintf(" runtime %ds delay %ds", x.below(4), x.below(3))
	}
	return s
}

func (d *drawer) pod(name string, of member, queue string) {
	if d.w.api.pod("ns", name) != nil {
		return
	}
	words := "pod " + name + of.words()
	if queue != "" {
		words += " queue " + queue
	}
	if d.some(15) {
		words += " gated"
	}
	d.say("%s", words)
}

func (d *drawer) group(name, queue string, least int) {
	priority := ""
	if d.some(5) {
		priority = " high"
	}
	if d.elastic != nil && d.elastic.below(8) == 0 {
		priority += " whole"
	}
	d.say("podgroup %s queue %s least %d%s", name, queue, least, priority)
}

// surplus is how many further pods a gang has where gangs are elastic.
func (d *drawer) surplus() int {
	if d.elastic == nil {
		return 0
	}
	return d.elastic.below(8)
}

func (d *drawer) aPod(ok func(*corev1.Pod) bool) *corev1.Pod {
	if pods := d.w.load.pods(ok); len(pods) > 0 {
		return pick(d, pods)
	}
	return nil
}

func (d *drawer) aGroup() *v1beta1.PodGroup {
	if names := d.w.api.groups.names(); len(names) > 0 {
		return d.w.api.groups.objects[pick(d, names)].Object.(*v1beta1.PodGroup)
	}
	return nil
}

func (d *drawer) aNode() string {
	return pick(d, append(slices.Clone(looseNodes), slices.Sorted(maps.Keys(d.w.load.strict))...))
}

// user does one thing that somebody might do.
func (d *drawer) user() {
	w, a, rng := d.w, d.w.api, d.w.rng
	if !w.now.Before(d.until) {
		d.busy, d.until = pick(d, []int{1, 1, 4, 16, 64}), w.now.Add(d.between(5*time.Second, 30*time.Second))
		if d.tight {
			d.busy = pick(d, []int{4, 16, 64})
		}
		d.lull = pick(d, []time.Duration{1200 * time.Millisecond, 4 * time.Second, 12 * time.Second, 12 * time.Second})
		if !w.cfg.Calm && d.some(2) {
			d.slow(pick(d, slow))
		}
	}
	switch d.draw(d.acts) {
	case "gang":
		name := fmt.Sprintf("g%d", rng.IntN(16))
		if a.groups.objects["ns/"+name].Object != nil {
			return
		}
		least := 1 + rng.IntN(d.w.load.most(name))
		if d.some(2) {
			least = min(1+rng.IntN(4), d.w.load.most(name))
		}
		queue := pick(d, leafNames)
		if d.elastic != nil && d.elastic.below(3) > 0 {
			least = min(least, 1+d.elastic.below(2))
		}
		before := d.some(2)
		if before {
			d.group(name, queue, least)
		}
		for i := range min(least+rng.IntN(2)+d.surplus(), max(least+1, d.w.load.most(name))) {
			d.pod(fmt.Sprintf("%s-%d", name, i), member{group: name}, "")
		}
		if !before {
			d.group(name, queue, least)
		}
	case "single":
		d.pod(fmt.Sprintf("single%d", rng.IntN(16)), member{}, pick(d, leafNames))
	case "finish":
		for range 3 {
			if p := d.aPod(running); p != nil && d.some(d.busy) {
				d.say("finish %s %s", p.Name, pick(d, []corev1.PodPhase{corev1.PodSucceeded, corev1.PodSucceeded, corev1.PodSucceeded, corev1.PodFailed}))
			}
		}
	case "clean up": // finished ones are cleaned up
		for range 3 {
			if p := d.aPod(finished); p != nil {
				d.say("delete %s", p.Name)
			}
		}
	case "delete pod":
		p := d.aPod(ours)
		if d.some(2) { // one that is on its way
			p = d.aPod(w.load.underway)
		}
		if p != nil {
			d.say("delete %s", p.Name)
			if d.some(3) { // and makes it again at once
				d.pod(p.Name, again(p), p.Labels[api.LabelQueue])
			}
		}
	case "make again": // what a controller makes again, or one more
		if g := d.aGroup(); g != nil {
			least := int(g.Spec.SchedulingPolicy.Gang.MinCount)
			d.pod(fmt.Sprintf("%s-%d", g.Name, rng.IntN(min(d.w.load.most(g.Name), least+2+d.surplus()))), member{group: g.Name}, "")
			for i := range least {
				if !d.some(4) {
					d.pod(fmt.Sprintf("%s-%d", g.Name, i), member{group: g.Name}, "")
				}
			}
		}
	case "ungate":
		if p := d.aPod(func(p *corev1.Pod) bool { return len(p.Spec.SchedulingGates) > 0 }); p != nil {
			d.say("ungate %s", p.Name)
		}
	case "least":
		if g := d.aGroup(); g != nil {
			d.say("least %s %d", g.Name, 1+rng.IntN(d.w.load.most(g.Name)))
		}
	case "delete podgroup":
		if g := d.aGroup(); g != nil {
			d.say("delete-podgroup %s", g.Name)
			if d.some(2) {
				d.group(g.Name, pick(d, []string{g.Spec.Queue, pick(d, leafNames)}), int(g.Spec.SchedulingPolicy.Gang.MinCount))
			}
			if d.some(2) {
				for _, p := range w.load.pods(func(p *corev1.Pod) bool { return p.Labels[api.LabelPodGroup] == g.Name }) {
					d.say("delete %s", p.Name)
				}
			}
		}
	case "queue":
		name := pick(d, append([]string{api.RootQueue, api.DefaultQueue}, queueNames...))
		q := a.queue(name)
		switch {
		case q == nil && (name == api.RootQueue || name == api.DefaultQueue):
		case q == nil:
			d.say("queue %s %s", name, d.limitsOf(name))
		case d.some(4):
			if q.Spec.Closed || d.some(2) {
				d.say("close %s %t", name, !q.Spec.Closed && d.some(2))
				d.reopen(name)
			}
		default:
			d.say("limits %s %s", name, d.limitsOf(name))
		}
	case "delete queue":
		if q := a.queue(pick(d, queueNames)); q != nil && d.some(6) {
			d.say("delete-queue %s", q.Name)
			d.reopen(q.Name)
		}
	case "node":
		name := d.aNode()
		switch {
		case a.node(name) == nil:
			d.say("node %s", name)
		case d.some(3) && !d.fixed: // its pods go, too, after a while
			d.say("remove-node %s %s", name, d.between(time.Second, 8*time.Second))
		}
	case "shrink node":
		if name := pick(d, looseNodes); a.node(name) != nil {
			d.say("shrink-node %s %d", name, 1+rng.IntN(6))
		}
	case "relabel node":
		if name := d.aNode(); a.node(name) != nil && !d.fixed {
			if shards := d.w.shards; len(shards) > 0 && d.some(2) { // one judges by where the node was
				x := pick(d, shards)
				d.say("stall %s %s %s", x.inc, a.nodes.kind, d.between(2*time.Second, 12*time.Second))
			}
			d.say("relabel-node %s %s %t", name, pick(d, []string{"a", "b"}), d.some(6))
		}
	case "foreign": // a DaemonSet's pod, or another scheduler's
		if name := fmt.Sprintf("foreign%d", rng.IntN(6)); a.pod("ns", name) == nil {
			d.say("foreign %s %s", name, pick(d, looseNodes))
		}
	case "bind": // somebody binds a pod of ours by hand
		if p := d.aPod(func(p *corev1.Pod) bool { return ours(p) && p.Spec.NodeName == "" }); p != nil && d.some(2) {
			d.say("bind %s %s", p.Name, pick(d, looseNodes))
		}
	case "rights": // an admin says who may use a queue, or which namespace is whose
		name := pick(d, append([]string{api.RootQueue, api.DefaultQueue}, queueNames...))
		switch q := a.queue(name); {
		case q == nil || q.DeletionTimestamp != nil:
		case q.Spec.NamespaceSelector != nil && !d.some(3):
			d.say("selector %s -", name)
		case d.some(3):
			d.say("selector %s %s", name, pick(d, tenants))
		}
		if d.some(3) && !d.fixed {
			d.say("tenant %s", pick(d, tenants))
		}
	case "label": // a tenant edits what says where its pods belong
		p := d.aPod(func(p *corev1.Pod) bool { return !finished(p) })
		if d.some(2) {
			p = d.aPod(running)
		}
		if p == nil {
			return
		}
		switch rng.IntN(4) {
		case 0:
			d.say("label %s queue %s", p.Name, pick(d, append([]string{"-"}, leafNames...)))
		case 1:
			gang := "-"
			if g := d.aGroup(); g != nil {
				gang = string(g.UID)
			}
			d.say("label %s gang %s", p.Name, pick(d, []string{"-", "nobody", gang, gang, string(p.UID)}))
		default:
			d.say("label %s group %s", p.Name, pick(d, []string{"-", "nope", fmt.Sprintf("g%d", rng.IntN(16))}))
		}
	case "annotate": // somebody edits an annotation
		if p := d.aPod(ours); p != nil {
			d.say("annotate %s %d", p.Name, w.step)
		}
	}
}

// forge has a tenant make pods with a node of its choice and the queue of somebody else, every few seconds: on a node that does
// not exist, or larger than their node.
func (d *drawer) forge(i int) {
	w := d.w
	die := w.newDie(fmt.Sprint("forge ", i))
	w.outside(time.Second+time.Duration(die.below(8000))*time.Millisecond, func() {
		if w.calm {
			return
		}
		name := fmt.Sprintf("forged%d", die.below(6))
		if p := w.api.pod("ns", name); p != nil {
			d.say("delete %s", name)
		} else {
			node := append([]string{"nowhere"}, looseNodes...)[die.below(1+len(looseNodes))]
			d.say("foreign %s %s %d %s", name, node, 1+die.below(60), leafNames[die.below(len(leafNames))])
		}
		d.forge(i + 1)
	})
}

// reopen has an admin open a queue again before long, or make it again once it is gone: what waits in it is what fills the
// nodes.
func (d *drawer) reopen(name string) {
	w, a := d.w, d.w.api
	w.outside(d.between(time.Second, 6*time.Second), func() {
		switch q := a.queue(name); {
		case w.calm:
		case q == nil && slices.Contains(queueNames, name):
			d.say("queue %s %s", name, d.limitsOf(name))
		case q == nil:
		case q.DeletionTimestamp != nil: // it waits for what runs in it
			for _, p := range w.load.pods(running) {
				if w.load.closing(w.load.queueOf(p)) {
					d.say("finish %s %s", p.Name, corev1.PodSucceeded)
				}
			}
			d.reopen(name)
		case q.Spec.Closed:
			d.say("close %s false", name)
		}
	})
}

// ---- the faults

// smallest is a limit, in bytes, of which a record of one pod, of one reservation or of a few shards' table is well below.
const smallest = 400

// fault draws what goes wrong beside the mishaps that every request may meet.
func (d *drawer) fault() {
	w, rng := d.w, d.w.rng
	if len(w.processes) == 0 {
		return
	}
	p := pick(d, w.processes)
	switch d.draw(d.wrong) {
	case "fuse":
		d.say("fuse %s %d", p.inc, 1+rng.IntN(30))
	case "crash":
		d.say("crash %s", p.inc)
	case "pause":
		d.say("pause %s %s", p.inc, d.between(100*time.Millisecond, 9*time.Second))
	case "snatch": // and what is bound of its gang goes on for a while
		d.say("snatch")
		d.busy, d.until = 64, w.now.Add(d.between(5*time.Second, 20*time.Second))
	case "connection":
		q := pick(d, w.processes)
		if p == q {
			return
		}
		switch lasts := d.between(time.Second, 9*time.Second); rng.IntN(4) {
		case 0:
			d.say("break %s %s", p.inc, q.inc)
		case 1:
			d.say("cut %s %s %s", p.inc, q.inc, lasts)
		default:
			d.say("lag %s %s %s", p.inc, q.inc, lasts)
		}
	case "watch":
		if len(p.watchers) == 0 {
			return
		}
		kind := pick(d, p.watchers).feed.kind
		if d.some(3) {
			d.say("relist %s %s", p.inc, kind)
		} else {
			d.say("stall %s %s %s", p.inc, kind, d.between(time.Second, 12*time.Second))
		}
	case "store watch":
		if len(p.followers) > 0 {
			d.say("stall-store %s %d %s", p.inc, rng.IntN(len(p.followers)), d.between(time.Second, 12*time.Second))
		}
	case "no quorum":
		d.say("no-quorum %s", d.between(500*time.Millisecond, 8*time.Second))
	case "api away":
		d.say("api-away %s", d.between(200*time.Millisecond, 5*time.Second))
	case "no store":
		d.say("no-store %s %s", p.inc, d.between(time.Second, 9*time.Second))
	case "no api":
		d.say("no-api %s %s", p.inc, d.between(time.Second, 9*time.Second))
	case "unreliable":
		d.say("unreliable %s %s", pick(d, []string{"store", "api"}), d.between(time.Second, 6*time.Second))
	case "small requests":
		d.say("small-requests %d %s", pick(d, []int{smallest, smallest, 2 * smallest}), d.between(time.Second, 9*time.Second))
	case "compact":
		d.say("compact %d %s", pick(d, []int{0, 0, 1, 20}), d.between(0, 4*time.Second))
	case "split":
		half := ""
		for _, p := range w.processes {
			if d.some(2) {
				half += " " + string(p.inc)
			}
		}
		d.say("split %s %s%s", d.between(time.Second, 25*time.Second), pick(d, []string{"all", "some", "none"}), half)
	case "usurp":
		d.usurp()
	case "scale":
		d.scale()
	}
}

// usurp has a shard lose its nodes in the midst of its Bindings, on a cluster that is full but for what they fill: taken for
// dead while it lives, or killed, or drained. Its heirs may see late what it bound, or hear late from the control store.
func (d *drawer) usurp() {
	w := d.w
	then := func(from, to time.Duration, do func()) {
		w.outside(d.between(from, to), func() {
			if !w.calm {
				do()
			}
		})
	}
	d.busy, d.lull, d.until = 64, 12*time.Second, w.now.Add(20*time.Second)
	if len(w.load.names) < 3 {
		d.join()
	}
	then(3*time.Second, 12*time.Second, func() {
		if len(w.shards) < 2 {
			return
		}
		x := pick(d, w.shards)
		late := d.some(2)
		for _, y := range w.shards {
			if y == x {
				continue
			}
			if late {
				d.say("stall %s %s %s", y.inc, w.api.pods.kind, d.between(8*time.Second, 20*time.Second))
			}
			if d.some(2) {
				d.say("slow-store %s %s", y.inc, d.between(2*time.Second, 6*time.Second))
			}
		}
		if !late || d.some(4) {
			d.say("slow-api %s %s", x.inc, d.between(2*time.Second, 6*time.Second))
		}
		for range 6 {
			then(0, 2200*time.Millisecond, func() {
				p := d.aPod(func(p *corev1.Pod) bool { return running(p) && w.store.table().OwnerOf(p.Spec.NodeName) == x.inc })
				if p != nil {
					d.say("finish %s %s", p.Name, corev1.PodSucceeded)
				}
			})
		}
		soon := time.Duration(0)
		if late { // until it was bound, seen and resolved
			soon = 3 * time.Second
		}
		then(soon, 2*soon+2*time.Second, func() {
			switch w.rng.IntN(4) {
			case 0:
				d.say("crash %s", x.inc)
			case 1:
				d.say("drain %s %s", x.inc, d.between(5*time.Second, 20*time.Second))
			default:
				for _, c := range w.coords {
					d.say("cut %s %s %s", c.inc, x.inc, d.between(4*time.Second, 9*time.Second))
				}
			}
		})
	})
}

// scale adds a shard, or takes one away in order, or starts one under a name that is in use.
func (d *drawer) scale() {
	w, l := d.w, &d.w.load
	switch n := w.rng.IntN(10); {
	case n < 4 && len(l.names) < 5:
		d.join()
	case n < 7 && len(l.names) > 1 && len(w.shards) > 0:
		x := pick(d, w.shards)
		if !l.names[x.name] || x.session == nil {
			return
		}
		if d.some(2) {
			d.say("drain %s %s", x.inc, d.between(time.Second, 20*time.Second))
		} else {
			d.say("leave %s", x.inc)
		}
	case n < 8 && len(w.shards) > 0: // a supervisor that took a living one for dead
		if x := pick(d, w.shards); l.names[x.name] {
			d.say("namesake %s", x.name)
		}
	}
}

// join adds a shard.
func (d *drawer) join() {
	i := d.w.load.named
	for d.w.load.names[fmt.Sprintf("s%d", i)] {
		i++
	}
	d.say("shard s%d", i)
}

// amountsOf reads "cpu=3,pods=4", "-" for none.
func amountsOf(s string) corev1.ResourceList {
	if s == "-" || s == "" {
		return nil
	}
	amounts := map[string]string{}
	for part := range strings.SplitSeq(s, ",") {
		name, value, _ := strings.Cut(part, "=")
		amounts[name] = value
	}
	return list(amounts)
}
