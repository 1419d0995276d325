package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"
)

// Bounds of what one pod may ask for. The API server accepts a pod of up to 1.5 MiB; what a pod asks for is kept by every
// shard, compared with every node, and written into the control store, where a record has room for 1 MiB. So no pod makes a
// record or message that is too large, or costs a shard more than a moment. Counts are checked before anything is read or
// summed up.
//
// A pod beyond a bound is refused: FromPod names the field and the limit. One that has a node all the same, because somebody
// else bound it, is counted in full for its foremost resources and its first host ports.
const (
	MaxPodResources      = 64       // resources that its requests name
	MaxContainers        = 256      // containers, init containers included
	MaxPodAmounts        = 1024     // amounts that these request
	MaxConstraintBytes   = 32 << 10 // of node selector, required node affinity, tolerations, host ports and disks, encoded
	MaxConstraintEntries = 1024     // labels, expressions, values and tolerations in them
	MaxHostPorts         = 256
	MaxVolumeClaims      = 256 // volumes that are PersistentVolumeClaims, ephemeral ones included
)

// MaxGangResources is how many resources the pods of a gang may request together: a reservation names them all. A gang whose
// pods request more is not admitted.
const MaxGangResources = 256

// MaxPodBytes is how large a pod may be for Basalt to bind it, all of it, in protobuf. The API server's store takes objects of
// up to 1.5 MiB. A pod just below that takes neither a Binding nor the write that resolves one, for both make it larger: what
// became of its Binding could never be known.
const MaxPodBytes = 1 << 20

// annotationSize is set by StripPod on a pod that is larger: FromPod, which gets the pod without most of it, refuses it.
const annotationSize = "scheduling.basalt.dev/size"

// MaxNodeResources is how many resources a node may offer. The foremost of a node that names more are counted.
const MaxNodeResources = 256

// checkCounts says whether a pod has too many containers or amounts, and returns the number of amounts.
func checkCounts(p *v1.Pod) (amounts int, err error) {
	if n := len(p.Spec.Containers) + len(p.Spec.InitContainers); n > MaxContainers {
		return 0, fmt.Errorf("spec.containers: the pod has %d containers and init containers, the limit is %d", n, MaxContainers)
	}
	requests(p, func(l v1.ResourceList, _ string, _ int) { amounts += len(l) })
	if amounts > MaxPodAmounts {
		return 0, fmt.Errorf("spec.containers[*].resources.requests: they have %d amounts in all, the limit is %d", amounts, MaxPodAmounts)
	}
	return amounts, nil
}

// checkRequests says which bound the requests of a pod exceed.
func checkRequests(p *v1.Pod, ignore map[string]bool) error {
	if amounts, err := checkCounts(p); err != nil || amounts <= MaxPodResources {
		return err
	}
	names, excess := map[v1.ResourceName]bool{}, ""
	requests(p, func(l v1.ResourceList, field string, i int) {
		before := len(names)
		for name, q := range l {
			if !ignore[string(name)] && q.Sign() != 0 && !IsCount(string(name)) {
				names[name] = true
			}
		}
		if len(names) > MaxPodResources && before <= MaxPodResources {
			excess = fieldOf(field, i)
		}
	})
	if len(names) > MaxPodResources {
		return fmt.Errorf("%s: the pod requests %d resources, the limit is %d", excess, len(names), MaxPodResources)
	}
	return nil
}

// requests calls f with each list of requests in a pod, and with the field that it stands in and the index there.
func requests(p *v1.Pod, f func(l v1.ResourceList, field string, i int)) {
	for i := range p.Spec.Containers {
		f(p.Spec.Containers[i].Resources.Requests, "spec.containers[%d].resources.requests", i)
	}
	for i := range p.Spec.InitContainers {
		f(p.Spec.InitContainers[i].Resources.Requests, "spec.initContainers[%d].resources.requests", i)
	}
	f(p.Spec.Overhead, "spec.overhead", -1)
	if p.Spec.Resources != nil {
		f(p.Spec.Resources.Requests, "spec.resources.requests", -1)
	}
}

func fieldOf(format string, i int) string {
	if i < 0 {
		return format
	}
	return fmt.Sprintf(format, i)
}

// coarseRequests counts a pod with a node whose requests exceed a bound: of the foremost MaxPodResources resources that it names the sum
// over containers and sidecars, plus the largest init container, plus the overhead, and no less than what the pod itself
// requests. That is linear in the pod, which the rules for sidecars are not. An amount that cannot be read counts as zero.
func coarseRequests(p *v1.Pod, ignore map[string]bool) Resources {
	named := map[string]int64{}
	name := func(l v1.ResourceList) {
		for name := range l {
			if !ignore[string(name)] && !IsCount(string(name)) && len(name) <= MaxResourceName {
				named[string(name)] = 0
			}
		}
	}
	requests(p, func(l v1.ResourceList, _ string, _ int) { name(l) })
	status := statuses(p)
	for _, s := range status {
		name(s.AllocatedResources)
		name(actual(s.Resources))
	}
	out, _ := FromMap(named).Foremost(MaxPodResources, nil)
	index := make(map[string]int, len(out))
	for i, a := range out {
		index[a.Resource] = i
	}
	each := func(l v1.ResourceList, f func(i int, v int64)) {
		for name, q := range l {
			if i, kept := index[string(name)]; kept && q.Sign() > 0 {
				if v, err := FromQuantity(string(name), q, true); err == nil {
					f(i, v)
				}
			}
		}
	}
	add := func(i int, v int64) { out[i].Value = AddSat(out[i].Value, v) }
	inits, floor := make([]int64, len(out)), make([]int64, len(out))
	container := func(c *v1.Container, f func(i int, v int64)) { // the most of what it asks for and what it has
		s := status[c.Name]
		if s == nil {
			each(c.Resources.Requests, f)
			return
		}
		most := map[int]int64{}
		for _, l := range []v1.ResourceList{c.Resources.Requests, s.AllocatedResources, actual(s.Resources)} {
			each(l, func(i int, v int64) { most[i] = max(most[i], v) })
		}
		for i, v := range most {
			f(i, v)
		}
	}
	for i := range p.Spec.Containers {
		container(&p.Spec.Containers[i], add)
	}
	for i := range p.Spec.InitContainers {
		c := &p.Spec.InitContainers[i]
		if c.RestartPolicy != nil && *c.RestartPolicy == v1.ContainerRestartPolicyAlways {
			container(c, add)
		} else {
			container(c, func(i int, v int64) { inits[i] = max(inits[i], v) })
		}
	}
	each(p.Spec.Overhead, add)
	if p.Spec.Resources != nil {
		each(p.Spec.Resources.Requests, func(i int, v int64) { floor[i] = v })
		for _, l := range []v1.ResourceList{p.Status.AllocatedResources, actual(p.Status.Resources)} {
			each(l, func(i int, v int64) { floor[i] = max(floor[i], v) })
		}
	}
	for i := range out {
		out[i].Value = max(AddSat(out[i].Value, inits[i]), floor[i])
	}
	out = append(out.Positive(), Amount{string(v1.ResourcePods), 1})
	slices.SortFunc(out, func(a, b Amount) int { return strings.Compare(a.Resource, b.Resource) })
	return out
}

// Foremost returns at most n amounts, and how many are left out: first cpu, memory, ephemeral-storage and pods, then what
// important names, then the others in the order of their names.
func (r Resources) Foremost(n int, important Resources) (kept Resources, left int) {
	if len(r) <= n {
		return r, 0
	}
	const last = 2
	turn := map[string]int{string(v1.ResourceCPU): 0, string(v1.ResourceMemory): 0, string(v1.ResourceEphemeralStorage): 0, string(v1.ResourcePods): 0}
	for _, a := range important {
		if _, named := turn[a.Resource]; !named {
			turn[a.Resource] = 1
		}
	}
	turnOf := func(a Amount) int {
		if t, named := turn[a.Resource]; named {
			return t
		}
		return last
	}
	chosen := make([]bool, len(r))
	for t := range last + 1 {
		for i := range r {
			if n > 0 && turnOf(r[i]) == t {
				chosen[i] = true
				n--
			}
		}
	}
	for i := range r {
		if chosen[i] {
			kept = append(kept, r[i])
		}
	}
	return kept, len(r) - len(kept)
}

// Shorten cuts text to at most so many bytes, between characters, and ends it in "..." then.
func Shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	end := max(0, most-len("..."))
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "..."
}

// checkConstraints says which bound the constraints of a pod exceed, and the field that has the largest part in it.
func checkConstraints(s *v1.PodSpec) string {
	ports := 0
	for i := range s.Containers {
		ports += len(s.Containers[i].Ports)
	}
	if ports > MaxHostPorts {
		return fmt.Sprintf("spec.containers[*].ports: the pod has %d host ports, the limit is %d", ports, MaxHostPorts)
	}
	terms := 0
	if s.Affinity != nil {
		terms = entriesOf(s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms)
	}
	if n := len(s.NodeSelector) + len(s.Tolerations) + terms; n > MaxConstraintEntries {
		return fmt.Sprintf("%s: node selector, required node affinity and tolerations have %d entries together, the limit is %d",
			largest(map[string]int{"spec.nodeSelector": len(s.NodeSelector), "spec.tolerations": len(s.Tolerations), fieldAffinity: terms}), n, MaxConstraintEntries)
	}
	if n := s.Size(); n > MaxConstraintBytes {
		return fmt.Sprintf("%s: node selector, required node affinity, tolerations, host ports and disks have %d bytes together, the limit is %d",
			largest(map[string]int{
				"spec.nodeSelector":        (&v1.PodSpec{NodeSelector: s.NodeSelector}).Size(),
				"spec.tolerations":         (&v1.PodSpec{Tolerations: s.Tolerations}).Size(),
				fieldAffinity:              (&v1.PodSpec{Affinity: s.Affinity}).Size(),
				"spec.containers[*].ports": (&v1.PodSpec{Containers: s.Containers}).Size(),
				"spec.volumes":             (&v1.PodSpec{Volumes: s.Volumes}).Size(),
			}), n, MaxConstraintBytes)
	}
	return ""
}

const fieldAffinity = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"

// largest returns the field with the largest size, the first in name order of several.
func largest(sizes map[string]int) string {
	field := ""
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		if field == "" || sizes[name] > sizes[field] {
			field = name
		}
	}
	return field
}

// onlyExclusive keeps of constraints beyond a bound what a node counts of a pod that it has: the first host ports, and as many disks as there is
// room for beside them; nil when there are none.
func onlyExclusive(s *v1.PodSpec) *v1.PodSpec {
	out := &v1.PodSpec{}
	if len(s.Containers) > 0 && len(s.Containers[0].Ports) > 0 {
		ports := s.Containers[0].Ports
		out.Containers = []v1.Container{{Ports: ports[:min(len(ports), MaxHostPorts)]}}
		if out.Size() > MaxConstraintBytes {
			out.Containers = nil
		}
	}
	room := MaxConstraintBytes - out.Size()
	for i := range s.Volumes {
		if room -= (&v1.PodSpec{Volumes: s.Volumes[i : i+1]}).Size(); room < 0 {
			break
		}
		out.Volumes = s.Volumes[:i+1]
	}
	if len(out.Containers)+len(out.Volumes) == 0 {
		return nil
	}
	return out
}
