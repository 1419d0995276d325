package promised

import "basalt.dev/basalt/bench/prove/spec"

// Rule can be weakened.
type Rule uint8

// The rules, each as what happens without it. The package comment says them and why.
const (
	BookingInMemory Rule = iota
	OldTerm
	OldNumber
	OfferOutlives
	OldTable
	ClaimUnjudged
	ClaimLate
	Partial
	AskedIgnored
	RoomsUnrecorded
	HeirIgnorant
	Unrepeated
	RoomsShortLived
	ReplanReplaces
	OldRequest
	GrantedForgets
	EarlyEnd
	HeirUncounted
	AwaitsAtBooking
	SaidLate
	DueAsks
	rules
)

var ruleNames = [rules]string{"booking-in-memory", "old-term", "old-number", "offer-outlives", "old-table",
	"claim-unjudged", "claim-late", "partial", "asked-ignored", "rooms-unrecorded", "heir-ignorant", "unrepeated",
	"rooms-short-lived", "replan-replaces", "old-request", "granted-forgets", "early-end",
	"heir-uncounted", "awaits-at-booking",
	"said-late", "due-asks"}

func (r Rule) String() string { return ruleNames[r] }

// Rules returns all of them.
func Rules() []Rule { return spec.Rules(rules) }
