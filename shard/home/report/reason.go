// Package report holds what a home shard tells users about their gangs and queues.
//
// It decides:
//   - which reasons there are why a gang is blocked, in which sentences they are put, and where each one shows: in the conditions of a
//     PodGroup, in PodScheduled=False of its pods, and in `basalt status` (reason.go);
//   - when the status of a PodGroup or Queue is written, within budgets that namespaces share fairly, and its stamp (podgroup.go,
//     queue.go).
//
// It owns what the statuses of the PodGroups and Queues of its buckets say. It does not know gangs: which reason holds for one, and
// which numbers its status shows, is decided in package home. Nor does it write conditions of pods: their writes change the version
// of a pod, which only the one that commits it may do.
package report

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// Reason is why something is as it is: a code for machines and a sentence for people. The zero value says nothing.
type Reason struct{ Code, Message string }

// effect is where the reason of a gang that is blocked shows, and how soon.
type effect struct {
	charge   bool   // it is about the charge of the gang, and over when its reservation is granted
	urgent   bool   // somebody may have to act, so that it is written at once; the others may be over in a moment
	placing  bool   // it is also the reason of PodGroupInitiallyScheduled=False, which is Waiting else
	pod      string // the reason of PodScheduled=False, "" for none. Autoscalers buy nodes for Unschedulable, and for nothing else
	atOnce   bool   // pods show it at once, not after they have waited for a while
	next     string // what happens next
	hopeless bool   // nothing, before somebody changes an object or adds nodes
	soon     bool   // ... one that others change: a queue is opened, a PodGroup made
	evicted  bool   // the gang is evicted as a whole, and an event has said so
}

// effects is the table of all reasons. Every code that a PodGroup can show is in it.
var effects = map[string]effect{
	v1beta1.ReasonReserved:               {},
	v1beta1.ReasonScheduled:              {},
	v1beta1.ReasonFinished:               {placing: true},
	v1beta1.ReasonWaiting:                {next: "it is being placed"},
	v1beta1.ReasonPending:                {charge: true, next: "it is admitted when the coordinator has answered"},
	v1beta1.ReasonCoordinatorUnavailable: {charge: true, urgent: true, next: "it is requested again until a coordinator answers"},
	v1beta1.ReasonQuotaExceeded:          {charge: true, urgent: true, placing: true, pod: v1beta1.ReasonQuotaExceeded, next: "it is admitted when its queue and all ancestors have room for it: when gangs end there, or a capability is raised"},
	v1beta1.ReasonUnpreemptible:          {charge: true, urgent: true, placing: true, pod: v1beta1.ReasonQuotaExceeded, next: "it is admitted when gangs end that may not be evicted either, or what the queue deserves is raised"},
	v1beta1.ReasonQueueNotFound:          {charge: true, urgent: true, pod: v1beta1.ReasonQuotaExceeded, hopeless: true, next: "it is admitted when the Queue exists"},
	v1beta1.ReasonParentNotFound:         {charge: true, urgent: true, pod: v1beta1.ReasonQuotaExceeded, hopeless: true, next: "it is admitted when all ancestors of its queue exist"},
	v1beta1.ReasonQueueNotLeaf:           {charge: true, urgent: true, pod: v1beta1.ReasonQuotaExceeded, hopeless: true, next: "nothing, until it names a queue without children"},
	v1beta1.ReasonQueueNotAllowed:        {charge: true, urgent: true, pod: v1beta1.ReasonQueueNotAllowed, hopeless: true, next: "nothing, until the labels of its namespace match the namespaceSelector, or it names another queue"},
	v1beta1.ReasonQueueMismatch:          {urgent: true, pod: v1beta1.ReasonQuotaExceeded, hopeless: true, next: "nothing, until its pods name one queue"},
	v1beta1.ReasonNotEnoughPods:          {placing: true, pod: v1beta1.ReasonNotEnoughPods, next: "it asks for quota when enough of its pods can be scheduled"},
	v1beta1.ReasonNotEnoughPodsOfTask:    {placing: true, pod: v1beta1.ReasonNotEnoughPodsOfTask, next: "it asks for quota when enough pods of each task can be scheduled"},
	v1beta1.ReasonUnschedulable:          {placing: true, pod: v1beta1.ReasonUnschedulable, next: "it searches again when capacity is freed or nodes change, and at the latest after 30s"},
	v1beta1.ReasonConstraintUnmet:        {placing: true, pod: v1beta1.ReasonConstraintUnmet, next: "it searches again when other pods come or go, and at the latest after 30s"},
	v1beta1.ReasonVolumesNotBound:        {placing: true, pod: v1beta1.ReasonVolumesNotBound, next: "it is placed again, after 30s at the latest"},
	v1beta1.ReasonNeverFits:              {urgent: true, placing: true, pod: v1beta1.ReasonNeverFits, hopeless: true, next: "it is tried again when a capability is raised, or it asks for less"},
	v1beta1.ReasonNoNodeFits:             {urgent: true, placing: true, pod: v1beta1.ReasonUnschedulable, hopeless: true, next: "it searches again when nodes are added or change"},

	v1beta1.ReasonQueueClosed: {
		charge: true, urgent: true, pod: v1beta1.ReasonQuotaExceeded, soon: true,
		next: "it is admitted when the queue is opened",
	},
	v1beta1.ReasonPodGroupNotFound: {
		pod: v1beta1.ReasonPodGroupNotFound, soon: true,
		next: "it is scheduled when the PodGroup that it names exists",
	},
	v1beta1.ReasonSupplyExceeded: {
		charge: true, placing: true, pod: v1beta1.ReasonUnschedulable,
		next: "it is admitted once capacity is freed or added and it is first in fair-share order",
	},
	v1beta1.ReasonTooLong: {
		urgent: true, placing: true, pod: v1beta1.ReasonTooLong, hopeless: true,
		next: "nothing, until its limit is shorter, or spec.maxRuntime of the queue longer",
	},
	v1beta1.ReasonGated: {
		urgent: true, placing: true, pod: v1beta1.ReasonGated, soon: true,
		next: "it asks for quota when its gates have been removed",
	},
	v1beta1.ReasonUserLimit: {
		charge: true, placing: true, pod: v1beta1.ReasonQuotaExceeded,
		next: "it is admitted when other gangs of that user or group end",
	},
	v1beta1.ReasonUnsupportedConstraint: {
		urgent: true, placing: true, pod: v1beta1.ReasonUnsupportedConstraint, atOnce: true, hopeless: true,
		next: "nothing until the field named in the message is changed or removed",
	},
	v1beta1.ReasonPreempted: {
		urgent: true, placing: true, pod: v1beta1.ReasonPreempted, evicted: true,
		next: "it is admitted again when its queue and all ancestors have room for it",
	},
	v1beta1.ReasonStale: {
		urgent: true, placing: true, pod: v1beta1.ReasonStale, evicted: true,
		next: "it is admitted again when its queue and all ancestors have room for it",
	},
	v1beta1.ReasonBindingRejected: {
		urgent: true, placing: true, pod: v1beta1.ReasonBindingRejected,
		next: "it is bound again after a pause, of 5m0s at most, and at once when it or its PodGroup is edited",
	},
}

// None reports whether the reason says nothing.
func (r Reason) None() bool { return r.Code == "" }

// Is reports whether the reason has a code.
func (r Reason) Is(code string) bool { return r.Code == code }

// NoRoom reports whether a gang that was granted its quota found no node.
func (r Reason) NoRoom() bool {
	return r.Code == v1beta1.ReasonUnschedulable || r.Code == v1beta1.ReasonConstraintUnmet
}

// Outlasts reports whether the reason stays what users are told while the gang requests its reservation again.
func (r Reason) Outlasts() bool {
	return r.NoRoom() || r.Code == v1beta1.ReasonVolumesNotBound || r.Code == v1beta1.ReasonBindingRejected
}

// Blocks reports whether pods wait for the reason, may do so for long, and nothing else has said so.
func (r Reason) Blocks() bool { return effects[r.Code].pod != "" && !effects[r.Code].evicted }

// Hopeless reports whether waiting alone does not help.
func (r Reason) Hopeless() bool { return effects[r.Code].hopeless }

// Soon reports whether users are told of the reason soon, as waiting for longer would show nothing else.
func (r Reason) Soon() bool { return effects[r.Code].hopeless || effects[r.Code].soon }

// Next says what happens next to pods that wait for the reason.
func (r Reason) Next() string { return effects[r.Code].next }

// OfCharge reports whether the reason is over when the gang's reservation is granted.
func (r Reason) OfCharge() bool { return effects[r.Code].charge }

// OfPlacing reports whether the reason is also why the gang is not placed.
func (r Reason) OfPlacing() bool { return effects[r.Code].placing }

// AtOnce reports whether pods show the reason however short they have waited.
func (r Reason) AtOnce() bool { return effects[r.Code].atOnce }

// OnPod returns the reason as the pods of the gang show it, the zero value if they do not.
func (r Reason) OnPod() Reason {
	code := effects[r.Code].pod
	if code == "" {
		return Reason{}
	}
	return Reason{code, r.Message}
}

// Verdict is a condition: true or false, and why.
type Verdict struct {
	Yes bool
	Reason
}

// like reports whether two verdicts differ in no more than their words.
func (v Verdict) like(o Verdict) bool { return v.Yes == o.Yes && v.Code == o.Code }

// Urgent reports whether somebody may have to act on a condition.
func (v Verdict) Urgent() bool { return !v.Yes && effects[v.Code].urgent }

// Reasons from the objects of a gang.

// NoPodGroup says that pods name a PodGroup that does not exist.
func NoPodGroup(kind api.GroupKind, name string) Reason {
	return Reason{v1beta1.ReasonPodGroupNotFound, fmt.Sprintf("%s %s does not exist (%s)", kind, name, kind.NamedIn())}
}

// GroupRefused says that the PodGroup asks for what Basalt cannot do.
func GroupRefused(r *api.Refusal) Reason { return Reason{r.Reason, r.Message} }

// NotEnoughOfRole says that fewer pods of a task than its minimum may be placed.
func NotEnoughOfRole(have int, role *api.Role) Reason {
	return Reason{v1beta1.ReasonNotEnoughPodsOfTask, fmt.Sprintf("%d of %d pods of task %q can be scheduled", have, role.Min, role.Name)}
}

// Deleted says that the PodGroup is being deleted.
func Deleted() Reason { return Reason{v1beta1.ReasonNotEnoughPods, "the PodGroup is being deleted"} }

// PodNotReady says that a pod without a PodGroup may not be placed.
func PodNotReady() Reason {
	return Reason{v1beta1.ReasonNotEnoughPods, "the pod cannot be scheduled: it is gated or being deleted"}
}

// PodWithheld says that a pod without a PodGroup names a scheduler that is not Basalt now.
func PodWithheld() Reason {
	return Reason{v1beta1.ReasonNotEnoughPods, "the pod names a scheduler whose Lease (" + api.VolcanoLease + ") Basalt does not hold"}
}

// Kept is how many pods of a gang cannot be scheduled, by why not.
type Kept struct{ Failed, Gated, Withheld, Refused, Elsewhere int }

// NotEnoughPods says that so many pods can be scheduled, fewer than the minimum, and what keeps the others.
func NotEnoughPods(have, least int, kept Kept) Reason {
	words := fmt.Sprintf("%d of the %d pods that start together can be scheduled", have, least)
	add := func(n int, one, many string) {
		switch n {
		case 0:
		case 1:
			words += ", 1 " + one
		default:
			words += fmt.Sprintf(", %d %s", n, many)
		}
	}
	add(kept.Failed, "has failed", "have failed")
	add(kept.Gated, "more has scheduling gates", "more have scheduling gates")
	lease := " a scheduler whose Lease (" + api.VolcanoLease + ") Basalt does not hold"
	add(kept.Withheld, "more names"+lease, "more name"+lease)
	add(kept.Refused, "is rejected", "are rejected")
	add(kept.Elsewhere, "is charged to another gang", "are charged to other gangs")
	return Reason{v1beta1.ReasonNotEnoughPods, words}
}

// TooFewName says, after NotEnoughPods, how many pods name a group, and where, if these are too few: a label may be
// misspelt.
func TooFewName(pods int, kind api.GroupKind) string {
	switch pods {
	case 0:
		return fmt.Sprintf(": no pod names the %s (%s)", kind, kind.NamedIn())
	case 1:
		return fmt.Sprintf(": only 1 pod names the %s (%s)", kind, kind.NamedIn())
	}
	return fmt.Sprintf(": only %d pods name the %s (%s)", pods, kind, kind.NamedIn())
}

// MadeInTurn says how the controller of a gang's pods is told to make them at once, where fewer than the minimum exist.
func MadeInTurn(controller string) string {
	switch controller {
	case "StatefulSet":
		return ": a StatefulSet with podManagementPolicy OrderedReady makes a pod when the one before is ready," +
			" so write Parallel"
	case "ReplicaSet":
		return ": a Deployment with strategy RollingUpdate makes maxSurge and maxUnavailable pods at a time," +
			" so let these add up to gang-min, or write Recreate"
	}
	return ""
}

// Finished says that all pods of a gang have ended, and enough of them have succeeded. at is when the last one ended,
// as a Unix time; 0 if that is not known.
func Finished(succeeded, failed int, at int64) Reason {
	words := fmt.Sprintf("%d pods have succeeded", succeeded)
	if succeeded == 1 {
		words = "1 pod has succeeded"
	}
	if failed > 0 {
		words += fmt.Sprintf(", %d failed", failed)
	}
	if at > 0 {
		words += ", the last one ended at " + time.Unix(at, 0).UTC().Format(time.RFC3339)
	}
	return Reason{v1beta1.ReasonFinished, words}
}

// PodRefused says that a pod cannot be placed as it is.
func PodRefused(p *api.Pod, r *api.Refusal) Reason {
	return Reason{r.Reason, fmt.Sprintf("pod %s/%s: %s", p.Namespace, p.Name, r.Message)}
}

// Rejected says that the API server rejects the Binding of a pod, with its words.
func Rejected(words string) *api.Refusal {
	return &api.Refusal{Reason: v1beta1.ReasonBindingRejected, Message: "the API server rejects its Binding: " + words}
}

// Stays says that a pod of a gang that was evicted stays, with the words of the API server.
func Stays(p *api.Pod, words string) string {
	return fmt.Sprintf("pod %s/%s cannot be evicted, so the gang goes on with it: %s", p.Namespace, p.Name, words)
}

// PartlyRejected says that a gang was bound in part because the API server rejects Bindings of the others.
func PartlyRejected(bound, least int, why Reason) Reason {
	return Reason{why.Code, fmt.Sprintf("%d of %d pods were bound, and %s", bound, least, why.Message)}
}

// QueueMismatch says that the gang's objects name different queues.
func QueueMismatch(words string) Reason { return Reason{v1beta1.ReasonQueueMismatch, words} }

// QueueElsewhere says that a gang names its queue in another system's words alone.
func QueueElsewhere(words string) Reason {
	return Reason{v1beta1.ReasonUnsupportedConstraint, words}
}

// Reasons from nodes.

// PodTooLarge says that a pod requests more of a resource than the largest node has.
func PodTooLarge(p *api.Pod, resource string, want, largest int64) Reason {
	return Reason{v1beta1.ReasonNoNodeFits, fmt.Sprintf("pod %s/%s requests %s=%s, the largest node has %s",
		p.Namespace, p.Name, resource, api.FormatAmount(resource, want), api.FormatAmount(resource, largest))}
}

// NoDomainToJoin says that no node has the label of a pod's required affinity.
func NoDomainToJoin(p *api.Pod, label string) Reason {
	return Reason{v1beta1.ReasonNoNodeFits, fmt.Sprintf("no node has the label %s of spec.affinity.podAffinity of pod %s/%s", label, p.Namespace, p.Name)}
}

// TooFewDomains says that the nodes that a pod may use have fewer values of a label than its spread asks for.
func TooFewDomains(p *api.Pod, label string, has, need int) Reason {
	words := fmt.Sprintf("no node that pod %s/%s may use has the label %s of its spec.topologySpreadConstraints", p.Namespace, p.Name, label)
	if has > 0 {
		words = fmt.Sprintf("spec.topologySpreadConstraints of pod %s/%s asks for nodes with %d values of the label %s (minDomains), and there are %d", p.Namespace, p.Name, need, label, has)
	}
	return Reason{v1beta1.ReasonNoNodeFits, words}
}

// Chosen says that the node of a pod is chosen, and its volumes are being bound there.
func Chosen(node, claims string) Reason {
	return Reason{v1beta1.ReasonWaiting, fmt.Sprintf("node %s is chosen, and %s is being bound", node, claims)}
}

// BehindStuck says that a pod comes after others of its kind, which find no room.
func BehindStuck() Reason {
	return Reason{v1beta1.ReasonSupplyExceeded,
		"identical pods ahead of it are unschedulable, and spread or affinity keeps it behind them"}
}

// GangTooLarge says that pods request more of a resource than all nodes have together.
func GangTooLarge(pods int, resource string, want, total int64) Reason {
	return Reason{v1beta1.ReasonNoNodeFits, fmt.Sprintf("%d pods request %s=%s in total, all nodes have %s in total",
		pods, resource, api.FormatAmount(resource, want), api.FormatAmount(resource, total))}
}

// InVain says of a gang that no node would take whether it waits for nodes or for quota, as it was denied.
func InVain(why Reason, d *wire.Denied) Reason {
	if d.GetReason() == wire.DenyReason_DENY_SUPPLY {
		why.Message = "no node takes it: " + why.Message
		return why
	}
	r := Denied(d)
	r.Message += "; " + why.Message
	return r
}

// FitsNoNode says that no node would take a pod, with the words of the node shards, "" for none.
func FitsNoNode(p *api.Pod, words string) Reason {
	message := fmt.Sprintf("pod %s/%s would not fit on any node even if the node were empty", p.Namespace, p.Name)
	if words != "" {
		message += ": " + words
	}
	return Reason{v1beta1.ReasonNoNodeFits, message}
}

// Unschedulable says how many pods of a reserved gang do not fit at present, with the words of the node shards about one of them, "" for
// none.
func Unschedulable(missing, of int, words string) Reason {
	words = cmp.Or(words, "no shard has enough free capacity")
	if of > 1 {
		words = fmt.Sprintf("%d of %d pods do not fit: %s", missing, of, words)
	}
	return Reason{v1beta1.ReasonUnschedulable, words}
}

// Unmet says of a gang that found no node that no node is to be bought for it, and why.
func (r Reason) Unmet(why string) Reason {
	return Reason{v1beta1.ReasonConstraintUnmet, r.Message + why}
}

// VolumesAwaited says that volumes are being bound before the pods, and which pod waits for one.
func VolumesAwaited(pods int, one string) Reason {
	words := fmt.Sprintf("the nodes are chosen, and the volumes of %d pods are being bound", pods)
	if pods == 1 {
		words = "the nodes are chosen, and the volumes of 1 pod are being bound"
	}
	return Reason{v1beta1.ReasonWaiting, words + which(one)}
}

// which adds one pod, of perhaps many, to words about them; "" for none.
func which(pod string) string {
	if pod == "" {
		return ""
	}
	return ": " + pod
}

// VolumesFailed says that a volume of a pod could not be bound.
func VolumesFailed(words string) Reason {
	return Reason{v1beta1.ReasonVolumesNotBound, words + "; volumes that are bound already stay, and decide where their pods can go"}
}

// VolumesLate says that the volumes were not bound in time, and which pod waits for one.
func VolumesLate(limit time.Duration, one string) Reason {
	return Reason{v1beta1.ReasonVolumesNotBound, fmt.Sprintf("the volumes were not bound within %v of choosing the nodes", limit) + which(one)}
}

// TooFewVolumes says that pods that are to start together ask for more volumes than there are.
func TooFewVolumes(pods, claims int, class string, free int) Reason {
	there := fmt.Sprintf("there are %d", free)
	if free == 1 {
		there = "there is 1"
	}
	return Reason{v1beta1.ReasonUnsupportedConstraint, fmt.Sprintf("%d of its pods need %d free PersistentVolumes of StorageClass %s to start together, %s, and the class provisions none",
		pods, claims, class, there)}
}

// SilentShards says that the reservation was given back because node shards did not answer.
func SilentShards() Reason {
	return Reason{v1beta1.ReasonPending, "reservation released: shards that may have capacity did not respond"}
}

// Reasons from the coordinator.

// Requested says that a reservation was requested.
func Requested() Reason { return Reason{v1beta1.ReasonPending, "requested, not answered yet"} }

// NoCoordinator says that a request has not been answered for long.
func NoCoordinator() Reason {
	return Reason{v1beta1.ReasonCoordinatorUnavailable, "no coordinator responds; gangs that are admitted are not affected"}
}

// denials is the code of each denial. Those that it does not list are QuotaExceeded.
var denials = map[wire.DenyReason]string{
	wire.DenyReason_DENY_SUPPLY:            v1beta1.ReasonSupplyExceeded,
	wire.DenyReason_DENY_UNPREEMPTIBLE:     v1beta1.ReasonUnpreemptible,
	wire.DenyReason_DENY_USER_LIMIT:        v1beta1.ReasonUserLimit,
	wire.DenyReason_DENY_NEVER_FITS:        v1beta1.ReasonNeverFits,
	wire.DenyReason_DENY_TOO_LARGE:         v1beta1.ReasonNeverFits,
	wire.DenyReason_DENY_QUEUE_NOT_FOUND:   v1beta1.ReasonQueueNotFound,
	wire.DenyReason_DENY_PARENT_NOT_FOUND:  v1beta1.ReasonParentNotFound,
	wire.DenyReason_DENY_QUEUE_CLOSED:      v1beta1.ReasonQueueClosed,
	wire.DenyReason_DENY_QUEUE_NOT_LEAF:    v1beta1.ReasonQueueNotLeaf,
	wire.DenyReason_DENY_NOT_ALLOWED:       v1beta1.ReasonQueueNotAllowed,
	wire.DenyReason_DENY_REFILLING:         v1beta1.ReasonPending,
	wire.DenyReason_DENY_CLOSING:           v1beta1.ReasonPending,
	wire.DenyReason_DENY_CHARGED_ELSEWHERE: v1beta1.ReasonPending,
}

// Denied returns the reason of a denial.
func Denied(m *wire.Denied) Reason {
	r := Reason{v1beta1.ReasonQuotaExceeded, m.GetMessage()}
	if code, listed := denials[m.GetReason()]; listed {
		r.Code = code
	}
	switch {
	case r.Message != "":
	case m.GetReason() == wire.DenyReason_DENY_SUPPLY:
		r.Message = fmt.Sprintf("the nodes are short of %s=%s", m.GetResource(), api.FormatAmount(m.GetResource(), m.GetShort()))
	default:
		r.Message = fmt.Sprintf("queue %q is short of %s=%s", m.GetQueue(), m.GetResource(), api.FormatAmount(m.GetResource(), m.GetShort()))
	}
	return r
}

// TooManyResources is the message of a request that is too large for the coordinator.
func TooManyResources() string {
	return fmt.Sprintf("its pods request more than %d different resources, the limit for a gang", api.MaxGangResources)
}

// Yielded says that the gang is evicted so that another one can start, or as it is stale.
func Yielded(to *wire.Yielding) Reason {
	if to.GetRule() == wire.Rule_RULE_STALE {
		return Reason{v1beta1.ReasonStale, to.GetWhy()}
	}
	return Reason{v1beta1.ReasonPreempted, to.GetWhy()}
}

// TooLong says that a gang may run for longer, as is said by one object, than a queue of its path allows.
func TooLong(limit time.Duration, by string, longest time.Duration, queue string) Reason {
	return Reason{v1beta1.ReasonTooLong,
		fmt.Sprintf("it may run for %s (%s), and gangs of queue %q for %s at most (spec.maxRuntime)",
			limit, by, queue, longest)}
}

// StaleWords says why a gang is evicted that lost pods of its minimum.
func StaleWords(left, least int, waited time.Duration, by string) string {
	return fmt.Sprintf("evicted as a whole so that it can start anew: %d of at least %d pods are left, and pods that "+
		"would replace the others have waited for %s (spec.staleAfter of %s)", left, least, waited, by)
}

// Shrunk says that pods which a gang has beyond its minimum are evicted.
func Shrunk(pods int, why string) string {
	if pods == 1 {
		return "1 pod above minCount is " + why
	}
	return fmt.Sprintf("%d pods above minCount are %s", pods, why)
}

// Disrupts says of how many pods of a gang that are evicted some PodDisruptionBudgets do not allow it, after a message that says why they
// are; "" for none.
func Disrupts(pods int, budgets []string) string {
	if pods == 0 {
		return ""
	}
	const named = 3
	more := ""
	if n := len(budgets) - named; n > 0 {
		budgets, more = budgets[:named], fmt.Sprintf(" and %d more", n)
	}
	who := "PodDisruptionBudget %s%s does"
	if len(budgets) > 1 {
		who = "PodDisruptionBudgets %s%s do"
	}
	of := "1 of its pods"
	if pods > 1 {
		of = fmt.Sprintf("%d of its pods", pods)
	}
	return fmt.Sprintf("; "+who+" not allow it for %s", strings.Join(budgets, ", "), more, of)
}

// Claims says for whom a gang waits that has a claim. Nothing is said of them where another home made it.
func Claims(victims []string) string {
	if len(victims) == 0 {
		return "waiting for preempted pods to terminate"
	}
	return Evicted(victims) + "; starts when they are gone"
}

// Evicted says what is evicted for a gang: others, or some pods of them.
func Evicted(victims []string) string { return "evicted for it: " + strings.Join(victims, ", ") }

// Uncharged says that pods which have a node are not charged because that was denied.
func Uncharged(denial Reason) Reason {
	return Reason{denial.Code, "some bound pods are not charged to the queue: " + denial.Message}
}

// Unusable says that pods which have a node are not charged because they cannot run there.
func Unusable() Reason {
	return Reason{v1beta1.ReasonPending,
		"some bound pods are not charged to the queue: their node does not exist, or has no room for them"}
}

// What the conditions of a PodGroup say beside why the gang is blocked.

// Reserved says that the gang is charged.
func Reserved(queue string) Reason {
	return Reason{v1beta1.ReasonReserved, fmt.Sprintf("charged to queue %q and all of its ancestors", queue)}
}

// ReleasedFor says why the reservation was given back.
func ReleasedFor(why Reason) Reason {
	return Reason{v1beta1.ReasonPending, "released because " + why.Message + "; requested again after a pause"}
}

// NoCapacity says that there is no reservation for want of capacity: it was given back, or is not requested yet.
func NoCapacity() Reason {
	return Reason{v1beta1.ReasonPending, "not reserved while there is not enough free capacity; requested when capacity is freed"}
}

// NotRequested says that no reservation was requested yet.
func NotRequested() Reason { return Reason{v1beta1.ReasonPending, "quota not requested yet"} }

// Scheduled says that the gang has started.
func Scheduled(least int) Reason {
	return Reason{v1beta1.ReasonScheduled, fmt.Sprintf("at least %d pods were bound", least)}
}

// Partly says that the gang was bound in part for too long.
func Partly(bound, least int, limit time.Duration) Reason {
	return Reason{v1beta1.ReasonUnschedulable, fmt.Sprintf("%d of %d pods were bound, and the others did not fit within %s", bound, least, limit)}
}

// PartlyStays says that what is left of a gang that was evicted stays.
func PartlyStays(bound, least int) Reason {
	return Reason{v1beta1.ReasonUnschedulable,
		fmt.Sprintf("%d of %d pods are bound and could not be evicted, and wait for the others", bound, least)}
}

// NotPlaced says that placing the gang has not failed.
func NotPlaced() Reason { return Reason{v1beta1.ReasonWaiting, "not placed yet"} }
