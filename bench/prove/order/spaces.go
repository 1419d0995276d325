package order

// in returns a configuration in a world, in which homes commit each gang so often.
func in(name string, cfg Config, most ...uint8) Config {
	cfg.World, _ = WorldNamed(name)
	copy(cfg.World.Most[:], most)
	return cfg
}

// faults that each world is explored with.
var faults = []Config{{Edits: 1}, {Deletes: 1}, {Late: true, Clean: true}, {Breaks: 1, Clean: true}}

// Small returns what a test exhausts, and Large what `make order` adds: all rules are kept in each.
func Small() []Config {
	var all []Config
	for _, name := range []string{"plain", "plain-first", "both", "key", "support", "support-own"} {
		for _, cfg := range faults {
			all = append(all, in(name, cfg))
		}
		for _, victim := range []uint8{a, b} {
			all = append(all, in(name, Config{Deaths: 1, Victim: victim, Clean: true}, 1, 1))
		}
	}
	for _, name := range []string{"gang", "gang-plain", "gang-judge", "gang-one"} {
		for _, wins := range []bool{false, true} {
			all = append(all, in(name, Config{Timeouts: true, Refusals: true, PointsWin: wins}, 1, 2), in(name, Config{Edits: 1, PointsWin: wins}, 1, 2))
		}
		if name == "gang-plain" || name == "gang-judge" {
			all = append(all, in(name, Config{Deaths: 1}, 1, 1))
		}
	}
	return append(all, in("plain", Config{NewNode: true, Edits: 1}), in("support-gang", Config{Timeouts: true}, 1, 1), in("leader", Config{Timeouts: true}), in("leader", Config{Edits: 1}), in("leader-own", Config{Drops: true}), in("leader-own", Config{Drops: true, Edits: 1}), in("gang-one", Config{Drops: true}, 1, 1),
		in("spread", Config{}), in("spread", Config{Edits: 1}, 1, 1, 1), in("spread-waves", Config{}, 1, 1, 1), in("mutual", Config{}), in("mutual", Config{Edits: 1}), in("mutual-gangs", Config{}, 1, 1), in("gangs", Config{}, 1, 1), in("gangs", Config{PointsWin: true}, 1, 1))
}

// Large takes some minutes.
func Large() []Config {
	var all []Config
	for _, name := range []string{"plain", "plain-fresh", "plain-crossed", "both", "key", "support", "support-own"} {
		for _, victim := range []uint8{a, b} {
			all = append(all, in(name, Config{Deaths: 1, Victim: victim, Clean: true}, 1, 2), in(name, Config{Deaths: 1, Victim: victim, Clean: true}, 2, 1),
				in(name, Config{Deaths: 1, Victim: victim, Edits: 1, Clean: true}, 1, 1))
		}
	}
	for _, name := range []string{"gang", "gang-plain", "gang-judge", "gang-one"} {
		for _, wins := range []bool{false, true} {
			for _, cfg := range faults {
				cfg.PointsWin = wins
				all = append(all, in(name, cfg, 1, 1))
			}
			all = append(all, in(name, Config{Deaths: 1, PointsWin: wins}, 1, 1), in(name, Config{Deaths: 1, Victim: b, PointsWin: wins}, 1, 1), in(name, Config{Deaths: 1, Timeouts: true, Clean: true, PointsWin: wins}, 1, 1),
				in(name, Config{Timeouts: true, PointsWin: wins}, 2, 1), in(name, Config{Breaks: 1, Clean: true, PointsWin: wins}, 1, 2))
		}
	}
	for _, wins := range []bool{false, true} {
		all = append(all, in("gangs", Config{Timeouts: true, Refusals: true, PointsWin: wins}, 1, 1), in("gangs", Config{Edits: 1, PointsWin: wins}, 1, 1))
	}
	return append(all, in("gang", Config{Deaths: 1}, 1, 2), in("gang-judge", Config{Deaths: 1}, 1, 2),
		in("support-gang", Config{Timeouts: true, Edits: 1}, 1, 2), in("support-gang", Config{Deaths: 1}, 1, 1), in("support-gang", Config{Breaks: 1, Clean: true}, 1, 1),
		in("spread-waves", Config{Edits: 1}, 1, 1, 1), in("spread-waves", Config{Deletes: 1}, 1, 1, 1), in("spread-waves", Config{Deaths: 1}, 1, 1, 1), in("mutual-gangs", Config{Timeouts: true}, 1, 1), in("mutual-gangs", Config{Edits: 1}, 1, 1),
		in("spread", Config{Edits: 1}), in("spread", Config{Deletes: 1}), in("spread", Config{Late: true, Clean: true}, 1, 1, 1),
		in("spread", Config{Deaths: 1}, 1, 1, 1), in("spread", Config{Breaks: 1, Clean: true}, 1, 1, 1))
}

// Weakened is a rule that is not kept, where that is found soonest.
type Weakened struct {
	Rule Rule
	In   Config
}

// EachWeakened returns one for each rule.
func EachWeakened() []Weakened {
	all := []Weakened{
		{JudgedUnseen, in("plain", Config{})},
		{LaterRowsCount, in("plain", Config{Progress: true}, 1, 1)},
		{PlainUnjudged, in("plain", Config{})},
		{KeyIsOnePlace, in("key", Config{})},
		{RemovedIsOver, in("plain", Config{Clean: true})},
		{SameVersionIsOver, in("plain", Config{})},
		{GivenUpUnsaid, in("gang", Config{}, 1, 2)},
		{RowsWithoutTerms, in("plain-first", Config{Late: true})},
		{LabelsUnawaited, in("plain", Config{Late: true})},
		{UnknownNodeIsNowhere, in("plain", Config{NewNode: true})},
		{RowsSupport, in("support", Config{})},
		{SaidSupports, in("support", Config{})},
		{GangSupports, in("leader", Config{Timeouts: true})},
		{ListedBeforeRead, in("plain-fresh", Config{Deaths: 1, Victim: b, Clean: true}, 1, 1)},
		{StartUnlisted, in("plain-fresh", Config{Deaths: 1, Victim: b, Clean: true}, 1, 1)},
		{BreakUnlisted, in("plain", Config{Breaks: 1, Clean: true})},
		{LateBind, in("gang", Config{Timeouts: true}, 1, 2)},
		{BindOfAnyCommit, in("gang", Config{Timeouts: true}, 2, 1)},
		{HomeJudgesUnseen, in("gang", Config{}, 1, 1)},
		{JudgedOnce, in("leader", Config{Timeouts: true})},
		{HeirBinds, in("plain", Config{Deaths: 1}, 1, 1)},
		{HeirRemovesUnmoved, in("key", Config{Deaths: 1}, 1, 1)},
		{RestIsKept, in("gang-one", Config{Deaths: 1, Victim: b}, 1, 1)},
		{IgnoredAfterRead, in("gang", Config{PointsWin: true, Breaks: 1, Clean: true}, 1, 1)},
		{WaitsForEver, in("mutual", Config{}, 1, 1)},
		{GangsWait, in("mutual-gangs", Config{}, 1, 1)},
		{NodesUnsaid, in("plain", Config{MovedNode: true})},
		{LeftUnjudged, in("leader-own", Config{Drops: true})},
	}
	for i := range all {
		all[i].In.Weak, all[i].In.Limit = []Rule{all[i].Rule}, 2_000_000
	}
	return all
}
