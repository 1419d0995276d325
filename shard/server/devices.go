package server

import (
	"context"
	"slices"
	"strings"
	"sync"

	resourcev1 "k8s.io/api/resource/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
)

// devices says which resources are a DeviceClass's, and are offered by no node itself: kube-scheduler allocates devices for them.
type devices struct {
	extended map[string]deviceClass     // by name
	backed   map[string]map[string]bool // by resource: the DeviceClasses that name it
	offers   map[string][]string        // by node: extended resources that it offers, in order
	offered  map[string]int             // by resource: how many nodes offer it
}

// deviceClass is what is known of a DeviceClass.
type deviceClass struct {
	resource string // spec.extendedResourceName
	created  int64  // as a Unix time
}

// implicit is what a resource begins with that a DeviceClass backs without naming it: its own name is the rest.
const implicit = "deviceclass.resource.kubernetes.io/"

func newDevices() devices {
	return devices{extended: map[string]deviceClass{}, backed: map[string]map[string]bool{},
		offers: map[string][]string{}, offered: map[string]int{}}
}

// DeviceClass implements api.Cluster; the lock is held. Of several that back a resource, kube-scheduler uses the
// newest, and of those the first by name.
func (d *devices) DeviceClass(resource string) string {
	if d.offered[resource] > 0 {
		return ""
	}
	if name, ok := strings.CutPrefix(resource, implicit); ok {
		if _, exists := d.extended[name]; exists {
			return name
		}
	}
	first := ""
	for class := range d.backed[resource] {
		newer := d.extended[class].created - d.extended[first].created
		if first == "" || newer > 0 || newer == 0 && class < first {
			first = class
		}
	}
	return first
}

// setClass takes a DeviceClass, or that it is gone.
func (d *devices) setClass(name string, there bool, class deviceClass) {
	if old := d.extended[name].resource; old != "" {
		if delete(d.backed[old], name); len(d.backed[old]) == 0 {
			delete(d.backed, old)
		}
	}
	if !there {
		delete(d.extended, name)
		return
	}
	d.extended[name] = class
	if resource := class.resource; resource != "" {
		if d.backed[resource] == nil {
			d.backed[resource] = map[string]bool{}
		}
		d.backed[resource][name] = true
	}
}

// setOffers takes what a node offers.
func (d *devices) setOffers(node string, resources []string) {
	for _, name := range d.offers[node] {
		if d.offered[name]--; d.offered[name] == 0 {
			delete(d.offered, name)
		}
	}
	for _, name := range resources {
		d.offered[name]++
	}
	if d.offers[node] = resources; len(resources) == 0 {
		delete(d.offers, node)
	}
}

// node takes a node.
func (c *claims) node(n *api.Node) {
	c.mu.Lock()
	known, i, same := c.offers[n.Name], 0, true
	for _, a := range n.Allocatable {
		if extended(a) {
			same = same && i < len(known) && known[i] == a.Resource
			i++
		}
	}
	same = same && i == len(known)
	c.nodeThere(n)
	c.mu.Unlock()
	if same { // as most updates are
		return
	}
	var now []string
	for _, a := range n.Allocatable {
		if extended(a) {
			now = append(now, a.Resource)
		}
	}
	c.setNode(n.Name, now)
}

func (c *claims) setNode(name string, now []string) {
	var subjects []subject
	for _, r := range slices.Concat(c.offersOf(name), now) {
		subjects = append(subjects, subject{kind: aDevice, name: r})
	}
	c.change(func() { c.setOffers(name, now) }, subjects...)
}

// offersOf is what a node is known to offer; only its own events change that.
func (c *claims) offersOf(node string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.offers[node]
}

func extended(a api.Amount) bool { return a.Value > 0 && strings.IndexByte(a.Resource, '/') > 0 }

func (c *claims) deviceClasses() kube.Handler[*resourcev1.DeviceClass] {
	set := func(name string, there bool, class deviceClass) {
		subjects := []subject{{kind: aDevice, name: implicit + name}, {kind: aDevice, name: class.resource},
			{kind: aDevice, name: c.namedBy(name)}}
		c.change(func() { c.setClass(name, there, class) }, subjects...)
	}
	return kube.Handler[*resourcev1.DeviceClass]{
		Replaced: func(list []*resourcev1.DeviceClass, _ kube.Ticket) {
			c.changeAny(func() {
				c.extended, c.backed = map[string]deviceClass{}, map[string]map[string]bool{}
				for _, d := range list {
					c.setClass(d.Name, true, classOf(d))
				}
			})
		},
		Seen:  func(d *resourcev1.DeviceClass) { set(d.Name, true, classOf(d)) },
		Gone:  func(d *resourcev1.DeviceClass) { set(d.Name, false, deviceClass{}) },
		Flush: c.flush,
	}
}

func (c *claims) namedBy(class string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.extended[class].resource
}

func classOf(d *resourcev1.DeviceClass) deviceClass {
	class := deviceClass{created: d.CreationTimestamp.Unix()}
	if d.Spec.ExtendedResourceName != nil {
		class.resource = *d.Spec.ExtendedResourceName
	}
	return class
}

func stripDeviceClass(d *resourcev1.DeviceClass) *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: api.StripMeta(&d.ObjectMeta), Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: d.Spec.ExtendedResourceName}}
}

// followDevices follows DeviceClasses for as long as the API server serves them. listed is called when they were listed, or there are
// none.
func (w *watches) followDevices(ctx context.Context, listed func()) {
	w.clients.WhileServed(ctx, w.log, resourcev1.SchemeGroupVersion, "deviceclasses", func(served context.Context) {
		handler := w.claims.deviceClasses()
		f := kube.Follow(w.clients.Core.ResourceV1().RESTClient(), "deviceclasses", w.log, handler)
		relayed(w, f, stripDeviceClass, pace)
		var wg sync.WaitGroup
		wg.Go(func() { f.Run(served) })
		select {
		case <-f.Synced():
			listed()
		case <-served.Done():
		}
		wg.Wait()
		if ctx.Err() == nil {
			handler.Replaced(nil, 0)
			w.flush()
		}
	}, listed)
}
