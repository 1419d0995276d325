// Package mpi names the MPI operator of Kubeflow and its version, as a tool of this module: it makes PodGroups of Volcano's for its jobs,
// which a test has Basalt place. Package bench/stage/local builds it; there is no code here.
package mpi
