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
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	volcanobus "volcano.sh/apis/pkg/apis/bus/v1alpha1"
	volcanov1beta1 "volcano.sh/apis/pkg/apis/scheduling/v1beta1"

	"basalt.dev/basalt/api/v1beta1"
)

// Clients are the clients of a process: built-in kinds in protobuf, ours and Volcano's in JSON. None limits its own rate: the
// API server's priority and fairness is the limit, with a level above other tenants' (deploy/priority.yaml).
type Clients struct {
	Core       kubernetes.Interface
	Basalt     rest.Interface
	Volcano    rest.Interface // of scheduling.volcano.sh/v1beta1, whether the API server serves it or not
	VolcanoBus rest.Interface // of bus.volcano.sh/v1alpha1, likewise
	Config     *rest.Config
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
	basalt, err := customClient(config, v1beta1.SchemeGroupVersion, v1beta1.AddToScheme)
	if err != nil {
		return nil, err
	}
	volcano, err := customClient(config, volcanov1beta1.SchemeGroupVersion, volcanov1beta1.AddToScheme)
	if err != nil {
		return nil, err
	}
	volcanoBus, err := customClient(config, volcanobus.SchemeGroupVersion, volcanobus.AddToScheme)
	if err != nil {
		return nil, err
	}
	return &Clients{Core: core, Basalt: basalt, Volcano: volcano, VolcanoBus: volcanoBus, Config: config}, nil
}

// customClient makes a client for kinds that the API server has as JSON only.
func customClient(config *rest.Config, version schema.GroupVersion, addToScheme func(*runtime.Scheme) error) (rest.Interface, error) {
	scheme := runtime.NewScheme()
	if err := addToScheme(scheme); err != nil {
		return nil, err
	}
	c := rest.CopyConfig(config)
	c.GroupVersion = &version
	c.APIPath = "/apis"
	c.ContentType = runtime.ContentTypeJSON
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make client for %s: %w", config.Host, err)
	}
	return client, nil
}

// Serves reports whether the API server serves a resource of a custom kind now.
func (c *Clients) Serves(version schema.GroupVersion, resource string) (bool, error) {
	list, err := c.Core.Discovery().ServerResourcesForGroupVersion(version.String())
	switch {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return false, fmt.Errorf("discover %s: %w", version, err)
	}
	return slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Name == resource }), nil
}
