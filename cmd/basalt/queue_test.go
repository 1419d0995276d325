package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/v1beta1"
)

func TestPrintTree(t *testing.T) {
	list := func(of ...string) v1.ResourceList {
		l := v1.ResourceList{}
		for i := 0; i < len(of); i += 2 {
			l[v1.ResourceName(of[i])] = resource.MustParse(of[i+1])
		}
		return l
	}
	queues := []v1beta1.Queue{
		{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1beta1.QueueSpec{Capability: list("cpu", "16", "nvidia.com/gpu", "0")},
			Status: &v1beta1.QueueStatus{Charged: list("cpu", "3", "memory", "2Gi"), AdmittedGangs: 2, WaitingGangs: 1, Limits: v1beta1.LimitsInForce{Guarantee: list("cpu", "4"), Deserved: list("cpu", "4")}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "a.b"}, Status: &v1beta1.QueueStatus{Limits: v1beta1.LimitsInForce{Guarantee: list("cpu", "4"), Deserved: list("cpu", "8", "memory", "1Gi")},
			Conditions: []metav1.Condition{{Type: v1beta1.ConditionReady, Reason: "Ready", Message: v1beta1.MessageReady}}}},
		{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: v1beta1.QueueSpec{Capability: list(api.ResourceGangs, "20")},
			Status: &v1beta1.QueueStatus{Charged: list(api.ResourceGangs, "20"), AdmittedGangs: 20}},
		{ObjectMeta: metav1.ObjectMeta{Name: "new"}},
	}
	var b strings.Builder
	printTree(&b, queues, false)
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	want := []string{
		"QUEUE CHARGED ADMITTED WAITING READY MESSAGE",
		"a cpu 3/16, memory 2Gi, nvidia.com/gpu 0/0 2 1",
		"a.b cpu 0 (deserves 8), memory 0 (deserves 1Gi) 0 0 Ready",
		"c gangs 20/20 20 0",
		"new not seen by Basalt yet",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	b.Reset()
	if printTree(&b, queues, true); !strings.Contains(b.String(), v1beta1.MessageReady) {
		t.Errorf("with -o wide:\n%s", b.String())
	}
}

// What queues say about evictions is shown where one says anything.
func TestPrintPolicies(t *testing.T) {
	var b strings.Builder
	printTree(&b, []v1beta1.Queue{
		{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: v1beta1.QueueSpec{Reclaimable: new(false), ReclaimPolicy: "FairShare", PreemptionPolicy: "PreemptLowerPriority",
			ReclaimMinRuntime: &metav1.Duration{Duration: 10 * time.Minute}, PreemptionDelay: &metav1.Duration{}}, Status: &v1beta1.QueueStatus{}},
		{ObjectMeta: metav1.ObjectMeta{Name: "b"}, Spec: v1beta1.QueueSpec{Reclaimable: new(true)}, Status: &v1beta1.QueueStatus{}},
		{ObjectMeta: metav1.ObjectMeta{Name: "c"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "d"}, Spec: v1beta1.QueueSpec{UserLimits: []v1beta1.UserLimit{
			{Users: []string{"alice"}, Capability: v1.ResourceList{"cpu": resource.MustParse("64")}},
			{Groups: []string{"a", "b"}, Capability: v1.ResourceList{"cpu": resource.MustParse("1500m")}},
			{Each: true, Capability: v1.ResourceList{"cpu": resource.MustParse("8"),
				api.ResourceGangs: resource.MustParse("2")}}}},
			Status: &v1beta1.QueueStatus{}},
		{ObjectMeta: metav1.ObjectMeta{Name: "e"}, Spec: v1beta1.QueueSpec{UserLimits: make([]v1beta1.UserLimit, 64)},
			Status: &v1beta1.QueueStatus{}},
	}, false)
	for _, want := range []string{"READY  MESSAGE",
		"  not reclaimable, reclaims FairShare, preempts PreemptLowerPriority, min before reclaim 10m0s, delay 0s\n",
		"user alice at most 64 cpu, 2 groups at most 1500m cpu, each user at most 8 cpu and 2 gangs\n",
		"64 limits of users\n", "not seen by Basalt yet"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("want %q in\n%s", want, b.String())
		}
	}
}

// A queue is closed or open when its status says so, or it is said why that is not known.
func TestAwaitSwitch(t *testing.T) {
	queue := func(uid string, closed bool, observed int64, reason string) *v1beta1.Queue {
		q := &v1beta1.Queue{
			ObjectMeta: metav1.ObjectMeta{Name: "q", UID: types.UID(uid), Generation: 2},
			Spec:       v1beta1.QueueSpec{Closed: closed},
		}
		if reason != "" {
			status := metav1.ConditionFalse
			if reason == v1beta1.ReasonReady {
				status = metav1.ConditionTrue
			}
			q.Status = &v1beta1.QueueStatus{ObservedGeneration: observed,
				Conditions: []metav1.Condition{{Type: v1beta1.ConditionReady, Status: status, Reason: reason, Message: "words"}}}
		}
		return q
	}
	about := schema.GroupResource{Resource: "queues"}
	for _, row := range []struct {
		what   string
		closed bool
		then   []any // *v1beta1.Queue or error
		says   string
		fails  string
	}{
		{"closed", true, []any{queue("u", true, 1, "Ready"), queue("u", true, 2, "Closed")}, "", ""},
		{"open", false, []any{queue("u", false, 0, ""), queue("u", false, 2, "Ready")}, "", ""},
		{"open below one that is closed", false, []any{queue("u", false, 2, "ParentClosed")},
			"; it is not ready: ParentClosed: words", ""},
		{"not to be seen", true, []any{apierrors.NewForbidden(about, "q", errors.New("no"))},
			"; you may not get it, so when its status says so is not awaited", ""},
		{"an API server away", true, []any{errors.New("refused"), queue("u", true, 3, "Closed")}, "", ""},
		{"opened meanwhile", true, []any{queue("u", false, 3, "Ready")}, "", "somebody else has changed it again"},
		{"deleted", true, []any{apierrors.NewNotFound(about, "q")}, "", "somebody has deleted it"},
		{"made anew", true, []any{queue("v", true, 2, "Closed")}, "", "somebody has deleted it"},
		{"nobody leads", true, []any{queue("u", true, 1, "Ready")}, "", "it is done as soon as a coordinator reads it"},
	} {
		synctest.Test(t, func(t *testing.T) {
			then := row.then
			says, err := awaitSwitch(
				t.Context(),
				queue("u", row.closed, 0, ""),
				time.Minute,
				func(context.Context) (*v1beta1.Queue, error) {
					now := then[0]
					if len(then) > 1 {
						then = then[1:]
					}
					if err, failed := now.(error); failed {
						return nil, err
					}
					return now.(*v1beta1.Queue), nil
				},
			)
			if says != row.says || (err == nil) != (row.fails == "") ||
				err != nil && !strings.Contains(err.Error(), row.fails) {
				t.Errorf("%s: %q, %v", row.what, says, err)
			}
		})
	}
}
