package volumes

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
)

// shown has what is shown of pods, by name: "" for those that may be placed.
type shown struct {
	*world
	last   map[string]string
	times  map[string]int
	attach map[string]api.Resources
	onePod map[string]string // claims of which they say that one pod at a time may use them
}

func newShown() (*shown, *world) {
	s := &shown{last: map[string]string{}, times: map[string]int{}, attach: map[string]api.Resources{},
		onePod: map[string]string{}}
	s.world = newWorld(s.take)
	return s, s.world
}

func (s *shown) take(p *api.Pod) {
	s.times[p.Name]++
	s.last[p.Name], s.attach[p.Name], s.onePod[p.Name] = "", p.Class.Attach,
		strings.Join(api.OnePodClaims(p.Class.Repels), " ")
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
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name),
			CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
		Spec: corev1.PodSpec{SchedulerName: api.SchedulerName, Volumes: []corev1.Volume{{Name: "v",
			VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}},
	}
}

func boundClaim(name string, modes ...corev1.PersistentVolumeAccessMode) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
		Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}}}
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

// A claim that is for one pod lets those go that wait, once no pod uses it, but of a gang the oldest alone; they are
// shown again each time.
func TestOnePodClaims(t *testing.T) {
	s, w := newShown()
	see(w, volumeOf("one"))
	see(w, boundClaim("one", corev1.ReadWriteOncePod))
	bind := func(p *corev1.Pod) { p.Spec.NodeName = "n" }
	old, young := claiming("old", "one", time.Hour), claiming("young", "one", 0)
	see(w, young)
	s.expect(t, "alone", map[string]string{"young": ""})
	see(w, old)
	s.expect(t, "two that wait", map[string]string{"old": "", "young": ""})
	if a, b := s.onePod["old"], s.onePod["young"]; a != "one" || b != "one" {
		t.Errorf("their claims for one pod are %q and %q", a, b)
	}
	see(w, with(old, func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} }))
	s.expect(t, "the older one is being deleted without a node", map[string]string{"young": ""})
	see(w, old)
	see(w, with(old, func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} }))
	s.expect(t, "one has gates", map[string]string{"young": ""})
	see(w, with(old, bind))
	s.expect(t, "the older one is bound", map[string]string{"young": "pod old uses it"})
	see(w, with(old, func(p *corev1.Pod) { bind(p); p.DeletionTimestamp = &metav1.Time{} }))
	s.expect(t, "it is ending", map[string]string{"young": "pod old uses it"})
	see(w, with(old, func(p *corev1.Pod) { bind(p); p.Status.Phase = corev1.PodSucceeded }))
	s.expect(t, "it has ended", map[string]string{"young": ""})
	stranger := with(claiming("stranger", "one", 2*time.Hour), func(p *corev1.Pod) { p.Spec.SchedulerName = "other" })
	see(w, stranger)
	s.expect(t, "another scheduler's pod without a node", map[string]string{"young": ""})
	see(w, with(stranger, bind))
	s.expect(t, "with a node", map[string]string{"young": "pod stranger uses it"})
	lose(w, stranger)
	s.expect(t, "it is gone", map[string]string{"young": ""})
	see(w, claiming("twin", "one", time.Minute))
	s.expect(t, "another waits", map[string]string{"young": "", "twin": ""})
	lose(w, claiming("twin", "one", time.Minute))
	inGang := func(p *corev1.Pod) { p.Labels = map[string]string{api.LabelPodGroup: "g"} }
	see(w, with(young, inGang))
	see(w, with(claiming("twin", "one", time.Minute), inGang))
	s.expect(t, "of one gang", map[string]string{"twin": "", "young": "pod twin, which is older"})
	lose(w, claiming("twin", "one", time.Minute))
	s.expect(t, "the first of the gang is deleted", map[string]string{"young": ""})
	for i := range 10 { // in any order: nobody is judged before all are known
		pods := []*corev1.Pod{old, young, with(claiming("a", "one", 2*time.Hour),
			func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), claiming("b", "one", time.Minute)}
		slices.Reverse(pods[i%2 : 2+i%3])
		list(w, pods...)
		s.expect(t, "a list", map[string]string{"old": "", "young": "", "b": ""})
	}
	see(w, with(old, bind))
	s.expect(t, "one is bound", map[string]string{"young": "pod old uses it", "b": "pod old uses it"})
	see(w, boundClaim("one", corev1.ReadWriteMany))
	s.expect(t, "made again for many", map[string]string{"young": "", "b": ""})
	see(w, boundClaim("one", corev1.ReadWriteOncePod))
	s.expect(t, "and for one", map[string]string{"young": "pod old uses it", "b": "pod old uses it"})
	for _, name := range []string{"old", "young", "b", "a"} {
		lose(w, claiming(name, "one", 0))
	}
	if len(s.usage)+len(s.uses)+len(s.waits)+len(s.users)+len(s.bound) != 0 {
		t.Errorf("%d claims, %d and %d pods are kept of pods that are gone", len(s.usage), len(s.uses), len(s.waits))
	}
}

// What a tenant's pods do to a claim for one pod costs a moment, however many they are.
func TestManyPodsOfAOnePodClaim(t *testing.T) {
	shows := 0
	w := newWorld(func(*api.Pod) { shows++ })
	see(w, volumeOf("one"))
	see(w, boundClaim("one", corev1.ReadWriteOncePod))
	const pods = 5000
	of := func(i int) *corev1.Pod { return claiming(fmt.Sprint("p", i), "one", time.Duration(pods-i)*time.Hour) }
	for i := range pods {
		see(w, of(i))
	}
	for i := range 100 { // the oldest goes, a hundred times in 10 s
		lose(w, of(i))
		w.pass(100 * time.Millisecond)
	}
	w.pass(5 * time.Second)
	if shows > 20*pods {
		t.Errorf("%d pods were shown %d times", pods, shows)
	}
}

// That a node limits the volumes of a CSI driver, and that it has to be there, counts as long as a node or its
// CSIDriver says so.
func TestDrivers(t *testing.T) {
	s, w := newShown()
	v := volumeOf("data")
	v.Spec.CSI = &corev1.CSIPersistentVolumeSource{Driver: "d"}
	see(w, v)
	see(w, boundClaim("data"))
	see(w, claiming("p", "data", 0))
	disk := claiming("disk", "data", 0)
	disk.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{AzureDisk: &corev1.AzureDiskVolumeSource{}}
	see(w, disk)
	s.expect(t, "no limits", map[string]string{"p": "", "disk": ""})
	csiNode := func(name string, limited ...string) *storagev1.CSINode {
		n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: storagev1.CSINodeSpec{
			Drivers: []storagev1.CSINodeDriver{{Name: "free"}, {Name: "d"}}}}
		for _, d := range limited {
			n.Spec.Drivers = append(n.Spec.Drivers, storagev1.CSINodeDriver{Name: d,
				Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(25))}})
		}
		return StripCSINode(n)
	}
	see(w, csiNode("n1"))
	see(w, csiNode("n2", "d", "e"))
	attaches := func(what string, p, disk string) {
		t.Helper()
		if got := fmt.Sprint(s.attach["p"], s.attach["disk"]); got != p+" "+disk {
			t.Errorf("%s: the pods attach %s, not %s %s", what, got, p, disk)
		}
	}
	attaches("a node limits it", "d=1", "")
	times := s.times["p"]
	see(w, csiNode("n1", "d"))
	see(w, csiNode("n2", "e"))
	if s.times["p"] != times {
		t.Error("a second node that limits it shows the pod again")
	}
	lose(w, csiNode("n1", "d"))
	attaches("no node limits it any more", "", "")
	list(w, []*storagev1.CSINode{csiNode("n1", "disk.csi.azure.com"), csiNode("n3", "d")}...)
	attaches("a list", "d=1", "disk.csi.azure.com=1")
	list[*storagev1.CSINode](w)
	attaches("an empty list", "", "")
	driver := &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: storagev1.CSIDriverSpec{
		PreventPodSchedulingIfMissing: new(true)}}
	see(w, StripCSIDriver(driver))
	attaches("it has to be installed", "d=1", "")
	driver.Spec.PreventPodSchedulingIfMissing = new(false)
	see(w, StripCSIDriver(driver))
	attaches("it has not", "", "")
	driver.Spec.PreventPodSchedulingIfMissing = new(true)
	list(w, []*storagev1.CSIDriver{driver}...)
	lose(w, driver)
	attaches("it is gone", "", "")
	if len(s.drivers)+len(s.limited)+len(s.needed) != 0 {
		t.Errorf("%v, %v, %v are kept", s.drivers, s.limited, s.needed)
	}
	// The StorageClass decides what an unbound claim waits for.
	unbound := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: new("c")}}
	see(w, unbound)
	s.expect(t, "unbound", map[string]string{"p": "StorageClass c does not exist"})
	late := storagev1.VolumeBindingWaitForFirstConsumer
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "c"}, VolumeBindingMode: &late}
	see(w, volume.StripClass(class))
	s.expect(t, "late", map[string]string{"p": "no PersistentVolume of StorageClass c suits it"})
	class.VolumeBindingMode = nil
	list(w, []*storagev1.StorageClass{volume.StripClass(class)}...)
	s.expect(t, "at once", map[string]string{"p": "provisioned by StorageClass c"})
	lose(w, class)
	s.expect(t, "gone", map[string]string{"p": "StorageClass c does not exist"})
}

// A resource of a DeviceClass is refused as long as no node offers it, and the pods that ask for it are shown again,
// and no others.
func TestDevices(t *testing.T) {
	s, w := newShown()
	asking := func(name, resource string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID(name)},
			Spec: corev1.PodSpec{SchedulerName: api.SchedulerName,
				Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceName(resource): api.Quantity("pods", 1)}}}}}}
	}
	node := func(name string, resources ...string) *api.Node {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{"cpu": api.Quantity("pods", 1), "example.com/zero": {}}}}
		for _, r := range resources {
			n.Status.Allocatable[corev1.ResourceName(r)] = api.Quantity("pods", 1)
		}
		return api.FromNode(n, nil)
	}
	class := func(name string, resource *string) *resourcev1.DeviceClass {
		return StripDeviceClass(&resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: resourcev1.DeviceClassSpec{ExtendedResourceName: resource}})
	}
	const gpu, zero, implied = "example.com/gpu", "example.com/zero", "deviceclass.resource.kubernetes.io/tpu"
	see(w, asking("gpu", gpu))
	see(w, asking("zero", zero))
	see(w, asking("implied", implied))
	see(w, asking("cpu", "cpu"))
	none := map[string]string{"gpu": "", "zero": "", "implied": "", "cpu": ""}
	s.expect(t, "no DeviceClass", none)
	see(w, class("b", new(gpu)))
	see(w, class("a", new(gpu)))
	see(w, class("z", new(zero)))
	see(w, class("tpu", nil))
	all := map[string]string{"gpu": gpu + " is offered by DeviceClass a,", "zero": "DeviceClass z,", "implied": implied +
		" is offered by DeviceClass tpu,", "cpu": ""}
	s.expect(t, "DeviceClasses", all)
	seeNode(w, node("n1", gpu))
	s.expect(t, "a node offers one", map[string]string{"gpu": "", "zero": "DeviceClass z", "implied": "DeviceClass tpu"})
	times := s.times["gpu"]
	seeNode(w, node("n1", gpu))
	seeNode(w, node("n2", gpu, implied))
	seeNode(w, node("n1"))
	if s.times["gpu"] != times || s.times["cpu"] != 1 {
		t.Errorf("pods were shown again for nothing: %v", s.times)
	}
	s.expect(t, "another node offers two", map[string]string{"gpu": "", "implied": ""})
	loseNode(w, "n2")
	s.expect(t, "it is gone", all)
	newer := class("m", new(gpu))
	newer.CreationTimestamp = metav1.NewTime(time.Unix(1700000000, 0))
	see(w, newer)
	s.expect(t, "the newest of several", map[string]string{"gpu": "DeviceClass m,"})
	lose(w, newer)
	s.expect(t, "of one age, the first by name", all)
	lose(w, class("a", new(gpu)))
	s.expect(t, "one DeviceClass is gone", map[string]string{"gpu": "DeviceClass b,"})
	see(w, class("b", new("example.com/other")))
	s.expect(t, "the other names another resource", map[string]string{"gpu": ""})
	list(w, []*resourcev1.DeviceClass{class("b", new(gpu))}...)
	s.expect(t, "a list", map[string]string{"gpu": "DeviceClass b,", "zero": "", "implied": ""})
	see(w, with(asking("gpu", gpu), func(p *corev1.Pod) { p.Spec.NodeName = "n" }))
	s.expect(t, "bound", none)
	list[*resourcev1.DeviceClass](w)
	for _, name := range []string{"gpu", "zero", "implied", "cpu"} {
		lose(w, asking(name, gpu))
	}
	if len(s.waits)+len(s.users)+len(s.extended)+len(s.backed)+len(s.offers)+len(s.devices.offered) != 0 {
		t.Error("something is kept of what is gone")
	}
}
