package bookings

import (
	"fmt"
	"math/rand/v2"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
)

// Config is what is explored; a result is complete for it.
type Config struct {
	World
	Weak     []Rule // rules that are not kept
	Crashes  uint8  // of the coordinator
	Restarts uint8  // of node shards
	Raises   uint8  // of limits of gangs that run
	spec.Bounds
}

func (cfg Config) String() string {
	return fmt.Sprintf("%s, crashes %d, restarts %d, raises %d", cfg.Name, cfg.Crashes, cfg.Restarts, cfg.Raises)
}

// Run explores breadth first, until a violation, a bound, or the end.
func Run(cfg Config, now func() time.Time) spec.Result {
	return spec.Run(&machine{Config: cfg, weak: spec.Weak(cfg.Weak)}, cfg.Bounds, now)
}

// The worlds. Gangs are a, b, c; nodes have 2 cores each but where it says so.
var (
	// One queue: a runs, b wants all, c is short.
	oneQueue = World{Name: "one queue", Nodes: [nodes]int{2, 2}, Queues: [leaves + 1]int{4, 4, 4}, Horizon: 6, Born: 2,
		Gangs: []Shape{{0, 2, 1, 2}, {0, 2, 2, 2}, {0, 1, 1, 1}}}
	// The same, and c has no limit.
	stranger = World{Name: "stranger", Nodes: [nodes]int{2, 2}, Queues: [leaves + 1]int{4, 4, 4}, Horizon: 6, Born: 2,
		Gangs: []Shape{{0, 2, 1, 2}, {0, 2, 2, 2}, {0, 1, 1, 0}}}
	// Two leaves that book, and one that is lent to.
	twoLeaves = World{Name: "two leaves", Nodes: [nodes]int{2, 2}, Queues: [leaves + 1]int{3, 3, 3},
		Horizon: 6, Born: 2, Gangs: []Shape{{0, 1, 2, 2}, {1, 1, 2, 2}, {0, 1, 1, 3}}}
	// Quota is plenty, and nodes are not.
	nodesShort = World{Name: "nodes", Nodes: [nodes]int{2, 2}, Queues: [leaves + 1]int{9, 9, 9}, Horizon: 6, Born: 2,
		Gangs: []Shape{{0, 1, 1, 2}, {0, 2, 2, 2}, {1, 1, 1, 3}}}
	// Nodes have room for all.
	quotaShort = World{Name: "quota", Nodes: [nodes]int{4, 4}, Queues: [leaves + 1]int{4, 4, 4}, Horizon: 6, Born: 2,
		Gangs: []Shape{{0, 2, 1, 2}, {0, 2, 2, 2}, {1, 1, 1, 1}}}
	// And two leaves have a booking when a fourth gang asks.
	fourth = World{Name: "fourth", Nodes: [nodes]int{4, 4}, Queues: [leaves + 1]int{4, 4, 4}, Horizon: 5, Born: 1,
		Gangs: []Shape{{0, 1, 2, 2}, {1, 1, 2, 2}, {1, 1, 2, 3}, {0, 1, 4, 1}}}
	// Two gangs that may overrun, one of which will do.
	overruns = World{Name: "overruns", Nodes: [nodes]int{2, 2}, Queues: [leaves + 1]int{9, 9, 9}, Horizon: 6, Born: 2,
		Gangs: []Shape{{0, 1, 2, 1}, {0, 1, 2, 1}, {1, 1, 2, 1}}}
)

// Small returns what a test exhausts: all rules are kept in each.
func Small() (all []Config) {
	for _, w := range []World{oneQueue, stranger, twoLeaves, nodesShort} {
		all = append(all, Config{World: w, Crashes: 1}, Config{World: w, Restarts: 1})
	}
	return append(all, Config{World: oneQueue, Raises: 1}, Config{World: quotaShort}, Config{World: overruns},
		Config{World: fourth})
}

// Drawn returns a world of up to four gangs of other sizes, limits and leaves, for who looks for what Small misses.
func Drawn(seed uint64) Config {
	r := rand.New(rand.NewPCG(seed, 0))
	w := World{Name: fmt.Sprint("seed ", seed), Horizon: 5, Born: 1,
		Nodes:  [nodes]int{1 + r.IntN(4), 1 + r.IntN(4)},
		Queues: [leaves + 1]int{2 + r.IntN(4), 2 + r.IntN(4), 3 + r.IntN(4)}}
	for range 2 + r.IntN(gangs-1) {
		leaf, pods, size, limit := r.IntN(leaves), 1+r.IntN(2), 1+r.IntN(2), r.IntN(4)
		w.Gangs = append(w.Gangs, Shape{uint8(leaf), uint8(pods), uint8(size), uint8(limit)})
	}
	return Config{World: w, Crashes: uint8(r.IntN(2)), Restarts: uint8(r.IntN(2)), Raises: uint8(r.IntN(2))}
}

// Weakened is a rule that is not kept, where that is found soonest.
type Weakened struct {
	Rule Rule
	In   Config
}

// EachWeakened returns one for each rule.
func EachWeakened() []Weakened {
	all := []Weakened{
		{BookingInMemory, Config{World: oneQueue, Crashes: 1}},
		{SumsAlone, Config{World: nodesShort}},
		{LentBlind, Config{World: nodesShort}},
		{GraceForgotten, Config{World: oneQueue}},
		{SearchForgotten, Config{World: oneQueue}},
		{StartByForgotten, Config{World: oneQueue}},
		{UntilUnstarted, Config{World: quotaShort}},
		{OverrunTolerated, Config{World: oneQueue}},
		{OverrunAtLimit, Config{World: oneQueue}},
		{NeedlessOverrun, Config{World: overruns}},
		{RaisedCounts, Config{World: oneQueue, Raises: 1}},
		{OwnCounted, Config{World: twoLeaves}},
		{OthersForgotten, Config{World: fourth}},
		{PlanIgnores, Config{World: twoLeaves}},
		{ReplanPostpones, Config{World: oneQueue}},
		{ShareReordered, Config{World: twoLeaves}},
		{PathUnasked, Config{World: twoLeaves}},
		{OverrunGone, Config{World: fourth}},
		{EarlyBlind, Config{World: nodesShort}},
		{FreshLends, Config{World: nodesShort, Restarts: 1}},
		{StartedUnheard, Config{World: oneQueue, Crashes: 1}},
	}
	for i := range all {
		all[i].In.Weak, all[i].In.Limit = []Rule{all[i].Rule}, 2_000_000
	}
	return all
}
