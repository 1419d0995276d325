package demo

import (
	"bytes"
	"fmt"
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
	root, err := local.Root()
	if err != nil {
		t.Fatal(err)
	}
	if err := local.Programs(t.Context(), root, t.Output(), "etcd", "kube-apiserver"); err != nil {
		t.Fatal(err)
	}
	program := localtest.Basalt(t)
	var out bytes.Buffer
	sampled := map[string]float64{}
	ok, err := Run(t.Context(), Options{Seed: 3, Shards: 2, Scale: 0.02, Out: &out, without: map[int]bool{1: true, 2: true}, system: func(c *local.Cluster) system {
		return &sampledAtStop{&processes{cluster: c, shards: 2, program: program}, t, sampled}
	}})
	t.Log(out.String())
	if err != nil || !ok {
		t.Fatalf("ok %t: %v", ok, err)
	}
	for _, want := range []string{`"gangs_evicted":6,`, "prod creates 6 gangs", " is evicted for prod-", "[BBBBBBBBBBBBPPPPPPPPPPPP]    192    192 ", "Preempted  evicted so that gang teams/prod-", "Claimed  evicted for it: gang teams/batch-",
		"PodGroupInitiallyScheduled=False, ", "QuotaReserved=False, QuotaExceeded: ", "18 gangs ran 24 times with all 8 pods, never in part: ", "kubectl describe podgroup -n teams prod-"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q", want)
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
		x.reserved(&wire.ReservationRecord{Gang: &wire.GangRef{Namespace: teamsNamespace, Name: "batch-00"}, Yields: &wire.Yielding{To: &wire.GangRef{Name: "prod-00"}}})
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
					x.observe(at, audit.PodSeen{Pod: pod(bound)})
					bound++
				case 'e':
					p := pod(left)
					p.Status.Phase = v1.PodSucceeded
					x.observe(at, audit.PodSeen{Pod: p})
					left++
				case 'd':
					p := pod(left)
					p.DeletionTimestamp = &metav1.Time{Time: at}
					x.observe(at, audit.PodSeen{Pod: p})
					left++
				case 'g':
					x.observe(at, audit.PodGone{Pod: pod(gone)})
					gone++
				case 'r':
					x.observe(at, audit.PodsReplaced{})
				}
			}
		}
		g := x.byName["batch-00"]
		if in := strings.Join(x.inPart, "; "); g.runs != c.runs || g.evicted != c.evicted || len(x.lost) != c.lost || in != c.inPart {
			t.Errorf("%s: %d runs, evicted %d times, %d pods lost; %s", c.name, g.runs, g.evicted, len(x.lost), in)
		}
		rows := strings.Join(x.rows(begin), "\n")
		if want := g.evicted > 0; strings.Contains(rows, "batch-00 is evicted for prod-00") != want && c.inPart == "" {
			t.Errorf("%s:\n%s", c.name, rows)
		}
	}
}
