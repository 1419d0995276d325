package promised

import (
	"fmt"
	"math/rand/v2"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
)

// Config is what is explored; a result is complete for it.
type Config struct {
	World
	Weak   []Rule // rules that are not kept
	faults faults
	spec.Bounds
}

func (cfg Config) String() string { return fmt.Sprintf("%s, faults %v", cfg.Name, cfg.faults) }

// Run explores breadth first, until a violation, a bound, or the end.
func Run(cfg Config, now func() time.Time) spec.Result {
	return spec.Run(&machine{Config: cfg, weak: spec.Weak(cfg.Weak)}, cfg.Bounds, now)
}

// The worlds. Gangs are a, which runs, b, and c.
var (
	// a has one of the nodes that b needs, and c, which has no limit, would have either.
	stranger = World{Name: "stranger", Room: [nodes]int{1, 1}, Quota: 9, Horizon: 5, Born: 3, Offers: 1,
		Gangs: []Shape{{1, 1, false}, {2, 2, true}, {1, 0, false}}}
	// c would be gone by then, if it is granted at once, and may run past its limit.
	short = World{Name: "short", Room: [nodes]int{1, 1}, Quota: 9, Horizon: 6, Born: 2, Offers: 1,
		Gangs: []Shape{{1, 2, false}, {2, 2, true}, {1, 1, false}}}
	// There is room for three pods, and quota for two.
	quota = World{Name: "quota", Room: [nodes]int{3, 0}, Quota: 2, Horizon: 5, Born: 3, Offers: 1,
		Gangs: []Shape{{1, 1, false}, {2, 1, true}, {1, 1, true}}}
	// b and c wait for the same node.
	rivals = World{Name: "rivals", Room: [nodes]int{1, 0}, Quota: 9, Horizon: 6, Born: 2, Offers: 1,
		Gangs: []Shape{{1, 1, false}, {1, 1, true}, {1, 1, true}}}
	// b may be booked twice: a ends sooner than it said.
	again = World{Name: "again", Room: [nodes]int{1, 1}, Quota: 9, Horizon: 5, Born: 1, Offers: 2,
		Gangs: []Shape{{2, 3, false}, {1, 1, true}, {1, 2, false}}}
	// S is so far that what node shards were asked lapses before a Claim has to be there.
	distant = World{Name: "distant", Room: [nodes]int{1, 0}, Quota: 9, Horizon: 6, Born: 1, Offers: 2,
		Gangs: []Shape{{1, 4, false}, {1, 1, true}, {1, 0, false}}}
)

// Small returns what a test exhausts: all rules are kept in each.
func Small() (all []Config) {
	for _, w := range []World{stranger, short, quota, rivals, again, distant} {
		for _, f := range []faults{{crash: 1}, {home: 1}, {restart: 1}, {process: 1}, {late: 1}} {
			all = append(all, Config{World: w, faults: f})
		}
	}
	return all
}

// Drawn returns a world of other sizes, limits and faults, for who looks for what Small misses.
func Drawn(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 1))
	w := World{Name: fmt.Sprint("seed ", seed), Horizon: 6, Born: uint8(1 + r.IntN(2)), Offers: uint8(1 + r.IntN(2)),
		Room: [nodes]int{1 + r.IntN(3), r.IntN(3)}, Quota: 2 + r.IntN(3)}
	w.Gangs = append(w.Gangs, Shape{1, uint8(1 + r.IntN(4)), false})
	for range gangs - 1 {
		w.Gangs = append(w.Gangs, Shape{uint8(1 + r.IntN(2)), uint8(r.IntN(4)), r.IntN(2) == 0})
	}
	w.Gangs[1].Books = true
	cfg := Config{World: w}
	for _, of := range []*uint8{&cfg.faults.crash, &cfg.faults.home, &cfg.faults.restart, &cfg.faults.process,
		&cfg.faults.late} {
		*of = uint8(r.IntN(2))
	}
	return cfg
}

// Weakened is a rule that is not kept, where that is found soonest.
type Weakened struct {
	Rule Rule
	In   Config
}

// EachWeakened returns one for each rule.
func EachWeakened() []Weakened {
	all := []Weakened{
		{BookingInMemory, Config{World: stranger, faults: faults{crash: 1}}},
		{OldTerm, Config{World: distant, faults: faults{crash: 1}}},
		{OldNumber, Config{World: distant}},
		{OfferOutlives, Config{World: distant}},
		{OldTable, Config{World: stranger, faults: faults{restart: 1}}},
		{ClaimUnjudged, Config{World: quota}},
		{ClaimLate, Config{World: short, faults: faults{home: 1}}},
		{Partial, Config{World: stranger}},
		{AskedIgnored, Config{World: stranger}},
		{RoomsUnrecorded, Config{World: stranger, faults: faults{process: 1}}},
		{HeirIgnorant, Config{World: stranger, faults: faults{home: 1}}},
		{Unrepeated, Config{World: short}},
		{RoomsShortLived, Config{World: stranger, faults: faults{home: 1}}},
		{ReplanReplaces, Config{World: again}},
		{OldRequest, Config{World: again, faults: faults{late: 1}}},
		{GrantedForgets, Config{World: stranger, faults: faults{process: 1}}},
		{EarlyEnd, Config{World: quota}},
		{HeirUncounted, Config{World: quota, faults: faults{home: 1}}},
		{AwaitsAtBooking, Config{World: stranger, faults: faults{crash: 1}}},
		{SaidLate, Config{World: short, faults: faults{home: 1}}},
		{DueAsks, Config{World: quota}},
	}
	for i := range all {
		all[i].In.Weak = []Rule{all[i].Rule}
	}
	return all
}
