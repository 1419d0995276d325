package order

import "slices"

// Rule can be weakened.
type Rule uint8

// The rules, each as what happens without it. The package comment says them and why.
const (
	JudgedUnseen Rule = iota
	LaterRowsCount
	PlainUnjudged
	KeyIsOnePlace
	RemovedIsOver
	SameVersionIsOver
	GivenUpUnsaid
	RowsWithoutTerms
	LabelsUnawaited
	UnknownNodeIsNowhere
	RowsSupport
	SaidSupports
	GangSupports
	ListedBeforeRead
	StartUnlisted
	BreakUnlisted
	LateBind
	BindOfAnyCommit
	HomeJudgesUnseen
	JudgedOnce
	HeirBinds
	HeirRemovesUnmoved
	IgnoredAfterRead
	rules
)

var ruleNames = [rules]string{"judged-unseen", "later-rows-count", "plain-unjudged", "key-is-one-place", "removed-is-over", "same-version-is-over",
	"given-up-unsaid", "rows-without-terms", "labels-unawaited", "unknown-node-is-nowhere", "rows-support", "said-supports", "gang-supports",
	"listed-before-read", "start-unlisted", "break-unlisted", "late-bind", "bind-of-any-commit", "home-judges-unseen", "judged-once", "heir-binds",
	"heir-removes-unmoved", "ignored-after-read"}

func (r Rule) String() string { return ruleNames[r] }

// Rules returns all of them.
func Rules() []Rule {
	var all []Rule
	for r := range rules {
		all = append(all, r)
	}
	return all
}

// Named returns the rule of a name.
func Named(name string) (Rule, bool) {
	i := slices.Index(ruleNames[:], name)
	return Rule(max(i, 0)), i >= 0
}

type weakened uint32

func weak(rs []Rule) (w weakened) {
	for _, r := range rs {
		w |= 1 << r
	}
	return w
}

func (w weakened) has(r Rule) bool { return w&(1<<r) != 0 }

// Weakened is a rule that is not kept, where that is found soonest.
type Weakened struct {
	Rule Rule
	In   Config
}

// EachWeakened returns one for each rule.
func EachWeakened() []Weakened {
	in := func(name string, cfg Config) Config {
		cfg.World, _ = WorldNamed(name)
		cfg.Limit = 2_000_000
		return cfg
	}
	most := func(cfg Config, n ...uint8) Config { copy(cfg.World.Most[:], n); return cfg }
	all := []Weakened{
		{JudgedUnseen, in("plain", Config{})},
		{LaterRowsCount, most(in("plain", Config{Progress: true}), 1, 1)},
		{PlainUnjudged, in("plain", Config{})},
		{KeyIsOnePlace, in("key", Config{})},
		{RemovedIsOver, in("plain", Config{Clean: true})},
		{SameVersionIsOver, in("plain", Config{})},
		{GivenUpUnsaid, most(in("gang", Config{}), 1, 2)},
		{RowsWithoutTerms, in("plain-first", Config{Late: true})},
		{LabelsUnawaited, in("plain", Config{Late: true})},
		{UnknownNodeIsNowhere, in("plain", Config{NewNode: true})},
		{RowsSupport, in("support", Config{})},
		{SaidSupports, in("support", Config{})},
		{GangSupports, in("leader", Config{Timeouts: true})},
		{ListedBeforeRead, most(in("plain-fresh", Config{Deaths: 1, Victim: b, Clean: true}), 1, 1)},
		{StartUnlisted, most(in("plain-fresh", Config{Deaths: 1, Victim: b, Clean: true}), 1, 1)},
		{BreakUnlisted, in("plain", Config{Breaks: 1, Clean: true})},
		{LateBind, most(in("gang", Config{Timeouts: true}), 1, 2)},
		{BindOfAnyCommit, most(in("gang", Config{Timeouts: true}), 2, 1)},
		{HomeJudgesUnseen, most(in("gang", Config{}), 1, 1)},
		{JudgedOnce, in("leader", Config{Timeouts: true})},
		{HeirBinds, most(in("plain", Config{Deaths: 1}), 1, 1)},
		{HeirRemovesUnmoved, most(in("key", Config{Deaths: 1}), 1, 1)},
		{IgnoredAfterRead, most(in("gang", Config{PointsWin: true, Breaks: 1, Clean: true, Timeouts: true}), 1, 1)},
	}
	for i := range all {
		all[i].In.Weak = []Rule{all[i].Rule}
	}
	return all
}
