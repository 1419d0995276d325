package scenario

import (
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/measure/workload"
	"basalt.dev/basalt/bench/stage/kubelet"
)

// Gang is one gang, as small as can be: a million of them pass through a soak. Pod and PodGroup make the objects.
type Gang struct {
	Name     string
	Kind     string
	Queue    string
	At       time.Duration // from the beginning; 0 in a closed batch
	Lifetime time.Duration // 0: until the benchmark ends
	MinCount int
	Plain    bool
	Pods     []workload.Shape
	App      string  // the label of its pods; "" for none
	Around   *Around // nil for none
	Volume   string  // the CSI driver or in-tree plugin of its pods' volumes; "" for none
	Secret   bool    // its pods have a volume of a Secret
	Topology string  // the label of nodes of which it is in one domain; "" for none
	space    int     // the number of its namespace; 0 is the one without a number
}

// The streams of randomness, each its own.
const (
	nodeStream = iota + 1
	gangStream
)

func (s *Scenario) random(seed uint64, stream uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, 0xba5a17<<8|stream))
}

// MakeNodes returns the nodes in random order, so that no scheduler sees all of a shape in a row.
func (s *Scenario) MakeNodes(seed uint64) []*v1.Node {
	r := s.random(seed, nodeStream)
	var out []*v1.Node
	for i, set := range s.Nodes {
		pods := set.Pods
		if pods == 0 {
			pods = 110
		}
		for j, shape := range set.shapes() {
			n := kubelet.Node(nodeName(i, j), "0", "0", pods)
			for name, q := range shape.Resources() {
				n.Status.Allocatable[name], n.Status.Capacity[name] = q, q
			}
			if shape.Model != "" {
				n.Labels[workload.ModelLabel] = shape.Model
			}
			if set.Zones > 0 {
				n.Labels[v1.LabelTopologyZone] = "zone-" + strconv.Itoa(j%set.Zones)
			}
			for k, v := range set.Labels {
				n.Labels[k] = v
			}
			if set.Taint != "" {
				n.Spec.Taints = []v1.Taint{{Key: set.Taint, Effect: v1.TaintEffectNoSchedule}}
			}
			out = append(out, n)
		}
	}
	r.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

// MakeCSINodes returns the CSINodes of the nodes whose set has a driver.
func (s *Scenario) MakeCSINodes() []*storagev1.CSINode {
	var out []*storagev1.CSINode
	for i, set := range s.Nodes {
		if set.CSI == nil {
			continue
		}
		for j := range set.Count {
			name := nodeName(i, j)
			n := &storagev1.CSINode{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{
					Name: set.CSI.Driver, NodeID: name, Allocatable: &storagev1.VolumeNodeResources{Count: &set.CSI.Limit},
				}}},
			}
			if set.CSI.Migrated != "" {
				n.Annotations = map[string]string{v1.MigratedPluginsAnnotationKey: set.CSI.Migrated}
			}
			out = append(out, n)
		}
	}
	return out
}

func nodeName(set, i int) string { return fmt.Sprintf("node-%d-%05d", set, i) }

// shapes has one entry a node.
func (n NodeSet) shapes() []workload.Shape {
	out := make([]workload.Shape, 0, n.Count)
	if !n.Openb {
		shape, _ := shapeOf("", n.CPU, n.Memory, n.GPUs) // checked
		for range n.Count {
			out = append(out, shape)
		}
		return out
	}
	all := workload.Nodes()
	total := 0
	for _, shape := range all {
		total += shape.Count
	}
	for i := range n.Count { // evenly over the list, so that any count has the trace's mix
		at := i * total / n.Count
		for _, shape := range all {
			if at -= shape.Count; at < 0 {
				out = append(out, shape)
				break
			}
		}
	}
	return out
}

// Capacity is what all nodes have together.
func (s *Scenario) Capacity() workload.Shape {
	var sum workload.Shape
	for _, set := range s.Nodes {
		for _, shape := range set.shapes() {
			sum.MilliCPU += shape.MilliCPU
			sum.MemoryMiB += shape.MemoryMiB
			sum.GPUs += shape.GPUs
		}
	}
	return sum
}

// MakeQueues returns the queues, parents first.
func (s *Scenario) MakeQueues() []*v1beta1.Queue {
	capacity := s.Capacity()
	var out []*v1beta1.Queue
	for depth, level := range s.levels() {
		for _, path := range level {
			q := &v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: path}}
			q.Spec.Capability = portion(capacity, s.Queues.CapabilityPercent, depth, len(level))
			q.Spec.Deserved = portion(capacity, s.Queues.DeservedPercent, depth, len(level))
			if s.Claims != nil && depth == 0 { // inherited
				q.Spec.PreemptionDelay, q.Spec.ReclaimMinRuntime = &metav1.Duration{}, &metav1.Duration{}
			}
			out = append(out, q)
		}
	}
	return out
}

// portion is so many percent of an even share of the cluster among the queues of a level, nil if nothing is said of the level.
func portion(capacity workload.Shape, percents []int64, depth, queues int) v1.ResourceList {
	if depth >= len(percents) || percents[depth] == 0 {
		return nil
	}
	percent, of := percents[depth], int64(queues)
	out := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(capacity.MilliCPU*percent/100/of, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity((capacity.MemoryMiB*percent/100/of)<<20, resource.BinarySI),
	}
	if capacity.GPUs > 0 {
		out[workload.GPU] = *resource.NewQuantity(capacity.GPUs*percent/100/of, resource.DecimalSI)
	}
	return out
}

// Leaves returns the queues that gangs go to.
func (s *Scenario) Leaves() []string {
	levels := s.levels()
	if len(levels) == 0 {
		return []string{""}
	}
	return levels[len(levels)-1]
}

// levels returns the paths of the queues, the top level first.
func (s *Scenario) levels() [][]string {
	var out [][]string
	above := []string{""}
	for depth, fan := range s.Queues.FanOut {
		var level []string
		for _, parent := range above {
			for i := range fan {
				level = append(level, child(parent, depth, i))
			}
		}
		out, above = append(out, level), level
	}
	return out
}

func child(parent string, depth, i int) string {
	name := string(rune('a'+depth)) + strconv.Itoa(i)
	if parent == "" {
		return name
	}
	return parent + "." + name
}

// Rates returns the runs of an open loop, in pods a second; one run at 0 for others.
func (s *Scenario) Rates() []int {
	if s.Arrivals.Open == nil {
		return []int{0}
	}
	return s.Arrivals.Open.PodsPerSecond
}

// MakeGangs returns the gangs in the order of their arrival. The rate, in pods a second, is for an open loop. Gangs do not
// depend on the rate, only their times do. Those of a steady load do not end.
func (s *Scenario) MakeGangs(seed uint64, rate int) iter.Seq[Gang] {
	return func(yield func(Gang) bool) {
		r := s.random(seed, gangStream)
		leaves := s.Leaves()
		if s.Claims != nil {
			leaves = leaves[:len(leaves)/2]
		}
		shares := 0
		for _, k := range s.kinds {
			shares += k.Share
		}
		mean := s.meanSize(shares)
		var at float64 // seconds
		for i := 0; ; i++ {
			g := s.draw(r, i, shares, leaves)
			wait := r.ExpFloat64() // drawn in a closed batch too, so that both have the same gangs
			if open := s.Arrivals.Open; open != nil {
				at += wait * mean / float64(rate)
				if g.At = time.Duration(at * float64(time.Second)); g.At >= open.For.Duration {
					return
				}
			} else if closed := s.Arrivals.Closed; closed != nil && i >= closed.Gangs {
				return
			}
			if !yield(g) {
				return
			}
		}
	}
}

// MakeClaimants returns so many gangs that claim, which have the pods of Claims together. Their names begin with name.
func (s *Scenario) MakeClaimants(name string, count int) []*Gang {
	leaves := s.Leaves()
	leaves = leaves[len(leaves)/2:]
	out := make([]*Gang, count)
	for i := range out {
		size := s.Claims.Pods / count
		out[i] = &Gang{Name: fmt.Sprintf("%s-%d", name, i), Kind: "claimant", Queue: leaves[i%len(leaves)], MinCount: size,
			Lifetime: time.Second, Pods: slices.Repeat([]workload.Shape{s.kinds[0].shapes[0]}, size)}
	}
	return out
}

func (s *Scenario) draw(r *rand.Rand, i, shares int, leaves []string) Gang {
	n := r.IntN(shares)
	var k kind
	for _, k = range s.kinds {
		if n -= k.Share; n < 0 {
			break
		}
	}
	size := k.Size.draw(r)
	g := Gang{
		Name: fmt.Sprintf("%s-%06d", k.Name, i), Kind: k.Name, Plain: k.Plain,
		MinCount: (size*k.MinPercent + 99) / 100, Pods: make([]workload.Shape, size),
	}
	if k.App != "" {
		g.App, g.Around = k.app(i%k.apps()), k.Around
	}
	if k.Namespaces > 0 {
		g.space = 1 + i/k.apps()%k.Namespaces // each app is in all of them
	}
	g.Volume, g.Secret, g.Topology = k.Volume, k.Secret, k.Topology
	leaf := r.IntN(len(leaves))
	if r.IntN(100) < s.Queues.Skew {
		leaf = 0
	}
	g.Queue = leaves[leaf]
	if l := k.Lifetime; l != nil {
		g.Lifetime = l.Min.Duration + time.Duration(r.Int64N(int64(l.Max.Duration-l.Min.Duration)+1))
	}
	shape := workload.Pick(r, k.shapes)
	for j := range g.Pods {
		if k.Mixed && j > 0 {
			shape = workload.Pick(r, k.shapes)
		}
		g.Pods[j] = shape
	}
	return g
}

func (r Range) draw(random *rand.Rand) int {
	if r.Draw == "small" {
		low, high := math.Log(float64(r.Min)), math.Log(float64(r.Max)+1)
		return min(r.Max, int(math.Exp(low+random.Float64()*(high-low))))
	}
	return r.Min + random.IntN(r.Max-r.Min+1)
}

// meanSize of a gang, in pods.
func (s *Scenario) meanSize(shares int) float64 {
	var mean float64
	for _, k := range s.kinds {
		of := float64(k.Size.Min+k.Size.Max) / 2
		if k.Size.Draw == "small" {
			of = 0
			low, high := math.Log(float64(k.Size.Min)), math.Log(float64(k.Size.Max)+1)
			for n := k.Size.Min; n <= k.Size.Max; n++ {
				of += float64(n) * (math.Log(float64(n)+1) - math.Log(float64(n))) / (high - low)
			}
		}
		mean += of * float64(k.Share) / float64(shares)
	}
	return mean
}

// apps is how many apps the gangs of a kind have.
func (k *kind) apps() int {
	if k.Around == nil {
		return 1
	}
	return max(k.Around.Apps, 1)
}

func (k *kind) app(i int) string { return fmt.Sprintf("%s-%d", k.App, i) }

// constrain has a pod say what it is to require, or prefer, of its app's other pods. base names the scenario's namespaces.
func (a *Around) constrain(p *v1.Pod, app, base string) {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{labelApp: app}}
	if a.Spread != "" {
		spread := v1.TopologySpreadConstraint{MaxSkew: max(a.MaxSkew, 1), TopologyKey: a.Spread, WhenUnsatisfiable: v1.DoNotSchedule, LabelSelector: selector}
		if a.ScheduleAnyway {
			spread.WhenUnsatisfiable = v1.ScheduleAnyway
		}
		if a.NodeTaintsPolicy != "" {
			spread.NodeTaintsPolicy = &a.NodeTaintsPolicy
		}
		p.Spec.TopologySpreadConstraints = []v1.TopologySpreadConstraint{spread}
		return
	}
	term := v1.PodAffinityTerm{TopologyKey: a.Affinity, LabelSelector: selector}
	if a.NamespaceSelector {
		term.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{labelSpaces: base}}
	}
	if a.Affinity != "" {
		p.Spec.Affinity = &v1.Affinity{PodAffinity: &v1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}}
		return
	}
	term.TopologyKey = a.AntiAffinity
	p.Spec.Affinity = &v1.Affinity{PodAntiAffinity: &v1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []v1.PodAffinityTerm{term}}}
}

const (
	labelApp    = "app"
	labelSpaces = "bench.basalt.dev/namespaces" // of all namespaces of a scenario; its value is the name of the one without a number
)

// spaceName is the name of one of a scenario's namespaces.
func spaceName(base string, space int) string {
	if space == 0 {
		return base
	}
	return fmt.Sprintf("%s-%d", base, space)
}

// MakeNamespaces returns the namespaces that pods are in: the first is named as given and there always, the others have numbers behind it.
func (s *Scenario) MakeNamespaces(base string) []*v1.Namespace {
	most := 0
	for _, k := range s.kinds {
		most = max(most, k.Namespaces)
	}
	var out []*v1.Namespace
	for i := range most + 1 {
		out = append(out, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: spaceName(base, i),
			Labels: map[string]string{labelSpaces: base, api.LabelRepelsOthers: "true"}}})
	}
	return out
}

// MakeServices returns the Services of the kinds that have them, for each of their apps and namespaces.
func (s *Scenario) MakeServices(base string) []*v1.Service {
	var out []*v1.Service
	made := map[string]bool{}
	for _, k := range s.kinds {
		if !k.Service {
			continue
		}
		first, last := 0, 0
		if k.Namespaces > 0 {
			first, last = 1, k.Namespaces
		}
		for space := first; space <= last; space++ {
			for i := range k.apps() {
				svc := &v1.Service{
					ObjectMeta: metav1.ObjectMeta{Namespace: spaceName(base, space), Name: k.app(i)},
					Spec:       v1.ServiceSpec{ClusterIP: v1.ClusterIPNone, Selector: map[string]string{labelApp: k.app(i)}, Ports: []v1.ServicePort{{Port: 80}}},
				}
				if key := svc.Namespace + "/" + svc.Name; !made[key] { // kinds may share an app
					made[key] = true
					out = append(out, svc)
				}
			}
		}
	}
	return out
}

// Namespace is the one of the gang's objects.
func (g *Gang) Namespace(base string) string { return spaceName(base, g.space) }

// Claim makes the claim of the i-th pod, if the gang has a Volume. It says that it is bound, to the volume that PersistentVolume makes.
func (g *Gang) Claim(i int, base string) *v1.PersistentVolumeClaim {
	noClass := ""
	return &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace(base), Name: g.PodName(i), Annotations: map[string]string{
			"pv.kubernetes.io/bind-completed": "yes", "pv.kubernetes.io/bound-by-controller": "yes",
		}},
		Spec: v1.PersistentVolumeClaimSpec{
			AccessModes: []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}, StorageClassName: &noClass, VolumeName: base + "-" + g.PodName(i),
			Resources: v1.VolumeResourceRequirements{Requests: v1.ResourceList{v1.ResourceStorage: volumeSize}},
		},
	}
}

// PersistentVolume makes the volume of a claim that exists.
func (g *Gang) PersistentVolume(c *v1.PersistentVolumeClaim) *v1.PersistentVolume {
	p := &v1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: c.Spec.VolumeName, Annotations: map[string]string{"pv.kubernetes.io/bound-by-controller": "yes"}},
		Spec: v1.PersistentVolumeSpec{
			AccessModes: c.Spec.AccessModes, Capacity: v1.ResourceList{v1.ResourceStorage: volumeSize}, PersistentVolumeReclaimPolicy: v1.PersistentVolumeReclaimRetain,
			ClaimRef: &v1.ObjectReference{APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: c.Namespace, Name: c.Name, UID: c.UID},
		},
	}
	if g.Volume == InTreePlugin {
		p.Spec.AWSElasticBlockStore = &v1.AWSElasticBlockStoreVolumeSource{VolumeID: p.Name}
	} else {
		p.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: g.Volume, VolumeHandle: p.Name}
	}
	return p
}

var volumeSize = resource.MustParse("1Gi")

// PodGroup makes the gang's PodGroup.
func (g *Gang) PodGroup(base string) *v1beta1.PodGroup {
	return &v1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace(base), Name: g.Name},
		Spec:       v1beta1.PodGroupSpec{Queue: g.Queue, SchedulingPolicy: v1beta1.SchedulingPolicy{Gang: v1beta1.GangSchedulingPolicy{MinCount: int32(g.MinCount)}}},
	}
}

// KubernetesPodGroup makes the gang's PodGroup of scheduling.k8s.io, if it has a Topology.
func (g *Gang) KubernetesPodGroup(base string) *schedulingv1beta1.PodGroup {
	return &schedulingv1beta1.PodGroup{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace(base), Name: g.Name, Labels: map[string]string{api.LabelQueue: g.Queue}},
		Spec: schedulingv1beta1.PodGroupSpec{
			SchedulingPolicy:      schedulingv1beta1.PodGroupSchedulingPolicy{Gang: &schedulingv1beta1.GangSchedulingPolicy{MinCount: int32(g.MinCount)}},
			SchedulingConstraints: &schedulingv1beta1.PodGroupSchedulingConstraints{Topology: []schedulingv1beta1.TopologyConstraint{{Key: g.Topology}}},
		},
	}
}

// PodName is the name of the i-th pod.
func (g *Gang) PodName(i int) string { return g.Name + "-" + strconv.Itoa(i) }

// Pod makes the i-th pod. Its labels are the same for every scheduler; one that knows no gangs takes it for a plain pod.
func (g *Gang) Pod(i int, base, scheduler string) *v1.Pod {
	grace := int64(0)
	shape := g.Pods[i]
	label := map[string]string{api.LabelPodGroup: g.Name}
	if g.Plain {
		label = map[string]string{api.LabelQueue: g.Queue}
	}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.Namespace(base), Name: g.PodName(i), Labels: label},
		Spec: v1.PodSpec{
			SchedulerName: scheduler, RestartPolicy: v1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace,
			Containers: []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{Requests: shape.Resources()}}},
		},
	}
	if shape.GPUs > 0 { // an extended resource wants its limit to be the same
		p.Spec.Containers[0].Resources.Limits = v1.ResourceList{workload.GPU: *resource.NewQuantity(shape.GPUs, resource.DecimalSI)}
	}
	if g.App != "" {
		p.Labels[labelApp] = g.App
	}
	if a := g.Around; a != nil {
		a.constrain(p, g.App, base)
	}
	if g.Volume != "" {
		p.Spec.Volumes = []v1.Volume{{Name: "data", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: p.Name}}}}
	}
	if g.Secret {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: "secret", VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "secret"}}})
	}
	if g.Topology != "" {
		delete(p.Labels, api.LabelPodGroup)
		p.Spec.SchedulingGroup = &v1.PodSchedulingGroup{PodGroupName: &g.Name}
	}
	if g.Lifetime > 0 {
		p.Annotations = map[string]string{kubelet.RunSeconds: fmt.Sprintf("%.1f", g.Lifetime.Seconds())}
	}
	return p
}
