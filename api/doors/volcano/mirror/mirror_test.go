package mirror

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	bus "volcano.sh/apis/pkg/apis/bus/v1alpha1"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

// cluster is the Queues of both kinds, by name; its API server gives UIDs.
type cluster struct {
	theirs map[string]*volcanov1beta1.Queue
	ours   map[string]*v1beta1.Queue
	uids   int
}

func newCluster() *cluster {
	return &cluster{theirs: map[string]*volcanov1beta1.Queue{}, ours: map[string]*v1beta1.Queue{}}
}

func (c *cluster) uid() types.UID {
	c.uids++
	return types.UID(fmt.Sprint("uid-", c.uids))
}

// volcano makes a Queue of Volcano's.
func (c *cluster) volcano(name, parent, cpu string) *volcanov1beta1.Queue {
	q := &volcanov1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, UID: c.uid()}, Spec: volcanov1beta1.QueueSpec{Parent: parent}}
	if cpu != "" {
		q.Spec.Capability = corev1.ResourceList{"cpu": resource.MustParse(cpu)}
	}
	c.theirs[name] = q
	return q
}

func (c *cluster) basalt(name string) *v1beta1.Queue {
	c.ours[name] = &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: name, UID: c.uid()}}
	return c.ours[name]
}

func (c *cluster) plan() Plan {
	return Of(slices.Collect(maps.Values(c.theirs)), slices.Collect(maps.Values(c.ours)))
}

// carryOut does what a plan says.
func (c *cluster) carryOut(t *testing.T, p Plan) {
	t.Helper()
	for _, s := range p.Steps {
		seen := c.ours[s.Queue.Name]
		switch {
		case (seen == nil) != (s.Verb == Make):
			t.Fatalf("step %d of Queue %s, which is %v", s.Verb, s.Queue.Name, seen)
		case seen != nil && seen.UID != s.Queue.UID:
			t.Fatalf("step %d of Queue %s names another UID", s.Verb, s.Queue.Name)
		case seen != nil && !managed(seen) && !takenOver(seen):
			t.Fatalf("step %d of Queue %s, which is somebody else's", s.Verb, s.Queue.Name)
		case s.Verb == Delete && ownQueue(s.Queue.Name):
			t.Fatalf("Queue %s is deleted", s.Queue.Name)
		}
		switch s.Verb {
		case Make:
			c.ours[s.Queue.Name] = s.Queue.DeepCopy()
			c.ours[s.Queue.Name].UID = c.uid()
		case Set:
			c.ours[s.Queue.Name] = s.Queue.DeepCopy()
		case Delete:
			delete(c.ours, s.Queue.Name)
		}
	}
}

// converge carries out plans until there is nothing to do, and returns the last one's problems.
func (c *cluster) converge(t *testing.T) map[string]string {
	t.Helper()
	for range 4 {
		p := c.plan()
		if len(p.Steps) == 0 {
			return p.Problems
		}
		c.carryOut(t, p)
	}
	t.Fatalf("there is always something to do: %+v", c.plan().Steps)
	return nil
}

// shows is the Queues of Basalt's, in order: name, queue of Volcano's, CPUs, and whether it is closed.
func (c *cluster) shows() string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(c.ours)) {
		q := c.ours[name]
		text := name + "=" + q.Labels[api.LabelVolcanoQueue]
		if cpu, ok := q.Spec.Capability["cpu"]; ok {
			text += ":" + cpu.String()
		}
		if cpu, ok := q.Spec.Deserved["cpu"]; ok {
			text += " deserved " + cpu.String()
		}
		if q.Spec.Weight != nil {
			text += fmt.Sprint(" weight ", *q.Spec.Weight)
		}
		if q.Spec.Priority != 0 {
			text += fmt.Sprint(" priority ", q.Spec.Priority)
		}
		if r := q.Spec.Reclaimable; r != nil {
			text += fmt.Sprint(" reclaimable ", *r)
		}
		if q.Spec.PreemptionPolicy != "" {
			text += " preempts"
		}
		if q.Spec.Closed {
			text += " closed"
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

func TestMirror(t *testing.T) {
	for _, tt := range []struct {
		name     string
		cluster  func(*cluster)
		want     string
		problems map[string]string // name -> part of what is said
	}{
		{"a tree", func(c *cluster) {
			c.volcano("root", "", "")
			c.volcano("default", "root", "")
			c.volcano("research", "root", "100")
			c.volcano("train", "research", "40")
			c.volcano("flat", "", "7")
		}, "default=default, flat=flat:7, research=research:100, research.train=train:40, root=root", nil},
		{"shares", func(c *cluster) {
			cpu := func(n string) corev1.ResourceList {
				return corev1.ResourceList{"cpu": resource.MustParse(n), "count/pods": resource.MustParse("3")}
			}
			c.volcano("a", "", "9").Spec.Deserved = cpu("5")
			c.volcano("b", "", "9").Spec.Deserved = cpu("10")
			q := c.volcano("c", "", "9")
			q.Spec.Deserved, q.Spec.Guarantee.Resource, q.Spec.Weight = cpu("1"), cpu("2"), 1
			c.volcano("d", "", "").Spec.Deserved = cpu("1e2000000000")
			q = c.volcano("e", "", "9")
			q.Spec.Deserved, q.Spec.Weight, q.Spec.Priority = cpu("1e2000000000"), 70000, 4
		}, "a=a:9 deserved 5, b=b:9 deserved 9, c=c:9 deserved 2, d=d deserved 100e1999999998, e=e:9 deserved 100e1999999998 weight 65535 priority 4", nil},
		{"reclaimable", func(c *cluster) {
			c.volcano("a", "", "").Spec.Reclaimable = new(true)
			c.volcano("b", "", "").Spec.Reclaimable = new(false)
			back := c.volcano("c", "", "")
			back.Spec.Reclaimable = new(false)
			c.converge(t)
			c.ours["b"].Spec.PreemptionPolicy = v1beta1.PreemptLowerPriority
			back.Spec.Reclaimable = nil
		}, "a=a, b=b reclaimable false preempts, c=c", nil},
		{"Basalt's own Queues are taken over while they say nothing", func(c *cluster) {
			c.basalt("root")
			c.basalt("default").Spec.Closed = true
			c.volcano("root", "", "9")
			c.volcano("default", "root", "5")
		}, "default= closed, root=root:9", map[string]string{"default": "was not made from this one"}},
		{"a cycle, and those below it", func(c *cluster) {
			c.volcano("a", "b", "")
			c.volcano("b", "a", "")
			c.volcano("c", "b", "")
			c.volcano("self", "self", "")
			c.volcano("fine", "", "")
		}, "fine=fine", map[string]string{"a": "cycle", "b": "cycle", "c": "cycle", "self": "cycle"}},
		{"an ancestor that does not exist", func(c *cluster) {
			c.volcano("a", "gone", "")
			c.volcano("b", "a", "")
		}, "", map[string]string{"a": "gone does not exist", "b": "gone does not exist"}},
		{"names that no path can have", func(c *cluster) {
			c.volcano("a.b", "", "")
			c.volcano(strings.Repeat("a", 40), "", "")
			c.volcano(strings.Repeat("b", 40), strings.Repeat("a", 40), "")
			c.volcano("below", strings.Repeat("b", 40), "")
		}, strings.Repeat("a", 40) + "=" + strings.Repeat("a", 40), map[string]string{"a.b": "dot", strings.Repeat("b", 40): "81 characters", "below": "81 characters"}},
		{"a tree that is too deep", func(c *cluster) {
			for i := range 10 {
				c.volcano(fmt.Sprint("q", i), fmt.Sprint("q", i-1), "")
			}
			c.theirs["q0"].Spec.Parent = "root"
		}, "q0=q0, q0.q1=q1, q0.q1.q2=q2, q0.q1.q2.q3=q3, q0.q1.q2.q3.q4=q4, q0.q1.q2.q3.q4.q5=q5, q0.q1.q2.q3.q4.q5.q6=q6, q0.q1.q2.q3.q4.q5.q6.q7=q7",
			map[string]string{"q8": "9 levels", "q9": "9 levels"}},
		{"a Queue of somebody else's has the name", func(c *cluster) {
			c.basalt("team").Spec.Capability = corev1.ResourceList{"cpu": resource.MustParse("3")}
			c.volcano("team", "", "100")
			c.volcano("train", "team", "50")
		}, "team=:3, team.train=train:50", map[string]string{"team": "label it scheduling.basalt.dev/volcano-queue=team"}},
		{"a Queue of somebody else's stands for one", func(c *cluster) {
			c.basalt("own.path").Labels = map[string]string{api.LabelVolcanoQueue: "team"}
			c.volcano("team", "", "100")
		}, "own.path=team", nil},
		{"keys of a ResourceQuota limit nothing", func(c *cluster) {
			c.volcano("a", "", "5").Spec.Capability["requests.cpu"] = resource.MustParse("1")
			c.theirs["a"].Spec.Capability["count/pods"] = resource.MustParse("1")
		}, "a=a:5", nil},
		{"states", func(c *cluster) {
			c.volcano("a", "", "").Status.State = volcanov1beta1.QueueStateClosed
			c.volcano("b", "", "").Status.State = volcanov1beta1.QueueStateClosing
			c.volcano("c", "", "").Status.State = volcanov1beta1.QueueStateOpen
			c.volcano("d", "", "").Status.State = volcanov1beta1.QueueStateUnknown
		}, "a=a closed, b=b closed, c=c, d=d", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCluster()
			tt.cluster(c)
			problems := c.converge(t)
			if got := c.shows(); got != tt.want {
				t.Errorf("Queues %s, want %s", got, tt.want)
			}
			if len(problems) != len(tt.problems) {
				t.Errorf("problems %v, want %v", problems, tt.problems)
			}
			for name, part := range tt.problems {
				if !strings.Contains(problems[name], part) {
					t.Errorf("problem of %s: %q, want %q", name, problems[name], part)
				}
			}
		})
	}
}

// A Queue that moves to another parent has limits all the time, and one whose parent goes away admits nothing until it is back.
func TestMirrorFollows(t *testing.T) {
	c := newCluster()
	c.volcano("a", "", "")
	c.volcano("b", "", "")
	c.volcano("train", "a", "40")
	c.converge(t)
	c.ours["a.train"].Labels["mine"] = "kept"
	c.ours["a.train"].Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
	step := func(what, want string) {
		t.Helper()
		if p := c.plan(); len(p.Steps) > 0 {
			c.carryOut(t, p)
		}
		if got := c.shows(); got != want {
			t.Fatalf("%s: Queues %s, want %s", what, got, want)
		}
	}
	c.theirs["train"].Spec.Parent = "b"
	step("it has moved", "a=a, a.train=train:40, b=b, b.train=train:40")
	step("it is seen at the new place", "a=a, b=b, b.train=train:40")
	b := c.theirs["b"]
	delete(c.theirs, "b")
	step("its parent is gone", "a=a, b.train=train:40 closed")
	c.theirs["b"] = b
	step("its parent is back", "a=a, b=b, b.train=train:40")
	c.theirs["train"].Spec.Capability["cpu"] = resource.MustParse("41")
	c.ours["b.train"].Labels["mine"] = "kept"
	c.ours["b.train"].Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"team": "x"}}
	step("its limit was edited", "a=a, b=b, b.train=train:41")
	if q := c.ours["b.train"]; q.Labels["mine"] != "kept" || q.Spec.NamespaceSelector == nil {
		t.Errorf("what an administrator wrote is lost: %+v", q)
	}
	c.ours["b.train"].Spec.Capability = nil
	step("somebody edited the mirror", "a=a, b=b, b.train=train:41")
	c.basalt("c.train").Labels = map[string]string{api.LabelVolcanoQueue: "train"}
	step("an administrator's own stands for it", "a=a, b=b, c.train=train")
	delete(c.theirs, "train")
	step("it is gone, the administrator's Queue is not", "a=a, b=b, c.train=train")
	now := metav1.Now()
	c.ours["a"].DeletionTimestamp = &now
	c.theirs["a"].Spec.Capability = corev1.ResourceList{"cpu": resource.MustParse("1")}
	if p := c.plan(); len(p.Steps) != 0 {
		t.Errorf("a Queue that is being deleted is changed: %+v", p.Steps)
	}
}

// Whatever the Queues are and however they change, plans come to an end, touch nobody else's Queues, and leave no moment without limits
// for a queue that has a mirror and goes on being served.
func TestMirrorConverges(t *testing.T) {
	for seed := range 300 {
		r := rand.New(rand.NewPCG(uint64(seed), 1))
		c := newCluster()
		names := []string{"a", "b", "c", "d", "root", "default", "x.y"}
		parents := append(slices.Clone(names), "", "", "gone")
		for range 40 {
			switch name := names[r.IntN(len(names))]; r.IntN(6) {
			case 0, 1:
				c.volcano(name, parents[r.IntN(len(parents))], []string{"", "1", "2"}[r.IntN(3)])
			case 2:
				delete(c.theirs, name)
			case 3:
				if q := c.theirs[name]; q != nil {
					q.Spec.Parent = parents[r.IntN(len(parents))]
				}
			case 4:
				if q := c.theirs[name]; q != nil {
					q.Status.State = []volcanov1beta1.QueueState{volcanov1beta1.QueueStateOpen, volcanov1beta1.QueueStateClosed, "nonsense"}[r.IntN(3)]
				}
			case 5:
				if c.ours[name] == nil {
					q := c.basalt(name)
					if r.IntN(2) == 0 {
						q.Labels = map[string]string{api.LabelVolcanoQueue: names[r.IntN(len(names))]}
					}
				} else if !managed(c.ours[name]) {
					delete(c.ours, name)
				}
			}
			had := StandIns(slices.Collect(maps.Values(c.ours)))
			p := c.plan()
			c.carryOut(t, p)
			has := StandIns(slices.Collect(maps.Values(c.ours)))
			for name := range had {
				if c.theirs[name] != nil && has[name] == nil {
					t.Fatalf("seed %d: queue %s has lost its limits: %s", seed, name, c.shows())
				}
			}
		}
		problems := c.converge(t)
		has := StandIns(slices.Collect(maps.Values(c.ours)))
		for name, q := range c.theirs {
			switch {
			case problems[name] != "" && has[name] != nil && managed(has[name]) && !has[name].Spec.Closed:
				t.Fatalf("seed %d: queue %s is not served (%s), and its mirror admits", seed, name, problems[name])
			case problems[name] == "" && has[name] == nil:
				t.Fatalf("seed %d: queue %s has neither a mirror nor a problem: %s", seed, name, c.shows())
			case problems[name] == "" && managed(has[name]) && !sameAmounts(has[name].Spec.Capability, q.Spec.Capability):
				t.Fatalf("seed %d: queue %s has other limits: %s", seed, name, c.shows())
			}
		}
	}
}

func TestStatus(t *testing.T) {
	const open, closing, closed = volcanov1beta1.QueueStateOpen, volcanov1beta1.QueueStateClosing, volcanov1beta1.QueueStateClosed
	c := newCluster()
	q := c.volcano("team", "", "")
	other := c.volcano("other", "", "")
	made := time.Unix(1000, 0)
	command := func(name string, action bus.Action, uid types.UID) *bus.Command {
		made = made.Add(time.Second)
		return &bus.Command{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, CreationTimestamp: metav1.NewTime(made)}, Action: string(action),
			TargetObject: &metav1.OwnerReference{APIVersion: "scheduling.volcano.sh/v1beta1", Kind: "Queue", Name: "team", UID: uid}}
	}
	opens, closes, syncs := command("b", bus.OpenQueueAction, q.UID), command("a", bus.CloseQueueAction, ""), command("c", bus.SyncQueueAction, q.UID)
	nonsense := command("d", "Explode", q.UID)
	job := command("e", bus.CloseQueueAction, "")
	job.TargetObject.APIVersion, job.TargetObject.Kind = "batch.volcano.sh/v1alpha1", "Job"
	bare := command("f", bus.CloseQueueAction, "")
	bare.TargetObject = nil

	theirs := []*volcanov1beta1.Queue{q, other}
	got := For(theirs, []*bus.Command{command("g", bus.CloseQueueAction, "another"), job, bare, nonsense, syncs, closes, opens})
	if want := []*bus.Command{opens, closes, syncs, nonsense}; len(got) != 1 || !slices.Equal(got[q.UID], want) {
		t.Errorf("Commands %v, want %v for %s", got, want, q.UID)
	}

	charged := func(cpu string, gangs int32) *v1beta1.Queue {
		o := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{LabelManagedBy: ManagedBy}}, Status: &v1beta1.QueueStatus{}}
		if cpu != "" {
			o.Status.Charged = corev1.ResourceList{"cpu": resource.MustParse(cpu)}
		}
		o.Status.AdmittedGangs = gangs
		return o
	}
	own, ownClosed := charged("1", 1), charged("1", 1)
	own.Labels, ownClosed.Labels, ownClosed.Spec.Closed = nil, nil, true
	for _, tt := range []struct {
		now      volcanov1beta1.QueueState
		commands []*bus.Command
		standIn  *v1beta1.Queue
		want     volcanov1beta1.QueueState
	}{
		{"", nil, nil, open},
		{"Unknown", nil, charged("1", 1), open},
		{open, nil, charged("1", 1), open},
		{open, []*bus.Command{closes}, charged("1", 1), closing},
		{open, []*bus.Command{closes}, charged("", 1), closing},
		{open, []*bus.Command{closes}, charged("", 0), closed},
		{open, []*bus.Command{closes}, nil, closed},
		{open, []*bus.Command{opens, closes}, charged("1", 1), closing},
		{open, []*bus.Command{closes, opens}, charged("1", 1), open},
		{closing, nil, charged("1", 1), closing},
		{closing, nil, charged("", 0), closed},
		{closed, nil, charged("1", 1), closed}, // another was bound by hand
		{closed, []*bus.Command{closes}, charged("1", 1), closed},
		{closed, []*bus.Command{opens}, charged("", 0), open},
		{open, []*bus.Command{syncs, nonsense}, nil, open},
		{open, []*bus.Command{closes}, own, open}, // somebody else's
		{closed, nil, own, open},
		{open, []*bus.Command{opens}, ownClosed, closing},
	} {
		q.Status.State = tt.now
		s := StatusOf(q, tt.standIn, tt.commands)
		if s.State != tt.want {
			t.Errorf("%q with %d Commands becomes %q, want %q", tt.now, len(tt.commands), s.State, tt.want)
		}
		if o := tt.standIn; o != nil {
			if before := s.InForce(o); before == (tt.want != open && !o.Spec.Closed) {
				t.Errorf("%q is in force: %v", tt.want, before)
			}
		}
		q.Status.State, q.Status.Allocated = s.State, s.Allocated
		if !s.Shown(q) {
			t.Errorf("%+v is not shown by itself", s)
		}
		q.Status.Allocated = corev1.ResourceList{"cpu": resource.MustParse("17")}
		if s.Shown(q) {
			t.Errorf("%+v is shown by another", s)
		}
	}
}
