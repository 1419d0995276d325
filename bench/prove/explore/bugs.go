package explore

import "basalt.dev/basalt/api/fault"

// Bug is one of package api/fault that an exploration has to find.
type Bug struct {
	fault.Fault
	In    Config
	Plain bool // soon enough for an exploration that merges nothing, too
}

// Bugs of the protocol.
var Bugs = []Bug{
	{fault.BindBeforePrepared, Config{Gangs: 1}, true},
	{fault.SkippedAncestor, Config{Quota: 1}, true},
	{fault.AncestorsNotAsked, Config{Quota: 1, Ungated: true}, true},
	{fault.SleepersForgotten, Config{Gangs: 2, Quota: 1, Crashes: 1, Victims: "c"}, false},
	{fault.InheritedFree, Config{Gangs: 2, Crashes: 1, Victims: "s1,s2", Rested: true, Delays: 5}, false},
	{fault.EmptyResolve, Config{Gangs: 1, Crashes: 1, Victims: "s2", Lost: 1, Rested: true, Delays: 3}, false},
	{fault.StartKept, Config{Gangs: 1, Edits: 1, Implied: true}, false},
	{fault.LabelsMoveBound, Config{Gangs: 2, Edits: 1, Delays: -1}, false}, // one alone is repaired
	{fault.NewerVersion, Config{Gangs: 1, Crashes: 1, Victims: "s1", Lost: 1, Rested: true, Delays: 3}, false},
	{fault.ClaimForgotten, Config{Claim: SmallGang, Crashes: 1, Victims: "c", Delays: 2}, false},
	{fault.RealShares, Config{Claim: SmallGang, Crashes: 1, Victims: "c", Delays: 2}, false},
	{fault.CondemnUnwritten, Config{Claim: OnePod}, true},
	{fault.CondemnBelowMinimum, Config{Claim: OnePod, Edits: 1, Delays: 2}, false},
}
