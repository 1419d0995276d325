// Package kuberay names KubeRay's operator and its version, as a tool of this module: it makes PodGroups of Volcano's for the clusters
// of Ray, which a test has Basalt place. Package bench/stage/local builds it; there is no code here.
package kuberay
