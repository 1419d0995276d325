package ledger

import (
	"strings"
	"testing"
	"time"
)

func try(t *testing.T, name string, cfg Config) {
	all := cfg.Pattern.Next
	for k := range all {
		if cfg.Changes == 0 && k > 0 {
			continue
		}
		cfg.Pattern.Next = all[k : k+1]
		r := Run(cfg, time.Now)
		t.Logf("%s %s late %t %s: %s\n%s", name, cfg.Pattern.Name, cfg.Pattern.Late, all[k], r, strings.Join(r.Trace, "\n"))
	}
}

func TestQuestions(t *testing.T) {
	for _, p := range Patterns {
		for _, late := range []bool{false, true} {
			p.Late = late
			if strings.HasPrefix(p.Name, "orphan") {
				try(t, "all rules", Config{Pattern: p, Changes: 1, Attempts: 1, Limit: 3000000})
				try(t, "orphans shortcut", Config{Pattern: p, Changes: 1, Attempts: 1, Limit: 3000000, Weak: []Rule{ShortcutWithOrphans}, OnlyC2: true})
			}
			if !p.Support {
				try(t, "takeover shortcut", Config{Pattern: p, Changes: 1, Attempts: 1, Limit: 2000000, Weak: []Rule{ShortcutAtTakeover}, OnlyC2: true})
				try(t, "kept", Config{Pattern: p, Changes: 1, Attempts: 1, Limit: 2000000, Kept: true})
			} else if !late {
				try(t, "strict", Config{Pattern: p, Changes: 0, Attempts: 1, Limit: 3000000, Strict: true, Edits: 1})
			}
		}
	}
}
