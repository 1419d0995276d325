// Package migrate is `basalt migrate`: it tells the people who run Volcano what becomes of their objects under Basalt, before
// they change anything. It only reads.
//
// Check is a pure function of the objects: what they use is counted, and each kind of use is honoured, is ignored, or is refused.
// What is refused would wait for ever, and says so. Pods, and the pods that jobs would make, are read by the same code that reads
// pods when Basalt places them.
package migrate

import (
	"maps"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	batch "volcano.sh/apis/pkg/apis/batch/v1alpha1"
	"volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/doors/volcano"
	"basalt.dev/basalt/api/doors/volcano/mirror"
)

// Objects are what is checked.
type Objects struct {
	Queues    []v1beta1.Queue
	PodGroups []v1beta1.PodGroup
	Jobs      []batch.Job
	Pods      []corev1.Pod // those of finished pods and of other schedulers are not looked at
	Scheduler string       // configuration of Volcano's scheduler, "" if it was not found
}

// Verdict is what becomes of something that is in use.
type Verdict string

// Verdicts, worst first.
const (
	Refused  Verdict = "refused"  // what uses it waits
	Ignored  Verdict = "ignored"  // it has no effect
	Honoured Verdict = "honoured" // it has the same effect
)

// Row is something that is in use.
type Row struct {
	Verdict Verdict `json:"verdict"`
	What    string  `json:"what"`
	Count   int     `json:"count"`           // of objects
	Note    string  `json:"note,omitempty"`  // what Basalt does
	First   string  `json:"first,omitempty"` // of those objects
}

// use is what may be in use, and what becomes of it.
type use struct {
	verdict Verdict
	note    string
}

// rows collects rows, in the order in which they are first met.
type rows struct {
	list   []*Row
	of     map[string]*Row
	levels []string
}

func (r *rows) add(u use, what, object string) {
	row := r.of[what]
	if row == nil {
		row = &Row{Verdict: u.verdict, What: what, Note: u.note, First: object}
		r.of[what], r.list = row, append(r.list, row)
	}
	row.Count++
}

// Check returns what is in use, the worst first. levels are topologyLevels of Basalt's configuration.
func Check(o *Objects, schedulers, levels []string) []Row {
	r := &rows{of: map[string]*Row{}, levels: levels}
	rules := &api.Rules{Schedulers: schedulers, Volcano: true}
	r.scheduler(o.Scheduler)
	queues := make([]*v1beta1.Queue, len(o.Queues))
	for i := range o.Queues {
		queues[i] = &o.Queues[i]
	}
	problems := mirror.Of(queues, nil).Problems
	for _, q := range queues {
		r.queue(q, problems[q.Name])
	}
	for i := range o.PodGroups {
		r.podGroup(&o.PodGroups[i])
	}
	for i := range o.Jobs {
		r.job(&o.Jobs[i], rules)
	}
	for i := range o.Pods {
		r.pod("Pod", &o.Pods[i], rules)
	}
	order := []Verdict{Refused, Ignored, Honoured}
	slices.SortStableFunc(r.list, func(a, b *Row) int { return slices.Index(order, a.Verdict) - slices.Index(order, b.Verdict) })
	out := make([]Row, len(r.list))
	for i, row := range r.list {
		out[i] = *row
	}
	return out
}

// queue takes note of a Queue; problem says why it has no mirror, "" if it has one.
func (r *rows) queue(q *v1beta1.Queue, problem string) {
	name := q.Name
	seen := func(in bool, v Verdict, field, note string) {
		if in {
			r.add(use{v, note}, "Queue spec."+field, name)
		}
	}
	if problem == "" {
		r.add(use{Honoured, "a Queue of scheduling.basalt.dev is made of it, and follows it"}, "Queue", name)
	} else {
		r.add(use{Refused, problem}, "Queue that cannot be mirrored", name)
	}
	s := &q.Spec
	seen(s.Parent != "" && s.Parent != "root", Honoured, "parent", "its gangs are charged to it and to all queues above it")
	seen(s.Affinity != nil, Refused, "affinity", "nodes of a queue are not supported yet; use a node selector in the pods")
	seen(len(s.ExtendClusters) > 0, Refused, "extendClusters", "one cluster only")
	seen(len(s.Capability) > 0, Honoured, "capability", "")
	seen(len(s.Guarantee.Resource) > 0, Honoured, "guarantee", "")
	seen(len(s.Deserved) > 0, Honoured, "deserved", "who is within it goes first, and takes it back by evicting whole gangs of those that are above")
	seen(s.Weight > 1, Honoured, "weight", "a queue's part of what the limits of its parent leave above what is deserved")
	seen(s.Reclaimable != nil, Honoured, "reclaimable", "false: nothing of it is evicted for other queues; true is the default")
	seen(s.Priority != 0, Honoured, "priority", "the order of siblings above what they deserve")
	seen(s.DequeueStrategy == "fifo", Ignored, "dequeueStrategy", "a gang that waits may be passed for a minute")
}

func (r *rows) podGroup(g *v1beta1.PodGroup) {
	object := g.Namespace + "/" + g.Name
	as, more := volcano.Group(g, nil, r.levels)
	if more.Refused != nil {
		_, field, _ := strings.Cut(more.Refused.Message, object+": ")
		r.add(use{Refused, "its gang waits and says so"}, "PodGroup "+field, object)
		return
	}
	s := &g.Spec
	r.add(use{Honoured, "its pods start together"}, "PodGroup spec.minMember", object)
	switch {
	case len(more.Roles) > 0:
		r.add(use{Honoured, ""}, "PodGroup spec.minTaskMember", object)
	case len(s.MinTaskMember) > 0:
		r.add(use{Ignored, "as Volcano does where minMember is less than its sum"}, "PodGroup spec.minTaskMember above minMember", object)
	}
	if len(more.Floor) > 0 {
		r.add(use{Honoured, "what the gang is charged at least"}, "PodGroup spec.minResources", object)
	}
	if s.PriorityClassName != "" {
		r.add(use{Honoured, "no higher than that of its pods"}, "PodGroup spec.priorityClassName", object)
	}
	switch {
	case as.Spec.SchedulingConstraints != nil:
		r.add(use{Honoured, "tiers are the labels in topologyLevels, HyperNodes are not read"}, "PodGroup spec.networkTopology", object)
	case s.NetworkTopology != nil:
		r.add(use{Ignored, "it is a preference, honoured with topologyLevels in Basalt's configuration"}, "PodGroup spec.networkTopology with mode soft", object)
	}
	r.annotations("PodGroup", object, g.Annotations)
}

// annotationUses are the annotations by which Volcano's scheduler is told more.
var annotationUses = map[string]use{
	v1beta1.JobWaitingTime:                   {Ignored, "gangs are ordered by priority and age"},
	v1beta1.KubeHierarchyAnnotationKey:       {Ignored, "use spec.parent and spec.weight of Queues"},
	v1beta1.PodPreemptable:                   {Honoured, "on a PodGroup, and on what Volcano's controllers copy it from; whole gangs are evicted"},
	v1beta1.CooldownTime:                     {Ignored, "set reclaimMinRuntime and preemptMinRuntime of the Queue"},
	v1beta1.JDBMinAvailable:                  {Ignored, "a gang is evicted as a whole or not at all"},
	v1beta1.JDBMaxUnavailable:                {Ignored, "a gang is evicted as a whole or not at all"},
	v1beta1.RevocableZone:                    {Refused, "nodes of a revocable zone are not kept apart: use taints and tolerations"},
	v1beta1.NumaPolicyKey:                    {Ignored, "the kubelet's topology manager decides"},
	"volcano.sh/task-topology-affinity":      {Ignored, "it is a preference"},
	"volcano.sh/task-topology-anti-affinity": {Ignored, "it is a preference"},
}

func (r *rows) annotations(kind, object string, annotations map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if u, known := annotationUses[key]; known {
			r.add(u, kind+" annotation "+key, object)
		}
	}
}

func (r *rows) job(j *batch.Job, rules *api.Rules) {
	object := j.Namespace + "/" + j.Name
	switch j.Status.State.Phase {
	case batch.Completed, batch.Failed, batch.Terminated, batch.Aborted:
		return
	}
	if j.Spec.SchedulerName != "" && !rules.Ours(j.Spec.SchedulerName) {
		return
	}
	r.add(use{Honoured, "Volcano's controllers make its pods, restart and end it"}, "Job of Volcano", object)
	r.annotations("Job", object, j.Annotations)
	for i := range j.Spec.Tasks {
		t := &j.Spec.Tasks[i]
		if t.TopologyPolicy != "" && t.TopologyPolicy != batch.None {
			r.add(use{Ignored, "the kubelet's topology manager decides"}, "Job spec.tasks[*].topologyPolicy", object)
		}
		if t.PartitionPolicy != nil {
			r.add(use{Refused, "its PodGroup has a subGroupPolicy"}, "Job spec.tasks[*].partitionPolicy", object)
		}
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: j.Namespace, Name: j.Name, Labels: t.Template.Labels, Annotations: t.Template.Annotations}, Spec: t.Template.Spec}
		if p.Spec.SchedulerName = j.Spec.SchedulerName; p.Spec.SchedulerName == "" && len(rules.Schedulers) > 0 {
			p.Spec.SchedulerName = rules.Schedulers[0]
		}
		r.pod("Job, task template:", p, rules)
	}
}

// anywhere is a cluster whose volumes may be used anywhere: what a pod's volumes let it do is not to be judged here.
type anywhere struct{}

func (anywhere) Volumes(*corev1.Pod) (api.Reach, string) { return api.Reach{}, "" }
func (anywhere) DeviceClass(string) string               { return "" }

// quoted is what differs between pods that are refused for the same reason.
var quoted = regexp.MustCompile(`"[^"]*"`)

func (r *rows) pod(kind string, p *corev1.Pod, rules *api.Rules) {
	if !rules.Ours(p.Spec.SchedulerName) || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return
	}
	object := p.Namespace + "/" + p.Name
	bare := *p
	bare.Spec.NodeName = "" // as it would be made again
	as := api.FromPod(&bare, anywhere{}, *rules)
	if as.Refused != nil {
		r.add(use{Refused, "it waits with " + as.Refused.Reason}, kind+" "+api.Shorten(quoted.ReplaceAllString(as.Refused.Message, `"..."`), 160), object)
		return
	}
	r.add(use{Honoured, "requests, node selector and affinity, affinity and anti-affinity between pods, topology spread, tolerations, host ports, volumes"}, kind+" that Basalt can place", object)
	r.annotations(kind, object, p.Annotations)
	for i := range p.Spec.Volumes {
		if v := &p.Spec.Volumes[i]; v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
			r.add(use{Honoured, "where its volume is bound, or waits for a node to be chosen, and is of a kind that Basalt can judge; else it waits with UnsupportedConstraint"}, kind+" with a PersistentVolumeClaim", object)
			break
		}
	}
}

// plugins and actions of Volcano's scheduler.
var plugins = map[string]use{
	"gang":          {Honoured, ""},
	"priority":      {Honoured, ""},
	"conformance":   {Honoured, "only gangs that Basalt placed are evicted"},
	"predicates":    {Honoured, "see the rows of pods"},
	"capacity":      {Honoured, "capability, guarantee and deserved, and reclaim of what is deserved"},
	"resourcequota": {Honoured, "Kubernetes' own quotas hold"},
	"proportion":    {Honoured, "weights divide what the parent's capability leaves: give root one"},
	"drf": {Honoured, "between sibling queues: who is above what it deserves goes by its dominant share over " +
		"its weight; in a queue, gangs go by priority and age"},
	"overcommit": {Ignored, "what is admitted is reserved"},
	"sla": {Ignored, "gangs are ordered by priority and age, and what becomes free is kept for a large one after " +
		"a minute; scheduleTimeoutSeconds of a PodGroup is for how long a gang looks for nodes"},
	"nodeorder": {Ignored, "nodes are packed; with --placement=spread they are not"},
	"binpack": {Honoured, "pack is the default policy: the node with the fewest free devices, then the fullest; " +
		"its weights are not read, and with --placement=spread nodes are not packed"},
	"usage":                  {Ignored, "nodes are judged by what is requested"},
	"task-topology":          {Ignored, "it is a preference"},
	"resource-strategy-fit":  {Ignored, "nodes are packed; with --placement=spread they are not"},
	"rescheduling":           {Ignored, "no pod is evicted to balance nodes"},
	"pdb":                    {Honoured, "PodDisruptionBudgets are preferred against, but do not protect from reclaim and preemption: set preemptible: false or a min runtime"},
	"cdp":                    {Ignored, "set reclaimMinRuntime and preemptMinRuntime of Queues"},
	"network-topology-aware": {Ignored, "set topologyLevels in Basalt's configuration: without it, mode soft has no effect and mode hard is refused"},
	"tdm":                    {Refused, "nodes of a revocable zone are not kept apart: use taints and tolerations"},
	"numaaware":              {Refused, "placement does not look into nodes"},
	"deviceshare":            {Refused, "parts of devices are not counted"},
	"nodegroup":              {Refused, "nodes of a queue are not supported yet"},
	"extender":               {Refused, "no other program is asked"},
}

var actions = map[string]use{
	"enqueue":  {Honoured, "quota is reserved before pods are made"},
	"allocate": {Honoured, ""},
	"backfill": {Honoured, "pods without requests are placed like others"},
	"preempt":  {Honoured, "whole gangs, in queues whose preemptionPolicy is PreemptLowerPriority: set it on root for all"},
	"reclaim":  {Honoured, "whole gangs, from queues above what they deserve, within what the other deserves"},
	"shuffle":  {Ignored, "no pod is evicted to balance nodes"},
}
