package hostile

import (
	"fmt"
	"io"
	"time"
)

// Write prints the table for a person: what each attack did to the others, as p50 and p99 from create to bind.
func (r *Result) Write(w io.Writer) {
	fmt.Fprintf(w, "  %-24s %8s %8s  %19s  %19s  %19s  %6s %5s %6s %9s %9s\n", "attack", "writes/s", "refused", "others before", "under attack", "objects standing", "deaths", "terms", "audit", "coord CPU", "shard CPU")
	for _, row := range r.Rows {
		seconds := max(row.For.Seconds(), 0.001)
		fmt.Fprintf(w, "  %-24s %8.1f %8d  %19s  %19s  %19s  %6d %5d %6d %8.0f%% %8.0f%%\n", row.Attack, float64(row.Accepted)/seconds, row.Refused, row.Quiet, row.Under, row.Standing,
			row.Deaths, row.Terms, row.Violations, 100*row.CoordinatorCPU.Seconds()/seconds, 100*row.ShardCPU.Seconds()/seconds)
	}
	fmt.Fprintf(w, "  others, all quiet phases  %s of %d; %d placed in all\n", r.Quiet, r.Quiet.Items, r.Items)
	for _, p := range r.Failed() {
		fmt.Fprintf(w, "PROBLEM %s\n", p)
	}
}

// Slowed returns the rows in which the others' p99 was more than twice what it was in the quiet phases of the run, but for
// differences that a busy machine makes by itself.
func (r *Result) Slowed() (slow []Row) {
	const noise = 50 * time.Millisecond
	for _, row := range r.Rows {
		if max(row.Under.P99, row.Standing.P99) > 2*max(r.Quiet.P99, row.Quiet.P99)+noise {
			slow = append(slow, row)
		}
	}
	return slow
}
