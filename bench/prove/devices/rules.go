package devices

import "basalt.dev/basalt/bench/prove/spec"

// Rule can be weakened.
type Rule uint8

// The rules, each as what happens without it. The package comment says them and why.
const (
	RowWithoutDevices Rule = iota
	JudgedUnseen
	SentUnjudged
	ClaimsUncounted
	EndsWithKey
	SameVersionEnds
	EarlierAllocationEnds
	StatusUnversioned
	RetriedAfterConflict
	BoundUnwritten
	ClaimsBeforeIntents
	GivenUpUnresolved
	TakenBackUnresolved
	OwnWriteUnseen
	rules
)

var ruleNames = [rules]string{
	"row-without-devices", "judged-unseen", "sent-unjudged", "claims-uncounted", "ends-with-key", "same-version-ends",
	"earlier-allocation-ends", "status-unversioned", "retried-after-conflict", "bound-unwritten",
	"claims-before-intents", "given-up-unresolved", "taken-back-unresolved",
	"own-write-unseen",
}

func (r Rule) String() string { return ruleNames[r] }

// Rules returns all of them.
func Rules() []Rule { return spec.Rules(rules) }
