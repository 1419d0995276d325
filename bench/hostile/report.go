package hostile

import (
	"fmt"
	"io"
	"time"
)

// Write prints the table for a person: what each attack did to the others, as p50 and p99 from create to bind; and the p99 of
// one request to create a pod, before and under the attack, which the API server takes without Basalt.
func (r *Result) Write(w io.Writer) {
	fmt.Fprintf(w, "  %-24s %8s %8s  %19s  %19s  %19s  %15s  %6s %5s %6s %9s %9s\n", "attack", "writes/s", "refused", "others before", "under attack", "objects standing", "create p99", "deaths", "terms", "audit", "coord CPU", "shard CPU")
	for _, row := range r.Rows {
		seconds := max(row.For.Seconds(), 0.001)
		fmt.Fprintf(w, "  %-24s %8.1f %8d  %19s  %19s  %19s  %15s  %6d %5d %6d %8.0f%% %8.0f%%\n", row.Attack, float64(row.Accepted)/seconds, row.Refused, row.Quiet, row.Under, row.Standing,
			fmt.Sprintf("%s / %s", row.Quiet.CreateP99.Round(time.Millisecond), row.Under.CreateP99.Round(time.Millisecond)),
			row.Deaths, row.Terms, row.Violations, 100*row.CoordinatorCPU.Seconds()/seconds, 100*row.ShardCPU.Seconds()/seconds)
	}
	fmt.Fprintf(w, "  others, all quiet phases  %s of %d; %d placed in all\n", r.Quiet, r.Quiet.Items, r.Items)
	for _, p := range r.Failed() {
		fmt.Fprintf(w, "PROBLEM %s\n", p)
	}
}

// Slowed are the attacks under which, or after which, the others' p99 from create to bind was more than twice what it was in the
// quiet phases. Explained says that the API server alone became slower by as much, measured by requests that Basalt has no part
// in: on a machine that all share, large objects cost everybody processor time.
type Slowed struct {
	Attack          string
	Quiet, Under    time.Duration
	Times, APITimes float64 // by how much binding became slower, and one request to the API server
	Explained       bool
}

// Slowed returns the attacks that slowed others down.
func (r *Result) Slowed() (slow []Slowed) {
	const noise = 50 * time.Millisecond // two runs of the same differ by that
	for _, row := range r.Rows {
		quiet, under := max(r.Quiet.P99, row.Quiet.P99), max(row.Under.P99, row.Standing.P99)
		if under <= 2*quiet+noise {
			continue
		}
		create, before := max(row.Under.CreateP99, row.Standing.CreateP99), max(r.Quiet.CreateP99, row.Quiet.CreateP99, time.Millisecond)
		s := Slowed{Attack: row.Attack, Quiet: quiet, Under: under, Times: float64(under) / float64(max(quiet, time.Millisecond)), APITimes: float64(create) / float64(before)}
		s.Explained = s.Times <= 2*max(1, s.APITimes)
		slow = append(slow, s)
	}
	return slow
}

func (s Slowed) String() string {
	text := fmt.Sprintf("%s: the others' p99 was %s, %.1f times that of the quiet phases; one request to the API server took %.1f times as long", s.Attack,
		s.Under.Round(time.Millisecond), s.Times, s.APITimes)
	if s.Explained {
		text += ", which explains it"
	}
	return text
}
