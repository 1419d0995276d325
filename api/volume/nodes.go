package volume

import (
	"fmt"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// Cluster is what the rules look up.
type Cluster interface {
	Claim(namespace, name string) (c Claim, exists bool)
	Volume(name string) *Volume // nil for none
	Class(name string) Mode
	// Driver says why volumes of a CSI driver cannot be judged, "" if every node takes any number of them.
	Driver(name string) string
	// Usage says who uses a claim; nil for nobody.
	Usage(namespace, name string) *Usage
}

// Nodes returns the node selectors that all have to match a node where the volumes of a pod let it run, or why it cannot run now:
// the words begin with the field. group is that of the pod among pods that start together, "" for none.
func Nodes(p *v1.Pod, group string, c Cluster) (where []*v1.NodeSelector, why string) {
	var zone [zones][]string
	inZone := false
	seen := map[string]bool{} // node affinities: volumes of one StorageClass often have the same
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if field, driver := InlineDriver(v); driver != "" {
			if why := c.Driver(driver); why != "" {
				return nil, fmt.Sprintf("spec.volumes[%d].%s: %s", i, field, why)
			}
			continue
		}
		field := "persistentVolumeClaim"
		switch {
		case v.Ephemeral != nil && v.PersistentVolumeClaim == nil:
			field = "ephemeral"
		case v.PersistentVolumeClaim == nil:
			continue
		}
		name := api.ClaimOf(p, v)
		volume, why := judge(p, v, name, group, c)
		if why != "" {
			return nil, fmt.Sprintf("spec.volumes[%d].%s (claim %s): %s", i, field, name, why)
		}
		if volume.Nodes != nil && !seen[volume.nodes] {
			seen[volume.nodes] = true
			where = append(where, volume.Nodes)
		}
		if v.PersistentVolumeClaim == nil {
			continue // VolumeZone does not look at ephemeral ones
		}
		for j, values := range volume.Zones {
			if values == nil {
				continue
			}
			inZone = true
			if zone[j] == nil {
				zone[j] = values
			} else {
				zone[j] = both(zone[j], values)
			}
		}
	}
	if inZone {
		where = append(where, zoneSelector(zone))
	}
	return where, ""
}

// judge returns the volume of a pod's claim, or why the pod cannot use it now.
func judge(p *v1.Pod, v *v1.Volume, name, group string, c Cluster) (*Volume, string) {
	claim, exists := c.Claim(p.Namespace, name)
	switch {
	case name == "":
		return nil, "the claim has no name"
	case !exists && v.PersistentVolumeClaim == nil:
		return nil, "the claim is not created yet"
	case !exists:
		return nil, "the claim does not exist"
	case claim.Lost:
		return nil, "the claim is lost: its volume " + claim.Volume + " does not exist any more"
	case claim.Deleting:
		return nil, "the claim is being deleted"
	case v.PersistentVolumeClaim == nil && claim.Owner != p.UID:
		return nil, "the claim was not made for this pod: another object owns it, or none"
	case !claim.Bound:
		return nil, unbound(claim, c)
	}
	volume := c.Volume(claim.Volume)
	if volume == nil {
		return nil, "its volume " + claim.Volume + " does not exist"
	}
	why := volume.Refused
	if why == "" && volume.Driver != "" {
		why = c.Driver(volume.Driver)
	}
	if why != "" {
		return nil, "its volume " + claim.Volume + ": " + why
	}
	if claim.OnePod && v.PersistentVolumeClaim != nil {
		if usage := c.Usage(p.Namespace, name); usage != nil {
			if why := usage.refuses(p.UID, group); why != "" {
				return nil, why
			}
		}
	}
	return volume, ""
}

// unbound says what a claim that is not bound waits for.
func unbound(claim Claim, c Cluster) string {
	switch {
	case claim.Volume != "":
		return "the claim is not bound to its volume " + claim.Volume + " yet"
	case claim.Class == "":
		return "the claim is not bound, and names no StorageClass: it waits for a volume"
	}
	switch c.Class(claim.Class) {
	case Immediate:
		return "the claim is not bound: it waits for its volume to be provisioned by StorageClass " + claim.Class
	case Late:
		return "the claim is not bound, and StorageClass " + claim.Class + " waits for a node to be chosen (WaitForFirstConsumer), " +
			"which is not supported yet"
	}
	return "the claim is not bound, and its StorageClass " + claim.Class + " does not exist"
}

// both returns what two sorted lists have in common; it is not nil.
func both(a, b []string) []string {
	out := []string{}
	for _, x := range a {
		for _, y := range b {
			if x == y {
				out = append(out, x)
			}
		}
	}
	return out
}

// InlineDriver returns the field and the CSI driver of a disk in a pod that Kubernetes migrates to CSI, and which any number of pods on
// a node may use: it counts against the limits of that driver.
func InlineDriver(v *v1.Volume) (field, driver string) {
	switch {
	case v.AzureDisk != nil:
		return "azureDisk", "disk.csi.azure.com"
	case v.Cinder != nil:
		return "cinder", "cinder.csi.openstack.org"
	case v.PortworxVolume != nil:
		return "portworxVolume", "pxd.portworx.com"
	}
	return "", ""
}
