package volume

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"pgregory.net/rapid"

	"basalt.dev/basalt/api"
)

const hostname = api.LabelHostname

// late is a StorageClass with WaitForFirstConsumer.
func late(provisioner string, zones ...string) *storagev1.StorageClass {
	mode := storagev1.VolumeBindingWaitForFirstConsumer
	c := &storagev1.StorageClass{VolumeBindingMode: &mode, Provisioner: provisioner}
	for _, z := range zones {
		c.AllowedTopologies = append(c.AllowedTopologies, v1.TopologySelectorTerm{MatchLabelExpressions: []v1.TopologySelectorLabelRequirement{{Key: "zone", Values: []string{z}}}})
	}
	return c
}

// free is an available volume of class late, on some nodes if any are named.
func free(size string, nodes ...string) *v1.PersistentVolume {
	v := &v1.PersistentVolume{Status: v1.PersistentVolumeStatus{Phase: v1.VolumeAvailable}}
	v.Spec.Capacity = v1.ResourceList{"storage": resource.MustParse(size)}
	v.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadOnlyMany}
	v.Spec.StorageClassName = "late"
	if len(nodes) > 0 {
		v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: hostname, Operator: "In", Values: nodes}}}}}}
	}
	return v
}

// wants is an unbound claim of class late.
func wants(size string, edits ...func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c", UID: "claim"}}
	c.Spec.StorageClassName, c.Spec.AccessModes = new("late"), []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	c.Spec.Resources.Requests = v1.ResourceList{"storage": resource.MustParse(size)}
	for _, e := range edits {
		e(c)
	}
	return c
}

// hosts are three nodes, of which n2 is in zone b.
var hosts = map[string]map[string]string{"n1": {hostname: "n1", "zone": "a"}, "n2": {hostname: "n2", "zone": "b"}, "n3": {hostname: "n3", "zone": "a"}}

// reachable names the nodes that a pod can go to by its volumes, or says why it cannot go anywhere.
func reachable(t *testing.T, p *v1.Pod, all cluster) (string, api.Reach) {
	t.Helper()
	reach, why := Nodes(p, "", all)
	if why != "" {
		return strings.TrimPrefix(why, "spec.volumes[0].persistentVolumeClaim (claim c): "), reach
	}
	s, ok := api.AllOf(reach.Where...)
	if !ok {
		t.Fatal("too many terms")
	}
	var names []string
	for _, name := range api.SortedKeys(hosts) {
		fits := s == nil
		if s != nil {
			fits, _ = nodeaffinity.NewLazyErrorNodeSelector(s).Match(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: hosts[name]}})
		}
		if fits {
			names = append(names, name)
		}
	}
	return strings.Join(names, " "), reach
}

// Where an unbound claim lets its pod run.
func TestUnboundClaims(t *testing.T) {
	const made, byHand = "made.example.com", "kubernetes.io/no-provisioner"
	kept := func(v *v1.PersistentVolume, name string) *v1.PersistentVolume {
		v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: name}
		return v
	}
	edit := func(v *v1.PersistentVolume, f func(*v1.PersistentVolume)) *v1.PersistentVolume { f(v); return v }
	room := func(size, zone string) *storagev1.CSIStorageCapacity {
		q := resource.MustParse(size)
		return &storagev1.CSIStorageCapacity{StorageClassName: "late", Capacity: &q, NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": zone}}}
	}
	selected := func(node string) func(*v1.PersistentVolumeClaim) {
		return func(c *v1.PersistentVolumeClaim) { c.Annotations = map[string]string{SelectedNode: node} }
	}
	var many []string
	for i := range 400 { // terms: with one more entry in each they are more than a pod may have
		many = append(many, fmt.Sprint(i))
	}
	checked := map[string]bool{made: true}
	for what, c := range map[string]struct {
		claim    *v1.PersistentVolumeClaim
		class    *storagev1.StorageClass
		volumes  []*v1.PersistentVolume
		capacity []*storagev1.CSIStorageCapacity
		checked  bool
		want     string
		tie      api.Tie
	}{
		"provisioned anywhere":  {claim: wants("1Gi"), class: late(made), want: "n1 n2 n3"},
		"provisioned in a zone": {claim: wants("1Gi"), class: late(made, "b"), want: "n2", tie: api.ToSome},
		"in one of two zones":   {claim: wants("1Gi"), class: late(made, "a", "b"), want: "n1 n2 n3", tie: api.ToSome},
		"capacity in a zone":    {claim: wants("2Gi"), class: late(made), capacity: []*storagev1.CSIStorageCapacity{room("1Gi", "b"), room("2Gi", "a")}, checked: true, want: "n1 n3", tie: api.ToSome},
		"capacity, not checked": {claim: wants("2Gi"), class: late(made), capacity: []*storagev1.CSIStorageCapacity{room("1Gi", "b")}, want: "n1 n2 n3"},
		"capacity elsewhere":    {claim: wants("2Gi"), class: late(made, "b"), capacity: []*storagev1.CSIStorageCapacity{room("2Gi", "a")}, checked: true, want: "", tie: api.ToSome},
		"no capacity":           {claim: wants("2Gi"), class: late(made), capacity: []*storagev1.CSIStorageCapacity{room("1Gi", "a")}, checked: true, want: "the claim is not bound: no CSIStorageCapacity of StorageClass late has room for a volume of 2Gi"},
		"the largest volume": {claim: wants("2Gi"), class: late(made), capacity: []*storagev1.CSIStorageCapacity{func() *storagev1.CSIStorageCapacity {
			c := room("9Gi", "a")
			c.MaximumVolumeSize = new(resource.MustParse("1Gi"))
			return c
		}()}, checked: true, want: "the claim is not bound: no CSIStorageCapacity"},
		"a volume":                  {claim: wants("1Gi"), class: late(byHand), volumes: []*v1.PersistentVolume{free("1Gi", "n3")}, want: "n3", tie: api.ToSome},
		"volumes on two nodes":      {claim: wants("1Gi"), class: late(byHand), volumes: []*v1.PersistentVolume{free("1Gi", "n3"), free("2Gi", "n1")}, want: "n1 n3", tie: api.ToSome},
		"a volume for any node":     {claim: wants("1Gi"), class: late(byHand), volumes: []*v1.PersistentVolume{free("1Gi", "n3"), free("2Gi")}, want: "n1 n2 n3"},
		"a volume, or provisioned":  {claim: wants("1Gi"), class: late(made, "b"), volumes: []*v1.PersistentVolume{free("1Gi", "n3")}, want: "n2 n3", tie: api.ToSome},
		"too small":                 {claim: wants("2Gi"), class: late(byHand), volumes: []*v1.PersistentVolume{free("1Gi", "n3")}, want: "the claim is not bound: no PersistentVolume of StorageClass late suits it, and the class provisions none"},
		"a volume of another class": {claim: wants("1Gi"), class: late(byHand), volumes: []*v1.PersistentVolume{edit(free("1Gi"), func(v *v1.PersistentVolume) { v.Spec.StorageClassName = "other" })}, want: "the claim is not bound: no PersistentVolume"},
		"a class in an annotation": {claim: wants("1Gi"), class: late(byHand), volumes: []*v1.PersistentVolume{edit(free("1Gi", "n1"), func(v *v1.PersistentVolume) {
			v.Spec.StorageClassName, v.Annotations = "", map[string]string{v1.BetaStorageClassAnnotation: "late"}
		})}, want: "n1", tie: api.ToSome},
		"released":                {claim: wants("1Gi"), class: late(byHand), volumes: []*v1.PersistentVolume{edit(free("1Gi"), func(v *v1.PersistentVolume) { v.Status.Phase = v1.VolumeReleased })}, want: "the claim is not bound: no PersistentVolume"},
		"being deleted":           {claim: wants("1Gi"), class: late(byHand), volumes: []*v1.PersistentVolume{edit(free("1Gi"), func(v *v1.PersistentVolume) { v.DeletionTimestamp = &metav1.Time{} })}, want: "the claim is not bound: no PersistentVolume"},
		"another access mode":     {claim: wants("1Gi", func(c *v1.PersistentVolumeClaim) { c.Spec.AccessModes = append(c.Spec.AccessModes, v1.ReadWriteMany) }), class: late(byHand), volumes: []*v1.PersistentVolume{free("1Gi")}, want: "the claim is not bound: no PersistentVolume"},
		"a block volume":          {claim: wants("1Gi"), class: late(byHand), volumes: []*v1.PersistentVolume{edit(free("1Gi"), func(v *v1.PersistentVolume) { v.Spec.VolumeMode = new(v1.PersistentVolumeBlock) })}, want: "the claim is not bound: no PersistentVolume"},
		"a VolumeAttributesClass": {claim: wants("1Gi", func(c *v1.PersistentVolumeClaim) { c.Spec.VolumeAttributesClassName = new("gold") }), class: late(byHand), volumes: []*v1.PersistentVolume{free("1Gi"), edit(free("1Gi", "n2"), func(v *v1.PersistentVolume) { v.Spec.VolumeAttributesClassName = new("gold") })}, want: "n2", tie: api.ToSome},
		"a selector": {claim: wants("1Gi", func(c *v1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "fast"}}
		}), class: late(byHand), volumes: []*v1.PersistentVolume{free("1Gi"), edit(free("1Gi", "n2"), func(v *v1.PersistentVolume) { v.Labels = map[string]string{"disk": "fast"} })}, want: "n2", tie: api.ToSome},
		"a volume kept for it":           {claim: wants("1Gi"), class: late(made), volumes: []*v1.PersistentVolume{kept(free("1Gi", "n3"), "c"), free("1Gi", "n1")}, want: "n3", tie: api.ToOne},
		"kept, and bound on its way":     {claim: wants("1Gi"), class: late(made), volumes: []*v1.PersistentVolume{edit(kept(free("1Gi", "n3"), "c"), func(v *v1.PersistentVolume) { v.Spec.ClaimRef.UID, v.Status.Phase = "claim", v1.VolumeBound })}, want: "n3", tie: api.ToOne},
		"kept for it, and released":      {claim: wants("1Gi"), class: late(made), volumes: []*v1.PersistentVolume{edit(kept(free("1Gi", "n3"), "c"), func(v *v1.PersistentVolume) { v.Status.Phase = v1.VolumeReleased }), free("1Gi", "n1")}, want: "n3", tie: api.ToOne},
		"kept for it by name, and bound": {claim: wants("1Gi"), class: late(made), volumes: []*v1.PersistentVolume{edit(kept(free("1Gi", "n3"), "c"), func(v *v1.PersistentVolume) { v.Status.Phase = v1.VolumeBound })}, want: "n3", tie: api.ToOne},
		"kept for another, and released": {claim: wants("1Gi"), class: late(byHand), volumes: []*v1.PersistentVolume{edit(kept(free("1Gi", "n3"), "d"), func(v *v1.PersistentVolume) { v.Status.Phase = v1.VolumeReleased })}, want: "the claim is not bound: no PersistentVolume"},
		"kept for a namesake":            {claim: wants("1Gi"), class: late(made), volumes: []*v1.PersistentVolume{edit(kept(free("1Gi", "n3"), "c"), func(v *v1.PersistentVolume) { v.Spec.ClaimRef.UID = "before" })}, want: "n1 n2 n3"},
		"kept for another":               {claim: wants("1Gi"), class: late(byHand), volumes: []*v1.PersistentVolume{kept(free("1Gi", "n3"), "d")}, want: "the claim is not bound: no PersistentVolume"},
		"selected":                       {claim: wants("1Gi", selected("n2")), class: late(made), want: "n2", tie: api.ToOne},
		"selected, without capacity":     {claim: wants("1Gi", selected("n2")), class: late(made), checked: true, want: "n2", tie: api.ToOne},
		"selected in the wrong zone":     {claim: wants("1Gi", selected("n2")), class: late(made, "a"), want: "", tie: api.ToOne},
		"selected, of many topologies":   {claim: wants("1Gi", selected("n2")), class: late(made, many...), want: "n2", tie: api.ToOne},
		"selected, and it is gone":       {claim: wants("1Gi", selected("n9")), class: late(made), want: "n1 n2 n3"},
		"selected for nobody":            {claim: wants("1Gi", selected("n2")), class: late(byHand), want: "the claim is not bound: it asks for a volume on node n2"},
		"selected by a novel":            {claim: wants("1Gi", selected(strings.Repeat("n", 300))), class: late(made), want: "the claim cannot be bound: its annotation volume.kubernetes.io/selected-node is longer"},
		"a selector like a novel": {claim: wants("1Gi", func(c *v1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"k": strings.Repeat("v", 9000)}}
		}), class: late(made), want: "the claim cannot be bound: its selector and access modes have"},
		"an absurd size": {claim: wants("1e3000000000000"), class: late(made), want: "n1 n2 n3"},
	} {
		all := cluster{claims: map[string]*v1.PersistentVolumeClaim{"c": c.claim}, classes: map[string]*storagev1.StorageClass{"late": c.class}, volumes: map[string]*v1.PersistentVolume{},
			capacities: c.capacity, nodes: hosts}
		if c.checked {
			all.checked = checked
		}
		for i, v := range c.volumes {
			v.Name = fmt.Sprint("v", i)
			all.volumes[v.Name] = v
		}
		got, reach := reachable(t, podOf(byClaim), all)
		if refused := strings.HasPrefix(c.want, "the claim"); refused != strings.HasPrefix(got, "the claim") || refused && !strings.HasPrefix(got, c.want) || !refused && got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		} else if reach.Unbound == refused || reach.Tied != c.tie || (reach.Note != "") != (c.tie > 0) {
			t.Errorf("%s: %+v, want tie %d", what, reach, c.tie)
		}
	}
}

// Claims of a pod that ask for the same need a volume each.
func TestUnboundTwins(t *testing.T) {
	all := cluster{claims: map[string]*v1.PersistentVolumeClaim{"c": wants("1Gi"), "d": wants("1Gi")}, classes: map[string]*storagev1.StorageClass{"late": late("kubernetes.io/no-provisioner")}, nodes: hosts,
		volumes: map[string]*v1.PersistentVolume{"v1": free("1Gi", "n1"), "v2": free("1Gi", "n1"), "v3": free("1Gi", "n2")}}
	for name, v := range all.volumes {
		v.Name = name
	}
	other := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "d"}}
	if got, _ := reachable(t, podOf(byClaim, other, byClaim), all); got != "n1" {
		t.Errorf("%s", got)
	}
	if got, _ := reachable(t, podOf(byClaim, byClaim), all); got != "n1 n2" {
		t.Errorf("one claim twice: %s", got)
	}
}

// Claims of a pod that ask for different things do not get one volume, either.
func TestUnboundRivals(t *testing.T) {
	fast := func(v *v1.PersistentVolume) *v1.PersistentVolume {
		v.Labels = map[string]string{"disk": "fast"}
		return v
	}
	picky := func(c *v1.PersistentVolumeClaim) {
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "fast"}}
	}
	other := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "d"}}
	room := func(size, zone string) *storagev1.CSIStorageCapacity {
		return &storagev1.CSIStorageCapacity{StorageClassName: "late", Capacity: new(resource.MustParse(size)), NodeTopology: &metav1.LabelSelector{MatchLabels: map[string]string{"zone": zone}}}
	}
	dull := func(c *v1.PersistentVolumeClaim) {
		c.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "disk", Operator: metav1.LabelSelectorOpDoesNotExist}}}
	}
	nowhere := fast(free("2Gi"))
	nowhere.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{}}}}
	const byHand, made = "kubernetes.io/no-provisioner", "csi.example.com"
	for what, c := range map[string]struct {
		c, d     *v1.PersistentVolumeClaim
		by       string
		volumes  []*v1.PersistentVolume
		capacity []*storagev1.CSIStorageCapacity
		want     string
	}{
		"one volume for both":        {wants("1Gi"), wants("2Gi"), byHand, []*v1.PersistentVolume{free("2Gi", "n1"), free("1Gi", "n2"), free("2Gi", "n2")}, nil, "n2"},
		"a place with nothing else":  {wants("1Gi"), wants("2Gi"), byHand, []*v1.PersistentVolume{free("2Gi", "n1")}, nil, "no node has PersistentVolumes of StorageClass late for all 2 claims of the pod"},
		"one that goes anywhere":     {wants("1Gi"), wants("2Gi"), byHand, []*v1.PersistentVolume{free("2Gi", "n1"), free("1Gi")}, nil, "n1"},
		"the smaller claim is first": {wants("1Gi"), wants("2Gi", picky), byHand, []*v1.PersistentVolume{fast(free("2Gi", "n1")), free("3Gi", "n1"), fast(free("2Gi", "n2")), free("1Gi", "n2")}, nil, "n2"},
		"each has one there":         {wants("1Gi", dull), wants("2Gi", picky), byHand, []*v1.PersistentVolume{free("1Gi", "n1", "n2"), fast(free("2Gi", "n2", "n3"))}, nil, "n2"},
		"one can be used nowhere":    {wants("1Gi"), wants("2Gi", picky), byHand, []*v1.PersistentVolume{free("1Gi", "n1", "n2"), nowhere}, nil, "no node has PersistentVolumes of StorageClass late for all 2 claims of the pod"},
		"one place and a made one":   {wants("1Gi", picky), wants("2Gi"), made, []*v1.PersistentVolume{fast(free("1Gi", "n1", "n2")), free("2Gi", "n3")}, []*storagev1.CSIStorageCapacity{room("2Gi", "a")}, "n1 n3"},
		"the other is provisioned":   {wants("1Gi"), wants("2Gi"), made, []*v1.PersistentVolume{free("2Gi", "n1")}, nil, "n1 n2 n3"},
		"the smaller takes it":       {wants("1Gi"), wants("2Gi"), made, []*v1.PersistentVolume{free("2Gi", "n1"), free("2Gi", "n2")}, []*storagev1.CSIStorageCapacity{room("1Gi", "a")}, "no CSIStorageCapacity of StorageClass late has room for a volume of 2Gi"},
		"the larger is provisioned":  {wants("1Gi"), wants("2Gi"), made, []*v1.PersistentVolume{free("1Gi", "n1")}, []*storagev1.CSIStorageCapacity{room("2Gi", "a")}, "n1 n3"},
		"the larger has a volume":    {wants("1Gi", picky), wants("2Gi"), made, []*v1.PersistentVolume{free("2Gi", "n1"), free("2Gi", "n2")}, []*storagev1.CSIStorageCapacity{room("1Gi", "a")}, "n1"},
	} {
		all := cluster{claims: map[string]*v1.PersistentVolumeClaim{"c": c.c, "d": c.d}, classes: map[string]*storagev1.StorageClass{"late": late(c.by)}, nodes: hosts,
			volumes: map[string]*v1.PersistentVolume{}, capacities: c.capacity}
		if c.capacity != nil {
			all.checked = map[string]bool{made: true}
		}
		for i, v := range c.volumes {
			v.Name = fmt.Sprint("v", i)
			all.volumes[v.Name] = v
		}
		if got, _ := reachable(t, podOf(byClaim, other), all); got != c.want && !(strings.HasPrefix(c.want, "no ") && strings.Contains(got, c.want)) {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// Where there are more nodes than one pod may name, claims are offered parts of them, all of which are offered to somebody.
func TestManyVolumes(t *testing.T) {
	all := cluster{claims: map[string]*v1.PersistentVolumeClaim{}, classes: map[string]*storagev1.StorageClass{"late": late("kubernetes.io/no-provisioner")}, volumes: map[string]*v1.PersistentVolume{}}
	const nodes = 3000
	for i := range nodes {
		v := free("1Gi", fmt.Sprintf("node-%d.example.com", i))
		if i%3 == 0 { // not a plain list
			v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions = append(v.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions, v1.NodeSelectorRequirement{Key: "x", Operator: "DoesNotExist"})
		}
		v.Name = fmt.Sprint("v", i)
		all.volumes[v.Name] = v
	}
	claim := ReadClaim(wants("1Gi"))
	choice := Choose([]*Claim{&claim}, all)
	offered := map[string]int{}
	for _, s := range choice.Where {
		one, ok := api.AllOf(s, &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "k", Operator: "Exists"}}}}})
		if !ok || one.Size() > api.MaxConstraintBytes/2 {
			t.Fatalf("a part is too large: %v", ok)
		}
		for _, term := range s.NodeSelectorTerms {
			for _, name := range term.MatchExpressions[0].Values {
				offered[name]++
			}
		}
	}
	if len(offered) != nodes || len(choice.Where) < 2 || len(choice.Where) > 64 {
		t.Errorf("%d nodes in %d parts", len(offered), len(choice.Where))
	}
}

// A pod is offered each part in turn, and the pods of a gang the same one in every other turn. Its own constraints decide what parts are made of.
func TestParts(t *testing.T) {
	all := cluster{claims: map[string]*v1.PersistentVolumeClaim{"c": wants("1Gi")}, classes: map[string]*storagev1.StorageClass{"late": late("kubernetes.io/no-provisioner")},
		volumes: map[string]*v1.PersistentVolume{}, nodes: map[string]map[string]string{}}
	for i := range 1000 {
		name := fmt.Sprintf("node-%04d.example.com", i)
		v := free("1Gi", name)
		v.Name = fmt.Sprint("v", i)
		all.volumes[v.Name] = v
		all.nodes[name] = map[string]string{hostname: name, "pool": map[bool]string{true: "gpu", false: "cpu"}[i%100 == 0]}
	}
	cached := Choose([]*Claim{new(ReadClaim(wants("1Gi")))}, all)
	parts := len(cached.Where)
	offered := func(uid, group string, turn uint64, selector map[string]string) string {
		t.Helper()
		all.turn = turn
		p := podOf(byClaim)
		p.UID, p.Spec.NodeSelector = types.UID(uid), selector
		reach, why := Nodes(p, group, chosen{all, cached})
		if why != "" || !reach.Part || len(reach.Where) != 1 {
			t.Fatalf("%q, %+v", why, reach)
		}
		return encode(reach.Where[0])
	}
	for _, group := range []string{"", "gang"} {
		seen := map[string]bool{}
		for turn := range uint64(2 * parts) {
			seen[offered("a", group, turn, nil)] = true
		}
		if parts < 3 || len(seen) != parts {
			t.Errorf("group %q: of %d parts %d are offered", group, parts, len(seen))
		}
	}
	together, apart := map[string]bool{}, map[string]bool{}
	for i := range 20 {
		together[offered(fmt.Sprint("p", i), "gang", 4, nil)] = true
		apart[offered(fmt.Sprint("p", i), "gang", 5, nil)] = true
	}
	if len(together) != 1 || len(apart) != parts {
		t.Errorf("the pods of a gang are offered %d parts, and %d in the next turn", len(together), len(apart))
	}
	gpu := map[string]bool{}
	for turn := range uint64(parts) {
		gpu[offered("a", "", turn, map[string]string{"pool": "gpu"})] = true
	}
	for s := range gpu {
		if len(gpu) != 1 || strings.Count(s, "example.com") != 10 {
			t.Errorf("10 nodes of a pool are in %d parts: %q", len(gpu), s)
		}
	}
}

// chosen is a cluster with one choice.
type chosen struct {
	cluster
	choice *Choice
}

func (c chosen) Choose([]*Claim) *Choice       { return c.choice }
func (c chosen) Kept(string, string) []*Volume { return nil }

// Suits decides as FindMatchingVolume does.
func TestSuits(t *testing.T) {
	pick := func(t *rapid.T, what string, values ...string) string { return rapid.SampledFrom(values).Draw(t, what) }
	optional := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	modeOf := func(s string) *v1.PersistentVolumeMode {
		if s == "" {
			return nil
		}
		return new(v1.PersistentVolumeMode(s))
	}
	rapid.Check(t, func(t *rapid.T) {
		access := func(what string) (out []v1.PersistentVolumeAccessMode) {
			for _, m := range []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadOnlyMany} {
				if rapid.Bool().Draw(t, what+string(m)) {
					out = append(out, m)
				}
			}
			return out
		}
		v := free(pick(t, "capacity", "1Gi", "2Gi", "3Gi"))
		v.Name, v.Status.Phase = "v", v1.PersistentVolumePhase(pick(t, "phase", "Available", "Available", "Pending", "Released"))
		v.Spec.AccessModes, v.Spec.VolumeMode, v.Spec.VolumeAttributesClassName = access("has"), modeOf(pick(t, "mode", "", "Filesystem", "Block")), optional(pick(t, "attributes", "", "gold"))
		v.Labels = map[string]string{"disk": pick(t, "disk", "fast", "slow")}
		if name := pick(t, "kept for", "", "", "c", "d"); name != "" {
			v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: name, UID: types.UID(pick(t, "uid", "", "claim", "other"))}
		}
		if v.Status.Phase == v1.VolumeReleased && v.Spec.ClaimRef != nil && v.Spec.ClaimRef.UID != "" {
			v.Spec.ClaimRef.UID = ""
		}
		c := wants(pick(t, "size", "1Gi", "2Gi", "3Gi"), func(c *v1.PersistentVolumeClaim) {
			c.Spec.AccessModes, c.Spec.VolumeMode, c.Spec.VolumeAttributesClassName = access("wants"), modeOf(pick(t, "wanted mode", "", "Filesystem", "Block")), optional(pick(t, "wanted attributes", "", "gold"))
			c.Spec.StorageClassName = new(pick(t, "class", "late", "late", "late", "other"))
			switch pick(t, "selector", "none", "empty", "fast", "not slow") {
			case "empty":
				c.Spec.Selector = &metav1.LabelSelector{}
			case "fast":
				c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "fast"}}
			case "not slow":
				c.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "disk", Operator: "NotIn", Values: []string{"slow"}}}}
			}
		})
		read, claim := ReadVolume(v), ReadClaim(c)
		found, err := storagehelpers.FindMatchingVolume(c, []*v1.PersistentVolume{v}, &v1.Node{}, nil, true, true)
		want := err == nil && found != nil && v.Spec.StorageClassName == *c.Spec.StorageClassName && read.offer != nil
		if got := read.Suits(claim.Ask("ns", "c")); got != want {
			t.Fatalf("%v, want %v: claim %+v, volume %+v", got, want, c.Spec, v)
		}
	})
}

// A claim's selector is read once, however many volumes it is compared with, and not at all if none suits it otherwise.
func TestSelectorsAreReadOnce(t *testing.T) {
	long := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "disk", Operator: "NotIn"}}}
	for i := range 1000 {
		long.MatchExpressions[0].Values = append(long.MatchExpressions[0].Values, fmt.Sprint("d", i))
	}
	for _, size := range []string{"1Gi", "2Gi"} {
		read := ReadClaim(wants(size, func(c *v1.PersistentVolumeClaim) { c.Spec.Selector = long }))
		ask, v := read.Ask("ns", "c"), ReadVolume(free("1Gi"))
		if read.Refused != "" || v.Suits(ask) != (size == "1Gi") || (ask.selector != nil) != (size == "1Gi") {
			t.Fatalf("%s: %q, selector %v", size, read.Refused, ask.selector)
		}
		if n := testing.AllocsPerRun(100, func() { v.Suits(ask) }); n > 0 {
			t.Errorf("%s: a comparison allocates %v times", size, n)
		}
	}
}

// The unbound claims of a pod together have a bound.
func TestManyLongRequests(t *testing.T) {
	all := cluster{claims: map[string]*v1.PersistentVolumeClaim{}, classes: map[string]*storagev1.StorageClass{"late": late("made.example.com")}}
	var sources []v1.VolumeSource
	for i := range 9 {
		name := fmt.Sprint("c", i)
		all.claims[name] = wants("1Gi", func(c *v1.PersistentVolumeClaim) {
			c.Spec.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "k", Operator: "In", Values: slices.Repeat([]string{strings.Repeat("v", 60)}, 128)}}}
		})
		sources = append(sources, v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
	}
	if _, why := Nodes(podOf(sources[:7]...), "", all); why != "" {
		t.Errorf("seven: %s", why)
	}
	if _, why := Nodes(podOf(sources...), "", all); !strings.HasPrefix(why, "spec.volumes: ") || !strings.HasSuffix(why, "the limit is 65536") {
		t.Errorf("nine: %q", why)
	}
}

// A pod says which of its claims need volumes that are there, and how many suit each: not those of a class that provisions them, nor one for
// which a volume is kept.
func TestScarce(t *testing.T) {
	const made, byHand = "made.example.com", "kubernetes.io/no-provisioner"
	other := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "d"}}
	kept := free("1Gi", "n2")
	kept.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "c"}
	for what, c := range map[string]struct {
		c, d    *v1.PersistentVolumeClaim
		by      string
		volumes []*v1.PersistentVolume
		want    string
	}{
		"two alike":          {wants("1Gi"), wants("1Gi"), byHand, []*v1.PersistentVolume{free("1Gi", "n1"), free("2Gi", "n1"), free("2Gi", "n2")}, "c 3, d 3"},
		"of different sizes": {wants("2Gi"), wants("1Gi"), byHand, []*v1.PersistentVolume{free("1Gi", "n1"), free("2Gi", "n1"), free("2Gi", "n2")}, "c 2, d 3"},
		"one is kept":        {wants("1Gi"), wants("1Gi"), byHand, []*v1.PersistentVolume{kept, free("2Gi", "n2")}, "d 1"},
		"provisioned":        {wants("1Gi"), wants("1Gi"), made, []*v1.PersistentVolume{free("1Gi", "n1")}, ""},
		"both are bound":     {claim(nil), claim(nil), byHand, nil, ""},
	} {
		all := cluster{claims: map[string]*v1.PersistentVolumeClaim{"c": c.c, "d": c.d}, classes: map[string]*storagev1.StorageClass{"late": late(c.by)}, nodes: hosts,
			volumes: map[string]*v1.PersistentVolume{"v": free("1Gi", "n1")}}
		for i, v := range c.volumes {
			v.Name = fmt.Sprint("v", i)
			all.volumes[v.Name] = v
		}
		if c.by == byHand && len(c.volumes) > 0 {
			delete(all.volumes, "v")
		}
		reach, why := Nodes(podOf(byClaim, other), "", all)
		if why != "" {
			t.Errorf("%s: %s", what, why)
		}
		got := ""
		for _, s := range reach.Scarce {
			got += fmt.Sprintf(", %s %d", s.Claim, s.Free)
			if s.Class != "late" || s.Asks == "" {
				t.Errorf("%s: %+v", what, s)
			}
		}
		if got = strings.TrimPrefix(got, ", "); got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
}

// What is to be done for a claim whose pod goes to node n1.
func TestSteps(t *testing.T) {
	const made, byHand = "made.example.com", "kubernetes.io/no-provisioner"
	kept := func(v *v1.PersistentVolume) *v1.PersistentVolume {
		v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "c"}
		return v
	}
	selected := func(node string) *v1.PersistentVolumeClaim {
		return wants("1Gi", func(c *v1.PersistentVolumeClaim) { c.Annotations = map[string]string{SelectedNode: node} })
	}
	bound := func(v *v1.PersistentVolume) map[string]*v1.PersistentVolume {
		return map[string]*v1.PersistentVolume{"v": v}
	}
	one := func(v *v1.PersistentVolume) map[string]*v1.PersistentVolume {
		v.Name = "v0"
		return map[string]*v1.PersistentVolume{"v0": v}
	}
	for what, c := range map[string]struct {
		claim   *v1.PersistentVolumeClaim
		class   *storagev1.StorageClass
		volumes map[string]*v1.PersistentVolume
		own     Own
		shared  bool
		taken   string
		want    Step // Why: what it begins with
	}{
		"not seen yet":                 {own: Own{Unseen: true}, want: Step{Action: Wait}},
		"none":                         {want: Step{Action: Fail, Why: "claim c: the claim does not exist any more"}},
		"bound there":                  {claim: claim(nil), volumes: bound(free("1Gi", "n1")), want: Step{Action: Done}},
		"bound elsewhere":              {claim: claim(nil), volumes: bound(free("1Gi", "n2")), want: Step{Action: Fail, Why: "claim c: its volume v cannot be used on node n1"}},
		"its volume is not seen":       {claim: claim(nil), want: Step{Action: Wait}},
		"not bound to it yet":          {claim: claim(func(c *v1.PersistentVolumeClaim) { c.Annotations = nil }), want: Step{Action: Wait}},
		"being deleted":                {claim: wants("1Gi", func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }), class: late(made), want: Step{Action: Fail, Why: "claim c: the claim is being deleted"}},
		"replaced":                     {claim: wants("1Gi"), class: late(made), own: Own{Replaced: true}, want: Step{Action: Fail, Why: "claim c: the claim was deleted, and another"}},
		"to be provisioned":            {claim: wants("1Gi"), class: late(made), want: Step{Action: Select}},
		"not in this zone":             {claim: wants("1Gi"), class: late(made, "b"), want: Step{Action: Fail, Why: "claim c: StorageClass late cannot provision a volume for node n1"}},
		"a write on its way":           {claim: wants("1Gi"), class: late(made), own: Own{Pending: true}, want: Step{Action: Wait}},
		"being provisioned":            {claim: selected("n1"), class: late(made), own: Own{Selected: true}, want: Step{Action: Wait}},
		"by a predecessor":             {claim: selected("n1"), class: late(made), want: Step{Action: Wait}},
		"the provisioner gave up":      {claim: wants("1Gi"), class: late(made), own: Own{Selected: true}, want: Step{Action: Fail, Why: "claim c: no volume could be provisioned for node n1"}},
		"for another node":             {claim: selected("n2"), class: late(made), want: Step{Action: Fail, Why: "claim c: a volume is being provisioned for node n2"}},
		"for the node of another pod":  {claim: selected("n2"), class: late(made), shared: true, want: Step{Action: Wait}},
		"for a node that is gone":      {claim: selected("n9"), class: late(made), want: Step{Action: Select}},
		"a volume there":               {claim: wants("1Gi"), class: late(made), volumes: one(free("1Gi", "n1")), want: Step{Action: Keep, Volume: "v0"}},
		"a volume that is taken":       {claim: wants("1Gi"), class: late(byHand), volumes: one(free("1Gi", "n1")), taken: "v0", want: Step{Action: Fail, Why: "claim c: no PersistentVolume of StorageClass late that suits it is free on node n1"}},
		"a volume elsewhere":           {claim: wants("1Gi"), class: late(byHand), volumes: one(free("1Gi", "n2")), want: Step{Action: Fail, Why: "claim c: no PersistentVolume"}},
		"a volume elsewhere, or a new": {claim: wants("1Gi"), class: late(made), volumes: one(free("1Gi", "n2")), want: Step{Action: Select}},
		"kept for it":                  {claim: wants("1Gi"), class: late(made), volumes: one(kept(free("1Gi", "n1"))), own: Own{Volume: "v0"}, want: Step{Action: Wait}},
		"kept for it by others":        {claim: wants("1Gi"), class: late(made), volumes: one(kept(free("1Gi", "n1"))), want: Step{Action: Wait}},
		"kept for it elsewhere":        {claim: wants("1Gi"), class: late(made), volumes: one(kept(free("1Gi", "n2"))), want: Step{Action: Fail, Why: "claim c: volume v0 is kept for it, and cannot be used on node n1"}},
		"taken from it":                {claim: wants("1Gi"), class: late(made), volumes: one(free("1Gi", "n1")), own: Own{Volume: "v0"}, want: Step{Action: Fail, Why: "claim c: its volume v0 was taken from it"}},
		"its volume is gone":           {claim: wants("1Gi"), class: late(made), own: Own{Volume: "v0"}, want: Step{Action: Fail, Why: "claim c: its volume v0 does not exist any more"}},
		"no class any more":            {claim: wants("1Gi"), want: Step{Action: Fail, Why: "claim c: its StorageClass late does not exist any more"}},
	} {
		all := cluster{claims: map[string]*v1.PersistentVolumeClaim{}, classes: map[string]*storagev1.StorageClass{}, volumes: c.volumes, nodes: hosts}
		if c.claim != nil {
			all.claims["c"] = c.claim
		}
		if c.class != nil {
			all.classes["late"] = c.class
		}
		got := Steps(podOf(byClaim, byClaim), "n1", hosts["n1"], func(string) Own { return c.own }, func(string) bool { return c.shared }, func(v string) bool { return v == c.taken }, all)
		if len(got) != 1 || got[0].Action != c.want.Action || got[0].Volume != c.want.Volume || !strings.HasPrefix(got[0].Why, c.want.Why) || (got[0].Why == "") != (c.want.Why == "") {
			t.Errorf("%s: %+v, want %+v", what, got, c.want)
		}
	}
}

// The smallest claim gets the smallest volume that suits it, and each its own.
func TestStepsChooseVolumes(t *testing.T) {
	all := cluster{claims: map[string]*v1.PersistentVolumeClaim{"c": wants("5Gi"), "d": wants("1Gi"), "e": wants("1Gi")}, classes: map[string]*storagev1.StorageClass{"late": late("kubernetes.io/no-provisioner")}, nodes: hosts,
		volumes: map[string]*v1.PersistentVolume{"large": free("9Gi", "n1"), "small": free("1Gi", "n1"), "middle": free("5Gi", "n1", "n2"), "other": free("1Gi", "n2")}}
	for name, v := range all.volumes {
		v.Name = name
	}
	of := func(name string) v1.VolumeSource {
		return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	no := func(string) bool { return false }
	var got []string
	for _, s := range Steps(podOf(of("c"), of("d"), of("e")), "n1", hosts["n1"], func(string) Own { return Own{} }, no, no, all) {
		got = append(got, s.Claim+"="+s.Volume)
	}
	if want := []string{"c=large", "d=small", "e=middle"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// What is stripped of unbound claims, volumes, classes and capacities is what nobody reads.
func TestStrippingUnbound(t *testing.T) {
	v := free("1Gi", "n1")
	v.Name, v.Labels = "v", map[string]string{"disk": "fast", "zone": "a"}
	v.Spec.ClaimRef = &v1.ObjectReference{Namespace: "ns", Name: "c", UID: "u", ResourceVersion: "7"}
	for _, phase := range []v1.PersistentVolumePhase{v1.VolumeAvailable, v1.VolumeBound, v1.VolumePending} {
		v.Status.Phase = phase
		one, two := ReadVolume(v), ReadVolume(StripVolume(v))
		if !reflect.DeepEqual(one, two) || one.For().Name != "c" {
			t.Errorf("%s: %+v, stripped %+v", phase, one, two)
		}
	}
	v.Labels["novel"] = strings.Repeat("x", 20_000)
	v.Status.Phase, v.Spec.ClaimRef = v1.VolumeAvailable, nil
	if _, is := ReadVolume(v).Offered(); is || StripVolume(v).Size() > 2000 {
		t.Error("a volume with labels beyond the bounds is offered")
	}
	c := wants("1Gi", func(c *v1.PersistentVolumeClaim) {
		c.Annotations = map[string]string{SelectedNode: "n1", "novel": strings.Repeat("x", 1000)}
		c.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"disk": "fast"}}
	})
	if one, two := ReadClaim(c), ReadClaim(StripClaim(c)); one != two || one.Selected != "n1" || StripClaim(c).Size() > 500 {
		t.Errorf("%+v, stripped %+v", one, two)
	}
	class := late("made.example.com", "a", "b")
	class.Parameters = map[string]string{"k": "v"}
	if one, two := ReadClass(class), ReadClass(StripClass(class)); !one.Equal(two) || StripClass(class).Parameters != nil {
		t.Errorf("%+v, stripped %+v", one, two)
	}
	for range 2000 {
		class.AllowedTopologies = append(class.AllowedTopologies, class.AllowedTopologies[0])
	}
	if ReadClass(class).Refused == "" {
		t.Error("topologies beyond the bounds are read")
	}
}
