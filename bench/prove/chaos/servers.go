package chaos

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"basalt.dev/basalt/api/wait"
	"basalt.dev/basalt/bench/stage/local"
)

// What is done to the servers that Basalt stands on. Whoever does something to one has it alone: see attack.once.

func (a *attack) stores() []*local.Etcd { return a.Cluster.ControlStoreMembers() }

// storeLeader is the member that leads, or the first if none says so.
func (a *attack) storeLeader() []*local.Etcd {
	for _, e := range a.stores() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		s, err := a.etcd.Status(ctx, e.Endpoints()[0])
		cancel()
		if err == nil && s.Leader == s.Header.MemberId {
			return []*local.Etcd{e}
		}
	}
	return a.stores()[:1]
}

// take takes members for as long as something is done to them; false if one of them is taken.
func (a *attack) take(members []*local.Etcd) (ok bool, release func()) {
	var done []func()
	release = func() {
		for _, f := range done {
			f()
		}
	}
	for _, e := range members {
		ok, d := a.once(e.Name())
		if !ok {
			release()
			return false, nil
		}
		done = append(done, d)
	}
	return true, release
}

func names(members []*local.Etcd) (all []string) {
	for _, e := range members {
		all = append(all, e.Name())
	}
	return all
}

func (a *attack) killStore(members []*local.Etcd, d time.Duration) {
	ok, done := a.take(members)
	if !ok {
		return
	}
	a.about = fmt.Sprintf("%v for %s", names(members), d.Round(time.Millisecond))
	for _, e := range members {
		e.Kill()
	}
	a.lasting(d, func() {
		defer done()
		for _, e := range members {
			if err := e.Spawn(); err != nil {
				a.logf("HARNESS start %s: %v", e.Name(), err)
			}
		}
	})
}

func (a *attack) pauseStore(members []*local.Etcd, d time.Duration) {
	ok, done := a.take(members)
	if !ok {
		return
	}
	a.about = fmt.Sprintf("%v for %s", names(members), d.Round(time.Millisecond))
	for _, e := range members {
		_ = e.Process().Signal(syscall.SIGSTOP)
	}
	a.lasting(d, func() {
		defer done()
		for _, e := range members {
			_ = e.Process().Signal(syscall.SIGCONT)
		}
	})
}

// loseQuorum takes one member more away than the store can do without, by death or by silence.
func (a *attack) loseQuorum(d time.Duration) {
	members := slices.Clone(a.stores())
	a.rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	members = members[:len(members)/2+1]
	if a.rand.IntN(2) == 0 {
		a.killStore(members, d)
	} else {
		a.pauseStore(members, d)
	}
}

// compactStore forgets what the auditor has seen: a watch that is further behind cannot go on.
func (a *attack) compactStore() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	at := a.auditor.Report().Revision
	if _, err := a.etcd.Compact(ctx, at); err == nil {
		a.about = fmt.Sprintf("at revision %d", at)
	}
}

// killAPI ends the API server and starts it again; with forget, its own store is compacted meanwhile.
func (a *attack) killAPI(forget bool) {
	ok, done := a.once("api")
	if !ok {
		return
	}
	a.about = "API server"
	a.Cluster.KillAPIServer()
	if forget {
		if err := a.compactAPIStore(); err != nil {
			a.logf("HARNESS compact the API server's store: %v", err)
		}
	}
	a.lasting(0, func() {
		defer done()
		if err := a.Cluster.StartAPIServer(context.Background()); err != nil {
			a.logf("HARNESS start the API server: %v", err)
		}
		a.logf("the API server is back")
	})
}

func (a *attack) compactAPIStore() error {
	c, err := clientv3.New(clientv3.Config{Endpoints: a.Cluster.APIStore().Endpoints(), Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	now, err := c.Get(ctx, "nothing")
	if err == nil {
		_, err = c.Compact(ctx, now.Header.Revision)
	}
	return err
}

func (a *attack) pauseAPI(d time.Duration) {
	ok, done := a.once("api")
	if !ok {
		return
	}
	p := a.Cluster.APIServerProcess()
	a.about = fmt.Sprintf("for %s", d.Round(time.Millisecond))
	_ = p.Signal(syscall.SIGSTOP)
	a.lasting(d, func() { defer done(); _ = p.Signal(syscall.SIGCONT) })
}

// rolling restarts everything in order, one after another, each when the one before is back. Other faults go on meanwhile.
func (a *attack) rolling() {
	ok, done := a.once("rolling")
	if !ok {
		return
	}
	a.about = "everything"
	a.lasting(0, func() {
		defer done()
		for _, m := range a.members {
			if b := m.running(); b != nil && a.loading.Err() == nil {
				_ = b.Signal(syscall.SIGTERM)
				within, cancel := context.WithTimeout(a.loading, 20*time.Second)
				_ = poll(within, func() error { // that it is back; other faults may keep it away
					if now := m.running(); now == nil || now == b {
						return fmt.Errorf("%s is not back", m.name)
					} else if ready(within, now) {
						return nil
					}
					return fmt.Errorf("%s is not ready", m.name)
				})
				cancel()
			}
		}
		for _, e := range a.stores() {
			if ok, free := a.take([]*local.Etcd{e}); ok {
				_ = e.Stop()
				if err := e.Spawn(); err != nil {
					a.logf("HARNESS start %s: %v", e.Name(), err)
				}
				free()
				wait.For(a.loading, 2*time.Second)
			}
		}
		if ok, free := a.once("api"); ok {
			_ = a.Cluster.StopAPIServer()
			if err := a.Cluster.StartAPIServer(context.Background()); err != nil {
				a.logf("HARNESS start the API server: %v", err)
			}
			free()
		}
		a.logf("everything was restarted in order")
	})
}
