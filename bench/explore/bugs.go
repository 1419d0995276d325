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
	{fault.InheritedFree, Config{Gangs: 2, Crashes: 1, Rested: true}, false},
	{fault.SkippedAncestor, Config{Quota: 1}, true},
	{fault.AncestorsNotAsked, Config{Quota: 1}, true},
}
