package order

import "basalt.dev/basalt/bench/prove/spec"

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
	RestIsKept
	IgnoredAfterRead
	WaitsForEver
	GangsWait
	NodesUnsaid
	LeftUnjudged
	rules
)

var ruleNames = [rules]string{"judged-unseen", "later-rows-count", "plain-unjudged", "key-is-one-place", "removed-is-over", "same-version-is-over",
	"given-up-unsaid", "rows-without-terms", "labels-unawaited", "unknown-node-is-nowhere", "rows-support", "said-supports", "gang-supports",
	"listed-before-read", "start-unlisted", "break-unlisted", "late-bind", "bind-of-any-commit", "home-judges-unseen", "judged-once", "heir-binds",
	"heir-removes-unmoved", "rest-is-kept", "ignored-after-read", "waits-for-ever", "gangs-wait", "nodes-unsaid", "left-unjudged"}

func (r Rule) String() string { return ruleNames[r] }

// Rules returns all of them.
func Rules() []Rule { return spec.Rules(rules) }

// Named returns the rule of a name.
func Named(name string) (Rule, error) { return spec.Named[Rule](ruleNames[:], name) }
