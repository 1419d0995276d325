package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/dynamic-resource-allocation/resourceslice/tracker"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	internalcache "k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
	"k8s.io/kubernetes/pkg/scheduler/util/assumecache"
)

// Answer is which nodes can take a pod. A node that is in neither map does not exist.
type Answer struct {
	Fits map[string]bool
	Why  map[string]Reason // of the nodes that cannot
	// Refused is why Basalt does not place the pod at all, "" otherwise.
	Refused string
}

// Reason is who keeps a pod from a node.
type Reason struct{ Plugin, Message string }

func (a *Answer) refuse(node, plugin, message string) { a.Why[node] = Reason{plugin, message} }

func newAnswer() *Answer { return &Answer{Fits: map[string]bool{}, Why: map[string]Reason{}} }

// profile is kube-scheduler's default profile. Preemption and binding are left out: they filter nothing.
var profile = sync.OnceValues(func() (*config.KubeSchedulerProfile, error) {
	metrics.Register()
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	cfg, err := latest.Default()
	if err != nil {
		return nil, err
	}
	p := cfg.Profiles[0]
	p.Plugins.MultiPoint.Enabled = slices.DeleteFunc(p.Plugins.MultiPoint.Enabled, func(p config.Plugin) bool { return p.Name == names.DefaultPreemption })
	return &p, nil
})

// client is asked for nothing while pods are filtered.
var client = sync.OnceValue(func() *fake.Clientset { return fake.NewSimpleClientset() })

// Feasible returns which nodes of a case the filter plugins of kube-scheduler accept for its pod, as findNodesThatFitPod does.
// What pods there are is read from the case; everything else comes to the
// plugins by informers.
func Feasible(c *Case) (*Answer, error) { return feasible(c, nil) }

// feasible is Feasible, and then shows the framework and the nodes that fit to a function, nil for none.
func feasible(c *Case, then func(ctx context.Context, f framework.Framework, state fwk.CycleState, fit []fwk.NodeInfo) error) (*Answer, error) {
	c = c.byRight()
	profile, err := profile()
	if err != nil {
		return nil, fmt.Errorf("read the default profile: %w", err)
	}
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), klog.Logger{}))
	defer cancel()
	factory := newFactory(c)
	claims := assumecache.NewAssumeCache(klog.Logger{}, factory.Resource().V1().ResourceClaims().Informer(), "ResourceClaim", "", nil)
	slices, err := tracker.StartTracker(ctx, tracker.Options{
		EnableDeviceTaintRules:   utilfeature.DefaultFeatureGate.Enabled(features.DRADeviceTaintRules),
		EnableConsumableCapacity: utilfeature.DefaultFeatureGate.Enabled(features.DRAConsumableCapacity),
		SliceInformer:            factory.Resource().V1().ResourceSlices(),
		TaintInformer:            factory.Resource().V1().DeviceTaintRules(),
	})
	if err != nil {
		return nil, fmt.Errorf("track resource slices: %w", err)
	}
	dra := dynamicresources.NewDRAManager(ctx, claims, slices, factory)
	_, err = factory.Resource().V1().DeviceClasses().Informer().AddEventHandler(dra.DeviceClassResolver().(*extendedresourcecache.ExtendedResourceCache))
	if err != nil {
		return nil, fmt.Errorf("watch device classes: %w", err)
	}

	bound, nominated := split(c)
	snapshot := internalcache.NewSnapshot(bound, c.Nodes)
	f, err := frameworkruntime.NewFramework(ctx, plugins.NewInTreeRegistry(), profile,
		frameworkruntime.WithClientSet(client()),
		frameworkruntime.WithInformerFactory(factory),
		frameworkruntime.WithSharedDRAManager(dra),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(factory.Storage().V1().CSINodes().Lister())),
		frameworkruntime.WithSnapshotSharedLister(snapshot),
		frameworkruntime.WithMutableSnapshotLister(snapshot),
		frameworkruntime.WithPodNominator(nominated),
		frameworkruntime.WithWaitingPods(frameworkruntime.NewWaitingPodsMap()),
		frameworkruntime.WithPodsInPreBind(frameworkruntime.NewPodsInPreBindMap()),
	)
	if err != nil {
		return nil, fmt.Errorf("make the framework: %w", err)
	}
	for !slices.HasSynced() { // a goroutine of its own sees that its informers are in sync
		time.Sleep(10 * time.Microsecond)
	}

	out := newAnswer()
	state := framework.NewCycleState()
	result, status, _ := f.RunPreFilterPlugins(ctx, state, c.Pod)
	if !status.IsSuccess() {
		if !status.IsRejected() && status.Plugin() == "" {
			return nil, fmt.Errorf("prefilter: %w", status.AsError())
		}
		for _, n := range c.Nodes {
			out.refuse(n.Name, status.Plugin(), status.Message())
		}
		return out, nil
	}
	var fit []fwk.NodeInfo
	for _, n := range c.Nodes {
		if !result.AllNodes() && !result.NodeNames.Has(n.Name) {
			out.refuse(n.Name, names.NodeAffinity, "not among the nodes that prefilter plugins left")
			continue
		}
		info, err := snapshot.Get(n.Name)
		if err != nil {
			return nil, fmt.Errorf("read node %s: %w", n.Name, err)
		}
		if status := f.RunFilterPluginsWithNominatedPods(ctx, state, c.Pod, info); status.IsSuccess() {
			out.Fits[n.Name] = true
			fit = append(fit, info)
		} else {
			out.refuse(n.Name, status.Plugin(), status.Message())
		}
	}
	if then == nil {
		return out, nil
	}
	return out, then(ctx, f, state, fit)
}

// split returns the pods that take room on nodes, and those that a scheduler has nominated to take some. Finished pods do not count:
// kube-scheduler does not even watch them.
func split(c *Case) ([]*v1.Pod, nominator) {
	there := map[string]bool{}
	for _, n := range c.Nodes {
		there[n.Name] = true
	}
	var bound []*v1.Pod
	nominated := nominator{}
	for _, p := range c.Pods {
		switch {
		case p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed:
		case there[p.Spec.NodeName]:
			bound = append(bound, p)
		case p.Spec.NodeName == "" && p.Status.NominatedNodeName != "":
			if info, err := framework.NewPodInfo(p); err == nil {
				nominated[p.Status.NominatedNodeName] = append(nominated[p.Status.NominatedNodeName], info)
			}
		}
	}
	return bound, nominated
}

// nominator holds the pods nominated to each node. Nothing changes them while a case is judged.
type nominator map[string][]fwk.PodInfo

func (nominator) AddNominatedPod(klog.Logger, fwk.PodInfo, *fwk.NominatingInfo) {}
func (nominator) DeleteNominatedPodIfExists(*v1.Pod)                            {}
func (nominator) UpdateNominatedPod(klog.Logger, *v1.Pod, fwk.PodInfo)          {}
func (n nominator) NominatedPodsForNode(node string) []fwk.PodInfo              { return n[node] }
