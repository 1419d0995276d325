package audit_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/wire"
)

// uses gives a pod claims.
func uses(claims ...string) func(*v1.Pod) {
	return func(p *v1.Pod) {
		for _, c := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, v1.Volume{Name: c, VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: c}}})
		}
	}
}

// claim shows a claim that is bound to a volume of a driver, with the handle of its name, which can be used in a zone, "" for anywhere.
func (w *world) claim(name, in string, modes ...v1.PersistentVolumeAccessMode) {
	v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v-" + name}}
	v.Spec.CSI = &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: name}
	if in != "" {
		v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
			{Key: zone, Operator: v1.NodeSelectorOpIn, Values: []string{in}}}}}}}
	}
	w.a.Observe(w.now, audit.Seen[*v1.PersistentVolume]{Object: v})
	w.a.Observe(w.now, audit.Seen[*v1.PersistentVolumeClaim]{Object: &v1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name,
			Annotations: map[string]string{"pv.kubernetes.io/bind-completed": "yes"}},
		Spec: v1.PersistentVolumeClaimSpec{VolumeName: v.Name, AccessModes: modes}}})
}

// ebs is claim, of a volume of an in-tree kind whose zone is a label that no node has.
func (w *world) ebs(name, in string) {
	w.claim(name, in)
	v := &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "v-" + name}}
	v.Spec.AWSElasticBlockStore = &v1.AWSElasticBlockStoreVolumeSource{VolumeID: "aws:///vol-" + name}
	v.Spec.NodeAffinity = &v1.VolumeNodeAffinity{Required: &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{
		{Key: v1.LabelFailureDomainBetaZone, Operator: v1.NodeSelectorOpIn, Values: []string{in}}}}}}}
	w.a.Observe(w.now, audit.Seen[*v1.PersistentVolume]{Object: v})
}

// migrates has a node take one volume of EBS, whose plugin it has migrated, and have its label.
func (w *world) migrates(node string) {
	zones := map[string]string{"n1": "z1", "n2": "z2"}
	w.shows(node, func(n *v1.Node) {
		n.Labels = map[string]string{v1.LabelHostname: node, "topology.ebs.csi.aws.com/zone": zones[node]}
	})
	w.a.Observe(w.now, audit.Seen[*storagev1.CSINode]{Object: &storagev1.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: node,
			Annotations: map[string]string{v1.MigratedPluginsAnnotationKey: "kubernetes.io/aws-ebs"}},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "ebs.csi.aws.com", Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(1))}}}}}})
}

// takes has a node take so many volumes.
func (w *world) takes(node string, count int32) {
	w.a.Observe(w.now, audit.Seen[*storagev1.CSINode]{Object: &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node},
		Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{{Name: "d", Allocatable: &storagev1.VolumeNodeResources{Count: &count}}}}}})
}

// A pod is bound where its volumes can be used, where there is room for them, and to a claim for one pod after the other pod.
func TestVolumes(t *testing.T) {
	const long, short = 20 * time.Second, 5 * time.Second
	once := v1.ReadWriteOncePod
	tests := []struct {
		name string
		kind audit.Kind
		in   string // of the message, "" for a clean report
		run  func(w *world)
	}{
		{"a claim for one pod, and two on two nodes", audit.AntiAffinity, "ns/q was bound to node n2, and ns/p on node n1 uses claim ns/c, too", func(w *world) {
			w.claim("c", "", once)
			w.place(1, "p", "n1", uses("c"))
			w.place(2, "q", "n2", uses("c"))
		}},
		{"a claim for many", "", "", func(w *world) {
			w.claim("c", "", v1.ReadWriteOnce)
			w.place(1, "p", "n1", uses("c"))
			w.place(2, "q", "n1", uses("c"))
		}},
		{"one after the other has ended", "", "", func(w *world) {
			w.claim("c", "", once)
			w.place(1, "p", "n1", uses("c"))
			w.pod("p", "100m", on("n1"), uses("c"), done)
			w.place(2, "q", "n2", uses("c"))
		}},
		{"one after the other is gone", "", "", func(w *world) {
			w.claim("c", "", once)
			w.place(1, "p", "n1", uses("c"))
			w.gone("p")
			w.place(2, "q", "n2", uses("c"))
		}},
		{"a claim of another namespace", "", "", func(w *world) {
			w.claim("c", "", once)
			w.place(1, "p", "n1", uses("c"))
			w.place(2, "q", "n2", uses("c"), elsewhere)
		}},
		{"the claim shows after the Bindings", audit.AntiAffinity, "ns/q", func(w *world) {
			w.place(1, "p", "n1", uses("c"))
			w.place(2, "q", "n2", uses("c"))
			w.claim("c", "", once)
		}},
		{"another scheduler's pod, a moment before", "", "", func(w *world) {
			w.claim("c", "", once)
			w.stranger("f", "n1", uses("c"))
			w.pass(short)
			w.place(2, "q", "n2", uses("c"))
		}},
		{"another scheduler's pod, for long", audit.AntiAffinity, "ns/f on node n1 uses claim ns/c", func(w *world) {
			w.claim("c", "", once)
			w.stranger("f", "n1", uses("c"))
			w.pass(long)
			w.place(2, "q", "n2", uses("c"))
		}},
		{"where its volume is", "", "", func(w *world) { w.claim("c", "z1"); w.place(1, "p", "n1", uses("c")) }},
		{"its claim was made anew afterwards", "", "", func(w *world) {
			w.claim("c", "z1")
			w.place(1, "p", "n1", uses("c"))
			w.a.Observe(w.now, audit.Gone[*v1.PersistentVolumeClaim]{Object: &v1.PersistentVolumeClaim{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "c"}}})
			w.now = w.now.Add(time.Millisecond)
			w.claim("c", "z2")
		}},
		{"where its volume is not", audit.Placement, "ns/p was bound to node n2, where volume v-c of its claim ns/c cannot be used", func(w *world) { w.claim("c", "z1"); w.place(1, "p", "n2", uses("c")) }},
		{"where it was a moment ago", "", "", func(w *world) {
			w.claim("c", "z2")
			w.labelled("n2", "z3")
			w.pass(short)
			w.place(1, "p", "n2", uses("c"))
		}},
		{"where it was long ago", audit.Placement, "ns/p was bound to node n2", func(w *world) {
			w.claim("c", "z2")
			w.labelled("n2", "z3")
			w.pass(long)
			w.place(1, "p", "n2", uses("c"))
		}},
		{"an in-tree volume, by its driver's label of zones", "", "", func(w *world) { w.ebs("c", "z1"); w.migrates("n1"); w.pass(long); w.place(1, "p", "n1", uses("c")) }},
		{"an in-tree volume, in another zone", audit.Placement, "ns/p was bound to node n2", func(w *world) {
			w.ebs("c", "z1")
			w.migrates("n2")
			w.pass(long)
			w.place(1, "p", "n2", uses("c"))
		}},
		{"an in-tree volume, where its plugin is not migrated", audit.Placement, "ns/p was bound to node n1", func(w *world) {
			w.ebs("c", "z1")
			w.takes("n1", 1)
			w.pass(long)
			w.place(1, "p", "n1", uses("c"))
		}},
		{"an in-tree volume, where its plugin was migrated a moment ago", "", "", func(w *world) {
			w.ebs("c", "z1")
			w.migrates("n1")
			w.pass(long)
			w.takes("n1", 1)
			w.place(1, "p", "n1", uses("c"))
		}},
		{"more in-tree volumes than it takes", audit.Overcommit, "whose pods have 2 volumes of driver ebs.csi.aws.com then; it takes 1", func(w *world) {
			w.migrates("n1")
			w.pass(long)
			w.ebs("c", "z1")
			w.ebs("d", "z1")
			w.place(1, "p", "n1", uses("c"))
			w.place(2, "q", "n1", uses("d"))
		}},
		{"as many volumes as it takes", "", "", func(w *world) {
			w.takes("n1", 2)
			w.pass(long)
			w.claim("c", "")
			w.claim("d", "")
			w.place(1, "p", "n1", uses("c"))
			w.place(2, "q", "n1", uses("d"))
			w.place(3, "r", "n1", uses("c", "d"))
		}},
		{"more volumes than it takes", audit.Overcommit, "ns/q was bound to node n1, whose pods have 2 volumes of driver d then; it takes 1", func(w *world) {
			w.takes("n1", 1)
			w.pass(long)
			w.claim("c", "")
			w.claim("d", "")
			w.place(1, "p", "n1", uses("c"))
			w.place(2, "q", "n1", uses("d"))
		}},
		{"it took more a moment ago", "", "", func(w *world) {
			w.takes("n1", 2)
			w.pass(long)
			w.takes("n1", 1)
			w.claim("c", "")
			w.claim("d", "")
			w.place(1, "p", "n1", uses("c"))
			w.place(2, "q", "n1", uses("d"))
		}},
		{"another scheduler's volume, a moment before", "", "", func(w *world) {
			w.takes("n1", 1)
			w.pass(long)
			w.claim("c", "")
			w.claim("d", "")
			w.stranger("f", "n1", uses("c"))
			w.place(2, "q", "n1", uses("d"))
		}},
		{"one that has no volumes of the driver", "", "", func(w *world) {
			w.takes("n1", 1)
			w.pass(long)
			w.place(1, "p", "n1", uses("unknown"))
			w.place(2, "q", "n1", uses("unknown-too"))
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, audit.Config{})
			w.labelled("n1", "z1")
			w.labelled("n2", "z2")
			w.pass(15 * time.Second)
			test.run(w)
			w.pass(8 * time.Second)
			r := w.a.Report()
			if test.in == "" {
				if r.Sum() != 0 {
					t.Fatalf("found %v", r.Violations)
				}
				return
			}
			if r.Counts[test.kind] != 1 || r.Sum() != 1 || !strings.Contains(fmt.Sprint(r.Violations), test.in) {
				t.Fatalf("want one %s with %q, found %v", test.kind, test.in, r.Violations)
			}
		})
	}
}

// Intents may stand for longer while a volume of their gang is being bound, and not for ever.
func TestIntentsAwaitVolumes(t *testing.T) {
	for _, test := range []struct {
		name  string
		claim string // volume of the claim, "" for none yet
		after time.Duration
		leak  bool
	}{
		{"no volume yet", "", 5 * time.Minute, false},
		{"no volume for long", "", 15 * time.Minute, true},
		{"the volume is bound", "v", 5 * time.Minute, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, audit.Config{})
			c := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "data"}}
			if c.Spec.VolumeName = test.claim; test.claim != "" {
				c.Annotations = map[string]string{"pv.kubernetes.io/bind-completed": "yes"}
			}
			w.a.Observe(w.now, audit.Seen[*v1.PersistentVolumeClaim]{Object: c})
			uses := func(p *v1.Pod) {
				p.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
			}
			w.group("gg", "job", 2)
			w.pod("p", "100m", of("job"), uses)
			w.pod("q", "100m", of("job"))
			w.reserve("gg", 200, func(r *wire.ReservationRecord) {
				r.Demand = append(r.Demand, &wire.Amount{Resource: "pods", Value: 2})
			})
			w.intend(1, "gg", 100, map[string]string{"p": "n1"})
			w.intend(2, "gg", 100, map[string]string{"q": "n2"}) // of the same gang: it waits, too
			w.pass(test.after)
			if got := w.a.Report().Counts[audit.Leak]; (got > 0) != test.leak {
				t.Errorf("%d leaks: %v", got, w.a.Report().Violations)
			}
		})
	}
}
