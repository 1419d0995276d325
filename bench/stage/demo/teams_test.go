package demo

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

func TestMain(m *testing.M) { localtest.Run(m) }

// Part 3, with Basalt's own processes: prod gets what it deserves, and everything runs whole.
func TestDemoTakesBack(t *testing.T) {
	localtest.Programs(t, "etcd", "kube-apiserver")
	program := localtest.Basalt(t)
	var out bytes.Buffer
	report := filepath.Join(t.TempDir(), "report")
	sampled := map[string]float64{}
	ok, err := Run(
		t.Context(),
		Options{
			Seed:    3,
			Shards:  2,
			Scale:   0.02,
			Out:     &out,
			Report:  report,
			without: map[int]bool{1: true, 2: true},
			system: func(c *local.Cluster) system {
				return &sampledAtStop{&processes{cluster: c, shards: 2, program: program}, t, sampled}
			},
		},
	)
	t.Log(out.String())
	if err != nil || !ok {
		t.Fatalf("ok %t: %v", ok, err)
	}
	wantOneScreen(t, out.String(), report)
	written, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"gangs_evicted":6,`, "prod creates 6 gangs", " is evicted for prod-",
		"[BBBBBBPPPPPP]    192   192 ",
		"Preempted  evicted so that gang teams/prod-", "Claimed  evicted for it: gang teams/batch-",
		"PodGroupInitiallyScheduled=False, ", "QuotaReserved=False, QuotaExceeded: ", "18 gangs ran 24 times with all 8 pods, never in part: ", "kubectl describe podgroup -n teams prod-",
		"the claim of prod-", "the claim is written, which decides: batch-", "the last of them is gone", "what they left is charged to the gang", "all of its pods have nodes"} {
		if !strings.Contains(string(written), want) {
			t.Errorf("the report lacks %q:\n%s", want, written)
		}
	}
	for name, want := range map[string]float64{`basalt_evicted_gangs_total{rule="reclaim"}`: 6, `basalt_evicted_gangs_total{rule="preempt"}`: 0, `basalt_claims_total{outcome="made"}`: 6, `basalt_claims_total{outcome="dropped"}`: 0} {
		if sampled[name] != want {
			t.Errorf("%s is %g, want %g", name, sampled[name], want)
		}
	}
}

// sampledAtStop adds up what the coordinators count when they are stopped.
type sampledAtStop struct {
	*processes
	t       *testing.T
	sampled map[string]float64
}

func (s *sampledAtStop) stop() {
	for _, b := range s.running {
		if b.Role != "coordinator" {
			continue
		}
		got, err := b.Samples(s.t.Context())
		if err != nil {
			s.t.Error(err)
		}
		for name, v := range got {
			s.sampled[name] += v
		}
	}
	s.processes.stop()
}

// A gang's run is whole, or it is told what it is not.
func TestTeams(t *testing.T) {
	begin := time.Now()
	for _, c := range []struct {
		name, script string // b: the next pod is bound; e: it ended; d: it is being deleted; g: it is gone; r: a list without any pod; capitals: of all eight
		runs         int
		evicted      int
		lost         int
		inPart       string
	}{
		{"runs to its end", "BE", 1, 0, 0, ""},
		{"is evicted and runs again", "BDGB", 2, 1, 8, ""},
		{"is gone at once", "BG", 1, 1, 8, ""},
		{"is gone while nobody watched", "Br", 1, 1, 8, ""},
		{"starts in part", "bbb", 0, 0, 0, ""},
		{"starts in part and leaves", "bbd", 0, 0, 0, "a pod of gang batch-00 left while the gang was starting"},
		{"leaves in part and starts", "Bdb", 1, 0, 0, "a pod of gang batch-00 was bound while 7 others ran or left"},
		{"grows", "Bb", 1, 0, 0, "a pod of gang batch-00 was bound while 8 others ran or left"},
	} {
		x, at := newTeams(), begin
		x.reserved(at, &wire.ReservationRecord{Gang: &wire.GangRef{Namespace: teamsNamespace, Name: "batch-00"}, Yields: &wire.Yielding{To: &wire.GangRef{Name: "prod-00"}}})
		bound, left, gone := 0, 0, 0
		pod := func(i int) *v1.Pod {
			return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: teamsNamespace, UID: types.UID(fmt.Sprint(i)), Labels: map[string]string{api.LabelPodGroup: "batch-00"}}, Spec: v1.PodSpec{NodeName: "n"}}
		}
		for _, what := range c.script {
			n := 1
			if what < 'a' {
				n, what = teamPods, what-'A'+'a'
			}
			for range n {
				at = at.Add(10 * time.Millisecond)
				switch what {
				case 'b':
					x.observe(at, audit.Seen[*v1.Pod]{Object: pod(bound)})
					bound++
				case 'e':
					p := pod(left)
					p.Status.Phase = v1.PodSucceeded
					x.observe(at, audit.Seen[*v1.Pod]{Object: p})
					left++
				case 'd':
					p := pod(left)
					p.DeletionTimestamp = &metav1.Time{Time: at}
					x.observe(at, audit.Seen[*v1.Pod]{Object: p})
					left++
				case 'g':
					x.observe(at, audit.Gone[*v1.Pod]{Object: pod(gone)})
					gone++
				case 'r':
					x.observe(at, audit.Listed[*v1.Pod]{})
				}
			}
		}
		g := x.byName["batch-00"]
		if in := strings.Join(x.inPart, "; "); g.runs != c.runs || g.evicted != c.evicted || len(x.lost) != c.lost || in != c.inPart {
			t.Errorf("%s: %d runs, evicted %d times, %d pods lost; %s", c.name, g.runs, g.evicted, len(x.lost), in)
		}
		rows := ""
		for _, r := range x.rows(begin) {
			rows += r.text + "\n"
		}
		if want := g.evicted > 0; strings.Contains(rows, "batch-00 is evicted for prod-00") != want && c.inPart == "" {
			t.Errorf("%s:\n%s", c.name, rows)
		}
	}
}

// A claim is traced from what the watches show, in whatever order.
func TestClaimIsTraced(t *testing.T) {
	begin := time.Now()
	x := newTeams()
	at := func(ms int) time.Time { return begin.Add(time.Duration(ms) * time.Millisecond) }
	ref := func(name string) *wire.GangRef {
		return &wire.GangRef{Namespace: teamsNamespace, Name: name, Uid: "u-" + name}
	}
	pod := func(gang string, i int) *v1.Pod {
		return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: teamsNamespace, UID: types.UID(fmt.Sprint(gang, i)), Labels: map[string]string{api.LabelPodGroup: gang}}, Spec: v1.PodSpec{NodeName: "n"}}
	}
	for i := range teamPods {
		x.observe(at(-100), audit.Seen[*v1.Pod]{Object: pod("batch-03", i)})
	}
	prod := x.byName["prod-00"]
	prod.claim.asked = at(0)
	if lines := prod.traced(); lines != nil {
		t.Errorf("it has no claim yet: %v", lines)
	}
	x.reserved(at(-200), &wire.ReservationRecord{Gang: ref("batch-03")})
	x.reserved(at(2000), &wire.ReservationRecord{Gang: ref("prod-00"), Claim: &wire.ClaimRecord{Victims: []*wire.Victim{{Gang: &wire.GangRef{Uid: "u-batch-03"}}}}})
	x.reserved(at(2100), &wire.ReservationRecord{Gang: ref("batch-03"), Yields: &wire.Yielding{To: ref("prod-00")}})
	for i := range teamPods {
		p := pod("batch-03", i)
		p.DeletionTimestamp = &metav1.Time{Time: at(2200)}
		x.observe(at(2200+i), audit.Seen[*v1.Pod]{Object: p})
	}
	for i := range teamPods {
		x.observe(at(3200+i), audit.Gone[*v1.Pod]{Object: pod("batch-03", i)})
	}
	x.reserved(at(3300), &wire.ReservationRecord{Gang: ref("prod-00"), Demand: []*wire.Amount{{Resource: "cpu", Value: 1}}})
	for i := range teamPods {
		x.observe(at(3993+i), audit.Seen[*v1.Pod]{Object: pod("prod-00", i)})
	}
	var got []string
	for _, line := range prod.traced() {
		got = append(got, strings.Join(strings.Fields(line)[:1], " "))
	}
	if v := prod.claim.victims; len(v) != 1 || v[0] != "batch-03" {
		t.Errorf("the victims are %q", v)
	}
	if want := "0.00 2.00 2.10 2.20 3.21 3.30 4.00"; strings.Join(got, " ") != want {
		t.Errorf("steps at %v, want %s:\n%s", got, want, strings.Join(prod.traced(), "\n"))
	}
	t.Log("\n" + strings.Join(prod.traced(), "\n"))
}
