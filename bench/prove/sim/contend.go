package sim

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// Contended worlds: in one seed of four, gangs ask for more than there is, and evict each other. In the others claims are rare: queues seldom
// deserve what others have, gangs seldom wait for quota, and what waits is often finished before it may claim. Here everything that keeps
// claims from being made, or from being made at the wrong moment, is left out:
//
//   - root has a capability, or few nodes are left, and there are several times as many gangs;
//   - most queues deserve something, preemption is allowed, delays and min runtimes are of seconds;
//   - controllers make evicted pods again at once, and few gangs finish;
//   - in every other one, some PodGroups require one zone, or slices;
//   - most faults are aimed: they come shortly after a claim was written, at one of those who have to go on with it, or change what the claim
//     rests on.
//
// One in three of them is quiet: nothing goes wrong there. In these a claimant is judged by when it starts (claims.go).

// contends draws whether the world is a contended one, and begins it if so.
func (d *drawer) contends() bool {
	w := d.w
	x := w.newDie("contended")
	if x.below(4) > 0 {
		return false
	}
	quiet := w.cfg.Calm || x.below(2) == 0
	d.capped = x.below(5) < 2
	if quiet {
		d.say("quiet")
		d.say("mishaps 0")
	} else {
		d.say("mishaps %d", []int{0, 1, 3}[x.below(3)])
		for _, kind := range slow {
			if x.below(6) == 0 {
				d.slow(kind)
			}
		}
		d.wrong = d.chances(wrongs, 0, 0, 1, 1)
		w.check.claimMade = func(r *wire.ReservationRecord) { d.aim(x, r) }
	}
	d.say("gather %s", []string{"0s 0s", "7ms 3ms", "50ms 25ms"}[x.below(3)])
	d.contended = x
	if x.below(3) > 0 {
		d.elastic = x
	}
	d.acts = d.chances(contentions, 1, 1, 2)
	if quiet { // whose gang is changed meanwhile may not start
		d.acts = slices.DeleteFunc(d.acts, func(c chance) bool { return c.what == "delete pod" || c.what == "least" })
	} else {
		d.acts = append(d.acts, chance{"limits", 4})
	}
	if !d.capped && x.below(2) == 0 {
		d.say("ungated")
	}
	if w.newDie("together").below(2) == 0 {
		d.say("together")
	}
	if !d.capped || x.below(2) == 0 {
		for _, name := range append([]string{"n1", "n3", "n5"}, looseNodes...) {
			d.say("remove-node %s 1s", name)
		}
	}
	w.outside(3*time.Second, func() { d.say("limits %s %s", api.RootQueue, d.limitsOf(api.RootQueue)) }) // the coordinator makes root
	for _, name := range queueNames {
		d.say("queue %s %s", name, d.limitsOf(name))
	}
	for i := range 1 + x.below(3) {
		d.say("shard s%d", i)
	}
	d.every(0, 200*time.Millisecond, func() { d.contend(x) })
	if !quiet {
		d.lull = []time.Duration{4 * time.Second, 12 * time.Second, 30 * time.Second}[x.below(3)]
		w.outside(5*time.Second, func() { d.every(50*time.Millisecond, d.lull, d.fault) })
	}
	return true
}

// stakes draws the limits of a queue.
func (d *drawer) stakes(name string) string {
	x := d.contended
	s := "capability - guarantee -"
	if name == api.RootQueue {
		if d.capped {
			s = fmt.Sprintf("capability cpu=%d guarantee -", 8+x.below(12))
		}
		s += " preempts " + []string{"yes", "yes", "yes", "no"}[x.below(4)]
		s += fmt.Sprintf(" runtime %ds delay %ds", []int{0, 0, 2, 6}[x.below(4)], []int{0, 1, 3}[x.below(3)])
	} else if named := x.below(8); slices.Contains(leafNames, name) && named > 0 || named > 5 { // inner queues deserve what their children do
		s += fmt.Sprintf(" deserved cpu=%d", 2+x.below(5))
	}
	if x.below(4) == 0 {
		s += fmt.Sprintf(" weight %d", x.below(4))
	}
	switch x.below(16) {
	case 0:
		s += " reclaim never"
	case 1, 2:
		s += " reclaim fair"
	case 3:
		s += " kept yes"
	case 4, 5:
		s += fmt.Sprintf(" runtime %ds delay %ds", x.below(10), x.below(4))
	}
	return s
}

// every does something again and again until the world is calm.
func (d *drawer) every(from, to time.Duration, do func()) {
	w := d.w
	w.outside(d.between(from, to), func() {
		if !w.calm {
			do()
			d.every(from, to, do)
		}
	})
}

var contentions = []chance{{"gang", 16}, {"again", 24}, {"single", 4}, {"done", 8}, {"pod done", 2}, {"clean up", 6}, {"limits", 1}, {"give up", 4}, {"delete pod", 2}, {"least", 1}}

// contend does one thing that users, controllers or admins do.
func (d *drawer) contend(x *die) {
	w, a := d.w, d.w.api
	if !w.now.Before(d.until) { // others have more to do than they deserve, and then these again
		d.until = w.now.Add(time.Duration(4+x.below(12)) * time.Second)
		d.hungry = []string{leafNames[x.below(len(leafNames))], leafNames[x.below(len(leafNames))]}
	}
	leaf := d.hungry[x.below(2)]
	switch d.draw(d.acts) {
	case "gang":
		name := fmt.Sprintf("g%d", x.below(16))
		if a.groups.objects["ns/"+name].Object == nil {
			least := 1 + x.below(3)
			if d.elastic != nil {
				least = 1 + x.below(2)
			}
			high := ""
			if x.below(2) == 0 {
				high = " high"
			}
			d.say("podgroup %s queue %s least %d%s", name, leaf, least, high)
			d.again(name)
		}
	case "give up": // a gang that waits where there is less to do by now
		if g := d.aGroup(); g != nil && !slices.Contains(d.hungry, g.Spec.Queue) && !slices.ContainsFunc(d.podsOf(g.Name), running) {
			d.say("delete-podgroup %s", g.Name)
			for _, p := range d.podsOf(g.Name) {
				d.say("delete %s", p.Name)
			}
		}
	case "again":
		if g := d.aGroup(); g != nil {
			d.again(g.Name)
		}
	case "single":
		d.pod(fmt.Sprintf("single%d", x.below(8)), member{}, leaf)
	case "done": // a gang, and it is cleaned up
		p := d.aPod(running)
		if p == nil || groupNamed(p) == "" {
			return
		}
		name := groupNamed(p)
		if x.below(2) == 0 { // else they take a while to leave
			for _, p := range d.podsOf(name) {
				d.say("finish %s %s", p.Name, corev1.PodSucceeded)
			}
		}
		d.say("delete-podgroup %s", name)
		for _, p := range d.podsOf(name) {
			d.say("delete %s", p.Name)
		}
	case "pod done":
		if p := d.aPod(running); p != nil {
			d.say("finish %s %s", p.Name, corev1.PodSucceeded)
		}
	case "clean up":
		if p := d.aPod(finished); p != nil {
			d.say("delete %s", p.Name)
		}
	case "limits":
		name := append([]string{api.RootQueue}, queueNames...)[x.below(1+len(queueNames))]
		if x.below(2) == 0 { // of its own, or of the others
			name = leafNames[x.below(len(leafNames))]
		}
		if a.queue(name) != nil {
			d.say("limits %s %s", name, d.limitsOf(name))
		}
	case "delete pod":
		if p := d.aPod(ours); p != nil {
			d.say("delete %s", p.Name)
		}
	case "least":
		if g := d.aGroup(); g != nil {
			d.say("least %s %d", g.Name, 1+x.below(4))
		}
	}
}

// again makes the pods of a gang that are missing, as a controller does.
func (d *drawer) again(name string) {
	g := d.w.api.PodGroup("ns", name)
	pods := int(g.Spec.SchedulingPolicy.Gang.MinCount)
	if d.elastic != nil {
		pods += 1 + int(api.BucketOf(name))%5
	}
	staying := 0
	for _, p := range d.podsOf(name) {
		if p.DeletionTimestamp == nil && !finished(p) {
			staying++
		}
	}
	for i := 0; staying < pods && i < 3*pods; i++ { // another one for each that leaves
		if name := fmt.Sprintf("%s-%d", name, i); d.w.api.pod("ns", name) == nil {
			d.pod(name, member{group: g.Name}, "")
			staying++
		}
	}
}

// aim draws what goes wrong just after a claim was written: to those who go on with it, or to what it rests on.
func (d *drawer) aim(x *die, r *wire.ReservationRecord) {
	w := d.w
	if w.calm {
		return
	}
	for range x.below(4) {
		d.aimOne(x, r)
	}
}

func (d *drawer) aimOne(x *die, r *wire.ReservationRecord) {
	w := d.w
	table := w.store.table()
	var at []api.Incarnation
	for _, c := range w.coords {
		if c.leads() != nil {
			at = append(at, c.inc, c.inc)
		}
	}
	at = append(at, table.OwnerOf(r.Gang.Queue))
	victims := map[string]bool{}
	for _, v := range r.Claim.Victims {
		at = append(at, table.OwnerOf(v.Gang.Queue))
		victims[v.Gang.Uid] = true
	}
	bound := w.load.pods(func(p *corev1.Pod) bool { return running(p) && victims[w.check.bound[string(p.UID)]] })
	for _, p := range bound {
		at = append(at, table.OwnerOf(p.Spec.NodeName))
	}
	soon := time.Duration(x.below(50)) * time.Millisecond
	if x.below(2) == 0 {
		soon = time.Duration(x.below(6000)) * time.Millisecond
	}
	who, other := at[x.below(len(at))], at[x.below(len(at))]
	lasts := time.Duration(100+x.below(6000)) * time.Millisecond
	kind := x.below(14)
	w.outside(soon, func() {
		if w.calm {
			return
		}
		switch kind {
		case 0, 1, 2, 3:
			d.say("crash %s", who)
		case 4:
			d.say("fuse %s %d", who, 1+x.below(6))
		case 5:
			d.say("pause %s %s", who, lasts)
		case 6:
			if who != other {
				d.say("cut %s %s %s", who, other, lasts)
			}
		case 7:
			if who != other {
				d.say("lag %s %s %s", who, other, lasts)
			}
		case 8: // a victim, or a pod of one, ends by itself
			if len(bound) > 0 {
				d.say("finish %s %s", bound[x.below(len(bound))].Name, corev1.PodSucceeded)
			}
		case 9: // the claimant changes
			d.say("least %s %d", r.Gang.Name, 1+x.below(4))
		case 10:
			if pods := d.podsOf(r.Gang.Name); len(pods) > 0 {
				d.say("delete %s", pods[x.below(len(pods))].Name)
			}
		case 12: // a victim that would lose single pods loses others, too
			for _, p := range bound {
				if x.below(3) > 0 {
					d.say("delete %s", p.Name)
				}
			}
		case 13: // or needs more
			if v := r.Claim.Victims; len(v) > 0 {
				if name := w.check.nameOf(v[0].Gang.Uid); name != "" {
					d.say("least %s %d", name, 2+x.below(4))
				}
			}
		case 11:
			name := r.Gang.Queue
			if v := r.Claim.Victims; len(v) > 0 && x.below(2) == 0 {
				name = v[0].Gang.Queue
			}
			if w.api.queue(name) != nil && name != api.DefaultQueue {
				d.say("limits %s %s", name, d.limitsOf(name))
			}
		}
	})
}

// Lives: in one seed of four, gangs live more than once. Jobs of unlike pods start, are suspended and resumed,
// restart while their old pods still terminate, lose single pods, fail and leave their failed pods behind; their
// PodGroups are replaced under running pods. Single pods wait beside them for whatever becomes free. Controllers make
// again what is missing. In between, nobody but controllers changes anything for a while, and then it is judged who
// waits and who stands in part (claims.go).
//
// The cluster is small: what is given back by one is what another waits for.
//
// In one of three of these, policies refuse writes for good: Bindings of a job, of one of its pods, of a single pod, on
// one node, or every other one; evictions; statuses and conditions. Whom they refuse must leave room and quota to
// others.

// job is what a controller keeps up.
type job struct {
	name, queue string
	high        string // " high" if its priority is
	least       int
	shapes      []int // of its pods
	on          bool
	anew        bool // each pod gets a name of its own, as those of a Job do, and not those of a StatefulSet
	serial      int
	pods        []string      // the last that was made for each
	done        []bool        // it has succeeded, and is not made again
	lag         time.Duration // of its controller
}

// lives draws whether the world is one of lives, and begins it if so.
func (d *drawer) lives() bool {
	w := d.w
	x := w.newDie("lives")
	if !w.cfg.Progress || x.below(4) > 0 {
		return false
	}
	d.say("lives")
	d.say("earmarks 5s 5s") // or who fits would wait for their end
	d.say("mishaps %d", []int{0, 0, 1}[x.below(3)])
	d.say("gather %s", []string{"0s 0s", "7ms 3ms", "50ms 25ms"}[x.below(3)])
	for _, name := range []string{"n1", "n3", "n4", "n5", "l1", "l2"} {
		d.say("remove-node %s 1s", name)
	}
	y := w.newDie("policies")
	if y.below(3) > 0 {
		y = nil
	}
	stakes, z := x.below(2) == 0, w.newDie("who may be evicted")
	l := &living{drawer: d, x: x}
	if z.below(2) == 0 {
		l.high = z
		limits := "capability - guarantee - preempts yes runtime 0s delay 1s repair 20s"
		if z.below(2) == 0 {
			limits += " stale 10s"
		}
		w.outside(3*time.Second, func() { d.say("limits %s %s", api.RootQueue, limits) }) // the coordinator makes root
	}
	fair := z.below(3) == 0
	for _, name := range queueNames {
		limits := "capability - guarantee -"
		if x.below(4) == 0 {
			limits = fmt.Sprintf("capability cpu=%d guarantee -", 3+x.below(8))
		}
		if stakes && slices.Contains(leafNames, name) {
			limits += fmt.Sprintf(" deserved cpu=%d runtime 0s delay 1s", x.below(8))
		}
		if fair && !slices.Contains(leafNames, name) {
			limits += " reclaim fair runtime 0s delay 1s"
		}
		d.say("queue %s %s", name, limits)
	}
	for i := range 1 + x.below(3) {
		d.say("shard s%d", i)
	}
	l.policies, l.crashes = y, !w.cfg.Calm && x.below(2) == 0
	w.outside(4*time.Second, func() { l.phase(4) })
	return true
}

// living is the drawer of such a world.
type living struct {
	*drawer
	x        *die
	policies *die // there are some, nil for none
	high     *die // some jobs have a high priority, nil for none
	jobs     []*job
	crashes  bool
	resting  bool
	singles  int
}

// govern has a policy refuse something of a job, of one of its pods, or of a pod by itself, or not.
func (l *living) govern(prefix string, pods int) {
	y := l.policies
	if y == nil || y.below(3) > 0 {
		return
	}
	verb := []string{"binding", "binding", "binding", "eviction", "status"}[y.below(5)]
	if pods > 0 && y.below(2) == 0 {
		prefix += fmt.Sprintf("%d-", y.below(pods))
	}
	which := "all"
	if verb == "binding" {
		which = []string{"all", "all", "all", "half", "n0", "n2"}[y.below(6)]
	}
	l.say("policy %s %s %s", verb, prefix, which)
}

// phase has some things happen, and then nothing but what controllers do, so many times.
func (l *living) phase(n int) {
	w, x := l.w, l.x
	l.resting = false
	for _, name := range []string{"n0", "n2", "l0"} {
		if w.api.node(name) == nil {
			l.say("node %s", name)
		}
	}
	for range 4 + x.below(24) {
		w.outside(time.Duration(x.below(15000))*time.Millisecond, l.happen)
	}
	w.outside(16*time.Second, func() {
		if l.resting = true; l.policies != nil {
			l.say("rests")
		}
		var judge func()
		judge = func() {
			l.say("judge")
			switch {
			case len(w.waits) > 0:
				w.outside(restAgain, judge)
			case n > 1:
				l.phase(n - 1)
			default:
				w.over = true
			}
		}
		w.outside(restFor, judge)
	})
}

// happen does one thing.
func (l *living) happen() {
	w, x := l.w, l.x
	if w.calm || l.resting {
		return
	}
	var j *job
	if len(l.jobs) > 0 {
		j = l.jobs[x.below(len(l.jobs))]
	}
	what := x.below(40)
	switch {
	case j == nil || what < 7:
		l.newJob()
	case what < 14:
		name := fmt.Sprintf("single%d", l.singles)
		l.singles++
		l.govern(name, 0)
		l.say("pod %s shape %d queue %s", name, 1+x.below(6), l.leaf())
	case what < 19: // it ends
		if p := l.aPod(func(p *corev1.Pod) bool { return running(p) && groupNamed(p) == "" }); p != nil {
			l.say("finish %s %s", p.Name, corev1.PodSucceeded)
		}
	case what < 22: // suspended, or scaled to 0
		j.on = false
		for _, p := range l.podsOf(j.name) {
			if !finished(p) {
				l.say("delete %s", p.Name)
			}
		}
	case what < 25:
		if !j.on {
			clear(j.done)
			j.on = true
		}
	case what < 29: // one is lost
		if p := l.aPodOf(j, running); p != nil {
			l.say("delete %s", p.Name)
		}
	case what < 31:
		if p := l.aPodOf(j, running); p != nil {
			l.say("finish %s %s", p.Name, corev1.PodFailed)
		}
	case what < 32:
		if p := l.aPodOf(j, running); p != nil {
			l.say("finish %s %s", p.Name, corev1.PodSucceeded)
		}
	case what < 35: // all fail, or are deleted, and are made again
		fail := x.below(2) == 0
		for _, p := range l.podsOf(j.name) {
			if fail && running(p) {
				l.say("finish %s %s", p.Name, corev1.PodFailed)
			} else if !fail {
				l.say("delete %s", p.Name)
			}
		}
	case what < 37: // the PodGroup is replaced under what runs
		if w.api.PodGroup("ns", j.name) != nil {
			l.say("delete-podgroup %s", j.name)
			l.say("podgroup %s queue %s least %d%s", j.name, j.queue, j.least, j.high)
		}
	case what < 38:
		j.least = 1 + x.below(len(j.shapes))
		l.say("least %s %d", j.name, j.least)
	case what < 39: // failed ones are cleaned up
		for _, p := range l.podsOf(j.name) {
			if finished(p) {
				l.say("delete %s", p.Name)
			}
		}
	case l.crashes && len(w.processes) > 0:
		l.say("crash %s", w.processes[x.below(len(w.processes))].inc)
	}
}

func (l *living) leaf() string { return leafNames[l.x.below(len(leafNames))] }

func (l *living) aPodOf(j *job, ok func(*corev1.Pod) bool) *corev1.Pod {
	pods := slices.DeleteFunc(l.podsOf(j.name), func(p *corev1.Pod) bool { return !ok(p) })
	if len(pods) == 0 {
		return nil
	}
	return pods[l.x.below(len(pods))]
}

func (l *living) newJob() {
	x := l.x
	if len(l.jobs) == 8 {
		return
	}
	j := &job{name: fmt.Sprintf("j%d", len(l.jobs)), queue: l.leaf(), on: true,
		anew: x.below(2) == 0, lag: time.Duration(20+x.below(3000)) * time.Millisecond}
	n, shape := 1+x.below(5), 1+x.below(shapes)
	for range n {
		if x.below(3) == 0 { // as a leader and its workers are
			shape = 1 + x.below(shapes)
		}
		j.shapes = append(j.shapes, shape)
	}
	if j.least = n; x.below(3) == 0 {
		j.least = 1 + x.below(n)
	}
	j.pods, j.done = make([]string, n), make([]bool, n)
	l.jobs = append(l.jobs, j)
	l.govern(j.name+"-", n)
	if l.high != nil && l.high.below(2) == 0 {
		j.high = " high"
	}
	l.say("podgroup %s queue %s least %d%s", j.name, j.queue, j.least, j.high)
	l.keepUp(j)
}

// keepUp is the controller of a job.
func (l *living) keepUp(j *job) {
	w := l.w
	if w.calm {
		return
	}
	if j.on {
		for i, name := range j.pods {
			p := w.api.pod("ns", name)
			if p != nil && p.Status.Phase == corev1.PodSucceeded {
				j.done[i] = true
			}
			switch {
			case j.done[i], p != nil && !finished(p) && p.DeletionTimestamp == nil:
				continue
			case j.anew || name == "":
				name = fmt.Sprintf("%s-%d-%d", j.name, i, j.serial)
				j.serial++
			case p != nil && p.DeletionTimestamp == nil:
				l.say("delete %s", name)
				continue
			case p != nil:
				continue
			}
			j.pods[i] = name
			l.say("pod %s group %s shape %d", name, j.name, j.shapes[i])
		}
	}
	w.outside(j.lag, func() { l.keepUp(j) })
}
