package server

import (
	"context"
	"errors"
	"sync"
	"time"

	"basalt.dev/basalt/api/fault"
	"basalt.dev/basalt/api/store"
	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/api/wire"
	"basalt.dev/basalt/coordinator/leadership"
)

// terms does what package leadership says, one term after the other, until stopping ends, which is no error, or the process must
// start over.
func (c *candidate) terms(stopping context.Context, record *wire.LeaderRecord, lead func(*store.Term) error) error {
	p, o := c.process, &c.office
	var held *store.Term
	end := func(err error) leadership.End {
		return leadership.End{Err: err, Stopping: stopping.Err() != nil, Replaced: errors.Is(err, store.ErrReplaced)}
	}
	for {
		switch step, pause, err := o.next(); step {
		case leadership.Campaign:
			if held, err = p.Store.Campaign(stopping, record); err != nil {
				why := end(err)
				if o.do(func(t *leadership.Terms) { t.NotElected(why) }); !why.Stopping && !why.Replaced {
					p.Log.Warn("campaign failed, retrying", "error", err)
				}
				continue
			}
			o.won(held, stopping.Err() != nil)
		case leadership.Lead:
			fault.Crash(fault.TermWon)
			why := end(lead(held))
			o.do(func(t *leadership.Terms) { t.Ended(time.Now(), why) })
			if why.Stopping {
				fault.Crash(fault.TermEnding)
				continue
			}
			_, pause, _ := o.next()
			p.Log.Warn("the term is over", "term", held.Number(), "error", why.Err, "pause", pause)
			if !why.Replaced {
				c.metrics.termFailed(why.Err)
			}
		case leadership.Resign:
			if err = resign(held); err != nil && stopping.Err() == nil {
				p.Log.Warn("cannot delete the leader key, which expires with its lease", "term", held.Number(), "error", err)
			}
			o.do(func(t *leadership.Terms) { t.Resigned(err) })
		case leadership.Pause:
			stopped := !wait.For(stopping, pause)
			o.do(func(t *leadership.Terms) { t.Paused(stopped) })
		case leadership.Stop:
			return err
		}
	}
}

func resign(held *store.Term) error {
	ctx, cancel := context.WithTimeout(context.Background(), leadership.ResignWithin)
	defer cancel()
	return held.Resign(ctx)
}

// live is the process's answer to /livez: nil unless it must be restarted.
func (c *candidate) live() error {
	if err := c.beat.Stuck(); err != nil {
		return err
	}
	return c.office.stuck()
}

// office is this process's terms, shared with /livez.
type office struct {
	mu    sync.Mutex
	terms *leadership.Terms // nil before the first campaign
	lease <-chan struct{}   // closed when the leader key of the newest term is no longer kept alive
}

// do calls f with the terms.
func (o *office) do(f func(*leadership.Terms)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.terms == nil {
		o.terms = leadership.New()
	}
	f(o.terms)
}

// next returns what to do now, how long to wait with Pause, and the error with Stop.
func (o *office) next() (step leadership.Step, pause time.Duration, err error) {
	o.do(func(t *leadership.Terms) { step, pause, err = t.Step(), t.Wait(), t.Err() })
	return step, pause, err
}

// won is called when the election was won.
func (o *office) won(held *store.Term, stopping bool) {
	o.do(func(t *leadership.Terms) {
		o.lease = held.Done()
		t.Won(time.Now(), held.Number(), stopping)
	})
}

// stuck returns an error when this process keeps the leader key alive, so that nobody else can lead, and runs no term.
func (o *office) stuck() (err error) {
	o.do(func(t *leadership.Terms) {
		kept := o.lease != nil
		select {
		case <-o.lease:
			kept = false
		default:
		}
		err = t.Stuck(time.Now(), kept)
	})
	return err
}
