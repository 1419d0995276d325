package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"

	"basalt.dev/basalt/api"
)

// upstream is a case of one of kube-scheduler's own filter tests, as export writes it.
type upstream struct {
	Name    string
	Pod     *v1.Pod
	Nodes   []*v1.Node
	Pods    []*v1.Pod
	Objects []struct {
		Kind   string
		Object json.RawMessage
	}
	Refused map[string]string // by the plugin under test, with "" for all nodes
	Asked   []string
}

// pluginOf is the plugin whose tests a file holds.
var pluginOf = map[string]string{
	"interpodaffinity": "InterPodAffinity", "nodeaffinity": "NodeAffinity", "nodedeclaredfeatures": "NodeDeclaredFeatures", "nodeports": "NodePorts", "noderesources": "NodeResourcesFit",
	"nodeunschedulable": "NodeUnschedulable", "podtopologyspread": "PodTopologySpread", "tainttoleration": "TaintToleration", "volumerestrictions": "VolumeRestrictions", "nodevolumelimits": "NodeVolumeLimits", "volumebinding": "VolumeBinding",
	"volumezone": "VolumeZone",
}

// otherwise are cases in which the oracle rightly says something else, because the test has other settings than the default profile.
var otherwise = map[string]string{
	"TestNodeAffinity/Doesn't_match_added_affinity":                                                                       "affinity of the scheduler's configuration",
	"TestFilter/Node_does_not_match_requirements":                                                                         "features that only the test knows",
	"TestFilter/Node_has_no_declared_features":                                                                            "features that only the test knows",
	"TestFilter/Node_with_some_but_not_all_required_features":                                                             "features that only the test knows",
	"TestEnoughRequests/extended_resource_backed_by_DRA":                                                                  "a device class that is no object of the case",
	"TestEnoughRequests/extended_resource_was_backed_by_Device_Plugin_(Allocatable:_0)":                                   "a device class that is no object of the case",
	"TestDeferredResizeFit/deferred_pod_resize_fits,_no_other_workloads":                                                  "preemption for resizes, which is off by default",
	"TestTaintTolerationFilter/Pod_with_Gt_toleration_can_be_scheduled_on_node_when_taint_value_is_higher_than_threshold": "comparisons in tolerations, which are off by default",
	"TestTaintTolerationFilter/Pod_with_Lt_toleration_can_be_scheduled_on_node_when_taint_value_is_lower_than_threshold":  "comparisons in tolerations, which are off by default",
}

// TestUpstream compares the two on the cases of kube-scheduler's own tests, and checks that the oracle says of each node what the plugin
// said there.
func TestUpstream(t *testing.T) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) != len(pluginOf) {
		t.Fatalf("%v: %q", err, files)
	}
	for _, file := range files {
		plugin := pluginOf[strings.TrimSuffix(filepath.Base(file), ".json")]
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var all []upstream
		if err := json.Unmarshal(b, &all); err != nil || len(all) == 0 {
			t.Fatalf("%s: %v", file, err)
		}
		r := newResult(0)
		for i, u := range all {
			c, err := u.complete(plugin)
			if err != nil {
				t.Fatalf("%s: %s: %v", file, u.Name, err)
			}
			v, err := Compare(c)
			if v.Refused != "" && (plugin == "InterPodAffinity" || plugin == "PodTopologySpread") {
				t.Logf("%s: Basalt refuses %s", u.Name, v.Refused)
			}
			r.note(uint64(i), v, err)
			if err != nil {
				t.Errorf("%s: %v", u.Name, err)
				continue
			}
			for _, m := range v.Mismatches {
				if !isOpen(m) {
					t.Errorf("%s: %v\n%s", u.Name, m, c.YAML())
				}
			}
			why := u.differs(c, plugin)
			if listed := otherwise[u.Name] != ""; listed && why == "" {
				t.Errorf("%s: the oracle says the same", u.Name)
			} else if !listed && why != "" {
				t.Errorf("%s: %s", u.Name, why)
			}
		}
		t.Logf("%-20s %d cases: %d agree, Basalt refuses %d by name, %d show open gaps", plugin, len(all), r.agreed, total(r.refused), len(all)-r.agreed-total(r.refused))
	}
}

// differs says on which node the oracle answers otherwise than the plugin in its own test.
func (u *upstream) differs(c *Case, plugin string) string {
	a, err := Feasible(c)
	if err != nil {
		return err.Error()
	}
	why, all := u.Refused[""]
	for _, n := range c.Nodes {
		refused := all
		if !all {
			why, refused = u.Refused[n.Name]
		}
		asked := all
		for _, name := range u.Asked {
			asked = asked || name == n.Name
		}
		switch {
		case !asked:
		case refused && a.Fits[n.Name]:
			return fmt.Sprintf("the plugin refuses node %s: %s, and the oracle takes it", n.Name, why)
		case !refused && a.Why[n.Name].Plugin == plugin:
			return fmt.Sprintf("the plugin takes node %s, and the oracle refuses it: %s", n.Name, a.Why[n.Name].Message)
		}
	}
	return ""
}

// mayRepelOthers gives all namespaces the right to repel pods of others, as kube-scheduler has it.
func (c *Case) mayRepelOthers() {
	spaces := map[string]*v1.Namespace{}
	for _, o := range c.Objects {
		if n, is := o.(*v1.Namespace); is {
			spaces[n.Name] = n
		}
	}
	for _, p := range append([]*v1.Pod{c.Pod}, c.Pods...) {
		if spaces[p.Namespace] == nil {
			spaces[p.Namespace] = namespace(p.Namespace)
			c.Objects = append(c.Objects, spaces[p.Namespace])
		}
	}
	for _, n := range spaces {
		metav1.SetMetaDataLabel(&n.ObjectMeta, api.LabelRepelsOthers, "true")
	}
}

// complete makes a case of what a test of one plugin leaves out: identities, and nodes with room.
func (u *upstream) complete(plugin string) (*Case, error) {
	c := &Case{Pod: u.Pod, Nodes: u.Nodes, Pods: u.Pods}
	for _, o := range u.Objects {
		into, err := scheme.Scheme.New(v1.SchemeGroupVersion.WithKind(o.Kind))
		if err != nil {
			into, err = scheme.Scheme.New(storagev1.SchemeGroupVersion.WithKind(o.Kind))
		}
		if err != nil {
			return nil, fmt.Errorf("read an object: %w", err)
		}
		if err := json.Unmarshal(o.Object, into); err != nil {
			return nil, err
		}
		if pvc, is := into.(*v1.PersistentVolumeClaim); is && pvc.Spec.VolumeName != "" && plugin != "VolumeBinding" {
			pvc.Annotations, pvc.Status.Phase = map[string]string{bindComplete: "yes"}, v1.ClaimBound
		}
		c.Objects = append(c.Objects, into)
	}
	for _, n := range c.Nodes {
		n.UID = types.UID(n.Name)
		if plugin != "NodeResourcesFit" {
			n.Status.Allocatable = v1.ResourceList{"cpu": quantity("1000"), "memory": quantity("1000Gi"), "pods": quantity("1000"), "ephemeral-storage": quantity("1000Gi")}
		}
	}
	used := map[string]bool{}
	for i, p := range append([]*v1.Pod{c.Pod}, c.Pods...) {
		if p.Namespace == "" {
			p.Namespace = "default"
		}
		if p.Name == "" || used[p.Namespace+"/"+p.Name] {
			p.Name = fmt.Sprintf("pod-%d", i)
		}
		used[p.Namespace+"/"+p.Name] = true
		if p.UID == "" || used[string(p.UID)] {
			p.UID = types.UID(fmt.Sprintf("uid-%d", i))
		}
		used[string(p.UID)] = true
		if i > 0 {
			p.Status.Phase, p.Status.StartTime = v1.PodRunning, &started
		}
	}
	c.Pod.Spec.NodeName = ""
	c.mayRepelOthers()
	for _, o := range c.Objects {
		if m, is := o.(interface {
			GetNamespace() string
			SetNamespace(string)
		}); is && m.GetNamespace() == "" {
			if _, namespaced := o.(*v1.PersistentVolumeClaim); namespaced {
				m.SetNamespace("default")
			}
		}
	}
	return c.complete(), nil
}
