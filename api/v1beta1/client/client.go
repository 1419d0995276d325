// Package client makes REST clients for the kinds of v1beta1. It owns no state and no retries.
package client

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"basalt.dev/basalt/api/v1beta1"
)

// Scheme knows the kinds of v1beta1 and nothing else.
var Scheme = runtime.NewScheme()

// ParameterCodec encodes list, watch and patch options for requests made with New.
var ParameterCodec = runtime.NewParameterCodec(Scheme)

func init() {
	if err := v1beta1.AddToScheme(Scheme); err != nil {
		panic(err) // two kinds of this package under one name: no cluster can cause it
	}
}

// New returns a client of the group; QPS, Burst and credentials are those of config. Resources are "queues" (cluster
// scoped) and "podgroups" (namespaced), each with the subresource "status".
func New(config *rest.Config) (*rest.RESTClient, error) {
	c := rest.CopyConfig(config)
	gv := v1beta1.SchemeGroupVersion
	c.GroupVersion = &gv
	c.APIPath = "/apis"
	c.NegotiatedSerializer = serializer.NewCodecFactory(Scheme).WithoutConversion()
	// The server keeps custom resources as JSON only.
	c.ContentType, c.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("make client of %s: %w", gv, err)
	}
	return client, nil
}
