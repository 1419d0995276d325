package volume

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
)

// maxNote bounds what a note says of a volume, in bytes.
const maxNote = 200

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
	// Parts returns choice.Where, where that has several parts, or what Within makes of it by the pod's own constraints.
	Parts(p *v1.Pod, choice *Choice) []*v1.NodeSelector
	Node(name string) bool // exists
	// Limited reports whether there may be nodes that do not take any number of volumes of a CSI driver: they limit it, or lack it though it
	// has to be installed there.
	Limited(driver string) bool
	// Mark has the nodes marked that have not migrated an in-tree plugin (api.UnmigratedMark).
	Mark(plugin string)
	// Turn grows once in a while. Pods that are offered a part of what there is (api.Reach) are offered another one then.
	Turn() uint64
}

// Nodes returns where the volumes of a pod let it run, or why it cannot run now: the words begin with the field. group
// is that of the pod among pods that start together, "" for none.
func Nodes(p *v1.Pod, group string, c Cluster) (api.Reach, string) {
	f := finding{Cluster: c, pod: p, group: group, affinities: map[string]bool{}, counted: map[Attachment]bool{}}
	for i := range p.Spec.Volumes {
		if why := f.volume(&p.Spec.Volumes[i], fmt.Sprintf("spec.volumes[%d].", i)); why != "" {
			return api.Reach{}, why
		}
	}
	if f.inZone {
		f.Tied = api.ToOne
		f.Where = append(f.Where, zoneSelector(f.zone))
	}
	f.Attach = f.attachments()
	f.Unbound = len(f.late) > 0
	open, why := f.decided()
	for _, class := range api.SortedKeys(open) {
		if why == "" {
			why = f.choose(class, open[class])
		}
	}
	if why != "" {
		return api.Reach{}, why
	}
	return f.Reach, ""
}

// finding finds the reach of a pod.
type finding struct {
	Cluster
	api.Reach // as far as it is found
	pod       *v1.Pod
	group     string

	affinities map[string]bool // of volumes that are in Where: those of one StorageClass often have the same
	counted    map[Attachment]bool
	zone       [zones][]string
	inZone     bool
	late       []lateClaim
}

// within adds that nodes have to match a selector, if it is not nil.
func (f *finding) within(s *v1.NodeSelector, key string, tie api.Tie) {
	if s == nil {
		return
	}
	f.Tied = max(f.Tied, tie)
	if !f.affinities[key] {
		f.affinities[key] = true
		f.Where = append(f.Where, s)
	}
}

// attachments returns how many volumes the pod attaches by driver, each once: two fields may name one claim or disk,
// and two claims one volume.
func (f *finding) attachments() (out api.Resources) {
	of := map[string]int64{}
	for a := range f.counted {
		if f.Limited(a.Driver) {
			of[a.Driver]++
		}
	}
	for _, driver := range slices.Sorted(maps.Keys(of)) {
		out = append(out, api.Amount{Resource: driver, Value: of[driver]})
	}
	return out
}

// volume adds what a volume of the pod means, or says why the pod cannot run now.
func (f *finding) volume(v *v1.Volume, field string) (why string) {
	if driver, handle, why := Disk(v); why != "" {
		return field + why
	} else if driver != "" {
		f.counted[Attachment{Driver: driver, Handle: handle}] = true
		return ""
	}
	of := "persistentVolumeClaim"
	switch {
	case v.Ephemeral != nil && v.PersistentVolumeClaim == nil:
		of = "ephemeral"
	case v.PersistentVolumeClaim == nil:
		return ""
	}
	name := api.ClaimOf(f.pod, v)
	field = fmt.Sprintf("%s%s (claim %s): ", field, of, name)
	volume, claim, why := judge(f.pod, v, name, f.group, f.Cluster)
	if why != "" {
		return field + why
	}
	if claim.OnePod && v.PersistentVolumeClaim != nil && !slices.Contains(f.OnePod, name) {
		f.OnePod = append(f.OnePod, name)
	}
	for _, a := range AttachmentsOf(f.pod.Namespace, name, claim, f.Cluster) {
		f.counted[a] = true
	}
	if volume != nil {
		f.bound(v, name, claim, volume)
	} else if !slices.ContainsFunc(f.late, func(l lateClaim) bool { return l.name == name }) {
		f.late = append(f.late, lateClaim{claim, name, field})
	}
	return ""
}

// bound adds what a volume means that is bound to a claim.
func (f *finding) bound(v *v1.Volume, name string, claim Claim, volume *Volume) {
	only := func(nodes string) {
		if f.Note == "" {
			f.Note = fmt.Sprintf("claim %s: its volume %s can be used only on nodes with %s", name, claim.Volume, nodes)
		}
	}
	f.within(volume.Nodes, volume.nodes, api.ToOne)
	if volume.Nodes != nil {
		only(api.Shorten(api.NodesIn(volume.Nodes), maxNote))
	}
	if volume.Plugin != "" {
		f.Mark(volume.Plugin)
	}
	if v.PersistentVolumeClaim == nil {
		return // VolumeZone does not look at ephemeral ones
	}
	for j, values := range volume.Zones {
		if values == nil {
			continue
		}
		if f.inZone = true; len(values) > 0 {
			only(zoneLabels[j] + "=" + api.Shorten(strings.Join(values, ","), maxNote))
		}
		if f.zone[j] == nil {
			f.zone[j] = values
		} else {
			f.zone[j] = both(f.zone[j], values)
		}
	}
}

// decided adds what is decided already of claims that are not bound, and returns the others by StorageClass, or why the
// pod cannot run now.
func (f *finding) decided() (open map[string][]*Claim, why string) {
	asked := 0
	for i := range f.late {
		asked += len(f.late[i].Request)
	}
	if asked > maxRequests {
		return nil, fmt.Sprintf("spec.volumes: what the claims that are not bound ask for (selectors, access modes, "+
			"StorageClass) has %d bytes in all, the limit is %d", asked, maxRequests)
	}
	open = map[string][]*Claim{}
	for i := range f.late {
		l := &f.late[i]
		where, note, why := l.decided(f.pod.Namespace, f.Cluster)
		switch {
		case why != "":
			return nil, l.field + why
		case note == "":
			open[l.Class] = append(open[l.Class], &l.Claim)
		default:
			f.within(where, encode(where), api.ToOne)
			f.Note = cmp.Or(f.Note, note)
		}
	}
	return open, ""
}

// choose adds where claims of a StorageClass can have their volumes, or says why the pod cannot run now.
func (f *finding) choose(class string, claims []*Claim) (why string) {
	slices.SortStableFunc(claims, func(a, b *Claim) int { return cmp.Compare(a.Request, b.Request) })
	choice := f.Choose(claims)
	of := func(l lateClaim) bool { return l.Class == class && l.UID == claims[0].UID }
	first := &f.late[slices.IndexFunc(f.late, of)]
	if choice.Why != "" {
		return first.field + choice.Why
	}
	parts := choice.Where
	if len(parts) > 1 {
		parts, f.Part = f.Parts(f.pod, choice), true
	}
	if len(parts) > 1 {
		f.Note = cmp.Or(f.Note, "its volumes can be had on more nodes than are looked at together: it is offered other ones "+
			"each minute")
	}
	where := parts[seedOf(f.pod, f.group, f.Turn())%uint64(len(parts))]
	f.within(where, encode(where), api.ToSome)
	if where != nil && f.Note == "" {
		f.Note = fmt.Sprintf("claim %s: a volume for it can be had only on nodes with %s", first.name,
			api.Shorten(api.NodesIn(where), maxNote))
	}
	for i := range f.late {
		if l := &f.late[i]; choice.Free != nil && slices.Contains(claims, &l.Claim) {
			f.Scarce = append(f.Scarce, api.ScarceClaim{Claim: l.name, Class: class, Asks: l.Request,
				Free: choice.Free[l.Request]})
		}
	}
	return ""
}

// seedOf decides which part of what there is a pod is offered. The nodes of a part may be full, or none of them be for the pod: not all of its
// constraints count when parts are made. So it changes from turn to turn. In every other turn the pods of a gang are offered
// the same part, for a gang may have to be in one domain; in the others they are offered any, for a gang may be larger than a part.
func seedOf(p *v1.Pod, group string, turn uint64) uint64 {
	switch {
	case group == "":
		return api.PodID(string(p.UID)) + turn
	case turn%2 == 0:
		return api.PodID(p.Namespace+"/"+group) + turn/2
	}
	return api.PodID(string(p.UID)) + turn/2
}

// Attachment is a volume that counts against the limit of a CSI driver at a node where it is used.
type Attachment struct {
	Driver string
	Handle string               // names it to the driver; "" if it is not known which volume that will be: then it counts
	Claim  types.NamespacedName // by its claim
}

// AttachmentsOf returns what a claim attaches, as far as it is known. A claim that is not bound counts for the driver of its class, by which
// kube-scheduler judges until the claim is bound. If the volume that is kept for it is of another driver, that volume counts as well.
func AttachmentsOf(namespace, name string, claim Claim, c interface {
	Volume(name string) *Volume
	Class(name string) *Class
	Kept(namespace, name string) []*Volume
}) (out []Attachment) {
	add := func(a Attachment) {
		if a.Driver != "" && !slices.ContainsFunc(out, func(o Attachment) bool { return o.Driver == a.Driver }) {
			out = append(out, a)
		}
	}
	if v := c.Volume(claim.Volume); v != nil {
		add(Attachment{Driver: v.Driver, Handle: cmp.Or(v.Handle, claim.Volume)})
		return out
	}
	if class := c.Class(claim.Class); class != nil {
		add(Attachment{Driver: class.Driver(), Claim: types.NamespacedName{Namespace: namespace, Name: name}})
	}
	if v := KeptFor(namespace, name, claim, c); v != nil {
		add(Attachment{Driver: v.Driver, Handle: cmp.Or(v.Handle, v.Name())})
	}
	return out
}

// KeptFor returns the volume that an unbound claim gets because it is kept for it, nil for none.
func KeptFor(namespace, name string, claim Claim, c interface {
	Kept(namespace, name string) []*Volume
}) *Volume {
	kept := c.Kept(namespace, name)
	if len(kept) == 0 {
		return nil
	}
	ask := claim.Ask(namespace, name)
	i := slices.IndexFunc(kept, func(v *Volume) bool { return v.Suits(ask) })
	if i < 0 {
		return nil
	}
	return kept[i]
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
		where = onNode(l.Selected)
		if both, ok := api.AllOf(where, class.Topologies); ok { // where they are too many together, the node is more than they say
			where = both
		}
		return where, fmt.Sprintf("a volume for claim %s is being provisioned for node %s", l.name, l.Selected), ""
	}
	v := KeptFor(namespace, l.name, l.Claim, c)
	if v == nil {
		return nil, "", ""
	}
	if v.Plugin != "" {
		c.Mark(v.Plugin)
	}
	return v.at.where, "a volume is kept for claim " + l.name, ""
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
