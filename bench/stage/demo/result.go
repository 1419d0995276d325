package demo

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"basalt.dev/basalt/api/audit"
)

// result is the demo's last line: exactly these keys.
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

// report prints the table and the last line.
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

	out := d.Out
	row := func(name, format string, args ...any) {
		fmt.Fprintf(out, "  %-22s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(out, "\nbasalt demo, seed %d, %s\n", d.Seed, time.Since(d.begin).Round(time.Second))
	row("cluster", "%d nodes, %d cores, %d shards, %d coordinators", r.Nodes, r.Cores, r.Shards, coordinators)
	row("gangs", "%d of %d expected were bound, %d were never to be; %d were denied by quota for a while", bound-len(wrong), expected, len(d.track.gangs)-expected, denied)
	row("pods", "%d bound, %d of them ran to their end", pods, finished)
	row("part 1", "%.1f pods/s; create to node: p50 %s, p99 %s", first.rate, first.p50.Round(time.Millisecond), first.p99.Round(time.Millisecond))
	row("at the fullest", "%.1f %% of the CPU allocated", 100*float64(fullest)/float64(d.plan.cores*1000))
	row("failover", "shard %s, coordinator %s", orMissing(r.ShardFailoverMS), orMissing(r.CoordinatorFailoverMS))
	var bad []string
	if third != nil {
		bad = d.reportTeams(row, third)
	}
	row("API writes", "%d by Basalt, %.2f a pod: %s", log.Writes, r.APIWritesPerPod, top(log.Requests, 6))
	if len(log.Failed) > 0 {
		row("refused", "%s", top(log.Failed, 6))
	}
	var counts []string
	for _, k := range audit.Kinds {
		counts = append(counts, fmt.Sprintf("%s %d", k, found.Counts[k]))
	}
	row("audit", "%s", strings.Join(counts, ", "))

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
	}
	for _, v := range found.Violations[:min(20, len(found.Violations))] {
		bad = append(bad, v.String())
	}
	if r.GangsDeniedByQuota == 0 && !d.without[2] {
		bad = append(bad, "no gang was ever denied by quota")
	}
	for _, n := range d.notes {
		row("note", "%s", n)
	}
	for _, b := range bad {
		row("WRONG", "%s", b)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return false, fmt.Errorf("encode result: %w", err)
	}
	fmt.Fprintf(out, "%s\n", line)
	return len(bad) == 0 && found.Sum() == 0, nil
}

// reportTeams prints what part 3 showed, and returns what is wrong about it.
func (d *demo) reportTeams(row func(name, format string, args ...any), third *thirdPart) (bad []string) {
	d.track.mu.Lock()
	defer d.track.mu.Unlock()
	t := d.track.teams
	lines := func(name, text string) {
		for line := range strings.Lines(strings.TrimSpace(text)) {
			row(name, "  %s", strings.TrimRight(line, "\n"))
			name = ""
		}
	}
	row("part 3", "queue %s may have %d cores, %s and %s deserve %d each; gangs of %d pods of %d cores", shared, sharedCores, batchTeam, prodTeam, deservedCores, teamPods, teamPodCores)
	row("", "so that it is quick, queue %s has reclaimMinRuntime %s (by default 60s) and preemptionDelay %s (10s)", shared, time.Duration(reclaimMinRuntime), preemptionDelay)
	for _, line := range t.rows(third.came) {
		row("", "%s", line)
	}
	var pairs []string
	evictions, runs := 0, 0
	for _, g := range t.gangs {
		runs += g.runs
		if evictions += g.evicted; g.evicted > 0 {
			pairs = append(pairs, g.name+g.forWhom())
		}
	}
	row("evicted", "%d gangs: %s", evictions, strings.Join(pairs, ", "))
	for _, g := range t.gangs {
		if lines := g.traced(); g.name == third.claimant && lines != nil {
			row("the claim of "+g.name, "%s", lines[0])
			for _, line := range lines[1:] {
				row("", "%s", line)
			}
		}
	}
	if third.evicted != "" {
		row("", "events of PodGroup %s, for which it was, and %s:", third.claimant, third.evicted)
		lines("", cmp.Or(third.claimed, "(not written: too many events)")+"\n"+cmp.Or(third.event, "(not written: too many events)"))
		row("", "conditions of PodGroup %s, while it was evicted and while it waited:", third.evicted)
		lines("", third.target+third.condition)
		row("", "basalt why %s/%s", teamsNamespace, third.evicted)
		lines("", third.why)
		row("", "basalt queue list %s", shared)
		lines("", third.queues)
	}
	inPart := "never in part"
	if len(t.inPart) > 0 || !third.whole {
		inPart = "not only so, see below"
	}
	row("whole", "%d gangs ran %d times with all %d pods, %s: at most %s from a gang's first Binding to its last, and %s from its first eviction to its last", len(t.gangs), runs, teamPods,
		inPart, t.toStart.Round(time.Millisecond), t.toLeave.Round(time.Millisecond))
	if third.evicted != "" {
		row("see it yourself", "make demo ends its cluster; bin/basalt-bench demo --keep leaves it, and prints what to export. Then:")
		row("", "  kubectl describe podgroup -n %s %s %s   (their events stay for an hour)", teamsNamespace, third.claimant, third.evicted)
		row("", "  bin/basalt why %s/%s   (why it waits, or that it runs again)", teamsNamespace, third.evicted)
		row("", "  bin/basalt queue list %s", shared)
	}
	if !third.whole {
		bad = append(bad, "part 3: the teams did not get what they deserve, see the notes")
	}
	switch {
	case evictions < prodGangs:
		bad = append(bad, fmt.Sprintf("part 3: %d gangs were to be evicted, and %d were", prodGangs, evictions))
	case evictions > prodGangs: // a pod did not leave in time, for example
		row("note", "part 3: %d gangs would have been enough, and %d were evicted", prodGangs, evictions)
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
