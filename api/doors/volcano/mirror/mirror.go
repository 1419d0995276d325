// Package mirror makes Queues of scheduling.basalt.dev out of Volcano's, and keeps them so. Its functions are pure functions of the
// objects: what is to be done is carried out by the coordinator that leads.
//
// Volcano's Queues form a tree by spec.parent, and PodGroups name them without their ancestors. Those of Basalt are named by their
// path. So the Queue train, whose parent is research, is mirrored by the Queue research.train, which carries the label
// scheduling.basalt.dev/volcano-queue=train: home shards read from it where the gangs of train are charged.
//
// What is mirrored: capability, guarantee and deserved, but for the keys of a ResourceQuota in them, weight, priority, reclaimable, and status.state: a
// Queue that is Closed or Closing admits nothing. Of what is deserved, as much is mirrored as lies between guarantee and capability. What else a Queue says has no effect; `basalt migrate check` lists it.
// What only Basalt's Queues say, such as reclaimPolicy and preemptionPolicy, an administrator writes into the mirror, where it stays.
//
// A Queue has no mirror, and an event says why, when its ancestors form a cycle or one of them does not exist, when its name has a
// dot, when its path is too long for a Queue, or when that path is taken: Queues that somebody else made are never changed. A mirror
// that such a Queue had before is closed. Others are not affected. An administrator may put the label on a Queue of his own: it takes
// the place of the mirror.
//
// Invariants:
//   - Only Queues with the label app.kubernetes.io/managed-by=basalt-coordinator are changed or deleted; root and default, which Basalt
//     makes itself, are taken over while they say nothing, and never deleted.
//   - Limits are in force before and after a Queue moves to another parent: its old mirror goes when it has a new one.
package mirror

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	bus "volcano.sh/apis/pkg/apis/bus/v1alpha1"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/doors/volcano"
	"basalt.dev/basalt/api/v1beta1"
)

// The label of a Queue that the coordinator made.
const (
	LabelManagedBy = "app.kubernetes.io/managed-by"
	ManagedBy      = "basalt-coordinator"
)

// Step is something to be done to a Queue of scheduling.basalt.dev.
type Step struct {
	Verb  Verb
	Queue *v1beta1.Queue // as it is to be; with the UID and the version that was seen, but for Make
}

// Verb is what is to be done.
type Verb uint8

const (
	Make Verb = iota
	Set       // labels and what is mirrored; the rest is as it was seen
	Delete
)

// Plan is what is to be done, in order, and why Queues of Volcano have no mirror, by name.
type Plan struct {
	Steps    []Step
	Problems map[string]string
}

// Of returns what is to be done so that ours are as theirs say.
func Of(theirs []*volcanov1beta1.Queue, ours []*v1beta1.Queue) Plan {
	p := Plan{Problems: map[string]string{}}
	paths := tree(theirs, p.Problems)
	have := make(map[string]*v1beta1.Queue, len(ours))
	elsewhere := map[string]bool{} // names of Volcano's for which a Queue of somebody else's stands
	for _, o := range ours {
		have[o.Name] = o
		if !managed(o) {
			elsewhere[o.Labels[api.LabelVolcanoQueue]] = true
		}
	}
	exists, served, mirrored := map[string]bool{}, map[string]bool{}, map[string]bool{} // the last by path
	for _, q := range slices.SortedFunc(slices.Values(theirs), func(a, b *volcanov1beta1.Queue) int {
		return strings.Compare(paths[a.Name]+"/"+a.Name, paths[b.Name]+"/"+b.Name)
	}) {
		exists[q.Name] = true
		path := paths[q.Name]
		if path == "" || elsewhere[q.Name] {
			served[q.Name] = path != ""
			continue
		}
		switch o, want := have[path], want(q, path); {
		case o == nil:
			p.Steps = append(p.Steps, Step{Make, want})
		case !managed(o) && !takenOver(o):
			p.Problems[q.Name] = fmt.Sprintf("a Queue of scheduling.basalt.dev has the name %s and was not made from this one: the limits of that Queue are in force, not these. "+
				"If it stands for this one, label it %s=%s", path, api.LabelVolcanoQueue, q.Name)
			continue
		case o.DeletionTimestamp == nil:
			served[q.Name] = true
			if !same(o, want) {
				p.Steps = append(p.Steps, set(o, want))
			}
		}
		mirrored[path] = true
	}
	for _, o := range slices.SortedFunc(slices.Values(ours), func(a, b *v1beta1.Queue) int { return strings.Compare(a.Name, b.Name) }) {
		if !managed(o) || mirrored[o.Name] || o.DeletionTimestamp != nil {
			continue
		}
		name := o.Labels[api.LabelVolcanoQueue]
		switch {
		case exists[name] && p.Problems[name] != "":
			if !o.Spec.Closed {
				closed := set(o, o)
				closed.Queue.Spec.Closed = true
				p.Steps = append(p.Steps, closed)
			}
		case exists[name] && !served[name]: // it goes when there is another one
		case ownQueue(o.Name):
			p.Steps = append(p.Steps, set(o, &v1beta1.Queue{}))
		default:
			p.Steps = append(p.Steps, Step{Delete, o})
		}
	}
	return p
}

// Refused adds to the problems that a step cannot be carried out.
func (p *Plan) Refused(s Step, why string) {
	if name := s.Queue.Labels[api.LabelVolcanoQueue]; name != "" {
		p.Problems[name] = fmt.Sprintf("the Queue %s of scheduling.basalt.dev cannot be made as this one says: %s", s.Queue.Name, why)
	}
}

// tree returns the path of each Queue, and why some have none.
func tree(theirs []*volcanov1beta1.Queue, problems map[string]string) map[string]string {
	parent := make(map[string]string, len(theirs))
	for _, q := range theirs {
		parent[q.Name] = q.Spec.Parent
	}
	paths := map[string]string{}
	var find func(name string, depth int) (path, problem string)
	find = func(name string, depth int) (string, string) {
		if path := paths[name]; path != "" {
			return path, ""
		}
		up, exists := parent[name]
		switch {
		case name == api.RootQueue:
			return api.RootQueue, ""
		case !exists:
			return "", fmt.Sprintf("its ancestor %s does not exist", name)
		case strings.Contains(name, "."):
			return "", fmt.Sprintf("the name %s has a dot", name)
		case depth > api.MaxPathLevels:
			return "", fmt.Sprintf("it has more than %d ancestors, or they form a cycle", api.MaxPathLevels-1)
		}
		path := name
		if up != "" && up != api.RootQueue {
			above, problem := find(up, depth+1)
			if problem != "" {
				return "", problem
			}
			path = above + "." + name
		}
		if err := api.ValidatePath(path); err != nil {
			return "", err.Error()
		}
		return path, ""
	}
	for _, name := range slices.Sorted(maps.Keys(parent)) {
		if path, problem := find(name, 1); problem == "" {
			paths[name] = path
		} else {
			problems[name] = "it is not served: " + problem
		}
	}
	return paths
}

var typeOfQueue = metav1.TypeMeta{APIVersion: v1beta1.SchemeGroupVersion.String(), Kind: "Queue"}

// want returns the mirror of a Queue.
func want(q *volcanov1beta1.Queue, path string) *v1beta1.Queue {
	out := &v1beta1.Queue{
		TypeMeta:   typeOfQueue,
		ObjectMeta: metav1.ObjectMeta{Name: path, Labels: map[string]string{api.LabelVolcanoQueue: q.Name, LabelManagedBy: ManagedBy}},
		Spec: v1beta1.QueueSpec{
			Capability: volcano.Limits(q.Spec.Capability), Guarantee: volcano.Limits(q.Spec.Guarantee.Resource),
			Deserved: volcano.Limits(q.Spec.Deserved), Priority: q.Spec.Priority, Closed: isClosed(q.Status.State),
		},
	}
	if r := q.Spec.Reclaimable; r != nil && !*r {
		out.Spec.Reclaimable = r
	}
	if q.Spec.Weight > 1 {
		out.Spec.Weight = new(min(q.Spec.Weight, maxWeight))
	}
	for name, deserved := range out.Spec.Deserved {
		if limit, named := out.Spec.Guarantee[name]; named && less(name, deserved, limit) {
			out.Spec.Deserved[name] = limit
		}
		if limit, named := out.Spec.Capability[name]; named && less(name, limit, deserved) {
			out.Spec.Deserved[name] = limit
		}
	}
	return out
}

// maxWeight is the largest weight of a Queue.
const maxWeight = 65535

// less reports whether a is less than b. Amounts that no limit has are not compared: it would take minutes for 1e2000000000.
func less(name corev1.ResourceName, a, b resource.Quantity) bool {
	x, err := api.FromQuantity(string(name), a, true)
	y, err2 := api.FromQuantity(string(name), b, true)
	return err == nil && err2 == nil && x < y
}

func isClosed(s volcanov1beta1.QueueState) bool {
	return s == volcanov1beta1.QueueStateClosed || s == volcanov1beta1.QueueStateClosing
}

func managed(o *v1beta1.Queue) bool { return o.Labels[LabelManagedBy] == ManagedBy }

// ownQueue reports whether Basalt makes a Queue where there is none.
func ownQueue(name string) bool { return name == api.RootQueue || name == api.DefaultQueue }

// takenOver reports whether a Queue is one that Basalt made and nobody edited.
func takenOver(o *v1beta1.Queue) bool {
	return ownQueue(o.Name) && len(o.Labels) == 0 && equality.Semantic.DeepEqual(o.Spec, v1beta1.QueueSpec{})
}

// same reports whether what a mirror says is what it is to say.
func same(o, want *v1beta1.Queue) bool {
	return o.Labels[api.LabelVolcanoQueue] == want.Labels[api.LabelVolcanoQueue] && o.Labels[LabelManagedBy] == want.Labels[LabelManagedBy] &&
		o.Spec.Closed == want.Spec.Closed && sameAmounts(o.Spec.Capability, want.Spec.Capability) && sameAmounts(o.Spec.Guarantee, want.Spec.Guarantee) &&
		sameAmounts(o.Spec.Deserved, want.Spec.Deserved) && o.Spec.Priority == want.Spec.Priority && ptr.Deref(o.Spec.Weight, 1) == ptr.Deref(want.Spec.Weight, 1) &&
		ptr.Deref(o.Spec.Reclaimable, true) == ptr.Deref(want.Spec.Reclaimable, true)
}

// sameAmounts compares what was written: a client that reads an amount writes it as it reads it, and nobody compares 1e2000000000.
func sameAmounts(a, b corev1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, q := range a {
		if other, ok := b[name]; !ok || q.String() != other.String() {
			return false
		}
	}
	return true
}

// set makes a Queue that was seen say what is wanted. A selector of namespaces, labels and policies that somebody gave it stay.
func set(seen, want *v1beta1.Queue) Step {
	q := seen.DeepCopy()
	q.TypeMeta = typeOfQueue
	for _, label := range []string{api.LabelVolcanoQueue, LabelManagedBy} {
		if value, ok := want.Labels[label]; ok {
			metav1.SetMetaDataLabel(&q.ObjectMeta, label, value)
		} else {
			delete(q.Labels, label)
		}
	}
	q.Spec.Capability, q.Spec.Guarantee, q.Spec.Closed = want.Spec.Capability, want.Spec.Guarantee, want.Spec.Closed
	q.Spec.Deserved, q.Spec.Weight, q.Spec.Priority = want.Spec.Deserved, want.Spec.Weight, want.Spec.Priority
	q.Spec.Reclaimable = want.Spec.Reclaimable
	return Step{Set, q}
}

// stateAfter returns the state of a Queue after what its Commands ask for, in their order. A Queue that is to be closed stays Closing until
// it is idle. Where there is no state yet, it is Open.
func stateAfter(now volcanov1beta1.QueueState, commands []*bus.Command, idle bool) volcanov1beta1.QueueState {
	for _, c := range commands {
		switch bus.Action(c.Action) {
		case bus.OpenQueueAction:
			now = volcanov1beta1.QueueStateOpen
		case bus.CloseQueueAction:
			if now != volcanov1beta1.QueueStateClosed {
				now = volcanov1beta1.QueueStateClosing
			}
		}
	}
	switch now {
	case volcanov1beta1.QueueStateOpen, volcanov1beta1.QueueStateClosed:
		return now
	case volcanov1beta1.QueueStateClosing:
		if idle {
			return volcanov1beta1.QueueStateClosed
		}
		return now
	}
	return volcanov1beta1.QueueStateOpen
}

// maxCommands is how many Commands for one Queue are carried out together: those for other Queues do not wait for all of them.
const maxCommands = 100

// For returns the Commands that are meant for a Queue, the oldest ones in order, by its UID. One that names another UID is meant for an earlier Queue.
func For(theirs []*volcanov1beta1.Queue, commands []*bus.Command) map[types.UID][]*bus.Command {
	uids := make(map[string]types.UID, len(theirs))
	for _, q := range theirs {
		uids[q.Name] = q.UID
	}
	out := map[types.UID][]*bus.Command{}
	for _, c := range commands {
		t := c.TargetObject
		if t == nil || t.Kind != "Queue" || !strings.HasPrefix(t.APIVersion, volcanov1beta1.GroupName+"/") {
			continue
		}
		if uid, ok := uids[t.Name]; ok && (t.UID == "" || t.UID == uid) {
			out[uid] = append(out[uid], c)
		}
	}
	for uid, of := range out {
		slices.SortFunc(of, func(a, b *bus.Command) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
		})
		out[uid] = of[:min(len(of), maxCommands)]
	}
	return out
}

// Status is what Basalt says in the status of a Queue of Volcano's.
type Status struct {
	State     volcanov1beta1.QueueState
	Allocated corev1.ResourceList // charged to it and its descendants
}

// StatusOf returns what the status of a Queue is to say after its Commands; o is the Queue that stands for it, nil if there is none. One
// that somebody else made is opened and closed there: Commands have no effect.
func StatusOf(q *volcanov1beta1.Queue, o *v1beta1.Queue, commands []*bus.Command) Status {
	s := Status{Allocated: corev1.ResourceList{}}
	state, idle := q.Status.State, true
	if o != nil && o.Status != nil {
		maps.Copy(s.Allocated, o.Status.Charged)
		idle = len(o.Status.Charged) == 0 && o.Status.AdmittedGangs == 0
	}
	if !Obeys(o) {
		commands, state = nil, volcanov1beta1.QueueStateOpen
		if o.Spec.Closed {
			state = volcanov1beta1.QueueStateClosing
		}
	}
	s.State = stateAfter(state, commands, idle)
	return s
}

// Obeys reports whether Commands for a Queue have an effect on the one that stands for it.
func Obeys(o *v1beta1.Queue) bool { return o == nil || managed(o) }

// InForce reports whether the Queue that stands for one is closed, if the status is to say so.
func (s Status) InForce(o *v1beta1.Queue) bool {
	return o == nil || !isClosed(s.State) || o.Spec.Closed || o.DeletionTimestamp != nil
}

// Shown reports whether a Queue's status says that already.
func (s Status) Shown(q *volcanov1beta1.Queue) bool {
	return q.Status.State == s.State && sameAmounts(q.Status.Allocated, s.Allocated)
}

// StandIns returns the Queue that stands for each of Volcano's, by the name of that one.
func StandIns(ours []*v1beta1.Queue) map[string]*v1beta1.Queue {
	out := map[string]*v1beta1.Queue{}
	for _, o := range ours {
		name := o.Labels[api.LabelVolcanoQueue]
		if was := out[name]; name != "" && (was == nil || standIn(o).Compare(standIn(was)) < 0) {
			out[name] = o
		}
	}
	return out
}

func standIn(o *v1beta1.Queue) api.StandIn {
	return api.StandIn{Queue: o.Name, Deleting: o.DeletionTimestamp != nil}
}
