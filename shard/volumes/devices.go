package volumes

import (
	"strings"

	resourcev1 "k8s.io/api/resource/v1"

	"basalt.dev/basalt/api"
)

// devices says which resources are a DeviceClass's, and are offered by no node itself: kube-scheduler allocates
// devices for them.
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

// DeviceClass implements api.Cluster. Of several that back a resource, kube-scheduler uses the
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

// offersSame reports whether a node offers what it did, as in most updates.
func (d *devices) offersSame(n *api.Node) bool {
	known, i, same := d.offers[n.Name], 0, true
	for _, a := range n.Allocatable {
		if extended(a) {
			same = same && i < len(known) && known[i] == a.Resource
			i++
		}
	}
	return same && i == len(known)
}

// offersOf returns the extended resources that a node offers.
func offersOf(n *api.Node) (out []string) {
	for _, a := range n.Allocatable {
		if extended(a) {
			out = append(out, a.Resource)
		}
	}
	return out
}

func extended(a api.Amount) bool { return a.Value > 0 && strings.IndexByte(a.Resource, '/') > 0 }

func (d *devices) dropClasses() {
	d.extended, d.backed = map[string]deviceClass{}, map[string]map[string]bool{}
}

func classOf(d *resourcev1.DeviceClass) deviceClass {
	class := deviceClass{created: d.CreationTimestamp.Unix()}
	if d.Spec.ExtendedResourceName != nil {
		class.resource = *d.Spec.ExtendedResourceName
	}
	return class
}

// StripDeviceClass keeps what classOf reads.
func StripDeviceClass(d *resourcev1.DeviceClass) *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: api.StripMeta(&d.ObjectMeta),
		Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: d.Spec.ExtendedResourceName}}
}
