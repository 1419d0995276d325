package hostile

import (
	"fmt"
	"io"
	"time"
)

// Write prints two tables for a person. The first is what each attack did to the others, as p50 and p99 from create to bind, each
// beside the floor: the same of the control group at the same time. The second is CPU, of a quiet phase and under the attack.
func (r *Result) Write(w io.Writer) {
	limit := "not limited"
	if r.Writes > 0 {
		limit = fmt.Sprintf("limited to %g writes a second", r.Writes)
	}
	fmt.Fprintf(w, "  the attacker is %s; the others create %g gangs and pods a second, and the control group as many\n", limit, r.Rate)
	fmt.Fprintf(w, "  create to bind, p50 / p99, and the same of the control group\n")
	fmt.Fprintf(w, "  %-24s %8s %7s  %27s  %27s  %27s  %8s  %6s %5s %5s\n", "attack", "writes/s", "refused", "before (floor)", "under attack (floor)", "objects standing (floor)", "allowed", "deaths", "terms", "audit")
	for _, row := range r.Rows {
		fmt.Fprintf(w, "  %-24s %8.1f %7d  %27s  %27s  %27s  %8s  %6d %5d %5d\n", row.Attack, float64(row.Accepted)/max(row.For.Seconds(), 0.001), row.Refused, row.Quiet, row.Under, row.Standing,
			r.allowed(row, row.Under).Round(time.Millisecond), row.Deaths, row.Terms, row.Violations)
	}
	fmt.Fprintf(w, "  all quiet phases: %s of %d items; %d placed in all\n", r.Quiet, r.Quiet.Tenants.Items, r.Items)
	fmt.Fprintf(w, "  CPU in percent of one, quiet / under attack; writes a second of Basalt to the API server\n")
	fmt.Fprintf(w, "  %-24s %15s %15s %15s %15s %15s %15s\n", "attack", "coordinators", "shards", "control store", "API server", "others", "Basalt's writes")
	for _, row := range r.Rows {
		q, u := row.QuietUsage, row.UnderUsage
		both := func(before, under float64) string { return fmt.Sprintf("%.0f / %.0f", before, under) }
		fmt.Fprintf(w, "  %-24s %15s %15s %15s %15s %15s %15s\n", row.Attack, both(q.share(q.Coordinators), u.share(u.Coordinators)), both(q.share(q.Shards), u.share(u.Shards)),
			both(q.share(q.ControlStore), u.share(u.ControlStore)), both(q.share(q.APIServer), u.share(u.APIServer)), both(q.share(q.Others), u.share(u.Others)), both(q.rate(), u.rate()))
	}
	for _, p := range r.Failed() {
		fmt.Fprintf(w, "PROBLEM %s\n", p)
	}
}

func (m Waits) String() string {
	if m.Tenants.Items == 0 {
		return "-"
	}
	return fmt.Sprintf("%s (%s)", m.Tenants, m.Floor)
}

// noise is by how much two runs of the same differ.
const noise = 50 * time.Millisecond

// allowed is how large the others' p99 may be at a time when waits were measured: twice what it is in the quiet phases, and
// what the floor, which Basalt has no part in, has grown by.
func (r *Result) allowed(row Row, waits Waits) time.Duration {
	quiet := max(r.Quiet.Tenants.P99, row.Quiet.Tenants.P99)
	grown := waits.Floor.P99 - max(r.Quiet.Floor.P99, row.Quiet.Floor.P99)
	return 2*quiet + max(0, grown) + noise
}

// Slowed are the attacks under which, or after which, the others' p99 from create to bind was larger than allowed.
type Slowed struct {
	Attack   string
	Standing bool  // after the attack, while its objects were there
	Quiet    Waits // of all quiet phases
	Under    Waits
	Allowed  time.Duration
}

// Slowed returns the attacks that slowed others down by more than they slowed the control group.
func (r *Result) Slowed() (slow []Slowed) {
	for _, row := range r.Rows {
		for i, waits := range []Waits{row.Under, row.Standing} {
			if allowed := r.allowed(row, waits); waits.Tenants.P99 > allowed {
				slow = append(slow, Slowed{row.Attack, i == 1, r.Quiet, waits, allowed})
				break
			}
		}
	}
	return slow
}

func (s Slowed) String() string {
	when := "under attack"
	if s.Standing {
		when = "with the objects of the attack standing"
	}
	return fmt.Sprintf("%s: the others' p50 / p99 %s was %s (floor %s); in the quiet phases it was %s (floor %s), and %s are allowed", s.Attack, when,
		s.Under.Tenants, s.Under.Floor, s.Quiet.Tenants, s.Quiet.Floor, s.Allowed.Round(time.Millisecond))
}
