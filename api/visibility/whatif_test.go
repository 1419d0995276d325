package visibility

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"basalt.dev/basalt/api/v1beta1"
	"basalt.dev/basalt/api/wire"
)

// What people read of what would be.
func TestWhatIfText(t *testing.T) {
	of := func(list ...any) (out []*wire.Amount) {
		for i := 0; i < len(list); i += 2 {
			out = append(out, &wire.Amount{Resource: list[i].(string), Value: int64(list[i+1].(int))})
		}
		return out
	}
	vision := &wire.QueueUsage{Queue: "ml.vision", Charged: of("cpu", 9000, "gpu.example/a", 2), Wanted: of("cpu", 15000), FairShare: of("cpu", 9500), Deserved: of("cpu", 4000), WeightedShare: 500, Message: "limits are in force"}
	visionAfter := &wire.QueueUsage{Queue: "ml.vision", Charged: vision.Charged, Wanted: vision.Wanted, FairShare: of("cpu", 12000), Deserved: of("cpu", 8000, "gpu.example/a", 2), WeightedShare: 100,
		Message: "limits are in force; deserved of cpu: only 8 of 9 is in force"}
	train, secret := &wire.GangRef{Uid: "u1", Namespace: "ns", Name: "train", Queue: "ml.vision"}, &wire.GangRef{Uid: "u2", Namespace: "other", Name: "secret", Queue: "ml.batch"}
	said := &wire.WhatIfReply{
		Queues: []*wire.QueueOutlook{
			{Named: true, Before: vision, After: visionAfter},
			{Before: &wire.QueueUsage{Queue: "ml.batch", FairShare: of("cpu", 6500)}, After: &wire.QueueUsage{Queue: "ml.batch", FairShare: of("cpu", 4000)}},
			{Before: &wire.QueueUsage{Queue: "hidden", FairShare: of("cpu", 1000)}, After: &wire.QueueUsage{Queue: "hidden"}},
			{Named: true, Before: &wire.QueueUsage{Queue: "idle", WeightedShare: 3}, After: &wire.QueueUsage{Queue: "idle", WeightedShare: 3}},
		}, QueuesTotal: 9,
		Gangs: []*wire.GangOutlook{
			{Gang: train, Before: &wire.Outlook{Known: true, Reason: wire.DenyReason_DENY_QUOTA, Queue: "ml", Resource: "cpu", Short: 5000, Message: `queue "ml" has insufficient cpu: 5 short`, Place: 2, Waiting: 7,
				Standing: &wire.StandingReply{Turns: []*wire.Turn{{Queue: "ml.vision", Place: 1, Of: 2, Band: wire.Band_BAND_ABOVE, WeightedShare: 650}}, Eviction: "nobody is evicted for it: its queue has no siblings"}},
				After: &wire.Outlook{Known: true, Reason: wire.DenyReason_DENY_QUOTA, Queue: "ml", Resource: "cpu", Short: 5000, Message: `queue "ml" has insufficient cpu: 5 short`, Place: 2, Waiting: 7,
					Standing: &wire.StandingReply{Turns: []*wire.Turn{{Queue: "ml.vision", Place: 1, Of: 2, Band: wire.Band_BAND_DESERVED, Resource: "cpu", Has: 0, Requests: 6000, Limit: 8000}},
						Eviction: `queue "ml.vision" may take back for it what it deserves`, Then: "at the earliest", ThenUnixMs: ms(-10 * time.Second)},
					Toll: &wire.Toll{Rule: wire.Rule_RULE_RECLAIM, Gangs: []*wire.GangRef{secret, {Uid: "u3", Namespace: "ns", Name: "exp-1"}}, GangsTotal: 3, Shrinkable: 1, Pods: 24, Freed: of("cpu", 24000), CoreSeconds: 5400, Candidates: 12}}},
			{Gang: secret, Before: &wire.Outlook{Known: true, Reason: wire.DenyReason_DENY_QUOTA, Message: "a secret", Queue: "ml", Resource: "cpu", Short: 5}, After: &wire.Outlook{Known: true, Granted: true, Place: 1, Waiting: 1}},
			{Gang: &wire.GangRef{Queue: "ml.vision", Namespace: "ns"},
				Before: &wire.Outlook{Known: true, Granted: true, Place: 1, Waiting: 1, Order: new(int64(7)),
					Further: `queue "ml" has insufficient cpu: 1 short`},
				After: &wire.Outlook{Known: true, Granted: true, Place: 1, Waiting: 1, Order: new(int64(7)),
					Further: `queue "ml" has insufficient cpu: 1 short`}},
			{Before: &wire.Outlook{}, After: &wire.Outlook{}},
			{Gang: train, Before: &wire.Outlook{Known: true, Charged: true, Exposed: "nobody may have it evicted: it may not be evicted"}},
		}, GangsTotal: 7,
	}
	v := &view{all: map[string]bool{v1beta1.GroupName + "/queues": true, v1beta1.GroupName + "/podgroups": true, "/pods": true}}
	w := v.whatIfFrom(said, "PodGroup ns/new")
	w.Changes, w.Planned = []string{"ml.vision:deserved.cpu=9"}, "queue=ml.vision,cpu=1"
	const want = `what if  ml.vision:deserved.cpu=9
gang     queue=ml.vision,cpu=1

QUEUE       WEIGHTED SHARE   RESOURCE        CHARGED   WANTED   DESERVED   FAIR SHARE
ml.vision   500 -> 100       cpu             9         15       4 -> 8     9500m -> 12
                             gpu.example/a   2         -        - -> 2     -
ml.batch    0                cpu             -         -        -          6500m -> 4
hidden      0                cpu             -         -        -          1 -> -
idle        3                -               -         -        -          -
queue ml.vision would say: limits are in force; deserved of cpu: only 8 of 9 is in force
and 5 more queues that are not shown

ns/train in queue ml.vision
  now
    quota    queue "ml" has insufficient cpu: 5 short
    order    2nd of the 7 gangs that wait in its queue
    turn     queue "ml.vision" is 1st of the 2 below "ml" in which gangs wait: above what it deserves (nothing of what the gang requests), with a weighted share of 650
    claims   nobody is evicted for it: its queue has no siblings
  then
    quota    queue "ml" has insufficient cpu: 5 short
    order    2nd of the 7 gangs that wait in its queue
    turn     queue "ml.vision" is 1st of the 2 below "ml" in which gangs wait: within what it deserves (cpu 0 + 6 of 8)
    claims   queue "ml.vision" may take back for it what it deserves, at the earliest in 10s
    victims  about 3 of the 12 gangs that may be evicted for it, with 24 pods that have used 1.50 core-hours; 1 of them may lose single pods and run on; they have cpu=24: other/secret, ns/exp-1 and 1 more

other/secret in queue ml.batch
  now
    quota    a secret
  then
    quota    it is granted in its turn
    order    first in its queue

the planned gang in queue ml.vision
  now, and then
    quota    it is granted in its turn
    order    first in its queue (spec.order: 7)
    then     the pods that follow are denied: queue "ml" has insufficient cpu: 1 short

PodGroup ns/new
  now, and then
    quota    it has not asked for it yet

ns/train in queue ml.vision
  quota    it is charged
  exposed  nobody may have it evicted: it may not be evicted

and 2 more gangs for which others would begin or cease to be evicted

Nothing was changed.
`
	if got := w.Text(now); got != want {
		t.Errorf("%s\nwant:\n%s", got, want)
	}
	b, err := json.Marshal(w)
	var again WhatIf
	if err == nil {
		err = json.Unmarshal(b, &again)
	}
	if err != nil || again.Text(now) != w.Text(now) {
		t.Errorf("%v: JSON loses something: %s", err, b)
	}

	// A tenant who may get nothing but what it named.
	hidden := &view{all: map[string]bool{v1beta1.GroupName + "/queues": false, v1beta1.GroupName + "/podgroups": false, "/pods": false}, reviewed: reviewsAtMost}
	text := hidden.whatIfFrom(said, "PodGroup ns/new").Text(now)
	for _, secret := range []string{"secret", "hidden", "ml.batch  ", "exp-1", "24", "1.50", "ns/train"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is said to a tenant:\n%s", secret, text)
		}
	}
	for _, word := range []string{"ml.vision   500 -> 100", "and 7 more queues", "a gang of another namespace in queue ml.batch", "about 3 of the 12 gangs", "the planned gang in queue ml.vision", "PodGroup ns/new"} {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not said to a tenant:\n%s", word, text)
		}
	}
}

func TestParseChange(t *testing.T) {
	for text, want := range map[string]string{
		"research.vision:deserved.nvidia.com/gpu=64": "research.vision deserved nvidia.com/gpu 64", "batch:weight=3": "batch weight  3", "batch:weight=": "batch weight  ",
		"batch:spec.capability.cpu=1500m": "batch capability cpu 1500m", "a:b=c=d:e": "a b  c=d:e",
	} {
		if c, err := ParseChange(text); err != nil || fmt.Sprint(c.Queue, " ", c.Field, " ", c.Resource, " ", c.Value) != want {
			t.Errorf("%s: %v, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "batch", "batch:weight", ":weight=1", "batch:=1", "weight=1", "Batch:weight=1", "a..b:weight=1", "root.a:weight=1"} {
		if c, err := ParseChange(text); err == nil {
			t.Errorf("%q is read as %v", text, c)
		}
	}
}

func TestParsePlanned(t *testing.T) {
	for text, want := range map[string]string{
		"queue=a,cpu=8,nvidia.com/gpu=1,pods=16,minCount=8,priority=7": "a 8 [cpu=64 nvidia.com/gpu=8 pods=8] [cpu=64 nvidia.com/gpu=8 pods=8] 7 true",
		"queue=a,maxRuntime=45m":                          "a 1 [pods=1] [] 0 true",
		"queue=a.b,memory=1Gi":                            "a.b 1 [memory=1Gi pods=1] [] 0 true",
		"pods=3,queue=a":                                  "a 3 [pods=3] [] 0 true",
		"queue=a,priority=-5,preemptionPolicy=Never":      "a 1 [pods=1] [] -5 false",
		"queue=a,preemptionPolicy=PreemptLowerPriority":   "a 1 [pods=1] [] 0 true",
		"queue=a,cpu=0.1,pods=100000,hugepages-2Mi=512Mi": "a 100000 [cpu=10000 hugepages-2Mi=50000Gi pods=100000] [] 0 true",
	} {
		p, err := ParsePlanned(text, "ns")
		if limited := strings.Contains(text, "maxRuntime=45m"); limited != (p.GetRunsMs() == 46*60_000+10_000) {
			t.Errorf("%s: past its limit after %d ms", text, p.GetRunsMs())
		}
		demand, _ := wire.ToResources(p.GetDemand())
		further, _ := wire.ToResources(p.GetFurther())
		if got := fmt.Sprintf("%s %d [%v] [%v] %d %t", p.GetQueue(), p.GetPods(), demand, further, p.GetPriority(), p.GetClaims()); err != nil || got != want || p.Namespace != "ns" {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	if p, err := ParsePlanned("queue=a,order=-9223372036854775808", "ns"); err != nil || p.Order == nil ||
		p.GetOrder() != math.MinInt64 {
		t.Errorf("order: %v, %v", p, err)
	}
	for text, says := range map[string]string{
		"queue=a,order=9223372036854775808":        "order",
		"":                                         "is not KEY=VALUE",
		"queue=a,cpu":                              `"cpu" is not KEY=VALUE`,
		"queue=a,queue=b":                          `"queue=b" is not KEY=VALUE, each key once`,
		"cpu=1":                                    "it names no queue",
		"queue=A":                                  `queue name "A"`,
		"queue=a,gpus=1":                           `"gpus" is neither queue`,
		"queue=a,cpu=much":                         `cpu: "much"`,
		"queue=a,cpu=-1":                           "is negative",
		"queue=a,cpu=1e300000000":                  "cpu",
		"queue=a,pods=0":                           "pods: 0: 1 to 100000",
		"queue=a,pods=100001":                      "pods: 100001",
		"queue=a,pods=2,minCount=3":                "minCount: 3: 1 to 2",
		"queue=a,pods=2,minCount=0":                "minCount: 0: 1 to 2",
		"queue=a,priority=high":                    `priority: "high"`,
		"queue=a,priority=9999999999":              "priority",
		"queue=a,maxRuntime=45":                    "maxRuntime",
		"queue=a,maxRuntime=9000h":                 "from 1s to 8760h",
		"queue=a,maxRuntime=-1h":                   "from 1s to 8760h",
		"queue=a,preemptionPolicy=Always":          `"Always" is not one of Never`,
		"queue=a,cpu=" + strings.Repeat("1", 2000): "more than 32 characters",
	} {
		if p, err := ParsePlanned(text, "ns"); err == nil || !strings.Contains(err.Error(), says) || len(err.Error()) > 400 {
			t.Errorf("%.80s: %v, %v, want %q", text, p, err, says)
		}
	}
	if _, err := ParsePlanned("queue=a", "No Namespace"); err == nil {
		t.Error("any namespace is taken")
	}
}
