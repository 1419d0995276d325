// Package pool keeps control planes that nobody uses, made as new, for whoever wants one next: most of what a control
// plane costs is its start, five seconds of a processor. Test programs that run side by side borrow them from one pool,
// whose owner is the process that runs them.
//
// One that nobody uses is paused: else it would take 5 % of a processor, and all of them together more than their
// starts.
//
// It decides when control planes start and stop, and owns them; a borrower can pause, stop and start a server, but then
// the control plane is used no more. It refuses to hand on what Reset could not make as new, and what a borrower gave
// back unclean: because its test failed, it had stopped a server, or it died.
package pool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"basalt.dev/basalt/bench/stage/local"
)

const (
	// starting is how many control planes start at a time. With more of them at once, all would be late.
	starting = 2
	// idle is how many wait at most for the next one who wants one like them: each keeps half a gigabyte.
	idle = 4
)

// Pool is a set of control planes. Its methods can be called side by side.
type Pool struct {
	root  string
	out   io.Writer
	turns chan struct{}

	mu     sync.Mutex
	planes []*plane // that nobody uses, the oldest first
	taken  map[*local.Cluster]*plane
	work   sync.WaitGroup // resets and stops
	errs   []error
}

type plane struct {
	kind    string
	dir     string
	cluster *local.Cluster
	lent    bool          // another process judges how its servers end
	ready   chan struct{} // closed when it is as new, or err says why not
	err     error
}

// New returns an empty pool. Programs are taken from bin/ below root, which holds them when a control plane is asked
// for. What a person should know is written to out.
func New(root string, out io.Writer) *Pool {
	return &Pool{root: root, out: out, turns: make(chan struct{}, starting), taken: map[*local.Cluster]*plane{}}
}

// Lends reports whether control planes with these options are kept: those that have one machine.
func Lends(o local.Options) bool {
	return o.Network == nil && o.ControlStoreMembers <= 1 && o.Dir == ""
}

func kindOf(o local.Options) string {
	return fmt.Sprintf("%t %t %q", o.ControllerManager, o.Installed, o.APIServerFlags)
}

// Take returns a control plane as local.Start would: one that was given back, or a new one.
func (p *Pool) Take(ctx context.Context, o local.Options) (*local.Cluster, error) {
	for kind := kindOf(o); ; {
		p.mu.Lock()
		at := slices.IndexFunc(p.planes, func(is *plane) bool { return is.kind == kind })
		if at < 0 {
			p.mu.Unlock()
			return p.start(ctx, o)
		}
		has := p.planes[at]
		p.planes = slices.Delete(p.planes, at, at+1)
		p.mu.Unlock()
		<-has.ready
		if has.err == nil {
			has.err = has.cluster.Resume(ctx)
		}
		if has.err == nil {
			has.cluster.UseBasalt(o.Basalt)
			p.give(has)
			return has.cluster, nil
		}
		fmt.Fprintf(p.out, "a control plane is not handed on: %v\n", has.err)
		p.work.Go(func() { p.end(has) })
	}
}

func (p *Pool) give(to *plane) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken[to.cluster] = to
}

func (p *Pool) start(ctx context.Context, o local.Options) (*local.Cluster, error) {
	p.makeRoom()
	select {
	case p.turns <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for others to start: %w", context.Cause(ctx))
	}
	defer func() { <-p.turns }()
	dir, err := os.MkdirTemp("", "basalt-cluster-")
	if err != nil {
		return nil, err
	}
	o.Root, o.Dir, o.Audit = p.root, dir, true // for whoever has it after this one
	c, err := local.Start(ctx, o)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	p.give(&plane{kind: kindOf(o), dir: dir, cluster: c})
	return c, nil
}

// makeRoom stops the oldest of those that nobody wanted, if there are many.
func (p *Pool) makeRoom() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for len(p.planes) > idle {
		old := p.planes[0]
		p.planes = p.planes[1:]
		p.work.Go(func() { <-old.ready; p.end(old) })
	}
}

// Give takes a control plane back. It is handed on if it is clean, which means that its user's test passed, and if
// nobody could have stopped a server; otherwise it is stopped.
func (p *Pool) Give(c *local.Cluster, clean bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	back := p.taken[c]
	delete(p.taken, c)
	if back == nil {
		return
	}
	if !clean || !c.Untouched() {
		p.work.Go(func() { p.end(back) })
		return
	}
	back.ready, back.lent = make(chan struct{}), false
	p.planes = append(p.planes, back)
	p.work.Go(func() {
		defer close(back.ready)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if back.err = c.Reset(ctx); back.err == nil {
			back.err = c.Pause()
		}
	})
}

// end stops a control plane and removes what it wrote.
func (p *Pool) end(of *plane) {
	if err := errors.Join(of.cluster.Stop(), os.RemoveAll(of.dir)); err != nil && of.err == nil && !of.lent {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.errs = append(p.errs, err)
	}
}

// Close stops all control planes, those that were taken, too, and reports what had died or could not be stopped.
func (p *Pool) Close() error {
	p.mu.Lock()
	all := p.planes
	p.planes = nil
	for _, t := range p.taken {
		all = append(all, t)
	}
	clear(p.taken)
	p.mu.Unlock()
	for _, of := range all {
		p.work.Go(func() {
			if of.ready != nil {
				<-of.ready
			}
			p.end(of)
		})
	}
	p.work.Wait()
	return errors.Join(p.errs...)
}
