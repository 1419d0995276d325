package volumes

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/shard/event"
)

// The volumes of nodes are counted anew when something that matters to them changes.

// promptNodes is on how many nodes is counted at once.
const promptNodes = 64

// Limited implements volume.Cluster. The first pod that asks for volumes of a driver has the nodes say what they have
// of it.
func (c *Core) Limited(driver string) bool {
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
func (c *Core) Mark(plugin string) {
	if c.marks[plugin] {
		return
	}
	c.marks[plugin] = true
	for _, node := range api.SortedKeys(c.labels) {
		if !c.migrated[node][plugin] {
			c.countVolumes(node)
		}
	}
}

// marksOf returns the in-tree plugins of which a node is marked, none if it is not there.
func (c *Core) marksOf(node string) []string {
	if len(c.marks) == 0 || !c.Node(node) {
		return nil
	}
	return c.unmigrated(node)
}

// setNeeded takes whether a driver has to be installed.
func (c *Core) setNeeded(driver string, needed bool) {
	if c.need(driver, needed) && c.asked[driver] {
		c.driverCounts(driver)
	}
}

// driverCounts counts anew on the nodes that do not take any number of a driver's volumes, or did not.
func (c *Core) driverCounts(driver string) {
	for _, node := range api.SortedKeys(c.drivers) {
		if limit, installed := c.drivers[node][driver]; installed && limit != endless {
			c.countVolumes(node)
		}
	}
	for _, node := range api.SortedKeys(c.labels) {
		if _, installed := c.drivers[node][driver]; !installed {
			c.countVolumes(node)
		}
	}
}

// countVolumes tells how many volumes a node can have, and has, and what it is marked with, if that is something else
// than was told last.
func (c *Core) countVolumes(node string) {
	now := c.counted(node, c.Node(node))
	if len(now) > 0 {
		c.addUsed(node, now)
	}
	if ev := (event.NodeVolumes{Name: node, Attachable: now, Unmigrated: c.marksOf(node)}); c.say(ev) {
		c.tell(ev)
	}
}

func (c *Core) addUsed(node string, of []api.Attachable) {
	counted := map[volume.Attachment]bool{}
	count := func(a volume.Attachment) {
		i := slices.IndexFunc(of, func(o api.Attachable) bool { return o.Driver == a.Driver })
		if i >= 0 && !of[i].Missing && !counted[a] {
			counted[a] = true
			of[i].Used++
		}
	}
	for _, p := range c.onNode[node] {
		for _, used := range p.claims {
			for _, a := range c.attachments(used.NamespacedName) {
				count(a)
			}
		}
		for _, disk := range p.disks {
			count(disk)
		}
	}
	for _, a := range c.attachedTo[node] {
		// its driver counts, as for kube-scheduler, which overlooks those of in-tree kinds
		if v := c.volume[a.volume]; v != nil {
			count(volume.Attachment{Driver: v.Driver, Handle: cmp.Or(v.Handle, a.volume)})
		}
	}
}

// attachments are the volumes that the pods of a claim attach for it.
func (c *Core) attachments(name types.NamespacedName) []volume.Attachment {
	claim, exists := c.claim[name]
	if !exists {
		return nil
	}
	return volume.AttachmentsOf(name.Namespace, name.Name, claim, c)
}

// claimCounts counts anew on the nodes of the pods that use a claim.
func (c *Core) claimCounts(name types.NamespacedName) {
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

// volumeCounts counts anew where a volume is used or attached.
func (c *Core) volumeCounts(name string, versions ...*volume.Volume) {
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

// countOn counts anew on some nodes. Where they are many, it does so a little later: a tenant's claim may be used on
// all nodes.
func (c *Core) countOn(nodes map[string]bool) {
	many := len(nodes) > promptNodes
	for _, node := range api.SortedKeys(nodes) {
		if many {
			c.dirty[node] = true
		} else {
			c.countVolumes(node)
		}
	}
	if many {
		c.tasks.later(c.now, task{kind: countNodes})
	}
}

// countDirty counts anew on the nodes where that had to wait.
func (c *Core) countDirty() time.Duration {
	for _, node := range api.SortedKeys(c.dirty) {
		c.count.add(node)
	}
	took := time.Duration(len(c.dirty)) * countCost
	clear(c.dirty)
	return took
}

// countAll counts anew on all nodes, after a new list of something.
func (c *Core) countAll() {
	for _, node := range api.SortedKeys(c.drivers) {
		c.countVolumes(node)
	}
}

// setDrivers takes what a CSINode says.
func (c *Core) setDrivers(node string, now map[string]int64, migrated map[string]bool) {
	c.install(node, now, migrated)
	c.countVolumes(node)
}
