package cache

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	features "k8s.io/component-helpers/nodedeclaredfeatures"
	featuretypes "k8s.io/component-helpers/nodedeclaredfeatures/types"
	"sigs.k8s.io/randfill"

	"basalt.dev/basalt/api"
)

// A pod that needs a feature goes to nodes that declare it, and to no others.
func TestDeclaredFeatures(t *testing.T) {
	restart := v1.Container{RestartPolicyRules: []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}}
	mounted := v1.Container{VolumeMounts: []v1.VolumeMount{{}, {BindMountOptions: []string{"noexec"}}}}
	const restartAll, bindOptions, hostUsers = "RestartAllContainersOnContainerExits", "VolumeBindMountOptions", "UserNamespacesHostNetworkSupport"
	for _, c := range []struct {
		what  string
		spec  v1.PodSpec
		needs string // space-separated
	}{
		{"plain", v1.PodSpec{Containers: []v1.Container{{}}}, ""},
		{"another rule", v1.PodSpec{Containers: []v1.Container{{RestartPolicyRules: []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestart}}}}}, ""},
		{"restarts all containers", v1.PodSpec{Containers: []v1.Container{{}, restart}}, restartAll},
		{"an init container does", v1.PodSpec{Containers: []v1.Container{{}}, InitContainers: []v1.Container{restart}}, restartAll},
		{"host network", v1.PodSpec{HostNetwork: true, Containers: []v1.Container{{}}}, ""},
		{"users of its own", v1.PodSpec{HostUsers: new(false), Containers: []v1.Container{{}}}, ""},
		{"both, but with the host's users", v1.PodSpec{HostNetwork: true, HostUsers: new(true), Containers: []v1.Container{{}}}, ""},
		{"both", v1.PodSpec{HostNetwork: true, HostUsers: new(false), Containers: []v1.Container{{}}}, hostUsers},
		{"bind mount options", v1.PodSpec{Containers: []v1.Container{mounted}}, bindOptions},
		{"bind mount options of an init container", v1.PodSpec{InitContainers: []v1.Container{mounted}, Containers: []v1.Container{{}}}, bindOptions},
		{"two", v1.PodSpec{HostNetwork: true, HostUsers: new(false), Containers: []v1.Container{mounted}}, hostUsers + " " + bindOptions},
	} {
		class := api.FromPod(api.StripPod(&v1.Pod{Spec: c.spec}), nil, api.Rules{}).Class
		for have, want := range map[string]bool{
			"": c.needs == "", restartAll: c.needs == "" || c.needs == restartAll, "A " + bindOptions + " Z": c.needs == "" || c.needs == bindOptions,
			restartAll + " " + hostUsers + " " + bindOptions: true, "Unknown": c.needs == "",
		} {
			cache := New(Config{})
			n := &v1.Node{Status: v1.NodeStatus{Allocatable: v1.ResourceList{"pods": api.Quantity("pods", 10)}, DeclaredFeatures: strings.Fields(have)}}
			n.Name = "n"
			cache.SetNode(api.FromNode(api.StripNode(n), nil))
			if why := cache.Why(class); (why.Fit == 1) != want || !want && (!why.Never || !strings.Contains(why.String(), "required features")) {
				t.Errorf("%s, on a node that declares %q: %d nodes fit, %s", c.what, have, why.Fit, why.String())
			}
		}
	}
}

// A node that declares a feature later, or no more, is judged anew.
func TestDeclaredFeaturesChange(t *testing.T) {
	class := api.FromPod(&v1.Pod{Spec: v1.PodSpec{HostNetwork: true, HostUsers: new(false)}}, nil, api.Rules{}).Class
	cache := New(Config{})
	for i, declared := range [][]string{nil, {"UserNamespacesHostNetworkSupport"}, nil} {
		before := cache.RoomVersion()
		cache.SetNode(&api.Node{Name: "n", Allocatable: api.Resources{{Resource: "pods", Value: 10}}, Features: declared})
		if got, want := cache.Why(class).Fit, len(declared); got != want {
			t.Errorf("step %d: %d nodes fit, want %d", i, got, want)
		}
		if i == 1 && cache.RoomVersion() == before {
			t.Error("a node that declares more is not called room for those that wait")
		}
	}
}

// What a class keeps of a pod needs the same features as the pod, whatever the pod is.
func TestClassesKeepWhatFeaturesAreInferredFrom(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.5).NumElements(0, 2).MaxDepth(8).Funcs(
		func(a *v1.ContainerRestartRuleAction, c randfill.Continue) {
			*a = []v1.ContainerRestartRuleAction{v1.ContainerRestartRuleActionRestart, v1.ContainerRestartRuleActionRestartAllContainers}[c.Intn(2)]
		})
	found := map[string]int{}
	for range 2000 {
		p := &v1.Pod{}
		fill.Fill(&p.Spec.HostNetwork)
		fill.Fill(&p.Spec.HostUsers)
		fill.Fill(&p.Spec.Containers)
		fill.Fill(&p.Spec.InitContainers)
		fill.Fill(&p.Spec.EphemeralContainers)
		fill.Fill(&p.Spec.Resources)
		fill.Fill(&p.Spec.Volumes)
		infer := func(s *v1.PodSpec) string {
			set, err := features.DefaultFramework.InferForPodScheduling(&featuretypes.PodInfo{Spec: s}, kubernetes)
			if err != nil {
				t.Fatal(err)
			}
			names, err := features.DefaultFramework.Unmap(set)
			if err != nil {
				t.Fatal(err)
			}
			return strings.Join(names, " ")
		}
		want := infer(&p.Spec)
		found[want]++
		p.Spec.Containers = append(p.Spec.Containers[:len(p.Spec.Containers):len(p.Spec.Containers)], v1.Container{})
		kept, err := api.ReadConstraints(api.FromPod(api.StripPod(p), nil, api.Rules{}).Class.Constraints)
		if err != nil {
			t.Fatal(err)
		}
		if got := infer(kept); got != want {
			t.Fatalf("the class needs %q, its pod %q", got, want)
		}
	}
	if len(found) < 8 {
		t.Errorf("the random pods need only %v", found)
	}
}
