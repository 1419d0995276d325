package ledger

const (
	a, b, c    = 0, 1, 2
	ab, bc, ac = 1<<a | 1<<b, 1<<b | 1<<c, 1<<a | 1<<c
	abc        = 1<<a | 1<<b | 1<<c
)

// Patterns of ownership. A is the home of the pod with the term (p, or the gang l1, l2), B that of the other (q, or f).
var Patterns = []Pattern{
	{Name: "own", First: Table{[2]uint8{a, b}, c, abc, 0}, Next: []Table{
		{[2]uint8{a, b}, a, ab, 0},       // the ledger is declared dead
		{[2]uint8{a, c}, c, ac, 0},       // the home of q is declared dead, the ledger's shard inherits
		{[2]uint8{a, b}, c, abc, 1 << b}, // the home of q restarts
		{[2]uint8{b, b}, c, bc, 0},       // the home of p is declared dead
		{[2]uint8{a, b}, c, abc, 1 << c}, // the ledger restarts
	}},
	{Name: "home", First: Table{[2]uint8{a, b}, a, ab, 0}, Next: []Table{
		{[2]uint8{b, b}, b, 1 << b, 0},  // A is declared dead
		{[2]uint8{a, a}, a, 1 << a, 0},  // B is declared dead
		{[2]uint8{a, c}, a, abc, 0},     // C joins and gains q's queue
		{[2]uint8{a, b}, a, ab, 1 << b}, // B restarts
		{[2]uint8{a, b}, c, abc, 0},     // C joins and gains the ledger
	}},
	{Name: "orphan", First: Table{[2]uint8{a, b}, a, ab, 0}, Next: []Table{
		{[2]uint8{a, nobody}, a, 1 << a, 0}, // B is declared dead, and nobody has q's queue yet
	}},
	{Name: "orphan-moved", First: Table{[2]uint8{a, b}, b, ab, 0}, Next: []Table{
		{[2]uint8{a, nobody}, a, 1 << a, 0}, // the same, and A gains the ledger
	}},
	{Name: "plain", First: Table{[2]uint8{a, b}, b, ab, 0}, Next: []Table{
		{[2]uint8{a, a}, a, 1 << a, 0},  // B is declared dead
		{[2]uint8{b, b}, b, 1 << b, 0},  // A is declared dead
		{[2]uint8{a, a}, b, ab, 0},      // q's queue moves
		{[2]uint8{a, b}, a, ab, 0},      // the ledger moves
		{[2]uint8{a, b}, b, ab, 1 << b}, // B restarts
	}},
	{Name: "support", Support: true, First: Table{[2]uint8{a, b}, b, ab, 0}, Next: []Table{
		{[2]uint8{a, b}, a, ab, 0},     // the ledger moves
		{[2]uint8{b, b}, b, 1 << b, 0}, // A is declared dead
	}},
}

// PatternNamed returns the pattern of a name.
func PatternNamed(name string) (Pattern, bool) {
	for _, p := range Patterns {
		if p.Name == name {
			return p, true
		}
	}
	return Pattern{}, false
}

// Small returns what a test exhausts, and Large what `make ledger` adds: all rules are kept in each.
func Small() []Config {
	var all []Config
	for _, p := range Patterns {
		for _, late := range []bool{false, true} {
			p.Late = late
			if late && (p.Name == "own" || p.Name == "home" || p.Support) {
				continue
			}
			changes := uint8(1)
			edits := uint8(0)
			if p.Support {
				changes, edits = 0, 1
			}
			all = append(all, each(Config{Pattern: p, Changes: changes, Attempts: 1, Edits: edits})...)
		}
	}
	plain, _ := PatternNamed("plain")
	plain.Both = true
	return append(all, each(Config{Pattern: plain, Attempts: 2, Edits: 1, Deletes: 1, Lost: 1, Abandons: 1})...)
}

// Large takes some minutes.
func Large() []Config {
	var all []Config
	for _, p := range Patterns {
		for _, late := range []bool{false, true} {
			if p.Support && late {
				continue
			}
			p.Late = late
			all = append(all, each(Config{Pattern: p, Changes: 1, Attempts: 1})...)
			if p.Support {
				continue
			}
			p := p
			p.Both = true
			all = append(all, each(Config{Pattern: p, Changes: 1, Attempts: 1})...)
			p.Both = false
			if p.Name == "plain" && !late {
				all = append(all, each(Config{Pattern: p, Changes: 1, Attempts: 2})...)
				all = append(all, each(Config{Pattern: p, Changes: 1, Attempts: 1, Edits: 1})...)
				all = append(all, each(Config{Pattern: p, Changes: 1, Attempts: 1, Deletes: 1})...)
				all = append(all, each(Config{Pattern: p, Changes: 1, Attempts: 1, Lost: 1, Abandons: 1})...)
				all = append(all, Config{Pattern: p, Changes: 2, Attempts: 1})
			}
		}
	}
	return all
}

// each returns a configuration for each next table.
func each(cfg Config) []Config {
	if cfg.Changes == 0 {
		return []Config{cfg}
	}
	var all []Config
	for k := range cfg.Pattern.Next {
		one := cfg
		one.Pattern.Next = cfg.Pattern.Next[k : k+1]
		all = append(all, one)
	}
	return all
}
