package order

import (
	"fmt"
	"time"

	"basalt.dev/basalt/bench/prove/spec"
)

// Config is what is explored; a result is complete for it.
type Config struct {
	World     World
	Weak      []Rule // rules that are not kept
	Edits     uint8  // of pods without a node, at most one of each
	Deletes   uint8  // of pods
	Deaths    uint8  // of Victim, at most 1: it is fenced, has an heir, and goes on
	Victim    uint8
	Breaks    uint8 // of watches of the log
	Late      bool  // no shard has seen the pods at the start
	Clean     bool  // rows are removed once their outcome is known
	Timeouts  bool  // node shards give up prepared rows of gangs over several whenever they like
	Refusals  bool  // node shards refuse Commits of such gangs whenever they like
	NewNode   bool  // the node of the first pod is created late, and shards see it as late as they like
	Drops     bool  // node shards give up one row of a gang after it was judged fit
	MovedNode bool  // it was in another domain before the pod's shard placed the pod, and shards see the change as late as they like
	PointsWin bool  // a gang is not judged against one whose point is behind its own
	Progress  bool  // somebody has to be placed in the end
	spec.Bounds
}

func (cfg Config) String() string {
	out := cfg.World.Name
	for _, o := range []struct {
		n    uint8
		name string
	}{{cfg.Edits, "edits"}, {cfg.Deletes, "deletes"}, {cfg.Breaks, "breaks"}} {
		if o.n > 0 {
			out += fmt.Sprintf(", %s %d", o.name, o.n)
		}
	}
	if cfg.Deaths > 0 {
		out += ", death of " + letter(cfg.Victim)
	}
	for _, o := range []struct {
		on   bool
		name string
	}{{cfg.Late, "late"}, {cfg.Clean, "clean"}, {cfg.Timeouts, "timeouts"}, {cfg.Refusals, "refusals"}, {cfg.Drops, "drops"}, {cfg.NewNode, "new node"}, {cfg.MovedNode, "moved node"}, {cfg.PointsWin, "points win"}, {cfg.Progress, "progress"}} {
		if o.on {
			out += ", " + o.name
		}
	}
	if cfg.World.Most != [units]uint8{} {
		out += fmt.Sprintf(", commits %v", cfg.World.Most[:len(cfg.World.Gangs)])
	}
	return out
}

// Run explores breadth first, until a violation, a bound, or the end.
func Run(cfg Config, now func() time.Time) spec.Result {
	return spec.Run(newMachine(cfg), cfg.Bounds, now)
}
