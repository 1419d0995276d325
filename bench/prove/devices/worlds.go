package devices

import (
	"fmt"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
)

// World is what there is.
type World struct {
	Name   string
	Pods   int
	Nodes  [pods]uint8  // of pods
	Owners [nodes]uint8 // shards
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
	one    = World{Name: "one pod", Pods: 1, Owners: [nodes]uint8{0, 1}}
	local  = World{Name: "a device of a node", Pods: 2, Owners: [nodes]uint8{0, 1}}
	shared = World{Name: "a device of a pool", Pods: 2, Nodes: [pods]uint8{0, 1}, Owners: [nodes]uint8{0, 1}}
)

// Small returns what a test exhausts: all rules are kept in each, and from each state an end is reached.
func Small() []Config {
	all := []Config{
		{World: one, Faults: Faults{Moves: 2, Deaths: 1, Losses: 1}},
		{World: one, Faults: Faults{Moves: 1, Crashes: 1, Deaths: 1, Agains: 1}},
		{World: one, Faults: Faults{Crashes: 2, Undos: 1, Losses: 2}},
		{World: local, Faults: Faults{Moves: 1}},
		{World: local, Faults: Faults{Moves: 1, Losses: 1}},
		{World: local, Faults: Faults{Crashes: 1}},
		{World: local, Faults: Faults{Undos: 1, Losses: 1}},
		{World: local, Faults: Faults{Undos: 1, Deaths: 1}},
		{World: shared, Faults: Faults{Losses: 1}},
		{World: shared, Faults: Faults{Deaths: 1}},
		{World: shared, Faults: Faults{Undos: 1}},
		{World: shared, Faults: Faults{Moves: 1}},
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
		{RowWithoutDevices, Config{World: local}},
		{JudgedUnseen, Config{World: shared}},
		{SentUnjudged, Config{World: shared}},
		{ClaimsUncounted, Config{World: local}},
		{EndsWithKey, Config{World: shared}},
		{SameVersionEnds, Config{World: shared}},
		{EarlierAllocationEnds, Config{World: shared, Faults: Faults{Deaths: 1, Agains: 1}}},
		{StatusUnversioned, Config{World: local, Faults: Faults{Moves: 1}}},
		{RetriedAfterConflict, Config{World: local, Faults: Faults{Moves: 1}}},
		{BoundUnwritten, Config{World: one}},
		{ClaimsBeforeIntents, Config{World: local, Faults: Faults{Moves: 1, Crashes: 1}}},
		{GivenUpUnresolved, Config{World: local, Faults: Faults{Moves: 1}}},
		{TakenBackUnresolved, Config{World: one, Faults: Faults{Moves: 1}}},
		{OwnWriteUnseen, Config{World: one, Faults: Faults{Undos: 1}}},
	}
	for i := range all {
		all[i].In.Weak, all[i].In.Limit = []Rule{all[i].Rule}, 2_000_000
	}
	return all
}
