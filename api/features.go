package api

import v1 "k8s.io/api/core/v1"

// Some fields of a pod can only be served by nodes that declare a feature in status.declaredFeatures, which newer kubelets do. A class
// carries of such a pod the fields from which k8s.io/component-helpers/nodedeclaredfeatures infers the feature, in one form for all
// pods that need it, and package cache compares what is inferred with what nodes declare. A test compares needs with that module: a
// version of it that reads other fields fails there.
//
// The work for a pod that needs none is a look at the length of two lists of each container and mount.

// needs says which fields of a pod can only be served by nodes that declare a feature.
type needs struct {
	restartAll  bool // a rule that restarts all containers
	bindOptions bool // mount options of a bind mount
	hostUsers   bool // the host's network with users of its own
}

var noNeeds needs

func needsOf(s *v1.PodSpec) (n needs) {
	n.hostUsers = s.HostNetwork && s.HostUsers != nil && !*s.HostUsers
	for _, list := range [][]v1.Container{s.Containers, s.InitContainers} {
		for i := range list {
			n.container(list[i].RestartPolicyRules, list[i].VolumeMounts)
		}
	}
	for i := range s.EphemeralContainers {
		n.container(nil, s.EphemeralContainers[i].VolumeMounts)
	}
	return n
}

func (n *needs) container(rules []v1.ContainerRestartRule, mounts []v1.VolumeMount) {
	for i := range rules {
		n.restartAll = n.restartAll || rules[i].Action == v1.ContainerRestartRuleActionRestartAllContainers
	}
	for i := range mounts {
		n.bindOptions = n.bindOptions || len(mounts[i].BindMountOptions) > 0
	}
}

// put writes them into a spec whose first container is there if one of them is a container's.
func (n needs) put(to *v1.PodSpec) {
	if n.hostUsers {
		to.HostNetwork, to.HostUsers = true, new(bool)
	}
	if n.restartAll {
		to.Containers[0].RestartPolicyRules = []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}
	}
	if n.bindOptions {
		to.Containers[0].VolumeMounts = []v1.VolumeMount{{BindMountOptions: []string{""}}}
	}
}
