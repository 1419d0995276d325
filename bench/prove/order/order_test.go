package order

import (
	"flag"
	"testing"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
	"basalt.dev/basalt/bench/prove/spec/spectest"
)

var large = flag.Bool("large", false, "explore all that `make order` explores")

// TestRulesHold: with all rules, no interleaving of what Small lists violates an invariant.
func TestRulesHold(t *testing.T) {
	cfgs := Small()
	if *large {
		cfgs = append(cfgs, Large()...)
	}
	spectest.Hold(t, cfgs, func(cfg Config) spec.Result {
		cfg.Limit = 40_000_000
		return Run(cfg, time.Now)
	})
}

// TestWeakenedRulesAreFound: without any one of the rules, an invariant is violated.
// It takes 20 s: the states of each weakened world are visited until one is found.
func TestWeakenedRulesAreFound(t *testing.T) {
	spectest.Found(t, Rules(), EachWeakened(), 5, func(w Weakened, kept bool, limit int) spec.Result {
		if w.In.Limit = limit; kept {
			w.In.Weak = nil
		}
		return Run(w.In, time.Now)
	})
}

// TestWhoGetsThrough: of gangs that exclude each other, with nothing else in the way. All may yield if the rows of one of them
// have several places. Then one that is committed once more alone gets through, so that they yield for ever only if they are committed at
// the same time again and again. Where points win, somebody gets through at once.
func TestWhoGetsThrough(t *testing.T) {
	for _, one := range []struct {
		cfg  Config
		gets bool
	}{
		{in("plain", Config{}, 1, 1), true},
		{in("both", Config{}, 1, 1), true},
		{in("gang-one", Config{}, 1, 1), false}, // its rows are in two keys
		{in("gang", Config{}, 1, 1), false},
		{in("gang", Config{}, 1, 2), true},
		{in("gang", Config{}, 2, 1), true},
		{in("gang", Config{PointsWin: true}, 1, 1), true},
		{in("gangs", Config{}, 1, 1), false},
		{in("gangs", Config{}, 1, 2), true},
		{in("gangs", Config{PointsWin: true}, 1, 1), true},
	} {
		one.cfg.Progress = true
		if r := Run(one.cfg, time.Now); r.Complete != one.gets || !one.gets && r.Violation == "" {
			t.Errorf("%s: %s\n%s", one.cfg, r, r.Text())
		}
	}
}

// TestHashesMergeNothingElse: an exploration that compares whole states meets as many.
func TestHashesMergeNothingElse(t *testing.T) {
	for _, cfg := range []Config{in("plain", Config{Edits: 1}), in("key", Config{Deaths: 1, Clean: true}, 1, 1), in("gang", Config{Timeouts: true}, 1, 2)} {
		hashed := Run(cfg, time.Now)
		cfg.Exact = true
		if exact := Run(cfg, time.Now); exact.States != hashed.States || exact.Transitions != hashed.Transitions {
			t.Errorf("%s: %s, and with hashes %s", cfg, exact, hashed)
		}
	}
}
