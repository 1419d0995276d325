// Package model holds the two servers that Basalt stands on, as far as it uses them: Store is the control store (an etcd),
// API is the API server. The simulator and the explorer run the production cores over them, and conformance tests run the
// same operations against them and against a real etcd and a real kube-apiserver: where the answers differ, the model is
// wrong.
//
// It decides nothing about Basalt. It owns what a server promises: which operation succeeds, what it changes, which events
// follow and in which order. Every operation is atomic and takes effect when it is called; who asks late, twice or without
// hearing the answer is the caller's to model. So are time and watches that lag: a lease ends when End is called, and a
// watch is a read of what has happened since.
//
// Invariants: the same operations give the same answers; there is no clock, no randomness, no goroutine. Versions of
// objects and records are never changed once they are stored. What a server refuses comes back as the error that a client
// of it would see (rpctypes of etcd, *errors.StatusError of Kubernetes).
package model
