package visibility

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

// What a question about other specs, or a gang that does not exist, is read from.

// ParseChange reads QUEUE:FIELD=VALUE, where FIELD is a field of a Queue's spec, such as weight or deserved.cpu. The
// coordinator judges it.
func ParseChange(text string) (*wire.QueueChange, error) {
	queue, rest, found := strings.Cut(text, ":")
	field, value, set := strings.Cut(rest, "=")
	if !found || !set || queue == "" || field == "" {
		return nil, fmt.Errorf("change %q: it is QUEUE:FIELD=VALUE, "+
			"such as research.vision:deserved.cpu=64 or batch:weight=3", api.Shorten(text, maxWord))
	}
	if err := api.ValidatePath(queue); err != nil {
		return nil, fmt.Errorf("change %q: %w", api.Shorten(text, maxWord), err)
	}
	field, what, _ := strings.Cut(strings.TrimPrefix(field, "spec."), ".")
	return &wire.QueueChange{Queue: queue, Field: field, Resource: what, Value: value}, nil
}

// usualSearch is for how long a gang may look for nodes before its limit begins, with the defaults of home.GiveUpAfter
// and home.RollForward.
const usualSearch = 70 * time.Second

// ParsePlanned reads a gang that does not exist: queue=QUEUE, and what each pod requests, such as
// cpu=8,nvidia.com/gpu=1; pods=16 (1 if not said), minCount=8 (all pods), priority=1000 (0), order=20 (the value
// of its queue's spec.order for it; it says none), preemptible=false (true: a controller makes its pods),
// preemptionPolicy=Never, maxRuntime=45m (no limit).
func ParsePlanned(text, namespace string) (*wire.PlannedGang, error) {
	bad := func(format string, args ...any) (*wire.PlannedGang, error) {
		return nil, fmt.Errorf("gang: "+format, args...)
	}
	if len(validation.IsDNS1123Label(namespace)) > 0 {
		return bad("%q is not the name of a namespace", api.Shorten(namespace, maxWord))
	}
	out := &wire.PlannedGang{Namespace: namespace, Claims: true}
	pods, minCount := int64(1), int64(0)
	requests, seen := map[string]int64{}, map[string]bool{}
	for _, part := range strings.Split(text, ",") {
		key, value, found := strings.Cut(part, "=")
		if !found || value == "" || seen[key] {
			return bad("%q is not KEY=VALUE, each key once: "+
				"queue=research.vision,cpu=8,nvidia.com/gpu=1,pods=16,minCount=8,priority=1000", api.Shorten(part, maxWord))
		}
		seen[key] = true
		var err error
		switch key {
		case "queue":
			out.Queue, err = value, api.ValidatePath(value)
		case "pods":
			pods, err = strconv.ParseInt(value, 10, 32)
		case "minCount":
			minCount, err = strconv.ParseInt(value, 10, 32)
		case "priority":
			out.Priority, err = strconv.ParseInt(value, 10, 32)
		case "order":
			var order int64
			order, err = strconv.ParseInt(value, 10, 64)
			out.Order = &order
		case "preemptible":
			if out.Kept = value == "false"; !out.Kept && value != "true" {
				return bad("preemptible: %q is not one of true and false", api.Shorten(value, maxWord))
			}
		case "maxRuntime":
			var limit time.Duration
			if limit, err = time.ParseDuration(value); err == nil && (limit < time.Second || limit > api.MaxRuntime) {
				err = errors.New("it is from 1s to 8760h")
			}
			out.RunsMs = (usualSearch + limit).Milliseconds()
		case "preemptionPolicy":
			if out.Claims = value != never; out.Claims && value != "PreemptLowerPriority" {
				return bad("preemptionPolicy: %q is not one of Never and PreemptLowerPriority", api.Shorten(value, maxWord))
			}
		default:
			if key != "cpu" && key != "memory" && key != "ephemeral-storage" && !strings.HasPrefix(key, "hugepages-") &&
				!strings.Contains(key, "/") {
				return bad("%q is neither queue, pods, minCount, priority, order, preemptible, preemptionPolicy or "+
					"maxRuntime, nor a resource such as cpu, memory or nvidia.com/gpu", api.Shorten(key, maxWord))
			}
			if len(requests) >= api.MaxResources {
				return bad("it requests more than %d resources", api.MaxResources)
			}
			var q resource.Quantity
			if err = api.CheckResourceName(key); err == nil && len(value) > 32 {
				err = fmt.Errorf("the quantity has more than 32 characters")
			}
			if err == nil {
				q, err = resource.ParseQuantity(value)
			}
			if err == nil {
				requests[key], err = api.FromQuantity(key, q, true)
			}
		}
		if err != nil {
			return bad("%s: %q: %v", api.Shorten(key, maxWord), api.Shorten(value, maxWord), err)
		}
	}
	if minCount == 0 && !seen["minCount"] {
		minCount = pods
	}
	switch {
	case out.Queue == "":
		return bad("it names no queue")
	case pods < 1 || pods > maxPlannedPods:
		return bad("pods: %d: 1 to %d", pods, maxPlannedPods)
	case minCount < 1 || minCount > pods:
		return bad("minCount: %d: 1 to %d, the number of its pods", minCount, pods)
	}
	times := func(n int64) []*wire.Amount {
		if n == 0 {
			return nil
		}
		sum := map[string]int64{"pods": n}
		for what, v := range requests {
			sum[what] = api.MulSat(v, n)
		}
		return wire.FromResources(api.FromMap(sum))
	}
	out.Pods, out.Demand, out.Further = uint32(minCount), times(minCount), times(pods-minCount)
	return out, nil
}
