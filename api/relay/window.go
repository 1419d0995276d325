package relay

import (
	"fmt"
	"sort"
	"time"

	"basalt.dev/basalt/api/wire"
)

// window is the last events of one kind: all of those after the version `oldest` and up to `newest`. What came longer ago
// than maxAge leaves with the next event, whatever room there is: what is kept follows the rate, and does not grow for hours
// where events are few.
type window struct {
	limits
	oldest, newest uint64
	events         []arrival
	size           int // bytes of their objects, and of what they are packed as
}

type limits struct {
	maxEvents, maxSize int // number, and bytes of their objects
	maxAge             time.Duration
}

type arrival struct {
	*wire.RelayEvent
	at time.Time
}

func newWindow(version uint64, l limits) *window {
	return &window{limits: l, oldest: version, newest: version}
}

// add takes the next event, and keeps it whatever its size. One that is not after all others is refused.
func (w *window) add(e *wire.RelayEvent, now time.Time) error {
	if e.Version <= w.newest {
		return fmt.Errorf("version %d after %d", e.Version, w.newest)
	}
	w.newest = e.Version
	w.events = append(w.events, arrival{e, now})
	w.size += sizeOf(e)
	for len(w.events) > 1 && (len(w.events) > w.maxEvents || w.size > w.maxSize || now.Sub(w.events[0].at) > w.maxAge) {
		w.oldest = w.events[0].Version
		w.size -= sizeOf(w.events[0].RelayEvent)
		w.events[0] = arrival{}
		w.events = w.events[1:]
	}
	return nil
}

// bookmark takes note that there is no other event up to a version.
func (w *window) bookmark(version uint64) error {
	if version < w.newest {
		return fmt.Errorf("bookmark %d after version %d", version, w.newest)
	}
	w.newest = version
	return nil
}

// after returns the first events after a version and up to a limit, as many as one message takes; ok is false when some of
// them have left the window.
func (w *window) after(version, limit uint64) (events []*wire.RelayEvent, ok bool) {
	if version < w.oldest {
		return nil, false
	}
	from := sort.Search(len(w.events), func(i int) bool { return w.events[i].Version > version })
	to, size := from, 0
	for to < len(w.events) && w.events[to].Version <= limit && to-from < batchEvents {
		e := w.events[to].RelayEvent
		if size += sizeOf(e); to > from && size > batchSize {
			break
		}
		events = append(events, e)
		to++
	}
	return events, true
}

func sizeOf(e *wire.RelayEvent) int { return len(e.Object) + len(e.Packed) }
