package claims

import "basalt.dev/basalt/bench/prove/spec"

// in returns a configuration in a world.
func in(name string, f Faults) Config {
	w, _ := WorldNamed(name)
	return Config{World: w, Faults: f}
}

// one of each fault. A late HoldRequest needs a gang that has withdrawn.
var single = []Faults{{}, {Crash: 1}, {HeirC: 1}, {HeirV: 1}, {Restart: 1}, {Timeout: 1}, {Cancel: 1}, {Change: 1}, {Edit: 1}, {Cut: 1}, {Finish: 1}, {Finish: 2}, {Lapse: 1},
	{Late: 1, Cancel: 1}, {Late: 1, Change: 1}}

// several that concern each other.
var several = []Faults{{Crash: 1, HeirC: 1, HeirV: 1}, {Crash: 1, Change: 1, HeirC: 1}, {Restart: 1, Lapse: 1, HeirC: 1}, {Timeout: 1, Cancel: 1, Change: 1},
	{Edit: 1, Crash: 1, HeirC: 1}, {Cut: 1, Crash: 1, Finish: 2}, {Finish: 2, HeirC: 1, HeirV: 1}, {Timeout: 2, HeirV: 1}, {Cancel: 2, Crash: 1}, {Timeout: 1, HeirC: 1, Crash: 1},
	{Change: 1, HeirC: 1, HeirV: 1}}

// Small returns what a test exhausts, and Large what `make claims` adds: all rules are kept in each.
func Small() []Config {
	var all []Config
	for _, w := range Worlds {
		for _, f := range single {
			all = append(all, Config{World: w, Faults: f, Bounds: spec.Bounds{Ends: true}})
		}
	}
	for _, name := range []string{"again", "room-rival", "room", "two-rival"} {
		for _, f := range []Faults{{Crash: 1, HeirC: 1}, {Crash: 1, Change: 1}, {Finish: 1, HeirC: 1}, {Timeout: 1, HeirV: 1}, {Restart: 1, HeirC: 1}, {Lapse: 1, Crash: 1}} {
			cfg := in(name, f)
			cfg.Ends = true
			all = append(all, cfg)
		}
	}
	return all
}

// Large takes some minutes.
func Large() []Config {
	var all []Config
	for _, w := range Worlds {
		for i, f := range single[1:] {
			for _, g := range single[i+2:] {
				f, g := f.faults(), g.faults()
				all = append(all, Config{World: w, Faults: Faults{f.crash | g.crash, f.heirC | g.heirC, f.heirV | g.heirV, f.restart | g.restart, f.timeout | g.timeout,
					f.cancel | g.cancel, f.change | g.change, f.edit | g.edit, f.cut | g.cut, f.finish | g.finish, f.lapse | g.lapse, f.late | g.late}})
			}
		}
		for _, f := range several {
			all = append(all, Config{World: w, Faults: f})
		}
	}
	return all
}

// Weakened is a rule that is not kept, where that is found soon.
type Weakened struct {
	Rule Rule
	In   Config
}

// EachWeakened returns one for each rule.
func EachWeakened() []Weakened {
	all := []Weakened{
		{EvictFirst, in("pair", Faults{})},
		{TwoClaims, in("chain", Faults{Cancel: 1})},
		{ClaimWithoutAttempt, in("again", Faults{Finish: 2})},
		{OldTerm, in("pair", Faults{Crash: 1, Change: 1})},
		{OldSerial, in("pair", Faults{Cancel: 1})},
		{ClaimForgotten, in("again", Faults{Crash: 1, HeirC: 1})},
		{CloseWithoutAttempt, in("room", Faults{Finish: 2})},
		{DroppedIsClosed, in("pair", Faults{Timeout: 1})},
		{IllegalIsClosed, in("pair", Faults{Edit: 1})},
		{DroppedIsOpened, in("pair", Faults{Timeout: 1})},
		{RealShares, in("again", Faults{})},
		{UnfitGrant, in("pair", Faults{})},
		{EarlyGrant, in("room-only-rival", Faults{Finish: 1})},
		{UnreserveKeepsClaim, in("pair", Faults{Cancel: 1})},
		{SparedIsForgotten, in("either", Faults{Timeout: 1})},
		{ClaimsUnpromised, in("room-rival", Faults{})},
		{PromiseStolen, in("room-rival", Faults{})},
		{PromiseUnrepeated, in("pair", Faults{Restart: 1})},
		{PromiseReplaced, in("chain", Faults{})},
		{HoldAndWait, in("claimants", Faults{})},
		{HeirIgnorant, in("room-rival", Faults{HeirC: 1})},
		{HeirWithdraws, in("room-rival", Faults{HeirC: 1})},
		{EvictUnread, in("again", Faults{HeirV: 1, Cancel: 1})},
		{ReadBeforeSeen, in("placing", Faults{HeirV: 1, Cancel: 1})},
		{RowsUnfenced, in("placing", Faults{HeirV: 1})},
		{UnfitClaimStands, in("pair", Faults{Cut: 1})},
		{OldHome, in("room-rival", Faults{HeirC: 1})},
		{ReducibleClaim, in("either", Faults{Cancel: 1})},
		{PodsUnnamed, in("room", Faults{})},
		{AwaitsVictims, in("two-rival", Faults{HeirC: 1, Finish: 1})},
		{AwaitsForgotten, in("room-rival", Faults{HeirC: 1})},
		{RoomGivenBack, in("room", Faults{Crash: 1})},
		{SparedIsAwaited, in("room-only-rival", Faults{Edit: 1, Finish: 1})},
		{VictimClaims, in("mend-again", Faults{})},
		{ClaimantTaken, in("mend-again", Faults{})},
	}
	for i := range all {
		all[i].In.Weak, all[i].In.Limit = []Rule{all[i].Rule}, 2_000_000
	}
	return all
}
