// Package kube is how Basalt's processes read from and write to the API server: a client configuration, a list-and-watch loop, and
// the writes. It decides nothing and stores nothing: everything it reads goes straight to the caller.
//
// Why not client-go's informers: a takeover must count the pods of a list that was made, consistently, after the intents
// were read, and everything that comes later must come from a watch that starts at exactly that list. An informer lists
// from a cache when it likes and offers no way to ask for such a list. Nor does it notice that an API server was restored from
// a backup (restored.go).
package kube

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"basalt.dev/basalt/api/v1alpha1"
)

// Clients are the two clients of a process: built-in kinds in protobuf, ours in JSON. Neither limits its own rate: the
// API server's priority and fairness is the limit, with a level above other tenants' (deploy/priority.yaml).
type Clients struct {
	Core   kubernetes.Interface
	Basalt rest.Interface
	Config *rest.Config
}

// Connect makes clients from a kubeconfig file; an empty path means the cluster that the process runs in.
func Connect(kubeconfig, userAgent string) (*Clients, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig %q: %w", kubeconfig, err)
	}
	return ConnectConfig(config, userAgent)
}

// ConnectConfig makes clients from a configuration.
func ConnectConfig(config *rest.Config, userAgent string) (*Clients, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.DisableCompression = true // of lists; it took a sixth of the API server's time for them, and the network is near
	config.UserAgent = userAgent

	builtin := rest.CopyConfig(config)
	builtin.ContentType = asProtobuf
	builtin.AcceptContentTypes = asProtobuf + ",application/json"
	core, err := kubernetes.NewForConfig(builtin)
	if err != nil {
		return nil, fmt.Errorf("make client for %s: %w", config.Host, err)
	}
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	ours := rest.CopyConfig(config)
	ours.GroupVersion = &schema.GroupVersion{Group: v1alpha1.SchemeGroupVersion.Group, Version: v1alpha1.SchemeGroupVersion.Version}
	ours.APIPath = "/apis"
	ours.ContentType = runtime.ContentTypeJSON
	ours.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	basalt, err := rest.RESTClientFor(ours)
	if err != nil {
		return nil, fmt.Errorf("make client for %s: %w", config.Host, err)
	}
	return &Clients{Core: core, Basalt: basalt, Config: config}, nil
}
