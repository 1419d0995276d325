package cluster

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/measure/report"
	"basalt.dev/basalt/bench/measure/scenario"
	"basalt.dev/basalt/bench/measure/workload"
	"basalt.dev/basalt/bench/stage/local"
	"basalt.dev/basalt/bench/stage/local/localtest"
)

// A few hundred pods through everything: all of them are bound, finish and leave nothing behind, and no node is over-committed.
// Nothing here depends on how fast the machine is: the drain waits for minutes if it has to.
func TestSmallCluster(t *testing.T) {
	localtest.Etcd(t) // builds the program
	root, err := local.Root()
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse("small", []byte(`
about: a few hundred pods
nodes: [{count: 60, cpu: "8", memory: 32Gi}]
queues: {fanOut: [1, 2, 2, 2], capabilityPercent: [90, 90, 100, 300]}
gangs:
- {name: gang, size: {min: 1, max: 60}, pods: [{cpu: "1", memory: 2Gi}], lifetime: {min: 100ms, max: 300ms}}
arrivals: {open: {podsPerSecond: [300], for: 2s}}
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.WithoutCancel(t.Context()), Options{Root: root, Dir: t.TempDir(), Shards: 2, Scenario: s, Seed: 1, Measure: 2 * time.Second, Drain: 3 * time.Minute, Progress: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Left) > 0 || len(r.Overcommitted) > 0 || r.RefusedWrongly > 0 {
		t.Errorf("left %v, over-committed %v, refused wrongly %d", r.Left, r.Overcommitted, r.RefusedWrongly)
	}
	if r.Conflicts["queues"]+r.Conflicts["podgroups"] > 0 {
		t.Errorf("statuses met conflicts: %v", r.Conflicts)
	}
	if r.TotalPods != r.MadePods || r.MadePods < 100 {
		t.Errorf("%d pods were bound of %d made", r.TotalPods, r.MadePods)
	}
}

// Claims over two shards: each gang starts at the expense of others, nobody is evicted for two of them or in vain, also when the leader changes,
// and who was evicted runs again. How long any of it takes is not judged.
func TestClaims(t *testing.T) {
	localtest.Etcd(t) // builds the program
	root, err := local.Root()
	if err != nil {
		t.Fatal(err)
	}
	s, err := scenario.Parse("small", []byte(`
about: 64 cores lent, of which half are taken back
nodes: [{count: 8, cpu: "8", memory: 32Gi}]
queues: {fanOut: [1, 2, 2], capabilityPercent: [100], deservedPercent: [0, 100, 100]}
gangs:
- {name: lent, size: {min: 2, max: 2}, pods: [{cpu: "1", memory: 1Gi}]}
claims: {pods: 32, together: 4, leave: 1s}
arrivals: {closed: {gangs: 32}}
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Run(context.WithoutCancel(t.Context()), Options{Root: root, Dir: t.TempDir(), Shards: 2, Scenario: s, Seed: 1, Measure: time.Second, Progress: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Overcommitted) > 0 || len(r.Claims.Problems) > 0 {
		t.Errorf("over-committed %v; %v", r.Overcommitted, r.Claims.Problems)
	}
	if len(r.Claims.Rounds) != 3 || r.Claims.Failover <= 0 || r.Claims.FailoverClaiming <= 0 {
		t.Fatalf("%+v", r.Claims)
	}
	for _, of := range r.Claims.Rounds {
		// 16 gangs of two give 32 cores.
		if of.Decided.Count() != int64(of.Gangs) || of.Victims != 16 || of.VictimPods < 2*of.Victims || of.Closed.Count() != int64(of.Victims) || of.Unseen > 0 {
			t.Errorf("%s: %d gangs, %d claims decided, %d victims of which %d were closed, %d pods evicted, %d without spans", of.Name, of.Gangs, of.Decided.Count(), of.Victims, of.Closed.Count(), of.VictimPods, of.Unseen)
		}
		if of.Bound <= 0 || of.Gone <= 0 || of.Bound < of.Gone || of.Plan.Count() != int64(of.Gangs) {
			t.Errorf("%s: the last pod was gone after %s, the last claimant bound after %s, %d plans", of.Name, of.Gone, of.Bound, of.Plan.Count())
		}
	}
}

// The ledger sees who is taken by two: of claims that stand or stood, not of one that was dropped and spared it.
func TestLedger(t *testing.T) {
	claim := func(victims ...string) *wire.ReservationRecord {
		r := &wire.ReservationRecord{Claim: &wire.ClaimRecord{}}
		for _, v := range victims {
			r.Claim.Victims = append(r.Claim.Victims, &wire.Victim{Gang: &wire.GangRef{Uid: v}, Attempt: 1})
		}
		return r
	}
	closing := &wire.ReservationRecord{Attempt: 1, State: wire.ReservationState_RESERVATION_CLOSING}
	l := &ledger{changed: make(chan struct{}), standing: map[string][]victim{}}
	l.begin()
	at := time.Unix(100, 0)
	for i, step := range []struct {
		uid      string
		record   *wire.ReservationRecord
		claims   int
		problems int
	}{
		{"a", claim("v", "w"), 1, 0},
		{"v", closing, 1, 0},
		{"a", claim("v", "w"), 1, 0}, // written again
		{"a", nil, 0, 0},             // dropped: w is spared
		{"b", claim("w"), 1, 0},
		{"c", claim("v"), 2, 1}, // closed for a
		{"w", closing, 2, 1},
		{"d", claim("w"), 3, 2}, // of a claim that stands
	} {
		l.take(at.Add(time.Duration(i)*time.Second), step.uid, step.record)
		if l.claims() != step.claims || len(l.problems) != step.problems {
			t.Errorf("step %d: %d claims stand, want %d; problems %v, want %d", i, l.claims(), step.claims, l.problems, step.problems)
		}
	}
	out := &Round{Decided: report.NewLatency("", ""), Closed: report.NewLatency("", "")}
	if problems := l.tell(out, at, []string{"a", "c", "d"}); len(problems) != 2 || out.Victims != 2 || out.Decided.Count() != 3 || out.Closed.Count() != 2 || out.Closed.Max().Round(time.Second) != 6*time.Second {
		t.Errorf("%v, %d victims, %d decided, %d closed, the last after %s", problems, out.Victims, out.Decided.Count(), out.Closed.Count(), out.Closed.Max())
	}
}

// The oracle places what fits one global view, in queues and on nodes, and nothing else.
func TestOracle(t *testing.T) {
	for _, c := range []struct {
		name  string
		nodes []amount
		limit int64 // milli-cores of the queue
		gangs [][]int64
		want  []bool
	}{
		{"one node", []amount{{cpu: 8000, memory: 100, pods: 10}}, 0, [][]int64{{4000, 4000}, {1000}}, []bool{true, false}},
		{"best fit leaves the large node", []amount{{cpu: 8000, memory: 100, pods: 10}, {cpu: 2000, memory: 100, pods: 10}}, 0, [][]int64{{2000}, {8000}}, []bool{true, true}},
		{"all or nothing", []amount{{cpu: 3000, memory: 100, pods: 10}}, 0, [][]int64{{2000, 2000}, {3000}}, []bool{false, true}},
		{"quota", []amount{{cpu: 8000, memory: 100, pods: 10}}, 3000, [][]int64{{4000}, {3000}, {1000}}, []bool{false, true, false}},
		{"pods", []amount{{cpu: 8000, memory: 100, pods: 1}}, 0, [][]int64{{1000}, {1000}}, []bool{true, false}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(nil, []*v1beta1.Queue{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "a.b"}}})
			w.queues["a"].limit.cpu = c.limit
			for i, n := range c.nodes {
				w.nodes[fmt.Sprint(i)] = &nodeRoom{total: n}
			}
			var gangs []*gang
			for i, pods := range c.gangs {
				g := &gang{Gang: &scenario.Gang{Name: fmt.Sprint(i), Queue: "a.b", MinCount: len(pods)}, complete: time.Unix(int64(i), 0)}
				for _, cpu := range pods {
					g.Pods = append(g.Pods, workload.Shape{MilliCPU: cpu})
					g.demand = g.demand.plus(amount{cpu: cpu, pods: 1}, 1)
				}
				w.gangs[g.Name] = g
				gangs = append(gangs, g)
			}
			room := w.room()
			for i, g := range gangs {
				if room[g] != c.want[i] {
					t.Errorf("gang %d: room %v", i, room[g])
				}
			}
			if w.queues["a"].used != (amount{}) {
				t.Errorf("the oracle left %v charged", w.queues["a"].used)
			}
		})
	}
}

// Of two queues the one with the smaller share comes first, though gangs of the other are older.
func TestOracleIsFair(t *testing.T) {
	w := newWorld(nil, []*v1beta1.Queue{{ObjectMeta: metav1.ObjectMeta{Name: "crowded"}}, {ObjectMeta: metav1.ObjectMeta{Name: "other"}}})
	w.nodes["n"] = &nodeRoom{total: amount{cpu: 3000, memory: 100, pods: 10}}
	for _, q := range w.queues {
		q.limit.cpu = 10000
	}
	w.queues["crowded"].used.cpu = 5000
	gang := func(name, queue string, age int64) *gang {
		g := &gang{Gang: &scenario.Gang{Name: name, Queue: queue, MinCount: 1, Pods: []workload.Shape{{MilliCPU: 1000}}}, complete: time.Unix(age, 0), demand: amount{cpu: 1000, pods: 1}}
		w.gangs[name] = g
		return g
	}
	oldest, old := gang("1", "crowded", 1), gang("2", "crowded", 2)
	young, youngest := gang("3", "other", 3), gang("4", "other", 4)
	room := w.room()
	if !room[young] || !room[youngest] || !room[oldest] || room[old] {
		t.Errorf("room for the crowd %t and %t, for the others %t and %t", room[oldest], room[old], room[young], room[youngest])
	}
	if w.queues["crowded"].used.cpu != 5000 || w.queues["other"].used.cpu != 0 {
		t.Error("the oracle left something charged")
	}
}
