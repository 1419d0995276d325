// Package racks has gangs that are to be in one rack scheduled by real shards on a real API server: the nodes of each rack belong to all
// shards, and the gangs to queues of all shards. It also compares how many such gangs the cores of eight shards place in a fragmented cluster
// with what one global best fit places.
package racks

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/kube"
	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/bench/stage/kubelet"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

func TestMain(m *testing.M) { localtest.Run(m) }

const (
	patience = 90 * time.Second // for what must happen but has no time of its own; it ends hung tests only

	rack  = "example.com/rack"
	racks = 6
	nodes = 4 // of a rack, 16 cores each
	size  = 8 // pods of a gang, 4 cores each: two gangs fill a rack
)

type world struct {
	t    *testing.T
	kube *kube.Clients
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) gang(name, queue string, constraints ...v1beta1.TopologyConstraint) error {
	g := &v1beta1.PodGroup{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	g.Spec.Queue = queue
	g.Spec.SchedulingPolicy.Gang.MinCount = size
	g.Spec.SchedulingConstraints = &v1beta1.SchedulingConstraints{Topology: constraints}
	return w.kube.Basalt.Post().Namespace("default").Resource("podgroups").Body(g).Do(w.t.Context()).Error()
}

func (w *world) pods(gang string, from, to int) {
	w.t.Helper()
	for i := from; i < to; i++ {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(gang, "-", i), Labels: map[string]string{api.LabelPodGroup: gang}}}
		p.Spec.SchedulerName = "basalt"
		p.Spec.Containers = []corev1.Container{{Name: "main", Image: "none", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4")}}}}
		_, err := w.kube.Core.CoreV1().Pods("default").Create(w.t.Context(), p, metav1.CreateOptions{})
		w.check(err)
	}
}

func (w *world) delete(gang string) {
	w.t.Helper()
	now := int64(0)
	w.check(w.kube.Core.CoreV1().Pods("default").DeleteCollection(w.t.Context(), metav1.DeleteOptions{GracePeriodSeconds: &now}, metav1.ListOptions{LabelSelector: api.LabelPodGroup + "=" + gang}))
}

// bound waits until so many pods of a gang have nodes, and returns the racks in which they are.
func (w *world) bound(gang string, want int) (in []string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, fmt.Sprintf("%d pods of gang %s", want, gang), func(ctx context.Context) error {
		list, err := w.kube.Core.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: api.LabelPodGroup + "=" + gang})
		if err != nil {
			return err
		}
		n := 0
		in = nil
		for _, p := range list.Items {
			if p.Spec.NodeName == "" {
				continue
			}
			n++
			node, err := w.kube.Core.CoreV1().Nodes().Get(ctx, p.Spec.NodeName, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if value := node.Labels[rack]; !slices.Contains(in, value) {
				in = append(in, value)
			}
		}
		if n != want {
			return fmt.Errorf("%d have nodes", n)
		}
		return nil
	})
	return in
}

// says waits until the status of a gang has some words.
func (w *world) says(gang, words string) {
	w.t.Helper()
	localtest.Wait(w.t, patience, "the status of gang "+gang, func(ctx context.Context) error {
		var g v1beta1.PodGroup
		if err := w.kube.Basalt.Get().Namespace("default").Resource("podgroups").Name(gang).Do(ctx).Into(&g); err != nil {
			return err
		}
		if g.Status == nil || !strings.Contains(g.Status.Message, words) {
			return fmt.Errorf("the status is %+v", g.Status)
		}
		return nil
	})
}

func TestRacks(t *testing.T) {
	w := &world{t: t}
	cluster := localtest.Cluster(t, local.Options{Basalt: localtest.Basalt(t)})
	var err error
	w.kube, err = kube.ConnectConfig(cluster.Config(local.Admin), "racks")
	w.check(err)
	for i := range racks * nodes {
		n := kubelet.Node(fmt.Sprint("node-", i), "16", "64Gi", 110)
		n.Labels[rack] = fmt.Sprint("rack-", i%racks)
		_, err := w.kube.Core.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		w.check(err)
	}
	var queues []string
	for i := range 6 {
		queues = append(queues, fmt.Sprint("q", i))
		w.check(w.kube.Basalt.Post().Resource("queues").Body(&v1beta1.Queue{ObjectMeta: metav1.ObjectMeta{Name: queues[i]}}).Do(t.Context()).Error())
	}
	all, err := cluster.StartBasalt(t.Context(), 1, 3, local.BasaltOptions{Restart: true})
	w.check(err)
	w.check(local.WaitReady(t.Context(), all))

	// Bad input is refused by the API server, with the field.
	required := v1beta1.TopologyConstraint{Key: rack}
	for words, constraints := range map[string][]v1beta1.TopologyConstraint{
		"at most one topology constraint may be Required":                                      {required, {Key: "zone"}},
		"spec.schedulingConstraints.topology[0].mode":                                          {{Key: rack, Mode: "Often"}},
		"spec.schedulingConstraints.topology[0].key":                                           {{Key: ""}},
		"sliceSize must not be larger than spec.schedulingPolicy.gang.minCount":                {{Key: rack, SliceSize: size + 1}},
		"a topology constraint with a sliceSize must be Required":                              {{Key: rack, SliceSize: 2, Mode: v1beta1.TopologyPreferred}},
		"spec.schedulingConstraints.topology[0].sliceSize":                                     {{Key: rack, SliceSize: -1}},
		"at most one topology constraint may have a sliceSize":                                 {{Key: rack, SliceSize: 2}, {Key: "zone", SliceSize: 2}},
		"the key of a topology constraint with a sliceSize must differ from those of the othe": {required, {Key: rack, SliceSize: 2}},
	} {
		if err := w.gang("bad", "q0", constraints...); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v was answered with %v", constraints, err)
		}
	}

	// Gangs fill every rack, two in each: no rack may keep room for half a gang.
	for i := range 2 * racks {
		name := fmt.Sprint("gang-", i)
		w.check(w.gang(name, queues[i%len(queues)], required))
		w.pods(name, 0, size)
	}
	in := map[string]string{}
	for i := range 2 * racks {
		name := fmt.Sprint("gang-", i)
		if of := w.bound(name, size); len(of) != 1 {
			t.Errorf("%s is in %v", name, of)
		} else {
			in[name] = of[0]
		}
	}

	// Another one waits, with words: the nodes are full. There is a large one without a rack, too, so gangs are admitted, and find no rack.
	w.check(w.gang("later", "q1", required))
	w.pods("later", 0, size)
	w.says("later", "the nodes lack room for it")
	apart := kubelet.Node("apart", "64", "64Gi", 110)
	apart.Spec.Taints = []corev1.Taint{{Key: "apart", Effect: corev1.TaintEffectNoSchedule}}
	_, err = w.kube.Core.CoreV1().Nodes().Create(t.Context(), apart, metav1.CreateOptions{})
	w.check(err)
	w.says("later", "no domain of "+rack+" has room for any of 8 pods")

	// So does a further pod of one that is bound.
	w.pods("gang-0", size, size+1)
	w.says("gang-0", "the gang is in "+rack+"="+in["gang-0"]+", which has room for 0 of 1 pod")

	// It follows where a gang leaves.
	free := ""
	for i := 1; i < 2*racks && free == ""; i++ {
		if name := fmt.Sprint("gang-", i); in[name] != in["gang-0"] {
			free = name
		}
	}
	w.delete(free)
	if of := w.bound("later", size); !slices.Equal(of, []string{in[free]}) {
		t.Errorf("the gang that waited is in %v, and %s was freed", of, in[free])
	}

	// A shard dies: its heir finds the domain of each gang.
	all[1].Kill()
	for i := 1; i < 2*racks; i++ {
		if name := fmt.Sprint("gang-", i); in[name] == in["gang-0"] {
			w.delete(name)
		}
	}
	if of := w.bound("gang-0", size+1); !slices.Equal(of, []string{in["gang-0"]}) {
		t.Errorf("gang-0 was in %s, and is in %v", in["gang-0"], of)
	}

	// A gang that prefers a rack takes what there is: seven pods fit into the rack of gang-0, and one where another one leaves.
	w.check(w.gang("prefers", "q2", v1beta1.TopologyConstraint{Key: rack, Mode: v1beta1.TopologyPreferred}))
	w.pods("prefers", 0, size)
	w.says("prefers", "1 of 8 pods do not fit")
	now := int64(0)
	w.check(w.kube.Core.CoreV1().Pods("default").Delete(t.Context(), "later-0", metav1.DeleteOptions{GracePeriodSeconds: &now}))
	if of := w.bound("prefers", size); len(of) != 2 {
		t.Errorf("the gang is in %v", of)
	}

	// Slices: a gang goes where another leaves, each four of its pods in one rack.
	w.delete("prefers")
	w.delete("later")
	w.check(w.gang("slices", "q3", v1beta1.TopologyConstraint{Key: rack, SliceSize: 4}))
	w.pods("slices", 0, size)
	for _, p := range w.slices("slices", size) {
		if p%4 != 0 {
			t.Errorf("a rack has %d pods of a gang in slices of 4", p)
		}
	}
	if err := w.gang("nowhere", "q4", v1beta1.TopologyConstraint{Key: "example.com/nothing", SliceSize: 4}); err != nil {
		t.Error(err)
	}
	w.pods("nowhere", 0, size)
	w.says("nowhere", "no node has the label example.com/nothing")
}

// slices waits until so many pods of a gang have nodes, and returns how many each rack has.
func (w *world) slices(gang string, want int) (has map[string]int) {
	w.t.Helper()
	w.bound(gang, want)
	has = map[string]int{}
	list, err := w.kube.Core.CoreV1().Pods("default").List(w.t.Context(), metav1.ListOptions{LabelSelector: api.LabelPodGroup + "=" + gang})
	w.check(err)
	for _, p := range list.Items {
		node, err := w.kube.Core.CoreV1().Nodes().Get(w.t.Context(), p.Spec.NodeName, metav1.GetOptions{})
		w.check(err)
		has[node.Labels[rack]]++
	}
	return has
}
