package volume

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/csi-translation-lib/plugins"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"basalt.dev/basalt/api"
)

// cluster is a Cluster of objects as the API server has them.
type cluster struct {
	claims  map[string]*v1.PersistentVolumeClaim // of namespace ns
	volumes map[string]*v1.PersistentVolume
	classes map[string]*storagev1.StorageClass
	limited map[string]bool
	users   map[string][]*User

	capacities []*storagev1.CSIStorageCapacity
	checked    map[string]bool
	nodes      map[string]map[string]string // labels
	marks      map[string]bool              // in-tree plugins of which nodes are to be marked
	turn       uint64
}

func (c cluster) Claim(namespace, name string) (Claim, bool) {
	o := c.claims[name]
	if o == nil || namespace != "ns" {
		return Claim{}, false
	}
	return ReadClaim(StripClaim(o)), true
}

func (c cluster) Volume(name string) *Volume {
	if o := c.volumes[name]; o != nil {
		return ReadVolume(StripVolume(o))
	}
	return nil
}

func (c cluster) Class(name string) *Class {
	if o := c.classes[name]; o != nil {
		return ReadClass(StripClass(o))
	}
	return nil
}

func (c cluster) Kept(namespace, name string) (out []*Volume) {
	for _, n := range api.SortedKeys(c.volumes) {
		if v := c.Volume(n); v.For() == (types.NamespacedName{Namespace: namespace, Name: name}) {
			out = append(out, v)
		}
	}
	return out
}

func (c cluster) Offers(class string) (out []*Volume) {
	for _, n := range api.SortedKeys(c.volumes) {
		if of, is := c.Volume(n).Offered(); is && of == class {
			out = append(out, c.Volume(n))
		}
	}
	return out
}

func (c cluster) Capacities(class string) (out []*Capacity) {
	for _, o := range c.capacities {
		if r := ReadCapacity(StripCapacity(o)); r != nil && r.Class == class {
			out = append(out, r)
		}
	}
	return out
}

func (c cluster) CapacityChecked(driver string) bool { return c.checked[driver] }
func (c cluster) Node(name string) bool              { return c.nodes[name] != nil }
func (c cluster) Choose(claims []*Claim) *Choice {
	return Choose(claims, c)
}

func (c cluster) Turn() uint64 { return c.turn }

func (c cluster) Parts(p *v1.Pod, choice *Choice) []*v1.NodeSelector {
	own := nodeaffinity.GetRequiredNodeAffinity(p)
	return choice.Within(func(yield func(map[string]string) bool) {
		for name, labels := range c.nodes {
			if ok, _ := own.Match(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}); ok && !yield(labels) {
				return
			}
		}
	})
}

func (c cluster) Limited(driver string) bool { return c.limited[driver] }
func (c cluster) Mark(plugin string) {
	if c.marks != nil {
		c.marks[plugin] = true
	}
}

func (c cluster) Usage(namespace, name string) *Usage {
	u := &Usage{}
	for _, p := range c.users[name] {
		u.Add(p)
	}
	return u
}

func claim(edit func(*v1.PersistentVolumeClaim)) *v1.PersistentVolumeClaim {
	c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{bindCompleted: "yes"}}}
	c.Spec.VolumeName = "v"
	if edit != nil {
		edit(c)
	}
	return c
}

func unboundOf(class string) *v1.PersistentVolumeClaim {
	return claim(func(c *v1.PersistentVolumeClaim) {
		c.Spec.VolumeName, c.Annotations, c.Spec.StorageClassName = "", nil, &class
	})
}

func ownedBy(uid types.UID) *v1.PersistentVolumeClaim {
	return claim(func(c *v1.PersistentVolumeClaim) {
		c.OwnerReferences = []metav1.OwnerReference{{UID: "other"}, {UID: uid, Controller: new(true)}}
	})
}

var (
	byClaim     = v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}
	byEphemeral = v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}
)

func podOf(sources ...v1.VolumeSource) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "uid"}}
	for i, s := range sources {
		p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: fmt.Sprint("v", i), VolumeSource: s})
	}
	return p
}

// Claims and volumes that cannot be used, or not yet, and the words for it.
func TestRefusals(t *testing.T) {
	plain := map[string]*v1.PersistentVolume{"v": {}}
	of := func(s v1.PersistentVolumeSource) map[string]*v1.PersistentVolume {
		return map[string]*v1.PersistentVolume{"v": {Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: s}}}
	}
	wait, now := storagev1.VolumeBindingWaitForFirstConsumer, storagev1.VolumeBindingImmediate
	classes := map[string]*storagev1.StorageClass{"late": {VolumeBindingMode: &wait, Provisioner: "kubernetes.io/no-provisioner"}, "now": {VolumeBindingMode: &now}}
	const byName, ephemeral = "spec.volumes[0].persistentVolumeClaim (claim c): ", "spec.volumes[0].ephemeral (claim p-v0): "
	for what, c := range map[string]struct {
		source  v1.VolumeSource
		claim   *v1.PersistentVolumeClaim
		volumes map[string]*v1.PersistentVolume
		want    string // "" if it can be used; else what the words begin with
	}{
		"bound":                         {byClaim, claim(nil), plain, ""},
		"no claim":                      {byClaim, nil, plain, byName + "the claim does not exist"},
		"no ephemeral claim":            {byEphemeral, nil, plain, ephemeral + "the claim is not created yet"},
		"ephemeral":                     {byEphemeral, ownedBy("uid"), plain, ""},
		"ephemeral of another pod":      {byEphemeral, ownedBy("other"), plain, ephemeral + "the claim was not made for this pod"},
		"ephemeral of nobody":           {byEphemeral, claim(nil), plain, ephemeral + "the claim was not made for this pod"},
		"named, though another owns it": {byClaim, ownedBy("other"), plain, ""},
		"no volume":                     {byClaim, claim(nil), nil, byName + "its volume v does not exist"},
		"lost":                          {byClaim, claim(func(c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimLost }), plain, byName + "the claim is lost"},
		"bound, with an old status":     {byClaim, claim(func(c *v1.PersistentVolumeClaim) { c.Status.Phase = v1.ClaimPending }), plain, ""},
		"being deleted":                 {byClaim, claim(func(c *v1.PersistentVolumeClaim) { c.DeletionTimestamp = &metav1.Time{} }), plain, byName + "the claim is being deleted"},
		"bound by its status alone":     {byClaim, claim(func(c *v1.PersistentVolumeClaim) { c.Annotations, c.Status.Phase = nil, v1.ClaimBound }), plain, byName + "the claim is not bound to its volume v yet"},
		"unbound, Immediate":            {byClaim, unboundOf("now"), plain, byName + "the claim is not bound: it waits for its volume to be provisioned by StorageClass now"},
		"unbound, WaitForFirstConsumer": {byClaim, unboundOf("late"), plain, byName + "the claim is not bound: no PersistentVolume of StorageClass late suits it, and the class provisions none"},
		"unbound, StorageClass is gone": {byClaim, unboundOf("none"), plain, byName + "the claim is not bound, and its StorageClass none does not exist"},
		"unbound, no StorageClass":      {byClaim, unboundOf(""), plain, byName + "the claim is not bound, and names no StorageClass"},
		"unbound, StorageClass annotated": {byClaim, claim(func(c *v1.PersistentVolumeClaim) {
			c.Spec.VolumeName, c.Annotations, c.Spec.StorageClassName = "", map[string]string{v1.BetaStorageClassAnnotation: "late"}, new("now")
		}), plain, byName + "the claim is not bound: no PersistentVolume of StorageClass late suits it"},
		"a CSI driver":               {byClaim, claim(nil), of(v1.PersistentVolumeSource{CSI: &v1.CSIPersistentVolumeSource{Driver: "many.example.com"}}), ""},
		"NFS":                        {byClaim, claim(nil), of(v1.PersistentVolumeSource{NFS: &v1.NFSVolumeSource{}}), ""},
		"in-tree GCE":                {byClaim, claim(nil), of(v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}), ""},
		"in-tree GCE without a name": {byClaim, claim(nil), of(v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{}}), byName + "its volume v: spec.gcePersistentDisk.pdName is empty"},
		"in-tree EBS":                {byClaim, claim(nil), of(v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://zone/vol-1"}}), ""},
		"in-tree EBS of no volume": {byClaim, claim(nil), of(v1.PersistentVolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://zone/disk-1"}}),
			byName + "its volume v: spec.awsElasticBlockStore.volumeID: it cannot be translated for the CSI driver ebs.csi.aws.com, which serves it: "},
		"in-tree GCE in zones of two regions": {byClaim, claim(nil), map[string]*v1.PersistentVolume{"v": {ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{v1.LabelTopologyZone: "us-east1-a__us-east2-a"}},
			Spec: v1.PersistentVolumeSpec{PersistentVolumeSource: v1.PersistentVolumeSource{GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}}}},
			byName + "its volume v: metadata.labels: it cannot be translated for the CSI driver pd.csi.storage.gke.io, which serves it: failed to get region from zones"},
		"in-tree Azure": {byClaim, claim(nil), of(v1.PersistentVolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{DataDiskURI: "d"}}), ""},
		"in-tree Azure, not managed": {byClaim, claim(nil), of(v1.PersistentVolumeSource{AzureDisk: &v1.AzureDiskVolumeSource{DataDiskURI: "d", Kind: new(v1.AzureSharedBlobDisk)}}),
			byName + "its volume v: spec.azureDisk.kind: it cannot be translated for the CSI driver disk.csi.azure.com, which serves it: kind(Shared) is not supported"},
		"in-tree Cinder":            {byClaim, claim(nil), of(v1.PersistentVolumeSource{Cinder: &v1.CinderPersistentVolumeSource{VolumeID: "d"}}), ""},
		"in-tree Portworx":          {byClaim, claim(nil), of(v1.PersistentVolumeSource{PortworxVolume: &v1.PortworxVolumeSource{VolumeID: "d"}}), ""},
		"a disk of no volume":       {v1.VolumeSource{AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://disk"}}, nil, nil, "spec.volumes[0].awsElasticBlockStore.volumeID: it cannot be translated for the CSI driver ebs.csi.aws.com"},
		"in-tree vSphere":           {byClaim, claim(nil), of(v1.PersistentVolumeSource{VsphereVolume: &v1.VsphereVirtualDiskVolumeSource{}}), ""},
		"a disk":                    {v1.VolumeSource{Cinder: &v1.CinderVolumeSource{}}, nil, nil, ""},
		"what nobody has to attach": {v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}, nil, nil, ""},
	} {
		all := cluster{volumes: c.volumes, classes: classes, claims: map[string]*v1.PersistentVolumeClaim{"c": c.claim, "p-v0": c.claim}}
		reach, why := Nodes(podOf(c.source), "", all)
		if (why == "") != (c.want == "") || !strings.HasPrefix(why, c.want) || len(reach.Where) > 0 || reach.Unbound {
			t.Errorf("%s: %q, want %q; %d selectors", what, why, c.want, len(reach.Where))
		}
	}
}

// Where volumes with zone labels let a pod run: by the labels of the node.
func TestZones(t *testing.T) {
	const betaZone, betaRegion, zone, region = v1.LabelFailureDomainBetaZone, v1.LabelFailureDomainBetaRegion, v1.LabelTopologyZone, v1.LabelTopologyRegion
	type labels = map[string]string
	for _, c := range []struct {
		volumes []labels
		node    labels
		want    bool
	}{
		{[]labels{{zone: "a"}}, labels{zone: "a"}, true},
		{[]labels{{zone: "a"}}, labels{zone: "b"}, false},
		{[]labels{{zone: "a"}}, labels{}, true},               // a cluster of one zone
		{[]labels{{zone: "a"}}, labels{"other": "b"}, true},   //
		{[]labels{{zone: "a"}}, labels{region: "r"}, false},   // it has one of the four labels, but not this one
		{[]labels{{zone: "a"}}, labels{betaZone: "a"}, false}, // the older label of a node says nothing about the newer of a volume
		{[]labels{{betaZone: "a"}}, labels{betaZone: "a"}, true},
		{[]labels{{betaZone: "a"}}, labels{zone: "a"}, true}, // the newer one stands in
		{[]labels{{betaZone: "a"}}, labels{zone: "b"}, false},
		{[]labels{{betaZone: "a"}}, labels{betaZone: "b", zone: "a"}, false}, // but only where the older is missing
		{[]labels{{betaZone: "a"}}, labels{betaZone: "a", zone: "b"}, true},
		{[]labels{{betaRegion: "r"}}, labels{region: "r"}, true},
		{[]labels{{betaRegion: "r"}}, labels{region: "s"}, false},
		{[]labels{{betaRegion: "r", betaZone: "a"}}, labels{region: "r", betaZone: "a"}, true},
		{[]labels{{betaRegion: "r", betaZone: "a"}}, labels{betaRegion: "r", zone: "a"}, true},
		{[]labels{{betaRegion: "r", betaZone: "a"}}, labels{region: "r", zone: "b"}, false},
		{[]labels{{zone: "a__b"}}, labels{zone: "b"}, true},
		{[]labels{{zone: "a__b"}}, labels{zone: "c"}, false},
		{[]labels{{zone: "a__b"}}, labels{zone: "a__b"}, false},
		{[]labels{{zone: "a__"}}, labels{zone: "c"}, true}, // cannot be read: as good as none
		{[]labels{{zone: "__"}}, labels{zone: "c"}, true},
		{[]labels{{zone: ""}}, labels{zone: "c"}, true},
		{[]labels{{zone: "a___b"}}, labels{zone: "a"}, true}, // a and _b, which no node can have
		{[]labels{{zone: "a___b"}}, labels{zone: "b"}, false},
		{[]labels{{zone: "a"}, {zone: "a"}}, labels{zone: "a"}, true},
		{[]labels{{zone: "a__b"}, {zone: "b__c"}}, labels{zone: "b"}, true},
		{[]labels{{zone: "a__b"}, {zone: "b__c"}}, labels{zone: "a"}, false},
		{[]labels{{zone: "a"}, {zone: "b"}}, labels{zone: "a"}, false},
		{[]labels{{zone: "a"}, {zone: "b"}}, labels{}, true},
		{[]labels{{zone: "a"}, {betaZone: "b"}}, labels{zone: "a", betaZone: "b"}, true},
		{[]labels{{zone: "a"}, {}}, labels{zone: "a"}, true},
	} {
		all := cluster{volumes: map[string]*v1.PersistentVolume{}, claims: map[string]*v1.PersistentVolumeClaim{}}
		var sources []v1.VolumeSource
		for i, l := range c.volumes {
			name := fmt.Sprint("c", i)
			all.claims[name] = claim(func(p *v1.PersistentVolumeClaim) { p.Spec.VolumeName = name })
			all.volumes[name] = &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: l}}
			sources = append(sources, v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
		}
		if got := allows(t, podOf(sources...), all, c.node); got != c.want {
			t.Errorf("volumes with labels %v, a node with %v: %v", c.volumes, c.node, got)
		}
		if want := volumeZone(c.volumes, c.node); want != c.want {
			t.Errorf("volumes with labels %v, a node with %v: kube-scheduler's rule says %v", c.volumes, c.node, want)
		}
	}
	ephemeral := cluster{claims: map[string]*v1.PersistentVolumeClaim{"p-v0": ownedBy("uid")}, volumes: map[string]*v1.PersistentVolume{"v": {ObjectMeta: metav1.ObjectMeta{Labels: labels{zone: "a"}}}}}
	if !allows(t, podOf(byEphemeral), ephemeral, labels{zone: "b"}) {
		t.Error("kube-scheduler does not look at the zone of an ephemeral volume")
	}
}

// volumeZone is kube-scheduler's rule, written down in the way of a loop over labels.
func volumeZone(volumes []map[string]string, node map[string]string) bool {
	any := false
	for _, l := range zoneLabels {
		_, has := node[l]
		any = any || has
	}
	if !any {
		return true
	}
	for _, v := range volumes {
	labels:
		for i, l := range zoneLabels {
			value, has := v[l]
			if !has {
				continue
			}
			set := strings.Split(value, "__")
			for _, part := range set {
				if part == "" {
					continue labels
				}
			}
			mine, has := node[l]
			if !has && i < 2 {
				mine, has = node[zoneLabels[i+2]]
			}
			found := false
			for _, part := range set {
				found = found || has && part == mine
			}
			if !found {
				return false
			}
		}
	}
	return true
}

// allows reports whether a node with some labels matches all of the selectors.
func allows(t interface{ Fatal(...any) }, p *v1.Pod, c Cluster, labels map[string]string) bool {
	reach, why := Nodes(p, "", c)
	if why != "" {
		t.Fatal(why)
	}
	all, ok := api.AllOf(reach.Where...)
	if !ok {
		t.Fatal("too many terms")
	}
	if all == nil {
		return true
	}
	got, _ := nodeaffinity.NewLazyErrorNodeSelector(all).Match(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", Labels: labels}})
	return got
}

// Random zone labels, and random node affinity, mean what they mean to kube-scheduler.
func TestVolumesAsKubeSchedulerDoes(t *testing.T) {
	zoneLabel := rapid.MapOfN(rapid.SampledFrom(zoneLabels[:]), rapid.SampledFrom([]string{"a", "b", "a__b", "a__", "b___a", ""}), 0, 3)
	nodeLabel := rapid.MapOfN(rapid.SampledFrom(append(zoneLabels[:], "x", plugins.AWSEBSTopologyKey, plugins.CinderTopologyKey, plugins.GCEPDTopologyKey)), rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3)
	requirement := rapid.Custom(func(t *rapid.T) v1.NodeSelectorRequirement {
		return v1.NodeSelectorRequirement{Key: rapid.SampledFrom(append(zoneLabels[1:3], "x")).Draw(t, "key"),
			Operator: rapid.SampledFrom([]v1.NodeSelectorOperator{"In", "NotIn", "Exists", "DoesNotExist", "Bad"}).Draw(t, "op"),
			Values:   rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b"}), 0, 2).Draw(t, "values")}
	})
	term := rapid.Custom(func(t *rapid.T) v1.NodeSelectorTerm {
		out := v1.NodeSelectorTerm{MatchExpressions: rapid.SliceOfN(requirement, 0, 2).Draw(t, "expressions")}
		if rapid.Bool().Draw(t, "fields") {
			out.MatchFields = []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: rapid.SampledFrom([]v1.NodeSelectorOperator{"In", "NotIn", "Exists"}).Draw(t, "field op"),
				Values: rapid.SliceOfN(rapid.SampledFrom([]string{"n", "m"}), 1, 2).Draw(t, "names")}}
		}
		return out
	})
	affinity := rapid.Custom(func(t *rapid.T) *v1.VolumeNodeAffinity {
		switch rapid.IntRange(0, 3).Draw(t, "affinity") {
		case 0:
			return nil
		case 1:
			return &v1.VolumeNodeAffinity{}
		}
		return &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: rapid.SliceOfN(term, 0, 3).Draw(t, "terms")}}
	})
	source := rapid.SampledFrom([]v1.PersistentVolumeSource{{NFS: &v1.NFSVolumeSource{}}, {AWSElasticBlockStore: &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "vol-1"}},
		{Cinder: &v1.CinderPersistentVolumeSource{VolumeID: "d"}}, {GCEPersistentDisk: &v1.GCEPersistentDiskVolumeSource{PDName: "d"}}, {AzureDisk: &v1.AzureDiskVolumeSource{DataDiskURI: "d"}}})
	fits := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		all := cluster{volumes: map[string]*v1.PersistentVolume{}, claims: map[string]*v1.PersistentVolumeClaim{}, marks: map[string]bool{}}
		var sources []v1.VolumeSource
		var zoned []map[string]string
		node := nodeLabel.Draw(t, "node")
		migrated := rapid.Bool().Draw(t, "migrated")
		want := true
		for i := range rapid.IntRange(1, 3).Draw(t, "volumes") {
			name := fmt.Sprint("c", i)
			pv := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Labels: zoneLabel.Draw(t, "labels")}, Spec: v1.PersistentVolumeSpec{NodeAffinity: affinity.Draw(t, "affinity"), PersistentVolumeSource: source.Draw(t, "source")}}
			seen := pv
			if translator.IsPVMigratable(pv) {
				translated, err := translator.TranslateInTreePVToCSI(klog.Logger{}, pv)
				if err != nil {
					t.Skip("a volume that cannot be translated")
				}
				if migrated {
					seen = translated
				}
			}
			all.claims[name] = claim(func(p *v1.PersistentVolumeClaim) { p.Spec.VolumeName = name })
			all.volumes[name] = pv
			zoned = append(zoned, pv.Labels)
			sources = append(sources, v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}})
			want = want && storagehelpers.CheckNodeAffinity(seen, node) == nil
		}
		want = want && volumeZone(zoned, node)
		fits[want]++
		p := podOf(sources...)
		if _, why := Nodes(p, "", all); why != "" {
			t.Fatal(why)
		}
		labels := node
		if !migrated {
			labels = api.WithMarks(node, api.SortedKeys(all.marks))
		}
		if got := allows(t, p, all, labels); got != want {
			t.Fatalf("a node with %v: %v, want %v", labels, got, want)
		}
	})
	if fits[true] < 10 || fits[false] < 10 {
		t.Errorf("random volumes fit a node %d times, and did not %d times: too few to show anything", fits[true], fits[false])
	}
}

// Nobody goes as long as a pod has the claim; of those that wait any may, but one of a gang.
func TestOnePodAtATime(t *testing.T) {
	at := func(name string, d time.Duration, placed bool, group string) *User {
		return &User{UID: types.UID(name), Name: name, Created: time.Unix(1e9, 0).Add(d), Placed: placed, Group: group}
	}
	me := func(d time.Duration) *User { return at("uid", d, false, "gang") }
	for what, c := range map[string]struct {
		users []*User
		want  string
	}{
		"nobody else":                        {[]*User{me(0)}, ""},
		"a pod with a node":                  {[]*User{me(0), at("q", time.Hour, true, "")}, "the claim is ReadWriteOncePod, and pod q uses it"},
		"itself with a node":                 {[]*User{at("uid", 0, true, "")}, ""},
		"itself and another with a node":     {[]*User{at("uid", 0, true, ""), at("a", 1, true, "")}, "the claim is ReadWriteOncePod, and pod a uses it"},
		"others that wait":                   {[]*User{me(0), at("q", -time.Hour, false, ""), at("r", time.Hour, false, "other")}, ""},
		"an older pod of its gang":           {[]*User{me(0), at("q", -time.Hour, false, "gang")}, "the claim is ReadWriteOncePod, and pod q, which is older, waits for it, too; they are of one gang, and can never run together"},
		"a younger pod of its gang":          {[]*User{me(0), at("q", time.Hour, false, "gang")}, ""},
		"one of its gang of the same second": {[]*User{me(0), at("a", 0, false, "gang")}, "the claim is ReadWriteOncePod, and pod a, which is older, waits for it, too; they are of one gang, and can never run together"},
		"a pod of its gang with a node":      {[]*User{me(0), at("q", 0, true, "gang")}, "the claim is ReadWriteOncePod, and pod q uses it; they are of one gang"},
	} {
		all := cluster{volumes: map[string]*v1.PersistentVolume{"v": {}}, users: map[string][]*User{"c": c.users, "p-v0": c.users}, claims: map[string]*v1.PersistentVolumeClaim{}}
		all.claims["c"] = claim(func(p *v1.PersistentVolumeClaim) {
			p.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadWriteOncePod}
		})
		_, why := Nodes(podOf(byClaim), "gang", all)
		why = strings.TrimPrefix(why, "spec.volumes[0].persistentVolumeClaim (claim c): ")
		if (why == "") != (c.want == "") || !strings.HasPrefix(why, c.want) || strings.Contains(why, "gang") != strings.Contains(c.want, "gang") {
			t.Errorf("%s: %q, want %q", what, why, c.want)
		}
		all.claims["c"] = claim(func(p *v1.PersistentVolumeClaim) {
			p.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce, v1.ReadWriteMany}
		})
		all.claims["p-v0"] = ownedBy("uid")
		all.claims["p-v0"].Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
		for _, s := range []v1.VolumeSource{byClaim, byEphemeral} {
			if _, why := Nodes(podOf(s), "gang", all); why != "" {
				t.Errorf("%s, of a claim that may be shared: %q", what, why)
			}
		}
	}
}

// What is stripped is what nobody reads, and a node affinity beyond the bounds is words.
func TestStripping(t *testing.T) {
	wide := &v1.PersistentVolume{Spec: v1.PersistentVolumeSpec{NodeAffinity: &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{}}}}
	for i := range 400 {
		wide.Spec.NodeAffinity.Required.NodeSelectorTerms = append(wide.Spec.NodeAffinity.Required.NodeSelectorTerms, v1.NodeSelectorTerm{
			MatchExpressions: []v1.NodeSelectorRequirement{{Key: "k", Operator: "In", Values: []string{fmt.Sprint(i)}}}})
	}
	long := wide.DeepCopy()
	long.Spec.NodeAffinity.Required.NodeSelectorTerms = long.Spec.NodeAffinity.Required.NodeSelectorTerms[:1]
	long.Spec.NodeAffinity.Required.NodeSelectorTerms[0].MatchExpressions[0].Values[0] = strings.Repeat("x", 40_000)
	for what, v := range map[string]*v1.PersistentVolume{"entries": wide, "bytes": long} {
		small := StripVolume(v)
		if got, want := ReadVolume(small), ReadVolume(v); !reflect.DeepEqual(got, want) || !strings.Contains(got.Refused, what) || small.Size() > 300 {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
	}
}

// Whatever a volume or a claim holds, it reduces to the same when it was stripped, written and read.
func FuzzVolume(f *testing.F) {
	v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v", Labels: map[string]string{v1.LabelTopologyZone: "a__b", v1.LabelFailureDomainBetaRegion: "r"}}}
	v.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "d"}
	v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{
		MatchExpressions: []v1.NodeSelectorRequirement{{Key: "k", Operator: "In", Values: []string{"a"}}},
		MatchFields:      []v1.NodeSelectorRequirement{{Key: "metadata.name", Operator: "In", Values: []string{"n"}}}}}}}
	c := ownedBy("uid")
	c.Spec.AccessModes, c.Status.Phase = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}, v1.ClaimLost
	inTree := v.DeepCopy()
	inTree.Spec.CSI, inTree.Spec.AWSElasticBlockStore = nil, &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws://a/vol-1"}
	for _, o := range []interface{ Marshal() ([]byte, error) }{v, c, inTree} {
		b, err := o.Marshal()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, c := &v1.PersistentVolume{}, &v1.PersistentVolumeClaim{}
		if len(b) > 50_000 {
			return
		}
		if v.Unmarshal(b) == nil {
			b, err := StripVolume(v).Marshal()
			small := &v1.PersistentVolume{}
			if err != nil || small.Unmarshal(b) != nil {
				t.Fatal(err)
			}
			one, two := ReadVolume(v), ReadVolume(small)
			if !reflect.DeepEqual(one, two) || !one.Equal(two) {
				t.Fatalf("%+v, stripped %+v", one, two)
			}
			all := cluster{claims: map[string]*v1.PersistentVolumeClaim{"c": claim(nil)}, volumes: map[string]*v1.PersistentVolume{"v": v}}
			if reach, why := Nodes(podOf(byClaim), "", all); why == "" {
				if _, ok := api.AllOf(reach.Where...); !ok && len(reach.Where) == 1 {
					t.Fatal("a volume within its bounds is too large for a pod that asks for nothing else")
				}
			}
		}
		if c.Unmarshal(b) == nil {
			b, err := StripClaim(c).Marshal()
			small := &v1.PersistentVolumeClaim{}
			if err != nil || small.Unmarshal(b) != nil {
				t.Fatal(err)
			}
			if one, two := ReadClaim(c), ReadClaim(small); one != two {
				t.Fatalf("%+v, stripped %+v", one, two)
			}
		}
	})
}
