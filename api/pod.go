package api

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	v1 "k8s.io/api/core/v1"
	resourcehelper "k8s.io/component-helpers/resource"
	schedulinghelper "k8s.io/component-helpers/scheduling/corev1"
)

// Pod is what Basalt keeps of a pod. It is immutable once made. A process has one for each pod of the cluster, so small fields are
// together, without holes between them.
type Pod struct {
	UID             string
	ResourceVersion string
	Namespace       string
	Name            string
	Created         time.Time

	Ours bool // spec.schedulerName is one that Basalt serves (Rules)
	Lent bool // ... only while it holds the Lease of Volcano's scheduler

	Finished bool // phase Succeeded or Failed: holds no room and no quota
	Started  bool // the kubelet has accepted it: before that it may still refuse it
	Deleting bool // has a deletion timestamp
	Gated    bool // has scheduling gates

	// PerController says that Volcano's podgroup controller made the group for the pods of this pod's controller (volcanoPerController).
	PerController bool

	// Unbound says that volumes of the pod are bound once its node is decided, and before the pod is.
	Unbound         bool
	Tied            Tie  // by its volumes
	Unlisted        bool // it has more labels than Basalt reads: it may be matched by whatever is said of them
	PreemptionNever bool // spec.preemptionPolicy is Never: nothing is evicted for it
	GroupKind       GroupKind

	Runs
	DeletionCost int32 // the annotation controller.kubernetes.io/pod-deletion-cost of a pod with a node
	Maker
	End End // of a finished pod

	Node string // spec.nodeName
	// Nominated is the node that another scheduler keeps for a pod of its own that has none yet.
	Nominated string

	Preemptible *bool // LabelPreemptible of the pod itself, nil if it says neither

	Gang     string // LabelGang of a pod with a node: whom it was bound for; "" when somebody else bound it
	Group    string // the group that it names, in its own namespace; "" for a gang of one
	GroupMin int    // of an ImpliedGroup: how many of its pods start together, 0 if this pod does not say
	Role     string // its task in a Volcano PodGroup; of an ImpliedGroup, makerOf
	Queue    string // LabelQueue of the pod itself; "" leaves it to the namespace
	Priority int64

	QueueElsewhere string // of a pod without a node that names its queue in another system's words alone: which those are

	VolcanoQueue string // of a pod with neither label nor group, or PerController: the queue of Volcano's that its annotation names

	Claims []string      // that it names, each once; not to be changed
	Scarce []ScarceClaim // not to be changed
	// Note is what keeps its volumes to some nodes, "" for nothing that its user should know.
	Note string

	Labels *Labels
	Class  *Class
	// Refused is set on a pod that cannot be placed as it is: the reason says what kind, the message names the field.
	Refused *Refusal
	// Unheeded says why the pod is placed without its wishes or leanings, "" when they are heeded or it has none.
	Unheeded string

	Condition Refusal // PodScheduled=False, as the pod shows it now; zero for none
}

// maxCost is what an int32 has room in.
const maxCost = 11

// deletionCost reads what a pod's annotation says, 0 where it says nothing that Kubernetes' controllers would heed.
func deletionCost(p *v1.Pod) int32 {
	if says := p.Annotations[v1.PodDeletionCost]; says != "" && len(says) <= maxCost {
		if cost, err := strconv.ParseInt(says, 10, 32); err == nil {
			return int32(cost)
		}
	}
	return 0
}

// CompareSurplus orders the bound pods of a gang that has more than its minimum: those that go first come first. It is the order in which
// Kubernetes' controllers scale down: the lowest deletion cost, then the youngest.
func CompareSurplus(a, b *Pod) int {
	return cmp.Or(cmp.Compare(a.DeletionCost, b.DeletionCost), b.Created.Compare(a.Created), cmp.Compare(a.UID, b.UID))
}

// PodID is the short form of a pod's UID in reservations. UIDs are drawn by the API server, so nobody can choose two that collide.
func PodID(uid string) uint64 { return xxhash.Sum64String(uid) }

// Runs is how long a pod runs.
type Runs struct {
	GraceSeconds int32 // spec.terminationGracePeriodSeconds
	LimitSeconds int32 // it runs for so long at most, as it says; 0 where it says nothing
	Until        int64 // AnnotationUntil of a pod with a Gang: a Unix time in seconds, 0 for none
}

// Refusal says why an object is not acted on, for its user.
type Refusal struct {
	Reason  string // UnsupportedConstraint, NeverFits or Gated
	Message string // names the field
}

// Class is what decides where a pod may go: pods with equal classes are interchangeable. It is immutable once made.
type Class struct {
	Key         string    // canonical bytes of all below: equal classes have equal keys
	Requests    Resources // includes pods=1
	Constraints []byte    // a v1.PodSpec with only what constrain keeps, in protobuf; empty for none
	Attach      Resources // volumes that are to be attached, by CSI driver, of pods without a node
	Repels      []byte    // a v1.PodAntiAffinity with the required terms, and those of OnePodClaims, in protobuf; empty for none
	Joins       []byte    // a v1.PodSpec with required pod affinity and topology spread, in protobuf; empty for none
	Wishes      []byte    // a v1.PodSpec with only what Wishes.Encode keeps, in protobuf; empty for none
	Leanings    []byte    // a v1.PodSpec with only what leans keeps, in protobuf; empty for none

	// Labels of its pods, where Labelled: node shards have to know them while there are pods that repel others.
	Labels   *Labels
	Labelled bool

	// In and Avoids are groups of pods as a node shard numbers them, in order: those that its pods belong to, and those that they
	// repel. Pods in a node shard's cache have them in place of Repels and Labels.
	In, Avoids []uint32

	hash uint64 // of Key; 0 when it is not known
}

// Hash of the class, for indexes.
func (c *Class) Hash() uint64 {
	if c.hash != 0 {
		return c.hash
	}
	return xxhash.Sum64String(c.Key)
}

// NewClass makes a class of its parts.
func NewClass(requests Resources, constraints []byte) *Class {
	return MakeClass(Class{Requests: requests, Constraints: constraints})
}

// MakeClass makes a class of one that has all but its key.
func MakeClass(c Class) *Class {
	var room [keyRoom]byte
	c.Key = string(c.appendKey(room[:0]))
	c.hash = xxhash.Sum64String(c.Key)
	return &c
}

// keyRoom is what most keys have room in.
const keyRoom = 128

func (c *Class) appendKey(b []byte) []byte {
	for _, a := range c.Requests {
		b = append(b, a.Resource...)
		b = append(b, '=')
		b = strconv.AppendInt(b, a.Value, 36)
		b = append(b, ';')
	}
	for _, a := range c.Attach {
		b = append(append(b, '\x02'), a.Resource...)
		b = append(b, '=')
		b = strconv.AppendInt(b, a.Value, 36)
		b = append(b, ';')
	}
	b = appendPart(appendPart(c.appendExtras(b), markWishes, c.Wishes), markLeanings, c.Leanings)
	b = append(b, 0)
	return append(b, c.Constraints...)
}

// Classes has one Class for all pods that ask for the same: every shard hears several times of every pod, and most pods are
// like others. It forgets those that no pod asked for lately. The zero value is empty, nil keeps nothing; it is not for
// concurrent use.
type Classes struct {
	recent, before map[string]*Class
	bytes          int // of keys in recent

	labels, labelsBefore map[uint64]*Labels // by hash
}

// keptClasses is how many new ones may come before those that were not asked for meanwhile are forgotten, and keptBytes how
// many bytes of their keys.
const (
	keptClasses = 4096
	keptBytes   = 16 << 20
)

// of returns the class of its parts; it copies the requests if it keeps them, so that the caller's need not be on the heap.
func (c *Classes) of(requests, attach Resources, constraints, repels, joins, wishes, leanings []byte) *Class {
	made := func() *Class {
		return MakeClass(Class{Requests: slices.Clone(requests), Attach: attach, Constraints: constraints, Repels: repels, Joins: joins, Wishes: wishes, Leanings: leanings})
	}
	if c == nil {
		return made()
	}
	var room [keyRoom]byte
	asked := Class{Requests: requests, Attach: attach, Constraints: constraints, Repels: repels, Joins: joins, Wishes: wishes, Leanings: leanings}
	key := asked.appendKey(room[:0])
	if class := c.recent[string(key)]; class != nil {
		return class
	}
	class := c.before[string(key)]
	if class == nil {
		class = made()
	}
	if len(c.recent) >= keptClasses || c.bytes >= keptBytes || c.recent == nil {
		c.recent, c.before, c.bytes = map[string]*Class{}, c.recent, 0
	}
	c.recent[class.Key] = class
	c.bytes += len(class.Key)
	return class
}

// ReadConstraints reads what a class carries.
func ReadConstraints(b []byte) (*v1.PodSpec, error) {
	spec := &v1.PodSpec{}
	if err := spec.Unmarshal(b); err != nil {
		return nil, fmt.Errorf("read pod constraints: %w", err)
	}
	return spec, nil
}

// Cluster is what FromPod looks up in other objects than the pod.
type Cluster interface {
	// Volumes returns where a pod's volumes let it run, or why it cannot run now.
	Volumes(p *v1.Pod) (reach Reach, why string)
	// DeviceClass names the DeviceClass that backs a resource which no node offers by itself, "" for none.
	DeviceClass(resource string) string
}

// maxGrace bounds GraceSeconds: a day.
const maxGrace = 24 * 60 * 60

// FromPod reduces a pod by the rules. It never fails: what cannot be read or is not supported is said in Refused.
func FromPod(p *v1.Pod, cluster Cluster, rules Rules) *Pod {
	return (*Classes)(nil).FromPod(p, cluster, rules)
}

// FromPod is FromPod, with the classes that are known.
func (c *Classes) FromPod(p *v1.Pod, cluster Cluster, rules Rules) *Pod {
	if !rules.EmptyAll && SpreadsByEmpty(p) {
		p = withoutEmpty(p)
	}
	out := &Pod{
		UID: string(p.UID), ResourceVersion: p.ResourceVersion, Namespace: p.Namespace, Name: p.Name,
		Created:  p.CreationTimestamp.Time,
		Node:     p.Spec.NodeName,
		Finished: p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed,
		Started:  p.Status.Phase == v1.PodRunning || p.Status.StartTime != nil,
		Deleting: p.DeletionTimestamp != nil,
		Gated:    len(p.Spec.SchedulingGates) > 0,
		Queue:    p.Labels[LabelQueue],
		Priority: int64(schedulinghelper.PodPriority(p)),
	}
	out.readScheduler(p, &rules)
	out.readGroup(p, &rules)
	out.Preemptible = YesOrNo(p.Labels[LabelPreemptible])
	if out.Node != "" {
		out.Gang = p.Labels[LabelGang]
		out.DeletionCost, out.Until = deletionCost(p), untilOf(p)
	} else if !out.Ours {
		out.Nominated = p.Status.NominatedNodeName
	}
	out.readLife(p)
	out.PreemptionNever = p.Spec.PreemptionPolicy != nil && *p.Spec.PreemptionPolicy == v1.PreemptNever
	if s := p.Spec.TerminationGracePeriodSeconds; s != nil {
		out.GraceSeconds = int32(max(0, min(*s, maxGrace)))
	}
	out.User, out.Maker.Group = UserOf(p.Annotations)
	limit, unreadable := runsFor(p)
	out.LimitSeconds = limit
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			out.Condition.Reason, out.Condition.Message = c.Reason, c.Message
		}
	}
	var room [8]Amount
	requests, err := podRequests(p, rules.Ignored, room[:0])
	if p.Status.Reason == excessRequests && out.Node == "" {
		err = errors.New(p.Status.Message)
	}
	if err != nil {
		out.Refused = &Refusal{"NeverFits", err.Error()}
	}
	wide := wideLabels(p)
	if out.Unlisted = wide != ""; !out.Unlisted {
		out.Labels = c.labelsOf(p.Labels)
	}
	var constraints, repelled, joined []byte
	var reach Reach
	out.Claims = namedClaims(p)
	terms, excess := repels(p)
	if out.Ours && out.Node == "" {
		var field, unread string
		reach, field = unsupported(p, requests, cluster, &rules)
		out.Unbound, out.Scarce, out.Tied, out.Note = reach.Unbound, reach.Scarce, reach.Tied, reach.Note
		joined, unread = joinsOf(p, len(reach.Where) > 0)
		unread = cmp.Or(unread, unreadableRepels(terms), unreadable)
		onePod, many := onePodTerms(p.Namespace, reach.OnePod)
		terms = append(terms, onePod...)
		field = cmp.Or(field, excess, unread, many)
		if field == "" && out.Unlisted {
			field = fmt.Sprintf("metadata.labels: they have %s bytes, the limit is %d", wide, maxLabelBytes)
		}
		if field != "" && out.Refused == nil {
			out.Refused = &Refusal{"UnsupportedConstraint", field}
		}
	}
	if len(terms) > 0 {
		if repelled, err = (&v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: terms}).Marshal(); err != nil && out.Refused == nil {
			out.Refused = &Refusal{"UnsupportedConstraint", fieldRepels + ": " + err.Error()}
		}
	}
	if p.Status.Reason == excessConstraints {
		reach.Where, reach.Attach = nil, nil // of no use beside constraints that were left out
		if out.Refused == nil {
			out.Refused = &Refusal{"UnsupportedConstraint", p.Status.Message}
		}
	}
	if spec := constrain(&p.Spec); spec != nil || len(reach.Where) > 0 {
		excess := ""
		if spec != nil {
			excess = checkConstraints(spec)
		}
		if excess == "" && len(reach.Where) > 0 {
			spec, excess = confine(spec, reach.Where)
		}
		if excess != "" {
			if out.Refused == nil {
				out.Refused = &Refusal{"UnsupportedConstraint", excess}
			}
			spec = onlyExclusive(spec)
		}
		if spec == nil {
			// nothing is left that a node counts
		} else if constraints, err = spec.Marshal(); err != nil && out.Refused == nil {
			out.Refused = &Refusal{"UnsupportedConstraint", "spec: " + err.Error()}
		}
	}
	if size := p.Annotations[annotationSize]; size != "" && out.Ours && out.Node == "" && out.Refused == nil {
		out.Refused = &Refusal{"NeverFits", fmt.Sprintf("the pod has %s bytes, the limit is %d", size, MaxPodBytes)}
	}
	var wishes, leanings []byte
	if out.Ours && out.Node == "" && out.Refused == nil {
		terms, unheeded := prefers(p)
		wishes = rules.wishesOf(p, out, terms, requests).Encode()
		spec, unleaned := encodeLeanings(p)
		leanings, out.Unheeded = spec, allOf(slipWords(p), unheeded, unleaned)
	}
	out.Class = c.of(requests, reach.Attach, constraints, repelled, joined, wishes, leanings)
	return out
}

// PodRequests returns what a pod asks of its node and of its queue: by the rules of k8s.io/component-helpers (init
// containers, sidecars, overhead, pod-level resources), rounded up to the unit, without the resources on the ignore list,
// and one of the resource "pods". With an error it returns just that one. Messages name the field.
//
// Of a pod with a node it is, as for kube-scheduler, the most of what the spec asks for, what the kubelet has allocated and
// what the containers have: a resize takes effect some time after the spec was changed, or never. A resize that the kubelet
// has found infeasible does not count.
//
// A pod without a node that exceeds MaxPodResources, MaxContainers or MaxPodAmounts is an error. One that has a node has to
// be counted: it is, for its foremost resources, and by a sum that is not below what the rules give.
func PodRequests(p *v1.Pod, ignore map[string]bool) (Resources, error) {
	return podRequests(p, ignore, nil)
}

// podRequests is PodRequests, which writes into room if that is enough.
func podRequests(p *v1.Pod, ignore map[string]bool, room Resources) (Resources, error) {
	status := resized(p)
	if len(p.Spec.Containers) == 1 && len(p.Spec.InitContainers) == 0 && len(p.Spec.Overhead) == 0 && p.Spec.Resources == nil && !status {
		if r, ok := plainRequests(room, p.Spec.Containers[0].Resources.Requests, ignore); ok {
			return r, nil
		}
	}
	one := Resources{{"pods", 1}}
	if excess := checkRequests(p, ignore); excess != nil {
		if p.Spec.NodeName == "" {
			return one, excess
		}
		return coarseRequests(p, ignore), nil
	}
	if status && len(p.Spec.Containers)+len(p.Spec.InitContainers) > maxResized {
		return coarseRequests(p, ignore), nil
	}
	kept := &v1.Pod{Spec: v1.PodSpec{Overhead: p.Spec.Overhead, Resources: p.Spec.Resources}}
	var err error
	// Each quantity is read by itself first: to add absurd ones takes minutes, and their sum names no field.
	keep := func(l v1.ResourceList, field string, args ...any) v1.ResourceList {
		out := l
		for name, q := range l {
			if ignore[string(name)] || q.Sign() == 0 { // 0e2000000000 is a zero that cannot be compared either
				if len(out) == len(l) {
					out = maps.Clone(l)
				}
				delete(out, name)
			} else if _, bad := FromQuantity(string(name), q, true); bad != nil {
				if bad = fmt.Errorf("%s: %w", fmt.Sprintf(field, args...), bad); err == nil || bad.Error() < err.Error() {
					err = bad // the same one at each look, whatever the order of the map
				}
			}
		}
		return out
	}
	containers := func(in []v1.Container, field string) []v1.Container {
		out := make([]v1.Container, len(in))
		for i := range in {
			out[i] = v1.Container{Name: in[i].Name, RestartPolicy: in[i].RestartPolicy}
			out[i].Resources.Requests = keep(in[i].Resources.Requests, "spec.%s[%d].resources.requests", field, i)
		}
		return out
	}
	kept.Spec.Containers = containers(p.Spec.Containers, "containers")
	kept.Spec.InitContainers = containers(p.Spec.InitContainers, "initContainers")
	kept.Spec.Overhead = keep(p.Spec.Overhead, "spec.overhead")
	if r := p.Spec.Resources; r != nil {
		kept.Spec.Resources = &v1.ResourceRequirements{Requests: keep(r.Requests, "spec.resources.requests")}
	}
	if err != nil {
		return one, err
	}
	if status {
		keepStatus(kept, p, ignore)
	}
	list := resourcehelper.PodRequests(kept, resourcehelper.PodResourcesOptions{UseStatusResources: status, InPlacePodLevelResourcesVerticalScalingEnabled: status})
	list[v1.ResourcePods] = Quantity("pods", 1)
	delete(list, ResourceGangs)
	r, err := FromResourceList(list, true)
	if err != nil {
		return one, fmt.Errorf("spec.containers[*].resources.requests: %w", err)
	}
	return r, nil
}

// plainRequests is PodRequests of a pod that is one container and nothing else, as most are: what it asks for is what the
// pod asks for. What cannot be read it leaves to the rules for all pods.
func plainRequests(r Resources, l v1.ResourceList, ignore map[string]bool) (Resources, bool) {
	if len(l) > MaxPodResources {
		return nil, false
	}
	r = slices.Grow(r[:0], len(l)+1)
	for name, q := range l {
		if ignore[string(name)] || IsCount(string(name)) || q.Sign() == 0 {
			continue
		}
		v, err := FromQuantity(string(name), q, true)
		if err != nil {
			return nil, false
		}
		if v != 0 {
			r = append(r, Amount{string(name), v})
		}
	}
	r = append(r, Amount{string(v1.ResourcePods), 1})
	slices.SortFunc(r, func(a, b Amount) int { return strings.Compare(a.Resource, b.Resource) })
	return r, true
}

// constrain keeps of a spec what decides on which nodes the pod may run; nil when nothing does.
func constrain(s *v1.PodSpec) *v1.PodSpec {
	needs, disks := needsOf(s), exclusiveDisks(s.Volumes)
	if len(s.NodeSelector) == 0 && len(s.Tolerations) == 0 && s.Affinity == nil && needs == noNeeds && len(disks) == 0 && !hostPorts(s.Containers) && !hostPorts(s.InitContainers) {
		return nil
	}
	out := &v1.PodSpec{NodeSelector: s.NodeSelector, Tolerations: s.Tolerations, Volumes: disks}
	if a := s.Affinity; a != nil && a.NodeAffinity != nil && a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		out.Affinity = &v1.Affinity{NodeAffinity: &v1.NodeAffinity{
			RequiredDuringSchedulingIgnoredDuringExecution: a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution}}
	}
	for _, list := range [][]v1.Container{s.Containers, restartable(s.InitContainers)} {
		for i := range list {
			for _, port := range list[i].Ports {
				if port.HostPort > 0 {
					if len(out.Containers) == 0 {
						out.Containers = []v1.Container{{}}
					}
					out.Containers[0].Ports = append(out.Containers[0].Ports, v1.ContainerPort{HostPort: port.HostPort, HostIP: port.HostIP, Protocol: port.Protocol})
				}
			}
		}
	}
	if len(out.Containers) == 0 && (needs.restartAll || needs.bindOptions) {
		out.Containers = []v1.Container{{}}
	}
	needs.put(out)
	if len(out.NodeSelector) == 0 && len(out.Tolerations) == 0 && out.Affinity == nil && len(out.Containers) == 0 && len(disks) == 0 && !needs.hostUsers {
		return nil
	}
	return out
}

func hostPorts(in []v1.Container) bool {
	for i := range in {
		for j := range in[i].Ports {
			if in[i].Ports[j].HostPort > 0 {
				return true
			}
		}
	}
	return false
}

func restartable(in []v1.Container) []v1.Container {
	return slices.DeleteFunc(slices.Clone(in), func(c v1.Container) bool {
		return c.RestartPolicy == nil || *c.RestartPolicy != v1.ContainerRestartPolicyAlways
	})
}

// unsupported names the first field of a pod that restricts where it may run in a way that is not built yet. If there is none, it returns
// where the pod's volumes let it run.
func unsupported(p *v1.Pod, requests Resources, cluster Cluster, rules *Rules) (reach Reach, field string) {
	if field := unsupportedField(p, rules); field != "" {
		return reach, field
	}
	if usesVolumes(p.Spec.Volumes) {
		if cluster == nil {
			return reach, "spec.volumes: volume claims cannot be looked up"
		}
		if reach, field = cluster.Volumes(p); field != "" {
			return Reach{}, field
		}
	}
	for i := range requests {
		if name := requests[i].Resource; cluster != nil && strings.IndexByte(name, '/') > 0 {
			if class := cluster.DeviceClass(name); class != "" {
				return Reach{}, fmt.Sprintf("spec.containers[*].resources.requests: %s is offered by DeviceClass %s, and no node offers it by itself: "+
					"devices are not supported yet", Shorten(name, maxGroupName), class)
			}
		}
	}
	return reach, ""
}

// unsupportedField is unsupported by what the pod alone says.
func unsupportedField(p *v1.Pod, rules *Rules) string {
	if group := groupRefusal(p, rules); group != "" {
		return group
	}
	s := &p.Spec
	if len(s.ResourceClaims) > 0 {
		return "spec.resourceClaims is not supported yet"
	}
	return unsupportedVolume(s.Volumes)
}
