package chaos

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"basalt.dev/basalt/api/fault"
)

// crashes are the points of package api/fault at which a process is to die: one file each, which the process removes.
type crashes struct {
	dir     string
	mu      sync.Mutex
	armed   map[fault.Point]bool
	visited map[fault.Point]int
}

func newCrashes(dir string) (*crashes, error) {
	c := &crashes{dir: filepath.Join(dir, "crashes"), armed: map[fault.Point]bool{}, visited: map[fault.Point]int{}}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return nil, fmt.Errorf("make folder for crash points: %w", err)
	}
	return c, nil
}

func (c *crashes) arm(p fault.Point) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.armed[p] = true
	return os.WriteFile(filepath.Join(c.dir, string(p)), nil, 0o600)
}

// look counts the points whose files are gone.
func (c *crashes) look() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.armed {
		if _, err := os.Stat(filepath.Join(c.dir, string(p))); os.IsNotExist(err) {
			delete(c.armed, p)
			c.visited[p]++
		}
	}
}

// disarm takes back what nobody came by.
func (c *crashes) disarm() {
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.armed {
		if os.Remove(filepath.Join(c.dir, string(p))) != nil {
			c.visited[p]++
		}
	}
	clear(c.armed)
}

// least is the point that was visited least and is not armed.
func (c *crashes) least(points []fault.Point) (fault.Point, bool) {
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	left := slices.DeleteFunc(slices.Clone(points), func(p fault.Point) bool { return c.armed[p] })
	if len(left) == 0 {
		return "", false
	}
	return slices.MinFunc(left, func(x, y fault.Point) int { return cmp.Compare(c.visited[x], c.visited[y]) }), true
}

// missing lists the points that nobody came by yet.
func (c *crashes) missing(points []fault.Point) (left []fault.Point) {
	c.look()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range points {
		if c.visited[p] == 0 {
			left = append(left, p)
		}
	}
	return left
}

// crashPoint arms a point, and brings a process there that would seldom come by.
func (a *attack) crashPoint() {
	p, ok := a.crashes.least(a.Points)
	if left := a.crashes.missing(a.Points); len(left) > 0 && (!ok || !slices.Contains(left, p)) {
		p = left[a.rand.IntN(len(left))] // armed, but nobody came
	} else if !ok {
		return
	} else if err := a.crashes.arm(p); err != nil {
		a.logf("HARNESS %v", err)
		return
	}
	const long = 8 * time.Second // longer than a lease: others take over
	switch p {
	case fault.ShardRegistered, fault.TakeoverRead, fault.TakeoverListed:
		a.kill(a.shard(), 300*time.Millisecond)
	case fault.ShardStopping, fault.ShardGone:
		a.term(a.shards()[a.rand.IntN(a.Shards)])
	case fault.TableDurable:
		a.kill(a.shard(), long)
	case fault.TermWon, fault.TermLoaded:
		a.kill(a.leader(), long)
	case fault.TermEnding:
		a.term(a.leader())
	case fault.CommitUncertain:
		if time.Since(a.dropped) < 15*time.Second {
			return // a leader that is never let through sends nothing whose answer could be missing
		}
		a.dropped = time.Now()
		a.through(a.leader().etcd, mode{what: "drop"}, 3*time.Second)
	case fault.ResolveSent, fault.ResolveAnswered:
		if m := a.at("intents"); m != nil {
			a.through(m.api, mode{what: "drop"}, time.Second)
		}
	case fault.IntentsRewritten:
		a.lateKill(a.shard(), func(m *member) proxies { return m.api }, "intents")
	case fault.LimitsDurable:
		a.limits()
	case fault.QueueWritten:
		a.queueAgain()
	case fault.CloseDurable, fault.EvictionMarked, fault.EvictionSent:
		a.tear()
	}
	a.about = string(p)
}

// tear makes a gang that will stand in part: the shards' Bindings arrive far apart, and what is not bound yet when the first
// is there is deleted. After its limit the gang is closed, and what is bound of it is evicted.
func (a *attack) tear() {
	ok, done := a.once("tear")
	if !ok {
		return
	}
	a.lasting(35*time.Second, done)
	for i, m := range a.shards() {
		a.through(m.api, mode{what: "late", delay: time.Duration(i) * 600 * time.Millisecond}, 8*time.Second)
	}
	a.load.tearing(5)
}
