package feed

import "basalt.dev/basalt/bench/prove/spec"

// Rule can be weakened.
type Rule uint8

// The rules, each as what happens without it. The package comment says them and why.
const (
	MarkedUnsent Rule = iota
	AnsweredUnsent
	AnsweredEarly
	AskedEarly
	OldAnswer
	OnePart
	PartUnread
	OutIsGone
	LackIsGone
	LackIsIgnored
	LateBelieved
	RowUnmarked
	StrayUnmarked
	ChargedUnnamed
	InheritedUnnamed
	MoveUnsent
	PendingUnsent
	WordsKept
	rules
)

var ruleNames = [rules]string{
	"marked-unsent", "answered-unsent", "answered-early", "asked-early", "old-answer", "one-part", "part-unread",
	"out-is-gone", "lack-is-gone", "lack-is-ignored", "late-believed", "row-unmarked", "stray-unmarked",
	"charged-unnamed", "inherited-unnamed", "move-unsent", "pending-unsent", "words-kept",
}

func (r Rule) String() string { return ruleNames[r] }

// Rules returns all of them.
func Rules() []Rule { return spec.Rules(rules) }
