package ledger

import (
	"flag"
	"strings"
	"testing"
	"time"
)

var large = flag.Bool("large", false, "explore all that `make ledger` explores")

// TestRulesHold: with all rules, no interleaving of what Small lists violates an invariant.
func TestRulesHold(t *testing.T) {
	cfgs := Small()
	if *large {
		cfgs = append(cfgs, Large()...)
	}
	states := 0
	for _, cfg := range cfgs {
		r := Run(cfg, time.Now)
		t.Logf("%s: %s", cfg, r)
		if !r.Complete {
			t.Errorf("%s: %s\n%s", cfg, r, strings.Join(r.Trace, "\n"))
		}
		states += r.States
	}
	t.Logf("%d states", states)
}

// TestWeakenedRulesAreFound: without any one of the rules, an invariant is violated.
func TestWeakenedRulesAreFound(t *testing.T) {
	all := EachWeakened()
	if len(all) != len(Rules()) {
		t.Fatalf("%d of %d rules are weakened", len(all), len(Rules()))
	}
	for i, w := range all {
		if w.Rule != Rules()[i] {
			t.Errorf("%s stands in the place of %s", w.Rule, Rules()[i])
		}
		r := Run(w.In, time.Now)
		if r.Violation == "" || len(r.Trace) < 5 {
			t.Errorf("%s is not found: %s", w.Rule, r)
			continue
		}
		t.Logf("%s: %s\n%s", w.Rule, r, strings.Join(r.Trace, "\n"))
		w.In.Weak = nil
		w.In.Limit = 2 * r.States
		if kept := Run(w.In, time.Now); kept.Violation != "" {
			t.Errorf("%s is found although the rule is kept: %s", w.Rule, kept)
		}
	}
}

// TestHashesMergeNothingElse: an exploration that compares whole states meets as many.
func TestHashesMergeNothingElse(t *testing.T) {
	p, _ := PatternNamed("plain")
	for _, cfg := range each(Config{Pattern: p, Changes: 1, Attempts: 1}) {
		hashed := Run(cfg, time.Now)
		cfg.Exact = true
		if exact := Run(cfg, time.Now); exact.States != hashed.States || exact.Transitions != hashed.Transitions {
			t.Errorf("%s: %s, and with hashes %s", cfg, exact, hashed)
		}
	}
}

// TestWhatTheShortcutRestsOn: the package comment says that a takeover by the shortcut, and counts that are kept over a change of the
// table, are safe while each queue has an owner, and only then.
func TestWhatTheShortcutRestsOn(t *testing.T) {
	for _, p := range Patterns {
		if p.Support || !*large && (p.Name == "own" || p.Name == "home") {
			continue
		}
		orphans := strings.HasPrefix(p.Name, "orphan")
		p.Late = p.Name == "orphan"
		for _, cfg := range each(Config{Pattern: p, Changes: 1, Attempts: 1, OnlyC2: true}) {
			cfg.Weak = []Rule{ShortcutAtTakeover}
			if r := Run(cfg, time.Now); (r.Violation != "") != orphans {
				t.Errorf("by the shortcut: %s: %s\n%s", cfg, r, strings.Join(r.Trace, "\n"))
			}
			cfg.Weak, cfg.Kept = nil, true
			if r := Run(cfg, time.Now); (r.Violation != "") != (p.Name == "orphan") {
				t.Errorf("kept: %s: %s\n%s", cfg, r, strings.Join(r.Trace, "\n"))
			}
		}
	}
}
