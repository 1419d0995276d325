// Package generate regenerates what is made from the types and messages of api: `go generate ./...` in this folder. It is a
// module of its own so that the generators and what they need stay out of the build of Basalt.
package generate

//go:generate go tool controller-gen object paths=../v1alpha1
//go:generate go tool controller-gen crd paths=../v1alpha1 output:crd:dir=../../deploy/crds
//go:generate go run ./crds ../../deploy/crds
