package feed

import (
	"fmt"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
)

// World is what there is.
type World struct {
	Name    string
	Pods    int            // and parts
	There   int            // pods at the start, which the home of the first queue knows
	Grouped [pods]bool     // pods whose queue is that of the group
	Owners  [buckets]uint8 // shards
}

// Config is what is explored; a result is complete for it.
type Config struct {
	World
	Faults
	Weak []Rule // rules that are not kept
	spec.Bounds
}

func (cfg Config) String() string { return fmt.Sprintf("%s, %+v", cfg.Name, cfg.Faults) }

// Run explores breadth first, until a violation, a bound, or the end.
func Run(cfg Config, now func() time.Time) spec.Result {
	return spec.Run(&machine{Config: cfg, weak: spec.Weak(cfg.Weak)}, cfg.Bounds, now)
}

// The worlds.
var (
	// All is at one shard.
	one = World{Name: "one", Pods: 1, There: 1, Grouped: [pods]bool{true}}
	two = World{Name: "two", Pods: 2, There: 2, Grouped: [pods]bool{true}}
	// The node is at one shard, the queues are at the other.
	apart = World{Name: "apart", Pods: 2, There: 2, Grouped: [pods]bool{true}, Owners: [buckets]uint8{1, 0, 0}}
	// The queues are apart.
	homes = World{Name: "homes", Pods: 1, Grouped: [pods]bool{true}, Owners: [buckets]uint8{0, 0, 1}}
)

// Small returns what a test exhausts: all rules are kept in each, and from each state an end is reached.
func Small() []Config {
	all := []Config{
		{World: homes, Faults: Faults{Births: 1, Groups: 1, Switches: 1}},
		{World: homes, Faults: Faults{Births: 1, Groups: 1, Restarts: 1}},
		{World: homes, Faults: Faults{Births: 1, Groups: 1, Deaths: 1}},
		{World: homes, Faults: Faults{Births: 1, Groups: 1, Touches: 1}},
		{World: homes, Faults: Faults{Births: 1, Touches: 1, Deaths: 1, Restarts: 1}},
		{World: homes, Faults: Faults{Births: 1, Deaths: 1, Switches: 1}},
		{World: one, Faults: Faults{Groups: 1, Queues: 1}},
		{World: one, Faults: Faults{Deaths: 1, Queues: 1, Restarts: 1}},
		{World: one, Faults: Faults{Nodes: 1, Switches: 1}},
		{World: one, Faults: Faults{Nodes: 1, Restarts: 1, Deaths: 1}},
		{World: one, Faults: Faults{Nodes: 1, Touches: 1}},
		{World: one, Faults: Faults{Nodes: 2}},
		{World: apart, Faults: Faults{Nodes: 1}},
	}
	for i := range all {
		all[i].Ends = true
	}
	return all
}

// Weakened is a rule that is not kept, where that is found soonest.
type Weakened struct {
	Rule Rule
	In   Config
}

// EachWeakened returns one for each rule.
func EachWeakened() []Weakened {
	all := []Weakened{
		{MarkedUnsent, Config{World: two, Faults: Faults{Nodes: 1}}},
		{AnsweredUnsent, Config{World: two, Faults: Faults{Nodes: 1}}},
		{AnsweredEarly, Config{World: two, Faults: Faults{Nodes: 1}}},
		{AskedEarly, Config{World: two, Faults: Faults{Nodes: 1}}},
		{OldAnswer, Config{World: two, Faults: Faults{Nodes: 1}}},
		{OnePart, Config{World: two, Faults: Faults{Nodes: 1}}},
		{PartUnread, Config{World: homes, Faults: Faults{Births: 1, Groups: 1, Restarts: 1}}},
		{OutIsGone, Config{World: homes, Faults: Faults{Births: 1, Groups: 1}}},
		{LackIsGone, Config{World: homes, Faults: Faults{Births: 1, Groups: 1, Restarts: 1}}},
		{LackIsIgnored, Config{World: homes, Faults: Faults{Births: 1, Deaths: 1, Restarts: 1}}},
		{LateBelieved, Config{World: homes, Faults: Faults{Births: 1, Groups: 1, Switches: 1}}},
		{RowUnmarked, Config{World: two, Faults: Faults{Nodes: 1}}},
		{StrayUnmarked, Config{World: homes, Faults: Faults{Births: 1, Groups: 1, Switches: 1}}},
		{ChargedUnnamed, Config{World: homes, Faults: Faults{Births: 1, Groups: 1, Deaths: 1}}},
		{InheritedUnnamed, Config{World: one, Faults: Faults{Groups: 1, Queues: 1}}},
		{MoveUnsent, Config{World: homes, Faults: Faults{Births: 1, Groups: 1}}},
		{PendingUnsent, Config{World: homes, Faults: Faults{Births: 1, Touches: 1}}},
		{WordsKept, Config{World: two, Faults: Faults{Restarts: 1}}},
	}
	for i := range all {
		all[i].In.Weak, all[i].In.Limit = []Rule{all[i].Rule}, 2_000_000
	}
	return all
}
