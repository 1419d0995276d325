package server

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/volume"
)

// storage is what the API server shows of storage, as volume.Cluster asks for it.
type storage struct {
	volume map[string]*volume.Volume
	claim  map[types.NamespacedName]volume.Claim
	class  map[string]*volume.Class
	supply
}

func newStorage() storage {
	return storage{volume: map[string]*volume.Volume{}, claim: map[types.NamespacedName]volume.Claim{}, class: map[string]*volume.Class{},
		supply: newSupply()}
}

func (s *storage) Claim(namespace, name string) (volume.Claim, bool) {
	c, exists := s.claim[types.NamespacedName{Namespace: namespace, Name: name}]
	return c, exists
}

func (s *storage) Volume(name string) *volume.Volume { return s.volume[name] }
func (s *storage) Class(name string) *volume.Class   { return s.class[name] }

// stripCSIDriver keeps what has a driver needed, and its capacity checked.
func stripCSIDriver(d *storagev1.CSIDriver) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: api.StripMeta(&d.ObjectMeta),
		Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: d.Spec.PreventPodSchedulingIfMissing, StorageCapacity: d.Spec.StorageCapacity}}
}

func (c *claims) volumes() kube.Handler[*corev1.PersistentVolume] {
	read := func(v *corev1.PersistentVolume) *volume.Volume {
		now := volume.ReadVolume(v)
		if old := c.volume[v.Name]; old != nil && old.Equal(now) {
			return old
		}
		return now
	}
	set := func(v *corev1.PersistentVolume, there bool) (pods map[types.UID]bool) {
		c.mu.Lock()
		defer c.mu.Unlock()
		old, now := c.volume[v.Name], (*volume.Volume)(nil)
		if there {
			now = read(v)
		}
		concerned := slices.Collect(maps.Keys(c.bound[v.Name]))
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
		for _, claim := range concerned {
			c.lookAt(claim)
		}
		if old != now {
			c.volumeCounts(v.Name, old, now)
		}
		return c.again(before)
	}
	return kube.Handler[*corev1.PersistentVolume]{
		Replaced: func(list []*corev1.PersistentVolume, _ kube.Ticket) {
			c.changeAny(func() {
				now := make(map[string]*volume.Volume, len(list))
				c.offerNothing()
				for _, v := range list {
					now[v.Name] = read(v)
					c.offer(v, nil, now[v.Name])
				}
				c.volume = now
				c.allSupplyChanged()
				c.countAll()
			})
		},
		Seen:  func(v *corev1.PersistentVolume) { c.showPods(set(v, true)) },
		Gone:  func(v *corev1.PersistentVolume) { c.showPods(set(v, false)) },
		Flush: c.flush,
	}
}

func (c *claims) claims() kube.Handler[*corev1.PersistentVolumeClaim] {
	nameOf := func(p *corev1.PersistentVolumeClaim) types.NamespacedName {
		return types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	}
	keep := func(name types.NamespacedName, p *corev1.PersistentVolumeClaim, now volume.Claim, there bool) {
		if c.claim[name] = now; !there {
			delete(c.claim, name)
		}
		if c.claimAt[name] = (version{p.UID, p.ResourceVersion}); now.UID == "" {
			delete(c.claimAt, name)
		}
	}
	attachments := func(name types.NamespacedName) []volume.Attachment {
		claim, exists := c.claim[name]
		if !exists {
			return nil
		}
		return volume.AttachmentsOf(name.Namespace, name.Name, claim, c)
	}
	same := func(name types.NamespacedName, p *corev1.PersistentVolumeClaim, now volume.Claim) bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		if was, known := c.claim[name]; !known || was != now {
			return false
		}
		keep(name, p, now, true)
		c.lookAt(name) // its version may be awaited
		return true
	}
	set := func(p *corev1.PersistentVolumeClaim, now volume.Claim, there bool) {
		name := nameOf(p)
		if there && same(name, p, now) { // as most events are, whatever annotates claims
			return
		}
		c.change(func() {
			was := attachments(name)
			c.unbind(name)
			keep(name, p, now, there)
			c.bind(name)
			c.lookAt(name)
			if !slices.Equal(was, attachments(name)) {
				c.claimCounts(name)
			}
		}, subject{aClaim, p.Namespace, p.Name})
	}
	return kube.Handler[*corev1.PersistentVolumeClaim]{
		Replaced: func(list []*corev1.PersistentVolumeClaim, _ kube.Ticket) {
			c.changeAny(func() {
				clear(c.claim)
				clear(c.claimAt)
				for _, p := range list {
					keep(nameOf(p), p, volume.ReadClaim(p), true)
				}
				c.countAll()
			})
		},
		Seen:  func(p *corev1.PersistentVolumeClaim) { set(p, volume.ReadClaim(p), true) },
		Gone:  func(p *corev1.PersistentVolumeClaim) { set(p, volume.Claim{}, false) },
		Flush: c.flush,
	}
}

func (c *claims) storageClasses() kube.Handler[*storagev1.StorageClass] {
	read := func(s *storagev1.StorageClass, known map[string]*volume.Class) *volume.Class {
		now := volume.ReadClass(s)
		if old := known[s.Name]; old != nil && old.Equal(now) {
			return old
		}
		return now
	}
	return kube.Handler[*storagev1.StorageClass]{
		Replaced: func(list []*storagev1.StorageClass, _ kube.Ticket) {
			c.changeAny(func() {
				now := map[string]*volume.Class{}
				for _, s := range list {
					now[s.Name] = read(s, c.class)
				}
				c.class = now
				c.allSupplyChanged()
				c.countAll()
			})
		},
		Seen: func(s *storagev1.StorageClass) {
			c.changeAny(func() {
				c.class[s.Name] = read(s, c.class)
				c.supplyChanged(s.Name)
			})
		},
		Gone: func(s *storagev1.StorageClass) {
			c.changeAny(func() {
				delete(c.class, s.Name)
				c.supplyChanged(s.Name)
			})
		},
		Flush: c.flush,
	}
}

func (c *claims) csiDrivers() kube.Handler[*storagev1.CSIDriver] {
	set := func(d *storagev1.CSIDriver, there bool) {
		p := d.Spec.PreventPodSchedulingIfMissing
		c.setNeeded(d.Name, there && p != nil && *p)
		if p := d.Spec.StorageCapacity; there && p != nil && *p {
			c.checked[d.Name] = true
		} else {
			delete(c.checked, d.Name)
		}
	}
	one := func(d *storagev1.CSIDriver, there bool) {
		c.changeAny(func() {
			set(d, there)
			c.allSupplyChanged()
		})
	}
	return kube.Handler[*storagev1.CSIDriver]{
		Replaced: func(list []*storagev1.CSIDriver, _ kube.Ticket) {
			c.changeAny(func() {
				clear(c.checked)
				listed := map[string]bool{}
				for _, d := range list {
					listed[d.Name] = true
					set(d, true)
				}
				for _, driver := range slices.Collect(maps.Keys(c.needed)) {
					if !listed[driver] {
						c.setNeeded(driver, false)
					}
				}
				c.allSupplyChanged()
			})
		},
		Seen:  func(d *storagev1.CSIDriver) { one(d, true) },
		Gone:  func(d *storagev1.CSIDriver) { one(d, false) },
		Flush: c.flush,
	}
}
