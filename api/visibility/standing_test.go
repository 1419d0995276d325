package visibility

import (
	"encoding/json"
	"testing"
	"time"

	"basalt.dev/basalt/api/wire"
)

// What people read of the order, of evictions, and of a queue.
func TestStanding(t *testing.T) {
	cpu := func(cores int64) []*wire.Amount { return []*wire.Amount{{Resource: "cpu", Value: cores * 1000}} }
	said := &wire.StandingReply{
		Known: true,
		Turns: []*wire.Turn{
			{Queue: "ml.prod", Place: 2, Of: 3, Band: wire.Band_BAND_DESERVED, Resource: "cpu", Has: 4000, Requests: 2500, Limit: 8000},
			{Queue: "ml", Place: 1, Of: 1, Band: wire.Band_BAND_ABOVE},
		},
		Eviction: "3 gangs are evicted for it in whole or in part, and not gone yet", Then: "the claim ends", ThenUnixMs: ms(-65 * time.Second),
		Next: &wire.GangRef{Namespace: "ns", Name: "train"}, ShortQueue: "ml", ShortResource: "cpu", Short: 500,
		Usage: &wire.QueueUsage{Queue: "ml.prod", ReadyReason: "Ready", Message: "limits are in force", Admitted: 12, Waiting: 3, WeightedShare: 250,
			Charged: cpu(4), Wanted: cpu(9), FairShare: cpu(6), Deserved: cpu(8), Promised: []*wire.Amount{{Resource: "nvidia.com/gpu", Value: 2}}},
		Claims:      []*wire.ClaimNote{{Gang: &wire.GangRef{Namespace: "ns", Name: "train"}, Victims: 3}, {Gang: &wire.GangRef{Namespace: "other", Name: "secret"}, Victims: 1, Takes: true}},
		ClaimsTotal: 4, LentMs: 1_000_500,
	}
	gang := FromReply("ns", "train", &wire.WhyReply{Known: true, Title: "PodGroup ns/train", Queue: "ml.prod", Message: "no quota", Next: "it is admitted when others end", CreatedUnixMs: ms(0), Pods: 1, MinCount: 1})
	gang.Standing = standingOf(said, 0)
	queue := queueFromReply(said, func(g *wire.GangRef) bool { return g.Namespace == "ns" })
	for _, c := range []struct{ what, got, want string }{
		{"gang", gang.Text(now, false), `PodGroup ns/train waits: no quota
  since    2026-01-01T12:00:00Z (0s ago)
  pods     1 exist, 0 are bound, 1 start together
  queue    ml.prod
  turn     queue "ml.prod" is 2nd of the 3 below "ml" in which gangs wait: within what it deserves (cpu 4 + 2500m of 8)
  kept     it is lent to gangs with a limit of 16m40s or less (maxRuntimeSeconds)
  claims   3 gangs are evicted for it in whole or in part, and not gone yet, the claim ends in 1m5s
  next     it is admitted when others end
`},
		{"queue", queue.Text(now), `queue ml.prod: 12 gangs are charged, 3 wait
  ready    Ready: limits are in force
  share    it borrows 25.0 % of what its parent may have, by weight; the smallest share goes first
  next     ns/train: queue "ml" lacks cpu=500m
  turn     queue "ml.prod" is 2nd of the 3 below "ml" in which gangs wait: within what it deserves (cpu 4 + 2500m of 8)
  kept     it is lent to gangs with a limit of 15m30s or less (maxRuntimeSeconds)
  claims   3 gangs are evicted for it in whole or in part, and not gone yet, the claim ends in 1m5s
  gets     3 gangs are evicted for ns/train in whole or in part, and not gone yet
  gives    1 of its gangs is evicted for a gang of another namespace in whole or in part, and not gone yet
           and 2 more claims

RESOURCE         CHARGED   YIELDING   PROMISED   WANTED   FAIR SHARE   GUARANTEE   DESERVED   CAPABILITY
cpu              4         -          -          9        6            -           8          -
nvidia.com/gpu   -         -          2          -        -            -           -          -
`},
	} {
		if c.got != c.want {
			t.Errorf("%s:\n%s\nwant:\n%s", c.what, c.got, c.want)
		}
	}
	for ms, want := range map[int64]string{
		70_999: "it is lent to nobody now: it may be enough before another gang has found nodes",
		71_000: "it is lent to gangs with a limit of 1s or less (maxRuntimeSeconds)",
		0:      "it is lent to nobody now: because",
	} {
		r := &wire.StandingReply{LentMs: ms}
		if ms == 0 {
			r.LentNever = "because"
		}
		if s := standingOf(r, 70*time.Second); s.kept() != want {
			t.Errorf("lent for %d ms: %q, want %q", ms, s.kept(), want)
		}
	}
	b, err := json.Marshal(queue)
	var again WhyQueue
	if err == nil {
		err = json.Unmarshal(b, &again)
	}
	if err != nil || again.Text(now) != queue.Text(now) {
		t.Errorf("%v: JSON loses something: %s", err, b)
	}

	if hidden := queueFromReply(said, func(*wire.GangRef) bool { return false }); hidden.Next.Lacks != nil || len(hidden.Next.Turns) > 0 || hidden.Next.Eviction != "" {
		t.Errorf("of a gang that the user may not see it is said %+v", hidden.Next)
	}

	for _, c := range []struct {
		turn Turn
		want string
	}{
		{Turn{Queue: "a", Place: 1, Of: 2, Band: BandAbove, WeightedShare: 650}, `queue "a" is 1st of the 2 below "root" in which gangs wait: above what it deserves (nothing of what the gang requests), with a weighted share of 650`},
		{Turn{Queue: "a", Place: 1, Of: 1, Band: BandGuarantee, Resource: "cpu", Has: "0", Requests: "1", Limit: "2"}, `queue "a" is the only one below "root" in which gangs wait: within its guarantee (cpu 0 + 1 of 2)`},
	} {
		if got := (&Standing{Turns: []Turn{c.turn}}).lines()[0]; got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
}
