package memory

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	typedschedulingv1 "k8s.io/client-go/kubernetes/typed/scheduling/v1"
	typedstoragev1 "k8s.io/client-go/kubernetes/typed/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"basalt.dev/basalt/api/kube"
)

// Clients gives a process of this program what package kube would give it: lists and watches hand out the server's own
// objects, and what is called for each pod or status is a function call. By wire, lists and watches are encoded and
// decoded, without a network: then a process pays for what it reads, and reads through its relay.
func (s *Server) Clients(userAgent string, wire bool) (*kube.Clients, error) {
	c, err := kube.ConnectConfig(&rest.Config{Host: "http://memory", Transport: s.transport()}, userAgent)
	if err != nil {
		return nil, err
	}
	d := direct{c.Core, s, wire}
	c.Core, c.Basalt = d, d.client(c.Basalt)
	return c, nil
}

type direct struct {
	kubernetes.Interface
	server *Server
	wire   bool
}

func (d direct) client(by rest.Interface) rest.Interface {
	if d.wire {
		return writer{by, d.server}
	}
	return client{writer{by, d.server}}
}

func (d direct) CoreV1() typedcorev1.CoreV1Interface {
	return directCore{d.Interface.CoreV1(), d}
}

func (d direct) SchedulingV1() typedschedulingv1.SchedulingV1Interface {
	return directScheduling{d.Interface.SchedulingV1(), d}
}

func (d direct) StorageV1() typedstoragev1.StorageV1Interface {
	return directStorage{d.Interface.StorageV1(), d}
}

type directCore struct {
	typedcorev1.CoreV1Interface
	by direct
}

func (d directCore) RESTClient() rest.Interface {
	return d.by.client(d.CoreV1Interface.RESTClient())
}

func (d directCore) Pods(namespace string) typedcorev1.PodInterface {
	return pods{d.CoreV1Interface.Pods(namespace), namespace, d.by.server}
}

type directScheduling struct {
	typedschedulingv1.SchedulingV1Interface
	by direct
}

func (d directScheduling) RESTClient() rest.Interface {
	return d.by.client(d.SchedulingV1Interface.RESTClient())
}

type directStorage struct {
	typedstoragev1.StorageV1Interface
	by direct
}

func (d directStorage) RESTClient() rest.Interface {
	return d.by.client(d.StorageV1Interface.RESTClient())
}

// writer is a kube.StatusReplacer.
type writer struct {
	rest.Interface
	server *Server
}

// client is a kube.Lister, too.
type client struct{ writer }

func (c client) ListerWatcher(resource string) cache.ListerWatcherWithContext {
	return lister{c.server, resource}
}

func (c writer) ReplaceStatus(_ context.Context, resource, namespace, name, uid string, status any) error {
	return c.server.ReplaceStatus(resource, namespace, name, uid, status)
}

type pods struct {
	typedcorev1.PodInterface
	namespace string
	server    *Server
}

func (p pods) Bind(_ context.Context, b *corev1.Binding, _ metav1.CreateOptions) error {
	return p.server.Bind(p.namespace, b)
}

func (p pods) Patch(_ context.Context, name string, how types.PatchType, data []byte, _ metav1.PatchOptions, subresources ...string) (*corev1.Pod, error) {
	subresource := ""
	if len(subresources) > 0 {
		subresource = subresources[0]
	}
	o, err := p.server.Patch("pods", p.namespace, name, subresource, how, data)
	if err != nil {
		return nil, err
	}
	return o.(*corev1.Pod), nil
}

func (p pods) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Pod, error) {
	o, err := p.server.Get("pods", p.namespace, name)
	if err != nil {
		return nil, err
	}
	return o.(*corev1.Pod), nil
}

func (p pods) Delete(_ context.Context, name string, o metav1.DeleteOptions) error {
	return p.server.Delete("pods", p.namespace, name, o)
}
