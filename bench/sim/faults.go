package sim

import (
	"time"

	"basalt.dev/basalt/api"
)

// faults draws what goes wrong.
type faults struct{}

// begin starts the faults; they end when the world is calm.
func (f *faults) begin(w *world) {
	w.store.unreliable, w.api.unreliable = 3, 3
	var draw func()
	draw = func() {
		if w.calm {
			return
		}
		w.after(w.between(50*time.Millisecond, 1200*time.Millisecond), draw)
		f.draw(w)
	}
	w.after(5*time.Second, draw)
}

func (f *faults) draw(w *world) {
	if len(w.processes) == 0 {
		return
	}
	p := pick(w, w.processes)
	switch n := w.rng.IntN(100); {
	case n < 14:
		p.fuse = 1 + w.rng.IntN(30)
	case n < 17:
		w.count("crashes")
		p.die("crash")
	case n < 27:
		p.pause(w.between(100*time.Millisecond, 9*time.Second))
	case n < 47:
		q := pick(w, w.processes)
		if p == q {
			return
		}
		c := w.net.conn(p, q)
		switch d := w.between(time.Second, 9*time.Second); w.rng.IntN(4) {
		case 0:
			w.log("fault: connection %s -> %s breaks", p.inc, q.inc)
			w.count("connections broken")
			w.net.breaks(c)
		case 1:
			w.log("fault: connection %s -> %s is cut for %s", p.inc, q.inc, d)
			w.count("connections cut")
			c.cut = w.now.Add(d)
			w.net.breaks(c)
			for _, co := range w.coords { // gossip hears of it
				if co.process == p || co.process == q {
					other := q
					if co.process == q {
						other = p
					}
					co.later(w.delay(), func() { co.suspect(other.inc) })
				}
			}
		default:
			w.log("fault: connection %s -> %s is slow for %s", p.inc, q.inc, d)
			w.count("connections slow")
			c.slow = w.now.Add(d)
		}
	case n < 62:
		if len(p.watchers) == 0 {
			return
		}
		x := pick(w, p.watchers)
		switch w.rng.IntN(3) {
		case 0:
			w.log("fault: %s lists %ss anew", p.inc, x.feed.kind)
			w.count("watches broken")
			x.relist()
		default:
			d := w.between(time.Second, 12*time.Second)
			w.log("fault: %s sees no %ss for %s", p.inc, x.feed.kind, d)
			w.count("watches stalled")
			x.stalled = w.now.Add(d)
		}
	case n < 70:
		if len(p.followers) > 0 {
			d := w.between(time.Second, 12*time.Second)
			w.log("fault: %s hears nothing of the store for %s", p.inc, d)
			w.count("store watches stalled")
			pick(w, p.followers).stalled = w.now.Add(d)
		}
	case n < 72:
		d := w.between(500*time.Millisecond, 8*time.Second)
		w.log("fault: the store has no quorum for %s", d)
		w.count("quorums lost")
		w.store.down = w.now.Add(d)
	case n < 75:
		d := w.between(200*time.Millisecond, 5*time.Second)
		w.log("fault: the API server is away for %s", d)
		w.count("API server restarts")
		w.api.down = w.now.Add(d)
	case n < 80:
		d := w.between(time.Second, 9*time.Second)
		w.log("fault: %s is cut off from the store for %s", p.inc, d)
		w.count("cut off from the store")
		p.noStore = w.now.Add(d)
	case n < 84:
		d := w.between(time.Second, 9*time.Second)
		w.log("fault: %s is cut off from the API server for %s", p.inc, d)
		w.count("cut off from the API server")
		p.noAPI = w.now.Add(d)
	case n < 91:
		s := &w.store.server
		if w.some(2) {
			s = &w.api.server
		}
		s.unreliable = 60
		w.count("unreliable times")
		w.log("fault: unreliable for a while")
		w.after(w.between(time.Second, 6*time.Second), func() {
			if !w.calm {
				s.unreliable = 3
			}
		})
	default:
		w.load.scale(w)
	}
}

// end heals everything.
func (f *faults) end(w *world) {
	w.calm = true
	w.log("calm: the faults end")
	w.store.unreliable, w.api.unreliable = 0, 0
	none := time.Time{}
	w.store.down, w.api.down = none, none
	for _, key := range w.net.keys() {
		c := w.net.conns[key]
		c.cut, c.slow = none, none
	}
	for _, p := range append([]*process(nil), w.processes...) {
		p.fuse, p.noStore, p.noAPI = 0, none, none
		for _, x := range p.watchers {
			x.stalled = none
		}
		for _, x := range p.followers {
			x.stalled = none
		}
		p.resume()
	}
}

func (n *network) keys() [][2]api.Incarnation {
	var out [][2]api.Incarnation
	for _, from := range n.w.processes {
		for _, to := range n.w.processes {
			key := [2]api.Incarnation{from.inc, to.inc}
			if n.conns[key] != nil {
				out = append(out, key)
			}
		}
	}
	return out
}
