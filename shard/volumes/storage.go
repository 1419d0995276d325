package volumes

import (
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
)

// storage is what the API server shows of storage, as volume.Cluster asks for it.
type storage struct {
	volume  map[string]*volume.Volume
	claim   map[types.NamespacedName]volume.Claim
	claimAt map[types.NamespacedName]version // of claims that exist
	class   map[string]*volume.Class
}

func newStorage() storage {
	return storage{volume: map[string]*volume.Volume{}, claim: map[types.NamespacedName]volume.Claim{},
		claimAt: map[types.NamespacedName]version{}, class: map[string]*volume.Class{}}
}

// Claim implements volume.Cluster.
func (s *storage) Claim(namespace, name string) (volume.Claim, bool) {
	c, exists := s.claim[types.NamespacedName{Namespace: namespace, Name: name}]
	return c, exists
}

// Volume implements volume.Cluster.
func (s *storage) Volume(name string) *volume.Volume { return s.volume[name] }

// Class implements volume.Cluster.
func (s *storage) Class(name string) *volume.Class { return s.class[name] }

// readVolume returns the known one as long as it is equal.
func (s *storage) readVolume(v *corev1.PersistentVolume) *volume.Volume {
	now := volume.ReadVolume(v)
	if old := s.volume[v.Name]; old != nil && old.Equal(now) {
		return old
	}
	return now
}

func (s *storage) readClass(o *storagev1.StorageClass) *volume.Class {
	now := volume.ReadClass(o)
	if old := s.class[o.Name]; old != nil && old.Equal(now) {
		return old
	}
	return now
}

// keepClaim takes a claim as it is now.
func (s *storage) keepClaim(p *corev1.PersistentVolumeClaim, now volume.Claim) {
	name := types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
	s.claim[name] = now
	if s.claimAt[name] = (version{p.UID, p.ResourceVersion}); now.UID == "" {
		delete(s.claimAt, name)
	}
}

func (s *storage) dropClaims() {
	clear(s.claim)
	clear(s.claimAt)
}

// StripCSIDriver keeps what has a driver needed, and its capacity checked.
func StripCSIDriver(d *storagev1.CSIDriver) *storagev1.CSIDriver {
	return &storagev1.CSIDriver{ObjectMeta: api.StripMeta(&d.ObjectMeta), Spec: storagev1.CSIDriverSpec{
		PreventPodSchedulingIfMissing: d.Spec.PreventPodSchedulingIfMissing, StorageCapacity: d.Spec.StorageCapacity}}
}
