package volume

import (
	"fmt"
	"maps"
	"math"
	"slices"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	storagehelpers "k8s.io/component-helpers/storage/volume"

	"basalt.dev/basalt/api"
)

// Claims that are bound once the node of their pod is decided (WaitForFirstConsumer). Such a claim lets its pod run where a volume that
// exists and fits the claim can be used, and where its StorageClass can provision one. This file says where that is.

// Bounds of what one object says about it. What is beyond them is not offered, or is refused by name.
const (
	maxRequest  = 8 << 10  // bytes of what a claim asks for
	maxRequests = 64 << 10 // likewise, of the unbound claims of a pod together: each may be compared with each volume
	maxOffer    = 16 << 10 // bytes of what a volume offers, its labels included
	// maxChoice and maxChoices are bytes and entries of the selector of nodes where one claim lets its pod run. Where there are more
	// nodes, each pod is offered a part of them at a time (seedOf).
	maxChoice  = 8 << 10
	maxChoices = 512
)

// SelectedNode is an annotation of an unbound claim: the node for which a volume is to be provisioned.
const SelectedNode = storagehelpers.AnnSelectedNode

// refused is written by StripClaim in the place of a request beyond the bounds.
const refused = "scheduling.basalt.dev/claim-refused"

// request returns what an unbound claim asks for, encoded, or why that cannot be served.
func request(c *v1.PersistentVolumeClaim) (encoded, why string) {
	if why := c.Annotations[refused]; why != "" {
		return "", why
	}
	if len(c.Annotations[SelectedNode]) > maxName {
		return "", "its annotation " + SelectedNode + " is longer than the name of a node"
	}
	b, err := requested(c).Marshal()
	switch {
	case err != nil:
		return "", "its spec cannot be read: " + err.Error()
	case len(b) > maxRequest:
		return "", fmt.Sprintf("its selector and access modes have %d bytes, the limit is %d", len(b), maxRequest)
	}
	if _, err := api.Selector(c.Spec.Selector); err != nil {
		return "", "its selector cannot be read: " + api.Shorten(err.Error(), 200)
	}
	return string(b), ""
}

const maxName = 253 // bytes of an object's name

// requested keeps of a claim's spec what decides which volumes it can have.
func requested(c *v1.PersistentVolumeClaim) *v1.PersistentVolumeClaimSpec {
	out := &v1.PersistentVolumeClaimSpec{AccessModes: c.Spec.AccessModes, Selector: c.Spec.Selector, VolumeMode: c.Spec.VolumeMode,
		VolumeAttributesClassName: c.Spec.VolumeAttributesClassName, StorageClassName: c.Spec.StorageClassName}
	if out.VolumeMode == nil {
		out.VolumeMode = new(v1.PersistentVolumeFilesystem) // the default
	}
	if class, ok := c.Annotations[v1.BetaStorageClassAnnotation]; ok {
		out.StorageClassName = &class
	}
	if q, ok := c.Spec.Resources.Requests[v1.ResourceStorage]; ok {
		out.Resources.Requests = v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(sizeOf(q), resource.BinarySI)}
	}
	return out
}

// sizeOf reads a size in bytes; one that is too large to be read is as large as any.
func sizeOf(q resource.Quantity) int64 {
	if n, err := api.FromQuantity(string(v1.ResourceStorage), q, true); err == nil {
		return n
	}
	return max(0, int64(q.Sign())) * math.MaxInt64
}

// Ask is what an unbound claim asks for, read once for all volumes that it is compared with.
type Ask struct {
	request    string // Claim.Request
	claim      v1.ObjectReference
	class      string
	attributes string // VolumeAttributesClass, "" for none
	mode       v1.PersistentVolumeMode
	access     []v1.PersistentVolumeAccessMode
	size       int64 // bytes
	sized      bool  // it names a size
	wanted     *metav1.LabelSelector
	selector   labels.Selector // of wanted, nil until it is needed: to read one may take as long as a thousand comparisons
}

// Ask reads what the claim asks for.
func (c *Claim) Ask(namespace, name string) *Ask {
	var spec v1.PersistentVolumeClaimSpec
	_ = spec.Unmarshal([]byte(c.Request)) // our own encoding
	q, sized := spec.Resources.Requests[v1.ResourceStorage]
	return &Ask{request: c.Request, claim: v1.ObjectReference{Namespace: namespace, Name: name, UID: c.UID}, class: c.Class, attributes: valueOf(spec.VolumeAttributesClassName),
		mode: modeOf(spec.VolumeMode), access: spec.AccessModes, size: q.Value(), sized: sized, wanted: spec.Selector}
}

// selects reports whether a volume with these labels may be the one.
func (a *Ask) selects(of map[string]string) bool {
	if a.wanted == nil {
		return true
	}
	if a.selector == nil {
		var err error
		if a.selector, err = api.Selector(a.wanted); err != nil { // such a claim is refused by name
			a.selector = labels.Nothing()
		}
	}
	return a.selector.Matches(labels.Set(of))
}

// named reports whether a claimRef names the claim.
func (a *Ask) named(ref *v1.ObjectReference) bool {
	return ref != nil && ref.Name == a.claim.Name && ref.Namespace == a.claim.Namespace && (ref.UID == "" || ref.UID == a.claim.UID)
}

func modeOf(m *v1.PersistentVolumeMode) v1.PersistentVolumeMode {
	if m == nil {
		return v1.PersistentVolumeFilesystem
	}
	return *m
}

func valueOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// offer returns what a volume offers to unbound claims, without its node affinity; nil for nothing.
func offer(v *v1.PersistentVolume) *v1.PersistentVolume {
	if ref := v.Spec.ClaimRef; v.Status.Phase == v1.VolumeBound && ref != nil && ref.UID != "" { // its claim will say so, a little later
		return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.Name}, Status: v1.PersistentVolumeStatus{Phase: v1.VolumeBound},
			Spec: v1.PersistentVolumeSpec{ClaimRef: &v1.ObjectReference{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}}}
	}
	phase := v.Status.Phase
	if v.DeletionTimestamp != nil {
		return nil
	}
	if phase == v1.VolumeBound || phase == v1.VolumeReleased || phase == v1.VolumeFailed {
		if ref := v.Spec.ClaimRef; ref == nil || ref.UID != "" {
			return nil
		}
		phase = v1.VolumeReleased // kept for the claim of that name, whatever it was before
	}
	q, ok := v.Spec.Capacity[v1.ResourceStorage]
	if !ok {
		return nil
	}
	out := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: v.Name, Labels: v.Labels}, Status: v1.PersistentVolumeStatus{Phase: phase}}
	out.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: *resource.NewQuantity(sizeOf(q), resource.BinarySI)}
	out.Spec.AccessModes, out.Spec.VolumeMode, out.Spec.VolumeAttributesClassName = v.Spec.AccessModes, v.Spec.VolumeMode, v.Spec.VolumeAttributesClassName
	out.Spec.StorageClassName = storagehelpers.GetPersistentVolumeClass(v)
	if ref := v.Spec.ClaimRef; ref != nil {
		out.Spec.ClaimRef = &v1.ObjectReference{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}
	}
	if out.Size() > maxOffer {
		return nil
	}
	return out
}

// For names the claim that a volume is kept for, or bound to, the zero value for none.
func (v *Volume) For() types.NamespacedName {
	if v.offer == nil || v.offer.Spec.ClaimRef == nil {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: v.offer.Spec.ClaimRef.Namespace, Name: v.offer.Spec.ClaimRef.Name}
}

// Offered returns the class whose claims a volume is offered to, and whether it is: it is not bound, nor kept for a claim.
func (v *Volume) Offered() (class string, is bool) {
	if v.offer == nil || v.offer.Spec.ClaimRef != nil || v.offer.Status.Phase != v1.VolumeAvailable {
		return "", false
	}
	return v.offer.Spec.StorageClassName, true
}

// Suits reports whether a claim can have a volume, wherever its pod runs, by the rules of the volume controller and of kube-scheduler:
// FindMatchingVolume of k8s.io/component-helpers, which reads the claim's selector anew for each volume. What is cheap is compared first.
func (v *Volume) Suits(a *Ask) bool {
	o := v.offer
	switch {
	case o == nil || v.Refused != "":
		return false
	case o.Status.Phase == v1.VolumeBound:
		return a.named(o.Spec.ClaimRef)
	case o.Spec.StorageClassName != a.class: // kube-scheduler looks at volumes of the class alone, at one that is kept for the claim, too
		return false
	case v.size < a.size || modeOf(o.Spec.VolumeMode) != a.mode || valueOf(o.Spec.VolumeAttributesClassName) != a.attributes:
		return false
	case o.Spec.ClaimRef != nil:
		return a.named(o.Spec.ClaimRef)
	case o.Status.Phase != v1.VolumeAvailable:
		return false
	}
	for _, mode := range a.access {
		if !slices.Contains(o.Spec.AccessModes, mode) {
			return false
		}
	}
	return a.selects(o.Labels)
}

// Class is what the rules read of a StorageClass. It is immutable once made.
type Class struct {
	Mode        Mode
	Provisioner string           // "" if volumes are made by hand
	Topologies  *v1.NodeSelector // where it provisions; nil for anywhere
	Refused     string           // why its claims cannot be served
	key         string
}

// Equal reports whether the rules cannot tell two classes apart.
func (c *Class) Equal(o *Class) bool { return c.key == o.key }

// Driver returns the CSI driver that counts the volumes of the class, "" for none.
func (c *Class) Driver() string { return driverOf(c.Provisioner) }

// ReadClass reduces a StorageClass.
func ReadClass(c *storagev1.StorageClass) *Class {
	out := &Class{Mode: Immediate}
	if c.VolumeBindingMode != nil && *c.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer {
		out.Mode = Late
	}
	if c.Provisioner != storagehelpers.NotSupportedProvisioner {
		out.Provisioner = c.Provisioner
	}
	if len(c.AllowedTopologies) > 0 {
		out.Topologies = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{}}
		for _, t := range c.AllowedTopologies {
			var term v1.NodeSelectorTerm
			for _, e := range t.MatchLabelExpressions {
				term.MatchExpressions = append(term.MatchExpressions, v1.NodeSelectorRequirement{Key: e.Key, Operator: v1.NodeSelectorOpIn, Values: e.Values})
			}
			out.Topologies.NodeSelectorTerms = append(out.Topologies.NodeSelectorTerms, term)
		}
		if n := out.Topologies.Size(); n > maxChoice {
			out.Topologies, out.Refused = nil, fmt.Sprintf("its allowedTopologies have %d bytes, the limit is %d", n, maxChoice)
		}
	}
	out.key = fmt.Sprintf("%d %q %q %q", out.Mode, out.Provisioner, out.Refused, encode(out.Topologies))
	return out
}

// StripClass keeps what ReadClass reads.
func StripClass(c *storagev1.StorageClass) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: api.StripMeta(&c.ObjectMeta), VolumeBindingMode: c.VolumeBindingMode, Provisioner: c.Provisioner,
		AllowedTopologies: c.AllowedTopologies}
}

// Capacity is what the rules read of a CSIStorageCapacity: how large a volume of a class some nodes can have. It is immutable once made.
type Capacity struct {
	Class string
	Most  int64            // bytes
	Nodes *v1.NodeSelector // nil for all nodes
	key   string
}

// ReadCapacity reduces a CSIStorageCapacity, nil for one that offers nothing.
func ReadCapacity(c *storagev1.CSIStorageCapacity) *Capacity {
	limit := c.MaximumVolumeSize
	if limit == nil {
		limit = c.Capacity
	}
	if limit == nil || c.NodeTopology == nil || c.NodeTopology.Size() > maxChoice {
		return nil
	}
	if _, err := api.Selector(c.NodeTopology); err != nil {
		return nil
	}
	out := &Capacity{Class: c.StorageClassName, Most: sizeOf(*limit)}
	var term v1.NodeSelectorTerm
	for _, key := range slices.Sorted(maps.Keys(c.NodeTopology.MatchLabels)) {
		term.MatchExpressions = append(term.MatchExpressions, v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorOpIn, Values: []string{c.NodeTopology.MatchLabels[key]}})
	}
	for _, e := range c.NodeTopology.MatchExpressions { // the operators have the same names
		term.MatchExpressions = append(term.MatchExpressions, v1.NodeSelectorRequirement{Key: e.Key, Operator: v1.NodeSelectorOperator(e.Operator), Values: e.Values})
	}
	if len(term.MatchExpressions) > 0 {
		out.Nodes = &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{term}}
	}
	out.key = fmt.Sprintf("%q %d %q", out.Class, out.Most, encode(out.Nodes))
	return out
}

// Equal reports whether the rules cannot tell two capacities apart.
func (c *Capacity) Equal(o *Capacity) bool {
	return c == o || c != nil && o != nil && c.key == o.key
}

// StripCapacity keeps what ReadCapacity reads.
func StripCapacity(c *storagev1.CSIStorageCapacity) *storagev1.CSIStorageCapacity {
	out := &storagev1.CSIStorageCapacity{ObjectMeta: api.StripMeta(&c.ObjectMeta), StorageClassName: c.StorageClassName, MaximumVolumeSize: c.MaximumVolumeSize, Capacity: c.Capacity}
	if c.NodeTopology != nil && c.NodeTopology.Size() <= maxChoice {
		out.NodeTopology = c.NodeTopology
	}
	return out
}

// encode returns a string that differs between selectors that differ.
func encode(s *v1.NodeSelector) string {
	out, err := marshal(s)
	if err != nil {
		return err.Error()
	}
	return out
}

func marshal(s *v1.NodeSelector) (string, error) {
	if s == nil {
		return "any", nil
	}
	b, err := s.Marshal()
	return string(b), err
}

// labelOf returns the label of which a selector names one value and no more, "" for another selector.
func labelOf(s *v1.NodeSelector) string {
	if s == nil || len(s.NodeSelectorTerms) != 1 {
		return ""
	}
	t := &s.NodeSelectorTerms[0]
	if len(t.MatchFields) > 0 || len(t.MatchExpressions) != 1 || t.MatchExpressions[0].Operator != v1.NodeSelectorOpIn || len(t.MatchExpressions[0].Values) != 1 {
		return ""
	}
	return t.MatchExpressions[0].Key
}

// provision adds where a class provisions a volume for a claim.
func (c *Class) provision(name string, ask *Ask, s Supply, all *union) (some bool, why string) {
	if !ask.sized || !s.CapacityChecked(c.Provisioner) {
		all.add(c.Topologies)
		return true, ""
	}
	for _, has := range s.Capacities(name) {
		if has.Most < ask.size {
			continue
		}
		if where, ok := api.AllOf(c.Topologies, has.Nodes); ok {
			all.add(where)
			some = true
		}
	}
	return some, fmt.Sprintf("no CSIStorageCapacity of StorageClass %s has room for a volume of %s", name, resource.NewQuantity(ask.size, resource.BinarySI))
}

// union is where one of several selectors matches. Those that compare one label with values, as most do, go together.
type union struct {
	any    bool
	values map[string]map[string]bool
	terms  map[string]v1.NodeSelectorTerm
}

func (u *union) add(s *v1.NodeSelector) {
	if s == nil {
		u.any = true
		return
	}
	for _, t := range s.NodeSelectorTerms {
		switch {
		case !hasRequirements(t):
		case len(t.MatchFields) == 0 && len(t.MatchExpressions) == 1 && t.MatchExpressions[0].Operator == v1.NodeSelectorOpIn && len(t.MatchExpressions[0].Values) > 0:
			e := t.MatchExpressions[0]
			if u.values == nil {
				u.values = map[string]map[string]bool{}
			}
			if u.values[e.Key] == nil {
				u.values[e.Key] = map[string]bool{}
			}
			for _, v := range e.Values {
				u.values[e.Key][v] = true
			}
		default:
			if u.terms == nil {
				u.terms = map[string]v1.NodeSelectorTerm{}
			}
			if b, err := t.Marshal(); err == nil {
				u.terms[string(b)] = t
			}
		}
	}
}

// selectors returns the union in parts that are within the bounds.
func (u *union) selectors() (out []*v1.NodeSelector) {
	if u.any {
		return []*v1.NodeSelector{nil}
	}
	bytes, entries := 0, 0
	last := func(b, n int) (s *v1.NodeSelector, fresh bool) {
		if fresh = len(out) == 0 || bytes+b > maxChoice || entries+n > maxChoices; fresh {
			out, bytes, entries = append(out, &v1.NodeSelector{}), 0, 0
		}
		bytes, entries = bytes+b, entries+n
		return out[len(out)-1], fresh
	}
	for _, key := range slices.Sorted(maps.Keys(u.values)) {
		for i, value := range slices.Sorted(maps.Keys(u.values[key])) {
			of, fresh := last(len(value)+3, 1)
			if fresh || i == 0 {
				bytes, entries = bytes+len(key)+20, entries+2
				of.NodeSelectorTerms = append(of.NodeSelectorTerms, v1.NodeSelectorTerm{MatchExpressions: []v1.NodeSelectorRequirement{{Key: key, Operator: v1.NodeSelectorOpIn}}})
			}
			e := &of.NodeSelectorTerms[len(of.NodeSelectorTerms)-1].MatchExpressions[0]
			e.Values = append(e.Values, value)
		}
	}
	for _, encoded := range slices.Sorted(maps.Keys(u.terms)) {
		t := u.terms[encoded]
		n := 1
		for _, list := range [][]v1.NodeSelectorRequirement{t.MatchExpressions, t.MatchFields} {
			for i := range list {
				n += 1 + len(list[i].Values)
			}
		}
		of, _ := last(len(encoded), n)
		of.NodeSelectorTerms = append(of.NodeSelectorTerms, t)
	}
	return out
}

// onNode is the selector of one node.
func onNode(name string) *v1.NodeSelector {
	return &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchFields: []v1.NodeSelectorRequirement{
		{Key: metav1.ObjectNameField, Operator: v1.NodeSelectorOpIn, Values: []string{name}}}}}}
}
