package server

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/shard/event"
)

// attached counts, by node, the volumes of CSI drivers that limit them (CSINode spec.drivers[*].allocatable), and says it to the node core: a
// volume counts once for a node, however many of its pods use it, and as long as a VolumeAttachment shows it there. Pods on their way
// to a node are not counted here; the node core counts those. A node that lacks a driver which has to be installed where its volumes are used
// (CSIDriver spec.preventPodSchedulingIfMissing) takes none of them.
//
// It says nothing of drivers of which no pod of ours has asked for a volume: a node may name any. The same holds for in-tree plugins that a node
// has not migrated to CSI (volume.Cluster's Mark).
type attached struct {
	say         func(event.NodeVolumes)
	drivers     map[string]map[string]int64      // of nodes: how many volumes of each driver that is installed there, endless for any number
	migrated    map[string]map[string]bool       // by node: the in-tree plugins that are migrated there
	limited     map[string]int                   // by driver: nodes that limit it
	needed      map[string]bool                  // drivers that have to be installed
	asked       map[string]bool                  // drivers of pods of ours
	marks       map[string]bool                  // in-tree plugins of which nodes are marked
	attachments map[string]attachment            // VolumeAttachments by name,
	attachedTo  map[string]map[string]attachment // by node and name,
	attachedOf  map[string]map[string]attachment // and by volume and name
	said        map[string]event.NodeVolumes
	dirty       map[string]bool // nodes that are to be counted anew a little later
}

type attachment struct{ node, volume string }

func newAttached() attached {
	return attached{say: func(event.NodeVolumes) {}, drivers: map[string]map[string]int64{}, migrated: map[string]map[string]bool{}, limited: map[string]int{}, needed: map[string]bool{}, asked: map[string]bool{},
		marks: map[string]bool{}, attachments: map[string]attachment{}, attachedTo: map[string]map[string]attachment{}, attachedOf: map[string]map[string]attachment{}, said: map[string]event.NodeVolumes{}, dirty: map[string]bool{}}
}

// Limited implements volume.Cluster. The first pod that asks for volumes of a driver has the nodes say what they have of it.
func (c *claims) Limited(driver string) bool {
	if !c.limits(driver) {
		return false
	}
	if !c.asked[driver] {
		c.asked[driver] = true
		c.driverCounts(driver)
	}
	return true
}

// Mark implements volume.Cluster and volume.Supply.
func (c *claims) Mark(plugin string) {
	if c.marks[plugin] {
		return
	}
	c.marks[plugin] = true
	for node := range c.labels {
		if !c.migrated[node][plugin] {
			c.countVolumes(node)
		}
	}
}

// unmigrated returns the in-tree plugins of which a node is marked.
func (c *claims) unmigrated(node string) (out []string) {
	if len(c.marks) == 0 || !c.Node(node) {
		return nil
	}
	for _, plugin := range api.SortedKeys(c.marks) {
		if !c.migrated[node][plugin] {
			out = append(out, plugin)
		}
	}
	return out
}

// limits reports whether some node may not take any number of a driver's volumes.
func (c *claims) limits(driver string) bool { return c.limited[driver] > 0 || c.needed[driver] }

// setNeeded takes whether a driver has to be installed.
func (c *claims) setNeeded(driver string, needed bool) {
	if c.needed[driver] == needed {
		return
	}
	if c.needed[driver] = needed; !needed {
		delete(c.needed, driver)
	}
	if c.asked[driver] {
		c.driverCounts(driver)
	}
}

// driverCounts counts anew on the nodes that do not take any number of a driver's volumes, or did not.
func (c *claims) driverCounts(driver string) {
	for node, of := range c.drivers {
		if limit, installed := of[driver]; installed && limit != endless {
			c.countVolumes(node)
		}
	}
	for node := range c.labels {
		if _, installed := c.drivers[node][driver]; !installed {
			c.countVolumes(node)
		}
	}
}

// countVolumes says how many volumes a node can have, and has, and what it is marked with, if that is something else than it said last.
func (c *claims) countVolumes(node string) {
	var now []api.Attachable
	for driver, limit := range c.drivers[node] {
		if c.asked[driver] && limit != endless {
			now = append(now, api.Attachable{Driver: driver, Limit: limit})
		}
	}
	if c.Node(node) {
		for driver := range c.needed {
			if _, installed := c.drivers[node][driver]; !installed && c.asked[driver] {
				now = append(now, api.Attachable{Driver: driver, Missing: true})
			}
		}
	}
	if len(now) > 0 {
		slices.SortFunc(now, func(a, b api.Attachable) int { return cmp.Compare(a.Driver, b.Driver) })
		c.addUsed(node, now)
	}
	unmigrated := c.unmigrated(node)
	if was := c.said[node]; slices.Equal(now, was.Attachable) && slices.Equal(unmigrated, was.Unmigrated) {
		return
	}
	ev := event.NodeVolumes{Name: node, Attachable: now, Unmigrated: unmigrated}
	if c.said[node] = ev; len(now)+len(unmigrated) == 0 {
		delete(c.said, node)
	}
	c.say(ev)
}

func (c *claims) addUsed(node string, of []api.Attachable) {
	counted := map[volume.Attachment]bool{}
	count := func(a volume.Attachment) {
		if i := slices.IndexFunc(of, func(o api.Attachable) bool { return o.Driver == a.Driver }); i >= 0 && !of[i].Missing && !counted[a] {
			counted[a] = true
			of[i].Used++
		}
	}
	for _, p := range c.onNode[node] {
		for _, used := range p.claims {
			if claim, exists := c.claim[used.NamespacedName]; exists {
				for _, a := range volume.AttachmentsOf(used.Namespace, used.Name, claim, c) {
					count(a)
				}
			}
		}
		for _, disk := range p.disks {
			count(disk)
		}
	}
	for _, a := range c.attachedTo[node] {
		if v := c.volume[a.volume]; v != nil { // its driver counts, as for kube-scheduler, which overlooks those of in-tree kinds
			count(volume.Attachment{Driver: v.Driver, Handle: cmp.Or(v.Handle, a.volume)})
		}
	}
}

// claimCounts counts anew on the nodes of the pods that use a claim.
func (c *claims) claimCounts(name types.NamespacedName) {
	all := c.usage[name]
	if all == nil {
		return
	}
	nodes := map[string]bool{}
	for _, p := range all.users {
		if p.node != "" {
			nodes[p.node] = true
		}
	}
	c.countOn(nodes)
}

// promptNodes is on how many nodes is counted at once.
const promptNodes = 64

// countOn counts anew on some nodes. Where they are many, it does so a little later: a tenant's claim may be used on all nodes.
func (c *claims) countOn(nodes map[string]bool) {
	if len(nodes) <= promptNodes {
		for node := range nodes {
			c.countVolumes(node)
		}
		return
	}
	maps.Copy(c.dirty, nodes)
	c.later(task{kind: countNodes}, supplyPause, c.countDirty)
}

// countDirty counts anew on the nodes where that had to wait. As in showPods the lock is held for one at a time.
func (c *claims) countDirty() (took time.Duration) {
	c.mu.Lock()
	nodes := c.dirty
	c.dirty = map[string]bool{}
	c.mu.Unlock()
	for node := range nodes {
		c.mu.Lock()
		began := time.Now()
		c.countVolumes(node)
		took += time.Since(began)
		c.mu.Unlock()
	}
	return took
}

// volumeCounts counts anew where a volume is used or attached.
func (c *claims) volumeCounts(name string, versions ...*volume.Volume) {
	for _, v := range versions {
		if v != nil {
			c.claimCounts(v.For())
		}
	}
	nodes := map[string]bool{}
	for _, a := range c.attachedOf[name] {
		nodes[a.node] = true
	}
	c.countOn(nodes)
}

// countAll counts anew on all nodes, after a new list of something.
func (c *claims) countAll() {
	for node := range c.drivers {
		c.countVolumes(node)
	}
}

// setDrivers takes which drivers are installed on a node, how many volumes of each it takes, and which in-tree plugins are migrated there.
func (c *claims) setDrivers(node string, now map[string]int64, migrated map[string]bool) {
	for driver, limit := range c.drivers[node] {
		if limit == endless {
			continue
		}
		if c.limited[driver]--; c.limited[driver] == 0 {
			delete(c.limited, driver)
		}
	}
	for driver, limit := range now {
		if limit != endless {
			c.limited[driver]++
		}
	}
	if c.drivers[node] = now; len(now) == 0 {
		delete(c.drivers, node)
	}
	if c.migrated[node] = migrated; len(migrated) == 0 {
		delete(c.migrated, node)
	}
	c.countVolumes(node)
}

// tips reports whether a driver would limit the volumes of a first node, or of none any more.
func (c *claims) tips(node string, now map[string]int64) bool {
	limits := func(of map[string]int64, driver string) bool {
		limit, installed := of[driver]
		return installed && limit != endless
	}
	old := c.drivers[node]
	for driver := range old {
		if limits(old, driver) && !limits(now, driver) && c.limited[driver] == 1 {
			return true
		}
	}
	for driver := range now {
		if limits(now, driver) && c.limited[driver] == 0 {
			return true
		}
	}
	return false
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

// endless says that a node takes any number of a driver's volumes, and maxDrivers is how many drivers of a node are read.
const (
	endless    = -1
	maxDrivers = 64
)

// stripCSINode keeps what driversOf and volume.MigratedPlugins read.
func stripCSINode(n *storagev1.CSINode) *storagev1.CSINode {
	out := &storagev1.CSINode{ObjectMeta: api.StripMeta(&n.ObjectMeta)}
	if plugins := volume.MigratedPlugins(n.Annotations); len(plugins) > 0 {
		out.Annotations = map[string]string{corev1.MigratedPluginsAnnotationKey: strings.Join(api.SortedKeys(plugins), ",")}
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

func (c *claims) csiNodes() kube.Handler[*storagev1.CSINode] {
	set := func(node string, now map[string]int64, migrated map[string]bool) {
		c.mu.Lock()
		tips := c.tips(node, now) // only events of CSINodes change that
		if !tips {
			c.setDrivers(node, now, migrated)
		}
		c.mu.Unlock()
		if tips {
			c.changeAny(func() {
				c.setDrivers(node, now, migrated)
				c.allSupplyChanged()
			})
		}
	}
	return kube.Handler[*storagev1.CSINode]{
		Replaced: func(list []*storagev1.CSINode, _ kube.Ticket) {
			c.changeAny(func() {
				there := map[string]bool{}
				for _, n := range list {
					there[n.Name] = true
					c.setDrivers(n.Name, driversOf(n), volume.MigratedPlugins(n.Annotations))
				}
				for _, known := range [][]string{slices.Collect(maps.Keys(c.drivers)), slices.Collect(maps.Keys(c.migrated))} {
					for _, node := range known {
						if !there[node] {
							c.setDrivers(node, nil, nil)
						}
					}
				}
				c.allSupplyChanged()
			})
		},
		Seen: func(n *storagev1.CSINode) {
			set(n.Name, driversOf(n), volume.MigratedPlugins(n.Annotations))
		},
		Gone:  func(n *storagev1.CSINode) { set(n.Name, nil, nil) },
		Flush: c.flush,
	}
}

// stripAttachment keeps what attachmentOf reads.
func stripAttachment(a *storagev1.VolumeAttachment) *storagev1.VolumeAttachment {
	return &storagev1.VolumeAttachment{ObjectMeta: api.StripMeta(&a.ObjectMeta), Spec: storagev1.VolumeAttachmentSpec{NodeName: a.Spec.NodeName,
		Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: a.Spec.Source.PersistentVolumeName}}}
}

// attachmentOf reads a VolumeAttachment; volume is "" for a disk that a pod names itself, which is counted with the pod.
func attachmentOf(a *storagev1.VolumeAttachment) (out attachment) {
	if name := a.Spec.Source.PersistentVolumeName; name != nil {
		out = attachment{a.Spec.NodeName, *name}
	}
	return out
}

func (c *claims) volumeAttachments() kube.Handler[*storagev1.VolumeAttachment] {
	set := func(name string, now attachment) {
		was := c.attachments[name]
		if was == now {
			return
		}
		if was.volume != "" {
			delete(c.attachments, name)
			remove(c.attachedTo, was.node, name)
			remove(c.attachedOf, was.volume, name)
		}
		if now.volume != "" {
			c.attachments[name] = now
			put(c.attachedTo, now.node, name, now)
			put(c.attachedOf, now.volume, name, now)
		}
		for _, node := range slices.Compact([]string{was.node, now.node}) {
			if node != "" {
				c.countVolumes(node)
			}
		}
	}
	one := func(a *storagev1.VolumeAttachment, now attachment) {
		c.mu.Lock()
		defer c.mu.Unlock()
		set(a.Name, now)
	}
	return kube.Handler[*storagev1.VolumeAttachment]{
		Replaced: func(list []*storagev1.VolumeAttachment, _ kube.Ticket) {
			c.mu.Lock()
			defer c.mu.Unlock()
			there := map[string]bool{}
			for _, a := range list {
				there[a.Name] = true
				set(a.Name, attachmentOf(a))
			}
			for _, name := range slices.Collect(maps.Keys(c.attachments)) {
				if !there[name] {
					set(name, attachment{})
				}
			}
		},
		Seen:  func(a *storagev1.VolumeAttachment) { one(a, attachmentOf(a)) },
		Gone:  func(a *storagev1.VolumeAttachment) { one(a, attachment{}) },
		Flush: c.flush,
	}
}
