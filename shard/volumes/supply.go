package volumes

import (
	"cmp"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
)

// supply is what there is for claims that are bound once the node of their pod is decided: volumes that are not bound,
// capacity of which volumes can be provisioned, and nodes.
type supply struct {
	offered  map[string]map[string]*volume.Volume                 // by StorageClass and name
	kept     map[types.NamespacedName]map[string]*volume.Volume   // by the claim that they are kept for
	volumeAt map[string]version                                   // of volumes that are offered or kept
	capacity map[string]map[types.NamespacedName]*volume.Capacity // by StorageClass and object
	classOf  map[types.NamespacedName]string                      // of such an object
	checked  map[string]bool                                      // CSI drivers whose capacity counts
	labels   map[string]map[string]string                         // of nodes
	labelled uint64                                               // grows when nodes have other labels
}

// version is an object as it was seen last.
type version struct {
	uid     types.UID
	version string
}

func newSupply() supply {
	return supply{offered: map[string]map[string]*volume.Volume{},
		kept:     map[types.NamespacedName]map[string]*volume.Volume{},
		volumeAt: map[string]version{}, capacity: map[string]map[types.NamespacedName]*volume.Capacity{},
		classOf: map[types.NamespacedName]string{}, checked: map[string]bool{}, labels: map[string]map[string]string{}}
}

// Offers implements volume.Supply.
func (s *supply) Offers(class string) []*volume.Volume {
	of := s.offered[class]
	out := make([]*volume.Volume, 0, len(of))
	for _, name := range api.SortedKeys(of) {
		out = append(out, of[name])
	}
	return out
}

// Kept implements volume.Cluster.
func (s *supply) Kept(namespace, name string) []*volume.Volume {
	of := s.kept[types.NamespacedName{Namespace: namespace, Name: name}]
	if len(of) == 0 {
		return nil
	}
	out := make([]*volume.Volume, 0, len(of))
	for _, name := range api.SortedKeys(of) {
		out = append(out, of[name])
	}
	return out
}

// Capacities implements volume.Supply.
func (s *supply) Capacities(class string) []*volume.Capacity {
	of := s.capacity[class]
	out := make([]*volume.Capacity, 0, len(of))
	for _, name := range slices.SortedFunc(maps.Keys(of), byName) {
		out = append(out, of[name])
	}
	return out
}

func byName(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// CapacityChecked implements volume.Supply.
func (s *supply) CapacityChecked(driver string) bool { return s.checked[driver] }

// Node implements volume.Cluster.
func (s *supply) Node(name string) bool { _, exists := s.labels[name]; return exists }

// offer takes what a volume offers now in place of what it offered; nil for nothing.
func (s *supply) offer(v *corev1.PersistentVolume, was, now *volume.Volume) {
	if was != nil {
		if class, is := was.Offered(); is {
			remove(s.offered, class, v.Name)
		}
		if claim := was.For(); claim != (types.NamespacedName{}) {
			remove(s.kept, claim, v.Name)
		}
	}
	delete(s.volumeAt, v.Name)
	if now == nil {
		return
	}
	class, offered := now.Offered()
	if offered {
		put(s.offered, class, v.Name, now)
	}
	claim := now.For()
	if claim != (types.NamespacedName{}) {
		put(s.kept, claim, v.Name, now)
	}
	if offered || claim != (types.NamespacedName{}) {
		s.volumeAt[v.Name] = version{v.UID, v.ResourceVersion}
	}
}

func (s *supply) offerNothing() {
	clear(s.offered)
	clear(s.kept)
	clear(s.volumeAt)
}

// provide takes a CSIStorageCapacity, nil for one that is gone, and returns the StorageClasses of which that changes
// something.
func (s *supply) provide(name types.NamespacedName, now *volume.Capacity) (classes []string) {
	class, known := s.classOf[name]
	if known && now.Equal(s.capacity[class][name]) || !known && now == nil {
		return nil
	}
	if known {
		remove(s.capacity, class, name)
		delete(s.classOf, name)
		classes = append(classes, class)
	}
	if now != nil {
		put(s.capacity, now.Class, name, now)
		s.classOf[name] = now.Class
		classes = append(classes, now.Class)
	}
	return classes
}

// label takes the labels of a node, and returns whether it was not there.
func (s *supply) label(name string, labels map[string]string) (added bool) {
	was, known := s.labels[name]
	if !known || !maps.Equal(was, labels) {
		s.labelled++
	}
	s.labels[name] = labels
	return !known
}

func (s *supply) unlabel(name string) {
	delete(s.labels, name)
	s.labelled++
}
