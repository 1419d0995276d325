package volumes

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/shard/event"
)

// What the core makes of objects other than pods.

func (c *Core) setVolume(v *corev1.PersistentVolume, there bool) {
	old, now := c.volume[v.Name], (*volume.Volume)(nil)
	if there {
		now = c.readVolume(v)
	}
	concerned := make([]types.NamespacedName, 0, len(c.bound[v.Name])+2)
	for claim := range c.bound[v.Name] {
		concerned = append(concerned, claim)
	}
	for _, o := range []*volume.Volume{old, now} {
		if o != nil {
			concerned = append(concerned, o.For())
		}
	}
	before := answers{}
	for _, claim := range concerned {
		c.note(before, subject{aClaim, claim.Namespace, claim.Name})
	}
	c.offer(v, old, now)
	if there {
		c.volume[v.Name] = now
	} else {
		delete(c.volume, v.Name)
	}
	if old != now {
		c.offersChanged(old, now)
	}
	slices.SortFunc(concerned, byName)
	for _, claim := range slices.Compact(concerned) {
		c.lookAt(claim)
	}
	if old != now {
		c.volumeCounts(v.Name, old, now)
	}
	c.show(c.changed(before), true)
}

func (c *Core) listVolumes(list []*corev1.PersistentVolume) {
	c.changeAny(func() {
		now := make(map[string]*volume.Volume, len(list))
		c.offerNothing()
		for _, v := range list {
			now[v.Name] = c.readVolume(v)
			c.offer(v, nil, now[v.Name])
		}
		c.volume = now
		c.allSupplyChanged()
		c.countAll()
	})
}

func (c *Core) setClaim(p *corev1.PersistentVolumeClaim, there bool) {
	name, now := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}, volume.Claim{}
	if there {
		now = volume.ReadClaim(p)
		if was, known := c.claim[name]; known && was == now { // as most events are, whatever annotates claims
			c.keepClaim(p, now)
			c.lookAt(name) // its version may be awaited
			return
		}
	}
	c.change(func() {
		was := c.attachments(name)
		c.unbind(name, c.claim[name].Volume)
		if c.keepClaim(p, now); !there {
			delete(c.claim, name)
		}
		c.bind(name, now.Volume)
		c.lookAt(name)
		if !slices.Equal(was, c.attachments(name)) {
			c.claimCounts(name)
		}
	}, subject{aClaim, p.Namespace, p.Name})
}

func (c *Core) listClaims(list []*corev1.PersistentVolumeClaim) {
	c.changeAny(func() {
		c.dropClaims()
		for _, p := range list {
			c.keepClaim(p, volume.ReadClaim(p))
		}
		c.countAll()
	})
}

func (c *Core) setStorageClass(s *storagev1.StorageClass, there bool) {
	c.changeAny(func() {
		if there {
			c.class[s.Name] = c.readClass(s)
		} else {
			delete(c.class, s.Name)
		}
		c.supplyChanged(s.Name)
	})
}

func (c *Core) listStorageClasses(list []*storagev1.StorageClass) {
	c.changeAny(func() {
		now := map[string]*volume.Class{}
		for _, s := range list {
			now[s.Name] = c.readClass(s)
		}
		c.class = now
		c.allSupplyChanged()
		c.countAll()
	})
}

func (c *Core) setCapacity(o *storagev1.CSIStorageCapacity, there bool) {
	var now *volume.Capacity
	if there {
		now = volume.ReadCapacity(o)
	}
	for _, class := range c.provide(types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, now) {
		c.supplyChanged(class)
	}
}

func (c *Core) listCapacities(list []*storagev1.CSIStorageCapacity) {
	clear(c.capacity)
	clear(c.classOf)
	c.allSupplyChanged()
	for _, o := range list {
		c.setCapacity(o, true)
	}
}

// readCSIDriver takes what a driver says.
func (c *Core) readCSIDriver(d *storagev1.CSIDriver, there bool) {
	p := d.Spec.PreventPodSchedulingIfMissing
	c.setNeeded(d.Name, there && p != nil && *p)
	if p := d.Spec.StorageCapacity; there && p != nil && *p {
		c.checked[d.Name] = true
	} else {
		delete(c.checked, d.Name)
	}
}

func (c *Core) setCSIDriver(d *storagev1.CSIDriver, there bool) {
	c.changeAny(func() {
		c.readCSIDriver(d, there)
		c.allSupplyChanged()
	})
}

func (c *Core) listCSIDrivers(list []*storagev1.CSIDriver) {
	c.changeAny(func() {
		clear(c.checked)
		listed := map[string]bool{}
		for _, d := range list {
			listed[d.Name] = true
			c.readCSIDriver(d, true)
		}
		for _, driver := range api.SortedKeys(c.needed) {
			if !listed[driver] {
				c.setNeeded(driver, false)
			}
		}
		c.allSupplyChanged()
	})
}

func (c *Core) setCSINode(n *storagev1.CSINode, there bool) {
	var now map[string]int64
	var migrated map[string]bool
	if there {
		now, migrated = driversOf(n), volume.MigratedPlugins(n.Annotations)
	}
	if !c.tips(n.Name, now) {
		c.setDrivers(n.Name, now, migrated)
		return
	}
	c.changeAny(func() {
		c.setDrivers(n.Name, now, migrated)
		c.allSupplyChanged()
	})
}

func (c *Core) listCSINodes(list []*storagev1.CSINode) {
	c.changeAny(func() {
		there := map[string]bool{}
		for _, n := range list {
			there[n.Name] = true
			c.setDrivers(n.Name, driversOf(n), volume.MigratedPlugins(n.Annotations))
		}
		for _, node := range slices.Concat(api.SortedKeys(c.drivers), api.SortedKeys(c.migrated)) {
			if !there[node] {
				c.setDrivers(node, nil, nil)
			}
		}
		c.allSupplyChanged()
	})
}

func (c *Core) setAttachment(name string, now attachment) {
	for _, node := range c.attach(name, now) {
		c.countVolumes(node)
	}
}

func (c *Core) listAttachments(list []*storagev1.VolumeAttachment) {
	there := map[string]bool{}
	for _, a := range list {
		there[a.Name] = true
		c.setAttachment(a.Name, attachmentOf(a))
	}
	for _, name := range api.SortedKeys(c.attachedAs) {
		if !there[name] {
			c.setAttachment(name, attachment{})
		}
	}
}

func (c *Core) setDeviceClass(d *resourcev1.DeviceClass, there bool) {
	class := classOf(d)
	subjects := []subject{{kind: aDevice, name: implicit + d.Name}, {kind: aDevice, name: class.resource},
		{kind: aDevice, name: c.extended[d.Name].resource}}
	c.change(func() { c.setClass(d.Name, there, class) }, subjects...)
}

func (c *Core) listDeviceClasses(list []*resourcev1.DeviceClass) {
	c.changeAny(func() {
		c.dropClasses()
		for _, d := range list {
			c.setClass(d.Name, true, classOf(d))
		}
	})
}

// node takes a node. The other cores are told of it after its volumes.
func (c *Core) node(n *api.Node) {
	if c.label(n.Name, n.Labels) {
		c.nodeMatters(n.Name)
		c.countVolumes(n.Name)
	}
	if !c.offersSame(n) {
		c.setNode(n.Name, offersOf(n))
	}
	c.tell(event.NodeSeen{Node: n})
}

// nodeGone takes that a node is gone.
func (c *Core) nodeGone(name string) {
	c.setNode(name, nil)
	c.unlabel(name)
	c.nodeMatters(name)
	c.countVolumes(name)
	c.tell(event.NodeGone{Name: name})
}

// setNode takes the extended resources that a node offers.
func (c *Core) setNode(name string, now []string) {
	var subjects []subject
	for _, r := range slices.Concat(c.offers[name], now) {
		subjects = append(subjects, subject{kind: aDevice, name: r})
	}
	c.change(func() { c.setOffers(name, now) }, subjects...)
}

// nodeMatters has the pods shown again of claims whose volumes are to be provisioned for a node that came or went.
func (c *Core) nodeMatters(name string) {
	for s := range c.users {
		if claim := c.claim[claimOf(s)]; s.kind == aClaim && claim.Selected == name {
			c.supplyChanged(claim.Class)
		}
	}
}

// offersChanged takes note that a volume offers something else now.
func (c *Core) offersChanged(was, now *volume.Volume) {
	for _, v := range []*volume.Volume{was, now} {
		if v == nil {
			continue
		}
		if class, is := v.Offered(); is {
			c.supplyChanged(class)
		}
	}
}

// supplyChanged has the pods of the unbound claims of a class shown again, after a pause.
func (c *Core) supplyChanged(class string) {
	c.choices.drop(class)
	c.tasks.later(c.now, task{showSupplied, class})
}

// allSupplyChanged is supplyChanged for each class of which pods wait for volumes.
func (c *Core) allSupplyChanged() {
	c.choices.dropAll()
	for s := range c.users {
		if s.kind != aClaim {
			continue
		}
		// anybody may name one that does not exist
		if claim := c.claim[claimOf(s)]; claim.UID != "" && c.class[claim.Class] != nil {
			c.supplyChanged(claim.Class)
		}
	}
}
