package effect

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/coordinator"
)

// ReadChanges reads what somebody asks about, as a Queue is read and by the rules of its validation. Errors name the queue and the field.
func ReadChanges(in []*wire.QueueChange) (out []coordinator.Change, err error) {
	for _, c := range in {
		if err := api.ValidatePath(c.GetQueue()); err != nil {
			return nil, err
		}
		apply, err := change(c)
		if err != nil {
			return nil, fmt.Errorf("queue %q: %w", c.GetQueue(), err)
		}
		out = append(out, coordinator.Change{Queue: c.GetQueue(), Apply: apply})
	}
	return out, nil
}

// vectors are the fields that name resources.
var vectors = map[string]func(*coordinator.QueueSeen) *api.Resources{
	"capability": func(o *coordinator.QueueSeen) *api.Resources { return &o.Capability },
	"guarantee":  func(o *coordinator.QueueSeen) *api.Resources { return &o.Guarantee },
	"deserved":   func(o *coordinator.QueueSeen) *api.Resources { return &o.Deserved },
}

const fields = "capability.RESOURCE, guarantee.RESOURCE, deserved.RESOURCE, weight, priority, closed, reclaimable, reclaimPolicy, preemptionPolicy, " +
	"reclaimMinRuntime, preemptMinRuntime, preemptionDelay"

// others are the fields of fields that name no resources.
var others = []string{"weight", "priority", "closed", "reclaimable", "reclaimPolicy", "preemptionPolicy",
	"reclaimMinRuntime",
	"preemptMinRuntime", "preemptionDelay"}

// mistyped returns the field that is meant by one that there is not, "" if there is, or if it resembles none.
func mistyped(field string) string {
	if slices.Contains(others, field) || len(field) > maxWord {
		return ""
	}
	return api.Nearest(field, append(api.SortedKeys(vectors), others...))
}

func change(c *wire.QueueChange) (func(*coordinator.QueueSeen), error) {
	field, value := c.GetField(), c.GetValue()
	if of := vectors[field]; of != nil {
		amount, err := amounts(field, c.GetResource(), value)
		if err != nil {
			return nil, err
		}
		if field == "guarantee" && amount != nil && *amount == 0 { // QueueSeen keeps no zeros of it
			amount = nil
		}
		return func(o *coordinator.QueueSeen) { *of(o) = with(*of(o), c.GetResource(), amount) }, nil
	}
	if near := mistyped(field); near != "" {
		return nil, fmt.Errorf("spec.%s: there is no such field; did you mean %s?", api.Shorten(field, maxWord), near)
	}
	if c.GetResource() != "" {
		return nil, fmt.Errorf("spec.%s: it names no resources", api.Shorten(field, maxWord))
	}
	bad := func(want string) error {
		return fmt.Errorf("spec.%s: %q is not %s", field, api.Shorten(value, maxWord), want)
	}
	set := value != ""
	spec := v1beta1.QueueSpec{}
	switch field {
	case "weight":
		n, err := strconv.ParseInt(value, 10, 32)
		if set && (err != nil || n < 0 || n > 65535) {
			return nil, bad("a number from 0 to 65535")
		}
		if set {
			spec.Weight = new(int32(n))
		}
		return func(o *coordinator.QueueSeen) { o.Weight = weight(spec.Weight) }, nil
	case "priority":
		n, err := strconv.ParseInt(value, 10, 32)
		if set && err != nil {
			return nil, bad("a number of 32 bits")
		}
		return func(o *coordinator.QueueSeen) { o.Priority = int32(n) }, nil
	case "closed", "reclaimable":
		if set && value != "true" && value != "false" {
			return nil, bad("true or false")
		}
		if field == "closed" {
			return func(o *coordinator.QueueSeen) { o.Closed = value == "true" }, nil
		}
		if set {
			spec.Reclaimable = new(value == "true")
		}
	case "reclaimPolicy":
		spec.ReclaimPolicy = v1beta1.ReclaimPolicy(value)
	case "preemptionPolicy":
		spec.PreemptionPolicy = v1beta1.PreemptionPolicy(value)
	case "reclaimMinRuntime", "preemptMinRuntime", "preemptionDelay":
		d, err := time.ParseDuration(value)
		if set && (err != nil || len(value) > maxWord) {
			return nil, bad("a duration such as 30s, 10m or 1h30m")
		}
		to := map[string]**metav1.Duration{"reclaimMinRuntime": &spec.ReclaimMinRuntime, "preemptMinRuntime": &spec.PreemptMinRuntime, "preemptionDelay": &spec.PreemptionDelay}[field]
		if set {
			*to = &metav1.Duration{Duration: d}
		}
	default:
		return nil, fmt.Errorf("spec.%s: it is not one of %s", api.Shorten(field, maxWord), fields)
	}
	said, err := policy(&spec)
	if err != nil {
		return nil, err
	}
	return func(o *coordinator.QueueSeen) { o.Policy = policyWith(o.Policy, field, said) }, nil
}

// policyWith is a policy with one field of another.
func policyWith(p *wire.QueuePolicy, field string, said *wire.QueuePolicy) *wire.QueuePolicy {
	out := &wire.QueuePolicy{}
	if p != nil {
		proto.Merge(out, p)
	}
	if said == nil {
		said = &wire.QueuePolicy{}
	}
	switch field {
	case "reclaimable":
		out.Kept = said.Kept
	case "reclaimPolicy":
		out.Reclaim = said.Reclaim
	case "preemptionPolicy":
		out.Preempts = said.Preempts
	case "reclaimMinRuntime":
		out.ReclaimMinRuntimeMs = said.ReclaimMinRuntimeMs
	case "preemptMinRuntime":
		out.PreemptMinRuntimeMs = said.PreemptMinRuntimeMs
	case "preemptionDelay":
		out.PreemptionDelayMs = said.PreemptionDelayMs
	}
	return out
}

// What api/generate/crds lets pass as a quantity, and as the name of a resource that can be limited.
var (
	quantity  = regexp.MustCompile(`^[+-]?([0-9]+[.]?[0-9]*|[.][0-9]+)([numkMGTPE]|[KMGTPE]i|[eE][+-]?[0-9]{1,2})?$`)
	limitable = regexp.MustCompile(`^(cpu|memory|ephemeral-storage|pods|hugepages-[0-9]+([KMGTPE]i)?|[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)$`)
)

// amounts reads the amount of a resource, nil for none.
func amounts(field, name, value string) (*int64, error) {
	switch {
	case name == "":
		return nil, fmt.Errorf("spec.%s: it names no resource: write %s.cpu=8 or %s.nvidia.com/gpu=2", field, field, field)
	case !limitable.MatchString(name):
		return nil, fmt.Errorf("spec.%s: %q cannot be limited: use cpu, memory, ephemeral-storage, pods, hugepages-SIZE or an extended resource such as example.com/gpu", field, api.Shorten(name, maxWord))
	case value == "":
		return nil, nil
	case len(value) > maxWord || !quantity.MatchString(value):
		return nil, fmt.Errorf("spec.%s: %s: %q is no amount: write a number such as 2, 1500m or 4Gi", field, name, api.Shorten(value, maxWord))
	}
	q, err := resource.ParseQuantity(value)
	if err != nil {
		return nil, fmt.Errorf("spec.%s: %s: %w", field, name, err)
	}
	read, err := readLimits("spec."+field, corev1.ResourceList{corev1.ResourceName(name): q})
	if err != nil {
		return nil, err
	}
	return new(read.Value(name)), nil
}

// with is a vector with another amount of a resource, or without it.
func with(r api.Resources, name string, amount *int64) api.Resources {
	out := slices.DeleteFunc(slices.Clone(r), func(a api.Amount) bool { return a.Resource == name })
	if amount != nil {
		out = append(out, api.Amount{Resource: name, Value: *amount})
	}
	slices.SortFunc(out, func(a, b api.Amount) int { return strings.Compare(a.Resource, b.Resource) })
	return out
}
