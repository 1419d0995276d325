package visibility

import (
	"fmt"
	"time"

	"basalt.dev/basalt/api/wire"
)

// When there may be room. Nodes on which pods of gangs with limits run have room by a time, if those leave by then.
// Nobody keeps that room for the gang, and a limit ends nobody, so it is said as what it is: an outlook.

// roomBy sums up what nodes say of when they have room for more pods.
func roomBy(list []*wire.RoomBy) (by []RoomBy) {
	pods := 0
	for _, b := range list {
		if pods += int(b.GetPods()); b.GetUnixMs() == 0 {
			by = []RoomBy{{Pods: pods}}
			continue
		}
		at := time.UnixMilli(b.GetUnixMs()).UTC()
		if n := len(by); n > 0 && by[n-1].At != nil && by[n-1].At.Equal(at) {
			by[n-1].Pods = pods
			continue
		}
		by = append(by, RoomBy{&at, pods})
	}
	return by
}

// roomBy says when there is room for some pods, and when for as many as are needed; "" if nothing is known of that, or
// what was known is over.
func (w *Why) roomBy(now time.Time) string {
	n := w.Nodes
	if n == nil {
		return ""
	}
	var some, most *RoomBy
	for i := range n.By {
		b := &n.By[i]
		if b.At == nil || !b.At.After(now) {
			if b.Pods >= n.Needed {
				return "" // there is room, and it is not taken for another reason
			}
			continue
		}
		if some == nil {
			some = b
		}
		if most = b; b.Pods >= n.Needed {
			break
		}
	}
	if some == nil {
		return ""
	}
	of := func(b *RoomBy) string {
		return fmt.Sprintf("for %d of %d such pods by %s", min(b.Pods, n.Needed), n.Needed, b.At.Format(time.RFC3339))
	}
	words := of(some)
	if most != some {
		words += ", " + of(most)
	}
	return words + ", if what runs on the nodes leaves by its limit"
}
