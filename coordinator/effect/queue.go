package effect

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/coordinator"
)

// QueueSeen returns what the core hears of a Queue. The API server's validation lets nothing bad through, but it may be switched off, and objects
// may be older than it.
func QueueSeen(q *v1beta1.Queue) coordinator.QueueSeen {
	ev := coordinator.QueueSeen{
		Name: q.Name, UID: string(q.UID), ResourceVersion: q.ResourceVersion, Generation: q.Generation,
		Namespaces: q.Spec.NamespaceSelector, Closed: q.Spec.Closed, Deleting: q.DeletionTimestamp != nil,
		Weight: weight(q.Spec.Weight), Priority: q.Spec.Priority, HasFinalizer: slices.Contains(q.Finalizers, v1beta1.FinalizerCharged),
	}
	if q.Status != nil {
		ev.StatusEpoch = api.Epoch(max(0, q.Status.Epoch))
	}
	var err error
	if err = api.ValidatePath(q.Name); err == nil {
		if ev.Capability, err = readLimits("spec.capability", q.Spec.Capability); err == nil {
			ev.Guarantee, err = readLimits("spec.guarantee", q.Spec.Guarantee)
			ev.Guarantee = ev.Guarantee.Positive()
		}
		if err == nil {
			ev.Deserved, err = readLimits("spec.deserved", q.Spec.Deserved)
		}
		if err == nil {
			ev.UserLimits, err = userLimits(q.Spec.UserLimits)
		}
		if err == nil {
			ev.Policy, err = policy(&q.Spec)
		}
	}
	if err != nil {
		ev.Invalid = err.Error()
	}
	return ev
}

// userLimits reads spec.userLimits.
func userLimits(in []v1beta1.UserLimit) (out []*wire.UserLimit, err error) {
	if n := len(in); n > v1beta1.MaxUserLimits {
		return nil, fmt.Errorf("spec.userLimits: it has %d entries, the limit is %d", n, v1beta1.MaxUserLimits)
	}
	for i, l := range in {
		field := fmt.Sprintf("spec.userLimits[%d]", i)
		kinds := 0
		for _, list := range [][]string{l.Users, l.Groups} {
			if len(list) > 0 {
				kinds++
			}
			if n := len(list); n > v1beta1.MaxUserNames {
				return nil, fmt.Errorf("%s: it names %d users or groups, the limit is %d", field, n, v1beta1.MaxUserNames)
			}
			for _, name := range list {
				if len(name) == 0 || len(name) > api.MaxUserName {
					return nil, fmt.Errorf("%s: %q has %d bytes: from 1 to %d", field, api.Shorten(name, maxWord),
						len(name), api.MaxUserName)
				}
			}
		}
		if l.Each {
			kinds++
		}
		if kinds != 1 {
			return nil, fmt.Errorf("%s: exactly one of users, groups and each says whose limit it is", field)
		}
		capability, err := readLimits(field+".capability", l.Capability)
		if err != nil {
			return nil, err
		}
		out = append(out, &wire.UserLimit{Users: l.Users, Groups: l.Groups, Each: l.Each,
			Capability: wire.FromResources(capability)})
	}
	return out, nil
}

// weight reads spec.weight.
func weight(w *int32) *uint32 {
	if w == nil || *w == 1 {
		return nil
	}
	return new(uint32(min(max(*w, 0), math.MaxUint16)))
}

// policy reads who may be evicted for whom. It returns nil if the spec says nothing of it but the defaults.
func policy(s *v1beta1.QueueSpec) (*wire.QueuePolicy, error) {
	p := &wire.QueuePolicy{Kept: s.Reclaimable != nil && !*s.Reclaimable}
	switch s.ReclaimPolicy {
	case "", v1beta1.ReclaimDeserved:
	case v1beta1.ReclaimFairShare:
		p.Reclaim = wire.Reclaim_RECLAIM_FAIR_SHARE
	case v1beta1.ReclaimNever:
		p.Reclaim = wire.Reclaim_RECLAIM_NEVER
	default:
		return nil, fmt.Errorf("spec.reclaimPolicy: %q is not one of Deserved, FairShare and Never", api.Shorten(string(s.ReclaimPolicy), maxWord))
	}
	switch s.PreemptionPolicy {
	case "":
	case v1beta1.PreemptNever, v1beta1.PreemptLowerPriority:
		p.Preempts = new(s.PreemptionPolicy == v1beta1.PreemptLowerPriority)
	default:
		return nil, fmt.Errorf("spec.preemptionPolicy: %q is not one of Never and PreemptLowerPriority", api.Shorten(string(s.PreemptionPolicy), maxWord))
	}
	var ofHomes *int64
	const week, year = v1beta1.MaxPolicyDuration, v1beta1.MaxRuntime
	for _, d := range []struct {
		field string
		said  *metav1.Duration
		to    **int64
		most  time.Duration
	}{
		{"spec.reclaimMinRuntime", s.ReclaimMinRuntime, &p.ReclaimMinRuntimeMs, week},
		{"spec.preemptMinRuntime", s.PreemptMinRuntime, &p.PreemptMinRuntimeMs, week},
		{"spec.preemptionDelay", s.PreemptionDelay, &p.PreemptionDelayMs, week},
		{"spec.repairFor", s.RepairFor, &ofHomes, week}, // which read it from the Queue
		{"spec.staleAfter", s.StaleAfter, &ofHomes, week},
		{"spec.maxRuntime", s.MaxRuntime, &ofHomes, year},
		{"spec.defaultRuntime", s.DefaultRuntime, &ofHomes, year},
	} {
		switch {
		case d.said == nil:
		case d.said.Duration < 0:
			return nil, fmt.Errorf("%s: it is negative: %s", d.field, d.said.Duration)
		case d.said.Duration > d.most:
			return nil, fmt.Errorf("%s: it is %s, the limit is %s", d.field, d.said.Duration, d.most)
		default: // part of a millisecond counts as one
			*d.to = new((d.said.Duration + time.Millisecond - 1).Milliseconds())
		}
	}
	if proto.Equal(p, &wire.QueuePolicy{}) {
		return nil, nil
	}
	return p, nil
}

// maxWord is how much of an unknown word is repeated.
const maxWord = 32

// readLimits reads spec.capability, spec.guarantee or spec.deserved. It keeps zeros: a capability of zero is a limit.
func readLimits(field string, l corev1.ResourceList) (api.Resources, error) {
	if len(l) > api.MaxResources {
		return nil, fmt.Errorf("%s: it names %d resources, the limit is %d", field, len(l), api.MaxResources)
	}
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if err := api.CheckResourceName(string(name)); err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
	}
	r, err := api.FromResourceList(l, false)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	for name, q := range l {
		if q.IsZero() {
			r = append(r, api.Amount{Resource: string(name)})
		}
	}
	slices.SortFunc(r, func(a, b api.Amount) int { return strings.Compare(a.Resource, b.Resource) })
	return r, nil
}
