package server

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
)

// shown has what claims shows of pods, by name: "" for those that may be placed.
type shown struct {
	*claims
	last   map[string]string
	times  map[string]int
	attach map[string]api.Resources
	onePod map[string]string // claims of which they say that one pod at a time may use them
}

func newShown() *shown {
	s := &shown{last: map[string]string{}, times: map[string]int{}, attach: map[string]api.Resources{}, onePod: map[string]string{}}
	s.claims = newClaims(api.Rules{}, s.take, nil)
	return s
}

func (s *shown) take(p *api.Pod) {
	s.times[p.Name]++
	s.last[p.Name], s.attach[p.Name], s.onePod[p.Name] = "", p.Class.Attach, strings.Join(api.OnePodClaims(p.Class.Repels), " ")
	if p.Refused != nil {
		s.last[p.Name] = p.Refused.Reason + ": " + p.Refused.Message
	}
}

func (s *shown) expect(t *testing.T, what string, want map[string]string) {
	t.Helper()
	for name, words := range want {
		if got := s.last[name]; (got == "") != (words == "") || !strings.Contains(got, words) {
			t.Errorf("%s: pod %s is refused with %q, want %q", what, name, got, words)
		}
	}
}

// claiming is a pod of ours that uses a claim; age is how long before others it was created.
func claiming(name, claim string, age time.Duration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
		Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, Volumes: []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}},
	}
}

func boundClaim(name string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}}}
	c.Spec.VolumeName, c.Spec.AccessModes = "v-"+name, modes
	return c
}

func volumeOf(claim string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v-" + claim}}
}

func with(p *corev1.Pod, edit func(*corev1.Pod)) *corev1.Pod {
	p = p.DeepCopy()
	edit(p)
	return p
}

// A claim that is for one pod lets those go that wait, once no pod uses it, but of a gang the oldest alone; they are shown again each time.
func TestOnePodClaims(t *testing.T) {
	s := newShown()
	s.volumes().Seen(volumeOf("one"))
	s.claims.claims().Seen(boundClaim("one", corev1.ReadWriteOncePod))
	bind := func(p *corev1.Pod) { p.Spec.NodeName = "n" }
	old, young := claiming("old", "one", time.Hour), claiming("young", "one", 0)
	s.seen(young)
	s.expect(t, "alone", map[string]string{"young": ""})
	s.seen(old)
	s.expect(t, "two that wait", map[string]string{"old": "", "young": ""})
	if a, b := s.onePod["old"], s.onePod["young"]; a != "one" || b != "one" {
		t.Errorf("their claims for one pod are %q and %q", a, b)
	}
	s.seen(with(old, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }))
	s.expect(t, "the older one is being deleted without a node", map[string]string{"young": ""})
	s.seen(old)
	s.seen(with(old, func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }))
	s.expect(t, "one has gates", map[string]string{"young": ""})
	s.seen(with(old, bind))
	s.expect(t, "the older one is bound", map[string]string{"young": "pod old uses it"})
	s.seen(with(old, func(p *corev1.Pod) { bind(p); p.DeletionTimestamp = &metav1.Time{} }))
	s.expect(t, "it is ending", map[string]string{"young": "pod old uses it"})
	s.seen(with(old, func(p *corev1.Pod) { bind(p); p.Status.Phase = corev1.PodSucceeded }))
	s.expect(t, "it has ended", map[string]string{"young": ""})
	stranger := with(claiming("stranger", "one", 2*time.Hour), func(p *corev1.Pod) { p.Spec.SchedulerName = "other" })
	s.seen(stranger)
	s.expect(t, "another scheduler's pod without a node", map[string]string{"young": ""})
	s.seen(with(stranger, bind))
	s.expect(t, "with a node", map[string]string{"young": "pod stranger uses it"})
	s.gone(stranger)
	s.expect(t, "it is gone", map[string]string{"young": ""})
	s.seen(claiming("twin", "one", time.Minute))
	s.expect(t, "another waits", map[string]string{"young": "", "twin": ""})
	s.gone(claiming("twin", "one", time.Minute))
	inGang := func(p *corev1.Pod) { p.Labels = map[string]string{api.LabelPodGroup: "g"} }
	s.seen(with(young, inGang))
	s.seen(with(claiming("twin", "one", time.Minute), inGang))
	s.expect(t, "of one gang", map[string]string{"twin": "", "young": "pod twin, which is older"})
	s.gone(claiming("twin", "one", time.Minute))
	s.expect(t, "the first of the gang is deleted", map[string]string{"young": ""})
	for i := range 10 { // in any order: nobody is judged before all are known
		list := []*corev1.Pod{old, young, with(claiming("a", "one", 2*time.Hour), func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), claiming("b", "one", time.Minute)}
		slices.Reverse(list[i%2 : 2+i%3])
		s.replaced(list, func(pods []*api.Pod) {
			for _, p := range pods {
				s.take(p)
			}
		})
		s.expect(t, "a list", map[string]string{"old": "", "young": "", "b": ""})
	}
	s.seen(with(old, bind))
	s.expect(t, "one is bound", map[string]string{"young": "pod old uses it", "b": "pod old uses it"})
	s.claims.claims().Seen(boundClaim("one", corev1.ReadWriteMany))
	s.expect(t, "made again for many", map[string]string{"young": "", "b": ""})
	s.claims.claims().Seen(boundClaim("one", corev1.ReadWriteOncePod))
	s.expect(t, "and for one", map[string]string{"young": "pod old uses it", "b": "pod old uses it"})
	for _, name := range []string{"old", "young", "b", "a"} {
		s.gone(claiming(name, "one", 0))
	}
	if len(s.usage)+len(s.uses)+len(s.waiting)+len(s.users)+len(s.bound) != 0 {
		t.Errorf("%d claims, %d and %d pods are kept of pods that are gone", len(s.usage), len(s.uses), len(s.waiting))
	}
}

// What a tenant's pods do to a claim for one pod costs a moment, however many they are.
func TestManyPodsOfAOnePodClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var shows atomic.Int32
		c := newClaims(api.Rules{}, func(*api.Pod) { shows.Add(1) }, nil)
		c.volumes().Seen(volumeOf("one"))
		c.claims().Seen(boundClaim("one", corev1.ReadWriteOncePod))
		const pods = 5000
		of := func(i int) *corev1.Pod { return claiming(fmt.Sprint("p", i), "one", time.Duration(pods-i)*time.Hour) }
		began := time.Now()
		for i := range pods {
			c.seen(of(i))
		}
		for i := range 100 { // the oldest goes, a hundred times in 10 s
			c.gone(of(i))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if n := int(shows.Load()); n > 20*pods {
			t.Errorf("%d pods were shown %d times in %v", pods, n, time.Since(began))
		}
	})
}

// That a node limits the volumes of a CSI driver, and that it has to be there, counts as long as a node or its CSIDriver says so.
func TestDrivers(t *testing.T) {
	s := newShown()
	v := volumeOf("data")
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d"}
	s.volumes().Seen(v)
	s.claims.claims().Seen(boundClaim("data"))
	s.seen(claiming("p", "data", 0))
	disk := claiming("disk", "data", 0)
	disk.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{}}
	s.seen(disk)
	s.expect(t, "no limits", map[string]string{"p": "", "disk": ""})
	csiNode := func(name string, limited ...string) *storagev1.CSINode {
		n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "free"}, {Name: "d"}}}}
		for _, d := range limited {
			n.Spec.Drivers = append(n.Spec.Drivers, storagev1.CSINodeDriver{Name: d, Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(25))}})
		}
		return stripCSINode(n)
	}
	s.csiNodes().Seen(csiNode("n1"))
	s.csiNodes().Seen(csiNode("n2", "d", "e"))
	attaches := func(what string, p, disk string) {
		t.Helper()
		if got := fmt.Sprint(s.attach["p"], s.attach["disk"]); got != p+" "+disk {
			t.Errorf("%s: the pods attach %s, not %s %s", what, got, p, disk)
		}
	}
	attaches("a node limits it", "d=1", "")
	times := s.times["p"]
	s.csiNodes().Seen(csiNode("n1", "d"))
	s.csiNodes().Seen(csiNode("n2", "e"))
	if s.times["p"] != times {
		t.Error("a second node that limits it shows the pod again")
	}
	s.csiNodes().Gone(csiNode("n1", "d"))
	attaches("no node limits it any more", "", "")
	s.csiNodes().Replaced([]*storagev1.CSINode{csiNode("n1", "disk.csi.azure.com"), csiNode("n3", "d")}, 0)
	attaches("a list", "d=1", "disk.csi.azure.com=1")
	s.csiNodes().Replaced(nil, 0)
	attaches("an empty list", "", "")
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: storagev1.CSIDriverSpec{PreventPodSchedulingIfMissing: new(true)}}
	s.csiDrivers().Seen(stripCSIDriver(driver))
	attaches("it has to be installed", "d=1", "")
	driver.Spec.PreventPodSchedulingIfMissing = new(false)
	s.csiDrivers().Seen(stripCSIDriver(driver))
	attaches("it has not", "", "")
	driver.Spec.PreventPodSchedulingIfMissing = new(true)
	s.csiDrivers().Replaced([]*storagev1.CSIDriver{driver}, 0)
	s.csiDrivers().Gone(driver)
	attaches("it is gone", "", "")
	if len(s.drivers)+len(s.limited)+len(s.needed) != 0 {
		t.Errorf("%v, %v, %v are kept", s.drivers, s.limited, s.needed)
	}
	// The StorageClass decides what an unbound claim waits for.
	unbound := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("c")}}
	s.claims.claims().Seen(unbound)
	s.expect(t, "unbound", map[string]string{"p": "StorageClass c does not exist"})
	late := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, VolumeBindingMode: &late}
	s.storageClasses().Seen(volume.StripClass(class))
	s.expect(t, "late", map[string]string{"p": "no PersistentVolume of StorageClass c suits it"})
	class.VolumeBindingMode = nil
	s.storageClasses().Replaced([]*storagev1.StorageClass{volume.StripClass(class)}, 0)
	s.expect(t, "at once", map[string]string{"p": "provisioned by StorageClass c"})
	s.storageClasses().Gone(class)
	s.expect(t, "gone", map[string]string{"p": "StorageClass c does not exist"})
}

// A resource of a DeviceClass is refused as long as no node offers it, and the pods that ask for it are shown again, and no others.
func TestDevices(t *testing.T) {
	s := newShown()
	asking := func(name, resource string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{SchedulerName: api.SchedulerName,
			Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceName(resource): api.Quantity("pods", 1)}}}}}}
	}
	node := func(name string, resources ...string) *api.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"cpu": api.Quantity("pods", 1), "example.com/zero": {}}}}
		for _, r := range resources {
			n.Status.Allocatable[corev1.ResourceName(r)] = api.Quantity("pods", 1)
		}
		return api.FromNode(n, nil)
	}
	class := func(name string, resource *string) *resourcev1.DeviceClass {
		return stripDeviceClass(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: resource}})
	}
	const gpu, zero, implied = "example.com/gpu", "example.com/zero", "deviceclass.resource.kubernetes.io/tpu"
	s.seen(asking("gpu", gpu))
	s.seen(asking("zero", zero))
	s.seen(asking("implied", implied))
	s.seen(asking("cpu", "cpu"))
	none := map[string]string{"gpu": "", "zero": "", "implied": "", "cpu": ""}
	s.expect(t, "no DeviceClass", none)
	s.deviceClasses().Seen(class("b", new(gpu)))
	s.deviceClasses().Seen(class("a", new(gpu)))
	s.deviceClasses().Seen(class("z", new(zero)))
	s.deviceClasses().Seen(class("tpu", nil))
	all := map[string]string{"gpu": gpu + " is offered by DeviceClass a,", "zero": "DeviceClass z,", "implied": implied + " is offered by DeviceClass tpu,", "cpu": ""}
	s.expect(t, "DeviceClasses", all)
	s.node(node("n1", gpu))
	s.expect(t, "a node offers one", map[string]string{"gpu": "", "zero": "DeviceClass z", "implied": "DeviceClass tpu"})
	times := s.times["gpu"]
	s.node(node("n1", gpu))
	s.node(node("n2", gpu, implied))
	s.node(node("n1"))
	if s.times["gpu"] != times || s.times["cpu"] != 1 {
		t.Errorf("pods were shown again for nothing: %v", s.times)
	}
	s.expect(t, "another node offers two", map[string]string{"gpu": "", "implied": ""})
	s.setNode("n2", nil)
	s.expect(t, "it is gone", all)
	newer := class("m", new(gpu))
	newer.CreationTimestamp = metav1.NewTime(time.Unix(1700000000, 0))
	s.deviceClasses().Seen(newer)
	s.expect(t, "the newest of several", map[string]string{"gpu": "DeviceClass m,"})
	s.deviceClasses().Gone(newer)
	s.expect(t, "of one age, the first by name", all)
	s.deviceClasses().Gone(class("a", new(gpu)))
	s.expect(t, "one DeviceClass is gone", map[string]string{"gpu": "DeviceClass b,"})
	s.deviceClasses().Seen(class("b", new("example.com/other")))
	s.expect(t, "the other names another resource", map[string]string{"gpu": ""})
	s.deviceClasses().Replaced([]*resourcev1.DeviceClass{class("b", new(gpu))}, 0)
	s.expect(t, "a list", map[string]string{"gpu": "DeviceClass b,", "zero": "", "implied": ""})
	s.seen(with(asking("gpu", gpu), func(p *corev1.Pod) { p.Spec.NodeName = "n" }))
	s.expect(t, "bound", none)
	s.deviceClasses().Replaced(nil, 0)
	for _, name := range []string{"gpu", "zero", "implied", "cpu"} {
		s.gone(asking(name, gpu))
	}
	if len(s.waiting)+len(s.users)+len(s.extended)+len(s.backed)+len(s.offers)+len(s.offered) != 0 {
		t.Error("something is kept of what is gone")
	}
}
