package bookings

import "basalt.dev/basalt/bench/prove/spec"

// Rule can be weakened.
type Rule uint8

// The rules, each as what happens without it. The package comment says them and why.
const (
	BookingInMemory Rule = iota
	SumsAlone
	LentBlind
	GraceForgotten
	SearchForgotten
	StartByForgotten
	UntilUnstarted
	OverrunTolerated
	OverrunAtLimit
	NeedlessOverrun
	RaisedCounts
	OwnCounted
	OthersForgotten
	PlanIgnores
	ReplanPostpones
	ShareReordered
	PathUnasked
	OverrunGone
	EarlyBlind
	FreshLends
	StartedUnheard
	rules
)

var ruleNames = [rules]string{"booking-in-memory", "sums-alone", "lent-blind", "grace-forgotten", "search-forgotten",
	"start-by-forgotten", "until-unstarted", "overrun-tolerated", "overrun-at-limit", "needless-overrun",
	"raised-counts",
	"own-counted", "others-forgotten", "plan-ignores", "replan-postpones", "share-reordered", "path-unasked",
	"overrun-gone", "early-blind", "fresh-lends", "started-unheard"}

func (r Rule) String() string { return ruleNames[r] }

// Rules returns all of them.
func Rules() []Rule { return spec.Rules(rules) }
