// Package controlplane names the programs of a local Kubernetes control plane and their versions: kube-apiserver,
// kube-controller-manager, kube-scheduler and etcd, as tools of this module.
//
// It is a module of its own so that nothing of k8s.io/kubernetes can reach the production binary, and so that the versions
// of the control plane do not bind those of Basalt. Package bench/stage/local builds the programs; there is no code here.
package controlplane
