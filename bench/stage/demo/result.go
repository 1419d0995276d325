package demo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api/audit"
	"basalt.dev/basalt/api/page"
)

// result is the last line of the report, and of the output where no person sees it: exactly these keys.
type result struct {
	Seed                  uint64  `json:"seed"`
	Nodes                 int     `json:"nodes"`
	Cores                 int64   `json:"cores"`
	Shards                int     `json:"shards"`
	GangsExpected         int     `json:"gangs_expected"`
	GangsBound            int     `json:"gangs_bound"`
	PodsBound             int     `json:"pods_bound"`
	GangsDeniedByQuota    int     `json:"gangs_denied_by_quota"`
	PodsPerSecond         float64 `json:"pods_per_second"`
	P50                   int64   `json:"p50_ms"`
	P99                   int64   `json:"p99_ms"`
	QuotaViolations       int     `json:"quota_violations"`
	DoubleBindings        int     `json:"double_bindings"`
	OvercommittedNodes    int     `json:"overcommitted_nodes"`
	PartialGangs          int     `json:"partial_gangs"`
	StatusWrites          int     `json:"status_writes"`
	StatusConflicts       int     `json:"status_conflicts"`
	APIWritesPerPod       float64 `json:"api_writes_per_pod"`
	ShardFailoverMS       int64   `json:"shard_failover_ms"`
	CoordinatorFailoverMS int64   `json:"coordinator_failover_ms"`
	GangsEvicted          int     `json:"gangs_evicted"`
	ReclaimMS             int64   `json:"reclaim_ms"`
}

// report prints the summary, and writes all there is to say into the report.
func (d *demo) report(first firstPart, third *thirdPart) (ok bool, err error) {
	log, err := d.readAuditLog()
	if err != nil {
		return false, err
	}
	found := d.auditor.Report()
	expected, bound, wrong, lacking := d.track.outcome()
	d.track.mu.Lock()
	pods, finished, denied, fullest := d.track.bound, d.track.finished, len(d.track.denied), d.track.fullest
	d.track.mu.Unlock()
	r := result{
		Seed: d.Seed, Nodes: len(d.plan.nodes), Cores: d.plan.cores, Shards: d.Shards,
		GangsExpected: expected, GangsBound: bound, PodsBound: pods, GangsDeniedByQuota: denied,
		PodsPerSecond: round1(first.rate), P50: first.p50.Milliseconds(), P99: first.p99.Milliseconds(),
		QuotaViolations:    found.Counts[audit.Quota],
		DoubleBindings:     len(log.TwoNodes) + len(log.NoIntent) + len(log.NoUID),
		OvercommittedNodes: found.Counts[audit.Overcommit], PartialGangs: found.Counts[audit.Partial],
		StatusWrites: log.StatusWrites, StatusConflicts: log.StatusConflicts + found.Counts[audit.Status],
		ShardFailoverMS: d.track.shardFailover().Milliseconds(), CoordinatorFailoverMS: d.track.coordinatorFailover().Milliseconds(),
	}
	teamPods := 0
	if third != nil {
		r.ReclaimMS = third.took.Milliseconds()
		r.GangsEvicted, teamPods = d.track.teamSums()
	}
	if pods+teamPods > 0 {
		r.APIWritesPerPod = round2(float64(log.Writes) / float64(pods+teamPods))
	}

	var t table
	t.row("cluster", "%d nodes, %d cores, %d shards, %d coordinators", r.Nodes, r.Cores, r.Shards, coordinators)
	t.row("gangs", "%d of %d schedulable bound, %d unschedulable by design, %d waited for quota",
		bound-len(wrong), expected, len(d.track.gangs)-expected, denied)
	t.row("pods", "%d bound, %d of them ran to their end", pods, finished)
	t.row("part 1", "%.1f pods/s; create to node: p50 %s, p99 %s",
		first.rate, first.p50.Round(time.Millisecond), first.p99.Round(time.Millisecond))
	t.row("at the fullest", "%.1f %% of the CPU allocated", 100*float64(fullest)/float64(d.plan.cores*1000))
	t.row("failover", "shard %s, coordinator %s", orMissing(r.ShardFailoverMS), orMissing(r.CoordinatorFailoverMS))
	var bad []string
	if third != nil {
		bad = d.reportTeams(&t, third)
	}
	t.row("API writes", "%d by Basalt, %.2f a pod", log.Writes, r.APIWritesPerPod)
	t.more("", "%s", top(log.Requests, len(log.Requests)))
	if len(log.Failed) > 0 {
		t.more("refused", "%s", top(log.Failed, len(log.Failed)))
	}
	var counts, seen []string
	for _, k := range audit.Kinds {
		counts = append(counts, fmt.Sprintf("%s %d", k, found.Counts[k]))
		if found.Counts[k] > 0 {
			seen = append(seen, counts[len(counts)-1])
		}
	}
	if len(seen) == 0 {
		t.row("audit", "no violation, of %d kinds that were looked for all the time", len(audit.Kinds))
	} else {
		t.row("audit", "%s; and none of the other %d kinds", strings.Join(seen, ", "), len(audit.Kinds)-len(seen))
	}
	t.more("", "%s", strings.Join(counts, ", "))

	add := func(what string, names []string) {
		if len(names) > 0 {
			bad = append(bad, fmt.Sprintf("%d %s: %s", len(names), what, strings.Join(names[:min(5, len(names))], "; ")))
		}
	}
	add("gangs were bound that never should be", wrong)
	add("gangs were not bound", lacking)
	add("pods with Bindings to two nodes", log.TwoNodes)
	add("Bindings without an earlier intent", log.NoIntent)
	add("Bindings without a UID", log.NoUID)
	if log.StatusConflicts > 0 {
		bad = append(bad, fmt.Sprintf("%d status writes were refused", log.StatusConflicts))
		for _, what := range slices.Sorted(maps.Keys(log.Failed)) {
			if strings.Contains(what, "/status ") && !strings.Contains(what, " pods/") {
				bad = append(bad, fmt.Sprintf("%d times: %s", log.Failed[what], what))
			}
		}
	}
	for _, v := range found.Violations[:min(20, len(found.Violations))] {
		bad = append(bad, v.String())
	}
	if r.GangsDeniedByQuota == 0 && !d.without[2] {
		bad = append(bad, "no gang was ever denied by quota")
	}
	for _, n := range d.notes {
		t.row("note", "%s", n)
	}
	for _, b := range bad {
		t.row("WRONG", "%s", b)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return false, fmt.Errorf("encode result: %w", err)
	}
	title := fmt.Sprintf("basalt demo, seed %d, %s\n", d.Seed, time.Since(d.begin).Round(time.Second))
	if d.Report != "" {
		t.row("report", "%s: this, and what users of an evicted gang saw", d.Report)
		if err := os.WriteFile(d.Report, fmt.Appendf(nil, "%s%s%s\n", title, t.text(true), line), 0o644); err != nil {
			return false, fmt.Errorf("write report: %w", err)
		}
	}
	fmt.Fprintf(d.Out, "\n%s%s", title, page.Fold(t.text(false), summaryColumns))
	if d.Width == 0 { // for a program that reads it
		fmt.Fprintf(d.Out, "%s\n", line)
	}
	return len(bad) == 0 && found.Sum() == 0, nil
}

// summaryColumns is how wide the summary is, so that it fits any screen, as its rows do.
const summaryColumns = 100

// table is what the demo has to say in the end.
type table struct{ rows []tableRow }

type tableRow struct {
	name, text string
	more       bool // in the report only
}

// row adds a row of the summary, which the report has, too. Without a name it goes with the row before.
func (t *table) row(name, format string, args ...any) {
	t.rows = append(t.rows, tableRow{name, fmt.Sprintf(format, args...), false})
}

// more adds a row that only the report has.
func (t *table) more(name, format string, args ...any) {
	t.rows = append(t.rows, tableRow{name, fmt.Sprintf(format, args...), true})
}

func (t *table) text(all bool) string {
	var b strings.Builder
	for _, r := range t.rows {
		if all || !r.more {
			fmt.Fprintf(&b, "  %-15s  %s\n", r.name, r.text)
		}
	}
	return b.String()
}

// reportTeams prints what part 3 showed, and returns what is wrong about it.
func (d *demo) reportTeams(out *table, third *thirdPart) (bad []string) {
	d.track.mu.Lock()
	defer d.track.mu.Unlock()
	t := d.track.teams
	lines := func(text string) {
		for line := range strings.Lines(strings.TrimSpace(text)) {
			out.more("", "  %s", strings.TrimRight(line, "\n"))
		}
	}
	out.row(
		"part 3",
		"queue %s may have %d cores, %s and %s deserve %d each; gangs of %d pods of %d cores",
		shared,
		sharedCores,
		batchTeam,
		prodTeam,
		deservedCores,
		teamPods,
		teamPodCores,
	)
	out.more(
		"",
		"so that it is quick, queue %s has reclaimMinRuntime %s (by default 60s) and preemptionDelay %s (10s)",
		shared,
		time.Duration(reclaimMinRuntime),
		preemptionDelay,
	)
	for _, r := range t.rows(third.came) {
		if r.words {
			out.row("", "%s", r.text)
		} else {
			out.more("", "%s", r.text)
		}
	}
	var pairs []string
	evictions, runs := 0, 0
	for _, g := range t.gangs {
		runs += g.runs
		if evictions += g.evicted; g.evicted > 0 {
			pairs = append(pairs, g.name+g.forWhom())
		}
	}
	out.more("evicted", "%d gangs: %s", evictions, strings.Join(pairs, ", "))
	for _, g := range t.gangs {
		if lines := g.traced(); g.name == third.claimant && lines != nil {
			out.more("the claim of "+g.name, "%s", lines[0])
			for _, line := range lines[1:] {
				out.more("", "%s", line)
			}
		}
	}
	if third.evicted != "" {
		out.more("", "events of PodGroup %s, for which it was, and %s:", third.claimant, third.evicted)
		lines(
			cmp.Or(
				third.claimed,
				"(not written: too many events)",
			) + "\n" + cmp.Or(
				third.event,
				"(not written: too many events)",
			),
		)
		out.more("", "conditions of PodGroup %s, while it was evicted and while it waited:", third.evicted)
		lines(third.target + third.condition)
		out.more("", "basalt why %s/%s", teamsNamespace, third.evicted)
		lines(third.why)
		out.more("", "basalt queue list %s", shared)
		lines(third.queues)
	}
	inPart := "never in part"
	if len(t.inPart) > 0 || !third.whole {
		inPart = "not only so, see below"
	}
	out.row(
		"whole",
		"%d gangs ran %d times with all %d pods, %s: at most %s from a gang's first Binding to its last, "+
			"and %s from its first eviction to its last",
		len(t.gangs),
		runs,
		teamPods,
		inPart,
		t.toStart.Round(time.Millisecond),
		t.toLeave.Round(time.Millisecond),
	)
	if third.evicted != "" {
		out.more(
			"see it yourself",
			"make demo ends its cluster; bin/basalt-bench demo --keep leaves it, and prints what to export. Then:",
		)
		out.more(
			"",
			"  kubectl describe podgroup -n %s %s %s   (their events stay for an hour)",
			teamsNamespace,
			third.claimant,
			third.evicted,
		)
		out.more("", "  bin/basalt why %s/%s   (why it waits, or that it runs again)", teamsNamespace, third.evicted)
		out.more("", "  bin/basalt queue list %s", shared)
	}
	if !third.whole {
		bad = append(bad, "part 3: the teams did not get what they deserve, see the notes")
	}
	switch {
	case evictions < prodGangs:
		bad = append(bad, fmt.Sprintf("part 3: %d gangs were to be evicted, and %d were", prodGangs, evictions))
	case evictions > prodGangs: // a pod did not leave in time, for example
		out.row("note", "part 3: %d gangs would have been enough, and %d were evicted", prodGangs, evictions)
	}
	for _, s := range t.inPart {
		bad = append(bad, "part 3: "+s)
	}
	return bad
}

// teamSums returns how many gangs of part 3 were evicted, and how many of its pods were bound.
func (t *tracker) teamSums() (evicted, pods int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, g := range t.teams.gangs {
		evicted += g.evicted
		pods += g.runs * teamPods
	}
	return evicted, pods
}

func orMissing(ms int64) string {
	if ms == 0 {
		return "not measured"
	}
	return fmt.Sprintf("%d ms", ms)
}

func round1(f float64) float64 { return float64(int64(f*10+0.5)) / 10 }
func round2(f float64) float64 { return float64(int64(f*100+0.5)) / 100 }

// top names the largest counts.
func top(m map[string]int, n int) string {
	keys := slices.Sorted(maps.Keys(m))
	slices.SortStableFunc(keys, func(a, b string) int { return m[b] - m[a] })
	var out []string
	for i, k := range keys {
		if i == n {
			out = append(out, "…")
			break
		}
		out = append(out, fmt.Sprintf("%d %s", m[k], k))
	}
	return strings.Join(out, ", ")
}
