// Package volumes is the core of a shard that decides what objects other than a pod mean for the pod: claims and
// their volumes, StorageClasses, CSI drivers, DeviceClasses, and the pods that use a claim.
//
// It decides three things. What the home and node cores are shown of a pod (api.Pod): where its volumes let it run
// (package api/volume), or why it has to wait. What they are told of the volumes of a node: how many it may have, and
// has. And which writes bind the claims of a pod once its node is decided (BindVolumes): a claim is annotated with
// the node, or is named in a volume.
//
// It owns what the watches show of these objects; the unbound pods of ours that depend on some; which pods use which
// claims; the rows whose volumes are being bound; and the pods that the home core does not keep, so that a takeover
// need not list them.
//
// Invariants:
//   - What is told of a pod follows from what was seen last of all objects, and from nothing older than what was told
//     before.
//   - Pods that wait are shown again when something else is said of a subject on which they depend, and else are not.
//     A Step shows few of them again; the others have their turn in later ones, so that no event waits for all pods
//     of a claim.
//   - Work that one tenant can cause again and again takes a tenth of the time at most, by an estimate of what it
//     costs (tasks).
//   - A write names the UID and the version of what it was decided by; the API server decides between shards. Nothing
//     is kept of a row but what was written and not seen yet: what was done is read from the objects, whoever did it.
//   - A row is answered once, unless it is ended first. At most one write of a claim is not answered.
//
// It refuses to choose nodes, to count quota, and to delete anything: a volume that was bound stays with its claim.
package volumes

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/shard/event"
)

// Config of the core.
type Config struct {
	Rules api.Rules
	Keeps func(*api.Pod) bool // whether the home core keeps a pod, once it was told of it
}

// Core is the core. Its parts are its fields; each is written in one file.
type Core struct {
	now     time.Time // of the event
	rules   api.Rules
	classes api.Classes

	outbox
	pods
	dependents
	storage
	supply
	usages
	attached
	devices
	bindings
	choices choices
	tasks   tasks
	late    answers          // what was said of subjects whose pods are to be shown again later
	again   queue[types.UID] // pods that wait, to be shown again
	dirty   map[string]bool  // nodes whose volumes are to be counted again later,
	count   queue[string]    // and those whose turn has come
}

// New makes a core that has seen nothing.
func New(c Config) *Core {
	return &Core{rules: c.Rules, pods: newPods(c.Keeps), dependents: newDependents(), storage: newStorage(),
		supply: newSupply(),
		usages: newUsages(), attached: newAttached(), devices: newDevices(), bindings: newBindings(), choices: newChoices(),
		tasks: newTasks(), late: answers{}, again: newQueue[types.UID](), dirty: map[string]bool{}, count: newQueue[string]()}
}

// Step takes an event. A Tick is for what is due (Due) alone.
func (c *Core) Step(now time.Time, ev event.Event) {
	c.now = now
	c.take(ev)
	c.due()
	c.drain()
}

// Outputs returns what is to be done because of the last steps, in order.
func (c *Core) Outputs() []event.Output {
	out := c.out
	c.out = nil
	return out
}

// Due returns when the core is to be stepped with a Tick, if nothing else comes first; zero for never.
func (c *Core) Due() time.Time {
	if !c.again.empty() || !c.count.empty() {
		return c.now
	}
	at := c.tasks.next()
	if look := c.bindings.next(); at.IsZero() || !look.IsZero() && look.Before(at) {
		at = look
	}
	return at
}

// due does what is due.
func (c *Core) due() {
	for p := c.tasks.take(c.now); p != nil; p = c.tasks.take(c.now) {
		c.tasks.rest(c.now, p, c.do(p.task))
	}
	c.lookAtDue()
}

// do begins a task, and returns an estimate of what it costs.
func (c *Core) do(t task) time.Duration {
	switch t.kind {
	case showLate:
		return c.showLate(t.of)
	case showSupplied:
		return c.showSupplied(t.of)
	case showParts:
		return c.showParts()
	default:
		return c.countDirty()
	}
}

// atOnce is how many pods are shown again, and on how many nodes is counted, in one step, but for those of the event
// itself.
const atOnce = 64

// drain does some of what waits for its turn.
func (c *Core) drain() {
	for range atOnce {
		uid, is := c.again.take()
		if !is {
			break
		}
		c.showAgain(uid)
	}
	for range atOnce {
		node, is := c.count.take()
		if !is {
			break
		}
		c.countVolumes(node)
	}
}

func (c *Core) take(ev event.Event) {
	switch e := ev.(type) {
	case event.Changed[*corev1.Pod]:
		if p := e.Object; e.Gone {
			c.lost(string(p.UID), p.Namespace, p.Name)
		} else {
			c.seen(p)
		}
	case event.Changed[*api.Pod]:
		if e.Gone {
			c.lost(e.Object.UID, e.Object.Namespace, e.Object.Name)
		} else {
			c.forget(types.UID(e.Object.UID), c.claim) // another process has reduced it: it depends on no other object
			c.showPod(e.Object)
		}
	case event.Listed[*corev1.Pod]:
		c.replaced(e.Objects, e.Ticket)
	case event.CaughtUp[*corev1.Pod]:
		c.caughtUp(e.Ticket)

	case event.Changed[*corev1.PersistentVolume]:
		c.setVolume(e.Object, !e.Gone)
	case event.Listed[*corev1.PersistentVolume]:
		c.listVolumes(e.Objects)
	case event.Changed[*corev1.PersistentVolumeClaim]:
		c.setClaim(e.Object, !e.Gone)
	case event.Listed[*corev1.PersistentVolumeClaim]:
		c.listClaims(e.Objects)
	case event.Changed[*storagev1.StorageClass]:
		c.setStorageClass(e.Object, !e.Gone)
	case event.Listed[*storagev1.StorageClass]:
		c.listStorageClasses(e.Objects)
	case event.Changed[*storagev1.CSIDriver]:
		c.setCSIDriver(e.Object, !e.Gone)
	case event.Listed[*storagev1.CSIDriver]:
		c.listCSIDrivers(e.Objects)
	case event.Changed[*storagev1.CSIStorageCapacity]:
		c.setCapacity(e.Object, !e.Gone)
	case event.Listed[*storagev1.CSIStorageCapacity]:
		c.listCapacities(e.Objects)
	case event.Changed[*storagev1.CSINode]:
		c.setCSINode(e.Object, !e.Gone)
	case event.Listed[*storagev1.CSINode]:
		c.listCSINodes(e.Objects)
	case event.Changed[*storagev1.VolumeAttachment]:
		if e.Gone {
			c.setAttachment(e.Object.Name, attachment{})
		} else {
			c.setAttachment(e.Object.Name, attachmentOf(e.Object))
		}
	case event.Listed[*storagev1.VolumeAttachment]:
		c.listAttachments(e.Objects)
	case event.Changed[*resourcev1.DeviceClass]:
		c.setDeviceClass(e.Object, !e.Gone)
	case event.Listed[*resourcev1.DeviceClass]:
		c.listDeviceClasses(e.Objects)
	case event.NodeSeen:
		c.node(e.Node)
	case event.NodeGone:
		c.nodeGone(e.Name)
	case event.ReleaseSeen:
		c.change(func() { c.rules.EmptyAll = e.EmptyAll }, subject{kind: aRelease})

	case event.BindVolumes:
		c.bindVolumes(e)
	case event.EndVolumes:
		c.endVolumes(e)
	case event.VolumeWritten:
		c.written(e)
	}
}
