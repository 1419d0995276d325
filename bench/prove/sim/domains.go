package sim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
)

// Constraints over topology domains, in runs with the line domains: nodes have a rack beside their zone, every pod is of one of three apps,
// and the pods of some gangs are spread, exclude an app from their domain, stay together or follow an app. Gangs of different queues, and so
// of different homes, are of one app. Tenants change the apps of pods. ordered.go judges what comes of it.

const (
	zone = "zone"
	rack = "rack"
)

// racks of nodes; l2 is in none.
var racks = map[string]string{"n0": "r0", "l0": "r0", "n1": "r1", "l1": "r1", "n2": "r2", "n3": "r2", "n4": "r3", "n5": "r3"}

// spreading draws, in some seeds, whether pods have constraints over domains, before there are nodes or pods.
func (d *drawer) spreading(die *die) {
	if die.below(2) == 0 {
		d.fixed = die.below(3) > 0
		d.say("domains")
		d.tag(0)
		if d.fixed && !d.w.cfg.Calm {
			d.rush(0)
		}
	}
}

// rush has gangs and pods of one app, which are for the same domains, begin at once, every few seconds: there is room for them, their pods
// were seen, and their PodGroups come while some shards see pods, or the log of intents, late, or while what they write or bind takes long.
// So homes and nodes judge what they do not see, and what others do meanwhile.
func (d *drawer) rush(i int) {
	w, l := d.w, &d.w.load
	die := w.newDie(fmt.Sprint("rush ", i))
	between := func(from, to time.Duration) time.Duration { return from + time.Duration(die.below(int(to-from))) }
	then := func(from, to time.Duration, do func()) {
		w.outside(between(from, to), func() {
			if !w.calm {
				do()
			}
		})
	}
	of := func(from []*corev1.Pod) *corev1.Pod {
		if len(from) == 0 {
			return nil
		}
		return from[die.below(len(from))]
	}
	then(2*time.Second, 8*time.Second, func() {
		app := apps[die.below(len(apps))]
		concerned := func(key string) bool {
			b := l.bond(key)
			return l.app(key) == app || b.kind != free && b.app == app
		}
		for _, p := range l.pods(func(p *corev1.Pod) bool {
			return running(p) && (p.Labels["app"] == app || concerned(cmp.Or(groupNamed(p), p.Name)))
		}) {
			d.say("finish %s %s", p.Name, corev1.PodSucceeded)
		}
		plain := die.below(3) == 0 // gangs that require nothing, and single pods that exclude them
		least := map[string]int{}
		var names, singles []string
		for n, first := 0, die.below(32); n < 32 && len(names) < 5; n++ {
			name := fmt.Sprintf("g%d", 16+(first+n)%32)
			if w.api.groups.objects["ns/"+name].Object != nil || !concerned(name) || plain && l.bond(name).kind != free || !plain && l.bond(name).kind == free && die.below(2) > 0 {
				continue
			}
			names = append(names, name)
			if least[name] = min(4, l.most(name)); die.below(2) == 0 {
				least[name] = 1 + die.below(least[name])
			}
			for i := range least[name] + die.below(2) {
				d.pod(fmt.Sprintf("%s-%d", name, i), member{group: name}, "")
			}
		}
		few := [2]int{} // of those that exclude others, and of those that do not
		for n, first := 0, die.below(64); n < 64; n++ {
			name, kind := fmt.Sprintf("rush%d", (first+n)%64), 0
			if l.bond(name).kind != exclude {
				kind = 1
			}
			if concerned(name) && few[kind] < 2 && !(plain && kind == 1) && w.api.pod("ns", name) == nil {
				few[kind]++
				singles = append(singles, name)
			}
		}
		then(1200*time.Millisecond, 2500*time.Millisecond, func() {
			lasts := between(2*time.Second, 8*time.Second)
			read := die.below(3) == 0 // the log is read anew, after some rows were seen
			for _, x := range w.shards {
				if die.below(2) == 0 {
					d.say("stall %s %s %s", x.inc, w.api.pods.kind, lasts)
					if read { // and a list of pods takes long
						then(200*time.Millisecond, 1200*time.Millisecond, func() {
							if n := slices.Index(x.followers, x.log); n >= 0 {
								d.say("stall-store %s %d %s", x.inc, n, lasts/2)
								d.say("%s %s %s", []string{"slow-api", "no-api"}[die.below(2)], x.inc, lasts)
							}
						})
					}
				} else if n := slices.Index(x.followers, x.log); n >= 0 && die.below(3) == 0 {
					d.say("stall-store %s %d %s", x.inc, n, lasts/2)
				}
				switch die.below(6) {
				case 0:
					d.say("slow-api %s %s", x.inc, lasts)
				case 1, 2:
					d.say("slow-store %s %s", x.inc, lasts/2)
				}
			}
			if read {
				d.say("compact 0 %s", lasts)
			}
			soon := []time.Duration{time.Millisecond, 300 * time.Millisecond, 2 * time.Second}[die.below(3)]
			if read {
				soon = 2 * time.Second
			}
			wait := time.Duration(die.below(2)) * 200 * time.Millisecond // until pods that nobody had seen before are on their way
			for _, name := range names {
				then(wait, wait+soon, func() { d.group(name, leafNames[die.below(len(leafNames))], least[name]) })
			}
			for _, name := range singles {
				then(0, soon, func() { d.pod(name, member{}, leafNames[die.below(len(leafNames))]) })
			}
			for range die.below(3) {
				then(0, 2*time.Second, func() {
					if p := of(l.pods(l.underway)); p != nil && die.below(2) == 0 {
						d.say("delete %s", p.Name)
					} else if p != nil {
						d.say("annotate %s %d", p.Name, w.step)
					}
				})
			}
		})
		d.rush(i + 1)
	})
}

// tag has a tenant change the app of a pod, every few seconds.
func (d *drawer) tag(i int) {
	w := d.w
	die := w.newDie(fmt.Sprint("tag ", i))
	w.outside(time.Second+time.Duration(die.below(6000))*time.Millisecond, func() {
		if w.calm {
			return
		}
		all := w.load.pods(func(p *corev1.Pod) bool { return !finished(p) && p.DeletionTimestamp == nil })
		if underway := w.load.pods(w.load.underway); len(underway) > 0 && die.below(2) == 0 {
			all = underway
		}
		if len(all) > 0 {
			d.say("tag %s %s", all[die.below(len(all))].Name, apps[die.below(len(apps))])
		}
		d.tag(i + 1)
	})
}

// bond is what a pod requires of a domain.
type bond struct {
	kind     bondKind
	topology string
	app      string
	skew     int32
	domains  int32
	tenant   bool // the term selects the namespace by its label
}

type bondKind int

const (
	free bondKind = iota
	spread
	exclude
	join // pods of its own app
	follow
)

// bond returns what the pods of a gang, or a pod by itself, require: pods that controllers make again require the same.
func (l *workload) bond(key string) bond {
	die := l.w.newDie("bond " + key)
	kind := []bondKind{free, free, free, spread, spread, exclude, exclude, join, follow, follow}[die.below(10)]
	b := bond{kind: kind, topology: []string{zone, zone, rack}[die.below(3)], app: l.app(key), skew: 1 + int32(die.below(2)), tenant: die.below(4) == 0}
	if die.below(3) == 0 {
		b.domains = 2 + int32(die.below(2))
	}
	other := apps[die.below(len(apps))]
	switch kind {
	case spread, exclude:
		if die.below(4) == 0 {
			b.app = other
		}
	case follow:
		if b.app = other; other == l.app(key) {
			b.kind = join
		} else if l.repelled(key) == other { // it would have to go beside it and not beside it
			b.kind = free
		}
	}
	if !l.domains {
		b.kind = free
	}
	return b
}

// tie gives a pod its app, and what it requires.
func (l *workload) tie(p *corev1.Pod, key string) {
	if !l.domains {
		return
	}
	if p.Labels == nil {
		p.Labels = map[string]string{}
	}
	p.Labels["app"] = l.app(key)
	b := l.bond(key)
	if b.kind == free {
		return
	}
	of := &metav1.LabelSelector{MatchLabels: map[string]string{"app": b.app}}
	if b.kind == spread {
		c := corev1.TopologySpreadConstraint{MaxSkew: b.skew, TopologyKey: b.topology, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: of}
		if b.domains > 0 {
			c.MinDomains = &b.domains
		}
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{c}
		return
	}
	if p.Spec.Affinity == nil {
		p.Spec.Affinity = &corev1.Affinity{}
	}
	term := corev1.PodAffinityTerm{TopologyKey: b.topology, LabelSelector: of}
	if b.kind == exclude {
		if b.tenant {
			term.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "x"}}
		}
		if p.Spec.Affinity.PodAntiAffinity == nil {
			p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{}
		}
		all := &p.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution
		*all = append(*all, term)
		return
	}
	p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}
}

// mostTied is how many pods a gang of this name can have at once on an otherwise empty cluster, if it can have so many without its bond.
func (l *workload) mostTied(group string, most int) int {
	b := l.bond(group)
	kind := int(api.BucketOf(group)) / 4 % 6
	gpus, zoneB := kind == 0, kind == 2
	values := map[string]bool{}
	for i := range 6 {
		n := shape(fmt.Sprintf("n%d", i))
		if !(gpus && i > 1 || kind == 1 && n.Labels[zone] != "a" || zoneB && n.Labels[zone] != "b") {
			values[map[string]string{zone: n.Labels[zone], rack: racks[n.Name]}[b.topology]] = true
		}
	}
	alone := l.repels && l.repelled(group) == l.app(group) // one on each node
	switch {
	case b.kind == exclude && b.app == l.app(group):
		return min(most, len(values))
	case b.kind == spread && b.app == l.app(group) && gpus: // domains without a device count, and stay empty
		most = min(most, int(b.skew)*len(values))
		if alone {
			most = min(most, 2)
		}
	case b.kind == spread && b.app == l.app(group) && int(b.domains) > len(values):
		most = min(most, int(b.skew)*len(values))
		fallthrough
	case b.kind == spread:
		if alone {
			most = min(most, 4)
		}
	case b.kind == join || b.kind == follow:
		most = min(most, 4)
		if alone {
			most = min(most, 2)
		}
		if gpus && alone && b.topology == rack {
			most = 1
		}
	}
	return most
}

// provide makes a pod of an app that waiting pods follow in each rack, and reports of which app. Apps take turns: pods of one gang may
// follow the app of another gang that follows theirs, both of them one on each node, and what is provided for one keeps the other out.
func (l *workload) provide() (provided string) {
	awaited := map[string]bool{}
	for _, p := range l.pods(func(p *corev1.Pod) bool { return ours(p) && p.Spec.NodeName == "" && p.DeletionTimestamp == nil }) {
		if a := p.Spec.Affinity; a != nil && a.PodAffinity != nil {
			if app := a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchLabels["app"]; app != p.Labels["app"] {
				awaited[app] = true
			}
		}
	}
	turns := slices.DeleteFunc(slices.Clone(apps), func(app string) bool { return !awaited[app] })
	if len(turns) == 0 {
		return ""
	}
	app := turns[int(l.w.now.Sub(l.w.start)/provideFor)%len(turns)]
	for r := range 4 {
		name := fmt.Sprintf("provided-%s-%d", app, r)
		if l.w.api.pod("ns", name) == nil {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Labels: map[string]string{"app": app, api.LabelQueue: "default"}}}
			p.Spec.SchedulerName = api.SchedulerName
			p.Spec.NodeSelector = map[string]string{rack: fmt.Sprintf("r%d", r)}
			p.Spec.Containers = []corev1.Container{{Name: "main", Resources: corev1.ResourceRequirements{Requests: list(map[string]string{"cpu": "100m"})}}}
			p.Status.Phase = corev1.PodPending
			l.w.api.create(l.w.api.pods, p)
			l.w.log("user: pod %s, which others follow", p.UID)
		}
	}
	return app
}

// provideFor is how long it is the turn of an app.
const provideFor = 90 * time.Second

// provides reports whether a pod is one that others wait for, and has not been for long.
func (l *workload) provides(p *corev1.Pod, provided string) bool {
	return len(p.Name) > 9 && p.Name[:9] == "provided-" && p.Labels["app"] == provided && l.w.now.Sub(l.w.check.landed[string(p.UID)]) < time.Minute
}

// label gives the nodes that there are their racks and cliques.
func (l *workload) label() {
	for _, name := range l.w.api.nodes.names() {
		next := *l.w.api.nodes.objects[name].Object.(*corev1.Node)
		next.Labels = maps.Clone(next.Labels)
		l.inRack(&next)
		l.w.api.put(l.w.api.nodes, &next)
	}
}

// inRack labels a node with its clique and its rack, or with the first one's rack when it is in another zone than it is meant to be.
func (l *workload) inRack(n *corev1.Node) {
	if c := l.cliqueNow(n.Name); l.together && c != "" {
		n.Labels[clique] = c
	}
	if !l.domains || racks[n.Name] == "" {
		return
	}
	n.Labels[rack] = racks[n.Name]
	if meant := shape(n.Name).Labels[zone]; n.Labels[zone] != meant {
		n.Labels[rack] = cmp.Or(racks[looseNodes[0]], "r0")
	}
}

// shaped is shape, with the node's rack.
func (l *workload) shaped(name string) *corev1.Node {
	n := shape(name)
	l.inRack(n)
	return n
}

// tagged changes the app of a pod.
func (l *workload) tagged(p *corev1.Pod, app string) {
	if p.Labels["app"] == app || !slices.Contains(apps, app) {
		return
	}
	l.w.log("user: pod %s is of app %s", p.UID, app)
	l.w.count("apps edited")
	if ours(p) {
		l.edited[string(p.UID)] = true
	}
	l.w.api.edit(p, func(p *corev1.Pod) {
		labels := map[string]string{"app": app}
		for k, v := range p.Labels {
			if k != "app" {
				labels[k] = v
			}
		}
		p.Labels = labels
	})
}
