package audit

import (
	"cmp"
	"math/big"
	"slices"
	"strings"

	"gopkg.in/inf.v0"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"basalt.dev/basalt/api"
)

// The auditor computes by itself what a pod takes, from the published rules of Kubernetes and not from the code that the
// shards use: a mistake in that code would otherwise be made by both. Amounts are exact: sums of nano-units, rounded up once.

// vector holds exact amounts in nano-units by resource name.
type vector map[string]*big.Int

const (
	maxScale = 30 // a quantity with a larger power of ten is above every bound, and takes long to multiply out
	pods     = "pods"
)

var nano = big.NewInt(1_000_000_000)

// exact reads a quantity. It fails for one that is negative or that no node can have.
func exact(q resource.Quantity) (*big.Int, bool) {
	if q.Sign() == 0 {
		return new(big.Int), true
	}
	d := q.AsDec()
	if q.Sign() < 0 || -d.Scale() > maxScale || d.UnscaledBig().BitLen() > 512 {
		return nil, false
	}
	d = new(inf.Dec).Round(d, 9, inf.RoundUp)
	return new(big.Int).Set(d.UnscaledBig()), true
}

// unit returns how many nano-units one unit of a resource's amount has: cpu is counted in thousandths.
func unit(name string) *big.Int {
	if name == string(v1.ResourceCPU) {
		return big.NewInt(1_000_000)
	}
	return nano
}

// amount rounds up to the resource's unit.
func amount(name string, x *big.Int) *big.Int {
	quotient, rest := new(big.Int).QuoRem(x, unit(name), new(big.Int))
	if rest.Sign() > 0 {
		quotient.Add(quotient, big.NewInt(1))
	}
	return quotient
}

func (v vector) add(o vector) vector {
	out := make(vector, len(v)+len(o))
	for name, x := range v {
		out[name] = x
	}
	for name, x := range o {
		if have := out[name]; have != nil {
			x = new(big.Int).Add(have, x)
		}
		out[name] = x
	}
	return out
}

func (v vector) max(o vector) vector {
	out := make(vector, len(v)+len(o))
	for name, x := range v {
		out[name] = x
	}
	for name, x := range o {
		if have := out[name]; have == nil || have.Cmp(x) < 0 {
			out[name] = x
		}
	}
	return out
}

// requestsOf returns what a pod takes of its node and of its queue: one of "pods", and what its containers, init containers,
// sidecars, overhead and pod-level resources come to. For a pod that has a node that is the largest of what its spec asks
// for, what the kubelet has allocated and what its containers run with; where a resize is infeasible the spec does not
// count. A pod of which a quantity cannot be read counts as one pod and nothing else, and of a pod that names more resources
// than api.MaxPodResources the foremost count.
func (a *Auditor) requestsOf(o *v1.Pod) api.Resources {
	r := reader{ignore: a.cfg.Ignore}
	total := r.pod(o)
	one := api.Resources{{Resource: pods, Value: 1}}
	if r.unreadable {
		return one
	}
	var out api.Resources
	for name, x := range total {
		n := amount(name, x)
		if !n.IsInt64() {
			return one
		}
		if v := n.Int64(); v != 0 && name != pods {
			out = append(out, api.Amount{Resource: name, Value: v})
		}
	}
	byName := func(a, b api.Amount) int { return cmp.Compare(a.Resource, b.Resource) }
	slices.SortFunc(out, byName)
	out, _ = out.Foremost(api.MaxPodResources, nil)
	out = append(slices.Clone(out), one...)
	slices.SortFunc(out, byName)
	return out
}

// floorOf returns what a Volcano PodGroup may be charged whatever its pods request: what its minResources names without the prefixes of
// a ResourceQuota.
func (a *Auditor) floorOf(l v1.ResourceList) api.Resources {
	r := reader{ignore: a.cfg.Ignore}
	var out api.Resources
	for name, x := range r.list(l) {
		if prefix, _, _ := strings.Cut(name, "."); prefix == "requests" || prefix == "limits" || strings.HasPrefix(name, "count/") {
			continue
		}
		if n := amount(name, x); n.IsInt64() {
			out = append(out, api.Amount{Resource: name, Value: n.Int64()})
		}
	}
	slices.SortFunc(out, func(a, b api.Amount) int { return cmp.Compare(a.Resource, b.Resource) })
	return out
}

// reader reads the quantities of one pod.
type reader struct {
	ignore     map[string]bool
	unreadable bool // in what the spec asks for
}

func (r *reader) list(l v1.ResourceList) vector {
	out := make(vector, len(l))
	for name, q := range l {
		if r.ignore[string(name)] {
			continue
		}
		x, ok := exact(q)
		if !ok || amount(string(name), x).Cmp(big.NewInt(api.MaxAmount)) > 0 {
			r.unreadable = true
			continue
		}
		out[string(name)] = x
	}
	return out
}

func (r *reader) pod(o *v1.Pod) vector {
	bound := o.Spec.NodeName != ""
	infeasible := false
	for i := range o.Status.Conditions {
		if c := &o.Status.Conditions[i]; c.Type == v1.PodResizePending {
			infeasible = c.Reason == v1.PodReasonInfeasible
			break
		}
	}
	asked := r.containers(o, func(c *v1.Container) vector { return r.list(c.Resources.Requests) })
	total := asked
	if bound {
		status := map[string]*v1.ContainerStatus{}
		for _, list := range [][]v1.ContainerStatus{o.Status.InitContainerStatuses, o.Status.ContainerStatuses} {
			for i := range list {
				status[list[i].Name] = &list[i]
			}
		}
		spec := func(c *v1.Container) vector {
			if infeasible {
				return nil
			}
			return r.list(c.Resources.Requests)
		}
		allocated := func(c *v1.Container) vector {
			if s := status[c.Name]; s != nil && s.AllocatedResources != nil {
				return r.list(s.AllocatedResources)
			}
			return spec(c)
		}
		actual := func(c *v1.Container) vector {
			if s := status[c.Name]; s != nil && s.Resources != nil && s.Resources.Requests != nil {
				return r.list(s.Resources.Requests)
			}
			return allocated(c)
		}
		var has vector
		if s := &o.Status; s.AllocatedResources != nil && s.Resources != nil && s.Resources.Requests != nil {
			has = r.list(s.AllocatedResources).max(r.list(s.Resources.Requests))
		} else {
			has = r.containers(o, allocated).max(r.containers(o, actual))
		}
		if infeasible {
			total = has
		} else {
			total = asked.max(has)
		}
	}
	if s := o.Spec.Resources; s != nil {
		level := r.list(s.Requests)
		if bound && o.Status.Resources != nil && len(s.Requests) > 0 {
			has := r.list(o.Status.Resources.Requests).max(r.list(o.Status.AllocatedResources))
			if infeasible {
				level = has
			} else {
				level = level.max(has)
			}
		}
		total = total.add(nil)
		for name, x := range level {
			if name == "cpu" || name == "memory" || strings.HasPrefix(name, v1.ResourceHugePagesPrefix) {
				total[name] = x
			}
		}
	}
	return total.add(r.list(o.Spec.Overhead))
}

// containers sums up what runs at once, and takes the largest of that over the life of the pod: while the i-th init
// container runs, it and the sidecars before it; later all containers and all sidecars.
func (r *reader) containers(o *v1.Pod, of func(*v1.Container) vector) vector {
	var sidecars, most vector
	for i := range o.Spec.InitContainers {
		c := &o.Spec.InitContainers[i]
		while := sidecars.add(of(c))
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			sidecars = while
		}
		most = most.max(while)
	}
	running := sidecars
	for i := range o.Spec.Containers {
		running = running.add(of(&o.Spec.Containers[i]))
	}
	return most.max(running)
}

// strip leaves out the resources that are ignored.
func (c *Config) strip(r api.Resources) api.Resources {
	if len(c.Ignore) == 0 {
		return r
	}
	return slices.DeleteFunc(slices.Clone(r), func(x api.Amount) bool { return c.Ignore[x.Resource] })
}

// resourcesOf returns the names that occur in any of the vectors, sorted.
func resourcesOf(vectors ...api.Resources) []string {
	var out []string
	for _, r := range vectors {
		for _, x := range r {
			out = append(out, x.Resource)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
