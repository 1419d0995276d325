package api

import (
	"maps"

	v1 "k8s.io/api/core/v1"
)

// In-place resize: a container's requests in the spec are a wish, and its status says what the kubelet has allocated and what
// the container has. Kubelets write the status of every pod that runs, and most say what the spec says: those are neither
// summed up nor passed on.

// maxResized is the number of containers up to which a pod that was resized is counted by the rules, whose cost grows with
// the square of it; with more it is counted by a sum that is not below.
const maxResized = 128

// resized reports whether the status of a pod with a node says something else about its resources than its spec.
func resized(p *v1.Pod) bool {
	if p.Spec.NodeName == "" {
		return false
	}
	s := &p.Status
	if len(s.ContainerStatuses) == 0 && len(s.InitContainerStatuses) == 0 && s.AllocatedResources == nil && s.Resources == nil {
		return infeasible(p) != nil
	}
	if infeasible(p) != nil {
		return true
	}
	if s.AllocatedResources != nil || s.Resources != nil { // sums over all containers
		if len(p.Spec.Containers) != 1 || len(p.Spec.InitContainers) != 0 || p.Spec.Resources != nil {
			return true
		}
		spec := p.Spec.Containers[0].Resources.Requests
		if s.AllocatedResources != nil && !sameAmounts(s.AllocatedResources, spec) || actual(s.Resources) != nil && !sameAmounts(actual(s.Resources), spec) {
			return true
		}
	}
	var status map[string]*v1.ContainerStatus
	for _, lists := range []struct {
		spec   []v1.Container
		status []v1.ContainerStatus
	}{{p.Spec.Containers, s.ContainerStatuses}, {p.Spec.InitContainers, s.InitContainerStatuses}} {
		for i := range lists.spec {
			c := &lists.spec[i]
			var at *v1.ContainerStatus
			if i < len(lists.status) && lists.status[i].Name == c.Name { // as a rule they are in the same order
				at = &lists.status[i]
			} else {
				if status == nil {
					status = statuses(p)
				}
				at = status[c.Name]
			}
			if at == nil {
				continue
			}
			spec := c.Resources.Requests
			if at.AllocatedResources != nil && !sameAmounts(at.AllocatedResources, spec) || actual(at.Resources) != nil && !sameAmounts(actual(at.Resources), spec) {
				return true
			}
		}
	}
	return false
}

// statuses returns the statuses of a pod's containers by name.
func statuses(p *v1.Pod) map[string]*v1.ContainerStatus {
	all := make(map[string]*v1.ContainerStatus, len(p.Status.ContainerStatuses)+len(p.Status.InitContainerStatuses))
	for _, list := range [][]v1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses} {
		for i := len(list) - 1; i >= 0; i-- {
			all[list[i].Name] = &list[i]
		}
	}
	return all
}

// infeasible returns the condition with which the kubelet has refused a resize.
func infeasible(p *v1.Pod) *v1.PodCondition {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == v1.PodResizePending {
			if c.Reason == v1.PodReasonInfeasible {
				return c
			}
			return nil
		}
	}
	return nil
}

// actual is what a status says that a container, or a pod, has.
func actual(r *v1.ResourceRequirements) v1.ResourceList {
	if r == nil {
		return nil
	}
	return r.Requests
}

// sameAmounts reports whether two lists name the same amounts. Those that cannot be compared are not the same.
func sameAmounts(a, b v1.ResourceList) bool {
	if len(a) != len(b) {
		return false
	}
	for name, x := range a {
		y, named := b[name]
		if !named {
			return false
		}
		if x == y || x.Sign() == 0 && y.Sign() == 0 {
			continue
		}
		if _, err := FromQuantity(string(name), x, true); err != nil {
			return false
		}
		if _, err := FromQuantity(string(name), y, true); err != nil || x.Cmp(y) != 0 {
			return false
		}
	}
	return true
}

// keepStatus copies what the rules read of a pod's status, without what cannot be read or is on the ignore list.
func keepStatus(to, p *v1.Pod, ignore map[string]bool) {
	keep := func(l v1.ResourceList) v1.ResourceList {
		out := l
		for name, q := range l {
			_, err := FromQuantity(string(name), q, true)
			if err != nil || ignore[string(name)] || q.Sign() == 0 {
				if len(out) == len(l) {
					out = maps.Clone(l)
				}
				delete(out, name)
			}
		}
		return out
	}
	stripStatus(to, p)
	for _, list := range [][]v1.ContainerStatus{to.Status.ContainerStatuses, to.Status.InitContainerStatuses} {
		for i := range list {
			list[i].AllocatedResources = keep(list[i].AllocatedResources)
			if r := list[i].Resources; r != nil {
				r.Requests = keep(r.Requests)
			}
		}
	}
	to.Status.AllocatedResources = keep(to.Status.AllocatedResources)
	if r := to.Status.Resources; r != nil {
		r.Requests = keep(r.Requests)
	}
}

// stripStatus copies what the rules read of the status of a pod that was resized, and the names of its containers.
func stripStatus(to, p *v1.Pod) {
	for i := range p.Spec.Containers {
		to.Spec.Containers[i].Name = p.Spec.Containers[i].Name
	}
	for i := range p.Spec.InitContainers {
		to.Spec.InitContainers[i].Name = p.Spec.InitContainers[i].Name
	}
	requests := func(r *v1.ResourceRequirements) *v1.ResourceRequirements {
		if r == nil {
			return nil
		}
		return &v1.ResourceRequirements{Requests: r.Requests}
	}
	containers := func(in []v1.ContainerStatus) (out []v1.ContainerStatus) {
		for i := range in {
			out = append(out, v1.ContainerStatus{Name: in[i].Name, AllocatedResources: in[i].AllocatedResources, Resources: requests(in[i].Resources)})
		}
		return out
	}
	to.Status.ContainerStatuses, to.Status.InitContainerStatuses = containers(p.Status.ContainerStatuses), containers(p.Status.InitContainerStatuses)
	to.Status.AllocatedResources, to.Status.Resources = p.Status.AllocatedResources, requests(p.Status.Resources)
	if c := infeasible(p); c != nil {
		to.Status.Conditions = append(to.Status.Conditions, v1.PodCondition{Type: c.Type, Reason: c.Reason})
	}
}
