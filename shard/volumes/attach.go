package volumes

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/shard/event"
)

// attached is, by node, the volumes of CSI drivers that limit them (CSINode spec.drivers[*].allocatable), of which
// the node core is told: a volume counts once for a node, however many of its pods use it, and as long as a
// VolumeAttachment shows it there. Pods on their way to a node are not counted here; the node core counts those. A
// node that lacks a driver which has to be installed where its volumes are used (CSIDriver
// spec.preventPodSchedulingIfMissing) takes none of them.
//
// It says nothing of drivers of which no pod of ours has asked for a volume: a node may name any. The same holds for
// in-tree plugins that a node has not migrated to CSI (volume.Cluster's Mark).
type attached struct {
	// of nodes: how many volumes of each installed driver, endless for any number
	drivers    map[string]map[string]int64
	migrated   map[string]map[string]bool       // by node: the in-tree plugins that are migrated there
	limited    map[string]int                   // by driver: nodes that limit it
	needed     map[string]bool                  // drivers that have to be installed
	asked      map[string]bool                  // drivers of pods of ours
	marks      map[string]bool                  // in-tree plugins of which nodes are marked
	attachedAs map[string]attachment            // VolumeAttachments by name,
	attachedTo map[string]map[string]attachment // by node and name,
	attachedOf map[string]map[string]attachment // and by volume and name
	said       map[string]event.NodeVolumes
}

type attachment struct{ node, volume string }

// endless says that a node takes any number of a driver's volumes, and maxDrivers is how many drivers of a node are
// read.
const (
	endless    = -1
	maxDrivers = 64
)

func newAttached() attached {
	return attached{drivers: map[string]map[string]int64{}, migrated: map[string]map[string]bool{},
		limited: map[string]int{},
		needed:  map[string]bool{}, asked: map[string]bool{}, marks: map[string]bool{}, attachedAs: map[string]attachment{},
		attachedTo: map[string]map[string]attachment{}, attachedOf: map[string]map[string]attachment{},
		said: map[string]event.NodeVolumes{}}
}

// limits reports whether some node may not take any number of a driver's volumes.
func (a *attached) limits(driver string) bool { return a.limited[driver] > 0 || a.needed[driver] }

// need takes whether a driver has to be installed, and returns whether that is news.
func (a *attached) need(driver string, needed bool) bool {
	if a.needed[driver] == needed {
		return false
	}
	if a.needed[driver] = needed; !needed {
		delete(a.needed, driver)
	}
	return true
}

// unmigrated returns the in-tree plugins of which a node is marked.
func (a *attached) unmigrated(node string) (out []string) {
	for _, plugin := range api.SortedKeys(a.marks) {
		if !a.migrated[node][plugin] {
			out = append(out, plugin)
		}
	}
	return out
}

// counted returns how many volumes of which drivers a node can have; exists says whether the node is there.
func (a *attached) counted(node string, exists bool) (now []api.Attachable) {
	for driver, limit := range a.drivers[node] {
		if a.asked[driver] && limit != endless {
			now = append(now, api.Attachable{Driver: driver, Limit: limit})
		}
	}
	if exists {
		for driver := range a.needed {
			if _, installed := a.drivers[node][driver]; !installed && a.asked[driver] {
				now = append(now, api.Attachable{Driver: driver, Missing: true})
			}
		}
	}
	slices.SortFunc(now, func(a, b api.Attachable) int { return cmp.Compare(a.Driver, b.Driver) })
	return now
}

// say takes what is to be told of a node, and returns whether it is something else than was told last.
func (a *attached) say(ev event.NodeVolumes) bool {
	was := a.said[ev.Name]
	if slices.Equal(ev.Attachable, was.Attachable) && slices.Equal(ev.Unmigrated, was.Unmigrated) {
		return false
	}
	if a.said[ev.Name] = ev; len(ev.Attachable)+len(ev.Unmigrated) == 0 {
		delete(a.said, ev.Name)
	}
	return true
}

// install takes which drivers are installed on a node, how many volumes of each it takes, and which in-tree plugins are
// migrated there.
func (a *attached) install(node string, now map[string]int64, migrated map[string]bool) {
	for driver, limit := range a.drivers[node] {
		if limit == endless {
			continue
		}
		if a.limited[driver]--; a.limited[driver] == 0 {
			delete(a.limited, driver)
		}
	}
	for driver, limit := range now {
		if limit != endless {
			a.limited[driver]++
		}
	}
	if a.drivers[node] = now; len(now) == 0 {
		delete(a.drivers, node)
	}
	if a.migrated[node] = migrated; len(migrated) == 0 {
		delete(a.migrated, node)
	}
}

// tips reports whether a driver would limit the volumes of a first node, or of none any more.
func (a *attached) tips(node string, now map[string]int64) bool {
	limits := func(of map[string]int64, driver string) bool {
		limit, installed := of[driver]
		return installed && limit != endless
	}
	old := a.drivers[node]
	for driver := range old {
		if limits(old, driver) && !limits(now, driver) && a.limited[driver] == 1 {
			return true
		}
	}
	for driver := range now {
		if limits(now, driver) && a.limited[driver] == 0 {
			return true
		}
	}
	return false
}

// attach takes a VolumeAttachment, and returns the nodes of which that changes something.
func (a *attached) attach(name string, now attachment) (nodes []string) {
	was := a.attachedAs[name]
	if was == now {
		return nil
	}
	if was.volume != "" {
		delete(a.attachedAs, name)
		remove(a.attachedTo, was.node, name)
		remove(a.attachedOf, was.volume, name)
	}
	if now.volume != "" {
		a.attachedAs[name] = now
		put(a.attachedTo, now.node, name, now)
		put(a.attachedOf, now.volume, name, now)
	}
	for _, node := range slices.Compact([]string{was.node, now.node}) {
		if node != "" {
			nodes = append(nodes, node)
		}
	}
	return nodes
}

// driversOf returns the drivers that are installed on a node, and how many volumes of each it takes.
func driversOf(n *storagev1.CSINode) map[string]int64 {
	out := map[string]int64{}
	for i := range n.Spec.Drivers {
		d := &n.Spec.Drivers[i]
		if out[d.Name] = endless; d.Allocatable != nil && d.Allocatable.Count != nil {
			out[d.Name] = max(0, int64(*d.Allocatable.Count))
		}
		if len(out) == maxDrivers {
			break
		}
	}
	return out
}

// StripCSINode keeps what driversOf and volume.MigratedPlugins read.
func StripCSINode(n *storagev1.CSINode) *storagev1.CSINode {
	out := &storagev1.CSINode{ObjectMeta: api.StripMeta(&n.ObjectMeta)}
	if plugins := volume.MigratedPlugins(n.Annotations); len(plugins) > 0 {
		names := strings.Join(api.SortedKeys(plugins), ",")
		out.Annotations = map[string]string{corev1.MigratedPluginsAnnotationKey: names}
	}
	drivers := driversOf(n)
	for _, name := range slices.Sorted(maps.Keys(drivers)) {
		d := storagev1.CSINodeDriver{Name: name}
		if limit := drivers[name]; limit != endless {
			d.Allocatable = &storagev1.VolumeNodeResources{Count: new(int32(limit))}
		}
		out.Spec.Drivers = append(out.Spec.Drivers, d)
	}
	return out
}

// StripAttachment keeps what attachmentOf reads.
func StripAttachment(a *storagev1.VolumeAttachment) *storagev1.VolumeAttachment {
	source := storagev1.VolumeAttachmentSource{PersistentVolumeName: a.Spec.Source.PersistentVolumeName}
	return &storagev1.VolumeAttachment{ObjectMeta: api.StripMeta(&a.ObjectMeta),
		Spec: storagev1.VolumeAttachmentSpec{NodeName: a.Spec.NodeName, Source: source}}
}

// attachmentOf reads a VolumeAttachment; volume is "" for a disk that a pod names itself, which is counted with the
// pod.
func attachmentOf(a *storagev1.VolumeAttachment) (out attachment) {
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		out = attachment{a.Spec.NodeName, *name}
	}
	return out
}
