package sim

import (
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"basalt.dev/basalt/api"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/bench/prove/model"
	"basalt.dev/basalt/shard/event"
)

// The log of intents, as shards follow it: each change in order, and all of it anew when a watch broke.

// logChange is what a watch of the log shows of a revision; false for nothing.
func (s *store) logChange(events []model.Event[proto.Message]) (event.LogSeen, bool) {
	out := event.LogSeen{Revision: s.Revision()}
	for _, e := range events {
		if strings.HasPrefix(e.Key, keys.AllIntents()) {
			in := s.logged(e.Key)
			if in.Place = e.Create; !e.Deleted {
				in.Record = e.Value.(*wire.IntentsRecord)
			}
			out.Intents = append(out.Intents, in)
		}
	}
	return out, len(out.Intents) > 0
}

// logAll is what a read of the log shows.
func (s *store) logAll() event.LogRead {
	out := event.LogRead{Revision: s.Revision()}
	for _, key := range s.with(keys.AllIntents()) {
		in := s.logged(key)
		in.Place, in.Record = s.Keys[key].Create, s.Keys[key].Value.(*wire.IntentsRecord)
		out.Intents = append(out.Intents, in)
	}
	return out
}

func (s *store) logged(key string) event.LoggedIntents {
	inc, number, _ := strings.Cut(strings.TrimPrefix(key, keys.AllIntents()), "/")
	n, err := strconv.ParseUint(number, 16, 64)
	if err != nil {
		s.w.fail("key %q: %v", key, err)
	}
	return event.LoggedIntents{Incarnation: api.Incarnation(inc), N: n}
}

// followLog has a shard follow the log. When it has missed changes, it lists pods again.
func (x *shard) followLog(first func()) {
	x.log = x.follow(x.w.store.log, func(v any) {
		if ev, read := v.(event.LogRead); read {
			fresh := x.cores.View.Position() == 0
			x.step(ev)
			if fresh {
				first()
			} else if x.relisted = true; x.pods != nil { // else the first list is begun after this
				x.w.count("logs read anew")
				x.logTicket = x.pods.relist()
			}
			return
		}
		ev := v.(event.LogSeen)
		x.step(ev)
		x.heeds(ev)
	})
}

// heeds judges that no row counts any more that the log has told the shard was given up: what waits for its domain, or is to be judged
// after it, would wait for nothing.
func (x *shard) heeds(ev event.LogSeen) {
	for i := range ev.Intents {
		in := &ev.Intents[i]
		for _, uid := range in.Record.GetGivenUp() {
			if x.w.count("rows given up"); x.cores.View.Awaits(in.Incarnation, in.N, uid) {
				x.w.fail("C2: %s was told that %s/%d gave pod %s up, and still awaits it", x.inc, in.Incarnation, in.N, uid)
			}
		}
	}
}
