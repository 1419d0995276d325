package console

import (
	"fmt"
	"time"

	"basalt.dev/basalt/api/visibility"
)

// clusterState is Basalt's status, and what differed from the one before.
type clusterState struct {
	visibility.Status
	At        time.Time
	Takeovers []takeover
}

// takeover is a change of who does what, as two statuses show it.
type takeover struct {
	At   time.Time
	Says string
}

// differences says who took over from whom between two statuses.
func differences(before, is *clusterState) (out []takeover) {
	add := func(format string, args ...any) { out = append(out, takeover{is.At, fmt.Sprintf(format, args...)}) }
	switch a, b := before.Coordinator, is.Coordinator; {
	case a == nil && b == nil:
	case b == nil:
		add("coordinator %s leads no more, and no other does yet", a.Name)
	case a == nil:
		add("coordinator %s leads, with term %d", b.Name, b.Term)
	case a.Term != b.Term:
		add("coordinator %s leads in place of %s, with term %d", b.Name, a.Name, b.Term)
	}
	was := map[string]visibility.Shard{}
	for _, a := range before.Shards {
		was[a.Name] = a
	}
	for _, b := range is.Shards {
		a, known := was[b.Name]
		delete(was, b.Name)
		switch {
		case !known:
			add("shard %s has come", b.Name)
		case a.Incarnation != b.Incarnation:
			add("shard %s was started anew", b.Name)
		case a.State != b.State:
			add("shard %s: %s, before %s", b.Name, b.State, a.State)
		}
		if known && a.Buckets != b.Buckets {
			add("shard %s has %d buckets, before %d", b.Name, b.Buckets, a.Buckets)
		}
	}
	for name := range was {
		add("shard %s is gone", name)
	}
	return out
}
