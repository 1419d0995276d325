package audit

import (
	"fmt"
	"slices"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
)

type reservation struct {
	key      string
	gang     string
	queue    string
	attempt  uint64
	closing  bool
	forced   bool
	demand   api.Resources
	revision int64
	pods     []uint64 // api.PodID of those that it names

	started     bool // as recorded
	preemptible bool
	kept        bool  // it says that it may not be evicted
	granted     int64 // unix milliseconds, 0 where it is not known
	runs        int64 // so many later it is past its limit; 0: it has none
	ranked      bool  // the priority is known
	priority    int64
	claim       *claim
	awaits      []string // UIDs of gangs
	yields      *yielding

	user   string // whose gang it is, as recorded; "namespace NAME" where it is nobody's
	groups []string

	least     int      // it may lose single pods as long as so many are left; 0: all of them or none
	condemned []single // those that it loses
	shrinks   *yielding
}

// A claim is judged at the revision that writes it, from the records as they were before: who is open, who is in
// another claim, whom the rules protect. What depends on sums is judged only if the revision changes nothing else that
// is charged: within a transaction the coordinator may have judged a claim before or after it admitted another gang.
// Sums are those of the virtual tree: what is charged, without what is being given up, with what is promised.
//
// The naive rules here are no copy of the coordinator's, and where theirs need what is not in the records they let
// everything pass: fair shares, which depend on what waits; and what is deserved or guaranteed but does not fit the
// parent, and is cut.

// claim is what a reservation says that others make room for.
type claim struct {
	mandate  uint64
	rule     wire.Rule
	victims  []victim
	named    map[victim]bool
	singles  map[victim][]single // the pods that go alone of those that run on
	promised api.Resources
	lacked   api.Resources // of what the nodes have
	until    int64
}

type victim struct {
	gang    string
	attempt uint64
}

// yielding says for whom a closing reservation is given up, or some of its pods.
type yielding struct {
	to    string
	rule  wire.Rule
	until int64 // Unix ms at which it should have left; 0: not known
}

// Surplus pods: a gang that runs with more pods than its minimum loses single ones to a claim. Judged are I14, that at
// the revision that condemns pods the gang keeps its minimum without them, and I15, that pods are evicted only after
// that; and that who is condemned stays so.

// single is a pod of a gang that goes alone.
type single struct {
	uid    string
	id     uint64
	demand api.Resources
}

func readYielding(y *wire.Yielding) *yielding {
	if y == nil {
		return nil
	}
	return &yielding{y.GetTo().GetUid(), y.GetRule(), y.GetUntilUnixMs()}
}

func (y *yielding) words() string {
	if y == nil {
		return "for nobody"
	}
	return "for gang " + y.to
}

// isCharged reports whether the gang has its quota. A claim may stand before that.
func (r *reservation) isCharged() bool { return r != nil && (r.claim == nil || len(r.demand) > 0) }

// withGang returns amounts that a gang is charged with the gang itself: of api.ResourceGangs it is charged one while it
// is charged anything, which no record says.
func withGang(amounts api.Resources) api.Resources {
	if amounts.IsZero() {
		return amounts
	}
	return amounts.Add(api.Resources{{Resource: api.ResourceGangs, Value: 1}})
}

// charges is what counts at the queues of its path.
func (r *reservation) charges() api.Resources { return withGang(r.demand) }

// open reports whether it is there under an attempt, and not closing.
func (r *reservation) open(attempt uint64) bool {
	return r != nil && !r.closing && r.attempt == attempt
}

// once says for what a gang has another one closed only once: for an attempt, or if it has started, for a claim of a
// further pod.
func (r *reservation) once() uint64 {
	if len(r.demand) > 0 && !r.claim.promised.IsZero() {
		return r.claim.mandate
	}
	return r.attempt
}

// condemns reports whether a record says that a pod leaves.
func (r *reservation) condemns(id uint64) bool {
	return r != nil && slices.ContainsFunc(r.condemned, func(s single) bool { return s.id == id })
}

func (r *reservation) names(id uint64) bool {
	if r == nil {
		return false
	}
	_, named := slices.BinarySearch(r.pods, id)
	return named
}

// staying is what of a reservation is not condemned.
func (r *reservation) staying() api.Resources {
	out := r.demand
	for _, s := range r.condemned {
		out = out.Sub(s.demand).Positive()
	}
	return out
}

// standsFor reports whether a gang is in the claim under an attempt, as a whole.
func (c *claim) standsFor(gang string, attempt uint64) bool {
	return c != nil && c.named[victim{gang, attempt}] && len(c.singles[victim{gang, attempt}]) == 0
}

// opens returns the pods of a victim that are there and not condemned; all of it, as "", for one that is to go as a
// whole.
func (c *claim) opens(v victim, r *reservation) (out []string) {
	if !r.open(v.attempt) {
		return nil
	}
	pods := c.singles[v]
	if len(pods) == 0 {
		return []string{""}
	}
	for _, s := range pods {
		if r.names(s.id) && !r.condemns(s.id) {
			out = append(out, s.uid)
		}
	}
	return out
}

// parts are what a claim takes of a victim, each as a reservation of its own: what the rules judge by itself. What it
// waits for of them it names as their gangs.
func (c *claim) parts(v victim, r *reservation) (out []*reservation) {
	pods := c.singles[v]
	if len(pods) == 0 {
		whole := *r
		whole.demand = withGang(r.staying())
		return []*reservation{&whole}
	}
	for _, s := range pods {
		part := *r
		part.gang, part.demand = s.uid, s.demand
		out = append(out, &part)
	}
	return out
}

// within reports whether a claim is another one, of which some victims may have been left out.
func within(c, of *claim) bool {
	return c.mandate == of.mandate && !slices.ContainsFunc(c.victims, func(v victim) bool { return !of.named[v] })
}

// readClaim reads what a record says of claims.
func (r *reservation) readClaim(rec *wire.ReservationRecord, cfg *Config) error {
	r.started, r.preemptible, r.kept = rec.GetStarted(), rec.GetPreemptible(), rec.GetKept()
	r.granted, r.runs, r.awaits = rec.GetGrantedUnixMs(), rec.GetRunsMs(), rec.GetAwaits()
	r.ranked, r.priority = rec.GetRank() != nil, rec.GetRank().GetPriority()
	r.yields = readYielding(rec.GetYields())
	if err := r.readSurplus(rec, cfg); err != nil {
		return err
	}
	c := rec.GetClaim()
	if c == nil {
		return nil
	}
	promised, err := wire.ToResources(c.GetPromised())
	if err != nil {
		return fmt.Errorf("what its claim promises: %w", err)
	}
	for _, x := range promised {
		if x.Value < 0 {
			return fmt.Errorf("its claim promises a negative amount of %s", x.Resource)
		}
	}
	lacked, err := wire.ToResources(c.GetLacked())
	if err != nil {
		return fmt.Errorf("what its claim lacks: %w", err)
	}
	if promised = cfg.strip(promised); r.demand.IsZero() {
		promised = withGang(promised)
	}
	r.claim = &claim{lacked: lacked, mandate: c.GetMandate(), rule: c.GetRule(), promised: promised,
		until: c.GetUntilUnixMs(), named: map[victim]bool{}, singles: map[victim][]single{}}
	for _, v := range c.GetVictims() {
		named := victim{v.GetGang().GetUid(), v.GetAttempt()}
		r.claim.victims = append(r.claim.victims, named)
		r.claim.named[named] = true
		if r.claim.singles[named], err = readSingles(v.GetPods(), cfg); err != nil {
			return fmt.Errorf("pods of a victim: %w", err)
		}
	}
	return nil
}

func readSingles(in []*wire.SurplusPod, cfg *Config) (out []single, err error) {
	for _, w := range in {
		demand, err := wire.ToResources(w.GetAmounts())
		if err != nil {
			return nil, err
		}
		out = append(out, single{w.GetUid(), api.PodID(w.GetUid()), cfg.strip(demand)})
	}
	return out, nil
}

// readSurplus reads what a record says of single pods.
func (r *reservation) readSurplus(rec *wire.ReservationRecord, cfg *Config) (err error) {
	r.least = int(rec.GetLeast())
	r.shrinks = readYielding(rec.GetShrinks())
	if r.condemned, err = readSingles(rec.GetCondemned(), cfg); err != nil {
		return fmt.Errorf("what it condemns: %w", err)
	}
	return nil
}

// keep takes note of which reservations have a claim or yield.
func (s *store) keep(old, now *reservation) {
	if old != nil {
		if s.claims[old.gang] == old {
			delete(s.claims, old.gang)
		}
		if s.yields[old.gang] == old {
			delete(s.yields, old.gang)
		}
		if s.condemns[old.gang] == old {
			delete(s.condemns, old.gang)
		}
	}
	if now != nil && len(now.condemned) > 0 {
		s.condemns[now.gang] = now
	}
	if now != nil && now.claim != nil {
		s.claims[now.gang] = now
	}
	if now != nil && now.closing && now.yields != nil {
		s.yields[now.gang] = now
	}
}
