package console

import (
	"fmt"
	"time"

	"basalt.dev/basalt/api/visibility"
)

// clusterState is Basalt's status, at a time.
type clusterState struct {
	visibility.Status
	At time.Time
}

// takeover is who took what over, as the control store has it. It has no times of what buckets there are: those are
// when a status that says the epoch was first seen, zero where none was.
type takeover struct {
	At   time.Time
	Says string
}

// takeoversOf lists them, the latest first.
func takeoversOf(s *clusterState, seen func(epoch int64) time.Time) (out []takeover) {
	if c := s.Coordinator; c != nil && c.Since != nil {
		out = append(out, takeover{*c.Since, fmt.Sprintf("coordinator %s leads, with term %d", c.Name, c.Term)})
	}
	if s.Table == nil {
		return out
	}
	for _, c := range s.Table.Changes {
		says := fmt.Sprintf("epoch %d: shard %s took over %d buckets, and has them", c.Epoch, c.Shard, c.Buckets)
		if c.Shard == "" {
			says = fmt.Sprintf("epoch %d: %d buckets lost their shard, and have none", c.Epoch, c.Buckets)
		}
		out = append(out, takeover{seen(int64(c.Epoch)), says})
	}
	return out
}

// maxEpochs bounds of how many epochs it is remembered when they were seen.
const maxEpochs = 64

// epochs are when statuses of an epoch of the table of buckets were first seen. A list says nothing of when.
type epochs struct {
	listed int64
	seen   map[int64]time.Time
}

func (e *epochs) list(epoch int64) { e.listed = max(e.listed, epoch) }

func (e *epochs) see(epoch int64) {
	if _, is := e.seen[epoch]; is || epoch <= e.listed {
		return
	}
	if len(e.seen) >= maxEpochs {
		oldest := epoch
		for old := range e.seen {
			oldest = min(oldest, old)
		}
		delete(e.seen, oldest)
	}
	e.seen[epoch] = time.Now()
}
