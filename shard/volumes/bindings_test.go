package volumes

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/volume"
	"basalt.dev/basalt/shard/effect"
	"basalt.dev/basalt/shard/event"
)

// storageWorld is an API server with claims and volumes, and a shard that watches it. Writes are answered a moment
// later, and shown when show is called, or after lag.
type storageWorld struct {
	*world
	t       *testing.T
	version int
	claims  map[string]*corev1.PersistentVolumeClaim
	volumes map[string]*corev1.PersistentVolume
	writes  []string // that were made
	refuse  error    // of the next write
	always  bool     // and of those after it
	lag     time.Duration
	last    *api.Pod
}

func newStorageWorld(t *testing.T, provisioner string) (*storageWorld, *world) {
	s := &storageWorld{t: t, version: 10, claims: map[string]*corev1.PersistentVolumeClaim{},
		volumes: map[string]*corev1.PersistentVolume{}, lag: time.Millisecond}
	w := newWorld(func(p *api.Pod) { s.last = p })
	s.world, w.write = w, s.call
	late := storagev1.VolumeBindingWaitForFirstConsumer
	see(w, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: provisioner,
		VolumeBindingMode: &late})
	for _, n := range []string{"n1", "n2"} {
		seeNode(w, &api.Node{Name: n, Labels: map[string]string{api.LabelHostname: n}})
	}
	return s, w
}

func (w *storageWorld) next() string { w.version++; return strconv.Itoa(w.version) }

// claim makes or changes a claim, and shows it.
func (w *storageWorld) claim(name string, edit func(*corev1.PersistentVolumeClaim)) {
	w.setClaim(name, edit)
}

func (w *storageWorld) setClaim(name string, edit func(*corev1.PersistentVolumeClaim)) {
	c := w.claims[name]
	if c == nil {
		c = &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" +
			name)}, Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: new("late"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{"storage": resource.MustParse("1Gi")}}}}
	}
	c = c.DeepCopy()
	if edit != nil {
		edit(c)
	}
	c.ResourceVersion = w.next()
	w.claims[name] = c
	w.after(w.lag, func() { see(w.world, volume.StripClaim(c)) })
}

func (w *storageWorld) volume(name, node string, edit func(*corev1.PersistentVolume)) {
	w.setVolume(name, node, edit)
}

func (w *storageWorld) setVolume(name, node string, edit func(*corev1.PersistentVolume)) {
	v := w.volumes[name]
	if v == nil {
		v = &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)},
			Status: corev1.PersistentVolumeStatus{Phase: corev1.VolumeAvailable}}
		v.Spec.Capacity, v.Spec.AccessModes, v.Spec.StorageClassName = corev1.ResourceList{
			"storage": resource.MustParse("1Gi")}, []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, "late"
		v.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{
				MatchExpressions: []corev1.NodeSelectorRequirement{{Key: api.LabelHostname, Operator: "In", Values: []string{
					node}}}}}}}
	}
	v = v.DeepCopy()
	if edit != nil {
		edit(v)
	}
	v.ResourceVersion = w.next()
	w.volumes[name] = v
	w.after(w.lag, func() { see(w.world, volume.StripVolume(v)) })
}

// bind completes the binding of a claim, as the volume controller does.
func (w *storageWorld) bind(claim, name, node string) {
	w.volume(name, node, func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef, v.Status.Phase = &corev1.ObjectReference{Namespace: "ns", Name: claim, UID: types.UID("uid-" +
			claim)}, corev1.VolumeBound
	})
	w.claim(claim, func(c *corev1.PersistentVolumeClaim) {
		c.Spec.VolumeName = name
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, "pv.kubernetes.io/bind-completed", "yes")
	})
}

var conflict = apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumeclaims"}, "c",
	errors.New("another version"))

// call makes a write a moment later, and answers it.
func (w *storageWorld) call(o event.Output) {
	w.after(time.Millisecond, func() {
		var what, version string
		err := w.refuse
		if !w.always {
			w.refuse = nil
		}
		id := uint64(0)
		switch o := o.(type) {
		case event.SelectNode:
			id, what = o.ID, fmt.Sprintf("select %s for %q", o.Claim.Name, o.Node)
			if err == nil {
				version, err = w.selectNode(o.Claim, o.Node)
			}
		case event.KeepVolume:
			id, what = o.ID, fmt.Sprintf("keep %s for %s", o.Volume.Name, o.Claim.Name)
			if err == nil {
				version, err = w.keepVolume(o.Volume, o.Claim)
			}
		}
		if err != nil {
			what += " refused"
		}
		w.writes = append(w.writes, what)
		w.step(effect.VolumeWritten(id, version, err))
	})
}

func (w *storageWorld) selectNode(claim api.ObjectVersion, node string) (string, error) {
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
}

func (w *storageWorld) keepVolume(o, claim api.ObjectVersion) (string, error) {
	v := w.volumes[o.Name]
	if v == nil || string(v.UID) != o.UID || v.ResourceVersion != o.Version {
		return "", conflict
	}
	w.setVolume(o.Name, "", func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: claim.Name, UID: types.UID(claim.UID)}
	})
	return w.volumes[o.Name].ResourceVersion, nil
}

func rowOf(pod string) event.RowID { return event.RowID{Incarnation: "a", N: 1, PodUID: pod} }

func (w *storageWorld) begin(pod, node string) {
	w.step(event.BindVolumes{Row: rowOf(pod), Namespace: "ns", Name: pod, Node: node})
}

func (w *storageWorld) end(pod string, undo bool) {
	w.step(event.EndVolumes{Row: rowOf(pod), Undo: undo})
}

// expect waits until all that is under way is done, and says which writes were made since, and what was answered.
func (w *storageWorld) expect(writes, failed string, answers int) {
	w.t.Helper()
	w.pass(20 * time.Second)
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
	if n := len(w.rows) + len(w.byClaim) + len(w.taken) + len(w.Core.writes); n > 0 {
		w.t.Errorf("%d rows, %d claims and %d volumes are left", len(w.rows), len(w.byClaim), len(w.taken))
	}
}

func TestVolumesAreProvisioned(t *testing.T) {
	s, w := newStorageWorld(t, "made.example.com")
	s.claim("c", nil)
	w.pass(time.Second)
	see(w, claiming("p", "c", 0))
	if !s.last.Unbound || s.last.Refused != nil {
		t.Fatalf("%+v", s.last)
	}
	s.begin("p", "n1")
	s.expect(`select c for "n1"`, "", 0)
	if !s.last.Unbound || s.last.Tied != api.ToOne || s.last.Note == "" {
		t.Errorf("shown again as %+v", s.last)
	}
	s.bind("c", "v", "n1")
	s.expect("", "", 1)
	if s.last.Unbound || s.last.Tied != api.ToOne || s.last.Refused != nil {
		t.Errorf("shown again as %+v", s.last)
	}
	s.end("p", false)
	s.idle()

	// What is bound already needs nothing, and what is bound elsewhere does not help.
	s.begin("p", "n1")
	s.expect("", "", 1)
	s.end("p", true)
	s.begin("p", "n2")
	s.expect("", "claim c: its volume v cannot be used on node n2", 1)
	s.end("p", true)
	s.expect("", "", 0)
	s.idle()
	s.begin("nobody", "n1")
	s.expect("", "the pod is gone, or has a node", 1)
}

// A row that fails, or is given up, takes its annotation off where the claim is not bound.
func TestVolumesAreUndone(t *testing.T) {
	s, w := newStorageWorld(t, "made.example.com")
	s.claim("c", nil)
	w.pass(time.Second)
	see(w, claiming("p", "c", 0))
	s.begin("p", "n1")
	s.expect(`select c for "n1"`, "", 0)
	s.end("p", true)
	s.expect(`select c for ""`, "", 0)
	s.idle()

	s.begin("p", "n2")
	s.expect(`select c for "n2"`, "", 0)
	s.claim("c", func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil }) // the provisioner gives up
	s.expect("", "claim c: no volume could be provisioned for node n2: the provisioner has given up", 1)
	s.end("p", true)
	s.expect("", "", 0)
	s.idle()

	// Before the answer to the write, and before the watch has shown it.
	s.lag = 100 * time.Millisecond
	s.begin("p", "n1")
	s.end("p", true)
	s.expect(`select c for "n1" select c for ""`, "", 0)
	s.idle()

	// What is bound meanwhile stays.
	s.lag = time.Second / 10
	s.begin("p", "n1")
	w.pass(10 * time.Second)
	s.bind("c", "v", "n1")
	s.end("p", true)
	s.expect(`select c for "n1" select c for "" refused`, "", 0)
	s.idle()
}

// A write that another one came before is decided again by what the watch shows then. One that is refused for good
// fails the row.
func TestVolumeWritesAreRefused(t *testing.T) {
	s, w := newStorageWorld(t, "made.example.com")
	s.claim("c", nil)
	w.pass(time.Second)
	see(w, claiming("p", "c", 0))
	s.refuse = conflict
	s.begin("p", "n1")
	s.expect(`select c for "n1" refused select c for "n1"`, "", 0)
	s.end("p", true)
	s.expect(`select c for ""`, "", 0)

	s.lag = time.Second // another scheduler is faster, and the watch shows it late
	s.claim("c", func(c *corev1.PersistentVolumeClaim) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.SelectedNode, "n2")
	})
	s.begin("p", "n1")
	w.pass(20 * time.Second)
	if last := s.answers[len(s.answers)-1].Failed; last != "claim c: a volume is being provisioned for node n2" ||
		!slices.Contains(s.writes, `select c for "n1" refused`) {
		t.Errorf("%q after %q", last, s.writes)
	}
	s.writes, s.answers = nil, nil
	s.end("p", true)

	s.lag = time.Millisecond
	s.claim("c", func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil })
	w.pass(time.Second)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "persistentvolumeclaims"}, "c", errors.New("no"))
	s.refuse, s.always = forbidden, true
	s.begin("p", "n1")
	w.pass(20 * time.Second)
	if len(s.answers) != 1 || len(s.writes) != volumeTries {
		t.Errorf("%d answers %+v after %d tries", len(s.answers), s.answers, len(s.writes))
	}
	s.end("p", true)
	w.pass(time.Second)
	s.idle()
}

// Two pods on one node take different volumes that are there; the third is told that there is none.
func TestVolumesAreChosen(t *testing.T) {
	s, w := newStorageWorld(t, "kubernetes.io/no-provisioner")
	for _, v := range []string{"v1", "v2"} {
		s.volume(v, "n1", nil)
	}
	for _, p := range []string{"a", "b", "c"} {
		s.claim(p, nil)
	}
	w.pass(time.Second)
	for _, p := range []string{"a", "b", "c"} {
		see(w, claiming(p, p, 0))
	}
	s.begin("a", "n1")
	w.pass(time.Second)
	s.begin("b", "n1")
	s.expect("keep v1 for a keep v2 for b", "", 0)
	s.begin("c", "n1")
	s.expect("", "claim c: no PersistentVolume of StorageClass late that suits it is free on node n1", 1)
	s.end("c", true)
	s.bind("a", "v1", "n1")
	s.bind("b", "v2", "n1")
	s.expect("", "", 2)
	s.end("a", false)
	s.end("b", true) // its volume stays with it
	s.expect("", "", 0)
	s.idle()

	// A foreign claimRef wins.
	s.volume("v3", "n1", nil)
	w.pass(time.Second)
	s.lag = 3 * time.Second
	s.volume("v3", "n1", func(v *corev1.PersistentVolume) {
		v.Spec.ClaimRef = &corev1.ObjectReference{Namespace: "ns", Name: "other", UID: "o"}
	})
	s.begin("c", "n1")
	w.pass(20 * time.Second)
	if n := len(s.answers); n != 1 || s.answers[0].Failed == "" {
		t.Errorf("%+v", s.answers)
	}
	s.end("c", true)
	s.idle()
}

// A claim of two pods is provisioned for one of them, and the other waits beside it.
func TestVolumesAreShared(t *testing.T) {
	s, w := newStorageWorld(t, "made.example.com")
	s.claim("c", nil)
	w.pass(time.Second)
	see(w, claiming("p", "c", 0))
	see(w, claiming("q", "c", 0))
	s.begin("p", "n1")
	w.pass(time.Second)
	s.begin("q", "n2")
	s.expect(`select c for "n1"`, "", 0)
	s.bind("c", "v", "n1")
	s.expect("", "claim c: its volume v cannot be used on node n2", 2)
	s.end("p", true)
	s.end("q", true)
	s.expect("", "", 0)
	s.idle()
}

// Pods whose claims may have other volumes are shown again together, a moment after volumes, capacity or nodes changed.
func TestSupplyChanges(t *testing.T) {
	s, w := newStorageWorld(t, "kubernetes.io/no-provisioner")
	shown := 0
	w.show = func(p *api.Pod) { shown++; s.last = p }
	for i := range 10 {
		name := fmt.Sprint("c", i)
		s.claim(name, nil)
		w.pass(2 * time.Millisecond)
		see(w, claiming(fmt.Sprint("p", i), name, 0))
	}
	w.pass(time.Second)
	if shown = 0; s.last.Refused == nil {
		t.Fatal("there is no volume, and it may be placed")
	}
	for i := range 5 {
		s.volume(fmt.Sprint("v", i), "n1", nil)
	}
	w.pass(5 * time.Second)
	if shown != 10 || s.last.Refused != nil || s.last.Tied != api.ToSome {
		t.Errorf("shown %d times, as %+v", shown, s.last)
	}
	shown = 0
	// nothing that matters
	s.volume("v0", "n1", func(v *corev1.PersistentVolume) { v.Annotations = map[string]string{"k": "v"} })
	w.pass(5 * time.Second)
	if shown != 0 {
		t.Errorf("shown %d times for nothing", shown)
	}
	s.claim("c0", func(c *corev1.PersistentVolumeClaim) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, volume.SelectedNode, "n9")
	})
	w.pass(time.Second)
	late := storagev1.VolumeBindingWaitForFirstConsumer
	see(w, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "late"}, Provisioner: "made.example.com",
		VolumeBindingMode: &late})
	w.pass(2 * time.Second)
	see(w, &storagev1.CSIDriver{ObjectMeta: metav1.ObjectMeta{Name: "made.example.com"}, Spec: storagev1.CSIDriverSpec{
		StorageCapacity: new(true)}})
	few := resource.MustParse("2Gi")
	has := &storagev1.CSIStorageCapacity{ObjectMeta: metav1.ObjectMeta{Namespace: "x", Name: "y"},
		StorageClassName: "late", Capacity: &few, NodeTopology: &metav1.LabelSelector{}}
	see(w, has)
	w.pass(2 * time.Second)
	if shown = 0; s.last.Tied != api.Untied || s.last.Refused != nil {
		t.Errorf("with capacity everywhere %+v", s.last)
	}
	see(w, has)
	w.pass(2 * time.Second)
	if shown != 0 {
		t.Errorf("shown %d times for the same capacity", shown)
	}
	seeNode(w, &api.Node{Name: "n9"})
	w.pass(2 * time.Second)
	if shown == 0 {
		t.Error("a node came that a claim was selected for, and nobody was shown again")
	}
	shown = 0
	loseNode(w, "n9")
	lose(w, has)
	w.pass(2 * time.Second)
	if shown == 0 || s.last.Tied != api.ToSome { // the volumes on n1
		t.Errorf("without capacity shown %d times, as %+v", shown, s.last)
	}
}

// Claims ask for choices all the time: one that was made costs no more than to read what is asked for, and those that
// are kept have a bound.
func TestChoicesAreKept(t *testing.T) {
	_, w := newStorageWorld(t, "made.example.com")
	asking := func(n int) (claims []*volume.Claim) {
		for i := range n {
			claims = append(claims, &volume.Claim{Class: "late", Request: fmt.Sprintf("%0*d", 200, i)})
		}
		return claims
	}
	many := asking(256)
	made := w.Choose(many)
	if n := testing.AllocsPerRun(10, func() { w.Choose(many) }); n > 64 || w.Choose(many) != made {
		t.Errorf("a choice that is known allocates %v times", n)
	}
	if ab, c := w.Choose([]*volume.Claim{{Class: "late", Request: "a"}, {Class: "late", Request: "bc"}}),
		w.Choose([]*volume.Claim{{Class: "late", Request: "ab"}, {Class: "late", Request: "c"}}); ab == c {
		t.Error("claims that ask for other things have one choice")
	}
	if n := w.choices.of["late"].bytes; n < 256*200 {
		t.Errorf("%d bytes are counted", n)
	}
	w.choices.of["late"].bytes = maxMadeBytes
	w.Choose(asking(1))
	if of := w.choices.of["late"]; len(of.made) != 1 || of.bytes > 1000 {
		t.Errorf("%d choices with %d bytes are kept beyond the bound", len(of.made), of.bytes)
	}
}

// A volume of no class is nothing to the claims of a class.
func TestVolumesWithoutClass(t *testing.T) {
	s, w := newStorageWorld(t, "kubernetes.io/no-provisioner")
	shown := 0
	w.show = func(p *api.Pod) { shown++; s.last = p }
	s.claim("c", nil)
	w.pass(time.Second)
	see(w, claiming("p", "c", 0))
	w.pass(5 * time.Second)
	shown = 0
	s.volume("v", "n1", func(v *corev1.PersistentVolume) { v.Spec.StorageClassName = "" })
	w.pass(5 * time.Second)
	if shown != 0 {
		t.Errorf("shown %d times", shown)
	}
}

// Where there are more places than one pod may name, a pod that waits is offered others each minute, and one with a
// node selector those of the nodes that it selects.
func TestPartsTakeTurns(t *testing.T) {
	s, w := newStorageWorld(t, "kubernetes.io/no-provisioner")
	shown := map[string]int{}
	offers := map[string]map[string]bool{}
	w.show = func(p *api.Pod) {
		shown[p.Name]++
		put(offers, p.Name, string(p.Class.Constraints), true)
	}
	for i := range 1000 {
		name := fmt.Sprintf("node-%04d.example.com", i)
		seeNode(w, &api.Node{Name: name, Labels: map[string]string{api.LabelHostname: name, "pool": strconv.Itoa(i / 50)}})
		s.volume(fmt.Sprint("v", i), name, nil)
	}
	s.claim("c", nil)
	s.claim("d", nil)
	w.pass(time.Second)
	in := claiming("in", "c", 0)
	in.Spec.NodeSelector = map[string]string{"pool": "7"}
	see(w, claiming("p", "d", 0))
	see(w, in)
	w.pass(30 * time.Second)
	clear(shown)
	clear(offers)
	w.pass(20 * time.Minute)
	if n := len(offers["p"]); n < 3 || shown["p"] != 20 {
		t.Errorf("in 20 minutes a pod was offered %d parts, shown %d times", n, shown["p"])
	}
	for constraints := range offers["in"] {
		if n := strings.Count(constraints, "example.com"); len(offers["in"]) != 1 || n != 50 {
			t.Errorf("of 50 nodes in its pool a pod is offered %d, in %d parts", n, len(offers["in"]))
		}
	}
	seeNode(w, &api.Node{Name: "node-0000.example.com", Labels: map[string]string{
		api.LabelHostname: "node-0000.example.com", "pool": "7"}})
	w.pass(2 * time.Minute)
	if n := len(offers["in"]); n != 2 {
		t.Errorf("a node joined the pool, and it was offered %d parts", n)
	}
	lose(w, claiming("p", "d", 0))
	in = with(in, func(p *corev1.Pod) { p.Spec.NodeName = "n1" })
	see(w, in)
	clear(shown)
	w.pass(20 * time.Minute)
	if len(shown)+len(w.inPart)+len(w.tasks.of) != 0 {
		t.Errorf("%v are shown of which none waits", shown)
	}
}

// A row waits a little for its pod, and for its claims, to be seen.
func TestRowsOfWhatIsNotSeen(t *testing.T) {
	s, w := newStorageWorld(t, "made.example.com")
	s.begin("p", "n1")
	w.pass(3 * time.Second)
	see(w, claiming("p", "c", 0))
	w.pass(3 * time.Second)
	s.claim("c", nil)
	s.expect(`select c for "n1"`, "", 0)
	s.end("p", true)
	s.expect(`select c for ""`, "", 0)
	s.idle()

	see(w, claiming("q", "none", 0))
	s.begin("q", "n1")
	s.expect("", "claim none: the claim does not exist any more", 1)
	s.end("q", true)
	bound := claiming("q", "none", 0)
	bound.Spec.NodeName = "n2"
	see(w, bound)
	s.begin("q", "n1")
	w.pass(time.Millisecond)
	if len(s.answers) != 1 || s.answers[0].Failed != podGone {
		t.Errorf("with a node: %+v", s.answers)
	}
	s.answers = nil
	s.begin("r", "n1")
	s.end("r", true)
	s.expect("", "", 0)
	s.idle()
}
