package api_test

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/randfill"

	"basalt.dev/basalt/api"
)

// volumes is a cluster whose answers depend on what FromPod may hand on of a pod's volumes, and no less.
type volumes struct{}

func (volumes) Volumes(p *v1.Pod) (reach api.Reach, why string) {
	for i := range p.Spec.Volumes {
		v := &p.Spec.Volumes[i]
		if v.PersistentVolumeClaim == nil && v.Ephemeral == nil && v.AzureDisk == nil && v.Cinder == nil && v.PortworxVolume == nil {
			continue
		}
		name := fmt.Sprint(api.ClaimOf(p, v), v.PersistentVolumeClaim != nil, v.Ephemeral != nil, v.AzureDisk != nil, v.Cinder != nil, v.PortworxVolume != nil)
		switch xxhash.Sum64String(name) % 3 {
		case 0:
			return api.Reach{}, fmt.Sprintf("spec.volumes[%d]: %s", i, name)
		case 1:
			reach.Unbound, reach.Tied, reach.Note = true, api.ToOne, name
			reach.Where = append(reach.Where, &v1.NodeSelector{NodeSelectorTerms: []v1.NodeSelectorTerm{{MatchExpressions: []v1.NodeSelectorRequirement{{Key: "k", Operator: "In", Values: []string{name}}}}}})
		}
	}
	return reach, ""
}

func (volumes) DeviceClass(resource string) string {
	return map[string]string{"n/1": "class"}[resource]
}

// What is stripped is what nobody reads: random objects with every field set reduce to the same, also after they were
// written and read again, as the relay does.
func TestStripping(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0.8).NumElements(1, 2).MaxDepth(12).Funcs(
		func(q *resource.Quantity, c randfill.Continue) {
			*q = *resource.NewQuantity(c.Int63n(1<<40), resource.DecimalSI)
			_ = q.String() // it is kept, as in a quantity that was read
		},
		func(l *map[string]string, c randfill.Continue) {
			*l = map[string]string{}
			for _, k := range []string{api.LabelPodGroup, api.LabelQueue, api.LabelGang, "app"} {
				if c.Bool() {
					(*l)[k] = "v" + strconv.Itoa(c.Intn(5))
				}
			}
			for _, k := range []string{"scheduling.k8s.io/group-name", "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count",
				"leaderworkerset.sigs.k8s.io/group-key", "leaderworkerset.sigs.k8s.io/size", api.AnnotationGangName, api.AnnotationGangMin, api.AnnotationGangLabels,
				"volcano.sh/task-spec", "scheduling.volcano.sh/queue-name"} {
				if c.Intn(8) == 0 {
					(*l)[k] = strings.Repeat([]string{"ü", "0", "g", "-"}[c.Intn(4)], c.Intn(300)) + strconv.Itoa(c.Intn(5))
				}
			}
			if c.Intn(8) == 0 {
				(*l)[api.AnnotationGangLabels] = "app"
			}
			if n := len(*l); n%3 == 1 {
				(*l)[api.AnnotationMaxRuntime] = []string{"90s", "12h", "never", "1" + strings.Repeat("0", 60) + "h"}[n/3%4]
			}
			if n := len(*l); n%2 == 1 {
				(*l)[api.AnnotationUntil] = []string{"2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z", "soon",
					"1969-01-01T00:00:00Z"}[n/2%4]
			}
			if n := len(*l); n > 0 {
				(*l)[v1.PodDeletionCost] = strings.Repeat("0", 3*n) + strconv.Itoa(n)
			}
		},
		func(t *metav1.Time, c randfill.Continue) { *t = metav1.Unix(c.Int63n(1<<31), 0) },
		func(s *string, c randfill.Continue) { // rarely the same is often enough
			words := []string{"", "basalt", "Succeeded", "Failed", "PodScheduled", "False", "True", "Always", "DoNotSchedule", "cpu", "n1", "n/1", "TCP", v1.PodReasonInfeasible}
			*s = words[c.Intn(len(words))]
		},
		func(s *v1.PodPhase, c randfill.Continue) {
			*s = []v1.PodPhase{"", v1.PodRunning, v1.PodFailed}[c.Intn(3)]
		},
		func(s *v1.PodConditionType, c randfill.Continue) {
			*s = []v1.PodConditionType{"", v1.PodScheduled, v1.PodResizePending}[c.Intn(3)]
		},
		func(s *v1.ConditionStatus, c randfill.Continue) {
			*s = []v1.ConditionStatus{v1.ConditionTrue, v1.ConditionFalse}[c.Intn(2)]
		},
		func(s *v1.ContainerRestartPolicy, c randfill.Continue) {
			*s = []v1.ContainerRestartPolicy{"Always", "Never"}[c.Intn(2)]
		},
		func(s *v1.UnsatisfiableConstraintAction, c randfill.Continue) {
			*s = []v1.UnsatisfiableConstraintAction{"DoNotSchedule", "ScheduleAnyway"}[c.Intn(2)]
		},
		func(m *metav1.FieldsV1, c randfill.Continue) {},
	)
	var claims volumes
	refused, classes, implied, perController := map[string]bool{}, map[string]bool{}, 0, 0
	for i := range 400 {
		p := &v1.Pod{}
		fill.Fill(&p.ObjectMeta)
		fill.Fill(&p.Spec)
		if i%2 == 0 {
			p.Spec.SchedulerName, p.Spec.NodeName = api.SchedulerName, ""
		}
		if i%4 == 0 {
			delete(p.Labels, api.LabelPodGroup)
			p.Spec.SchedulingGroup = nil
			for j := range p.OwnerReferences {
				p.OwnerReferences[j].UID = types.UID(strings.Repeat("u", i))
			}
		}
		if i%6 == 0 {
			p.OwnerReferences = []metav1.OwnerReference{{UID: types.UID(strings.Repeat("u", i)), Controller: new(i%12 == 0)}}
			p.Annotations["scheduling.k8s.io/group-name"] = api.VolcanoPerController + strings.Repeat("u", i)
		}
		fill.Fill(&p.Status.Phase)
		if i%5 == 0 {
			p.Status.Phase = []v1.PodPhase{v1.PodSucceeded, v1.PodFailed}[i/5%2]
		}
		fill.Fill(&p.Status.Conditions)
		fill.Fill(&p.Status.ContainerStatuses)
		fill.Fill(&p.Status.InitContainerStatuses)
		fill.Fill(&p.Status.AllocatedResources)
		fill.Fill(&p.Status.Resources)
		rules := api.Rules{Volcano: i%3 == 0}
		before := p.DeepCopy()
		stripped := api.StripPod(p)
		want := api.FromPod(p, claims, rules)
		if got := api.FromPod(stripped, claims, rules); !reflect.DeepEqual(got, want) {
			t.Fatalf("stripped, a pod reduces to %+v, not %+v", got, want)
		}
		if !reflect.DeepEqual(p, before) {
			t.Fatal("stripping changed the pod")
		}
		b, err := stripped.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		read := &v1.Pod{}
		if err := read.Unmarshal(b); err != nil {
			t.Fatal(err)
		}
		if got := api.FromPod(read, claims, rules); !reflect.DeepEqual(got, want) {
			t.Fatalf("stripped, written and read, a pod reduces to %+v, not %+v", got, want)
		}
		if want.Refused != nil {
			refused[want.Refused.Message] = true
		}
		classes[want.Class.Key] = true
		if want.GroupKind == api.ImpliedGroup {
			implied++
		}
		if want.PerController {
			perController++
		}

		n := &v1.Node{}
		fill.Fill(&n.ObjectMeta)
		fill.Fill(&n.Spec)
		fill.Fill(&n.Status.Allocatable)
		if got, want := api.FromNode(api.StripNode(n), nil), api.FromNode(n, nil); !reflect.DeepEqual(got, want) {
			t.Fatalf("stripped, a node reduces to %+v, not %+v", got, want)
		}
	}
	if len(refused) < 5 || len(classes) < 100 || implied < 20 || perController < 5 {
		t.Fatalf("the random pods were refused for %d reasons, had %d classes, and %d were of implied groups: too few to show anything", len(refused), len(classes), implied)
	}
}
