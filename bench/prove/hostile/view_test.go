package hostile

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/wire"
)

// The judge of the suite finds what it is for: each line of a script is an event or a question, with the answer.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name   string
		events []string
		exact  bool
		want   string // part of the complaint; "" for none
	}{
		{name: "as it should be", events: []string{"reserve a org.evil 4", "wait a 4", "bind a 4 a"}, exact: true},
		{name: "a charge is given back while the pod runs", events: []string{"reserve a org.evil 4", "wait a 4", "bind a 4 a", "release a"}, want: "nothing is charged for it"},
		{name: "too little is charged", events: []string{"reserve a org.evil 3", "wait a 4", "bind a 4 a"}, want: "3000 m are charged"},
		{name: "a charge outlives its pod", events: []string{"reserve a org.evil 4", "wait a 4", "bind a 4 a", "gone a"}, exact: true, want: "none waits"},
		{name: "a charge ahead of a pod that waits", events: []string{"reserve a org.evil 4", "wait a 4"}, exact: true},
		{name: "a pod that somebody else bound", events: []string{"bind a 4 a"}, exact: true},
		{name: "above the limit of the queue", events: []string{"reserve a org.evil 4", "reserve b org.evil 4", "wait a 4", "bind a 4 a", "wait b 4", "bind b 4 b"}, want: "limited to 6000 m"},
		{name: "above the limit of an ancestor", events: []string{"reserve a org.good1 9", "wait a 9", "bind a 9 a"}, want: "limited to 8000 m"},
		{name: "the label of the gang is edited afterwards", events: []string{"reserve a org.evil 4", "wait a 4", "bind a 4 a", "bind a 4 x"}, exact: true},
		{name: "one after the other, in two lists", events: []string{"reserve a org.evil 4", "wait a 4", "bind a 4 a", "reserve b org.evil 4", "wait b 4", "list b 4 b", "release a"}, exact: true},
		{name: "a list shows an end after a start", events: []string{"reserve b org.evil 4", "wait b 4", "bind b 4 b", "wait a 4", "reserve a org.evil 4", "list a 4 a b 4 b/ended"}},
		{name: "a list shows more than the limit", events: []string{"reserve a org.evil 4", "reserve b org.evil 4", "wait a 4", "wait b 4", "list a 4 a b 4 b"}, want: "limited to 6000 m"},
		{name: "resized down, and the kubelet says otherwise", events: []string{"reserve a org.evil 4", "wait a 4", "bind a 4 a", "bind a 1 a/4", "reserve b org.evil 4", "wait b 4", "bind b 4 b"}, want: "limited to 6000 m"},
		{name: "resized down, and too little is charged", events: []string{"reserve a org.evil 4", "wait a 4", "bind a 4 a", "bind a 1 a/4", "reserve a org.evil 1"}, want: "1000 m are charged"},
		{name: "resized down before the kubelet says anything", events: []string{"reserve a org.evil 4", "wait a 4", "bind a 4 a", "bind a 1 a", "reserve a org.evil 1", "reserve b org.evil 4", "wait b 4", "bind b 4 b", "bind a 1 a/4"}},
		{name: "resized up", events: []string{"reserve a org.evil 4", "wait a 4", "bind a 4 a", "bind a 9 a/4", "reserve b org.evil 2", "wait b 2", "bind b 2 b"}, exact: true},
		{name: "one after the other", events: []string{"reserve a org.evil 4", "wait a 4", "bind a 4 a", "gone a", "release a", "reserve b org.evil 4", "wait b 4", "bind b 4 b"}, exact: true},
	} {
		v := newView()
		v.limits["org.evil"], v.limits["org"] = 6_000, 8_000
		for i, e := range c.events {
			v.observe(time.Now(), event(t, e, int64(i+1)))
		}
		_, err := v.compare(evil, c.exact)
		complaint := strings.Join(v.over, "; ")
		if err != nil {
			complaint += err.Error()
		}
		if (c.want == "") != (complaint == "") || !strings.Contains(complaint, c.want) {
			t.Errorf("%s: %q, want %q", c.name, complaint, c.want)
		}
	}
}

// event reads an event. A bound pod is written as its name, its cores, and its gang; after a slash, it has ended, or its status
// says how many cores its container has.
func event(t *testing.T, text string, revision int64) audit.Event {
	f := strings.Fields(text)
	pod := func(name, cores string) *v1.Pod {
		p := (&strike{Attacker: &Attacker{Target: Target{Namespace: evil, Queue: evilQueue}}}).pod(name)
		p.UID = types.UID(name)
		return ask(p, amounts("cpu", cores))
	}
	bound := func(name, cores, rest string) *v1.Pod {
		p := pod(name, cores)
		gang, status, _ := strings.Cut(rest, "/")
		p.Spec.NodeName, p.Labels[api.LabelGang] = "n", gang
		switch status {
		case "":
		case "ended":
			p.Status.Phase = v1.PodSucceeded
		default:
			p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: p.Spec.Containers[0].Name, AllocatedResources: amounts("cpu", status)}}
		}
		return p
	}
	switch f[0] {
	case "wait":
		return audit.Seen[*v1.Pod]{Object: pod(f[1], f[2])}
	case "bind":
		return audit.Seen[*v1.Pod]{Object: bound(f[1], f[2], f[3])}
	case "list":
		var all audit.Listed[*v1.Pod]
		for one := range slices.Chunk(f[1:], 3) {
			all.Objects = append(all.Objects, bound(one[0], one[1], one[2]))
		}
		return all
	case "gone":
		return audit.Gone[*v1.Pod]{Object: pod(f[1], "0")}
	case "release":
		return audit.StoreRevision{Revision: revision, Changes: []audit.StoreChange{{Key: "reservations/0001/" + f[1], Deleted: true}}}
	case "reserve":
		var cores int64
		if _, err := fmt.Sscan(f[3], &cores); err != nil {
			t.Fatal(err)
		}
		value, err := proto.Marshal(&wire.ReservationRecord{Gang: &wire.GangRef{Uid: f[1], Name: f[1], Namespace: evil, Queue: f[2]},
			Demand: []*wire.Amount{{Resource: "cpu", Value: cores * 1000}}})
		if err != nil {
			t.Fatal(err)
		}
		return audit.StoreRevision{Revision: revision, Changes: []audit.StoreChange{{Key: "reservations/0001/" + f[1], Value: value}}}
	}
	t.Fatalf("no event %q", text)
	return nil
}

func TestSilent(t *testing.T) {
	old := metav1.NewTime(time.Now().Add(-time.Hour))
	pod := func(name string, edit func(*v1.Pod)) *v1.Pod {
		p := (&strike{Attacker: &Attacker{Target: Target{Namespace: evil}}}).pod(name)
		p.UID, p.CreationTimestamp = types.UID(name), old
		edit(p)
		return p
	}
	said := func(message string) func(*v1.Pod) {
		return func(p *v1.Pod) {
			p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionFalse, Reason: "R", Message: message}}
		}
	}
	v := newView()
	for _, p := range []*v1.Pod{
		pod("told", said("spec.affinity: too large")), pod("silent", func(*v1.Pod) {}), pod("other", said("no")),
		pod("gated", func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "g"}} }),
		pod("bound", func(p *v1.Pod) { p.Spec.NodeName = "n" }), pod("foreign", func(p *v1.Pod) { p.Spec.SchedulerName = "x" }),
		pod("new", func(p *v1.Pod) { p.CreationTimestamp = metav1.Now() }),
	} {
		v.observe(time.Now(), audit.Seen[*v1.Pod]{Object: p})
	}
	if found, judged := v.silent(evil, []string{"affinity"}, time.Minute); len(found) != 2 || judged != 3 {
		t.Errorf("found %q of %d", found, judged)
	}
	if found, _ := v.silent(evil, nil, time.Minute); len(found) != 1 || !strings.Contains(found[0], "silent") {
		t.Errorf("found %q", found)
	}
}

func TestLatency(t *testing.T) {
	m := &items{}
	begin := time.Now().Add(-2 * time.Hour)
	m.begun("late", time.Now().Add(-time.Hour))
	for i := range 99 {
		name := fmt.Sprint(i)
		m.begun(name, begin)
		m.begun(name, begin.Add(time.Minute))
		m.done(name, begin.Add(time.Minute+time.Duration(i)*time.Millisecond))
	}
	l := m.between([2]time.Time{begin, time.Now()})
	if l.Items != 100 || l.P50 != 50*time.Millisecond || l.P99 < time.Hour || l.Most < time.Hour {
		t.Errorf("latency %+v", l)
	}
	if l := m.between([2]time.Time{begin, begin.Add(time.Second)}); l.Items != 0 {
		t.Errorf("latency %+v of an empty interval", l)
	}
	if n := m.waiting(time.Now()); n != 1 {
		t.Errorf("%d items wait", n)
	}
}

// What the control group waits longer is not held against Basalt; what others wait longer than that is.
func TestSlowed(t *testing.T) {
	ms := func(tenants, floor int) Waits {
		of := func(p99 int) Latency { return Latency{Items: 100, P99: time.Duration(p99) * time.Millisecond} }
		return Waits{of(tenants), of(floor)}
	}
	r := &Result{Quiet: ms(100, 10), Rows: []Row{
		{Attack: "none", Quiet: ms(80, 10), Under: ms(240, 10), Standing: ms(100, 10)},
		{Attack: "basalt", Quiet: ms(80, 10), Under: ms(400, 90), Standing: ms(100, 10)},
		{Attack: "server", Quiet: ms(80, 10), Under: ms(400, 170), Standing: ms(100, 10)},
		{Attack: "afterwards", Quiet: ms(80, 10), Under: ms(100, 10), Standing: ms(900, 10)},
		{Attack: "another-time", Quiet: ms(80, 10), Under: ms(100, 900), Standing: ms(900, 10)},
		{Attack: "faster", Quiet: ms(80, 100), Under: ms(240, 10), Standing: ms(100, 10)},
	}}
	got := ""
	for _, s := range r.Slowed() {
		got += fmt.Sprintf("%s %t ", s.Attack, s.Standing)
	}
	if want := "basalt false afterwards true another-time true "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
