package claims

import "basalt.dev/basalt/bench/prove/spec"

// Rule can be weakened.
type Rule uint8

// The rules, each as what happens without it. The package comment says them and why.
const (
	EvictFirst Rule = iota
	TwoClaims
	ClaimWithoutAttempt
	OldTerm
	OldSerial
	ClaimForgotten
	CloseWithoutAttempt
	DroppedIsClosed
	IllegalIsClosed
	DroppedIsOpened
	RealShares
	UnfitGrant
	EarlyGrant
	UnreserveKeepsClaim
	SparedIsForgotten
	ClaimsUnpromised
	PromiseStolen
	PromiseUnrepeated
	PromiseReplaced
	HoldAndWait
	HeirIgnorant
	HeirWithdraws
	EvictUnread
	ReadBeforeSeen
	RowsUnfenced
	UnfitClaimStands
	OldHome
	ReducibleClaim
	PodsUnnamed
	AwaitsVictims
	AwaitsForgotten
	RoomGivenBack
	SparedIsAwaited
	VictimClaims
	ClaimantTaken
	rules
)

var ruleNames = [rules]string{"evict-first", "two-claims", "claim-without-attempt", "old-term", "old-serial", "claim-forgotten", "close-without-attempt",
	"dropped-is-closed", "illegal-is-closed", "dropped-is-opened", "real-shares", "unfit-grant", "early-grant", "unreserve-keeps-claim",
	"spared-is-forgotten", "claims-unpromised", "promise-stolen", "promise-unrepeated", "promise-replaced", "hold-and-wait", "heir-ignorant", "heir-withdraws",
	"evict-unread", "read-before-seen", "rows-unfenced", "unfit-claim-stands", "old-home",
	"reducible-claim", "pods-unnamed", "awaits-victims", "awaits-forgotten", "room-given-back", "spared-is-awaited",
	"victim-claims", "claimant-taken"}

func (r Rule) String() string { return ruleNames[r] }

// Rules returns all of them.
func Rules() []Rule { return spec.Rules(rules) }

// Named returns the rule of a name.
func Named(name string) (Rule, error) { return spec.Named[Rule](ruleNames[:], name) }
