package intake

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// cluster is Objects, and the pods that its tests made.
type cluster struct {
	*Objects
	pods  map[string]*Entry
	clock time.Time
}

func newCluster() *cluster {
	return &cluster{Objects: New(), pods: map[string]*Entry{}, clock: time.Unix(1000, 0)}
}

func (c *cluster) podGroup(uid, name, queue string) *Group {
	seen := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(uid)}}
	seen.Spec.Queue, seen.Spec.SchedulingPolicy.Gang.MinCount = queue, 2
	g, _, _ := c.See(c.clock, seen, nil)
	return g
}

// volcanoGroup is podGroup, of Volcano's kind.
func (c *cluster) volcanoGroup(uid, name, queue string) *Group {
	seen := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(uid)}}
	seen.Spec.Queue, seen.Spec.SchedulingPolicy.Gang.MinCount = queue, 2
	g, _, _ := c.See(c.clock, seen, &api.ForeignGroup{Kind: api.VolcanoGroup})
	return g
}

func (c *cluster) pod(name, group, queue string) *Entry {
	c.clock = c.clock.Add(time.Second)
	e := &Entry{Pod: &api.Pod{Namespace: "a", Name: name, UID: name, Group: group, Queue: queue, Ours: true, Created: c.clock}}
	c.Add(e)
	c.pods[name] = e
	if g := c.Group(e.InGroup); g != nil {
		c.Cast(e, g)
	}
	return e
}

func TestQueue(t *testing.T) {
	for _, tt := range []struct {
		name, namespace, group string
		pods                   []string
		queue, mismatch        string
	}{
		{"of the PodGroup", "n", "g", []string{"", "g"}, "g", ""},
		{"of the PodGroup, and a pod names another one", "n", "g", []string{"", "p"}, "g", `pod a/p1 names queue "p" (label scheduling.basalt.dev/queue), PodGroup a/g is in queue "g"`},
		{"of the pods", "n", "", []string{"p", "p"}, "p", ""},
		{"of the namespace", "n", "", []string{"", ""}, "n", ""},
		{"of a namespace without pods", "n", "", nil, "n", ""},
		{"of no namespace's label", "", "", []string{""}, api.DefaultQueue, ""},
		{"of the pods and of the namespace, which agree", "n", "", []string{"", "n"}, "n", ""},
		{"of the namespace: the pods disagree", "n", "", []string{"p", "q"}, "n",
			`PodGroup a/g names no queue and its pods name different queues: a/p0 names "p", a/p1 names "q" (label scheduling.basalt.dev/queue)`},
		{"of the namespace: a pod disagrees with it", "n", "", []string{"", "q"}, "n",
			`PodGroup a/g names no queue and its pods name different queues: a/p0 names "n", a/p1 names "q" (label scheduling.basalt.dev/queue)`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster()
			g := c.podGroup("u", "g", tt.group)
			for i, queue := range tt.pods {
				c.pod(fmt.Sprintf("p%d", i), "g", queue)
			}
			if _, known, _ := c.GroupQueue(g); known != (tt.group != "") {
				t.Errorf("before its namespace is seen, its queue is known: %v", known)
			}
			c.SetNamespace("a", tt.namespace, true)
			queue, known, mismatch := c.GroupQueue(g)
			if queue != tt.queue || !known || mismatch != (tt.mismatch != "") {
				t.Errorf("queue %q, known %v, mismatch %v", queue, known, mismatch)
			}
			if mismatch && c.Mismatch(g) != tt.mismatch {
				t.Errorf("says %s, want %s", c.Mismatch(g), tt.mismatch)
			}
		})
	}
}

// Whoever follows what the calls return knows the queue of each PodGroup and pod at all times.
func TestWhomToAskAgain(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		c := newCluster()
		type answer struct {
			queue           string
			known, mismatch bool
		}
		shown, shownOf := map[*Group]answer{}, map[string]answer{} // of PodGroups and of pods
		least := map[*Group]int{}                                  // of implied groups
		askPods := func(uids ...string) {
			for _, uid := range uids {
				queue, known := c.PodQueue(c.pods[uid])
				shownOf[uid] = answer{queue: queue, known: known}
			}
		}
		ask := func(groups ...*Group) {
			for _, g := range groups {
				if g != nil {
					queue, known, mismatch := c.GroupQueue(g)
					shown[g] = answer{queue, known, mismatch}
				}
			}
		}
		either := func(of ...string) string { return of[random.IntN(len(of))] }
		implied := func(changed Implied) {
			for _, g := range changed {
				if g != nil && c.Exists(g) {
					least[g] = g.MinCount
					ask(g)
				} else if g != nil {
					delete(shown, g)
					delete(least, g)
				}
			}
		}
		vote := func(e *Entry) {
			if g := c.Group(e.InGroup); g != nil {
				ask(c.Cast(e, g))
			} else {
				ask(c.Withdraw(e))
			}
		}
		for step := range 100 {
			switch random.IntN(8) {
			case 0:
				groups, pods := c.SetNamespace("a", either("", "n"), random.IntN(4) > 0)
				ask(groups...)
				askPods(pods...)
			case 6:
				name := either("q", "s", "t")
				groups, pods := c.SeeQueue(name, name, either("", "q", "r"), random.IntN(3) == 0)
				ask(groups...)
				askPods(pods...)
			case 7:
				name := either("q", "s", "t")
				groups, pods := c.DropQueue(name, either(name, "another"))
				ask(groups...)
				askPods(pods...)
			case 1:
				n := either("g", "h")
				key, make := Name{Namespace: "a", Name: n}, c.podGroup
				if n == "h" {
					key.Kind, make = api.VolcanoGroup, c.volcanoGroup
				}
				if g := c.Group(key); g != nil && random.IntN(2) == 0 {
					c.Drop(g)
					delete(shown, g)
					for _, uid := range c.Naming(g.Name) {
						vote(c.pods[uid])
						askPods(uid)
					}
					continue
				}
				uid := fmt.Sprint(n, step)
				if g := c.Group(key); g != nil {
					uid = g.UID
				}
				g := make(uid, n, either("", "", "q", "r"))
				ask(g)
				for _, uid := range c.Naming(g.Name) {
					vote(c.pods[uid])
				}
			case 2:
				name := either("1", "2", "3")
				if e := c.pods[name]; e != nil {
					lost, changed := c.Remove(e)
					ask(lost)
					implied(changed)
					delete(c.pods, name)
					delete(shownOf, name)
				}
			default:
				name := either("1", "2", "3")
				e := c.pods[name]
				if e == nil {
					e = &Entry{Pod: &api.Pod{Namespace: "a", Name: name, UID: name, Ours: true}}
					c.pods[name] = e
					implied(c.Add(e))
				}
				seen := *e.Pod
				seen.Group, seen.Queue, seen.VolcanoQueue, seen.GroupKind, seen.GroupMin = either("", "g", "h", "i/1"), either("", "q", "r"), "", api.BasaltGroup, 0
				switch seen.Group {
				case "h":
					seen.GroupKind = api.VolcanoGroup
				case "i/1":
					seen.GroupKind, seen.GroupMin = api.ImpliedGroup, random.IntN(4)
				}
				if seen.Group == "" && seen.Queue == "" {
					seen.VolcanoQueue = either("", "q", "r")
				}
				e.Pod = &seen
				_, changed := c.Relabel(e)
				vote(e)
				implied(changed)
				askPods(name)
			}
			if err := c.Check(); err != nil {
				t.Fatalf("seed %d, step %d: %v", seed, step, err)
			}
			for _, g := range c.Groups() {
				queue, known, mismatch := c.GroupQueue(g)
				if now := (answer{queue, known, mismatch}); shown[g] != now {
					t.Fatalf("seed %d, step %d: PodGroup %s: %+v, and nobody was told: %+v", seed, step, g.Name, now, shown[g])
				}
			}
			for _, g := range c.Groups() {
				if g.Name.Kind == api.ImpliedGroup && least[g] != g.MinCount {
					t.Fatalf("seed %d, step %d: gang %s needs %d pods, and nobody was told: %d", seed, step, g.Name, g.MinCount, least[g])
				}
			}
			for uid, e := range c.pods {
				queue, known := c.PodQueue(e)
				if now := (answer{queue: queue, known: known}); c.Group(e.InGroup) == nil && shownOf[uid] != now {
					t.Fatalf("seed %d, step %d: pod %s: %+v, and nobody was told: %+v", seed, step, uid, now, shownOf[uid])
				}
			}
		}
	}
}

// A namespace names the pods that ask it for their queue, and no others.
func TestNamespaceNamesPods(t *testing.T) {
	c := newCluster()
	c.podGroup("u", "g", "")
	c.pod("alone", "", "")
	c.pod("alone in a queue", "", "q")
	c.pod("in a group", "g", "")
	c.pod("in a group that is missing", "h", "")
	groups, pods := c.SetNamespace("a", "n", true)
	if len(groups) != 1 || fmt.Sprint(pods) != "[alone in a group that is missing]" {
		t.Errorf("%d PodGroups, pods %v", len(groups), pods)
	}
	if groups, pods = c.SetNamespace("a", "n", true); groups != nil || pods != nil {
		t.Error("the same again names somebody")
	}
	if groups, pods = c.SetNamespace("b", "n", true); groups != nil || pods != nil {
		t.Error("another namespace names somebody")
	}
}

// A queue of Volcano's is charged as the Queue that stands for it: of several, the first that is not being deleted.
func TestVolcanoQueue(t *testing.T) {
	c := newCluster()
	g := c.volcanoGroup("u", "g", "train")
	other, own := c.volcanoGroup("v", "h", "other"), c.podGroup("w", "own", "train")
	c.pods["p"] = &Entry{Pod: &api.Pod{Namespace: "a", Name: "p", UID: "p", Ours: true, VolcanoQueue: "train"}}
	c.Add(c.pods["p"])
	member := c.pod("m", "g", "research.train")
	member.GroupKind = api.VolcanoGroup
	c.Relabel(member)
	c.Cast(member, g)
	for i, step := range []struct {
		what, queue string
		mismatch    bool
		do          func() ([]*Group, []string)
	}{
		{"a Queue stands for another", "train", true, func() ([]*Group, []string) { return c.SeeQueue("x", "1", "y", false) }},
		{"two stand for it", "research.train", false, func() ([]*Group, []string) { return c.SeeQueue("research.train", "2", "train", false) }},
		{"a later one", "research.train", false, func() ([]*Group, []string) { return c.SeeQueue("z.train", "3", "train", false) }},
		{"an earlier one that is being deleted", "research.train", false, func() ([]*Group, []string) { return c.SeeQueue("a.train", "4", "train", true) }},
		{"the first is being deleted", "z.train", true, func() ([]*Group, []string) { return c.SeeQueue("research.train", "2", "train", true) }},
		{"a namesake of it that is gone", "z.train", true, func() ([]*Group, []string) { return c.DropQueue("z.train", "another") }},
		{"it loses its label", "a.train", true, func() ([]*Group, []string) { return c.SeeQueue("z.train", "3", "", false) }},
		{"it is gone", "research.train", false, func() ([]*Group, []string) { return c.DropQueue("a.train", "4") }},
		{"all are gone", "train", true, func() ([]*Group, []string) { return c.DropQueue("research.train", "2") }},
	} {
		before, _, _ := c.GroupQueue(g)
		groups, pods := step.do()
		queue, _, mismatch := c.GroupQueue(g)
		alone, _ := c.PodQueue(c.pods["p"])
		if queue != step.queue || alone != step.queue || mismatch != step.mismatch {
			t.Errorf("%d, %s: queue %s, of the pod %s, mismatch %v, want %s, %v", i, step.what, queue, alone, mismatch, step.queue, step.mismatch)
		}
		if told := len(groups) == 1 && groups[0] == g && fmt.Sprint(pods) == "[p]"; told != (before != queue) || !told && len(groups)+len(pods) > 0 {
			t.Errorf("%d, %s: %d PodGroups and pods %v are told", i, step.what, len(groups), pods)
		}
		for g, want := range map[*Group]string{other: "other", own: "train"} {
			if queue, _, _ := c.GroupQueue(g); queue != want {
				t.Errorf("%d, %s: PodGroup %s is in queue %s", i, step.what, g.Name, queue)
			}
		}
	}
}

// A group that only its pods describe exists from the first to the last of them, under one UID, and needs as many as any of them says.
func TestImplied(t *testing.T) {
	c := newCluster()
	n := Name{Namespace: "a", Name: "job/u", Kind: api.ImpliedGroup}
	pod := func(name string, least int) *Entry {
		return &Entry{Pod: &api.Pod{Namespace: "a", Name: name, UID: name, Group: n.Name, GroupKind: n.Kind, GroupMin: least, Ours: true}}
	}
	says := func(e *Entry, least int) Implied {
		seen := *e.Pod
		seen.GroupMin, e.Pod = least, &seen
		_, changed := c.Relabel(e)
		return changed
	}
	p, q := pod("p", 2), pod("q", 0)
	var uid string
	for i, step := range []struct {
		what string
		do   func() Implied
		told bool
		want int // the minimum, 0 for no group
	}{
		{"its first pod", func() Implied { return c.Add(p) }, true, 2},
		{"one that does not say a minimum", func() Implied { return c.Add(q) }, false, 2},
		{"which says one then", func() Implied { return says(q, 5) }, true, 5},
		{"the other says less", func() Implied { return says(p, 1) }, false, 5},
		{"the one that said most is gone", func() Implied { _, changed := c.Remove(q); return changed }, true, 1},
		{"the last says another one", func() Implied { return says(p, 3) }, true, 3},
		{"the last is gone", func() Implied { _, changed := c.Remove(p); return changed }, true, 0},
		{"it comes again", func() Implied { return c.Add(p) }, true, 3},
	} {
		told := step.do() != Implied{}
		g := c.Group(n)
		switch {
		case told != step.told || (g != nil) != (step.want > 0) || g != nil && g.MinCount != step.want:
			t.Errorf("%d, %s: told %v, group %+v, want %v, minimum %d", i, step.what, told, g, step.told, step.want)
		case g != nil && uid != "" && g.UID != uid:
			t.Errorf("%d, %s: its UID is %s, it was %s", i, step.what, g.UID, uid)
		case g != nil:
			uid = g.UID
		}
		if err := c.Check(); err != nil {
			t.Errorf("%d, %s: %v", i, step.what, err)
		}
	}
	if n.String() != "a/job" {
		t.Errorf("it is shown as %s", n)
	}
}
