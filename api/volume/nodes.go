package volume

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"basalt.dev/basalt/api"
)

// Cluster is what the rules look up.
type Cluster interface {
	Claim(namespace, name string) (c Claim, exists bool)
	Volume(name string) *Volume // nil for none
	Class(name string) *Class   // nil for none
	// Usage says who uses a claim; nil for nobody.
	Usage(namespace, name string) *Usage
	// Kept returns the volumes that are kept for a claim and not bound to it.
	Kept(namespace, name string) []*Volume
	// Choose is the function of that name; the claims are in the order of what they ask for.
	Choose(claims []*Claim) *Choice
	Node(name string) bool // exists
	// Limited reports whether there may be nodes that do not take any number of volumes of a CSI driver: they limit it, or lack it though it
	// has to be installed there.
	Limited(driver string) bool
	// Mark has the nodes marked that have not migrated an in-tree plugin (api.UnmigratedMark).
	Mark(plugin string)
}

// Nodes returns where the volumes of a pod let it run, or why it cannot run now: the words begin with the field. group is that of the pod
// among pods that start together, "" for none.
func Nodes(p *v1.Pod, group string, c Cluster) (reach api.Reach, why string) {
	var zone [zones][]string
	inZone := false
	seen := map[string]bool{} // node affinities: volumes of one StorageClass often have the same
	add := func(s *v1.NodeSelector, key string, tie api.Tie) {
		if s != nil {
			reach.Tied = max(reach.Tied, tie)
		}
		if s != nil && !seen[key] {
			seen[key] = true
			reach.Where = append(reach.Where, s)
		}
	}
	attach, counted := map[string]int64{}, map[string]bool{}
	count := func(driver, kind, name string) { // two fields may name one claim or disk, and two claims one volume
		if key := driver + " " + kind + " " + name; driver != "" && !counted[key] && c.Limited(driver) {
			attach[driver]++
			counted[key] = true
		}
	}
	var late []lateClaim
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if driver, handle, why := Disk(v); why != "" {
			return api.Reach{}, fmt.Sprintf("spec.volumes[%d].%s", i, why)
		} else if driver != "" {
			count(driver, "volume", handle)
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
		field = fmt.Sprintf("spec.volumes[%d].%s (claim %s): ", i, field, name)
		volume, claim, why := judge(p, v, name, group, c)
		if why != "" {
			return api.Reach{}, field + why
		}
		if claim.OnePod && v.PersistentVolumeClaim != nil && !slices.Contains(reach.OnePod, name) {
			reach.OnePod = append(reach.OnePod, name)
		}
		if volume == nil {
			if !slices.ContainsFunc(late, func(l lateClaim) bool { return l.name == name }) {
				late = append(late, lateClaim{claim, name, field})
			}
			for _, driver := range DriversOf(p.Namespace, name, claim, c) {
				count(driver, "claim", name)
			}
			continue
		}
		count(volume.Driver, "volume", cmp.Or(volume.Handle, claim.Volume))
		add(volume.Nodes, volume.nodes, api.ToOne)
		if volume.Plugin != "" {
			c.Mark(volume.Plugin)
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
		reach.Tied = api.ToOne
		reach.Where = append(reach.Where, zoneSelector(zone))
	}
	for _, driver := range slices.Sorted(maps.Keys(attach)) {
		reach.Attach = append(reach.Attach, api.Amount{Resource: driver, Value: attach[driver]})
	}
	reach.Unbound = len(late) > 0
	open := map[string][]*Claim{} // by StorageClass
	for i := range late {
		l := &late[i]
		where, note, why := l.decided(p.Namespace, c)
		switch {
		case why != "":
			return api.Reach{}, l.field + why
		case note == "":
			open[l.Class] = append(open[l.Class], &l.Claim)
		default:
			add(where, encode(where), api.ToOne)
			reach.Note = cmp.Or(reach.Note, note)
		}
	}
	for _, class := range api.SortedKeys(open) {
		claims := open[class]
		slices.SortStableFunc(claims, func(a, b *Claim) int { return cmp.Compare(a.Request, b.Request) })
		choice := c.Choose(claims)
		if choice.Why != "" {
			i := slices.IndexFunc(late, func(l lateClaim) bool { return l.Class == class && l.UID == claims[0].UID })
			return api.Reach{}, late[i].field + choice.Why
		}
		where := choice.For(api.PodID(string(p.UID)))
		add(where, encode(where), api.ToSome)
		for i := range late {
			if l := &late[i]; choice.Free != nil && slices.Contains(claims, &l.Claim) {
				reach.Scarce = append(reach.Scarce, api.ScarceClaim{Claim: l.name, Class: class, Asks: l.Request, Free: choice.Free[l.Request]})
			}
		}
	}
	return reach, ""
}

// DriversOf returns the CSI drivers of a claim's volume, as far as they are known. A claim that is not bound counts for two if that of the volume
// which is kept for it is not that of its class: the former attaches it, and the latter is what kube-scheduler judges by until the claim is bound.
func DriversOf(namespace, name string, claim Claim, c interface {
	Volume(name string) *Volume
	Class(name string) *Class
	Kept(namespace, name string) []*Volume
}) (out []string) {
	add := func(driver string) {
		if driver != "" && !slices.Contains(out, driver) {
			out = append(out, driver)
		}
	}
	if v := c.Volume(claim.Volume); v != nil {
		add(v.Driver)
		return out
	}
	if kept := c.Kept(namespace, name); len(kept) > 0 {
		add(kept[0].Driver)
	}
	if class := c.Class(claim.Class); class != nil {
		add(class.Driver())
	}
	return out
}

// lateClaim is a claim of a pod that is bound once the node of the pod is decided.
type lateClaim struct {
	Claim
	name, field string
}

// decided returns where the claim lets its pod run if that is decided already, with a note for its user, or why it lets it run nowhere.
func (l *lateClaim) decided(namespace string, c Cluster) (where *v1.NodeSelector, note, why string) {
	if l.Selected != "" && c.Node(l.Selected) {
		class := c.Class(l.Class)
		if why = class.Refused; class.Provisioner == "" {
			why = fmt.Sprintf("the claim is not bound: it asks for a volume on node %s (%s), and StorageClass %s provisions none", l.Selected, SelectedNode, l.Class)
		}
		if why != "" {
			return nil, "", why
		}
		where, _ = api.AllOf(onNode(l.Selected), class.Topologies)
		return where, fmt.Sprintf("a volume for claim %s is being provisioned for node %s", l.name, l.Selected), ""
	}
	object := l.Object(namespace, l.name)
	for _, v := range c.Kept(namespace, l.name) {
		if !v.Suits(object) {
			continue
		}
		if v.Plugin != "" {
			c.Mark(v.Plugin)
		}
		return v.at.where, "a volume is kept for claim " + l.name, ""
	}
	return nil, "", ""
}

// judge returns the volume of a pod's claim, nil for one that is bound later, or why the pod cannot use it now.
func judge(p *v1.Pod, v *v1.Volume, name, group string, c Cluster) (*Volume, Claim, string) {
	claim, exists := c.Claim(p.Namespace, name)
	why := ""
	switch {
	case name == "":
		why = "the claim has no name"
	case !exists && v.PersistentVolumeClaim == nil:
		why = "the claim is not created yet"
	case !exists:
		why = "the claim does not exist"
	case claim.Lost:
		why = "the claim is lost: its volume " + claim.Volume + " does not exist any more"
	case claim.Deleting:
		why = "the claim is being deleted"
	case v.PersistentVolumeClaim == nil && claim.Owner != p.UID:
		why = "the claim was not made for this pod: another object owns it, or none"
	case !claim.Bound:
		why = unbound(claim, c)
	}
	if why != "" {
		return nil, claim, why
	}
	var volume *Volume
	if claim.Bound {
		if volume = c.Volume(claim.Volume); volume == nil {
			return nil, claim, "its volume " + claim.Volume + " does not exist"
		}
		if volume.Refused != "" {
			return nil, claim, "its volume " + claim.Volume + ": " + volume.Refused
		}
	}
	if claim.OnePod && v.PersistentVolumeClaim != nil {
		if usage := c.Usage(p.Namespace, name); usage != nil {
			if why := usage.refuses(p.UID, group); why != "" {
				return nil, claim, why
			}
		}
	}
	return volume, claim, ""
}

// unbound says what a claim that is not bound waits for, "" if for a node.
func unbound(claim Claim, c Cluster) string {
	switch {
	case claim.Volume != "":
		return "the claim is not bound to its volume " + claim.Volume + " yet"
	case claim.Class == "":
		return "the claim is not bound, and names no StorageClass: it waits for a volume"
	}
	switch class := c.Class(claim.Class); {
	case class == nil:
		return "the claim is not bound, and its StorageClass " + claim.Class + " does not exist"
	case class.Mode == Immediate:
		return "the claim is not bound: it waits for its volume to be provisioned by StorageClass " + claim.Class
	}
	if claim.Refused != "" {
		return "the claim cannot be bound: " + claim.Refused
	}
	return ""
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
