package api

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// foreignGroup is a label or annotation by which other schedulers and queueing systems put a pod into a group. A pod that has one
// expects to start together with the others of that group, or to be counted with them. Bound as a pod of its own it would start
// alone and without their quota, so it is refused where Basalt does not serve groups of that kind.
type foreignGroup struct {
	where
	kind string // for users
}

var foreignGroups = []foreignGroup{
	{where{volcanoGroupName, true}, VolcanoGroup.String()},
	{where{volcanoGroupName2, true}, VolcanoGroup.String()},
	{where{"scheduling.x-k8s.io/pod-group", false}, "PodGroup of the coscheduling plugin"},
	{where{"pod-group.scheduling.sigs.k8s.io", false}, "PodGroup of the coscheduling plugin"},
	{where{"pod-group.scheduling.sigs.k8s.io/name", false}, "PodGroup of the coscheduling plugin"},
	{where{"gang.scheduling.koordinator.sh/name", true}, "Koordinator gang"},
	{where{"yunikorn.apache.org/task-group-name", true}, "YuniKorn task group"},
	{where{"pod-group-name", true}, "KAI PodGroup"},
	{where{"godel.bytedance.com/pod-group-name", true}, "Gödel PodGroup"},
}

// foreignQueue is a label or annotation by which a pod names a queue of another system. Basalt does not read it: if
// nothing else says who pays for the pod, it is not placed, for it would be charged to a queue that nobody chose.
type foreignQueue struct {
	where
	system string
}

var foreignQueues = []foreignQueue{
	{where{"kueue.x-k8s.io/queue-name", false}, kueue},
	{where{"kueue.x-k8s.io/queue-name", true}, kueue},
	{where{"yunikorn.apache.org/queue", false}, "YuniKorn"},
	{where{"yunikorn.apache.org/queue", true}, "YuniKorn"},
	{where{volcanoQueueOfAPod, true}, "Volcano"},
	{where{volcanoQueueOfAPod, false}, "Volcano"},
	{where{"volcano.sh/queue-name", true}, "Volcano"},
	{where{"volcano.sh/queue-name", false}, "Volcano"},
	{where{"kai.scheduler/queue", false}, "KAI"},
	{where{"runai/queue", false}, "KAI"},
	{where{"quota.scheduling.koordinator.sh/name", false}, "Koordinator"},
}

// admittedByKueue reports whether a pod has a label that Kueue's controllers write on what they admit. Kueue decides
// what starts, and Basalt where: the queue that such a pod names has been charged.
func admittedByKueue(p *v1.Pod) bool {
	return p.Labels["kueue.x-k8s.io/managed"] != "" || p.Labels["kueue.x-k8s.io/podset"] != ""
}

const kueue = "Kueue"

// queueElsewhere says in which words of another system a pod names its queue, if it does so in no other; else "".
func queueElsewhere(p *v1.Pod) string {
	for i := range foreignQueues {
		f := &foreignQueues[i]
		name := f.of(p)
		if name == "" || f.system == kueue && admittedByKueue(p) {
			continue
		}
		return fmt.Sprintf(
			"%s names the queue %q of %s, which Basalt does not read: name a Queue of Basalt's in the label %s",
			f.field(), Shorten(name, maxGroupName), f.system, LabelQueue)
	}
	return ""
}

// podWords are all labels and annotations of pods that mean something to Basalt. Others that begin like them are slips,
// or words of a later version: the pod is placed without regard to them, and is told so.
var podWords = []where{
	{LabelPodGroup, false}, {LabelQueue, false}, {LabelPreemptible, false}, {LabelGang, false},
	{AnnotationGangMin, true}, {AnnotationGangName, true}, {AnnotationGangLabels, true},
	{AnnotationMaxRuntime, true}, {AnnotationUntil, true}, {AnnotationUser, true}, {AnnotationGroups, true},
}

const (
	prefixWords = "scheduling.basalt.dev/"
	maxSlip     = 3 // letters in which a slip differs from the word that was meant
)

// slipOf returns the first label or annotation of a pod that begins like those of Basalt and is none, nil if there is
// none. Those that StripPod writes itself are not looked at.
func slipOf(p *v1.Pod) (found *where) {
	for _, annotation := range []bool{false, true} {
		words := p.Labels
		if annotation {
			words = p.Annotations
		}
		for key := range words {
			w := where{key, annotation}
			if strings.HasPrefix(key, prefixWords) && len(key) <= maxGroupName && !slices.Contains(podWords, w) &&
				!slices.Contains(stripWords, key) && (found == nil || w.field() < found.field()) {
				found = &w
			}
		}
	}
	return found
}

// slipWords says what is wrong with a pod's slip, and what may have been meant; "" if it has none.
func slipWords(p *v1.Pod) string {
	slip := slipOf(p)
	if slip == nil {
		return ""
	}
	meant, best := "", maxSlip+1
	for _, word := range podWords {
		if d := differ(word.key, slip.key); d < best {
			best, meant = d, ", but "+word.field()+" is"
		}
	}
	return slip.field() + " is no word of Basalt's" + meant
}

// differ is Distance, and no further than maxSlip if the lengths alone differ by more.
func differ(a, b string) int {
	if len(a)-len(b) > maxSlip || len(b)-len(a) > maxSlip {
		return maxSlip + 1
	}
	return Distance(a, b)
}

// Distance is the Levenshtein distance: how many bytes have to be inserted, removed or replaced.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal, row[j+1] = row[j+1], min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// maxGroupName is how much of a group's name is repeated to a user: an annotation may have 256 KiB.
const maxGroupName = 253

// where is a label or an annotation of a pod.
type where struct {
	key        string
	annotation bool
}

func (w where) of(p *v1.Pod) string {
	if w.annotation {
		return p.Annotations[w.key]
	}
	return p.Labels[w.key]
}

// put gives the label or annotation to a pod, unless it would be empty.
func (w where) put(to *v1.Pod, value string) {
	m := &to.Labels
	if w.annotation {
		m = &to.Annotations
	}
	if value == "" || !w.annotation && (*m)[w.key] != "" { // labels are the pod's own, and all of them
		return
	}
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[w.key] = value
}

func (w where) field() string {
	if w.annotation {
		return "metadata.annotations[" + w.key + "]"
	}
	return "metadata.labels[" + w.key + "]"
}

// GroupKind is a kind of object that says which pods start together, and how many of them at least.
type GroupKind uint8

const (
	BasaltGroup   GroupKind = iota // PodGroup of scheduling.basalt.dev
	VolcanoGroup                   // PodGroup of scheduling.volcano.sh
	UpstreamGroup                  // PodGroup of scheduling.k8s.io, Kubernetes' own
	ImpliedGroup                   // no object: its pods say all of it (implied.go)
)

func (k GroupKind) String() string {
	switch k {
	case VolcanoGroup:
		return "Volcano PodGroup"
	case UpstreamGroup:
		return "PodGroup of scheduling.k8s.io"
	case ImpliedGroup:
		return "gang"
	}
	return "PodGroup"
}

// NamedIn says where a pod names its group.
func (k GroupKind) NamedIn() string {
	switch k {
	case VolcanoGroup:
		return "annotation " + volcanoGroupName
	case UpstreamGroup:
		return "spec.schedulingGroup"
	}
	return "label " + LabelPodGroup
}

// Where Volcano's controllers and users name a pod's PodGroup, its task in it, and the queue of a pod without one.
const (
	volcanoGroupName   = "scheduling.k8s.io/group-name"
	volcanoGroupName2  = "scheduling.volcano.sh/group-name"
	volcanoTask        = "volcano.sh/task-spec"
	volcanoQueueOfAPod = "scheduling.volcano.sh/queue-name"
)

// readGroup reads which group a pod belongs to, and as what, by the rules.
func (p *Pod) readGroup(from *v1.Pod, rules *Rules) {
	p.Group = from.Labels[LabelPodGroup]
	if name := upstreamGroup(from); name != "" && p.Group == "" && p.Ours {
		p.Group, p.GroupKind = name, UpstreamGroup
	}
	if !p.Ours {
		return
	}
	if name := volcanoGroup(from); name != "" && p.Group == "" && rules.Volcano {
		p.Group, p.GroupKind = name, VolcanoGroup
		p.Role = Shorten(cmp.Or(from.Annotations[volcanoTask], from.Labels[volcanoTask]), maxGroupName)
		p.PerController = volcanoPerController(from)
	}
	if p.Group == "" {
		if p.Group, p.GroupMin = Implied(from); p.Group != "" {
			p.GroupKind, p.Role = ImpliedGroup, makerOf(from)
		}
	}
	if p.Queue == "" && (p.Group == "" || p.PerController) && rules.Volcano {
		p.VolcanoQueue = Shorten(from.Annotations[volcanoQueueOfAPod], maxGroupName)
	}
	if p.Queue == "" && p.VolcanoQueue == "" && p.Node == "" {
		p.QueueElsewhere = queueElsewhere(from)
	}
}

// makerOf returns the kind of a pod's controller if that may make its pods a few at a time.
func makerOf(p *v1.Pod) string {
	if o := metav1.GetControllerOfNoCopy(p); o != nil && (o.Kind == "ReplicaSet" || o.Kind == "StatefulSet") {
		return o.Kind
	}
	return ""
}

// volcanoGroup returns the Volcano PodGroup that a pod names, "" for none.
func volcanoGroup(p *v1.Pod) string {
	name := p.Annotations[volcanoGroupName]
	if name == "" {
		name = p.Annotations[volcanoGroupName2]
	}
	return Shorten(name, maxGroupName)
}

// volcanoPerController reports whether a pod names the PodGroup that Volcano's podgroup controller makes for the pods of a controller
// that makes none itself, such as a ReplicaSet. Its name has the controller's UID, so no other controller's pods are in it.
func volcanoPerController(p *v1.Pod) bool {
	owner := metav1.GetControllerOfNoCopy(p)
	return owner != nil && owner.UID != "" && volcanoGroup(p) == VolcanoPerController+string(owner.UID)
}

// VolcanoPerController is what the names of such PodGroups begin with.
const VolcanoPerController = "podgroup-"

// upstreamGroup returns the PodGroup of scheduling.k8s.io that a pod names, "" for none.
func upstreamGroup(p *v1.Pod) string {
	if g := p.Spec.SchedulingGroup; g != nil && g.PodGroupName != nil {
		return Shorten(*g.PodGroupName, maxGroupName)
	}
	return ""
}

// groupRefusal says why a pod cannot be placed for the groups that it names: more than one, one of a kind that Basalt does not serve, or
// one that it describes badly. It returns "" if there is nothing to say.
func groupRefusal(p *v1.Pod, rules *Rules) string {
	type naming struct{ field, kind, name string }
	var named []naming
	if own := p.Labels[LabelPodGroup]; own != "" {
		named = append(named, naming{"metadata.labels[" + LabelPodGroup + "]", "PodGroup", own})
	}
	unserved := -1
	add := func(n naming, served bool) {
		if !served && unserved < 0 {
			unserved = len(named)
		}
		named = append(named, n)
	}
	if p.Spec.SchedulingGroup != nil {
		name := upstreamGroup(p)
		add(naming{"spec.schedulingGroup", UpstreamGroup.String(), name}, name != "")
	}
	for i := range foreignGroups {
		f := &foreignGroups[i]
		name := Shorten(f.of(p), maxGroupName)
		if name == "" || len(named) > 0 && named[len(named)-1].kind == f.kind && named[len(named)-1].name == name {
			continue // a scheduler's two names for the same
		}
		add(naming{f.field(), f.kind, name}, rules.Volcano && f.kind == VolcanoGroup.String())
	}
	wrong := ""
	for i := range groupRules {
		r := &groupRules[i]
		g, says := r.read(p)
		if !says || r.yields && len(named) > 0 {
			continue
		}
		add(naming{g.field, r.kind, g.name}, true)
		wrong = cmp.Or(wrong, g.wrong)
	}
	switch {
	case len(named) > 1:
		return fmt.Sprintf("%s names the %s %q, and %s names the %s %q: a pod belongs to one group",
			named[0].field, named[0].kind, named[0].name, named[1].field, named[1].kind, named[1].name)
	case unserved >= 0:
		n := named[unserved]
		return fmt.Sprintf("%s names the %s %q: Basalt does not serve such groups%s and does not bind the pod alone. "+
			"To place it with others, name a PodGroup of scheduling.basalt.dev in the label %s", n.field, n.kind, n.name, howToServe(n.kind), LabelPodGroup)
	}
	return wrong
}

// howToServe says how an administrator has a kind of group served.
func howToServe(kind string) string {
	if kind == VolcanoGroup.String() {
		return " unless it is started with --volcano=observe or write,"
	}
	return " yet"
}

// stripGroups keeps what FromPod reads of groups in labels and annotations.
func stripGroups(to, p *v1.Pod) {
	for i := range foreignGroups {
		f := &foreignGroups[i]
		if p.Spec.NodeName != "" && f.kind != VolcanoGroup.String() {
			continue // nobody refuses a bound pod
		}
		f.put(to, Shorten(f.of(p), maxGroupName))
	}
	if p.Spec.NodeName == "" {
		for i := range foreignQueues {
			foreignQueues[i].put(to, Shorten(foreignQueues[i].of(p), maxGroupName))
		}
		if slip := slipOf(p); slip != nil {
			slip.put(to, "true")
		}
	}
	for i := range groupRules {
		groupRules[i].keep(to, p)
	}
	for _, w := range []where{{volcanoTask, true}, {volcanoTask, false}, {volcanoQueueOfAPod, true}} {
		w.put(to, Shorten(w.of(p), maxGroupName))
	}
}

// ForeignGroup is what a group of another kind than Basalt's PodGroup says beyond what such a one can say. Of a
// PodGroup with spec.minResources it is these alone.
type ForeignGroup struct {
	Kind    GroupKind
	Roles   []Role    // how many pods of each start together, sorted by name
	Floor   Resources // what the gang is charged at least, whatever its pods request
	Never   bool      // no other gang is evicted for it
	Refused *Refusal
	Status  GroupStatus // as it is shown
}

// RefuseGroup says of a group of another kind what it asks for that Basalt cannot do. It returns nil if that is nothing.
func RefuseGroup(kind GroupKind, namespace, name, field string) *Refusal {
	if field == "" {
		return nil
	}
	return &Refusal{Reason: "UnsupportedConstraint", Message: fmt.Sprintf("%s %s/%s: %s", kind, namespace, name, field)}
}

// CheckVolcano returns an error for a --volcano that means nothing.
func CheckVolcano(mode string) error {
	switch mode {
	case "off", "observe", "write":
		return nil
	}
	return fmt.Errorf("--volcano=%s: off, observe or write", mode)
}

// MaxGroupMessage bounds the message in the status of a group of another kind.
const MaxGroupMessage = 1024

// GroupStatus is what the status of a group of another kind says, or is to say.
type GroupStatus struct {
	Reserved  Verdict // its quota is, or its pods may be made
	Scheduled Verdict // it had its minimum once
	Ended     bool    // all its pods have
}

// Verdict is what a condition says.
type Verdict struct {
	Yes             bool
	Reason, Message string
}

// Role is a task of a gang, and how many of its pods the gang needs to start.
type Role struct {
	Name string
	Min  int
}

// Rules are what the configuration says about reading pods. The zero value has the defaults.
type Rules struct {
	Schedulers []string        // the names in spec.schedulerName whose pods are Basalt's; empty for SchedulerName alone
	Volcano    bool            // pods may belong to PodGroups of scheduling.volcano.sh
	Leased     bool            // names other than SchedulerName are Basalt's while it holds Volcano's Lease, and only then
	Ignored    map[string]bool // resources that neither placement nor quota counts
	Images     bool            // pods prefer nodes that have their images
	Tiers      *TierRules      // nil for none
	Levels     []string        // labels of nodes, from the largest kind of topology domain to the smallest
	EmptyAll   bool            // a spread with an empty selector counts all pods of its namespace (FromEmpty)
}

// Ours reports whether pods with this spec.schedulerName are placed by Basalt.
func (r *Rules) Ours(scheduler string) bool {
	if len(r.Schedulers) == 0 {
		return scheduler == SchedulerName
	}
	return slices.Contains(r.Schedulers, scheduler)
}

// meant returns the name of Basalt's that a scheduler's name differs from in nothing but the case of its letters, ""
// for none. Nobody serves the other one, so its pod would wait for ever without a word.
func (r *Rules) meant(scheduler string) string {
	for _, name := range r.Schedulers {
		if strings.EqualFold(name, scheduler) {
			return name
		}
	}
	if len(r.Schedulers) == 0 && strings.EqualFold(SchedulerName, scheduler) {
		return SchedulerName
	}
	return ""
}

// readScheduler reads whose pod it is. One that names a scheduler whom nobody serves is refused as Basalt's if nothing
// but the case of letters is wrong.
func (p *Pod) readScheduler(from *v1.Pod, rules *Rules) {
	name := from.Spec.SchedulerName
	p.Ours = rules.Ours(name)
	if meant := rules.meant(name); !p.Ours && p.Node == "" && meant != "" {
		p.Ours = true
		p.Refused = &Refusal{"UnsupportedConstraint",
			fmt.Sprintf("spec.schedulerName is %q, and no scheduler has that name: write %q", name, meant)}
	}
	p.Lent = rules.Leased && p.Ours && name != SchedulerName
}

// allOf joins what there is to say of several things.
func allOf(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), "; ")
}

// Nearest returns which of some names is meant by a word that is none of them, "" if it resembles none.
func Nearest(wrong string, names []string) string {
	best, least := "", len(wrong)/2+2
	for _, name := range names {
		if d := Distance(strings.ToLower(wrong), strings.ToLower(name)); d < least {
			best, least = name, d
		}
	}
	return best
}
