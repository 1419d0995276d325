package server

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/shard/event"
)

// storageWorld is an API server with claims and volumes, and a shard that watches it. Writes are answered at once, and shown when show is
// called, or a little later with lag.
type storageWorld struct {
	t       *testing.T
	c       *claims
	mu      sync.Mutex
	version int
	claims  map[string]*corev1.PersistentVolumeClaim
	volumes map[string]*corev1.PersistentVolume
	writes  []string // that were made
	answers []event.VolumesBound
	refuse  error // of the next write
	lag     time.Duration
	last    *api.Pod
}

func newStorageWorld(t *testing.T, provisioner string) *storageWorld {
	w := &storageWorld{t: t, version: 10, claims: map[string]*corev1.PersistentVolumeClaim{}, volumes: map[string]*corev1.PersistentVolume{}, lag: time.Millisecond}
	w.c = newClaims(api.Rules{}, func(p *api.Pod) { w.last = p }, nil)
	w.c.writer = w
	late := storagev1.VolumeBindingWaitForFirstConsumer
	w.c.storageClasses().Seen(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: provisioner, VolumeBindingMode: &late})
	for _, n := range []string{"n1", "n2"} {
		w.c.node(&api.Node{Name: n, Labels: map[string]string{api.LabelHostname: n}})
	}
	return w
}

func (w *storageWorld) next() string { w.version++; return strconv.Itoa(w.version) }

// claim makes or changes a claim, and shows it.
func (w *storageWorld) claim(name string, edit func(*corev1.PersistentVolumeClaim)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setClaim(name, edit)
}

func (w *storageWorld) setClaim(name string, edit func(*corev1.PersistentVolumeClaim)) {
	c := w.claims[name]
	if c == nil {
		c = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("late"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}}}}
	}
	c = c.DeepCopy()
	if edit != nil {
		edit(c)
	}
	c.ResourceVersion = w.next()
	w.claims[name] = c
	w.later(func() { w.c.claims().Seen(volume.StripClaim(c)) })
}

func (w *storageWorld) volume(name, node string, edit func(*corev1.PersistentVolume)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setVolume(name, node, edit)
}

func (w *storageWorld) setVolume(name, node string, edit func(*corev1.PersistentVolume)) {
	v := w.volumes[name]
	if v == nil {
		v = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}, Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable}}
		v.Spec.Capacity, v.Spec.AccessModes, v.Spec.StorageClassName = corev1.ResourceList{"storage": resource.MustParse("1Gi")}, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, "late"
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.LabelHostname, Operator: "In", Values: []string{node}}}}}}}
	}
	v = v.DeepCopy()
	if edit != nil {
		edit(v)
	}
	v.ResourceVersion = w.next()
	w.volumes[name] = v
	w.later(func() { w.c.volumes().Seen(volume.StripVolume(v)) })
}

func (w *storageWorld) later(show func()) { time.AfterFunc(w.lag, show) }

// bind completes the binding of a claim, as the volume controller does.
func (w *storageWorld) bind(claim, name, node string) {
	w.volume(name, node, func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef, v.Status.Phase = &corev1.ObjectReference{Namespace: "ns", Name: claim, UID: types.UID("uid-" + claim)}, corev1.VolumeBound
	})
	w.claim(claim, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = name
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, "pv.kubernetes.io/bind-completed", "yes")
	})
}

// call answers a write a moment later.
func (w *storageWorld) call(what string, do func() (string, error), done func(string, error)) {
	go func() {
		time.Sleep(time.Millisecond)
		w.mu.Lock()
		err := w.refuse
		w.refuse = nil
		version := ""
		if err == nil {
			version, err = do()
		}
		if err == nil {
			w.writes = append(w.writes, what)
		} else {
			w.writes = append(w.writes, what+" refused")
		}
		w.mu.Unlock()
		done(version, err)
	}()
}

var conflict = apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumeclaims"}, "c", errors.New("another version"))

func (w *storageWorld) selectNode(claim kube.Object, node string, done func(string, error)) {
	w.call(fmt.Sprintf("select %s for %q", claim.Name, node), func() (string, error) {
		c := w.claims[claim.Name]
		if c == nil || string(c.UID) != claim.UID || c.ResourceVersion != claim.Version {
			return "", conflict
		}
		w.setClaim(claim.Name, func(c *corev1.PersistentVolumeClaim) {
			if delete(c.Annotations, volume.SelectedNode); node != "" {
				metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.SelectedNode, node)
			}
		})
		return w.claims[claim.Name].ResourceVersion, nil
	}, done)
}

func (w *storageWorld) keepVolume(o, claim kube.Object, done func(string, error)) {
	w.call(fmt.Sprintf("keep %s for %s", o.Name, claim.Name), func() (string, error) {
		v := w.volumes[o.Name]
		if v == nil || string(v.UID) != o.UID || v.ResourceVersion != o.Version {
			return "", conflict
		}
		w.setVolume(o.Name, "", func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: claim.Name, UID: types.UID(claim.UID)}
		})
		return w.volumes[o.Name].ResourceVersion, nil
	}, done)
}

func (w *storageWorld) answer(ev event.VolumesBound) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answers = append(w.answers, ev)
}

func rowOf(pod string) event.RowID { return event.RowID{Incarnation: "a", N: 1, PodUID: pod} }

func (w *storageWorld) begin(pod, node string) {
	w.c.bindVolumes(event.BindVolumes{Row: rowOf(pod), Namespace: "ns", Name: pod, Node: node})
}

func (w *storageWorld) end(pod string, undo bool) {
	w.c.endVolumes(event.EndVolumes{Row: rowOf(pod), Undo: undo})
}

// pass lets time go by, and all that is to happen in it is done.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// expect waits until all that is under way is done, and says which writes were made since, and what was answered.
func (w *storageWorld) expect(writes, failed string, answers int) {
	w.t.Helper()
	pass(20 * time.Second)
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := fmt.Sprint(w.writes); got != "["+writes+"]" {
		w.t.Errorf("writes %s, want [%s]", got, writes)
	}
	got := ""
	if n := len(w.answers); n != answers {
		w.t.Errorf("%d answers: %+v, want %d", n, w.answers, answers)
	}
	for _, a := range w.answers { // of several pods they come in any order
		got = cmp.Or(got, a.Failed)
	}
	if got != failed {
		w.t.Errorf("failed %q, want %q", got, failed)
	}
	w.writes, w.answers = nil, nil
}

// idle fails if something is left of rows that ended.
func (w *storageWorld) idle() {
	w.t.Helper()
	w.c.mu.Lock()
	defer w.c.mu.Unlock()
	if n := len(w.c.rows) + len(w.c.byClaim) + len(w.c.taken); n > 0 {
		w.t.Errorf("%d rows, %d claims and %d volumes are left", len(w.c.rows), len(w.c.byClaim), len(w.c.taken))
	}
}

func TestVolumesAreProvisioned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStorageWorld(t, "made.example.com")
		w.claim("c", nil)
		pass(time.Second)
		w.c.seen(claiming("p", "c", 0))
		if !w.last.Unbound || w.last.Refused != nil {
			t.Fatalf("%+v", w.last)
		}
		w.begin("p", "n1")
		w.expect(`select c for "n1"`, "", 0)
		if !w.last.Unbound || w.last.Tied != api.ToOne || w.last.Note == "" {
			t.Errorf("shown again as %+v", w.last)
		}
		w.bind("c", "v", "n1")
		w.expect("", "", 1)
		if w.last.Unbound || w.last.Tied != api.ToOne || w.last.Refused != nil {
			t.Errorf("shown again as %+v", w.last)
		}
		w.end("p", false)
		w.idle()

		// What is bound already needs nothing, and what is bound elsewhere does not help.
		w.begin("p", "n1")
		w.expect("", "", 1)
		w.end("p", true)
		w.begin("p", "n2")
		w.expect("", "claim c: its volume v cannot be used on node n2", 1)
		w.end("p", true)
		w.expect("", "", 0)
		w.idle()
		w.begin("nobody", "n1")
		w.expect("", "the pod is gone, or has a node", 1)
	})
}

// A row that fails, or is given up, takes its annotation off where the claim is not bound.
func TestVolumesAreUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStorageWorld(t, "made.example.com")
		w.claim("c", nil)
		pass(time.Second)
		w.c.seen(claiming("p", "c", 0))
		w.begin("p", "n1")
		w.expect(`select c for "n1"`, "", 0)
		w.end("p", true)
		w.expect(`select c for ""`, "", 0)
		w.idle()

		w.begin("p", "n2")
		w.expect(`select c for "n2"`, "", 0)
		w.claim("c", func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }) // the provisioner gives up
		w.expect("", "claim c: no volume could be provisioned for node n2: the provisioner has given up", 1)
		w.end("p", true)
		w.expect("", "", 0)
		w.idle()

		// Before the answer to the write, and before the watch has shown it.
		w.lag = 100 * time.Millisecond
		w.begin("p", "n1")
		w.end("p", true)
		w.expect(`select c for "n1" select c for ""`, "", 0)
		w.idle()

		// What is bound meanwhile stays.
		w.lag = time.Second / 10
		w.begin("p", "n1")
		pass(10 * time.Second)
		w.bind("c", "v", "n1")
		w.end("p", true)
		w.expect(`select c for "n1" select c for "" refused`, "", 0)
		w.idle()
	})
}

// A write that another one came before is decided again by what the watch shows then. One that is refused for good fails the row.
func TestVolumeWritesAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStorageWorld(t, "made.example.com")
		w.claim("c", nil)
		pass(time.Second)
		w.c.seen(claiming("p", "c", 0))
		w.refuse = conflict
		w.begin("p", "n1")
		w.expect(`select c for "n1" refused select c for "n1"`, "", 0)
		w.end("p", true)
		w.expect(`select c for ""`, "", 0)

		w.lag = time.Second // another scheduler is faster, and the watch shows it late
		w.claim("c", func(c *corev1.PersistentVolumeClaim) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.SelectedNode, "n2")
		})
		w.begin("p", "n1")
		pass(20 * time.Second)
		w.mu.Lock()
		if last := w.answers[len(w.answers)-1].Failed; last != "claim c: a volume is being provisioned for node n2" || !slices.Contains(w.writes, `select c for "n1" refused`) {
			t.Errorf("%q after %q", last, w.writes)
		}
		w.writes, w.answers = nil, nil
		w.mu.Unlock()
		w.end("p", true)

		w.lag = time.Millisecond
		w.claim("c", func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil })
		pass(time.Second)
		forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "c", errors.New("no"))
		stop := time.Now().Add(15 * time.Second)
		go func() {
			for ; time.Now().Before(stop); time.Sleep(time.Microsecond * 100) {
				w.mu.Lock()
				w.refuse = forbidden
				w.mu.Unlock()
			}
		}()
		w.begin("p", "n1")
		pass(20 * time.Second)
		if len(w.answers) != 1 || len(w.writes) != volumeTries {
			t.Errorf("%d answers %+v after %d tries", len(w.answers), w.answers, len(w.writes))
		}
		w.end("p", true)
		pass(time.Second)
		w.idle()
	})
}

// Two pods on one node take different volumes that are there; the third is told that there is none.
func TestVolumesAreChosen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStorageWorld(t, "kubernetes.io/no-provisioner")
		for _, v := range []string{"v1", "v2"} {
			w.volume(v, "n1", nil)
		}
		for _, p := range []string{"a", "b", "c"} {
			w.claim(p, nil)
		}
		pass(time.Second)
		for _, p := range []string{"a", "b", "c"} {
			w.c.seen(claiming(p, p, 0))
		}
		w.begin("a", "n1")
		pass(time.Second)
		w.begin("b", "n1")
		w.expect("keep v1 for a keep v2 for b", "", 0)
		w.begin("c", "n1")
		w.expect("", "claim c: no PersistentVolume of StorageClass late that suits it is free on node n1", 1)
		w.end("c", true)
		w.bind("a", "v1", "n1")
		w.bind("b", "v2", "n1")
		w.expect("", "", 2)
		w.end("a", false)
		w.end("b", true) // its volume stays with it
		w.expect("", "", 0)
		w.idle()

		// A foreign claimRef wins.
		w.volume("v3", "n1", nil)
		pass(time.Second)
		w.lag = 3 * time.Second
		w.volume("v3", "n1", func(v *corev1.PersistentVolume) {
			v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "other", UID: "o"}
		})
		w.begin("c", "n1")
		pass(20 * time.Second)
		if n := len(w.answers); n != 1 || w.answers[0].Failed == "" {
			t.Errorf("%+v", w.answers)
		}
		w.end("c", true)
		w.idle()
	})
}

// A claim of two pods is provisioned for one of them, and the other waits beside it.
func TestVolumesAreShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStorageWorld(t, "made.example.com")
		w.claim("c", nil)
		pass(time.Second)
		w.c.seen(claiming("p", "c", 0))
		w.c.seen(claiming("q", "c", 0))
		w.begin("p", "n1")
		pass(time.Second)
		w.begin("q", "n2")
		w.expect(`select c for "n1"`, "", 0)
		w.bind("c", "v", "n1")
		w.expect("", "claim c: its volume v cannot be used on node n2", 2)
		w.end("p", true)
		w.end("q", true)
		w.expect("", "", 0)
		w.idle()
	})
}

// Pods whose claims may have other volumes are shown again together, a moment after volumes, capacity or nodes changed.
func TestSupplyChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStorageWorld(t, "kubernetes.io/no-provisioner")
		shown := 0
		w.c.show = func(p *api.Pod) { shown++; w.last = p }
		for i := range 10 {
			name := fmt.Sprint("c", i)
			w.claim(name, nil)
			pass(2 * time.Millisecond)
			w.c.seen(claiming(fmt.Sprint("p", i), name, 0))
		}
		pass(time.Second)
		if shown = 0; w.last.Refused == nil {
			t.Fatal("there is no volume, and it may be placed")
		}
		for i := range 5 {
			w.volume(fmt.Sprint("v", i), "n1", nil)
		}
		pass(5 * time.Second)
		if shown != 10 || w.last.Refused != nil || w.last.Tied != api.ToSome {
			t.Errorf("shown %d times, as %+v", shown, w.last)
		}
		shown = 0
		w.volume("v0", "n1", func(v *corev1.PersistentVolume) { v.Annotations = map[string]string{"k": "v"} }) // nothing that matters
		pass(5 * time.Second)
		if shown != 0 {
			t.Errorf("shown %d times for nothing", shown)
		}
		w.claim("c0", func(c *corev1.PersistentVolumeClaim) {
			metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.SelectedNode, "n9")
		})
		pass(time.Second)
		late := storagev1.VolumeBindingWaitForFirstConsumer
		w.c.storageClasses().Seen(&storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: "made.example.com", VolumeBindingMode: &late})
		pass(2 * time.Second)
		w.c.csiDrivers().Seen(&storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "made.example.com"}, Spec: storagev1.CSIDriverSpec{StorageCapacity: new(true)}})
		few := resource.MustParse("2Gi")
		has := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "y"}, StorageClassName: "late", Capacity: &few, NodeTopology: &metav1.LabelSelector{}}
		w.c.capacities().Seen(has)
		pass(2 * time.Second)
		if shown = 0; w.last.Tied != api.Untied || w.last.Refused != nil {
			t.Errorf("with capacity everywhere %+v", w.last)
		}
		w.c.capacities().Seen(has)
		pass(2 * time.Second)
		if shown != 0 {
			t.Errorf("shown %d times for the same capacity", shown)
		}
		w.c.node(&api.Node{Name: "n9"})
		pass(2 * time.Second)
		if shown == 0 {
			t.Error("a node came that a claim was selected for, and nobody was shown again")
		}
		shown = 0
		w.c.nodeGone("n9")
		w.c.capacities().Gone(has)
		pass(2 * time.Second)
		if shown == 0 || w.last.Tied != api.ToSome { // the volumes on n1
			t.Errorf("without capacity shown %d times, as %+v", shown, w.last)
		}
	})
}

// Claims ask for choices all the time: one that was made costs no more than to read what is asked for, and those that are kept have a bound.
func TestChoicesAreKept(t *testing.T) {
	w := newStorageWorld(t, "made.example.com")
	asking := func(n int) (claims []*volume.Claim) {
		for i := range n {
			claims = append(claims, &volume.Claim{Class: "late", Request: fmt.Sprintf("%0*d", 200, i)})
		}
		return claims
	}
	many := asking(256)
	made := w.c.Choose(many)
	if n := testing.AllocsPerRun(10, func() { w.c.Choose(many) }); n > 64 || w.c.Choose(many) != made {
		t.Errorf("a choice that is known allocates %v times", n)
	}
	if ab, c := w.c.Choose([]*volume.Claim{{Class: "late", Request: "a"}, {Class: "late", Request: "bc"}}), w.c.Choose([]*volume.Claim{{Class: "late", Request: "ab"}, {Class: "late", Request: "c"}}); ab == c {
		t.Error("claims that ask for other things have one choice")
	}
	if n := w.c.choices["late"].bytes; n < 256*200 {
		t.Errorf("%d bytes are counted", n)
	}
	w.c.choices["late"].bytes = maxMadeBytes
	w.c.Choose(asking(1))
	if of := w.c.choices["late"]; len(of.made) != 1 || of.bytes > 1000 {
		t.Errorf("%d choices with %d bytes are kept beyond the bound", len(of.made), of.bytes)
	}
}

// A volume of no class is nothing to the claims of a class.
func TestVolumesWithoutClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStorageWorld(t, "kubernetes.io/no-provisioner")
		shown := 0
		w.c.show = func(p *api.Pod) { shown++; w.last = p }
		w.claim("c", nil)
		pass(time.Second)
		w.c.seen(claiming("p", "c", 0))
		pass(5 * time.Second)
		shown = 0
		w.volume("v", "n1", func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "" })
		pass(5 * time.Second)
		if shown != 0 {
			t.Errorf("shown %d times", shown)
		}
	})
}

// Where there are more places than one pod may name, a pod that waits is offered others each minute, and one with a node selector those of
// the nodes that it selects.
func TestPartsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStorageWorld(t, "kubernetes.io/no-provisioner")
		shown := map[string]int{}
		offers := map[string]map[string]bool{}
		w.c.show = func(p *api.Pod) {
			shown[p.Name]++
			put(offers, p.Name, string(p.Class.Constraints), true)
		}
		for i := range 1000 {
			name := fmt.Sprintf("node-%04d.example.com", i)
			w.c.node(&api.Node{Name: name, Labels: map[string]string{api.LabelHostname: name, "pool": strconv.Itoa(i / 50)}})
			w.volume(fmt.Sprint("v", i), name, nil)
		}
		w.claim("c", nil)
		w.claim("d", nil)
		pass(time.Second)
		in := claiming("in", "c", 0)
		in.Spec.NodeSelector = map[string]string{"pool": "7"}
		w.c.seen(claiming("p", "d", 0))
		w.c.seen(in)
		pass(30 * time.Second)
		w.c.mu.Lock() // pods are shown under it
		clear(shown)
		clear(offers)
		w.c.mu.Unlock()
		pass(20 * time.Minute)
		w.c.mu.Lock()
		if n := len(offers["p"]); n < 3 || shown["p"] != 20 {
			t.Errorf("in 20 minutes a pod was offered %d parts, shown %d times", n, shown["p"])
		}
		for constraints := range offers["in"] {
			if n := strings.Count(constraints, "example.com"); len(offers["in"]) != 1 || n != 50 {
				t.Errorf("of 50 nodes in its pool a pod is offered %d, in %d parts", n, len(offers["in"]))
			}
		}
		w.c.mu.Unlock()
		w.c.node(&api.Node{Name: "node-0000.example.com", Labels: map[string]string{api.LabelHostname: "node-0000.example.com", "pool": "7"}})
		pass(2 * time.Minute)
		w.c.mu.Lock()
		if n := len(offers["in"]); n != 2 {
			t.Errorf("a node joined the pool, and it was offered %d parts", n)
		}
		w.c.mu.Unlock()
		w.c.gone(claiming("p", "d", 0))
		in = with(in, func(p *corev1.Pod) { p.Spec.NodeName = "n1" })
		w.c.seen(in)
		w.c.mu.Lock()
		clear(shown)
		w.c.mu.Unlock()
		pass(20 * time.Minute)
		w.c.mu.Lock()
		defer w.c.mu.Unlock()
		if len(shown)+len(w.c.inPart)+len(w.c.tasks) != 0 {
			t.Errorf("%v are shown of which none waits", shown)
		}
	})
}

// A row waits a little for its pod, and for its claims, to be seen.
func TestRowsOfWhatIsNotSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newStorageWorld(t, "made.example.com")
		w.begin("p", "n1")
		pass(3 * time.Second)
		w.c.seen(claiming("p", "c", 0))
		pass(3 * time.Second)
		w.claim("c", nil)
		w.expect(`select c for "n1"`, "", 0)
		w.end("p", true)
		w.expect(`select c for ""`, "", 0)
		w.idle()

		w.c.seen(claiming("q", "none", 0))
		w.begin("q", "n1")
		w.expect("", "claim none: the claim does not exist any more", 1)
		w.end("q", true)
		bound := claiming("q", "none", 0)
		bound.Spec.NodeName = "n2"
		w.c.seen(bound)
		w.begin("q", "n1")
		pass(time.Millisecond)
		w.mu.Lock()
		if len(w.answers) != 1 || w.answers[0].Failed != podGone {
			t.Errorf("with a node: %+v", w.answers)
		}
		w.answers = nil
		w.mu.Unlock()
		w.begin("r", "n1")
		w.end("r", true)
		w.expect("", "", 0)
		w.idle()
	})
}
