// Package scenario describes the load of a benchmark: nodes, a queue tree, gangs and when they arrive, as small YAML files,
// and makes the very same objects from a scenario and a seed each time.
//
// It decides every object's name, shape, queue and time of arrival, and nothing about how the load is given to a scheduler
// or what is measured. It owns the files in its folder files/. It refuses what it does not know: a field that no one reads
// is an error that names file and field, so a figure never comes from a setting that was ignored.
//
// Invariants: the same scenario and seed give the same objects, whatever was asked for before; nodes, queues and gangs come
// from streams of their own, so a change of one leaves the others as they were.
package scenario

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/bench/measure/workload"
)

// Scenario is one file.
type Scenario struct {
	// About says in a line or two what the scenario is for.
	About string `json:"about"`
	// Seed is used where none is given.
	Seed     uint64    `json:"seed"`
	Nodes    []NodeSet `json:"nodes"`
	Queues   Queues    `json:"queues"`
	Gangs    []Kind    `json:"gangs"`
	Arrivals Arrivals  `json:"arrivals"`
	Beside   Beside    `json:"beside,omitempty"`
	Claims   *Claims   `json:"claims,omitempty"`

	file  string
	kinds []kind // Gangs, checked
}

// NodeSet is a number of nodes that are alike, or with Openb a number of nodes in the shapes of package workload, each as
// often as the trace has it.
type NodeSet struct {
	Count  int               `json:"count"`
	Openb  bool              `json:"openb,omitempty"`
	CPU    resource.Quantity `json:"cpu,omitempty"`
	Memory resource.Quantity `json:"memory,omitempty"`
	GPUs   int64             `json:"gpus,omitempty"`
	Pods   int64             `json:"pods,omitempty"` // how many pods a node takes; 110 if absent
	Labels map[string]string `json:"labels,omitempty"`
	Zones  int               `json:"zones,omitempty"` // in how many zones they are, in turn; 0: without the label
	Taint  string            `json:"taint,omitempty"` // the key of a taint with the effect NoSchedule
	CSI    *CSI              `json:"csi,omitempty"`   // what their CSINodes say; nil: there are none
}

// CSI is a driver that is installed on nodes, as their CSINodes and what they can allocate say.
type CSI struct {
	Driver string `json:"driver"`
	Limit  int32  `json:"limit"` // of volumes of a node
	// Migrated is the in-tree plugin whose volumes the driver serves; "" for none.
	Migrated string `json:"migrated,omitempty"`
}

// Queues is a tree in which each queue of a level has equally many children. Gangs go to its leaves.
type Queues struct {
	// FanOut has one number a level: [1, 20] is 20 queues under one parent.
	FanOut []int `json:"fanOut"`
	// CapabilityPercent has one number a level: a queue's limit on CPU, memory and GPUs in percent of its even share of the
	// cluster (of all nodes over the number of queues on that level). 0, and a level left out, is no limit.
	CapabilityPercent []int64 `json:"capabilityPercent,omitempty"`
	// DeservedPercent is the same for what a queue deserves. 0, and a level left out, is nothing named.
	DeservedPercent []int64 `json:"deservedPercent,omitempty"`
	// Skew is the percentage of gangs that go to the first leaf; the others are drawn evenly from all leaves.
	Skew int `json:"skew,omitempty"`
}

// Kind is one sort of gang.
type Kind struct {
	Name string `json:"name"`
	// Share is how many gangs are of this kind, as a weight against the other kinds; 1 if absent.
	Share int `json:"share,omitempty"`
	// Size in pods.
	Size Range `json:"size"`
	// MinPercent of the pods make the gang's minCount, rounded up; 100 if absent.
	MinPercent int `json:"minPercent,omitempty"`
	// Plain pods have no PodGroup, only the queue's label: for gangs of one.
	Plain bool `json:"plain,omitempty"`
	// Pods are the shapes that pods are drawn from.
	Pods []PodShape `json:"pods"`
	// Mixed draws each pod's shape, instead of one shape for a gang.
	Mixed bool `json:"mixed,omitempty"`
	// App is what the pods' label app begins with; the kind's name if absent. Kinds of one app are what each other's constraints are about.
	// A kind with an app and without Around has the label, and requires nothing.
	App string `json:"app,omitempty"`
	// Around says what the pods require of each other.
	Around *Around `json:"around,omitempty"`
	// Namespaces is in how many namespaces the gangs are, in turn; 0: in the one that the others are in.
	Namespaces int `json:"namespaces,omitempty"`
	// Service makes a Service of the pods of each app and namespace.
	Service bool `json:"service,omitempty"`
	// Volume gives each pod a claim of its own, bound to a volume of this CSI driver or in-tree plugin, which nodes have to have.
	Volume string `json:"volume,omitempty"`
	// Secret gives each pod a volume of a Secret, which is not there.
	Secret bool `json:"secret,omitempty"`
	// Topology is a label of nodes of which each gang has to be in one domain. The gangs have PodGroups of Kubernetes' own then, which
	// kube-scheduler reads, too.
	Topology string `json:"topology,omitempty"`
	// Lifetime is how long a pod runs after it got its node; absent: until the benchmark ends.
	Lifetime *Lifetime `json:"lifetime,omitempty"`
}

// Around is one constraint between pods, a required one but for a spread with ScheduleAnyway. The gangs of a kind have one of so many apps, in turn, and the constraint of a pod is about
// the pods of its app.
type Around struct {
	Apps         int    `json:"apps,omitempty"`         // 1 if absent
	Affinity     string `json:"affinity,omitempty"`     // a topology key, of one of the three
	AntiAffinity string `json:"antiAffinity,omitempty"` // likewise
	Spread       string `json:"spread,omitempty"`       // likewise
	MaxSkew      int32  `json:"maxSkew,omitempty"`      // of the spread, 1 if absent
	// ScheduleAnyway makes the spread a preference.
	ScheduleAnyway bool `json:"scheduleAnyway,omitempty"`
	// NodeTaintsPolicy is that of the spread: Honor, Ignore, or absent.
	NodeTaintsPolicy v1.NodeInclusionPolicy `json:"nodeTaintsPolicy,omitempty"`
	// NamespaceSelector makes an affinity or anti-affinity be about the app's pods in all namespaces of the scenario, by a label of theirs.
	NamespaceSelector bool `json:"namespaceSelector,omitempty"`
}

// InTreePlugin is the one plugin in Kubernetes' own tree whose volumes a scenario can have.
const InTreePlugin = "kubernetes.io/aws-ebs"

// PodShape is what a pod asks for, or with Openb one of the trace's shapes, each as often as the trace has it.
type PodShape struct {
	Openb  bool              `json:"openb,omitempty"`
	Weight int               `json:"weight,omitempty"` // against the kind's other shapes; 1 if absent
	CPU    resource.Quantity `json:"cpu,omitempty"`
	Memory resource.Quantity `json:"memory,omitempty"`
	GPUs   int64             `json:"gpus,omitempty"`
}

// Range is drawn from with both ends included. Draw is "even", or "small" for sizes whose logarithm is even: many small
// ones and a few as large as Max.
type Range struct {
	Min  int    `json:"min"`
	Max  int    `json:"max"`
	Draw string `json:"draw,omitempty"`
}

// Lifetime is drawn evenly from Min to Max, for a gang: its pods end together.
type Lifetime struct {
	Min Duration `json:"min"`
	Max Duration `json:"max"`
}

// Arrivals say when gangs come: one of Closed, Open and Steady. Steady and Beside are for `basalt-bench cluster` alone.
type Arrivals struct {
	Closed *Closed `json:"closed,omitempty"`
	Open   *Open   `json:"open,omitempty"`
	Steady *Steady `json:"steady,omitempty"`
}

// Closed is a batch that is there at once, as fast as the client can make it.
type Closed struct {
	Gangs int `json:"gangs"`
}

// Open is a Poisson stream of gangs that does not wait for the scheduler. Each rate is a run of its own.
type Open struct {
	PodsPerSecond []int    `json:"podsPerSecond"`
	For           Duration `json:"for"`
}

// Steady keeps the cluster full, whatever the speed of the machine: gangs come while fewer than Waiting pods wait for a node,
// and while pods hold more than CPUPercent of the cluster's CPU, gangs drawn at random end. Kinds have no lifetime in it.
type Steady struct {
	CPUPercent    int `json:"cpuPercent"`
	Waiting       int `json:"waiting"`
	PodsPerSecond int `json:"podsPerSecond,omitempty"` // at most, once the cluster is full; 0: as fast as pods get nodes
}

// Beside is what is there beside the load and is no part of its figures.
type Beside struct {
	Never int `json:"never,omitempty"` // pods that no node could take if it were empty, gangs of one, there from the beginning
	Crowd int `json:"crowd,omitempty"` // gangs of the scenario that are all in the first leaf when the load begins
	Large int `json:"large,omitempty"` // gangs of 10,000 pods in 10 classes, one after the other
}

// Any reports whether there is anything.
func (b Beside) Any() bool { return b != Beside{} }

// Claims has queues take back what they deserve: the load fills the cluster from the first half of the leaves, and gangs of the second half
// then have it evicted. Queues have no preemptionDelay and no reclaimMinRuntime, so what is measured begins with the first denial. Evicted
// pods are made again, and wait until the claimants have ended. It is for `basalt-bench cluster` alone.
type Claims struct {
	Pods     int      `json:"pods"`     // of one large gang, and then of so many gangs together
	Together int      `json:"together"` // which claim at once
	Leave    Duration `json:"leave"`    // how long an evicted pod takes to leave, in whole seconds
}

// Duration is written as Go writes it: 1m30s.
type Duration struct{ time.Duration }

// UnmarshalJSON implements json.Unmarshaler.
func (d *Duration) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return fmt.Errorf("a duration is written like 1m30s: %s", b)
	}
	var err error
	d.Duration, err = time.ParseDuration(s)
	return err
}

// MarshalJSON implements json.Marshaler.
func (d Duration) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

//go:embed files/*.yaml
var files embed.FS

// Names returns the names of the built-in scenarios.
func Names() []string {
	entries, err := fs.ReadDir(files, "files")
	if err != nil {
		panic(err) // embedded
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return out
}

// Load reads a built-in scenario by its name, or a file: whatever has a slash in it or ends in .yaml.
func Load(name string) (*Scenario, error) {
	var content []byte
	var err error
	if strings.Contains(name, "/") || strings.HasSuffix(name, ".yaml") {
		content, err = os.ReadFile(name)
	} else if content, err = files.ReadFile(path.Join("files", name+".yaml")); err != nil {
		return nil, fmt.Errorf("read scenario %q: there is none of this name; there are %s, or give a file", name, strings.Join(Names(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("read scenario: %w", err)
	}
	return Parse(name, content)
}

// Parse reads a scenario; the name is for errors and reports.
func Parse(name string, content []byte) (*Scenario, error) {
	s := &Scenario{file: name}
	if err := yaml.UnmarshalStrict(content, s); err != nil {
		return nil, fmt.Errorf("read scenario %s: %w", name, err)
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("read scenario %s: %w", name, err)
	}
	return s, nil
}

// Name is what the scenario was loaded by.
func (s *Scenario) Name() string { return s.file }

// kind is a Kind with its shapes in units.
type kind struct {
	Kind
	shapes []workload.Shape // Count is the weight
}

// Most that a scenario may ask for: what is beyond is a slip of the pen, and would only be noticed when memory is gone.
const (
	mostNodes  = 1_000_000
	mostQueues = 100_000
	mostSize   = 1_000_000
	mostSpaces = 10_000 // namespaces
)

func (s *Scenario) check() error {
	bad := func(field, format string, args ...any) error {
		return fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...))
	}
	if s.Seed == 0 {
		s.Seed = 1
	}
	if len(s.Nodes) == 0 {
		return bad("nodes", "there are none")
	}
	for i, n := range s.Nodes {
		at := fmt.Sprintf("nodes[%d]", i)
		if n.Count < 1 || n.Count > mostNodes {
			return bad(at+".count", "%d is not from 1 to %d", n.Count, mostNodes)
		}
		if n.Openb && (!n.CPU.IsZero() || !n.Memory.IsZero() || n.GPUs != 0) {
			return bad(at+".openb", "the trace says how large its nodes are; leave cpu, memory and gpus out")
		}
		if n.Pods < 0 || n.GPUs < 0 || n.Zones < 0 {
			return bad(at, "pods, gpus and zones are not negative")
		}
		if bad := validation.IsQualifiedName(n.Taint); n.Taint != "" && len(bad) > 0 {
			return fmt.Errorf("%s.taint: %q is not the key of a taint: %s", at, n.Taint, bad[0])
		}
		if c := n.CSI; c != nil {
			if wrong := validation.IsDNS1123Subdomain(c.Driver); len(wrong) > 0 || len(c.Driver) > 63 {
				return bad(at+".csi.driver", "%q is not the name of a CSI driver, of at most 63 characters", c.Driver)
			}
			if c.Limit < 1 {
				return bad(at+".csi.limit", "%d is not positive", c.Limit)
			}
			if c.Migrated != "" && c.Migrated != InTreePlugin {
				return bad(at+".csi.migrated", "%q is not %s", c.Migrated, InTreePlugin)
			}
		}
		if !n.Openb {
			if _, err := shapeOf(at, n.CPU, n.Memory, n.GPUs); err != nil {
				return err
			}
		}
	}
	leaves := 1
	if len(s.Queues.FanOut) == 0 {
		return bad("queues.fanOut", "there is no level")
	}
	for i, n := range s.Queues.FanOut {
		if leaves *= n; n < 1 || leaves > mostQueues {
			return bad(fmt.Sprintf("queues.fanOut[%d]", i), "%d gives no tree of 1 to %d leaves", n, mostQueues)
		}
	}
	if len(s.Queues.FanOut) > 7 {
		return bad("queues.fanOut", "at most 7 levels")
	}
	if len(s.Queues.CapabilityPercent) > len(s.Queues.FanOut) {
		return bad("queues.capabilityPercent", "more levels than fanOut has")
	}
	if len(s.Queues.DeservedPercent) > len(s.Queues.FanOut) {
		return bad("queues.deservedPercent", "more levels than fanOut has")
	}
	for i, p := range slices.Concat(s.Queues.CapabilityPercent, s.Queues.DeservedPercent) {
		if p < 0 || p > 10_000 {
			field, of := "capabilityPercent", len(s.Queues.CapabilityPercent)
			if i >= of {
				field, i = "deservedPercent", i-of
			}
			return bad(fmt.Sprintf("queues.%s[%d]", field, i), "%d is not from 0 to 10000", p)
		}
	}
	if s.Queues.Skew < 0 || s.Queues.Skew > 100 {
		return bad("queues.skew", "%d is not a percentage", s.Queues.Skew)
	}
	if len(s.Gangs) == 0 {
		return bad("gangs", "there are none")
	}
	names := map[string]bool{}
	s.kinds = nil
	for i, k := range s.Gangs {
		at := fmt.Sprintf("gangs[%d]", i)
		if k.Name == "" || api.ValidatePath(k.Name) != nil || strings.Contains(k.Name, ".") || len(k.Name) > 40 || names[k.Name] {
			return bad(at+".name", "%q is not a name of its own in lower-case letters, digits and dashes, of at most 40 characters", k.Name)
		}
		names[k.Name] = true
		if k.Share == 0 {
			k.Share = 1
		}
		if k.MinPercent == 0 {
			k.MinPercent = 100
		}
		if k.Share < 0 {
			return bad(at+".share", "%d is negative", k.Share)
		}
		if k.Size.Min < 1 || k.Size.Max < k.Size.Min || k.Size.Max > mostSize {
			return bad(at+".size", "%d to %d is not a range within 1 to %d", k.Size.Min, k.Size.Max, mostSize)
		}
		if k.Size.Draw != "" && k.Size.Draw != "even" && k.Size.Draw != "small" {
			return bad(at+".size.draw", "%q is neither even nor small", k.Size.Draw)
		}
		if k.MinPercent < 1 || k.MinPercent > 100 {
			return bad(at+".minPercent", "%d is not from 1 to 100", k.MinPercent)
		}
		if a := k.Around; a != nil {
			given := slices.DeleteFunc([]string{a.Affinity, a.AntiAffinity, a.Spread}, func(key string) bool { return key == "" })
			if len(given) != 1 || a.Apps < 0 || a.MaxSkew < 0 || a.MaxSkew > 0 && a.Spread == "" {
				return bad(at+".around", "give one of affinity, antiAffinity and spread; apps and maxSkew are not negative, and maxSkew is for a spread")
			}
			if p := a.NodeTaintsPolicy; p != "" && (a.Spread == "" || p != v1.NodeInclusionPolicyHonor && p != v1.NodeInclusionPolicyIgnore) {
				return bad(at+".around.nodeTaintsPolicy", "%q is neither Honor nor Ignore of a spread", p)
			}
			if a.ScheduleAnyway && a.Spread == "" {
				return bad(at+".around.scheduleAnyway", "it is for a spread")
			}
			if a.NamespaceSelector && a.Spread != "" {
				return bad(at+".around.namespaceSelector", "a spread is about the pods of its own namespace")
			}
		}
		if k.App != "" && len(validation.IsDNS1123Label(k.App)) > 0 || len(k.App) > 40 {
			return bad(at+".app", "%q is not in lower-case letters, digits and dashes, of at most 40 characters", k.App)
		}
		if k.Namespaces < 0 || k.Namespaces > mostSpaces {
			return bad(at+".namespaces", "%d is not from 0 to %d", k.Namespaces, mostSpaces)
		}
		if k.Volume != "" && !slices.ContainsFunc(s.Nodes, func(n NodeSet) bool { return n.CSI != nil && (k.Volume == n.CSI.Driver || k.Volume == n.CSI.Migrated) }) {
			return bad(at+".volume", "no nodes have the driver or plugin %q in csi", k.Volume)
		}
		if wrong := validation.IsQualifiedName(k.Topology); k.Topology != "" && (len(wrong) > 0 || k.Plain || k.Lifetime != nil) {
			return bad(at+".topology", "%q is not the key of a label, or the gangs are plain or have a lifetime", k.Topology)
		}
		if k.Plain && k.Size.Max > 1 {
			return bad(at+".plain", "a gang of more than one pod needs a PodGroup")
		}
		if l := k.Lifetime; l != nil && (l.Min.Duration <= 0 || l.Max.Duration < l.Min.Duration) {
			return bad(at+".lifetime", "%s to %s is not a range of positive durations", l.Min.Duration, l.Max.Duration)
		}
		if k.App == "" && (k.Around != nil || k.Service) {
			k.App = k.Name
		}
		checked := kind{Kind: k}
		if len(k.Pods) == 0 {
			return bad(at+".pods", "there is no shape")
		}
		for j, p := range k.Pods {
			at := fmt.Sprintf("%s.pods[%d]", at, j)
			if p.Weight == 0 {
				p.Weight = 1
			}
			if p.Weight < 0 || p.GPUs < 0 {
				return bad(at, "weight and gpus are not negative")
			}
			if p.Openb {
				if !p.CPU.IsZero() || !p.Memory.IsZero() || p.GPUs != 0 {
					return bad(at+".openb", "the trace says what its pods ask for; leave cpu, memory and gpus out")
				}
				for _, shape := range workload.Pods() {
					shape.Count *= p.Weight
					checked.shapes = append(checked.shapes, shape)
				}
				continue
			}
			shape, err := shapeOf(at, p.CPU, p.Memory, p.GPUs)
			if err != nil {
				return err
			}
			shape.Count = p.Weight
			checked.shapes = append(checked.shapes, shape)
		}
		s.kinds = append(s.kinds, checked)
	}
	switch a := s.Arrivals; {
	case len(slices.DeleteFunc([]bool{a.Closed != nil, a.Open != nil, a.Steady != nil}, func(given bool) bool { return !given })) != 1:
		return bad("arrivals", "give one of closed, open and steady")
	case a.Steady != nil && (a.Steady.CPUPercent < 1 || a.Steady.CPUPercent > 100):
		return bad("arrivals.steady.cpuPercent", "%d is not from 1 to 100", a.Steady.CPUPercent)
	case a.Steady != nil && (a.Steady.Waiting < 1 || a.Steady.PodsPerSecond < 0):
		return bad("arrivals.steady", "waiting is at least 1, and podsPerSecond not negative")
	case a.Steady != nil && slices.ContainsFunc(s.Gangs, func(k Kind) bool { return k.Lifetime != nil }):
		return bad("gangs", "with steady arrivals the load decides which gangs end: leave lifetime out")
	case a.Closed != nil && a.Closed.Gangs < 1:
		return bad("arrivals.closed.gangs", "%d is not positive", a.Closed.Gangs)
	case a.Open != nil && a.Open.For.Duration <= 0:
		return bad("arrivals.open.for", "%s is not positive", a.Open.For.Duration)
	case a.Open != nil && len(a.Open.PodsPerSecond) == 0:
		return bad("arrivals.open.podsPerSecond", "there is no rate")
	}
	if b := s.Beside; b.Never < 0 || b.Crowd < 0 || b.Large < 0 {
		return bad("beside", "no number of it is negative")
	}
	if c := s.Claims; c != nil {
		switch {
		case s.Arrivals.Closed == nil:
			return bad("claims", "closed arrivals fill the cluster first: give arrivals.closed")
		case leaves%2 > 0:
			return bad("claims", "half of the leaves fill the cluster and the other half claims: %d is not even", leaves)
		case s.Beside.Any():
			return bad("claims", "there is nothing beside claims: leave beside out")
		case len(s.kinds) > 1 || len(s.kinds[0].shapes) > 1 || s.kinds[0].Lifetime != nil || s.kinds[0].Plain || s.kinds[0].Around != nil:
			return bad("gangs", "with claims there is one kind with one shape of pods, and without plain, around and lifetime")
		case c.Pods < 1 || c.Pods > mostSize:
			return bad("claims.pods", "%d is not from 1 to %d", c.Pods, mostSize)
		case c.Together < 1 || c.Pods%c.Together > 0:
			return bad("claims.together", "%d does not divide claims.pods, which is %d", c.Together, c.Pods)
		case c.Leave.Duration < time.Second || c.Leave.Duration%time.Second > 0:
			return bad("claims.leave", "%s is not in whole seconds, at least 1s", c.Leave.Duration)
		}
	}
	if s.Arrivals.Open != nil {
		for i, r := range s.Arrivals.Open.PodsPerSecond {
			if r < 1 {
				return bad(fmt.Sprintf("arrivals.open.podsPerSecond[%d]", i), "%d is not positive", r)
			}
		}
	}
	return nil
}

// Topology reports whether gangs have to be in one domain of the topology.
func (s *Scenario) Topology() bool {
	return slices.ContainsFunc(s.Gangs, func(k Kind) bool { return k.Topology != "" })
}

// OnlyKube names the first field that only the command `kube` gives to a scheduler: in the API server in memory its kinds are not
// there, or its pods are alike but for what they ask for. It is "" if there is none.
func (s *Scenario) OnlyKube() string {
	for i, n := range s.Nodes {
		if n.CSI != nil {
			return fmt.Sprintf("nodes[%d].csi", i)
		}
	}
	for i, k := range s.Gangs {
		for _, f := range []struct {
			name  string
			given bool
		}{{"app", k.App != ""}, {"around", k.Around != nil}, {"namespaces", k.Namespaces > 0}, {"service", k.Service}, {"volume", k.Volume != ""}, {"secret", k.Secret}, {"topology", k.Topology != ""}} {
			if f.given {
				return fmt.Sprintf("gangs[%d].%s", i, f.name)
			}
		}
	}
	return ""
}

// shapeOf checks quantities once, into milli-cores and MiB.
func shapeOf(at string, cpu, memory resource.Quantity, gpus int64) (workload.Shape, error) {
	c, err := api.FromQuantity("cpu", cpu, true)
	if err != nil {
		return workload.Shape{}, fmt.Errorf("%s.cpu: %w", at, err)
	}
	m, err := api.FromQuantity("memory", memory, true)
	if err != nil {
		return workload.Shape{}, fmt.Errorf("%s.memory: %w", at, err)
	}
	if c <= 0 || m < 1<<20 || m%(1<<20) != 0 {
		return workload.Shape{}, fmt.Errorf("%s: cpu must be positive and memory whole Mi, at least one", at)
	}
	return workload.Shape{MilliCPU: c, MemoryMiB: m >> 20, GPUs: gpus}, nil
}
