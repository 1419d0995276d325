package claims

import (
	"fmt"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
)

// Faults is how often each may happen.
type Faults struct {
	Crash   uint8 // the coordinator is replaced by one of a new term, at most once
	HeirC   uint8 // homes of claimants that are replaced
	HeirV   uint8 // homes of victims that are replaced, and go on
	Restart uint8 // of a node shard
	Timeout uint8 // claims that are dropped before they are granted
	Cancel  uint8 // claimants that are deleted
	Change  uint8 // claimants that ask anew, under another attempt
	Edit    uint8 // of limits, after which no claim is legal
	Cut     uint8 // of the capability, by one pod
	Finish  uint8 // pods of victims that end by themselves
	Lapse   uint8 // holds and promises that are not renewed in time
	Late    uint8 // HoldRequests that arrive after their gang has withdrawn, at a shard that does not remember it
}

func (f Faults) faults() faults {
	return faults{f.Crash, f.HeirC, f.HeirV, f.Restart, f.Timeout, f.Cancel, f.Change, f.Edit, f.Cut, f.Finish, f.Lapse, f.Late}
}

// Config is what is explored; a result is complete for it.
type Config struct {
	World World
	Weak  []Rule // rules that are not kept
	Faults
	spec.Bounds
}

func (cfg Config) String() string {
	out := cfg.World.Name
	f := cfg.Faults.faults()
	for _, o := range []struct {
		n    uint8
		name string
	}{{f.crash, "crash"}, {f.heirC, "heir of claimant"}, {f.heirV, "heir of victim"}, {f.restart, "restart"}, {f.timeout, "timeout"}, {f.cancel, "cancel"},
		{f.change, "change"}, {f.edit, "edit"}, {f.cut, "cut"}, {f.finish, "finish"}, {f.lapse, "lapse"}, {f.late, "late hold"}} {
		if o.n > 0 {
			out += ", " + o.name
		}
		if o.n > 1 {
			out += fmt.Sprintf(" %d", o.n)
		}
	}
	for _, r := range cfg.Weak {
		out += ", " + r.String()
	}
	return out
}

// Run explores breadth first, until a violation, a bound, or the end.
func Run(cfg Config, now func() time.Time) spec.Result {
	return spec.Run(newMachine(cfg), cfg.Bounds, now)
}
