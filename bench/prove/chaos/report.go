package chaos

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/bench/measure/report"
)

// Write prints what happened, as a table for a person.
func (r *Result) Write(w io.Writer) {
	total := 0
	for _, n := range r.Faults {
		total += n
	}
	fmt.Fprintf(w, "  faults made            %d of %d kinds\n", total, len(r.Faults))
	for _, k := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(w, "    %-24s %d\n", k, r.Faults[k])
	}
	for _, k := range slices.Sorted(maps.Keys(r.Missing)) {
		fmt.Fprintf(w, "    %-24s SKIPPED %d times: %s\n", k, r.Skipped[k], r.Missing[k])
	}
	if len(r.Visited) > 0 {
		fmt.Fprintf(w, "  crash points visited   %d\n", len(r.Visited))
		for _, p := range slices.Sorted(maps.Keys(r.Visited)) {
			fmt.Fprintf(w, "    %-24s %d\n", p, r.Visited[p])
		}
	}
	if len(r.Attacks) > 0 {
		fmt.Fprintf(w, "  attacks by a tenant    %v\n", r.Attacks)
	}
	printCounts(w, "gangs", r.Gangs)
	printCounts(w, "of them with affinity", r.Among)
	fmt.Fprintf(w, "  gangs seen waiting     %v\n", r.Waited)
	fmt.Fprintf(w, "  pods                   %d\n", r.Pods)
	fmt.Fprintf(w, "  starts of processes    %d\n", r.Starts)
	fmt.Fprintf(w, "  affinity, spread       of %d pods recounted, of %d not: too little was known\n", r.Recounts, r.Spared)
	fmt.Fprintf(w, "  revisions judged       %d\n", r.Revisions)
	fmt.Fprintf(w, "  at rest after          %s\n", r.Rested.Round(time.Millisecond))
	fmt.Fprintf(w, "  failover, mixed faults shard %s, coordinator %s\n", report.Percentiles(r.ShardFailovers), report.Percentiles(r.CoordinatorFailovers))
	var kinds []string
	for _, k := range audit.Kinds {
		kinds = append(kinds, fmt.Sprintf("%s %d", k, r.Violations[k]))
	}
	fmt.Fprintf(w, "  violations             %s\n", strings.Join(kinds, ", "))
	for _, p := range r.Problems {
		fmt.Fprintf(w, "PROBLEM %s\n", p)
	}
}

// printCounts prints a sum and what it is the sum of.
func printCounts(w io.Writer, title string, of map[string]int) {
	sum := 0
	for _, n := range of {
		sum += n
	}
	fmt.Fprintf(w, "  %-22s %d\n", title, sum)
	for _, k := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(w, "    %-24s %d\n", k, of[k])
	}
}
